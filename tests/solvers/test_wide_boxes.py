"""Boxes far wider than any solution asks for, as C = inf has them: the answer is the narrow box's, to rounding."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVC

import krein
from krein.solvers import solve_dual


def problem(apart: float, seed: int = 0):
    """Two classes, as far ``apart``, under a factored matrix."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(800, 4))
    y = np.where(X[:, 0] + np.sin(2.0 * X[:, 1]) > 0.0, 1.0, -1.0)
    X[:, 0] += apart * y
    return krein.approximate(X, krein.RBF(gamma=0.3), n_blocks=4, rank=60, random_state=0).factorization, y


def solved(f, y, C):
    return solve_dual(f, y, np.minimum(0.0, C * y), np.maximum(0.0, C * y))


@pytest.mark.parametrize("apart", [1.5, 0.0])  # the second is separable by large coefficients alone
@pytest.mark.parametrize("C", [1e7, 1e10])
def test_a_hard_margin_is_solved_to_rounding(apart, C):
    f, y = problem(apart)
    d, K = solved(f, y, C), f.to_dense()
    assert d.converged
    assert abs(d.coefficients.sum()) <= 1e-8 * np.abs(d.coefficients).sum()
    margin = y * (K @ d.coefficients + d.intercept)
    assert margin.min() >= 1.0 - 1e-6  # nobody is inside it,
    np.testing.assert_allclose(margin[d.support], 1.0, atol=1e-6)  # and who holds it stands on it: that is optimality
    reference = SVC(C=C, kernel="precomputed", tol=1e-6, max_iter=10**6).fit(K, y)
    b = np.zeros(len(y))
    b[reference.support_] = reference.dual_coef_[0]
    assert d.objective <= 0.5 * b @ K @ b - y @ b + 1e-6 * abs(d.objective)


def test_coefficients_that_need_the_width_get_it():
    f, y = problem(0.0)
    y = y.copy()
    y[:20] *= -1.0  # these are held right only by coefficients above what is tried first
    d, wide = solved(f, y, 1e4), solved(f, y, 1e8)
    assert 1e4 < np.abs(wide.coefficients).max() < 1e8
    margin = y * (f.to_dense() @ wide.coefficients + wide.intercept)
    assert margin.min() >= 1.0 - 1e-4
    np.testing.assert_allclose(margin[wide.support], 1.0, atol=1e-4)
    assert wide.objective < d.objective
    assert wide.n_iter > d.n_iter  # the narrower boxes were tried first, and count


def test_a_machine_with_infinite_C_says_the_truth():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 3))
    y = np.where(X[:, 0] > 0.0, 1, 0)
    X[:, 0] += np.where(y, 1.0, -1.0)
    machine = krein.SVC(C=np.inf, gamma=0.2, n_blocks=5, rank=40, random_state=0).fit(X, y)
    assert machine.converged_
    assert machine.gap_ <= 1e-6
    signed = (2 * y - 1) * machine.decision_function(X)
    assert signed.min() >= 0.99
