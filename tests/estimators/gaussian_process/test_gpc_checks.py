"""scikit-learn's own checks of estimators, on the Gaussian process classifier."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from krein import GaussianProcessClassifier


@parametrize_with_checks([GaussianProcessClassifier()])
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)
