"""What the support vector machines share: duals solved exactly or on the factored matrix, and what a fit leaves behind.

A machine states its duals (`Task`). An exact fit of a psd kernel hands them to `solve_exactly`; any other solves them
on a factorization, whole or approximated, by LIBSVM and a polish where rows are few and by the factored solvers where
they are many. The coefficients become one expansion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from krein.approximation import Approximation
from krein.arrays import Array, Indices
from krein.choosing.by_score import codes
from krein.errors import IndefiniteError, InputError, one_of, warn
from krein.estimators.base import KernelMachine, check_weights
from krein.estimators.choose_correction import judge_for
from krein.estimators.expansion import FactoredExpansion, KernelExpansion, copied, mapped
from krein.estimators.route import Exact, Features, Route
from krein.estimators.similarity_features import SimilarityFeatures
from krein.factorization import Factorization
from krein.factorization.correction import CORRECTIONS, correct
from krein.kernels import Kernel, Linear, Precomputed, count_objects, take
from krein.kernels.collections import is_sparse
from krein.kernels.counting import uncounted
from krein.kernels.kernel import is_number
from krein.solvers import Dual, solve_dual
from krein.solvers.dense_dual import NotConverged, Task, solve_dense
from krein.solvers.exact import solve_exactly

__all__ = ["DualMachine", "NotConverged"]

DENSE_ROWS = 3000  # Up to this many rows a task on a factorization is given to LIBSVM as a dense matrix.
FINE = 1e-4  # A tol above this is met by LIBSVM alone; up to it small duals on a factorization are solved to rounding.
LOW_RANK = 3  # With more rows per rank than this the factored solver is the faster one.
SCREENED = (1e-2, 100)  # Gap and steps at most of a factored dual from which refine="exact" starts.
HUGE = 1e10  # This stands for C = inf: no hard margin needs more.


@dataclass(eq=False, repr=False, kw_only=True)
class DualMachine(KernelMachine):
    """Parameters of the dual's solvers, and the steps from tasks to fitted attributes."""

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

    # -- data ------------------------------------------------------------------------------------------------------

    def _check_solver(self) -> None:
        if not (is_number(self.tol) and 0.0 < self.tol < 1.0):
            raise InputError(f"tol must be a number between 0 and 1, the relative duality gap; got {self.tol!r}.")
        if not (is_number(self.max_iter) and int(self.max_iter) == self.max_iter and self.max_iter >= -1):
            raise InputError(f"max_iter must be a whole number of steps, or -1 for no limit; got {self.max_iter!r}.")
        if not (is_number(self.cache_size) and self.cache_size > 0):
            raise InputError(f"cache_size must be a number of megabytes above 0; got {self.cache_size!r}.")
        if self.refine is not None:
            one_of("refine", self.refine, ("auto", "exact"))

    def _weights(self, sample_weight: Any) -> Array | None:
        """One weight >= 0 per row, or None for all alike; in scikit-learn's words where no row has one."""
        if sample_weight is None:
            return None
        weights = np.asarray(sample_weight, dtype=np.float64)
        if weights.ndim != 1:
            raise InputError(f"sample_weight must be one number per row, 1-D; got shape {weights.shape}.")
        if (weights <= 0.0).all():
            raise InputError("Invalid input - all samples have zero or negative weights.")
        return check_weights(np.maximum(weights, 0.0), len(weights))  # LIBSVM leaves rows of negative weight out

    def _kept(self, objects: Any, weights: Array) -> tuple[Any, Indices]:
        """The objects that take part, and their places among the caller's rows: those without weight are left out.

        An approximation that was passed has all of them; there the rows without weight have no part in a task.
        """
        n = len(weights)
        self.shape_fit_ = (n, n) if self._precomputed else (n, *getattr(objects, "shape", (n,))[1:])
        kept = np.flatnonzero(weights > 0.0)
        if self.approximation is not None or len(kept) == n:
            return objects, np.arange(n)
        return take(objects, kept), kept

    def _judge(self, targets: Array, limits: Array) -> Callable[[Approximation], str]:
        """What names the correction of an indefinite matrix for these targets; ``limits`` are the upper ends C."""
        task = "classification" if is_classifier(self) else "regression"
        return judge_for(targets, task, strength=limits, epsilon=getattr(self, "epsilon", 0.0))

    def _decide(self, objects: Any, kernel: Kernel, *, scored: bool = False) -> Route:
        if self.refine == "exact" and kernel.traits.psd is False:
            raise IndefiniteError(
                f"refine='exact' needs a psd kernel, and {kernel!r} is none. Leave refine at its default; correction "
                "says what is done about negative eigenvalues."
            )
        return super()._decide(objects, kernel, scored=scored)

    def _chosen_for(self, targets: Array) -> Any:
        return self._chooser(codes(targets) if is_classifier(self) else targets)

    # -- duals -----------------------------------------------------------------------------------------------------

    def _solve(
        self, objects: Any, kernel: Kernel, tasks: Sequence[Task], targets: Any = None, limits: Any = None
    ) -> tuple[Array, Array]:
        """Solve all tasks by the route and set what says how that went; returns (coefficients (n, p), intercepts (p,)).

        ``targets`` and ``limits`` of all rows decide what is left open: blocks, rank, gamma and the correction.
        """
        chooser = None if targets is None else self._chosen_for(targets)
        kernel = kernel if chooser is None else self._tune(objects, kernel, chooser)
        past: list[tuple[Task, Dual]] = getattr(self, "_past", []) if self.warm_start else []
        starts = [_moved(*before, task) for before, task in zip(past, tasks, strict=False)]
        starts += [None] * (len(tasks) - len(starts))
        self.refined_ = isinstance(self.route_, Exact) and self.route_.psd
        if self.refined_:
            objects = self._use_exactly(objects, kernel)
            duals = self._exact_duals(kernel, objects, tasks, starts)
            coefficients = _columns(tasks, duals, count_objects(objects))
            self._expansion: Any = KernelExpansion(self._kernel, objects, coefficients)
        elif isinstance(self.route_, Features):
            assert chooser is not None  # there is a target
            features = self._similarity_features(objects, kernel, chooser)
            duals, coefficients = self._solve_features(features, tasks, starts, targets, limits)
        else:
            judge = None if targets is None else self._judge(targets, limits)
            a = self._settle(self._build(objects, kernel, chooser), judge)
            duals, coefficients = self._solve_factored(a, tasks, starts)
        self._past = list(zip(tasks, duals, strict=True)) if self.warm_start else []
        self._report(duals)
        return coefficients, np.array([dual.intercept for dual in duals])

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
        """The duals on the Gram matrix of similarities as features, or on the features where that is too large."""
        task = "classification" if is_classifier(self) else "regression"
        n, epsilon = len(features.own), getattr(self, "epsilon", 0.0)
        features, scale = self._correct_features(
            features,
            lambda names: features.choose_correction(targets, names, task=task, limits=limits, epsilon=epsilon),
        )
        assert isinstance(self.route_, Features)
        most = self.route_.gram_rows
        with uncounted():
            if n <= most:
                G = Precomputed(features.gram(scale), check="sample")
                duals = self._exact_duals(G, np.arange(n), tasks, starts)
            elif all(len(one.rows) <= most for one in tasks):  # pairs of classes have fewer rows
                duals = []
                for one, start in zip(tasks, starts, strict=True):
                    G = Precomputed(features.gram(scale, one.rows), check="sample")
                    own = np.arange(len(one.rows))
                    duals += self._exact_duals(G, own, [replace(one, rows=own)], [start])
            else:
                duals = self._exact_duals(Linear(), features.vectors(scale), tasks, starts)
        coefficients = _columns(tasks, duals, n)
        self._expansion = features.expansion(self._kernel, coefficients, scale)
        return duals, coefficients

    def _solve_factored(
        self, a: Approximation, tasks: Sequence[Task], starts: Sequence[Dual | None]
    ) -> tuple[list[Dual], Array]:
        """The duals on a factorization, and what they are of the exact kernel where that was asked for."""
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
        duals = [self._dual(a, f, K, task, start) for task, start in zip(tasks, starts, strict=True)]
        if self.refined_:
            duals = self._exact_duals(a.kernel, a.objects, tasks, duals)
        coefficients = _columns(tasks, duals, f.shape[0])
        self._expansion = self._expanded(a, f, coefficients, krein)
        if exact:
            self._forget_matrix()
        return duals, coefficients

    def _dual(self, a: Approximation, f: Factorization, K: Array | None, task: Task, start: Dual | None) -> Dual:
        """One dual on the factorization; K is all of it where it is small and was taken whole."""
        psd = not (self.correction_ == "none" and self.n_negative_)
        m, tol, limit = len(task.rows), self.tol, 200 if self.max_iter < 1 else int(self.max_iter)
        if self.refined_:  # all it has to say is which rows come into question
            tol, limit = max(tol, SCREENED[0]), min(limit, SCREENED[1])
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

        if m > DENSE_ROWS or (psd and K is None and LOW_RANK * f.rank < m):
            return factored()
        own = f.entries(task.rows, task.rows) if K is None else K[np.ix_(task.rows, task.rows)]
        return solve_dense(
            own, task, tol=self.tol, max_iter=int(self.max_iter), psd=psd, exact=self.tol <= FINE, start=start,
            other=factored, options={"shrinking": bool(self.shrinking), "cache_size": self.cache_size},
        )  # fmt: skip

    def _expanded(self, a: Approximation, f: Factorization, coefficients: Array, krein: bool) -> Any:
        """The decision functions without their intercepts.

        The Krein-space SVM is trained on |K| = U |M| Uᵀ; its b~ becomes b = U sign(M) Uᵀ b~, so that K b = |K| b~, and
        new objects are compared by the indefinite kernel itself: k(x, X) b = u(x) |M| Uᵀ b~.
        """
        kernel = a.kernel if not self._precomputed else self._kernel
        if self.refined_:
            return KernelExpansion(kernel, a.objects, coefficients)
        inner = f.core @ f.project(coefficients)
        if not isinstance(self.route_, Exact):
            return FactoredExpansion(a, inner)
        if not self._is_corrected:
            return KernelExpansion(kernel, a.objects, coefficients)
        return KernelExpansion(kernel, copied(a.objects), mapped(self._uncorrected.factorization, inner))

    @property
    def _is_corrected(self) -> bool:
        """Whether the matrix of the dual differs from the kernel's own off the diagonal."""
        return self.correction_ == "square" or (self.n_negative_ > 0 and self.correction_ not in ("none", "shift"))

    def _keep(self, support: Indices, kept: Indices, weights: Array | None = None) -> None:
        """Set the support vectors, in the order they are given, ``kept`` naming the caller's rows.

        A kernel expansion over the support vectors themselves keeps those and no other objects.
        """
        self.support_ = kept[support].astype(np.int32)
        self._places: Indices | None = support  # of the support vectors among the objects of the expansion
        e = self._expansion
        if isinstance(self.route_, Features) and self.route_.n_landmarks < self._n_rows:
            self._support_objects = take(self._training[0], support)
        if isinstance(e, KernelExpansion) and (self.refined_ or not self._is_corrected):
            own = e.weights[support] if weights is None else weights
            self._expansion = replace(e, support=take(e.support, support), weights=np.ascontiguousarray(own))
            self._places = None

    def _report(self, duals: Sequence[Dual]) -> None:
        """Set how the duals were solved; say what a factored solver was left with (exact ones say so themselves)."""
        steps = np.array([max(1, dual.n_iter) for dual in duals], dtype=np.int32)
        paths = [np.array(dual.path, dtype=np.float64).reshape(-1, 2) for dual in duals]
        self._set_convergence(np.array([dual.gap for dual in duals]), steps, paths)
        self.converged_ = all(dual.converged for dual in duals)
        self.fit_status_ = 0 if self.converged_ else 1
        left = sum(not dual.converged for dual in duals)
        if left and not self.refined_:
            which = "" if len(duals) == 1 else f" in {left} of {len(duals)} duals"
            limit = f" (max_iter={self.max_iter})" if self.max_iter > 0 else ""
            warn(
                f"Solver terminated early{limit}: {type(self).__name__} reached a relative duality gap of "
                f"{self.gap_:.2g}{which}, tol={self.tol:g} was asked for. Raise max_iter or tol, lower C, or "
                "pre-process the data with StandardScaler or MinMaxScaler.",
                NotConverged,
            )

    def _set_convergence(self, gaps: Array, steps: Indices, paths: Any) -> None:
        self._gaps, self._steps, self.gap_paths_ = gaps, steps, paths
        self.gap_ = float(gaps.max())

    def _values(self, X: Any) -> Array:
        """(n_new, p) decision functions without intercepts, of objects that are checked here."""
        objects = self._new(X)
        values: Array = self._expansion(objects, self.verbose)
        return values

    # -- what scikit-learn's machines have ---------------------------------------------------------------------------

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


def _columns(tasks: Sequence[Task], duals: Sequence[Dual], n: int) -> Array:
    """The coefficients of all rows, one column for each dual."""
    out = np.zeros((n, len(tasks)))
    for p, (task, dual) in enumerate(zip(tasks, duals, strict=True)):
        out[task.rows, p] = dual.coefficients
    return out


def _moved(old: Task, dual: Dual, new: Task) -> Dual | None:
    """The dual of an old task as a start for a new one on as many rows: what lay at a bound lies there again."""
    if len(old.rows) != len(new.rows) or old.kind != new.kind:
        return None
    b = dual.coefficients
    at_high, at_low = (b >= old.high) & (old.high != 0.0), (b <= old.low) & (old.low != 0.0)
    b = np.where(at_high, new.high, np.where(at_low, new.low, np.clip(b, new.low, new.high)))
    return replace(dual, coefficients=b)


def check_C(C: Any) -> float:
    """Return C, or what stands for an infinite one."""
    if not (isinstance(C, int | float | np.number) and not isinstance(C, bool) and C > 0):
        raise InputError(f"C must be a number above 0; got {C!r}.")
    return min(float(C), HUGE)
