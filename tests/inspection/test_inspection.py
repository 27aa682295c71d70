"""What an inspection says against dense linear algebra: exact on all objects, within its bars on some."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans

import krein
from krein.inspection import measures

WORDS = ["".join(w) for w in combinations("abcdefgh", 3)]  # 56 strings


def indefinite(n, seed=0, rank=8):
    """A symmetric matrix with as many negative directions as positive ones, and smaller ones."""
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(n, rank))
    return U @ np.diag(np.where(np.arange(rank) % 2, -0.4, 1.0)) @ U.T


def negative_share(K):
    values = np.linalg.eigvalsh(K)
    return np.abs(values[values < -1e-9 * np.abs(values).max()]).sum() / np.abs(values).sum()


def off_diagonal(A):
    return A[~np.eye(len(A), dtype=bool)]


def squared(K):
    return np.diag(K)[:, None] + np.diag(K) - 2 * K


def violating(K):
    """The share of triples that violate the triangle inequality, by looking at all of them."""
    d = np.sqrt(np.maximum(squared(K), 0.0))
    sides = np.array([(d[i, j], d[j, k], d[i, k]) for i, j, k in combinations(range(len(K)), 3)])
    return np.mean(2 * sides.max(1) > sides.sum(1) + 1e-6)


def overlap(A, B):
    """Letters in common, less the different ones: a similarity of strings in plain Python."""
    return np.array([[len(set(a) & set(b)) - 0.6 * len(set(a) ^ set(b)) for b in B] for a in A], dtype=float)


# -- all objects: exact ------------------------------------------------------------------------------------------------


def test_of_all_objects_every_number_is_exact():
    K = indefinite(60)
    found = krein.inspect(K, random_state=0)
    dense = np.linalg.eigvalsh(K)[::-1]
    assert found.n_sampled == found.n_objects == 60
    assert np.allclose(found.eigenvalues, dense, atol=1e-10)
    assert found.inertia == (4, 52, 4)
    assert np.isclose(found.negative_share.value, negative_share(K))
    assert found.negative_share.low == found.negative_share.value == found.negative_share.high
    assert np.isclose(found.negative_entries.value, np.mean(off_diagonal(K) < 0))
    assert np.isclose(found.negative_squares.value, np.mean(off_diagonal(squared(K)) < 0))
    assert np.allclose((found.low, found.high), (K.min(), K.max()))
    assert np.allclose(found.diagonal, (np.diag(K).min(), np.diag(K).max()))
    assert not found.constant_diagonal
    assert found.counts.sum() == 60 * 59
    share = violating(K)
    assert found.triangle_violations.low <= share <= found.triangle_violations.high
    assert found.triangle_violations.high - found.triangle_violations.low < 0.01


def test_a_psd_kernel_has_nothing_negative_and_needs_nothing():
    X = krein.datasets.mixture(120, n_features=3, random_state=0).X
    found = krein.inspect(X, krein.RBF(), np.arange(120) % 2, random_state=0)
    assert found.psd
    assert found.recommended == "none"
    assert found.negative_share.value == found.negative_squares.value == found.triangle_violations.value == 0.0
    assert found.triangle_violations.high < 1e-4
    assert found.constant_diagonal
    assert [c.name for c in found.corrections] == ["none"]


def test_rounding_is_no_indefiniteness():
    X = np.random.default_rng(0).normal(size=(150, 3))
    assert krein.inspect(X, krein.Linear(), random_state=0).inertia == (3, 147, 0)
    assert krein.inspect(X.astype(np.float32), krein.Linear(), random_state=0).inertia == (3, 147, 0)


def test_the_blocks_of_a_matrix_of_blocks_hold_all_of_it():
    rng = np.random.default_rng(0)
    U = np.zeros((90, 6))
    U[:30, :2], U[30:60, 2:4], U[60:, 4:] = (5 + rng.normal(size=(30, 2)) for _ in range(3))
    K = U @ U.T
    mixed = rng.permutation(90)
    shares = {b.n_blocks: b for b in krein.inspect(K[np.ix_(mixed, mixed)], random_state=0).blocks}
    assert shares[2].share.value > 0.99  # two together and one alone: nothing lies between
    assert np.isclose(shares[2].chance, 5 / 9)
    assert all(b.share.value > b.chance for b in shares.values())


def test_the_share_in_blocks_is_that_of_the_clusters():
    X = krein.datasets.mixture(200, n_features=2, n_clusters=2, spread=0.2, random_state=3)
    K = krein.RBF(gamma=0.3)(X.X)
    found = krein.inspect(X.X, krein.RBF(gamma=0.3), random_state=0).blocks[0]
    labels = KMeans(2, n_init=3, random_state=0).fit_predict(X.X)
    same = np.equal.outer(labels, labels)
    assert found.n_blocks == 2
    assert np.isclose(found.share.value, (K[same] ** 2).sum() / (K**2).sum(), rtol=1e-6)
    assert np.isclose(found.chance, same.mean())


@pytest.mark.parametrize("n", [50, 60, 10_000])
def test_the_diagonal_of_a_sample_weighs_what_it_does_among_all(n):
    places = np.repeat([[0.0], [9.0]], 25, axis=0)  # two groups of 25, of n objects
    K = np.where(np.eye(50, dtype=bool), 1.0, 0.5)
    shares = measures.block_shares(K, places, measures.Subsets(50, n, np.random.default_rng(0)), 0)
    pairs = 0.25 * n * (n - 1)
    assert shares[0].n_blocks == 2
    assert np.isclose(shares[0].share.value, (n + pairs * 24 / 49) / (n + pairs))


def test_a_matrix_of_low_rank_is_forecast_to_need_no_more():
    found = krein.inspect(indefinite(400), random_state=0)
    errors = {(f.n_blocks, f.rank): f for f in found.forecasts}
    assert errors[1, 16].error < 1e-6
    assert errors[1, 16].nbytes == 8 * (400 * 16 + 16**2 + 400)
    assert found.choice == errors[1, 16]


def test_forecasts_are_near_what_is_built():
    X = krein.datasets.mixture(900, n_features=4, n_clusters=5, random_state=0).X
    found = krein.inspect(X, krein.RBF(), max_evaluations=180_000, random_state=0)
    for f in found.forecasts:
        if (f.n_blocks, f.rank) in ((1, 16), (4, 16)):
            a = krein.approximate(X, krein.RBF(), n_blocks=f.n_blocks, rank=f.rank, drop=0.0, random_state=0)
            assert f.nbytes == a.factorization.nbytes
            assert 0.6 < f.error / a.error().relative < 1.6


# -- a sample: within its bars -----------------------------------------------------------------------------------------


def test_intervals_of_a_sample_hold_what_they_are_about():
    n, m, trials = 400, 100, 12
    K = indefinite(n, seed=3)
    rng = np.random.default_rng(0)
    subsets = [rng.choice(n, m, replace=False) for _ in range(60)]
    wanted = {
        "negative_share": np.mean([negative_share(K[np.ix_(s, s)]) for s in subsets]),
        "negative_entries": np.mean(off_diagonal(K) < 0),
        "negative_squares": np.mean(off_diagonal(squared(K)) < 0),
        "triangle_violations": np.mean([violating(K[np.ix_(s[:25], s[:25])]) for s in subsets]),
    }
    hits = dict.fromkeys(wanted, 0)
    for seed in range(trials):
        found = krein.inspect(K, max_evaluations=m**2 + 8 * n + 400, random_state=seed)
        assert abs(found.n_sampled - m) < 12
        for name, value in wanted.items():
            estimate = getattr(found, name)
            assert estimate.low < estimate.value < estimate.high
            hits[name] += estimate.low <= value <= estimate.high
    assert min(hits.values()) >= 0.75 * trials, hits


def test_the_trend_is_that_of_fewer_objects():
    K = indefinite(400, seed=1) + 4.0 * (lambda G: (G + G.T) / 20)(np.random.default_rng(1).normal(size=(400, 400)))
    found = krein.inspect(K, max_evaluations=45_000, random_state=0)
    quarter, half = found.trend
    assert (quarter.n_objects, half.n_objects) == (found.n_sampled // 4, found.n_sampled // 2)
    some = np.random.default_rng(5)
    for t in (quarter, half):
        mean = np.mean(
            [negative_share(K[np.ix_(s, s)]) for s in (some.permutation(400)[: t.n_objects] for _ in range(20))]
        )
        assert abs(t.negative_share - mean) < 4 * t.spread
    assert quarter.negative_share < half.negative_share < found.negative_share.value
    low, high = found.negative_share_of_all
    assert low <= negative_share(K) <= high < 0.5
    assert "of all 400" in str(found)


@pytest.mark.parametrize("rho", [2.0, 4.0, 8.0])
def test_the_share_of_all_lies_between_the_bounds(rho):
    X = krein.datasets.mixture(700, n_features=4, n_clusters=4, random_state=2).X
    found = krein.inspect(X, krein.TL1(rho=rho), max_evaluations=45_000, random_state=0)
    low, high = found.negative_share_of_all
    assert low <= negative_share(krein.TL1(rho=rho)(X)) <= high


def test_the_same_seed_gives_the_same_and_another_another():
    K = indefinite(300)
    one, same, other = (krein.inspect(K, max_evaluations=9000, random_state=s) for s in (1, 1, 2))
    assert np.array_equal(one.rows, same.rows)
    assert one.triangle_violations == same.triangle_violations
    assert not np.array_equal(one.rows, other.rows)


# -- strings, matrices and what is counted -----------------------------------------------------------------------------


def test_strings_are_compared_by_a_function_and_every_call_is_counted():
    asked = []

    def counted(A, B):
        asked.append(len(A) * len(B))
        return overlap(A, B)

    found = krein.inspect(WORDS, counted, random_state=0)
    K = overlap(WORDS, WORDS)
    assert sum(asked) == found.n_evaluations
    assert np.allclose(found.eigenvalues, np.linalg.eigvalsh(K)[::-1], atol=1e-9)
    assert np.isclose(found.negative_share.value, negative_share(K))
    asked.clear()
    found = krein.inspect(WORDS, counted, max_evaluations=1500, random_state=0)
    assert sum(asked) == found.n_evaluations <= 1500
    assert 20 < found.n_sampled < 56


@pytest.mark.parametrize("budget", [5000, 10_000])
def test_the_budget_holds_where_self_similarities_cost_too(budget):
    kernel = krein.Normalized(lambda A, B: overlap(A, B) + 10.0)
    assert 0.7 * budget < krein.inspect(WORDS * 3, kernel, max_evaluations=budget).n_evaluations <= budget


@pytest.mark.parametrize("kind", ["dense", "sparse", "kernel", "file"])
def test_a_matrix_may_come_in_any_form(kind, tmp_path):
    K = np.where(np.abs(indefinite(50)) > 2.0, indefinite(50), 0.0)
    given = {"dense": K, "sparse": sp.csr_matrix(K), "kernel": None, "file": None}[kind]
    if kind == "file":
        np.save(tmp_path / "K.npy", K)
        given = np.load(tmp_path / "K.npy", mmap_mode="r")
    found = krein.inspect(None, krein.Precomputed(K)) if kind == "kernel" else krein.inspect(given)
    assert np.allclose(found.eigenvalues, np.linalg.eigvalsh(K)[::-1], atol=1e-9)


def test_a_kernel_may_be_named():
    X = krein.datasets.mixture(60, n_features=3, random_state=0).X
    found = krein.inspect(X, "rbf", random_state=0)
    K = krein.RBF(gamma=1 / (3 * X.var()))(X)
    assert np.allclose(found.eigenvalues, np.linalg.eigvalsh(K)[::-1], atol=1e-8)


def test_a_file_or_a_given_matrix_is_enough(tmp_path):
    S = indefinite(80)
    np.save(tmp_path / "S.npy", S)
    wanted = krein.inspect(S, random_state=0)
    for given in (tmp_path / "S.npy", str(tmp_path / "S.npy"), krein.Precomputed(S)):
        np.testing.assert_allclose(krein.inspect(given, random_state=0).eigenvalues, wanted.eigenvalues)
    D = np.sqrt(np.maximum(np.subtract.outer(np.diag(S), -np.diag(S)) - 2 * S, 0.0))
    made = krein.FromDistances(krein.Precomputed(D), scale=2.0)
    K = made(np.arange(80))
    found = krein.inspect(made, random_state=0).eigenvalues
    np.testing.assert_allclose(found, np.linalg.eigvalsh(K)[::-1], atol=1e-10)
    with pytest.raises(krein.InputError, match="cannot be opened"):
        krein.inspect(tmp_path / "absent.npy")
    with pytest.raises(krein.InputError, match="must be a 2-D array or a sequence of objects; got NoneType"):
        krein.inspect(krein.RBF())
