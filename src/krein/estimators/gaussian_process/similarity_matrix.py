"""A similarity without parameters to learn: its matrix is evaluated once, and the fit works on indices.

The search for amplitude and noise, the approximation and the conditioning each need k(X, X). If the similarity has no
parameters it is the same matrix every time. `evaluated_once` replaces the objects by the indices of its rows.
`EvaluatedOnce.put_back` puts the objects in their place again after the fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from krein.approximation import Approximation
from krein.approximation.clusters import partition
from krein.arrays import Indices
from krein.estimators.cache import forget
from krein.estimators.gaussian_process.kernels import AsSklearn, leaf_of, with_leaf
from krein.estimators.route import Exact
from krein.kernels import Evaluator, Kernel, Precomputed, Scaled, counting, is_vectors, take

__all__ = ["EvaluatedOnce", "evaluated_once"]


@dataclass(frozen=True, eq=False, repr=False)
class _EvaluatedSimilarity(Precomputed):
    """Similarities that were evaluated, and counted, before."""

    name: str = ""

    def __post_init__(self) -> None:
        pass  # K is symmetric and finite: an Evaluator made it

    def block_entries(self, n: int, m: int, same: bool = False) -> int:
        return 0

    def diag_entries(self, n_objects: int) -> int:
        return 0

    def __repr__(self) -> str:
        return self.name  # warnings name the user's similarity


@dataclass(frozen=True, eq=False)
class EvaluatedOnce:
    """A kernel object over the indices of objects, in place of the one over the objects."""

    kernel: Any
    objects: Indices
    leaf: AsSklearn  # the similarity of the objects
    given: Any  # the objects
    n_evaluations: int

    def put_back(self, machine: Any) -> None:
        """Replace the indices in a fitted machine by the objects."""
        machine.kernel_ = with_leaf(machine.kernel_, self.leaf)
        if machine._approximation is not None:
            forget(machine._uncorrected)  # its key, the indices, is not used again
            machine._uncorrected, machine._approximation = map(
                self.back, (machine._uncorrected, machine._approximation)
            )

    def back(self, a: Approximation) -> Approximation:
        """Return the approximation with objects in place of indices."""
        kernel = self._own(a.kernel)
        evaluator = Evaluator(kernel)

        def named(indices: Any) -> Any:
            return take(self.given, np.asarray(indices))

        maps = tuple(
            replace(m, landmarks=(Z := named(m.landmarks)), self_similarities=evaluator.own(Z)) for m in a.maps
        )
        places = a.partition.embedding
        places = places if places is None else replace(places, landmarks=named(places.landmarks))
        clusters = replace(a.partition, embedding=places)
        if is_vectors(self.given):
            clusters = partition(self.given, 1, evaluator, a.seed)
        count = self.n_evaluations + evaluator.n_evaluations
        return replace(a, kernel=kernel, objects=self.given, partition=clusters, maps=maps, n_evaluations=count)

    def _own(self, kernel: Kernel) -> Kernel:
        return Scaled(self._own(kernel.kernel), kernel.factor) if isinstance(kernel, Scaled) else self.leaf.kernel


def evaluated_once(kernel: Any, objects: Any, machine: Any) -> EvaluatedOnce | None:
    """Return the kernel object over a matrix evaluated once, or None if that does not help.

    It does not help if the process is approximated, if the similarity has parameters to learn, or if it is one of
    krein's kernels of vectors, which are cheap.
    """
    leaf = leaf_of(kernel)
    if not isinstance(machine.route_, Exact) or leaf is None or leaf.n_dims:
        return None
    if is_vectors(objects) and leaf.kernel.compares == "vectors":
        return None
    with counting() as spent:
        evaluator = Evaluator(leaf.kernel)
        evaluator.check_similarity(objects, whole=True)
        K = evaluator.symmetric(objects)
    inside = AsSklearn(_EvaluatedSimilarity(K, name=repr(leaf.kernel)))
    return EvaluatedOnce(with_leaf(kernel, inside), np.arange(len(K)), leaf, objects, spent.n_evaluations)
