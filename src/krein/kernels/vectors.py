"""Vectors: their inner products, norms and distances, gamma from the data, and the base class of their kernels.

In: 2-D ndarrays or CSR matrices of float32 or float64. Out: dense arrays of the same float type. No scale of the data
costs digits.

A kernel of vectors is a function of inner products, cosines or distances. `InnerProducts`, `Cosines`,
`SquaredDistances`, `EuclideanDistances` and `ManhattanDistances` each hold the rows b of k(a, b) and cache what depends
on b alone (norms, mean, lengths). Called with rows a of the same float type, they return one number per pair, shape
(len(a), len(b)). RBF is at the end (paper, Sec. 2.2; supplement, Sec. 6).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from krein.arrays import Array, stream, strips
from krein.errors import InputError, is_number, positive, warn
from krein.kernels.collections import count_objects, is_sparse, is_vectors, rows, take
from krein.kernels.kernel import Kernel, Traits, bound
from krein.pieces.rows import RowPieces

__all__ = [
    "RBF", "Cosines", "EuclideanDistances", "Exponential", "InnerProducts", "ManhattanDistances", "Rows",
    "SquaredDistances", "VectorKernel", "as_vectors", "check_features", "check_length_scale", "constant_diagonal",
    "has_open_gamma", "in_units", "inner", "largest_entry", "resolved_gamma", "scale_gamma", "squared_norms",
    "unit_rows", "warn_of_no_contrast",
]  # fmt: skip

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)

# |a|² + |b|² - 2<a, b> is off by about eps (|a|² + |b|²). Where that exceeds EXPANSION_ERROR, differences are squared.
EXPANSION_ERROR = {FLOAT32: 1e-4, FLOAT64: 1e-8}
REACH = {
    FLOAT32: EXPANSION_ERROR[FLOAT32] / float(np.finfo(np.float32).eps),
    FLOAT64: EXPANSION_ERROR[FLOAT64] / float(np.finfo(np.float64).eps),
}

# Rows are far if their squared length exceeds FAR. Of two rows that are not both far, either their squared lengths sum
# to less than REACH, or rounding is a millionth of their squared distance. If more than FEW_FAR of the pairs are of two
# far rows, all pairs are computed the second way.
FAR = {dtype: 0.25 * reach for dtype, reach in REACH.items()}
FEW_FAR = 0.25

# Rows are used as they are if centring would shorten the longest of them by a factor of at most OFFSET, and if its
# length and the scale lie between 1 / LARGE and LARGE, so that no product overflows or vanishes.
OFFSET = 4.0
LARGE = {FLOAT32: 1e10, FLOAT64: 1e100}

# A squared distance below CANCELLED times |a|² + |b|² has lost half of its digits, and is computed from differences.
CANCELLED = float(np.sqrt(np.finfo(np.float64).eps))
# Norms are computed for strips of rows of at most STRIP_ENTRIES entries.
STRIP_ENTRIES = 2**18
# The similarities of CONTRAST_SAMPLE rows show whether a kernel tells rows apart at all. If all of them vanish,
# NEIGHBOUR_SAMPLE of the rows are compared with NEIGHBOUR_ROWS others.
CONTRAST_SAMPLE = 32
NEIGHBOUR_SAMPLE = 8
NEIGHBOUR_ROWS = 4096
# The variance of the data is summed over strips of at most VARIANCE_ENTRIES entries.
VARIANCE_ENTRIES = 2**20


# -- functions of rows -------------------------------------------------------------------------------------------------


def as_vectors(X: Any, asker: object) -> Any:
    """Return X as a 2-D float array or CSR matrix: float32 stays, everything else becomes float64."""
    if isinstance(X, RowPieces):
        return X  # kernels with a constant diagonal need no more than its shape
    if is_sparse(X):
        if not getattr(asker, "accepts_sparse", True):
            raise InputError(f"{asker!r} does not take sparse matrices; pass X.toarray().")
        X = X.tocsr()
        if not X.has_canonical_format:  # duplicate entries add up, so nothing may square them one by one
            X = X.copy()
            X.sum_duplicates()
    else:
        if np.ma.is_masked(X):
            raise InputError(f"X masks {int(np.ma.getmaskarray(X).sum())} of its values. Impute or drop them first.")
        try:
            X = np.asarray(X)
        except ValueError as error:
            raise InputError(f"{asker!r} compares vectors, but {error} Make all rows equally long.") from None
    if X.ndim != 2 or X.dtype.kind not in "biufO":
        raise InputError(
            f"{asker!r} compares vectors: it needs a 2-D array or a sparse matrix of numbers, one row per object; got "
            f"{X.dtype} values of shape {X.shape}. Reshape them, or pass a kernel for such objects: any callable k(A, "
            "B) -> array."
        )
    if X.dtype in (np.float32, np.float64):
        return X
    try:
        return X.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{asker!r} compares vectors of numbers, but {error}. Encode the values as numbers first."
        ) from error


def inner(a: Any, b: Any) -> Array:
    """Return <a_i, b_j>, dense; what overflows becomes inf and is left to the caller's check of finite values."""
    with np.errstate(over="ignore", invalid="ignore"):
        products = a @ b.T
    return products.toarray() if is_sparse(products) else np.asarray(products)


def largest_entry(a: Any) -> float:
    """Return the largest magnitude of an entry."""
    return float(np.abs(a.data if is_sparse(a) else a).max(initial=0.0))


def squared_norms(a: Any) -> Array:
    """Return |a_i|², shape (len(a),)."""
    with np.errstate(over="ignore"):
        if is_sparse(a):
            return np.bincount(_row_of_entry(a), weights=np.square(a.data), minlength=a.shape[0]).astype(a.dtype)
        return np.asarray(np.einsum("ij,ij->i", a, a))


def unit_rows(a: Any) -> tuple[Any, Array]:
    """Return the rows of a divided by their lengths, and the lengths; zero rows stay zero.

    Each row is divided by its largest entry first, so no scale overflows or vanishes when squared.
    """
    if is_sparse(a):
        row = _row_of_entry(a)
        top = np.zeros(a.shape[0], dtype=a.dtype)
        np.maximum.at(top, row, np.abs(a.data))
        top[top == 0] = 1
        data = a.data / top[row]
        length = np.sqrt(np.bincount(row, weights=np.square(data), minlength=a.shape[0])).astype(a.dtype)
        safe = np.where(length > 0, length, 1)
        units = type(a)((data / safe[row], a.indices, a.indptr), shape=a.shape)
    else:
        top = np.abs(a).max(axis=1, initial=0)
        top[top == 0] = 1
        units = a / top[:, None]
        length = np.sqrt(squared_norms(units))
        units /= np.where(length > 0, length, 1)[:, None]
    with np.errstate(over="ignore"):
        return units, top * length


def check_length_scale(asker: object, value: Any) -> float | tuple[float, ...]:
    """Return a length scale as a float, and one per feature as a tuple of floats; raise InputError for others."""
    if np.ndim(value) == 0:
        return positive(asker, "length_scale", value)
    if np.ndim(value) != 1 or len(value) == 0:
        raise InputError(
            f"{type(asker).__name__} needs length_scale to be a number, or a list of numbers, one per feature; got an "
            f"array of shape {np.shape(value)}."
        )
    return tuple(positive(asker, "length_scale", each) for each in np.asarray(value).tolist())


def check_features(X: Any, length_scale: Any, asker: object) -> None:
    """Raise InputError if there are several length scales and another number of features."""
    if isinstance(length_scale, tuple) and X.shape[1] != len(length_scale):
        raise InputError(
            f"{type(asker).__name__} has {len(length_scale)} length scales, but X has {X.shape[1]} features. Give one "
            "length scale per feature, or a single number for all."
        )


def in_units(X: Any, length_scale: float | tuple[float, ...] | None, asker: object) -> Any:
    """Return X with each column divided by its length scale; X itself unless there is one scale per feature."""
    if not isinstance(length_scale, tuple):
        return X
    check_features(X, length_scale, asker)
    scales = np.array(length_scale)
    if is_sparse(X):
        return type(X)(((X.data / scales[X.indices]).astype(X.dtype), X.indices, X.indptr), shape=X.shape)
    return (X / scales).astype(X.dtype, copy=False)


def constant_diagonal(A: Any, value: float, asker: Kernel) -> Array:
    """Return k(x, x) = ``value`` for every row of A."""
    a = as_vectors(A, asker)
    return np.full(a.shape[0], value, dtype=a.dtype)


def _row_of_entry(a: Any) -> Any:
    return np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))


# -- rows prepared for many comparisons --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows b of k(a, b). What is derived from them is computed when it is first used, and is not pickled."""

    b: Any  # (m, d) ndarray or CSR matrix, float32 or float64

    @property
    def nbytes(self) -> int:
        """Bytes held, the rows themselves included."""
        values = list(vars(self).values())
        held = {id(x): int(x.nbytes) for x in values if isinstance(x, np.ndarray)}
        parts = [part for x in values if is_sparse(x) for part in (x.data, x.indices, x.indptr)]
        held |= {id(part): int(part.nbytes) for part in parts}
        return sum(held.values()) + sum(x.nbytes for x in values if isinstance(x, Rows) and x is not self)

    @cached_property
    def _double(self) -> Any:
        changed = {f.name: getattr(self, f.name) for f in fields(self)} | {"b": self.b.astype(np.float64)}
        return type(self)(**changed)

    def in_float64(self, a: Any) -> tuple[Any, Any]:
        """Return these rows and a, both in float64; where they are that already they are returned themselves."""
        if self.b.dtype == FLOAT64:
            return self, a.astype(np.float64, copy=False)
        return self._double, self._double.b if a is self.b else a.astype(np.float64, copy=False)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def _strips(self) -> Iterator[Any]:
        return (self.b[part] for part in strips(self.b.shape[0], self.b.shape[1], STRIP_ENTRIES))


@dataclass(frozen=True, eq=False)
class InnerProducts(Rows):
    """a -> <a_i, b_j>."""

    def __call__(self, a: Any) -> Array:
        return inner(a, self.b)

    @cached_property
    def largest(self) -> float:
        """The largest magnitude of an entry."""
        return largest_entry(self.b)

    @cached_property
    def squared_norms(self) -> Array:
        """|b_j|², shape (m,)."""
        return squared_norms(self.b)


@dataclass(frozen=True, eq=False)
class Cosines(Rows):
    """a -> the cosines of the angles between a_i and b_j, and the lengths |a_i|; a zero row has the cosine 0."""

    @cached_property
    def lengths(self) -> Array:
        """|b_j|, shape (m,)."""
        return np.concatenate([np.empty(0, self.b.dtype), *(unit_rows(part)[1] for part in self._strips())])

    @cached_property
    def _units(self) -> Any:
        """The rows divided by their lengths; None if it is enough to divide the products by them."""
        positive = self.lengths[self.lengths > 0]
        large = LARGE[self.b.dtype]
        if np.all((positive > 1 / large) & (positive < large)):
            return None
        return unit_rows(self.b)[0]

    @cached_property
    def _divisors(self) -> Array:
        return np.where(self.lengths > 0, self.lengths, 1)

    def __call__(self, a: Any) -> tuple[Array, Array]:
        units, lengths = unit_rows(a)
        if self._units is None:
            cosines = inner(units, self.b)
            cosines /= self._divisors
        else:
            cosines = inner(units, self._units)
        return np.clip(cosines, -1.0, 1.0, out=cosines), lengths


@dataclass(frozen=True, eq=False)
class ManhattanDistances(Rows):
    """a -> |a_i - b_j|_1, summed in float64 from the differences, in the rows' float type."""

    @cached_property
    def _side(self) -> Any:
        return sparse.csr_matrix(self.b) if is_sparse(self.b) else np.ascontiguousarray(self.b, dtype=np.float64)

    def __call__(self, a: Any) -> Array:
        if not (a.shape[0] and self.b.shape[0]):  # which scikit-learn refuses
            distances = np.empty((a.shape[0], self.b.shape[0]))
        elif is_sparse(self.b) or is_sparse(a):
            distances = manhattan_distances(sparse.csr_matrix(a), sparse.csr_matrix(self._side))
        else:
            distances = cdist(a, self._side, "cityblock")
        return np.asarray(distances, dtype=a.dtype)


@dataclass(frozen=True, eq=False)
class SquaredDistances(Rows):
    """a -> |scale (a_i - b_j)|² >= 0, right to EXPANSION_ERROR in absolute terms, or to rounding in relative ones.

    With the mean m of b, t = scale (a - m) and u = scale (b - m), it is |t|² + |u|² - 2<t, u>: one matrix product.
    This cancels where two rows lie far from m and near each other. Pairs of far rows are done again: float32 in
    float64, and float64 by differences. Sparse rows are not centred, and of sparse float64 rows the pairs that cancel
    are done again by differences.
    """

    scale: float = 1.0

    @cached_property
    def mean(self) -> Array:
        """m, shape (d,); zeros for sparse rows."""
        if is_sparse(self.b) or not len(self.b):
            return np.zeros(self.b.shape[1], dtype=self.b.dtype)
        return np.asarray(self.b.mean(axis=0, dtype=np.float64).astype(self.b.dtype))  # float32 sums would drift

    def _scaled(self, x: Any) -> Any:
        """Scale (x - m), computed as x has to be: sparse rows stay sparse."""
        if is_sparse(x) or is_sparse(self.b):
            return x * self.scale
        centred = x - self.mean
        centred *= self.scale
        return centred

    @cached_property
    def squared_norms(self) -> Array:
        """|u_j|², shape (m,)."""
        return np.concatenate([np.empty(0, self.b.dtype), *(squared_norms(self._scaled(x)) for x in self._strips())])

    @cached_property
    def _longest(self) -> float:
        return float(self.squared_norms.max(initial=0.0))

    @cached_property
    def _as_given(self) -> bool:
        """Whether scale (<t, b> - <t, m>) is as good as <t, u>, so that b need not be copied."""
        large, radius = LARGE[self.b.dtype], math.sqrt(self._longest)
        offset = self.scale * float(np.linalg.norm(self.mean))
        in_range = 1 / large < self.scale < large and 1 / large < (radius + offset) / self.scale < large
        return in_range and radius + offset <= max(1.0, OFFSET * radius)

    @cached_property
    def _u(self) -> Any:
        return self._scaled(self.b)

    @cached_property
    def _far(self) -> Any:
        """Which rows are far from m."""
        return np.flatnonzero(self.squared_norms > FAR[self.b.dtype])

    @cached_property
    def _far_rows(self) -> SquaredDistances:
        """The far rows, in float64."""
        return SquaredDistances(self.b[self._far].astype(np.float64), self.scale)

    def __call__(self, a: Any) -> Array:
        dtype = self.b.dtype
        if is_sparse(a) and not is_sparse(self.b):
            a = a.toarray()
        if dtype == FLOAT32 and not 1e-30 < self.scale < 1e30:
            return self._from_float64(a)
        with np.errstate(over="ignore", invalid="ignore"):
            same = a is self.b  # then BLAS computes one triangle of the products
            t = self._u if same else self._scaled(a)
            norms = self.squared_norms if same else squared_norms(t)
            reach = float(norms.max(initial=0.0)) + self._longest
            far = np.empty(0, dtype=np.intp)
            if not reach <= REACH[dtype]:  # "not <=" so that inf and nan come here too
                far = np.flatnonzero(norms > FAR[dtype])
                if not (np.isfinite(reach) and len(far) * len(self._far) <= FEW_FAR * len(norms) * self.b.shape[0]):
                    if dtype == FLOAT32:
                        return self._from_float64(a)
                    if not is_sparse(self.b):
                        return np.asarray(cdist(t, self._u, "sqeuclidean"))
            if same:
                squares = inner(t, t)
                squares *= -2.0
            elif self._as_given:
                t = t * (-2 * self.scale)
                squares = inner(t, self.b)
                norms = norms - t @ self.mean
            else:
                squares = inner(-2 * t, self._u)
            squares += norms[:, None]
            squares += self.squared_norms
            np.abs(squares, out=squares)  # below zero by rounding alone
            if dtype == FLOAT64 and is_sparse(self.b):
                if not reach <= REACH[dtype]:
                    self.differ_again(squares, a, norms, 1.0 / REACH[dtype])
            elif len(far) and len(self._far):
                mine, theirs = a[far].astype(np.float64, copy=False), self._far_rows
                pairs = theirs(mine) if dtype == FLOAT32 else cdist(theirs._scaled(mine), theirs._u, "sqeuclidean")
                squares[np.ix_(far, self._far)] = pairs
            return squares

    def differ_again(self, squares: Array, a: Any, norms: Array, share: float) -> None:
        """Compute pairs again from their differences where |t|² + |u|² times ``share`` is more than is left of it."""
        close, other = np.nonzero(~(squares > share * np.add.outer(norms, self.squared_norms)))
        for part in strips(len(close), self.b.shape[1], STRIP_ENTRIES):
            i, j = close[part], other[part]
            gaps = (a[i] - self.b[j]) * self.scale
            squares[i, j] = squared_norms(gaps.tocsr() if is_sparse(gaps) else np.asarray(gaps))

    def _from_float64(self, a: Any) -> Array:
        rows, a = self.in_float64(a)
        return np.asarray(rows(a), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class EuclideanDistances(Rows):
    """a -> |scale (a_i - b_j)|, computed in float64, in the rows' float type.

    The root of a squared distance that has lost its digits would be wrong in half of them. Such pairs, most of them
    equal rows, are computed again from their differences.
    """

    scale: float = 1.0

    @cached_property
    def _squares(self) -> SquaredDistances:
        return SquaredDistances(self.b.astype(np.float64), self.scale)

    def __call__(self, a: Any) -> Array:
        wide, rows = a.astype(np.float64), self._squares
        squares = rows(wide)
        norms = squared_norms(rows._scaled(wide.toarray() if is_sparse(wide) and not is_sparse(rows.b) else wide))
        rows.differ_again(squares, wide, norms, CANCELLED)
        return np.sqrt(squares, out=squares).astype(a.dtype, copy=False)


class VectorKernel(Kernel):
    """A kernel of vectors: `values` is its formula in what `rows` computes, inner products for instance.

    What is here suits most kernels: sparse rows are taken, k(x, x) is 1, and a gamma that is None is bound to the data.
    """

    accepts_sparse: ClassVar[bool] = True
    positive: ClassVar[tuple[str, ...]] = ()  # parameters that are positive numbers, or None until they are bound
    compared: ClassVar[type[Rows]]  # what `values` is a function of

    def __post_init__(self) -> None:
        for name in self.positive:
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, positive(self, name, value))

    def rows(self, b: Any) -> Any:
        """Return the rows b, ready to be compared with others."""
        return self.compared(b)

    @abstractmethod
    def values(self, rows: Any, a: Any) -> Array:
        """Return k(a, b) for what `rows` made of b; both are of one float type."""

    def diag(self, A: Any) -> Array:
        bound(self, "gamma", getattr(self, "gamma", 1.0))
        return constant_diagonal(A, 1.0, self)

    def bind(self, X: Any) -> Kernel:
        if getattr(self, "gamma", 1.0) is None:
            return replace(self, gamma=scale_gamma(X, self))  # type: ignore[type-var]
        return self

    def against(self, B: Any) -> Compared:
        return Compared(self, self.rows(_for_products(as_vectors(B, self))))

    def __call__(self, A: Any, B: Any = None) -> Array:
        return VectorKernel.against(self, A if B is None else B)(A)  # not self.against: it may come back here


@dataclass(frozen=True, eq=False)
class Compared:
    """A -> k(A, B) for a kernel of vectors."""

    kernel: VectorKernel
    rows: Any  # of B

    @property
    def nbytes(self) -> int:
        """Bytes held, the rows of B included."""
        return int(self.rows.nbytes)

    def __call__(self, A: Any) -> Array:
        a, rows = as_vectors(A, self.kernel), self.rows
        if a.shape[1] != rows.b.shape[1]:
            raise InputError(
                f"{self.kernel!r} compares vectors of one length; got {a.shape[1]} and {rows.b.shape[1]} features. Use "
                "the same columns."
            )
        if a.dtype != rows.b.dtype:
            rows, a = rows.in_float64(a)
        return self.kernel.values(rows, a)


def _for_products(b: Any) -> Any:
    """The rows in an order of memory that matrix products take as it is."""
    return b if is_sparse(b) or b.flags.forc else np.ascontiguousarray(b)


# -- gamma from the data -----------------------------------------------------------------------------------------------


def has_open_gamma(kernel: Kernel) -> bool:
    """Whether gamma is to be computed from the data; a length scale says what it is."""
    given = getattr(kernel, "length_scale", None) is not None
    return is_dataclass(kernel) and hasattr(kernel, "gamma") and kernel.gamma is None and not given


def resolved_gamma(gamma: Any, X: Any, weights: Array | None = None, asker: Kernel | None = None) -> float:
    """Return the number that gamma stands for: itself, "scale": 1 / (d var X), "auto" or None: 1 / d."""
    if is_number(gamma) and gamma > 0:
        return float(gamma)
    if gamma is None or (isinstance(gamma, str) and gamma == "auto"):
        return 1.0 / float(X.shape[1])
    if isinstance(gamma, str) and gamma == "scale":
        if weights is None:
            return scale_gamma(X, asker or RBF())
        variance = _variance(X, weights)
        return 1.0 / (X.shape[1] * variance) if variance > 0.0 else 1.0
    raise InputError(
        f'gamma must be "scale", "auto", None or a number above 0 ("tune" where there is a score); got {gamma!r}.'
    )


def scale_gamma(X: Any, asker: object) -> float:
    """Return 1 / (d var X) over all entries, scikit-learn's gamma="scale"; 1 where all entries are equal, as there.

    Two passes in chunks, over X divided by a power of two near its largest entry: nothing overflows on the way, only
    the result can. The second pass subtracts the error of the mean, which matters for rows far from the origin.
    """
    if isinstance(X, RowPieces):
        d, unit, variance = X.shape[1], X.survey.largest, X.survey.unit_variance
    else:
        X = as_vectors(X, asker)
        n, d = X.shape
        if n == 0 or d == 0:
            raise InputError(
                f"{asker!r} binds gamma to the data and needs at least one row and one column; got shape {X.shape}."
            )
        entries = X.data if is_sparse(X) else X
        parts = list(strips(len(entries), d if entries.ndim == 2 else 1, VARIANCE_ENTRIES))
        top = max((float(np.abs(entries[part]).max()) for part in parts), default=0.0)
        if not np.isfinite(top):
            raise InputError(
                f"{asker!r} binds gamma to the data, which holds NaN or infinite values. Impute or drop them first."
            )
        zeros = n * d - entries.size  # entries a sparse matrix does not store
        if top == 0.0:
            return 1.0
        unit = math.ldexp(1.0, math.frexp(top)[1] - 1)  # at most top: its reciprocal squared vanishes no earlier
        mean = sum(float(np.sum(entries[part].astype(np.float64) / unit)) for part in parts) / (n * d)
        squares, rest = zeros * mean * mean, -zeros * mean
        for part in parts:
            deviations = entries[part].astype(np.float64) / unit - mean
            squares, rest = squares + float(np.sum(np.square(deviations))), rest + float(np.sum(deviations))
        variance = (squares - rest * rest / (n * d)) / (n * d)
    if variance == 0.0 or unit == 0.0:
        return 1.0
    with np.errstate(over="ignore", under="ignore"):
        gamma = float(np.square(np.reciprocal(unit)) / (d * variance))
    if not np.finfo(float).tiny <= gamma < np.inf:  # smaller numbers have few digits
        raise InputError(
            f"{asker!r} binds gamma to 1 / (n_features * variance of X), which must be a finite number of at least "
            f"2.3e-308; here it is {gamma} "
            f"(largest entry {unit:.3g}, {d} features). Rescale the data, for instance with "
            "sklearn.preprocessing.StandardScaler, or give gamma."
        )
    return gamma


def _variance(X: Any, weights: Array) -> float:
    """Var X over all entries, rows counted as often as their weights say, so that a weight of 2 is a row twice."""
    w = weights / weights.sum()
    if isinstance(X, RowPieces):
        sums, squares = X.map(_row_sums).T
        mean = float(w @ sums) / X.shape[1]
        return max(0.0, float(w @ squares) / X.shape[1] - mean * mean)
    values = X.astype(np.float64)
    if is_sparse(values):
        mean = float(w @ np.asarray(values.sum(1)).ravel() / X.shape[1])
        square = float(w @ np.asarray(values.multiply(values).sum(1)).ravel() / X.shape[1])
        return max(0.0, square - mean * mean)
    mean = float(w @ values.sum(1)) / X.shape[1]
    return float(w @ np.square(values - mean).sum(1) / X.shape[1])


def _row_sums(X: Any) -> Array:
    """The sum and the sum of squares of each row, (n, 2)."""
    values = np.asarray(X, dtype=np.float64)
    return np.column_stack([values.sum(1), np.square(values).sum(1)])


def warn_of_no_contrast(X: Any, kernel: Kernel) -> None:
    """Warn if the kernel tells rows that differ from none: all similarities vanish, or all are those of equal rows.

    Rows of a scale that does not fit the kernel's width do this: their distances or products overflow or vanish. Where
    the similarities among a few rows vanish, some of them are compared with many others: with a narrow kernel a row may
    have few neighbours. Products of orthogonal rows vanish at any scale.
    """
    n = count_objects(X)
    if not is_vectors(X) or n < 3:
        return
    some = take(X, stream(0, 6).choice(n, min(n, CONTRAST_SAMPLE), replace=False))
    K = np.asarray(kernel(some))
    level = K[0, 1]
    if not (K[0, 1:] == level).all() or level not in (0.0, K[0, 0]):
        return
    others = K[~np.eye(len(K), dtype=bool)]
    if not (others == level).all() or (level != 0.0 and (np.diagonal(K) != level).any()):
        return
    dense = some.toarray() if is_sparse(some) else some
    if level == K[0, 0] and (dense == dense[0]).all():
        return
    pairs = f"{len(K)} different rows"
    if level != K[0, 0]:
        if not kernel.traits.stationary:
            return
        few, m = rows(some, slice(0, NEIGHBOUR_SAMPLE)), min(n, NEIGHBOUR_ROWS)
        near = np.asarray(kernel(few, take(X, stream(0, 7).choice(n, m, replace=False))))
        if np.count_nonzero(near) > count_objects(few):  # a row may meet itself
            return
        pairs += f", and of {count_objects(few)} of them with {m}"
    warn(
        f"{kernel!r} is {level:.3g} for every pair of {pairs} (largest entry {np.abs(dense).max():.1g}), so it tells "
        "nothing about them. Rescale the rows, for instance with sklearn.preprocessing.StandardScaler, or give the "
        "kernel another width (gamma, rho or length_scale)."
    )


# -- kernels of distances ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exponential(VectorKernel):
    """exp(-gamma d(x, y)) for a distance d: 1 on the diagonal, in an infinite-dimensional feature space."""

    gamma: float | None = None

    positive: ClassVar[tuple[str, ...]] = ("gamma",)

    def feature_dimension(self, n_features: int) -> float | None:
        return math.inf


@dataclass(frozen=True, repr=False)
class RBF(Exponential):
    """Gaussian kernel, k(x, y) = exp(-gamma |x - y|²).

    It is psd on any data, its values lie in (0, 1], and its feature space has infinite dimension. Its width is given by
    gamma or by length_scale, with gamma = 1 / (2 length_scale²).

    Parameters
    ----------
    gamma : float or None, default=None
        Inverse squared width, above 0. None is replaced by 1 / (n_features * X.var()) when the kernel is bound to data
        X, which is ``gamma="scale"`` of scikit-learn.
    length_scale : float, sequence of floats or None, default=None
        The width as in Gaussian processes, above 0: exp(-|x - y|² / (2 length_scale²)). With one number per feature
        (automatic relevance determination) each difference is divided by its own. Beside gamma it is an error.

    Examples
    --------
    >>> import krein
    >>> krein.RBF(gamma=0.5)([[0.0], [1.0]]).round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    >>> krein.RBF(length_scale=[1.0, 10.0])([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).round(3)
    array([[1.   , 0.607, 0.995],
           [0.607, 1.   , 0.604],
           [0.995, 0.604, 1.   ]])
    """

    length_scale: float | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length_scale is None:
            return
        object.__setattr__(self, "length_scale", check_length_scale(self, self.length_scale))
        if self.gamma is not None:
            raise InputError(
                f"RBF takes gamma or length_scale, not both; got gamma={self.gamma!r} and "
                f"length_scale={self.length_scale!r}. gamma is 1 / (2 length_scale²)."
            )

    def __repr__(self) -> str:
        if self.length_scale is None:
            return f"{type(self).__name__}(gamma={self.gamma!r})"
        return f"{type(self).__name__}(length_scale={self.length_scale!r})"

    @property
    def traits(self) -> Traits:
        return Traits(
            stationary=True,
            psd=True,
            low=0.0,
            high=1.0,
            constant_diagonal=True,
            unitary_invariant=not isinstance(self.length_scale, tuple) or len(set(self.length_scale)) == 1,
            differentiable=True,
            preprocessing="unit-interval",
        )

    @property
    def scale(self) -> Any:
        """What differences are multiplied by before they are squared: a number, or an array with one per feature."""
        if self.length_scale is None:
            return math.sqrt(bound(self, "gamma", self.gamma))
        if isinstance(self.length_scale, tuple):
            return math.sqrt(0.5) / np.array(self.length_scale)
        return math.sqrt(0.5) / self.length_scale

    def diag(self, A: Any) -> Array:
        return super().diag(A) if self.length_scale is None else constant_diagonal(A, 1.0, self)

    def bind(self, X: Any) -> Kernel:
        if self.length_scale is None:
            return super().bind(X)
        check_features(as_vectors(X, self), self.length_scale, self)
        return self

    def rows(self, b: Any) -> SquaredDistances:
        scale = math.sqrt(0.5) if isinstance(self.length_scale, tuple) else self.scale
        return SquaredDistances(in_units(b, self.length_scale, self), scale)

    def values(self, rows: SquaredDistances, a: Any) -> Array:
        values = rows(in_units(a, self.length_scale, self))
        np.negative(values, out=values)
        return np.exp(values, out=values)
