"""What X is, and the source that reads it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from krein.errors import InputError, regular_file
from krein.sources.collection import dask_array, dask_frame
from krein.sources.mapped import mapped_array, mapped_file
from krein.sources.sliced import sliced_array
from krein.sources.source import Source
from krein.sources.spool import Blocks, spooled
from krein.sources.streams import iterator_blocks, svmlight_blocks
from krein.sources.tables import csv_blocks, dataset_blocks, features_of, lazy_blocks, table_file_blocks

__all__ = ["has_columns", "names_of", "source_of", "split_frame"]

TableReader = Callable[[Path, Sequence[str], Sequence[str] | None], Blocks]
TABLES: dict[str, TableReader] = {
    **dict.fromkeys((".parquet", ".pq", ".arrow", ".feather", ".ipc"), table_file_blocks),
    **dict.fromkeys((".csv", ".tsv", ".tab"), csv_blocks),
}
SVMLIGHT = (".svm", ".svmlight", ".libsvm")


def source_of(
    X: Any,
    y: Any = None,
    *,
    workdir: str | os.PathLike[str] | None = None,
    columns: Sequence[str] | None = None,
) -> tuple[Source, Any] | None:
    """Return the source of rows that lie outside memory, and their target; None if X is in memory.

    Parameters
    ----------
    X : object
        A `numpy.memmap` or the path of an .npy file; an array that is sliced like one, such as a dataset of zarr or
        h5py; the path of a Parquet, Arrow, Feather, CSV, TSV or svmlight file or of a folder of Parquet files; a
        `pyarrow.dataset.Dataset`; a polars LazyFrame; a Dask array or data frame; an iterator of blocks X or tuples
        (X, y), or a function without arguments that returns one; an object with the methods of `Source`.
    y : object, default=None
        The target, the path of its .npy file, or the name of its column if X is a table; that column is then no
        feature. A list of names is a target of several columns. A target in the blocks of an iterator or in an svmlight
        file is used if y is None.
    workdir : path, default=None
        Folder for the rows of tables, text files and iterators, which are written once to a file that can be read in
        any order. A complete file of the same rows is used again. None is a temporary folder that is removed with the
        source.
    columns : list of str, default=None
        Names of the columns of a table to use, in this order. None means all but the target.

    Returns
    -------
    (Source, y) or None
        y is what was given, or the target that was read: an array of n numbers or texts.

    Examples
    --------
    >>> import numpy as np
    >>> from krein.sources import source_of
    >>> blocks = (np.full((3, 2), i) for i in range(4))
    >>> source, y = source_of(blocks)
    >>> source.shape, source.bounds(5)
    ((12, 2), [0, 4, 8, 12])
    >>> source.take([11, 0])
    array([[3., 3.],
           [0., 0.]])
    >>> source_of(np.zeros((3, 2))) is None
    True
    """
    if isinstance(y, str | os.PathLike) and Path(y).suffix == ".npy":
        y = _target(y)
    targets = names_of(y)
    if _is(X, "dask.dataframe", "DataFrame"):
        collection, target = dask_frame(X, targets, columns)
        return collection, target if targets else y
    table = _table(X, targets, columns)
    if table is not None:
        source, target = spooled(table, workdir)
        return source, target if targets else y
    stored = _stored(X)
    blocks = _blocks(X) if stored is None else None
    if stored is None and blocks is None:
        return None
    if isinstance(y, str) or columns is not None:
        raise InputError(
            f"Only tables have columns with names; X is of type {type(X).__name__}. Pass the target as an array, and "
            "leave out columns=."
        )
    if stored is not None:
        return stored, y
    assert blocks is not None
    source, target = spooled(blocks, workdir)
    if blocks.token is None and target is not None and y is not None:
        raise InputError("There are two targets: y, and those of the blocks. Pass y=None, or blocks X without targets.")
    return source, target if y is None else y


def names_of(y: Any) -> list[str]:
    """The names of columns that a target is given by: a text, or a list of different texts; none of other targets."""
    if isinstance(y, str):
        return [y]
    named = isinstance(y, list | tuple) and all(isinstance(name, str) for name in y) and len(set(y)) == len(y)
    return list(y) if named else []


def split_frame(X: Any, y: Any) -> tuple[Any, Any]:
    """A data frame in memory and its target, where that is given by the names of columns; else both as they are."""
    targets = names_of(y)
    in_memory = all(hasattr(X, name) for name in ("columns", "drop", "__len__")) and not hasattr(X, "dask")
    if not targets or not in_memory:
        return X, y
    if not isinstance(y, str) and not set(targets) <= set(X.columns):
        return X, y  # a list of labels
    features = features_of(list(X.columns), targets, None, "X")
    return X[features], X[targets[0]] if isinstance(y, str) else X[targets]


def has_columns(X: Any) -> bool:
    """Return whether X is a table outside memory, whose columns have names."""
    if any(
        _is(X, *name)
        for name in (("dask.dataframe", "DataFrame"), ("pyarrow.dataset", "Dataset"), ("polars", "LazyFrame"))
    ):
        return True
    path = _path(X) if isinstance(X, str | os.PathLike) else None
    return path is not None and (path.is_dir() or path.suffix.lower() in TABLES)


def _table(X: Any, targets: Sequence[str], columns: Sequence[str] | None) -> Blocks | None:
    if _is(X, "pyarrow.dataset", "Dataset"):
        return dataset_blocks(X, targets, columns)
    if _is(X, "polars", "LazyFrame"):
        return lazy_blocks(X, targets, columns)
    path = _path(X)
    if path is None:
        return None
    reader = table_file_blocks if path.is_dir() else TABLES.get(path.suffix.lower())
    return None if reader is None else reader(path, targets, columns)


def _stored(X: Any) -> Source | None:
    """Return the source of rows that can be read in any order, or None of others."""
    if isinstance(X, Source):
        return X
    if isinstance(X, np.memmap):
        return mapped_array(X)
    if _is(X, "dask.array", "Array"):
        return dask_array(X)
    path = _path(X)
    if path is not None:
        return mapped_file(path) if path.suffix.lower() == ".npy" else None
    sliceable = isinstance(getattr(X, "dtype", None), np.dtype) and hasattr(X, "__getitem__")
    in_memory = isinstance(X, np.ndarray) or issparse(X) or hasattr(X, "__dlpack__")  # also arrays on a GPU
    return sliced_array(X) if sliceable and not in_memory and len(getattr(X, "shape", ())) == 2 else None


def _blocks(X: Any) -> Blocks | None:
    path = _path(X)
    if path is not None:
        return svmlight_blocks(path)
    return iterator_blocks(X) if isinstance(X, Iterator) or callable(X) else None


def _path(X: Any) -> Path | None:
    """Return X as a path that exists and whose kind is known, or None if X is no path."""
    if not isinstance(X, str | os.PathLike):
        return None
    path = Path(X)
    if not path.is_dir():
        regular_file(path)
    if not path.exists():
        raise InputError(f"{path} does not exist. X must be an array or the path of a file of rows.")
    known = (".npy", *TABLES, *SVMLIGHT)
    if path.suffix.lower() == ".zarr" or not (path.is_dir() or path.suffix.lower() in known):
        raise InputError(
            f"{path}: the extension {path.suffix!r} is not known. A path must be a folder of Parquet files, or end in "
            f"{', '.join(known)}. Open HDF5 and zarr files and pass the array."
        )
    return path


def _target(path: str | os.PathLike[str]) -> Any:
    try:
        return np.load(regular_file(path), allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"y: {os.fspath(path)} cannot be read as an .npy file of numbers or texts: {error}") from error


def _is(X: Any, module: str, name: str) -> bool:
    """Return whether X is an instance of a class of a module; if the module is not loaded, it cannot be."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(X, getattr(loaded, name))
