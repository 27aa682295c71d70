"""Gaussian process regression: exact by a Cholesky factor as in scikit-learn, or on a factored kernel matrix.

The kernel's parameters and the noise maximise the evidence (`evidence`). An exact process then needs one Cholesky
factor of the covariance. An approximated one is linear algebra in the core of the factorization (`posterior`). What
the approximation lacks of k(x, x) is not neglected: its mean is added to the noise of y, and the predictive variance
uses k(x, x) itself. Otherwise the process would be overconfident.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from sklearn.base import MultiOutputMixin, RegressorMixin, clone
from sklearn.gaussian_process import kernels as sk
from sklearn.utils import check_array, check_random_state

from krein.approximation import Approximation
from krein.approximation.request import COUPLINGS
from krein.arrays import Array, seed_from, stream
from krein.errors import InputError, warn, whole_number
from krein.estimators.cache import forget
from krein.estimators.gaussian_process.evidence import (
    Observations,
    choose_correction,
    covariance,
    evidence_by,
    factored,
    noise_of,
    observations_of,
    only_scales_are_open,
    with_best_scales,
)
from krein.estimators.gaussian_process.kernels import (
    AsSklearn,
    declared_psd,
    signal,
    with_noise,
)
from krein.estimators.gaussian_process.learning import learn
from krein.estimators.gaussian_process.posterior import (
    Posterior,
    draw_functions,
    joint,
    posterior,
    prior,
    squeezed,
)
from krein.estimators.gaussian_process.process import Process, check_correction, check_unused, divided
from krein.estimators.outside import ScoredOutside, fits_outside, predicts_outside
from krein.estimators.route import ByScore, Exact, given_shape
from krein.factorization import Factorization
from krein.factorization.bases import STORAGE
from krein.factorization.eigensystem import Eigensystem
from krein.kernels import is_vectors, take
from krein.policy import check_parameters, check_policy

__all__ = ["GaussianProcessRegressor"]

# An exact process on some rows is compared with an approximation of all rows on HELD_OUT_ROWS other rows. At least
# LEAST_HELD_OUT_ROWS are needed for that.
HELD_OUT_ROWS = 3000
LEAST_HELD_OUT_ROWS = 100
# A kernel learned on LEAST_LEFT_OUT rows or more without noise, a share of k(x, x) below NO_NOISE, has to explain the
# share LEAST_EXPLAINED of the squares of LEFT_OUT rows that are left out in turn.
LEAST_LEFT_OUT = 200
LEFT_OUT = 64
NO_NOISE = 1e-6
LEAST_EXPLAINED = 0.05


@dataclass(eq=False, repr=False)
class GaussianProcessRegressor(ScoredOutside, MultiOutputMixin, RegressorMixin, Process):  # type: ignore[misc]
    """Gaussian process regression with any symmetric kernel, for any number of rows.

    The parameters, attributes and predictions are those of `sklearn.gaussian_process.GaussianProcessRegressor`. A
    process with a psd kernel is exact up to ``policy.process_rows`` rows, by a Cholesky factorization. Its parameters
    maximise the evidence (log marginal likelihood) of all rows, or of a random sample of
    ``policy.process_learning_rows`` rows if there are more. A kernel that may be indefinite is exact up to
    ``policy.exact_rows`` rows, by an eigendecomposition. With more rows the kernel matrix is approximated. Parameters
    are then learned on random rows and a few neighbourhoods, blocks are chosen by a validated score, and amplitude and
    noise are fitted to all rows. If an exact process on ``policy.process_rows`` random rows has the better score on
    held-out rows, it is used instead, and `X_train_` and `alpha_` have only those rows.

    Parameters
    ----------
    kernel : kernel of sklearn.gaussian_process.kernels, krein kernel, str or callable, default=None
        None means ``1.0 * RBF(1.0)`` of scikit-learn. A krein kernel or a name becomes
        ``amplitude * kernel + WhiteKernel``. Amplitude, noise and the kernel's scales (gamma, rho, factors, length
        scales, alpha, periodicity) are learned, starting from the given values; ``Matern(length_scale=[1.0] * d)`` has
        one length scale per feature. With ``optimizer=None`` the kernel is used unchanged.
    alpha : float or array of shape (n_samples,), default=1e-10
        Variance of the noise, in addition to that of the kernel.
    optimizer : "fmin_l_bfgs_b", callable or None, default="fmin_l_bfgs_b"
        As in scikit-learn.
    n_restarts_optimizer : int, default=0
        Number of further starts of the optimizer.
    normalize_y : bool, default=False
        Scale targets to mean 0 and variance 1.
    copy_X_train : bool, default=True
        Keep a copy of X, so that it may be changed after the fit.
    n_targets : int, default=None
        Number of targets of the prior, before fit.
    correction : {"auto", "none", "clip", "flip", "square"}, default="auto"
        How an indefinite kernel is made psd. "auto" is "clip", or "flip" if that has more evidence and a clearly better
        score on held-out rows.
    approximation : Approximation, default=None
        An approximation of the same X that was built before. Its kernel is kept, and only amplitude and noise are
        learned.
    gamma, degree, coef0, kernel_params
        Parameters of kernels given by name, see `krein.estimators.base.KernelMachine`.
    n_blocks, rank, coupling, drop, max_error, max_memory, dtype, policy, random_state, n_jobs, verbose, \
memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    kernel_ : kernel of sklearn.gaussian_process.kernels
        The kernel with learned parameters.
    X_train_, y_train_ : array
        Training data, y normalised.
    alpha_ : array of shape (n_samples,) or (n_samples, n_targets)
        Dual coefficients.
    L_ : array of shape (n_samples, n_samples)
        Lower Cholesky factor of the covariance of an exact process.
    log_marginal_likelihood_value_ : float
        The evidence of ``kernel_.theta``.
    noise_ : float or array of shape (n_samples,)
        Variance of the noise: ``alpha`` plus that of the kernel.
    approximation_ : Approximation
        Approximation of the kernel without noise, with the amplitude before it was fitted to all rows. An exact process
        of a psd kernel builds it on first access.
    route_, correction_, n_negative_, selection_, relative_error_, n_iter_, converged_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> x = np.linspace(0, 6, 60)[:, None]
    >>> y = np.sin(x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=60)
    >>> process = krein.GaussianProcessRegressor(krein.RBF(gamma=1.0), random_state=0).fit(x, y)
    >>> mean, std = process.predict([[1.0], [30.0]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.0)) < 0.1), bool(std[1] > std[0])  # far from all rows it is less sure
    (True, True)
    """

    kernel: Any = None
    _: KW_ONLY
    alpha: Any = 1e-10
    optimizer: Any = "fmin_l_bfgs_b"
    n_restarts_optimizer: int = 0
    normalize_y: bool = False
    copy_X_train: bool = True
    n_targets: int | None = None

    _limit: ClassVar[str] = "process_rows"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    # -- fit -------------------------------------------------------------------------------------------------------

    @fits_outside
    def fit(self, X: Any, y: Any) -> GaussianProcessRegressor:
        """Learn the kernel's parameters and the noise, and condition on y of shape (n,) or (n, n_targets)."""
        check_correction(self.correction, self._corrections)
        check_parameters(vars(self), COUPLINGS, STORAGE)
        check_unused(self)
        whole_number("n_restarts_optimizer", self.n_restarts_optimizer, 0)
        X, y = self._checked(X, y, reset=True, multi_output=True, y_numeric=True)
        y = check_array(y, ensure_2d=False, dtype=np.float64, copy=True, input_name="y")
        y, self._y_train_mean, self._y_train_std = _normalised(y, self.n_targets, self.normalize_y)
        return self._learn_from(X, y)  # type: ignore[no-any-return]

    def _default_kernel(self) -> Any:
        return sk.ConstantKernel() * sk.RBF()

    def _whole(self) -> Observations:
        return observations_of(self)

    def _only_scales_are_open(self, kernel: Any, whole: Observations) -> bool:
        return self.optimizer == "fmin_l_bfgs_b" and only_scales_are_open(kernel, whole, self.route_)

    def _exact_on_some_rows(self, X: Any, kernel: Any, whole: Observations) -> GaussianProcessRegressor | None:
        """Return an exact process on some rows, or None if an approximation of all predicts better or was asked for.

        It is fitted to ``policy.process_rows`` random rows and scored on others. The approximation has the score of the
        best shape, at the parameters learned by the exact process.
        """
        policy, n = check_policy(self.policy), len(whole.y)
        rows = policy.process_rows
        asked = given_shape(self) or not isinstance(self.route_, ByScore) or np.ndim(self.alpha) > 0
        if asked or not (is_vectors(X) and declared_psd(kernel) and 2 <= rows <= n - LEAST_HELD_OUT_ROWS):
            return None
        seed = seed_from(self.random_state)
        order = stream(seed, 62).permutation(n)
        some, others = np.sort(order[:rows]), np.sort(order[rows : rows + HELD_OUT_ROWS])
        part: GaussianProcessRegressor = clone(self).set_params(random_state=seed % 2**32, normalize_y=False)
        part.fit(take(X, some), self.y_train_[some])
        score = float(part.score(take(X, others), self.y_train_[others]))
        scale = part._length_scales(signal(part.kernel_), part.X_train_)
        choice = self._chooser(whole.y)(divided(X, scale), part._training[1], seed=seed, verbose=self.verbose)
        best = max((t.quality[0] for t in choice.tried), default=-np.inf)
        if score < best:
            return None
        part.selection_ = choice
        why = f"an exact process on {rows} of {n} rows has R² {score:.4f} on others, the best approximation {best:.4f}"
        part.route_ = Exact(True, why)
        return part

    def _learn_kernel(self, start: Any, whole: Observations) -> Any:
        """Return the kernel with the parameters of most evidence; those for "flip" only if the fit will use it."""
        seed, policy = seed_from(self.random_state), check_policy(self.policy)
        for how in ("none",) if self._psd else (self.correction, "clip"):
            found = learn(
                start, whole, how=how, optimizer=self.optimizer, restarts=self.n_restarts_optimizer,
                most=policy.process_learning_rows, local=not isinstance(self.route_, Exact),
                seed=seed, rng=np.random.RandomState(seed % 2**32),
            )  # fmt: skip
            kernel = self._better([start.clone_with_theta(t) for t in found.candidates], whole)
            self.n_iter_, self.converged_ = self.n_iter_ + found.iterations, found.converged
            if how != "auto" or found.how != "flip":
                break
            clean = signal(kernel)
            a = self._approximated(clean, whole, self._length_scales(clean, whole.objects))
            if self._choose_correction(a, kernel, whole) == "flip":
                break
        return kernel

    def _learnable(self, kernel: AsSklearn, objects: Any, y: Array) -> Any:
        return kernel if self.optimizer is None else with_noise(kernel, objects, float(np.mean(np.square(y))) or 1.0)

    # -- conditioning on y -----------------------------------------------------------------------------------------

    def _better(self, kernels: list[Any], whole: Observations) -> Any:
        """Return the kernel whose approximation has most evidence on all rows, at its best amplitude and noise.

        One approximation is held at a time. The best is usually the last, which stays in the cache.
        """
        if len(kernels) == 1 or self.coupling != "shared" or not declared_psd(kernels[-1]):
            return kernels[-1]
        held: list[Approximation] = []

        def evidence(kernel: Any) -> float:
            if held:
                forget(held.pop())
            clean = signal(kernel)
            held.append(self._approximated(clean, whole, self._length_scales(clean, whole.objects)))
            f, system, kernel = with_best_scales(*self._with_residual(held[0], clean, whole), kernel, whole)
            return posterior(f, noise_of(kernel, whole), whole.y, system).evidence

        best = max(kernels, key=evidence)
        if best is not kernels[-1]:
            forget(held.pop())
        return best

    def _with_best_scales(
        self, f: Factorization, system: Eigensystem, kernel: Any, whole: Observations
    ) -> tuple[Factorization, Eigensystem, Any]:
        return (f, system, kernel) if self.optimizer is None else with_best_scales(f, system, kernel, whole)

    def _posterior_of(self, f: Factorization, kernel: Any, whole: Observations, system: Eigensystem) -> Posterior:
        return posterior(f, noise_of(kernel, whole), whole.y, system)

    def _condition_exactly(self, kernel: Any, whole: Observations) -> None:
        factor = factored(covariance(kernel, whole))
        if factor is None:
            raise np.linalg.LinAlgError(
                f"The kernel, {kernel}, is not returning a positive definite matrix. Try gradually increasing the "
                "'alpha' parameter of your GaussianProcessRegressor estimator."
            )
        dual = cho_solve((factor, True), whole.y, check_finite=False)
        self.L_ = factor
        if self.optimizer is not None:
            _warn_of_no_noise(kernel, factor, dual, whole)
        self._set_results(kernel, whole, evidence_by(factor, dual, whole.y), dual)

    def _set_results(self, kernel: Any, whole: Observations, evidence: float, dual: Array) -> None:
        self.kernel_ = kernel
        self.log_marginal_likelihood_value_ = np.float64(evidence)
        self.noise_ = noise_of(kernel, whole)
        self.alpha_ = dual[:, 0] if self.y_train_.ndim == 1 else dual

    def _choose_correction(self, a: Approximation, kernel: Any, whole: Observations) -> str:
        clean = signal(kernel)
        exact = isinstance(self.route_, Exact)
        return choose_correction(
            a, kernel, whole, lambda a: self._with_residual(a, clean, whole), exact=exact, settle=self._scales_are_open
        )

    # -- predict ---------------------------------------------------------------------------------------------------

    @predicts_outside
    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Return the mean at X, and its standard deviation or covariance if asked for; of the prior before fit.

        As in scikit-learn the kernel's own noise is part of the deviation, alpha is not.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        if not hasattr(self, "X_train_"):
            return self._prior(self._checked(X, "no_validation", reset=False)[0], return_std, return_cov)
        X = self._new_objects(X)
        if return_cov:
            mean, spread = self._joint(X)
        else:
            mean, spread = self._latent(X, return_std)
            if return_std and (spread < 0.0).any():
                warn("Predicted variances smaller than 0. Setting those variances to 0.")
                spread = np.maximum(spread, 0.0)
        mean = squeezed(self._y_train_std * mean + self._y_train_mean)
        if not (return_std or return_cov):
            return mean
        spread = squeezed(np.multiply.outer(spread, np.atleast_1d(np.square(self._y_train_std))))
        return mean, np.sqrt(spread) if return_std else spread

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw functions from the process, (n_X, n_samples) or (n_X, n_targets, n_samples)."""
        rng = check_random_state(random_state)
        mean, cov = self.predict(X, return_cov=True)
        return draw_functions(
            mean, cov, n_samples, rng, "warn" if getattr(self, "_posterior", None) is None else "ignore"
        )

    def _dense_marginal(self, X: Any, cross: Array, variance: bool) -> tuple[Array, Array]:
        mean = cross @ self.alpha_.reshape(len(cross.T), -1)
        if not variance:
            return mean, np.empty(0)
        self._refuse_precomputed()
        V = solve_triangular(self.L_, cross.T, lower=True, check_finite=False)
        return mean, self.kernel_.diag(X) - np.einsum("ij,ij->j", V, V)

    def _joint(self, X: Any) -> tuple[Array, Array]:
        """Return the mean and the covariance, (m, m), of the normalised targets at X."""
        mean, _ = self._marginal(X, variance=False)
        if self._posterior is None:
            V = solve_triangular(self.L_, self._cross(X).T, lower=True, check_finite=False)
            self._refuse_precomputed()
            cov = self.kernel_(X) - V.T @ V
            return mean, cov if declared_psd(self.kernel_) else joint(cov, 0.0 * cov, np.maximum(np.diag(cov), 0.0))
        variances, clean = self._marginal(X, variance=True)[1], signal(self.kernel_)
        u = self._extended(X)
        if self._added is not None:  # not psd: what the bases lack is independent for each row
            u, _ = self._posterior.limited(u, clean.diag(X), self._added)
            return mean, joint(None, self._posterior.covariance(u)[1], variances)
        before, after = self._posterior.covariance(u)
        return mean, joint(clean(X) - before, after, variances)

    def _prior(self, X: Any, return_std: bool, return_cov: bool) -> Any:
        check_unused(self)
        kernel = self._default_kernel() if self.kernel is None else self.kernel
        kernel = kernel if self._has_sklearn_kernel else AsSklearn(self._bound(X))
        return prior(kernel, X, self.n_targets or 1, return_std, return_cov)


def _normalised(y: Array, n_targets: int | None, normalize: bool) -> tuple[Array, Array, Array]:
    """Return (y, its mean, its spread): y of mean 0 and variance 1 in each column if ``normalize``, else as it is."""
    seen = y.shape[1] if y.ndim > 1 else 1
    if n_targets is not None and seen != n_targets:
        raise InputError(
            f"The number of targets seen in `y` is different from the parameter `n_targets`. Got {seen} != {n_targets}."
        )
    shape = (y.shape[1],) if y.ndim == 2 else 1
    mean, spread = np.zeros(shape), np.ones(shape)
    if normalize:
        mean, spread = np.mean(y, axis=0), np.std(y, axis=0)
        tiny = 10 * np.finfo(np.float64).eps * np.maximum(np.abs(mean), 1e-300)
        spread = np.where(spread <= tiny, 1.0, spread)
    return np.asarray((y - mean) / spread), mean, spread


def _warn_of_no_noise(kernel: Any, factor: Array, dual: Array, whole: Observations) -> None:
    """Warn if a learned kernel without noise predicts rows that are left out no better than the prior mean.

    Without row i the error of its prediction is (H⁻¹ y)_i / (H⁻¹)_ii. Noise in the targets has no place but a length
    scale so small that each row stands alone.
    """
    n, noise = len(factor), noise_of(kernel, whole)
    has_term = np.max(noise - whole.noise) > 0.0  # a noise that was learned may be small
    if n < LEAST_LEFT_OUT or has_term or np.max(noise) > NO_NOISE * np.square(factor[-1]).sum():
        return
    some = stream(0, 64).choice(n, LEFT_OUT, replace=False)
    units = np.zeros((n, LEFT_OUT))
    units[some, np.arange(LEFT_OUT)] = 1.0
    inverse = np.square(solve_triangular(factor, units, lower=True, check_finite=False)).sum(0)
    errors, values = np.square(dual[some] / inverse[:, None]).sum(), np.square(whole.y[some]).sum()
    if errors > (1.0 - LEAST_EXPLAINED) * values:
        warn(
            f"The kernel learned, {kernel}, has no noise term, and of {LEFT_OUT} rows left out in turn the predictions "
            f"explain {max(0.0, 1.0 - errors / values):.0%}: new rows get the prior mean. If targets are noisy, add "
            "WhiteKernel() to the kernel, name the kernel (kernel='rbf' learns the noise too), or give alpha."
        )
