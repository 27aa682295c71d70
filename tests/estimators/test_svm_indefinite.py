"""SVMs on kernels that are not psd: what is done is said, and is what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import svm
from sklearn.datasets import make_classification

import krein
from krein.errors import IndefiniteError, KreinWarning
from krein.estimators import svm as machines
from krein.estimators.svm import SVC, SVR

SIGMOID = {"kernel": "sigmoid", "gamma": 0.5, "coef0": 0.3}
pytestmark = pytest.mark.filterwarnings("ignore:.*indefinite matrix:krein.KreinWarning")


def classes(n: int) -> tuple[Any, Any]:
    return make_classification(n, 5, n_informative=4, n_redundant=0, random_state=1)  # type: ignore[no-any-return]


def exact(X: Any, Z: Any) -> Any:
    return np.tanh(0.5 * X @ Z.T + 0.3)


@pytest.mark.parametrize("how", ["clip", "flip", "square", "shift"])
def test_each_correction_is_libsvm_on_the_corrected_matrix(how: str) -> None:
    X, y = classes(200)
    K = exact(X, X)
    values, V = np.linalg.eigh(K)
    change = {
        "clip": np.maximum(values, 0.0),
        "flip": np.abs(values),
        "square": values**2,
        "shift": values - values[0],
    }[how]
    theirs = svm.SVC(kernel="precomputed", tol=1e-8).fit((V * change) @ V.T, y)
    ours = SVC(correction=how, **SIGMOID).fit(X, y)
    assert ours.correction_ == how
    assert ours.n_negative_ == (values < -1e-12 * values[-1]).sum()
    np.testing.assert_array_equal(ours.support_, theirs.support_)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-5)
    np.testing.assert_allclose(ours.dual_coef_, theirs.dual_coef_, atol=1e-3)


def test_the_krein_space_svm_trains_on_magnitudes_and_compares_by_the_kernel() -> None:
    X, y = classes(230)
    X, X_new, y = X[:200], X[200:], y[:200]
    K = exact(X, X)
    values, V = np.linalg.eigh(K)
    flipped = svm.SVC(kernel="precomputed", tol=1e-8).fit((V * np.abs(values)) @ V.T, y)
    trained = np.zeros(200)
    trained[flipped.support_] = flipped.dual_coef_[0]
    mapped = (V * np.sign(values)) @ (V.T @ trained)  # K mapped = |K| trained
    ours = SVC(correction="krein", **SIGMOID).fit(X, y)
    assert ours.correction_ == "krein"
    np.testing.assert_array_equal(ours.support_, flipped.support_)
    wanted = exact(X_new, X) @ mapped + flipped.intercept_[0]
    np.testing.assert_allclose(ours.decision_function(X_new), wanted, atol=1e-4)
    np.testing.assert_allclose(
        ours.decision_function(X), flipped.decision_function((V * np.abs(values)) @ V.T), atol=1e-4
    )


def test_the_krein_space_svm_on_the_factored_matrix() -> None:
    X, y = classes(500)
    options: dict[str, Any] = {"n_blocks": 3, "rank": 20, "random_state": 0, **SIGMOID}
    ours = SVC(correction="krein", **options).fit(X, y)
    flip = SVC(correction="flip", **options).fit(X, y)
    assert ours.n_negative_ > 0
    f = ours.approximation_.factorization
    K = f.to_dense()
    values, V = np.linalg.eigh(K)
    trained = np.zeros(len(X))
    trained[ours.support_] = ours.dual_coef_[0]
    wanted = (V * np.abs(values)) @ (V.T @ trained) + ours.intercept_[0]
    np.testing.assert_allclose(f @ ((V * np.sign(values)) @ (V.T @ trained)) + ours.intercept_[0], wanted, atol=1e-6)
    np.testing.assert_allclose(ours.decision_function(X[:80]), flip.decision_function(X[:80]), atol=1e-5)


def test_krein_on_a_psd_kernel_is_the_svm() -> None:
    X, y = classes(150)
    np.testing.assert_allclose(
        SVC(correction="krein").fit(X, y).decision_function(X), SVC().fit(X, y).decision_function(X), atol=1e-7
    )


def test_none_is_libsvms_stationary_point_and_says_so() -> None:
    X, y = classes(200)
    with pytest.warns(KreinWarning, match="stationary point"):
        ours = SVC(correction="none", **SIGMOID).fit(X, y)
    theirs = svm.SVC(tol=1e-8, **SIGMOID).fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)


def test_none_on_many_rows_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = classes(200)
    monkeypatch.setattr(machines, "DENSE_ROWS", 100)
    with pytest.raises(IndefiniteError, match=r"correction='flip'"):
        SVC(correction="none", **SIGMOID).fit(X, y)


def test_the_correction_is_told_by_a_warning_and_an_attribute() -> None:
    X, y = classes(200)
    for machine in (SVC(**SIGMOID), SVR(**SIGMOID)):
        with pytest.warns(KreinWarning, match="gave an indefinite matrix"):
            machine.fit(X, y)
        assert machine.correction_ in ("clip", "flip", "shift", "square", "krein")
        assert machine.n_negative_ > 0


def test_refinement_is_for_psd_kernels() -> None:
    X, y = classes(200)
    with pytest.raises(IndefiniteError, match="refine='exact' needs a psd kernel"):
        SVC(refine="exact", correction="flip", **SIGMOID).fit(X, y)
    assert krein.Sigmoid(gamma=0.5).traits.psd is not True


def test_refinement_of_a_kernel_known_to_be_indefinite_is_refused_before_anything_is_evaluated() -> None:
    words = ["anna", "hanna", "johann", "joan", "otto", "ottokar"] * 5
    with krein.kernels.counting() as spent, pytest.raises(IndefiniteError, match=r"JaroWinkler.* is none"):
        SVC(kernel=krein.JaroWinkler(), refine="exact", n_blocks=2, rank=4).fit(words, [0, 0, 0, 0, 1, 1] * 5)
    assert spent.n_evaluations == 0
