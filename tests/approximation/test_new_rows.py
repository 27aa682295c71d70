"""New rows at the defaults: kernels not known to be psd, outliers, callables, block-sparse cores; ranks by spectra."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import krein
from krein import BlockSparse, KreinWarning
from krein.factorization import factorization


def relative(found, exact):
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def bump(A, B):
    """Epanechnikov's, max(0, 1 - |x - y|² / 16): indefinite beyond one dimension, and declares nothing."""
    return np.maximum(0.0, 1.0 - cdist(A, B, "sqeuclidean") / 16.0)


@pytest.mark.parametrize("kernel", [krein.Sigmoid(), krein.TL1(rho=6.0), bump], ids=["Sigmoid", "TL1", "callable"])
@pytest.mark.parametrize("seed", range(3))
def test_new_rows_are_good_at_the_defaults_for_kernels_not_known_to_be_psd(kernel, seed):
    X = np.random.default_rng(seed).standard_normal((800, 6))
    full = krein.approximate(X[:600], kernel, random_state=seed)
    found = full.kernel_rows(X[600:])  # no warning that some were scaled down either
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)
        usual = krein.approximate(X[:600], kernel, n_blocks=1, rank=150, random_state=seed).kernel_rows(X[600:])
    exact = full.kernel_rows(X[600:], exact=True)
    assert relative(found, exact) <= 0.05
    assert relative(found, exact) <= 1.5 * relative(usual, exact)


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "rpcholesky", "leverage"])
@pytest.mark.parametrize("seed", range(3))
def test_no_landmark_rule_loses_the_tight_rows_to_the_outliers(landmarks, seed):
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(0.0, 0.01, (3000, 3)), rng.uniform(-1.0, 1.0, (150, 3))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)
        a = krein.approximate(X, krein.TL1(rho=1.0), n_blocks=1, rank=32, landmarks=landmarks, random_state=seed)
    assert a.error(random_state=0).relative <= 0.1


@pytest.mark.parametrize("seed", range(6))
def test_a_callable_that_equals_linear_is_as_accurate_as_linear(seed):
    X = np.exp(1.5 * np.random.default_rng(seed).standard_normal((1000, 3)))
    given = {"n_blocks": 4, "rank": 6, "landmarks": "uniform", "random_state": seed}
    known = krein.approximate(X, krein.Linear(), **given)
    user = krein.approximate(X, lambda A, B: A @ B.T, **given)
    assert known.factorization.ranks == user.factorization.ranks
    assert known.error().relative <= 1e-8
    assert user.error().relative <= 1e-8


def test_new_rows_and_self_similarities_from_a_block_sparse_core_are_the_dense_ones(monkeypatch):
    monkeypatch.setattr(factorization, "DENSE_CORE", 0)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 3)) + 6.0 * rng.integers(3, size=(600, 3))
    a = krein.approximate(X, krein.RBF(gamma=0.1), n_blocks=30, rank=5, drop=0.9, random_state=0).corrected("shift")
    f = a.factorization
    assert isinstance(f.core, BlockSparse)
    new = X[::7] + 0.1
    u = a.extend(new).toarray()
    M = f.core.to_dense()
    U = f.lift(np.eye(f.rank))
    wanted = rng.permutation(600)[:40]
    assert a.kernel_rows(new) == pytest.approx(u @ M @ U.T, abs=1e-12)
    assert a.kernel_rows(new, indices=wanted) == pytest.approx(u @ M @ U[wanted].T, abs=1e-12)
    assert a.self_similarities(new) == pytest.approx(np.diag(u @ M @ u.T) + f.shift, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++"])
def test_spectral_ranks_are_close_to_those_of_the_dense_blocks(landmarks, seed):
    rng = np.random.default_rng(seed)
    tight = np.concatenate([rng.normal(0.0, 0.3, (760, 2)), rng.uniform(-2.0, 2.0, (40, 2))])
    X = np.concatenate([tight, rng.uniform(-2.0, 2.0, (400, 2)) + 30.0])
    total = 20
    a = krein.approximate(
        X, krein.RBF(gamma=1.0), n_blocks=2, total_rank=total, allocation="spectral", landmarks=landmarks,
        random_state=seed,
    )  # fmt: skip
    members = [a.partition.members(i) for i in range(2)]
    values = np.concatenate([np.abs(np.linalg.eigvalsh(a.kernel(X[m]))) for m in members])
    owner = np.repeat([0, 1], [len(m) for m in members])
    wanted = np.bincount(owner[np.argsort(-values)[:total]], minlength=2)
    assert sum(a.factorization.ranks) == total
    assert np.abs(np.asarray(a.factorization.ranks) - wanted).max() <= 3
