"""Refinement: from a coarse factorization to the SVM of the kernel itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import svm
from sklearn.datasets import make_classification

import krein
from krein.estimators.svm import SVC
from krein.estimators.svr import SVR, OneClassSVM
from krein.solvers import refine, rows, smo
from krein.solvers.dense_dual import NotConverged

COARSE: dict[str, Any] = {"n_blocks": 3, "rank": 12, "random_state": 0}


def classes(n: int, n_classes: int = 2) -> tuple[Any, Any]:
    return make_classification(
        n, 5, n_informative=4, n_redundant=0, n_classes=n_classes, n_clusters_per_class=1, flip_y=0.03, random_state=1
    )  # type: ignore[no-any-return]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_the_exact_svm(n_classes: int) -> None:
    X, y = classes(2600, n_classes)
    X, X_new, y = X[:2400], X[2400:], y[:2400]
    options: dict[str, Any] = {"gamma": 0.5, "C": 2.0, "decision_function_shape": "ovo"}
    theirs = svm.SVC(tol=1e-6, **options).fit(X, y)
    coarse = SVC(**options, **COARSE).fit(X, y)
    ours = SVC(refine="exact", tol=1e-9, **options, **COARSE).fit(X, y)
    far = np.abs(coarse.decision_function(X_new) - theirs.decision_function(X_new)).max()
    assert far > 1e-2  # or there was nothing to refine
    np.testing.assert_allclose(ours.decision_function(X_new), theirs.decision_function(X_new), atol=2e-5)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    assert ours.converged_
    assert ours.gap_ <= 1e-9
    usual = SVC(refine="exact", **options, **COARSE).fit(X, y)
    np.testing.assert_allclose(usual.decision_function(X_new), theirs.decision_function(X_new), atol=1e-2)
    assert (usual.predict(X_new) == theirs.predict(X_new)).mean() >= 0.995


def test_rows_join_until_none_violates(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = classes(2300)
    poor: dict[str, Any] = {"gamma": 0.5, "n_blocks": 3, "rank": 2, "random_state": 0}
    monkeypatch.setattr(refine, "POOL", 0.2)
    monkeypatch.setattr(refine, "LEAST", 50)
    joined: list[int] = []
    join = rows.Pool.join

    def spy(pool: Any, more: Any) -> None:
        joined.append(len(more))
        join(pool, more)

    monkeypatch.setattr(rows.Pool, "join", spy)
    machine = SVC(refine="exact", **poor).fit(X, y)
    theirs = svm.SVC(gamma=0.5, tol=1e-6).fit(X, y)
    assert joined[0] < len(theirs.support_)  # the first pool could not do
    assert len(joined) >= 3
    assert machine.converged_
    np.testing.assert_allclose(machine.decision_function(X), theirs.decision_function(X), atol=1e-2)
    margins = machine.decision_function(X) * (2.0 * y - 1.0)
    rest = np.setdiff1d(np.arange(len(X)), machine.support_)
    assert margins[rest].min() >= 1.0 - 1e-3 - 1e-9
    monkeypatch.setattr(refine, "ROUNDS", 1)
    with pytest.warns(NotConverged, match=r"ended with \d+ of 2300 rows outside the pool"):
        machine = SVC(refine="exact", **poor).fit(X, y)
    assert not machine.converged_


def test_a_row_is_checked_again_only_where_the_solution_moved_that_far(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = classes(2300)
    monkeypatch.setattr(refine, "POOL", 1.0)
    monkeypatch.setattr(refine, "LEAST", 50)
    monkeypatch.setattr(refine, "ROUGH", 1.0)
    checked: list[int] = []
    product = rows.Exact.product

    def spy(exact: Any, b: Any, some: Any) -> Any:
        checked.append(len(some))
        return product(exact, b, some)

    monkeypatch.setattr(rows.Exact, "product", spy)
    machine = SVC(refine="exact", gamma=0.5, **COARSE).fit(X, y)
    assert len(checked) >= 3
    assert checked[-1] < 0.5 * checked[1]  # the first is the start's own
    theirs = svm.SVC(gamma=0.5, tol=1e-6).fit(X, y)
    np.testing.assert_allclose(machine.decision_function(X), theirs.decision_function(X), atol=1e-2)


def test_rows_that_find_no_room_are_evaluated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = classes(2300)
    kernel = krein.Laplacian(gamma=0.3)
    whole = SVC(refine="exact", kernel=kernel, **COARSE).fit(X, y)
    monkeypatch.setattr(refine, "CACHED", 1e-3)
    monkeypatch.setattr(refine, "BLOCK", 60)
    monkeypatch.setattr(smo, "BLOCK", 60)
    kept = SVC(refine="exact", kernel=kernel, cache_size=1e-3, **COARSE).fit(X, y)
    theirs = svm.SVC(kernel="precomputed", tol=1e-6).fit(kernel(X, X), y)
    wanted = theirs.decision_function(kernel(X[:200], X))
    for ours in (whole, kept):
        np.testing.assert_allclose(ours.decision_function(X[:200]), wanted, atol=1e-2)


@pytest.mark.parametrize("kernel", ["poly", "linear"])
def test_other_kernels(kernel: str) -> None:
    X, y = classes(2300)
    options: dict[str, Any] = {"kernel": kernel, "gamma": 0.3, "coef0": 1.0, "C": 0.5}
    ours = SVC(refine="exact", tol=1e-7, **options, **COARSE).fit(X, y)
    theirs = svm.SVC(tol=1e-6, **options).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X[:200]), theirs.decision_function(X[:200]), atol=1e-2)


def test_weights_and_single_precision() -> None:
    X, y = classes(2500)
    X = X.astype(np.float32)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, len(X))
    weights[::50] = 0.0
    options: dict[str, Any] = {"gamma": 0.5, "C": 3.0, "class_weight": {0: 1.0, 1: 2.0}}
    ours = SVC(refine="exact", **options, **COARSE).fit(X, y, sample_weight=weights)
    theirs = svm.SVC(tol=1e-6, **options).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-2)
    assert (ours.predict(X) == theirs.predict(X)).mean() >= 0.999
    assert not np.isin(ours.support_, np.arange(0, 2500, 50)).any()


def test_regression_and_one_class_are_refined_too() -> None:
    X, y = classes(2300)
    numbers = X[:, 0] * X[:, 1] + 0.1 * y
    options: dict[str, Any] = {"gamma": 0.5}
    ours = SVR(refine="exact", tol=1e-9, **options, **COARSE).fit(X, numbers)
    theirs = svm.SVR(tol=1e-7, **options).fit(X, numbers)
    np.testing.assert_allclose(ours.predict(X[:200]), theirs.predict(X[:200]), atol=1e-4)
    one = OneClassSVM(nu=0.1, refine="exact", tol=1e-9, **options, **COARSE).fit(X)
    other = svm.OneClassSVM(nu=0.1, tol=1e-7, **options).fit(X)
    np.testing.assert_allclose(
        one.decision_function(X[:200]), other.decision_function(X[:200]), atol=1e-5 * abs(other.offset_[0])
    )


def test_small_data_is_exact_anyway() -> None:
    X, y = classes(200)
    np.testing.assert_array_equal(
        SVC(refine="exact").fit(X, y).decision_function(X), SVC().fit(X, y).decision_function(X)
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_few_thousand_rows_are_exact_unless_something_is_said(n_classes: int) -> None:
    X, y = make_classification(2300, 6, n_informative=4, n_classes=n_classes, flip_y=0.05, random_state=1)
    train, test = X[:2100], X[2100:]
    ours, theirs = SVC(C=2.0).fit(train, y[:2100]), svm.SVC(C=2.0).fit(train, y[:2100])
    assert ours.refined_
    np.testing.assert_allclose(ours.decision_function(test), theirs.decision_function(test), atol=5e-3)
    assert not SVC(n_blocks=4, rank=16).fit(train, y[:2100]).refined_
    assert not SVC(refine=None, n_blocks=4, rank=16).fit(train, y[:2100]).refined_
    flat, level = SVR(C=2.0).fit(train, X[:2100, 0]), svm.SVR(C=2.0).fit(train, X[:2100, 0])
    assert flat.refined_
    np.testing.assert_allclose(flat.predict(test), level.predict(test), atol=2e-2)  # 1e-3 of the largest target each


def test_what_pairs_do_not_settle_a_linear_system_does(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = classes(2300)
    options: dict[str, Any] = {"C": 50.0, "gamma": 0.3, **COARSE}
    plain = SVC(refine="exact", **options).fit(X, y)
    monkeypatch.setattr(smo, "STEPS", 1)  # pairs for each row of a block,
    monkeypatch.setattr(refine, "descend", lambda *given: smo.descend(*given[:-1], 4000))  # and fewer than they need
    ours = SVC(refine="exact", **options).fit(X, y)
    assert ours.converged_
    assert ours.gap_ <= 0.5 * plain.gap_  # the free rows are solved for to rounding, pairs to their tolerance
    theirs = svm.SVC(C=50.0, gamma=0.3, tol=1e-6).fit(X, y).decision_function(X)
    np.testing.assert_allclose(ours.decision_function(X), theirs, atol=0.01)
    monkeypatch.setattr(refine, "POLISHED", 0)
    with pytest.warns(NotConverged, match="after .* steps; .*Lower C, or raise tol"):
        left = SVC(refine="exact", **options).fit(X, y)
    assert not left.converged_
