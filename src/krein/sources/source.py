"""What a source promises, and what all kinds share: where pieces end, which rows exist, tokens."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import InputError, ResourceError, whole_number

__all__ = ["Source", "bounds_within", "check_run", "check_shape", "check_take", "file_facts", "float_type", "token_of"]


@runtime_checkable
class Source(Protocol):
    """Rows of numbers somewhere: small, picklable, and never the rows themselves."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """The type of what is read: float32 if the rows are stored so, otherwise float64."""

    @property
    def token(self) -> str:
        """A text that differs when the rows do. It is made of facts such as path, size and time, not of all content."""

    def bounds(self, target: int) -> list[int]:
        """Return 0 = b_0 < ... < b_P = n. A piece has at most ``target`` rows and ends with a chunk where possible."""

    def read(self, start: int, stop: int) -> Array:
        """Return rows ``start`` to ``stop - 1`` in C order."""

    def take(self, rows: Indices) -> Array:
        """Return rows by number, in this order; a number may occur more than once."""

    def check(self) -> None:
        """Raise ResourceError if the rows changed since the source was made."""


def float_type(stored: np.dtype[Any], what: str) -> np.dtype[Any]:
    """Return the type in which rows of type ``stored`` are read, or raise InputError if they are not real numbers."""
    if stored.kind not in "biuf":
        raise InputError(
            f"{what} must hold real numbers; its dtype is {stored}. Store the numeric columns as a 2-D array of one "
            "float type (numpy.lib.recfunctions.structured_to_unstructured for structured arrays)."
        )
    return np.dtype(np.float32 if stored.kind == "f" and stored.itemsize == 4 else np.float64)


def check_shape(shape: Sequence[Any], what: str) -> tuple[int, int]:
    """Return (rows, columns), or raise InputError unless there are two dimensions and one row and column at least."""
    if len(shape) != 2 or min(shape) < 1:
        raise InputError(
            f"{what} must be 2-D, with one row and one column at least; its shape is {tuple(shape)}. "
            "Reshape it to (rows, columns)."
        )
    return int(shape[0]), int(shape[1])


def bounds_within(edges: Sequence[int], target: int) -> list[int]:
    """Return bounds of pieces of at most ``target`` rows: small chunks are joined and large ones are cut evenly.

    ``edges`` are the bounds of the chunks, from 0 to the number of rows.
    """
    whole_number("target", target, 1)
    bounds = [0]
    for start, stop in pairwise(edges):
        if len(bounds) > 1 and stop - bounds[-2] <= target:
            bounds[-1] = stop
        else:
            n_parts = -(-(stop - start) // target)
            bounds += [start + (stop - start) * i // n_parts for i in range(1, n_parts + 1)]
    return bounds


def check_run(start: int, stop: int, n: int) -> None:
    """Raise IndexError unless ``start`` to ``stop`` is a run of n rows."""
    if not 0 <= start <= stop <= n:
        raise IndexError(f"A run of rows needs 0 <= start <= stop <= {n}, the number of rows; got {start} and {stop}.")


def check_take(rows: Any, n: int) -> Indices:
    """Return row numbers as an array, or raise IndexError unless they are integers in 0 .. n - 1."""
    wanted = np.asarray(rows)
    if wanted.ndim != 1 or (wanted.size and wanted.dtype.kind not in "iu"):
        raise IndexError(f"Rows are taken by a 1-D array of integers; got {wanted.dtype} of shape {wanted.shape}.")
    if wanted.size and not (wanted.min() >= 0 and wanted.max() < n):
        raise IndexError(f"Row numbers must lie in 0 .. {n - 1}; got {wanted.min()} .. {wanted.max()}.")
    return wanted.astype(np.intp)


def file_facts(path: str | os.PathLike[str]) -> tuple[str, int, int]:
    """Return the absolute path, the size in bytes and the time of the last change in nanoseconds."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise ResourceError(
            f"{os.fspath(path)} cannot be read: {error.strerror}. The rows must stay where they are until the fit ends."
        ) from error
    return str(Path(path).absolute()), found.st_size, found.st_mtime_ns


def token_of(*facts: object) -> str:
    """Return a short text that stands for these facts."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
