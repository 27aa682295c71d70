"""Collections of objects: what a kernel compares.

Vectors are the rows of a 2-D ndarray, of a SciPy sparse matrix, or `RowPieces` that lie elsewhere. Rows of mixed
columns are `MixedRows`. Other objects (strings, graphs, indices) are the items of a 1-D ndarray, a list or a
tuple. The functions here count objects, select them, and tell vectors from others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
from scipy import sparse

from krein.arrays import Indices
from krein.errors import InputError, KernelError
from krein.kernels.mixed_rows import MixedRows
from krein.pieces.rows import RowPieces

__all__ = ["compare", "count_objects", "is_sparse", "is_vectors", "object_bytes", "only", "precise", "rows", "take"]


def is_sparse(X: Any) -> bool:
    """Return whether X is a SciPy sparse matrix or array, of whatever format."""
    return not isinstance(X, np.ndarray) and bool(sparse.issparse(X))  # the quick test comes first


def count_objects(X: Any) -> int:
    """Return how many objects X holds: rows of an array or sparse matrix, items of a list or tuple."""
    if is_sparse(X) or isinstance(X, np.ndarray | RowPieces):
        if len(X.shape) > 0:
            return int(X.shape[0])
    elif isinstance(X, (list, tuple, MixedRows)):
        return len(X)
    raise _not_a_collection(X)


def object_bytes(objects: Any) -> int:
    """Bytes of a collection of objects. For lists, bytes of the items without what these refer to."""
    if is_sparse(objects):
        return int(objects.data.nbytes + objects.indices.nbytes + objects.indptr.nbytes)
    return int(objects.nbytes) if hasattr(objects, "nbytes") else sum(map(sys.getsizeof, objects))


def take(X: Any, indices: Any) -> Any:
    """Return the objects of X at ``indices`` (integers), in that order, as the same kind of collection."""
    if isinstance(X, (np.ndarray, MixedRows)):
        return X[np.asarray(indices)]
    if isinstance(X, RowPieces):
        return X.take(indices)
    if is_sparse(X):
        return X.tocsr()[np.asarray(indices)]
    if isinstance(X, (list, tuple)):
        chosen = [X[int(i)] for i in indices]
        return chosen if isinstance(X, list) else tuple(chosen)
    raise _not_a_collection(X)


def only(X: Any, indices: Indices) -> Any:
    """Return some objects of X, ascending, where they are: rows in pieces stay in pieces."""
    return X.only(indices) if isinstance(X, RowPieces) else take(X, indices)


def rows(X: Any, part: slice) -> Any:
    """Return the run ``part`` of X's objects; a view where X is an ndarray, so that streaming copies nothing."""
    if isinstance(X, RowPieces):
        return X.take(np.arange(*part.indices(X.shape[0])))
    return X.tocsr()[part] if is_sparse(X) else X[part]


def precise(objects: Any) -> Any:
    """Vectors in float64; other objects as they are."""
    if (isinstance(objects, np.ndarray) or is_sparse(objects)) and objects.dtype == np.float32:
        return objects.astype(np.float64)
    return objects


def is_vectors(X: Any) -> bool:
    """Return whether X's objects are vectors: a 2-D array or a sparse matrix of real numbers."""
    if isinstance(X, np.ndarray | RowPieces) or is_sparse(X):
        return len(X.shape) == 2 and X.dtype.kind in "biuf"
    return False


def compare(function: Callable[[Any, Any], Any], A: Any, B: Any) -> Any:
    """Return function(A, B) of a user's function, which cannot change A and B: it is given read-only views of arrays.

    Compiled functions may ask for arrays that can be written to, and get copies. A function that changes what it is
    given is refused.
    """
    left = _read_only(A)
    given = (left, left if A is B else _read_only(B))
    before = [tuple(X) if isinstance(X, list) else None for X in given]
    try:
        values = function(*given)
        changed = any(items is not None and not _same_items(items, X) for items, X in zip(before, given, strict=True))
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        copies = deepcopy(given)
        values = function(*copies)
        changed = not all(map(_equal, copies, given))
    if changed:
        owner = getattr(function, "__self__", function)
        name = getattr(owner, "__qualname__", repr(owner))
        raise KernelError(f"{name} changes the collections it is given. Let it work on copies of them.")
    return values


def _read_only(X: Any) -> Any:
    if isinstance(X, np.ndarray):
        if X.flags.writeable:
            X = X.view()
            X.flags.writeable = False
    elif type(X) in (list, tuple):
        X = type(X)(map(_read_only, X))
    return X


def _same_items(before: tuple[Any, ...], after: Any) -> bool:
    return len(before) == len(after) and all(x is y for x, y in zip(before, after, strict=True))


def _equal(X: Any, Y: Any) -> bool:
    if isinstance(X, list | tuple):
        return len(X) == len(Y) and all(map(_equal, X, Y))
    return not isinstance(X, np.ndarray) or X.dtype.kind == "O" or X.tobytes() == Y.tobytes()


def _not_a_collection(X: Any) -> InputError:
    return InputError(
        "A collection of objects must be an ndarray, a SciPy sparse matrix, a list or a tuple; got "
        f"{type(X).__name__}. "
        "Convert it first, for instance with numpy.asarray or list."
    )
