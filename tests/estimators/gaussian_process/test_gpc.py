"""GaussianProcessClassifier against scikit-learn's, and against Laplace's approximation on dense matrices."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit
from sklearn.datasets import load_iris, make_moons
from sklearn.gaussian_process import GaussianProcessClassifier as Reference
from sklearn.gaussian_process import kernels as sk

import krein
from krein import GaussianProcessClassifier, InputError, KreinWarning
from krein.estimators.gaussian_process.laplace import averaged_sigmoid
from krein.estimators.route import Exact

IRIS, SPECIES = load_iris(return_X_y=True)
MOONS, SIDES = make_moons(120, noise=0.3, random_state=0)
NEW = np.random.default_rng(0).normal(size=(40, 2))
KERNELS = {
    "default": None,
    "wide": 4.0 * sk.RBF(0.5),
    "noise": 1.5 * sk.Matern(0.7, nu=1.5) + sk.WhiteKernel(0.1),
    "product": sk.DotProduct(1.0) * sk.RationalQuadratic(1.0, 0.5),
}


def dense_laplace(K, y):
    """The mode, W there and log q(y) by plain Newton steps on K itself, written for K that can be inverted."""
    t, g = np.where(y, 1.0, 0.0), np.zeros(len(y))
    precision = np.linalg.inv(K)
    for _ in range(100):
        p = expit(g)
        g = g + np.linalg.solve(precision + np.diag(p * (1 - p)), t - p - precision @ g)
    W = expit(g) * expit(-g)
    fit = np.log(expit(np.where(y, g, -g))).sum() - 0.5 * g @ precision @ g
    return g, W, fit - 0.5 * np.linalg.slogdet(np.eye(len(y)) + K * W)[1]


@pytest.mark.parametrize("name", KERNELS)
def test_a_given_kernel_has_the_predictions_of_scikit_learn(name):
    other = Reference(KERNELS[name], optimizer=None).fit(MOONS, SIDES)
    model = GaussianProcessClassifier(KERNELS[name], optimizer=None).fit(MOONS, SIDES)
    assert isinstance(model.route_, Exact)
    assert model.kernel_ == other.kernel_
    np.testing.assert_allclose(model.predict_proba(NEW), other.predict_proba(NEW), atol=1e-6)
    np.testing.assert_array_equal(model.predict(NEW), other.predict(NEW))
    if hasattr(other, "latent_mean_and_variance"):  # scikit-learn 1.7
        both = zip(model.latent_mean_and_variance(NEW), other.latent_mean_and_variance(NEW), strict=True)
        for found, expected in both:
            np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_allclose(model.log_marginal_likelihood(), other.log_marginal_likelihood(), atol=1e-4)
    if name != "default":
        theta = model.kernel_.theta + 0.1
        (value, slopes), (expected, expected_slopes) = (
            machine.log_marginal_likelihood(theta, eval_gradient=True) for machine in (model, other)
        )
        np.testing.assert_allclose(value, expected, atol=1e-4)
        np.testing.assert_allclose(slopes, expected_slopes, atol=1e-3)


@pytest.mark.parametrize("kernel", [1.0 * sk.RBF(1.0), 1.0 * sk.Matern([1.0, 1.0], nu=2.5)])
def test_the_optimizer_finds_the_optimum_of_scikit_learn(kernel):
    other = Reference(kernel).fit(MOONS, SIDES)
    model = GaussianProcessClassifier(kernel).fit(MOONS, SIDES)
    assert model.converged_
    np.testing.assert_allclose(model.kernel_.theta, other.kernel_.theta, atol=1e-2)
    assert model.log_marginal_likelihood_value_ > other.log_marginal_likelihood_value_ - 1e-4
    np.testing.assert_allclose(model.predict_proba(NEW), other.predict_proba(NEW), atol=1e-3)


@pytest.mark.parametrize("multi_class", ["one_vs_rest", "one_vs_one"])
def test_several_classes_are_those_of_scikit_learn(multi_class):
    names = np.array(["se", "ve", "vi"])[SPECIES]
    options = {"kernel": 10.0 * sk.RBF(1.0), "optimizer": None, "multi_class": multi_class}
    other, model = Reference(**options).fit(IRIS, names), GaussianProcessClassifier(**options).fit(IRIS, names)
    np.testing.assert_array_equal(model.predict(IRIS), other.predict(IRIS))
    assert model.kernel_ == other.kernel_
    for theta in (None, np.array([0.3, -0.2]), np.linspace(-0.5, 0.5, 6)):
        value, expected = model.log_marginal_likelihood(theta), other.log_marginal_likelihood(theta)
        np.testing.assert_allclose(value, expected, atol=1e-4)
    with pytest.raises(InputError, match="binary"):
        model.latent_mean_and_variance(IRIS)
    with pytest.raises(NotImplementedError, match="multi-class"):
        model.log_marginal_likelihood(np.zeros(2), eval_gradient=True)
    if multi_class == "one_vs_rest":
        np.testing.assert_allclose(model.predict_proba(IRIS), other.predict_proba(IRIS), atol=1e-6)
    else:
        with pytest.raises(InputError, match="one_vs_one"):
            model.predict_proba(IRIS)


@pytest.mark.parametrize(
    "shape", [{"n_blocks": 1, "rank": 20}, {"n_blocks": 4, "rank": 6}, {"n_blocks": 4, "rank": 9, "drop": 1.0}]
)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_on_a_factorization_it_is_laplace_on_the_dense_approximated_matrix(shape, noise):
    kernel = 3.0 * sk.RBF(0.4) + (sk.WhiteKernel(noise) if noise else sk.ConstantKernel(1e-12))
    model = GaussianProcessClassifier(kernel, optimizer=None, random_state=0, **shape).fit(MOONS, SIDES)
    a = model.approximation_
    f = a.factorization
    rest = 3.0 - f.diagonal().mean()
    K = f.to_dense() + (rest + noise) * np.eye(len(MOONS))
    g, W, evidence = dense_laplace(K, SIDES)
    np.testing.assert_allclose(model.log_marginal_likelihood_value_, evidence, atol=1e-6)
    np.testing.assert_allclose(model.pi_, expit(g), atol=1e-7)
    cross = a.kernel_rows(NEW)
    before = np.einsum("ij,ij->i", a.extend(NEW) @ f.core, a.extend(NEW).toarray())
    explained = np.einsum("ij,jk,ik->i", cross, np.linalg.inv(K + np.diag(1.0 / W)), cross)
    left = np.maximum(3.0 - before, 0.0)
    mean, variance = model.latent_mean_and_variance(NEW)
    np.testing.assert_allclose(mean, cross @ (SIDES - expit(g)), atol=1e-6)
    held = np.maximum(left, 0.5 * (left + rest))  # what no basis holds counts at least half as much as on average
    np.testing.assert_allclose(variance, held + before - explained + noise, atol=1e-6)


def test_a_factorization_of_full_rank_is_the_exact_process():
    options = {"kernel": 5.0 * sk.RBF(0.7), "optimizer": None}
    exact = GaussianProcessClassifier(**options).fit(MOONS, SIDES)
    full = GaussianProcessClassifier(n_blocks=1, rank=len(MOONS), **options).fit(MOONS, SIDES)
    np.testing.assert_allclose(full.predict_proba(NEW), exact.predict_proba(NEW), atol=1e-5)
    theta = exact.kernel_.theta + 0.2
    (value, slopes), (expected, expected_slopes) = (
        machine.log_marginal_likelihood(theta, eval_gradient=True) for machine in (full, exact)
    )
    np.testing.assert_allclose(value, expected, atol=1e-4)
    np.testing.assert_allclose(slopes, expected_slopes, atol=1e-2)


def test_parameters_are_learned_on_some_rows_where_there_are_many():
    X, y = make_moons(400, noise=0.3, random_state=1)
    policy = krein.Policy(exact_rows=200, process_learning_rows=200)
    model = GaussianProcessClassifier("rbf", policy=policy, n_blocks=1, rank=60, random_state=0).fit(X, y)
    whole = GaussianProcessClassifier("rbf", random_state=0).fit(X, y)
    assert isinstance(whole.route_, Exact)
    assert not isinstance(model.route_, Exact)
    assert model.kernel_.theta.shape == (2,)  # an amplitude and gamma
    lost = whole.log_marginal_likelihood_value_ - whole.log_marginal_likelihood(model.kernel_.theta)
    assert 0.0 <= lost + 1e-3 < 0.02 * abs(whole.log_marginal_likelihood_value_)
    assert np.abs(model.predict_proba(X) - whole.predict_proba(X)).max() < 0.1
    assert np.array_equal(model.predict(X), model.classes_[(model.predict_proba(X)[:, 1] > 0.5).astype(int)])


@pytest.mark.parametrize("how", ["clip", "flip"])
def test_an_indefinite_kernel_is_corrected_and_named(how):
    kernel = krein.Sigmoid(gamma=1.0, coef0=-0.5)
    with pytest.warns(KreinWarning, match="indefinite matrix"):
        model = GaussianProcessClassifier(kernel, optimizer=None, correction=how).fit(MOONS, SIDES)
    values, vectors = np.linalg.eigh(kernel(MOONS))
    changed = np.maximum(values, 0.0) if how == "clip" else np.abs(values)
    K = (vectors * changed) @ vectors.T
    lacking = max(0.0, float(np.mean(np.diag(kernel(MOONS)) - np.diag(K))))
    g, _, evidence = dense_laplace(K + (lacking + 1e-9) * np.eye(len(K)), SIDES)
    tolerance = 10 * len(K) * np.finfo(float).eps * np.abs(values).max()  # that of Factorization.n_negative
    assert model.n_negative_ == (values < -tolerance).sum()
    np.testing.assert_allclose(model.log_marginal_likelihood_value_, evidence, atol=1e-3)
    np.testing.assert_allclose(model.pi_, expit(g), atol=1e-4)


@pytest.mark.filterwarnings("ignore:The log evidence of the kernel's parameters was left")  # with SciPy 1.13
def test_parameters_of_an_indefinite_kernel_are_learned_through_the_correction():
    with pytest.warns(KreinWarning, match="indefinite matrix"):
        model = GaussianProcessClassifier(krein.TL1(rho=1.0), random_state=0).fit(IRIS[50:], SPECIES[50:])
    h = 1e-4
    slopes = model.log_marginal_likelihood(model.kernel_.theta + 0.1, eval_gradient=True)[1]
    for i, step in enumerate(h * np.eye(2)):
        ends = [model.log_marginal_likelihood(model.kernel_.theta + 0.1 + s) for s in (step, -step)]
        np.testing.assert_allclose(slopes[i], (ends[0] - ends[1]) / (2 * h), atol=1e-2)
    assert model.score(IRIS[50:], SPECIES[50:]) > 0.9


def test_krein_kernels_names_and_matrices_are_one_process():
    kernel = krein.RBF(gamma=0.8)
    plain = GaussianProcessClassifier(kernel, optimizer=None).fit(IRIS, SPECIES)
    named = GaussianProcessClassifier("rbf", gamma=0.8, optimizer=None).fit(IRIS, SPECIES)
    other = Reference(sk.RBF(np.sqrt(0.5 / 0.8)), optimizer=None).fit(IRIS, SPECIES)
    for model in (plain, named):
        np.testing.assert_allclose(model.predict_proba(IRIS), other.predict_proba(IRIS), atol=1e-6)
    for multi_class in ("one_vs_rest", "one_vs_one"):
        given = GaussianProcessClassifier("precomputed", optimizer=None, multi_class=multi_class)
        found = given.fit(kernel(IRIS), SPECIES).predict(kernel(IRIS))
        np.testing.assert_array_equal(found, plain.predict(IRIS))
    with pytest.raises(InputError, match="similar new objects are to themselves"):
        given.set_params(multi_class="one_vs_rest").fit(kernel(IRIS), SPECIES).predict_proba(kernel(IRIS))


def test_an_approximation_can_be_handed_in():
    a = krein.approximate(IRIS, krein.RBF(gamma=0.8), n_blocks=2, rank=40, random_state=0)
    model = GaussianProcessClassifier(approximation=a, optimizer=None).fit(IRIS, SPECIES)
    exact = GaussianProcessClassifier(krein.RBF(gamma=0.8), optimizer=None).fit(IRIS, SPECIES)
    np.testing.assert_allclose(model.predict_proba(IRIS), exact.predict_proba(IRIS), atol=1e-3)
    learned = GaussianProcessClassifier(approximation=a).fit(IRIS, SPECIES)
    assert learned.kernel_.theta.shape == (3,)  # an amplitude for each class
    assert learned.log_marginal_likelihood_value_ > model.log_marginal_likelihood_value_
    assert learned.score(IRIS, SPECIES) > 0.95


def test_a_second_fit_leaves_nothing_of_the_first():
    first, rows = GaussianProcessClassifier(random_state=0).fit(IRIS, SPECIES), IRIS[50:].copy()
    again = first.fit(rows, SPECIES[50:])
    fresh = GaussianProcessClassifier(random_state=0).fit(IRIS[50:], SPECIES[50:])
    assert set(vars(again)) == set(vars(fresh))
    expected = fresh.predict_proba(IRIS)
    np.testing.assert_array_equal(again.predict_proba(IRIS), expected)
    rows += 1.0
    np.testing.assert_array_equal(again.predict_proba(IRIS), expected)
    several = again.fit(IRIS, SPECIES)
    assert set(vars(several)) == set(vars(GaussianProcessClassifier(random_state=0).fit(IRIS, SPECIES)))


def test_words_are_classified():
    words = [a + b for a in ("aa", "aab", "aba", "bb", "bba", "bab") for b in ("a", "b", "ab")]
    y = np.array([w.count("a") > w.count("b") for w in words])
    model = GaussianProcessClassifier(krein.Spectrum(1)).fit(words, y)
    assert model.score(words, y) > 0.9
    assert model.predict_proba(["aaaa", "bbbb"])[:, 1].argmax() == 0


@pytest.mark.parametrize(("mean", "variance"), [(0.3, 0.5), (-2.0, 4.0), (5.0, 0.0)])
def test_probabilities_are_the_mean_of_the_sigmoid(mean, variance):
    spread = np.sqrt(variance)
    density = lambda z: expit(mean + spread * z) * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)  # noqa: E731
    found = averaged_sigmoid(np.array([mean]), np.array([variance]))[0]
    np.testing.assert_allclose(found, quad(density, -12.0, 12.0)[0], atol=2e-3)


def test_it_says_what_it_cannot_do():
    for bad, message in (
        ({"multi_class": "all"}, "multi_class"), ({"max_iter_predict": 0}, "max_iter_predict"),
        ({"correction": "shift"}, "shift"), ({"kernel": sk.CompoundKernel([sk.RBF()])}, "CompoundKernel"),
        ({"kernel": sk.RBF(), "gamma": 1.0}, "gamma"), ({"optimizer": "sgd", "kernel": sk.RBF()}, "optimizer"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            GaussianProcessClassifier(**bad).fit(MOONS, SIDES)
    with pytest.raises(InputError, match="2 or more distinct classes"):
        GaussianProcessClassifier().fit(MOONS, np.zeros(len(MOONS)))
    with pytest.warns(KreinWarning, match="did not reach the mode"):
        model = GaussianProcessClassifier(100.0 * sk.RBF(0.3), optimizer=None, max_iter_predict=2).fit(MOONS, SIDES)
    assert not model.converged_


def test_a_covariance_of_any_size_has_a_mode():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for amplitude in (1e-8, 1e8):
            for shape in ({}, {"n_blocks": 2, "rank": 30}):
                options = {"optimizer": None, "random_state": 0} | shape
                model = GaussianProcessClassifier(sk.ConstantKernel(amplitude) * sk.RBF(0.5), **options)
                p = model.fit(MOONS, SIDES).predict_proba(NEW)
                assert model.converged_
                assert np.isfinite(p).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"degree": -1.0}, "degree must be a finite number"),
        ({"coef0": np.nan}, "coef0 must be a finite number"),
        ({"n_blocks": 0}, "n_blocks must be an integer"),
        ({"rank": 1.5}, "rank must be an integer"),
        ({"max_memory": 0}, "max_memory must be a number of bytes"),
        ({"dtype": "float8"}, "dtype must be one of"),
        ({"random_state": -1}, "[sS]eed"),
        ({"policy": 3}, "policy must be a krein.Policy"),
    ],
)
def test_parameters_out_of_range_are_refused_also_where_a_fit_would_not_use_them(given, said):
    rows = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match=said):
        GaussianProcessClassifier(**given).fit(rows, (rows[:, 0] > 0).astype(int))
