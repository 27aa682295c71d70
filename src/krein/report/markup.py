"""Elements of the page: numbers that are explained, tables that sort. Whatever comes from a user is escaped here.

A number is a button: it takes the focus, and what it means is a text of the glossary it is described by. Its exact
value stands in ``data-value``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Any, NamedTuple

from krein.errors import si

__all__ = [
    "Cell",
    "Column",
    "cell",
    "facts",
    "fixed",
    "in_bytes",
    "number",
    "plain",
    "share",
    "table",
    "text_of",
    "with_interval",
]

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
Column = tuple[str, str]  # the key of its meaning, and its heading


class Cell(NamedTuple):
    """A value of a table that is not shown in the usual way, or has an interval."""

    value: Any
    shown: str
    low: float | None = None
    high: float | None = None


def fixed(value: float) -> str:
    """A number with four digits, a true minus, and no letter e."""
    if not math.isfinite(value):
        return "not finite"
    text = f"{value:.4g}"
    if "e" in text:
        digits, power = text.split("e")
        text = f"{digits} × 10{str(int(power)).translate(RAISED)}"
    return text.replace("-", "−")


def text_of(value: Any) -> str:
    """A value in the usual way: whole numbers in groups of three digits, others with four digits, None as nothing."""
    if isinstance(value, float):
        return fixed(value)
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def cell(value: Any) -> Cell:
    """A value as a cell, shown in the usual way."""
    return value if isinstance(value, Cell) else Cell(value, text_of(value))


def share(value: float) -> str:
    """A share in percent."""
    return f"{fixed(float(f'{100 * value:.3g}'))} %"


def in_bytes(value: float) -> Cell:
    """A number of bytes in a table."""
    return Cell(value, si(value))


def with_interval(estimate: Any, show: Callable[[float], str] = fixed) -> Cell:
    """An `Estimate`, shown with its interval where it has one."""
    value, low, high = estimate.value, estimate.low, estimate.high
    interval = "" if low == value == high else f" ({show(low)} to {show(high)})"
    return Cell(value, show(value) + interval, low, high)


def plain(text: Any) -> str:
    """Text on one line, escaped for content and attributes alike."""
    return escape(" ".join(str(text).split()))


def number(key: str, value: Any, text: str | None = None) -> str:
    """A value that says what it is when it is pointed at or has the focus; ``text`` is how it is shown."""
    found = cell(value) if text is None else Cell(value, text)
    interval = "" if found.low is None else f' data-low="{plain(found.low)}" data-high="{plain(found.high)}"'
    return (
        f'<button type="button" class="n" data-key="{key}" data-value="{plain(found.value)}"{interval} '
        f'aria-describedby="why-{key}">{plain(found.shown)}</button>'
    )


def facts(items: Sequence[tuple[str, str]]) -> str:
    """(name, element) as a list of terms; names are escaped, elements are not."""
    return "<dl>" + "".join(f"<div><dt>{plain(name)}</dt><dd>{value}</dd></div>" for name, value in items) + "</dl>"


def table(caption: str, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> str:
    """A table that sorts by any column, of values or `Cell`; cells whose text is rounded carry the value."""
    head = "".join(
        f'<th scope="col"><button type="button" class="sort" aria-describedby="why-{key}">{plain(name)}</button></th>'
        for key, name in columns
    )
    body = ""
    for row in rows:
        body += "<tr>"
        for value, text, *_ in map(cell, row):
            kind = ' class="t"' if isinstance(value, str) else ""
            exact = "" if value is None or str(value) == text else f' data-value="{plain(value)}"'
            body += f"<td{kind}{exact}>{plain(text)}</td>"
        body += "</tr>"
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="Table: {plain(caption)}"><table>'
        f"<caption>{plain(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
