"""Objects in, clusters out (Part 1 of Algorithm 1): k-means on a random subset, every object to its nearest centre.

Vectors are clustered as they are. Objects that only have a similarity are first placed by the signed Nyström features
of a landmark sample, k(x, Z) V |w|^(-1/2), and new objects are assigned by the same map (DESIGN, section 5).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from krein.arrays import Array, Indices, stream
from krein.errors import KreinWarning
from krein.kernels import Evaluator, count_objects, is_vectors, take
from krein.kernels.objects import is_sparse

__all__ = ["Embedding", "Partition", "partition", "scale_of", "scaled"]

SAMPLE = 20_000  # rows k-means sees
PER_CENTRE = 20  # at least this many of them per centre, if there are
STRIP = 2**20  # distances held at a time


@dataclass(frozen=True, eq=False)
class Embedding:
    """Places for objects without coordinates: x -> k(x, Z) T."""

    landmarks: Any
    transform: Array  # T, shape (m, p)

    def __call__(self, evaluator: Evaluator, objects: Any) -> Array:
        out = np.empty((count_objects(objects), self.transform.shape[1]))
        for rows, block in evaluator.chunks(objects, self.landmarks):
            out[rows] = block @ self.transform
        return out


@dataclass(frozen=True, eq=False)
class Partition:
    """Disjoint clusters of n objects."""

    order: Indices  # (n,) the objects, cluster by cluster, each cluster ascending
    starts: Indices  # (c + 1,)
    centres: Array  # (c, d), in units of `scale`
    scale: float  # coordinates are multiplied by it, so that squares neither overflow nor vanish
    embedding: Embedding | None = None

    @property
    def n_blocks(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def sizes(self) -> Indices:
        return np.diff(self.starts)

    @cached_property
    def labels(self) -> Indices:
        """The cluster of each object, in the caller's order."""
        labels = np.empty(len(self.order), dtype=np.intp)
        labels[self.order] = np.repeat(np.arange(self.n_blocks), self.sizes)
        return labels

    def members(self, i: int) -> Indices:
        return self.order[self.starts[i] : self.starts[i + 1]]

    def places(self, evaluator: Evaluator, objects: Any) -> Any:
        """Where the objects are: their vectors, or their features."""
        return objects if self.embedding is None else self.embedding(evaluator, objects)

    def assign(self, evaluator: Evaluator, objects: Any) -> Indices:
        """The cluster whose centre is nearest to each object."""
        if self.n_blocks == 1:
            return np.zeros(count_objects(objects), dtype=np.intp)
        return nearest(scaled(self.places(evaluator, objects), self.scale), self.centres)

    def centre_distances(self) -> Array:
        """|c_i - c_j| for all pairs, (c, c)."""
        moved = self.centres - self.centres.mean(0)  # fewer digits are lost
        squares = np.einsum("ij,ij->i", moved, moved)
        d2 = squares[:, None] + squares - 2.0 * moved @ moved.T
        np.fill_diagonal(d2, 0.0)
        return np.asarray(np.sqrt(np.maximum(d2, 0.0)) / self.scale)


def partition(objects: Any, n_blocks: int, evaluator: Evaluator, seed: int) -> Partition:
    """Return ``n_blocks`` non-empty clusters, or fewer, with a warning, where there are fewer distinct places."""
    n = count_objects(objects)
    embedding = None if is_vectors(objects) else landmark_embedding(objects, n_blocks, evaluator, seed)
    if n_blocks == 1:
        places = objects[:1] if embedding is None else embedding(evaluator, take(objects, np.arange(1)))
        centre = np.asarray(_dense(places), dtype=np.float64)
        scale = scale_of(centre)
        return Partition(np.arange(n), np.array([0, n]), centre * scale, scale, embedding)
    places = objects if embedding is None else embedding(evaluator, objects)
    scale = scale_of(places)
    rng = stream(seed, 0, 0)
    size = min(n, max(SAMPLE, PER_CENTRE * n_blocks))
    sample = np.sort(rng.choice(n, size, replace=False)) if size < n else np.arange(n)
    means = KMeans(n_blocks, init="k-means++", n_init=1, max_iter=100, random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than centres: said below
        means.fit(scaled(places[sample], scale))
    centres = _distinct(np.asarray(means.cluster_centers_, dtype=np.float64), places.dtype)
    labels = nearest(scaled(places, scale), centres)
    sizes = np.bincount(labels, minlength=len(centres))
    used = np.flatnonzero(sizes)
    if len(used) < n_blocks:
        warnings.warn(
            f"{n_blocks} blocks were asked for, but only {len(used)} clusters are not empty (duplicate rows?); "
            f"{len(used)} blocks are used.",
            KreinWarning,
            stacklevel=3,
        )
    starts = np.concatenate([[0], np.cumsum(sizes[used])])
    return Partition(np.argsort(labels, kind="stable"), starts, centres[used], scale, embedding)


def landmark_embedding(objects: Any, n_blocks: int, evaluator: Evaluator, seed: int) -> Embedding:
    """Signed Nyström features from uniform landmarks, enough to tell ``n_blocks`` clusters apart: n m similarities."""
    n = count_objects(objects)
    size = min(n, max(64, 4 * n_blocks))
    chosen = np.sort(stream(seed, 0, 1).choice(n, size, replace=False))
    landmarks = take(objects, chosen)
    values, vectors = np.linalg.eigh(evaluator.symmetric(landmarks).astype(np.float64))
    strength = np.abs(values)
    keep = strength > 1e-6 * strength.max(initial=0.0)
    if not keep.any():
        return Embedding(landmarks, np.zeros((size, 1)))
    return Embedding(landmarks, vectors[:, keep] / np.sqrt(strength[keep]))


def nearest(places: Any, centres: Array) -> Indices:
    """The index of the nearest centre for each row: argmin |c|² - 2 <x, c>, in strips."""
    middle = centres.mean(0)
    moved = centres - middle  # fewer digits are lost around the centres' own mean
    kind = places.dtype if places.dtype == np.float32 else np.dtype(np.float64)
    weights = (-2.0 * moved.T).astype(kind)
    offset = np.einsum("ij,ij->i", moved, moved)
    if is_sparse(places):  # rows stay sparse, so the mean goes to the other side
        offset = offset + 2.0 * moved @ middle
        middle = np.zeros(1)
    out = np.empty(places.shape[0], dtype=np.intp)
    for rows in _strips(places.shape[0], max(centres.shape)):
        near = places[rows] if is_sparse(places) else places[rows] - middle.astype(kind)
        out[rows] = np.argmin(np.asarray(near @ weights) + offset.astype(kind), axis=1)
    return out


def _distinct(centres: Array, dtype: np.dtype[Any]) -> Array:
    """The centres without those that only rounding sets apart from an earlier one."""
    moved = centres - centres.mean(0)
    rounding = 16.0 * float(np.finfo(dtype).eps) * float(np.abs(centres).max()) * math.sqrt(centres.shape[1])
    along = np.sort(moved @ np.linspace(0.5, 1.0, moved.shape[1]) / math.sqrt(moved.shape[1]))
    if np.diff(along).min() > rounding:  # as nearly always: no c x c distances needed
        return centres
    apart = [np.linalg.norm(moved[:j] - moved[j], axis=1).min() > rounding for j in range(1, len(moved))]
    return centres[np.flatnonzero([True, *apart])]


def _strips(n: int, width: int) -> Iterator[slice]:
    step = max(1, STRIP // max(1, width))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def scale_of(places: Any) -> float:
    """A power of two that brings extreme coordinates near 1; 1 for ordinary ones, which stay untouched."""
    values = places.data if is_sparse(places) else places
    size = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if size == 0.0 or (1e-60 < size < 1e60 and (places.dtype != np.float32 or 1e-12 < size < 1e12)):
        return 1.0
    largest = 120 if places.dtype == np.float32 else 1000  # a power that the type itself can hold
    return math.ldexp(1.0, min(-math.frexp(size)[1], largest))


def scaled(places: Any, scale: float) -> Any:
    """The coordinates times ``scale``, in their own type."""
    return places if scale == 1.0 else places * places.dtype.type(scale)


def _dense(places: Any) -> Array:
    return np.asarray(places.toarray() if is_sparse(places) else places)
