"""coupling="pairwise": Algorithm 1 of the paper (Heilig et al. 2022), from top to bottom. K ~ Q L Qᵀ.

In: a request with its number of blocks and its ranks. Out: clusters, orthonormal bases, their maps and the core.
`meka` is the algorithm. Part 1 is in `clusters`, Part 2 takes Eq. 4 from `bases.nystrom`, and Part 3 is `link`, Eq. 5,
by default in its guarded form, `guarded_link`. The guards stand after the algorithm; ``guarded=False`` leaves them out.
The eigenvectors V and eigenvalues w of the landmarks' similarities are the paper's U_W and Λ_W; U, M are krein's
orthonormal form of Q, L. Each pair of clusters is fitted on a sample of its own, so that the result need not be psd
even where the kernel is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.linalg

from krein.approximation.bases import PER_RANK, LandmarkMap, Sketch, allocate, nystrom, right_divide, sketch
from krein.approximation.clusters import Partition, partition
from krein.approximation.request import Request, limited
from krein.arrays import Array, Indices, stream
from krein.errors import warn
from krein.factorization.bases import orthonormalise
from krein.factorization.core import BlockSparse
from krein.kernels import Evaluator, take

__all__ = ["Basis", "Link", "guarded_link", "kept_pairs", "link", "meka", "sampled_block", "sampled_whole"]

# Each pair of clusters is fitted on SAMPLED_PER_RANK * k_i rows and SAMPLED_PER_RANK * k_j columns. k_i is the rank
# that was asked for, also where Q_i has fewer columns because the similarities of its landmarks have a lower rank.
SAMPLED_PER_RANK = 3
# Singular values of the sampled Q_i below CUTOFF are not inverted. It is the published code's pinv(Q'Q, 1e-6), whose
# tolerance is absolute in Matlab: it is meant for kernels with self-similarities near 1.
CUTOFF = 1e-3

# The guard on links takes one of these cut-offs, relative to the largest singular value. Starting at the published one,
# or at 1e-4, was ten times as accurate on one of the paper's combinations of data set and kernel (artificial1 rbf), but
# less so on spambase poly.
CUTOFFS = 10.0 ** np.arange(-3.0, 0.0, 0.25)
# The guard takes the largest cut-off whose misfit on the sample is at most MISFIT_RATIO times that of the smallest.
MISFIT_RATIO = 1.1
# A link has exploded if its block has more than MAX_GROWTH times the norm that the sample suggests.
MAX_GROWTH = 1.5
# Exploded links are reported if their norm exceeds this share of the norm of the block diagonal.
REPORTED_SHARE = 0.01


@dataclass(frozen=True, eq=False)
class Basis:
    """The basis Q_i = U_i R_i of one cluster, with K_ii ~ Q_i L_ii Q_iᵀ."""

    members: Indices  # (n_i,) the caller's rows
    U: Array  # (n_i, k_i), orthonormal
    R: Array  # (k_i, k_i)
    L: Array  # (k_i, k_i): diag(sign w); the paper's I if no eigenvalue is negative
    extension: LandmarkMap  # q(x) of new objects x
    n_sampled: int  # rows that each link of this cluster is fitted on
    shortened: bool = False  # whether the guard on bases left directions out

    def Q(self, rows: Indices) -> Array:
        """Rows of Q_i in float64."""
        return np.asarray(self.U[rows].astype(np.float64) @ self.R)


@dataclass(frozen=True, eq=False)
class Link:
    """A block of L."""

    L: Array  # (k_i, k_j)
    exploded: float = 0.0  # the Frobenius norm that the guard prevented; 0 where there was nothing to prevent


def meka(
    request: Request, evaluator: Evaluator
) -> tuple[Partition, list[Array], list[LandmarkMap], BlockSparse]:  # fmt: skip
    """Algorithm 1: return clusters, U_i, their maps and the core M = R L Rᵀ, so that K ~ Q L Qᵀ = U M Uᵀ."""
    objects, seed, n_blocks = request.objects, request.seed, request.n_blocks or 1
    clusters = partition(objects, n_blocks, evaluator, seed)  # Part 1
    ranks = _ranks(request, clusters, evaluator)

    def basis(i: int) -> Basis:  # Part 2, Eq. (4)
        return nystrom_basis(request, clusters, i, int(ranks[i]), evaluator)

    bases = request.each(basis, [(i,) for i in range(clusters.n_blocks)], "bases")

    def couple(i: int, j: int) -> Link:  # Part 3, Eq. (5)
        rows, cols, K = sampled_block(objects, bases[i], bases[j], evaluator, stream(seed, 2, i, j))
        if request.guarded:
            return guarded_link(bases[i], rows, K, bases[j], cols)
        return Link(link(bases[i].Q(rows), K, bases[j].Q(cols)))

    pairs = list(kept_pairs(clusters.centre_distances(), request.drop or 0.0))
    links = request.each(couple, pairs, "links")

    L = {(i, i): b.L for i, b in enumerate(bases)} | {pair: found.L for pair, found in zip(pairs, links, strict=True)}
    M = {(i, j): bases[i].R @ block @ bases[j].R.T for (i, j), block in L.items()}
    U = [b.U for b in bases]
    core = BlockSparse.from_blocks([U_i.shape[1] for U_i in U], M)
    maps = [replace(b.extension, transform=right_divide(b.extension.transform, b.R)) for b in bases]
    if request.guarded:
        _report(request, bases, links)
        maps = limited(request, U, maps, core)
    return clusters, U, maps, core


def nystrom_basis(request: Request, clusters: Partition, i: int, rank: int, evaluator: Evaluator) -> Basis:
    """Eq. (4): Q_i = k(X_i, Z_i) V_k |w_k|^(-1/2) and L_ii = diag(sign w_k), with k(Z_i, Z_i) = V diag(w) Vᵀ."""
    members = clusters.members(i)
    found = _sketch(request, clusters, evaluator, i, PER_RANK * rank, request.landmarks, 1)
    Q, signs, extension = nystrom(request.objects, members, rank, found, evaluator, request.working, request.guarded)
    U, R = orthonormalise(Q)
    shortened = U.shape[1] < min(rank, len(found.values))
    n_sampled = min(len(members), SAMPLED_PER_RANK * rank)
    basis = Basis(members, U, R.astype(np.float64), np.diag(signs), extension, n_sampled, shortened)
    return sampled_whole(basis) if request.guarded else basis


def kept_pairs(distances: Array, drop: float) -> Iterator[tuple[int, int]]:
    """Yield the pairs (i, j), i < j, of clusters that are linked: all but the share ``drop`` of most distant ones."""
    left, right = np.triu_indices(len(distances), 1)
    n_dropped = int(np.floor(drop * len(left) + 1e-9))
    kept = np.argsort(distances[left, right], kind="stable")[: len(left) - n_dropped]
    kept.sort()
    yield from zip(left[kept].tolist(), right[kept].tolist(), strict=True)


def sampled_block(
    objects: object, left: Basis, right: Basis, evaluator: Evaluator, rng: np.random.Generator
) -> tuple[Indices, Indices, Array]:
    """Random rows I_i and I_j of the two clusters, and K[I_i, I_j]."""
    rows, cols = (np.sort(rng.choice(len(b.members), b.n_sampled, replace=False)) for b in (left, right))
    if 0 in (len(left.R), len(right.R)):  # a cluster on which the kernel is zero has no basis
        return rows, cols, np.zeros((len(rows), len(cols)))
    K = evaluator.block(take(objects, left.members[rows]), take(objects, right.members[cols]))
    return rows, cols, K.astype(np.float64)


def link(Q_i: Array, K_ij: Array, Q_j: Array) -> Array:
    """Eq. (5): L_ij, the least-squares solution of K_ij = Q_i L_ij Q_jᵀ on the sampled rows and columns."""
    return pseudo_inverse(Q_i) @ K_ij @ pseudo_inverse(Q_j).T


def pseudo_inverse(Q: Array) -> Array:
    """(QᵀQ)⁺ Qᵀ without the singular values of Q below CUTOFF."""
    u, s, vt = np.linalg.svd(Q, full_matrices=False)
    kept = s > CUTOFF
    return np.asarray((vt[kept].T / s[kept]) @ u[:, kept].T)


# -- ranks -------------------------------------------------------------------------------------------------------------


def _ranks(request: Request, clusters: Partition, evaluator: Evaluator) -> Indices:
    """k_i by the paper's rules. Rule 2 takes the spectra of the diagonal blocks from a uniform sample of its own."""
    if request.allocation != "spectral":
        return request.given_ranks(clusters.sizes)
    c, sizes = clusters.n_blocks, clusters.sizes
    total = request.rank_sum(c)

    def spectrum(i: int) -> Array:
        found = _sketch(request, clusters, evaluator, i, 2 * PER_RANK * -(-total // c), "uniform", 3)
        # W is a uniform l x l sample of K_i, so its eigenvalues are those of K_i scaled by l / n_i.
        return np.asarray(found.values * (sizes[i] / len(found.rows)))

    return allocate(total, sizes, "spectral", request.each(spectrum, [(i,) for i in range(c)], "spectra"))


def _sketch(
    request: Request, clusters: Partition, evaluator: Evaluator, i: int, count: int, rule: str, key: int
) -> Sketch:  # fmt: skip
    members, rng = clusters.members(i), stream(request.seed, key, i)
    places = None if clusters.embedding is None else partial(clusters.embedding, evaluator)
    count = min(count, len(members))
    return sketch(request.objects, members, count, rule, evaluator, rng, places, request.guarded)


# -- guards: what ``guarded=True`` adds to the algorithm ---------------------------------------------------------------


def sampled_whole(basis: Basis) -> Basis:
    """Take Q_i = U_i where Part 3 samples every row: then Eq. 5 is a projection, and no direction is cut off."""
    if basis.n_sampled < len(basis.members):
        return basis
    extension = replace(basis.extension, transform=right_divide(basis.extension.transform, basis.R))
    return replace(basis, R=np.eye(len(basis.R)), L=basis.R @ basis.L @ basis.R.T, extension=extension)


def guarded_link(left: Basis, rows: Indices, K_ij: Array, right: Basis, cols: Indices) -> Link:
    """Eq. (5) with a cut-off that keeps the link from exploding.

    A direction of Q_i that the sample hardly meets has a small singular value. Its inverse multiplies whatever the
    basis cannot represent. The guard therefore takes the largest cut-off that fits the sample about as well as the
    smallest one, and raises it while |Q_i L_ij Q_jᵀ| is larger than the sampled block suggests. No link is left where
    all cut-offs fail.
    """
    peak = float(np.abs(K_ij).max(initial=0.0))
    nothing = np.zeros((len(left.R), len(right.R)))
    if peak == 0.0:
        return Link(nothing)
    K = K_ij / peak  # squares of 1e200 would overflow
    a, s, v = np.linalg.svd(left.Q(rows), full_matrices=False)
    b, t, w = np.linalg.svd(right.Q(cols), full_matrices=False)
    inner = a.T @ K @ b
    squares, size = inner**2, float(np.linalg.norm(K))
    outside = float(np.linalg.norm(K - a @ inner @ b.T)) ** 2  # what no link explains
    ranks = [(int((s > c * s[0]).sum()), int((t > c * t[0]).sum())) for c in CUTOFFS]
    misfits = [np.sqrt(outside + squares[p:].sum() + squares[:p, q:].sum()) for p, q in ranks]
    first = int(np.sum(misfits <= MISFIT_RATIO * misfits[0] + 1e-13 * size)) - 1  # misfits grow with the cut-off
    limit = MAX_GROWTH * size * np.sqrt(len(left.members) * len(right.members) / K.size)
    exploded = 0.0
    for p, q in ranks[first:]:
        L = (v[:p].T / s[:p]) @ inner[:p, :q] @ (w[:q].T / t[:q]).T
        norm = float(np.linalg.norm(left.R @ L @ right.R.T))
        if norm <= limit:
            return Link(peak * L, peak * exploded)
        exploded = exploded or norm
    return Link(nothing, peak * exploded)


def _report(request: Request, bases: list[Basis], links: list[Link]) -> None:
    """Warn of what the guards left out."""
    if shortened := sum(b.shortened for b in bases):
        warn(
            f"In {shortened} of {len(bases)} blocks the Nyström basis of {request.kernel!r} would have exploded, as "
            "indefinite kernels can; the directions to blame were left out. More rank, or other landmarks, help."
        )
    size = scipy.linalg.norm([scipy.linalg.norm((b.R @ b.L @ b.R.T).ravel()) for b in bases])  # of the block diagonal
    if exploded := sum(found.exploded > REPORTED_SHARE * size for found in links):
        warn(
            f"{exploded} of {len(links)} links between blocks were poorly determined by their samples and would have "
            "exploded; their weakest directions were left out. More rank makes this rarer."
        )
