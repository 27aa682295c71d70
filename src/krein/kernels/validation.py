"""Validation of data: whatever a user passes as X is checked once, so that the rest of krein need not check it.

In: arrays, data frames, sparse matrices or lists of objects. Out: a float array, a CSR matrix or a sequence, and the
kernel with its parameters bound to it.

The first part decides whether X is a matrix of numbers or a sequence of objects. Nested lists of numbers are a matrix,
as in scikit-learn, unless the kernel compares other objects. Estimators decide this in fit; objects passed to predict
are interpreted as they were in fit.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from krein.errors import InputError, warn
from krein.kernels import (
    DoubleCentred,
    FromDistances,
    Kernel,
    Normalized,
    Precomputed,
    Scaled,
    count_objects,
    is_vectors,
)
from krein.kernels.collections import is_sparse
from krein.kernels.mixed_rows import as_mixed_rows
from krein.kernels.names import takes
from krein.kernels.strings import check_strings
from krein.pieces.rows import SPHERE_TOLERANCE, RowPieces

__all__ = [
    "as_objects",
    "bound_to",
    "check_new_objects",
    "check_no_dates",
    "check_no_mask",
    "check_objects",
    "check_table",
    "has_only_similarities",
    "holds_vectors",
    "in_range",
    "is_plain",
    "off_sphere",
]  # fmt: skip

# These types are numbers; so are integers up to LARGEST_INTEGER.
NUMBERS = (float, np.floating, np.bool_)
# float64 represents all integers up to this one exactly.
LARGEST_INTEGER = 2**53
# Rows in single precision with a largest entry outside 1 / SINGLE_RANGE to SINGLE_RANGE are used in double precision.
SINGLE_RANGE = 1e12


# -- what X is ---------------------------------------------------------------------------------------------------------


def holds_vectors(X: Any, kernel: Any, params: dict[str, Any] | None = None) -> bool:
    """Whether X is a matrix of numbers for this kernel: a name, a Kernel, or a user's function of any objects.

    A list of equally long rows of numbers is a matrix if the function accepts arrays, and a list of objects otherwise.
    """
    if isinstance(kernel, str) or (isinstance(kernel, Kernel) and kernel.compares == "vectors"):
        return True
    if isinstance(kernel, Kernel) and kernel.compares in ("strings", "sequences", "indices", "tables"):
        return False
    if isinstance(X, list | tuple):
        if isinstance(kernel, Kernel) or not _is_table(X):  # krein's own are given lists, as krein.approximate does
            return False
        first = np.asarray(X[:3], dtype=np.float64)
        return len(first) < 3 or not callable(kernel) or takes(partial(kernel, **(params or {})), first) is not None
    if hasattr(X, "columns"):
        return _is_numeric(X)
    if isinstance(X, RowPieces):
        return False  # a function of the user's may keep what it is given
    shape, kind = getattr(X, "shape", ()), getattr(getattr(X, "dtype", None), "kind", "f")
    return len(shape) == 2 and kind in "biuf"


def check_table(X: Any, kernel: Any) -> None:
    """Refuse a list passed to predict that is no matrix, if the user's function was given a matrix in fit."""
    if isinstance(kernel, str | Kernel) or not isinstance(X, list | tuple) or not X or _is_table(X):
        return
    raise InputError(
        "The fit saw a list of equally long rows of numbers, a matrix; this X is none: its rows differ in length, or "
        "hold something else. If they are objects to be compared as they are, say so in both: "
        "kernel=krein.kernels.FromCallable(k) is given lists as lists."
    )


def check_no_mask(name: str, values: Any) -> None:
    """Refuse masked values, whose masks NumPy would drop."""
    if np.ma.is_masked(values):
        masked = int(np.ma.getmaskarray(values).sum())
        raise InputError(f"{name} masks {masked} of its values. Impute or drop them first.")


def check_no_dates(name: str, values: Any) -> None:
    """Refuse dates and durations, which scikit-learn's validation turns into counts of nanoseconds without a word."""
    types = values.dtypes if hasattr(values, "columns") else [getattr(values, "dtype", None)]
    if any(getattr(dtype, "kind", "O") in "mM" for dtype in types):
        raise InputError(
            f"{name} must hold real numbers; got dates or durations. Encode them as numbers first, for instance as "
            "days since a date or as the day of the year."
        )


def as_objects(X: Any, kernel: Any = None) -> Any:
    """Return X as an array or a list of objects, or as the rows of a table if the kernel compares those."""
    if isinstance(kernel, Kernel) and kernel.compares == "tables":
        return as_mixed_rows(X)
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
        if not (_is_array(row) or (type(row) in (list, tuple) and all(map(_is_plain_number, row)))):
            return False
        lengths.add(len(row))
    return len(lengths) == 1 and 0 not in lengths


def _is_plain_number(value: Any) -> bool:
    if isinstance(value, int | np.integer):
        return bool(-LARGEST_INTEGER <= value <= LARGEST_INTEGER)
    return isinstance(value, NUMBERS)


def _is_array(row: Any) -> bool:
    if not (type(row) is np.ndarray and row.ndim == 1 and row.dtype.kind in "biuf"):
        return False
    return (
        row.dtype.kind not in "iu"
        or row.size == 0
        or bool(row.min() >= -LARGEST_INTEGER and row.max() <= LARGEST_INTEGER)
    )


def _is_numeric(frame: Any) -> bool:
    values = np.asarray(frame)
    kinds = {getattr(dtype, "kind", "O") for dtype in frame.dtypes}  # those of pandas know numbers that may be missing
    return values.dtype.kind in "biuf" or kinds <= set("biuf") or _is_table(values.tolist())


# -- X checked ---------------------------------------------------------------------------------------------------------


def check_objects(X: Any, kernel: Kernel) -> tuple[Any, Kernel]:
    """Return the checked objects and the kernel bound to them, or raise InputError."""
    if X is None and isinstance(matrix := _innermost(kernel), Precomputed):
        X = np.arange(matrix.n_objects)
    objects = X if kernel.dissimilar else _collection(X, kernel)
    return objects, bound_to(objects, kernel)


def bound_to(objects: Any, kernel: Kernel) -> Kernel:
    """Return the kernel bound to checked objects. Refuse a distance or a single object; warn of rows off the sphere."""
    if kernel.dissimilar:
        raise InputError(
            f"{kernel!r} is a distance: large values mean far apart. Make it a similarity first, with "
            "krein.FromDistances(...), exp(-d / scale) for instance, or krein.DoubleCentred(...)."
        )
    n = count_objects(objects)
    if n < 2:
        raise InputError(
            f"X must hold at least 2 objects to approximate a matrix of similarities; got n_samples = {n}. Add rows."
        )
    bound = kernel.bind(objects)
    if bound.traits.sphere and is_vectors(objects):
        _warn_off_sphere(objects, bound)
    return bound


def check_new_objects(X_new: Any, objects: Any, kernel: Kernel) -> Any:
    """Return new objects in the form of the training objects, or raise InputError."""
    vectors = is_vectors(objects)
    new = _collection(X_new, kernel, like_vectors=vectors)
    if not vectors:
        if count_objects(new) == 0:
            raise InputError("X_new must hold at least 1 object; got none.")
        return new
    if new.shape[1] != objects.shape[1]:
        raise InputError(
            f"X_new must have the {objects.shape[1]} features of the fit; got shape {new.shape}. Pass the same columns "
            "in the same order."
        )
    if is_sparse(objects) and not is_sparse(new):
        return sp.csr_matrix(new)
    return new.toarray() if is_sparse(new) and not is_sparse(objects) else new


def has_only_similarities(objects: Any, kernel: Kernel) -> bool:
    """Whether nothing but expensive similarities is known of the objects: no vectors, no table, no matrix of them."""
    return not is_vectors(objects) and kernel.compares not in ("indices", "tables")


def _collection(X: Any, kernel: Kernel, like_vectors: bool = False) -> Any:
    """X as a float array, a CSR matrix or a sequence; ``like_vectors`` if a callable was fitted on vectors."""
    if isinstance(X, RowPieces):
        if kernel.compares != "vectors":
            raise InputError(
                f"Rows outside memory are vectors; {kernel!r} compares other objects. Read them into memory."
            )
        assert X.survey.n_bad == 0  # or it raised
        return X
    if is_sparse(X):
        return _sparse(X, kernel)
    vectors = like_vectors or kernel.compares == "vectors"
    if isinstance(X, str | bytes | dict | set | frozenset) or X is None or np.isscalar(X):
        raise InputError(
            f"X must be a 2-D array or a sequence of objects; got {type(X).__name__}. Convert it with list(...) or "
            "numpy.asarray(...) first."
        )
    check_no_mask("X", X)
    if kernel.compares == "strings":
        return _strings(X)
    if kernel.compares == "sequences":
        return _sequences(X)
    if kernel.compares == "tables":
        return as_mixed_rows(X)
    if isinstance(X, list | tuple) and not vectors:  # lists stay lists: whatever their items are
        return X
    try:
        values = np.asarray(X)
    except ValueError as error:  # rows of different lengths
        raise InputError(f"X cannot be read as a 2-D array of numbers: {error} Make all rows equally long.") from None
    if values.ndim == 0:
        raise InputError(f"X must be a 2-D array or a sequence of objects; got one {type(X).__name__}. Use list(...).")
    if kernel.compares == "indices" and values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]  # indices are names, not coordinates to cluster by
    if not vectors and (values.ndim != 2 or values.dtype.kind not in "biuf"):
        return values
    if values.ndim != 2:
        raise InputError(
            f"{type(kernel).__name__} compares vectors, so X must be 2-D (n_samples, n_features); got shape "
            f"{values.shape}. Reshape your data: X.reshape(-1, 1) for a single feature, X.reshape(1, -1) for a single "
            "sample."
        )
    if values.dtype.kind not in "biuf":
        try:
            if values.dtype.kind != "O":  # text, dates and complex numbers would be cast without a word
                raise TypeError
            values = values.astype(np.float64)
        except OverflowError:
            raise InputError("X holds an integer that float64 cannot hold. Rescale it or take its logarithm.") from None
        except (TypeError, ValueError):
            raise InputError(
                f"X must hold real numbers; got dtype {values.dtype}. Encode categories and dates as numbers first, "
                "split complex data into real and imaginary parts, or pass a kernel that compares such objects."
            ) from None
    if 0 in values.shape:
        raise InputError(f"X must not be empty; got shape {values.shape}, which holds no numbers. Pass some rows.")
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    _check_finite(values, values.shape)
    return in_range(values)


def _strings(X: Any) -> list[str]:
    if hasattr(X, "columns"):  # a list of a data frame is that of its column names
        X = np.asarray(X)
    if isinstance(X, np.ndarray):
        X = (X[:, 0] if X.ndim == 2 and X.shape[1] == 1 else X).tolist()
    found = list(X)
    check_strings(found)
    return found


def _sequences(X: Any) -> list[Any]:
    """Sequences of numbers as arrays, of whatever lengths."""
    found = []
    for i, item in enumerate(X):
        try:
            values = np.asarray(item, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.empty(0)
        if values.ndim not in (1, 2) or values.size == 0 or not np.isfinite(values).all():
            raise InputError(
                f"X must hold sequences of finite numbers, arrays of shape (length,) or (length, d), none empty; item "
                f"{i} is {item!r:.60}. Drop or impute it first."
            )
        found.append(values)
    return found


def _sparse(X: Any, kernel: Kernel) -> Any:
    if not kernel.accepts_sparse:
        raise InputError(f"{kernel!r} does not take sparse matrices; pass X.toarray().")
    if X.dtype.kind not in "biuf":
        raise InputError(f"X must hold real numbers; got a sparse matrix of {X.dtype}. Convert it first.")
    X = X.tocsr()
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    if 0 in X.shape:
        raise InputError(f"X must not be empty; got shape {X.shape}, which holds no numbers. Pass some rows.")
    _check_finite(X.data, X.shape)
    return in_range(X)


def is_plain(X: Any, n_features: int | None = None) -> bool:
    """Whether scikit-learn would return X as it is: its checks take longer than the prediction of a row.

    ``n_features`` are those of the fit; None means a fit, which takes two rows at least.
    """
    if type(X) is not np.ndarray or X.dtype not in (np.float64, np.float32) or X.ndim != 2 or 0 in X.shape:
        return False
    if len(X) < 2 if n_features is None else X.shape[1] != n_features:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum()))


def in_range(X: Any) -> Any:
    """Return X, in double precision if it has single precision and squares of its entries would overflow or vanish."""
    if getattr(X, "dtype", None) != np.float32:
        return X
    entries = X.data if is_sparse(X) else X
    largest = max(float(entries.max(initial=0.0)), -float(entries.min(initial=0.0)))
    return X if largest == 0.0 or 1.0 / SINGLE_RANGE <= largest <= SINGLE_RANGE else X.astype(np.float64)


def _check_finite(values: Any, shape: tuple[int, ...]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return
    bad = ~np.isfinite(values)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"X contains NaN or infinity: {int(bad.sum())} of the values of an array of shape {shape}, the first "
            f"({values[first]}) at {first}. Impute or drop them first."
        )


def _innermost(kernel: Kernel) -> Kernel:
    while isinstance(kernel, Normalized | Scaled | FromDistances | DoubleCentred):
        kernel = kernel.kernel if isinstance(kernel, Normalized | Scaled) else kernel.distance
    return kernel


def off_sphere(X: Any) -> int:
    """The number of rows of X whose length is not 1; 0 if the objects are no vectors."""
    if not is_vectors(X):
        return 0
    if isinstance(X, RowPieces):
        return X.survey.off_sphere
    with np.errstate(over="ignore", under="ignore"):
        squares = np.asarray(X.multiply(X).sum(1)).ravel() if is_sparse(X) else np.einsum("ij,ij->i", X, X)
        return int((np.abs(np.sqrt(squares) - 1.0) > SPHERE_TOLERANCE).sum())


def _warn_off_sphere(X: Any, kernel: Kernel) -> None:
    if off := off_sphere(X):
        warn(
            f"{kernel!r} is meant for rows of length 1, but {off} of {count_objects(X)} rows are not. Put "
            "krein.preprocessing.UnitSphere() before it, or see krein.preprocessing.paper_preprocessing(kernel)."
        )
