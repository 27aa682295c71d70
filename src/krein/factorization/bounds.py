"""Error bounds: Theorem 3 of MEKA, and the paper's bound after a shift (Sec. 4.2), term by term.

With probability at least 1 - delta over the choice of landmarks,

    |K - K~|_F <= |K - K_k|_F + (64 k / l)^(1/4) n K_max (1 + theta)^(1/2) + 2 |Delta|_F

and for an indefinite K = K⁺ - K⁻ with a shift s on the diagonal the sum of the same for both parts, plus sqrt(n) |s|.
The symbols are the fields of `Parts`. The bounds are loose: they show how the error depends on each choice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from krein.arrays import Array
from krein.errors import InputError

__all__ = ["Bound", "Parts", "corrected_bound", "meka_bound"]


@dataclass(frozen=True)
class Parts:
    """The quantities of one psd matrix (K itself, K⁺ or K⁻) that the bounds depend on.

    Parameters
    ----------
    n : int
        Number of rows.
    tail : float
        |K - K_k|_F, with K_k the best approximation of rank k.
    largest : float
        K_max, the largest diagonal entry.
    distance : float
        d_max, the largest kernel distance, max_ij sqrt(K_ii + K_jj - 2 K_ij).
    outside : float
        |Delta|_F, with Delta the entries of K outside the diagonal blocks, which MEKA drops or links by sampling.
    """

    n: int
    tail: float
    largest: float
    distance: float
    outside: float

    @classmethod
    def from_matrix(cls, K: Array, labels: Any, rank: int) -> Parts:
        """Compute the quantities of a dense psd matrix in O(n³); ``labels`` are the clusters, ``rank`` is k."""
        K, labels = np.asarray(K, dtype=np.float64), np.asarray(labels)
        if K.ndim != 2 or K.shape[0] != K.shape[1] or labels.shape != K.shape[:1]:
            raise InputError(f"Parts needs a square matrix and a label per row; got {K.shape} and {labels.shape}.")
        values = np.sort(np.abs(np.linalg.eigvalsh(K)))[::-1]
        diagonal = np.diag(K)
        squares = diagonal[:, None] + diagonal - 2.0 * K
        outside = np.where(np.equal.outer(labels, labels), 0.0, K)
        return cls(
            n=len(K),
            tail=float(np.linalg.norm(values[rank:])),
            largest=float(diagonal.max()),
            distance=math.sqrt(max(0.0, float(squares.max()))),
            outside=float(np.linalg.norm(outside)),
        )


@dataclass(frozen=True)
class Bound:
    """A bound of a Frobenius error.

    Attributes
    ----------
    total : float
        The bound, the sum of its terms.
    terms : dict of str to float
        The terms by name.
    failure : float
        The probability with which the bound may fail.
    """

    terms: dict[str, float] = field(default_factory=dict)
    failure: float = 0.05

    @property
    def total(self) -> float:
        return math.fsum(self.terms.values())

    def __str__(self) -> str:
        parts = "  +  ".join(f"{name} {value:.4g}" for name, value in self.terms.items())
        return f"{self.total:.4g}  =  {parts}   (with probability {1 - self.failure:g})"


def meka_bound(parts: Parts, rank: int, n_landmarks: int, failure: float = 0.05) -> Bound:
    """Return the bound of Theorem 3 of MEKA for a psd matrix.

    Parameters
    ----------
    parts : Parts
        Quantities of the matrix.
    rank : int
        k, the total rank.
    n_landmarks : int
        l, the number of all landmarks, k <= l <= n.
    failure : float, default=0.05
        delta, the probability with which the bound may fail.

    Returns
    -------
    Bound
        "tail" is |K - K_k|_F, "outside" is 2 |Delta|_F, and "sampling" is (64 k / l)^(1/4) n K_max sqrt(1 + theta) with
        theta = sqrt((n - l) / (n - 1/2) / beta(l, n) log(1 / delta)) d_max / sqrt(K_max) and
        beta(l, n) = 1 - 1 / (2 max(l, n - l)).
    """
    return Bound(_terms(parts, rank, n_landmarks, failure, ""), failure)


def corrected_bound(
    positive: Parts, negative: Parts, rank: int, n_landmarks: int, shift: float, failure: float = 0.05
) -> Bound:
    """Return the paper's bound for an indefinite matrix K = K⁺ - K⁻ after a shift.

    Parameters
    ----------
    positive, negative : Parts
        Quantities of K⁺ and K⁻.
    rank, n_landmarks : int
        As in `meka_bound`.
    shift : float
        s, which is added to the diagonal.
    failure : float, default=0.05
        The probability with which the bound may fail; each of the two parts may fail with half of it.

    Returns
    -------
    Bound
        The terms of both parts, with the suffixes + and -, and "shift", sqrt(n) |s|.
    """
    if positive.n != negative.n:
        raise InputError(f"Both parts must have the same number of rows; got {positive.n} and {negative.n}.")
    if not math.isfinite(shift):
        raise InputError(f"shift must be a finite number; got {shift!r}.")
    terms = _terms(positive, rank, n_landmarks, failure / 2, "+") | _terms(
        negative, rank, n_landmarks, failure / 2, "-"
    )
    return Bound(terms | {"shift": math.sqrt(positive.n) * abs(shift)}, failure)


def _terms(p: Parts, rank: int, n_landmarks: int, failure: float, suffix: str) -> dict[str, float]:
    if not 1 <= rank <= n_landmarks <= p.n:
        raise InputError(f"The bound needs 1 <= rank <= n_landmarks <= n; got {rank}, {n_landmarks}, {p.n}.")
    if not 0.0 < failure < 1.0:
        raise InputError(f"failure is a probability between 0 and 1; got {failure!r}.")
    sampling = 0.0
    if p.largest > 0.0:
        beta = 1.0 - 1.0 / (2.0 * max(n_landmarks, p.n - n_landmarks))
        spread = (p.n - n_landmarks) / (p.n - 0.5) / beta * math.log(1.0 / failure)
        theta = math.sqrt(spread) * p.distance / math.sqrt(p.largest)
        sampling = (64.0 * rank / n_landmarks) ** 0.25 * p.n * p.largest * math.sqrt(1.0 + theta)
    return {"tail" + suffix: p.tail, "sampling" + suffix: sampling, "outside" + suffix: 2.0 * p.outside}
