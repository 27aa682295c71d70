"""Part 1: every object in one cluster, the nearest one, on any scale and with or without coordinates."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

import krein
from krein.approximation import clusters as module
from krein.approximation.clusters import Branches, Partition, partition
from krein.arrays import grouped
from krein.kernels import Evaluator, as_kernel

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


def test_rows_that_differ_by_one_rounding_are_distinct_rows():
    rng = np.random.default_rng(0)
    X = np.array([[0.3, 0.7], [0.9, 0.1]])[rng.integers(2, size=60)] * (1 + 1e-16 * rng.integers(-2, 3, (60, 2)))
    p = partition(X, 9, RBF, 0)
    assert_sound(p, 60)
    assert p.n_blocks == 9
    assert np.array_equal(p.assign(RBF, X), p.labels)


def distinct_rows(n: int, d: int, kind: str, seed: int) -> np.ndarray | sp.csr_matrix:
    """Rows that rounding, scales or duplicates make hard to tell apart, all of them distinct."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if kind == "float32":
        X = X.astype(np.float32)
    elif kind == "far from 0":
        X += 1e6
    elif kind == "close to each other":
        X = 1.0 + 1e-12 * X
    elif kind == "many scales":
        X[:, 0] *= 10.0 ** -rng.integers(0, 200, n)
    elif kind in ("tiny", "huge"):
        X *= 1e-200 if kind == "tiny" else 1e200
    elif kind == "tiny float32":
        X = (1e-36 * X).astype(np.float32)
    X = np.unique(X, axis=0)
    return sp.csr_matrix(X) if kind == "sparse" else X


KINDS = [
    "plain",
    "float32",
    "far from 0",
    "close to each other",
    "many scales",
    "tiny",
    "huge",
    "tiny float32",
    "sparse",
]


@given(st.integers(2, 80), st.integers(1, 4), st.sampled_from(KINDS), st.booleans(), st.integers(0, 10**6))
@example(n=54, d=1, kind="float32", many=False, seed=659120)  # 53 blocks: two rows were nearest to the same centre
@example(n=92, d=1, kind="float32", many=True, seed=489545)
def test_as_many_blocks_as_distinct_rows(n, d, kind, many, seed):
    X = distinct_rows(n, d, kind, seed)
    n = X.shape[0]
    twice = np.random.default_rng(seed).permutation(np.r_[np.arange(n), np.arange(0, n, 3)])  # duplicates add no place
    for objects in (X, X[twice]):
        p = branched(objects, n, seed) if many else partition(objects, n, RBF, seed)
        assert_sound(p, objects.shape[0])
        assert p.n_blocks == n
        assert np.array_equal(p.assign(RBF, objects), p.labels)


@given(st.integers(3, 80), st.integers(1, 4), st.sampled_from(KINDS), st.booleans(), st.integers(0, 10**6), st.data())
def test_any_number_of_blocks_up_to_that_of_distinct_rows(n, d, kind, many, seed, data):
    X = distinct_rows(n, d, kind, seed)
    c = data.draw(st.integers(2, X.shape[0]))
    p = branched(X, c, seed) if many else partition(X, c, RBF, seed)
    assert_sound(p, X.shape[0])
    assert p.n_blocks == c
    assert np.array_equal(p.assign(RBF, X), p.labels)


def test_a_row_on_a_centre_goes_there_however_near_the_next_one_is():
    centres = np.array([[0.0], [1e-200], [1.0], [1.0 + 2e-16], [1e6]])
    assert np.array_equal(module.nearest(centres, centres), np.arange(5))
    assert np.array_equal(module.nearest(sp.csr_matrix(centres), centres), np.arange(5))
    assert np.array_equal(module.nearest(np.float32([[0.0], [1.0], [1e6]]), centres), [0, 2, 4])


@pytest.mark.parametrize("many", [False, True])
def test_equal_objects_without_vectors_are_never_set_apart(many):
    values = [float(v) for v in np.repeat(np.arange(7.0), 12)]

    def closeness(A, B):
        return np.exp(-np.square(np.subtract.outer(np.asarray(A, float), np.asarray(B, float))))

    evaluator = Evaluator(as_kernel(closeness))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FLAT_CLUSTERS", 4 if many else 128)
        p = partition(values, 7, evaluator, 0)
        with pytest.warns(krein.KreinWarning, match="only 7 clusters"):
            more = partition(values, 20, evaluator, 0)
    for found in (p, more):
        assert_sound(found, 84)
        assert [len({values[i] for i in found.members(j)}) for j in range(found.n_blocks)] == [1] * 7


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


# -- many clusters: by way of branches -----------------------------------------------------------------------------


def tree_by_hand(p: Partition, X) -> np.ndarray:
    """The nearest branch, then the nearest of its leaves, by plain differences."""
    out = []
    for x in np.asarray(X, dtype=np.float64):
        i = np.argmin(((p.branches.centres - x) ** 2).sum(1))
        first, last = p.branches.starts[i : i + 2]
        out.append(first + np.argmin(((p.centres[first:last] - x) ** 2).sum(1)))
    return np.array(out)


def assert_branched(p: Partition, X, n: int, c: int) -> None:
    assert_sound(p, n)
    assert p.n_blocks == c
    assert p.branches is not None
    assert p.branches.starts[0] == 0
    assert p.branches.starts[-1] == c
    assert (np.diff(p.branches.starts) > 0).all()
    assert len(p.branches.centres) == len(p.branches.starts) - 1 <= 2 * np.sqrt(c)
    assert np.array_equal(p.assign(RBF, X), p.labels)


def branched(X, c: int, seed: int) -> Partition:
    """With branches from five clusters on, so that small data shows what large data does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FLAT_CLUSTERS", 4)
        return partition(X, c, RBF, seed)


def test_up_to_a_limit_there_are_no_branches():
    X = blobs(400)
    assert partition(X, module.FLAT_CLUSTERS, RBF, 0).branches is None
    assert partition(X, module.FLAT_CLUSTERS + 1, RBF, 0).branches is not None


@pytest.mark.parametrize("c", [129, 200, 450])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_objects_go_to_the_nearest_leaf_of_the_nearest_branch(c, offset):
    X, new = blobs(1500, c=20) + offset, blobs(300, c=20, seed=1) + offset
    p = partition(X, c, RBF, 0)
    assert_branched(p, X, 1500, c)
    assert np.array_equal(p.labels, tree_by_hand(p, X))
    assert np.array_equal(p.assign(RBF, new), tree_by_hand(p, new))


def test_a_sample_and_strips_make_no_difference_to_the_rule(monkeypatch):
    monkeypatch.setattr(module, "SAMPLE", 200)
    monkeypatch.setattr(module, "ROWS_PER_LEAF", 5)
    monkeypatch.setattr(module, "STRIP", 64)
    monkeypatch.setattr(module, "ASSIGNED_ROWS", 100)
    X = blobs(3000, c=20)
    p = partition(X, 150, RBF, 1)
    assert_branched(p, X, 3000, 150)
    assert np.array_equal(p.labels, tree_by_hand(p, X))


@given(st.integers(5, 120), st.integers(1, 4), st.integers(5, 60), st.booleans(), st.integers(0, 10**6))
def test_branches_give_as_many_clusters_as_asked_for(n, d, c, single, seed):
    X = np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32 if single else np.float64)
    c = min(c, n)
    assert_branched(branched(X, c, seed), X, n, c)


@pytest.mark.parametrize("c", [297, 299, 300])
def test_nearly_as_many_blocks_as_objects(c):
    X = blobs(300)
    assert_branched(partition(X, c, RBF, 0), X, 300, c)


@given(st.integers(1, 30), st.integers(0, 10**6))
def test_duplicates_give_a_cluster_for_each_place(places, seed):
    rng = np.random.default_rng(seed)
    distinct = 10.0 * np.stack([np.arange(places), rng.standard_normal(places)], axis=1)
    X = distinct[np.concatenate([np.arange(places), rng.integers(places, size=120)])]
    with pytest.warns(krein.KreinWarning, match=f"only {places} clusters"):
        p = branched(X, 40, seed)
    assert_sound(p, len(X))
    assert p.n_blocks == places
    assert all((X[p.members(i)] == X[p.members(i)[0]]).all() for i in range(places))
    assert np.array_equal(p.assign(RBF, X), p.labels)


def test_a_place_that_holds_half_of_all_rows_takes_no_centres_from_the_rest():
    X = np.concatenate([np.zeros((600, 3)), np.random.default_rng(0).standard_normal((600, 3))])
    assert_branched(partition(X, 200, RBF, 0), X, 1200, 200)


def test_blocks_are_of_comparable_size_where_density_is_not():
    rng = np.random.default_rng(0)
    X = np.concatenate([0.01 * rng.standard_normal((5400, 3)), 10.0 * rng.standard_normal((600, 3))])
    p = partition(X, 150, RBF, 0)
    assert_branched(p, X, 6000, 150)
    assert p.sizes.max() <= 4 * 6000 / 150


def test_branches_cost_little_inertia():
    X = np.random.default_rng(0).standard_normal((4000, 3))
    p = partition(X, 160, RBF, 0)
    found = ((X - p.centres[p.labels]) ** 2).sum()
    flat = KMeans(160, n_init=1, random_state=0).fit(X).inertia_
    assert found <= 1.15 * flat  # no structure at all is the hardest; 1.01 on covtype


@pytest.mark.parametrize("power", [-300, -100, 100, 300])
def test_scale_does_not_matter_to_branches(power):
    X = blobs()
    moved = branched(X * 10.0**power, 20, 3)
    assert_branched(moved, X * 10.0**power, 300, 20)
    assert np.isfinite(moved.centres).all()
    assert np.array_equal(moved.labels, tree_by_hand(moved, X * 10.0**power * moved.scale))


@pytest.mark.parametrize("size", [1e-36, 1e-30, 1.0, 1e30])
def test_branches_of_float32(size):
    X = (blobs() / 100 * size).astype(np.float32)
    assert_branched(branched(X, 12, 0), X, 300, 12)


def test_sparse_rows_have_branches_too():
    X = blobs() * (np.random.default_rng(1).random((300, 3)) > 0.3)
    p = branched(sp.csr_matrix(X), 25, 2)
    assert_branched(p, sp.csr_matrix(X), 300, 25)
    assert np.array_equal(p.labels, tree_by_hand(p, X))
    with pytest.warns(krein.KreinWarning, match="only 1"):
        branched(sp.csr_matrix((50, 3)), 9, 0)


def test_objects_without_vectors_need_few_landmarks_for_many_blocks(monkeypatch):
    monkeypatch.setattr(module, "FLAT_CLUSTERS", 4)
    monkeypatch.setattr(module, "MAX_LANDMARKS", 70)
    values = np.random.default_rng(0).standard_normal(200).tolist()

    def closeness(A, B):
        return np.exp(-np.square(np.subtract.outer(np.asarray(A, float), np.asarray(B, float))))

    evaluator = Evaluator(as_kernel(closeness))
    p = partition(values, 30, evaluator, 0)
    assert_sound(p, 200)
    assert p.n_blocks == 30
    assert len(p.embedding.landmarks) == 70
    assert np.array_equal(p.assign(evaluator, values), p.labels)
    medoids = p.medoids(evaluator, values)
    places = p.embedding(evaluator, values)
    for i, m in enumerate(medoids):  # of two rows, both are as near to their mean but for rounding
        assert m in p.members(i)
        assert cdist(places[[m]], p.centres[[i]]) == pytest.approx(cdist(places[p.members(i)], p.centres[[i]]).min())


def test_leaves_that_go_take_empty_branches_along():
    whole = Branches(np.arange(4.0)[:, None], np.array([0, 2, 3, 5, 6]))
    part = whole.kept(np.array([1, 3, 4, 5]))
    assert np.array_equal(part.centres.ravel(), [0.0, 2.0, 3.0])
    assert np.array_equal(part.starts, [0, 1, 3, 4])


def test_the_same_seed_gives_the_same_branches_whatever_the_threads():
    X = blobs(2000, c=20)
    found = []
    for threads in (1, 1, 2):
        with threadpool_limits(threads):
            found.append(partition(X, 140, RBF, 7))
    for other in found[1:]:
        assert np.array_equal(found[0].centres, other.centres)
        assert np.array_equal(found[0].labels, other.labels)
    assert not np.array_equal(found[0].labels, partition(X, 140, RBF, 8).labels)


@pytest.mark.parametrize("c", [1, 6, 150])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, lambda X: X * 1e150])
def test_a_medoid_is_the_member_nearest_to_the_centre(c, kind):
    X = blobs(400)
    p = partition(kind(X), c, RBF, 0)
    Y = X * 1e150 * p.scale if kind(X[:1]).max() > 1e100 else X
    medoids = p.medoids(RBF, kind(X))
    assert np.array_equal(p.labels[medoids], np.arange(c))
    for i, m in enumerate(medoids):
        distances = cdist(Y[p.members(i)], p.centres[[i]]).ravel()
        assert np.linalg.norm(Y[m] - p.centres[i]) <= distances.min() * (1 + 1e-6) + 1e-7


@given(st.lists(st.integers(-3, 12), max_size=40))
def test_groups_are_those_of_a_scan_for_each_label(labels):
    labels = np.array(labels, dtype=np.int64)
    found = list(grouped(labels))
    assert [i for i, _ in found] == sorted(set(labels.tolist()))
    for i, here in found:
        assert np.array_equal(here, np.flatnonzero(labels == i))
