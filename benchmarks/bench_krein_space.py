"""Corrections and learners in Krein space, side by side: accuracy, time and memory.

Five similarity data sets and three indefinite kernels of vectors, a few random splits each. Every method chooses its
parameters (C or alpha, the weight of the negative part, rho) by three folds of the training part. Seconds and memory
are those of one fit with the chosen parameters: CPU seconds, and the peak that numpy and Python allocate.
"""

from __future__ import annotations

import time
import tracemalloc
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

import krein
from benchmarks.bench_indefinite import prepared
from benchmarks.runner import Request, Task
from krein.datasets import load

COLUMNS = ("data", "seed", "method", "n", "accuracy", "seconds", "peak_bytes", "parameters")
TABLES = {"krein_space": COLUMNS}
MATRICES = ("auralsonar", "protein213", "yeast200", "voting435", "peptides")
KERNELS = ("tl1", "tanh", "sphere")
# The kernels are those of the benchmark `indefinite`, on this data set.
VECTORS = "spambase"
TRAIN, TEST, PEPTIDES, SEEDS = 400, 1000, 400, 5
STRENGTHS = [0.1, 1.0, 10.0, 100.0]
WEIGHTS = [0.1, 0.3, 3.0]  # clip and flip, 0 and 1, are methods of their own
RHOS = [0.1, 1.0, 10.0]

METHODS: dict[str, tuple[Any, dict[str, list[Any]]]] = {
    "SVC, no correction": (krein.SVC(correction="none"), {"C": STRENGTHS}),
    "SVC, shift": (krein.SVC(correction="shift"), {"C": STRENGTHS}),
    "SVC, clip": (krein.SVC(correction="clip"), {"C": STRENGTHS}),
    "SVC, flip (Krein SVM)": (krein.SVC(correction="krein"), {"C": STRENGTHS}),
    "SVC, square": (krein.SVC(correction="square"), {"C": STRENGTHS}),
    "SVC, auto": (krein.SVC(), {"C": STRENGTHS}),
    "SVC, two penalties": (krein.SVC(), {"C": STRENGTHS, "correction": [0.0, *WEIGHTS, 1.0]}),
    "squared hinge, two penalties": (
        Pipeline([("meka", krein.MEKA()), ("svm", LinearSVC(dual=False))]),
        {"svm__C": STRENGTHS, "meka__correction": [0.0, *WEIGHTS, 1.0]},
    ),
    "proxy-matrix SVM": (krein.ProxySVC(tol=1e-4), {"C": STRENGTHS[1:3], "rho": RHOS}),
    "ridge, clip": (krein.KernelRidgeClassifier(correction="clip"), {}),
    "ridge, flip": (krein.KernelRidgeClassifier(correction="flip"), {}),
    "ridge, square": (krein.KernelRidgeClassifier(correction="square"), {}),
    "ridge, auto": (krein.KernelRidgeClassifier(), {}),
    "ridge, two penalties": (krein.KernelRidgeClassifier(), {"correction": [0.0, *WEIGHTS, 1.0]}),
}


def tasks(request: Request) -> list[Task]:
    names, seeds = (MATRICES[:1], 1) if request.quick else ((*MATRICES, *KERNELS), SEEDS)
    methods = list(METHODS)[2:4] if request.quick else list(METHODS)
    return [
        Task({"data": name, "seed": seed, "method": method}, run, (name, seed, method))
        for seed in range(seeds)
        for name in names
        for method in methods
    ]


@lru_cache(maxsize=1)
def split(name: str, seed: int) -> tuple[Any, Any, Any, Any]:
    """K of the training objects, their labels, similarities of test objects to them, and their labels."""
    if name in KERNELS:
        whole = load(VECTORS)
        order = np.random.default_rng(seed).permutation(whole.n)
        train, test = order[:TRAIN], order[TRAIN : TRAIN + TEST]
        X, X_test, kernel = prepared(np.asarray(whole.X, dtype=np.float64), train, test, name)
        return kernel(X), whole.y[train], kernel(X_test, X), whole.y[test]
    if name == "peptides":
        whole = load("peptide_amp")
        chosen = np.random.default_rng(seed).permutation(len(whole.y))[: PEPTIDES + TEST]
        words, y = [whole.X[i] for i in chosen], whole.y[chosen]
        kernel = krein.EditSimilarity()
        return kernel(words[:PEPTIDES]), y[:PEPTIDES], kernel(words[PEPTIDES:], words[:PEPTIDES]), y[PEPTIDES:]
    whole = load(name)
    S = 0.5 * (whole.X + whole.X.T)
    train, test = train_test_split(np.arange(len(S)), test_size=0.2, stratify=whole.y, random_state=seed)
    return S[np.ix_(train, train)], whole.y[train], S[np.ix_(test, train)], whole.y[test]


def run(name: str, seed: int, method: str) -> list[dict[str, Any]]:
    K, y, rows, y_test = split(name, seed)
    machine, grid = METHODS[method]
    of_kernel = "meka__kernel" if isinstance(machine, Pipeline) else "kernel"
    machine = clone(machine).set_params(**{of_kernel: "precomputed"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is indefinite is the point
        found = {}
        if grid:
            folds = StratifiedKFold(3, shuffle=True, random_state=seed)
            found = GridSearchCV(machine, grid, cv=folds, error_score=0.0).fit(K, y).best_params_
        machine.set_params(**found)
        krein.clear_cache()
        start = time.process_time()
        machine.fit(K, y)
        seconds = time.process_time() - start
        krein.clear_cache()
        tracemalloc.start()
        clone(machine).fit(K, y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        krein.clear_cache()
        accuracy = float(machine.score(rows, y_test))
    chosen = "; ".join(f"{name.split('__')[-1]}={value:g}" for name, value in found.items())
    return [{"n": len(y), "accuracy": accuracy, "seconds": seconds, "peak_bytes": peak, "parameters": chosen}]


def report(rows: list[dict[str, str]], request: Request) -> str:
    methods = set(METHODS if not request.quick else list(METHODS)[2:4])
    done = {n: {r["method"] for r in rows if r["data"] == n} for n in dict.fromkeys(r["data"] for r in rows)}
    names = [n for n, found in done.items() if found >= methods]  # a run may have been cut short
    rows = [r for r in rows if r["data"] in names]
    if not names:
        return "# Corrections and learners in Krein space\n\nNo data set is finished yet.\n"
    counts = {name: len({r["seed"] for r in rows if r["data"] == name}) for name in names}
    sizes = {name: next(r["n"] for r in rows if r["data"] == name) for name in names}
    lines = [
        "# Corrections and learners in Krein space",
        "",
        f"Accuracy in %, mean of {_spoken(counts)}; parameters chosen by "
        "three folds of the training part. `tl1`, `tanh` and `sphere` are kernels of spambase. Last columns: median "
        "CPU seconds and peak memory of one fit, over those of `SVC, flip (Krein SVM)` on the same split.",
        "",
        "| method | " + " | ".join(f"{n} ({sizes[n]})" for n in names) + " | mean | mean rank | time | memory |",
        "| --- |" + " ---: |" * (len(names) + 4),
    ]
    means = {m: [_mean(rows, m, n) for n in names] for m in dict.fromkeys(r["method"] for r in rows)}
    places = np.array(list(means.values()))
    ranks = (places[None] > places[:, None] + 1e-12).sum(1) + 0.5 * (
        (np.abs(places[None] - places[:, None]) <= 1e-12).sum(1) - 1
    )
    for (method, own), rank in zip(means.items(), ranks.mean(1), strict=True):
        best = [np.nanmax(places[:, j]) <= v + 1e-12 for j, v in enumerate(own)]
        shown = [f"**{100 * v:.1f}**" if b else f"{100 * v:.1f}" for v, b in zip(own, best, strict=True)]
        time_, memory = (_ratio(rows, method, what) for what in ("seconds", "peak_bytes"))
        ends = f"{100 * np.mean(own):.1f} | {1 + rank:.1f} | {time_:.2g} | {memory:.2g}"
        lines.append(f"| {method} | {' | '.join(shown)} | {ends} |")
    base = [r for r in rows if r["method"] == "SVC, flip (Krein SVM)"]
    spent = np.median([float(r["seconds"]) for r in base]) if base else float("nan")
    peak = np.median([float(r["peak_bytes"]) for r in base]) if base else float("nan")
    lines += ["", f"A fit of `SVC, flip (Krein SVM)` takes {spent:.2g} s and {peak / 2**20:.2g} MiB in the median.", ""]
    return "\n".join(lines)


def _spoken(counts: dict[str, int]) -> str:
    low, high = min(counts.values()), max(counts.values())
    return f"{low if low == high else f'{low} to {high}'} random split{'s' * (high > 1)}"


def _mean(rows: list[dict[str, str]], method: str, name: str) -> float:
    own = [float(r["accuracy"]) for r in rows if (r["method"], r["data"]) == (method, name)]
    return float(np.mean(own)) if own else float("nan")


def _ratio(rows: list[dict[str, str]], method: str, what: str) -> float:
    """The median ratio to the Krein SVM, split by split."""
    base, mine = (
        {(r["data"], r["seed"]): float(r[what]) for r in rows if r["method"] == name}
        for name in ("SVC, flip (Krein SVM)", method)
    )
    own = [value / base[key] for key, value in mine.items() if key in base]
    return float(np.median(own)) if own else float("nan")
