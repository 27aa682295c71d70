"""Which pairs of clusters the shared coupling keeps: clusters in, weights of the core's blocks out.

A core of many clusters can take more room than the bases. Then only the strongest couplings are kept. Their strengths
are estimated from the similarities of the clusters' medoids.

A core with dropped blocks need not be psd. One whose blocks (i, j) are multiplied by w_ij is psd if W is (a Schur
product). For a psd kernel W is 1 within disjoint groups of clusters and 0 between them (`taper`). The tapered core then
consists of principal submatrices of the whole one, one for each group, so that it is exactly psd. Groups hold 75 to
99 % of the energy that the strongest pairs hold (covtype, 500 and 2000 centres). The strongest pairs themselves, damped
by the smallest eigenvalue of W, hold 12 to 49 %; other weights that were tried hold less than groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its cluster is loaded when it is first used: importing krein need not wait for it
from scipy.spatial.distance import squareform

from krein.approximation.clusters import Partition
from krein.approximation.request import Request
from krein.arrays import Array, Indices
from krein.errors import InputError, warn, whole_number
from krein.factorization.factorization import DENSE_CORE
from krein.kernels import Evaluator, take
from krein.kernels.collections import precise

__all__ = ["Taper", "coupling_strengths", "kept_couplings", "strengths_between", "taper"]

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


# At most this many rounds of merges. Each starts where the last one lost the strengths to rounding; one or two suffice.
MAX_ROUNDS = 50


@dataclass(frozen=True, eq=False)
class Taper:
    """The kept pairs and their weights; ``groups[i]`` is the group of cluster i."""

    left: Indices  # (m,), left < right, in order
    right: Indices  # (m,)
    weights: Array  # (m,)
    groups: Indices  # (c,), numbered as they first appear

    @property
    def n_groups(self) -> int:
        return int(self.groups.max(initial=-1)) + 1

    def to_dense(self) -> Array:
        """W, (c, c): psd, with a unit diagonal."""
        W = np.eye(len(self.groups))
        W[self.left, self.right] = W[self.right, self.left] = self.weights
        return W

    def captured(self, strengths: Array) -> float:
        """The kept share of the energy, 1 - sum (1 - w_ij)² a_ij² / sum a_ij² over i < j; 1 if there is none."""
        a = np.triu(np.asarray(strengths, dtype=np.float64), 1)
        a = a / (a.max(initial=0.0) or 1.0)
        energy = a[self.left, self.right] ** 2
        total = float((a**2).sum())
        return float((energy * (1.0 - (1.0 - self.weights) ** 2)).sum()) / total if total else 1.0


def taper(strengths: Any, budget: int, ranks: Sequence[int] | None = None, largest: int | None = None) -> Taper:
    """Choose groups of clusters with much coupling energy and at most ``budget`` pairs.

    The choice is greedy. Two groups are merged for the energy they gain per pair, the mean of a_ij² between them, so
    that average linkage gives the order. A merge that exceeds the budget or gains nothing is left out. If all pairs
    fit, all are kept. O(c²) time and memory, under a second at c = 2000.

    Parameters
    ----------
    strengths : array of shape (c, c)
        a_ij >= 0, symmetric: the expected |K_ij| in any unit. The diagonal is ignored.
    budget : int
        The number of pairs that may be kept. With ``ranks``, the number of entries of the core: a pair costs k_i k_j.
    ranks : sequence of int, optional
        The rank of each cluster.
    largest : int, optional
        No group has more clusters than this.
    """
    a = _check_strengths(strengths)
    c = len(a)
    whole_number("budget", budget, 0)
    if largest is not None:
        whole_number("largest", largest, 1)
    most = c if largest is None else int(largest)
    if ranks is not None and (len(ranks) != c or min(ranks, default=0) < 0):
        raise InputError(f"ranks must be {c} numbers of at least 0, one per cluster; got {len(ranks)}.")
    width = [1] * c if ranks is None else [int(k) for k in ranks]
    if c <= most and (sum(width) ** 2 - sum(k * k for k in width)) // 2 <= budget:
        return _of(np.zeros(c, dtype=np.intp))
    labels: Indices = np.arange(c)
    left = int(budget)
    for _ in range(MAX_ROUNDS):
        before = int(labels.max(initial=0))
        labels, left = _merge(a, labels, width, left, most)
        if left == 0 or int(labels.max(initial=0)) == before:
            break
    return _of(labels)


def _check_strengths(strengths: Any) -> Array:
    a = np.array(strengths, dtype=np.float64)  # a copy: its diagonal is about to go
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise InputError(f"strengths must be a square matrix, one row per cluster; got shape {a.shape}.")
    np.fill_diagonal(a, 0.0)
    if not np.isfinite(a).all() or a.min(initial=0.0) < 0.0:
        raise InputError(f"strengths must be finite and not negative; the smallest is {a.min(initial=0.0):.3g}.")
    gap = float(np.abs(a - a.T).max(initial=0.0))
    if gap > 1e-8 * a.max(initial=0.0):
        raise InputError(f"strengths must be symmetric; the largest |a_ij - a_ji| is {gap:.3g}. Pass (a + a.T) / 2.")
    return a


def _merge(a: Array, labels: Indices, width: Sequence[int], left: int, most: int) -> tuple[Indices, int]:
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
        fits = members[i] and members[j] and members[i] + members[j] <= most and cost <= left
        if height < 1.0 and fits:
            members[new], rows[new] = members[i] + members[j], rows[i] + rows[j]
            members[i] = members[j] = 0
            target[i] = target[j] = new
            left -= cost
    for k in range(2 * g - 2, -1, -1):  # a merged group has a higher number than its parts
        target[k] = target[target[k]]
    return np.unique(target[labels], return_inverse=True)[1], left


def _of(labels: Indices) -> Taper:
    """The taper that is 1 within groups."""
    c = len(labels)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    groups = np.argsort(np.argsort(first))[inverse]
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(groups))[:-1]) if c else []
    pairs = [np.stack(np.triu_indices(len(p), 1)) for p in parts]
    left, right = np.concatenate(
        [np.empty((2, 0), dtype=np.intp), *(p[at] for p, at in zip(parts, pairs, strict=True))], axis=1
    )
    sort = np.lexsort((right, left))
    return Taper(left[sort], right[sort], np.ones(len(left)), groups)
