"""The block-sparse core against the dense matrix it stands for, alone and inside a factorization."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krein import Factorization, certify, correct, gershgorin
from krein.errors import IndefiniteError, InputError, KreinWarning
from krein.factorization import cholesky as blockcholesky
from krein.factorization import core as module
from krein.factorization import krylov
from krein.factorization.core import BlockSparse, congruent, core_logdet, core_solve, row_weights, symmetric_core
from strategies import (
    EPS,
    assert_close,
    dense_core,
    dense_twin,
    diagonal_core,
    make,
    norm_of,
    random_core,
    sparse_core,
)


@st.composite
def sparse_cores(draw: st.DrawFn) -> tuple[BlockSparse, np.random.Generator]:
    """Unequal ranks, ranks of 0, missing diagonal blocks, one block or many."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ranks = draw(st.lists(st.integers(0, 5), min_size=1, max_size=7))
    if draw(st.booleans()):
        return diagonal_core(rng, ranks), rng
    return sparse_core(rng, ranks, draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))), rng


@given(sparse_cores())
def test_it_is_the_dense_matrix(case):
    core, rng = case
    M = dense_core(core)
    r, size = len(M), norm_of(M)
    assert core.shape == (r, r)
    assert np.array_equal(core.to_dense(), M)
    x, X = rng.standard_normal(r), rng.standard_normal((r, 3))
    assert_close(core @ x, M @ x, size * np.linalg.norm(x))
    assert_close(core @ X, M @ X, size * np.linalg.norm(X))
    assert (core @ X[:, :0]).shape == (r, 0)
    stops = np.cumsum(core.ranks)
    for i, p in enumerate(core.ranks):
        for j, q in enumerate(core.ranks):
            assert np.array_equal(core.block(i, j), M[stops[i] - p : stops[i], stops[j] - q : stops[j]])
        assert np.array_equal(core.diagonal_blocks()[i], core.block(i, i))
    assert core.n_kept == sum(block.size for _, _, block in core.blocks())
    assert core.nbytes >= 8 * core.n_kept
    for shift in (0.0, -2.0):
        assert core.frobenius(shift) == pytest.approx(norm_of(M + shift * np.eye(r)), rel=1e-13)
    values = np.linalg.eigvalsh(M)
    assert_close(core.eigenvalues(), values, size)
    if r:
        assert core.ends.exact
        assert core.ends.residual == 0.0
        assert abs(core.ends.smallest - values[0]) <= 100 * EPS * size
        assert abs(core.ends.largest - values[-1]) <= 100 * EPS * size


@pytest.mark.parametrize("limit", [blockcholesky.FLOPS_LIMIT, -1.0])
@given(case=sparse_cores())
def test_solve_and_logdet_equal_the_dense_ones(limit, case):
    """By Cholesky, and by the iteration and the spectrum where that is declined."""
    core, rng = case
    with mock.patch.object(blockcholesky, "FLOPS_LIMIT", limit):
        assert core.can_factor == (limit > 0)
        check_solve_and_logdet(core, rng)


def check_solve_and_logdet(core, rng):
    M = dense_core(core)
    r = len(M)
    b, B = rng.standard_normal(r), rng.standard_normal((r, 2))
    for t in (0.37, 2.0 * norm_of(M) + 1.0):
        A = M + t * np.eye(r)
        values = np.linalg.eigvalsh(A)
        if r and np.abs(values).min() > 1e-2:
            wanted, many = np.linalg.solve(A, b), np.linalg.solve(A, B)
            assert_close(core.solve(b, t), wanted, np.linalg.norm(wanted), 1e-8 / EPS)
            assert_close(core.solve(B, t), many, np.linalg.norm(many), 1e-8 / EPS)
            assert_close(core_solve(core, B, t), many, np.linalg.norm(many), 1e-10 / EPS)
        if (values > 1e-6).all():
            assert core_logdet(core, t) == pytest.approx(np.linalg.slogdet(A)[1], abs=1e-9)
        elif (values < -1e-6).any():
            with pytest.raises(IndefiniteError, match="smallest eigenvalue"):
                core_logdet(core, t)
    assert core.solve(B[:, :0], 1.0).shape == (r, 0)
    assert not core.solve(np.zeros(r), 5.0 + norm_of(M)).any()


@given(sparse_cores(), st.sampled_from([0.0, 0.4, -0.3]), st.booleans())
def test_a_factorization_is_the_same_with_a_dense_core(case, shift, full):
    core, rng = case
    sizes = [max(1, k) if full else k + 2 for k in core.ranks]
    f = make(rng, sizes, core.ranks, core, shift)
    g = f.with_core(dense_core(core), shift)
    n, size = f.shape[0], norm_of(dense_twin(f)) + abs(shift)
    X = rng.standard_normal((n, 2))
    assert_close(f @ X, g @ X, size * np.linalg.norm(X))
    assert_close(f.to_dense(), g.to_dense(), size)
    assert_close(f.diagonal(), g.diagonal(), size)
    some = rng.integers(0, n, 5)
    assert_close(f.rows(some), g.rows(some), size)
    assert_close(f.entries(some, some[:2]), g.entries(some, some[:2]), size)
    assert_close(f.eigenvalues(), g.eigenvalues(), size)
    assert f.frobenius() == pytest.approx(g.frobenius(), rel=1e-12)
    assert f.smallest_eigenvalue() == pytest.approx(g.smallest_eigenvalue(), abs=1e-13 * (1 + size))
    assert f.n_negative(1e-8) == g.n_negative(1e-8)
    ridge = 2 * size + 1.0
    assert_close(f.solve(X, ridge), g.solve(X, ridge), np.linalg.norm(X))
    assert f.logdet(ridge) == pytest.approx(g.logdet(ridge), rel=1e-12)
    assert certify(f).psd == certify(g).psd
    assert gershgorin(f).lower == pytest.approx(gershgorin(g).lower, abs=1e-12 * (1 + size))
    sampled = gershgorin(f, n_rows=1, random_state=0), gershgorin(g, n_rows=1, random_state=0)
    assert sampled[0].lower == pytest.approx(sampled[1].lower, abs=1e-12 * (1 + size))
    for dtype in ("float32", "float16", "int8"):
        low = f.astype(dtype)
        assert isinstance(low.core, BlockSparse)
        assert_close(low.to_dense(), g.astype(dtype).to_dense(), size, 1e6 if dtype == "float32" else 1e13)


@given(sparse_cores())
def test_from_links_is_the_same_with_a_dense_l(case):
    core, rng = case
    Q = [rng.standard_normal((n, k)) for n, k in zip(rng.integers(1, 6, len(core.ranks)), core.ranks, strict=True)]
    f, g = Factorization.from_links(Q, core, shift=0.2), Factorization.from_links(Q, dense_core(core), shift=0.2)
    assert_close(f.to_dense(), g.to_dense(), sum(np.linalg.norm(q) ** 2 for q in Q) + 1)
    assert all(np.array_equal(block, block.T) for block in f.core.diagonal_blocks())


# -- corrections -------------------------------------------------------------------------------------------------------


@given(sparse_cores(), st.sampled_from([0.0, 0.4, -0.3]))
def test_shift_keeps_sparsity_and_is_certified(case, shift):
    core, rng = case
    f = make(rng, [k + 1 for k in core.ranks], core.ranks, core, shift)
    g = correct(f, "shift")
    assert g.core is core
    values = np.linalg.eigvalsh(dense_twin(f))
    size = norm_of(dense_twin(f)) + 1
    assert g.shift == pytest.approx(shift + max(0.0, -values[0]), abs=1e-12 * size)
    assert certify(g)


@pytest.mark.parametrize("how", ["clip", "flip", "square"])
@pytest.mark.parametrize("shift", [0.0, 0.4, -0.3])
def test_block_diagonal_corrections_are_exact(how, shift):
    rng = np.random.default_rng(4)
    ranks = [3, 0, 5, 1]
    f = make(rng, [6, 2, 5, 4], ranks, diagonal_core(rng, ranks), shift)
    K = dense_twin(f)
    values, vectors = np.linalg.eigh(K)
    new = {"clip": np.maximum(values, 0), "flip": np.abs(values), "square": values**2}[how]
    g = correct(f, how)
    assert isinstance(g.core, BlockSparse)
    assert g.core.is_block_diagonal
    assert_close(g.to_dense(), (vectors * new) @ vectors.T, norm_of(K) + norm_of(K) ** 2)
    assert certify(g)


# -- cores too large for a dense matrix --------------------------------------------------------------------------------


def large(rng: np.random.Generator, c: int = 150, k: int = 4, dominant: float = 0.0, reach: int = 2) -> BlockSparse:
    """A ring of c blocks, each coupled to its neighbours; more rows than are treated densely."""
    blocks = {(i, i): random_core(rng, k) + dominant * np.eye(k) for i in range(c)}
    for i in range(c):
        for step in range(1, reach + 1):
            a, b = sorted((i, (i + step) % c))
            blocks[a, b] = 0.3 * rng.standard_normal((k, k))
    return BlockSparse.from_blocks([k] * c, blocks)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_the_ends_of_a_large_core_hold_their_bounds(seed, scale):
    core = large(np.random.default_rng(seed)).map_blocks(lambda i, j, b: scale * b, [4] * 150)
    values = np.linalg.eigvalsh(dense_core(core))
    ends = core.ends
    assert not ends.exact
    assert ends.lower_bound <= values[0]
    assert ends.upper_bound >= values[-1]
    assert abs(ends.smallest - values[0]) <= ends.residual <= 1e-8 * scale
    assert abs(ends.largest - values[-1]) <= ends.residual


def test_gershgorin_counts_a_block_on_both_sides(monkeypatch):
    """200 paths of three vertices, eigenvalues -sqrt 2, 0 and sqrt 2: the middle one has two neighbours."""
    one = np.ones((1, 1))
    blocks = {(i, i + 1): one for i in range(600) if i % 3 < 2}
    assert BlockSparse.from_blocks([1] * 600, blocks).ends.exact  # path by path
    monkeypatch.setattr(module, "DENSE_LIMIT", 1)
    core = BlockSparse.from_blocks([1] * 600, blocks)
    assert core.ends.lower_bound == -2.0
    assert core.ends.upper_bound == 2.0
    assert core.ends.smallest == pytest.approx(-np.sqrt(2), rel=1e-12)


def test_the_residual_is_honest_when_lanczos_does_not_converge(monkeypatch):
    from scipy.sparse.linalg import ArpackNoConvergence

    def stops(*args, **kwargs):
        raise ArpackNoConvergence("stopped", np.empty(0), np.empty((600, 0)))

    monkeypatch.setattr(krylov.spla, "eigsh", stops)
    core = large(np.random.default_rng(0))
    values = np.linalg.eigvalsh(dense_core(core))
    ends = core.ends
    assert np.abs(values - ends.smallest).min() <= ends.residual
    assert ends.lower_bound <= values[0]
    f = make(np.random.default_rng(0), [5] * 150, core.ranks, core)
    shifted = correct(f, "shift")
    assert certify(shifted).psd == (shifted.shift >= -values[0])


@pytest.mark.parametrize(("dominant", "psd"), [(0.0, False), (3.0, None), (12.0, True)])
def test_a_large_core_is_certified(dominant, psd):
    core = large(np.random.default_rng(1), dominant=dominant)
    f = make(np.random.default_rng(0), [5] * 150, core.ranks, core)
    truth = np.linalg.eigvalsh(dense_core(core))[0] >= 0
    assert psd is None or truth == psd
    found = certify(f)
    assert found.psd == truth
    assert found.rigorous
    assert certify(correct(f, "shift"))


def test_beyond_the_dense_limit_the_certificate_says_what_it_rests_on(monkeypatch):
    import krein.factorization.spectrum

    monkeypatch.setattr(krein.factorization.spectrum, "DENSE_LIMIT", 100)
    monkeypatch.setattr(module, "DENSE_LIMIT", 100)
    core = large(np.random.default_rng(1))
    f = make(np.random.default_rng(0), [5] * 150, core.ranks, core)
    assert not certify(f)
    assert certify(f).rigorous  # a negative Rayleigh quotient
    g = correct(f, "shift")
    assert certify(g)
    assert certify(g).rigorous  # a Cholesky factorization of few blocks
    monkeypatch.setattr(blockcholesky, "FLOPS_LIMIT", 0.0)
    assert certify(g)
    assert not certify(g).rigorous
    h = f.with_core(core, -f.ends().lower_bound)
    assert certify(h)
    assert certify(h).rigorous  # block Gershgorin
    with pytest.raises(InputError, match=r"600 rows, over the limit of 100.*ends"):
        f.eigenvalues()


@pytest.mark.parametrize("limit", [blockcholesky.FLOPS_LIMIT, 0.0])
@pytest.mark.parametrize("dominant", [6.0, 0.0])
def test_a_large_core_is_solved_to_its_tolerance(monkeypatch, dominant, limit):
    """Definite (Cholesky, conjugate gradients) and indefinite (MINRES)."""
    monkeypatch.setattr(blockcholesky, "FLOPS_LIMIT", limit)
    rng = np.random.default_rng(2)
    core = large(rng, c=140, dominant=dominant, reach=1)
    M, b = dense_core(core), rng.standard_normal((560, 2))
    values = np.linalg.eigvalsh(M)
    gap = np.argmax(np.diff(values))
    t = 0.1 if dominant else -(values[gap] + values[gap + 1]) / 2
    wanted = np.linalg.solve(M + t * np.eye(560), b)
    assert_close(core_solve(core, b, t), wanted, np.linalg.norm(wanted), 1e-8 / EPS)


def test_a_solve_that_stops_early_warns_with_the_figure():
    core = large(np.random.default_rng(2), reach=1)
    t = -float(np.median(np.linalg.eigvalsh(dense_core(core)))) + 1e-13
    with pytest.warns(KreinWarning, match=r"relative residual of .* A larger ridge"):
        core.solve(np.random.default_rng(0).standard_normal(600), t)


@given(sparse_cores())
def test_a_core_splits_into_what_is_coupled_core(case):
    core, _ = case
    M, stops = dense_core(core), np.cumsum(core.ranks)
    rows = [np.arange(stop - k, stop) for stop, k in zip(stops, core.ranks, strict=True)]
    parts = core.split()
    assert len(parts) == core.components.max() + 1
    rest = M.copy()
    for number, part in enumerate(parts):
        inside = np.concatenate([rows[i] for i in np.flatnonzero(core.components == number)])
        assert np.array_equal(dense_core(part), M[np.ix_(inside, inside)])
        rest[np.ix_(inside, inside)] = 0.0
    assert not rest.any()


def test_a_large_core_of_small_components_has_a_spectrum(monkeypatch):
    """More rows than the limit, but no component: the ends, the inertia and the certificate are exact."""
    monkeypatch.setattr(module, "DENSE_LIMIT", 200)
    rng = np.random.default_rng(0)
    blocks = {(i, i): random_core(rng, 4) for i in range(150)}
    blocks |= {(i, j): 0.3 * rng.standard_normal((4, 4)) for i in range(150) for j in range(i + 1, i // 5 * 5 + 5)}
    core = BlockSparse.from_blocks([4] * 150, blocks)
    values = np.linalg.eigvalsh(dense_core(core))
    assert_close(core.eigenvalues(), values, norm_of(dense_core(core)))
    assert core.ends.exact
    f = make(rng, [5] * 150, core.ranks, core)
    assert f.n_negative() == (values < 0).sum()
    assert certify(f.with_core(core, -values[0] + 1e-9))
    assert not certify(f.with_core(core, -values[0] - 1e-9))


# -- functions of a core -----------------------------------------------------------------------------------------------


@given(sparse_cores())
def test_congruence_and_row_weights(case):
    core, rng = case
    M, new = dense_core(core), rng.integers(0, 4, len(core.ranks))
    T = [rng.standard_normal((a, k)) for a, k in zip(new, core.ranks, strict=True)]
    wide = np.zeros((new.sum(), len(M)))
    p, q = 0, 0
    for t in T:
        wide[p : p + len(t), q : q + t.shape[1]] = t
        p, q = p + len(t), q + t.shape[1]
    size = np.linalg.norm(wide) ** 2 * norm_of(M) + 1
    assert_close(dense_core(congruent(core, T, core.ranks)), wide @ M @ wide.T, size)
    assert_close(congruent(M, T, core.ranks), wide @ M @ wide.T, size)
    peak = np.abs(M).max(initial=0.0) or 1.0
    stops = np.cumsum(core.ranks)
    for held in (core, M):
        for stop, k, W in zip(stops, core.ranks, row_weights(held, core.ranks), strict=True):
            rows = M[stop - k : stop] / peak
            assert_close(W @ W.T, rows @ rows.T, np.linalg.norm(rows) ** 2 + 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BlockSparse.from_blocks([1, 1], {(1, 0): np.eye(1)}), r"0 <= i <= j < 2; got \(1, 0\)"),
        (lambda: BlockSparse.from_blocks([1, 1], {(0, 2): np.eye(1)}), r"got \(0, 2\)"),
        (lambda: BlockSparse.from_blocks([1, 2], {(0, 1): np.eye(2)}), r"shape \(1, 2\); got \(2, 2\)"),
        (lambda: BlockSparse.from_blocks([2], {(0, 0): np.eye(2)}) @ np.ones(3), r"2 rows.*got shape \(3,\)"),
        (
            lambda: symmetric_core(BlockSparse.from_blocks([2], {(0, 0): np.triu(np.ones((2, 2)))})),
            "L must be symmetric",
        ),
        (lambda: symmetric_core(BlockSparse.from_blocks([1, 1], {(0, 1): np.full((1, 1), np.nan)})), "NaN"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
