"""Corrections against the dense spectral function, and the certificate against dense eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krein import Factorization, certify, correct, split
from krein.errors import InputError
from krein.factorization.core import BlockSparse
from krein.factorization.correction import CORRECTIONS, psd_shift
from strategies import (
    CORE_KINDS,
    EPS,
    HARD_FACTORIZATIONS,
    assert_close,
    dense_core,
    dense_twin,
    diagonal_core,
    factorizations,
    make,
    norm_of,
    random_core,
    sparse_core,
)


def dense_correction(K: np.ndarray, how: str | float) -> np.ndarray:
    values, vectors = np.linalg.eigh(K)
    if not isinstance(how, str):
        return (vectors * np.where(values < 0.0, -how * values, values)) @ vectors.T
    new = {
        "none": lambda: values,
        "shift": lambda: values + max(0.0, -values[0]),
        "clip": lambda: np.maximum(values, 0.0),
        "flip": lambda: np.abs(values),
        "square": lambda: values**2,
    }[how]()
    return (vectors * new) @ vectors.T


@given(factorizations(), st.sampled_from((*CORRECTIONS, 0, 0.3, 5.0)))
def test_a_correction_is_the_spectral_function_of_the_dense_matrix(f, how):
    K, size = dense_twin(f), f.frobenius()
    g = correct(f, how)
    assert_close(g.to_dense(), dense_correction(K, how), size**2 if how == "square" else 5.0 * size, 1e4)
    assert how == "none" or certify(g)
    assert g.bases is f.bases


@given(factorizations())
def test_a_split_gives_two_psd_matrices_whose_product_is_zero(f):
    size = f.frobenius()
    plus, minus = split(f)
    assert certify(plus)
    assert certify(minus)
    assert_close(plus.to_dense() - minus.to_dense(), dense_twin(f), size, 1e4)
    assert_close(plus.to_dense() @ minus.to_dense(), np.zeros(f.shape), size**2, 1e4)
    assert_close(plus.to_dense(), dense_correction(dense_twin(f), "clip"), size, 1e4)


@pytest.mark.parametrize("how", [-0.5, np.nan, np.inf, 1e7, True, "other", None])
def test_what_is_neither_a_correction_nor_a_weight_is_refused(how):
    with pytest.raises(InputError, match=r"how must be one of 'none', 'shift', .* or a number from 0 to 1e"):
        correct(diagonal_factorization(), how)


def diagonal_factorization():
    return Factorization.from_blocks([np.eye(2)], np.diag([3.0, -1.0]), order=np.arange(2))


@pytest.mark.parametrize("how", CORRECTIONS)
@pytest.mark.parametrize("name", HARD_FACTORIZATIONS)
def test_a_correction_is_the_spectral_function_in_hard_cases(name, how):
    f = HARD_FACTORIZATIONS[name]()
    if how == "square" and name == "huge":
        with pytest.raises(InputError, match="overflows"):
            correct(f, how)
        return
    K, g = dense_twin(f), correct(f, how)
    size = norm_of(K)
    assert_close(g.to_dense(), dense_correction(K, how), size**2 if how == "square" else 5.0 * size, 1e4)
    assert how == "none" or certify(g)


@given(factorizations(sparse=False), st.integers(0, 2**32 - 1))
def test_clip_is_the_nearest_psd_matrix(f, seed):
    """No psd matrix is nearer: neither a perturbed one, nor a mixture with any other psd matrix."""
    K, rng = dense_twin(f), np.random.default_rng(seed)
    clipped, size = correct(f, "clip").to_dense(), norm_of(K)
    negative = np.minimum(np.linalg.eigvalsh(K), 0.0)
    distance = np.linalg.norm(K - clipped)
    assert distance == pytest.approx(np.linalg.norm(negative), abs=1e-12 * size)
    for step in (1e-3, 1e-1, 1.0):
        G = rng.standard_normal((len(K), rng.integers(1, len(K) + 1)))
        other = size * step * (G @ G.T) / max(np.linalg.norm(G @ G.T), 1e-300)
        assert np.linalg.norm(K - (clipped + other)) >= distance - 1e-12 * size
        assert np.linalg.norm(K - ((1 - 0.5 * step) * clipped + other)) >= distance - 1e-12 * size


def test_clipping_the_papers_core_is_not_the_nearest_psd_matrix():
    """L in the non-orthonormal basis Q, as the paper has it, against M: psd too, but further away."""
    rng = np.random.default_rng(0)
    Q = [rng.standard_normal((10, 3)) * [5.0, 1.0, 0.1], rng.standard_normal((12, 3)) * [0.1, 1.0, 5.0]]
    L = random_core(rng, 6)
    K = dense_twin(Factorization.from_links(Q, L))
    values, vectors = np.linalg.eigh(L)
    papers = dense_twin(Factorization.from_links(Q, (vectors * np.maximum(values, 0)) @ vectors.T))
    assert np.linalg.eigvalsh(papers)[0] >= -1e-12 * norm_of(K)
    ours = correct(Factorization.from_links(Q, L), "clip").to_dense()
    assert np.linalg.norm(K - papers) > 1.2 * np.linalg.norm(K - ours)


@given(factorizations())
def test_the_psd_shift_is_the_smallest_that_does(f):
    K = dense_twin(f)
    s, size = psd_shift(f), norm_of(K)
    assert s == pytest.approx(max(0.0, -np.linalg.eigvalsh(K)[0]), abs=1e-12 * size)
    assert certify(f.with_core(f.core, f.shift + s))
    if s > 1e-6 * size:
        assert not certify(f.with_core(f.core, f.shift + 0.9 * s))


def test_the_papers_factor_and_estimate():
    f = make(np.random.default_rng(0), [30, 40], [5, 6])
    low = np.linalg.eigvalsh(dense_twin(f))[0]
    assert correct(f, "shift", factor=2.0).shift == pytest.approx(-2 * low, rel=1e-12)
    estimated = correct(f, "shift", estimate="lanczos", random_state=0)
    assert estimated.shift == pytest.approx(-low, rel=1e-6)
    assert estimated.shift >= -low * (1 - 1e-13)
    assert correct(f, "shift", estimate="lanczos", random_state=0).shift == estimated.shift
    assert correct(f, "none") is f


# -- the certificate ---------------------------------------------------------------------------------------------------


def problem(seed: int) -> tuple[Factorization, str]:
    """One of the thousand: blocks, ranks, scale, shift, core, storage and correction all at random."""
    rng = np.random.default_rng([7, seed])
    n = int(rng.integers(20, 61))
    c = int(rng.integers(1, 7))
    cuts = np.sort(rng.choice(np.arange(1, n), c - 1, replace=False))
    sizes = np.diff(np.concatenate([[0], cuts, [n]]))
    full = rng.random() < 0.3
    ranks = [int(m) if full else int(rng.integers(0, min(m, 12) + 1)) for m in sizes]
    scale = 10.0 ** rng.uniform(-8, 8)
    shift = float(rng.choice([0.0, 1.0, -1.0])) * scale * 10.0 ** rng.uniform(-3, 1)
    how = CORRECTIONS[seed % 5]
    form = rng.choice(["dense", "dense", "dense", "diagonal", "sparse"])
    core: np.ndarray | BlockSparse = scale * random_core(rng, sum(ranks), str(rng.choice(CORE_KINDS)))
    if form == "diagonal" or (form == "sparse" and how in ("clip", "flip", "square")):
        core = diagonal_core(rng, ranks, str(rng.choice(CORE_KINDS))).map_blocks(lambda i, j, b: scale * b, ranks)
    elif form == "sparse":
        dominant = float(rng.choice([0.0, 3.0]))
        core = sparse_core(rng, ranks, 0.5, dominant).map_blocks(lambda i, j, b: scale * b, ranks)
    dtype = str(rng.choice(["float64", "float32", "float16", "int8"]))
    f = make(rng, sizes, ranks, core, shift).astype(dtype)
    g = correct(f, how)
    return (g.astype(str(rng.choice(["float16", "int8"]))) if rng.random() < 0.2 else g), how


@pytest.mark.parametrize("count", [250, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_certificate_agrees_with_dense_eigenvalues(count):
    """All of them. Uncorrected ones count where they are clearly one or the other, and nearly all are."""
    seen = {True: 0, False: 0}
    unclear, wrong = 0, []
    for seed in range(count):
        f, how = problem(seed)
        K = dense_twin(f)
        low = np.linalg.eigvalsh(K)[0]
        size = norm_of(dense_core(f.core)) + abs(f.shift)  # of what is stored: M + sI may cancel to rounding errors
        rounding = 100 * len(K) * EPS * size
        found = certify(f)
        if how == "none":
            if -1e-9 * size < low < -rounding:
                unclear += 1
                continue
            truth = bool(low >= -rounding)
        else:
            truth = True
            if low < -rounding:
                wrong.append((seed, how, "the correction left", low / size))
        seen[truth] += 1
        if found.psd != truth or bool(found) != truth or not found.rigorous:
            wrong.append((seed, how, found, low / size))
        if abs(found.margin - low) > 1e-10 * size:
            wrong.append((seed, how, "margin", found.margin, low))
    assert wrong == []
    assert unclear == 0
    assert seen[True] + seen[False] == count
    assert seen[False] >= count // 20


@pytest.mark.parametrize("name", HARD_FACTORIZATIONS)
def test_the_certificate_agrees_in_hard_cases(name):
    f = HARD_FACTORIZATIONS[name]()
    K = dense_twin(f)
    low = np.linalg.eigvalsh(K)[0]
    assert certify(f).psd == (low >= -100 * len(K) * EPS * norm_of(K))


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-8, 1.0, 1e8]), st.sampled_from(["core", "shift"]))
def test_the_certificate_allows_for_rounding_and_no_more(seed, scale, where):
    """A negative eigenvalue of 1e-12 of the norm is seen, one of half an epsilon is rounding."""
    rng = np.random.default_rng(seed)
    for low, psd in ((1e-12, False), (0.5 * EPS, True)):
        values = np.array([1.0, 0.5, -low if where == "core" else 0.5])
        V = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        M = scale * (V * values) @ V.T
        f = make(rng, [4, 5], [1, 2], (M + M.T) / 2, -low * scale if where == "shift" else 0.0)
        assert certify(f).psd == psd
        assert f.n_negative() == (0 if psd else 1 if where == "core" else 6)


# -- at the door -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: correct(f, "fold"), "how must be one of 'none', 'shift', 'clip', 'flip', 'square', .*; got 'fold'"),
        (lambda f: correct(f, None), "got None"),
        (lambda f: correct(np.eye(3), "clip"), "needs a Factorization; got ndarray"),
        (lambda f: correct(f, "shift", estimate="guess"), "'exact', 'lanczos'; got 'guess'"),
        (lambda f: correct(f, "shift", factor=0.5), "at least 1.*got 0.5"),
        (lambda f: correct(f, "shift", factor=np.nan), "at least 1.*got nan"),
        (lambda f: certify(np.eye(3)), "needs a Factorization; got ndarray. Use lanczos"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(make(np.random.default_rng(0), [5], [2]))
