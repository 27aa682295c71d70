"""Few objects in, the parts of their exact kernel matrix out: one block whose basis are the eigenvectors of K.

K = V diag(w) Vᵀ, so U = V and M = diag(w), and u(x) = k(x, X) V / w extends it to new objects. Eigenvalues that are
zero to rounding are left out rather than inverted. It takes n² similarities and one eigendecomposition.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from krein.approximation.bases import LandmarkMap
from krein.approximation.clusters import partition
from krein.approximation.parts import Parts, store
from krein.approximation.request import Request
from krein.arrays import EPS
from krein.factorization.core import BlockSparse
from krein.kernels import Evaluator, take

__all__ = ["whole_matrix"]


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
    return store(request, clusters, [U], [extension.limited(U, core.block(0, 0), request.kernel)], core)
