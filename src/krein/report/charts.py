"""Charts as inline SVG, each drawn from the rows of the table below it, once per scale.

Every chart is one stop of the tab key, a slider over the rows of its table: the page's script moves over them, reads
them aloud and switches scales. In: a `ChartData`, what the chart and its table share. Out: a ``figure`` element.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from krein.report.axes import Axis, linear, logarithmic, symmetric
from krein.report.markup import Cell, Column, cell, fixed, plain, table

__all__ = ["ChartData", "bars", "grid", "histogram", "scatter", "stems"]

WIDTH, HEIGHT = 420, 260
RIGHT, TOP, BOTTOM = 10, 12, 40
LETTER = 15  # px: the page's largest text inside a chart, on a phone
TITLE = 22  # what the axis title takes at the left edge
ROW = 40  # height of a bar with its label
SHADES = 20
# Shapes of the series of a scatter chart, as paths around (0, 0) in a square of two units.
SHAPES = (
    "M-1 0a1 1 0 1 0 2 0a1 1 0 1 0 -2 0z", "M-1 -1h2v2h-2z", "M0 -1.3l1.3 1.3l-1.3 1.3l-1.3 -1.3z",
    "M0 -1.2l1.2 2.1h-2.4z", "M-1 -.3h2v.6h-2z",
)  # fmt: skip
SHAPE_SIZE = 4.5
# The smallest value of a logarithmic axis.
SMALLEST = 1e-16


@dataclass(frozen=True)
class ChartData:
    """A table with its title, and what is said of it. A mark in the last column sets its row off."""

    key: str
    title: str
    text: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    caption: str = ""  # of the table, if it is not the title

    def column(self, i: int) -> list[Cell]:
        """The cells of a column."""
        return [cell(row[i]) for row in self.rows]

    @property
    def marks(self) -> list[str]:
        """The marks of the rows; none without a column for them."""
        return [str(row[-1]) if self.columns[-1][0] == "mark" else "" for row in self.rows]

    @property
    def names(self) -> list[str]:
        """What rows are called: the first cell, with its heading if it is a number."""
        heading = self.columns[0][1]
        return [c.shown if isinstance(c.value, str) else f"{heading} {c.shown}" for c in self.column(0)]

    def table(self) -> str:
        return table(self.caption or self.title, self.columns, self.rows)


@dataclass(frozen=True)
class View:
    """A chart on one scale: its drawing, and the place of each row, or None."""

    scale: str
    drawn: str
    spots: Sequence[tuple[float, float] | None]


def stems(data: ChartData) -> str:
    """Values side by side, largest first, each a line from zero; linear, and logarithmic both ways."""
    values = [c.value for c in data.column(1)]
    low, high, m = min(0.0, *values), max(0.0, *values), len(values)
    axes = {"Linear": linear(low, high, snug=True), "Log": symmetric(low, high)}
    ticks = [("1", 0.5), (f"{m:,}", m - 0.5)]
    return _strokes(data, axes, "eigenvalue", "place, the largest first", ticks, [v < 0 for v in values])


def histogram(key: str, title: str, text: str, columns: Sequence[Column], counts: Any, edges: Any, caption: str) -> str:
    """Counts between edges; linear and logarithmic."""
    edges, most = [float(edge) for edge in edges], float(max(counts))
    between = [Cell(low, f"{fixed(low)} to {fixed(high)}") for low, high in pairwise(edges)]
    data = ChartData(key, title, text, columns, list(zip(between, counts.tolist(), strict=True)), caption)
    axes = {"Linear": linear(0.0, most), "Log": symmetric(0.0, most, 1.0)}
    ticks = [(fixed(edges[i]), float(i)) for i in (0, len(edges) // 2, len(edges) - 1)]
    x_name, y_name = (name.lower() for _, name in columns)
    return _strokes(data, axes, y_name, x_name, ticks, [high <= 0 for high in edges[1:]])


def _strokes(
    data: ChartData, axes: Mapping[str, Axis], y_name: str, x_name: str, ticks: Sequence[tuple[str, float]],
    below: Sequence[bool],
) -> str:  # fmt: skip
    """The second column as strokes from zero, some in another colour; ``ticks`` are texts and places in strokes."""
    views = []
    for name, axis in axes.items():
        ys, left = axis.placed(TOP, HEIGHT - BOTTOM), _left(axis)
        step, zero = (WIDTH - left - RIGHT) / len(below), ys(0.0)
        spots = [(left + (i + 0.5) * step, ys(float(c.value))) for i, c in enumerate(data.column(1))]
        drawn = _frame(axis, ys, y_name, x_name, [(text, left + place * step) for text, place in ticks])
        for style, kind in (("a", False), ("b", True)):
            path = "".join(f"M{x:.1f} {zero:.1f}V{y:.1f}" for (x, y), b in zip(spots, below, strict=True) if b == kind)
            drawn += f'<path class="{style}" stroke-width="{max(0.8, 0.9 * step):.2f}" d="{path}"/>'
        drawn += f'<path class="zero" d="M{left} {zero:.1f}H{WIDTH - RIGHT}"/>'
        views.append(View(name, drawn, spots))
    return _figure(data, views, "x")


def bars(
    data: ChartData, unit: str, *, at: int = 1, beside: int | None = None, log: bool = False, dots: bool = False
) -> str:
    """Rows one below the other: bars from zero, or dots with intervals on an axis of their own range.

    ``at`` is the column of values, ``beside`` that of values to compare them with, shown as lines across.
    """
    cells = data.column(at)
    others = [None] * len(cells) if beside is None else [c.value for c in data.column(beside)]
    seen = [v for c in cells for v in (c.value, c.low, c.high) if v is not None] + [v for v in others if v is not None]
    low, height = min(seen) if dots else min(0.0, *seen), TOP + ROW * sum(c.value is not None for c in cells) + BOTTOM
    axes = {"Linear": linear(low, max(seen))}
    if log and min(seen) > 0:
        axes["Log"] = logarithmic(min(seen), max(seen))
    views = []
    for scale, axis in axes.items():
        xs, base = axis.placed(WIDTH - RIGHT, 12), height - BOTTOM
        drawn = f'<path class="axis" d="M12 {base}H{WIDTH - RIGHT}"/>'
        drawn += "".join(f'<path class="rule" d="M{xs(tick):.1f} {TOP}V{base}"/>' for tick in axis.ticks)
        drawn += _numbers([(_short(tick), xs(tick)) for tick in axis.ticks], 12, 12, base + 15)
        drawn += f'<text x="{WIDTH / 2:.0f}" y="{height - 6}" text-anchor="middle">{plain(unit)}</text>'
        start = xs(max(axis.low, min(0.0, axis.high)) if scale == "Linear" else axis.low)
        spots: list[tuple[float, float] | None] = []
        y = TOP + ROW - 12
        for name, mark, c, other in zip(data.names, data.marks, cells, others, strict=True):
            if c.value is None:
                spots.append(None)
                continue
            x = xs(c.value)
            weight = ' font-weight="700"' if mark else ""
            drawn += f'<text x="12" y="{y - 11}"{weight}>{plain(f"{name} ({mark})" if mark else name)}</text>'
            if dots:
                drawn += _shape(0, x, y, 5 if mark else 4)
            else:
                wide = max(0.5, abs(x - start))
                drawn += f'<rect class="ba" x="{min(x, start):.1f}" y="{y - 6}" width="{wide:.1f}" height="12"/>'
            if c.low is not None and c.high is not None and c.high > c.low:
                a, b = xs(c.low), xs(c.high)
                drawn += f'<path class="w" d="M{a:.1f} {y - 4}v8M{a:.1f} {y}H{b:.1f}M{b:.1f} {y - 4}v8"/>'
            if other is not None:
                drawn += f'<path class="m" d="M{xs(other):.1f} {y - 9}v18"/>'
            spots.append((x, y))
            y += ROW
        views.append(View(scale, drawn, spots))
    return _figure(data, views, "y", height)


def scatter(data: ChartData, x: int, y: int, x_name: str, y_name: str) -> str:
    """Points by two columns, one shape per value of the first; logarithmic (where all are above zero) and linear."""
    points = [(c.value, max(d.value, SMALLEST)) for c, d in zip(data.column(x), data.column(y), strict=True)]
    names = list(dict.fromkeys(data.names))
    views = []
    for scale, make in (("Log", logarithmic), ("Linear", linear)):
        zero = 0.0 if scale == "Linear" else math.inf
        across, up = (make(min(zero, *values), max(values)) for values in zip(*points, strict=True))
        xs, ys = across.placed(WIDTH - RIGHT - 6, _left(up) + 6), up.placed(TOP + 6, HEIGHT - BOTTOM - 6)
        drawn = _frame(up, ys, y_name, x_name, [(_short(t), xs(t)) for t in across.ticks])
        spots = [(xs(u), ys(v)) for u, v in points]
        for name, mark, (u, v) in zip(data.names, data.marks, spots, strict=True):
            drawn += f'<circle class="ring" cx="{u:.1f}" cy="{v:.1f}" r="9"/>' if mark else ""
            drawn += _shape(names.index(name), u, v)
        views.append(View(scale, drawn, spots))
    legend = "".join(  # beside the plot: inside, its shapes would look like points
        f'<li><svg viewBox="0 0 14 14" aria-hidden="true">{_shape(i, 7, 7)}</svg>{plain(name)}</li>'
        for i, name in enumerate(names)
    )
    return _figure(data, views, "xy", legend=f'<ul class="key">{legend}</ul>')


def grid(data: ChartData, count: int) -> str:
    """A square of ``count`` x ``count`` cells, each as dark as its share of the largest; empty ones have a dash.

    The first two columns are the numbers of a pair, in either order the same, and the third is its share.
    """
    side = (WIDTH - 60) / count
    edge = count * side
    shades, dashes, spots = [""] * (SHADES + 1), "", []
    for i, j, value in data.rows:
        for row, column in {(i - 1, j - 1), (j - 1, i - 1)}:
            x, y = 40 + column * side, 10 + row * side
            if value.value > 0:  # cells of one shade are one path
                k = math.ceil(SHADES * math.sqrt(value.value))
                shades[k] += f"M{x:.1f} {y:.1f}h{side:.1f}v{side:.1f}h-{side:.1f}z"
            else:
                dashes += f"M{x + side / 4:.1f} {y + side / 2:.1f}h{side / 2:.1f}"
        spots.append((40 + (j - 0.5) * side, 10 + (i - 0.5) * side))
    drawn = "".join(
        f'<path class="ba" fill-opacity="{s / SHADES:.2f}" d="{cells}"/>' for s, cells in enumerate(shades) if cells
    )
    drawn += f'<path class="m" d="{dashes}"/><path class="axis" d="M40 10h{edge:.1f}v{edge:.1f}h-{edge:.1f}z"/>'
    drawn += (
        f'<text x="34" y="22" text-anchor="end">1</text><text x="34" y="{edge + 8}" text-anchor="end">{count}</text>'
    )
    drawn += f'<text x="{40 + edge / 2:.0f}" y="{edge + 28}" text-anchor="middle">block</text>'
    return _figure(data, [View("Linear", drawn, spots)], "xy", edge + 36)


# -- what they share ---------------------------------------------------------------------------------------------------


def _figure(data: ChartData, views: Sequence[View], nearest: str, height: float = HEIGHT, legend: str = "") -> str:
    title, tools, layers = plain(data.title), "", ""
    for i, view in enumerate(views):
        pressed = "true" if i == 0 else "false"
        tools += f'<button type="button" data-view="{view.scale}" aria-pressed="{pressed}">{view.scale}</button>'
        where = " ".join("-" if spot is None else "{:.1f},{:.1f}".format(*spot) for spot in view.spots)
        layers += f'<g data-view="{view.scale}" data-spots="{where}"{" hidden" if i else ""}>{view.drawn}</g>'
    switch = f'<div class="tools" role="group" aria-label="Scale: {title}">{tools}</div>' if len(views) > 1 else ""
    count = sum(spot is not None for spot in views[0].spots)
    return (
        f'<figure class="chart" id="chart-{data.key}"><figcaption><h3>{title}</h3><p>{plain(data.text)}</p>'
        f'</figcaption>{switch}{legend}<div class="plot" role="slider" tabindex="0" aria-label="{title}: points" '
        f'aria-valuemin="1" aria-valuemax="{count}" aria-valuenow="1" data-nearest="{nearest}">'
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" aria-hidden="true" focusable="false">{layers}'
        f'<circle class="cursor" r="6" cx="-20" cy="-20"/></svg></div><p class="readout"></p>'
        f"<details><summary>As a table</summary>{data.table()}</details></figure>"
    )


def _frame(
    axis: Axis, ys: Callable[[float], float], y_name: str, x_name: str, ticks: Sequence[tuple[str, float]]
) -> str:
    left, out = _left(axis), ""
    taken: list[float] = []
    for tick in sorted(axis.ticks, key=abs):  # zero first: what is too near to another goes without a number
        y = ys(tick)
        out += f'<path class="rule" d="M{left} {y:.1f}H{WIDTH - RIGHT}"/>'
        if all(abs(y - other) > 1.25 * LETTER for other in taken):
            out += f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
            taken.append(y)
    out += f'<path class="axis" d="M{left} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
    out += _numbers(ticks, left, 30, HEIGHT - BOTTOM + 15)
    out += f'<text x="{(left + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{plain(x_name)}</text>'
    middle = (HEIGHT - BOTTOM + TOP) / 2
    turned = f'transform="rotate(-90 15 {middle:.0f})"'
    return out + f'<text x="15" y="{middle:.0f}" text-anchor="middle" {turned}>{plain(y_name)}</text>'


def _left(axis: Axis) -> int:
    """Where the plot begins: after the axis title and the widest number beside it."""
    return TITLE + 10 + math.ceil(max((_width(_short(tick)) for tick in axis.ticks), default=0.0))


def _width(text: str) -> float:
    """What a text takes at most; fonts differ, so that a wide one is meant."""
    return LETTER * sum(
        0.33 if c in ". " else 0.42 if c in "⁻⁰¹²³⁴⁵⁶⁷⁸⁹" else 0.86 if c in "−×MG" else 0.64 for c in text
    )


def _numbers(ticks: Sequence[tuple[str, float]], left: float, near: float, y: float) -> str:
    """Numbers below an axis, from the left; those within ``near`` of its ends stay inside, those without room go."""
    out, end = "", -math.inf
    for text, x in ticks:
        wide = _width(text)
        anchor = "start" if x < left + near else "end" if x > WIDTH - RIGHT - near else "middle"
        begin = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * wide
        if begin > end:
            out += f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
            end = begin + wide
    return out


def _shape(kind: int, x: float, y: float, size: float = SHAPE_SIZE) -> str:
    path = SHAPES[kind % len(SHAPES)]
    return f'<path class="da" transform="translate({x:.1f} {y:.1f}) scale({size})" d="{path}"/>'


def _short(value: float) -> str:
    """A tick's label: 1200 as 1.2k, so that it fits beside the axis."""
    sizes = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
    size, unit = next(((s, u) for s, u in sizes if abs(value) >= s), (1.0, "")) if abs(value) < 1e12 else (1.0, "")
    return re.sub("^(−?)1 × ", r"\1", fixed(value / size)) + unit
