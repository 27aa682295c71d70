"""SpectralClustering against scikit-learn's, and its contract."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import laplacian
from sklearn.base import clone
from sklearn.cluster import SpectralClustering as Reference
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

import krein
from krein.errors import InputError, KreinWarning
from krein.estimators.route import Exact, Given
from krein.estimators.spectral_clustering import SpectralClustering, by_pivots, by_rotation
from krein.factorization.core import BlockSparse
from krein.policy import Policy
from strategies import refuse_full_decompositions

ASSIGN = ("kmeans", "discretize", "cluster_qr")
DATA = {
    "blobs": (make_blobs(300, centers=4, random_state=0)[0], 4, 1.0),
    "circles": (make_circles(400, factor=0.3, noise=0.05, random_state=0)[0], 2, 30.0),
    "moons": (make_moons(300, noise=0.05, random_state=0)[0], 2, 30.0),
    "few rows": (make_blobs(40, centers=3, random_state=2)[0], 3, 0.5),
}


@parametrize_with_checks([SpectralClustering(), SpectralClustering(n_clusters=2, n_blocks=2, rank=8)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("assign", ASSIGN)
@pytest.mark.parametrize("name", sorted(DATA))
def test_small_data_get_scikit_learns_labels(name: str, assign: str) -> None:
    X, clusters, gamma = DATA[name]
    options: dict[str, Any] = {"gamma": gamma, "assign_labels": assign, "random_state": 0}
    wanted = Reference(clusters, **options).fit_predict(X)
    ours = SpectralClustering(clusters, **options).fit(X)
    assert adjusted_rand_score(wanted, ours.labels_) == 1.0
    assert np.allclose(ours.affinity_matrix_, rbf_kernel(X, gamma=gamma))
    assert ours.n_nonpositive_degrees_ == 0
    assert ours.correction_ == "none"


@pytest.mark.parametrize("name", ["blobs", "circles", "moons"])
def test_low_rank_gets_the_same_labels(name: str) -> None:
    X, clusters, gamma = DATA[name]
    wanted = Reference(clusters, gamma=gamma, random_state=0).fit_predict(X)
    ours = SpectralClustering(clusters, gamma=gamma, n_blocks=4, rank=40, random_state=0).fit(X)
    assert adjusted_rand_score(wanted, ours.labels_) == 1.0
    with pytest.raises(AttributeError, match="300 x 300" if name != "circles" else "400 x 400"):
        ours.affinity_matrix_  # noqa: B018


def test_beyond_small_data() -> None:
    X, y = make_blobs(4000, centers=5, cluster_std=0.6, random_state=4)
    ours = SpectralClustering(5, gamma=0.5, n_blocks=10, rank=24, n_init=3, random_state=0).fit(X)
    assert adjusted_rand_score(y, ours.labels_) > 0.99
    again = SpectralClustering(5, gamma=0.5, n_blocks=10, rank=24, n_init=3, random_state=0).fit_predict(X)
    assert np.array_equal(ours.labels_, again)


@pytest.mark.parametrize("assign", ASSIGN)
@pytest.mark.parametrize("solver", [None, "arpack", "lobpcg", "amg"])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix, sp.csr_array, sp.coo_array])
def test_a_given_matrix_whatever_its_definiteness(container: Any, solver: str | None, assign: str) -> None:
    S = np.zeros((7, 7))
    S[:3, :3] = S[3:, 3:] = 1.0
    S[3, :3] = S[:3, 3] = 0.2
    for diagonal in (1.0, 0.0):  # the matrix is indefinite, more so without it, and the cut the same
        np.fill_diagonal(S, diagonal)
        model = SpectralClustering(2, affinity="precomputed", eigen_solver=solver, assign_labels=assign, random_state=0)
        with pytest.warns(KreinWarning, match="eigenvalues are negative.*uses it as it is"):
            model.fit(container(S))
        assert adjusted_rand_score(model.labels_, [1, 1, 1, 0, 0, 0, 0]) == 1.0
        assert np.array_equal(pickle.loads(pickle.dumps(model)).labels_, model.labels_)
    assert model.n_negative_ > 0


def test_a_row_far_from_all_others_is_no_cluster_of_its_own() -> None:
    X, y = make_blobs(120, centers=[[0, 0], [6, 0]], cluster_std=0.7, random_state=0)
    far = np.vstack([X, [[1e3, 1e3]]])
    with pytest.warns(KreinWarning, match="1 of 121 rows"):
        ours = SpectralClustering(2, gamma=0.5, random_state=0).fit(far)
    assert ours.n_nonpositive_degrees_ == 1
    assert adjusted_rand_score(y, ours.labels_[:-1]) == 1.0
    with pytest.warns(KreinWarning, match="rows"):
        low = SpectralClustering(2, gamma=0.5, n_blocks=3, rank=20, random_state=0).fit(far)
    assert adjusted_rand_score(y, low.labels_[:-1]) == 1.0


@pytest.mark.parametrize("assign", ASSIGN)
@pytest.mark.parametrize("gamma", [1e4, 1e5, 1e6])
def test_a_kernel_too_narrow_to_connect_the_rows_is_told_and_cut(gamma: float, assign: str) -> None:
    """Many eigenvalues of 1: Lanczos need not converge, and the degrees go down to the smallest numbers there are."""
    X, _ = make_moons(400, noise=0.05, random_state=0)
    with pytest.warns(KreinWarning) as told:
        ours = SpectralClustering(2, gamma=gamma, assign_labels=assign, random_state=0).fit(X)
    assert any("graph is not connected" in str(w.message) for w in told)
    assert all("not connected" in str(w.message) or "rows have similarities" in str(w.message) for w in told)
    assert np.array_equal(np.unique(ours.labels_), [0, 1])
    assert np.allclose(ours.eigenvalues_, 0.0, atol=1e-12)


def test_as_many_pieces_as_clusters_are_no_news() -> None:
    X, y = make_blobs(300, centers=[[0, 0], [90, 0], [0, 90]], random_state=0)  # parted by similarities of 0
    ours = SpectralClustering(3, gamma=0.5, random_state=0).fit(X)
    assert adjusted_rand_score(y, ours.labels_) == 1.0
    with pytest.warns(KreinWarning, match="3 pieces, more than the 2 eigenvectors"):
        SpectralClustering(2, gamma=0.5, random_state=0).fit(X)


@pytest.mark.parametrize(("name", "gamma"), [("blobs", 0.5), ("moons", 30.0)])
def test_many_rows_by_default_get_the_true_labels(name: str, gamma: float) -> None:
    blobs = make_blobs(2500, centers=[[0, 0], [10, 0], [0, 10], [10, 10]], random_state=0)
    X, y = blobs if name == "blobs" else make_moons(2500, noise=0.05, random_state=0)
    ours = SpectralClustering(len(np.unique(y)), gamma=gamma, n_init=3, random_state=0).fit(X)
    assert isinstance(ours.route_, Exact)
    assert adjusted_rand_score(y, ours.labels_) == 1.0
    ours = clone(ours).set_params(policy=Policy(clustering_rows=2499)).fit(X)
    assert ours.approximation_.factorization.rank < 2500
    assert adjusted_rand_score(y, ours.labels_) == 1.0


@pytest.mark.parametrize(("spread", "gamma"), [(2.0, 0.05), (0.3, 2.0)], ids=["overlapping", "separated"])
def test_both_ways_of_the_exact_cut_get_scikit_learns_labels(spread: float, gamma: float) -> None:
    """Lanczos on the matrix itself where clusters overlap, on its factored inverse where they are far apart."""
    X, _ = make_blobs(900, centers=8, cluster_std=spread, random_state=1)
    ours = SpectralClustering(8, gamma=gamma, random_state=0).fit(X)
    wanted = Reference(8, gamma=gamma, random_state=0).fit_predict(X)
    assert adjusted_rand_score(wanted, ours.labels_) > 0.99
    A = rbf_kernel(X, gamma=gamma)
    np.testing.assert_allclose(ours.eigenvalues_, np.linalg.eigvalsh(laplacian(A, normed=True))[:8], atol=1e-10)


def test_an_exact_fit_takes_no_full_decomposition_and_keeps_no_matrix(monkeypatch: Any) -> None:
    X, _ = make_blobs(1500, centers=8, n_features=5, cluster_std=2.0, random_state=0)
    refuse_full_decompositions(monkeypatch, 1500)
    ours = SpectralClustering(8, gamma=0.05, random_state=0).fit(X)
    reference = Reference(8, gamma=0.05, random_state=0).fit(X)
    assert adjusted_rand_score(reference.labels_, ours.labels_) == 1.0
    assert len(pickle.dumps(ours)) < 1e5
    assert np.allclose(ours.affinity_matrix_, rbf_kernel(X, gamma=0.05))
    with pytest.raises(AttributeError, match="not saved"):
        pickle.loads(pickle.dumps(ours)).affinity_matrix_  # noqa: B018


@pytest.mark.parametrize("correction", ["clip", "flip", "square"])
def test_a_corrected_matrix_is_cut_exactly(correction: str) -> None:
    X, y = make_blobs(120, centers=[[0, 0], [6, 0]], cluster_std=0.7, random_state=0)
    S = rbf_kernel(X, gamma=0.5)
    np.fill_diagonal(S, 0.5)
    with pytest.warns(KreinWarning) as told:
        ours = SpectralClustering(2, affinity="precomputed", correction=correction, random_state=0).fit(S)
    assert "indefinite matrix" in str(told[0].message)
    values, vectors = np.linalg.eigh(S)
    assert ours.n_negative_ == (values < 0).sum()
    change = {"clip": np.maximum(values, 0.0), "flip": np.abs(values), "square": values**2}[correction]
    assert np.allclose(ours.affinity_matrix_, (vectors * change) @ vectors.T)
    assert adjusted_rand_score(y, ours.labels_) == 1.0


def test_an_approximation_too_coarse_for_a_cut_is_told() -> None:
    X, _ = make_moons(400, noise=0.05, random_state=0)
    with pytest.warns(KreinWarning) as told:
        SpectralClustering(2, gamma=1e3, n_blocks=2, rank=40, random_state=0).fit(X)
    assert any("too coarse for a cut" in str(w.message) for w in told)


def test_affinity_and_kernel_are_two_names_of_one_thing() -> None:
    X, clusters, gamma = DATA["blobs"]
    wanted = SpectralClustering(clusters, gamma=gamma, random_state=0).fit_predict(X)
    for options in (
        {"kernel": "rbf"},
        {"kernel": krein.RBF(gamma=gamma)},
        {"affinity": krein.RBF(gamma=gamma)},
        {"affinity": "linear", "kernel": "rbf"},  # kernel counts
        {"affinity": lambda A, B: rbf_kernel(A, B, gamma=gamma)},
        {"affinity": rbf_kernel, "kernel_params": {"gamma": gamma}},
    ):
        assert np.array_equal(SpectralClustering(clusters, random_state=0, **options).fit_predict(X), wanted)
    bound = SpectralClustering(clusters, kernel=krein.RBF()).fit(X)
    with pytest.warns(KreinWarning, match="holds no approximation"):
        assert bound.approximation_.kernel == krein.RBF().bind(X)
    with pytest.raises(InputError, match=r"gamma=0\.5 was given beside"):
        SpectralClustering(clusters, kernel=krein.RBF(gamma=1.0), gamma=0.5).fit(X)


def test_similarities_below_zero_are_told_or_refused() -> None:
    X = np.random.default_rng(0).standard_normal((60, 3))
    with pytest.warns(KreinWarning, match="needs similarities >= 0"):
        SpectralClustering(2, affinity="cosine", random_state=0).fit(X + 1.5)
    with pytest.warns(KreinWarning, match="negative"), pytest.raises(InputError, match="row sums are not above 0"):
        SpectralClustering(2, affinity=lambda A, B: -rbf_kernel(A, B, gamma=0.1)).fit(X)
    positive = SpectralClustering(2, affinity="linear", random_state=0).fit(np.abs(X))  # not declared, but true
    assert positive.labels_.shape == (60,)
    with pytest.warns(KreinWarning, match="needs similarities >= 0"):
        SpectralClustering(2, affinity="cosine", n_blocks=2, rank=3, random_state=0).fit(X + 1.5)


def test_a_core_that_falls_apart_is_a_graph_that_does() -> None:
    X, y = make_blobs(300, centers=[[0, 0], [50, 0], [0, 50]], random_state=0)
    a = krein.approximate(X, krein.RBF(gamma=0.5), n_blocks=3, rank=20, random_state=0)
    f = a.factorization
    blocks = {(i, i): block for i, block in enumerate(f.core_diagonal_blocks())}
    apart = replace(a, factorization=f.with_core(BlockSparse.from_blocks(f.ranks, blocks), 0.0))
    with pytest.warns(KreinWarning, match="no similarities between 3 groups"):
        labels = SpectralClustering(3, kernel=a.kernel, approximation=apart, random_state=0).fit_predict(X)
    assert adjusted_rand_score(y, labels) == 1.0
    with pytest.raises(InputError, match="More groups than clusters"):
        SpectralClustering(2, kernel=a.kernel, approximation=apart).fit(X)


def test_n_components_and_verbose(capsys: Any) -> None:
    X, y = make_blobs(20, random_state=0, centers=[[1, 1], [-1, -1]], cluster_std=0.01)
    usual = SpectralClustering(2, random_state=0).fit(X)
    assert np.array_equal(usual.labels_, SpectralClustering(2, n_components=2, random_state=0).fit_predict(X))
    assert adjusted_rand_score(y, usual.labels_) == 1.0
    assert usual.eigenvalues_.shape == (2,)
    assert SpectralClustering(3, n_components=5, random_state=0).fit(X).eigenvalues_.shape == (5,)
    SpectralClustering(2, random_state=0, verbose=1).fit(X)
    out = capsys.readouterr().out
    assert "Computing label assignment using kmeans" in out
    assert "Initialization complete" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_clusters": 0}, "n_clusters"),
        ({"n_components": 0}, "n_components"),
        ({"n_init": 0}, "n_init"),
        ({"assign_labels": "best"}, "assign_labels must be one of"),
        ({"eigen_solver": "dense"}, "eigen_solver must be one of"),
        ({"eigen_tol": -1.0}, "eigen_tol"),
        ({"affinity": "nearest_neighbors"}, "sparse graph"),
        ({"affinity": "precomputed_nearest_neighbors"}, "sparse graph"),
        ({"affinity": "chi3"}, "kernel must be one of"),
        ({"correction": "shift"}, "correction must be one of 'auto', 'none', 'clip', 'flip', 'square'"),
    ],
)
def test_parameters_out_of_range_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SpectralClustering(**options).fit(DATA["blobs"][0])


@pytest.mark.parametrize("seed", range(4))
def test_labels_from_noisy_indicators(seed: int) -> None:
    """Both ways find the groups of an indicator matrix that was turned and disturbed."""
    rng = np.random.default_rng(seed)
    for groups in (2, 3, 6):
        y = rng.integers(0, groups, 200)
        turn = np.linalg.qr(rng.standard_normal((groups, groups)))[0]
        noisy = (np.eye(groups)[y] + 0.05 * rng.standard_normal((200, groups))) @ turn
        order = rng.permutation(200)
        assert adjusted_rand_score(y, by_pivots(noisy)) == 1.0
        assert np.array_equal(by_pivots(noisy)[order], by_pivots(noisy[order]))
        assert adjusted_rand_score(y, by_rotation(noisy, rng)) > 0.9


@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.2), krein.Laplacian(gamma=0.2)])
def test_an_approximation_brings_its_kernel_and_gamma(kernel):
    X = np.random.default_rng(0).normal(size=(300, 2))
    X[::2] += 8.0
    a = krein.approximate(X, kernel, random_state=0)
    labels = SpectralClustering(2, approximation=a, random_state=0).fit(X).labels_
    assert len(set(labels[::2])) == len(set(labels[1::2])) == 1
    with pytest.raises(krein.InputError, match="was asked for"):
        SpectralClustering(2, gamma=0.3, approximation=a).fit(X)


@pytest.mark.filterwarnings("ignore:.*sum up to nothing or less:krein.KreinWarning")
def test_a_narrow_kernel_is_still_clustered_beyond_the_exact_rows() -> None:
    rows = krein.datasets.mixture(6000, n_features=10, n_clusters=8, spread=0.6, random_state=0)
    X = (rows.X - rows.X.mean(0)) / rows.X.std(0)
    cut = SpectralClustering(8, gamma=20.0 / 10, policy=Policy(clustering_rows=0), random_state=0).fit(X)
    assert isinstance(cut.route_, Given)
    assert adjusted_rand_score(rows.y, cut.labels_) > 0.7
