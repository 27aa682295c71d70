"""The evidence (log marginal likelihood) of observations, and amplitude, noise and correction of most evidence.

The evidence of a dense covariance is exact, and its gradient in the kernel's parameters analytic. That of an
approximation is in `posterior`. `learning` maximises the first over all parameters of a kernel object.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import cho_solve, cholesky, lapack

from krein.approximation import Approximation
from krein.arrays import EPS, Array
from krein.errors import InputError
from krein.estimators.choose_correction import judge_for
from krein.estimators.gaussian_process.kernels import (
    amplitude_of,
    covariance_and_gradient,
    leaf_of,
    noise_level,
    noise_place,
    scale_places,
    signal,
)
from krein.estimators.gaussian_process.posterior import LOG_2PI, Scales, posterior, scaled
from krein.estimators.route import Exact, Route
from krein.factorization import Factorization
from krein.factorization.eigensystem import Eigensystem
from krein.kernels import count_objects, is_vectors
from krein.kernels.collections import rows
from krein.pieces.rows import RowPieces

__all__ = [
    "PSD_ROUNDING",
    "Evidence",
    "Observations",
    "choose_correction",
    "corrected_evidence",
    "covariance",
    "diagonal",
    "evidence_by",
    "evidence_of",
    "exact_evidence",
    "factored",
    "inverse_by",
    "is_psd",
    "known_noise",
    "noise_of",
    "observations_of",
    "only_scales_are_open",
    "self_similarities",
    "with_best_scales",
]

# A kernel declared psd may have negative eigenvalues of this share of the largest one.
PSD_ROUNDING = 1e-8
# At most TILE_ENTRIES entries of the covariance are evaluated at a time.
TILE_ENTRIES = 2**22

Evidence: TypeAlias = "tuple[float, Callable[[], tuple[Array, Array]], Array, Array | None]"


@dataclass(frozen=True, eq=False)
class Observations:
    """Objects and their targets, with the noise that is known of them."""

    objects: Any
    y: Array  # (m, p)
    noise: Array  # (m,) known variance of the noise, in addition to that of the kernel
    own: dict[str, Array] = field(default_factory=dict)  # cache of self-similarities


def known_noise(given: Any, n: int) -> Array:
    """Check the parameter alpha, and return one variance per row."""
    try:
        alpha = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"alpha must be a number or one number per row, variances; got {given!r}.") from None
    if alpha.ndim > 1 or (alpha.ndim == 1 and len(alpha) not in (1, n)):
        raise InputError(
            f"alpha must be a scalar or an array with same number of entries as y. ({alpha.shape} != ({n},))"
        )
    if not np.isfinite(alpha).all() or alpha.min() < 0.0:
        raise InputError(f"alpha must be finite and at least 0, a variance; got {given!r}.")
    return np.broadcast_to(alpha, (n,)).copy()


def observations_of(machine: Any) -> Observations:
    """Return the training data of a regressor."""
    n = len(machine.y_train_)
    return Observations(machine.X_train_, machine.y_train_.reshape(n, -1), known_noise(machine.alpha, n))


def noise_of(kernel: Any, group: Observations) -> Any:
    """Return the variance of the noise: one number, or one per row if they differ."""
    level = noise_level(kernel)
    if level is None:
        level = kernel.diag(group.objects) - signal(kernel).diag(group.objects)
    noise = group.noise + level
    return float(noise[0]) if np.ptp(noise) <= 1e-12 * noise.max() else noise


def with_best_scales(
    f: Factorization, system: Eigensystem, kernel: Any, whole: Observations
) -> tuple[Factorization, Eigensystem, Any]:
    """Return the factorization and the kernel with the amplitude and the noise of most evidence on all rows.

    Nothing is changed if the kernel has neither, or if the noise differs between rows.
    """
    places, place, noise = scale_places(kernel), noise_place(kernel), noise_of(kernel, whole)
    if (places is None and place is None) or np.ndim(noise) > 0:
        return f, system, kernel
    theta, ends = kernel.theta, kernel.bounds
    level = 0.0 if place is None else math.exp(theta[place])
    bounds = np.zeros((2, 2))
    if places is not None:
        bounds[0] = (ends[places, 0] - theta[places]).max(), (ends[places, 1] - theta[places]).min()
    if place is not None:
        bounds[1] = ends[place]
    free = (places is not None, place is not None)
    known = max(0.0, float(noise) - level)
    ratio, level = Scales.of(f, whole.y, system).best(level, known, bounds, free)
    if places is not None:
        theta[places] += math.log(ratio)
    if place is not None:
        theta[place] = math.log(level)
    f, system = scaled(f, system, ratio)
    return f, system, kernel.clone_with_theta(np.clip(theta, ends[:, 0], ends[:, 1]))


def choose_correction(
    a: Approximation,
    kernel: Any,
    whole: Observations,
    completed: Callable[[Approximation], tuple[Factorization, Eigensystem]],
    *,
    exact: bool,
    settle: bool,
) -> str:
    """Return "clip", or "flip" if that has more evidence and clearly better predictions of held-out rows.

    The evidence alone is not enough: flipping a small eigenvalue hardly changes the fit, but misleads new objects.
    With ``settle`` each correction is judged at its own best amplitude and noise. If the ``exact`` matrix of a kernel
    declared psd has negative eigenvalues of the size of rounding, the result is "none".
    """
    ends = a.factorization.ends()
    if a.kernel.traits.psd and exact and -ends.smallest <= PSD_ROUNDING * ends.largest:
        return "none"

    def best(how: str | None) -> tuple[Factorization, Eigensystem, Any]:
        f, system = completed(a if how is None else a.corrected(how))
        return with_best_scales(f, system, kernel, whole) if settle else (f, system, kernel)

    def evidence(how: str) -> float:
        f, system, at = best(how)
        return posterior(f, noise_of(at, whole), whole.y, system).evidence

    if evidence("clip") >= evidence("flip"):
        return "clip"
    f, system, at = best("flip" if settle else None)
    ratio = float(np.abs(system.values).max()) / max(abs(ends.smallest), abs(ends.largest))  # to the kernel's units
    strength = (float(np.mean(noise_of(at, whole))) + f.shift) / ratio
    judge = judge_for(whole.y, "regression", learner="ridge", strength=strength, names=("clip", "flip"), seed=a.seed)
    return judge(a)


# -- of a dense covariance ---------------------------------------------------------------------------------------------


def evidence_of(K: Array, noise: Array, y: Array, how: str | None = None) -> Evidence:
    """Return the evidence of y for a dense covariance K + diag(noise), and what follows from it.

    The result is (log p(y), a function that returns the derivatives W by K and by the noise, the dual coefficients, the
    Cholesky factor). d log p / d theta is the sum of W * dK / d theta. ``how`` is the correction of an indefinite K. It
    is a function of the spectrum, whose derivative follows from divided differences (Daleckii and Krein). Without a
    correction an indefinite K has the evidence -inf.
    """
    if how is not None:
        return corrected_evidence(K, noise, y, how, evidence_of)
    H = K.copy()
    H[np.diag_indices_from(H)] += noise
    R = factored(H)
    if R is None:
        return -np.inf, lambda: (np.zeros_like(K), np.zeros(len(K))), np.zeros_like(y), None
    dual = cho_solve((R, True), y, check_finite=False)

    def slope() -> tuple[Array, Array]:
        W = -0.5 * y.shape[1] * inverse_by(R)
        W += 0.5 * dual @ dual.T
        return W, np.diag(W)

    return evidence_by(R, dual, y), slope, dual, R


def factored(H: Array) -> Array | None:
    """Return the lower Cholesky factor of a symmetric matrix, or None if it is not positive definite.

    The matrix is overwritten.
    """
    R, failed = lapack.dpotrf(H.T, lower=1, clean=1, overwrite_a=1)  # H.T is H, and in LAPACK's order
    return R if failed == 0 else None


def evidence_by(R: Array, dual: Array, y: Array) -> float:
    """Return log p(y), summed over the targets, from the Cholesky factor R and dual = (R Rᵀ)⁻¹ y of shape (n, p)."""
    n, p = y.shape
    return float(-0.5 * (y * dual).sum() - p * (np.log(np.diag(R)).sum() + 0.5 * n * LOG_2PI))


def inverse_by(R: Array) -> Array:
    """Return (R Rᵀ)⁻¹, by a third of the operations that solving for the identity takes."""
    lower, _ = lapack.dpotri(R, lower=1)
    lower = np.tril(lower)
    out = lower + lower.T
    out[np.diag_indices_from(out)] *= 0.5
    return np.asarray(out)


SPECTRAL: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "clip": (lambda v: np.maximum(v, 0.0), lambda v: (v > 0.0).astype(float)),
    "flip": (np.abs, np.sign),
    "square": (np.square, lambda v: 2.0 * v),
}


def corrected_evidence(K: Array, noise: Array, y: Array, how: str, of: Callable[..., Evidence]) -> Evidence:
    """Return ``of(K, noise, y)`` for the corrected K, with derivatives by the uncorrected K."""
    if how != "square" and is_psd(K):  # nothing to correct
        return of(K, noise, y)
    values, V = np.linalg.eigh(K)
    function, derivative = SPECTRAL[how]
    changed = function(values)
    value, slope, dual, R = of((V * changed) @ V.T, noise, y)

    def through() -> tuple[Array, Array]:
        W, by_noise = slope()
        gaps = values[:, None] - values
        near = np.abs(gaps) <= 1e-8 * max(float(np.abs(values).max()), 1e-300)
        rates = np.where(near, derivative(values)[:, None], changed[:, None] - changed) / np.where(near, 1.0, gaps)
        return V @ (rates * (V.T @ W @ V)) @ V.T, by_noise

    return value, through, dual, R


def is_psd(K: Array, tolerance: float = 0.0) -> bool:
    """Return whether K is psd up to rounding and up to ``tolerance`` times the largest diagonal entry.

    A Cholesky factorization decides it, which is cheaper than eigenvalues.
    """
    H = K.copy()
    H[np.diag_indices_from(H)] += (10.0 * len(K) * EPS + tolerance) * float(np.abs(np.diag(K)).max())
    try:
        cholesky(H, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True


def exact_evidence(
    kernel: Any, group: Observations, how: str | None, slopes: bool, of: Callable[..., Evidence] = evidence_of
) -> tuple[float, Array]:
    """Return (log p(y), its gradient in theta) for the dense covariance of a kernel object.

    ``of`` computes the evidence, as `evidence_of` does. ``how`` is the correction of an indefinite signal, or None.
    """
    none = np.zeros(kernel.n_dims)
    K, gradient = covariance_and_gradient(kernel, group.objects) if slopes else (kernel(group.objects), None)
    extra = np.zeros(len(K))
    if how is not None:  # only the signal is corrected, not the noise
        clean = signal(kernel).diag(group.objects)
        extra = np.diag(K) - clean
        np.fill_diagonal(K, clean)
    value, derivative = of(K, extra + group.noise, group.y, how)[:2]
    if gradient is None or not np.isfinite(value):
        return value, none
    W, by_noise = derivative()
    found = gradient(W)
    place = noise_place(kernel)
    if how is not None and place is not None:
        found[place] = math.exp(kernel.theta[place]) * by_noise.sum()
    return value, found


def covariance(kernel: Any, group: Observations) -> Array:
    """Return the covariance of the targets, (n, n), of which only the upper triangle is set.

    It is filled tile by tile, with half the evaluations of the full matrix and no memory beyond it but one tile.
    """
    clean, n = signal(kernel), count_objects(group.objects)
    H, step = np.empty((n, n)), max(1, TILE_ENTRIES // n)
    for start in range(0, n, step):
        some = rows(group.objects, slice(start, start + step))
        H[start : start + step, start:] = clean(some, rows(group.objects, slice(start, n)) if start else group.objects)
    H[np.diag_indices(n)] = kernel.diag(group.objects) + group.noise
    return H


def diagonal(clean: Any, group: Observations) -> Array:
    """Return k(x, x) of a kernel without noise. If only its amplitude changes, the rest is evaluated once."""
    leaf = leaf_of(clean)
    if leaf is None or leaf.n_dims or is_vectors(group.objects):
        return self_similarities(clean, group.objects)
    if "leaf" not in group.own:
        group.own["leaf"] = leaf.diag(group.objects)
    return np.asarray(amplitude_of(clean) * group.own["leaf"])


def self_similarities(kernel: Any, objects: Any) -> Array:
    """Return k(x, x) of all objects, in memory or in pieces."""
    return objects.map(kernel.diag) if isinstance(objects, RowPieces) else np.asarray(kernel.diag(objects))


def only_scales_are_open(kernel: Any, whole: Observations, route: Route) -> bool:
    """Whether amplitude and noise are all there is to learn, so that `with_best_scales` finds them on all rows.

    That holds for an approximated similarity without parameters of objects without vectors. Learning on samples of
    rows would evaluate more similarities than the approximation does.
    """
    leaf = leaf_of(kernel)
    if isinstance(route, Exact) or leaf is None or leaf.n_dims or is_vectors(whole.objects) or not kernel.n_dims:
        return False
    return np.ndim(noise_of(kernel, whole)) == 0
