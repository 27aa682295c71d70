"""A cluster in, a basis out: landmarks, the Nyström columns, ranks, and the map that extends them (Part 2, Eq. 4).

For each cluster, landmarks Z_i, W = k(Z_i, Z_i) = V diag(w) Vᵀ and Q_i = k(X_i, Z_i) V_k |w_k|^(-1/2). The signs of w
are kept for the diagonal of L: the published code (and scikit-learn's Nystroem) takes an SVD and so flips an
indefinite kernel silently. Eigenvalues that are zero to rounding are left out rather than inverted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from krein.approximation.landmarks import CANDIDATES, choose_landmarks
from krein.arrays import Array, Indices
from krein.errors import warn
from krein.factorization.storage import gram, tiles
from krein.kernels import Evaluator, Kernel, count_objects, take
from krein.kernels.collections import is_sparse

__all__ = ["LandmarkMap", "Sketch", "nystrom", "object_bytes", "right_divide", "sketch"]

CUTOFF = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}  # |w| below this share of the largest: see sketch
TOO_LARGE = 4.0  # |q(x)|² against the largest similarity of x known, in the mean square: beyond, Q has exploded
TOO_LONG = 3.0  # a new object's similarities to its cluster, against the largest at the fit


@dataclass(frozen=True, eq=False)
class LandmarkMap:
    """The out-of-sample extension of one basis: u(x) = k(x, Z) T (supplement, Sec. 4, the indirect way)."""

    landmarks: Any  # Z, the objects themselves
    rows: Indices  # (l,) which of the caller's rows they are
    transform: Array  # T, shape (l, k)
    self_similarities: Array | None = None  # of an Anchored kernel: k(z, z) before normalisation, say
    usual: float = math.inf  # the largest |k(z, Z)| of a landmark z
    block: Array | None = (
        None  # M_ii, (k, k): |u(x) M_ii| is the size of x's similarities to the cluster; see `limited`
    )
    reach: float = math.inf  # how large that may be

    def __call__(self, evaluator: Evaluator, objects: Any, known: Array | None = None) -> Array:
        """The rows u(x), streamed; ``known`` are similarities to the first landmarks, where a caller has them."""
        out = np.empty((count_objects(objects), self.transform.shape[1]))
        n_shortened, first = 0, 0 if known is None else known.shape[1]
        own = None if self.self_similarities is None else self.self_similarities[first:]
        rest = take(self.landmarks, np.arange(first, len(self.transform))) if first else self.landmarks
        for rows, block in evaluator.chunks(objects, rest, diag_B=own):
            block = block if known is None else np.hstack([known[rows], block])
            out[rows] = block @ self.transform
            if self.block is not None:
                limits = self.reach * np.maximum(1.0, _lengths(block) / (self.usual or 1.0))
                lengths = _lengths(out[rows] @ self.block)
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
        """The same map of a basis U_i, told how large similarities were at the fit unless the kernel is psd.

        For a psd kernel |k(x, Z) v|² <= w k(x, x): a weak direction stays weak for every x. Otherwise k(x, Z) v / w can
        be anything: errors of 300 |k(x, X)| were seen beside 3e-8 at the fit.
        """
        if kernel.traits.psd is True or basis.size == 0:
            return self
        largest = max(float(_lengths(part @ block).max()) for _, part in tiles(basis))
        return replace(self, block=block, reach=TOO_LONG * largest)

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
    """transform @ pinv(R); R is square and well conditioned but for storage that lost a direction."""
    if R.shape[0] == R.shape[1] and np.array_equal(R, np.eye(len(R))):  # bases stored as they are
        return transform
    if R.shape[0] == R.shape[1] and R.size:
        return np.asarray(scipy.linalg.solve(R.T, transform.T, check_finite=False).T)
    return np.asarray(transform @ np.linalg.pinv(R))


def _lengths(rows: Array) -> Array:
    """|row| for each row; the largest entry is taken out, so that no square overflows."""
    peak = float(np.abs(rows).max(initial=0.0)) or 1.0
    return np.asarray(peak * np.linalg.norm(rows / peak, axis=1))


def object_bytes(objects: Any) -> int:
    """Bytes that a collection of objects takes; for lists, those of the items without what they refer to."""
    if is_sparse(objects):
        return int(objects.data.nbytes + objects.indices.nbytes + objects.indptr.nbytes)
    return int(objects.nbytes) if isinstance(objects, np.ndarray) else sum(map(sys.getsizeof, objects))


@dataclass(frozen=True, eq=False)
class Sketch:
    """What the landmarks alone tell of a cluster: the eigenvalues of W, strongest first, and their vectors."""

    rows: Indices  # (l,) the caller's rows
    landmarks: Any
    values: Array  # (m,) eigenvalues by falling magnitude, those that are zero to rounding left out
    vectors: Array  # (l, m)
    similarities: Array  # W, (l, l)
    self_similarities: Array | None
    representative: bool  # whether the landmarks are spread like the members, so that W is K_i in small


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
    """Choose landmarks among ``members`` and take W apart; ``places`` gives objects without vectors coordinates.

    Rounding of kernel values moves each w by some eps |W|, and the direction of w counts as 1 / w: what is not well
    above that is left out. Only where all members of a psd kernel are landmarks is nothing amplified, and all kept.
    Without ``guarded`` the limit is rounding itself, as in a pseudo-inverse.
    """
    rows = choose_landmarks(objects, members, n_landmarks, rule, evaluator, rng, places)
    landmarks = take(objects, rows)
    W = evaluator.symmetric(landmarks, rows)
    values, vectors = np.linalg.eigh(W.astype(np.float64))
    order = np.argsort(-np.abs(values), kind="stable")
    rounding = len(values) * float(np.finfo(W.dtype).eps)
    harmless = not guarded or (len(rows) == len(members) and evaluator.kernel.traits.psd is True)
    share = rounding if harmless else max(rounding, CUTOFF[W.dtype])
    order = order[np.abs(values[order]) > share * float(np.abs(values).max(initial=0.0))]
    own = evaluator.own(landmarks)
    return Sketch(rows, landmarks, values[order], vectors[:, order], W, own, rule == "uniform")


def nystrom(
    objects: Any, members: Indices, rank: int, found: Sketch, evaluator: Evaluator, dtype: Any, guarded: bool = True
) -> tuple[Array, Array, LandmarkMap]:
    """Return (Q_i, signs, map): K_i ~ Q_i diag(signs) Q_iᵀ of rank <= ``rank`` (Eq. 4), and q(x) = k(x, Z) T.

    The landmarks' own rows come from W, so that exactly n_i l kernel entries are evaluated. Q_i is Fortran-ordered, for
    a QR in place. An indefinite kernel can have a small w whose direction is anything but small elsewhere: `_steady`
    leaves such directions out (k < ``rank``), at the price of some self-similarities where those are not constant.

    With uniform landmarks the directions kept are W's strongest, as in the paper. Others may have put one landmark on
    most of the cluster and the rest on outliers (on such data errors of 0.44 were seen where 0.006 is possible): there
    all of W is used and the strongest directions of the result are kept, unless W is indefinite, where that explodes.
    Without ``guarded`` it is Eq. 4 as it stands for any landmarks, and no direction is left out.
    """
    rank = min(rank, len(found.values))
    k = rank if not guarded or found.representative or (found.values < 0).any() else len(found.values)
    transform = found.vectors[:, :k] / np.sqrt(np.abs(found.values[:k]))
    Q = np.empty((len(members), k), dtype=dtype, order="F")
    known = np.searchsorted(members, found.rows)
    Q[known] = found.similarities @ transform
    scales = np.empty(len(members))  # the largest |k(x, z)| of each member
    scales[known] = np.abs(found.similarities).max(1)
    rest = np.ones(len(members), dtype=bool)
    rest[known] = False
    others = np.flatnonzero(rest)
    step = max(1, evaluator.chunk_entries // max(1, len(found.rows)))
    for start in range(0, len(others), step):
        part = others[start : start + step]
        block = evaluator.cross(take(objects, members[part]), found.landmarks, found.self_similarities)
        Q[part] = block @ transform
        scales[part] = np.abs(block).max(1)
    values = found.values[:k]
    if guarded and evaluator.kernel.traits.psd is not True and len(others):  # else |q(x)|² <= k(x, x), always
        kept = _steady(Q, scales, objects, members, found, evaluator)
        if not kept.all():
            Q, values, transform = np.asfortranarray(Q[:, kept]), values[kept], transform[:, kept]
    if Q.shape[1] > rank:  # w > 0 for all, so that the best approximation of Q Qᵀ is Q P Pᵀ Qᵀ, P leading in QᵀQ
        P = np.linalg.eigh(gram(Q))[1][:, : -rank - 1 : -1]  # (k, rank)
        Q, values, transform = np.asfortranarray(Q @ P.astype(dtype)), np.ones(rank), transform @ P
    usual = float(_lengths(found.similarities).max())
    return Q, np.sign(values), LandmarkMap(found.landmarks, found.rows, transform, found.self_similarities, usual)


def _steady(
    Q: Array, scales: Array, objects: Any, members: Indices, found: Sketch, evaluator: Evaluator
) -> NDArray[np.bool_]:
    """Which columns to keep so that |q(x)|² stays comparable with the similarities of x itself, over the members.

    For a psd kernel it is at most k(x, x). Where it is many times all that is known of x, a small w was inverted whose
    direction is anything but small at x; the columns to blame go, worst first. At most 4096 members are looked at.
    """
    n, k = Q.shape
    spots = np.arange(0, n, -(-n // CANDIDATES))  # members are in the caller's order: as good as any
    known = np.diagonal(found.similarities)[:1]  # one self-similarity tells all where they are constant
    constant = evaluator.kernel.traits.constant_diagonal
    own = np.maximum(scales[spots], np.abs(known if constant else evaluator.diag(take(objects, members[spots]))))
    own[own == 0.0] = float(own.max()) or 1.0
    with np.errstate(over="ignore"):
        shares = np.minimum((Q[spots].astype(np.float64) / np.sqrt(own)[:, None]) ** 2, 1e150)  # (m, k)
    kept = np.ones(k, dtype=bool)
    total = shares.sum(1)
    while kept.any() and float((total**2).mean()) > TOO_LARGE**2:
        blame = np.where(kept, shares.T @ total, -1.0)
        kept[int(np.argmax(blame))] = False
        total = shares[:, kept].sum(1)
    return kept
