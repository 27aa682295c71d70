"""Errors tile by tile beside the plain formula, and what reports are made of."""

from __future__ import annotations

import math

import numpy as np
import pytest

import krein
from paper.comparing import TILE, difference, difference_of_features, full_bytes, tabled_bytes
from paper.writing import exponent, geometric_mean, mean_of, number, table


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8"])
@pytest.mark.parametrize("n", [TILE - 1, TILE, 3 * TILE + 7])
def test_the_error_is_that_of_the_dense_matrices(n: int, dtype: str) -> None:
    X = np.random.default_rng(n).standard_normal((n, 3))
    a = krein.approximate(
        X, krein.RBF(gamma=0.3), n_blocks=4, rank=5, coupling="pairwise", dtype=dtype, drop=0.0, random_state=0
    )
    f, K = a.factorization, krein.RBF(gamma=0.3)(X)
    found = difference(K, f)
    for shift in (0.0, 0.7, -0.2):
        want = np.linalg.norm(K - f.to_dense() - shift * np.eye(n)) / np.linalg.norm(K)
        assert found.relative(shift) == pytest.approx(want, rel=1e-9)


def test_a_shift_of_the_factorization_counts() -> None:
    X = np.random.default_rng(0).standard_normal((200, 3))
    f = krein.approximate(X, krein.TL1(1.0), n_blocks=3, rank=6, drop=0.0, random_state=0).factorization
    f, K = f.with_core(f.core, 0.4), krein.TL1(1.0)(X)
    want = np.linalg.norm(K - f.to_dense())
    assert difference(K, f).relative() * np.linalg.norm(K) == pytest.approx(want, rel=1e-9)
    assert difference(K, f).trace == pytest.approx(np.trace(K) - f.diagonal().sum(), rel=1e-9)


@pytest.mark.parametrize("n", [TILE // 2, 2 * TILE + 3])
def test_features_are_compared_the_same_way(n: int) -> None:
    rng = np.random.default_rng(1)
    Z, A = rng.standard_normal((n, 7)), rng.standard_normal((n, n))
    K = A + A.T
    found = difference_of_features(K, Z)
    for shift in (0.0, 1.5):
        want = np.linalg.norm(K - Z @ Z.T - shift * np.eye(n)) / np.linalg.norm(K)
        assert found.relative(shift) == pytest.approx(want, rel=1e-9)


def test_bytes_are_the_papers_count() -> None:
    assert tabled_bytes(100, 3, 16) == 8 * (1600 + 48 * 48)
    assert full_bytes(100) == np.empty((100, 100)).nbytes


def test_reports_are_made_of_this() -> None:
    assert table(("a", "b"), [["x", "1"]], 1).splitlines() == ["| a | b |", "| --- | ---: |", "| x | 1 |"]
    assert number(0.012345) == "0.0123"
    assert number(math.nan) == ""
    assert mean_of([{"v": "1"}, {"v": ""}, {"v": "3"}], "v") == 2.0
    assert math.isnan(mean_of([], "v"))
    assert geometric_mean([1.0, 100.0, math.nan]) == pytest.approx(10.0)
    assert exponent([1, 2, 4], [3, 24, 192]) == pytest.approx(3.0)
