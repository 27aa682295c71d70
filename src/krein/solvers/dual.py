"""The dual of support vector machines on a factorization: checked, restricted to its rows, solved and polished.

In: a factorization, and the vectors of the quadratic programme. Out: a `Dual`. `solve_dual` chooses the method.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from krein.arrays import Array, check_indices
from krein.errors import InputError, one_of, whole_number
from krein.factorization import Factorization
from krein.factorization.pieces import PieceBases
from krein.solvers.blockwise import Blockwise, has_independent_blocks, suits_blockwise
from krein.solvers.interior_point import InMemory, InteriorPoint
from krein.solvers.interior_point_pieces import InPieces
from krein.solvers.newton import InMemoryRows, Newton, NewtonRows, suits_newton
from krein.solvers.newton_pieces import RowsInPieces
from krein.solvers.polish import polish
from krein.solvers.problem import Point, Problem, central_multiplier, cut, ends_of, restricted
from krein.solvers.woodbury import Part, parts_of

__all__ = ["Dual", "Path", "solve_dual"]

Path: TypeAlias = tuple[tuple[int, float], ...]
METHODS = ("auto", "interior-point", "newton", "blockwise")
# A polish with a gap below this share of tol has found the right active set.
POLISHED_GAP = 1e-3
# The interior point goes on to these shares of tol while the polish has not.
FURTHER_GAPS = np.array([1e-2, 1e-4])
# Newton's method makes at most this many steps before the interior point takes over.
NEWTON_STEPS = 200
# A blockwise solution with a larger gap found its multiplier by bisection, at a jump of the sum. It is polished.
UNPOLISHED_GAP = 1e-12
# A coefficient closer to its bound than this share of its range is set to the bound.
BOUND_DISTANCE = 1e-12
# Newton's point is polished if its relative gap is at most this.
POLISHABLE_GAP = 1e-4
# Ranges above WIDE_RANGE, in units of slope over curvature, are first cut to FIRST_RANGE. The cut grows by
# the factor RANGE_GROWTH while a coefficient comes within the share CUT_DISTANCE of it.
WIDE_RANGE = 1e6
FIRST_RANGE = 1e4
RANGE_GROWTH = 100.0
CUT_DISTANCE = 0.01
# The bases are copied if the dual has at most this share of the rows. Otherwise the other rows are fixed at zero.
COPIED_SHARE = 0.5
# Rows that lie in pieces are copied into memory if they hold at most this many numbers of U.
COPIED_NUMBERS = 2**24
# Beyond this many rows in pieces there is no polish, whose vectors of n numbers lie in memory.
POLISHED_ROWS = 4_000_000


@dataclass(frozen=True, eq=False)
class Dual:
    """A solution of the dual.

    Attributes
    ----------
    coefficients : ndarray of shape (m,)
        b, in the order of ``rows``.
    intercept : float
        K b + intercept is the decision function. On free rows of an SVC it is the label.
    objective : float
        The minimum.
    gap : float
        Duality gap relative to |objective|, or to a small share of the largest cost in the box if that is larger.
    n_iter : int
        Number of steps.
    converged : bool
        Whether the gap is at most ``tol``. If not, this is the best point found.
    method : str
        The method that found it.
    path : tuple of (int, float)
        The gap after each number of steps. The polish is last.
    """

    coefficients: Array
    intercept: float
    objective: float
    gap: float
    n_iter: int
    converged: bool
    method: str
    path: Path = ()

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

    An SVC has b = y a, linear = y and a box from 0 to C y. An SVR has its targets as linear, the box [-C, C] and
    epsilon. A one-class SVM has linear = 0, the box [0, 1] and total = nu n.

    Parameters
    ----------
    f : Factorization
        K, or a matrix whose rows and columns ``rows`` are K.
    linear, low, high : array of shape (m,)
        One number per row of K.
    total : float, default=0.0
        Sum of b.
    epsilon : float, default=0.0
        Weight of |b|_1, at least 0.
    rows : integer array of shape (m,) or None, default=None
        The rows of ``f`` that take part; None means all.
    tol : float, default=1e-6
        Relative duality gap at which the solver stops.
    max_iter : int, default=200
        Largest number of steps.
    start : Dual or None, default=None
        A solution for the same rows to start from. The interior point does not use it.
    method : {"auto", "interior-point", "newton", "blockwise"}, default="auto"
        "blockwise" solves blocks without coupling one by one, thousands at a time; "auto" takes it if blocks have few
        rows for their rank. "newton" is faster for many rows and a small coupled core. If either does not reach
        ``tol``, the interior point continues: 10 to 40 steps, each with one `gram`, one Cholesky factorization of the
        core and about 8 products. Of rows in pieces, a step of Newton's method visits all twice, and one of the
        interior point four times.
    verbose : int, default=0
        Whether a progress bar is shown.

    Returns
    -------
    Dual
        The solution. An active-set polish has set bounds and zeros exactly and solved for the free rows. If the
        solution is not unique (dependent free rows, shift 0), it is one of them. More than 4,000,000 rows in pieces
        are not polished: the solution then is the first whose gap is at most ``tol``.

    Raises
    ------
    IndefiniteError
        If a Newton system has a negative direction, so that the problem is not convex. An indefinite K without one
        ends in a local minimum, for which the gap certifies nothing.
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
    problem, places = _checked(f, chosen, linear, low, high, total, epsilon)
    begun = _begun(problem, chosen, places, start)
    settings = (tol, int(max_iter), begun, method, verbose)
    files = _checkpoints(problem.f)
    if files is None:
        return _dual(problem, places, *settings)
    name = f"dual-{_fingerprint(problem, tol, max_iter)}"  # of several duals, those that are finished are not repeated
    return Dual(*files.recall(name, lambda: tuple(vars(_dual(problem, places, *settings)).values())))


def _dual(
    problem: Problem, places: Any, tol: float, max_iter: int, start: tuple[Array, float] | None, method: str,
    verbose: int,
) -> Dual:  # fmt: skip
    """The solution of a checked problem, for the rows at these places in it."""
    steps = 0
    path: Path = ()
    for some in _narrowed(problem):
        point, taken, used, fell = _solved(some, tol, max_iter, start, method, verbose)
        point = _tidied(some, point, tol)
        steps, path = steps + taken, (*path, *((steps + step, gap) for step, gap in fell))
        if point.gap <= tol and not _touches(point.b, some, problem):
            break
    own = point.b[places]
    path = (*path, (steps, point.gap))
    return Dual(own, point.multiplier, point.objective, point.gap, steps, point.gap <= tol, used, path)


def _begun(problem: Problem, rows: Any, places: Any, start: Dual | None) -> tuple[Array, float] | None:
    if start is None:
        return None
    if start.coefficients.shape != (len(rows),):
        raise InputError(
            f"start must be the solution of a dual with the same {len(rows)} rows; its has {len(start.coefficients)}."
        )
    wide = np.zeros(len(problem.linear))
    wide[places] = start.coefficients
    return wide, start.intercept


def _solved(
    problem: Problem, tol: float, max_iter: int, start: tuple[Array, float] | None, method: str, verbose: int
) -> tuple[Point, int, str, Path]:
    forced = _only_point(problem)
    if forced is not None:
        return forced, 0, "interior-point", ()
    before = 0
    if method == "blockwise" or (method == "auto" and not _in_pieces(problem.f) and suits_blockwise(problem)):
        blockwise = Blockwise(problem, start)
        found = blockwise.reach(tol, max_iter, verbose)
        if found is not None and found.gap <= tol:
            if found.gap > UNPOLISHED_GAP:
                finer = polish(problem, parts_of(problem.f), found, ends_of(problem, found.b), briefly=True)
                found = finer if finer is not None and finer.gap < found.gap else found
            return found, blockwise.n_iter, "blockwise", tuple(blockwise.path)
        before = blockwise.n_iter
    few = any(n < k for n, k in zip(problem.f.bases.sizes, problem.f.ranks, strict=True))
    if few and not _in_pieces(problem.f):
        problem = replace(problem, f=cut(problem.f, np.arange(len(problem.linear))))
    parts = parts_of(problem.f)
    files = _checkpoints(problem.f)
    name = "" if files is None else f"path-{_fingerprint(problem, tol, max_iter)}"
    if method == "newton" or (method == "auto" and suits_newton(problem, parts)):
        quick = Newton(_newton_rows(problem, start, name), parts)
        point = _finished(quick, problem, parts, tol, min(max_iter, NEWTON_STEPS), verbose)
        if point.gap <= tol:
            if files is not None:
                files.forget_states(f"{name}-newton")
            return point, quick.n_iter, "newton", tuple(quick.path)
    run = InteriorPoint(InPieces(problem, parts, name) if _in_pieces(problem.f) else InMemory(problem, parts))
    point = _finished(run, problem, parts, tol, max_iter, verbose)
    if files is not None:
        files.forget_states(f"{name}-newton")
        files.forget_states(name)
    return point, before + run.n_iter, "interior-point", tuple((before + step, gap) for step, gap in run.path)


def _newton_rows(problem: Problem, start: tuple[Array, float] | None, name: str) -> NewtonRows:
    if not _in_pieces(problem.f):
        return InMemoryRows(problem, start)
    return RowsInPieces(problem, start, name and f"{name}-newton")


def _finished(
    run: InteriorPoint | Newton, problem: Problem, parts: tuple[Part, ...], tol: float, max_iter: int, verbose: int
) -> Point:
    """Run to ``tol`` and polish; if the polish does not find the active set, go on and polish again."""
    if _in_pieces(problem.f) and len(problem.linear) > POLISHED_ROWS:
        return run.reach(tol, max_iter, verbose)
    polished: Point | None = None
    for target in (tol, *FURTHER_GAPS * tol):
        before = run.n_iter
        run.reach(target, max_iter, verbose)
        if (run.n_iter == before and target < tol) or (isinstance(run, Newton) and run.gap > POLISHABLE_GAP):
            break
        finer = polish(problem, parts, run.best, run.ends, briefly=isinstance(run, Newton))
        if finer is not None and (polished is None or finer.gap < polished.gap):
            polished = finer
        if polished is not None and polished.gap <= POLISHED_GAP * tol:
            break
    if polished is not None and polished.gap <= max(run.best.gap, 0.1 * tol):
        return polished
    return run.best


def _tidied(problem: Problem, point: Point, tol: float) -> Point:
    """The point with coefficients at bounds freed of rounding, and the central multiplier if no row is free."""
    width = problem.high - problem.low
    b = np.where(point.b - problem.low <= BOUND_DISTANCE * width, problem.low, point.b)
    b = np.where(problem.high - b <= BOUND_DISTANCE * width, problem.high, b)
    if problem.epsilon:
        b = np.where((np.abs(b) <= BOUND_DISTANCE * width) & (problem.low <= 0.0) & (problem.high >= 0.0), 0.0, b)
    free = (b > problem.low) & (b < problem.high) & ((b != 0.0) | (problem.epsilon == 0.0))
    product = point.product if np.array_equal(b, point.b) else problem.f @ b
    multiplier = point.multiplier if free.any() else central_multiplier(problem, b, product)
    tidy = problem.point(b, multiplier, product)
    if abs(float(b.sum()) - problem.total) > abs(float(point.b.sum()) - problem.total) + 1e-12 * float(np.abs(b).sum()):
        return point
    return tidy if tidy.gap <= max(point.gap, POLISHED_GAP * tol) else point


def _narrowed(problem: Problem) -> Iterator[Problem]:
    """Yield the problem with its wide ranges cut, less and less, and at last the problem itself.

    A solution that touches no cut solves the problem. Without cuts, rounding times a range of 1e10 would exceed the
    objective, and the gap would mean nothing.
    """
    curvature = float(np.abs(problem.f.diagonal()).mean())
    unit = (float(np.abs(problem.linear).mean()) + problem.epsilon) / max(curvature, 1e-300)
    widest = float(np.maximum(-problem.low, problem.high).max())
    limit = FIRST_RANGE * unit if widest > WIDE_RANGE * unit > 0.0 else widest
    while limit < widest:
        low, high = np.maximum(problem.low, -limit), np.minimum(problem.high, limit)
        if low.sum() < problem.total < high.sum():
            yield replace(problem, low=low, high=high)
        limit *= RANGE_GROWTH
    yield problem


def _touches(b: Array, cut: Problem, whole: Problem) -> bool:
    """Whether a coefficient lies at a bound that exists only because its range was cut."""
    up, down = b >= (1.0 - CUT_DISTANCE) * cut.high, b <= (1.0 - CUT_DISTANCE) * cut.low
    return bool((up & (cut.high < whole.high)).any() or (down & (cut.low > whole.low)).any())


def _in_pieces(f: Factorization) -> bool:
    return isinstance(f.bases, PieceBases)


def _checkpoints(f: Factorization) -> Any:
    """The folder in which an interrupted fit goes on, or None."""
    bases: Any = f.bases
    files = getattr(bases.pieces.engine, "checkpoints", None) if _in_pieces(f) else None
    return files if files is not None and files.kept else None


def _fingerprint(problem: Problem, tol: float, max_iter: int) -> str:
    """A name that no other problem of a fit has."""
    numbers = (problem.total, problem.epsilon, problem.f.shift, tol, max_iter)
    content = hashlib.blake2b(repr(numbers).encode(), digest_size=8)
    for vector in (problem.linear, problem.low, problem.high, problem.f.core @ np.linspace(1.0, 2.0, problem.f.rank)):
        content.update(np.ascontiguousarray(vector).data)
    return content.hexdigest()


def _only_point(problem: Problem) -> Point | None:
    """The only feasible point, if the box and the sum leave one."""
    slack = 1e-14 * problem.reach
    for b, other in ((problem.low, problem.high), (problem.high, problem.low)):
        if abs(problem.total - float(b.sum())) <= slack or np.array_equal(b, other):
            product = problem.f @ b
            return problem.point(b, central_multiplier(problem, b, product), product)
    return None


def _checked(
    f: Factorization, rows: Any, linear: Any, low: Any, high: Any, total: float, epsilon: float
) -> tuple[Problem, Any]:
    """The checked problem on its rows, and where in it they are.

    It has copied bases if the rows are few, and the other rows fixed at zero if not.
    """
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
        return Problem(f, g, lo, hi, float(total), float(epsilon)), slice(None)
    if len(rows) <= COPIED_SHARE * n:
        if _in_pieces(f) and len(rows) * max(f.ranks) > COPIED_NUMBERS:
            bases: Any = f.bases
            some, order = replace(f, bases=bases.part(np.sort(rows))), np.argsort(rows)
            return Problem(some, g[order], lo[order], hi[order], float(total), float(epsilon)), np.argsort(order)
        some = restricted(f, rows) if has_independent_blocks(f) else cut(f, rows)
        return Problem(some, g, lo, hi, float(total), float(epsilon)), slice(None)
    for i, part in enumerate(vectors):
        vectors[i] = np.zeros(n)
        vectors[i][rows] = part
    g, lo, hi = vectors
    return Problem(f, g, lo, hi, float(total), float(epsilon)), rows
