"""Evaluation of a kernel: in chunks of rows, counted, and with every value checked.

In: a kernel and collections of objects. Out: dense blocks of finite numbers of the right shape. The rest of krein
evaluates kernels through `Evaluator`, so the errors of a kernel that misbehaves are raised here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from krein.arrays import Array, Indices, strips
from krein.errors import InputError, KernelError
from krein.kernels.collections import count_objects, rows, take
from krein.kernels.counting import Tally, note
from krein.kernels.kernel import Kernel
from krein.kernels.precomputed import ASYMMETRY, largest_asymmetry
from krein.kernels.similarities import Anchored, FromCallable, as_kernel, user_written

__all__ = ["BlockEvaluator", "Evaluator"]

# Similarities that are all below SMALLEST_SIMILARITY are refused, because float64 holds them with few digits.
SMALLEST_SIMILARITY = 1e-300


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

    def __init__(self, kernel: Kernel, *, chunk_entries: int = 2**18, counted: bool = True) -> None:
        if chunk_entries < 1:
            raise InputError(f"chunk_entries must be 1 or more; got {chunk_entries}.")
        self.kernel = as_kernel(kernel)
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
        gap, i, j = largest_asymmetry(values)
        if gap > 0.0:
            self._refuse_asymmetry(gap, *((i, j) if names is None else (int(names[i]), int(names[j]))), values)

    def both_orders(self, A: Any, spots: Indices) -> None:
        """Raise KernelError unless k(x, z) = k(z, x) for every x of A and the few z at ``spots``."""
        few = take(A, spots)
        values = self.block(A, few)
        gaps = np.abs(values - self.block(few, A).T)
        i, j = divmod(int(np.argmax(gaps)), len(spots))
        self._refuse_asymmetry(float(gaps[i, j]), i, int(spots[j]), values)

    def _refuse_asymmetry(self, gap: float, i: int, j: int, values: Array) -> None:
        largest = float(np.max(np.abs(values), initial=0.0))
        if gap > ASYMMETRY.get(values.dtype, 1e-8) * largest:
            raise KernelError(
                f"{self.kernel!r} must be symmetric, k(x, y) = k(y, x); the largest difference is {gap:.3g}, between "
                f"objects {i} and {j} (largest value {largest:.3g}). "
                f"{self._remedy}"
            )

    @property
    def _remedy(self) -> str:
        """What to do about an asymmetric kernel."""
        functions = (part for part in user_written(self.kernel) if isinstance(part, FromCallable))
        return next(functions, FromCallable).remedy

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
        values = np.asarray(self.kernel.diag(A))
        self._add(self.kernel.diag_entries(n))
        return self._checked(values, (n,), "diag(A)", 0)

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
        function = kernel.against(self.B)
        self.evaluator._add(kernel.against_entries(self.n_columns))
        return function

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
            values = self._function(some)
            kernel = evaluator.kernel
            evaluator._add(kernel.block_entries(*shape, same=some is self.B) - kernel.against_entries(m))
            yield part, evaluator._checked(np.asarray(values), shape, "k(A, B)", part.start)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_function"}
