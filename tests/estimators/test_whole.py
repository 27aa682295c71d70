"""Some thousand rows of a psd kernel: nothing is approximated, and what comes out is scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm
from sklearn.datasets import make_classification, make_friedman1
from sklearn.kernel_ridge import KernelRidge as TheirRidge
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

import krein
from krein.estimators import ridge_solve, whole
from krein.estimators.cache import clear_cache
from krein.estimators.ridge import KernelRidge, KernelRidgeClassifier
from krein.estimators.ridge_solve import solve_whole
from krein.estimators.svm import SVC
from krein.estimators.svr import SVR, OneClassSVM
from krein.solvers import exact
from krein.solvers.dense_dual import NotConverged

N = 2500


def classes(n: int = N, n_classes: int = 3) -> tuple[Any, Any, Any]:
    X, y = make_classification(
        n + 500, 6, n_informative=5, n_redundant=0, n_classes=n_classes, flip_y=0.05, random_state=2
    )
    return X[:n], y[:n], X[n:]


def numbers(n: int = N) -> tuple[Any, Any, Any, Any]:
    X, y = make_friedman1(n + 500, n_features=6, noise=0.5, random_state=3)
    return X[:n], y[:n], X[n:], y[n:]


@pytest.mark.parametrize("form", ["float64", "float32", "sparse"])
def test_a_default_svc_is_scikit_learns(form: str) -> None:
    X, y, new = classes()
    X, new = (np.asarray(A, dtype=np.float32 if form == "float32" else np.float64) for A in (X, new))
    theirs = svm.SVC(decision_function_shape="ovo", gamma=0.2).fit(X, y)
    X, new = (sp.csr_matrix(A) if form == "sparse" else A for A in (X, new))
    ours = SVC(decision_function_shape="ovo", gamma=0.2, random_state=0).fit(X, y)
    assert ours.refined_
    assert ours.converged_
    assert ours.selection_ is None
    dense = new.toarray() if form == "sparse" else new
    np.testing.assert_allclose(ours.decision_function(new), theirs.decision_function(dense), atol=5e-3)
    assert (ours.predict(new) == theirs.predict(dense)).mean() >= 0.998
    assert abs(len(ours.support_) - len(theirs.support_)) <= 0.01 * len(theirs.support_)


def test_regression_and_one_class_too() -> None:
    X, y, new, _ = numbers()
    for options in ({"kernel": "rbf"}, {"kernel": "poly", "degree": 6, "coef0": 1.0, "gamma": 0.1}):
        ours, theirs = SVR(random_state=0, **options).fit(X, y), svm.SVR(**options).fit(X, y)
        assert ours.refined_
        np.testing.assert_allclose(ours.predict(new), theirs.predict(new), atol=1e-3 * np.ptp(y))
    ours, theirs = OneClassSVM(nu=0.1, random_state=0).fit(X), svm.OneClassSVM(nu=0.1).fit(X)
    assert ours.refined_
    size = np.abs(theirs.offset_[0])
    np.testing.assert_allclose(ours.decision_function(new), theirs.decision_function(new), atol=2e-3 * size)
    assert (ours.predict(new) == theirs.predict(new)).mean() >= 0.99


@pytest.mark.parametrize("rows", [5000, 100], ids=["its matrix", "refined"])
def test_a_kernel_that_libsvm_does_not_have(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "MATRIX_ROWS", rows)
    X, y, new = classes(2200, 2)
    ours = SVC(kernel="laplacian", gamma=0.2, random_state=0).fit(X, y)
    theirs = svm.SVC(kernel="precomputed").fit(laplacian_kernel(X, gamma=0.2), y)
    assert ours.refined_
    wanted = theirs.decision_function(laplacian_kernel(new, X, gamma=0.2))
    np.testing.assert_allclose(ours.decision_function(new), wanted, atol=5e-3)


def test_what_takes_libsvm_too_long_is_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, new = classes(2200, 2)
    theirs = svm.SVC(gamma=0.2).fit(X, y)
    monkeypatch.setattr(exact, "LIBSVM_STEPS", 20)
    ours = SVC(gamma=0.2, random_state=0).fit(X, y)
    assert ours.converged_
    np.testing.assert_allclose(ours.decision_function(new), theirs.decision_function(new), atol=5e-3)
    with pytest.warns(NotConverged, match="max_iter=20"):  # which is what was asked for
        assert not SVC(gamma=0.2, max_iter=20, random_state=0).fit(X, y).converged_


def test_the_gap_is_that_of_the_kernel_itself() -> None:
    X, y, _ = classes(2200, 2)
    model = SVC(gamma=0.2, C=3.0, random_state=0).fit(X, y)
    b = np.zeros(len(X))
    b[model.support_] = model.dual_coef_[0]
    t = 2.0 * y - 1.0
    margins = t * (rbf_kernel(X, gamma=0.2) @ b + model.intercept_[0])
    norm = b @ rbf_kernel(X, gamma=0.2) @ b
    primal = 0.5 * norm + 3.0 * np.maximum(0.0, 1.0 - margins).sum()
    dual = np.abs(b).sum() - 0.5 * norm
    assert 0.0 < primal - dual < 2e-3 * dual
    assert model.gap_ == pytest.approx((primal - dual) / dual, rel=0.05)


def test_what_is_said_of_the_matrix_is_kept() -> None:
    X, y, _ = classes(2050, 2)
    for said in ({"n_blocks": 4, "rank": 8}, {"rank": 8, "n_blocks": 2, "max_memory": 1e7}, {"max_error": 0.5}):
        assert not KernelRidgeClassifier(kernel="rbf", alpha=0.1, random_state=0, **said).fit(X, y).refined_
        assert not SVC(random_state=0, **said).fit(X, y).refined_
    a = krein.approximate(X, krein.RBF(gamma=0.2), n_blocks=3, rank=8, random_state=0)
    assert not KernelRidgeClassifier(approximation=a, alpha=0.1).fit(X, y).refined_
    few = krein.Linear()  # of few features a factorization is exact, and smaller
    assert not KernelRidgeClassifier(kernel=few, alpha=0.1).fit(X, y).refined_
    square = {"n_blocks": 4, "rank": 8, "correction": "square", "random_state": 0}
    squared = SVC(**square | {"refine": "auto"}).fit(X, y)
    assert squared.correction_ == "square"
    assert not SVC(correction="square")._takes_whole(X, krein.RBF(gamma=0.2), 10**4)


# -- ridge -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_a_default_ridge_is_scikit_learns(weighted: bool) -> None:
    X, y, new, _ = numbers()
    Y = np.column_stack([y, X[:, 0]])
    weights = np.random.default_rng(0).uniform(0.5, 2.0, N) if weighted else None
    for alpha in (0.5, np.array([0.1, 3.0])):
        ours = KernelRidge(alpha=alpha, kernel="rbf", gamma=0.7, random_state=0).fit(X, Y, sample_weight=weights)
        theirs = TheirRidge(alpha=alpha, kernel="rbf", gamma=0.7).fit(X, Y, sample_weight=weights)
        assert ours.refined_
        np.testing.assert_allclose(ours.predict(new), theirs.predict(new), rtol=1e-7)
        np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-7 * np.abs(theirs.dual_coef_).max())


def test_alpha_is_left_out_of_some_rows_and_learnt_from_all() -> None:
    X, y, new, y_new = numbers(2050)
    ours = KernelRidge(alpha="loo", kernel="rbf", gamma=0.7, random_state=0).fit(X, y)
    assert ours.refined_
    assert ours.loo_scores_.shape == ours.alphas_.shape
    same, *others = (
        TheirRidge(alpha=alpha, kernel="rbf", gamma=0.7).fit(X, y) for alpha in (ours.alpha_, *ours.alphas_[::5])
    )
    np.testing.assert_allclose(ours.predict(new), same.predict(new), rtol=1e-6)
    scores = [model.score(new, y_new) for model in others]
    assert ours.score(new, y_new) > max(scores) - 0.002
    assert max(scores) - min(scores) > 0.02  # or any would have done


def test_a_classifier_of_many_classes() -> None:
    X, y, new = classes(2100, 4)
    ours = KernelRidgeClassifier(gamma=0.2, random_state=0).fit(X, y)
    assert ours.refined_
    codes = np.where(y[:, None] == np.arange(4), 1.0, -1.0)
    theirs = TheirRidge(alpha=ours.alpha_, kernel="rbf", gamma=0.2).fit(X, codes)
    np.testing.assert_allclose(ours.decision_function(new), theirs.predict(new), atol=1e-7)


@pytest.mark.parametrize("n", [2, 3, 150, 151])
def test_half_of_the_matrix_is_enough(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge_solve, "CHUNK", 40 * n)  # rows come in several pieces
    rng = np.random.default_rng(n)
    X, y, weights = rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), rng.uniform(0.5, 2.0, n)
    ridges = np.array([0.1, 2.0, 0.1])
    found = solve_whole(krein.RBF(gamma=0.5), X, weights, y, ridges)
    for j, t in enumerate(ridges):
        wanted = np.linalg.solve(rbf_kernel(X, gamma=0.5) + np.diag(t / weights), y[:, j])
        np.testing.assert_allclose(found[:, j], wanted, atol=1e-11 * np.abs(wanted).max())


def test_a_singular_matrix_is_left_to_others() -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(40, 3)), 2, axis=0)
    ones, y = np.ones(len(X)), np.ones((len(X), 1))
    with pytest.warns(krein.KreinWarning, match="alpha = 0 leaves a matrix of 80 rows that is singular"):
        assert solve_whole(krein.RBF(gamma=0.5), X, ones, y, np.zeros(1)) is None
    found = solve_whole(krein.RBF(gamma=0.5), X, ones, y, np.ones(1))
    np.testing.assert_allclose((rbf_kernel(X, gamma=0.5) + np.eye(len(X))) @ found, y, atol=1e-12)


# -- larger ------------------------------------------------------------------------------------------------------------


def test_a_given_matrix_that_is_psd_is_taken_as_it_is() -> None:
    X, y, new = classes(2100)
    K, R = rbf_kernel(X, gamma=0.1), rbf_kernel(new, X, gamma=0.1)
    ours, theirs = SVC(kernel="precomputed", random_state=0).fit(K, y), svm.SVC(kernel="precomputed").fit(K, y)
    assert ours.refined_
    np.testing.assert_array_equal(ours.predict(R), theirs.predict(R))
    target = X[:, 0] * X[:, 1]
    mine, yours = KernelRidge(kernel="precomputed").fit(K, target), TheirRidge(kernel="precomputed").fit(K, target)
    np.testing.assert_allclose(mine.predict(R), yours.predict(R), atol=1e-8)
    with pytest.warns(krein.KreinWarning, match="indefinite matrix"):
        bent = SVC(kernel="precomputed", random_state=0).fit(np.tanh(0.1 * X @ X.T - 1.0), y)
    assert not bent.refined_
    assert bent.n_negative_ > 0


@pytest.mark.parametrize(
    ("kernel", "C", "scale"), [("poly", 1.0, 30.0), ("rbf", np.inf, 1.0)], ids=["large similarities", "a wide box"]
)
def test_coefficients_that_are_small_beside_the_box_are_no_zeros(kernel: str, C: float, scale: float) -> None:
    rng = np.random.default_rng(0)
    X = scale * rng.normal(size=(2100, 20))
    y = np.sin(X[:, 0] / scale) + X[:, 1] * X[:, 2] / scale**2 > 0.0
    ours, theirs = SVC(kernel=kernel, gamma=1.0, C=C).fit(X, y), svm.SVC(kernel=kernel, gamma=1.0, C=min(C, 1e10))
    theirs.fit(X, y)
    assert ours.refined_
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    assert ours.score(X, y) == theirs.score(X, y) == 1.0


@pytest.mark.parametrize("change", ["offset", "outlier", "scale"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_targets_far_from_zero_are_met_as_closely(change: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "MATRIX_ROWS", 100)  # the Laplacian is refined then
    X = np.random.default_rng(1).normal(size=(2100, 4))
    y = np.sin(X[:, 0])
    unit = 1000.0 if change == "scale" else 1.0
    y = y + 2000.0 if change == "offset" else y * unit
    y[5] += 1000.0 if change == "outlier" else 0.0
    ours = SVR(kernel=kernel, gamma=0.2, epsilon=0.1 * unit, C=unit).fit(X, y)
    same: Any = "rbf" if kernel == "rbf" else lambda A, B: laplacian_kernel(A, B, gamma=0.2)
    theirs = svm.SVR(kernel=same, gamma=0.2, epsilon=0.1 * unit, C=unit).fit(X, y)
    assert ours.refined_
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=0.0, atol=3e-3 * unit)


@pytest.mark.parametrize("n", [60, 2100])
def test_nu_of_one_has_every_row_at_its_end(n: int) -> None:
    X = np.random.default_rng(2).normal(size=(n, 3))
    machine = OneClassSVM(nu=1.0, gamma=0.3).fit(X)
    sums = rbf_kernel(X, gamma=0.3).sum(1)
    np.testing.assert_allclose(machine.dual_coef_, 1.0)
    np.testing.assert_allclose(machine.offset_, sums.max(), rtol=1e-6)


def test_one_row_of_hardly_any_weight_changes_nothing() -> None:
    X, y, new, _ = numbers(2100)
    weights = np.ones(len(X))
    weights[0] = 1e-15
    machine = KernelRidge(kernel="rbf", alpha=0.1, gamma=0.3).fit(X, y, sample_weight=weights)
    assert machine.refined_
    rest = TheirRidge(kernel="rbf", alpha=0.1, gamma=0.3).fit(X[1:], y[1:])
    np.testing.assert_allclose(machine.predict(new), rest.predict(new), atol=1e-7)


def test_what_is_said_of_the_storage_or_of_links_is_heard_and_the_rest_is_silent() -> None:
    X, y, _ = classes(2100, 2)
    assert not SVC(dtype="float32").fit(X, y).refined_
    assert not SVC(drop=1.0).fit(X, y).refined_
    assert SVC(gamma=50.0).fit(X, y).refined_  # blocks of rank 32 carry nothing of that, and nobody asked for them


@pytest.mark.slow
@pytest.mark.parametrize("n", [6000, 20_000, 25_000])
def test_the_import_may_be_changed(n: int) -> None:
    X, y, new = classes(n)
    theirs = svm.SVC().fit(X, y)
    clear_cache()
    ours = SVC(random_state=0).fit(X, y)
    assert ours.refined_
    assert (ours.predict(new) == theirs.predict(new)).mean() >= 0.995


@pytest.mark.slow
def test_the_import_of_ridge_may_be_changed() -> None:
    X, y, new, _ = numbers(8000)
    theirs = TheirRidge(kernel="rbf", alpha=0.1).fit(X, y)
    ours = KernelRidge(kernel="rbf", alpha=0.1, random_state=0).fit(X, y)
    np.testing.assert_allclose(ours.predict(new), theirs.predict(new), rtol=1e-6)


def test_a_box_that_is_wide_leaves_many_rows_to_blocks() -> None:
    X, y, _ = classes(3000)
    some = SVC(C=1.0)
    few, many = np.ones(3000), np.zeros((30_000, X.shape[1]))
    kernel = krein.RBF(gamma=0.1)
    assert some._screens(X, kernel, None, few)
    mostly = np.where(np.arange(30_000) % 5 < 2, 1e3, 1.0)
    assert not some._screens(many, kernel, None, mostly)  # weights over magnitudes
    numbers = np.sin(np.arange(30_000))
    numbers[0] = 1e9  # says nothing of the others
    assert not SVR(C=100.0)._screens(many, kernel, numbers, np.full(30_000, 100.0))
    assert SVR(C=1.0)._screens(many, kernel, numbers, np.ones(30_000))
    assert some._screens(many, kernel, None, np.ones(30_000))
    assert not some._screens(many, kernel, None, np.full(30_000, 100.0))  # pairs of rows would take too long
    assert not some._screens(np.zeros((51_000, 3)), kernel, None, np.ones(51_000))
    assert not some._screens(np.zeros((30_000, 100)), kernel, None, np.ones(30_000))  # rows that are dear to evaluate
    assert not SVC(refine=None)._screens(many, kernel, None, np.ones(30_000))
    assert SVC(C=1.0, random_state=0).fit(X, y).refined_


def test_a_polynomial_of_few_features_is_left_to_its_factorization() -> None:
    rows = np.zeros((9000, 10))
    few, many = (krein.Polynomial(degree=d, gamma=0.1, coef0=1.0) for d in (2, 4))  # of 66 and of 1001 features
    assert not whole.affordable(rows, few, 20_000)
    assert whole.affordable(rows, many, 20_000)


def test_rows_in_single_precision_are_held_in_double_where_they_are_exact() -> None:
    X, y, _ = classes(300)
    assert SVC().fit(X.astype(np.float32), y).approximation_.factorization.dtype == "float64"
    assert SVC(dtype="float32").fit(X, y).approximation_.factorization.dtype == "float32"
