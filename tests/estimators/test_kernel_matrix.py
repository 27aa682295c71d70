"""The kernel's own matrix, filled in strips, and the signs of its eigenvalues, against dense algebra."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krein
from krein.errors import KernelError
from krein.estimators import eigenpairs
from krein.estimators import kernel_matrix as subject
from krein.estimators.eigenpairs import inertia, product_with
from krein.estimators.kernel_matrix import kernel_matrix
from krein.kernels import Evaluator

X = np.random.default_rng(0).standard_normal((150, 7))
WIDE = np.random.default_rng(1).standard_normal((150, 90))


@pytest.mark.parametrize("rows", [0, 1000], ids=["strips", "whole"])
@pytest.mark.parametrize("objects", [X, WIDE, sp.csr_matrix(X), WIDE.astype(np.float32)], ids=["7", "90", "csr", "f4"])
@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.02), krein.Laplacian(gamma=0.1), krein.Polynomial(gamma=0.1)])
def test_the_matrix_is_the_kernels_own(kernel: Any, objects: Any, rows: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(subject, "WHOLE_ROWS", rows)
    K = kernel_matrix(kernel, objects)
    wanted = kernel(np.asarray(objects.todense() if sp.issparse(objects) else objects, dtype=np.float64))
    assert K.dtype == np.float64
    assert np.array_equal(K, K.T)
    assert np.allclose(K, wanted, rtol=1e-9, atol=1e-12)


def test_strips_evaluate_little_more_than_half(monkeypatch: Any) -> None:
    monkeypatch.setattr(subject, "WHOLE_ROWS", 0)
    counted: list[int] = []
    block = Evaluator.block
    monkeypatch.setattr(Evaluator, "block", lambda self, A, B: counted.append(len(A) * len(B)) or block(self, A, B))
    kernel_matrix(krein.RBF(gamma=0.1), X)
    assert sum(counted) < 0.6 * 150**2


def test_a_users_kernel_is_checked_for_symmetry() -> None:
    with pytest.raises(KernelError, match="must be symmetric"):
        kernel_matrix(krein.kernels.FromCallable(lambda A, B: A[:, :1] + 0.0 * B[:, 0]), X)


@pytest.mark.parametrize("small", [0, 300], ids=["factorization", "eigenvalues"])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("negative", [0, 1, 40, 150])
def test_inertia_counts_the_negative_eigenvalues(negative: int, scale: float, small: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(eigenpairs, "SMALL_MATRIX", small)
    V = np.linalg.qr(np.random.default_rng(negative).standard_normal((150, 150)))[0]
    values = np.linspace(1.0, 2.0, 150)
    values[:negative] = -np.linspace(0.1, 3.0, 150)[:negative]
    found = inertia(((V * values) @ V.T) * scale)
    assert found.n_negative == negative
    assert found.smallest == pytest.approx(min(values.min(), 0.0) * scale, rel=1e-3)


@pytest.mark.parametrize("small", [0, 300])
def test_rounding_is_no_negative_eigenvalue(small: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(eigenpairs, "SMALL_MATRIX", small)
    assert inertia(X @ X.T).n_negative == 0  # rank 7 of 150
    assert inertia(np.zeros((40, 40))).n_negative == 0
    assert inertia(np.zeros((40, 40)) + np.eye(40)[::-1]).n_negative == 20  # pivots of two rows


def test_products_with_one_vector_and_with_several() -> None:
    K = X @ X.T
    for A in (K, np.asfortranarray(K)):
        assert np.allclose(product_with(A)(X[:, 0]), K @ X[:, 0])
        assert np.allclose(product_with(A)(X), K @ X)
