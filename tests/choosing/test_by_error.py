"""The automatic choice: targets and budgets are kept, what was tried is told, and what cannot be had is said."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from scipy.linalg import block_diag

import krein
from krein import InputError, KreinWarning
from krein.approximation.shared import Draft
from krein.choosing.by_error import Directions
from krein.choosing.forecast import Goal, proposal
from krein.kernels import Evaluator

N = 3000


@pytest.fixture(scope="module")
def X():
    return krein.datasets.mixture(N, n_features=6, random_state=0).X


def true_error(a, X):
    K = a.kernel(X)
    return float(np.linalg.norm(K - a.factorization.to_dense()) / np.linalg.norm(K))


@pytest.mark.parametrize(
    "kernel", [krein.RBF(gamma=0.05), krein.TL1(rho=60.0), krein.Sigmoid()], ids=lambda k: type(k).__name__
)
@pytest.mark.parametrize("target", [0.1, 0.01])
def test_the_error_asked_for_is_met_and_the_interval_is_of_the_truth(X, kernel, target):
    a = krein.approximate(X, kernel, max_error=target, random_state=1)
    truth = true_error(a, X)
    assert truth <= target
    assert a.search_.reason == "target met"
    assert a.search_.error.low / 1.01 <= truth <= 1.01 * a.search_.error.high  # 5 % of intervals miss, by little
    assert a.factorization.dtype == "float64"


def test_no_fewer_directions_would_have_been_needed_by_far(X):
    a = krein.approximate(X, krein.RBF(gamma=0.05), max_error=0.05, random_state=1)
    assert true_error(a, X) > 0.5 * 0.05  # what is not needed was given up


@pytest.mark.parametrize(("share", "dtype"), [(0.002, "int8"), (0.01, "auto"), (0.01, "int8"), (0.05, "float16")])
def test_memory_is_never_exceeded_and_well_used(X, share, dtype):
    budget = share * 8 * N * N
    a = krein.approximate(X, krein.RBF(gamma=0.2), max_memory=budget, dtype=dtype, random_state=0)
    assert a.factorization.nbytes <= budget
    assert a.factorization.nbytes >= 0.8 * budget


def test_more_memory_is_no_worse_and_better_than_a_plain_choice_of_the_same_bytes(X):
    kernel = krein.RBF(gamma=0.2)
    plain = krein.approximate(X, kernel, n_blocks=5, rank=20, random_state=0)
    errors = []
    for factor in (1.0, 3.0):
        a = krein.approximate(X, kernel, max_memory=factor * plain.factorization.nbytes, random_state=0)
        errors.append(true_error(a, X))
    assert errors[0] < true_error(plain, X)
    assert errors[1] < errors[0]


def test_a_target_that_does_not_fit_gives_the_best_found_and_both_figures(X):
    budget = 200_000
    with pytest.warns(KreinWarning, match=r"max_error=0\.0001 was not reached.*max_memory=2e\+05") as caught:
        a = krein.approximate(X, krein.RBF(gamma=0.2), max_error=1e-4, max_memory=budget, random_state=0)
    assert a.factorization.nbytes <= budget
    assert a.search_.reason == "target missed"
    told = float(re.search(r"relative error of ([\d.e-]+)", str(caught[0].message)).group(1))
    assert told == pytest.approx(true_error(a, X), rel=0.1)


def test_the_default_target_is_two_percent(X):
    a = krein.approximate(X, krein.RBF(gamma=0.05), random_state=0)
    assert true_error(a, X) <= 0.02
    assert a.factorization.nbytes <= 2**30


def test_what_was_tried_is_a_table_that_ends_with_what_was_kept(X):
    a = krein.approximate(X, krein.RBF(gamma=0.05), max_error=0.05, random_state=0)
    rows = a.search_.tried
    assert {t.stage for t in rows} >= {"built", "kept"}
    assert rows[-1].stage == "kept"
    assert rows[-1].n_blocks == a.n_blocks
    assert rows[-1].nbytes == a.factorization.nbytes
    assert len({t.n_blocks for t in rows}) >= 3
    text = str(a.search_)
    assert "target met" in text
    assert len(text.splitlines()) == len(rows) + 2
    assert a.search_.seconds > 0.0


@pytest.mark.parametrize("given", [{"n_blocks": 7}, {"rank": 9}, {"n_blocks": 7, "rank": 9}], ids=str)
def test_what_is_given_is_kept(X, given):
    target = 0.2 if "rank" in given else 0.05
    a = krein.approximate(X, krein.RBF(gamma=0.05), max_error=target, random_state=0, **given)
    assert a.n_blocks == given.get("n_blocks", a.n_blocks)
    if "rank" in given:
        assert set(a.factorization.ranks) == {9}


def test_a_fixed_rank_that_misses_the_target_says_so(X):
    with pytest.warns(KreinWarning, match="was not reached.*Allow more rank"):
        krein.approximate(X, krein.RBF(gamma=1.0), n_blocks=4, rank=3, max_error=1e-3, random_state=0)


def test_small_data_is_exact_unless_memory_forbids_it():
    X = krein.datasets.mixture(600, n_features=5, random_state=0).X
    a = krein.approximate(X, krein.RBF(gamma=0.3))
    assert a.search_.tried[0].stage == "exact"
    assert true_error(a, X) < 1e-10
    b = krein.approximate(X, krein.RBF(gamma=0.3), max_memory=100_000, random_state=0)
    assert b.factorization.nbytes <= 100_000


def test_the_same_seed_gives_the_same_choice(X):
    first, second = (krein.approximate(X, krein.RBF(gamma=0.05), max_error=0.05, random_state=3) for _ in range(2))
    assert first.factorization.ranks == second.factorization.ranks
    np.testing.assert_array_equal(first.factorization.core, second.factorization.core)


def test_float32_data_keeps_its_type_and_strings_have_no_type():
    X = krein.datasets.mixture(2500, n_features=4, random_state=0).X.astype(np.float32)
    assert krein.approximate(X, krein.RBF(gamma=0.1), max_error=0.05, random_state=0).factorization.dtype == "float32"
    words = ["".join("abcd"[int(i)] for i in row) for row in np.random.default_rng(0).integers(0, 4, (2200, 5))]

    def shared_letters(A, B):
        left, right = (np.array([[word.count(letter) for letter in "abcd"] for word in some]) for some in (A, B))
        return np.minimum(left[:, None], right[None]).sum(2).astype(float)

    a = krein.approximate(words, shared_letters, max_error=0.05, random_state=0)
    K = shared_letters(words, words)
    assert np.linalg.norm(K - a.factorization.to_dense()) <= 0.05 * np.linalg.norm(K)


@pytest.mark.parametrize("asked", [{"coupling": "pairwise"}, {"total_rank": 50}], ids=str)
def test_limits_belong_to_the_shared_coupling(X, asked):
    with pytest.raises(InputError, match="max_error and max_memory choose"):
        krein.approximate(X, krein.RBF(gamma=0.05), max_error=0.05, **asked)


@pytest.mark.parametrize("budget", [60_000, 100_000])
@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_memory_holds_with_many_small_blocks_too(budget, dtype):
    X = krein.datasets.mixture(3000, n_features=3, random_state=0).X
    a = krein.approximate(X, krein.RBF(gamma=0.5), n_blocks=30, max_memory=budget, dtype=dtype, random_state=0)
    assert a.factorization.nbytes <= budget


def test_blocks_of_rank_one_that_do_not_fit_say_so():
    X = krein.datasets.mixture(3000, n_features=3, random_state=0).X
    with pytest.warns(KreinWarning, match="30 blocks of rank 1 take .* above max_memory=4e\\+04"):
        krein.approximate(X, krein.RBF(gamma=0.5), n_blocks=30, max_memory=40_000, dtype="float16", random_state=0)


def test_tiny_targets_are_met_or_missed_in_truth():
    X = np.random.default_rng(0).random((2500, 2))
    a = krein.approximate(X, krein.RBF(gamma=1.0), max_error=1e-9, random_state=0)
    assert true_error(a, X) <= 1e-9


def test_what_is_dropped_is_not_called_exact():
    X = krein.datasets.mixture(600, n_features=5, random_state=0).X
    with pytest.warns(KreinWarning, match=r"max_error=0\.02 was not reached"):
        a = krein.approximate(X, krein.RBF(gamma=0.01), n_blocks=10, drop=1.0, random_state=0)
    assert a.search_.error.relative == pytest.approx(true_error(a, X), rel=1e-6)


def test_a_given_rank_is_kept_however_large():
    asked = Goal.of(10_000, max_error=0.1, n_blocks=1, rank=9000)
    assert proposal(np.zeros((10_000, 1)), Evaluator(krein.RBF(gamma=1.0)), 0, asked).chosen.rank == 9000


def test_a_budget_below_one_direction_is_refused(X):
    with pytest.raises(InputError, match="max_memory must be at least"):
        krein.approximate(X, krein.RBF(gamma=0.05), max_memory=1000)


@pytest.mark.parametrize("limits", [{}, {"max_error": 0.02}, {"max_error": 0.02, "dtype": "int8"}], ids=str)
def test_a_kernel_that_does_not_compress_takes_no_more_than_its_matrix_and_says_so(limits):
    X = np.random.default_rng(0).random((400, 6))
    with pytest.warns(KreinWarning, match="was not reached.*of the matrix itself") as caught:
        a = krein.approximate(X, krein.TL1(rho=0.3), random_state=0, policy=krein.Policy(exact_rows=0), **limits)
    assert len(caught) == 1
    assert a.factorization.nbytes <= 8 * 400**2


def test_entries_of_the_search_are_counted(X):
    a = krein.approximate(X, krein.RBF(gamma=0.05), max_error=0.05, random_state=0)
    last = a.search_.tried[-1]
    built = krein.approximate(X, krein.RBF(gamma=0.05), n_blocks=last.n_blocks, rank=last.rank, random_state=0)
    assert a.n_evaluations >= built.n_evaluations / 2 + a.search_.error.n_evaluations


@pytest.mark.parametrize("fixed", [False, True])
def test_what_is_carried_is_the_sum_of_the_squares_kept(fixed):
    """Against the dense core: order, bytes and squares of every prefix of the directions."""
    rng = np.random.default_rng(0)
    sizes, ranks = np.array([30, 50, 20]), [4, 6, 3]
    core = rng.standard_normal((13, 13)) * np.geomspace(1.0, 1e-3, 13)
    core = core @ core.T
    ends = np.cumsum([0, *ranks])
    spans = [slice(a, b) for a, b in pairwise(ends)]
    blocks = {(i, j): core[spans[i], spans[j]] for i in range(3) for j in range(i, 3)}
    draft = Draft([None] * 3, [None] * 3, krein.BlockSparse.from_blocks(ranks, blocks))
    first = np.array([2, 2, 2]) if fixed else None
    carried = Directions.of(draft, sizes, "int8", 0.0, first)
    V = block_diag(*(draft.direction(i) for i in range(len(draft.core.ranks))))
    squares = (V.T @ core @ V / draft.core.peak) ** 2
    for kept in range(14):
        counts = np.bincount(carried.owner[carried.order[:kept]], minlength=3)
        mask = np.concatenate([np.arange(k) < c for k, c in zip(ranks, counts, strict=True)])
        assert carried.held - carried.lost[kept] == pytest.approx(squares[np.ix_(mask, mask)].sum(), abs=1e-12)
        expected = sizes @ counts + 8 * counts.sum() ** 2 + 8 * 100 + 8 * (counts**2).sum()
        assert carried.nbytes[kept] == expected
    if fixed:
        np.testing.assert_array_equal(carried.ranks(6), first)


def test_a_policy_sets_the_error_and_the_memory_where_neither_is_given(X):
    few = krein.Policy(default_error=0.3, default_memory=50_000.0)
    a = krein.approximate(X, krein.RBF(gamma=0.05), random_state=0, policy=few)
    assert a.factorization.nbytes <= 50_000
    assert 0.02 < a.search_.error.relative <= 0.3
    assert a.search_.chosen == a.search_.tried[-1]


@pytest.mark.parametrize("limit", [{}, {"max_error": 0.05}, {"max_memory": 1e5}])
def test_a_matrix_of_zeros_has_no_direction_and_no_error(limit):
    a = krein.approximate(np.zeros((2100, 3)), krein.Linear(), random_state=0, **limit)
    assert a.factorization.rank == 0
    assert a.error(random_state=0).relative == 0.0
