"""Dual coefficients in, a function of new objects out: f(x) = k(x, X) alpha, by the kernel or by a factorization.

By the kernel it is a sum over the objects that have a coefficient. By a factorization it is u(x) M Uᵀ alpha: the
landmarks of one cluster per object, whatever n is. A shift belongs to an object's similarity to itself and so to no new
object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors
from tqdm import tqdm

from krein.approximation import Approximation
from krein.arrays import Array, Indices
from krein.factorization import Factorization
from krein.kernels import Evaluator, Kernel, Precomputed, count_objects, take
from krein.kernels.collections import rows
from krein.kernels.precomputed import GivenRows

__all__ = [
    "Expansion",
    "FactoredExpansion",
    "KernelExpansion",
    "NeighbourExpansion",
    "PairExpansion",
    "class_pairs",
    "copied",
    "mapped",
    "seen_by",
]

CHUNK = 2**16  # objects predicted at a time


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
        for part, block in self._prepared.again().chunks(X_new):
            yield part, self._combined(block)

    def _combined(self, block: Array) -> Array:
        """Values from similarities to the support, (n_new, m)."""
        return block @ self.weights

    @cached_property
    def _prepared(self) -> Any:
        """What the kernel needs of the support, computed once."""
        return Evaluator(self.kernel).against(self.support)

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
        for part, block in self._prepared.again().chunks(X_new):
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
    """x -> u(x) inner, through the factorization."""

    approximation: Approximation
    inner: Array  # (r, p): M Uᵀ alpha

    def __call__(self, X_new: Any, verbose: int = 0) -> Array:
        """The values at new objects, (n_new, p); in the form `seen_by` gives them."""
        a, objects = seen_by(self.approximation, X_new)
        return _filled(objects, self.inner.shape[1], lambda some: [(slice(None), a.extend(some) @ self.inner)], verbose)


Expansion = KernelExpansion | FactoredExpansion


def _filled(X_new: Any, n_outputs: int, parts: Callable[[Any], Any], verbose: int) -> Array:
    n = count_objects(X_new)
    out = np.empty((n, n_outputs))
    starts = range(0, n, CHUNK)
    for start in tqdm(starts, desc="predict") if verbose and n > CHUNK else starts:  # a bar takes longer than one row
        stop = min(start + CHUNK, n)
        for inside, values in parts(X_new if n <= CHUNK else rows(X_new, slice(start, stop))):
            out[start:stop][inside] = values
    return out


def copied(objects: Any) -> Any:
    """The objects as a model keeps them: what the caller does with an array later changes no prediction."""
    return objects.copy() if hasattr(objects, "copy") else objects


def mapped(raw: Factorization, inner: Array) -> Array:
    """The dual c of a matrix taken whole with K c = U inner, so that k(x, X) c = u(x) inner for new objects.

    With K = U M Uᵀ and a corrected matrix U f(M) Uᵀ, inner = f(M) Uᵀ alpha gives c = U M⁻¹ f(M) Uᵀ alpha, where
    M⁻¹ f(M) is as good as f is: 1 or 0 for clip, the sign for flip.
    """
    return raw.lift(inner / (raw.core @ np.ones(raw.rank))[:, None])  # the core of a matrix taken whole is diagonal


def seen_by(a: Approximation, X_new: Any) -> tuple[Approximation, Any]:
    """Return (approximation, objects) with which ``extend`` works: rows of a precomputed matrix become indices."""
    if isinstance(a.kernel, Precomputed) and getattr(X_new, "ndim", 1) == 2 and X_new.shape[1] == a.kernel.n_objects:
        kernel = GivenRows(a.kernel.S, X_new)
        return replace(a, kernel=kernel), kernel.new
    return a, X_new
