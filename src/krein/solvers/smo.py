"""Sequential minimal optimisation of the SVM dual in blocks of rows, with a matrix that is evaluated on demand.

In: a task, a point in its box, its product with the matrix, and access to rows of the matrix (`Pool`). Out: the point
and the product, moved until no pair of rows violates the optimality conditions by more than a tolerance. The rows that
violate them most form a block, which is solved by pairs of rows (LIBSVM's second-order choice), in the float type of
the matrix. One product then updates the gradient of all rows, in float64. Only rows that change are evaluated.
A pool keeps
rows that are needed repeatedly, which is ten times faster than to evaluate them again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krein.arrays import Array, Indices, strips
from krein.kernels import count_objects
from krein.solvers.dense_dual import Task
from krein.solvers.kernel_values import TILE, TILE_ROWS, KernelValues

__all__ = ["Pool", "descend"]

# A block has at most BLOCK rows.
BLOCK = 2000
# A block is solved until this share of the largest violation is left.
BLOCK_SHARE = 0.1
# At most this many pairs per row of the block are optimised before the next block is chosen.
STEPS_PER_ROW = 20
# The curvature of a pair is at least this, relative to the diagonal.
LEAST_CURVATURE = 1e-12


def descend(
    task: Task, b: Array, product: Array, matrix: Pool, tol: float, limit: int, size: int | None = None
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


class Pool:
    """The kernel's matrix on the positions ``where``; rows that were needed are kept, in up to ``nbytes`` bytes.

    A full cache does not change any more, and other rows are evaluated each time, which is better if the same rows are
    needed again and again.
    """

    def __init__(self, exact: KernelValues, where: Indices, nbytes: float) -> None:
        self.exact, self.where = exact, where
        n, m = count_objects(exact.objects), len(where)
        self._columns = exact.chosen(None if m == n and np.array_equal(where, np.arange(n)) else where)
        capacity = int(min(m, nbytes / (max(1, m) * np.dtype(exact.dtype).itemsize)))
        self._kept = np.empty((capacity, m), dtype=exact.dtype)
        self._slot = np.full(m, -1)  # where a row is kept
        self._n_kept = 0

    def among(self, some: Indices) -> Array:
        """K[some][:, some]; rows that are not kept are not evaluated as a whole."""
        out = np.empty((len(some), len(some)), dtype=self._kept.dtype)
        slots = self._slot[some]
        for k in np.flatnonzero(slots >= 0):  # faster than one choice of rows and columns
            self._kept[slots[k]].take(some, out=out[k], mode="clip")  # "raise" would buffer
        rest = np.flatnonzero(slots < 0)
        if len(rest):
            out[rest] = self.exact.block(self._chosen(some[rest]), self._chosen(some))
        return out

    def times(self, some: Indices, weights: Array) -> Array:
        """K[:, some] weights."""
        out = np.zeros(len(self.where))
        self._keep(some)
        slots = self._slot[some]
        there = np.flatnonzero(slots >= 0)
        for strip in strips(len(there), len(out), TILE):
            part = there[strip]
            out += weights[part].astype(self._kept.dtype) @ self._kept[slots[part]]
        rest = np.flatnonzero(slots < 0)
        if len(rest):
            out += self.exact.times(self._columns, self._chosen(some[rest]), weights[rest])
        return out

    def _chosen(self, some: Indices) -> Any:
        return self.exact.chosen(self.where[some])

    def _keep(self, some: Indices) -> None:
        missing = some[self._slot[some] < 0][: len(self._kept) - self._n_kept]
        for strip in strips(len(missing), 1, TILE_ROWS):
            rows = missing[strip]
            stop = self._n_kept + len(rows)
            self.exact.fill(self._kept[self._n_kept : stop], self._chosen(rows), self._columns)
            self._slot[rows], self._n_kept = np.arange(self._n_kept, stop), stop
