"""A symmetric operator on r-vectors in, its leading eigenpairs out, by whichever way is cheapest.

Dense algebra while r is small or most pairs are wanted; otherwise Lanczos from products alone, which is all that a
large block-sparse core, centred or not, has to offer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse.linalg as spla

from krein.arrays import Array, stream
from krein.blocksparse import DENSE_LIMIT, SMALL, BlockSparse
from krein.errors import InputError, one_of, whole_number

__all__ = ["Pairs", "Search", "as_matrix", "leading"]

SOLVERS = ("auto", "dense", "arpack", "randomized")


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
    values, vectors = found
    order = np.argsort(-values, kind="stable")
    return Pairs(values[order], np.ascontiguousarray(vectors[:, order]))


def as_matrix(core: Array | BlockSparse) -> Array:
    """A core as one matrix."""
    return core.to_dense() if isinstance(core, BlockSparse) else core


def _lanczos(product: Callable[[Array], Array], r: int, wanted: int, search: Search) -> tuple[Array, Array] | None:
    """ARPACK; None if it does not get there, which dense algebra may."""
    operator = spla.LinearOperator((r, r), matvec=product, matmat=product, dtype=np.float64)
    start = stream(search.seed, 20).uniform(-1.0, 1.0, r)
    try:
        found: Any = spla.eigsh(
            operator, k=wanted, which="LA", v0=start, tol=search.tol, maxiter=search.max_iter, ncv=_memory(wanted, r)
        )
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
