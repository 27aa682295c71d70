"""A kernel and few objects in, the kernel's own matrix out: evaluated once, exactly symmetric, with its inertia."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg as spla
from scipy.linalg import blas, lapack
from tqdm import tqdm

from krein.approximation.shared import precise
from krein.arrays import EPS, Array, stream
from krein.kernels import Evaluator, Kernel, Precomputed, count_objects
from krein.kernels.collections import rows
from krein.kernels.similarities import strangers

__all__ = ["Inertia", "fill_symmetric", "inertia", "kernel_matrix", "product_with", "smallest_eigenvalue"]

# The matrix is filled in this many strips of rows, each up to the diagonal: half of the entries and a little more.
STRIPS = 8
WHOLE_ROWS = 1000  # Up to this many rows it is filled at once: kernels of vectors use the symmetry themselves.
STRIP_ENTRIES = 2**24  # A strip has at most this many entries, 128 MiB.
SMALL_MATRIX = 300  # Up to this many rows all eigenvalues take no longer than a factorization and an iteration.


def kernel_matrix(kernel: Kernel, objects: Any) -> Array:
    """Return k(objects, objects) in float64, exactly symmetric; 8 n² bytes.

    Of krein's own kernels one triangle is evaluated and mirrored. Of a kernel with something of the user's in it the
    whole matrix is evaluated, and its asymmetry is an error (`Evaluator.symmetric`).
    """
    evaluator = Evaluator(kernel, chunk_entries=STRIP_ENTRIES)
    n = count_objects(objects)
    objects = precise(objects)
    if isinstance(kernel, Precomputed) or any(True for _ in strangers(kernel)):
        return np.asarray(evaluator.symmetric(objects), dtype=np.float64)
    if n <= WHOLE_ROWS:
        K = np.asarray(evaluator.block(objects, objects), dtype=np.float64)
        K = K + K.T
        K *= 0.5
        return K
    return fill_symmetric(kernel, objects)


def fill_symmetric(kernel: Kernel, objects: Any, unit: float = 1.0, dtype: Any = np.float64, verbose: int = 0) -> Array:
    """Return k(objects, objects) / unit strip by strip, exactly symmetric, in ``dtype``.

    Of krein's own kernels one triangle is evaluated and mirrored; of any other the whole matrix, and asymmetry is an
    error.
    """
    evaluator = Evaluator(kernel, chunk_entries=STRIP_ENTRIES)
    n = count_objects(objects)
    whole = isinstance(kernel, Precomputed) or any(True for _ in strangers(kernel))
    K = np.empty((n, n), dtype=dtype)
    step = min(-(-n // STRIPS), max(1, STRIP_ENTRIES // n))
    for start in tqdm(range(0, n, step), desc="similarities", disable=not verbose):
        stop = min(start + step, n)
        strip = evaluator.block(rows(objects, slice(start, stop)), rows(objects, slice(0, n if whole else stop)))
        K[start:stop, : strip.shape[1]] = strip if unit == 1.0 else strip / unit
    if whole:
        evaluator.check_symmetric(K)
    for start in range(0, n, step):
        stop = min(start + step, n)
        K[:start, start:stop] = K[start:stop, :start].T
        corner = K[start:stop, start:stop]
        corner += corner.T.copy()
        corner *= 0.5
    return K


def product_with(A: Array) -> Any:
    """x -> A x for a symmetric matrix, from one of its triangles: half the memory traffic of a general product."""
    lower = A.T if A.flags.c_contiguous else A  # LAPACK's order, without a copy
    symv = blas.dsymv if A.dtype == np.float64 else blas.ssymv
    return lambda x: symv(1.0, lower, x) if x.ndim == 1 else A @ x


class Inertia(NamedTuple):
    """What is known of the signs of a matrix' eigenvalues."""

    n_negative: int  # eigenvalues below rounding
    smallest: float  # eigenvalue; 0 where none is negative


def inertia(K: Array, rounding: float = EPS) -> Inertia:
    """Count the negative eigenvalues of K, those within n ``rounding`` ‖K‖ of 0 not counted.

    By Sylvester's law of inertia: the factor D of K = L D Lᵀ has as many. That takes n³/3 operations, where all
    eigenvalues take 4 n³/3; the smallest one comes from a few Lanczos steps.
    """
    n = len(K)
    peak = float(np.abs(K).max(initial=0.0)) or 1.0
    scaled = K / peak  # no scale over- or underflows
    tiny = n * rounding * float(np.linalg.norm(scaled))
    if n <= SMALL_MATRIX:
        values = np.linalg.eigvalsh(scaled)
        count = int((values < -tiny).sum())
        return Inertia(count, peak * float(values[0]) if count else 0.0)
    shifted = scaled.copy()
    shifted[np.diag_indices(n)] += tiny
    work = int(lapack.dsytrf_lwork(n)[0])  # SciPy's default is too short for blocks, and six times slower
    factor, pivots, _ = lapack.dsytrf(shifted.T, lwork=work, overwrite_a=1)
    single = pivots > 0  # the other pivots are blocks of two rows, and each has one negative eigenvalue
    count = int((np.diagonal(factor)[single] < 0.0).sum()) + int((~single).sum()) // 2
    return Inertia(count, peak * smallest_eigenvalue(scaled) if count else 0.0)


def smallest_eigenvalue(K: Array) -> float:
    """The smallest eigenvalue of a symmetric matrix, to three digits."""
    operator = spla.LinearOperator(K.shape, matvec=lambda x: product_with(K)(x.ravel()), dtype=K.dtype)
    start = stream(0, 22).uniform(-1.0, 1.0, len(K)).astype(K.dtype)
    try:
        return float(
            spla.eigsh(operator, k=1, which="SA", v0=start, tol=1e-4, maxiter=30, return_eigenvectors=False)[0]
        )
    except spla.ArpackError:
        return float(scipy.linalg.eigvalsh(K, subset_by_index=(0, 0))[0])
