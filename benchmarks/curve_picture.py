"""The size curve as a picture: a row for each machine; fit, score, memory, one row and file size over n."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from krein.plotting import check_matplotlib

PANELS = {  # column of the table: title, and what a unit of it is
    "fit_seconds": ("fit, CPU seconds", 1.0),
    "score": ("score", 1.0),
    "peak_bytes": ("peak memory, MB", 1e6),
    "row_seconds": ("predict one row, ms", 1e-3),
    "file_bytes": ("model file, MB", 1e6),
}
COLOURS = {"krein": "#b03a2e", "scikit-learn": "#1b5e91", "Nystroem": "#117a3d", "subset": "#8a6d00"}
MARKERS = {"krein": "o", "scikit-learn": "s", "Nystroem": "^", "subset": "D"}
NAMES = {"Nystroem": "Nystroem(1000) + linear", "subset": "scikit-learn on fewer rows, in krein's time"}
SCORES = {
    "SVC": "accuracy", "SVR": "R²", "OneClassSVM": "ROC AUC", "KernelRidge": "R²", "KernelRidgeClassifier": "accuracy",
    "GaussianProcessRegressor": "R²", "KernelPCA": "accuracy, 5 neighbours", "SpectralClustering": "adjusted Rand",
}  # fmt: skip
FEW, MANY = "-", (0, (4, 1.6))  # lines of the two data sets
WIDE, HIGH, DPI = 15.0, 2.05, 110


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Write the picture of the rows that were measured."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    done = [r for r in rows if r["outcome"] == "done"]
    machines = list(dict.fromkeys(r["machine"] for r in done))
    if not machines:
        return
    figure = Figure(figsize=(WIDE, HIGH * len(machines) + 1.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(machines), len(PANELS), squeeze=False, sharex=True)
    for machine, across in zip(machines, axes, strict=True):
        mine = [r for r in done if r["machine"] == machine]
        sets = list(dict.fromkeys(r["data"] for r in mine))
        for column, ax in zip(PANELS, across, strict=True):
            panel(ax, mine, sets, column)
        across[1].set_ylabel(SCORES[machine], fontsize=8)
        across[0].set_ylabel(re.sub(r"(?<=[a-z])(?=[A-Z])", "\n", machine), fontsize=10, fontweight="bold")
        across[0].text(0.04, 0.95, "\n".join(f"{s} {d}" for s, d in zip(("—", "- -"), sets, strict=False)),
                       transform=across[0].transAxes, fontsize=8, va="top", family="monospace")  # fmt: skip
    for (title, _), top, bottom in zip(PANELS.values(), axes[0], axes[-1], strict=True):
        top.set_title(title, fontsize=11)
        bottom.set_xlabel("rows n")
    figure.legend(
        handles=legend({r["contender"] for r in done}), loc="outside upper center", ncols=6, frameon=False, fontsize=10
    )
    figure.savefig(path, dpi=DPI, metadata={"Software": None})


def panel(ax: Any, rows: list[dict[str, str]], sets: list[str], column: str) -> None:
    unit = PANELS[column][1]
    for contender, colour in COLOURS.items():
        for data, dash in zip(sets, (FEW, MANY), strict=False):
            some = [r for r in rows if (r["contender"], r["data"]) == (contender, data) and r[column]]
            n, values = [int(r["n"]) for r in some], [float(r[column]) / unit for r in some]
            front = 3 if contender == "krein" else 2
            ax.plot(n, values, color=colour, linestyle=dash, marker=MARKERS[contender], zorder=front,
                    markersize=3.0, linewidth=1.7 if contender == "krein" else 1.1)  # fmt: skip
            if column == "score" and contender in ("krein", "scikit-learn") and some:
                errors = [float(r["standard_error"]) for r in some]
                low, high = ([v + s * e for v, e in zip(values, errors, strict=True)] for s in (-1, 1))
                ax.fill_between(n, low, high, color=colour, alpha=0.12, linewidth=0)
    ax.set_xscale("log")
    plain(ax.xaxis, (1.0, 3.0))
    if column != "score":
        ax.set_yscale("log")
        low, high = ax.get_ylim()
        plain(ax.yaxis, (1.0,) if high > 200 * low else (1.0, 3.0) if high > 20 * low else (1.0, 2.0, 5.0))
    if not ax.lines or not any(len(drawn.get_xdata()) for drawn in ax.lines):
        ax.text(0.5, 0.5, "labels no new rows", transform=ax.transAxes, ha="center", va="center", color="0.4")
        ax.set_yticks([])
    ax.grid(True, which="major", color="0.9", linewidth=0.6)
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def plain(axis: Any, marked: tuple[float, ...]) -> None:
    """Ticks of a log axis at these multiples of the powers of ten, as plain numbers, with k and M."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    def short(value: float, _: int) -> str:
        size = "M" if value >= 1e6 else "k" if value >= 1e3 else ""
        return f"{value / {'M': 1e6, 'k': 1e3, '': 1.0}[size]:g}{size}"

    axis.set_major_locator(LogLocator(subs=marked, numticks=12))
    axis.set_major_formatter(FuncFormatter(short))
    axis.set_minor_formatter(NullFormatter())


def legend(shown: set[str]) -> list[Any]:
    from matplotlib.lines import Line2D

    found = [
        Line2D([], [], color=c, marker=MARKERS[who], markersize=4, linewidth=1.7, label=NAMES.get(who, who))
        for who, c in COLOURS.items()
        if who in shown
    ]
    dashes = (("few features", FEW), ("many features", MANY))
    return found + [Line2D([], [], color="0.2", linestyle=dash, label=name) for name, dash in dashes]
