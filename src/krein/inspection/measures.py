"""Measures of a sample's matrix, with confidence intervals.

A measure of m objects is uncertain because other objects might have been drawn. Its standard error is estimated from
subsets of the sample. The mean over b of m objects has the variance s² (1 / b - 1 / m), and that over m objects s² / m.
So the standard error is the standard deviation among subsets times sqrt(b / (m - b)), and times sqrt(1 - m / n) if
there are n objects in all. With subsets of three quarters, 95 % intervals of the negative share held in 87 to 98 % of
samples of four matrices, and in 1 % of a fifth, where few samples have a negative eigenvalue at all. Subsets of one
half were worse: a share that grows with the number of objects varies less among fewer (docs/inspect.md).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.approximation.clusters import partition
from krein.arrays import Array, Indices
from krein.choosing.candidates import bytes_of
from krein.choosing.forecast import BUILT_ERROR, Curves
from krein.errors import KreinWarning
from krein.inspection.findings import BlockShare, Estimate, Forecast, SizeTrend
from krein.kernels import Evaluator, Precomputed, is_vectors

__all__ = [
    "Spectrum",
    "Subsets",
    "between",
    "block_shares",
    "forecasts",
    "spectrum",
    "squares_of",
    "triangle_violations",
    "zero_below",
]

# Intervals come from SUBSETS random subsets, each with the share PART of the sample.
SUBSETS, PART = 20, 0.75
# The trend with the size of the sample uses TREND_SUBSETS subsets of a half and of a quarter.
TREND_SUBSETS = 10
# The triangle inequality is tested on this many random triples.
TRIPLES = 100_000
# An interval of 95 % has this many standard errors to either side.
WIDTH = 1.96
# The share of the matrix in blocks is given for these numbers of clusters, if each has PER_BLOCK objects at least.
BLOCKS = (2, 4, 8, 16, 32)
PER_BLOCK = 10
# Memory and error are forecast for these numbers of blocks and these ranks.
GRID = (1, 4, 16, 64), (16, 32, 64, 128)


class Subsets:
    """Random subsets of the sample, from which the uncertainty of a measure is estimated."""

    def __init__(self, m: int, n: int, rng: np.random.Generator) -> None:
        self.m, self.n = m, n
        self.size = max(1, int(PART * m))
        self.members = [np.sort(rng.permutation(m)[: self.size]) for _ in range(SUBSETS)]

    @property
    def whole(self) -> bool:
        """Whether all objects are in the sample."""
        return self.m == self.n

    @property
    def inflation(self) -> float:
        """The variance of a mean over the sample, divided by that among subsets."""
        return self.size / (self.m - self.size)

    def error(self, values: Any) -> float:
        """The standard error of a measure over m objects from its values over the subsets."""
        return float(np.std(values, ddof=1)) * math.sqrt(self.inflation * (1.0 - self.m / self.n))

    def estimate(
        self, value: float, measure: Callable[[Indices], float], low: float = 0.0, high: float = 1.0
    ) -> Estimate:
        """``value`` with its interval, kept between ``low`` and ``high``."""
        if self.whole:
            return Estimate(value, value, value)
        return between(value, self.error([measure(some) for some in self.members]), low, high)

    def share(self, flags: Any) -> Estimate:
        """The share of pairs of different objects that are marked in an (m, m) array."""
        return self.estimate(_pairs(flags, np.arange(self.m)), lambda some: _pairs(flags, some))


def _pairs(flags: Any, some: Indices) -> float:
    inner = flags[np.ix_(some, some)]
    pairs = len(some) * (len(some) - 1)
    return float(inner.sum() - inner.diagonal().sum()) / pairs if pairs else 0.0


def between(value: float, error: float, low: float = -math.inf, high: float = math.inf) -> Estimate:
    """An interval of WIDTH standard errors, kept between ``low`` and ``high``."""
    return Estimate(value, max(low, value - WIDTH * error), min(high, value + WIDTH * error))


def zero_below(values: Array, precision: float) -> float:
    """Return the size up to which eigenvalues of a matrix of as many rows are rounding."""
    return 10.0 * len(values) * precision * float(np.abs(values).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The eigenvalues of a sample, and the share of negative ones among all objects."""

    values: Array  # (m,), descending
    inertia: tuple[int, int, int]
    negative_share: Estimate
    trend: tuple[SizeTrend, ...]
    of_all: tuple[float, float] | None


def spectrum(K: Array, precision: float, subsets: Subsets, rng: np.random.Generator) -> Spectrum:
    """Return the eigenvalues of a sample's matrix and the share of negative ones, also for fewer and for all objects.

    Cutting a matrix into diagonal blocks can only reduce the sum of its negative eigenvalues (pinching). So that sum
    per object grows with the number of objects on average, and their share too if the mean self-similarity is positive.
    The share of all objects is extrapolated: it grows as it did from m / 2 to m.
    """
    m, own = len(K), float(np.diagonal(K).mean())
    sizes = [m // part for part in (4, 2) if m >= 10 * part or part == 2]
    members = {size: [rng.permutation(m)[:size] for _ in range(TREND_SUBSETS)] for size in sizes}
    members |= {subsets.size: subsets.members, m: [np.arange(m)]}
    found = {size: [np.linalg.eigvalsh(K[np.ix_(s, s)]) for s in sets] for size, sets in members.items()}
    shares = {size: np.array([_negative_share(v, precision) for v in each]) for size, each in found.items()}
    values = found[m][0][::-1]
    zero = zero_below(values, precision)
    inertia = int((values > zero).sum()), int((np.abs(values) <= zero).sum()), int((values < -zero).sum())
    trend = tuple(
        SizeTrend(size, float(shares[size].mean()), float(shares[size].std(ddof=1)),
                  float(np.mean([v[0] for v in found[size]])))
        for size in sizes
    )  # fmt: skip
    share = float(shares[m][0])
    if subsets.whole:
        return Spectrum(values, inertia, Estimate(share, share, share), trend, (share, share))
    estimate = between(share, subsets.error(shares[subsets.size]), 0.0, 1.0)
    of_all = None
    if share > 0.0 and own > 0.0:
        per_object = {size: float(np.mean([_negative_sum(v, precision) for v in found[size]])) / size for size in found}
        of_all = estimate.low, max(estimate.high, _grown(per_object[m // 2], per_object[m], subsets, own))
    return Spectrum(values, inertia, estimate, trend, of_all)


def _grown(half: float, full: float, subsets: Subsets, own: float) -> float:
    """Return the share of n objects if the sum per object grows by the same power from m to n as from m / 2 to m."""
    if half <= 0.0:
        return 0.5  # the largest share that a positive trace allows
    power = max(0.0, math.log2(full / half))
    later = full * (subsets.n / subsets.m) ** power
    return float(later / (own + 2.0 * later))


def _negative_sum(values: Array, precision: float) -> float:
    return float(np.abs(values[values < -zero_below(values, precision)]).sum())


def _negative_share(values: Array, precision: float) -> float:
    """Return the sum of the magnitudes of negative eigenvalues, divided by that of all."""
    total = float(np.abs(values).sum())
    return _negative_sum(values, precision) / total if total else 0.0


def squares_of(K: Array, precision: float) -> tuple[Array, float]:
    """Return squared distances k(x, x) + k(y, y) - 2 k(x, y), and the size of their rounding."""
    own = np.diagonal(K)
    return own[:, None] + own - 2.0 * K, 16.0 * precision * float(np.abs(K).max(initial=0.0))


def triangle_violations(K: Array, precision: float, subsets: Subsets, rng: np.random.Generator) -> Estimate:
    """Return the share of triples that violate the triangle inequality. Negative squared distances count as 0."""
    m = len(K)
    if m < 3:
        return Estimate(0.0, 0.0, 0.0)
    squares, rounding = squares_of(K, precision)
    first = rng.integers(0, m, TRIPLES)
    second = (first + rng.integers(1, m, TRIPLES)) % m
    third = rng.integers(0, m - 2, TRIPLES)  # of the m - 2 others
    third += third >= np.minimum(first, second)
    third += third >= np.maximum(first, second)
    triples = np.stack([first, second, third])
    sides = np.sqrt(np.maximum([squares[triples[i], triples[i - 1]] for i in range(3)], 0.0))
    # a rounding error of a square is one of its root where the side is zero, and may be in each of the three
    violated = 2.0 * sides.max(0) - sides.sum(0) > 3.0 * math.sqrt(rounding)
    share = float(violated.mean())
    variance = share * (1.0 - share) / TRIPLES
    least = TRIPLES  # independent triples that there are at least
    if not subsets.whole:
        shares = []
        for some in subsets.members:
            inside = np.zeros(m, dtype=bool)
            inside[some] = True
            mine = inside[triples].all(0)
            shares.append(float(violated[mine].mean()) if mine.any() else share)
        met = (subsets.size / m) ** 3  # of the triples; which of them is chance again, and no sign of the objects
        variance += max(0.0, subsets.error(shares) ** 2 - subsets.inflation * (1.0 / met - 1.0) * variance)
        least = m // 3  # no two of which share an object
    count = min(max(share * (1.0 - share) / variance if variance > 0.0 else least, least), TRIPLES)
    return _wilson(share, count)


def _wilson(share: float, count: float) -> Estimate:
    """Wilson's 95 % interval of a share among ``count`` independent ones; it never has zero width."""
    square = WIDTH**2 / count
    middle = (share + 0.5 * square) / (1.0 + square)
    half = math.sqrt(square * (share * (1.0 - share) + 0.25 * square)) / (1.0 + square)
    low = 0.0 if share == 0.0 else max(0.0, middle - half)
    return Estimate(share, low, 1.0 if share == 1.0 else min(1.0, middle + half))


def block_shares(K: Array, sample: Any, subsets: Subsets, seed: int) -> tuple[BlockShare, ...]:
    """Return the share of the squared Frobenius norm in the diagonal blocks of c clusters, for several c.

    In a sample the diagonal has n / m times the weight it has among all n objects, which is corrected.
    """
    m, n = len(K), subsets.n
    squares = (K / (float(np.abs(K).max(initial=0.0)) or 1.0)) ** 2
    weights = squares * ((n - 1) / max(1, m - 1))
    weights[np.diag_indices(m)] = squares.diagonal()
    objects, evaluator = (sample, Evaluator(Precomputed(K), counted=False))
    if not is_vectors(sample):
        objects = np.arange(m)
    found: dict[int, BlockShare] = {}
    for c in BLOCKS:
        if c * PER_BLOCK > m:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KreinWarning)  # of fewer clusters than asked for, which the result shows
            clusters = partition(objects, c, evaluator, seed)
        same = np.equal.outer(clusters.labels, clusters.labels)

        def share(some: Indices, same: Any = same) -> float:
            some_weights = weights[np.ix_(some, some)]
            total = float(some_weights.sum())
            return float(some_weights[same[np.ix_(some, some)]].sum()) / total if total else 0.0

        chance = float(((clusters.sizes / m) ** 2).sum())
        of_all = share(np.arange(m))
        found.setdefault(clusters.n_blocks, BlockShare(clusters.n_blocks, subsets.estimate(of_all, share), chance))
    return tuple(found.values())


def forecasts(K: Array, sample: Any, n: int, seed: int) -> tuple[Forecast, ...]:
    """Return bytes and errors of some numbers of blocks and ranks for all n objects, forecast from the sample."""
    curves = Curves(sample, Evaluator(Precomputed(K), counted=False), seed, n, len(K), known=K)
    found = []
    for c in GRID[0]:
        ranks = [k for k in GRID[1] if (c * k <= n // 4 if c > 1 else k <= 0.6 * n)]
        if not ranks:
            continue
        errors, seen = curves.errors(c, max(ranks))
        for k in ranks:
            error = min(1.0, BUILT_ERROR * float(errors[k - 1]))
            found.append(Forecast(c, k, bytes_of(n, c, k, "float64"), error, seen))
    return tuple(found)
