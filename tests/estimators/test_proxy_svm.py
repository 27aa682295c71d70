"""ProxySVC with scikit-learn's contract, beside SVC with a clipped matrix, and on blocks."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import krein
from krein.errors import InputError, KreinWarning

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 3))
Y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] > 0, "up", "down")
KERNEL = krein.Sigmoid(gamma=0.5, coef0=-1.0)


@parametrize_with_checks([krein.ProxySVC()])
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::krein.errors.KreinWarning")
def test_with_a_large_penalty_it_is_the_svm_on_the_clipped_matrix():
    new = RNG.standard_normal((30, 3))
    proxy = krein.ProxySVC(kernel=KERNEL, rho=1e8).fit(X, Y)
    clip = krein.SVC(kernel=KERNEL, correction="clip", tol=1e-9).fit(X, Y)
    np.testing.assert_allclose(proxy.decision_function(new), clip.decision_function(new), rtol=0, atol=1e-4)


@pytest.mark.filterwarnings("ignore::krein.errors.KreinWarning")
def test_blocks_of_full_rank_give_the_exact_machine():
    new = RNG.standard_normal((30, 3))
    exact = krein.ProxySVC(kernel=KERNEL, C=3.0, rho=0.5, tol=1e-8).fit(X, Y)
    a = krein.approximate(X, KERNEL, n_blocks=1, rank=120, random_state=0)
    blocks = krein.ProxySVC(kernel=KERNEL, C=3.0, rho=0.5, tol=1e-8, approximation=a).fit(X, Y)
    np.testing.assert_allclose(blocks.decision_function(new), exact.decision_function(new), rtol=0, atol=1e-4)
    rough = krein.ProxySVC(kernel=KERNEL, C=3.0, rho=0.5, n_blocks=3, rank=12, random_state=0).fit(X, Y)
    assert np.mean(rough.predict(new) == exact.predict(new)) > 0.8


def test_it_says_that_the_matrix_is_indefinite():
    with pytest.warns(KreinWarning, match="indefinite matrix.*ProxySVC uses correction='proxy'"):
        machine = krein.ProxySVC(kernel=KERNEL).fit(X, Y)
    assert machine.correction_ == "proxy"
    assert machine.n_negative_ > 0
    assert machine.converged_
    with pytest.warns(KreinWarning, match="is built now"):
        assert machine.approximation_.factorization.n_negative() == machine.n_negative_


@pytest.mark.filterwarnings("ignore::krein.errors.KreinWarning")
def test_three_classes_have_a_proxy_for_each_pair():
    three = np.digitize(X[:, 0], [-0.5, 0.5])
    machine = krein.ProxySVC(kernel=KERNEL, C=10.0).fit(X, three)
    assert machine.score(X, three) > 0.8
    assert machine.decision_function(X).shape == (120, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"rho": 0.0}, "rho"), ({"rho": "a"}, "rho"), ({"refine": "exact"}, "refine"), ({"correction": "clip"}, "'proxy'"),
     ({"correction": 0.5}, "'proxy'")],
)  # fmt: skip
def test_what_it_does_not_have_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        krein.ProxySVC(**given).fit(X, Y)


def test_what_it_does_not_have_is_refused_in_words():
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = X[:, 0] * X[:, 1] > 0
    with pytest.raises(krein.InputError, match=r"ProxySVC has no probabilities.*CalibratedClassifierCV"):
        krein.ProxySVC(probability=True).fit(X, y)
    with pytest.raises(krein.InputError, match=r"rho to be a positive finite number of at least 2\.3e-308; got 'x'\.$"):
        krein.ProxySVC(rho="x").fit(X, y)
    with pytest.warns(krein.KreinWarning, match=r"ProxySVC uses correction='proxy'\.$"):
        krein.ProxySVC(kernel="sigmoid", gamma=1.0).fit(X, y)
