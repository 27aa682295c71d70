"""SVC against LIBSVM, and against its own mathematics where the matrix is factored."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import krein
from krein.errors import InputError
from krein.estimators.svm import SVC
from krein.solvers.dense_dual import NotConverged


def classes(n: int, n_classes: int, seed: int = 0) -> tuple[Any, Any]:
    return make_classification(n, 6, n_informative=5, n_redundant=0, n_classes=n_classes, flip_y=0.1, random_state=seed)  # type: ignore[no-any-return]


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"kernel": "linear", "C": 0.1}, {"kernel": "poly", "coef0": 1.0}, {"class_weight": "balanced", "gamma": 0.2}],
)
def test_small_data_is_libsvms_to_1e_6(n_classes: int, parameters: dict[str, Any]) -> None:
    X, y = classes(300, n_classes)
    X, X_new, y = X[:250], X[250:], y[:250]
    theirs = svm.SVC(tol=1e-8, decision_function_shape="ovo", **parameters).fit(X, y)
    ours = SVC(tol=1e-9, decision_function_shape="ovo", **parameters).fit(X, y)
    scale = np.abs(theirs.decision_function(X_new)).max()
    np.testing.assert_allclose(ours.decision_function(X_new), theirs.decision_function(X_new), atol=2e-6 * scale)
    np.testing.assert_array_equal(ours.predict(X_new), theirs.predict(X_new))
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)
    np.testing.assert_array_equal(ours.support_vectors_, theirs.support_vectors_)
    np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-4 * np.abs(theirs.dual_coef_).max())
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    np.testing.assert_allclose(ours.class_weight_, theirs.class_weight_)
    assert ours.shape_fit_ == theirs.shape_fit_
    assert ours.fit_status_ == theirs.fit_status_ == 0
    assert ours.n_iter_.shape == theirs.n_iter_.shape
    assert ours.gap_ <= 1e-9
    assert ours.correction_ == "none"
    ours.set_params(decision_function_shape="ovr")
    theirs.set_params(decision_function_shape="ovr")
    np.testing.assert_allclose(ours.decision_function(X_new), theirs.decision_function(X_new), atol=2e-6 * scale)
    ours.set_params(break_ties=True)
    theirs.set_params(break_ties=True)
    np.testing.assert_array_equal(ours.predict(X_new), theirs.predict(X_new))


def test_a_hard_dual_is_closer_to_the_optimum_than_libsvm_gets() -> None:
    X, y = classes(200, 2)
    K = krein.RBF(gamma=0.1)(X, X)
    signs = 2.0 * y - 1.0

    def objective(machine: Any) -> float:
        b = np.zeros(200)
        b[machine.support_] = machine.dual_coef_[0]
        return float(0.5 * b @ K @ b - signs @ b)

    ours, theirs = SVC(C=1e3, gamma=0.1, tol=1e-9).fit(X, y), svm.SVC(C=1e3, gamma=0.1, tol=1e-6).fit(X, y)
    assert objective(ours) <= objective(theirs) + 1e-9 * abs(objective(theirs))
    on_margin = (ours.decision_function(X) * signs)[ours.support_][np.abs(ours.dual_coef_[0]) < 1e3]
    np.testing.assert_allclose(on_margin, 1.0, atol=1e-7)


def test_weights_are_repeated_rows_and_zero_is_none() -> None:
    X, y = classes(120, 3)
    times = np.random.default_rng(0).integers(0, 4, 120)
    weighted = SVC(tol=1e-9).fit(X, y, sample_weight=times)
    repeated = SVC(tol=1e-9).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-8)
    assert (times[weighted.support_] > 0).all()
    np.testing.assert_array_equal(weighted.support_vectors_, X[weighted.support_])
    balanced = SVC(class_weight="balanced", tol=1e-9).fit(X, y, sample_weight=times)
    other = SVC(class_weight="balanced", tol=1e-9).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(balanced.class_weight_, other.class_weight_)
    np.testing.assert_allclose(balanced.decision_function(X), other.decision_function(X), atol=1e-8)


def test_one_against_the_rest_is_what_binary_machines_say() -> None:
    X, y = classes(200, 3)
    whole = SVC(multi_class="ovr", C=2.0).fit(X, y)
    parts = [SVC(C=2.0).fit(X, y == k).decision_function(X) for k in range(3)]
    np.testing.assert_allclose(whole.decision_function(X), np.stack(parts, axis=1), atol=1e-8)
    np.testing.assert_array_equal(whole.predict(X), np.stack(parts, axis=1).argmax(axis=1))
    assert whole.dual_coef_.shape == (3, len(whole.support_))
    with pytest.raises(InputError, match="needs pairs"):
        SVC(multi_class="ovr", decision_function_shape="ovo").fit(X, y)


@pytest.mark.parametrize(("n", "rank"), [(2500, 20), (2500, 120), (3500, 20)])
def test_on_the_factored_matrix_it_is_the_svm_of_that_matrix(n: int, rank: int) -> None:
    X, y = classes(n, 2)
    ours = SVC(C=5.0, n_blocks=3, rank=rank, random_state=0).fit(X, y)
    K = ours.approximation_.factorization.to_dense()
    b = np.zeros(n)
    b[ours.support_] = ours.dual_coef_[0]
    slope = (K @ b + ours.intercept_[0]) * (2.0 * y - 1.0) - 1.0
    inside = (np.abs(b) > 1e-9) & (np.abs(b) < 5.0 * (1 - 1e-9))
    assert np.abs(slope[inside]).max() <= 1e-4
    assert slope[b == 0.0].min() >= -1e-4
    assert slope[np.abs(b) >= 5.0].max() <= 1e-4
    assert ours.converged_
    assert ours.gap_ <= 1e-6
    values = ours.approximation_.kernel_rows(X[:50]) @ b + ours.intercept_[0]
    np.testing.assert_allclose(ours.decision_function(X[:50]), values, atol=1e-8)
    assert 0.0 < ours.relative_error_ < 1.0


def test_classes_may_be_words_and_rows_sparse_or_a_data_frame() -> None:
    pd = pytest.importorskip("pandas")
    X, y = classes(150, 3)
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    names = np.array(["one", "three", "two"])[y]
    dense = SVC(tol=1e-9).fit(X, names)
    assert set(dense.predict(X)) <= {"one", "two", "three"}
    sparse = SVC(tol=1e-9).fit(sp.csr_matrix(X), names)
    np.testing.assert_allclose(sparse.decision_function(X), dense.decision_function(X), atol=1e-8)
    np.testing.assert_allclose(sparse.decision_function(sp.csr_matrix(X)), dense.decision_function(X), atol=1e-8)
    np.testing.assert_array_equal(sparse.support_vectors_.toarray(), dense.support_vectors_)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    framed = SVC().fit(frame, pd.Series(names))
    np.testing.assert_array_equal(framed.predict(frame), dense.predict(X))
    assert list(framed.feature_names_in_) == list("abcdef")


def test_a_path_of_C_starts_warm() -> None:
    X, y = classes(400, 3)
    warm = SVC(warm_start=True, tol=1e-9)
    for C in (1.0, 1.05, 1.1):
        warm.set_params(C=C).fit(X, y)
        cold = SVC(C=C, tol=1e-9).fit(X, y)
        np.testing.assert_allclose(warm.decision_function(X), cold.decision_function(X), atol=1e-7)
    assert warm.n_iter_.sum() < cold.n_iter_.sum()
    warm.fit(X[:100], y[:100])  # other rows: nothing to start from, and nothing lost
    np.testing.assert_allclose(
        warm.decision_function(X), SVC(C=1.1, tol=1e-9).fit(X[:100], y[:100]).decision_function(X), atol=1e-7
    )


def test_a_gap_that_is_left_is_a_warning_with_the_gap() -> None:
    X, y = classes(200, 2)
    with pytest.warns(NotConverged, match=r"max_iter=5.*relative duality gap of [0-9.e+-]+"):
        machine = SVC(max_iter=5).fit(X, y)
    assert not machine.converged_
    assert machine.fit_status_ == 1
    assert machine.gap_ > 1e-6
    assert issubclass(NotConverged, svm._base.ConvergenceWarning)
    assert issubclass(NotConverged, krein.KreinWarning)


def test_it_goes_into_pipelines_grids_clones_and_pickles() -> None:
    X, y = classes(150, 2)
    grid = GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": [0.1, 1.0]}, cv=3).fit(X, y)
    theirs = GridSearchCV(make_pipeline(StandardScaler(), svm.SVC()), {"svc__C": [0.1, 1.0]}, cv=3).fit(X, y)
    np.testing.assert_allclose(grid.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"])
    machine = clone(grid.best_estimator_[-1]).fit(X, y)
    again = pickle.loads(pickle.dumps(machine))
    np.testing.assert_array_equal(again.decision_function(X), machine.decision_function(X))
    np.testing.assert_array_equal(again.support_vectors_, machine.support_vectors_)


def test_one_approximation_serves_many_fits_and_rows_without_weight_are_left_out() -> None:
    X, y = classes(2200, 2)
    a = krein.approximate(X, krein.RBF(gamma=0.1), n_blocks=4, rank=30, random_state=0)
    weights = np.ones(2200)
    weights[:300] = 0.0
    machine = SVC(kernel=krein.RBF(gamma=0.1), approximation=a).fit(X, y, sample_weight=weights)
    assert machine.approximation_.factorization is a.factorization
    assert machine.support_.min() >= 300
    np.testing.assert_array_equal(machine.support_vectors_, X[machine.support_])
    with pytest.raises(InputError, match="other objects"):
        SVC(kernel=krein.RBF(gamma=0.1), approximation=a).fit(X[:-1], y[:-1])


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"C": 0.0}, "C must be"),
        ({"C": -1}, "C must be"),
        ({"tol": 0.0}, "tol must be"),
        ({"max_iter": -3}, "max_iter must be"),
        ({"cache_size": 0}, "cache_size must be"),
        ({"multi_class": "all"}, "'ovo', 'ovr'"),
        ({"decision_function_shape": "both"}, "'ovr', 'ovo'"),
        ({"refine": "more"}, "'exact'"),
        ({"correction": "mend"}, "'krein'"),
        ({"class_weight": {0: -1.0}}, "class_weight must be above 0"),
    ],
)
def test_a_parameter_that_cannot_be_is_named(parameters: dict[str, Any], words: str) -> None:
    X, y = classes(50, 2)
    with pytest.raises(ValueError, match=words):
        SVC(**parameters).fit(X, y)


def test_nothing_is_said_where_nothing_happened() -> None:
    X, y = classes(100, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SVC(kernel="laplacian", verbose=0).fit(X, y).predict(X)


def test_a_named_kernel_other_than_the_approximations_is_refused():
    X = np.random.default_rng(0).normal(size=(60, 3))
    a = krein.approximate(X, krein.RBF(gamma=0.2))
    with pytest.raises(krein.InputError, match="Laplacian"):
        krein.SVC(kernel="laplacian", approximation=a).fit(X, np.sign(X[:, 0]))


def test_weights_over_ten_orders_of_magnitude():
    rows = krein.datasets.mixture(4000, n_features=10, n_clusters=6, n_classes=2, random_state=3)
    weights = np.random.default_rng(0).lognormal(0, 4, 4000)
    machine = krein.SVC(n_blocks=10, rank=24, gamma=0.05, random_state=0).fit(rows.X, rows.y, sample_weight=weights)
    assert machine.converged_
    assert machine.gap_ <= 1e-6


@pytest.mark.parametrize("shape", [{}, {"n_blocks": 3, "rank": 20}], ids=["exact", "blocks"])
@pytest.mark.parametrize("scale", [1e-14, 1e14])
def test_a_large_C_is_kept_where_similarities_are_small_or_targets_large(scale: float, shape: dict[str, Any]) -> None:
    """C = 10 on k is C = 10 / s on s k, and on targets s y it is 10 s with epsilon s times as large."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1]
    one, other = krein.RBF(0.3), scale * krein.RBF(0.3)
    common = {"tol": 1e-9, "random_state": 0, **shape}
    usual = krein.SVC(C=10.0, kernel=one, **common).fit(X, y > 0).decision_function(X)
    found = krein.SVC(C=10.0 / scale, kernel=other, **common).fit(X, y > 0).decision_function(X)
    np.testing.assert_allclose(found, usual, rtol=0, atol=1e-6 * np.abs(usual).max())
    usual = krein.SVR(C=10.0, kernel=one, **common).fit(X, y).predict(X)
    found = krein.SVR(C=10.0 * scale, epsilon=0.1 * scale, kernel=one, **common).fit(X, scale * y).predict(X)
    np.testing.assert_allclose(found / scale, usual, rtol=0, atol=1e-6 * np.abs(usual).max())


@pytest.mark.parametrize("scale", [1e-14, 1e14])
def test_an_infinite_C_is_a_hard_margin_for_any_size_of_similarities(scale: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] > 0
    usual = krein.SVC(C=np.inf, kernel=krein.RBF(0.3), tol=1e-9).fit(X, y).decision_function(X)
    found = krein.SVC(C=np.inf, kernel=scale * krein.RBF(0.3), tol=1e-9).fit(X, y).decision_function(X)
    np.testing.assert_allclose(found, usual, rtol=0, atol=1e-4 * np.abs(usual).max())
    assert (np.where(y, 1, -1) * found).min() > 0.999
