"""Rows of an .npy file or a memory map, read from the file where they lie.

C and Fortran order, steps and byte orders are all read; rows that are not contiguous are copied piece by piece.
Of a Fortran-ordered file `take` touches one page per row and column.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import InputError, ResourceError
from krein.sources.source import bounds_within, check_run, check_shape, check_take, file_facts, float_type, token_of

__all__ = ["Mapped", "mapped_array", "mapped_file"]


@dataclass(frozen=True, eq=False)
class Mapped:
    """An array in a file: where it begins, and the strides that lead from number to number."""

    path: str
    size: int  # of the file, in bytes
    mtime_ns: int
    stored: np.dtype[Any]
    offset: int
    shape: tuple[int, int]
    strides: tuple[int, ...]
    columns: tuple[str, ...] | None = None  # their names, where a table was spooled

    @property
    def dtype(self) -> np.dtype[Any]:
        return float_type(self.stored, self.path)

    @property
    def token(self) -> str:
        where = (self.offset, self.shape, self.strides, self.stored.str)
        return token_of("mapped", self.path, self.size, self.mtime_ns, *where)

    def bounds(self, target: int) -> list[int]:
        return bounds_within((0, self.shape[0]), target)

    def read(self, start: int, stop: int) -> Array:
        check_run(start, stop, self.shape[0])
        return np.ascontiguousarray(self._rows()[start:stop], dtype=self.dtype)

    def take(self, rows: Indices) -> Array:
        wanted = check_take(rows, self.shape[0])
        return np.ascontiguousarray(self._rows()[wanted], dtype=self.dtype)

    def check(self) -> None:
        _, size, mtime_ns = file_facts(self.path)
        if (size, mtime_ns) != (self.size, self.mtime_ns):
            raise ResourceError(
                f"{self.path} changed while it was in use: it had {self.size:,} bytes and now has {size:,}, last "
                f"changed {(mtime_ns - self.mtime_ns) / 1e9:g} s later. Leave it unchanged and fit again."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_array"}  # every process maps it itself

    def _rows(self) -> Any:
        """Return the array, after a look at the file: reading a map past the end of its file ends the process."""
        self.check()
        return self._array

    @cached_property
    def _array(self) -> Any:
        whole = np.memmap(self.path, np.uint8, "r")
        return np.ndarray(self.shape, self.stored, whole, self.offset, self.strides)


def mapped_file(path: str | os.PathLike[str], columns: tuple[str, ...] | None = None) -> Mapped:
    """Return the rows of an .npy file."""
    try:
        X = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"{os.fspath(path)} cannot be opened as an array: {error}. It must be an .npy file of numbers, as "
            "numpy.save or numpy.lib.format.open_memmap writes it."
        ) from error
    return _mapped(X, columns)


def mapped_array(X: Any) -> Mapped | None:
    """Return the rows of a memory map, or None if they cannot be found in a file again and count as data in memory.

    That is so if the file was removed, and with mode "c", whose changes are not in the file.
    """
    if not (isinstance(X._mmap, mmap.mmap) and X.filename is not None and os.path.exists(X.filename)):
        return None
    if X.ndim != 2 or X.mode == "c":
        return None
    if X.mode != "r":
        X.flush()  # or the file would change later
    return _mapped(X, None)


def _mapped(X: Any, columns: tuple[str, ...] | None) -> Mapped:
    path, size, mtime_ns = file_facts(X.filename)
    float_type(X.dtype, path)
    shape = check_shape(X.shape, path)
    # A map begins at a multiple of the system's granularity, and a slice does not say where in the file it begins.
    first = np.frombuffer(X._mmap, np.uint8).ctypes.data
    offset = X.offset - X.offset % mmap.ALLOCATIONGRANULARITY + X.ctypes.data - first
    return Mapped(path, size, mtime_ns, X.dtype, offset, shape, X.strides, columns)
