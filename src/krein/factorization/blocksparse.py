"""A symmetric core that keeps only some of its blocks, for thousands of clusters of which few are coupled.

In: blocks (i, j) with i <= j. Out: products, the exact spectrum of a block-diagonal core and bounds for others, and
solves, by Cholesky in a fill-reducing order, or by iteration if that would be too large. Each block is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from krein.arrays import EPS, Array, Indices
from krein.errors import InputError, warn
from krein.factorization import cholesky as blockcholesky
from krein.factorization import dense
from krein.factorization.cholesky import BlockCholesky, Elimination
from krein.factorization.krylov import Ends, extreme, improve

__all__ = ["BlockSparse", "Ends", "Group"]

# Up to SMALL rows dense algebra is faster than any iteration, and exact.
SMALL = 512
# Up to DENSE_LIMIT rows a dense eigendecomposition takes seconds.
DENSE_LIMIT = 6000
# The iterative solver aims at this relative residual.
SOLVE_TOLERANCE = 1e-10


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
                Group(
                    pairs[:, 0], pairs[:, 1], dense.stacked([blocks[i, j] for i, j in keys], keys[0][0] == keys[0][1])
                )
            )
        return cls(tuple(int(k) for k in ranks), tuple(groups))

    @cached_property
    def starts(self) -> Indices:
        return np.concatenate([[0], np.cumsum(self.ranks, dtype=np.intp)])  # (c + 1,)

    @property
    def shape(self) -> tuple[int, int]:
        return (int(self.starts[-1]),) * 2

    @property
    def nbytes(self) -> int:
        return sum(g.values.nbytes + g.left.nbytes + g.right.nbytes for g in self.groups)

    @property
    def n_kept(self) -> int:
        """Number of stored entries."""
        return sum(g.values.size for g in self.groups)

    @cached_property
    def is_block_diagonal(self) -> bool:
        return all(np.array_equal(g.left, g.right) for g in self.groups)

    def blocks(self) -> Iterator[tuple[int, int, Array]]:
        """Yield (i, j, block), i <= j."""
        for g in self.groups:
            yield from zip(g.left.tolist(), g.right.tolist(), dense.unstacked(g.values), strict=True)

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
        return np.sort(np.concatenate([dense.eigvalsh(b) for b in parts] or [np.empty(0)]))

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
        spectra = [dense.eigvalsh(block) for block in self.diagonal_blocks()]
        lows = np.array([values.min(initial=np.inf) for values in spectra])  # an empty block has no eigenvalue
        highs = np.array([values.max(initial=-np.inf) for values in spectra])
        radii = np.zeros(len(self.ranks))
        for g in self.groups:
            if not np.array_equal(g.left, g.right):
                size = dense.spectral_norm_bounds(g.values)
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
            plain = dense.is_diagonal(block)  # as in an eigendecomposition
            values, vectors = (np.diagonal(block), None) if plain else np.linalg.eigh(block)
            values = values + shift
            tiny = 10 * len(block) * EPS * float(np.abs(values).max(initial=0.0))
            if self.is_block_diagonal:
                if np.any(np.abs(values) <= tiny):
                    raise dense.singular(f"block {i} of the matrix", values)
            else:
                values = np.maximum(np.abs(values), max(tiny, np.finfo(float).tiny))
            inverses[i, i] = np.diag(1.0 / values) if vectors is None else (vectors / values) @ vectors.T
        return BlockSparse.from_blocks(self.ranks, inverses)
