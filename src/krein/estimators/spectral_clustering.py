"""Spectral clustering: objects in, labels of the normalised cut out.

The cut of the kernel's own matrix, or of an approximation, is `normalized_cut`'s; here are the checks of the
similarities, and scikit-learn's three ways from an embedding to labels.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import sklearn  # its cluster is loaded when it is first used: importing krein need not wait for it
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from krein.approximation import Approximation
from krein.arrays import Array, Indices, seed_from, stream
from krein.choosing import whole_approximation
from krein.errors import InputError, one_of, warn, whole_number
from krein.estimators.base import KernelMachine
from krein.estimators.kernel_matrix import kernel_matrix
from krein.estimators.normalized_cut import Cut, Degrees, degrees, exact_cut, normalised_cut
from krein.estimators.outside import fits_outside
from krein.estimators.route import Exact
from krein.factorization import Factorization
from krein.factorization.core import is_dense
from krein.kernels import Evaluator, Kernel, take

__all__ = ["CutMachine", "SpectralClustering", "by_pivots", "by_rotation"]

SOLVERS = (None, "arpack", "lobpcg", "amg")
# Where not all similarities are evaluated, those of SAMPLED_OBJECTS objects are searched for negative ones.
SAMPLED_OBJECTS = 500
# A rotation takes at most ROTATION_STEPS steps.
ROTATION_STEPS = 30
# An eigenvalue of the Laplacian may be LAPLACIAN_TOLERANCE below 0. Labels were right up to 1e-4 and wrong from 0.1 on.
LAPLACIAN_TOLERANCE = 1e-3


@dataclass(eq=False, repr=False, kw_only=True)
class CutMachine(KernelMachine):
    """A machine that uses the eigenvectors of the normalised cut, and the checks of what is cut."""

    eigen_solver: str | None = None
    gamma: Any = 1.0
    affinity: Any = "rbf"
    kernel: Any = None
    n_neighbors: int | None = 10
    eigen_tol: float | str = "auto"
    coef0: float = 1

    _corrections: ClassVar[tuple[str, ...]] = ("auto", "none", "clip", "flip", "square")
    _needs_psd: ClassVar[bool] = False  # a graph's weights need only be no less than zero
    _limit: ClassVar[str] = "clustering_rows"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _cut(self, X: Any, wanted: int, groups: int, seed: int) -> Cut:
        """The cut of X with ``wanted`` eigenvectors, where up to ``groups`` uncoupled groups of blocks are allowed."""
        tol = self._check_cutting()
        objects, _, kernel = self._start(X)
        self._forget("_uncorrected")
        route = self._decide(objects, kernel)
        if isinstance(route, Exact):
            cut, d = self._cut_exactly(objects, kernel, route, wanted, tol, seed)
        else:
            a = self._settle(self._build(objects, kernel), lambda _: "none")
            self._check_connected(a.factorization, groups)
            cut, d = self._cut_factored(a, wanted, tol, seed)
        self.n_nonpositive_degrees_ = d.n_nonpositive
        return cut

    @property
    def affinity_matrix_(self) -> Array:
        """The similarities that were cut, of an exact fit."""
        check_is_fitted(self)
        if not isinstance(self.route_, Exact):
            n = self.approximation_.factorization.shape[0]
            raise AttributeError(f"affinity_matrix_ would be {n} x {n}. approximation_.factorization stands for it.")
        if not hasattr(self, "_training"):
            raise AttributeError("affinity_matrix_ is evaluated on the training objects, which were not saved.")
        return self._similarities(*self._training)

    @property
    def _similarity(self) -> Any:
        return self.affinity if self.kernel is None else self.kernel

    @property
    def _width(self) -> Any:
        brought = isinstance(self._similarity, Kernel) or self.approximation is not None  # with a gamma of its own
        return None if brought and self.gamma == type(self).gamma else self.gamma

    # -- the fit ---------------------------------------------------------------------------------------------------

    def _check_cutting(self) -> float:
        """Check the parameters of the cut and return the tolerance of its eigenvalues."""
        if self.eigen_solver not in SOLVERS:
            raise InputError(f"eigen_solver must be one of {', '.join(map(repr, SOLVERS))}; got {self.eigen_solver!r}.")
        if isinstance(self._similarity, str) and self._similarity.endswith("nearest_neighbors"):
            raise InputError(
                f"affinity={self._similarity!r} is a sparse graph and no kernel to approximate. Use scikit-learn's "
                f"{type(self).__name__} for it, or its matrix with affinity='precomputed'."
            )
        tol = 0.0 if isinstance(self.eigen_tol, str) and self.eigen_tol == "auto" else self.eigen_tol
        if not (isinstance(tol, int | float | np.number) and 0.0 <= tol < np.inf):
            raise InputError(f'eigen_tol must be "auto" or a number of at least 0; got {self.eigen_tol!r}.')
        return float(tol)

    def _similarities(self, objects: Any, kernel: Kernel) -> Array:
        """The kernel's own matrix, corrected."""
        if self.correction_ == "none" or not (self.n_negative_ or self.correction_ == "square"):
            return kernel_matrix(kernel, objects)
        return whole_approximation(objects, kernel).corrected(self.correction_).factorization.to_dense()

    def _cut_exactly(
        self, objects: Any, kernel: Kernel, route: Exact, wanted: int, tol: float, seed: int
    ) -> tuple[Cut, Degrees]:
        """The cut of the kernel's own matrix, corrected if that was asked for."""
        if route.psd or self.correction in ("auto", "none"):
            objects = self._use_exactly(objects, kernel)
            K = kernel_matrix(kernel, objects)
            if not route.psd:
                self._settle_exactly(K, kernel, "none")
        else:
            K = self._settle(self._build(objects, kernel)).factorization.to_dense()
            self._forget_matrix()
        negative = self._has_negative(K)
        cut, d = exact_cut(K, wanted, tol=tol, seed=seed)
        self._check_degrees(d, kernel, negative)
        self._check_cut(cut, negative, wanted)
        return cut, d

    def _cut_factored(self, a: Approximation, wanted: int, tol: float, seed: int) -> tuple[Cut, Degrees]:
        """The cut of an approximation; a sample of the kernel's own values is searched for negative ones."""
        n = a.factorization.shape[0]
        some = take(a.objects, np.sort(stream(seed, 31).choice(n, min(n, SAMPLED_OBJECTS), replace=False)))
        nonnegative = _is_nonnegative(a.kernel)
        negative = not nonnegative and self._has_negative(Evaluator(a.kernel).block(some, some))
        d = degrees(a.factorization)
        self._check_degrees(d, a.kernel, negative)
        cut = normalised_cut(a.factorization, d, wanted, tol=tol, seed=seed)
        self._check_cut(cut, negative, wanted)
        return cut, d

    def _check_degrees(self, d: Degrees, kernel: Kernel, negative: bool) -> None:
        """Warn of rows without a degree, and refuse where negative similarities leave none to most rows."""
        n = len(d.sums)
        if not d.n_nonpositive:
            return
        if negative and 2 * d.n_nonpositive > n:
            raise InputError(
                f"The normalised cut needs similarities >= 0, but with {kernel!r} {d.n_nonpositive} of {n} row "
                "sums are not above 0. Use a kernel that is not negative, such as 'rbf' or 'laplacian'."
            )
        warn(
            f"{d.n_nonpositive} of {n} rows have similarities to the others that sum up to nothing or less. They "
            "count as connected to no other. A smaller gamma connects them, a higher rank approximates them better."
        )

    def _check_cut(self, cut: Cut, negative: bool, wanted: int) -> None:
        """Warn of an approximation that is too coarse, and of a graph in more pieces than eigenvectors."""
        if not negative and cut.values[0] > 1.0 + LAPLACIAN_TOLERANCE:
            warn(
                f"The approximation is too coarse for a cut: its Laplacian has an eigenvalue {1 - cut.values[0]:.2g}, "
                "and similarities >= 0 allow none below 0. Use a smaller gamma (a wider kernel), a higher rank or more "
                "blocks."
            )
        if cut.n_pieces > wanted:
            warn(
                f"The graph is not connected: to rounding it falls into {cut.n_pieces} pieces, more than the {wanted} "
                "eigenvectors used, so that many cuts are equally good and this one is arbitrary. A smaller gamma (a "
                "wider kernel) connects it."
            )

    def _check_connected(self, f: Factorization, groups: int) -> None:
        """A core that falls apart is a graph that does, and its best cut is none of the data's."""
        if is_dense(f.core):
            return
        parts = len(np.unique(f.core.components[np.asarray(f.ranks) > 0]))
        if parts <= 1:
            return
        message = (
            f"The approximation keeps no similarities between {parts} groups of its {f.n_blocks} blocks, and a cut "
            "finds those groups first. Use fewer blocks, or hand in approximation=krein.approximate(..., drop=0.0)."
        )
        if parts > groups:
            raise InputError(f"{message} More groups than clusters ({groups}) leave nothing to be cut.")
        warn(message)

    def _has_negative(self, K: Array) -> bool:
        """Whether there are similarities below zero, and a warning if so."""
        low = float(K.min(initial=0.0))
        rounding = 1e-12 * max(float(K.max(initial=0.0)), -low)
        if low >= -rounding:
            return False
        share = float((-rounding > K).mean())
        warn(
            f"The normalised cut needs similarities >= 0, but {100 * share:.2g} % of those looked at are "
            f"negative, the smallest {low:.3g}. Use a kernel that is not negative, such as 'rbf'."
        )
        return True


@dataclass(eq=False, repr=False)
class SpectralClustering(ClusterMixin, CutMachine):  # type: ignore[misc]
    """Spectral clustering by the normalised cut with any symmetric similarity, for any number of rows.

    The parameters are those of `sklearn.cluster.SpectralClustering`. The cut is that of the kernel's own matrix up to
    ``policy.clustering_rows`` rows of a psd kernel and ``policy.exact_rows`` rows of any other. With more rows it is
    that of an approximation, and no n x n matrix is formed. A cut does not need a psd matrix. An indefinite kernel is
    used without a correction by default, with a warning. It does need similarities that are not negative.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    eigen_solver : {None, "arpack", "lobpcg", "amg"}, default=None
        As in scikit-learn. All values mean Lanczos iteration, on the matrix or on a factored inverse. If it does not
        converge, a matrix of up to 2000 rows, or the kernel's own matrix, is decomposed completely. Otherwise it is an
        error; the usual cause is a kernel so narrow that rows are not connected.
    n_components : int, default=None
        Number of eigenvectors. None means ``n_clusters``.
    n_init : int, default=10
        Number of k-means starts.
    gamma : float, default=1.0
        Coefficient of "rbf", "laplacian", "poly" and "sigmoid". A krein kernel has its own gamma: the default
        of 1.0 is not applied to it; another value is used if the kernel's gamma is None, and is an error otherwise.
    affinity : str, Kernel or callable, default="rbf"
        The similarity, with the values of ``kernel`` in other krein machines. Nearest-neighbour graphs are not
        supported.
    kernel : str, Kernel or callable, default=None
        Another name for ``affinity``. If given, it is used instead.
    n_neighbors : int, default=10
        Ignored. It is there for compatibility with scikit-learn.
    eigen_tol : float or "auto", default="auto"
        Relative accuracy of the eigenvalues. "auto" means machine precision.
    assign_labels : {"kmeans", "discretize", "cluster_qr"}, default="kmeans"
        How labels are computed from the eigenvectors.
    correction : {"auto", "none", "clip", "flip", "square"}, default="auto"
        Applied to the matrix before it is cut. "auto" is "none". There is no "shift", because a cut does not depend on
        self-similarities.
    degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, approximation, policy, \
random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    labels_ : array of shape (n,)
        The cluster of each row.
    affinity_matrix_ : array of shape (n, n)
        Similarities of an exact fit. They are evaluated on access, and not saved in pickles and files.
    n_nonpositive_degrees_ : int
        Number of rows without connections: their similarities to other rows have a sum of 0 or less, or in an
        approximation of less than a millionth of the median.
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the normalised Laplacian, ascending.
    route_, approximation_, correction_, n_negative_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(50, 2)), rng.normal(size=(50, 2)) + 8.0])
    >>> labels = krein.SpectralClustering(n_clusters=2, gamma=0.5, random_state=0).fit_predict(X)
    >>> len(set(labels[:50])), len(set(labels[50:])), bool(labels[0] != labels[-1])
    (1, 1, True)
    """

    n_clusters: int = 8
    _: KW_ONLY
    n_components: int | None = None
    n_init: int = 10
    assign_labels: str = "kmeans"

    @fits_outside
    def fit(self, X: Any, y: Any = None) -> SpectralClustering:
        """Cluster X."""
        whole_number("n_clusters", self.n_clusters, 1)
        whole_number("n_init", self.n_init, 1)
        if self.n_components is not None:
            whole_number("n_components", self.n_components, 1, ", or None")
        one_of("assign_labels", self.assign_labels, ("kmeans", "discretize", "cluster_qr"))
        seed = seed_from(self.random_state)
        cut = self._cut(X, int(self.n_components or self.n_clusters), self.n_clusters, seed)
        self.eigenvalues_ = 1.0 - cut.values
        self.labels_ = self._labels(cut.embedding, seed)
        return self

    @fits_outside
    def fit_predict(self, X: Any, y: Any = None) -> Indices:
        """Cluster X and return the labels."""
        return np.asarray(self.fit(X).labels_)

    def _labels(self, embedding: Array, seed: int) -> Indices:
        if self.verbose > 0:
            print(f"Computing label assignment using {self.assign_labels}")
        # A piece of hardly any degree has entries whose squares overflow; a power of two changes nothing else.
        embedding = np.ldexp(embedding, -int(np.frexp(np.abs(embedding).max())[1]))
        if self.assign_labels == "cluster_qr":
            return by_pivots(embedding)
        if self.assign_labels == "discretize":
            return by_rotation(embedding, stream(seed, 32))
        start = int(stream(seed, 33).integers(2**31 - 1))
        found: Indices = sklearn.cluster.k_means(
            embedding, self.n_clusters, random_state=start, n_init=self.n_init, verbose=bool(self.verbose)
        )[1]
        return found


def by_pivots(embedding: Array) -> Indices:
    """Labels by the rows that pivoted QR picks, one for each column (Damle, Minden and Ying, 2019)."""
    p = embedding.shape[1]
    pivots = scipy.linalg.qr(embedding.T, mode="r", pivoting=True)[1][:p]
    left, _, right = np.linalg.svd(embedding[pivots].T)
    return np.asarray(np.abs(embedding @ (left @ right)).argmax(1))


def by_rotation(embedding: Array, rng: np.random.Generator) -> Indices:
    """Labels by the rotation that brings the rows nearest to indicators (Yu and Shi, 2003)."""
    columns = embedding / np.linalg.norm(embedding, axis=0).clip(np.finfo(float).tiny)
    rows = columns / np.linalg.norm(columns, axis=1, keepdims=True).clip(np.finfo(float).tiny)
    p = rows.shape[1]
    turn = np.empty((p, p))
    turn[:, 0] = rows[rng.integers(len(rows))]
    met = np.zeros(len(rows))
    for j in range(1, p):  # each next one as far as can be from those before
        met += np.abs(rows @ turn[:, j - 1])
        turn[:, j] = rows[np.argmin(met)]
    labels, fit = np.zeros(len(rows), dtype=np.intp), -np.inf
    for _ in range(ROTATION_STEPS):
        labels = (rows @ turn).argmax(1)
        sums = np.zeros((p, p))
        np.add.at(sums, labels, rows)
        left, values, right = np.linalg.svd(sums)
        if values.sum() <= fit * (1.0 + 1e-12):
            break
        fit, turn = float(values.sum()), (left @ right).T
    return np.asarray(labels)


def _is_nonnegative(kernel: Kernel) -> bool:
    """Whether the kernel declares that it has no values below zero."""
    low = kernel.traits.low
    return low is not None and low >= 0.0
