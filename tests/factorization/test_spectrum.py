"""Lanczos and Gershgorin against dense eigenvalues."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

from krein import gershgorin, lanczos
from krein.errors import InputError
from krein.factorization import spectrum as module
from strategies import EPS, HARD_FACTORIZATIONS, dense_twin, factorizations, make, norm_of, random_core


def with_spectrum(values, seed: int = 0) -> np.ndarray:
    V = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    K = (V * values) @ V.T
    return (K + K.T) / 2


@given(st.integers(1, 25), st.integers(0, 2**32 - 1), st.sampled_from([1e-200, 1e-8, 1.0, 1e8, 1e200]))
def test_full_steps_on_a_small_matrix_find_both_ends(n, seed, scale):
    K = scale * random_core(np.random.default_rng(seed), n)
    values = np.linalg.eigvalsh(K)
    found = lanczos(K, iterations=n, random_state=seed)
    assert found.iterations <= n
    assert abs(found.smallest - values[0]) <= 1e-6 * norm_of(K)
    assert abs(found.largest - values[-1]) <= 1e-6 * norm_of(K)


@given(st.integers(2, 60), st.integers(1, 60), st.integers(0, 2**32 - 1))
def test_an_eigenvalue_lies_within_the_residual(n, steps, seed):
    """Whether it has converged or not; and no Ritz value leaves the spectrum's range."""
    K = random_core(np.random.default_rng(seed), n, "indefinite" if seed % 2 else "graded")
    values = np.linalg.eigvalsh(K)
    found = lanczos(K, iterations=steps, random_state=seed)
    slack = 100 * n * EPS * norm_of(K)
    assert np.abs(values - found.smallest).min() <= found.residual + slack
    assert np.abs(values - found.largest).min() <= found.residual_largest + slack
    assert values[0] - slack <= found.smallest <= found.largest <= values[-1] + slack
    assert found.shift == max(0.0, found.residual - found.smallest)
    assert len(found.ritz_values) + found.n_spurious == found.iterations == steps or found.residual <= 100 * slack


def test_every_kind_of_operator_gives_the_same():
    f = make(np.random.default_rng(0), [40, 60], [10, 12], shift=-0.3)
    K = dense_twin(f)
    wanted = lanczos(K, random_state=3)
    assert wanted.iterations == math.ceil(2 * math.sqrt(100))
    for operator in (f, aslinearoperator(K), f.as_linear_operator(), sp.csr_matrix(K), sp.csr_array(K)):
        found = lanczos(operator, random_state=3)
        assert found.smallest == pytest.approx(wanted.smallest, rel=1e-8)
        assert found.largest == pytest.approx(wanted.largest, rel=1e-8)
    assert lanczos(K, random_state=3).smallest == wanted.smallest


@pytest.mark.parametrize("n", [1, 2, 3, 10, 400, 2500])
def test_the_default_is_twice_the_root_of_n(n):
    found = lanczos(sp.diags_array(np.random.default_rng(0).standard_normal(n)), random_state=0)
    assert found.iterations == min(n, math.ceil(2 * math.sqrt(n)))


@pytest.mark.parametrize("seed", range(5))
def test_spurious_ritz_values_are_recognised(seed):
    """Far beyond convergence plain Lanczos finds ghosts; what is kept is near a true eigenvalue."""
    outliers = np.array([-50.0, -20.0, 30.0, 80.0, 100.0])
    values = np.concatenate([outliers, np.linspace(0.0, 1.0, 295)])
    found = lanczos(np.diag(values), iterations=300, random_state=seed)
    assert found.n_spurious > 0
    distance = np.abs(found.ritz_values[:, None] - values).min(1)
    assert distance.max() <= 1 / 295
    outside = found.ritz_values[(found.ritz_values < -0.01) | (found.ritz_values > 1.01)]
    assert np.abs(outside[:, None] - outliers).min(1).max() <= 1e-10 * 100
    assert found.smallest == pytest.approx(-50.0, rel=1e-12)
    assert found.largest == pytest.approx(100.0, rel=1e-12)


@pytest.mark.parametrize("n", [1, 5, 200])
@pytest.mark.parametrize("iterations", [None, 1, 200])
def test_breakdown_is_the_end_and_no_error(n, iterations):
    v = np.random.default_rng(0).standard_normal(n)
    cases = {"identity": np.eye(n), "minus": -3 * np.eye(n), "zero": np.zeros((n, n)), "rank 1": np.outer(v, v)}
    cases["two values"] = np.diag(np.where(np.arange(n) % 2, 2.0, -1.0))
    for name, K in cases.items():
        values = np.linalg.eigvalsh(K)
        found = lanczos(K, iterations=iterations, random_state=1)
        slack = 100 * n * EPS * norm_of(K)
        assert np.abs(values - found.smallest).min() <= found.residual + slack, name
        if found.iterations >= 3 or name in ("identity", "minus", "zero"):
            assert abs(found.smallest - values[0]) <= slack, name
            assert abs(found.largest - values[-1]) <= slack, name
        assert found.iterations <= (1 if name in ("identity", "minus", "zero") else n)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lanczos([[1.0]]), "multiplies by @.*got list"),
        (lambda: lanczos(np.ones((2, 3))), r"square operator.*\(2, 3\)"),
        (lambda: lanczos(np.ones(3)), r"square operator.*\(3,\)"),
        (lambda: lanczos(np.ones((0, 0))), "at least one row"),
        (lambda: lanczos(np.eye(3), iterations=0), "positive integer.*got 0"),
        (lambda: lanczos(np.eye(3), iterations=2.5), "positive integer.*got 2.5"),
        (lambda: lanczos(np.full((3, 3), np.nan)), "NaN or infinite"),
        (lambda: lanczos(np.triu(np.ones((9, 9)))), "symmetric operator.*Pass"),
        (lambda: gershgorin(np.eye(3)), "shape and rows.*got ndarray"),
        (lambda: gershgorin(HARD_FACTORIZATIONS["one row"](), n_rows=0), "positive integer.*got 0"),
        (lambda: gershgorin(Rows(np.eye(5)), n_rows=2), "2 of 5 rows.*needs a Factorization; got Rows.*n_rows=5"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


class Rows:
    """The least a matrix needs."""

    def __init__(self, K: np.ndarray) -> None:
        self.K, self.shape = K, K.shape

    def rows(self, indices):
        return self.K[indices]


def dense_gershgorin(K: np.ndarray) -> float:
    return min(K[i, i] - sum(abs(K[i, j]) for j in range(len(K)) if j != i) for i in range(len(K)))


def check_gershgorin(f) -> None:
    K = dense_twin(f)
    slack = 100 * len(K) * EPS * (norm_of(K) + abs(f.shift))
    low = np.linalg.eigvalsh(K)[0]
    streamed = gershgorin(f)
    assert abs(streamed.lower - dense_gershgorin(K)) <= slack
    assert streamed.lower <= low + slack
    assert streamed.sampled == streamed.lower
    assert (streamed.n_rows, streamed.uncovered) == (len(K), 0.0)
    assert abs(gershgorin(Rows(K)).lower - streamed.lower) <= slack
    for count in {1, max(1, len(K) // 2)} - {len(K)}:
        some = gershgorin(f, n_rows=count, random_state=0)
        assert some.lower <= low + slack
        assert some.lower <= streamed.lower + slack <= some.sampled + 2 * slack
        assert some.n_rows == count
        assert 0.0 < some.uncovered <= 1.0


@given(factorizations())
def test_gershgorin_is_the_dense_formula_and_a_bound(f):
    check_gershgorin(f)


@pytest.mark.parametrize("name", HARD_FACTORIZATIONS)
def test_gershgorin_is_the_dense_formula_and_a_bound_in_hard_cases(name):
    check_gershgorin(HARD_FACTORIZATIONS[name]())


def test_gershgorin_samples_where_there_are_too_many_rows(monkeypatch):
    monkeypatch.setattr(module, "STREAMED_ROWS", 50)
    monkeypatch.setattr(module, "SAMPLED_ROWS", 20)
    monkeypatch.setattr(module, "STRIP", 500)  # several strips
    f = make(np.random.default_rng(0), [40, 60], [5, 6])
    found = gershgorin(f, random_state=0)
    assert found.n_rows == 20
    assert found.lower <= f.smallest_eigenvalue()
    assert gershgorin(f, n_rows=100).lower == pytest.approx(dense_gershgorin(dense_twin(f)), rel=1e-12)
