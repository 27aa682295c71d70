"""SpectralEmbedding against scikit-learn's, and its contract."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_blobs, make_swiss_roll
from sklearn.manifold import SpectralEmbedding as Reference
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

import krein
from krein.errors import InputError, KreinWarning
from krein.estimators.route import Exact, Given
from krein.estimators.spectral_embedding import SpectralEmbedding

X = make_swiss_roll(600, noise=0.05, random_state=0)[0] / 10.0


def assert_equal_up_to_sign(ours: Any, theirs: Any, rtol: float) -> None:
    signs = np.sign((ours * theirs).sum(0))
    np.testing.assert_allclose(ours * signs, theirs, atol=rtol * np.abs(theirs).max())


@parametrize_with_checks([SpectralEmbedding()])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("n", [60, 600])
def test_the_embedding_is_scikit_learns(n: int) -> None:
    S = rbf_kernel(X[:n], gamma=1.0)
    theirs = Reference(3, affinity="precomputed", random_state=0).fit_transform(S)
    given = SpectralEmbedding(3, affinity="precomputed", random_state=0).fit(S)
    ours = SpectralEmbedding(3, gamma=1.0, random_state=0).fit(X[:n])
    for machine in (given, ours):
        assert isinstance(machine.route_, Exact)
        assert_equal_up_to_sign(machine.embedding_, theirs, 1e-8)
    D = np.diag((S - np.eye(n)).sum(1))
    L = D - (S - np.eye(n))
    np.testing.assert_allclose(L @ ours.embedding_, D @ ours.embedding_ * ours.eigenvalues_, atol=1e-9)
    np.testing.assert_allclose(ours.affinity_matrix_, S)


@pytest.mark.slow
def test_the_embedding_of_2000_rows_is_scikit_learns() -> None:
    rows = make_swiss_roll(2000, noise=0.05, random_state=1)[0] / 10.0
    theirs = Reference(2, affinity="rbf", gamma=1.0, random_state=0).fit_transform(rows)
    assert_equal_up_to_sign(SpectralEmbedding(2, gamma=1.0, random_state=0).fit_transform(rows), theirs, 1e-8)


def test_the_default_gamma_is_scikit_learns() -> None:
    theirs = Reference(2, affinity="rbf", random_state=0).fit_transform(X)
    assert_equal_up_to_sign(SpectralEmbedding(random_state=0).fit_transform(X), theirs, 1e-8)


def test_an_approximation_is_embedded_as_its_own_matrix_is() -> None:
    ours = SpectralEmbedding(2, gamma=0.3, n_blocks=3, rank=40, random_state=0).fit(X)
    assert isinstance(ours.route_, Given)
    K = ours.approximation_.factorization.to_dense()
    theirs = Reference(2, affinity="precomputed", random_state=0).fit_transform((K + K.T) / 2.0)
    assert_equal_up_to_sign(ours.embedding_, theirs, 1e-6)
    exact = SpectralEmbedding(2, gamma=0.3, random_state=0).fit_transform(X)
    assert_equal_up_to_sign(ours.embedding_, exact, 1e-2)


def test_sparse_and_single_precision_and_saved(tmp_path: Any) -> None:
    usual = SpectralEmbedding(2, gamma=1.0, random_state=0).fit(X)
    for other, rtol in ((sp.csr_matrix(X), 1e-8), (X.astype(np.float32), 1e-3)):
        assert_equal_up_to_sign(
            SpectralEmbedding(2, gamma=1.0, random_state=0).fit_transform(other), usual.embedding_, rtol
        )
    krein.save(usual, tmp_path / "embedding.krein")
    for again in (krein.load(tmp_path / "embedding.krein"), pickle.loads(pickle.dumps(usual))):
        np.testing.assert_array_equal(again.embedding_, usual.embedding_)


def test_a_graph_in_pieces_is_told() -> None:
    far, _ = make_blobs(90, centers=[[0, 0], [90, 0]], random_state=0)
    with pytest.warns(KreinWarning, match="falls into 2 pieces"):
        SpectralEmbedding(2, gamma=0.5, random_state=0).fit(far)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"n_components": 0}, "n_components"), ({"affinity": "nearest_neighbors"}, "SpectralEmbedding for it")],
)
def test_parameters_out_of_range_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SpectralEmbedding(**options).fit(X)


def test_more_columns_than_rows_are_refused() -> None:
    with pytest.raises(InputError, match="needs 6 rows at least; got 4"):
        SpectralEmbedding(5, gamma=0.1).fit(X[:4])
