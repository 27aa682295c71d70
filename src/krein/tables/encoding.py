"""Columns of numbers and categories to rows of numbers, the same way for training and new rows.

In: a `Frame`. Out: an (n, d) array. Missing numbers become the median of their column, then numbers are centred and
scaled. A column of text becomes one column per category. `Encoder.notes` says what was done. For `krein.Gower`, which
compares columns as they are, the rows are `MixedRows` instead. `usable_columns` leaves out columns without information,
once for all rows, so that all parts of a cross-validation have the same columns.

The learned values are plain dataclasses rather than scikit-learn's transformers, so that a model file can be loaded
without executing anything in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import InputError
from krein.kernels.mixed_rows import Column as MixedColumn
from krein.kernels.mixed_rows import MixedRows
from krein.tables.reading import Column, Frame, is_text, number_in

__all__ = [
    "SCALES",
    "Categories",
    "Encoder",
    "Numbers",
    "encoder_for",
    "has_text_or_missing",
    "mixed_encoder_for",
    "usable_columns",
]

SCALES = ("standard", "minmax", "none")
# The MAX_CATEGORIES most frequent values of a text column become columns; the others are 0 in each of them.
MAX_CATEGORIES = 100
# What becomes of a missing value where columns are compared as they are, in words.
NOT_COMPARED = "left out where two rows are compared"


@dataclass(frozen=True)
class Numbers:
    """A numeric column: missing values become ``fill``, then x becomes (x - centre) / scale."""

    name: str
    fill: float
    centre: float
    scale: float

    @property
    def replacement(self) -> str:
        """What becomes of a missing value, in words."""
        return f"replaced by the median {self.fill:g}"


@dataclass(frozen=True)
class Categories:
    """A text column: 1 in the column of its category, 0 elsewhere; an unknown category is 0 everywhere."""

    name: str
    values: tuple[str, ...]
    replacement: ClassVar[str] = "taken for none of the categories"

    def codes(self, column: Column) -> Indices:
        """Return the position of each value among the categories, -1 for an unknown one."""
        positions = {value: i for i, value in enumerate(self.values)}
        return np.array([positions.get(word, -1) for word in self.words(column)], dtype=np.intp)

    def words(self, column: Column) -> list[str]:
        """Return the values as text, "" where they are missing."""
        return column.tolist() if is_text(column) else [f"{v:.15g}" if v == v else "" for v in column]


@dataclass(frozen=True)
class Encoder:
    """How each column becomes numbers."""

    columns: tuple[Numbers | Categories, ...]
    notes: tuple[str, ...] = ()
    mixed: bool = False  # whether columns stay as they are, with missing values

    def __call__(self, frame: Frame) -> Any:
        """Return rows of numbers, or mixed rows; the frame must have the columns of the fit, in any order."""
        there = set(frame.names)
        missing = [c.name for c in self.columns if c.name not in there]
        if missing:
            raise InputError(
                f"The file lacks {len(missing)} of the {len(self.columns)} columns the model was fitted on: "
                f"{', '.join(missing[:8])}. It has {', '.join(frame.names[:8])}."
            )
        if self.mixed:
            return self._mixed_rows(frame)
        width, place = len(self.names), 0
        X = np.zeros((len(frame), width))
        for column in self.columns:
            if isinstance(column, Numbers):
                x = _numbers_of(frame, column.name)
                X[:, place] = (np.where(np.isnan(x), column.fill, x) - column.centre) / column.scale
                place += 1
            else:
                codes = column.codes(frame[column.name])
                known = np.flatnonzero(codes >= 0)
                X[known, place + codes[known]] = 1.0
                place += len(column.values)
        return X

    def _mixed_rows(self, frame: Frame) -> MixedRows:
        """Return the columns as they are: numbers, and text as categories, some of which the fit may not have had."""
        values = np.empty((len(frame), len(self.columns)))
        columns = []
        for i, column in enumerate(self.columns):
            if isinstance(column, Numbers):
                values[:, i] = _numbers_of(frame, column.name)
                columns.append(MixedColumn(column.name, "number"))
                continue
            words = column.words(frame[column.name])
            levels = dict.fromkeys(value for value in (*column.values, *words) if value)
            codes = {level: float(code) for code, level in enumerate(levels)}
            values[:, i] = [codes.get(word, np.nan) for word in words]
            columns.append(MixedColumn(column.name, "category", tuple(levels)))
        return MixedRows(values, tuple(columns))

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each column of the result."""
        if self.mixed:
            return tuple(c.name for c in self.columns)
        return tuple(
            name
            for c in self.columns
            for name in ((c.name,) if isinstance(c, Numbers) else (f"{c.name}={v or 'missing'}" for v in c.values))
        )

    def count_unknown(self, frame: Frame) -> Counter[tuple[str, str]]:
        """Return how many values of each column are "missing" or "unknown": keys are the column and that word.

        Missing text is not counted where the fit had it too and it is a category of its own.
        """
        counts: Counter[tuple[str, str]] = Counter()
        for column in self.columns:
            if isinstance(column, Numbers):
                counts[column.name, "missing"] = int(np.isnan(_numbers_of(frame, column.name)).sum())
            else:
                words = Counter(column.words(frame[column.name]))
                for value in column.values:
                    del words[value]
                counts[column.name, "missing"] = words.pop("", 0)
                counts[column.name, "unknown"] = words.total()
        return +counts

    def describe_unknown(self, counts: Counter[tuple[str, str]], n_rows: int) -> list[str]:
        """Return a sentence for each count of `count_unknown` in ``n_rows`` rows."""
        lines = []
        for column in self.columns:
            if n := counts[column.name, "missing"]:
                lines.append(_about_missing(column.name, n, n_rows, NOT_COMPARED if self.mixed else column.replacement))
            if n := counts[column.name, "unknown"]:
                lines.append(f"{column.name}: {n} of {n_rows} rows hold none of the categories that the model knows")
        return lines


def usable_columns(frame: Frame) -> tuple[Frame, tuple[str, ...]]:
    """Return the frame without columns of no use, and a note about each of these.

    Of no use are columns that are missing in every row, and text that is different in every row: it would make all rows
    equally unlike each other.
    """
    if not frame.names:
        raise InputError("No column is left to learn from, after the target and what --drop leaves out.")
    notes = {}
    for name, column in zip(frame.names, frame.columns, strict=True):
        present = [word for word in column if word] if is_text(column) else column[~np.isnan(column)]
        if not len(present):
            notes[name] = f"{name}: missing in every row, left out"
        elif is_text(column) and 1 < len(present) == len(set(present)):
            missing = f", missing in {len(column) - len(present)}" if len(present) < len(column) else ""
            notes[name] = f"{name}: text, different in every row{missing}, left out{_about_numbers(column)}"
    if len(notes) == len(frame.names):
        raise InputError(
            "No column is left to learn from. "
            + "; ".join([*notes.values()][:5])
            + ". To compare such texts with each other, use --kernel edit or another kernel of texts."
        )
    return frame.without(notes), tuple(notes.values())


def has_text_or_missing(frame: Frame) -> bool:
    """Return whether a column holds text or a missing value."""
    return any(is_text(column) or bool(np.isnan(column).any()) for column in frame.columns)


def mixed_encoder_for(frame: Frame) -> Encoder:
    """Return the encoder that leaves the columns of ``frame`` as they are."""
    columns: list[Numbers | Categories] = []
    notes = []
    for name, column in zip(frame.names, frame.columns, strict=True):
        text = is_text(column)
        missing = column == "" if text else np.isnan(column)
        columns.append(Categories(name, tuple(sorted({*column} - {""}))) if text else Numbers(name, 0.0, 0.0, 1.0))
        if missing.any():
            notes.append(_about_missing(name, int(missing.sum()), len(frame), NOT_COMPARED))
    return Encoder(tuple(columns), tuple(notes), mixed=True)


def encoder_for(frame: Frame, scale: str = "standard") -> Encoder:
    """Return the encoder fitted to ``frame``.

    Parameters
    ----------
    frame : Frame
    scale : {"standard", "minmax", "none"}, default="standard"
        Scale numbers to mean 0 and standard deviation 1, to [0, 1], or not at all.
    """
    columns: list[Numbers | Categories] = []
    notes: list[str] = []
    constant: list[str] = []
    for name, values in zip(frame.names, frame.columns, strict=True):
        if is_text(values):
            categories, note = _categories(name, values)
            columns.append(categories)
            notes.append(note)
            continue
        x = _numbers_of(frame, name)
        missing = np.isnan(x)
        fill = 0.0 if missing.all() else float(np.median(x[~missing]))
        x = np.where(missing, fill, x)
        centre, spread = _centre_and_spread(x, scale)
        columns.append(Numbers(name, fill, centre, spread or 1.0))
        if missing.any():
            notes.append(_about_missing(name, int(missing.sum()), len(frame), columns[-1].replacement))
        if spread == 0.0:
            constant.append(name)
    if constant:
        notes.append(f"{', '.join(constant[:5])}{' ...' if len(constant) > 5 else ''}: constant, of no use")
    return Encoder(tuple(columns), tuple(notes))


def _numbers_of(frame: Frame, name: str) -> Array:
    """Return a column that has to be numeric, and finite or missing."""
    column = frame[name]
    if is_text(column):
        word = next((word for word in column if word and number_in(word) is None), column[0])
        raise InputError(
            f"Column {name!r} held numbers when the model was fitted; here it holds text, as {word[:40]!r}."
        )
    if np.isinf(column).any():
        raise InputError(f"Column {name!r} holds infinite values. Mark them as missing (empty), or drop it.")
    return column


def _centre_and_spread(x: Array, scale: str) -> tuple[float, float]:
    """Return what is subtracted from a column and what divides it, 0 for a constant one."""
    low, high = float(x.min()), float(x.max())
    if scale == "minmax":
        return low, high - low
    return (0.0, 1.0) if scale == "none" else (float(x.mean()), 0.0 if low == high else float(x.std()))


def _categories(name: str, column: Column) -> tuple[Categories, str]:
    """Return the categories of a text column and a note about them."""
    counts = Counter(column.tolist())
    values = [value for value, _ in counts.most_common(MAX_CATEGORIES)]
    n_missing = counts[""]
    note = f"text, {len(counts)} categories, one column each"
    if len(counts) == 1:
        note = "the same text in every row, of no use"
    elif len(counts) > MAX_CATEGORIES:
        values = [value for value in values if counts[value] > 1]
        rest = len(column) - sum(counts[value] for value in values)
        note = (
            f"text, {len(counts)} categories; one column for each of the {len(values)} most frequent, none for the "
            f"others, in {rest} of {len(column)} rows"
        )
    elif n_missing:
        note += f" (missing in {n_missing} row{'s' * (n_missing != 1)}: a category of its own)"
    return Categories(name, tuple(sorted(values))), f"{name}: {note}{_about_numbers(column)}"


def _about_missing(name: str, n_missing: int, n_rows: int, replacement: str) -> str:
    return f"{name}: missing in {n_missing} of {n_rows} rows, {replacement}"


def _about_numbers(column: Column) -> str:
    """Return why a column is text if most of its values are numbers, otherwise nothing."""
    present = [word for word in column.tolist() if word]
    words = [word for word in present if number_in(word) is None]
    if not words or 2 * len(words) >= len(present):
        return ""
    return f"; {len(present) - len(words)} of its {len(present)} values are numbers, but {words[0][:40]!r} is not"
