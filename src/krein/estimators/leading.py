"""A symmetric matrix or operator in, its leading eigenpairs out, by the quickest of scikit-learn's solvers.

LAPACK while there are few rows or many pairs are wanted, else Lanczos iteration (ARPACK), which takes products alone.
`leading_of_matrix` is for a dense matrix, `leading` for an operator such as a block-sparse core, centred or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg as spla

from krein.arrays import EPS, Array, stream
from krein.errors import InputError, one_of, whole_number
from krein.estimators.kernel_matrix import product_with
from krein.factorization.blocksparse import DENSE_LIMIT, SMALL, BlockSparse

__all__ = ["Pairs", "Search", "as_matrix", "leading", "leading_of_matrix", "verified_lanczos"]

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
CHECK_STEPS = 12  # A missed eigenpair is looked for with this many Lanczos steps.


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


def as_matrix(core: Array | BlockSparse) -> Array:
    """A core as one matrix."""
    return core.to_dense() if isinstance(core, BlockSparse) else core


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
