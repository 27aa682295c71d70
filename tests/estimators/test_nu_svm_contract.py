"""scikit-learn's own checks of NuSVC and NuSVR, class weights and weights as repeated rows among them."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from krein.estimators.nu_svm import NuSVC, NuSVR


# Classes of the checks overlap so that nu = 0.3 is too small, or have so few rows that nu = 0.5 is infeasible.
@pytest.mark.filterwarnings("ignore:nu = 0.3 is too small:krein.KreinWarning")
@parametrize_with_checks([NuSVC(nu=0.3), NuSVR()])
def test_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([NuSVR(nu=0.8, C=10.0, kernel="linear")])
def test_scikit_learns_contract_with_other_parameters(estimator: Any, check: Any) -> None:
    check(estimator)
