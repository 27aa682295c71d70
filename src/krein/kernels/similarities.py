"""Kernels made from something else: a user's function, or another kernel normalised (Remark 1).

Their objects need not be vectors: strings, graphs or indices, whatever the function or the inner kernel compares.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array
from krein.errors import InputError, KernelError
from krein.kernels.collections import compare, count_objects, is_sparse, rows
from krein.kernels.kernel import Kernel, Traits, inherit
from krein.kernels.precomputed import as_float

__all__ = ["Anchored", "FromCallable", "Normalized", "as_kernel", "needs_both_orders", "user_written"]

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
    remedy: ClassVar[str] = "Average it: lambda A, B: (k(A, B) + k(B, A).T) / 2."  # of asymmetry
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


class Anchored(Kernel):
    """Base class of kernels that need one number per object in addition to the comparison of two objects.

    The numbers of fixed objects are computed once (`own`) and passed to `cross`; new objects need only theirs.
    """

    @abstractmethod
    def own(self, A: Any) -> Array:
        """Return the number of each object of A, (len(A),)."""

    @abstractmethod
    def own_entries(self, n_objects: int) -> int:
        """Return how many entries `own` evaluates for ``n_objects``."""

    @abstractmethod
    def cross(self, A: Any, B: Any, own_B: Any) -> Array:
        """Return k(A, B), given the numbers of B."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "cross" in vars(cls) and "against" not in vars(cls):
            cls.against = Anchored.against  # type: ignore[method-assign]

    def __call__(self, A: Any, B: Any = None) -> Array:
        B = A if B is None else B
        return self.cross(A, B, self.own(B))

    def against(self, B: Any, own_B: Any = None) -> Callable[[Any], Array]:
        """Return A -> k(A, B) as for any kernel; the numbers of B are computed once, unless they are given."""
        return partial(_with_own, self, B, self.own(B) if own_B is None else own_B)

    def against_entries(self, n_objects: int) -> int:
        return self.own_entries(n_objects)

    def cross_entries(self, n: int, m: int, same: bool = False) -> int:
        """Return how many entries `cross` evaluates for n and m objects; ``same`` where B is A."""
        return n * m + (0 if same else self.own_entries(n))

    def block_entries(self, n: int, m: int, same: bool = False) -> int:
        return self.cross_entries(n, m, same) + self.own_entries(m)


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

    def bind_entries(self, n_objects: int) -> int:
        return self.kernel.bind_entries(n_objects)

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


def _with_own(kernel: Anchored, B: Any, own_B: Any, A: Any) -> Array:
    return kernel.cross(A, B, own_B)


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


def needs_both_orders(kernel: Any) -> bool:
    """Return whether the whole matrix has to show that the kernel is symmetric: it has a user's code in it.

    For a function of two objects it is enough to compare samples in both orders (`check_similarity`).
    """
    return any(not getattr(part, "mirrored", False) for part in user_written(kernel))


def user_written(kernel: Any) -> Iterator[Kernel]:
    """Yield the parts of a kernel that a user wrote: callables, and subclasses of Kernel outside krein."""
    if isinstance(kernel, tuple):
        for part in kernel:
            yield from user_written(part)
    elif isinstance(kernel, Kernel):
        if isinstance(kernel, FromCallable) or not type(kernel).__module__.startswith("krein."):
            yield kernel
        elif is_dataclass(kernel):
            for each in fields(kernel):
                yield from user_written(getattr(kernel, each.name))
