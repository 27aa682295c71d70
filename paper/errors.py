"""Relative errors of theirs and ours in the paper's 24 cells, and the memory they take (supplement, Table 4; Mem).

Four parts. "cell": the paper's c and k, in both couplings. "tabled" and "mem": ours, with everything left to krein, in
the bytes of the tabled c and k (n k + (c k)² numbers) and in those of the Mem column. "rule": the paper's own grid of c
and k, from which its rule takes the lowest error times c k. Every error is exact, but those of the grid.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import krein
from benchmarks.runner import Task
from krein.factorization.correction import correct
from krein.factorization.truncation import out_of_range
from paper import protocol as paper
from paper.comparing import difference, full_bytes, tabled_bytes
from paper.error_report import report
from paper.grid_search import GRID
from paper.protocol import Cell, Request

__all__ = ["COLUMNS", "TABLES", "report", "tasks"]

Build: TypeAlias = Callable[[], krein.Approximation]
COLUMNS = (
    "dataset", "kernel", "part", "seed", "method", "n", "n_blocks", "rank", "dtype", "budget", "nbytes",
    "memory_percent", "error", "smallest_eigenvalue", "n_negative", "correction", "error_corrected", "error_once",
    "error_twice", "negative_entries", "n_evaluations", "n_warnings", "seconds",
)  # fmt: skip
TABLES = {"errors": COLUMNS}
# The number of seeds per part; the last two parts take longest.
SEEDS = {"cell": 10, "published": 10, "tabled": 2, "mem": 1, "rule": 1}
# The errors of the grid are estimated from GRID_SAMPLES entries.
GRID_SAMPLES = 20_000


def tasks(request: Request) -> list[Task]:
    """Cell by cell, so that a process that keeps its K needs it once."""
    wanted = dict.fromkeys(SEEDS, 1)
    if not request.quick:
        wanted |= {part: request.seeds or n for part, n in SEEDS.items() if part != "rule"}
    return [
        Task({"dataset": c.dataset, "kernel": c.kernel, "part": part, "seed": s}, run, (c, part, s, request.quick))
        for c in paper.cells(request.datasets, request.kernels)
        for part in SEEDS
        for s in range(wanted[part])
    ]


def run(cell: Cell, part: str, seed: int, quick: bool) -> list[dict[str, Any]]:
    """The rows of one part of one cell."""
    if part == "rule":
        return list(_rule(cell, seed, quick))
    if part == "published":
        return [_as_published(cell, seed, quick, guarded) for guarded in (False, True)]
    X, c, k = paper.prepared(cell, quick), cell.n_blocks, _rank(cell, quick)
    ours = partial(krein.approximate, X, cell.similarity, drop=0.0, random_state=seed)
    if part == "cell":
        return [
            _row(cell, "pairwise", seed, quick, partial(paper.meka, X, cell.similarity, c, k, seed)),
            _row(cell, "shared", seed, quick, partial(ours, n_blocks=c, rank=k, dtype="float64")),
        ]
    percent = float(cell.accuracy["memory"]) / 100.0
    budget = tabled_bytes(len(X), c, k) if part == "tabled" else percent * full_bytes(len(X))
    return [_row(cell, "budget", seed, quick, partial(ours, max_memory=budget)) | {"budget": budget}]


def _rank(cell: Cell, quick: bool) -> int:
    """The tabled one; a quarter of it for the few rows of a quick run, or there would be nothing to approximate."""
    return cell.rank // 4 if quick else cell.rank


def _row(cell: Cell, method: str, seed: int, quick: bool, build: Build) -> dict[str, Any]:
    X, K = paper.prepared(cell, quick), paper.matrix(cell, quick)
    taken, a, n_warnings = _timed(build)
    f = a.factorization
    low, gap = f.smallest_eigenvalue(), difference(K, f)
    n_negative, missing = f.n_negative(), max(0.0, -low)
    if method == "pairwise":
        correction, after = "shift", gap.relative(2.0 * missing)  # as published
    elif n_negative:
        correction, after = "clip", difference(K, correct(f, "clip")).relative()
    else:
        correction, after = "none", gap.relative()
    rbf = cell.kernel == "rbf"
    return {
        "method": method, "n": len(X), "n_blocks": f.n_blocks, "rank": f.rank, "dtype": f.dtype,
        "nbytes": f.nbytes, "memory_percent": 100.0 * f.nbytes / full_bytes(len(X)), "error": gap.relative(),
        "smallest_eigenvalue": low, "n_negative": n_negative, "correction": correction, "error_corrected": after,
        "error_once": gap.relative(missing), "error_twice": gap.relative(2.0 * missing),
        "negative_entries": out_of_range(f, 0.0, None, random_state=seed).share if rbf else "",
        "n_evaluations": a.n_evaluations, "n_warnings": n_warnings, "seconds": taken,
    }  # fmt: skip


def _as_published(cell: Cell, seed: int, quick: bool, guarded: bool) -> dict[str, Any]:
    """Algorithm 1 to the letter, or with guards; its errors are sampled."""
    X = paper.prepared(cell, quick)
    build = partial(paper.meka, X, cell.similarity, cell.n_blocks, _rank(cell, quick), seed, guarded)
    taken, a, n_warnings = _timed(build)
    f = a.factorization
    low = f.smallest_eigenvalue()
    shifted = replace(a, factorization=f.with_core(f.core, 2.0 * max(0.0, -low)))
    return {
        "method": "guarded" if guarded else "published", "n": len(X), "n_blocks": f.n_blocks, "rank": f.rank,
        "dtype": f.dtype, "nbytes": f.nbytes, "error": a.error(GRID_SAMPLES, random_state=seed).relative,
        "error_twice": shifted.error(GRID_SAMPLES, random_state=seed).relative, "smallest_eigenvalue": low,
        "n_negative": f.n_negative(), "n_evaluations": a.n_evaluations, "n_warnings": n_warnings, "seconds": taken,
    }  # fmt: skip


def _rule(cell: Cell, seed: int, quick: bool) -> Iterator[dict[str, Any]]:
    """A row for each c and k of the grid with its sampled error, and one of the pair the rule takes, exact."""
    X, best = paper.prepared(cell, quick), (float("inf"), 0, 0)
    for rank in GRID.rank[:2] if quick else GRID.rank:
        for n_blocks in GRID.n_blocks:
            taken, a, n_warnings = _timed(partial(paper.meka, X, cell.similarity, n_blocks, rank, seed))
            error = a.error(GRID_SAMPLES, random_state=seed).relative
            best = min(best, (error * n_blocks * rank, n_blocks, rank))
            yield {
                "method": f"grid {n_blocks} {rank}", "n": len(X), "n_blocks": n_blocks, "rank": n_blocks * rank,
                "dtype": "float64", "nbytes": a.factorization.nbytes, "error": error, "n_warnings": n_warnings,
                "memory_percent": 100.0 * tabled_bytes(len(X), n_blocks, rank) / full_bytes(len(X)), "seconds": taken,
            }  # fmt: skip
    _, n_blocks, rank = best
    found = _row(cell, "pairwise", seed, quick, partial(paper.meka, X, cell.similarity, n_blocks, rank, seed))
    percent = 100.0 * tabled_bytes(len(X), n_blocks, rank) / full_bytes(len(X))
    yield found | {"method": "rule", "rank": n_blocks * rank, "memory_percent": percent}


def _timed(build: Build) -> tuple[float, krein.Approximation, int]:
    """Seconds, what was built, and the number of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        begin = time.perf_counter()
        a = build()
        return time.perf_counter() - begin, a, len(caught)
