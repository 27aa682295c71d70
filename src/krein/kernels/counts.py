"""Kernels of fingerprints, sets, counts, categories and histograms: psd similarities of rows of non-negative numbers.

Overlaps of sets are inner products of 0/1 rows. The overlap of histograms, the sum of min(x, y), follows from sums and
Manhattan distances: x + y = min + max and |x - y| = max - min in every feature. Sparse rows stay sparse.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import additive_chi2_kernel

from krein.arrays import Array
from krein.errors import InputError
from krein.kernels.collections import is_sparse
from krein.kernels.kernel import Kernel, Traits
from krein.kernels.vectors import (
    InnerProducts,
    ManhattanDistances,
    Rows,
    VectorKernel,
    as_vectors,
    inner,
    squared_norms,
)

__all__ = ["ChiSquared", "Hamming", "HistogramIntersection", "Jaccard", "MinMax", "Tanimoto"]

# Sparse counts are written in units if these are at most UNITS_PER_ENTRY times as many as the entries.
UNITS_PER_ENTRY = 16


# -- sets and fingerprints ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CommonBits(InnerProducts):
    """a -> <a_i, b_j>. A copy of sparse b by columns is kept, which SciPy would otherwise make for every product."""

    @cached_property
    def _columns(self) -> Any:
        return self.b.tocsc() if is_sparse(self.b) else self.b

    def __call__(self, a: Any) -> Array:
        return inner(a, self._columns)


@dataclass(frozen=True)
class Tanimoto(VectorKernel):
    """Tanimoto similarity, ⟨x, y⟩ / (|x|² + |y|² - ⟨x, y⟩); of 0/1 rows, the common bits per bits of either.

    It is psd on any data. Two zero rows have similarity 1. For counts `MinMax` is the usual form.

    Examples
    --------
    >>> import krein
    >>> krein.Tanimoto()([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]]).round(3)
    array([[1.   , 0.667, 0.   ],
           [0.667, 1.   , 0.25 ],
           [0.   , 0.25 , 1.   ]])
    """

    compared: ClassVar[type[Rows]] = CommonBits

    @property
    def traits(self) -> Traits:
        return Traits(
            stationary=False, psd=True, low=-1.0 / 3.0, high=1.0, constant_diagonal=True, unitary_invariant=True
        )

    def values(self, rows: CommonBits, a: Any) -> Array:
        common = rows(a)
        either = np.add.outer(squared_norms(a), rows.squared_norms)
        either -= common
        return _ratio(common, either)


@dataclass(frozen=True)
class Jaccard(Tanimoto):
    """Jaccard similarity of sets, |x ∩ y| / |x ∪ y|, for rows of 0 and 1 that say what is in a set.

    It is psd on any data, and 1 minus the Jaccard distance of SciPy. Two empty sets have similarity 1. On such rows
    `Tanimoto` and `MinMax` are the same; other rows are an error here.

    Examples
    --------
    >>> import krein
    >>> krein.Jaccard()([[1, 1, 0], [0, 1, 1]]).round(3)
    array([[1.   , 0.333],
           [0.333, 1.   ]])
    """

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=True, low=0.0, high=1.0, constant_diagonal=True)

    def rows(self, b: Any) -> Any:
        return super().rows(_sets(b))

    def values(self, rows: CommonBits, a: Any) -> Array:
        return super().values(rows, _sets(a))


def _sets(X: Any) -> Any:
    entries = X.data if is_sparse(X) else X
    other = entries[(entries != 0.0) & (entries != 1.0)]
    if other.size:
        raise InputError(
            f"Jaccard compares sets, rows of 0 and 1; got {other.size} other entries, the first {other[0]:g}. Pass "
            "X != 0 for the sets of non-zero features, or take MinMax for counts."
        )
    return X


# -- counts and histograms ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Overlaps(ManhattanDistances):
    """a -> the sums over all features of min(a_i, b_j) and of max(a_i, b_j).

    Sparse rows of whole numbers are written with one column per feature and unit, 3 as three ones: then the sum of the
    minima is an inner product, which is many times as quick.
    """

    @cached_property
    def _sums(self) -> Array:
        return _sums(self.b)

    @cached_property
    def _units(self) -> Any:
        """The rows in units; None if they are dense, not whole numbers or would be much longer."""
        if not _is_whole(self.b) or float(self.b.data.sum(dtype=np.float64)) > UNITS_PER_ENTRY * max(1, self.b.nnz):
            return None
        return _in_ones(self.b, int(self.b.data.max(initial=1)))

    def both(self, a: Any) -> tuple[Array, Array]:
        totals = np.add.outer(_sums(a), self._sums)
        if _is_whole(a) and self._units is not None:
            least = inner(_in_ones(a, self._units.shape[1] // self.b.shape[1]), self._units)
            return least, totals - least
        apart = self(a)
        return 0.5 * np.maximum(totals - apart, 0.0), 0.5 * (totals + apart)


class _Counts(VectorKernel):
    """Base class of kernels of rows without negative entries; ``counted`` is `values` of such rows."""

    compared: ClassVar[type[Rows]] = Overlaps

    @abstractmethod
    def counted(self, rows: Any, a: Any) -> Array:
        """Return k(a, b) as `values` does."""

    def rows(self, b: Any) -> Any:
        return super().rows(_non_negative(b, self))

    def values(self, rows: Any, a: Any) -> Array:
        return self.counted(rows, _non_negative(a, self))


@dataclass(frozen=True)
class MinMax(_Counts):
    """Minmax similarity of counts, the sum of min(x, y) over the sum of max(x, y): Tanimoto with multiplicities.

    It is psd for entries >= 0, which it needs. Two zero rows have similarity 1.

    Examples
    --------
    >>> import krein
    >>> krein.MinMax()([[3, 0, 1], [1, 2, 1]]).round(3)
    array([[1.   , 0.333],
           [0.333, 1.   ]])
    """

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=True, low=0.0, high=1.0, constant_diagonal=True)

    def counted(self, rows: Overlaps, a: Any) -> Array:
        return _ratio(*rows.both(a))


@dataclass(frozen=True)
class HistogramIntersection(_Counts):
    """Histogram intersection, the sum of min(x, y) over all features; psd for entries >= 0, which it needs.

    Examples
    --------
    >>> import krein
    >>> krein.HistogramIntersection()([[3, 0, 1], [1, 2, 1]])
    array([[4., 2.],
           [2., 4.]])
    """

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=True, low=0.0)

    def counted(self, rows: Overlaps, a: Any) -> Array:
        return rows.both(a)[0]

    def diag(self, A: Any) -> Array:
        return _sums(_non_negative(as_vectors(A, self), self))


@dataclass(frozen=True)
class ChiSquared(_Counts):
    """Chi-squared kernel of histograms, exp(-gamma sum (x - y)² / (x + y)), as in scikit-learn's chi2_kernel.

    It is psd for entries >= 0, which it needs, and its values lie in (0, 1]. Sparse rows are not taken.

    Parameters
    ----------
    gamma : float, default=1.0
        Inverse width, above 0.

    Examples
    --------
    >>> import krein
    >>> krein.ChiSquared()([[1.0, 0.0], [0.5, 0.5]]).round(3)
    array([[1.   , 0.513],
           [0.513, 1.   ]])
    """

    gamma: float = 1.0

    accepts_sparse: ClassVar[bool] = False
    positive: ClassVar[tuple[str, ...]] = ("gamma",)
    compared: ClassVar[type[Rows]] = Rows

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=True, low=0.0, high=1.0, constant_diagonal=True)

    def counted(self, rows: Rows, a: Any) -> Array:
        if not (a.shape[0] and rows.b.shape[0]):  # which scikit-learn refuses
            return np.empty((a.shape[0], rows.b.shape[0]), dtype=a.dtype)
        wide, other = rows.in_float64(a)
        values = self.gamma * additive_chi2_kernel(other, wide.b)
        return np.asarray(np.exp(values, out=values), dtype=a.dtype)


# -- categories --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Agreements(Rows):
    """a -> the share of features in which a_i and b_j are equal."""

    def __call__(self, a: Any) -> Array:
        if not is_sparse(self.b):
            return (1.0 - cdist(a.toarray() if is_sparse(a) else a, self.b, "hamming")).astype(a.dtype)
        stored = _without_zeros(a)  # features differ where one row has an entry, less those where both have the same
        both = inner(_ones(stored, stored.indices, a.shape[1]), self._set)
        equal = inner(self._pairs(stored), self._pairs_of_b)
        differing = np.add.outer(np.diff(stored.indptr), np.diff(self._set.indptr)) - both - equal
        return np.asarray(1.0 - differing / a.shape[1], dtype=a.dtype)

    @cached_property
    def _stored(self) -> Any:
        return _without_zeros(self.b)

    @cached_property
    def _set(self) -> Any:
        return _ones(self._stored, self._stored.indices, self.b.shape[1])

    @cached_property
    def _known(self) -> Array:
        """The non-zero values of b."""
        return np.unique(self._stored.data)

    @cached_property
    def _pairs_of_b(self) -> Any:
        return self._pairs(self._stored)

    def _pairs(self, stored: Any) -> Any:
        """0/1 rows with a column per feature and value of b, and one more per feature for all other values."""
        width = len(self._known) + 1
        value = np.searchsorted(self._known, stored.data)
        value[np.append(self._known, np.nan)[value] != stored.data] = width - 1
        return _ones(stored, stored.indices.astype(np.int64) * width + value, self.b.shape[1] * width)


@dataclass(frozen=True)
class Hamming(VectorKernel):
    """Share of the features in which two rows are equal: 1 minus the Hamming distance of SciPy; psd on any data.

    Features may be bits, or categories written as numbers.

    Examples
    --------
    >>> import krein
    >>> krein.Hamming()([[1, 0, 2, 5], [1, 1, 2, 5]])
    array([[1.  , 0.75],
           [0.75, 1.  ]])
    """

    compared: ClassVar[type[Rows]] = Agreements

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=True, low=0.0, high=1.0, constant_diagonal=True)

    def values(self, rows: Agreements, a: Any) -> Array:
        return rows(a)


# -- helpers -----------------------------------------------------------------------------------------------------------


def _ratio(part: Array, whole: Array) -> Array:
    """part / whole, and 1 where both are 0: two zero rows are equal."""
    return np.divide(part, whole, out=np.ones_like(part), where=whole > 0.0)


def _sums(X: Any) -> Array:
    return np.asarray(X.sum(axis=1, dtype=np.float64), dtype=X.dtype).ravel()


def _non_negative(X: Any, asker: Kernel) -> Any:
    entries = X.data if is_sparse(X) else X
    lowest = float(entries.min(initial=0.0))
    if lowest < 0.0:
        raise InputError(
            f"{asker!r} compares counts or histograms, whose entries are >= 0; got {lowest:.3g}. Leave out what "
            "centres the columns, or take a kernel of any vectors, RBF for instance."
        )
    return X


def _without_zeros(X: Any) -> Any:
    """X as CSR without stored zeros; X itself is not changed."""
    found = sparse.csr_matrix(X)
    if (found.data == 0.0).any():
        found = found.copy()
        found.eliminate_zeros()
    return found


def _ones(like: Any, columns: Any, width: int) -> Any:
    """Ones in the rows of ``like``, at ``columns``."""
    return sparse.csr_matrix((np.ones(len(columns), like.dtype), columns, like.indptr), shape=(like.shape[0], width))


def _is_whole(X: Any) -> bool:
    return is_sparse(X) and bool((X.data == np.floor(X.data)).all())


def _in_ones(X: Any, most: int) -> Any:
    """Each entry of X, a whole number, as so many ones, at most ``most``, in as many columns of its own."""
    counts = np.minimum(X.data, most).astype(np.intp)
    ends = np.concatenate([[0], np.cumsum(counts)])
    unit = np.arange(ends[-1]) - np.repeat(ends[:-1], counts)
    columns = np.repeat(X.indices.astype(np.int64), counts) * most + unit
    ones = np.ones(len(columns), dtype=X.dtype)
    return sparse.csr_matrix((ones, columns, ends[X.indptr]), shape=(X.shape[0], X.shape[1] * most))
