"""Ridge regression for every alpha from one eigendecomposition, with leave-one-out errors.

In: a factorization and weights. Out: solutions of (K + t W⁻¹) d = y with t = alpha + shift, and held-out errors.

With S = W^(1/2) and the block QR S U = P R, S K S = P B Pᵀ and B = R M Rᵀ = V diag(lambda) Vᵀ. R is computed from the
grams UᵀWU, so P is never formed. Then (S K S + t I)⁻¹ = P V diag(1 / (lambda + t)) Vᵀ Pᵀ + (I - P Pᵀ) / t for every t.
The leave-one-out error of a row is e / (1 - h), with its residual e = y - f and its leverage h: n k² operations for
each t, without fitting again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from krein.arrays import EPS, Array, Indices, strips
from krein.errors import InputError
from krein.factorization import Factorization
from krein.factorization.core import congruent, has_spectrum
from krein.factorization.eigensystem import Eigensystem, eigensystem
from krein.solvers.problem import restricted
from krein.solvers.woodbury import System, factorize, parts_of

BoolArray: TypeAlias = NDArray[np.bool_]
__all__ = ["Factored", "RidgeEigensystem", "decompose", "rounding_of"]

# Leverages are computed for so many rows at a time that their arrays have at most COLUMNS entries.
COLUMNS = 2**24


def rounding_of(rank: int, size: float) -> float:
    """The rounding error of the eigenvalues of a core of this rank, of which ``size`` is the largest."""
    return 10.0 * math.sqrt(max(1, rank)) * EPS * size


@dataclass(frozen=True, eq=False)
class RidgeEigensystem:
    """S K S = P V diag(lambda) Vᵀ Pᵀ with P = S U T orthonormal; ``f.shift`` is no part of it."""

    f: Factorization
    weights: Array  # (n,), S² = W
    turns: tuple[Array, ...] | None  # T_i, (k_i, m_i): without directions that no row of weight has; None for I
    system: Eigensystem  # of B

    def solve(self, y: Array, t: float) -> Array:
        """(K + t W⁻¹)⁻¹ y for y of shape (n, p); at t = 0, to rounding, the smallest solution of the least squares."""
        gone = self.singular(t)
        if gone.any() and t > self.rounding:
            raise InputError(
                f"alpha + shift = {t:g} meets an eigenvalue of {-t:g} of the indefinite matrix, so that the system is "
                'singular. Pass another alpha, or correction="clip" or "flip".'
            )
        inside = self._inside(y)
        lifted = self._lift(self.f, self.system.combine(inside / np.where(gone, np.inf, self._moved(t))[:, None]))
        if t > self.rounding and not self._full:
            rest = self._lift(self.f, self.system.combine(inside))
            np.subtract(y, rest, out=rest)
            rest /= t
            lifted += rest
        lifted *= self.weights[:, None]
        return lifted

    def singular(self, t: float) -> BoolArray:
        """Which eigenvalues of S K S + t I are zero up to rounding."""
        return np.asarray(np.abs(self._moved(t)) <= self.rounding)

    def least_squares(self, t: float) -> bool:
        """Whether t is zero up to rounding and the matrix singular."""
        return t <= self.rounding and (not self._full or bool(self.singular(t).any()))

    def _moved(self, t: float) -> Array:
        return np.asarray(self.system.values + t)

    @cached_property
    def rounding(self) -> float:
        """The size below which an eigenvalue, or t, counts as zero."""
        return rounding_of(self.system.rank, float(np.abs(self.system.values).max(initial=0.0)))

    def _inside(self, y: Array) -> Array:
        """Vᵀ Pᵀ S y."""
        if self.turns is None:  # all weights are 1
            return self.system.coordinates(self.f.project(y))
        return self.system.coordinates(_turned(self.turns, self.f.project(self.weights[:, None] * y), transposed=True))

    def _lift(self, f: Factorization, w: Array) -> Array:
        """S⁻¹ P w, at the rows of f."""
        return f.lift(w if self.turns is None else _turned(self.turns, w))

    @cached_property
    def _full(self) -> bool:
        return self.system.rank == self.f.shape[0]

    def left_out(
        self, y: Array, ridges: Array, share: Array, rows: Indices | None = None, intercept: bool = False
    ) -> Array:
        """For each t of ``ridges`` the errors y_i - f(x_i) of f fitted without the share of row i: (t, rows, p).

        ``share`` is the part of its weight that is left out with each row: 1 for all of it. With ``intercept`` f has
        an unpenalised constant. The errors are NaN for a t whose system is singular up to rounding. A row is projected
        to the m eigenvectors of its component once for all t, with k m operations.
        """
        f = self.f if rows is None else restricted(self.f, rows)
        here = slice(None) if rows is None else rows
        w, both = self.weights[here], np.column_stack([y, np.ones(len(y))]) if intercept else y
        good = np.array([t > self.rounding and not self.singular(t).any() for t in ridges.tolist()], dtype=bool)
        t = ridges[good]
        inside = self._inside(both)
        factors = t[:, None] / self._moved(t[:, None])  # (t, r)
        outside, beyond = both[here].copy(), np.ones(len(w))  # of y and of the row's unit vector, off the span of P
        e: Array = np.empty((len(t), *outside.shape))  # y - f
        slack: Array = np.empty((len(t), len(w)))  # 1 - leverage
        for i, own, V in self.system.by_block():
            wide = (factors[:, own, None] * inside[own]).transpose(1, 0, 2).reshape(V.shape[1], len(t) * both.shape[1])
            turned = V if self.turns is None else self.turns[i] @ V
            parts = (
                (rows[part], tile[part])
                for rows, tile in f.bases.tiles(i)
                for part in strips(len(tile), V.shape[1], COLUMNS // 8)
            )
            for places, U in parts:
                seen = _product(U, turned)  # (b, m)
                e[:, places] = (seen @ wide).reshape(len(U), len(t), both.shape[1]).transpose(1, 0, 2)
                outside[places] -= seen @ inside[own]
                np.square(seen, out=seen)
                slack[:, places] = (seen @ factors[:, own].T).T * w[places]
                beyond[places] -= seen.sum(1) * w[places]
        beyond[np.abs(beyond) < 100 * EPS * max(self.f.ranks)] = 0.0
        if not self._full:
            e += outside
            slack += beyond
        if intercept:
            one = inside[:, -1]
            ends = (self.weights @ both - one @ inside) / t[:, None]
            e, slack = _with_constant(e, slack, w, t, (factors * one) @ inside / t[:, None] + ends)
        out = np.full((len(ridges), len(w), y.shape[1]), np.nan)
        out[good] = e / (1.0 - share[here] * (1.0 - slack))[..., None]
        return out


@dataclass(frozen=True, eq=False)
class Factored:
    """The same for a large core of one component: a sparse Cholesky factor for each t instead of eigenvectors."""

    f: Factorization
    weights: Array

    def solve(self, y: Array, t: float) -> Array:
        """(K + t W⁻¹)⁻¹ y for y of shape (n, p)."""
        return self._solved(self._system(t), y, t)

    def left_out(
        self, y: Array, ridges: Array, share: Array, rows: Indices | None = None, intercept: bool = False
    ) -> Array:
        """As `RidgeEigensystem.left_out`; each of the rows is one more right-hand side, so they should be few."""
        rows = np.arange(len(y)) if rows is None else rows
        w, both = self.weights[rows], np.column_stack([y, np.ones(len(y))]) if intercept else y
        units = self.f.basis_rows(rows)
        e: Array = np.empty((len(ridges), len(rows), both.shape[1]))
        slack: Array = np.ones((len(ridges), len(rows)))
        sums = np.empty((len(ridges), both.shape[1]))
        for a, t in enumerate(ridges.tolist()):
            system = self._system(t)
            dual = self._solved(system, both, t)
            e[a], sums[a] = dual[rows] * (t / w)[:, None], dual.sum(0)
            for part in strips(len(rows), self.f.rank, COLUMNS):
                some = units[part].T.toarray()  # (r, rows of the part)
                slack[a, part] -= w[part] / t * (some * system.solve(some)).sum(0)
        if intercept:
            e, slack = _with_constant(e, slack, w, ridges, sums)
        return np.asarray(e / (1.0 - share[rows] * (1.0 - slack))[..., None])

    def _system(self, t: float) -> System:
        if t > 0.0:
            system = factorize(parts_of(self.f), self.f.rank, self.f.gram(self.weights / t))
            if system is not None:
                return system
        raise InputError(
            f"Ridge with alpha + shift = {t:g} needs a positive definite matrix; the smallest eigenvalue of {self.f!r} "
            f"is about {self.f.smallest_eigenvalue():.3g}. Pass a larger alpha, or fewer blocks for a core that can be "
            'corrected ("clip", "flip").'
        )

    def _solved(self, system: System, y: Array, t: float) -> Array:
        scale = (self.weights / t)[:, None]
        dual = np.zeros(y.shape)
        for _ in range(2):  # once more for what rounding left
            left = y - (self.f.lift(self.f.core @ self.f.project(dual)) + dual / scale)
            dual += scale * (left - self.f.lift(system.solve(self.f.project(scale * left))))
        return dual


def decompose(f: Factorization, weights: Array, system: Eigensystem | None = None) -> RidgeEigensystem | Factored:
    """Return the decomposition that serves every ridge on f; ``system`` is that of its core, if known."""
    if not has_spectrum(f.core):
        return Factored(f, weights)
    if np.all(weights == 1.0):
        return RidgeEigensystem(f, weights, None, system or eigensystem(f.core, f.ranks))
    roots, turns = [], []
    for G in f.gram(weights):
        values, vectors = np.linalg.eigh(G)
        keep = values > max(1, len(G)) * EPS * float(values.max(initial=0.0))
        root = np.sqrt(values[keep])
        roots.append((vectors[:, keep] * root).T)  # R_i
        turns.append(vectors[:, keep] / root)  # its inverse
    B = congruent(f.core, roots, f.ranks)
    return RidgeEigensystem(f, weights, tuple(turns), eigensystem(B, tuple(len(R) for R in roots)))


def _with_constant(e: Array, slack: Array, w: Array, t: Array, sums: Array) -> tuple[Array, Array]:
    """Residuals and slacks of fits with an unpenalised constant from those without, the last column being of ones.

    ``sums`` are 1ᵀ(K + t W⁻¹)⁻¹y for each t and column: the bordered system takes one Schur complement.
    """
    last = sums[:, None, -1:]
    slack = slack - w * e[..., -1] ** 2 / (t[:, None] * last[..., 0])
    return e[..., :-1] - e[..., -1:] * (sums[:, None, :-1] / last), slack


def _product(U: Array, V: Array) -> Array:
    """U V, a new array; eigenvectors of a diagonal core are unit vectors and only pick columns."""
    if V.shape[0] == V.shape[1] == np.count_nonzero(V) and (V.max(0) == 1.0).all():
        return np.asarray(U[:, V.argmax(0)])
    return np.asarray(U @ V)


def _turned(turns: tuple[Array, ...], w: Array, transposed: bool = False) -> Array:
    """T w or Tᵀ w for T = blockdiag(turns)."""
    sides = [T.T for T in turns] if transposed else turns
    parts = np.split(w, np.cumsum([T.shape[1] for T in sides])[:-1])
    return np.concatenate([T @ part for T, part in zip(sides, parts, strict=True)])
