"""How wrong is it, without K: squared errors of sampled entries, stratified, with an interval.

The diagonal is taken whole; the entries within blocks and those between blocks are two strata (`error_sampling`). A
first part of the entries tells which way to draw, and which stratum, to spend the rest on. Entries come in small tiles,
because kernels evaluate blocks; tiles are independent, so their spread gives the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from krein.arrays import Array, seed_from, stream
from krein.error_sampling import LEAST, TILE, Stratum, Table, draw, normed
from krein.errors import InputError
from krein.factorization import Factorization
from krein.kernels import Evaluator, Kernel, count_objects

__all__ = ["ErrorEstimate", "compare", "estimate_error"]

EXACT_ROWS = 2000
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
    return compare([f], kernel, objects, n_samples, random_state)[0]


def compare(
    factorizations: Sequence[Factorization], kernel: Kernel, objects: Any, n_samples: int, random_state: Any
) -> list[ErrorEstimate]:
    """Return the error of each of several factorizations of the same objects in the same blocks, on the same entries.

    Each kernel entry is evaluated once for all of them, and what chance there is in the entries is shared: the
    differences are known better than the errors. ``n_evaluations`` is that of the whole comparison.
    """
    if isinstance(n_samples, bool) or not isinstance(n_samples, int | np.integer) or n_samples < 1:
        raise InputError(f"n_samples must be a positive integer; got {n_samples!r}.")
    _check_same_blocks(factorizations, count_objects(objects))
    evaluator = Evaluator(kernel)
    if count_objects(objects) <= EXACT_ROWS:
        return _exact(factorizations, evaluator, objects)
    table = Table(factorizations, evaluator, objects)
    rng = stream(seed_from(random_state), 0)
    n_tiles = -(-int(n_samples) // TILE**2)
    strata = [s for s in (Stratum(table, within=True), Stratum(table, within=False)) if s.ways]
    first = [draw(table, s, max(FEWEST, round(PILOT * n_tiles / len(strata))), s.even, rng) for s in strata]
    plans, spreads = [], []
    for s, sample in zip(strata, first, strict=True):
        plans.append(s.plan(sample, table))
        spreads.append(np.sqrt([sample.values[:, g, 0].var() for g in range(len(factorizations))]))
    left = max(0, n_tiles - sum(len(sample.values) for sample in first))
    shares = _allocation(np.array(spreads))
    later = [
        draw(table, s, max(FEWEST, round(float(share) * left)), plan, rng)
        for s, share, plan in zip(strata, shares, plans, strict=True)
    ]
    parts = [(s.name, [(PILOT_WEIGHT, a.values), (1.0 - PILOT_WEIGHT, b.values)])
             for s, a, b in zip(strata, first, later, strict=True)]  # fmt: skip
    return [_estimate(table, g, parts, evaluator.n_evaluations) for g in range(len(factorizations))]


def _estimate(table: Table, g: int, parts: list[Any], n_evaluations: int) -> ErrorEstimate:
    """The ratio of two estimates, and its interval from the spread of the tiles."""
    lost, total = {"diagonal": table.lost[g], "within": 0.0, "between": 0.0}, table.total
    groups = []  # (weight, |K - F|² and K² of each tile)
    for name, samples in parts:
        known = table.norms[g][name]
        slope = _slope(np.concatenate([values[:, g] for _, values in samples]))
        for weight, values in samples:
            lost[name] += weight * float(values[:, g, 0].mean())
            square = values[:, g, 1] - slope * (values[:, g, 2] - known)
            total += weight * float(square.mean())
            groups.append((weight, values[:, g, 0], square))
    squared = sum(lost.values())
    total = max(total, table.total, np.finfo(float).tiny)
    ratio = squared / total
    low, high = _interval(ratio, [(w, (a - ratio * b) / total) for w, a, b in groups])
    shares = {name: part / squared if squared else 0.0 for name, part in lost.items()}
    return ErrorEstimate(math.sqrt(ratio), math.sqrt(low), math.sqrt(high), n_evaluations, **shares)


def _slope(values: Array) -> float:
    """How much of F's sampling error to take off K's: F's norm is known, and F resembles K."""
    spread = float(values[:, 2].var())
    together = float(((values[:, 1] - values[:, 1].mean()) * (values[:, 2] - values[:, 2].mean())).mean())
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


def _allocation(spreads: Array) -> Array:
    """Shares of the strata, (strata,), by their spread (strata, factorizations): Neyman's, with a floor."""
    best = sum((normed(column) for column in spreads.T), np.zeros(len(spreads)))
    return LEAST / len(spreads) + (1.0 - LEAST) * normed(best)


def _check_same_blocks(factorizations: Sequence[Factorization], n: int) -> None:
    if len(factorizations) == 0:
        raise InputError("compare needs at least one factorization; got none.")
    first = factorizations[0]
    if first.shape[0] != n:
        raise InputError(
            f"The factorization has {first.shape[0]} rows, but there are {n} objects; pass those it is of."
        )
    for number, f in enumerate(factorizations):
        same = f.n_blocks == first.n_blocks and all(a == b for (a, _), (b, _) in zip(f.spans, first.spans, strict=True))
        if not (same and np.array_equal(f.order, first.order)):
            raise InputError(
                f"compare needs factorizations in the same blocks and order; number {number} ({f.n_blocks} blocks, "
                f"{f.shape[0]} rows) differs from the first ({first.n_blocks} blocks, {first.shape[0]} rows). Estimate "
                "it on its own."
            )


def _exact(factorizations: Sequence[Factorization], evaluator: Evaluator, objects: Any) -> list[ErrorEstimate]:
    """All of K, once."""
    K = evaluator.block(objects, objects).astype(np.float64)
    scale = float(np.abs(K).max()) or 1.0
    labels = np.empty(len(K), dtype=np.intp)
    for i, (rows, _) in enumerate(factorizations[0].spans):
        labels[factorizations[0].order[rows]] = i
    same = np.equal.outer(labels, labels)
    norm = float(((K / scale) ** 2).sum())
    found = []
    for f in factorizations:
        gap = ((K - f.to_dense()) / scale) ** 2
        diagonal, inside, everything = float(np.trace(gap)), float(gap[same].sum()), float(gap.sum())
        relative = math.sqrt(everything / norm) if norm else 0.0
        parts = (diagonal, inside - diagonal, everything - inside)
        shares = [part / everything if everything else 0.0 for part in parts]
        found.append(ErrorEstimate(relative, relative, relative, evaluator.n_evaluations, *shares))
    return found
