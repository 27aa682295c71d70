"""KernelLogisticRegression against LogisticRegression on features whose inner products are the kernel."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

import krein
from krein import InputError, KernelLogisticRegression, KreinWarning
from krein.solvers.logistic import solve_logistic

IRIS, SPECIES = load_iris(return_X_y=True)
MOONS, SIDES = make_moons(300, noise=0.3, random_state=0)
DATA = {"two classes": (MOONS, SIDES), "three classes": (IRIS, np.array(["se", "ve", "vi"])[SPECIES])}


def features(K):
    """F with F Fᵀ = K, by eigenvectors."""
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def reference(F, y, weights=None, **options):
    options = {"tol": 1e-12, "max_iter": 100_000, "solver": "newton-cholesky"} | options
    return LogisticRegression(**options).fit(F, y, weights)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("C", [0.1, 30.0])
def test_it_is_logistic_regression_on_features_of_the_kernel(data, intercept, C):
    X, y = DATA[data]
    rng = np.random.default_rng(0)
    w = rng.integers(1, 4, len(y)).astype(float)
    K = krein.RBF(gamma=0.5)(X)
    model = KernelLogisticRegression(gamma=0.5, C=C, fit_intercept=intercept, tol=1e-9).fit(X, y, w)
    F = features(K)
    other = reference(F, y, w, C=C, fit_intercept=intercept)
    assert model.converged_
    np.testing.assert_array_equal(model.classes_, other.classes_)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(F), atol=1e-6)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), other.predict(F))
    np.testing.assert_allclose(model.decision_function(X), other.decision_function(F), atol=1e-4)
    np.testing.assert_allclose(model.intercept_, other.intercept_ if intercept else 0.0, atol=1e-5)
    expanded = K @ model.dual_coef_ + (model.intercept_ if model.dual_coef_.ndim > 1 else model.intercept_[0])
    np.testing.assert_allclose(expanded, model.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("class_weight", ["balanced", {"se": 3.0, "ve": 1.0, "vi": 0.2}])
def test_weights_of_classes_and_the_linear_kernel_are_those_of_scikit_learn(class_weight):
    y = DATA["three classes"][1]
    model = KernelLogisticRegression(kernel="linear", class_weight=class_weight, tol=1e-9).fit(IRIS[20:], y[20:])
    other = reference(IRIS[20:], y[20:], class_weight=class_weight)
    np.testing.assert_allclose(model.predict_proba(IRIS), other.predict_proba(IRIS), atol=1e-6)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("shape", [{}, {"n_blocks": 3, "rank": 12}])
def test_mean_probabilities_are_the_shares_of_the_classes(data, shape):
    X, y = DATA[data]
    model = KernelLogisticRegression(gamma=1.0, C=5.0, random_state=0, **shape).fit(X, y)
    shares = [np.mean(y == name) for name in model.classes_]
    np.testing.assert_allclose(model.predict_proba(X).mean(0), shares, atol=1e-6)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize(
    "shape", [{"n_blocks": 1, "rank": 25}, {"n_blocks": 4, "rank": 9}, {"n_blocks": 5, "rank": 9, "drop": 1.0}]
)
def test_on_a_factorization_it_is_that_of_the_dense_approximated_matrix(data, shape):
    X, y = DATA[data]
    model = KernelLogisticRegression(gamma=1.0, C=5.0, tol=1e-9, random_state=0, **shape).fit(X, y)
    F = features(model.approximation_.factorization.to_dense())
    np.testing.assert_allclose(model.predict_proba(X), reference(F, y, C=5.0).predict_proba(F), atol=1e-6)
    assert type(model.route_).__name__ == "Given"


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_gradient_vanishes_and_its_norm_bounds_the_error_of_the_values(n_classes):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 3))
    labels = (np.abs(X).sum(1) * 7).astype(int) % n_classes
    f = krein.approximate(X, krein.RBF(gamma=1.0), n_blocks=3, rank=40, random_state=0).factorization
    weights = rng.uniform(0.1, 50.0, 400)
    best = solve_logistic(f, labels, weights, intercept=False, tol=1e-11)
    early = solve_logistic(f, labels, weights, intercept=False, max_iter=3)
    assert best.converged
    assert not early.converged
    assert early.objective >= best.objective
    K = f.to_dense()
    np.testing.assert_allclose(f.lift(best.inner), K @ best.dual, atol=1e-8)
    errors = np.linalg.norm(f.lift(early.inner - best.inner), axis=1)
    assert (errors <= early.gradient_norm * np.sqrt(np.diag(K)) * (1.0 + 1e-6)).all()


def test_rows_of_weight_zero_are_rows_that_are_not_there():
    w = np.ones(len(MOONS))
    w[::3] = 0.0
    y = SIDES.copy()
    y[::3] = 2  # a class that no row of weight has
    model = KernelLogisticRegression(gamma=1.0).fit(MOONS, y, w)
    other = KernelLogisticRegression(gamma=1.0).fit(MOONS[w > 0], y[w > 0])
    K = krein.RBF(gamma=1.0)(MOONS)
    given = KernelLogisticRegression(kernel="precomputed").fit(K, y, w)
    for found, X in ((model, MOONS), (given, K)):
        np.testing.assert_array_equal(found.classes_, [0, 1])
        np.testing.assert_allclose(found.predict_proba(X), other.predict_proba(MOONS), atol=1e-6)


@pytest.mark.parametrize("how", ["auto", "clip", "flip", "square"])
def test_an_indefinite_kernel_is_corrected_and_named(how):
    kernel = krein.Sigmoid(gamma=1.0, coef0=-0.5)
    values, vectors = np.linalg.eigh(kernel(MOONS))
    with pytest.warns(KreinWarning, match="indefinite matrix"):
        model = KernelLogisticRegression(kernel=kernel, correction=how, tol=1e-9).fit(MOONS, SIDES)
    assert model.n_negative_ > 0
    changed = {"clip": np.maximum(values, 0.0), "flip": np.abs(values), "square": values**2}[model.correction_]
    F = vectors * np.sqrt(changed)
    np.testing.assert_allclose(model.predict_proba(MOONS), reference(F, SIDES).predict_proba(F), atol=1e-5)


def test_it_says_what_it_cannot_do():
    with pytest.raises(krein.IndefiniteError, match="negative eigenvalues"):
        KernelLogisticRegression(kernel=krein.Sigmoid(gamma=1.0), correction="none").fit(MOONS, SIDES)
    with pytest.raises(InputError, match="'flip'"):
        KernelLogisticRegression(correction="shift").fit(MOONS, SIDES)
    shifted = krein.approximate(MOONS, krein.Sigmoid(gamma=1.0), n_blocks=2, rank=20, random_state=0).corrected("shift")
    with pytest.raises(InputError, match="without a shift"):
        KernelLogisticRegression(kernel=krein.Sigmoid(gamma=1.0), approximation=shifted).fit(MOONS, SIDES)
    for bad in ({"C": 0.0}, {"C": np.inf}, {"tol": -1.0}, {"max_iter": 0}):
        with pytest.raises(InputError, match=next(iter(bad))):
            KernelLogisticRegression(**bad).fit(MOONS, SIDES)
    with pytest.warns(KreinWarning, match="stopped after max_iter = 2"):
        model = KernelLogisticRegression(C=1e3, gamma=10.0, max_iter=2).fit(MOONS, SIDES)
    assert not model.converged_
    assert model.gradient_norm_ > model.tol


def test_classes_that_are_separated_still_have_an_optimum():
    X = np.repeat([[0.0], [1.0]], 20, axis=0)
    y = np.repeat([0, 1], 20)
    model = KernelLogisticRegression(kernel="linear", C=1e8).fit(X, y)
    other = reference(X, y, C=1e8)
    np.testing.assert_allclose(model.decision_function(X), other.decision_function(X), rtol=1e-4)


def test_gamma_is_tuned_and_grids_share_approximations():
    model = KernelLogisticRegression(gamma="tune", random_state=0).fit(MOONS, SIDES)
    assert model.selection_ is not None
    search = GridSearchCV(KernelLogisticRegression(gamma=1.0), {"C": [0.01, 1.0]}, scoring="neg_log_loss", cv=3)
    assert search.fit(MOONS, SIDES).best_params_ == {"C": 1.0}


def test_many_rows_take_the_factorization():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2600, 2))
    chance = 1.0 / (1.0 + np.exp(-4.0 * np.sin(2.0 * X[:, 0])))
    y = rng.uniform(size=2600) < chance
    model = KernelLogisticRegression(gamma=0.5, C=10.0, random_state=0).fit(X[:2100], y[:2100])
    assert type(model.route_).__name__ == "ByScore"
    assert np.abs(model.predict_proba(X[2100:])[:, 1] - chance[2100:]).mean() < 0.05
