"""The matrix of a kernel by its rows, where all of it would be too much: evaluated when asked for, and kept if dear.

In: a kernel and objects. Out: parts of the kernel's matrix and products with it, in single precision where that is
enough. A kernel that is a function of inner products of short vectors takes less time than memory that it would be
written to, so it is evaluated again each time, a tile that stays in the processor's cache after the other. Rows of
other kernels are kept as long as there is room.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from krein.arrays import Array, Indices
from krein.kernels import Evaluator, Kernel, count_objects, is_vectors, take
from krein.kernels.counting import note
from krein.kernels.objects import is_sparse
from krein.solvers.smo import BLOCK, Rows

__all__ = ["Exact", "Pool", "is_quick", "kernel_product"]

TILE = 2**18  # entries evaluated at a time
WIDTH = 1024  # columns of a tile at most
FEATURES = 64  # of a vector, up to which an inner product takes less time than memory
SAMPLED = 150  # rows at random on which single precision is tried, and as many with the largest entries


def is_quick(kernel: Kernel, objects: Any) -> bool:
    """Whether the kernel is a function of inner products of short vectors."""
    if not is_vectors(objects) or is_sparse(objects):
        return False
    return kernel.traits.unitary_invariant and bool(objects.shape[1] <= FEATURES)


class Exact:
    """The kernel's own values among some objects."""

    def __init__(self, kernel: Kernel, objects: Any) -> None:
        self.evaluator, self.objects = Evaluator(kernel, chunk_entries=TILE), objects
        self.diagonal = np.asarray(self.evaluator.diag(objects), dtype=np.float64)

    @property
    def is_quick(self) -> bool:
        """Whether evaluating a row again takes less time than keeping it."""
        return is_quick(self.evaluator.kernel, self.objects)

    def rounded(self, bearable: float) -> Exact:
        """The same in single precision if no row minds: its error is below ``bearable``, in the mean square.

        Vectors that came in single precision are compared in double otherwise.
        """
        dtype = self.objects.dtype if is_vectors(self.objects) else None
        if dtype != np.float32 and not (dtype == np.float64 and self.is_quick):
            return self
        some = take(self.objects, self._sample())
        single, double = some.astype(np.float32), some.astype(np.float64)
        kernel = self.evaluator.kernel
        note(kernel.block_entries(single.shape[0], single.shape[0], same=True))
        with np.errstate(over="ignore", invalid="ignore"):  # double is the answer to what is too large
            error = self.evaluator.block(double, double) - kernel(single, single)
        minds = not np.sqrt(np.mean(np.square(error), axis=1)).max(initial=0.0) <= bearable
        wanted = np.float64 if minds else np.float32
        return self if dtype == wanted else Exact(kernel, self.objects.astype(wanted))

    def _sample(self) -> Indices:
        """Some rows at random, and those of the largest entries."""
        n = len(self.diagonal)
        largest = abs(self.objects).max(axis=1)
        largest = largest.toarray().ravel() if is_sparse(self.objects) else largest
        few = min(n, SAMPLED)
        random = np.random.default_rng(0).choice(n, few, replace=False)
        return np.union1d(random, np.argpartition(largest, n - few)[n - few :])

    def product(self, b: Array, some: Indices) -> Array:
        """(K b)[some]."""
        return kernel_product(self.evaluator, self.objects, b, take(self.objects, some))


def kernel_product(evaluator: Evaluator, objects: Any, b: Array, others: Any) -> Array:
    """k(others, objects) b, tile by tile, without the objects whose b is zero."""
    used = np.flatnonzero(b)
    out = np.zeros(count_objects(others))
    for start in range(0, len(used), WIDTH):
        few = used[start : start + WIDTH]
        for part, block in evaluator.chunks(others, take(objects, few)):
            out[part] += block @ b[few].astype(block.dtype, copy=False)
    return out


class Pool(Rows):
    """The kernel's matrix on the positions ``where``, to which more may be added."""

    def __init__(self, exact: Exact, where: Indices, nbytes: float) -> None:
        self.exact, self.where, self.nbytes = exact, np.empty(0, dtype=np.intp), nbytes
        self._parts: list[tuple[slice, _Kept]] = []  # columns that joined together; none if it is quick
        self.join(where)

    def join(self, more: Indices) -> None:
        """Let the positions ``more`` join."""
        start = len(self.where)
        self.where = np.concatenate([self.where, more])
        if self.exact.is_quick:
            self._objects = take(self.exact.objects, self.where)
            return
        kept = _Kept(self.exact, more, self.nbytes if start == 0 else 0.25 * self.nbytes)
        self._parts.append((slice(start, len(self.where)), kept))

    def among(self, some: Indices) -> Array:
        names = self.where[some]
        if self.exact.is_quick:
            own = take(self.exact.objects, names)
            return self.exact.evaluator.block(own, own)
        out = np.empty((len(some), len(some)))
        for part, kept in self._parts:
            inside = np.flatnonzero((some >= part.start) & (some < part.stop))
            out[:, inside] = kept.entries(names, some[inside] - part.start)
        return out

    def times(self, some: Indices, weights: Array) -> Array:
        names = self.where[some]
        if self.exact.is_quick:
            return kernel_product(self.exact.evaluator, take(self.exact.objects, names), weights, self._objects)
        return np.concatenate([kept.combined(names, weights) for _, kept in self._parts])


class _Kept:
    """k(x, Z) for a fixed collection Z, kept for the last x that were asked for."""

    def __init__(self, exact: Exact, where: Indices, nbytes: float) -> None:
        self.exact, self.objects = exact, take(exact.objects, where)
        dtype = exact.evaluator.block(take(exact.objects, where[:1]), take(self.objects, np.arange(1))).dtype
        n = len(exact.diagonal)
        capacity = int(min(n, max(2 * BLOCK, nbytes / (len(where) * dtype.itemsize))))
        self._kept = np.empty((capacity, len(where)), dtype=dtype)  # its pages are touched as it fills
        self._slot = np.full(n, -1)  # where a row is kept
        self._owner = np.full(capacity, -1)
        self._next = 0

    def combined(self, some: Indices, weights: Array) -> Array:
        """k(Z, x) weights for the positions ``some``."""
        out = np.zeros(self._kept.shape[1])
        slots = self._slots(some)
        for part in _parts(len(some), max(1, TILE // max(1, len(out)))):
            out += weights[part].astype(self._kept.dtype) @ self._kept[slots[part]]
        return out

    def entries(self, some: Indices, columns: Indices) -> Array:
        """k(x, z) for the positions ``some`` and a choice of Z."""
        return np.asarray(self._kept[self._slots(some)[:, None], columns])

    def _slots(self, some: Indices) -> Indices:
        """Where the rows ``some`` are kept; one that had to make room for another of them is evaluated again."""
        while True:
            slots = self._slot[some]
            missing = some[slots < 0]
            if len(missing) == 0:
                return slots
            for part, block in self.exact.evaluator.chunks(take(self.exact.objects, missing), self.objects):
                self._keep(missing[part], block)

    def _keep(self, names: Indices, block: Array) -> None:
        slots = (self._next + np.arange(len(names))) % len(self._owner)
        self._next = int(slots[-1]) + 1
        gone = self._owner[slots]
        self._slot[gone[gone >= 0]] = -1
        self._kept[slots], self._owner[slots], self._slot[names] = block, names, slots


def _parts(n: int, step: int) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, n, step))
