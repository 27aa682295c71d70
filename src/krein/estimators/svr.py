"""Support vector regression and the one-class SVM with scikit-learn's contract, on the factored matrix."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import OutlierMixin, RegressorMixin
from sklearn.utils.validation import column_or_1d

from krein.arrays import Array, Indices
from krein.errors import InputError
from krein.estimators.base import check_weights
from krein.estimators.dual_machine import DualMachine, check_C
from krein.kernels import Kernel, count_objects
from krein.kernels.kernel import is_number
from krein.solvers.dense_dual import Task

__all__ = ["SVR", "OneClassSVM"]

BOUNDARY = 1e-9  # of the offset: what rounding may move a value by


@dataclass(eq=False, repr=False, kw_only=True)
class _OneDual(DualMachine):
    """A machine with a single decision function."""

    def _fit_one(
        self, objects: Any, kernel: Kernel, kept: Indices, task: Task, targets: Array | None = None, limits: Any = None
    ) -> None:
        coefficients, self.intercept_ = self._solve(objects, kernel, [task], targets, limits)
        support = np.flatnonzero(coefficients[:, 0])
        self._keep(support, kept)
        self.n_support_ = np.array([len(support)], dtype=np.int32)
        self.dual_coef_ = coefficients[support].T.copy()
        self.n_iter_ = int(self._steps[0])


@dataclass(eq=False, repr=False)
class SVR(RegressorMixin, _OneDual):  # type: ignore[misc]
    """Epsilon-support vector regression on a factored kernel matrix; exact where the rows are few.

    scikit-learn's `sklearn.svm.SVR` with the n x n matrix replaced by U M Uᵀ + s I: the same parameters, attributes and
    predictions. Up to 2000 rows, and up to 50,000 of a psd kernel, it is scikit-learn's machine (``policy``).

    Parameters
    ----------
    C : float, default=1.0
        What a row may cost at most, times its sample weight.
    epsilon : float, default=0.1
        Errors up to it cost nothing.
    tol, max_iter, refine, warm_start, shrinking, cache_size, correction
        See `krein.estimators.svm.SVC`.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_, coef_, fit_status_, n_iter_, shape_fit_
        As in scikit-learn; of a corrected matrix, the coefficients are those of its own dual.
    approximation_, correction_, n_negative_, relative_error_, converged_, gap_, gap_paths_
        See `krein.estimators.svm.SVC`.
    """

    _: KW_ONLY
    C: float = 1.0
    epsilon: float = 0.1

    _tunes: ClassVar[bool] = True

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SVR:
        """Fit to X (n, d) and numbers y (n,); rows of weight 0 or less are as if they were not there."""
        self._check_solver()
        C = check_C(self.C)
        if not (is_number(self.epsilon) and self.epsilon >= 0.0):
            raise InputError(f"epsilon must be a number of at least 0; got {self.epsilon!r}.")
        given = self._weights(sample_weight)
        objects, y, kernel = self._start(X, y, weights=given, y_numeric=True)
        y = column_or_1d(y, warn=True).astype(np.float64, copy=False)
        weights = check_weights(given, count_objects(objects))
        objects, kept = self._kept(objects, weights)
        y, limits = y[kept], C * weights[kept]
        self._decide(objects, kernel, scored=True)
        rows = np.flatnonzero(limits > 0.0)
        task = Task("tube", rows, y[rows], -limits[rows], limits[rows], 0.0, float(self.epsilon))
        self._fit_one(objects, kernel, kept, task, y, limits)
        return self

    def predict(self, X: Any) -> Array:
        """The value at each row of X."""
        return np.asarray(self._values(X).ravel() + self.intercept_[0])


@dataclass(eq=False, repr=False)
class OneClassSVM(OutlierMixin, _OneDual):  # type: ignore[misc]
    """The support of a distribution, on a factored kernel matrix; exact where the rows are few.

    scikit-learn's `sklearn.svm.OneClassSVM` with the n x n matrix replaced by U M Uᵀ + s I; up to 2000 rows, and up to
    50,000 of a psd kernel, it is scikit-learn's machine (``policy``).

    Parameters
    ----------
    nu : float in (0, 1], default=0.5
        At most this share of the rows, by weight, lies outside; at least this share are support vectors.
    tol, max_iter, refine, warm_start, shrinking, cache_size, correction
        See `krein.estimators.svm.SVC`.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_, offset_, coef_, fit_status_, n_iter_, shape_fit_
        As in scikit-learn; of a corrected matrix, the coefficients are those of its own dual.
    approximation_, correction_, n_negative_, relative_error_, converged_, gap_, gap_paths_
        See `krein.estimators.svm.SVC`.
    """

    _: KW_ONLY
    nu: float = 0.5

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> OneClassSVM:
        """Fit to X (n, d); y is there for the convention. Rows of weight 0 or less are as if they were not there."""
        self._check_solver()
        if not (is_number(self.nu) and 0.0 < self.nu <= 1.0):
            raise InputError(f"nu must be a number above 0 and at most 1; got {self.nu!r}.")
        given = self._weights(sample_weight)
        objects, _, kernel = self._start(X, weights=given)
        weights = check_weights(given, count_objects(objects))
        objects, kept = self._kept(objects, weights)
        self._decide(objects, kernel)
        rows = np.flatnonzero(weights[kept] > 0.0)
        limits = weights[kept][rows]
        total = float(self.nu) * float(limits.sum())
        self._fit_one(
            objects, kernel, kept, Task("one-class", rows, np.zeros(len(rows)), np.zeros(len(rows)), limits, total)
        )
        self.offset_ = -self.intercept_
        return self

    def decision_function(self, X: Any) -> Array:
        """How far inside each row of X lies; negative outside, and 0 within rounding of the boundary."""
        values: Array = self._values(X).ravel() + self.intercept_[0]
        # free support vectors lie on the boundary; on which side of it must not be a matter of rounding
        values[np.abs(values) <= BOUNDARY * abs(self.intercept_[0])] = 0.0
        return values

    def score_samples(self, X: Any) -> Array:
        """The decision function plus ``offset_``."""
        return np.asarray(self.decision_function(X) + self.offset_[0])

    def predict(self, X: Any) -> Any:
        """1 for each row inside or on the boundary, -1 for each outside."""
        return np.where(self.decision_function(X) >= 0.0, 1, -1).astype(np.intp)
