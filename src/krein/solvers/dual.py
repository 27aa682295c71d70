"""The door of this room: the dual of the SVMs on a factored matrix, checked, cut to its rows, solved and polished."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.arrays import Array, check_indices
from krein.errors import InputError, one_of, whole_number
from krein.factorization import Factorization
from krein.solvers.interior_point import InteriorPoint
from krein.solvers.newton import newton
from krein.solvers.polish import central_multiplier, polish
from krein.solvers.problem import Point, Problem, cut
from krein.solvers.system import Part, parts_of

__all__ = ["Dual", "solve_dual"]

METHODS = ("auto", "interior-point", "newton")
EXACT = 1e-3  # share of tol at which the polish found the right set
FURTHER = np.array([1e-2, 1e-4])  # shares of tol to which the interior point goes on where it did not
NEWTON_ROWS, NEWTON_SHARE, NEWTON_WIDTH = 20_000, 0.2, 10.0  # where semismooth Newton was measured to be faster
NEWTON_STEPS = 80
POLISHED_FROM = 1e-4  # the relative gap from which the polish is tried on Newton's point
CUT = 0.5  # share of the rows below which their bases are copied; above, the other rows are carried along as fixed


@dataclass(frozen=True, eq=False)
class Dual:
    """A solution of the dual, or the best point met (`converged` says which)."""

    coefficients: Array  # (m,) b, in the order of ``rows``
    intercept: float  # such that K b + intercept is the decision function; on free rows of an SVC it is the label
    objective: float
    gap: float  # duality gap over |objective|
    n_iter: int
    converged: bool
    method: str

    @property
    def support(self) -> Any:
        """(m,) where b is not zero."""
        return self.coefficients != 0.0


def solve_dual(
    f: Factorization,
    linear: Any,
    low: Any,
    high: Any,
    *,
    total: float = 0.0,
    epsilon: float = 0.0,
    rows: Any = None,
    tol: float = 1e-6,
    max_iter: int = 100,
    start: Dual | None = None,
    method: str = "auto",
    verbose: int = 0,
) -> Dual:
    """Minimise 1/2 bᵀKb - linearᵀb + epsilon |b|_1 over low <= b <= high with sum(b) = total.

    K is the matrix of ``f``, or its rows and columns ``rows`` (the caller's order).
    """
    one_of("method", method, METHODS)
    whole_number("max_iter", max_iter, 1)
    if not (isinstance(tol, int | float | np.number) and 0.0 < tol < 1.0):
        raise InputError(f"tol must be a number between 0 and 1, the relative duality gap to reach; got {tol!r}.")
    chosen = np.arange(f.shape[0]) if rows is None else check_indices(rows, f.shape[0])
    problem = _checked(f, chosen, linear, low, high, total, epsilon)
    point, steps, used = _solved(problem, tol, int(max_iter), _begun(problem, chosen, start), method, verbose)
    own = point.b[chosen] if problem.f is f else point.b  # other rows were carried along, or none
    return Dual(own, point.multiplier, point.objective, point.gap, steps, point.gap <= tol, used)


def _begun(problem: Problem, rows: Any, start: Dual | None) -> tuple[Array, float] | None:
    if start is None:
        return None
    if start.coefficients.shape != (len(rows),):
        raise InputError(
            f"start must be the solution of a dual with the same {len(rows)} rows; its has {len(start.coefficients)}."
        )
    wide = start.coefficients
    if len(problem.linear) > len(rows):
        wide = np.zeros(len(problem.linear))
        wide[rows] = start.coefficients
    return wide, start.intercept


def _solved(
    problem: Problem, tol: float, max_iter: int, start: tuple[Array, float] | None, method: str, verbose: int
) -> tuple[Point, int, str]:
    forced = _only_point(problem)
    if forced is not None:
        return forced, 0, "interior-point"
    parts = parts_of(problem.f)
    if method == "newton" or (method == "auto" and _suits_newton(problem, parts)):
        point, ends, steps = newton(problem, parts, tol, min(max_iter, NEWTON_STEPS), start, verbose)
        if point.gap <= POLISHED_FROM:
            finer = polish(problem, parts, point, ends)
            point = finer if finer is not None and finer.gap <= max(point.gap, 0.1 * tol) else point
        if point.gap <= tol:
            return point, steps, "newton"
    run = InteriorPoint(problem, parts)
    polished: Point | None = None
    for target in (tol, *FURTHER * tol):
        before = run.n_iter
        run.reach(target, max_iter, verbose)
        if run.n_iter == before and before:
            break
        finer = polish(problem, parts, run.best, run.ends)
        if finer is not None and (polished is None or finer.gap < polished.gap):
            polished = finer
        if polished is not None and polished.gap <= EXACT * tol:
            break
    if polished is not None and polished.gap <= max(run.best.gap, 0.1 * tol):
        return polished, run.n_iter, "interior-point"
    return run.best, run.n_iter, "interior-point"


def _suits_newton(problem: Problem, parts: tuple[Part, ...]) -> bool:
    """Whether grams outweigh the core, and the box is not so wide that rows far outside their margin dominate."""
    f = problem.f
    grams = float(sum(len(B) * k * k for B, k in zip(f.bases, f.ranks, strict=True)))
    rank = float(max((part.core.shape[0] for part in parts), default=0))
    if not grams > NEWTON_SHARE * rank**3 or len(f.order) < NEWTON_ROWS:
        return False
    slopes = float(np.abs(problem.linear).mean()) + problem.epsilon
    width = float((problem.high - problem.low).mean())
    return bool(slopes > 0.0 and width * float(np.abs(f.diagonal()).mean()) <= NEWTON_WIDTH * slopes)


def _only_point(problem: Problem) -> Point | None:
    """The point, where the box and the sum leave no choice."""
    slack = 1e-14 * problem.reach
    for b, other in ((problem.low, problem.high), (problem.high, problem.low)):
        if abs(problem.total - float(b.sum())) <= slack or np.array_equal(b, other):
            product = problem.multiply(b)
            return problem.point(b, central_multiplier(problem, b, product), product)
    return None


def _checked(f: Factorization, rows: Any, linear: Any, low: Any, high: Any, total: float, epsilon: float) -> Problem:
    """The problem on its own rows: their bases copied where they are few, the others held at zero where not."""
    vectors = []
    for name, given in (("linear", linear), ("low", low), ("high", high)):
        values = np.asarray(given, dtype=np.float64)
        if values.shape != (len(rows),):
            raise InputError(f"{name} must have one number per row, shape ({len(rows)},); got shape {values.shape}.")
        if not np.isfinite(values).all():
            raise InputError(f"{name} holds NaN or infinite values; the dual needs finite numbers.")
        vectors.append(values)
    g, lo, hi = vectors
    if len(rows) == 0:
        raise InputError("The dual needs at least one row; got none.")
    if len(np.unique(rows)) < len(rows):
        raise InputError("rows must name each row once; some are named twice.")
    if (lo > hi).any():
        worst = int((lo - hi).argmax())
        raise InputError(f"low must not exceed high; at row {worst} they are {lo[worst]:g} and {hi[worst]:g}.")
    for name, number in (("total", total), ("epsilon", epsilon)):
        if (
            not (isinstance(number, int | float | np.number) and math.isfinite(number))
            or number < 0
            and name != "total"
        ):
            raise InputError(f"{name} must be a finite number{', at least 0' * (name != 'total')}; got {number!r}.")
    slack = 1e-12 * float(np.abs(lo).sum() + np.abs(hi).sum())
    if not lo.sum() - slack <= total <= hi.sum() + slack:
        raise InputError(
            f"sum(b) = {total:g} cannot be reached: the bounds allow {lo.sum():g} to {hi.sum():g}. Widen them."
        )
    n = f.shape[0]
    if len(rows) == n and np.array_equal(rows, np.arange(n)):
        return Problem(f, g, lo, hi, float(total), float(epsilon))
    if len(rows) <= CUT * n:
        return Problem(cut(f, rows), g, lo, hi, float(total), float(epsilon))
    wide = [np.zeros(n) for _ in vectors]
    for whole, part in zip(wide, vectors, strict=True):
        whole[rows] = part
    return Problem(f, *wide, float(total), float(epsilon))
