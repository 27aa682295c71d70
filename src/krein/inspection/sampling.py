"""The sample of an inspection: some objects with all their similarities, checked.

Similarities are the main cost, so their number is planned and counted. The m sampled objects are compared with each
other. Every other object is compared with a few of them in both orders. Values that are asymmetric, not finite, or
different in a second call are an InputError that names the objects.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krein.arrays import Array, Indices, stream
from krein.errors import InputError, KernelError, whole_number
from krein.kernels import Evaluator, Kernel, count_objects, take
from krein.kernels.kernel import ASYMMETRY
from krein.progress import progress_bar

__all__ = ["Sample"]

# A sample has at most MOST_OBJECTS objects, and at least FEWEST_OBJECTS if there are as many.
MOST_OBJECTS = 1000
FEWEST_OBJECTS = 10
# Every object outside the sample is compared with REFERENCE_OBJECTS objects of it.
REFERENCE_OBJECTS = 4
# The similarities of REPEATED_OBJECTS objects are evaluated a second time, and those of the first of the two numbers in
# REPEATED_BLOCK with the second, in both orders.
REPEATED_OBJECTS = 16
REPEATED_BLOCK = (4, 64)
# Larger similarities are refused, because their squares would overflow.
LARGEST_SIMILARITY = 1e150
# At most STEP similarities are evaluated between two moves of the progress bar.
STEP = 2**16


class Sample:
    """The sampled objects, their matrix, and the extremes of all similarities that were evaluated."""

    def __init__(
        self, objects: Any, kernel: Kernel, budget: int | None, seed: int, verbose: int = 0, spent: int = 0
    ) -> None:
        """``spent`` is the part of the budget that binding the kernel took."""
        n = count_objects(objects)
        m = _size(kernel, n, budget, spent)
        self.evaluator = Evaluator(kernel, chunk_entries=STEP)
        rng = stream(seed, 50)
        self.rows: Indices = np.sort(rng.choice(n, m, replace=False))
        self._all, self.objects = objects, take(objects, self.rows)
        self.low, self.high, self.asymmetry = np.inf, -np.inf, 0.0
        self.kind: np.dtype[Any] = np.dtype(np.float64)
        self._bar = progress_bar(total=_cost(kernel, n, m), what="similarities", verbose=verbose, unit_scale=True)
        with self._bar:
            K = self._block(self.rows, self.rows)
            self._compare(K, K.T, self.rows, self.rows, "k(x, y) and k(y, x) differ")
            self._repeat(K, rng)
            if m < n:
                self._compare_others(
                    np.setdiff1d(np.arange(n), self.rows), rng.choice(m, min(REFERENCE_OBJECTS, m), replace=False)
                )
        self.matrix: Array = (0.5 * K + 0.5 * K.T).astype(np.float64)

    @property
    def precision(self) -> float:
        """The rounding of the kernel's values."""
        return float(np.finfo(self.kind).eps)

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    def _compare_others(self, rest: Indices, landmarks: Indices) -> None:
        """Compare every object outside the sample with a few objects of it, in both orders."""
        some = self.rows[landmarks]
        step = max(1, STEP // len(some))
        for start in range(0, len(rest), step):
            part = rest[start : start + step]
            there, back = self._block(part, some), self._block(some, part)
            self._compare(there, back.T, part, some, "k(x, y) and k(y, x) differ")

    def _repeat(self, K: Array, rng: np.random.Generator) -> None:
        """Evaluate a few similarities again, together with other objects. They have to be the same."""
        some = rng.permutation(len(K))[:REPEATED_OBJECTS]
        names = self.rows[some]
        again = self._block(names, names)
        self._compare(again, K[np.ix_(some, some)], names, names, "k(x, y) depends on what else is compared")
        few, wide = some[: min(REPEATED_BLOCK[0], len(K) // 2)], np.arange(min(REPEATED_BLOCK[1], len(K)))
        for one, other in ((few, wide), (wide, few)):  # not square: this finds kernels that depend on len(A)
            found = self._block(self.rows[one], self.rows[other])
            what = "k(x, y) depends on what else is compared"
            self._compare(found, K[np.ix_(one, other)], self.rows[one], self.rows[other], what)
        own = np.asarray(self.evaluator.diag(take(self._all, names)))
        self._compare(
            own[:, None], again.diagonal()[:, None], names, names, "diag(A) and k(A, A) differ", diagonal=True
        )

    def _block(self, rows: Indices, columns: Indices) -> Array:
        """Return the similarities of the objects ``rows`` and ``columns``; errors name these objects."""
        A, B = take(self._all, rows), take(self._all, columns)
        before = self.evaluator.n_evaluations
        out: Array = np.empty((len(rows), len(columns)))
        try:
            for part, values in self.evaluator.chunks(A, B):
                out[part], self.kind = values, values.dtype
                self._bar.update(self.evaluator.n_evaluations - before)
                before = self.evaluator.n_evaluations
        except KernelError as error:
            raise _placed(error, self.evaluator.kernel, A, B, rows, columns) from None
        if out.size:
            self.low, self.high = min(self.low, float(out.min())), max(self.high, float(out.max()))
        if self.largest > LARGEST_SIMILARITY and out.size:
            raise InputError(
                f"{self.evaluator.kernel!r} gives similarities as large as {self.largest:.3g}, whose squares are no "
                "numbers any more. Divide it by its largest value."
            )
        return out

    def _compare(self, one: Array, other: Array, rows: Any, columns: Any, what: str, diagonal: bool = False) -> None:
        gaps = np.abs(one - other)
        i, j = divmod(int(gaps.argmax()), gaps.shape[1])
        size = max(self.largest, np.finfo(np.float64).tiny)
        if gaps[i, j] > ASYMMETRY.get(self.kind, 1e-8) * size:
            x, y = int(rows[i]), int(rows[i] if diagonal else columns[j])
            raise InputError(
                f"{self.evaluator.kernel!r} is no similarity to rely on: {what}, at worst for the objects {x} and {y}, "
                f"{one[i, j]:.6g} and {other[i, j]:.6g} (largest value seen {size:.3g}). Make it symmetric and "
                "the same at every call, for instance by (k(A, B) + k(B, A).T) / 2."
            )
        self.asymmetry = max(self.asymmetry, float(gaps[i, j]) / size)


def _size(kernel: Kernel, n: int, budget: int | None, spent: int) -> int:
    """Return the largest sample that the budget allows."""
    most = min(n, MOST_OBJECTS)
    if budget is None:
        return most
    whole_number("max_evaluations", budget, 1)
    least = min(n, FEWEST_OBJECTS)
    low, high = 0, most
    while low < high:  # the cost grows with m
        middle = (low + high + 1) // 2
        low, high = (middle, high) if spent + _cost(kernel, n, middle) <= budget else (low, middle - 1)
    if low < least:
        raise InputError(
            f"max_evaluations must be at least {spent + _cost(kernel, n, least):,} for {n:,} objects, so that {least} "
            f"can be compared with each other and every other one seen; got {budget:,}. Allow more, or pass "
            "fewer objects."
        )
    return low


def _cost(kernel: Kernel, n: int, m: int) -> int:
    """Return how many similarities a sample of m objects takes at most."""

    def block(a: int, b: int) -> int:
        calls = -(-a // max(1, STEP // max(1, b)))  # a kernel may evaluate something of B in each call
        return kernel.block_entries(a, b) + max(0, calls - 1) * kernel.block_entries(0, b)

    few, again, rest = min(REFERENCE_OBJECTS, m), min(REPEATED_OBJECTS, m), n - m
    step = max(1, STEP // max(1, few))
    parts = [step] * (rest // step) + [rest % step] * (rest % step > 0)
    seen = sum(block(part, few) + block(few, part) for part in parts)
    tall, wide = min(REPEATED_BLOCK[0], m // 2), min(REPEATED_BLOCK[1], m)
    again_too = block(again, again) + block(tall, wide) + block(wide, tall)
    return block(m, m) + again_too + kernel.diag_entries(again) + seen


def _placed(error: KernelError, kernel: Kernel, A: Any, B: Any, rows: Indices, columns: Indices) -> InputError:
    """Return the error with the caller's numbers of the objects, which one more call finds."""
    values = np.asarray(kernel(A, B))
    if values.shape != (len(rows), len(columns)) or values.dtype.kind not in "f" or np.isfinite(values).all():
        return InputError(str(error))
    bad = ~np.isfinite(values)
    i, j = (int(k) for k in np.argwhere(bad)[0])
    return InputError(
        f"{kernel!r} must return finite numbers; {int(bad.sum())} of {bad.size} that were looked at are NaN or "
        f"infinite, the first ({values[i, j]}) for the objects {rows[i]} and {columns[j]}. Look for missing, empty or "
        "huge values there, or leave those objects out."
    )
