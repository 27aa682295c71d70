"""Exact fits of psd kernels: nothing is approximated, and what comes out is scikit-learn's."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from sklearn import svm
from sklearn.base import clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.kernel_ridge import KernelRidge as TheirRidge
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

import krein
from krein.estimators import ridge_system
from krein.estimators.cache import clear_cache
from krein.estimators.ridge import KernelRidge, KernelRidgeClassifier
from krein.estimators.ridge_system import solve_exactly
from krein.estimators.route import Exact
from krein.estimators.svm import SVC, SVR, OneClassSVM
from krein.solvers import exact_svm
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
    assert isinstance(ours.route_, Exact)
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
        assert isinstance(ours.route_, Exact)
        np.testing.assert_allclose(ours.predict(new), theirs.predict(new), atol=1e-3 * np.ptp(y))
    ours, theirs = OneClassSVM(nu=0.1, random_state=0).fit(X), svm.OneClassSVM(nu=0.1).fit(X)
    assert isinstance(ours.route_, Exact)
    size = np.abs(theirs.offset_[0])
    np.testing.assert_allclose(ours.decision_function(new), theirs.decision_function(new), atol=2e-3 * size)
    assert (ours.predict(new) == theirs.predict(new)).mean() >= 0.99


@pytest.mark.parametrize("rows", [5000, 100], ids=["its matrix", "refined"])
def test_a_kernel_that_libsvm_does_not_have(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_svm, "MATRIX_ROWS", rows)
    X, y, new = classes(2200, 2)
    ours = SVC(kernel="laplacian", gamma=0.2, random_state=0).fit(X, y)
    theirs = svm.SVC(kernel="precomputed").fit(laplacian_kernel(X, gamma=0.2), y)
    assert isinstance(ours.route_, Exact)
    wanted = theirs.decision_function(laplacian_kernel(new, X, gamma=0.2))
    np.testing.assert_allclose(ours.decision_function(new), wanted, atol=5e-3)


def test_what_takes_libsvm_too_long_is_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, new = classes(2200, 2)
    theirs = svm.SVC(gamma=0.2).fit(X, y)
    monkeypatch.setattr(exact_svm, "LIBSVM_STEPS", 20)
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


# -- ridge -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_a_default_ridge_is_scikit_learns(weighted: bool) -> None:
    X, y, new, _ = numbers()
    Y = np.column_stack([y, X[:, 0]])
    weights = np.random.default_rng(0).uniform(0.5, 2.0, N) if weighted else None
    for alpha in (0.5, np.array([0.1, 3.0])):
        ours = KernelRidge(alpha=alpha, kernel="rbf", gamma=0.7, random_state=0).fit(X, Y, sample_weight=weights)
        theirs = TheirRidge(alpha=alpha, kernel="rbf", gamma=0.7).fit(X, Y, sample_weight=weights)
        assert isinstance(ours.route_, Exact)
        np.testing.assert_allclose(ours.predict(new), theirs.predict(new), rtol=1e-7)
        np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-7 * np.abs(theirs.dual_coef_).max())


def test_alpha_is_left_out_of_some_rows_and_learnt_from_all() -> None:
    X, y, new, y_new = numbers(2050)
    ours = KernelRidge(alpha="loo", kernel="rbf", gamma=0.7, random_state=0).fit(X, y)
    assert isinstance(ours.route_, Exact)
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
    assert isinstance(ours.route_, Exact)
    codes = np.where(y[:, None] == np.arange(4), 1.0, -1.0)
    theirs = TheirRidge(alpha=ours.alpha_, kernel="rbf", gamma=0.2).fit(X, codes)
    np.testing.assert_allclose(ours.decision_function(new), theirs.predict(new), atol=1e-7)


@pytest.mark.parametrize("n", [2, 3, 150, 151])
@pytest.mark.parametrize("single_rows", [0, 1000], ids=["single precision, refined", "double precision"])
def test_the_system_is_solved_to_double_precision(n: int, single_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ridge_system, "TILE_ENTRIES", 40 * n)  # rows come in several pieces
    rng = np.random.default_rng(n)
    X, y, weights = rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), rng.uniform(0.5, 2.0, n)
    ridges = np.array([0.1, 2.0, 0.1])
    found = solve_exactly(krein.RBF(gamma=0.5), X, weights, y, ridges, single_rows)
    for j, t in enumerate(ridges):
        K = rbf_kernel(X, gamma=0.5)
        wanted = np.linalg.solve(K + np.diag(t / weights), y[:, j])
        allowed = 1e-11 if single_rows else 1e-5  # of y, which is what rounding the kernel may cost a prediction
        np.testing.assert_allclose(K @ found[:, j], K @ wanted, atol=allowed * np.abs(y[:, j]).max())


@pytest.mark.parametrize("alpha", [1e-2, 1e-4, 1e-6])
def test_a_small_alpha_costs_single_precision_no_digits_of_a_prediction(alpha: float) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 4))
    y = np.sin(X[:, :1]) + 0.1 * rng.normal(size=(400, 1))
    K = rbf_kernel(X, gamma=0.3)
    found = solve_exactly(krein.RBF(gamma=0.3), X, np.ones(400), y, np.array([alpha]), single_rows=0)
    wanted = np.linalg.solve(K + alpha * np.eye(400), y)
    np.testing.assert_allclose(K @ found, K @ wanted, atol=1e-5 * np.abs(y).max())


def test_a_singular_matrix_is_left_to_others() -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(40, 3)), 2, axis=0)
    ones, y = np.ones(len(X)), np.ones((len(X), 1))
    assert solve_exactly(krein.RBF(gamma=0.5), X, ones, y, np.zeros(1)) is None
    with pytest.warns(krein.KreinWarning) as said:
        KernelRidge(0.0, kernel="rbf", gamma=0.5, policy=krein.Policy(exact_rows=50), random_state=0).fit(X, y)
    assert "alpha = 0 leaves a matrix of 80 rows that is singular to rounding" in str(said[0].message)
    found = solve_exactly(krein.RBF(gamma=0.5), X, ones, y, np.ones(1))
    np.testing.assert_allclose((rbf_kernel(X, gamma=0.5) + np.eye(len(X))) @ found, y, atol=1e-12)


# -- larger ------------------------------------------------------------------------------------------------------------


def test_a_given_matrix_that_is_psd_is_taken_as_it_is() -> None:
    X, y, new = classes(800)
    K, R = rbf_kernel(X, gamma=0.1), rbf_kernel(new, X, gamma=0.1)
    given: Any = {"kernel": "precomputed", "policy": krein.Policy(exact_rows=700)}
    ours, theirs = SVC(**given, random_state=0).fit(K, y), svm.SVC(kernel="precomputed").fit(K, y)
    assert isinstance(ours.route_, Exact)
    np.testing.assert_array_equal(ours.predict(R), theirs.predict(R))
    target = X[:, 0] * X[:, 1]
    mine, yours = KernelRidge(**given).fit(K, target), TheirRidge(kernel="precomputed").fit(K, target)
    np.testing.assert_allclose(mine.predict(R), yours.predict(R), atol=1e-8)
    with pytest.warns(krein.KreinWarning, match="indefinite matrix"):
        bent = SVC(**given, random_state=0).fit(np.tanh(0.1 * X @ X.T - 1.0), y)
    assert not isinstance(bent.route_, Exact)
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
    assert isinstance(ours.route_, Exact)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    assert ours.score(X, y) == theirs.score(X, y) == 1.0


@pytest.mark.parametrize("change", ["offset", "outlier", "scale"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_targets_far_from_zero_are_met_as_closely(change: str, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_svm, "MATRIX_ROWS", 100)  # the Laplacian is refined then
    X = np.random.default_rng(1).normal(size=(2100, 4))
    y = np.sin(X[:, 0])
    unit = 1000.0 if change == "scale" else 1.0
    y = y + 2000.0 if change == "offset" else y * unit
    y[5] += 1000.0 if change == "outlier" else 0.0
    ours = SVR(kernel=kernel, gamma=0.2, epsilon=0.1 * unit, C=unit).fit(X, y)
    same: Any = "rbf" if kernel == "rbf" else lambda A, B: laplacian_kernel(A, B, gamma=0.2)
    theirs = svm.SVR(kernel=same, gamma=0.2, epsilon=0.1 * unit, C=unit).fit(X, y)
    assert isinstance(ours.route_, Exact)
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
    assert isinstance(machine.route_, Exact)
    rest = TheirRidge(kernel="rbf", alpha=0.1, gamma=0.3).fit(X[1:], y[1:])
    np.testing.assert_allclose(machine.predict(new), rest.predict(new), atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("n", [6000, 20_000, 25_000])
def test_the_import_may_be_changed(n: int) -> None:
    X, y, new = classes(n)
    theirs = svm.SVC().fit(X, y)
    clear_cache()
    ours = SVC(random_state=0).fit(X, y)
    assert isinstance(ours.route_, Exact)
    assert (ours.predict(new) == theirs.predict(new)).mean() >= 0.995


@pytest.mark.slow
def test_the_import_of_ridge_may_be_changed() -> None:
    X, y, new, _ = numbers(8000)
    theirs = TheirRidge(kernel="rbf", alpha=0.1).fit(X, y)
    ours = KernelRidge(kernel="rbf", alpha=0.1, random_state=0).fit(X, y)
    np.testing.assert_allclose(ours.predict(new), theirs.predict(new), rtol=1e-6)


def test_an_exact_machine_keeps_what_prediction_needs(tmp_path: Any) -> None:
    X, y, new = classes(600, 3)
    values = X[:, 0] ** 2
    for ours, theirs, target in (
        (SVC(), svm.SVC(), y),
        (SVR(), svm.SVR(), values),
        (OneClassSVM(), svm.OneClassSVM(), None),
        (KernelRidge(kernel="rbf"), TheirRidge(kernel="rbf"), values),
    ):
        ours.fit(X, target)
        theirs.fit(X, target)
        krein.save(ours, tmp_path / "model.krein")
        size = (tmp_path / "model.krein").stat().st_size
        assert size <= 3 * len(pickle.dumps(theirs)) + 100_000
        assert len(pickle.dumps(ours)) <= 3 * len(pickle.dumps(theirs)) + 100_000
        loaded = krein.load(tmp_path / "model.krein")
        np.testing.assert_array_equal(loaded.predict(new), ours.predict(new))
        assert loaded.relative_error_ == 0.0
        with pytest.raises(AttributeError, match="not saved"):
            loaded.approximation_  # noqa: B018


@pytest.mark.parametrize(
    "machine", [SVC(), SVR(), OneClassSVM(), KernelRidge(kernel="rbf"), KernelRidgeClassifier(1.0)]
)
def test_a_psd_kernel_is_evaluated_once_and_never_decomposed(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = classes(300, 2)

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("an eigendecomposition of an exact fit")

    for room, name in ((np.linalg, "eigh"), (np.linalg, "eigvalsh"), (scipy.linalg, "eigh"), (np.linalg, "svd")):
        monkeypatch.setattr(room, name, refused)
    with krein.counting() as spent:
        machine.fit(X, y)
    assert spent.n_evaluations <= 1.1 * 300**2


def test_the_walk_of_a_small_svc_passes_no_room_of_the_approximation() -> None:
    X, y, _ = classes(1500, 2)
    SVC().fit(X[:50], y[:50])  # imports are not part of the walk
    seen: list[str] = []

    def watch(frame: Any, event: str, arg: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("krein.") and (not seen or seen[-1] != name):
            seen.append(name)

    sys.setprofile(watch)
    try:
        SVC().fit(X, y)
    finally:
        sys.setprofile(None)
    rooms = {name.removeprefix("krein.") for name in seen}
    never = {"approximation", "choosing", "factorization"}
    assert {name.split(".")[0] for name in rooms}.isdisjoint(never)
    assert len(rooms) <= 24  # 36 before a fit had one route
    assert {"estimators.svm", "estimators.base", "estimators.route", "solvers.exact_svm"} <= rooms


def test_one_row_is_compared_with_the_support_vectors_alone() -> None:
    X, y, new = classes(500, 2)
    model = SVC().fit(X, y)
    with krein.counting() as spent:
        model.predict(new[:1])
    assert spent.n_evaluations == len(model.support_)


@pytest.mark.parametrize("how", ["square", "clip", "flip", "shift", "krein"])
@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.25), krein.TL1(rho=3.0)], ids=["psd", "indefinite"])
@pytest.mark.filterwarnings("ignore:.*indefinite matrix")
def test_a_correction_reaches_new_rows_as_dense_algebra_has_it(kernel: Any, how: str) -> None:
    X, y, new = classes(200, 2)
    K = kernel(X)
    values, V = np.linalg.eigh(K)
    changed = {
        "square": values**2, "clip": np.maximum(values, 0.0), "flip": np.abs(values), "krein": np.abs(values),
        "shift": values + max(0.0, -values[0]),
    }[how]  # fmt: skip
    kept = np.abs(values) > 1e-10 * np.abs(values).max()
    ratio = np.where(kept, changed / np.where(kept, values, 1.0), 0.0) if how != "shift" else np.ones(200)
    theirs = svm.SVC(kernel="precomputed", tol=1e-8).fit((V * changed) @ V.T, y)
    b = np.zeros(200)
    b[theirs.support_] = theirs.dual_coef_[0]
    wanted = kernel(new, X) @ ((V * ratio) @ V.T @ b) + theirs.intercept_[0]
    ours = SVC(kernel=kernel, correction=how, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(new), wanted, atol=1e-3 * np.abs(wanted).max())


@pytest.mark.filterwarnings("ignore:.*indefinite matrix")
def test_rows_changed_after_a_fit_change_no_prediction() -> None:
    X, y, new = classes(120, 2)
    tl1 = krein.TL1(rho=3.0)
    for machine in (
        SVC(), SVC(kernel=tl1, correction="clip"), SVR(kernel=tl1, correction="flip"), OneClassSVM(kernel=tl1),
        KernelRidge(kernel="rbf"), KernelRidgeClassifier(kernel=tl1), krein.KernelPCA(3, kernel="rbf"), krein.MEKA(5),
        krein.GaussianProcessRegressor(kernel="rbf", optimizer=None, alpha=0.1),
    ):  # fmt: skip
        rows = X.copy()
        machine.fit(rows, y)
        ask = machine.transform if hasattr(machine, "transform") else machine.predict
        expected = ask(new)
        rows *= 3.0
        np.testing.assert_array_equal(ask(new), expected)


def test_a_second_fit_keeps_nothing_of_the_first() -> None:
    X, y, _ = classes(300, 2)
    for machine in (
        SVC(),
        SVR(),
        OneClassSVM(),
        KernelRidge(kernel="rbf"),
        krein.GaussianProcessRegressor(kernel="rbf"),
    ):
        machine.set_params(random_state=0)
        fresh = len(pickle.dumps(clone(machine).fit(X[:50], y[:50])))
        again = clone(machine).set_params(n_blocks=3, rank=10).fit(X, y).set_params(n_blocks="auto", rank="auto")
        assert len(pickle.dumps(again.fit(X[:50], y[:50]))) <= 1.2 * fresh
    process = krein.GaussianProcessRegressor(kernel="rbf", random_state=0).fit(X, y)
    assert not hasattr(process.set_params(n_blocks=3, rank=10).fit(X, y), "L_")


def test_an_approximation_that_was_asked_for_is_in_no_pickle_or_file(tmp_path: Any) -> None:
    X, y, _ = classes(200, 2)
    model = SVC().fit(X, y)
    before = len(pickle.dumps(model))
    with pytest.warns(krein.KreinWarning, match="built now"):
        assert model.approximation_ is model.approximation_
    assert len(pickle.dumps(model)) == before
    krein.save(model, tmp_path / "model.krein")
    assert not hasattr(krein.load(tmp_path / "model.krein"), "approximation_")
    assert "approximation_" in dir(model)
    model._repr_html_()  # which shows what is there and computes nothing


def test_a_system_that_is_given_up_says_how_good_its_substitute_is() -> None:
    X = np.random.default_rng(0).normal(size=(2200, 25))
    X[1100:] = X[:1100]
    y = np.sin(X[:, 0])
    with pytest.warns(krein.KreinWarning) as said:
        model = KernelRidge(0.0, kernel="rbf", gamma=0.05, random_state=0).fit(X, y)
    assert "relative_error_ says" in str(said[0].message)
    assert "singular" in model.route_.why
    K = rbf_kernel(X, gamma=0.05)
    error = np.linalg.norm(model.approximation_.factorization.to_dense() - K) / np.linalg.norm(K)
    assert model.relative_error_ == pytest.approx(error, rel=0.3)


@pytest.mark.parametrize("scale", [1e-300, 1e-60, 1e60, 1e300])
def test_targets_of_any_scale_are_solved_in_single_precision_too(scale: float) -> None:
    X, y, _, _ = numbers(300)
    one, other = (
        solve_exactly(krein.RBF(gamma=0.5), X, np.ones(300), y[:, None] * size, np.ones(1), single_rows=0)
        for size in (1.0, scale)
    )
    np.testing.assert_allclose(other / scale, one, rtol=1e-6)
