"""One dual on a dense matrix, against the optimality conditions and a QP solver from elsewhere."""

from __future__ import annotations

import numpy as np
import piqp
import pytest
from sklearn.svm import SVC, SVR

import krein
from krein.solvers import Dual, dense_dual
from krein.solvers.dense_dual import Task, polish, solve_dense, violation
from krein.solvers.problem import central_multiplier


def matrix(form: str, n: int, rng: np.random.Generator) -> np.ndarray:
    X = rng.normal(size=(n, 5))
    if form == "duplicates":
        X[n // 2 :] = X[: n - n // 2]
    if form == "linear":
        return (X + 2.0) @ (X + 2.0).T  # away from the origin, or a one-class SVM has nothing to do
    squares = ((X[:, None] - X[None]) ** 2).sum(2)
    return np.exp(-0.3 * squares)


def task(kind: str, n: int, C: float, rng: np.random.Generator) -> Task:
    rows, weights = np.arange(n), C * rng.uniform(0.3, 3.0, n)
    if kind == "margin":
        signs = np.where(rng.uniform(size=n) < 0.4, 1.0, -1.0)
        return Task(kind, rows, signs, np.minimum(signs * weights, 0.0), np.maximum(signs * weights, 0.0))
    if kind == "tube":
        return Task(kind, rows, 30.0 * rng.normal(size=n), -weights, weights, 0.0, 5.0)
    return Task(kind, rows, np.zeros(n), np.zeros(n), weights, 0.4 * float(weights.sum()))


def objective(K: np.ndarray, t: Task, b: np.ndarray) -> float:
    return float(0.5 * b @ K @ b - t.linear @ b + t.epsilon * np.abs(b).sum())


def reference(K: np.ndarray, t: Task) -> float:
    """The least objective by PIQP; epsilon > 0 in two parts of b."""
    n = len(K)
    double = t.epsilon > 0.0
    P = np.block([[K, -K], [-K, K]]) if double else K
    c = np.concatenate([t.epsilon - t.linear, t.epsilon + t.linear]) if double else -t.linear
    low = np.zeros(2 * n) if double else t.low
    high = np.concatenate([t.high, -t.low]) if double else t.high
    A = np.concatenate([np.ones(n), -np.ones(n)])[None] if double else np.ones((1, n))
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
    solver.setup(P + 1e-13 * np.eye(len(P)), c, A, np.array([t.total]), None, None, None, low, high)
    solver.solve()
    x = np.asarray(solver.result.x)
    return objective(K, t, x[:n] - x[n:] if double else x)


@pytest.mark.parametrize("kind", ["margin", "tube", "one-class"])
@pytest.mark.parametrize("form", ["rbf", "linear", "duplicates"])
@pytest.mark.parametrize("C", [0.1, 30.0])
def test_it_is_the_solution_to_rounding(kind: str, form: str, C: float) -> None:
    rng = np.random.default_rng(3)
    K, t = matrix(form, 120, rng), task(kind, 120, C, rng)
    found = solve_dense(K, t)
    b = found.coefficients
    assert found.converged
    assert found.gap <= 1e-9
    assert (b >= t.low).all()
    assert (b <= t.high).all()
    assert abs(b.sum() - t.total) <= 1e-9 * np.abs(b).sum()
    size = np.abs(t.linear).max() + t.epsilon or np.diagonal(K).mean() * t.high.max()
    assert violation(t, b, K @ b - t.linear + found.intercept).max() <= 1e-8 * size
    best = reference(K, t)
    assert objective(K, t, b) <= best + 1e-7 * abs(best)


@pytest.mark.parametrize("kind", ["margin", "tube", "one-class"])
def test_the_polish_finds_the_solution_from_a_nearby_one_without_libsvm(kind: str) -> None:
    rng = np.random.default_rng(5)
    K, t = matrix("rbf", 100, rng), task(kind, 100, 2.0, rng)
    found = solve_dense(K, t)
    free = (found.coefficients > t.low) & (found.coefficients < t.high) & (found.coefficients != 0.0)
    off = found.coefficients + np.where(free, 1e-4 * rng.normal(size=100) * (t.high - t.low), 0.0)
    b, mu, _ = polish(K, t, np.clip(off, t.low, t.high))
    np.testing.assert_allclose(b, found.coefficients, atol=1e-8 * np.abs(t.high).max())
    assert mu == pytest.approx(found.intercept, abs=1e-7 * (1.0 + abs(found.intercept)))
    start = Dual(off, 0.0, 0.0, 1.0, 1, False, "")
    again = solve_dense(K, t, start=start)
    assert again.n_iter <= 20  # rounds of the polish; LIBSVM takes more
    np.testing.assert_allclose(again.coefficients, found.coefficients, atol=1e-8 * np.abs(t.high).max())


def test_without_free_rows_the_intercept_is_in_the_middle() -> None:
    K = np.eye(4)
    signs = np.array([1.0, 1.0, -1.0, -1.0])
    t = Task("margin", np.arange(4), signs, np.minimum(0.1 * signs, 0.0), np.maximum(0.1 * signs, 0.0))
    found = solve_dense(K, t)
    np.testing.assert_allclose(found.coefficients, 0.1 * signs)
    assert found.intercept == pytest.approx(0.0, abs=1e-12)
    assert central_multiplier(t, found.coefficients, K @ found.coefficients) == pytest.approx(0.0, abs=1e-12)


def test_a_limit_of_iterations_is_kept_and_the_gap_is_told() -> None:
    rng = np.random.default_rng(0)
    K, t = matrix("rbf", 150, rng), task("margin", 150, 10.0, rng)
    found = solve_dense(K, t, max_iter=3)
    assert found.n_iter == 3
    assert not found.converged
    assert found.gap > 1e-3


def test_where_libsvm_and_the_polish_fail_another_solver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    K, t = matrix("rbf", 60, rng), task("margin", 60, 1.0, rng)
    good = solve_dense(K, t)
    asked = []

    def other() -> Dual:
        asked.append(1)
        return good

    monkeypatch.setattr(dense_dual, "polish", lambda K, task, b: (b, 100.0, 1))
    found = solve_dense(K, t, other=other)
    assert asked == [1]
    np.testing.assert_array_equal(found.coefficients, good.coefficients)
    assert found.gap <= 1e-9


def test_of_an_indefinite_matrix_it_is_a_stationary_point() -> None:
    rng = np.random.default_rng(2)
    K, t = matrix("rbf", 80, rng), task("margin", 80, 1.0, rng)
    K = K - 0.3 * matrix("rbf", 80, rng)
    assert np.linalg.eigvalsh(K)[0] < -0.1
    found = solve_dense(K, t, psd=False)
    assert found.converged
    assert violation(t, found.coefficients, K @ found.coefficients - t.linear + found.intercept).max() <= 1e-5


@pytest.mark.parametrize("scale", [1e40, 1e200])
def test_similarities_beyond_libsvms_float32_are_brought_to_its_size(scale):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3))
    K = np.exp(-0.3 * np.square(X[:, None] - X).sum(2))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=60) > 0, 1, -1)
    ours, other = krein.SVC(kernel="precomputed", C=1.0 / scale).fit(K * scale, y), SVC(kernel="precomputed").fit(K, y)
    np.testing.assert_allclose(ours.decision_function(K * scale), other.decision_function(K), atol=5e-3)
    level, plain = krein.SVR(kernel="precomputed", C=1.0 / scale).fit(K * scale, X[:, 0]), SVR(kernel="precomputed")
    np.testing.assert_allclose(level.predict(K * scale), plain.fit(K, X[:, 0]).predict(K), atol=5e-3)
