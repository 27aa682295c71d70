"""correction="auto": the judge finds the correction that learns, and stays with "flip" where nothing tells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge as Reference

import krein
from krein.errors import InputError
from krein.estimators import choose_correction as corrections
from krein.estimators.choose_correction import judge_for, preferred
from krein.estimators.svm import SVC
from krein.kernels import Precomputed


def with_spectrum(values, seed: int = 0):
    """A matrix with these eigenvalues, and its eigenvectors."""
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    return (Q * values) @ Q.T, Q


def approximated(K):
    return krein.approximate(np.arange(len(K)), Precomputed(K), random_state=0)


def classes_on_the_negative_side(n: int = 120, seed: int = 0):
    """k(x, y) = -x₁y₁ + 0.3 noise'noise: what tells the classes apart is all negative, so that a clip loses it."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], n // 2)
    Z = rng.standard_normal((n, 4))
    x = 3.0 * (2 * y - 1) + rng.standard_normal(n)
    return -np.outer(x, x) + 0.3 * Z @ Z.T, y


def classes_beside_negative_noise(n: int = 120, seed: int = 0):
    """k(x, y) = x₁y₁ - 3 noise'noise in n / 2 dimensions: what is negative is noise, and a flip fits it."""
    rng = np.random.default_rng(seed)
    y = np.repeat([0, 1], n // 2)
    Z = rng.standard_normal((n, n // 2))
    x = 0.5 * (2 * y - 1) + 0.5 * rng.standard_normal(n)
    return np.outer(x, x) - 3.0 * Z @ Z.T, y


@pytest.mark.parametrize("learner", ["svm", "ridge"])
def test_what_the_negative_side_holds_is_not_thrown_away(learner):
    K, y = classes_on_the_negative_side()
    assert judge_for(y, learner=learner)(approximated(K)) in ("flip", "square")


@pytest.mark.parametrize("learner", ["svm", "ridge"])
def test_noise_on_the_negative_side_is_clipped(learner):
    K, y = classes_beside_negative_noise()
    assert judge_for(y, learner=learner)(approximated(K)) == "clip"


def test_regression_is_judged_by_squares():
    rng = np.random.default_rng(0)
    n = 100
    Z, x = rng.standard_normal((n, 50)), rng.standard_normal(n)
    noisy = approximated(np.outer(x, x) - 3.0 * Z @ Z.T)
    y = x + rng.standard_normal(n)
    assert judge_for(y, "regression", learner="ridge")(noisy) == "clip"
    assert judge_for(y, "regression", learner="svm")(noisy) == "clip"
    assert judge_for(np.column_stack([y, -y]), "regression", learner="ridge")(noisy) == "clip"


def test_ridge_is_judged_as_it_will_be_fitted():
    """Without a constant, with alpha over the rows that stand for all, and each correction with its own alpha."""
    rng = np.random.default_rng(0)
    rows, y = rng.standard_normal((60, 3)), rng.standard_normal(60) + 5.0
    K = np.tanh(rows @ rows.T - 1.0)
    alphas = {"flip": 0.3, "square": 20.0}
    options = {"task": "regression", "learner": "ridge", "n": 60}
    met = corrections.compared(K, y, ("flip", "square"), strength=alphas, rng=np.random.default_rng(1), **options)
    expected, again = np.zeros((2, 60)), np.random.default_rng(1)
    cuts = [fold for _ in range(3) for fold in corrections.folds(y, "regression", again)]
    for train, test in cuts:
        own = K[np.ix_(train, train)]
        values, V = np.linalg.eigh(own)
        for i, f in enumerate([np.abs(values), 60 / len(train) * values**2]):
            F = (V * f) @ V.T
            alpha = alphas[("flip", "square")[i]] * len(train) / 60
            dual = Reference(alpha, kernel="precomputed").fit(F, y[train]).dual_coef_
            guess = K[np.ix_(test, train)] @ np.linalg.solve(own, F @ dual)
            expected[i, test] -= (guess - y[test]) ** 2 / 3
    np.testing.assert_allclose(met, expected, rtol=1e-6)


def test_flip_where_nothing_tells_them_apart():
    K, _ = with_spectrum(np.linspace(-1.0, 1.0, 90))
    y = np.random.default_rng(1).integers(2, size=90)
    names = {judge_for(y, seed=s)(approximated(K)) for s in range(3)}
    assert "flip" in names


def test_half_a_standard_error_decides_row_by_row():
    met = np.zeros((3, 100))
    met[0, :50] = met[2, :50] = 1.0
    met[1, 1:50] = met[1, 50:54] = 1.0  # one row lost, four won: 3 of 100, with an error of 2.2
    assert preferred(met) == 1
    met[1, 1:4] = 0.0  # four lost, four won
    assert preferred(met) == 0
    met[1, 4:10], met[1, 54:61] = 0.0, 1.0  # 10 lost, 11 won: 1 of 100, with an error of 4.6
    assert preferred(met) == 0


def test_the_same_seed_judges_the_same():
    K, y = classes_on_the_negative_side()
    a = approximated(K)
    assert len({judge_for(y, seed=7)(a) for _ in range(2)}) == 1


def test_rows_held_out_are_treated_as_new_objects_will_be():
    """What the judge makes of a fold is what `Approximation` makes of new rows: k(x, X) K⁺ f(K)."""
    rng = np.random.default_rng(0)
    X, X_new = rng.standard_normal((50, 3)), rng.standard_normal((7, 3))
    kernel = krein.Sigmoid(gamma=0.3, coef0=-1.0)
    a = krein.approximate(X, kernel, random_state=0)
    mine = corrections.Corrected(kernel(X), 1.0)
    for how in ("clip", "flip", "square", "shift"):
        corrected = a.corrected(how)
        scale = np.abs(corrected.factorization.to_dense()).max()
        np.testing.assert_allclose(mine.matrix(how), corrected.factorization.to_dense(), atol=1e-7 * scale)
        rows = corrected.kernel_rows(X_new)
        np.testing.assert_allclose(mine.rows(kernel(X_new, X), how), rows, atol=1e-5 * scale)


@pytest.mark.parametrize("how", ["none", "shift", "clip", "flip", "square"])
def test_ridge_in_the_eigenvectors_is_ridge_on_the_matrix(how):
    rng = np.random.default_rng(0)
    X, X_new, y = rng.standard_normal((40, 3)), rng.standard_normal((7, 3)), rng.standard_normal((40, 2))
    mine = corrections.Corrected(np.tanh(X @ X.T - 1.0), 1.5)
    between = np.tanh(X_new @ X.T - 1.0)
    expected = mine.rows(between, how) @ np.linalg.solve(mine.matrix(how) + 0.3 * np.eye(40), y)
    np.testing.assert_allclose(mine.ridge(how, between, y, 0.3), expected, rtol=1e-6, atol=1e-8)


def test_folds_hold_each_row_once_and_every_class():
    y = np.array([0] * 40 + [1] * 10)
    folds = list(corrections.folds(y, "classification", np.random.default_rng(0)))
    assert sorted(np.concatenate([test for _, test in folds]).tolist()) == list(range(50))
    for train, test in folds:
        assert not set(train.tolist()) & set(test.tolist())
        assert (y[test] == 1).sum() == 10 / corrections.FOLDS


def test_few_rows_of_many_are_looked_at(monkeypatch):
    monkeypatch.setattr(corrections, "SAMPLED_ROWS", 100)
    K, y = classes_on_the_negative_side(400)
    seen = []
    folds = corrections.folds
    monkeypatch.setattr(corrections, "folds", lambda y, *more: seen.append(len(y)) or folds(y, *more))
    assert judge_for(y)(approximated(K)) in ("flip", "square")
    assert set(seen) == {100}


def test_a_core_that_a_function_of_the_spectrum_would_fill_is_shifted(monkeypatch):
    monkeypatch.setattr("krein.factorization.core.BlockSparse.has_spectrum", False)
    K, y = classes_on_the_negative_side()
    a = approximated(K)
    f = a.factorization
    sparse = krein.factorization.core.BlockSparse.from_blocks(f.ranks, {(0, 0): f.core})
    a = replace(a, factorization=f.with_core(sparse, 0.0))
    assert judge_for(y)(a) == "shift"
    assert judge_for(y, learner="ridge")(a) == "none"


def test_svc_takes_what_was_judged_and_says_so():
    K, y = classes_beside_negative_noise()
    with pytest.warns(krein.KreinWarning, match="correction='clip'"):
        model = SVC(kernel="precomputed").fit(K, y)
    assert model.correction_ == "clip"


def test_names_are_checked():
    with pytest.raises(InputError, match="task"):
        judge_for([0, 1], "ranking")
    with pytest.raises(InputError, match="learner"):
        judge_for([0, 1], learner="trees")
