"""scikit-learn's "precomputed" in cross-validation: the folds cut rows and columns alike, in every estimator."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.utils import get_tags

import krein

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 3))
y = (X[:, 0] + 0.5 * X[:, 1] > 0).astype(int)
t = X[:, 0] + 0.1 * rng.normal(size=90)
KERNEL = krein.RBF(gamma=0.3)
K = KERNEL(X)
FOLDS = KFold(3, shuffle=True, random_state=0)
MACHINES = {
    "SVC": (krein.SVC(), y),
    "SVR": (krein.SVR(), t),
    "KernelRidge": (krein.KernelRidge(alpha=0.1), t),
    "KernelRidgeClassifier": (krein.KernelRidgeClassifier(), y),
    "KernelLogisticRegression": (krein.KernelLogisticRegression(tol=1e-8), y),
}
each_machine = pytest.mark.parametrize("name", MACHINES)


@each_machine
def test_a_cross_validation_of_the_matrix_is_that_of_the_kernel(name):
    machine, target = MACHINES[name]
    by_matrix = clone(machine).set_params(kernel="precomputed")
    by_kernel = clone(machine).set_params(kernel=KERNEL)
    assert get_tags(by_matrix).input_tags.pairwise
    assert not get_tags(by_kernel).input_tags.pairwise
    np.testing.assert_allclose(
        cross_val_score(by_matrix, K, target, cv=FOLDS), cross_val_score(by_kernel, X, target, cv=FOLDS), atol=1e-6
    )
    found, expected = (cross_val_predict(m, A, target, cv=FOLDS) for m, A in ((by_matrix, K), (by_kernel, X)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@each_machine
def test_a_cross_validation_over_indices_of_a_matrix_or_a_file_is_the_same(name, tmp_path):
    machine, target = MACHINES[name]
    np.save(tmp_path / "K.npy", K)
    expected = cross_val_score(clone(machine).set_params(kernel=KERNEL), X, target, cv=FOLDS)
    for given in (K, tmp_path / "K.npy"):
        by_index = clone(machine).set_params(kernel=krein.Precomputed(given))
        np.testing.assert_allclose(cross_val_score(by_index, np.arange(90), target, cv=FOLDS), expected, atol=1e-6)


def test_a_grid_over_a_matrix_finds_what_a_grid_over_the_kernel_finds():
    grid = {"C": [0.01, 0.1, 1.0, 10.0]}
    by_matrix = GridSearchCV(krein.SVC(kernel="precomputed"), grid, cv=FOLDS).fit(K, y)
    by_kernel = GridSearchCV(krein.SVC(kernel=KERNEL), grid, cv=FOLDS).fit(X, y)
    np.testing.assert_allclose(
        by_matrix.cv_results_["mean_test_score"], by_kernel.cv_results_["mean_test_score"], atol=1e-9
    )


def test_components_novelties_and_clusters_of_a_matrix():
    found = krein.KernelPCA(n_components=2, kernel="precomputed").fit_transform(K)
    expected = krein.KernelPCA(n_components=2, kernel=KERNEL).fit_transform(X)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-6)
    rows = K[:60]
    one = krein.OneClassSVM(kernel="precomputed", nu=0.2).fit(rows[:, :60])
    other = krein.OneClassSVM(kernel=KERNEL, nu=0.2).fit(X[:60])
    np.testing.assert_allclose(one.decision_function(K[60:, :60]), other.decision_function(X[60:]), atol=1e-6)
    labels = krein.SpectralClustering(2, affinity="precomputed", random_state=0).fit_predict(K)
    assert len(np.unique(labels)) == 2


def test_an_asymmetric_or_broken_matrix_never_learns_in_silence():
    crooked, broken = K.copy(), K.copy()
    crooked[3, 7] += 0.2
    broken[3, 7] = broken[7, 3] = np.nan
    with pytest.raises(krein.InputError, match=r"difference is 0\.2, between S\[3, 7\]"):
        krein.SVC(kernel="precomputed").fit(crooked, y)
    with pytest.raises(ValueError, match="NaN"):
        krein.SVC(kernel="precomputed").fit(broken, y)
