"""Gaussian processes of kernels that are not psd: corrected, with variances and covariances of what they became."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import krein
from krein.errors import KreinWarning
from krein.estimators.gaussian_process.kernels import AsSklearn
from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor


def problem(n, seed=0):
    rng = np.random.default_rng(seed)
    X, X_new = rng.normal(size=(n, 3)), rng.normal(size=(200, 3))
    truth = [np.sin(Z[:, 0]) + 0.5 * Z[:, 1] for Z in (X, X_new)]
    return X, truth[0] + 0.1 * rng.normal(size=n), X_new, truth[1]


def fitted(kernel, X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)
        return GaussianProcessRegressor(kernel, random_state=0, **options).fit(X, y)


def wrong(model, X, truth):
    return float(np.sqrt(np.mean((model.predict(X) - truth) ** 2)))


def check_covariance(model, X):
    """The covariance is one, has the variances told, and functions drawn have them too."""
    std = model.predict(X, return_std=True)[1]
    cov = model.predict(X, return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-9)
    assert np.linalg.eigvalsh(cov)[0] >= -1e-9 * np.diag(cov).max()
    drawn = model.sample_y(X, 4000, random_state=0)
    np.testing.assert_allclose(drawn.std(1), std, rtol=0.1)
    return cov


@pytest.mark.parametrize("how", ["auto", "clip", "flip", "square"])
def test_covariance_and_samples_agree_with_the_deviation(how):
    X, y, X_new, _ = problem(200)
    model = fitted("sigmoid", X, y, correction=how)
    assert model.n_negative_ > 0
    cov = check_covariance(model, X_new[:50])
    assert np.abs(cov - np.diag(np.diag(cov))).max() > 1e-3 * np.diag(cov).max()


@pytest.mark.parametrize("how", ["clip", "flip"])
def test_on_the_data_the_covariance_is_that_of_the_corrected_matrix(how):
    X, y, _, _ = problem(100)
    signal = krein.Sigmoid(gamma=0.5, coef0=-0.3)
    kernel = AsSklearn(signal) + WhiteKernel(0.1)
    model = fitted(kernel, X, y, correction=how, optimizer=None)
    values, V = np.linalg.eigh(signal(X, X))
    changed = np.maximum(values, 0.0) if how == "clip" else np.abs(values)
    K = (V * changed) @ V.T
    dense = K - K @ np.linalg.solve(K + 0.1 * np.eye(100), K)
    mean, cov = model.predict(X, return_cov=True)
    np.testing.assert_allclose(mean, K @ np.linalg.solve(K + 0.1 * np.eye(100), y), atol=1e-6)
    off = ~np.eye(100, dtype=bool)
    np.testing.assert_allclose(cov[off], dense[off], atol=1e-6)
    np.testing.assert_allclose(np.diag(cov), np.diag(dense) + 0.1, atol=1e-6)  # clean <= K: nothing is left over


def test_a_psd_kernel_of_low_rank_has_a_covariance():
    X, y, X_new, _ = problem(300)
    kernel = ConstantKernel(1.5) * RBF(2.0) + WhiteKernel(1e-4)
    model = GaussianProcessRegressor(kernel, n_blocks=4, rank=12, drop=0.0, optimizer=None, random_state=0).fit(X, y)
    assert model.correction_ == "none"
    check_covariance(model, X_new)


def test_a_matrix_that_happens_to_be_psd_has_a_covariance_beyond_its_rows():
    X, y, X_new, _ = problem(60)
    kernel = krein.TL1(rho=1.0)
    assert np.linalg.eigvalsh(kernel(X, X))[0] > 0.0 > np.linalg.eigvalsh(kernel(X_new, X_new))[0]
    model = GaussianProcessRegressor(kernel, alpha=0.01, optimizer=None).fit(X, y)
    assert model.correction_ == "none"
    check_covariance(model, X_new)


def test_the_deviation_is_never_far_above_the_priors():
    # theta of most evidence is where an eigenvalue is nearly 0: k(x, X) v / lambda was 1000 times what it may be
    X, y, X_new, truth = problem(150, seed=1)
    model = fitted(krein.TL1(rho=1.5), X, y, correction="flip")
    mean, std = model.predict(X_new, return_std=True)
    assert (std <= 1.01 * np.sqrt(model.kernel_.diag(X_new))).all()
    assert 0.5 < np.std((mean - truth) / np.sqrt(std**2 - model.noise_)) < 2.0
    check_covariance(model, X_new[:50])


@pytest.mark.parametrize("alpha", [0.01, np.linspace(0.01, 0.02, 150)], ids=["even", "by row"])
@pytest.mark.parametrize("how", ["clip", "flip"])
def test_an_eigenvalue_near_zero_says_nothing_of_new_rows(how, alpha):
    X, y, X_new, _ = problem(150)
    kernel = krein.TL1(rho=1.1)
    values, V = np.linalg.eigh(kernel(X, X))
    small = np.abs(values) < 0.05
    ratio = np.square(kernel(X_new, X) @ V[:, small]) / np.abs(values[small])
    assert small.any()
    assert ratio.max() > 4.0 * 1.1  # more than all of k(x, x)
    model = fitted(kernel, X, y, correction=how, alpha=alpha, optimizer=None)
    std = model.predict(X_new, return_std=True)[1]
    added = np.max((V**2) @ (np.maximum(values, 0.0) if how == "clip" else np.abs(values)) - 1.1)
    assert (std**2 <= 1.1 + added + 1e-6).all()
    check_covariance(model, X_new[:50])


@pytest.mark.parametrize(("seed", "rho"), [(0, 1.2), (1, 0.9), (4, 1.3)])
def test_clip_is_kept_where_flip_has_more_evidence_but_predicts_no_better(seed, rho):
    X, y, X_new, truth = problem(150, seed)
    options = {"alpha": 0.01, "optimizer": None}
    clip, flip = (fitted(krein.TL1(rho=rho), X, y, correction=how, **options) for how in ("clip", "flip"))
    assert flip.log_marginal_likelihood_value_ > clip.log_marginal_likelihood_value_
    assert wrong(flip, X_new, truth) > wrong(clip, X_new, truth)
    with pytest.warns(KreinWarning, match="indefinite.*uses correction='clip'"):
        model = GaussianProcessRegressor(krein.TL1(rho=rho), random_state=0, **options).fit(X, y)
    assert model.correction_ == "clip"


def test_what_is_learned_is_learned_for_the_correction_taken():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.sin(X @ rng.normal(size=3)) + 0.2 * rng.normal(size=80)
    auto, clip, flip = (fitted(krein.TL1(rho=1.5), X, y, correction=how) for how in ("auto", "clip", "flip"))
    assert flip.log_marginal_likelihood_value_ > clip.log_marginal_likelihood_value_ + 1.0
    assert np.abs(flip.kernel_.theta - clip.kernel_.theta).max() > 0.05
    assert auto.correction_ == "clip"
    np.testing.assert_allclose(auto.kernel_.theta, clip.kernel_.theta, atol=1e-2)


def test_flip_is_taken_where_rows_held_out_are_better_predicted():
    X, y, X_new, truth = problem(200)
    model, clip, flip = (fitted("sigmoid", X, y, correction=how) for how in ("auto", "clip", "flip"))
    assert wrong(flip, X_new, truth) < 0.5 * wrong(clip, X_new, truth)
    assert model.correction_ == "flip"
    np.testing.assert_allclose(model.predict(X_new), flip.predict(X_new))


@pytest.mark.parametrize("optimizer", [None, "fmin_l_bfgs_b"])
def test_a_kernel_said_to_be_psd_is_corrected_where_it_is_not(optimizer):
    X, y, X_new, _ = problem(120)
    kernel = krein.SpherePolynomial()
    assert kernel.traits.psd  # on the sphere
    with pytest.warns(KreinWarning) as told:
        model = GaussianProcessRegressor(kernel, alpha=0.01, optimizer=optimizer, random_state=0).fit(X, y)
    assert any("indefinite" in str(each.message) for each in told)
    assert model.correction_ in ("clip", "flip")
    assert model.n_negative_ > 0
    assert model.log_marginal_likelihood(model.kernel_.theta) == pytest.approx(model.log_marginal_likelihood_value_)
    check_covariance(model, X_new[:50])
    sphere = X / np.linalg.norm(X, axis=1, keepdims=True)
    model = GaussianProcessRegressor(kernel, alpha=0.01, optimizer=optimizer, random_state=0).fit(sphere, y)
    assert model.correction_ == "none"


@pytest.mark.filterwarnings("ignore::krein.errors.KreinWarning")
@pytest.mark.parametrize("how", ["flip", "clip"])
def test_rows_of_new_objects_beside_an_indefinite_matrix(how: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 3))
    S, y = np.asarray(krein.Sigmoid(gamma=0.5)(X)), X[:, 0] ** 2
    gp = krein.GaussianProcessRegressor(kernel="precomputed", correction=how, alpha=0.1, optimizer=None)
    gp.fit(S[:60, :60], y[:60])
    w, V = np.linalg.eigh(S[:60, :60])
    kept = np.sign(w) if how == "flip" else (w > 0.0).astype(float)
    K, turned = (V * (kept * w)) @ V.T, (V * kept) @ V.T
    expected = S[60:, :60] @ turned @ np.linalg.solve(K + 0.1 * np.eye(60), y[:60])
    np.testing.assert_allclose(gp.predict(S[60:, :60]), expected, atol=1e-9)
    with pytest.raises(ValueError, match="how similar new objects are to themselves"):
        gp.predict(S[60:, :60], return_std=True)
