"""The smallest eigenvalue: Lanczos on any operator, Gershgorin's bound, and a certificate for a factorization.

In: an operator, or a factorization. Out: estimates with their errors (paper, Sec. 4.1). Plain Lanczos often
underestimates |lambda_min|, so its residual is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from krein.arrays import EPS, Array, seed_from, stream, strips
from krein.errors import InputError
from krein.factorization.core import DENSE_LIMIT, has_cholesky, is_dense, map_entries, to_dense
from krein.factorization.factorization import Factorization
from krein.progress import progress_bar

__all__ = ["Certificate", "GershgorinBound", "LanczosResult", "certify", "gershgorin", "lanczos"]

# Gershgorin's bound uses every row of a matrix of at most STREAMED_ROWS rows, and SAMPLED_ROWS rows of a larger one.
STREAMED_ROWS = 20_000
SAMPLED_ROWS = 2_000
# Rows are computed in strips of at most STRIP entries.
STRIP = 2**24


@dataclass(frozen=True, eq=False)
class LanczosResult:
    """The result of `lanczos`.

    Attributes
    ----------
    smallest, largest : float
        The smallest and largest Ritz value. An eigenvalue lies within the residual of each, but may not be the last.
    residual, residual_largest : float
        Residual norms of these two.
    shift : float
        What makes the matrix psd, max(0, residual - smallest).
    iterations : int
        Number of products.
    ritz_values : ndarray
        All Ritz values but the spurious ones, ascending.
    n_spurious : int
        Number of Ritz values that are artefacts of lost orthogonality; they are ignored.
    """

    smallest: float
    largest: float
    residual: float
    residual_largest: float
    iterations: int
    ritz_values: Array
    n_spurious: int

    @property
    def shift(self) -> float:
        """The shift that makes the matrix psd, with the residual added: max(0, residual - smallest)."""
        return max(0.0, self.residual - self.smallest)


def lanczos(operator: Any, iterations: int | None = None, random_state: Any = None, verbose: int = 0) -> LanczosResult:
    """Estimate the smallest and largest eigenvalue of a symmetric operator from products with it.

    Parameters
    ----------
    operator : array, sparse matrix, LinearOperator or Factorization, shape (n, n)
        Anything symmetric with ``shape`` and ``@``.
    iterations : int or None, default=None
        Number of products; None means 2 sqrt(n).
    random_state : int, RandomState, Generator or None, default=None
        Draws the starting vector.
    verbose : int, default=0
        Whether a progress bar is shown.

    Returns
    -------
    LanczosResult
        Both ends, their residuals, and the shift that makes the operator psd.

    Notes
    -----
    Vectors are not reorthogonalised, so only two are kept. This causes spurious Ritz values. After Cullum and
    Willoughby, a simple eigenvalue of the tridiagonal T that is also one of T without its first row and column is
    spurious, and ignored.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> found = krein.lanczos(np.diag(np.linspace(-1.0, 5.0, 200)), random_state=0)
    >>> abs(found.smallest + 1.0) <= found.residual
    True
    """
    n = _check_operator(operator)
    if iterations is not None and not (isinstance(iterations, int | np.integer) and iterations >= 1):
        raise InputError(f"iterations must be a positive integer or None for 2 sqrt(n); got {iterations!r}.")
    steps = min(n, math.ceil(2 * math.sqrt(n))) if iterations is None else int(iterations)
    vector = stream(seed_from(random_state), 0).standard_normal(n)
    vector /= np.linalg.norm(vector)
    previous, beta = np.zeros(n), 0.0
    alphas, betas = np.empty(steps), np.empty(steps)
    for j in progress_bar(range(steps), what="lanczos", verbose=verbose):
        product = np.asarray(operator @ vector)
        if product.dtype.kind not in "biuf":
            raise InputError(f"lanczos needs a real operator; its product is {product.dtype}.")
        image = np.array(product, dtype=np.float64)
        if image.shape != (n,):
            raise InputError(f"The operator times a vector of shape {(n,)} must have that shape; got {image.shape}.")
        mirrored, before = float(previous @ image), beta  # the same number if the operator is symmetric
        image -= beta * previous
        alphas[j] = vector @ image
        image -= alphas[j] * vector
        beta = betas[j] = float(scipy.linalg.norm(image, check_finite=False))
        if not math.isfinite(beta):
            raise InputError("The operator gave NaN or infinite values; Lanczos needs finite products.")
        size = max(np.abs(alphas[: j + 1]).max(), betas[: j + 1].max())
        if before > 1e-6 * size and abs(mirrored - before) > 1e-3 * size:  # a vector divided by less is rounding
            raise InputError(
                f"lanczos needs a symmetric operator; uᵀAv is {mirrored:.4g}, vᵀAu is {before:.4g}. Pass (A + Aᵀ) / 2."
            )
        if beta <= 10 * EPS * size:  # an invariant subspace
            betas[j], steps = 0.0, j + 1
            break
        previous, vector = vector, image / beta
    return _ritz(alphas[:steps], betas[:steps])


def _ritz(alphas: Array, betas: Array) -> LanczosResult:
    """Ritz values of T = tridiag(betas, alphas, betas), the spurious ones removed, with residuals of both ends."""
    try:
        values, vectors = scipy.linalg.eigh_tridiagonal(alphas, betas[:-1])
    except scipy.linalg.LinAlgError:  # LAPACK's quick way can fail on the many copies that lost orthogonality makes
        values, vectors = scipy.linalg.eigh_tridiagonal(alphas, betas[:-1], lapack_driver="stev")
    floor = len(values) * EPS * np.abs(values).max()  # what rounding leaves of a residual
    residuals = betas[-1] * np.abs(vectors[-1]) + floor  # |A x - theta x| of each Ritz pair
    genuine = np.ones(len(values), dtype=bool)
    if len(values) > 2:
        deflated = scipy.linalg.eigvalsh_tridiagonal(alphas[1:], betas[1:-1])
        simple = np.ones(len(values), dtype=bool)
        close = np.diff(values) <= floor
        simple[1:] &= ~close
        simple[:-1] &= ~close
        spot = np.clip(np.searchsorted(deflated, values), 1, len(deflated) - 1)
        gap = np.minimum(np.abs(deflated[spot] - values), np.abs(deflated[spot - 1] - values))
        # T and T without its first row share a value exactly where the start vector has no part in it; one that has a
        # part is an eigenvalue, however close the two come by rounding
        unseen = np.abs(vectors[0]) <= 1e-8
        genuine = ~(simple & unseen & (gap <= floor))
        genuine[[0, -1]] |= not genuine.any()
    found = np.flatnonzero(genuine)
    low, high = found[0], found[-1]
    return LanczosResult(
        smallest=float(values[low]),
        largest=float(values[high]),
        residual=float(residuals[low]),
        residual_largest=float(residuals[high]),
        iterations=len(alphas),
        ritz_values=values[genuine],
        n_spurious=int((~genuine).sum()),
    )


def _check_operator(operator: Any) -> int:
    shape = getattr(operator, "shape", None)
    if shape is None or not hasattr(operator, "__matmul__"):
        raise InputError(
            "lanczos needs something with a shape that multiplies by @ (an array, a sparse matrix, a LinearOperator, "
            f"a Factorization); got {type(operator).__name__}."
        )
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise InputError(f"lanczos needs a square operator with at least one row; got shape {tuple(shape)}.")
    return int(shape[0])


@dataclass(frozen=True)
class GershgorinBound:
    """The result of `gershgorin`.

    Attributes
    ----------
    lower : float
        No eigenvalue is below it.
    sampled : float
        The lowest disc among the rows that were used.
    n_rows : int
        Number of rows that were used.
    uncovered : float
        With 95 % confidence at most this share of all rows has a disc below ``sampled``; 0 if all rows were used.
    """

    lower: float
    sampled: float
    n_rows: int
    uncovered: float


def gershgorin(matrix: Any, n_rows: int | None = None, random_state: Any = None) -> GershgorinBound:
    """Bound the smallest eigenvalue by row sums (paper, Sec. 4.2): lambda >= min_i K_ii - sum_{j != i} |K_ij|.

    Parameters
    ----------
    matrix : Factorization, or an object with ``shape`` and ``rows(indices)``
        The matrix. Only a Factorization can be sampled.
    n_rows : int or None, default=None
        Number of rows that are used. None means all up to n = 20,000, which costs n² k operations, and 2,000 beyond.
    random_state : int, RandomState, Generator or None, default=None
        Draws the sample.

    Returns
    -------
    GershgorinBound
        If all rows are used, ``lower`` is Gershgorin's bound. Otherwise it is the weaker bound that follows from
        |K_ij| <= (|U| |M| |U|ᵀ)_ij, which costs one product and holds for all rows.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> f = krein.approximate(X, krein.RBF(gamma=0.5), n_blocks=2, rank=5, random_state=0).factorization
    >>> krein.gershgorin(f).lower <= f.smallest_eigenvalue()
    True
    """
    if not (hasattr(matrix, "shape") and hasattr(matrix, "rows")):
        raise InputError(f"gershgorin needs a matrix with shape and rows(indices); got {type(matrix).__name__}.")
    if n_rows is not None and not (isinstance(n_rows, int | np.integer) and n_rows >= 1):
        raise InputError(f"n_rows must be a positive integer or None for as many as are affordable; got {n_rows!r}.")
    n = matrix.shape[0]
    sampled = (n > STREAMED_ROWS) if n_rows is None else n_rows < n
    if sampled and not isinstance(matrix, Factorization):
        raise InputError(
            f"A sampled Gershgorin bound ({n_rows or SAMPLED_ROWS} of {n} rows) needs a Factorization; got "
            f"{type(matrix).__name__}. Pass n_rows={n} to use every row."
        )
    count = min(n, SAMPLED_ROWS if n_rows is None else n_rows) if sampled else n
    rows = np.sort(stream(seed_from(random_state), 0).choice(n, count, replace=False)) if sampled else np.arange(n)
    lowest = math.inf
    for part in strips(count, n, STRIP):
        wanted = rows[part]
        strip = matrix.rows(wanted)
        centre = strip[np.arange(len(wanted)), wanted]
        lowest = min(lowest, float((centre + np.abs(centre) - np.abs(strip).sum(1)).min()))
    if not sampled:
        return GershgorinBound(lowest, lowest, count, 0.0)
    return GershgorinBound(_absolute_bound(matrix), lowest, count, min(1.0, math.log(1 / 0.05) / count))


def _absolute_bound(f: Factorization) -> float:
    """Gershgorin's bound with every |K_ij| replaced by its upper bound (|U| |M| |U|ᵀ)_ij + |shift| [i = j]."""
    sizes = map_entries(f.core, np.abs)
    columns = np.zeros(f.rank)  # |U|ᵀ 1
    for i, (_, cols) in enumerate(f.spans):
        for _, U in f.bases.tiles(i):
            columns[cols] += np.abs(U).sum(0)
    weights = sizes @ columns
    total = np.full(f.shape[0], abs(f.shift))
    for i, (_, cols) in enumerate(f.spans):
        for rows, U in f.bases.tiles(i):
            total[rows] += np.abs(U) @ weights[cols]
    centre = f.diagonal()
    return float((centre + np.abs(centre) - total).min())


@dataclass(frozen=True)
class Certificate:
    """The result of `certify`; true if the matrix is psd.

    Attributes
    ----------
    psd : bool
        Whether the matrix is psd up to rounding.
    margin : float
        The smallest eigenvalue, or a lower bound of it.
    tolerance : float
        Eigenvalues above -tolerance count as rounding.
    rigorous : bool
        False if the core is too large to factor, so that only a Ritz value minus its residual is known.
    """

    psd: bool
    margin: float
    tolerance: float
    rigorous: bool

    def __bool__(self) -> bool:
        return self.psd


def certify(f: Factorization) -> Certificate:
    """Decide whether a factorization is psd up to rounding.

    U is orthonormal, so f is psd exactly if M + shift I is and, for r < n, shift >= 0. The proof is a Cholesky
    factorization of M + (shift + tolerance) I with tolerance = 10 r eps (|M| + |shift|), eps the rounding unit. This
    costs O(r³) operations. Large block-sparse cores are decided by block Gershgorin or by a Rayleigh quotient if
    possible, and otherwise by a sparse Cholesky factorization. If the core is too large to factor, the answer rests on
    a Lanczos estimate and ``rigorous`` is False.

    Parameters
    ----------
    f : Factorization
        The matrix.

    Returns
    -------
    Certificate
        Whether the matrix is psd, with the smallest eigenvalue or a bound.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> f = krein.Factorization.from_blocks([np.eye(2)], np.diag([3.0, -1.0]), order=np.arange(2))
    >>> bool(krein.certify(f)), bool(krein.certify(krein.correct(f, "shift")))
    (False, True)
    """
    if not isinstance(f, Factorization):
        raise InputError(f"certify needs a Factorization; got {type(f).__name__}. Use lanczos for other operators.")
    _check_orthonormal(f)
    ends = f.ends()
    norm = max(abs(ends.smallest - f.shift), abs(ends.largest - f.shift)) + abs(f.shift)
    tolerance = 10 * max(1, f.rank) * EPS * norm
    outside = f.shift >= -tolerance or f.rank == f.shape[0]
    if ends.exact:
        proven = ends.smallest >= -tolerance and (not is_dense(f.core) or _has_cholesky(f, tolerance))
        return Certificate(bool(outside and proven), ends.smallest, tolerance, rigorous=True)
    if ends.lower_bound >= -tolerance:
        return Certificate(bool(outside), ends.lower_bound, tolerance, rigorous=True)
    if ends.smallest < -tolerance:  # a Rayleigh quotient below zero is proof enough
        return Certificate(False, ends.smallest, tolerance, rigorous=True)
    low = ends.smallest - ends.residual
    if f.rank <= DENSE_LIMIT or (not is_dense(f.core) and f.core.can_factor):
        proven = _has_cholesky(f, tolerance)  # a proof, whatever Lanczos found
        margin = max(low, -tolerance) if proven else min(low, -tolerance)
        return Certificate(bool(outside and proven), margin, tolerance, rigorous=True)
    return Certificate(bool(outside and low >= -tolerance), low, tolerance, rigorous=False)


def _check_orthonormal(f: Factorization) -> None:
    """Refuse bases that are not orthonormal: UᵀU z = z is checked for a random z, with n k operations."""
    z = stream(0, 0).standard_normal(f.rank)
    gap = float(np.linalg.norm(f.project(f.lift(z)) - z)) if f.rank else 0.0
    if not gap <= 1e-6 * float(np.linalg.norm(z)):
        raise InputError(
            f"A factorization has its core's spectrum only if its bases are orthonormal; |UᵀU z - z| is {gap:.3g} "
            "for a random z. Use Factorization.from_links, which makes them so."
        )


def _has_cholesky(f: Factorization, tolerance: float) -> bool:
    move = f.shift + (tolerance or np.finfo(float).tiny)  # a zero core has a zero tolerance, and is psd
    if not is_dense(f.core) and f.core.can_factor:
        return f.core.cholesky(move) is not None
    return has_cholesky(to_dense(f.core), move)
