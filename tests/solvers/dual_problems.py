"""Random duals with a dense twin, and two solvers from elsewhere to compare with: PIQP and LIBSVM."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import piqp

from krein import Factorization
from strategies import dense_twin, diagonal_core, make, random_core, sparse_core

FORMS = ("dense", "diagonal", "sparse", "rank deficient", "no core")
LEARNERS = ("svc", "svr", "one class", "any box")


@dataclass(frozen=True)
class Question:
    """The arguments of one dual."""

    f: Factorization
    rows: np.ndarray | None
    linear: np.ndarray
    low: np.ndarray
    high: np.ndarray
    total: float
    epsilon: float

    @property
    def options(self) -> dict[str, Any]:
        return {"total": self.total, "epsilon": self.epsilon, "rows": self.rows}

    def matrix(self) -> np.ndarray:
        K = dense_twin(self.f)
        return K if self.rows is None else K[np.ix_(self.rows, self.rows)]

    def objective(self, b: np.ndarray) -> float:
        return float(0.5 * b @ self.matrix() @ b - self.linear @ b + self.epsilon * np.abs(b).sum())

    def size(self) -> float:
        """What an objective is judged against."""
        reach = np.maximum(np.abs(self.low), np.abs(self.high))
        even = self.high * self.total / float(self.high.sum()) if self.total else 0.0 * self.high  # a total over C > 0
        return float(
            1e-6 * ((np.abs(self.linear) + self.epsilon) @ reach + 0.5 * np.abs(np.diag(self.matrix())) @ even**2)
        )


def random_factorization(rng: np.random.Generator, form: str, shift: float, most: int = 30) -> Factorization:
    """A psd matrix: unequal blocks, ranks from 0 to all, cores of any scale."""
    c = int(rng.integers(1, 7))
    sizes = rng.integers(1, most, c)
    sizes[0] += 1
    ranks = [int(rng.integers(0, n + 1)) for n in sizes]
    r, scale = sum(ranks), 10.0 ** rng.uniform(-2, 3)
    core: Any
    if form == "dense":
        core = scale * random_core(rng, r, "psd")
    elif form == "rank deficient":
        V = rng.standard_normal((r, max(1, r // 3)))
        core = scale * (V @ V.T) / max(1, r)
        core = (core + core.T) / 2
    elif form == "no core":
        core, shift = np.zeros((r, r)), shift or 1.0
    elif form == "diagonal":
        core = diagonal_core(rng, ranks, "psd").map_blocks(lambda i, j, b: scale * b, ranks)
    else:
        core = sparse_core(rng, ranks, 0.5, dominant=3.0).map_blocks(lambda i, j, b: scale * b, ranks)
    return make(rng, sizes, ranks, core, shift)


def random_question(seed: int) -> Question:
    rng = np.random.default_rng([21, seed])
    form, learner = FORMS[seed % 5], LEARNERS[seed // 5 % 4]
    f = random_factorization(rng, form, float(rng.choice([0.0, 0.0, 1e-3, 1.0])))
    if rng.random() < 0.2:
        f = f.astype("float32")
    n = f.shape[0]
    rows = rng.permutation(n)[: int(rng.integers(2, n + 1))] if rng.random() < 0.4 else None
    m = n if rows is None else len(rows)
    C, weights = 10.0 ** rng.uniform(-3, 3), np.ones(m)
    if rng.random() < 0.4:
        weights = rng.uniform(0.0, 3.0, m) * (rng.random(m) > 0.1)
    total, epsilon = 0.0, 0.0
    if learner == "svc":
        linear = np.where(rng.random(m) < rng.choice([0.5, 0.1]), 1.0, -1.0)
        low, high = np.where(linear > 0, 0.0, -C * weights), np.where(linear > 0, C * weights, 0.0)
    elif learner == "svr":
        linear, low, high = rng.standard_normal(m) * 10.0 ** rng.uniform(-2, 2), -C * weights, C * weights
        epsilon = float(rng.choice([0.0, 0.1, 1.0]))
    elif learner == "one class":
        linear, low, high = np.zeros(m), np.zeros(m), weights
        total = float(rng.uniform()) * float(weights.sum())
    else:
        linear, low = rng.standard_normal(m), rng.standard_normal(m)
        high = low + rng.uniform(0.0, 2.0, m) * (rng.random(m) > 0.2)
        total = float(low.sum() + rng.uniform() * (high - low).sum())
        epsilon = float(rng.choice([0.0, 0.3]))
    return Question(f, rows, linear, low, high, total, epsilon)


def by_piqp(q: Question) -> np.ndarray:
    """The same dual as a dense QP; where epsilon > 0 with two variables per row."""
    K, n = q.matrix(), len(q.linear)
    P, cost, low, high, ones = K, -q.linear, q.low, q.high, np.ones((1, n))
    if q.epsilon:
        P = np.block([[K, -K], [-K, K]])
        cost = np.concatenate([q.epsilon - q.linear, q.epsilon + q.linear])
        low = np.concatenate([np.maximum(q.low, 0.0), np.maximum(-q.high, 0.0)])
        high = np.concatenate([np.maximum(q.high, 0.0), np.maximum(-q.low, 0.0)])
        ones = np.concatenate([np.ones(n), -np.ones(n)])[None]
    solver = piqp.DenseSolver()
    solver.settings.eps_abs, solver.settings.eps_rel, solver.settings.max_iter = 1e-10, 1e-12, 500
    solver.setup(P, cost, ones, np.array([q.total]), None, None, None, low, high)
    solver.solve()
    x = np.array(solver.result.x)
    return np.clip(x[:n] - x[n:] if q.epsilon else x, q.low, q.high)


def quiet_fit(model: Any, K: np.ndarray, y: np.ndarray | None = None, sample_weight: Any = None) -> Any:
    """LIBSVM's fit; that it ran out of iterations is the caller's to see."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(K, y, sample_weight=sample_weight)
