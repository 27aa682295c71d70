"""The core M: a dense array, or a `BlockSparse` that keeps only some of its blocks; and functions that take either.

In: blocks (i, j) with i <= j, or an array. Out: blocks, norm and spectrum, products, T M Tᵀ, solves and determinants.
With thousands of clusters few are coupled, and most blocks are zero. The spectrum of a block-diagonal core is exact.
Otherwise there are bounds, and solves by Cholesky in a fill-reducing order, or by iteration if that would be too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from krein.arrays import EPS, Array, Indices
from krein.errors import InputError, warn
from krein.factorization import cholesky as blockcholesky
from krein.factorization.cholesky import BlockCholesky, Elimination
from krein.factorization.krylov import Ends, extreme, improve

if TYPE_CHECKING:
    from typing_extensions import TypeIs
from krein.errors import IndefiniteError
from krein.threads import large_products

__all__ = [
    "BlockSparse", "Ends", "Group", "as_core", "check_symmetric", "congruent", "core_block", "core_eigenvalues",
    "core_frobenius", "core_logdet", "core_peak", "core_solve", "diagonal_blocks", "eigh", "eigvalsh",
    "has_cholesky", "has_spectrum", "indefinite", "is_dense", "is_diagonal", "map_entries", "row_grams",
    "row_weights", "singular", "symmetric_core", "to_dense",
]  # fmt: skip

# Up to SMALL rows dense algebra is faster than any iteration, and exact.
SMALL = 512
# Up to DENSE_LIMIT rows a dense eigendecomposition takes seconds.
DENSE_LIMIT = 6000
# The iterative solver aims at this relative residual.
SOLVE_TOLERANCE = 1e-10
Spans = Sequence[tuple[slice, slice]]  # (positions, columns) of each block


# -- a core of blocks --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Group:
    """Blocks of one shape, stacked, so that one batched product serves them all."""

    left: Indices  # (m,) block row of each
    right: Indices  # (m,) block column, >= left
    values: Array  # (m, a, b), or (m, a): the diagonals of blocks (i, i) that have nothing else


@dataclass(frozen=True, eq=False)
class BlockSparse:
    """A symmetric (r, r) matrix made of blocks; blocks that are not stored are zero. `from_blocks` makes one.

    Parameters
    ----------
    ranks : tuple of int
        Rows of each diagonal block; r is their sum.
    groups : tuple of Group
        The stored blocks, grouped by shape.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> M = krein.BlockSparse.from_blocks([1, 1, 1], {(0, 0): np.eye(1), (0, 2): np.array([[0.5]])})
    >>> M.to_dense()
    array([[1. , 0. , 0.5],
           [0. , 0. , 0. ],
           [0.5, 0. , 0. ]])
    """

    ranks: tuple[int, ...]
    groups: tuple[Group, ...]
    starts: Indices = field(init=False, repr=False)  # (c + 1,) the first row of each block, and r
    shape: tuple[int, int] = field(init=False, repr=False)
    n_kept: int = field(init=False, repr=False)  # stored entries
    is_block_diagonal: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        starts = np.concatenate([[0], np.cumsum(self.ranks, dtype=np.intp)])
        vars(self).update(
            starts=starts,
            shape=(int(starts[-1]),) * 2,
            n_kept=sum(g.values.size for g in self.groups),
            is_block_diagonal=all(np.array_equal(g.left, g.right) for g in self.groups),
        )

    @classmethod
    def from_blocks(cls, ranks: Sequence[int], blocks: Mapping[tuple[int, int], Array]) -> BlockSparse:
        """Return the core of the given blocks.

        Parameters
        ----------
        ranks : sequence of int
            Rows of each diagonal block.
        blocks : mapping of (i, j) to array of shape (ranks[i], ranks[j])
            The blocks with i <= j. The lower half is their transpose.
        """
        by_shape: dict[tuple[int, int, bool], list[tuple[int, int]]] = {}
        for i, j in sorted(blocks):
            if not 0 <= i <= j < len(ranks):
                raise InputError(f"A block key must be (i, j) with 0 <= i <= j < {len(ranks)}; got ({i}, {j}).")
            if blocks[i, j].shape != (ranks[i], ranks[j]):
                raise InputError(f"Block ({i}, {j}) must have shape {(ranks[i], ranks[j])}; got {blocks[i, j].shape}.")
            by_shape.setdefault((ranks[i], ranks[j], i == j), []).append((i, j))
        groups = []
        for keys in by_shape.values():
            pairs = np.asarray(keys, dtype=np.intp)
            groups.append(
                Group(pairs[:, 0], pairs[:, 1], _stacked([blocks[i, j] for i, j in keys], keys[0][0] == keys[0][1]))
            )
        return cls(tuple(int(k) for k in ranks), tuple(groups))

    @property
    def nbytes(self) -> int:
        return sum(g.values.nbytes + g.left.nbytes + g.right.nbytes for g in self.groups)

    def blocks(self) -> Iterator[tuple[int, int, Array]]:
        """Yield (i, j, block), i <= j."""
        for g in self.groups:
            yield from zip(g.left.tolist(), g.right.tolist(), _unstacked(g.values), strict=True)

    @cached_property
    def _where(self) -> dict[tuple[int, int], Array]:
        pairs = ((zip(g.left.tolist(), g.right.tolist(), strict=True), g.values) for g in self.groups)
        return {key: held for keys, values in pairs for key, held in zip(keys, values, strict=True)}

    def block(self, i: int, j: int) -> Array:
        """Block (i, j), zero where none was kept."""
        held = self._where.get((min(i, j), max(i, j)))
        if held is None:
            return np.zeros((self.ranks[i], self.ranks[j]))
        return np.diag(held) if held.ndim == 1 else held if i <= j else held.T

    def map_blocks(self, change: Callable[[int, int, Array], Array], ranks: Sequence[int]) -> BlockSparse:
        """Return the core whose block (i, j) is ``change(i, j, block)``, with the new ranks."""
        return BlockSparse.from_blocks(ranks, {(i, j): change(i, j, block) for i, j, block in self.blocks()})

    def __matmul__(self, x: Array) -> Array:
        """M x for x of shape (r,) or (r, p): one batched product per block shape, each block used for both halves."""
        if x.ndim not in (1, 2) or len(x) != self.shape[0]:
            raise InputError(f"@ needs an array of {self.shape[0]} rows (1-D or 2-D); got shape {x.shape}.")
        flat = x.reshape(self.shape[0], -1) if x.size else np.zeros((self.shape[0], x.size))
        out = np.zeros(flat.shape, dtype=np.result_type(flat.dtype, np.float64))
        for g in self.groups:
            a, b = g.values.shape[1], g.values.shape[-1]
            rows = self.starts[g.left][:, None] + np.arange(a)  # (m, a)
            if g.values.ndim == 2:
                out[rows] += g.values[:, :, None] * flat[rows]
                continue
            cols = self.starts[g.right][:, None] + np.arange(b)  # (m, b)
            np.add.at(out, rows, g.values @ flat[cols])
            if not np.array_equal(g.left, g.right):
                np.add.at(out, cols, g.values.transpose(0, 2, 1) @ flat[rows])
        return out.reshape(x.shape)

    def to_dense(self) -> Array:
        M = np.zeros(self.shape)
        for i, j, block in self.blocks():
            rows = slice(self.starts[i], self.starts[i + 1])
            cols = slice(self.starts[j], self.starts[j + 1])
            M[rows, cols] = block
            M[cols, rows] = block.T
        return M

    @cached_property
    def peak(self) -> float:
        """The largest |entry|; 1 if there is none, so that one can divide by it before squaring."""
        return max((float(np.abs(g.values).max(initial=0.0)) for g in self.groups), default=0.0) or 1.0

    def diagonal_blocks(self) -> list[Array]:
        """The c blocks (i, i), zero where none was kept."""
        found: list[Array] = [np.zeros((k, k)) for k in self.ranks]
        for i, j, block in self.blocks():
            if i == j:
                found[i] = block
        return found

    def frobenius(self, shift: float = 0.0) -> float:
        """The Frobenius norm of M + shift I; of raveled blocks, where BLAS takes care of scale."""
        parts = [scipy.linalg.norm((b + shift * np.eye(len(b))).ravel()) for b in self.diagonal_blocks() if b.size]
        parts += [np.sqrt(2.0) * scipy.linalg.norm(b.ravel()) for i, j, b in self.blocks() if i != j and b.size]
        return float(scipy.linalg.norm(np.asarray(parts))) if parts else 0.0

    @property
    def _pairs(self) -> Indices:
        pairs = [np.stack([g.left, g.right]) for g in self.groups]
        return np.concatenate([np.empty((2, 0), dtype=np.intp), *pairs], axis=1)  # (2, m)

    @cached_property
    def graph(self) -> Any:
        """(c, c), sparse: which pairs of blocks are coupled."""
        c, (left, right) = len(self.ranks), self._pairs
        half = csr_array((np.ones(len(left), dtype=bool), (left, right)), shape=(c, c))
        return half + half.T

    @cached_property
    def components(self) -> Indices:
        """(c,) a number for each block: the same where blocks are coupled, directly or through others."""
        return np.asarray(connected_components(self.graph)[1])

    @cached_property
    def has_spectrum(self) -> bool:
        """Whether all eigenvalues cost at most what those of DENSE_LIMIT dense rows do, component by component."""
        rows = np.bincount(self.components, weights=self.ranks)
        return self.is_block_diagonal or bool((rows**3).sum() <= float(DENSE_LIMIT) ** 3)

    def split(self) -> list[BlockSparse]:
        """The components, each a core of its own with the blocks in their order."""
        return list(self.parts())

    def parts(self) -> Iterator[BlockSparse]:
        """Yield what `split` lists, one at a time."""
        place = np.zeros(len(self.ranks), dtype=np.intp)
        parts: list[tuple[list[int], dict[tuple[int, int], Array]]] = [([], {}) for _ in np.unique(self.components)]
        for i, (part, k) in enumerate(zip(self.components, self.ranks, strict=True)):
            place[i] = len(parts[part][0])
            parts[part][0].append(k)
        for i, j, block in self.blocks():
            parts[self.components[i]][1][int(place[i]), int(place[j])] = block
        yield from (BlockSparse.from_blocks(ranks, blocks) for ranks, blocks in parts)

    def eigenvalues(self) -> Array:
        """All eigenvalues, ascending, by dense algebra on each component, while that is affordable."""
        if not self.has_spectrum:
            raise InputError(
                f"All eigenvalues of a block-sparse core need a dense matrix of {self.shape[0]} rows, over the limit "
                f"of {DENSE_LIMIT}. Ask for ends() or smallest_eigenvalue(), or keep the diagonal blocks alone."
            )
        parts = self.diagonal_blocks() if self.is_block_diagonal else (part.to_dense() for part in self.parts())
        return np.sort(np.concatenate([eigvalsh(b) for b in parts] or [np.empty(0)]))

    @cached_property
    def ends(self) -> Ends:
        """The smallest and largest eigenvalue.

        They are exact for small cores, and for cores of several components that are not too large. Otherwise Lanczos on
        r-vectors gives Ritz values with residuals, and block Gershgorin gives bounds that hold without convergence:
        every eigenvalue lies within sum_j |M_ij| of one of M_ii's.
        """
        separable = self.is_block_diagonal or self.components.max(initial=0) > 0
        if self.shape[0] <= SMALL or (self.has_spectrum and separable):
            values = self.eigenvalues()
            low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
            return Ends(low, high, 0.0, low, high, exact=True)
        spectra = [eigvalsh(block) for block in self.diagonal_blocks()]
        lows = np.array([values.min(initial=np.inf) for values in spectra])  # an empty block has no eigenvalue
        highs = np.array([values.max(initial=-np.inf) for values in spectra])
        radii = np.zeros(len(self.ranks))
        for g in self.groups:
            if not np.array_equal(g.left, g.right):
                size = _spectral_norm_bounds(g.values)
                np.add.at(radii, g.left, size)
                np.add.at(radii, g.right, size)
        lower, upper = float((lows - radii).min()), float((highs + radii).max())
        if lower == upper:  # nothing but zeros is kept off the diagonal, and one value on it
            return Ends(lower, upper, 0.0, lower, upper, exact=True)
        smallest, first = extreme(self.__matmul__, self.shape[0], "SA", max(abs(lower), abs(upper)))
        largest, second = extreme(self.__matmul__, self.shape[0], "LA", max(abs(lower), abs(upper)))
        return Ends(smallest, largest, max(first, second), lower, upper, exact=False)

    @cached_property
    def elimination(self) -> Elimination:
        """The order of elimination for a Cholesky factorization, and its cost."""
        return blockcholesky.elimination(self.ranks, *self._pairs)

    @property
    def can_factor(self) -> bool:
        """Whether a Cholesky factorization stays within what `krein.factorization.cholesky` allows."""
        return 8 * self.n_kept <= blockcholesky.BYTES_LIMIT and self.elimination.fits  # L holds what M does, or more

    def cholesky(self, shift: float) -> BlockCholesky | None:
        """The Cholesky factor of M + shift I, or None if that is not positive definite."""
        return blockcholesky.factorize(self.elimination, self.blocks(), shift)

    def solve(self, b: Array, shift: float) -> Array:
        """(M + shift I)⁻¹ b: by Cholesky where that fits and exists, refined by its residual.

        Otherwise by conjugate gradients (MINRES if that fails) preconditioned by the diagonal blocks. Block-diagonal
        cores are solved exactly. A residual above the tolerance is a warning with the figure.
        """
        if b.size == 0:
            return np.zeros(b.shape)
        flat = b.reshape(self.shape[0], -1)
        if self.is_block_diagonal:
            return (self._block_inverse(shift) @ flat).reshape(b.shape)

        def product(x: Array) -> Array:
            return self @ x + shift * x

        factor = self.cholesky(shift) if self.can_factor else None
        out = np.zeros(flat.shape) if factor is None else factor.refined(product, flat)
        sizes, left = np.linalg.norm(flat, axis=0), np.linalg.norm(flat - product(out), axis=0)
        poor = np.flatnonzero(~(left <= SOLVE_TOLERANCE * sizes))
        inverse = self._block_inverse(shift) if len(poor) else self
        worst = 0.0
        for p in poor:
            out[:, p], reached = improve(product, inverse.__matmul__, flat[:, p], out[:, p], SOLVE_TOLERANCE)
            worst = max(worst, reached)
        if worst > SOLVE_TOLERANCE:
            warn(
                f"The block-sparse solve stopped at a relative residual of {worst:.2g}, above {SOLVE_TOLERANCE:g}. "
                "A larger ridge makes the system better conditioned."
            )
        return out.reshape(b.shape)

    def _block_inverse(self, shift: float) -> BlockSparse:
        """The inverse of the diagonal blocks of M + shift I; of their absolute value unless M is block-diagonal."""
        inverses = {}
        for i, block in enumerate(self.diagonal_blocks()):
            plain = is_diagonal(block)  # as in an eigendecomposition
            values, vectors = (np.diagonal(block), None) if plain else np.linalg.eigh(block)
            values = values + shift
            tiny = 10 * len(block) * EPS * float(np.abs(values).max(initial=0.0))
            if self.is_block_diagonal:
                if np.any(np.abs(values) <= tiny):
                    raise singular(f"block {i} of the matrix", values)
            else:
                values = np.maximum(np.abs(values), max(tiny, np.finfo(float).tiny))
            inverses[i, i] = np.diag(1.0 / values) if vectors is None else (vectors / values) @ vectors.T
        return BlockSparse.from_blocks(self.ranks, inverses)


def _stacked(blocks: list[Array], square: bool) -> Array:
    """(m, a, b); of ``square`` blocks that are diagonal to the last bit (m, a): a numbers for a²."""
    if square and len(blocks[0]) > 1 and all(np.count_nonzero(b) == np.count_nonzero(b.diagonal()) for b in blocks):
        return np.stack([b.diagonal() for b in blocks])
    return np.stack(blocks)


def _unstacked(values: Array) -> Array:
    """(m, a, b), the blocks that `_stacked` was given."""
    return values if values.ndim == 3 else np.where(np.eye(values.shape[1], dtype=bool), values[:, :, None], 0.0)


def _spectral_norm_bounds(values: Array) -> Array:
    """Upper bounds of the spectral norms of stacked blocks (m, a, b): Frobenius, or sqrt(|.|_1 |.|_inf) if less."""
    size = np.abs(values)
    peak = size.max((1, 2), initial=0.0)
    peak[peak == 0.0] = 1.0
    size = size / peak[:, None, None]  # no square over- or underflows
    mixed = np.sqrt(size.sum(1).max(1, initial=0.0) * size.sum(2).max(1, initial=0.0))
    return np.asarray(peak * np.minimum(np.sqrt((size**2).sum((1, 2))), mixed))


# -- cores of either kind ----------------------------------------------------------------------------------------------


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
    return eigvalsh(core) if is_dense(core) else core.eigenvalues()


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
        for part, mirrored in _strips(values):  # no copy of the whole is made
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
    return _dense_solve(core, b, t)


def core_logdet(core: Array | BlockSparse, t: float) -> float:
    """log det(M + tI), which has to be positive definite; a core too large to factor needs its spectrum."""
    if is_dense(core):
        return _dense_logdet(core, t)
    if core.is_block_diagonal or not core.can_factor:
        values = core.eigenvalues() + t
        if np.any(values <= 0.0):
            raise indefinite(float(values.min()))
        return float(np.log(values).sum())
    factor = core.cholesky(t)
    if factor is None:
        raise indefinite(min(core.ends.smallest + t, 0.0))
    return factor.logdet()


def _strips(stack: Array) -> Iterator[tuple[Array, Array]]:
    """Parts of stacked blocks (m, a, b), each beside the same part of the transposes where the blocks are square."""
    m, a, b = stack.shape
    step = max(1, 2**20 // max(1, b if m == 1 else a * b))
    for start in range(0, a if m == 1 else m, step):
        here = slice(start, start + step)
        if m == 1:
            yield stack[:, here], stack[:, :, here].transpose(0, 2, 1) if a == b else stack[:, here]
        else:
            yield stack[here], stack[here].transpose(0, 2, 1)


# -- dense matrices ----------------------------------------------------------------------------------------------------


def _dense_solve(M: Array, b: Array, t: float) -> Array:
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
    if is_diagonal(M):
        return np.sort(np.diagonal(M))
    with large_products(len(M)):
        return np.linalg.eigvalsh(M)


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


def _dense_logdet(M: Array, t: float) -> float:
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
