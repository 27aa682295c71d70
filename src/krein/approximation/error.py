"""A factorization and a kernel in, the relative error |K - F| / |K| with an interval out, from a sample of K.

The diagonal is evaluated as a whole. Entries within blocks and entries between blocks are two strata
(`error_sampling`). A pilot sample shows how to draw the rest, and how to divide it between the strata. Entries come in
small tiles, as kernels evaluate blocks. Tiles are independent, so that their variance gives the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from krein.approximation.error_sampling import EVEN_SHARE, TILE, Sample, Stratum, Table, draw, normed
from krein.approximation.tiles import TILE_SIZE, sampled_diagonal, sampled_tiles
from krein.arrays import Array, seed_from, stream
from krein.errors import InputError
from krein.factorization import Factorization
from krein.kernels import Evaluator, Kernel, count_objects
from krein.pieces.rows import RowPieces

__all__ = ["Entries", "ErrorEstimate", "estimate_error"]

# Up to this many rows the error is computed from every entry of the matrix.
WHOLE_ROWS = 2000
# This share of the tiles is the pilot sample.
PILOT_SHARE = 0.2
# The weight of the pilot sample in the estimate. It is fixed, as a weight that depends on the sample is biased.
PILOT_WEIGHT = 0.1
# Each stratum has at least this many tiles in the pilot sample, and in the rest.
FEWEST_TILES = 16
# The quantiles of a studentised mean of skewness g lie (2 q² + 1) / 6 times g lower, q = 1.96 being the normal one.
SKEW_FACTOR = (2.0 * 1.96**2 + 1.0) / 6.0


@dataclass(frozen=True)
class ErrorEstimate:
    """Relative Frobenius error |K - F| / |K|, between ``low`` and ``high`` with 95 % confidence."""

    relative: float
    low: float
    high: float
    n_evaluations: int
    diagonal: float  # share of the squared error on the diagonal
    within: float  # share within blocks, without the diagonal
    between: float  # share between blocks

    def __str__(self) -> str:
        return f"{self.relative:.3g} [{self.low:.3g}, {self.high:.3g}]"


def estimate_error(f: Factorization, kernel: Kernel, objects: Any, n_samples: int, random_state: Any) -> ErrorEstimate:
    """Return |K - f| / |K| with its interval; exact (low = high) up to 2000 objects.

    Entries of rows outside memory are drawn uniformly within blocks and between them, which takes a wider interval.
    """
    if isinstance(objects, RowPieces):
        return _uniform(f, Evaluator(kernel), objects, n_samples, stream(seed_from(random_state), 0))
    return Entries(f, Evaluator(kernel), objects, n_samples, random_state).error(f)


def _uniform(
    f: Factorization, evaluator: Evaluator, objects: Any, n_samples: int, rng: np.random.Generator
) -> ErrorEstimate:
    """The estimate from uniform tiles within blocks and between them, and from the diagonal."""
    count = max(FEWEST_TILES, n_samples // TILE_SIZE**2 // 2)
    parts = [sampled_tiles(f, evaluator, objects, inside, count, rng) for inside in (True, False)]
    diagonal = [sampled_diagonal(f, evaluator, objects, rng)]
    peak = (
        max((float(np.abs(K).max(initial=0.0)) for part in (diagonal, *parts) for _, K, _ in part), default=0.0) or 1.0
    )
    gaps, norms, variances = [], [], []
    for part in (diagonal, *parts):  # each tile stands for its share of the entries
        squares = np.array(
            [[share * ((K / peak - F / peak) ** 2).mean(), share * ((K / peak) ** 2).mean()] for share, K, F in part]
        ).reshape(-1, 2)
        gaps.append(float(squares[:, 0].sum()))
        norms.append(float(squares[:, 1].sum()))
        variances.append(len(squares) * float(squares[:, 0].var()) if len(squares) > 1 else 0.0)
    gap, norm = sum(gaps), sum(norms) or 1.0
    half = 1.96 * math.sqrt(sum(variances))
    low, value, high = (math.sqrt(max(0.0, g) / norm) for g in (gap - half, gap, gap + half))
    shares = [g / (gap or 1.0) for g in gaps]
    return ErrorEstimate(value, low, high, evaluator.n_evaluations, *shares)


class Entries:
    """Sampled entries of K with their probabilities, to estimate the error of factorizations with the same blocks.

    The entries are drawn for one factorization. Others with the same rows in the same blocks, of other ranks or storage
    types, are measured on the same entries: without bias, and without evaluating the kernel again.
    """

    def __init__(self, f: Factorization, evaluator: Evaluator, objects: Any, n_samples: int, random_state: Any) -> None:
        n = count_objects(objects)
        if f.shape[0] != n:
            raise InputError(
                f"The factorization has {f.shape[0]} rows, but there are {n} objects; pass those it is of."
            )
        self.order, self.spans = f.order, [rows for rows, _ in f.spans]
        self.evaluator, before = evaluator, evaluator.n_evaluations
        self.K = evaluator.block(objects, objects).astype(np.float64) if n <= WHOLE_ROWS else None
        self.table = Table(f, evaluator, objects) if self.K is None else None
        self.n_evaluations = evaluator.n_evaluations - before
        self.redraw(f, n_samples, random_state)

    def redraw(self, f: Factorization, n_samples: int, random_state: Any) -> None:
        """Replace the entries by about ``n_samples`` other ones."""
        if isinstance(n_samples, bool) or not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise InputError(f"n_samples must be a positive integer; got {n_samples!r}.")
        if self.table is not None:
            before, n_tiles = self.evaluator.n_evaluations, -(-int(n_samples) // TILE**2)
            self.samples = _samples(self.table, f, n_tiles, stream(seed_from(random_state), 0))
            self.n_evaluations += self.evaluator.n_evaluations - before

    def error(self, f: Factorization) -> ErrorEstimate:
        """Estimate the error of a factorization with the same blocks and order."""
        if [rows for rows, _ in f.spans] != self.spans or not np.array_equal(f.order, self.order):
            raise InputError(
                f"These entries were drawn for other blocks ({len(self.spans)} of {len(self.order)} rows) than the "
                f"factorization's ({f.n_blocks} of {f.shape[0]} rows). Estimate it on its own."
            )
        if self.table is not None:
            return _estimate(self.table, f, self.samples, self.n_evaluations)
        assert self.K is not None
        return _exact(f, self.K, self.n_evaluations)


def _samples(
    table: Table, f: Factorization, n_tiles: int, rng: np.random.Generator
) -> list[tuple[str, list[tuple[float, Sample]]]]:
    """For each stratum: its name, and the weights and tiles of the pilot sample and of the rest."""
    strata = [s for s in (Stratum(table, within=True), Stratum(table, within=False)) if s.proposals]
    first = [draw(table, s, max(FEWEST_TILES, round(PILOT_SHARE * n_tiles / len(strata))), s.even, rng) for s in strata]
    added = [sample.squares(f, table.scale)[0] for sample in first]
    mixtures = [s.best_mixture(sample, gaps) for s, sample, gaps in zip(strata, first, added, strict=True)]
    spreads = np.array([gaps.sum((1, 2)).std() for gaps in added])
    shares = EVEN_SHARE / len(strata) + (1.0 - EVEN_SHARE) * normed(spreads)  # Neyman allocation with a floor
    left = max(0, n_tiles - sum(len(sample.rows) for sample in first))
    later = [
        draw(table, s, max(FEWEST_TILES, round(float(share) * left)), mixture, rng)
        for s, share, mixture in zip(strata, shares, mixtures, strict=True)
    ]
    return [
        (s.name, [(PILOT_WEIGHT, a), (1.0 - PILOT_WEIGHT, b)]) for s, a, b in zip(strata, first, later, strict=True)
    ]


def _estimate(
    table: Table, f: Factorization, parts: list[tuple[str, list[tuple[float, Sample]]]], n_evaluations: int
) -> ErrorEstimate:
    """The root of |K - F|² / |K|², both estimated, with an interval from the variance of the tiles."""
    known = table.known(f)
    lost, total = {"diagonal": known.lost, "within": 0.0, "between": 0.0}, table.total
    groups = []  # (weight, |K - F|² and K² of each tile)
    for name, samples in parts:
        tiles = [(weight, sample.squares(f, table.scale).sum((2, 3))) for weight, sample in samples]  # (3, tiles)
        slope = _slope(np.concatenate([values for _, values in tiles], axis=1))
        for weight, (gap, square, held) in tiles:
            lost[name] += weight * float(gap.mean())
            square = square - slope * (held - known.norms[name])
            total += weight * float(square.mean())
            groups.append((weight, gap, square))
    squared = sum(lost.values())
    total = max(total, table.total, np.finfo(float).tiny)
    ratio = squared / total
    low, high = _interval(ratio, [(w, (a - ratio * b) / total) for w, a, b in groups])
    shares = {name: part / squared if squared else 0.0 for name, part in lost.items()}
    return ErrorEstimate(math.sqrt(ratio), math.sqrt(low), math.sqrt(high), n_evaluations, **shares)


def _slope(values: Array) -> float:
    """The coefficient of F's sampling error as a control variate for |K|²: |F| is known, and F resembles K."""
    _, square, held = values
    spread = float(held.var())
    together = float(((square - square.mean()) * (held - held.mean())).mean())
    return min(max(together / spread, 0.0), 1.0) if spread > 0.0 else 1.0


def _interval(ratio: float, groups: list[tuple[float, Array]]) -> tuple[float, float]:
    """A 95 % interval of the squared ratio, on the logarithmic scale.

    A few large tiles make the variance itself uncertain. The quantile is therefore Student's, with degrees of freedom
    from the fourth moments (Satterthwaite). A sample without its large tiles has a mean and a variance that are both
    too small, so the interval is moved up by the third moments (Cornish and Fisher, for a studentised mean).
    """
    if ratio <= 0.0:
        return 0.0, 0.0
    variance = doubt = third = 0.0
    for weight, values in groups:
        centred = values - values.mean()
        second, fourth, m = float((centred**2).mean()), float((centred**4).mean()), len(values)
        variance += weight**2 * second / (m - 1)
        third += weight**3 * float((centred**3).mean()) / m**2
        doubt += weight**4 * max(fourth - second**2 * (m - 3) / (m - 1), 0.0) / m**3
    freedom = max(2.0 * variance**2 / doubt, 2.0) if doubt > 0.0 else 1e6
    error = math.sqrt(variance) / ratio
    spread = min(float(stdtrit(freedom, 0.975)) * error, 50.0)
    skewness = third / variance**1.5 if variance > 0.0 else 0.0
    moved = min(max(SKEW_FACTOR * skewness * error, -spread), spread)  # the estimate stays inside
    return ratio * math.exp(moved - spread), ratio * math.exp(moved + spread)


def _exact(f: Factorization, K: Array, n_evaluations: int) -> ErrorEstimate:
    """The error from all entries of K."""
    scale = float(np.abs(K).max()) or 1.0
    labels = np.empty(len(K), dtype=np.intp)
    for i, (rows, _) in enumerate(f.spans):
        labels[f.order[rows]] = i
    norm = float(((K / scale) ** 2).sum())
    gap = ((K - f.to_dense()) / scale) ** 2
    everything, diagonal = float(gap.sum()), float(np.trace(gap))
    inside = float(gap[np.equal.outer(labels, labels)].sum())
    relative = math.sqrt(everything / norm) if norm else 0.0
    parts = (diagonal, inside - diagonal, everything - inside)
    shares = [part / everything if everything else 0.0 for part in parts]
    return ErrorEstimate(relative, relative, relative, n_evaluations, *shares)
