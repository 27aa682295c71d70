"""Rows of another source, changed as they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.arrays import Array, Indices
from krein.sources.source import Source, bounds_within, check_run, token_of

__all__ = ["ChangedRows", "ChosenRows"]

# A run is read whole if it has at most this many times the rows that are wanted of it.
MOST_READ = 4


@dataclass(frozen=True, eq=False)
class ChangedRows:
    """``change(X)`` of the rows X of a source, row by row and in their own type. ``facts`` say what the change is."""

    of: Source
    change: Callable[[Array], Array]
    facts: str

    @property
    def shape(self) -> tuple[int, int]:
        return self.of.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.of.dtype

    @property
    def token(self) -> str:
        return f"{self.of.token}, {self.facts}"

    def bounds(self, target: int) -> list[int]:
        return self.of.bounds(target)

    def read(self, start: int, stop: int) -> Array:
        return np.asarray(self.change(self.of.read(start, stop)), dtype=self.dtype)

    def take(self, rows: Indices) -> Array:
        return np.asarray(self.change(self.of.take(rows)), dtype=self.dtype)

    def check(self) -> None:
        self.of.check()


@dataclass(frozen=True, eq=False)
class ChosenRows:
    """Some rows of a source, ascending: the others are not there."""

    of: Source
    rows: Indices

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.of.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.of.dtype

    @property
    def token(self) -> str:
        return f"{self.of.token}, rows {token_of(self.rows.tobytes())}"

    def bounds(self, target: int) -> list[int]:
        return bounds_within([0, len(self.rows)], target)

    def read(self, start: int, stop: int) -> Array:
        check_run(start, stop, len(self.rows))
        return self._read(self.rows[start:stop])

    def take(self, rows: Indices) -> Array:
        return self.of.take(self.rows[rows])

    def _read(self, wanted: Indices) -> Array:
        """A run of the source and what is wanted of it, which most sources read faster than single rows."""
        if not len(wanted):
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        first, last = int(wanted[0]), int(wanted[-1]) + 1
        if last - first > MOST_READ * len(wanted):
            return self.of.take(wanted)
        return self.of.read(first, last)[wanted - first]

    def check(self) -> None:
        self.of.check()
