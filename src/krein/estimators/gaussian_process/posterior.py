"""A factored covariance and noise in; evidence, dual coefficients and predictive variances out.

The covariance of the targets is H = U M Uᵀ + D, with D diagonal and positive: the noise, a shift, and where wanted what
the approximation leaves of k(x, x). With M = V diag(lambda) Vᵀ and L = V diag(sqrt(lambda)), A = I + Lᵀ Uᵀ D⁻¹ U L is
as well conditioned as H allows and r x r, so

    log det H = log det A + log det D,    H⁻¹ y = D⁻¹ (y - U L A⁻¹ Lᵀ Uᵀ D⁻¹ y),    M Uᵀ H⁻¹ y = L A⁻¹ Lᵀ Uᵀ D⁻¹ y

and the posterior covariance of u(x)ᵀ f is u(x)ᵀ L A⁻¹ Lᵀ u(x): never negative. A core that falls apart does so here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve, cholesky, lapack, solve_triangular
from scipy.optimize import minimize

from krein.arrays import EPS, Array, Indices
from krein.factorization import Factorization
from krein.factorization.eigensystem import Component, Eigensystem, eigensystem
from krein.kernels import count_objects

__all__ = [
    "Conditioned",
    "Evidence",
    "Posterior",
    "Scales",
    "conditioned",
    "corrected_evidence",
    "drawn",
    "evidence_by",
    "evidence_of",
    "factored",
    "inverse_by",
    "is_psd",
    "joint",
    "posterior",
    "prior",
    "residual",
    "scaled",
    "squeezed",
]

# Rounding may increase a variance by this share.
VARIANCE_ROUNDING = 1e-6
LOG_2PI = math.log(2.0 * math.pi)
Evidence: TypeAlias = "tuple[float, Callable[[], tuple[Array, Array]], Array, Array | None]"


@dataclass(frozen=True, eq=False)
class Posterior:
    """What y says about f, in the coordinates of U."""

    evidence: float  # log p(y), summed over the targets
    dual: Array  # (n, p): H⁻¹ y
    inner: Array  # (r, p): M Uᵀ H⁻¹ y, so that the mean at x is u(x) inner
    parts: tuple[tuple[Component, Array], ...]  # with A^(-1/2) Lᵀ, (m, m), or where A is diagonal L A⁻¹ L's values

    def explained(self, u: sp.csr_matrix) -> tuple[Array, Array]:
        """Return (u M uᵀ, u L A⁻¹ Lᵀ uᵀ) for each row of u: the variance f had, and the one it has left."""
        before, after = np.zeros(u.shape[0]), np.zeros(u.shape[0])
        for part, left in self.parts:
            rows, own = _rows_in(u, part)
            squares = np.square(own @ part.vectors)
            before[rows] = squares @ np.maximum(part.values, 0.0)
            after[rows] = squares @ left if left.ndim == 1 else np.square(own @ left.T).sum(1)
        return before, after

    def fitting(self, u: sp.csr_matrix, own: Array, added: float) -> tuple[sp.csr_matrix, Array]:
        """Return (u, k(x, x)): where u M uᵀ is above |k(x, x)| + ``added``, u without the least eigenvalues, and that.

        An object whose similarities are psd with those of the data never is. Of an indefinite kernel k(x, X) v / lambda
        may be of any size where lambda is small, and then says nothing: what does not fit is left unexplained.
        """
        limits = np.abs(own) + added
        changed, found = np.zeros(u.shape[0]), sp.csr_matrix(u.shape)
        for part, _ in self.parts:
            rows, inside = _rows_in(u, part)
            turned = inside @ part.vectors
            held = np.square(turned) * np.maximum(part.values, 0.0)
            total = np.cumsum(held[:, ::-1], axis=1)[:, ::-1]  # the largest first: eigenvalues ascend
            over = np.flatnonzero(total[:, 0] > (1.0 + VARIANCE_ROUNDING) * limits[rows])
            if not len(over):
                continue
            kept = turned[over] * (total[over] <= limits[rows[over], None])
            at = np.repeat(rows[over], len(part.places)), np.tile(part.places, len(over))
            found = found + sp.csr_matrix(((kept @ part.vectors.T).ravel(), at), shape=u.shape)
            changed[rows[over]] = 1.0
        return (u if not changed.any() else sp.diags(1.0 - changed) @ u + found).tocsr(), np.where(
            changed > 0.0, limits, own
        )

    def covariance(self, u: sp.csr_matrix) -> tuple[Array, Array]:
        """Return the two of `explained` as (n_new, n_new) matrices."""
        before, after = (np.zeros((u.shape[0],) * 2) for _ in range(2))
        for part, left in self.parts:
            rows, own = _rows_in(u, part)
            turned, features = own @ part.vectors, own @ left.T if left.ndim == 2 else None
            before[np.ix_(rows, rows)] = (turned * np.maximum(part.values, 0.0)) @ turned.T
            after[np.ix_(rows, rows)] = (turned * left) @ turned.T if features is None else features @ features.T
        return before, after


def posterior(f: Factorization, noise: Array | float, y: Array, system: Eigensystem | None = None) -> Posterior:
    """Condition on y of shape (n, p) with variance ``noise``, a number or one per row, beside the shift of f.

    Negative eigenvalues of the core are rounding here, and taken as zero. Costs n k for one number and r³ for the
    eigenvalues of the core; with a number per row n k² and another r³.
    """
    system = eigensystem(f.core, f.ranks) if system is None else system
    D = np.asarray(noise, dtype=np.float64) + f.shift
    if D.ndim == 0:
        return _even(f, float(D), y, system)
    c = conditioned(f, D, y, system)
    n, p = y.shape
    return Posterior(-0.5 * (c.fit + p * (c.logdet + n * LOG_2PI)), c.dual, c.inner, c.parts)


@dataclass(frozen=True, eq=False)
class Conditioned:
    """H = U M Uᵀ + D and targets y: what a posterior is made of."""

    logdet: float  # log det H
    fit: float  # yᵀ H⁻¹ y, summed over the targets
    dual: Array
    inner: Array
    parts: tuple[tuple[Component, Array], ...]


def conditioned(f: Factorization, D: Array, y: Array, system: Eigensystem) -> Conditioned:
    """The parts of a posterior for a diagonal D of different numbers, (n,); the shift of f is not used."""
    grams = f.gram(1.0 / D)
    scaled = y / D[:, None]
    inside = f.project(scaled)
    inner, parts = np.zeros((f.rank, y.shape[1])), []
    logdet, fit = float(np.log(D).sum()), float((y * scaled).sum())
    for part in system.components:
        L = part.vectors * np.sqrt(np.maximum(part.values, 0.0))
        G, start = np.zeros_like(L), 0
        for i in part.blocks.tolist():
            span = slice(start, start + f.ranks[i])
            G[span] = grams[i] @ L[span]
            start = span.stop
        A = L.T @ G
        A[np.diag_indices_from(A)] += 1.0
        R = cholesky(A, lower=True, overwrite_a=True, check_finite=False)
        seen = L.T @ inside[part.places]
        inner[part.places] = L @ cho_solve((R, True), seen)
        logdet += 2.0 * float(np.log(np.diag(R)).sum())
        fit -= float(np.square(solve_triangular(R, seen, lower=True)).sum())
        parts.append((part, solve_triangular(R, L.T, lower=True, check_finite=False)))
    dual = scaled - f.lift(inner) / D[:, None]
    return Conditioned(logdet, fit, dual, inner, tuple(parts))


def _even(f: Factorization, t: float, y: Array, system: Eigensystem) -> Posterior:
    """The same noise for all: A is diagonal in the eigenvectors of the core."""
    scales = Scales.of(replace(f, shift=0.0), y, system)
    values = scales.values
    coordinates = scales.coordinates / (values + t)[:, None]
    dual = f.lift(system.combine(coordinates)) + (scales.outside / t if f.rank < len(y) else 0.0)
    inner = system.combine(values[:, None] * coordinates)
    stops = np.cumsum([len(part.values) for part in system.components])
    parts = zip(system.components, np.split(values * (t / (values + t)), stops[:-1]), strict=True)
    return Posterior(scales.evidence(1.0, t)[0], dual, inner, tuple(parts))


def scaled(f: Factorization, system: Eigensystem, ratio: float) -> tuple[Factorization, Eigensystem]:
    """Multiply a factorization's shift and its eigenvalues; the core is left, as the eigenvalues stand for it."""
    parts = tuple(replace(part, values=ratio * part.values) for part in system.components)
    return replace(f, shift=ratio * f.shift), replace(system, components=parts)


def residual(left: Array, rest: float) -> Array:
    """What of k(x, x) no basis holds; where that is less than ``rest``, the average over the data, half way up to it.

    Off the data it is all there is to say. On them a small one says little: the mean has errors of its own there.
    """
    left = np.maximum(left, 0.0)
    return np.asarray(np.maximum(left, 0.5 * (left + rest)))


def prior(kernel: Any, X: Any, targets: int, std: bool, cov: bool) -> Any:
    """The mean of ``targets`` functions nothing is known of, and the standard deviation or covariance if asked for."""
    mean = squeezed(np.zeros((count_objects(X), targets)))
    if not (std or cov):
        return mean
    spread = kernel(X) if cov else np.sqrt(kernel.diag(X))
    return mean, spread if targets == 1 else np.repeat(spread[..., None], targets, axis=-1)


def squeezed(values: Array) -> Array:
    """Without the axis of the targets where there is one of them."""
    return values[..., 0] if values.ndim > 1 and values.shape[-1] == 1 else values


def joint(rest: Array | None, after: Array, variances: Array) -> Array:
    """A covariance with these variances: ``after``, which is psd, and the positive part of ``rest`` in what is left.

    Without ``rest`` what is left belongs to each object alone. A rest that is psd and leaves no more is taken as it is.
    """
    cov, room = after.copy(), np.maximum(variances - np.diag(after), 0.0)
    if rest is not None:
        values, V = np.linalg.eigh(rest)
        part = (V * np.maximum(values, 0.0)) @ V.T
        own = np.diag(part)
        shrunk = np.sqrt(np.minimum(1.0, room / np.where(own > 0.0, own, 1.0)))
        cov += part * np.outer(shrunk, shrunk)
    cov[np.diag_indices_from(cov)] = variances
    return cov


@dataclass(frozen=True, eq=False)
class Scales:
    """The evidence of c (U M Uᵀ + s I) + t I as a function of c and t: r numbers each, once M is decomposed."""

    values: Array  # (r,) eigenvalues of the core, at least 0
    coordinates: Array  # (r, p): Vᵀ Uᵀ y
    outside: Array  # (n, p): what of y the bases do not span
    shift: float  # of the factorization, and scaled with it
    n: int

    @classmethod
    def of(cls, f: Factorization, y: Array, system: Eigensystem) -> Scales:
        inside = f.project(y)
        return cls(np.maximum(system.values, 0.0), system.coordinates(inside), y - f.lift(inside), f.shift, len(y))

    @cached_property
    def _squares(self) -> tuple[Array, float]:
        return np.square(self.coordinates).sum(1), float(np.square(self.outside).sum())

    def evidence(self, c: float, t: float) -> tuple[float, Array]:
        """Return (log p(y), its gradient in (log c, log t))."""
        (squares, rest), p, off = self._squares, self.coordinates.shape[1], self.n - len(self.values)
        own = np.append(c * (self.values + self.shift), c * self.shift if off else 1.0)
        counts, squares = np.append(np.ones(len(self.values)), off), np.append(squares, rest if off else 0.0)
        spread = own + t
        value = -0.5 * float((squares / spread + p * counts * np.log(spread)).sum() + p * self.n * LOG_2PI)
        slopes = 0.5 * (squares / spread - p * counts) / spread
        return value, np.array([float((own * slopes).sum()), t * float(slopes.sum())])

    def best(self, noise: float, fixed: float, bounds: Array, free: tuple[bool, bool]) -> tuple[float, float]:
        """Return the (c, noise) of most evidence; ``fixed`` is variance beside the noise, ``bounds`` are of the logs.

        Whichever of the two is not ``free`` stays at 1 or at ``noise``.
        """
        start = np.array([0.0, math.log(max(noise, 1e-300))])
        chosen = np.flatnonzero(free)

        def objective(logs: Array) -> tuple[float, Array]:
            full = start.copy()
            full[chosen] = logs
            own = math.exp(full[1]) if free[1] else noise
            value, slopes = self.evidence(math.exp(full[0]), own + fixed)
            slopes = slopes * np.array([1.0, own / (own + fixed)])
            return -value / self.n, -slopes[chosen] / self.n

        found = minimize(
            objective,
            start[chosen],
            jac=True,
            method="L-BFGS-B",
            bounds=[(float(low), float(high)) for low, high in bounds[chosen]],
        )
        full = start.copy()
        full[chosen] = found.x
        return math.exp(full[0]), math.exp(full[1]) if free[1] else noise


def evidence_of(K: Array, noise: Array, y: Array, how: str | None = None) -> Evidence:
    """Return (log p(y), a function that gives its derivatives by K and by the noise, the dual coefficients, a Cholesky
    factor) of a dense covariance K + diag(noise).

    d log p / d theta is the sum of W * dK / d theta. ``how`` is a correction of an indefinite K, a function of its
    spectrum, whose derivative follows from divided differences (Daleckii and Krein); without one an indefinite K has
    evidence -inf.
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
    """The lower Cholesky factor of a symmetric matrix, which is overwritten; None if it is not positive definite."""
    R, failed = lapack.dpotrf(H.T, lower=1, clean=1, overwrite_a=1)  # H.T is H, and in LAPACK's order
    return R if failed == 0 else None


def evidence_by(R: Array, dual: Array, y: Array) -> float:
    """log p(y) summed over the targets, from the Cholesky factor of the covariance and dual = (R Rᵀ)⁻¹ y, (n, p)."""
    n, p = y.shape
    return float(-0.5 * (y * dual).sum() - p * (np.log(np.diag(R)).sum() + 0.5 * n * LOG_2PI))


def inverse_by(R: Array) -> Array:
    """(R Rᵀ)⁻¹, by a third of the arithmetic of solving for the identity."""
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
    """``of(K, noise, y)`` with K corrected, and its derivatives by K as it was."""
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
    """Whether K is psd up to rounding: a Cholesky factorisation tells, for a third of the arithmetic or less.

    ``tolerance`` is what else may be missing, as a share of the largest diagonal entry.
    """
    H = K.copy()
    H[np.diag_indices_from(H)] += (10.0 * len(K) * EPS + tolerance) * float(np.abs(np.diag(K)).max())
    try:
        cholesky(H, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True


def drawn(mean: Array, cov: Array, n_samples: int, rng: Any, check: str) -> Array:
    """Draw functions with this mean and covariance, (n, n_samples) or for several targets (n, n_targets, n_samples)."""
    if mean.ndim == 1:
        return np.asarray(rng.multivariate_normal(mean, cov, n_samples, check_valid=check).T)
    each = [
        rng.multivariate_normal(mean[:, i], cov[..., i], n_samples, check_valid=check).T[:, None]
        for i in range(mean.shape[1])
    ]
    return np.hstack(each)


def _rows_in(u: sp.csr_matrix, part: Component) -> tuple[Indices, Array]:
    """The rows of u that meet the component, and what they hold there, dense."""
    own = u[:, part.places] if len(part.places) < u.shape[1] else u
    rows = np.flatnonzero(np.diff(own.indptr))
    return rows, own[rows].toarray()
