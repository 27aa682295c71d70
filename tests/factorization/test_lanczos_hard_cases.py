"""Lanczos where it is easily misled: low rank, few rows, operators that are not symmetric or not real."""

from __future__ import annotations

import numpy as np
import pytest

import krein
from krein import Factorization, InputError


def low_rank(rank, seed):
    """A symmetric matrix of ``rank`` as links: eigenvalues of either sign, spread over six decades."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(rank + 1, 120))
    values = 10.0 ** rng.uniform(-6.0, 0.0, rank) * rng.choice([-1.0, 1.0], rank)
    return Factorization.from_links([rng.standard_normal((n, rank))], np.diag(values))


@pytest.mark.parametrize("rank", [2, 3, 5])
@pytest.mark.parametrize("seed", range(20))
def test_lanczos_never_calls_a_symmetric_low_rank_operator_asymmetric(rank, seed):
    f = low_rank(rank, seed)
    found = krein.lanczos(f, random_state=seed)
    exact = np.linalg.eigvalsh(f.to_dense())
    assert abs(found.smallest - exact[0]) <= found.residual + 1e-10 * np.abs(exact).max()


@pytest.mark.parametrize("seed", range(5))
def test_lanczos_refuses_an_asymmetric_matrix(seed):
    with pytest.raises(InputError, match="symmetric"):
        krein.lanczos(np.triu(np.ones((50, 50))), random_state=seed)


@pytest.mark.parametrize("seed", range(5))
def test_lanczos_may_take_more_steps_than_rows(seed):
    A = np.random.default_rng(seed).standard_normal((30, 30))
    A = A + A.T
    exact = np.linalg.eigvalsh(A)
    found = krein.lanczos(A, iterations=90, random_state=seed)
    assert 30 < found.iterations <= 90
    size = np.abs(exact).max()
    assert found.smallest == pytest.approx(exact[0], abs=1e-8 * size)
    assert found.largest == pytest.approx(exact[-1], abs=1e-8 * size)
    gaps = np.abs(found.ritz_values[:, None] - exact).min(1)
    assert gaps.max() <= 1e-6 * size


def test_lanczos_refuses_a_complex_operator():
    A = np.array([[0.0, 1j, 0.0], [-1j, 0.0, 1.0], [0.0, 1.0, 2.0]])
    with pytest.raises(InputError, match=r"real|complex"):
        krein.lanczos(A, random_state=0)


@pytest.mark.parametrize(("rank", "seed"), [(5, 963), (5, 804)])
def test_an_eigenvalue_the_start_vector_has_a_part_in_is_not_spurious(rank, seed):
    f = low_rank(rank, seed)
    found = krein.lanczos(f, random_state=seed)
    assert found.smallest == pytest.approx(f.smallest_eigenvalue(), abs=found.residual + 1e-8 * f.frobenius())
