"""Groups of clusters keep within their budget, keep a core psd, and are found where there are some."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krein.approximation.couplings import groups_of


def kept(labels: np.ndarray) -> np.ndarray:
    """W, (c, c): 1 within groups and 0 between them."""
    return (labels[:, None] == labels).astype(float)


def captured(labels: np.ndarray, a: np.ndarray) -> float:
    """The share of the energy of all pairs that lies within groups."""
    energy = np.triu(np.square(a / (a.max() or 1.0)), 1)
    return float((energy * kept(labels)).sum() / energy.sum()) if energy.any() else 1.0


def n_pairs(labels: np.ndarray) -> int:
    return int(np.triu(kept(labels), 1).sum())


def symmetric(a: np.ndarray) -> np.ndarray:
    a = np.triu(a, 1)
    return a + a.T


def geometric(rng, c):
    x = rng.standard_normal((c, 3))
    return np.exp(-((x[:, None] - x) ** 2).sum(2))


def star(rng, c):
    a = np.zeros((c, c))
    a[0, 1:] = rng.uniform(1, 2, c - 1)
    return a + a.T


STRENGTHS = {
    "geometric": geometric,
    "star": star,
    "clique": lambda rng, c: np.kron(np.eye(2), np.ones((c, c)))[:c, :c],
    "zeros": lambda rng, c: np.zeros((c, c)),
    "ties": lambda rng, c: np.ones((c, c)),
    "huge range": lambda rng, c: symmetric(10.0 ** rng.uniform(-300, 300, (c, c))),
    "tiny": lambda rng, c: 1e-300 * geometric(rng, c),
    "few": lambda rng, c: symmetric(rng.uniform(size=(c, c)) * (rng.uniform(size=(c, c)) < 0.2)),
}


@given(
    st.sampled_from(sorted(STRENGTHS)),
    st.integers(1, 25),
    st.integers(0, 120),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_it_is_psd_and_within_its_budget(kind, c, budget, counted, seed):
    rng = np.random.default_rng(seed)
    a = STRENGTHS[kind](rng, c)
    ranks = rng.integers(0, 5, c) if counted else np.ones(c, dtype=int)
    W = kept(groups_of(a, budget, ranks.tolist()))
    assert np.triu(W * np.outer(ranks, ranks), 1).sum() <= budget
    assert np.linalg.eigvalsh(W)[0] >= -1e-13 * c
    # a Schur product with a psd block matrix, expanded from clusters to rows
    of = np.repeat(np.arange(c), ranks)
    X = rng.standard_normal((len(of), max(1, len(of) // 3)))
    tapered = (X @ X.T) * W[np.ix_(of, of)]
    if len(of):
        assert np.linalg.eigvalsh(tapered)[0] >= -1e-12 * np.linalg.norm(X) ** 2


@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=6), st.integers(0, 2**32 - 1), st.sampled_from([1e-250, 1, 1e250])
)
def test_planted_groups_are_found(sizes, seed, unit):
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    same = truth[:, None] == truth
    a = unit * symmetric(np.where(same, rng.uniform(0.9, 1.0, same.shape), rng.uniform(0.0, 0.05, same.shape)))
    found = groups_of(a, sum(k * (k - 1) // 2 for k in sizes), [1] * len(truth))
    assert np.array_equal(kept(found) == 1.0, same)


@pytest.mark.parametrize("kind", STRENGTHS)
def test_everything_is_kept_where_there_is_room(kind):
    a = STRENGTHS[kind](np.random.default_rng(0), 9)
    assert np.array_equal(kept(groups_of(a, 36, [1] * 9)), np.ones((9, 9)))
    assert n_pairs(groups_of(a, 35, [1] * 9)) < 36
    assert n_pairs(groups_of(a, 36 * 4, [2] * 9)) == 36
    assert n_pairs(groups_of(a, 36 * 4 - 1, [2] * 9)) < 36


def partitions(items):
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for k in range(len(rest)):
            yield [*rest[:k], [items[0], *rest[k]], *rest[k + 1 :]]


@pytest.mark.parametrize("seed", range(20))
def test_greedy_groups_are_near_the_best_ones(seed):
    """Every partition of seven clusters within the budget, written out."""
    rng = np.random.default_rng(seed)
    a, budget = geometric(rng, 7), int(rng.integers(1, 20))
    best = 0.0
    for parts in partitions(list(range(7))):
        if sum(len(p) * (len(p) - 1) // 2 for p in parts) <= budget:
            best = max(best, sum(a[i, j] ** 2 for p in parts for i in p for j in p if i < j))
    share = best / np.triu(a**2, 1).sum()
    assert 0.75 * share <= captured(groups_of(a, budget, [1] * 7), a) <= share + 1e-12


def test_the_strongest_pair_goes_first_and_no_budget_keeps_none():
    a = symmetric(np.array([[0, 3.0, 0], [0, 0, 1.0], [0, 0, 0]]))
    assert captured(groups_of(a, 1, [1] * 3), a) == pytest.approx(0.9)
    assert captured(groups_of(a, 0, [1] * 3), a) == 0.0


def test_weak_couplings_are_not_lost_in_the_rounding_of_strong_ones():
    a = symmetric(np.array([[0, 1e200, 0, 0, 0], [0] * 5, [0, 0, 0, 3.0, 2.0], [0, 0, 0, 0, 0], [0] * 5]))
    W = kept(groups_of(a, 2, [1] * 5))
    assert np.argwhere(np.triu(W, 1)).tolist() == [[0, 1], [2, 3]]


def test_nothing_is_merged_for_no_gain():
    a = np.zeros((6, 6))
    a[1, 4] = a[4, 1] = 2.0
    found = groups_of(a, 10, [1] * 6)
    assert found[1] == found[4]
    assert len(set(found.tolist())) == 5
