"""coupling="shared": bases that look out of their cluster, and one sample per cluster for all of its blocks.

U_i spans the leading left singular vectors of k(X_i, Z_i), Z_i being landmarks of the cluster and of others. With rows
S_i of each cluster and P_i = pinv(U_i[S_i]), every block, the diagonal ones included, is M_ij = P_i k(S_i, S_j) P_jᵀ:
so M = P K_SS Pᵀ is psd whenever the kernel is (docs/method.md has the proof). Bases are built with more columns than
asked for; the core then tells which directions of each carry most, and only those are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import scipy.linalg

from krein.approximation.bases import LandmarkMap, right_divide
from krein.approximation.clusters import Partition
from krein.approximation.landmarks import choose_landmarks
from krein.approximation.request import Request
from krein.arrays import Array, Indices, stream
from krein.factorization.blocksparse import BlockSparse
from krein.factorization.core import congruent, row_grams
from krein.factorization.storage import orthonormalise
from krein.kernels import Evaluator, take
from krein.kernels.collections import is_sparse

__all__ = ["Draft", "Effort", "couple", "strengths"]

GENEROUS = 1024  # a core of so many rows is cheap, and each block may be looked at more closely
LEAN = 128  # beyond so many blocks each gets less: they are small, and there are many
ROWS_TRIED = 4  # rows per landmark from which the leading directions are taken
EXTRA = 8  # columns of the random start beyond the rank
ROUNDS = {np.dtype(np.float64): 2, np.dtype(np.float32): 1}  # of subspace iteration
AFFORDABLE = 0.8  # of the n² similarities: landmarks of other clusters are fewer where all would be more than that
CANDIDATES = 16  # rows per rank among which pivots are sought
EVERYWHERE = 0.25  # share of the outside landmarks drawn by cluster size alone
WELL_SEEN = 1e-3  # where all directions are met this well, the normal equations lose nothing that matters
UNSEEN = 1e-6  # a direction that the sampled rows meet less than this, against the best met one, is not fitted
CUTOFF = {np.dtype(np.float64): 1e-13, np.dtype(np.float32): 3e-6}  # singular values below are rounding


@dataclass(frozen=True)
class Effort:
    """How much is spent on a cluster of rank k: more columns and landmarks where they are cheap."""

    columns: int  # of the basis, before the best ``rank`` directions are kept
    own: int  # landmarks of the cluster
    outside: int  # landmarks of others
    sampled: float  # rows in S_i per column

    @classmethod
    def of(cls, rank: int, size: int, n_blocks: int, n: int) -> Effort:
        """For one of ``n_blocks`` clusters, of ``size`` rows among n: generous while the core is small."""
        if n_blocks * rank <= GENEROUS:
            columns = rank + min(rank, 96 + rank // 4)
            own, outside, least = max(3 * rank, min(4 * rank, 64)), max(5 * rank, 64), 3.0
        elif n_blocks <= LEAN:
            columns, own, outside, least = rank + max(16, rank // 2), 3 * rank, 3 * rank, 2.5
        else:
            columns, own, outside, least = rank, 2 * rank, 2 * rank, 2.5
        outside = 0 if n_blocks == 1 else outside
        if n_blocks > LEAN:
            own, outside = (min(m, max(columns, size // 2)) for m in (own, outside))  # so few rows have no more to say
        affordable = math.sqrt(4.0 * n * (own + outside)) / (n_blocks * columns)  # K_SS costs twice the bases at most
        sampled = min(10.0, max(least, affordable))
        limit, bases = AFFORDABLE * n * n, n * (min(own, size) + min(outside, n - size))
        most = math.sqrt(2.0 * max(0.0, limit - bases)) / (n_blocks * columns)  # half of K_SS is evaluated
        sampled = max(least, min(sampled, most))
        own_too = min(own, sampled * columns) < size  # k(S_i, S_i) is evaluated beside k(X_i, Z_i)
        rows = min(float(n), n_blocks * min(size, sampled * columns))
        coupled = rows**2 / 2.0 * (1.0 + (1.0 if own_too else -1.0) / n_blocks)
        return cls(columns, own, min(outside, max(0, int((limit - coupled) / n) - min(own, size))), sampled)


@dataclass(frozen=True, eq=False)
class Outlook:
    """One cluster's basis, the map that extends it, and the sample that couples it to everything."""

    basis: Array  # U_i, (n_i, k_i)
    extension: LandmarkMap
    sample: Indices  # S_i, the caller's rows
    inverse: Array  # P_i, (k_i, |S_i|)
    block: Array | None = None  # M_ii, where k(S_i, S_i) was evaluated for the basis already


@dataclass(eq=False)
class Draft:
    """Bases with more directions than will be kept, and their core. `finished` uses it up."""

    bases: list[Any]  # U_i, (n_i, columns)
    maps: list[LandmarkMap]
    core: BlockSparse

    @cached_property
    def _order(self) -> tuple[list[Array], list[Array]]:
        """(V_i, energies): per block the directions that carry most of its row of the core, strongest first."""
        pairs = [np.linalg.eigh(G) for G in row_grams(self.core, self.core.ranks)]
        return [vectors[:, ::-1] for _, vectors in pairs], [np.maximum(values[::-1], 0.0) for values, _ in pairs]

    @property
    def energies(self) -> list[Array]:
        """Per block and direction, strongest first: the squared norm of its row of the core."""
        return self._order[1]

    def squares(self) -> Iterator[tuple[int, int, Array]]:
        """Yield (i, j, squared entries of the core over its peak), each block's strongest direction first."""
        V = self._order[0]
        for i, j, block in self.core.blocks():
            yield i, j, (V[i].T @ (block / self.core.peak) @ V[j]) ** 2

    def finished(self, ranks: Sequence[int], ordered: bool = False) -> tuple[list[Any], list[LandmarkMap], BlockSparse]:
        """The ``ranks[i]`` strongest directions of each block, and the core seen in them: psd if this is.

        Strongest first, if ``ordered`` or any is left out. Empties the draft as it goes, so that no more than one block
        is held twice.
        """
        core, bases, maps = self.core, self.bases, self.maps
        if ordered or any(k < columns for k, columns in zip(ranks, core.ranks, strict=True)):
            kept = [V[:, : int(k)] for V, k in zip(self._order[0], ranks, strict=True)]
            for i, V in enumerate(kept):
                bases[i] = bases[i] @ V.astype(bases[i].dtype)
                maps[i] = replace(maps[i], transform=maps[i].transform @ V)
            core = cast(BlockSparse, congruent(core, [V.T for V in kept], core.ranks))
        self.__dict__.clear()
        return bases, maps, core


def strengths(plan: Request, clusters: Partition, evaluator: Evaluator) -> Array:
    """How strongly clusters are coupled, (c, c): |k| between their medoids, times sqrt(n_i n_j) for |K_ij|_F."""
    if clusters.embedding is None:
        medoids = clusters.medoids(evaluator, plan.objects)
    else:  # to place all objects again would cost as much as clustering them
        medoids = clusters.order[(clusters.starts[:-1] + clusters.starts[1:]) // 2]
    between = np.abs(evaluator.symmetric(take(plan.objects, medoids)))
    weight = np.sqrt(clusters.sizes)
    return np.asarray(between.astype(np.float64) / (float(between.max()) or 1.0) * weight[:, None] * weight)


def couple(
    plan: Request, clusters: Partition, ranks: Indices, weights: dict[tuple[int, int], float], force: Array,
    evaluator: Evaluator,
) -> Draft:  # fmt: skip
    """Bases, samples and the core's blocks (i, j) of ``weights``, i <= j, each times its weight."""
    c, n = clusters.n_blocks, plan.n
    efforts = [Effort.of(int(k), int(size), c, n) for k, size in zip(ranks, clusters.sizes, strict=True)]
    jobs = [(i,) for i in range(c)]

    def own(i: int) -> Indices:
        places = None if clusters.embedding is None else lambda some: clusters.places(evaluator, some)
        members, rng = clusters.members(i), stream(plan.seed, 1, i)
        return choose_landmarks(plan.objects, members, efforts[i].own, plan.landmarks, evaluator, rng, places)

    pools = plan.each(own, jobs, "landmarks")
    partners = _partners(weights, c)

    def basis(i: int) -> Outlook:
        rng = stream(plan.seed, 5, i)
        outside = _outside(pools, i, partners[i], force[i], clusters.sizes, efforts[i].outside, rng)
        rows = np.concatenate([pools[i], outside])
        return _outlook(plan, clusters.members(i), rows, efforts[i], evaluator, rng)

    outlooks = plan.each(basis, jobs, "bases")

    def strip(i: int) -> dict[tuple[int, int], Array]:
        return _strip(plan.objects, outlooks, i, [j for j in partners[i] if j >= i], weights, evaluator)

    blocks: dict[tuple[int, int], Array] = {}
    for found in plan.each(strip, jobs, "core"):
        blocks |= found
    bases, maps = [o.basis for o in outlooks], [o.extension for o in outlooks]
    core = BlockSparse.from_blocks([U.shape[1] for U in bases], blocks)
    return Draft(bases, maps, core)


def _partners(weights: dict[tuple[int, int], float], c: int) -> list[list[int]]:
    """The clusters that each one is coupled to, itself included."""
    found: list[list[int]] = [[] for _ in range(c)]
    for i, j in weights:
        found[i].append(j)
        if i != j:
            found[j].append(i)
    return found


def _outside(
    pools: list[Indices], i: int, partners: list[int], force: Array, sizes: Indices, count: int,
    rng: np.random.Generator,
) -> Indices:  # fmt: skip
    """Landmarks of other clusters: those this one is coupled to, the more the stronger."""
    others = np.array([j for j in partners if j != i], dtype=np.intp)
    if len(others) == 0 or count == 0:
        return np.empty(0, dtype=np.intp)
    energy = force[others] ** 2 + np.finfo(float).tiny
    share = (1.0 - EVERYWHERE) * energy / energy.sum() + EVERYWHERE * sizes[others] / sizes[others].sum()
    counts = rng.multinomial(count, share / share.sum())
    drawn = [
        rng.choice(pools[j], min(int(m), len(pools[j])), replace=False)
        for j, m in zip(others.tolist(), counts, strict=True)
        if m
    ]
    return np.concatenate(drawn)


def _outlook(
    plan: Request, members: Indices, rows: Indices, effort: Effort, evaluator: Evaluator, rng: np.random.Generator
) -> Outlook:
    """U_i, its map, S_i and P_i. Each member is compared with each landmark once."""
    objects, n = plan.objects, len(members)
    landmarks = take(objects, rows)
    own = evaluator.own(landmarks)
    n_tried = ROWS_TRIED * len(rows)
    tried = np.sort(rng.choice(n, n_tried, replace=False)) if n_tried < n else np.arange(n)
    first = evaluator.cross(take(objects, members[tried]), landmarks, own)
    transform = _leading(first, min(effort.columns, n), rng)
    right = transform.astype(first.dtype)
    Q: Array = np.empty((n, right.shape[1]), dtype=plan.working, order="F")
    Q[tried] = first @ right
    usual = _longest(first)
    rest = np.ones(n, dtype=bool)
    rest[tried] = False
    others = np.flatnonzero(rest)
    step = max(1, evaluator.chunk_entries // max(1, len(rows)))
    for start in range(0, len(others), step):
        part = others[start : start + step]
        Q[part] = evaluator.cross(take(objects, members[part]), landmarks, own) @ right
    U, R = orthonormalise(Q)
    extension = LandmarkMap(landmarks, rows, right_divide(transform, R.astype(np.float64)), own, usual)
    spots = _sample(U, math.ceil(effort.sampled * U.shape[1]), rng)
    inverse, block = _inverse(U[spots].astype(np.float64)), None
    if len(tried) == len(spots) == n and first.dtype == np.float64 and np.array_equal(rows[:n], members):
        block = inverse @ first[:, :n] @ inverse.T  # every member is a landmark and in the sample
    return Outlook(U, extension, members[spots], inverse, block)


def _longest(block: Array) -> float:
    peak = float(np.abs(block).max(initial=0.0)) or 1.0
    return peak * math.sqrt(float(((block / peak) ** 2).sum(1).max(initial=0.0)))


def _leading(A: Array, rank: int, rng: np.random.Generator) -> Array:
    """T (l, k) such that A T is orthonormal and spans A's k <= ``rank`` leading left singular vectors.

    Subspace iteration from a random start where that saves work: the directions are weighed again once the core is
    known. The last step squares what is float32, whose rounding is larger than what squaring loses in float64.
    """
    peak = float(np.abs(A).max(initial=0.0))
    if peak == 0.0 or rank == 0:
        return np.zeros((A.shape[1], 0))
    B = A / A.dtype.type(peak)
    start = None
    if 2 * (rank + EXTRA) <= min(A.shape):
        start = rng.standard_normal((A.shape[1], rank + EXTRA)).astype(A.dtype)
        for _ in range(ROUNDS[A.dtype]):
            start = np.linalg.qr(B.T @ np.linalg.qr(B @ start)[0])[0]
        B = B @ start
    if A.dtype == np.float32:
        B = B.astype(np.float64)
        values, vectors = np.linalg.eigh(B.T @ B)
        s, v = np.sqrt(np.maximum(values[::-1], 0.0)), vectors[:, ::-1]
    else:
        _, s, vt = np.linalg.svd(np.linalg.qr(B, mode="r"), full_matrices=False)  # the left factor is not needed
        v = vt.T
    k = min(rank, int((s > CUTOFF[A.dtype] * s[0]).sum()))
    T = v[:, :k] / (peak * s[:k])
    return np.asarray(T if start is None else start @ T)


def _sample(U: Array, count: int, rng: np.random.Generator) -> Indices:
    """Rows that see every direction: pivots of U's rows, and random ones to ``count`` in all."""
    n, k = U.shape
    if count >= n or k == 0:
        return np.arange(min(count, n))
    spots = np.arange(n)
    if n > CANDIDATES * k:
        weight = np.einsum("ij,ij->i", U, U).astype(np.float64) + 1e-9 * k / n
        spots = rng.choice(n, CANDIDATES * k, replace=False, p=weight / weight.sum())
    pivots = spots[scipy.linalg.qr(U[spots].T, mode="r", pivoting=True, check_finite=False)[1][:k]]
    left = np.ones(n, dtype=bool)
    left[pivots] = False
    return np.sort(np.concatenate([pivots, rng.choice(np.flatnonzero(left), count - k, replace=False)]))


def _inverse(rows: Array) -> Array:
    """pinv of the sampled rows of U; a direction they hardly meet is left out rather than blown up."""
    if rows.size == 0:
        return rows.T
    factor, failed = scipy.linalg.lapack.dpotrf(rows.T @ rows)
    size = np.diagonal(factor)
    if not failed and size.min() > WELL_SEEN * size.max():
        return np.asarray(scipy.linalg.cho_solve((factor, False), rows.T, check_finite=False))
    u, s, vt = np.linalg.svd(rows, full_matrices=False)
    kept = s > UNSEEN * s.max(initial=0.0)
    return np.asarray((vt[kept].T / s[kept]) @ u[:, kept].T)


def _strip(
    objects: Any, outlooks: list[Outlook], i: int, columns: list[int], weights: dict[tuple[int, int], float],
    evaluator: Evaluator,
) -> dict[tuple[int, int], Array]:  # fmt: skip
    """The core's blocks (i, j) for j in ``columns``. Kernel values in float64: what rounding adds need not be psd."""
    left = precise(take(objects, outlooks[i].sample))
    out: dict[tuple[int, int], Array] = {}
    if (known := outlooks[i].block) is not None and i in columns:
        out[i, i] = weights[i, i] * (known + known.T) / 2.0
        columns = [j for j in columns if j != i]
    limit = evaluator.chunk_entries // max(1, len(outlooks[i].sample))
    for some in _batches([len(outlooks[j].sample) for j in columns], limit):
        chosen = columns[some]
        rows = np.concatenate([outlooks[j].sample for j in chosen])
        half = outlooks[i].inverse @ evaluator.block(left, precise(take(objects, rows)))
        start = 0
        for j in chosen:
            stop = start + len(outlooks[j].sample)
            block = weights[i, j] * (half[:, start:stop] @ outlooks[j].inverse.T)
            out[i, j] = (block + block.T) / 2.0 if i == j else block
            start = stop
    return out


def _batches(sizes: list[int], limit: int) -> Iterator[slice]:
    """Runs of columns of at most ``limit`` rows together, or one."""
    start, held = 0, 0
    for stop, size in enumerate(sizes):
        if held and held + size > limit:
            yield slice(start, stop)
            start, held = stop, 0
        held += size
    if start < len(sizes):
        yield slice(start, len(sizes))


def precise(objects: Any) -> Any:
    """Vectors in float64; other objects as they are."""
    if (isinstance(objects, np.ndarray) or is_sparse(objects)) and objects.dtype == np.float32:
        return objects.astype(np.float64)
    return objects
