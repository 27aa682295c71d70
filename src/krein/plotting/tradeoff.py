"""What memory buys: the error, or a validated score, over the bytes of what was tried, with the choice marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from krein.approximation import Approximation
from krein.choosing import approximate
from krein.errors import InputError, si, whole_number
from krein.plotting.canvas import DARK, Display, approximation_of, legend_above, name_axes, series_styles
from krein.progress import progress_bar

__all__ = ["MemoryDisplay", "Spot"]

# Up to LABELLED points have their rank beside them.
LABELLED = 24
# Values within this factor of each other are drawn on a linear axis.
LINEAR_RANGE = 4.0
# Smaller errors, zero for instance, are drawn here.
SMALLEST_ERROR = 1e-16
# Errors below this one are rounding. They share one line, because they would take most of the axis.
ERROR_ROUNDING = 1e-9
# The ring around the chosen point has this diameter, in points.
RING_SIZE = 13
# Where a label may stand beside its point, in order of preference: offset in points, and alignment.
LABEL_PLACES = tuple(
    ((x * far, y * far), across, up)
    for far in (1.0, 2.0)
    for x, y, across, up in (
        (7, 4, "left", "bottom"), (7, -4, "left", "top"), (-7, 4, "right", "bottom"), (-7, -4, "right", "top"),
        (0, 7, "center", "bottom"), (0, -7, "center", "top"), (9, 0, "left", "center"), (-9, 0, "right", "center"),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Spot:
    """One (c, k): what it takes, and what that gives."""

    n_blocks: int
    rank: int
    nbytes: int
    value: float  # the relative error, or a score
    low: float | None = None  # its interval, if known
    high: float | None = None
    series: str = ""  # spots of a series are drawn apart; without, those of as many blocks share a line


@dataclass(eq=False, repr=False, kw_only=True)
class MemoryDisplay(Display):
    """The error (or the score) of several numbers of blocks and ranks over the bytes they take.

    Parameters
    ----------
    spots : sequence of Spot
        The shapes that were tried.
    chosen : Spot or None, default=None
        The shape that was chosen; it gets a ring.
    value_label : str, default="relative error"
        Label of the vertical axis.
    target : float or None, default=None
        The error that was asked for.
    log : bool, default=True
        Whether values are on a logarithmic axis.
    chosen_label : str, default="chosen"
        Label of the ring.
    """

    spots: Sequence[Spot]
    chosen: Spot | None = None
    value_label: str = "relative error"
    target: float | None = None
    log: bool = True
    chosen_label: str = "chosen"

    def __post_init__(self) -> None:
        if not self.spots:
            raise InputError("spots must hold at least one choice of blocks and rank; got none.")

    @classmethod
    def from_grid(
        cls,
        X: Any,
        kernel: Any,
        *,
        n_blocks: Iterable[int] = (1, 4, 16),
        ranks: Iterable[int] = (8, 16, 32, 64),
        max_error: float | None = None,
        max_memory: float | None = None,
        random_state: Any = 0,
        verbose: int = 0,
        ax: Any = None,
    ) -> MemoryDisplay:
        """Build every (c, k), measure its error (95 % interval), and mark what krein chooses by itself for the limits.

        Pairs with more directions than a quarter of the rows, if c > 1, are left out. Costs as many builds as spots.
        """
        cs, ks = tuple(n_blocks), tuple(ranks)
        for name, values in (("n_blocks", cs), ("ranks", ks)):
            for value in values:
                whole_number(name, value, 1)
        own = approximate(X, kernel, max_error=max_error, max_memory=max_memory, random_state=random_state)
        n = own.factorization.shape[0]
        pairs = [(c, k) for c in cs for k in ks if c * k <= (n if c == 1 else n // 4)]
        spots = []
        for c, k in progress_bar(pairs, what="grid", verbose=verbose):
            a = approximate(X, own.kernel, n_blocks=c, rank=k, drop=0.0, random_state=random_state)
            spots.append(_measured(a, c, k, random_state))
        mine = own.factorization
        chosen = _measured(own, mine.n_blocks, round(mine.rank / mine.n_blocks), random_state)
        return cls(spots=spots, chosen=chosen, target=max_error).plot(ax=ax)

    @classmethod
    def from_approximation(cls, approximation: Approximation, *, ax: Any = None) -> MemoryDisplay:
        """Draw what was tried where blocks, rank or type were left open (``search_``); nothing is built."""
        found = approximation.search_
        if found is None:
            raise InputError(
                "This approximation was built as asked, nothing was searched for. Leave n_blocks or rank open, or use "
                "from_grid."
            )
        measured = ("built", "kept", "exact")
        spots = [
            Spot(a.n_blocks, a.rank, a.nbytes, a.error, series="built" if a.stage in measured else "forecast")
            for a in found.tried
        ]
        if found.error is not None:
            spots[-1] = replace(spots[-1], low=found.error.low, high=found.error.high)
        return cls(spots=spots, chosen=spots[-1]).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> MemoryDisplay:
        """Draw the shapes that a kernel machine chose from, with their validated scores or else their errors."""
        built, _ = approximation_of(estimator)
        choice = getattr(estimator, "selection_", None)
        if choice is None or not choice.tried:
            return cls.from_approximation(built, ax=ax)
        spots = [
            Spot(t.n_blocks, t.rank, t.nbytes, t.score, series="coupled" if t.coupled else "uncoupled")
            for t in choice.tried
        ]
        chosen = None if choice.best is None else spots[choice.best]
        return cls(spots=spots, chosen=chosen, value_label="score of rows left out", log=False).plot(ax=ax)

    def plot(self, ax: Any = None, *, columns: int = 3) -> MemoryDisplay:
        """Draw one line per number of blocks, or the spots of each series; ranks beside them, the choice in a ring.

        ``columns``: of the legend.
        """
        axis = self._axis(ax, (6.8, 4.6))
        lines: dict[str, list[Spot]] = {}
        for spot in sorted(self.spots, key=lambda s: (s.n_blocks, s.nbytes)):
            lines.setdefault(spot.series or _blocks(spot.n_blocks), []).append(spot)
        drawn: list[Any] = []
        for (name, spots), style in zip(lines.items(), series_styles(len(lines)), strict=True):
            y = np.array([self._drawn(s.value) for s in spots])
            style |= {"linestyle": "none"} if spots[0].series else {}
            drawn += axis.plot([s.nbytes for s in spots], y, label=name, **style)
            bars = [i for i, s in enumerate(spots) if s.low is not None and s.high is not None]
            ends = np.array([[y[i] - self._drawn(spots[i].low), self._drawn(spots[i].high) - y[i]] for i in bars])
            if bars:
                x, ends = [spots[i].nbytes for i in bars], np.maximum(ends, 0.0)
                axis.errorbar(x, y[bars], yerr=ends.T, fmt="none", ecolor=style["color"], capsize=2, elinewidth=1.0)
        if self.chosen is not None:
            c = self.chosen
            axis.plot(
                [c.nbytes], [self._drawn(c.value)], linestyle="none", marker="o", markersize=RING_SIZE,
                markeredgewidth=1.8, markerfacecolor="none", color=DARK, zorder=5,
                label=f"{self.chosen_label}: {_blocks(c.n_blocks)} of rank {c.rank}",
            )  # fmt: skip
        if self.target is not None:
            drawn.append(
                axis.axhline(self.target, color="0.35", linestyle=(0, (1, 1.5)), label=f"target: {self.target:g}")
            )
        if self._least > SMALLEST_ERROR:
            drawn.append(axis.axhline(self._least, color="0.35", linewidth=0.8, label="on this line: 0, to rounding"))
        shown = [s for s in (*self.spots, self.chosen) if s is not None]
        _scale(axis.xaxis, [s.nbytes for s in shown], si)
        if self.log:
            values = [self._drawn(v) for s in shown for v in (s.value, s.low or s.value)]
            _scale(axis.yaxis, values, "{:g}".format)
        name_axes(axis, "bytes of the factorization", self.value_label, lines="both")
        axis.margins(0.1)
        if self._least > SMALLEST_ERROR:
            self._zero(axis.yaxis)
        legend_above(axis, columns=columns, handlelength=2.4, columnspacing=1.2)
        if len(self.spots) <= LABELLED:
            self._name(axis, self.figure_, drawn)
        return self

    def _drawn(self, value: float | None) -> float:
        known = 0.0 if value is None else value
        if not self.log:
            return known
        return self._least if known < ERROR_ROUNDING < self._least else max(known, SMALLEST_ERROR)

    def _zero(self, axis: Any) -> None:
        """Number the line of what is rounding 0, and nothing else near it."""
        from matplotlib.ticker import FixedLocator

        low, high = axis.get_view_interval()
        ticks = [t for t in axis.get_major_locator().tick_values(low, high) if t > 2.0 * self._least]
        axis.set_major_locator(FixedLocator([self._least, *ticks]))
        axis.set_minor_locator(FixedLocator([t for t in axis.get_minorticklocs() if t > 2.0 * self._least]))
        axis.set_major_formatter(lambda y, _: f"{y:g}" if y > self._least else "0")

    @cached_property
    def _least(self) -> float:
        """Where errors that are rounding are drawn: a little below the others, if there are others."""
        shown = [s for s in (*self.spots, self.chosen) if s is not None]
        values = [v for s in shown for v in (s.value, s.low, self.target) if v is not None]
        above = [v for v in values if v >= ERROR_ROUNDING]
        return min(above) / 3.0 if above and len(above) < len(values) else SMALLEST_ERROR

    def _name(self, axis: Any, figure: Any, lines: Sequence[Any]) -> None:
        """Put ranks (and blocks, where no line says them) beside the spots, off the lines; left out without room."""
        from matplotlib.patheffects import withStroke

        figure.canvas.figure.draw_without_rendering()  # lays the axes out; a subfigure's canvas is the whole figure's
        places = axis.transData.transform([(s.nbytes, self._drawn(s.value)) for s in self.spots])
        paths = [line.get_transform().transform_path(line.get_path()) for line in lines]
        taken: list[Any] = [] if self.chosen is None else [self._ring(axis, figure)]
        named: set[tuple[str, int, int]] = set()
        halo = [withStroke(linewidth=2.5, foreground="white")]
        first = sorted(zip(self.spots, places, strict=True), key=lambda p: p[0] != self.chosen)
        for spot, place in first:
            if (spot.series, spot.n_blocks, spot.rank) in named:  # measured twice: before and after it was stored
                continue
            named.add((spot.series, spot.n_blocks, spot.rank))
            owner = spot.series or _blocks(spot.n_blocks)
            colour = next((line.get_color() for line in lines if line.get_label() == owner), DARK)
            text = f"{spot.n_blocks} × {spot.rank}" if spot.series else f"k = {spot.rank}"
            for offset, across, up in LABEL_PLACES:
                note = axis.annotate(
                    text, (spot.nbytes, self._drawn(spot.value)), xytext=offset, textcoords="offset points", ha=across,
                    va=up, fontsize=7.5, color=colour, path_effects=halo, zorder=6,
                )  # fmt: skip
                box = note.get_window_extent()
                others = [p for p in places if p is not place]
                hidden = any(box.overlaps(b) for b in taken) or any(box.contains(*p) for p in others)
                near = box.padded(3.0)  # other sizes and resolutions lay out a little differently
                crossed = any(path.intersects_bbox(near, filled=False) for path in paths)
                inside = axis.bbox.contains(box.x0, box.y0) and axis.bbox.contains(box.x1, box.y1)
                if inside and not hidden and not crossed:
                    taken.append(box)
                    break
                note.remove()

    def _ring(self, axis: Any, figure: Any) -> Any:
        """The box of the mark of the choice, in pixels."""
        from matplotlib.transforms import Bbox

        assert self.chosen is not None
        x, y = axis.transData.transform((self.chosen.nbytes, self._drawn(self.chosen.value)))
        half = RING_SIZE / 2 * figure.dpi / 72
        return Bbox([[x - half, y - half], [x + half, y + half]])


def _scale(axis: Any, values: Sequence[float], name: Callable[[float], str]) -> None:
    """A logarithmic axis with numbers at 1, 2 and 5; a linear one where values are of one size."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    if max(values) > LINEAR_RANGE * min(values) > 0.0:
        few = max(values) < 1e3 * min(values)
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    else:
        axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(lambda x, _: name(x))
    axis.set_minor_formatter(lambda *_: "")


def _blocks(count: int) -> str:
    return "1 block" if count == 1 else f"{count:,} blocks"


def _measured(a: Approximation, n_blocks: int, rank: int, random_state: Any) -> Spot:
    error = a.error(random_state=random_state)
    return Spot(n_blocks, rank, a.factorization.nbytes, error.relative, error.low, error.high)
