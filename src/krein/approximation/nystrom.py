"""One block of a given rank: objects and a psd kernel in, orthonormal basis, diagonal core and extension out.

Nyström's approximation is K ~ C W⁻¹ Cᵀ with landmarks Z, C = k(X, Z) and W = k(Z, Z) = L Lᵀ, so that K ~ F Fᵀ with
F = C L⁻ᵀ. From the Gram matrix FᵀF = V diag(lambda) Vᵀ follow U = F V lambda^(-1/2), orthonormal, and
M = diag(lambda), which is psd by construction. New objects have u(x) = k(x, Z) L⁻ᵀ V lambda^(-1/2). It takes n l
similarities for l landmarks, and matrix products only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.linalg

from krein.approximation.bases import LandmarkMap, choose_landmarks, other_rows
from krein.approximation.clusters import Partition
from krein.approximation.request import Parts, Request, limited, store
from krein.arrays import Array, Indices, stream, strips
from krein.factorization import Factorization
from krein.factorization.bases import rounded_product
from krein.factorization.core import BlockSparse
from krein.factorization.factorization import stays_sparse
from krein.kernels import Evaluator, Kernel, take
from krein.kernels.collections import precise

__all__ = [
    "DIAGONAL_TOLERANCE", "cholesky_of", "divided", "features", "gram_of", "leading_turn", "n_landmarks", "one_block",
    "rounding_of",
]  # fmt: skip

# Up to MOST_OVERSAMPLED landmarks cost next to nothing, so small ranks take OVERSAMPLING landmarks per direction and
# keep the strongest directions. Larger ranks take as many landmarks as directions: Nyström's method as it is known.
OVERSAMPLING, MOST_OVERSAMPLED = 6, 512
# These multiples of the rounding of W are added to its diagonal, one after the other, until it has a Cholesky factor.
SHIFTS = (1.0, 10.0, 100.0, 1000.0)
# A kernel that is not declared psd is indefinite if some |f(x)|² exceeds k(x, x) by more than this share.
DIAGONAL_TOLERANCE = 1e-3
# This many rows of F are converted to float64 at a time.
GRAM_ROWS = 4096


def n_landmarks(rank: int, n: int) -> int:
    """The number of landmarks among n objects for one block of this rank."""
    return min(n, max(rank, min(OVERSAMPLING * rank, MOST_OVERSAMPLED, n - 1)))


def one_block(request: Request, clusters: Partition, evaluator: Evaluator) -> Parts | None:
    """Nyström's approximation of the request's rank, or None if the kernel turns out to be indefinite.

    A kernel that is not declared psd counts as psd if W has a Cholesky factor and no |f(x)|² exceeds k(x, x).
    """
    objects, n, declared = request.objects, request.n, request.kernel.traits.psd is True
    rank = min(n, request.rank_sum(1))
    places = None if clusters.embedding is None else lambda some: clusters.places(evaluator, some)
    count, rng = n_landmarks(rank, n), stream(request.seed, 1, 0)
    rows = choose_landmarks(objects, np.arange(n), count, request.landmarks, evaluator, rng, places)
    landmarks = take(objects, rows)
    own = evaluator.own(landmarks)
    W = evaluator.symmetric(precise(landmarks), rows).astype(np.float64)
    peak = float(np.abs(W).max(initial=0.0))
    if peak == 0.0:
        return None
    L = cholesky_of(W / peak, rounding_of(request), declared)
    if L is None:
        return None
    F: Array = np.empty((n, len(rows)), dtype=request.working)  # C L⁻ᵀ / peak, with the rows of landmarks from W

    def fill(part: Indices, block: Array) -> None:  # in float64: what is nothing in F must not become rounding
        held = np.array(block, dtype=np.float64, order="C") / peak
        _divide(held, L)
        F[part] = held

    fill(rows, W)
    for part, block in other_rows(objects, np.arange(n), rows, precise(landmarks), own, evaluator):
        fill(part, block)
    if not declared and _too_large(F, evaluator.diag(objects) / peak):
        return None
    as_it_is = declared and request.storage == "float32"
    stored, combine, values, turn = _orthonormal(F, rank, as_it_is)
    transform = scipy.linalg.solve_triangular(L, turn, lower=True, trans="T", check_finite=False) / peak
    usual = peak * float(np.linalg.norm(W / peak, axis=1).max())
    extension = LandmarkMap(landmarks, rows, transform, own, usual)
    core = BlockSparse.from_blocks([len(values)], {(0, 0): np.diag(values * peak)})
    if combine is None:
        return store(request, clusters, [stored], limited(request, [stored], [extension], core), core)
    held = core if stays_sparse(core) else core.to_dense()
    return Parts(clusters, (extension,), Factorization.from_blocks((stored,), held, clusters.order, 0.0, (combine,)))


def features(kernel: Kernel, objects: Any, landmarks: Indices, parts: Iterable[Indices]) -> list[Array] | None:
    """F = k(X, Z) L⁻ᵀ for several sets of rows, in the type of k; None if the kernel turns out to be indefinite.

    The first j columns depend on the first j landmarks only, so that one F serves every lower rank.
    """
    declared, evaluator, chosen = kernel.traits.psd is True, Evaluator(kernel), take(objects, landmarks)
    own = evaluator.own(chosen)
    W = evaluator.symmetric(precise(chosen), landmarks).astype(np.float64)
    peak = float(np.abs(W).max(initial=0.0))
    out: list[Array] = []
    for rows in parts:
        some = take(objects, rows)
        F = np.array(evaluator.cross(some, chosen, own), order="C")
        if not out:
            L = None if peak == 0.0 else cholesky_of(W / peak, float(np.finfo(F.dtype).eps), declared)
        if L is None:
            return None
        _divide(F, L)
        F /= F.dtype.type(math.sqrt(peak))
        if not declared and _too_large(F, evaluator.diag(some)):
            return None
        out.append(F)
    return out


def _divide(F: Array, L: Array) -> None:
    """Replace F by F L⁻ᵀ. F is C-ordered, so that BLAS works on its transpose in place."""
    trsm = scipy.linalg.blas.get_blas_funcs("trsm", (F,))
    trsm(1.0, L.astype(F.dtype), F.T, side=0, lower=1, overwrite_b=1)


def _too_large(F: Array, own: Array) -> bool:
    """Whether some |f(x)|² exceeds |k(x, x)|, which no psd kernel allows."""
    return bool((np.einsum("ij,ij->i", F, F) > (1.0 + DIAGONAL_TOLERANCE) * np.abs(own)).any())


def cholesky_of(W: Array, rounding: float, declared: bool) -> Array | None:
    """L with L Lᵀ = W + shift I for the smallest of some shifts that has a Cholesky factor; None if W is indefinite."""
    unit = len(W) * rounding * float(np.diagonal(W).mean())
    for factor in SHIFTS if declared else SHIFTS[:1]:
        shifted = W.copy()
        shifted[np.diag_indices_from(W)] += factor * unit
        try:
            return np.asarray(scipy.linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False))
        except scipy.linalg.LinAlgError:
            continue
    return None


def _orthonormal(F: Array, rank: int, as_it_is: bool) -> tuple[Array, Array | None, Array, Array]:
    """Return (stored, combine, values, turn): F Fᵀ ~ U diag(values) Uᵀ with U = F turn of at most ``rank`` columns.

    U is ``stored``, or ``stored @ combine`` with ``as_it_is``: then F itself is stored, and ``combine`` makes it
    orthonormal in float64. Eigenvectors of the Gram matrix leave weak directions less than orthonormal. A Cholesky
    factor of UᵀU corrects that. It changes diag(values) by no more than rounding, as strong directions come first.
    """
    turn, values = leading_turn(gram_of(F), rank)
    R = scipy.linalg.cholesky(gram_of(F, turn), check_finite=False)
    turn, values = divided(turn, R), values * np.diagonal(R) ** 2
    if as_it_is and len(values) == F.shape[1]:  # F is stored, and U = F turn
        return F, turn, values, turn
    return rounded_product(F, turn), None, values, turn


def divided(turn: Array, R: Array) -> Array:
    """Return turn R⁻¹ for an upper triangular R."""
    return np.asarray(scipy.linalg.solve_triangular(R, turn.T, trans="T", check_finite=False).T)


def leading_turn(G: Array, rank: int) -> tuple[Array, Array]:
    """Return (turn, values): the ``rank`` strongest eigenvalues of a Gram matrix FᵀF that are above rounding.

    F turn has columns of length 1.
    """
    values, V = np.linalg.eigh(G)
    values, V = values[::-1], V[:, ::-1]
    floor = len(values) * float(np.finfo(np.float64).eps) * values[0]
    k = min(rank, int((values > floor).sum()))
    return V[:, :k] / np.sqrt(values[:k]), values[:k]


def rounding_of(request: Request) -> float:
    """The rounding unit of the rows of F."""
    return float(np.finfo(request.working if request.own_dtype == "float64" else np.float32).eps)


def gram_of(F: Array, turn: Array | None = None) -> Array:
    """The Gram matrix of F, or of F turn, in float64."""
    if F.dtype == np.float64 and turn is None:
        return np.asarray(F.T @ F)
    k = (F if turn is None else turn).shape[1]
    total = np.zeros((k, k))
    for part in strips(len(F), 1, GRAM_ROWS):
        rows = F[part].astype(np.float64)
        U = rows if turn is None else rows @ turn
        total += U.T @ U
    return total
