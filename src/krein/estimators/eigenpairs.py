"""A symmetric matrix or operator in, its leading eigenpairs, or the number of its negative eigenvalues, out.

`leading_of_matrix` is for a dense matrix, `leading` for an operator such as a block-sparse core, centred or not. Both
use LAPACK for few rows or many pairs. Else they use Lanczos iteration (ARPACK), which needs products only. `inertia`
counts negative eigenvalues of a dense matrix without computing the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg as spla
from scipy.linalg import blas, lapack

from krein.arrays import EPS, Array, stream
from krein.errors import InputError, one_of, whole_number
from krein.factorization.core import DENSE_LIMIT, SMALL

__all__ = [
    "Inertia", "Pairs", "Search", "inertia", "leading", "leading_of_matrix", "product_with",
    "smallest_eigenvalue", "verified_lanczos",
]  # fmt: skip

SOLVERS = ("auto", "dense", "arpack", "randomized")
# Measured on RBF kernel matrices: Lanczos is quicker than LAPACK above LANCZOS_ROWS rows where at most one eigenpair in
# LANCZOS_SHARE is wanted, and LAPACK's driver for some eigenpairs is quicker than that for all up to one in
# SUBSET_SHARE.
LANCZOS_ROWS = 300
LANCZOS_SHARE = 16
SUBSET_SHARE = 4
# Lanczos gives up after RESTARTS restarts, or one per ROWS_PER_RESTART rows: half the cost of LAPACK.
RESTARTS = 8
ROWS_PER_RESTART = 200
# A missed eigenpair is searched for in CHECK_STEPS Lanczos steps.
CHECK_STEPS = 12
# Up to SMALL_MATRIX rows all eigenvalues take no longer than a factorization and an iteration.
SMALL_MATRIX = 300


@dataclass(frozen=True)
class Search:
    """How eigenpairs are looked for; the names and meanings are scikit-learn's."""

    solver: str = "auto"
    tol: float = 0.0
    max_iter: int | None = None
    power: int | str = "auto"
    seed: int = 0

    def check(self) -> None:
        """Refuse what no solver understands."""
        one_of("eigen_solver", self.solver, SOLVERS)
        if not (isinstance(self.tol, int | float | np.number) and 0.0 <= self.tol < np.inf):
            raise InputError(f"tol must be a number of at least 0; got {self.tol!r}.")
        if self.max_iter is not None:
            whole_number("max_iter", self.max_iter, 1)
        if self.power != "auto":
            whole_number("iterated_power", self.power, 0, ', or "auto"')


@dataclass(frozen=True, eq=False)
class Pairs:
    """Eigenvalues, descending, and orthonormal eigenvectors, one column each."""

    values: Array  # (p,)
    vectors: Array  # (r, p)


def leading(
    product: Callable[[Array], Array], dense: Callable[[], Array], r: int, wanted: int, search: Search
) -> Pairs:
    """The ``wanted`` largest eigenvalues of x -> A x on r-vectors, with vectors; ``dense`` gives A where it has to."""
    wanted = min(wanted, r)
    solver = search.solver
    if solver == "auto":
        solver = "dense" if r <= SMALL or (10 * wanted >= r and r <= DENSE_LIMIT) else "arpack"
    if wanted == 0:
        return Pairs(np.empty(0), np.empty((r, 0)))
    found = None
    if solver == "arpack" and wanted < r:
        found = _lanczos(product, r, wanted, search)
    elif solver == "randomized":
        found = _subspace(product, r, wanted, search)
    if found is None:
        if r > DENSE_LIMIT:
            raise InputError(
                f"The {wanted} leading eigenvectors of a core of {r} rows were not found by Lanczos iteration, and "
                f"dense algebra is kept to {DENSE_LIMIT}. Ask for fewer components or blocks, or a larger tol."
            )
        everything = np.linalg.eigh(dense())  # asked for some, LAPACK may return none where many are nearly equal
        found = everything[0][r - wanted :], everything[1][:, r - wanted :]
    return _descending(*found)


def leading_of_matrix(A: Array, wanted: int, search: Search) -> Pairs:
    """The ``wanted`` largest eigenvalues of a dense symmetric matrix, with vectors; A may be overwritten."""
    n, solver = len(A), search.solver
    wanted = min(wanted, n)
    if wanted == 0:
        return Pairs(np.empty(0), np.empty((n, 0)))
    found: tuple[Array, Array] | None = None
    if solver == "auto" and n > LANCZOS_ROWS and LANCZOS_SHARE * wanted <= n:
        found = verified_lanczos(A, wanted, search)
    elif solver == "arpack" and wanted < n:
        found = _lanczos(product_with(A), n, wanted, search)
    elif solver == "randomized":
        found = _subspace(A.__matmul__, n, wanted, search)
    if found is None and SUBSET_SHARE * wanted <= n:
        found = scipy.linalg.eigh(A.T, subset_by_index=(n - wanted, n - 1), check_finite=False)
    if found is None or len(found[0]) < wanted:  # LAPACK may return fewer where many are nearly equal
        values, vectors = np.linalg.eigh(A)
        found = values[n - wanted :], vectors[:, n - wanted :]
    return _descending(*found)


def verified_lanczos(A: Array, wanted: int, search: Search, restarts: int | None = None) -> tuple[Array, Array] | None:
    """The leading eigenpairs of a dense matrix by Lanczos iteration, or None where that is not the quick way.

    A Krylov space of one vector holds one direction of each eigenspace, and rounding brings in the others only as a
    rule: what is orthogonal to the eigenvectors found is searched for a larger eigenvalue.
    """
    n, product = len(A), product_with(A)
    if restarts is None:
        restarts = max(RESTARTS, n // ROWS_PER_RESTART)
    found = _lanczos(product, n, wanted, search, restarts)
    if found is None:
        return None
    values, vectors = found
    rest = _largest_beside(product, vectors, search.seed)
    return None if rest > values.min() + 1e-9 * np.abs(values).max() else found


def _largest_beside(product: Callable[[Array], Array], V: Array, seed: int) -> float:
    """A lower bound of the largest eigenvalue on the orthogonal complement of some eigenvectors: Lanczos, few steps."""
    n = len(V)
    steps = min(CHECK_STEPS, n - V.shape[1])
    Q, images = np.empty((n, steps)), np.empty((n, steps))
    x: Array = stream(seed, 23).uniform(-1.0, 1.0, n)
    for j in range(steps):
        for _ in range(2):
            x = x - V @ (V.T @ x)
            x = x - Q[:, :j] @ (Q[:, :j].T @ x)
        size = float(np.linalg.norm(x))
        if size <= n * EPS * (float(np.linalg.norm(images[:, j - 1])) if j else 1.0):
            Q, images = Q[:, :j], images[:, :j]
            break
        Q[:, j] = x / size
        x = np.asarray(product(Q[:, j]), dtype=np.float64)
        images[:, j] = x
    inner = Q.T @ images
    return float(np.linalg.eigvalsh((inner + inner.T) / 2.0).max(initial=-np.inf))


def _descending(values: Array, vectors: Array) -> Pairs:
    order = np.argsort(-values, kind="stable")
    return Pairs(values[order], np.ascontiguousarray(vectors[:, order]))


def _lanczos(
    product: Callable[[Array], Array], r: int, wanted: int, search: Search, restarts: int | None = None
) -> tuple[Array, Array] | None:
    """ARPACK; None if it does not converge."""
    operator = spla.LinearOperator((r, r), matvec=lambda x: product(x.ravel()), matmat=product, dtype=np.float64)
    start = stream(search.seed, 20).uniform(-1.0, 1.0, r)
    try:
        found: Any = spla.eigsh(
            operator, k=wanted, which="LA", v0=start, tol=search.tol, maxiter=search.max_iter or restarts,
            ncv=_memory(wanted, r),
        )  # fmt: skip
    except spla.ArpackError:  # no convergence, or an operator that maps the start to nothing
        return None
    return np.asarray(found[0]), np.asarray(found[1])


def _memory(wanted: int, r: int) -> int:
    return min(r, max(2 * wanted + 1, 40))


def _subspace(product: Callable[[Array], Array], r: int, wanted: int, search: Search) -> tuple[Array, Array]:
    """Subspace iteration from a random start: the eigenvalues of largest modulus, as scikit-learn's has them."""
    size = min(r, wanted + 10)
    rounds = search.power if isinstance(search.power, int) else (7 if wanted < 0.1 * r else 4)
    Q = np.linalg.qr(product(stream(search.seed, 21).standard_normal((r, size))))[0]
    for _ in range(rounds):
        Q = np.linalg.qr(product(Q))[0]
    inner = Q.T @ product(Q)
    values, vectors = np.linalg.eigh((inner + inner.T) / 2.0)
    kept = np.argsort(-np.abs(values), kind="stable")[:wanted]
    return values[kept], Q @ vectors[:, kept]


def product_with(A: Array) -> Any:
    """x -> A x for a symmetric matrix, from one of its triangles: half the memory traffic of a general product."""
    lower = A.T if A.flags.c_contiguous else A  # LAPACK's order, without a copy
    symv = blas.dsymv if A.dtype == np.float64 else blas.ssymv
    return lambda x: symv(1.0, lower, x) if x.ndim == 1 else A @ x


class Inertia(NamedTuple):
    """What is known of the signs of a matrix' eigenvalues."""

    n_negative: int  # eigenvalues below rounding
    smallest: float  # eigenvalue; 0 where none is negative


def inertia(K: Array, rounding: float = EPS) -> Inertia:
    """Count the negative eigenvalues of K, those within n ``rounding`` ‖K‖ of 0 not counted.

    By Sylvester's law of inertia: the factor D of K = L D Lᵀ has as many. That takes n³/3 operations, where all
    eigenvalues take 4 n³/3; the smallest one comes from a few Lanczos steps.
    """
    n = len(K)
    peak = float(np.abs(K).max(initial=0.0)) or 1.0
    scaled = K / peak  # no scale over- or underflows
    tiny = n * rounding * float(np.linalg.norm(scaled))
    if n <= SMALL_MATRIX:
        values = np.linalg.eigvalsh(scaled)
        count = int((values < -tiny).sum())
        return Inertia(count, peak * float(values[0]) if count else 0.0)
    shifted = scaled.copy()
    shifted[np.diag_indices(n)] += tiny
    work = int(lapack.dsytrf_lwork(n)[0])  # SciPy's default is too short for blocks, and six times slower
    factor, pivots, _ = lapack.dsytrf(shifted.T, lwork=work, overwrite_a=1)
    single = pivots > 0  # the other pivots are blocks of two rows, and each has one negative eigenvalue
    count = int((np.diagonal(factor)[single] < 0.0).sum()) + int((~single).sum()) // 2
    return Inertia(count, peak * smallest_eigenvalue(scaled) if count else 0.0)


def smallest_eigenvalue(K: Array) -> float:
    """The smallest eigenvalue of a symmetric matrix, to three digits."""
    operator = spla.LinearOperator(K.shape, matvec=lambda x: product_with(K)(x.ravel()), dtype=K.dtype)
    start = stream(0, 22).uniform(-1.0, 1.0, len(K)).astype(K.dtype)
    try:
        return float(
            spla.eigsh(operator, k=1, which="SA", v0=start, tol=1e-4, maxiter=30, return_eigenvectors=False)[0]
        )
    except spla.ArpackError:
        return float(scipy.linalg.eigvalsh(K, subset_by_index=(0, 0))[0])
