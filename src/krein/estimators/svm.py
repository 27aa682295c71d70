"""Support vector classification with scikit-learn's contract, on the factored matrix."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from krein.arrays import Array, Indices
from krein.errors import InputError, one_of
from krein.estimators.base import check_weights
from krein.estimators.dual_machine import DualMachine, check_C
from krein.estimators.expansion import KernelExpansion, PairExpansion
from krein.estimators.probabilities import class_probabilities, held_out_values, sigmoids
from krein.estimators.route import Exact
from krein.estimators.votes import by_pair, class_tasks, confidences, pair_coefficients, winners
from krein.kernels import Kernel, count_objects
from krein.solvers.exact import solve_classes

__all__ = ["SVC"]


def _has_probabilities(machine: SVC) -> bool:
    if not machine.probability:
        raise AttributeError("predict_proba is not available when probability=False")
    return True


@dataclass(eq=False, repr=False)
class SVC(ClassifierMixin, DualMachine):  # type: ignore[misc]
    """C-support vector classification on a factored kernel matrix; exact where the rows are few.

    scikit-learn's `sklearn.svm.SVC` with the n x n matrix replaced by U M Uᵀ + s I: the same parameters, attributes and
    decision function, in memory n k + r² instead of n². Up to 2000 rows, and up to 50,000 of a psd kernel, it is
    scikit-learn's machine (``policy``).

    Parameters
    ----------
    C : float, default=1.0
        What a row may cost at most, times its sample and class weight.
    class_weight : dict, "balanced" or None
        Factors of C by class; "balanced" makes all classes weigh the same, sample weights counted.
    decision_function_shape : "ovr" or "ovo"
        Of more than two classes: one value per class (votes, ties broken by the values), or one per pair.
    break_ties : bool, default=False
        Predict the largest decision value instead of the first class with the most votes.
    multi_class : "ovo" or "ovr"
        How more than two classes are trained: each pair, as scikit-learn does, or each class against the rest.
    probability : bool, default=False
        Learn `predict_proba` too: Platt's sigmoid for each dual, from five folds held out, so a fit takes some six
        times as long. scikit-learn is giving its own up for `sklearn.calibration.CalibratedClassifierCV`, which takes
        this SVC as well.
    tol : float, default=1e-6
        The duality gap to reach, relative to the objective. An exact machine leaves no row that violates its condition
        by more than 1000 tol or 1e-3, LIBSVM's default, whichever is less; duals of up to 100 rows, and of up to 3000
        with a tol below 1e-6, are solved to rounding.
    max_iter : int, default=-1
        Steps of a dual's solver: LIBSVM's where the rows are few, interior-point steps where they are many. -1: no
        limit for the former, 200 for the latter.
    refine : {"auto", "exact", None}, default="auto"
        Whether the dual of the kernel itself is solved. "auto" does so up to ``policy.svm_rows`` rows of a psd kernel
        where nothing is said of blocks, rank, error or memory. "exact" does so for any number of rows of a psd kernel;
        beside given blocks the factored solution is where the search starts. None leaves more than
        ``policy.exact_rows`` rows to blocks.
    warm_start : bool, default=False
        Start from the last fit's duals, for a path of C on the same rows.
    shrinking, cache_size
        LIBSVM's.
    correction : "auto", "none", "shift", "clip", "flip", "square" or "krein"
        What is done where the matrix is indefinite. "krein" trains the SVM of the Krein space: the dual of |K|, mapped
        back by the signs of the spectrum, so that new objects are compared by the kernel as it is. "none" leaves the
        dual as it is, not convex, and finds a stationary point as LIBSVM does; up to 3000 rows.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    classes_, class_weight_, support_, support_vectors_, n_support_, dual_coef_, intercept_, coef_, fit_status_, \
n_iter_, shape_fit_
        As in scikit-learn; of a corrected matrix, the coefficients are those of its own dual. With
        ``multi_class="ovr"`` dual_coef_ has one row per class.
    route_, approximation_, correction_, n_negative_, relative_error_
        How the fit went; the matrix that was used, what was done to make it psd, how many eigenvalues were negative
        before, and its error.
    converged_, gap_, gap_paths_, refined_
        Whether all duals reached what ``tol`` asks for, the largest relative duality gap (of an exact machine with a
        wide box it says little), how it fell, and whether the solution is that of a psd kernel itself.
    probA_, probB_
        The sigmoids of ``probability``, one per dual.
    """

    _: KW_ONLY
    C: float = 1.0
    class_weight: Any = None
    decision_function_shape: str = "ovr"
    break_ties: bool = False
    multi_class: str = "ovo"
    probability: bool = False

    _tunes: ClassVar[bool] = True

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SVC:
        """Fit to X (n, d) and labels y (n,); rows of weight 0 or less are as if they were not there."""
        self._check_solver()
        C = check_C(self.C)
        one_of("decision_function_shape", self.decision_function_shape, ("ovr", "ovo"))
        one_of("multi_class", self.multi_class, ("ovo", "ovr"))
        if self.multi_class == "ovr" and self.decision_function_shape == "ovo":
            raise InputError("decision_function_shape='ovo' needs pairs: it goes with multi_class='ovo' only.")
        given = self._weights(sample_weight)
        objects, y, kernel = self._start(X, y, weights=given)
        weights = check_weights(given, count_objects(objects))
        labels = self._classes(y, weights)
        limits = C * weights * self.class_weight_[np.maximum(labels, 0)]
        for name in ("probA_", "probB_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if self.probability:
            self._learn_probabilities(objects, kernel, y, labels, weights)
        objects, kept = self._kept(objects, weights)
        labels, limits = labels[kept], limits[kept]
        route = self._decide(objects, kernel, scored=True)
        if isinstance(route, Exact) and route.psd and self._fit_at_once(objects, kernel, labels, limits, kept):
            return self
        tasks = class_tasks(labels, np.flatnonzero(limits > 0.0), limits, len(self.classes_), self.multi_class)
        coefficients, self.intercept_ = self._solve(objects, kernel, tasks, labels, limits)
        self._lay_out(coefficients, labels, kept)
        return self

    def _classes(self, y: Any, weights: Array) -> Indices:
        """Set what is known of the classes; returns each row's, -1 for rows that have no weight."""
        y = y if isinstance(y, np.ndarray) and y.ndim == 1 else column_or_1d(y, warn=True)
        if not _are_classes(y):
            check_classification_targets(y)
        all_classes = np.unique(y)
        if len(all_classes) < 2:
            raise InputError(f"The number of classes has to be greater than one; got {len(all_classes)} class")
        kept = np.flatnonzero(weights > 0.0)
        self.classes_, own = np.unique(y[kept], return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("Invalid input - all samples with positive weights belong to the same class.")
        labels = np.full(len(y), -1)
        labels[kept] = own.ravel()
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            share = np.bincount(labels[kept], weights=weights[kept], minlength=len(self.classes_))
            self.class_weight_ = share.sum() / (len(self.classes_) * share)
        elif self.class_weight is None:
            self.class_weight_ = np.ones(len(self.classes_))
        else:
            self.class_weight_ = compute_class_weight(self.class_weight, classes=self.classes_, y=y[kept])
        if not (np.isfinite(self.class_weight_).all() and (self.class_weight_ > 0.0).all()):
            raise InputError(f"class_weight must be above 0 for every class; got {self.class_weight!r}.")
        return labels

    def _fit_at_once(self, objects: Any, kernel: Kernel, labels: Indices, limits: Array, kept: Indices) -> bool:
        """Fit all pairs of classes by one call of LIBSVM, where that is quickest; False where they are to be solved."""
        if self.multi_class != "ovo" or self.warm_start or self._tuned:
            return False
        objects = self._use_exactly(objects, kernel)
        found = solve_classes(
            kernel, objects, labels, limits, len(self.classes_), tol=self.tol, max_iter=int(self.max_iter),
            shrinking=bool(self.shrinking), cache_size=self.cache_size,
        )  # fmt: skip
        if found is None:
            return False
        self.refined_, self._past = True, []
        self.dual_coef_, self.n_support_, self.intercept_ = found.dual_coef, found.n_support, found.intercepts
        self._expansion = KernelExpansion(self._kernel, objects, self.dual_coef_.T)
        self._keep(found.support, kept, self.dual_coef_.T)
        steps = np.maximum(1, found.n_iter).astype(np.int32)
        self._set_convergence(found.gaps, steps, [np.array([p]) for p in zip(steps, found.gaps, strict=True)])
        self.converged_ = found.finished
        self.fit_status_ = 0 if found.finished else 1
        self.n_iter_ = steps
        return True

    def _lay_out(self, coefficients: Array, labels: Indices, kept: Indices) -> None:
        """Set support vectors, grouped by class, and their coefficients in scikit-learn's layout."""
        n_classes = len(self.classes_)
        used = np.flatnonzero(np.any(coefficients != 0.0, axis=1))
        support = used[np.argsort(labels[used], kind="stable")]
        self.n_support_ = np.bincount(labels[support], minlength=n_classes).astype(np.int32)
        if self._has_pairs:
            self.dual_coef_ = by_pair(coefficients, labels, support, n_classes)
        else:
            self.dual_coef_ = coefficients[support].T.copy()
        self._keep(support, kept)
        self.n_iter_ = self._steps

    def _keep(self, support: Indices, kept: Indices, weights: Array | None = None) -> None:
        super()._keep(support, kept, weights)
        if self._places is None and self._has_pairs:  # n_classes - 1 columns do for all pairs
            e = self._expansion
            counts = tuple(self.n_support_.tolist())
            self._expansion = PairExpansion(e.kernel, e.support, np.ascontiguousarray(self.dual_coef_.T), counts)

    @property
    def _has_pairs(self) -> bool:
        return len(self.classes_) > 2 and self.multi_class == "ovo"

    def _functions(self) -> Any:
        return pair_coefficients(self.dual_coef_, self.n_support_) if self._has_pairs else self.dual_coef_.T

    def _learn_probabilities(self, objects: Any, kernel: Any, y: Any, labels: Indices, weights: Array) -> None:
        """Set the sigmoids, from the decision values of rows that were held out."""
        if self.approximation is not None:
            raise InputError(
                "probability=True fits parts of the rows, of which an approximation that is handed in knows nothing. "
                "Leave approximation at None, or probability at False."
            )
        shape = "ovr" if self.multi_class == "ovr" else "ovo"
        single = clone(self).set_params(probability=False, decision_function_shape=shape, warm_start=False)
        matrix = kernel.S if self._precomputed else None
        y = column_or_1d(y)
        values = held_out_values(single, objects, matrix, y, labels, weights, self.random_state)
        kept = labels >= 0
        n_classes = len(self.classes_)
        self.probA_, self.probB_ = sigmoids(values[kept], labels[kept], weights[kept], n_classes, self.multi_class)

    # -- prediction ------------------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> Array:
        """Values of the decision functions: (n,) for two classes, else (n, classes), or (n, pairs) for "ovo"."""
        values = self._values(X) + self.intercept_
        if len(self.classes_) == 2:
            return values.ravel()
        if self.multi_class == "ovr" or self.decision_function_shape == "ovo":
            return values
        return confidences(values, len(self.classes_))

    def predict(self, X: Any) -> Any:
        """The class of each row of X."""
        if self.break_ties and self.decision_function_shape == "ovo":
            raise InputError("break_ties must be False when decision_function_shape is 'ovo'")
        values = self._values(X) + self.intercept_
        n_classes = len(self.classes_)
        chosen: Any
        if n_classes == 2:
            chosen = (values.ravel() >= 0.0).astype(np.intp)
        elif self.multi_class == "ovr":
            chosen = values.argmax(axis=1)
        elif self.break_ties:
            chosen = confidences(values, n_classes).argmax(axis=1)
        else:
            chosen = winners(values, n_classes)
        return self.classes_.take(chosen)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """How likely each class is, (n, classes); with few rows the likeliest may be another than `predict` says."""
        check_is_fitted(self)
        if not hasattr(self, "probA_"):
            raise NotFittedError("predict_proba is not available when fitted with probability=False")
        values = self._values(X) + self.intercept_
        return class_probabilities(values, self.probA_, self.probB_, len(self.classes_), self.multi_class)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))


def _are_classes(y: Any) -> bool:
    """Whether y holds whole numbers or words; scikit-learn's own check of that is slow."""
    return y.dtype.kind in "biuUS" or (y.dtype.kind == "f" and bool(np.isfinite(y).all() and (y == np.floor(y)).all()))
