"""One block of a psd kernel against dense algebra and scikit-learn's Nystroem: the same matrix, in orthonormal form."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem

import krein
from krein.approximation import nystrom
from krein.approximation.nystrom import features, n_landmarks
from krein.kernels import Evaluator
from strategies import blobs, dense_twin, relative

KERNELS = {"rbf": krein.RBF(gamma=0.05), "laplacian": krein.Laplacian(gamma=0.05), "poly": krein.Polynomial(degree=2)}


@pytest.fixture
def _plain(monkeypatch):
    monkeypatch.setattr(nystrom, "MOST_OVERSAMPLED", 0)  # as many landmarks as directions, at small ranks too


@pytest.mark.usefixtures("_plain")
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_it_is_the_nystrom_approximation_of_its_landmarks(kernel, dtype):
    X = blobs(400, d=5).astype(dtype)
    a = krein.approximate(X, kernel, n_blocks=1, rank=40, random_state=0)
    bound, Z = a.kernel, X[a.maps[0].rows].astype(np.float64)
    C = bound(X.astype(np.float64), Z)
    expected = C @ np.linalg.pinv(bound(Z), rcond=1e-13, hermitian=True) @ C.T
    tolerance = 1e-8 if dtype == np.float64 else 1e-4
    assert relative(dense_twin(a.factorization), expected) <= tolerance
    assert a.kernel_rows(X[:50]) == pytest.approx(dense_twin(a.factorization)[:50], abs=tolerance * np.abs(C).max())


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("rank", [5, 60, 150])
def test_the_basis_is_orthonormal_and_the_core_diagonal(rank, dtype):
    X = blobs(500, d=5)
    f = krein.approximate(X, krein.RBF(gamma=0.01), n_blocks=1, rank=rank, dtype=dtype, random_state=0).factorization
    U = np.asarray(f.basis_rows(np.arange(500)).toarray())
    assert np.abs(U.T @ U - np.eye(f.rank)).max() <= 1e-12
    assert f.dtype == dtype
    assert f.rank == rank
    assert f.n_negative() == 0


def test_errors_are_those_of_scikit_learns_nystroem_at_the_same_rank():
    ours, theirs = [], []
    X = krein.datasets.mixture(2000, n_features=10, random_state=0).X
    K = krein.RBF(gamma=0.05)(X)
    for seed in range(3):
        a = krein.approximate(X, krein.RBF(gamma=0.05), n_blocks=1, rank=600, random_state=seed)
        assert len(a.maps[0].rows) == 600  # no more landmarks than directions
        F = Nystroem(gamma=0.05, n_components=600, random_state=seed).fit_transform(X)
        ours.append(relative(dense_twin(a.factorization), K))
        theirs.append(relative(F @ F.T, K))
    assert np.mean(ours) <= 1.1 * np.mean(theirs)


@pytest.mark.parametrize("rank", [4, 16, 64])
def test_small_ranks_are_near_the_best_there_is(rank):
    X = blobs(600, d=5, c=6)
    K = krein.RBF(gamma=0.02)(X)
    f = krein.approximate(X, krein.RBF(gamma=0.02), n_blocks=1, rank=rank, random_state=0).factorization
    values = np.linalg.eigvalsh(K)
    assert relative(dense_twin(f), K) <= 1.3 * np.sqrt((values[:-rank] ** 2).sum()) / np.linalg.norm(K)


def test_as_few_similarities_as_rows_times_landmarks():
    for n, rank in ((300, 20), (300, 299), (3000, 100)):
        X = blobs(n, d=4)
        a = krein.approximate(X, krein.RBF(gamma=0.02), n_blocks=1, rank=rank, random_state=0)
        assert a.n_evaluations == n * n_landmarks(rank, n)
        assert a.n_evaluations < n * n


def test_landmarks_are_more_than_directions_only_where_that_costs_little():
    assert n_landmarks(10, 10_000) == 60
    assert n_landmarks(100, 10_000) == 512
    assert n_landmarks(1000, 10_000) == 1000
    assert n_landmarks(10, 50) == 49
    assert n_landmarks(30, 20) == 20


def test_an_indefinite_kernel_keeps_its_signs_and_a_psd_callable_is_recognised():
    X = blobs(300, d=4)
    indefinite = krein.approximate(X, krein.Sigmoid(gamma=0.1, coef0=-0.5), n_blocks=1, rank=60, random_state=0)
    assert indefinite.factorization.n_negative() > 0
    rbf = krein.RBF(gamma=0.02)
    a = krein.approximate(X, lambda A, B: rbf(A, B), n_blocks=1, rank=60, random_state=0)
    assert a.factorization.n_negative() == 0
    assert relative(dense_twin(a.factorization), rbf(X)) <= 0.05


def test_features_of_fewer_landmarks_are_the_first_columns():
    X = blobs(300, d=4)
    rows, landmarks = np.arange(200), np.arange(250, 290)
    kernel = krein.RBF(gamma=0.02)
    F, H = features(kernel, X, landmarks, (rows, np.arange(200, 250)))
    (few,) = features(kernel, X, landmarks[:10], (rows,))
    np.testing.assert_allclose(F[:, :10], few, atol=1e-9)
    W, C = kernel(X[landmarks]), kernel(X[np.arange(250)], X[landmarks])
    both = np.vstack([F, H])
    np.testing.assert_allclose(both @ both.T, C @ np.linalg.solve(W + 1e-13 * np.eye(40), C.T), atol=1e-6)
    assert features(krein.Sigmoid(gamma=1.0, coef0=-0.5), X, landmarks, (rows,)) is None


def test_equal_rows_and_a_kernel_of_zeros():
    a = krein.approximate(np.ones((50, 3)), krein.RBF(gamma=1.0), n_blocks=1, rank=5, random_state=0)
    np.testing.assert_allclose(dense_twin(a.factorization), np.ones((50, 50)), atol=1e-10)
    zero = krein.approximate(np.zeros((50, 3)), krein.Linear(), n_blocks=1, rank=5, random_state=0)
    np.testing.assert_allclose(dense_twin(zero.factorization), 0.0)
    assert Evaluator(krein.Linear()).block(np.zeros((2, 3)), np.zeros((2, 3))).max() == 0.0
