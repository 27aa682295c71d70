"""Columns of numbers and categories to rows of numbers, the same way for training and new rows.

In: a `Frame`. Out: an (n, d) array. Numbers are centred and scaled, missing ones replaced by the median; a column of
text becomes one column per category. What was done is said in `notes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.arrays import Array
from krein.errors import InputError
from krein.reading import Frame, is_text

__all__ = ["SCALES", "Categories", "Encoder", "Numbers", "encoder_for"]

SCALES = ("standard", "minmax", "none")
MOST = 100  # categories of a column


@dataclass(frozen=True)
class Numbers:
    """A numeric column: what a missing value becomes, then (value - centre) / scale."""

    name: str
    fill: float
    centre: float
    scale: float

    def encode(self, column: Any) -> Array:
        """The column as (n, 1)."""
        if is_text(column):
            raise InputError(f"Column {self.name!r} held numbers when the model was fitted; here it holds text.")
        filled = np.where(np.isnan(column), self.fill, column)
        return np.asarray((filled - self.centre) / self.scale)[:, None]


@dataclass(frozen=True)
class Categories:
    """A column of text: 1 in the column of its category, 0 elsewhere; categories not seen before are 0 everywhere."""

    name: str
    values: tuple[str, ...]

    def encode(self, column: Any) -> Array:
        """The column as (n, categories)."""
        words = column if is_text(column) else np.array([f"{v:g}" if v == v else "" for v in column], dtype=object)
        return np.asarray(words[:, None] == np.array(self.values, dtype=object), dtype=np.float64)


@dataclass(frozen=True)
class Encoder:
    """How each column becomes numbers."""

    columns: tuple[Numbers | Categories, ...]
    notes: tuple[str, ...] = ()

    def __call__(self, frame: Frame) -> Array:
        """Rows of numbers; the frame must have the columns of the fit, in whatever order."""
        missing = [c.name for c in self.columns if c.name not in frame.names]
        if missing:
            raise InputError(
                f"The file lacks {len(missing)} of the {len(self.columns)} columns the model was fitted on: "
                f"{', '.join(missing[:8])}. It has {', '.join(frame.names[:8])}."
            )
        return np.hstack([column.encode(frame[column.name]) for column in self.columns])

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each column of the result."""
        return tuple(
            name
            for c in self.columns
            for name in ((c.name,) if isinstance(c, Numbers) else (f"{c.name}={v or 'missing'}" for v in c.values))
        )


def encoder_for(frame: Frame, scale: str = "standard") -> Encoder:
    """The encoder fitted to ``frame``: "standard" to mean 0 and spread 1, "minmax" to [0, 1], "none" as it is."""
    made: list[Numbers | Categories] = []
    notes: list[str] = []
    constant = []
    for name, column in zip(frame.names, frame.columns, strict=True):
        if is_text(column):
            found = tuple(sorted(set(column.tolist())))
            if len(found) > MOST:
                raise InputError(
                    f"Column {name!r} holds {len(found)} different texts, more than the {MOST} categories that can "
                    f"become columns. Leave it out with --drop {name}, or compare the texts with --kernel edit."
                )
            made.append(Categories(name, found))
            absent = int(np.sum(column == ""))
            notes.append(
                f"{name}: text, {len(found)} categories, one column each"
                + (f" (missing in {absent} rows: a category of its own)" if absent else "")
            )
            continue
        if np.isinf(column).any():
            raise InputError(f"Column {name!r} holds infinite values. Mark them as missing (empty), or drop it.")
        gaps = np.isnan(column)
        if gaps.all():
            raise InputError(f"Column {name!r} is missing in every row. Leave it out with --drop {name}.")
        fill = float(np.median(column[~gaps]))
        if gaps.any():
            notes.append(f"{name}: missing in {int(gaps.sum())} of {len(column)} rows, replaced by the median {fill:g}")
        centre, spread = _scales(np.where(gaps, fill, column), scale)
        if spread == 0.0:
            constant.append(name)
            spread = 1.0
        made.append(Numbers(name, fill, centre, spread))
    notes += _about_constant(constant)
    if not made:
        raise InputError("No column is left to learn from, after the target and what --drop leaves out.")
    return Encoder(tuple(made), tuple(notes))


def _scales(column: Array, scale: str) -> tuple[float, float]:
    if scale == "none":
        return 0.0, 1.0
    if scale == "minmax":
        return float(column.min()), float(np.ptp(column))
    return float(column.mean()), float(column.std())


def _about_constant(names: Iterable[str]) -> list[str]:
    names = list(names)
    return [f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}: constant, of no use"] if names else []
