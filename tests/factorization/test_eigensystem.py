"""The eigensystem of a core against dense linear algebra, whole and by components."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krein import correct
from krein.errors import InputError
from krein.factorization import core as module
from krein.factorization.core import BlockSparse
from krein.factorization.eigensystem import eigensystem
from strategies import assert_close, coupled_core, dense_core, factorizations, make, sparse_core


@given(factorizations(), st.integers(0, 2**32 - 1))
def test_functions_of_a_core_are_those_of_the_dense_matrix(f, seed):
    system, M = eigensystem(f.core, f.ranks), dense_core(f.core)
    size = float(np.linalg.norm(M)) or 1.0
    assert_close(np.sort(system.values), np.linalg.eigvalsh(M), size)
    w = np.random.default_rng(seed).standard_normal((f.rank, 3))
    values, vectors = np.linalg.eigh(M)
    cubed = (vectors * values**3) @ vectors.T
    assert_close(system.apply(system.values**3, w), cubed @ w, size**3 * (np.linalg.norm(w) or 1.0))
    assert_close(system.apply(system.values**3, w[:, 0]), cubed @ w[:, 0], size**3 * (np.linalg.norm(w) or 1.0))
    assert_close(dense_core(system.core(system.values**3)), cubed, size**3)
    assert_close(system.combine(system.coordinates(w)), w, np.linalg.norm(w) or 1.0)
    assert_close(f.diagonal(system.diagonal_core(system.values**3)), f.diagonal(cubed), size**3)


def test_a_core_of_two_components_stays_sparse():
    rng = np.random.default_rng(0)
    ranks = [3, 2, 4, 1, 2]
    pairs = {(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (0, 2), (1, 4)}
    blocks = {(i, j): rng.standard_normal((ranks[i], ranks[j])) for i, j in pairs}
    blocks = {(i, j): (b + b.T) / 2 if i == j else b for (i, j), b in blocks.items()}
    core = BlockSparse.from_blocks(ranks, blocks)
    system = eigensystem(core, core.ranks)
    assert [part.blocks.tolist() for part in system.components] == [[0, 2], [1, 4], [3]]
    absolute = system.core(np.abs(system.values))
    assert {(i, j) for i, j, _ in absolute.blocks()} == pairs
    values, vectors = np.linalg.eigh(core.to_dense())
    np.testing.assert_allclose(absolute.to_dense(), (vectors * np.abs(values)) @ vectors.T, atol=1e-12)


def test_a_core_that_is_too_large_says_so(monkeypatch):
    rng = np.random.default_rng(0)
    core = coupled_core(rng, 6, 3, 2)
    monkeypatch.setattr(module, "DENSE_LIMIT", 5)
    with pytest.raises(InputError, match="over the limit"):
        eigensystem(core, core.ranks)
    f = make(rng, [5] * 6, core.ranks, core)
    for how in ("clip", "flip"):
        with pytest.raises(InputError, match=f"'{how}' would fill.*become {f.rank**2}.*Use 'shift'"):
            correct(f, how)


def test_block_sparse_cores_without_blocks_are_fine():
    core = sparse_core(np.random.default_rng(1), [2, 0, 3], keep=0.0)
    assert len(eigensystem(core, core.ranks).values) == 5
