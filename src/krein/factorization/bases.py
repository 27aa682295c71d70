"""One block of the bases: how it is stored, its products, and what makes its columns orthonormal.

An orthonormal U_i may be stored in fewer bytes, as rounded numbers B_i and a small map A_i with U_i ~ B_i A_i. Rounded
columns are not orthonormal. The map restores this: B_i A_i is orthonormal to the rounding of float64 for every storage
type, so the spectrum of the core stays that of the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from krein.arrays import Array, strips
from krein.errors import one_of

__all__ = [
    "STORAGE", "compress", "dtype_name", "gram", "inverse_triangle", "is_ill_conditioned", "orthonormal_columns",
    "orthonormalise", "product", "restoring_map", "rounded_product", "tiles", "transposed_product",
]  # fmt: skip

STORAGE = ("float64", "float32", "float16", "int8")
# Bases are converted to float64 in tiles of TILE entries, which fit into the cache of a processor core.
TILE = 2**17
# A tile has at least TILE_ROWS rows; with fewer, products would read a large factor too often.
TILE_ROWS = 512
# If a Gram matrix has a larger condition number than the square of this one, the product itself is looked at.
WELL_CONDITIONED = 1e3
# Nonzero rows are selected before a product if at most one row in SPARSE is nonzero.
SPARSE = 4


# -- products with what is stored of one block ------------------------------------------------------------------------


def tiles(stored: Any) -> Iterator[tuple[slice, Array]]:
    """Yield (rows, those rows in float64), so that no copy or product is larger than a tile."""
    step = max(TILE_ROWS, TILE // max(1, stored.shape[1]))
    for start in range(0, len(stored), step):
        rows = slice(start, min(start + step, len(stored)))
        yield rows, stored[rows].astype(np.float64, copy=False)


def product(stored: Any, w: Array) -> Array:
    """B w in float64 for w of shape (columns,) or (columns, p); what fits a tile in one go, as blocks can be many."""
    if stored.size <= TILE:
        return np.asarray(stored.astype(np.float64, copy=False) @ w)
    out = np.empty((len(stored), *w.shape[1:]))
    for rows, part in tiles(stored):
        out[rows] = part @ w
    return out


def transposed_product(stored: Any, x: Array) -> Array:
    """Bᵀx in float64 for x of shape (rows,) or (rows, p); rows where a vector is zero cost nothing if they are many."""
    if x.ndim == 1 and SPARSE * np.count_nonzero(x) < len(x):
        used = np.flatnonzero(x)
        stored, x = stored[used], x[used]
    if stored.size <= TILE:
        return np.asarray(stored.astype(np.float64, copy=False).T @ x)  # converted as it lies, not transposed
    out = np.zeros((stored.shape[1], *x.shape[1:]))
    for rows, part in tiles(stored):
        out += part.T @ x[rows]
    return out


def orthonormalise(Q: Array) -> tuple[Array, Array]:
    """Return (U, R) with Q = U R and U orthonormal, (n_i, min(n_i, k_i)); overwrites Q where it is Fortran-ordered."""
    if 0 in Q.shape:
        return Q[:, :0], np.zeros((0, Q.shape[1]))
    U, R = scipy.linalg.qr(Q, mode="economic", overwrite_a=Q.flags.f_contiguous and Q.flags.owndata, check_finite=False)
    return U, R


def orthonormal_columns(Q: Array) -> tuple[Array, Array]:
    """Return (U, A) with U = Q A orthonormal up to the rounding of Q's type, for Q of full rank; U overwrites Q.

    The products are taken in float64, so that rows of U are the same to rounding wherever they are computed.
    """
    try:
        A = inverse_triangle(gram(Q))
        if is_ill_conditioned(A):
            A = A @ inverse_triangle(gram_of_product(Q, A))
    except scipy.linalg.LinAlgError:  # rows that are longer than others by 1e7: the Gram matrix has lost the rest
        A = scipy.linalg.solve_triangular(orthonormalise(Q.astype(np.float64))[1], np.eye(Q.shape[1]))
    for rows, part in tiles(Q):
        Q[rows] = part @ A
    return Q, A


def inverse_triangle(G: Array) -> Array:
    """The upper triangular A with Aᵀ G A = I, for a positive definite G."""
    if len(G) == 0:
        return G
    R = scipy.linalg.cholesky((G + G.T) / 2.0, check_finite=False)
    return np.asarray(scipy.linalg.solve_triangular(R, np.eye(len(G)), check_finite=False))


def is_ill_conditioned(A: Array) -> bool:
    """Whether squaring lost digits, so that a Gram matrix of the product itself is needed."""
    return bool(len(A)) and float(np.linalg.cond(A)) > WELL_CONDITIONED


def gram_of_product(stored: Any, A: Array) -> Array:
    """(B A)ᵀ(B A) from the products themselves."""
    total = np.zeros((A.shape[1],) * 2)
    for _, part in tiles(stored):
        U = part @ A
        total += U.T @ U
    return total


def rounded_product(stored: Array, A: Array) -> Array:
    """B A, computed in float64 and stored in the type of B."""
    out = np.empty((len(stored), A.shape[1]), dtype=stored.dtype)
    for rows, part in tiles(stored):
        out[rows] = part @ A
    return out


def gram(stored: Any, weights: Array | None = None) -> Array:
    """BᵀDB in float64, D = diag(weights) or the identity; rows of weight zero cost nothing where they are most."""
    if weights is not None and 2 * np.count_nonzero(weights) < len(weights):
        used = np.flatnonzero(weights)
        stored, weights = stored[used], weights[used]
    roots = None if weights is None or weights.min(initial=0.0) < 0.0 else np.sqrt(weights)  # BᵀB is half the work
    total = np.zeros((stored.shape[1],) * 2)
    for rows, part in tiles(stored):
        if roots is not None:
            part = part * roots[rows, None]
        total += part.T @ (part if weights is None or roots is not None else part * weights[rows, None])
    return total


# -- storage in fewer bytes --------------------------------------------------------------------------------------------


class _Small(NamedTuple):
    """How a small type is used."""

    full: float  # the stored value of a column's largest entry
    finer: float  # what a rounding error is multiplied by before it is stored in its turn
    target: float  # relative Frobenius error that rounding may add before columns get a second number


_SMALL = {"int8": _Small(127.0, 254.0, 0.003), "float16": _Small(1.0, 4096.0, 0.0001)}


def dtype_name(dtype: Any) -> str:
    """Return the storage type's name, or say which there are."""
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    one_of("dtype", name, STORAGE)
    return str(name)


def orthonormal_map(stored: Any, combine: Array) -> Array:
    """Return A (columns, k) such that ``stored @ A`` is orthonormal and spans what ``stored @ combine`` does.

    The inverse square root of the Gram matrix: for a nearly orthonormal input nearly the identity, so nothing turns.
    A direction that rounding shrank to a hundredth is rounding error, and left out. The second pass sees the product
    itself, and takes out what the first pass's condition number left.
    """
    G = combine.T @ gram(stored) @ combine
    first = combine @ _inverse_root(G)
    if _is_near_identity(G):
        return np.asarray(first)  # the condition number is 1: nothing was left
    return np.asarray(first @ _inverse_root(gram_of_product(stored, first)))


def restoring_map(G: Array) -> tuple[Array, Array]:
    """`compress` of a B that is orthonormal but for the rounding of float32, from its Gram matrix: A and (B A)ᵀ B."""
    A = _inverse_root(G)
    return A, A.T @ G


def _is_near_identity(G: Array) -> bool:
    return float(np.linalg.norm(G - np.eye(len(G)))) < 1e-5


def _inverse_root(G: Array) -> Array:
    """G^(-1/2), by its series where G is the identity to rounding; without the directions that G lost otherwise."""
    rest = np.eye(len(G)) - G
    if _is_near_identity(G):  # the first term left out is 5/16 of its cube
        return np.asarray(np.eye(len(G)) + rest / 2.0 + 0.375 * (rest @ rest))
    values, vectors = np.linalg.eigh(G)
    keep = values > 1e-4 * values.max(initial=0.0)
    return np.asarray(
        (vectors / np.sqrt(values)) @ vectors.T if keep.all() else vectors[:, keep] / np.sqrt(values[keep])
    )


def compress(basis: Array, name: str, weights: Array) -> tuple[Any, Array, Array]:
    """Return (B, A, T): what to store, the map with B A orthonormal, and T = (B A)ᵀ U, which carries the core over.

    ``weights`` is W (k, k) with |U W|_F the norm of the rows of K that this basis carries: U is first turned so that
    W's leading directions are its first columns. Columns of small types have a scale each; where rounding would still
    cost more than the type's target, relative to that norm, the costliest columns get a second number, their residual.
    """
    k = basis.shape[1]
    if name == "float64" or k == 0:
        return basis.astype(name, copy=False), np.eye(k), np.eye(k)
    stored: Any
    combine: Array
    if name == "float32":
        stored, combine = basis.astype(np.float32, copy=False), np.eye(k)
    else:
        turn, strength, _ = np.linalg.svd(weights)  # (k, k), (k,)
        peak = np.zeros(k)
        for rows in strips(len(basis), basis.shape[1], TILE):
            np.maximum(peak, np.abs(basis[rows] @ turn).max(0), out=peak)
        peak[peak == 0.0] = 1.0
        stored, combine = _rounded(basis, turn, peak, strength, name)
    outward = orthonormal_map(stored, combine)
    overlap = np.zeros((stored.shape[1], k))
    for rows, part in tiles(stored):
        overlap += part.T @ basis[rows]
    return stored, outward, outward.T @ overlap


def _rounded(basis: Array, turn: Array, peak: Array, strength: Array, name: str) -> tuple[Any, Array]:
    """Columns with a scale each, and a second number for those whose rounding error costs most: what it left over."""
    kind = _SMALL[name]
    step = peak / kind.full
    coarse = np.empty(basis.shape, dtype=name)
    lost = np.zeros(len(peak))  # squared norm of each column's rounding error
    for rows in strips(len(basis), basis.shape[1], TILE):
        exact = (basis[rows] @ turn) / step
        coarse[rows] = np.rint(exact) if name == "int8" else exact
        lost += ((exact - coarse[rows]) ** 2).sum(0)
    # both sides of U M Uᵀ are rounded, so the squared error is twice what one side costs
    share = strength**2 / max(float((strength**2).sum()), np.finfo(float).tiny)
    cost = 2.0 * lost * step**2 * share
    worst_first = np.argsort(-cost, kind="stable")
    remaining = cost.sum() - np.concatenate([[0.0], np.cumsum(cost[worst_first])])
    remaining[-1] = 0.0
    doubled = np.sort(worst_first[: int(np.argmax(remaining <= kind.target**2))])
    if len(doubled) == 0:
        return coarse, np.diag(step)
    stored = np.empty((len(basis), len(peak) + len(doubled)), dtype=name)
    stored[:, : len(peak)] = coarse
    for rows in strips(len(basis), basis.shape[1], TILE):
        left_over = (basis[rows] @ turn[:, doubled]) / step[doubled] - coarse[rows][:, doubled]
        stored[rows, len(peak) :] = np.rint(left_over * kind.finer) if name == "int8" else left_over * kind.finer
    return stored, np.concatenate([np.diag(step), np.diag(step)[doubled] / kind.finer])
