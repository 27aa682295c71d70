"""Closed forms of ridge against dense linear algebra and against fits without the row, one by one."""

import numpy as np
import pytest

from krein import Factorization, correct
from krein.errors import InputError
from krein.estimators import ridge
from krein.factorization.core import BlockSparse
from krein.factorization.correction import changed
from krein.solvers.leave_one_out import Factored, RidgeEigensystem, decompose
from krein.solvers.problem import restricted


def factorization(rng, sizes=(9, 7, 8), ranks=(4, 7, 3), psd=True, sparse=False):
    """Three blocks, the middle one of full rank; the first two coupled, and the third too unless sparse."""
    bases = tuple(np.linalg.qr(rng.standard_normal((n, k)))[0] for n, k in zip(sizes, ranks, strict=True))
    r = sum(ranks)
    half = rng.standard_normal((r, r))
    M = half @ half.T if psd else half + half.T
    ends = np.concatenate([[0], np.cumsum(ranks)])
    core = M
    if sparse:
        kept = [(0, 0), (0, 1), (1, 1), (2, 2)]
        core = BlockSparse.from_blocks(
            ranks, {(i, j): M[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] for i, j in kept}
        )
    return Factorization.from_blocks(bases, core, rng.permutation(sum(sizes)))


def brute(K, y, w, t, share, rows, intercept):
    """Errors at rows whose weight was lowered by their share, each from a dense fit of its own."""
    out = np.empty((len(rows), y.shape[1]))
    for place, i in enumerate(rows):
        left = w.copy()
        left[i] *= 1.0 - share[i]
        keep = left > 1e-14
        n = keep.sum()
        system = K[np.ix_(keep, keep)] + t * np.diag(1.0 / left[keep])
        if intercept:
            system = np.block([[system, np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
            found = np.linalg.solve(system, np.vstack([y[keep], np.zeros((1, y.shape[1]))]))
            out[place] = y[i] - (K[i, keep] @ found[:n] + found[n])
        else:
            out[place] = y[i] - K[i, keep] @ np.linalg.solve(system, y[keep])
    return out


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("psd", [True, False])
def test_rows_left_out_are_missed_as_in_fits_without_them(psd, sparse, weighted, intercept):
    rng = np.random.default_rng(0)
    f = factorization(rng, psd=psd, sparse=sparse)
    n, y = f.shape[0], rng.standard_normal((f.shape[0], 3))
    w = rng.uniform(0.2, 4.0, n) if weighted else np.ones(n)
    share = 1.0 / np.maximum(w, 1.0)
    ridges = np.array([0.013, 0.7, 19.0])
    path = decompose(f, w)
    assert isinstance(path, RidgeEigensystem)
    K, everyone = f.to_dense(), np.arange(n)
    for t, errors in zip(ridges, path.left_out(y, ridges, share, intercept=intercept), strict=True):
        np.testing.assert_allclose(errors, brute(K, y, w, t, share, everyone, intercept), rtol=1e-7, atol=1e-9)
    some = np.array([3, 20, 11])
    for t, errors in zip(ridges, path.left_out(y, ridges, share, some, intercept), strict=True):
        np.testing.assert_allclose(errors, brute(K, y, w, t, share, some, intercept), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_core_without_eigenvectors_gives_the_same(weighted, intercept):
    rng = np.random.default_rng(1)
    f = factorization(rng, sparse=True)
    n, y = f.shape[0], rng.standard_normal((f.shape[0], 2))
    w = rng.uniform(0.2, 4.0, n) if weighted else np.ones(n)
    share, ridges, rows = 1.0 / np.maximum(w, 1.0), np.array([0.05, 3.0]), np.array([5, 0, 23])
    path = Factored(f, w)
    K = f.to_dense()
    for t, errors in zip(ridges, path.left_out(y, ridges, share, rows, intercept), strict=True):
        np.testing.assert_allclose(errors, brute(K, y, w, t, share, rows, intercept), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(path.solve(y, 0.05), np.linalg.solve(K + 0.05 * np.diag(1.0 / w), y), rtol=1e-8)


def test_a_core_without_eigenvectors_has_to_be_positive_definite_with_alpha():
    f = factorization(np.random.default_rng(2), psd=False, sparse=True)
    with pytest.raises(InputError, match="larger alpha"):
        Factored(f, np.ones(f.shape[0])).solve(np.ones((f.shape[0], 1)), 0.01)


def test_a_weight_is_so_many_rows_and_one_of_them_is_left_out():
    rng = np.random.default_rng(3)
    f = factorization(rng)
    n, y = f.shape[0], rng.standard_normal((f.shape[0], 1))
    w = rng.integers(1, 4, n).astype(float)
    (errors,) = decompose(f, w).left_out(y, np.array([0.4]), 1.0 / w)
    again = np.repeat(np.arange(n), w.astype(int))
    K, ones = f.to_dense()[np.ix_(again, again)], np.ones(len(again))
    expected = brute(K, y[again], ones, 0.4, ones, np.arange(len(again)), False)
    np.testing.assert_allclose(errors[again], expected, rtol=1e-8)


@pytest.mark.parametrize("weights", ["some are zero", "1e-7 to 1e7"])
def test_rows_of_any_weight_are_missed_as_in_fits_without_them(weights):
    rng = np.random.default_rng(10)
    f = factorization(rng)
    n, y = f.shape[0], rng.standard_normal((f.shape[0], 2))
    w = 10.0 ** rng.uniform(-7, 7, n) if weights != "some are zero" else np.where(np.arange(n) % 3 == 0, 0.0, 1.5)
    root, K = np.sqrt(w), f.to_dense()
    (errors,) = decompose(f, w).left_out(y, np.array([0.4]), np.ones(n))
    for i in range(n):
        left = np.where(np.arange(n) == i, 0.0, root)
        dual = left[:, None] * np.linalg.solve(K * np.outer(left, left) + 0.4 * np.eye(n), left[:, None] * y)
        np.testing.assert_allclose(errors[i], y[i] - K[i] @ dual, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("psd", [True, False])
@pytest.mark.parametrize("weights", ["ones", "spread", "some are zero", "1e-6 to 1e6"])
def test_solutions_are_those_of_dense_algebra(weights, psd):
    rng = np.random.default_rng(4)
    f = factorization(rng, psd=psd)
    n, y = f.shape[0], rng.standard_normal((f.shape[0], 2))
    w = {
        "ones": np.ones(n),
        "spread": rng.uniform(0.01, 9.0, n),
        "some are zero": np.where(np.arange(n) % 3 == 0, 0.0, 1.5),
        "1e-6 to 1e6": 10.0 ** rng.uniform(-6, 6, n),
    }[weights]
    root = np.sqrt(w)
    K = f.to_dense()
    for t in (0.01, 5.0):
        expected = root[:, None] * np.linalg.solve(K * np.outer(root, root) + t * np.eye(n), root[:, None] * y)
        found = decompose(f, w).solve(y, t)
        size = np.abs(expected).max()
        np.testing.assert_allclose(
            found, expected, rtol=1e-6, atol=(1e-10 if weights != "1e-6 to 1e6" else 1e-5) * size
        )


def test_no_alpha_on_a_singular_matrix_gives_the_smallest_least_squares():
    rng = np.random.default_rng(5)
    f = factorization(rng)
    y = rng.standard_normal((f.shape[0], 2))
    path = decompose(f, np.ones(f.shape[0]))
    assert path.least_squares(0.0)
    assert not path.least_squares(0.1)
    np.testing.assert_allclose(path.solve(y, 0.0), np.linalg.pinv(f.to_dense(), hermitian=True) @ y, atol=1e-9)


def test_an_alpha_that_meets_a_negative_eigenvalue_is_refused_and_has_no_score():
    f = factorization(np.random.default_rng(6), psd=False)
    y = np.ones((f.shape[0], 1))
    path = decompose(f, np.ones(f.shape[0]))
    t = -float(path.system.values[0])
    with pytest.raises(InputError, match="meets an eigenvalue"):
        path.solve(y, t)
    (errors,) = path.left_out(y, np.array([t]), y[:, 0])
    assert np.isnan(errors).all()


def test_some_rows_of_a_factorization_are_those_of_the_whole():
    rng = np.random.default_rng(7)
    f = factorization(rng)
    rows, w = np.array([17, 2, 9, 8]), rng.standard_normal((f.rank, 2))
    some = restricted(f, rows)
    np.testing.assert_allclose(some.lift(w), f.lift(w)[rows])
    np.testing.assert_allclose(some.diagonal(f.core), f.diagonal(f.core)[rows])
    small = restricted(f.astype("float32"), rows)
    np.testing.assert_allclose(small.lift(w), f.lift(w)[rows], atol=1e-5)


def test_the_best_score_is_the_last_of_those_that_nothing_tells_apart():
    def scores(values, ties, noise):
        return [ridge.Score(np.array([v]), noise, t) for v, t in zip(values, ties, strict=True)]

    assert ridge._best(scores([-2.0, -1.0, -1.0 - 1e-9, -3.0], [0.0] * 4, 1e-6)) == 2
    assert ridge._best(scores([0.9, 0.91, 0.905, 0.8], [-1.0, -0.7, -0.5, 0.0], 0.01)) == 2
    assert ridge._best(scores([np.nan, 0.1], [np.nan, -1.0], 0.0)) == 1
    with pytest.raises(InputError, match="larger alphas"):
        ridge._best(scores([np.nan] * 2, [np.nan] * 2, 0.0))


def test_an_exact_correction_is_seen_from_one_eigendecomposition():
    f = factorization(np.random.default_rng(8), psd=False)
    ones, y = np.ones(f.shape[0]), np.random.default_rng(9).standard_normal((f.shape[0], 1))
    system = decompose(f, ones).system
    for how in ("clip", "flip", "square"):
        values, shift = changed(how, system.values, f.shift)
        moved = f.with_core(f.core, shift)
        fast = RidgeEigensystem(moved, ones, moved, system.with_values(values)).solve(y, 0.3)
        np.testing.assert_allclose(fast, decompose(correct(f, how), ones).solve(y, 0.3), rtol=1e-8)
