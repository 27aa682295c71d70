"""Bringing data to where a kernel wants it: the unit sphere, and the paper's preprocessing for its four kernels.

In: rows. Out: scikit-learn transformers, and a measurement of what the sphere costs (Remark 3).

Examples
--------
>>> import numpy as np
>>> from krein.preprocessing import UnitSphere
>>> UnitSphere().fit_transform(np.array([[3.0, 4.0], [0.0, 2.0]]))
array([[0.6, 0.8],
       [0. , 1. ]])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import sklearn  # its cluster is loaded when it is first used: importing krein need not wait for it
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.validation import check_array, validate_data

from krein.arrays import Array, seed_from, stream
from krein.errors import InputError, warn
from krein.kernels import as_kernel
from krein.kernels.collections import is_sparse
from krein.kernels.vectors import as_vectors, squared_norms, unit_rows

__all__ = ["SphereOverlap", "UnitSphere", "paper_preprocessing", "sphere_overlap"]

# K-means uses at most this many rows.
KMEANS_ROWS = 20_000
# Distances that differ by less than this share of the longest row are equal. Those of sparse rows are computed from
# expanded squares, whose error is the root of the rounding.
TIE = 1e-12
SPARSE_TIE = 1e-7


class UnitSphere(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Divides every row by its Euclidean length (paper, Prop. 1); zero rows stay at the origin, with a KreinWarning.

    Dense or sparse, float32 or float64, at any scale: each row is divided by its largest entry before anything is
    squared. It learns nothing, so training and new rows are treated alike.
    """

    def fit(self, X: Any, y: Any = None) -> UnitSphere:
        """Check X; there is nothing to learn."""
        validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        return self

    def transform(self, X: Any) -> Any:
        """Return X with rows of length one, in the same form and float type."""
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        units, lengths = unit_rows(as_vectors(X, self))
        if n_zero := int(np.sum(lengths == 0)):
            warn(
                f"{n_zero} of {len(lengths)} rows are zero and cannot be put on the unit sphere; they stay at the "
                "origin. Drop them, or centre the data differently."
            )
        return units

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def paper_preprocessing(kernel: Any) -> Pipeline:
    """Return the paper's preprocessing for ``kernel`` (supplement, Sec. 6) as an unfitted scikit-learn Pipeline.

    [0, 1]-scaling for RBF and TL1, the unit sphere for polynomials, z-scores and then the sphere for ELM. Fitted on
    training rows it uses their statistics alone (the paper took them over all rows). Constant columns become 0.
    """
    kernel = as_kernel(kernel)
    name = kernel.traits.preprocessing
    if name == "unit-interval":
        return Pipeline([("unit_interval", MinMaxScaler())])
    if name == "z-score-sphere":
        return Pipeline([("z_score", StandardScaler()), ("sphere", UnitSphere())])
    if name == "sphere":
        return Pipeline([("sphere", UnitSphere())])
    raise InputError(
        f"The paper gives a preprocessing for RBF, TL1, ELM, Polynomial and SpherePolynomial; {kernel!r} declares "
        f"{'none' if name is None else repr(name)}. Build a pipeline of your own, with UnitSphere if the kernel is one "
        "of inner products."
    )


@dataclass(frozen=True, repr=False)
class SphereOverlap:
    """How much clusters overlap before and after projecting onto the sphere.

    A row overlaps if it is not nearer to its own cluster's mean than to every other. The silhouette is the simplified
    one, (b - a) / max(a, b) with a and b the distances to the own and the nearest other mean, averaged over the rows.
    """

    n_rows: int
    n_clusters: int
    before: float  # share of overlapping rows, 0 to 1
    after: float
    silhouette_before: float
    silhouette_after: float

    @property
    def increase(self) -> float:
        """The share of overlapping rows that the projection added; negative if it separated the clusters better."""
        return self.after - self.before

    def __str__(self) -> str:
        return (
            f"{self.n_clusters} clusters of {self.n_rows} rows: {self.before:.1%} overlap before the sphere, "
            f"{self.after:.1%} on it "
            f"({100 * self.increase:+.1f} points); silhouette {self.silhouette_before:.3f} -> "
            f"{self.silhouette_after:.3f}"
        )

    __repr__ = __str__


def sphere_overlap(X: Any, n_clusters: int = 8, labels: Any = None, random_state: Any = None) -> SphereOverlap:
    """Return how many rows of X lose their cluster when projected onto the unit sphere (Remark 3, measured).

    The clusters are ``labels`` if given, else k-means clusters of X. Costs two tables of n x n_clusters distances.
    """
    X = check_array(X, accept_sparse="csr", dtype=np.float64)
    n = X.shape[0]
    entries = X.data if is_sparse(X) else X
    X = X / (float(np.max(np.abs(entries), initial=0.0)) or 1.0)  # overlap does not depend on scale; overflow does
    if labels is None:
        if not 2 <= n_clusters <= n:
            raise InputError(f"sphere_overlap needs n_clusters between 2 and the {n} rows; got {n_clusters}.")
        seed = seed_from(random_state)
        some = X if n <= KMEANS_ROWS else X[np.sort(stream(seed).choice(n, KMEANS_ROWS, replace=False))]
        labels = sklearn.cluster.KMeans(n_clusters, n_init=4, random_state=seed % 2**32).fit(some).predict(X)
    labels = np.asarray(labels)
    if labels.shape != (n,):
        raise InputError(f"sphere_overlap needs one label per row, shape {(n,)}; got shape {labels.shape}.")
    names, index = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise InputError(
            f"sphere_overlap needs at least 2 clusters to overlap; got {len(names)}. Raise n_clusters or check the "
            "labels."
        )
    before, silhouette_before = _overlap(X, index, len(names))
    after, silhouette_after = _overlap(unit_rows(X)[0], index, len(names))
    return SphereOverlap(n, len(names), before, after, silhouette_before, silhouette_after)


def _overlap(X: Any, index: Any, n_clusters: int) -> tuple[float, float]:
    n = X.shape[0]
    membership = sparse.csr_array((np.ones(n), index, np.arange(n + 1)), shape=(n, n_clusters))
    sums = membership.T @ X  # shape (n_clusters, d)
    means = (sums.toarray() if is_sparse(sums) else sums) / np.bincount(index, minlength=n_clusters)[:, None]
    distances: Array = euclidean_distances(X, means) if is_sparse(X) else cdist(X, means)  # shape (n, n_clusters)
    own = distances[np.arange(n), index]
    distances[np.arange(n), index] = np.inf
    other = distances.min(axis=1)
    tie = (SPARSE_TIE if is_sparse(X) else TIE) * float(np.sqrt(squared_norms(X).max()))
    larger = np.maximum(own, other)
    silhouette = np.divide(other - own, larger, out=np.zeros(n), where=larger > 0)
    return float(np.mean(own >= other - tie)), float(np.mean(silhouette))
