"""Bases in fewer bytes: orthonormal again, psd still, and an error that stays below its promise on kernel matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krein import Factorization, certify
from krein.errors import InputError
from krein.factorization import bases as module
from krein.factorization.bases import STORAGE, compress, dtype_name, gram, orthonormalise, tiles
from krein.factorization.core import BlockSparse
from strategies import dense_basis, dense_twin, make, norm_of, orthonormal, random_core, sparse_core

SMALLER = ("float32", "float16", "int8")
PROMISE = {"int8": 0.006, "float16": 0.0006, "float32": 1e-6}


def difficult_basis(rng: np.random.Generator, n: int, k: int, kind: str) -> np.ndarray:
    """Orthonormal columns that are hard to round."""
    B = rng.standard_normal((n, k))
    if kind == "spiky":
        B[rng.integers(0, n, k), np.arange(k)] += 30 * np.sqrt(n)
    elif kind == "heavy":
        B = rng.standard_t(1.1, (n, k))
    elif kind == "shared spike":
        B[0] = 1e4 * rng.standard_normal(k)
    elif kind == "units":
        B = np.eye(n)[:, rng.permutation(n)[:k]] + 1e-9 * B
    elif kind == "decades":
        B = B * np.logspace(0, -9, n)[:, None]
    return np.linalg.qr(B)[0]


KINDS = ("gaussian", "spiky", "heavy", "shared spike", "units", "decades")


@given(
    st.sampled_from(SMALLER),
    st.sampled_from(KINDS),
    st.integers(1, 60),
    st.integers(1, 12),
    st.sampled_from(["even", "one", "decades", "zero"]),
    st.integers(0, 2**32 - 1),
)
def test_what_is_stored_is_orthonormal_through_its_map(dtype, kind, n, k, weighting, seed):
    rng = np.random.default_rng(seed)
    k = min(n, k)
    U = difficult_basis(rng, n, k, kind)
    strength = {"even": np.ones(k), "one": np.eye(k)[0], "decades": np.logspace(0, -8, k), "zero": np.zeros(k)}[
        weighting
    ]
    B, A, T = compress(U.copy(), dtype, orthonormal(rng, k, k) * strength)
    assert B.dtype == dtype
    V = B.astype(float) @ A
    r = V.shape[1]
    assert 1 <= r <= k
    assert np.abs(V.T @ V - np.eye(r)).max() <= 1e-13
    assert np.abs(T - V.T @ U).max() <= 1e-12
    assert np.linalg.norm(T, 2) <= 1 + 1e-12
    if dtype == "float32":
        assert r == k


@given(
    st.sampled_from(SMALLER), st.sampled_from(KINDS), st.sampled_from(["psd", "low", "zero"]), st.integers(0, 2**32 - 1)
)
def test_psd_stays_psd(dtype, kind, core, seed):
    rng = np.random.default_rng(seed)
    sizes, ranks = [20, 7, 30], [4, 7, 0]
    M = random_core(rng, 11, core)
    f = Factorization.from_blocks(
        tuple(difficult_basis(rng, n, k, kind) if k else np.zeros((n, 0)) for n, k in zip(sizes, ranks, strict=True)),
        M @ M,
        rng.permutation(57),
    )
    assert certify(f)
    g = f.astype(dtype)
    assert certify(g)
    K = dense_twin(g)
    assert np.linalg.eigvalsh(K)[0] >= -1e-13 * (norm_of(K) + norm_of(M @ M))
    assert g.frobenius() <= f.frobenius() * (1 + 1e-12)  # a projection of it


def test_directions_lost_to_rounding_are_left_out():
    """Two columns with one spike over a rest too flat for a byte become the same, unless the core uses them."""
    n = 100_000
    flat = np.where(np.arange(n) % 2, 1.0, -1.0)
    flat[0] = 0.0
    U = np.column_stack(
        [np.eye(n, 1)[:, 0] + flat / np.linalg.norm(flat), np.eye(n, 1)[:, 0] - flat / np.linalg.norm(flat)]
    )
    U /= np.sqrt(2.0)
    assert np.abs(U.T @ U - np.eye(2)).max() < 1e-12
    order = np.random.default_rng(0).permutation(n + 3)
    unused = Factorization.from_blocks((U, np.eye(3)), np.diag([0.0, 0.0, 1.0, 2.0, 3.0]), order).astype("int8")
    assert unused.ranks == (1, 3)
    assert unused.core.shape == (4, 4)
    assert unused.frobenius() == pytest.approx(np.sqrt(14.0), rel=1e-12)
    f = Factorization.from_blocks((U, np.eye(3)), np.diag([1.0, -1.0, 1.0, 2.0, 3.0]), order)
    used = f.astype("int8")
    assert used.ranks == (2, 3)
    assert used.frobenius() == pytest.approx(f.frobenius(), rel=0.006)
    for g in (unused, used):
        for G, k in zip(g.gram(np.ones(n + 3)), g.ranks, strict=True):
            assert np.abs(G - np.eye(k)).max() <= 1e-13


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_byte_is_worth_254_steps(kind, monkeypatch):
    monkeypatch.setitem(module._SMALL, "int8", module._SMALL["int8"]._replace(target=0.0))
    U = difficult_basis(np.random.default_rng(3), 80, 5, kind)
    B, A, T = compress(U.copy(), "int8", np.diag([5.0, 4.0, 3.0, 2.0, 1.0]))
    assert B.shape[1] > 5  # "units" round without error, but for the rest
    assert np.abs(B.astype(float) @ A @ T - U).max() <= 2 * np.abs(U).max() / 127 / 254


# -- on kernel matrices ------------------------------------------------------------------------------------------------


def rbf(X: np.ndarray) -> np.ndarray:
    return np.exp(-((X[:, None] - X) ** 2).sum(-1) / X.shape[1])


def elm(X: np.ndarray) -> np.ndarray:
    G = X @ X.T
    d = 1e-3 + np.diag(G)
    return 2 / np.pi * np.arcsin(np.clip(G / np.sqrt(np.outer(d, d)), -1, 1))


def linear(X: np.ndarray) -> np.ndarray:
    return X @ X.T


def tl1(X: np.ndarray) -> np.ndarray:
    return np.maximum(0.7 * X.shape[1] - np.abs(X[:, None] - X).sum(-1), 0)


def spiky(X: np.ndarray) -> np.ndarray:
    """A few features that fire on a few rows alone, beside a smooth kernel."""
    rng = np.random.default_rng(5)
    S = np.zeros((len(X), 6))
    S[rng.integers(0, len(X), 12), rng.integers(0, 6, 12)] = 5.0
    return rbf(X) + S @ S.T


def heavy(X: np.ndarray) -> np.ndarray:
    Y = np.random.default_rng(6).standard_t(1.3, (len(X), 8))
    return Y @ Y.T + rbf(X)


KERNELS = {"rbf": rbf, "elm": elm, "linear": linear, "tl1": tl1, "spiky": spiky, "heavy": heavy}


def seen_in_bases(K: np.ndarray, c: int, k: int, sparse: bool, rng: np.random.Generator) -> Factorization:
    """The best core for the leading k singular vectors of each block's rows; k >= n_i gives all of them."""
    order = rng.permutation(len(K))
    parts = np.array_split(order, c)
    bases = [np.linalg.svd(K[part], full_matrices=False)[0][:, :k] for part in parts]
    blocks = {
        (i, j): bases[i].T @ K[np.ix_(parts[i], parts[j])] @ bases[j]
        for i in range(c)
        for j in range(i, c)
        if not sparse or i == j
    }
    core = BlockSparse.from_blocks([b.shape[1] for b in bases], blocks)
    return Factorization.from_blocks(tuple(bases), core if sparse else core.to_dense(), order)


@pytest.mark.parametrize("dtype", SMALLER)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("c", "k"), [(1, 40), (4, 4), (10, 3), (30, 10)])
def test_the_error_added_on_kernel_matrices_is_small(kernel, dtype, c, k):
    """err² <= err64² + promise², against the exact kernel; (30, 10) has n_i = k_i.

    Rounding errors are nearly orthogonal to err64's, so they add in squares; the targets leave room for what is not.
    """
    rng = np.random.default_rng(11)
    K = KERNELS[kernel](rng.standard_normal((300, 4)))
    for sparse in (False, True):
        f = seen_in_bases(K, c, k, sparse, rng)
        g = f.astype(dtype)
        exact, rounded = (np.linalg.norm(K - dense_twin(h)) / np.linalg.norm(K) for h in (f, g))
        assert np.linalg.norm(dense_twin(f) - dense_twin(g)) <= PROMISE[dtype] * np.linalg.norm(dense_twin(f))
        if dtype != "float32":
            assert rounded**2 <= exact**2 + PROMISE[dtype] ** 2
        U = dense_basis(g)
        assert np.abs(U.T @ U - np.eye(g.rank)).max() <= 1e-13


def test_the_bytes_are_fewer():
    rng = np.random.default_rng(0)
    f = seen_in_bases(rbf(rng.standard_normal((1200, 4))), 4, 12, False, rng)
    held = {dtype: f.astype(dtype).nbytes for dtype in STORAGE}
    assert held["float64"] == f.nbytes
    bases = sum(b.nbytes for b in f.bases)
    fixed = f.core.nbytes + f.order.nbytes
    maps = 4 * 12 * 12 * 8
    assert held["float32"] == bases // 2 + maps + fixed
    assert held["float16"] <= bases // 2 + 2 * maps + fixed  # at most two numbers for each
    assert held["int8"] <= bases // 4 + 2 * maps + fixed
    assert held["int8"] < held["float16"] < held["float32"] < held["float64"]


# -- the pieces --------------------------------------------------------------------------------------------------------


def test_tiles_and_gram_do_not_depend_on_the_tile(monkeypatch):
    rng = np.random.default_rng(0)
    B = rng.integers(-127, 128, (50, 3)).astype(np.int8)
    weights = rng.standard_normal(50)
    f = make(rng, [50, 31], [4, 3], shift=0.2).astype("int8")
    wanted, whole = gram(B, weights), f.to_dense()
    spots = make(np.random.default_rng(1), [50], [4]).astype("int8")
    monkeypatch.setattr(module, "TILE_ROWS", 1)
    monkeypatch.setattr(module, "TILE", 20)
    assert len(list(tiles(B))) > 5
    assert np.array_equal(np.concatenate([part for _, part in tiles(B)]), B)
    assert np.allclose(gram(B, weights), wanted, rtol=1e-13)
    assert np.allclose(gram(B, weights), B.T.astype(float) @ (weights[:, None] * B), rtol=1e-12)
    assert np.allclose(f.to_dense(), whole, atol=1e-14)
    again = make(np.random.default_rng(1), [50], [4]).astype("int8")
    assert np.array_equal(again.bases[0], spots.bases[0])


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8), st.integers(0, 2**32 - 1))
def test_orthonormalise(n, k, q, seed):
    rng = np.random.default_rng(seed)
    Q = rng.standard_normal((n, q)) @ rng.standard_normal((q, k))
    U, R = orthonormalise(Q.copy())
    assert U.shape == (n, min(n, k))
    assert np.abs(U @ R - Q).max(initial=0.0) <= 1e-13 * (1 + norm_of(Q))
    assert np.abs(U.T @ U - np.eye(min(n, k))).max(initial=0.0) <= 1e-13


def test_rank_zero_blocks_are_stored_in_every_type():
    core = sparse_core(np.random.default_rng(0), [2, 0], 1.0)
    f = make(np.random.default_rng(0), [4, 3], [2, 0], core)
    for dtype in STORAGE:
        assert f.astype(dtype).dtype == dtype
        assert f.astype(dtype).ranks == (2, 0)


def test_dtype_names():
    assert [dtype_name(d) for d in (float, np.float32, "int8", np.dtype("float16"))] == [
        "float64",
        "float32",
        "int8",
        "float16",
    ]
    with pytest.raises(InputError, match="dtype must be one of 'float64', 'float32', 'float16', 'int8'; got 'int16'"):
        dtype_name(np.int16)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.2, 0.3, 1.0])
def test_rows_where_a_vector_is_zero_may_be_left_out(dtype, share, monkeypatch):
    rng = np.random.default_rng(0)
    B = rng.standard_normal((500, 7)).astype(dtype)
    x = np.where(rng.random(500) < share, rng.standard_normal(500), 0.0)
    for tile in (module.TILE, 64):
        monkeypatch.setattr(module, "TILE", tile)
        found = module.transposed_product(B, x)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, B.astype(float).T @ x, rtol=1e-12, atol=1e-12)
