"""coupling="shared": one sample per cluster couples it to every other, so that a psd kernel gives a psd core.

The basis U_i spans the leading left singular vectors of k(X_i, Z_i), where Z_i are landmarks of cluster i and of
others. With sampled rows S_i of each cluster and P_i = pinv(U_i[S_i]), every block of the core, the diagonal ones
included, is M_ij = P_i k(S_i, S_j) P_jᵀ. So M = P K_SS Pᵀ is psd whenever the kernel is (docs/method.md has the proof).
`draft` builds bases with more columns than were asked for. The core shows which directions carry most, `strongest`
keeps those, and `finish` stores the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from krein.approximation.bases import LandmarkMap, allocate, choose_landmarks, other_rows, right_divide
from krein.approximation.clusters import Partition
from krein.approximation.couplings import coupling_strengths, kept_couplings
from krein.approximation.request import Parts, Request, limited, store
from krein.approximation.shrinkage import shrunk
from krein.arrays import Array, Indices, stream
from krein.errors import warn
from krein.factorization.bases import orthonormal_columns, orthonormalise, rounded_product
from krein.factorization.core import BlockSparse, row_grams
from krein.kernels import Evaluator, take
from krein.kernels.collections import precise

__all__ = [
    "CANDIDATES_PER_RANK",
    "Draft",
    "Effort",
    "SampledBasis",
    "core_strip",
    "couple_by_samples",
    "draft",
    "draft_ranks",
    "draw_sample",
    "finish",
    "inverse_of",
    "leading",
    "longest",
    "outside_landmarks",
    "ranks_of",
    "sample_keys",
    "sample_places",
    "smallest",
    "strongest",
    "tried_places",
]  # fmt: skip

# A core of up to SMALL_CORE rows is cheap. Each cluster then gets more columns, landmarks and sampled rows.
SMALL_CORE = 1024
# If there are more than MANY_BLOCKS clusters, these are small, and each gets no more columns than its rank.
MANY_BLOCKS = 128
# Up to WHOLE_SAMPLE times as many rows as its rank, a cluster that is coupled to no other is sampled whole.
WHOLE_SAMPLE = 4
# Columns whose condition number is below this one are a basis as they are. Weak directions are left out of others.
WELL_CONDITIONED = 1e9
# With allocation="spectral" a draft has SPECTRAL_RANK times the mean rank in each cluster, of which the best are kept.
SPECTRAL_RANK = 1.5
# The leading directions of a cluster are computed from ROWS_PER_LANDMARK rows for each landmark.
ROWS_PER_LANDMARK = 4
# Subspace iteration starts with this many random columns beyond the rank.
OVERSAMPLING = 8
# The number of subspace iterations for each type.
SUBSPACE_ITERATIONS = {np.dtype(np.float64): 2, np.dtype(np.float32): 1}
# Landmarks of other clusters are left out where more than this share of the n² similarities would be evaluated.
MAX_EVALUATED_SHARE = 0.8
# The pivot rows of a basis of rank k are sought among CANDIDATES_PER_RANK * k rows.
CANDIDATES_PER_RANK = 16
# This share of the landmarks of other clusters is drawn by cluster size, the rest by coupling strength.
DRAWN_BY_SIZE = 0.25
# The normal equations of the sampled rows are solved if no Cholesky pivot is below this share of the largest.
LEAST_PIVOT = 1e-3
# Otherwise singular values below this share of the largest are not inverted.
INVERSE_CUTOFF = 1e-6
# Singular values of k(X_i, Z_i) below this share of the largest are rounding.
SINGULAR_CUTOFF = {np.dtype(np.float64): 1e-13, np.dtype(np.float32): 3e-6}


def couple_by_samples(request: Request, clusters: Partition, evaluator: Evaluator) -> Parts:
    """Approximate several blocks, or one block of an indefinite kernel."""
    ranks = draft_ranks(request, clusters)
    found = draft(request, clusters, ranks, evaluator)
    found = strongest(found, ranks_of(request, clusters, ranks, found))
    return finish(request, clusters, found, evaluator)


def ranks_of(request: Request, clusters: Partition, ranks: Indices, found: Draft) -> list[int]:
    """The ranks to keep of a draft: ``ranks``, or those that follow its own spectrum."""
    if request.allocation != "spectral":
        return [int(k) for k in ranks]
    counts = np.array([len(e) for e in found.energies])
    return [int(k) for k in allocate(request.rank_sum(clusters.n_blocks), counts, "spectral", found.energies)]


def draft_ranks(request: Request, clusters: Partition) -> Indices:
    """The rank of each cluster in the draft."""
    if request.allocation != "spectral":
        return request.given_ranks(clusters.sizes)
    total = request.rank_sum(clusters.n_blocks)
    return np.minimum(math.ceil(SPECTRAL_RANK * total / clusters.n_blocks), clusters.sizes)


@dataclass(frozen=True)
class Effort:
    """What is spent on a cluster of a given rank."""

    columns: int  # of the basis, before the strongest directions are kept
    own: int  # landmarks of the cluster
    outside: int  # landmarks of other clusters
    sampled: float  # rows in S_i per column

    @classmethod
    def of(cls, rank: int, size: int, n_blocks: int, n: int, is_coupled: bool = True) -> Effort:
        """For one of ``n_blocks`` clusters that has ``size`` of the n rows; more is spent while the core is small.

        A small cluster that is coupled to no other is sampled whole, and its basis has a column for each landmark.
        """
        if n_blocks > MANY_BLOCKS and not is_coupled:
            own = min(2 * rank, max(rank, size // 2))
            return cls(own, own, 0, max(2.5, size / own if size <= WHOLE_SAMPLE * rank else 0.0))
        if n_blocks * rank <= SMALL_CORE:
            columns = rank + min(rank, 96 + rank // 4)
            own, outside, least = max(3 * rank, min(4 * rank, 64)), max(5 * rank, 64), 3.0
        elif n_blocks <= MANY_BLOCKS:
            columns, own, outside, least = rank + max(16, rank // 2), 3 * rank, 3 * rank, 2.5
        else:
            columns, own, outside, least = rank, 2 * rank, 2 * rank, 2.5
        outside = 0 if n_blocks == 1 else outside
        if n_blocks > MANY_BLOCKS:  # more landmarks than half the rows of a small cluster add little
            own, outside = (min(m, max(columns, size // 2)) for m in (own, outside))
        affordable = math.sqrt(4.0 * n * (own + outside)) / (n_blocks * columns)  # K_SS costs twice the bases at most
        sampled = min(10.0, max(least, affordable))
        limit, bases = MAX_EVALUATED_SHARE * n * n, n * (min(own, size) + min(outside, n - size))
        most = math.sqrt(2.0 * max(0.0, limit - bases)) / (n_blocks * columns)  # half of K_SS is evaluated
        sampled = max(least, min(sampled, most))
        own_too = min(own, sampled * columns) < size  # k(S_i, S_i) is evaluated beside k(X_i, Z_i)
        rows = min(float(n), n_blocks * min(size, sampled * columns))
        coupled = rows**2 / 2.0 * (1.0 + (1.0 if own_too else -1.0) / n_blocks)
        return cls(columns, own, min(outside, max(0, int((limit - coupled) / n) - min(own, size))), sampled)


@dataclass(frozen=True, eq=False)
class SampledBasis:
    """The basis of one cluster, the map that extends it, and the sample that couples it to all clusters."""

    basis: Array  # U_i, (n_i, k_i)
    extension: LandmarkMap
    sample: Indices  # S_i, the caller's rows
    inverse: Array  # P_i, (k_i, |S_i|)
    block: Array | None = None  # M_ii, if k(S_i, S_i) was evaluated for the basis already


# -- drafts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Draft:
    """Bases that may have more directions than will be kept, their maps and their core."""

    bases: list[Any]  # U_i, (n_i, columns)
    maps: list[LandmarkMap]
    core: BlockSparse

    @cached_property
    def _grams(self) -> list[Array]:
        return row_grams(self.core, self.core.ranks)

    @cached_property
    def _found(self) -> dict[int, tuple[Array, Array]]:
        return {}

    def _eigenpairs(self, i: int) -> tuple[Array, Array]:
        if i not in self._found:
            self._found[i] = np.linalg.eigh(self._grams[i])
        return self._found[i]

    def direction(self, i: int) -> Array:
        """The orthogonal V_i whose columns are the directions of block i, strongest first."""
        return self._eigenpairs(i)[1][:, ::-1]

    @property
    def energies(self) -> list[Array]:
        """For each block and direction, strongest first, the squared norm of its row of the core."""
        return [np.maximum(self._eigenpairs(i)[0][::-1], 0.0) for i in range(len(self.core.ranks))]

    def squares(self) -> Iterator[tuple[int, int, Array]]:
        """Yield (i, j, squared entries of V_iᵀ M_ij V_j), in units of the core's largest entry."""
        V = [self.direction(i) for i in range(len(self.core.ranks))]
        for i, j, block in self.core.blocks():
            yield i, j, (V[i].T @ (block / self.core.peak) @ V[j]) ** 2


def draft(request: Request, clusters: Partition, ranks: Indices, evaluator: Evaluator) -> Draft:
    """Build bases, samples and core, with some columns more than ``ranks``."""
    c, n = clusters.n_blocks, request.n
    partners = [[i] for i in range(c)]
    strengths: Array = np.empty((c, 0))
    if c > 1 and request.drop != 1.0:  # without couplings the c² strengths are not needed
        strengths = coupling_strengths(request, clusters, evaluator)
        partners = kept_couplings(request, clusters, ranks, strengths)
    coupled = any(len(others) > 1 for others in partners)
    efforts = [Effort.of(int(k), int(size), c, n, coupled) for k, size in zip(ranks, clusters.sizes, strict=True)]
    jobs = [(i,) for i in range(c)]

    def own(i: int) -> Indices:
        places = None if clusters.embedding is None else lambda some: clusters.places(evaluator, some)
        members, rng = clusters.members(i), stream(request.seed, 1, i)
        return choose_landmarks(request.objects, members, efforts[i].own, request.landmarks, evaluator, rng, places)

    pools = request.each(own, jobs, "landmarks")

    def basis(i: int) -> SampledBasis:
        e = efforts[i]
        is_whole = math.ceil(e.sampled * e.columns) >= clusters.sizes[i] and len(pools[i]) <= e.columns
        if partners[i] == [i] and is_whole:
            return _whole_block(request, clusters.members(i), pools[i], int(ranks[i]), evaluator)
        rng = stream(request.seed, 5, i)
        outside = outside_landmarks(pools, i, partners[i], strengths[i], clusters.sizes, efforts[i].outside, rng)
        rows = np.concatenate([pools[i], outside])
        return _sampled_basis(request, clusters, i, rows, efforts[i], evaluator, rng)

    found = request.each(basis, jobs, "bases")

    def strip(i: int) -> dict[tuple[int, int], Array]:
        return core_strip(request.objects, found, i, [j for j in partners[i] if j >= i], evaluator)

    blocks: dict[tuple[int, int], Array] = {}
    for some in request.each(strip, jobs, "core"):
        blocks |= some
    bases, maps = [b.basis for b in found], [b.extension for b in found]
    return Draft(bases, maps, BlockSparse.from_blocks([U.shape[1] for U in bases], blocks))


def strongest(draft: Draft, ranks: Sequence[int], ordered: bool = False) -> Draft:
    """Keep the ``ranks[i]`` strongest directions of each block. The core stays psd if it is.

    The directions of a block are sorted, strongest first, if ``ordered`` or if any of them is left out. Overwrites the
    list ``draft.bases``, so that no more than one block is held twice.
    """
    core, bases, maps = draft.core, draft.bases, list(draft.maps)
    turned = [i for i, (k, columns) in enumerate(zip(ranks, core.ranks, strict=True)) if ordered or k < columns]
    if not turned:
        return draft
    kept = {i: draft.direction(i)[:, : int(ranks[i])] for i in turned}
    for i, V in kept.items():
        bases[i] = rounded_product(bases[i], V)
        maps[i] = replace(maps[i], transform=maps[i].transform @ V)
    return Draft(bases, maps, _compressed(core, kept))


def _compressed(core: BlockSparse, kept: dict[int, Array]) -> BlockSparse:
    """V_iᵀ M_ij V_j for all blocks, where ``kept`` has the V_i that are not the identity."""

    def turned(i: int, j: int, block: Array) -> Array:
        block = kept[i].T @ block if i in kept else block
        block = block @ kept[j] if j in kept else block
        return (block + block.T) / 2.0 if i == j else block

    return core.map_blocks(turned, [kept[i].shape[1] if i in kept else k for i, k in enumerate(core.ranks)])


def finish(
    request: Request, clusters: Partition, draft: Draft, evaluator: Evaluator, max_bytes: float = math.inf
) -> Parts:
    """Store a draft as the request asks, and scale its core down if that is too large (`shrinkage`).

    The bytes that small types take are known only when they are filled. While they exceed ``max_bytes``, the last
    directions of the blocks are left out: sort them by strength first. Without ``max_bytes`` the list ``draft.bases``
    is emptied.
    """
    draft = replace(draft, maps=limited(request, draft.bases, draft.maps, draft.core))
    while True:
        bases = list(draft.bases) if math.isfinite(max_bytes) else draft.bases
        parts = store(request, clusters, bases, draft.maps, draft.core)
        held, ranks = parts.factorization.nbytes, draft.core.ranks
        if held <= max_bytes:
            return shrunk(request, parts, evaluator)
        fewer = _fewer(ranks, math.ceil((held - max_bytes) * sum(ranks) / held))
        if fewer is None:
            warn(
                f"{request.n_blocks} blocks of rank 1 take {held} bytes, above max_memory={max_bytes:.4g}; they are "
                "kept. Ask for fewer blocks, or allow more memory."
            )
            return shrunk(request, parts, evaluator)
        draft = _leading_columns(draft, fewer)


def _fewer(ranks: Sequence[int], count: int) -> list[int] | None:
    """Ranks with about ``count`` directions less in all, in proportion to the rank; None if each block has only one."""
    used = np.array([k for k in ranks if k > 0])
    if used.sum() == len(used):
        return None
    left = iter(allocate(max(len(used), int(used.sum()) - max(1, count)), used, "size").tolist())
    return [next(left) if k > 0 else 0 for k in ranks]


def _leading_columns(draft: Draft, ranks: Sequence[int]) -> Draft:
    """The first ``ranks[i]`` directions of each block."""
    bases = [U[:, :k] for U, k in zip(draft.bases, ranks, strict=True)]
    maps = [m.leading(k) for m, k in zip(draft.maps, ranks, strict=True)]
    return Draft(bases, maps, draft.core.map_blocks(lambda i, j, block: block[: ranks[i], : ranks[j]], ranks))


# -- one cluster -------------------------------------------------------------------------------------------------------


def outside_landmarks(
    pools: list[Indices], i: int, partners: list[int], strengths: Array, sizes: Indices, count: int,
    rng: np.random.Generator,
) -> Indices:  # fmt: skip
    """Draw landmarks from the clusters that cluster i is coupled to, more of them from strongly coupled ones."""
    others = np.array([j for j in partners if j != i], dtype=np.intp)
    if len(others) == 0 or count == 0:
        return np.empty(0, dtype=np.intp)
    energy = strengths[others] ** 2 + np.finfo(float).tiny
    share = (1.0 - DRAWN_BY_SIZE) * energy / energy.sum() + DRAWN_BY_SIZE * sizes[others] / sizes[others].sum()
    counts = rng.multinomial(count, share / share.sum())
    drawn = [
        rng.choice(pools[j], min(int(m), len(pools[j])), replace=False)
        for j, m in zip(others.tolist(), counts, strict=True)
        if m
    ]
    return np.concatenate(drawn)


def _sampled_basis(
    request: Request, clusters: Partition, i: int, rows: Indices, effort: Effort, evaluator: Evaluator,
    rng: np.random.Generator,
) -> SampledBasis:  # fmt: skip
    """Return U_i, its map, S_i and P_i. Each member is compared with each landmark once."""
    objects, members = request.objects, clusters.members(i)
    n = len(members)
    landmarks = take(objects, rows)
    own = evaluator.own(landmarks)
    tried = tried_places(n, len(rows), rng)
    first = evaluator.cross(precise(take(objects, members[tried])), precise(landmarks), own)
    transform = leading(first, min(effort.columns, n), rng)
    usual = longest(first)
    Q: Array = np.empty((n, transform.shape[1]), dtype=request.working, order="F")
    Q[tried] = first @ transform
    for part, block in other_rows(objects, members, tried, precise(landmarks), own, evaluator):
        Q[part] = block @ transform
    U, A = orthonormal_columns(Q)
    drawn = draw_sample(n, U.shape[1], effort.sampled, rng)
    keys = sample_keys(request.seed, i, np.arange(n), np.einsum("ij,ij->i", U, U, dtype=np.float64))
    heavy = np.sort(smallest(keys, CANDIDATES_PER_RANK * U.shape[1]))
    spots = sample_places(U[heavy].astype(np.float64), heavy, drawn)
    extension = LandmarkMap(landmarks, rows, transform @ A, own, usual)
    inverse, inner = inverse_of(U[spots].astype(np.float64)), None
    if len(tried) == len(spots) == n and np.array_equal(rows[:n], members):
        inner = inverse @ first[:, :n] @ inverse.T  # every member is a landmark and in the sample
    return SampledBasis(U, extension, members[spots], inverse, inner)


def _whole_block(request: Request, members: Indices, rows: Indices, rank: int, evaluator: Evaluator) -> SampledBasis:
    """The basis of a cluster that is coupled to no other and is its own sample: k(X_i, X_i) is evaluated once.

    U spans the columns of the landmarks, and M = Uᵀ k(X_i, X_i) U. The ``rank`` strongest eigenvectors of M are kept,
    so that the core is diagonal.
    """
    X = precise(take(request.objects, members))
    K = evaluator.block(X, X)
    places = np.searchsorted(members, rows)
    A = np.asfortranarray(K[:, places])  # k(X_i, Z_i)
    U, R = orthonormalise(A.copy(order="F"))
    transform = _inverse_of_triangle(R)
    if transform is None:
        transform = leading(A, len(rows), stream(request.seed, 5))
        U, R = orthonormalise(np.asfortranarray(A @ transform))
        transform = right_divide(transform, R)
    M = U.T @ K @ U
    values, V = np.linalg.eigh((M + M.T) / 2.0)
    if len(values) > rank:
        kept = np.sort(np.argsort(-np.abs(values), kind="stable")[:rank])
        values, V = values[kept], V[:, kept]
    landmarks = take(request.objects, rows)
    extension = LandmarkMap(landmarks, rows, transform @ V, evaluator.own(landmarks), longest(A))
    return SampledBasis((U @ V).astype(request.working), extension, members, np.empty((0, 0)), np.diag(values))


def _inverse_of_triangle(R: Array) -> Array | None:
    """The inverse of an upper triangular matrix, or None if it is not well conditioned."""
    if R.shape[0] < R.shape[1]:
        return None
    inverse, failed = scipy.linalg.lapack.dtrtri(R)
    with np.errstate(over="ignore", invalid="ignore"):
        condition = np.linalg.norm(R) * np.linalg.norm(inverse)
    return None if failed or not condition < WELL_CONDITIONED else inverse


def longest(block: Array) -> float:
    """The largest norm of a row."""
    peak = float(np.abs(block).max(initial=0.0)) or 1.0
    return peak * math.sqrt(float(((block / peak) ** 2).sum(1).max(initial=0.0)))


def leading(A: Array, rank: int, rng: np.random.Generator) -> Array:
    """Return T (l, k) such that A T is orthonormal and spans the k <= ``rank`` leading left singular vectors of A.

    Subspace iteration is used where it saves work: it is accurate enough, as directions are sorted again by the core.
    The Gram matrix of a float32 A is taken in float64, where squaring loses less than float32 rounds.
    """
    peak = float(np.abs(A).max(initial=0.0))
    if peak == 0.0 or rank == 0:
        return np.zeros((A.shape[1], 0))
    B = A / A.dtype.type(peak)
    start = None
    if 2 * (rank + OVERSAMPLING) <= min(A.shape):
        start = rng.standard_normal((A.shape[1], rank + OVERSAMPLING)).astype(A.dtype)
        for _ in range(SUBSPACE_ITERATIONS[A.dtype]):
            start = np.linalg.qr(B.T @ np.linalg.qr(B @ start)[0])[0]
        B = B @ start
    if A.dtype == np.float32:
        B = B.astype(np.float64)
        values, vectors = np.linalg.eigh(B.T @ B)
        s, v = np.sqrt(np.maximum(values[::-1], 0.0)), vectors[:, ::-1]
    else:
        _, s, vt = np.linalg.svd(np.linalg.qr(B, mode="r"), full_matrices=False)  # the left factor is not needed
        v = vt.T
    k = min(rank, int((s > SINGULAR_CUTOFF[A.dtype] * s[0]).sum()))
    T = v[:, :k] / (peak * s[:k])
    return np.asarray(T if start is None else start @ T)


def tried_places(n: int, n_landmarks: int, rng: np.random.Generator) -> Indices:
    """The rows of a cluster of n, ascending, from which its leading directions are computed."""
    count = ROWS_PER_LANDMARK * n_landmarks
    return np.sort(rng.choice(n, count, replace=False)) if count < n else np.arange(n)


def sample_keys(seed: int, cluster: int, places: Indices, squares: Array) -> Array:
    """One number for each row of a cluster: the smallest are a draw by |u(x)|² without replacement.

    They are exponential numbers divided by the weights. The numbers belong to (seed, cluster, place), whoever asks for
    them, as they come from a hash, the finalizer of splitmix64.
    """
    start = np.uint64((seed * 0x9E3779B97F4A7C15 + (cluster + 1) * 0xD1B54A32D192ED03) % 2**64)
    with np.errstate(over="ignore"):
        x = (places.astype(np.uint64) + start) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    uniform = ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) + 0.5
    return -np.log(uniform / 2.0**53) / np.maximum(squares, np.finfo(np.float32).tiny)


def smallest(keys: Array, count: int) -> Indices:
    """Where the ``count`` smallest keys are, in no order."""
    return np.argpartition(keys, count - 1)[:count] if 0 < count < len(keys) else np.arange(min(count, len(keys)))


def draw_sample(n: int, k: int, per_column: float, rng: np.random.Generator) -> Indices:
    """Draw the uniform part of a sample of ``per_column`` rows for each of k columns: places among n rows."""
    count = min(n, math.ceil(per_column * k))
    return rng.choice(n, count, replace=False) if count < n else np.arange(n)


def sample_places(U: Array, candidates: Indices, drawn: Indices) -> Indices:
    """The sample of a cluster, ascending: pivots among the ``candidates``, whose rows of U are given, and drawn ones.

    The pivots determine every direction.
    """
    k = U.shape[1]
    if k == 0 or len(drawn) <= k:
        return np.sort(drawn)
    pivots = candidates[scipy.linalg.qr(U.T, mode="r", pivoting=True, check_finite=False)[1][:k]]
    others = drawn[~np.isin(drawn, pivots)]
    return np.sort(np.concatenate([pivots, others[: len(drawn) - len(pivots)]]))


def inverse_of(rows: Array) -> Array:
    """The pseudo-inverse of the sampled rows of U, without directions that they do not determine."""
    if rows.size == 0:
        return rows.T
    factor, failed = scipy.linalg.lapack.dpotrf(rows.T @ rows)
    size = np.diagonal(factor)
    if not failed and size.min() > LEAST_PIVOT * size.max():
        return np.asarray(scipy.linalg.cho_solve((factor, False), rows.T, check_finite=False))
    u, s, vt = np.linalg.svd(rows, full_matrices=False)
    kept = s > INVERSE_CUTOFF * s.max(initial=0.0)
    return np.asarray((vt[kept].T / s[kept]) @ u[:, kept].T)


def core_strip(
    objects: Any, bases: Sequence[SampledBasis] | dict[int, SampledBasis], i: int, columns: list[int],
    evaluator: Evaluator,
) -> dict[tuple[int, int], Array]:  # fmt: skip
    """The core's blocks (i, j) for j in ``columns``.

    Kernel values are evaluated in float64, as rounding to float32 need not keep the core psd.
    """
    left = precise(take(objects, bases[i].sample))
    out: dict[tuple[int, int], Array] = {}
    if (known := bases[i].block) is not None and i in columns:
        out[i, i] = (known + known.T) / 2.0
        columns = [j for j in columns if j != i]
    limit = evaluator.chunk_entries // max(1, len(bases[i].sample))
    for some in _batches([len(bases[j].sample) for j in columns], limit):
        chosen = columns[some]
        rows = np.concatenate([bases[j].sample for j in chosen])
        half = bases[i].inverse @ evaluator.block(left, precise(take(objects, rows)))
        start = 0
        for j in chosen:
            stop = start + len(bases[j].sample)
            block = half[:, start:stop] @ bases[j].inverse.T
            out[i, j] = (block + block.T) / 2.0 if i == j else block
            start = stop
    return out


def _batches(sizes: list[int], limit: int) -> Iterator[slice]:
    """Yield consecutive columns with at most ``limit`` rows together, or a single column with more."""
    start, held = 0, 0
    for stop, size in enumerate(sizes):
        if held and held + size > limit:
            yield slice(start, stop)
            start, held = stop, 0
        held += size
    if start < len(sizes):
        yield slice(start, len(sizes))
