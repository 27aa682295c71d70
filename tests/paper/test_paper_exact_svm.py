"""LIBSVM on matrices that are held whole, and what a training set sees of a factorization, against dense twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.svm import SVC

import krein
from paper.exact_svm import fit, psd_shift_of, restricted, written


def made(seed: int, n: int = 60) -> tuple[krein.Factorization, np.ndarray, np.ndarray, np.ndarray]:
    """An indefinite factorization of three blocks, labels of three classes, and a split."""
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((12, 12))
    sizes = (n // 2, n // 3, n - n // 2 - n // 3)
    Q = [rng.standard_normal((m, 4)) for m in sizes]
    F = krein.Factorization.from_links(Q, L + L.T, rng.permutation(n))
    order = rng.permutation(n)
    return F, rng.integers(0, 3, n), np.sort(order[: 2 * n // 3]), np.sort(order[2 * n // 3 :])


@given(st.integers(0, 50))
def test_what_the_training_rows_see_has_the_spectrum_of_the_dense_submatrix(seed: int) -> None:
    F, y, train, _ = made(seed)
    found = restricted(F, y, train)
    K = F.to_dense()
    values = np.linalg.eigvalsh(K[np.ix_(train, train)])
    assert found.smallest == pytest.approx(values[0], rel=1e-9)
    assert found.n_negative == int((values < -1e-9 * np.abs(values).max()).sum())
    bent = 0
    for a, b in ((0, 1), (0, 2), (1, 2)):
        rows = train[np.isin(y[train], (a, b))]
        own = np.linalg.eigvalsh(K[np.ix_(rows, rows)])
        bent += own[0] < -1e-9 * np.abs(own).max()
    assert (found.n_pairs, found.nonconvex_pairs, found.convex) == (3, bent, bent == 0)


def test_a_psd_factorization_is_convex_for_every_pair() -> None:
    F, y, train, _ = made(1)
    found = restricted(krein.correct(F, "clip"), y, train)
    assert found.convex
    assert found.n_negative == 0
    assert abs(found.smallest) < 1e-9


def test_rows_written_out_are_those_of_the_dense_matrix_and_the_errors_its_own() -> None:
    F, _, train, test = made(2)
    dense = F.to_dense()
    noise = np.random.default_rng(3).standard_normal(dense.shape)
    K = dense + noise + noise.T
    found = written(F, train, test, K)
    np.testing.assert_allclose(found.train, dense[np.ix_(train, train)], atol=1e-10)
    np.testing.assert_allclose(found.test, dense[np.ix_(test, train)], atol=1e-10)
    for shift in (0.0, 1.5):
        expected = np.linalg.norm(K - dense - shift * np.eye(len(K))) / np.linalg.norm(K)
        assert found.gap is not None
        assert found.gap.relative(shift) == pytest.approx(expected, rel=1e-10)
    assert written(F, train, test).gap is None


def test_a_machine_that_runs_into_its_limit_says_so() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 3)), rng.integers(0, 3, 120)
    K = np.asarray(krein.RBF(gamma=1.0)(X))
    free, bound = (fit(K[:80, :80], y[:80], K[80:, :80], y[80:], 10.0, limit) for limit in (-1, 5))
    assert free.converged
    assert not bound.converged
    assert bound.n_iter <= 5 < free.n_iter
    expected = SVC(kernel="rbf", gamma=1.0, C=10.0).fit(X[:80], y[:80])
    assert free.accuracy == pytest.approx(100.0 * expected.score(X[80:], y[80:]))
    assert free.n_support == expected.n_support_.sum()


@pytest.mark.parametrize("n", [40, 150])
def test_the_shift_of_a_matrix_is_its_smallest_eigenvalue_or_nothing(n: int) -> None:
    A = np.random.default_rng(n).standard_normal((n, n))
    assert psd_shift_of(A @ A.T) == 0.0
    S = A + A.T
    assert psd_shift_of(S) == pytest.approx(-np.linalg.eigvalsh(S)[0], rel=1e-5)
    low = A[:, :5] @ A[:, :5].T  # singular, and psd to rounding
    assert psd_shift_of(low) == 0.0
