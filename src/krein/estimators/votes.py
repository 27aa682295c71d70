"""Classes to duals and back: one against one or against the rest, scikit-learn's votes and layout of coefficients."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp

from krein.arrays import Array, Indices
from krein.estimators.expansion import class_pairs
from krein.solvers.dense_dual import Task

__all__ = ["by_pair", "class_tasks", "confidences", "pair_coefficients", "winners"]


def class_tasks(labels: Indices, rows: Indices, limits: Array, n_classes: int, scheme: str) -> list[Task]:
    """Return the duals of a classification: ``labels`` (0 .. n_classes - 1) and upper bounds C of all rows.

    Two classes have one dual, positive for the second. "ovo" has one for each pair i < j, positive for i as in LIBSVM;
    "ovr" one for each class against all others.
    """
    if n_classes == 2:
        return [_margin(rows, np.where(labels[rows] == 1, 1.0, -1.0), limits)]
    if scheme == "ovr":
        return [_margin(rows, np.where(labels[rows] == k, 1.0, -1.0), limits) for k in range(n_classes)]
    tasks = []
    for i, j in combinations(range(n_classes), 2):
        here = rows[(labels[rows] == i) | (labels[rows] == j)]
        tasks.append(_margin(here, np.where(labels[here] == i, 1.0, -1.0), limits))
    return tasks


def _margin(rows: Indices, signs: Array, limits: Array) -> Task:
    ends = signs * limits[rows]
    return Task("margin", rows, signs, np.minimum(ends, 0.0), np.maximum(ends, 0.0))


def by_pair(coefficients: Array, labels: Indices, support: Indices, n_classes: int) -> Array:
    """LIBSVM's layout of one-against-one coefficients, (n_classes - 1, n_SV).

    A row of class i has n_classes - 1 duals; that against class j stands at j if j < i, and at j - 1 if j > i.
    """
    out = np.zeros((n_classes - 1, len(support)))
    own = labels[support]
    for p, (i, j) in enumerate(combinations(range(n_classes), 2)):
        out[j - 1, own == i] = coefficients[support[own == i], p]
        out[i, own == j] = coefficients[support[own == j], p]
    return out


def pair_coefficients(dual_coef: Array, counts: Indices) -> Any:
    """The opposite of `by_pair`: coefficients of the support vectors, (n_SV, pairs), sparse."""
    stops = np.cumsum(counts)
    columns = []
    for i, j in combinations(range(len(counts)), 2):
        column = np.zeros(dual_coef.shape[1])
        for own, place in ((i, j - 1), (j, i)):
            column[stops[own] - counts[own] : stops[own]] = dual_coef[place, stops[own] - counts[own] : stops[own]]
        columns.append(column)
    return sp.csr_matrix(np.column_stack(columns))


def winners(pairs: Array, n_classes: int) -> Indices:
    """The class with the most votes of one-against-one values (n, pairs), the first of equals."""
    return np.asarray(_votes(pairs, pairs > 0.0, n_classes)[0].argmax(axis=1))


def confidences(pairs: Array, n_classes: int) -> Array:
    """One value per class: votes, and a share of the summed values, below 1/3, that decides between equals."""
    votes, sums = _votes(pairs, pairs >= 0.0, n_classes)
    return votes + sums / (3.0 * (np.abs(sums) + 1.0))


def _votes(pairs: Array, first: Any, n_classes: int) -> tuple[Array, Array]:
    one, other = _sides(n_classes)
    return first @ one + ~first @ other, pairs @ (one - other)


@lru_cache(maxsize=16)
def _sides(n_classes: int) -> tuple[Array, Array]:
    """The first and the second class of each pair, as rows of zeros and a one, (pairs, classes)."""
    i, j = class_pairs(n_classes)
    return np.eye(n_classes)[i], np.eye(n_classes)[j]
