"""A factored covariance and noise in; evidence, dual coefficients and predictive variances out.

The covariance of the targets is H = U M Uᵀ + D. D is diagonal and positive: the noise, the shift, and optionally what
the approximation lacks of k(x, x). With M = V diag(lambda) Vᵀ and L = V diag(sqrt(lambda)), A = I + Lᵀ Uᵀ D⁻¹ U L is
as well conditioned as H allows and r x r, so

    log det H = log det A + log det D,    H⁻¹ y = D⁻¹ (y - U L A⁻¹ Lᵀ Uᵀ D⁻¹ y),    M Uᵀ H⁻¹ y = L A⁻¹ Lᵀ Uᵀ D⁻¹ y

and the posterior covariance of u(x)ᵀ f is u(x)ᵀ L A⁻¹ Lᵀ u(x), which is never negative. The components of a
block-sparse core are treated separately.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from krein.arrays import Array, Indices
from krein.factorization import Factorization
from krein.factorization.eigensystem import Component, Eigensystem, eigensystem
from krein.kernels import count_objects

__all__ = [
    "Conditioned",
    "Posterior",
    "Scales",
    "conditioned",
    "draw_functions",
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


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of the latent function f given y, in the coordinates of U."""

    evidence: float  # log p(y), summed over the targets
    dual: Array  # (n, p): H⁻¹ y
    inner: Array  # (r, p): M Uᵀ H⁻¹ y, so that the mean at x is u(x) inner
    parts: tuple[tuple[Component, Array], ...]  # with A^(-1/2) Lᵀ, (m, m), or the diagonal of L A⁻¹ L if A is diagonal

    def explained(self, u: sp.csr_matrix) -> tuple[Array, Array]:
        """Return (u M uᵀ, u L A⁻¹ Lᵀ uᵀ) for each row of u: the prior and the posterior variance of f."""
        before, after = np.zeros(u.shape[0]), np.zeros(u.shape[0])
        for part, left in self.parts:
            rows, own = _rows_in(u, part)
            squares = np.square(own @ part.vectors)
            before[rows] = squares @ np.maximum(part.values, 0.0)
            after[rows] = squares @ left if left.ndim == 1 else np.square(own @ left.T).sum(1)
        return before, after

    def limited(self, u: sp.csr_matrix, own: Array, added: float) -> tuple[sp.csr_matrix, Array]:
        """Return (u, k(x, x)) with prior variances u M uᵀ of at most |k(x, x)| + ``added``.

        A psd kernel has no larger ones. With an indefinite kernel k(x, X) v / lambda can have any size if lambda is
        small, and means nothing then. If u M uᵀ is too large, the smallest eigenvalues are left out of u, and the limit
        takes the place of k(x, x).
        """
        limits = np.abs(own) + added
        changed, found = np.zeros(u.shape[0]), sp.csr_matrix(u.shape)
        for part, _ in self.parts:
            if not len(part.values):  # a matrix of zeros
                continue
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
    """Return the posterior given y of shape (n, p), with variance ``noise`` (a number, or one per row) plus f's shift.

    Negative eigenvalues of the core count as zero. The cost is n k, and r³ for the eigenvalues of the core. With one
    number per row it is n k² and another r³.
    """
    system = eigensystem(f.core, f.ranks) if system is None else system
    D = np.asarray(noise, dtype=np.float64) + f.shift
    if D.ndim == 0:
        return _with_equal_noise(f, float(D), y, system)
    c = conditioned(f, D, y, system)
    n, p = y.shape
    return Posterior(-0.5 * (c.fit + p * (c.logdet + n * LOG_2PI)), c.dual, c.inner, c.parts)


@dataclass(frozen=True, eq=False)
class Conditioned:
    """Quantities of H = U M Uᵀ + D and targets y from which a posterior is made."""

    logdet: float  # log det H
    fit: float  # yᵀ H⁻¹ y, summed over the targets
    dual: Array
    inner: Array
    parts: tuple[tuple[Component, Array], ...]


def conditioned(f: Factorization, D: Array, y: Array, system: Eigensystem) -> Conditioned:
    """Compute these quantities for any diagonal D, (n,). The shift of f is not used."""
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


def _with_equal_noise(f: Factorization, t: float, y: Array, system: Eigensystem) -> Posterior:
    """Return the posterior if the noise is the same for all rows: A is diagonal in the eigenvectors of the core."""
    scales = Scales.of(replace(f, shift=0.0), y, system)
    values = scales.values
    coordinates = scales.coordinates / (values + t)[:, None]
    dual = f.lift(system.combine(coordinates)) + (scales.outside / t if f.rank < len(y) else 0.0)
    inner = system.combine(values[:, None] * coordinates)
    stops = np.cumsum([len(part.values) for part in system.components])
    parts = zip(system.components, np.split(values * (t / (values + t)), stops[:-1]), strict=True)
    return Posterior(scales.evidence(1.0, t)[0], dual, inner, tuple(parts))


def scaled(f: Factorization, system: Eigensystem, ratio: float) -> tuple[Factorization, Eigensystem]:
    """Multiply the shift and the eigenvalues by ``ratio``. The core itself is not changed: the eigenvalues are used."""
    parts = tuple(replace(part, values=ratio * part.values) for part in system.components)
    return replace(f, shift=ratio * f.shift), replace(system, components=parts)


def residual(left: Array, rest: float) -> Array:
    """Return the part of k(x, x) that the bases lack, but no less than half of it plus half of its mean ``rest``.

    Far from the data it is the prior variance. Near the data a small value would understate the error of the mean.
    """
    left = np.maximum(left, 0.0)
    return np.asarray(np.maximum(left, 0.5 * (left + rest)))


def prior(kernel: Any, X: Any, targets: int, std: bool, cov: bool) -> Any:
    """Return the prior mean of ``targets`` functions, and the standard deviation or covariance if asked for."""
    mean = squeezed(np.zeros((count_objects(X), targets)))
    if not (std or cov):
        return mean
    spread = kernel(X) if cov else np.sqrt(kernel.diag(X))
    return mean, spread if targets == 1 else np.repeat(spread[..., None], targets, axis=-1)


def squeezed(values: Array) -> Array:
    """Remove the axis of the targets if there is only one."""
    return values[..., 0] if values.ndim > 1 and values.shape[-1] == 1 else values


def joint(rest: Array | None, after: Array, variances: Array) -> Array:
    """Return a psd covariance with these variances: ``after``, plus the positive part of ``rest``, scaled to fit.

    Without ``rest`` the remaining variance is independent for each object. A psd ``rest`` that fits is not changed.
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
    """The evidence of c (U M Uᵀ + s I) + t I as a function of c and t; O(r) each, once M is decomposed."""

    values: Array  # (r,) eigenvalues of the core, at least 0
    coordinates: Array  # (r, p): Vᵀ Uᵀ y
    outside: Array  # (n, p): the part of y outside the span of the bases
    shift: float  # s
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
        """Return the (c, noise) of most evidence, where t = noise + ``fixed``; ``bounds`` are those of the logarithms.

        If c is not ``free`` it is 1. If the noise is not, it is ``noise``.
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


def draw_functions(mean: Array, cov: Array, n_samples: int, rng: Any, check: str) -> Array:
    """Draw functions with this mean and covariance, (n, n_samples) or for several targets (n, n_targets, n_samples)."""
    if mean.ndim == 1:
        return np.asarray(rng.multivariate_normal(mean, cov, n_samples, check_valid=check).T)
    each = [
        rng.multivariate_normal(mean[:, i], cov[..., i], n_samples, check_valid=check).T[:, None]
        for i in range(mean.shape[1])
    ]
    return np.hstack(each)


def _rows_in(u: sp.csr_matrix, part: Component) -> tuple[Indices, Array]:
    """Return the rows of u that are nonzero in the component, and their entries there, dense."""
    own = u[:, part.places] if len(part.places) < u.shape[1] else u
    rows = np.flatnonzero(np.diff(own.indptr))
    return rows, own[rows].toarray()
