"""Gaussian processes: scikit-learn's answers on small data, a dense process written out here at any rank."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import approx_fprime
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor as Reference
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)
from sklearn.utils.estimator_checks import parametrize_with_checks

import krein
from krein.errors import IndefiniteError, InputError, KreinWarning
from krein.estimators.gaussian_process.kernels import AsSklearn
from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor

KERNELS = {
    "isotropic": ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1),
    "anisotropic": ConstantKernel(1.0) * RBF([1.0, 2.0, 3.0]) + WhiteKernel(0.1),
    "matern": ConstantKernel(2.0) * Matern([1.0, 1.0, 1.0], nu=1.5) + WhiteKernel(0.1),
    "quadratic": RationalQuadratic() + WhiteKernel(0.1),
    "sum": ConstantKernel(1.0) * RBF(1.0) + ConstantKernel(0.1) * DotProduct() + WhiteKernel(0.1),
    "power": ConstantKernel(0.5) * DotProduct(1.0) ** 2 + WhiteKernel(0.1),
}
FIXED = ConstantKernel(1.5) * RBF([1.0, 2.0, 3.0]) + WhiteKernel(0.05)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # noise has no length scale: a bound
@parametrize_with_checks([GaussianProcessRegressor()])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def problem(n=80, seed=0, targets=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.column_stack([np.sin(X @ rng.normal(size=3)) + 0.2 * rng.normal(size=n) for _ in range(targets)])
    return X, y[:, 0] if targets == 1 else y, rng.normal(size=(30, 3))


def dense(kernel, X, y, X_new, alpha=0.0):
    """Mean, covariance and evidence by inverting the matrix: no Cholesky factor, no factorization."""
    H = kernel(X) + np.diag(np.broadcast_to(alpha, len(X)))
    inverse, cross = np.linalg.inv(H), kernel(X_new, X)
    evidence = -0.5 * y @ inverse @ y - 0.5 * np.linalg.slogdet(H)[1] - 0.5 * len(y) * np.log(2 * np.pi)
    return cross @ inverse @ y, kernel(X_new) - cross @ inverse @ cross.T, evidence


@pytest.mark.parametrize("name", KERNELS)
def test_small_data_is_as_in_scikit_learn(name):
    X, y, X_new = problem()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # some parameter of some kernel ends at a bound
        ours = GaussianProcessRegressor(KERNELS[name], random_state=0).fit(X, y)
        theirs = Reference(KERNELS[name], random_state=0).fit(X, y)
    inside = np.all(np.abs(theirs.kernel_.theta[:, None] - theirs.kernel_.bounds) > 1.0, axis=1)
    np.testing.assert_allclose(ours.kernel_.theta[inside], theirs.kernel_.theta[inside], atol=1e-3)
    theta = KERNELS[name].theta
    value, slopes = ours.log_marginal_likelihood(theta, eval_gradient=True)
    expected, expected_slopes = theirs.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(expected, abs=1e-6)
    np.testing.assert_allclose(slopes, expected_slopes, rtol=1e-6, atol=1e-6)
    for got, wanted in zip(ours.predict(X_new, return_std=True), theirs.predict(X_new, return_std=True), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-3)
    assert ours.correction_ == "none"
    assert ours.n_negative_ == 0
    assert ours.n_iter_ > 0
    assert ours.converged_
    assert ours.relative_error_ < 1e-6


def test_a_periodic_kernel_is_psd_on_a_line_and_corrected_elsewhere():
    X, y, _ = problem()
    kernel = ConstantKernel(1.0) * ExpSineSquared(1.0, 3.0) + WhiteKernel(0.1)
    ours, theirs = (made(kernel, optimizer=None).fit(X[:, :1], y) for made in (GaussianProcessRegressor, Reference))
    assert ours.correction_ == "none"
    assert ours.log_marginal_likelihood_value_ == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-6)
    with pytest.warns(KreinWarning, match="indefinite"):
        ours = GaussianProcessRegressor(kernel, optimizer=None).fit(X, y)
    assert ours.correction_ in ("clip", "flip")


@pytest.mark.parametrize("n_blocks", [1, 3])
def test_at_full_rank_it_is_the_dense_process(n_blocks):
    X, y, X_new = problem(120)
    model = GaussianProcessRegressor(FIXED, n_blocks=n_blocks, rank=120, optimizer=None, random_state=0).fit(X, y)
    assert model._posterior is not None  # through the factorization
    mean, cov, evidence = dense(FIXED, X, y, X_new, 1e-10)
    if n_blocks == 1:  # beyond, new points see the rows of their own cluster alone
        np.testing.assert_allclose(model.predict(X_new), mean, atol=1e-6)
        np.testing.assert_allclose(model.predict(X_new, return_std=True)[1], np.sqrt(np.diag(cov)), atol=1e-6)
        np.testing.assert_allclose(model.predict(X_new, return_cov=True)[1], cov, atol=1e-6)
    assert model.log_marginal_likelihood_value_ == pytest.approx(evidence, abs=1e-6)
    assert model.log_marginal_likelihood(FIXED.theta) == pytest.approx(evidence, abs=1e-6)
    np.testing.assert_allclose(model.alpha_, np.linalg.solve(FIXED(X) + 1e-10 * np.eye(120), y), atol=1e-6)


def test_at_full_rank_with_a_noise_per_row():
    X, y, X_new = problem(100)
    alpha = np.random.default_rng(3).uniform(0.01, 1.0, 100)
    model = GaussianProcessRegressor(FIXED, alpha=alpha, n_blocks=1, rank=100, optimizer=None, random_state=0).fit(X, y)
    exact = GaussianProcessRegressor(FIXED, alpha=alpha, optimizer=None).fit(X, y)
    mean, cov, evidence = dense(FIXED, X, y, X_new, alpha)
    for each in (model, exact):
        assert each.log_marginal_likelihood_value_ == pytest.approx(evidence, abs=1e-6)
        got, std = each.predict(X_new, return_std=True)
        np.testing.assert_allclose(got, mean, atol=1e-6)
        np.testing.assert_allclose(std, np.sqrt(np.diag(cov)), atol=1e-6)
        np.testing.assert_allclose(each.noise_, alpha + 0.05, atol=1e-12)


def test_noise_that_depends_on_the_row_comes_from_the_kernel_too():
    X, y, X_new = problem(60)
    kernel = ConstantKernel(1.0) * RBF(1.0) + DotProduct(1.0) * WhiteKernel(0.1)
    mean, cov, evidence = dense(kernel, X, y, X_new, 1e-10)
    for options in ({}, {"n_blocks": 1, "rank": 60}):
        model = GaussianProcessRegressor(kernel, optimizer=None, random_state=0, **options).fit(X, y)
        assert model.log_marginal_likelihood_value_ == pytest.approx(evidence, abs=1e-6)
        np.testing.assert_allclose(model.predict(X_new, return_std=True)[1], np.sqrt(np.diag(cov)), atol=1e-6)
        np.testing.assert_allclose(model.predict(X_new), mean, atol=1e-6)
        np.testing.assert_allclose(model.noise_, 1e-10 + 0.1 * DotProduct(1.0).diag(X))


def test_at_low_rank_the_evidence_and_mean_are_those_of_the_approximate_matrix():
    X, y, X_new = problem(200)
    model = GaussianProcessRegressor(FIXED, n_blocks=4, rank=12, optimizer=None, random_state=0).fit(X, y)
    K = model.approximation_.factorization.to_dense()
    rest = np.mean(1.5 - np.diag(K))
    assert rest > 0.0
    H = K + (0.05 + 1e-10 + rest) * np.eye(200)
    evidence = -0.5 * y @ np.linalg.solve(H, y) - 0.5 * np.linalg.slogdet(H)[1] - 100 * np.log(2 * np.pi)
    assert model.log_marginal_likelihood_value_ == pytest.approx(evidence, rel=1e-9)
    cross = model.approximation_.kernel_rows(X_new / np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(model.predict(X_new), cross @ np.linalg.solve(H, y), atol=1e-8)
    std = model.predict(X_new, return_std=True)[1]
    explained = np.einsum("ij,ji->i", cross, np.linalg.solve(H, cross.T))
    own = 1.5 - model.approximation_.self_similarities(X_new / np.array([1.0, 2.0, 3.0]))
    above = own >= rest
    assert above.any()
    assert not above.all()
    np.testing.assert_allclose(std[above] ** 2, (1.55 - explained)[above], atol=1e-8)
    assert (std[~above] ** 2 >= (1.55 - explained)[~above] - 1e-8).all()  # never more confident than k(x, x) allows
    cov = model.predict(X_new, return_cov=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std)


def test_far_from_the_data_the_prior_is_left():
    X, y, _ = problem(300)
    model = GaussianProcessRegressor(FIXED, n_blocks=3, rank=20, optimizer=None, random_state=0).fit(X, y)
    mean, std = model.predict(np.full((1, 3), 1e3), return_std=True)
    assert mean == pytest.approx(0.0, abs=1e-12)
    assert std == pytest.approx(np.sqrt(1.55))


def test_amplitude_and_noise_are_those_of_most_evidence_of_the_approximate_matrix():
    X, y, _ = problem(150)
    model = GaussianProcessRegressor(KERNELS["isotropic"], n_blocks=2, rank=30, random_state=0).fit(X, y)
    best = model.log_marginal_likelihood(model.kernel_.theta)
    for place in (0, 2):
        for step in (-0.05, 0.05):
            theta = model.kernel_.theta
            theta[place] += step
            assert model.log_marginal_likelihood(theta) < best
    again = GaussianProcessRegressor(model.kernel_, n_blocks=2, rank=30, optimizer=None, random_state=0).fit(X, y)
    assert again.log_marginal_likelihood_value_ == pytest.approx(best, rel=1e-6)


def test_the_gradient_of_an_approximate_evidence_is_that_of_its_values():
    X, y, _ = problem(150)
    model = GaussianProcessRegressor(FIXED, n_blocks=2, rank=75, optimizer=None, random_state=0).fit(X, y)
    exact = GaussianProcessRegressor(FIXED, optimizer=None).fit(X, y)
    _, slopes = model.log_marginal_likelihood(FIXED.theta, eval_gradient=True)
    np.testing.assert_allclose(slopes, exact.log_marginal_likelihood(FIXED.theta, eval_gradient=True)[1], atol=0.5)


def test_targets_together_are_targets_alone():
    X, Y, X_new = problem(90, targets=3)
    for options in ({}, {"n_blocks": 2, "rank": 30}):
        model = GaussianProcessRegressor(FIXED, optimizer=None, normalize_y=True, random_state=0, **options).fit(X, Y)
        mean, std = model.predict(X_new, return_std=True)
        cov = model.predict(X_new, return_cov=True)[1]
        assert (mean.shape, std.shape, cov.shape) == ((30, 3), (30, 3), (30, 30, 3))
        total = 0.0
        for i in range(3):
            alone = GaussianProcessRegressor(FIXED, optimizer=None, normalize_y=True, random_state=0, **options)
            got = alone.fit(X, Y[:, i]).predict(X_new, return_std=True)
            np.testing.assert_allclose(mean[:, i], got[0], atol=1e-9)
            np.testing.assert_allclose(std[:, i], got[1], atol=1e-9)
            total += alone.log_marginal_likelihood_value_
        assert model.log_marginal_likelihood_value_ == pytest.approx(total)


def test_samples_have_the_mean_and_covariance_of_the_process():
    X, y, X_new = problem(150)
    for options in ({}, {"n_blocks": 2, "rank": 30}):
        model = GaussianProcessRegressor(FIXED, optimizer=None, random_state=0, **options).fit(X, y)
        mean, cov = model.predict(X_new[:5], return_cov=True)
        drawn = model.sample_y(X_new[:5], 40_000, random_state=1)
        assert drawn.shape == (5, 40_000)
        np.testing.assert_allclose(drawn.mean(1), mean, atol=0.03)
        np.testing.assert_allclose(np.cov(drawn), cov, atol=0.05)
    assert GaussianProcessRegressor(n_targets=2).sample_y(X_new[:5], 3).shape == (5, 2, 3)


def test_before_fit_it_is_the_prior():
    _, _, X_new = problem()
    mean, cov = GaussianProcessRegressor(FIXED).predict(X_new, return_cov=True)
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_allclose(cov, FIXED(X_new))
    std = GaussianProcessRegressor(krein.RBF(gamma=0.5)).predict(X_new, return_std=True)[1]
    np.testing.assert_allclose(std, 1.0)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", krein.RBF(gamma=0.1), 2.0 * krein.RBF()])
def test_a_krein_kernel_gets_amplitude_and_noise_and_all_are_learned(kernel):
    X, y, X_new = problem(100)
    model = GaussianProcessRegressor(kernel, random_state=0).fit(X, y)
    assert len(model.kernel_.theta) == 3
    _, slopes = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    assert np.abs(slopes).max() < 0.05
    elsewhere = model.kernel_.theta + 0.3
    numeric = approx_fprime(elsewhere, model.log_marginal_likelihood, 1e-6)
    np.testing.assert_allclose(
        model.log_marginal_likelihood(elsewhere, eval_gradient=True)[1], numeric, rtol=1e-3, atol=1e-3
    )
    if kernel != "laplacian":
        theirs = Reference(ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)).fit(X, y)
        assert model.log_marginal_likelihood_value_ == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-3)
        np.testing.assert_allclose(model.predict(X_new), theirs.predict(X_new), atol=1e-2)


def test_without_an_optimizer_a_krein_kernel_is_taken_as_it_is():
    X, y, X_new = problem(50)
    model = GaussianProcessRegressor(krein.RBF(gamma=0.5), alpha=0.1, optimizer=None).fit(X, y)
    theirs = Reference(RBF(1.0), alpha=0.1, optimizer=None).fit(X, y)
    np.testing.assert_allclose(model.predict(X_new), theirs.predict(X_new), atol=1e-9)
    assert model.log_marginal_likelihood_value_ == pytest.approx(theirs.log_marginal_likelihood_value_)


def test_sparse_rows_strings_and_precomputed():
    X, y, X_new = problem(60)
    dense_model = GaussianProcessRegressor("rbf", gamma=0.3, random_state=0).fit(X, y)
    sparse_model = GaussianProcessRegressor("rbf", gamma=0.3, random_state=0).fit(sparse.csr_matrix(X), y)
    np.testing.assert_allclose(sparse_model.predict(sparse.csr_matrix(X_new)), dense_model.predict(X_new), atol=1e-4)
    S = krein.RBF(gamma=0.3)
    given = GaussianProcessRegressor("precomputed", random_state=0).fit(S(X), y)
    beside = GaussianProcessRegressor(lambda A, B: S(A, B), random_state=0).fit(X, y)
    np.testing.assert_allclose(given.predict(S(X_new, X)), beside.predict(X_new), atol=1e-4)
    with pytest.raises(InputError, match="similar new objects are to themselves"):
        given.predict(S(X_new, X), return_std=True)

    def letters(A, B):
        return np.array([[float(len(set(a) & set(b))) for b in B] for a in A])

    words = ["cab", "bad", "face", "dab", "fed", "bee"]
    model = GaussianProcessRegressor(letters, random_state=0).fit(words, np.arange(6.0))
    assert model.predict(["abc", "def"]).shape == (2,)


@pytest.mark.parametrize("how", ["clip", "flip", "square"])
def test_the_gradient_sees_through_a_correction(how):
    X, y, _ = problem(40)
    kernel = ConstantKernel(1.0) * AsSklearn(krein.Sigmoid(gamma=0.5, coef0=-0.5)) + WhiteKernel(0.1)
    with pytest.warns(KreinWarning, match="indefinite"):
        model = GaussianProcessRegressor(kernel, correction=how, optimizer=None, random_state=0).fit(X, y)
    theta = kernel.theta + np.array([0.1, 0.05, 0.2])
    value, slopes = model.log_marginal_likelihood(theta, eval_gradient=True)
    numeric = approx_fprime(theta, model.log_marginal_likelihood, 1e-6)
    np.testing.assert_allclose(slopes, numeric, rtol=1e-3, atol=1e-3)
    assert model.log_marginal_likelihood(theta) == pytest.approx(value)


def test_without_a_correction_an_indefinite_matrix_is_an_error():
    X, y, _ = problem(80)
    model = GaussianProcessRegressor(krein.Sigmoid(gamma=1.0), correction="none", alpha=0.1, optimizer=None)
    with pytest.raises(IndefiniteError, match="correction="):
        model.set_params(n_blocks=1, rank=80).fit(X, y)


def test_seven_digits_are_enough_of_small_data():
    X, y, X_new = problem(100)
    single = GaussianProcessRegressor(FIXED, optimizer=None).fit(X.astype(np.float32), y)
    double = GaussianProcessRegressor(FIXED, optimizer=None).fit(X.astype(np.float32).astype(np.float64), y)
    np.testing.assert_allclose(single.predict(X_new.astype(np.float32)), double.predict(X_new), atol=1e-5)
    assert single.log_marginal_likelihood_value_ == pytest.approx(double.log_marginal_likelihood_value_, abs=1e-9)


def test_an_approximation_handed_in_keeps_its_kernel():
    X, y, X_new = problem(300)
    a = krein.approximate(X, krein.RBF(gamma=0.3), n_blocks=3, rank=30, random_state=0)
    model = GaussianProcessRegressor(approximation=a, random_state=0).fit(X, y)
    assert model.approximation_ is a
    assert len(model.kernel_.theta) == 2
    fresh = GaussianProcessRegressor(model.kernel_, n_blocks=3, rank=30, optimizer=None, random_state=0).fit(X, y)
    assert fresh.log_marginal_likelihood_value_ == pytest.approx(model.log_marginal_likelihood_value_, rel=1e-6)
    np.testing.assert_allclose(model.predict(X_new), fresh.predict(X_new), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1.0}, "at least 0"),
        ({"alpha": np.ones(3)}, "same number of entries as y"),
        ({"optimizer": "newton"}, "fmin_l_bfgs_b"),
        ({"correction": "bend"}, "correction must be one of"),
        ({"correction": "shift"}, "adds to the diagonal is noise.*'clip' or 'flip'"),
        ({"kernel": RBF(), "gamma": 3.0}, "takes no gamma. Give them to the kernel object"),
        ({"kernel": RBF(), "degree": 2, "coef0": 1.0}, "takes no degree, coef0"),
        ({"kernel": RBF(), "kernel_params": {"a": 1}}, "takes no kernel_params"),
        ({"gamma": np.ones(3)}, "kernel=None.*takes no gamma"),
        ({"n_targets": 2}, "number of targets seen"),
        ({"n_restarts_optimizer": -1}, "n_restarts_optimizer"),
        ({"kernel": "gauss"}, "kernel must be one of"),
    ],
)
def test_what_cannot_be_used_is_refused(options, message):
    X, y, _ = problem(30)
    with pytest.raises(InputError, match=message):
        GaussianProcessRegressor(**options).fit(X, y)


@pytest.mark.slow
def test_many_rows_learn_what_made_them():
    rng = np.random.default_rng(0)
    X = rng.uniform(-4, 4, size=(3000, 2))
    truth = ConstantKernel(2.0) * RBF([0.8, 3.0]) + WhiteKernel(0.05)
    y = rng.multivariate_normal(np.zeros(3000), truth(X), method="cholesky")
    start = ConstantKernel(1.0) * RBF([1.0, 1.0]) + WhiteKernel(1.0)
    model = GaussianProcessRegressor(start, n_blocks=6, rank=60, random_state=0).fit(X[:2700], y[:2700])
    np.testing.assert_allclose(np.exp(model.kernel_.theta[1:]), [0.8, 3.0, 0.05], rtol=0.35)
    mean, std = model.predict(X[2700:], return_std=True)
    scores = (y[2700:] - mean) / std
    assert 0.85 < np.std(scores) < 1.15
    assert np.std(y[2700:] - mean) < 0.3


@pytest.mark.parametrize("normalize", [False, True])
def test_several_targets_are_those_of_scikit_learn(normalize):
    X, Y, X_new = problem(targets=3)
    Y = 3.0 * Y + np.arange(3.0)
    options = {"alpha": 1e-2, "normalize_y": normalize}
    ours, theirs = (c(1.0 * RBF(1.0), **options).fit(X, Y) for c in (GaussianProcessRegressor, Reference))
    for name in ("return_std", "return_cov"):
        for found, expected in zip(*(m.predict(X_new, **{name: True}) for m in (ours, theirs)), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(ours.sample_y(X_new[:9], 2), theirs.sample_y(X_new[:9], 2), atol=1e-4)
    np.testing.assert_allclose(ours.score(X, Y), theirs.score(X, Y), atol=1e-6)
    blocks = GaussianProcessRegressor(1.0 * RBF(1.0), n_blocks=1, rank=80, **options).fit(X, Y)
    for found, expected in zip(*(m.predict(X_new, return_std=True) for m in (blocks, theirs)), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-3)
    assert blocks.sample_y(X_new[:9], 2).shape == (9, 3, 2)


def test_a_start_outside_its_bounds_is_moved_to_them():
    X, y, _ = problem()
    with pytest.warns(ConvergenceWarning, match="close to the specified upper bound"):
        model = GaussianProcessRegressor(RBF(1.0, (1e-5, 1e-3)), alpha=0.1).fit(X, y)
    assert model.kernel_.length_scale <= 1e-3 * (1.0 + 1e-9)
