"""NuSVC and NuSVR against LIBSVM on the kernel, on the matrix of an approximation, and against SVC and SVR."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.metrics.pairwise import rbf_kernel, sigmoid_kernel

import krein
from krein.errors import InputError, KreinWarning
from krein.estimators.nu_svm import NuSVC, NuSVR
from krein.estimators.route import Exact, Features, Given
from krein.policy import Policy


def classes(n: int, n_classes: int = 2) -> tuple[Any, Any]:
    return make_classification(  # type: ignore[no-any-return]
        n, 6, n_informative=4, n_classes=n_classes, class_sep=0.8, flip_y=0.05, random_state=0
    )


def numbers(n: int) -> tuple[Any, Any]:
    X, y = make_regression(n, 5, noise=10.0, random_state=0)
    return X, y / np.std(y)


def margin_objective(machine: Any, K: Any, nu: float, weights: Any = 1.0) -> float:
    """1/2 bᵀKb of the coefficients in the box of the weights, whose sum of |b| is nu times that of the weights."""
    n = len(K)
    b = np.zeros(n)
    b[machine.support_] = np.asarray(machine.dual_coef_).ravel()
    b *= nu * np.broadcast_to(weights, n).sum() / np.abs(b).sum()
    assert (np.abs(b) <= weights * (1.0 + 1e-6)).all()
    assert abs(b.sum()) < 1e-8 * n
    return float(0.5 * b @ K @ b)


def tube_objective(machine: Any, K: Any, y: Any) -> float:
    b = np.zeros(len(K))
    b[machine.support_] = np.asarray(machine.dual_coef_).ravel()
    return float(0.5 * b @ K @ b - y @ b)


@pytest.mark.parametrize("nu", [0.3, 0.7])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", [{"gamma": 0.2}, {"kernel": "poly", "coef0": 1.0, "gamma": 0.2}])
def test_classification_on_small_data_is_libsvms(kernel: dict[str, Any], nu: float, weighted: bool) -> None:
    X, y = classes(350)
    X, X_new, y = X[:300], X[300:], y[:300]
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 300) if weighted else None
    theirs = svm.NuSVC(nu=nu, tol=1e-7, **kernel).fit(X, y, weights)
    ours = NuSVC(nu=nu, tol=1e-9, **kernel).fit(X, y, weights)
    assert isinstance(ours.route_, Exact)
    assert ours.converged_
    assert ours.gap_ <= 1e-9
    scale = np.abs(theirs.decision_function(X)).max()
    np.testing.assert_allclose(ours.decision_function(X_new), theirs.decision_function(X_new), atol=1e-4 * scale)
    np.testing.assert_array_equal(ours.predict(X_new), theirs.predict(X_new))
    np.testing.assert_array_equal(ours.n_support_, theirs.n_support_)
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    K = rbf_kernel(X, gamma=0.2) if "kernel" not in kernel else (0.2 * X @ X.T + 1.0) ** 3
    given = 1.0 if weights is None else weights
    wanted = margin_objective(theirs, K, nu, given)
    assert margin_objective(ours, K, nu, given) == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(np.abs(ours.dual_coef_).max(), ours.C_[0] * np.max(given), rtol=1e-8)


@pytest.mark.parametrize("nu", [0.2, 0.6, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_regression_on_small_data_is_libsvms(nu: float, weighted: bool) -> None:
    X, y = numbers(350)
    X, X_new, y = X[:300], X[300:], y[:300]
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 300) if weighted else None
    theirs = svm.NuSVR(nu=nu, C=2.0, gamma=0.2, tol=1e-7).fit(X, y, weights)
    ours = NuSVR(nu=nu, C=2.0, gamma=0.2, tol=1e-9).fit(X, y, weights)
    assert ours.converged_
    assert ours.gap_ <= 1e-9
    np.testing.assert_allclose(ours.predict(X_new), theirs.predict(X_new), atol=1e-5)
    K = rbf_kernel(X, gamma=0.2)
    assert tube_objective(ours, K, y) == pytest.approx(tube_objective(theirs, K, y), rel=1e-6)
    same = krein.SVR(C=2.0, epsilon=ours.epsilon_, gamma=0.2, tol=1e-9).fit(X, y, weights)
    np.testing.assert_allclose(ours.predict(X_new), same.predict(X_new), atol=1e-7)
    assert (ours.epsilon_ == 0.0) == (nu == 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("nu", [0.4, 0.7])
def test_objectives_of_2000_rows_are_scikit_learns(nu: float) -> None:
    X, y = classes(2000)
    K = rbf_kernel(X, gamma=0.2)
    theirs = svm.NuSVC(nu=nu, gamma=0.2, tol=1e-6).fit(X, y)
    ours = NuSVC(nu=nu, gamma=0.2, tol=1e-9).fit(X, y)
    assert margin_objective(ours, K, nu) == pytest.approx(margin_objective(theirs, K, nu), rel=1e-6)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    X, y = numbers(2000)
    K = rbf_kernel(X, gamma=0.2)
    theirs = svm.NuSVR(nu=nu, gamma=0.2, tol=1e-6).fit(X, y)
    ours = NuSVR(nu=nu, gamma=0.2, tol=1e-9).fit(X, y)
    assert tube_objective(ours, K, y) == pytest.approx(tube_objective(theirs, K, y), rel=1e-6)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=1e-4)


@pytest.mark.slow
def test_rows_beyond_libsvms_are_solved_by_the_search() -> None:
    X, y = classes(5000)
    theirs = svm.NuSVC(nu=0.5, gamma=0.2, tol=1e-4).fit(X, y)
    ours = NuSVC(nu=0.5, gamma=0.2).fit(X, y)
    assert isinstance(ours.route_, Exact)
    assert np.abs(ours.decision_function(X) - theirs.decision_function(X)).max() < 1e-2


def test_usual_tolerances_are_those_of_libsvm() -> None:
    X, y = classes(600)
    theirs, ours = svm.NuSVC(nu=0.5, gamma=0.2).fit(X, y), NuSVC(nu=0.5, gamma=0.2).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-2)
    assert ours.converged_
    assert ours.fit_status_ == 0


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_more_than_two_classes(shape: str) -> None:
    X, y = classes(400, 3)
    theirs = svm.NuSVC(nu=0.4, gamma=0.2, tol=1e-7, decision_function_shape=shape).fit(X[:300], y[:300])
    ours = NuSVC(nu=0.4, gamma=0.2, tol=1e-9, decision_function_shape=shape).fit(X[:300], y[:300])
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    values = theirs.decision_function(X)
    np.testing.assert_allclose(ours.decision_function(X), values, atol=1e-4 * np.abs(values).max())
    np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-3 * np.abs(theirs.dual_coef_).max())
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    assert ours.C_.shape == ours.n_iter_.shape == (3,)


@pytest.mark.parametrize(("n", "n_classes"), [(1200, 2), (900, 3)])
def test_on_a_factorization_classes_are_libsvms_on_its_matrix(n: int, n_classes: int) -> None:
    X, y = classes(n, n_classes)
    ours = NuSVC(nu=0.5, gamma=0.2, n_blocks=3, rank=20, random_state=0).fit(X, y)
    assert isinstance(ours.route_, Given)
    assert ours.converged_
    assert ours.gap_ <= 1e-6
    K = ours.approximation_.factorization.to_dense()
    theirs = svm.NuSVC(nu=0.5, kernel="precomputed", tol=1e-6).fit(K, y)
    values = theirs.decision_function(K)
    np.testing.assert_allclose(ours.decision_function(X), values, atol=1e-3 * np.abs(values).max())
    assert (ours.predict(X) == theirs.predict(K)).mean() > 0.999
    if n_classes == 2:
        assert margin_objective(ours, K, 0.5) == pytest.approx(margin_objective(theirs, K, 0.5), rel=1e-6)


@pytest.mark.parametrize("nu", [0.3, 1.0])
def test_on_a_factorization_regression_is_libsvms_on_its_matrix(nu: float) -> None:
    X, y = numbers(1200)
    ours = NuSVR(nu=nu, gamma=0.2, n_blocks=3, rank=20, random_state=0).fit(X, y)
    assert ours.converged_
    assert ours.gap_ <= 1e-6
    K = ours.approximation_.factorization.to_dense()
    theirs = svm.NuSVR(nu=nu, kernel="precomputed", tol=1e-6).fit(K, y)
    assert tube_objective(ours, K, y) == pytest.approx(tube_objective(theirs, K, y), rel=1e-6)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(K), atol=1e-3)
    sizes = np.abs(ours.dual_coef_[0])
    assert ((sizes > 1.0 - 1e-6) == (sizes == 1.0)).all()  # what is at a bound is there exactly, on both sides
    assert (ours.dual_coef_ == 1.0).any()
    assert (ours.dual_coef_ == -1.0).any()


def test_the_gap_is_the_nu_svms_own() -> None:
    """From the primal: 1/2 |w|² - nu n rho + the sum of what margins lack of rho, for NuSVC in the box of ones."""
    X, y = classes(1000)
    ours = NuSVC(nu=0.5, gamma=0.2, n_blocks=2, rank=20, tol=1e-4, random_state=0).fit(X, y)
    K = ours.approximation_.factorization.to_dense()
    b, rho, sign = np.zeros(1000), 1.0 / ours.C_[0], np.where(y == ours.classes_[1], 1.0, -1.0)
    b[ours.support_] = rho * ours.dual_coef_[0]
    assert np.abs(b).sum() == pytest.approx(500.0, rel=1e-9)
    half = 0.5 * float(b @ K @ b)
    margins = sign * (K @ b + rho * ours.intercept_[0])
    primal = half - 500.0 * rho + np.maximum(rho - margins, 0.0).sum()  # its minimum is minus that of the dual
    assert primal + half >= -1e-9 * half
    assert (primal + half) / half == pytest.approx(ours.gap_, abs=1e-4 * ours.gap_ + 1e-9)


def test_nu_is_the_share_of_support_vectors_and_errors() -> None:
    X, y = classes(600)
    for nu in (0.4, 0.6):
        ours = NuSVC(nu=nu, gamma=0.2, tol=1e-9).fit(X, y)
        margins = np.where(y == 1, 1.0, -1.0) * ours.decision_function(X)
        assert (margins < 1.0 - 1e-6).mean() <= nu <= len(ours.support_) / 600
    X, y = numbers(600)
    ours = NuSVR(nu=0.3, gamma=0.2, tol=1e-9).fit(X, y)
    assert (np.abs(y - ours.predict(X)) > ours.epsilon_ + 1e-6).mean() <= 0.3 <= len(ours.support_) / 600


def test_class_weights_are_factors_of_the_c_that_follows_from_nu() -> None:
    X, y = classes(300)
    weights = {0: 3.0, 1: 0.5}
    plain = NuSVC(nu=0.5, gamma=0.2, tol=1e-9).fit(X, y)
    ours = NuSVC(nu=0.5, gamma=0.2, tol=1e-9, class_weight=weights).fit(X, y)
    same = svm.SVC(C=plain.C_[0], gamma=0.2, tol=1e-7, class_weight=weights).fit(X, y)
    np.testing.assert_allclose(ours.C_, plain.C_)
    np.testing.assert_allclose(ours.decision_function(X), same.decision_function(X), atol=1e-4)


@pytest.mark.parametrize("correction", ["auto", "flip", "krein", "none"])
def test_an_indefinite_kernel_is_treated_as_in_svc(correction: str) -> None:
    X, y = classes(300)
    given = {"kernel": "sigmoid", "gamma": 0.2, "coef0": -1.0, "correction": correction}
    with pytest.warns(KreinWarning, match="indefinite"):
        ours = NuSVC(nu=0.5, tol=1e-9, **given).fit(X, y)
    if correction == "none":
        theirs = svm.NuSVC(nu=0.5, kernel="precomputed", tol=1e-8).fit(sigmoid_kernel(X, gamma=0.2, coef0=-1.0), y)
        assert len(ours.support_) == pytest.approx(len(theirs.support_), rel=0.1)
        return
    with pytest.warns(KreinWarning, match="indefinite"):
        same = krein.SVC(C=ours.C_[0], tol=1e-9, **given | {"correction": ours.correction_}).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), same.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("correction", ["square", "flip"])
def test_similarities_as_features(correction: str) -> None:
    X, y = classes(500)
    K = sigmoid_kernel(X, gamma=0.2, coef0=-1.0)
    values, vectors = np.linalg.eigh(K)
    size = {"square": values**2 / np.sqrt(np.mean(values**2)), "flip": np.abs(values)}[correction]
    with pytest.warns(KreinWarning, match="indefinite"):
        ours = NuSVC(
            nu=0.5, kernel="sigmoid", gamma=0.2, coef0=-1.0, correction=correction, policy=Policy(exact_rows=100),
            tol=1e-9, random_state=0,
        ).fit(X, y)  # fmt: skip
    assert isinstance(ours.route_, Features)
    corrected = (vectors * size) @ vectors.T
    theirs = svm.NuSVC(nu=0.5, kernel="precomputed", tol=1e-9).fit(corrected, y)
    mine, expected = ours.decision_function(X), theirs.decision_function(corrected)
    np.testing.assert_allclose(mine, expected, atol=1e-4 * np.abs(expected).max())  # nu takes no scale of the matrix


def test_sparse_single_precision_and_precomputed() -> None:
    X, y = classes(300)
    usual = NuSVC(nu=0.5, gamma=0.2, tol=1e-9).fit(X, y)
    values = usual.decision_function(X)
    sparse = NuSVC(nu=0.5, gamma=0.2, tol=1e-9).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.decision_function(sp.csr_matrix(X)), values, atol=1e-6)
    single = NuSVC(nu=0.5, gamma=0.2).fit(X.astype(np.float32), y)
    np.testing.assert_allclose(single.decision_function(X.astype(np.float32)), values, atol=2e-2)
    K = rbf_kernel(X, gamma=0.2)
    given = NuSVC(nu=0.5, kernel="precomputed", tol=1e-9).fit(K, y)
    np.testing.assert_allclose(given.decision_function(K), values, atol=1e-6)


@pytest.mark.parametrize(
    "machine",
    [
        NuSVC(nu=0.4, warm_start=True),
        NuSVC(nu=0.5, n_blocks=2, rank=10, random_state=0),
        NuSVR(nu=0.4, C=2.0),
        NuSVR(nu=0.4, n_blocks=2, rank=10, random_state=0),
    ],
)
def test_saved_and_pickled_ones_predict_the_same(machine: Any, tmp_path: Any) -> None:
    X, y = classes(200)
    machine.fit(X, y)
    krein.save(machine, tmp_path / "machine.krein")
    for again in (krein.load(tmp_path / "machine.krein"), pickle.loads(pickle.dumps(machine))):
        np.testing.assert_array_equal(again.predict(X), machine.predict(X))
        assert (again.get_params().keys() == machine.get_params().keys() and again.nu == 0.4) or again.nu == 0.5


def test_a_warm_start_finds_the_same_solution() -> None:
    X, y = classes(1200)
    given = {"gamma": 0.2, "n_blocks": 2, "rank": 20, "random_state": 0}
    path = NuSVC(nu=0.5, warm_start=True, **given).fit(X, y).set_params(nu=0.52).fit(X, y)
    cold = NuSVC(nu=0.52, **given).fit(X, y)
    np.testing.assert_allclose(path.C_, cold.C_, rtol=1e-4)
    np.testing.assert_allclose(path.decision_function(X), cold.decision_function(X), atol=1e-3)


def test_probabilities_are_learnt_from_held_out_values() -> None:
    X, y = classes(200)
    found = NuSVC(nu=0.5, gamma=0.2, probability=True, random_state=0).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(found.sum(1), 1.0)
    assert ((found[:, 1] > 0.5) == y).mean() > 0.8


def test_nu_that_cannot_be_is_told() -> None:
    X, y = classes(100)
    for nu in (0.0, 1.5, "half"):
        for machine in (NuSVC(nu=nu), NuSVR(nu=nu)):
            with pytest.raises(InputError, match="nu must be"):
                machine.fit(X, y)
    few = np.flatnonzero(y == 1)[:10]
    rows = np.concatenate([few, np.flatnonzero(y == 0)[:30]])
    for machine in (NuSVC(nu=0.6), svm.NuSVC(nu=0.6)):
        with pytest.raises(ValueError, match="specified nu is infeasible"):
            machine.fit(X[rows], y[rows])
    largest = NuSVC(nu=0.5, gamma=0.2).fit(X[rows], y[rows])  # 2 * 10 / 40: all of the smaller class are at the bound
    np.testing.assert_allclose(largest.dual_coef_[0, np.isin(largest.support_, np.arange(10))], largest.C_[0])
    assert largest.n_support_[1] == 10


def test_a_nu_below_what_an_overlap_allows_is_told() -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(30, 2)), 2, axis=0)
    y = np.tile([0, 1], 30)  # each row has both labels
    with pytest.warns(KreinWarning, match=r"nu = 0.5 is too small for these rows"):
        ours = NuSVC(nu=0.5).fit(X, y)
    assert np.isfinite(ours.decision_function(X)).all()


def test_steps_are_limited() -> None:
    X, y = classes(300)
    with pytest.warns(krein.KreinWarning, match="terminated early"):
        ours = NuSVC(nu=0.5, gamma=0.2, max_iter=5).fit(X, y)
    assert not ours.converged_
    assert ours.fit_status_ == 1


@pytest.mark.parametrize("nu", [0.3, 0.8])
@pytest.mark.parametrize("shape", [{}, {"n_blocks": 2, "rank": 10, "random_state": 0}])
def test_equal_rows_with_different_targets_make_the_sum_jump(nu: float, shape: dict[str, Any]) -> None:
    """At the epsilon of half their difference, their coefficients go from 0 to the bound at once."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(60, 2)), 2, axis=0)
    y = np.repeat(np.sin(X[::2, 0]), 2) + np.tile([0.5, -0.5], 60)
    ours = NuSVR(nu=nu, gamma=0.5, tol=1e-9, **shape).fit(X, y)
    assert ours.converged_
    assert ours.gap_ <= 1e-6
    K = ours.approximation_.factorization.to_dense() if shape else rbf_kernel(X, gamma=0.5)
    theirs = svm.NuSVR(nu=nu, kernel="precomputed", tol=1e-8).fit(K, y)
    assert tube_objective(ours, K, y) == pytest.approx(tube_objective(theirs, K, y), rel=1e-6)
    b = np.abs(ours.dual_coef_)
    assert b.sum() <= nu * 120 * (1.0 + 1e-9)


def test_weights_are_repeated_rows() -> None:
    X, y = classes(90)
    times = np.random.default_rng(1).integers(0, 3, 90)
    for machine, target in ((NuSVC(nu=0.4, tol=1e-9), y), (NuSVR(nu=0.4, tol=1e-9), X[:, 0])):
        weighted = clone(machine).fit(X, target, sample_weight=times)
        repeated = clone(machine).fit(np.repeat(X, times, axis=0), np.repeat(target, times))
        np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-6)
        assert (times[weighted.support_] > 0).all()


def test_a_nu_that_no_margin_has_is_found_without_duals_that_never_end() -> None:
    rng = np.random.default_rng(1)
    rows, labels = rng.random((300, 6)), rng.integers(2, size=300)
    machine = NuSVC(nu=0.1, kernel=krein.Sigmoid(gamma=0.5, coef0=-1.0), correction="clip")
    with pytest.warns(KreinWarning) as told:
        machine.fit(rows, labels)
    (said,) = (str(one.message) for one in told if "too small" in str(one.message))
    assert machine.converged_
    assert machine.n_iter_.sum() < 300_000  # it was 1,900,000, without an answer
    least = float(said.split("margin errors than nu = ")[1].split(". ")[0])
    with pytest.warns(KreinWarning, match="indefinite"):
        NuSVC(nu=min(1.01 * least, 0.99), kernel=machine.kernel, correction="clip").fit(rows, labels)
