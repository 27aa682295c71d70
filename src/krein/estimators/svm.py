"""Support vector machines with scikit-learn's contract: classification, regression and one class.

A machine states its duals (`Task`). They are solved by the route of the fit: on the kernel itself (`solve_exactly`), on
similarities as features, or on a factorization. There LIBSVM and a polish serve few rows, the factored solvers many.
The coefficients become one expansion (`decision`), from which predictions are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, OutlierMixin, RegressorMixin, clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from krein.approximation import Approximation
from krein.arrays import Array, Indices
from krein.choosing.by_score import codes
from krein.errors import IndefiniteError, InputError, is_number, one_of, warn
from krein.estimators.base import KernelMachine
from krein.estimators.choose_correction import choose_for_features, judge_for
from krein.estimators.decision import (
    FactoredExpansion,
    KernelExpansion,
    PairExpansion,
    by_pair,
    class_probabilities,
    class_tasks,
    confidences,
    copied,
    held_out_values,
    mapped,
    pair_coefficients,
    sigmoids,
    winners,
)  # fmt: skip
from krein.estimators.outside import ScoredOutside, fits_outside, predicts_outside
from krein.estimators.route import Exact, Features
from krein.estimators.similarity_features import SimilarityFeatures
from krein.estimators.weights import as_weights, check_weights, class_weights
from krein.factorization import Factorization
from krein.factorization.correction import CORRECTIONS, correct
from krein.kernels import Kernel, Linear, Precomputed, count_objects, take
from krein.kernels.collections import is_sparse, only, rows
from krein.kernels.kernel import uncounted
from krein.pieces.rows import RowPieces
from krein.solvers import Dual, solve_dual
from krein.solvers.dense_dual import NotConverged, Task, solve_dense
from krein.solvers.exact_svm import solve_classes, solve_exactly

__all__ = ["SVC", "SVR", "OneClassSVM", "check_C", "columns"]

# A dual on a factorization is solved as a dense matrix, by LIBSVM, up to DENSE_ROWS rows. The factored solver is faster
# with more than ROWS_PER_RANK rows per rank.
DENSE_ROWS = 3000
ROWS_PER_RANK = 3
# LIBSVM alone meets a tol above LIBSVM_TOL. Up to it, small duals on a factorization are solved to rounding.
LIBSVM_TOL = 1e-4
# With refine="exact" a factored dual only has to find candidates for support vectors. It is solved to the relative gap
# CANDIDATE_GAP, in at most CANDIDATE_STEPS steps.
CANDIDATE_GAP = 1e-2
CANDIDATE_STEPS = 100
# The factored solver takes at most FACTORED_STEPS steps where max_iter is -1.
FACTORED_STEPS = 200
# A C above LARGEST_C, or an infinite one, is replaced by LARGEST_C: no hard margin needs more. Coefficients grow with
# the targets and with the inverse of the similarities, so the limit is higher where targets are large or similarities
# small. It never exceeds FINITE_C, so that products of coefficients and similarities stay finite.
LARGEST_C = 1e10
FINITE_C = 1e150
# Decision values within BOUNDARY_ROUNDING times the offset of a one-class boundary count as 0.
BOUNDARY_ROUNDING = 1e-9
# The coefficients of a OneClassSVM with a smaller sum have this sum, for float64 holds no smaller ones with all digits.
SMALLEST_SUM = 1e-280


@dataclass(eq=False, repr=False, kw_only=True)
class SupportVectorMachine(KernelMachine):
    """Parameters of the solvers, and the steps from duals to fitted attributes."""

    tol: float = 1e-6
    shrinking: bool = True
    cache_size: float = 200
    max_iter: int = -1
    refine: str | None = "auto"
    warm_start: bool = False

    _corrections: ClassVar[tuple[str, ...]] = ("auto", *CORRECTIONS, "krein")
    _limit: ClassVar[str] = "svm_rows"
    _learns_features: ClassVar[bool] = True
    _of_route: ClassVar[tuple[str, ...]] = (*KernelMachine._of_route, "_support_objects")

    # -- the data --------------------------------------------------------------------------------------------------

    def _check_solver(self) -> None:
        if not (is_number(self.tol) and 0.0 < self.tol < 1.0):
            raise InputError(f"tol must be a number between 0 and 1, the relative duality gap; got {self.tol!r}.")
        if not (is_number(self.max_iter) and int(self.max_iter) == self.max_iter and self.max_iter >= -1):
            raise InputError(f"max_iter must be a whole number of steps, or -1 for no limit; got {self.max_iter!r}.")
        if not (is_number(self.cache_size) and self.cache_size > 0):
            raise InputError(f"cache_size must be a number of megabytes above 0; got {self.cache_size!r}.")
        if self.refine is not None:
            one_of("refine", self.refine, ("auto", "exact"))

    def _check_place(self, objects: Any) -> None:
        """Refuse what needs all rows in memory, if they are not there."""
        if isinstance(objects, RowPieces) and self.refine == "exact":
            raise InputError(
                f"refine='exact' compares rows with all others in memory; X of shape {objects.shape} lies outside it. "
                "Leave refine at its default, or read X into memory."
            )

    def _used_rows(self, objects: Any, weights: Array | None) -> tuple[Any, Indices, Array]:
        """Return the objects of positive weight, their places among the caller's rows and their weights.

        An approximation that was passed is of all rows. Rows without weight are then part of no dual.
        """
        self._check_place(objects)
        n = count_objects(objects)
        self.shape_fit_ = (n, n) if self._precomputed else (n, *getattr(objects, "shape", (n,))[1:])
        weights = np.ones(n) if weights is None else weights
        used = np.flatnonzero(weights > 0.0)
        if self.approximation is not None or len(used) == n:
            return objects, np.arange(n), weights
        return only(objects, used), used, weights[used]

    def _finite_C(self, C: Any, objects: Any, kernel: Kernel, targets: Any = 1.0) -> float:
        """Return C, or the number that replaces one above any that a hard margin needs."""
        if C <= LARGEST_C:
            return float(C)
        with uncounted():
            own = (
                kernel.diag(rows(objects, slice(0, 1000))) if self.approximation is None
                else self.approximation.factorization.diagonal()
            )  # fmt: skip
        size = max(float(np.abs(own).mean()), LARGEST_C / FINITE_C)
        return float(min(C, LARGEST_C * float(np.abs(targets).max(initial=1.0)) / min(1.0, size), FINITE_C))

    # -- the duals -------------------------------------------------------------------------------------------------

    def _solve(
        self, objects: Any, kernel: Kernel, tasks: Sequence[Task], targets: Any = None, limits: Any = None
    ) -> tuple[Array, Array]:
        """Solve all duals by the route; return their coefficients (n, p) and intercepts (p,).

        Where there are ``targets``, they and the upper bounds C of all rows, ``limits``, choose what is left open:
        blocks, rank, gamma and the correction.
        """
        self.refined_ = isinstance(self.route_, Exact) and self.route_.psd
        chooser = None
        if targets is not None and (self._tuned or not self.refined_):
            chooser = self._chooser(codes(targets) if is_classifier(self) else targets)
            kernel = self._tune(objects, kernel, chooser)
        past: list[tuple[Task, Dual]] = getattr(self, "_past", []) if self.warm_start else []
        starts = [_moved(*before, task) for before, task in zip(past, tasks, strict=False)]
        starts += [None] * (len(tasks) - len(starts))
        if self.refined_:
            objects = self._use_exactly(objects, kernel)
            duals = self._exact_duals(kernel, objects, tasks, starts)
            coefficients = columns(tasks, duals, count_objects(objects))
            self._expansion: Any = KernelExpansion(self._kernel, objects, coefficients)
        elif isinstance(self.route_, Features):
            assert chooser is not None  # there is a target
            features = self._similarity_features(objects, kernel, chooser)
            duals, coefficients = self._solve_features(features, tasks, starts, targets, limits)
        else:
            judge = None
            if chooser is not None:
                judge = judge_for(targets, chooser.task, strength=limits, epsilon=getattr(self, "epsilon", 0.0))
            a = self._settle(self._build(objects, kernel, chooser), judge)
            duals, coefficients = self._solve_factored(a, tasks, starts)
        self._past = list(zip(tasks, duals, strict=True)) if self.warm_start else []
        self._set_convergence(duals)
        return coefficients, np.array([task.unit * dual.intercept for task, dual in zip(tasks, duals, strict=True)])

    def _exact_duals(
        self, kernel: Kernel, objects: Any, tasks: Sequence[Task], starts: Sequence[Dual | None]
    ) -> list[Dual]:
        return solve_exactly(
            kernel, objects, tasks, tol=self.tol, max_iter=int(self.max_iter), shrinking=bool(self.shrinking),
            cache_size=self.cache_size, starts=starts, verbose=self.verbose,
        )  # fmt: skip

    def _solve_features(
        self, features: SimilarityFeatures, tasks: Sequence[Task], starts: Sequence[Dual | None], targets: Any,
        limits: Any,
    ) -> tuple[list[Dual], Array]:  # fmt: skip
        """Solve the duals on the Gram matrix of the features, or on the features where that is too large."""
        task = "classification" if is_classifier(self) else "regression"
        n, epsilon = len(features.own), getattr(self, "epsilon", 0.0)
        features, scale = self._correct_features(
            features,
            lambda names: choose_for_features(features, targets, names, task=task, limits=limits, epsilon=epsilon),
        )
        assert isinstance(self.route_, Features)
        gram_rows = self.route_.gram_rows
        with uncounted():
            if n <= gram_rows:
                G = Precomputed(features.gram(scale), check="sample")
                duals = self._exact_duals(G, np.arange(n), tasks, starts)
            elif all(len(one.rows) <= gram_rows for one in tasks):  # pairs of classes have fewer rows
                duals = []
                for one, start in zip(tasks, starts, strict=True):
                    G = Precomputed(features.gram(scale, one.rows), check="sample")
                    own = np.arange(len(one.rows))
                    duals += self._exact_duals(G, own, [replace(one, rows=own)], [start])
            else:
                duals = self._exact_duals(Linear(), features.vectors(scale), tasks, starts)
        coefficients = columns(tasks, duals, n)
        self._expansion = features.expansion(self._kernel, coefficients, scale)
        return duals, coefficients

    def _solve_factored(
        self, a: Approximation, tasks: Sequence[Task], starts: Sequence[Dual | None]
    ) -> tuple[list[Dual], Array]:
        """Solve the duals on a factorization; with refine="exact", those of the kernel itself from there."""
        f, krein = a.factorization, self.correction_ == "krein" and self.n_negative_ > 0
        if krein:
            f = correct(f, "flip")
        if self.refine == "exact" and self.n_negative_:
            raise IndefiniteError(
                f"refine='exact' needs a psd kernel, but {a.kernel!r} gave {self.n_negative_} negative eigenvalues. "
                "Leave refine at its default; correction_ says what was done about them."
            )
        if self.correction_ == "none" and self.n_negative_:
            warn(
                f"{a.kernel!r} gave an indefinite matrix ({self.n_negative_} negative eigenvalues) and "
                f"correction='none' was asked for: {type(self).__name__}'s dual is not convex, what is found is a "
                "stationary point of it."
            )
        exact = isinstance(self.route_, Exact)
        self.refined_ = self.refine == "exact" and not exact
        K = f.to_dense() if exact else None
        duals = [self._factored_dual(a, f, K, task, start) for task, start in zip(tasks, starts, strict=True)]
        if self.refined_:
            duals = self._exact_duals(a.kernel, a.objects, tasks, duals)
        coefficients = columns(tasks, duals, f.shape[0])
        self._expansion = self._factored_expansion(a, f, coefficients)
        if exact:
            self._forget_matrix()
        return duals, coefficients

    def _factored_dual(
        self, a: Approximation, f: Factorization, K: Array | None, task: Task, start: Dual | None
    ) -> Dual:
        """Solve one dual on the factorization; K is the dense matrix of an exact fit."""
        psd = not (self.correction_ == "none" and self.n_negative_)
        m, tol, limit = len(task.rows), self.tol, FACTORED_STEPS if self.max_iter < 1 else int(self.max_iter)
        if self.refined_:
            tol, limit = max(tol, CANDIDATE_GAP), min(limit, CANDIDATE_STEPS)
        if not psd and m > DENSE_ROWS:
            raise IndefiniteError(
                f"{type(self).__name__} on {m} rows needs a psd matrix, but {a.kernel!r} gave {self.n_negative_} "
                f"negative eigenvalues and correction='none' was asked for; above {DENSE_ROWS} rows no stationary "
                "point is looked for. Pass correction='flip', 'clip', 'shift' or 'krein'."
            )

        def factored() -> Dual:
            return solve_dual(
                f, task.linear, task.low, task.high, total=task.total, epsilon=task.epsilon, rows=task.rows,
                tol=tol, max_iter=limit, start=start, verbose=self.verbose,
            )  # fmt: skip

        if not self._is_dense(f, K, task):
            return factored()
        own = f.entries(task.rows, task.rows) if K is None else K[np.ix_(task.rows, task.rows)]
        return solve_dense(
            own, task, tol=self.tol, max_iter=int(self.max_iter), psd=psd, exact=self.tol <= LIBSVM_TOL, start=start,
            other=factored, options={"shrinking": bool(self.shrinking), "cache_size": self.cache_size},
        )  # fmt: skip

    def _is_dense(self, f: Factorization, K: Array | None, task: Task) -> bool:
        """Whether a dual on a factorization is solved as a dense matrix; K is that of an exact fit."""
        m, psd = len(task.rows), not (self.correction_ == "none" and self.n_negative_)
        return m <= DENSE_ROWS and not (psd and K is None and ROWS_PER_RANK * f.rank < m)

    def _factored_expansion(self, a: Approximation, f: Factorization, coefficients: Array) -> Any:
        """The decision functions without their intercepts.

        The Krein-space SVM is trained on |K| = U |M| Uᵀ. Its coefficients b~ become b = U sign(M) Uᵀ b~, so that
        K b = |K| b~. New objects are compared by the indefinite kernel itself: k(x, X) b = u(x) |M| Uᵀ b~.
        """
        kernel = self._kernel if self._precomputed else a.kernel
        exact = isinstance(self.route_, Exact)
        if self.refined_ or (exact and not self._is_corrected):
            return KernelExpansion(kernel, a.objects, coefficients)
        inner = f.core @ f.project(coefficients)
        if not exact:
            return FactoredExpansion(a, inner)
        return KernelExpansion(kernel, copied(a.objects), mapped(self._uncorrected.factorization, inner))

    @property
    def _is_corrected(self) -> bool:
        """Whether the matrix of the dual differs from the kernel's own off the diagonal."""
        return self.correction_ == "square" or (self.n_negative_ > 0 and self.correction_ not in ("none", "shift"))

    def _set_convergence(self, duals: Sequence[Dual]) -> None:
        """Set how the duals were solved; warn where a factored solver stopped early (exact solvers warn themselves)."""
        self._gaps = np.array([dual.gap for dual in duals])
        self._steps: Any = np.array([max(1, dual.n_iter) for dual in duals], dtype=np.int32)
        self.gap_paths_ = [np.array(dual.path, dtype=np.float64).reshape(-1, 2) for dual in duals]
        self.gap_ = float(self._gaps.max())
        self.converged_ = all(dual.converged for dual in duals)
        self.fit_status_ = 0 if self.converged_ else 1
        if not self.refined_:
            self._warn_of_early_ends(duals)

    def _warn_of_early_ends(self, duals: Sequence[Dual]) -> None:
        left = sum(not dual.converged for dual in duals)
        if left:
            which = "" if len(duals) == 1 else f" in {left} of {len(duals)} duals"
            limit = f" (max_iter={self.max_iter})" if self.max_iter > 0 else ""
            warn(
                f"Solver terminated early{limit}: {type(self).__name__} reached a relative duality gap of "
                f"{self.gap_:.2g}{which}, tol={self.tol:g} was asked for. Raise max_iter or tol, lower C, or "
                "pre-process the data with StandardScaler or MinMaxScaler.",
                NotConverged,
            )

    def _set_support(self, support: Indices, used: Indices, weights: Array | None = None) -> None:
        """Set the support vectors in the order given; ``used`` are the caller's rows that were fitted.

        A kernel expansion over the support vectors themselves keeps those and no other objects. ``weights`` are their
        coefficients where the expansion holds others.
        """
        self.support_ = used[support].astype(np.int32)
        self._places: Indices | None = support  # of the support vectors among the objects of the expansion
        e = self._expansion
        if isinstance(self.route_, Features) and self.route_.n_landmarks < self._n_rows:
            self._support_objects = take(self._training[0], support)
        if isinstance(e, KernelExpansion) and (self.refined_ or not self._is_corrected):
            own = e.weights[support] if weights is None else weights
            self._expansion = replace(e, support=take(e.support, support), weights=np.ascontiguousarray(own))
            self._places = None

    # -- predictions and attributes --------------------------------------------------------------------------------

    def _values(self, X: Any) -> Array:
        """Return the decision functions at new objects, (n_new, p), without the intercepts."""
        objects = self._new(X)  # first, as it refuses a machine that is not fitted
        values: Array = self._expansion(objects, self.verbose)
        return values

    @property
    def support_vectors_(self) -> Any:
        """The support vectors, grouped by class where there are classes; none for a precomputed matrix."""
        check_is_fitted(self)
        if self._precomputed:
            return np.empty((0, 0))
        if hasattr(self, "_support_objects"):
            return self._support_objects
        e = self._expansion
        held = e.support if isinstance(e, KernelExpansion) else e.approximation.objects
        return held if self._places is None else take(held, self._places)

    @property
    def coef_(self) -> Array:
        """One weight per feature and decision function, for linear kernels; read-only."""
        if not (isinstance(self.kernel, str) and self.kernel == "linear") and not isinstance(self.kernel, Linear):
            raise AttributeError("coef_ is only available when using a linear kernel")
        check_is_fitted(self)
        found: Any = self._functions().T @ self.support_vectors_
        weights = np.array(found.toarray() if is_sparse(found) else found, dtype=np.float64)
        weights.flags.writeable = False
        return weights

    def _functions(self) -> Any:
        """The coefficients of the support vectors in each decision function, (n_SV, p)."""
        return self.dual_coef_.T


def _positive_weights(sample_weight: Any) -> Array | None:
    """Return one weight >= 0 per row, or None where none are given; as in LIBSVM, negative weights count as 0."""
    if sample_weight is None:
        return None
    weights = as_weights(sample_weight)
    if weights.ndim != 1:
        raise InputError(f"sample_weight must be one number per row, 1-D; got shape {weights.shape}.")
    if (weights <= 0.0).all():
        raise InputError("Invalid input - all samples have zero or negative weights.")
    return check_weights(np.maximum(weights, 0.0), len(weights))


def check_C(C: Any) -> Any:
    """Return C if it is a number above 0; it may be infinite."""
    if not (isinstance(C, int | float | np.number) and not isinstance(C, bool) and C > 0):
        raise InputError(f"C must be a number above 0; got {C!r}.")
    return C


def columns(tasks: Sequence[Task], duals: Sequence[Dual], n: int) -> Array:
    """The coefficients of all rows, one column per dual."""
    out = np.zeros((n, len(tasks)))
    for p, (task, dual) in enumerate(zip(tasks, duals, strict=True)):
        out[task.rows, p] = task.unit * dual.coefficients
    return out


def _moved(old: Task, dual: Dual, new: Task) -> Dual | None:
    """Return the solution of an old dual as a start for a new one of as many rows; bounds stay bounds."""
    if len(old.rows) != len(new.rows) or old.kind != new.kind:
        return None
    b = dual.coefficients
    at_high, at_low = (b >= old.high) & (old.high != 0.0), (b <= old.low) & (old.low != 0.0)
    b = np.where(at_high, new.high, np.where(at_low, new.low, np.clip(b, new.low, new.high)))
    return replace(dual, coefficients=b)


# -- classification ------------------------------------------------------------------------------------------------


def _has_probabilities(machine: Classifier) -> bool:
    if not machine.probability:
        raise AttributeError("predict_proba is not available when probability=False")
    return True


@dataclass(eq=False, repr=False, kw_only=True)
class Classifier(ScoredOutside, ClassifierMixin, SupportVectorMachine):  # type: ignore[misc]
    """Classes by pairs or each against the rest, from duals whose bounds the machine says (`_tasks`)."""

    class_weight: Any = None
    decision_function_shape: str = "ovr"
    break_ties: bool = False
    multi_class: str = "ovo"
    probability: bool = False

    _tunes: ClassVar[bool] = True

    def _fit(self, X: Any, y: Any, sample_weight: Any, C: Any) -> None:
        given = _positive_weights(sample_weight)
        self._check_solver()
        one_of("decision_function_shape", self.decision_function_shape, ("ovr", "ovo"))
        one_of("multi_class", self.multi_class, ("ovo", "ovr"))
        if self.multi_class == "ovr" and self.decision_function_shape == "ovo":
            raise InputError("decision_function_shape='ovo' needs pairs: it goes with multi_class='ovo' only.")
        objects, y, kernel = self._start(X, y, weights=given)
        labels = self._set_classes(y, given)
        if self.probability:
            self._learn_probabilities(objects, kernel, y, labels, given)
        else:
            self.__dict__.pop("probA_", None)  # from an earlier fit
            self.__dict__.pop("probB_", None)
        objects, used, weights = self._used_rows(objects, given)
        labels = labels[used]
        limits = self._finite_C(C, objects, kernel) * weights * self.class_weight_[np.maximum(labels, 0)]
        route = self._decide(objects, kernel, scored=True)
        if isinstance(route, Exact) and route.psd and self._fit_all_pairs(objects, kernel, labels, limits, used):
            return
        objects, some = self._taking_part(objects, kernel, labels)
        used, labels, limits = used[some], labels[some], limits[some]
        tasks = self._tasks(labels, limits)
        coefficients, self.intercept_ = self._solve(objects, kernel, tasks, labels, limits)
        support = np.flatnonzero(np.any(coefficients != 0.0, axis=1))
        support = support[np.argsort(labels[support], kind="stable")]  # class after class
        self.n_support_: Any = np.bincount(labels[support], minlength=len(self.classes_)).astype(np.int32)
        if self._has_pairs:
            self.dual_coef_ = by_pair(coefficients, labels, support, len(self.classes_))
        else:
            self.dual_coef_ = coefficients[support].T.copy()
        self.n_iter_ = self._steps
        self._set_support(support, used)

    def _tasks(self, labels: Indices, limits: Array) -> list[Task]:
        """The duals of all classes; ``limits`` are C times the weight of each row."""
        return class_tasks(labels, np.flatnonzero(limits > 0.0), limits, len(self.classes_), self.multi_class)

    def _set_classes(self, y: Any, weights: Array | None) -> Indices:
        """Set the classes and their weights; return the class of each row, -1 for rows without weight."""
        y = y if isinstance(y, np.ndarray) and y.ndim == 1 else column_or_1d(y, warn=True)
        if not _are_classes(y):
            check_classification_targets(y)
        all_classes = np.unique(y)
        if len(all_classes) < 2:
            raise InputError(f"The number of classes has to be greater than one; got {len(all_classes)} class")
        weights = np.ones(len(y)) if weights is None else weights
        used = np.flatnonzero(weights > 0.0)
        self.classes_, own = np.unique(y[used], return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError("Invalid input - all samples with positive weights belong to the same class.")
        labels = np.full(len(y), -1)
        labels[used] = own.ravel()
        self.class_weight_ = class_weights(self.class_weight, self.classes_, labels[used], weights[used])
        return labels

    def _fit_all_pairs(self, objects: Any, kernel: Kernel, labels: Indices, limits: Array, used: Indices) -> bool:
        """Fit all pairs of classes by one call of LIBSVM, where that is fastest; else return False."""
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
        self.converged_, self.fit_status_ = found.finished, 0 if found.finished else 1
        self.n_iter_ = self._steps = np.asarray(np.maximum(1, found.n_iter), dtype=np.int32)
        self._gaps, self.gap_ = found.gaps, float(found.gaps.max())
        self.gap_paths_ = [np.array([pair]) for pair in zip(self._steps, found.gaps, strict=True)]
        self._expansion = KernelExpansion(self._kernel, objects, self.dual_coef_.T)
        self._set_support(found.support, used, self.dual_coef_.T)
        return True

    def _set_support(self, support: Indices, used: Indices, weights: Array | None = None) -> None:
        pairs = self._has_pairs
        super()._set_support(support, used, weights)
        if pairs and self._places is None:  # n_classes - 1 columns hold the coefficients of all pairs
            e = self._expansion
            counts = tuple(self.n_support_.tolist())
            self._expansion = PairExpansion(e.kernel, e.support, np.ascontiguousarray(self.dual_coef_.T), counts)

    @property
    def _has_pairs(self) -> bool:
        return len(self.classes_) > 2 and self.multi_class == "ovo"

    def _functions(self) -> Any:
        return pair_coefficients(self.dual_coef_, self.n_support_) if self._has_pairs else self.dual_coef_.T

    def _learn_probabilities(self, objects: Any, kernel: Any, y: Any, labels: Indices, given: Array | None) -> None:
        """Fit the sigmoids to decision values of held-out rows."""
        if self.approximation is not None:
            raise InputError(
                "probability=True fits parts of the rows, of which an approximation that is handed in knows nothing. "
                "Leave approximation at None, or probability at False."
            )
        shape = "ovr" if self.multi_class == "ovr" else "ovo"
        single = clone(self).set_params(probability=False, decision_function_shape=shape, warm_start=False)
        matrix = kernel.S if self._precomputed else None
        weights = np.ones(len(labels)) if given is None else given
        values = held_out_values(single, objects, matrix, column_or_1d(y), labels, weights, self.random_state)
        used = labels >= 0
        self.probA_, self.probB_ = sigmoids(
            values[used], labels[used], weights[used], len(self.classes_), self.multi_class
        )

    @predicts_outside
    def decision_function(self, X: Any) -> Array:
        """Return the decision values: (n,) for two classes, else (n, n_classes), or (n, n_pairs) for "ovo"."""
        values = self._values(X) + self.intercept_
        if len(self.classes_) == 2:
            return values.ravel()
        if self.multi_class == "ovr" or self.decision_function_shape == "ovo":
            return values
        return confidences(values, len(self.classes_))

    @predicts_outside
    def predict(self, X: Any) -> Any:
        """Return the class of each row of X."""
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
        """Return the probability of each class, (n, n_classes).

        On small data the most probable class may differ from the one that `predict` returns.
        """
        check_is_fitted(self)
        if not hasattr(self, "probA_"):
            raise NotFittedError("predict_proba is not available when fitted with probability=False")
        values = self._values(X) + self.intercept_
        return class_probabilities(values, self.probA_, self.probB_, len(self.classes_), self.multi_class)

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of `predict_proba`."""
        return np.asarray(np.log(self.predict_proba(X)))


@dataclass(eq=False, repr=False)
class SVC(Classifier):
    """C-support vector classification with any symmetric kernel, for any number of rows.

    The parameters, attributes and decision function are those of `sklearn.svm.SVC`. The solution is exact up to 2000
    rows, and up to 50,000 rows of a psd kernel (``policy``). With more rows the kernel matrix is replaced by a
    factorization U M Uᵀ + s I, which holds n k + r² numbers instead of n² (k the rank of a block, r the sum of all
    ranks). An indefinite kernel, or objects without
    vectors, may instead use similarities to all objects or to landmarks as features (``route_`` says which).

    Parameters
    ----------
    C : float, default=1.0
        Strength of the loss. The upper bound of a row's dual coefficient is C times its sample and class weight.
    class_weight : dict, "balanced" or None, default=None
        Factors of C by class. "balanced" gives all classes the same total weight, counting sample weights.
    decision_function_shape : {"ovr", "ovo"}, default="ovr"
        Shape of `decision_function` for more than two classes: one column per class, or one per pair of classes.
    break_ties : bool, default=False
        Predict the class with the largest decision value instead of the first class with the most votes.
    multi_class : {"ovo", "ovr"}, default="ovo"
        How more than two classes are trained: each pair of classes, as in scikit-learn, or each class against the rest.
    probability : bool, default=False
        Also learn `predict_proba`: one of Platt's sigmoids per dual, fitted to held-out decision values of five folds.
        A fit then takes about six times as long. `sklearn.calibration.CalibratedClassifierCV` is the alternative.
    tol : float, default=1e-6
        Relative duality gap at which the solver stops. An exact solution violates no optimality condition by more than
        1000 tol or 1e-3, whichever is less (1e-3 is the default of LIBSVM). Exact duals of up to 100 rows, and of up to
        3000 rows with a tol below 1e-6, are solved to rounding.
    shrinking : bool, default=True
        Shrinking heuristic of LIBSVM.
    cache_size : float, default=200
        Kernel cache of LIBSVM, in megabytes.
    max_iter : int, default=-1
        Largest number of solver steps: of LIBSVM for few rows, of Newton's method or an interior point for many. -1
        means no limit for the former and 200 for the latter.
    refine : {"auto", "exact", None}, default="auto"
        Whether the dual of the kernel itself is solved. "auto" does so up to ``policy.svm_rows`` rows of a psd kernel,
        unless blocks, rank, error or memory are given. "exact" does so for any number of rows of a psd kernel. If
        blocks are given too, it starts from the solution on the factorization. None does so up to ``policy.exact_rows``
        rows.
    warm_start : bool, default=False
        Start from the dual solution of the last fit, for a path of C on the same rows.
    correction : {"auto", "none", "shift", "clip", "flip", "square", "krein"} or float, default="auto"
        How an indefinite matrix is made psd. A number is the weight of its negative part. "krein" trains the SVM of the
        Krein space: it solves the dual of |K| and maps the solution back, so that new objects are compared by the
        indefinite kernel itself. "none" keeps the dual, which is not convex, and finds a stationary point as LIBSVM
        does, up to 3000 rows.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    classes_, class_weight_, support_, support_vectors_, n_support_, dual_coef_, intercept_, coef_, fit_status_, \
n_iter_, shape_fit_
        As in scikit-learn. The coefficients of a corrected matrix belong to the dual of that matrix. With
        ``multi_class="ovr"`` dual_coef_ has one row per class.
    converged_ : bool
        Whether all duals were solved to ``tol``.
    gap_ : float
        Largest relative duality gap of all duals. It says little about an exact solution with a large C.
    gap_paths_ : list of arrays of shape (n_records, 2)
        Steps and relative duality gap along the way, per dual.
    refined_ : bool
        Whether the solution is that of a psd kernel itself.
    probA_, probB_ : arrays of shape (n_duals,)
        Parameters of the sigmoids, with ``probability=True``.
    route_, approximation_, correction_, n_negative_, selection_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import krein
    >>> data = krein.datasets.mixture(300, n_features=4, n_clusters=3, n_classes=2, random_state=0)
    >>> machine = krein.SVC(random_state=0).fit(data.X[:200], data.y[:200])
    >>> machine.score(data.X[200:], data.y[200:]) > 0.8
    True
    >>> type(machine.route_).__name__  # few rows: the kernel's own matrix
    'Exact'
    >>> machine = krein.SVC(n_blocks=3, rank=16, random_state=0).fit(data.X[:200], data.y[:200])
    >>> machine.approximation_.factorization.n_blocks
    3
    """

    _: KW_ONLY
    C: float = 1.0

    @fits_outside
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SVC:
        """Fit to X (n, d) and labels y (n,). Rows of weight 0 or less are ignored."""
        self._fit(X, y, sample_weight, check_C(self.C))
        return self


def _are_classes(y: Any) -> bool:
    """Whether y holds whole numbers or strings; the check of scikit-learn is slow."""
    return y.dtype.kind in "biuUS" or (y.dtype.kind == "f" and bool(np.isfinite(y).all() and (y == np.floor(y)).all()))


# -- regression and one class --------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, kw_only=True)
class _OneDual(SupportVectorMachine):
    """A machine with a single decision function."""

    def _fit_one(
        self, objects: Any, kernel: Kernel, used: Indices, task: Task, targets: Array | None = None, limits: Any = None
    ) -> None:
        coefficients, self.intercept_ = self._solve(objects, kernel, [task], targets, limits)
        support = np.flatnonzero(coefficients[:, 0])
        self.n_support_ = np.array([len(support)], dtype=np.int32)
        self.dual_coef_ = coefficients[support].T.copy()
        self.n_iter_ = int(self._steps[0])
        self._set_support(support, used)


@dataclass(eq=False, repr=False, kw_only=True)
class Regressor(ScoredOutside, RegressorMixin, _OneDual):  # type: ignore[misc]
    """Numbers, from one dual that the machine says (`_task`)."""

    C: float = 1.0

    _tunes: ClassVar[bool] = True

    @fits_outside
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fit to X (n, d) and numbers y (n,). Rows of weight 0 or less are ignored."""
        given, C = _positive_weights(sample_weight), check_C(self.C)
        self._check_solver()
        objects, y, kernel = self._start(X, y, weights=given, y_numeric=True)
        plain = isinstance(y, np.ndarray) and y.ndim == 1 and y.dtype == np.float64 and bool(np.isfinite(y).all())
        if not plain:  # the check takes as long as a small fit
            y = check_array(column_or_1d(y, warn=True), ensure_2d=False, dtype=np.float64, input_name="y")
        objects, used, weights = self._used_rows(objects, given)
        y, limits = y[used], self._finite_C(C, objects, kernel, y) * weights
        self._decide(objects, kernel, scored=True)
        objects, some = self._taking_part(objects, kernel, y)
        used, y, limits = used[some], y[some], limits[some]
        rows = np.flatnonzero(limits > 0.0)
        self._fit_one(objects, kernel, used, self._task(rows, y[rows], limits[rows]), y, limits)
        return self

    def _task(self, rows: Indices, y: Array, limits: Array) -> Task:
        return Task("tube", rows, y, -limits, limits)

    @predicts_outside
    def predict(self, X: Any) -> Array:
        """Return the value at each row of X."""
        return np.asarray(self._values(X).ravel() + self.intercept_[0])


@dataclass(eq=False, repr=False)
class SVR(Regressor):
    """Epsilon-support vector regression with any symmetric kernel, for any number of rows.

    The parameters, attributes and predictions are those of `sklearn.svm.SVR`. The solution is exact up to 2000 rows,
    and up to 50,000 rows of a psd kernel (``policy``). With more rows the kernel matrix is replaced by a factorization.
    An indefinite kernel, or objects without vectors, may instead use similarities to all objects or to landmarks as
    features (``route_`` says which).

    Parameters
    ----------
    C : float, default=1.0
        Strength of the loss. The bound of a row's dual coefficient is C times its sample weight.
    epsilon : float, default=0.1
        Errors up to epsilon have no loss.
    tol, shrinking, cache_size, max_iter, refine, warm_start, correction
        See `krein.estimators.svm.SVC`.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_, coef_, fit_status_, n_iter_, shape_fit_
        As in scikit-learn. The coefficients of a corrected matrix belong to the dual of that matrix.
    converged_, gap_, gap_paths_, refined_
        See `krein.estimators.svm.SVC`.
    route_, approximation_, correction_, n_negative_, selection_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> x = np.linspace(0, 6, 200)[:, None]
    >>> machine = krein.SVR(C=10.0).fit(x, np.sin(x[:, 0]))
    >>> machine.score(x, np.sin(x[:, 0])) > 0.95
    True
    """

    _: KW_ONLY
    epsilon: float = 0.1

    def _check_solver(self) -> None:
        super()._check_solver()
        if not (is_number(self.epsilon) and self.epsilon >= 0.0):
            raise InputError(f"epsilon must be a number of at least 0; got {self.epsilon!r}.")

    def _task(self, rows: Indices, y: Array, limits: Array) -> Task:
        return replace(super()._task(rows, y, limits), epsilon=float(self.epsilon))


@dataclass(eq=False, repr=False)
class OneClassSVM(OutlierMixin, _OneDual):  # type: ignore[misc]
    """Unsupervised outlier detection with any symmetric kernel, for any number of rows.

    The parameters, attributes and decision function are those of `sklearn.svm.OneClassSVM`. The solution is exact up to
    2000 rows, and up to 50,000 rows of a psd kernel (``policy``). With more rows the kernel matrix is replaced by a
    factorization.

    Parameters
    ----------
    nu : float in (0, 1], default=0.5
        An upper bound on the share of outliers and a lower bound on the share of support vectors, by weight.
    tol, shrinking, cache_size, max_iter, refine, warm_start, correction
        See `krein.estimators.svm.SVC`.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    support_, support_vectors_, n_support_, dual_coef_, intercept_, offset_, coef_, fit_status_, n_iter_, shape_fit_
        As in scikit-learn. The coefficients of a corrected matrix belong to the dual of that matrix.
    converged_, gap_, gap_paths_, refined_
        See `krein.estimators.svm.SVC`.
    route_, approximation_, correction_, n_negative_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> machine = krein.OneClassSVM(nu=0.1).fit(X)
    >>> machine.predict([[0.0, 0.0], [9.0, 9.0]])
    array([ 1, -1])
    """

    _: KW_ONLY
    nu: float = 0.5

    @fits_outside
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> OneClassSVM:
        """Fit to X (n, d); y is ignored. Rows of weight 0 or less are ignored."""
        given = _positive_weights(sample_weight)
        self._check_solver()
        if not (is_number(self.nu) and 0.0 < self.nu <= 1.0):
            raise InputError(f"nu must be a number above 0 and at most 1; got {self.nu!r}.")
        objects, _, kernel = self._start(X, weights=given)
        objects, used, weights = self._used_rows(objects, given)
        self._decide(objects, kernel)
        rows = np.flatnonzero(weights > 0.0)
        limits, zeros = weights[rows], np.zeros(len(rows))
        total = float(self.nu) * float(limits.sum())
        scale = min(1.0, total)  # the sum of the coefficients may be far below the solver's tolerances
        unit = max(SMALLEST_SUM, scale)
        task = Task("one-class", rows, zeros, zeros, np.minimum(limits, total) / scale, total / scale, unit=unit)
        self._fit_one(objects, kernel, used, task)
        self.offset_ = -self.intercept_
        return self

    @predicts_outside
    def decision_function(self, X: Any) -> Array:
        """Return the signed distance to the boundary, negative for outliers, and 0 within rounding of the boundary."""
        values: Array = self._values(X).ravel() + self.intercept_[0]
        # free support vectors lie on the boundary, and rounding must not move them outside
        values[np.abs(values) <= BOUNDARY_ROUNDING * abs(self.intercept_[0])] = 0.0
        return values

    @predicts_outside
    def score_samples(self, X: Any) -> Array:
        """Return the decision function plus ``offset_``."""
        return np.asarray(self.decision_function(X) + self.offset_[0])

    @predicts_outside
    def predict(self, X: Any) -> Any:
        """Return 1 for each row inside or on the boundary, -1 for each outlier."""
        return np.where(self.decision_function(X) >= 0.0, 1, -1).astype(np.intp)
