"""Spectral embedding: objects in, the eigenvectors of their normalised cut out."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from krein.arrays import Array, seed_from
from krein.errors import InputError, warn, whole_number
from krein.estimators.normalized_cut import Cut
from krein.estimators.outside import fits_outside
from krein.estimators.spectral_clustering import CutMachine

__all__ = ["SpectralEmbedding"]


@dataclass(eq=False, repr=False)
class SpectralEmbedding(CutMachine):
    """Laplacian eigenmaps with any symmetric similarity, for any number of rows.

    The parameters and the embedding are those of `sklearn.manifold.SpectralEmbedding`. The kernel's own matrix is used
    up to ``policy.clustering_rows`` rows of a psd kernel and ``policy.exact_rows`` rows of any other. With more rows it
    is an approximation, and no n x n matrix is formed. Similarities must not be negative. They need not be psd: an
    indefinite kernel is used without a correction by default, with a warning.

    Parameters
    ----------
    n_components : int, default=2
        Number of columns of the embedding.
    affinity : str, Kernel or callable, default="rbf"
        The similarity, with the values of ``kernel`` in other krein machines. Nearest-neighbour graphs, the default of
        scikit-learn, are no kernels and not supported.
    gamma : float, default=None
        Coefficient of "rbf", "laplacian", "poly" and "sigmoid". None means 1 / n_features, or the own gamma of a krein
        kernel.
    kernel : str, Kernel or callable, default=None
        Another name for ``affinity``. If given, it is used instead.
    eigen_solver, eigen_tol, correction
        See `krein.estimators.spectral_clustering.SpectralClustering`.
    n_neighbors : int, default=None
        Ignored. It is there for compatibility with scikit-learn.
    degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, approximation, policy, \
random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    embedding_ : array of shape (n, n_components)
        Eigenvectors of the normalised Laplacian divided by the roots of the degrees, without the constant one. The
        largest entry of each column is positive.
    eigenvalues_ : array of shape (n_components,)
        Their eigenvalues, ascending.
    affinity_matrix_, n_nonpositive_degrees_
        See `krein.estimators.spectral_clustering.SpectralClustering`.
    route_, approximation_, correction_, n_negative_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.random.default_rng(0).normal(size=(100, 5))
    >>> krein.SpectralEmbedding(n_components=2).fit_transform(X).shape
    (100, 2)
    """

    n_components: int = 2
    _: KW_ONLY
    gamma: Any = None
    n_neighbors: int | None = None

    @fits_outside
    def fit(self, X: Any, y: Any = None) -> SpectralEmbedding:
        """Embed X."""
        whole_number("n_components", self.n_components, 1)
        wanted = int(self.n_components) + 1  # the first is constant
        cut = self._cut(X, wanted, wanted, seed_from(self.random_state))
        self.eigenvalues_, self.embedding_ = 1.0 - cut.values[1:], cut.embedding[:, 1:]
        return self

    @fits_outside
    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Embed X and return the embedding."""
        return self.fit(X).embedding_

    def _check_cut(self, cut: Cut, negative: bool, wanted: int) -> None:
        if len(cut.embedding) < wanted:
            raise InputError(f"n_components={wanted - 1} needs {wanted} rows at least; got {len(cut.embedding)}.")
        super()._check_cut(cut, negative, wanted)
        if 1 < cut.n_pieces <= wanted:
            warn(
                f"The graph is not connected: to rounding it falls into {cut.n_pieces} pieces, and the first "
                f"{cut.n_pieces - 1} columns only tell these apart. A smaller gamma (a wider kernel) connects it."
            )
