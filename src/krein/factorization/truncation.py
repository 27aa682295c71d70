"""Similarities outside the kernel's range: how many there are, and what to do about them (the paper's conclusion).

An approximated RBF kernel can hold negative similarities, although the kernel has none. In: a factorization and the
range a kernel declares. Out: their share, by sampling; rows truncated on request; and the truncated matrix, which is no
longer U M Uᵀ, as a streamed operator whose Lanczos shift makes it psd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from krein.arrays import Array, seed_from, stream, strips
from krein.errors import InputError
from krein.factorization.factorization import Factorization
from krein.factorization.spectrum import LanczosResult, lanczos

__all__ = ["OutOfRange", "Truncated", "out_of_range", "truncate"]

STRIP = 2**23  # entries streamed at a time
STUDENT_95 = 1.97  # two-sided, some 200 degrees of freedom


@dataclass(frozen=True)
class OutOfRange:
    """The share of entries of U M Uᵀ outside [low, high], between ``at_least`` and ``at_most`` with 95 % confidence."""

    share: float
    at_least: float
    at_most: float
    smallest: float  # the extreme entries among those seen
    largest: float
    n_entries: int  # how many were seen
    exact: bool  # all of them were

    def __str__(self) -> str:
        seen = "all entries" if self.exact else f"{self.n_entries} entries seen"
        return (
            f"{100 * self.share:.3g} % [{100 * self.at_least:.3g}, {100 * self.at_most:.3g}] of the entries are out of "
            f"range ({self.smallest:.3g} to {self.largest:.3g}, {seen})"
        )


def out_of_range(
    f: Factorization, low: float | None, high: float | None, n_rows: int = 200, random_state: Any = None
) -> OutOfRange:
    """Count the entries of U M Uᵀ (the shift aside) outside [low, high], by looking at ``n_rows`` random rows.

    The share of a row is unbiased for the share of the matrix, and rows are independent draws, so their spread gives
    the interval. None means no limit on that side. Rounding, 1e-9 of the largest number at hand, is not
    counted.
    """
    floor, ceiling = _limits(low, high)
    if isinstance(n_rows, bool) or not isinstance(n_rows, int | np.integer) or n_rows < 2:
        raise InputError(f"n_rows must be an integer of at least 2; got {n_rows!r}.")
    n = f.shape[0]
    exact = n_rows >= n
    rows = np.arange(n) if exact else stream(seed_from(random_state), 0).choice(n, int(n_rows), replace=False)
    unshifted = replace(f, shift=0.0)
    limits = max((abs(end) for end in (floor, ceiling) if math.isfinite(end)), default=0.0)
    shares, smallest, largest = [], math.inf, -math.inf
    for part in strips(len(rows), n, STRIP):
        values = unshifted.rows(rows[part])
        slack = 1e-9 * max(limits, float(np.abs(values).max()))
        shares.append(((values < floor - slack) | (values > ceiling + slack)).mean(1))
        smallest, largest = min(smallest, float(values.min())), max(largest, float(values.max()))
    found = np.concatenate(shares)
    share = float(found.mean())
    if exact:
        return OutOfRange(share, share, share, smallest, largest, n * n, exact=True)
    half = STUDENT_95 * float(found.std(ddof=1)) / math.sqrt(len(found))
    unseen = 1.0 - 0.05 ** (1.0 / len(found))  # where no row had any, this many rows still may
    at_most = min(1.0, share + half) if share > 0.0 else unseen
    return OutOfRange(share, max(0.0, share - half), at_most, smallest, largest, len(found) * n, exact=False)


@dataclass(frozen=True, eq=False)
class Truncated:
    """clip(U M Uᵀ, low, high) + shift I, row by row: n² k work a product, a strip's memory."""

    factorization: Factorization  # with its shift taken off
    low: float
    high: float
    shift: float = 0.0
    estimate: LanczosResult | None = None  # what the shift rests on, if it was estimated

    @property
    def shape(self) -> tuple[int, int]:
        return self.factorization.shape

    def rows(self, indices: Any) -> Array:
        """The rows ``indices`` of the truncated matrix, (len(indices), n), shift included."""
        wanted = np.atleast_1d(np.asarray(indices))
        out = np.clip(self.factorization.rows(wanted), self.low, self.high)
        out[np.arange(len(wanted)), wanted] += self.shift
        return out

    def diagonal(self) -> Array:
        return np.clip(self.factorization.diagonal(), self.low, self.high) + self.shift

    def __matmul__(self, x: Array) -> Array:
        x = np.asarray(x, dtype=np.float64)
        n = self.shape[0]
        if x.ndim not in (1, 2) or len(x) != n:
            raise InputError(f"@ needs an array of {n} rows (1-D or 2-D); got shape {x.shape}.")
        out = np.empty(x.shape)
        for part in strips(n, n, STRIP):
            out[part] = self.rows(np.arange(part.start, part.stop)) @ x
        return out

    def to_dense(self) -> Array:
        return self.rows(np.arange(self.shape[0]))

    def as_linear_operator(self) -> LinearOperator:
        """A SciPy LinearOperator that multiplies by this matrix."""
        product = self.__matmul__
        return LinearOperator(self.shape, matvec=product, rmatvec=product, matmat=product, dtype=np.dtype(float))

    def shifted(self, iterations: int | None = None, random_state: Any = None, verbose: int = 0) -> Truncated:
        """The same matrix made psd by the paper's remedy: a shift estimated by Lanczos, with its residual added.

        An estimate, not a proof: a smaller eigenvalue may have been missed. ``estimate`` keeps what it rests on.
        """
        found = lanczos(self, iterations, random_state, verbose)
        return replace(self, shift=self.shift + found.shift, estimate=found)


def truncate(f: Factorization, low: float | None, high: float | None) -> Truncated:
    """Return the operator of ``f`` with every similarity kept to [low, high]; f's shift stays on the diagonal."""
    floor, ceiling = _limits(low, high)
    return Truncated(replace(f, shift=0.0), floor, ceiling, f.shift)


def _limits(low: float | None, high: float | None) -> tuple[float, float]:
    if low is None and high is None:
        raise InputError(
            "Nothing to compare with: low and high are both None. Give one (a kernel's traits.low, .high)."
        )
    floor, ceiling = -math.inf if low is None else float(low), math.inf if high is None else float(high)
    if not floor < ceiling:
        raise InputError(f"The range must have low < high; got {low!r} and {high!r}.")
    return floor, ceiling
