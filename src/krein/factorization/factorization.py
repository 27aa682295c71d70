"""The approximated matrix, K ~ U M Uᵀ + s I with U = blockdiag(U_1 .. U_c) orthonormal, and its linear algebra.

In: bases, a core, an order and a shift (the paper's Q, L through `from_links`). Out: products, rows, spectrum, solves
and determinants, none of which forms an n x n or n x r matrix. Solvers and estimators need only the methods `project`,
`lift`, `gram`, `diagonal` and `rows`. Rows are in the caller's order everywhere except in `bases` and `order`. Only
`Bases` reads the arrays that are stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

from krein.arrays import EPS, Array, Indices, check_indices, grouped
from krein.errors import InputError
from krein.factorization.bases import compress, dtype_name, gram, orthonormalise, product, tiles, transposed_product
from krein.factorization.core import (
    BlockSparse,
    Ends,
    as_core,
    check_symmetric,
    congruent,
    core_block,
    core_eigenvalues,
    core_frobenius,
    core_logdet,
    core_solve,
    diagonal_blocks,
    is_dense,
    is_diagonal,
    row_weights,
    symmetric_core,
    to_dense,
)

if TYPE_CHECKING:
    from krein.factorization.pieces import PieceBases

__all__ = ["EPS", "Bases", "Factorization", "sparse_rows"]

# A core with more rows than DENSE_CORE is block-sparse if at least half of its entries are dropped.
DENSE_CORE = 4096
# A core without couplings is block-sparse if it has more rows than UNCOUPLED_CORE: blocks are then solved one by one.
UNCOUPLED_CORE = 512


@dataclass(frozen=True, eq=False)
class Factorization:
    """A symmetric n x n matrix U M Uᵀ + shift I with U = diag(U_1, ..., U_c) orthonormal block by block.

    It is immutable. ``f @ x`` multiplies by it, `solve`, `logdet` and `eigenvalues` are exact and cost O(n k + r³) at
    most, for blocks of rank k and a dense core of rank r. Large block-sparse cores may be solved iteratively, to a
    tolerance. `approximate` builds one from objects and a kernel,
    `from_blocks` and `from_links` from arrays.

    Parameters
    ----------
    bases : Bases
        U, and the order of its rows.
    core : ndarray of shape (r, r) or BlockSparse
        M, symmetric; r is the sum of the ranks k_i of the blocks.
    shift : float, default=0.0
        Added to the diagonal.

    Attributes
    ----------
    shape : tuple (n, n)
        Rows and columns of the matrix.
    rank : int
        r, the size of the core.
    n_blocks : int
        c, the number of blocks.
    ranks : tuple of int
        k_i, the columns of each U_i.
    spans : tuple of (slice, slice)
        The positions and the columns of each block.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> U = np.array([[0.6], [0.8]])
    >>> f = krein.Factorization.from_blocks([U], np.array([[2.0]]), order=np.arange(2), shift=1.0)
    >>> f.to_dense().round(2)
    array([[1.72, 0.96],
           [0.96, 2.28]])
    >>> f.solve(f @ np.ones(2)).round(6)
    array([1., 1.])
    """

    bases: Bases | PieceBases
    core: Array | BlockSparse
    shift: float = 0.0
    shape: tuple[int, int] = field(init=False)
    rank: int = field(init=False)
    n_blocks: int = field(init=False)
    ranks: tuple[int, ...] = field(init=False)
    spans: tuple[tuple[slice, slice], ...] = field(init=False)

    def __post_init__(self) -> None:
        bases, r = self.bases, self.bases.rank
        vars(self).update(
            shape=(bases.n_rows,) * 2, rank=r, n_blocks=len(bases.ranks), ranks=bases.ranks, spans=bases.spans
        )
        if self.core.shape != (r, r):
            raise InputError(f"The core must be {r} x {r}, the sum of the ranks; got shape {self.core.shape}.")
        if not math.isfinite(self.shift):
            raise InputError(f"shift must be a finite number; got {self.shift!r}.")
        check_symmetric(self.core)

    @classmethod
    def from_blocks(
        cls,
        blocks: Sequence[Any],
        core: Array | BlockSparse,
        order: Indices,
        shift: float = 0.0,
        maps: Sequence[Array] | None = None,
    ) -> Factorization:
        """Return U M Uᵀ + shift I from its blocks.

        Parameters
        ----------
        blocks : sequence of arrays
            Orthonormal U_i of shape (n_i, k_i), or B_i with U_i = B_i A_i if ``maps`` are given.
        core : ndarray of shape (r, r) or BlockSparse
            M, symmetric.
        order : integer array of shape (n,)
            order[p] is the row of the matrix that stands at position p of the stacked blocks.
        shift : float, default=0.0
            Added to the diagonal.
        maps : sequence of arrays or None, default=None
            A_i, which make up for the rounding of blocks that are stored in fewer bytes.
        """
        return cls(Bases(tuple(blocks), order, None if maps is None else tuple(maps)), core, shift)

    @classmethod
    def from_links(
        cls, Q_blocks: Sequence[Array], L: Array | BlockSparse, order: Indices | None = None, shift: float = 0.0
    ) -> Factorization:
        """Return the paper's Q L Qᵀ + shift I in orthonormal form.

        With Q_i = U_i R_i (QR) the same matrix is U (R L Rᵀ) Uᵀ. This costs n k² operations and is exact to rounding.

        Parameters
        ----------
        Q_blocks : sequence of arrays of shape (n_i, k_i)
            The diagonal blocks of Q.
        L : ndarray of shape (r, r) or BlockSparse
            The link matrix, symmetric.
        order : integer array of shape (n,) or None, default=None
            order[p] is the row of the matrix that stands at position p of Q; None means they are the same.
        shift : float, default=0.0
            Added to the diagonal.
        """
        blocks = [np.asarray(Q, dtype=np.float64) for Q in Q_blocks]
        if not blocks or any(Q.ndim != 2 for Q in blocks):
            raise InputError("Q_blocks must be a non-empty sequence of 2-D arrays, one per block.")
        if not all(np.isfinite(Q).all() for Q in blocks):
            raise InputError("Q_blocks hold NaN or infinite values; a factorization needs finite numbers.")
        size = sum(Q.shape[1] for Q in blocks)
        L = as_core(L)
        if L.shape != (size, size):
            raise InputError(f"L must be {size} x {size}, the columns of Q_blocks together; got shape {L.shape}.")
        pairs = [orthonormalise(np.array(Q, order="F")) for Q in blocks]  # a copy: QR may overwrite it
        triangles = [R for _, R in pairs]
        core = congruent(symmetric_core(L), triangles, [Q.shape[1] for Q in blocks])
        n = sum(len(Q) for Q in blocks)
        kept = np.arange(n) if order is None else np.asarray(order)
        return cls.from_blocks([U for U, _ in pairs], core, kept, float(shift))

    # -- properties ------------------------------------------------------------------------------------------------

    @property
    def order(self) -> Indices:
        """order[p] is the caller's row kept at position p."""
        return self.bases.order

    @property
    def maps(self) -> tuple[Array, ...] | None:
        """A_i with U_i = bases[i] @ maps[i], where the bases are stored rounded."""
        return self.bases.maps

    @property
    def dtype(self) -> str:
        """How the bases are stored."""
        return self.bases.dtype

    @property
    def nbytes(self) -> int:
        """Bytes held: bases, their maps, core and order."""
        return int(self.bases.nbytes + self.core.nbytes)

    def __repr__(self) -> str:
        kind = "dense" if is_dense(self.core) else "block-sparse"
        return (
            f"Factorization({self.shape[0]} x {self.shape[1]}, {self.n_blocks} blocks, rank {self.rank}, {kind} core, "
            f"{self.dtype}, {self.nbytes / 2**20:.1f} MiB, shift {self.shift:.4g})"
        )

    def _repr_html_(self) -> str:
        from krein.report import summary  # only notebooks need it

        return summary.factorization(self)

    # -- products --------------------------------------------------------------------------------------------------

    def project(self, x: Array) -> Array:
        """Uᵀx for x of shape (n,) or (n, p)."""
        return self.bases.project(self._rows_of(x, "project"))

    def lift(self, w: Array) -> Array:
        """U w for w of shape (r,) or (r, p)."""
        w = np.asarray(w, dtype=np.float64)
        if w.ndim not in (1, 2) or len(w) != self.rank:
            raise InputError(f"lift needs {self.rank} rows, one per column of U; got shape {w.shape}.")
        return self.bases.lift(w)

    def gram(self, weights: Array) -> list[Array]:
        """U_iᵀ D_i U_i for each block, D = diag(weights) in the caller's order."""
        weights = self._rows_of(weights, "gram")
        if weights.ndim != 1:
            raise InputError(f"gram needs one weight per row, 1-D; got shape {weights.shape}.")
        return self.bases.gram(weights)

    def diagonal(self, core: Array | BlockSparse | None = None) -> Array:
        """The diagonal of U S Uᵀ for a core S; without one, of the matrix itself, shift included."""
        return self.bases.diagonal(self.core_diagonal_blocks(core)) + (self.shift if core is None else 0.0)

    def rows(self, indices: Any) -> Array:
        """The rows ``indices`` of the matrix, (len(indices), n), shift included."""
        wanted = check_indices(indices, self.shape[0])
        left = self.bases.rows(wanted)  # sparse: r k work a row with a dense core
        out = self.lift((left @ self.core).T if is_dense(self.core) else self.core @ left.T.toarray()).T
        out[np.arange(len(wanted)), wanted] += self.shift
        return np.ascontiguousarray(out)

    def basis_rows(self, indices: Any) -> sp.csr_matrix:
        """The rows ``indices`` of U as a sparse matrix; each row is zero outside the columns of its block."""
        return self.bases.rows(check_indices(indices, self.shape[0]))

    def entries(self, rows: Any, cols: Any) -> Array:
        """The entries (rows x cols) of the matrix; only the blocks of the core that they need are used."""
        here, there = check_indices(rows, self.shape[0]), check_indices(cols, self.shape[0])
        out = np.zeros((len(here), len(there)))
        rights = {j: (yours, right) for j, yours, right in self.bases.by_block(there)}
        for i, mine, left in self.bases.by_block(here):
            met = rights if is_dense(self.core) else self.core.graph[[i]].indices
            for j in (j for j in met if j in rights):
                yours, right = rights[j]
                out[np.ix_(mine, yours)] = left @ core_block(self.core, self.spans, i, j) @ right.T
        out[np.equal.outer(here, there)] += self.shift
        return out

    __array_ufunc__ = None  # so that v @ f comes here

    def __rmatmul__(self, x: Array) -> Array:
        return (self @ np.asarray(x).T).T  # symmetric

    def __matmul__(self, x: Array) -> Array:
        x = self._rows_of(x, "@")
        return self.lift(self.core @ self.project(x)) + self.shift * x

    def to_dense(self) -> Array:
        """The n x n matrix. For small n, tests and pictures."""
        return self.rows(np.arange(self.shape[0]))

    def as_linear_operator(self) -> LinearOperator:
        """A SciPy LinearOperator that multiplies by this matrix."""
        return LinearOperator(
            self.shape, matvec=self.__matmul__, rmatvec=self.__matmul__, matmat=self.__matmul__, dtype=np.dtype(float)
        )

    def astype(self, dtype: Any) -> Factorization:
        """Return the matrix with its bases stored as float64, float32, float16 or int8.

        `maps` make the new bases orthonormal. The new core is T M Tᵀ with T_i = (new U_i)ᵀ U_i, the projection of the
        old matrix to the new bases: it is the nearest matrix with those bases, and psd if M is.
        """
        name = dtype_name(dtype)
        if name == self.dtype and (self.maps is None) == (name == "float64"):
            return self
        bases = self.bases.explicit()
        return compressed(bases, self.core, self.order, self.shift, name)[0]

    # -- spectrum, exact from the core -----------------------------------------------------------------------------

    @cached_property
    def _core_eigenvalues(self) -> Array:
        return core_eigenvalues(self.core)

    def eigenvalues(self) -> Array:
        """The r eigenvalues of M plus the shift, ascending; the other n - r eigenvalues are the shift itself.

        U is orthonormal, so these are the matrix's own: O(r³), whatever n.
        """
        return self._core_eigenvalues + self.shift

    def ends(self) -> Ends:
        """The smallest and largest eigenvalue of the n x n matrix, with bounds of their errors."""
        if is_dense(self.core):
            values = self._core_eigenvalues
            low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
            inner = Ends(low, high, 0.0, low, high, True)
        else:
            inner = self.core.ends
        low, high, lower, upper = (
            b + self.shift for b in (inner.smallest, inner.largest, inner.lower_bound, inner.upper_bound)
        )
        if self.shape[0] > self.rank:  # the shift is an eigenvalue too
            low, lower = min(low, self.shift), min(lower, self.shift)
            high, upper = max(high, self.shift), max(upper, self.shift)
        return Ends(low, high, inner.residual, lower, upper, inner.exact)

    def smallest_eigenvalue(self) -> float:
        """The smallest eigenvalue of the n x n matrix; for a block-sparse core a Ritz value (`ends` has its bound)."""
        return self.ends().smallest

    def n_negative(self, tol: float | None = None) -> int:
        """The number of eigenvalues below -tol; by default tol is 10 r eps |M|, eps the rounding unit."""
        values = self.eigenvalues()
        if tol is not None and not (isinstance(tol, int | float | np.number) and 0.0 <= tol < math.inf):
            raise InputError(f"tol must be a number of at least 0, or None; got {tol!r}.")
        if tol is None:
            tol = 10 * max(1, self.rank) * EPS * float(np.abs(self._core_eigenvalues).max(initial=0.0))
        outside = self.shape[0] - self.rank if self.shift < -tol else 0
        return int((values < -tol).sum()) + outside

    def frobenius(self) -> float:
        """The Frobenius norm of the n x n matrix."""
        inside = core_frobenius(self.core, self.shift)
        return float(np.hypot(inside, math.sqrt(self.shape[0] - self.rank) * self.shift))

    # -- solves ----------------------------------------------------------------------------------------------------

    def solve(self, b: Array, ridge: float = 0.0) -> Array:
        """(K + ridge I)⁻¹ b, K's own shift included; b of shape (n,) or (n, p).

        With t = shift + ridge it is U (M + tI)⁻¹ Uᵀb on the span of U and b / t off it.
        """
        b = self._rows_of(b, "solve")
        t = self._ridge(ridge, "solve")
        inside = self.project(b)
        x = self.lift(core_solve(self.core, inside, t))
        if self.shape[0] > self.rank:
            x += (b - self.lift(inside)) / t
        return x

    def logdet(self, ridge: float = 0.0) -> float:
        """log det(K + ridge I) of a positive definite matrix: logdet(M + tI) + (n - r) log t, t = shift + ridge."""
        t = self._ridge(ridge, "logdet")
        outside = self.shape[0] - self.rank
        return core_logdet(self.core, t) + (outside * math.log(t) if outside else 0.0)

    def _ridge(self, ridge: float, verb: str) -> float:
        if isinstance(ridge, bool) or not isinstance(ridge, int | float | np.number) or not math.isfinite(ridge):
            raise InputError(f"{verb} needs a finite number as ridge; got {ridge!r}.")
        t = self.shift + float(ridge)
        if t <= 0.0 and self.shape[0] > self.rank:
            raise InputError(
                f"{verb} needs shift + ridge > 0, because {self.shape[0] - self.rank} of {self.shape[0]} eigenvalues "
                f"are that sum; got {self.shift:g} + {float(ridge):g}. Pass ridge > {max(0.0, -self.shift):g}."
            )
        return t

    def _rows_of(self, x: Any, verb: str) -> Array:
        x = np.asarray(x)
        if x.dtype.kind not in "biuf":
            raise InputError(f"{verb} needs real numbers; got dtype {x.dtype}.")
        if x.ndim not in (1, 2) or len(x) != self.shape[0]:
            raise InputError(f"{verb} needs an array of {self.shape[0]} rows (1-D or 2-D); got shape {x.shape}.")
        return np.asarray(x, dtype=np.float64)

    def core_diagonal_blocks(self, core: Array | BlockSparse | None = None) -> list[Array]:
        """The blocks M_ii of the core, or of another one of its shape."""
        core = self.core if core is None else core
        if core.shape != (self.rank, self.rank):
            raise InputError(f"diagonal needs a core of shape {(self.rank, self.rank)}; got {core.shape}.")
        return diagonal_blocks(core, self.spans)

    def with_core(self, core: Array | BlockSparse, shift: float) -> Factorization:
        """The same bases with another core and shift."""
        return replace(self, core=core, shift=float(shift))


def check_factorization(f: object, asker: str) -> None:
    """Raise InputError unless ``f`` is a Factorization."""
    if not isinstance(f, Factorization):
        raise InputError(
            f"{asker} needs a Factorization; got {type(f).__name__} (an approximation has .factorization)."
        )


def compressed(
    bases: list[Any], core: Array | BlockSparse, order: Indices, shift: float, name: str, dense: bool = False
) -> tuple[Factorization, list[Array]]:
    """Return the factorization with bases stored as ``name``, and T_i = (new U_i)ᵀ U_i. Empties ``bases``."""
    ranks = [U.shape[1] for U in bases]
    stored, maps, turns = [], [], []
    needed = row_weights(core, ranks) if name in ("float16", "int8") else [np.empty((0, 0))] * len(ranks)
    for i, weights in enumerate(needed):
        U, bases[i] = np.asarray(bases[i], dtype=np.float64), None
        B, A, T = compress(U, name, weights)
        stored.append(B)
        maps.append(A)
        turns.append(T)
    moved = core if name == "float64" else congruent(core, turns, ranks)
    moved = to_dense(moved) if dense else moved
    return Factorization.from_blocks(stored, moved, order, shift, None if name == "float64" else maps), turns


def stored(bases: list[Any], core: BlockSparse, order: Indices, name: str) -> tuple[Factorization, list[Array]]:
    """Return U M Uᵀ in its final form, and T_i = (new U_i)ᵀ U_i. Empties ``bases``.

    The bases are stored as ``name``. The core is dense unless it has many rows and few couplings. Blocks without any
    coupling are given in their eigenvectors, so that the core has r numbers.
    """
    return in_eigenvectors(*compressed(bases, core, order, 0.0, name, dense=not stays_sparse(core)))


def in_eigenvectors(f: Factorization, turns: list[Array]) -> tuple[Factorization, list[Array]]:
    """Return blocks without any coupling in their eigenvectors, and the T_i that follow; other matrices as they are."""
    if is_dense(f.core) or not f.core.is_block_diagonal:
        return f, turns
    blocks: dict[tuple[int, int], Array] = {}
    eigenvectors: list[Array | None] = [None] * f.n_blocks
    for i, block in enumerate(f.core.diagonal_blocks()):
        blocks[i, i] = block
        if not is_diagonal(block):
            values, V = np.linalg.eigh(block)
            blocks[i, i], eigenvectors[i], turns[i] = np.diag(values), V, V.T @ turns[i]
    diagonal = BlockSparse.from_blocks(f.ranks, blocks)
    return replace(f, bases=f.bases.turned(eigenvectors), core=diagonal), turns


def stays_sparse(core: BlockSparse) -> bool:
    """Whether a block-sparse core is stored as such: it has many rows, and at least half of its entries are dropped."""
    n_entries = 2 * core.n_kept - sum(k * k for k in core.ranks)  # in both halves
    limit = min(UNCOUPLED_CORE, DENSE_CORE) if core.is_block_diagonal else DENSE_CORE
    return core.shape[0] > limit and 2 * n_entries <= core.shape[0] ** 2


# -- the bases ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bases(Sequence[Any]):
    """The blocks U_i of U; as a sequence, what is stored of each."""

    blocks: tuple[Any, ...]  # what is stored of U_i, shape (n_i, stored columns); U_i itself where maps is None
    order: Indices  # order[p] is the caller's row kept at position p
    maps: tuple[Array, ...] | None = None  # A_i with U_i = blocks[i] @ maps[i]: gives back what rounding cost

    n_rows: int = field(init=False)
    sizes: tuple[int, ...] = field(init=False)  # n_i, the rows of each block
    ranks: tuple[int, ...] = field(init=False)  # k_i, the columns of each U_i
    rank: int = field(init=False)  # r, the columns of U
    spans: tuple[tuple[slice, slice], ...] = field(init=False)  # (positions, columns of U) of each block

    def __post_init__(self) -> None:
        n = len(self.order)
        if n == 0:
            raise InputError("A factorization needs at least one row; the bases and order are empty.")
        held = sum(len(b) for b in self.blocks)
        if held != n:
            raise InputError(f"The bases hold {held} rows, but order names {n}. Each row belongs to one block.")
        if not (np.issubdtype(self.order.dtype, np.integer) and self.order.min() >= 0 and self.order.max() < n):
            raise InputError(f"order must hold integers 0 .. {n - 1}; got {self.order.dtype} {self.order[:5]} ...")
        if np.bincount(self.order, minlength=n).max() > 1:
            raise InputError(f"order must name each of the rows 0 .. {n - 1} once; some are named twice.")
        sizes = tuple(len(block) for block in self.blocks)
        ranks = tuple(int(A.shape[1]) for A in (self.blocks if self.maps is None else self.maps))
        vars(self).update(n_rows=n, sizes=sizes, ranks=ranks, rank=sum(ranks), spans=spans_of(sizes, ranks))

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, i: Any) -> Any:
        return self.blocks[i]

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> str:
        """How the blocks are stored."""
        return str(self.blocks[0].dtype)

    @property
    def nbytes(self) -> int:
        """Bytes held: blocks, maps and order."""
        return int(sum(a.nbytes for a in (*self.blocks, *(self.maps or ()))) + self.order.nbytes)

    def members(self, i: int) -> Indices:
        """The caller's rows of block i, in the order they are stored."""
        return self.order[self.spans[i][0]]

    @property
    def labels(self) -> Indices:
        """The block of each of the caller's rows."""
        labels = np.empty(self.n_rows, dtype=np.intp)
        labels[self.order] = np.repeat(np.arange(len(self)), self.sizes)
        return labels

    # -- the five verbs; rows are in the caller's order -------------------------------------------------------------

    def project(self, x: Array) -> Array:
        """Uᵀx for x of shape (n,) or (n, p)."""
        held = x[self.order]
        out = np.empty((self.rank, *held.shape[1:]))
        for i, (rows, cols) in enumerate(self.spans):
            raw = transposed_product(self.blocks[i], held[rows])
            out[cols] = raw if self.maps is None else self.maps[i].T @ raw
        return out

    def lift(self, w: Array) -> Array:
        """U w for w of shape (r,) or (r, p)."""
        held = np.empty((self.n_rows, *w.shape[1:]))
        for i, (rows, cols) in enumerate(self.spans):
            held[rows] = product(self.blocks[i], w[cols] if self.maps is None else self.maps[i] @ w[cols])
        out = np.empty_like(held)
        out[self.order] = held
        return out

    def gram(self, weights: Array) -> list[Array]:
        """U_iᵀ D_i U_i for each block, D = diag(weights)."""
        grams = []
        for i in range(len(self)):
            raw = gram(self.blocks[i], weights[self.members(i)])
            grams.append(raw if self.maps is None else self.maps[i].T @ raw @ self.maps[i])
        return grams

    def diagonal(self, inner: Sequence[Array]) -> Array:
        """The diagonal of U S Uᵀ, from the diagonal blocks (k_i, k_i) of S."""
        out = np.empty(self.n_rows)
        for i, block in enumerate(inner):
            members = self.members(i)
            stored_inner = block if self.maps is None else self.maps[i] @ block @ self.maps[i].T
            for part, stored in tiles(self.blocks[i]):
                out[members[part]] = np.einsum("ij,ij->i", stored @ stored_inner, stored)
        return out

    def rows(self, wanted: Indices) -> sp.csr_matrix:
        """The rows ``wanted`` of U, sparse: each has the columns of its own block alone."""
        return sparse_rows(self.by_block(wanted), len(wanted), self.ranks, self.spans)

    # -- block by block --------------------------------------------------------------------------------------------

    def by_block(self, wanted: Indices) -> list[tuple[int, Indices, Array]]:
        """(block, which of ``wanted`` lie in it, their rows of U_i) for each block that is met."""
        places = self._positions[wanted]
        met = np.searchsorted(np.cumsum(self.sizes), places, side="right")
        return [(i, here, self.local(i, places[here] - self.spans[i][0].start)) for i, here in grouped(met)]

    def at(self, wanted: Sequence[tuple[int, Indices]]) -> list[tuple[Indices, Array]]:
        """For each (block, places within it): the caller's rows there, and those rows of U_i."""
        return [(self.members(i)[places], self.local(i, places)) for i, places in wanted]

    def local(self, i: int, places: Any) -> Array:
        """The rows of U_i at ``places`` within block i, in float64."""
        stored = np.asarray(self.blocks[i][places], dtype=np.float64)
        return stored if self.maps is None else stored @ self.maps[i]

    def explicit(self) -> list[Any]:
        """The U_i as arrays."""
        return [B if self.maps is None else self.local(i, slice(None)) for i, B in enumerate(self.blocks)]

    def tiles(self, i: int) -> Iterator[tuple[Indices, Array]]:
        """Yield (the caller's rows, those rows of U_i in float64), a few at a time."""
        members = self.members(i)
        for part, stored in tiles(self.blocks[i]):
            yield members[part], stored if self.maps is None else stored @ self.maps[i]

    @cached_property
    def _positions(self) -> Indices:
        places = np.empty_like(self.order, dtype=np.intp)
        places[self.order] = np.arange(self.n_rows)
        return places

    # -- other bases -----------------------------------------------------------------------------------------------

    def take(self, wanted: Indices) -> Bases:
        """Some rows, copied, in the order asked for: no longer orthonormal, but good for products and diagonals."""
        place = np.full(self.n_rows, -1)
        place[wanted] = np.arange(len(wanted))
        blocks, order = [], []
        for i, block in enumerate(self.blocks):
            mine = place[self.members(i)]
            blocks.append(block[mine >= 0])
            order.append(mine[mine >= 0])
        return replace(self, blocks=tuple(blocks), order=np.concatenate(order))

    def full_rank(self) -> tuple[Bases, list[Array]]:
        """Bases whose blocks have no more columns than rows, and T_i with old U_i = new U_i T_i."""
        blocks, maps, turns = list(self.blocks), list(self.maps or ()), []
        for i, (size, k) in enumerate(zip(self.sizes, self.ranks, strict=True)):
            turn: Array = np.eye(k)
            if size <= k:
                blocks[i], turn = orthonormalise(np.array(self.local(i, slice(None)), order="F"))
                if maps:
                    maps[i] = np.eye(len(turn))
            turns.append(turn)
        return replace(self, blocks=tuple(blocks), maps=tuple(maps) if maps else None), turns

    def turned(self, turns: Sequence[Array | None]) -> Bases:
        """U_i V_i for the orthogonal V_i of ``turns``; None leaves a block as it is."""
        held = list(self.blocks if self.maps is None else self.maps)
        for i, V in enumerate(turns):
            held[i] = held[i] if V is None else held[i] @ V
        return replace(self, blocks=tuple(held)) if self.maps is None else replace(self, maps=tuple(held))


def spans_of(sizes: Sequence[int], ranks: Sequence[int]) -> tuple[tuple[slice, slice], ...]:
    """(positions, columns of U) of each block."""
    ends = (np.concatenate([[0], np.cumsum(counts)]) for counts in (sizes, ranks))
    return tuple(zip(*([slice(int(a), int(b)) for a, b in pairwise(end)] for end in ends), strict=True))


def sparse_rows(
    parts: Sequence[tuple[int, Indices, Array]], n: int, ranks: Sequence[int], spans: Sequence[tuple[slice, slice]]
) -> sp.csr_matrix:
    """n rows of U from (block, which of the rows lie in it, their rows of U_i)."""
    sizes = np.zeros(n, dtype=np.int64)
    for i, here, _ in parts:
        sizes[here] = ranks[i]
    pointer = np.concatenate([[0], np.cumsum(sizes)])
    data, columns = np.empty(pointer[-1]), np.empty(pointer[-1], dtype=np.int64)
    for i, here, local in parts:
        cols = spans[i][1]
        spots = pointer[here][:, None] + np.arange(ranks[i])
        data[spots], columns[spots] = local, np.arange(cols.start, cols.stop)
    return sp.csr_matrix((data, columns, pointer), shape=(n, sum(ranks)))
