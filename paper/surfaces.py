"""Numbers in, pictures out: kernel matrices side by side, and tables of the spectrum as heat maps with the numbers in.

A number in each cell reads where the paper's surfaces in three dimensions hide each other, and in black and white too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.arrays import Array

__all__ = ["COLUMNS", "Panel", "heat_maps", "matrices", "short"]

COLUMNS = (("pairwise", 0.1, "theirs, drop 0.1"), ("pairwise", 0.0, "theirs, drop 0"), ("shared", 0.0, "ours, drop 0"))
QUANTITIES = (("error", "relative error", "Blues"), ("smallest_eigenvalue", "smallest eigenvalue", "Oranges"),
              ("n_negative", "negative eigenvalues", "Greens"))  # fmt: skip
# A matrix is drawn with LEVELS shades of grey; more would only enlarge the file.
LEVELS = 16
# Errors below LOWEST share one colour.
LOWEST = 1e-8
# The colour scale is stretched by PALE, so that dark digits stay readable in every cell.
PALE = 1.8
# Width and height of a cell in inches.
CELL, HIGH = 0.5, 0.3


@dataclass(frozen=True, eq=False)
class Panel:
    """One matrix to show."""

    title: str
    values: Array
    edges: Sequence[int]  # where clusters begin
    limits: tuple[float, float]


def matrices(panels: Sequence[Panel]) -> Any:
    """A figure of the matrices in a row, darker where larger, each with its scale."""
    import matplotlib

    figure, axes = _figure(1, len(panels), (3.0 * len(panels), 3.65))
    greys = matplotlib.colormaps["Greys"].resampled(LEVELS)
    for axis, panel in zip(axes[0], panels, strict=True):
        low, high = panel.limits
        image = axis.imshow(panel.values, cmap=greys, vmin=low, vmax=high, interpolation="none")
        for edge in panel.edges:
            axis.axhline(edge - 0.5, color="tab:red", linewidth=0.4)
            axis.axvline(edge - 0.5, color="tab:red", linewidth=0.4)
        axis.set_title(panel.title, fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
        bar = figure.colorbar(image, ax=axis, orientation="horizontal", shrink=0.9, pad=0.03, aspect=30)
        bar.set_ticks([low, (low + high) / 2, high])
        bar.ax.set_xticklabels([short(v) for v in (low, (low + high) / 2, high)], fontsize=9)
    return figure


def heat_maps(rows: Sequence[dict[str, Any]], along: str, label: str, title: str) -> Any:
    """A figure with a row for each quantity and a column for each variant; cells over ``along`` and the total rank."""
    import matplotlib

    across = sorted({r[along] for r in rows})
    ranks = sorted({r["total_rank"] for r in rows}, reverse=True)  # the largest on top
    size = (1.2 + 3 * (CELL * max(len(across), 4) + 0.35), 1.2 + 3 * (HIGH * max(len(ranks), 4) + 0.45))
    figure, axes = _figure(len(QUANTITIES), len(COLUMNS), size)
    for i, (name, words, colours) in enumerate(QUANTITIES):
        grids = [_grid(rows, name, along, across, ranks, way, drop) for way, drop, _ in COLUMNS]
        lowest = min((float(np.nanmin(g)) for g in grids if np.isfinite(g).any()), default=1.0)
        weights = [_weight(name, grid, lowest) for grid in grids]
        high = max((float(np.nanmax(w)) for w in weights if np.isfinite(w).any()), default=0.0) or 1.0
        for j, (grid, weight) in enumerate(zip(grids, weights, strict=True)):
            axis = axes[i, j]
            axis.imshow(weight / high, cmap=matplotlib.colormaps[colours], vmin=0.0, vmax=PALE, aspect="auto")
            for y, x in np.argwhere(np.isfinite(grid)):
                axis.text(x, y, short(grid[y, x]), ha="center", va="center", fontsize=7.5, color="0.1")
            axis.set_xticks(range(len(across)), [short(v) for v in across] if i == len(QUANTITIES) - 1 else [])
            axis.set_yticks(range(len(ranks)), [f"{r:g}" for r in ranks] if j == 0 else [])
            axis.tick_params(length=0, labelsize=8.5)
            if i == 0:
                axis.set_title(COLUMNS[j][2], fontsize=10)
            if i == len(QUANTITIES) - 1:
                axis.set_xlabel(label, fontsize=9.5)
            if j == 0:
                axis.set_ylabel(f"{words}\ntotal rank r", fontsize=9.5)
    figure.suptitle(title, fontsize=11)
    return figure


def short(value: float) -> str:
    """Two or three digits, in as few characters as can be."""
    if value == 0:
        return "0"
    if 0.01 <= abs(value) < 10_000:
        text = f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
        return f"{value:.2g}" if abs(value) < 1 else text
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _weight(name: str, grid: Array, lowest: float) -> Array:
    """How dark a cell is, from 0: errors and eigenvalues by their logarithm, numbers as they are."""
    if name == "error":
        floor = max(lowest, LOWEST)
        return np.asarray(np.log10(np.clip(grid, floor, None) / floor))
    if name == "smallest_eigenvalue":
        return np.asarray(np.log10(1.0 + np.abs(grid) / 1e-3))
    return grid


def _grid(
    rows: Sequence[dict[str, Any]], name: str, along: str, across: Sequence[float], ranks: Sequence[float],
    coupling: str, drop: float,
) -> Array:  # fmt: skip
    """(ranks, across): means over seeds; not a number where there is no row."""
    grid = np.full((len(ranks), len(across)), math.nan)
    for y, rank in enumerate(ranks):
        for x, value in enumerate(across):
            key = {"total_rank": rank, along: value, "coupling": coupling, "drop": drop}
            here = [r for r in rows if all(r[c] == v for c, v in key.items())]
            if here:  # an eigenvalue that does not count as negative is zero to rounding
                found = [0.0 if name == "smallest_eigenvalue" and not r["n_negative"] else r[name] for r in here]
                grid[y, x] = sum(found) / len(found)
    return grid


def _figure(n_rows: int, n_columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    """For files alone: pyplot and its windows are left alone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)
