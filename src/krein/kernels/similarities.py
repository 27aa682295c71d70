"""Kernels made from something else: a user's function, another kernel normalised (Remark 1), sums and products.

Their objects need not be vectors: strings, graphs or indices, whatever the function or the inner kernel compares.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from itertools import product
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array
from krein.errors import InputError, KernelError, positive
from krein.kernels.collections import compare, count_objects, is_sparse, rows
from krein.kernels.kernel import Anchored, Kernel, Traits, as_float, inherit

__all__ = ["FromCallable", "Normalized", "Product", "Scaled", "Sum", "as_kernel"]

# The diagonal of a callable is read from blocks of DIAGONAL_CHUNK objects.
DIAGONAL_CHUNK = 8


@dataclass(frozen=True, repr=False)
class FromCallable(Kernel):
    """A user's function as a kernel.

    Parameters
    ----------
    function : callable
        k(A, B) -> array of shape (len(A), len(B)). A function of two objects, f(a, b) -> float, is recognised when the
        kernel is bound to data (`krein.pairwise`).
    declared : Traits, default=Traits(stationary=False, psd=None)
        What the function promises. `check_kernel` tests it on data.
    """

    function: Callable[[Any, Any], Any]
    declared: Traits = field(default_factory=lambda: Traits(stationary=False, psd=None))

    compares: ClassVar[str] = "anything"
    mirrored: ClassVar[bool] = False  # whether k(A, A) evaluates each pair once, so that it shows no asymmetry
    is_function: ClassVar[bool] = True
    _unsaved: ClassVar[tuple[str, ...]] = ("_known",)  # whether the function is known to compare collections

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"FromCallable needs a callable k(A, B) -> array; got {type(self.function).__name__}.")
        if not isinstance(self.declared, Traits):
            raise InputError(
                f"FromCallable needs its declared properties as Traits; got {type(self.declared).__name__}."
            )

    @property
    def traits(self) -> Traits:
        return self.declared

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"{type(self).__name__}({name})"

    def __call__(self, A: Any, B: Any = None) -> Array:
        values = compare(self.function, A, A if B is None else B)
        if np.ma.is_masked(values):
            raise KernelError(
                f"{self!r} must return finite numbers; {int(np.ma.getmaskarray(values).sum())} of {values.size} values "
                "are masked. Fill them in."
            )
        values = values.toarray() if is_sparse(values) else np.asarray(values)
        if not values.flags.owndata:  # a part of memory that the next call may write into
            values = values.copy()
        return as_float(values)  # what is no number stays as it is: Evaluator says so

    def diag(self, A: Any) -> Array:
        n = count_objects(A)
        parts = [rows(A, slice(start, start + DIAGONAL_CHUNK)) for start in range(0, n, DIAGONAL_CHUNK)]
        return np.concatenate([self._diagonal(part) for part in parts]) if parts else np.empty(0)

    def diag_entries(self, n_objects: int) -> int:
        whole, rest = divmod(n_objects, DIAGONAL_CHUNK)
        return whole * DIAGONAL_CHUNK**2 + rest**2

    def bind(self, X: Any) -> Kernel:
        """Return this kernel, or that of a function of two objects; what the function takes is asked once."""
        from krein.kernels.pair_function import PairFunction, takes  # it is made of this class

        if "_known" in vars(self) or is_sparse(X) or count_objects(X) < 2:
            return self
        try:
            found = takes(self.function, X)
        except KernelError:  # it changes what it is given, and is refused when it is used
            return self
        if found == "pairs":
            return PairFunction(self.function, self.declared).bind(X)
        if found == "collections":
            object.__setattr__(self, "_known", True)
        return self

    def _diagonal(self, part: Any) -> Array:
        block, m = self(part, part), count_objects(part)
        if block.shape != (m, m):
            raise KernelError(
                f"{self!r} must return an array of shape {(m, m)} for {m} and {m} objects; got shape {block.shape}."
            )
        return np.diagonal(block).copy()


@dataclass(frozen=True)
class Normalized(Anchored):
    """A kernel scaled to self-similarities of 1: k(x, y) / sqrt(k(x, x) k(y, y)) (Remark 1).

    This is the projection to the unit sphere for objects without vectors. It keeps the number of negative eigenvalues,
    so it is psd if the inner kernel is.

    Parameters
    ----------
    kernel : Kernel or callable
        The inner kernel. It needs k(x, x) > 0 for every object.

    Examples
    --------
    >>> import krein
    >>> krein.Normalized(krein.Linear())([[3.0, 0.0], [2.0, 2.0]]).round(3)
    array([[1.   , 0.707],
           [0.707, 1.   ]])
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", as_kernel(self.kernel))
        inherit(self, self.kernel)

    @property
    def traits(self) -> Traits:
        inner = self.kernel.traits
        end = 1.0 if inner.psd else None  # Cauchy-Schwarz
        low = 0.0 if inner.low is not None and inner.low >= 0.0 else None if end is None else -end
        return replace(inner, low=low, high=end, constant_diagonal=True)

    def own(self, A: Any) -> Array:
        """Return the inner kernel's self-similarities."""
        return self.kernel.diag(A)

    def own_entries(self, n_objects: int) -> int:
        return self.kernel.diag_entries(n_objects)

    def cross(self, A: Any, B: Any, own_B: Any) -> Array:
        """Return the normalised k(A, B), given the inner kernel's self-similarities of B."""
        return Normalized.against(self, B, own_B)(A)

    def against(self, B: Any, own_B: Any = None) -> Callable[[Any], Array]:
        own_B = np.asarray(self.own(B) if own_B is None else own_B)
        if own_B.shape != (count_objects(B),):
            raise InputError(f"cross needs own_B of shape {(count_objects(B),)}, one per object; got {own_B.shape}.")
        return partial(_normalized, self, B, self.kernel.against(B), self.lengths(own_B))

    def cross_entries(self, n: int, m: int, same: bool = False) -> int:
        return self.kernel.block_entries(n, m, same) + (0 if same else self.own_entries(n))

    def diag(self, A: Any) -> Array:
        return np.ones_like(self.lengths(self.kernel.diag(A)))

    def diag_entries(self, n_objects: int) -> int:
        return self.kernel.diag_entries(n_objects)

    def bind(self, X: Any) -> Kernel:
        inner = self.kernel.bind(X)
        return self if inner is self.kernel else Normalized(inner)

    def feature_dimension(self, n_features: int) -> float | None:
        return self.kernel.feature_dimension(n_features)

    def lengths(self, diagonal: Array) -> Array:
        """Return the square roots of self-similarities, or raise KernelError unless all are positive."""
        bad = ~(np.isfinite(diagonal) & (diagonal > 0))
        if bad.any():
            raise KernelError(
                f"Normalized needs k(x, x) > 0 and finite for every object, but {self.kernel!r} gave {int(bad.sum())} "
                f"of {len(diagonal)} "
                f"self-similarities that are not (smallest {np.min(diagonal):.3g}, first at {int(np.argmax(bad))}). "
                "Drop those objects (zero rows, for instance), or use the kernel without Normalized."
            )
        return np.asarray(np.sqrt(diagonal))


def _normalized(kernel: Normalized, B: Any, part: Callable[[Any], Array], lengths: Array, A: Any) -> Array:
    """Return k(A, B) / sqrt(k(A, A) k(B, B)), where ``part`` is A -> k(A, B), and ``lengths`` are those of B."""
    of_a = lengths if A is B else kernel.lengths(kernel.kernel.diag(A))
    values = part(A)
    return values / of_a[:, None].astype(values.dtype) / lengths.astype(values.dtype)


def as_kernel(kernel: Any) -> Kernel:
    """Return ``kernel`` as a Kernel: itself, or a callable k(A, B) -> array wrapped in `FromCallable`."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise InputError(
            f"kernel must be an instance; got the class {kernel.__name__}. Write {kernel.__name__}() instead."
        )
    if callable(kernel):
        return FromCallable(kernel)
    raise InputError(
        f"kernel must be a Kernel such as RBF() or TL1(), or a callable k(A, B) -> array; got {kernel!r} "
        f"({type(kernel).__name__}). "
        "For a matrix of similarities use Precomputed(S)."
    )


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
