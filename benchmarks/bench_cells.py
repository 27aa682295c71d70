"""The paper's 24 cells (six data sets, four kernels, its own c and k) with the paper's own coupling, beside its tables.

M1 is the approximation, M2 the shifted one. Errors are exact: K is computed once per cell and compared tile by tile.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cells_summary import summarise
from measure import seconds
from tqdm import tqdm

import krein
import paper
from krein.datasets import load
from krein.preprocessing import paper_preprocessing
from paper.comparing import difference, full_bytes
from paper.protocol import Cell, cells
from paper.records import Table

REFERENCE = Path(paper.__file__).parent / "tables"
COLUMNS = (
    "dataset", "kernel", "n", "n_blocks", "rank", "seed", "dtype", "m1_error", "smallest_eigenvalue", "n_negative",
    "m2_error_once", "m2_error_twice", "memory_percent", "n_evaluations", "seconds", "n_warnings",
)  # fmt: skip


def run(out: Path, command: str, quick: bool, force: bool) -> None:
    table = Table(out / "cells.csv", COLUMNS, command, force)
    wanted = [*((s, "float64") for s in range(1 if quick else 5)), *((0, t) for t in ("float32", "float16", "int8"))]
    for cell in tqdm(wanted_cells(quick), desc="cells"):
        key = {"dataset": cell.dataset, "kernel": cell.kernel}
        if not all(table.has(**key, seed=s, dtype=t) for s, t in wanted):
            found = measured(prepared(cell, quick), cell, wanted)
            table.add({**key, "n_blocks": cell.n_blocks, "rank": cell.rank, **row} for row in found)
    (out / "cells.md").write_text(summarise(table, REFERENCE, quick), encoding="utf-8")


def wanted_cells(quick: bool) -> list[Cell]:
    return cells(["artificial1"]) if quick else cells()


def prepared(cell: Cell, quick: bool) -> Any:
    """The rows as the paper gave them to this kernel; a quick run has the first 2000."""
    return paper_preprocessing(cell.similarity).fit_transform(load(cell.dataset).X[: 2000 if quick else None])


def measured(X: Any, cell: Cell, wanted: list[tuple[int, str]]) -> Iterator[dict[str, Any]]:
    """One row per (seed, dtype)."""
    K = cell.similarity(X)

    def build(seed: int, dtype: str) -> krein.Approximation:
        return krein.approximate(
            X, cell.similarity, n_blocks=cell.n_blocks, rank=cell.rank, coupling="pairwise", landmarks="uniform",
            dtype=dtype, random_state=seed,
        )  # fmt: skip

    for seed, dtype in tqdm(wanted, desc=cell.name, leave=False):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            taken, a = seconds(lambda s=seed, t=dtype: build(s, t))  # type: ignore[misc]
        F = a.factorization
        gap, low = difference(K, F), F.smallest_eigenvalue()
        missing = max(0.0, -low)
        yield {
            "n": len(X), "seed": seed, "dtype": dtype, "m1_error": gap.relative(), "smallest_eigenvalue": low,
            "n_negative": F.n_negative(), "m2_error_once": gap.relative(missing),
            "m2_error_twice": gap.relative(2.0 * missing), "memory_percent": 100 * F.nbytes / full_bytes(len(X)),
            "n_evaluations": a.n_evaluations, "seconds": taken, "n_warnings": len(caught),
        }  # fmt: skip
