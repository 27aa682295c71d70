"""What is tried in a number of bytes fits them, uses them, and is what the score says."""

from __future__ import annotations

import numpy as np
import pytest

import krein
from krein.choosing.budget import Trial, candidates, factorization_bytes, shapes, within
from krein.estimators.cache import clear_cache
from strategies import dense_twin


def rows(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    return X, np.sin(15.0 * X[:, 0]) * np.cos(15.0 * X[:, 1]) > 0.0


@pytest.mark.parametrize(("n_blocks", "rank"), [(40, 16), (150, 8), (300, 12)])
def test_the_bytes_of_blocks_on_their_own_are_an_upper_bound_and_near(n_blocks, rank):
    X, _ = rows(2400)
    f = krein.approximate(
        X, krein.RBF(gamma=5.0), n_blocks=n_blocks, rank=rank, drop=1.0, dtype="float64", random_state=0
    ).factorization
    forecast = factorization_bytes(2400, n_blocks, rank, False, "float64")
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
    for shape in shapes(n):
        for k, dtype in candidates(n, room, ("float64", "float16", "int8"), shape):
            assert factorization_bytes(n, *((shape[0], k, shape[1], dtype))) <= room
    assert {c for c, _ in shapes(n, 7)} == {7}
    assert all(k == 5 for k, _ in candidates(n, room, ("float64",), (40, False), 5))


def test_the_best_score_that_fits_is_found_and_what_takes_too_much_goes_down_in_rank():
    calls = []

    def score(n_blocks, rank, coupled, dtype):
        calls.append(dtype)
        held = factorization_bytes(4000, n_blocks, rank, coupled, dtype) * (1.5 if dtype == "int8" else 1.0)
        good = (not coupled) * n_blocks + 0.001 * rank
        return Trial(n_blocks, rank, coupled, krein.RBF(gamma=1.0), good, 0.0, round(held), 0.0, dtype)

    tried = within(4000, 6e5, ("float64", "float16", "int8"), None, None, score)
    assert {"float64", "int8"} <= set(calls)
    assert all(t.nbytes <= 6e5 for t in tried)
    assert max(tried, key=lambda t: t.score).n_blocks == max(c for c, coupled in shapes(4000) if not coupled)
    assert within(4000, 1e3, ("float64",), None, None, score) == []


@pytest.mark.parametrize("room", [1.5e5])
def test_a_machine_keeps_its_memory_and_learns(room):
    clear_cache()
    X, y = rows(2600)
    model = krein.SVC(kernel=krein.RBF(gamma=20.0), C=10.0, max_memory=room, random_state=0).fit(X[:2200], y[:2200])
    assert model.approximation_.factorization.nbytes <= room
    assert model.selection_.tried
    assert model.score(X[2200:], y[2200:]) > 0.85
