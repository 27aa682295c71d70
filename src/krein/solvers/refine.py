"""The exact SVM of the exact kernel, from a factored solution of nearly the same problem.

In: a task, and its dual on the factored matrix. Out: the task's dual with the kernel itself. The factored solution
says which rows can be support vectors: they are the pool, on which the kernel's own problem is solved (`smo`). Every
other row is checked with the kernel, those that violate their condition join the pool, until there are none. A row that
was checked once is looked at again only where the solution has moved further since than the row's condition has room:
|f(x) - f'(x)| <= |w - w'| sqrt(k(x, x)). No matrix of the pool is formed: of the rows that ever have a coefficient
those are kept which fit into memory, the others are evaluated again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from tqdm import tqdm

from krein.approximation import Approximation
from krein.arrays import Array, Indices
from krein.errors import warn
from krein.kernels import Evaluator, count_objects, take
from krein.solvers.dense_dual import NotConverged, Task, made_exact, violation
from krein.solvers.dual import Dual, Path
from krein.solvers.problem import central_multiplier
from krein.solvers.smo import BLOCK, descend

__all__ = ["ALLOWED", "SCREENED", "kernel_product", "refine_exactly"]

SCREENED = (1e-2, 100)  # relative gap of the factored dual that is enough, and its steps at most
ALLOWED = 1e-3  # violation of a row that is left, in units of a label, at most: LIBSVM's default. 1000 tol below that
ROUGH = 100.0  # times that is enough before the other rows were seen, and while many of them violate
MANY = 0.5  # rows of the pool
ROUNDS = 30
POOL = 2.0  # rows in the pool, in factored support vectors
LEAST = 1000  # rows in the pool at least
CACHED = 1000.0  # megabytes of rows that are kept at least, if there are as many; else LIBSVM's cache_size
STEPS = 200  # steps in a round at most, per row of the pool
CHUNK = 2**20  # entries evaluated at a time: what a kernel prepares of some ten thousand columns is then little beside
POLISHED = 3000  # rows with a coefficient up to which a tol below LIBSVM's is met by an active-set polish


def refine_exactly(
    a: Approximation, task: Task, dual: Dual, *, tol: float, options: dict[str, Any], verbose: int = 0
) -> Dual:
    """Return the dual of ``task`` under the kernel of ``a`` itself; ``dual`` is that of its factorization.

    No row violates its condition by more than 1000 ``tol``, and at most by 1e-3 (in units of a label, or of what half
    of the targets are within): scikit-learn's own default, for which float32 rows are compared in single precision.
    """
    fine = min(ALLOWED, 1e3 * tol)
    exact = _Exact(a, task.rows, single=fine >= ALLOWED)
    size = task.spread or float(np.mean(exact.diagonal)) * float(task.high.max())
    allowed = fine * size
    slack = _slack(task, _factored(a, task, dual) - task.linear + dual.intercept)
    order = np.argsort(slack, kind="stable")
    first = min(len(slack), max(LEAST, int(POOL * np.count_nonzero(slack <= 1e-6 * size))))
    b = _begun(task, order)
    pool = _Pool(exact, np.union1d(order[:first], np.flatnonzero(b)), 1e6 * max(CACHED, options["cache_size"]))
    product = np.zeros(len(b))
    product[pool.where] = exact.product(b, pool.where)
    room = np.full(len(b), -np.inf)  # how far the solution may move before a row that is not in the pool matters
    steps, left, worst, mu, rough = dual.n_iter, 0, np.inf, 0.0, True
    path: Path = ()  # products of rows that need no look are old, but their conditions hold: they add nothing to a gap
    with tqdm(desc="refine", disable=verbose <= 0) as bar:
        for _ in range(ROUNDS):
            where, asked = pool.where, allowed * (ROUGH if rough else 1.0)
            own, before, was, last = task.on(where), b[where], product[where], mu
            moving, values = before.copy(), was.copy()
            used, worst = descend(own, moving, values, pool.rows, asked, 10**5 + STEPS * len(where))
            b[where], product[where], steps = moving, values, steps + used
            mu = _intercept(own, moving, values)
            moved = np.sqrt(max(0.0, float((moving - before) @ (values - was))))  # |w - w'|
            room -= moved * np.sqrt(exact.diagonal) + abs(mu - last)
            unsure = room < -allowed
            unsure[where] = False
            there = np.flatnonzero(unsure)
            product[there] = exact.product(b, there)
            room[there] = _slack(task, product - task.linear + mu)[there]
            left = int(np.count_nonzero(room[there] < -allowed))
            path = (*path, (steps, _judged(task, exact, b, mu, product, steps, False).gap))
            bar.update()
            bar.set_postfix(pool=len(where), checked=len(there), joining=left)
            if left:
                more = min(left + min(2 * left, BLOCK), max(len(where), LEAST))  # some that are next to violate, too
                pool.join(there[np.argsort(room[there], kind="stable")[:more]])
            elif not rough or worst <= allowed:
                break
            rough = left > MANY * len(where)
    found = replace(_judged(task, exact, b, mu, product, steps, left == 0 and worst <= allowed), path=path)
    if not found.converged:
        warn(
            f"refine='exact' ended with {left} of {len(b)} rows outside the pool that violate their condition, and "
            f"with a violation of {worst:.2g} in it where {allowed:.2g} is allowed; the relative duality gap is "
            f"{found.gap:.2g}. Raise the rank, so that it starts nearer, or tol.",
            NotConverged,
        )
    return _polished(task, exact, found, allowed, tol) if fine < ALLOWED else found


class _Exact:
    """The kernel's own values among the rows of a task."""

    def __init__(self, a: Approximation, rows: Indices, single: bool) -> None:
        objects = take(a.objects, rows)
        if not single and getattr(objects, "dtype", None) == np.float32:
            objects = objects.astype(np.float64)
        self.evaluator, self.objects = Evaluator(a.kernel, chunk_entries=CHUNK), objects
        self.diagonal = np.asarray(self.evaluator.diag(objects), dtype=np.float64)

    def product(self, b: Array, some: Indices) -> Array:
        """(K b)[some], in chunks."""
        return kernel_product(self.evaluator, self.objects, b, take(self.objects, some))


def kernel_product(evaluator: Evaluator, objects: Any, b: Array, others: Any) -> Array:
    """k(others, objects) b, in chunks, without the objects whose b is zero."""
    used = np.flatnonzero(b)
    out, weights = np.zeros(count_objects(others)), b[used]
    for part, block in evaluator.chunks(others, take(objects, used)):
        out[part] = block @ weights.astype(block.dtype, copy=False)
    return out


class _Pool:
    """Rows of the kernel's matrix on the positions ``where``, kept as long as there is room; more columns may join."""

    def __init__(self, exact: _Exact, where: Indices, nbytes: float) -> None:
        self.exact, self.where, self.nbytes = exact, np.empty(0, dtype=np.intp), nbytes
        self._parts: list[tuple[slice, _Columns]] = []
        self._scratch: Array = np.empty((0, 0))
        self.join(where)

    def join(self, more: Indices) -> None:
        """Let the columns ``more`` join."""
        start = len(self.where)
        self.where = np.concatenate([self.where, more])
        columns = _Columns(self.exact, more, self.nbytes if start == 0 else 0.25 * self.nbytes)
        self._parts.append((slice(start, len(self.where)), columns))
        self._scratch = np.empty((min(BLOCK, len(self.where)), len(self.where)), dtype=columns.dtype)

    def rows(self, some: Indices, columns: Indices | None = None) -> Array:
        """K[where[some], where], or the columns of it; overwritten by the next call."""
        names = self.where[some]
        if columns is None:
            out = self._scratch[: len(some)]
            for part, kept in self._parts:
                kept.read(names, out[:, part])
            return out
        out = np.empty((len(some), len(columns)), dtype=self._scratch.dtype)
        for part, kept in self._parts:
            inside = np.flatnonzero((columns >= part.start) & (columns < part.stop))
            out[:, inside] = kept.entries(names, columns[inside] - part.start)
        return out


class _Columns:
    """k(x, Z) for a fixed collection Z, kept for the last x that were asked for."""

    def __init__(self, exact: _Exact, where: Indices, nbytes: float) -> None:
        self.exact, self.objects = exact, take(exact.objects, where)
        self.dtype = exact.evaluator.block(take(exact.objects, where[:1]), take(self.objects, np.arange(1))).dtype
        n = len(exact.diagonal)
        capacity = int(min(n, max(2 * BLOCK, nbytes / (len(where) * self.dtype.itemsize))))
        self._kept = np.empty((capacity, len(where)), dtype=self.dtype)  # its pages are touched as it fills
        self._slot = np.full(n, -1)  # where a row is kept
        self._owner = np.full(capacity, -1)
        self._next = 0

    def read(self, some: Indices, out: Array) -> None:
        """Write k(x, Z) for the positions ``some`` into ``out``."""
        for place, slot in enumerate(self._slots(some).tolist()):
            out[place] = self._kept[slot]

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


def _factored(a: Approximation, task: Task, dual: Dual) -> Array:
    full = np.zeros(a.factorization.shape[0])
    full[task.rows] = dual.coefficients
    return np.asarray((a.factorization @ full)[task.rows])


def _begun(task: Task, order: Indices) -> Array:
    """A point of the box with the right sum: zero, or the first of ``order`` at their upper ends."""
    b = np.zeros(len(order))
    if task.total:
        reached = np.cumsum(task.high[order])
        b[order] = np.clip(task.total - (reached - task.high[order]), 0.0, task.high[order])
    return b


def _slack(task: Task, slope: Array) -> Array:
    """How far each row is from having a coefficient other than 0; ``slope`` is K b - linear + intercept."""
    rise = np.where(task.high > 0.0, slope + task.epsilon, np.inf)
    fall = np.where(task.low < 0.0, task.epsilon - slope, np.inf)
    return np.asarray(np.minimum(rise, fall))


def _intercept(task: Task, b: Array, product: Array) -> float:
    """LIBSVM's: the mean of what the free rows ask for; the middle of what is allowed where none is free."""
    free = (b > task.low) & (b < task.high) & (b != 0.0)
    if not free.any():
        return central_multiplier(task, b, product)
    return float(np.mean((task.linear - product - task.epsilon * np.sign(b))[free]))


def _judged(task: Task, exact: _Exact, b: Array, mu: float, product: Array, steps: int, good: bool) -> Dual:
    point = task.problem(sp.diags(exact.diagonal)).point(b, mu, product)
    return Dual(b, mu, point.objective, point.gap, steps, good, "refined")


def _polished(task: Task, exact: _Exact, found: Dual, allowed: float, tol: float) -> Dual:
    """``found`` with its free rows solved for exactly, where they are few and no other row minds."""
    where = np.flatnonzero(found.coefficients)
    if len(where) > POLISHED:
        return found
    some = take(exact.objects, where)
    own = task.on(where)
    start = Dual(found.coefficients[where], found.intercept, np.nan, np.inf, found.n_iter, False, "")
    done = made_exact(np.asarray(exact.evaluator.symmetric(some), dtype=np.float64), own, start, tol)
    b = np.zeros(len(found.coefficients))
    b[where] = done.coefficients
    product = exact.product(b, np.arange(len(b)))
    if violation(task, b, product - task.linear + done.intercept).max() > allowed:
        return found
    better = _judged(task, exact, b, done.intercept, product, done.n_iter, found.converged)
    better = replace(better, path=(*found.path, (better.n_iter, better.gap)))
    return better if better.gap <= found.gap else found
