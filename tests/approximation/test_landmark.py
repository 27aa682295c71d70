"""coupling="landmark": few similarities, exact where blocks are small, and what estimators do with bare objects."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import krein
from krein.kernels import FromCallable, Traits
from krein.policy import DEFAULT

DATA = krein.datasets.families(2600, n_families=30, n_classes=3, mutated=0.4, length=20, random_state=0)
STRINGS, LABELS = DATA.X, DATA.y


class Counted:
    """The edit similarity of strings, counted."""

    def __init__(self):
        self.count = 0

    def __call__(self, A, B):
        self.count += len(A) * len(B)
        return krein.EditSimilarity()(A, B)


def counted():
    count = Counted()
    return count, FromCallable(count, Traits(stationary=False, psd=False, low=0.0, high=1.0, constant_diagonal=True))


def test_each_object_is_compared_with_few_and_all_are_counted():
    count, kernel = counted()
    a = krein.approximate(STRINGS, kernel, coupling="landmark", random_state=0)
    assert a.n_evaluations == count.count
    assert count.count < 0.1 * len(STRINGS) ** 2
    blocks, rank = DEFAULT.landmark_shape(2600)
    assert (a.n_blocks, a.factorization.rank) == (blocks, blocks * rank)


def test_a_policy_sets_the_default_shape():
    few = krein.Policy(landmark_block_rows=500, landmark_blocks=4, landmark_directions=20)
    assert few.landmark_shape(10) == (1, 3)
    assert few.landmark_shape(1500) == (3, 6)
    a = krein.approximate(STRINGS, krein.EditSimilarity(), coupling="landmark", random_state=0, policy=few)
    assert (a.n_blocks, a.factorization.rank) == (4, 20)


def test_within_small_blocks_nothing_is_approximated_but_by_rank():
    X = STRINGS[:150]
    a = krein.approximate(X, krein.EditSimilarity(), coupling="landmark", n_blocks=3, total_rank=150, random_state=0)
    K, F = krein.EditSimilarity()(X), a.factorization.to_dense()
    for i in range(a.n_blocks):
        mine = a.partition.members(i)
        assert len(mine) <= 96
        np.testing.assert_allclose(F[np.ix_(mine, mine)], K[np.ix_(mine, mine)], atol=1e-8)


def test_between_blocks_it_is_what_the_landmarks_say():
    X = STRINGS[:150]
    a = krein.approximate(X, krein.EditSimilarity(), coupling="landmark", n_blocks=3, total_rank=150, random_state=0)
    Z = a.maps[0].landmarks[:128]  # all maps begin with the landmarks of all blocks
    assert all(m.landmarks[:128] == Z for m in a.maps)
    values, V = np.linalg.eigh(krein.EditSimilarity()(Z))
    top = np.argsort(-np.abs(values))[:64]
    C = krein.EditSimilarity()(X, Z) @ V[:, top]
    expected, F = (C / values[top]) @ C.T, a.factorization.to_dense()
    i, j = a.partition.members(0), a.partition.members(2)
    np.testing.assert_allclose(F[np.ix_(i, j)], expected[np.ix_(i, j)], atol=1e-8)


def test_it_is_closer_than_landmarks_alone_and_new_objects_come_along():
    X, new = STRINGS[:1500], STRINGS[1500:1600]
    a = krein.approximate(X, krein.EditSimilarity(), coupling="landmark", n_blocks=20, rank=40, random_state=0)
    one = krein.approximate(X, krein.EditSimilarity(), coupling="pairwise", landmarks="uniform", n_blocks=1, rank=64,
                            random_state=0)  # fmt: skip
    assert a.error().relative < one.error().relative
    exact = a.kernel_rows(new, exact=True)
    assert np.linalg.norm(a.kernel_rows(new) - exact) < 1.5 * a.error().relative * np.linalg.norm(exact)


def test_large_blocks_take_a_sample_of_their_own():
    a = krein.approximate(STRINGS, krein.EditSimilarity(), coupling="landmark", n_blocks=2, rank=30, random_state=0)
    assert max(a.partition.sizes) > 96
    assert all(len(m.rows) == 162 + 96 for m in a.maps)
    assert a.error(random_state=0).relative < 0.4


def test_vectors_a_normalised_kernel_and_a_matrix_work_too():
    rows = krein.datasets.mixture(300, 4, random_state=0).X
    K = krein.RBF(gamma=0.1)(rows)
    for X, kernel in [
        (rows, krein.RBF(gamma=0.1)),
        (None, krein.Precomputed(K)),
        (rows, krein.Normalized(krein.RBF(0.1))),
    ]:
        a = krein.approximate(X, kernel, coupling="landmark", n_blocks=4, rank=40, random_state=0)
        assert a.error().relative < 0.01


def test_the_result_does_not_depend_on_threads_and_repeats():
    def made(n_jobs):
        return krein.approximate(STRINGS[:400], krein.EditSimilarity(), coupling="landmark", n_blocks=6, rank=20,
                                 n_jobs=n_jobs, random_state=3).factorization  # fmt: skip

    np.testing.assert_array_equal(made(1).to_dense(), made(2).to_dense())


def test_what_has_no_say_is_refused():
    with pytest.raises(krein.InputError, match=r"drop=0.5"):
        krein.approximate(STRINGS[:100], krein.EditSimilarity(), coupling="landmark", n_blocks=2, rank=5, drop=0.5)
    with pytest.raises(krein.InputError, match="max_error and max_memory"):
        krein.approximate(STRINGS[:100], krein.EditSimilarity(), coupling="landmark", max_error=0.1)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_no_scale_changes_anything(scale):
    one, other = (
        krein.approximate(STRINGS[:300], k, coupling="landmark", n_blocks=3, rank=40, random_state=0)
        for k in (krein.EditSimilarity(), scale * krein.EditSimilarity())
    )
    np.testing.assert_allclose(other.factorization.to_dense() / scale, one.factorization.to_dense(), atol=1e-9)


def test_small_blocks_of_a_psd_kernel_are_psd():
    rows = krein.datasets.mixture(280, 3, 8, random_state=0).X
    a = krein.approximate(rows, krein.RBF(gamma=0.5), coupling="landmark", n_blocks=6, total_rank=280, random_state=0)
    assert max(a.partition.sizes) <= 96
    assert krein.certify(a.factorization).psd


@pytest.mark.filterwarnings("ignore:3 blocks were asked for", "ignore:.*holds next to nothing")
@pytest.mark.parametrize(
    ("X", "kernel"),
    [
        (STRINGS[:200], lambda A, B: np.zeros((len(A), len(B)))),
        (STRINGS[:200], lambda A, B: np.ones((len(A), len(B)))),
        (["a"] * 200, krein.EditSimilarity()),
        (np.arange(200), krein.Precomputed(-np.eye(200))),
        (["a", "b"], krein.EditSimilarity()),
    ],
    ids=["zero", "constant", "duplicates", "negative", "two"],
)
def test_hard_cases_end_well(X, kernel):
    a = krein.approximate(X, kernel, coupling="landmark", n_blocks=min(3, len(X)), rank=4, random_state=0)
    assert a.error().relative <= 1.0
    assert np.isfinite(a.kernel_rows(X[:2])).all()


# ------------------------------------------------------------------------------------------- estimators


@pytest.fixture(autouse=True)
def _indefinite():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*gave an indefinite matrix", krein.KreinWarning)
        yield


def test_a_classifier_of_strings_spends_little_and_learns():
    count, kernel = counted()
    machine = krein.SVC(kernel=kernel, coupling="landmark", correction="flip", random_state=0)
    model = machine.fit(STRINGS[:2400], LABELS[:2400])
    assert model.approximation_.kernel is kernel
    assert count.count < 0.1 * 2400**2
    before = count.count
    assert model.score(STRINGS[2400:], LABELS[2400:]) > 0.9
    assert count.count - before < 200 * 500  # landmarks to be placed, and then those of the block


def test_regression_on_strings():
    target = np.array([s.count("A") for s in STRINGS], dtype=float)
    kernel = krein.Normalized(krein.Spectrum(1))
    model = krein.KernelRidge(kernel=kernel, alpha=1e-2, random_state=0).fit(STRINGS[:2400], target[:2400])
    assert model.score(STRINGS[2400:], target[2400:]) > 0.5


def test_components_and_clusters_of_strings():
    kernel = krein.EditSimilarity()
    few = krein.datasets.families(2100, n_families=3, mutated=0.3, length=25, random_state=1)
    places = krein.KernelPCA(n_components=2, kernel=kernel, random_state=0).fit(few.X).transform(few.X[:200])
    centres = np.array([places[few.y[:200] == i].mean(0) for i in range(3)])
    nearest = np.linalg.norm(places[:, None] - centres, axis=2).argmin(1)
    assert np.mean(nearest == few.y[:200]) > 0.95
    labels = krein.SpectralClustering(n_clusters=3, affinity=kernel, random_state=0).fit_predict(few.X)
    assert all(np.bincount(labels[few.y == i]).max() > 0.9 * (few.y == i).sum() for i in range(3))


@pytest.mark.parametrize("bad", ["a string", {"a": 1}, None, 3.0])
def test_what_is_no_sequence_of_objects_is_refused(bad):
    with pytest.raises((krein.InputError, ValueError)):
        krein.SVC(kernel=krein.EditSimilarity()).fit(bad, [0, 1])


def test_sequences_of_equal_length_are_still_sequences():
    rng = np.random.default_rng(0)
    X = [np.cumsum(rng.normal(size=12)) + 3 * (i % 2) for i in range(60)]
    kernel = krein.FromDistances(krein.DynamicTimeWarping())
    for form in (X, np.stack(X)):
        model = krein.SVC(kernel=kernel, random_state=0).fit(form, np.arange(60) % 2)
        assert model.predict([X[0][:7], np.append(X[1], 5.0)]).shape == (2,)


def test_a_kernel_that_looks_at_the_rest_of_the_call_is_found_out():
    def relative(A, B):
        values = krein.EditSimilarity()(A, B)
        return values / values.max() if len(A) == len(B) else values / (1 + values.max())

    with pytest.raises(krein.KernelError, match=r"whatever else it is asked for.*depend on the two"):
        krein.approximate(STRINGS[:100], relative)


@pytest.mark.parametrize("factor", [1e-6, 4.0, 1e6])
def test_units_of_a_similarity_do_not_matter_to_new_objects(factor):
    options = {"coupling": "landmark", "n_blocks": 6, "rank": 20, "random_state": 0}
    a, b = (krein.approximate(STRINGS[:900], c * krein.EditSimilarity(), **options) for c in (1.0, factor))
    rows = a.kernel_rows(STRINGS[900:960])
    np.testing.assert_allclose(b.kernel_rows(STRINGS[900:960]) / factor, rows, atol=1e-6 * np.abs(rows).max())


def counted_edits(n, call):
    """What ``call`` asks for, over n²."""
    krein.clear_cache()
    with krein.counting() as spent:
        call()
    return spent.n_evaluations / n**2


@pytest.mark.parametrize("asked", [{"max_memory": 2e5}, {"n_blocks": 4}, {"rank": 20}], ids=str)
def test_whatever_is_said_of_blocks_each_object_is_compared_with_few(asked):
    model = krein.KernelRidge(kernel=krein.EditSimilarity(n_jobs=1), correction="flip", random_state=0, **asked)
    target = np.array([s.count("A") for s in STRINGS], dtype=float)
    assert counted_edits(2100, lambda: model.fit(STRINGS[:2100], target[:2100])) < 0.2
    assert model.score(STRINGS[2500:], target[2500:]) > 0.5
    f = model.approximation_.factorization
    assert f.nbytes <= asked.get("max_memory", np.inf)
    assert f.n_blocks == asked.get("n_blocks", f.n_blocks)
    assert f.rank <= f.n_blocks * asked.get("rank", np.inf)
    assert "may be expensive" in str(model.selection_)


def test_a_rank_by_itself_keeps_to_a_fifth_of_the_similarities():
    X = krein.datasets.families(2100, n_families=20, n_classes=4, random_state=0).X
    with pytest.warns(krein.KreinWarning, match="give n_blocks and rank for more"):
        share = counted_edits(2100, lambda: krein.approximate(X, krein.EditSimilarity(), rank=30, random_state=0))
    assert share < 0.21


def test_memory_that_is_not_used_has_its_reason():
    a = krein.approximate(STRINGS[:2100], krein.EditSimilarity(), max_memory=1e7, random_state=0)
    assert a.factorization.nbytes < 2e6
    assert "similarities are the limit, 420 an object" in a.search_.reason


@pytest.mark.filterwarnings("ignore:32 blocks were asked for")
@pytest.mark.parametrize("pool", [1, 30])
def test_equal_objects_cost_no_more_than_others(pool):
    X = [STRINGS[i] for i in np.random.default_rng(0).integers(pool, size=2100)]
    a = krein.approximate(X, krein.EditSimilarity(), coupling="landmark", random_state=0)
    assert a.n_evaluations <= 2100 * (131 + 96) + 131**2
    assert a.error(random_state=0).relative < 0.01


def test_a_similarity_of_which_nothing_is_held_is_said_to_be():
    same = FromCallable(lambda A, B: np.equal.outer(A, B).astype(float))
    with pytest.warns(krein.KreinWarning, match=r"5.9 % of the self-similarities, with a relative error of about 0.97"):
        a = krein.approximate(np.arange(2200), same, coupling="landmark", random_state=0)
    assert a.error(random_state=0).relative == pytest.approx(0.97, abs=0.01)


def test_one_huge_object_is_no_reason_to_warn():
    def heavy(A, B):
        left, right = (np.where(np.asarray(X) == 7, 1e6, 1.0) for X in (A, B))
        return np.outer(left, right) * np.exp(-np.abs(np.subtract.outer(A, B)) / 50.0)

    for seed in range(3):  # with and without that object among the landmarks; warnings are errors
        krein.approximate(np.arange(300), FromCallable(heavy), coupling="landmark", n_blocks=5, rank=20,
                          random_state=seed)  # fmt: skip
