"""The support vector machine that learns a psd proxy of an indefinite matrix along with its dual.

In: objects of any symmetric similarity and labels. Out: a classifier with the contract of SVC. `krein.solvers.proxy`
solves each dual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from krein.approximation import Approximation
from krein.arrays import Array
from krein.errors import InputError, positive
from krein.estimators.decision import FactoredExpansion, KernelExpansion, copied, mapped
from krein.estimators.outside import fits_outside
from krein.estimators.route import Exact
from krein.estimators.svm import FACTORED_STEPS, Classifier, check_C, columns
from krein.factorization.core import has_spectrum
from krein.solvers import Dual
from krein.solvers.dense_dual import Task
from krein.solvers.proxy import solve_proxy

__all__ = ["ProxySVC"]


@dataclass(eq=False, repr=False)
class ProxySVC(Classifier):
    """Support vector classification with a proxy matrix for an indefinite kernel (Luss and d'Aspremont 2009).

    The matrix of the dual is not a corrected K, but the psd matrix near K that is worst for the classifier, and both
    are learned together. As ``rho`` grows the proxy becomes the nearest psd matrix, and the machine
    ``SVC(correction="clip")``. New objects are compared by k(x, X) P, where P projects to the eigenvectors of the
    proxy.

    Every step takes an eigendecomposition of the core, and one proxy is learned for each pair of classes. On an
    approximation the proxy has its bases.

    Parameters
    ----------
    rho : float, default=1.0
        Penalty of the squared distance between the proxy and K. With a smaller one the proxy moves further towards the
        labels.
    correction : {"proxy"}, default="proxy"
    C, class_weight, decision_function_shape, break_ties, multi_class, tol, max_iter
        See `krein.SVC`. ``max_iter`` is the number of Newton steps of a dual, -1 for 200. ``refine``, ``shrinking`` and
        ``cache_size`` belong to solvers that this machine does not use. ``probability`` must be False; scikit-learn's
        `CalibratedClassifierCV` has probabilities of any classifier.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    classes_, class_weight_, support_, support_vectors_, n_support_, dual_coef_, intercept_, fit_status_, n_iter_, \
shape_fit_, converged_, gap_, gap_paths_
        See `krein.SVC`. The coefficients and the duality gap belong to the dual of the proxy matrix.
    route_, approximation_, correction_, n_negative_, selection_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> y = X[:, 0] > 0
    >>> bool(krein.ProxySVC(kernel="rbf", rho=10.0).fit(X, y).score(X, y) > 0.9)
    True
    """

    _: KW_ONLY
    C: float = 1.0
    rho: float = 1.0
    correction: Any = "proxy"

    _corrections: ClassVar[tuple[str, ...]] = ("proxy",)
    _deferred: ClassVar[tuple[str, ...]] = ("proxy",)
    _learns_features: ClassVar[bool] = False

    @fits_outside
    def fit(self, X: Any, y: Any) -> ProxySVC:
        """Fit to X (n, d) and labels y (n,). There are no sample weights: the distance to K counts each object once."""
        self._fit(X, y, None, check_C(self.C))
        return self

    def _check_solver(self) -> None:
        super()._check_solver()
        positive(self, "rho", self.rho)
        if self.probability:
            raise InputError(
                "ProxySVC has no probabilities of its own. Leave probability at False, and wrap it in scikit-learn's "
                "CalibratedClassifierCV."
            )
        if self.refine == "exact":
            raise InputError("refine='exact' needs a psd kernel; ProxySVC learns a matrix. Leave it at its default.")

    def _needs_spectrum(self) -> str:
        return "the proxy matrix"

    def _solve_factored(
        self, a: Approximation, tasks: Sequence[Task], starts: Sequence[Dual | None]
    ) -> tuple[list[Dual], Array]:
        f, exact = a.factorization, isinstance(self.route_, Exact)
        if not has_spectrum(f.core):
            raise InputError(
                f"ProxySVC decomposes the core at every step, and that of {f!r} is too large. Build with fewer blocks "
                "or a lower rank."
            )
        steps = FACTORED_STEPS if self.max_iter < 1 else int(self.max_iter)
        solved = [
            solve_proxy(f, task, float(self.rho), tol=self.tol, max_iter=steps, verbose=self.verbose) for task in tasks
        ]
        duals = [dual for dual, _ in solved]
        inner = np.column_stack([task.unit * weights for task, (_, weights) in zip(tasks, solved, strict=True)])
        if exact:
            kernel = self._kernel if self._precomputed else a.kernel
            self._expansion = KernelExpansion(kernel, copied(a.objects), mapped(f, inner))
            self._forget_matrix()
        else:
            self._expansion = FactoredExpansion(a, inner)
        return duals, columns(tasks, duals, f.shape[0])

    @property
    def _is_corrected(self) -> bool:
        return True
