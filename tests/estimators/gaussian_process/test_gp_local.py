"""Blocks on their own: a process per cluster, and the choice of blocks where they are left open."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import krein
from krein.estimators import cache
from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor
from krein.kernels import Evaluator
from krein.policy import Policy


def rough(n, seed=0):
    """Far more to learn than a few hundred directions hold, in neighbourhoods that are simple."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, size=(n, 2))
    return X, np.sin(6.0 * X[:, 0]) * np.cos(6.0 * X[:, 1]) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-6), ("float32", 1e-3)])
def test_blocks_of_full_rank_on_their_own_are_exact_processes_of_the_clusters(dtype, tolerance):
    # k-means, the cells of new rows and one dense process for each: nothing of the factorization is used
    X, y = rough(2400)
    X_new, _ = rough(200, seed=1)
    kernel = krein.RBF(gamma=9.0)
    a = krein.approximate(X, kernel, n_blocks=12, rank=2400, drop=1.0, dtype=dtype, random_state=0)
    noise = 0.02
    model = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None, approximation=a).fit(X, y)
    assert min(a.factorization.ranks) > 50
    cells, evidence = a.partition.assign(Evaluator(kernel), X_new), 0.0
    mean, variance = np.empty(200), np.empty(200)
    for i in range(a.n_blocks):
        own = a.partition.order[a.partition.starts[i] : a.partition.starts[i + 1]]
        here = cells == i
        H = kernel(X[own], X[own]) + noise * np.eye(len(own))
        cross, inverse = kernel(X_new[here], X[own]), np.linalg.inv(H)
        mean[here] = cross @ inverse @ y[own]
        variance[here] = 1.0 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
        evidence -= 0.5 * (y[own] @ inverse @ y[own] + np.linalg.slogdet(H)[1] + len(own) * np.log(2 * np.pi))
    found, deviation = model.predict(X_new, return_std=True)
    np.testing.assert_allclose(found, mean, atol=tolerance)
    np.testing.assert_allclose(deviation**2, variance, atol=tolerance)
    np.testing.assert_allclose(model.log_marginal_likelihood_value_, evidence, rtol=tolerance)


@pytest.mark.slow
def test_open_blocks_are_chosen_by_what_they_predict():
    X, y = rough(6000)
    X_new, y_new = rough(500, seed=1)
    kernel = ConstantKernel(1.0) * RBF(0.2) + WhiteKernel(0.02)
    cache.clear_cache()
    policy = Policy(process_rows=2000)
    model = GaussianProcessRegressor(kernel, optimizer=None, policy=policy, random_state=0).fit(X, y)
    assert model.selection_ is not None
    assert len(model.selection_.tried) > 3
    assert model.approximation_.n_blocks == model.selection_.n_blocks
    few = GaussianProcessRegressor(kernel, optimizer=None, n_blocks=8, rank=16, random_state=0).fit(X, y)
    assert few.selection_ is None
    chosen, given = (float(np.mean((m.predict(X_new) - y_new) ** 2)) for m in (model, few))
    assert chosen < 0.03 < given  # noise is 0.01, all of y 0.26


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # amplitude or noise at a bound
@pytest.mark.parametrize("step", [-0.3, 0.3])  # too short and too long: the first and the last of two is better
def test_of_two_kernels_tried_one_approximation_is_kept(step):
    X, y = rough(2300)
    found = []

    def optimizer(objective, start, bounds):
        found.append(start + np.array([0.0, step, 0.0]))
        return found[-1], 0.0

    cache.clear_cache()
    kernel = ConstantKernel(1.0) * RBF(0.2) + WhiteKernel(0.02)
    model = GaussianProcessRegressor(kernel, optimizer=optimizer, n_blocks=12, rank=50, random_state=0).fit(X, y)
    assert len(found) == 2
    assert [kept.approximation.factorization for kept in cache._kept.values()] == [model._uncorrected.factorization]
