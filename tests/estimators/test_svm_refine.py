"""Refinement: from a coarse factorization to the SVM of the kernel itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import svm
from sklearn.datasets import make_classification

from krein.estimators.svm import SVC, SVR, OneClassSVM

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
