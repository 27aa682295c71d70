"""Rows of mixed columns: numbers, categories, ordered categories, dates. A data frame in, a collection of objects out.

In: a data frame of pandas, polars or pyarrow, a 2-D array, or a list of rows. Out: `MixedRows`, one float array with
NaN for missing values, and a description of each column. Nothing is learned here, so new rows are read as those of the
fit are. `krein.Gower` compares such rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from numbers import Number
from typing import Any

import numpy as np

from krein.arrays import Array
from krein.errors import InputError

__all__ = ["Column", "MixedRows", "as_mixed_rows"]


@dataclass(frozen=True)
class Column:
    """What a column holds: numbers, or the places of its values among ``levels``, which ordinals have in order."""

    name: str
    kind: str  # "number", "category" or "ordinal"
    levels: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class MixedRows:
    """A collection of rows of mixed columns."""

    values: Array  # (n, d), NaN where a value is missing
    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> MixedRows:
        return MixedRows(self.values[rows], self.columns)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.columns)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes)


def as_mixed_rows(X: Any) -> MixedRows:
    """Return the rows of a data frame, a 2-D array or a list of rows, or raise InputError."""
    if isinstance(X, MixedRows):
        return X
    found = [_column(name, values) for name, values in _columns(X)]
    if not found or len(found[0][1]) == 0:
        raise InputError(f"X must hold rows and columns; got a table with {len(found)} columns and no rows or columns.")
    names = [column.name for column, _ in found]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InputError(f"The columns of X must have different names; {', '.join(twice)} stands twice. Rename one.")
    values = np.stack([values for _, values in found], axis=1)
    empty: Any = np.isnan(values).all(1)
    if empty.any():
        raise InputError(
            f"Every row of X needs at least one value; {int(empty.sum())} of {len(empty)} rows have none, the first is "
            f"row {int(empty.argmax())}. Drop them."
        )
    return MixedRows(values, tuple(column for column, _ in found))


def _columns(X: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (name, values) of each column."""
    if hasattr(X, "column_names") or hasattr(X, "columns"):  # pyarrow; pandas and polars
        names = list(X.column_names if hasattr(X, "column_names") else X.columns)
        duplicates = len(set(names)) < len(names)  # pandas alone has those, and would give a frame for such a name
        yield from ((name, X.iloc[:, i] if duplicates else X[name]) for i, name in enumerate(names))
        return
    if isinstance(X, list | tuple) and all(isinstance(row, list | tuple | np.ndarray) for row in X):
        lengths = {len(row) for row in X}
        if len(lengths) > 1:
            raise InputError(f"The rows of X must be equally long; got lengths from {min(lengths)} to {max(lengths)}.")
        table = np.empty((len(X), *lengths), dtype=object)
        for i, row in enumerate(X):
            table[i] = row
        X = table
    if not (isinstance(X, np.ndarray) and X.ndim == 2):
        raise InputError(
            "X must be a table of rows and columns: a data frame of pandas, polars or pyarrow, a 2-D array, or a list "
            f"of rows; got {type(X).__name__}{f' of shape {X.shape}' if hasattr(X, 'shape') else ''}."
        )
    yield from ((i, X[:, i]) for i in range(X.shape[1]))


def _column(name: Any, series: Any) -> tuple[Column, Array]:
    """Return the description of a column, and its numbers or the places of its values among the levels."""
    name = str(name)
    dtype: Any = getattr(series, "type", getattr(series, "dtype", None))
    if hasattr(dtype, "categories") and hasattr(dtype, "ordered"):  # of pandas
        kind = "ordinal" if dtype.ordered else "category"
        codes = np.asarray(series.cat.codes, dtype=np.float64)
        return Column(name, kind, tuple(dtype.categories.tolist())), np.where(codes < 0, np.nan, codes)
    if hasattr(dtype, "ordered"):  # of pyarrow
        whole = series.unify_dictionaries().combine_chunks()
        codes = np.asarray(whole.indices.to_numpy(zero_copy_only=False), dtype=np.float64)
        return Column(name, "ordinal" if dtype.ordered else "category", tuple(whole.dictionary.to_pylist())), codes
    if getattr(dtype, "tz", None) is not None and not hasattr(series, "combine_chunks"):  # times of pandas, in UTC
        values = series.to_numpy(dtype="datetime64[ns]")
    else:
        values = np.asarray(series.to_numpy() if hasattr(series, "to_numpy") else series)
    if values.dtype.kind == "O":
        values = _typed(values)
    if values.dtype.kind in "iuf":
        numbers = values.astype(np.float64)
        if np.isinf(numbers).any():
            raise InputError(
                f"Column {name!r} holds {int(np.isinf(numbers).sum())} infinite values. Mark them missing."
            )
        return Column(name, "number"), numbers
    if values.dtype.kind in "mM":
        unit = "timedelta64[us]" if values.dtype.kind == "m" else "datetime64[us]"
        numbers = values.astype(unit).astype(np.int64).astype(np.float64)
        return Column(name, "number"), np.where(np.isnat(values), np.nan, numbers)
    if values.dtype.kind == "c":
        raise InputError(f"Column {name!r} holds complex numbers. Split them into real and imaginary parts.")
    return _coded(name, values.tolist())


def _typed(values: Any) -> Any:
    """Return objects as numbers or times if all of them are, or are missing; else as they are."""
    missing = np.array([_is_missing(value) for value in values], dtype=bool)
    present = values[~missing]
    if all(isinstance(value, Number) and not isinstance(value, bool | np.bool_ | complex) for value in present):
        numbers = np.full(len(values), np.nan)
        numbers[~missing] = [float(value) for value in present]
        return numbers
    for kind, unit in ((date, "datetime64"), (timedelta, "timedelta64")):
        if all(isinstance(value, kind) for value in present):
            times = np.full(len(values), "NaT", dtype=f"{unit}[us]")
            times[~missing] = present.astype(f"{unit}[us]")
            return times
    return values


def _coded(name: str, values: Iterable[Any]) -> tuple[Column, Array]:
    places: dict[Any, int] = {}
    try:
        codes = [np.nan if _is_missing(value) else places.setdefault(value, len(places)) for value in values]
    except TypeError:
        raise InputError(f"Column {name!r} holds objects that cannot be hashed. Convert them to text first.") from None
    return Column(name, "category", tuple(places)), np.array(codes, dtype=np.float64)


def _is_missing(value: Any) -> bool:
    """Whether it is None, NaN, NaT or pandas.NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating | np.datetime64 | np.timedelta64 | Decimal) and bool(value != value)
