"""Which pairs of clusters the shared coupling keeps: clusters in, weights of the core's blocks out.

A core of many clusters can take more room than the bases. Then only the strongest couplings are kept. Their strengths
are estimated from the similarities of the clusters' medoids. For a psd kernel the kept couplings are tapered, so that
the core stays psd.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from krein.approximation.clusters import Partition
from krein.approximation.request import Request
from krein.approximation.taper import taper
from krein.arrays import Array, Indices
from krein.errors import warn
from krein.factorization.factorization import DENSE_CORE
from krein.kernels import Evaluator, take
from krein.kernels.collections import precise

__all__ = ["coupling_strengths", "kept_couplings", "strengths_between"]

# Warn if the kept couplings hold less than this share of the energy of all couplings.
REPORTED_ENERGY = 0.9


def coupling_strengths(request: Request, clusters: Partition, evaluator: Evaluator) -> Array:
    """Estimate |K_ij|_F up to a factor, (c, c): |k| between the medoids of clusters i and j, times sqrt(n_i n_j)."""
    if clusters.embedding is None:
        medoids = clusters.medoids(evaluator, request.objects)
    else:  # embedding all objects again would cost as much as clustering them
        medoids = clusters.order[(clusters.starts[:-1] + clusters.starts[1:]) // 2]
    return strengths_between(take(request.objects, medoids), clusters.sizes, evaluator)


def strengths_between(medoids: Any, sizes: Indices, evaluator: Evaluator) -> Array:
    """The same from the medoids themselves."""
    between = np.abs(evaluator.symmetric(precise(medoids)))
    weight = np.sqrt(sizes)
    return np.asarray(between.astype(np.float64) / (float(between.max()) or 1.0) * weight[:, None] * weight)


def kept_couplings(
    request: Request, clusters: Partition, ranks: Indices, strengths: Array
) -> dict[tuple[int, int], float]:
    """Return the blocks (i, j), i <= j, of the core that are kept, and the weight of each.

    A given ``drop`` sets the number of pairs. Otherwise all pairs are kept while the core is small or takes no more
    room than the bases, and beyond that as many as fit. A kernel that is declared psd has its pairs chosen by `taper`,
    any other keeps the strongest ones.
    """
    c = clusters.n_blocks
    weights = {(i, i): 1.0 for i in range(c)}
    n_pairs = c * (c - 1) // 2
    if request.drop is not None:
        budget, cost = n_pairs - math.floor(request.drop * n_pairs + 1e-9), None
    else:
        budget, cost = _affordable_entries(request, clusters, ranks), ranks.tolist()
    if request.kernel.traits.psd is True:
        kept = taper(strengths, budget, cost)
        share = kept.captured(strengths)
        pairs = zip(kept.left.tolist(), kept.right.tolist(), kept.weights.tolist(), strict=True)
        weights |= {(i, j): w for i, j, w in pairs}
    else:
        left, right = np.triu_indices(c, 1)
        order = np.argsort(-strengths[left, right], kind="stable")
        room = np.cumsum(np.ones(n_pairs) if cost is None else (ranks[left] * ranks[right])[order])
        chosen = np.sort(order[room <= budget])
        total, held = (float((strengths[left[some], right[some]] ** 2).sum()) for some in (slice(None), chosen))
        share = held / total if total else 1.0
        weights |= dict.fromkeys(zip(left[chosen].tolist(), right[chosen].tolist(), strict=True), 1.0)
    if request.drop is None and share < REPORTED_ENERGY:
        warn(
            f"All couplings of {c} blocks would take more room than the bases; those that were kept hold about "
            f"{100 * share:.3g} % of their energy, judged by the blocks' medoids. If a.error() is too large, ask for "
            "fewer blocks, less rank, or drop=0.0."
        )
    return weights


def _affordable_entries(request: Request, clusters: Partition, ranks: Indices) -> int:
    """The number of entries that the kept blocks above the diagonal of the core may have.

    All are affordable if the core has at most DENSE_CORE rows or takes no more bytes than the bases. Otherwise the core
    may have as many bytes as the bases, or DENSE_CORE² entries if these are more.
    """
    total, diagonal = int(ranks.sum()), int((ranks**2).sum())
    everything = (total**2 - diagonal) // 2
    basis_bytes = int(clusters.sizes @ ranks) * np.dtype(request.storage).itemsize
    if total <= DENSE_CORE or 8 * total**2 <= basis_bytes:
        return everything
    return max(0, min(everything, max(basis_bytes // 8, DENSE_CORE**2) - diagonal))
