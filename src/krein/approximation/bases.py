"""A cluster in, a basis out: landmarks, the Nyström columns, ranks, and the map that extends them (Part 2, Eq. 4).

Each cluster has landmarks Z_i, W = k(Z_i, Z_i) = V diag(w) Vᵀ and Q_i = k(X_i, Z_i) V_k |w_k|^(-1/2). The signs of w
are kept for the diagonal of L. The published code and scikit-learn's Nystroem take an SVD, which flips the negative
eigenvalues of an indefinite kernel. Eigenvalues that are zero to rounding are left out rather than inverted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from krein.approximation.landmarks import CANDIDATES, choose_landmarks
from krein.arrays import Array, Indices
from krein.errors import warn
from krein.factorization.bases import gram, tiles
from krein.kernels import Evaluator, Kernel, count_objects, take
from krein.kernels.collections import is_sparse, precise

__all__ = [
    "MAX_EXTENSION_GROWTH",
    "LandmarkMap",
    "Sketch",
    "nystrom",
    "object_bytes",
    "other_rows",
    "right_divide",
    "row_lengths",
    "sketch",
]

# Eigenvalues of W below this share of the largest are not inverted (`sketch`).
EIGENVALUE_CUTOFF = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}
# A basis has exploded if the mean square of |q(x)|² / (largest known similarity of x) exceeds the square of this.
MAX_BASIS_GROWTH = 4.0
# Similarities of a new object to its cluster may be this many times the largest ones of the fit.
MAX_EXTENSION_GROWTH = 3.0


@dataclass(frozen=True, eq=False)
class LandmarkMap:
    """The out-of-sample extension of one basis: u(x) = k(x, Z) T (supplement, Sec. 4, the indirect way)."""

    landmarks: Any  # Z, the objects themselves
    rows: Indices  # (l,) which of the caller's rows they are
    transform: Array  # T, shape (l, k)
    self_similarities: Array | None = None  # of a kernel that needs them, as normalised ones do
    usual: float = math.inf  # the largest |k(z, Z)| of a landmark z
    block: Array | None = None  # M_ii, (k, k), if u(x) is limited: |u(x) M_ii| are x's similarities to the cluster
    reach: float = math.inf  # the limit of |u(x) M_ii|

    def __call__(self, evaluator: Evaluator, objects: Any, known: Array | None = None) -> Array:
        """The rows u(x). ``known`` are similarities to the first landmarks, if the caller has them."""
        out = np.empty((count_objects(objects), self.transform.shape[1]))
        n_shortened, first = 0, 0 if known is None else known.shape[1]
        own = None if self.self_similarities is None else self.self_similarities[first:]
        rest = take(self.landmarks, np.arange(first, len(self.transform))) if first else self.landmarks
        for rows, block in evaluator.chunks(objects, rest, diag_B=own):
            block = block if known is None else np.hstack([known[rows], block])
            out[rows] = block @ self.transform
            if self.block is not None:
                limits = self.reach * np.maximum(1.0, row_lengths(block) / (self.usual or 1.0))
                lengths = row_lengths(out[rows] @ self.block)
                over = lengths > limits
                out[rows][over] *= (limits[over] / lengths[over])[:, None]
                n_shortened += int(over.sum())
        if n_shortened:
            warn(
                f"{n_shortened} of {len(out)} new objects would have had similarities far above those at the fit, as "
                f"{evaluator.kernel!r} is not known to be psd; they were scaled down. Try another rank, or exact=True."
            )
        return out

    def limited(self, basis: Array, block: Array, kernel: Kernel) -> LandmarkMap:
        """The map of the basis U_i with a limit on u(x), unless the kernel is psd.

        For a psd kernel |k(x, Z) v|² <= w k(x, x), so that a weak direction stays weak for every x. For an indefinite
        kernel k(x, Z) v / w has no bound: errors of 300 |k(x, X)| were seen with an error of 3e-8 at the fit.
        """
        if kernel.traits.psd is True or basis.size == 0:
            return self
        largest = max(float(row_lengths(part @ block).max()) for _, part in tiles(basis))
        return replace(self, block=block, reach=MAX_EXTENSION_GROWTH * largest)

    def turned(self, T: Array) -> LandmarkMap:
        """The map of the basis U_i Tᵀ that a storage type or eigenvectors put in place of U_i."""
        return replace(
            self, transform=right_divide(self.transform, T), block=None if self.block is None else T @ self.block
        )

    def leading(self, rank: int) -> LandmarkMap:
        """The map of the first ``rank`` columns of the basis."""
        block = None if self.block is None else self.block[:rank, :rank]
        return replace(self, transform=self.transform[:, :rank], block=block)

    @property
    def nbytes(self) -> int:
        extra = sum(part.nbytes for part in (self.self_similarities, self.block) if part is not None)
        return object_bytes(self.landmarks) + self.rows.nbytes + self.transform.nbytes + extra


def right_divide(transform: Array, R: Array) -> Array:
    """transform @ pinv(R). R is square and well conditioned unless storage lost a direction."""
    if R.shape[0] == R.shape[1] and np.array_equal(R, np.eye(len(R))):  # the bases are unchanged
        return transform
    if R.shape[0] == R.shape[1] and R.size:
        return np.asarray(scipy.linalg.solve(R.T, transform.T, check_finite=False).T)
    return np.asarray(transform @ np.linalg.pinv(R))


def row_lengths(rows: Array) -> Array:
    """The norm of each row. Rows are divided by the largest entry, so that no square overflows."""
    peak = float(np.abs(rows).max(initial=0.0)) or 1.0
    return np.asarray(peak * np.linalg.norm(rows / peak, axis=1))


def object_bytes(objects: Any) -> int:
    """Bytes of a collection of objects. For lists, bytes of the items without what these refer to."""
    if is_sparse(objects):
        return int(objects.data.nbytes + objects.indices.nbytes + objects.indptr.nbytes)
    return int(objects.nbytes) if hasattr(objects, "nbytes") else sum(map(sys.getsizeof, objects))


@dataclass(frozen=True, eq=False)
class Sketch:
    """The landmarks of a cluster and the eigendecomposition of their similarities W."""

    rows: Indices  # (l,) the caller's rows
    landmarks: Any
    values: Array  # (m,) eigenvalues by falling magnitude, those that are zero to rounding left out
    vectors: Array  # (l, m)
    similarities: Array  # W, (l, l)
    self_similarities: Array | None
    representative: bool  # whether the landmarks are a uniform sample, so that W has the spectrum of K_i


def sketch(
    objects: Any,
    members: Indices,
    n_landmarks: int,
    rule: str,
    evaluator: Evaluator,
    rng: np.random.Generator,
    places: Callable[[Any], Any] | None = None,
    guarded: bool = True,
) -> Sketch:
    """Choose landmarks among ``members`` and decompose W. ``places`` embeds objects without coordinates.

    Rounding of kernel values changes each eigenvalue w by about eps |W|, and Q_i contains 1 / sqrt(w). Eigenvalues that
    are not well above this are left out. If all members are landmarks of a psd kernel, rounding is not amplified, and
    the limit is rounding itself. So it is without ``guarded``, as in a pseudo-inverse.
    """
    rows = choose_landmarks(objects, members, n_landmarks, rule, evaluator, rng, places)
    landmarks = take(objects, rows)
    W = evaluator.symmetric(landmarks, rows)
    values, vectors = np.linalg.eigh(W.astype(np.float64))
    order = np.argsort(-np.abs(values), kind="stable")
    rounding = len(values) * float(np.finfo(W.dtype).eps)
    harmless = not guarded or (len(rows) == len(members) and evaluator.kernel.traits.psd is True)
    share = rounding if harmless else max(rounding, EIGENVALUE_CUTOFF[W.dtype])
    order = order[np.abs(values[order]) > share * float(np.abs(values).max(initial=0.0))]
    own = evaluator.own(landmarks)
    return Sketch(rows, landmarks, values[order], vectors[:, order], W, own, rule == "uniform")


def nystrom_transform(V: Array, w: Array, k: int) -> Array:
    """Eq. (4): V_k |w_k|^(-1/2), so that Q_i = K[members, landmarks] V_k |w_k|^(-1/2) and K_ii ~ Q_i diag(sign w) Q_iᵀ.

    V and w are the eigenvectors and eigenvalues of the landmarks' similarities W, the strongest first.
    """
    return np.asarray(V[:, :k] / np.sqrt(np.abs(w[:k])))


def nystrom(
    objects: Any, members: Indices, rank: int, found: Sketch, evaluator: Evaluator, dtype: Any, guarded: bool = True
) -> tuple[Array, Array, LandmarkMap]:
    """Return (Q_i, signs, map): K_i ~ Q_i diag(signs) Q_iᵀ of rank <= ``rank`` (Eq. 4), and q(x) = k(x, Z) T.

    The rows of landmarks are taken from W, so that exactly n_i l similarities are evaluated. Q_i is Fortran-ordered,
    for a QR in place. An indefinite kernel can have a small w whose direction is large at other objects. `_bounded`
    leaves such directions out. It evaluates self-similarities of some members unless these are constant.

    With uniform landmarks the strongest directions of W are kept, as in the paper. Other rules may have put one
    landmark on most of the cluster and the rest on outliers: errors of 0.44 were seen where 0.006 is possible. So all
    of W is used, and the strongest directions of the result are kept. An indefinite W would explode, and is cut as with
    uniform landmarks. Without ``guarded`` it is Eq. 4 for any landmarks, and no direction is left out.
    """
    rank = min(rank, len(found.values))
    k = rank if not guarded or found.representative or (found.values < 0).any() else len(found.values)
    transform = nystrom_transform(found.vectors, found.values, k)
    Q = np.empty((len(members), k), dtype=dtype, order="F")
    known = np.searchsorted(members, found.rows)
    Q[known] = found.similarities @ transform
    scales = np.empty(len(members))  # the largest |k(x, z)| of each member
    scales[known] = np.abs(found.similarities).max(1)
    for part, block in other_rows(objects, members, known, found.landmarks, found.self_similarities, evaluator):
        Q[part] = block @ transform
        scales[part] = np.abs(block).max(1)
    values = found.values[:k]
    if (
        guarded and evaluator.kernel.traits.psd is not True and len(known) < len(members)
    ):  # for a psd kernel |q(x)|² <= k(x, x)
        kept = _bounded(Q, scales, objects, members, found, evaluator)
        if not kept.all():
            Q, values, transform = np.asfortranarray(Q[:, kept]), values[kept], transform[:, kept]
    if Q.shape[1] > rank:  # w > 0 for all, so that the best approximation of Q Qᵀ is Q P Pᵀ Qᵀ, P leading in QᵀQ
        P = np.linalg.eigh(gram(Q))[1][:, : -rank - 1 : -1]  # (k, rank)
        Q, values, transform = np.asfortranarray(Q @ P.astype(dtype)), np.ones(rank), transform @ P
    usual = float(row_lengths(found.similarities).max())
    return Q, np.sign(values), LandmarkMap(found.landmarks, found.rows, transform, found.self_similarities, usual)


def other_rows(
    objects: Any, members: Indices, known: Indices, landmarks: Any, self_similarities: Array | None,
    evaluator: Evaluator,
) -> Iterator[tuple[Indices, Array]]:  # fmt: skip
    """Yield (positions, similarities to the landmarks) of the members that are not at ``known``, a few at a time.

    They are evaluated in float64 if the landmarks are.
    """
    rest = np.ones(len(members), dtype=bool)
    rest[known] = False
    others = np.flatnonzero(rest)
    step = max(1, evaluator.chunk_entries // max(1, count_objects(landmarks)))
    precisely = getattr(landmarks, "dtype", None) == np.float64
    for start in range(0, len(others), step):
        part = others[start : start + step]
        rows = take(objects, members[part])
        yield part, evaluator.cross(precise(rows) if precisely else rows, landmarks, self_similarities)


def _bounded(
    Q: Array, scales: Array, objects: Any, members: Indices, found: Sketch, evaluator: Evaluator
) -> NDArray[np.bool_]:
    """Which columns of Q to keep so that |q(x)|² is not many times the largest known similarity of x.

    For a psd kernel |q(x)|² is at most k(x, x). If it is much larger, a small w was inverted whose direction is large
    at x. Such columns are left out, the worst first. The test uses at most CANDIDATES members.
    """
    n, k = Q.shape
    spots = np.arange(0, n, -(-n // CANDIDATES))  # in the caller's order, which is as good as a random one
    known = np.diagonal(found.similarities)[:1]  # one is enough if all are equal
    constant = evaluator.kernel.traits.constant_diagonal
    own = np.maximum(scales[spots], np.abs(known if constant else evaluator.diag(take(objects, members[spots]))))
    own[own == 0.0] = float(own.max()) or 1.0
    with np.errstate(over="ignore"):
        shares = np.minimum((Q[spots].astype(np.float64) / np.sqrt(own)[:, None]) ** 2, 1e150)  # (m, k)
    kept = np.ones(k, dtype=bool)
    total = shares.sum(1)
    while kept.any() and float((total**2).mean()) > MAX_BASIS_GROWTH**2:
        blame = np.where(kept, shares.T @ total, -1.0)
        kept[int(np.argmax(blame))] = False
        total = shares[:, kept].sum(1)
    return kept
