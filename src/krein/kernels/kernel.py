"""What a kernel is: a frozen value that compares objects and declares its properties; and how kernels combine.

In: two collections of objects A and B. Out: the dense array k(A, B), shape (len(A), len(B)). Every declared property
(`Traits`) is a promise that `check_kernel` tests on data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from itertools import product
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array
from krein.errors import InputError
from krein.kernels.collections import compare

__all__ = ["Kernel", "Product", "Scaled", "Sum", "Traits", "bound", "inherit", "is_number", "positive", "whole"]


@dataclass(frozen=True)
class Traits:
    """What a kernel promises; False or None where it promises nothing.

    For a kernel with ``sphere`` set the other promises hold for rows of length one, which it is meant for.
    """

    stationary: bool  # k(x, y) depends on x - y alone
    psd: bool | None  # True: on any data; False: some data give negative eigenvalues; None: unknown
    sphere: bool = False  # meant for the unit sphere
    low: float | None = None  # low <= k(x, y) <= high, up to rounding
    high: float | None = None
    constant_diagonal: bool = False  # k(x, x) is the same number for all x
    compact: bool = False  # k(x, y) = 0 for x and y far enough apart
    unitary_invariant: bool = False  # k(Vx, Vy) = k(x, y) for orthogonal V
    differentiable: bool = False  # has a gradient in x everywhere
    preprocessing: str | None = None  # the paper's: "unit-interval", "z-score-sphere", "sphere"


class Kernel(ABC):
    """A symmetric similarity k(x, y); subclasses are frozen dataclasses, equal and hashable by value.

    Calls validate nothing that costs a pass over the data; `Evaluator` checks what comes out.
    """

    accepts_sparse: ClassVar[bool] = False
    compares: ClassVar[str] = "vectors"  # or "strings", "sequences" (of numbers), "indices", "anything"
    dissimilar: ClassVar[bool] = False  # whether large values mean far apart: a distance, to be made a similarity first

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls) and "against" not in vars(cls):
            cls.against = Kernel.against  # type: ignore[method-assign]  # an inherited one would go by another formula

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """What this instance promises."""

    @abstractmethod
    def __call__(self, A: Any, B: Any = None) -> Array:
        """Return k(A, B), dense, shape (len(A), len(B)); B is A if not given."""

    def against(self, B: Any) -> Callable[[Any], Array]:
        """Return A -> k(A, B), with everything that depends on B alone prepared once, for many calls with few objects.

        The function is a value that can be pickled, without what it can compute again.
        """
        return Against(self, B)

    @abstractmethod
    def diag(self, A: Any) -> Array:
        """Return k(x, x) for every x in A, shape (len(A),)."""

    def block_entries(self, n: int, m: int, same: bool = False) -> int:
        """Return how many entries k(A, B) evaluates for n and m objects; ``same`` where B is A."""
        return n * m

    def against_entries(self, n_objects: int) -> int:
        """Return how many of them `against` evaluates for ``n_objects`` in B, once for all calls."""
        return 0

    def diag_entries(self, n_objects: int) -> int:
        """Return how many entries of k `diag` evaluates for ``n_objects``."""
        return n_objects

    def bind_entries(self, n_objects: int) -> int:
        """Return how many entries of k `bind` evaluates for ``n_objects``."""
        return 0

    def bind(self, X: Any) -> Kernel:
        """Return this kernel with the parameters left None bound to the data X; itself if there are none."""
        return self

    def feature_dimension(self, n_features: int) -> float | None:
        """Return the dimension of the feature space for vectors of ``n_features``; None if unknown."""
        return None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; ``deep``: those of a kernel inside too, as ``kernel__gamma``.

        So that a search over estimators finds them. A kernel never changes: see `with_params`.
        """
        named: list[str] = [f.name for f in fields(self) if f.init] if is_dataclass(self) else []
        found = {name: getattr(self, name) for name in named}
        inner = {name: value.get_params() for name, value in found.items() if deep and isinstance(value, Kernel)}
        return found | {f"{name}__{key}": value for name, own in inner.items() for key, value in own.items()}

    def with_params(self, **changes: Any) -> Kernel:
        """Return this kernel with other parameters; ``kernel__gamma=2.0`` is that of the kernel inside."""
        own, inside = {}, dict[str, dict[str, Any]]()
        for key, value in changes.items():
            name, _, rest = key.partition("__")
            if name not in self.get_params(deep=False) or (rest and not isinstance(getattr(self, name), Kernel)):
                known = ", ".join(map(repr, sorted(self.get_params()))) or "none"
                raise InputError(f"{self!r} has no parameter {key!r}; its parameters are: {known}.")
            if rest:
                inside.setdefault(name, {})[rest] = value
            else:
                own[name] = value
        for name, deeper in inside.items():
            own[name] = own.get(name, getattr(self, name)).with_params(**deeper)
        return replace(self, **own) if own else self  # type: ignore[type-var]

    def __sklearn_clone__(self) -> Kernel:
        return self  # a value: there is nothing to copy

    def __add__(self, other: object) -> Kernel:
        return Sum((self, other)) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: object) -> Kernel:
        if isinstance(other, Kernel):
            return Product((self, other))
        return Scaled(self, float(other)) if isinstance(other, Real) else NotImplemented

    def __rmul__(self, other: object) -> Kernel:
        return self * other


@dataclass(frozen=True, eq=False)
class Against:
    """A -> k(A, B) where nothing is prepared."""

    kernel: Kernel
    B: Any

    def __call__(self, A: Any) -> Array:
        values: Array = compare(self.kernel, A, self.B)
        return values


@dataclass(frozen=True, eq=False)
class Accumulated:
    """A -> the sum or the product of several kernels' values."""

    operation: Any  # np.add or np.multiply
    parts: tuple[Callable[[Any], Array], ...]

    def __call__(self, A: Any) -> Array:
        return _accumulated(self.operation, (part(A) for part in self.parts))


@dataclass(frozen=True, eq=False)
class Times:
    """A -> factor * k(A, B)."""

    part: Callable[[Any], Array]
    factor: float

    def __call__(self, A: Any) -> Array:
        return self.factor * self.part(A)


@dataclass(frozen=True)
class Sum(Kernel):
    """k_1 + k_2 + ...; sums inside are flattened. psd if every term is."""

    terms: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        _flatten(self, "terms", self.terms)

    @property
    def traits(self) -> Traits:
        parts = [term.traits for term in self.terms]
        return _joined(
            parts,
            low=_total([p.low for p in parts]),
            high=_total([p.high for p in parts]),
            compact=all(p.compact for p in parts),
        )

    def __call__(self, A: Any, B: Any = None) -> Array:
        return Sum.against(self, A if B is None else B)(A)

    def against(self, B: Any) -> Callable[[Any], Array]:
        return Accumulated(np.add, tuple(term.against(B) for term in self.terms))

    def diag(self, A: Any) -> Array:
        return _accumulated(np.add, (term.diag(A) for term in self.terms))

    def block_entries(self, n: int, m: int, same: bool = False) -> int:
        return max(term.block_entries(n, m, same) for term in self.terms)

    def against_entries(self, n_objects: int) -> int:
        return max(term.against_entries(n_objects) for term in self.terms)

    def diag_entries(self, n_objects: int) -> int:
        return max(term.diag_entries(n_objects) for term in self.terms)

    def bind_entries(self, n_objects: int) -> int:
        return max(term.bind_entries(n_objects) for term in self.terms)

    def bind(self, X: Any) -> Kernel:
        bound_terms = tuple(term.bind(X) for term in self.terms)
        return self if bound_terms == self.terms else Sum(bound_terms)


@dataclass(frozen=True)
class Product(Kernel):
    """k_1 k_2 ..., entry by entry; products inside are flattened. psd if every factor is (Schur)."""

    factors: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        _flatten(self, "factors", self.factors)

    @property
    def traits(self) -> Traits:
        parts = [factor.traits for factor in self.factors]
        low, high = _product_range(parts)
        return _joined(parts, low=low, high=high, compact=any(p.compact for p in parts))

    def __call__(self, A: Any, B: Any = None) -> Array:
        return Product.against(self, A if B is None else B)(A)

    def against(self, B: Any) -> Callable[[Any], Array]:
        return Accumulated(np.multiply, tuple(factor.against(B) for factor in self.factors))

    def diag(self, A: Any) -> Array:
        return _accumulated(np.multiply, (factor.diag(A) for factor in self.factors))

    def block_entries(self, n: int, m: int, same: bool = False) -> int:
        return max(factor.block_entries(n, m, same) for factor in self.factors)

    def against_entries(self, n_objects: int) -> int:
        return max(factor.against_entries(n_objects) for factor in self.factors)

    def diag_entries(self, n_objects: int) -> int:
        return max(factor.diag_entries(n_objects) for factor in self.factors)

    def bind_entries(self, n_objects: int) -> int:
        return max(factor.bind_entries(n_objects) for factor in self.factors)

    def bind(self, X: Any) -> Kernel:
        bound_factors = tuple(factor.bind(X) for factor in self.factors)
        return self if bound_factors == self.factors else Product(bound_factors)


@dataclass(frozen=True)
class Scaled(Kernel):
    """factor * k, with factor > 0, so that every promise about signs is kept."""

    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        kernel, factor = self.kernel, positive(self, "factor", self.factor)
        if not isinstance(kernel, Kernel):
            raise InputError(
                f"Scaled needs a Kernel; got {type(kernel).__name__}. Wrap a callable with as_kernel first."
            )
        if isinstance(kernel, Scaled):
            factor, kernel = positive(self, "factor", kernel.factor * factor), kernel.kernel
        object.__setattr__(self, "kernel", kernel)
        object.__setattr__(self, "factor", factor)
        inherit(self, kernel)

    @property
    def traits(self) -> Traits:
        inner = self.kernel.traits
        low, high = (None if end is None else self.factor * end for end in (inner.low, inner.high))
        return replace(inner, low=low, high=high)

    def __call__(self, A: Any, B: Any = None) -> Array:
        return Scaled.against(self, A if B is None else B)(A)

    def against(self, B: Any) -> Callable[[Any], Array]:
        return Times(self.kernel.against(B), self.factor)

    def diag(self, A: Any) -> Array:
        return self.factor * self.kernel.diag(A)

    def block_entries(self, n: int, m: int, same: bool = False) -> int:
        return self.kernel.block_entries(n, m, same)

    def against_entries(self, n_objects: int) -> int:
        return self.kernel.against_entries(n_objects)

    def diag_entries(self, n_objects: int) -> int:
        return self.kernel.diag_entries(n_objects)

    def bind_entries(self, n_objects: int) -> int:
        return self.kernel.bind_entries(n_objects)

    def bind(self, X: Any) -> Kernel:
        inner = self.kernel.bind(X)
        return self if inner is self.kernel else Scaled(inner, self.factor)

    def feature_dimension(self, n_features: int) -> float | None:
        return self.kernel.feature_dimension(n_features)


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a finite real number (True and False are none)."""
    return (
        isinstance(value, (int, float, np.integer, np.floating))
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def positive(asker: object, name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise InputError unless it is a positive finite number."""
    if is_number(value) and value >= np.finfo(float).tiny:  # smaller numbers have few digits
        return float(value)
    raise InputError(
        f"{type(asker).__name__} needs {name} to be a positive finite number of at least 2.3e-308; got {value!r}. "
        "Rescale the data."
    )


def whole(asker: object, name: str, value: Any) -> int:
    """Return ``value`` as an int, or raise InputError unless it is a whole number >= 1."""
    if is_number(value) and value == int(value) and value >= 1:
        return int(value)
    raise InputError(f"{type(asker).__name__} needs {name} to be a whole number, 1 or more; got {value!r}.")


def bound(asker: Kernel, name: str, value: float | None) -> float:
    """Return ``value``, or raise InputError if the parameter is still None."""
    if value is None:
        raise InputError(
            f"{asker!r} needs a value for {name}, which is still None. Give one, as in "
            f"{type(asker).__name__}({name}=0.5), "
            f"or bind it to the data with .bind(X)."
        )
    return value


def _flatten(kernel: Kernel, name: str, parts: tuple[Kernel, ...]) -> None:
    kind = type(kernel)
    if not parts or not all(isinstance(part, Kernel) for part in parts):
        kinds = ", ".join(type(part).__name__ for part in parts) or "nothing"
        raise InputError(
            f"{kind.__name__} needs a tuple of one or more kernels; got {kinds}. Wrap callables with as_kernel first."
        )
    flat = tuple(inner for part in parts for inner in (getattr(part, name) if isinstance(part, kind) else (part,)))
    object.__setattr__(kernel, name, flat)
    inherit(kernel, *flat)


def inherit(kernel: Kernel, *parts: Kernel) -> None:
    """Give a kernel made of others what all of them take: sparse rows, and the kind of objects."""
    object.__setattr__(kernel, "accepts_sparse", all(part.accepts_sparse for part in parts))
    kinds = {part.compares for part in parts} - {"anything"} or {"anything"}
    if len(kinds) > 1:
        raise InputError(
            f"{type(kernel).__name__} needs kernels of the same objects; these compare {', '.join(sorted(kinds))}."
        )
    callables = any(part.compares == "anything" for part in parts)
    kind = kinds.pop()
    object.__setattr__(kernel, "compares", "anything" if callables and kind == "vectors" else kind)
    object.__setattr__(kernel, "dissimilar", any(part.dissimilar for part in parts))


def _accumulated(operation: Any, arrays: Iterator[Array]) -> Array:
    return reduce(operation, arrays)  # one after the other: two blocks are held, not one per kernel


def _joined(parts: list[Traits], *, low: float | None, high: float | None, compact: bool) -> Traits:
    steps = {part.preprocessing for part in parts}
    return Traits(
        stationary=all(p.stationary for p in parts),
        psd=True if all(p.psd for p in parts) else None,  # what negative parts add up to is unknown
        sphere=any(p.sphere for p in parts),
        low=low,
        high=high,
        constant_diagonal=all(p.constant_diagonal for p in parts),
        compact=compact,
        unitary_invariant=all(p.unitary_invariant for p in parts),
        differentiable=all(p.differentiable for p in parts),
        preprocessing=steps.pop() if len(steps) == 1 else None,
    )


def _total(ends: list[float | None]) -> float | None:
    known = [end for end in ends if end is not None]
    return sum(known) if len(known) == len(ends) else None


def _product_range(parts: list[Traits]) -> tuple[float | None, float | None]:
    intervals = [(p.low, p.high) for p in parts if p.low is not None and p.high is not None]
    if len(intervals) == len(parts):
        corners = [math.prod(ends) for ends in product(*intervals)]  # the extremes of a product lie at its corners
        return min(corners), max(corners)
    lows = [p.low for p in parts if p.low is not None and p.low >= 0]
    return (math.prod(lows), None) if len(lows) == len(parts) else (None, None)
