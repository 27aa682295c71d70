"""Sequences of numbers that may run at different speeds: dynamic time warping and the global alignment kernel.

Both go over all monotone paths through two sequences. The first takes the cheapest path and is a distance. The second
adds up all of them and is a psd kernel.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import pdist

from krein.arrays import Array, Indices, grouped
from krein.errors import InputError, positive, whole
from krein.kernels.alignment import batches
from krein.kernels.collections import count_objects
from krein.kernels.kernel import Anchored, Kernel, Traits, bound

__all__ = ["DynamicTimeWarping", "GlobalAlignment"]

# Sequences are compared in batches whose tables have about TABLE_CELLS cells.
TABLE_CELLS = 2**13
# The width of a global alignment is computed from the distances among SCALE_STEPS steps of SCALE_SEQUENCES sequences.
SCALE_STEPS = 256
SCALE_SEQUENCES = 64


class _Paths(Kernel):
    """Base class of similarities computed over all monotone paths through two sequences.

    A path has a score, minus the sum of the costs of its steps. ``_merge`` makes one number of the scores of two sets
    of paths.
    """

    compares: ClassVar[str] = "sequences"
    window: int | None = None
    _merge: ClassVar[Any]  # np.maximum: the best path; np.logaddexp: the log of the sum of exp(score)

    @abstractmethod
    def _cost(self, distances: Array) -> Array:
        """The costs of steps of these Euclidean distances; the argument may be overwritten."""

    def _pairs(self, first: list[Array], second: list[Array]) -> Array:
        """The scores of all pairs, (len(first), len(second))."""
        widths = {x.shape[1] for x in (*first, *second)}
        if len(widths) > 1:
            raise InputError(f"All sequences need as many numbers per step; got {sorted(widths)}. Drop or pad columns.")
        if len(first) > len(second):
            return self._all(second, first).T
        return self._all(first, second)

    def _all(self, few: list[Array], many: list[Array]) -> Array:
        out = np.empty((len(few), len(many)))
        for spots, longest in batches([len(x) for x in many], TABLE_CELLS):
            lengths = np.array([len(many[j]) for j in spots])
            table = np.zeros((longest, len(spots), many[0].shape[1]))
            for p, j in enumerate(spots):
                table[: lengths[p], p] = many[j]
            for i, x in enumerate(few):
                out[i, spots] = self._scores(x[:, None], table, lengths)
        return out

    def _scores(self, x: Array, many: Array, lengths: Indices) -> Array:
        """One sequence, (m, 1, d), against many, (longest, count, d); or as many, (m, count, d), each against its own.

        One anti-diagonal i + j = s comes after the other: nothing but sums of costs. Row j + 1 of ``now`` is the score
        of the paths that end at step j of each and step s - j of x; ``last`` and ``before`` are the two anti-diagonals
        before it. (A running minimum over whole rows would subtract sums, and lose a path of 11 beside a value of
        1e18.)
        """
        longest, count, width = many.shape
        m = len(x)
        reach = None if self.window is None else np.maximum(self.window, np.abs(lengths - m))
        widest = m + longest if reach is None else int(reach.max())
        values, backwards = (many[:, :, 0], x[::-1, :, 0]) if width == 1 else (many, x[::-1])
        before, last, now = (np.full((longest + 1, count), -np.inf) for _ in range(3))
        before[0] = 0.0  # where all paths begin
        ends = np.empty((longest, count))  # row j: paths through all of x, to step j
        for s in range(m + longest - 1):
            low = max(0, s - m + 1, -((widest - s) // 2))
            high = min(longest, s + 1, (s + widest) // 2 + 1)
            here, after = slice(low, high), slice(low + 1, high + 1)
            gap = values[here] - backwards[m - 1 - s + low : m - 1 - s + high]
            apart = np.abs(gap, out=gap) if width == 1 else np.sqrt(np.einsum("jpd,jpd->jp", gap, gap))
            now[low] = -np.inf
            found = self._merge(last[here], last[after], out=now[after])
            self._merge(found, before[here], out=found)
            found -= self._cost(apart)
            if reach is not None:
                found[np.abs(s - 2 * np.arange(low, high))[:, None] > reach] = -np.inf
            if s >= m - 1:
                ends[s - m + 1] = now[s - m + 2]
            before, last, now = last, now, before
        return np.asarray(ends[lengths - 1, np.arange(count)])


@dataclass(frozen=True)
class DynamicTimeWarping(_Paths):
    """Dynamic time warping distance: the least sum of |x_i - y_j| over all monotone paths through both sequences.

    Sequences are arrays of shape (length,) or (length, d) of any lengths, and |.| is the Euclidean norm. The distance
    violates the triangle inequality. `FromDistances` or `DoubleCentred` makes a similarity of it.

    Parameters
    ----------
    window : int or None, default=None
        Largest |i - j| on a path (the band of Sakoe and Chiba), raised to the difference of the lengths where it is
        smaller. None means no limit.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = [np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.0, 1.0, 2.0]), np.zeros(3)]
    >>> krein.DynamicTimeWarping()(X)
    array([[0., 0., 3.],
           [0., 0., 3.],
           [3., 3., 0.]])
    """

    window: int | None = None

    dissimilar: ClassVar[bool] = True
    _merge: ClassVar[Any] = np.maximum

    def __post_init__(self) -> None:
        if self.window is not None:
            object.__setattr__(self, "window", whole(self, "window", self.window))

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=False, low=0.0, constant_diagonal=True)  # zero trace, not all zero

    def __call__(self, A: Any, B: Any = None) -> Array:
        first = _columns(A, self)
        return 0.0 - self._pairs(first, first if B is None or B is A else _columns(B, self))

    def diag(self, A: Any) -> Array:
        return np.zeros(count_objects(A))

    def diag_entries(self, n_objects: int) -> int:
        return 0

    def _cost(self, distances: Array) -> Array:
        return distances


@dataclass(frozen=True)
class GlobalAlignment(_Paths, Anchored):
    """Global alignment kernel of sequences of numbers (Cuturi, 2011), scaled to self-similarities of 1.

    exp(-cost) is added up over all monotone paths through both sequences, where dynamic time warping takes the cheapest
    path alone. A step of distance d costs s + log(2 - exp(-s)) with s = d² / (2 sigma²), which makes the sum psd. The
    sums are kept as logarithms, and divided by the root of both self-similarities at the end. Sequences are arrays of
    shape (length,) or (length, d) of any lengths.

    Parameters
    ----------
    sigma : float or None, default=None
        Width, above 0. None is replaced, when the kernel is bound to data, by the median distance of two steps times
        the root of the median length. With a much smaller one all sequences have similarity 0.

    Examples
    --------
    >>> import krein
    >>> krein.GlobalAlignment(sigma=2.0)([[0.0, 1.0, 2.0], [0.0, 0.0, 1.0, 2.0], [3.0, 0.0]]).round(2)
    array([[1.  , 0.8 , 0.07],
           [0.8 , 1.  , 0.02],
           [0.07, 0.02, 1.  ]])
    """

    sigma: float | None = None

    _merge: ClassVar[Any] = np.logaddexp

    def __post_init__(self) -> None:
        if self.sigma is not None:
            object.__setattr__(self, "sigma", positive(self, "sigma", self.sigma))

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=True, low=0.0, high=1.0, constant_diagonal=True)

    def own(self, A: Any) -> Array:
        """Return the logarithm of each sequence's self-similarity before it is scaled to 1."""
        sequences = self._in_units(A)
        found = np.empty(len(sequences))
        for length, places in grouped([len(x) for x in sequences]):
            for spots in np.array_split(places, math.ceil(len(places) * length / TABLE_CELLS)):
                if len(spots):
                    table = np.stack([sequences[i] for i in spots], axis=1)
                    found[spots] = self._scores(table, table, np.full(len(spots), length))
        return found

    def own_entries(self, n_objects: int) -> int:
        return n_objects

    def cross(self, A: Any, B: Any, own_B: Any) -> Array:
        """Return k(A, B), given `own` of B."""
        first = self._in_units(A)
        own_A = own_B if A is B else self.own(A)
        logarithms = self._pairs(first, first if A is B else self._in_units(B))
        logarithms -= 0.5 * np.add.outer(own_A, own_B)
        return np.exp(np.minimum(logarithms, 0.0))  # above 0 by rounding alone

    def diag(self, A: Any) -> Array:
        return np.ones(count_objects(A))

    def diag_entries(self, n_objects: int) -> int:
        return 0

    def bind(self, X: Any) -> Kernel:
        if self.sigma is not None:
            return self
        sequences = _columns(X, self)
        some = [sequences[i] for i in _spread(len(sequences), SCALE_SEQUENCES)]
        steps = np.concatenate(some)
        distances = pdist(steps[_spread(len(steps), SCALE_STEPS)])
        typical = float(np.median(distances[distances > 0.0])) if distances.any() else 1.0
        return replace(self, sigma=typical * math.sqrt(np.median([len(x) for x in some])))

    def _cost(self, distances: Array) -> Array:
        s = np.square(distances, out=distances)
        return s + np.log(2.0 - np.exp(-s))

    def _in_units(self, A: Any) -> list[Array]:
        """The sequences over √2 sigma, so that s is the squared distance of two steps."""
        unit = math.sqrt(2.0) * bound(self, "sigma", self.sigma)
        return [x / unit for x in _columns(A, self)]


def _spread(n: int, most: int) -> Indices:
    """At most ``most`` of n places, evenly spread."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(np.intp))


def _columns(sequences: Any, asker: Kernel) -> list[Array]:
    """Each sequence as (length, d)."""
    found: list[Array] = []
    for i, sequence in enumerate(sequences):
        try:
            x = np.asarray(sequence, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                f"{type(asker).__name__} compares sequences of numbers, arrays of shape (length,) or (length, d); "
                f"sequence {i} is {sequence!r:.60} ({type(sequence).__name__}). For strings take EditDistance, "
                "EditSimilarity or Alignment."
            ) from None
        x = x[:, None] if x.ndim == 1 else x
        if x.ndim != 2 or not x.size or not np.isfinite(x).all():
            raise InputError(
                f"Sequence {i} must be a non-empty array of finite numbers, of shape (length,) or (length, d); got "
                f"shape {np.shape(sequence)}{'' if np.isfinite(x).all() else ' with NaN or infinity'}."
            )
        found.append(x)
    return found
