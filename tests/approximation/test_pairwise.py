"""Part 3: the least-squares links between clusters, against a naive twin, and that they never explode."""

from __future__ import annotations

import numpy as np
import pytest

import krein
from krein.approximation.bases import nystrom, sketch
from krein.approximation.links import Side, kept_pairs, pairwise_link
from krein.arrays import stream
from krein.factorization.storage import orthonormalise
from krein.kernels import Evaluator


def two_sides(X, kernel, split, rank, n_landmarks, seed=0):
    evaluator = Evaluator(kernel)
    sides = []
    for i, members in enumerate((np.arange(split), np.arange(split, len(X)))):
        found = sketch(X, members, n_landmarks, "uniform", evaluator, stream(seed, 1, i))
        Q, _, _ = nystrom(X, members, rank, found, evaluator, np.float64)
        U, R = orthonormalise(Q)
        sides.append(Side(members, U, R))
    return sides, evaluator


def naive_link(X, kernel, left, right, rng):
    """Eq. 5 as it stands, with the published code's pseudo-inverse cut-off."""
    rows = [np.sort(rng.choice(len(s.members), min(len(s.members), 3 * s.basis.shape[1]), replace=False))
            for s in (left, right)]  # fmt: skip
    block = kernel(X[left.members[rows[0]]], X[right.members[rows[1]]])
    Qi, Qj = ((s.basis @ s.triangle)[r] for s, r in zip((left, right), rows, strict=True))
    L = np.linalg.pinv(Qi, rcond=1e-6) @ block @ np.linalg.pinv(Qj, rcond=1e-6).T
    return left.triangle @ L @ right.triangle.T


@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.5), krein.TL1(rho=6.0), krein.Sigmoid(gamma=0.2)])
def test_the_link_is_equation_5(kernel):
    X = np.random.default_rng(0).standard_normal((200, 3))
    (left, right), evaluator = two_sides(X, kernel, 90, 6, 12)
    link = pairwise_link(X, left, right, evaluator, stream(0, 2, 0, 1))
    naive = naive_link(X, kernel, left, right, stream(0, 2, 0, 1))
    assert link.tamed == 0.0
    # a well-determined link may give up directions that explain less than 5 % of the misfit, nothing else
    exact = kernel(X[:90], X[90:])
    ours, theirs = (np.linalg.norm(left.basis @ M @ right.basis.T - exact) for M in (link.block, naive))
    assert ours <= 1.1 * theirs


def test_the_link_is_exactly_equation_5_where_every_direction_counts():
    X = np.random.default_rng(1).standard_normal((60, 8))
    kernel = krein.Linear()
    (left, right), evaluator = two_sides(X, kernel, 30, 8, 16)
    link = pairwise_link(X, left, right, evaluator, stream(3, 0))
    assert link.block == pytest.approx(naive_link(X, kernel, left, right, stream(3, 0)), abs=1e-10)


def test_entries_are_three_ranks_by_three_ranks():
    X = np.random.default_rng(0).standard_normal((200, 3))
    (left, right), evaluator = two_sides(X, krein.RBF(gamma=0.5), 12, 6, 12)
    before = evaluator.n_evaluations
    pairwise_link(X, left, right, evaluator, stream(0, 2))
    assert evaluator.n_evaluations - before == min(12, 18) * min(188, 18)


@pytest.mark.parametrize("scale", [1e-200, 1e-150, 1.0, 1e150, 1e200])
def test_links_of_huge_and_tiny_kernels(scale):
    X = np.random.default_rng(0).standard_normal((80, 4))
    (left, right), evaluator = two_sides(X, scale * krein.Linear(), 40, 4, 8)
    link = pairwise_link(X, left, right, evaluator, stream(0, 2))
    assert left.basis @ (link.block / scale) @ right.basis.T == pytest.approx(X[:40] @ X[40:].T, abs=1e-10)


def test_where_all_rows_are_sampled_the_link_is_the_projection():
    X = np.random.default_rng(0).standard_normal((40, 2))
    kernel = krein.RBF(gamma=0.1)  # weak directions, far below any cut-off
    (left, right), evaluator = two_sides(X, kernel, 20, 20, 20)
    link = pairwise_link(X, left, right, evaluator, stream(0, 2))
    expected = left.basis.T @ kernel(X[:20], X[20:]) @ right.basis
    assert link.block == pytest.approx(expected, abs=1e-13)


def test_a_zero_block_and_an_empty_basis_give_nothing():
    X = np.concatenate([np.zeros((10, 2)), np.full((10, 2), 50.0)])
    X = X + 0.01 * np.random.default_rng(0).standard_normal(X.shape)
    (left, right), evaluator = two_sides(X, krein.TL1(rho=1.0), 10, 3, 6)
    link = pairwise_link(X, left, right, evaluator, stream(0, 2))
    assert not link.block.any()
    empty = Side(np.arange(10), np.zeros((10, 0)), np.zeros((0, 0)))
    before = evaluator.n_evaluations
    assert pairwise_link(X, empty, right, evaluator, stream(0, 2)).block.shape == (0, right.basis.shape[1])
    assert evaluator.n_evaluations == before


def test_a_link_that_would_explode_is_tamed():
    """A direction the sample meets only by 1e-5 would multiply the misfit by 1e5."""
    rng = np.random.default_rng(0)
    n, k = 400, 2
    U = np.zeros((n, k))
    U[:, 0] = 1 / np.sqrt(n)
    U[:, 1] = 1e-6 * rng.standard_normal(n)
    U[0, 1] = 1.0  # the direction lives on one row, which the sample misses
    U, _ = np.linalg.qr(U)
    X = rng.standard_normal((2 * n, 3))
    evaluator = Evaluator(krein.RBF(gamma=1.0))
    sides = [Side(np.arange(n) + i * n, U, np.diag([1.0, 1.0])) for i in (0, 1)]
    link = pairwise_link(X, *sides, evaluator, stream(5, 2))
    K = krein.RBF(gamma=1.0)(X[:n], X[n:])
    assert np.linalg.norm(link.block) <= 2.0 * np.linalg.norm(K)
    assert np.linalg.norm(U @ link.block @ U.T - K) <= 1.05 * np.linalg.norm(K)


@pytest.mark.parametrize("drop", [0.0, 0.1, 0.25, 1 / 3, 0.5, 0.99, 1.0])
@pytest.mark.parametrize("c", [1, 2, 3, 7])
def test_the_floor_of_the_share_is_dropped_and_the_most_distant_go(drop, c):
    centres = np.random.default_rng(c).standard_normal((c, 2))
    distances = np.linalg.norm(centres[:, None] - centres, axis=2)
    kept = list(kept_pairs(distances, drop))
    pairs = [(i, j) for i in range(c) for j in range(i + 1, c)]
    assert len(kept) == len(pairs) - int(np.floor(drop * len(pairs) + 1e-9))
    gone = set(pairs) - set(kept)
    assert kept == sorted(kept)
    if kept and gone:
        assert max(distances[p] for p in kept) <= min(distances[p] for p in gone)
