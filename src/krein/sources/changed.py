"""Rows of another source, changed as they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.arrays import Array, Indices
from krein.sources.source import Source

__all__ = ["ChangedRows"]


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
