"""One block of a given rank: objects and a psd kernel in, orthonormal basis, diagonal core and extension out.

Nyström's approximation is K ~ C W⁻¹ Cᵀ with landmarks Z, C = k(X, Z) and W = k(Z, Z) = L Lᵀ, so that K ~ F Fᵀ with
F = C L⁻ᵀ. From the Gram matrix FᵀF = V diag(lambda) Vᵀ follow U = F V lambda^(-1/2), orthonormal, and
M = diag(lambda): psd by construction. New objects have u(x) = k(x, Z) L⁻ᵀ V lambda^(-1/2). It takes n l
similarities for l landmarks, and BLAS-3 alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from krein.approximation.bases import LandmarkMap
from krein.approximation.clusters import Partition
from krein.approximation.landmarks import choose_landmarks
from krein.approximation.request import Request
from krein.approximation.shared import precise
from krein.arrays import Array, Indices, stream, strips
from krein.kernels import Evaluator, Kernel, take

__all__ = ["OneBlock", "features", "gram_of", "n_landmarks", "one_block"]

# Up to MOST_OVERSAMPLED landmarks cost next to nothing, so small ranks take OVERSAMPLING landmarks per direction and
# keep the strongest directions. Larger ranks take as many landmarks as directions: Nyström's method as it is known.
OVERSAMPLING, MOST_OVERSAMPLED = 6, 512
SHIFTS = (1.0, 10.0, 100.0, 1000.0)  # multiples of W's rounding, added to its diagonal until it has a Cholesky factor
TOLERANCE = 1e-3  # |f(x)|² may exceed k(x, x) by this share before a kernel that declares nothing counts as indefinite
GRAM_ROWS = 4096  # rows of F that are converted to float64 at a time


@dataclass(frozen=True, eq=False)
class OneBlock:
    """K ~ U diag(values) Uᵀ with U = stored @ combine, or U = stored where combine is None."""

    stored: Array  # (n, k)
    combine: Array | None  # (k, k), for bases stored in float32: it makes them orthonormal in float64
    values: Array  # (k,) falling
    extension: LandmarkMap


def n_landmarks(rank: int, n: int) -> int:
    """How many of n objects are landmarks of one block of this rank."""
    return min(n, max(rank, min(OVERSAMPLING * rank, MOST_OVERSAMPLED, n - 1)))


def one_block(plan: Request, rank: int, clusters: Partition, evaluator: Evaluator) -> OneBlock | None:
    """Nyström's approximation in orthonormal form, or None where the kernel turns out to be indefinite.

    A kernel that is not declared psd is taken for it while W has a Cholesky factor and no |f(x)|² exceeds k(x, x).
    """
    objects, n, declared = plan.objects, plan.n, plan.kernel.traits.psd is True
    places = None if clusters.embedding is None else lambda some: clusters.places(evaluator, some)
    count, rng = n_landmarks(rank, n), stream(plan.seed, 1, 0)
    rows = choose_landmarks(objects, np.arange(n), count, plan.landmarks, evaluator, rng, places)
    landmarks = take(objects, rows)
    own = evaluator.own(landmarks)
    W = evaluator.symmetric(precise(landmarks), rows).astype(np.float64)
    peak = float(np.abs(W).max(initial=0.0))
    if peak == 0.0:
        return None
    rounding = float(np.finfo(plan.working if plan.own_dtype == "float64" else np.float32).eps)
    L = _cholesky(W / peak, rounding, declared)
    if L is None:
        return None
    F = _columns(plan, rows, landmarks, own, W, peak, evaluator)
    _divide(F, L)
    if not declared and _too_large(F, evaluator.diag(objects) / peak):
        return None
    as_it_is = declared and (plan.dtype or plan.own_dtype) == "float32"
    stored, combine, values, turn = _orthonormal(F, rank, as_it_is)
    transform = scipy.linalg.solve_triangular(L, turn, lower=True, trans="T", check_finite=False) / peak
    usual = peak * float(np.linalg.norm(W / peak, axis=1).max())
    return OneBlock(stored, combine, values * peak, LandmarkMap(landmarks, rows, transform, own, usual))


def features(kernel: Kernel, objects: Any, landmarks: Indices, parts: Iterable[Indices]) -> list[Array] | None:
    """F = k(X, Z) L⁻ᵀ for several parts of the rows, in the type of k; None if the kernel turns out to be indefinite.

    The first j columns are those of the first j landmarks alone, so that one F serves every lower rank.
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
            L = None if peak == 0.0 else _cholesky(W / peak, float(np.finfo(F.dtype).eps), declared)
        if L is None:
            return None
        _divide(F, L)
        F /= F.dtype.type(math.sqrt(peak))
        if not declared and _too_large(F, evaluator.diag(some)):
            return None
        out.append(F)
    return out


def _divide(F: Array, L: Array) -> None:
    """F <- F L⁻ᵀ, in place: F is C-ordered, so that its transpose is what BLAS works on."""
    trsm = scipy.linalg.blas.get_blas_funcs("trsm", (F,))
    trsm(1.0, L.astype(F.dtype), F.T, side=0, lower=1, overwrite_b=1)


def _too_large(F: Array, own: Array) -> bool:
    """Whether some |f(x)|² exceeds |k(x, x)|, which no psd kernel allows."""
    return bool((np.einsum("ij,ij->i", F, F) > (1.0 + TOLERANCE) * np.abs(own)).any())


def _cholesky(W: Array, rounding: float, declared: bool) -> Array | None:
    """L with L Lᵀ = W + shift I, for the smallest shift that makes it stable; None if W is indefinite."""
    unit = len(W) * rounding * float(np.diagonal(W).mean())
    for factor in SHIFTS if declared else SHIFTS[:1]:
        shifted = W.copy()
        shifted[np.diag_indices_from(W)] += factor * unit
        try:
            return np.asarray(scipy.linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False))
        except scipy.linalg.LinAlgError:
            continue
    return None


def _columns(
    plan: Request, rows: Indices, landmarks: Any, own: Array | None, W: Array, peak: float, evaluator: Evaluator
) -> Array:
    """C / peak, (n, l). The landmarks' own rows are those of W, so that n l similarities are evaluated in all."""
    C: Array = np.empty((plan.n, len(rows)), dtype=plan.working)
    C[rows] = W / peak
    rest = np.ones(plan.n, dtype=bool)
    rest[rows] = False
    others = np.flatnonzero(rest)
    step = max(1, evaluator.chunk_entries // max(1, len(rows)))
    for start in range(0, len(others), step):
        part = others[start : start + step]
        block = evaluator.cross(take(plan.objects, part), landmarks, own)
        C[part] = block if peak == 1.0 else block / block.dtype.type(peak)
    return C


def _orthonormal(F: Array, rank: int, as_it_is: bool) -> tuple[Array, Array | None, Array, Array]:
    """(stored, combine, values, turn): U = F turn spans the ``rank`` strongest directions of F Fᵀ ~ U diag(values) Uᵀ.

    Eigenvectors of the Gram matrix leave weak directions orthonormal to rounding over their share of FᵀF alone. A
    Cholesky factor of UᵀU mends that; it changes diag(values) by no more than rounding as strong directions come first.
    """
    values, V = np.linalg.eigh(gram_of(F))
    values, V = values[::-1], V[:, ::-1]
    floor = len(values) * float(np.finfo(np.float64).eps) * values[0]
    k = min(rank, int((values > floor).sum()))
    turn = V[:, :k] / np.sqrt(values[:k])
    if as_it_is and k == F.shape[1]:  # F is stored, and U = F turn
        R = scipy.linalg.cholesky(gram_of(F, turn), check_finite=False)
        turn = _divided(turn, R)
        return F, turn, values[:k] * np.diagonal(R) ** 2, turn
    U = F @ turn.astype(F.dtype)
    R = scipy.linalg.cholesky(gram_of(U), check_finite=False)
    scipy.linalg.blas.get_blas_funcs("trsm", (U,))(
        1.0, R.astype(U.dtype), U.T, side=0, lower=0, trans_a=1, overwrite_b=1
    )  # U <- U R⁻¹
    return U, None, values[:k] * np.diagonal(R) ** 2, _divided(turn, R)


def _divided(turn: Array, R: Array) -> Array:
    return np.asarray(scipy.linalg.solve_triangular(R, turn.T, trans="T", check_finite=False).T)


def gram_of(F: Array, turn: Array | None = None) -> Array:
    """(F turn)ᵀ(F turn) in float64."""
    if F.dtype == np.float64 and turn is None:
        return np.asarray(F.T @ F)
    k = (F if turn is None else turn).shape[1]
    total = np.zeros((k, k))
    for part in strips(len(F), 1, GRAM_ROWS):
        rows = F[part].astype(np.float64)
        U = rows if turn is None else rows @ turn
        total += U.T @ U
    return total
