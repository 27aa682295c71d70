"""Rows of a piece, tile by tile, and the vectors that stay with them: what the solvers of rows in pieces share.

A visit reads the rows B of a piece once. Sums over rows and projections xᵀB are sent, and vectors of the rows stay: in
memory, or in files of a folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from krein.arrays import Array
from krein.factorization.pieces import Piece, PieceBases
from krein.pieces.checkpoints import mapped
from krein.pieces.engines import add

__all__ = ["Kept", "Stored", "Tile", "from_parts", "joined", "opened", "sums_of", "tiles", "to_parts"]

# At least this many rows are worked on at a time, so that calls of numpy cost little beside their work.
TILE_ROWS = 2048

Stored: TypeAlias = Any  # an array, the name of its .npy file, or None


class Tile:
    """Some rows of a piece, with their rows of B cluster by cluster."""

    def __init__(self, blocks: list[tuple[int, slice, Array]]) -> None:
        places = slice(blocks[0][1].start, blocks[-1][1].stop)
        self.blocks, self.places = blocks, places
        self.within = [slice(here.start - places.start, here.stop - places.start) for _, here, _ in blocks]

    def lift(self, parts: list[Array]) -> Array:
        """The rows of B times these parts."""
        return np.concatenate([B @ parts[i] for i, _, B in self.blocks])

    def project(self, sums: list[Array], *vectors: Array) -> None:
        """Add xᵀB to the sums, for each of the vectors."""
        for (i, _, B), here in zip(self.blocks, self.within, strict=True):
            for j, x in enumerate(vectors):  # a product with two at once measured slower
                sums[i][j] += x[here] @ B

    def gram(self, weights: Array, sums: list[Array]) -> None:
        """Add the Gram matrices BᵀDB to the sums."""
        roots = np.sqrt(np.maximum(weights, 0.0))[:, None]
        for (i, _, B), here in zip(self.blocks, self.within, strict=True):
            scaled = B * roots[here]
            sums[i] += scaled.T @ scaled


def tiles(piece: Piece) -> Iterator[Tile]:
    """The rows of a piece in tiles, which have several clusters where those are small."""
    blocks: list[tuple[int, slice, Array]] = []
    for block in piece.tiles():
        blocks.append(block)
        if block[1].stop - blocks[0][1].start >= TILE_ROWS:
            yield Tile(blocks)
            blocks = []
    if blocks:
        yield Tile(blocks)


def sums_of(piece: Piece, n_vectors: int = 1) -> list[Array]:
    """Zeros to which the projections of vectors are added."""
    return [np.zeros((n_vectors, k)) for k in piece.columns]


def joined(left: Any, right: Any) -> Any:
    """Sums are added, of peaks the larger is kept."""
    return add(left[0], right[0]), np.maximum(left[1], right[1])


def to_parts(bases: PieceBases, w: Array) -> list[Array]:
    """A w for each cluster: the rows of B times it are those of U w."""
    return [A @ w[cols] for A, (_, cols) in zip(bases.maps, bases.spans, strict=True)]


def from_parts(bases: PieceBases, sums: list[Array]) -> Array:
    """(p, r) xᵀU from xᵀB, for p vectors."""
    return np.concatenate([part @ A for A, part in zip(bases.maps, sums, strict=True)], axis=1)


def opened(held: Any) -> Any:
    """The named tuple of vectors, with files as memory maps."""
    return type(held)(*(mapped(a) if isinstance(a, str) else a for a in held))


class Kept:
    """New vectors of a piece; `into` puts them, or the names of their files, into the vectors that stay."""

    def __init__(self, piece: Piece, folder: Any, prefix: str, **shapes: tuple[int, ...]) -> None:
        self._folder, self._name = folder, f"{prefix}-{piece.rows.start}-{piece.rows.stop}"
        self._new = {name: np.empty((*shape, len(piece.order))) for name, shape in shapes.items()}

    def __getattr__(self, name: str) -> Array:
        return self._new[name]

    def into(self, held: Any, slot: int, **more: Array) -> Any:
        new: dict[str, Stored] = self._new | more
        if self._folder is not None:
            new = {name: self._folder.write(f"{self._name}-{name}-{slot}", array) for name, array in new.items()}
        return held._replace(**new)
