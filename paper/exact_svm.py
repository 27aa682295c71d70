"""The SVM on a matrix that is held whole: LIBSVM, what of a factorization it is given, and whether that is convex.

In: K or its approximation over all rows, and which of them are for training. Out: `Fitted`, with the accuracy of the
other rows. Nothing here is meant for many rows: it is what krein is compared with.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import eigsh
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from krein.arrays import EPS, Array, Indices
from krein.factorization import Factorization
from krein.factorization.core import eigvalsh, to_dense
from paper.comparing import Difference

__all__ = ["LIMIT", "Fitted", "Restricted", "Written", "fit", "psd_shift_of", "restricted", "written"]

# An uncorrected problem has not converged after LIMIT iterations per pair of classes.
LIMIT = 100_000
# Matrices are written and compared STRIP rows at a time.
STRIP = 1000
# LIBSVM's cache in MB.
CACHE = 500


@dataclass(frozen=True)
class Fitted:
    """What came of one SVM."""

    accuracy: float  # of the test rows, in %
    converged: bool  # False: some pair of classes ran into the limit
    n_iter: int  # of the longest pair
    n_support: int
    seconds: float


def fit(K: Array, y: Any, K_test: Array, y_test: Any, C: float, max_iter: int = -1) -> Fitted:
    """One-vs-one C-SVM on the training matrix ``K`` by SMO, scored on the rows ``K_test``; ``max_iter`` per pair."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fit_status_ says it
        machine = SVC(kernel="precomputed", C=C, max_iter=max_iter, cache_size=CACHE).fit(K, y)
    accuracy = 100.0 * float(machine.score(K_test, y_test))
    return Fitted(
        accuracy, machine.fit_status_ == 0, int(np.max(machine.n_iter_)), int(machine.n_support_.sum()),
        time.perf_counter() - begin,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Written:
    """A factorization as LIBSVM wants it, and how far it is from K where that is known."""

    train: Array  # (n_train, n_train)
    test: Array  # (n_test, n_train)
    gap: Difference | None = None  # from K, over all rows


def written(F: Factorization, train: Indices, test: Indices, K: Array | None = None) -> Written:
    """F's rows of ``train`` and ``test`` at the columns ``train``, in one pass over strips; compared with ``K``.

    The pass is what costs, so the comparison is made in it; `comparing.difference` would make another.
    """
    found = [np.empty((len(train), len(train))), np.empty((len(test), len(train)))]
    squared, norm = 0.0, 0.0
    for out, wanted in zip(found, (train, test), strict=True):
        for start in range(0, len(wanted), STRIP):
            some = wanted[start : start + STRIP]
            rows = F.rows(some)
            np.take(rows, train, axis=1, out=out[start : start + STRIP])
            if K is not None:
                exact = K[some]
                norm += float(np.vdot(exact, exact))
                exact -= rows
                squared += float(np.vdot(exact, exact))
    if K is None:
        return Written(found[0], found[1])
    trace = float(K.diagonal().sum() - F.diagonal().sum())
    gap = Difference(len(train) + len(test), float(np.sqrt(norm)), squared, trace)
    return Written(found[0], found[1], gap)


@dataclass(frozen=True)
class Restricted:
    """The spectrum of what a training set sees of a factorization."""

    smallest: float  # of its training rows' matrix
    n_negative: int
    n_pairs: int  # pairs of classes, each a dual of its own
    nonconvex_pairs: int  # of them with a negative eigenvalue

    @property
    def convex(self) -> bool:
        return self.nonconvex_pairs == 0


def restricted(F: Factorization, y: Any, train: Indices) -> Restricted:
    """Inertia of F[train, train] and of each pair of classes in it, exactly and without an n x n matrix.

    With G = UᵀDU for the rows D that take part, U M Uᵀ restricted to them has the eigenvalues of G^½ M G^½, and zeros:
    O(r³) each.
    """
    labels = np.asarray(y)[train]
    classes = np.unique(labels)
    grams = []
    for name in classes:
        weights = np.zeros(F.shape[0])
        weights[train[labels == name]] = 1.0
        grams.append(F.gram(weights))
    core = to_dense(F.core)
    everything = _inertia(core, [sum(parts) for parts in zip(*grams, strict=True)], F.shift, len(train))
    pairs = [
        _inertia(core, [a + b for a, b in zip(grams[i], grams[j], strict=True)], F.shift, len(train))
        for i, j in combinations(range(len(classes)), 2)
    ]
    return Restricted(*everything, len(pairs), sum(count > 0 for _, count in pairs))


def _inertia(core: Array, grams: list[Any], shift: float, n: int) -> tuple[float, int]:
    """(smallest eigenvalue, how many are negative) of the matrix whose blocks have these grams."""
    root = scipy.linalg.block_diag(*(_root(G) for G in grams))
    values = eigvalsh(root.T @ core @ root)
    tol = 10 * max(1, len(values)) * EPS * float(np.abs(values).max(initial=0.0))
    values = values + shift
    smallest = float(values.min(initial=np.inf))
    return (min(smallest, shift) if n > len(values) else smallest), int((values < -tol).sum())


def _root(G: Array) -> Array:
    """R with R Rᵀ = G, which is psd; also where a block has fewer rows than directions."""
    values, vectors = np.linalg.eigh(G)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def psd_shift_of(K: Array) -> float:
    """|lambda_min(K)| if K is indefinite, else 0: a Cholesky decides, so that a psd K costs no eigenvalue problem.

    The smallest eigenvalues of a psd K crowd at 0, where Lanczos would not come to an end; a negative one stands out.
    """
    scale = float(np.abs(K).sum(axis=1).max())  # at least |K|_2
    raised = K.copy(order="F")
    raised[np.diag_indices_from(raised)] += 10 * EPS * len(K) * scale
    try:
        scipy.linalg.cholesky(raised, lower=True, overwrite_a=True, check_finite=False)
        return 0.0
    except np.linalg.LinAlgError:
        pass
    del raised
    start = np.random.default_rng(0).standard_normal(len(K))
    if len(K) < 100:
        return max(0.0, -float(eigvalsh(K)[0]))
    return max(0.0, -float(eigsh(K, k=1, which="SA", v0=start, tol=1e-6, return_eigenvectors=False)[0]))
