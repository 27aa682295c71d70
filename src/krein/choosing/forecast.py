"""A sample of the objects in, the best possible error over the rank out, for any number of blocks and all n rows.

For given clusters the best U_i are the leading left singular vectors of K[X_i, :], and with M = UᵀKU the squared error
is |K|² less the squares in M: on a sample of m rows that is the whole curve over the rank, for any number of blocks,
from the same m² similarities. A sample flatters (k directions fit m / c rows too well) and slanders (its diagonal
weighs n / m times too much), both in proportion to 1 / m: so the curve is taken on the sample and on its halves, and
continued to n rows along 1 / m. Ranks that are too many for the sample's blocks follow the curve of fewer blocks. The
clusters of all numbers of blocks are cut from one tree (Ward's): near enough to k-means, and made once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import scipy  # its cluster is loaded when it is first used: importing krein need not wait for it
import scipy.linalg

from krein.approximation.clusters import landmark_embedding, scale_of, scaled
from krein.arrays import Array, Indices, stream
from krein.kernels import Evaluator, Precomputed, is_vectors, take
from krein.kernels.collections import is_sparse

__all__ = ["LARGEST_CORE", "Curves", "Errors", "squared_errors"]

FEWEST = 16  # rows of the sample per block; more blocks than that allows follow the trend
PLACED = 16  # blocks that similarities without vectors are told apart for
PER_RANK = 4  # rows of the sample per block and rank; higher ranks follow the curve of fewer blocks
PER_RANK_ALONE = 8  # the same for a single block, whose curve continues well by itself
ROUNDED = 1e-15  # squares below this share of all are rounding
LARGEST_CORE = 8192  # rows of the core: its spectrum costs their cube
ZERO = 1e-8  # errors below are rounding: squares are known to some 1e-16
STEEPEST = -0.12  # how fast more blocks may gain on fewer as the rank grows beyond what was seen, in powers of it
ITERATE = 300  # blocks with more rows get their few leading directions by iteration: a third of the time, 0.2 % off


class Curves:
    """The best possible error over the rank for any number of blocks, forecast from a sample of the rows."""

    def __init__(
        self,
        objects: Any,
        evaluator: Evaluator,
        seed: int,
        n: int,
        size: int,
        before: Curves | None = None,
        known: Array | None = None,
    ) -> None:
        """``before``: the curves of a smaller sample, which those of this one may continue along.

        ``known``: the matrix of ``objects``, which are then the sample itself; nothing is evaluated.
        """
        vectors = is_vectors(objects)
        rng = stream(seed, 9, 0)
        self.n, self.m = n, min(n, size)
        if known is None:
            sample = take(objects, np.sort(rng.choice(n, self.m, replace=False)))
            self.K = evaluator.symmetric(sample).astype(np.float64)
        else:
            sample, self.K = objects, np.array(known, dtype=np.float64)
        self.K /= float(np.max(np.abs(self.K))) or 1.0  # squares of 1e-200 vanish
        mixed = rng.permutation(self.m)
        self.halves = np.sort(mixed[: self.m // 2]), np.sort(mixed[self.m // 2 :])
        if vectors:
            places = scaled(sample, scale_of(sample))
            places = np.asarray(places.toarray() if is_sparse(places) else places, dtype=np.float64)
        else:  # from the matrix that is already there: no similarity is evaluated twice
            inner = Evaluator(Precomputed(self.K), apart=True)
            places = landmark_embedding(np.arange(self.m), PLACED, inner, seed)(inner, np.arange(self.m))
        self.places = places - places.mean(0)  # fewer digits are lost
        self.known: dict[int, Array] = {}  # logarithms of errors, by the number of blocks
        self.before: dict[int, Array] = {} if before is None else before.before | before.known

    def errors(self, n_blocks: int, highest: int) -> tuple[Array, bool]:
        """The errors at rank 1 .. ``highest``, and whether so many blocks were seen or follow the trend."""
        most = max(1, self.m // FEWEST)
        if n_blocks <= most:
            curve, seen = self._logs(n_blocks), True
        else:
            few, many = self._logs(max(1, most // 3)), self._logs(most)
            steepness = np.minimum(0.0, many - few) / math.log(most / max(1, most // 3)) if most > 1 else 0.0
            curve, seen = many + steepness * math.log(n_blocks / most), False
        errors = np.exp(_filled(curve[:highest], highest))
        return np.where(errors <= 2.0 * ZERO, 0.0, errors), seen

    def _logs(self, n_blocks: int) -> Array:
        """Logarithms of the error at every rank from 1 to n: measured, then continued."""
        if n_blocks not in self.known:
            labels = self._labels(n_blocks)
            ranks = max(1, self.m // ((PER_RANK if n_blocks > 1 else PER_RANK_ALONE) * n_blocks))
            seen = 0.5 * np.log(np.maximum(self._measured(labels, ranks), ZERO**2))
            self.known[n_blocks] = self._continued(n_blocks, seen)
        return self.known[n_blocks]

    @cached_property
    def _tree(self) -> Array:
        squares = np.einsum("ij,ij->i", self.places, self.places)
        apart = squares[:, None] + squares - 2.0 * self.places @ self.places.T
        return np.asarray(scipy.cluster.hierarchy.ward(np.sqrt(np.maximum(apart[np.triu_indices(self.m, 1)], 0.0))))

    def _labels(self, n_blocks: int) -> Indices:
        if n_blocks == 1 or self.m == 1:
            return np.zeros(self.m, dtype=np.intp)
        return np.asarray(scipy.cluster.hierarchy.fcluster(self._tree, n_blocks, "maxclust"), dtype=np.intp)

    def _measured(self, labels: Indices, ranks: int) -> Array:
        """Squared errors for n rows at rank 1 .. ``ranks``.

        On the diagonal and off it they are means over rows and over pairs, so that the diagonal weighs what it does
        among n rows. What the sample flatters by goes with 1 / m: its halves do it twice as much, so the gap is added.
        """
        whole = self._among_n(squared_errors(self.K, labels, ranks))
        halves = [self._among_n(squared_errors(self.K[np.ix_(h, h)], labels[h], ranks)) for h in self.halves]
        gap = whole - 0.5 * (halves[0] + halves[1])
        extended = whole + np.maximum(gap, 0.0) * (1.0 - self.m / self.n)
        return np.asarray(np.minimum.accumulate(np.clip(extended, 0.0, 1.0)))

    def _among_n(self, found: Errors) -> Array:
        weight = 1.0 / self.n
        total = found.K_apart + weight * found.K_diagonal
        return (found.apart + weight * found.diagonal) / (total or 1.0)

    def _fewer(self, n_blocks: int) -> Array:
        """The curve of fewer blocks: the next that was seen, here or before."""
        known = self.before | self.known
        below = [c for c in known if c < n_blocks]
        return known[max(below)] if below else self._logs(1)

    def _continued(self, n_blocks: int, seen: Array) -> Array:
        last, floor = len(seen), math.log(ZERO)
        top = max(last, min(self.n, LARGEST_CORE))
        ranks = np.arange(last + 1, top + 1)
        half = max(1, last // 2)
        if seen[-1] <= floor + math.log(2.0):
            rest = np.full(len(ranks), floor)
        elif n_blocks == 1:  # a power law, and nothing left at rank n
            power = min(0.0, seen[-1] - seen[half - 1]) / math.log(last / half) if last > half else 0.0
            left = np.log(np.maximum(1.0 - ranks / self.n, ZERO**2) / (1.0 - last / self.n)) if last < self.n else 0.0
            rest = seen[-1] + power * np.log(ranks / last) + 0.5 * left
        else:
            fewer = self._fewer(n_blocks)
            ahead = seen - fewer[:last]
            power = (ahead[-1] - ahead[half - 1]) / math.log(last / half) if last >= 8 else 0.0
            rest = fewer[last:top] + ahead[-1] + np.clip(power, STEEPEST, 0.0) * np.log(ranks / last)
        return np.maximum(np.minimum.accumulate(np.concatenate([seen, rest])), floor)


@dataclass(frozen=True, eq=False)
class Errors:
    """Mean squares of K - U M Uᵀ at rank 1, 2, ..., and of K: of pairs of different rows, and on the diagonal."""

    apart: Array
    diagonal: Array
    K_apart: float
    K_diagonal: float


def squared_errors(K: Array, labels: Indices, ranks: int) -> Errors:
    """The errors at rank 1 .. ``ranks`` per block, U_i the leading left singular vectors of K[X_i, :], M = UᵀKU.

    K is symmetric, of any signature. One eigendecomposition per block serves all ranks: the captured squares at rank k
    are the sums of M_ij[:k, :k]² over all pairs of blocks.
    """
    m = len(K)
    blocks = [np.flatnonzero(labels == i) for i in np.unique(labels)]
    order = np.concatenate(blocks)
    K = K[np.ix_(order, order)] if len(blocks) > 1 else K
    ends = np.cumsum([len(b) for b in blocks])
    parts = [slice(end - len(b), end) for end, b in zip(ends, blocks, strict=True)]
    bases = [_leading(K[p], ranks) for p in parts]
    turned = np.zeros((m, len(parts), ranks))  # K U, each block's columns filled up with zeros
    for i, (p, U) in enumerate(zip(parts, bases, strict=True)):
        turned[:, i, : U.shape[1]] = K[:, p] @ U
    squares, left = np.zeros((ranks, ranks)), np.zeros(ranks)
    for i, (p, U) in enumerate(zip(parts, bases, strict=True)):
        k = U.shape[1]
        rows = U.T @ turned[p].reshape(len(U), -1)  # M's row of blocks
        squares[:k] += (rows**2).reshape(k, -1, ranks).sum(1)
        M = rows[:, i * ranks : i * ranks + k]
        # u_xᵀ M[:k, :k] u_x for all k at once: what the k-th row and column add
        added = U * (U @ (M * _twice_above(k)))
        off = ((K.diagonal()[p][:, None] - np.cumsum(added, 1)) ** 2).sum(0)
        left += _filled(off, ranks)
    total, diagonal = float(np.sum(K * K)), float(np.sum(K.diagonal() ** 2))
    every = np.maximum(total - np.diag(np.cumsum(np.cumsum(squares, 0), 1)), 0.0)
    every[every < ROUNDED * total] = 0.0
    pairs = max(1, m * (m - 1))
    return Errors(
        np.maximum(every - left, 0.0) / pairs, np.minimum(left, every) / m, (total - diagonal) / pairs, diagonal / m
    )


@lru_cache(maxsize=64)
def _twice_above(k: int) -> Array:
    """2 above the diagonal, 1 on it, 0 below."""
    return np.asarray(2.0 * np.triu(np.ones((k, k)), 1) + np.eye(k))


def _filled(curve: Array, size: int) -> Array:
    """``curve`` with its last number repeated; `numpy.pad` takes longer than all the rest of a small forecast."""
    if len(curve) >= size:
        return curve
    out = np.empty(size)
    out[: len(curve)], out[len(curve) :] = curve, curve[-1]
    return out


def _leading(A: Array, ranks: int) -> Array:
    """The leading left singular vectors of A, (len(A), at most ``ranks``)."""
    if len(A) <= ITERATE or len(A) < 4 * ranks:
        if len(A) < 64 or 2 * ranks > len(A):
            return np.linalg.eigh(A @ A.T)[1][:, ::-1][:, :ranks]
        wanted = (len(A) - ranks, len(A) - 1)
        return np.asarray(scipy.linalg.eigh(A @ A.T, subset_by_index=wanted, check_finite=False)[1][:, ::-1])
    Q = np.linalg.qr(A @ stream(0).standard_normal((A.shape[1], ranks + ranks // 2 + 8)))[0]
    for _ in range(2):
        Q = np.linalg.qr(A @ (A.T @ Q))[0]
    B = Q.T @ A
    return np.asarray(Q @ np.linalg.eigh(B @ B.T)[1][:, ::-1][:, :ranks])
