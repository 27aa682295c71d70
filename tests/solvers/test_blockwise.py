"""Blocks on their own, one multiplier for all: against PIQP, LIBSVM, the interior point and the conditions as such."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dual_problems import Question, by_piqp, quiet_fit
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC, SVR

from krein import Factorization, InputError
from krein.errors import IndefiniteError
from krein.factorization.core import BlockSparse
from krein.solvers import Dual, solve_dual
from strategies import dense_twin, diagonal_core, make


def scattered(seed: int, n_blocks: int = 40, rank: int = 6, shift: float = 0.0, most: int = 18) -> Factorization:
    """Many small psd blocks of many sizes; the rows of a block are spread over all places."""
    rng = np.random.default_rng([5, seed])
    sizes = rng.integers(1, most, n_blocks)
    ranks = [int(min(n, rng.integers(1, rank + 1))) for n in sizes]
    core = diagonal_core(rng, ranks, "psd").map_blocks(lambda i, j, b: 10.0 * b, ranks)
    return make(rng, sizes, ranks, core, shift)


def labelled(f: Factorization, C: float, share: float = 0.5, seed: int = 0) -> Question:
    y = np.where(np.random.default_rng([6, seed]).random(f.shape[0]) < share, 1.0, -1.0)
    y[:2] = -1.0, 1.0
    return Question(f, None, y, np.minimum(0.0, C * y), np.maximum(0.0, C * y), 0.0, 0.0)


def ask(q: Question, method: str = "blockwise", **more) -> Dual:
    return solve_dual(q.f, q.linear, q.low, q.high, **q.options, method=method, **more)


def check(q: Question, d: Dual, tol: float = 1e-7) -> None:
    """In the box, with the sum asked for, and no row would gain by moving: row by row, from the text of the problem."""
    b, eps = d.coefficients, q.epsilon
    assert (b >= q.low).all()
    assert (b <= q.high).all()
    assert abs(b.sum() - q.total) <= 1e-10 * (np.abs(q.low).sum() + np.abs(q.high).sum())
    slope = q.matrix() @ b - q.linear + d.intercept
    size = 1.0 + np.abs(q.linear).max() + np.abs(q.matrix() @ b).max()
    up, down = slope + np.where(b >= 0.0, eps, -eps), slope + np.where(b > 0.0, eps, -eps)
    assert (up[b < q.high] >= -tol * size).all()
    assert (down[b > q.low] <= tol * size).all()


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from([0.01, 0.3, 3.0, 30.0]), st.sampled_from([0.0, 0.0, 0.1]))
def test_no_dense_solver_does_better(seed, C, shift):
    q = labelled(scattered(seed, 12, shift=shift), C, seed=seed)
    d = ask(q)
    assert d.converged
    mine, theirs = q.objective(d.coefficients), q.objective(by_piqp(q))
    assert mine <= theirs + 1e-6 * (abs(theirs) + q.size())
    assert d.objective == pytest.approx(mine, rel=1e-9, abs=q.size())


@pytest.mark.parametrize("share", [0.5, 0.03])
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_it_is_what_the_interior_point_finds_and_where_unique_what_libsvm_does(C, share):
    q = labelled(scattered(1, 60, shift=0.2), C, share)
    d, other = ask(q), ask(q, "interior-point")
    assert d.method == "blockwise"
    assert d.gap <= 1e-12
    check(q, d)
    np.testing.assert_allclose(d.coefficients, other.coefficients, atol=1e-8 * C)
    np.testing.assert_array_equal(d.support, other.support)
    model = quiet_fit(SVC(C=C, kernel="precomputed", tol=1e-8), q.matrix(), q.linear)
    b = np.zeros(len(q.linear))
    b[model.support_] = model.dual_coef_[0]
    np.testing.assert_allclose(d.coefficients, b, atol=1e-4 * C)
    if ((b != 0.0) & (np.abs(b) < C)).any():
        assert d.intercept == pytest.approx(model.intercept_[0], abs=1e-5)


@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_regression_has_a_kink_at_zero(epsilon):
    f = scattered(2, 50, shift=0.1)
    rng = np.random.default_rng(3)
    target = f @ rng.standard_normal(f.shape[0]) / 5.0 + rng.standard_normal(f.shape[0])
    n = len(target)
    q = Question(f, None, target, np.full(n, -2.0), np.full(n, 2.0), 0.0, epsilon)
    d = ask(q)
    assert d.method == "blockwise"
    check(q, d)
    model = quiet_fit(SVR(C=2.0, epsilon=epsilon, kernel="precomputed", tol=1e-8), dense_twin(f), target)
    b = np.zeros(n)
    b[model.support_] = model.dual_coef_[0]
    np.testing.assert_allclose(d.coefficients, b, atol=1e-5)
    np.testing.assert_array_equal(d.support, b != 0.0)
    assert 0 < d.support.sum() < n


def test_without_labels_equal_shares_begin():
    f = scattered(4, 40, shift=0.5)
    n = f.shape[0]
    q = Question(f, None, np.zeros(n), np.zeros(n), np.ones(n), 0.3 * n, 0.0)
    d = ask(q)
    assert d.method == "blockwise"
    check(q, d)
    theirs = q.objective(by_piqp(q))
    assert d.objective <= theirs + 1e-7 * abs(theirs)


def test_rows_that_resemble_nothing_make_the_sum_jump_and_share_what_is_left():
    """Rows of zero similarity are at an end for every multiplier but one; only a mixture has the sum asked for."""
    core = BlockSparse.from_blocks((1, 1, 1), {(i, i): np.array([[v]]) for i, v in enumerate((2.0, 0.0, 0.0))})
    f = make(np.random.default_rng(0), [3, 4, 2], [1, 1, 1], core, 0.0)
    y = np.array([1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0])[np.argsort(f.order, kind="stable")]
    q = Question(f, None, y, np.minimum(0.0, y), np.maximum(0.0, y), 0.0, 0.0)
    d = ask(q)
    assert d.method == "blockwise"
    check(q, d)
    assert d.objective == pytest.approx(q.objective(by_piqp(q)), rel=1e-6)


@pytest.mark.parametrize("fraction", [0.2, 0.8])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_some_rows_alone_count(fraction, dtype):
    f = scattered(5, 50).astype(dtype)
    rng = np.random.default_rng(1)
    rows = rng.choice(f.shape[0], int(fraction * f.shape[0]), replace=False)
    y = np.where(rng.random(len(rows)) < 0.4, 1.0, -1.0)
    C = rng.uniform(0.1, 3.0, len(rows))  # weights
    q = Question(f, rows, y, np.minimum(0.0, C * y), np.maximum(0.0, C * y), 0.0, 0.0)
    d = ask(q)
    assert d.method == "blockwise"
    check(q, d)
    assert d.objective == pytest.approx(ask(q, "interior-point").objective, rel=1e-10)


def test_rows_whose_range_is_a_point_stay_there_and_are_felt():
    q = labelled(scattered(6, 30), 2.0)
    low, high = q.low.copy(), q.high.copy()
    low[5] = high[5] = 1.5
    low[9] = high[9] = 0.0
    q = replace(q, low=low, high=high)
    d = ask(q)
    check(q, d)
    assert (d.coefficients[[5, 9]] == [1.5, 0.0]).all()


def test_duplicates_and_singular_blocks_leave_the_objective_unique():
    rng = np.random.default_rng(7)
    X = np.repeat(rng.standard_normal((30, 2)), 4, axis=0)  # four of each, labels at random
    sizes = [12] * 10
    bases = [np.linalg.qr(X[12 * i : 12 * i + 12])[0] for i in range(10)]
    blocks = {(i, i): U.T @ X[12 * i : 12 * i + 12] @ X[12 * i : 12 * i + 12].T @ U for i, U in enumerate(bases)}
    blocks = {at: (M + M.T) / 2 for at, M in blocks.items()}
    f = Factorization.from_blocks(tuple(bases), BlockSparse.from_blocks((2,) * 10, blocks), np.arange(sum(sizes)), 0.0)
    q = labelled(f, 1.0, seed=3)
    d = ask(q)
    check(q, d)
    theirs = q.objective(by_piqp(q))
    assert d.objective <= theirs + 1e-6 * abs(theirs)


def test_a_start_saves_steps_and_changes_nothing():
    f = scattered(8, 60, shift=0.1)
    first = ask(labelled(f, 1.0))
    q = labelled(f, 1.2)
    cold, warm = ask(q), ask(q, start=first)
    assert warm.n_iter < cold.n_iter
    np.testing.assert_allclose(warm.coefficients, cold.coefficients, atol=1e-9)


def test_it_is_taken_where_blocks_have_few_rows_for_their_rank():
    assert ask(labelled(scattered(9, 80, most=12), 1.0), "auto").method == "blockwise"
    long = make(
        np.random.default_rng(0), [200, 150], [3, 3], diagonal_core(np.random.default_rng(0), [3, 3], "psd"), 0.1
    )
    assert ask(labelled(long, 1.0), "auto").method == "interior-point"


def test_few_steps_end_unconverged_or_in_another_solver_never_in_a_claim():
    q = labelled(scattered(10, 60), 50.0)
    d = ask(q, max_iter=1)
    assert d.converged == (d.gap <= 1e-6)
    assert not d.converged


def test_what_is_coupled_or_indefinite_is_refused_or_left_to_others():
    coupled = make(np.random.default_rng(1), [20, 20], [3, 3], "psd", 0.0)
    with pytest.raises(InputError, match="blocks that nothing links"):
        ask(labelled(coupled, 1.0))
    core = diagonal_core(np.random.default_rng(2), [4, 4], "psd").map_blocks(lambda i, j, b: -5.0 * b, (4, 4))
    negative = make(np.random.default_rng(2), [20, 20], [4, 4], core, 0.0)
    with pytest.raises(IndefiniteError, match="not convex"):
        ask(labelled(negative, 10.0), "auto")
