"""How indefinite the approximation is (Sec. 3.3, supplement 3): error, smallest eigenvalue, number of negative ones.

Over the RBF kernel's gamma, or for ELM over the number of clusters, and the total rank, shared out by cluster size.
``pairwise`` is the paper's own coupling, ``shared`` ours; each with a tenth of the cluster pairs dropped, as in the
paper, and with none. Eigenvalues are exact, from the core; so are the errors, from every entry of K.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

import krein
from benchmarks.runner import Task
from krein.arrays import Array, stream
from krein.factorization import Factorization
from krein.factorization.core import to_dense
from krein.kernels import Kernel
from paper import eigenvalue_report
from paper import protocol as paper
from paper.protocol import Request

__all__ = ["COLUMNS", "TABLES", "report", "squared_errors", "tasks"]

COLUMNS = (
    "dataset", "kernel", "gamma", "seed", "n", "n_blocks", "total_rank", "coupling", "drop", "uncoupled_pairs", "error",
    "smallest_eigenvalue", "largest_eigenvalue", "n_negative", "effective_rank", "sampled_rank", "n_warnings",
    "seconds",
)  # fmt: skip
TABLES = {"eigenvalues": COLUMNS}
KERNELS = ("rbf", "elm")
# The grid of the published code.
GAMMAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 5.0, 10.0)
QUICK_GAMMAS = (1e-6, 1.0, 10.0)
N_BLOCKS, QUICK_BLOCKS = (5, 10, 15), (5, 10)
RANKS, QUICK_RANKS = (20, 40, 80, 160, 320), (20, 80, 160)
# The landmark rules of the paper and of krein.
LANDMARKS = {"pairwise": "uniform", "shared": "kmeans++"}
DROPS = (0.1, 0.0)
# TILE entries of K are compared at a time, so that they stay in the cache for all factorizations.
TILE = 2**18
# The numerical rank is computed from SAMPLED rows of K.
SAMPLED = 1000


def tasks(request: Request) -> list[Task]:
    """One for each data set, kernel parameter and seed."""
    gammas = QUICK_GAMMAS if request.quick else GAMMAS
    out = []
    for cell in paper.cells(request.datasets, [k for k in KERNELS if k in request.kernels]):
        for gamma, seed in product(gammas if cell.kernel == "rbf" else ("",), range(request.seeds or 1)):
            key = {"dataset": cell.dataset, "kernel": cell.kernel, "gamma": gamma, "seed": seed}
            out.append(Task(key, measure, (cell, gamma, seed, request.quick)))
    return out


def measure(cell: paper.Cell, gamma: Any, seed: int, quick: bool) -> list[dict[str, Any]]:
    """The rows of one task: all numbers of clusters, ranks, couplings and drops."""
    kernel: Kernel = krein.RBF(gamma=gamma) if cell.kernel == "rbf" else cell.similarity
    X = paper.prepared(cell, quick)
    found: list[dict[str, Any]] = []
    for n_blocks in QUICK_BLOCKS if quick else N_BLOCKS:
        made = [
            build(X, kernel, n_blocks, *one, seed) for one in product(QUICK_RANKS if quick else RANKS, LANDMARKS, DROPS)
        ]
        begin = time.perf_counter()
        whole, squares = squared_errors(X, kernel, [F for F, _ in made])
        share = (time.perf_counter() - begin) / len(made)
        for (_, row), square in zip(made, squares, strict=True):
            row["seconds"] += share
            found.append({"n": len(X), "n_blocks": n_blocks, "error": float(np.sqrt(square / whole)), **row})
    trace = float(krein.kernels.Evaluator(kernel).diag(X).sum())
    ranks = {"effective_rank": trace**2 / whole, "sampled_rank": sampled_rank(X, kernel)}
    return [row | ranks for row in found]


def build(
    X: Array, kernel: Kernel, n_blocks: int, total_rank: int, coupling: str, drop: float, seed: int
) -> tuple[Factorization, dict[str, Any]]:
    """One approximation and its spectrum."""
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        F = krein.approximate(
            X, kernel, n_blocks=n_blocks, total_rank=total_rank, allocation="size", coupling=coupling,
            landmarks=LANDMARKS[coupling], drop=drop, dtype="float64", random_state=seed,
        ).factorization  # fmt: skip
    ends = F.ends()
    return F, {
        "total_rank": total_rank, "coupling": coupling, "drop": drop, "uncoupled_pairs": uncoupled_pairs(F),
        "smallest_eigenvalue": ends.smallest, "largest_eigenvalue": ends.largest, "n_negative": F.n_negative(),
        "n_warnings": len(caught), "seconds": time.perf_counter() - begin,
    }  # fmt: skip


def uncoupled_pairs(F: Factorization) -> int:
    """How many pairs of clusters have nothing between them in the core."""
    core = _dense_core(F)
    columns = [cols for _, cols in F.spans]
    return sum(not core[a, b].any() for i, a in enumerate(columns) for b in columns[i + 1 :])


def squared_errors(X: Array, kernel: Kernel, made: Sequence[Factorization]) -> tuple[float, list[float]]:
    """|K|² and |K - F|² for each F, from every entry of K, which is evaluated once for all of them.

    They must have the same clusters: K is then met tile by tile, above its diagonal, and no n x n matrix is held.
    """
    first = made[0]
    if any(not np.array_equal(F.order, first.order) or _rows(F) != _rows(first) or F.shift for F in made):
        raise ValueError("squared_errors compares approximations with the same clusters and without a shift.")
    places = [rows for rows, _ in first.spans]
    bases = [[F.bases.local(i, slice(None)) for i in range(F.n_blocks)] for F in made]
    cores = [_dense_core(F) for F in made]
    whole, squares = 0.0, np.zeros(len(made))
    for i, mine in enumerate(places):
        step = max(1, TILE // max(rows.stop - rows.start for rows in places))
        for start in range(mine.start, mine.stop, step):
            stop = min(start + step, mine.stop)
            left = X[first.order[start:stop]]
            for j in range(i, len(places)):
                exact = np.asarray(kernel(left, X[first.order[places[j]]]), dtype=np.float64)
                weight = 1.0 if i == j else 2.0
                size = float(np.vdot(exact, exact))
                whole += weight * size
                for f, F in enumerate(made):
                    link = cores[f][F.spans[i][1], F.spans[j][1]]
                    if not link.any():
                        squares[f] += weight * size
                        continue
                    rest = (bases[f][i][start - mine.start : stop - mine.start] @ link) @ bases[f][j].T
                    rest -= exact
                    squares[f] += weight * float(np.vdot(rest, rest))
    return whole, squares.tolist()


def sampled_rank(X: Array, kernel: Kernel) -> float:
    """The numerical rank of K on at most `SAMPLED` rows, as a share of them."""
    n = len(X)
    rows = np.sort(stream(0).choice(n, min(n, SAMPLED), replace=False))
    K = np.asarray(kernel(X[rows]), dtype=np.float64)
    return float(np.linalg.matrix_rank(K, hermitian=True)) / len(rows)


def report(rows: list[dict[str, str]], request: Request) -> str:
    """Tables beside the published code's, then the paper's statements with what was found."""
    return eigenvalue_report.report(rows, request)


def _rows(F: Factorization) -> list[slice]:
    return [rows for rows, _ in F.spans]


def _dense_core(F: Factorization) -> Array:
    return to_dense(F.core)
