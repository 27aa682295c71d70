"""The linear systems of the dual, H = D + U M Uᵀ with a positive diagonal D, by the Woodbury identity.

In: the blocks of G = Uᵀ D⁻¹ U and the core. Out: X with H⁻¹ = D⁻¹ - D⁻¹ U X Uᵀ D⁻¹; only r x r matrices are factored.
With G_i = F_i F_iᵀ and B = Fᵀ M F, I + B is positive definite exactly if H is, so one Cholesky factorization covers
indefinite and singular cores. Components of the core are factored separately, large ones by a block Cholesky
factorization in a fill-reducing order. `Bordered` adds the equation of sum(b).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import blas, lapack

from krein.arrays import EPS, Array, Indices
from krein.errors import InputError
from krein.factorization import Factorization
from krein.factorization import cholesky as blockcholesky
from krein.factorization.cholesky import BlockCholesky
from krein.factorization.core import BlockSparse, core_peak, is_dense

__all__ = ["NEWTON_RESIDUAL", "REFINEMENTS", "Bordered", "Part", "System", "factorize", "parts_of"]

# A component of the core is factored as a dense matrix up to this many rows, and by its sparse blocks beyond.
DENSE_PART = 2000
# A bordered system is refined to this relative residual, in at most REFINEMENTS steps; 1e-6 stalled for C = 1000.
NEWTON_RESIDUAL = 1e-9
REFINEMENTS = 6


@dataclass(frozen=True, eq=False)
class Part:
    """A component of the core: blocks that are coupled with each other and with no others."""

    blocks: tuple[int, ...]
    columns: Indices | slice  # of the core
    spans: tuple[slice, ...]  # of each block within the part
    core: Array | BlockSparse
    peak: float = field(init=False)  # the largest |entry| of the core

    def __post_init__(self) -> None:
        vars(self).update(peak=core_peak(self.core))


def parts_of(f: Factorization) -> tuple[Part, ...]:
    """Return the components of the core; a dense core is one."""
    ends = np.concatenate([[0], np.cumsum(f.ranks, dtype=np.intp)])
    if is_dense(f.core):
        spans = tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(ends.tolist()))
        return (Part(tuple(range(f.n_blocks)), slice(None), spans, f.core),)
    labels = f.core.components
    order = np.argsort(labels, kind="stable")
    found = []
    pieces = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(order) else []
    diagonal = f.core.diagonal_blocks() if f.core.is_block_diagonal else None
    split = None if diagonal is not None else f.core.split()
    for blocks in pieces:
        ranks = np.array([f.ranks[i] for i in blocks], dtype=np.intp)
        if ranks.sum() == 0:
            continue
        stops = np.cumsum(ranks)
        spans = tuple(slice(int(b - k), int(b)) for k, b in zip(ranks, stops, strict=True))
        columns = np.concatenate([np.arange(ends[i], ends[i + 1]) for i in blocks])
        core: Array | BlockSparse
        if diagonal is not None:
            core = diagonal[int(blocks[0])]
        else:
            assert split is not None
            core = split[int(labels[blocks[0]])]
            if core.shape[0] <= DENSE_PART:
                core = core.to_dense()
            elif not core.can_factor:
                raise InputError(
                    f"The dual needs a Cholesky factor of a coupled core of rank {core.shape[0]}, which would hold "
                    f"{core.elimination.nbytes / 2**30:.1f} GiB. Keep fewer couplings (drop) or a lower rank."
                )
        if len(blocks) == 1:
            columns = slice(int(ends[blocks[0]]), int(ends[blocks[0] + 1]))  # type: ignore[assignment]
        found.append(Part(tuple(int(i) for i in blocks), columns, spans, core))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Factor:
    """One part: the F_i and the Cholesky factor of I + FᵀMF."""

    part: Part
    roots: tuple[Array, ...]  # F_i: lower triangular, or any (k_i, m_i) with F_i F_iᵀ = G_i
    upper: Array | BlockCholesky  # of I + B
    triangular: bool

    def solve(self, y: Array) -> Array:
        """X y for y of shape (r_part, p)."""
        core = self.part.core
        image = core @ y
        if self.triangular and len(self.roots) == 1:  # there may be many such parts: few calls each
            F = self.roots[0]
            return np.asarray(blas.dtrsm(1.0, F, self._middle(F.T @ image), lower=1, trans_a=1))
        if self.triangular:
            inner = np.empty_like(y)
            for F, span in zip(self.roots, self.part.spans, strict=True):
                inner[span] = F.T @ image[span]
            inner = self._middle(inner)
            for F, span in zip(self.roots, self.part.spans, strict=True):
                inner[span] = blas.dtrsm(1.0, F, inner[span], lower=1, trans_a=1)
            return inner
        stops = np.cumsum([F.shape[1] for F in self.roots])
        spans = [slice(int(b) - F.shape[1], int(b)) for F, b in zip(self.roots, stops, strict=True)]
        inner = np.empty((int(stops[-1]), y.shape[1]))
        for F, span, here in zip(self.roots, self.part.spans, spans, strict=True):
            inner[here] = F.T @ image[span]
        inner = self._middle(inner)
        back = np.empty_like(y)
        for F, span, here in zip(self.roots, self.part.spans, spans, strict=True):
            back[span] = F @ inner[here]
        return np.asarray(image - core @ back)

    def _middle(self, y: Array) -> Array:
        if isinstance(self.upper, BlockCholesky):
            return self.upper.solve(y)
        return np.asarray(lapack.dpotrs(self.upper, y, lower=0)[0]) if len(y) else y


@dataclass(frozen=True, eq=False)
class System:
    """X, part by part."""

    rank: int
    factors: tuple[Factor, ...]

    def solve(self, y: Array) -> Array:
        """X y for y of shape (r,) or (r, p)."""
        if y.size == 0:
            return np.zeros(y.shape)
        flat = y.reshape(self.rank, -1)
        out = np.zeros_like(flat)
        for factor in self.factors:
            out[factor.part.columns] = factor.solve(flat[factor.part.columns])
        return out.reshape(y.shape)


def factorize(parts: Sequence[Part], rank: int, grams: Sequence[Array], triangular: bool = True) -> System | None:
    """Factor I + B, or return None if it is not positive definite.

    ``triangular`` uses Cholesky factors of G, which needs D⁻¹ > 0 in every row. Without it eigenvalues are used, and
    blocks of G may be singular or zero.
    """
    factors = []
    for part in parts:
        make = _cholesky_root if triangular else _eigen_root
        roots = tuple(make(grams[i], part.peak) for i in part.blocks)
        upper = _middle_factor(part, roots)
        if upper is None:
            return None
        factors.append(Factor(part, roots, upper, triangular))
    return System(rank, tuple(factors))


def _cholesky_root(G: Array, size: float) -> Array:
    """Lower triangular F with F Fᵀ = G; a small ridge is added if G is singular by rounding."""
    k = len(G)
    if k == 0:
        return np.zeros((0, 0))
    peak = float(np.diagonal(G).max())
    if not np.isfinite(peak):
        return np.full((k, k), np.nan)
    if peak > 0.0:
        jitter = 0.0
        for _ in range(6):
            F, info = lapack.dpotrf(G if jitter == 0.0 else G + jitter * np.eye(k), lower=1, clean=1)
            if info == 0:
                return np.asarray(F)
            jitter = max(100.0 * jitter, k * EPS * peak)
    return np.asarray(1e-9 / np.sqrt(max(size, 1e-300)) * np.eye(k, order="F"))


def _eigen_root(G: Array, _: float) -> Array:
    """F with F Fᵀ = G, from its eigenvectors of positive eigenvalues."""
    values, vectors = np.linalg.eigh(G)
    keep = values > len(G) * EPS * float(values.max(initial=0.0))
    return np.asarray(vectors[:, keep] * np.sqrt(values[keep]))


def _middle_factor(part: Part, roots: Sequence[Array]) -> Array | BlockCholesky | None:
    """The Cholesky factor of I + FᵀMF."""
    if not is_dense(part.core):
        turned = ((i, j, roots[i].T @ block @ roots[j]) for i, j, block in part.core.blocks())
        widths = [F.shape[1] for F in roots]
        same = widths == list(part.core.ranks)
        pattern = part.core.elimination if same else blockcholesky.elimination(widths, *part.core._pairs)
        return blockcholesky.factorize(pattern, turned, 1.0)
    size = sum(F.shape[1] for F in roots)
    if size == 0:
        return np.zeros((0, 0))
    if len(roots) == 1:
        return _one_plus(np.asfortranarray(roots[0].T @ part.core @ roots[0]))
    stops = np.cumsum([F.shape[1] for F in roots])
    spans = [slice(int(b) - F.shape[1], int(b)) for F, b in zip(roots, stops, strict=True)]
    half = np.empty((size, len(part.core)))
    for F, span, here in zip(roots, part.spans, spans, strict=True):
        half[here] = F.T @ part.core[span]
    B = np.empty((size, size), order="F")
    for F, span, here in zip(roots, part.spans, spans, strict=True):
        B[:, here] = half[:, span] @ F
    return _one_plus(B)


def _one_plus(B: Array) -> Array | None:
    """The Cholesky factor of I + B, which overwrites B; None if there is none."""
    if not np.isfinite(B.sum()):  # NaN and infinity stay in a sum
        return None
    np.einsum("ii->i", B)[:] += 1.0
    upper, info = lapack.dpotrf(B, lower=0, clean=0, overwrite_a=1)
    return np.asarray(upper) if info == 0 else None


class Bordered:
    """The bordered system (E + K) x + y = E wanted, sum(x) = short, of a Newton step.

    ``loose`` is E⁻¹, ``damping`` 1 + shift E⁻¹ and ``inverse`` D⁻¹ = E⁻¹ / damping, with which ``system`` was factored.
    """

    def __init__(self, f: Factorization, system: System, loose: Array, damping: Array, inverse: Array) -> None:
        self.f, self.system, self.loose, self.damping, self.inverse = f, system, loose, damping, inverse
        self.ones = self._inverse(inverse)
        self.sum = float(self.ones.sum())
        if not self.sum > 0.0:  # it is, for every psd K, unless numbers vanished or overflowed
            raise InputError(
                "The dual cannot be solved in float64: the similarities and C differ too much in size. Divide the "
                "kernel by its largest value."
            )

    def _inverse(self, scaled: Array) -> Array:
        """H⁻¹ x where ``scaled`` is D⁻¹ x."""
        correction = self.f.lift(self.system.solve(self.f.project(scaled)))
        return np.asarray(scaled - (self.inverse if scaled.ndim == 1 else self.inverse[:, None]) * correction)

    def solve(self, wanted: Array, short: float, refine: bool, product: bool) -> tuple[Array, float, Array]:
        """Return x, y and K x, refined by the residual in units of the gradient; without ``product`` x, y and x."""
        x = self._inverse(wanted / self.damping)
        y = (float(x.sum()) - short) / self.sum
        x -= y * self.ones
        if not product:
            return x, y, x
        turned = self.f @ x
        if not refine:
            return x, y, turned
        held = self.loose > 0.0
        E = np.where(held, 1.0 / np.where(held, self.loose, 1.0), 0.0)
        size = float(np.linalg.norm(E * wanted)) or 1.0
        last = np.inf
        for _ in range(REFINEMENTS):
            rest = np.where(held, E * (wanted - x) - turned - y, 0.0)
            gap = short - float(x.sum())
            left = float(np.linalg.norm(rest))
            if not np.isfinite(left) or left <= NEWTON_RESIDUAL * size or left > 0.5 * last:
                break
            last = left
            more = self._inverse(self.inverse * rest)
            dy = (float(more.sum()) - gap) / self.sum
            more -= dy * self.ones
            x, y = x + more, y + dy
            turned = turned + self.f @ more
        return x, y, turned
