"""What a kernel is, and how it is evaluated: in chunks, checked and counted.

In: two collections of objects A and B. Out: the dense array k(A, B), shape (len(A), len(B)). `Kernel` is the base
class, `Traits` are the properties a kernel declares (`check_kernel` tests them on data). The rest of krein evaluates
kernels through an `Evaluator`, so the errors of a kernel that misbehaves are raised here. It counts its own
evaluations, the main cost of an expensive kernel; `counting` counts all that happen inside a ``with`` block.
"""

from __future__ import annotations

import mmap
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array, Indices, stream, strips
from krein.errors import InputError, KernelError
from krein.kernels.collections import compare, count_objects, rows, take

__all__ = [
    "ASYMMETRY",
    "STRIP",
    "Anchored",
    "BlockEvaluator",
    "Evaluator",
    "Kernel",
    "Tally",
    "Traits",
    "as_float",
    "asymmetry",
    "bound",
    "counting",
    "inherit",
    "needs_both_orders",
    "note",
    "release_pages",
    "uncounted",
    "user_written",
]  # fmt: skip

# A difference |k(x, y) - k(y, x)| of at most ASYMMETRY times the largest |k| counts as rounding.
ASYMMETRY = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-8}
# A matrix is checked in strips of STRIP rows, so that no second array of n² entries is needed.
STRIP = 1024
# Similarities that are all below SMALLEST_SIMILARITY are refused, because float64 holds them with few digits.
SMALLEST_SIMILARITY = 1e-300
# A user's kernel is checked on all pairs of SYMMETRY_SAMPLE objects.
SYMMETRY_SAMPLE = 64
# In addition, every object is compared with COMPARED_OBJECTS objects in both orders.
COMPARED_OBJECTS = 2


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
    is_function: ClassVar[bool] = False  # whether it is a function of the user's
    remedy: ClassVar[str] = "Average it: lambda A, B: (k(A, B) + k(B, A).T) / 2."  # of asymmetry

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

    def bind(self, X: Any) -> Kernel:
        """Return this kernel with the parameters left None bound to the data X; itself if there are none.

        What it evaluates for that it counts itself (`note`).
        """
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
        from krein.kernels.similarities import Sum  # made of this class, as Product and Scaled are

        return Sum((self, other)) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: object) -> Kernel:
        from krein.kernels.similarities import Product, Scaled

        if isinstance(other, Kernel):
            return Product((self, other))
        return Scaled(self, float(other)) if isinstance(other, Real) else NotImplemented

    def __rmul__(self, other: object) -> Kernel:
        return self * other


def bound(asker: Kernel, name: str, value: float | None) -> float:
    """Return ``value``, or raise InputError if the parameter is still None."""
    if value is None:
        raise InputError(
            f"{asker!r} needs a value for {name}, which is still None. Give one, as in "
            f"{type(asker).__name__}({name}=0.5), "
            f"or bind it to the data with .bind(X)."
        )
    return value


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


def _with_own(kernel: Anchored, B: Any, own_B: Any, A: Any) -> Array:
    return kernel.cross(A, B, own_B)


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
        if kernel.is_function or not type(kernel).__module__.startswith("krein."):
            yield kernel
        elif is_dataclass(kernel):
            for each in fields(kernel):
                yield from user_written(getattr(kernel, each.name))


# -- counting ----------------------------------------------------------------------------------------------------------


class Tally:
    """A count that several threads may add to: ``n_evaluations`` entries of kernels were evaluated so far."""

    def __init__(self) -> None:
        self.n_evaluations, self._lock = 0, threading.Lock()

    def add(self, n_entries: int) -> None:
        with self._lock:
            self.n_evaluations += n_entries

    def __repr__(self) -> str:
        return f"Tally(n_evaluations={self.n_evaluations})"


_open: ContextVar[tuple[Tally, ...]] = ContextVar("_open", default=())


@contextmanager
def counting() -> Iterator[Tally]:
    """Count the similarities that krein evaluates inside a ``with`` block.

    Binding parameters to data, fitting, choosing, error estimates and predicting are counted, in this thread and in
    the threads that krein starts from it. Other processes (``cross_val_score(..., n_jobs=2)``) are not.

    Yields
    ------
    Tally
        Its ``n_evaluations`` is the number of kernel entries evaluated so far.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> with krein.counting() as tally:
    ...     approximation = krein.approximate(X, krein.RBF(gamma=1.0), n_blocks=2, rank=5)
    >>> 0 < tally.n_evaluations < 100**2
    True
    """
    tally = Tally()
    token = _open.set((*_open.get(), tally))
    try:
        yield tally
    finally:
        _open.reset(token)


@contextmanager
def uncounted() -> Iterator[None]:
    """Count nothing inside a ``with`` block that reads similarities which were evaluated, and counted, before."""
    token = _open.set(())
    try:
        yield
    finally:
        _open.reset(token)


def note(n_entries: int) -> None:
    """Add entries that were evaluated to the tallies of all ``with`` blocks that are open in this context."""
    for tally in _open.get():
        tally.add(n_entries)


# -- evaluating --------------------------------------------------------------------------------------------------------


class Evaluator:
    """Evaluates one kernel, checks the values and counts them; several threads may share it.

    Errors that the kernel raises are passed on.

    Parameters
    ----------
    kernel : Kernel or callable
        The kernel.
    chunk_entries : int, default=2**18
        Largest number of entries evaluated at a time; at least one row is.
    counted : bool, default=True
        Whether evaluations count in the `counting` blocks that are open when they happen. False is for kernels that
        read numbers which were evaluated before.
    """

    def __init__(self, kernel: Any, *, chunk_entries: int = 2**18, counted: bool = True) -> None:
        if chunk_entries < 1:
            raise InputError(f"chunk_entries must be 1 or more; got {chunk_entries}.")
        if not isinstance(kernel, Kernel):
            from krein.kernels.similarities import as_kernel  # it is made of this class

            kernel = as_kernel(kernel)
        self.kernel: Kernel = kernel
        self.chunk_entries = int(chunk_entries)
        self._own, self._counted = Tally(), counted

    @property
    def n_evaluations(self) -> int:
        """How many kernel entries were evaluated so far, self-similarities included."""
        return self._own.n_evaluations

    def against(self, B: Any, diag_B: Any = None) -> BlockEvaluator:
        """Return k(., B) for many calls; what depends on B alone is computed once.

        ``diag_B`` are the numbers of B's objects that an `Anchored` kernel needs (`own`), if they are known.
        """
        return BlockEvaluator(self, B, diag_B)

    def block(self, A: Any, B: Any) -> Array:
        """Return k(A, B), shape (len(A), len(B)), checked."""
        return self.against(B).block(A)

    def cross(self, A: Any, B: Any, diag_B: Any = None) -> Array:
        """Return k(A, B) like `block`; ``diag_B`` as in `against`."""
        return self.against(B, diag_B).block(A)

    def symmetric(self, A: Any, names: Indices | None = None) -> Array:
        """Return k(A, A), exactly symmetric; asymmetry beyond rounding is a KernelError.

        ``names`` are the positions of A among all objects, for the error message.
        """
        values = self.block(A, A)
        self.check_symmetric(values, names)
        return 0.5 * values + 0.5 * values.T

    def check_symmetric(self, values: Array, names: Indices | None = None) -> None:
        """Raise KernelError if similarities of some objects among themselves are not symmetric, to rounding."""
        gap, i, j = asymmetry(values)
        if gap > 0.0 and gap > self._rounding(values):
            self._refuse_asymmetry(gap, *((i, j) if names is None else (int(names[i]), int(names[j]))), values)

    def check_similarity(self, objects: Any, whole: bool = False) -> None:
        """Check that a user's kernel is symmetric, and that k(x, y) does not depend on other objects in the same call.

        All pairs of a sample are compared. Every object is compared with a few others in both orders (4 n
        similarities), unless the ``whole`` matrix will be evaluated and checked. krein's own kernels are not checked.
        """
        parts, n = list(user_written(self.kernel)), count_objects(objects)
        if not parts:
            return
        some = stream(0, 4).choice(n, min(n, SYMMETRY_SAMPLE), replace=False)
        self.consistent(take(objects, some), some)
        if n > SYMMETRY_SAMPLE and not whole:
            for part in parts:  # what is made of it is symmetric if it is, and may cost more
                Evaluator(part).both_orders(objects, stream(0, 5).choice(n, COMPARED_OBJECTS, replace=False))

    def both_orders(self, A: Any, spots: Indices) -> None:
        """Raise KernelError unless k(x, z) = k(z, x) for every x of A and the few z at ``spots``."""
        few = take(A, spots)
        values = self.block(A, few)
        gaps = np.abs(values - self.block(few, A).T)
        i, j = divmod(int(np.argmax(gaps)), len(spots))
        if gaps[i, j] > self._rounding(values):
            self._refuse_asymmetry(float(gaps[i, j]), i, int(spots[j]), values)

    @staticmethod
    def _rounding(values: Array) -> float:
        """The largest difference between k(x, y) and k(y, x) that counts as rounding."""
        return ASYMMETRY.get(values.dtype, 1e-8) * float(np.max(np.abs(values), initial=0.0))

    def _refuse_asymmetry(self, gap: float, i: int, j: int, values: Array) -> None:
        remedy = next((part for part in user_written(self.kernel) if part.is_function), Kernel).remedy
        raise KernelError(
            f"{self.kernel!r} must be symmetric, k(x, y) = k(y, x); the largest difference is {gap:.3g}, between "
            f"objects {i} and {j} (largest value {float(np.max(np.abs(values), initial=0.0)):.3g}). {remedy}"
        )

    def consistent(self, A: Any, names: Indices | None = None) -> None:
        """Raise KernelError unless k(A, A) is symmetric and k(x, y) is the same whatever else is in the call."""
        values, n = self.block(A, rows(A, slice(None))), count_objects(A)  # in both orders: B is not A
        self.check_symmetric(values, names)
        largest = float(np.abs(values).max(initial=0.0))
        if 0.0 < largest < SMALLEST_SIMILARITY:
            raise KernelError(
                f"{self.kernel!r} gives similarities of at most {largest:.3g}, which float64 holds with few digits or "
                "none. Multiply it, or its features, by a constant: kernel methods do not depend on it."
            )
        few, rest = slice(0, n // 8), slice(n // 8, n)
        for one, other in ((few, rest), (rest, few)):  # finds kernels that depend on len(A), or on earlier calls
            separate = self.block(rows(A, one), rows(A, other))
            gaps = np.abs(separate - values[one, other])
            if gaps.max(initial=0.0) > 10 * ASYMMETRY.get(values.dtype, 1e-8) * largest:
                i, j = (int(v) for v in np.unravel_index(int(np.argmax(gaps)), gaps.shape))
                raise KernelError(
                    f"{self.kernel!r} must give k(x, y) whatever else it is asked for; for one pair it gave "
                    f"{values[one, other][i, j]:.6g} in one call and {separate[i, j]:.6g} in another. Let it depend on "
                    "the two objects alone: statistics of A and B do not belong in it."
                )

    def diag(self, A: Any) -> Array:
        """Return k(x, x) for every x in A, shape (len(A),), checked."""
        n = count_objects(A)
        if n == 0:
            return np.empty(0)
        self._add(self.kernel.diag_entries(n))
        return self._checked(np.asarray(self.kernel.diag(A)), (n,), "diag(A)", 0)

    def own(self, A: Any) -> Array | None:
        """Return the number of each object that an Anchored kernel needs beside what it compares; else None."""
        if not isinstance(self.kernel, Anchored):
            return None
        values = self.kernel.own(A)
        self._add(self.kernel.own_entries(count_objects(A)))
        return values

    def chunks(self, A: Any, B: Any, diag_B: Any = None) -> Iterator[tuple[slice, Array]]:
        """Yield (rows, k(A[rows], B)) over all rows of A, in order, one chunk at a time; ``diag_B`` as in `against`."""
        return self.against(B, diag_B).chunks(A)

    def _add(self, n_entries: int) -> None:
        self._own.add(n_entries)
        if self._counted:
            note(n_entries)

    def _checked(self, values: Any, shape: tuple[int, ...], what: str, start: int) -> Array:
        if values.shape != shape:
            raise KernelError(
                f"{self.kernel!r} must return an array of shape {shape} as {what}; got shape {values.shape}. "
                "Return one row per object of A and one column per object of B."
            )
        if values.dtype.kind not in "biuf":
            raise KernelError(
                f"{self.kernel!r} must return real numbers as {what}; got {values.dtype}. Return a float array."
            )
        if values.dtype not in (np.float32, np.float64):
            values = values.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(values.sum())  # one pass and no array of flags; an overflow is checked below
        if not finite:
            bad = ~np.isfinite(values)
            if bad.any():
                first = tuple(int(i) for i in np.argwhere(bad)[0])
                raise KernelError(
                    f"{self.kernel!r} must return finite numbers; {int(bad.sum())} of {bad.size} in a chunk of {what} "
                    "are NaN or infinite, the first "
                    f"({values[first]}) at row {start + first[0]}"
                    + (f", column {first[1]}" if len(first) > 1 else "")
                    + ". "
                    "Look for missing or huge values in the data, or rescale it."
                )
        return values  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_own": self.n_evaluations}  # a lock cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = Tally()
        own.add(state["_own"])
        vars(self).update(state, _own=own)

    def __repr__(self) -> str:
        return f"Evaluator({self.kernel!r}, n_evaluations={self.n_evaluations})"


@dataclass(frozen=True, eq=False)
class BlockEvaluator:
    """Evaluates k(A, B) for one B and any A, as its Evaluator does: in chunks, counted, checked."""

    evaluator: Evaluator
    B: Any
    diag_B: Any = None

    @cached_property
    def n_columns(self) -> int:
        return count_objects(self.B)

    @cached_property
    def _function(self) -> Callable[[Any], Array]:
        """A -> k(A, B), prepared when it is first needed."""
        kernel = self.evaluator.kernel
        if isinstance(kernel, Anchored):
            return kernel.against(self.B, self.evaluator.own(self.B) if self.diag_B is None else self.diag_B)
        self.evaluator._add(kernel.against_entries(self.n_columns))
        return kernel.against(self.B)

    def block(self, A: Any) -> Array:
        """Return k(A, B), shape (len(A), len(B)), checked."""
        n, m = count_objects(A), self.n_columns
        values: Array = np.empty((0, m))
        entries, kernel = self.evaluator.chunk_entries, self.evaluator.kernel
        if A is self.B and 4 * kernel.block_entries(n, n, same=True) < 3 * kernel.block_entries(n, n):
            entries = max(1, n * n)  # chunks would evaluate each pair twice
        for part, chunk in self.chunks(A, entries):
            if len(chunk) == n:
                return chunk
            if part.start == 0:
                values = np.empty((n, m), dtype=chunk.dtype)
            elif chunk.dtype != values.dtype:  # a callable's type may vary
                filled = values[: part.start]  # the rest is not set yet, and casting garbage warns
                values = np.empty((n, m), dtype=np.result_type(values, chunk))
                values[: part.start] = filled
            values[part] = chunk
        return values

    def chunks(self, A: Any, entries: int | None = None) -> Iterator[tuple[slice, Array]]:
        """Yield (rows, k(A[rows], B)) over all rows of A, in order, one chunk of at most ``entries`` at a time."""
        n, m, evaluator = count_objects(A), self.n_columns, self.evaluator
        for part in strips(n, m, entries or evaluator.chunk_entries):
            shape = (part.stop - part.start, m)
            if m == 0:
                yield part, np.empty(shape)
                continue
            some = A if shape[0] == n else rows(A, part)
            kernel = evaluator.kernel
            evaluator._add(kernel.block_entries(*shape, same=some is self.B) - kernel.against_entries(m))
            yield part, evaluator._checked(np.asarray(self._function(some)), shape, "k(A, B)", part.start)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_function"}


# -- symmetry ----------------------------------------------------------------------------------------------------------


def asymmetry(S: Any) -> tuple[float, int, int]:
    """Return the largest |S_ij - S_ji| and its i and j, in strips: O(n) memory beside S."""
    worst, at = 0.0, (0, 0)
    n = S.shape[0]
    width = STRIP if isinstance(S, np.memmap) else max(1, n)
    for strip in strips(n, 1, STRIP):
        for first in range(strip.start, n, width):
            columns = slice(first, min(first + width, n))
            with np.errstate(over="ignore"):
                gaps = np.abs(as_float(S[strip, columns]) - as_float(S[columns, strip].T))
            release_pages(S)
            i, j = divmod(int(np.argmax(gaps)), gaps.shape[1])
            if gaps[i, j] > worst:
                worst, at = float(gaps[i, j]), (strip.start + i, first + j)
    return worst, *at


def as_float(values: Any) -> Array:
    """Real numbers as float32 or float64; anything else as it is."""
    floats = values.dtype in (np.float32, np.float64) or values.dtype.kind not in "biuf"
    return values if floats else values.astype(np.float64)  # type: ignore[no-any-return]


def release_pages(S: Any) -> None:
    """Release the pages of a file that were read; they stay in the system's cache while there is room."""
    file = getattr(S, "_mmap", None) if isinstance(S, np.memmap) else None
    if isinstance(file, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") and S.mode in ("r", "r+", "w+"):
        file.madvise(mmap.MADV_DONTNEED)  # shared pages: nothing that was written is lost
