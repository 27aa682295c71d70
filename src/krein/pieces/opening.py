"""X as a user passes it in, `RowPieces` out if it lies elsewhere: where rows come from, who visits them, what is kept.

`opened` decides it once for every fit and every approximation. Rows that are few enough are read into memory, where the
fit goes as for any array.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse import issparse

from krein.errors import InputError, is_number, warn
from krein.pieces.checkpoints import Workdir
from krein.pieces.on_dask import is_dask, on_dask
from krein.pieces.rows import ArrayRows, RowPieces
from krein.sources import source_of

__all__ = ["bytes_from", "check_no_path", "in_memory", "may_be_outside", "opened"]

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
# Rows are read into memory if they take no more than this share of the memory limit.
READ_SHARE = 0.25
# Without a memory limit rows of this many bytes are read into memory.
READ_BYTES = 2**28


def bytes_from(limit: Any, name: str = "memory_limit") -> float | None:
    """Return a number of bytes from a number or a text such as "4GB" or "512MiB"; None stays None."""
    if limit is None:
        return None
    if isinstance(limit, str):
        found = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?i?)b?\s*", limit.lower())
        with contextlib.suppress(ValueError):
            if found is not None and found[2] in UNITS and float(found[1]) > 0.0:
                return float(found[1]) * UNITS[found[2]]
    elif is_number(limit) and limit > 0:
        return float(limit)
    raise InputError(
        f'{name} must be a number of bytes above 0, a text such as "4GB" or "512MiB", or None; got {limit!r}.'
    )


@contextlib.contextmanager
def opened(
    X: Any, y: Any = None, *, most_read: int = 0, memory_limit: Any = None, workdir: Any = None,
    n_jobs: int | None = None, verbose: int = 0, keep: bool = False,
) -> Iterator[tuple[Any, Any, tuple[str, ...] | None]]:  # fmt: skip
    """Yield (X, y, names): X and y as they are, as arrays in memory, or X as `RowPieces`; names of columns it had.

    Up to ``most_read`` rows are read, if they fit into memory. ``workdir`` keeps what is finished for another try. With
    ``keep`` the rows stay open when no error occurs, and files are removed with the last reference to them.
    """
    limit, outside = bytes_from(memory_limit), may_be_outside(X)
    rows = files = names = None
    if limit is not None and is_dask(X):
        warn(
            "memory_limit is not used: the chunks of a Dask collection say how much a worker holds at a time. Rechunk "
            "it, or set the limit of the workers."
        )
    if outside and workdir is not None:
        if is_dask(X):
            warn(
                "workdir is not used: what is computed of a Dask collection stays with the workers, and what a dead "
                "one held is computed again. Pass workdir=None."
            )
        else:
            files = Workdir(workdir, limit)  # locked before anything is written
    try:
        found = source_of(X, y, workdir=workdir) if outside else None
        if found is None and limit is not None and isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biuf":
            found = ArrayRows(X), y  # an array that is there may be visited in pieces too
        X, y = (X, in_memory(y)) if found is None else (X, in_memory(found[1]))
        if found is not None:
            source = found[0]
            names = getattr(source, "columns", None)
            n, d = source.shape
            room = READ_BYTES if limit is None else READ_SHARE * limit
            if n <= most_read and n * d * np.dtype(source.dtype).itemsize <= room:
                X = source.read(0, n)
            elif is_dask(X):
                X = rows = on_dask(source, verbose)
            else:
                files = files or Workdir(workdir, limit)
                jobs = _n_threads(n_jobs)
                X = rows = RowPieces.of(source, memory_limit=limit, n_jobs=jobs, verbose=verbose, checkpoints=files)
        yield X, y, names
    except BaseException:
        _closed(rows, files, finished=False)
        raise
    if not (keep and rows is not None):
        _closed(rows, files)


def _closed(rows: RowPieces | None, files: Workdir | None, finished: bool = True) -> None:
    if rows is not None:
        rows.close()
    if files is not None:
        files.close(finished)


def may_be_outside(X: Any) -> bool:
    """A quick test, as most fits are of arrays in memory. A text with a suffix is a path, or one that is there."""
    if isinstance(X, str):
        return bool(os.path.splitext(X)[1]) or os.path.exists(X)
    in_memory_types = (list, tuple, dict, set, frozenset, bytes, type)
    return type(X) is not np.ndarray and not isinstance(X, in_memory_types) and not issparse(X)


def check_no_path(X: Any, asker: object) -> None:
    """Refuse the path of a file where rows are needed in memory."""
    if isinstance(X, os.PathLike) or (isinstance(X, str) and may_be_outside(X)):
        raise InputError(
            f"X is the path {str(X)!r:.80}, but {asker} needs its rows in memory. Read them first, with numpy.load or "
            "pandas.read_csv for instance."
        )


def in_memory(y: Any) -> Any:
    """A target or weights as an array, if they are a Dask collection or a map; else as they are."""
    if is_dask(y):
        y = y.compute()
    return np.asarray(y) if isinstance(y, np.memmap) else y


def _n_threads(n_jobs: int | None) -> int:
    from joblib import effective_n_jobs

    return int(effective_n_jobs(n_jobs or 1))
