"""A cluster in, a basis out: landmarks, the Nyström columns, ranks, and the map that extends them (Part 2, Eq. 4).

Each cluster has landmarks Z_i, W = k(Z_i, Z_i) = V diag(w) Vᵀ and Q_i = k(X_i, Z_i) V_k |w_k|^(-1/2). The signs of w
are kept for the diagonal of L. The published code and scikit-learn's Nystroem take an SVD, which flips the negative
eigenvalues of an indefinite kernel. Eigenvalues that are zero to rounding are left out rather than inverted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from sklearn.utils.extmath import row_norms

from krein.approximation.clusters import scale_of, scaled
from krein.arrays import Array, Indices
from krein.errors import InputError, warn
from krein.factorization.bases import gram, tiles
from krein.kernels import Evaluator, count_objects, take
from krein.kernels.collections import is_sparse, object_bytes, precise

__all__ = [
    "ALLOCATIONS", "CANDIDATES", "LANDMARKS", "MAX_EXTENSION_GROWTH", "PER_RANK", "LandmarkMap", "Sketch",
    "allocate", "among", "candidate_places", "choose_landmarks", "nystrom", "other_rows", "right_divide",
    "row_lengths", "sketch",
]  # fmt: skip

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

    def limited(self, basis: Array, block: Array) -> LandmarkMap:
        """The map of the basis U_i with a limit on u(x), for a kernel that is not known to be psd.

        For a psd kernel |k(x, Z) v|² <= w k(x, x), so that a weak direction stays weak for every x. For an indefinite
        kernel k(x, Z) v / w has no bound: errors of 300 |k(x, X)| were seen with an error of 3e-8 at the fit.
        """
        if basis.size == 0:
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


LANDMARKS = ("uniform", "kmeans++", "rpcholesky", "leverage")
ALLOCATIONS = ("equal", "spectral", "size")
# A basis of rank k has PER_RANK * k landmarks, as in the published code.
PER_RANK = 2
# Rules other than "uniform" choose among CANDIDATES_PER_LANDMARK members of a cluster for each landmark, but among
# FEWEST_CANDIDATES at least and CANDIDATES at most.
CANDIDATES_PER_LANDMARK, FEWEST_CANDIDATES, CANDIDATES = 8, 512, 4096
# A pivoted Cholesky factorization has broken down when a residual is MAX_GROWTH times the largest self-similarity.
MAX_GROWTH = 1e3


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
    spots = candidate_places(len(members), count, rng)
    return np.sort(members[spots[among(take(objects, members[spots]), count, rule, evaluator, rng, places)]])


def candidate_places(n: int, count: int, rng: np.random.Generator) -> Indices:
    """The members of a cluster of n, ascending, among which ``count`` landmarks are chosen."""
    most = max(count, min(CANDIDATES, max(FEWEST_CANDIDATES, CANDIDATES_PER_LANDMARK * count)))
    return np.sort(rng.choice(n, most, replace=False)) if n > most else np.arange(n)


def among(
    candidates: Any, count: int, rule: str, evaluator: Evaluator, rng: np.random.Generator,
    places: Callable[[Any], Any] | None = None,
) -> Indices:  # fmt: skip
    """Which of the candidates are landmarks, by any rule but "uniform"."""
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
    return _filled(chosen, count, count_objects(candidates), rng)


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
        if not weight.any() or weight.max() > MAX_GROWTH:
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
