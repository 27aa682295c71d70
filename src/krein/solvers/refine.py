"""The exact SVM of the exact kernel, from a factored solution of nearly the same problem.

In: a task, and its dual on the factored matrix. Out: the task's dual with the kernel itself. The factored solution
says which rows can be support vectors: they are the pool, on which the kernel's own problem is solved (`smo`). Every
other row is checked with the kernel, those that violate their condition join the pool, until there are none. A row that
was checked once is looked at again only where the solution has moved further since than the row's condition has room:
|f(x) - f'(x)| <= |w - w'| sqrt(k(x, x)). No matrix of the pool is formed (`rows`).
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
from krein.kernels import take
from krein.solvers.dense_dual import NotConverged, Task, made_exact, violation
from krein.solvers.dual import Dual, Path
from krein.solvers.problem import central_multiplier
from krein.solvers.rows import Exact, Pool
from krein.solvers.smo import BLOCK, descend

__all__ = ["ALLOWED", "SCREENED", "refine_exactly"]

SCREENED = (1e-2, 100)  # relative gap of the factored dual that is enough, and its steps at most
ALLOWED = 1e-3  # violation of a row that is left, in units of a label, at most: LIBSVM's default. 1000 tol below that
ROUGH = 100.0  # times that is enough before the other rows were seen, and while many of them violate
MANY = 0.5  # rows of the pool
ROUNDS = 30
POOL = 2.0  # rows in the pool, in factored support vectors
LEAST = 1000  # rows in the pool at least
CACHED = 1000.0  # megabytes of rows that are kept at least, if there are as many; else LIBSVM's cache_size
STEPS = 200  # steps in a round at most, per row of the pool
ROUNDED = 0.5  # of that violation, which single precision may cost a row: what rounding sums up to
POLISHED = 3000  # rows with a coefficient up to which a tol below LIBSVM's is met by an active-set polish


def refine_exactly(
    a: Approximation, task: Task, dual: Dual, *, tol: float, options: dict[str, Any], verbose: int = 0
) -> Dual:
    """Return the dual of ``task`` under the kernel of ``a`` itself; ``dual`` is that of its factorization.

    No row violates its condition by more than 1000 ``tol``, and at most by 1e-3 (in units of a label, or of what half
    of the targets are within): scikit-learn's own default. Vectors are compared in single precision where rounding adds
    less than half of that.
    """
    fine = min(ALLOWED, 1e3 * tol)
    exact = Exact(a.kernel, take(a.objects, task.rows))
    usual = float(np.mean(exact.diagonal))
    size = task.spread(usual) or usual * float(task.high.max())
    allowed = fine * size
    exact = exact.rounded(ROUNDED * allowed / max(float(np.linalg.norm(dual.coefficients)), 1e-300))
    slack = _slack(task, _factored(a, task, dual) - task.linear + dual.intercept)
    order = np.argsort(slack, kind="stable")
    first = min(len(slack), max(LEAST, int(POOL * np.count_nonzero(slack <= 1e-6 * size))))
    b = _begun(task, order)
    pool = Pool(exact, np.union1d(order[:first], np.flatnonzero(b)), 1e6 * max(CACHED, options["cache_size"]))
    product = np.zeros(len(b))
    product[pool.where] = exact.product(b, pool.where)
    room = np.full(len(b), -np.inf)  # how far the solution may move before a row that is not in the pool matters
    history: list[Array] = [np.zeros(len(b))]  # the coefficients by which rows were checked,
    since = np.zeros(len(b), dtype=np.intp)  # and which of them the product of a row is
    steps, left, worst, mu, rough = dual.n_iter, 0, np.inf, 0.0, True
    path: Path = ()  # products of rows that need no look are old, but their conditions hold: they add nothing to a gap
    with tqdm(desc="refine", disable=verbose <= 0) as bar:
        for _ in range(ROUNDS):
            where, asked = pool.where, allowed * (ROUGH if rough else 1.0)
            own, before, was, last = task.on(where), b[where], product[where], mu
            moving, values = before.copy(), was.copy()
            used, worst = descend(own, moving, values, pool, asked, 10**5 + STEPS * len(where))
            b[where], product[where], steps = moving, values, steps + used
            mu = _intercept(own, moving, values)
            moved = np.sqrt(max(0.0, float((moving - before) @ (values - was))))  # |w - w'|
            room -= moved * np.sqrt(exact.diagonal) + abs(mu - last)
            unsure = room < -allowed
            unsure[where] = False
            there = np.flatnonzero(unsure)
            _follow(exact, b, product, there, since, history)
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
    if fine < ALLOWED or (not found.converged and left == 0):
        found = _polished(task, exact, found, allowed, tol)
    if not found.converged:
        advice = "Raise the rank, so that it starts nearer, or tol." if left else "Lower C, or raise tol."
        warn(
            f"refine='exact' ended with {left} of {len(b)} rows outside the pool that violate their condition, and "
            f"with a violation of {worst:.2g} in it where {allowed:.2g} is allowed, after {steps} steps; the relative "
            f"duality gap is {found.gap:.2g}. {advice}",
            NotConverged,
        )
    return found


def _follow(exact: Exact, b: Array, product: Array, there: Indices, since: Indices, history: list[Array]) -> None:
    """Make the product of the rows ``there`` that of ``b``, from where it was if few coefficients moved since."""
    for step in np.unique(since[there]):
        mine, moved = there[since[there] == step], b - history[step]
        if np.count_nonzero(moved) > np.count_nonzero(b):
            product[mine], moved = 0.0, b
        product[mine] += exact.product(moved, mine)
    since[there] = len(history)
    history.append(b.copy())


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


def _judged(task: Task, exact: Exact, b: Array, mu: float, product: Array, steps: int, good: bool) -> Dual:
    point = task.problem(sp.diags(exact.diagonal)).point(b, mu, product)
    return Dual(b, mu, point.objective, point.gap, steps, good, "refined")


def _polished(task: Task, exact: Exact, found: Dual, allowed: float, tol: float) -> Dual:
    """``found`` with its free rows solved for exactly, where they are few and no other row minds.

    Pairs of rows take millions of steps where a matrix is nearly singular; a linear system does not mind that.
    """
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
    better = _judged(task, exact, b, done.intercept, product, done.n_iter, True)
    better = replace(better, path=(*found.path, (better.n_iter, better.gap)))
    return better if better.gap <= found.gap or not found.converged else found
