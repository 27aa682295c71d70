"""Ridge with similarities as features: `SimilarityFeatures`, targets and alpha in, coefficients and a function out.

Without neighbours and with "square" the system has one row per landmark, farᵀ W far + ridge I. Otherwise it is that of
the Gram matrix. `ridge_errors` gives the held-out errors from which alpha="loo" is chosen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from krein.arrays import Array, Indices
from krein.errors import InputError, warn
from krein.estimators.decision import KernelExpansion
from krein.estimators.similarity_features import STRIP_ENTRIES, SimilarityFeatures, strips
from krein.kernels import Kernel

__all__ = ["ridge_errors", "solve_ridge"]

# alpha="loo" is chosen by cross-validation on a sample of PILOT_ROWS rows.
PILOT_ROWS = 1600
# The solution is refined in at most REFINEMENT_STEPS steps until the residual is SMALL_RESIDUAL of the right hand side.
# If more than LARGEST_RESIDUAL of it remains, the system counts as singular in the precision of the factor.
SMALL_RESIDUAL = 1e-9
REFINEMENT_STEPS = 10
LARGEST_RESIDUAL = 1e-6


def solve_ridge(
    features: SimilarityFeatures, kernel: Kernel, y: Array, weights: Array, alpha: Array, scale: float = 1.0
) -> tuple[Array, KernelExpansion]:
    """(G + alpha W⁻¹)⁻¹ y for y of shape (n, p) and one alpha per column, and the function it stands for."""
    dual, far = np.empty(y.shape), np.empty((features.far.shape[1], y.shape[1]))
    by_gram = features.correction != "square" or features.near is not None
    G = features.gram(scale) if by_gram else None
    inner: dict[Any, Array] = {}
    for t in np.unique(alpha):
        mine = alpha == t
        if G is not None:
            dual[:, mine] = _solve_gram(G, y[:, mine], weights, float(t))
        else:
            far[:, mine] = _solve_inner(
                features, inner, y[:, mine], weights, float(t) / features.factor / features.unit * scale
            )
            rest = y[:, mine] - _times(features.far, far[:, mine])
            dual[:, mine] = weights[:, None] * rest / (t or 1.0)
    if G is not None:
        return dual, features.expansion(kernel, dual, scale)
    return dual, features.expanded(kernel, far / features.unit, None)


def _inner(features: SimilarityFeatures, weights: Array, dtype: Any) -> Array:
    """farᵀ W far, the upper triangle of it in C's order, computed in ``dtype``."""
    m = features.far.shape[1]
    syrk = blas.dsyrk if dtype == np.float64 else blas.ssyrk
    out, start = np.zeros((m, m), dtype=dtype, order="F"), 0
    for part in strips(features.far, STRIP_ENTRIES if dtype != features.far.dtype else 16 * STRIP_ENTRIES):
        root = np.sqrt(weights[start : start + len(part)])
        scaled = part.astype(dtype, copy=False) if np.all(root == 1.0) else (part * root[:, None]).astype(dtype)
        out = syrk(1.0, scaled.T, beta=1.0, c=out, lower=1, overwrite_c=1)
        start += len(part)
    return np.asarray(out.T)


def _solve_inner(
    features: SimilarityFeatures, inner: dict[Any, Array], y: Array, weights: Array, ridge: float
) -> Array:
    """(farᵀ W far + ridge I)⁻¹ farᵀ W y by a Cholesky factor, refined with the features themselves.

    The factor has double precision where single does not converge: a small ridge is beyond its rounding.
    """
    asked = ridge
    for dtype in dict.fromkeys((features.far.dtype.type, np.float64)):
        if dtype not in inner:
            inner[dtype] = _inner(features, weights, dtype)
        found, left = _refined(features, inner[dtype], y, weights, ridge)
        if left <= LARGEST_RESIDUAL:
            return found
    least = float(np.finfo(float).eps) * float(np.trace(inner[np.float64])) or 1.0
    if not math.isfinite(least):
        raise InputError("Squares of the similarities are too large to be held. Divide the kernel by a constant.")
    while not left <= LARGEST_RESIDUAL:
        ridge = max(10.0 * ridge, least)
        found, left = _refined(features, inner[np.float64], y, weights, ridge)
    warn(
        f"alpha leaves a system of {len(found)} similarities that is singular to rounding; one "
        f"{ridge / asked if asked else math.inf:.1g} times as large is used. Pass a larger alpha."
    )
    return found


def _refined(features: SimilarityFeatures, inner: Array, y: Array, weights: Array, ridge: float) -> tuple[Array, float]:
    """The solution, and the share of the right hand side that its residual is; infinity if there is no factor."""
    F, (m, p) = features.far, (len(inner), y.shape[1])
    potrf, potrs = (lapack.dpotrf, lapack.dpotrs) if inner.dtype == np.float64 else (lapack.spotrf, lapack.spotrs)
    A = inner.copy()
    A[np.diag_indices(m)] += ridge
    factor, failed = potrf(A.T, lower=1, clean=0, overwrite_a=1)
    x, left = np.zeros((m, p)), math.inf
    if failed:
        return x, left
    right = _times_transposed(F, weights[:, None] * y)
    sizes = np.maximum(np.linalg.norm(right, axis=0), np.finfo(float).tiny)
    rest = right
    for _ in range(REFINEMENT_STEPS):
        step = potrs(factor, np.asfortranarray(rest / sizes, dtype=inner.dtype), lower=1)[0].astype(np.float64)
        further = x + step * sizes
        rest = right - _times_transposed(F, weights[:, None] * _times(F, further)) - ridge * further
        now = float((np.linalg.norm(rest, axis=0) / sizes).max())
        if not now < left:
            break
        x, before, left = further, left, now
        if left <= SMALL_RESIDUAL or left > 0.5 * before:
            break
    return x, left


def ridge_errors(
    features: SimilarityFeatures,
    y: Array,
    weights: Array,
    alphas: Array,
    classes: Indices | None = None,
) -> tuple[Indices, Array]:
    """Return held-out rows and the errors of ridge there, (alphas, rows, p), trained on the others."""
    held_out, errors = [], []
    found = [] if classes is None else list(features.held_out_folds(classes, "classification", PILOT_ROWS))
    for learn, held in found or features.held_out_folds(
        y, "regression", PILOT_ROWS
    ):  # all of the sampled rows may have one class
        if features.correction == "none":
            G, R = (features.unit * found for found in features.own_matrices(learn, held))
        else:
            G, R = features.squared_matrices(learn, held)
        root = np.sqrt(weights[learn])[:, None]
        values, V = np.linalg.eigh(root * G * root.T)
        right, left = V.T @ (root * y[learn]), (R * root.T) @ V
        inverse = 1.0 / np.maximum(np.maximum(values, 0.0) + alphas[:, None], np.finfo(float).tiny)
        held_out.append(held)
        errors.append(np.stack([y[held] - left @ (d[:, None] * right) for d in inverse]))
    return np.concatenate(held_out), np.concatenate(errors, axis=1)


def _solve_gram(G: Array, y: Array, weights: Array, alpha: float) -> Array:
    """(G + alpha W⁻¹)⁻¹ y; rows without weight have the coefficient 0."""
    root = np.sqrt(weights)[:, None]
    A = np.asarray(root * G * root.T, dtype=np.float64)
    least = len(A) * float(np.finfo(float).eps) * float(np.abs(np.diagonal(A)).max())
    if alpha < least:
        warn(
            f"alpha = {alpha:g} leaves a matrix that is singular to rounding; {least:.2g} is used. Pass a larger alpha."
        )
    A[np.diag_indices(len(A))] += max(alpha, least)
    factor, failed = lapack.dpotrf(A.T, lower=1, overwrite_a=1)
    if failed:
        raise InputError(f"alpha = {alpha:g} leaves a matrix that is singular to rounding. Pass a larger alpha.")
    return np.asarray(root * lapack.dpotrs(factor, root * y, lower=1)[0])


def _times(F: Array, x: Array) -> Array:
    """F x in double precision, whatever F has."""
    if F.dtype == np.float64:
        return np.asarray(F @ x)
    return np.concatenate([part.astype(np.float64) @ x for part in strips(F)])


def _times_transposed(F: Array, x: Array) -> Array:
    """Fᵀ x in double precision, whatever F has."""
    if F.dtype == np.float64:
        return np.asarray(F.T @ x)
    out, start = np.zeros((F.shape[1], x.shape[1])), 0
    for part in strips(F):
        out += part.astype(np.float64).T @ x[start : start + len(part)]
        start += len(part)
    return out
