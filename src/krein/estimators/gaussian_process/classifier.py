"""Gaussian process classification by Laplace's approximation: exact as in scikit-learn, or on a factored kernel matrix.

Two classes have one latent function. More classes are several problems of two, each a classifier of its own. The
kernel's parameters maximise the evidence of at most some thousand rows (`evidence.learn`), and the mode is that of all
rows (`laplace`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.base import ClassifierMixin, clone
from sklearn.gaussian_process import kernels as sk
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from krein.approximation import Approximation
from krein.approximation.request import COUPLINGS
from krein.arrays import Array, Indices, seed_from
from krein.errors import InputError, one_of, whole_number
from krein.estimators.choose_correction import judge_for
from krein.estimators.decision import confidences, copied
from krein.estimators.gaussian_process.evidence import Observations, noise_of
from krein.estimators.gaussian_process.kernels import AsSklearn
from krein.estimators.gaussian_process.laplace import (
    Mode,
    averaged_sigmoid,
    dense_mode,
    factored_mode,
    laplace_evidence,
    laplace_posterior,
    warn_of,
)
from krein.estimators.gaussian_process.learning import learn
from krein.estimators.gaussian_process.posterior import Posterior
from krein.estimators.gaussian_process.process import Process, check_correction, check_unused
from krein.estimators.outside import ScoredOutside, fits_outside, predicts_outside
from krein.factorization import Factorization
from krein.factorization.bases import STORAGE
from krein.factorization.eigensystem import Eigensystem
from krein.kernels import count_objects, take
from krein.kernels.collections import rows
from krein.policy import check_parameters, check_policy

__all__ = ["GaussianProcessClassifier"]

# Corrections are compared by ridge with this alpha: the logistic loss of a value near 0 has a noise of 4.
LOGISTIC_NOISE = 4.0
# What a classifier of several classes takes from its first problem.
OF_FIRST_PROBLEM = (
    "route_", "correction_", "n_negative_", "selection_", "_approximation", "_uncorrected", "_relative_error",
    "_kernel", "_training",
)  # fmt: skip


@dataclass(eq=False, repr=False)
class GaussianProcessClassifier(ScoredOutside, ClassifierMixin, Process):  # type: ignore[misc]
    """Gaussian process classification with any symmetric kernel, for any number of rows.

    The parameters, attributes and predictions are those of `sklearn.gaussian_process.GaussianProcessClassifier`. Up to
    ``policy.exact_rows`` rows the kernel's own matrix is used. With more rows it is approximated by U M Uᵀ plus a
    multiple of the identity for what that leaves of k(x, x), and Newton's method solves r x r systems. The kernel's
    parameters maximise the evidence (log marginal likelihood) of at most ``policy.process_learning_rows`` random rows.

    Parameters
    ----------
    kernel : kernel of sklearn.gaussian_process.kernels, krein kernel, str or callable, default=None
        None means ``1.0 * RBF(1.0)`` of scikit-learn, whose parameters are fixed as they are there. A krein kernel or a
        name becomes ``amplitude * kernel``. The amplitude and the kernel's gamma, rho or factors are learned, starting
        from the given values. With ``optimizer=None`` the kernel is used unchanged.
    optimizer : "fmin_l_bfgs_b", callable or None, default="fmin_l_bfgs_b"
        As in scikit-learn.
    n_restarts_optimizer : int, default=0
        Number of further starts of the optimizer.
    max_iter_predict : int, default=100
        Most steps of Newton's method to the mode of the posterior. If they are not enough, a warning says so.
    warm_start : bool, default=False
        Accepted for compatibility. Every search for a mode begins at 0 and takes few steps.
    copy_X_train : bool, default=True
        Keep a copy of X, so that it may be changed after the fit.
    multi_class : {"one_vs_rest", "one_vs_one"}, default="one_vs_rest"
        How more than two classes become problems of two. Probabilities need "one_vs_rest".
    correction : {"auto", "none", "clip", "flip", "square"}, default="auto"
        How an indefinite kernel is made psd. "auto" is "clip", or "flip" if that has a clearly better validated score.
    approximation : Approximation, default=None
        An approximation of the same X that was built before. Its kernel is kept, and only the amplitude is learned.
    gamma, degree, coef0, kernel_params
        Parameters of kernels given by name, see `krein.estimators.base.KernelMachine`.
    n_blocks, rank, coupling, drop, max_error, max_memory, dtype, policy, random_state, n_jobs, verbose, \
memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The class labels.
    n_classes_ : int
        Their number.
    kernel_ : kernel of sklearn.gaussian_process.kernels
        The kernel with learned parameters. Of more than two classes a CompoundKernel of those of all problems.
    log_marginal_likelihood_value_ : float
        The evidence of ``kernel_.theta``, the mean of all problems.
    estimators_ : list of GaussianProcessClassifier
        The problems of two classes, if there are more than two.
    X_train_, y_train_ : array
        Training data of two classes, y as 0 and 1.
    L_, W_sr_, pi_ : arrays
        Of an exact process of two classes: the lower Cholesky factor of I + W^½ K W^½, the roots of the curvatures W,
        and the probabilities of the second class at the mode.
    n_iter_, converged_
        Steps of the optimizer and of the last search for a mode, and whether both converged.
    route_, approximation_, correction_, n_negative_, selection_, relative_error_
        See `krein.estimators.base.KernelMachine`. Of more than two classes those of the first problem.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.gaussian_process.kernels import RBF
    >>> from krein import GaussianProcessClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = GaussianProcessClassifier(1.0 * RBF(1.0), random_state=0).fit(X, y)
    >>> round(model.score(X, y), 4)
    0.9867
    """

    kernel: Any = None
    _: KW_ONLY
    optimizer: Any = "fmin_l_bfgs_b"
    n_restarts_optimizer: int = 0
    max_iter_predict: int = 100
    warm_start: bool = False
    copy_X_train: bool = True
    multi_class: str = "one_vs_rest"

    _limit: ClassVar[str] = "exact_rows"
    _of_route: ClassVar[tuple[str, ...]] = (
        *Process._of_route, "W_sr_", "pi_", "alpha_", "estimators_", "_members", "X_train_", "y_train_",
    )  # fmt: skip

    # -- fit -------------------------------------------------------------------------------------------------------

    @fits_outside
    def fit(self, X: Any, y: Any) -> GaussianProcessClassifier:
        """Learn the kernel's parameters, and condition on labels y of shape (n,)."""
        check_correction(self.correction, self._corrections)
        check_parameters(vars(self), COUPLINGS, STORAGE)
        check_unused(self)
        if isinstance(self.kernel, sk.CompoundKernel):
            raise InputError("kernel cannot be a CompoundKernel. Pass one kernel; each class learns its parameters.")
        one_of("multi_class", self.multi_class, ("one_vs_rest", "one_vs_one"))
        whole_number("n_restarts_optimizer", self.n_restarts_optimizer, 0)
        whole_number("max_iter_predict", self.max_iter_predict, 1)
        X, y = self._checked(X, y, reset=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        self.n_classes_ = len(self.classes_)
        if self.n_classes_ < 2:
            raise InputError(
                f"{type(self).__name__} requires 2 or more distinct classes; got {self.n_classes_} class (only class "
                f"{self.classes_[0]!r} is present)."
            )
        if self.n_classes_ == 2:
            self._learn_from(X, labels.astype(np.float64))
        else:
            self._fit_each(X, labels)
        return self

    def _fit_each(self, X: Any, labels: Indices) -> None:
        """Fit the problems of two classes. Those with equal rows and kernels share an approximation."""
        self._forget(*self._of_route, "_training", "_prepared", "_scales_are_open", "_n_rows")
        seed = seed_from(self.random_state) % 2**32
        X = copied(X) if self.copy_X_train else X  # once for all problems
        fitted = []
        for members, second in self._problems(labels):
            one = clone(self).set_params(random_state=seed, copy_X_train=False)
            fitted.append(one.fit(self._of(X, members, square=True), second.astype(np.intp)))
        self.estimators_ = fitted
        whole = self.multi_class == "one_vs_rest"
        self._members = [None if whole else members for members, _ in self._problems(labels)]
        self.kernel_ = sk.CompoundKernel([one.kernel_ for one in fitted])
        self.log_marginal_likelihood_value_ = np.mean([one.log_marginal_likelihood_value_ for one in fitted])
        for name in OF_FIRST_PROBLEM:
            if hasattr(fitted[0], name):
                setattr(self, name, getattr(fitted[0], name))
        self.n_iter_, self.converged_ = max(one.n_iter_ for one in fitted), all(one.converged_ for one in fitted)

    def _problems(self, labels: Indices) -> Iterator[tuple[Indices, Any]]:
        """Yield the rows of each problem of two classes, and whether each is of the second class."""
        if self.multi_class == "one_vs_rest":
            every = np.arange(len(labels))
            yield from ((every, labels == k) for k in range(self.n_classes_))
            return
        for i, j in combinations(range(self.n_classes_), 2):
            members = np.flatnonzero((labels == i) | (labels == j))
            yield members, labels[members] == j

    def _of(self, X: Any, members: Indices, *, square: bool = False) -> Any:
        """The rows of a problem; of a precomputed matrix also its columns, or for new objects its columns alone."""
        if self._precomputed:
            X = X[:, members]
        return take(X, members) if square and len(members) < count_objects(X) else X

    def _default_kernel(self) -> Any:
        return sk.ConstantKernel(1.0, "fixed") * sk.RBF(1.0, "fixed")

    def _learnable(self, kernel: AsSklearn, objects: Any, y: Array) -> Any:
        if self.optimizer is None:
            return kernel
        own = float(np.mean(kernel.diag(rows(objects, slice(0, 1000)))))
        amplitude = 1.0 / own if own > 0.0 else 1.0
        return sk.ConstantKernel(amplitude, (1e-5 * amplitude, 1e5 * amplitude)) * kernel

    def _whole(self) -> Observations:
        return Observations(self.X_train_, 2.0 * self.y_train_[:, None] - 1.0, np.zeros(len(self.y_train_)))

    @property
    def _evidence_of(self) -> Any:  # type: ignore[override]
        return functools.partial(laplace_evidence, max_iter=self.max_iter_predict)

    def _learn_kernel(self, start: Any, whole: Observations) -> Any:
        seed, policy = seed_from(self.random_state), check_policy(self.policy)
        how = "none" if self._psd else "clip" if self.correction == "auto" else self.correction
        found = learn(
            start, whole, how=how, optimizer=self.optimizer, restarts=self.n_restarts_optimizer,
            most=policy.process_learning_rows, local=False, seed=seed, rng=np.random.RandomState(seed % 2**32),
            of=self._evidence_of,
        )  # fmt: skip
        self.n_iter_, self.converged_ = found.iterations, found.converged
        return start.clone_with_theta(found.theta)

    def _choose_correction(self, a: Approximation, kernel: Any, whole: Observations) -> str:
        return judge_for(whole.y[:, 0], learner="ridge", strength=LOGISTIC_NOISE, names=("clip", "flip"))(a)

    def _condition_exactly(self, kernel: Any, whole: Observations) -> None:
        mode = dense_mode(kernel(whole.objects), whole.y[:, 0], self.max_iter_predict)
        if mode is None:
            raise np.linalg.LinAlgError(
                f"The kernel, {kernel}, is not returning a positive definite matrix. Add a WhiteKernel, or pass a "
                "correction."
            )
        self.L_, self.W_sr_ = mode.factor, np.sqrt(mode.curvature)
        self._reached(mode)
        self._set_results(kernel, whole, mode.evidence, mode.dual)

    def _posterior_of(self, f: Factorization, kernel: Any, whole: Observations, system: Eigensystem) -> Posterior:
        mode = factored_mode(f, noise_of(kernel, whole), whole.y[:, 0], system, self.max_iter_predict)
        self._reached(mode)
        return laplace_posterior(mode)

    def _reached(self, mode: Mode) -> None:
        warn_of(mode, type(self).__name__, self.max_iter_predict)
        self._newton = mode.n_iter, mode.converged

    def _set_results(self, kernel: Any, whole: Observations, evidence: float, dual: Array) -> None:
        self.kernel_ = kernel
        self.log_marginal_likelihood_value_ = np.float64(evidence)
        self.alpha_ = dual.ravel()
        self.pi_ = self.y_train_ - self.alpha_
        steps, converged = self.__dict__.pop("_newton")
        self.n_iter_, self.converged_ = self.n_iter_ + steps, self.converged_ and converged

    # -- predict ---------------------------------------------------------------------------------------------------

    @predicts_outside
    def predict(self, X: Any) -> Any:
        """The most probable class of each object; of a precomputed matrix that with the largest latent function."""
        check_is_fitted(self)
        if self.n_classes_ == 2:
            return self.classes_[(self._latent(self._new_objects(X), False)[0][:, 0] > 0.0).astype(np.intp)]
        if self.multi_class == "one_vs_rest" and not self._precomputed:
            return self.classes_[self._each_proba(X).argmax(1)]
        X = self._checked(X, "no_validation", reset=False)[0]
        parts = (X if members is None else self._of(X, members) for members in self._members)
        means = [one._latent(one._new_objects(own), False)[0] for one, own in zip(self.estimators_, parts, strict=True)]
        values = np.hstack(means)  # (n, problems)
        votes = values if self.multi_class == "one_vs_rest" else confidences(-values, self.n_classes_)
        return self.classes_[votes.argmax(1)]

    @predicts_outside
    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, (n, n_classes), averaged over the latent functions."""
        check_is_fitted(self)
        if self.n_classes_ == 2:
            second = averaged_sigmoid(*self.latent_mean_and_variance(X))
            return np.column_stack([1.0 - second, second])
        if self.multi_class == "one_vs_one":
            raise InputError(
                "one_vs_one multi-class mode does not support predicting probability estimates. Use one_vs_rest mode "
                "instead."
            )
        each = self._each_proba(X)
        return np.asarray(each / each.sum(1)[:, None])

    def _each_proba(self, X: Any) -> Array:
        """The probability of each class against the rest."""
        X = self._checked(X, "no_validation", reset=False)[0]
        return np.column_stack([one.predict_proba(X)[:, 1] for one in self.estimators_])

    def latent_mean_and_variance(self, X: Any) -> tuple[Array, Array]:
        """The mean and the variance of the latent function of two classes, each (n,)."""
        check_is_fitted(self)
        if self.n_classes_ > 2:
            raise InputError(
                "Returning the mean and variance of the latent function f is only supported for binary classification, "
                f"received {self.n_classes_} classes. Those of estimators_ have one each."
            )
        mean, variance = self._latent(self._new_objects(X), True)
        return mean[:, 0], variance

    def _dense_marginal(self, X: Any, cross: Array, variance: bool) -> tuple[Array, Array]:
        mean = (cross @ self.alpha_)[:, None]
        if not variance:
            return mean, np.empty(0)
        self._refuse_precomputed()
        V = solve_triangular(self.L_, self.W_sr_[:, None] * cross.T, lower=True, check_finite=False)
        return mean, self.kernel_.diag(X) - np.einsum("ij,ij->j", V, V)

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, Array]:
        """Return Laplace's log p(y) at theta, and its gradient if asked for; without theta that of ``kernel_``.

        Of more than two classes it is the mean of all problems, and theta is for all of them or for each. Of an
        approximated process the matrix is approximated anew at theta, and the gradient is by central differences.
        """
        check_is_fitted(self)
        if self.n_classes_ == 2 or theta is None:
            return super().log_marginal_likelihood(theta, eval_gradient, clone_kernel)
        if eval_gradient:
            raise NotImplementedError("Gradient of log-marginal-likelihood not implemented for multi-class GPC.")
        n, each = self.estimators_[0].kernel_.n_dims, len(self.estimators_)
        theta = np.asarray(theta, dtype=np.float64)
        if len(theta) not in (n, n * each):
            raise InputError(
                f"Shape of theta must be either {n} or {n * each}. Obtained theta with shape {len(theta)}."
            )
        thetas = np.split(np.tile(theta, each) if len(theta) == n else theta, each)
        pairs = zip(self.estimators_, thetas, strict=True)
        return float(np.mean([one.log_marginal_likelihood(t, clone_kernel=clone_kernel) for one, t in pairs]))
