"""Which pairs of clusters the shared coupling keeps: clusters in, the partners of each out.

A core of many clusters can take more room than the bases. Then only the strongest couplings are kept. Their strengths
are estimated from the similarities of the clusters' medoids.

A core with dropped blocks need not be psd. One whose blocks (i, j) are multiplied by w_ij is psd if W is (a Schur
product). For a psd kernel W is 1 within disjoint groups of clusters and 0 between them (`groups_of`). The core then
consists of principal submatrices of the whole one, one for each group, so that it is exactly psd. Groups hold 75 to
99 % of the energy that the strongest pairs hold (covtype, 500 and 2000 centres). The strongest pairs themselves, damped
by the smallest eigenvalue of W, hold 12 to 49 %; other weights that were tried hold less than groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy  # its cluster is loaded when it is first used: importing krein need not wait for it
from scipy.spatial.distance import squareform

from krein.approximation.clusters import Partition
from krein.approximation.request import Request
from krein.arrays import Array, Indices
from krein.errors import warn
from krein.factorization.factorization import DENSE_CORE
from krein.kernels import Evaluator, take
from krein.kernels.collections import precise

__all__ = ["coupling_strengths", "groups_of", "kept_couplings", "strengths_between"]

# Warn if the kept couplings hold less than this share of the energy of all couplings.
REPORTED_ENERGY = 0.9
# At most this many rounds of merges. Each starts where the last one lost the strengths to rounding; one or two suffice.
MAX_ROUNDS = 50


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


def kept_couplings(request: Request, clusters: Partition, ranks: Indices, strengths: Array) -> list[list[int]]:
    """Return for each cluster i those j, ascending and i among them, whose blocks (i, j) of the core are kept.

    A given ``drop`` sets the number of pairs. Otherwise all pairs are kept while the core is small or takes no more
    room than the bases, and beyond that as many as fit. A kernel that is declared psd keeps all pairs within groups of
    clusters (`groups_of`), any other keeps the strongest ones.
    """
    c = clusters.n_blocks
    left, right = np.triu_indices(c, 1)
    budget = len(left)
    widths: Indices = np.ones(c, dtype=np.intp)
    if request.drop is not None:
        budget -= math.floor(request.drop * budget + 1e-9)
    else:
        budget, widths = _affordable_entries(request, clusters, ranks), ranks
    if request.kernel.traits.psd is True:
        groups = groups_of(strengths, budget, widths.tolist())
        chosen = groups[left] == groups[right]
    else:
        order = np.argsort(-strengths[left, right], kind="stable")
        chosen = np.zeros(len(left), dtype=bool)
        chosen[order[np.cumsum((widths[left] * widths[right])[order]) <= budget]] = True
    energy = (strengths[left, right] / (strengths[left, right].max(initial=0.0) or 1.0)) ** 2
    share = float(energy[chosen].sum()) / (float(energy.sum()) or 1.0) if energy.any() else 1.0
    if request.drop is None and share < REPORTED_ENERGY:
        warn(
            f"All couplings of {c} blocks would take more room than the bases; those that were kept hold about "
            f"{100 * share:.3g} % of their energy, judged by the blocks' medoids. If a.error() is too large, ask for "
            "fewer blocks, less rank, or drop=0.0."
        )
    partners = [[i] for i in range(c)]
    for i, j in zip(left[chosen].tolist(), right[chosen].tolist(), strict=True):
        partners[i].append(j)
        partners[j].append(i)
    return [sorted(others) for others in partners]


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


def groups_of(strengths: Array, budget: int, widths: Sequence[int]) -> Indices:
    """Return the group of each cluster, where groups hold much coupling energy in at most ``budget`` entries.

    A pair of clusters costs the product of their ``widths``. The choice is greedy. Two groups are merged for the energy
    they gain per pair, the mean of the squared strengths between them, so that average linkage gives the order. A merge
    that exceeds the budget or gains nothing is left out. If all pairs fit, all are kept. O(c²) time and memory, under a
    second at c = 2000.
    """
    c = len(strengths)
    if (sum(widths) ** 2 - sum(k * k for k in widths)) // 2 <= budget:
        return np.zeros(c, dtype=np.intp)
    left = int(budget)
    labels: Indices = np.arange(c)
    for _ in range(MAX_ROUNDS):
        before = int(labels.max(initial=0))
        labels, left = _merge(strengths, labels, widths, left)
        if left == 0 or int(labels.max(initial=0)) == before:
            break
    return labels


def _merge(a: Array, labels: Indices, width: Sequence[int], left: int) -> tuple[Indices, int]:
    """One round of merges among the groups. Returns labels 0, 1, ... without gaps, and the rest of the budget."""
    between = np.where(labels[:, None] == labels, 0.0, a)
    peak = float(between.max(initial=0.0))
    if peak == 0.0:
        return labels, left
    between = np.square(between / peak)
    order = np.argsort(labels, kind="stable")
    count = np.bincount(labels)
    first = np.cumsum(count) - count
    mean = np.add.reduceat(np.add.reduceat(between[np.ix_(order, order)], first, axis=0), first, axis=1)
    mean /= np.outer(count, count)
    distance = 1.0 - np.minimum((mean + mean.T) / 2.0, 1.0)
    np.fill_diagonal(distance, 0.0)
    g = len(count)
    members = [*count.tolist(), *[0] * (g - 1)]  # 0: no group, or one that has gone into another
    rows = [*np.bincount(labels, weights=width).astype(np.intp).tolist(), *[0] * (g - 1)]
    target = np.arange(2 * g - 1)
    steps = (
        scipy.cluster.hierarchy.linkage(squareform(distance, checks=False), "average") if g > 1 else np.empty((0, 4))
    )
    for new, (i, j, height) in enumerate(zip(*steps[:, :2].T.astype(int).tolist(), steps[:, 2], strict=True), g):
        cost = rows[i] * rows[j]
        fits = members[i] and members[j] and cost <= left
        if height < 1.0 and fits:
            members[new], rows[new] = members[i] + members[j], rows[i] + rows[j]
            members[i] = members[j] = 0
            target[i] = target[j] = new
            left -= cost
    for k in range(2 * g - 2, -1, -1):  # a merged group has a higher number than its parts
        target[k] = target[target[k]]
    return np.unique(target[labels], return_inverse=True)[1], left
