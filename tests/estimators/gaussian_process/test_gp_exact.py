"""Exact Gaussian processes: up to policy.process_rows rows one Cholesky factor conditions on all rows."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import scipy.linalg
from sklearn.gaussian_process import GaussianProcessRegressor as Reference
from sklearn.gaussian_process import kernels as sk

import krein
from krein.choosing.by_score import Chooser
from krein.errors import InputError, KreinWarning
from krein.estimators.gaussian_process.kernels import AsSklearn, covariance_and_gradient
from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor
from krein.estimators.route import ByScore, Exact, Given
from krein.policy import Policy

KERNEL = sk.ConstantKernel(1.0) * sk.RBF(1.0) + sk.WhiteKernel(0.1)
FEW = Policy(process_learning_rows=400)  # learning takes less time than conditioning


def problem(n, n_new=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n + n_new, 3))
    y = np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1]) + 0.5 * X[:, 2] + 0.1 * rng.normal(size=n + n_new)
    return X[:n], y[:n], X[n:], y[n:]


def no_eigenvalues(monkeypatch):
    def refuse(*args, **options):
        raise AssertionError("an exact process of a psd kernel needs no eigenvalues")

    for module in (np.linalg, scipy.linalg):
        for name in ("eigh", "eigvalsh"):
            monkeypatch.setattr(module, name, refuse)


@pytest.mark.parametrize("n", [2500, pytest.param(5000, marks=pytest.mark.slow)])
def test_the_posterior_on_all_rows_is_exact(n, monkeypatch):
    X, y, X_new, _ = problem(n)
    no_eigenvalues(monkeypatch)
    model = GaussianProcessRegressor(KERNEL, random_state=0, policy=FEW).fit(X, y)
    assert isinstance(model.route_, Exact)
    H = model.kernel_(X) + 1e-10 * np.eye(n)
    cross = model.kernel_(X_new, X)
    solved = np.linalg.solve(H, np.column_stack([y, cross.T]))
    mean, std = model.predict(X_new, return_std=True)
    np.testing.assert_allclose(mean, cross @ solved[:, 0], atol=1e-8)
    variances = model.kernel_.diag(X_new) - np.einsum("ij,ji->i", cross, solved[:, 1:])
    np.testing.assert_allclose(std, np.sqrt(variances), atol=1e-8)
    evidence = -0.5 * (y @ solved[:, 0] + np.linalg.slogdet(H)[1] + n * np.log(2.0 * np.pi))
    assert model.log_marginal_likelihood_value_ == pytest.approx(evidence, rel=1e-8)
    np.testing.assert_allclose(model.L_[-3:] @ model.L_.T, H[-3:], atol=1e-8)
    assert model.relative_error_ == 0.0
    assert model._approximation is None
    assert model.correction_ == "none"


def test_what_is_learned_on_some_rows_is_near_what_all_say():
    X, y, _, _ = problem(1000)
    some = GaussianProcessRegressor(KERNEL, random_state=0, policy=Policy(process_learning_rows=500)).fit(X, y)
    all_rows = GaussianProcessRegressor(KERNEL, random_state=0).fit(X, y)
    assert all_rows.log_marginal_likelihood_value_ >= some.log_marginal_likelihood_value_
    np.testing.assert_allclose(some.kernel_.theta[1:], all_rows.kernel_.theta[1:], atol=0.2)
    assert some.converged_
    assert some.n_iter_ > 0


def test_more_rows_do_not_make_the_score_worse():
    X, y, X_new, y_new = problem(2300)
    scores = []
    for n in (300, 600, 601, 1200, 2300):  # learned on all rows up to 600
        policy = Policy(exact_rows=600, process_learning_rows=600)
        model = GaussianProcessRegressor(KERNEL, random_state=0, policy=policy).fit(X[:n], y[:n])
        assert isinstance(model.route_, Exact)
        scores.append(model.score(X_new, y_new))
    assert np.all(np.diff(scores) > -0.005)
    assert scores[-1] > scores[0] + 0.01


@pytest.mark.slow
@pytest.mark.skipif("KREIN_DATA" not in os.environ, reason="needs the data sets of the benchmarks")
def test_more_rows_of_kin40k_do_not_make_the_score_worse():
    path = Path(os.environ["KREIN_DATA"]) / "large" / "uci_kin40k.npz"
    if not path.exists():
        pytest.skip(f"needs {path.name}")
    data = np.load(path)
    order = np.random.default_rng(0).permutation(len(data["y"]))
    X, y = data["X"][order].astype(float), data["y"][order].astype(float)
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    scores = [
        GaussianProcessRegressor(KERNEL, random_state=0).fit(X[:n], y[:n]).score(X[-3000:], y[-3000:])
        for n in (2000, 2001, 3000)
    ]
    assert scores[1] > scores[0] - 0.003
    assert scores[2] > scores[1] + 0.005


@pytest.mark.parametrize(
    "kernel",
    [
        KERNEL,
        sk.RBF([1.0, 2.0, 0.3]),
        *(
            sk.ConstantKernel(0.3) * sk.Matern(length, nu=nu)
            for length in (1.2, [1.0, 2.0, 0.3])
            for nu in (0.5, 1.5, 2.5, np.inf)
        ),
        sk.Matern(1.2, nu=1.7) + sk.RBF(2.0, "fixed"),
        (sk.RBF() + sk.WhiteKernel()) ** 2,
        sk.DotProduct() * sk.WhiteKernel() + sk.RationalQuadratic(),
        sk.ConstantKernel(2.0),
        sk.ConstantKernel(2.0) * AsSklearn(krein.RBF(gamma=0.3)) + sk.WhiteKernel(0.2, "fixed"),
        AsSklearn(krein.Laplacian(gamma=0.3)) + AsSklearn(krein.RBF(gamma=0.3) + 2.0 * krein.RBF(gamma=1.0)),
    ],
    ids=repr,
)
def test_the_gradient_without_its_tensor_is_that_of_the_kernel_object(kernel):
    rng = np.random.default_rng(0)
    X, W = np.vstack([rng.normal(size=(40, 3)), np.zeros((2, 3))]), rng.normal(size=(42, 42))
    W = W + W.T
    K, gradient = covariance_and_gradient(kernel, X)
    expected, tensor = kernel(X, eval_gradient=True)
    np.testing.assert_allclose(K, expected, atol=1e-12)
    np.testing.assert_allclose(gradient(W), np.tensordot(W, tensor, axes=2), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", [KERNEL, "rbf", krein.RBF(gamma=0.5), "laplacian"], ids=repr)
def test_few_rows_need_no_eigenvalues(kernel, monkeypatch):
    X, y, X_new, _ = problem(150)
    no_eigenvalues(monkeypatch)
    model = GaussianProcessRegressor(kernel, random_state=0).fit(X.astype(np.float32), y)
    model.predict(X_new[:1])
    model.predict(X_new, return_std=True)
    model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    assert isinstance(model.route_, Exact)
    assert model.route_.psd


def test_the_evidence_of_an_exact_process_is_that_of_all_rows():
    X, y, _, _ = problem(900)
    model = GaussianProcessRegressor(KERNEL, optimizer=None, policy=Policy(exact_rows=300)).fit(X, y)
    theirs = Reference(KERNEL, optimizer=None).fit(X, y)
    theta = KERNEL.theta + 0.1
    value, slopes = model.log_marginal_likelihood(theta, eval_gradient=True)
    expected, expected_slopes = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(slopes, expected_slopes, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # alpha is all the noise there is
@pytest.mark.parametrize("targets", [1, 2])
def test_conditioning_beyond_the_learning_rows_as_scikit_learn_does(targets):
    X, y, X_new, _ = problem(700)
    alpha = np.random.default_rng(1).uniform(0.01, 0.1, 700)
    y = y if targets == 1 else np.column_stack([y, np.cos(y)])
    model = GaussianProcessRegressor(KERNEL, alpha=alpha, normalize_y=True, policy=FEW, random_state=0).fit(X, y)
    theirs = Reference(model.kernel_, alpha=alpha, normalize_y=True, optimizer=None).fit(X, y)
    for got, wanted in zip(model.predict(X_new, return_std=True), theirs.predict(X_new, return_std=True), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-8)
    np.testing.assert_allclose(
        model.predict(X_new[:5], return_cov=True)[1], theirs.predict(X_new[:5], return_cov=True)[1], atol=1e-8
    )
    np.testing.assert_allclose(model.L_, theirs.L_, atol=1e-8)
    np.testing.assert_allclose(model.alpha_, theirs.alpha_, atol=1e-6)
    np.testing.assert_allclose(model.y_train_, theirs.y_train_)


def test_what_is_kept_is_what_scikit_learn_keeps(tmp_path):
    X, y, X_new, _ = problem(400)
    model, theirs = (made(KERNEL, optimizer=None).fit(X, y) for made in (GaussianProcessRegressor, Reference))
    model.predict(X_new)  # what a prediction prepares is not kept
    size = len(pickle.dumps(theirs))
    assert len(pickle.dumps(model)) < 1.1 * size + 10_000
    path = tmp_path / "process.krein"
    krein.save(model, path)
    assert path.stat().st_size < 1.1 * size + 100_000
    held = io.BytesIO()
    joblib.dump(model, held)
    held.seek(0)
    for again in (krein.load(path), joblib.load(held)):
        np.testing.assert_allclose(again.predict(X_new), model.predict(X_new), rtol=1e-12)
        np.testing.assert_allclose(again.predict(X_new, return_std=True)[1], model.predict(X_new, return_std=True)[1])


def test_an_approximation_is_built_when_asked_for():
    X, y, _, _ = problem(200)
    kernel = sk.ConstantKernel(2.0) * sk.RBF([1.0, 2.0, 3.0]) + sk.WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    with pytest.warns(KreinWarning, match="holds no approximation"):
        a = model.approximation_
    np.testing.assert_allclose(a.factorization.to_dense(), (kernel.k1)(X), atol=1e-8)


def test_an_exact_process_on_some_rows_is_taken_where_it_predicts_better(monkeypatch):
    X, y, new, _ = problem(900)
    policy = Policy(exact_rows=100, process_rows=600)
    smooth = GaussianProcessRegressor(KERNEL, policy=policy, random_state=0).fit(X, y)
    assert isinstance(smooth.route_, ByScore)  # of which an approximation of all rows predicts better
    monkeypatch.setattr(Chooser, "__call__", lambda *_, **__: SimpleNamespace(tried=()))
    model = GaussianProcessRegressor(KERNEL, normalize_y=True, policy=policy, random_state=0).fit(X, y)
    assert isinstance(model.route_, Exact)
    assert "600 of 900 rows" in model.route_.why
    assert model.X_train_.shape[0] == 600
    some = np.flatnonzero((X[:, None] == model.X_train_).all(2).any(1))  # the rows it was conditioned on
    scaled = (y - y.mean()) / y.std()
    theirs = Reference(model.kernel_, optimizer=None).fit(X[some], scaled[some])
    mean, deviation = theirs.predict(new, return_std=True)
    ours = model.predict(new, return_std=True)
    np.testing.assert_allclose(ours[0], mean * y.std() + y.mean(), atol=1e-6)
    np.testing.assert_allclose(ours[1], deviation * y.std(), atol=1e-6)
    asked = {"n_blocks": 3, "rank": 20, "policy": policy, "random_state": 0}
    given = GaussianProcessRegressor(KERNEL, optimizer=None, **asked).fit(X, y)
    assert given.X_train_.shape[0] == 900  # what is asked for is obeyed


@pytest.mark.filterwarnings("ignore:.*indefinite matrix")
def test_the_route_follows_the_policy():
    X, y, _, _ = problem(700)
    for policy, kernel, route in (
        (Policy(exact_rows=300, process_rows=700), KERNEL, Exact),
        (Policy(exact_rows=300, process_rows=699), KERNEL, ByScore),
        (Policy(exact_rows=300, process_rows=700), krein.TL1(rho=8.0), ByScore),
        (Policy(exact_rows=300), "linear", Given),  # one block of rank 3 is exact
    ):
        model = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None, policy=policy, random_state=0).fit(X, y)
        assert isinstance(model.route_, route), kernel
    with pytest.raises(InputError, match=r"policy must be a krein\.Policy"):
        GaussianProcessRegressor(KERNEL, policy=300).fit(X, y)


@pytest.mark.filterwarnings("ignore:The optimal value found for dimension")
def test_a_kernel_without_noise_that_predicts_the_prior_mean_is_warned_of() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 3))
    y = np.sin(X[:, 0])
    GaussianProcessRegressor(random_state=0).fit(X, y)
    noisy = y + 0.5 * rng.normal(size=250)
    with pytest.warns(KreinWarning, match=r"no noise term, and of 64 rows left out in turn the predictions explain 0%"):
        model = GaussianProcessRegressor(random_state=0).fit(X, noisy)
    left_out = [  # by a fit without the row, at the parameters learned
        Reference(model.kernel_, optimizer=None).fit(np.delete(X, i, 0), np.delete(noisy, i)).predict(X[i : i + 1])[0]
        for i in range(10)
    ]
    assert np.abs(left_out).max() < 1e-3
    GaussianProcessRegressor(KERNEL, random_state=0).fit(X, noisy)
