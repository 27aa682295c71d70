"""Charts as inline SVG, drawn here once per scale; the page's script only switches, points and reads aloud.

Every chart is one stop of the tab key, a slider over its points: arrows move, the point's label is its value's text.
In: numbers and labels. Out: a ``figure`` element with its scales, its read-out and its table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from krein.report.axes import Axis, linear, logarithmic, symmetric
from krein.report.markup import fixed, plain

__all__ = ["Bar", "Spot", "bars", "grid", "histogram", "scatter", "stems"]

WIDTH, HEIGHT = 420, 260
RIGHT, TOP, BOTTOM = 10, 12, 40
LETTER = 15  # px: the page's largest text inside a chart, on a phone
TITLE = 22  # what the axis title takes at the left edge
ROW = 28  # height of a bar with its label
SHADES = 20
SHAPES = ("circle", "square", "diamond", "triangle", "cross")
View = tuple[str, str, list[tuple[float, float]]]  # name, drawing, where its points are


@dataclass(frozen=True)
class Bar:
    """A row of a chart: a value with its interval and a mark to compare it with."""

    name: str
    value: float
    label: str
    low: float | None = None
    high: float | None = None
    mark: float | None = None
    strong: bool = False


@dataclass(frozen=True)
class Spot:
    """A point of a scatter chart; ``series`` have shapes of their own."""

    x: float
    y: float
    series: str
    label: str
    strong: bool = False


def stems(key: str, title: str, text: str, values: Any, labels: Sequence[str], table: str, form: str) -> str:
    """Values side by side, each a line from zero, those below in another colour; linear, and logarithmic both ways."""
    m, views = len(values), []
    low, high = min(0.0, float(min(values))), max(0.0, float(max(values)))
    for name, axis in (("Linear", linear(low, high, snug=True)), ("Log", symmetric(low, high))):
        ys, left = axis.placed(TOP, HEIGHT - BOTTOM), _left(axis)
        step = (WIDTH - left - RIGHT) / max(1, m)
        spots = [(left + (i + 0.5) * step, ys(float(v))) for i, v in enumerate(values)]
        zero = ys(0.0)
        up = "".join(f"M{x:.1f} {zero:.1f}V{y:.1f}" for (x, y), v in zip(spots, values, strict=True) if v >= 0)
        down = "".join(f"M{x:.1f} {zero:.1f}V{y:.1f}" for (x, y), v in zip(spots, values, strict=True) if v < 0)
        thick = f'stroke-width="{max(0.8, min(6.0, 0.7 * step)):.2f}"'
        drawn = _frame(axis, "eigenvalue", "place, the largest first", [(1, spots[0][0]), (m, spots[-1][0])])
        drawn += f'<path class="a" {thick} d="{up}"/><path class="b" {thick} d="{down}"/>'
        drawn += f'<path class="zero" d="M{left} {zero:.1f}H{WIDTH - RIGHT}"/>'
        views.append((name, drawn, spots))
    return _figure(key, title, text, views, labels, table, "x", form=form)


def histogram(
    key: str, title: str, text: str, counts: Any, edges: Any, labels: Sequence[str], table: str,
    names: tuple[str, str] = ("pairs", "similarity"),
) -> str:  # fmt: skip
    """Counts between edges; linear and logarithmic."""
    views = []
    most = float(max(counts))
    across = Axis(float(edges[0]), float(edges[-1]), lambda v: v, ())
    for name, axis in (("Linear", linear(0.0, most)), ("Log", symmetric(0.0, most, 1.0))):
        xs, ys = across.placed(WIDTH - RIGHT, _left(axis)), axis.placed(TOP, HEIGHT - BOTTOM)
        ticks = [(float(e), xs(float(e))) for e in (edges[0], edges[len(edges) // 2], edges[-1])]
        drawn = _frame(axis, *names, ticks)
        spots = []
        for i, count in enumerate(counts):
            x0, x1, y = xs(float(edges[i])), xs(float(edges[i + 1])), ys(float(count))
            spots.append(((x0 + x1) / 2, y))
            if count:
                kind = "bb" if edges[i + 1] <= 0 else "ba"
                wide, tall = max(0.5, x1 - x0 - 0.6), HEIGHT - BOTTOM - y
                drawn += f'<rect class="{kind}" x="{x0:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}"/>'
        views.append((name, drawn, spots))
    return _figure(key, title, text, views, labels, table, "x")


def bars(
    key: str,
    title: str,
    text: str,
    rows: Sequence[Bar],
    unit: str,
    table: str,
    *,
    log: bool = False,
    dots: bool = False,
) -> str:
    """Rows one below the other: bars from zero, or dots with intervals on an axis of their own range."""
    seen = [v for r in rows for v in (r.value, r.low, r.high, r.mark) if v is not None]
    low = min(seen) if dots else min(0.0, *seen)
    height = TOP + ROW * 1.45 * len(rows) + BOTTOM
    axes = [("Linear", linear(low, max(seen)))]
    if log and min(seen) > 0:
        axes.append(("Log", logarithmic(min(seen), max(seen))))
    views = []
    for name, axis in axes:
        xs = axis.placed(WIDTH - RIGHT, 12)
        drawn = _bottom(axis, xs, unit, height)
        start = xs(max(axis.low, min(0.0, axis.high)) if name == "Linear" else axis.low)
        spots = []
        for i, row in enumerate(rows):
            y, x = TOP + ROW * 1.45 * i + ROW, xs(row.value)
            weight = ' font-weight="700"' if row.strong else ""
            drawn += f'<text x="12" y="{y - 11:.1f}"{weight}>{plain(row.name)}</text>'
            if dots:
                drawn += _shape("circle", x, y, 5 if row.strong else 4, "da")
            else:
                wide = max(0.5, abs(x - start))
                drawn += f'<rect class="ba" x="{min(x, start):.1f}" y="{y - 6:.1f}" width="{wide:.1f}" height="12"/>'
            if row.low is not None and row.high is not None and row.high > row.low:
                a, b = xs(max(row.low, axis.low)), xs(min(row.high, axis.high))
                drawn += f'<path class="w" d="M{a:.1f} {y - 4:.1f}v8M{a:.1f} {y:.1f}H{b:.1f}M{b:.1f} {y - 4:.1f}v8"/>'
            if row.mark is not None:
                drawn += f'<path class="m" d="M{xs(row.mark):.1f} {y - 9:.1f}v18"/>'
            spots.append((x, y))
        views.append((name, drawn, spots))
    return _figure(key, title, text, views, [r.label for r in rows], table, "y", height)


def scatter(key: str, title: str, text: str, spots: Sequence[Spot], x_name: str, y_name: str, table: str) -> str:
    """Points by two numbers, one shape per series; logarithmic (where all are above zero) and linear."""
    xs_seen, ys_seen = [s.x for s in spots], [max(s.y, 1e-16) for s in spots]
    names = list(dict.fromkeys(s.series for s in spots))
    views = []
    for name, make in (("Log", logarithmic), ("Linear", linear)):
        zero = 0.0 if name == "Linear" else math.inf
        across, up = make(min(zero, *xs_seen), max(xs_seen)), make(min(zero, *ys_seen), max(ys_seen))
        xs, ys = across.placed(WIDTH - RIGHT - 6, _left(up) + 6), up.placed(TOP + 6, HEIGHT - BOTTOM - 6)
        drawn = _frame(up, y_name, x_name, [(t, xs(t)) for t in across.ticks], ys, x_format=_short)
        placed = [(xs(s.x), ys(max(s.y, 1e-16))) for s in spots]
        for spot, (x, y) in zip(spots, placed, strict=True):
            if spot.strong:
                drawn += f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="9"/>'
            drawn += _shape(SHAPES[names.index(spot.series) % len(SHAPES)], x, y, 4.5, "da")
        views.append((name, drawn, placed))
    legend = "".join(  # beside the plot: inside, its shapes would look like points
        f'<li><svg viewBox="0 0 14 14" aria-hidden="true">{_shape(SHAPES[i % len(SHAPES)], 7, 7, 4.5, "da")}</svg>'
        f"{plain(series)}</li>"
        for i, series in enumerate(names)
    )
    return _figure(key, title, text, views, [s.label for s in spots], table, "xy", legend=legend)


def grid(key: str, title: str, text: str, shares: Any, labels: Sequence[str], table: str, form: str) -> str:
    """A square of cells, each as dark as its share of the largest is; empty ones have a dash."""
    side = (WIDTH - 60) / len(shares)
    shades, dashes, spots, c = [""] * (SHADES + 1), "", [], len(shares)
    for i, row in enumerate(shares):
        for j, value in enumerate(row):
            x, y = 40 + j * side, 10 + i * side
            spots.append((x + side / 2, y + side / 2))
            if value > 0:  # cells of one shade are one path
                shades[math.ceil(SHADES * math.sqrt(value))] += f"M{x:.1f} {y:.1f}h{side:.1f}v{side:.1f}h-{side:.1f}z"
            else:
                dashes += f"M{spots[-1][0] - side / 4:.1f} {spots[-1][1]:.1f}h{side / 2:.1f}"
    drawn = "".join(
        f'<path class="ba" fill-opacity="{s / SHADES:.2f}" d="{cells}"/>' for s, cells in enumerate(shades) if cells
    )
    drawn += f'<path class="m" d="{dashes}"/>'
    edge = c * side
    drawn += f'<path class="axis" d="M40 10h{edge:.1f}v{edge:.1f}h-{edge:.1f}z"/>'
    drawn += (
        f'<text x="34" y="22" text-anchor="end">1</text><text x="34" y="{edge + 8:.1f}" text-anchor="end">{c}</text>'
    )
    drawn += f'<text x="{40 + edge / 2:.1f}" y="{edge + 28:.1f}" text-anchor="middle">block</text>'
    return _figure(key, title, text, [("Linear", drawn, spots)], labels, table, "xy", edge + 36, form)


# -- what they share ---------------------------------------------------------------------------------------------------


def _figure(
    key: str, title: str, text: str, views: list[View], labels: Sequence[str], table: str, nearest: str,
    height: float = HEIGHT, form: str = "{}", legend: str = "",
) -> str:  # fmt: skip
    tools, layers = "", ""
    for i, (name, drawn, spots) in enumerate(views):
        pressed = "true" if i == 0 else "false"
        tools += f'<button type="button" data-view="{name}" aria-pressed="{pressed}">{name}</button>'
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        layers += f'<g data-view="{name}" data-spots="{where}"{" hidden" if i else ""}>{drawn}</g>'
    switch = f'<div class="tools" role="group" aria-label="Scale: {plain(title)}">{tools}</div>'
    said = "\n".join(plain(label) for label in labels)
    first = plain(form.replace("#", "1").replace("{}", labels[0]))
    return (
        f'<figure class="chart" id="chart-{key}"><figcaption><h3>{plain(title)}</h3><p>{plain(text)}</p></figcaption>'
        f"{switch if len(views) > 1 else ''}"
        + (f'<ul class="key">{legend}</ul>' if legend else "")
        + f'<div class="plot" role="slider" tabindex="0" aria-label="{plain(title)}: points" aria-valuemin="1" '
        f'aria-valuemax="{len(labels)}" aria-valuenow="1" aria-valuetext="{first}" data-nearest="{nearest}" '
        f'data-form="{plain(form)}" data-labels="{said}">'
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" aria-hidden="true" focusable="false">{layers}'
        f'<circle class="cursor" r="6" cx="-20" cy="-20"/></svg></div><p class="readout">{first}</p>'
        f"<details><summary>As a table</summary>{table}</details></figure>"
    )


def _frame(
    axis: Axis, y_name: str, x_name: str, x_ticks: Sequence[tuple[float, float]], ys: Any = None, x_format: Any = fixed
) -> str:
    ys, left = ys or axis.placed(TOP, HEIGHT - BOTTOM), _left(axis)
    out = ""
    taken: list[float] = []
    for tick in sorted(axis.ticks, key=abs):  # zero first: what is too near to another goes without a number
        y = ys(tick)
        out += f'<path class="rule" d="M{left} {y:.1f}H{WIDTH - RIGHT}"/>'
        if all(abs(y - other) > 1.25 * LETTER for other in taken):
            out += f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
            taken.append(y)
    out += f'<path class="axis" d="M{left} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>'
    out += _numbers([(x_format(value), x) for value, x in x_ticks], left, 30, HEIGHT - BOTTOM + 15)
    out += f'<text x="{(left + WIDTH) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{plain(x_name)}</text>'
    middle = (HEIGHT - BOTTOM + TOP) / 2
    return out + (
        f'<text x="15" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 15 {middle:.0f})">'
        f"{plain(y_name)}</text>"
    )


def _left(axis: Axis) -> int:
    """Where the plot begins: after the axis title and the widest number beside it."""
    return TITLE + 10 + math.ceil(max((_width(_short(tick)) for tick in axis.ticks), default=0.0))


def _width(text: str) -> float:
    """What a text takes at most; fonts differ, so that a wide one is meant."""
    return LETTER * sum(
        0.33 if c in ". " else 0.42 if c in "⁻⁰¹²³⁴⁵⁶⁷⁸⁹" else 0.86 if c in "−×MG" else 0.64 for c in text
    )


def _bottom(axis: Axis, xs: Any, unit: str, height: float) -> str:
    base = height - BOTTOM
    out = f'<path class="axis" d="M12 {base:.1f}H{WIDTH - RIGHT}"/>'
    out += "".join(f'<path class="rule" d="M{xs(tick):.1f} {TOP}V{base:.1f}"/>' for tick in axis.ticks)
    out += _numbers([(_short(tick), xs(tick)) for tick in axis.ticks], 12, 12, base + 15)
    return out + f'<text x="{WIDTH / 2:.0f}" y="{height - 6:.1f}" text-anchor="middle">{plain(unit)}</text>'


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


def _shape(kind: str, x: float, y: float, r: float, style: str) -> str:
    if kind == "circle":
        return f'<circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'
    paths = {
        "square": f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h-{2 * r}z",
        "diamond": f"M{x:.1f} {y - 1.3 * r:.1f}l{1.3 * r:.1f} {1.3 * r:.1f}l-{1.3 * r:.1f} {1.3 * r:.1f}"
        f"l-{1.3 * r:.1f} -{1.3 * r:.1f}z",
        "triangle": f"M{x:.1f} {y - 1.2 * r:.1f}l{1.2 * r:.1f} {2.1 * r:.1f}h-{2.4 * r:.1f}z",
        "cross": f"M{x - r:.1f} {y - r / 3:.1f}h{2 * r}v{r * 2 / 3:.1f}h-{2 * r}z",
    }
    return f'<path class="{style}" d="{paths[kind]}"/>'


def _short(value: float) -> str:
    """A tick's label: 1200 as 1.2k, so that it fits beside the axis."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return fixed(value / size) + unit if abs(value) < 1e12 else _power(value)
    return _power(value)


def _power(value: float) -> str:
    return re.sub("^(−?)1 × ", r"\1", fixed(value))
