"""Every figure of the paper and its supplement, as PNG and SVG: which there are, and what each shows.

Kernel matrices before and after their rows are sorted by cluster (Fig. 1, supplement Fig. 1), and the eigenvalues'
table as pictures (Figs. 2, 3, supplement 3). A picture of the table is drawn anew when its rows have changed. The same
numbers give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import krein
from benchmarks.runner import Task
from krein.approximation.clusters import partition
from krein.arrays import stream
from krein.errors import InputError
from krein.kernels import Evaluator, Kernel
from krein.plotting import check_matplotlib
from paper import protocol as paper
from paper.eigenvalue_report import values
from paper.protocol import Request
from paper.reproduce import results
from paper.surfaces import Panel, heat_maps, matrices

__all__ = ["COLUMNS", "TABLES", "report", "tasks"]

COLUMNS = ("figure", "dataset", "kernel", "source", "file", "png_bytes", "svg_bytes", "seconds")
TABLES = {"figures": COLUMNS}
STRUCTURE = (
    "gesture poly",
    "pendigit poly",
    "artificial2 elm",
    "spambase elm",
)  # the supplement's Fig. 1, in its order
# These figures are in the paper, the others in its supplement.
MAIN = {"pendigit rbf": "Fig. 2", "gesture elm": "Fig. 3"}
# A matrix is shown by ROWS of its rows.
ROWS = 230
N_BLOCKS = 10
# Resolution of the PNG files, and of the images inside the SVG files.
PNG_DPI, SVG_DPI = 160, 100


def tasks(request: Request) -> list[Task]:
    """One for each picture; those of the eigenvalues need that table."""
    check_matplotlib()
    folder = request.output / "figures"
    out = []
    wanted = paper.cells(request.datasets, request.kernels)
    if paper.Cell("pendigit", "rbf") in wanted:
        key = {"figure": "Fig. 1", "dataset": "pendigit", "kernel": "rbf", "source": ""}
        out.append(Task(key, draw_gammas, (folder / "figure1", request.quick)))
    shown = [cell for name in STRUCTURE for cell in wanted if cell.name == name]
    if shown:
        names = [" ".join(dict.fromkeys(getattr(cell, part) for cell in shown)) for part in ("dataset", "kernel")]
        key = {"figure": "supplement Fig. 1", "dataset": names[0], "kernel": names[1], "source": ""}
        out.append(Task(key, draw_structure, (folder / "supplement_figure1", shown, request.quick)))
    pictured = [cell for cell in wanted if cell.kernel in ("rbf", "elm")]
    rows = results("eigenvalues", request) if pictured else []
    for cell in pictured:
        mine = [r for r in rows if (r["dataset"], r["kernel"]) == (cell.dataset, cell.kernel)]
        if not mine:
            raise InputError(
                f"The eigenvalues' table has no rows of {cell.name}; run `krein reproduce eigenvalues` with the same "
                "options first."
            )
        figure = MAIN.get(cell.name, "supplement Sec. 3")
        key = {"figure": figure, "dataset": cell.dataset, "kernel": cell.kernel, "source": digest(mine)}
        out.append(Task(key, draw_eigenvalues, (folder / f"eigenvalues_{cell.kernel}_{cell.dataset}", cell, mine)))
    return out


def digest(rows: Sequence[dict[str, str]]) -> str:
    """Eight hex digits of what is drawn; times and provenance are not."""
    kept = [sorted((c, v) for c, v in row.items() if c not in ("run", "seconds")) for row in rows]
    return hashlib.sha256(repr(kept).encode()).hexdigest()[:8]


def draw_gammas(path: Path, quick: bool) -> list[dict[str, Any]]:
    """Fig. 1: pendigit as given and sorted by cluster, and what gamma makes of it."""
    begin = time.perf_counter()
    X = paper.prepared(paper.Cell("pendigit", "rbf"), quick)
    given, ordered, edges = _sample(X, krein.RBF(gamma=1.0))
    panels = []
    for letter, gamma, rows, text in (
        ("a", 0.05, given, "as given"),
        ("b", 0.05, ordered, "sorted by cluster"),
        ("c", 1e-6, ordered, "low rank"),
        ("d", 1.2, ordered, "block-diagonal"),
    ):
        K = np.asarray(krein.RBF(gamma=gamma)(X[rows]))
        lowest = float(K.min()) if gamma == 0.05 else 0.0  # one scale for (a) and (b), 0 to 1 for the others
        limits = (np.floor(10 * lowest) / 10, 1.0)
        panels.append(Panel(f"({letter}) γ = {gamma:g}, {text}", K, () if letter == "a" else edges, limits))
    return _written(path, matrices(panels), begin)


def draw_structure(path: Path, cells: Sequence[paper.Cell], quick: bool) -> list[dict[str, Any]]:
    """The supplement's Fig. 1: non-stationary kernels sorted by cluster."""
    begin = time.perf_counter()
    panels = []
    for letter, cell in zip("abcd", cells, strict=False):
        X = paper.prepared(cell, quick)
        _, rows, edges = _sample(X, cell.similarity)
        K = np.asarray(cell.similarity(X[rows]))
        panels.append(Panel(f"({letter}) {cell.name}", K, edges, (float(K.min()), float(K.max()))))
    return _written(path, matrices(panels), begin)


def draw_eigenvalues(path: Path, cell: paper.Cell, rows: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    """Figs. 2, 3 and the supplement's: error, smallest eigenvalue and number of negative ones."""
    begin = time.perf_counter()
    found = values(rows)
    if cell.kernel == "elm":
        return _written(path, heat_maps(found, "n_blocks", "clusters c", f"{cell.dataset}, ELM"), begin)
    blocks = 10 if any(r["n_blocks"] == 10 for r in found) else max(r["n_blocks"] for r in found)
    some = [r for r in found if r["n_blocks"] == blocks]
    return _written(path, heat_maps(some, "gamma", "γ", f"{cell.dataset}, RBF, c = {blocks:g}"), begin)


def report(rows: list[dict[str, str]], request: Request) -> str:
    """Which pictures there are, and what is in them."""
    lines = [
        "# Figures",
        "In `figures/`, each as PNG and SVG. Darker is larger, of eigenvalues the more negative.",
        f"- Fig. 1: {ROWS} random rows of pendigit, columns scaled to [0, 1] as for the paper's RBF experiments, "
        f"{N_BLOCKS} clusters. (a) and (b) share a scale that begins at their smallest value; (c) and (d) run from 0 "
        "to 1.",
        "- Supplement Fig. 1: the kernels on the sphere, rows sorted into clusters; each has its own scale.",
        "- The others: relative error, smallest eigenvalue and number of negative ones; theirs with the paper's drop "
        "of 0.1 and without, ours without.",
        "| figure | data | kernel | file |\n| --- | --- | --- | --- |",
    ]
    current = {(t.key["figure"], t.key["dataset"], t.key["kernel"], t.key["source"]) for t in tasks(request)}
    shown = [r for r in rows if tuple(r[c] for c in ("figure", "dataset", "kernel", "source")) in current]
    text = "\n\n".join(lines)
    for r in shown:
        text += f"\n| {r['figure']} | {r['dataset']} | {r['kernel']} | [{r['file']}](figures/{r['file']}.png) |"
    return text


def _sample(X: Any, kernel: Kernel) -> tuple[Any, Any, Any]:
    """Rows as given, the same sorted by cluster, and where clusters begin among them."""
    n = len(X)
    given = np.sort(stream(0).choice(n, min(n, ROWS), replace=False))
    labels = partition(X, N_BLOCKS, Evaluator(kernel), 0).labels[given]
    order = np.argsort(labels, kind="stable")
    return given, given[order], np.flatnonzero(np.diff(labels[order])) + 1


def _written(path: Path, figure: Any, begin: float) -> list[dict[str, Any]]:
    """Both files, each whole or not there at all."""
    import matplotlib

    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = {}
    with matplotlib.rc_context({"svg.hashsalt": "krein", "svg.fonttype": "path"}):
        for kind, dpi, facts in (("png", PNG_DPI, {"Software": None}), ("svg", SVG_DPI, {"Date": None})):
            content = io.BytesIO()
            figure.savefig(content, format=kind, dpi=dpi, metadata=facts)
            temporary = path.with_name(f".{path.name}.{kind}.{os.getpid()}")
            temporary.write_bytes(content.getvalue())
            temporary.replace(path.with_name(f"{path.name}.{kind}"))
            sizes[f"{kind}_bytes"] = len(content.getvalue())
    return [{"file": path.name, **sizes, "seconds": time.perf_counter() - begin}]
