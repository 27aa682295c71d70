"""Bases in, the core out (Part 3, Eq. 5): least-squares links between clusters, each pair on its own sample.

L_ij = pinv(Q_i[I_i]) K[I_i, I_j] pinv(Q_j[I_j])ᵀ with fresh random rows I_i, I_j for each pair; with Q = U R the core's
block is R_i L_ij R_jᵀ. Because each pair has its own sample, the result need not be psd even where the kernel is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.arrays import Array, Indices
from krein.kernels import Evaluator, take

__all__ = ["Link", "Side", "kept_pairs", "pairwise_link"]

PER_RANK = 3  # sampled rows of a cluster per unit of its rank
CUTOFFS = 10.0 ** np.arange(-6.0, 0.0, 0.25)  # singular values below this share of the largest are not inverted
SURE = 12  # where in CUTOFFS a link that exploded is tried next: 1e-3
AS_GOOD = 1.05  # a larger cut-off is taken while the sample is fitted this well: the weakest link that explains it
CLEAN = 0.1  # unless the sample is fitted so well that no more than this share of the limit can be noise
TOO_LARGE = 1.5  # a block of the approximation whose norm exceeds the sampled one by this factor has exploded


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two clusters of a link: Q_i = U_i R_i."""

    members: Indices  # the caller's rows
    basis: Array  # U_i, (n_i, k_i)
    triangle: Array  # R_i, (k_i, k_i)


@dataclass(frozen=True, eq=False)
class Link:
    """A block of the core, and what was kept from exploding."""

    block: Array  # R_i L_ij R_jᵀ, (k_i, k_j)
    tamed: float = 0.0  # the Frobenius norm it would have had otherwise, 0 where nothing had to be done


def kept_pairs(distances: Array, drop: float) -> Iterator[tuple[int, int]]:
    """Yield the pairs (i, j), i < j, of clusters that stay coupled: all but the share ``drop`` of most distant ones."""
    left, right = np.triu_indices(len(distances), 1)
    n_dropped = int(np.floor(drop * len(left) + 1e-9))
    kept = np.argsort(distances[left, right], kind="stable")[: len(left) - n_dropped]
    kept.sort()
    yield from zip(left[kept].tolist(), right[kept].tolist(), strict=True)


def pairwise_link(objects: Any, left: Side, right: Side, evaluator: Evaluator, rng: np.random.Generator) -> Link:
    """Return the least-squares link on 3k sampled rows and columns (Eq. 5), tamed where it would explode.

    A direction of Q_i that the sample hardly meets has a small singular value, and its inverse multiplies whatever the
    basis cannot represent: with the paper's cut-off alone errors of 60 |K| were seen where 0.004 is possible. Two
    things the sample knows prevent that: how well it can be fitted, and how large the block is.
    """
    nothing = Link(np.zeros((left.basis.shape[1], right.basis.shape[1])))
    if nothing.block.size == 0:  # a cluster on which the kernel is zero has no basis
        return nothing
    samples = [_sample(side, rng) for side in (left, right)]
    chosen = [take(objects, side.members[rows]) for side, rows in zip((left, right), samples, strict=True)]
    block = evaluator.block(*chosen).astype(np.float64)
    peak = float(np.abs(block).max())
    if peak == 0.0:
        return nothing
    block /= peak  # squares of 1e200 would overflow
    (a, s, x), (b, t, y) = (_inverse(side, rows) for side, rows in zip((left, right), samples, strict=True))
    inner = a.T @ block @ b  # the block seen in both samples' singular vectors

    def ranks(cutoff: float) -> tuple[int, int]:
        return int((s > cutoff * s.max(initial=0.0)).sum()), int((t > cutoff * t.max(initial=0.0)).sum())

    squares = inner**2
    outside = float(np.linalg.norm(block - a @ inner @ b.T)) ** 2  # what no link explains

    def misfit(cutoff: float) -> float:
        p, q = ranks(cutoff)
        return float(np.sqrt(outside + squares[p:].sum() + squares[:p, q:].sum()))  # a and b are orthonormal

    def core(cutoff: float) -> Array:
        p, q = ranks(cutoff)
        return np.asarray(x[:, :p] @ inner[:p, :q] @ y[:, :q].T)

    def noise(cutoff: float) -> float:
        """What the inverses make of the misfit, were it spread evenly: an estimate of the error they add."""
        p, q = ranks(cutoff)
        spread = misfit(cutoff) / np.sqrt(max(1, block.size - p * q))
        return float(spread * np.linalg.norm(x[:, :p]) * np.linalg.norm(y[:, :q]))

    size = float(np.linalg.norm(block))
    enough = AS_GOOD * misfit(CUTOFFS[0]) + 1e-13 * size
    first = max(i for i, cutoff in enumerate(CUTOFFS) if misfit(cutoff) <= enough)
    limit = TOO_LARGE * size * np.sqrt(len(left.members) * len(right.members) / block.size)
    wild = 0.0
    for i in [first, *range(max(first + 4, SURE), len(CUTOFFS), 4)]:  # a decade at a time
        M = core(CUTOFFS[i])
        norm = float(np.linalg.norm(M))
        if norm <= limit or noise(CUTOFFS[i]) <= CLEAN * limit:
            return Link(peak * M, tamed=peak * wild)
        wild = wild or norm
    return Link(nothing.block, tamed=peak * wild)


def _inverse(side: Side, rows: Indices) -> tuple[Array, Array, Array]:
    """Return (a, s, x) with R_i pinv(Q_i[rows]) = x aᵀ; s are the singular values by which x's columns are cut.

    Where every row is sampled U_i is orthonormal on the sample and nothing is inverted, however weak its directions.
    """
    if len(rows) == len(side.members):
        k = side.basis.shape[1]
        return side.basis[rows].astype(np.float64), np.ones(k), np.eye(k)
    a, s, v = np.linalg.svd(side.basis[rows].astype(np.float64) @ side.triangle, full_matrices=False)
    kept = s > CUTOFFS[0] * s[0]
    return a[:, kept], s[kept], side.triangle @ (v[kept].T / s[kept])


def _sample(side: Side, rng: np.random.Generator) -> Indices:
    n, k = side.basis.shape
    return np.sort(rng.choice(n, min(n, PER_RANK * k), replace=False))
