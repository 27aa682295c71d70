"""Which correction an indefinite matrix gets where it is left open: "flip", unless held-out rows speak for another.

In: targets and what the learner is. Out: a judge, approximation -> name. A few rows are cut into folds; the matrix of
all but one fold is corrected on its own, the learner itself is trained on it, and rows of the last fold follow as new
objects would, k(x, X) K⁺ f(K). Another correction is taken where it is better by more than one standard error, row by
row. docs/corrections.md has what was measured.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from krein.approximation import Approximation
from krein.arrays import Array, Indices, stream
from krein.blocksparse import BlockSparse
from krein.correction import changed
from krein.errors import one_of

__all__ = ["compared", "judge_for", "preferred"]

JUDGED = 1000  # rows looked at, at most
FOLDS, REPEATS = 5, 2
STEPS = 100_000  # of LIBSVM: what has not converged by then is judged as it is
CUTOFF = 1e-10  # eigenvalues below this share of the largest are zero


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
    """Return what names the correction for an approximation of rows with these targets.

    Parameters
    ----------
    targets : array of shape (n,) or (n, p)
        Labels for "classification", numbers for "regression".
    task : "classification" or "regression"
    learner : "svm" or "ridge"
        Which one is to be used afterwards. A shift is for support vectors only: to ridge it is more alpha.
    strength : float or array of shape (n,)
        C of the SVM, or one for each row; alpha of ridge.
    epsilon : float
        Of support vector regression.
    names : tuple of str
        The corrections to choose from, the one for cases of doubt first; by default all the learner has, "flip" first.
    seed : int
        Which rows are looked at, and in which folds.
    """
    one_of("task", task, ("classification", "regression"))
    one_of("learner", learner, ("svm", "ridge"))
    y = np.asarray(targets)

    def judge(a: Approximation) -> str:
        core = a.factorization.core
        if isinstance(core, BlockSparse) and not core.has_spectrum:
            return "shift" if learner == "svm" else "none"  # any other would fill it
        known = names or (("flip", "clip", "square", "shift") if learner == "svm" else ("flip", "clip", "square"))
        n = a.factorization.shape[0]
        rng = stream(seed, 41)
        rows = np.sort(rng.permutation(n)[:JUDGED])
        K = a.factorization.entries(rows, rows)
        held = np.broadcast_to(np.asarray(strength, dtype=np.float64), n)[rows]
        met = compared(
            K, y[rows], known, task=task, learner=learner, strength=held, n=n, rng=rng, epsilon=epsilon
        )  # fmt: skip
        return known[preferred(met)]

    return judge


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
    """How well each row of a small matrix K is met after each correction when it is left out, (len(names), m).

    1 or 0 for the right class or another, or the negative square of the error; a mean over two ways to cut the folds.
    ``n`` rows are what the m stand for; "none" leaves K as it is.
    """
    held = np.broadcast_to(np.asarray(strength, dtype=np.float64), len(K))
    met = np.zeros((len(names), len(K)))
    for train, test in (fold for _ in range(REPEATS) for fold in _folds(y, task, rng)):
        scale = n / len(train)  # fewer rows stand for all: the same balance of loss and norm
        own = held[train] * (scale if learner == "svm" else 1.0 / scale)
        learn = _learner(learner, task, y[train], own, epsilon)
        corrected = _Corrected(K[np.ix_(train, train)], scale)
        for i, how in enumerate(names):
            guess = learn(corrected.matrix(how), corrected.rows(K[np.ix_(test, train)], how))
            met[i, test] += _met(y[test], guess, task) / REPEATS
    return met


def preferred(met: Array) -> int:
    """Which correction to take: the first, unless another is better by more than one standard error, row by row."""
    gain = met - met[0]
    best = int(np.argmax(gain.mean(1)))
    return best if gain[best].mean() > gain[best].std() / np.sqrt(met.shape[1]) else 0


class _Corrected:
    """A small matrix, corrected in every way, and the rows of new objects with it."""

    def __init__(self, K: Array, scale: float) -> None:
        self.K, self.scale = K, scale  # what all rows would be, over these
        self.values, self.vectors = np.linalg.eigh((K + K.T) / 2.0)

    def matrix(self, how: str) -> Array:
        if how == "none":
            return self.K
        if how == "shift":
            return self.K + max(0.0, -float(self.values[0]) * self.scale) * np.eye(len(self.K))
        return np.asarray(self._factor(how) * ((self.vectors * self._changed(how)) @ self.vectors.T))

    def rows(self, between: Array, how: str) -> Array:
        """k(x, X) K⁺ f(K): the corrected similarities of objects that had no part in the spectrum."""
        if how in ("none", "shift"):
            return between
        kept = np.abs(self.values) > CUTOFF * np.abs(self.values).max(initial=0.0)
        turned = np.where(kept, self._changed(how) / np.where(kept, self.values, 1.0), 0.0)
        return np.asarray(self._factor(how) * (((between @ self.vectors) * turned) @ self.vectors.T))

    def _changed(self, how: str) -> Array:
        return changed(how, self.values, 0.0)[0]

    def _factor(self, how: str) -> float:
        return self.scale if how == "square" else 1.0  # a square is a sum over all rows


def _learner(learner: str, task: str, y: Array, strength: Array, epsilon: float) -> Callable[[Array, Array], Array]:
    """(corrected matrix, corrected rows of new objects) -> what is said of those."""

    def svm(K: Array, rows: Array) -> Array:
        options = {"kernel": "precomputed", "C": 1.0, "max_iter": STEPS}
        machine = SVC(**options) if task == "classification" else SVR(epsilon=epsilon, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return np.asarray(machine.fit(K, y, sample_weight=strength).predict(rows))

    def ridge(K: Array, rows: Array) -> Array:
        classes = np.unique(y)
        values = np.where(y[:, None] == classes, 1.0, -1.0) if task == "classification" else y.reshape(len(y), -1)
        both = np.linalg.solve(K + strength.mean() * np.eye(len(K)), np.column_stack([values, np.ones(len(y))]))
        offset = both[:, :-1].sum(0) / both[:, -1].sum()
        guess = rows @ (both[:, :-1] - both[:, -1:] * offset) + offset
        if task == "classification":
            return np.asarray(classes[guess.argmax(1)])
        return np.asarray(guess.reshape(len(rows), *y.shape[1:]))

    return svm if learner == "svm" else ridge


def _folds(y: Array, task: str, rng: np.random.Generator) -> Iterator[tuple[Indices, Indices]]:
    """(rows to learn, rows to meet), each row met once; classes are spread over all folds."""
    mixed = rng.permutation(len(y))
    if task == "classification":
        mixed = mixed[np.argsort(y[mixed], kind="stable")]
    fold = np.empty(len(y), dtype=np.intp)
    fold[mixed] = np.arange(len(y)) % FOLDS
    for i in range(FOLDS):
        train, test = np.flatnonzero(fold != i), np.flatnonzero(fold == i)
        if len(test) and (task == "regression" or len(np.unique(y[train])) > 1):
            yield train, test


def _met(y: Array, guess: Array, task: str) -> Array:
    """For each row, more is better: 1 for the right class, or the negative square of the error."""
    if task == "classification":
        return np.asarray(y == guess, dtype=np.float64)
    return np.asarray(-np.square(y - guess).reshape(len(y), -1).sum(1))
