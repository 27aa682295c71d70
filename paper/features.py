"""Random features against MEKA at equal memory, as the introduction claims: random Fourier, Fastfood, Nystroem, ours.

The RBF kernel of the six sets, on the training rows of one 90 / 10 split. A budget is that of c blocks of rank k, n k +
(c k)² numbers in float64; feature maps get as many columns as fit n D (what else they hold is given to them). The
error is |K - Z Zᵀ| / |K| over all entries; the accuracy that of a ridge classifier on the features or, for MEKA and
ours, on the factorization, its penalty chosen by leaving rows out.
"""

from __future__ import annotations

import time
import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import train_test_split

import krein
from benchmarks.runner import Task
from krein.arrays import Array
from krein.kernels import RBF
from paper import protocol as paper
from paper.comparing import difference, difference_of_features, tabled_bytes
from paper.protocol import Cell, Request
from paper.writing import geometric_mean, mean_of, number, table

__all__ = ["COLUMNS", "TABLES", "report", "tasks"]

COLUMNS = (
    "dataset", "budget_rank", "seed", "method", "n", "columns", "n_blocks", "nbytes", "error", "n_negative", "accuracy",
    "fit_seconds", "seconds",
)  # fmt: skip
TABLES = {"features": COLUMNS}
BUDGETS, QUICK_BUDGETS, BLOCKS, SEEDS = (16, 64, 256), (4, 16), 3, 3  # ranks k of the paper's grid, its typical c
METHODS = {
    "fourier": "random Fourier features",
    "fastfood": "Fastfood",
    "nystroem": "Nystroem",
    "meka": "MEKA (pairwise)",
    "ours": "ours",
}
ALPHAS = np.logspace(-5.0, 2.0, 15)  # the grid of krein's own ridge classifier, k(x, x) being 1


def tasks(request: Request) -> list[Task]:
    """RBF whichever kernels are asked for: random Fourier features need a stationary one."""
    seeds = 1 if request.quick else request.seeds or SEEDS
    return [
        Task({"dataset": d, "budget_rank": k, "seed": s}, run, (Cell(d, "rbf"), k, s, request.quick))
        for d in request.datasets
        for k in (QUICK_BUDGETS if request.quick else BUDGETS)
        for s in range(seeds)
    ]


def run(cell: Cell, rank: int, seed: int, quick: bool) -> list[dict[str, Any]]:
    """One row for each method."""
    X, X_test, y, y_test = split(cell, quick)
    K, gamma = _matrix(cell, quick), _gamma(cell)
    n, budget = len(X), tabled_bytes(len(X), BLOCKS, rank)
    columns = max(1, int(budget / (8 * n)))
    rows = []
    for method in METHODS:
        begin = time.perf_counter()
        found: dict[str, Any] = {"method": method, "n": n}
        if method in ("meka", "ours"):
            how: dict[str, Any] = {"max_memory": budget}
            if method == "meka":
                how = {"n_blocks": BLOCKS, "rank": rank, "coupling": "pairwise", "landmarks": "uniform", "drop": 0.0,
                       "dtype": "float64"}  # fmt: skip
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                a = krein.approximate(X, cell.similarity, random_state=seed, **how)
                found["fit_seconds"], f = time.perf_counter() - begin, a.factorization
                machine = krein.KernelRidgeClassifier(
                    kernel=cell.similarity, approximation=a, correction="shift" if method == "meka" else "auto",
                    random_state=seed,
                ).fit(X, y)  # fmt: skip
                accuracy = machine.score(X_test, y_test)
            found |= {"columns": f.rank, "n_blocks": f.n_blocks, "nbytes": f.nbytes, "n_negative": f.n_negative(),
                      "error": difference(K, f).relative()}  # fmt: skip
        else:
            Z, Z_test = features(method, X, X_test, gamma, columns, seed)
            found["fit_seconds"] = time.perf_counter() - begin
            accuracy = RidgeClassifierCV(alphas=ALPHAS).fit(Z, y).score(Z_test, y_test)
            found |= {"columns": Z.shape[1], "nbytes": Z.nbytes, "n_negative": 0,
                      "error": difference_of_features(K, Z).relative()}  # fmt: skip
        rows.append(found | {"accuracy": 100.0 * accuracy, "seconds": time.perf_counter() - begin})
    return rows


def features(method: str, X: Array, X_test: Array, gamma: float, columns: int, seed: int) -> tuple[Array, Array]:
    """Z of the rows and of new ones."""
    if method == "fastfood":
        drawn = krein.RandomFourierFeatures(columns, gamma=gamma, method="fastfood", random_state=seed)
        return drawn.fit_transform(X), drawn.transform(X_test)
    made = (
        RBFSampler(gamma=gamma, n_components=columns, random_state=seed)
        if method == "fourier"
        else Nystroem(kernel="rbf", gamma=gamma, n_components=columns, random_state=seed)
    )
    return np.asarray(made.fit_transform(X)), np.asarray(made.transform(X_test))


def split(cell: Cell, quick: bool) -> tuple[Array, Array, Any, Any]:
    """Training and test rows, and their labels."""
    y = paper.raw(cell.dataset, quick)[1]
    train, test = train_test_split(np.arange(len(y)), test_size=0.1, stratify=y, random_state=0)
    X = paper.prepared(cell, quick)
    return X[train], X[test], y[train], y[test]


@lru_cache(maxsize=1)
def _matrix(cell: Cell, quick: bool) -> Array:
    return np.asarray(cell.similarity(split(cell, quick)[0]))


def _gamma(cell: Cell) -> float:
    kernel = cell.similarity
    assert isinstance(kernel, RBF)
    assert kernel.gamma is not None
    return float(kernel.gamma)


def report(rows: list[dict[str, str]], request: Request) -> str:
    """Markdown: errors and accuracies by budget, and how often each is behind MEKA."""
    found: dict[tuple[str, int], dict[str, list[dict[str, str]]]] = {}
    for r in rows:
        if r["dataset"] in request.datasets:
            place = found.setdefault((r["dataset"], int(r["budget_rank"])), {})
            place.setdefault(r["method"], []).append(r)
    parts = [
        "# Random features and MEKA at equal memory (introduction)",
        f"RBF at the paper's typical gamma, budgets of {BLOCKS} blocks of rank k (n k + ({BLOCKS} k)² numbers), "
        "training rows of one 90 / 10 split, means over seeds. D: columns of a feature map in that budget.",
    ]
    for what, name in (("error", "Relative error"), ("accuracy", "Accuracy of a ridge classifier, %")):
        lines = [
            [d, str(k), f"{mean_of(by['fourier'], 'columns'):.0f}",
             *(number(mean_of(by.get(m, []), what), 4 if what == "accuracy" else 3) for m in METHODS)]
            for (d, k), by in found.items()
        ]  # fmt: skip
        parts += [f"## {name}", table(("data", "k", "D", *METHODS.values()), lines, 1)]
    said = _statements(found) if found else []
    return "\n\n".join([*parts, "## What it says", "\n".join(f"- {s}" for s in said)])


def _statements(found: dict[tuple[str, int], dict[str, list[dict[str, str]]]]) -> list[str]:
    def over(method: str, what: str) -> list[float]:
        return [mean_of(by[method], what) for by in found.values()]

    def against(method: str, other: str) -> str:
        mine, theirs = (np.maximum(over(m, "error"), 1e-12) for m in (method, other))
        errors = (mine / theirs).tolist()
        points = np.subtract(over(method, "accuracy"), over(other, "accuracy"))
        return (
            f"larger error in {sum(e > 1.0 for e in errors)} of {len(errors)} cases ({geometric_mean(errors):.3g} "
            f"times in the geometric mean), lower accuracy in {int((points < 0.0).sum())} (higher in "
            f"{int((points > 0.0).sum())}; {points.mean():+.2f} points in the mean)"
        )

    lines = [f"{name} against MEKA: {against(m, 'meka')}." for m, name in METHODS.items() if m != "meka"]
    lines += [f"{METHODS[m]} against ours: {against(m, 'ours')}." for m in ("fourier", "fastfood", "nystroem")]
    counts = [sum(int(r["n_negative"]) > 0 for by in found.values() for r in by[m]) for m in ("meka", "ours")]
    total = sum(len(by["meka"]) for by in found.values())
    lines.append(f"Runs with negative eigenvalues: MEKA {counts[0]} of {total}, ours {counts[1]}; features have none.")
    return lines
