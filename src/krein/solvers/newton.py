"""A semismooth Newton method for the dual with many more rows than the rank r.

In: the rows of a problem with a psd matrix, in memory here or in pieces in `newton_pieces`. Out: the best point found,
with its duality gap. A proximal step minimises the dual plus delta/2 |b - centre|². Its optimal b is a clipped linear
function of r + 1 unknowns (w, y) with w = Uᵀb, so only free rows, strictly inside the box, enter the Hessian. A Newton
step is one `gram` over the free rows, or their own matrix if they are fewer than r, and one `lift` and `project`. The
step length is exact: along a direction the slope is piecewise linear and needs no product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from scipy.linalg import lapack

from krein.arrays import EPS, Array, Indices
from krein.factorization import Factorization
from krein.progress import progress_bar
from krein.solvers.problem import Box, Ends, Mask, Point, Problem, ends_of, square
from krein.solvers.woodbury import Part, factorize

if TYPE_CHECKING:
    from krein.solvers.newton_pieces import RowsInPieces

NewtonRows: TypeAlias = "InMemoryRows | RowsInPieces"
__all__ = [
    "Hessian",
    "InMemoryRows",
    "Judged",
    "Newton",
    "NewtonRows",
    "NewtonState",
    "Response",
    "free_rows",
    "response",
    "suits_newton",
]

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


class Response(NamedTuple):
    """What the coefficients b that respond to c = linear + delta centre - U M w - y add up to."""

    projected: Array  # (r,) Uᵀb
    total: float  # sum(b)
    blur: float  # delta/2 |b - centre|²
    size: float  # the largest |c|


class Hessian(NamedTuple):
    """Sums over the free rows, each divided by sigma: of U_iᵀU_i, of the rows of U, and their number."""

    grams: list[Array]
    ones: Array  # (r,)
    total: float


class Judged(NamedTuple):
    """A point: its gap, its objective, and a function that brings the point itself."""

    gap: float
    objective: float
    found: Callable[[], Point]


class NewtonState(NamedTuple):
    """What a checkpoint needs beside the vectors of the rows, and what a fit begins with."""

    w: list[float]
    multiplier: float
    n_iter: int = 0
    turn: int = 0
    since: int = 0
    path: tuple[tuple[int, float], ...] = ()


class Newton:
    """The method; each call of `reach` continues where the last one stopped."""

    def __init__(self, rows: NewtonRows, parts: tuple[Part, ...]) -> None:
        self.rows, self.problem, self.parts = rows, rows.problem, parts
        p, state = self.problem, rows.state
        slopes = float(np.abs(p.linear).mean()) + p.epsilon or 1.0
        self._unit = slopes / float((p.high - p.low).mean())  # a weight of 1 blurs a row's whole range
        self._weights = [weight for weight in PROXIMAL_WEIGHTS if not rows.is_warm or weight <= WARM_WEIGHT]
        self._w, self._multiplier = np.asarray(state.w, dtype=np.float64), state.multiplier
        self._best = rows.begun()
        self.n_iter, self._turn, self._since = state.n_iter, state.turn, state.since
        self.path = [(int(step), float(gap)) for step, gap in state.path] or [
            (0, self._best.gap)
        ]  # the gap after so many steps
        self._stuck = False

    @property
    def best(self) -> Point:
        return self._best.found()

    @property
    def gap(self) -> float:
        """That of the best point."""
        return self._best.gap

    @property
    def ends(self) -> Ends:
        """Which parts of the best point lie at their lower and at their upper end."""
        return ends_of(self.problem, self.best.b)

    def reach(self, tol: float, max_iter: int, verbose: int = 0) -> Point:
        """Reduce the relative duality gap to ``tol``, or as far as rounding or ``max_iter`` steps in all allow."""
        p = self.problem
        with progress_bar(total=max_iter, initial=self.n_iter, what="newton", verbose=verbose) as bar:
            while self.gap > tol and self.n_iter < max_iter and not self._stuck:
                delta = max(0.0, self._weights[min(self._turn, len(self._weights) - 1)] * self._unit - p.f.shift)
                allowed = 0.05 * tol * (abs(self._best.objective) + p.scale) if self._turn else 0.0
                most = min(INNER_STEPS, max_iter - self.n_iter)
                taken = self._proximal_step(delta, most, allowed, self._turn >= BALANCED_FROM)
                self.n_iter += taken
                self._turn += 1
                judged = self.rows.judge(self._multiplier)
                self.path.append((self.n_iter, judged.gap))
                better = judged.gap < 0.9 * self.gap or self._turn <= len(self._weights)
                self._since = 0 if better else self._since + 1
                if judged.gap < self.gap:
                    self._best = judged
                lost = taken >= INNER_STEPS or not np.isfinite(judged.gap)
                self._stuck = lost or self._since >= PATIENCE or (delta == 0.0 and taken == 0)
                if self.gap > tol and not self._stuck:
                    self.rows.keep(
                        NewtonState(
                            self._w.tolist(), self._multiplier, self.n_iter, self._turn, self._since, tuple(self.path)
                        )
                    )
                bar.update(taken)
                bar.set_postfix(gap=f"{self.gap:.2g}", refresh=False)
        return self.best

    def _proximal_step(self, delta: float, max_iter: int, rounding: float, balanced: bool) -> int:
        """Minimise 1/2 wᵀMw + sum_i h(c_i) + y total over w and y, with h' = b, the response; return the steps."""
        p, rows, core, w, y = self.problem, self.rows, self.problem.f.core, self._w, self._multiplier
        sigma = p.f.shift + delta
        slopes = float(np.abs(p.linear).mean()) + p.epsilon
        here = rows.begin(w, y, delta)
        steps = 0
        while True:
            rest, short = w - here.projected, p.total - here.total
            gap = float(rest @ (core @ rest))  # twice that of the inner problem, but for the sum
            left = gap + 2.0 * slopes * abs(short)
            enough = left <= max(INNER_GAP * here.blur, rounding, EPS * float(w @ (core @ w)))
            enough = enough and not (balanced and abs(short) > 1e-10 * p.reach)
            if enough or steps >= max_iter or gap < 0.0:
                break  # a gap below 0: the core is indefinite, what is minimised here is not convex
            direction = self._direction(sigma, rest, short)
            if direction is None:
                break
            dw, dy = direction
            image = core @ dw
            responded, largest = rows.along(image, dy)
            if not np.isfinite(largest):
                break
            t = _length(float(w @ image) + dy * p.total, float(dw @ image), responded)
            w, y = w + t * dw, y + t * dy
            here = rows.move(t)
            steps += 1
            if t * largest <= 1e-14 * here.size:
                break  # rounding
        self._w, self._multiplier = w, y
        return steps

    def _direction(self, sigma: float, rest: Array, short: float) -> tuple[Array, float] | None:
        """Solve w = Uᵀb, sum(b) = total, with b moving on free rows alone: by 1 / sigma of what c does."""
        largest = max((part.core.shape[0] for part in self.parts), default=0)
        found = self.rows.by_rows(rest, short, DENSE_SHARE * largest)
        if found is not None:
            return found
        hessian = self.rows.hessian()
        return _by_rank(self.problem, self.parts, hessian, sigma, rest, short)


def _by_rank(
    problem: Problem, parts: tuple[Part, ...], hessian: Hessian, sigma: float, rest: Array, short: float
) -> tuple[Array, float] | None:
    """The step by r x r systems, G = U_FᵀU_F / sigma: (I + G M) dw = -rest - q dy with q = U_Fᵀ1 / sigma."""
    f = problem.f
    system = factorize(parts, f.rank, hessian.grams, triangular=False)
    if system is None:
        return None
    q = hessian.ones
    both = np.stack([-rest, q], axis=1)
    turned = both - _apply(hessian.grams, f, system.solve(both))  # (I + G M)⁻¹ x = x - G X x, since X = (I + M G)⁻¹ M
    image = f.core @ q
    curvature = hessian.total - float(image @ turned[:, 1])
    if not curvature > 1e-14 * max(hessian.total, 1e-300):
        curvature = max(hessian.total, float(f.shape[0]) / sigma * 1e-6)
    dy = (-short - float(image @ turned[:, 0])) / curvature
    return turned[:, 0] - turned[:, 1] * dy, dy


def _length(first: float, second: float, responded: Callable[[float], float]) -> float:
    """Where the slope along a step vanishes, nearly.

    It rises. The secant finds the place, kept off the ends of what is known to hold it.
    """

    def slope(t: float) -> float:
        return first + t * second - responded(t)

    begun = slope(0.0)
    left, falling, t = 0.0, begun, 1.0
    now = slope(t)
    trials = 0
    while now < 0.0 and abs(now) > SLOPE_SHARE * abs(begun) and trials < LENGTH_TRIALS:
        left, falling, t = t, now, 2.0 * t
        now = slope(t)
        trials += 1
    right, rising = t, now
    while abs(now) > SLOPE_SHARE * abs(begun) and trials < LENGTH_TRIALS:
        share = falling / (falling - rising) if falling < rising else 0.5
        t = left + (right - left) * min(max(share, 0.1), 0.9)
        now = slope(t)
        left, falling, right, rising = (t, now, right, rising) if now < 0.0 else (left, falling, t, now)
        trials += 1
    return t


def response(box: Box, c: Array, sigma: float) -> Array:
    """The coefficients that minimise sigma/2 b² - c b + epsilon |b| in the box."""
    if box.epsilon:
        c = np.sign(c) * np.maximum(np.abs(c) - box.epsilon, 0.0)
    return np.asarray(np.clip(c / sigma, box.low, box.high))


def free_rows(box: Box, b: Array) -> Mask:
    """The rows whose response changes with c."""
    free = (b > box.low) & (b < box.high)
    return np.asarray(free & (b != 0.0)) if box.epsilon else np.asarray(free)


def _apply(grams: list[Array], f: Factorization, x: Array) -> Array:
    out = np.empty_like(x)
    for G, (_, cols) in zip(grams, f.spans, strict=True):
        out[cols] = G @ x[cols]
    return out


class InMemoryRows:
    """The vectors of all rows: b, its centre, and the c that b responds to."""

    def __init__(self, problem: Problem, start: tuple[Array, float] | None = None) -> None:
        self.problem, self.is_warm = problem, start is not None
        given, multiplier = (np.zeros(len(problem.linear)), 0.0) if start is None else start
        self.state = NewtonState(problem.f.project(given).tolist(), multiplier)
        self.centre = self.b = np.clip(given, problem.low, problem.high)

    def begun(self) -> Judged:
        """The point with which the method begins."""
        return self.judge(self.state.multiplier)

    def judge(self, multiplier: float) -> Judged:
        """Make the present b the centre and judge it."""
        self.centre = self.b
        point = self.problem.point(self.b, multiplier)
        return Judged(point.gap, point.objective, lambda: point)

    def keep(self, state: NewtonState) -> None:
        """Do nothing: a fit in memory has no checkpoints."""

    def begin(self, w: Array, multiplier: float, delta: float) -> Response:
        """Begin a proximal step around the centre."""
        p = self.problem
        self.delta, self.sigma = delta, p.f.shift + delta
        pull = p.linear + delta * self.centre if delta else p.linear
        self.c = pull - p.f.lift(p.f.core @ w) - multiplier
        return self._respond()

    def move(self, length: float) -> Response:
        self.c = self.c - length * self.direction
        return self._respond()

    def _respond(self) -> Response:
        self.b = b = response(self.problem, self.c, self.sigma)
        blur = 0.5 * self.delta * float(np.square(b - self.centre).sum())
        return Response(self.problem.f.project(b), float(b.sum()), blur, float(np.abs(self.c).max(initial=0.0)))

    def hessian(self) -> Hessian:
        f, weights = self.problem.f, np.where(free_rows(self.problem, self.b), 1.0 / self.sigma, 0.0)
        return Hessian(f.gram(weights), f.project(weights), float(weights.sum()))

    def by_rows(self, rest: Array, short: float, most: float) -> tuple[Array, float] | None:
        """The step from the matrix of the free rows themselves, if they are at most so many and in memory."""
        rows = np.flatnonzero(free_rows(self.problem, self.b))
        return _by_rows(self.problem.f, rows, self.sigma, rest, short) if 0 < len(rows) <= most else None

    def along(self, image: Array, dy: float) -> tuple[Callable[[float], float], float]:
        """Take U image + dy as the direction in which c falls; return t -> direction @ b(t), and its largest entry."""
        self.direction = self.problem.f.lift(image) + dy

        def responded(t: float) -> float:
            return float(self.direction @ response(self.problem, self.c - t * self.direction, self.sigma))

        return responded, float(np.abs(self.direction).max(initial=0.0))


def _by_rows(f: Factorization, rows: Indices, sigma: float, rest: Array, short: float) -> tuple[Array, float] | None:
    """(sigma + U_F M U_Fᵀ) db = U_F M rest - dy, sum(db) = short, on the free rows F themselves."""
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
