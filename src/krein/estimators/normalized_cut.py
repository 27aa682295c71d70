"""The normalised cut: similarities K in, the leading eigenvectors of their graph Laplacian out.

The graph has no self-loops, as in scikit-learn: A = D^(-1/2) (K - diag K) D^(-1/2), where D holds the row sums of
K - diag K. (With self-loops the best cluster would be a single row far from all others.)

`exact_cut` takes a dense K. It uses Lanczos iteration on A if that converges within half the time of a factorization,
which it does if clusters overlap. Otherwise it iterates on the inverse of σ I - A, by its Cholesky factor.

`normalised_cut` takes K ~ U M Uᵀ. Without its diagonal A has no low rank, but its resolvent has: with
E = σ D + diag K, Woodbury's formula gives

    (σ I - A)⁻¹ = D^(1/2) (E⁻¹ + E⁻¹U (M + M R (I - R M R)⁻¹ R M) UᵀE⁻¹) D^(1/2),    R² = UᵀE⁻¹U block by block,

so that a few steps of Lanczos iteration on the inverse, with σ just above the spectrum, need one Gram matrix and one
r x r Cholesky factorization. I - R M R is positive definite if and only if σ is above the spectrum.

A graph with more connected components than wanted eigenvectors has the eigenvalue 1 more often than that, and Lanczos
iteration may not converge. A dense matrix, or one of few rows, is then decomposed completely. `Cut.n_pieces` shows that
the choice among the components was arbitrary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg as spla
from scipy.linalg import lapack

from krein.arrays import EPS, Array, Indices, stream
from krein.errors import InputError
from krein.estimators.eigenpairs import Search, product_with, verified_lanczos
from krein.factorization import Factorization
from krein.factorization.core import BlockSparse, congruent, is_dense

__all__ = ["Cut", "Degrees", "degrees", "exact_cut", "normalised_cut"]

# Up to SMALL_GRAPH rows a full eigendecomposition is the fastest solver.
SMALL_GRAPH = 100
# If Lanczos iteration fails, a factored matrix of up to DECOMPOSED_ROWS rows is decomposed completely.
DECOMPOSED_ROWS = 2000
# In an approximation, a degree below this share of the median one counts as zero.
SMALLEST_DEGREE = 1e-6
# Lanczos iteration on the inverse is restarted at most this often: where there is another solver, and where not.
INVERSE_RESTARTS = 10, 300
# Lanczos iteration on A itself is restarted once per ROWS_PER_RESTART rows: half the time of a factorization.
ROWS_PER_RESTART = 400
# Entries of A above CONNECTION connect two rows. If all rows are connected, the eigenvalue 1 is simple to rounding.
CONNECTION = 1e-12
# The search for connected rows visits SEARCHED_ROWS rows at a time.
SEARCHED_ROWS = 256
# Shifts above 1 that are tried until one lies above the spectrum of A. Similarities >= 0 have no eigenvalue above 1.
SHIFTS_ABOVE_ONE = (1e-5, 1e-3, 0.1, 1.0, 10.0, 100.0, 1e4, 1e6)


@dataclass(frozen=True, eq=False)
class Degrees:
    """Degrees of the rows: sums of similarities without the diagonal. Those that are not positive are replaced."""

    sums: Array  # (n,), > 0
    own: Array  # (n,), the diagonal of K
    n_nonpositive: int  # how many were replaced


@dataclass(frozen=True, eq=False)
class Cut:
    """The embedding by the normalised cut: eigenvectors of A divided by the roots of the degrees."""

    values: Array  # (p,) eigenvalues of A, descending; those of the Laplacian are 1 minus these
    embedding: Array  # (n, p)
    n_pieces: int  # connected components of the graph: eigenvalues found that are 1 up to rounding


def degrees(f: Factorization, noise: float = SMALLEST_DEGREE) -> Degrees:
    """Return the row sums of K - diag K. One of at most ``noise`` times the median is replaced by the median.

    The similarities of such a row cannot be distinguished from errors. With a large degree it is not connected.
    """
    own = f.diagonal() - f.shift
    return _usable(f.lift(f.core @ f.project(np.ones(f.shape[0]))) - own, own, noise)


def normalised_cut(f: Factorization, d: Degrees, wanted: int, *, tol: float = 0.0, seed: int = 0) -> Cut:
    """Return the ``wanted`` leading eigenvectors of A, divided by the roots of the degrees.

    The cost is n k + r² for each step, and r³ once.
    """
    n, root = f.shape[0], np.sqrt(d.sums)

    def dense() -> Cut:
        K = f.to_dense()
        np.fill_diagonal(K, 0.0)
        return _dense(K / root / root[:, None], root, wanted)

    if n <= SMALL_GRAPH or wanted >= n - 1:
        return dense()

    def product(x: Array) -> Array:
        y = x / root
        return np.asarray((f.lift(f.core @ f.project(y)) - d.own * y) / root)

    small = n <= DECOMPOSED_ROWS
    found = _lanczos(product, *_resolvent(f, d), root, wanted, tol, seed, INVERSE_RESTARTS[not small])
    if found is not None:
        return found
    if small:
        return dense()
    raise InputError(
        f"The {wanted} leading eigenvectors of the normalised cut of {n} rows did not converge. Most likely the kernel "
        "is so narrow that the rows are not connected and many cuts are equally good: use a smaller gamma (a wider "
        "kernel). Else ask for fewer clusters or components, or a larger eigen_tol."
    )


def exact_cut(K: Array, wanted: int, *, tol: float = 0.0, seed: int = 0) -> tuple[Cut, Degrees]:
    """Return the cut of a dense symmetric matrix, which is overwritten, and the degrees."""
    n, own = len(K), np.diag(K).copy()
    np.fill_diagonal(K, 0.0)
    d = _usable(K.sum(1), own, 0.0)
    root = np.sqrt(d.sums)
    A = np.divide(K, root, out=K)
    A /= root[:, None]
    if n <= SMALL_GRAPH or wanted >= n - 1:
        return _dense(A, root, wanted), d
    if len(_pieces(A, CONNECTION)) == 1:
        pairs = verified_lanczos(A, wanted, Search(tol=tol, seed=seed), max(3, n // ROWS_PER_RESTART))
        if pairs is not None and pairs[0].max() > 1.0 + SHIFTS_ABOVE_ONE[-1]:
            raise _not_a_cut()
        if pairs is not None:
            return _ordered(*pairs, root), d
    tried = ((1.0 + above, _factored_inverse(A, 1.0 + above)) for above in SHIFTS_ABOVE_ONE)
    sigma, solve = next(((sigma, solve) for sigma, solve in tried if solve is not None), (0.0, None))
    if solve is None:
        raise _not_a_cut()
    found = _lanczos(product_with(A), sigma, solve, root, wanted, tol, seed, INVERSE_RESTARTS[0])
    if found is None:
        return _dense(A, root, wanted), d
    if found.n_pieces == wanted:  # there may be more components than eigenvectors
        several = int((_pieces(A, EPS) > 1).sum())
        found = replace(found, n_pieces=max(wanted, several))
    return found, d


def _usable(sums: Array, own: Array, noise: float) -> Degrees:
    positive = sums[sums > 0.0]
    usual = float(np.median(positive)) if len(positive) else 1.0
    poor = ~(sums > noise * usual)
    return Degrees(np.where(poor, usual, sums), own, int(poor.sum()))


def _pieces(A: Array, tiny: float) -> Indices:
    """Return the sizes of the connected components of the graph whose edges are the entries of A above ``tiny``.

    The search is breadth-first and visits each row at most once. If all entries are edges it visits one row.
    """
    left, sizes = np.ones(len(A), dtype=bool), []
    while left.any():
        front = np.flatnonzero(left)[:1]
        left[front] = False
        size = 1
        while len(front) and left.any():
            now, front = front[:SEARCHED_ROWS], front[SEARCHED_ROWS:]
            found = np.flatnonzero((np.abs(A[now]) > tiny).any(0) & left)
            left[found] = False
            front = np.concatenate([front, found])
            size += len(found)
        sizes.append(size)
    return np.array(sizes)


def _dense(A: Array, root: Array, wanted: int) -> Cut:
    values, vectors = np.linalg.eigh((A + A.T) / 2.0)
    first = max(0, len(A) - wanted)
    return replace(_ordered(values[first:], vectors[:, first:], root), n_pieces=_ones(values, len(A)))


def _lanczos(
    product: Callable[[Array], Array],
    sigma: float,
    inverse: Callable[[Array], Array],
    root: Array,
    wanted: int,
    tol: float,
    seed: int,
    restarts: int,
) -> Cut | None:
    """Run Lanczos iteration on (σ I - A)⁻¹, in ARPACK's shift-and-invert mode; None if it does not converge.

    It converges fast if the leading eigenvalues are distinct, and not if many of them are nearly equal.
    """
    options: dict[str, Any] = {"shape": (len(root), len(root)), "dtype": np.dtype(np.float64)}
    start = stream(seed, 30).uniform(-1.0, 1.0, len(root))
    try:
        found: Any = spla.eigsh(
            spla.LinearOperator(matvec=lambda x: product(x.ravel()), **options), k=wanted, sigma=sigma, which="LM",
            OPinv=spla.LinearOperator(matvec=lambda x: -inverse(x.ravel()), **options), v0=start, tol=tol,
            maxiter=restarts,
        )  # fmt: skip
    except spla.ArpackError:
        return None
    return _ordered(np.asarray(found[0]), np.asarray(found[1]), root)


def _ordered(values: Array, vectors: Array, root: Array) -> Cut:
    """Return the cut: eigenvalues descending, D^(-1/2) applied, the largest entry of each column positive."""
    order = np.argsort(-values, kind="stable")
    embedding = vectors[:, order] / root[:, None]
    peak = embedding[np.argmax(np.abs(embedding), axis=0), np.arange(len(values))]
    return Cut(values[order], embedding * np.where(peak < 0.0, -1.0, 1.0), _ones(values, len(root)))


def _ones(values: Array, n: int) -> int:
    return int((np.abs(values - 1.0) <= n * np.finfo(float).eps).sum())


def _resolvent(f: Factorization, d: Degrees) -> tuple[float, Callable[[Array], Array]]:
    """Return (σ, x -> (σ I - A)⁻¹ x) for the smallest σ tried that is above the spectrum of A."""
    root = np.sqrt(d.sums)
    for above in SHIFTS_ABOVE_ONE:
        sigma = 1.0 + above
        E = sigma * d.sums + d.own
        if E.min() <= 0.0:  # a negative diagonal needs a larger σ
            continue
        R = [_root(C) for C in f.gram(1.0 / E)]
        solve = _solver(congruent(f.core, R, f.ranks))
        if solve is None:
            continue

        def inverse(x: Array, E: Array = E, R: list[Array] = R, solve: Callable[[Array], Array] = solve) -> Array:
            y = x * root / E
            inside = f.core @ f.project(y)
            inside = inside + f.core @ _blocks(R, solve(_blocks(R, inside, f)), f)
            return np.asarray((y + f.lift(inside) / E) * root)

        return sigma, inverse
    raise _not_a_cut()


def _not_a_cut() -> InputError:
    return InputError(
        f"The normalised cut needs similarities >= 0; this matrix has eigenvalues beyond {SHIFTS_ABOVE_ONE[-1]:g} "
        "where 1 is the largest possible. Use a kernel that is not negative, or a higher rank."
    )


def _solver(B: Array | BlockSparse) -> Callable[[Array], Array] | None:
    """Return the function x -> (I - B)⁻¹ x, or None if I - B is not positive definite."""
    if not is_dense(B):
        rest = B.map_blocks(lambda i, j, block: -block, B.ranks)
        if rest.can_factor:
            factor = rest.cholesky(1.0)
            return None if factor is None else lambda x: factor.refined(lambda v: rest @ v + v, x[:, None]).ravel()
        return (lambda x: rest.solve(x, 1.0)) if rest.ends.smallest - rest.ends.residual > -1.0 else None
    try:
        triangle = scipy.linalg.cho_factor(np.eye(len(B)) - B, lower=True, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    return lambda x: np.asarray(scipy.linalg.cho_solve(triangle, x, check_finite=False))


def _factored_inverse(A: Array, sigma: float) -> Callable[[Array], Array] | None:
    """Return the function x -> (σ I - A)⁻¹ x of a dense A, or None if σ I - A is not positive definite.

    The Cholesky factor takes 8 n² bytes.
    """
    rest = np.negative(A)
    rest[np.diag_indices(len(A))] += sigma
    factor, failed = lapack.dpotrf(rest.T, lower=0, clean=0, overwrite_a=1)  # rest.T is rest in LAPACK's order
    return None if failed else lambda x: np.asarray(lapack.dpotrs(factor, x, lower=0)[0])


def _root(C: Array) -> Array:
    values, vectors = np.linalg.eigh(C)
    whole = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return np.asarray((whole + whole.T) / 2.0)


def _blocks(R: list[Array], x: Array, f: Factorization) -> Array:
    """blockdiag(R) x."""
    return np.concatenate([Ri @ x[cols] for Ri, (_, cols) in zip(R, f.spans, strict=True)])
