"""Rows of a kernel's matrix, evaluated again or kept, against the matrix itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krein
from krein.kernels import Evaluator, counting
from krein.kernels.similarities import as_kernel
from krein.solvers import rows
from krein.solvers.rows import Exact, Pool, kernel_product


def vectors(n: int = 400, d: int = 5) -> Any:
    return np.random.default_rng(0).standard_normal((n, d))


def rbf(A: Any, B: Any) -> Any:
    return np.exp(-0.2 * ((A[:, None] - B) ** 2).sum(-1))


KERNELS: list[Any] = [
    krein.RBF(gamma=0.2),
    krein.Laplacian(gamma=0.2),
    as_kernel(rbf),
    krein.Polynomial(degree=2, gamma=0.2),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=["rbf", "laplacian", "callable", "poly"])
@pytest.mark.parametrize("tile", [rows.TILE, 300])
def test_a_pool_is_the_matrix(kernel: Any, tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "TILE", tile)
    monkeypatch.setattr(rows, "WIDTH", 70)
    monkeypatch.setattr(rows, "BLOCK", 20)  # room for 40 rows: some have to make room for others
    X, rng = vectors(), np.random.default_rng(1)
    K = kernel(X, X)
    pool = Pool(Exact(kernel, X), np.arange(0, 200, 2), 0.0)
    for more in (np.arange(1, 60, 2), np.arange(300, 310)):
        pool.join(more)
        own = K[np.ix_(pool.where, pool.where)]
        for size in (1, 15, 35):
            some = rng.permutation(len(pool.where))[:size]
            weights = rng.standard_normal(size)
            np.testing.assert_allclose(pool.among(some), own[np.ix_(some, some)], atol=1e-12 * np.abs(K).max())
            np.testing.assert_allclose(pool.times(some, weights), own[:, some] @ weights, atol=1e-11 * np.abs(K).max())


def test_what_is_quick_is_evaluated_again_and_what_is_not_is_kept() -> None:
    X, where = vectors(), np.arange(100)
    some, weights = np.arange(10), np.ones(10)
    for kernel, quick in [(krein.RBF(gamma=0.2), True), (krein.Laplacian(gamma=0.2), False), (as_kernel(rbf), False)]:
        with counting() as tally:
            pool = Pool(Exact(kernel, X), where, 1e6)
            pool.times(some, weights)
            before = tally.n_evaluations
            pool.times(some, weights)
            assert (tally.n_evaluations > before) == quick
    assert not Exact(krein.RBF(gamma=0.2), sp.csr_matrix(X)).is_quick
    assert not Exact(krein.RBF(gamma=0.2), vectors(50, rows.FEATURES + 1)).is_quick


def test_a_product_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "WIDTH", 33)
    X, kernel = vectors(), krein.RBF(gamma=0.2)
    b = np.where(np.arange(400) % 3 == 0, 0.0, np.random.default_rng(2).standard_normal(400))
    with counting() as tally:
        found = kernel_product(Evaluator(kernel, chunk_entries=500), X, b, X[:90])
    np.testing.assert_allclose(found, kernel(X[:90], X) @ b, atol=1e-12)
    assert tally.n_evaluations == 90 * np.count_nonzero(b)
    assert not kernel_product(Evaluator(kernel), X, np.zeros(400), X).any()


def test_single_precision_is_taken_where_no_row_minds() -> None:
    kernel = krein.RBF(gamma=0.2)
    X = vectors()
    for given in (X, X.astype(np.float32)):
        assert Exact(kernel, given).rounded(1e-5).objects.dtype == np.float32
        exact = Exact(kernel, given).rounded(1e-9)
        assert exact.objects.dtype == np.float64
        np.testing.assert_array_equal(exact.objects, given)
    far = X.copy()
    far[:5] += 1e6  # few rows, but a cluster of their own whose differences single precision does not see
    assert Exact(kernel, far).rounded(1e-5).objects.dtype == np.float64
    assert Exact(kernel, X + 1e9).rounded(1e-5).objects.dtype == np.float64
    assert Exact(krein.Polynomial(degree=3, gamma=1.0), 1e20 * X).rounded(1e-5).objects.dtype == np.float64  # overflows


def test_what_is_not_quick_stays_as_it_came() -> None:
    X = vectors()
    assert Exact(krein.Laplacian(gamma=0.2), X).rounded(1e-3).objects.dtype == np.float64
    assert Exact(as_kernel(rbf), X).rounded(1e-3).objects is X
    assert Exact(krein.Laplacian(gamma=0.2), X.astype(np.float32)).rounded(1e-12).objects.dtype == np.float64
    sparse = sp.csr_matrix(X.astype(np.float32))
    assert Exact(krein.RBF(gamma=0.2), sparse).rounded(1e-3).objects.dtype == np.float32
    assert Exact(krein.RBF(gamma=0.2), sparse).rounded(1e-12).objects.dtype == np.float64
    words = ["one", "two", "three"]
    assert Exact(krein.Spectrum(), words).rounded(1e-12).objects is words
