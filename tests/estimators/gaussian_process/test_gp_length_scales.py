"""Processes that learn length scales, one per feature or one for all: gradients and optima beside scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import krein
from krein import RBF, Matern, Periodic, RationalQuadratic
from krein.estimators.gaussian_process.kernels import AsSklearn, covariance_and_gradient, scales, translate

SCALES = [0.5, 2.0, 7.0]
PAIRS = [
    (RBF(length_scale=1.3), sk.RBF(1.3)),
    (RBF(length_scale=SCALES), sk.RBF(SCALES)),
    *((Matern(1.3, nu), sk.Matern(1.3, nu=nu)) for nu in (0.5, 1.5, 2.5)),
    *((Matern(SCALES, nu), sk.Matern(SCALES, nu=nu)) for nu in (0.5, 1.5, 2.5)),
    (RationalQuadratic(1.3, 0.7), sk.RationalQuadratic(1.3, 0.7)),
    (Periodic(0.8, 2.1), sk.ExpSineSquared(0.8, 2.1)),
]


def wavy(n, seed=0):
    """Rows of three features of different lengths; the target is noisy."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, 3)) * [1.0, 10.0, 100.0]
    return X, np.sin(4.0 * X[:, 0]) + 0.05 * X[:, 1] + np.cos(0.02 * X[:, 2]) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize(
    ("ours", "theirs"), PAIRS, ids=lambda k: repr(k) if isinstance(k, krein.kernels.Kernel) else ""
)
def test_gradients_are_scikit_learns(ours, theirs):
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(25, 3)), rng.normal(size=(25, 25))
    X[1] = X[0]
    W = W + W.T
    mine = AsSklearn(ours)
    K, gradient = covariance_and_gradient(mine, X)
    expected, slopes = theirs(X, eval_gradient=True)
    order = [1, 0] if isinstance(ours, RationalQuadratic) else list(range(theirs.n_dims))  # they sort the names
    np.testing.assert_allclose(mine.theta, theirs.theta[order])
    np.testing.assert_allclose(K, expected, atol=1e-13)
    np.testing.assert_allclose(gradient(W), np.tensordot(W, slopes, 2)[order], rtol=1e-9, atol=1e-9)
    sparse_K, by_differences = covariance_and_gradient(mine, sp.csr_matrix(X))
    np.testing.assert_allclose(sparse_K, expected, atol=1e-13)
    np.testing.assert_allclose(by_differences(W), gradient(W), rtol=1e-5, atol=1e-5)


def test_the_gradient_of_a_rational_quadratic_with_several_scales():
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(25, 3)), np.ones((25, 25))
    at = AsSklearn(RationalQuadratic(SCALES, 0.7))
    found = covariance_and_gradient(at, X)[1](W)
    for i, step in enumerate(1e-6 * np.eye(4)):
        up, down = (at.clone_with_theta(at.theta + sign * step)(X).sum() for sign in (1.0, -1.0))
        assert found[i] == pytest.approx((up - down) / 2e-6, rel=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (RBF(length_scale=[1.0] * 3), sk.RBF([1.0] * 3)),
        (Matern([1.0] * 3, nu=1.5), sk.Matern([1.0] * 3, nu=1.5)),
        (Matern([1.0] * 3, nu=2.5), sk.Matern([1.0] * 3, nu=2.5)),
        (RationalQuadratic(1.0), sk.RationalQuadratic(1.0)),
    ],
    ids=["RBF", "Matern 1.5", "Matern 2.5", "RationalQuadratic"],
)
def test_the_optimum_is_scikit_learns(ours, theirs):
    X, y = wavy(200)
    X = X / [1.0, 10.0, 100.0]
    size = float(np.mean(y**2))
    amplitude = sk.ConstantKernel(size, (1e-5 * size, 1e5 * size))
    noise = sk.WhiteKernel(0.1 * size, (1e-10 * size, 1e2 * size))
    reference = GaussianProcessRegressor(amplitude * theirs + noise).fit(X, y)
    process = krein.GaussianProcessRegressor(ours).fit(X, y)
    assert process.log_marginal_likelihood_value_ >= reference.log_marginal_likelihood_value_ - 1e-3
    assert process.log_marginal_likelihood_value_ == pytest.approx(reference.log_marginal_likelihood_value_, abs=0.01)
    new = wavy(50, seed=1)[0] / [1.0, 10.0, 100.0]
    np.testing.assert_allclose(process.predict(new), reference.predict(new), atol=2e-3)


def test_columns_that_do_not_matter_get_long_scales():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, size=(200, 4))
    y = np.sin(3.0 * X[:, 2]) + 0.05 * rng.normal(size=200)
    process = krein.GaussianProcessRegressor(RBF(length_scale=np.ones(4))).fit(X, y)
    learned = np.array(process.kernel_.k1.k2.kernel.length_scale)
    assert learned[2] == learned.min()
    assert (np.delete(learned, 2) > 5.0 * learned[2]).all()


def test_an_approximated_process_clusters_in_units_of_its_length_scales():
    X, y = wavy(600)
    kernel = AsSklearn(RBF(length_scale=SCALES))
    np.testing.assert_allclose(scales(kernel, X), SCALES)
    assert scales(kernel, sp.csr_matrix(X)) is None
    np.testing.assert_allclose(translate(kernel, np.array(SCALES))(X / SCALES), kernel(X), atol=1e-12)
    np.testing.assert_allclose(translate(kernel, np.ones(3))(X), kernel(X), atol=1e-12)
    process = krein.GaussianProcessRegressor(Matern([0.5, 5.0, 50.0], nu=2.5), n_blocks=2, rank=60, random_state=0).fit(
        X[:400], y[:400]
    )
    assert process.score(X[400:], y[400:]) > 0.95
    exact = krein.GaussianProcessRegressor(Matern([0.5, 5.0, 50.0], nu=2.5)).fit(X[:400], y[:400])
    np.testing.assert_allclose(process.predict(X[400:]), exact.predict(X[400:]), atol=0.2)


def test_a_periodic_process_goes_on_beyond_its_data():
    def wave(t):
        return np.sin(0.8 * np.pi * t) + 0.5 * np.cos(1.6 * np.pi * t)

    x = np.linspace(0.0, 10.0, 80)
    y = wave(x) + 0.05 * np.random.default_rng(0).normal(size=80)
    process = krein.GaussianProcessRegressor(Periodic(1.0, 2.45)).fit(x[:, None], y)
    assert process.kernel_.k1.k2.kernel.periodicity == pytest.approx(2.5, rel=1e-2)
    np.testing.assert_allclose(process.predict(x[:, None] + 20.0), wave(x + 20.0), atol=0.15)
    size = float(np.mean(y**2))
    theirs = sk.ConstantKernel(size) * sk.ExpSineSquared(1.0, 2.45) + sk.WhiteKernel(0.1 * size)
    reference = GaussianProcessRegressor(theirs).fit(x[:, None], y)
    assert process.log_marginal_likelihood_value_ == pytest.approx(reference.log_marginal_likelihood_value_, abs=1e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_two_thousand_rows_have_scikit_learns_optimum():
    X, y = wavy(2000)
    X = X / [1.0, 10.0, 100.0]
    size = float(np.mean(y**2))
    theirs = sk.ConstantKernel(size, (1e-5 * size, 1e5 * size)) * sk.Matern([1.0] * 3, nu=2.5)
    noise = sk.WhiteKernel(0.1 * size, (1e-10 * size, 1e2 * size))
    reference = GaussianProcessRegressor(theirs + noise).fit(X, y)
    process = krein.GaussianProcessRegressor(
        Matern([1.0] * 3, nu=2.5), policy=krein.Policy(process_learning_rows=2000)
    ).fit(X, y)
    assert process.log_marginal_likelihood_value_ == pytest.approx(reference.log_marginal_likelihood_value_, abs=0.05)


def mixed(n, missing, seed=0):
    """Rows of two numbers and two categories; the target is a function of the first of each."""
    rng = np.random.default_rng(seed)
    x, letters = rng.normal(size=(n, 2)), rng.choice(list("abc"), size=(n, 2))
    y = np.sin(2.0 * x[:, 0]) + (letters[:, 0] == "a") + 0.1 * rng.normal(size=n)
    table = [[x[i, 0], letters[i, 0], x[i, 1], letters[i, 1]] for i in range(n)]
    for i, j in zip(*np.nonzero(rng.random((n, 4)) < missing), strict=True):
        if j > 0:  # a row without any value is refused
            table[i][j] = None
    return table, y


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize(
    "options",
    [
        {"weights": [1.0] * 4},
        {"weights": {"0": 2.0}, "distance": True},
        {"weights": [1.0, 2.0, 1.0, 4.0], "decay": 2, "power": 2.0},
        {"weights": [1.0, 0.0, 3.0, 0.5], "decay": 1.0, "power": 0.5},
        {"weights": "balanced", "decay": 3.0},
    ],
    ids=repr,
)
def test_the_gradient_by_the_weights_of_columns_is_that_of_differences(options, missing):
    table, _ = mixed(30, missing)
    rng = np.random.default_rng(1)
    W = rng.normal(size=(30, 30))
    W = W + W.T
    at = AsSklearn(krein.Gower(**options).bind(table))
    K, gradient = covariance_and_gradient(at, table)
    np.testing.assert_array_equal(K, at.kernel(table))
    learned = 0 if options["weights"] == "balanced" else sum(w > 0.0 for w in at.kernel.weights)
    assert len(at.theta) == learned + ("decay" in options)
    found = gradient(W)
    for i, step in enumerate(1e-5 * np.eye(len(at.theta))):
        up, down = (np.vdot(W, at.clone_with_theta(at.theta + sign * step)(table)) for sign in (1.0, -1.0))
        assert found[i] == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-6)


def test_weights_of_columns_are_learned():
    table, y = mixed(220, 0.0)
    start = krein.Gower(weights=[1.0] * 4, decay=2.0, power=2.0)

    def fitted(optimizer):
        machine = krein.GaussianProcessRegressor(start, optimizer=optimizer, alpha=0.01, random_state=0)
        return machine.fit(table[:120], y[:120])

    plain, learned = fitted(None), fitted("fmin_l_bfgs_b")
    weights = np.array(learned.kernel_.k1.k2.kernel.weights)
    assert weights[[0, 1]].min() > 10.0 * weights[[2, 3]].max()
    assert learned.log_marginal_likelihood_value_ > plain.log_marginal_likelihood_value_
    assert learned.score(table[120:], y[120:]) > max(0.9, plain.score(table[120:], y[120:]))
