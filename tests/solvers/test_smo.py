"""Pairs in blocks against LIBSVM with a polish, on dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from krein.solvers import smo
from krein.solvers.dense_dual import Task, solve_dense, violation
from krein.solvers.smo import descend


def problem(kind: str, m: int = 120) -> tuple[Any, Task]:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((m, 4))
    K = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(-1))
    high = rng.uniform(0.5, 2.0, m)
    if kind == "margin":
        y = np.where(X[:, 0] + 0.5 * rng.standard_normal(m) > 0, 1.0, -1.0)
        return K, Task(kind, np.arange(m), y, np.where(y < 0, -high, 0.0), np.where(y > 0, high, 0.0))
    if kind == "tube":
        return K, Task(kind, np.arange(m), np.sin(X[:, 0]) + 0.2 * X[:, 1], -high, high, epsilon=0.1)
    return K, Task(kind, np.arange(m), np.zeros(m), np.zeros(m), np.ones(m), total=20.0)


class Dense:
    """A matrix that is there."""

    def __init__(self, K: Any) -> None:
        self.K = K

    def among(self, some: Any) -> Any:
        return self.K[np.ix_(some, some)]

    def times(self, some: Any, weights: Any) -> Any:
        return self.K[:, some] @ weights


@pytest.mark.parametrize("block", [7, 40, 800])
@pytest.mark.parametrize("kind", ["margin", "tube", "one-class"])
def test_the_objective_and_the_conditions(kind: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smo, "BLOCK", block)
    K, task = problem(kind)
    b = np.where(np.arange(len(K)) < task.total, 1.0, 0.0)  # zero, or the first 20 at their ends
    product = K @ b
    steps, worst = descend(task, b, product, Dense(K), 1e-7, 10**6)
    assert steps > 0
    assert worst <= 1e-7
    np.testing.assert_allclose(product, K @ b, atol=1e-10)
    assert abs(b.sum() - task.total) < 1e-10
    assert ((b >= task.low) & (b <= task.high)).all()
    reference = solve_dense(K, task, tol=1e-9)
    objective = 0.5 * b @ product - task.linear @ b + task.epsilon * np.abs(b).sum()
    assert objective <= reference.objective + 1e-6 * abs(reference.objective)
    assert violation(task, b, product - task.linear + reference.intercept).max() <= 1e-5


def test_it_gives_up_after_its_steps() -> None:
    K, task = problem("margin")
    b = np.zeros(len(K))
    product = np.zeros(len(K))
    steps, worst = descend(task, b, product, Dense(K), 1e-12, 1)
    assert steps >= 1
    assert worst > 1e-12
    assert descend(task, b, product, Dense(K), 1e-7, 0) == (0, pytest.approx(worst))


@pytest.mark.parametrize("kind", ["margin", "tube", "one-class"])
def test_blocks_in_single_precision(kind: str) -> None:
    K, task = problem(kind)
    b = np.where(np.arange(len(K)) < task.total, 1.0, 0.0)
    product = K @ b
    steps, worst = descend(task, b, product, Dense(K.astype(np.float32)), 1e-3, 10**6)
    assert steps > 0
    assert worst <= 1e-3
    reference = solve_dense(K, task, tol=1e-9)
    objective = 0.5 * b @ (K @ b) - task.linear @ b + task.epsilon * np.abs(b).sum()
    assert objective <= reference.objective + 1e-3 * abs(reference.objective)
    assert violation(task, b, K @ b - task.linear + reference.intercept).max() <= 1e-2


def test_a_matrix_that_is_not_psd_ends() -> None:
    K, task = problem("margin")
    K = K - 0.4 * np.eye(len(K))
    b, product = np.zeros(len(K)), np.zeros(len(K))
    descend(task, b, product, Dense(K), 1e-3, 10**4)
    assert ((b >= task.low) & (b <= task.high)).all()
    assert abs(b.sum()) < 1e-9
