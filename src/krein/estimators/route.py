"""The one decision how a fit goes: a machine, its objects and its kernel in, a route out.

The list of cases is the docstring of `choose_route`. Later steps read the policy for their own numbers alone, such as
sample sizes and candidates.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from joblib import effective_n_jobs

from krein.approximation import Approximation
from krein.approximation.landmark import N_LANDMARKS, N_OWN
from krein.arrays import EPS, seed_from, stream
from krein.errors import IndefiniteError, warn
from krein.estimators.expensive_similarities import Shares
from krein.estimators.similarity_features import BLOCK_ROWS
from krein.kernels import Evaluator, Kernel, Precomputed, count_objects, is_vectors, take
from krein.kernels.collections import is_sparse
from krein.kernels.kernel import user_written
from krein.kernels.pair_function import PairFunction
from krein.kernels.validation import has_only_similarities, off_sphere
from krein.pieces.rows import RowPieces
from krein.policy import Policy, check_policy

__all__ = [
    "ByError", "ByScore", "Exact", "Features", "Given", "Handed", "Route", "announce_cost",
    "choose_route", "given_shape", "is_psd", "possible_corrections",
]  # fmt: skip

# A machine with one of these parameters is approximated. `krein.approximate` gets them and the type.
SHAPE_PARAMETERS = ("n_blocks", "rank", "coupling", "drop", "max_error", "max_memory")
REQUEST_PARAMETERS = (*SHAPE_PARAMETERS, "dtype")
# A similarity is timed on blocks of growing size until one takes MEASURED_SECONDS or compares MEASURED_OBJECTS objects
# with as many. Small blocks are timed MEASUREMENTS times, and the shortest time counts.
MEASURED_SECONDS = 0.1
MEASURED_OBJECTS = 256
MEASUREMENTS = 3
# Time is CPU time, which other processes do not change. A similarity that computes for less than COMPUTING_SHARE of the
# time waits, or computes elsewhere, and is timed by the clock.
COMPUTING_SHARE = 0.25
# A fit whose similarities by a function of two objects take longer than ANNOUNCED_SECONDS says so before it starts. The
# time is measured on rows of growing length until one takes TIMED_SECONDS.
ANNOUNCED_SECONDS = 60.0
TIMED_SECONDS = 0.05
TIMED_LENGTHS = (1, 16, 256)
# An infinite ``policy.matrix_memory`` holds a Gram matrix of MOST_ROWS rows.
MOST_ROWS = 2**31


@dataclass(frozen=True)
class Exact:
    """The kernel's own matrix is used and nothing is approximated."""

    psd: bool  # known without an eigendecomposition: declared by the kernel, or shown by a Cholesky factor
    why: str = ""


@dataclass(frozen=True)
class Handed:
    """The approximation was built before and passed as a parameter."""

    approximation: Approximation
    why: str = "an approximation was passed"


@dataclass(frozen=True)
class Given:
    """An approximation whose shape is given."""

    request: dict[str, Any] = field(default_factory=dict)  # for `krein.approximate`
    why: str = ""


@dataclass(frozen=True)
class ByError:
    """An approximation whose shape is chosen by its relative error."""

    request: dict[str, Any] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class ByScore:
    """An approximation whose shape is chosen by a validated score."""

    request: dict[str, Any] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class Features:
    """The similarities to landmarks are the features of the machine (`similarity_features`); the kernel may be any."""

    n_landmarks: int  # at most; all objects where every similarity is used
    gram_rows: int  # a dual of no more rows is solved on a Gram matrix, a larger one on the features
    neighbours: bool = False  # whether similarities to near objects may be features too
    why: str = ""
    corrections: tuple[str, ...] = ("square",)  # what correction="auto" chooses from, the one in case of doubt first
    n_pairs: int = 0  # about so many similarities are evaluated, where they are expensive


Route: TypeAlias = Exact | Handed | Given | ByError | ByScore | Features


def choose_route(
    machine: Any, objects: Any, kernel: Kernel, *, spectrum: str = "", scored: bool = False, solvable: bool = True
) -> Route:
    """Return how this fit goes. The first of these cases that applies decides.

    1. ``approximation`` was passed: it is used (`Handed`).
    2. ``n_blocks`` and ``rank`` were both given, or a ``coupling`` other than "shared": they are obeyed (`Given`).
    3. ``max_error`` was given: blocks and rank follow from it (`ByError`).
    4. One of ``n_blocks``, ``rank``, ``max_memory`` or ``drop`` was given: the rest is chosen by score where there is a
       target to score (`ByScore`), else by error (`ByError`).
    5. The rows lie outside memory: case 7, 11 or 12. Fewer rows than the limit of case 8 were read into memory before.
    6. Up to ``policy.exact_rows`` rows: the kernel's own matrix (`Exact`).
    7. The kernel's feature space has few dimensions: one block of that rank is exact (`Given`).
    8. The kernel is psd and there are no more rows than the machine's own limit, a field of the policy; of objects
       without vectors all similarities must be affordable (`_Cost`): the kernel's own matrix (`Exact`).
    9. The machine has a target, the kernel is not psd and all similarities are affordable: similarities to all objects
       (`Features`). Up to ``policy.eigen_rows`` rows they can be clipped and flipped; with more "square" and "shift"
       are left.
    10. Objects have no vectors: with a target and a kernel that is not psd, similarities to landmarks or within a
       sample are features (`Features`); else coupling="landmark", which takes the fewest similarities (`Given`). Rows
       of tables and of given matrices, whose similarities are cheap, skip the latter.
    11. There is a target: blocks and rank are chosen by a validated score (`ByScore`).
    12. Else ``policy.plain_shape`` (`Given`).

    With ``refine=None`` of an SVM case 8 has the limit of case 6. With ``refine="exact"`` it has none, and a kernel
    known to be indefinite is an error. ``spectrum`` says what needs the eigenvalues of a psd matrix too. After a system
    proved singular (``solvable=False``) case 6 means an eigendecomposition and case 8 does not apply.

    "The kernel is psd" means that it is declared psd; of a given matrix, that it has a Cholesky factor.
    ``correction="square"`` and a proxy matrix change psd matrices too, and a ``variance`` of ridge takes many
    solutions. They need the eigendecomposition of case 6, or an approximation. Cases 9 and 10 do not apply to a given
    correction that they do not have.
    """
    if getattr(machine, "refine", None) == "exact" and kernel.traits.psd is False:
        raise IndefiniteError(
            f"refine='exact' needs a psd kernel, and {kernel!r} is none. Leave refine at its default; correction "
            "says what is done about negative eigenvalues."
        )
    policy = check_policy(machine.policy)
    request = {name: getattr(machine, name) for name in REQUEST_PARAMETERS}
    said, n = given_shape(machine), count_objects(objects)
    if machine.approximation is not None:
        return Handed(machine.approximation)
    given = f"{', '.join(sorted(said))} {'was' if len(said) == 1 else 'were'} given"
    if {"n_blocks", "rank"} <= said or "coupling" in said:
        return Given(request, given)
    if "max_error" in said:
        return ByError(request, given)
    if said:
        return ByScore(request, given) if scored else ByError(request, given)
    if isinstance(objects, RowPieces):
        return _outside(objects, kernel, request, policy, scored)
    psd = solvable and not spectrum and is_psd(kernel, objects, policy)
    if n <= policy.exact_rows:
        return Exact(psd, f"{n} rows are no more than policy.exact_rows = {policy.exact_rows}")
    dimension = _feature_dimension(kernel, objects)
    if dimension is not None and dimension <= min(policy.feature_dimension, n // 8):
        why = f"the kernel's feature space has {dimension} dimensions, so one block of that rank is exact"
        return Given(request | {"n_blocks": 1, "rank": dimension, "drop": 0.0}, why)
    vectors, cost = is_vectors(objects), _Cost(kernel, objects, policy, seed_from(machine.random_state))
    name, limit = _limit(machine, objects, policy)
    if psd and n <= limit and (vectors or cost.affords_all):
        return Exact(True, f"the kernel is psd and {n} rows are no more than {name} = {limit}")
    learns = scored and solvable and machine._learns_features and getattr(machine, "refine", "auto") == "auto"
    learns = learns and spectrum in ("", "correction='square'")
    if learns and not psd and cost.affords_all:
        small = n <= policy.eigen_rows
        possible = possible_corrections(n, policy)
        weighed = not isinstance(machine.correction, str)
        if machine.correction in ("auto", *possible) or (small and (weighed or machine.correction == "krein")):
            return Features(n, cost.gram_rows, False, f"{cost.why}, so all are used", possible)
    if not vectors:
        if learns and not psd and machine.correction in ("auto", "square"):
            return cost.landmarks
        if has_only_similarities(objects, kernel):
            why = "each similarity of objects without vectors may be expensive"
            return Given(request | {"coupling": "landmark"}, why)
    why = f"{n} rows are more than {name} = {limit}"
    if not psd:
        known = "the kernel is not known to be psd" if solvable else "the exact system is singular to rounding"
        known = f"{spectrum} needs all eigenvalues" if spectrum else known
        why = f"{known}, and {n} rows are more than policy.exact_rows = {policy.exact_rows}"
    if scored:
        return ByScore(request, why)
    blocks, rank = policy.plain_shape
    why += "; there is no target to choose blocks by, so they are policy.plain_shape"
    return Given(request | {"n_blocks": blocks, "rank": rank, "drop": 0.0}, why)


def possible_corrections(n: int, policy: Policy) -> tuple[str, ...]:
    """What correction="auto" chooses from where all similarities of n objects are known."""
    return ("clip", "flip", "square", "shift") if n <= policy.eigen_rows else ("square", "shift")


def _outside(objects: RowPieces, kernel: Kernel, request: dict[str, Any], policy: Policy, scored: bool) -> Route:
    """The route of rows that lie outside memory: an approximation."""
    dimension, where = _feature_dimension(kernel, objects), f"the {objects.shape[0]} rows lie outside memory"
    if dimension is not None and dimension <= policy.feature_dimension:
        why = f"{where}, and the kernel's feature space has {dimension} dimensions, so one block of that rank is exact"
        return Given(request | {"n_blocks": 1, "rank": dimension, "drop": 0.0}, why)
    if scored:
        return ByScore(request, where)
    blocks, rank = policy.plain_shape
    why = f"{where}; there is no target to choose blocks by, so they are policy.plain_shape"
    return Given(request | {"n_blocks": blocks, "rank": rank, "drop": 0.0}, why)


class _Cost:
    """Time and memory of the similarities of these objects. The time is measured on first access."""

    def __init__(self, kernel: Kernel, objects: Any, policy: Policy, seed: int) -> None:
        self._kernel, self._objects, self._policy, self._seed = kernel, objects, policy, seed
        self._n = count_objects(objects)

    @cached_property
    def seconds(self) -> float:
        """Seconds per similarity, measured on blocks of growing size."""
        evaluator = Evaluator(self._kernel)
        order = stream(self._seed, 53).permutation(self._n)
        most = max(1, min(MEASURED_OBJECTS, self._n // 32))
        evaluator.block(
            take(self._objects, order[:1]), take(self._objects, order[:1])
        )  # lazy imports are not part of the time
        size, known, before = min(8, most), 0, 0.0
        while True:
            left, right = take(self._objects, order[:size]), take(self._objects, order[size : 2 * size])
            taken = min(
                _timed(evaluator, left, right) for _ in range(1 if before > MEASURED_SECONDS / 8 else MEASUREMENTS)
            )
            if taken >= MEASURED_SECONDS or size >= most:
                # the overhead of a call cancels in the difference, if that is more than noise
                return (taken - before) / (size**2 - known) if taken > 2.0 * before else taken / size**2
            size, known, before = min(2 * size, most), size**2, taken

    @cached_property
    def affords_all(self) -> bool:
        """Whether all similarities of all objects are affordable, by the policy."""
        n, policy = self._n, self._policy
        return n <= self.gram_rows and self.seconds * n * n <= policy.matrix_seconds

    @property
    def gram_rows(self) -> int:
        """The rows of the largest Gram matrix that fits ``policy.matrix_memory``, 4 bytes a number."""
        return int(min(math.sqrt(self._policy.matrix_memory / 4.0), MOST_ROWS))

    @property
    def why(self) -> str:
        n = self._n
        return f"all similarities of {n} objects take about {self.seconds * n * n:.2g} s and {4e-9 * n * n:.2g} GB"

    @property
    def landmarks(self) -> Features:
        """The largest affordable number of landmarks; if that is small, the affordable number of pairs."""
        n, policy = self._n, self._policy
        most = int(min(policy.landmark_share * n, policy.matrix_memory / (4 * n)))
        cheap = int(min(most, policy.matrix_seconds / (self.seconds * n)))
        spent = f"a similarity takes {1e6 * self.seconds:.2g} microseconds"
        if cheap >= policy.fewest_landmarks:
            return Features(cheap, self.gram_rows, False, f"{spent}, so {cheap} of {n} objects are landmarks")
        usual = min(policy.expensive_share * n * n, (policy.expensive_landmarks + BLOCK_ROWS) * n)
        pairs = int(min(most * n, max(policy.matrix_seconds / self.seconds, usual)))
        blocks = 8.0 * n * n <= policy.matrix_memory  # neighbours need a Gram matrix in double precision
        if not blocks:
            pairs = int(min(pairs, policy.matrix_memory / 16.0))  # so does a sample
        few = Shares(n, pairs).landmarks
        why = f"{spent}, so {pairs / n**2:.1%} of all are evaluated"
        return Features(few, self.gram_rows, blocks, why, n_pairs=pairs)


def announce_cost(machine: Any, route: Route, objects: Any, kernel: Kernel) -> None:
    """Warn before a fit whose similarities, by a function of two objects, will take more than ANNOUNCED_SECONDS.

    Their number is that of the route; where blocks and rank are still to be chosen it is a lower bound.
    """
    if kernel.compares == "vectors" or isinstance(route, Handed):
        return
    functions = [part for part in user_written(kernel) if isinstance(part, PairFunction)]
    if not functions:
        return
    n, policy = count_objects(objects), check_policy(machine.policy)
    if isinstance(route, Exact) or (isinstance(route, Features) and route.n_landmarks == n):
        count = kernel.block_entries(n, n, same=True)
    elif isinstance(route, Features):
        count = route.n_pairs or kernel.block_entries(n, route.n_landmarks)
    elif route.request["coupling"] == "landmark":
        count = kernel.block_entries(n, min(n // 2, N_LANDMARKS[1] + N_OWN[1]))
    else:
        rank = route.request["rank"]
        count = kernel.block_entries(n, min(n, rank if isinstance(rank, int) else policy.object_least))
    evaluator, seconds = Evaluator(kernel), 0.0
    order = stream(0, 53).permutation(n)
    one = take(objects, order[:1])
    for length in TIMED_LENGTHS:  # one row is evaluated in one process
        others = take(objects, order[1 : 1 + length])
        taken = _timed(evaluator, one, others)
        seconds = count * taken / count_objects(others)
        if taken > TIMED_SECONDS:
            break
    n_processes = effective_n_jobs(functions[0].n_jobs or 1)
    if seconds > ANNOUNCED_SECONDS * n_processes:
        warn(
            f"This fit will evaluate about {count:,} similarities by {functions[0]!r}, {count / n**2:.0%} of n². They "
            f"take about {seconds / n_processes:,.0f} s with n_jobs={n_processes}. More processes (n_jobs), fewer "
            "objects or the limits of krein.Policy make it shorter."
        )


def _timed(evaluator: Evaluator, left: Any, right: Any) -> float:
    begun, computed = time.perf_counter(), time.process_time()
    evaluator.block(left, right)
    taken, computed = time.perf_counter() - begun, time.process_time() - computed
    return min(taken, computed) if computed >= COMPUTING_SHARE * taken else taken


def _limit(machine: Any, objects: Any, policy: Policy) -> tuple[str, int]:
    """Return the setting that limits the rows of an exact fit with a psd kernel, and its value."""
    refine = getattr(machine, "refine", "auto")
    if refine == "exact":
        return "the rows of refine='exact'", count_objects(objects)
    if refine is None:
        return "policy.exact_rows (refine=None)", policy.exact_rows
    return f"policy.{machine._limit}", int(getattr(policy, machine._limit))


def given_shape(machine: Any) -> set[str]:
    """The names of the parameters by which a machine was asked for an approximation."""
    return {name for name in SHAPE_PARAMETERS if not _is_default(name, getattr(machine, name))}


def is_psd(kernel: Kernel, objects: Any, policy: Policy) -> bool:
    """Whether the kernel's matrix of these objects is known to be psd without its eigenvalues."""
    if isinstance(kernel, Precomputed):
        small = 8.0 * count_objects(objects) ** 2 <= policy.matrix_memory
        return small and not (is_sparse(kernel.S) or isinstance(kernel.S, np.memmap)) and _has_factor(kernel, objects)
    return bool(kernel.traits.psd) and not (kernel.traits.sphere and off_sphere(objects))


def _has_factor(kernel: Precomputed, objects: Any) -> bool:
    """Whether a given matrix has a Cholesky factor, up to rounding."""
    K = np.asarray(kernel(objects), dtype=np.float64).T  # a copy, and in LAPACK's order
    rounding = 10 * len(K) * EPS if kernel.S.dtype != np.float32 else 100.0 * float(np.finfo(np.float32).eps)
    K[np.diag_indices(len(K))] += rounding * np.abs(np.diagonal(K)).max()
    return bool(scipy.linalg.lapack.dpotrf(K, overwrite_a=1)[1] == 0)


def _is_default(name: str, value: Any) -> bool:
    default = {"coupling": "shared", "max_error": None, "max_memory": None}.get(name, "auto")
    return value is default or (isinstance(value, str) and value == default)


def _feature_dimension(kernel: Kernel, objects: Any) -> int | None:
    found = kernel.feature_dimension(objects.shape[1]) if is_vectors(objects) else None
    return None if found is None or not np.isfinite(found) else int(found)
