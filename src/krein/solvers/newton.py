"""Semismooth Newton on the dual: proximal steps whose inner problem lives in r + 1 unknowns, for n far above r.

In: a problem with a psd matrix. Out: the best point met, with its duality gap. A step minimises the dual plus
delta/2 |b - centre|², whose optimal b is a clipped linear function of (w, y), w = Uᵀb: only rows strictly inside the
box enter the Hessian, so its gram is over these alone, and a step costs one `lift` and one `project` besides.
"""

from __future__ import annotations

import numpy as np
from tqdm import tqdm

from krein.arrays import Array
from krein.blocksparse import EPS
from krein.factorization import Factorization
from krein.solvers.problem import Ends, Point, Problem
from krein.solvers.system import Part, factorize

__all__ = ["newton"]

SMOOTHING, SHARPER, LEAST = 0.1, 0.3, 3e-3  # delta in units of slope over range: first, from centre to centre, last
WARM_SMOOTHING = 0.01  # the first where a start is given
INNER = 25  # Newton steps for one centre; where they do not do, the problem is for the interior point
HALVINGS = 30


def newton(
    problem: Problem,
    parts: tuple[Part, ...],
    tol: float,
    max_iter: int,
    start: tuple[Array, float] | None = None,
    verbose: int = 0,
    path: list[tuple[int, float]] | None = None,
) -> tuple[Point, Ends, int]:
    """Return the best point, the rows that lie at their ends, and the steps taken; ``path`` gets (steps, gap)."""
    f = problem.f
    slopes = float(np.abs(problem.linear).mean()) + problem.epsilon or 1.0
    unit = slopes / float((problem.high - problem.low).mean())  # a smoothing of 1 blurs a row's whole range
    given, multiplier = (np.zeros(len(problem.linear)), 0.0) if start is None else start
    centre, w = np.clip(given, problem.low, problem.high), f.project(given)
    best: Point | None = None
    steps, smoothing = 0, SMOOTHING if start is None else WARM_SMOOTHING
    with tqdm(total=max_iter, desc="newton", disable=verbose <= 0) as bar:
        while steps < max_iter:
            delta = max(0.0, smoothing * unit - f.shift)
            b, w, multiplier, taken = _inner(problem, parts, centre, delta, w, multiplier, max_iter - steps)
            steps += taken
            point = problem.point(b, multiplier)
            if path is not None:
                path.append((steps, point.gap))
            bar.update(taken)
            bar.set_postfix(gap=f"{point.gap:.2g}")
            better = best is None or point.gap < 0.9 * best.gap
            if best is None or point.gap < best.gap:
                best = point
            if best.gap <= tol or not better or taken >= INNER or delta == 0.0:
                break
            centre, smoothing = b, max(LEAST, SHARPER * smoothing)
    assert best is not None
    return best, _ends(problem, best.b), steps


def _ends(problem: Problem, b: Array) -> Ends:
    """Which parts of the rows lie at their lower and at their upper end, as `polish` takes them."""
    if not problem.epsilon:
        return (b <= problem.low)[None], (b >= problem.high)[None]
    low = np.stack([b <= np.maximum(problem.low, 0.0), b >= np.minimum(problem.high, 0.0)])
    return low, np.stack([b >= problem.high, b <= problem.low]) & ~low


def _inner(
    problem: Problem,
    parts: tuple[Part, ...],
    centre: Array,
    delta: float,
    w: Array,
    y: float,
    max_iter: int,
) -> tuple[Array, Array, float, int]:
    f, core = problem.f, problem.f.core
    sigma = f.shift + delta
    pull = problem.linear + delta * centre if delta else problem.linear
    field = f.lift(core @ w)  # U M w

    def value(energy: float, c: Array, y: float) -> tuple[float, Array]:
        """The function that is minimised, and its b."""
        b = _response(problem, c, sigma)
        h = c * b - 0.5 * sigma * b * b
        if problem.epsilon:
            h -= problem.epsilon * np.abs(b)
        return energy + float(h.sum()) + y * problem.total, b

    c = pull - field - y
    energy = 0.5 * float(w @ (core @ w))
    now, b = value(energy, c, y)
    steps = 0
    for _ in range(min(INNER, max_iter)):
        image = f.project(b)
        rest, short = w - image, problem.total - float(b.sum())
        free = (b > problem.low) & (b < problem.high)
        if problem.epsilon:
            free &= b != 0.0
        weights = np.where(free, 1.0 / sigma, 0.0)
        slack, size = float(rest @ (core @ rest)), float(w @ (core @ w))
        if slack <= EPS**2 * size and abs(short) <= 1e-12 * problem.reach:
            break
        if slack < 0.0 or size < 0.0:  # the core is indefinite: what is minimised here is not convex
            break
        grams = f.gram(weights)
        system = factorize(parts, f.rank, grams, triangular=False)
        if system is None:
            break
        q = f.project(weights)
        both = np.stack([-rest, q], axis=1)
        # (I + G M)⁻¹ x = x - G X x, since X = (I + M G)⁻¹ M
        turned = both - _apply(grams, f, system.solve(both))
        d = float(weights.sum())
        mq = core @ q
        curvature = d - float(mq @ turned[:, 1])
        if not curvature > 1e-14 * max(d, 1e-300):
            curvature = max(d, float(len(b)) / sigma * 1e-6)
        dy = (-short - float(mq @ turned[:, 0])) / curvature
        dw = turned[:, 0] - turned[:, 1] * dy
        steps += 1
        image_dw = core @ dw
        along = f.lift(image_dw) + dy
        slope = float(rest @ image_dw) + short * dy
        first, second = float(w @ image_dw), float(dw @ image_dw)
        t = 1.0
        for _ in range(HALVINGS):
            trial, b_new = value(energy + t * first + 0.5 * t * t * second, c - t * along, y + t * dy)
            if trial <= now + 1e-4 * t * slope + 1e-14 * abs(now):
                break
            t *= 0.5
        else:
            break
        w, y, c = w + t * dw, y + t * dy, c - t * along
        energy += t * first + 0.5 * t * t * second
        now, b = trial, b_new
    return b, w, y, steps


def _response(problem: Problem, c: Array, sigma: float) -> Array:
    if problem.epsilon:
        c = np.sign(c) * np.maximum(np.abs(c) - problem.epsilon, 0.0)
    return np.asarray(np.clip(c / sigma, problem.low, problem.high))


def _apply(grams: list[Array], f: Factorization, x: Array) -> Array:
    out = np.empty_like(x)
    for G, (_, cols) in zip(grams, f.spans, strict=True):
        out[cols] = G @ x[cols]
    return out
