"""Part 1: every object in one cluster, the nearest one, on any scale and with or without coordinates."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

import krein
from krein import partition as module
from krein.kernels import Evaluator, as_kernel
from krein.partition import Partition, partition

RBF = Evaluator(krein.RBF(gamma=1.0))


def blobs(n=300, d=3, c=4, seed=0):
    rng = np.random.default_rng(seed)
    return 10.0 * rng.standard_normal((c, d))[rng.integers(c, size=n)] + rng.standard_normal((n, d))


def assert_sound(p: Partition, n: int) -> None:
    assert np.array_equal(np.sort(p.order), np.arange(n))
    assert p.starts[0] == 0
    assert p.starts[-1] == n
    assert (p.sizes > 0).all()
    assert len(p.centres) == p.n_blocks
    for i in range(p.n_blocks):
        assert (np.diff(p.members(i)) > 0).all()
        assert (p.labels[p.members(i)] == i).all()


@given(st.integers(2, 200), st.integers(1, 5), st.integers(1, 12), st.integers(0, 10**6))
def test_every_object_is_in_exactly_one_cluster(n, d, c, seed):
    X = np.random.default_rng(seed).standard_normal((n, d))
    p = partition(X, min(c, n), RBF, seed)
    assert_sound(p, n)
    assert p.n_blocks == min(c, n)
    assert np.array_equal(p.assign(RBF, X), p.labels)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_each_goes_to_the_nearest_centre(dtype, offset):
    X = (blobs() + offset).astype(dtype)
    p = partition(X, 6, RBF, 0)
    distances = cdist(X.astype(np.float64), p.centres)
    chosen = distances[np.arange(len(X)), p.labels]
    assert np.all(chosen <= distances.min(1) * (1 + 1e-4) + 1e-4)


def test_centres_come_from_a_subset_but_all_rows_are_assigned(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 100)
    monkeypatch.setattr(module, "STRIP", 64)
    X = blobs(1000)
    p = partition(X, 4, RBF, 1)
    assert_sound(p, 1000)
    assert np.array_equal(p.labels, cdist(X, p.centres).argmin(1))


@pytest.mark.parametrize("power", [-320, -310, -200, -100, -50, 50, 100, 200, 300])
def test_scale_does_not_matter(power):
    X = blobs()
    plain, moved = partition(X, 5, RBF, 3), partition(X * 10.0**power if power > -300 else X * 1e-300, 5, RBF, 3)
    assert np.array_equal(plain.labels, moved.labels)
    if -200 <= power <= 200:
        assert moved.centre_distances() == pytest.approx(plain.centre_distances() * 10.0**power)


@pytest.mark.parametrize("size", [1e-44, 1e-30, 1e30])
def test_float32_extremes(size):
    X = (blobs() / 100 * size).astype(np.float32)
    p = partition(X, 4, RBF, 0)
    assert_sound(p, len(X))
    assert np.isfinite(p.centres).all()


def test_subnormal_coordinates():
    X = np.where(np.random.default_rng(0).random((40, 2)) > 0.5, 5e-324, 0.0)
    p = partition(X, 3, RBF, 0)
    assert_sound(p, 40)


def test_fewer_distinct_points_than_blocks_warns_and_works():
    X = np.repeat(np.array([[0.0, 0.0], [1.0, 1.0], [5.0, 0.0]]), 10, axis=0)
    with pytest.warns(krein.KreinWarning, match="8 blocks were asked for, but only 3"):
        p = partition(X, 8, RBF, 0)
    assert_sound(p, 30)
    assert len({tuple(X[i]) for i in p.order[p.starts[:-1]]}) == 3


def test_points_that_only_rounding_sets_apart_are_one_place():
    rng = np.random.default_rng(0)
    X = np.array([[0.3, 0.7], [0.9, 0.1]])[rng.integers(2, size=60)] * (1 + 1e-16 * rng.integers(-2, 3, (60, 2)))
    with pytest.warns(krein.KreinWarning, match="only 2 clusters"):
        p = partition(X, 9, RBF, 0)
    assert_sound(p, 60)


def test_constant_data_and_one_block():
    with pytest.warns(krein.KreinWarning, match="only 1"):
        p = partition(np.ones((12, 2)), 4, RBF, 0)
    assert_sound(p, 12)
    one = partition(blobs(), 1, RBF, 0)
    assert one.n_blocks == 1
    assert (one.assign(RBF, blobs(seed=5)) == 0).all()


def test_as_many_blocks_as_objects():
    p = partition(blobs(20), 20, RBF, 0)
    assert (p.sizes == 1).all()


def test_centre_distances_are_euclidean():
    p = partition(blobs() + 1e6, 6, RBF, 0)
    assert p.centre_distances() == pytest.approx(cdist(p.centres, p.centres), abs=1e-6)


def test_sparse_rows_are_clustered_as_dense_ones():
    X = blobs() * (np.random.default_rng(1).random((300, 3)) > 0.3)
    dense, thin = partition(X, 5, RBF, 2), partition(sp.csr_matrix(X), 5, RBF, 2)
    assert np.array_equal(thin.assign(RBF, sp.csr_matrix(X)), thin.labels)
    assert np.array_equal(thin.labels, cdist(X, thin.centres).argmin(1))
    assert dense.n_blocks == thin.n_blocks


def test_objects_without_vectors_are_told_apart_by_their_similarities():
    words = [letter * (3 + i % 3) for i in range(30) for letter in "abc"]

    def overlap(A, B):
        return np.array([[float(len(set(a) & set(b))) + 0.1 * (len(a) == len(b)) for b in B] for a in A])

    evaluator = Evaluator(as_kernel(overlap))
    p = partition(words, 3, evaluator, 0)
    assert_sound(p, 90)
    groups = [{words[i][0] for i in p.members(j)} for j in range(3)]
    assert sorted(map(sorted, groups)) == [["a"], ["b"], ["c"]]
    assert np.array_equal(p.assign(evaluator, words), p.labels)
    assert p.labels[0] == p.assign(evaluator, ["aaaaaa"])[0]


def test_a_similarity_that_is_zero_everywhere_gives_one_block():
    evaluator = Evaluator(as_kernel(lambda A, B: np.zeros((len(A), len(B)))))
    with pytest.warns(krein.KreinWarning, match="only 1"):
        p = partition(list("abcdef"), 3, evaluator, 0)
    assert_sound(p, 6)


def test_the_same_seed_gives_the_same_clusters():
    assert np.array_equal(partition(blobs(), 5, RBF, 7).labels, partition(blobs(), 5, RBF, 7).labels)
