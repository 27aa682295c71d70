"""Rows that lie elsewhere, as a collection of vectors: a source in, pieces that an engine visits out.

Everything that takes a collection of vectors takes `RowPieces`: `krein.kernels.count_objects` and `take` know them.
What needs all rows visits the pieces, one after the other or on a cluster, and never holds them at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import InputError, ResourceError
from krein.pieces.engines import Engine, Here
from krein.sources import ChangedRows, ChosenRows, Source
from krein.sources.source import bounds_within

__all__ = ["SPHERE_TOLERANCE", "ArrayRows", "Chunk", "RowPieces", "Run", "Survey"]

# The rows of a piece take this many bytes at most, with what is computed of them.
PIECE_BYTES = 2**26
# A piece takes this share of the memory limit at most, and the pieces that are visited at a time the second share.
PIECE_SHARE, VISITED_SHARE = 1 / 8, 1 / 2
# Beside its features a row takes about this many bytes while it is worked on.
ROW_BYTES = 512
# More than half of the rows are brought together at once if they take no more than this many bytes, or this share of a
# memory limit.
TAKEN_BYTES, TAKEN_SHARE = 2**28, 1 / 4
# This many rows are converted to float64 at a time.
TILE_ROWS = 8192
# Rows whose length differs from 1 by more than this are not on the unit sphere; kernels for the sphere warn of them.
SPHERE_TOLERANCE = 1e-3
# A piece has at least this many rows.
FEWEST_ROWS = 4096


class Run(NamedTuple):
    """A run of the rows of a source."""

    source: Source
    start: int
    stop: int

    def read(self) -> Array:
        return self.source.read(self.start, self.stop)

    def take(self, places: Indices) -> Array:
        return self.source.take(np.asarray(places, dtype=np.intp) + self.start)


class Chunk(NamedTuple):
    """Rows in the memory of whoever holds them."""

    X: Array
    start: int

    @property
    def stop(self) -> int:
        return self.start + len(self.X)

    def read(self) -> Array:
        return self.X

    def take(self, places: Indices) -> Array:
        return self.X[places]


class Survey(NamedTuple):
    """What one visit to all rows finds out: enough to check them and to bind a kernel."""

    n: int
    n_bad: int  # numbers that are NaN or infinite
    first_bad: int  # the first row with one, or n
    largest: float  # the largest magnitude
    mean: float  # of all numbers, in units of the largest
    squares: float  # the sum of squared differences from the mean, in the same units
    off_sphere: int  # rows whose length is not 1

    @property
    def unit_variance(self) -> float:
        """The variance of all numbers divided by the largest magnitude."""
        return self.squares / max(1, self.n)


class RowPieces:
    """Rows in pieces: ``held`` are the pieces or what stands for them on a cluster, ``cuts`` their first rows and n."""

    def __init__(self, source: Source, engine: Engine, held: Sequence[Any], cuts: Any, checkpoints: Any = None) -> None:
        self.shape: tuple[int, int] = (source.shape[0], source.shape[1])
        self.dtype = np.dtype(source.dtype)
        self._source: Source | None = source
        self._engine: Engine | None = engine
        self.held, self.cuts = list(held), np.asarray(cuts)
        self.checkpoints = checkpoints

    @classmethod
    def of(
        cls, source: Source, *, memory_limit: float | None = None, n_jobs: int = 1, verbose: int = 0,
        checkpoints: Any = None,
    ) -> RowPieces:  # fmt: skip
        """The rows of a source in pieces that this process visits. The number of jobs has no part in where they end."""
        room = PIECE_BYTES if memory_limit is None else min(PIECE_BYTES, PIECE_SHARE * memory_limit)
        row = ROW_BYTES + source.shape[1] * np.dtype(source.dtype).itemsize
        cuts = source.bounds(max(FEWEST_ROWS, int(room / row)))
        if memory_limit is not None:
            n_jobs = min(n_jobs, int(VISITED_SHARE * memory_limit / room))
        held = [Run(source, a, b) for a, b in pairwise(cuts)]
        return cls(source, Here(n_jobs, verbose, checkpoints), held, cuts, checkpoints)

    @property
    def source(self) -> Source:
        if self._source is None:
            raise ResourceError(
                "The training rows were read from elsewhere and let go of after the fit. Pass them again."
            )
        return self._source

    @property
    def engine(self) -> Engine:
        assert self.source is not None
        assert self._engine is not None
        return self._engine

    def take(self, indices: Any) -> Array:
        """Rows by number, in memory. Most of the rows are refused: they are elsewhere for a reason."""
        wanted = np.asarray(indices, dtype=np.intp)
        limit, nbytes = getattr(self.checkpoints, "limit", None), len(wanted) * self.shape[1] * self.dtype.itemsize
        if 2 * len(wanted) > self.shape[0] and nbytes > (TAKEN_BYTES if limit is None else TAKEN_SHARE * limit):
            raise ResourceError(
                f"What was asked for needs {len(wanted):,} of {self.shape[0]:,} rows in memory at once, {nbytes:,} "
                "bytes: probability=True, or a choice of blocks on most rows. Leave it out (give n_blocks and rank), "
                "raise memory_limit, or read X into memory."
            )
        if isinstance(self.engine, Here):
            return np.asarray(self.source.take(wanted), dtype=self.dtype)
        at = np.searchsorted(self.cuts, wanted, side="right") - 1
        asked = [np.flatnonzero(at == j) for j in range(len(self.held))]
        own = [wanted[here] - self.cuts[j] for j, here in enumerate(asked)]
        out = np.empty((len(wanted), self.shape[1]), dtype=self.dtype)
        for here, part in zip(asked, self.engine.collect(_taken, self.held, own=own), strict=True):
            out[here] = part
        return out

    @cached_property
    def survey(self) -> Survey:
        """Check all rows and describe them: one visit."""
        found: Survey = self.engine.visit(_survey, self.held, plus=_merged, what="reading")[1]
        if found.n_bad:
            raise InputError(
                f"X contains NaN or infinity: {found.n_bad} of the values of rows of shape {self.shape}, the first in "
                f"row {found.first_bad}. Impute or drop them first."
            )
        return found

    def map(self, function: Callable[[Array], Array]) -> Array:
        """``function(X)`` of every piece, one number for each row, brought here."""
        return np.concatenate(self.engine.collect(_mapped, self.held, function))

    def only(self, wanted: Indices) -> RowPieces:
        """Some of the rows, ascending; they stay where they are."""
        source, cuts = ChosenRows(self.source, wanted), np.searchsorted(wanted, self.cuts)
        own = [(wanted[a:b] - start, a) for (a, b), start in zip(pairwise(cuts.tolist()), self.cuts, strict=False)]
        held = self.engine.visit(partial(_chosen, source=source), self.held, own=own)[0]
        some = [j for j, (a, b) in enumerate(pairwise(cuts)) if b > a]
        return RowPieces(source, self.engine, [held[j] for j in some], np.unique(cuts), self.checkpoints)

    def __truediv__(self, scale: Array) -> RowPieces:
        """The rows divided by one number for each feature."""
        held = self.engine.visit(_divided, self.held, scale)[0]
        return RowPieces(_divided_source(self.source, scale), self.engine, held, self.cuts, self.checkpoints)

    @classmethod
    def absent(cls, shape: tuple[int, int], dtype: Any) -> RowPieces:
        """Rows that are no longer there, of which shape and type are known."""
        made = cls.__new__(cls)
        made.shape, made.dtype, made.cuts = shape, np.dtype(dtype), np.array([0, shape[0]])
        made._source, made._engine, made.held, made.checkpoints = None, None, [], None
        return made

    def close(self) -> None:
        """Let go of the source, the pieces and the engine; shape and type stay."""
        self._source, self._engine, self.held = None, None, []

    def __getstate__(self) -> dict[str, Any]:
        return self.absent(self.shape, self.dtype).__dict__

    def __repr__(self) -> str:
        return f"RowPieces{self.shape} of {self.dtype}"


def _chosen(rows: Any, own: tuple[Indices, int], source: Source) -> tuple[Any, None]:
    places, start = own
    if isinstance(rows, Chunk):
        return Chunk(rows.X[places], start), None
    return Run(source, start, start + len(places)), None


def _divided(rows: Any, scale: Array) -> tuple[Any, None]:
    if isinstance(rows, Chunk):
        return Chunk(np.asarray(rows.X / scale, dtype=rows.X.dtype), rows.start), None
    return Run(_divided_source(rows.source, scale), rows.start, rows.stop), None


def _divided_source(source: Source, scale: Array) -> Source:
    return ChangedRows(source, partial(_quotient, scale=scale), f"divided by {scale.tobytes().hex()}")


def _quotient(X: Array, scale: Array) -> Array:
    return np.asarray(X / scale)


def _mapped(rows: Any, function: Callable[[Array], Array]) -> Array:
    return np.asarray(function(np.asarray(rows.read())))


def _taken(rows: Any, places: Indices) -> Array:
    return np.asarray(rows.take(places))


class ArrayRows:
    """The source of an array in memory."""

    def __init__(self, X: Array) -> None:
        self.X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
        self.shape, self.dtype = X.shape, self.X.dtype

    @cached_property
    def token(self) -> str:
        content = hashlib.sha256()
        for a in range(0, len(self.X), TILE_ROWS):
            content.update(np.ascontiguousarray(self.X[a : a + TILE_ROWS]).data)
        return f"array {self.shape} {self.dtype} {content.hexdigest()}"

    def bounds(self, target: int) -> list[int]:
        return bounds_within([0, len(self.X)], target)

    def read(self, start: int, stop: int) -> Array:
        return self.X[start:stop]

    def take(self, rows: Indices) -> Array:
        return self.X[rows]

    def check(self) -> None:
        """Do nothing: the array is there."""


def _survey(rows: Any) -> tuple[Any, Survey]:
    X = np.asarray(rows.read())
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(X.sum(dtype=np.float64)))
        if not finite:
            bad = ~np.isfinite(X)
            if bad.any():
                return rows, Survey(X.size, int(bad.sum()), rows.start + int(np.argmax(bad.any(1))), 0.0, 0.0, 0.0, 0)
        lengths = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    largest = max(float(X.max(initial=0.0)), -float(X.min(initial=0.0)))
    unit = largest or 1.0
    tiles = [slice(a, a + TILE_ROWS) for a in range(0, len(X), TILE_ROWS)]
    mean = sum(float((X[part].astype(np.float64) / unit).sum()) for part in tiles) / max(1, X.size)
    squares = sum(float(np.square(X[part].astype(np.float64) / unit - mean).sum()) for part in tiles)
    off = int((np.abs(lengths - 1.0) > SPHERE_TOLERANCE).sum())
    return rows, Survey(X.size, 0, rows.stop, largest, mean, squares, off)


def _merged(a: Survey, b: Survey) -> Survey:
    """The survey of both parts (Chan's update of mean and squares), in units of the larger one's largest number."""
    if a.n == 0 or b.n == 0:  # a piece without rows
        return a if b.n == 0 else b
    n, largest = a.n + b.n, max(a.largest, b.largest) or 1.0
    means, squares = zip(
        *((s.mean * (s.largest / largest), s.squares * (s.largest / largest) ** 2) for s in (a, b)), strict=True
    )
    apart = means[1] - means[0]
    return Survey(
        n, a.n_bad + b.n_bad, a.first_bad if a.n_bad else b.first_bad, max(a.largest, b.largest),
        means[0] + apart * b.n / n, sum(squares) + apart * apart * a.n * b.n / n, a.off_sphere + b.off_sphere,
    )  # fmt: skip
