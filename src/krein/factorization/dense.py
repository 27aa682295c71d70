"""Dense symmetric matrices: solves, determinants and eigenvalues, and the errors of singular and indefinite ones."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from krein.arrays import EPS, Array
from krein.errors import IndefiniteError, InputError
from krein.threads import large_products

__all__ = [
    "eigh",
    "eigvalsh",
    "has_cholesky",
    "indefinite",
    "is_diagonal",
    "logdet",
    "singular",
    "solve",
]


def solve(M: Array, b: Array, t: float) -> Array:
    """(M + tI)⁻¹ b, M indefinite or not: by Cholesky if it exists, else by eigenvalues. Singular is an error."""
    if b.size == 0:
        return np.zeros(b.shape)
    moved = M + t * np.eye(len(M))
    try:
        with large_products(len(M)):
            factor = scipy.linalg.cho_factor(moved, check_finite=False)
        if scipy.linalg.lapack.dpocon(factor[0], np.abs(moved).sum(0).max())[0] > EPS:
            return np.asarray(scipy.linalg.cho_solve(factor, b))
    except scipy.linalg.LinAlgError:  # indefinite matrices are solved by eigenvalues below
        pass
    values, vectors = np.linalg.eigh(moved)
    if np.abs(values).min() <= 10 * len(M) * EPS * np.abs(values).max():
        raise singular("the matrix", values)
    return np.asarray(vectors @ ((vectors.T @ b).T / values).T)


def eigh(M: Array) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors; those of a diagonal matrix are read off."""
    if not is_diagonal(M):
        with large_products(len(M)):
            return np.linalg.eigh(M)
    order = np.argsort(np.diagonal(M), kind="stable")
    vectors = np.zeros(M.shape)
    vectors[order, np.arange(len(M))] = 1.0
    return np.diagonal(M)[order], vectors


def eigvalsh(M: Array) -> Array:
    """Eigenvalues, ascending."""
    return np.sort(np.diagonal(M)) if is_diagonal(M) else np.linalg.eigvalsh(M)


def has_cholesky(M: Array, t: float) -> bool:
    """Whether M + tI has a Cholesky factorization."""
    if is_diagonal(M):
        return bool(np.all(np.diagonal(M) + t > 0.0))
    try:
        with large_products(len(M)):
            scipy.linalg.cholesky(M + t * np.eye(len(M)), check_finite=False)
    except scipy.linalg.LinAlgError:
        return False
    return True


def is_diagonal(M: Array) -> bool:
    """Whether all entries off the diagonal are zero."""
    return bool(np.count_nonzero(M) == np.count_nonzero(np.diagonal(M)))


def logdet(M: Array, t: float) -> float:
    """log det(M + tI), which has to be positive definite."""
    if not M.size:
        return 0.0
    moved = M + t * np.eye(len(M))
    try:
        return 2.0 * float(np.log(np.diag(scipy.linalg.cholesky(moved, check_finite=False))).sum())
    except scipy.linalg.LinAlgError:
        raise indefinite(min(float(np.linalg.eigvalsh(moved)[0]), 0.0)) from None


def singular(what: str, values: Array) -> InputError:
    """The error for a matrix of these eigenvalues."""
    sizes = np.abs(values)
    more = max(0.0, -float(values.min())) + 1e-8 * float(sizes.max())
    return InputError(
        f"solve needs a nonsingular matrix, but the smallest |eigenvalue| of {what} is {sizes.min():.2g}, the largest "
        f"{sizes.max():.3g}. Raise the ridge, by {more or 1.0:.3g} for instance."
    )


def indefinite(smallest: float) -> IndefiniteError:
    """The error for a log-determinant of a matrix with this smallest eigenvalue."""
    return IndefiniteError(
        f"logdet needs a positive definite matrix, but with shift and ridge the smallest eigenvalue is "
        f"{smallest:.3g}. Pass a larger ridge, or correct the factorization first (krein.correct)."
    )
