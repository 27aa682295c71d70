"""What predictions are computed from: expansions of dual coefficients, votes of pairs of classes, probabilities.

*Expansions.* Dual coefficients in, a function of new objects out: f(x) = k(x, X) alpha. By the kernel it is a sum over
the objects that have a coefficient. By a factorization it is u(x) M Uᵀ alpha, which compares x with the landmarks of
one cluster only, whatever n is. A shift is part of an object's similarity to itself, so new objects get none.

*Votes.* Labels become the duals of a classification, one against one or one against the rest. Their values become
votes, and their coefficients take the layout of scikit-learn.

*Probabilities.* Decision values of held-out rows in, one of Platt's sigmoids per dual out. A pair of classes estimates
the probability r_ij of its first class. The class probabilities p minimise the sum of (r_ji p_i - r_ij p_j)², as in
LIBSVM (the second method of Wu, Lin and Weng 2004).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone

from krein.approximation import Approximation
from krein.arrays import Array, Indices, grouped, seed_from, strips
from krein.errors import InputError
from krein.factorization import Factorization
from krein.kernels import Evaluator, Kernel, Precomputed, count_objects, take
from krein.kernels.collections import rows
from krein.kernels.kernel import user_written
from krein.kernels.precomputed import GivenRows
from krein.kernels.validation import check_new_objects
from krein.progress import progress_bar
from krein.solvers.dense_dual import Task
from krein.threads import each

__all__ = [
    "Expansion", "FactoredExpansion", "KernelExpansion", "NeighbourExpansion", "PairExpansion", "by_pair",
    "class_probabilities", "class_tasks", "confidences", "copied", "held_out_values", "mapped", "pair_coefficients",
    "seen_by", "sigmoids", "winners",
]  # fmt: skip

# Objects are predicted PREDICTED_OBJECTS at a time.
PREDICTED_OBJECTS = 2**16
# They are compared with landmarks or support vectors in tiles of PREDICTED_ENTRIES similarities.
PREDICTED_ENTRIES = 2**20
# Platt's sigmoids are fitted to the values of PROBABILITY_FOLDS cross-validation folds, as in LIBSVM.
PROBABILITY_FOLDS = 5
# The probability of a class within a pair is kept PROBABILITY_MARGIN away from 0 and 1, as in LIBSVM.
PROBABILITY_MARGIN = 1e-7

# -- expansions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KernelExpansion:
    """x -> k(x, support) weights, with the kernel's own values."""

    kernel: Kernel
    support: Any  # m objects
    weights: Array  # (m, p)

    def __call__(self, X_new: Any, verbose: int = 0) -> Array:
        """The values at new objects, (n_new, p)."""
        return _filled(X_new, self.n_outputs, self._parts, verbose)

    @property
    def n_outputs(self) -> int:
        return int(self.weights.shape[1])

    def _parts(self, X_new: Any) -> Iterator[tuple[slice, Array]]:
        def values(part: slice) -> Array:
            return self._combined(self._prepared.block(rows(X_new, part)))

        parts = list(strips(count_objects(X_new), self._prepared.n_columns, PREDICTED_ENTRIES))
        serial = len(parts) < 2 or any(user_written(self.kernel))  # a user's code is called by one thread at a time
        yield from zip(parts, each(values, [(part,) for part in parts], serial), strict=True)

    def _combined(self, block: Array) -> Array:
        """Values from similarities to the support, (n_new, m)."""
        return block @ self.weights

    @cached_property
    def _prepared(self) -> Any:
        """The support as the kernel needs it, computed once."""
        return Evaluator(self.kernel, chunk_entries=PREDICTED_ENTRIES).against(self.support)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_prepared"}


@dataclass(frozen=True, eq=False)
class PairExpansion(KernelExpansion):
    """The decision functions of all pairs of classes, from coefficients in LIBSVM's layout.

    The support stands class after class, ``counts`` of each. An object of class i has one coefficient for each other
    class: those against j stand in column j - 1 if j > i and in column j if j < i.
    """

    counts: tuple[int, ...] = ()

    @property
    def n_outputs(self) -> int:
        return len(self.counts) * (len(self.counts) - 1) // 2

    def _combined(self, block: Array) -> Array:
        stops = np.cumsum(self.counts)
        own = [block[:, s - c : s] @ self.weights[s - c : s] for s, c in zip(stops, self.counts, strict=True)]
        i, j = class_pairs(len(self.counts))
        values = np.stack(own)  # (classes, n_new, classes - 1)
        return np.asarray((values[i, :, j - 1] + values[j, :, i]).T)


@dataclass(frozen=True, eq=False)
class NeighbourExpansion(KernelExpansion):
    """x -> k(x, support) weights + (k(x, block of x) - level) times the weights of that block.

    The block of x is that of the training object whose similarities to the support are nearest to those of x, in the
    coordinates (k(x, support) - mean) axes.
    """

    neighbours: Any  # n objects, block after block
    neighbour_weights: Array  # (n, p)
    starts: Indices  # (blocks + 1,)
    level: float
    mean: Array  # (m,)
    axes: Array  # (m, q)
    places: Array  # (n, q)

    def _parts(self, X_new: Any) -> Iterator[tuple[slice, Array]]:
        evaluator = Evaluator(self.kernel)
        for part, block in self._prepared.chunks(X_new):
            values = block @ self.weights
            nearest = self._nearest.kneighbors((block - self.mean) @ self.axes, return_distance=False)[:, 0]
            of = np.searchsorted(self.starts, nearest, side="right") - 1
            some = rows(X_new, part)
            for b in np.unique(of):
                mine, inside = np.flatnonzero(of == b), slice(int(self.starts[b]), int(self.starts[b + 1]))
                near = evaluator.block(take(some, mine), rows(self.neighbours, inside)) - self.level
                values[mine] += near @ self.neighbour_weights[inside]
            yield part, values

    @cached_property
    def _nearest(self) -> Any:
        from sklearn.neighbors import NearestNeighbors  # not needed to import krein

        return NearestNeighbors(n_neighbors=1).fit(self.places)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_nearest"}


@lru_cache(maxsize=16)
def class_pairs(n_classes: int) -> tuple[Indices, Indices]:
    """The first and the second class of every pair, in the order of the decision functions."""
    i, j = np.triu_indices(n_classes, 1)
    return i, j


@dataclass(frozen=True, eq=False)
class FactoredExpansion:
    """x -> u(x) inner, through the factorization.

    For x in cluster i it is u(x) = k(x, Z_i) T_i, so that T_i times the rows of ``inner`` that belong to i are weights
    of the landmarks Z_i. They are computed once, and so is what the kernel needs of the landmarks.
    """

    approximation: Approximation
    inner: Array  # (r, p): M Uᵀ alpha

    def __call__(self, X_new: Any, verbose: int = 0) -> Array:
        """The values at new objects, (n_new, p); in the form `seen_by` gives them."""
        a, objects = seen_by(self.approximation, X_new)
        if a is self.approximation and self._weights is not None:
            return _filled(objects, self.inner.shape[1], self._parts, verbose)
        return _filled(objects, self.inner.shape[1], lambda some: [(slice(None), a.extend(some) @ self.inner)], verbose)

    def _parts(self, X_new: Any) -> Iterator[tuple[Indices, Array]]:
        a, weights = self.approximation, self._weights
        assert weights is not None
        objects = check_new_objects(X_new, a.objects, a.kernel)
        evaluator = Evaluator(a.kernel, chunk_entries=PREDICTED_ENTRIES)
        tasks = [
            (i, mine[part])
            for i, mine in grouped(a.blocks_of(evaluator, objects))
            for part in strips(len(mine), len(weights[i]), PREDICTED_ENTRIES)
        ]

        def values(i: int, mine: Indices) -> Array:
            if i not in self._prepared:
                own = a.maps[i]
                self._prepared[i] = evaluator.against(own.landmarks, own.self_similarities)
            near: Array = self._prepared[i].block(take(objects, mine))
            return near @ weights[i]

        serial = any(user_written(a.kernel))  # what a user wrote is called by one thread at a time
        yield from zip((mine for _, mine in tasks), each(values, tasks, serial), strict=True)

    @cached_property
    def _weights(self) -> list[Array] | None:
        """T_i inner_i for each cluster, (l_i, p); None if u(x) itself is needed.

        It is needed if its length is limited, or if similarities to landmarks of all clusters are computed first.
        """
        a = self.approximation
        if a.partition.embedding is not None or any(m.block is not None for m in a.maps):
            return None
        spans = a.factorization.spans
        return [m.transform @ self.inner[columns] for m, (_, columns) in zip(a.maps, spans, strict=True)]

    @cached_property
    def _prepared(self) -> dict[int, Any]:
        """The landmarks of each cluster as the kernel needs them, computed when they are first met."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_weights", "_prepared")}


Expansion = KernelExpansion | FactoredExpansion


def _filled(X_new: Any, n_outputs: int, parts: Callable[[Any], Any], verbose: int) -> Array:
    n = count_objects(X_new)
    out = np.empty((n, n_outputs))
    starts = range(0, n, PREDICTED_OBJECTS)
    # A bar takes longer than one row.
    for start in starts if n <= PREDICTED_OBJECTS else progress_bar(starts, what="predict", verbose=verbose):
        stop = min(start + PREDICTED_OBJECTS, n)
        for inside, values in parts(X_new if n <= PREDICTED_OBJECTS else rows(X_new, slice(start, stop))):
            out[start:stop][inside] = values
    return out


def copied(objects: Any) -> Any:
    """Copy arrays that a model keeps, so that later changes by the caller do not change predictions."""
    return objects.copy() if hasattr(objects, "copy") else objects


def mapped(raw: Factorization, inner: Array) -> Array:
    """The dual c of a matrix taken whole with K c = U inner, so that k(x, X) c = u(x) inner for new objects.

    With K = U M Uᵀ and a corrected matrix U f(M) Uᵀ, inner = f(M) Uᵀ alpha gives c = U M⁻¹ f(M) Uᵀ alpha, where
    M⁻¹ f(M) is as good as f is: 1 or 0 for clip, the sign for flip.
    """
    return raw.lift(inner / (raw.core @ np.ones(raw.rank))[:, None])  # the core of a matrix taken whole is diagonal


def seen_by(a: Approximation, X_new: Any) -> tuple[Approximation, Any]:
    """Return (approximation, objects) for ``extend``, where rows of a precomputed matrix are replaced by indices."""
    if isinstance(a.kernel, Precomputed) and getattr(X_new, "ndim", 1) == 2 and X_new.shape[1] == a.kernel.n_objects:
        kernel = GivenRows(a.kernel.S, X_new)
        return replace(a, kernel=kernel), kernel.new
    return a, X_new


# -- votes ------------------------------------------------------------------------------------------------------------


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
    """Return the class with the most votes from one-against-one values (n, pairs); the first one in a tie."""
    return np.asarray(_votes(pairs, pairs > 0.0, n_classes)[0].argmax(axis=1))


def confidences(pairs: Array, n_classes: int) -> Array:
    """Return one value per class: its votes, plus a term below 1/3 from the summed values that breaks ties."""
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


# -- probabilities ----------------------------------------------------------------------------------------------------


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
    folds = StratifiedKFold(min(PROBABILITY_FOLDS, int(counts.min())), shuffle=True, random_state=seed)
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
    """Logistic regression on one value, with Platt's smoothed labels, so that no sigmoid is a step."""
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
    first = np.clip(expit(-(A * values + B)), PROBABILITY_MARGIN, 1.0 - PROBABILITY_MARGIN)
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
