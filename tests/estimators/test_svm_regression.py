"""SVR and OneClassSVM against LIBSVM."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm
from sklearn.datasets import make_regression

from krein.errors import InputError
from krein.estimators.svm import SVR, OneClassSVM


def numbers(n: int, seed: int = 0) -> tuple[Any, Any]:
    return make_regression(n, 5, noise=10.0, random_state=seed)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "parameters",
    [{}, {"C": 10.0, "epsilon": 20.0}, {"kernel": "linear"}, {"kernel": "poly", "coef0": 1.0}, {"epsilon": 0.0}],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_regression_on_small_data_is_libsvms(parameters: dict[str, Any], weighted: bool) -> None:
    X, y = numbers(250)
    X, X_new, y = X[:200], X[200:], y[:200]
    weights = np.random.default_rng(0).uniform(0.2, 3.0, 200) if weighted else None
    given = {"gamma": 0.3, **parameters}
    theirs = svm.SVR(tol=1e-7, **given).fit(X, y, weights)
    ours = SVR(tol=1e-9, **given).fit(X, y, weights)
    np.testing.assert_allclose(ours.predict(X_new), theirs.predict(X_new), atol=1e-6 * np.abs(y).max())
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-4 * np.abs(theirs.dual_coef_).max())
    np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)
    assert isinstance(ours.n_iter_, int)
    assert ours.gap_ <= 1e-9
    if given.get("kernel") == "linear":
        np.testing.assert_allclose(ours.predict(X_new), X_new @ ours.coef_[0] + ours.intercept_, atol=1e-9)


def test_the_size_of_the_targets_does_not_matter() -> None:
    X, y = numbers(150)
    small = SVR(C=1.0, epsilon=5.0, tol=1e-9).fit(X, y)
    large = SVR(C=1e6, epsilon=5e6, tol=1e-9).fit(X, 1e6 * y)
    np.testing.assert_allclose(large.predict(X), 1e6 * small.predict(X), rtol=1e-7)
    assert large.gap_ <= 1e-9


def test_regression_weights_are_repeated_rows() -> None:
    X, y = numbers(100)
    times = np.random.default_rng(1).integers(0, 4, 100)
    weighted = SVR(epsilon=5.0, tol=1e-9).fit(X, y, sample_weight=times)
    repeated = SVR(epsilon=5.0, tol=1e-9).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-7)
    assert (times[weighted.support_] > 0).all()


def test_targets_that_are_all_alike_need_no_support_vector() -> None:
    X, _ = numbers(30)
    machine = SVR().fit(sp.csr_matrix(X), np.ones(30))
    assert machine.support_vectors_.shape == (0, 5)
    assert machine.dual_coef_.shape == (1, 0)
    np.testing.assert_allclose(machine.predict(X), 1.0)


@pytest.mark.parametrize("n", [2300, 3300])
def test_on_the_factored_matrix_errors_obey_the_conditions(n: int) -> None:
    X, y = numbers(n)
    y = y / np.std(y)
    ours = SVR(C=2.0, n_blocks=3, rank=25, random_state=0).fit(X, y)
    f = ours.approximation_.factorization
    b = np.zeros(n)
    b[ours.support_] = ours.dual_coef_[0]
    error = y - (f @ b + ours.intercept_[0])
    assert np.abs(error[b == 0.0]).max() <= 0.1 + 1e-4
    inside = (b != 0.0) & (np.abs(b) < 2.0 * (1 - 1e-9))
    np.testing.assert_allclose(error[inside], 0.1 * np.sign(b[inside]), atol=1e-4)
    assert (error * np.sign(b))[np.abs(b) >= 2.0].min() >= 0.1 - 1e-4
    assert ours.converged_
    path = SVR(C=2.0, n_blocks=3, rank=25, random_state=0, warm_start=True).fit(X, y)
    path.set_params(C=2.1).fit(X, y)
    cold = SVR(C=2.1, n_blocks=3, rank=25, random_state=0).fit(X, y)
    np.testing.assert_allclose(path.predict(X[:100]), cold.predict(X[:100]), atol=1e-4)


@pytest.mark.parametrize("parameters", [{}, {"nu": 0.1}, {"nu": 0.2, "kernel": "poly", "coef0": 1.0}])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_class_on_small_data_is_libsvms(parameters: dict[str, Any], weighted: bool) -> None:
    X = np.random.default_rng(0).normal(size=(250, 4)) + 1.0
    X, X_new = X[:200], X[200:]
    weights = np.random.default_rng(1).uniform(0.2, 3.0, 200) if weighted else None
    given = {"gamma": 0.3, **parameters}
    theirs = svm.OneClassSVM(tol=1e-7, **given).fit(X, sample_weight=weights)
    ours = OneClassSVM(tol=1e-9, **given).fit(X, sample_weight=weights)
    scale = abs(theirs.offset_[0])
    np.testing.assert_allclose(ours.decision_function(X_new), theirs.decision_function(X_new), atol=1e-6 * scale)
    np.testing.assert_allclose(ours.score_samples(X_new), theirs.score_samples(X_new), atol=1e-6 * scale)
    np.testing.assert_array_equal(ours.predict(X_new), theirs.predict(X_new))
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    np.testing.assert_allclose(ours.offset_, -ours.intercept_)


def test_nu_is_the_share_outside_and_the_boundary_belongs_inside() -> None:
    X = np.random.default_rng(0).normal(size=(2600, 3))
    blocks = OneClassSVM(nu=0.2, n_blocks=3, rank=40, random_state=0).fit(X)
    for machine in (OneClassSVM(nu=0.2, tol=1e-9).fit(X[:400]), blocks):
        n = machine.shape_fit_[0]
        outside = machine.decision_function(X[:n]) < 0.0
        assert outside.mean() <= 0.2 + 1e-3
        assert len(machine.support_) >= 0.2 * n
        np.testing.assert_array_equal(machine.predict(X[:n]) == -1, outside)
        assert machine.fit_predict(X[:n]).dtype == np.intp
    small = OneClassSVM(nu=0.2, tol=1e-9).fit(X[:400])
    free = small.support_[(small.dual_coef_[0] > 0.0) & (small.dual_coef_[0] < 1.0)]
    assert len(free) > 0
    assert (small.decision_function(X[free]) == 0.0).all()


def test_parameters_that_cannot_be_are_named() -> None:
    X, y = numbers(30)
    with pytest.raises(InputError, match="epsilon must be"):
        SVR(epsilon=-1.0).fit(X, y)
    for nu in (0.0, 1.5, "half"):
        with pytest.raises(InputError, match="nu must be"):
            OneClassSVM(nu=nu).fit(X)
