"""Pictures: an approximation or a factorization in, a scikit-learn-style Display out.

A Display holds the numbers it shows (`from_...` computes them) and draws them with `plot`, which returns it with
`ax_` and `figure_`. matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from krein.approximation import Approximation
from krein.arrays import Array, Indices, seed_from, stream
from krein.blocksparse import BlockSparse
from krein.correction import CORRECTIONS, correct
from krein.errors import InputError, KreinError, one_of
from krein.factorization import EPS, Factorization
from krein.kernels import Evaluator, count_objects, take

__all__ = [
    "CoreDisplay",
    "KernelMatrixDisplay",
    "MissingPlotError",
    "SpectrumDisplay",
    "check_matplotlib",
    "figure_with_axes",
]

PANELS = {
    "before": "as given",
    "after": "sorted by cluster",
    "approximation": "sorted by cluster, approximated",
}
DARK = "0.1"
LINES = {  # told apart by dash and grey level as well as by colour
    "shift": {"color": "#1b5e91", "linestyle": "--", "linewidth": 1.6},
    "clip": {"color": "#b03a2e", "linestyle": ":", "linewidth": 2.4},
    "flip": {"color": "#117a3d", "linestyle": "-.", "linewidth": 1.6},
    "square": {"color": "#6c3483", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "linewidth": 1.6},
}
DECADES = 5  # how far below the largest eigenvalue the logarithmic part of the axis goes


class MissingPlotError(KreinError, ImportError):
    """A picture was asked for, but matplotlib is not installed."""


class KernelMatrixDisplay:
    """The kernel matrix before and after its rows are sorted by cluster, on a sample of rows if there are many.

    Parameters
    ----------
    rows : (m,) the caller's rows that are shown, ascending
    sorted_rows : (m,) the same rows, cluster by cluster
    matrices : panel name -> (m, m) values
    boundaries : where, in sorted rows, a new cluster begins
    n_rows_total : n, of which the m rows are a sample
    """

    ax_: NDArray[Any]  # one Axes per panel
    figure_: Any

    def __init__(
        self,
        *,
        rows: Indices,
        sorted_rows: Indices,
        matrices: Mapping[str, Array],
        boundaries: Indices,
        n_rows_total: int,
        title: str = "",
    ) -> None:
        self.rows = rows
        self.sorted_rows = sorted_rows
        self.matrices = dict(matrices)
        self.boundaries = boundaries
        self.n_rows_total = n_rows_total
        self.title = title

    @classmethod
    def from_approximation(
        cls,
        approximation: Approximation,
        n_rows: int = 400,
        *,
        panels: Iterable[str] = ("before", "after"),
        random_state: Any = 0,
        ax: Any = None,
    ) -> KernelMatrixDisplay:
        """Draw the exact kernel values of at most ``n_rows`` sampled rows, as given and sorted by cluster.

        ``panels`` chooses among "before", "after" and "approximation" (what the factorization holds in place of
        "after"). Evaluates n_rows² kernel entries, whatever n.
        """
        chosen = tuple(panels)
        for panel in chosen:
            one_of("panels", panel, PANELS)
        if not chosen:
            raise InputError(f"panels must name at least one of {', '.join(map(repr, PANELS))}; got none.")
        if isinstance(n_rows, bool) or not isinstance(n_rows, int | np.integer) or n_rows < 2:
            raise InputError(f"n_rows must be an integer of at least 2; got {n_rows!r}.")
        f, n = approximation.factorization, count_objects(approximation.objects)
        m = min(n, int(n_rows))
        rows = np.arange(n) if m == n else np.sort(stream(seed_from(random_state)).choice(n, m, replace=False))
        position = np.empty(n, dtype=np.intp)
        position[f.order] = np.arange(n)
        by_cluster = np.argsort(position[rows], kind="stable")
        sorted_rows = rows[by_cluster]
        block = np.searchsorted([span.stop for span, _ in f.spans], position[sorted_rows], side="right")
        sample = take(approximation.objects, rows)
        exact = Evaluator(approximation.kernel).block(sample, sample).astype(np.float64)
        made: dict[str, Callable[[], Array]] = {
            "before": lambda: exact,
            "after": lambda: exact[np.ix_(by_cluster, by_cluster)],
            "approximation": lambda: f.entries(sorted_rows, sorted_rows),
        }
        return cls(
            rows=rows,
            sorted_rows=sorted_rows,
            matrices={panel: made[panel]() for panel in chosen},
            boundaries=np.flatnonzero(np.diff(block)) + 1,
            n_rows_total=n,
            title=type(approximation.kernel).__name__,
        ).plot(ax=ax)

    def plot(self, ax: Any = None, *, cmap: str = "viridis") -> KernelMatrixDisplay:
        """Draw one panel per matrix, on one colour scale. ``ax``: as many Axes as there are panels."""
        count = len(self.matrices)
        axes, figure = _axes(ax, count, (3.4 * count + 1.0, 3.9))
        low = min(float(values.min()) for values in self.matrices.values())
        high = max(float(values.max()) for values in self.matrices.values())
        image = None
        for axis, (panel, values) in zip(axes, self.matrices.items(), strict=True):
            image = axis.imshow(values, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
            axis.set_title(PANELS[panel], fontsize=10)
            axis.set_xticks([])
            axis.set_yticks([])
            if panel != "before" and len(self.boundaries) < 60:  # more lines than that would be all one sees
                for edge in self.boundaries - 0.5:
                    axis.axhline(edge, color="white", linewidth=0.7)
                    axis.axvline(edge, color="white", linewidth=0.7)
        shown, n = len(self.rows), self.n_rows_total
        whole = f"all {n:,} rows" if shown == n else f"{shown:,} of {n:,} rows, drawn at random"
        axes[0].set_xlabel(whole, fontsize=9)
        figure.colorbar(image, ax=list(axes), shrink=0.85, pad=0.02, label=f"{self.title} similarity".strip())
        self.ax_, self.figure_ = axes, figure
        return self


class SpectrumDisplay:
    """The eigenvalues of a factorization, negative ones marked, and what corrections make of each.

    Every curve runs over the same eigenvectors, by falling eigenvalue before the correction: so a flip is a mirror
    image, a clip ends at zero and a shift lifts all.

    Parameters
    ----------
    eigenvalues : (r,) before any correction, falling
    corrected : correction -> (r,), of the same eigenvectors
    outside : correction -> the eigenvalue of the other n - r directions ("none": before)
    n_outside : n - r
    """

    ax_: Any
    figure_: Any

    def __init__(
        self, *, eigenvalues: Array, corrected: Mapping[str, Array], outside: Mapping[str, float], n_outside: int
    ) -> None:
        self.eigenvalues = eigenvalues
        self.corrected = dict(corrected)
        self.outside = dict(outside)
        self.n_outside = n_outside

    @classmethod
    def from_factorization(
        cls, factorization: Factorization, corrections: Iterable[str] = ("shift", "clip"), *, ax: Any = None
    ) -> SpectrumDisplay:
        """Draw the r eigenvalues that the core holds; the other n - r are the shift, and named below the axis.

        The corrected values come from `krein.correct` itself. Costs one r³ eigendecomposition per correction.
        """
        names = tuple(corrections)
        for name in names:
            one_of("corrections", name, CORRECTIONS)
        values = factorization.eigenvalues()[::-1]
        corrected, outside = {}, {"none": factorization.shift}
        for name in names:
            if name == "none":
                continue
            after = correct(factorization, name)
            # eigenvalues come sorted; the eigenvector whose value is i-th largest before has the rank of its image
            image = _images(values, after.shift - factorization.shift, name)
            matched = np.empty_like(values)
            matched[np.argsort(image, kind="stable")] = after.eigenvalues()
            corrected[name], outside[name] = matched, after.shift
        n_outside = factorization.shape[0] - factorization.rank
        return cls(eigenvalues=values, corrected=corrected, outside=outside, n_outside=n_outside).plot(ax=ax)

    def plot(self, ax: Any = None) -> SpectrumDisplay:
        """Draw all curves over the index of the eigenvector, on an axis that is linear near zero only."""
        (axis,), figure = _axes(ax, 1, (7.0, 4.4))
        r = len(self.eigenvalues)
        index = np.arange(1, r + 1)
        largest = max(
            (float(np.abs(v).max(initial=0.0)) for v in (self.eigenvalues, *self.corrected.values())), default=0.0
        )
        core = np.abs(self.eigenvalues - self.outside["none"]).max(initial=0.0)
        negative = np.flatnonzero(self.eigenvalues < -10 * max(1, r) * EPS * core)  # as `n_negative` counts them
        axis.axhline(0.0, color="0.35", linewidth=0.8)
        axis.plot(index, self.eigenvalues, color="0.68", linewidth=4.5, label="before", solid_capstyle="round")
        if negative.size:
            every = max(1, negative.size // 30)
            axis.plot(
                index[negative], self.eigenvalues[negative], color=DARK, linestyle="none", marker="x", markersize=4,
                markevery=every, label=f"before: {negative.size} negative, smallest {self.eigenvalues[-1]:.3g}",
            )  # fmt: skip
            axis.axvspan(index[negative[0]] - 0.5, r + 0.5, color="0.92", zorder=0)
        for name, values in self.corrected.items():
            moved = np.abs(values - self.eigenvalues) > 1e-9 * (largest or 1.0)
            start = int(np.argmax(moved)) if moved.any() else r
            label = f"after {name}" + (
                f" by {self.outside[name] - self.outside['none']:.3g}" if name == "shift" else ""
            )
            shown = index[start:], values[start:]  # drawn where it differs: the curves would hide each other
            axis.plot(*shown, label=label if moved.any() else f"{label} (no change)", **LINES[name])
        axis.set_yscale("symlog", linthresh=_linear_up_to(self.eigenvalues, largest), linscale=0.6)
        axis.set_xlim(0.5, r + 0.5 if r else 1.5)
        axis.set_xlabel(self._axis_label(r), fontsize=9)
        axis.set_ylabel("eigenvalue")
        axis.grid(axis="y", color="0.88", linewidth=0.6)
        axis.set_axisbelow(True)
        # above the axes: inside, some spectrum always runs through the legend
        axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, fontsize=9, frameon=False, handlelength=3.0)
        self.ax_, self.figure_ = axis, figure
        return self

    def _axis_label(self, r: int) -> str:
        label = f"eigenvector of the core, 1 to {r:,}, by falling eigenvalue"
        if self.n_outside == 0:
            return label
        after = [f"{value:.3g} after {name}" for name, value in self.outside.items() if value != self.outside["none"]]
        rest = f"the other {self.n_outside:,} eigenvalues of the matrix are {self.outside['none']:.3g}"
        return f"{label}\n{rest}{', ' + ', '.join(after) if after else ''}"


class CoreDisplay:
    """How strongly each pair of blocks is coupled: the Frobenius norms of the core's blocks; hatched where not at all.

    The bases are orthonormal, so the norm of a core block is that of the whole block of the approximated matrix.

    Parameters
    ----------
    norms : (c, c) norms of the core's blocks
    dropped : (c, c) True where there is no coupling at all: dropped, or zero to begin with
    """

    ax_: Any
    figure_: Any

    def __init__(self, *, norms: Array, dropped: NDArray[np.bool_]) -> None:
        self.norms = norms
        self.dropped = dropped

    @classmethod
    def from_factorization(cls, factorization: Factorization, *, ax: Any = None) -> CoreDisplay:
        """Draw the norms of all c x c blocks of the core."""
        f, c = factorization, factorization.n_blocks
        norms = np.zeros((c, c))
        if isinstance(f.core, BlockSparse):
            for i, j, block in f.core.blocks():
                norms[i, j] = norms[j, i] = np.linalg.norm(block)
        else:
            for i, (_, left) in enumerate(f.spans):
                for j, (_, right) in enumerate(f.spans):
                    norms[i, j] = np.linalg.norm(f.core[left, right])
        return cls(norms=norms, dropped=norms == 0.0).plot(ax=ax)

    def plot(self, ax: Any = None, *, cmap: str = "viridis") -> CoreDisplay:
        """Draw the norms on a logarithmic colour scale."""
        (axis,), figure = _axes(ax, 1, (5.2, 4.4))
        from matplotlib.colors import LogNorm
        from matplotlib.patches import Patch
        from matplotlib.ticker import LogLocator, StrMethodFormatter

        kept = self.norms[~self.dropped]
        high = float(kept.max(initial=0.0)) or 1.0
        low = max(float(kept.min(initial=high)), 1e-8 * high)
        scale = LogNorm(low if low < high else high / 10, high)
        image = axis.imshow(
            np.ma.masked_array(self.norms, self.dropped), cmap=cmap, norm=scale, interpolation="nearest"
        )
        axis.set_facecolor("white")
        axis.patch.set(hatch="////", edgecolor="0.6")
        c = len(self.norms)
        ticks = np.unique(np.linspace(0, c - 1, min(c, 10)).astype(int))
        axis.set_xticks(ticks, ticks + 1)
        axis.set_yticks(ticks, ticks + 1)
        axis.set_xlabel("block")
        axis.set_ylabel("block")
        n_dropped = int(np.triu(self.dropped, 1).sum())
        if n_dropped:
            mark = Patch(facecolor="white", edgecolor="0.6", hatch="////")
            label = f"not coupled: {n_dropped:,} of {c * (c - 1) // 2:,} pairs"
            axis.legend([mark], [label], loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize=9)
        bar = figure.colorbar(image, ax=axis, label="Frobenius norm of the block")
        if high < 1000 * low:  # over a few decades, numbers read better than powers of ten
            bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            bar.ax.yaxis.set_minor_formatter("")
        self.ax_, self.figure_ = axis, figure
        return self


def _images(values: Array, lifted: float, name: str) -> Array:
    """What ``name`` makes of each eigenvalue, up to a monotone function: enough to know their order afterwards."""
    changed = {"clip": np.maximum(values, 0.0), "flip": np.abs(values), "square": values**2, "shift": values + lifted}
    return changed[name]


def _linear_up_to(eigenvalues: Array, largest: float) -> float:
    """Where the axis turns linear: a power of ten near the typical eigenvalue, so that neither part is squeezed."""
    if largest == 0.0:
        return 1.0
    typical = float(np.median(np.abs(eigenvalues)))
    return float(10.0 ** math.floor(math.log10(max(typical, largest * 10.0**-DECADES))))


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


def _axes(ax: Any, count: int, size: tuple[float, float]) -> tuple[NDArray[Any], Any]:
    """``count`` Axes, the caller's or new ones, and their figure."""
    if ax is None:
        check_matplotlib()
        import matplotlib.pyplot as plt

        figure, made = plt.subplots(1, count, figsize=size, squeeze=False, layout="constrained")
        return made[0], figure
    axes = np.atleast_1d(np.asarray(ax, dtype=object)).ravel()
    if len(axes) != count:
        raise InputError(f"ax must hold {count} Axes, one for each panel; got {len(axes)}.")
    return axes, axes[0].figure
