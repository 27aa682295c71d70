"""The bases U = blockdiag(U_1 .. U_c), orthonormal block by block: their storage and their products.

In: blocks of numbers, the order of their rows, and small maps that make up for rounding. Out: `project`, `lift`,
`gram`, `diagonal` and `rows`, and sizes, ranks, bytes and storage type. Only this class reads the stored arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from krein.arrays import Array, Indices, grouped
from krein.errors import InputError
from krein.factorization.storage import gram, orthonormalise, product, tiles, transposed_product

__all__ = ["Bases", "sparse_rows"]


@dataclass(frozen=True, eq=False)
class Bases(Sequence[Any]):
    """The blocks U_i of U; as a sequence, what is stored of each."""

    blocks: tuple[Any, ...]  # what is stored of U_i, shape (n_i, stored columns); U_i itself where maps is None
    order: Indices  # order[p] is the caller's row kept at position p
    maps: tuple[Array, ...] | None = None  # A_i with U_i = blocks[i] @ maps[i]: gives back what rounding cost

    def __post_init__(self) -> None:
        n = len(self.order)
        if n == 0:
            raise InputError("A factorization needs at least one row; the bases and order are empty.")
        held = sum(len(b) for b in self.blocks)
        if held != n:
            raise InputError(f"The bases hold {held} rows, but order names {n}. Each row belongs to one block.")
        if not (np.issubdtype(self.order.dtype, np.integer) and self.order.min() >= 0 and self.order.max() < n):
            raise InputError(f"order must hold integers 0 .. {n - 1}; got {self.order.dtype} {self.order[:5]} ...")
        if np.bincount(self.order, minlength=n).max() > 1:
            raise InputError(f"order must name each of the rows 0 .. {n - 1} once; some are named twice.")

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, i: Any) -> Any:
        return self.blocks[i]

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def n_rows(self) -> int:
        return len(self.order)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """n_i, the rows of each block."""
        return tuple(len(block) for block in self.blocks)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """k_i, the columns of each U_i."""
        return tuple(int(A.shape[1]) for A in (self.blocks if self.maps is None else self.maps))

    @cached_property
    def spans(self) -> tuple[tuple[slice, slice], ...]:
        """(positions, columns of U) of each block."""
        ends = (np.concatenate([[0], np.cumsum(sizes)]) for sizes in (self.sizes, self.ranks))
        parts = ([slice(int(a), int(b)) for a, b in pairwise(end)] for end in ends)
        return tuple(zip(*parts, strict=True))

    @cached_property
    def rank(self) -> int:
        """r, the columns of U."""
        return sum(self.ranks)

    @property
    def dtype(self) -> str:
        """How the blocks are stored."""
        return str(self.blocks[0].dtype)

    @property
    def nbytes(self) -> int:
        """Bytes held: blocks, maps and order."""
        return int(sum(a.nbytes for a in (*self.blocks, *(self.maps or ()))) + self.order.nbytes)

    def members(self, i: int) -> Indices:
        """The caller's rows of block i, in the order they are stored."""
        return self.order[self.spans[i][0]]

    @property
    def labels(self) -> Indices:
        """The block of each of the caller's rows."""
        labels = np.empty(self.n_rows, dtype=np.intp)
        labels[self.order] = np.repeat(np.arange(len(self)), self.sizes)
        return labels

    # -- the five verbs; rows are in the caller's order -------------------------------------------------------------

    def project(self, x: Array) -> Array:
        """Uᵀx for x of shape (n,) or (n, p)."""
        held = x[self.order]
        out = np.empty((self.rank, *held.shape[1:]))
        for i, (rows, cols) in enumerate(self.spans):
            raw = transposed_product(self.blocks[i], held[rows])
            out[cols] = raw if self.maps is None else self.maps[i].T @ raw
        return out

    def lift(self, w: Array) -> Array:
        """U w for w of shape (r,) or (r, p)."""
        held = np.empty((self.n_rows, *w.shape[1:]))
        for i, (rows, cols) in enumerate(self.spans):
            held[rows] = product(self.blocks[i], w[cols] if self.maps is None else self.maps[i] @ w[cols])
        out = np.empty_like(held)
        out[self.order] = held
        return out

    def gram(self, weights: Array) -> list[Array]:
        """U_iᵀ D_i U_i for each block, D = diag(weights)."""
        grams = []
        for i in range(len(self)):
            raw = gram(self.blocks[i], weights[self.members(i)])
            grams.append(raw if self.maps is None else self.maps[i].T @ raw @ self.maps[i])
        return grams

    def diagonal(self, inner: Sequence[Array]) -> Array:
        """The diagonal of U S Uᵀ, from the diagonal blocks (k_i, k_i) of S."""
        out = np.empty(self.n_rows)
        for i, block in enumerate(inner):
            members = self.members(i)
            stored_inner = block if self.maps is None else self.maps[i] @ block @ self.maps[i].T
            for part, stored in tiles(self.blocks[i]):
                out[members[part]] = np.einsum("ij,ij->i", stored @ stored_inner, stored)
        return out

    def rows(self, wanted: Indices) -> sp.csr_matrix:
        """The rows ``wanted`` of U, sparse: each has the columns of its own block alone."""
        return sparse_rows(self.by_block(wanted), len(wanted), self.ranks, self.spans)

    # -- block by block --------------------------------------------------------------------------------------------

    def by_block(self, wanted: Indices) -> list[tuple[int, Indices, Array]]:
        """(block, which of ``wanted`` lie in it, their rows of U_i) for each block that is met."""
        places = self._positions[wanted]
        met = np.searchsorted(np.cumsum(self.sizes), places, side="right")
        return [(i, here, self.local(i, places[here] - self.spans[i][0].start)) for i, here in grouped(met)]

    def at(self, wanted: Sequence[tuple[int, Indices]]) -> list[tuple[Indices, Array]]:
        """For each (block, places within it): the caller's rows there, and those rows of U_i."""
        return [(self.members(i)[places], self.local(i, places)) for i, places in wanted]

    def local(self, i: int, places: Any) -> Array:
        """The rows of U_i at ``places`` within block i, in float64."""
        stored = np.asarray(self.blocks[i][places], dtype=np.float64)
        return stored if self.maps is None else stored @ self.maps[i]

    def explicit(self) -> list[Any]:
        """The U_i as arrays."""
        return [B if self.maps is None else self.local(i, slice(None)) for i, B in enumerate(self.blocks)]

    def tiles(self, i: int) -> Iterator[tuple[Indices, Array]]:
        """Yield (the caller's rows, those rows of U_i in float64), a few at a time."""
        members = self.members(i)
        for part, stored in tiles(self.blocks[i]):
            yield members[part], stored if self.maps is None else stored @ self.maps[i]

    @cached_property
    def _positions(self) -> Indices:
        places = np.empty_like(self.order, dtype=np.intp)
        places[self.order] = np.arange(self.n_rows)
        return places

    # -- other bases -----------------------------------------------------------------------------------------------

    def take(self, wanted: Indices) -> Bases:
        """Some rows, copied, in the order asked for: no longer orthonormal, but good for products and diagonals."""
        place = np.full(self.n_rows, -1)
        place[wanted] = np.arange(len(wanted))
        blocks, order = [], []
        for i, block in enumerate(self.blocks):
            mine = place[self.members(i)]
            blocks.append(block[mine >= 0])
            order.append(mine[mine >= 0])
        return replace(self, blocks=tuple(blocks), order=np.concatenate(order))

    def full_rank(self) -> tuple[Bases, list[Array]]:
        """Bases whose blocks have no more columns than rows, and T_i with old U_i = new U_i T_i."""
        blocks, maps, turns = list(self.blocks), list(self.maps or ()), []
        for i, (size, k) in enumerate(zip(self.sizes, self.ranks, strict=True)):
            turn: Array = np.eye(k)
            if size <= k:
                blocks[i], turn = orthonormalise(np.array(self.local(i, slice(None)), order="F"))
                if maps:
                    maps[i] = np.eye(len(turn))
            turns.append(turn)
        return replace(self, blocks=tuple(blocks), maps=tuple(maps) if maps else None), turns

    def turned(self, turns: Sequence[Array | None]) -> Bases:
        """U_i V_i for the orthogonal V_i of ``turns``; None leaves a block as it is."""
        held = list(self.blocks if self.maps is None else self.maps)
        for i, V in enumerate(turns):
            held[i] = held[i] if V is None else held[i] @ V
        return replace(self, blocks=tuple(held)) if self.maps is None else replace(self, maps=tuple(held))


def sparse_rows(
    parts: Sequence[tuple[int, Indices, Array]], n: int, ranks: Sequence[int], spans: Sequence[tuple[slice, slice]]
) -> sp.csr_matrix:
    """n rows of U from (block, which of the rows lie in it, their rows of U_i)."""
    sizes = np.zeros(n, dtype=np.int64)
    for i, here, _ in parts:
        sizes[here] = ranks[i]
    pointer = np.concatenate([[0], np.cumsum(sizes)])
    data, columns = np.empty(pointer[-1]), np.empty(pointer[-1], dtype=np.int64)
    for i, here, local in parts:
        cols = spans[i][1]
        spots = pointer[here][:, None] + np.arange(ranks[i])
        data[spots], columns[spots] = local, np.arange(cols.start, cols.stop)
    return sp.csr_matrix((data, columns, pointer), shape=(n, sum(ranks)))
