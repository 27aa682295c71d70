"""Centring on the factored matrix against dense algebra on H K H."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn.datasets import make_blobs

import krein
from krein.errors import IndefiniteError, InputError, KreinWarning
from krein.estimators import eigenpairs
from krein.estimators import kernel_pca as embedding
from krein.estimators.eigenpairs import Search
from krein.estimators.kernel_pca import Centred, KernelPCA
from krein.factorization import Factorization
from krein.factorization.core import BlockSparse
from strategies import (
    EPS,
    dense_basis,
    dense_core,
    dense_twin,
    diagonal_core,
    factorizations,
    make,
    norm_of,
    sparse_core,
)


def centring(n: int) -> np.ndarray:
    return np.eye(n) - 1.0 / n


def as_blocks(f: Factorization) -> Factorization:
    """The same factorization with its dense core cut into a BlockSparse."""
    spans = [cols for _, cols in f.spans]
    blocks = {(i, j): f.core[spans[i], spans[j]] for i in range(len(spans)) for j in range(i, len(spans))}
    return f.with_core(BlockSparse.from_blocks(f.ranks, {k: b for k, b in blocks.items() if np.abs(b).max()}), f.shift)


@given(factorizations())
def test_the_centred_core_has_the_spectrum_of_the_centred_matrix(f: Factorization) -> None:
    n = f.shape[0]
    U, M = dense_basis(f), dense_core(f.core)
    H = centring(n)
    wanted = np.linalg.eigvalsh(H @ U @ M @ U.T @ H)
    found = np.linalg.eigvalsh(Centred(f).dense())
    both = np.sort(np.concatenate([found, np.zeros(max(0, n - len(found)))]))
    assert len(both) == n
    assert np.abs(both - np.sort(wanted)).max(initial=0.0) <= 1e3 * EPS * norm_of(M) + 1e-300


@given(factorizations())
def test_the_centred_product_is_that_of_the_dense_one(f: Factorization) -> None:
    c = Centred(f)
    whole = np.column_stack([c.product(column) for column in np.eye(f.rank)]) if f.rank else np.zeros((0, 0))
    assert np.array_equal(c.dense(), c.dense().T)
    assert np.abs(whole - c.dense()).max(initial=0.0) <= 1e3 * EPS * norm_of(c.dense()) + 1e3 * EPS * norm_of(
        dense_core(f.core)
    )
    assert (
        np.abs(c.root(c.root(np.eye(f.rank))) - (np.eye(f.rank) - f.shape[0] * np.outer(c.mean, c.mean))).max(
            initial=0.0
        )
        <= 1e3 * EPS
    )


def test_the_constant_vector_in_the_span_leaves_nothing_of_its_direction() -> None:
    for seed in range(20):
        f = make(np.random.default_rng(seed), [30, 40], [30, 40])  # full rank: 1 lies in the span
        assert Centred(f).outside == 0.0
    rng = np.random.default_rng(0)
    c = Centred(make(rng, [30, 40], [5, 6]))
    assert c.outside == pytest.approx(np.sqrt(1 - 70 * (c.mean @ c.mean)), rel=1e-12)


X, _ = make_blobs(400, n_features=3, centers=6, random_state=1)
KERNELS: dict[str, Any] = {
    "psd": krein.RBF(gamma=0.1),
    "linear": krein.Linear(),
    "indefinite": krein.Sigmoid(gamma=0.1, coef0=-1.0),
}
CORES = ("dense", "sparse", "diagonal")


@cache
def approximation(name: str, core: str) -> krein.Approximation:
    a = krein.approximate(X, KERNELS[name], n_blocks=5, rank=8, random_state=0)
    if core == "dense":
        return a
    f = as_blocks(a.factorization)
    assert isinstance(f.core, BlockSparse)
    if core == "diagonal":
        kept = dict(enumerate(f.core.diagonal_blocks()))
        f = f.with_core(BlockSparse.from_blocks(f.ranks, {(i, i): block for i, block in kept.items()}), 0.0)
    return replace(a, factorization=f)


def quiet_fit(model: KernelPCA) -> np.ndarray:
    with pytest.warns(KreinWarning, match="indefinite"):
        return model.fit_transform(X)


@pytest.mark.parametrize("correction", ["auto", "clip", "flip", "shift", "square"])
@pytest.mark.parametrize("solver", ["dense", "arpack"])
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name", ["psd", "indefinite"])
def test_components_are_those_of_the_dense_centred_matrix(name: str, core: str, solver: str, correction: str) -> None:
    a = approximation(name, core)
    model = KernelPCA(4, kernel=a.kernel, approximation=a, correction=correction, eigen_solver=solver)
    Z = quiet_fit(model) if name == "indefinite" else model.fit_transform(X)
    f = model.approximation_.factorization
    H, K = centring(len(X)), dense_twin(f)
    values, vectors = np.linalg.eigh(H @ K @ H)
    values, vectors = values[::-1][:4], vectors[:, ::-1][:, :4]
    V = model.eigenvectors_
    assert np.allclose(model.eigenvalues_, values, rtol=1e-9)
    assert np.allclose(np.abs((V * vectors).sum(0)), 1.0, atol=1e-8)
    assert np.allclose(V.T @ V, np.eye(4), atol=1e-9)
    assert np.abs(V.sum(0)).max() < 1e-9
    assert (V[np.abs(V).argmax(0), np.arange(4)] > 0).all()
    # new objects: KernelCenterer's formula on the rows of the kernel
    new = X[::7] + 0.01
    k, K0 = model.approximation_.kernel_rows(new), K - f.shift * np.eye(len(X))
    wanted = (k - k.mean(1, keepdims=True) - K0.mean(0) + K0.mean()) @ V / np.sqrt(values)
    assert np.allclose(model.transform(new), wanted, atol=1e-8 * np.abs(wanted).max())
    assert np.allclose(model.transform(X), Z, atol=1e-8 * np.abs(Z).max())
    if f.shift == 0.0:
        assert np.allclose(Z, V * np.sqrt(values), atol=1e-8 * np.abs(Z).max())


def test_clipping_comes_after_centring_and_drops_what_is_negative() -> None:
    a = approximation("indefinite", "dense")
    model = KernelPCA(kernel=a.kernel, approximation=a)
    quiet_fit(model)
    H = centring(len(X))
    values = np.linalg.eigvalsh(H @ dense_twin(a.factorization) @ H)[::-1]
    positive = values[values > 1e-12 * values[0]]
    assert model.correction_ == "clip"
    assert model.n_negative_ > 0
    assert np.allclose(model.eigenvalues_, positive[: len(model.eigenvalues_)], rtol=1e-8, atol=1e-9 * values[0])
    assert abs(len(model.eigenvalues_) - len(positive)) <= 1  # the last may be rounding
    with pytest.raises(IndefiniteError, match="There are significant negative eigenvalues"):
        KernelPCA(40, kernel=a.kernel, approximation=a, correction="none").fit(X)
    few = KernelPCA(2, kernel=a.kernel, approximation=a, correction="none").fit(X)
    assert np.allclose(few.eigenvalues_, values[:2])


def test_the_solvers_find_the_same() -> None:
    rng = np.random.default_rng(3)
    V = np.linalg.qr(rng.standard_normal((60, 60)))[0]
    A = (V * np.linspace(3.0, -0.1, 60) ** 3) @ V.T
    reference = np.linalg.eigvalsh(A)[::-1][:5]
    for solver in ("auto", "dense", "arpack", "randomized"):
        pairs = eigenpairs.leading(A.__matmul__, lambda: A, 60, 5, Search(solver, power=40))
        assert np.allclose(pairs.values, reference, rtol=1e-6)
        assert np.allclose(A @ pairs.vectors, pairs.vectors * pairs.values, atol=1e-3)
    assert eigenpairs.leading(A.__matmul__, lambda: A, 60, 60, Search("arpack")).values.shape == (60,)
    assert eigenpairs.leading(A.__matmul__, lambda: A, 60, 0, Search()).vectors.shape == (60, 0)
    zero = eigenpairs.leading(lambda x: 0.0 * x, lambda: np.zeros((60, 60)), 60, 3, Search("arpack"))
    assert np.allclose(zero.values, 0.0)


def test_a_core_too_large_for_all_components_gives_the_leading_ones_and_says_so(monkeypatch: Any) -> None:
    a = approximation("psd", "sparse")
    monkeypatch.setattr(embedding, "DENSE_LIMIT", 30)
    monkeypatch.setattr(embedding, "MOST_COMPONENTS", 6)
    with pytest.warns(KreinWarning, match="n_components=None asks for all"):
        model = KernelPCA(kernel=a.kernel, approximation=a).fit(X)
    assert model.eigenvalues_.shape == (6,)
    monkeypatch.setattr(eigenpairs, "DENSE_LIMIT", 30)
    with pytest.raises(InputError, match="dense algebra is kept to 30"):
        KernelPCA(3, kernel=a.kernel, approximation=a, eigen_solver="dense").fit(X)


@pytest.mark.parametrize("seed", range(3))
def test_random_cores_with_and_without_blocks(seed: int) -> None:
    """More blocks than components, some of rank 0, cores that fall apart."""
    rng = np.random.default_rng(seed)
    sizes, ranks = [9, 20, 15, 1, 30], [3, 0, 6, 1, 9]
    for core in (sparse_core(rng, ranks, 0.5, 2.0), diagonal_core(rng, ranks, "psd")):
        f = make(rng, sizes, ranks, core, 0.3)
        H = centring(75)
        values = np.linalg.eigvalsh(H @ (dense_twin(f) - 0.3 * np.eye(75)) @ H)[::-1][:6]
        c = Centred(f)
        pairs = eigenpairs.leading(c.product, c.dense, f.rank, 6, Search("arpack", seed=seed))
        assert np.allclose(pairs.values, values, atol=1e-10)
        V = c.lift(pairs.vectors)
        assert np.allclose(V.T @ V, np.eye(6), atol=1e-9)
        assert np.allclose(H @ (dense_twin(f) @ V), V * (pairs.values + 0.3), atol=1e-9)
