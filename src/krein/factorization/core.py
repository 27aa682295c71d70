"""The interface to a core M, which is either dense (an ndarray) or block-sparse.

In: a core of either kind. Out: its blocks, norm and spectrum, T M Tᵀ, the weights of its rows, solves and determinants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from krein.arrays import Array
from krein.errors import InputError
from krein.factorization import dense
from krein.factorization.blocksparse import SMALL, BlockSparse, Group

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = [
    "as_core",
    "check_symmetric",
    "congruent",
    "core_block",
    "core_eigenvalues",
    "core_frobenius",
    "core_logdet",
    "core_peak",
    "core_solve",
    "diagonal_blocks",
    "has_spectrum",
    "is_dense",
    "map_entries",
    "row_grams",
    "row_weights",
    "symmetric_core",
    "to_dense",
]

Spans = Sequence[tuple[slice, slice]]  # (positions, columns) of each block


def is_dense(core: Array | BlockSparse) -> TypeIs[Array]:
    """Return whether the core is an ndarray."""
    return isinstance(core, np.ndarray)


def as_core(L: Any) -> Array | BlockSparse:
    """Return L as a core: a `BlockSparse` as it is, anything else as a float64 array."""
    return L if isinstance(L, BlockSparse) else np.asarray(L, dtype=np.float64)


def to_dense(core: Array | BlockSparse) -> Array:
    """Return the core as an ndarray."""
    return core if is_dense(core) else core.to_dense()


def core_block(core: Array | BlockSparse, spans: Spans, i: int, j: int) -> Array:
    """Return M_ij."""
    return core[spans[i][1], spans[j][1]] if is_dense(core) else core.block(i, j)


def diagonal_blocks(core: Array | BlockSparse, spans: Spans) -> list[Array]:
    """Return every M_ii."""
    return [core[cols, cols] for _, cols in spans] if is_dense(core) else core.diagonal_blocks()


def map_entries(core: Array | BlockSparse, function: Callable[[Array], Array]) -> Array | BlockSparse:
    """Return the core with ``function`` applied to its entries."""
    return function(core) if is_dense(core) else core.map_blocks(lambda i, j, block: function(block), core.ranks)


def core_peak(core: Array | BlockSparse) -> float:
    """Return the largest absolute entry."""
    return float(np.abs(core).max(initial=0.0)) if is_dense(core) else core.peak


def core_frobenius(core: Array | BlockSparse, shift: float = 0.0) -> float:
    """Return the Frobenius norm of M + shift I, without overflow."""
    if not is_dense(core):
        return core.frobenius(shift)
    return float(scipy.linalg.norm((core + shift * np.eye(len(core)) if shift else core).ravel())) if core.size else 0.0


def core_eigenvalues(core: Array | BlockSparse) -> Array:
    """Return all eigenvalues, ascending."""
    return dense.eigvalsh(core) if is_dense(core) else core.eigenvalues()


def has_spectrum(core: Array | BlockSparse) -> bool:
    """Return whether all eigenvectors are affordable; those of a dense core are."""
    return is_dense(core) or core.has_spectrum


def congruent(core: Array | BlockSparse, transforms: Sequence[Array], columns: Sequence[int]) -> Array | BlockSparse:
    """Return T M Tᵀ for T = blockdiag(transforms), block by block; ``columns`` are M's block sizes."""
    ranks = [len(T) for T in transforms]
    if not is_dense(core):
        return core.map_blocks(lambda i, j, b: _turned(transforms[i], b, transforms[j], i == j), ranks)
    half = np.empty((sum(ranks), core.shape[1]))
    for T, new, old in _matching(transforms, ranks, columns):
        half[new] = T @ core[old]
    whole = np.empty((sum(ranks), sum(ranks)))
    for T, new, old in _matching(transforms, ranks, columns):
        whole[:, new] = half[:, old] @ T.T
    return (whole + whole.T) / 2.0


def _turned(left: Array, block: Array, right: Array, diagonal: bool) -> Array:
    new = left @ block @ right.T
    return (new + new.T) / 2.0 if diagonal else new


def _matching(
    transforms: Sequence[Array], ranks: Sequence[int], columns: Sequence[int]
) -> Iterator[tuple[Array, slice, slice]]:
    new, old = np.concatenate([[0], np.cumsum(ranks)]), np.concatenate([[0], np.cumsum(columns)])
    for i, T in enumerate(transforms):
        yield T, slice(int(new[i]), int(new[i + 1])), slice(int(old[i]), int(old[i + 1]))


def row_grams(core: Array | BlockSparse, ranks: Sequence[int]) -> list[Array]:
    """For each block i the sum over j of M_ij M_ijᵀ, (k_i, k_i): how strongly each direction is used.

    In units of |M|'s largest entry, so that no square overflows; only the proportions matter.
    """
    if not is_dense(core):
        found: list[Array] = [np.zeros((k, k)) for k in ranks]
        for i, j, block in core.blocks():
            part = block / core.peak
            found[i] += part @ part.T
            if i != j:
                found[j] += part.T @ part
        return found
    stops, peak = np.cumsum(ranks), core_peak(core) or 1.0
    rows = (core[stop - k : stop] / peak for stop, k in zip(stops, ranks, strict=True))
    return [part @ part.T for part in rows]


def row_weights(core: Array | BlockSparse, ranks: Sequence[int]) -> list[Array]:
    """A square root (k_i, k_i) of each of `row_grams`."""
    pairs = [np.linalg.eigh(S) for S in row_grams(core, ranks)]
    return [vectors * np.sqrt(np.maximum(values, 0.0)) for values, vectors in pairs]


def check_symmetric(core: Array | BlockSparse, name: str = "The core") -> None:
    """Refuse NaN, infinity and more asymmetry than rounding makes, showing the largest difference."""
    groups = (Group(np.arange(1), np.arange(1), core[None]),) if is_dense(core) else core.groups
    size = gap = 0.0
    for g in groups:
        diagonal = np.array_equal(g.left, g.right) and g.values.ndim == 3  # a stored diagonal is symmetric
        values = g.values if g.values.ndim == 3 else g.values[:, None]
        for part, mirrored in dense.strips(values):  # no copy of the whole is made
            if not np.isfinite(part).all():
                raise InputError(f"{name} holds NaN or infinite values; it needs finite numbers.")
            size = max(size, float(np.abs(part).max(initial=0.0)))
            gap = max(gap, float(np.abs(part - mirrored).max(initial=0.0))) if diagonal else gap
    if gap > 1e-8 * size:
        raise InputError(
            f"{name} must be symmetric; the largest |M - Mᵀ| is {gap:.3g}. Pass (M + M.T) / 2 if that is meant."
        )


def symmetric_core(L: Array | BlockSparse) -> Array | BlockSparse:
    """L with rounding's asymmetry averaged out; more than rounding is an error."""
    L = as_core(L)
    check_symmetric(L, "L")
    if not is_dense(L):
        return L.map_blocks(lambda i, j, b: b / 2.0 + b.T / 2.0 if i == j else b, L.ranks)
    return L / 2.0 + L.T / 2.0


def core_solve(core: Array | BlockSparse, b: Array, t: float) -> Array:
    """(M + tI)⁻¹ b, M indefinite or not; singular is an error where all of the spectrum is seen, else a warning."""
    if not is_dense(core):
        if core.is_block_diagonal or len(b) > SMALL:
            return core.solve(b, t)
        core = core.to_dense()
    return dense.solve(core, b, t)


def core_logdet(core: Array | BlockSparse, t: float) -> float:
    """log det(M + tI), which has to be positive definite; a core too large to factor needs its spectrum."""
    if is_dense(core):
        return dense.logdet(core, t)
    if core.is_block_diagonal or not core.can_factor:
        values = core.eigenvalues() + t
        if np.any(values <= 0.0):
            raise dense.indefinite(float(values.min()))
        return float(np.log(values).sum())
    factor = core.cholesky(t)
    if factor is None:
        raise dense.indefinite(min(core.ends.smallest + t, 0.0))
    return factor.logdet()
