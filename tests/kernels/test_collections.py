"""Matrices of numbers and lists of objects: what X is at the fit is what it is in a prediction."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pandas as pd
import polars
import pytest
from sklearn import svm
from sklearn.metrics.pairwise import rbf_kernel

import krein
from krein.estimators import cache
from krein.kernels import FromCallable
from krein.kernels.validation import holds_vectors

LARGE = 2**60  # no float tells it from its neighbours
Point = namedtuple("Point", "x y")


@pytest.fixture(autouse=True)
def _forget():
    cache.clear_cache()
    yield
    cache.clear_cache()


def same_first(A, B):
    return np.array([[float(a[0] == b[0]) for b in B] for a in A])


def jaccard(A, B):
    return np.array([[len(set(a) & set(b)) / len(set(a) | set(b)) for b in B] for a in A])


class Graph:
    """The protocol of networkx.Graph: a length, nodes to iterate over, G[node]."""

    def __init__(self, n_nodes, n_edges):
        self.nodes, self.n_edges = {i: {} for i in range(n_nodes)}, n_edges

    def __len__(self):
        return len(self.nodes)

    def __iter__(self):
        return iter(self.nodes)

    def __getitem__(self, node):
        return self.nodes[node]


def as_many_edges(A, B):
    return np.array([[np.exp(-abs(a.n_edges - b.n_edges)) for b in B] for a in A])


TOKENS = [["the", "cat"], ["a", "dog", "ran"], ["cat"], ["dog", "a"]] * 10
KINDS = {
    "large numbers, ragged": ([(LARGE + i % 4, *((1,) if i % 2 else ())) for i in range(40)], same_first),
    "large numbers, even": ([(LARGE + i % 4, 1) for i in range(40)], same_first),
    "tokens, ragged": (TOKENS, jaccard),
    "tokens, even": ([(f"w{i % 4}", "the") for i in range(40)], jaccard),
    "numbers and names": ([(f"w{i % 4}", 1.0) for i in range(40)], same_first),
    "nothing in them": ([(i % 4, None) for i in range(40)], same_first),
    "graphs of one size": ([Graph(3, i % 4) for i in range(40)], as_many_edges),
    "named fields": (
        [Point(i % 4, 0) for i in range(40)],
        lambda A, B: np.array([[float(a.x == b.x) for b in B] for a in A]),
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_objects_are_the_same_alone_and_among_others(name):
    X, k = KINDS[name]
    y = np.arange(40) % 4
    machine = krein.SVC(kernel=k, random_state=0).fit(X, y)
    assert machine.score(X, y) == 1.0
    assert [machine.predict([x])[0] for x in X[:8]] == y[:8].tolist()
    assert machine.predict(tuple(X[:4])).tolist() == y[:4].tolist()


@pytest.mark.parametrize(
    "machine", [krein.KernelRidge(), krein.OneClassSVM(), krein.GaussianProcessRegressor(optimizer=None, alpha=0.1)]
)
def test_every_machine_takes_objects_one_by_one(machine):
    y = np.arange(40.0) % 4
    machine.set_params(kernel=jaccard).fit(TOKENS, y)
    np.testing.assert_allclose(np.ravel([machine.predict([x]) for x in TOKENS[:4]]), machine.predict(TOKENS[:4]))
    both = TOKENS[:1] + TOKENS[3:4]  # two of one length are no matrix either
    np.testing.assert_allclose(machine.predict(both), machine.predict(TOKENS[:4])[[0, 3]])


@pytest.mark.parametrize("machine", [krein.KernelPCA(n_components=2), krein.MEKA()])
def test_every_transformer_does(machine):
    machine.set_params(kernel=jaccard).fit(TOKENS)
    np.testing.assert_allclose(machine.transform(TOKENS[:1]), machine.transform(TOKENS[:4])[:1], atol=1e-10)


def test_nested_lists_of_numbers_are_a_matrix_as_in_scikit_learn():
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = (X[:, 0] > 0).astype(int)

    def plain(A, B):  # fails on lists
        return np.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(-1))

    expected = svm.SVC(kernel=plain, tol=1e-8).fit(X, y).decision_function(X)
    for given in (X, X.tolist(), [tuple(row) for row in X.tolist()], list(X), pd.DataFrame(X)):
        machine = krein.SVC(kernel=plain).fit(given, y)
        for new in (X, X.tolist()):
            np.testing.assert_allclose(machine.decision_function(new), expected, atol=1e-6)


def test_a_matrix_at_the_fit_is_one_in_a_prediction_and_what_is_none_is_told():
    machine = krein.SVC(kernel=rbf_kernel).fit([[i % 2, i % 3] for i in range(12)], [i % 2 for i in range(12)])
    for new in ([[1, 2], [1]], [["a", "b"]], [(LARGE, 1)]):
        with pytest.raises(krein.InputError, match="FromCallable"):
            machine.predict(new)


@pytest.mark.parametrize("wrap", [FromCallable, lambda k: k])
def test_tuples_of_numbers_stay_tuples_where_they_have_to(wrap):
    X = [(i % 4, 1) for i in range(40)]
    table = {x: float(x[0]) for x in X}  # an array is no key
    k = wrap(lambda A, B, width=9.0: np.array([[np.exp(-abs(table[a] - table[b]) / width) for b in B] for a in A]))
    params = {} if isinstance(k, FromCallable) else {"kernel_params": {"width": 1.0}}
    machine = krein.SVC(kernel=k, **params).fit(X, np.arange(40) % 4)
    assert machine.predict(X[:3]).tolist() == [0, 1, 2]
    assert machine.predict(X[1:2]) == 1


def test_a_krein_kernel_of_anything_is_given_the_list_as_it_is():
    seen = set()

    def spy(A, B):
        seen.update(map(type, (*A, *B)))
        return same_first(A, B)

    X = [(i % 4, 1) for i in range(40)]
    krein.SVC(kernel=FromCallable(spy)).fit(X, np.arange(40) % 4).predict(X[:1])
    assert seen == {tuple}


def test_a_column_of_text_in_a_frame_is_its_strings():
    words = [f"{'ab'[i % 2]}{i % 5}" for i in range(40)]
    y = np.arange(40) % 2
    expected = krein.SVC(kernel=jaccard).fit(words, y).decision_function(words)
    for frame in (pd.DataFrame({"word": words}), polars.DataFrame({"word": words})):
        machine = krein.SVC(kernel=jaccard).fit(frame, y)
        assert isinstance(machine.support_vectors_, list)
        np.testing.assert_allclose(machine.decision_function(frame), expected)
        np.testing.assert_allclose(machine.decision_function(words[:1]), expected[:1])


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        (pd.DataFrame({"a": [1, 2], "b": [True, False]}), True),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), True),  # missing numbers are told as such
        (pd.DataFrame({"a": [1, 2]}, dtype=object), True),
        (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), False),
        ([[1, 2.5], [np.float32(1), np.int64(2)]], True),
        ([[2**53], [-(2**53)]], True),
        ([[2**53 + 1], [1]], False),
        ([np.array([2**53 + 1]), np.array([1])], False),
        ([[], []], False),
        ([[[1, 2]], [[3, 4]]], False),
        ([], False),
    ],
)
def test_what_is_a_matrix(X, expected):
    assert holds_vectors(X, jaccard) is expected
    assert holds_vectors(X, "rbf")  # a name says that it is


# -- parameters and matrices that would be passed over -----------------------------------------------------------------


@pytest.mark.parametrize(
    "machine", [krein.SVC(), krein.KernelRidge(), krein.SpectralClustering(2), krein.GaussianProcessRegressor()]
)
@pytest.mark.parametrize("given", [{"kernel_params": {"gamma": 9.0}}, {"degree": 2}, {"coef0": 0.5}])
def test_what_a_kernel_object_would_not_be_told_is_refused(machine, given):
    X = np.random.default_rng(0).normal(size=(20, 2))
    machine = type(machine)(kernel=krein.RBF(gamma=0.5), **given)
    with pytest.raises(krein.InputError, match=f"{next(iter(given))}=.* beside RBF"):
        machine.fit(X, np.arange(20.0) % 2)
    machine.set_params(kernel="poly" if "kernel_params" not in given else "rbf").fit(np.abs(X), np.arange(20.0) % 2)


def test_values_under_a_mask_are_no_values():
    X = np.random.default_rng(0).normal(size=(20, 2))
    K = rbf_kernel(X)
    masked = np.ma.masked_array(K, mask=K < 0.5)
    count, y = int(masked.mask.sum()), np.arange(20) % 2
    for kernel in ("precomputed", "rbf", rbf_kernel):
        with pytest.raises(krein.InputError, match=f"X masks {count} of its values"):
            krein.SVC(kernel=kernel).fit(masked, y)
        with pytest.raises(krein.InputError, match=f"X masks {count} of its values"):
            krein.SVC(kernel=kernel).fit(K, y).predict(masked)
    krein.SVC(kernel="precomputed").fit(np.ma.masked_array(K), y)  # nothing is hidden


@pytest.mark.parametrize("machine", [krein.SVC(), krein.GaussianProcessRegressor()])
def test_the_error_of_an_asymmetric_matrix_says_what_an_estimator_takes(machine):
    crooked = rbf_kernel(np.random.default_rng(0).normal(size=(20, 2))) + np.eye(20)
    crooked[3, 7] += 0.2
    y = np.arange(20) % 2
    what = r"S\[3, 7\].*\(S \+ S\.T\) / 2.*kernel=krein\.Precomputed\(S, asym"
    with pytest.raises(krein.InputError, match=what) as told:
        machine.set_params(kernel="precomputed").fit(crooked, y)
    assert "pass asymmetric" not in str(told.value)
    machine.set_params(kernel=krein.Precomputed(crooked, asymmetric="average")).fit(np.arange(20), y)


# -- similarities are evaluated once -----------------------------------------------------------------------------------


def counted(k):
    calls = [0]

    def function(A, B):
        calls[0] += len(A) * len(B)
        return k(A, B)

    return function, calls


@pytest.mark.parametrize(
    "machine", [krein.SVC(C=3.0, tol=1e-9), krein.SVR(tol=1e-9), krein.OneClassSVM(nu=0.3, tol=1e-9)]
)
def test_a_small_matrix_of_similarities_is_evaluated_once(machine):
    data = krein.datasets.families(160, n_families=6, n_classes=2, random_state=0)
    own = krein.Normalized(krein.Spectrum(n=2))
    k, calls = counted(own)
    machine.set_params(kernel=k).fit(data.X, data.y)
    assert machine.n_negative_ == 0
    assert calls[0] < 1.6 * 160**2  # once, and a look at some of it
    seen = calls[0]
    twin = type(machine)(**machine.get_params()).fit(data.X, data.y)
    assert calls[0] - seen < 0.2 * 160**2  # the approximation is remembered
    by_matrix = type(machine)(**machine.get_params() | {"kernel": "precomputed"}).fit(own(data.X), data.y)
    ask = "predict" if isinstance(machine, krein.SVR) else "decision_function"
    np.testing.assert_allclose(getattr(twin, ask)(data.X), getattr(by_matrix, ask)(own(data.X)), atol=1e-8)


def test_so_is_that_of_a_cut():
    data = krein.datasets.families(160, n_families=3, n_classes=3, random_state=0)
    k, calls = counted(krein.Normalized(krein.Spectrum(n=2)))
    found = krein.SpectralClustering(3, kernel=k, random_state=0).fit(data.X)
    assert calls[0] < 1.6 * 160**2
    K = krein.Normalized(krein.Spectrum(n=2))(data.X)
    expected = krein.SpectralClustering(3, affinity="precomputed", random_state=0).fit(K)
    np.testing.assert_allclose(found.eigenvalues_, expected.eigenvalues_, atol=1e-12)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    np.testing.assert_allclose(found.affinity_matrix_, K, atol=1e-13)


def test_a_cut_of_hardly_any_similarity_is_that_of_the_kernels_own_values():
    places = [(f"p{i}", v) for i, v in enumerate([*np.linspace(0, 1, 30), *np.linspace(9, 10, 30)])]

    def near(A, B):  # objects of different groups have 1e-17 and less in common: less than an eigenvector is good for
        return np.array([[np.exp(-5.0 * abs(a[1] - b[1])) for b in B] for a in A])

    lone = [*places, ("far", 18.0)]  # and one has nothing else
    found = krein.SpectralClustering(2, kernel=near, random_state=0).fit(lone)
    expected = krein.SpectralClustering(2, affinity="precomputed", random_state=0).fit(near(lone, lone))
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert found.n_nonpositive_degrees_ == expected.n_nonpositive_degrees_ == 0


def test_an_indefinite_similarity_is_not_cut_in_silence():
    S = np.ones((8, 8))
    np.fill_diagonal(S, 0.0)
    S[:4, 4:] = S[4:, :4] = 0.1
    count = int((np.linalg.eigvalsh(S) < -1e-10).sum())
    with pytest.warns(krein.KreinWarning, match=rf"{count} of 8 eigenvalues are negative.*as it is"):
        found = krein.SpectralClustering(2, affinity="precomputed", random_state=0).fit(S)
    assert (found.n_negative_, found.correction_) == (count, "none")
    krein.SpectralClustering(2, affinity="precomputed", correction="none", random_state=0).fit(S)  # asked for
