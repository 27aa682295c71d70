"""Algorithm 1: as published against a transcription of the paper, and that its guarded form never explodes."""

from __future__ import annotations

import itertools
import warnings
from functools import partial

import numpy as np
import pytest

import krein
from krein.approximation.bases import nystrom, sketch
from krein.approximation.pairwise import Basis, guarded_link, kept_pairs, link, sampled_block, sampled_whole
from krein.arrays import stream
from krein.factorization.bases import orthonormalise
from krein.kernels import Evaluator
from paper import protocol


def sphere(n, d=4, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def algorithm_1(X, kernel, clusters, rank, seed):
    """Algorithm 1 as the paper has it, with the signs of W on L's diagonal and K[I_i, I_j] in Eq. 5."""
    Q, L = [], {}
    for i in range(clusters.n_blocks):
        V = clusters.members(i)
        Z = np.sort(stream(seed, 1, i).choice(V, min(2 * rank, len(V)), replace=False))
        w, U = np.linalg.eigh(kernel(X[Z], X[Z]))
        k = np.argsort(-np.abs(w))[:rank]
        Q.append(kernel(X[V], X[Z]) @ U[:, k] @ np.diag(np.abs(w[k]) ** -0.5))  # Eq. 4
        L[i, i] = np.diag(np.sign(w[k]))
    for i, j in itertools.combinations(range(clusters.n_blocks), 2):
        rng = stream(seed, 2, i, j)
        I_i, I_j = (np.sort(rng.choice(len(Q[s]), min(len(Q[s]), 3 * rank), replace=False)) for s in (i, j))
        K = kernel(X[clusters.members(i)[I_i]], X[clusters.members(j)[I_j]])
        Q_i, Q_j = Q[i][I_i], Q[j][I_j]
        inverse_i, inverse_j = (np.linalg.pinv(A.T @ A, rcond=1e-6 / np.linalg.norm(A, 2) ** 2) for A in (Q_i, Q_j))
        L[i, j] = inverse_i @ Q_i.T @ K @ Q_j @ inverse_j  # Eq. 5
        L[j, i] = L[i, j].T
    blocks = range(clusters.n_blocks)
    approximation = np.empty((len(X), len(X)))
    approximation[np.ix_(clusters.order, clusters.order)] = np.block(
        [[Q[i] @ L[i, j] @ Q[j].T for j in blocks] for i in blocks]
    )
    return approximation


KERNELS = [krein.RBF(gamma=2.0), krein.ELM(), krein.Laplacian(gamma=1.0), krein.TL1(rho=2.0),
           krein.Sigmoid(gamma=1.0, coef0=-0.5), krein.SpherePolynomial(degree=3, a=1.2)]  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_unguarded_it_is_algorithm_1_as_published(kernel, seed):
    X = sphere(400, seed=seed)
    a = krein.approximate(X, kernel, n_blocks=4, rank=12, coupling="pairwise", guarded=False, random_state=seed)
    expected = algorithm_1(X, kernel, a.partition, 12, a.seed)
    assert np.abs(a.factorization.to_dense() - expected).max() <= 1e-10 * np.abs(expected).max()


def test_unguarded_any_landmarks_give_equation_4():
    X, kernel = sphere(300), krein.RBF(gamma=2.0)
    a = krein.approximate(X, kernel, n_blocks=1, rank=10, coupling="pairwise", guarded=False, landmarks="kmeans++",
                          random_state=0)  # fmt: skip
    Z = X[a.maps[0].rows]
    w, V = np.linalg.eigh(kernel(Z))
    Q = kernel(X, Z) @ (V[:, -10:] / np.sqrt(w[-10:]))
    np.testing.assert_allclose(a.factorization.to_dense(), Q @ Q.T, atol=1e-10)


@pytest.mark.parametrize("kernel", [krein.Linear(), krein.Polynomial(degree=2, gamma=0.1, coef0=0.0)])
def test_guarded_it_is_algorithm_1_where_the_kernels_own_rank_determines_every_link(kernel):
    X = np.random.default_rng(0).standard_normal((120, 4))
    rank = 4 if isinstance(kernel, krein.Linear) else 10
    a = krein.approximate(X, kernel, n_blocks=3, rank=rank, coupling="pairwise", random_state=5)
    naive = algorithm_1(X, kernel, a.partition, rank, a.seed)
    assert np.abs(a.factorization.to_dense() - naive).max() <= 1e-8 * np.abs(naive).max()


@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.5), krein.TL1(rho=0.7), *KERNELS[4:]])
def test_guarded_the_diagonal_blocks_are_algorithm_1_and_the_rest_is_as_good(kernel):
    X = sphere(150)
    a = krein.approximate(X, kernel, n_blocks=3, rank=12, coupling="pairwise", random_state=1)
    ours, naive, K = a.factorization.to_dense(), algorithm_1(X, kernel, a.partition, 12, a.seed), kernel(X)
    for i in range(3):
        block = np.ix_(a.partition.members(i), a.partition.members(i))
        assert np.abs(ours[block] - naive[block]).max() <= 1e-8 * np.abs(naive[block]).max()
    assert np.linalg.norm(ours - K) <= 1.1 * np.linalg.norm(naive - K)


def test_landmarks_are_uniform_for_the_paper_and_spread_otherwise():
    X, kernel = sphere(300), krein.RBF(gamma=2.0)
    make = partial(krein.approximate, X, kernel, n_blocks=3, rank=10, random_state=0)
    for coupling, rule in (("pairwise", "uniform"), ("shared", "kmeans++")):
        auto, given = (make(coupling=coupling, landmarks=name).factorization.to_dense() for name in ("auto", rule))
        np.testing.assert_array_equal(auto, given)


def two_bases(X, kernel, split, rank, n_landmarks, seed=0):
    evaluator = Evaluator(kernel)
    bases = []
    for i, members in enumerate((np.arange(split), np.arange(split, len(X)))):
        found = sketch(X, members, n_landmarks, "uniform", evaluator, stream(seed, 1, i))
        Q, signs, extension = nystrom(X, members, rank, found, evaluator, np.float64)
        U, R = orthonormalise(Q)
        bases.append(sampled_whole(Basis(members, U, R, np.diag(signs), extension, min(len(members), 3 * rank))))
    return bases, evaluator


def guarded(X, left, right, evaluator, rng):
    """The guarded link, and the core's block that it makes."""
    rows, cols, K = sampled_block(X, left, right, evaluator, rng)
    found = guarded_link(left, rows, K, right, cols)
    return found, left.R @ found.L @ right.R.T


def published(X, left, right, evaluator, rng):
    rows, cols, K = sampled_block(X, left, right, evaluator, rng)
    return left.R @ link(left.Q(rows), K, right.Q(cols)) @ right.R.T


@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.5), krein.TL1(rho=6.0), krein.Sigmoid(gamma=0.2)])
def test_the_guarded_link_is_as_good_as_equation_5_where_that_is_well_determined(kernel):
    X = np.random.default_rng(0).standard_normal((200, 3))
    (left, right), evaluator = two_bases(X, kernel, 90, 6, 12)
    found, ours = guarded(X, left, right, evaluator, stream(0, 2, 0, 1))
    theirs = published(X, left, right, evaluator, stream(0, 2, 0, 1))
    assert found.exploded == 0.0
    # It may give up directions that explain less than 10 % of the misfit, nothing else.
    exact = kernel(X[:90], X[90:])
    ours, theirs = (np.linalg.norm(left.U @ M @ right.U.T - exact) for M in (ours, theirs))
    assert ours <= 1.1 * theirs


def test_the_guarded_link_is_exactly_equation_5_where_every_direction_counts():
    X = np.random.default_rng(1).standard_normal((60, 8))
    (left, right), evaluator = two_bases(X, krein.Linear(), 30, 8, 16)
    ours = guarded(X, left, right, evaluator, stream(3, 0))[1]
    assert ours == pytest.approx(published(X, left, right, evaluator, stream(3, 0)), abs=1e-10)


def test_entries_are_three_ranks_by_three_ranks():
    X = np.random.default_rng(0).standard_normal((200, 3))
    (left, right), evaluator = two_bases(X, krein.RBF(gamma=0.5), 12, 6, 12)
    before = evaluator.n_evaluations
    sampled_block(X, left, right, evaluator, stream(0, 2))
    assert evaluator.n_evaluations - before == min(12, 18) * min(188, 18)


def test_a_kernel_of_lower_rank_is_sampled_by_the_rank_that_was_asked_for():
    X = np.random.default_rng(0).standard_normal((200, 3))
    make = partial(krein.approximate, X, krein.Linear(), n_blocks=2, coupling="pairwise", random_state=0)
    three, ten = make(rank=3), make(rank=10)
    assert ten.factorization.ranks == three.factorization.ranks == (3, 3)
    landmarks = [sum(len(m.rows) * n for m, n in zip(a.maps, a.partition.sizes, strict=True)) for a in (three, ten)]
    assert [a.n_evaluations - seen for a, seen in zip((three, ten), landmarks, strict=True)] == [9 * 9, 30 * 30]


@pytest.mark.parametrize("scale", [1e-200, 1e-150, 1.0, 1e150, 1e200])
def test_links_of_huge_and_tiny_kernels(scale):
    X = np.random.default_rng(0).standard_normal((80, 4))
    (left, right), evaluator = two_bases(X, scale * krein.Linear(), 40, 4, 8)
    M = guarded(X, left, right, evaluator, stream(0, 2))[1]
    assert left.U @ (M / scale) @ right.U.T == pytest.approx(X[:40] @ X[40:].T, abs=1e-10)


def test_where_all_rows_are_sampled_the_link_is_the_projection():
    X = np.random.default_rng(0).standard_normal((40, 2))
    kernel = krein.RBF(gamma=0.1)  # weak directions, far below any cut-off
    (left, right), evaluator = two_bases(X, kernel, 20, 20, 20)
    M = guarded(X, left, right, evaluator, stream(0, 2))[1]
    expected = left.U.T @ kernel(X[:20], X[20:]) @ right.U
    assert pytest.approx(expected, abs=1e-13) == M


def test_a_zero_block_and_an_empty_basis_give_nothing():
    X = np.concatenate([np.zeros((10, 2)), np.full((10, 2), 50.0)])
    X = X + 0.01 * np.random.default_rng(0).standard_normal(X.shape)
    (left, right), evaluator = two_bases(X, krein.TL1(rho=1.0), 10, 3, 6)
    assert not guarded(X, left, right, evaluator, stream(0, 2))[1].any()
    empty = Basis(np.arange(10), np.zeros((10, 0)), *[np.zeros((0, 0))] * 2, left.extension, 9)
    before = evaluator.n_evaluations
    for way in (guarded, lambda *args: (None, published(*args))):
        assert way(X, empty, right, evaluator, stream(0, 2))[1].shape == (0, len(right.R))
    assert evaluator.n_evaluations == before


@pytest.mark.parametrize("met", [1e-6, 1e-4, 1e-3])
def test_a_link_that_would_explode_is_tamed(met):
    """A direction that the sample hardly meets would multiply the misfit by the inverse."""
    rng = np.random.default_rng(0)
    n, k = 400, 2
    U = np.zeros((n, k))
    U[:, 0] = 1 / np.sqrt(n)
    U[:, 1] = met * rng.standard_normal(n)
    U[0, 1] = 1.0  # the direction lives on one row, which the sample misses
    U, _ = np.linalg.qr(U)
    X = rng.standard_normal((2 * n, 3))
    evaluator = Evaluator(krein.RBF(gamma=1.0))
    sides = [Basis(np.arange(n) + i * n, U, np.eye(k), np.eye(k), None, 3 * k) for i in (0, 1)]
    M = guarded(X, *sides, evaluator, stream(5, 2))[1]
    K = krein.RBF(gamma=1.0)(X[:n], X[n:])
    assert np.linalg.norm(M) <= 2.0 * np.linalg.norm(K)
    assert np.linalg.norm(U @ M @ U.T - K) <= 1.05 * np.linalg.norm(K)


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


# -- seeds -------------------------------------------------------------------------------------------------------------


def errors_and_warnings(X, kernel, n_blocks, rank, seeds):
    """The relative error of each seed, and whether it came with a warning."""
    errors, warned = [], []
    for seed in seeds:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            a = krein.approximate(X, kernel, n_blocks=n_blocks, rank=rank, coupling="pairwise", random_state=seed)
        errors.append(a.error(20_000, random_state=0).relative)
        warned.append(bool(seen))
    return np.array(errors), np.array(warned)


def assert_none_explodes(errors, warned):
    assert errors.max() <= 1.05
    assert warned[errors > max(0.5, 3 * np.median(errors))].all()


@pytest.mark.parametrize("spread", [0.3, 0.8])
def test_rows_on_a_circle_do_not_explode(spread):
    """Some directions of a basis are carried by a few rows, which a sample can miss."""
    rng = np.random.default_rng(0)
    angle = np.concatenate([rng.normal(centre, spread, 600) for centre in (0.0, 2.0, 4.0)])
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    assert_none_explodes(*errors_and_warnings(X, krein.ELM(), 3, 32, range(8)))


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("cell", protocol.cells(), ids=lambda cell: cell.name)
def test_no_cell_of_the_paper_explodes_in_fifty_seeds(cell):
    X = protocol.prepared(cell)
    assert_none_explodes(*errors_and_warnings(X, cell.similarity, cell.n_blocks, cell.rank, range(50)))
