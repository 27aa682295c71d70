"""Kernels of vectors: one formula each, of what is compared between two sets of rows, with one side prepared once.

A kernel of vectors is a function of inner products, of cosines, or of distances. Each of these is a value here that
holds the rows b and, once it was used, whatever depends on b alone: norms, mean, lengths. Called with rows a, of the
same float type, it returns one number per pair, shape (len(a), len(b)). The rows themselves are copied only where
their offset or scale would cost digits.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from krein.arrays import Array, strips
from krein.errors import InputError
from krein.kernels.collections import is_sparse
from krein.kernels.geometry import as_vectors, inner, squared_norms, unit_rows
from krein.kernels.kernel import Kernel

__all__ = ["Cosines", "InnerProducts", "ManhattanDistances", "Rows", "SquaredDistances", "VectorKernel"]

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)

# |a|² + |b|² - 2<a, b> is off by about eps (|a|² + |b|²). Where that exceeds EXPANSION_ERROR, differences are squared.
EXPANSION_ERROR = {FLOAT32: 1e-4, FLOAT64: 1e-8}
REACH = {
    FLOAT32: EXPANSION_ERROR[FLOAT32] / float(np.finfo(np.float32).eps),
    FLOAT64: EXPANSION_ERROR[FLOAT64] / float(np.finfo(np.float64).eps),
}

# Rows are used as they are if centring would shorten the longest of them by a factor of at most OFFSET, and if its
# length and the scale lie between 1 / LARGE and LARGE, so that no product overflows or vanishes.
OFFSET = 4.0
LARGE = {FLOAT32: 1e10, FLOAT64: 1e100}

STRIP_ENTRIES = 2**18  # entries held at once while something is computed of each row


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
    """a -> |scale (a_i - b_j)|² >= 0, right to EXPANSION_ERROR in absolute terms.

    With the mean m of b, t = scale (a - m) and u = scale (b - m), it is |t|² + |u|² - 2<t, u>: one matrix product.
    Where the rows lie so far from m that this would cancel, float32 is done in float64, and float64 by differences (two
    or three times slower). Sparse rows are not centred, and float64 sparse rows have no second way.
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
        return x * self.scale if is_sparse(x) or is_sparse(self.b) else (x - self.mean) * self.scale

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

    def __call__(self, a: Any) -> Array:
        dtype = self.b.dtype
        if is_sparse(a) and not is_sparse(self.b):
            a = a.toarray()
        if dtype == FLOAT32 and not 1e-30 < self.scale < 1e30:
            return self._from_float64(a)
        with np.errstate(over="ignore", invalid="ignore"):
            t = self._scaled(a)
            norms = squared_norms(t)
            reach = float(norms.max(initial=0.0)) + self._longest
            if not reach <= REACH[dtype]:  # "not <=" so that inf and nan come here too
                if dtype == FLOAT32:
                    return self._from_float64(a)
                if not is_sparse(self.b):
                    return np.asarray(cdist(t, self._u, "sqeuclidean"))
            if self._as_given:
                t = t * (-2 * self.scale)
                squares = inner(t, self.b)
                norms = norms - t @ self.mean
            else:
                squares = inner(-2 * t, self._u)
            squares += norms[:, None]
            squares += self.squared_norms
            return np.abs(squares, out=squares)  # below zero by rounding alone

    def _from_float64(self, a: Any) -> Array:
        rows, a = self.in_float64(a)
        return np.asarray(rows(a), dtype=np.float32)


class VectorKernel(Kernel):
    """A kernel of vectors: `values` is its formula, and `rows` says what it compares."""

    @abstractmethod
    def rows(self, b: Any) -> Any:
        """Return the rows b, ready to be compared with others."""

    @abstractmethod
    def values(self, rows: Any, a: Any) -> Array:
        """Return k(a, b) for what `rows` made of b; both are of one float type."""

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
