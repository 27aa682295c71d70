"""The dual on a block-diagonal core: one small dual per block, coupled only by the multiplier y of sum(b) = total.

In: a problem whose core couples no two blocks. Out: the best point found, with its duality gap. For a given y each
block is a box-constrained problem of some tens of rows with K = V Vᵀ. Thousands of them are solved together: blocks of
similar size are stacked, and a projected Newton step is one batched product and one batched solve with the free rows.

The sum of b is a decreasing, piecewise linear function of y whose slope is known from the last step, so Newton's method
finds y in about five steps. Where the sum jumps, both sides of the jump are solutions for this y, and so is the convex
combination that has the required sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from krein.arrays import Array, Indices
from krein.factorization import Factorization
from krein.factorization.core import is_dense
from krein.progress import progress_bar
from krein.solvers.problem import FLOOR, Mask, Point, Problem, excess

__all__ = ["Blockwise", "has_independent_blocks", "suits_blockwise"]

# Solving block by block measured faster for at most this many rows per rank.
BLOCKWISE_RATIO = 3.0
# Each block is solved to these relative gaps, one per value of y. From the last on the sign of the sum's error is sure.
BLOCK_GAPS = (1e-2, 1e-4, 1e-8, 1e-13)
# At most MULTIPLIER_STEPS values of y are tried, with at most NEWTON_STEPS Newton steps for each.
MULTIPLIER_STEPS = 40
NEWTON_STEPS = 60
# The ridge of a Newton step, relative to the diagonal, starts at FIRST_DAMPING. A full step multiplies it by
# DAMPING_DECREASE, down to LEAST_DAMPING.
FIRST_DAMPING = 0.3
DAMPING_DECREASE = 0.2
LEAST_DAMPING = 1e-11
# A block that needs more than SWEEPS_FROM steps gets SWEEPS sweeps of coordinate descent before each further step.
SWEEPS_FROM = 12
SWEEPS = 2
# The line search halves the step LENGTH_TRIALS - 1 times, and then takes the optimal length along the last one.
LENGTH_TRIALS = 12
# A step is accepted if the objective falls by this share of the linear prediction.
ARMIJO = 1e-4
# Below the gap WORTHWHILE_GAP * tol the search goes on only while the gap falls by a factor of 10. It stops below
# ROUNDING_GAP.
WORTHWHILE_GAP = 1e-3
ROUNDING_GAP = 1e-13
# A coefficient closer to its bound than this share of its range lies at the bound.
BOUND_DISTANCE = 1e-10
# With more than LOW_RANK_RATIO free rows per rank the system of the rank is solved instead, with a ridge of at least
# LOW_RANK_RIDGE.
LOW_RANK_RATIO = 1.5
LOW_RANK_RIDGE = 1e-7
# A core with an eigenvalue below -NEGATIVE_EIGENVALUE times its largest entry is not psd.
NEGATIVE_EIGENVALUE = 1e-10


def has_independent_blocks(f: Factorization) -> bool:
    """Whether the core couples no two blocks."""
    return not is_dense(f.core) and f.core.is_block_diagonal and f.shift >= 0.0


def suits_blockwise(problem: Problem) -> bool:
    """Whether no blocks are coupled and they have few rows for their rank."""
    if not has_independent_blocks(problem.f):
        return False
    return float((problem.high > problem.low).sum()) <= BLOCKWISE_RATIO * problem.f.rank


class Blockwise:
    """The search for y; ``stacks`` is empty if the matrix is not psd, and then nothing is solved."""

    def __init__(self, problem: Problem, start: tuple[Array, float] | None = None) -> None:
        self.problem = problem
        b, self.y = _even(problem) if start is None else start
        self.stacks = _stacked(problem, np.clip(b, problem.low, problem.high))
        self.unit = float(np.abs(problem.linear).mean()) + problem.epsilon or abs(self.y) or 1.0  # of slopes
        self.bold = 2.0 * self.unit  # how far y may go at once
        self.n_iter = 0
        self.path: list[tuple[int, float]] = []

    def reach(self, tol: float, max_iter: int, verbose: int = 0) -> Point | None:
        """Return the best point found before the gap is at rounding or ``max_iter`` Newton steps are done."""
        best: Point | None = None
        sides: dict[bool, tuple[float, Array, Array]] = {}  # the nearest y with too large and too small a sum: y, b, Kb
        last = 0.0
        with progress_bar(total=MULTIPLIER_STEPS, what="blockwise", verbose=verbose) as bar:
            for turn in range(MULTIPLIER_STEPS if self.stacks else 0):
                loose = BLOCK_GAPS[min(turn, len(BLOCK_GAPS) - 1)]
                try:
                    with np.errstate(all="ignore"):  # numbers that leave the range of float64 show in the gap
                        self.n_iter += max(stack.settle(self.y, loose, NEWTON_STEPS) for stack in self.stacks)
                except np.linalg.LinAlgError:
                    break
                b, product = self._gathered()
                sure = turn >= len(BLOCK_GAPS) - 1
                surplus = float(b.sum()) - self.problem.total
                if sure:
                    sides[surplus > 0.0] = self.y, b, product
                for point in self._candidates(b, product, sides):
                    best = point if best is None or point.gap < best.gap else best
                assert best is not None
                self.path.append((self.n_iter, best.gap))
                bar.update()
                bar.set_postfix(gap=f"{best.gap:.2g}", refresh=False)
                y, now = self._next(surplus, sides), best.gap
                exact = now <= ROUNDING_GAP or (now <= WORTHWHILE_GAP * tol and now > 0.1 * last)
                if (sure and (exact or y == self.y)) or self.n_iter >= max_iter:
                    break
                self.y, last = y, now
        return best

    def _gathered(self) -> tuple[Array, Array]:
        b, product = self.problem.low.copy(), np.zeros(len(self.problem.low))
        for stack in self.stacks:
            rows = stack.rows[stack.real]
            b[rows], product[rows] = stack.b[stack.real], stack.product()[stack.real]
        return b, product

    def _candidates(self, b: Array, product: Array, sides: dict[bool, tuple[float, Array, Array]]) -> list[Point]:
        """The current point, and the convex combination of both sides of a jump that has the required sum."""
        found = [self._judged(b, self.y, product)]
        if len(sides) == 2:
            (y, b, product), (z, c, other) = sides[True], sides[False]
            above, below = float(b.sum()) - self.problem.total, float(c.sum()) - self.problem.total
            share = above / (above - below)
            mixed = np.clip(b + share * (c - b), self.problem.low, self.problem.high)
            found.append(self._judged(mixed, y + share * (z - y), product + share * (other - product)))
        return found

    def _judged(self, b: Array, y: float, product: Array) -> Point:
        """The point, with the error of its sum counted in its gap."""
        point = self.problem.point(b, y, product)
        short = abs(float(b.sum()) - self.problem.total) * (abs(y) + self.unit)
        size = abs(point.objective) + self.problem.scale
        gap = max(point.gap, short / size) if size > 0.0 else point.gap
        return replace(point, gap=gap if np.isfinite(gap) else np.inf)

    def _next(self, surplus: float, sides: dict[bool, tuple[float, Array, Array]]) -> float:
        """The next y by Newton's method, kept between the values whose sums are too large and too small."""
        slope = sum(float(stack.slope.sum()) for stack in self.stacks)
        if surplus == 0.0:
            return self.y
        step = surplus / slope if slope > 0.0 else np.sign(surplus) * np.inf
        if abs(step) > self.bold:
            step, self.bold = float(np.sign(step)) * self.bold, 2.0 * self.bold
        low, high = (sides[side][0] if side in sides else np.inf * sign for side, sign in ((True, -1), (False, 1)))
        if low < self.y + step < high:
            return self.y + step
        return 0.5 * (low + high) if np.isfinite(high - low) else self.y + float(np.sign(surplus)) * self.bold


@dataclass(eq=False)
class _Stack:
    """Blocks of similar size, padded with rows whose range is empty."""

    V: Array  # (c, m, k) with V Vᵀ + shift I = K
    rows: Indices  # (c, m) of the problem
    real: Mask  # (c, m)
    linear: Array  # (c, m), as the rest
    low: Array
    high: Array
    b: Array
    shift: float
    epsilon: float

    def __post_init__(self) -> None:
        self.w = _transposed(self.V, self.b)  # (c, k) Vᵀb
        self.size = np.square(self.V).sum(2).max(1, initial=0.0) + self.shift  # (c,)
        reach = np.maximum(np.abs(self.low), np.abs(self.high))
        self.floor = FLOOR * ((np.abs(self.linear) + self.epsilon) * reach).sum(1)
        self.damping = np.full(len(self.V), FIRST_DAMPING)
        self.slope = np.zeros(len(self.V))  # how fast the sum of b falls with y

    def product(self) -> Array:
        return _times(self.V, self.w) + self.shift * self.b

    def settle(self, y: float, tol: float, steps: int) -> int:
        """Minimise over the box of every block at this y; return the number of steps of the slowest block."""
        live = np.arange(len(self.V))
        V = self.V
        for step in range(steps):
            if step >= SWEEPS_FROM:
                for _ in range(SWEEPS):
                    self._sweep(V, live, y)
            b, w, low, high = self.b[live], self.w[live], self.low[live], self.high[live]
            smooth = _times(V, w) + self.shift * b - self.linear[live] + y
            cost = (np.abs(self.linear[live]) + self.epsilon + abs(y)) * np.abs(b)
            cost = np.square(w).sum(1) + cost.sum(1) + self.floor[live]
            unsettled = excess(smooth, b, low, high, self.epsilon).sum(1) > tol * cost
            if step and not unsettled.any():  # at least one step: it computes the slope of the sum
                return step
            if step and not unsettled.all():
                live, V = live[unsettled], V[unsettled]
                b, w, low, high, smooth = (x[unsettled] for x in (b, w, low, high, smooth))
            slope, low, high, held = _side(smooth, b, low, high, self.epsilon)
            size = np.where(self.size[live] > 0.0, self.size[live], 1.0)
            ridge, least = (self.shift + share * size for share in (self.damping[live], LOW_RANK_RIDGE))
            direction, self.slope[live] = _newton(V, ~held, slope, ridge, least)
            db, dw, full = self._along(V, b, slope, direction, low, high)
            self.b[live] = np.clip(b + db, low, high)
            self.w[live] = w + dw
            damping = self.damping[live]
            self.damping[live] = np.where(
                full, np.maximum(DAMPING_DECREASE * damping, LEAST_DAMPING), np.minimum(2.0 * damping, 1.0)
            )
        return steps

    def _sweep(self, V: Array, live: Indices, y: float) -> None:
        """One sweep of coordinate descent in all blocks at once; it finds the rows at bounds that Newton steps miss."""
        b, w, low, high, pull = self.b[live], self.w[live], self.low[live], self.high[live], self.linear[live] - y
        own = np.square(V).sum(2) + self.shift
        own[own <= 0.0] = 1.0
        for i in range(V.shape[1]):
            row = V[:, i]
            slope = np.einsum("ck,ck->c", row, w) + self.shift * b[:, i] - pull[:, i]
            best = b[:, i] - slope / own[:, i]
            if self.epsilon:
                best = np.sign(best) * np.maximum(np.abs(best) - self.epsilon / own[:, i], 0.0)
            best = np.clip(best, low[:, i], high[:, i])
            w += (best - b[:, i])[:, None] * row
            b[:, i] = best
        self.b[live], self.w[live] = b, w

    def _along(
        self, V: Array, b: Array, slope: Array, direction: Array, low: Array, high: Array
    ) -> tuple[Array, Array, Mask]:
        """The step of each block along its projected arc: (db, Vᵀdb, whether its length is 1)."""
        db, dw = np.zeros_like(b), np.zeros((len(V), V.shape[2]))
        full = np.ones(len(V), dtype=bool)
        left, length = np.arange(len(V)), 1.0
        for trial in range(LENGTH_TRIALS):
            step = np.clip(b[left] + length * direction[left], low[left], high[left]) - b[left]
            image = _transposed(V[left] if trial else V, step)
            first = (slope[left] * step).sum(1)
            second = np.square(image).sum(1) + self.shift * np.square(step).sum(1)
            good = first + 0.5 * second <= ARMIJO * first
            if trial == LENGTH_TRIALS - 1:
                best = np.where(first < 0.0, np.minimum(1.0, -first / np.where(second > 0.0, second, 1.0)), 0.0)
                step, image, good = best[:, None] * step, best[:, None] * image, np.ones_like(good)
            db[left[good]], dw[left[good]] = step[good], image[good]
            left, length = left[~good], 0.5 * length
            full[left] = False
            if not len(left):
                break
        return db, dw, full


def _side(smooth: Array, b: Array, low: Array, high: Array, epsilon: float) -> tuple[Array, Array, Array, Mask]:
    """The slope of each row, the part of its range where this slope holds, and whether it is held at an end of it."""
    if epsilon:
        up, down = smooth + epsilon, smooth - epsilon
        positive = (b > 0.0) | ((b == 0.0) & (up < 0.0))
        resting = (b == 0.0) & (up >= 0.0) & (down <= 0.0) & (low <= 0.0) & (high >= 0.0)
        slope = np.where(positive, up, down)
        low, high = np.where(positive, np.maximum(low, 0.0), low), np.where(positive, high, np.minimum(high, 0.0))
    else:
        slope, resting = smooth, np.zeros(b.shape, dtype=bool)
    near = BOUND_DISTANCE * (high - low)
    held = ((b <= low + near) & (slope > 0.0)) | ((b >= high - near) & (slope < 0.0))
    return slope, low, high, held | resting | (high <= low)


def _newton(V: Array, free: Mask, slope: Array, ridge: Array, least: Array) -> tuple[Array, Array]:
    """-(K_FF + ridge)⁻¹ slope_F and 1ᵀ(K_FF + ridge)⁻¹ 1 for every block, K_FF from its free rows or by its rank.

    The system of the rank divides rounding by the ridge, so its ridge is at least ``least``.
    """
    c, m, k = V.shape
    count = free.sum(1)
    direction, total = np.zeros((c, m)), np.zeros(c)
    by_rank = count > LOW_RANK_RATIO * k
    widths = np.minimum(_rounded(count), m)
    for width in np.unique(widths[(count > 0) & ~by_rank]).tolist():
        mine = np.flatnonzero((widths == width) & ~by_rank)
        rows = np.argsort(~free[mine], axis=1, kind="stable")[:, :width]  # the free ones come first
        at = mine[:, None], rows
        used = free[at]
        F = V[at] * used[:, :, None]
        K = np.matmul(F, F.transpose(0, 2, 1))
        K[:, np.arange(width), np.arange(width)] += np.where(used, ridge[mine, None], 1.0)
        both = np.linalg.solve(K, np.stack([np.where(used, -slope[at], 0.0), used.astype(np.float64)], axis=2))
        direction[at] = both[:, :, 0]
        total[mine] = both[:, :, 1].sum(1)
    if (mine := np.flatnonzero(by_rank)).size:
        F = V[mine] * free[mine][:, :, None]
        own = np.maximum(ridge[mine], least[mine])[:, None]
        G = np.matmul(F.transpose(0, 2, 1), F)
        G[:, np.arange(k), np.arange(k)] += own
        right = np.stack([np.where(free[mine], -slope[mine], 0.0), free[mine].astype(np.float64)], axis=2)
        both = (right - np.matmul(F, np.linalg.solve(G, np.matmul(F.transpose(0, 2, 1), right)))) / own[:, :, None]
        direction[mine], total[mine] = both[:, :, 0], both[:, :, 1].sum(1)
    return direction, total


def _even(problem: Problem) -> tuple[Array, float]:
    """The initial point: b = 0 and the mean label, or equal shares if there are no labels."""
    if problem.linear.any():
        return np.zeros_like(problem.low), float(problem.linear[problem.high > problem.low].mean())
    reach = float((problem.high - problem.low).sum())
    b = problem.low + (problem.total - float(problem.low.sum())) / reach * (problem.high - problem.low)
    return b, -float((problem.f @ b).mean())


# -- stacks ------------------------------------------------------------------------------------------------------------


def _stacked(problem: Problem, b: Array) -> list[_Stack]:
    """The rows that can move or are not zero, in stacks of blocks of similar size; none if the core is not psd."""
    f = problem.f
    roots = _roots(f)
    if roots is None:
        return []
    used = (problem.high > problem.low) | (problem.low != 0.0)
    own = [rows[used[rows]] for rows in map(f.bases.members, range(f.n_blocks))]
    counts = np.array([len(rows) for rows in own])
    widths = _rounded(counts)
    stacks = []
    for width in np.unique(widths[counts > 0]).tolist():
        mine = np.flatnonzero(widths == width)
        V = np.zeros((len(mine), width, max(f.ranks[i] for i in mine)))
        rows = np.zeros((len(mine), width), dtype=np.intp)
        real = np.arange(width) < counts[mine, None]
        for at, i in enumerate(mine.tolist()):
            V[at, : counts[i], : f.ranks[i]] = f.bases.local(i, used[f.bases.members(i)]) @ roots[i]
            rows[at, : counts[i]] = own[i]
        linear, low, high, begun = (
            np.where(real, x[rows], 0.0) for x in (problem.linear, problem.low, problem.high, b)
        )
        stacks.append(_Stack(V, rows, real, linear, low, high, begun, f.shift, problem.epsilon))
    return stacks


def _roots(f: Factorization) -> list[Array] | None:
    """R_i, shape (k_i, k_i), with R_i R_iᵀ = M_ii for every block; None if some M_ii is not psd."""
    assert not is_dense(f.core)
    found: list[Any] = [np.zeros((k, k)) for k in f.ranks]
    largest = f.core.peak
    for group in f.core.groups:
        values, vectors = (group.values, None) if group.values.ndim == 2 else np.linalg.eigh(group.values)
        if (values < -NEGATIVE_EIGENVALUE * largest).any():
            return None
        roots = np.sqrt(np.maximum(values, 0.0))
        for at, i in enumerate(group.left.tolist()):
            found[i] = np.diag(roots[at]) if vectors is None else vectors[at] * roots[at]
    return found


def _rounded(counts: Indices) -> Indices:
    """The counts rounded up to one of four sizes per power of two."""
    step = 2 ** np.maximum(np.floor(np.log2(np.maximum(counts, 1))).astype(np.intp) - 2, 0)
    return np.asarray(-(-counts // step) * step)


def _times(V: Array, w: Array) -> Array:
    return np.asarray(np.matmul(V, w[:, :, None])[:, :, 0])


def _transposed(V: Array, b: Array) -> Array:
    return np.asarray(np.matmul(b[:, None, :], V)[:, 0])
