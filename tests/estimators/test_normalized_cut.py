"""The normalised cut on the factored matrix against dense algebra on the Laplacian."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse.linalg as spla
from scipy.sparse.csgraph import laplacian
from sklearn.datasets import make_blobs

import krein
from krein.errors import InputError
from krein.estimators import normalized_cut as cut
from krein.estimators.normalized_cut import degrees, exact_cut, normalised_cut
from krein.factorization import Factorization
from krein.factorization.core import BlockSparse
from strategies import dense_core, dense_twin, make

X, _ = make_blobs(240, n_features=2, centers=8, random_state=3)


def cores(kind: str, kernel: Any = krein.RBF(gamma=0.2)) -> Factorization:  # noqa: B008
    """The same bases with a dense core, one of all blocks, one that falls apart, and one with a shift."""
    f = krein.approximate(X, kernel, n_blocks=8, rank=9, random_state=0).factorization
    if kind == "dense":
        return f
    if kind == "shifted":
        return f.with_core(f.core, 0.7)
    spans, M = [cols for _, cols in f.spans], dense_core(f.core)
    pairs = [(i, j) for i in range(8) for j in range(i, 8) if kind == "sparse" or i // 2 == j // 2]
    return f.with_core(BlockSparse.from_blocks(f.ranks, {(i, j): M[spans[i], spans[j]] for i, j in pairs}), 0.0)


def dense_cut(K: np.ndarray, wanted: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(eigenvalues, the matrix A, root of the degrees) by SciPy's Laplacian."""
    L, root = laplacian(K, normed=True, return_diag=True)
    A = np.eye(len(K)) - L
    return np.linalg.eigvalsh(A)[::-1][:wanted], A, root


@pytest.mark.parametrize("kind", ["dense", "shifted", "sparse", "groups"])
@pytest.mark.parametrize("wanted", [1, 5])
def test_the_cut_is_that_of_the_dense_laplacian(kind: str, wanted: int) -> None:
    f = cores(kind)
    d = degrees(f)
    values, A, root = dense_cut(dense_twin(f), wanted)
    assert d.n_nonpositive == 0
    assert np.allclose(np.sqrt(d.sums), root, rtol=1e-9)
    found = normalised_cut(f, d, wanted)
    vectors = found.embedding * root[:, None]
    assert np.allclose(found.values, values, atol=1e-10)
    assert np.allclose(A @ vectors, vectors * found.values, atol=1e-8)
    assert np.allclose(vectors.T @ vectors, np.eye(wanted), atol=1e-8)


def test_small_and_exact_ways_agree_with_it(monkeypatch: Any) -> None:
    f = cores("dense")
    K = dense_twin(f)
    found = normalised_cut(f, degrees(f), 4)
    for limit in (1000, 0):
        monkeypatch.setattr(cut, "SMALL_GRAPH", limit)
        exact, d = exact_cut(K.copy(), 4)
        assert d.n_nonpositive == 0
        assert np.allclose(exact.values, found.values, atol=1e-10)
        assert np.allclose(normalised_cut(f, degrees(f), 4).values, found.values, atol=1e-10)


def test_the_inverse_is_one(monkeypatch: Any) -> None:
    """(σ I - A)⁻¹ by Woodbury against the inverse itself, for cores of both kinds, one too large to factor."""
    for kind, limit in (("dense", None), ("sparse", None), ("sparse", 0)):
        f = cores(kind)
        if limit is not None:
            monkeypatch.setattr(BlockSparse, "can_factor", False)
        d = degrees(f)
        sigma, inverse = cut._resolvent(f, d)
        _, A, _ = dense_cut(dense_twin(f), 1)
        x = np.random.default_rng(0).standard_normal(len(X))
        wanted = np.linalg.solve(sigma * np.eye(len(X)) - A, x)
        assert np.allclose(inverse(x), wanted, atol=1e-6 * np.abs(wanted).max())


def test_a_spectrum_that_ends_above_one_is_found_too() -> None:
    """Negative similarities let it: σ moves up until the factorization proves that it is above."""
    rng = np.random.default_rng(1)
    f = make(rng, [70, 80], [6, 7], "indefinite")
    ones = f.project(np.ones(150))
    f = f.with_core(f.core + 0.02 * np.outer(ones, ones), 0.0)
    d = degrees(f)
    root = np.sqrt(d.sums)
    K = dense_twin(f)
    np.fill_diagonal(K, 0.0)
    A = K / root / root[:, None]
    wanted = np.linalg.eigvalsh(A)[::-1][:3]
    assert wanted[0] > 1.01
    assert np.allclose(normalised_cut(f, d, 3).values, wanted, atol=1e-8)


def test_degrees_that_no_cut_can_use_are_replaced_and_counted() -> None:
    K = np.ones((6, 6))
    K[5, :5] = K[:5, 5] = [-1.0, 0.2, 0.2, 0.2, 0.2]
    values, vectors = np.linalg.eigh(K)
    f = Factorization.from_blocks((vectors,), np.diag(values), np.arange(6))
    d = degrees(f)
    assert d.n_nonpositive == 1
    assert np.allclose(d.own, 1.0)
    assert np.allclose(d.sums, [3.0, 4.2, 4.2, 4.2, 4.2, 4.2])  # the last is the median of the others
    lonely = degrees(Factorization.from_blocks((np.eye(4),), np.eye(4), np.arange(4)))
    assert lonely.n_nonpositive == 4
    assert np.array_equal(lonely.sums, np.ones(4))


@pytest.mark.parametrize("few", [0, 1000])
def test_pieces_of_a_graph_are_counted(few: int, monkeypatch: Any) -> None:
    """A graph of 12 cliques of 10, and 3 rows alone: eigenvalue 1 twelve times, eigenvectors constant on cliques."""
    monkeypatch.setattr(cut, "SMALL_GRAPH", few)
    K = np.zeros((123, 123))
    K[:120, :120] = np.kron(np.eye(12), np.ones((10, 10)))
    for wanted, told in ((2, 12), (12, 12), (20, 12)):
        found, d = exact_cut(K.copy(), wanted)
        assert d.n_nonpositive == 3
        assert found.n_pieces == told
        assert np.allclose(found.values[:12], 1.0)
        inside = found.embedding[:120, :12].reshape(12, 10, -1)
        assert np.allclose(inside, inside[:, :1], atol=1e-8)
    linked = K.copy()
    linked[:120, :120] += 1e-3
    assert exact_cut(linked, 2)[0].n_pieces == 1


def no_lanczos(*_: Any, **__: Any) -> Any:
    raise spla.ArpackNoConvergence("No convergence", np.zeros(0), np.zeros((0, 0)))


def test_few_rows_need_no_lanczos(monkeypatch: Any) -> None:
    f = cores("dense")
    wanted = normalised_cut(f, degrees(f), 4)
    monkeypatch.setattr(cut.spla, "eigsh", no_lanczos)
    for found in (normalised_cut(f, degrees(f), 4), exact_cut(dense_twin(f), 4)[0]):
        assert np.allclose(found.values, wanted.values, atol=1e-10)
        assert np.allclose(found.embedding, wanted.embedding, atol=1e-7 * np.abs(wanted.embedding).max())


def test_many_rows_that_lanczos_cannot_tell_apart_are_refused_with_the_cause(monkeypatch: Any) -> None:
    f = cores("dense")
    monkeypatch.setattr(cut.spla, "eigsh", no_lanczos)
    monkeypatch.setattr(cut, "DECOMPOSED_ROWS", 200)
    with pytest.raises(InputError, match=r"so narrow that the rows are not connected.* smaller gamma"):
        normalised_cut(f, degrees(f), 4)


def test_what_is_no_cut_at_all_is_refused() -> None:
    rng = np.random.default_rng(0)
    f = make(rng, [150], [150], 1e12 * np.diag(rng.standard_normal(150)))
    d = cut.Degrees(np.ones(150), np.zeros(150), 0)
    with pytest.raises(InputError, match="needs similarities >= 0"):
        normalised_cut(f, d, 2)
    with pytest.raises(InputError, match="needs similarities >= 0"):
        exact_cut(np.where(np.eye(150) > 0, 0.0, 1e-3) + np.kron(np.eye(75), [[0, 1e12], [1e12, 0]]) * -1.0, 2)
