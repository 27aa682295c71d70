"""Dynamic time warping: the distance of two sequences of numbers that may run at different speeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import InputError, whole
from krein.kernels.alignment import batches
from krein.kernels.collections import count_objects
from krein.kernels.kernel import Kernel, Traits

__all__ = ["DynamicTimeWarping"]

# Sequences are compared in batches whose tables have about TABLE_CELLS cells.
TABLE_CELLS = 2**13


@dataclass(frozen=True)
class DynamicTimeWarping(Kernel):
    """Dynamic time warping distance: the least sum of |x_i - y_j| over all monotone paths through both sequences.

    Sequences are arrays of shape (length,) or (length, d) of any lengths, and |.| is the Euclidean norm. The distance
    violates the triangle inequality. `FromDistances` or `DoubleCentred` makes a similarity of it.

    Parameters
    ----------
    window : int or None, default=None
        Largest |i - j| on a path (the band of Sakoe and Chiba), raised to the difference of the lengths where it is
        smaller. None means no limit.
    """

    window: int | None = None

    compares: ClassVar[str] = "sequences"
    dissimilar: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.window is not None:
            object.__setattr__(self, "window", whole(self, "window", self.window))

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=False, low=0.0, constant_diagonal=True)  # zero trace, not all zero

    def __call__(self, A: Any, B: Any = None) -> Array:
        first = _columns(A)
        second = first if B is None or B is A else _columns(B)
        widths = {x.shape[1] for x in (*first, *second)}
        if len(widths) > 1:
            raise InputError(f"All sequences need as many numbers per step; got {sorted(widths)}. Drop or pad columns.")
        if len(first) > len(second):
            return self._all(second, first).T
        return self._all(first, second)

    def diag(self, A: Any) -> Array:
        return np.zeros(count_objects(A))

    def diag_entries(self, n_objects: int) -> int:
        return 0

    def _all(self, few: list[Array], many: list[Array]) -> Array:
        out = np.empty((len(few), len(many)))
        for spots, longest in batches([len(x) for x in many], TABLE_CELLS):
            lengths = np.array([len(many[j]) for j in spots])
            table = np.zeros((longest, len(spots), many[0].shape[1]))
            for p, j in enumerate(spots):
                table[: lengths[p], p] = many[j]
            for i, x in enumerate(few):
                out[i, spots] = self._distances(x, table, lengths)
        return out

    def _distances(self, x: Array, many: Array, lengths: Indices) -> Array:
        """One sequence against many, one anti-diagonal i + j = d after the other: nothing but sums of costs.

        Row j + 1 of ``now`` is the least sum of a path that ends at step j of each and step d - j of x; ``last`` and
        ``before`` are the two anti-diagonals before it. (A running minimum over whole rows would subtract sums, and
        lose a path of 11 beside a value of 1e18.)
        """
        longest, count, width = many.shape
        m = len(x)
        reach = None if self.window is None else np.maximum(self.window, np.abs(lengths - m))
        widest = m + longest if reach is None else int(reach.max())
        values, backwards = (many[:, :, 0], x[::-1]) if width == 1 else (many, x[::-1, None])
        before, last, now = (np.full((longest + 1, count), np.inf) for _ in range(3))
        before[0] = 0.0  # where all paths begin
        ends = np.empty((longest, count))  # row j: paths through all of x, to step j
        for d in range(m + longest - 1):
            low = max(0, d - m + 1, -((widest - d) // 2))
            high = min(longest, d + 1, (d + widest) // 2 + 1)
            here, after = slice(low, high), slice(low + 1, high + 1)
            gap = values[here] - backwards[m - 1 - d + low : m - 1 - d + high]
            cost = np.abs(gap, out=gap) if width == 1 else np.sqrt(np.einsum("jpd,jpd->jp", gap, gap))
            now[low] = np.inf
            found = np.minimum(last[here], last[after], out=now[after])
            np.minimum(found, before[here], out=found)
            found += cost
            if reach is not None:
                found[np.abs(d - 2 * np.arange(low, high))[:, None] > reach] = np.inf
            if d >= m - 1:
                ends[d - m + 1] = now[d - m + 2]
            before, last, now = last, now, before
        return np.asarray(ends[lengths - 1, np.arange(count)])


def _columns(sequences: Any) -> list[Array]:
    """Each sequence as (length, d)."""
    found: list[Array] = []
    for i, sequence in enumerate(sequences):
        try:
            x = np.asarray(sequence, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                "DynamicTimeWarping compares sequences of numbers, arrays of shape (length,) or (length, d); sequence "
                f"{i} is {sequence!r:.60} ({type(sequence).__name__}). For strings take EditDistance, EditSimilarity "
                "or Alignment."
            ) from None
        x = x[:, None] if x.ndim == 1 else x
        if x.ndim != 2 or not x.size or not np.isfinite(x).all():
            raise InputError(
                f"Sequence {i} must be a non-empty array of finite numbers, of shape (length,) or (length, d); got "
                f"shape {np.shape(sequence)}{'' if np.isfinite(x).all() else ' with NaN or infinity'}."
            )
        found.append(x)
    return found
