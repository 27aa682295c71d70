"""coupling="landmark": one sample of landmarks couples all blocks, and each block keeps similarities of its own.

For objects whose similarities are dear. Between blocks K is what the landmarks Z say of it, Q diag(signs) Qᵀ (Nyström's
way); within a block it is k(X_i, L_i), L_i being a sample of the block or, of a small one, all of it. So an object is
compared with |Z| + |L_i| others, whatever n is, where coupling="shared" takes a sample of all pairs of blocks besides.
Both together learn more than either: what is far is smooth, and what is near is met one by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from krein.approximation.bases import LandmarkMap, nystrom, sketch
from krein.approximation.clusters import Embedding, Partition, partition
from krein.approximation.landmarks import allocate
from krein.approximation.request import Request
from krein.arrays import Array, Indices, stream
from krein.errors import InputError, warn
from krein.factorization.blocksparse import BlockSparse
from krein.kernels import Evaluator, is_vectors, take

__all__ = ["couple_by_landmarks", "usual"]

SHARE, LANDMARKS = 16, (128, 288)  # one of so many objects is a landmark, but no fewer and no more than these
OWN_SHARE, OWN, PER_RANK = 32, (96, 128), 3  # similarities of an object within its block: alike, or per direction
LOST, LITTLE = 0.8, 0.3  # an error above the one that holds less than the other of most self-similarities is said
STEADY = 0.05  # of the largest singular value: directions that the sampled rows meet less are not fitted
SMOOTH = 1e-3  # the same for new objects
PER_BLOCK, BLOCKS = 64, 128  # rows per block, and blocks at most
SHARE_OF_RANK, DIRECTIONS = 0.36, 1536  # directions per row, and directions at most: learning costs their cube


@dataclass(frozen=True, eq=False)
class _Near:
    """A block, seen by itself: directions by what they carry, and its own similarities."""

    members: Indices
    own: Indices  # (l,) places among the members
    similarities: Array  # k(X_i, L_i), (n_i, l)
    directions: Array  # (n_i, columns), orthonormal, strongest first
    energies: Array


def usual(n: int) -> tuple[int, int]:
    """Blocks, and the rank of each, of so many objects where nothing is said of them."""
    blocks = int(np.clip(n // PER_BLOCK, 1, BLOCKS))
    return blocks, max(1, int(min(SHARE_OF_RANK * n, DIRECTIONS)) // blocks)


def couple_by_landmarks(
    request: Request, evaluator: Evaluator
) -> tuple[Partition, list[Array], list[LandmarkMap], BlockSparse]:
    """Return clusters, bases, maps and core of a request with its numbers chosen: n (|Z| + |L_i|) similarities."""
    assert request.n_blocks is not None
    if request.drop:
        raise InputError(
            f'coupling="landmark" has every pair of blocks coupled; got drop={request.drop:g}. Leave it out.'
        )
    everything, total = np.arange(request.n), request.total_rank or request.n_blocks * (request.rank or 1)
    count = min(request.n, int(np.clip(request.n // SHARE, *LANDMARKS)))
    found = sketch(request.objects, everything, count, "uniform", evaluator, stream(request.seed, 1, 0))
    Q, signs, far = nystrom(request.objects, everything, max(1, count // 2), found, evaluator, np.float64)
    if not len(signs):  # the landmarks see nothing: there is nothing to couple
        Q, signs, far = np.zeros((request.n, 1)), np.ones(1), replace(far, transform=np.zeros((count, 1)))
    peak = float(np.abs(found.similarities).max(initial=0.0)) or 1.0
    places = None if is_vectors(request.objects) else (Embedding(far.landmarks, far.transform), Q)
    clusters = partition(request.objects, request.n_blocks, evaluator, request.seed, places)
    seen = Q.T @ Q
    # by the blocks asked for: of objects that are mostly equal few blocks are left, and n² similarities would be taken
    width = max(int(np.clip(request.n // OWN_SHARE, *OWN)), PER_RANK * -(-total // request.n_blocks))

    def near(i: int) -> _Near:
        return _near(request, clusters.members(i), i, width, (Q, signs, seen, peak), evaluator)

    blocks = request.each(near, [(i,) for i in range(clusters.n_blocks)], "bases")
    sizes = np.array([len(b.energies) for b in blocks])
    ranks = allocate(max(total, len(blocks)), sizes, "spectral", [b.energies for b in blocks])
    bases = [np.asfortranarray(b.directions[:, :k]) for b, k in zip(blocks, ranks, strict=True)]
    along = [U.T @ Q[b.members] for U, b in zip(bases, blocks, strict=True)]  # (k_i, columns of Q)
    core = {(i, i): _within(b, U) for i, (b, U) in enumerate(zip(blocks, bases, strict=True))}
    for i, left in enumerate(along):
        core |= {(i, j): (left * signs) @ along[j].T for j in range(i + 1, len(along))}
    maps = [
        _extension(request, b, U, Q[b.members], far, peak, evaluator).limited(U, core[i, i], request.kernel)
        for i, (b, U) in enumerate(zip(blocks, bases, strict=True))
    ]
    _warn_of_nothing(request.n, found.similarities / peak, bases, core, peak)
    bases = [U.astype(request.working) for U in bases]
    return clusters, bases, maps, BlockSparse.from_blocks([U.shape[1] for U in bases], core)


def _warn_of_nothing(n: int, W: Array, bases: list[Array], core: dict[tuple[int, int], Array], peak: float) -> None:
    """Say so where most objects are similar to nothing that was looked at: |F| is far below |K|, judged by W.

    W, the landmarks among themselves over their peak, is a uniform sample of K; so this takes no similarity. F is about
    a projection of K, hence the error. Half of the self-similarities have to be lost as well, since one large one can
    make all of |K|.
    """
    own, m = np.diagonal(W), len(W)
    between = (float(np.square(W).sum()) - float(np.square(own).sum())) / max(1, m * (m - 1))
    norm = np.sqrt(n * float(np.square(own).mean()) + n * (n - 1.0) * between)
    held = np.sqrt(sum((1.0 if i == j else 2.0) * float(np.square(M / peak).sum()) for (i, j), M in core.items()))
    kept = np.concatenate([np.einsum("ik,kl,il->i", U, core[i, i] / peak, U) for i, U in enumerate(bases)])
    typical = float(np.median(np.abs(own)))
    error = np.sqrt(max(0.0, 1.0 - (held / norm) ** 2)) if norm else 0.0
    if error > LOST and float(np.median(np.abs(kept))) < LITTLE * typical:
        share = float(np.mean(np.abs(kept)) / np.mean(np.abs(own)))
        warn(
            f'coupling="landmark" holds next to nothing of this similarity: {100 * share:.2g} % of the self-'
            f"similarities, with a relative error of about {error:.2g}. Most objects are similar to no "
            "other that they were compared with. Take another similarity, one by which more objects are alike, or give "
            "n_blocks and more rank."
        )


def _near(
    request: Request, members: Indices, i: int, width: int, far: tuple[Array, Array, Array, float], evaluator: Evaluator
) -> _Near:
    """Directions by the squares of the block's rows of K: those to other blocks by Q, those within by the sample."""
    Q, signs, seen, peak = far
    n, mine, q = len(members), take(request.objects, members), Q[members]
    if n <= width:
        own, K = np.arange(n), evaluator.symmetric(mine, members).astype(np.float64)
    else:
        own = np.sort(stream(request.seed, 2, i).choice(n, width, replace=False))
        found = evaluator.block(mine, take(mine, own))
        evaluator.check_symmetric(found[own], members[own])
        K = found.astype(np.float64)
    values, vectors = np.linalg.eigh((seen - q.T @ q) * np.outer(signs, signs))
    outside = (q @ vectors) * np.sqrt(np.maximum(values, 0.0))
    U, s, _ = np.linalg.svd(np.hstack([outside, np.sqrt(n / len(own)) * K]), full_matrices=False)
    kept = max(1, int((s > 1e-7 * s.max(initial=0.0)).sum()))
    return _Near(members, own, K, U[:, :kept], (s[:kept] / peak) ** 2)  # no square overflows


def _within(block: _Near, U: Array) -> Array:
    """M_ii: UᵀKU where all of K is known, else the least squares of what is, as coupling="shared" has it."""
    known = block.similarities[block.own]
    inverse = U.T if len(block.own) == len(U) else np.linalg.pinv(U[block.own], rcond=STEADY)
    M = inverse @ known @ inverse.T
    return np.asarray(0.5 * (M + M.T))


def _extension(
    request: Request, block: _Near, U: Array, q: Array, far: LandmarkMap, peak: float, evaluator: Evaluator
) -> LandmarkMap:
    """u(x) = k(x, Z and L_i) T, the least squares over the block's own rows, in units of the largest similarity."""
    root = np.sqrt(peak)  # q is of the size of a root, so that otherwise c k would be extended unlike k
    weights = np.linalg.pinv(np.hstack([q / root, block.similarities / peak]), rcond=SMOOTH) @ U
    transform = np.vstack([far.transform / root @ weights[: q.shape[1]], weights[q.shape[1] :] / peak])
    rows = np.concatenate([far.rows, block.members[block.own]])
    landmarks: Any = take(request.objects, rows)
    own = evaluator.own(landmarks)
    return LandmarkMap(landmarks, rows, transform, own)
