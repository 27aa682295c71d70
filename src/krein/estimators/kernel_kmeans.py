"""Kernel k-means: objects in, clusters around means in the kernel's feature space out.

The kernel's own matrix has a pivoted Cholesky factor L with K = L Lᵀ, and a psd factorization has a root W of its core
with K ~ (U W)(U W)ᵀ. The rows of L or U W have the inner products of the feature space, so that k-means on them is
kernel k-means. A mean m is a combination h of the pivots, L₁₁ᵀ h = m, where L₁₁ holds their rows of L. New objects are
compared with it by the kernel.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import sklearn  # its cluster is loaded when it is first used: importing krein need not wait for it
from sklearn.base import ClusterMixin

from krein.approximation import Approximation
from krein.arrays import Array, Indices, seed_from, stream
from krein.errors import IndefiniteError, InputError, is_number, warn, whole_number
from krein.estimators.base import KernelTransformer
from krein.estimators.decision import Expansion, FactoredExpansion, KernelExpansion, copied, seen_by
from krein.estimators.kernel_matrix import kernel_matrix
from krein.estimators.meka import feature_map
from krein.estimators.outside import fits_outside, predicts_outside
from krein.estimators.route import Exact
from krein.kernels import Evaluator, Kernel, count_objects, take
from krein.kernels.collections import is_sparse

__all__ = ["KernelKMeans"]


@dataclass(eq=False, repr=False)
class KernelKMeans(ClusterMixin, KernelTransformer):  # type: ignore[misc]
    """K-means in the feature space of any symmetric kernel, for any number of rows.

    The parameters are those of `sklearn.cluster.KMeans`. The kernel's own matrix is used up to
    ``policy.exact_rows`` rows. With more rows it is an approximation, and the fit holds n vectors of the length of its
    rank.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    n_init : int, default=10
        Number of starts by k-means++. The result with the smallest inertia is kept.
    max_iter : int, default=300
        Largest number of iterations from one start.
    tol : float, default=1e-4
        Convergence tolerance of the means, as in scikit-learn.
    correction : {"auto", "none", "clip", "flip", "square"}, default="auto"
        How an indefinite matrix is made psd. "auto" is "clip". There is no "shift", because adding to all
        self-similarities does not change which clusters are best.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    labels_ : array of shape (n,)
        The cluster of each row.
    inertia_ : float
        Sum of squared distances to the means in feature space.
    n_iter_ : int
        Number of iterations of the best start.
    route_, approximation_, correction_, n_negative_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.array([[1.0, 2.0], [1.0, 4.0], [1.0, 0.0], [10.0, 2.0], [10.0, 4.0], [10.0, 0.0]])
    >>> machine = krein.KernelKMeans(n_clusters=2, kernel="linear", random_state=0).fit(X)
    >>> round(machine.inertia_, 6)
    16.0
    >>> bool((machine.predict([[0.0, 0.0], [12.0, 3.0]]) == machine.labels_[[0, 3]]).all())
    True
    """

    n_clusters: int = 8
    _: KW_ONLY
    n_init: int = 10
    max_iter: int = 300
    tol: float = 1e-4

    _corrections: ClassVar[tuple[str, ...]] = ("auto", "none", "clip", "flip", "square")

    @fits_outside
    def fit(self, X: Any, y: Any = None) -> KernelKMeans:
        """Cluster X."""
        for name in ("n_clusters", "n_init", "max_iter"):
            whole_number(name, getattr(self, name), 1)
        if not (is_number(self.tol) and self.tol >= 0.0):
            raise InputError(f"tol must be a number of at least 0; got {self.tol!r}.")
        objects, _, kernel = self._start(X)
        if count_objects(objects) < self.n_clusters:
            raise InputError(
                f"n_samples={count_objects(objects)} should be >= n_clusters={self.n_clusters}. Ask for fewer clusters."
            )
        self._forget("_uncorrected")
        route = self._decide(objects, kernel)
        if isinstance(route, Exact) and route.psd:
            self._fit_exactly(self._use_exactly(objects, kernel), kernel)
        else:
            self._fit_factored(self._settle(self._build(objects, kernel), lambda _: "clip"))
        return self

    @fits_outside
    def fit_predict(self, X: Any, y: Any = None) -> Indices:
        """Cluster X and return the labels."""
        return np.asarray(self.fit(X).labels_)

    @predicts_outside
    def predict(self, X: Any) -> Indices:
        """Return the cluster whose mean is nearest, for each row of X."""
        return np.asarray(self._relative_distances(self._new(X)).argmin(1).astype(np.int32))

    @predicts_outside
    def transform(self, X: Any) -> Array:
        """Return the distances to the means in feature space, (n_new, n_clusters)."""
        return np.sqrt(self._squared_distances(X)).astype(self._precision(X), copy=False)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the sum of squared distances to the nearest means."""
        return -float(self._squared_distances(X).min(1).sum())

    @property
    def _n_features_out(self) -> int:
        return int(self.n_clusters)

    # -- the fit ---------------------------------------------------------------------------------------------------

    def _fit_exactly(self, objects: Any, kernel: Kernel) -> None:
        L, pivots = _cholesky(kernel_matrix(kernel, objects))
        means = self._cluster(L)
        weights = scipy.linalg.solve_triangular(L[pivots], means.T, lower=True, trans="T")
        self._expansion: Expansion = KernelExpansion(self._kernel, copied(take(objects, pivots)), weights)

    def _fit_factored(self, a: Approximation) -> None:
        f = a.factorization
        if self.n_negative_ and self.correction_ == "none":
            raise IndefiniteError(
                f"Means need a feature space, but {a.kernel!r} gave {self.n_negative_} negative eigenvalues of "
                f"{f.rank}. Pass correction='clip' to drop them, 'flip' to use their magnitude."
            )
        if f.shift > 0.0:
            warn(
                f"The approximation has a shift of {f.shift:.3g}, which does not change the best clusters. They are "
                "those of the matrix without it and without its negative part, as with correction='clip'."
            )
        found, _ = feature_map(f, None, seed_from(self.random_state))
        W: Array = found.toarray() if is_sparse(found) else found
        self._expansion = FactoredExpansion(a, W @ self._cluster(f.lift(W)).T)

    def _cluster(self, rows: Array) -> Array:
        """Run k-means on the vectors of all objects and return the means."""
        start = int(stream(seed_from(self.random_state), 34).integers(2**31 - 1))
        found = sklearn.cluster.KMeans(
            self.n_clusters, n_init=self.n_init, max_iter=self.max_iter, tol=self.tol, random_state=start,
            verbose=int(self.verbose), copy_x=False,
        ).fit(rows)  # fmt: skip
        self.labels_, self.inertia_, self.n_iter_ = found.labels_, float(found.inertia_), int(found.n_iter_)
        self._norms = (found.cluster_centers_**2).sum(1)
        return np.asarray(found.cluster_centers_)

    # -- new objects -----------------------------------------------------------------------------------------------

    def _relative_distances(self, objects: Any) -> Array:
        """Squared distances to the means minus k(x, x), (n_new, n_clusters)."""
        return np.asarray(self._norms - 2.0 * self._expansion(objects, self.verbose))

    def _squared_distances(self, X: Any) -> Array:
        objects = self._new(X)
        relative = self._relative_distances(objects)
        if isinstance(self._expansion, FactoredExpansion):
            a, objects = seen_by(self._expansion.approximation, objects)
            own = a.self_similarities(objects) - a.factorization.shift
        else:
            own = Evaluator(self._kernel).diag(objects)
        return np.maximum(relative + own[:, None], 0.0)


def _cholesky(K: Array) -> tuple[Array, Indices]:
    """Return L (n, r) with K = L Lᵀ up to rounding, and the r pivots, whose rows of L are lower triangular."""
    factor, order, rank, _ = scipy.linalg.lapack.dpstrf(K.T, lower=1, overwrite_a=1)
    rank = max(1, int(rank))
    L = np.empty((len(K), rank))
    L[order - 1] = np.tril(factor)[:, :rank]
    return L, order[:rank] - 1
