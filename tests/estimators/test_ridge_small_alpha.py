"""Alphas that are small beside the matrix, as of rows that nobody scaled: predictions do not drown in rounding."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import Ridge

from krein import KernelPCA, KernelRidge, KernelRidgeClassifier, KreinWarning
from krein.estimators.route import ByScore, Exact


def incomes(n):
    """Income, price and age in their own units."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.lognormal(11, 1, n), rng.lognormal(13, 1, n), rng.normal(50, 20, n)]
    return X, 0.3 * X[:, 0] + 0.1 * X[:, 1] + 1e4 * rng.normal(size=n)


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
@pytest.mark.parametrize("n", [1000, 5000])
@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e6])
def test_unscaled_columns_are_fitted_as_by_a_singular_value_decomposition(n, alpha):
    X, y = incomes(n)
    expected = Ridge(alpha=alpha, fit_intercept=False, solver="svd").fit(X, y).predict(X)
    for kernel in ("linear", lambda A, B: A @ B.T) if n < 2000 else ("linear",):
        found = KernelRidge(alpha, kernel=kernel).fit(X, y).predict(X)
        np.testing.assert_allclose(found, expected, atol=1e-6 * expected.std())


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_scale_of_the_rows_does_not_cost_digits(scale, weighted):
    rng = np.random.default_rng(1)
    X = scale * rng.normal(size=(300, 5))
    y = X @ rng.normal(size=5) / scale + rng.normal(size=300)
    w = rng.uniform(0.5, 2.0, 300) if weighted else None
    expected = Ridge(alpha=1.0, fit_intercept=False, solver="svd").fit(X, y, w).predict(X)
    found = KernelRidge(kernel="linear").fit(X, y, w).predict(X)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max())
    labels = KernelRidgeClassifier(1.0, kernel="linear").fit(X, y > 0.0, w)
    decided = Ridge(alpha=1.0, fit_intercept=False, solver="svd").fit(X, np.where(y > 0.0, 1.0, -1.0), w).predict(X)
    np.testing.assert_allclose(labels.decision_function(X), decided, rtol=1e-9, atol=1e-10 * np.abs(decided).max())


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_a_matrix_beyond_rounding_is_least_squares_and_says_so(load):
    X, y = load(return_X_y=True)
    with pytest.warns(KreinWarning, match="singular to rounding .its largest eigenvalue is .*scale the data"):
        model = KernelRidge(kernel="poly", degree=3, gamma=1).fit(X, y)
    assert model.score(X, y) > 0.8  # it was -1.3e11


def test_the_kernels_own_matrix_is_left_where_rounding_takes_over():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2100, 4))
    y = np.sin(X).sum(1) + 0.1 * rng.normal(size=2100)
    model = KernelRidge(1e-3, kernel="rbf", gamma=0.2).fit(X, y)
    assert isinstance(model.route_, Exact)
    with pytest.warns(KreinWarning, match="is used"):
        model = KernelRidge(1e-13, kernel="rbf", gamma=0.2, random_state=0).fit(X, y)
    assert isinstance(model.route_, ByScore)
    assert model.score(X, y) > 0.9


@pytest.mark.parametrize("degree", [2, 3])
def test_a_preimage_of_unscaled_rows_stays_among_them(degree):
    X = load_wine().data
    pca = KernelPCA(2, kernel="poly", degree=degree, gamma=1.0, fit_inverse_transform=True)
    with pytest.warns(KreinWarning, match="singular to rounding"):
        Z = pca.fit_transform(X)
    assert np.abs(pca.inverse_transform(Z)).max() < 3.0 * X.max()  # it was 1e14 and 1e46
    none = KernelPCA(2, kernel="rbf", fit_inverse_transform=True, alpha=0.0)
    with pytest.warns(KreinWarning, match="least squares"):
        none.fit(np.vstack([X, X]))
