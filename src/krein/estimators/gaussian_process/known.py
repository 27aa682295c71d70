"""Few objects whose similarity has nothing to learn: each pair is compared once, whatever is then asked of the matrix.

The search for amplitude and noise, the approximation and the conditioning each want k(X, X). Where no parameter stands
inside the similarity it is the same matrix every time: it is evaluated here, a fit works on the indices of its rows,
and what it learned is handed back in terms of the objects. And what is known of a fit serves at other parameters: its
blocks, ranks and draws (`alike`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from krein.approximation import Approximation
from krein.approximation.clusters import partition
from krein.arrays import Array, Indices
from krein.choosing import approximate
from krein.estimators.cache import forget
from krein.estimators.gaussian_process.evidence import Group, noise_of
from krein.estimators.gaussian_process.kernels import AsSklearn, amplitude_of, leaf_of, noise_level, signal, with_leaf
from krein.estimators.route import Exact, Route
from krein.kernels import Evaluator, Kernel, Precomputed, Scaled, counting, is_vectors, take
from krein.kernels.validation import check_similarity, takes_vectors

__all__ = ["Evaluated", "alike", "diagonal", "divided", "evaluated", "own_and_noise", "settled_later"]


@dataclass(frozen=True, eq=False, repr=False)
class _Known(Precomputed):
    """Similarities that were evaluated, and counted, before."""

    name: str = ""

    def __post_init__(self) -> None:
        pass  # K is symmetric and finite: an Evaluator made it

    def block_entries(self, n: int, m: int, same: bool = False) -> int:
        return 0

    def diag_entries(self, n_objects: int) -> int:
        return 0

    def __repr__(self) -> str:
        return self.name  # what a warning is about is the user's similarity


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A kernel object over the indices of objects, in place of the one over the objects."""

    kernel: Any
    objects: Indices
    leaf: AsSklearn  # what compares the objects themselves
    given: Any  # those
    n_evaluations: int

    def put_back(self, machine: Any) -> None:
        """What a machine learned of indices is of the objects from now on."""
        machine.kernel_ = with_leaf(machine.kernel_, self.leaf)
        if machine._approximation is not None:
            forget(machine._uncorrected)  # nobody will ask for it by these indices again
            machine._uncorrected, machine._approximation = map(
                self.back, (machine._uncorrected, machine._approximation)
            )

    def back(self, a: Approximation) -> Approximation:
        """The approximation as one of the objects: indices become what they stand for."""
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


def evaluated(kernel: Any, objects: Any, machine: Any) -> Evaluated | None:
    """Return the kernel object over a matrix evaluated once; None where it would have to be evaluated again anyway.

    That is where the process is not exact, where the similarity has parameters to learn, and where it is one of krein's
    kernels of vectors: those are cheap.
    """
    leaf = leaf_of(kernel)
    if not isinstance(machine.route_, Exact) or leaf is None or leaf.n_dims:
        return None
    if is_vectors(objects) and takes_vectors(leaf.kernel):
        return None
    with counting() as spent:
        evaluator = Evaluator(leaf.kernel)
        check_similarity(objects, evaluator, whole=True)
        K = evaluator.symmetric(objects)
    inside = AsSklearn(_Known(K, name=repr(leaf.kernel)))
    return Evaluated(with_leaf(kernel, inside), np.arange(len(K)), leaf, objects, spent.n_evaluations)


def diagonal(clean: Any, group: Group) -> Array:
    """The self-similarities of a kernel without noise; where amplitude is all there is to learn, evaluated once."""
    leaf = leaf_of(clean)
    if leaf is None or leaf.n_dims or is_vectors(group.objects):
        return np.asarray(clean.diag(group.objects))
    if "leaf" not in group.own:
        group.own["leaf"] = leaf.diag(group.objects)
    return np.asarray(amplitude_of(clean) * group.own["leaf"])


def settled_later(kernel: Any, whole: Group, route: Route) -> bool:
    """Whether there is nothing to learn on groups of rows: `rescaled` finds amplitude and noise on all of them.

    That holds for objects without vectors whose similarity has no parameters, where it is approximated. The groups
    would be compared within themselves, which is more than the approximation asks for.
    """
    leaf = leaf_of(kernel)
    if isinstance(route, Exact) or leaf is None or leaf.n_dims or is_vectors(whole.objects) or not kernel.n_dims:
        return False
    return np.ndim(noise_of(kernel, whole)) == 0


def divided(objects: Any, scale: Array | None) -> Any:
    """Columns in units of their scales."""
    return objects if scale is None else np.asarray(objects / scale, dtype=objects.dtype)


def own_and_noise(kernel: Any, X: Any) -> tuple[Array, Any]:
    """k(x, x) without noise, and the kernel's noise; objects are compared with themselves once if that will do."""
    clean, level = signal(kernel).diag(X), noise_level(kernel)
    return clean, kernel.diag(X) - clean if level is None else level


def alike(machine: Any, kernel: Kernel, whole: Group) -> Approximation:
    """The approximation of a fitted machine at other parameters, with the blocks, ranks and random numbers of its own.

    Two evidences differ by their parameters then, and not by what was drawn for them.
    """
    known, choice = machine._uncorrected, machine.selection_
    return approximate(
        divided(whole.objects, machine._scale), kernel, n_blocks=known.n_blocks, rank=max(known.factorization.ranks),
        coupling=machine.coupling, drop=machine.drop if choice is None else choice.drop,
        dtype=known.factorization.dtype, n_jobs=machine.n_jobs, random_state=known.seed % 2**32,
    )  # fmt: skip
