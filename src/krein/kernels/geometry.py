"""Inner products and distances between two sets of vectors: the arithmetic the vector kernels share.

In: two 2-D ndarrays or CSR matrices. Out: a dense array (len(a), len(b)) in their float type. Written so that neither
the scale of the data nor its offset costs digits: rows are centred and scaled before anything is squared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import manhattan_distances

from krein.arrays import Array
from krein.errors import InputError
from krein.kernels.objects import is_sparse

__all__ = ["as_vectors", "inner", "manhattan", "pair", "scale_gamma", "squared_distances", "squared_norms", "unit_rows"]

# |a|² + |b|² - 2<a, b> is off by about eps (|a|² + |b|²); where that exceeds this, differences are squared instead
EXPANSION_ERROR = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-8}
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


def pair(A: Any, B: Any, asker: object) -> tuple[Any, Any]:
    """Return both sides as vectors of one float type; the very same object twice where B is None or A."""
    a = as_vectors(A, asker)
    if B is None or B is A:
        return a, a
    b = as_vectors(B, asker)
    if a.shape[1] != b.shape[1]:
        raise InputError(
            f"{asker!r} compares vectors of one length; got {a.shape[1]} and {b.shape[1]} features. Use the same "
            "columns."
        )
    if a.dtype != b.dtype:
        a, b = a.astype(np.float64), b.astype(np.float64)
    return a, b


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


def squared_distances(a: Any, b: Any, scale: float = 1.0) -> Array:
    """Return |scale (a_i - b_j)|² >= 0, right to EXPANSION_ERROR in absolute terms.

    One matrix product where the rows lie near their mean on this scale, as they nearly always do. Where they do not,
    the expansion would cancel: float32 is then done in float64, and float64 by differences (two or three times slower).
    Sparse rows are not centred, and float64 sparse rows have no second way.
    """
    dtype, dense = a.dtype, not (is_sparse(a) or is_sparse(b))
    if dtype == np.float32 and not 1e-30 < scale < 1e30:
        return squared_distances(*_double(a, b), scale).astype(np.float32)
    given_a, given_b = a, b
    if dense and len(b):
        centre = b.mean(axis=0, dtype=np.float64).astype(dtype)  # float32 sums would drift
        a = (given_a - centre) * scale
        b = a if given_b is given_a else (given_b - centre) * scale
    else:
        a = given_a * scale
        b = a if given_b is given_a else given_b * scale
    norms_a = squared_norms(a)
    norms_b = norms_a if b is a else squared_norms(b)
    reach = float(norms_a.max(initial=0.0)) + float(norms_b.max(initial=0.0))
    if not reach * np.finfo(dtype).eps <= EXPANSION_ERROR[dtype]:  # "not <=" so that inf and nan come here too
        if dtype == np.float32:
            return squared_distances(*_double(given_a, given_b), scale).astype(np.float32)
        if dense:
            return np.asarray(cdist(a, b, "sqeuclidean"))
    if dense:  # both lengths as two more features, so that the product is all of it: each pass over it costs as much
        squares: Array = _beside(-2 * a, norms_a, 1) @ _beside(b, 1, norms_b).T
    else:
        squares = inner(a, b)
        squares *= -2
        with np.errstate(invalid="ignore"):
            squares += norms_a[:, None]
            squares += norms_b
    return np.abs(squares, out=squares)  # below zero by rounding alone


def _beside(a: Array, first: Any, second: Any) -> Array:
    """``a`` with two more columns."""
    out = np.empty((a.shape[0], a.shape[1] + 2), dtype=a.dtype)
    out[:, :-2], out[:, -2], out[:, -1] = a, first, second
    return out


def manhattan(a: Any, b: Any) -> Array:
    """Return |a_i - b_j|_1, summed in float64 from the differences, in the vectors' float type."""
    if is_sparse(a) or is_sparse(b):
        distances = manhattan_distances(sparse.csr_matrix(a), sparse.csr_matrix(b))
    else:
        distances = cdist(a, b, "cityblock")
    return np.asarray(distances, dtype=a.dtype)


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
    if not (np.isfinite(gamma) and gamma > 0):
        raise InputError(
            f"{asker!r} binds gamma to 1 / (n_features * variance of X), which must be a positive finite number; here "
            f"it is {gamma} "
            f"(largest entry {top:.3g}, {d} features). Rescale the data, for instance with "
            "sklearn.preprocessing.StandardScaler, or give gamma."
        )
    return gamma


def _double(a: Any, b: Any) -> tuple[Any, Any]:
    wide = a.astype(np.float64)
    return wide, wide if b is a else b.astype(np.float64)


def _row_of_entry(a: Any) -> Any:
    return np.repeat(np.arange(a.shape[0]), np.diff(a.indptr))
