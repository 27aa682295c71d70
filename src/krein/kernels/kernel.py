"""The base class of kernels, the properties a kernel declares, and sums, products and multiples of kernels.

In: two collections of objects A and B. Out: the dense array k(A, B), shape (len(A), len(B)). `check_kernel` tests on
data what a kernel declares (`Traits`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial, reduce
from itertools import product
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array
from krein.errors import InputError, positive
from krein.kernels.collections import compare

__all__ = ["Kernel", "Product", "Scaled", "Sum", "Traits", "bound", "inherit"]


@dataclass(frozen=True)
class Traits:
    """The properties a kernel declares; False or None where it declares nothing.

    Parameters
    ----------
    stationary : bool
        k(x, y) depends on x - y alone.
    psd : bool or None
        True: on any data. False: some data give negative eigenvalues. None: unknown.
    sphere : bool, default=False
        Meant for rows of length 1. The other properties hold for such rows.
    low, high : float or None, default=None
        low <= k(x, y) <= high, up to rounding.
    constant_diagonal : bool, default=False
        k(x, x) is the same number for all x.
    compact : bool, default=False
        k(x, y) = 0 if x and y are far enough from each other.
    unitary_invariant : bool, default=False
        k(Vx, Vy) = k(x, y) for orthogonal V.
    differentiable : bool, default=False
        k has a gradient in x everywhere.
    preprocessing : {"unit-interval", "z-score-sphere", "sphere", None}, default=None
        What the paper does to the data first.
    """

    stationary: bool
    psd: bool | None
    sphere: bool = False
    low: float | None = None
    high: float | None = None
    constant_diagonal: bool = False
    compact: bool = False
    unitary_invariant: bool = False
    differentiable: bool = False
    preprocessing: str | None = None


class Kernel(ABC):
    """Base class of symmetric similarities k(x, y).

    A subclass implements ``traits``, ``__call__`` and ``diag``. krein's own are frozen dataclasses, which are equal and
    hashable by value. A kernel does not check its results; `Evaluator` does.
    """

    accepts_sparse: ClassVar[bool] = False
    compares: ClassVar[str] = "vectors"  # or "strings", "sequences" (of numbers), "tables", "indices", "anything"
    dissimilar: ClassVar[bool] = False  # whether it is a distance, which FromDistances makes a similarity

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__call__" in vars(cls) and "against" not in vars(cls):
            cls.against = Kernel.against  # type: ignore[method-assign]  # an inherited one would go by another formula

    @property
    @abstractmethod
    def traits(self) -> Traits:
        """The properties that this instance declares."""

    @abstractmethod
    def __call__(self, A: Any, B: Any = None) -> Array:
        """Return k(A, B), dense, shape (len(A), len(B)); B is A if not given."""

    def against(self, B: Any) -> Callable[[Any], Array]:
        """Return the function A -> k(A, B), with everything that depends on B alone computed once.

        The function can be pickled. What it can compute again is not part of the pickle.
        """
        return partial(_compared, self, B)

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
        """Return the parameters by name, with ``deep`` also those of inner kernels, as ``kernel__gamma``.

        `GridSearchCV` uses this. A kernel is immutable; `with_params` returns a changed one.
        """
        named: list[str] = [f.name for f in fields(self) if f.init] if is_dataclass(self) else []
        found = {name: getattr(self, name) for name in named}
        inner = {name: value.get_params() for name, value in found.items() if deep and isinstance(value, Kernel)}
        return found | {f"{name}__{key}": value for name, own in inner.items() for key, value in own.items()}

    def with_params(self, **changes: Any) -> Kernel:
        """Return this kernel with other parameters; ``kernel__gamma=2.0`` changes the inner kernel."""
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


class _Combination(Kernel):
    """Base class of `Sum`, `Product` and `Scaled`: kernels whose values are combined entry by entry."""

    _field: ClassVar[str]  # the name of the field that holds the kernels
    _operation: ClassVar[Any]  # np.add or np.multiply

    def __post_init__(self) -> None:
        _flatten(self, self._field, self._kernels)

    @property
    def _kernels(self) -> tuple[Kernel, ...]:
        return getattr(self, self._field)  # type: ignore[no-any-return]

    def __call__(self, A: Any, B: Any = None) -> Array:
        return _Combination.against(self, A if B is None else B)(A)

    def against(self, B: Any) -> Callable[[Any], Array]:
        return partial(_combined, self._operation, tuple(part.against(B) for part in self._kernels))

    def diag(self, A: Any) -> Array:
        return reduce(self._operation, (part.diag(A) for part in self._kernels))

    def block_entries(self, n: int, m: int, same: bool = False) -> int:
        return max(part.block_entries(n, m, same) for part in self._kernels)

    def against_entries(self, n_objects: int) -> int:
        return max(part.against_entries(n_objects) for part in self._kernels)

    def diag_entries(self, n_objects: int) -> int:
        return max(part.diag_entries(n_objects) for part in self._kernels)

    def bind_entries(self, n_objects: int) -> int:
        return max(part.bind_entries(n_objects) for part in self._kernels)

    def bind(self, X: Any) -> Kernel:
        bound_parts = tuple(part.bind(X) for part in self._kernels)
        return self if bound_parts == self._kernels else type(self)(bound_parts)  # type: ignore[call-arg]


@dataclass(frozen=True)
class Sum(_Combination):
    """The sum of kernels, k_1 + k_2 + ..., written ``k1 + k2``; psd if every term is.

    Parameters
    ----------
    terms : tuple of Kernel
        The kernels. Sums among them are replaced by their terms.
    """

    terms: tuple[Kernel, ...]

    _field: ClassVar[str] = "terms"
    _operation: ClassVar[Any] = np.add

    @property
    def traits(self) -> Traits:
        parts = [term.traits for term in self.terms]
        return _joined(
            parts,
            low=_total([p.low for p in parts]),
            high=_total([p.high for p in parts]),
            compact=all(p.compact for p in parts),
        )


@dataclass(frozen=True)
class Product(_Combination):
    """The product of kernels, k_1 k_2 ..., written ``k1 * k2``; psd if every factor is (Schur).

    Parameters
    ----------
    factors : tuple of Kernel
        The kernels. Products among them are replaced by their factors.
    """

    factors: tuple[Kernel, ...]

    _field: ClassVar[str] = "factors"
    _operation: ClassVar[Any] = np.multiply

    @property
    def traits(self) -> Traits:
        parts = [factor.traits for factor in self.factors]
        low, high = _product_range(parts)
        return _joined(parts, low=low, high=high, compact=any(p.compact for p in parts))


@dataclass(frozen=True)
class Scaled(_Combination):
    """A multiple of a kernel, factor * k, written ``2.0 * k``.

    Parameters
    ----------
    kernel : Kernel
        The kernel k.
    factor : float
        Above 0, so that psd stays psd.
    """

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
        return partial(_multiplied, self.kernel.against(B), self.factor)

    def diag(self, A: Any) -> Array:
        return self.factor * self.kernel.diag(A)

    def bind(self, X: Any) -> Kernel:
        inner = self.kernel.bind(X)
        return self if inner is self.kernel else Scaled(inner, self.factor)

    @property
    def _kernels(self) -> tuple[Kernel, ...]:
        return (self.kernel,)

    def feature_dimension(self, n_features: int) -> float | None:
        return self.kernel.feature_dimension(n_features)


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


def _compared(kernel: Kernel, B: Any, A: Any) -> Array:
    values: Array = compare(kernel, A, B)
    return values


def _combined(operation: Any, parts: tuple[Callable[[Any], Array], ...], A: Any) -> Array:
    return reduce(operation, (part(A) for part in parts))  # one after the other: two blocks are held at a time


def _multiplied(part: Callable[[Any], Array], factor: float, A: Any) -> Array:
    return factor * part(A)


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
