"""Strings: accuracy over similarities, as a share of n², and over seconds of the fit; krein beside the dense routes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.strings_summary import EXPENSIVE, KREIN_RIDGE, KREIN_SVC, RIDGE, SPECTRAL, Group, Rows, grouped
from krein.plotting import check_matplotlib

LOOKS = {  # colour and marker
    KREIN_SVC: ("#b03a2e", "o"),
    KREIN_RIDGE: ("#e08a1e", "D"),
    SPECTRAL[0]: ("#1b5e91", "s"),
    SPECTRAL[1]: ("#5b9bd0", "^"),
    SPECTRAL[2]: ("#6c4f9c", "v"),
    RIDGE: ("#117a3d", "P"),
}
PANELS = {"share": "similarities of the fit, % of n²", "seconds": "CPU seconds of the fit, similarities included"}
WIDE, HIGH, DPI = 11.5, 8.6, 110


def draw(rows: Rows, path: Path) -> None:
    """Write the picture: words above, peptides below. Objects with an expensive similarity are hollow."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = [g for g in grouped(rows) if g.route in LOOKS]
    names = list(dict.fromkeys(g.data.removesuffix(EXPENSIVE) for g in groups))
    if not names:
        return
    names.sort(reverse=True)
    figure = Figure(figsize=(WIDE, HIGH if len(names) > 1 else 0.6 * HIGH), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(names), len(PANELS), squeeze=False, sharey="row")
    for name, across in zip(names, axes, strict=True):
        mine = [g for g in groups if g.data.removesuffix(EXPENSIVE) == name]
        for column, ax in zip(PANELS, across, strict=True):
            panel(ax, mine, column)
        across[0].set_ylabel(f"{name}: accuracy, %")
    for ax, label in zip(axes[-1], PANELS.values(), strict=True):
        ax.set_xlabel(label)
    figure.legend(handles=legend(), loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def panel(ax: Any, groups: list[Group], column: str) -> None:
    for route, (colour, marker) in LOOKS.items():
        some = sorted((g for g in groups if g.route == route), key=lambda g: g.n)
        plain = [g for g in some if EXPENSIVE not in g.data]
        ax.plot([getattr(g, column) for g in plain], [g.accuracy for g in plain], color=colour, linewidth=1.0, zorder=2)
        for g in some:
            spread = g.error if len(g.by_split) > 1 else 0.0
            face = "white" if EXPENSIVE in g.data else colour
            ax.errorbar([getattr(g, column)], [g.accuracy], [spread], color=colour, marker=marker, markersize=6.5,
                        markerfacecolor=face, linestyle="", elinewidth=1.0, zorder=3)  # fmt: skip
    for n in sorted({g.n for g in groups}):
        best = max((g for g in groups if g.n == n and g.route in (KREIN_SVC, KREIN_RIDGE)), key=lambda g: g.accuracy,
                   default=None)  # fmt: skip
        if best is not None:
            ax.annotate(f"n = {n:,}", (getattr(best, column), best.accuracy), (0, 9), textcoords="offset points",
                        fontsize=8, ha="center", color="0.25")  # fmt: skip
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.margins(0.09, 0.14)
    if column == "share":
        ax.set_xticks([5, 10, 20, 50, 100])
        ax.set_xlim(7, 130)
    ax.xaxis.set_minor_formatter("")
    ax.grid(True, which="major", color="0.9", linewidth=0.6)
    ax.tick_params(labelsize=9)
    ax.spines[["top", "right"]].set_visible(False)


def legend() -> list[Any]:
    from matplotlib.lines import Line2D

    found = [Line2D([], [], color=c, marker=m, linestyle="", label=route) for route, (c, m) in LOOKS.items()]
    hollow = {"color": "0.3", "marker": "o", "linestyle": "", "markerfacecolor": "white"}
    return [*found, Line2D([], [], label="hollow: expensive similarity", **hollow)]
