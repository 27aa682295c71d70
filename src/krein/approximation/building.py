"""A complete request in, the parts of an approximation out: each coupling has a file of its own.

The matrix of few objects is kept exactly, in one block whose basis are the eigenvectors of K. With K = V diag(w) Vᵀ
that is U = V and M = diag(w), and u(x) = k(x, X) V / w for new objects. Eigenvalues that are zero to rounding are left
out. It takes n² similarities and one eigendecomposition.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from krein.approximation.bases import LandmarkMap
from krein.approximation.clusters import partition
from krein.approximation.landmark import couple_by_landmarks
from krein.approximation.nystrom import one_block
from krein.approximation.pairwise import meka
from krein.approximation.piecewise import couple_pieces
from krein.approximation.request import Parts, Request, limited, store
from krein.approximation.shared import couple_by_samples
from krein.arrays import EPS
from krein.factorization.core import BlockSparse
from krein.kernels import Evaluator, take
from krein.pieces.rows import RowPieces

__all__ = ["build", "whole_matrix"]


def build(request: Request, evaluator: Evaluator) -> Parts:
    """Build what a request with its number of blocks and its ranks asks for."""
    assert request.n_blocks is not None
    if isinstance(request.objects, RowPieces):
        return couple_pieces(request, evaluator)
    match request.coupling:
        case "pairwise":
            return store(request, *meka(request, evaluator))
        case "landmark":
            return store(request, *couple_by_landmarks(request, evaluator))
        case _:
            clusters = partition(request.objects, request.n_blocks, evaluator, request.seed)
            if clusters.n_blocks == 1 and request.rank_sum(1) >= request.n:
                return whole_matrix(request, evaluator)
            one = one_block(request, clusters, evaluator) if clusters.n_blocks == 1 else None
            return couple_by_samples(request, clusters, evaluator) if one is None else one


def whole_matrix(request: Request, evaluator: Evaluator) -> Parts:
    """Return k(objects, objects) in one block, exact to rounding."""
    clusters = partition(request.objects, 1, evaluator, request.seed)
    K = evaluator.symmetric(request.objects).astype(np.float64, copy=False)  # symmetric returns a matrix of its own
    n, peak = len(K), float(np.abs(K).max()) or 1.0
    K /= peak  # no scale over- or underflows
    usual = float(peak * np.linalg.norm(K, axis=1).max())
    values, vectors = scipy.linalg.eigh(K.T, overwrite_a=True, check_finite=False, driver="evd")
    kept = np.flatnonzero(np.abs(values) > n * EPS * np.abs(values).max())
    kept = kept[np.argsort(-np.abs(values[kept]), kind="stable")]
    U, w = np.asfortranarray(vectors[:, kept]), values[kept] * peak
    del K, vectors  # n² numbers
    own = evaluator.own(request.objects)
    every = np.arange(n)
    extension = LandmarkMap(take(request.objects, every), every, U / w, own, usual)  # a copy, as all landmarks are
    core = BlockSparse.from_blocks([len(w)], {(0, 0): np.diag(w)})
    return store(request, clusters, [U], limited(request, [U], [extension], core), core)
