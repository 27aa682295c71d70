"""How wrong is it, without K: squared errors of sampled entries, stratified, with an interval.

The diagonal is taken whole; the entries within blocks and those between blocks are two strata (`error_sampling`). A
first part of the entries tells which way to draw, and which stratum, to spend the rest on. Entries come in small tiles,
because kernels evaluate blocks; tiles are independent, so their spread gives the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from krein.approximation.error_sampling import LEAST, TILE, Sample, Stratum, Table, draw, normed
from krein.arrays import Array, seed_from, stream
from krein.errors import InputError
from krein.factorization import Factorization
from krein.kernels import Evaluator, Kernel, count_objects

__all__ = ["Entries", "ErrorEstimate", "estimate_error"]

WHOLE_ROWS = 2000  # Up to this many rows the error is computed from every entry of the matrix.
PILOT = 0.2  # share of the tiles drawn before anything is known
PILOT_WEIGHT = 0.1  # their weight in the estimate: fixed, as weights that look at the sample are biased
FEWEST = 16  # tiles of one stratum in one part


@dataclass(frozen=True)
class ErrorEstimate:
    """Relative Frobenius error |K - F| / |K|, between ``low`` and ``high`` with 95 % confidence."""

    relative: float
    low: float
    high: float
    n_evaluations: int
    diagonal: float  # share of the squared error that lies on the diagonal,
    within: float  # off it within blocks,
    between: float  # and between blocks

    def __str__(self) -> str:
        return f"{self.relative:.3g} [{self.low:.3g}, {self.high:.3g}]"


def estimate_error(f: Factorization, kernel: Kernel, objects: Any, n_samples: int, random_state: Any) -> ErrorEstimate:
    """Return |K - f| / |K| with its interval; exact (low = high) up to 2000 objects."""
    return Entries(f, Evaluator(kernel), objects, n_samples, random_state).error(f)


class Entries:
    """Entries of K that were looked at, and how likely each was: enough for the error of what is in the same blocks.

    They are drawn with one factorization in mind. Another with the same rows in the same blocks, of other ranks or
    stored otherwise, is measured on them too: without bias, and without asking the kernel again.
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
        self.look(f, n_samples, random_state)

    def look(self, f: Factorization, n_samples: int, random_state: Any) -> None:
        """Look at other entries, so many, in place of those looked at so far."""
        if isinstance(n_samples, bool) or not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise InputError(f"n_samples must be a positive integer; got {n_samples!r}.")
        if self.table is not None:
            before, n_tiles = self.evaluator.n_evaluations, -(-int(n_samples) // TILE**2)
            self.samples = _samples(self.table, f, n_tiles, stream(seed_from(random_state), 0))
            self.n_evaluations += self.evaluator.n_evaluations - before

    def error(self, f: Factorization) -> ErrorEstimate:
        """The error of a factorization in the same blocks and order, on these entries."""
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
    """For each stratum the weight and the tiles of a first part, drawn in every way, and of a second that learnt."""
    strata = [s for s in (Stratum(table, within=True), Stratum(table, within=False)) if s.ways]
    first = [draw(table, s, max(FEWEST, round(PILOT * n_tiles / len(strata))), s.even, rng) for s in strata]
    added = [sample.squares(f, table.scale)[0] for sample in first]
    plans = [s.plan(sample, gaps) for s, sample, gaps in zip(strata, first, added, strict=True)]
    spreads = np.array([gaps.sum((1, 2)).std() for gaps in added])
    shares = LEAST / len(strata) + (1.0 - LEAST) * normed(spreads)  # Neyman's, with a floor
    left = max(0, n_tiles - sum(len(sample.rows) for sample in first))
    later = [
        draw(table, s, max(FEWEST, round(float(share) * left)), plan, rng)
        for s, share, plan in zip(strata, shares, plans, strict=True)
    ]
    return [
        (s.name, [(PILOT_WEIGHT, a), (1.0 - PILOT_WEIGHT, b)]) for s, a, b in zip(strata, first, later, strict=True)
    ]


def _estimate(
    table: Table, f: Factorization, parts: list[tuple[str, list[tuple[float, Sample]]]], n_evaluations: int
) -> ErrorEstimate:
    """The ratio of two estimates, and its interval from the spread of the tiles."""
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
    """How much of F's sampling error to take off K's: F's norm is known, and F resembles K."""
    _, square, held = values
    spread = float(held.var())
    together = float(((square - square.mean()) * (held - held.mean())).mean())
    return min(max(together / spread, 0.0), 1.0) if spread > 0.0 else 1.0


def _interval(ratio: float, groups: list[tuple[float, Array]]) -> tuple[float, float]:
    """A 95 % interval of the squared ratio, on the logarithmic scale.

    A few heavy tiles make the variance itself uncertain: Student's quantile with the degrees of freedom that the
    fourth moments leave (Satterthwaite).
    """
    if ratio <= 0.0:
        return 0.0, 0.0
    variance = doubt = 0.0
    for weight, values in groups:
        centred = values - values.mean()
        second, fourth, m = float((centred**2).mean()), float((centred**4).mean()), len(values)
        variance += weight**2 * second / (m - 1)
        doubt += weight**4 * max(fourth - second**2 * (m - 3) / (m - 1), 0.0) / m**3
    freedom = max(2.0 * variance**2 / doubt, 2.0) if doubt > 0.0 else 1e6
    spread = float(stdtrit(freedom, 0.975)) * math.sqrt(variance) / ratio
    spread = min(spread, 50.0)
    return ratio * math.exp(-spread), ratio * math.exp(spread)


def _exact(f: Factorization, K: Array, n_evaluations: int) -> ErrorEstimate:
    """From all of K."""
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
