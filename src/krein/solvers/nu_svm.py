"""Nu-SVMs: a dual whose sum of |b| is given by nu, solved by a search among ordinary duals.

In: a `NuTask` and a solver of ordinary tasks. Out: a `NuDual`. The multiplier of the sum is called the level: the
margin rho of a classification, the epsilon of a regression. At a given level what is left is the dual of an SVC with
C = 1 / rho, or of an SVR with that epsilon. |b|_1 is monotone in the level and b is piecewise linear in it. So the
solutions of two levels on either side are joined by a line, and the point on it with the wanted sum is judged by the
duality gap of the nu-SVM itself. It is exact once both have the same active set. LIBSVM gives the first level where it
can have all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from krein.arrays import EPS, Array
from krein.errors import InputError, warn
from krein.kernels import Kernel, count_objects, take
from krein.solvers.dense_dual import VIOLATION, KnownDiagonal, Task, libsvm, solve_dense, violation
from krein.solvers.dual import Dual
from krein.solvers.exact_svm import EXCESS, choose_solver, libsvm_kernel
from krein.solvers.kernel_values import KernelValues
from krein.solvers.refine import ALLOWED

__all__ = ["NuDual", "NuTask", "check_feasible", "of_level", "solve_nu", "solve_nu_dense", "solve_nu_exactly"]

# At most this many levels are solved.
MOST_LEVELS = 60
# A level is multiplied by FIRST_STRIDE until both sides are known, or by NEAR_STRIDE if LIBSVM gave it. The factor is
# squared each time, up to LARGEST_STRIDE.
FIRST_STRIDE = 2.0
NEAR_STRIDE = 1.01
LARGEST_STRIDE = 256.0
# An epsilon below this share of the usual one is zero, and a margin is not searched for below it.
SMALLEST_LEVEL = 1e-6
# The search goes on to this share of tol, since a gap is of second order in the distance of the levels.
SEARCHED_GAP = 1e-3
# Sums of |b| that differ by this share are equal.
SUM_ROUNDING = 1e-12
# The usual level of a margin is estimated from at most this many rows of each class.
SAMPLED_ROWS = 500
# A coefficient closer to its bound than this share of its range is at the bound, which went through a division.
BOUND_ROUNDING = 1e-10
# LIBSVM is run this often with smaller tolerances, since its tolerance is absolute and the margin is not known before.
LIBSVM_RUNS = 2
# Each run has at most this many steps per row.
STEPS_PER_ROW = 1000


@dataclass(frozen=True, eq=False)
class NuTask(Task):
    """A "margin" or a "tube" whose sum of |b| is nu times the sum of all bounds; for a tube, at most that.

    A margin has the bounds of C = 1 and no linear term. The level takes the place of its labels.
    """

    nu: float = 0.5
    factors: Array | None = None  # (m,) of the bounds, applied to the ordinary dual once the level is known

    @property
    def wanted(self) -> float:
        """The sum of |b|."""
        return self.nu * float(np.maximum(-self.low, self.high).sum())

    def scale(self, level: float) -> float:
        """Coefficients of this task divided by those of the ordinary one."""
        return level if self.kind == "margin" else 1.0

    def at(self, level: float) -> Task:
        """The ordinary task of this level: C = 1 / level of a margin, epsilon = level of a tube."""
        scale, epsilon = self.scale(level), 0.0 if self.kind == "margin" else level
        return Task(self.kind, self.rows, self.linear, self.low / scale, self.high / scale, 0.0, epsilon)


@dataclass(frozen=True, eq=False)
class NuDual(Dual):
    """The solution as that of an ordinary dual, whose C or epsilon the level says; the gap is the nu-SVM's own."""

    level: float = np.nan


@dataclass(frozen=True, eq=False)
class _Solved:
    """The solution at one level, in units of the `NuTask`."""

    level: float
    b: Array
    intercept: float

    @property
    def sum(self) -> float:
        return float(np.abs(self.b).sum())


def check_feasible(task: NuTask) -> None:
    """Refuse a nu for which one of the two classes has too few rows, in scikit-learn's words."""
    up, down = float(task.high.sum()), float(-task.low.sum())
    if task.kind == "margin" and 0.5 * task.wanted > (1.0 + SUM_ROUNDING) * min(up, down):
        raise InputError(
            f"specified nu is infeasible: nu = {task.nu:g} needs classes that each have half of that share of the "
            f"weight, but two of them have {min(up, down):g} and {max(up, down):g}. The largest nu for them is "
            f"{2.0 * min(up, down) / (up + down):.4g}."
        )


# -- the search --------------------------------------------------------------------------------------------------------


def solve_nu(
    task: NuTask,
    solve: Callable[[Task, Dual | None], Dual],
    product: Callable[[Array], Array],
    diagonal: Array,
    *,
    tol: float,
    allowed: float | None = None,
    start: Dual | None = None,
) -> NuDual:
    """Solve a nu-SVM; ``solve`` solves an ordinary task from a start, ``product`` is b -> K b on the task's rows.

    The search ends with a relative duality gap of ``tol`` or, where ``allowed`` is given, once no optimality condition
    is violated by more than that, in units of a label. A ``start`` that is a `NuDual` gives the first level.
    """
    wanted, margin = task.wanted, task.kind == "margin"
    widest = np.inf if margin else 0.5 * float(np.ptp(task.linear))  # no coefficient of a tube is left there
    usual = _usual_level(task, product)
    smallest = SMALLEST_LEVEL * usual
    known = isinstance(start, NuDual) and smallest < start.level < np.inf
    level = start.level if isinstance(start, NuDual) and known else usual
    stride = NEAR_STRIDE if known else FIRST_STRIDE
    ends: dict[bool, _Solved] = {}  # the solved levels next to the wanted one: below it (True) and above it (False)
    weights, last = {True: 1.0, False: 1.0}, None
    best: NuDual | None = None
    certain: NuDual | None = None  # the last level that was solved to the tolerance of its solver
    steps, path = 0, []
    for _ in range(MOST_LEVELS):
        at = task.at(level)
        begun = None if start is None else replace(start, coefficients=np.clip(start.coefficients, at.low, at.high))
        start = found = solve(at, begun)
        steps += found.n_iter
        here = _in_units(task, level, found)
        if found.converged or certain is None:
            certain = of_level(found, level)
        few = here.sum < (1.0 - SUM_ROUNDING) * wanted
        below = few == margin
        ends[below] = here
        if abs(here.sum - wanted) <= SUM_ROUNDING * wanted or (few and level == 0.0):
            ends = {True: here, False: here}  # a tube may have a smaller sum, if epsilon is 0
        if len(ends) < 2:
            # a margin that is too large, whose dual is not solved to the end, has no smaller one that is
            if margin and (level <= smallest or not (below or found.converged)):
                warn(_too_small(task, certain))
                return certain
            level = min(level * stride or widest, widest) if below else level / stride
            level = level if level > smallest else smallest if margin else 0.0
            stride = min(stride**2, LARGEST_STRIDE)
            continue
        between = _between(ends[True], ends[False], wanted)
        dual, missed = _judged(task, between, product, diagonal, tol)
        path.append((steps, dual.gap))
        done = dual.gap <= SEARCHED_GAP * tol if allowed is None else missed <= allowed
        stalled = best is not None and best.gap <= tol and dual.gap > 0.5 * best.gap and allowed is None
        if done or best is None or dual.gap <= best.gap:
            best = replace(dual, method=found.method, converged=done or dual.converged)
        if done or stalled or ends[True].level >= ends[False].level * (1.0 - EPS):
            break
        weights = {below: 1.0, (not below): 0.5 * weights[not below] if last == below else 1.0}
        last = below
        level = _crossing(ends, weights, wanted)
        start = replace(found, coefficients=between.b / task.scale(level))
    if best is None:
        best = replace(of_level(found, level), converged=False)
    return replace(best, n_iter=steps, path=tuple(path))


def _usual_level(task: NuTask, product: Callable[[Array], Array]) -> float:
    """A level of the right size: the mean margin of equal coefficients, or an epsilon that leaves nu of the targets."""
    if task.kind == "tube":
        off = np.abs(task.linear - np.median(task.linear))
        return float(np.quantile(off, 1.0 - task.nu))
    b = np.zeros(len(task.rows))
    for side in (task.high > 0.0, task.low < 0.0):
        places = np.flatnonzero(side)
        some = places[np.linspace(0, len(places) - 1, min(len(places), SAMPLED_ROWS)).astype(np.intp)]
        b[some] = 0.5 * task.wanted * task.linear[some] / len(some)
    level = float(b @ product(b)) / task.wanted
    return level if level > 0.0 else 1.0


def _in_units(task: NuTask, level: float, found: Dual) -> _Solved:
    at, scale = task.at(level), task.scale(level)
    near = BOUND_ROUNDING * (at.high - at.low)
    b = np.where((found.coefficients >= at.high - near) & (at.high > 0.0), task.high, scale * found.coefficients)
    b = np.where((found.coefficients <= at.low + near) & (at.low < 0.0), task.low, b)
    return _Solved(level, b, scale * found.intercept)


def _between(low: _Solved, high: _Solved, wanted: float) -> _Solved:
    """The point with the wanted sum on the line between two solutions."""
    rise = high.sum - low.sum
    share = (wanted - low.sum) / rise if rise else 0.0
    return _Solved(
        low.level + share * (high.level - low.level),
        low.b + share * (high.b - low.b),
        low.intercept + share * (high.intercept - low.intercept),
    )


def _crossing(ends: dict[bool, _Solved], weights: dict[bool, float], wanted: float) -> float:
    """The next level, by the rule of Illinois: a side that stays twice counts half."""
    low, high = (weights[side] * (ends[side].sum - wanted) for side in (True, False))
    share = low / (low - high) if low != high else 0.5
    return ends[True].level + share * (ends[False].level - ends[True].level)


def _judged(
    task: NuTask, point: _Solved, product: Callable[[Array], Array], diagonal: Array, tol: float
) -> tuple[NuDual, float]:
    """The point as an ordinary dual with the duality gap of the nu-SVM, and its largest violation in units of a label.

    With price p of |b|_1, -1 for a margin and epsilon for a tube, the gap exceeds that of the ordinary dual by
    p (wanted - |b|_1), and the objective is smaller by p |b|_1.
    """
    at, scale = task.at(point.level), task.scale(point.level)
    b, intercept = point.b / scale, point.intercept / scale
    image = product(b)
    problem = at.problem(KnownDiagonal(diagonal))
    ordinary = problem.point(b, intercept, image)
    price, total = -1.0 if task.kind == "margin" else at.epsilon, float(np.abs(b).sum())
    objective = ordinary.objective - price * total
    excess = ordinary.excess + price * (task.wanted / scale - total)
    size = abs(objective) + problem.scale
    gap = max(excess / size if size > 0.0 else 0.0, abs(float(b.sum())) / (problem.reach or 1.0), 0.0)
    missed = violation(at, b, image - at.linear + intercept)
    unit = at.spread(float(np.abs(diagonal).mean())) or 1.0
    dual = NuDual(b, intercept, objective, gap, 0, gap <= tol, "", (), point.level)
    return dual, float(missed.max(initial=0.0)) / unit


def of_level(dual: Dual, level: float) -> NuDual:
    """The solution of an ordinary task as one of a nu-SVM."""
    return NuDual(**{field.name: getattr(dual, field.name) for field in fields(Dual)}, level=level)


def _too_small(task: NuTask, found: NuDual) -> str:
    share = found.level * float(np.abs(found.coefficients).sum()) / task.wanted * task.nu
    return (
        f"nu = {task.nu:g} is too small for these rows: the two classes overlap so that no margin that could be solved "
        f"for has fewer margin errors than nu = {share:.4g}. The solution is that of C = {1.0 / found.level:.3g}. "
        "Pass a larger nu, or a kernel that separates the classes better."
    )


# -- LIBSVM, dense and exact -------------------------------------------------------------------------------------------


def solve_nu_dense(
    K: Array,
    task: NuTask,
    *,
    tol: float,
    max_iter: int,
    psd: bool = True,
    start: Dual | None = None,
    options: Any = None,
) -> NuDual:
    """Solve a nu-SVM on the matrix of its rows, to rounding; of an indefinite K, return LIBSVM's stationary point."""
    usual, diagonal = float(np.abs(np.diagonal(K)).mean()), np.diagonal(K)
    options = options or {}
    found = _by_libsvm(K, None, task, K.__matmul__, diagonal, usual, tol, max_iter, options)
    if found is not None and (not psd or max_iter > 0):
        return found

    def solve(at: Task, begun: Dual | None) -> Dual:
        return solve_dense(K, at, tol=tol, max_iter=max_iter, psd=psd, start=begun, options=options)

    dual = solve_nu(task, solve, K.__matmul__, diagonal, tol=tol, allowed=VIOLATION, start=found or start)
    return dual if found is None else replace(dual, n_iter=found.n_iter + dual.n_iter)


def solve_nu_exactly(
    kernel: Kernel,
    objects: Any,
    task: NuTask,
    solve: Callable[[Task, Dual | None], Dual],
    *,
    tol: float,
    max_iter: int,
    start: Dual | None = None,
    options: Any = None,
) -> NuDual:
    """Solve a nu-SVM of a psd kernel itself, to the accuracy of `solve_exactly`; ``solve`` solves an ordinary task.

    `choose_solver` decides: LIBSVM has the rows or their matrix, or ordinary duals are solved by pairs in blocks.
    """
    everything = len(task.rows) == count_objects(objects)
    exact = KernelValues(kernel, objects if everything else take(objects, task.rows))
    usual = float(np.abs(exact.diagonal).mean())
    way = choose_solver(kernel, exact.objects, task, tol=tol, max_iter=max_iter, usual=usual)
    if way == "matrix to rounding":
        return solve_nu_dense(exact.matrix(), task, tol=tol, max_iter=max_iter, start=start, options=options)
    product: Callable[[Array], Array] = exact.product
    if way in ("libsvm", "matrix"):
        named = libsvm_kernel(kernel, exact.objects, task.kind, exact.diagonal) if way == "libsvm" else None
        given = exact.matrix() if named is None else np.asarray(exact.objects, dtype=np.float64, order="C")
        product = product if named is not None else given.__matmul__
        found = _by_libsvm(given, named, task, product, exact.diagonal, usual, tol, max_iter, options or {})
        if found is not None:
            return found
    return solve_nu(task, solve, product, exact.diagonal, tol=tol, allowed=EXCESS * ALLOWED, start=start)


def _by_libsvm(
    given: Any,
    named: dict[str, Any] | None,
    task: NuTask,
    product: Callable[[Array], Array],
    diagonal: Array,
    usual: float,
    tol: float,
    max_iter: int,
    options: dict[str, Any],
) -> NuDual | None:
    """LIBSVM's solution, or None if it did not end or violates a condition by more than 1e-3, in units of a label."""
    asked, steps = ALLOWED, 0
    for _ in range(LIBSVM_RUNS):
        limit = max_iter if max_iter > 0 else STEPS_PER_ROW * len(task.rows)
        try:
            b, intercept, used, finished = libsvm(given, task, asked, limit, options, named, usual, task.nu)
        except ValueError:  # no margin: coefficients that are not finite
            return None
        steps += used
        total = float(np.abs(b).sum())
        if not finished and max_iter < 1:
            return None
        if task.kind == "margin":
            if total == 0.0:
                return None
            level = task.wanted / total
        else:
            level = _epsilon(task, b, task.linear - product(b) - intercept)
        point = _in_units(task, level, Dual(b, intercept, 0.0, 0.0, 0, True, ""))
        dual, missed = _judged(task, point, product, diagonal, tol)
        dual = replace(dual, n_iter=max(1, steps), converged=finished, method="libsvm", path=((steps, dual.gap),))
        if missed <= EXCESS * ALLOWED or not finished:
            return dual
        asked *= 0.5 * ALLOWED / missed
    return None


def _epsilon(task: NuTask, b: Array, error: Array) -> float:
    """The epsilon of a tube: 0 if the sum is smaller than wanted, else the error of rows between their bounds."""
    if float(np.abs(b).sum()) < (1.0 - SUM_ROUNDING) * task.wanted:
        return 0.0
    size, free = np.abs(error), (b != 0.0) & (b > task.low) & (b < task.high)
    if free.any():
        return float(np.mean(size[free]))
    inside = float(size[b == 0.0].max(initial=0.0))
    return 0.5 * (inside + float(size[b != 0.0].min(initial=max(inside, float(size.max(initial=0.0))))))
