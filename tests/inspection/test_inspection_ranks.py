"""The score against rank: a dense twin, data whose answer is known, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import krein
from krein.estimators.choose_correction import folds
from krein.inspection import ranks
from krein.inspection.findings import RankScore


def few_directions(n=300, seed=0):
    """Classes told apart by the sign of one of three strong directions, one of them negative; noise beside them."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    U = np.column_stack([4.0 * (2 * y - 1) + rng.normal(size=n), 5.0 * rng.normal(size=(n, 2))])
    noise = rng.normal(size=(n, n))
    return U @ np.diag([-1.0, 1.0, 1.0]) @ U.T + 0.1 * (noise + noise.T), y


def many_clusters(n=480, n_clusters=60, seed=0):
    """Small clusters, each with a class of its own draw: every cluster is one eigenvalue, and all are about equal."""
    rng = np.random.default_rng(seed)
    cluster = rng.permutation(np.arange(n) % n_clusters)
    y = rng.permutation(np.arange(n_clusters) % 2)[cluster]
    return np.equal.outer(cluster, cluster) + 0.5 * np.eye(n), y


def scored(K, y, task, rank, alpha, seed):
    """The mean score of one rank and one alpha: the best approximation of that rank, flipped, and linear algebra."""
    met = []
    for train, test in folds(y, task, np.random.default_rng(seed), ranks.N_FOLDS):
        A = K[np.ix_(train, train)]
        w, V = np.linalg.eigh(A)
        kept = np.argsort(np.abs(w))[-rank:]
        flipped = V[:, kept] @ np.diag(np.abs(w[kept])) @ V[:, kept].T
        new = K[np.ix_(test, train)] @ V[:, kept] @ np.diag(np.sign(w[kept])) @ V[:, kept].T
        penalty = alpha * np.linalg.norm(A) / np.sqrt(len(A))  # the rms of the eigenvalues
        values = y.astype(float) if task == "regression" else 1.0 * (y == 1)
        dual = np.linalg.solve(flipped + penalty * np.eye(len(A)), values[train] - values[train].mean())
        guess = values[train].mean() + new @ dual
        met += (1 - (guess - y[test]) ** 2 / y.var() if task == "regression" else (guess > 0.5) == y[test]).tolist()
    return np.mean(met), np.std(met, ddof=1) / np.sqrt(len(met))


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("place", [0, 2, -1])
def test_a_point_of_the_curve_is_that_of_dense_ridge(task, place):
    K, y = few_directions(150)
    y = y if task == "classification" else y + np.random.default_rng(1).normal(size=len(y))
    found = ranks.rank_scores(K, y, task, np.random.default_rng(7))
    assert [r.rank for r in found] == [8, 16, 32, 64, 120]
    point = found[place]
    best, error = max(scored(K, y, task, point.rank, alpha, 7) for alpha in ranks.ALPHAS)
    assert point.score == pytest.approx(best, abs=1e-9)
    assert point.error == pytest.approx(error, rel=0.1)  # alphas may tie


def test_a_few_directions_need_a_small_rank():
    K, y = few_directions()
    found = krein.inspect(K, y=y, random_state=0)
    assert found.sufficient.rank == 8
    assert found.sufficient.score > 0.95
    assert found.baseline == 0.5
    assert found.rank_verdict.startswith("Rank 8 is as good as all 240: ")


def test_many_clusters_need_as_many_directions():
    K, y = many_clusters()
    found = krein.inspect(K, y=y, random_state=0)
    scores = {r.rank: r.score for r in found.rank_scores}
    assert found.sufficient.rank == 64  # the first that holds 60 clusters
    assert scores[64] > 0.98
    assert scores[8] < scores[16] < scores[32] < 0.85
    said = f"Rank 32 reaches {scores[32]:.3f} of {max(scores.values()):.3f}: part of what tells the classes apart"
    assert found.rank_verdict == f"{said} lies in the tail and takes rank 64"


def test_numbers_are_scored_by_r_squared():
    K, y = many_clusters()
    target = y + 0.1 * np.random.default_rng(0).normal(size=len(y))
    found = krein.inspect(K, y=target, random_state=0)
    assert found.baseline == 0.0
    assert found.sufficient.rank == 64
    assert "part of what predicts y lies in the tail" in found.rank_verdict
    assert "score against rank, R² of ridge" in str(found)


def test_labels_that_have_nothing_to_do_with_it_are_told():
    K, y = many_clusters()
    found = krein.inspect(K, y=np.random.default_rng(3).permutation(y), random_state=0)
    assert found.rank_verdict.startswith("No rank predicts better than always the commonest class does (0.500)")


def test_the_sample_is_all_that_is_asked_for():
    K, y = many_clusters()
    without = krein.inspect(K, max_evaluations=60_000, random_state=0)
    found = krein.inspect(K, y=y, max_evaluations=60_000, random_state=0)
    assert found.n_evaluations == without.n_evaluations
    assert found.n_sampled < 480
    assert any("all 480 objects may take a higher one" in note for note in found.notes)
    assert without.rank_scores == ()
    assert without.sufficient is without.baseline is None
    assert without.rank_verdict == ""


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e140])
def test_the_scale_of_the_similarity_changes_no_score(scale):
    K, y = few_directions(100)
    wanted = ranks.rank_scores(K if scale else np.zeros_like(K), y, "classification", np.random.default_rng(0))
    found = ranks.rank_scores(scale * K, y, "classification", np.random.default_rng(0))
    assert [r.score for r in found] == [r.score for r in wanted]


def test_few_objects_have_no_small_rank():
    K, y = few_directions(80)
    assert [r.rank for r in krein.inspect(K, y=y, random_state=0).rank_scores] == [8, 16, 32, 64]
    found = krein.inspect(K[:79, :79], y=y[:79], random_state=0)
    assert found.rank_scores == ()
    assert "score against rank" not in str(found)


def test_a_class_of_one_object_is_no_obstacle():
    K, _ = few_directions(100)
    y = np.array(["rare", *["common"] * 99])
    found = ranks.rank_scores(K, y, "classification", np.random.default_rng(0))
    assert all(r.score == 1.0 for r in found)  # the fold that would learn from one class is left out


def test_the_smallest_within_one_standard_error_is_sufficient():
    K, y = few_directions(80)
    found = krein.inspect(K, y=y, random_state=0)
    curve = (RankScore(8, 0.70, 0.02), RankScore(16, 0.79, 0.02), RankScore(32, 0.80, 0.02), RankScore(64, 0.75, 0.02))
    assert replace(found, rank_scores=curve).sufficient.rank == 16
    assert replace(found, rank_scores=curve[:1] + curve[2:]).sufficient.rank == 32
