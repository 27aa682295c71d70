"""Table 3 with the paper's nested protocol: ten folds, kernel parameters and C tuned by a grid inside each of them.

The grid is searched with the exact SVM on training rows, as in the paper. M0, M1 and M2 take what it finds; ours takes
its kernel parameters, and its blocks, rank, storage type and C from `krein.SVC` in the bytes of the Mem column.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from benchmarks.runner import Task
from krein.errors import KreinWarning
from paper import grid_search
from paper import protocol as paper
from paper.budgeted import C_GRID, choose
from paper.classification import FOLDS, QUICK_C, QUICK_FOLDS, Fold, budgeted, published, rows_of, split
from paper.protocol import Cell, Request
from paper.writing import table

__all__ = ["TABLES", "report", "tasks"]

COLUMNS = (
    "dataset", "kernel", "part", "fold",
    "method", "accuracy", "parameters", "C", "n_train", "n_test", "n_blocks", "rank", "dtype", "nbytes",
    "predicting_nbytes", "converged", "convex", "seconds",
)  # fmt: skip
TABLES = {"nested": COLUMNS}
# M0, M1 and M2 see the scaling of all rows, as published; ours sees training rows alone.
PROTOCOLS = {"theirs": "published", "ours": "clean"}


def tasks(request: Request) -> list[Task]:
    """The first fold of all cells comes first: what is finished is always a whole table of fewer folds."""
    return [
        Task(
            {"dataset": cell.dataset, "kernel": cell.kernel, "part": part, "fold": fold}, run,
            (cell, part, fold, request.quick),
        )
        for fold in range(QUICK_FOLDS if request.quick else FOLDS)
        for cell in paper.cells(request.datasets, request.kernels)
        for part in PROTOCOLS
    ]  # fmt: skip


def run(cell: Cell, part: str, fold: int, quick: bool) -> list[dict[str, Any]]:
    """The rows of one fold: M0, M1 and M2, or ours."""
    y, protocol = np.asarray(paper.raw(cell.dataset, quick)[1]), PROTOCOLS[part]
    train, _ = split(y, protocol, 0, fold, quick)
    X = rows_of(cell, protocol, quick, train)[train]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)  # corrections and limits: they are in the table
        setting = grid_search.choose(cell, X, y[train], grid_search.QUICK if quick else grid_search.GRID, fold)
        f = Fold.of(cell, setting, protocol, 0, fold, quick)
        if part == "theirs":
            rows = published(f)
        else:
            chosen = choose(X, y[train], setting.similarity, f.budget("all"), QUICK_C if quick else C_GRID, fold, True)
            rows = [budgeted(f, "all", chosen)]
    return [{column: value for column, value in (f.known | row).items() if column in COLUMNS} for row in rows]


def report(rows: list[dict[str, str]], request: Request) -> str:
    """Markdown: the table of what is finished, and what it shows."""
    if not rows:
        return "# Classification, nested (Table 3)\n\nNothing was run yet."
    accuracy: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for r in rows:
        methods = accuracy.setdefault((r["dataset"], r["kernel"]), {})
        methods.setdefault(r["method"], {})[r["fold"]] = float(r["accuracy"])
    cells = [c for c in paper.cells(request.datasets, request.kernels) if (c.dataset, c.kernel) in accuracy]

    def shown(cell: Cell, method: str) -> str:
        found = list(accuracy[cell.dataset, cell.kernel].get(method, {}).values())
        return f"{np.mean(found):.2f} ({len(found)})" if found else "-"

    lines = [
        [
            c.dataset, c.kernel, c.accuracy["m0"], shown(c, "M0"), shown(c, "M1"), c.accuracy["m2"], shown(c, "M2"),
            shown(c, "ours"),
        ]
        for c in cells
    ]  # fmt: skip
    sizes = " (quick: few rows, so nothing here can be held against the paper)" if request.quick else ""
    wanted = 2 * (QUICK_FOLDS if request.quick else FOLDS) * len(paper.cells(request.datasets, request.kernels))
    done = len({(r["dataset"], r["kernel"], r["part"], r["fold"]) for r in rows})
    return "\n\n".join([
        f"# Classification, nested (Table 3){sizes}",
        "Accuracy in %, mean over the folds in brackets. Inside each fold the grid of the paper is searched by 5-fold "
        f"cross-validation of the exact SVM on {grid_search.GRID.n_rows} of its training rows. M0, M1 and M2 take the "
        "kernel parameters, C, c and k it finds; M1 and M2 are Algorithm 1 as published (`guarded=False`). Ours takes "
        "the kernel parameters from a search of its own training rows; blocks, rank, storage type and C are chosen in "
        "the bytes of the Mem column, everything counted. M0 to M2 see the scaling of all rows, ours that of training "
        f"rows alone. {done} of {wanted} pieces are finished; `krein reproduce nested` goes on.",
        table(["data", "kernel", "M0 paper", "M0", "M1", "M2 paper", "M2", "ours"], lines),
        *_ours_and_theirs(accuracy),
    ])  # fmt: skip


def _ours_and_theirs(accuracy: dict[tuple[str, str], dict[str, dict[str, float]]]) -> list[str]:
    """Ours against M0 and M2, over the folds that both have."""
    said = []
    for other in ("M2", "M0"):
        gains = {}
        for cell, methods in accuracy.items():
            mine, theirs = methods.get("ours", {}), methods.get(other, {})
            both = mine.keys() & theirs.keys()
            if both:
                gains[cell] = float(np.mean([mine[fold] - theirs[fold] for fold in both]))
        if gains:
            worst = min(gains, key=lambda cell: gains[cell])
            said.append(
                f"- Ours is at least {other} in {sum(g >= 0.0 for g in gains.values())} of {len(gains)} cells that "
                f"have folds of both; on average {np.mean(list(gains.values())):+.2f} points, at least "
                f"{gains[worst]:+.2f} ({' '.join(worst)})."
            )
    return said
