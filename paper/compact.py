"""What learning holds and what predicting needs, in as few bytes as both take: a fitted SVM in, a `Compact` out.

The decision function of a machine on blocks is f(x) = k(x, Z_i) b_i with the landmarks Z_i and weights b_i of the block
of x: neither the bases nor the maps are needed to predict. `direct_blocks` are blocks of full rank without couplings.
They are held as triangles of their similarities in float16, U being the identity, and their weights are the dual
coefficients themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from krein.approximation import Approximation
from krein.approximation.assignment import nearest_block
from krein.approximation.bases import LandmarkMap
from krein.approximation.clusters import Partition, partition
from krein.arrays import Array, Indices, grouped
from krein.estimators import SVC
from krein.estimators.decision import pair_coefficients
from krein.factorization import Factorization
from krein.factorization.core import BlockSparse
from krein.kernels import Evaluator, Kernel

__all__ = ["Compact", "compact", "compact_direct", "direct_blocks", "direct_bytes"]

# Eigenvalues of a block below this share of the largest are rounding of float16.
CUTOFF = 1e-4
# Bytes of a row's number in direct blocks.
ROW_NUMBER = 4


@dataclass(frozen=True, eq=False)
class Compact:
    """x -> k(x, Z_i) b_i for the block i of x. It takes the place of a machine's expansion."""

    kernel: Kernel
    partition: Partition
    maps: tuple[LandmarkMap, ...]  # landmarks as they are stored; no transforms
    weights: tuple[Array, ...]  # b_i, (l_i, p)
    assignment: str
    weights_per_landmark: int  # stored numbers: coefficients of a direct block are nothing for most pairs of classes

    def __call__(self, X_new: Any, verbose: int = 0) -> Array:
        """The values at new objects, (n_new, p)."""
        evaluator = Evaluator(self.kernel)
        labels = nearest_block(self.assignment, self.partition, self.maps, evaluator, X_new)
        out = np.empty((len(X_new), self.weights[0].shape[1]))
        for i, mine in grouped(labels):
            out[mine] = self.kernel(X_new[mine], self.maps[i].landmarks.astype(np.float64)) @ self.weights[i]
        return out

    @property
    def nbytes(self) -> int:
        """Landmarks, weights, and centres where they are compared with new objects."""
        landmarks = sum(int(m.landmarks.nbytes) for m in self.maps)
        n, item = sum(len(W) for W in self.weights), int(self.weights[0].itemsize)
        centres = 0 if len(self.maps) == 1 else 4 * int(self.partition.centres.size)
        return landmarks + n * self.weights_per_landmark * item + centres


def compact(machine: SVC, dtype: Any) -> Compact:
    """The decision function of a machine on an approximation, landmarks and weights rounded to ``dtype``."""
    a, inner = machine._expansion.approximation, machine._expansion.inner
    weights = tuple(
        (m.transform @ inner[columns]).astype(dtype)
        for m, (_, columns) in zip(a.maps, a.factorization.spans, strict=True)
    )
    return Compact(a.kernel, a.partition, _rounded(a.maps, dtype), weights, a.assignment, inner.shape[1])


def _rounded(maps: Sequence[LandmarkMap], dtype: Any) -> tuple[LandmarkMap, ...]:
    nothing = np.empty((0, 0))
    return tuple(replace(m, landmarks=m.landmarks.astype(dtype), transform=nothing, block=None) for m in maps)


# -- blocks of full rank -----------------------------------------------------------------------------------------------


def direct_blocks(X: Array, kernel: Kernel, n_blocks: int, seed: int) -> Approximation:
    """Blocks of full rank without couplings, their similarities rounded to float16; negative eigenvalues are clipped.

    New rows belong to the block of the nearest training row.
    """
    evaluator = Evaluator(kernel)
    clusters = partition(X, n_blocks, evaluator, seed)
    bases, maps, cores = [], [], {}
    for i in range(clusters.n_blocks):
        rows = clusters.members(i)
        values, vectors = np.linalg.eigh(np.asarray(kernel(X[rows])).astype(np.float16).astype(np.float64))
        kept = values > CUTOFF * values[-1]
        bases.append(vectors[:, kept])
        cores[i, i] = np.diag(values[kept])
        maps.append(LandmarkMap(X[rows], rows, vectors[:, kept] / values[kept]))
    core = BlockSparse.from_blocks([U.shape[1] for U in bases], cores)
    f = Factorization.from_blocks(bases, core, clusters.order)
    return Approximation(kernel, X, clusters, tuple(maps), f, 0, seed, assignment="landmark")


def direct_bytes(sizes: Indices, n_features: int, n_classes: int) -> tuple[int, int]:
    """Bytes that direct blocks of these sizes take to learn and to predict.

    Learning holds float16 triangles and the number of each row. Predicting needs rows and coefficients in float16, and
    centres in float32.
    """
    n, c = int(sizes.sum()), len(sizes)
    learning = int((sizes * (sizes + 1)).sum()) + ROW_NUMBER * n
    return learning, 2 * n * (n_features + max(1, n_classes - 1)) + 4 * c * n_features


def compact_direct(machine: SVC) -> Compact:
    """The decision function of a machine on direct blocks, from its dual coefficients, in float16."""
    a, n_classes = machine.approximation_, len(machine.classes_)
    pairs = n_classes > 2
    found = pair_coefficients(machine.dual_coef_, machine.n_support_).toarray() if pairs else machine.dual_coef_.T
    alpha = np.zeros((a.factorization.shape[0], found.shape[1]))
    alpha[machine.support_] = found
    weights = tuple(alpha[a.partition.members(i)].astype(np.float16) for i in range(a.n_blocks))
    maps = _rounded(a.maps, np.float16)
    return Compact(a.kernel, a.partition, maps, weights, a.assignment, max(1, n_classes - 1))
