"""KernelKMeans against Lloyd's algorithm on the dense kernel matrix, and its contract."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import rbf_kernel, sigmoid_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

import krein
from krein.errors import IndefiniteError, InputError, KreinWarning
from krein.estimators.kernel_kmeans import KernelKMeans
from krein.estimators.route import Exact, Given
from krein.policy import Policy

X, Y = make_blobs(300, centers=4, cluster_std=2.0, random_state=1)


def distances(K: Any, labels: Any) -> Any:
    """Squared distances of all objects to the means of the clusters, from the matrix alone; (n, n_clusters)."""
    means = np.eye(labels.max() + 1)[labels]
    means /= means.sum(0)
    return np.diag(K)[:, None] - 2.0 * K @ means + np.diag(means.T @ K @ means)


def inertia(K: Any, labels: Any) -> float:
    return float(distances(K, labels)[np.arange(len(K)), labels].sum())


def lloyd(K: Any, labels: Any) -> Any:
    """Lloyd's algorithm in feature space, until no label changes."""
    while True:
        new = distances(K, labels).argmin(1)
        if len(np.unique(new)) < labels.max() + 1 or np.array_equal(new, labels):
            return labels
        labels = new


@parametrize_with_checks([KernelKMeans(n_clusters=3, n_init=2)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([KernelKMeans(), KernelKMeans(n_clusters=2, n_blocks=2, rank=8)])
def test_scikit_learn_checks_with_other_parameters(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("gamma", [0.01, 0.3])
def test_the_inertia_is_that_of_the_matrix_and_no_step_lowers_it(gamma: float) -> None:
    K = rbf_kernel(X, gamma=gamma)
    ours = KernelKMeans(4, gamma=gamma, tol=0.0, random_state=0).fit(X)
    assert isinstance(ours.route_, Exact)
    assert ours.inertia_ == pytest.approx(inertia(K, ours.labels_), rel=1e-10)
    assert inertia(K, lloyd(K, ours.labels_)) == pytest.approx(ours.inertia_, rel=1e-10)
    rng = np.random.default_rng(0)
    best = min(inertia(K, lloyd(K, rng.permutation(np.arange(300) % 4))) for _ in range(10))
    assert ours.inertia_ <= best * (1.0 + 1e-10)
    np.testing.assert_array_equal(ours.predict(X), ours.labels_)
    np.testing.assert_allclose(ours.transform(X) ** 2, distances(K, ours.labels_), atol=1e-10)
    assert ours.score(X) == pytest.approx(-ours.inertia_, rel=1e-10)


def test_all_partitions_of_few_rows_are_no_better() -> None:
    some = X[:8]
    K = rbf_kernel(some, gamma=0.05)
    partitions = (np.array(labels) for labels in itertools.product(range(2), repeat=8) if 0 < sum(labels) < 8)
    best = min(inertia(K, labels) for labels in partitions)
    ours = KernelKMeans(2, gamma=0.05, n_init=50, random_state=0).fit(some)
    assert ours.inertia_ == pytest.approx(best, rel=1e-10)


def test_a_linear_kernel_is_k_means() -> None:
    theirs = KMeans(4, n_init=10, random_state=0).fit(X)
    ours = KernelKMeans(4, kernel="linear", random_state=0).fit(X)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-6)
    assert adjusted_rand_score(ours.labels_, theirs.labels_) == 1.0
    new = np.random.default_rng(0).normal(size=(50, 2)) * 10.0
    match = np.array([ours.labels_[theirs.labels_ == c][0] for c in range(4)])
    np.testing.assert_array_equal(ours.predict(new), match[theirs.predict(new)])
    np.testing.assert_allclose(ours.transform(new)[:, match], theirs.transform(new), rtol=1e-6)


def test_an_approximation_is_clustered_as_its_own_matrix_is() -> None:
    ours = KernelKMeans(4, gamma=0.05, n_blocks=3, rank=15, tol=0.0, random_state=0).fit(X)
    assert isinstance(ours.route_, Given)
    K = ours.approximation_.factorization.to_dense()
    assert ours.inertia_ == pytest.approx(inertia(K, ours.labels_), rel=1e-9)
    assert inertia(K, lloyd(K, ours.labels_)) == pytest.approx(ours.inertia_, rel=1e-9)
    np.testing.assert_array_equal(ours.predict(X), ours.labels_)
    assert ours.score(X) == pytest.approx(-ours.inertia_, rel=1e-6)
    beyond = KernelKMeans(4, gamma=0.05, policy=Policy(exact_rows=100, plain_shape=(1, 40)), random_state=0).fit(X)
    assert isinstance(beyond.route_, Given)
    exact = KernelKMeans(4, gamma=0.05, random_state=0).fit(X)
    assert adjusted_rand_score(beyond.labels_, exact.labels_) > 0.95


@pytest.mark.parametrize("correction", ["auto", "flip", "square"])
def test_an_indefinite_matrix_is_corrected(correction: str) -> None:
    S = sigmoid_kernel(X[:120], gamma=0.05, coef0=-1.0)
    values, vectors = np.linalg.eigh(S)
    assert values[0] < -0.1
    change = {"auto": np.maximum(values, 0.0), "flip": np.abs(values), "square": values**2}[correction]
    K = (vectors * change) @ vectors.T
    with pytest.warns(KreinWarning, match="indefinite matrix"):
        ours = KernelKMeans(3, kernel="precomputed", correction=correction, tol=0.0, random_state=0).fit(S)
    assert ours.correction_ == ("clip" if correction == "auto" else correction)
    assert ours.inertia_ == pytest.approx(inertia(K, ours.labels_), rel=1e-8)
    np.testing.assert_array_equal(ours.predict(S), ours.labels_)
    with pytest.raises(IndefiniteError, match="feature space"):
        KernelKMeans(3, kernel="precomputed", correction="none").fit(S)


def test_sparse_and_single_precision_and_strings() -> None:
    usual = KernelKMeans(4, gamma=0.05, random_state=0).fit(X)
    np.testing.assert_array_equal(
        KernelKMeans(4, gamma=0.05, random_state=0).fit_predict(sp.csr_matrix(X)), usual.labels_
    )
    single = KernelKMeans(4, gamma=0.05, random_state=0).fit(X.astype(np.float32))
    assert single.inertia_ == pytest.approx(usual.inertia_, rel=1e-4)
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    words = ["aaaa", "aaab", "aaba", "zzzz", "zzzy", "zyzz"]
    labels = KernelKMeans(2, kernel=krein.EditSimilarity(), random_state=0).fit_predict(words)
    assert adjusted_rand_score(labels, [0, 0, 0, 1, 1, 1]) == 1.0


def test_saved_and_pickled_ones_predict_the_same(tmp_path: Any) -> None:
    new = X[:20] + 0.1
    for ours in (
        KernelKMeans(4, gamma=0.05, random_state=0).fit(X),
        KernelKMeans(4, gamma=0.05, n_blocks=2, rank=10, random_state=0).fit(X),
    ):
        krein.save(ours, tmp_path / "clusters.krein")
        for again in (krein.load(tmp_path / "clusters.krein"), pickle.loads(pickle.dumps(ours))):
            np.testing.assert_array_equal(again.labels_, ours.labels_)
            np.testing.assert_array_equal(again.transform(new), ours.transform(new))


def test_a_precomputed_matrix_has_clusters_but_no_distances_of_new_rows() -> None:
    K = rbf_kernel(X, gamma=0.05)
    ours = KernelKMeans(4, kernel="precomputed", random_state=0).fit(K)
    usual = KernelKMeans(4, gamma=0.05, random_state=0).fit(X)
    np.testing.assert_array_equal(ours.labels_, usual.labels_)
    new = X[:30] + 0.5
    np.testing.assert_array_equal(ours.predict(rbf_kernel(new, X, gamma=0.05)), usual.predict(new))
    with pytest.raises(InputError, match="how similar new objects are to themselves"):
        ours.transform(K)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_clusters": 301}, "n_samples=300 should be >= n_clusters=301"),
        ({"n_init": 0}, "n_init"),
        ({"max_iter": 0}, "max_iter"),
        ({"tol": -1.0}, "tol must be"),
        ({"correction": "shift"}, "correction must be one of"),
    ],
)
def test_parameters_out_of_range_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        KernelKMeans(**options).fit(X)
