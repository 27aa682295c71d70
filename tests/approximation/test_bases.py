"""Part 2: landmarks, ranks and the Nyström basis of a cluster, against the dense formula."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import krein
from krein.approximation.bases import LANDMARKS, allocate, choose_landmarks, nystrom, sketch
from krein.approximation.clusters import partition
from krein.arrays import stream
from krein.errors import InputError
from krein.kernels import Evaluator, as_kernel

INDEFINITE = [krein.TL1(rho=0.8), krein.Sigmoid(gamma=0.5, coef0=-0.5), krein.SpherePolynomial(degree=3, a=1.2)]


def sphere(n, d, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def basis(X, kernel, members, rank, n_landmarks, rule="uniform", seed=0):
    evaluator = Evaluator(kernel)
    found = sketch(X, members, n_landmarks, rule, evaluator, stream(seed, 1))
    return (*nystrom(X, members, rank, found, evaluator, np.float64), evaluator)


def dense_nystrom(X, kernel, members, rows, rank):
    """K(:, Z) W_k^+ K(Z, :) with the k eigenvalues of largest magnitude, signs and all."""
    C, W = kernel(X[members], X[rows]), kernel(X[rows], X[rows])
    values, vectors = np.linalg.eigh((W + W.T) / 2)
    top = np.argsort(-np.abs(values))[:rank]
    top = top[np.abs(values[top]) > 1e-9 * np.abs(values).max()]
    return (C @ vectors[:, top] / values[top]) @ (C @ vectors[:, top]).T


@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.5), krein.ELM(), *INDEFINITE])
def test_the_basis_is_the_dense_nystrom_formula_with_its_signs(kernel):
    X, members = sphere(60, 4), np.arange(5, 55)
    Q, signs, extension, evaluator = basis(X, kernel, members, 8, 16)
    dense = dense_nystrom(X, kernel, members, extension.rows, 8)
    assert (Q * signs) @ Q.T == pytest.approx(dense, abs=1e-8 * np.abs(dense).max())
    looked_at = 0 if kernel.traits.psd or kernel.traits.constant_diagonal else 50  # self-similarities, for the guard
    assert evaluator.n_evaluations == 50 * 16 + looked_at
    if not isinstance(kernel, krein.RBF | krein.ELM | krein.TL1):
        assert (signs < 0).any()


@pytest.mark.parametrize("kernel", [krein.Linear(), krein.RBF(gamma=1.0), krein.Sigmoid(gamma=1.0), krein.TL1(rho=1.0)])
@pytest.mark.parametrize(
    "X",
    [
        np.repeat(np.random.default_rng(0).standard_normal((4, 3)), 10, axis=0),
        np.outer(np.arange(1.0, 41.0), [1.0, 2.0, 3.0]) / 40,
        np.ones((40, 3)),
    ],
    ids=["duplicates", "one direction", "constant"],
)
def test_zero_eigenvalues_are_left_out_not_inverted(kernel, X):
    Q, signs, extension, _ = basis(X, kernel, np.arange(40), 40, 40)
    assert np.abs(Q).max() <= 2 * np.sqrt(np.abs(kernel(X)).max() * 40)
    assert (Q * signs) @ Q.T == pytest.approx(kernel(X), abs=1e-8 * 40)
    assert Q.shape[1] <= np.linalg.matrix_rank(kernel(X), tol=1e-13)
    assert np.isfinite(extension.transform).all()


def test_a_zero_kernel_has_a_basis_of_rank_zero():
    Q, signs, _, _ = basis(np.zeros((12, 2)), krein.Linear(), np.arange(12), 3, 6)
    assert Q.shape == (12, 0)
    assert signs.shape == (0,)


def test_near_duplicates_do_not_amplify_rounding():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((10, 3)), 8, axis=0) + 1e-8 * rng.standard_normal((80, 3))
    Q, signs, _, _ = basis(X, krein.RBF(gamma=1.0), np.arange(80), 40, 40)
    assert np.linalg.norm((Q * signs) @ Q.T - krein.RBF(gamma=1.0)(X)) <= 1e-4


def test_an_indefinite_basis_never_explodes():
    """W = [eps] with C = [eps, 1, 1, ...]: Nyström's textbook disaster."""
    n, eps = 30, 1e-4
    S = np.ones((n, n))
    S[0, 0] = eps
    members = np.arange(n)
    evaluator = Evaluator(krein.Precomputed(S))
    for seed in range(40):
        found = sketch(members, members, 1, "uniform", evaluator, stream(seed))
        Q, signs, _ = nystrom(members, members, 1, found, evaluator, np.float64)
        assert np.linalg.norm((Q * signs) @ Q.T - S) <= 1.01 * np.linalg.norm(S)


def test_a_psd_kernel_keeps_every_direction_declared_or_not():
    X = np.random.default_rng(0).standard_normal((200, 2)) ** 3
    declared = krein.RBF(gamma=0.5)
    for rule in LANDMARKS:
        ours = basis(X, declared, np.arange(200), 10, 20, rule)[0]
        unknown = basis(X, as_kernel(lambda A, B: declared(A, B)), np.arange(200), 10, 20, rule)[0]
        assert ours == pytest.approx(unknown)


# -- ranks -------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 500), min_size=1, max_size=30), st.integers(0, 2000), st.sampled_from(["equal", "size"]))
def test_ranks_are_whole_positive_within_the_cluster_and_sum_exactly(sizes, extra, rule):
    sizes = np.asarray(sizes)
    total = len(sizes) + extra
    ranks = allocate(total, sizes, rule)
    assert (ranks >= 1).all()
    assert (ranks <= sizes).all()
    assert ranks.sum() == min(total, sizes.sum())


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(0, 200), st.integers(0, 10**6))
def test_spectral_ranks_sum_exactly_too(sizes, extra, seed):
    rng, sizes = np.random.default_rng(seed), np.asarray(sizes)
    spectra = [rng.standard_normal(rng.integers(0, n + 1)) * 10.0 ** rng.integers(-5, 5) for n in sizes]
    ranks = allocate(len(sizes) + extra, sizes, "spectral", spectra)
    assert (ranks >= 1).all()
    assert (ranks <= sizes).all()
    assert ranks.sum() == min(len(sizes) + extra, sizes.sum())


def test_size_shares_are_proportional():
    assert allocate(100, np.array([500, 300, 200]), "size").tolist() == [50, 30, 20]
    assert allocate(10, np.array([998, 1, 1]), "size").tolist() == [8, 1, 1]  # the published code gave the last one -1
    assert allocate(7, np.array([10, 10, 10]), "equal").tolist() == [3, 2, 2]


def test_spectral_shares_count_the_largest_eigenvalues():
    spectra = [np.array([10.0, -9.0, 8.0, 0.1]), np.array([7.0, 0.2, 0.1]), np.array([-6.0, 5.0, 0.3])]
    assert allocate(6, np.array([10, 10, 10]), "spectral", spectra).tolist() == [3, 1, 2]


def test_spectral_ranks_follow_the_dense_diagonal_blocks():
    rng = np.random.default_rng(0)
    wide, narrow = rng.standard_normal((400, 6)), 20.0 + 0.05 * rng.standard_normal((400, 6))
    X, kernel, total = np.concatenate([wide, narrow]), krein.RBF(gamma=0.1), 40
    a = krein.approximate(X, kernel, n_blocks=2, total_rank=total, allocation="spectral", landmarks="uniform",
                          drop=1.0, random_state=0)  # fmt: skip
    values = [np.linalg.eigvalsh(kernel(X[a.partition.members(i)])) for i in range(2)]
    bar = np.sort(np.concatenate(values))[-total]
    dense = [int((v >= bar).sum()) for v in values]
    assert sum(dense) == total
    assert np.abs(np.subtract(a.factorization.ranks, dense)).max() <= 3


def test_too_small_a_total_is_an_error():
    with pytest.raises(InputError, match="at least 1 per block, here 3; got 2"):
        allocate(2, np.array([5, 5, 5]), "size")


# -- landmarks ---------------------------------------------------------------------------------------------------------


def shared_letters(A, B):
    return np.array([[float(len(set(a) & set(b))) for b in B] for a in A])


def collections():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 3)) * (rng.random((120, 3)) > 0.4)
    duplicates = np.repeat(X[:3], 40, axis=0)
    words = ["".join(rng.choice(list("abcdefgh"), 4)) for _ in range(120)]
    S = X @ X.T
    return {
        "vectors": (X, krein.RBF(gamma=1.0)),
        "indefinite": (X, krein.Sigmoid(gamma=1.0, coef0=-1.0)),
        "zero diagonal": (X, as_kernel(lambda A, B: np.linalg.norm(A[:, None] - B, axis=2))),
        "duplicates": (duplicates, krein.RBF(gamma=1.0)),
        "constant": (np.ones((120, 2)), krein.Linear()),
        "zero": (np.zeros((120, 2)), krein.Linear()),
        "huge": (X * 1e200, krein.Cosine()),
        "tiny": (X * 1e-200, krein.Cosine()),
        "float32": (X.astype(np.float32), krein.RBF(gamma=1.0)),
        "sparse": (sp.csr_matrix(X), krein.RBF(gamma=1.0)),
        "strings": (words, as_kernel(shared_letters)),
        "indices": (np.arange(120), krein.Precomputed(S)),
    }


@pytest.mark.parametrize("rule", LANDMARKS)
@pytest.mark.parametrize("name", list(collections()))
def test_landmarks_are_distinct_members_of_the_cluster(rule, name):
    X, kernel = collections()[name]
    evaluator = Evaluator(kernel)
    members = np.sort(np.random.default_rng(1).choice(120, 70, replace=False))
    p = partition(X, 1, evaluator, 0)
    places = None if p.embedding is None else lambda objects: p.embedding(evaluator, objects)
    rows = choose_landmarks(X, members, 20, rule, evaluator, stream(3), places)
    assert len(set(rows.tolist())) == 20
    assert (np.diff(rows) > 0).all()
    assert set(rows.tolist()) <= set(members.tolist())
    assert np.array_equal(rows, choose_landmarks(X, members, 20, rule, evaluator, stream(3), places))
    assert np.array_equal(choose_landmarks(X, members, 70, rule, evaluator, stream(3), places), members)


def test_spread_landmarks_beat_uniform_ones_on_uneven_data():
    rng = np.random.default_rng(0)
    X = np.concatenate([0.01 * rng.standard_normal((900, 2)), 3.0 * rng.standard_normal((60, 2))])
    kernel, members, errors = krein.RBF(gamma=0.5), np.arange(960), {}
    for rule in LANDMARKS:
        found = []
        for seed in range(5):
            Q, signs, _, _ = basis(X, kernel, members, 15, 30, rule, seed)
            found.append(np.linalg.norm((Q * signs) @ Q.T - kernel(X)))
        errors[rule] = np.median(found)
    assert all(errors[rule] < 0.8 * errors["uniform"] for rule in ("kmeans++", "rpcholesky"))


@pytest.mark.parametrize("rule", ["kmeans++", "rpcholesky", "leverage"])
def test_other_landmarks_keep_the_strongest_directions_of_the_whole_cluster(rule):
    """All of W is used, and of its approximation the best of rank k remains."""
    X, kernel, members = sphere(80, 3), krein.RBF(gamma=2.0), np.arange(80)
    Q, signs, extension, _ = basis(X, kernel, members, 6, 12, rule)
    values, vectors = np.linalg.eigh(dense_nystrom(X, kernel, members, extension.rows, 12))
    best = (vectors[:, -6:] * values[-6:]) @ vectors[:, -6:].T
    assert (Q * signs) @ Q.T == pytest.approx(best, abs=1e-8)
    assert extension(Evaluator(kernel), X) == pytest.approx(Q, abs=1e-8)


def test_distances_far_from_the_origin_still_spread_landmarks():
    rng = np.random.default_rng(0)
    X = np.concatenate([0.01 * rng.standard_normal((300, 2)), rng.uniform(-5, 5, (6, 2))]) + 1e9
    rows = choose_landmarks(X, np.arange(306), 7, "kmeans++", Evaluator(krein.RBF(gamma=1.0)), stream(0))
    assert (rows >= 300).sum() >= 5
