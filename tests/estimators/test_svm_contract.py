"""scikit-learn's own checks, sample weights as repeated rows among them, which LIBSVM's machines fail."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from krein.estimators.svm import SVC, SVR, OneClassSVM


@parametrize_with_checks([SVC(), SVR(), OneClassSVM()])
def test_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [SVC(multi_class="ovr"), SVC(kernel="linear", warm_start=True), SVR(kernel="linear", epsilon=0.0)]
)
def test_scikit_learns_contract_with_other_parameters(estimator: Any, check: Any) -> None:
    check(estimator)
