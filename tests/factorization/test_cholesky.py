"""The block Cholesky factorization against dense linear algebra, and its symbolic pass against what is held."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import splu

from krein import certify
from krein.errors import IndefiniteError, InputError
from krein.factorization import cholesky as module
from krein.factorization import core as core_module
from krein.factorization import spectrum
from krein.factorization.cholesky import elimination, factorize
from krein.factorization.core import BlockSparse, core_logdet
from strategies import EPS, coupled_core, dense_core, make, norm_of, sparse_core


@st.composite
def cores(draw: st.DrawFn) -> tuple[BlockSparse, np.random.Generator]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ranks = draw(st.lists(st.integers(0, 5), min_size=1, max_size=25))
    return sparse_core(rng, ranks, draw(st.sampled_from([0.0, 0.05, 0.15, 0.4, 1.0]))), rng


def pattern_of(core: BlockSparse):
    pairs = np.array([(i, j) for i, j, _ in core.blocks()], dtype=np.intp).reshape(-1, 2)
    return elimination(core.ranks, pairs[:, 0], pairs[:, 1])


@pytest.mark.parametrize("padding", [0.0, module.PADDING, 1.0])
@pytest.mark.parametrize("strip", [3, module.STRIP])
@given(case=cores(), scale=st.sampled_from([1e-200, 1.0, 1e200]))
def test_it_factors_what_is_positive_definite_and_nothing_else(padding, strip, case, scale):
    core, rng = case
    core = core.map_blocks(lambda i, j, b: scale * b, core.ranks)
    M = dense_core(core)
    r, size = len(M), norm_of(M) or scale
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PADDING", padding)
        patch.setattr(module, "STRIP", strip)
        pattern = pattern_of(core)
        smallest = np.linalg.eigvalsh(M)[0] if r else 0.0
        assert r == 0 or factorize(pattern, core.blocks(), -smallest - 1e-6 * size) is None
        t = -smallest + 0.05 * size
        factor = factorize(pattern, core.blocks(), t)
    assert factor is not None
    A = M + t * np.eye(r)
    assert factor.logdet() == pytest.approx(np.linalg.slogdet(A / scale)[1] + r * np.log(scale), rel=1e-12, abs=1e-10)
    for b in (rng.standard_normal(r), rng.standard_normal((r, 3)), np.zeros((r, 0))):
        x = factor.solve(b)
        assert x.shape == b.shape
        wanted = np.linalg.solve(A / scale, b) / scale
        assert np.abs(x - wanted).max(initial=0.0) <= 1e4 * EPS * np.abs(wanted).max(initial=0.0)
    assert sum(v.size for v in factor.values) == pattern.n_kept == factor.nbytes // 8


@given(cores())
def test_the_pattern_holds_every_block_that_elimination_fills(case):
    """Against elimination on the graph written out, in the same order; without padding nothing else is held."""
    core, _ = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PADDING", 0.0)
        pattern = pattern_of(core)
    order = pattern.order.tolist()
    assert sorted(order) == [i for i, k in enumerate(core.ranks) if k]
    near = {i: set() for i in order}
    for i, j, _ in core.blocks():
        if i != j and i in near and j in near:
            near[i].add(j)
            near[j].add(i)
    filled, flops = 0, 0.0
    for i in order:
        for j in near[i]:
            near[j] |= near[i] - {j}
            near[j].discard(i)
        k, m = core.ranks[i], sum(core.ranks[j] for j in near[i])
        filled += k * (k + m)
        flops += k**3 / 3 + k * k * m + k * m * m
    for panel in pattern.panels:
        inside = panel.columns.tolist()
        assert set(panel.below.tolist()) == near[inside[-1]]
        for at, i in enumerate(inside):
            assert near[i] == set(inside[at + 1 :]) | set(panel.below.tolist())
    square = sum(
        (sum(core.ranks[i] for i in p.columns) ** 2 - sum(core.ranks[i] ** 2 for i in p.columns)) // 2
        for p in pattern.panels
    )
    assert pattern.n_kept == filled + square  # panels hold the upper half of their square, too
    assert pattern.flops == pytest.approx(flops, rel=1e-9)


def test_trees_and_cliques_do_not_fill():
    rng = np.random.default_rng(0)
    child = np.arange(1, 300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PADDING", 0.0)
        tree = elimination([2] * 300, rng.integers(0, child), child)
        star = elimination([2] * 300, np.zeros(299, dtype=int), child)
    assert all(len(p.columns) + len(p.below) <= 2 for p in tree.panels)
    assert all(len(p.columns) + len(p.below) <= 2 for p in star.panels)
    clique = elimination([2] * 40, *np.triu_indices(40, 1))
    assert len(clique.panels) == 1
    assert clique.n_kept == 80**2


def test_minimum_degree_keeps_a_grid_sparse():
    """No more than SuperLU's minimum degree does, up to a tenth, on a grid of blocks."""
    side = 20
    at = np.arange(side**2).reshape(side, side)
    left = np.concatenate([at[:, :-1].ravel(), at[:-1].ravel()])
    right = np.concatenate([at[:, 1:].ravel(), at[1:].ravel()])
    half = sp.coo_array((np.ones(len(left)), (left, right)), shape=(side**2, side**2))
    A = sp.csc_array(half + half.T + 5.0 * sp.eye_array(side**2))
    peer = splu(A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}).L.nnz
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PADDING", 0.0)
        panels = elimination([1] * side**2, left, right).panels
    held = sum(len(p.columns) * (len(p.columns) + 1) // 2 + len(p.columns) * len(p.below) for p in panels)
    assert held <= 1.1 * peer


def test_it_fits_or_not(monkeypatch):
    pattern = elimination([10] * 4, np.array([0, 1, 2]), np.array([1, 2, 3]))
    assert pattern.nbytes == 8 * pattern.n_kept
    assert pattern.fits
    monkeypatch.setattr(module, "BYTES_LIMIT", pattern.nbytes - 1)
    assert not pattern.fits
    monkeypatch.undo()
    monkeypatch.setattr(module, "FLOPS_LIMIT", pattern.flops - 1)
    assert not pattern.fits


def test_refinement_mends_what_a_poor_factor_left():
    rng = np.random.default_rng(0)
    core = sparse_core(rng, [3] * 10, 0.3, dominant=3.0)
    A, b = dense_core(core), rng.standard_normal((30, 2))
    factor = factorize(pattern_of(core), core.blocks(), 1e-5)  # of something else
    assert factor is not None
    wanted = np.linalg.solve(A, b)
    plain, refined = factor.solve(b), factor.refined(lambda x: A @ x, b)
    assert np.abs(plain - wanted).max() > 1e-8
    assert np.abs(refined - wanted).max() < 1e-13
    assert not factor.refined(lambda x: -A @ x, b).any()  # nothing better than zero


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_positive_definite(bad):
    core = BlockSparse.from_blocks([2, 2], {(0, 0): np.diag([1.0, bad]), (1, 1): np.eye(2)})
    assert factorize(pattern_of(core), core.blocks(), 1.0) is None


@pytest.mark.slow
def test_two_thousand_blocks():
    """A band of blocks that a sparse LU can check."""
    rng = np.random.default_rng(0)
    ranks = rng.integers(0, 9, 2000).tolist()
    blocks = {(i, i): 4.0 * np.eye(k) for i, k in enumerate(ranks)}
    for i in range(2000):
        for j in {i + 1, i + 7, (i * 31) % 2000}:
            if i < j < 2000:
                blocks[i, j] = 0.2 * rng.standard_normal((ranks[i], ranks[j]))
    core = BlockSparse.from_blocks(ranks, blocks)
    factor = core.cholesky(0.5)
    assert factor is not None
    A = sp.csc_array(core.to_dense() + 0.5 * np.eye(core.shape[0]))
    b = rng.standard_normal(core.shape[0])
    lu = splu(A)
    assert np.abs(factor.solve(b) - lu.solve(b)).max() < 1e-10
    assert factor.logdet() == pytest.approx(np.log(np.abs(lu.U.diagonal())).sum(), rel=1e-10)


# -- what rests on it: certificate and log-determinant of coupled cores ------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_the_certificate_of_a_coupled_core_is_that_of_its_eigenvalues(monkeypatch, seed):
    """On both sides of the smallest eigenvalue, closer than Lanczos' residual and Gershgorin can tell."""
    monkeypatch.setattr(spectrum, "DENSE_LIMIT", 100)
    monkeypatch.setattr(core_module, "DENSE_LIMIT", 100)
    rng = np.random.default_rng(seed)
    core = coupled_core(rng, 120, 8, 4)
    f = make(rng, [k + 1 for k in core.ranks], core.ranks, core)
    assert f.rank > core_module.SMALL
    smallest = np.linalg.eigvalsh(dense_core(core))[0]
    for move, psd in ((1e-6, True), (1e-10, True), (-1e-10, False), (-1e-6, False)):
        found = certify(f.with_core(core, -smallest + move))
        assert (found.psd, found.rigorous) == (psd, True)
        assert found.tolerance < 1e-10


def test_cholesky_overrules_a_lanczos_that_missed_the_smallest_eigenvalue(monkeypatch):
    rng = np.random.default_rng(0)
    core = coupled_core(rng, 120, 8, 4)
    f = make(rng, [k + 1 for k in core.ranks], core.ranks, core, shift=-np.linalg.eigvalsh(dense_core(core))[1])
    blind = core_module.Ends(1.0, core.ends.largest, 0.1, core.ends.lower_bound, core.ends.upper_bound, exact=False)
    monkeypatch.setitem(core.__dict__, "ends", blind)
    found = certify(f)
    assert not found
    assert found.rigorous
    assert found.margin <= -found.tolerance


def test_a_logdet_needs_no_spectrum(monkeypatch):
    monkeypatch.setattr(core_module, "DENSE_LIMIT", 100)
    core = coupled_core(np.random.default_rng(3), 120, 8, 4)
    M = dense_core(core)
    smallest = np.linalg.eigvalsh(M)[0]
    t = -smallest + 0.1
    assert core_logdet(core, t) == pytest.approx(np.linalg.slogdet(M + t * np.eye(len(M)))[1], rel=1e-10)
    with pytest.raises(IndefiniteError, match=r"smallest eigenvalue is -0\.1"):
        core_logdet(core, -smallest - 0.1)
    monkeypatch.setattr(module, "BYTES_LIMIT", 1000)
    with pytest.raises(InputError, match="over the limit of 100"):
        core_logdet(core, t)
