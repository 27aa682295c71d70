"""What X is to an estimator: a matrix of numbers, or objects that stay as they are.

scikit-learn takes nested lists of numbers for a matrix, and so do we where nothing speaks against it. The answer is
found at the fit and kept: a prediction may be of one object, which says little of what the others were.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from krein.errors import InputError
from krein.kernels import Kernel
from krein.kernels.names import takes
from krein.kernels.validation import takes_vectors

__all__ = ["as_objects", "check_table", "holds_vectors"]

NUMBERS = (float, np.floating, np.bool_)  # beside whole ones
WHOLE = 2**53  # the largest number up to which float64 tells all whole ones apart


def holds_vectors(X: Any, kernel: Any, params: dict[str, Any] | None = None) -> bool:
    """Whether X is a matrix of numbers under what names the kernel; a function of the user's may compare anything.

    Of a list of equally long rows of numbers it is asked: what it cannot do with arrays it is to do with the list.
    """
    if isinstance(kernel, str) or (isinstance(kernel, Kernel) and takes_vectors(kernel)):
        return True
    if isinstance(kernel, Kernel) and kernel.compares in ("strings", "sequences", "indices"):
        return False
    if isinstance(X, list | tuple):
        if isinstance(kernel, Kernel) or not _is_table(X):  # krein's own are given lists, as krein.approximate does
            return False
        first = np.asarray(X[:3], dtype=np.float64)
        return len(first) < 3 or not callable(kernel) or takes(partial(kernel, **(params or {})), first) is not None
    if hasattr(X, "columns"):
        return _is_numeric(X)
    shape, kind = getattr(X, "shape", ()), getattr(getattr(X, "dtype", None), "kind", "f")
    return len(shape) == 2 and kind in "biuf"


def check_table(X: Any, kernel: Any) -> None:
    """Refuse a list to predict that is no matrix, where the user's function was given one at the fit."""
    if isinstance(kernel, str | Kernel) or not isinstance(X, list | tuple) or not X or _is_table(X):
        return
    raise InputError(
        "The fit saw a list of equally long rows of numbers, a matrix; this X is none: its rows differ in length, or "
        "hold something else. If they are objects to be compared as they are, say so in both: "
        "kernel=krein.kernels.FromCallable(k) is given lists as lists."
    )


def as_objects(X: Any) -> Any:
    """X as an array or a list of objects, or what is wrong with it."""
    if isinstance(X, str | bytes | dict | set | frozenset) or X is None or np.isscalar(X):
        raise InputError(f"X must be a sequence of objects, a list for instance; got {type(X).__name__}.")
    if isinstance(X, np.ndarray):
        found: Any = np.asarray(X)
    elif hasattr(X, "columns"):  # a list of a data frame is that of its column names
        found = np.asarray(X)
        if found.ndim == 2 and found.shape[1] == 1 and found.dtype.kind not in "biuf":
            found = found[:, 0].tolist()  # one column of text, for instance: its strings
    else:
        found = list(X)
    if len(found) == 0:
        raise InputError("X must hold at least 1 object; got none.")
    return found


def _is_table(X: Any) -> bool:
    """Whether a list holds equally long lists of numbers that a float can hold; what has a class of its own is one."""
    lengths = set()
    for row in X:
        if not (_is_array(row) or (type(row) in (list, tuple) and all(map(_is_number, row)))):
            return False
        lengths.add(len(row))
    return len(lengths) == 1 and 0 not in lengths


def _is_number(value: Any) -> bool:
    if isinstance(value, int | np.integer):
        return bool(-WHOLE <= value <= WHOLE)
    return isinstance(value, NUMBERS)


def _is_array(row: Any) -> bool:
    if not (type(row) is np.ndarray and row.ndim == 1 and row.dtype.kind in "biuf"):
        return False
    return row.dtype.kind not in "iu" or row.size == 0 or bool(row.min() >= -WHOLE and row.max() <= WHOLE)


def _is_numeric(frame: Any) -> bool:
    values = np.asarray(frame)
    kinds = {getattr(dtype, "kind", "O") for dtype in frame.dtypes}  # those of pandas know numbers that may be missing
    return values.dtype.kind in "biuf" or kinds <= set("biuf") or _is_table(values.tolist())
