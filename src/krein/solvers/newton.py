"""A semismooth Newton method for the dual with many more rows than the rank r.

In: a problem with a psd matrix. Out: the best point found, with its duality gap. A proximal step minimises the dual
plus delta/2 |b - centre|². Its optimal b is a clipped linear function of r + 1 unknowns (w, y) with w = Uᵀb, so only
free rows, strictly inside the box, enter the Hessian. A Newton step is one `gram` over the free rows, or their own
matrix if they are fewer than r, and one `lift` and `project`. The step length is exact: along a direction the slope is
piecewise linear and needs no product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from krein.arrays import EPS, Array, Indices
from krein.factorization import Factorization
from krein.progress import progress_bar
from krein.solvers.problem import Ends, Mask, Point, Problem, ends_of, square
from krein.solvers.woodbury import Part, factorize

__all__ = ["Newton", "suits_newton"]

# Newton's method measured faster for at least NEWTON_ROWS rows, and NEWTON_RATIO rows per rank of the largest coupled
# part, if that part has NEWTON_SHARE of the rank and the mean range times the mean diagonal is at most NEWTON_WIDTH
# labels.
NEWTON_ROWS = 10_000
NEWTON_RATIO = 25
NEWTON_SHARE = 0.5
NEWTON_WIDTH = 30.0

# The proximal weights delta of successive proximal steps, in units of slope over range.
PROXIMAL_WEIGHTS = (10.0, 2.0, 0.4, 0.1, 0.03, 0.01, 0.003)
# With a starting point the weights begin at this one.
WARM_WEIGHT = 0.1
# A proximal step ends when its gap is at most INNER_GAP times the proximal term, or after INNER_STEPS Newton steps.
INNER_GAP = 1.0
INNER_STEPS = 60
# The method stops after PATIENCE proximal steps without a smaller gap.
PATIENCE = 4
# The first proximal steps, BALANCED_FROM of them, do not solve for sum(b) to rounding.
BALANCED_FROM = 3
# The line search stops at this share of the initial slope, or after LENGTH_TRIALS trials.
SLOPE_SHARE = 0.05
LENGTH_TRIALS = 40
# The system of the free rows is solved if they are at most this share of the rank of the largest coupled part.
DENSE_SHARE = 0.8


def suits_newton(problem: Problem, parts: tuple[Part, ...]) -> bool:
    """Whether Newton's method is faster: labels, many rows, one large coupled part, and a narrow box."""
    f = problem.f
    rank = max((part.core.shape[0] for part in parts), default=0)
    if problem.epsilon or not problem.linear.any() or rank < NEWTON_SHARE * f.rank:
        return False
    if f.shape[0] < max(NEWTON_ROWS, NEWTON_RATIO * rank):
        return False
    slopes = float(np.abs(problem.linear).mean())
    width = float((problem.high - problem.low).mean())
    return width * float(np.abs(f.diagonal()).mean()) <= NEWTON_WIDTH * slopes


class Newton:
    """The state of the method; each call of `reach` continues where the last one stopped."""

    def __init__(self, problem: Problem, parts: tuple[Part, ...], start: tuple[Array, float] | None = None) -> None:
        self.problem, self.parts = problem, parts
        slopes = float(np.abs(problem.linear).mean()) + problem.epsilon or 1.0
        self._unit = slopes / float((problem.high - problem.low).mean())  # a weight of 1 blurs a row's whole range
        given, self._multiplier = (np.zeros(len(problem.linear)), 0.0) if start is None else start
        self._centre, self._w = np.clip(given, problem.low, problem.high), problem.f.project(given)
        self._weights = [weight for weight in PROXIMAL_WEIGHTS if start is None or weight <= WARM_WEIGHT]
        self.best = problem.point(self._centre, self._multiplier)
        self.n_iter = self._turn = self._since = 0
        self.path = [(0, self.best.gap)]  # the gap after so many steps
        self._stuck = False

    @property
    def ends(self) -> Ends:
        """Which parts of the best point lie at their lower and at their upper end."""
        return ends_of(self.problem, self.best.b)

    def reach(self, tol: float, max_iter: int, verbose: int = 0) -> Point:
        """Reduce the relative duality gap to ``tol``, or as far as rounding or ``max_iter`` steps in all allow."""
        f = self.problem.f
        with progress_bar(total=max_iter, initial=self.n_iter, what="newton", verbose=verbose) as bar:
            while self.best.gap > tol and self.n_iter < max_iter and not self._stuck:
                delta = max(0.0, self._weights[min(self._turn, len(self._weights) - 1)] * self._unit - f.shift)
                allowed = 0.05 * tol * (abs(self.best.objective) + self.problem.scale) if self._turn else 0.0
                b, self._w, self._multiplier, taken = _inner(
                    self.problem, self.parts, self._centre, delta, self._w, self._multiplier,
                    min(INNER_STEPS, max_iter - self.n_iter), allowed, self._turn >= BALANCED_FROM,
                )  # fmt: skip
                self.n_iter += taken
                self._turn += 1
                self._centre = b
                point = self.problem.point(b, self._multiplier)
                self.path.append((self.n_iter, point.gap))
                better = point.gap < 0.9 * self.best.gap or self._turn <= len(self._weights)
                self._since = 0 if better else self._since + 1
                if point.gap < self.best.gap:
                    self.best = point
                lost = taken >= INNER_STEPS or not np.isfinite(point.gap)
                self._stuck = lost or self._since >= PATIENCE or (delta == 0.0 and taken == 0)
                bar.update(taken)
                bar.set_postfix(gap=f"{self.best.gap:.2g}")
        return self.best


def _inner(
    problem: Problem,
    parts: tuple[Part, ...],
    centre: Array,
    delta: float,
    w: Array,
    y: float,
    max_iter: int,
    rounding: float,
    balanced: bool,
) -> tuple[Array, Array, float, int]:
    """Minimise 1/2 wᵀMw + sum_i h(c_i) + y total over w and y, c = pull - U M w - y and h' = b, the response to c."""
    f, core = problem.f, problem.f.core
    sigma = f.shift + delta
    slopes = float(np.abs(problem.linear).mean()) + problem.epsilon
    pull = problem.linear + delta * centre if delta else problem.linear
    c = pull - f.lift(core @ w) - y
    b = _response(problem, c, sigma)
    steps = 0
    while True:
        rest, short = w - f.project(b), problem.total - float(b.sum())
        gap = float(rest @ (core @ rest))  # twice that of the inner problem, but for the sum
        blur = 0.5 * delta * float(np.square(b - centre).sum())
        left = gap + 2.0 * slopes * abs(short)
        enough = left <= max(INNER_GAP * blur, rounding, EPS * float(w @ (core @ w)))
        enough = enough and not (balanced and abs(short) > 1e-10 * problem.reach)
        if enough or steps >= max_iter or gap < 0.0:
            break  # a gap below 0: the core is indefinite, what is minimised here is not convex
        free = (b > problem.low) & (b < problem.high)
        if problem.epsilon:
            free &= b != 0.0
        step = _step(f, parts, free, sigma, rest, short)
        if step is None:
            break
        line = _Line(problem, c, sigma, w, step)
        t = line.lowest()
        w, y, c = w + t * step.w, y + t * step.y, c - t * step.c
        b = _response(problem, c, sigma)
        steps += 1
        if t * float(np.abs(step.c).max(initial=0.0)) <= 1e-14 * float(np.abs(c).max(initial=0.0)):
            break  # rounding
    return b, w, y, steps


@dataclass(frozen=True, eq=False)
class _Step:
    """Newton's step in the two unknowns, and what it takes from c."""

    w: Array  # (r,)
    y: float
    image: Array  # (r,) M w
    c: Array  # (n,) U M w + y


def _step(
    f: Factorization, parts: tuple[Part, ...], free: Mask, sigma: float, rest: Array, short: float
) -> _Step | None:
    """Solve w = Uᵀb, sum(b) = total, with b moving on free rows alone: by 1 / sigma of what c does."""
    rows = np.flatnonzero(free)
    largest = max((part.core.shape[0] for part in parts), default=0)
    found = _by_rows(f, rows, sigma, rest, short) if len(rows) <= DENSE_SHARE * largest else None
    if found is None:
        found = _by_rank(f, parts, free, sigma, rest, short)
    if found is None:
        return None
    dw, dy = found
    image = f.core @ dw
    along = f.lift(image) + dy
    return _Step(dw, dy, image, along) if np.isfinite(along).all() else None


def _by_rows(f: Factorization, rows: Indices, sigma: float, rest: Array, short: float) -> tuple[Array, float] | None:
    """(sigma + U_F M U_Fᵀ) db = U_F M rest - dy, sum(db) = short, on the free rows F themselves."""
    if len(rows) == 0:
        return None
    matrix = square(f, rows)
    matrix[np.arange(len(rows)), np.arange(len(rows))] += sigma - f.shift
    upper, info = lapack.dpotrf(matrix, lower=0, clean=0, overwrite_a=1)
    if info != 0:
        return None
    right = np.column_stack([f.lift(f.core @ rest)[rows], np.ones(len(rows))])
    both = lapack.dpotrs(upper, right, lower=0)[0]
    total = float(both[:, 1].sum())
    if not total > 0.0:
        return None
    dy = (float(both[:, 0].sum()) - short) / total
    db = np.zeros(f.shape[0])
    db[rows] = both[:, 0] - dy * both[:, 1]
    return f.project(db) - rest, dy


def _by_rank(
    f: Factorization, parts: tuple[Part, ...], free: Mask, sigma: float, rest: Array, short: float
) -> tuple[Array, float] | None:
    """The same by r x r systems, G = U_FᵀU_F / sigma: (I + G M) dw = -rest - q dy with q = U_Fᵀ1 / sigma."""
    weights = np.where(free, 1.0 / sigma, 0.0)
    grams = f.gram(weights)
    system = factorize(parts, f.rank, grams, triangular=False)
    if system is None:
        return None
    q = f.project(weights)
    both = np.stack([-rest, q], axis=1)
    turned = both - _apply(grams, f, system.solve(both))  # (I + G M)⁻¹ x = x - G X x, since X = (I + M G)⁻¹ M
    count = float(weights.sum())
    image = f.core @ q
    curvature = count - float(image @ turned[:, 1])
    if not curvature > 1e-14 * max(count, 1e-300):
        curvature = max(count, float(len(weights)) / sigma * 1e-6)
    dy = (-short - float(image @ turned[:, 0])) / curvature
    return turned[:, 0] - turned[:, 1] * dy, dy


class _Line:
    """What is minimised, along a step: its slope rises with t, is piecewise linear, and takes no product."""

    def __init__(self, problem: Problem, c: Array, sigma: float, w: Array, step: _Step) -> None:
        self.problem, self.c, self.sigma, self.step = problem, c, sigma, step
        self.first = float(w @ step.image) + step.y * problem.total
        self.second = float(step.w @ step.image)

    def slope(self, t: float) -> float:
        b = _response(self.problem, self.c - t * self.step.c, self.sigma)
        return self.first + t * self.second - float(self.step.c @ b)

    def lowest(self) -> float:
        """Where the slope vanishes, nearly; by the secant, kept off the ends of what is known to hold the place."""
        begun = self.slope(0.0)
        left, falling, t = 0.0, begun, 1.0
        now = self.slope(t)
        trials = 0
        while now < 0.0 and abs(now) > SLOPE_SHARE * abs(begun) and trials < LENGTH_TRIALS:
            left, falling, t = t, now, 2.0 * t
            now = self.slope(t)
            trials += 1
        right, rising = t, now
        while abs(now) > SLOPE_SHARE * abs(begun) and trials < LENGTH_TRIALS:
            share = falling / (falling - rising) if falling < rising else 0.5
            t = left + (right - left) * min(max(share, 0.1), 0.9)
            now = self.slope(t)
            left, falling, right, rising = (t, now, right, rising) if now < 0.0 else (left, falling, t, now)
            trials += 1
        return t


def _response(problem: Problem, c: Array, sigma: float) -> Array:
    if problem.epsilon:
        c = np.sign(c) * np.maximum(np.abs(c) - problem.epsilon, 0.0)
    return np.asarray(np.clip(c / sigma, problem.low, problem.high))


def _apply(grams: list[Array], f: Factorization, x: Array) -> Array:
    out = np.empty_like(x)
    for G, (_, cols) in zip(grams, f.spans, strict=True):
        out[cols] = G @ x[cols]
    return out
