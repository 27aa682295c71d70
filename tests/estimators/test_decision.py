"""SVC(probability=True): sigmoids and coupling beside scikit-learn's, and beside what defines them."""

from __future__ import annotations

import warnings
from inspect import signature
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import expit
from sklearn import svm
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.preprocessing import StandardScaler

import krein
from krein.errors import InputError
from krein.estimators.decision import class_probabilities, sigmoids
from krein.estimators.svm import SVC


def split(load: Any) -> tuple[Any, ...]:
    X, y = load(return_X_y=True)
    X, new = StandardScaler().fit_transform(X), np.arange(len(X)) % 3 == 0
    return X[~new], y[~new], X[new], y[new]


def theirs(**options: Any) -> Any:
    """scikit-learn's, which warns from 1.9 on that it will go."""
    return svm.SVC(probability=True, random_state=0, tol=1e-8, **options)


@pytest.mark.skipif("probability" not in signature(svm.SVC).parameters, reason="this scikit-learn's SVC has none")
@pytest.mark.parametrize("load", [load_iris, load_breast_cancer])
def test_probabilities_are_as_good_as_scikit_learns(load: Any) -> None:
    X, y, X_new, y_new = split(load)
    ours = SVC(probability=True, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        exact = theirs().fit(X, y)
        given, A, B = exact.predict_proba(X_new), exact.probA_, exact.probB_
    found = ours.predict_proba(X_new)
    assert found.shape == given.shape
    assert ours.probA_.shape == A.shape
    np.testing.assert_allclose(found.sum(1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.exp(ours.predict_log_proba(X_new)), found)
    assert abs(log_loss(y_new, found) - log_loss(y_new, given)) < 0.02  # other folds
    np.testing.assert_allclose(found, given, atol=0.06)
    ours.probA_, ours.probB_ = A, B  # the same sigmoids: what is left is LIBSVM's rounding,
    np.testing.assert_allclose(ours.predict_proba(X_new), given, atol=3e-3)  # which ends its coupling at 0.005 / k


def test_a_sigmoid_minimises_platts_loss() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=200)
    values, weights = 3.0 * labels - 1.0 + rng.normal(size=200), rng.uniform(0.2, 3.0, size=200)
    A, B = sigmoids(values[:, None], labels, weights, 2, "ovo")
    first = labels == 0
    weights = weights / weights.mean()
    up, down = weights[first].sum(), weights[~first].sum()
    target = np.where(first, (up + 1.0) / (up + 2.0), 1.0 / (down + 2.0))

    def loss(x: Any) -> Any:
        p = expit(x[0] * values - x[1])  # for the first class, by minus its value
        return -(weights * (target * np.log(p) + (1.0 - target) * np.log(1.0 - p))).sum()

    best = minimize(loss, [-1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000})
    np.testing.assert_allclose([A[0], B[0]], best.x, rtol=1e-5, atol=1e-6)


def test_coupled_probabilities_contradict_the_pairs_least() -> None:
    rng = np.random.default_rng(1)
    k, pairs = 4, list(combinations(range(4), 2))
    values, A, B = rng.normal(size=(5, 6)), -rng.uniform(0.5, 3.0, 6), rng.normal(size=6)
    found = class_probabilities(values, A, B, k, "ovo")
    r = expit(-(A * values + B))

    def contradiction(p: Any, row: int) -> Any:
        return sum(((1.0 - r[row, n]) * p[i] - r[row, n] * p[j]) ** 2 for n, (i, j) in enumerate(pairs))

    one = {"type": "eq", "fun": lambda p: p.sum() - 1.0}
    for row, p in enumerate(found):
        best = minimize(
            contradiction, np.full(k, 1.0 / k), args=(row,), bounds=[(0.0, 1.0)] * k, constraints=one,
            options={"ftol": 1e-15, "maxiter": 500},
        )  # fmt: skip
        np.testing.assert_allclose(p, best.x, atol=1e-5)


def test_values_that_say_nothing_leave_the_shares() -> None:
    labels = np.repeat([0, 1], [30, 10])
    A, B = sigmoids(np.zeros((40, 1)), labels, np.ones(40), 2, "ovo")
    p = class_probabilities(np.zeros((1, 1)), A, B, 2, "ovo")
    np.testing.assert_allclose(p, [[0.75, 0.25]], atol=0.03)


@pytest.mark.parametrize("multi_class", ["ovo", "ovr"])
def test_every_kind_of_rows_and_both_schemes(multi_class: str) -> None:
    X, y, X_new, y_new = split(load_iris)
    options: dict[str, Any] = {"probability": True, "gamma": 0.2, "random_state": 0, "multi_class": multi_class}
    dense = SVC(**options).fit(X, y).predict_proba(X_new)
    assert (dense.argmax(1) == y_new).mean() > 0.9
    given = SVC(**options | {"kernel": "precomputed"}).fit(rbf_kernel(X, gamma=0.2), y)
    np.testing.assert_allclose(given.predict_proba(rbf_kernel(X_new, X, gamma=0.2)), dense, atol=1e-6)
    sparse = SVC(**options).fit(sp.csr_matrix(X), y).predict_proba(sp.csr_matrix(X_new))
    np.testing.assert_allclose(sparse, dense, atol=1e-6)
    named = SVC(**options).fit(X, np.array(["a", "b", "c"])[y])
    np.testing.assert_allclose(named.predict_proba(X_new), dense)


def test_rows_without_weight_are_not_there() -> None:
    X, y, X_new, _ = split(load_iris)
    some = y != 2  # a class that is left without rows, and one row more
    weights = np.where(some, 1.0, 0.0)
    weights[3] = 0.0
    ours = SVC(probability=True, gamma=0.2, random_state=0).fit(X, y, weights)
    same = SVC(probability=True, gamma=0.2, random_state=0).fit(X[weights > 0], y[weights > 0])
    np.testing.assert_allclose(ours.predict_proba(X_new), same.predict_proba(X_new), atol=1e-8)


def test_weights_that_sum_to_one_are_weights() -> None:
    X, y, X_new, _ = split(load_breast_cancer)
    weights = np.full(len(y), 1.0 / len(y))
    ours = SVC(C=float(len(y)), probability=True, gamma=0.02, random_state=0).fit(X, y, weights)
    same = SVC(probability=True, gamma=0.02, random_state=0).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X_new), same.predict_proba(X_new), atol=1e-6)


def test_it_is_there_only_where_it_was_asked_for() -> None:
    X, y, X_new, _ = split(load_iris)
    plain = SVC().fit(X, y)
    with pytest.raises(AttributeError, match="predict_proba"):
        plain.predict_proba(X_new)
    plain.probability = True
    with pytest.raises(NotFittedError, match="fitted with probability=False"):
        plain.predict_proba(X_new)
    again = SVC(probability=True).fit(X, y).set_params(probability=False).fit(X, y)
    assert not hasattr(again, "probA_")
    with pytest.raises(InputError, match=r"class 'rare' has one"):
        SVC(probability=True).fit(X, np.where(np.arange(len(y)) == 5, "rare", "often"))
    a = krein.approximate(X, krein.RBF(gamma=0.2))
    with pytest.raises(InputError, match="Leave approximation at None"):
        SVC(probability=True, approximation=a).fit(X, y)


def test_a_saved_model_knows_its_probabilities(tmp_path: Any) -> None:
    X, y, X_new, _ = split(load_iris)
    model = SVC(probability=True, random_state=0).fit(X, y)
    krein.save(model, tmp_path / "model.krein")
    np.testing.assert_array_equal(krein.load(tmp_path / "model.krein").predict_proba(X_new), model.predict_proba(X_new))
