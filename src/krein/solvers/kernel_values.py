"""Parts of a kernel matrix that is too large to be held, and products with it.

In: a kernel and objects. Out: blocks of the kernel matrix and products with it (`KernelValues`), in single precision if
that is accurate enough. They are evaluated in tiles that fit into the processor's cache.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from krein.arrays import Array, Indices
from krein.kernels import RBF, Evaluator, Kernel, count_objects, is_vectors, take
from krein.kernels.collections import is_sparse, rows
from krein.kernels.kernel import note
from krein.kernels.vectors import FAR, FEW_FAR

__all__ = ["KernelValues", "is_quick"]

# Kernels are evaluated in tiles of at most TILE entries, TILE_ROWS x TILE_COLUMNS where vectors are compared.
TILE = 2**18
TILE_ROWS = 256
TILE_COLUMNS = 1024
# Up to QUICK_FEATURES features an inner product takes less time than the exponential of it.
QUICK_FEATURES = 64
# In single precision at most FAR_SHARE of the rows are far from the mean, and none whose squared length, times gamma,
# is below NEAR.
FAR_SHARE = 0.1
NEAR = 8.0
# Single precision is tried on PRECISION_SAMPLE random rows and on as many rows with the largest entries.
PRECISION_SAMPLE = 150


def is_quick(kernel: Kernel, objects: Any) -> bool:
    """Whether the kernel is a function of inner products of short dense vectors."""
    return _is_dense_product(kernel, objects) and bool(objects.shape[1] <= QUICK_FEATURES)


def _is_dense_product(kernel: Kernel, objects: Any) -> bool:
    """Whether the kernel is a function of inner products of dense vectors."""
    return is_vectors(objects) and not is_sparse(objects) and kernel.traits.unitary_invariant


class KernelValues:
    """The kernel's own values among some objects.

    A set of the objects is prepared once (`chosen`) and compared with other sets after that (`fill`, `times`). For the
    RBF kernel of dense vectors, preparing means centring, scaling and squared norms, so that a tile is one matrix
    product and one exponential.
    """

    def __init__(self, kernel: Kernel, objects: Any) -> None:
        self.evaluator, self.objects = Evaluator(kernel, chunk_entries=TILE), objects

    @cached_property
    def diagonal(self) -> Array:
        """k(x, x) of every object."""
        return np.asarray(self.evaluator.diag(self.objects), dtype=np.float64)

    @property
    def is_quick(self) -> bool:
        """Whether the kernel is a function of inner products of short dense vectors."""
        return is_quick(self.evaluator.kernel, self.objects)

    @cached_property
    def dtype(self) -> Any:
        """The float type of the kernel's values."""
        if self._points is not None:
            return self._points.dtype
        one = take(self.objects, np.arange(1))
        return self.evaluator.block(one, one).dtype

    @cached_property
    def _points(self) -> Array | None:
        """(n, d + 2) rows p = (sqrt(2 gamma) (x - mean), -gamma |x - mean|², 1) of an RBF kernel; else None.

        With the last two columns of q exchanged, p qᵀ = -gamma |x - z|². Two rows far from the mean lose digits, and
        are compared by their differences instead; None if they are many. With length scales gamma is one number per
        feature.
        """
        kernel, X = self.evaluator.kernel, self.objects
        if type(kernel) is not RBF or not is_vectors(X) or is_sparse(X) or len(X) == 0:
            return None
        if X.dtype not in (np.float32, np.float64):
            X = X.astype(np.float64)
        scale = kernel.scale
        if X.dtype == np.float32 and not np.all((scale > 1e-30) & (scale < 1e30)):
            return None
        points = np.empty((X.shape[0], X.shape[1] + 2), dtype=X.dtype)
        own = points[:, :-2]
        np.subtract(X, X.mean(axis=0, dtype=np.float64).astype(X.dtype), out=own)
        own *= scale
        with np.errstate(over="ignore"):
            norms = np.einsum("ij,ij->i", own, own)
        if not (np.isfinite(norms).all() and np.mean(norms > FAR[X.dtype]) ** 2 <= FEW_FAR):
            return None
        own *= math.sqrt(2.0)
        points[:, -2], points[:, -1] = -norms, 1.0
        return points

    def _far(self, points: Array) -> Indices:
        """Which prepared rows are so far from the mean that the expansion loses digits among them."""
        return np.flatnonzero(points[:, -2] < -self._limit)

    @cached_property
    def _limit(self) -> float:
        """The squared length beyond which rows are far; in single precision few rows decide about the error of all."""
        assert self._points is not None
        if self._points.dtype != np.float32:
            return FAR[self._points.dtype]
        usual = int((1.0 - FAR_SHARE) * (len(self._points) - 1))
        norms = -self._points[:, -2]
        return min(FAR[self._points.dtype], max(NEAR, float(np.partition(norms, usual)[usual])))

    def chosen(self, where: Indices | None = None) -> Any:
        """The objects at ``where`` (None: all), prepared for `fill` and `times`."""
        if self._points is not None:
            return self._points if where is None else self._points[where]
        return self.objects if where is None else take(self.objects, where)

    def fill(self, out: Array, left: Any, right: Any) -> None:
        """Write k(left, right) into ``out``; both sides come from `chosen`."""
        if self._points is not None:
            buffer = np.empty((min(TILE_ROWS, len(left)), min(TILE_COLUMNS, len(right))), dtype=self.dtype)
            for start in range(0, len(right), TILE_COLUMNS):
                other = _exchanged(right[start : start + TILE_COLUMNS])
                for first in range(0, len(left), TILE_ROWS):
                    some = left[first : first + TILE_ROWS]
                    tile = buffer[: len(some), : len(other)]
                    np.matmul(some, other.T, out=tile)
                    np.minimum(tile, 0.0, out=tile)
                    np.exp(tile, out=out[first : first + TILE_ROWS, start : start + TILE_COLUMNS], casting="same_kind")
            mine, theirs = self._far(left), self._far(right)
            if len(mine) and len(theirs):
                out[np.ix_(mine, theirs)] = _by_differences(left[mine], right[theirs])
            note(len(left) * len(right))
            return
        if not _is_dense_product(self.evaluator.kernel, self.objects):
            for part, block in self.evaluator.chunks(left, right):
                out[part] = block
            return
        for start in range(0, len(right), TILE_COLUMNS):
            few = right[start : start + TILE_COLUMNS]
            for part, block in self.evaluator.chunks(left, few):
                out[part, start : start + TILE_COLUMNS] = block

    def block(self, left: Any, right: Any) -> Array:
        """k(left, right); both sides come from `chosen`."""
        out = np.empty((count_objects(left), count_objects(right)), dtype=self.dtype)
        self.fill(out, left, right)
        return out

    def times(self, left: Any, right: Any, weights: Array) -> Array:
        """k(left, right) weights, tile by tile; both sides come from `chosen`."""
        n, m = count_objects(left), count_objects(right)
        out = np.zeros((n, *weights.shape[1:]))
        if self._points is None:
            for start in range(0, m, TILE_COLUMNS):
                few = rows(right, slice(start, start + TILE_COLUMNS))
                for part, block in self.evaluator.chunks(left, few):
                    out[part] += block @ weights[start : start + TILE_COLUMNS].astype(block.dtype, copy=False)
            return out
        weights = weights.astype(self.dtype, copy=False)
        buffer = np.empty((min(TILE_ROWS, n), min(TILE_COLUMNS, m)), dtype=self.dtype)
        far = self._far(left)
        for start in range(0, m, TILE_COLUMNS):
            theirs = self._far(right[start : start + TILE_COLUMNS])
            other, own = _exchanged(right[start : start + TILE_COLUMNS]), weights[start : start + TILE_COLUMNS]
            for first in range(0, n, TILE_ROWS):
                some = left[first : first + TILE_ROWS]
                tile = buffer[: len(some), : len(other)]
                np.matmul(some, other.T, out=tile)
                np.minimum(tile, 0.0, out=tile)
                np.exp(tile, out=tile)
                if len(far) and len(theirs):
                    mine = far[np.searchsorted(far, first) : np.searchsorted(far, first + TILE_ROWS)] - first
                    if len(mine):
                        tile[np.ix_(mine, theirs)] = _by_differences(some[mine], right[start + theirs])
                out[first : first + TILE_ROWS] += tile @ own
        note(n * m)
        return out

    def matrix(self) -> Array:
        """All of k(X, X) in float64, exactly symmetric where the kernel is; each pair is compared once."""
        n = count_objects(self.objects)
        if self._points is None:
            return self.evaluator.symmetric(self.objects).astype(np.float64, copy=False)
        out = np.empty((n, n))
        for start in range(0, n, TILE_COLUMNS):
            few = slice(start, min(start + TILE_COLUMNS, n))
            self.fill(out[: few.stop, few], self._points[: few.stop], self._points[few])
            out[few, :start] = out[:start, few].T
            lower = np.tril_indices(few.stop - start, -1)
            out[few, few][lower] = out[few, few].T[lower]
        out[np.diag_indices(n)] = self.diagonal
        return out

    def rounded(self, bearable: float) -> KernelValues:
        """Return this in single precision if the root mean square error of every row is below ``bearable``.

        Otherwise return it in double precision.
        """
        dtype = self.objects.dtype if is_vectors(self.objects) else None
        if dtype != np.float32 and not (dtype == np.float64 and _is_dense_product(self.evaluator.kernel, self.objects)):
            return self
        kernel, where = self.evaluator.kernel, self._sample()
        single = self if dtype == np.float32 else KernelValues(kernel, self.objects.astype(np.float32))
        double = take(self.objects, where).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # overflow leads to double precision
            if single._points is not None:
                some = single.chosen(where)
                values = single.block(some, some)
            else:
                some = take(single.objects, where)
                note(kernel.block_entries(len(where), len(where), same=True))
                values = kernel(some, some)
            error = self.evaluator.block(double, double) - values
        if not np.sqrt(np.mean(np.square(error), axis=1)).max(initial=0.0) <= bearable:  # also where it is NaN
            return self if dtype == np.float64 else KernelValues(kernel, self.objects.astype(np.float64))
        return single

    def in_single(self, length: float, bearable: float) -> KernelValues:
        """Return this in single precision if products with vectors of that length are accurate to ``bearable``.

        Only for the RBF kernel of dense vectors. Its rows p and q are rounded after they are centred and scaled, so an
        entry is off by about eps (|p|² + |q|²); errors of both signs add up to that times the vector's length. Rows far
        from the mean are compared by their differences.
        """
        if self._points is None:
            return self
        single = KernelValues(self.evaluator.kernel, self.objects)
        single._points = self._points.astype(np.float32, copy=False)
        longest = 2.0 * min(-float(self._points[:, -2].min()), single._limit)
        return single if np.finfo(np.float32).eps * longest * length <= bearable else self

    def doubled(self) -> KernelValues:
        """The same in double precision."""
        if not is_vectors(self.objects) or self.objects.dtype != np.float32:
            return self
        return KernelValues(self.evaluator.kernel, self.objects.astype(np.float64))

    def _sample(self) -> Indices:
        """Random rows, and the rows with the largest entries."""
        n = count_objects(self.objects)
        largest = abs(self.objects).max(axis=1)
        largest = largest.toarray().ravel() if is_sparse(self.objects) else largest
        few = min(n, PRECISION_SAMPLE)
        random = np.random.default_rng(0).choice(n, few, replace=False)
        return np.union1d(random, np.argpartition(largest, n - few)[n - few :])

    def product(self, b: Array, some: Indices | None = None) -> Array:
        """(K b)[some], or all of K b; objects with a coefficient of zero are skipped."""
        used = np.flatnonzero(b)
        return self.times(self.chosen(some), self.chosen(used), b[used])


def _by_differences(left: Array, right: Array) -> Array:
    """exp(-gamma |x - z|²) of prepared RBF rows, from their differences in double precision."""
    return np.exp(-0.5 * cdist(left[:, :-2], right[:, :-2], "sqeuclidean"))


def _exchanged(points: Array) -> Array:
    """A copy of prepared RBF rows with the last two columns exchanged."""
    out = points.copy()
    out[:, -2], out[:, -1] = 1.0, points[:, -2]
    return out
