"""Gower's similarity of rows of mixed columns (Gower 1971), evaluated in tiles by matrix products.

s(x, y) is the weighted mean, over the columns in which both rows have a value, of the similarity of their values. With
d_j for one minus that of column j, m_j for whether a row has a value in it, and W(x, y) = sum_j w_j m_j(x) m_j(y):

    s(x, y) = 1 - sum_j w_j m_j(x) m_j(y) d_j(x, y) / W(x, y).

The mean s is a sum of functions of single columns, and so is what a machine learns with it. exp(-decay (1 - s)) is a
product over the columns: with it they can interact.

Missing numbers are 0 and missing categories a category of their own. The distances of SciPy then have, for a value that
only x has, a term that depends on x alone, and a matrix product takes it away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from krein.arrays import Array, stream, strips
from krein.errors import InputError, is_number, one_of
from krein.kernels.kernel import Kernel, Traits
from krein.kernels.mixed_rows import Column, as_mixed_rows

__all__ = ["Gower"]

# A tile of similarities has at most TILE_ENTRIES entries, and takes a few arrays of that size.
TILE_ENTRIES = 2**20
# A category that the fit did not have gets a number above those of its levels, from so many.
UNSEEN_CODES = 2**40
# The mean dissimilarity of a column is that of SAMPLED_PAIRS random pairs of rows.
SAMPLED_PAIRS = 20_000


@dataclass(frozen=True, repr=False)
class Gower(Kernel):
    """Gower's similarity of rows with columns of numbers, categories, ordered categories, dates; from 0 to 1.

    The similarity of two numbers is 1 - |x - y| / range, with the range of the column in the fit. Numbers outside that
    range count as its nearest end. Dates and time differences are numbers. Categories and booleans are equal (1) or not
    (0), and so are categories that the fit did not have. Ordered categories of pandas and pyarrow are compared as
    numbers by rank. A value that one of two rows lacks is left out of their mean, and rows without a common value have
    similarity 0.

    X is a data frame of pandas, polars or pyarrow, a 2-D array, or a list of rows. The kernel is psd if no value is
    missing in the fit, and may be indefinite otherwise.

    Parameters
    ----------
    weights : mapping, sequence of float, "balanced" or None, default=None
        Weights of the columns: by name, or by position in an array, where columns that are not named have weight 1; or
        one number per column. None is 1 for each. With "balanced" every column contributes the same to the mean
        dissimilarity of two rows of the fit. Without it, categories outweigh numbers, which seldom differ by their
        range. A Gaussian process learns given numbers as it learns length scales, and ``decay`` in any case.
    categorical_features : sequence of str or int, default=()
        Columns of numbers that are categories, by name or position.
    distance : bool, default=False
        Whether the kernel is the distance 1 - s instead of the similarity s.
    decay : float or None, default=None
        With a number the kernel is exp(-decay (1 - s) / m), m being the mean of 1 - s over the fit. Unlike the mean s
        it lets columns interact. 1 to 4 are usual.
    power : float, default=1.0
        The similarity of two numbers is 1 - (|x - y| / range)^power, with a power above 0 and at most 2. With
        ``power=2`` and ``decay`` the kernel is Gaussian in the numbers.
    columns, lows, spans, has_missing, typical, balance
        The columns of the fit, the smallest value of each and its range, whether a value is missing, the mean of
        1 - s, and the weights of the columns where no numbers are given; they are set when the kernel is bound to data.

    Examples
    --------
    >>> import krein
    >>> rows = [[1.0, "red"], [3.0, "red"], [5.0, None]]
    >>> krein.Gower().bind(rows)(rows)
    array([[1.  , 0.75, 0.  ],
           [0.75, 1.  , 0.5 ],
           [0.  , 0.5 , 1.  ]])
    """

    weights: Any = None
    categorical_features: tuple[Any, ...] = ()
    distance: bool = False
    decay: float | None = None
    power: float = 1.0
    columns: tuple[Column, ...] | None = None
    lows: tuple[float, ...] = ()
    spans: tuple[float, ...] = ()
    has_missing: bool = True
    typical: float = 1.0
    balance: tuple[float, ...] = ()

    compares: ClassVar[str] = "tables"

    def __post_init__(self) -> None:
        weights, chosen = self.weights, self.categorical_features
        if isinstance(weights, str):
            one_of("weights", weights, ("balanced",))
        elif isinstance(weights, Mapping):
            weights = tuple((key, weights[key]) for key in weights)
        elif weights is not None:
            weights = tuple(weights)
        pairs = () if weights is None or isinstance(weights, str) else weights
        numbers = [pair[1] if isinstance(pair, tuple) else pair for pair in pairs]
        if not all(is_number(w) and 0.0 <= w < np.inf for w in numbers) or (numbers and max(numbers) == 0.0):
            raise InputError(f"weights must be finite numbers of at least 0, not all 0; got {self.weights!r}.")
        if isinstance(chosen, str):
            raise InputError(f"categorical_features must be a sequence of names or positions; got {chosen!r}.")
        if not isinstance(self.distance, bool | np.bool_):
            raise InputError(f"distance must be True or False; got {self.distance!r}.")
        if self.decay is not None and not (is_number(self.decay) and 0.0 < self.decay < np.inf):
            raise InputError(f"decay must be None or a finite number above 0; got {self.decay!r}.")
        if self.decay is not None and self.distance:
            raise InputError("decay makes a similarity of the distance. Pass decay or distance=True, not both.")
        if not (is_number(self.power) and 0.0 < self.power <= 2.0):
            raise InputError(f"power must be a number above 0 and at most 2; got {self.power!r}.")
        object.__setattr__(self, "dissimilar", bool(self.distance))
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "categorical_features", tuple(chosen))
        object.__setattr__(self, "decay", None if self.decay is None else float(self.decay))

    def __repr__(self) -> str:
        given = {
            "weights": self.weights,
            "categorical_features": self.categorical_features,
            "distance": self.distance,
            "decay": self.decay,
            "power": self.power if self.power != 1.0 else None,
        }
        return f"Gower({', '.join(f'{name}={value!r}' for name, value in given.items() if value)})"

    @property
    def traits(self) -> Traits:
        # 1 - |x - y|^p is psd up to p = 1 (Pólya), and exp(-|x - y|^p) up to p = 2 (Schoenberg)
        smooth = self.decay is not None or self.power <= 1.0
        psd = False if self.distance else True if smooth and not self.has_missing else None
        return Traits(stationary=False, psd=psd, low=0.0, high=1.0, constant_diagonal=True)

    def __call__(self, A: Any, B: Any = None) -> Array:
        return Gower.against(self, A if B is None else B)(A)

    def against(self, B: Any) -> Callable[[Any], Array]:
        return GowerAgainst(self, B)

    def diag(self, A: Any) -> Array:
        return np.full(len(as_mixed_rows(A)), 0.0 if self.distance else 1.0)

    def diag_entries(self, n_objects: int) -> int:
        return 0

    def bind(self, X: Any) -> Kernel:
        """Return this kernel with the columns of X and their ranges, unless it has columns already."""
        if self.columns is not None:
            return self
        rows = as_mixed_rows(X)
        chosen = {_place(self, "categorical_features", key, rows.columns) for key in self.categorical_features}
        columns = tuple(replace(c, kind="category") if i in chosen else c for i, c in enumerate(rows.columns))
        known = ~np.isnan(rows.values)
        lows = np.where(known, rows.values, np.inf).min(0)
        highs = np.where(known, rows.values, -np.inf).max(0)
        for i, column in enumerate(columns):
            if column.kind == "ordinal":
                lows[i], highs[i] = 0.0, len(column.levels) - 1.0
        spans = np.where(highs > lows, highs - lows, 1.0)
        lows = np.where(np.isfinite(lows), lows, 0.0)  # a column without a value
        means = self._mean_dissimilarities((rows.values - lows) / spans, columns)
        weights = np.array(self._weights(columns))
        if self.weights == "balanced":  # weights of 1 in the mean; a column of equal values counts for nothing
            weights = np.divide(1.0, means, out=np.zeros(len(means)), where=means > 0.0)
            weights = weights / weights.mean() if weights.any() else np.ones(len(means))
        given = isinstance(self.weights, tuple)
        return replace(
            self,
            weights=tuple(weights.tolist()) if given else self.weights,
            balance=() if given else tuple(weights.tolist()),
            columns=columns,
            lows=tuple(lows.tolist()),
            spans=tuple(spans.tolist()),
            has_missing=not bool(known.all()),
            typical=float(weights @ means / weights.sum()) or 1.0,
        )

    def _mean_dissimilarities(self, values: Array, columns: tuple[Column, ...]) -> Array:
        """The mean of one minus the similarity of each column, over random pairs of rows that have a value in it."""
        left, right = stream(0, 57).integers(len(values), size=(2, SAMPLED_PAIRS))
        differences = np.abs(values[left] - values[right])
        for i, column in enumerate(columns):
            differences[:, i] = (
                np.where(differences[:, i] > 0.0, 1.0, differences[:, i])
                if column.kind == "category"
                else differences[:, i] ** self.power
            )
        known = ~np.isnan(differences)
        return np.asarray(np.where(known, differences, 0.0).sum(0) / np.maximum(known.sum(0), 1))

    def _weights(self, columns: tuple[Column, ...]) -> list[float]:
        found = [1.0] * len(columns)
        pairs = () if self.weights is None or isinstance(self.weights, str) else self.weights
        if pairs and not isinstance(pairs[0], tuple):
            if len(pairs) != len(columns):
                raise InputError(f"weights must be one number per column, {len(columns)}; got {len(pairs)}.")
            pairs = tuple(enumerate(pairs))
        for key, weight in pairs:
            found[_place(self, "weights", key, columns)] = float(weight)
        return found

    def encoded(self, X: Any) -> Encoded:
        """Return the rows as numbers that can be compared, in the columns of the fit."""
        if self.columns is None:
            raise InputError(f"{self!r} knows no columns yet. Bind it to the data with .bind(X).")
        rows = as_mixed_rows(X)
        place = {column.name: i for i, column in enumerate(rows.columns)}
        wanted = {column.name for column in self.columns}
        if place.keys() != wanted:
            lacking, unknown = sorted(wanted - place.keys()), sorted(place.keys() - wanted)
            raise InputError(
                f"X must have the {len(wanted)} columns of the fit; it lacks {', '.join(lacking[:8]) or 'none'}, and "
                f"{', '.join(unknown[:8]) or 'none'} of its columns are unknown. Pass the columns of the fit."
            )
        numbers, codes = [], []
        for column, low, span, weight in zip(self.columns, self.lows, self.spans, self._each_weight, strict=True):
            i = place[column.name]
            values = _translated(rows.values[:, i], rows.columns[i], column)
            if column.kind == "category":
                codes.append(values)
            else:
                numbers.append(weight ** (1.0 / self.power) * np.clip((values - low) / span, 0.0, 1.0))
        empty = np.empty((len(rows), 0))
        return Encoded.of(
            np.stack(numbers, axis=1) if numbers else empty,
            np.stack(codes, axis=1) if codes else empty,
            self._split_weights[1],
            self.power,
        )

    def column_parts(self, X: Any) -> Iterator[tuple[Array, Array | float]]:
        """Yield w_j m_j m_j d_j and w_j m_j m_j among all rows, one column of positive weight after the other."""
        rows = self.encoded(X)
        assert self.columns is not None
        places = {"category": 0, "number": 0}
        for column, weight in zip(self.columns, self._each_weight, strict=True):
            kind = "category" if column.kind == "category" else "number"
            at = places[kind]
            places[kind] += 1
            if weight == 0.0:
                continue
            if kind == "category":
                codes = rows.codes[:, at]
                apart = weight * (codes[:, None] != codes)
            else:
                numbers = rows.numbers[:, at]
                apart = np.abs(numbers[:, None] - numbers) ** self.power
            if rows.present is None:
                yield apart, weight
            else:
                present = rows.present[:, at + (kind == "category") * rows.numbers.shape[1]]
                both = np.outer(present, present)
                yield apart * both, weight * both

    @property
    def _each_weight(self) -> tuple[float, ...]:
        """The weight of each column of the fit."""
        return self.weights if isinstance(self.weights, tuple) else self.balance

    @property
    def _split_weights(self) -> tuple[Array, Array]:
        """The weights of columns of numbers, and of categories."""
        assert self.columns is not None
        each = zip(self.columns, self._each_weight, strict=True)
        pairs = [(column.kind == "category", weight) for column, weight in each]
        return tuple(np.array([w for category, w in pairs if category is kind]) for kind in (False, True))  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows as numbers, with p columns of numbers and q of categories."""

    numbers: Array  # (n, p), weighted so that |x - y|^power sum up, 0 where missing
    codes: Array  # (n, q), -1 where missing
    present: Array | None  # (n, p + q), 1 or 0 where missing; None if all are there
    alone: Array  # (n, p + q): what SciPy's distances have for a value that the other row lacks

    @classmethod
    def of(cls, numbers: Array, codes: Array, code_weights: Array, power: float) -> Encoded:
        """From arrays with NaN for missing values."""
        missing = np.isnan(np.hstack([numbers, codes]))
        numbers, codes = np.nan_to_num(numbers), np.nan_to_num(codes, nan=-1.0)
        present = (~missing).astype(np.float64)
        alone = np.hstack([numbers**power, present[:, numbers.shape[1] :] * code_weights])
        return cls(numbers, codes, present if missing.any() else None, alone)

    def __getitem__(self, rows: slice) -> Encoded:
        present = None if self.present is None else self.present[rows]
        return Encoded(self.numbers[rows], self.codes[rows], present, self.alone[rows])


@dataclass(frozen=True, eq=False)
class GowerAgainst:
    """A -> k(A, B), with B as numbers."""

    kernel: Gower
    B: Any

    @cached_property
    def _prepared(self) -> Encoded:
        return self.kernel.encoded(self.B)

    def __call__(self, A: Any) -> Array:
        right = self._prepared
        left = right if A is self.B else self.kernel.encoded(A)
        kernel, weights = self.kernel, self.kernel._split_weights
        values = np.empty((len(left.alone), len(right.alone)))
        for part in strips(*values.shape, TILE_ENTRIES):
            values[part] = _tile(left[part], right, *weights, kernel.power)
            if kernel.decay is not None:
                values[part] = np.exp(-kernel.decay / kernel.typical * values[part])
            elif not kernel.distance:
                values[part] = 1.0 - values[part]
        return values

    def __getstate__(self) -> dict[str, Any]:
        return {"kernel": self.kernel, "B": self.B}


def _tile(a: Encoded, b: Encoded, number_weights: Array, code_weights: Array, power: float) -> Array:
    """Return one minus the mean similarity."""
    distances: Array = np.zeros((len(a.alone), len(b.alone)))
    if a.numbers.shape[1]:
        distances = _summed_differences(a.numbers, b.numbers, power)
    if code_weights.any():
        distances += code_weights.sum() * cdist(a.codes, b.codes, "hamming", w=code_weights)
    weights = np.concatenate([number_weights, code_weights])
    shared: Any = weights.sum()
    if a.present is not None or b.present is not None:
        in_a, in_b = (np.ones_like(x.alone) if x.present is None else x.present for x in (a, b))
        distances -= a.alone @ (1.0 - in_b).T
        distances -= (1.0 - in_a) @ b.alone.T
        shared = (in_a * weights) @ in_b.T
        distances[shared == 0.0] = 1.0  # nothing in common
        shared[shared == 0.0] = 1.0
    distances /= shared
    return np.clip(distances, 0.0, 1.0, out=distances)


def _summed_differences(a: Array, b: Array, power: float) -> Array:
    """Return the sum over columns of |x - y|^power."""
    if power in (1.0, 2.0):
        return np.asarray(cdist(a, b, "cityblock" if power == 1.0 else "sqeuclidean"))
    return np.asarray(cdist(a, b, "minkowski", p=power) ** power)


def _translated(values: Array, given: Column, column: Column) -> Array:
    """Return the values of a column in the terms of the fit: numbers, or places among its levels."""
    if bool(given.levels) != bool(column.levels) and not np.isnan(values).all():
        held, holds = ("categories" if c.levels else "numbers" for c in (column, given))
        raise InputError(f"Column {column.name!r} held {held} in the fit; here it holds {holds}. Convert it.")
    if not given.levels or given.levels == column.levels:
        return values
    known = {level: i for i, level in enumerate(column.levels)}
    unseen = [level for level in given.levels if level not in known]
    if unseen and column.kind == "ordinal":
        raise InputError(
            f"Column {column.name!r} is ordered, and the fit had no place for {unseen[0]!r}; its levels are "
            f"{', '.join(map(repr, column.levels[:8]))}. Add it to the categories of the fit, or mark it missing."
        )
    places = [known.get(level, len(known) + hash(level) % UNSEEN_CODES) for level in given.levels]
    table = np.array([*places, np.nan], dtype=np.float64)
    return table[np.where(np.isnan(values), len(places), values).astype(np.intp)]


def _place(kernel: Gower, parameter: str, key: Any, columns: tuple[Column, ...]) -> int:
    """The position of a column given by name or position."""
    names = [column.name for column in columns]
    if str(key) in names:
        return names.index(str(key))
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and -len(names) <= key < len(names):
        return int(key) % len(names)
    raise InputError(f"{parameter} has {key!r}, which is no column of X; its columns are {', '.join(names[:12])}.")
