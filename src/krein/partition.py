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
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from krein.arrays import Array, Indices, stream
from krein.errors import KreinWarning
from krein.kernels import Evaluator, count_objects, is_vectors, take

__all__ = ["Embedding", "Partition", "partition"]

SAMPLE = 20_000  # rows k-means sees
PER_CENTRE = 20  # at least this many of them per centre, if there are
STRIP = 2**22  # distances held at a time


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
        return nearest(_scaled(self.places(evaluator, objects), self.scale), self.centres)

    def centre_distances(self) -> Array:
        """|c_i - c_j| for all pairs, (c, c)."""
        squares = np.einsum("ij,ij->i", self.centres, self.centres)
        d2 = squares[:, None] + squares - 2.0 * self.centres @ self.centres.T
        return np.asarray(np.sqrt(np.maximum(d2, 0.0)) / self.scale)


def partition(objects: Any, n_blocks: int, evaluator: Evaluator, seed: int) -> Partition:
    """Return at most ``n_blocks`` non-empty clusters; fewer only where there are fewer distinct places, with a warning."""
    n = count_objects(objects)
    embedding = None if is_vectors(objects) else landmark_embedding(objects, n_blocks, evaluator, seed)
    if n_blocks == 1:
        places = objects[:1] if embedding is None else embedding(evaluator, take(objects, np.arange(1)))
        centre = np.asarray(_dense(places), dtype=np.float64)
        scale = _scale_of(centre)
        return Partition(np.arange(n), np.array([0, n]), centre * scale, scale, embedding)
    places = objects if embedding is None else embedding(evaluator, objects)
    scale = _scale_of(places)
    rng = stream(seed, 0, 0)
    size = min(n, max(SAMPLE, PER_CENTRE * n_blocks))
    sample = np.sort(rng.choice(n, size, replace=False)) if size < n else np.arange(n)
    means = KMeans(n_blocks, init="k-means++", n_init=1, max_iter=100, random_state=int(rng.integers(2**31)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than centres: said below
        means.fit(_scaled(places[sample], scale))
    centres = np.asarray(means.cluster_centers_, dtype=np.float64)
    labels = nearest(_scaled(places, scale), centres)
    sizes = np.bincount(labels, minlength=n_blocks)
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
    """Signed Nyström features from uniform landmarks: enough to tell ``n_blocks`` clusters apart, O(n m) similarities."""
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
    weights = (-2.0 * moved.T).astype(places.dtype if places.dtype == np.float32 else np.float64)
    offset = np.einsum("ij,ij->i", moved, moved) + 2.0 * moved @ middle
    out = np.empty(places.shape[0], dtype=np.intp)
    for rows in _strips(places.shape[0], len(centres)):
        out[rows] = np.argmin(np.asarray(places[rows] @ weights) + offset.astype(weights.dtype), axis=1)
    return out


def _strips(n: int, width: int) -> Iterator[slice]:
    step = max(1, STRIP // max(1, width))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _scale_of(places: Any) -> float:
    """A power of two that brings extreme coordinates near 1; 1 for ordinary ones, which stay untouched."""
    values = places.data if sp.issparse(places) else places
    size = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
    if size == 0.0 or (1e-60 < size < 1e60 and (places.dtype != np.float32 or 1e-12 < size < 1e12)):
        return 1.0
    return math.ldexp(1.0, -math.frexp(size)[1])


def _scaled(places: Any, scale: float) -> Any:
    return places if scale == 1.0 else places * places.dtype.type(scale)


def _dense(places: Any) -> Array:
    return np.asarray(places.toarray() if sp.issparse(places) else places)
