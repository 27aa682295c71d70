"""The climb of the evidence: to scikit-learn's height or above, past what cannot be factored, honest about the end."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor as Reference
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from krein.errors import KreinWarning
from krein.estimators.gaussian_process.learning import FiniteObjective
from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor
from krein.policy import Policy


def reference(kernel, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a bound, or its own line search
        return Reference(kernel).fit(X, y)


def slope_left(model):
    """The largest slope of the evidence that no bound stops."""
    theta, ends = model.kernel_.theta, model.kernel_.bounds
    _, slopes = model.log_marginal_likelihood(theta, eval_gradient=True)
    return np.abs(np.clip(theta + slopes, ends[:, 0], ends[:, 1]) - theta).max()


@pytest.mark.parametrize("seed", [1, 3])  # the first step leads where the covariance cannot be factored
def test_targets_without_noise_are_climbed_and_the_end_is_told(seed):
    X = np.random.default_rng(seed).normal(size=(150, 2))
    y = X[:, 0] + X[:, 1] ** 2
    with pytest.warns(KreinWarning, match="with a slope of .* not positive definite") as told:
        model = GaussianProcessRegressor("rbf", random_state=0).fit(X, y)
    assert any(issubclass(each.category, ConvergenceWarning) for each in told)
    assert not model.converged_
    assert slope_left(model) > 0.15
    theirs = reference(ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(1.0), X, y)
    assert model.log_marginal_likelihood_value_ > theirs.log_marginal_likelihood_value_ + 100.0
    X_new = np.random.default_rng(9).uniform(-1, 1, size=(50, 2))
    np.testing.assert_allclose(model.predict(X_new), X_new[:, 0] + X_new[:, 1] ** 2, atol=3e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a parameter at a bound
@pytest.mark.parametrize("case", range(10))
def test_no_less_evidence_than_scikit_learn(case):
    rng = np.random.default_rng(100 + case)
    d = 1 + case % 5
    X = rng.normal(size=(int(rng.integers(30, 70)), d))
    y = np.sin(X @ rng.normal(size=d)) + (case % 2) * 0.2 * rng.normal(size=len(X))
    kernels = RBF(1.0), RBF(np.ones(d)), Matern(np.ones(d), nu=1.5)
    kernel = ConstantKernel(1.0) * kernels[case % 3] + WhiteKernel(0.1)
    model, theirs = GaussianProcessRegressor(kernel, random_state=0).fit(X, y), reference(kernel, X, y)
    expected = theirs.log_marginal_likelihood_value_
    assert model.log_marginal_likelihood_value_ >= expected - 1e-3 * max(1.0, abs(expected))
    assert model.converged_
    assert slope_left(model) < 1e-3 * len(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", [202, 203, 206, 209])  # one too long a first step; three hardly climbed there
def test_no_less_evidence_than_scikit_learn_without_noise(seed):
    rng = np.random.default_rng(seed)
    d = 1 + (seed - 200) % 5
    X = rng.normal(size=(int(rng.integers(40, 120)), d))
    y = np.sin(X @ rng.normal(size=d)) if seed == 202 else X[:, 0] + X[:, -1] ** 2
    kernel = ConstantKernel(1.0) * RBF(np.ones(d) if seed % 2 == 0 else 1.0)
    ours = GaussianProcessRegressor(kernel, random_state=0).fit(X, y).log_marginal_likelihood_value_
    expected = reference(kernel, X, y).log_marginal_likelihood_value_
    assert ours >= expected - 1e-3 * abs(expected)


def test_a_point_without_a_value_counts_as_worse_than_the_best():
    def objective(theta):  # least at (2, -1); nothing beyond a distance of 3 from the start
        if np.linalg.norm(theta) > 3.0:
            return np.inf, np.zeros(2)
        away = theta - np.array([2.0, -1.0])
        return 10.0 * float(away @ away), 20.0 * away

    finite = FiniteObjective(objective)
    minimize(finite, np.zeros(2), method="L-BFGS-B", jac=True, bounds=[(-20.0, 20.0)] * 2)
    np.testing.assert_allclose(finite.theta, [2.0, -1.0], atol=1e-4)
    assert finite.value == pytest.approx(0.0, abs=1e-6)
    assert finite.n_refused > 0
    value, slopes = finite(np.full(2, 20.0))
    assert np.isfinite(value)
    assert value > finite.value
    assert np.isfinite(slopes).all()


def test_a_start_without_evidence_is_told():
    X = np.repeat(np.arange(5.0), 2)[:, None]  # equal rows and no noise: singular whatever theta is
    model = GaussianProcessRegressor(ConstantKernel(1.0) * RBF(1e4), alpha=0.0)
    with pytest.warns(KreinWarning, match="cannot be evaluated"), pytest.raises(np.linalg.LinAlgError, match="alpha"):
        model.fit(X, np.arange(10.0))


@pytest.mark.parametrize(
    "options",
    [{"policy": Policy(process_rows=900), "max_memory": 2.0**30}, {"n_blocks": 4, "rank": 100}],
    ids=["chosen", "given"],
)
def test_the_slope_of_an_approximated_evidence_is_the_exact_ones(options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=1000)
    kernel = ConstantKernel(8.4) * RBF(1.67) + WhiteKernel(0.01)
    model = GaussianProcessRegressor(kernel, optimizer=None, random_state=0, **options).fit(X, y)
    value, slope = model.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    exact, expected = (
        Reference(kernel, optimizer=None).fit(X, y).log_marginal_likelihood(kernel.theta, eval_gradient=True)
    )
    assert value == pytest.approx(exact, abs=2.0)
    np.testing.assert_allclose(slope, expected, atol=12.0)  # it was 900 for -2


@pytest.mark.parametrize(("scale", "dtype"), [(1e-10, np.float32), (1e-25, np.float64), (1e-10, np.float64)])
def test_rows_beyond_the_bounds_of_length_scales_are_to_be_rescaled(scale, dtype):
    X = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.warns(UserWarning, match=r"The largest entry of X is .*: rescale X"):
        GaussianProcessRegressor(random_state=0).fit((scale * X).astype(dtype), X[:, 0])
