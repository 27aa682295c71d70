"""A sample of the objects, compared in both orders, and what is no similarity refused.

Similarities are what costs, so they are planned for and counted: m² among the sampled objects, and every other object
against a few of those, both ways, so that each one has been seen. What is asymmetric, not finite or not the same when
it is asked for again is an InputError that names the objects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tqdm import tqdm

from krein.arrays import Array, Indices, stream
from krein.errors import InputError, KernelError, whole_number
from krein.kernels import Evaluator, Kernel, count_objects, take
from krein.kernels.precomputed import ASYMMETRY

__all__ = ["Look"]

SAMPLED = 1000  # objects, where no budget says less
SEEN_WITH = 4  # objects of the sample that all others are compared with
AGAIN = 16  # objects of the sample whose similarities are asked for a second time
ASKED = (4, 64)  # and so many of them against so many others, in both orders
LARGEST = 1e150  # squares of similarities have to be numbers
LEAST = 10  # objects in a sample, if there are so many
STEP = 2**16  # similarities between two moves of the progress bar


class Look:
    """The sample, its matrix, and the extremes of all that was seen on the way."""

    def __init__(
        self, objects: Any, kernel: Kernel, budget: int | None, seed: int, verbose: int = 0, spent: int = 0
    ) -> None:
        """``spent`` of the budget went to bind the kernel."""
        n = count_objects(objects)
        m = _size(kernel, n, budget, spent)
        self.evaluator = Evaluator(kernel, chunk_entries=STEP)
        rng = stream(seed, 50)
        self.rows: Indices = np.sort(rng.choice(n, m, replace=False))
        self.objects, self.sample = objects, take(objects, self.rows)
        self.low, self.high, self.asymmetry = np.inf, -np.inf, 0.0
        self.kind: np.dtype[Any] = np.dtype(np.float64)
        self._bar = tqdm(total=_cost(kernel, n, m), desc="similarities", unit_scale=True, disable=not verbose)
        with self._bar:
            K = self._block(self.rows, self.rows)
            self._compare(K, K.T, self.rows, self.rows, "k(x, y) and k(y, x) differ")
            self._again(K, rng)
            if m < n:
                self._others(np.setdiff1d(np.arange(n), self.rows), rng.choice(m, min(SEEN_WITH, m), replace=False))
        self.matrix: Array = (0.5 * K + 0.5 * K.T).astype(np.float64)

    @property
    def precision(self) -> float:
        """Of the kernel's values."""
        return float(np.finfo(self.kind).eps)

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    def _others(self, rest: Indices, landmarks: Indices) -> None:
        """Compare every object that was not drawn with a few that were, in both orders."""
        some = self.rows[landmarks]
        step = max(1, STEP // len(some))
        for start in range(0, len(rest), step):
            part = rest[start : start + step]
            there, back = self._block(part, some), self._block(some, part)
            self._compare(there, back.T, part, some, "k(x, y) and k(y, x) differ")

    def _again(self, K: Array, rng: np.random.Generator) -> None:
        """Ask for a few similarities a second time, in other company: they have to be the same."""
        some = rng.permutation(len(K))[:AGAIN]
        names = self.rows[some]
        again = self._block(names, names)
        self._compare(again, K[np.ix_(some, some)], names, names, "k(x, y) depends on what else is compared")
        few, wide = some[: min(ASKED[0], len(K) // 2)], np.arange(min(ASKED[1], len(K)))
        for one, other in ((few, wide), (wide, few)):  # not square: what goes by the lengths of A and B shows
            found = self._block(self.rows[one], self.rows[other])
            what = "k(x, y) depends on what else is compared"
            self._compare(found, K[np.ix_(one, other)], self.rows[one], self.rows[other], what)
        own = np.asarray(self.evaluator.diag(take(self.objects, names)))
        self._compare(
            own[:, None], again.diagonal()[:, None], names, names, "diag(A) and k(A, A) differ", diagonal=True
        )

    def _block(self, rows: Indices, columns: Indices) -> Array:
        """k of the objects ``rows`` and ``columns``, checked, with their names in what is wrong with it."""
        A, B = take(self.objects, rows), take(self.objects, columns)
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
        if self.largest > LARGEST and out.size:
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
    """How many objects can be compared with each other within the budget."""
    most = min(n, SAMPLED)
    if budget is None:
        return most
    whole_number("max_evaluations", budget, 1)
    least = min(n, LEAST)
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
    """Similarities that a sample of m takes, at most."""

    def block(a: int, b: int) -> int:
        calls = -(-a // max(1, STEP // max(1, b)))  # a kernel may look at B's objects anew in each
        return kernel.block_entries(a, b) + max(0, calls - 1) * kernel.block_entries(0, b)

    few, again, rest = min(SEEN_WITH, m), min(AGAIN, m), n - m
    step = max(1, STEP // max(1, few))
    parts = [step] * (rest // step) + [rest % step] * (rest % step > 0)
    seen = sum(block(part, few) + block(few, part) for part in parts)
    tall, wide = min(ASKED[0], m // 2), min(ASKED[1], m)
    again_too = block(again, again) + block(tall, wide) + block(wide, tall)
    return block(m, m) + again_too + kernel.diag_entries(again) + seen


def _placed(error: KernelError, kernel: Kernel, A: Any, B: Any, rows: Indices, columns: Indices) -> InputError:
    """The error with the caller's own numbers of the objects; one more call finds them."""
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
