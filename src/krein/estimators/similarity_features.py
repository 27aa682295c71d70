"""Similarities as features: an object is described by how similar it is to landmarks, and the kernel need not be psd.

In: objects, a kernel, the number of landmarks. Out: `SimilarityFeatures`, which has the Gram matrix of the features
phi(x) = k(x, Z) and the expansion f(x) = k(x, Z) w. `similarity_ridge` solves ridge in these features. If every object
is a landmark the Gram matrix is K². This is ``correction="square"`` without an eigendecomposition: one matrix product
and one Cholesky factor. If all of K is known the other corrections are available too: "shift" by Lanczos iteration,
"clip" and "flip" by an eigendecomposition.

*Scale.* K² grows with n. Over the root mean square eigenvalue of K, r = |K|_F / sqrt(n), it has the units of K for any
n, so that an alpha or a C that serves on some of the rows serves on all. With m of n objects as landmarks,
k(x, Z) k(Z, y) n / m stands for K².

*Neighbours.* Where similarities are expensive the landmarks are few, and small differences between near objects are
lost. Objects are then put into small blocks by their similarities to the landmarks, and similarities within a block are
features too. A new object is compared with the block of the object that it resembles most.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.linalg import blas
from sklearn.exceptions import ConvergenceWarning

from krein.arrays import Array, Indices, stream
from krein.choosing.candidates import Candidate, Selection
from krein.estimators.choose_correction import CUTOFF, folds
from krein.estimators.decision import KernelExpansion, NeighbourExpansion, copied
from krein.estimators.eigenpairs import smallest_eigenvalue
from krein.estimators.kernel_matrix import fill_symmetric
from krein.factorization.correction import changed
from krein.kernels import Evaluator, Kernel, take
from krein.progress import progress_bar

__all__ = [
    "SCORE_ALPHAS", "STRIP_ENTRIES", "LandmarkScore", "SimilarityFeatures", "block_rows", "landmark_choice",
    "landmark_score",     "neighbour_blocks", "row_scores", "similarity_features", "strips",
]  # fmt: skip

# Features have double precision up to DOUBLE_ROWS rows and single precision above.
DOUBLE_ROWS = 5000
# A block of neighbours has about BLOCK_ROWS objects, or BLOCK_SHARE of all, and at most LARGEST_BLOCK times as many.
BLOCK_ROWS = 100
BLOCK_SHARE = 1 / 20
LARGEST_BLOCK = 1.25
# Blocks are found by k-means in COORDINATES principal coordinates of the similarities to landmarks.
COORDINATES = 30
# A number of landmarks is scored on at most HELD_ROWS rows, by ridge on at most LEARN_ROWS others with the best of
# SCORE_ALPHAS.
HELD_ROWS = 1000
LEARN_ROWS = 4000
SCORE_ALPHAS = (0.1, 1.0, 10.0)
# Held-out rows are those of FOLDS-fold cross-validation.
FOLDS = 4
# Negative eigenvalues are counted in the matrix of SEEN_OBJECTS landmarks.
SEEN_OBJECTS = 500
# At most STRIP_ENTRIES similarities are evaluated, or converted to double precision, at a time.
STRIP_ENTRIES = 2**22
# The smallest eigenvalue is known to three digits; a shift exceeds it by SHIFT_MARGIN of itself.
SHIFT_MARGIN = 1e-3


@dataclass(frozen=True)
class LandmarkScore:
    """The score of ridge on held-out rows, with so many landmarks."""

    n_landmarks: int
    score: float  # accuracy, or R²
    standard_error: float
    seconds: float
    n_held: int  # rows that the score is a mean over


def similarity_features(
    kernel: Kernel,
    objects: Any,
    n_landmarks: int,
    *,
    neighbours: bool = False,
    known: tuple[Indices, Array] | None = None,
    targets: Array | None = None,
    task: str = "regression",
    seed: int = 0,
    verbose: int = 0,
) -> SimilarityFeatures:
    """Evaluate the similarities of all objects to ``n_landmarks`` of them, and within blocks if ``neighbours``.

    ``known`` is an order of the objects and the matrix of the first of them, landmarks among them. With ``targets``
    (n, p) a quarter of the landmarks is tried first, then half, then all. It stops at the first step that does not
    raise the score on held-out rows.
    """
    evaluator = Evaluator(kernel, chunk_entries=STRIP_ENTRIES)
    own = np.asarray(evaluator.diag(objects), dtype=np.float64)
    n, m = len(own), min(int(n_landmarks), len(own))
    dtype = np.float64 if n <= DOUBLE_ROWS else np.float32
    unit = float(np.abs(own).max(initial=0.0)) or 1.0  # values near 1, which any precision can hold
    scores: tuple[LandmarkScore, ...] = ()
    if m == n:
        landmarks: Indices = np.arange(n)
        far = fill_symmetric(kernel, objects, unit, dtype, verbose)
    else:
        order: Indices = stream(seed, 51).permutation(n) if known is None else known[0]
        K = np.empty((0, m)) if known is None else known[1]
        compared, others = order[: len(K)], order[len(K) :]
        landmarks = order[:m]
        far = np.empty((n, m), dtype=dtype)
        far[compared] = K[:, :m] / unit
        done = 0
        for count in sorted({max(1, m // 4), max(1, m // 2), m}) if targets is not None else [m]:
            _fill(far, evaluator, objects, others, landmarks, slice(done, count), unit, verbose)
            done = count
            if targets is not None:
                scores += (landmark_score(far[:, :done], own / unit, landmarks, targets, task, seed),)
                if len(scores) > 1 and scores[-1].score <= scores[-2].score:
                    break
        landmarks, far = landmarks[:done], np.ascontiguousarray(far[:, :done])
        evaluator.check_symmetric(far[landmarks], landmarks)
    near = None
    if neighbours and m < n:
        near = neighbour_blocks(
            far, block_rows(n), lambda some: fill_symmetric(kernel, take(objects, some), unit, names=some), seed
        )
    return SimilarityFeatures(kernel, objects, landmarks, far, own / unit, unit, near, seed, scores)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Blocks of similar objects, and all similarities within each."""

    order: Indices  # (n,) the objects, block after block
    starts: Indices  # (blocks + 1,)
    similarities: Any  # (n, n) CSR in the objects' own order: k(x, y) - level of objects in one block
    level: float  # the usual similarity of two objects, which says nothing
    mean: Array  # (m,)
    axes: Array  # (m, q): coordinates are (k(x, Z) - mean) axes
    places: Array  # (n, q), in the order of the blocks


@dataclass(frozen=True, eq=False)
class SimilarityFeatures:
    """Features of objects: similarities to landmarks, and to neighbours."""

    kernel: Kernel
    objects: Any
    landmarks: Indices  # (m,)
    far: Array  # (n, m): k(x, Z) / unit
    own: Array  # (n,): k(x, x) / unit
    unit: float
    near: Neighbours | None
    seed: int
    scores: tuple[LandmarkScore, ...] = ()  # of fewer landmarks and of these
    correction: str | float = "square"  # or any other (`krein.correct`), where all of K is known

    @property
    def is_whole(self) -> bool:
        """Whether every object is a landmark: ``far`` is the kernel's matrix, over ``unit``."""
        return len(self.landmarks) == len(self.own)

    @cached_property
    def root_mean_square(self) -> float:
        """|K|_F / sqrt(n) over ``unit``, from the similarities that are known."""
        squares = float(np.vdot(self.far, self.far)) if self.far.dtype == np.float64 else _sum_of_squares(self.far)
        off = squares - float(np.square(self.own[self.landmarks]).sum())
        return math.sqrt(float(np.square(self.own).mean()) + max(off, 0.0) / len(self.landmarks)) or 1.0

    @property
    def factor(self) -> float:
        """What far farᵀ is multiplied by to stand for K² / root mean square, in units of ``unit``."""
        return len(self.own) / (len(self.landmarks) * self.root_mean_square)

    @cached_property
    def _near_factor(self) -> float:
        assert self.near is not None
        size = math.sqrt(float(np.square(self.near.similarities.data).sum()) / len(self.own))
        return 1.0 / size if size else 0.0

    @cached_property
    def seen_eigenvalues(self) -> Array:
        """Of the matrix of a few hundred landmarks, ascending; a negative one that only all of K shows is the first."""
        few = np.arange(min(len(self.landmarks), SEEN_OBJECTS))
        values = np.linalg.eigvalsh(self.far[np.ix_(self.landmarks[few], few)].astype(np.float64))
        if (
            self.is_whole
            and len(few) < len(self.own)
            and values[0] >= -self._rounding(values[-1])
            and self._is_indefinite
        ):
            values[0] = self._smallest
        return self.unit * values

    def count_negative(self) -> int:
        """Negative eigenvalues among a few hundred landmarks: K has at least as many (Cauchy's interlacing)."""
        return int((self.seen_eigenvalues < -self._rounding(self.seen_eigenvalues[-1])).sum())

    @property
    def is_psd(self) -> bool:
        """Whether all of K is known, and has no negative eigenvalue."""
        return self.is_whole and self.kernel.traits.psd is not False and not self._is_indefinite

    @cached_property
    def _smallest(self) -> float:
        """The smallest eigenvalue of K over ``unit``, where all of it is known."""
        return smallest_eigenvalue(self.far)

    @property
    def _is_indefinite(self) -> bool:
        """Whether the smallest eigenvalue is negative beyond rounding."""
        if self.kernel.traits.psd:
            return False
        return self._smallest < -self._rounding(self.root_mean_square * math.sqrt(len(self.own)))

    @cached_property
    def _spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of K over ``unit``."""
        values, vectors = scipy.linalg.eigh(self.far, check_finite=False, driver="evd")
        return values, vectors

    @cached_property
    def _shift(self) -> float:
        return max(0.0, -self._smallest) * (1.0 + SHIFT_MARGIN)

    def _rounding(self, largest: float) -> float:
        return len(self.own) * float(np.finfo(self.far.dtype).eps) * abs(float(largest))

    def gram(self, scale: float = 1.0, some: Indices | None = None) -> Array:
        """The Gram matrix of the features, (n, n) in the units of k; as large as K² / root mean square / scale.

        Without neighbours, and for "square" alone, that of ``some`` of the rows can be had.
        """
        if self.correction in ("none", "shift"):
            K = self.unit * self.far
            K[np.diag_indices(len(K))] += self.unit * self._shift if self.correction == "shift" else 0.0
            return K
        F, factor = self.far if some is None else self.far[some], self.factor * self.unit / scale
        if self.correction != "square":
            values, vectors = self._spectrum
            sizes = changed(self.correction, values, 0.0)[0]
            F, factor = np.ascontiguousarray(vectors[:, sizes > 0.0] * np.sqrt(sizes[sizes > 0.0])), self.unit
        syrk = blas.dsyrk if F.dtype == np.float64 else blas.ssyrk
        G: Array = syrk(factor, F.T, trans=1, lower=1)  # F.T is in Fortran's order
        G = np.asarray(G.T)  # its upper triangle in C's order
        _mirror(G)
        if self.near is not None:
            N = self.near.similarities
            for start in range(0, len(G), DOUBLE_ROWS):
                part = slice(start, start + DOUBLE_ROWS)
                G[part] += (self._near_factor * self.unit / scale) * (N[part] @ N.T).toarray()
        return G

    def vectors(self, scale: float = 1.0) -> Array:
        """The features as vectors, (n, m): their inner products are the Gram matrix, where there are no neighbours."""
        return self.far * self.far.dtype.type(math.sqrt(self.factor * self.unit / scale))

    def expansion(self, kernel: Kernel, coefficients: Array, scale: float = 1.0) -> KernelExpansion:
        """The function sum_i g(x, x_i) c_i, g being the kernel of the Gram matrix; ``kernel`` compares new objects."""
        if self.correction in ("none", "shift") or (self.correction != "square" and not self.count_negative()):
            # a shift is of no new object; without negative eigenvalues nothing is corrected
            return KernelExpansion(kernel, copied(self.objects), coefficients)
        if self.correction != "square":
            values, vectors = self._spectrum
            kept = np.abs(values) > CUTOFF * np.abs(values).max()
            turned = np.where(kept, changed(self.correction, values, 0.0)[0] / np.where(kept, values, 1.0), 0.0)
            return KernelExpansion(
                kernel, copied(self.objects), vectors @ (turned[:, None] * (vectors.T @ coefficients))
            )
        far = self.far.T @ coefficients.astype(self.far.dtype) * (self.factor / scale)
        near = None
        if self.near is not None:
            near = (self.near.similarities.T @ coefficients) * (self._near_factor / scale)
        return self.expanded(kernel, np.asarray(far, dtype=np.float64), near)

    def expanded(self, kernel: Kernel, far: Array, near: Array | None) -> KernelExpansion:
        landmarks = copied(self.objects) if self.is_whole else take(self.objects, self.landmarks)
        if self.near is None or near is None:
            return KernelExpansion(kernel, landmarks, far)
        b = self.near
        return NeighbourExpansion(
            kernel, landmarks, far, take(self.objects, b.order), near[b.order], b.starts, b.level * self.unit,
            b.mean * self.unit, b.axes, b.places * self.unit,
        )  # fmt: skip

    # -- matrices of held-out rows -----------------------------------------------------------------------------------

    def held_out_folds(self, y: Any, task: str, count: int, n_folds: int = FOLDS) -> Iterator[tuple[Indices, Indices]]:
        """Yield (training rows, held-out rows) of a sample of ``count`` rows, landmarks first."""
        n, m = self.far.shape
        rng = stream(self.seed, 52)
        pilot = self.landmarks[rng.permutation(m)[:count]]
        if len(pilot) < min(n, count):
            others = np.setdiff1d(np.arange(n), pilot)
            pilot = np.concatenate([pilot, rng.choice(others, min(n, count) - len(pilot), replace=False)])
        for learn, held in folds(y[pilot], task, rng, n_folds):
            yield pilot[learn], pilot[held]

    def squared_matrices(self, learn: Indices, held: Indices, dtype: Any = np.float64) -> tuple[Array, Array]:
        """Return G(learn, learn) and G(held, learn) of "square", for a machine that is trained on these rows only.

        A held-out row is not a landmark or a neighbour either. Products are computed in ``dtype``.
        """
        n, m = self.far.shape
        column = np.full(n, -1)
        column[self.landmarks] = np.arange(m)
        columns = column[learn][column[learn] >= 0]
        if not len(columns):
            return np.zeros((len(learn), len(learn))), np.zeros((len(held), len(learn)))
        A, B = (self.far[np.ix_(some, columns)].astype(dtype) for some in (learn, held))
        off = float(np.vdot(A, A) - np.square(self.own[self.landmarks[columns]]).sum()) / len(columns)
        size = math.sqrt(float(np.square(self.own[learn]).mean()) + max(off, 0.0)) or 1.0
        factor = self.unit * len(learn) / (len(columns) * size)
        G, R = (factor * (some @ A.T).astype(np.float64) for some in (A, B))
        if self.near is not None:
            N = self.near.similarities[:, learn]
            own, other = N[learn], N[held]
            total = math.sqrt(float(np.square(own.data).sum()) / len(learn))
            if total:
                G += (self.unit / total) * (own @ own.T).toarray()
                R += (self.unit / total) * (other @ own.T).toarray()
        return G, R

    def own_matrices(self, learn: Indices, held: Indices, dtype: Any = np.float64) -> tuple[Array, Array]:
        """K(learn, learn) and K(held, learn) over ``unit`` in ``dtype``, where all of K is known."""
        K, R = (self.far[np.ix_(some, learn)].astype(dtype) for some in (learn, held))
        return K, R


def landmark_choice(features: SimilarityFeatures) -> Selection:
    """What was tried, as ``selection_`` shows it: the score of fewer landmarks, and what more would bring."""
    scores, n = features.scores, len(features.own)
    last, gains = scores[-1], np.diff([s.score for s in scores])
    if features.is_whole:
        reason = f"learned from {last.n_landmarks} of {n} objects that are compared with each other"
    else:
        reason = f"{last.n_landmarks} of {n} objects are landmarks"
    reason += f": score {last.score:.4f}"
    if len(gains):
        reason += f", with half as many {scores[-2].score:.4f}"
        more = float(gains[-1])
        if len(gains) > 1 and 0.0 < gains[-1] < gains[-2]:
            more *= float(gains[-1] / gains[-2])
        ending = f"about {more:.4f}" if more > 0.0 else "nothing"
        reason += f"; twice as many would bring {ending} (standard error {last.standard_error:.4f})"
    size = features.far.dtype.itemsize
    tried = tuple(
        Candidate(
            1, s.n_landmarks, str(features.far.dtype), size * n * s.n_landmarks, score=s.score, seconds=s.seconds,
            kernel=features.kernel,
        )
        for s in scores
    )  # fmt: skip
    parameters = {"n_blocks": 1, "rank": last.n_landmarks, "drop": 0.0, "dtype": "float64", "max_memory": None}
    return Selection(
        tried, reason, len(tried) - 1, parameters, features.kernel, n_scored=last.n_held,
        seconds=sum(s.seconds for s in scores),
    )  # fmt: skip


def _fill(
    far: Array, evaluator: Evaluator, objects: Any, some: Indices, landmarks: Indices, columns: slice, unit: float,
    verbose: int,
) -> None:  # fmt: skip
    """Write the similarities of ``some`` objects to the landmarks of these columns."""
    prepared = evaluator.against(take(objects, landmarks[columns]))
    step = max(1, STRIP_ENTRIES // max(1, prepared.n_columns))
    for start in progress_bar(range(0, len(some), step), what="similarities", verbose=verbose):
        part = some[start : start + step]
        far[part, columns] = prepared.block(take(objects, part)) / unit


def landmark_score(far: Array, own: Array, landmarks: Indices, y: Array, task: str, seed: int) -> LandmarkScore:
    """Score ridge on held-out rows that are not landmarks; alpha is the best of a few."""
    begun = time.perf_counter()
    n, m = far.shape
    others = stream(seed, 54).permutation(np.setdiff1d(np.arange(n), landmarks))
    held, learn = np.split(others, [min(HELD_ROWS, max(1, len(others) // 3))])
    learn = np.concatenate([landmarks[:m], learn])[:LEARN_ROWS]
    A, B = far[learn], far[held]
    size = math.sqrt(float(np.square(own).mean()) + float(np.square(A[: min(len(A), 1000)]).mean()) * len(learn)) or 1.0
    wide = m > len(learn)  # then the system of the rows is the smaller one
    inner = (A @ A.T if wide else A.T @ A).astype(np.float64)
    right, between = (y[learn], B @ A.T) if wide else (A.T @ y[learn].astype(A.dtype), B)
    best = -math.inf
    chosen: Array = np.zeros(len(held))
    for alpha in SCORE_ALPHAS:
        system = inner + alpha * size * m / len(learn) * np.eye(len(inner))
        guess = between @ scipy.linalg.solve(system, right.astype(np.float64), assume_a="pos")
        values = row_scores(guess, y[held], task, y[learn].mean(0))
        if values.mean() > best:
            best, chosen = float(values.mean()), values
    error = float(chosen.std()) / math.sqrt(len(chosen))
    return LandmarkScore(m, best, error, time.perf_counter() - begun, len(held))


def row_scores(guess: Array, y: Array, task: str, mean: Any = 0.0) -> Array:
    """The score of each row: 1 for the right class and 0 for another, or the share of the spread that is explained."""
    if task == "classification":
        right = (guess > 0.0)[:, 0] == (y[:, 0] > 0.0) if y.shape[1] == 1 else guess.argmax(1) == y.argmax(1)
        return np.asarray(right * 1.0)
    spread = float(np.square(y - mean).sum(1).mean()) or 1.0
    return np.asarray(1.0 - np.square(y - guess).sum(1) / spread)


def block_rows(n: int) -> float:
    """The usual number of objects in a block of neighbours, of n objects in all."""
    return min(BLOCK_ROWS, BLOCK_SHARE * n)


def neighbour_blocks(far: Array, size: float, similarities: Callable[[Indices], Array], seed: int) -> Neighbours:
    """Put objects into blocks of about ``size`` by their similarities to the landmarks.

    ``similarities`` gives those within each block.
    """
    from sklearn.cluster import KMeans  # loads much that other machines do not need

    n, m = far.shape
    mean = far.mean(axis=0, dtype=np.float64)
    centred = far - mean
    _, axes = scipy.linalg.eigh(centred.T @ centred, subset_by_index=(max(0, m - COORDINATES), m - 1))
    places = centred @ axes
    count = min(n, max(1, round(n / size)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of equal objects there are fewer clusters
        labels = KMeans(count, n_init=1, random_state=seed % 2**32).fit(places).labels_
    blocks: list[Any] = []
    for b in range(count):
        members = np.flatnonzero(labels == b)
        members = members[np.argsort(places[members, -1], kind="stable")]
        pieces = math.ceil(len(members) / (LARGEST_BLOCK * size)) or 1
        blocks += [part for part in np.array_split(members, pieces) if len(part)]
    level = float(np.median(far[:: max(1, n // 1000)]))
    parts, who, whom = [], [], []
    for members in blocks:
        K = similarities(members) - level
        parts.append(K.ravel())
        who.append(np.repeat(members, len(members)))
        whom.append(np.tile(members, len(members)))
    order: Indices = np.concatenate(blocks)
    found = sp.csr_matrix(
        (np.concatenate(parts).astype(np.float64), (np.concatenate(who), np.concatenate(whom))), shape=(n, n)
    )
    starts = np.concatenate([[0], np.cumsum([len(members) for members in blocks])])
    return Neighbours(order, starts, found, level, mean, axes, places[order])


def _sum_of_squares(F: Array) -> float:
    return float(sum(np.square(part.astype(np.float64)).sum() for part in strips(F)))


def strips(F: Array, entries: int = STRIP_ENTRIES) -> Iterator[Array]:
    """Yield strips of rows of at most ``entries`` entries."""
    step = max(1, entries // F.shape[1])
    for start in range(0, len(F), step):
        yield F[start : start + step]


def _mirror(G: Array, step: int = 2048) -> None:
    """Copy the upper triangle onto the lower one."""
    for start in range(0, len(G), step):
        stop = min(start + step, len(G))
        corner = G[start:stop, start:stop]
        corner[:] = np.triu(corner) + np.triu(corner, 1).T
        G[stop:, start:stop] = G[start:stop, stop:].T
