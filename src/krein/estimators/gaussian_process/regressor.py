"""Gaussian process regression: exact by a Cholesky factor as in scikit-learn, or on a factored kernel matrix.

The kernel's parameters and the noise maximise the evidence (`evidence`). An exact process then needs one Cholesky
factor of the covariance. An approximated one is linear algebra in the core of the factorization (`posterior`). What
the approximation leaves of k(x, x) is not lost: its mean is added to the noise when y is explained, and the predictive
variance uses k(x, x) itself, or the process would be overconfident.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from sklearn.base import MultiOutputMixin, RegressorMixin, clone
from sklearn.gaussian_process import kernels as sk
from sklearn.utils import check_array, check_random_state

from krein.approximation import Approximation
from krein.arrays import Array, seed_from, stream
from krein.choosing import approximate
from krein.errors import IndefiniteError, InputError, one_of, warn, whole_number
from krein.estimators.base import KernelMachine, check_approximation
from krein.estimators.cache import forget
from krein.estimators.decision import seen_by
from krein.estimators.gaussian_process.evidence import (
    Group,
    covariance,
    data_of,
    diagonal,
    exact_evidence,
    judged,
    learn,
    noise_of,
    rescaled,
    settled_later,
)
from krein.estimators.gaussian_process.kernels import (
    AsSklearn,
    amplitude_of,
    declared_psd,
    given_rows,
    leaf_of,
    noise_level,
    scales,
    signal,
    translate,
    with_noise,
)
from krein.estimators.gaussian_process.posterior import (
    Posterior,
    drawn,
    evidence_by,
    factored,
    joint,
    posterior,
    prior,
    residual,
    scaled,
    squeezed,
)
from krein.estimators.gaussian_process.similarity_matrix import evaluated
from krein.estimators.route import ByScore, Exact, Handed, given_shape
from krein.factorization import Factorization
from krein.factorization.eigensystem import Eigensystem, eigensystem
from krein.kernels import Evaluator, Kernel, count_objects, is_vectors, take
from krein.kernels.collections import rows
from krein.kernels.names import changed, check_beside, kernel_for
from krein.kernels.precomputed import given_matrix
from krein.kernels.validation import check_new_objects, check_objects, takes_vectors
from krein.policy import check_policy

__all__ = ["GaussianProcessRegressor"]

# A prediction holds PREDICTED_ENTRIES entries of k(X, X_train) or u(X) at a time.
PREDICTED_ENTRIES = 2**24
# The evidence of an approximation is differentiated by central differences with THETA_STEP in theta.
THETA_STEP = 1e-4
# An exact process on some rows is compared with an approximation of all rows on HELD_OUT_ROWS other rows. At least
# LEAST_HELD_OUT_ROWS are needed for that.
HELD_OUT_ROWS = 3000
LEAST_HELD_OUT_ROWS = 100
# These parameters belong to kernels given by name.
NAMED_PARAMETERS = ("gamma", "degree", "coef0", "kernel_params")


@dataclass(eq=False, repr=False)
class GaussianProcessRegressor(MultiOutputMixin, RegressorMixin, KernelMachine):  # type: ignore[misc]
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
        ``amplitude * kernel + WhiteKernel``. Amplitude, noise and the kernel's gamma, rho or factors are learned,
        starting from the given values. With ``optimizer=None`` the kernel is used unchanged.
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
    n_blocks, rank, coupling, drop, max_error, max_memory, dtype, policy, random_state, n_jobs, verbose
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
    """

    kernel: Any = None
    _: KW_ONLY
    alpha: Any = 1e-10
    optimizer: Any = "fmin_l_bfgs_b"
    n_restarts_optimizer: int = 0
    normalize_y: bool = False
    copy_X_train: bool = True
    n_targets: int | None = None

    _corrections: ClassVar[tuple[str, ...]] = ("auto", "none", "clip", "flip", "square")
    _of_route: ClassVar[tuple[str, ...]] = (
        "_uncorrected",
        "_on_demand",
        "L_",
        "_posterior",
        "_rest",
        "_added",
        "_scale",
    )
    _limit: ClassVar[str] = "process_rows"
    _unsaved: ClassVar[tuple[str, ...]] = ("_training", "_prepared")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.sparse = self._takes_sparse
        return tags

    @property
    def _speaks_sklearn(self) -> bool:
        return self.kernel is None or isinstance(self.kernel, sk.Kernel)

    @property
    def _takes_sparse(self) -> bool:
        if isinstance(self.kernel, str):
            return self.kernel != "precomputed"
        return isinstance(self.kernel, Kernel) and self.kernel.accepts_sparse

    def _vectors(self, X: Any) -> bool:
        if self._speaks_sklearn:
            return self.kernel is None or bool(self.kernel.requires_vector_input)
        return super()._vectors(X)

    def _checked(self, X: Any, y: Any, *, reset: bool, **checks: Any) -> tuple[Any, Any]:
        return super()._checked(X, y, reset=reset, **{"accept_sparse": "csr" if self._takes_sparse else False} | checks)

    # -- fit -------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> GaussianProcessRegressor:
        """Learn the kernel's parameters and the noise, and condition on y of shape (n,) or (n, n_targets)."""
        _check_correction(self.correction, self._corrections)
        self._check_shared()
        _check_unused(self)
        whole_number("n_restarts_optimizer", self.n_restarts_optimizer, 0)
        X, y = self._checked(X, y, reset=True, multi_output=True, y_numeric=True)
        y = check_array(y, ensure_2d=False, dtype=np.float64, copy=True, input_name="y")
        y, self._y_train_mean, self._y_train_std = _normalised(y, self.n_targets, self.normalize_y)
        objects, kernel = self._objects_and_kernel(X, y)
        self._decide(objects, _similarity_of(kernel), scored=True)
        self.X_train_, self.y_train_ = self._training_rows(objects), y
        whole = data_of(self)
        once = evaluated(kernel, self.X_train_, self)
        if once is not None:
            kernel, whole = once.kernel, replace(whole, objects=once.objects)
        if (part := self._part(X, kernel, whole)) is not None:
            return self._adopt(part)
        if self._psd:
            self._use_exactly(whole.objects, _similarity_of(kernel))
        self.n_iter_, self.converged_ = 0, True
        self._settled = self.optimizer == "fmin_l_bfgs_b" and settled_later(kernel, whole, self.route_)
        if self.optimizer is not None and kernel.n_dims > 0 and not self._settled:
            kernel = self._learned(kernel, whole)
        self._condition(kernel, whole)
        if once is not None:
            once.put_back(self)
        self._remember_training()
        if self._speaks_sklearn and self.optimizer is not None and kernel.n_dims > 0:
            self.kernel_._check_bounds_params()
        return self

    def _part(self, X: Any, kernel: Any, whole: Group) -> GaussianProcessRegressor | None:
        """An exact process on some of the rows; None where an approximation of all predicts better, or was asked for.

        It has ``policy.process_rows`` rows drawn at random. Others are held out to score it; the approximation has the
        score of the best shape, at the parameters learned for the exact process.
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
        scale = part._units(signal(part.kernel_), part.X_train_)
        choice = self._chooser(whole.y)(_divided(X, scale), part._training[1], seed=seed, verbose=self.verbose)
        best = max((t.quality[0] for t in choice.tried), default=-np.inf)
        if score < best:
            return None
        part.selection_ = choice
        why = f"an exact process on {rows} of {n} rows has R² {score:.4f} on others, the best approximation {best:.4f}"
        part.route_ = Exact(True, why)
        return part

    def _adopt(self, part: GaussianProcessRegressor) -> GaussianProcessRegressor:
        """Become the process that was fitted to a part of the rows, in the units of y."""
        kept = {*self.get_params(deep=False), "_y_train_mean", "_y_train_std", "n_features_in_", "feature_names_in_"}
        for name, value in vars(part).items():
            if name not in kept:
                setattr(self, name, value)
        return self

    @property
    def _psd(self) -> bool:
        """Whether the process is exact and its kernel psd: then no eigenvalue is ever computed."""
        return isinstance(self.route_, Exact) and self.route_.psd

    def _training_rows(self, objects: Any) -> Any:
        """What is kept of X; in double precision where the process is exact, as its covariance is."""
        if isinstance(self.route_, Exact) and getattr(objects, "dtype", None) == np.float32:
            return objects.astype(np.float64)
        return objects.copy() if self.copy_X_train and hasattr(objects, "copy") else objects

    def _remember_training(self) -> None:
        """What ``approximation_`` is built of if it is asked for: the kernel as it was learned, without noise."""
        clean = signal(self.kernel_)
        scale = self._units(clean, self.X_train_)
        self._training = _divided(self.X_train_, scale), translate(clean, scale)
        if not self._precomputed:
            self._kernel = self._training[1]
        self._prepared: Any = None

    def _learned(self, start: Any, whole: Group) -> Any:
        """The kernel with the parameters of most evidence; those for a flip only if the fit will use a flip."""
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
            a = self._approximated(clean, whole, self._units(clean, whole.objects))
            if self._judged(a, kernel, whole) == "flip":
                break
        return kernel

    def _objects_and_kernel(self, X: Any, y: Array) -> tuple[Any, Any]:
        """Return the objects and the kernel object that is to be learned."""
        if self.approximation is not None:
            return X, self._learnable(AsSklearn(check_approximation(self.approximation).kernel, "fixed"), X, y)
        if self._speaks_sklearn:
            return X, clone(self.kernel) if self.kernel is not None else sk.ConstantKernel() * sk.RBF()
        if self._precomputed:
            objects: Any = np.arange(X.shape[0])
            return objects, self._learnable(AsSklearn(given_matrix(X)), objects, y)
        kernel = self._bound(X)
        objects = X if takes_vectors(kernel) else check_objects(X, kernel)[0]
        return objects, self._learnable(AsSklearn(kernel), objects, y)

    def _learnable(self, kernel: AsSklearn, objects: Any, y: Array) -> Any:
        return kernel if self.optimizer is None else with_noise(kernel, objects, float(np.mean(np.square(y))) or 1.0)

    def _bound(self, X: Any) -> Kernel:
        return kernel_for(
            self.kernel, X, gamma=self.gamma, degree=self.degree, coef0=self.coef0, params=self.kernel_params
        )

    # -- conditioning on y -----------------------------------------------------------------------------------------

    def _better(self, kernels: list[Any], whole: Group) -> Any:
        """The kernel whose approximation has more evidence on all rows, amplitude and noise settled for each.

        One approximation is held at a time; the best is as a rule the last, and then remembered.
        """
        if len(kernels) == 1 or self.coupling != "shared" or not declared_psd(kernels[-1]):
            return kernels[-1]
        held: list[Approximation] = []

        def evidence(kernel: Any) -> float:
            if held:
                forget(held.pop())
            clean = signal(kernel)
            held.append(self._approximated(clean, whole, self._units(clean, whole.objects)))
            f, system, kernel = rescaled(*self._completed(held[0], clean, whole), kernel, whole)
            return posterior(f, noise_of(kernel, whole), whole.y, system).evidence

        best = max(kernels, key=evidence)
        if best is not kernels[-1]:
            forget(held.pop())
        return best

    def _condition(self, kernel: Any, whole: Group) -> None:
        """Condition on y: by a Cholesky factor of the covariance, or through a factorization of the kernel matrix."""
        self._posterior: Posterior | None = None
        if self._psd:
            self._condition_exactly(kernel, whole)
            return
        clean = signal(kernel)
        self._scale = self._units(clean, whole.objects)
        found = self._approximated(clean, whole, self._scale)
        a = self._settle(found, lambda a: self._judged(a, kernel, whole))
        if isinstance(self.route_, Exact) and self.correction_ == "none":
            self._forget_matrix()
            self._condition_exactly(kernel, whole)
        else:
            self._condition_factored(a, kernel, whole)

    def _condition_exactly(self, kernel: Any, whole: Group) -> None:
        factor = factored(covariance(kernel, whole))
        if factor is None:
            raise np.linalg.LinAlgError(
                f"The kernel, {kernel}, is not returning a positive definite matrix. Try gradually increasing the "
                "'alpha' parameter of your GaussianProcessRegressor estimator."
            )
        dual = cho_solve((factor, True), whole.y, check_finite=False)
        self.L_ = factor
        self._conclude(kernel, whole, evidence_by(factor, dual, whole.y), dual)

    def _condition_factored(self, a: Approximation, kernel: Any, whole: Group) -> None:
        if self.n_negative_ and self.correction_ == "none":
            raise IndefiniteError(
                f"The evidence needs a psd matrix, but {a.kernel!r} gave {self.n_negative_} negative eigenvalues. Pass "
                'correction="flip" or "clip".'
            )
        f, system = self._completed(a, signal(kernel), whole)
        if self.optimizer is not None:
            f, system, kernel = rescaled(f, system, kernel, whole)
        self._posterior = posterior(f, noise_of(kernel, whole), whole.y, system)
        self._rest = 0.0 if a.factorization.shift else f.shift
        self._added: float | None = None  # to k(x, x), at most, by the correction of an indefinite kernel
        if not declared_psd(kernel) or isinstance(self.route_, Exact):
            held = f.diagonal(system.diagonal_core(system.values))
            self._added = max(0.0, float(np.max(held - diagonal(signal(kernel), whole))))
        self._conclude(kernel, whole, self._posterior.evidence, self._posterior.dual)

    def _conclude(self, kernel: Any, whole: Group, evidence: float, dual: Array) -> None:
        self.kernel_ = kernel
        self.log_marginal_likelihood_value_ = np.float64(evidence)
        self.noise_ = noise_of(kernel, whole)
        self.alpha_ = dual[:, 0] if self.y_train_.ndim == 1 else dual

    def _units(self, clean: Any, objects: Any) -> Array | None:
        return None if isinstance(self.route_, Handed) else scales(clean, objects)

    def _approximated(self, clean: Any, whole: Group, scale: Array | None) -> Approximation:
        """The approximation of the signal, over columns in units of its length scales; its blocks chosen for y."""
        kernel = translate(clean, scale)
        if isinstance(self.route_, Handed):  # it has no amplitude, or another
            handed = self.route_.approximation.kernel
            kernel = self._bound(whole.objects) if isinstance(self.kernel, Kernel) else handed
        return self._build(_divided(whole.objects, scale), kernel, self._chooser(whole.y))

    def _completed(self, a: Approximation, clean: Any, whole: Group) -> tuple[Factorization, Eigensystem]:
        """The signal's factorization, what it lacks of k(x, x) on average in its shift, and its eigenvalues."""
        f, system = a.factorization, eigensystem(a.factorization.core, a.factorization.ranks)
        own = diagonal(clean, whole)
        if isinstance(self.route_, Handed):
            f, system = scaled(f, system, float(np.mean(own) / np.mean(AsSklearn(a.kernel).diag(whole.objects))))
        held = f.diagonal(system.diagonal_core(system.values)) + f.shift
        return replace(f, shift=f.shift + max(0.0, float(np.mean(own - held)))), system

    def _judged(self, a: Approximation, kernel: Any, whole: Group) -> str:
        clean = signal(kernel)
        exact = isinstance(self.route_, Exact)
        return judged(a, kernel, whole, lambda a: self._completed(a, clean, whole), exact=exact, settle=self._settled)

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, Array]:
        """Return log p(y) at theta, and its gradient if asked for; without theta that of ``kernel_``.

        Of an exact process it is exact, on all rows. Else the matrix is approximated anew at theta, with the random
        numbers of the fit, and the gradient is by central differences.
        """
        if theta is None:
            if eval_gradient:
                raise InputError("Gradient can only be evaluated for theta!=None")
            return self.log_marginal_likelihood_value_
        theta = np.asarray(theta, dtype=np.float64)
        same = np.array_equal(theta, self.kernel_.theta)
        kernel = self.kernel_.clone_with_theta(theta)
        if not clone_kernel:
            self.kernel_, self._prepared = kernel, None
        whole = data_of(self)
        if isinstance(self.route_, Exact):
            how = None if self.correction_ == "none" else self.correction_
            value, slopes = exact_evidence(kernel, whole, how, eval_gradient)
            return (np.float64(value), slopes) if eval_gradient else np.float64(value)
        value = self.log_marginal_likelihood_value_ if same else self._evidence_at(kernel, whole)
        if not eval_gradient:
            return value
        steps = THETA_STEP * np.eye(len(theta))
        ends = [[self._evidence_at(kernel.clone_with_theta(theta + s), whole) for s in (h, -h)] for h in steps]
        return value, np.array([(up - down) / (2.0 * THETA_STEP) for up, down in ends])

    def _evidence_at(self, kernel: Any, whole: Group) -> float:
        clean = signal(kernel)
        handed = isinstance(self.route_, Handed)
        a = self._uncorrected if handed else _alike(self, translate(clean, self._scale), whole)
        a = a if self.correction_ == "none" else a.corrected(self.correction_)
        f, system = self._completed(a, clean, whole)
        return np.float64(posterior(f, noise_of(kernel, whole), whole.y, system).evidence)

    # -- predict ---------------------------------------------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Return the mean at X, and its standard deviation or covariance if asked for; of the prior before fit.

        As in scikit-learn the kernel's own noise is part of the deviation, alpha is not.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        X = self._checked(X, "no_validation", reset=False)[0]
        if not hasattr(self, "X_train_"):
            return self._prior(X, return_std, return_cov)
        if isinstance(self.kernel, Kernel) and not takes_vectors(self.kernel):
            X = check_new_objects(X, self.X_train_, self.kernel)
        if return_cov:
            mean, spread = self._joint(X)
        else:
            width = count_objects(self.X_train_) if self._posterior is None else max(1, len(self._posterior.inner))
            n, step = count_objects(X), max(1, PREDICTED_ENTRIES // width)
            parts = [self._marginal(rows(X, slice(i, i + step)), return_std) for i in range(0, n, step)]
            mean, spread = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
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
        return drawn(mean, cov, n_samples, rng, "warn" if getattr(self, "_posterior", None) is None else "ignore")

    def _marginal(self, X: Any, variance: bool) -> tuple[Array, Array]:
        """The mean, (m, p), and the variance at X, (m,), of the normalised targets."""
        if self._posterior is None:
            cross = self._cross(X)
            mean = cross @ self.alpha_.reshape(len(cross.T), -1)
            if not variance:
                return mean, np.empty(0)
            self._check_self()
            V = solve_triangular(self.L_, cross.T, lower=True, check_finite=False)
            return mean, self.kernel_.diag(X) - np.einsum("ij,ij->j", V, V)
        u = self._extended(X)
        mean = u @ self._posterior.inner
        if not variance:
            return mean, np.empty(0)
        clean, noise = self._self(X)
        u, own = (u, clean) if self._added is None else self._posterior.fitting(u, clean, self._added)
        before, after = self._posterior.explained(u)
        return mean, residual(own - before, self._rest) + after + noise

    def _joint(self, X: Any) -> tuple[Array, Array]:
        """The mean and the covariance at X, (m, m), of the normalised targets."""
        mean, _ = self._marginal(X, variance=False)
        if self._posterior is None:
            V = solve_triangular(self.L_, self._cross(X).T, lower=True, check_finite=False)
            self._check_self()
            cov = self.kernel_(X) - V.T @ V
            return mean, cov if declared_psd(self.kernel_) else joint(cov, 0.0 * cov, np.maximum(np.diag(cov), 0.0))
        variances, clean = self._marginal(X, variance=True)[1], signal(self.kernel_)
        u = self._extended(X)
        if self._added is not None:  # of a kernel that is not psd: the rest belongs to each row alone
            u, _ = self._posterior.fitting(u, clean.diag(X), self._added)
            return mean, joint(None, self._posterior.covariance(u)[1], variances)
        before, after = self._posterior.covariance(u)
        return mean, joint(clean(X) - before, after, variances)

    def _extended(self, X: Any) -> Any:
        if self._precomputed:  # rows against the fit's objects, which its own kernel does not know
            given = given_rows(self.kernel_, X)
            return replace(self.approximation_, kernel=given).extend(given.new)
        a, objects = seen_by(self.approximation_, _divided(X, self._scale))
        return a.extend(objects)

    def _cross(self, X: Any) -> Array:
        """k(X, X_train), of an exact process."""
        if self._precomputed:
            return np.asarray(given_rows(self.kernel_, X).R)
        leaf = leaf_of(self.kernel_)
        if leaf is None:
            return np.asarray(signal(self.kernel_)(X, self.X_train_))
        if getattr(self, "_prepared", None) is None:  # what the kernel needs of X_train_, computed once
            self._prepared = Evaluator(leaf.kernel).against(self.X_train_)
        amplitude = amplitude_of(self.kernel_)
        return np.concatenate(
            [np.multiply(block, amplitude, dtype=np.float64) for _, block in self._prepared.chunks(X)]
        )

    def _self(self, X: Any) -> tuple[Array, Any]:
        self._check_self()
        return _own_and_noise(self.kernel_, X)

    def _check_self(self) -> None:
        if self._precomputed:
            raise InputError("A precomputed matrix does not say how similar new objects are to themselves.")

    def _prior(self, X: Any, return_std: bool, return_cov: bool) -> Any:
        _check_unused(self)
        kernel = sk.ConstantKernel() * sk.RBF() if self.kernel is None else self.kernel
        kernel = kernel if self._speaks_sklearn else AsSklearn(self._bound(X))
        return prior(kernel, X, self.n_targets or 1, return_std, return_cov)


def _similarity_of(kernel: Any) -> Kernel:
    """The krein kernel that decides the route: the signal, without an amplitude that changes nothing about it."""
    leaf = leaf_of(kernel)
    return leaf.kernel if leaf is not None else translate(signal(kernel), None)


def _check_correction(how: str, known: tuple[str, ...]) -> None:
    """Refuse a correction the process does not have, and say why there is no shift."""
    if how == "shift":
        raise InputError(
            "correction='shift' is none for a Gaussian process: what it adds to the diagonal is noise, which is there "
            "already, and new objects get nothing of it, so their variances would stay negative. Use 'clip' or 'flip'."
        )
    one_of("correction", how, known)


def _check_unused(machine: Any) -> None:
    """Refuse parameters of named kernels beside a kernel object, which has its own."""
    check_beside(machine, machine.kernel)
    if not (machine.kernel is None or isinstance(machine.kernel, sk.Kernel)):
        return
    given = changed(machine, NAMED_PARAMETERS)
    if given:
        what = "kernel=None, 1.0 * RBF(1.0)," if machine.kernel is None else f"The kernel {machine.kernel!r}"
        raise InputError(
            f"{what} has parameters of its own and takes no {', '.join(given)}. Give them to the kernel object, or "
            'name a kernel: kernel="rbf" has a gamma.'
        )


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


def _divided(objects: Any, scale: Array | None) -> Any:
    """Columns in units of their scales."""
    return objects if scale is None else np.asarray(objects / scale, dtype=objects.dtype)


def _own_and_noise(kernel: Any, X: Any) -> tuple[Array, Any]:
    """k(x, x) without noise, and the kernel's noise; objects are compared with themselves once if that will do."""
    clean, level = signal(kernel).diag(X), noise_level(kernel)
    return clean, kernel.diag(X) - clean if level is None else level


def _alike(machine: Any, kernel: Kernel, whole: Group) -> Approximation:
    """The approximation of a fitted machine at other parameters, with the blocks, ranks and random numbers of its own.

    Two evidences differ by their parameters then, and not by what was drawn for them.
    """
    known, choice = machine._uncorrected, machine.selection_
    return approximate(
        _divided(whole.objects, machine._scale), kernel, n_blocks=known.n_blocks, rank=max(known.factorization.ranks),
        coupling=machine.coupling, drop=machine.drop if choice is None else choice.drop,
        dtype=known.factorization.dtype, n_jobs=machine.n_jobs, random_state=known.seed % 2**32,
    )  # fmt: skip
