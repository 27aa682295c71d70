"""The choice of correction="auto" for an indefinite matrix: the usual one, unless another has a better validated score.

In: targets and the learner. Out: a function from an approximation to the name of a correction. A sample of rows is
split into folds. The matrix of all folds but one is corrected on its own and the learner is trained on it. Rows of the
remaining fold are treated as new objects, k(x, X) K⁺ f(K). Another correction is taken if its score is higher by more
than half a standard error of the differences between rows. docs/corrections.md has measurements.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.svm import SVC, SVR

from krein.approximation import Approximation
from krein.arrays import Array, Indices, stream
from krein.errors import one_of
from krein.factorization.core import has_spectrum
from krein.factorization.correction import changed
from krein.threads import each

__all__ = [
    "CUTOFF", "Corrected", "choose_for_features", "compared", "folds", "judge_for", "preferred",
]  # fmt: skip

# Corrections are compared on a sample of at most SAMPLED_ROWS rows, by FOLDS-fold cross-validation.
SAMPLED_ROWS = 1000
FOLDS = 10
# The cross-validation is repeated this often with other folds. It is cheap for ridge.
REPETITIONS = {"svm": 1, "ridge": 3}
# A correction replaces the first one if its score is higher by this number of standard errors.
STANDARD_ERRORS = 0.5
# LIBSVM takes at most LIBSVM_STEPS steps; what has not converged then is scored nevertheless.
LIBSVM_STEPS = 100_000
# For similarities as features the sample has FEATURE_ROWS rows, and each half of it is predicted from the other: more
# rows are scored than in more folds of the same cost. A candidate that is HOPELESS_ERRORS standard errors behind the
# best one after a fold is not tried in the next.
FEATURE_ROWS = 4800
FEATURE_FOLDS = 2
HOPELESS_ERRORS = 3.0
# With a given C or alpha, the Gram matrix of "square" is K² / (scale r) with one of these scales, by preference.
SQUARE_SCALES = (1.0, 0.1, 0.01)
# Eigenvalues below this share of the largest one count as zero.
CUTOFF = 1e-10


def judge_for(
    targets: Any,
    task: str = "classification",
    *,
    learner: str = "svm",
    strength: Any = 1.0,
    epsilon: float = 0.1,
    names: tuple[str, ...] = (),
    seed: int = 0,
) -> Callable[[Approximation], str]:
    """Return a function that chooses the correction for an approximation of rows with these targets.

    Parameters
    ----------
    targets : array of shape (n,) or (n, p)
        Labels for "classification", numbers for "regression".
    task : "classification" or "regression"
    learner : "svm" or "ridge"
        The machine that will be fitted. "shift" is a candidate for "svm" only; for ridge it is a larger alpha.
    strength : float, array of shape (n,), or dict
        C of the SVM, one for all rows or one for each. Or alpha of ridge, one for all corrections or a dict of them.
    epsilon : float
        Of support vector regression.
    names : tuple of str
        The candidates. The first is taken unless another is better. By default all that the learner has, "flip" first.
    seed : int
        Seed of the sample and of the folds.
    """
    one_of("task", task, ("classification", "regression"))
    one_of("learner", learner, ("svm", "ridge"))
    y = np.asarray(targets)

    def judge(a: Approximation) -> str:
        core = a.factorization.core
        if not has_spectrum(core):
            return "shift" if learner == "svm" else "none"  # any other would fill it
        known = names or (("flip", "clip", "square", "shift") if learner == "svm" else ("flip", "clip", "square"))
        n = a.factorization.shape[0]
        rng = stream(seed, 41)
        rows = np.sort(rng.permutation(n)[:SAMPLED_ROWS])
        K = a.factorization.entries(rows, rows)
        own = strength if isinstance(strength, dict) else np.broadcast_to(np.asarray(strength, np.float64), n)[rows]
        scores = compared(K, y[rows], known, task=task, learner=learner, strength=own, n=n, rng=rng, epsilon=epsilon)
        return known[preferred(scores)]

    return judge


def choose_for_features(
    features: Any,
    y: Array,
    names: Sequence[str],
    *,
    task: str,
    limits: Array | None = None,
    epsilon: float = 0.1,
    alpha: float = 1.0,
    weights: Array | None = None,
) -> tuple[str, float]:
    """Return the correction of similarities as features, and the scale of "square", with the best validated score.

    The machine is an SVM with C = ``limits``, one per row, or without them ridge with ``alpha`` and ``weights``. The
    first of ``names`` is taken unless another is better by half a standard error. A fold has fewer rows than the data,
    so C and alpha are scaled to it, except for "square", whose scale does not depend on n.
    """
    tried = [(name, scale) for name in names for scale in (SQUARE_SCALES if name == "square" else (1.0,))]
    scores: list[Array] = [np.empty(0) for _ in tried]
    dtype = np.float64 if limits is None else np.float32  # LIBSVM itself holds no more of a matrix
    for learn, held in features.held_out_folds(y, task, FEATURE_ROWS, FEATURE_FOLDS):
        share = len(features.own) / len(learn)
        squared = features.squared_matrices(learn, held, dtype)
        if any(name != "square" for name, _ in tried):
            K, between = features.own_matrices(learn, held, dtype)
            corrected = Corrected(K, share)
        for i, (name, scale) in enumerate(tried):
            if name == "square":
                G, R, heavier = squared[0] / scale, squared[1] / scale, 1.0
            else:
                both, heavier = (corrected.matrix(name), corrected.rows(between, name)), share
                G, R = (features.unit * part.astype(np.float64) for part in both)
            if limits is None:
                own = np.ones(len(y)) if weights is None else weights
                guess = _ridge_predictions(G, R, y[learn], own[learn], alpha / heavier)
                found = np.asarray(own[held] * _row_scores(y[held], guess, "regression"), dtype=np.float64)
            else:
                with _without_warnings():
                    guess = _svm_predictions(G, R, y[learn], limits[learn] * heavier, task, epsilon)
                found = np.asarray(_row_scores(y[held], guess, task), dtype=np.float64)
            scores[i] = np.concatenate([scores[i], found])
        best = max(scores, key=lambda values: float(values.mean()))
        behind = [float(np.mean(best - s) - HOPELESS_ERRORS * np.std(best - s) / math.sqrt(len(s))) for s in scores]
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


def compared(
    K: Array,
    y: Array,
    names: tuple[str, ...],
    *,
    task: str,
    learner: str,
    strength: Any,
    n: int,
    rng: np.random.Generator,
    epsilon: float = 0.1,
) -> Array:
    """Return the held-out score of each row of a small matrix K after each correction, (len(names), m).

    The score is 1 or 0 for a right or wrong class, or the negative squared error, averaged over the repetitions. The m
    rows are a sample of ``n``. "none" leaves K unchanged.
    """
    strengths = strength if isinstance(strength, dict) else dict.fromkeys(names, strength)
    scores, repetitions = np.zeros((len(names), len(K))), REPETITIONS[learner]

    def of_fold(train: Indices, test: Indices) -> list[Array]:
        scale = n / len(train)  # fewer rows stand for all: the same balance of loss and norm
        learn = _learner(learner, task, y[train], epsilon)
        corrected = Corrected(K[np.ix_(train, train)], scale)
        found = []
        for how in names:
            own = np.broadcast_to(np.asarray(strengths[how], dtype=np.float64), len(K))[train]
            own = own * (scale if learner == "svm" else 1.0 / scale)
            found.append(_row_scores(y[test], learn(corrected, how, K[np.ix_(test, train)], own), task))
        return found

    drawn = list(itertools.chain.from_iterable(folds(y, task, rng) for _ in range(repetitions)))
    with _without_warnings():  # around all folds, since filters belong to the process and not to a thread
        for (_, test), found in zip(drawn, each(of_fold, drawn), strict=True):
            scores[:, test] += np.stack(found) / repetitions
    return scores


def preferred(scores: Array) -> int:
    """Return the place of the correction to take: the first, unless another is better by half a standard error."""
    gain = scores - scores[0]
    best = int(np.argmax(gain.mean(1)))
    return best if gain[best].mean() > STANDARD_ERRORS * gain[best].std() / np.sqrt(scores.shape[1]) else 0


class Corrected:
    """A small matrix, corrected in every way, and the rows of new objects with it."""

    def __init__(self, K: Array, scale: float) -> None:
        self.K, self.scale = K, scale  # what all rows would be, over these
        self.values, self.vectors = np.linalg.eigh((K + K.T) / 2.0)

    def matrix(self, how: str) -> Array:
        if how == "none":
            return self.K
        if how == "shift":
            return self.K + self._shift * np.eye(len(self.K))
        return np.asarray((self.vectors * self._changed(how)) @ self.vectors.T)

    def rows(self, between: Array, how: str) -> Array:
        """k(x, X) K⁺ f(K): the corrected similarities of objects that had no part in the spectrum."""
        if how in ("none", "shift"):
            return between
        return np.asarray(((between @ self.vectors) * self._turned(how)) @ self.vectors.T)

    def ridge(self, how: str, between: Array, y: Array, alpha: float) -> Array:
        """k(x, X) K⁺ f(K) (f(K) + alpha I)⁻¹ y: what ridge says of those objects. It has no constant."""
        moved = self._changed(how) + alpha
        inverse = np.divide(1.0, moved, out=np.zeros_like(moved), where=moved != 0.0)
        return np.asarray(((between @ self.vectors) * (self._turned(how) * inverse)) @ (self.vectors.T @ y))

    @property
    def _shift(self) -> float:
        return max(0.0, -float(self.values[0]) * self.scale)

    def _turned(self, how: str) -> Array:
        """The eigenvalues of K⁺ f(K); a shift reaches no object but those it is made for."""
        if how in ("none", "shift"):
            return np.ones(len(self.values))
        kept = np.abs(self.values) > CUTOFF * np.abs(self.values).max(initial=0.0)
        return np.where(kept, self._changed(how) / np.where(kept, self.values, 1.0), 0.0)

    def _changed(self, how: str) -> Array:
        if how in ("none", "shift"):
            return self.values + (self._shift if how == "shift" else 0.0)
        return changed(how, self.values, 0.0)[0] * (self.scale if how == "square" else 1.0)  # a sum over all rows


def _learner(learner: str, task: str, y: Array, epsilon: float) -> Callable[[Corrected, str, Array, Array], Array]:
    """Return a function (matrix, correction, rows of new objects, strength) -> predictions for these objects."""

    def svm(corrected: Corrected, how: str, between: Array, strength: Array) -> Array:
        return _svm_predictions(corrected.matrix(how), corrected.rows(between, how), y, strength, task, epsilon)

    def ridge(corrected: Corrected, how: str, between: Array, strength: Array) -> Array:
        classes = np.unique(y)
        values = np.where(y[:, None] == classes, 1.0, -1.0) if task == "classification" else y.reshape(len(y), -1)
        guess = corrected.ridge(how, between, values, float(strength.mean()))
        if task == "classification":
            return np.asarray(classes[guess.argmax(1)])
        return np.asarray(guess.reshape(len(between), *y.shape[1:]))

    return svm if learner == "svm" else ridge


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Too few steps of LIBSVM, or many classes, show in the score."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _svm_predictions(G: Array, between: Array, y: Array, limits: Array, task: str, epsilon: float) -> Array:
    """What LIBSVM, trained on the Gram matrix G with C = ``limits``, predicts from rows ``between`` new and old."""
    options = {"kernel": "precomputed", "C": 1.0, "max_iter": LIBSVM_STEPS}
    machine = SVC(**options) if task == "classification" else SVR(epsilon=epsilon, **options)
    machine.fit(G, y, sample_weight=limits)
    return np.asarray(machine.predict(between))


def folds(y: Array, task: str, rng: np.random.Generator, n_folds: int = FOLDS) -> Iterator[tuple[Indices, Indices]]:
    """Yield (training rows, test rows); each row is tested once, and classes are spread over all folds."""
    mixed = rng.permutation(len(y))
    if task == "classification":
        mixed = mixed[np.argsort(y[mixed], kind="stable")]
    fold = np.empty(len(y), dtype=np.intp)
    fold[mixed] = np.arange(len(y)) % n_folds
    for i in range(n_folds):
        train, test = np.flatnonzero(fold != i), np.flatnonzero(fold == i)
        if len(test) and (task == "regression" or len(np.unique(y[train])) > 1):
            yield train, test


def _row_scores(y: Array, guess: Array, task: str) -> Array:
    """The score of each row: 1 for the right class and 0 for another, or the negative squared error."""
    if task == "classification":
        return np.asarray(y == guess, dtype=np.float64)
    return np.asarray(-np.square(y - guess).reshape(len(y), -1).sum(1))
