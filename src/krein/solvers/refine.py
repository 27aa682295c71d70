"""The SVM dual of a kernel on many rows, block by block, with the kernel's own values and without its matrix.

In: a task, `KernelValues` of its rows, and optionally initial coefficients. Out: the task's dual.

1. A random part of the rows is solved to a low accuracy. Its support vectors and the rows near the margin form the
   pool; all other coefficients stay at their bounds.
2. Pairs of rows in the pool are optimised (`smo`).
3. Rows outside the pool are checked with the kernel. Rows that violate their optimality condition join the pool, and
   rows of the pool that lie clearly at a bound leave it.
4. Steps 2 and 3 are repeated until no row violates its condition.

A row that was checked is checked again only if the solution has moved further than the slack of the row's condition
allows: |f(x) - f'(x)| <= |w - w'| sqrt(k(x, x)).

The pool is all rows if the kernel is expensive, or if at least half of the matrix fits into the cache: no entry is
evaluated twice then.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import warn
from krein.kernels import take
from krein.progress import progress_bar
from krein.solvers.dense_dual import KnownDiagonal, NotConverged, Task, made_exact, violation
from krein.solvers.dual import Dual, Path
from krein.solvers.kernel_values import KernelValues
from krein.solvers.problem import central_multiplier
from krein.solvers.smo import Pool, descend

__all__ = ["ALLOWED", "refine_exactly"]

# The largest violation of a row's condition at the end, in units of a label: LIBSVM's default, or 1000 tol if smaller.
ALLOWED = 1e-3
# The first stage stops at FIRST_VIOLATION times that violation, and each later stage at TIGHTENING times less.
FIRST_VIOLATION = 100.0
TIGHTENING = 10.0
# At most ROUNDS rounds of solving and checking are made.
ROUNDS = 40
# The first solution uses one row in FIRST_SHARE, but at least FIRST_ROWS rows.
FIRST_SHARE = 8
FIRST_ROWS = 1500
# Rows outside the pool join it if they would violate their condition after a further move of JOINING_DISTANCE labels.
JOINING_DISTANCE = 0.3
# Rows at a bound leave the pool if the slack of their condition exceeds LEAVING_DISTANCE labels, once less than
# REMAINING_SHARE of the pool would remain.
LEAVING_DISTANCE = 0.5
REMAINING_SHARE = 0.7
# The cache of rows has ROW_MEGABYTES megabytes, or cache_size if that is larger.
ROW_MEGABYTES = 1000.0
# Rows are not cached for vectors of at most CHEAP_FEATURES features, which are evaluated as fast as read.
CHEAP_FEATURES = 16
# All rows are in the pool from the beginning if the cache has room for this share of them.
KEPT_SHARE = 0.5
# For an expensive kernel a block has one in BLOCK_SHARE of the rows, but at least SMALLEST_BLOCK. Smaller blocks avoid
# evaluating rows that turn out not to matter.
BLOCK_SHARE = 8
SMALLEST_BLOCK = 500
# A round makes at most STEPS_PER_ROW steps per row of the pool.
STEPS_PER_ROW = 200
# Single precision may cost this share of the allowed violation, by rounding.
ROUNDING_SHARE = 0.5
# A tol below LIBSVM's is met by an active-set polish if at most POLISHED_ROWS coefficients are not zero, and by the
# dense matrix (`exact_svm`) if there are no more rows than that.
POLISHED_ROWS = 3000


def refine_exactly(
    exact: KernelValues,
    task: Task,
    start: Array | None = None,
    *,
    tol: float = 1e-6,
    cache_size: float = 200.0,
    shared: Pool | None = None,
    verbose: int = 0,
) -> Dual:
    """Return the dual of ``task`` with the kernel values ``exact`` of its rows, from coefficients ``start`` or nothing.

    No row violates its condition by more than 1000 ``tol``, and at most by 1e-3 (in units of a label, or of what half
    of the targets are within): scikit-learn's own default. Vectors are compared in single precision where rounding adds
    less than half of that. ``shared`` is the matrix of all rows, if other tasks use it too.
    """
    fine = min(ALLOWED, 1e3 * tol)
    usual = float(np.mean(np.abs(exact.diagonal)))
    size = task.spread(usual) or usual * float(task.high.max())
    allowed = fine * size
    cheap = exact.is_quick and exact.objects.shape[1] <= CHEAP_FEATURES
    nbytes = 0.0 if cheap else 1e6 * max(ROW_MEGABYTES, cache_size)
    m, steps = len(task.rows), 0
    if start is None and m >= 2 * FIRST_ROWS:
        start, steps, norm = _first(exact, task, FIRST_VIOLATION * ALLOWED * size, nbytes)
    else:
        start = _balanced(task, np.zeros(m) if start is None else np.clip(start, task.low, task.high))
        norm = float(np.linalg.norm(start)) or 0.5 * float(np.sqrt(m) * np.median(task.high - task.low))
    quick = exact.rounded(ROUNDING_SHARE * allowed / max(norm, 1e-300))
    state = _State(quick, task, start, nbytes, shared)
    found = state.solve(allowed, max(FIRST_VIOLATION * allowed, 0.1 * FIRST_VIOLATION * ALLOWED * size), steps, verbose)
    if fine < ALLOWED or (not found.converged and state.left == 0):
        found = _polished(task, exact.doubled(), found, allowed, tol)
    if not found.converged:
        warn(
            f"The exact dual ended with {state.left} of {m} rows outside the pool that violate their condition, and "
            f"with a violation of {state.worst:.2g} in it where {allowed:.2g} is allowed, after {found.n_iter} steps; "
            f"the relative duality gap is {found.gap:.2g}. Lower C, or raise tol.",
            NotConverged,
        )
    return found


class _State:
    """A point of the box, its product with the kernel's matrix, and the rows that are being moved.

    Rows outside the pool hold coefficients at an end of their range; their products are those of the last coefficients
    they were checked with.
    """

    def __init__(self, exact: KernelValues, task: Task, b: Array, nbytes: float, shared: Pool | None) -> None:
        self.exact, self.task, self.b, self.nbytes = exact, task, b, nbytes
        self.left, self.worst, self.mu = 0, np.inf, 0.0
        m = len(b)
        self.history = [b.copy()]  # the coefficients by which rows were checked,
        self.since = np.zeros(m, dtype=np.intp)  # and which of them the product of a row belongs to
        self.room = np.full(m, -np.inf)  # how far the slope of a row outside may move before it violates
        self.inside = np.ones(m, dtype=bool)
        room = nbytes >= KEPT_SHARE * m * m * np.dtype(exact.dtype).itemsize
        self.whole = shared is not None or room or not exact.is_quick
        used = np.flatnonzero(b)
        self.where: Indices = np.arange(m)
        if self.whole:
            self.pool = Pool(exact, self.where, nbytes) if shared is None else shared
            self.product = self.pool.times(used, b[used]) if len(used) else np.zeros(m)
            return
        self.product = exact.product(b)
        self.mu = _intercept(task, b, self.product)
        self.room = _room(task, b, self.product - task.linear + self.mu)
        self._gather(np.flatnonzero(self.room <= JOINING_DISTANCE * self._size))

    @property
    def _size(self) -> float:
        usual = float(np.mean(np.abs(self.exact.diagonal)))
        return self.task.spread(usual) or usual * float(self.task.high.max())

    def _gather(self, where: Indices) -> None:
        self.where = where
        self.inside = np.zeros(len(self.b), dtype=bool)
        self.inside[where] = True
        self.pool = Pool(self.exact, where, self.nbytes)

    def solve(self, allowed: float, asked: float, steps: int, verbose: int) -> Dual:
        """Move until no row violates its condition by more than ``allowed``, in stages that begin with ``asked``."""
        path: Path = ()
        done = False
        with progress_bar(what="refine", verbose=verbose) as bar:
            for _ in range(ROUNDS):
                asked = max(asked, allowed)
                steps += self._descend(asked)
                checked = self._check(asked)
                path = (*path, (steps, self._judged(steps, False).gap))
                bar.update()
                bar.set_postfix(pool=len(self.where), checked=checked, joining=self.left, asked=asked, refresh=False)
                if self.left == 0:
                    done = asked <= allowed and self.worst <= allowed
                    if asked <= allowed:
                        break
                    asked /= TIGHTENING
                self._regather(asked)
        if not self.whole:  # coefficients at their ends outside the pool belong to the objective
            self._follow(np.flatnonzero(~self.inside & (self.b != 0.0)))
        return replace(self._judged(steps, done), path=path)

    def _descend(self, asked: float) -> int:
        where = self.where
        own, before, was, last = self.task.on(where), self.b[where], self.product[where], self.mu
        moving, values = before.copy(), was.copy()
        used, self.worst = descend(
            own, moving, values, self.pool, asked, 10**5 + STEPS_PER_ROW * len(where), _block(self.exact)
        )
        self.b[where], self.product[where] = moving, values
        self.mu = _intercept(own, moving, values)
        moved = np.sqrt(max(0.0, float((moving - before) @ (values - was))))  # |w - w'|
        if not self.whole:
            self.room -= moved * np.sqrt(np.abs(self.exact.diagonal)) + abs(self.mu - last)
        return used

    def _check(self, asked: float) -> int:
        """Check the rows outside the pool that may violate their condition; return their number."""
        self.left = 0
        if self.whole:
            return 0
        there = np.flatnonzero(~self.inside & (self.room < -asked))
        self._follow(there)
        slope = self.product - self.task.linear + self.mu
        self.room[there] = _room(self.task, self.b, slope)[there]
        self.left = int(np.count_nonzero(self.room[there] < -asked))
        return len(there)

    def _regather(self, asked: float) -> None:
        """Add rows that violate their condition, or nearly, to the pool, and remove rows clearly at a bound."""
        if self.whole:
            return
        slope = self.product - self.task.linear + self.mu
        own = _room(self.task, self.b, slope)
        size = self._size
        stay = self.inside & (own <= LEAVING_DISTANCE * size)
        leave = int(np.count_nonzero(self.inside) - np.count_nonzero(stay))
        if leave < (1.0 - REMAINING_SHARE) * len(self.where):
            stay = self.inside
        elif leave:
            gone = self.inside & ~stay
            self.room[gone] = own[gone]
            self.since[gone] = len(self.history)
            self.history.append(self.b.copy())
        elif self.left == 0:
            return
        join = (
            ~self.inside & (self.room < min(JOINING_DISTANCE * size, 10.0 * asked))
            if self.left
            else np.zeros(len(own), bool)
        )
        self._follow(np.flatnonzero(join))
        if join.any() or stay is not self.inside:
            self._gather(np.flatnonzero(stay | join))

    def _follow(self, there: Indices) -> None:
        """Make the products of the rows ``there`` those of ``b``, from where they were if few coefficients moved."""
        if len(there) == 0:
            return
        for step in np.unique(self.since[there]):
            mine, moved = there[self.since[there] == step], self.b - self.history[step]
            if np.count_nonzero(moved) > np.count_nonzero(self.b):
                self.product[mine], moved = 0.0, self.b
            self.product[mine] += self.exact.product(moved, mine)
        self.since[there] = len(self.history)
        self.history.append(self.b.copy())

    def _judged(self, steps: int, good: bool) -> Dual:
        return _judged(self.task, self.exact, self.b, self.mu, self.product, steps, good)


def _first(exact: KernelValues, task: Task, asked: float, nbytes: float) -> tuple[Array, int, float]:
    """A point near the solution from a random part of the rows, the number of steps, and the expected norm of b.

    For a one-class task the total is scaled to the part, and then the rows of the lowest decision values get their
    upper bounds.
    """
    m = len(task.rows)
    some = np.sort(np.random.default_rng(0).choice(m, max(FIRST_ROWS, m // FIRST_SHARE), replace=False))
    own = task.on(some)
    if task.total:
        own = replace(own, total=task.total * float(own.high.sum()) / float(task.high.sum()))
    part = KernelValues(exact.evaluator.kernel, take(exact.objects, some))
    bearable = asked / max(1e-300, float(np.sqrt(len(some)) * np.median(own.high - own.low)))
    part = part.rounded(bearable)
    b = _balanced(own, np.zeros(len(some)))
    product = part.product(b)
    steps, _ = descend(
        own,
        b,
        product,
        Pool(part, np.arange(len(some)), nbytes),
        asked,
        10**5 + STEPS_PER_ROW * len(some),
        _block(part),
    )
    norm = float(np.linalg.norm(b)) * np.sqrt(m / len(some))
    whole: Array = np.zeros(m)
    if task.total:
        used = np.flatnonzero(b)
        lowest = np.argsort(exact.times(exact.chosen(), exact.chosen(some[used]), b[used]), kind="stable")
        whole = _balanced(task, whole, lowest)
    else:
        whole[some] = b
    return whole, steps, norm


def _block(exact: KernelValues) -> int | None:
    return None if exact.is_quick else max(SMALLEST_BLOCK, len(exact.diagonal) // BLOCK_SHARE)


def _balanced(task: Task, b: Array, order: Indices | None = None) -> Array:
    """``b`` with the required sum; the difference goes to the first rows of ``order``, up to their bounds."""
    lack = task.total - float(b.sum())
    if lack == 0.0:
        return b
    order = np.arange(len(b)) if order is None else order
    room = (task.high - b if lack > 0.0 else b - task.low)[order]
    reached = np.cumsum(room)
    out = b.copy()
    out[order] += np.sign(lack) * np.clip(abs(lack) - (reached - room), 0.0, room)
    return np.clip(out, task.low, task.high)


def _room(task: Task, b: Array, slope: Array) -> Array:
    """The slack of each row's condition: how far its slope may move; negative if it is violated.

    ``slope`` is K b - linear + intercept.
    """
    eps = task.epsilon
    rise = np.where(b < task.high, slope + np.where(b >= 0.0, eps, -eps), np.inf)
    fall = np.where(b > task.low, np.where(b <= 0.0, eps, -eps) - slope, np.inf)
    return np.asarray(np.minimum(rise, fall))


def _intercept(task: Task, b: Array, product: Array) -> float:
    """LIBSVM's intercept: the mean over the free rows, or the middle of the feasible interval if none is free."""
    free = (b > task.low) & (b < task.high) & (b != 0.0)
    if not free.any():
        return central_multiplier(task, b, product)
    return float(np.mean((task.linear - product - task.epsilon * np.sign(b))[free]))


def _judged(task: Task, exact: KernelValues, b: Array, mu: float, product: Array, steps: int, good: bool) -> Dual:
    point = task.problem(KnownDiagonal(exact.diagonal)).point(b, mu, product)
    return Dual(b, mu, point.objective, point.gap, steps, good, "refined")


def _polished(task: Task, exact: KernelValues, found: Dual, allowed: float, tol: float) -> Dual:
    """``found`` with its free rows solved for exactly, if they are few and no other row violates its condition then.

    On a nearly singular matrix pairs of rows need millions of steps, and a linear system does not.
    """
    where = np.flatnonzero(found.coefficients)
    if len(where) > POLISHED_ROWS:
        return found
    some = take(exact.objects, where)
    own = task.on(where)
    start = Dual(found.coefficients[where], found.intercept, np.nan, np.inf, found.n_iter, False, "")
    done = made_exact(np.asarray(exact.evaluator.symmetric(some), dtype=np.float64), own, start, tol)
    b = np.zeros(len(found.coefficients))
    b[where] = done.coefficients
    product = exact.product(b)
    if violation(task, b, product - task.linear + done.intercept).max() > allowed:
        return found
    better = _judged(task, exact, b, done.intercept, product, done.n_iter, True)
    better = replace(better, path=(*found.path, (better.n_iter, better.gap)))
    return better if better.gap <= found.gap or not found.converged else found
