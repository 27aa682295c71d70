"""An active-set polish: from a nearly optimal point to one with exact bounds and solved free rows.

In: a problem, a point, and which rows seem to lie at a bound. Out: the best point found, or None. Rows at bounds are
held, and the free rows solve K_FF b_F + y = g_F - K_FH b_H with sum(b) = total. Rows that leave the box are set to its
bound and the system is solved again. Then held rows whose slope points into the box are released.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from krein.arrays import EPS, Array, Indices
from krein.factorization import Factorization
from krein.solvers.problem import Ends, Mask, Point, Problem, central_multiplier, square
from krein.solvers.woodbury import Part, factorize

__all__ = ["polish"]

# The active set is changed at most ROUNDS times, or BRIEF_ROUNDS times if the point can be improved otherwise.
ROUNDS = 8
BRIEF_ROUNDS = 3
# These ridges, relative to the largest diagonal entry, are tried in order.
RIDGES = (0.0, 1e-8, 1e-5)
# The factored system has at least this ridge if the shift is zero, because of rounding.
LEAST_RIDGE = 1e-6
# The solution for the free rows is refined at most this often.
REFINEMENTS = 4
# The polish is given up if more than this share of the free rows leaves the box at once.
LOST_SHARE = 0.5
# Up to this many free rows K_FF itself is formed.
DENSE_ROWS = 2000
# The states of a row: free, or held at its lower bound, at zero or at its upper bound.
FREE, LOW, ZERO, HIGH = 0, 1, 2, 3


def polish(
    problem: Problem, parts: tuple[Part, ...], point: Point, ends: Ends, *, briefly: bool = False
) -> Point | None:
    """Return the best point that a few changes of the active set reach, or None if no system could be solved.

    ``briefly`` makes fewer of them, for a point that can also be improved otherwise. If free rows are nearly dependent,
    rounding determines their solution; the ridge is then raised until the step is short.
    """
    best: Point | None = None
    for ridge in RIDGES[:1] if briefly else RIDGES:
        found, lost = _rounds(problem, parts, point, ends, ridge, BRIEF_ROUNDS if briefly else ROUNDS)
        if found is not None and (best is None or found.gap < best.gap):
            best = found
        if best is not None and (best.gap <= 1e-2 * point.gap or not lost):
            break
    return best


def _rounds(
    problem: Problem, parts: tuple[Part, ...], point: Point, ends: Ends, ridge: float, rounds: int
) -> tuple[Point | None, bool]:
    """The best point found with this ridge, and whether too many free rows left the box."""
    held = _held(problem, point.b, *ends)
    b, multiplier = point.b, point.multiplier
    best: Point | None = None
    lost = True
    for _ in range(rounds):
        b = _on_edges(problem, b, held)
        solved = _free_rows(problem, parts, b, multiplier, held, ridge)
        if solved is None:
            break
        b, multiplier, held, left = solved
        product = problem.f @ b
        if not (held == FREE).any():
            multiplier = central_multiplier(problem, b, product)
        trial = problem.point(b, multiplier, product)
        lost = left > max(5, LOST_SHARE * int((held == FREE).sum()))
        if best is None or trial.gap < best.gap:
            best = trial
        if lost:
            break
        if left:
            continue  # the slopes mean nothing before the free rows are solved for
        released = _released(problem, b, product, multiplier, held)
        if not released.any():
            break
        held = np.where(released, FREE, held)
    return best, lost


def _held(problem: Problem, b: Array, at_low: Mask, at_high: Mask) -> Indices:
    """FREE, LOW, ZERO or HIGH for each row, from the ends its parts lie at."""
    width = problem.high - problem.low
    if len(at_low) == 1:
        nearer = b - problem.low < 0.5 * width
        held = np.where(at_low[0] & (nearer | ~at_high[0]), LOW, np.where(at_high[0], HIGH, FREE))
    else:
        low, high = problem.low, problem.high
        down, up = at_low | np.stack([high <= 0.0, low >= 0.0]), at_high
        held = np.where(up[0] & down[1], HIGH, np.where(up[1] & down[0], LOW, FREE))
        neither = down[0] & down[1]
        held = np.where(neither, np.where(low >= 0.0, LOW, np.where(high <= 0.0, HIGH, ZERO)), held)
    return np.where(width <= 0.0, LOW, held)


def _on_edges(problem: Problem, b: Array, held: Indices) -> Array:
    b = np.where(held == LOW, problem.low, np.where(held == HIGH, problem.high, b))
    return np.where(held == ZERO, 0.0, np.clip(b, problem.low, problem.high))


def _free_rows(
    problem: Problem, parts: tuple[Part, ...], b: Array, multiplier: float, held: Indices, ridge: float
) -> tuple[Array, float, Indices, int] | None:
    """Solve for the free rows, put those that leave their side of the box on its edge; say how many did."""
    f, free = problem.f, held == FREE
    if not free.any():
        return b, multiplier, held, 0
    side = np.where(b > 0.0, 1.0, np.where(b < 0.0, -1.0, 0.0))
    if problem.epsilon:
        slope = problem.f @ b - problem.linear + multiplier
        side = np.where(side == 0.0, -np.sign(slope), side)  # a row set free from zero leaves it downhill
    solve = (
        _dense_solver(f, free, ridge)
        if free.sum() <= (min(f.rank, DENSE_ROWS) if f.shift > 0.0 else DENSE_ROWS)
        else _solver(f, parts, free, ridge)
    )
    if solve is None:
        return None
    ones = solve(np.where(free, 1.0, 0.0))
    total = float(ones.sum())
    if not total > 0.0:
        return None
    last = np.inf
    pull = problem.linear - problem.epsilon * side
    y, x = multiplier, b
    for _ in range(REFINEMENTS):
        rest = np.where(free, pull - problem.f @ x - y, 0.0)
        short = problem.total - float(x.sum())
        left = float(np.linalg.norm(rest)) + abs(short)
        if not np.isfinite(left) or left > 0.5 * last:
            break
        last = left
        step = solve(rest)
        dy = (float(step.sum()) - short) / total
        b, multiplier = x, y  # the last whose residual was seen to fall
        x, y = x + step - dy * ones, y + dy
    if not np.isfinite(x).all():
        return None
    b, multiplier = x, y
    low = np.where(side > 0.0, np.maximum(problem.low, 0.0), problem.low) if problem.epsilon else problem.low
    high = np.where(side < 0.0, np.minimum(problem.high, 0.0), problem.high) if problem.epsilon else problem.high
    below, above = free & (b < low), free & (b > high)
    edge_low = np.where(low == problem.low, LOW, ZERO)
    edge_high = np.where(high == problem.high, HIGH, ZERO)
    held = np.where(below, edge_low, np.where(above, edge_high, held))
    return np.where(free, np.clip(b, low, high), b), multiplier, held, int((below | above).sum())


def _solver(f: Factorization, parts: tuple[Part, ...], free: Mask, ridge: float) -> Callable[[Array], Array] | None:
    """x -> (K_FF + ridge I)⁻¹ x_F on the free rows, zero elsewhere, by the factored form."""
    inverse = np.where(free, 1.0 / (f.shift + max(ridge, 0.0 if f.shift > 0.0 else LEAST_RIDGE) * _size(f)), 0.0)
    system = factorize(parts, f.rank, f.gram(inverse), triangular=False)
    if system is None:
        return None

    def solve(x: Array) -> Array:
        scaled = inverse * x
        return np.asarray(scaled - inverse * f.lift(system.solve(f.project(scaled))))

    return solve


def _dense_solver(f: Factorization, free: Mask, ridge: float) -> Callable[[Array], Array] | None:
    """The same by K_FF itself, which is small; as exact as there is, also where the shift is zero."""
    rows = np.flatnonzero(free)
    matrix = square(f, rows)
    size = float(np.diagonal(matrix).max(initial=0.0)) or 1.0
    matrix[np.arange(len(rows)), np.arange(len(rows))] += max(ridge, 10 * len(rows) * EPS) * size
    upper, info = lapack.dpotrf(matrix, lower=0, clean=0, overwrite_a=1)
    if info != 0:
        return None

    def solve(x: Array) -> Array:
        out = np.zeros(len(free))
        out[rows] = lapack.dpotrs(upper, x[rows], lower=0)[0].ravel()
        return out

    return solve


def _size(f: Factorization) -> float:
    return float(np.abs(f.diagonal()).max(initial=0.0)) or 1.0


def _released(problem: Problem, b: Array, product: Array, multiplier: float, held: Indices) -> Mask:
    """Held rows whose slope points into the box."""
    slope, eps = product - problem.linear + multiplier, problem.epsilon
    slack = 1e-10 * (float(np.abs(problem.linear).mean()) + eps + float(np.abs(product).mean()))
    rightward = slope + np.where(b >= 0.0, eps, -eps)  # the derivative towards larger b
    leftward = slope + np.where(b > 0.0, eps, -eps)
    inward = np.where(held == LOW, rightward < -slack, held == HIGH) & ((held != HIGH) | (leftward > slack))
    inward = np.where(held == ZERO, (rightward < -slack) | (leftward > slack), inward)
    return np.asarray(inward & (problem.high > problem.low))
