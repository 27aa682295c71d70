"""Laplace's approximation for two classes: a covariance and signs in, the mode of the latent function and evidence out.

With p(y | g) = sigmoid(y g) and a prior N(0, K) the posterior of the latent values g is approximated by a normal
distribution at its mode, where g = K a and a is the gradient of log p(y | g) (Rasmussen and Williams 2006, algorithms
3.1 and 5.1). A Newton step solves (K + W⁻¹) a = g + W⁻¹ (gradient), W the curvature: a regression with noise W⁻¹. It
takes a Cholesky factor of B = I + W^½ K W^½ if K is dense, and that of an r x r matrix if K = U M Uᵀ + D.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import erf, expit, log_expit

from krein.arrays import EPS, Array
from krein.errors import warn
from krein.estimators.gaussian_process.evidence import Evidence, corrected_evidence, factored, inverse_by
from krein.estimators.gaussian_process.posterior import Conditioned, Posterior, conditioned
from krein.factorization import Factorization
from krein.factorization.eigensystem import Eigensystem
from krein.solvers.dense_dual import NotConverged

__all__ = ["Mode", "averaged_sigmoid", "dense_mode", "factored_mode", "laplace_evidence", "laplace_posterior"]

# The mode is found when a Newton step increases the log density by less than SMALL_GAIN, as in scikit-learn.
SMALL_GAIN = 1e-10
# A step is halved until the log density grows, or falls by a share of no more than ROUNDING, down to SHORTEST_STEP.
ROUNDING = 100.0 * EPS
SHORTEST_STEP = 1e-6
# Smaller curvatures are replaced by this one, so that their inverse is finite.
LEAST_CURVATURE = 1e-100
# The sigmoid is about the sum of SIGMOID_WEIGHTS (1 + erf(SIGMOID_SLOPES x)) / 2, whose mean under a normal
# distribution is known (Williams and Barber 1998, appendix A). The numbers are those of scikit-learn.
SIGMOID_SLOPES = np.array([0.41, 0.4, 0.37, 0.44, 0.39])
SIGMOID_WEIGHTS = np.array([-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654])


@dataclass(frozen=True, eq=False)
class Step:
    """The result of a Newton step, and the factor that was computed for it."""

    dual: Array  # (n,) a
    latent: Array  # (n,) K a
    logdet: float  # log det(I + W^½ K W^½)
    factor: Any  # the lower Cholesky factor of B, or a `Conditioned`


@dataclass(frozen=True, eq=False)
class Mode:
    """The mode of the posterior, with the curvature and the factor there."""

    latent: Array  # (n,)
    dual: Array  # (n,)
    curvature: Array  # (n,) W
    evidence: float
    factor: Any
    n_iter: int
    converged: bool


def averaged_sigmoid(mean: Array, variance: Array) -> Array:
    """The mean of sigmoid(g) for normally distributed g."""
    slopes = SIGMOID_SLOPES[:, None]
    inside = erf(slopes * mean / np.sqrt(1.0 + 2.0 * slopes**2 * np.maximum(variance, 0.0)))
    return np.asarray(0.5 * (SIGMOID_WEIGHTS @ inside + SIGMOID_WEIGHTS.sum()))


def _find_mode(step: Callable[[Array, Array], Step | None], signs: Array, max_iter: int) -> Mode | None:
    """Newton's method from 0; ``step(W, W g + gradient)`` is None if the covariance is not psd."""
    latent = dual = np.zeros(len(signs))
    best, gain, n_iter = float(log_expit(signs * latent).sum()), np.inf, 0
    while True:
        W = np.maximum(expit(latent) * expit(-latent), LEAST_CURVATURE)
        found = step(W, W * latent + signs * expit(-signs * latent))
        if found is None:
            return None
        t = 1.0
        while True:
            a, g = dual + t * (found.dual - dual), latent + t * (found.latent - latent)
            density = float(log_expit(signs * g).sum() - 0.5 * a @ g)
            if density >= best - ROUNDING * abs(best) or t < SHORTEST_STEP:
                break
            t *= 0.5
        gain, best, dual, latent, n_iter = density - best, density, a, g, n_iter + 1
        if gain < SMALL_GAIN or n_iter >= max_iter:
            evidence = best - 0.5 * found.logdet
            return Mode(latent, dual, W, evidence, found.factor, n_iter, gain < SMALL_GAIN)


def dense_mode(K: Array, signs: Array, max_iter: int) -> Mode | None:
    """The mode under a dense covariance; None if K is not psd enough. The factor is that of B."""

    def step(W: Array, c: Array) -> Step | None:
        root = np.sqrt(W)
        B = root[:, None] * K * root
        B[np.diag_indices_from(B)] += 1.0
        L = factored(B)
        if L is None:
            return None
        dual = c - root * cho_solve((L, True), root * (K @ c), check_finite=False)
        return Step(dual, K @ dual, 2.0 * float(np.log(np.diag(L)).sum()), L)

    return _find_mode(step, signs, max_iter)


def factored_mode(f: Factorization, noise: Any, signs: Array, system: Eigensystem, max_iter: int) -> Mode:
    """The mode under U M Uᵀ + (shift + noise) I; the factor is a `Conditioned`. One step costs n k² and r³."""
    D = np.broadcast_to(np.asarray(noise, dtype=np.float64) + f.shift, len(signs))

    def step(W: Array, c: Array) -> Step:
        found = conditioned(f, D + 1.0 / W, (c / W)[:, None], system)
        dual = found.dual[:, 0]
        return Step(dual, f.lift(found.inner)[:, 0] + D * dual, found.logdet + float(np.log(W).sum()), found)

    mode = _find_mode(step, signs, max_iter)
    assert mode is not None  # negative eigenvalues of the core count as zero
    return mode


def laplace_posterior(mode: Mode) -> Posterior:
    """Return what predictions need, for a factored covariance."""
    factor: Conditioned = mode.factor
    return Posterior(mode.evidence, mode.dual[:, None], factor.inner, factor.parts)


def laplace_evidence(K: Array, noise: Array, y: Array, how: str | None = None, *, max_iter: int) -> Evidence:
    """Return the evidence of signs y, (n, 1), in the form of `evidence.evidence_of`.

    The mode moves with K, so that the derivative has a term for the third derivative of log p(y | g).
    """
    if how is not None:
        return corrected_evidence(K, noise, y, how, lambda *given: laplace_evidence(*given, max_iter=max_iter))
    H = K + np.diag(noise)
    mode = dense_mode(H, y[:, 0], max_iter)
    if mode is None:
        return -np.inf, lambda: (np.zeros_like(K), np.zeros(len(K))), np.zeros_like(y), None

    def slope() -> tuple[Array, Array]:
        root, g, inverse = np.sqrt(mode.curvature), mode.latent, inverse_by(mode.factor)
        R = root[:, None] * inverse * root  # (K + W⁻¹)⁻¹
        # the posterior variance, (1 - diag B⁻¹) / W, times the third derivative, W (1 - 2 sigmoid)
        moved = -0.5 * (1.0 - np.diag(inverse)) * (expit(-g) - expit(g))
        both = np.outer(moved - R @ (H @ moved), y[:, 0] * expit(-y[:, 0] * g))
        W = 0.5 * (np.outer(mode.dual, mode.dual) - R + both + both.T)
        return W, np.diag(W)

    return mode.evidence, slope, mode.dual[:, None], mode.factor


def warn_of(mode: Mode, name: str, max_iter: int) -> None:
    """Warn if the mode was not reached."""
    if not mode.converged:
        warn(
            f"{name} did not reach the mode of the posterior in max_iter_predict = {max_iter} Newton steps. Raise it, "
            "or scale the kernel down.",
            NotConverged,
        )
