"""The shared coupling on odd input, under a nugget, and what it counts: threads, kernel entries, ranks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

import krein
from krein import KreinWarning
from krein.approximation.building import build
from krein.approximation.request import Request
from krein.approximation.shrinkage import shrunk
from krein.kernels import Evaluator, Normalized
from strategies import assert_psd, blobs, block_diagonal, dense_basis, dense_core, dense_twin, error, quietly, relative

# -- randomness and counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allocation", ["equal", "spectral", "size"])
@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_threads_do_not_matter_and_seeds_do(allocation, drop):
    X = blobs(400, c=6)
    make = partial(
        krein.approximate,
        X,
        krein.RBF(gamma=0.02),
        n_blocks=6,
        rank=8,
        drop=drop,
        allocation=allocation,
        random_state=1,
    )
    one, many, other = make(), make(n_jobs=4), make(random_state=2)
    assert np.array_equal(dense_core(one.factorization.core), dense_core(many.factorization.core))
    assert np.array_equal(dense_basis(one.factorization), dense_basis(many.factorization))
    assert one.n_evaluations == many.n_evaluations
    assert not np.array_equal(dense_twin(one.factorization), dense_twin(other.factorization))


@pytest.mark.parametrize(("n_blocks", "rank"), [(1, 20), (4, 10), (12, 16)])
def test_kernel_entries_grow_with_n_alone(n_blocks, rank):
    """n times the landmarks, 8 k at most in all, the square of the samples, and what checks the result."""
    counts = {}
    for n in (4000, 8000, 16000):
        X = np.random.default_rng(0).standard_normal((n, 3))
        a = quietly(X, krein.RBF(gamma=0.5), n_blocks=n_blocks, rank=rank, random_state=0)
        columns = 2 * rank * n_blocks
        bound = n * max(8 * rank, 2 * 64) + 2 * n + 100 * columns**2 + n_blocks**2 + 64 * 256
        assert n * 2 * rank < a.n_evaluations <= bound
        counts[n] = a.n_evaluations
    first, second = counts[8000] - counts[4000], counts[16000] - counts[8000]
    assert second <= 2.5 * first
    assert counts[16000] <= 4.4 * counts[4000]


# -- odd inputs --------------------------------------------------------------------------------------------------------


def test_duplicates_cost_no_rank():
    base = np.random.default_rng(0).standard_normal((12, 3))
    X = np.repeat(base, 15, axis=0)
    a = quietly(X, krein.RBF(gamma=0.5), n_blocks=3, rank=12, random_state=0)
    assert error(a, krein.RBF(gamma=0.5)(X)) <= 1e-9
    assert a.factorization.rank <= 12


@pytest.mark.parametrize("value", [0.0, 3.0, -2.0])
@pytest.mark.parametrize("n_blocks", [1, 4])
def test_constant_kernels(value, n_blocks):
    X = np.random.default_rng(0).standard_normal((60, 2))
    a = krein.approximate(X, lambda A, B: np.full((len(A), len(B)), value), n_blocks=n_blocks, rank=5, random_state=0)
    assert dense_twin(a.factorization) == pytest.approx(np.full((60, 60), value), abs=1e-12)
    assert a.factorization.rank == (0 if value == 0.0 else a.n_blocks)
    assert a.kernel_rows(X[:3]) == pytest.approx(np.full((3, 60), value), abs=1e-12)


def test_a_kernel_that_is_zero_on_one_cluster():
    X = np.concatenate([np.zeros((40, 2)), np.random.default_rng(0).standard_normal((40, 2)) + 9.0])
    a = krein.approximate(X, krein.Linear(), n_blocks=2, rank=4, random_state=0)
    assert sorted(a.factorization.ranks) == [0, 2]
    assert error(a, X @ X.T) <= 1e-12


@pytest.mark.parametrize("rank", [1, 3, 50])
def test_clusters_of_one_row(rank):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((50, 2)), 100.0 * rng.standard_normal((6, 2))])
    kernel = krein.Laplacian(gamma=0.01)
    a = krein.approximate(X, kernel, n_blocks=7, rank=rank, random_state=0)
    assert (a.partition.sizes == 1).sum() >= 3
    single = np.flatnonzero(a.partition.sizes == 1)
    for i in single:
        row = a.partition.members(i)
        # a core that sampled entries find too large is scaled as a whole: at rank 1 by a little
        assert dense_twin(a.factorization)[row, row] == pytest.approx(1.0, abs=1e-2 if rank == 1 else 1e-6)
    assert error(a, kernel(X)) <= (1e-9 if rank == 50 else 0.2)
    every = krein.approximate(X, kernel, n_blocks=56, rank=rank, random_state=0)
    assert error(every, kernel(X)) <= 1e-9


def test_every_kind_of_input_gives_the_same_quality():
    X = blobs(200) * (np.random.default_rng(0).random((200, 4)) > 0.3)
    kernel = krein.RBF(gamma=0.02)
    K = kernel(X)
    words = ["".join("abcd"[int(v) % 4] for v in row) for row in np.random.default_rng(1).integers(0, 99, (150, 12))]

    def one_hot(texts):
        return np.array([[text[i] == letter for i in range(12) for letter in "abcd"] for text in texts], dtype=float)

    def shared_letters(A, B):
        return one_hot(A) @ one_hot(B).T

    make = partial(krein.approximate, n_blocks=3, rank=25, random_state=0)
    assert error(make(X, kernel), K) <= 0.02
    assert error(make(sp.csr_matrix(X), kernel), K) <= 0.02
    assert error(make(X.astype(np.float32), kernel), K) <= 0.02
    assert error(make(None, krein.Precomputed(K)), K) <= 0.02
    assert error(make([tuple(x) for x in X], lambda A, B: kernel(np.array(A), np.array(B))), K) <= 0.02
    assert error(make(words, shared_letters, rank=40), shared_letters(words, words)) <= 1e-9


def test_a_normalised_kernel():
    X = blobs(200)
    kernel = Normalized(krein.Polynomial(degree=2, gamma=1.0))
    a = krein.approximate(X, kernel, n_blocks=4, rank=15, random_state=0)
    K = krein.Polynomial(degree=2, gamma=1.0)(X)
    cosine = K / np.sqrt(np.outer(np.diag(K), np.diag(K)))
    assert error(a, cosine) <= 1e-6
    assert a.kernel_rows(X[:9]) == pytest.approx(cosine[:9], abs=1e-5)
    assert_psd(a.factorization)


@pytest.mark.parametrize("power", [-100, -30, 30, 100])
def test_scale_does_not_matter(power):
    X, kernel = blobs(300, c=5), krein.RBF()
    make = partial(quietly, n_blocks=5, rank=10, random_state=0)
    plain = error(make(X, kernel), kernel.bind(X)(X))
    scaled = X * 10.0**power
    assert error(make(scaled, kernel), kernel.bind(scaled)(scaled)) <= 1.5 * plain
    many = kernel * 10.0**power
    a = make(X, many)
    assert error(a, many.bind(X)(X)) == pytest.approx(plain, rel=1e-3)
    assert_psd(a.factorization)
    linear = make(scaled, krein.Linear())
    assert error(linear, krein.Linear()(scaled)) <= 1e-9


# -- a nugget ----------------------------------------------------------------------------------------------------------


def with_nugget(height):
    return krein.RBF(gamma=0.02) + krein.RBF(gamma=1e9) * height  # 1 for equal rows, else 0: white noise


@pytest.mark.parametrize("height", [0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize(("n_blocks", "rank"), [(1, 10), (4, 6), (10, 3)])
def test_a_nugget_never_makes_it_worse_than_its_block_diagonal_or_nothing(height, n_blocks, rank):
    X, kernel = blobs(900), with_nugget(height)  # clusters larger than their samples
    K = kernel(X)
    for seed in range(2):
        a = quietly(X, kernel, n_blocks=n_blocks, rank=rank, random_state=seed)
        alone = relative(block_diagonal(a.factorization), K)
        assert error(a, K) <= 1.05 * min(1.0, alone)
        assert_psd(a.factorization)


def test_a_core_that_is_too_large_is_scaled_down_and_says_so():
    X, kernel = blobs(900), krein.RBF(gamma=0.02)
    request = Request.check(
        X, kernel, n_blocks=4, rank=6, total_rank=None, coupling="shared", guarded=True, landmarks="kmeans++",
        allocation="equal", drop="auto", max_error=None, max_memory=None, dtype="auto", n_jobs=None, random_state=0,
        verbose=0,
    )  # fmt: skip
    evaluator = Evaluator(kernel)
    parts = build(request, evaluator)
    f = parts.factorization
    large = replace(parts, factorization=f.with_core(5.0 * f.core, 0.0))
    with pytest.warns(KreinWarning, match="carries so little of this kernel .* More rank, or another kernel parameter"):
        mended = shrunk(request, large, evaluator)
    assert not np.allclose(mended.factorization.core, large.factorization.core)
    K = kernel(X)
    assert relative(dense_twin(mended.factorization), K) == pytest.approx(relative(dense_twin(f), K), rel=0.2)
    assert_psd(mended.factorization)


# -- ranks -------------------------------------------------------------------------------------------------------------


def uneven(seed=0):
    """One cluster of many directions, and three that are nearly points."""
    rng = np.random.default_rng(seed)
    wide = 3.0 * rng.standard_normal((160, 5))
    points = [40.0 * rng.standard_normal(5) + 0.02 * rng.standard_normal((80, 5)) for _ in range(3)]
    return np.concatenate([wide, *points])


@pytest.mark.parametrize("allocation", ["equal", "spectral", "size"])
@pytest.mark.parametrize("total", [4, 21, 60, 97])
def test_total_rank_is_met_exactly(allocation, total):
    X = blobs(300)
    a = quietly(X, krein.Laplacian(gamma=0.1), n_blocks=4, total_rank=total, allocation=allocation, random_state=0)
    assert a.factorization.rank == total
    assert min(a.factorization.ranks) >= 1


@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.02), krein.Laplacian(gamma=0.02)])
def test_ranks_by_strength_pay_where_clusters_differ(kernel):
    errors = {"equal": [], "spectral": []}
    for seed in range(4):
        X = uneven(seed)
        K = kernel(X)
        make = partial(quietly, X, kernel, n_blocks=4, total_rank=60, random_state=seed)
        for allocation, found in errors.items():
            found.append(error(make(allocation=allocation), K))
    assert np.mean(errors["spectral"]) <= np.mean(errors["equal"])
