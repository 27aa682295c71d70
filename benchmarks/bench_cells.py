"""The paper's 24 cells (six data sets, four kernels, its own c and k) with the paper's own coupling, beside its tables.

M1 is the approximation, M2 the shifted one. Errors are exact: K is computed once per cell and compared tile by tile.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import krein
import paper
from benchmarks.cells_summary import summarise
from benchmarks.measure import seconds
from benchmarks.runner import Request, Task
from krein.datasets import load
from krein.preprocessing import paper_preprocessing
from paper.comparing import difference, full_bytes
from paper.protocol import Cell, cells

REFERENCE = Path(paper.__file__).parent / "tables"
COLUMNS = (
    "dataset", "kernel", "n", "n_blocks", "rank", "seed", "dtype", "m1_error", "smallest_eigenvalue", "n_negative",
    "m2_error_once", "m2_error_twice", "memory_percent", "n_evaluations", "seconds", "n_warnings",
)  # fmt: skip
TABLES = {"cells": COLUMNS}


def tasks(request: Request) -> list[Task]:
    wanted = [(seed, "float64") for seed in range(1 if request.quick else 5)]
    wanted += [(0, dtype) for dtype in ("float32", "float16", "int8")]
    return [
        Task({"dataset": cell.dataset, "kernel": cell.kernel, "seed": seed, "dtype": dtype}, measured,
             (cell, seed, dtype, request.quick))
        for cell in wanted_cells(request.quick)
        for seed, dtype in wanted
    ]  # fmt: skip


def report(rows: list[dict[str, str]], request: Request) -> str:
    return summarise(rows, REFERENCE, request.quick)


def wanted_cells(quick: bool) -> list[Cell]:
    return cells(["artificial1"]) if quick else cells()


@lru_cache(maxsize=1)
def prepared(cell: Cell, quick: bool) -> Any:
    """The rows as the paper prepared them for this kernel; a quick run takes the first 2000."""
    return paper_preprocessing(cell.similarity).fit_transform(load(cell.dataset).X[: 2000 if quick else None])


@lru_cache(maxsize=1)
def matrix(cell: Cell, quick: bool) -> Any:
    """K of the prepared rows, kept for the next task of the same cell."""
    return cell.similarity(prepared(cell, quick))


def measured(cell: Cell, seed: int, dtype: str, quick: bool) -> list[dict[str, Any]]:
    X, K = prepared(cell, quick), matrix(cell, quick)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        taken, a = seconds(
            lambda: krein.approximate(
                X, cell.similarity, n_blocks=cell.n_blocks, rank=cell.rank, coupling="pairwise", landmarks="uniform",
                dtype=dtype, random_state=seed,
            )
        )  # fmt: skip
    F = a.factorization
    gap, low = difference(K, F), F.smallest_eigenvalue()
    missing = max(0.0, -low)
    return [{
        "n": len(X), "n_blocks": cell.n_blocks, "rank": cell.rank, "m1_error": gap.relative(),
        "smallest_eigenvalue": low, "n_negative": F.n_negative(), "m2_error_once": gap.relative(missing),
        "m2_error_twice": gap.relative(2.0 * missing), "memory_percent": 100 * F.nbytes / full_bytes(len(X)),
        "n_evaluations": a.n_evaluations, "seconds": taken, "n_warnings": len(caught),
    }]  # fmt: skip
