"""scikit-learn's own checks of estimators, on kernel logistic regression."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from krein.estimators.logistic_regression import KernelLogisticRegression


@parametrize_with_checks([KernelLogisticRegression()])
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)
