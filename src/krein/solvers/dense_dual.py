"""One dual on a dense matrix: LIBSVM finds the active set, and an active-set polish makes it exact.

In: a `Task` and the matrix of its rows. Out: a `Dual`. LIBSVM finds early which rows lie at their bounds, but reduces
the violation of the optimality conditions slowly. So it is run with a large tolerance, and the linear system of the
free rows is solved. If no condition is violated then, that is the solution to rounding. Otherwise LIBSVM is run with a
smaller tolerance.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy.linalg
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

from krein.arrays import Array, Indices
from krein.errors import KreinWarning
from krein.solvers.dual import Dual
from krein.solvers.problem import Problem, central_multiplier

__all__ = ["KnownDiagonal", "NotConverged", "Task", "libsvm", "made_exact", "polish", "solve_dense", "violation"]

# The active set is right if no condition is violated by more than this, relative to the labels.
VIOLATION = 1e-9
# LIBSVM is run with these tolerances in turn, and at last with one of at most LAST_TOLERANCE.
FIRST_TOLERANCES = (1e-3, 1e-5)
LAST_TOLERANCE = 1e-8
# LIBSVM uses single precision: similarities are scaled to 1 if the largest is above SCALED_SIZE or below its inverse.
SCALED_SIZE = 1e30
# LIBSVM's limit of iterations is at least this. In single precision it never reaches some tolerances.
LEAST_ITERATIONS = 100_000
# The proximal weights of the polish, relative to the mean of the diagonal.
PROXIMAL_WEIGHTS = (1e-7, 1e-9, 1e-11, 1e-13)
# The active set is changed at most this often in one proximal step.
ACTIVE_SET_CHANGES = 10


class NotConverged(KreinWarning, ConvergenceWarning):  # type: ignore[misc]
    """A solver stopped before it reached its tolerance."""


@dataclass(frozen=True, eq=False)
class KnownDiagonal:
    """The diagonal of a matrix, in place of the matrix, where products with it are known."""

    values: Array

    def diagonal(self) -> Array:
        return self.values


@dataclass(frozen=True, eq=False)
class Task:
    """min 1/2 bᵀKb - linearᵀb + epsilon |b|_1 over low <= b <= high, sum(b) = total, on some rows of the data.

    With it the decision function is k(x, rows) b + intercept. ``kind`` says which of LIBSVM's problems it is: "margin"
    has linear = y in {-1, 1} and b between 0 and C y, "tube" has b in [-C, C], "one-class" has linear = 0 and low = 0.
    """

    kind: str
    rows: Indices  # (m,) the rows that take part
    linear: Array  # (m,)
    low: Array  # (m,)
    high: Array  # (m,)
    total: float = 0.0
    epsilon: float = 0.0
    unit: float = 1.0  # what coefficients and intercept are multiplied by in the end

    def problem(self, K: Any) -> Problem:
        """The task on the matrix K as a `Problem`; a `KnownDiagonal` is enough if products with K are known."""
        return Problem(cast(Any, K), self.linear, self.low, self.high, self.total, self.epsilon)

    def on(self, some: Indices) -> Task:
        """The task on the positions ``some`` of its rows, the others held at zero."""
        return replace(
            self, rows=self.rows[some], linear=self.linear[some], low=self.low[some], high=self.high[some]
        )  # fmt: skip

    @property
    def is_full(self) -> bool:
        """Whether all coefficients must be at their upper bounds (nu = 1), which LIBSVM cannot solve."""
        return self.kind == "one-class" and self.total >= (1.0 - 1e-9) * float(self.high.sum())

    @property
    def size(self) -> float:
        """The scale of violations by rounding: the largest label or target, and epsilon."""
        return float(np.abs(self.linear).max(initial=0.0)) + self.epsilon

    def spread(self, own: float) -> float:
        """The scale of a small violation: a label, or the median deviation of the targets; 0 if all are equal.

        The median is not changed by an offset or by outliers. If most targets are equal, or out of reach, the scale is
        the effect of one coefficient: its upper bound times ``own``, the mean k(x, x).
        """
        if self.kind != "tube":
            return self.size
        half, reach = self._halves
        return min(half, max(self.epsilon, own * reach) or half)

    @cached_property
    def _halves(self) -> tuple[float, float]:
        """The median deviation of the targets from their median, and the median upper bound."""
        off = np.abs(self.linear - np.median(self.linear)) if len(self.linear) else np.zeros(1)
        return float(np.median(off)) or float(np.mean(off)), float(np.median(self.high))


def solve_dense(
    K: Array,
    task: Task,
    *,
    tol: float = 1e-6,
    max_iter: int = -1,
    psd: bool = True,
    exact: bool = True,
    start: Dual | None = None,
    other: Callable[[], Dual] | None = None,
    options: dict[str, Any] | None = None,
) -> Dual:
    """Solve the task on its matrix K, shape (m, m).

    For an indefinite K the result is LIBSVM's stationary point, for which the gap certifies nothing. Without ``exact``
    a gap of ``tol`` is enough, which saves a polish of cubic cost in the support vectors. ``other`` is another solver,
    used if neither LIBSVM nor the polish succeeds. ``options`` (cache_size, shrinking) are passed to LIBSVM.
    """
    problem = task.problem(K)
    if task.is_full:
        return _dual(problem, task.high, central_multiplier(task, task.high, K @ task.high), 1, tol, "libsvm")
    steps, finished = 0, True
    best: Dual | None = None
    path: list[tuple[int, float]] = []

    def marked(dual: Dual) -> Dual:
        path.append((dual.n_iter, dual.gap))
        return replace(dual, path=tuple(path))

    def polished(b: Array) -> Dual | None:
        nonlocal steps
        b, mu, rounds = polish(K, task, b)
        steps += rounds
        return marked(_dual(problem, b, mu, steps, tol, "libsvm")) if _is_clean(K, task, b, mu) else None

    if start is not None and psd:
        done = polished(np.clip(start.coefficients, task.low, task.high))
        if done is not None:
            return done
    last = min(LAST_TOLERANCE, max(0.01 * tol, 1e-12))
    stages = (*(t for t in FIRST_TOLERANCES if t >= 0.01 * tol), *((last,) if other is None else ()))
    for asked in stages if psd else (last,):
        b, mu, used, finished = libsvm(K, task, asked, max_iter, options or {})
        steps += used
        done = marked(_dual(problem, b, mu, steps, tol, "libsvm"))
        best = done if best is None or done.gap <= best.gap else best
        if not psd or (not finished and max_iter > 0):
            done = replace(best, converged=finished if not psd else best.converged)
            return replace(done, n_iter=steps, path=tuple(path))
        if not exact:
            if best.converged:
                return replace(best, path=tuple(path))
            continue
        done = polished(b)
        if done is not None:
            return done
    if other is not None:
        found = other()
        steps += found.n_iter
        done = polished(found.coefficients)
        if done is not None:
            return done
        found = marked(_dual(problem, found.coefficients, found.intercept, steps, tol, found.method))
        best = found if best is None or found.gap <= best.gap else best
    assert best is not None
    return replace(best, n_iter=steps, path=tuple(path))


def made_exact(K: Array, task: Task, dual: Dual, tol: float) -> Dual:
    """Return ``dual``, from another solver, polished on K if that succeeds, with its gap computed from K."""
    problem = task.problem(K)
    b, mu, rounds = polish(K, task, dual.coefficients)
    found = _dual(problem, dual.coefficients, dual.intercept, dual.n_iter, tol, dual.method)
    if _is_clean(K, task, b, mu):
        found = _dual(problem, b, mu, dual.n_iter + rounds, tol, dual.method)
    return replace(found, path=(*dual.path, (found.n_iter, found.gap)))


def _dual(problem: Problem, b: Array, mu: float, steps: int, tol: float, method: str) -> Dual:
    point = problem.point(b, mu, cast(Any, problem.f) @ b)
    return Dual(b, mu, point.objective, point.gap, max(1, steps), point.gap <= tol, method)


# -- LIBSVM --------------------------------------------------------------------------------------------------------


def libsvm(
    K: Any,
    task: Task,
    tol: float,
    max_iter: int,
    options: dict[str, Any],
    kernel: dict[str, Any] | None = None,
    own: float | None = None,
    nu: float | None = None,
) -> tuple[Array, float, int, bool]:
    """Run LIBSVM; return b, the intercept, the number of iterations, and whether it reached ``tol``.

    For a ``kernel`` that LIBSVM implements, K holds the vectors, and ``own`` is the mean of the kernel's diagonal. With
    ``nu`` a margin or a tube is that of a nu-SVM. LIBSVM divides the coefficients of such a margin by its level, so
    that they are not in the box of the task.
    """
    limit = max_iter if max_iter > 0 else max(LEAST_ITERATIONS, 100 * len(task.rows))
    given = {"kernel": "precomputed", **(kernel or {}), "tol": tol, "max_iter": limit, **options}
    reach = task.high - task.low
    # LIBSVM's tolerance is absolute: numbers of another size are brought to that of labels first, without an offset
    own = float(np.abs(np.diagonal(K)).mean()) if own is None else own
    size, middle = (task.spread(own) or 1.0, float(np.median(task.linear))) if task.kind == "tube" else (1.0, 0.0)
    peak = float(np.abs(K).max(initial=0.0)) if kernel is None else 1.0
    unit = 1.0 if peak == 0.0 or 1.0 / SCALED_SIZE < peak < SCALED_SIZE else peak  # K / u and u C give b u
    K, weights = (K, reach) if unit == 1.0 else (K / unit, np.minimum(reach * unit, np.finfo(float).max))
    b = np.zeros(len(task.rows))
    with warnings.catch_warnings(), config_context(assume_finite=True, skip_parameter_validation=True):
        warnings.simplefilter("ignore", ConvergenceWarning)
        if task.kind == "margin":
            sign = np.sign(task.linear)
            machine = SVC(C=1.0, **given) if nu is None else NuSVC(nu=nu, **given)
            machine.fit(K, sign, sample_weight=weights)
            b[machine.support_] = _dense(machine.dual_coef_) / unit
        elif task.kind == "tube":
            machine = SVR(C=1.0, epsilon=task.epsilon / size, **given) if nu is None else NuSVR(nu=nu, **given)
            machine.fit(K, (task.linear - middle) / size, sample_weight=0.5 * weights / size)
            b[machine.support_] = _dense(machine.dual_coef_) / unit * size
        else:
            size = (float(np.mean(np.diagonal(K))) or 1.0) if kernel is None else 1.0
            nu, most = min(1.0, task.total / float(reach.sum())), float(reach.max())
            machine = OneClassSVM(nu=nu, **given).fit(K / size if size != 1.0 else K, sample_weight=reach / most)
            b[machine.support_] = _dense(machine.dual_coef_) * most
            size *= most
    intercept = float(machine.intercept_[0]) * size * (unit if task.kind == "one-class" else 1.0) + middle
    if nu is not None and task.kind == "margin":
        return b, intercept, int(np.sum(machine.n_iter_)), machine.fit_status_ == 0
    near = 1e-10 * reach  # bounds that went through a division; zeros are exact, and what is small is no zero
    b = np.where((b <= task.low + near) & (task.low != 0.0), task.low, b)
    b = np.where((b >= task.high - near) & (task.high != 0.0), task.high, b)
    return np.clip(b, task.low, task.high), intercept, int(np.sum(machine.n_iter_)), machine.fit_status_ == 0


def _dense(coefficients: Any) -> Array:
    return np.asarray(coefficients.toarray() if hasattr(coefficients, "toarray") else coefficients).ravel()


# -- exact on the right active set -----------------------------------------------------------------------------------


def polish(K: Array, task: Task, b: Array) -> tuple[Array, float, int]:
    """Return (b, intercept, changes of the active set) from a point whose active set is nearly right.

    Proximal steps minimise the dual + delta/2 |b - last|² by an active-set method: the linear system of the free rows
    is solved, rows that leave the box are set to its bounds, and rows at a bound whose slope points into the box are
    released. K + delta I has full rank even if K has not, and delta falls to nothing. The result may be worse than the
    starting point, so the caller has to check it.
    """
    low, high = task.low, task.high
    free = (b > low) & (b < high) & ((b != 0.0) if task.epsilon else True)
    side = np.sign(b)
    size = float(np.mean(np.diagonal(K))) if len(b) else 0.0
    mu, rounds = 0.0, 0
    for delta in PROXIMAL_WEIGHTS:
        centre, settled = b, False
        for _ in range(ACTIVE_SET_CHANGES):
            rounds += 1
            step = _stationary(K, task, b, free, side, centre, delta * size)
            if step is None:
                return b, mu, rounds
            moved, mu, product = step
            out = free & ((moved < low) | (moved > high) | (bool(task.epsilon) & (moved * side < 0.0)))
            ends = np.clip(moved, low, high)
            moved = np.where(out & (bool(task.epsilon) & (ends * side <= 0.0)), 0.0, ends) if out.any() else moved
            slope = product - task.linear + mu + delta * size * (moved - centre)
            loose, sides = _loosened(task, moved, slope)
            loose &= ~free
            settled = not (out.any() or loose.any())
            b, side = moved, np.where(loose, sides, side)
            free = (free & ~out) | loose
            if settled:
                break
        if not settled:
            break
        if float(violation(task, b, K @ b - task.linear + mu).max(initial=0.0)) <= 0.01 * VIOLATION * task.size:
            break
    return b, mu, rounds


def _stationary(
    K: Array, task: Task, b: Array, free: Any, side: Array, centre: Array, delta: float
) -> tuple[Array, float, Array] | None:
    """(b, intercept, K b) with b stationary in the free rows, the others held; None where K + delta I is not psd."""
    where = np.flatnonzero(free)
    product = K @ b
    if len(where) == 0:
        return b, central_multiplier(task, b, product), product
    inner = K[np.ix_(where, where)]
    inner[np.diag_indices_from(inner)] += delta
    try:
        factor = scipy.linalg.cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    ones = scipy.linalg.cho_solve(factor, np.ones(len(where)), check_finite=False)
    b, mu = b.copy(), 0.0
    wanted = task.linear - task.epsilon * side + delta * centre
    for _ in range(2):  # the second is for rounding
        residual = (wanted - product - delta * b)[where] - mu
        step = scipy.linalg.cho_solve(factor, residual, check_finite=False)
        change = float(step.sum() - (task.total - float(b.sum()))) / float(ones.sum())
        step -= change * ones
        b[where] += step
        mu += change
        whole = np.zeros(len(b))  # so that K is not copied
        whole[where] = step
        product = product + K @ whole
    return b, mu, product


def _loosened(task: Task, b: Array, slope: Array) -> tuple[Any, Array]:
    """Which rows have a slope that points into the box, and on which side of zero they will be."""
    slack = 0.1 * VIOLATION * (task.size or float(np.abs(slope).max(initial=0.0)) or 1.0)
    eps = task.epsilon
    up = (b < task.high) & (slope + np.where(b >= 0.0, eps, -eps) < -slack)
    down = (b > task.low) & (slope - np.where(b <= 0.0, eps, -eps) > slack)
    return up | down, np.where(b == 0.0, np.where(up, 1.0, -1.0), np.sign(b))


def violation(task: Task, b: Array, slope: Array) -> Array:
    """The violation of each row's optimality condition; ``slope`` is K b - linear + intercept."""
    eps = task.epsilon
    rise = np.where(b < task.high, -(slope + np.where(b >= 0.0, eps, -eps)), 0.0)
    fall = np.where(b > task.low, slope - np.where(b <= 0.0, eps, -eps), 0.0)
    return np.asarray(np.maximum(np.maximum(rise, fall), 0.0))


def _is_clean(K: Array, task: Task, b: Array, mu: float) -> bool:
    product = K @ b
    size = task.size or float(np.mean(np.diagonal(K)) * task.high.max()) or 1.0
    balanced = abs(float(b.sum()) - task.total) <= 1e-12 * float(np.abs(b).sum() + np.abs(task.total) + 1e-300)
    return balanced and float(violation(task, b, product - task.linear + mu).max(initial=0.0)) <= VIOLATION * size
