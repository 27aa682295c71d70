"""The taper is psd, keeps within its budget, and finds groups where there are some."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krein.approximation.couplings import taper
from krein.errors import InputError


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
    st.none() | st.integers(1, 8),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_it_is_psd_and_within_its_budget(kind, c, budget, largest, counted, seed):
    rng = np.random.default_rng(seed)
    a = STRENGTHS[kind](rng, c)
    ranks = rng.integers(0, 5, c) if counted else np.ones(c, dtype=int)
    found = taper(a, budget, ranks.tolist() if counted else None, largest)
    assert np.all(found.left < found.right)
    assert len(set(zip(found.left.tolist(), found.right.tolist(), strict=True))) == len(found.left)
    assert (ranks[found.left] * ranks[found.right]).sum() <= budget
    assert np.all((found.weights >= 0) & (found.weights <= 1))
    assert largest is None or np.bincount(found.groups).max() <= largest
    assert found.n_groups == len(set(found.groups.tolist()))
    W = found.to_dense()
    assert np.array_equal(W, W.T)
    assert np.array_equal(np.diag(W), np.ones(c))
    assert np.linalg.eigvalsh(W)[0] >= -1e-13 * c
    assert 0.0 <= found.captured(a) <= 1.0 + 1e-12
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
    found = taper(a, sum(k * (k - 1) // 2 for k in sizes))
    assert np.array_equal(found.to_dense() == 1.0, same)


@pytest.mark.parametrize("kind", STRENGTHS)
def test_everything_is_kept_where_there_is_room(kind):
    a = STRENGTHS[kind](np.random.default_rng(0), 9)
    found = taper(a, 36)
    assert np.array_equal(found.to_dense(), np.ones((9, 9)))
    assert found.captured(a) == pytest.approx(1.0, rel=1e-14)
    assert len(taper(a, 35).left) < 36
    assert len(taper(a, 36 * 4, [2] * 9).left) == 36
    assert len(taper(a, 36 * 4 - 1, [2] * 9).left) < 36


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
    assert 0.75 * share <= taper(a, budget).captured(a) <= share + 1e-12


def test_captured_is_the_share_of_the_energy():
    a = symmetric(np.array([[0, 3.0, 0], [0, 0, 1.0], [0, 0, 0]]))
    assert taper(a, 1).captured(a) == pytest.approx(0.9)
    assert taper(a, 0).captured(a) == 0.0
    assert taper(np.zeros((3, 3)), 1).captured(np.zeros((3, 3))) == 1.0


def test_weak_couplings_are_not_lost_in_the_rounding_of_strong_ones():
    a = symmetric(np.array([[0, 1e200, 0, 0, 0], [0] * 5, [0, 0, 0, 3.0, 2.0], [0, 0, 0, 0, 0], [0] * 5]))
    found = taper(a, 2)
    assert list(zip(found.left, found.right, strict=True)) == [(0, 1), (2, 3)]


def test_groups_are_those_of_the_kept_pairs_and_nothing_is_merged_for_no_gain():
    a = np.zeros((6, 6))
    a[1, 4] = a[4, 1] = 2.0
    found = taper(a, 10)
    assert found.groups.tolist() == [0, 1, 2, 3, 1, 4]
    assert (found.left.tolist(), found.right.tolist()) == ([1], [4])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: taper(np.ones((2, 3)), 1), r"square matrix.*\(2, 3\)"),
        (lambda: taper(-np.ones((2, 2)), 1), "not negative; the smallest is -1"),
        (lambda: taper(np.full((2, 2), np.nan), 1), "finite"),
        (lambda: taper(np.triu(np.ones((3, 3))), 1), r"symmetric.*Pass \(a \+ a.T\)"),
        (lambda: taper(np.ones((3, 3)), -1), "budget must be an integer of at least 0; got -1"),
        (lambda: taper(np.ones((3, 3)), 1.5), "budget.*got 1.5"),
        (lambda: taper(np.ones((3, 3)), 1, [1, 1]), "3 numbers.*got 2"),
        (lambda: taper(np.ones((3, 3)), 1, largest=0), "largest.*got 0"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
