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
from sklearn.utils.extmath import row_norms

from krein.approximation.clusters import scale_of, scaled
from krein.arrays import Array, Indices
from krein.errors import InputError, warn
from krein.factorization.storage import gram, tiles
from krein.kernels import Evaluator, Kernel, count_objects, take
from krein.kernels.collections import is_sparse

__all__ = [
    "ALLOCATIONS",
    "LANDMARKS",
    "LandmarkMap",
    "Sketch",
    "allocate",
    "choose_landmarks",
    "nystrom",
    "right_divide",
    "sketch",
]

LANDMARKS = ("uniform", "kmeans++", "rpcholesky", "leverage")
ALLOCATIONS = ("equal", "spectral", "size")
PER_RANK = 2  # landmarks per unit of rank
CANDIDATES = 4096  # rows a landmark rule other than uniform looks at, per cluster
CUTOFF = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}  # |w| below this share of the largest: see sketch
TOO_LARGE = 4.0  # |q(x)|² against the largest similarity of x known, in the mean square: beyond, Q has exploded
TOO_LONG = 3.0  # a new object's similarities to its cluster, against the largest at the fit
GROWTH = 1e3  # a residual this many times the largest self-similarity means that an indefinite Cholesky ran away


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
) -> Sketch:
    """Choose landmarks among ``members`` and take W apart; ``places`` gives objects without vectors coordinates.

    Rounding of kernel values moves each w by some eps |W|, and the direction of w counts as 1 / w: what is not well
    above that is left out. Only where all members of a psd kernel are landmarks is nothing amplified, and all kept.
    """
    rows = choose_landmarks(objects, members, n_landmarks, rule, evaluator, rng, places)
    landmarks = take(objects, rows)
    W = evaluator.symmetric(landmarks, rows)
    values, vectors = np.linalg.eigh(W.astype(np.float64))
    order = np.argsort(-np.abs(values), kind="stable")
    rounding = len(values) * float(np.finfo(W.dtype).eps)
    harmless = len(rows) == len(members) and evaluator.kernel.traits.psd is True
    share = rounding if harmless else max(rounding, CUTOFF[W.dtype])
    order = order[np.abs(values[order]) > share * float(np.abs(values).max(initial=0.0))]
    own = evaluator.own(landmarks)
    return Sketch(rows, landmarks, values[order], vectors[:, order], W, own, rule == "uniform")


def nystrom(
    objects: Any, members: Indices, rank: int, found: Sketch, evaluator: Evaluator, dtype: Any
) -> tuple[Array, Array, LandmarkMap]:
    """Return (Q_i, signs, map): K_i ~ Q_i diag(signs) Q_iᵀ of rank <= ``rank`` (Eq. 4), and q(x) = k(x, Z) T.

    The landmarks' own rows come from W, so that exactly n_i l kernel entries are evaluated. Q_i is Fortran-ordered, for
    a QR in place. An indefinite kernel can have a small w whose direction is anything but small elsewhere: `_steady`
    leaves such directions out (k < ``rank``), at the price of some self-similarities where those are not constant.

    With uniform landmarks the directions kept are W's strongest, as in the paper. Others may have put one landmark on
    most of the cluster and the rest on outliers (on such data errors of 0.44 were seen where 0.006 is possible): there
    all of W is used and the strongest directions of the result are kept, unless W is indefinite, where that explodes.
    """
    rank = min(rank, len(found.values))
    k = rank if found.representative or (found.values < 0).any() else len(found.values)
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
    if evaluator.kernel.traits.psd is not True and len(others):  # else |q(x)|² <= k(x, x), always
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


# -- ranks -------------------------------------------------------------------------------------------------------------


def allocate(total: int, sizes: Indices, rule: str, spectra: list[Array] | None = None) -> Indices:
    """Share ``total`` out over clusters of the given sizes: at least 1 and at most n_i each, the sum exact if it fits.

    "equal": the same for each; "size": in proportion to n_i (the paper's rule 3); "spectral": to whom the ``total``
    largest |eigenvalues| of the diagonal blocks belong (rule 2), from ``spectra``, one array per cluster.
    """
    if total < len(sizes):
        raise InputError(f"total_rank must be at least 1 per block, here {len(sizes)}; got {total}.")
    if rule == "spectral":
        assert spectra is not None
        owner = np.repeat(np.arange(len(sizes)), [len(s) for s in spectra])
        strongest = np.argsort(-np.abs(np.concatenate(spectra)), kind="stable")[:total]
        wanted = np.bincount(owner[strongest], minlength=len(sizes)).astype(float)
        wanted += 1e-9 * sizes / max(1, sizes.sum())  # where spectra run out, larger clusters take the rest
    else:
        wanted = np.asarray(sizes if rule == "size" else np.ones(len(sizes)), dtype=float)
    return _shares(total, wanted, sizes)


def _shares(total: int, wanted: Array, sizes: Indices) -> Indices:
    """Integers in 1 .. n_i nearest to ``total`` in proportion to ``wanted``, by largest remainder within the limits."""
    low, high = np.ones(len(sizes), dtype=np.int64), np.asarray(sizes, dtype=np.int64)
    total = int(min(total, high.sum()))
    if total == 0:
        return np.zeros_like(high)
    ideal = total * wanted / wanted.sum()
    ranks: Indices = np.clip(np.floor(ideal).astype(np.int64), low, high)
    while (missing := total - int(ranks.sum())) != 0:
        gap = ideal - ranks
        free = ranks < high if missing > 0 else ranks > low
        order = np.argsort(-gap if missing > 0 else gap, kind="stable")
        order = order[free[order]][: abs(missing)]
        ranks[order] += 1 if missing > 0 else -1
    return ranks


# -- landmarks ---------------------------------------------------------------------------------------------------------


def choose_landmarks(
    objects: Any,
    members: Indices,
    count: int,
    rule: str,
    evaluator: Evaluator,
    rng: np.random.Generator,
    places: Callable[[Any], Any] | None = None,
) -> Indices:
    """Return ``count`` distinct rows of a cluster, ascending.

    "uniform" is the paper's. "kmeans++" spreads them in space (``places`` maps objects without vectors to coordinates),
    "rpcholesky" and "leverage" in the kernel's own feature space, on at most 4096 candidates.
    """
    if count >= len(members):
        return members
    if rule == "uniform":
        return np.sort(rng.choice(members, count, replace=False))
    most = max(CANDIDATES, count)
    spots = np.sort(rng.choice(len(members), most, replace=False)) if len(members) > most else np.arange(len(members))
    candidates = take(objects, members[spots])
    if rule == "kmeans++":
        near = candidates if places is None else places(candidates)
        near = scaled(near, scale_of(near))  # squares of 1e200 would overflow
        if not is_sparse(near):
            near = near - near.mean(0)  # distances between rows far from the origin would be rounding
        chosen = _spread(near, count, rng)
    elif rule == "rpcholesky":
        chosen = _pivoted_cholesky(candidates, count, evaluator, rng)
    else:
        chosen = _leverage(candidates, count, evaluator, rng)
    return np.sort(members[spots[_filled(chosen, count, len(spots), rng)]])


def _spread(points: Any, count: int, rng: np.random.Generator) -> Indices:
    """Draws in proportion to the squared distance to those drawn before, in rounds that grow (k-means||).

    The distances are updated once per round, so that the work is a few products instead of ``count`` small ones. Where
    a third of the points or more is wanted, uniform ones are spread as well.
    """
    n = points.shape[0]
    if 3 * count >= n:
        return rng.choice(n, count, replace=False)
    squares = row_norms(points, squared=True).astype(np.float64)
    chosen = rng.integers(n, size=1)
    latest, nearest = chosen, np.full(n, np.inf)
    while True:
        cross = points[latest] @ points.T  # (m, n)
        cross = np.asarray(cross.toarray() if is_sparse(cross) else cross, dtype=np.float64)
        np.minimum(nearest, (squares - 2.0 * cross + squares[latest, None]).min(0), out=nearest)
        nearest[chosen] = 0.0
        weight = np.where(nearest > 1e-12 * squares, nearest, 0.0)  # what is left of equal points is rounding
        size = min(count - len(chosen), max(1, min(len(chosen), count // 8)), int(np.count_nonzero(weight)))
        if size == 0:
            return chosen
        latest = rng.choice(n, size, replace=False, p=weight / weight.sum())
        chosen = np.concatenate([chosen, latest])


def _filled(chosen: Indices, count: int, n: int, rng: np.random.Generator) -> Indices:
    """Distinct indices, completed uniformly: duplicate rows can make any rule stop early."""
    distinct = np.unique(np.asarray(chosen, dtype=np.intp))
    if len(distinct) == count:
        return distinct
    return np.concatenate([distinct, rng.choice(np.setdiff1d(np.arange(n), distinct), count - len(distinct), False)])


def _pivoted_cholesky(objects: Any, count: int, evaluator: Evaluator, rng: np.random.Generator) -> Indices:
    """Randomly pivoted Cholesky (Chen, Epperly, Tropp, Webber 2022): pivots drawn by the size of the residual diagonal.

    For an indefinite kernel the residual's magnitude stands in, a pivot whose own residual is nothing is passed over,
    and residuals that outgrow the kernel end the draw: the caller fills up uniformly.
    """
    n = count_objects(objects)
    residual = evaluator.diag(objects).astype(np.float64)
    peak = float(np.abs(residual).max(initial=0.0))
    residual = residual / (peak or 1.0)
    columns, signs = np.zeros((n, count)), np.zeros(count)
    chosen: list[int] = []
    while len(chosen) < count:
        weight = np.abs(residual)
        weight[chosen] = 0.0
        weight[weight <= 1e-12] = 0.0
        if not weight.any() or weight.max() > GROWTH:
            break
        pivot = int(rng.choice(n, p=weight / weight.sum()))
        j = len(chosen)
        column = evaluator.block(objects, take(objects, np.array([pivot])))[:, 0].astype(np.float64) / peak
        column = column - (columns[:, :j] * signs[:j]) @ columns[pivot, :j]
        columns[:, j], signs[j] = column / np.sqrt(abs(residual[pivot])), np.sign(residual[pivot])
        residual = residual - signs[j] * columns[:, j] ** 2
        chosen.append(pivot)
    return np.asarray(chosen, dtype=np.intp)


def _leverage(objects: Any, count: int, evaluator: Evaluator, rng: np.random.Generator) -> Indices:
    """Draws by ridge leverage, diag(|K| (|K| + ridge I)⁻¹), ridge = tail / count, on at most 4 count candidates."""
    n = count_objects(objects)
    spots = np.sort(rng.choice(n, min(n, 4 * count), replace=False))
    values, vectors = np.linalg.eigh(evaluator.symmetric(take(objects, spots)).astype(np.float64))
    size = np.sort(np.abs(values))[::-1]
    ridge = max(float(size[count:].sum()) / count, 1e-12 * float(size.max(initial=0.0)), np.finfo(float).tiny)
    score = np.einsum("ij,j->i", vectors**2, np.abs(values) / (np.abs(values) + ridge))
    score = np.maximum(score, 1e-12)
    return spots[rng.choice(len(spots), min(count, len(spots)), replace=False, p=score / score.sum())]
