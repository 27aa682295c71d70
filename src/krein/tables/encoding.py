"""Columns of numbers and categories to rows of numbers, the same way for training and new rows.

In: a `Frame`. Out: an (n, d) array. Numbers are centred and scaled, missing ones replaced by the median; a column of
text becomes one column per category. What was done is said in `notes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array
from krein.errors import InputError
from krein.tables.reading import Frame, is_text

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

    def odd(self, column: Any) -> int:
        """How many values are missing."""
        return int(np.isnan(column).sum())

    @property
    def remedy(self) -> str:
        """What is done to those."""
        return f"missing in {{}} of {{}} rows, replaced by the median {self.fill:g}"

    def encode(self, column: Any) -> Array:
        """The column as (n, 1)."""
        if is_text(column):
            raise InputError(
                f"Column {self.name!r} held numbers when the model was fitted; here it holds text, as "
                f"{_first(word for word in column if word and not _is_number(word))!r}."
            )
        _finite(self.name, column)
        filled = np.where(np.isnan(column), self.fill, column)
        return np.asarray((filled - self.centre) / self.scale)[:, None]


@dataclass(frozen=True)
class Categories:
    """A column of text: 1 in the column of its category, 0 elsewhere; categories not seen before are 0 everywhere."""

    name: str
    values: tuple[str, ...]

    remedy: ClassVar[str] = "{} of {} rows hold none of the categories the model was fitted on"

    def odd(self, column: Any) -> int:
        """How many values are none of the categories."""
        known = set(self.values)
        return sum(word not in known for word in self._words(column))

    def encode(self, column: Any) -> Array:
        """The column as (n, categories)."""
        return np.asarray(self._words(column)[:, None] == np.array(self.values, dtype=object), dtype=np.float64)

    def _words(self, column: Any) -> Any:
        return column if is_text(column) else np.array([f"{v:.15g}" if v == v else "" for v in column], dtype=object)


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

    def odd(self, frame: Frame) -> dict[str, int]:
        """How many values of each column are missing, or none of the categories; 0 for most."""
        return {column.name: column.odd(frame[column.name]) for column in self.columns}

    def told(self, odd: dict[str, int], n: int) -> list[str]:
        """What is to be said of those in ``n`` rows."""
        return [f"{c.name}: {c.remedy.format(odd[c.name], n)}" for c in self.columns if odd[c.name]]

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
            numbers = _about_numbers(column)
            if len(found) > MOST:
                raise InputError(
                    f"Column {name!r} holds {len(found)} different texts, more than the {MOST} categories that can "
                    f"become columns{numbers}. Leave it out with --drop {name}"
                    + ("." if numbers else ", or compare the texts with --kernel edit.")
                )
            made.append(Categories(name, found))
            notes.append(f"{name}: {_about_categories(column, len(found))}{numbers}")
            continue
        _finite(name, column)
        gaps = np.isnan(column)
        if gaps.all():
            raise InputError(f"Column {name!r} is missing in every row. Leave it out with --drop {name}.")
        fill = float(np.median(column[~gaps]))
        if gaps.any():
            notes.append(f"{name}: {Numbers(name, fill, 0.0, 1.0).remedy.format(int(gaps.sum()), len(column))}")
        centre, spread = _scales(np.where(gaps, fill, column), scale)
        if spread == 0.0:
            constant.append(name)
            spread = 1.0
        made.append(Numbers(name, fill, centre, spread))
    notes += _about_constant(constant)
    if not made:
        raise InputError("No column is left to learn from, after the target and what --drop leaves out.")
    return Encoder(tuple(made), tuple(notes))


def _finite(name: str, column: Array) -> None:
    if np.isinf(column).any():
        raise InputError(f"Column {name!r} holds infinite values. Mark them as missing (empty), or drop it.")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _first(words: Iterable[str]) -> str:
    return next(iter(words))[:40]


def _about_categories(column: Any, n_different: int) -> str:
    if n_different == 1:
        return "the same text in every row, of no use"
    absent = int(np.sum(column == ""))
    told = f" (missing in {absent} row{'s' * (absent != 1)}: a category of its own)" if absent else ""
    if n_different == len(column):
        told = ", different in every row: of no use as such"
    return f"text, {n_different} categories, one column each{told}"


def _about_numbers(column: Any) -> str:
    """What makes a column of numbers one of text, if most of its values are numbers."""
    present = [word for word in column.tolist() if word]
    words = [word for word in present if not _is_number(word)]
    if not words or 2 * len(words) >= len(present):
        return ""
    return f"; {len(present) - len(words)} of its {len(present)} values are numbers, but {_first(words)!r} is not"


def _scales(column: Array, scale: str) -> tuple[float, float]:
    if scale == "none":
        return 0.0, 1.0
    if scale == "minmax":
        return float(column.min()), float(np.ptp(column))
    return float(column.mean()), float(column.std())


def _about_constant(names: Iterable[str]) -> list[str]:
    names = list(names)
    return [f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''}: constant, of no use"] if names else []
