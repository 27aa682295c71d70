"""Similarities as features: an object is described by how similar it is to landmarks, and the kernel need not be psd.

In: objects, a kernel, the number of landmarks. Out: `SimilarityFeatures`: the Gram matrix of phi(x) = k(x, Z), ridge in
these features, and the expansion f(x) = k(x, Z) w. With every object a landmark the Gram matrix is K², so that this is
``correction="square"`` without an eigendecomposition: one matrix product, one Cholesky factor. The other corrections of
K are there too, where all of K is known: a shift by Lanczos, clip and flip by an eigendecomposition.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.linalg import blas, lapack
from sklearn.exceptions import ConvergenceWarning
from tqdm import tqdm

from krein.arrays import Array, Indices, stream
from krein.choosing.candidates import Candidate, Selection
from krein.errors import InputError, warn
from krein.estimators.choose_correction import CUTOFF, Corrected, folds, preferred, row_scores, svm_predictions
from krein.estimators.expansion import KernelExpansion, NeighbourExpansion, copied
from krein.estimators.kernel_matrix import fill_symmetric, smallest_eigenvalue
from krein.factorization.correction import changed
from krein.kernels import Evaluator, Kernel, take
from krein.kernels.collections import rows

__all__ = ["SimilarityFeatures", "landmark_choice", "similarity_features"]

# Features have double precision up to DOUBLE_ROWS rows and single precision above.
DOUBLE_ROWS = 5000
# A block of neighbours has about BLOCK_ROWS objects, and never more than LARGEST_BLOCK.
BLOCK_ROWS = 100
LARGEST_BLOCK = 125
# Blocks are found by k-means in COORDINATES principal coordinates of the similarities to landmarks.
COORDINATES = 30
# alpha="loo" is chosen by FOLDS-fold cross-validation on a sample of PILOT_ROWS rows.
PILOT_ROWS = 1600
FOLDS = 4
# The correction is chosen by FOLDS-fold cross-validation on a sample of CHOICE_ROWS rows. A candidate that is HOPELESS
# standard errors behind the best one after a fold is not tried in the next.
CHOICE_ROWS = 2400
HOPELESS = 3.0
# Beside a given C or alpha the Gram matrix is K² / (scale r), with one of these scales; the first in case of doubt.
SCALES = (1.0, 0.1, 0.01)
# A number of landmarks is scored on at most HELD_ROWS rows, by ridge on at most LEARN_ROWS others with the best of
# SCORE_ALPHAS.
HELD_ROWS = 1000
LEARN_ROWS = 4000
SCORE_ALPHAS = (0.1, 1.0, 10.0)
# Negative eigenvalues are counted in the matrix of SEEN_OBJECTS landmarks.
SEEN_OBJECTS = 500
# At most STRIP_ENTRIES similarities are evaluated, or converted to double precision, at a time.
STRIP_ENTRIES = 2**22
# The smallest eigenvalue is known to three digits; a shift exceeds it by SHIFT_MARGIN of itself.
SHIFT_MARGIN = 1e-3
# The solution of ridge is refined in at most REFINEMENTS steps until the residual is REFINED of the right hand side. If
# more than LOST of it remains, the system counts as singular in the precision of the factor.
REFINED = 1e-9
REFINEMENTS = 10
LOST = 1e-6


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
    targets: Array | None = None,
    task: str = "regression",
    seed: int = 0,
    verbose: int = 0,
) -> SimilarityFeatures:
    """Evaluate the similarities of all objects to ``n_landmarks`` of them, and within blocks if ``neighbours``.

    With ``targets`` (n, p) a quarter of the landmarks is tried first, then half, then all. It stops at the first step
    that does not raise the score on held-out rows.
    """
    evaluator = Evaluator(kernel, chunk_entries=STRIP_ENTRIES)
    own = np.asarray(evaluator.diag(objects), dtype=np.float64)
    n, m = len(own), min(int(n_landmarks), len(own))
    dtype = np.float64 if n <= DOUBLE_ROWS else np.float32
    unit = float(np.abs(own).max(initial=0.0)) or 1.0  # values near 1, which any precision can hold
    scores: tuple[LandmarkScore, ...] = ()
    if m == n:
        landmarks = np.arange(n)
        far = fill_symmetric(kernel, objects, unit, dtype, verbose)
    else:
        landmarks = stream(seed, 51).permutation(n)[:m]
        far = np.empty((n, m), dtype=dtype)
        done = 0
        for count in sorted({max(1, m // 4), max(1, m // 2), m}) if targets is not None else [m]:
            _fill(far[:, done:count], evaluator, objects, landmarks[done:count], unit, verbose)
            done = count
            if targets is not None:
                scores += (_landmark_score(far[:, :done], own / unit, landmarks, targets, task, seed),)
                if len(scores) > 1 and scores[-1].score <= scores[-2].score:
                    break
        landmarks, far = landmarks[:done], np.ascontiguousarray(far[:, :done])
        evaluator.check_symmetric(far[landmarks], landmarks)
    near = _neighbours(evaluator, objects, far, unit, seed) if neighbours and m < n else None
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
    correction: str = "square"  # or "none", "shift", "clip", "flip": what is done to K, where all of it is known

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
    def _factor(self) -> float:
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
        if self.correction != "square":
            values, vectors = self._spectrum
            return np.asarray((vectors * (self.unit * changed(self.correction, values, 0.0)[0])) @ vectors.T)
        syrk = blas.dsyrk if self.far.dtype == np.float64 else blas.ssyrk
        far = self.far if some is None else self.far[some]
        G: Array = syrk(self._factor * self.unit / scale, far.T, trans=1, lower=1)  # far.T is in Fortran's order
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
        return self.far * self.far.dtype.type(math.sqrt(self._factor * self.unit / scale))

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
        far = self.far.T @ coefficients.astype(self.far.dtype) * (self._factor / scale)
        near = None
        if self.near is not None:
            near = (self.near.similarities.T @ coefficients) * (self._near_factor / scale)
        return self._expanded(kernel, np.asarray(far, dtype=np.float64), near)

    def _expanded(self, kernel: Kernel, far: Array, near: Array | None) -> KernelExpansion:
        landmarks = copied(self.objects) if self.is_whole else take(self.objects, self.landmarks)
        if self.near is None or near is None:
            return KernelExpansion(kernel, landmarks, far)
        b = self.near
        return NeighbourExpansion(
            kernel, landmarks, far, take(self.objects, b.order), near[b.order], b.starts, b.level * self.unit,
            b.mean * self.unit, b.axes, b.places * self.unit,
        )  # fmt: skip

    # -- ridge -----------------------------------------------------------------------------------------------------

    def ridge(
        self, kernel: Kernel, y: Array, weights: Array, alpha: Array, scale: float = 1.0
    ) -> tuple[Array, KernelExpansion]:
        """(G + alpha W⁻¹)⁻¹ y for y of shape (n, p) and one alpha per column, and the function it stands for."""
        dual, far = np.empty(y.shape), np.empty((self.far.shape[1], y.shape[1]))
        by_gram = self.correction != "square" or self.near is not None
        G = self.gram(scale) if by_gram else None
        inner: dict[Any, Array] = {}
        for t in np.unique(alpha):
            mine = alpha == t
            if G is not None:
                dual[:, mine] = _solve_gram(G, y[:, mine], weights, float(t))
            else:
                far[:, mine] = self._solve_inner(
                    inner, y[:, mine], weights, float(t) / self._factor / self.unit * scale
                )
                rest = y[:, mine] - _times(self.far, far[:, mine])
                dual[:, mine] = weights[:, None] * rest / (t or 1.0)
        if G is not None:
            return dual, self.expansion(kernel, dual, scale)
        return dual, self._expanded(kernel, far / self.unit, None)

    def _inner(self, weights: Array, dtype: Any) -> Array:
        """farᵀ W far, the upper triangle of it in C's order, computed in ``dtype``."""
        m = self.far.shape[1]
        syrk = blas.dsyrk if dtype == np.float64 else blas.ssyrk
        out, start = np.zeros((m, m), dtype=dtype, order="F"), 0
        for part in _strips(self.far, STRIP_ENTRIES if dtype != self.far.dtype else 16 * STRIP_ENTRIES):
            root = np.sqrt(weights[start : start + len(part)])
            scaled = part.astype(dtype, copy=False) if np.all(root == 1.0) else (part * root[:, None]).astype(dtype)
            out = syrk(1.0, scaled.T, beta=1.0, c=out, lower=1, overwrite_c=1)
            start += len(part)
        return np.asarray(out.T)

    def _solve_inner(self, inner: dict[Any, Array], y: Array, weights: Array, ridge: float) -> Array:
        """(farᵀ W far + ridge I)⁻¹ farᵀ W y by a Cholesky factor, refined with the features themselves.

        The factor has double precision where single does not converge: a small ridge is beyond its rounding.
        """
        asked = ridge
        for dtype in dict.fromkeys((self.far.dtype.type, np.float64)):
            if dtype not in inner:
                inner[dtype] = self._inner(weights, dtype)
            found, left = self._refined(inner[dtype], y, weights, ridge)
            if left <= LOST:
                return found
        least = float(np.finfo(float).eps) * float(np.trace(inner[np.float64])) or 1.0
        if not math.isfinite(least):
            raise InputError("Squares of the similarities are too large to be held. Divide the kernel by a constant.")
        while not left <= LOST:
            ridge = max(10.0 * ridge, least)
            found, left = self._refined(inner[np.float64], y, weights, ridge)
        warn(
            f"alpha leaves a system of {len(found)} similarities that is singular to rounding; one "
            f"{ridge / asked if asked else math.inf:.1g} times as large is used. Pass a larger alpha."
        )
        return found

    def _refined(self, inner: Array, y: Array, weights: Array, ridge: float) -> tuple[Array, float]:
        """The solution, and the share of the right hand side that its residual is; infinity if there is no factor."""
        F, (m, p) = self.far, (len(inner), y.shape[1])
        potrf, potrs = (lapack.dpotrf, lapack.dpotrs) if inner.dtype == np.float64 else (lapack.spotrf, lapack.spotrs)
        A = inner.copy()
        A[np.diag_indices(m)] += ridge
        factor, failed = potrf(A.T, lower=1, clean=0, overwrite_a=1)
        x, left = np.zeros((m, p)), math.inf
        if failed:
            return x, left
        right = _times_transposed(F, weights[:, None] * y)
        sizes = np.maximum(np.linalg.norm(right, axis=0), np.finfo(float).tiny)
        rest = right
        for _ in range(REFINEMENTS):
            step = potrs(factor, np.asfortranarray(rest / sizes, dtype=inner.dtype), lower=1)[0].astype(np.float64)
            further = x + step * sizes
            rest = right - _times_transposed(F, weights[:, None] * _times(F, further)) - ridge * further
            now = float((np.linalg.norm(rest, axis=0) / sizes).max())
            if not now < left:
                break
            x, before, left = further, left, now
            if left <= REFINED or left > 0.5 * before:
                break
        return x, left

    # -- what is left open, on some of the rows ----------------------------------------------------------------------

    def _folds(self, y: Any, task: str, count: int | None = None) -> Iterator[tuple[Indices, Indices]]:
        """(rows to learn, rows held out) among some of the rows, landmarks first."""
        count = count or PILOT_ROWS
        n, m = self.far.shape
        rng = stream(self.seed, 52)
        pilot = self.landmarks[rng.permutation(m)[:count]]
        if len(pilot) < min(n, count):
            others = np.setdiff1d(np.arange(n), pilot)
            pilot = np.concatenate([pilot, rng.choice(others, min(n, count) - len(pilot), replace=False)])
        for learn, held in folds(y[pilot], task, rng, FOLDS):
            yield pilot[learn], pilot[held]

    def _squared(self, learn: Indices, held: Indices) -> tuple[Array, Array]:
        """The Gram matrices G(learn, learn) and G(held, learn) of a machine that learns from these rows alone.

        A held-out row is not a landmark or a neighbour either.
        """
        n, m = self.far.shape
        column = np.full(n, -1)
        column[self.landmarks] = np.arange(m)
        columns = column[learn][column[learn] >= 0]
        if not len(columns):
            return np.zeros((len(learn), len(learn))), np.zeros((len(held), len(learn)))
        A, B = (self.far[np.ix_(some, columns)].astype(np.float64) for some in (learn, held))
        off = float(np.square(A).sum() - np.square(self.own[self.landmarks[columns]]).sum()) / len(columns)
        size = math.sqrt(float(np.square(self.own[learn]).mean()) + max(off, 0.0)) or 1.0
        factor = self.unit * len(learn) / (len(columns) * size)
        G, R = factor * (A @ A.T), factor * (B @ A.T)
        if self.near is not None:
            N = self.near.similarities[:, learn]
            own, other = N[learn], N[held]
            total = math.sqrt(float(np.square(own.data).sum()) / len(learn))
            if total:
                G += (self.unit / total) * (own @ own.T).toarray()
                R += (self.unit / total) * (other @ own.T).toarray()
        return G, R

    def _own_matrices(self, learn: Indices, held: Indices) -> tuple[Array, Array]:
        """K(learn, learn) and K(held, learn), where all of K is known."""
        K, R = (self.unit * self.far[np.ix_(some, learn)].astype(np.float64) for some in (learn, held))
        return K, R

    def ridge_errors(
        self, y: Array, weights: Array, alphas: Array, classes: Indices | None = None
    ) -> tuple[Indices, Array]:
        """Return held-out rows and the errors of ridge there, (alphas, rows, p)."""
        held_out, errors = [], []
        found = [] if classes is None else list(self._folds(classes, "classification"))
        for learn, held in found or self._folds(y, "regression"):  # all of the sampled rows may have one class
            G, R = self._own_matrices(learn, held) if self.correction == "none" else self._squared(learn, held)
            root = np.sqrt(weights[learn])[:, None]
            values, V = np.linalg.eigh(root * G * root.T)
            right, left = V.T @ (root * y[learn]), (R * root.T) @ V
            inverse = 1.0 / np.maximum(np.maximum(values, 0.0) + alphas[:, None], np.finfo(float).tiny)
            held_out.append(held)
            errors.append(np.stack([y[held] - left @ (d[:, None] * right) for d in inverse]))
        return np.concatenate(held_out), np.concatenate(errors, axis=1)

    def choose_correction(
        self,
        y: Array,
        names: Sequence[str],
        *,
        task: str,
        limits: Array | None = None,
        epsilon: float = 0.1,
        alpha: float = 1.0,
        weights: Array | None = None,
    ) -> tuple[str, float]:
        """Return the correction, and the scale of "square", with the best cross-validated score.

        The machine is an SVM with C = ``limits``, one per row, or without them ridge with ``alpha`` and ``weights``.
        The first of ``names`` is taken unless another is better by half a standard error. A fold has fewer rows than
        the whole, so that C and alpha are scaled to it, except for "square", whose scale does not depend on n.
        """
        tried = [(name, scale) for name in names for scale in (SCALES if name == "square" else (1.0,))]
        scores: list[Array] = [np.empty(0) for _ in tried]
        for learn, held in self._folds(y, task, CHOICE_ROWS):
            squared, share = self._squared(learn, held), len(self.own) / len(learn)
            if any(name != "square" for name, _ in tried):
                K, between = self._own_matrices(learn, held)
                corrected = Corrected(K, share)
            for i, (name, scale) in enumerate(tried):
                if name == "square":
                    G, R, heavier = squared[0] / scale, squared[1] / scale, 1.0
                else:
                    G, R, heavier = corrected.matrix(name), corrected.rows(between, name), share
                if limits is None:
                    own = np.ones(len(y)) if weights is None else weights
                    guess = _ridge_predictions(G, R, y[learn], own[learn], alpha / heavier)
                    found = np.asarray(own[held] * row_scores(y[held], guess, "regression"), dtype=np.float64)
                else:
                    guess = svm_predictions(G, R, y[learn], limits[learn] * heavier, task, epsilon)
                    found = np.asarray(row_scores(y[held], guess, task), dtype=np.float64)
                scores[i] = np.concatenate([scores[i], found])
            best = max(scores, key=lambda values: float(values.mean()))
            behind = [float(np.mean(best - s) - HOPELESS * np.std(best - s) / math.sqrt(len(s))) for s in scores]
            kept = [i for i, b in enumerate(behind) if i == 0 or b <= 0.0]  # the first is what others have to beat
            tried, scores = [tried[i] for i in kept], [scores[i] for i in kept]
        if not len(scores[0]):  # all of the sampled rows have one class
            return tried[0]
        return tried[preferred(np.stack(scores))]


def _ridge_predictions(G: Array, between: Array, y: Array, weights: Array, alpha: float) -> Array:
    """What ridge on the Gram matrix G, trained with ``weights``, predicts from rows ``between`` new and old."""
    root = np.sqrt(weights)
    least = len(G) * float(np.finfo(float).eps) * float(np.abs(np.diagonal(G)).max()) or 1.0
    system = root[:, None] * G * root + max(alpha, least) * np.eye(len(G))
    return np.asarray(between @ (root * np.linalg.solve(system, (root * y.T).T).T).T)


def landmark_choice(features: SimilarityFeatures) -> Selection:
    """What was tried, as ``selection_`` shows it: the score of fewer landmarks, and what more would bring."""
    scores, n = features.scores, len(features.own)
    last, gains = scores[-1], np.diff([s.score for s in scores])
    reason = f"{last.n_landmarks} of {n} objects are landmarks: score {last.score:.4f}"
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


def _fill(out: Array, evaluator: Evaluator, objects: Any, landmarks: Indices, unit: float, verbose: int) -> None:
    """Write k(objects, landmarks) / unit into ``out``."""
    prepared = evaluator.against(take(objects, landmarks))
    step = max(1, STRIP_ENTRIES // max(1, len(landmarks)))
    for start in tqdm(range(0, len(out), step), desc="similarities", disable=not verbose):
        out[start : start + step] = prepared.block(rows(objects, slice(start, start + step))) / unit


def _landmark_score(far: Array, own: Array, landmarks: Indices, y: Array, task: str, seed: int) -> LandmarkScore:
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
    best, chosen = -math.inf, np.zeros(len(held))
    for alpha in SCORE_ALPHAS:
        system = inner + alpha * size * m / len(learn) * np.eye(len(inner))
        guess = between @ scipy.linalg.solve(system, right.astype(np.float64), assume_a="pos")
        if task == "classification":
            right_ones = (
                (guess > 0.0)[:, 0] == (y[held, 0] > 0.0) if y.shape[1] == 1 else guess.argmax(1) == y[held].argmax(1)
            )
            values = right_ones * 1.0
        else:
            spread = float(np.square(y[held] - y[learn].mean(0)).sum(1).mean()) or 1.0
            values = 1.0 - np.square(y[held] - guess).sum(1) / spread
        if values.mean() > best:
            best, chosen = float(values.mean()), values
    error = float(chosen.std()) / math.sqrt(len(chosen))
    return LandmarkScore(m, best, error, time.perf_counter() - begun, len(held))


def _neighbours(evaluator: Evaluator, objects: Any, far: Array, unit: float, seed: int) -> Neighbours:
    """Put objects into blocks by their similarities to the landmarks, and compare those within each block."""
    from sklearn.cluster import KMeans  # loads much that other machines do not need

    n, m = far.shape
    mean = far.mean(axis=0, dtype=np.float64)
    centred = far - mean
    _, axes = scipy.linalg.eigh(centred.T @ centred, subset_by_index=(max(0, m - COORDINATES), m - 1))
    places = centred @ axes
    count = max(1, round(n / BLOCK_ROWS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of equal objects there are fewer clusters
        labels = KMeans(count, n_init=1, random_state=seed % 2**32).fit(places).labels_
    blocks: list[Any] = []
    for b in range(count):
        members = np.flatnonzero(labels == b)
        members = members[np.argsort(places[members, -1], kind="stable")]
        pieces = -(-len(members) // LARGEST_BLOCK) or 1
        blocks += [part for part in np.array_split(members, pieces) if len(part)]
    level = float(np.median(far[:: max(1, n // 1000)]))
    parts, who, whom = [], [], []
    for members in blocks:
        K = evaluator.symmetric(take(objects, members), members) / unit - level
        parts.append(K.ravel())
        who.append(np.repeat(members, len(members)))
        whom.append(np.tile(members, len(members)))
    order: Indices = np.concatenate(blocks)
    found = sp.csr_matrix(
        (np.concatenate(parts).astype(np.float64), (np.concatenate(who), np.concatenate(whom))), shape=(n, n)
    )
    starts = np.concatenate([[0], np.cumsum([len(members) for members in blocks])])
    return Neighbours(order, starts, found, level, mean, axes, places[order])


def _solve_gram(G: Array, y: Array, weights: Array, alpha: float) -> Array:
    """(G + alpha W⁻¹)⁻¹ y; rows without weight have the coefficient 0."""
    root = np.sqrt(weights)[:, None]
    A = np.asarray(root * G * root.T, dtype=np.float64)
    least = len(A) * float(np.finfo(float).eps) * float(np.abs(np.diagonal(A)).max())
    if alpha < least:
        warn(
            f"alpha = {alpha:g} leaves a matrix that is singular to rounding; {least:.2g} is used. Pass a larger alpha."
        )
    A[np.diag_indices(len(A))] += max(alpha, least)
    factor, failed = lapack.dpotrf(A.T, lower=1, overwrite_a=1)
    if failed:
        raise InputError(f"alpha = {alpha:g} leaves a matrix that is singular to rounding. Pass a larger alpha.")
    return np.asarray(root * lapack.dpotrs(factor, root * y, lower=1)[0])


def _times(F: Array, x: Array) -> Array:
    """F x in double precision, whatever F has."""
    if F.dtype == np.float64:
        return np.asarray(F @ x)
    return np.concatenate([part.astype(np.float64) @ x for part in _strips(F)])


def _times_transposed(F: Array, x: Array) -> Array:
    """Fᵀ x in double precision, whatever F has."""
    if F.dtype == np.float64:
        return np.asarray(F.T @ x)
    out, start = np.zeros((F.shape[1], x.shape[1])), 0
    for part in _strips(F):
        out += part.astype(np.float64).T @ x[start : start + len(part)]
        start += len(part)
    return out


def _sum_of_squares(F: Array) -> float:
    return float(sum(np.square(part.astype(np.float64)).sum() for part in _strips(F)))


def _strips(F: Array, entries: int = STRIP_ENTRIES) -> Iterator[Array]:
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
