"""What the pictures of the benchmarks share: panels side by side, and how they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from krein.plotting import check_matplotlib

KREIN, THEIRS, OTHER = "#b03a2e", "#1b5e91", "#117a3d"


def panels(columns: int, wide: float, high: float, **how: Any) -> tuple[Any, list[Any]]:
    """Return a figure and its panels, without a window."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(wide, high), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, columns, squeeze=False, **how)[0])
    for ax in axes:
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def write(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, metadata={"Software": None})
