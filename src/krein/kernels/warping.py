"""Dynamic time warping: the distance of two sequences of numbers whose clocks may run differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import InputError
from krein.kernels.alignment import batches, running
from krein.kernels.kernel import Kernel, Traits, whole
from krein.kernels.objects import count_objects

__all__ = ["DynamicTimeWarping"]

CELLS = 2**13  # of a table


@dataclass(frozen=True)
class DynamicTimeWarping(Kernel):
    """The least sum of |x_i - y_j| over a path that goes through both sequences, forwards in each.

    Sequences are arrays of shape (length,) or (length, d), of any lengths; |.| is Euclidean. ``window`` is how far i
    and j may be apart (Sakoe and Chiba's band), at least the difference of the lengths. A distance that breaks the
    triangle inequality, to be made a similarity by `FromDistances` or `DoubleCentred`.
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
        for spots, longest in batches([len(x) for x in many], CELLS):
            lengths = np.array([len(many[j]) for j in spots])
            table = np.zeros((longest, len(spots), many[0].shape[1]))
            for p, j in enumerate(spots):
                table[: lengths[p], p] = many[j]
            for i, x in enumerate(few):
                out[i, spots] = self._distances(x, table, lengths)
        return out

    def _distances(self, x: Array, many: Array, lengths: Indices) -> Array:
        """One sequence against many: D[j] is the least sum of a path that ends at step j of each.

        A run along the others adds up their costs, so D[j] - sum(costs[:j + 1]) is a running minimum.
        """
        longest, count, _ = many.shape
        steps = np.arange(longest)[:, None]
        reach = None if self.window is None else np.maximum(self.window, np.abs(lengths - len(x)))
        D = np.empty((longest, count))
        for i, value in enumerate(x):
            apart = many - value
            cost = np.abs(apart[:, :, 0]) if apart.shape[2] == 1 else np.sqrt(np.einsum("jpd,jpd->jp", apart, apart))
            added = np.cumsum(cost, axis=0)
            if i == 0:
                D[:] = added
            else:
                stay = D.copy()  # from the same step of the others, or the one before
                np.minimum(stay[1:], D[:-1], out=stay[1:])
                stay -= added - cost
                if reach is not None:
                    stay[np.abs(steps - i) > reach] = np.inf
                running(np.minimum, stay)
                np.add(stay, added, out=D)
            if reach is not None:
                D[np.abs(steps - i) > reach] = np.inf
        return np.maximum(D[lengths - 1, np.arange(count)], 0.0)  # what a difference of sums leaves of nothing


def _columns(sequences: Any) -> list[Array]:
    """Each sequence as (length, d)."""
    found: list[Array] = []
    for i, sequence in enumerate(sequences):
        x = np.asarray(sequence, dtype=np.float64)
        x = x[:, None] if x.ndim == 1 else x
        if x.ndim != 2 or not x.size or not np.isfinite(x).all():
            raise InputError(
                f"Sequence {i} must be a non-empty array of finite numbers, of shape (length,) or (length, d); got "
                f"shape {np.shape(sequence)}{'' if np.isfinite(x).all() else ' with NaN or infinity'}."
            )
        found.append(x)
    return found
