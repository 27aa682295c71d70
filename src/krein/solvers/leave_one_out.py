"""Ridge for every alpha from one eigendecomposition: a factorization and weights in, solutions and held-out errors out.

Rows of weight w ask for (K + t W⁻¹) d = y, t = alpha plus the shift. With S = W^(1/2) and the block QR S U = P R it is
S K S = P B Pᵀ, B = R M Rᵀ = V diag(lambda) Vᵀ. P is kept: R⁻¹ would square the range of the weights. Then
(S K S + t I)⁻¹ = P V diag(1 / (lambda + t)) Vᵀ Pᵀ + (I - P Pᵀ) / t serves every t. A row that is left out is missed by
e / (1 - h), e = y - f its residual and h its leverage: n k² for each t, and nothing is fitted again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from krein.arrays import EPS, Array, Indices, strips
from krein.errors import InputError
from krein.factorization import Factorization
from krein.factorization.bases import orthonormalise
from krein.factorization.core import congruent, has_spectrum
from krein.factorization.eigensystem import Eigensystem, eigensystem
from krein.factorization.factorization import Bases
from krein.solvers.problem import restricted
from krein.solvers.woodbury import System, factorize, parts_of

BoolArray: TypeAlias = NDArray[np.bool_]
__all__ = ["Factored", "RidgeEigensystem", "decompose", "rounding_of"]

# Unit vectors are solved for COLUMNS numbers at a time.
COLUMNS = 2**24


def rounding_of(rank: int, size: float) -> float:
    """Return the size up to which eigenvalues are rounding, for a core of this rank whose largest one is ``size``."""
    return 10.0 * math.sqrt(max(1, rank)) * EPS * size


@dataclass(frozen=True, eq=False)
class RidgeEigensystem:
    """S K S = P V diag(lambda) Vᵀ Pᵀ with P orthonormal; ``f.shift`` is no part of it."""

    f: Factorization  # of K
    weights: Array  # (n,), S² = W
    scaled: Factorization  # of S K S: the bases are P, the core is B
    system: Eigensystem  # of B

    def solve(self, y: Array, t: float) -> Array:
        """(K + t W⁻¹)⁻¹ y for y of shape (n, p); at t = 0, to rounding, the smallest solution of the least squares."""
        gone = self.singular(t)
        if gone.any() and t > self.rounding:
            raise InputError(
                f"alpha + shift = {t:g} meets an eigenvalue of {-t:g} of the indefinite matrix, so that the system is "
                'singular. Pass another alpha, or correction="clip" or "flip".'
            )
        y = y * self._roots[:, None]
        inside = self._inside(y)
        lifted = self.scaled.lift(self.system.combine(inside / np.where(gone, np.inf, self._moved(t))[:, None]))
        if t > self.rounding and not self._full:
            y -= self.scaled.lift(self.system.combine(inside))
            y /= t
            lifted += y
        lifted *= self._roots[:, None]
        return lifted

    def singular(self, t: float) -> BoolArray:
        """Return which eigenvalues of S K S + t I are rounding."""
        return np.asarray(np.abs(self._moved(t)) <= self.rounding)

    def least_squares(self, t: float) -> bool:
        """Return whether t is zero, up to rounding, and the matrix is singular."""
        return t <= self.rounding and (not self._full or bool(self.singular(t).any()))

    def _moved(self, t: float) -> Array:
        return np.asarray(self.system.values + t)

    @cached_property
    def rounding(self) -> float:
        """Below it an eigenvalue, or t, is nothing."""
        return rounding_of(self.system.rank, float(np.abs(self.system.values).max(initial=0.0)))

    @cached_property
    def _roots(self) -> Array:
        return np.sqrt(self.weights)

    def _inside(self, y: Array) -> Array:
        """Vᵀ Pᵀ y."""
        return self.system.coordinates(self.scaled.project(y))

    @cached_property
    def _full(self) -> bool:
        return self.system.rank == self.f.shape[0]

    def left_out(
        self, y: Array, ridges: Array, share: Array, rows: Indices | None = None, intercept: bool = False
    ) -> Array:
        """For each t of ``ridges`` the errors y_i - f(x_i) of f fitted without the share of row i: (t, rows, p).

        ``share`` is the part of its weight that is left out with each row: 1 for all of it. With ``intercept`` f has
        an unpenalised constant. Where t leaves the system singular, to rounding, there are only NaNs. A row is seen in
        the eigenvectors of its component once, k m for m of them, and that serves every t.
        """
        scaled = self.scaled if rows is None else restricted(self.scaled, rows)
        here = slice(None) if rows is None else rows
        w, both = self.weights[here], np.column_stack([y, np.ones(len(y))]) if intercept else y
        both = both * self._roots[:, None]
        good = np.array([t > self.rounding and not self.singular(t).any() for t in ridges.tolist()], dtype=bool)
        t = ridges[good]
        inside = self._inside(both)
        factors = t[:, None] / self._moved(t[:, None])  # (t, r)
        outside, beyond = both[here].copy(), np.ones(len(w))  # of S y and of the row's unit vector, off the span of P
        e: Array = np.empty((len(t), *outside.shape))  # S (y - f)
        slack: Array = np.empty((len(t), len(w)))  # 1 - leverage
        for i, own, V in self.system.by_block():
            wide = (factors[:, own, None] * inside[own]).transpose(1, 0, 2).reshape(V.shape[1], len(t) * both.shape[1])
            for places, P in _row_strips(scaled, i, V.shape[1]):
                seen = _product(P, V)  # (b, m)
                e[:, places] = (seen @ wide).reshape(len(P), len(t), both.shape[1]).transpose(1, 0, 2)
                outside[places] -= seen @ inside[own]
                np.square(seen, out=seen)
                slack[:, places] = (seen @ factors[:, own].T).T
                beyond[places] -= seen.sum(1)
        beyond[np.abs(beyond) < 100 * EPS * max(self.f.ranks)] = 0.0
        if not self._full:
            e += outside
            slack += beyond
        e /= np.where(w > 0.0, self._roots[here], 1.0)[:, None]
        if intercept:
            one = inside[:, -1]
            ends = (self._roots @ both - one @ inside) / t[:, None]
            e, slack = _with_constant(e, slack, w, t, (factors * one) @ inside / t[:, None] + ends)
        out = np.full((len(ridges), len(w), y.shape[1]), np.nan)
        out[good] = e / (1.0 - share[here] * (1.0 - slack))[..., None]
        if not w.all() and not intercept:  # a row without weight has no part in the fit, nor in P
            none = np.arange(len(y))[here][w == 0.0]
            for a in np.flatnonzero(good):
                fitted = self.f.lift(self.f.core @ self.f.project(self.solve(y, float(ridges[a]))))
                out[a, w == 0.0] = (y - fitted)[none]
        return out


@dataclass(frozen=True, eq=False)
class Factored:
    """The same for a large core that does not fall apart: no eigenvectors, but a sparse Cholesky factor for each t."""

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
        units, step = self.f.basis_rows(rows), max(1, COLUMNS // self.f.rank)
        e: Array = np.empty((len(ridges), len(rows), both.shape[1]))
        slack: Array = np.ones((len(ridges), len(rows)))
        sums = np.empty((len(ridges), both.shape[1]))
        for a, t in enumerate(ridges.tolist()):
            system = self._system(t)
            dual = self._solved(system, both, t)
            e[a], sums[a] = dual[rows] * (t / w)[:, None], dual.sum(0)
            for start in range(0, len(rows), step):
                some = units[start : start + step].T.toarray()  # (r, step)
                slack[a, start : start + step] -= w[start : start + step] / t * (some * system.solve(some)).sum(0)
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
    """Return what every ridge on f needs; ``system`` may be that of f's core, where it is known."""
    if not has_spectrum(f.core):
        return Factored(f, weights)
    if np.all(weights == 1.0):
        return RidgeEigensystem(f, weights, f, system or eigensystem(f.core, f.ranks))
    roots = np.sqrt(weights)
    blocks, triangles = [], []
    for i in range(f.n_blocks):
        P, R = orthonormalise(np.asfortranarray(roots[f.bases.members(i), None] * f.bases.local(i, slice(None))))
        blocks.append(P)
        triangles.append(R)
    B = congruent(f.core, triangles, f.ranks)
    scaled = Factorization(Bases(tuple(blocks), f.order), B, 0.0)
    return RidgeEigensystem(f, weights, scaled, eigensystem(B, scaled.ranks))


def _with_constant(e: Array, slack: Array, w: Array, t: Array, sums: Array) -> tuple[Array, Array]:
    """Residuals and slacks of fits with an unpenalised constant from those without, the last column being of ones.

    ``sums`` are 1ᵀ(K + t W⁻¹)⁻¹y for each t and column: the bordered system takes one Schur complement.
    """
    last = sums[:, None, -1:]
    slack = slack - w * e[..., -1] ** 2 / (t[:, None] * last[..., 0])
    return e[..., :-1] - e[..., -1:] * (sums[:, None, :-1] / last), slack


def _row_strips(f: Factorization, i: int, m: int) -> Iterator[tuple[Indices, Array]]:
    """Rows of U_i with their places in the caller's order, few enough to be multiplied by k x m."""
    for rows, U in f.bases.tiles(i):
        for part in strips(len(U), m, COLUMNS // 8):
            yield rows[part], U[part]


def _product(U: Array, V: Array) -> Array:
    """U V, a new array; eigenvectors of a diagonal core are unit vectors and only pick columns."""
    if V.size and V.shape[0] == V.shape[1] == np.count_nonzero(V) and (V.max(0) == 1.0).all():
        return np.asarray(U[:, V.argmax(0)])
    return np.asarray(U @ V)
