"""The quadratic programme min 1/2 bᵀKb - gᵀb + epsilon |b|_1 over low <= b <= high with sum(b) = total.

In: a factorization and the vectors. Out: objective, gradient, and a duality gap that is valid at any b in the box. For
a psd K, 1/2 xᵀKx >= bᵀKx - 1/2 bᵀKb, which leaves a problem that is separable in the coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from krein.arrays import Array, Indices
from krein.factorization import Factorization
from krein.factorization.core import congruent, is_dense

__all__ = [
    "Box",
    "Ends",
    "Mask",
    "Point",
    "Problem",
    "central_multiplier",
    "cut",
    "ends_of",
    "excess",
    "restricted",
    "square",
]

Mask: TypeAlias = NDArray[np.bool_]
Ends: TypeAlias = tuple[Mask, Mask]  # (m, n) each: the parts of the rows that lie at their lower and upper bounds

# A gap is relative to the objective plus FLOOR times the largest linear cost in the box.
FLOOR = 1e-6
# If there is no linear cost, it is PLAIN_FLOOR times the cost of equal coefficients on the diagonal of K.
PLAIN_FLOOR = 1e-3


class Box(Protocol):
    """The vectors that the optimality conditions depend on; `Problem` and `krein.solvers.dense_dual.Task` have them."""

    @property
    def linear(self) -> Array: ...
    @property
    def low(self) -> Array: ...
    @property
    def high(self) -> Array: ...
    @property
    def epsilon(self) -> float: ...


@dataclass(frozen=True, eq=False)
class Point:
    """Coefficients with their product with K, the multiplier of the sum, and the duality gap."""

    b: Array  # (n,)
    product: Array  # (n,) K b
    multiplier: float
    objective: float
    excess: float  # the duality gap
    gap: float  # relative to the objective


@dataclass(frozen=True, eq=False)
class Problem:
    """min 1/2 bᵀKb - linearᵀb + epsilon |b|_1 over low <= b <= high with sum(b) = total."""

    f: Factorization
    linear: Array  # (n,)
    low: Array  # (n,)
    high: Array  # (n,)
    total: float
    epsilon: float

    @cached_property
    def scale(self) -> float:
        """The number added to |objective| in a relative gap, from the largest linear or quadratic cost in the box."""
        reach = np.maximum(np.abs(self.low), np.abs(self.high))
        cost = float(((np.abs(self.linear) + self.epsilon) * reach).sum())
        if cost > 0.0:
            return FLOOR * cost
        even = np.clip(self.total / max(self.reach, 1e-300), -1.0, 1.0) * (self.high - self.low)
        return PLAIN_FLOOR * 0.5 * float(np.abs(self.f.diagonal()) @ even**2)

    @cached_property
    def reach(self) -> float:
        """The sum of all |low| and |high|, the scale of rounding in sum(b)."""
        return float(np.abs(self.low).sum() + np.abs(self.high).sum())

    def objective(self, b: Array, product: Array) -> float:
        smooth = 0.5 * float(b @ product) - float(self.linear @ b)
        return smooth + (self.epsilon * float(np.abs(b).sum()) if self.epsilon else 0.0)

    def gap(self, b: Array, product: Array, multiplier: float) -> float:
        """Objective minus its dual bound at this multiplier: a sum of one term >= 0 per row where sum(b) = total."""
        slope = product - self.linear + multiplier
        own = float(excess(slope, b, self.low, self.high, self.epsilon).sum())
        return own + multiplier * (self.total - float(b.sum()))

    def point(self, b: Array, multiplier: float, product: Array | None = None) -> Point:
        """Return ``b`` with its objective and duality gap."""
        product = self.f @ b if product is None else product
        objective = self.objective(b, product)
        gap = self.gap(b, product, multiplier)
        return Point(b, product, float(multiplier), objective, gap, self.relative_gap(gap, objective, float(b.sum())))

    def relative_gap(self, gap: float, objective: float, sum_b: float) -> float:
        """The gap relative to the objective, or how far the sum of b is off if that is more."""
        size = abs(objective) + self.scale
        relative = 0.0 if gap <= 0.0 else gap / size if size > 0.0 else np.inf
        off = abs(sum_b - self.total)
        return float(max(relative, off / self.reach) if off > 1e-9 * self.reach else relative)


def excess(slope: Array, b: Array, low: Array, high: Array, epsilon: float) -> Array:
    """What each b costs above the best of its range at this slope, >= 0."""
    best = np.minimum(slope * low, slope * high)
    own = slope * b
    if epsilon:
        best = np.minimum(slope * low + epsilon * np.abs(low), slope * high + epsilon * np.abs(high))
        best = np.minimum(best, np.where((low < 0.0) & (high > 0.0), 0.0, best))
        own = own + epsilon * np.abs(b)
    return np.asarray(own - best)


def central_multiplier(problem: Box, b: Array, product: Array) -> float:
    """The middle of the interval of optimal multipliers, which rows that can rise or fall bound from both sides."""
    slope, eps = product - problem.linear, problem.epsilon
    movable = problem.high > problem.low
    may_rise, may_fall = movable & (b < problem.high), movable & (b > problem.low)
    least = float((-(slope + np.where(b >= 0.0, eps, -eps))[may_rise]).max(initial=-np.inf))
    most = float((-(slope + np.where(b > 0.0, eps, -eps))[may_fall]).min(initial=np.inf))
    if np.isfinite(least) and np.isfinite(most):
        return 0.5 * (least + most)
    return least if np.isfinite(least) else most if np.isfinite(most) else 0.0


def ends_of(problem: Problem, b: Array) -> Ends:
    """Which parts of the rows lie at their lower and upper bounds, as `polish` needs them."""
    if not problem.epsilon:
        return (b <= problem.low)[None], (b >= problem.high)[None]
    low = np.stack([b <= np.maximum(problem.low, 0.0), b >= np.minimum(problem.high, 0.0)])
    return low, np.stack([b >= problem.high, b <= problem.low]) & ~low


def restricted(f: Factorization, rows: Indices) -> Factorization:
    """The factorization of K[rows, rows] with copied bases, which are not orthonormal any more."""
    return replace(f, bases=f.bases.take(rows))


def square(f: Factorization, rows: Indices) -> Array:
    """The dense matrix K[rows, rows], Fortran-ordered."""
    found = {i: (here, local) for i, here, local in f.bases.by_block(rows)}
    out = np.zeros((len(rows), len(rows)), order="F")
    if not is_dense(f.core):
        for i, j, block in f.core.blocks():
            if i in found and j in found:
                (mine, left), (yours, right) = found[i], found[j]
                value = left @ block @ right.T
                out[np.ix_(mine, yours)] = value
                out[np.ix_(yours, mine)] = value.T
    else:  # strip by strip: two products of some size instead of one for each pair
        strip = np.empty((f.rank, len(rows)), order="F")
        for i, (mine, left) in found.items():
            strip[:, mine] = f.core[:, f.spans[i][1]] @ left.T
        for i, (mine, left) in found.items():
            out[mine] = left @ strip[f.spans[i][1]]
    out[np.arange(len(rows)), np.arange(len(rows))] += f.shift
    return out


def cut(f: Factorization, rows: Indices) -> Factorization:
    """The factorization of K[rows, rows], with bases reduced where a block has fewer rows than its rank.

    The bases are not orthonormal, which the solvers do not need.
    """
    some = restricted(f, rows)
    if all(n > k for n, k in zip(some.bases.sizes, f.ranks, strict=True)):
        return some
    bases, turns = some.bases.full_rank()
    return Factorization(bases, congruent(f.core, turns, f.ranks), f.shift)
