"""A cluster in, its landmarks out; and how a total rank is shared out among clusters.

The paper draws landmarks uniformly. The other rules spread them in space ("kmeans++") or in the kernel's feature space
("rpcholesky", "leverage"). Ranks are the same for all clusters, or follow the eigenvalues of the diagonal blocks or the
sizes of the clusters: rules 1, 2 and 3 of the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.extmath import row_norms

from krein.approximation.clusters import scale_of, scaled
from krein.arrays import Array, Indices
from krein.errors import InputError
from krein.kernels import Evaluator, count_objects, take
from krein.kernels.collections import is_sparse

__all__ = [
    "ALLOCATIONS",
    "CANDIDATES",
    "LANDMARKS",
    "PER_RANK",
    "allocate",
    "among",
    "candidate_places",
    "choose_landmarks",
]

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
