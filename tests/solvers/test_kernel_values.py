"""Rows of a kernel's matrix, evaluated again or kept, against the matrix itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krein
from krein.kernels import counting
from krein.kernels.similarities import as_kernel
from krein.solvers import kernel_values
from krein.solvers.kernel_values import KernelValues
from krein.solvers.smo import Pool


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
@pytest.mark.parametrize("tile", [kernel_values.TILE, 300])
@pytest.mark.parametrize("room", [0, 30, 400], ids=["nothing is kept", "some rows are", "all rows are"])
def test_a_pool_is_the_matrix(kernel: Any, tile: int, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TILE", tile), ("TILE_COLUMNS", 70), ("TILE_ROWS", 16)):
        monkeypatch.setattr(kernel_values, name, value)
    X, rng = vectors(), np.random.default_rng(1)
    K = kernel(X, X)
    where = np.concatenate([np.arange(0, 200, 2), np.arange(300, 310)])
    own = K[np.ix_(where, where)]
    pool = Pool(KernelValues(kernel, X), where, 8.0 * room * len(where))
    for size in (1, 15, 35, 60):
        some = rng.permutation(len(where))[:size]
        weights = rng.standard_normal(size)
        np.testing.assert_allclose(pool.among(some), own[np.ix_(some, some)], atol=1e-12 * np.abs(K).max())
        np.testing.assert_allclose(pool.times(some, weights), own[:, some] @ weights, atol=1e-11 * np.abs(K).max())


@pytest.mark.parametrize("kernel", KERNELS, ids=["rbf", "laplacian", "callable", "poly"])
@pytest.mark.parametrize("n", [1, 69, 400])
def test_the_whole_matrix(kernel: Any, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_values, "TILE_COLUMNS", 70)
    X = vectors(n)
    found = KernelValues(kernel, X).matrix()
    np.testing.assert_allclose(found, kernel(X, X), atol=1e-12 * np.abs(found).max())
    np.testing.assert_array_equal(found, found.T)
    with counting() as tally:
        KernelValues(krein.RBF(gamma=0.2), X).matrix()
    assert tally.n_evaluations <= n * (n + 70) / 2 + n  # each pair once, but for tiles on the diagonal


def test_rows_that_are_kept_are_not_evaluated_again() -> None:
    X, where = vectors(), np.arange(100)
    some, weights = np.arange(10), np.ones(10)
    for kernel in KERNELS:
        with counting() as tally:
            pool = Pool(KernelValues(kernel, X), where, 1e6)
            pool.times(some, weights)
            before = tally.n_evaluations
            pool.times(some, weights)
            pool.among(some)
            assert tally.n_evaluations == before
            none = Pool(KernelValues(kernel, X), where, 0.0)
            none.times(some, weights)
            before = tally.n_evaluations
            none.times(some, weights)
            assert tally.n_evaluations == before + 1000
    assert KernelValues(krein.RBF(gamma=0.2), X).is_quick
    assert not KernelValues(krein.Laplacian(gamma=0.2), X).is_quick
    assert not KernelValues(krein.RBF(gamma=0.2), sp.csr_matrix(X)).is_quick
    assert not KernelValues(krein.RBF(gamma=0.2), vectors(50, kernel_values.QUICK_FEATURES + 1)).is_quick


def test_rows_far_from_the_origin_keep_their_digits() -> None:
    X, kernel = vectors() + 1e9, krein.RBF(gamma=0.2)
    np.testing.assert_allclose(KernelValues(kernel, X).matrix(), rbf(X, X), atol=1e-6)
    X = vectors()
    X[:5] += 1e6
    np.testing.assert_allclose(KernelValues(kernel, X).matrix(), rbf(X, X), atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_far_from_the_others_are_compared_by_their_differences(
    dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_values, "TILE_COLUMNS", 70)
    monkeypatch.setattr(kernel_values, "TILE_ROWS", 16)
    X, kernel = vectors(), krein.RBF(gamma=0.2)
    X[::37] += 300.0 if dtype == np.float32 else 1e4  # near each other, and in no tile alone
    X = X.astype(dtype)
    exact = KernelValues(kernel, X)
    assert exact._points is not None
    wanted, b = rbf(X.astype(np.float64), X.astype(np.float64)), np.random.default_rng(1).standard_normal(400)
    tolerance = 1e-4 if dtype == np.float32 else 1e-8
    np.testing.assert_allclose(exact.block(exact.chosen(), exact.chosen()), wanted, atol=tolerance)
    np.testing.assert_allclose(exact.product(b), wanted @ b, atol=20 * tolerance)
    np.testing.assert_allclose(kernel(X), wanted, atol=tolerance)  # the kernel itself does the same


def test_a_product_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_values, "TILE_COLUMNS", 33)
    X = vectors()
    b = np.where(np.arange(400) % 3 == 0, 0.0, np.random.default_rng(2).standard_normal(400))
    for given in KERNELS:
        exact, weights = KernelValues(given, X), np.random.default_rng(3).standard_normal((400, 2))
        with counting() as tally:
            found = KernelValues(given, X).product(b, np.arange(90))
        np.testing.assert_allclose(found, given(X[:90], X) @ b, atol=1e-11)
        assert tally.n_evaluations >= 90 * np.count_nonzero(b)
        assert tally.n_evaluations <= 90 * np.count_nonzero(b) + 1  # and one to learn the type of the values
        assert not exact.product(np.zeros(400)).any()
        found = exact.times(exact.chosen(np.arange(90)), exact.chosen(), weights)
        np.testing.assert_allclose(found, given(X[:90], X) @ weights, atol=1e-10)


def test_single_precision_is_taken_where_no_row_minds() -> None:
    kernel = krein.RBF(gamma=0.2)
    X = vectors()
    for given in (X, X.astype(np.float32)):
        assert KernelValues(kernel, given).rounded(1e-5).objects.dtype == np.float32
        exact = KernelValues(kernel, given).rounded(1e-9)
        assert exact.objects.dtype == np.float64
        np.testing.assert_array_equal(exact.objects, given)
    far = X.copy()
    far[:5] += 1e6  # few rows, but a cluster of their own whose differences single precision does not see
    assert KernelValues(kernel, far).rounded(1e-5).objects.dtype == np.float64
    assert KernelValues(kernel, X + 1e9).rounded(1e-5).objects.dtype == np.float64
    assert (
        KernelValues(krein.Polynomial(degree=3, gamma=1.0), 1e20 * X).rounded(1e-5).objects.dtype == np.float64
    )  # overflows


def test_products_in_single_precision_of_rows_rounded_after_they_are_centred() -> None:
    kernel, X, b = krein.RBF(gamma=0.2), vectors(), np.random.default_rng(1).standard_normal(400)
    length, wanted = float(np.linalg.norm(b)), kernel(X, X) @ b
    for given in (X, X + 1e4):  # far from the origin, where rows rounded as they are would lose all digits
        single = KernelValues(kernel, given).in_single(length, 1e-4)
        assert single.dtype == np.float32
        np.testing.assert_allclose(single.product(b), wanted, atol=1e-4)
        assert KernelValues(kernel, given).in_single(length, 1e-6).dtype == np.float64
    far = X.copy()
    far[0] += 1e4
    assert KernelValues(kernel, far).in_single(length, 1e-4).dtype == np.float64
    laplacian = KernelValues(krein.Laplacian(gamma=0.2), X)
    assert laplacian.in_single(length, 1e-4) is laplacian


def test_what_is_not_quick_stays_as_it_came() -> None:
    X = vectors()
    assert KernelValues(krein.Laplacian(gamma=0.2), X).rounded(1e-3).objects.dtype == np.float64
    assert KernelValues(as_kernel(rbf), X).rounded(1e-3).objects is X
    assert KernelValues(krein.Laplacian(gamma=0.2), X.astype(np.float32)).rounded(1e-12).objects.dtype == np.float64
    sparse = sp.csr_matrix(X.astype(np.float32))
    assert KernelValues(krein.RBF(gamma=0.2), sparse).rounded(1e-3).objects.dtype == np.float32
    assert KernelValues(krein.RBF(gamma=0.2), sparse).rounded(1e-12).objects.dtype == np.float64
    words = ["one", "two", "three"]
    assert KernelValues(krein.Spectrum(), words).rounded(1e-12).objects is words
