"""How wrong is it, without K: squared errors of sampled entries, stratified, with an interval.

The diagonal, the entries within blocks and those between blocks are three strata: their errors differ by orders of
magnitude. Entries come in small tiles, because kernels evaluate blocks; tiles are independent, so their spread gives
the interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.arrays import Array, seed_from, stream
from krein.errors import InputError
from krein.factorization import Factorization
from krein.kernels import Evaluator, Kernel, count_objects, take

__all__ = ["ErrorEstimate", "estimate_error"]

EXACT_ROWS = 2000
TILE = 8
NORMAL_95 = 1.959964


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
    if isinstance(n_samples, bool) or not isinstance(n_samples, int | np.integer) or n_samples < 1:
        raise InputError(f"n_samples must be a positive integer; got {n_samples!r}.")
    evaluator, n = Evaluator(kernel), count_objects(objects)
    if n <= EXACT_ROWS:
        return _exact(f, evaluator, objects)
    diagonal = evaluator.diag(objects).astype(np.float64)
    approximated = f.diagonal()
    scale = max(float(np.abs(values).max()) for values in (diagonal, approximated)) or 1.0  # no square overflows
    lost = float((((diagonal - approximated) / scale) ** 2).sum())
    total = float(((diagonal / scale) ** 2).sum())
    n_tiles = max(8, -(-int(n_samples) // (2 * TILE * TILE)))
    rng = stream(seed_from(random_state), 0)
    sizes = np.array([rows.stop - rows.start for rows, _ in f.spans], dtype=np.float64)
    strata = {"within": sizes * (sizes - 1.0), "between": sizes * (n - sizes)}
    parts, samples = {"diagonal": lost}, []
    for name, weights in strata.items():
        count = float(weights.sum())
        if count == 0.0:
            parts[name] = 0.0
            continue
        blocks = rng.choice(len(sizes), n_tiles, p=weights / count)
        tiles = np.array([_tile(f, evaluator, objects, int(i), name, scale, rng) for i in blocks])  # (m, 2)
        parts[name] = count * float(tiles[:, 0].mean())
        total += count * float(tiles[:, 1].mean())
        samples.append((count, tiles))
    squared = sum(parts.values())
    ratio = squared / total if total else 0.0
    variance = sum(c**2 * float(np.var(t[:, 0] - ratio * t[:, 1], ddof=1)) / len(t) for c, t in samples)
    spread = NORMAL_95 * math.sqrt(variance) / total / ratio if ratio > 0.0 else 0.0  # relative, of the squared ratio
    relative = math.sqrt(ratio)
    shares = {name: part / squared if squared else 0.0 for name, part in parts.items()}
    spread = min(spread, 50.0)
    low, high = relative * math.exp(-spread / 2), relative * math.exp(spread / 2)
    return ErrorEstimate(relative, low, high, evaluator.n_evaluations, **shares)


def _tile(
    f: Factorization, evaluator: Evaluator, objects: Any, i: int, stratum: str, scale: float, rng: np.random.Generator
) -> Array:
    """Mean squared error and mean square of one tile: rows of block i, columns of the same block or of the others."""
    span = f.spans[i][0]
    start, size, n = span.start, span.stop - span.start, f.shape[0]
    if stratum == "within":
        side = min(TILE, size // 2)
        both = rng.choice(size, 2 * side, replace=False) + start  # disjoint, so the diagonal is never met
        rows, cols = both[:side], both[side:]
    else:
        rows = rng.choice(size, min(TILE, size), replace=False) + start
        cols = rng.choice(n - size, min(TILE, n - size), replace=False)
        cols = np.where(cols >= start, cols + size, cols)
    rows, cols = f.order[rows], f.order[cols]
    exact = evaluator.block(take(objects, rows), take(objects, cols)).astype(np.float64) / scale
    return np.array([((exact - f.entries(rows, cols) / scale) ** 2).mean(), (exact**2).mean()])


def _exact(f: Factorization, evaluator: Evaluator, objects: Any) -> ErrorEstimate:
    """All of K, once."""
    K = evaluator.block(objects, objects).astype(np.float64)
    scale = float(np.abs(K).max()) or 1.0
    gap = ((K - f.to_dense()) / scale) ** 2
    labels = np.empty(len(K), dtype=np.intp)
    for i, (rows, _) in enumerate(f.spans):
        labels[f.order[rows]] = i
    same = np.equal.outer(labels, labels)
    diagonal, inside, everything = float(np.trace(gap)), float(gap[same].sum()), float(gap.sum())
    relative = math.sqrt(everything / float(((K / scale) ** 2).sum())) if K.any() else 0.0
    parts = (diagonal, inside - diagonal, everything - inside)
    shares = [part / everything if everything else 0.0 for part in parts]
    return ErrorEstimate(relative, relative, relative, evaluator.n_evaluations, *shares)
