"""Where pictures are drawn: the caller's Axes or new ones, and the styles that tell lines apart without colour.

matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from krein.approximation import Approximation
from krein.errors import InputError, KreinError

__all__ = [
    "DARK", "LINES", "Display", "MissingPlotError", "approximation_of", "axes_for", "check_matplotlib",
    "figure_with_axes", "fit_inside", "legend_above", "name_axes", "series_styles",
]  # fmt: skip

DARK = "0.1"
LINES: dict[str, dict[str, Any]] = {  # of corrections: told apart by dash and grey level as well as by colour
    "shift": {"color": "#1b5e91", "linestyle": "--", "linewidth": 1.6},
    "clip": {"color": "#b03a2e", "linestyle": ":", "linewidth": 2.4},
    "flip": {"color": "#117a3d", "linestyle": "-.", "linewidth": 1.6},
    "square": {"color": "#6c3483", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "linewidth": 1.6},
}
COLOURS = ("#1b5e91", "#b03a2e", "#117a3d", "#6c3483", "#8a6d00", "0.25")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P")


class MissingPlotError(KreinError, ImportError):
    """A picture was asked for, but matplotlib is not installed."""


def figure_with_axes(count: int, size: tuple[float, float]) -> tuple[Any, NDArray[Any]]:
    """A figure for files alone, with ``count`` Axes side by side: pyplot and its windows are left alone."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, count, squeeze=False)[0]


def check_matplotlib() -> None:
    """Raise MissingPlotError, which names the extra, unless matplotlib can be imported."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingPlotError("Pictures need matplotlib, which is not installed: pip install 'krein[plot]'.") from None


def axes_for(ax: Any, count: int, size: tuple[float, float], columns: int | None = None) -> tuple[NDArray[Any], Any]:
    """``count`` Axes, the caller's or new ones in rows of ``columns``, and their figure."""
    if ax is None:
        check_matplotlib()
        import matplotlib.pyplot as plt

        across = min(count, columns or count)
        figure, made = plt.subplots(-(-count // across), across, figsize=size, squeeze=False, layout="constrained")
        for spare in made.ravel()[count:]:
            spare.remove()
        return made.ravel()[:count], figure
    axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if len(axes) != count:
        raise InputError(f"ax must hold {count} Axes, one for each panel; got {len(axes)}.")
    return axes, axes[0].figure


class Display:
    """What all displays share: the Axes they were drawn on, and their figure."""

    ax_: Any
    figure_: Any

    def _axis(self, ax: Any, size: tuple[float, float]) -> Any:
        """The caller's Axes or new ones, kept as ``ax_``."""
        (self.ax_,), self.figure_ = axes_for(ax, 1, size)
        return self.ax_


def name_axes(axis: Any, x: str, y: str, lines: str = "") -> None:
    """Name both axes; ``lines`` ("x", "y" or "both") are drawn lightly behind the rest."""
    axis.set(xlabel=x, ylabel=y)
    if lines:
        axis.grid(axis=lines, color="0.9", linewidth=0.6)
        axis.set_axisbelow(True)


def series_styles(count: int, markers: bool = True) -> list[dict[str, Any]]:
    """``count`` line styles that differ in colour, dash and marker."""
    styles = []
    for i, (colour, dash, marker) in enumerate(islice(zip(cycle(COLOURS), cycle(DASHES), cycle(MARKERS)), count)):
        filled = "white" if (i // len(MARKERS)) % 2 else colour
        own = {"marker": marker, "markersize": 5, "markerfacecolor": filled} if markers else {}
        styles.append({"color": colour, "linestyle": dash, "linewidth": 1.5, **own})
    return styles


def legend_above(axis: Any, columns: int = 2, **options: Any) -> None:
    """A legend above the axes, which give way to it: inside, some curve always runs through it."""
    options = {"fontsize": 9, "frameon": False, "handlelength": 3.0} | options
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, **options)
    fit_inside(axis)


def fit_inside(axis: Any, gap: float = 2.0) -> None:
    """Shrink a caller's axes by what their labels or legend would lose at the figure's edge, if nothing lays it out."""
    root = axis.figure.canvas.figure
    if root.get_layout_engine() is not None:
        return
    root.draw_without_rendering()
    seen, paper, mine = axis.get_tightbbox(), root.bbox, axis.figure.bbox
    left, low = max(0.0, paper.x0 + gap - seen.x0), max(0.0, paper.y0 + gap - seen.y0)
    right, high = max(0.0, seen.x1 + gap - paper.x1), max(0.0, seen.y1 + gap - paper.y1)
    place = axis.get_position()
    across, up = (left + right) / mine.width, (low + high) / mine.height
    if across + up > 0.0 and across < place.width / 2 and up < place.height / 2:
        corner = place.x0 + left / mine.width, place.y0 + low / mine.height
        axis.set_position((*corner, place.width - across, place.height - up))
        axis.set_in_layout(True)  # a layout that is asked for later still counts it


def approximation_of(estimator: Any) -> tuple[Approximation, Approximation]:
    """The approximation of a fitted kernel machine as it was built, and as it is used: corrected.

    An exact machine builds it now, with a warning.
    """
    check_is_fitted(estimator)
    if not hasattr(estimator, "route_"):
        raise InputError(
            f"estimator must be a fitted kernel machine of krein, which has route_; got {type(estimator).__name__}. "
            "For a pipeline pass its last step."
        )
    used: Approximation = estimator.approximation_
    built = estimator._on_demand[0] if hasattr(estimator, "_on_demand") else getattr(estimator, "_uncorrected", used)
    return built, used
