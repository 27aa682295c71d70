"""The fixed list of what a model file may hold: each class with how it is taken apart and put together again.

On it are the estimators and kernels that their rooms list in ``__all__``, and the values listed below. Nothing else is
ever constructed, whatever a file says. What is put together goes through its own checks, its fields are compared with
their annotations, and what must fit together is made sure of.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.gaussian_process import kernels as sk

from krein import estimators, kernels
from krein.approximation import Approximation
from krein.approximation.assignment import ASSIGNMENTS
from krein.approximation.bases import LandmarkMap
from krein.approximation.clusters import Branches, Embedding, Partition
from krein.approximation.error import ErrorEstimate
from krein.arrays import Array, Indices
from krein.choosing.candidates import Candidate, Selection
from krein.errors import InputError
from krein.estimators.decision import FactoredExpansion, KernelExpansion, NeighbourExpansion, PairExpansion
from krein.estimators.gaussian_process.kernels import AsSklearn, FromSklearn
from krein.estimators.gaussian_process.posterior import Posterior
from krein.estimators.kernel_pca import Centred
from krein.estimators.random_features import Fastfood
from krein.estimators.route import ByError, ByScore, Exact, Features, Given, Handed
from krein.factorization import Factorization
from krein.factorization.core import BlockSparse, Group
from krein.factorization.eigensystem import Component
from krein.factorization.pieces import PieceBases, Pieces
from krein.kernels import Kernel, Precomputed, Traits, count_objects
from krein.kernels.mixed_rows import Column, MixedRows
from krein.kernels.precomputed import GivenColumns
from krein.persistence.container import TENSORS
from krein.persistence.earlier import EARLIER, EarlierExpansion, upgraded
from krein.pieces.rows import RowPieces
from krein.policy import Policy
from krein.preprocessing import UnitSphere
from krein.solvers.dense_dual import Task
from krein.solvers.dual import Dual
from krein.solvers.nu_svm import NuDual, NuTask
from krein.tables.encoding import Categories, Encoder, Numbers
from krein.tables.model import Model, Score

__all__ = ["KINDS", "MODELS", "Kind", "kind_of"]

Fields = dict[str, Any]

# -- the list ----------------------------------------------------------------------------------------------------------


def _listed(room: types.ModuleType) -> list[type]:
    return [value for name in room.__all__ if isinstance(value := getattr(room, name), type)]


# What rooms list as public. Precomputed is read in a way of its own.
ESTIMATORS = (UnitSphere, *(v for v in _listed(estimators) if issubclass(v, BaseEstimator)))
OWN_KERNELS = (
    FromSklearn, GivenColumns,
    *(v for v in _listed(kernels) if issubclass(v, Kernel) and is_dataclass(v) and v is not Precomputed),
)  # fmt: skip
WHOLES = (Model, Approximation, BlockSparse)
PARTS = (
    Traits, Group, Partition, Embedding, Branches, LandmarkMap, Selection, Candidate, ErrorEstimate, KernelExpansion,
    PairExpansion, NeighbourExpansion, FactoredExpansion, Centred, Component, Posterior, Task, Dual, NuTask, NuDual,
    Fastfood, Numbers, Categories, Encoder, Score, Column, MixedRows, Policy, Exact, Features, Handed, Given, ByError,
    ByScore,
)  # fmt: skip
OF_SKLEARN = (
    sk.RBF, sk.Matern, sk.RationalQuadratic, sk.ExpSineSquared, sk.DotProduct, sk.ConstantKernel, sk.WhiteKernel,
    sk.PairwiseKernel, sk.Sum, sk.Product, sk.Exponentiation, sk.CompoundKernel,
)  # fmt: skip
FLOATS = ("float32", "float64")
SPARSE = (sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array)
GENERATORS = {g.__name__: g for g in (np.random.PCG64, np.random.PCG64DXSM, np.random.SFC64)}
TYPES: dict[str, type] = {"float": float, "int": int, "bool": bool} | {
    f"numpy.{name}": np.dtype(name).type for name in TENSORS.values()
}
HELD: dict[str, Any] = {  # what estimators keep under these names after a fit
    "approximation": Approximation | None, "_approximation": Approximation | None, "_uncorrected": Approximation,
    "_expansion": KernelExpansion | FactoredExpansion, "_preimage": KernelExpansion | FactoredExpansion,
    "_centred": Centred, "_posterior": Posterior | None, "selection_": Selection | None, "policy": Policy | None,
    "route_": Exact | Features | Handed | Given | ByError | ByScore,
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """One class, under its name in files."""

    name: str
    cls: type
    apart: Callable[[Any], Fields]
    together: Callable[[Fields], Any]


def kind_of(value: Any) -> Kind | None:
    """How ``value`` is taken apart; None for what no file holds, a subclass of the user's included."""
    if isinstance(value, type):
        return KINDS["type"] if value in TYPES.values() else None
    return _BY_CLASS.get(type(value)) or (KINDS["dtype"] if isinstance(value, np.dtype) else None)


# -- dataclasses, estimators, kernel objects ---------------------------------------------------------------------------


def _of_dataclass(cls: Any) -> Kind:
    given_fields = [field for field in fields(cls) if field.init]  # the others follow from them
    names = [field.name for field in given_fields]
    needed = {field.name for field in given_fields if field.default is MISSING and field.default_factory is MISSING}
    found = get_type_hints(cls, localns={"KW_ONLY": Any})  # Python 3.10 takes the marker for a wrong type
    hints = {name: checker(hint) for name, hint in found.items() if name in names}

    def together(given: Fields) -> Any:
        _check_names(cls, given, names, needed)
        for name, value in given.items():
            if not hints[name](value):
                raise InputError(f"{cls.__name__}.{name} cannot be a {type(value).__name__}")
        _need(cls not in _FITS or _FITS[cls](given), f"a {cls.__name__}")
        made = cls(**given)
        for name, value in given.items():
            if not _same(getattr(made, name), value):  # a sum inside a sum, for one, might double with each level
                raise InputError(f"{cls.__name__}.{name} is not in the form it is written in")
        return made

    return Kind(cls.__name__, cls, lambda value: {name: getattr(value, name) for name in names}, together)


def _of_earlier(name: str, cls: Any, fields_of: Callable[[Fields], Fields]) -> Kind:
    """A class that is no longer written, read as one of today's."""
    return Kind(name, type(name, (), {}), lambda value: {}, lambda given: _of_dataclass(cls).together(fields_of(given)))


def _of_estimator(cls: Any) -> Kind:
    names = set(cls().get_params(deep=False))

    def apart(model: Any) -> Fields:
        state = {name: value for name, value in vars(model).items() if name not in getattr(model, "_unsaved", ())}
        if "workdir" in state:
            state["workdir"] = None  # it belongs to the fit
        for name in state:
            _check_state(name)
        return state

    def _check_state(name: str) -> None:
        learned = name.isidentifier() and not name.startswith("__") and (name[0] == "_" or name[-1] == "_")
        if name not in names and (not learned or hasattr(cls, name)):
            raise InputError(f"{name!r} is no parameter of {cls.__name__} and nothing it learns")

    def together(given: Fields) -> Any:
        given = upgraded(given)
        for name, value in given.items():
            _check_state(name)
            if name in HELD and not checker(HELD[name])(value):
                raise InputError(f"{cls.__name__}.{name} cannot be a {type(value).__name__}")
        made = cls(**{name: value for name, value in given.items() if name in names})
        vars(made).update(given)
        return made

    return Kind(cls.__name__, cls, apart, together)


def _precomputed(given: Fields) -> Precomputed:
    """Without looking at all of S for asymmetry again, which would take longer than reading it; no path is opened."""
    names = [field.name for field in fields(Precomputed)]
    _check_names(Precomputed, given, names, {"S"})
    S = given["S"]
    numbers = isinstance(S, np.ndarray | sp.csr_matrix | sp.csr_array) and S.dtype.kind in "biuf"
    _need(numbers and len(S.shape) == 2 and S.shape[0] == S.shape[1], "a Precomputed")
    Precomputed(
        np.eye(2), **{name: value for name, value in given.items() if name != "S"}
    )  # are they what they may be?
    made: Precomputed = object.__new__(Precomputed)
    for name, value in given.items():
        object.__setattr__(made, name, value)
    return made


def _of_sklearn(cls: Any, name: str) -> Kind:
    names = list(inspect.signature(cls).parameters)

    def together(given: Fields) -> Any:
        _check_names(cls, given, names, set())
        for part in ("k1", "k2", "kernel"):
            expected = Kernel if cls is AsSklearn else sk.Kernel
            if part in given and not isinstance(given[part], expected):
                raise InputError(f"{name}.{part} must be a kernel")
        return cls(**given)

    return Kind(name, cls, lambda value: dict(value.get_params(deep=False)), together)


def _check_names(cls: type, given: Mapping[str, Any], known: list[str], needed: set[str]) -> None:
    if unknown := sorted(set(given) - set(known)):
        raise InputError(f"{cls.__name__} has no {', '.join(unknown)} in this version of krein; a newer one may")
    if missing := sorted(needed - set(given)):
        raise InputError(f"{cls.__name__} lacks {', '.join(missing)}")


def _same(made: Any, given: Any) -> bool:
    if isinstance(made, tuple) and isinstance(given, tuple):
        return len(made) == len(given) and all(a is b or _same(a, b) for a, b in zip(made, given, strict=True))
    return made is given or (isinstance(made, bool | int | float | str) and bool(made == given or made != made))


@functools.cache
def checker(hint: Any) -> Callable[[Any], bool]:
    """Return whether a value is what a field's annotation says, as a function; numbers and arrays by their kind."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return lambda value: True
    if origin is get_origin(Callable[..., Any]):
        return callable
    if origin in (Union, types.UnionType):
        options = [checker(option) for option in inner]
        return lambda value: any(fits(value) for fits in options)
    if origin is np.ndarray:
        kinds = "iu" if get_origin(get_args(inner[1])[0]) is np.integer else "biuf"
        return lambda value: isinstance(value, np.ndarray) and value.dtype.kind in kinds
    if origin is tuple:
        each = [checker(item) for item in inner if item is not Ellipsis]
        if Ellipsis in inner:
            return lambda value: isinstance(value, tuple) and all(map(each[0], value))
        return lambda value: (
            isinstance(value, tuple)
            and len(value) == len(each)
            and all(fits(item) for fits, item in zip(each, value, strict=True))
        )
    if origin is dict:
        return lambda value: isinstance(value, dict)
    if hint is float or hint is int:
        numbers = (int, np.integer) if hint is int else (int, float, np.integer, np.floating)
        return lambda value: isinstance(value, numbers) and not isinstance(value, bool)
    return lambda value: isinstance(value, hint)


# -- what must fit together --------------------------------------------------------------------------------------------


def _need(true: Any, name: str) -> None:
    if not bool(true):
        raise InputError(f"the parts of {name} do not fit together")


def _core_fits(given: Fields) -> bool:
    ranks = np.array(given["ranks"], dtype=np.intp)
    return (not len(ranks) or ranks.min() >= 0) and all(_group_fits(g, ranks) for g in given["groups"])


def _group_fits(g: Group, ranks: Indices) -> bool:
    shape = g.values.shape[1:]
    if not (g.left.shape == g.right.shape == g.values.shape[:1] and g.left.ndim == 1 and len(shape) in (1, 2)):
        return False
    if len(shape) == 1 and not np.array_equal(g.left, g.right):  # only blocks on the diagonal can be diagonals
        return False
    if not len(g.left):
        return True
    inside = g.left.min() >= 0 and (g.left <= g.right).all() and g.right.max() < len(ranks)
    return bool(inside and (ranks[g.left] == shape[0]).all() and (ranks[g.right] == shape[-1]).all())


def _factorization_apart(f: Factorization) -> Fields:
    """Files hold the bases flat, as they were kept before they became a value of their own.

    Of bases whose rows lay elsewhere a file holds the number of rows of each block.
    """
    if isinstance(f.bases, PieceBases):
        return {
            "bases": (), "core": f.core, "order": np.empty(0, dtype=np.intp), "shift": f.shift, "maps": f.bases.maps,
            "sizes": np.array(f.bases.sizes, dtype=np.intp), "dtype": f.bases.dtype,
        }  # fmt: skip
    return {"bases": f.bases.blocks, "core": f.core, "order": f.order, "shift": f.shift, "maps": f.maps}


def _factorization(given: Fields) -> Factorization:
    known = ["bases", "core", "order", "shift", "maps", "sizes", "dtype"]
    _check_names(Factorization, given, known, {"bases", "core", "order"})
    held: Any = dict.fromkeys(known) | {"shift": 0.0} | given
    bases, core, order, shift, maps, sizes, dtype = held.values()
    square = checker(Array | BlockSparse)(core) and len(core.shape) == 2 and core.shape[0] == core.shape[1]
    _need(square and checker(float)(shift) and (maps is None or _are_matrices(maps)), "a Factorization")
    if "sizes" in given:  # its rows lay elsewhere
        counts = checker(Indices)(sizes) and sizes.ndim == 1 and len(sizes) and sizes.min() >= 0
        _need(counts and maps is not None and len(maps) == len(sizes) and dtype in FLOATS, "a Factorization")
        return Factorization(PieceBases(Pieces.absent(sizes), maps, dtype), core, shift)
    _need(_are_matrices(bases) and len(bases) and checker(Indices)(order) and order.ndim == 1, "a Factorization")
    _need(maps is None or [len(A) for A in maps] == [B.shape[1] for B in bases], "a Factorization")
    return Factorization.from_blocks(bases, core, order, shift, maps)


def _are_matrices(values: Any) -> bool:
    matrices = isinstance(values, tuple) and all(isinstance(A, np.ndarray) for A in values)
    return matrices and all(A.ndim == 2 and A.dtype.kind in "iuf" for A in values)


def _rows_together(given: Fields) -> RowPieces:
    _check_names(RowPieces, given, ["shape", "dtype"], {"shape", "dtype"})
    shape, dtype = given["shape"], given["dtype"]
    _need(checker(tuple[int, int])(shape) and min(shape) > 0 and dtype in FLOATS, "RowPieces")
    return RowPieces.absent(shape, dtype)


def _partition_fits(given: Fields) -> bool:
    order, starts, centres = given["order"], given["starts"], given["centres"]
    if not (order.ndim == starts.ndim == 1 and len(starts) >= 2 and centres.ndim == 2):
        return False
    rising = starts[0] == 0 and starts[-1] == (len(order) or starts[-1]) and (np.diff(starts) >= 0).all()
    return bool(rising and len(centres) == len(starts) - 1)


def _landmarks_fit(given: Fields) -> bool:
    T = given["transform"]
    return T.ndim == 2 and count_objects(given["landmarks"]) == len(T)


def _approximation_fits(given: Fields) -> bool:
    f, clusters, maps = given["factorization"], given["partition"], given["maps"]
    return bool(
        count_objects(given["objects"]) == f.shape[0] == clusters.starts[-1]
        and len(maps) == f.n_blocks == clusters.n_blocks
        and all(m.transform.shape[1] == k for m, k in zip(maps, f.ranks, strict=True))
        and given.get("assignment", "centre") in ASSIGNMENTS
    )


# Whether the fields of a class fit together.
_FITS: dict[Any, Callable[[Fields], bool]] = {
    BlockSparse: _core_fits,
    Partition: _partition_fits,
    LandmarkMap: _landmarks_fit,
    Embedding: _landmarks_fit,
    Approximation: _approximation_fits,
    Model: lambda given: isinstance(given["estimator"], ESTIMATORS),
    FromSklearn: lambda given: isinstance(given["wrapped"], sk.Kernel),
}

# -- the rest ----------------------------------------------------------------------------------------------------------


def _of_sparse(cls: Any) -> Kind:
    def together(given: Fields) -> Any:
        shape, name = given["shape"], f"a {cls.__name__}"
        parts = data, indices, indptr = tuple(given[name] for name in ("data", "indices", "indptr"))
        _need(checker(tuple[int, int])(shape) and checker(Array)(data), name)
        _need(all(isinstance(part, np.ndarray) and part.ndim == 1 for part in parts), name)
        _need(indices.dtype.kind == indptr.dtype.kind == "i", name)
        major, minor = shape if issubclass(cls, sp.csr_matrix | sp.csr_array) else shape[::-1]
        # SciPy's products trust the indices and would read beyond the arrays; its own check passes over some
        rising = len(indptr) == major + 1 and indptr[0] == 0 and (np.diff(indptr) >= 0).all()
        _need(rising and len(data) == len(indices) == indptr[-1], name)
        _need(not len(data) or (indices.min() >= 0 and indices.max() < minor), name)
        return cls(parts, shape=shape)

    def apart(value: Any) -> Fields:
        shape = tuple(int(size) for size in value.shape)
        return {"shape": shape, "data": value.data, "indices": value.indices, "indptr": value.indptr}

    return Kind(f"scipy.{cls.__name__}", cls, apart, together)


def _random_state(given: Fields) -> Any:
    found = np.random.RandomState(0)
    _need(0 <= given["state"]["state"]["pos"] <= 624, "a RandomState")  # which C trusts
    found.set_state(given["state"])
    return found


def _generator(given: Fields) -> Any:
    bits = GENERATORS[given["state"]["bit_generator"]](0)
    bits.state = given["state"]
    return np.random.Generator(bits)


def _take_generator(value: Any) -> Fields:
    state = value.bit_generator.state
    if state["bit_generator"] not in GENERATORS:
        raise InputError(f"a Generator of {state['bit_generator']} is not kept; numpy.random.default_rng's is")
    return {"state": state}


def _partial(given: Fields) -> Any:
    _need(callable(given["function"]), "a partial")
    return functools.partial(given["function"], *given["args"], **given["keywords"])


_ALL = (
    *map(_of_estimator, ESTIMATORS),
    *map(_of_dataclass, (*OWN_KERNELS, *WHOLES, *PARTS)),
    *(_of_sklearn(cls, f"sklearn.{cls.__name__}") for cls in OF_SKLEARN),
    _of_sklearn(AsSklearn, "AsSklearn"),
    *map(_of_sparse, SPARSE),
    *(_of_earlier(name, *how) for name, how in EARLIER.items()),
    Kind("Expansion", EarlierExpansion, lambda value: {}, EarlierExpansion.together),
    Kind("Factorization", Factorization, _factorization_apart, _factorization),
    Kind("RowPieces", RowPieces, lambda rows: {"shape": rows.shape, "dtype": str(rows.dtype)}, _rows_together),
    Kind("Precomputed", Precomputed, _of_dataclass(Precomputed).apart, _precomputed),
    Kind(
        "partial",
        functools.partial,
        lambda value: {"function": value.func, "args": value.args, "keywords": value.keywords},
        _partial,
    ),
    Kind("RandomState", np.random.RandomState, lambda value: {"state": value.get_state(legacy=False)}, _random_state),
    Kind("Generator", np.random.Generator, _take_generator, _generator),
    Kind(
        "dtype", np.dtype, lambda value: {"name": f"numpy.{value.name}"}, lambda given: np.dtype(TYPES[given["name"]])
    ),
    Kind(
        "type",
        type,
        lambda value: {"name": next(name for name, known in TYPES.items() if known is value)},
        lambda given: TYPES[given["name"]],
    ),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}
_BY_CLASS: dict[type, Kind] = {kind.cls: kind for kind in _ALL}
MODELS: tuple[type, ...] = (*ESTIMATORS, *OWN_KERNELS, Precomputed, Factorization, *WHOLES)
assert len(KINDS) == len(_ALL) == len(_BY_CLASS)
assert all(is_dataclass(cls) for cls in (*OWN_KERNELS, *WHOLES, *PARTS))
