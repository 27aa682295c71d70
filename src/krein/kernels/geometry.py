"""Rows of numbers: their products, norms and lengths, for dense and sparse rows alike.

In: 2-D ndarrays or CSR matrices of float32 or float64. Out: dense arrays of their float type. What scale the rows have
costs no digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krein.arrays import Array
from krein.errors import InputError
from krein.kernels.collections import is_sparse

__all__ = ["as_vectors", "inner", "scale_gamma", "squared_norms", "unit_rows"]

CHUNK = 2**20  # entries held at once while the variance is summed


def as_vectors(X: Any, asker: object) -> Any:
    """Return X as a 2-D float array or CSR matrix: float32 stays, everything else becomes float64."""
    if is_sparse(X):
        X = X.tocsr()
        if not X.has_canonical_format:  # duplicate entries add up, so nothing may square them one by one
            X = X.copy()
            X.sum_duplicates()
    else:
        X = np.asarray(X)
    if X.ndim != 2 or X.dtype.kind not in "biufO":
        raise InputError(
            f"{asker!r} compares vectors: it needs a 2-D array or a sparse matrix of numbers, one row per object; got "
            f"{X.dtype} values of shape {X.shape}. Reshape them, or pass a kernel for such objects: any callable k(A, "
            "B) -> array."
        )
    if X.dtype in (np.float32, np.float64):
        return X
    try:
        return X.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{asker!r} compares vectors of numbers, but {error}. Encode the values as numbers first."
        ) from error


def inner(a: Any, b: Any) -> Array:
    """Return <a_i, b_j>, dense; what overflows becomes inf and is left to the caller's check of finite values."""
    with np.errstate(over="ignore", invalid="ignore"):
        products = a @ b.T
    return products.toarray() if is_sparse(products) else np.asarray(products)


def squared_norms(a: Any) -> Array:
    """Return |a_i|², shape (len(a),)."""
    with np.errstate(over="ignore"):
        if is_sparse(a):
            return np.bincount(_row_of_entry(a), weights=np.square(a.data), minlength=a.shape[0]).astype(a.dtype)
        return np.asarray(np.einsum("ij,ij->i", a, a))


def unit_rows(a: Any) -> tuple[Any, Array]:
    """Return the rows of a divided by their lengths, and the lengths; zero rows stay zero.

    Each row is divided by its largest entry first, so no scale overflows or vanishes when squared.
    """
    if is_sparse(a):
        row = _row_of_entry(a)
        top = np.zeros(a.shape[0], dtype=a.dtype)
        np.maximum.at(top, row, np.abs(a.data))
        top[top == 0] = 1
        data = a.data / top[row]
        length = np.sqrt(np.bincount(row, weights=np.square(data), minlength=a.shape[0])).astype(a.dtype)
        safe = np.where(length > 0, length, 1)
        units = type(a)((data / safe[row], a.indices, a.indptr), shape=a.shape)
    else:
        top = np.abs(a).max(axis=1, initial=0)
        top[top == 0] = 1
        units = a / top[:, None]
        length = np.sqrt(squared_norms(units))
        units /= np.where(length > 0, length, 1)[:, None]
    with np.errstate(over="ignore"):
        return units, top * length


def scale_gamma(X: Any, asker: object) -> float:
    """Return 1 / (d var X) over all entries, scikit-learn's gamma="scale"; 1 where all entries are equal, as there.

    Two passes in chunks, over X divided by its largest entry: nothing overflows on the way, only the result can.
    """
    X = as_vectors(X, asker)
    n, d = X.shape
    if n == 0 or d == 0:
        raise InputError(
            f"{asker!r} binds gamma to the data and needs at least one row and one column; got shape {X.shape}."
        )
    entries = X.data if is_sparse(X) else X
    step = max(1, CHUNK // d) if entries.ndim == 2 else CHUNK
    parts = [slice(start, start + step) for start in range(0, len(entries), step)]
    top = max((float(np.abs(entries[part]).max()) for part in parts), default=0.0)
    if not np.isfinite(top):
        raise InputError(
            f"{asker!r} binds gamma to the data, which holds NaN or infinite values. Impute or drop them first."
        )
    if top == 0.0:
        return 1.0
    zeros = n * d - entries.size  # entries a sparse matrix does not store
    mean = sum(float(np.sum(entries[part].astype(np.float64) / top)) for part in parts) / (n * d)
    squares = sum(float(np.sum(np.square(entries[part].astype(np.float64) / top - mean))) for part in parts)
    variance = (squares + zeros * mean * mean) / (n * d)  # of X / top
    if variance == 0.0:
        return 1.0
    with np.errstate(over="ignore", under="ignore"):
        gamma = float(np.square(np.reciprocal(top)) / (d * variance))
    if not np.finfo(float).tiny <= gamma < np.inf:  # smaller numbers have few digits
        raise InputError(
            f"{asker!r} binds gamma to 1 / (n_features * variance of X), which must be a finite number of at least "
            f"2.3e-308; here it is {gamma} "
            f"(largest entry {top:.3g}, {d} features). Rescale the data, for instance with "
            "sklearn.preprocessing.StandardScaler, or give gamma."
        )
    return gamma


def _row_of_entry(a: Any) -> Any:
    return np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))
