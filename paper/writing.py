"""What reports are made of: Markdown tables, numbers as people read them, means over rows of a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

__all__ = ["exponent", "geometric_mean", "mean_of", "number", "table"]

Row = Mapping[str, str]


def table(heading: Sequence[str], rows: Iterable[Sequence[str]], left: int = 2) -> str:
    """A Markdown table; the first ``left`` columns hold words, the others figures."""
    marks = ["---"] * left + ["---:"] * (len(heading) - left)
    return "\n".join(f"| {' | '.join(line)} |" for line in (heading, marks, *rows))


def number(value: float, digits: int = 3) -> str:
    """Three significant digits; an empty cell where there is no figure."""
    return "" if math.isnan(value) else f"{value:.{digits}g}"


def mean_of(rows: Iterable[Row], column: str) -> float:
    """The mean of a column where it has figures; NaN where it has none."""
    found = [float(row[column]) for row in rows if row[column] not in ("", "nan")]
    return float(np.mean(found)) if found else math.nan


def geometric_mean(values: Iterable[float]) -> float:
    """Of the figures among ``values``, all of them above 0."""
    found = [v for v in values if not math.isnan(v)]
    return float(np.exp(np.mean(np.log(found)))) if found else math.nan


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """p of the least-squares fit y ~ x^p on logarithms."""
    if len(set(x)) < 2:
        return math.nan
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
