"""A cluster in, a basis out: landmarks, the Nyström columns, ranks, and the map that extends them (Part 2, Eq. 4).

For each cluster, landmarks Z_i, W = k(Z_i, Z_i) = V diag(w) Vᵀ and Q_i = k(X_i, Z_i) V_k |w_k|^(-1/2). The signs of w
are kept for the diagonal of L: the published code (and scikit-learn's Nystroem) takes an SVD and so flips an
indefinite kernel silently. Eigenvalues that are zero to rounding are left out rather than inverted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.cluster import kmeans_plusplus

from krein.arrays import Array, Indices
from krein.errors import InputError
from krein.kernels import Evaluator, Normalized, count_objects, take

__all__ = ["ALLOCATIONS", "LANDMARKS", "LandmarkMap", "Sketch", "allocate", "choose_landmarks", "nystrom", "sketch"]

LANDMARKS = ("uniform", "kmeans++", "rpcholesky", "leverage")
ALLOCATIONS = ("equal", "spectral", "size")
PER_RANK = 2  # landmarks per unit of rank
CANDIDATES = 4096  # rows a landmark rule other than uniform looks at, per cluster


@dataclass(frozen=True, eq=False)
class LandmarkMap:
    """The out-of-sample extension of one basis: u(x) = k(x, Z) T (supplement, Sec. 4, the indirect way)."""

    landmarks: Any  # Z, the objects themselves
    rows: Indices  # (l,) which of the caller's rows they are
    transform: Array  # T, shape (l, k)
    self_similarities: Array | None = None  # k(z, z) before normalisation, kept for a Normalized kernel

    def __call__(self, evaluator: Evaluator, objects: Any, out: Array | None = None) -> Array:
        """The rows u(x), streamed: k(x, Z) is never held for more than a chunk of objects."""
        if out is None:
            out = np.empty((count_objects(objects), self.transform.shape[1]))
        for rows, block in evaluator.chunks(objects, self.landmarks, diag_B=self.self_similarities):
            out[rows] = block @ self.transform
        return out

    @property
    def nbytes(self) -> int:
        extra = 0 if self.self_similarities is None else self.self_similarities.nbytes
        return int(getattr(self.landmarks, "nbytes", 0)) + self.rows.nbytes + self.transform.nbytes + extra


@dataclass(frozen=True, eq=False)
class Sketch:
    """What the landmarks alone tell of a cluster: the eigenvalues of W, strongest first, and their vectors."""

    rows: Indices  # (l,) the caller's rows
    landmarks: Any
    values: Array  # (m,) eigenvalues by falling magnitude, those that are zero to rounding left out
    vectors: Array  # (l, m)
    similarities: Array  # W, (l, l)
    self_similarities: Array | None


def sketch(
    objects: Any,
    members: Indices,
    n_landmarks: int,
    rule: str,
    evaluator: Evaluator,
    rng: np.random.Generator,
    places: Any = None,
) -> Sketch:
    """Choose landmarks among ``members`` and take W apart."""
    rows = choose_landmarks(objects, members, n_landmarks, rule, evaluator, rng, places)
    landmarks = take(objects, rows)
    W = evaluator.symmetric(landmarks)
    values, vectors = np.linalg.eigh(W.astype(np.float64))
    order = np.argsort(-np.abs(values), kind="stable")
    cutoff = len(values) * float(np.finfo(W.dtype).eps) * float(np.abs(values).max(initial=0.0))
    order = order[np.abs(values[order]) > cutoff]
    own = evaluator.kernel.kernel.diag(landmarks) if isinstance(evaluator.kernel, Normalized) else None
    return Sketch(rows, landmarks, values[order], vectors[:, order], W, own)


def nystrom(
    objects: Any, members: Indices, rank: int, found: Sketch, evaluator: Evaluator, dtype: Any
) -> tuple[Array, Array, LandmarkMap]:
    """Return (Q_i, signs, map): K_i ~ Q_i diag(signs) Q_iᵀ of rank <= ``rank`` (Eq. 4), and u(x) = k(x, Z) T with Q's T.

    The landmarks' own rows come from W, so that exactly n_i l kernel entries are evaluated. Q_i is Fortran-ordered, for
    a QR in place.
    """
    k = min(rank, len(found.values))
    transform = found.vectors[:, :k] / np.sqrt(np.abs(found.values[:k]))
    extension = LandmarkMap(found.landmarks, found.rows, transform, found.self_similarities)
    Q = np.empty((len(members), k), dtype=dtype, order="F")
    known = np.searchsorted(members, found.rows)
    Q[known] = found.similarities @ transform
    rest = np.ones(len(members), dtype=bool)
    rest[known] = False
    others = np.flatnonzero(rest)
    step = max(1, evaluator.chunk_entries // max(1, len(found.rows)))
    for start in range(0, len(others), step):
        part = others[start : start + step]
        Q[part] = extension(evaluator, take(objects, members[part]))
    return Q, np.sign(found.values[:k]), extension


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
        wanted += 1e-9 * sizes / sizes.sum()  # where spectra run out, larger clusters take the rest
    else:
        wanted = np.asarray(sizes if rule == "size" else np.ones(len(sizes)), dtype=float)
    return _shares(total, wanted, sizes)


def _shares(total: int, wanted: Array, sizes: Indices) -> Indices:
    """Integers in 1 .. n_i nearest to ``total`` in proportion to ``wanted``, by largest remainder within the limits."""
    low, high = np.ones(len(sizes), dtype=np.int64), np.asarray(sizes, dtype=np.int64)
    total = int(min(total, high.sum()))
    ideal = total * wanted / wanted.sum()
    ranks = np.clip(np.floor(ideal).astype(np.int64), low, high)
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
    places: Any = None,
) -> Indices:
    """Return ``count`` distinct rows of a cluster, ascending.

    "uniform" is the paper's. "kmeans++" spreads them in space (``places`` are the members' coordinates), "rpcholesky"
    and "leverage" in the kernel's own feature space, on at most 4096 candidates.
    """
    if count >= len(members):
        return members
    if rule == "uniform":
        return np.sort(rng.choice(members, count, replace=False))
    spots = (
        np.sort(rng.choice(len(members), CANDIDATES, replace=False))
        if len(members) > CANDIDATES
        else np.arange(len(members))
    )
    if rule == "kmeans++":
        near = places[spots] if places is not None else take(objects, members[spots])
        _, chosen = kmeans_plusplus(near, count, random_state=int(rng.integers(2**31)))
    elif rule == "rpcholesky":
        chosen = _pivoted_cholesky(take(objects, members[spots]), count, evaluator, rng)
    else:
        chosen = _leverage(take(objects, members[spots]), count, evaluator, rng)
    return np.sort(members[spots[_filled(chosen, count, len(spots), rng)]])


def _filled(chosen: Indices, count: int, n: int, rng: np.random.Generator) -> Indices:
    """Distinct indices, completed uniformly: duplicate rows can make any rule stop early."""
    distinct = np.unique(chosen)
    if len(distinct) == count:
        return distinct
    return np.concatenate([distinct, rng.choice(np.setdiff1d(np.arange(n), distinct), count - len(distinct), False)])


def _pivoted_cholesky(objects: Any, count: int, evaluator: Evaluator, rng: np.random.Generator) -> Indices:
    """Randomly pivoted Cholesky (Chen, Epperly, Tropp, Webber 2022): pivots drawn in proportion to the residual diagonal.

    For an indefinite kernel the residual's magnitude stands in, and a pivot whose own residual is nothing is passed over.
    """
    n = count_objects(objects)
    residual = evaluator.diag(objects).astype(np.float64)
    floor = 1e-12 * float(np.abs(residual).max(initial=0.0))
    columns, signs = np.zeros((n, count)), np.zeros(count)
    chosen: list[int] = []
    while len(chosen) < count:
        weight = np.abs(residual)
        weight[chosen] = 0.0
        weight[weight <= floor] = 0.0
        if not weight.any():
            break
        pivot = int(rng.choice(n, p=weight / weight.sum()))
        j = len(chosen)
        column = evaluator.block(objects, take(objects, np.array([pivot])))[:, 0]
        column = column - (columns[:, :j] * signs[:j]) @ columns[pivot, :j]
        columns[:, j], signs[j] = column / np.sqrt(abs(residual[pivot])), np.sign(residual[pivot])
        residual = residual - signs[j] * columns[:, j] ** 2
        chosen.append(pivot)
    return np.asarray(chosen, dtype=np.intp)


def _leverage(objects: Any, count: int, evaluator: Evaluator, rng: np.random.Generator) -> Indices:
    """Draws by ridge leverage score, diag(|K| (|K| + ridge I)⁻¹), on at most 4 count candidates, ridge = tail / count."""
    n = count_objects(objects)
    spots = np.sort(rng.choice(n, min(n, 4 * count), replace=False))
    values, vectors = np.linalg.eigh(evaluator.symmetric(take(objects, spots)).astype(np.float64))
    size = np.sort(np.abs(values))[::-1]
    ridge = max(float(size[count:].sum()) / count, 1e-12 * float(size.max(initial=0.0)), np.finfo(float).tiny)
    score = np.einsum("ij,j->i", vectors**2, np.abs(values) / (np.abs(values) + ridge))
    score = np.maximum(score, 1e-12)
    return spots[rng.choice(len(spots), min(count, len(spots)), replace=False, p=score / score.sum())]
