"""Approximations beside the whole matrix: exact Frobenius errors, tile by tile, and what a shift makes of them.

In: K and a factorization, or features Z with K ~ Z Zᵀ. Out: a `Difference`, from which the error at any shift follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from krein.arrays import Array
from krein.factorization import Factorization
from krein.factorization.core import to_dense

__all__ = ["Difference", "difference", "difference_of_features", "full_bytes", "tabled_bytes"]

# Matrices are compared TILE rows at a time, so that both tiles stay in the cache.
TILE = 128


@dataclass(frozen=True)
class Difference:
    """K - F, as far as shifted errors need it."""

    n: int
    norm: float  # |K|
    squared: float  # |K - F|²
    trace: float  # tr(K - F)

    def relative(self, shift: float = 0.0) -> float:
        """|K - F - shift I| / |K|."""
        squared = self.squared - 2.0 * shift * self.trace + self.n * shift**2
        return math.sqrt(max(0.0, squared)) / self.norm


def difference(K: Array, f: Factorization) -> Difference:
    """Compare ``f`` with all of K, which is symmetric: n² k work, a tile's memory beside K and U in float64.

    Blocks are compared in f's own order, and only those on and above the diagonal.
    """
    bases = [f.bases.local(i, slice(None)) for i in range(f.n_blocks)]
    core = to_dense(f.core)
    squared = trace = 0.0
    for i, (rows, cols) in enumerate(f.spans):
        mine = f.order[rows]
        for start in range(0, len(mine), TILE):
            left = bases[i][start : start + TILE] @ core[cols]  # (tile, r)
            exact = K[mine[start : start + TILE]]
            for j in range(i, f.n_blocks):
                positions, columns = f.spans[j]
                gap = np.take(exact, f.order[positions], axis=1)
                gap -= left[:, columns] @ bases[j].T
                if i == j:
                    here = np.arange(len(gap))
                    gap[here, start + here] -= f.shift
                    trace += float(gap[here, start + here].sum())
                squared += (1.0 if i == j else 2.0) * float(np.vdot(gap, gap))
    return Difference(len(K), float(np.linalg.norm(K)), squared, trace)


def difference_of_features(K: Array, Z: Array) -> Difference:
    """The same of K ~ Z Zᵀ, Z of shape (n, D)."""
    squared = trace = 0.0
    for start in range(0, len(K), TILE):
        stop = min(start + TILE, len(K))
        gap = K[start:stop, start:] - Z[start:stop] @ Z[start:].T
        width = stop - start
        squared += 2.0 * float(np.vdot(gap, gap)) - float(np.vdot(gap[:, :width], gap[:, :width]))
        trace += float(np.trace(gap[:, :width]))
    return Difference(len(K), float(np.linalg.norm(K)), squared, trace)


def tabled_bytes(n: int, n_blocks: int, rank: int) -> float:
    """What n k + (c k)² numbers take in float64: the paper's count of an approximation's memory."""
    return 8.0 * (n * rank + (n_blocks * rank) ** 2)


def full_bytes(n: int) -> float:
    """What K takes in float64."""
    return 8.0 * n**2
