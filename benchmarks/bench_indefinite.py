"""Which correction should an indefinite matrix get, and does correction="auto" find it?

Three indefinite kernels on three data sets, ten splits each: every correction of SVC (C = 1) and of the ridge
classifier (alpha = 1, and alpha by leave-one-out). indefinite.csv: one row per split, learner and correction.
indefinite.md: means with standard errors, and whether "auto" is as good as each of the others.

indefinite_large.csv: the same kernels on as many rows as there are, by defaults, below and above the number of rows up
to which a matrix is decomposed, and beside the dense routes on the smaller one: numpy's eigendecomposition and LIBSVM,
and ridge on the rows of K.
"""

from __future__ import annotations

import time
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.preprocessing import MinMaxScaler, StandardScaler, normalize
from sklearn.svm import SVC as LibSVC

import krein
from benchmarks.runner import Request, Task
from krein.datasets import load
from krein.estimators.ridge import KernelRidgeClassifier
from krein.estimators.svm import SVC

COLUMNS = (
    "data", "kernel", "seed", "learner", "correction", "accuracy", "used", "seconds", "n_negative", "negative_share",
)  # fmt: skip
DATA = ("spambase", "pendigit", "gesture")
KERNELS = ("tl1", "tanh", "sphere")
FIXED = {
    "svc": ("none", "shift", "clip", "flip", "square", "krein"),
    "ridge": ("none", "shift", "clip", "flip", "square"),
    "ridge, alpha by leave-one-out": ("shift", "clip", "flip", "square"),
}
TRAIN, TEST, SEEDS = 600, 2000, 10
LARGE_COLUMNS = ("data", "kernel", "n", "route", "accuracy", "standard_error", "used", "seconds")
# Numbers of training rows; the last stands for all rows that are not tested.
LARGE_SIZES = (4900, 5100, 10**6)
TABLES = {"indefinite": COLUMNS, "indefinite_large": LARGE_COLUMNS}


def tasks(request: Request) -> list[Task]:
    names, seeds, n_train = (DATA[:1], 2, 200) if request.quick else (DATA, SEEDS, TRAIN)
    found = [
        Task({"data": name, "kernel": kernel, "seed": seed, "learner": learner}, cell,
             (name, kernel, seed, n_train, learner))
        for name in names
        for kernel in KERNELS
        for seed in range(seeds)
        for learner in FIXED
    ]  # fmt: skip
    for name in names:
        n = load(name).n
        test = min(TEST, n // 4)
        sizes = sorted({min(size, n - test) for size in ((300,) if request.quick else LARGE_SIZES)})
        found += [
            Task({"data": name, "kernel": kernel, "n": size}, large_cell, (name, kernel, size, test, size == sizes[0]),
                 table="indefinite_large")
            for kernel in KERNELS
            for size in sizes
        ]  # fmt: skip
    return found


def report(rows: list[dict[str, str]], large: list[dict[str, str]], request: Request) -> str:
    return summarise(rows) + summarise_large(large)


@lru_cache(maxsize=1)
def split(data: str, name: str, seed: int, n_train: int) -> tuple[Any, ...]:
    """Training rows and labels, test rows and labels, the kernel and its approximation; the learners share them."""
    whole = load(data)
    order = np.random.default_rng(seed).permutation(whole.n)
    train, test = order[:n_train], order[n_train : n_train + TEST]
    X, X_test, kernel = prepared(np.asarray(whole.X, dtype=np.float64), train, test, name)
    return X, whole.y[train], X_test, whole.y[test], kernel, krein.approximate(X, kernel, random_state=seed)


def cell(data: str, name: str, seed: int, n_train: int, learner: str) -> list[dict[str, Any]]:
    """All corrections of one learner on one split."""
    X, y, X_test, y_test, kernel, a = split(data, name, seed, n_train)
    values = a.factorization.eigenvalues()
    spectrum = {
        "n_negative": a.factorization.n_negative(),
        "negative_share": float(np.abs(values[values < 0.0]).sum() / np.abs(values).sum()),
    }
    found = []
    for how in ("auto", *FIXED[learner]):
        common = {"kernel": kernel, "correction": how, "approximation": a, "random_state": seed}
        alpha: Any = 1.0 if learner == "ridge" else "loo"
        machine = SVC(C=1.0, **common) if learner == "svc" else KernelRidgeClassifier(alpha=alpha, **common)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is indefinite is the point
            start = time.process_time()
            machine.fit(X, y)
            taken = time.process_time() - start
            accuracy = machine.score(X_test, y_test)
        found.append(
            {"correction": how,
             "accuracy": accuracy, "used": machine.correction_, "seconds": taken, **spectrum}
        )  # fmt: skip
    return found


def large_cell(data: str, name: str, n: int, n_test: int, dense: bool) -> list[dict[str, Any]]:
    """Both machines with their defaults on n rows and, with ``dense``, the routes that hold all of K."""
    whole = load(data)
    order = np.random.default_rng(0).permutation(whole.n)
    train, test = order[:n], order[whole.n - n_test :]
    X, X_test, kernel = prepared(np.asarray(whole.X, dtype=np.float64), train, test, name)
    y, y_test, found = whole.y[train], whole.y[test], []

    def add(route: str, accuracy: float, used: str, seconds: float) -> None:
        error = float(np.sqrt(accuracy * (1.0 - accuracy) / n_test))
        found.append({"route": route, "accuracy": accuracy,
                      "standard_error": error, "used": used, "seconds": seconds})  # fmt: skip

    for cls in (SVC, KernelRidgeClassifier):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start = time.process_time()
            machine = cls(kernel=kernel, random_state=0).fit(X, y)
            taken = time.process_time() - start
            add(cls.__name__, machine.score(X_test, y_test), machine.correction_, taken)
    if not dense:
        return found
    start = time.process_time()
    K, R = kernel(X, X), kernel(X_test, X)
    values, vectors = np.linalg.eigh((K + K.T) / 2.0)
    spent, RV, classes = time.process_time() - start, R @ vectors, np.unique(y)
    kept = np.abs(values) > 1e-10 * np.abs(values).max()
    for how, changed in (("flip", np.abs(values)), ("clip", np.maximum(values, 0.0)), ("square", values**2)):
        start = time.process_time()
        machine = LibSVC(kernel="precomputed", max_iter=10**6).fit((vectors * changed) @ vectors.T, y)
        turned = np.where(kept, changed / np.where(kept, values, 1.0), 0.0)
        accuracy = machine.score((RV * turned) @ vectors.T, y_test)
        add(f"dense {how}, SVC", accuracy, how, spent + time.process_time() - start)
    codes, size = vectors.T @ np.where(y[:, None] == classes, 1.0, -1.0), float(np.sqrt(np.mean(values**2)))
    scores = [
        float(np.mean(classes[(RV @ ((values / (values**2 + a * size))[:, None] * codes)).argmax(1)] == y_test))
        for a in np.logspace(-5.0, 2.0, 8)
    ]
    add("dense rows of K, ridge", max(scores), "square", spent)
    return found


def summarise_large(rows: list[dict[str, str]]) -> str:
    lines = [
        "## All rows",
        "",
        "Accuracy in %, one split. Dense routes on the smaller number of rows, ridge with the best of eight alphas on",
        "the test rows.",
        "",
        "| data | kernel | n | SVC | ridge | best dense SVC | dense ridge | SVC s | ridge s | used |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    gaps, falls = [], []
    for data, kernel in dict.fromkeys((r["data"], r["kernel"]) for r in rows):
        mine = [r for r in rows if (r["data"], r["kernel"]) == (data, kernel)]
        before: dict[str, Any] = {}
        for n in sorted({int(r["n"]) for r in mine}):
            by = {r["route"]: r for r in mine if int(r["n"]) == n}
            svc, ridge = by["SVC"], by["KernelRidgeClassifier"]
            accuracy = {route: float(r["accuracy"]) for route, r in by.items()}
            dense = max([a for route, a in accuracy.items() if route.endswith(", SVC")], default=None)
            dense_ridge = accuracy.get("dense rows of K, ridge")
            lines.append(
                f"| {data} | {kernel} | {n} | {_percent(accuracy['SVC'])} | "
                f"{_percent(accuracy['KernelRidgeClassifier'])} | {_percent(dense)} | {_percent(dense_ridge)} | "
                f"{float(svc['seconds']):.0f} | {float(ridge['seconds']):.0f} | {svc['used']}, {ridge['used']} |"
            )
            for route, best in (("SVC", dense), ("KernelRidgeClassifier", dense_ridge)):
                if best is not None:
                    gaps.append((best - accuracy[route], data, kernel, route))
                if before:
                    fall = (float(before[route]["accuracy"]) - accuracy[route]) / float(by[route]["standard_error"])
                    falls.append((fall, data, kernel, route, n))
            before = by
    close = sum(gap <= 0.005 for gap, *_ in gaps)
    lines += ["", f"- At most 0.5 points below the dense routes of the same loss in {close} of {len(gaps)} cells."]
    lines += [f"- {d}, {k}, {route}: {100 * gap:.2f} points below." for gap, d, k, route in gaps if gap > 0.005]
    deep = [f for f in falls if f[0] > 2.0]
    lines.append(
        f"- From one n to the next accuracy falls by more than two standard errors in {len(deep)} of {len(falls)}."
    )
    lines += [f"- {d}, {k}, {route}, {n} rows: by {fall:.1f}." for fall, d, k, route, n in deep]
    return "\n".join([*lines, ""])


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def prepared(X: np.ndarray, train: np.ndarray, test: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray, Any]:
    """Rows scaled by the training rows, and the kernel: a tenth of d as rho, tanh(x'y / d - 1), a = 1.2."""
    d = X.shape[1]
    scaler = MinMaxScaler() if name == "tl1" else StandardScaler()
    A, B = scaler.fit(X[train]).transform(X[train]), scaler.transform(X[test])
    if name == "tl1":
        return A, B, krein.TL1(rho=0.1 * d)
    if name == "tanh":
        return A, B, krein.Sigmoid(gamma=1.0 / d, coef0=-1.0)
    return normalize(A), normalize(B), krein.SpherePolynomial(a=1.2)


def summarise(rows: list[dict[str, str]]) -> str:
    lines = [
        '# correction="auto" beside every fixed correction',
        "",
        f"Accuracy in %, mean and standard error over splits of {TRAIN} training and {TEST} test rows. Negative: the",
        "share of the spectrum's sum of magnitudes that is negative. Below: how auto compares. It holds where its mean",
        "is no more than one standard error (of the other's mean) below; paired: of the differences, split by split.",
        "",
    ]
    for learner, corrections in FIXED.items():
        lines += [
            f"## {learner}",
            "",
            "| data | kernel | negative | " + " | ".join(("auto", *corrections)) + " | auto used |",
            "| --- | --- | ---: |" + " ---: |" * (1 + len(corrections)) + " --- |",
        ]
        verdicts = []
        for data, kernel in dict.fromkeys((r["data"], r["kernel"]) for r in rows if r["learner"] == learner):
            mine = [r for r in rows if (r["data"], r["kernel"], r["learner"]) == (data, kernel, learner)]
            by = {how: np.array([float(r["accuracy"]) for r in mine if r["correction"] == how]) for how in
                  ("auto", *corrections)}  # fmt: skip
            used = [r["used"] for r in mine if r["correction"] == "auto"]
            counts = ", ".join(f"{used.count(u)} {u}" for u in sorted(set(used), key=lambda u: (-used.count(u), u)))
            share = np.mean([float(r["negative_share"]) for r in mine])
            lines.append(
                f"| {data} | {kernel} | {share:.2f} | "
                + " | ".join(f"{100 * v.mean():.1f} ± {100 * _error(v):.1f}" for v in by.values())
                + f" | {counts} |"
            )
            for how in corrections:
                gap = by["auto"] - by[how]
                verdicts.append(
                    (data, kernel, how, gap.mean(), gap.mean() >= -_error(by[how]), gap.mean() >= -_error(gap))
                )
        held, paired = (sum(bool(v[i]) for v in verdicts) for i in (4, 5))
        lines += ["", f"- auto holds in {held} of {len(verdicts)} comparisons, paired in {paired}."]
        missed = [v for v in verdicts if not (v[4] and v[5])]
        lines += [
            f"- {d}, {k}: {100 * -gap:.2f} points behind {how}{'' if ok else ', more than one standard error'}."
            for d, k, how, gap, ok, _ in missed
        ]
        lines.append("")
    kinds = [(learner, how) for learner in FIXED for how in ("auto", "flip")]
    seconds = {
        kind: np.mean([float(r["seconds"]) for r in rows if (r["learner"], r["correction"]) == kind]) for kind in kinds
    }
    lines.append(
        "Seconds of a fit, one thread: "
        + "; ".join(f"{learner} {how} {t:.2f}" for (learner, how), t in seconds.items())
        + "."
    )
    return "\n".join(lines) + "\n"


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
