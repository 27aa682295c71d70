"""Elements of the page: numbers that are explained, tables that sort. Whatever comes from a user is escaped here.

A number is a button: it takes the focus, and what it means is a text of the glossary it is described by. Its exact
value stands in ``data-value``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

__all__ = ["Cell", "facts", "fixed", "number", "plain", "share", "spoken", "table"]

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
Cell = tuple[Any, str]  # the value, and how it is shown


def fixed(value: float) -> str:
    """A number with four digits, a true minus, and no letter e."""
    if not math.isfinite(value):
        return "not finite"
    text = f"{value:.4g}"
    if "e" in text:
        digits, power = text.split("e")
        text = f"{digits} × 10{str(int(power)).translate(RAISED)}"
    return text.replace("-", "−")


def share(value: float) -> str:
    """A share in percent."""
    return f"{fixed(float(f'{100 * value:.3g}'))} %"


def spoken(estimate: Any, show: Any = fixed) -> str:
    """An `Estimate` with its interval, where it has one."""
    if estimate.low == estimate.value == estimate.high:
        return str(show(estimate.value))
    return f"{show(estimate.value)} ({show(estimate.low)} to {show(estimate.high)})"


def plain(text: Any) -> str:
    """Text on one line, escaped for content and attributes alike."""
    return escape(" ".join(str(text).split()))


def number(key: str, value: Any, shown: str, low: Any = None, high: Any = None) -> str:
    """A value that says what it is when it is pointed at or has the focus."""
    interval = "" if low is None else f' data-low="{plain(low)}" data-high="{plain(high)}"'
    return (
        f'<button type="button" class="n" data-key="{key}" data-value="{plain(value)}"{interval} '
        f'aria-describedby="why-{key}">{plain(shown)}</button>'
    )


def facts(items: Sequence[tuple[str, str]]) -> str:
    """(name, element) as a list of terms; names are escaped, elements are not."""
    return "<dl>" + "".join(f"<div><dt>{plain(name)}</dt><dd>{value}</dd></div>" for name, value in items) + "</dl>"


def table(caption: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Cell]]) -> str:
    """A table of (key, heading) columns that sorts by any of them; cells whose text is rounded carry the value."""
    head = "".join(
        f'<th scope="col"><button type="button" class="sort" aria-describedby="why-{key}">{plain(name)}</button></th>'
        for key, name in columns
    )
    body = []
    for row in rows:
        cells = []
        for value, shown in row:
            kind = ' class="t"' if isinstance(value, str) else ""
            exact = "" if str(value) == shown else f' data-value="{plain(value)}"'
            cells.append(f"<td{kind}{exact}>{plain(shown)}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="Table: {plain(caption)}"><table>'
        f"<caption>{plain(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )
