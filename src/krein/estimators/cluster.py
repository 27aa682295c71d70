"""Spectral clustering on the factored matrix: objects in, labels of the normalised cut out.

The cut is `krein.estimators.cut`'s; here are the similarities it may be asked of, and the three ways from an embedding
to labels that scikit-learn has.
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
from krein.blocksparse import BlockSparse
from krein.errors import InputError, one_of, warn, whole_number
from krein.estimators.cut import Cut, Degrees, degrees, exact_cut, normalised_cut
from krein.estimators.expansion import own_matrix
from krein.estimators.machine import KernelMachine
from krein.factorization import Factorization
from krein.kernels import Evaluator, Kernel, count_objects, take

__all__ = ["SpectralClustering", "by_pivots", "by_rotation"]

SOLVERS = (None, "arpack", "lobpcg", "amg")
SAMPLED = 500  # objects whose similarities are looked at for negative ones
ROUNDS = 30  # of a rotation, at most
WEAK = 1e-4  # times the usual degree: rows below it are looked at again
COARSE = 1e-3  # how far below 0 a Laplacian's eigenvalue may be; labels were wrong from 1e-1 on and right up to 1e-4


@dataclass(eq=False, repr=False)
class SpectralClustering(ClusterMixin, KernelMachine):  # type: ignore[misc]
    """Spectral clustering by the normalised cut, with scikit-learn's parameters, on data of any size.

    Up to 2000 rows it is scikit-learn's cut of the kernel's own values. Beyond, that of the approximated matrix: no
    n x n matrix is formed, and the eigenproblem costs one factorization of r rows. Definiteness plays no part in a cut,
    so an indefinite kernel is used as it is, with a warning (``correction="auto"`` is "none"); similarities below zero
    do.

    Parameters
    ----------
    n_clusters : int
    affinity : str, Kernel or callable
        The similarity, as `kernel` in the other machines: scikit-learn's name for it. Graphs of nearest neighbours
        (and with them `n_neighbors`) are not supported: they are sparse already.
    kernel : str, Kernel or callable, optional
        krein's name for `affinity`; what it says counts if it is given.
    gamma : float
        Of "rbf", "laplacian", "poly" and "sigmoid". A krein kernel brings its own: the default is not applied to it.
    n_components : int, optional
        Eigenvectors to use, `n_clusters` if None.
    n_init : int
        Starts of k-means.
    assign_labels : "kmeans", "discretize" or "cluster_qr"
        How the embedding is cut into clusters.
    eigen_solver : None, "arpack", "lobpcg" or "amg"
        scikit-learn's names; all mean Lanczos on the factored inverse. Where that does not converge, up to 2000 rows
        are decomposed as a whole, and more are an error: a kernel too narrow to connect the rows.
    eigen_tol : float or "auto"
        Relative accuracy of the eigenvalues; "auto" is that of the arithmetic.
    correction : "auto", "none", "clip", "flip" or "square"
        Applied to the matrix before it is cut. A shift is none of them: self-similarities are no part of a cut.
    degree, coef0, kernel_params, n_blocks, rank, coupling, max_error, max_memory, dtype, approximation, random_state,
    n_jobs, verbose
        See `krein.estimators.machine.KernelMachine`.

    Attributes
    ----------
    labels_ : array of shape (n,)
    affinity_matrix_ : array of shape (n, n)
        The similarities that were cut, computed when asked for and only up to 2000 rows; `approximation_` has them all.
    n_nonpositive_degrees_ : int
        Rows whose similarities to the others do not sum up to more than 0, where the approximation or the kernel has
        negative ones, or to more than a millionth of the usual: they count as connected to nothing.
    eigenvalues_ : array of shape (n_components,)
        Of the normalised Laplacian, ascending.
    approximation_, correction_, n_negative_, relative_error_
        What happened to the kernel matrix.
    """

    n_clusters: int = 8
    _: KW_ONLY
    eigen_solver: str | None = None
    n_components: int | None = None
    n_init: int = 10
    gamma: Any = 1.0
    affinity: Any = "rbf"
    kernel: Any = None
    n_neighbors: int = 10
    eigen_tol: float | str = "auto"
    assign_labels: str = "kmeans"
    coef0: float = 1

    _corrections: ClassVar[tuple[str, ...]] = ("auto", "none", "clip", "flip", "square")
    _needs_psd: ClassVar[bool] = False  # a graph's weights need only be no less than zero

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any = None) -> SpectralClustering:
        """Cluster X."""
        wanted, tol = self._check()
        seed = seed_from(self.random_state)
        objects, _, kernel = self._start(X)
        a = self._settle(self._factor(objects, kernel), lambda _: "none")
        self._check_connected(a.factorization)
        cut, d = self._cut(a, wanted, tol, seed)
        self.n_nonpositive_degrees_ = d.n_nonpositive
        self.eigenvalues_ = 1.0 - cut.values
        self.labels_ = self._labels(cut.embedding, seed)
        return self

    def fit_predict(self, X: Any, y: Any = None) -> Indices:
        """Cluster X and return the labels."""
        return np.asarray(self.fit(X).labels_)

    @property
    def affinity_matrix_(self) -> Array:
        """The similarities that were cut, for data small enough to have been taken exactly."""
        check_is_fitted(self)
        if not self._direct:
            n = self.approximation_.factorization.shape[0]
            raise AttributeError(f"affinity_matrix_ would be {n} x {n}. approximation_.factorization stands for it.")
        return _own_matrix(self.approximation_)

    @property
    def _similarity(self) -> Any:
        return self.affinity if self.kernel is None else self.kernel

    @property
    def _width(self) -> Any:
        brought = isinstance(self._similarity, Kernel) or self.approximation is not None  # with a gamma of its own
        return None if brought and self.gamma == 1.0 else self.gamma

    # -- the fit ---------------------------------------------------------------------------------------------------

    def _check(self) -> tuple[int, float]:
        whole_number("n_clusters", self.n_clusters, 1)
        whole_number("n_init", self.n_init, 1)
        if self.n_components is not None:
            whole_number("n_components", self.n_components, 1, ", or None")
        one_of("assign_labels", self.assign_labels, ("kmeans", "discretize", "cluster_qr"))
        if self.eigen_solver not in SOLVERS:
            raise InputError(f"eigen_solver must be one of {', '.join(map(repr, SOLVERS))}; got {self.eigen_solver!r}.")
        if isinstance(self._similarity, str) and self._similarity.endswith("nearest_neighbors"):
            raise InputError(
                f"affinity={self._similarity!r} is a sparse graph and no kernel to approximate. Use scikit-learn's "
                "SpectralClustering for it, or its matrix with affinity='precomputed'."
            )
        tol = 0.0 if isinstance(self.eigen_tol, str) and self.eigen_tol == "auto" else self.eigen_tol
        if not (isinstance(tol, int | float | np.number) and 0.0 <= tol < np.inf):
            raise InputError(f'eigen_tol must be "auto" or a number of at least 0; got {self.eigen_tol!r}.')
        return int(self.n_clusters if self.n_components is None else self.n_components), float(tol)

    def _cut(self, a: Approximation, wanted: int, tol: float, seed: int) -> tuple[Cut, Degrees]:
        n = a.factorization.shape[0]
        if self._direct:
            K = _own_matrix(a)
            negative = self._look(K)
            cut, d = exact_cut(K, wanted, tol=tol, seed=seed)
        else:
            sample = stream(seed, 31).choice(n, min(n, SAMPLED), replace=False)
            some = take(a.objects, np.sort(sample))
            low = a.kernel.traits.low
            negative = not (low is not None and low >= 0.0) and self._look(Evaluator(a.kernel).block(some, some))
            d = degrees(a.factorization)
            cut = None
        if d.n_nonpositive:
            if negative and 2 * d.n_nonpositive > n:
                raise InputError(
                    f"The normalised cut needs similarities >= 0, but with {a.kernel!r} {d.n_nonpositive} of {n} row "
                    "sums are not above 0. Use a kernel that is not negative, such as 'rbf' or 'laplacian'."
                )
            warn(
                f"{d.n_nonpositive} of {n} rows have similarities to the others that sum up to nothing or less. They "
                "count as connected to no other. A smaller gamma connects them, a higher rank approximates them better."
            )
        cut = normalised_cut(a.factorization, d, wanted, tol=tol, seed=seed) if cut is None else cut
        if not negative and cut.values[0] > 1.0 + COARSE:
            warn(
                f"The approximation is too coarse for a cut: its Laplacian has an eigenvalue {1 - cut.values[0]:.2g}, "
                "and similarities >= 0 allow none below 0. Use a smaller gamma (a wider kernel), a higher rank or more "
                "blocks."
            )
        if cut.n_pieces > wanted:
            warn(
                f"The graph is not connected: to rounding it falls into {cut.n_pieces} pieces, more than the {wanted} "
                "eigenvectors used, so that many cuts are equally good and the labels are one of them. A smaller gamma "
                "(a wider kernel) connects it."
            )
        return cut, d

    def _check_connected(self, f: Factorization) -> None:
        """A core that falls apart is a graph that does, and its best cut is none of the data's."""
        if not isinstance(f.core, BlockSparse):
            return
        parts = len(np.unique(f.core.components[np.asarray(f.ranks) > 0]))
        if parts <= 1:
            return
        told = (
            f"The approximation keeps no similarities between {parts} groups of its {f.n_blocks} blocks, and a cut "
            "finds those groups first. Use fewer blocks, or hand in approximation=krein.approximate(..., drop=0.0)."
        )
        if parts > self.n_clusters:
            raise InputError(f"{told} More groups than clusters ({self.n_clusters}) leave nothing to be cut.")
        warn(told)

    def _look(self, K: Array) -> bool:
        """Whether there are similarities below zero, and a warning if so."""
        rounding = 1e-12 * float(np.abs(K).max(initial=0.0))
        below = -rounding > K
        if below.any():
            warn(
                f"The normalised cut needs similarities >= 0, but {100 * below.mean():.2g} % of those looked at are "
                f"negative, the smallest {float(K.min()):.3g}. Use a kernel that is not negative, such as 'rbf'."
            )
        return bool(below.any())

    def _labels(self, embedding: Array, seed: int) -> Indices:
        if self.verbose:
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
    for _ in range(ROUNDS):
        labels = (rows @ turn).argmax(1)
        sums = np.zeros((p, p))
        np.add.at(sums, labels, rows)
        left, values, right = np.linalg.svd(sums)
        if values.sum() <= fit * (1.0 + 1e-12):
            break
        fit, turn = float(values.sum()), (left @ right).T
    return np.asarray(labels)


def _own_matrix(a: Approximation) -> Array:
    """The kernel's own values, n x n, for few objects."""
    assert count_objects(a.objects) == a.factorization.shape[0]
    K = own_matrix(a)
    sums = np.abs(K).sum(1) - np.abs(np.diag(K))
    # A row counts by its share of its degree: one of hardly any similarity needs all the digits it has.
    return own_matrix(a, anew=True) if sums.min() < WEAK * np.median(sums) else K
