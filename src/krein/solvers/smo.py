"""Sequential minimal optimisation of the SVM dual in blocks of rows, with a matrix that is evaluated on demand.

In: a task, a point in its box, its product with the matrix, and access to rows of the matrix (`Rows`). Out: the point
and the product, moved until no pair of rows violates the optimality conditions by more than a tolerance. The rows that
violate them most form a block, which is solved by pairs of rows (LIBSVM's second-order choice), in the float type of
the matrix. One product then updates the gradient of all rows, in float64. Only rows that change are evaluated.
`Pool` and `Groups` are such matrices. `Cache` keeps rows that are needed repeatedly, which is ten times faster than to
evaluate them again.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from krein.arrays import Array, Indices, strips
from krein.kernels import count_objects
from krein.solvers.dense_dual import Task
from krein.solvers.kernel_values import TILE, TILE_ROWS, KernelValues

__all__ = ["Cache", "Groups", "Pool", "Rows", "descend"]

# A block has at most BLOCK rows.
BLOCK = 2000
# A block is solved until this share of the largest violation is left.
BLOCK_SHARE = 0.1
# At most this many pairs per row of the block are optimised before the next block is chosen.
STEPS_PER_ROW = 20
# The curvature of a pair is at least this, relative to the diagonal.
LEAST_CURVATURE = 1e-12


class Rows(Protocol):
    """A symmetric matrix K that is evaluated some rows at a time."""

    def among(self, some: Indices) -> Array:
        """K[some][:, some]."""
        ...

    def times(self, some: Indices, weights: Array) -> Array:
        """K[:, some] weights."""
        ...


def descend(
    task: Task, b: Array, product: Array, matrix: Rows, tol: float, limit: int, size: int | None = None
) -> tuple[int, float]:
    """Move ``b`` and ``product`` = K b in place until the violation is at most ``tol``; return (steps, violation).

    It stops after ``limit`` steps. ``size`` is the number of rows in a block, at most BLOCK.
    """
    gradient = product - task.linear
    steps = 0
    block: Indices = np.empty(0, dtype=np.intp)
    while True:
        rise, fall = gradient + _rising(task, b), gradient + _falling(task, b)
        worst = float(fall.max() - rise.min())
        if worst <= tol or steps >= limit:
            break
        block = _block(rise, fall, block, BLOCK if size is None else min(size, BLOCK))
        moved = b[block]
        used = _pairs(task.on(block), matrix.among(block), gradient[block], moved, max(BLOCK_SHARE * worst, 0.5 * tol))
        if used == 0:  # nothing in the block can move: rounding
            break
        steps += used
        changed = np.flatnonzero(moved != b[block])  # often few
        gradient += matrix.times(block[changed], (moved - b[block])[changed])
        b[block] = moved
    product[:] = gradient + task.linear
    return steps, worst


def _pairs(task: Task, K: Array, gradient: Array, b: Array, tol: float) -> int:
    """Solve a block to ``tol``, two rows at a time; ``b`` is moved in place. Returns the steps.

    It is done in the float type of K. The gradient is counted from its centre: rows that violate their condition are
    near it, and keep their digits in single precision.
    """
    half = 0.5 * np.diagonal(K)
    flat = max(LEAST_CURVATURE * float(half.mean()), float(np.finfo(K.dtype).tiny))
    half *= 1.0 + 4.0 * np.finfo(K.dtype).eps  # so that no curvature is below zero by rounding
    half += flat
    low, high, eps = task.low.tolist(), task.high.tolist(), task.epsilon
    rising, falling = _rising(task, b), _falling(task, b)
    centre = 0.5 * float((gradient + rising).min() + (gradient + falling).max())
    gradient = (gradient - centre).astype(K.dtype)
    rise, fall = (gradient + side.astype(K.dtype) for side in (rising, falling))
    slope, score, curvature = np.empty_like(half), np.empty_like(half), np.empty_like(half)
    for step in range(STEPS_PER_ROW * len(b)):
        i = int(rise.argmin())
        np.subtract(half, K[i], out=curvature)
        curvature += half[i]  # half of k(x, x) + k(z, z) - 2 k(x, z)
        np.subtract(fall, rise[i], out=slope)
        np.abs(slope, out=score)
        score *= slope  # negative for a pair that would not gain
        score /= curvature
        j = int(score.argmax())
        if slope[j] <= 0.0:  # curvatures below zero: the matrix is not psd
            j = int(slope.argmax())
        violation = float(slope[j])
        if violation <= tol and slope.max() <= tol:
            return step
        bi, bj = float(b[i]), float(b[j])
        top = 0.0 if eps and bi < 0.0 else high[i]  # a step ends where the slope of epsilon |b| changes
        bottom = 0.0 if eps and bj > 0.0 else low[j]
        t = min(0.5 * violation / max(float(curvature[j]), flat), top - bi, bj - bottom)
        np.subtract(K[i], K[j], out=score)
        score *= t
        gradient += score
        rise += score
        fall += score
        b[i] = bi = top if t == top - bi else bi + t
        b[j] = bj = bottom if t == bj - bottom else bj - t
        for k, value in ((i, bi), (j, bj)):
            rise[k] = np.inf if value >= high[k] else gradient[k] + (eps if value >= 0.0 else -eps)
            fall[k] = -np.inf if value <= low[k] else gradient[k] + (-eps if value <= 0.0 else eps)
    return STEPS_PER_ROW * len(b)


def _rising(task: Task, b: Array) -> Array:
    """What is added to the gradient if b rises: +-epsilon, or infinity at the upper bound."""
    return np.where(b < task.high, np.where(b >= 0.0, task.epsilon, -task.epsilon), np.inf)


def _falling(task: Task, b: Array) -> Array:
    """What is added to the gradient if b falls: +-epsilon, or minus infinity at the lower bound."""
    return np.where(b > task.low, np.where(b <= 0.0, -task.epsilon, task.epsilon), -np.inf)


def _block(rise: Array, fall: Array, last: Indices, size: int) -> Indices:
    """The rows that violate most, and the later part of the last block, so that two blocks do not undo each other."""
    size = min(size, len(rise))
    quarter = max(1, size // 4)
    first = np.argpartition(rise, quarter - 1)[:quarter]
    second = np.argpartition(-fall, quarter - 1)[:quarter]
    new = np.unique(np.concatenate([first, second]))
    kept = last[~np.isin(last, new)]
    return np.concatenate([kept[max(0, len(kept) - (size - len(new))) :], new])


class Cache:
    """A cache of rows k(x, Z) for a fixed collection Z = ``exact.objects[where]``.

    With ``recycle`` a new row replaces the oldest one. Without it a full cache does not change, and other rows are
    evaluated each time, which is better if the same rows are needed again and again.
    """

    def __init__(self, exact: KernelValues, where: Indices, nbytes: float, *, recycle: bool = False) -> None:
        self.exact, self.where, self.recycle = exact, where, recycle
        n = count_objects(exact.objects)
        self._columns = exact.chosen(None if len(where) == n and np.array_equal(where, np.arange(n)) else where)
        capacity = int(min(n, nbytes / (max(1, len(where)) * np.dtype(exact.dtype).itemsize)))
        self._kept = np.empty((capacity, len(where)), dtype=exact.dtype)
        self._slot = np.full(n, -1)  # where a row is kept
        self._owner = np.full(capacity, -1)
        self._next = 0

    def times(self, some: Indices, weights: Array) -> Array:
        """k(Z, x) weights for the positions ``some``."""
        out = np.zeros(len(self.where))
        self._keep(some)
        slots = self._slot[some]
        there = np.flatnonzero(slots >= 0)
        for strip in strips(len(there), len(out), TILE):
            part = there[strip]
            out += weights[part].astype(self._kept.dtype) @ self._kept[slots[part]]
        rest = np.flatnonzero(slots < 0)
        if len(rest):
            out += self.exact.times(self._columns, self.exact.chosen(some[rest]), weights[rest])
        return out

    def entries(self, some: Indices, columns: Indices) -> Array:
        """k(x, z) for the positions ``some`` and a choice of Z; rows that are not kept are not evaluated as a whole."""
        out = np.empty((len(some), len(columns)), dtype=self._kept.dtype)
        slots = self._slot[some]
        there, rest = np.flatnonzero(slots >= 0), np.flatnonzero(slots < 0)
        for k in there:  # faster than one choice of rows and columns
            self._kept[slots[k]].take(columns, out=out[k], mode="clip")  # "raise" would buffer
        if len(rest):
            out[rest] = self.exact.block(self.exact.chosen(some[rest]), self.exact.chosen(self.where[columns]))
        return out

    def _keep(self, some: Indices) -> None:
        missing = some[self._slot[some] < 0]
        if len(missing) == 0:
            return
        if self.recycle:
            needed = np.zeros(len(self._owner), dtype=bool)
            needed[self._slot[some[self._slot[some] >= 0]]] = True
            ring = np.roll(np.arange(len(needed)), -self._next)
            slots = ring[~needed[ring]][: len(missing)]
        else:
            slots = np.arange(self._next, min(self._next + len(missing), len(self._owner)))
        if len(slots) == 0:
            return
        missing = missing[: len(slots)]
        gone = self._owner[slots]
        self._slot[gone[gone >= 0]] = -1
        for strip in strips(len(slots), 1, TILE_ROWS):
            part = slots[strip]
            left = self.exact.chosen(missing[strip])
            if part[-1] - part[0] == len(part) - 1:
                self.exact.fill(self._kept[part[0] : part[-1] + 1], left, self._columns)
            else:
                self._kept[part] = self.exact.block(left, self._columns)
        self._owner[slots], self._slot[missing] = missing, slots
        self._next = int(slots[-1]) + 1
        if self.recycle:
            self._next %= len(self._owner)


class Pool(Rows):
    """The kernel's matrix on the positions ``where``, with rows kept in up to ``nbytes`` bytes."""

    def __init__(self, exact: KernelValues, where: Indices, nbytes: float) -> None:
        self.exact, self.where = exact, where
        self._cache = Cache(exact, where, nbytes)

    def among(self, some: Indices) -> Array:
        return self._cache.entries(self.where[some], some)

    def times(self, some: Indices, weights: Array) -> Array:
        return self._cache.times(self.where[some], weights)


class Groups(Rows):
    """The kernel matrix on several groups of objects, whose caches other tasks share.

    ``order`` holds the positions in this matrix of the objects of the first group, then of the second, and so on.
    """

    def __init__(self, caches: list[Cache], order: Indices) -> None:
        self._caches, self._order = caches, order
        self._names = np.empty(len(order), dtype=np.intp)
        self._names[order] = np.concatenate([cache.where for cache in caches])
        self._group = np.empty(len(order), dtype=np.intp)
        self._place = np.empty(len(order), dtype=np.intp)
        start = 0
        self._parts = []
        for i, cache in enumerate(caches):
            part = order[start : start + len(cache.where)]
            self._group[part], self._place[part] = i, np.arange(len(part))
            self._parts.append(part)
            start += len(part)

    def among(self, some: Indices) -> Array:
        names = self._names[some]
        out = np.empty((len(some), len(some)))
        for i, cache in enumerate(self._caches):
            inside = np.flatnonzero(self._group[some] == i)
            out[:, inside] = cache.entries(names, self._place[some[inside]])
        return out

    def times(self, some: Indices, weights: Array) -> Array:
        out = np.empty(len(self._order))
        for cache, part in zip(self._caches, self._parts, strict=True):
            out[part] = cache.times(self._names[some], weights)
        return out
