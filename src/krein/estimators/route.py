"""How a fit goes, decided once: a machine, its objects and its kernel in, a route out.

Nothing later in a fit looks at a limit again. The decision list is the docstring of `choose_route`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg

from krein.approximation import Approximation
from krein.blocksparse import EPS
from krein.kernels import Kernel, Precomputed, count_objects, is_vectors
from krein.kernels.objects import is_sparse
from krein.objects import off_sphere
from krein.policy import DEFAULT, Policy

__all__ = ["ByError", "ByScore", "Exact", "Given", "Handed", "Route", "choose_route", "given_shape", "is_psd"]

SHAPE = ("n_blocks", "rank", "coupling", "drop", "max_error", "max_memory")  # parameters that ask for an approximation
BUILT = (*SHAPE, "dtype")  # what `krein.approximate` is told


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


Route: TypeAlias = Exact | Handed | Given | ByError | ByScore


def choose_route(machine: Any, objects: Any, kernel: Kernel, *, scored: bool = False, solvable: bool = True) -> Route:
    """Return how this fit goes; the first line that applies decides.

    1. ``approximation`` was passed: it is used (`Handed`).
    2. ``n_blocks`` and ``rank`` were both given, or a ``coupling`` other than "shared": they are obeyed (`Given`).
    3. ``max_error`` was given: blocks and rank follow from it (`ByError`).
    4. One of ``n_blocks``, ``rank``, ``max_memory`` or ``drop`` was given: the rest is chosen by score where there is a
       target to score (`ByScore`), else by error (`ByError`).
    5. Up to ``policy.exact_rows`` rows: the kernel's own matrix (`Exact`).
    6. The kernel's feature space has few dimensions: one block of that rank is exact (`Given`).
    7. The kernel is psd and there are no more rows than the machine's own limit, a field of the policy
       (``policy.matrix_rows`` for objects without vectors and given matrices): the kernel's own matrix (`Exact`).
    8. Objects have no vectors: coupling="landmark", which takes the fewest similarities (`Given`).
    9. There is a target: blocks and rank are chosen by a validated score (`ByScore`).
    10. Else ``policy.plain_shape`` (`Given`).

    ``refine="exact"`` of an SVM makes line 7 hold for any number of rows, ``refine=None`` for no more than line 5.
    Where a system proved singular (``solvable=False``) line 5 means an eigendecomposition and line 7 does not apply.

    "The kernel is psd" means that it is declared psd; of a given matrix, that it has a Cholesky factor.
    ``correction="square"`` changes psd matrices too, so that it needs the eigendecomposition of line 5, or an
    approximation.
    """
    policy = machine.policy or DEFAULT
    request = {name: getattr(machine, name) for name in BUILT}
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
    psd = solvable and machine.correction != "square" and is_psd(kernel, objects, policy)
    if n <= policy.exact_rows:
        return Exact(psd, f"{n} rows are no more than policy.exact_rows = {policy.exact_rows}")
    dimension = _feature_dimension(kernel, objects)
    if dimension is not None and dimension <= min(policy.feature_dimension, n // 8):
        why = f"the kernel's feature space has {dimension} dimensions, so one block of that rank is exact"
        return Given(request | {"n_blocks": 1, "rank": dimension, "drop": 0.0}, why)
    name, limit = _limit(machine, objects, policy)
    if psd and n <= limit:
        return Exact(True, f"the kernel is psd and {n} rows are no more than {name} = {limit}")
    if not is_vectors(objects) and kernel.compares != "indices":
        return Given(request | {"coupling": "landmark"}, "each similarity of objects without vectors may be expensive")
    why = f"{n} rows are more than {name} = {limit}"
    if not psd:
        known = "the kernel is not known to be psd" if solvable else "the exact system is singular to rounding"
        known = "correction='square' needs all eigenvalues" if machine.correction == "square" else known
        why = f"{known}, and {n} rows are more than policy.exact_rows = {policy.exact_rows}"
    if scored:
        return ByScore(request, why)
    blocks, rank = policy.plain_shape
    why += "; there is no target to choose blocks by, so they are policy.plain_shape"
    return Given(request | {"n_blocks": blocks, "rank": rank, "drop": 0.0}, why)


def _limit(machine: Any, objects: Any, policy: Policy) -> tuple[str, int]:
    """The number of rows up to which a machine uses a psd kernel exactly, and which setting it is."""
    refine = getattr(machine, "refine", "auto")
    if refine == "exact":
        return "the rows of refine='exact'", count_objects(objects)
    if refine is None:
        return "policy.exact_rows (refine=None)", policy.exact_rows
    own = int(getattr(policy, machine._limit))
    if is_vectors(objects) or own <= policy.matrix_rows:
        return f"policy.{machine._limit}", own
    return "policy.matrix_rows", policy.matrix_rows


def given_shape(machine: Any) -> set[str]:
    """The names of the parameters by which a machine was asked for an approximation."""
    return {name for name in SHAPE if not _is_default(name, getattr(machine, name))}


def is_psd(kernel: Kernel, objects: Any, policy: Policy) -> bool:
    """Whether the kernel's matrix of these objects is known to be psd without its eigenvalues."""
    if isinstance(kernel, Precomputed):
        small = count_objects(objects) <= policy.matrix_rows
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
