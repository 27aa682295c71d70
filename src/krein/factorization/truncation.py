"""Similarities outside the range of the kernel: their share, and the truncated matrix (the paper's conclusion).

An approximated RBF kernel matrix can hold negative entries, although the kernel has none. In: a factorization and the
range that the kernel declares. Out: the share of entries outside, by sampling, and the matrix with every entry clipped
to the range. That is no longer U M Uᵀ, so it is an operator that computes rows; a shift by Lanczos makes it psd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from krein.arrays import Array, seed_from, stream, strips
from krein.errors import InputError
from krein.factorization.factorization import Factorization, check_factorization
from krein.factorization.spectrum import LanczosResult, lanczos

__all__ = ["OutOfRange", "Truncated", "out_of_range", "truncate"]

# Rows are computed in strips of at most STRIP entries.
STRIP = 2**23
# This quantile of Student's distribution, for about 200 degrees of freedom, gives two-sided 95 % intervals.
STUDENT_95 = 1.97


@dataclass(frozen=True)
class OutOfRange:
    """The result of `out_of_range`.

    Attributes
    ----------
    share : float
        Share of the entries of U M Uᵀ that lie outside the range.
    at_least, at_most : float
        Ends of its 95 % confidence interval.
    smallest, largest : float
        Extreme entries among those that were computed.
    n_entries : int
        Number of entries that were computed.
    exact : bool
        Whether all entries were computed.
    """

    share: float
    at_least: float
    at_most: float
    smallest: float
    largest: float
    n_entries: int
    exact: bool

    def __str__(self) -> str:
        seen = "all entries" if self.exact else f"{self.n_entries} entries seen"
        return (
            f"{100 * self.share:.3g} % [{100 * self.at_least:.3g}, {100 * self.at_most:.3g}] of the entries are out of "
            f"range ({self.smallest:.3g} to {self.largest:.3g}, {seen})"
        )


def out_of_range(
    f: Factorization, low: float | None, high: float | None, n_rows: int = 200, random_state: Any = None
) -> OutOfRange:
    """Estimate the share of entries of U M Uᵀ (without the shift) that lie outside [low, high], from random rows.

    Parameters
    ----------
    f : Factorization
        The matrix.
    low, high : float or None
        The range, such as ``kernel.traits.low`` and ``kernel.traits.high``; None means no limit on that side. Entries
        that exceed it by less than 1e-9 of the largest entry count as inside.
    n_rows : int, default=200
        Number of rows that are computed.
    random_state : int, RandomState, Generator or None, default=None
        Draws the rows.

    Returns
    -------
    OutOfRange
        The share, with a confidence interval from its spread over the rows.
    """
    check_factorization(f, "out_of_range")
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
    unseen = 1.0 - 0.05 ** (1.0 / len(found))  # no row had any: with 95 % confidence at most this share has
    at_most = min(1.0, share + half) if share > 0.0 else unseen
    return OutOfRange(share, max(0.0, share - half), at_most, smallest, largest, len(found) * n, exact=False)


@dataclass(frozen=True, eq=False)
class Truncated:
    """The operator clip(U M Uᵀ, low, high) + shift I; a product computes all rows in strips, n² k operations.

    Attributes
    ----------
    factorization : Factorization
        U M Uᵀ, without a shift.
    low, high : float
        The range.
    shift : float
        Added to the diagonal.
    estimate : LanczosResult or None
        What the shift was computed from, if `shifted` did.
    """

    factorization: Factorization
    low: float
    high: float
    shift: float = 0.0
    estimate: LanczosResult | None = None

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
        """Return the matrix with the shift that makes it psd, estimated by `lanczos` with its residual added.

        This is no proof: Lanczos may have missed a smaller eigenvalue. ``estimate`` holds its result.
        """
        found = lanczos(self, iterations, random_state, verbose)
        return replace(self, shift=self.shift + found.shift, estimate=found)


def truncate(f: Factorization, low: float | None, high: float | None) -> Truncated:
    """Return ``f`` with every entry clipped to [low, high].

    Parameters
    ----------
    f : Factorization
        The matrix. Its shift is added to the diagonal after clipping.
    low, high : float or None
        The range; None means no limit on that side.

    Returns
    -------
    Truncated
        An operator with ``rows``, ``@`` and `shifted`, which makes it psd.
    """
    check_factorization(f, "truncate")
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
