"""The active-set polish: from a nearly optimal point to one whose bounds are exact and whose free rows are solved for.

In: a problem, a point and which rows seem to lie at an end. Out: the best point met, or None. With the rows at their
ends held, the free ones solve K_FF b_F + y = g_F - ..., sum(b) = total: one system with D = s on the free rows. Rows
that leave the box are put on its edge and it is done again; then held rows whose slope points inwards are set free.
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

ROUNDS, BRIEF = 8, 3
RIDGES = (0.0, 1e-8, 1e-5)  # of the largest entry of the diagonal, tried in this order
LEAST = 1e-6  # the ridge of the factored form where the shift is zero: below, rounding takes over
REFINEMENTS = 4
LOST = 0.5  # share of the free rows
DENSE = 2000  # free rows up to which K_FF itself is formed
FREE, LOW, ZERO, HIGH = 0, 1, 2, 3


def polish(
    problem: Problem, parts: tuple[Part, ...], point: Point, ends: Ends, *, briefly: bool = False
) -> Point | None:
    """Return the best point that a few rounds of the active set reach, or None where no system could be solved.

    ``briefly`` asks for a few rounds only, where the point can also be taken further at little cost.

    Where free rows are nearly dependent their system fixes them by rounding alone, so the ridge is raised until the
    step stays near the point.
    """
    best: Point | None = None
    for ridge in RIDGES[:1] if briefly else RIDGES:
        found, lost = _rounds(problem, parts, point, ends, ridge, BRIEF if briefly else ROUNDS)
        if found is not None and (best is None or found.gap < best.gap):
            best = found
        if best is not None and (best.gap <= 1e-2 * point.gap or not lost):
            break
    return best


def _rounds(
    problem: Problem, parts: tuple[Part, ...], point: Point, ends: Ends, ridge: float, rounds: int
) -> tuple[Point | None, bool]:
    """The best point met with this ridge, and whether the free rows ran off."""
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
        product = problem.multiply(b)
        if not (held == FREE).any():
            multiplier = central_multiplier(problem, b, product)
        trial = problem.point(b, multiplier, product)
        lost = left > max(5, LOST * int((held == FREE).sum()))  # not a correction any more, and worse each time
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
        slope = problem.multiply(b) - problem.linear + multiplier
        side = np.where(side == 0.0, -np.sign(slope), side)  # a row set free from zero leaves it downhill
    solve = (
        _dense_solver(f, free, ridge)
        if free.sum() <= (min(f.rank, DENSE) if f.shift > 0.0 else DENSE)
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
        rest = np.where(free, pull - problem.multiply(x) - y, 0.0)
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
    inverse = np.where(free, 1.0 / (f.shift + max(ridge, 0.0 if f.shift > 0.0 else LEAST) * _size(f)), 0.0)
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
