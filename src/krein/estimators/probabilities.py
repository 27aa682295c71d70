"""Decision values to probabilities: Platt's sigmoid for each dual, and the coupling of pairs that LIBSVM uses.

In: decision values of rows that had no part in learning them, and their labels. Out: a sigmoid per dual; with these,
one probability per class. A pair of classes says how likely the first of the two is, r_ij; the probabilities p that
contradict all pairs least minimise the sum of (r_ji p_i - r_ij p_j)² (Wu, Lin and Weng 2004, their second way).
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import clone

from krein.arrays import Array, Indices, seed_from
from krein.errors import InputError
from krein.kernels import take

__all__ = ["class_probabilities", "held_out_values", "sigmoids"]

FOLDS = 5
EDGE = 1e-7  # LIBSVM's: no pair is surer than that


def held_out_values(
    machine: Any, objects: Any, matrix: Any, y: Array, labels: Indices, weights: Array, random_state: Any
) -> Array:
    """The decision values of each row from a fit without it, (n, duals); ``machine`` is cloned for each fold.

    ``matrix`` holds the similarities of the objects where they are given, else it is None. Rows that have no weight
    (label -1) are never learned from, and have no values.
    """
    from sklearn.model_selection import StratifiedKFold  # here: few need it, all would wait for it

    kept = np.flatnonzero(labels >= 0)
    counts = np.bincount(labels[kept])
    if counts.min() < 2:
        raise InputError(
            "probability=True learns from rows that are held out, so every class needs two at least; class "
            f"{y[kept][labels[kept] == counts.argmin()].tolist()[0]!r} has one. Leave it out, or probability at False."
        )
    seed = seed_from(random_state) % 2**32
    folds = StratifiedKFold(min(FOLDS, int(counts.min())), shuffle=True, random_state=seed)
    values: Any = None
    for learn, meet in folds.split(kept, labels[kept]):
        train, test = kept[learn], kept[meet]
        own = take(objects, train) if matrix is None else matrix[np.ix_(train, train)]
        new = take(objects, test) if matrix is None else matrix[np.ix_(test, train)]
        found = clone(machine).fit(own, y[train], weights[train]).decision_function(new).reshape(len(test), -1)
        values = np.full((len(labels), found.shape[1]), np.nan) if values is None else values
        values[test] = found
    return np.asarray(values)


def sigmoids(values: Array, labels: Indices, weights: Array, n_classes: int, scheme: str) -> tuple[Array, Array]:
    """A and B of each dual, p = 1 / (1 + exp(A value + B)); of two classes as LIBSVM counts, for the first of them.

    Weights are taken relative to their mean: those that sum to 1 describe as many rows.
    """
    weights = weights / weights.mean()
    if n_classes == 2:
        found = [_platt(-values[:, 0], labels == 0, weights)]
    elif scheme == "ovr":
        found = [_platt(values[:, k], labels == k, weights) for k in range(n_classes)]
    else:
        found = []
        for p, (i, j) in enumerate(combinations(range(n_classes), 2)):
            here = (labels == i) | (labels == j)
            found.append(_platt(values[here, p], labels[here] == i, weights[here]))
    A, B = np.array(found).T
    return A, B


def _platt(values: Array, first: Any, weights: Array) -> tuple[float, float]:
    """Logistic regression on one value, to labels drawn in a little so that no sigmoid is a step."""
    from sklearn.linear_model import LogisticRegression  # here: few need it, all would wait for it

    up, down = float(weights[first].sum()), float(weights[~first].sum())
    share = np.where(first, (up + 1.0) / (up + 2.0), 1.0 / (down + 2.0))
    scale = float(values.std())
    if not scale > 1e-12 * float(
        np.abs(values).max(initial=0.0)
    ):  # it says nothing: what is left is how many there are
        return 0.0, float(np.log((weights @ (1.0 - share)) / (weights @ share)))
    twice = np.tile(values / scale, 2)[:, None]
    labels = np.repeat([1, 0], len(values))
    parts = np.concatenate([weights * share, weights * (1.0 - share)])
    fit = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10).fit(twice, labels, sample_weight=parts)
    return -float(fit.coef_[0, 0]) / scale, -float(fit.intercept_[0])


def class_probabilities(values: Array, A: Array, B: Array, n_classes: int, scheme: str) -> Array:
    """(n, classes) from the decision values (n, duals) and the sigmoids; rows sum to 1."""
    if n_classes == 2:
        first = expit(A * values - B)  # its value is positive for the second
        return np.hstack([first, 1.0 - first])
    first = np.clip(expit(-(A * values + B)), EDGE, 1.0 - EDGE)
    if scheme == "ovr":
        return np.asarray(first / first.sum(1, keepdims=True))
    n = len(values)
    system = np.zeros((n, n_classes + 1, n_classes + 1))
    for p, (i, j) in enumerate(combinations(range(n_classes), 2)):
        r = first[:, p]
        system[:, i, i] += (1.0 - r) ** 2
        system[:, j, j] += r**2
        system[:, i, j] = system[:, j, i] = -r * (1.0 - r)
    system[:, :-1, -1] = system[:, -1, :-1] = 1.0
    right = np.zeros((n, n_classes + 1, 1))
    right[:, -1] = 1.0
    p = np.maximum(np.linalg.solve(system, right)[:, :-1, 0], 0.0)
    return np.asarray(p / p.sum(1, keepdims=True))
