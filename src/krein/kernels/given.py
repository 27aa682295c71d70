"""scikit-learn's "precomputed" convention: a square matrix of similarities to fit, then new rows against its columns.

`Precomputed` names objects by their index in one matrix. Rows that come later are no part of it, so they get the
indices that follow: object n + i is row i of what is to be predicted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import InputError
from krein.kernels import Kernel, Precomputed, Traits
from krein.kernels.collections import is_sparse

__all__ = ["GivenColumns", "GivenRows", "given_matrix"]


@dataclass(frozen=True, eq=False, repr=False)
class GivenRows(Precomputed):
    """The kernel of a fit with similarities of new objects to the old ones beside it: object n + i is row i of R."""

    R: Any = None  # (m, n), similarities of the new objects to those of the fit

    def __post_init__(self) -> None:
        pass  # S was checked at the fit, R by the estimator

    @property
    def n_objects(self) -> int:
        return int(self.S.shape[0] + self.R.shape[0])

    @property
    def new(self) -> Indices:
        """The objects that are rows of R."""
        return np.arange(self.S.shape[0], self.n_objects)

    def __call__(self, A: Any, B: Any = None) -> Array:
        a, b = self._indices(A), self._indices(A if B is None else B)
        n = self.S.shape[0]
        if a.size and a.min() >= n and (b.size == 0 or b.max() < n):
            return _block(self.R, a - n, b)
        if a.size and b.size and max(a.max(), b.max()) >= n:
            raise InputError(
                "Similarities among new objects are not given: a precomputed matrix has those of new objects to the "
                "ones of the fit. Fit on all of them together."
            )
        return _block(self.S, a, b)

    def diag(self, A: Any) -> Array:
        a = self._indices(A)
        if a.size and a.max() >= self.S.shape[0]:
            raise InputError("A precomputed matrix does not say how similar new objects are to themselves.")
        return super().diag(A)


@dataclass(frozen=True)
class GivenColumns(Kernel):
    """Similarities that come with each new object: its row of similarities to the objects of the fit.

    k(row, i) = row[i]. The matrix of the fit has no part in it, so a model that predicts by it does not keep that.
    """

    compares: ClassVar[str] = "anything"

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=None)

    def __call__(self, A: Any, B: Any = None) -> Array:
        block = A[:, np.asarray(B)]
        return np.asarray(block.toarray() if is_sparse(block) else block)

    def diag(self, A: Any) -> Array:
        raise InputError("A precomputed matrix does not say how similar new objects are to themselves.")


def given_matrix(S: Any) -> Precomputed:
    """The kernel of a matrix to fit; one that is not square is refused in scikit-learn's words."""
    if S.shape[0] != S.shape[1]:
        raise InputError(
            f"Precomputed matrix must be a square matrix. Input is a {S.shape[0]}x{S.shape[1]} matrix; fit needs the "
            "similarities of the training objects among themselves."
        )
    try:
        return Precomputed(S)
    except InputError as error:
        what, crooked, _ = str(error).partition("If that is meant")  # no estimator has the parameter it goes on with
        if not crooked:
            raise
        raise InputError(
            f"{what}If that is meant, fit (S + S.T) / 2; or pass "
            'kernel=krein.Precomputed(S, asymmetric="average") and indices for X.'
        ) from None


def _block(S: Any, a: Indices, b: Indices) -> Array:
    block = S[a][:, b].toarray() if is_sparse(S) else np.asarray(S[np.ix_(a, b)])
    return block if block.dtype in (np.float32, np.float64) else block.astype(np.float64)
