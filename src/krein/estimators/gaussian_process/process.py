"""The base class of Gaussian processes for regression and classification.

In: X and a kernel object. Out: the covariance of the signal, dense or factored, and the mean and variance of the latent
function at new objects. The two estimators add the likelihood of their targets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone
from sklearn.gaussian_process import kernels as sk

from krein.approximation import Approximation
from krein.arrays import Array
from krein.choosing import approximate
from krein.errors import IndefiniteError, InputError, one_of
from krein.estimators.base import KernelMachine, check_approximation
from krein.estimators.decision import seen_by
from krein.estimators.gaussian_process.evidence import (
    Observations,
    diagonal,
    evidence_of,
    exact_evidence,
    self_similarities,
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
)
from krein.estimators.gaussian_process.learning import warn_of_bounds
from krein.estimators.gaussian_process.posterior import Posterior, residual, scaled
from krein.estimators.gaussian_process.similarity_matrix import evaluated_once
from krein.estimators.route import Exact, Handed
from krein.factorization import Factorization
from krein.factorization.eigensystem import Eigensystem, eigensystem
from krein.kernels import Evaluator, Kernel, count_objects
from krein.kernels.collections import rows
from krein.kernels.names import changed, check_beside, kernel_for
from krein.kernels.precomputed import given_matrix
from krein.kernels.validation import check_new_objects, check_objects
from krein.kernels.vectors import warn_of_no_contrast
from krein.pieces.rows import RowPieces

__all__ = ["Process", "check_correction", "check_unused", "divided", "similarity_of"]

# A prediction holds PREDICTED_ENTRIES entries of k(X, X_train) or u(X) at a time.
PREDICTED_ENTRIES = 2**24
# The evidence of an approximation is differentiated by central differences with THETA_STEP in theta.
THETA_STEP = 1e-4
# These parameters belong to kernels given by name.
NAMED_PARAMETERS = ("gamma", "degree", "coef0", "kernel_params")


class Process(KernelMachine):
    """A Gaussian process with a kernel object of scikit-learn, or a krein kernel."""

    optimizer: Any
    n_restarts_optimizer: int
    copy_X_train: bool
    kernel_: Any
    log_marginal_likelihood_value_: Any

    # The regressor and the classifier each define these.
    _default_kernel: Callable[[], Any]  # the kernel object of kernel=None
    _learnable: Callable[[AsSklearn, Any, Array], Any]  # a krein kernel as a kernel object with parameters
    _whole: Callable[[], Observations]  # all rows and their targets
    _learn_kernel: Callable[[Any, Observations], Any]  # the kernel object with the parameters of most evidence
    _choose_correction: Callable[[Approximation, Any, Observations], str]  # the correction of an indefinite kernel
    _condition_exactly: Callable[[Any, Observations], None]  # conditions on y by a Cholesky factor of the covariance
    _posterior_of: Callable[[Factorization, Any, Observations, Eigensystem], Posterior]  # of a factored covariance
    _set_results: Callable[[Any, Observations, float, Array], None]  # sets the attributes of the fit
    _dense_marginal: Callable[[Any, Array, bool], tuple[Array, Array]]  # mean and variance from k(X, X_train)

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
    _unsaved: ClassVar[tuple[str, ...]] = ("_training", "_prepared")
    _evidence_of: ClassVar[Callable[..., Any]] = staticmethod(evidence_of)  # of a dense covariance and its targets

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._takes_sparse
        return tags

    @property
    def _has_sklearn_kernel(self) -> bool:
        return self.kernel is None or isinstance(self.kernel, sk.Kernel)

    @property
    def _takes_sparse(self) -> bool:
        if isinstance(self.kernel, str):
            return self.kernel != "precomputed"
        return isinstance(self.kernel, Kernel) and self.kernel.accepts_sparse

    def _vectors(self, X: Any) -> bool:
        if self._has_sklearn_kernel:
            return self.kernel is None or bool(self.kernel.requires_vector_input)
        return super()._vectors(X)

    def _checked(self, X: Any, y: Any, *, reset: bool, **checks: Any) -> tuple[Any, Any]:
        return super()._checked(X, y, reset=reset, **{"accept_sparse": "csr" if self._takes_sparse else False} | checks)

    def _only_scales_are_open(self, kernel: Any, whole: Observations) -> bool:
        """Return whether amplitude and noise are all there is to learn, and follow from the factorization."""
        return False

    def _with_best_scales(
        self, f: Factorization, system: Eigensystem, kernel: Any, whole: Observations
    ) -> tuple[Factorization, Eigensystem, Any]:
        """Return the factorization and the kernel with the amplitude and the noise of most evidence on all rows."""
        return f, system, kernel

    def _exact_on_some_rows(self, X: Any, kernel: Any, whole: Observations) -> Any:
        """Return an exact process on some of the rows if it is to be used instead, else None."""
        return None

    # -- fit -------------------------------------------------------------------------------------------------------

    def _learn_from(self, X: Any, y: Array) -> Any:
        """Learn the kernel's parameters, and condition on the targets."""
        objects, kernel = self._objects_and_kernel(X, y)
        self._decide(objects, similarity_of(kernel), scored=True)
        self.X_train_, self.y_train_ = self._training_rows(objects), y
        whole = self._whole()
        once = evaluated_once(kernel, self.X_train_, self)
        if once is not None:
            kernel, whole = once.kernel, replace(whole, objects=once.objects)
        if (part := self._exact_on_some_rows(X, kernel, whole)) is not None:
            return self._adopt(part)
        if self._psd:
            self._use_exactly(whole.objects, similarity_of(kernel))
        self.n_iter_, self.converged_ = 0, True
        self._scales_are_open = self._only_scales_are_open(kernel, whole)
        if self.optimizer is not None and kernel.n_dims > 0 and not self._scales_are_open:
            kernel = self._learn_kernel(kernel, whole)
        self._condition(kernel, whole)
        if once is not None:
            once.put_back(self)
        self._remember_training()
        if self._has_sklearn_kernel and self.optimizer is not None and kernel.n_dims > 0:
            warn_of_bounds(self.kernel_, whole.objects, self.converged_)
        elif kernel.requires_vector_input:
            warn_of_no_contrast(objects, similarity_of(self.kernel_))
        return self

    def _adopt(self, part: Any) -> Any:
        """Take over all that was fitted to some of the rows, but for the units of y."""
        kept = {*self.get_params(deep=False), "_y_train_mean", "_y_train_std", "n_features_in_", "feature_names_in_"}
        for name, value in vars(part).items():
            if name not in kept:
                setattr(self, name, value)
        return self

    @property
    def _psd(self) -> bool:
        """Whether the process is exact and its kernel psd, so that no eigenvalues are needed."""
        return isinstance(self.route_, Exact) and self.route_.psd

    def _training_rows(self, objects: Any) -> Any:
        """Return the rows that are kept, in double precision if the process is exact."""
        if isinstance(self.route_, Exact) and getattr(objects, "dtype", None) == np.float32:
            return objects.astype(np.float64)
        return objects.copy() if self.copy_X_train and hasattr(objects, "copy") else objects

    def _remember_training(self) -> None:
        """Keep the learned kernel without noise, from which ``approximation_`` is built on first access."""
        clean = signal(self.kernel_)
        scale = self._length_scales(clean, self.X_train_)
        self._training = divided(self.X_train_, scale), translate(clean, scale)
        if not self._precomputed:
            self._kernel = self._training[1]
        self._prepared: Any = None

    def _objects_and_kernel(self, X: Any, y: Array) -> tuple[Any, Any]:
        """Return the objects and the kernel object that is to be learned."""
        if self.approximation is not None:
            return X, self._learnable(AsSklearn(check_approximation(self.approximation).kernel, "fixed"), X, y)
        if self._has_sklearn_kernel:
            return X, clone(self.kernel) if self.kernel is not None else self._default_kernel()
        if self._precomputed:
            objects: Any = np.arange(X.shape[0])
            return objects, self._learnable(AsSklearn(given_matrix(X)), objects, y)
        kernel = self._bound(X)
        objects = X if kernel.compares == "vectors" else check_objects(X, kernel)[0]
        return objects, self._learnable(AsSklearn(kernel), objects, y)

    def _bound(self, X: Any) -> Kernel:
        return kernel_for(
            self.kernel, X, gamma=self.gamma, degree=self.degree, coef0=self.coef0, params=self.kernel_params
        )

    def _condition(self, kernel: Any, whole: Observations) -> None:
        """Condition on y: by a Cholesky factor of the covariance, or by a factorization of the kernel matrix."""
        self._posterior: Posterior | None = None
        if self._psd:
            self._condition_exactly(kernel, whole)
            return
        clean = signal(kernel)
        self._scale = self._length_scales(clean, whole.objects)
        found = self._approximated(clean, whole, self._scale)
        a = self._settle(found, lambda a: self._choose_correction(a, kernel, whole))
        if isinstance(self.route_, Exact) and self.correction_ == "none":
            self._forget_matrix()
            self._condition_exactly(kernel, whole)
        else:
            self._condition_factored(a, kernel, whole)

    def _condition_factored(self, a: Approximation, kernel: Any, whole: Observations) -> None:
        if self.n_negative_ and self.correction_ == "none":
            raise IndefiniteError(
                f"The evidence needs a psd matrix, but {a.kernel!r} gave {self.n_negative_} negative eigenvalues. Pass "
                'correction="flip" or "clip".'
            )
        f, system = self._with_residual(a, signal(kernel), whole)
        f, system, kernel = self._with_best_scales(f, system, kernel, whole)
        self._posterior = self._posterior_of(f, kernel, whole, system)
        self._rest = 0.0 if a.factorization.shift else f.shift
        self._added: float | None = None  # the most that the correction of an indefinite kernel adds to k(x, x)
        if not declared_psd(kernel) or isinstance(self.route_, Exact):
            held = f.diagonal(system.diagonal_core(system.values))
            self._added = max(0.0, float(np.max(held - diagonal(signal(kernel), whole))))
        self._set_results(kernel, whole, self._posterior.evidence, self._posterior.dual)

    def _length_scales(self, clean: Any, objects: Any) -> Array | None:
        return None if isinstance(self.route_, Handed) else scales(clean, objects)

    def _approximated(self, clean: Any, whole: Observations, scale: Array | None) -> Approximation:
        """Return the approximation of the signal, on columns divided by its length scales, with blocks chosen for y."""
        kernel = translate(clean, scale)
        if isinstance(self.route_, Handed):  # its kernel has another amplitude, or none
            handed = self.route_.approximation.kernel
            kernel = self._bound(whole.objects) if isinstance(self.kernel, Kernel) else handed
        return self._build(divided(whole.objects, scale), kernel, self._chooser(whole.y))

    def _with_residual(self, a: Approximation, clean: Any, whole: Observations) -> tuple[Factorization, Eigensystem]:
        """Return the signal's factorization and eigenvalues; the shift is the mean of what it lacks of k(x, x)."""
        f, system = a.factorization, eigensystem(a.factorization.core, a.factorization.ranks)
        own = diagonal(clean, whole)
        if isinstance(self.route_, Handed):
            f, system = scaled(
                f, system, float(np.mean(own) / np.mean(self_similarities(AsSklearn(a.kernel), whole.objects)))
            )
        held = f.diagonal(system.diagonal_core(system.values)) + f.shift
        return replace(f, shift=f.shift + max(0.0, float(np.mean(own - held)))), system

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> float | tuple[float, Array]:
        """Return log p(y) at theta, by default that of ``kernel_``, and its gradient if asked for.

        It is exact if the process is. Otherwise the matrix is approximated again at theta, with the random numbers of
        the fit, and the gradient is computed by central differences.
        """
        if theta is None:
            if eval_gradient:
                raise InputError("Gradient can only be evaluated for theta!=None")
            return self.log_marginal_likelihood_value_  # type: ignore[no-any-return]
        theta = np.asarray(theta, dtype=np.float64)
        same = np.array_equal(theta, self.kernel_.theta)
        kernel = self.kernel_.clone_with_theta(theta)
        if not clone_kernel:
            self.kernel_, self._prepared = kernel, None
        whole = self._whole()
        if isinstance(self.route_, Exact):
            how = None if self.correction_ == "none" else self.correction_
            value, slopes = exact_evidence(kernel, whole, how, eval_gradient, self._evidence_of)
            return (np.float64(value), slopes) if eval_gradient else np.float64(value)
        value = self.log_marginal_likelihood_value_ if same else self._evidence_at(kernel, whole)
        if not eval_gradient:
            return value
        steps = THETA_STEP * np.eye(len(theta))
        ends = [[self._evidence_at(kernel.clone_with_theta(theta + s), whole) for s in (h, -h)] for h in steps]
        return value, np.array([(up - down) / (2.0 * THETA_STEP) for up, down in ends])

    def _evidence_at(self, kernel: Any, whole: Observations) -> float:
        clean = signal(kernel)
        handed = isinstance(self.route_, Handed)
        a = self._uncorrected if handed else _alike(self, translate(clean, self._scale), whole)
        a = a if self.correction_ == "none" else a.corrected(self.correction_)
        f, system = self._with_residual(a, clean, whole)
        return np.float64(self._posterior_of(f, kernel, whole, system).evidence)

    # -- the latent function at new objects ------------------------------------------------------------------------

    def _latent(self, X: Any, variance: bool) -> tuple[Array, Array]:
        """Return the mean, (m, p), and the variance, (m,), computed for some objects at a time."""
        width = count_objects(self.X_train_) if self._posterior is None else max(1, len(self._posterior.inner))
        n, step = count_objects(X), max(1, PREDICTED_ENTRIES // width)
        parts = [self._marginal(rows(X, slice(i, i + step)), variance) for i in range(0, n, step)]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def _marginal(self, X: Any, variance: bool) -> tuple[Array, Array]:
        """Return the mean, (m, p), and the variance, (m,), at X."""
        if self._posterior is None:
            return self._dense_marginal(X, self._cross(X), variance)
        u = self._extended(X)
        mean = u @ self._posterior.inner
        if not variance:
            return mean, np.empty(0)
        clean, noise = self._self(X)
        u, own = (u, clean) if self._added is None else self._posterior.limited(u, clean, self._added)
        before, after = self._posterior.explained(u)
        return mean, residual(own - before, self._rest) + after + noise

    def _new_objects(self, X: Any) -> Any:
        """Return objects to predict in the form that the kernel compares."""
        X = self._checked(X, "no_validation", reset=False)[0]
        if isinstance(self.kernel, Kernel) and self.kernel.compares != "vectors":
            return check_new_objects(X, self.X_train_, self.kernel)
        return X

    def _extended(self, X: Any) -> Any:
        if self._precomputed:  # X holds similarities to the training objects
            given = given_rows(self.kernel_, X)
            return replace(self.approximation_, kernel=given).extend(given.new)
        a, objects = seen_by(self.approximation_, divided(X, self._scale))
        return a.extend(objects)

    def _cross(self, X: Any) -> Array:
        """Return k(X, X_train) of an exact process."""
        if self._precomputed:
            return np.asarray(given_rows(self.kernel_, X).R)
        leaf = leaf_of(self.kernel_)
        if leaf is None:
            return np.asarray(signal(self.kernel_)(X, self.X_train_))
        if getattr(self, "_prepared", None) is None:  # computed once for all predictions
            self._prepared = Evaluator(leaf.kernel).against(self.X_train_)
        amplitude = amplitude_of(self.kernel_)
        return np.concatenate(
            [np.multiply(block, amplitude, dtype=np.float64) for _, block in self._prepared.chunks(X)]
        )

    def _self(self, X: Any) -> tuple[Array, Any]:
        self._refuse_precomputed()
        return _own_and_noise(self.kernel_, X)

    def _refuse_precomputed(self) -> None:
        if self._precomputed:
            raise InputError("A precomputed matrix does not say how similar new objects are to themselves.")


def similarity_of(kernel: Any) -> Kernel:
    """Return the krein kernel by which the route is decided: the signal without its amplitude."""
    leaf = leaf_of(kernel)
    return leaf.kernel if leaf is not None else translate(signal(kernel), None)


def check_correction(how: str, known: tuple[str, ...]) -> None:
    """Raise InputError for a correction that a process does not have, and say why there is no shift."""
    if how == "shift":
        raise InputError(
            "correction='shift' is none for a Gaussian process: what it adds to the diagonal is noise, which is there "
            "already, and new objects get nothing of it, so their variances would stay negative. Use 'clip' or 'flip'."
        )
    one_of("correction", how, known)


def check_unused(machine: Any) -> None:
    """Raise InputError for parameters of named kernels that were given with a kernel object, which has its own."""
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


def divided(objects: Any, scale: Array | None) -> Any:
    """Return the rows with each column divided by its scale."""
    if isinstance(objects, RowPieces):
        return objects if scale is None else objects / scale
    return objects if scale is None else np.asarray(objects / scale, dtype=objects.dtype)


def _own_and_noise(kernel: Any, X: Any) -> tuple[Array, Any]:
    """Return k(x, x) without noise, and the kernel's noise."""
    clean, level = signal(kernel).diag(X), noise_level(kernel)
    return clean, kernel.diag(X) - clean if level is None else level


def _alike(machine: Any, kernel: Kernel, whole: Observations) -> Approximation:
    """Return the approximation of a fitted machine at other parameters, with the same blocks, ranks and seed.

    So two evidences differ by their parameters alone, and not by random numbers.
    """
    known, choice = machine._uncorrected, machine.selection_
    return approximate(
        divided(whole.objects, machine._scale), kernel, n_blocks=known.n_blocks, rank=max(known.factorization.ranks),
        coupling=machine.coupling, drop=machine.drop if choice is None else choice.drop,
        dtype=known.factorization.dtype, n_jobs=machine.n_jobs, random_state=known.seed % 2**32,
    )  # fmt: skip
