"""Mehrotra's predictor-corrector interior point method for the dual; each step solves D + U M Uᵀ (`woodbury`).

In: a problem. Out: the best point found, with its duality gap. Each coefficient is one part, or the difference of two
parts if epsilon > 0. A part has a distance v >= 0 from its lower bound and t >= 0 from its upper bound. Both are
variables, since neither can be computed from the other near a bound without cancellation. The parts of a row are
eliminated first, so that the Newton matrix keeps its form and only D changes.
"""

from __future__ import annotations

import numpy as np
from tqdm import tqdm

from krein.arrays import Array
from krein.errors import IndefiniteError, InputError
from krein.factorization import Factorization
from krein.solvers.problem import Ends, Point, Problem
from krein.solvers.woodbury import Part, System, factorize

__all__ = ["InteriorPoint"]

# The Newton system is refined to this relative residual, in at most REFINEMENTS steps; 1e-6 stalled for C = 1000.
NEWTON_RESIDUAL = 1e-9
REFINEMENTS = 6
# A step goes this share of the way to the nearest bound.
STEP_SHARE = 0.995
# The method stops after PATIENCE steps without a smaller gap, or FIRST_PATIENCE while the relative gap is above 1.
PATIENCE = 12
FIRST_PATIENCE = 40


class InteriorPoint:
    """The state of the method; each call of `reach` continues where the last one stopped."""

    def __init__(self, problem: Problem, parts: tuple[Part, ...]) -> None:
        self._state = _State(problem, parts)
        self.best = self._state.judge()
        self.ends = self._state.ends()  # which parts of the best point seem to lie at their lower and upper end
        self.n_iter = 0
        self.path = [(0, self.best.gap)]  # the gap after so many steps
        self._stuck = False

    def reach(self, tol: float, max_iter: int, verbose: int = 0) -> Point:
        """Reduce the relative duality gap to ``tol``, or as far as rounding or ``max_iter`` steps in all allow."""
        since, least = 0, np.inf
        with tqdm(total=max_iter, initial=self.n_iter, desc="interior point", disable=verbose <= 0) as bar:
            while self.best.gap > tol and self.n_iter < max_iter and not self._stuck:
                if not self._state.step():
                    self._stuck = True
                    break
                self.n_iter += 1
                point = self._state.judge()
                self.path.append((self.n_iter, point.gap))
                since = 0 if abs(point.excess) < 0.9 * least else since + 1
                least = min(least, abs(point.excess))
                if point.gap < self.best.gap:
                    self.best, self.ends = point, self._state.ends()
                self._stuck = since >= (FIRST_PATIENCE if self.best.gap > 1.0 else PATIENCE)
                bar.update()
                bar.set_postfix(gap=f"{self.best.gap:.2g}")
        return self.best


class _State:
    """The iterate: v + t = width for every live part, multipliers z of v >= 0 and w of t >= 0, and the sum's."""

    def __init__(self, problem: Problem, parts: tuple[Part, ...]) -> None:
        self.problem, self.parts = problem, parts
        low, high = problem.low, problem.high
        if problem.epsilon:
            lower = np.stack([np.maximum(low, 0.0), np.maximum(-high, 0.0)])
            upper = np.stack([np.maximum(high, 0.0), np.maximum(-low, 0.0)])
        else:
            lower, upper = low[None], high[None]
        self.lower, width = lower, upper - lower  # (m, n)
        self.sign = np.array([[1.0], [-1.0]])[: len(width)]
        self.live = width > 0.0
        self.count = 2 * int(self.live.sum())
        reach = float((high - low).sum())
        share = np.clip((problem.total - float(low.sum())) / reach, 0.02, 0.98)
        shares = np.array([[share], [1.0 - share]])[: len(width)]
        self.v = np.where(self.live, shares * width, 1.0)
        self.t = np.where(self.live, (1.0 - shares) * width, 1.0)
        self.multiplier = 0.0
        self.b = self.coefficients()
        self.product = problem.multiply(self.b)
        slope = self.product - problem.linear
        size = max(float(np.abs(slope).mean()), float(np.abs(problem.linear).mean()), problem.epsilon) or 1.0
        self.z = np.where(self.live, size, 0.0)
        self.w = np.where(self.live, size, 0.0)

    def coefficients(self) -> Array:
        b = (self.sign * (self.lower + np.where(self.live, self.v, 0.0))).sum(0)
        return np.asarray(np.clip(b, self.problem.low, self.problem.high))  # rounding may cross an end

    def judge(self) -> Point:
        return self.problem.point(self.b, self.multiplier, self.product)

    def ends(self) -> Ends:
        """Which rows' b lie at an end: their distance is less than its multiplier, each in its own unit."""
        width = self.v + self.t
        size = max(float(np.abs(self.problem.linear).mean()), self.problem.epsilon)
        size = size or float(np.abs(self.product).mean()) or 1.0
        return self.live & (self.v / width < self.z / size), self.live & (self.t / width < self.w / size)

    def step(self) -> bool:
        """One predictor-corrector step; False where rounding leaves nothing to gain."""
        p, f = self.problem, self.problem.f
        v, t, z, w = self.v, self.t, self.z, self.w
        stiff = z / v + w / t  # (m, n) the barrier's second derivative for each part
        soft = np.where(self.live, 1.0 / np.where(self.live, stiff, 1.0), 0.0)
        loose = soft.sum(0)  # (n,) E⁻¹
        inverse = loose / (1.0 + f.shift * loose)  # D⁻¹ = (E + s)⁻¹
        if f.shift < 0.0 and not (1.0 + f.shift * loose > 0.0).all():
            raise _indefinite(f)
        system = factorize(self.parts, f.rank, f.gram(inverse))
        if system is None:
            if f.smallest_eigenvalue() < -1e-8 * max(f.ends().largest, 0.0):
                raise _indefinite(f)
            return False
        newton = _Newton(p, system, loose, inverse)
        dual = self.sign * (self.product - p.linear + self.multiplier) + p.epsilon - z + w  # (m, n)
        short = p.total - float(self.b.sum())
        mu = float((z * v + w * t).sum()) / self.count

        def direction(
            first: Array | float, second: Array | float, refine: bool
        ) -> tuple[Array, float, Array, Array, Array, Array]:
            """The Newton step towards z v = first and w t = second."""
            force = np.where(self.live, -dual + (first / v - z) - (second / t - w), 0.0)  # (m, n)
            wanted = (self.sign * force * soft).sum(0)  # E⁻¹ times the right-hand side
            db, dy, turned = newton.solve(wanted, short, refine)
            dv = self._share(force, db, turned + dy, soft, stiff)
            dz = np.where(self.live, (first - z * dv) / v - z, 0.0)
            dw = np.where(self.live, (second + w * dv) / t - w, 0.0)
            return db, dy, turned, dv, dz, dw

        _, _, _, dv, dz, dw = direction(0.0, 0.0, False)
        reach = self._longest(dv, dz, dw)
        after = float(((z + reach * dz) * (v + reach * dv) + (w + reach * dw) * (t - reach * dv)).sum()) / self.count
        centre = (max(after, 0.0) / mu) ** 3 * mu
        db, dy, turned, dv, dz, dw = direction(centre - dz * dv, centre + dw * dv, True)
        length = STEP_SHARE * self._longest(dv, dz, dw)
        length = min(1.0, max(length, 0.0))
        if not (np.isfinite(length) and np.isfinite(db).all()) or length < 1e-10:
            return False
        self.v, self.t = v + length * dv, t - length * dv
        self.z, self.w = z + length * dz, w + length * dw
        self.multiplier += length * dy
        self.b = self.coefficients()
        self.product = self.product + length * turned
        return True

    def _share(self, force: Array, db: Array, turned: Array, soft: Array, stiff: Array) -> Array:
        """How a row's step is shared by its parts: the stiffer one by its own equation, the other takes the rest."""
        if len(force) == 1:
            return np.where(self.live, db[None], 0.0)
        own = soft * (force - self.sign * turned)
        first = stiff[0] >= stiff[1]  # where one part is not live the other takes all, so that has to come second
        first = np.where(self.live.all(0), first, ~self.live[0])
        dv = np.empty_like(force)
        dv[0] = np.where(first, own[0], db + own[1])
        dv[1] = np.where(first, own[0] - db, own[1])
        return np.where(self.live, dv, 0.0)

    def _longest(self, dv: Array, dz: Array, dw: Array) -> float:
        """How far one may go, at most 1 / STEP_SHARE, before v, t, z or w is negative."""
        rate = max(
            float((-dv / self.v).max(initial=0.0)),
            float((dv / self.t).max(initial=0.0)),
            float((-dz / np.where(self.live, self.z, 1.0)).max(initial=0.0)),
            float((-dw / np.where(self.live, self.w, 1.0)).max(initial=0.0)),
        )
        return 1.0 / max(rate, STEP_SHARE) if np.isfinite(rate) else 0.0


class _Newton:
    """The bordered system (E + K) x + y = E wanted, sum(x) = short."""

    def __init__(self, problem: Problem, system: System, loose: Array, inverse: Array) -> None:
        self.problem, self.system, self.loose, self.inverse = problem, system, loose, inverse
        self.damping = 1.0 + problem.f.shift * loose
        self.ones = self._inverse(loose / self.damping)
        self.sum = float(self.ones.sum())
        if not self.sum > 0.0:  # it is, for every psd K, unless numbers vanished or overflowed
            raise InputError(
                "The dual cannot be solved in float64: the similarities and C differ too much in size. Divide the "
                "kernel by its largest value."
            )

    def _inverse(self, scaled: Array) -> Array:
        """H⁻¹ x where ``scaled`` is D⁻¹ x."""
        f = self.problem.f
        correction = f.lift(self.system.solve(f.project(scaled)))
        return np.asarray(scaled - (self.inverse if scaled.ndim == 1 else self.inverse[:, None]) * correction)

    def solve(self, wanted: Array, short: float, refine: bool) -> tuple[Array, float, Array]:
        """Return x, y and K x; refined by the residual in units of the gradient where asked."""
        x = self._inverse(wanted / self.damping)
        y = (float(x.sum()) - short) / self.sum
        x -= y * self.ones
        if not refine and not self.problem.epsilon:
            return x, y, x  # K x is for sharing a step out among parts, and there is one
        turned = self.problem.multiply(x)
        if not refine:
            return x, y, turned
        held = self.loose > 0.0
        E = np.where(held, 1.0 / np.where(held, self.loose, 1.0), 0.0)
        size = float(np.linalg.norm(E * wanted)) or 1.0
        last = np.inf
        for _ in range(REFINEMENTS):
            rest = np.where(held, E * (wanted - x) - turned - y, 0.0)
            gap = short - float(x.sum())
            left = float(np.linalg.norm(rest))
            if not np.isfinite(left) or left <= NEWTON_RESIDUAL * size or left > 0.5 * last:
                break
            last = left
            more = self._inverse(self.inverse * rest)
            dy = (float(more.sum()) - gap) / self.sum
            more -= dy * self.ones
            x, y = x + more, y + dy
            turned = turned + self.problem.multiply(more)
        return x, y, turned


def _indefinite(f: Factorization) -> IndefiniteError:
    low = f.smallest_eigenvalue()
    return IndefiniteError(
        f"The dual needs a matrix that is positive definite along its steps, but this one's smallest eigenvalue is "
        f"{low:.3g} and the Newton system has a negative direction: the problem is not convex. Correct the "
        "factorization first: krein.correct(f, 'clip'), 'flip' or 'shift'."
    )
