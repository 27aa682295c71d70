"""Bases whose rows lie in pieces, in files or on other machines: the same products as `Bases`, one visit each.

A piece holds a run of the caller's rows. Its rows of U are kept cluster by cluster, as numbers B with U = B A, where
the small maps A are here. A product with U visits every piece once: vectors of n numbers are cut and sent along, sums
of r numbers come back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from krein.arrays import Array, Indices, grouped
from krein.errors import InputError, ResourceError
from krein.factorization.factorization import Bases, spans_of, sparse_rows
from krein.pieces.checkpoints import KINDS, mapped
from krein.pieces.engines import Engine, Here

__all__ = ["VECTOR_BYTES", "Piece", "PieceBases", "Pieces", "labels_of"]

# The vectors of a dual take about this many bytes for each row.
VECTOR_BYTES = 160
# Rows of B are converted to float64 this many numbers at a time.
TILE = 2**18


class Piece(NamedTuple):
    """What lies at a piece: rows of X, the cluster of each, and later their numbers B."""

    rows: Any  # has start, stop and read()
    order: Indices  # (m,) int32, places within the piece, cluster by cluster, ascending in each
    starts: Indices  # (c + 1,) where each cluster starts in ``order``
    stored: Any = None  # B as one array of sum m_i k_i numbers, or the name of the .npy file that holds them
    columns: tuple[int, ...] = ()  # k_i, the columns of each cluster in B

    @property
    def stored_type(self) -> Any:
        """The type of B."""
        return (mapped(self.stored) if isinstance(self.stored, str) else self.stored).dtype

    def blocks(self) -> Iterator[tuple[int, slice, Array]]:
        """Yield (cluster, its places in ``order``, its rows of B) for each cluster that has rows here."""
        B = mapped(self.stored) if isinstance(self.stored, str) else self.stored
        at = 0
        for i, (a, b) in enumerate(pairwise(self.starts.tolist())):
            size = (b - a) * self.columns[i]
            if b > a:
                yield i, slice(a, b), B[at : at + size].reshape(b - a, self.columns[i])
            at += size

    def tiles(self) -> Iterator[tuple[int, slice, Array]]:
        """The same, a few rows at a time and in float64."""
        for i, places, B in self.blocks():
            step = max(1, TILE // max(1, B.shape[1]))
            for a in range(0, len(B), step):
                part = np.asarray(B[a : a + step], dtype=np.float64)
                yield i, slice(places.start + a, places.start + a + len(part)), part


KINDS["Piece"] = Piece


class Span(NamedTuple):
    """The numbers of rows whose features are not needed any more."""

    start: int
    stop: int


class Pieces:
    """The pieces of one factorization and the engine that visits them. Closing it lets go of both."""

    def __init__(self, engine: Engine, held: Sequence[Any], cuts: Any, counts: Any) -> None:
        self._engine: Engine | None = engine
        self._held: Sequence[Any] | None = held
        self.cuts = np.asarray(cuts)  # (P + 1,) the first row of each piece, and n
        self.counts = np.asarray(counts)  # (P, c) rows of each cluster in each piece

    @classmethod
    def absent(cls, sizes: Indices) -> Pieces:
        """Pieces that are no longer there, of which the sizes of the clusters are known."""
        made = cls.__new__(cls)
        made._engine = made._held = None
        made.cuts, made.counts = np.array([0, int(sizes.sum())]), np.asarray(sizes)[None]
        return made

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise _gone()
        return self._engine

    @property
    def held(self) -> Sequence[Any]:
        if self._held is None:
            raise _gone()
        return self._held

    @property
    def are_here(self) -> bool:
        """Whether this process holds all of B in memory."""
        return isinstance(self.engine, Here) and not any(isinstance(piece.stored, str) for piece in self.held)

    def close(self) -> None:
        self._engine = self._held = None

    def with_held(self, held: Sequence[Any]) -> Pieces:
        return Pieces(self.engine, held, self.cuts, self.counts)

    def cut(self, x: Array) -> list[Array]:
        """An array of n rows in pieces."""
        return [x[a:b] for a, b in pairwise(self.cuts.tolist())]

    def at(self, wanted: Sequence[tuple[int, Indices]], step: Callable[..., Any]) -> list[tuple[Any, ...]]:
        """What ``step`` returns of each (cluster, places within it), in the order asked for: one visit for all.

        ``step(piece, [(cluster, places within its rows here), ...])`` returns a tuple of arrays for each of them.
        """
        ends = np.cumsum(self.counts, axis=0)  # (P, c)
        asked: list[list[tuple[int, Indices]]] = [[] for _ in self.held]
        back: list[list[tuple[int, int, Indices]]] = [[] for _ in wanted]
        for w, (i, places) in enumerate(wanted):
            for j, here in grouped(np.searchsorted(ends[:, i], places, side="right")):
                back[w].append((j, len(asked[j]), here))
                asked[j].append((i, np.asarray(places)[here] - (ends[j - 1, i] if j else 0)))
        got = self.engine.collect(step, self.held, own=asked)
        out = []
        for (_, places), parts in zip(wanted, back, strict=True):
            columns: list[Array] = []
            for j, at, here in parts:
                for k, part in enumerate(got[j][at]):
                    if len(columns) == k:
                        columns.append(np.empty((len(places), *part.shape[1:]), dtype=part.dtype))
                    columns[k][here] = part
            out.append(tuple(columns))
        return out

    def __getstate__(self) -> dict[str, Any]:
        return {"_engine": None, "_held": None, "cuts": self.cuts, "counts": self.counts}


@dataclass(frozen=True, eq=False)
class PieceBases:
    """U = blockdiag(U_1 .. U_c), orthonormal, whose rows lie in pieces; it has the methods of `Bases`."""

    pieces: Pieces
    maps: tuple[Array, ...]  # A_i with U_i = B_i A_i
    dtype: str  # of B

    def __len__(self) -> int:
        return len(self.maps)

    @property
    def n_rows(self) -> int:
        return int(self.pieces.cuts[-1])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(self.pieces.counts.sum(0).tolist())

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        return tuple(int(A.shape[1]) for A in self.maps)

    @cached_property
    def rank(self) -> int:
        return sum(self.ranks)

    @cached_property
    def spans(self) -> tuple[tuple[slice, slice], ...]:
        return spans_of(self.sizes, self.ranks)

    @property
    def nbytes(self) -> int:
        """Bytes of B, of the maps and of the order, wherever they lie."""
        stored = sum(n * len(A) for n, A in zip(self.sizes, self.maps, strict=True)) * np.dtype(self.dtype).itemsize
        return int(stored + sum(A.nbytes for A in self.maps) + 4 * self.n_rows)

    @cached_property
    def order(self) -> Indices:
        """The caller's rows, cluster by cluster: n numbers, which are brought here."""
        return np.argsort(self.labels, kind="stable")

    @cached_property
    def labels(self) -> Indices:
        found = self.pieces.engine.collect(labels_of, self.pieces.held)
        return np.concatenate(found).astype(np.intp)

    def members(self, i: int) -> Indices:
        return self.order[self.spans[i][0]]

    # -- the five verbs ------------------------------------------------------------------------------------------------

    def project(self, x: Array) -> Array:
        """Uᵀx for x of shape (n,) or (n, p)."""
        p = self.pieces
        sums = p.engine.visit(_project, p.held, own=p.cut(np.asarray(x, dtype=np.float64)))[1]
        return np.concatenate([A.T @ part for A, part in zip(self.maps, sums, strict=True)])

    def lift(self, w: Array) -> Array:
        """U w for w of shape (r,) or (r, p)."""
        p = self.pieces
        parts = [A @ w[cols] for A, (_, cols) in zip(self.maps, self.spans, strict=True)]
        return np.concatenate(p.engine.collect(_lift, p.held, parts))

    def gram(self, weights: Array) -> list[Array]:
        """U_iᵀ D_i U_i for each block, D = diag(weights)."""
        p = self.pieces
        sums = p.engine.visit(_gram, p.held, own=p.cut(np.asarray(weights, dtype=np.float64)))[1]
        return [A.T @ G @ A for A, G in zip(self.maps, sums, strict=True)]

    def diagonal(self, inner: Sequence[Array]) -> Array:
        """The diagonal of U S Uᵀ, from the diagonal blocks (k_i, k_i) of S."""
        p = self.pieces
        mapped = [A @ S @ A.T for A, S in zip(self.maps, inner, strict=True)]
        return np.concatenate(p.engine.collect(_diagonal, p.held, mapped))

    def rows(self, wanted: Indices) -> sp.csr_matrix:
        """The rows ``wanted`` of U, sparse: each has the columns of its own block alone."""
        return sparse_rows(self.by_block(wanted), len(wanted), self.ranks, self.spans)

    # -- a few rows ----------------------------------------------------------------------------------------------------

    def by_block(self, wanted: Indices) -> list[tuple[int, Indices, Array]]:
        """(block, which of ``wanted`` lie in it, their rows of U_i) for each block that is met."""
        p, wanted = self.pieces, np.asarray(wanted)
        at = np.searchsorted(p.cuts, wanted, side="right") - 1
        asked = [np.flatnonzero(at == j) for j in range(len(p.cuts) - 1)]
        own = [wanted[here] - p.cuts[j] for j, here in enumerate(asked)]
        found: dict[int, list[tuple[Indices, Array]]] = {}
        for here, parts in zip(asked, p.engine.collect(_some, p.held, own=own), strict=True):
            for i, mine, B in parts:
                found.setdefault(i, []).append((here[mine], B))
        return [
            (i, np.concatenate([h for h, _ in found[i]]), np.concatenate([B for _, B in found[i]]) @ self.maps[i])
            for i in sorted(found)
        ]

    def at(self, wanted: Sequence[tuple[int, Indices]]) -> list[tuple[Indices, Array]]:
        """For each (block, places within it): the caller's rows there, and those rows of U_i."""
        found = self.pieces.at(wanted, _fetch)
        return [(rows, B @ self.maps[i]) for (i, _), (rows, B) in zip(wanted, found, strict=True)]

    def in_memory(self) -> Bases:
        """The same bases with all of B in memory, if the pieces hold it there."""
        blocks: list[list[Array]] = [[] for _ in self.maps]
        order: list[list[Indices]] = [[] for _ in self.maps]
        for piece in self.pieces.held:
            for i, places, B in piece.blocks():
                blocks[i].append(B)
                order[i].append(piece.order[places].astype(np.intp) + piece.rows.start)
        rows = np.concatenate([np.concatenate(part) for part in order])
        return Bases(tuple(np.concatenate(part) for part in blocks), rows, self.maps)

    def take(self, wanted: Indices) -> Bases:
        """Some rows as bases in memory, in the order asked for."""
        blocks: list[Array] = [np.empty((0, k)) for k in self.ranks]
        order: list[Indices] = [np.empty(0, dtype=np.intp) for _ in self.ranks]
        for i, here, local in self.by_block(wanted):
            blocks[i], order[i] = local, here
        return Bases(tuple(blocks), np.concatenate(order))

    def part(self, wanted: Indices) -> PieceBases:
        """Some rows, ascending, that stay in pieces: no longer orthonormal, but good for products."""
        p, files = self.pieces, getattr(self.pieces.engine, "checkpoints", None)
        cuts, nbytes = np.searchsorted(wanted, p.cuts), len(wanted) * max(map(len, self.maps)) * 8
        folder = files if files is not None and files.holds(nbytes) else None
        own = [
            (j, cuts, wanted[cuts[j] : cuts[j + 1]] - p.cuts[j], "" if folder is None else folder.new_name("part"))
            for j in range(len(p.held))
        ]
        held, counts = p.engine.visit(_part, p.held, folder, own=own)
        found = Pieces(p.engine, held, cuts, counts)
        if folder is not None:
            weakref.finalize(found, _remove, [piece.stored for piece in held])
        return replace(self, pieces=found)

    def explicit(self) -> list[Any]:
        """The U_i as arrays in memory."""
        return [self.local(i, slice(None)) for i in range(len(self))]

    def local(self, i: int, places: Any) -> Array:
        """The rows of U_i at ``places`` within block i, in float64."""
        rows = self.members(i)[places]
        out = np.empty((len(rows), self.ranks[i]))
        for _, here, local in self.by_block(rows):
            out[here] = local
        return out

    def tiles(self, i: int) -> Iterator[tuple[Indices, Array]]:
        """Yield (the caller's rows, those rows of U_i in float64), a few at a time."""
        members, step = self.members(i), max(1, TILE // max(1, self.ranks[i]))
        for a in range(0, len(members), step):
            yield members[a : a + step], self.local(i, slice(a, a + step))

    def turned(self, turns: Sequence[Array | None]) -> PieceBases:
        """U_i V_i for the orthogonal V_i of ``turns``; None leaves a block as it is."""
        return replace(self, maps=tuple(A if V is None else A @ V for A, V in zip(self.maps, turns, strict=True)))

    def full_rank(self) -> tuple[Any, list[Array]]:
        """These bases, whose blocks have more rows than columns."""
        if any(n <= k for n, k in zip(self.sizes, self.ranks, strict=True)):
            raise InputError(
                "Blocks beyond memory need more rows than directions. Ask for fewer blocks or a lower rank."
            )
        return self, [np.eye(k) for k in self.ranks]


# -- steps at a piece --------------------------------------------------------------------------------------------------


def labels_of(piece: Piece) -> Indices:
    """The cluster of each row of a piece."""
    out = np.empty(len(piece.order), dtype=np.int32)
    out[piece.order] = np.repeat(np.arange(len(piece.starts) - 1), np.diff(piece.starts))
    return out


def _project(piece: Piece, x: Array) -> tuple[Piece, list[Array]]:
    out = [np.zeros((k, *x.shape[1:])) for k in piece.columns]
    for i, places, B in piece.tiles():
        out[i] += B.T @ x[piece.order[places]]
    return piece, out


def _lift(piece: Piece, parts: list[Array]) -> Array:
    out = np.empty((len(piece.order), *parts[0].shape[1:]))
    for i, places, B in piece.tiles():
        out[piece.order[places]] = B @ parts[i]
    return out


def _gram(piece: Piece, weights: Array) -> tuple[Piece, list[Array]]:
    out: list[Array] = [np.zeros((k, k)) for k in piece.columns]
    for i, places, B in piece.tiles():
        out[i] += B.T @ (B * weights[piece.order[places], None])
    return piece, out


def _diagonal(piece: Piece, inner: list[Array]) -> Array:
    out = np.empty(len(piece.order))
    for i, places, B in piece.tiles():
        out[piece.order[places]] = np.einsum("ij,ij->i", B @ inner[i], B)
    return out


def _some(piece: Piece, wanted: Indices) -> list[tuple[int, Indices, Array]]:
    """(cluster, which of ``wanted`` lie in it, their rows of B) for places within the piece."""
    if not len(wanted):
        return []
    place = np.empty(len(piece.order), dtype=np.int32)
    place[piece.order] = np.arange(len(piece.order), dtype=np.int32)
    at = place[wanted]
    cluster = np.searchsorted(piece.starts, at, side="right") - 1
    met = dict(grouped(cluster))
    return [
        (i, met[i], np.asarray(B[at[met[i]] - places.start], dtype=np.float64))
        for i, places, B in piece.blocks()
        if i in met
    ]


def _part(piece: Piece, own: tuple[int, Indices, Indices, str], folder: Any) -> tuple[Piece, Indices]:
    """Some places of a piece as a piece, whose rows are counted from the first of all rows that are kept."""
    j, cuts, places, name = own
    new = np.full(len(piece.order), -1, dtype=np.int32)
    new[places] = np.arange(len(places), dtype=np.int32)
    order = new[piece.order]
    kept = order >= 0
    counts = np.zeros((len(cuts) - 1, len(piece.columns)), dtype=np.int64)
    blocks: list[Array] = []
    for i, here, B in piece.blocks():
        counts[j, i] = np.count_nonzero(kept[here])
        blocks.append(B[kept[here]].ravel())
    B = np.concatenate(blocks) if blocks else np.empty(0, dtype=np.float32)
    starts = np.concatenate([[0], np.cumsum(counts[j])])
    stored = B if folder is None else folder.write(name, B)
    return Piece(Span(int(cuts[j]), int(cuts[j + 1])), order[kept], starts, stored, piece.columns), counts


def _fetch(piece: Piece, wanted: list[tuple[int, Indices]]) -> list[tuple[Indices, Array]]:
    """(the caller's rows, their rows of B) at places within clusters."""
    blocks = {i: (places, B) for i, places, B in piece.blocks()} if wanted else {}
    found: list[tuple[Indices, Array]] = []
    for i, local in wanted:
        places, B = blocks[i]
        rows = piece.order[places][local].astype(np.intp) + piece.rows.start
        found.append((rows, np.asarray(B[local], dtype=np.float64)))
    return found


def _remove(names: list[str]) -> None:
    for name in names:
        Path(name).unlink(missing_ok=True)


def _gone() -> ResourceError:
    return ResourceError(
        "The rows of this model were read from elsewhere and let go of after the fit. It predicts, saves and loads, "
        "but what needs the training rows is not there. Build it once more with krein.approximate(X, kernel, ...)."
    )
