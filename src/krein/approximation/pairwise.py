"""coupling="pairwise": the paper's own way (Algorithm 1, Parts 2 and 3), cluster by cluster and pair by pair.

Each cluster gets a Nyström basis from its own landmarks, each pair of clusters a least-squares link on its own sample.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import scipy.linalg

from krein.approximation.bases import LandmarkMap, Sketch, nystrom, right_divide, sketch
from krein.approximation.clusters import Partition
from krein.approximation.landmarks import PER_RANK, allocate
from krein.approximation.links import Link, Side, kept_pairs, pairwise_link
from krein.approximation.request import Plan
from krein.arrays import Array, Indices, stream
from krein.errors import warn
from krein.factorization.storage import orthonormalise
from krein.kernels import Evaluator

__all__ = ["links", "nystrom_bases", "spectral_ranks"]

NOTEWORTHY = 0.01  # a link that would have exploded to less than this share of the block diagonal is not worth a word


def spectral_ranks(plan: Plan, clusters: Partition, evaluator: Evaluator) -> Indices:
    """The paper's rule 2: ranks by the spectra of the diagonal blocks, from a sample of its own."""
    assert plan.total_rank is not None
    c, sizes = clusters.n_blocks, clusters.sizes
    count = 2 * PER_RANK * -(-plan.total_rank // c)

    def spectrum(i: int) -> Array:
        found = _sketch(plan, clusters, evaluator, i, count, "uniform", 3)
        # W is a uniform l x l sample of K_i, so its eigenvalues are those of K_i scaled by l / n_i
        return np.asarray(found.values * (sizes[i] / len(found.rows)))

    spectra = plan.each(spectrum, [(i,) for i in range(c)], "spectra")
    return allocate(plan.total_rank, sizes, "spectral", spectra)


def _sketch(plan: Plan, clusters: Partition, evaluator: Evaluator, i: int, count: int, rule: str, key: int) -> Sketch:
    members, rng = clusters.members(i), stream(plan.seed, key, i)
    places = None if clusters.embedding is None else partial(clusters.embedding, evaluator)
    return sketch(plan.objects, members, min(count, len(members)), rule, evaluator, rng, places)


def nystrom_bases(
    plan: Plan, clusters: Partition, ranks: Indices, evaluator: Evaluator
) -> tuple[list[Array], list[Array], list[LandmarkMap], dict[tuple[int, int], Array]]:
    """Part 2: Q_i = U_i R_i for each cluster, the map of U_i, and the core's diagonal blocks R_i diag(signs) R_iᵀ."""

    def one(i: int) -> tuple[Array, Array, LandmarkMap, Array, bool]:
        k = int(ranks[i])
        found = _sketch(plan, clusters, evaluator, i, PER_RANK * k, plan.landmarks, 1)
        Q, signs, extension = nystrom(plan.objects, clusters.members(i), k, found, evaluator, plan.working)
        U, R = orthonormalise(Q)
        R = R.astype(np.float64)
        block = (R * signs) @ R.T
        extension = replace(extension, transform=right_divide(extension.transform, R)).limited(U, block, plan.kernel)
        return U, R, extension, block, U.shape[1] < min(k, len(found.values))

    found = plan.each(one, [(i,) for i in range(clusters.n_blocks)], "bases")
    bases, triangles, maps, diagonal, shorter = (list(column) for column in zip(*found, strict=True))
    cut = sum(shorter)
    if cut:
        warn(
            f"In {cut} of {len(found)} blocks the Nyström approximation of {plan.kernel!r} would have exploded, as "
            "indefinite kernels can; the directions to blame were left out. More rank, or other landmarks, help."
        )
    return bases, triangles, maps, {(i, i): block for i, block in enumerate(diagonal)}


def links(
    plan: Plan, clusters: Partition, bases: list[Array], triangles: list[Array], evaluator: Evaluator
) -> dict[tuple[int, int], Array]:
    """Part 3: the core's blocks of the pairs that stay coupled."""
    pairs = list(kept_pairs(clusters.centre_distances(), plan.drop or 0.0))
    sides = [Side(clusters.members(i), bases[i], triangles[i]) for i in range(clusters.n_blocks)]

    def one(i: int, j: int) -> Link:
        return pairwise_link(plan.objects, sides[i], sides[j], evaluator, stream(plan.seed, 2, i, j))

    found = plan.each(one, pairs, "links")
    size = scipy.linalg.norm([scipy.linalg.norm((R @ R.T).ravel()) for R in triangles])  # the block diagonal's
    tamed = sum(link.tamed > NOTEWORTHY * size for link in found)
    if tamed:
        warn(
            f"{tamed} of {len(pairs)} links between blocks were poorly determined by their samples and would have "
            "exploded; their weakest directions were left out. More rank makes this rarer."
        )
    return {pair: link.block for pair, link in zip(pairs, found, strict=True)}
