"""What the support vector machines share: tasks solved on the factored matrix, and what a fit leaves behind.

A machine states its duals (`Task`); here each one is solved, by LIBSVM and a polish where its rows are few, by the
factored solvers where they are many, and all of them together become one `Expansion`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from krein.approximation import Approximation
from krein.arrays import Array, Indices
from krein.correction import CORRECTIONS, correct
from krein.eigensystem import eigensystem
from krein.errors import IndefiniteError, InputError, one_of, warn
from krein.estimators.corrections import judge_for
from krein.estimators.expansion import Expansion, expand, is_exact, own_matrix
from krein.estimators.machine import PLAIN, KernelMachine, check_weights
from krein.estimators.selection import codes
from krein.estimators.whole import quietly, refines_quickly
from krein.factorization import Factorization
from krein.kernels import Kernel, Linear, count_objects, take
from krein.kernels.kernel import is_number
from krein.kernels.objects import is_sparse
from krein.solvers import Dual, solve_dual
from krein.solvers.dense_dual import NotConverged, Task, made_exact, solve_dense
from krein.solvers.exact import solve_exactly
from krein.solvers.rows import is_quick

__all__ = ["DualMachine", "NotConverged"]

SCREENED = (1e-2, 100)  # relative gap of a factored dual that is only a start, and its steps at most
REFINED_ROWS = 20_000  # up to which the exact kernel's dual is solved where nothing is said of blocks or memory,
QUICK_ROWS = 50_000  # the same where its rows need not be kept and the box is not wide,
SCREEN = (8, 32)  # and the blocks and rank that say which rows may be support vectors
LOOKED_AT = 1000  # rows whose k(x, x) says how wide a box is
DENSE_ROWS = 3000  # rows up to which a task is given to LIBSVM as a dense matrix
FINE = 1e-4  # a tol above it is met by LIBSVM alone; up to it small duals are solved to rounding
LOW_RANK = 3  # rows per rank from which on the factored solver is the faster one anyway
HUGE = 1e10  # stands for C = inf: no hard margin needs more


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

    def _approximated(
        self, objects: Any, kernel: Kernel, weights: Array, targets: Any = None, limits: Array | None = None
    ) -> tuple[Approximation, Indices]:
        """The corrected approximation, and the rows of it with a weight; the others are not in it, if it is a new one.

        ``_rows`` says which of the caller's rows it has. Targets, and how far each dual may go, decide what is left
        open: blocks, rank, gamma and the correction.
        """
        kept = np.flatnonzero(weights > 0.0)
        n = len(weights)
        self._rows = np.arange(n)
        self.shape_fit_ = (n, n) if self._precomputed else (n, *getattr(objects, "shape", (n,))[1:])
        if self.approximation is None and len(kept) < len(self._rows):
            self._rows, objects, kept = kept, take(objects, kept), np.arange(len(kept))
        chooser, judge = None, None
        classes = is_classifier(self)
        y, own = (None if given is None else given[self._rows] for given in (targets, limits))
        self._screened = screened = self._screens(objects, kernel, None if classes else y, own)
        if y is not None and own is not None:
            chooser = None if screened else self._chooser(codes(y) if classes else y)
            judge = judge_for(
                y, "classification" if classes else "regression", strength=own, epsilon=getattr(self, "epsilon", 0.0)
            )
        with quietly() if screened else contextlib.nullcontext():
            a = self._factor(objects, kernel, chooser, SCREEN if screened else PLAIN)
        a = self._settle(a, judge)
        self.refined_ = not self._direct and (self.refine == "exact" or (screened and not self.n_negative_))
        if self.refine == "exact" and self.n_negative_:
            raise IndefiniteError(
                f"refine='exact' needs a psd kernel, but {a.kernel!r} gave {self.n_negative_} negative eigenvalues. "
                "Leave refine at its default; correction_ says what was done about them."
            )
        return a, kept

    def _screens(self, objects: Any, kernel: Kernel, numbers: Array | None, limits: Array | None) -> bool:
        """Whether few enough rows are left to the machine that the exact kernel's dual is the quickest way too.

        ``numbers`` are the targets of a regression, and ``limits`` what each coefficient can be.
        """
        if self.refine is None:
            return False
        n, most = count_objects(objects), REFINED_ROWS
        if REFINED_ROWS < n <= QUICK_ROWS and is_quick(kernel, objects):
            high = np.ones(n) if limits is None else limits
            kind, linear = ("margin", np.ones(n)) if numbers is None else ("tube", np.asarray(numbers, np.float64))
            task = Task(kind, np.arange(n), linear, -high, high, epsilon=float(getattr(self, "epsilon", 0.0)))
            some = np.linspace(0, n - 1, LOOKED_AT).astype(np.intp)
            usual = float(np.abs(kernel.diag(take(objects, some))).mean())
            most = QUICK_ROWS if refines_quickly(kernel, objects, task, usual) else most
        return self._takes_whole(objects, kernel, most)

    # -- duals -----------------------------------------------------------------------------------------------------

    def _solve(self, a: Approximation, tasks: Sequence[Task]) -> tuple[Array, Array]:
        """Solve all tasks and set what says how that went; returns (coefficients (n, p), intercepts (p,))."""
        f, krein = a.factorization, self.correction_ == "krein" and self.n_negative_ > 0
        if krein:
            f = correct(f, "flip")
        if self.correction_ == "none" and self.n_negative_:
            warn(
                f"{a.kernel!r} gave an indefinite matrix ({self.n_negative_} negative eigenvalues) and "
                f"correction='none' was asked for: {type(self).__name__}'s dual is not convex, what is found is a "
                "stationary point of it."
            )
        before: list[tuple[Task, Dual]] = getattr(self, "_past", []) if self.warm_start else []
        starts = [_moved(*past, task) for past, task in zip(before, tasks, strict=False)]
        starts += [None] * (len(tasks) - len(starts))
        whole = self._whole(a)
        if self.refined_ and self._screened:
            duals = self._exactly(a, tasks, starts)
        else:
            duals = [self._dual(a, f, whole, task, start) for task, start in zip(tasks, starts, strict=True)]
            if self.refined_:
                duals = self._exactly(a, tasks, duals)
        self._past = list(zip(tasks, duals, strict=True)) if self.warm_start else []
        coefficients = np.zeros((f.shape[0], len(tasks)))
        for p, (task, dual) in enumerate(zip(tasks, duals, strict=True)):
            coefficients[task.rows, p] = dual.coefficients
        intercepts = np.array([dual.intercept for dual in duals])
        self._report(duals)
        self._expansion = self._expanded(a, coefficients, krein)
        return coefficients, intercepts

    def _keep(self, support: Indices, coefficients: Array, intercepts: Array) -> None:
        """Set what is known of the support vectors, rows of the approximation, in the order they are given."""
        self.support_ = self._rows[support].astype(np.int32)
        self._by_support = sp.csr_matrix(coefficients[support])  # (n_SV, p)
        self.intercept_ = intercepts

    def _whole(self, a: Approximation) -> Array | None:
        """All of a small matrix by the kernel itself, where that is what is meant."""
        return own_matrix(a) if self._direct else None

    def _exactly(self, a: Approximation, tasks: Sequence[Task], starts: Sequence[Dual | None]) -> list[Dual]:
        """The exact kernel's duals."""
        return solve_exactly(
            a.kernel, a.objects, tasks, tol=self.tol, max_iter=int(self.max_iter), shrinking=bool(self.shrinking),
            cache_size=self.cache_size, starts=starts, verbose=self.verbose,
        )  # fmt: skip

    def _dual(self, a: Approximation, f: Factorization, whole: Array | None, task: Task, start: Dual | None) -> Dual:
        options = {"shrinking": bool(self.shrinking), "cache_size": self.cache_size}
        psd = not (self.correction_ == "none" and self.n_negative_)
        m = len(task.rows)
        refined = self.refined_
        tol, limit = self.tol, 200 if self.max_iter < 1 else int(self.max_iter)
        if refined:  # all it has to say is which rows come into question
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

        if m > DENSE_ROWS or (psd and LOW_RANK * f.rank < m):
            dual = factored()
            if whole is not None:
                dual = made_exact(whole[np.ix_(task.rows, task.rows)], task, dual, self.tol)
        else:
            K = f.entries(task.rows, task.rows) if whole is None else whole[np.ix_(task.rows, task.rows)]
            dual = solve_dense(
                K, task, tol=self.tol, max_iter=int(self.max_iter), psd=psd,
                exact=m <= DENSE_ROWS and self.tol <= FINE, start=start, other=factored, options=options,
            )  # fmt: skip
        return dual

    def _expanded(self, a: Approximation, coefficients: Array, krein: bool) -> Expansion:
        """The decision functions without their intercepts.

        The Krein-space SVM is trained on |K| = U |M| Uᵀ; its b~ becomes b = U sign(M) Uᵀ b~, so that K b = |K| b~, and
        new objects are compared by the indefinite kernel itself: k(x, X) b.
        """
        if self.refined_:
            return expand(a, coefficients, direct=True)
        if not krein:
            return expand(a, coefficients, self._direct)
        own = a.factorization
        system = eigensystem(own.core, own.ranks)
        mapped = own.lift(system.apply(np.sign(system.values), own.project(coefficients)))
        return expand(a, mapped, is_exact(a))

    def _report(self, duals: Sequence[Dual]) -> None:
        self._gaps = np.array([dual.gap for dual in duals])
        self._steps = np.array([max(1, dual.n_iter) for dual in duals], dtype=np.int32)
        self.gap_ = float(self._gaps.max())
        self.gap_paths_ = [np.array(dual.path, dtype=np.float64).reshape(-1, 2) for dual in duals]
        self.converged_ = all(dual.converged for dual in duals)
        self.fit_status_ = 0 if self.converged_ else 1
        left = sum(not dual.converged for dual in duals)
        if left and not self.refined_:  # the exact solvers say themselves what they are left with
            which = "" if len(duals) == 1 else f" in {left} of {len(duals)} duals"
            limit = f" (max_iter={self.max_iter})" if self.max_iter > 0 else ""
            warn(
                f"Solver terminated early{limit}: {type(self).__name__} reached a relative duality gap of "
                f"{self.gap_:.2g}{which}, tol={self.tol:g} was asked for. Raise max_iter or tol, lower C, or "
                "pre-process the data with StandardScaler or MinMaxScaler.",
                NotConverged,
            )

    def _values(self, X: Any) -> Array:
        """(n_new, p) decision functions without intercepts, of objects that are checked here."""
        objects = self._new(X)
        return self._expansion(objects, self.verbose)

    # -- what scikit-learn's machines have ---------------------------------------------------------------------------

    @property
    def support_vectors_(self) -> Any:
        """The support vectors, grouped by class where there are classes; none for a precomputed matrix."""
        check_is_fitted(self)
        if self._precomputed:
            return np.empty((0, 0))
        return take(self.approximation_.objects, np.searchsorted(self._rows, self.support_))

    @property
    def coef_(self) -> Array:
        """One weight per feature and decision function, for linear kernels; read-only."""
        if not (isinstance(self.kernel, str) and self.kernel == "linear") and not isinstance(self.kernel, Linear):
            raise AttributeError("coef_ is only available when using a linear kernel")
        check_is_fitted(self)
        found: Any = self._by_support.T @ self.support_vectors_
        weights = np.array(found.toarray() if is_sparse(found) else found, dtype=np.float64)
        weights.flags.writeable = False
        return weights


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
