from __future__ import annotations

from typing import Any

from sklearn.utils.estimator_checks import parametrize_with_checks

from krein.estimators.svm import SVC
from krein.estimators.svr import SVR, OneClassSVM


@parametrize_with_checks([SVC(), SVR(), OneClassSVM(), SVC(multi_class="ovr"), SVC(kernel="linear", warm_start=True)])
def test_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)
