"""The door of this room: the dual of the SVMs on a factored matrix, checked, cut to its rows, solved and polished."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from krein.arrays import Array, check_indices
from krein.errors import InputError, one_of, whole_number
from krein.factorization import Factorization
from krein.solvers.blockwise import Blockwise, has_independent_blocks
from krein.solvers.interior_point import InteriorPoint
from krein.solvers.newton import Newton
from krein.solvers.polish import polish
from krein.solvers.problem import Point, Problem, central_multiplier, cut, ends_of, restricted
from krein.solvers.woodbury import Part, parts_of

__all__ = ["Dual", "Path", "solve_dual"]

Path: TypeAlias = tuple[tuple[int, float], ...]
METHODS = ("auto", "interior-point", "newton", "blockwise")
EXACT = 1e-3  # share of tol at which the polish found the right set
FURTHER = np.array([1e-2, 1e-4])  # shares of tol to which the interior point goes on where it did not
NEWTON_ROWS, NEWTON_RATIO, NEWTON_SHARE, NEWTON_WIDTH = 10_000, 25, 0.5, 30.0  # where Newton measured faster
NEWTON_STEPS = 200
BISECTED = 1e-12  # the gap above which "blockwise" came to its multiplier by halves, at a jump of the sum
BLOCKWISE_RATIO = 3.0  # rows per rank up to which blocks on their own measured faster one by one, given the multiplier
ROUNDING = 1e-12  # of a row's range
POLISHED_FROM = 1e-4  # the relative gap from which the polish is tried on Newton's point
WIDE = 1e6  # ranges above this, in units of slope over curvature, are cut to less as long as no row asks for more:
NARROW, WIDER = 1e4, 100.0  # what they are cut to first, and how that grows
TOUCH = 0.01  # of its range, that a row is away from an end
CUT = 0.5  # share of the rows below which their bases are copied; above, the other rows are carried along as fixed


@dataclass(frozen=True, eq=False)
class Dual:
    """A solution of the dual, or the best point met (`converged` says which)."""

    coefficients: Array  # (m,) b, in the order of ``rows``
    intercept: float  # such that K b + intercept is the decision function; on free rows of an SVC it is the label
    objective: float
    gap: float  # duality gap over |objective|; where that nearly vanishes, over a small share of the costs in the box
    n_iter: int
    converged: bool
    method: str
    path: Path = ()  # how the gap fell: (steps so far, gap), a polish last

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
    max_iter: int = 200,
    start: Dual | None = None,
    method: str = "auto",
    verbose: int = 0,
) -> Dual:
    """Minimise 1/2 bᵀKb - linearᵀb + epsilon |b|_1 over low <= b <= high with sum(b) = total.

    K is the matrix of ``f``, or its rows and columns ``rows`` (the caller's order); linear, low and high have one
    number per row of these. An SVC has b = y a, linear = y and a box from 0 to C on the label's side; an SVR its
    targets as linear, the box -C to C and epsilon; a one-class SVM linear = 0, the box 0 to 1 and total = nu n.

    The duality gap falls to ``tol`` times |objective|, or `converged` is False and the best point met is returned. An
    active-set polish then sets bounds and zeros exactly and solves for the free rows; what is not unique (dependent
    free rows at shift 0) is one of the solutions. Where Newton's matrix has a negative direction the problem is not
    convex and an IndefiniteError says so; an indefinite K that never shows one ends in a local minimum, for which the
    gap certifies nothing. ``start``, a solution for the same rows, is used by Newton's method and by "blockwise"; the
    interior point takes none. A step of it costs one gram, a Cholesky factor of the core and some 8 products; there are
    about 10 to 40. Blocks that no coupling links are solved on their own, thousands at once ("blockwise"), where they
    have few rows for their rank; what that leaves open the interior point takes up.
    """
    one_of("method", method, METHODS)
    whole_number("max_iter", max_iter, 1)
    if not (isinstance(tol, int | float | np.number) and 0.0 < tol < 1.0):
        raise InputError(f"tol must be a number between 0 and 1, the relative duality gap to reach; got {tol!r}.")
    chosen = np.arange(f.shape[0]) if rows is None else check_indices(rows, f.shape[0])
    if method == "blockwise" and not has_independent_blocks(f):
        raise InputError(
            f"method='blockwise' is for blocks that nothing links (a block-diagonal core, shift >= 0); got {f!r}. "
            "Leave method at 'auto'."
        )
    problem = _checked(f, chosen, linear, low, high, total, epsilon)
    begun = _begun(problem, chosen, start)
    steps = 0
    path: Path = ()
    for some in _narrowed(problem):
        point, taken, used, fell = _solved(some, tol, int(max_iter), begun, method, verbose)
        point = _tidied(some, point, tol)
        steps, path = steps + taken, (*path, *((steps + step, gap) for step, gap in fell))
        if point.gap <= tol and not _touches(point.b, some, problem):
            break
    own = point.b[chosen] if problem.f is f else point.b  # other rows were carried along, or none
    path = (*path, (steps, point.gap))
    return Dual(own, point.multiplier, point.objective, point.gap, steps, point.gap <= tol, used, path)


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
) -> tuple[Point, int, str, Path]:
    forced = _only_point(problem)
    if forced is not None:
        return forced, 0, "interior-point", ()
    before = 0
    if method == "blockwise" or (method == "auto" and _suits_blockwise(problem)):
        blockwise = Blockwise(problem, start)
        found = blockwise.reach(tol, max_iter, verbose)
        if found is not None and found.gap <= tol:
            if found.gap > BISECTED:
                finer = polish(problem, parts_of(problem.f), found, ends_of(problem, found.b), briefly=True)
                found = finer if finer is not None and finer.gap < found.gap else found
            return found, blockwise.n_iter, "blockwise", tuple(blockwise.path)
        before = blockwise.n_iter
    if any(n < k for n, k in zip(problem.f.bases.sizes, problem.f.ranks, strict=True)):  # picked without a look at that
        problem = replace(problem, f=cut(problem.f, np.arange(len(problem.linear))))
    parts = parts_of(problem.f)
    if method == "newton" or (method == "auto" and _suits_newton(problem, parts)):
        quick = Newton(problem, parts, start)
        point = _finished(quick, problem, parts, tol, min(max_iter, NEWTON_STEPS), verbose)
        if point.gap <= tol:
            return point, quick.n_iter, "newton", tuple(quick.path)
    run = InteriorPoint(problem, parts)
    point = _finished(run, problem, parts, tol, max_iter, verbose)
    return point, before + run.n_iter, "interior-point", tuple((before + step, gap) for step, gap in run.path)


def _finished(
    run: InteriorPoint | Newton, problem: Problem, parts: tuple[Part, ...], tol: float, max_iter: int, verbose: int
) -> Point:
    """Take a run to ``tol`` and polish; where the polish does not find the right set, go on and polish again."""
    polished: Point | None = None
    for target in (tol, *FURTHER * tol):
        before = run.n_iter
        run.reach(target, max_iter, verbose)
        if (run.n_iter == before and before) or (isinstance(run, Newton) and run.best.gap > POLISHED_FROM):
            break
        finer = polish(problem, parts, run.best, run.ends, briefly=isinstance(run, Newton))
        if finer is not None and (polished is None or finer.gap < polished.gap):
            polished = finer
        if polished is not None and polished.gap <= EXACT * tol:
            break
    if polished is not None and polished.gap <= max(run.best.gap, 0.1 * tol):
        return polished
    return run.best


def _tidied(problem: Problem, point: Point, tol: float) -> Point:
    """The point with rows that rounding keeps off an end put there; without free rows, with the middle multiplier."""
    width = problem.high - problem.low
    b = np.where(point.b - problem.low <= ROUNDING * width, problem.low, point.b)
    b = np.where(problem.high - b <= ROUNDING * width, problem.high, b)
    if problem.epsilon:
        b = np.where((np.abs(b) <= ROUNDING * width) & (problem.low <= 0.0) & (problem.high >= 0.0), 0.0, b)
    free = (b > problem.low) & (b < problem.high) & ((b != 0.0) | (problem.epsilon == 0.0))
    product = point.product if np.array_equal(b, point.b) else problem.multiply(b)
    multiplier = point.multiplier if free.any() else central_multiplier(problem, b, product)
    tidy = problem.point(b, multiplier, product)
    if abs(float(b.sum()) - problem.total) > abs(float(point.b.sum()) - problem.total) + 1e-12 * float(np.abs(b).sum()):
        return point
    return tidy if tidy.gap <= max(point.gap, EXACT * tol) else point


def _narrowed(problem: Problem) -> Iterator[Problem]:
    """The problem, after ones whose wide ranges are cut, less and less: what no cut touches solves them all.

    Over a range of 1e10 a gap says little: rounding times the range exceeds the objective of a wide margin.
    """
    curvature = float(np.abs(problem.f.diagonal()).mean())
    unit = (float(np.abs(problem.linear).mean()) + problem.epsilon) / max(curvature, 1e-300)
    widest = float(np.maximum(-problem.low, problem.high).max())
    limit = NARROW * unit if widest > WIDE * unit > 0.0 else widest
    while limit < widest:
        low, high = np.maximum(problem.low, -limit), np.minimum(problem.high, limit)
        if low.sum() < problem.total < high.sum():
            yield replace(problem, low=low, high=high)
        limit *= WIDER
    yield problem


def _touches(b: Array, cut: Problem, whole: Problem) -> bool:
    """Whether a row lies at an end that it has only because its range was cut."""
    up, down = b >= (1.0 - TOUCH) * cut.high, b <= (1.0 - TOUCH) * cut.low
    return bool((up & (cut.high < whole.high)).any() or (down & (cut.low > whole.low)).any())


def _suits_blockwise(problem: Problem) -> bool:
    """Whether blocks are on their own and have few enough rows that their free ones are soon known."""
    if not has_independent_blocks(problem.f):
        return False
    return float((problem.high > problem.low).sum()) <= BLOCKWISE_RATIO * problem.f.rank


def _suits_newton(problem: Problem, parts: tuple[Part, ...]) -> bool:
    """Whether Newton measured faster: labels, many rows, one large coupled part, a box not too wide for the matrix."""
    f = problem.f
    rank = max((part.core.shape[0] for part in parts), default=0)
    if problem.epsilon or not problem.linear.any() or rank < NEWTON_SHARE * f.rank:
        return False
    if f.shape[0] < max(NEWTON_ROWS, NEWTON_RATIO * rank):
        return False
    slopes = float(np.abs(problem.linear).mean())
    width = float((problem.high - problem.low).mean())
    return width * float(np.abs(f.diagonal()).mean()) <= NEWTON_WIDTH * slopes


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
        if not (isinstance(number, int | float | np.number) and math.isfinite(number)) or (
            number < 0 and name != "total"
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
        some = restricted(f, rows) if has_independent_blocks(f) else cut(f, rows)
        return Problem(some, g, lo, hi, float(total), float(epsilon))
    for i, part in enumerate(vectors):
        vectors[i] = np.zeros(n)
        vectors[i][rows] = part
    g, lo, hi = vectors
    return Problem(f, g, lo, hi, float(total), float(epsilon))
