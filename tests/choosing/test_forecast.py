"""Forecasts from a sample are near the truth, and what is proposed by them is kept within what is asked."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from krein.approximation.clusters import partition
from krein.arrays import stream
from krein.choosing import forecast
from krein.choosing.candidates import bytes_of
from krein.choosing.forecast import Goal, proposal, squared_errors
from krein.errors import InputError
from krein.factorization.bases import STORAGE
from krein.kernels import RBF, TL1, Evaluator, Linear, Precomputed, count_objects
from krein.policy import DEFAULT


@pytest.fixture(autouse=True, scope="module")
def _small_samples():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecast, "SAMPLE_ROWS", (200, 200))
        yield


def points(n, d=3, seed=0):
    return np.random.default_rng(seed).random((n, d))


def proposed(objects, evaluator, seed, **asked):
    """What is proposed, and why."""
    return proposal(objects, evaluator, seed, Goal.of(count_objects(objects), **asked))


def propose(objects, evaluator, seed, **asked):
    return proposed(objects, evaluator, seed, **asked).chosen


def best_errors(K, labels, ranks):
    """|K - PKP|² for the projector P onto the k leading left singular vectors of each block row, and its diagonal's."""
    every, diagonal = [], []
    for k in range(1, ranks + 1):
        P = np.zeros_like(K)
        for i in np.unique(labels):
            mine = np.flatnonzero(labels == i)
            U = np.linalg.svd(K[mine], full_matrices=False)[0][:, :k]
            P[np.ix_(mine, mine)] = U @ U.T
        E = K - P @ K @ P
        every.append((E**2).sum())
        diagonal.append((E.diagonal() ** 2).sum())
    return np.array(every), np.array(diagonal)


@given(st.integers(0, 10_000), st.integers(1, 4), st.booleans())
def test_the_curve_is_that_of_the_best_bases_at_every_rank(seed, n_blocks, definite):
    rng = np.random.default_rng(seed)
    m, ranks = 24, 9
    K = rng.standard_normal((m, m))
    K = K @ K.T if definite else K + K.T
    labels = rng.integers(n_blocks, size=m)
    found = squared_errors(K, labels, ranks)
    every, diagonal = best_errors(K, labels, ranks)
    total = (K**2).sum()
    np.testing.assert_allclose(found.diagonal * m, diagonal, atol=1e-9 * total)
    np.testing.assert_allclose(found.apart * m * (m - 1) + found.diagonal * m, every, atol=1e-9 * total)
    np.testing.assert_allclose(found.K_apart * m * (m - 1) + found.K_diagonal * m, total)


@pytest.mark.parametrize("n_blocks", [1, 4, 12])
def test_the_forecast_from_a_sample_is_near_the_best_error_of_all_rows(n_blocks):
    X, kernel = points(1500, 4), RBF(gamma=2.0)
    K = kernel(X)
    labels = partition(X, n_blocks, Evaluator(kernel), 0).labels
    expected, _ = forecast.Curves(X, Evaluator(kernel), 1, 1500, 600).errors(n_blocks, 40)
    for k in (2, 5, 12):
        captured = 0.0
        rows = [K[labels == i] for i in range(n_blocks)]
        bases = [_range(A, k) for A in rows]
        for i, U in enumerate(bases):
            for j, V in enumerate(bases):
                captured += (((U.T @ rows[i])[:, labels == j] @ V) ** 2).sum()
        true = math.sqrt(1.0 - captured / (K**2).sum())
        assert expected[k - 1] == pytest.approx(true, rel=0.2)


def _range(A, k):
    Y = np.random.default_rng(0).standard_normal((A.shape[1], k + 10))
    Q = np.linalg.qr(A @ Y)[0]
    for _ in range(2):
        Q = np.linalg.qr(A @ (A.T @ Q))[0]
    return Q @ np.linalg.svd(Q.T @ A, full_matrices=False)[0][:, :k]


@pytest.mark.parametrize("n", [3000, 100_000])
def test_an_identity_needs_a_rank_for_every_row(n):
    K = np.eye(400)
    curves = forecast.Curves(np.arange(400), Evaluator(Precomputed(K)), 0, 400, 400)
    curves.n = n  # as if the sample were of n rows
    errors, _ = curves.errors(1, n)
    ranks = np.arange(1, len(errors) + 1)
    np.testing.assert_allclose(errors[:2000] ** 2, 1 - ranks[:2000] / n, rtol=0.05)


def test_a_smaller_error_takes_more_bytes_and_more_bytes_give_a_smaller_error():
    X, evaluator = points(3000), Evaluator(RBF(gamma=8.0))
    tables = [proposed(X, evaluator, 0, max_error=e) for e in (0.1, 0.03, 0.01)]
    assert [p.reason for p in tables] == ["target met"] * 3
    found = [p.chosen for p in tables]
    assert all(p.error <= e for p, e in zip(found, (0.1, 0.03, 0.01), strict=True))
    assert found[0].nbytes < found[1].nbytes < found[2].nbytes
    kept = [propose(X, evaluator, 0, max_memory=b) for b in (1e5, 2e5, 4e5)]
    assert all(p.nbytes <= b for p, b in zip(kept, (1e5, 2e5, 4e5), strict=True))
    assert kept[0].error > kept[1].error > kept[2].error


@settings(max_examples=10)
@given(st.floats(5e-3, 0.5), st.sampled_from(STORAGE), st.integers(0, 5))
def test_no_choice_on_the_table_that_meets_the_target_takes_fewer_bytes(target, dtype, seed):
    table = proposed(POINTS, Evaluator(RBF(gamma=4.0)), seed, max_error=target, dtype=dtype)
    p = table.chosen
    assert p.nbytes == bytes_of(len(POINTS), p.n_blocks, p.rank, p.dtype)
    assert p.dtype == dtype
    meeting = [a.nbytes for a in table.tried if a.error <= target]
    assert (
        p.nbytes == min(meeting)
        if meeting
        else p.error <= forecast.EQUIVALENT_ERROR_RATIO * min(a.error for a in table.tried)
    )


POINTS = points(260)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"n_blocks": 5}, "n_blocks"),
        ({"rank": 7}, "rank"),
        ({"dtype": "float16"}, "dtype"),
        ({"n_blocks": 300}, "n_blocks"),
    ],
)
@pytest.mark.parametrize("limit", [{"max_error": 0.02}, {"max_memory": 3e6}, {}])
def test_what_is_given_is_kept(given, kept, limit):
    p = proposed(points(3000), Evaluator(RBF(gamma=4.0)), 0, **given, **limit)
    assert getattr(p.chosen, kept) == given[kept]
    assert all(getattr(a, kept) == given[kept] for a in p.tried)


def test_blocks_and_rank_given_leave_only_the_type():
    p = proposed(points(3000), Evaluator(RBF(gamma=4.0)), 0, n_blocks=4, rank=9, max_memory=2e5)
    assert (p.chosen.n_blocks, p.chosen.rank, p.reason) == (4, 9, "as asked")
    assert p.chosen.nbytes <= 2e5


def test_the_type_is_the_datas_own_unless_memory_calls_for_less():
    X, evaluator = points(3000), Evaluator(RBF(gamma=8.0))
    free = propose(X, evaluator, 0, max_error=0.02)
    assert free.dtype == "float64"
    assert propose(X, evaluator, 0, max_error=0.02, own_dtype="float32").dtype == "float32"
    roomy = propose(X, evaluator, 0, max_error=0.02, max_memory=2.0 * free.nbytes)
    assert (roomy.n_blocks, roomy.rank, roomy.dtype) == (free.n_blocks, free.rank, "float64")
    tight = propose(X, evaluator, 0, max_error=0.02, max_memory=0.6 * free.nbytes)
    assert tight.dtype != "float64"
    assert tight.error <= 0.02
    assert tight.nbytes <= 0.6 * free.nbytes


def test_what_cannot_be_met_gives_the_best_there_is_and_says_so():
    X, evaluator = points(3000, 4), Evaluator(RBF(gamma=8.0))
    p = proposed(X, evaluator, 0, max_error=1e-3, max_memory=2e5)
    assert p.reason == "memory budget"
    assert p.chosen.error > 1e-3
    assert 1.5e5 < p.chosen.nbytes <= 2e5
    assert proposed(X, evaluator, 0, max_error=1e-3, rank=5).reason == "rank limit"
    assert propose(X, evaluator, 0, max_error=1e-3, dtype="int8").error > 1e-3  # rounding alone is more


def test_the_default_is_two_percent_in_a_gibibyte():
    X, evaluator = points(2500), Evaluator(TL1(rho=2.1))
    assert proposed(X, evaluator, 3) == proposed(X, evaluator, 3, max_error=0.02, max_memory=2**30)


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_the_scale_of_the_similarities_does_not_matter(scale):
    K = RBF(gamma=4.0)(points(300))
    one = propose(np.arange(300), Evaluator(Precomputed(K)), 0, max_error=0.05)
    other = propose(np.arange(300), Evaluator(Precomputed(scale * K)), 0, max_error=0.05)
    assert (one.n_blocks, one.rank) == (other.n_blocks, other.rank)
    assert one.error == pytest.approx(other.error, rel=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.0])
def test_a_constant_kernel_has_rank_one(value):
    p = propose(np.arange(300), Evaluator(Precomputed(np.full((300, 300), value))), 0)
    assert (p.n_blocks, p.rank, p.error) == (1, 1, 0.0)


def test_an_exact_low_rank_is_found_and_not_exceeded():
    X = np.random.default_rng(0).standard_normal((3000, 6))
    p = propose(X, Evaluator(Linear()), 0, max_error=1e-6, n_blocks=1)
    assert (p.rank, p.error) == (6, 0.0)
    assert propose(X, Evaluator(Linear()), 0, max_memory=1e8, n_blocks=1).rank == 6


def test_duplicates_leave_fewer_clusters_and_no_warning():
    X = np.repeat(points(5), 600, axis=0)
    p = propose(X, Evaluator(RBF(gamma=30.0)), 0)
    assert p.error <= 0.02
    assert p.n_blocks * p.rank <= 40


def test_sparse_rows_and_float32_rows_get_the_proposal_of_dense_ones():
    X = points(2500) * (points(2500, seed=1) > 0.5)
    asked = {"max_error": 0.03}
    dense = propose(X, Evaluator(RBF(gamma=2.0)), 0, **asked)
    for same in (sp.csr_matrix(X), X.astype(np.float32)):
        p = propose(same, Evaluator(RBF(gamma=2.0)), 0, **asked)
        assert p.error <= 0.03
        assert p.nbytes == pytest.approx(dense.nbytes, rel=0.3)


def test_objects_without_vectors_cost_few_similarities():
    words = ["".join(map(str, w)) for w in np.random.default_rng(0).integers(4, size=(4000, 6))]

    def shared(A, B):
        a = np.array([list(x) for x in A])
        b = np.array([list(x) for x in B])
        return (a[:, None] == b[None]).mean(2)

    evaluator = Evaluator(shared)
    p = propose(words, evaluator, 0, max_error=0.05)
    assert p.error <= 0.05
    assert p.rank <= 24  # a match of letters at 6 places: rank 4 * 6 - 5 over all words
    assert evaluator.n_evaluations <= forecast.EXPENSIVE_SIMILARITIES * len(words)


def test_an_indefinite_kernel_is_measured_by_magnitude():
    rng = np.random.default_rng(0)
    V = np.linalg.qr(rng.standard_normal((400, 12)))[0]
    K = V @ np.diag([(-1.0) ** i * 2.0 ** (-i) for i in range(12)]) @ V.T
    p = propose(np.arange(400), Evaluator(Precomputed(K)), 0, n_blocks=1, max_error=0.05)
    assert 4 <= p.rank <= 6  # 2^-k falls below 0.05 / BUILT_ERROR at 5


def test_too_little_memory_is_an_error_that_says_how_much():
    with pytest.raises(InputError, match=r"max_memory must be at least 27016 bytes for 3000 objects; got 1000") as e:
        propose(points(3000), Evaluator(RBF()), 0, max_memory=1000.0)
    assert "Allow more" in str(e.value)
    with pytest.raises(InputError, match="with n_blocks=10 and rank=50"):
        propose(points(3000), Evaluator(RBF()), 0, max_memory=1e5, n_blocks=10, rank=50)


def test_a_million_rows_stay_within_the_limits_of_the_core():
    X = np.random.default_rng(0).random((1_000_000, 2), dtype=np.float32)
    rows = stream(0, 1).choice(1_000_000, 300)
    curves = forecast.Curves(X[rows], Evaluator(RBF(gamma=300.0)), 0, 300, 300)
    curves.n = 1_000_000
    p = forecast._searched(Goal.of(1_000_000, max_error=1e-3, dtype="float32"), curves)
    assert p.chosen.n_blocks * p.chosen.rank <= DEFAULT.largest_core
    rows = forecast.PROPOSED_ROWS_PER_RANK
    assert all(a.n_blocks == 1 or a.n_blocks * a.rank * rows <= 1_000_000 for a in p.tried)


def test_the_same_seed_gives_the_same_proposal():
    X, evaluator = points(2500), Evaluator(RBF(gamma=6.0))
    assert proposed(X, evaluator, 5) == proposed(X, evaluator, 5)


def test_directions_found_by_iteration_capture_what_the_singular_vectors_do():
    A = RBF(gamma=3.0)(points(700, 5), points(900, 5, seed=1))
    U = forecast._leading(A, 60)
    np.testing.assert_allclose(U.T @ U, np.eye(60), atol=1e-12)
    tail = np.sqrt(np.cumsum(np.linalg.svd(A, compute_uv=False)[::-1] ** 2)[::-1])
    for k in (1, 10, 60):
        assert np.linalg.norm(A - U[:, :k] @ (U[:, :k].T @ A)) == pytest.approx(tail[k], rel=0.02)
