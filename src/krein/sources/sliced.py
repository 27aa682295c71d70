"""Rows of an array that is sliced like a NumPy array but lies elsewhere, such as a dataset of zarr or h5py."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import ResourceError
from krein.sources.source import bounds_within, check_run, check_shape, check_take, file_facts, float_type, token_of

__all__ = ["Sliced", "sliced_array"]


@dataclass(frozen=True, eq=False)
class Sliced:
    """An array with ``shape``, ``dtype`` and slices of rows."""

    array: Any
    facts: str | None  # a token of the files behind it; None if there are none
    serial: str  # tells arrays without files apart

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.array.shape[0]), int(self.array.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        return float_type(self.array.dtype, "X")

    @property
    def token(self) -> str:
        return token_of("sliced", self.facts or self.serial, self.shape, self.array.dtype.str)

    def bounds(self, target: int) -> list[int]:
        n, chunks = self.shape[0], getattr(self.array, "chunks", None)
        step = chunks[0] if chunks and isinstance(chunks[0], int) else n
        return bounds_within([*range(0, n, step), n], target)

    def read(self, start: int, stop: int) -> Array:
        check_run(start, stop, self.shape[0])
        return np.ascontiguousarray(self.array[start:stop], dtype=self.dtype)

    def take(self, rows: Indices) -> Array:
        # h5py reads rows by ascending numbers without repetition.
        wanted, places = np.unique(check_take(rows, self.shape[0]), return_inverse=True)
        found = self.array[wanted] if len(wanted) else np.empty((0, self.shape[1]))
        return np.ascontiguousarray(found, dtype=self.dtype)[places]

    def check(self) -> None:
        if _facts(self.array) != self.facts:
            raise ResourceError(
                "The files behind X changed while it was in use. Leave them unchanged, or copy them, and fit again."
            )

    def __reduce__(self) -> Any:
        """Pickle a dataset of h5py by its file and name, as h5py itself cannot be pickled."""
        if _is_hdf5(self.array):
            return _reopened, (os.path.abspath(self.array.file.filename), self.array.name, self.facts, self.serial)
        return Sliced, (self.array, self.facts, self.serial)


def sliced_array(X: Any) -> Sliced:
    """Return the rows of an array with ``shape``, ``dtype`` and slices of rows."""
    check_shape(X.shape, "X")
    float_type(X.dtype, "X")
    return Sliced(X, _facts(X), uuid.uuid4().hex)


def _is_hdf5(X: Any) -> bool:
    return hasattr(getattr(X, "file", None), "filename")


def _reopened(filename: str, name: str, facts: str | None, serial: str) -> Sliced:
    import h5py

    return Sliced(h5py.File(filename, "r")[name], facts, serial)


def _facts(X: Any) -> str | None:
    """Return a token of the file of an h5py dataset or of the files in the folder of a zarr array."""
    if _is_hdf5(X):
        return token_of(file_facts(X.file.filename), X.name)
    store = getattr(X, "store", None)
    root = getattr(store, "root", None) or getattr(store, "path", None)  # zarr 3 and zarr 2
    if not (isinstance(root, str | Path) and Path(root).is_dir()):
        return None
    files = sorted(file for file in Path(root, X.path).rglob("*") if file.is_file())
    return token_of(str(X.path), *map(file_facts, files))
