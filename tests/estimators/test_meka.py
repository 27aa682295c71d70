"""MEKA's features against the corrected kernel, and linear models on them against kernel machines."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from sklearn.datasets import make_blobs, make_circles, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import krein
from krein.errors import IndefiniteError, InputError, KreinWarning
from krein.estimators import meka as features
from krein.estimators.meka import MEKA, feature_map
from krein.factorization import Factorization
from krein.factorization.core import BlockSparse
from strategies import EPS, HARD_DATA, dense_core, dense_twin, factorizations, norm_of

X, _ = make_blobs(300, n_features=3, centers=6, random_state=1)
NEW = X[::7] + 0.05
TANH = krein.Sigmoid(gamma=0.1, coef0=-1.0)


@parametrize_with_checks([MEKA(), MEKA(n_components=3, n_blocks=3, rank=5)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@cache
def groups(kernel: Any = krein.RBF(gamma=0.1)) -> krein.Approximation:  # noqa: B008
    """An approximation whose core falls apart: blocks {0, 1}, {2}, {3, 4}, {5}."""
    a = krein.approximate(X, kernel, n_blocks=6, rank=7, random_state=0)
    f = a.factorization
    spans = [cols for _, cols in f.spans]
    kept = [(i, i) for i in range(6)] + [(0, 1), (3, 4)]
    core = BlockSparse.from_blocks(f.ranks, {(i, j): dense_core(f.core)[spans[i], spans[j]] for i, j in kept})
    return replace(a, factorization=f.with_core(core, 0.0))


def positive_part(M: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(M)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


@given(factorizations())
def test_the_map_is_a_root_of_the_positive_part_of_the_core(f: Factorization) -> None:
    if f.rank == 0:
        return
    W, values = feature_map(f, None, 0)
    W = W.toarray() if sp.issparse(W) else W
    M = dense_core(f.core)
    assert W.shape == (f.rank, len(values))
    assert (np.diff(values) <= 0).all()
    assert np.abs(W @ W.T - positive_part(M)).max() <= 1e4 * EPS * norm_of(M) + 1e-300
    if len(values) > 1:
        few = feature_map(f, len(values) - 1, 0)[1]
        assert np.array_equal(few, values[:-1])


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "rbf", "gamma": 0.1},
        {"kernel": "poly", "degree": 2, "coef0": 1.0},
        {"kernel": "laplacian", "gamma": 0.1},
        {"kernel": "rbf", "gamma": 0.1, "n_blocks": 4, "rank": 12},
        {"kernel": krein.RBF(gamma=0.1), "n_blocks": 4, "rank": 12, "dtype": "float32"},
    ],
    ids=str,
)
def test_inner_products_are_the_kernel(options: dict[str, Any]) -> None:
    model = MEKA(random_state=0, **options)
    Z = model.fit_transform(X)
    exact, tolerance = "rank" not in options, 1e-4 if "dtype" in options else 1e-8
    if exact:
        with pytest.warns(KreinWarning, match="holds no approximation"):
            a = model.approximation_
    else:
        a = model.approximation_
    norm = np.abs(dense_twin(a.factorization)).max()
    assert Z.shape == (len(X), model.n_features_out_)
    assert np.allclose(Z @ Z.T, dense_twin(a.factorization), atol=tolerance * norm)
    assert np.allclose(model.transform(X), Z, atol=tolerance * np.sqrt(norm))
    assert np.allclose(model.transform(NEW) @ Z.T, a.kernel_rows(NEW), atol=tolerance * norm)
    assert np.allclose((Z**2).sum(0), model.eigenvalues_, rtol=1e-4, atol=tolerance * norm)
    if exact:
        assert np.allclose(model.transform(NEW) @ Z.T, a.kernel_rows(NEW, exact=True), atol=1e-8 * norm)
    assert Z.dtype == (np.float32 if "dtype" in options else np.float64)


@pytest.mark.parametrize("correction", ["auto", "clip", "flip", "square"])
def test_indefinite_kernels_are_corrected_and_told(correction: str) -> None:
    with pytest.warns(KreinWarning, match="indefinite matrix"):
        model = MEKA(kernel=TANH, n_blocks=4, rank=10, correction=correction, random_state=0).fit(X)
    assert model.correction_ == ("flip" if correction == "auto" else correction)
    K = model.approximation_.factorization.to_dense()
    Z = model.transform(X)
    assert np.allclose(Z @ Z.T, K, atol=1e-8 * np.abs(K).max())
    assert model.n_negative_ > 0


def test_a_shift_cannot_enter_features() -> None:
    with pytest.warns(KreinWarning) as told:
        model = MEKA(kernel=TANH, n_blocks=4, rank=10, correction="shift", random_state=0).fit(X)
    f = model.approximation_.factorization
    assert any(f"shift of {f.shift:.3g}" in str(w.message) for w in told)
    with pytest.warns(KreinWarning, match="clip"):
        clipped = MEKA(kernel=TANH, n_blocks=4, rank=10, correction="clip", random_state=0).fit(X)
    assert np.allclose(model.transform(NEW) @ model.transform(X).T, clipped.transform(NEW) @ clipped.transform(X).T)


def test_without_a_correction_an_indefinite_kernel_is_an_error() -> None:
    with pytest.raises(IndefiniteError, match="negative eigenvalues of"):
        MEKA(kernel=TANH, correction="none").fit(X)


@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.1), TANH], ids=["psd", "indefinite"])
def test_a_core_that_falls_apart_gives_sparse_features(kernel: Any) -> None:
    a = groups(kernel)
    model = MEKA(kernel=kernel, approximation=a, sparse_output="auto")
    if kernel is TANH:
        with pytest.warns(KreinWarning, match="flip"):
            Z = model.fit_transform(X)
    else:
        Z = model.fit_transform(X)
    assert sp.issparse(Z)
    assert Z.nnz < 0.4 * Z.shape[0] * Z.shape[1]
    f = model.approximation_.factorization
    assert np.allclose((Z @ Z.T).toarray(), dense_twin(f), atol=1e-9 * np.abs(dense_twin(f)).max())
    assert np.allclose(model.transform(X).toarray(), Z.toarray(), atol=1e-8)
    for dense in (model.set_params(sparse_output=False), clone_of(model, sparse_output=False)):
        assert np.allclose(dense.transform(NEW), clone_of(model, sparse_output=True).transform(NEW).toarray())
    whole = MEKA(kernel="rbf", n_blocks=4, rank=10, sparse_output="auto").fit(X)
    assert isinstance(whole.transform(NEW), np.ndarray)


def clone_of(model: MEKA, **changes: Any) -> MEKA:
    return pickle.loads(pickle.dumps(model)).set_params(**changes)


def test_fewer_features_are_the_leading_ones(monkeypatch: Any) -> None:
    whole = MEKA(n_blocks=4, rank=15, random_state=0).fit(X)
    few = MEKA(5, n_blocks=4, rank=15, random_state=0).fit(X)
    assert np.allclose(few.transform(NEW), whole.transform(NEW)[:, :5])
    monkeypatch.setattr(features, "SMALL", 10)  # the way of large cores: Lanczos
    lanczos = MEKA(5, n_blocks=4, rank=15, random_state=0).fit(X)
    assert np.allclose(np.abs(lanczos.transform(NEW)), np.abs(few.transform(NEW)), atol=1e-8)
    assert list(few.get_feature_names_out()) == [f"meka{i}" for i in range(5)]


def test_a_core_too_large_for_all_features_gives_the_leading_ones(monkeypatch: Any) -> None:
    a = groups()
    wanted = np.linalg.eigvalsh(dense_core(a.factorization.core))[::-1][:4]
    monkeypatch.setattr(BlockSparse, "has_spectrum", False)
    with pytest.raises(InputError, match="Pass n_components"):
        feature_map(a.factorization, None, 0)
    W, values = feature_map(a.factorization, 4, 0)
    assert np.allclose(values, wanted)
    assert np.allclose(W.T @ W, np.diag(values), atol=1e-9)


def test_ridge_on_features_is_kernel_ridge() -> None:
    data, y = make_regression(250, 4, random_state=0, noise=1.0)
    pipeline = make_pipeline(MEKA(kernel="rbf", gamma=0.2), Ridge(0.1, fit_intercept=False)).fit(data[:200], y[:200])
    reference = KernelRidge(kernel="rbf", gamma=0.2, alpha=0.1).fit(data[:200], y[:200])
    assert np.allclose(pipeline.predict(data[200:]), reference.predict(data[200:]), atol=1e-6 * np.abs(y).max())
    # and on an approximated, corrected kernel
    with pytest.warns(KreinWarning, match="flip"):
        low = make_pipeline(
            MEKA(kernel=krein.Sigmoid(gamma=0.2, coef0=-1.0), n_blocks=3, rank=10, random_state=0),
            Ridge(0.1, fit_intercept=False),
        ).fit(data[:200], y[:200])
    a = low[0].approximation_
    dual = np.linalg.solve(a.factorization.to_dense() + 0.1 * np.eye(200), y[:200])
    assert np.allclose(low.predict(data[200:]), a.kernel_rows(data[200:]) @ dual, atol=1e-6 * np.abs(y).max())


def test_a_linear_classifier_separates_circles_in_a_grid() -> None:
    circles, y = make_circles(200, factor=0.3, noise=0.05, random_state=0)
    pipeline = make_pipeline(MEKA(), LinearSVC())
    grid = GridSearchCV(pipeline, {"linearsvc__C": [1.0, 10.0]}, cv=3).fit(circles, y)
    assert grid.best_score_ == 1.0
    frame = MEKA(4).set_output(transform="pandas").fit_transform(circles)
    assert list(frame.columns) == ["meka0", "meka1", "meka2", "meka3"]
    assert MEKA(4).fit_transform(circles.astype(np.float32)).dtype == np.float32


def test_precomputed_and_sparse_input() -> None:
    S, R = rbf_kernel(X, gamma=0.1), rbf_kernel(NEW, X, gamma=0.1)
    for square, rows in ((S, R), (sp.csr_matrix(S), sp.csr_matrix(R))):
        model = MEKA(kernel="precomputed").fit(square)
        assert np.allclose(model.transform(rows) @ model.transform(square).T, R, atol=1e-8)
    sparse = MEKA(gamma=0.1).fit(sp.csr_matrix(X))
    assert np.allclose(sparse.transform(sp.csr_matrix(NEW)) @ sparse.transform(X).T, R, atol=1e-8)


@pytest.mark.filterwarnings("ignore:.*tells nothing about them")
@pytest.mark.parametrize("name", sorted(HARD_DATA))
def test_hard_data(name: str) -> None:
    data = HARD_DATA[name]()
    model = MEKA(gamma=0.5)
    Z = model.fit_transform(data)
    assert np.allclose(Z @ Z.T, krein.RBF(gamma=0.5)(data), atol=1e-8)
    assert np.allclose(model.transform(data), Z, atol=1e-6)


def test_parameters_out_of_range_are_told() -> None:
    with pytest.raises(NotFittedError):
        MEKA().transform(X)
    with pytest.raises(InputError, match="n_components must be an integer"):
        MEKA(0).fit(X)
    with pytest.raises(InputError, match="sparse_output must be"):
        MEKA(sparse_output="yes").fit(X)


def test_features_of_many_rows_carry_what_a_small_matrix_error_would_not():
    """A wide kernel is nearly constant: its error is small without the directions that tell rows apart."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 5))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    model = make_pipeline(MEKA(gamma=0.005, random_state=0), Ridge(1e-3)).fit(X[:2100], y[:2100])
    assert model.score(X[2100:], y[2100:]) > 0.98


def test_nothing_but_zeros_has_no_features():
    assert MEKA(kernel="linear").fit(np.zeros((5, 2))).transform(np.zeros((3, 2))).shape == (3, 0)


@pytest.mark.parametrize("correction", ["auto", "clip", "square"])
def test_an_exact_fit_keeps_what_transform_needs_and_no_more(correction: str) -> None:
    model = MEKA(20, kernel=TANH, correction=correction)
    with pytest.warns(KreinWarning, match="indefinite matrix"):
        Z = model.fit_transform(X)
    values, vectors = np.linalg.eigh(TANH(X))
    change = {"auto": np.abs(values), "clip": np.maximum(values, 0.0), "square": values**2}[correction]
    kept = np.argsort(-change)[:20]
    wanted = (vectors[:, kept] * change[kept]) @ vectors[:, kept].T
    assert np.allclose(Z @ Z.T, wanted, atol=1e-8 * np.abs(wanted).max())
    assert np.allclose(model.transform(X), Z, atol=1e-6 * np.abs(Z).max())
    twin = pickle.loads(pickle.dumps(model))
    assert np.array_equal(twin.transform(NEW), model.transform(NEW))
    assert len(pickle.dumps(model)) < 1e5  # 300 x 20 weights and 300 x 3 rows; the decomposition would be 720 kB
    assert sp.issparse(model.set_params(sparse_output=True).transform(NEW))


def test_a_second_fit_by_another_route_leaves_nothing_of_the_first() -> None:
    model = MEKA(random_state=0).fit(X)
    low = model.set_params(n_blocks=3, rank=8).fit(X)
    assert np.allclose(low.transform(NEW), MEKA(n_blocks=3, rank=8, random_state=0).fit(X).transform(NEW))
    again = low.set_params(n_blocks="auto", rank="auto").fit(X)
    assert np.allclose(again.transform(NEW) @ again.transform(X).T, again._kernel(NEW, X), atol=1e-8)
