"""Which correction should an indefinite matrix get, and does correction="auto" find it?

Three indefinite kernels on three data sets, ten splits each: every correction of SVC (C = 1) and of the ridge
classifier (alpha = 1, and alpha by leave-one-out). indefinite.csv: one row per split, learner and correction.
indefinite.md: means with standard errors, and whether "auto" is as good as each of the others.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import MinMaxScaler, StandardScaler, normalize
from tqdm import tqdm

import krein
from krein.datasets import load
from krein.estimators.ridge import KernelRidgeClassifier
from krein.estimators.svm import SVC
from krein.experiments.records import Table

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


def run(out: Path, command: str, quick: bool, force: bool) -> None:
    table = Table(out / "indefinite.csv", COLUMNS, command, force)
    data, seeds, n_train = (DATA[:1], 2, 200) if quick else (DATA, SEEDS, TRAIN)
    with tqdm(total=len(data) * len(KERNELS) * seeds, desc="indefinite") as bar:
        for name in data:
            whole = load(name)
            for kernel in KERNELS:
                for seed in range(seeds):
                    left = [k for k in FIXED if not table.has(data=name, kernel=kernel, seed=seed, learner=k)]
                    if left:
                        table.add(cell(whole, kernel, seed, n_train, left))
                    bar.update()
    (out / "indefinite.md").write_text(summarise(table), encoding="utf-8")


def cell(whole: Any, name: str, seed: int, n_train: int, learners: list[str]) -> list[dict[str, Any]]:
    """All corrections of these learners on one split; one matrix serves them all."""
    order = np.random.default_rng(seed).permutation(whole.n)
    train, test = order[:n_train], order[n_train : n_train + TEST]
    X, X_test, kernel = prepared(np.asarray(whole.X, dtype=np.float64), train, test, name)
    a = krein.approximate(X, kernel, random_state=seed)
    values = a.factorization.eigenvalues()
    spectrum = {
        "n_negative": a.factorization.n_negative(),
        "negative_share": float(np.abs(values[values < 0.0]).sum() / np.abs(values).sum()),
    }
    found = []
    for learner in learners:
        for how in ("auto", *FIXED[learner]):
            common = {"kernel": kernel, "correction": how, "approximation": a, "random_state": seed}
            alpha: Any = 1.0 if learner == "ridge" else "loo"
            machine = SVC(C=1.0, **common) if learner == "svc" else KernelRidgeClassifier(alpha=alpha, **common)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it is indefinite is the point
                start = time.process_time()
                machine.fit(X, whole.y[train])
                taken = time.process_time() - start
                accuracy = machine.score(X_test, whole.y[test])
            found.append(
                {"data": whole.name, "kernel": name, "seed": seed, "learner": learner, "correction": how,
                 "accuracy": accuracy, "used": machine.correction_, "seconds": taken, **spectrum}
            )  # fmt: skip
    return found


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


def summarise(table: Table) -> str:
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
        for data, kernel in dict.fromkeys((r["data"], r["kernel"]) for r in table.rows if r["learner"] == learner):
            mine = [r for r in table.rows if (r["data"], r["kernel"], r["learner"]) == (data, kernel, learner)]
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
        kind: np.mean([float(r["seconds"]) for r in table.rows if (r["learner"], r["correction"]) == kind])
        for kind in kinds
    }
    lines.append(
        "Seconds of a fit, one thread: "
        + "; ".join(f"{learner} {how} {t:.2f}" for (learner, how), t in seconds.items())
        + "."
    )
    return "\n".join(lines) + "\n"


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
