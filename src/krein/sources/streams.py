"""Blocks from svmlight files, from functions that return iterators, and from iterators."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import sklearn  # sklearn.datasets is loaded on first use

from krein.arrays import strips
from krein.errors import InputError
from krein.sources.source import file_facts, token_of
from krein.sources.spool import BLOCK_NUMBERS, Blocks

__all__ = ["iterator_blocks", "svmlight_blocks"]

# An svmlight file is read in runs of about this many bytes.
RUN_BYTES = 1 << 23
# The largest number of columns a sparse matrix with 32-bit indices can have; the file says how many it has.
MOST_COLUMNS = 2**31 - 1


def iterator_blocks(blocks: Iterator[Any] | Callable[[], Iterator[Any]]) -> Blocks:
    """Return the blocks of an iterator, or of the one a function returns, over X or tuples (X, y)."""

    def read() -> Iterator[tuple[Any, Any]]:
        for block in blocks() if callable(blocks) else blocks:
            yield block if isinstance(block, tuple) and len(block) == 2 else (block, None)

    return Blocks("the iterator of blocks", read)


def svmlight_blocks(path: Path) -> Blocks:
    """Return the blocks of an svmlight file, with its labels as the target.

    Columns are counted from 1 unless one of them is 0, as `sklearn.datasets.load_svmlight_file` does.
    """

    @cache
    def layout() -> tuple[int, int, int]:
        """Return the number of rows, and the first column and the one after the last."""
        n_rows, low, high = 0, 1, 0
        for X, _ in _runs(path, MOST_COLUMNS, True):
            n_rows += X.shape[0]
            if X.nnz:
                low, high = min(low, int(X.indices.min())), max(high, int(X.indices.max()))
        return n_rows, low, max(high, low) + 1

    def read() -> Iterator[tuple[Any, Any]]:
        _, low, end = layout()
        for X, y in _runs(path, end - low, low == 0):
            for rows in strips(X.shape[0], end - low, BLOCK_NUMBERS):
                yield X[rows].toarray(), y[rows]

    return Blocks(str(path), read, lambda: token_of("svmlight", file_facts(path)), lambda: layout()[0])


def _runs(path: Path, width: int, zero_based: bool) -> Iterator[tuple[Any, Any]]:
    """Yield the file in runs of whole lines. With its own offsets scikit-learn reads lines longer than a run twice."""
    with path.open("rb") as file:
        while lines := file.readlines(RUN_BYTES):
            try:
                yield sklearn.datasets.load_svmlight_file(
                    io.BytesIO(b"".join(lines)), n_features=width, zero_based=zero_based
                )
            except (ValueError, OverflowError, UnicodeDecodeError) as error:
                raise InputError(f"{path} cannot be read as svmlight: {str(error).rstrip('.')}.") from error
