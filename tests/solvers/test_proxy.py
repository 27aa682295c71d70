"""The proxy-matrix SVM beside a dense solution of its problem, and beside a quadratic programme on its matrix."""

from __future__ import annotations

import numpy as np
import pytest
from qpsolvers import solve_qp
from scipy.optimize import minimize

import krein
from krein.solvers.dense_dual import Task
from krein.solvers.proxy import solve_proxy


def problem(n=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(n) > 0, 1.0, -1.0)
    return np.tanh(0.5 * X @ X.T - 1.0), y


def positive_part(B):
    values, vectors = np.linalg.eigh(B)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def dense_solution(K, y, C, rho):
    """The concave problem in b by sequential quadratic programming, with the closed inner minimum."""

    def value(b):
        S = positive_part(K + np.outer(b, b) / (4.0 * rho))
        return -(y @ b) + 0.5 * b @ S @ b - rho * np.sum((S - K) ** 2), S @ b - y

    bounds = list(zip(np.minimum(0.0, C * y), np.maximum(0.0, C * y), strict=True))
    sums = {"type": "eq", "fun": lambda b: b.sum(), "jac": np.ones_like}
    found = minimize(value, np.zeros(len(y)), jac=True, bounds=bounds, constraints=[sums], method="SLSQP",
                     options={"ftol": 1e-14, "maxiter": 1000})  # fmt: skip
    return found.x


def task_of(y, C):
    return Task("margin", np.arange(len(y)), y, np.minimum(0.0, C * y), np.maximum(0.0, C * y))


def whole(K):
    values, vectors = np.linalg.eigh(K)
    return krein.Factorization.from_blocks([vectors], np.diag(values), order=np.arange(len(K)))


@pytest.mark.parametrize("C", [1.0, 10.0])
@pytest.mark.parametrize("rho", [0.05, 1.0, 100.0])
def test_the_solution_is_that_of_the_dense_problem(rho, C):
    K, y = problem()
    dual, inner = solve_proxy(whole(K), task_of(y, C), rho, tol=1e-9)
    b = dual.coefficients
    assert dual.converged
    np.testing.assert_allclose(b, dense_solution(K, y, C, rho), rtol=0, atol=2e-6 * C)
    # new objects: the similarities of K, projected to the eigenvectors of the proxy
    values, vectors = np.linalg.eigh(K + np.outer(b, b) / (4.0 * rho))
    kept = vectors[:, values > 0.0]
    _, U = np.linalg.eigh(K)
    np.testing.assert_allclose(U @ inner, K @ kept @ (kept.T @ b), rtol=0, atol=1e-9)


def test_the_solution_is_that_of_the_svm_on_the_proxy_matrix():
    """A saddle point: b maximises for the matrix, and the matrix is the minimum for b."""
    K, y = problem(50, 3)
    dual, _ = solve_proxy(whole(K), task_of(y, 2.0), 0.3, tol=1e-9)
    S = positive_part(K + np.outer(dual.coefficients, dual.coefficients) / 1.2)
    b = solve_qp(S + 1e-12 * np.eye(50), -y, A=np.ones((1, 50)), b=np.zeros(1), lb=np.minimum(0.0, 2.0 * y),
                 ub=np.maximum(0.0, 2.0 * y), solver="piqp", eps_abs=1e-11, eps_rel=1e-11)  # fmt: skip
    np.testing.assert_allclose(S @ dual.coefficients, S @ b, rtol=0, atol=1e-6)
    free = (np.abs(dual.coefficients) > 1e-8) & (np.abs(dual.coefficients) < 2.0 - 1e-8)
    assert free.any()
    np.testing.assert_allclose((S @ dual.coefficients + dual.intercept)[free], y[free], atol=1e-6)


def test_a_shift_is_part_of_the_matrix():
    K, y = problem()
    f = whole(K)
    shifted = f.with_core(f.core - 0.5 * np.eye(len(K)), 0.5)
    assert np.allclose(
        solve_proxy(shifted, task_of(y, 1.0), 1.0, tol=1e-9)[0].coefficients,
        solve_proxy(f, task_of(y, 1.0), 1.0, tol=1e-9)[0].coefficients,
        atol=1e-7,
    )


def test_the_hessian_is_the_derivative_of_the_gradient():
    from krein.solvers.proxy import _Proxy

    K, _ = problem(12)
    rng = np.random.default_rng(1)
    p, step = rng.standard_normal(12), rng.standard_normal(12)

    def at(q):
        return _Proxy(q, *np.linalg.eigh(K + np.outer(q, q) / (4 * 0.3)), 0.3)

    slope = (at(p + 1e-6 * step).product - at(p - 1e-6 * step).product) / 2e-6
    np.testing.assert_allclose(at(p).derivative @ step, slope, rtol=0, atol=1e-7)
    assert np.linalg.eigvalsh(at(p).derivative)[0] > -1e-12


def test_it_stops_at_max_iter_and_says_so():
    K, y = problem()
    dual, _ = solve_proxy(whole(K), task_of(y, 10.0), 0.05, tol=1e-9, max_iter=1)
    assert not dual.converged
    assert dual.gap > 1e-9
