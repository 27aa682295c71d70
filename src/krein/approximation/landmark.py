"""coupling="landmark": one sample of landmarks couples all blocks, and each block has a sample of its own.

This coupling is for similarities that are expensive to evaluate. Between blocks K is approximated by landmarks Z as
Q diag(signs) Qᵀ, which is Nyström's method. Within a block it is approximated from k(X_i, L_i), where L_i is a sample
of the block, or all of a small one. An object is compared with |Z| + |L_i| others, whatever n is. coupling="shared"
evaluates a sample of every pair of blocks as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from krein.approximation.bases import LandmarkMap, allocate, nystrom, sketch
from krein.approximation.clusters import Embedding, Partition, partition
from krein.approximation.request import Request, limited
from krein.arrays import Array, Indices, stream
from krein.errors import InputError, warn
from krein.factorization.core import BlockSparse
from krein.kernels import Evaluator, is_vectors, take

__all__ = ["couple_by_landmarks"]

# One object in LANDMARK_SHARE is a landmark, within the limits N_LANDMARKS.
LANDMARK_SHARE, N_LANDMARKS = 16, (128, 288)
# With n objects in all, an object is compared with n / OWN_SHARE members of its own block, within the limits N_OWN,
OWN_SHARE, N_OWN = 32, (96, 128)
# or with OWN_PER_RANK for each direction of the block, if that is more.
OWN_PER_RANK = 3
# Warn if the relative error exceeds WARN_ERROR and less than WARN_DIAGONAL of the median self-similarity is kept.
WARN_ERROR, WARN_DIAGONAL = 0.8, 0.3
# Singular values of the sampled rows of a basis below this share of the largest are not inverted.
FIT_CUTOFF = 0.05
# Singular values below this share of the largest are not inverted in the map that extends a basis to new objects.
EXTENSION_CUTOFF = 1e-3
# Directions of a block with a singular value below this share of the largest are left out.
DIRECTION_CUTOFF = 1e-7


@dataclass(frozen=True, eq=False)
class _Block:
    """A block with the similarities to its own sample, and its directions."""

    members: Indices
    own: Indices  # L_i, (l,) positions among the members
    similarities: Array  # k(X_i, L_i), (n_i, l)
    directions: Array  # (n_i, columns), orthonormal, strongest first
    energies: Array  # (columns,) squared singular values


def couple_by_landmarks(
    request: Request, evaluator: Evaluator
) -> tuple[Partition, list[Array], list[LandmarkMap], BlockSparse]:
    """Return clusters, bases, maps and core of a complete request, from n (|Z| + |L_i|) similarities."""
    assert request.n_blocks is not None
    if request.drop:
        raise InputError(
            f'coupling="landmark" has every pair of blocks coupled; got drop={request.drop:g}. Leave it out.'
        )
    everything, total = np.arange(request.n), request.rank_sum(request.n_blocks)
    count = min(request.n, int(np.clip(request.n // LANDMARK_SHARE, *N_LANDMARKS)))
    found = sketch(request.objects, everything, count, "uniform", evaluator, stream(request.seed, 1, 0))
    Q, signs, far = nystrom(request.objects, everything, max(1, count // 2), found, evaluator, np.float64)
    if not len(signs):  # all landmarks have zero similarities: there is nothing to couple
        Q, signs, far = np.zeros((request.n, 1)), np.ones(1), replace(far, transform=np.zeros((count, 1)))
    peak = float(np.abs(found.similarities).max(initial=0.0)) or 1.0
    places = None if is_vectors(request.objects) else (Embedding(far.landmarks, far.transform), Q)
    clusters = partition(request.objects, request.n_blocks, evaluator, request.seed, places)
    gram = Q.T @ Q
    # The number of blocks is the one asked for: with the fewer ones of mostly equal objects, width would near n.
    width = max(int(np.clip(request.n // OWN_SHARE, *N_OWN)), OWN_PER_RANK * -(-total // request.n_blocks))

    def block(i: int) -> _Block:
        return _block(request, clusters.members(i), i, width, (Q, signs, gram, peak), evaluator)

    blocks = request.each(block, [(i,) for i in range(clusters.n_blocks)], "bases")
    sizes = np.array([len(b.energies) for b in blocks])
    ranks = allocate(max(total, len(blocks)), sizes, "spectral", [b.energies for b in blocks])
    bases = [np.asfortranarray(b.directions[:, :k]) for b, k in zip(blocks, ranks, strict=True)]
    along = [U.T @ Q[b.members] for U, b in zip(bases, blocks, strict=True)]  # (k_i, columns of Q)
    core = {(i, i): _within(b, U) for i, (b, U) in enumerate(zip(blocks, bases, strict=True))}
    for i, left in enumerate(along):
        core |= {(i, j): (left * signs) @ along[j].T for j in range(i + 1, len(along))}
    M = BlockSparse.from_blocks([U.shape[1] for U in bases], core)
    pairs = zip(blocks, bases, strict=True)
    maps = [_extension(request, b, U, Q[b.members], far, peak, evaluator) for b, U in pairs]
    maps = limited(request, bases, maps, M)
    _warn_of_lost_similarities(request.n, found.similarities / peak, bases, core, peak)
    return clusters, [U.astype(request.working) for U in bases], maps, M


def _warn_of_lost_similarities(
    n: int, W: Array, bases: list[Array], core: dict[tuple[int, int], Array], peak: float
) -> None:
    """Warn if most objects are similar to none that they were compared with, so that |F| is far below |K|.

    W, the similarities of the landmarks over their largest, is a uniform sample of K and gives |K|. F is about a
    projection of K, so that both norms give the error. A single large self-similarity can be most of |K|. Therefore
    half of the self-similarities must be lost as well.
    """
    own, m = np.diagonal(W), len(W)
    between = (float(np.square(W).sum()) - float(np.square(own).sum())) / max(1, m * (m - 1))
    norm = np.sqrt(n * float(np.square(own).mean()) + n * (n - 1.0) * between)
    held = np.sqrt(sum((1.0 if i == j else 2.0) * float(np.square(M / peak).sum()) for (i, j), M in core.items()))
    kept = np.concatenate([np.einsum("ik,kl,il->i", U, core[i, i] / peak, U) for i, U in enumerate(bases)])
    typical = float(np.median(np.abs(own)))
    error = np.sqrt(max(0.0, 1.0 - (held / norm) ** 2)) if norm else 0.0
    if error > WARN_ERROR and float(np.median(np.abs(kept))) < WARN_DIAGONAL * typical:
        share = float(np.mean(np.abs(kept)) / np.mean(np.abs(own)))
        warn(
            f'coupling="landmark" holds next to nothing of this similarity: {100 * share:.2g} % of the self-'
            f"similarities, with a relative error of about {error:.2g}. Most objects are similar to no "
            "other that they were compared with. Take another similarity, one by which more objects are alike, or give "
            "n_blocks and more rank."
        )


def _block(
    request: Request, members: Indices, i: int, width: int, far: tuple[Array, Array, Array, float], evaluator: Evaluator
) -> _Block:
    """Compute the directions of a block from its rows of K: between blocks by Q, within the block by its sample."""
    Q, signs, gram, peak = far
    n, mine, q = len(members), take(request.objects, members), Q[members]
    if n <= width:
        own, K = np.arange(n), evaluator.symmetric(mine, members).astype(np.float64)
    else:
        own = np.sort(stream(request.seed, 2, i).choice(n, width, replace=False))
        found = evaluator.block(mine, take(mine, own))
        evaluator.check_symmetric(found[own], members[own])
        K = found.astype(np.float64)
    values, vectors = np.linalg.eigh((gram - q.T @ q) * np.outer(signs, signs))
    outside = (q @ vectors) * np.sqrt(np.maximum(values, 0.0))
    U, s, _ = np.linalg.svd(np.hstack([outside, np.sqrt(n / len(own)) * K]), full_matrices=False)
    kept = max(1, int((s > DIRECTION_CUTOFF * s.max(initial=0.0)).sum()))
    energies = (s[:kept] / peak) ** 2  # in units of the peak, so that no square overflows
    return _Block(members, own, K, U[:, :kept], energies)


def _within(block: _Block, U: Array) -> Array:
    """M_ii: Uᵀ K_ii U if all of K_ii is known, otherwise the least-squares fit to the sample."""
    known = block.similarities[block.own]
    inverse = U.T if len(block.own) == len(U) else np.linalg.pinv(U[block.own], rcond=FIT_CUTOFF)
    M = inverse @ known @ inverse.T
    return np.asarray(0.5 * (M + M.T))


def _extension(
    request: Request, block: _Block, U: Array, q: Array, far: LandmarkMap, peak: float, evaluator: Evaluator
) -> LandmarkMap:
    """The map u(x) = k(x, Z and L_i) T, fitted to the rows of the block by least squares."""
    root = np.sqrt(peak)  # q scales as the root of k: in these units the map does not depend on the scale of k
    weights = np.linalg.pinv(np.hstack([q / root, block.similarities / peak]), rcond=EXTENSION_CUTOFF) @ U
    transform = np.vstack([far.transform / root @ weights[: q.shape[1]], weights[q.shape[1] :] / peak])
    rows = np.concatenate([far.rows, block.members[block.own]])
    landmarks: Any = take(request.objects, rows)
    own = evaluator.own(landmarks)
    return LandmarkMap(landmarks, rows, transform, own)
