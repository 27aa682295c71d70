"""One dual on a dense matrix: LIBSVM finds the active set, a polish makes it exact.

In: a task (`Task`) and the matrix of its rows. Out: a `Dual`. LIBSVM stops at a violation of the optimality conditions,
which it reaches slowly; which rows lie at their bounds it knows much earlier. So it is asked for a rough answer, and
the linear system of the free rows is solved; if no condition is violated then, that is the solution, to rounding. If
not, LIBSVM is asked for more.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR, OneClassSVM

from krein.arrays import Array, Indices
from krein.solvers import Dual
from krein.solvers.problem import Problem

__all__ = ["Task", "central_intercept", "libsvm", "polish", "solve_dense", "violation"]

CLEAN = 1e-9  # violation of the optimality conditions, relative to the labels, at which the active set is the right one
ROUGH = (1e-3, 1e-5)  # tolerances LIBSVM is asked for first
LAST = 1e-8
ROUNDS = 20  # changes of the active set in one polish


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

    def problem(self, K: Any) -> Problem:
        """The same as the solvers see it."""
        return Problem(cast(Any, K), self.linear, self.low, self.high, self.total, self.epsilon)

    def on(self, some: Indices) -> Task:
        """The task on the positions ``some`` of its rows, the others held at zero."""
        return replace(
            self, rows=self.rows[some], linear=self.linear[some], low=self.low[some], high=self.high[some]
        )  # fmt: skip

    @property
    def size(self) -> float:
        """What violations are compared with."""
        return float(np.abs(self.linear).max(initial=0.0)) + self.epsilon


def solve_dense(
    K: Array,
    task: Task,
    *,
    tol: float = 1e-6,
    max_iter: int = -1,
    psd: bool = True,
    start: Dual | None = None,
    options: dict[str, Any] | None = None,
) -> Dual:
    """Solve the task on its matrix K (m, m).

    With an indefinite K it is LIBSVM's stationary point, and the gap is that of a psd matrix only where it is 0.
    ``options`` go to LIBSVM: cache_size, shrinking.
    """
    problem = task.problem(K)
    steps = 0
    if start is not None and psd and len(start.coefficients) == len(task.rows):
        b, mu, rounds = polish(K, task, np.clip(start.coefficients, task.low, task.high))
        steps = rounds
        if _is_clean(K, task, b, mu):
            return _dual(problem, b, mu, steps, tol)
    last = min(LAST, max(0.01 * tol, 1e-12)) if tol <= 100 * LAST else 0.01 * tol
    best: Dual | None = None
    for asked in (*(t for t in ROUGH if psd and t > last), last):
        b, mu, used, finished = libsvm(K, task, asked, max_iter, options or {})
        steps += used
        found = _dual(problem, b, mu, steps, tol)
        best = found if best is None or found.gap <= best.gap else replace(best, n_iter=steps)
        if not finished:
            break
        if psd:
            b, mu, rounds = polish(K, task, b)
            steps += rounds
            if _is_clean(K, task, b, mu):
                return _dual(problem, b, mu, steps, tol)
    assert best is not None
    return best if psd else replace(best, converged=finished)


def _dual(problem: Problem, b: Array, mu: float, steps: int, tol: float) -> Dual:
    point = problem.point(b, mu, cast(Any, problem.f) @ b)
    return Dual(b, mu, point.objective, point.gap, max(1, steps), point.gap <= tol, "libsvm")


# -- LIBSVM --------------------------------------------------------------------------------------------------------


def libsvm(
    K: Any, task: Task, tol: float, max_iter: int, options: dict[str, Any], kernel: dict[str, Any] | None = None
) -> tuple[Array, float, int, bool]:
    """Return (b, intercept, iterations, whether it came to an end) of LIBSVM; K is the rows themselves for a kernel."""
    given = {"kernel": "precomputed", **(kernel or {}), "tol": tol, "max_iter": max_iter, **options}
    reach = task.high - task.low
    # LIBSVM's tolerance is absolute: numbers of another size are brought to that of labels first
    size = task.size if task.kind == "tube" and task.size > 0.0 else 1.0
    b = np.zeros(len(task.rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if task.kind == "margin":
            sign = np.sign(task.linear)
            machine = SVC(C=1.0, **given).fit(K, sign, sample_weight=reach)
            b[machine.support_] = _dense(machine.dual_coef_)
        elif task.kind == "tube":
            machine = SVR(C=1.0, epsilon=task.epsilon / size, **given)
            machine.fit(K, task.linear / size, sample_weight=task.high / size)
            b[machine.support_] = _dense(machine.dual_coef_) * size
        else:
            machine = OneClassSVM(nu=task.total / float(reach.sum()), **given).fit(K, sample_weight=reach)
            b[machine.support_] = _dense(machine.dual_coef_)
    intercept = float(machine.intercept_[0]) * size
    b = np.clip(b, task.low, task.high)
    return b, intercept, int(np.sum(machine.n_iter_)), machine.fit_status_ == 0


def _dense(coefficients: Any) -> Array:
    return np.asarray(coefficients.toarray() if hasattr(coefficients, "toarray") else coefficients).ravel()


# -- exact on the right active set -------------------------------------------------------------------------------------


def polish(K: Array, task: Task, b: Array) -> tuple[Array, float, int]:
    """Solve for the free rows, put those that leave the box at its ends, let go those that want to; repeat.

    Returns (b, intercept, rounds); what comes back may be worse than what went in, so it is to be judged.
    """
    low, high = task.low, task.high
    width = np.maximum(high - low, 1e-300)
    margin = 1e-12 * width
    b = b.copy()
    free = (b > low + margin) & (b < high - margin)
    side = np.sign(b) if task.epsilon else np.zeros(len(b))
    if task.epsilon:
        free &= b != 0.0
    mu = 0.0
    for round_ in range(1, ROUNDS + 1):
        b, mu = _solved(K, task, b, free, side)
        below, above = b < low - margin, b > high + margin
        crossed = (b * side < 0.0) if task.epsilon else np.zeros(len(b), dtype=bool)
        out = free & (below | above | crossed)
        if out.any():
            b = np.where(below, low, np.where(above, high, np.where(crossed, 0.0, b)))
            free &= ~out
            continue
        slope = K @ b - task.linear + mu
        loose, side = _loosened(task, b, free, slope, side)
        if not loose.any():
            return np.clip(b, low, high), mu, round_
        free = free | loose
    return np.clip(b, low, high), mu, ROUNDS


def _solved(K: Array, task: Task, b: Array, free: Any, side: Array) -> tuple[Array, float]:
    """The b that is stationary in the free rows, the nearest to the one given where there are several."""
    product = K @ b
    where = np.flatnonzero(free)
    short = task.total - float(b.sum())
    if len(where) == 0:
        return b, central_intercept(task, b, product)
    mu = float(np.mean((task.linear - task.epsilon * side - product)[where]))
    inner = K[np.ix_(where, where)]
    small = 1e-13 * max(float(np.trace(inner)), 1e-300)
    try:
        factor = scipy.linalg.cho_factor(inner + small * np.eye(len(where)), lower=True)
    except np.linalg.LinAlgError:
        return b, mu
    ones = scipy.linalg.cho_solve(factor, np.ones(len(where)))
    b = b.copy()
    for _ in range(4):  # each is a step of the proximal point method, so a singular matrix does no harm
        residual = (task.linear - task.epsilon * side - product)[where] - mu
        step = scipy.linalg.cho_solve(factor, residual)
        change = float(step.sum() - short) / float(ones.sum())
        step -= change * ones
        b[where] += step
        mu += change
        product = product + K[:, where] @ step
        short = task.total - float(b.sum())
    return b, mu


def _loosened(task: Task, b: Array, free: Any, slope: Array, side: Array) -> tuple[Any, Array]:
    """Which rows at an end would rather leave it, and on which side of zero they will be (epsilon > 0)."""
    slack = CLEAN * (task.size or float(np.abs(slope).max(initial=0.0)) or 1.0)
    eps, wide = task.epsilon, task.high > task.low
    if not eps:
        up = ~free & (b <= task.low) & (slope < -slack) & wide
        down = ~free & (b >= task.high) & (slope > slack) & wide
        return up | down, side
    up = ~free & (b < task.high) & (slope + np.where(b >= 0.0, eps, -eps) < -slack)
    down = ~free & (b > task.low) & (slope - np.where(b <= 0.0, eps, -eps) > slack)
    side = np.where(free, side, np.where(b == 0.0, np.where(up, 1.0, -1.0), np.sign(b)))
    return up | down, side


def central_intercept(task: Task, b: Array, product: Array) -> float:
    """The middle of the intercepts that leave no condition violated, where no row is free: LIBSVM's choice."""
    gradient = product - task.linear
    eps = task.epsilon
    can_rise = b < task.high
    can_fall = b > task.low
    rise = gradient + np.where(b >= 0.0, eps, -eps)  # + mu must be >= 0
    fall = gradient - np.where(b <= 0.0, eps, -eps)  # + mu must be <= 0
    least = float(np.max(-rise[can_rise], initial=-np.inf))
    most = float(np.min(-fall[can_fall], initial=np.inf))
    if not np.isfinite(least) and not np.isfinite(most):
        return 0.0
    if not np.isfinite(least):
        return most
    return least if not np.isfinite(most) else 0.5 * (least + most)


def violation(task: Task, b: Array, slope: Array) -> Array:
    """By how much each row violates its condition; ``slope`` is K b - linear + intercept."""
    eps = task.epsilon
    rise = np.where(b < task.high, -(slope + np.where(b >= 0.0, eps, -eps)), 0.0)
    fall = np.where(b > task.low, slope - np.where(b <= 0.0, eps, -eps), 0.0)
    return np.asarray(np.maximum(np.maximum(rise, fall), 0.0))


def _is_clean(K: Array, task: Task, b: Array, mu: float) -> bool:
    product = K @ b
    size = task.size or float(np.abs(product).max(initial=0.0)) or 1.0
    balanced = abs(float(b.sum()) - task.total) <= 1e-12 * float(np.abs(b).sum() + np.abs(task.total) + 1e-300)
    return balanced and float(violation(task, b, product - task.linear + mu).max(initial=0.0)) <= CLEAN * size
