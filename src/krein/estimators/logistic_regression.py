"""Kernel logistic regression: labels in, functions whose softmax are the probabilities of the classes out.

An exact fit works on the eigendecomposition of the kernel's own matrix, any other on the factorization of the
approximation. Both are solved by `krein.solvers.logistic`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from krein.arrays import Array, Indices
from krein.choosing.by_score import codes
from krein.errors import IndefiniteError, InputError, is_number, warn, whole_number
from krein.estimators.base import KernelMachine
from krein.estimators.choose_correction import judge_for
from krein.estimators.decision import FactoredExpansion, KernelExpansion, copied, mapped
from krein.estimators.outside import ScoredOutside, fits_outside, predicts_outside
from krein.estimators.ridge import _count as count
from krein.estimators.route import Exact
from krein.estimators.weights import check_weights, class_weights
from krein.kernels import Precomputed
from krein.kernels.collections import only
from krein.solvers.dense_dual import NotConverged
from krein.solvers.logistic import solve_logistic

__all__ = ["KernelLogisticRegression"]

# The candidates of correction="auto". They are compared by ridge with alpha = RIDGE_STRENGTH / C, because the logistic
# loss of a value near 0 is a squared loss with a weight of 1/4.
CANDIDATES = ("flip", "clip", "square")
RIDGE_STRENGTH = 4.0


@dataclass(eq=False, repr=False, kw_only=True)
class KernelLogisticRegression(ScoredOutside, ClassifierMixin, KernelMachine):  # type: ignore[misc]
    """Logistic regression in the space of any symmetric kernel, for any number of rows.

    It minimises half the squared norm of the functions in the kernel's space plus C times the logistic loss. Two
    classes have one function, more classes one each, with the softmax (multinomial) loss. The intercepts are not
    penalised. It is `sklearn.linear_model.LogisticRegression` on features whose inner products are the kernel, and with
    ``kernel="linear"`` on X itself.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss beside the penalty. Smaller values regularise more.
    fit_intercept : bool, default=True
        Whether each function has a constant. With it the mean probability of a class on the training rows is the share
        of that class.
    class_weight : dict or "balanced", default=None
        Weights of the classes. "balanced" is inversely proportional to their sums of sample weights.
    tol : float, default=1e-6
        The norm of the gradient in the kernel's space at which the solver stops. Decision values, but for the
        intercept, are within ``tol * sqrt(k(x, x))`` of the optimum then.
    max_iter : int, default=100
        Most steps of Newton's method.
    correction : {"auto", "none", "clip", "flip", "square"} or float, default="auto"
        How an indefinite matrix is made psd. "auto" takes the one of "flip", "clip" and "square" with the best
        validated score. There is no "shift": it would give each training row a value of its own that new objects lack.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`. The kernel's own matrix is used up to ``policy.exact_rows`` rows.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The class labels.
    intercept_ : array of shape (1,) for two classes, (n_classes,) for more
        The constants. Those of more than two classes have the sum 0.
    dual_coef_ : array of shape (n,) for two classes, (n, n_classes) for more
        Coefficients of the training rows of positive weight: C times the weight times what the probability misses of
        the label.
    gradient_norm_ : float
        Norm of the gradient at the solution, in the kernel's space.
    n_iter_, converged_
        Steps of Newton's method, and whether ``tol`` was reached.
    route_, approximation_, correction_, n_negative_, selection_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from krein import KernelLogisticRegression
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> model = KernelLogisticRegression(gamma=1.0, C=10.0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> bool(abs(model.predict_proba(X)[:, 1].mean() - y.mean()) < 1e-6)
    True
    """

    C: float = 1.0
    fit_intercept: bool = True
    class_weight: Any = None
    tol: float = 1e-6
    max_iter: int = 100

    _corrections: ClassVar[tuple[str, ...]] = ("auto", "none", "clip", "flip", "square")
    _limit: ClassVar[str] = "exact_rows"
    _tunes: ClassVar[bool] = True

    @fits_outside
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelLogisticRegression:
        """Fit to labels y of shape (n,)."""
        for name in ("C", "tol"):
            if not (is_number(value := getattr(self, name)) and value > 0.0):
                raise InputError(f"{name} must be a finite number above 0; got {value!r}.")
        whole_number("max_iter", self.max_iter, 1)
        given = None if sample_weight is None else check_weights(sample_weight, count(X))
        objects, y, kernel = self._start(X, y, weights=given)
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        weights = np.ones(len(y)) if given is None else given
        used = np.flatnonzero(weights > 0.0)
        whole = self.approximation is not None or isinstance(kernel, Precomputed)
        if len(used) < len(y) and not whole:
            objects, y, weights, used = only(objects, used), y[used], weights[used], np.arange(len(used))
        self.classes_ = np.unique(y[used])
        if len(self.classes_) < 2:
            raise InputError(
                f"{type(self).__name__} needs samples of at least 2 classes in the data; got one class: "
                f"{self.classes_[0]!r}."
            )
        labels = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)  # a row without weight has any
        own = class_weights(self.class_weight, self.classes_, labels, weights)
        self._learn(objects, kernel, labels, self.C * weights * own[labels])
        return self

    def _learn(self, objects: Any, kernel: Any, labels: Indices, weights: Array) -> None:
        """Set what predicts; ``weights`` are those of the loss of each row."""
        self._decide(objects, kernel, scored=True)
        chooser = self._chooser(codes(labels))
        kernel = self._tune(objects, kernel, chooser)
        judge = judge_for(labels, learner="ridge", strength=RIDGE_STRENGTH / weights.mean(), names=CANDIDATES)
        a = self._settle(self._build(objects, kernel, chooser), judge)
        f = a.factorization
        if self.n_negative_ and self.correction_ == "none":
            raise IndefiniteError(
                f"{type(self).__name__} needs a psd matrix to be convex, but {a.kernel!r} gave {self.n_negative_} "
                "negative eigenvalues. Pass correction='flip', 'clip' or 'square'."
            )
        if f.shift:
            raise InputError(
                f"{type(self).__name__} needs an approximation without a shift; got one of {f.shift:.3g}. Pass it "
                "uncorrected, or corrected by 'flip', 'clip' or 'square'."
            )
        found = solve_logistic(
            f, labels, weights, intercept=bool(self.fit_intercept), tol=self.tol, max_iter=self.max_iter,
            verbose=self.verbose,
        )  # fmt: skip
        if not found.converged:
            warn(
                f"{type(self).__name__} stopped after max_iter = {self.max_iter} steps with a gradient of norm "
                f"{found.gradient_norm:.2g}, above tol = {self.tol:g}. Raise max_iter, lower C, or scale the data.",
                NotConverged,
            )
        self.n_iter_, self.converged_, self.gradient_norm_ = found.n_iter, found.converged, found.gradient_norm
        self.intercept_ = found.intercept
        self.dual_coef_ = found.dual[:, 0] if found.dual.shape[1] == 1 else found.dual
        if isinstance(self.route_, Exact):
            own, dual = (
                self._kernel if self._precomputed else a.kernel,
                mapped(self._uncorrected.factorization, found.inner),
            )
            self._expansion: Any = KernelExpansion(own, copied(a.objects), dual)
            self._forget_matrix()
        else:
            self._expansion = FactoredExpansion(a, found.inner)

    @predicts_outside
    def decision_function(self, X: Any) -> Array:
        """(n,) for two classes, above 0 for the second; else (n, n_classes), highest for the class predicted."""
        objects = self._new(X)
        values = np.asarray(self._expansion(objects, self.verbose) + self.intercept_)
        return values[:, 0] if values.shape[1] == 1 else values

    @predicts_outside
    def predict(self, X: Any) -> Any:
        """The most probable class of each object."""
        values = self.decision_function(X)
        return self.classes_[(values > 0.0).astype(np.intp) if values.ndim == 1 else values.argmax(1)]

    @predicts_outside
    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, (n, n_classes)."""
        values = self.decision_function(X)
        return np.asarray(expit(np.outer(values, (-1.0, 1.0))) if values.ndim == 1 else softmax(values, axis=1))

    @predicts_outside
    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of the probability of each class, (n, n_classes)."""
        values = self.decision_function(X)
        return np.asarray(log_expit(np.outer(values, (-1.0, 1.0))) if values.ndim == 1 else log_softmax(values, axis=1))
