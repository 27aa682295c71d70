"""scikit-learn's own checks of estimators, on ridge."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from krein.estimators.ridge import KernelRidge, KernelRidgeClassifier


@parametrize_with_checks(
    [KernelRidge(), KernelRidge(alpha="loo", kernel="rbf"), KernelRidgeClassifier(), KernelRidgeClassifier(alpha=0.1)]
)
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)
