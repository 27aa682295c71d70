"""Bytes of every shape are those of the factorization, what is tried within a memory limit fits it, and it is shown."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import krein
from krein.choosing.by_score import tried_within
from krein.choosing.candidates import Candidate, Selection, bytes_of, held_bytes, highest_rank, shapes, shapes_within
from krein.estimators.cache import clear_cache
from krein.factorization.bases import STORAGE
from krein.factorization.factorization import UNCOUPLED_CORE
from krein.policy import DEFAULT
from strategies import dense_twin


def rows(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    return X, np.sin(15.0 * X[:, 0]) * np.cos(15.0 * X[:, 1]) > 0.0


def test_bytes_are_those_of_bases_core_order_and_maps():
    assert bytes_of(1000, 4, 10, "float64") == 1000 * 10 * 8 + 40**2 * 8 + 1000 * 8
    assert bytes_of(1000, 4, 10, "int8") == 1000 * 10 + 40**2 * 8 + 1000 * 8 + 4 * 10**2 * 8


@settings(max_examples=40, deadline=None)
@given(st.integers(20, 160), st.integers(1, 6), st.integers(1, 12), st.sampled_from(STORAGE), st.booleans())
@example(1400, 40, 14, "float64", False)  # more directions than a dense core of uncoupled blocks has
@example(1400, 40, 14, "float32", False)
@example(1400, 40, 14, "float64", True)
@example(56, 5, 3, "float64", True)  # so little rank that the core is scaled down, which is said
@pytest.mark.filterwarnings("ignore:Rank .* carries so little of this kernel")
def test_the_bytes_of_a_shape_are_those_of_its_factorization(n, n_blocks, rank, dtype, coupled):
    """Where clusters are smaller than the rank, or columns of small types need a second number, entry by entry."""
    X, kernel = rows(n, seed=n_blocks)[0], krein.RBF(gamma=50.0)
    f = krein.approximate(
        X, kernel, n_blocks=n_blocks, rank=rank, drop=0.0 if coupled else 1.0, dtype=dtype, random_state=0
    ).factorization
    columns = [B.shape[1] for B in f.bases]
    if set(f.ranks) == set(columns) == {rank} and f.maps is None if dtype == "float64" else set(columns) == {rank}:
        assert f.nbytes == bytes_of(n, f.n_blocks, rank, dtype, coupled)
    core = f.rank**2 if coupled or f.rank <= UNCOUPLED_CORE else f.rank + 2 * f.n_blocks
    maps = 0 if f.maps is None else np.dot(columns, f.ranks)
    held = held_bytes(n, sum(B.size for B in f.bases), core, maps, dtype)
    assert f.nbytes == held + (8 * maps if dtype == "float64" else 0)


@given(st.integers(10, 5000), st.floats(1e3, 1e7), st.integers(1, 60), st.integers(0, 300), st.sampled_from(STORAGE))
def test_the_highest_rank_fits_and_no_higher_one_does(n, room, n_blocks, limit, dtype):
    for coupled in (True, False):
        fits = [k for k in range(1, limit + 1) if bytes_of(n, n_blocks, k, dtype, coupled) <= room]
        assert highest_rank(n, room, n_blocks, limit, dtype, coupled) == max(fits, default=0)


def test_what_was_tried_prints_as_one_table_with_the_columns_that_are_known():
    one = Candidate(8, 16, "float32", 640_000, error=0.0123, stage="coarse")
    other = Candidate(20, 1, "int8", 950, error=0.2, stage="refined")
    head, columns, first, second = str(Selection((one, other), "target met", 0)).splitlines()
    assert head == "target met"
    assert columns.split() == ["blocks", "rank", "type", "bytes", "error", "stage"]
    assert first.split() == ["8", "16", "float32", "640", "kB", "0.012", "coarse", "<-", "chosen"]
    assert second.split() == ["20", "1", "int8", "950", "B", "0.2", "refined"]
    assert first.index("coarse") == second.index("refined") == columns.index("stage")
    scored = Candidate(3, 5, "float64", 950, score=0.75, seconds=0.5, coupled=False, kernel=krein.RBF(gamma=2.0))
    head, columns, row = str(Selection((scored,), "the best", n_scored=70, seconds=1.0)).splitlines()
    assert head == "the best; 70 rows scored; chosen in 1 s"
    assert columns.split() == ["blocks", "rank", "type", "coupled", "gamma", "bytes", "score", "seconds"]
    assert row.split() == ["3", "5", "float64", "no", "2", "950", "B", "0.7500", "0.50"]


@pytest.mark.parametrize(("n_blocks", "rank"), [(40, 16), (150, 8), (300, 12)])
def test_the_bytes_of_blocks_on_their_own_are_an_upper_bound_and_near(n_blocks, rank):
    X, _ = rows(2400)
    f = krein.approximate(
        X, krein.RBF(gamma=5.0), n_blocks=n_blocks, rank=rank, drop=1.0, dtype="float64", random_state=0
    ).factorization
    forecast = bytes_of(2400, n_blocks, rank, "float64", coupled=False)
    assert 0.6 * forecast <= f.nbytes <= forecast


def test_blocks_on_their_own_hold_their_core_in_r_numbers_and_are_the_same_matrix():
    X, _ = rows(700)
    a = krein.approximate(X, krein.RBF(gamma=5.0), n_blocks=60, rank=40, drop=1.0, random_state=0)
    f = a.factorization
    assert f.rank > 512  # or the core is dense
    assert f.core.nbytes <= 8 * f.rank + 16 * f.n_blocks
    K, exact = dense_twin(f), krein.RBF(gamma=5.0)(X)
    label = np.empty(700, dtype=int)
    for i, (span, _) in enumerate(f.spans):
        label[f.order[span]] = i
    own = label[:, None] == label
    whole = np.isin(label, [i for i, (span, _) in enumerate(f.spans) if span.stop - span.start <= 40])
    inside = own & whole & whole[:, None]
    assert inside.sum() > 5000
    assert np.abs(K - exact)[inside].max() < 1e-6  # blocks of no more rows than the rank are kept whole
    assert (K[~own] == 0.0).all()
    np.testing.assert_allclose(f.to_dense(), K, atol=1e-12)
    np.testing.assert_allclose(f.solve(X, ridge=0.1), np.linalg.solve(K + 0.1 * np.eye(700), X), atol=1e-8)
    new = X[:50] + 1e-3  # the maps followed the turn
    expected = krein.RBF(gamma=5.0)(new, X)
    found = a.kernel_rows(new)
    met = (found != 0.0) & whole
    assert met.sum() > 300
    assert np.abs(found - expected)[met].max() < 1e-4


@pytest.mark.parametrize("room", [1e5, 3e5, 1e6, 1e7])
def test_candidates_fit_and_given_blocks_and_ranks_are_kept(room):
    n = 5000
    for shape in shapes(n, DEFAULT):
        for k, dtype in shapes_within(n, room, ("float64", "float16", "int8"), shape, DEFAULT):
            assert bytes_of(n, shape[0], k, dtype, shape[1]) <= room
    assert {c for c, _ in shapes(n, DEFAULT, 7)} == {7}
    assert all(k == 5 for k, _ in shapes_within(n, room, ("float64",), (40, False), DEFAULT, 5))


def test_the_best_score_that_fits_is_found_and_what_takes_too_much_goes_down_in_rank():
    calls = []

    def score(n_blocks, rank, coupled, dtype):
        calls.append(dtype)
        held = bytes_of(4000, n_blocks, rank, dtype, coupled) * (1.5 if dtype == "int8" else 1.0)
        good = (not coupled) * n_blocks + 0.001 * rank
        return Candidate(n_blocks, rank, dtype, round(held), score=good, coupled=coupled)

    tried = tried_within(4000, 6e5, ("float64", "float16", "int8"), None, None, DEFAULT, score)
    assert {"float64", "int8"} <= set(calls)
    assert all(t.nbytes <= 6e5 for t in tried)
    assert max(tried, key=lambda t: t.score).n_blocks == max(c for c, coupled in shapes(4000, DEFAULT) if not coupled)
    assert tried_within(4000, 1e3, ("float64",), None, None, DEFAULT, score) == []


@pytest.mark.parametrize("room", [1.5e5])
def test_a_machine_keeps_its_memory_and_learns(room):
    clear_cache()
    X, y = rows(2600)
    model = krein.SVC(kernel=krein.RBF(gamma=20.0), C=10.0, max_memory=room, random_state=0).fit(X[:2200], y[:2200])
    assert model.approximation_.factorization.nbytes <= room
    assert model.selection_.tried
    assert model.score(X[2200:], y[2200:]) > 0.85
