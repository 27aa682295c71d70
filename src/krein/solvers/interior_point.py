"""Mehrotra's predictor-corrector interior point method for the dual; each step solves D + U M Uᵀ (`woodbury`).

In: a problem. Out: the best point found, with its duality gap. Each coefficient is one part, or the difference of two
parts if epsilon > 0. A part has a distance v >= 0 from its lower bound and t >= 0 from its upper bound. Both are
variables, since neither can be computed from the other near a bound without cancellation. The parts of a row are
eliminated first, so that the Newton matrix keeps its form and only D changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from krein.arrays import Array
from krein.errors import IndefiniteError
from krein.factorization import Factorization
from krein.progress import progress_bar
from krein.solvers.problem import Ends, Point, Problem
from krein.solvers.woodbury import Bordered, Part, factorize

if TYPE_CHECKING:
    from krein.solvers.interior_point_pieces import InPieces

Iterate: TypeAlias = "InMemory | InPieces"  # what moves: the rows in memory, or in pieces
__all__ = [
    "InMemory", "InteriorPoint", "Iterate", "Mark", "Progress", "Rows", "first_share", "indefinite", "longest",
    "nothing_to_gain",
]  # fmt: skip

# A step goes this share of the way to the nearest bound.
STEP_SHARE = 0.995
# The corrector takes out the predictor's products dz dv up to this many times the mean of z v. Measured on one problem:
# 24 instead of 27 steps for 200,000 rows, 52 instead of 53 for 1,000,000.
MOST_CORRECTED = 1.0
# The method stops after PATIENCE steps without a gap below PROGRESS times the smallest one, or FIRST_PATIENCE while the
# relative gap is above 1. Steps of millions of rows may be short, with a gap that falls slowly.
PROGRESS = 0.99
PATIENCE = 12
FIRST_PATIENCE = 40


class Mark(NamedTuple):
    """A point of the path: its gap, and a function that brings the point itself and its ends."""

    gap: float
    excess: float
    found: Callable[[], tuple[Point, Ends]]


class Progress(NamedTuple):
    """How far the method has come: what a checkpoint needs beside the iterate."""

    n_iter: int = 0
    path: tuple[tuple[int, float], ...] = ()  # the gap after so many steps
    since: int = 0  # steps without a smaller gap
    least: float = np.inf  # the smallest gap


class InteriorPoint:
    """The method with its iterate; each call of `reach` continues where the last one stopped."""

    def __init__(self, iterate: Iterate) -> None:
        self._iterate = iterate
        self._begun: Progress | None = iterate.progress  # of the first call of `reach`
        self._best = iterate.judge()
        self.n_iter = iterate.progress.n_iter
        self.path = list(iterate.progress.path) or [(0, self._best.gap)]  # the gap after so many steps
        self._stuck = False

    @property
    def best(self) -> Point:
        return self._best.found()[0]

    @property
    def ends(self) -> Ends:
        """Which parts of the best point seem to lie at their lower and upper end."""
        return self._best.found()[1]

    def reach(self, tol: float, max_iter: int, verbose: int = 0) -> Point:
        """Reduce the relative duality gap to ``tol``, or as far as rounding or ``max_iter`` steps in all allow."""
        begun, self._begun = self._begun, None
        _, _, since, least = begun or Progress()
        with progress_bar(total=max_iter, initial=self.n_iter, what="interior point", verbose=verbose) as bar:
            while self._best.gap > tol and self.n_iter < max_iter and not self._stuck:
                if not self._iterate.step():
                    self._stuck = True
                    break
                self.n_iter += 1
                mark = self._iterate.judge()
                self.path.append((self.n_iter, mark.gap))
                since = 0 if abs(mark.excess) < PROGRESS * least else since + 1
                least = min(least, abs(mark.excess))
                if mark.gap < self._best.gap:
                    self._best = mark
                self._stuck = since >= (FIRST_PATIENCE if self._best.gap > 1.0 else PATIENCE)
                if begun is not None and mark is self._best and mark.gap > tol:  # what follows the first call is short
                    self._iterate.keep(Progress(self.n_iter, tuple(self.path), since, least))
                bar.update()
                bar.set_postfix(gap=f"{self._best.gap:.2g}", refresh=False)
        return self.best


class Rows:
    """Rows of the iterate: v + t = width for every live part, with multipliers z of v >= 0 and w of t >= 0.

    Nothing here depends on other rows: they are all rows, or a few of a piece.
    """

    v: Array  # (m, n), as t, z and w; 1 where a part is not live, and z and w are 0
    t: Array
    z: Array
    w: Array
    product: Array  # (n,) K b

    def __init__(self, linear: Array, low: Array, high: Array, epsilon: float) -> None:
        if epsilon:
            lower = np.stack([np.maximum(low, 0.0), np.maximum(-high, 0.0)])
            upper = np.stack([np.maximum(high, 0.0), np.maximum(-low, 0.0)])
        else:
            lower, upper = low[None], high[None]
        self.linear, self.low, self.high, self.epsilon = linear, low, high, epsilon
        self.lower, self.width = lower, upper - lower  # (m, n)
        self.live = self.width > 0.0
        self.all_live = bool(self.live.all())

    def start(self, share: float) -> None:
        """Put b at this share of its range."""
        shares = np.array([[share], [1.0 - share]])[: len(self.width)]
        self.v = self._where_live(shares * self.width, 1.0)
        self.t = self._where_live((1.0 - shares) * self.width, 1.0)

    def coefficients(self) -> Array:
        b = _difference(self.lower + self._where_live(self.v))
        return np.asarray(np.clip(b, self.low, self.high))  # rounding may cross an end

    def ends(self, size: float) -> Ends:
        """Which parts lie at an end: their distance is less than its multiplier, which is in units of ``size``."""
        width = self.v + self.t
        return self.live & (self.v / width < self.z / size), self.live & (self.t / width < self.w / size)

    def prepare(self, shift: float) -> None:
        """The diagonal of the Newton system, D = E + shift."""
        self.over_v, self.over_t = 1.0 / self.v, 1.0 / self.t
        self.stiff = self.z * self.over_v + self.w * self.over_t  # (m, n) the barrier's second derivative
        self.soft = self._where_live(1.0 / self._where_live(self.stiff, 1.0))
        self.loose = self.soft[0] if len(self.soft) == 1 else self.soft.sum(0)  # (n,) E⁻¹
        self.damping = 1.0 + shift * self.loose
        self.inverse = self.loose / self.damping  # D⁻¹

    def gradient(self, multiplier: float) -> Array:
        """(m, n) the derivative of the objective for each part, with the multiplier of the sum."""
        slope = self.product - self.linear + multiplier
        return np.stack([self.epsilon + slope, self.epsilon - slope]) if self.epsilon else slope[None]

    def force(self, first: Array | float, second: Array | float, gradient: Array) -> Array:
        """(m, n) the right-hand side of the Newton step towards z v = first and w t = second."""
        return self._where_live(first * self.over_v - second * self.over_t - gradient)

    def wanted(self, force: Array) -> Array:
        """(n,) E⁻¹ times the right-hand side of the rows."""
        return _difference(force * self.soft)

    def shared(self, force: Array, db: Array, turned: Array) -> Array:
        """How a row's step is shared by its parts: the stiffer one by its own equation, the other takes the rest."""
        if len(force) == 1:
            return self._where_live(db[None])
        own = self.soft * (force - np.stack([turned, -turned]))
        first = self.stiff[0] >= self.stiff[1]  # where one part is not live the other takes all, so it comes second
        first = np.where(self.live.all(0), first, ~self.live[0])
        dv = np.empty_like(force)
        dv[0] = np.where(first, own[0], db + own[1])
        dv[1] = np.where(first, own[0] - db, own[1])
        return self._where_live(dv)

    def multipliers(self, first: Array | float, second: Array | float, dv: Array) -> tuple[Array, Array]:
        """dz and dw of the step."""
        dz = self._where_live((first - self.z * dv) / self.v - self.z)
        dw = self._where_live((second + self.w * dv) / self.t - self.w)
        return dz, dw

    def crossed(self, dv: Array, dz: Array, dw: Array, mu: float) -> tuple[Array, Array]:
        """dz dv and -dw dv of the predictor, as far as the corrector takes them out; ``mu`` is the mean of z v."""
        most = MOST_CORRECTED * mu
        return np.clip(dz * dv, -most, most), np.clip(-dw * dv, -most, most)

    def rate(self, dv: Array, dz: Array, dw: Array) -> float:
        """The largest relative decrease of v, t, z or w."""
        z, w = self._where_live(self.z, 1.0), self._where_live(self.w, 1.0)
        falls = -dv * self.over_v, dv * self.over_t, -dz / z, -dw / w
        return float(np.max([fall.max(initial=0.0) for fall in falls]))

    def move(self, dv: Array, dz: Array, dw: Array, turned: Array, length: float) -> None:
        self.v, self.t = self.v + length * dv, self.t - length * dv
        self.z, self.w = self.z + length * dz, self.w + length * dw
        self.product = self.product + length * turned

    def _where_live(self, parts: Array, other: float = 0.0) -> Array:
        return parts if self.all_live else np.where(self.live, parts, other)


def _difference(parts: Array) -> Array:
    """(n,) of a row: its part, or the first part minus the second."""
    return np.asarray(parts[0] if len(parts) == 1 else parts[0] - parts[1])


def longest(rate: float) -> float:
    """How far one may go, at most 1 / STEP_SHARE, before a number that falls at this rate is negative."""
    return 1.0 / max(rate, STEP_SHARE) if np.isfinite(rate) else 0.0


def first_share(problem: Problem) -> float:
    """Where b starts in its range, so that its sum is right."""
    reach = float((problem.high - problem.low).sum())
    return float(np.clip((problem.total - float(problem.low.sum())) / reach, 0.02, 0.98))


class InMemory(Rows):
    """The iterate of all rows, and the multiplier of their sum."""

    progress = Progress()  # that of the unfinished fit with which the iterate goes on

    def __init__(self, problem: Problem, parts: tuple[Part, ...]) -> None:
        super().__init__(problem.linear, problem.low, problem.high, problem.epsilon)
        self.problem, self.parts = problem, parts
        self.count = 2 * int(self.live.sum())
        self.start(first_share(problem))
        self.multiplier = 0.0
        self.b = self.coefficients()
        self.product = problem.f @ self.b
        slope = self.product - problem.linear
        size = max(float(np.abs(slope).mean()), float(np.abs(problem.linear).mean()), problem.epsilon) or 1.0
        self.z = np.where(self.live, size, 0.0)
        self.w = np.where(self.live, size, 0.0)

    def judge(self) -> Mark:
        size = max(float(np.abs(self.linear).mean()), self.epsilon) or float(np.abs(self.product).mean()) or 1.0
        ends = self.ends(size)
        point = self.problem.point(self.b, self.multiplier, self.product)
        found = point, ends
        return Mark(point.gap, point.excess, lambda: found)

    def keep(self, progress: Progress) -> None:
        """Do nothing: a fit in memory has no checkpoints."""

    def step(self) -> bool:
        """One predictor-corrector step; False where rounding leaves nothing to gain."""
        p, f = self.problem, self.problem.f
        v, t, z, w = self.v, self.t, self.z, self.w
        self.prepare(f.shift)
        if f.shift < 0.0 and not (self.damping > 0.0).all():
            raise indefinite(f)
        system = factorize(self.parts, f.rank, f.gram(self.inverse))
        if system is None:
            return nothing_to_gain(f)
        newton = Bordered(f, system, self.loose, self.damping, self.inverse)
        gradient, short = self.gradient(self.multiplier), p.total - float(self.b.sum())
        mu = float((z * v + w * t).sum()) / self.count

        def direction(
            first: Array | float, second: Array | float, refine: bool
        ) -> tuple[Array, float, Array, Array, Array]:
            force = self.force(first, second, gradient)
            product = refine or bool(p.epsilon)  # it shares a step out among parts, and without epsilon there is one
            db, dy, turned = newton.solve(self.wanted(force), short, refine, product)
            dv = self.shared(force, db, turned + dy)
            return turned, dy, dv, *self.multipliers(first, second, dv)

        _, _, dv, dz, dw = direction(0.0, 0.0, False)
        reach = longest(self.rate(dv, dz, dw))
        after = float(((z + reach * dz) * (v + reach * dv) + (w + reach * dw) * (t - reach * dv)).sum()) / self.count
        centre = (max(after, 0.0) / mu) ** 3 * mu
        first, second = self.crossed(dv, dz, dw, mu)
        turned, dy, dv, dz, dw = direction(centre - first, centre - second, True)
        length = min(1.0, STEP_SHARE * longest(self.rate(dv, dz, dw)))
        if not np.isfinite(dv).all() or length < 1e-10:
            return False
        self.move(dv, dz, dw, turned, length)
        self.multiplier += length * dy
        self.b = self.coefficients()
        return True


def nothing_to_gain(f: Factorization) -> bool:
    """False if a system could not be factored for rounding; an error if K is indefinite."""
    if f.smallest_eigenvalue() < -1e-8 * max(f.ends().largest, 0.0):
        raise indefinite(f)
    return False


def indefinite(f: Factorization) -> IndefiniteError:
    """The error that a problem is not convex."""
    low = f.smallest_eigenvalue()
    return IndefiniteError(
        f"The dual needs a matrix that is positive definite along its steps, but this one's smallest eigenvalue is "
        f"{low:.3g} and the Newton system has a negative direction: the problem is not convex. Correct the "
        "factorization first: krein.correct(f, 'clip'), 'flip' or 'shift'."
    )
