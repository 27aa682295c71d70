"""The dual against dense QP solvers and LIBSVM, and against its own optimality conditions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dual_problems import Question, by_piqp, quiet_fit, random_factorization, random_question
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC, SVR, OneClassSVM

import krein
from krein import Factorization, InputError
from krein.errors import IndefiniteError
from krein.solvers import Dual, solve_dual
from strategies import HARD_FACTORIZATIONS, coupled_core, dense_twin, make


def ask(q: Question, **more) -> Dual:
    return solve_dual(q.f, q.linear, q.low, q.high, **q.options, **more)


def svc(f: Factorization, y: np.ndarray, C: float | np.ndarray, **more) -> Dual:
    return solve_dual(f, y, np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0), **more)


def labels(f: Factorization, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    z = f @ rng.standard_normal(f.shape[0])
    return np.where(z + 0.5 * z.std() * rng.standard_normal(len(z)) > np.median(z), 1.0, -1.0)


def violation(q: Question, d: Dual) -> float:
    """How far the optimality conditions are missed, in units of the slope: written row by row, from their text."""
    slopes = q.matrix() @ d.coefficients - q.linear + d.intercept
    worst = 0.0
    for b, slope, low, high in zip(d.coefficients, slopes, q.low, q.high, strict=True):
        if b < high:  # moving up must not pay
            worst = max(worst, -(slope + (q.epsilon if b >= 0 else -q.epsilon)))
        if b > low:
            worst = max(worst, slope + (q.epsilon if b > 0 else -q.epsilon))
    return worst


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from(["auto", "newton"]))
def test_no_dense_solver_does_better_on_any_dual(seed, method):
    q = random_question(seed)
    d = ask(q, method=method)
    assert d.converged
    assert (d.coefficients >= q.low).all()
    assert (d.coefficients <= q.high).all()
    reach = np.abs(q.low).sum() + np.abs(q.high).sum()
    assert abs(d.coefficients.sum() - q.total) <= 1e-9 * reach
    mine = q.objective(d.coefficients)
    assert d.objective == pytest.approx(mine, rel=1e-7, abs=q.size())
    if d.n_iter:  # else there was nothing to choose, and the other solver's sum is off by its tolerance
        theirs = q.objective(by_piqp(q))
        assert mine <= theirs + 1e-6 * (abs(theirs) + q.size())


@pytest.mark.parametrize("seed", range(20))
def test_with_a_shift_the_optimality_conditions_hold_exactly(seed):
    q = random_question(seed)
    q = replace(q, f=replace(q.f, shift=1.0))
    d = ask(q)
    assert violation(q, d) <= 1e-7 * (1.0 + np.abs(q.linear).max() + np.abs(q.matrix() @ d.coefficients).max())


@pytest.mark.parametrize("C", [1e-3, 0.1, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("shift", [0.0, 0.5])
@pytest.mark.parametrize("minority", [0.5, 0.02])
def test_svc_agrees_with_libsvm(C, shift, minority):
    f = make(np.random.default_rng(3), [60, 90, 50], [20, 15, 20], "psd", shift, scale=60.0)
    rng = np.random.default_rng(4)
    z = f @ rng.standard_normal(200)
    y = np.where(z > np.quantile(z, 1 - minority), 1.0, -1.0)
    d, K = svc(f, y, C), f.to_dense()
    model = quiet_fit(SVC(C=C, kernel="precomputed", tol=1e-7, max_iter=2_000_000), K, y)
    b = np.zeros(200)
    b[model.support_] = model.dual_coef_[0]
    theirs = 0.5 * b @ K @ b - y @ b
    assert d.converged
    assert d.objective <= theirs + 1e-6 * abs(theirs)
    if model.fit_status_ == 0:
        assert d.objective >= theirs - 1e-6 * abs(theirs)
    if shift and C <= 30:  # then the coefficients are unique
        np.testing.assert_allclose(d.coefficients, b, atol=1e-4 * C)
        np.testing.assert_array_equal(d.support, b != 0.0)
        free = (np.abs(d.coefficients) < C) & d.support
        if free.any():
            assert d.intercept == pytest.approx(model.intercept_[0], abs=1e-4)
            np.testing.assert_allclose((y * (K @ d.coefficients + d.intercept))[free], 1.0, atol=1e-8)


def test_sample_weights_scale_the_box_as_in_libsvm():
    f = make(np.random.default_rng(5), [50, 40], [12, 12], "psd", 0.3, scale=40.0)
    y, weights = labels(f), np.random.default_rng(6).uniform(0.1, 3.0, 90)
    d, K = svc(f, y, 2.0 * weights), f.to_dense()
    model = quiet_fit(SVC(C=2.0, kernel="precomputed", tol=1e-8), K, y, weights)
    b = np.zeros(90)
    b[model.support_] = model.dual_coef_[0]
    np.testing.assert_allclose(d.coefficients, b, atol=1e-5)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 100.0])
def test_svr_agrees_with_libsvm(epsilon):
    f = make(np.random.default_rng(7), [70, 50], [15, 12], "psd", 0.2, scale=50.0)
    rng = np.random.default_rng(8)
    target = f @ rng.standard_normal(120) / 10.0 + rng.standard_normal(120)
    d, K = solve_dual(f, target, np.full(120, -3.0), np.full(120, 3.0), epsilon=epsilon), f.to_dense()
    model = quiet_fit(SVR(C=3.0, epsilon=epsilon, kernel="precomputed", tol=1e-8), K, target)
    b = np.zeros(120)
    b[model.support_] = model.dual_coef_[0]
    np.testing.assert_allclose(d.coefficients, b, atol=1e-4)
    assert d.converged
    if epsilon < 100.0:
        np.testing.assert_array_equal(d.support, b != 0.0)
        assert d.intercept == pytest.approx(model.intercept_[0], abs=1e-4)
    else:
        assert not d.support.any()


@pytest.mark.parametrize("nu", [0.1, 0.5, 0.9])
def test_one_class_agrees_with_libsvm(nu):
    X = np.random.default_rng(9).standard_normal((150, 3))
    f = krein.approximate(X, krein.RBF(0.3), n_blocks=3, rank=20, random_state=0).factorization
    f = replace(f, shift=0.1)
    d, K = solve_dual(f, np.zeros(150), np.zeros(150), np.ones(150), total=nu * 150), f.to_dense()
    model = quiet_fit(OneClassSVM(nu=nu, kernel="precomputed", tol=1e-8), K)
    b = np.zeros(150)
    b[model.support_] = model.dual_coef_[0]
    np.testing.assert_allclose(d.coefficients, b, atol=1e-4)
    assert d.intercept == pytest.approx(model.intercept_[0], abs=1e-3 * abs(model.intercept_[0]))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int8"])
def test_rows_take_part_alone(share, dtype):
    rng = np.random.default_rng(10)
    f = make(rng, [60, 30, 8, 40], [10, 12, 8, 0], "psd", 0.2, scale=30.0).astype(dtype)
    rows = rng.permutation(138)[: int(share * 138)]
    y = labels(f)[rows]
    q = Question(f, rows, y, np.where(y > 0, 0.0, -1.0), np.where(y > 0, 1.0, 0.0), 0.0, 0.0)
    d, b = ask(q), by_piqp(q)
    np.testing.assert_allclose(d.coefficients, b, atol=1e-5)
    assert violation(q, d) <= 1e-7


def test_a_coupled_core_is_solved_by_its_blocks(monkeypatch):
    rng = np.random.default_rng(11)
    core = coupled_core(rng, 30, 6, 4)
    f = make(rng, [int(k) + 4 for k in core.ranks], core.ranks, core)
    f = krein.correct(f, "shift")
    y = labels(f)
    whole = svc(f, y, 1.0)
    monkeypatch.setattr("krein.solvers.woodbury.DENSE_PART", 0)
    monkeypatch.setattr("krein.solvers.polish.DENSE_ROWS", 0)
    by_blocks = svc(f, y, 1.0)
    assert by_blocks.converged
    np.testing.assert_allclose(by_blocks.coefficients, whole.coefficients, atol=1e-6)
    assert whole.objective == pytest.approx(svc(replace(f, core=f.core.to_dense()), y, 1.0).objective, rel=1e-9)


@pytest.mark.parametrize("name", [n for n in HARD_FACTORIZATIONS if n not in ("tiny", "huge")])
@pytest.mark.parametrize("C", [1e-2, 100.0])
def test_every_hard_factorization_once_it_is_psd(name, C):
    f = krein.correct(HARD_FACTORIZATIONS[name](), "clip")
    n = f.shape[0]
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    q = Question(f, None, y, np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0), 0.0, 0.0)
    d = ask(q)
    assert d.converged
    theirs = q.objective(by_piqp(q))
    assert q.objective(d.coefficients) <= theirs + 1e-6 * (abs(theirs) + C)


def test_indefinite_with_a_shift_is_convex_and_solved():
    f = krein.correct(make(np.random.default_rng(12), [40, 50], [20, 20], "indefinite", scale=20.0), "shift")
    y = labels(f)
    q = Question(f, None, y, np.where(y > 0, 0.0, -5.0), np.where(y > 0, 5.0, 0.0), 0.0, 0.0)
    d = ask(q)
    assert d.converged
    theirs = q.objective(by_piqp(q))
    assert d.objective <= theirs + 1e-6 * abs(theirs)


@pytest.mark.parametrize("shift", [0.0, -1.0])
def test_a_problem_that_is_not_convex_is_refused(shift):
    f = make(np.random.default_rng(13), [40, 50], [20, 20], "indefinite", shift, scale=100.0)
    with pytest.raises(IndefiniteError, match="not convex"):
        svc(f, labels(f), 100.0)


def test_units_do_not_matter():
    f = make(np.random.default_rng(14), [40, 30], [12, 10], "psd", 0.1, scale=20.0)
    y = labels(f)
    plain = svc(f, y, 2.0).coefficients
    for unit in (1e-8, 1e8):
        low, high = np.where(y > 0, 0.0, -2.0 * unit), np.where(y > 0, 2.0 * unit, 0.0)
        smaller = replace(f, core=f.core / unit, shift=f.shift / unit)
        np.testing.assert_allclose(solve_dual(smaller, y, low, high).coefficients, plain * unit, atol=1e-8 * unit)
        np.testing.assert_allclose(
            solve_dual(smaller, y * unit, low * unit, high * unit).coefficients, plain * unit**2, atol=1e-8 * unit**2
        )


def test_row_order_and_storage_do_not_matter():
    f = random_factorization(np.random.default_rng(15), "dense", 0.5)
    n = f.shape[0]
    y = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    moved = np.random.default_rng(16).permutation(n)
    K = dense_twin(f)
    one = Factorization.from_blocks((np.eye(n),), K - 0.5 * np.eye(n), np.arange(n), 0.5)
    first = svc(f, y, 1.0)
    np.testing.assert_allclose(svc(one, y, 1.0).coefficients, first.coefficients, atol=1e-8)
    np.testing.assert_allclose(svc(f, y[moved], 1.0, rows=moved).coefficients, first.coefficients[moved], atol=1e-8)


def test_two_rows_have_the_textbook_solution():
    f = Factorization.from_blocks((np.eye(2),), np.array([[2.0, 0.5], [0.5, 1.0]]), np.arange(2))
    d = svc(f, np.array([1.0, -1.0]), 10.0)
    np.testing.assert_allclose(d.coefficients, [1.0, -1.0], atol=1e-12)  # a (K11 + K22 - 2 K12) = 2
    assert d.intercept == pytest.approx(-0.5)
    assert svc(f, np.array([1.0, -1.0]), 0.25).coefficients.tolist() == [0.25, -0.25]


def test_fixed_rows_stay_where_they_are():
    f = make(np.random.default_rng(17), [30, 30], [10, 10], "psd", 0.1, scale=10.0)
    rng = np.random.default_rng(18)
    low, high = np.full(60, -1.0), np.full(60, 1.0)
    fixed = rng.random(60) < 0.4
    low[fixed] = high[fixed] = rng.uniform(-1.0, 1.0, int(fixed.sum()))
    q = Question(f, None, rng.standard_normal(60), low, high, 0.7, 0.2)
    d = ask(q)
    np.testing.assert_array_equal(d.coefficients[fixed], low[fixed])
    assert violation(q, d) <= 1e-8


def test_where_the_box_leaves_no_choice_nothing_is_solved():
    f = make(np.random.default_rng(19), [20], [5], "psd")
    full = solve_dual(f, np.zeros(20), np.zeros(20), np.ones(20), total=20.0)
    assert full.coefficients.tolist() == [1.0] * 20
    assert (full.n_iter, full.converged) == (0, True)
    assert not solve_dual(f, np.ones(20), np.zeros(20), np.ones(20)).support.any()  # one class: all must be zero


def test_too_few_steps_are_confessed_with_the_gap():
    f = make(np.random.default_rng(20), [60, 60], [20, 20], "psd", scale=60.0)
    d = svc(f, labels(f), 100.0, max_iter=2)
    assert not d.converged
    assert d.gap > 1e-6
    assert np.isfinite(d.coefficients).all()
    assert np.abs(d.coefficients).max() <= 100.0


def test_progress_is_shown_where_asked(capsys):
    f = make(np.random.default_rng(22), [30], [5], "psd", scale=60.0)
    svc(f, labels(f), 1.0, verbose=1)
    assert "gap" in capsys.readouterr().err
    svc(f, labels(f), 1.0)
    assert capsys.readouterr().err == ""


BAD = {
    "linear must have one number": {"linear": np.zeros(3)},
    "NaN": {"high": np.array([1.0, np.nan, 1.0, 1.0])},
    "must not exceed high": {"low": np.full(4, 2.0)},
    "cannot be reached": {"total": 5.0},
    "epsilon must be": {"epsilon": -1.0},
    "total must be": {"total": np.inf},
    "tol must be": {"tol": 0.0},
    "max_iter must be": {"max_iter": 0},
    "method must be one of": {"method": "smo"},
    "named twice": {"rows": [0, 1, 1, 2]},
    "at least one row": {"rows": [], "linear": [], "low": [], "high": []},
}


@pytest.mark.parametrize("message", BAD)
def test_what_cannot_be_used_is_refused_in_words(message):
    f = make(np.random.default_rng(23), [4], [2], "psd")
    given = {"linear": np.ones(4), "low": np.zeros(4), "high": np.ones(4), "total": 1.0} | BAD[message]
    with pytest.raises(InputError, match=message):
        solve_dual(f, given.pop("linear"), given.pop("low"), given.pop("high"), **given)


def test_the_core_may_be_singular_and_the_rows_equal():
    rng = np.random.default_rng(24)
    U = np.linalg.qr(np.repeat(rng.standard_normal((10, 6)), 8, axis=0))[0]
    f = Factorization.from_blocks((U,), np.diag([50.0, 5.0, 1.0, 0.0, 0.0, 0.0]), np.arange(80))
    y = np.where(rng.random(80) < 0.5, 1.0, -1.0)
    for C in (1e-3, 1.0, 1e3):
        q = Question(f, None, y, np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0), 0.0, 0.0)
        d = ask(q)
        assert d.converged
        theirs = q.objective(by_piqp(q))
        assert q.objective(d.coefficients) <= theirs + 1e-6 * abs(theirs)


@pytest.mark.parametrize(("shift", "C"), [(0.5, 1.0), (0.02, 1.0), (0.0, 0.1), (0.0, 1e3)])
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_newton_agrees_with_the_interior_point_or_leaves_it_to_it(shift, C, epsilon):
    f = make(np.random.default_rng(25), [300, 200], [15, 10], "psd", shift, scale=200.0)
    y, n = labels(f), 500
    low, high = (np.full(n, -C), np.full(n, C)) if epsilon else (np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0))
    inner = solve_dual(f, y, low, high, epsilon=epsilon, method="interior-point")
    outer = solve_dual(f, y, low, high, epsilon=epsilon, method="newton")
    assert inner.method == "interior-point"
    assert outer.converged
    assert outer.objective == pytest.approx(inner.objective, rel=2e-6)
    if shift == 0.5:
        assert outer.method == "newton"
        np.testing.assert_allclose(outer.coefficients, inner.coefficients, atol=1e-6)
    warm = solve_dual(f, y, low, high, epsilon=epsilon, method="newton", start=inner)
    assert warm.objective == pytest.approx(inner.objective, rel=2e-6)


@pytest.mark.parametrize("C", [0.1, 3.0])
def test_classes_of_many_rows_are_newtons_and_end_where_the_interior_point_does(C):
    f = make(np.random.default_rng(28), [6000, 5000], [30, 20], "psd", scale=1e4)
    f = f.with_core(f.core / f.diagonal().mean(), 0.0)
    y = labels(f)
    quick, slow = svc(f, y, C), svc(f, y, C, method="interior-point")
    assert quick.method == "newton"
    assert quick.converged
    assert quick.objective == pytest.approx(slow.objective, rel=1e-9)
    assert abs(quick.coefficients.sum()) <= 1e-9 * C * len(y)
    assert ((quick.coefficients != 0.0) != (slow.coefficients != 0.0)).sum() <= 2  # one at its bound by rounding
    np.testing.assert_allclose(f @ quick.coefficients, f @ slow.coefficients, atol=1e-3)


def test_newton_leaves_an_indefinite_core_to_the_interior_point():
    f = krein.correct(make(np.random.default_rng(26), [40, 50], [20, 20], "indefinite", scale=20.0), "shift")
    d = svc(f, labels(f), 5.0, method="newton")
    assert d.converged
    assert d.objective == pytest.approx(svc(f, labels(f), 5.0).objective, rel=1e-6)


def test_a_start_of_other_rows_is_refused():
    f = make(np.random.default_rng(27), [30], [5], "psd", scale=60.0)
    d = svc(f, labels(f), 1.0)
    with pytest.raises(InputError, match="start must be"):
        svc(f, labels(f)[:20], 1.0, rows=np.arange(20), start=d)
    rows = np.arange(25)
    part = svc(f, labels(f)[rows], 1.0, rows=rows)
    again = svc(f, labels(f)[rows], 1.0, rows=rows, start=part, method="newton")
    assert again.objective == pytest.approx(part.objective, rel=1e-6)
