"""The door of this room: the dual of the SVMs on a factored matrix, checked, cut to its rows, solved and polished."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.arrays import Array, check_indices
from krein.errors import InputError, one_of, whole_number
from krein.factorization import Factorization
from krein.solvers.interior_point import interior_point
from krein.solvers.problem import Point, Problem, cut
from krein.solvers.system import parts_of

__all__ = ["Dual", "solve_dual"]

METHODS = ("auto", "interior-point", "newton")
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
    if problem is None:
        b = np.asarray(np.broadcast_to(np.asarray(low, dtype=np.float64), (len(chosen),))).copy()
        raise NotImplementedError(b)
    parts = parts_of(problem.f)
    run = interior_point(problem, parts, tol, max_iter, None, verbose)
    point = run.point
    own = point.b if len(point.b) == len(chosen) else point.b[chosen]
    return Dual(own, point.multiplier, point.objective, point.gap, run.n_iter, point.gap <= tol, "interior-point")


def _checked(
    f: Factorization, rows: Any, linear: Any, low: Any, high: Any, total: float, epsilon: float
) -> Problem | None:
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
        if not (isinstance(number, int | float | np.number) and math.isfinite(number)) or number < 0 and name != "total":
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


_ = Point
