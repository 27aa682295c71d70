"""Rows of a Dask array or data frame, computed where its chunks lie.

Work is done by the current client, or by Dask's local scheduler without one. Missing values of a data frame become NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.arrays import Array, Indices, grouped
from krein.errors import InputError
from krein.sources.source import bounds_within, check_run, check_shape, check_take, float_type, token_of
from krein.sources.tables import features_of, joined_target, refuse_columns, refuse_missing

__all__ = ["Collection", "dask_array", "dask_frame"]


@dataclass(frozen=True, eq=False)
class Collection:
    """A Dask array whose chunks are whole rows of float32 or float64."""

    array: Any
    columns: tuple[str, ...] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.array.shape[0]), int(self.array.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return float_type(self.array.dtype, "X")

    @property
    def token(self) -> str:
        return token_of("dask", self.array.name, self.array.chunks)

    def bounds(self, target: int) -> list[int]:
        return bounds_within(self._edges().tolist(), target)

    def edges(self) -> list[int]:
        """Return the first row of each chunk, and the number of rows."""
        return [int(row) for row in self._edges()]

    def read(self, start: int, stop: int) -> Array:
        check_run(start, stop, self.shape[0])
        return np.ascontiguousarray(self.array[start:stop].compute())

    def take(self, rows: Indices) -> Array:
        from dask.base import compute
        from dask.delayed import delayed

        wanted, places = np.unique(check_take(rows, self.shape[0]), return_inverse=True)
        if not len(wanted):
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        edges, blocks, pick = self._edges(), self.blocks(), delayed(_picked, pure=True)
        held = np.searchsorted(edges, wanted, side="right") - 1  # the chunk of each row
        picked = [pick(blocks[i], wanted[here] - edges[i]) for i, here in grouped(held)]
        parts = compute(*picked)  # type: ignore[no-untyped-call]
        return np.asarray(np.concatenate(parts)[places])

    def check(self) -> None:
        """Do nothing: the rows of a Dask collection are what its graph computes."""

    def blocks(self) -> list[Any]:
        """Return one Delayed a chunk, each the chunk's rows in C order."""
        return list(self.array.to_delayed().ravel())

    def _edges(self) -> Indices:
        return np.concatenate([[0], np.cumsum(self.array.chunks[0])]).astype(np.intp)


def dask_array(X: Any, columns: tuple[str, ...] | None = None) -> Collection:
    """Return the rows of a Dask array; chunks of unknown size are computed once to count their rows."""
    if X.ndim == 2 and X.numblocks[1] > 1:
        raise InputError(
            f"The chunks of a Dask array must hold whole rows; X is cut into {X.numblocks[1]} chunks of columns. Pass "
            "X.rechunk({1: -1})."
        )
    dtype = float_type(X.dtype, "X")
    if any(np.isnan(size) for size in X.shape):
        X = X.copy().compute_chunk_sizes()  # it changes the array it is called on
    check_shape(X.shape, "X")
    return Collection(X.map_blocks(_plain, dtype, dtype=dtype, meta=np.empty((0, 0), dtype=dtype)), columns)


def dask_frame(X: Any, targets: Sequence[str], columns: Sequence[str] | None) -> tuple[Collection, Any]:
    """Return the rows of a Dask data frame, and the columns of its target, or None without one."""
    from pandas.api.types import is_numeric_dtype

    features = features_of(list(X.columns), targets, columns, "X")
    kinds = X.dtypes.to_dict()
    refuse_columns([f"{column} ({kinds[column]})" for column in features if not is_numeric_dtype(kinds[column])], "X")
    dtype = np.result_type(np.float32, *(getattr(kinds[column], "numpy_dtype", kinds[column]) for column in features))
    rows = X[features].astype(dtype).to_dask_array(lengths=True)
    found = X[list(targets)].compute() if targets else {}
    for name in targets:
        refuse_missing(np.asarray(found[name].isna()), name, 0, "X")
    return dask_array(rows, tuple(features)), joined_target([np.asarray(found[name]) for name in targets], targets)


def _plain(block: Any, dtype: np.dtype[Any]) -> Array:
    return np.ascontiguousarray(block.toarray() if hasattr(block, "toarray") else block, dtype=dtype)


def _picked(block: Array, rows: Indices) -> Array:
    return block[rows]
