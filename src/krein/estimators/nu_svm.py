"""Nu-support vector machines: SVC and SVR whose C or epsilon follows from nu, the share of support vectors.

A machine states its duals (`NuTask`). They go the routes of SVC and SVR. `krein.solvers.nu_svm` solves each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from krein.approximation import Approximation
from krein.arrays import Array, Indices
from krein.errors import InputError, is_number
from krein.estimators.outside import fits_outside
from krein.estimators.svm import CANDIDATE_GAP, Classifier, Regressor, SupportVectorMachine
from krein.factorization import Factorization
from krein.kernels import Kernel
from krein.solvers import Dual
from krein.solvers.dense_dual import Task
from krein.solvers.nu_svm import NuDual, NuTask, check_feasible, of_level, solve_nu, solve_nu_dense, solve_nu_exactly

__all__ = ["NuSVC", "NuSVR"]


@dataclass(eq=False, repr=False, kw_only=True)
class _NuMachine(SupportVectorMachine):
    """The parameter nu, and duals in which it takes the place of C or epsilon."""

    nu: float = 0.5

    def _check_solver(self) -> None:
        super()._check_solver()
        if not (is_number(self.nu) and 0.0 < self.nu <= 1.0):
            raise InputError(f"nu must be a number above 0 and at most 1; got {self.nu!r}.")

    def _exact_duals(
        self, kernel: Kernel, objects: Any, tasks: Sequence[Task], starts: Sequence[Dual | None]
    ) -> list[Dual]:
        def solve(at: Task, start: Dual | None) -> Dual:
            return super(_NuMachine, self)._exact_duals(kernel, objects, [at], [start])[0]

        found: list[Dual] = []
        for task, start in zip(tasks, starts, strict=True):
            assert isinstance(task, NuTask)
            dual = solve_nu_exactly(kernel, objects, task, solve, start=start, **self._limits)
            found.append(_weighted(task, dual, solve))
        return found

    def _factored_dual(
        self, a: Approximation, f: Factorization, K: Array | None, task: Task, start: Dual | None
    ) -> Dual:
        def solve(at: Task, start: Dual | None) -> Dual:
            return super(_NuMachine, self)._factored_dual(a, f, K, at, start)

        def product(b: Array) -> Array:
            whole = np.zeros(f.shape[0])
            whole[task.rows] = b
            return (f @ whole)[task.rows]

        assert isinstance(task, NuTask)
        psd = not (self.correction_ == "none" and self.n_negative_)
        if self._is_dense(f, K, task):
            own = f.entries(task.rows, task.rows) if K is None else K[np.ix_(task.rows, task.rows)]
            found = solve_nu_dense(own, task, psd=psd, start=start, **self._limits)
        else:
            tol = max(self.tol, CANDIDATE_GAP) if self.refined_ else self.tol
            found = solve_nu(task, solve, product, f.diagonal()[task.rows], tol=tol, start=start)
        return _weighted(task, found, solve)

    def _set_convergence(self, duals: Sequence[Dual]) -> None:
        super()._set_convergence(duals)
        if self.refined_:
            self._warn_of_early_ends(duals)

    @property
    def _limits(self) -> dict[str, Any]:
        options = {"shrinking": bool(self.shrinking), "cache_size": self.cache_size}
        return {"tol": self.tol, "max_iter": int(self.max_iter), "options": options}


def _weighted(task: NuTask, found: NuDual, solve: Callable[[Task, Dual | None], Dual]) -> NuDual:
    """The dual with class weights as factors of the bounds, if there are any."""
    if task.factors is None:
        return found
    at = task.at(found.level)
    at = replace(at, low=task.factors * at.low, high=task.factors * at.high)
    dual = solve(at, replace(found, coefficients=np.clip(found.coefficients, at.low, at.high)))
    return of_level(dual, found.level)


@dataclass(eq=False, repr=False)
class NuSVC(_NuMachine, Classifier):
    """Nu-support vector classification with any symmetric kernel, for any number of rows.

    The parameters, attributes and decision function are those of `sklearn.svm.NuSVC`. The solution is that of an SVC
    whose C follows from nu. It is exact up to 2000 rows, and up to 50,000 rows of a psd kernel (``policy``). With more
    rows the kernel matrix is replaced by a factorization, as in `krein.SVC`.

    Parameters
    ----------
    nu : float in (0, 1], default=0.5
        An upper bound on the share of margin errors and a lower bound on the share of support vectors, by weight, in
        each dual. It is infeasible if it exceeds twice the share of the smaller class.
    class_weight : dict, "balanced" or None, default=None
        Factors by class of the C that follows from nu. scikit-learn ignores them. With them, nu bounds the shares of
        the machine without them.
    decision_function_shape, break_ties, multi_class, probability
        See `krein.estimators.svm.SVC`.
    tol, shrinking, cache_size, max_iter, refine, correction
        See `krein.estimators.svm.SVC`. On a factorization ``max_iter`` limits the steps for one C of several.
    warm_start : bool, default=False
        Start from the C of the last fit.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    classes_, class_weight_, support_, support_vectors_, n_support_, dual_coef_, intercept_, coef_, fit_status_, \
n_iter_, shape_fit_
        As in scikit-learn. The coefficients of a corrected matrix belong to the dual of that matrix.
    C_ : array of shape (n_duals,)
        The C with which an SVC has the same solution, for each dual.
    gap_ : float
        Largest relative duality gap of all duals, of the nu-SVM itself.
    converged_, gap_paths_, refined_, probA_, probB_
        See `krein.estimators.svm.SVC`.
    route_, approximation_, correction_, n_negative_, selection_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.array([[-1.0, -1.0], [-2.0, -1.0], [1.0, 1.0], [2.0, 1.0]])
    >>> machine = krein.NuSVC(nu=0.5).fit(X, [1, 1, 2, 2])
    >>> machine.predict([[-0.8, -1.0]])
    array([1])
    >>> same = krein.SVC(C=machine.C_[0]).fit(X, [1, 1, 2, 2])
    >>> bool(np.allclose(same.decision_function(X), machine.decision_function(X)))
    True
    """

    @fits_outside
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> NuSVC:
        """Fit to X (n, d) and labels y (n,). Rows of weight 0 or less are ignored."""
        self._fit(X, y, sample_weight, 1.0)
        return self

    def _tasks(self, labels: Indices, limits: Array) -> list[Task]:
        own = self.class_weight_[np.maximum(labels, 0)]
        tasks: list[Task] = []
        for task in super()._tasks(labels, limits / own):
            factors = None if self.class_weight is None else own[task.rows]
            one = NuTask("margin", task.rows, task.linear, task.low, task.high, nu=float(self.nu), factors=factors)
            check_feasible(one)
            tasks.append(one)
        return tasks

    def _fit_all_pairs(self, objects: Any, kernel: Kernel, labels: Indices, limits: Array, used: Indices) -> bool:
        return False  # each pair has a C of its own

    def _set_convergence(self, duals: Sequence[Dual]) -> None:
        super()._set_convergence(duals)
        self.C_ = np.array([1.0 / dual.level for dual in duals if isinstance(dual, NuDual)])


@dataclass(eq=False, repr=False)
class NuSVR(_NuMachine, Regressor):
    """Nu-support vector regression with any symmetric kernel, for any number of rows.

    The parameters, attributes and predictions are those of `sklearn.svm.NuSVR`. The solution is that of an SVR whose
    epsilon follows from nu. It is exact up to 2000 rows, and up to 50,000 rows of a psd kernel (``policy``). With more
    rows the kernel matrix is replaced by a factorization, as in `krein.SVR`.

    Parameters
    ----------
    nu : float in (0, 1], default=0.5
        An upper bound on the share of errors beyond epsilon and a lower bound on the share of support vectors, by
        weight.
    C : float, default=1.0
        Strength of the loss. The bound of a row's dual coefficient is C times its sample weight.
    tol, shrinking, cache_size, max_iter, refine, correction
        See `krein.estimators.svm.SVC`. On a factorization ``max_iter`` limits the steps for one epsilon of several.
    warm_start : bool, default=False
        Start from the epsilon of the last fit.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_, coef_, fit_status_, n_iter_, shape_fit_
        As in scikit-learn. The coefficients of a corrected matrix belong to the dual of that matrix.
    epsilon_ : float
        The epsilon with which an SVR has the same solution.
    gap_ : float
        Relative duality gap of the nu-SVM itself.
    converged_, gap_paths_, refined_
        See `krein.estimators.svm.SVC`.
    route_, approximation_, correction_, n_negative_, selection_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.linspace(0.0, 6.0, 60)[:, None]
    >>> y = np.sin(X.ravel())
    >>> machine = krein.NuSVR(nu=0.2, C=10.0).fit(X, y)
    >>> same = krein.SVR(C=10.0, epsilon=machine.epsilon_).fit(X, y)
    >>> bool(np.allclose(same.predict(X), machine.predict(X), atol=1e-6))
    True
    """

    def _task(self, rows: Indices, y: Array, limits: Array) -> Task:
        return NuTask("tube", rows, y, -limits, limits, nu=float(self.nu))

    def _set_convergence(self, duals: Sequence[Dual]) -> None:
        super()._set_convergence(duals)
        (dual,) = duals
        assert isinstance(dual, NuDual)
        self.epsilon_ = float(dual.level)
