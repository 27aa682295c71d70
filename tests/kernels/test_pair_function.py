"""Functions of two objects: recognised, evaluated once per pair, in processes, and refused with the objects' places."""

import contextlib
import io
import os
import pickle
import signal
import threading
from functools import cache, partial

import numpy as np
import pytest
from sklearn.svm import SVC as LibSVC

import krein
from krein.estimators import route
from krein.kernels import FromCallable, PairFunction, pair_function
from krein.kernels.kernel import counting

pytestmark = pytest.mark.filterwarnings("ignore:.*indefinite matrix:krein.KreinWarning")

DATA = krein.datasets.families(80, n_families=8, n_classes=2, random_state=3)
WORDS, LABELS = DATA.X, DATA.y


@cache
def trigrams(word):
    return {word[i : i + 3] for i in range(len(word) - 2)}


def jaccard(a, b):
    return len(trigrams(a) & trigrams(b)) / max(1, len(trigrams(a) | trigrams(b)))


def table(function, A, B):
    """The naive way."""
    return np.array([[function(a, b) for b in B] for a in A], dtype=float).reshape(len(A), len(B))


K = table(jaccard, WORDS, WORDS)


class Graph:
    """An object of a class that krein does not know."""

    def __init__(self, edges):
        self.edges = frozenset(edges)


def common_edges(g, h):
    return len(g.edges & h.edges) / len(g.edges | h.edges)


def counted(function):
    """The function, and the list of the pairs that it was called with."""
    pairs = []

    def recorded(a, b):
        pairs.append((a, b))
        return function(a, b)

    return recorded, pairs


@pytest.mark.parametrize("kernel", [jaccard, krein.pairwise(jaccard), krein.pairwise(jaccard, psd=True)])
def test_a_machine_is_that_of_the_precomputed_matrix(kernel):
    train, test = np.arange(60), np.arange(60, 80)
    machine = krein.SVC(kernel=kernel, random_state=0).fit(WORDS[:60], LABELS[:60])
    other = LibSVC(kernel="precomputed", tol=1e-8).fit(K[np.ix_(train, train)], LABELS[:60])
    assert np.array_equal(machine.predict(WORDS[60:]), other.predict(K[np.ix_(test, train)]))
    wanted = other.decision_function(K[np.ix_(test, train)])
    assert np.allclose(machine.decision_function(WORDS[60:]), wanted, atol=1e-3)


def test_all_that_takes_a_kernel_takes_a_function_of_two_objects():
    assert np.allclose(krein.approximate(WORDS, jaccard).factorization.to_dense(), K, atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(K)
    assert np.allclose(krein.inspect(WORDS, jaccard, random_state=0).eigenvalues[::-1], eigenvalues, atol=1e-10)
    assert krein.check_kernel(jaccard, WORDS).ok
    components = krein.KernelPCA(n_components=3, kernel=jaccard).fit_transform(WORDS)
    centred = K - K.mean(0) - K.mean(1)[:, None] + K.mean()
    assert np.allclose((components**2).sum(0), np.linalg.eigvalsh(centred)[:-4:-1], rtol=1e-6)
    labels = krein.SpectralClustering(n_clusters=2, affinity=jaccard, random_state=0).fit(WORDS).labels_
    assert set(labels) == {0, 1}
    targets = K[:, :5].sum(1)
    ridge = krein.KernelRidge(kernel=jaccard, alpha=0.1).fit(WORDS, targets)
    wanted = K @ np.linalg.solve(K + 0.1 * np.eye(len(K)), targets)
    assert np.allclose(ridge.predict(WORDS), wanted, atol=1e-8)


@pytest.mark.parametrize(
    ("objects", "function"),
    [
        ([Graph([(i, i + 1), (i, i + 2), (0, 1)]) for i in range(30)], common_edges),
        ([(i, str(i % 3)) for i in range(30)], lambda a, b: (a[1] == b[1]) + 1.0 / (1.0 + abs(a[0] - b[0]))),
        (tuple(WORDS[:30]), jaccard),
        (np.array(WORDS[:30]), jaccard),
        (np.array(WORDS[:30], dtype=object), jaccard),
        ([{i, i + 1, 7} for i in range(30)], lambda a, b: len(a & b)),
        (np.random.default_rng(0).normal(size=(30, 2)), lambda a, b: float(a @ b)),
    ],
)
def test_objects_of_any_kind_are_compared(objects, function):
    y = np.arange(30) % 3
    machine = krein.SVC(kernel=function, random_state=0).fit(objects, y)
    assert isinstance(machine._kernel, PairFunction)
    assert np.array_equal(machine._kernel(objects), table(function, objects, objects))
    assert machine.predict(objects[:4]).shape == (4,)


def test_functions_of_collections_are_still_taken_as_such():
    machine = krein.SVC(kernel=lambda A, B: table(jaccard, A, B), random_state=0).fit(WORDS, LABELS)
    assert type(machine._kernel) is FromCallable


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_an_inner_product_of_two_vectors_is_one_of_pairs_whatever_their_length(d):
    X = np.random.default_rng(0).normal(size=(30, d))
    kernel = FromCallable(lambda a, b: a @ b).bind(X)
    assert isinstance(kernel, PairFunction)
    np.testing.assert_allclose(kernel(X[:4], X), X[:4] @ X.T)
    assert not isinstance(FromCallable(lambda A, B: A @ B.T).bind(X), PairFunction)


def test_parameters_and_wrappers_reach_the_function():
    def overlap(a, b, power=1.0):
        return jaccard(a, b) ** power

    machine = krein.SVC(kernel=overlap, kernel_params={"power": 2.0}, random_state=0).fit(WORDS, LABELS)
    assert np.array_equal(machine._kernel(WORDS[:5]), K[:5, :5] ** 2.0)
    lengths = krein.Normalized(lambda a, b: float(len(a) * len(b))).bind(WORDS)
    assert np.allclose(lengths(WORDS[:5]), 1.0)
    total = (krein.pairwise(jaccard) + 2.0 * krein.pairwise(jaccard)).bind(WORDS)
    assert np.allclose(total(WORDS[:5]), 3.0 * K[:5, :5])


def test_a_distance_becomes_a_similarity():
    def letters(a, b):
        return float(len(set(a) ^ set(b)))

    D = table(letters, WORDS, WORDS)
    kernel = krein.pairwise(letters, distance=True).bind(WORDS)
    assert np.allclose(kernel(WORDS), np.exp(-D / kernel.scale))
    assert np.allclose(krein.FromDistances(letters, scale=2.0).bind(WORDS)(WORDS), np.exp(-D / 2.0))
    with pytest.raises(krein.InputError, match="beside distance=True"):
        krein.pairwise(letters, psd=True, distance=True)


def test_each_pair_is_evaluated_once():
    function, pairs = counted(jaccard)
    kernel = krein.pairwise(function)
    assert np.array_equal(kernel(WORDS), K)
    assert len(pairs) == len(set(pairs)) == 80 * 81 // 2
    pairs.clear()
    assert np.array_equal(kernel(WORDS[:9], WORDS[9:20]), K[:9, 9:20])
    assert len(pairs) == 99
    pairs.clear()
    assert np.array_equal(kernel.diag(WORDS), np.diagonal(K))
    assert len(pairs) == 80


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_count_is_that_of_the_calls(symmetric):
    function, pairs = counted(jaccard)
    krein.clear_cache()
    with counting() as spent:
        krein.approximate(WORDS, krein.pairwise(function, symmetric=symmetric), n_blocks=2, rank=10, random_state=0)
    assert spent.n_evaluations == len(pairs)


def test_an_exact_fit_evaluates_half_the_matrix_and_some_samples():
    words = krein.datasets.families(600, n_families=8, n_classes=2, random_state=3)
    with counting() as spent:
        krein.SVC(kernel=lambda a, b: float(a[0] == b[0]) + (a == b), random_state=0).fit(words.X, words.y)
    assert spent.n_evaluations < 600 * 601 // 2 + 10_000


def test_the_mean_of_both_orders_is_taken_where_they_differ():
    def begins(a, b):
        return jaccard(a, b) + 0.1 * (a < b)

    values = table(begins, WORDS, WORDS)
    kernel = krein.pairwise(begins, symmetric=False)
    assert np.array_equal(kernel(WORDS), 0.5 * (values + values.T))
    assert np.array_equal(kernel(WORDS[:3], WORDS[3:9]), 0.5 * (values + values.T)[:3, 3:9])
    assert krein.SVC(kernel=kernel, random_state=0).fit(WORDS, LABELS).score(WORDS, LABELS) > 0.9
    with pytest.raises(krein.KernelError, match=r"symmetric.*between objects \d+ and \d+.*symmetric=False"):
        krein.SVC(kernel=begins).fit(WORDS, LABELS)


def test_processes_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(pair_function, "SERIAL_SECONDS", 0.0)  # no block is too small
    factor = 1.0 / 3.0
    functions = (jaccard, lambda a, b: factor * jaccard(a, b), partial(jaccard))
    for function in functions:
        one, two = (krein.pairwise(function, n_jobs=n) for n in (1, 2))
        assert one(WORDS).tobytes() == two(WORDS).tobytes()
        assert one(WORDS[:30], WORDS[30:]).tobytes() == two(WORDS[:30], WORDS[30:]).tobytes()
    machines = [krein.SVC(kernel=functions[1], n_jobs=n, random_state=0).fit(WORDS, LABELS) for n in (1, 2)]
    assert [machine._kernel.n_jobs for machine in machines] == [1, 2]
    assert np.array_equal(*(machine.decision_function(WORDS) for machine in machines))


def test_a_function_that_other_processes_cannot_get_says_so(monkeypatch):
    monkeypatch.setattr(pair_function, "SERIAL_SECONDS", 0.0)
    lock = threading.Lock()

    def locked(a, b):
        with lock:
            return jaccard(a, b)

    with pytest.raises(krein.KernelError, match=r"cannot be sent to other processes: .*lock.*n_jobs=1"):
        krein.SVC(kernel=locked, n_jobs=2).fit(WORDS, LABELS)
    assert krein.SVC(kernel=locked, n_jobs=1, random_state=0).fit(WORDS, LABELS).score(WORDS, LABELS) > 0.9


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_names_the_objects(monkeypatch, n_jobs):
    monkeypatch.setattr(pair_function, "SERIAL_SECONDS", 0.0)

    class Unsendable(Exception):
        def __init__(self, one, two):  # cannot be made again from its message alone
            super().__init__("no path between them")

    def fails(a, b):
        if {a, b} == {WORDS[17], WORDS[73]}:
            raise Unsendable(1, 2)
        return jaccard(a, b)

    with pytest.raises(krein.KernelError, match=r"object 17 \(.*object 73 \(.*Unsendable: no path"):
        krein.SVC(kernel=fails, n_jobs=n_jobs).fit(WORDS, LABELS)
    with pytest.raises(krein.KernelError, match=r"one number.*object 1 of this call"):
        krein.pairwise(lambda a, b: "none" if b == "b" else 1.0)(["a", "b"])


def test_rows_of_numbers_are_named_too():
    X = np.random.default_rng(0).normal(size=(40, 3))

    def fails(a, b):
        if a[0] == X[5, 0] and b[0] == X[31, 0]:
            raise ValueError("not these")
        return float(a @ b)

    with pytest.raises(krein.KernelError, match=r"object 5 \(.*object 31 \("):
        krein.KernelPCA(kernel=fails).fit(X)


def test_a_bar_says_how_many_similarities_are_left(monkeypatch):
    monkeypatch.setattr(pair_function, "BAR_SECONDS", 0.0)
    shown = io.StringIO()
    with contextlib.redirect_stderr(shown):
        krein.SVC(kernel=jaccard, verbose=1, random_state=0).fit(WORDS, LABELS)
    assert "similarities" in shown.getvalue()
    assert " left" in shown.getvalue()


def test_a_long_fit_says_so_before_it_starts(monkeypatch):
    function, pairs = counted(jaccard)
    monkeypatch.setattr(route, "ANNOUNCED_SECONDS", 0.0)
    with pytest.warns(krein.KreinWarning, match=r"about 3,240 similarities.* s with n_jobs=1"):
        krein.SVC(kernel=function).fit(WORDS, LABELS)
    few = krein.Policy(exact_rows=60, matrix_seconds=0.0, expensive_landmarks=20)
    with pytest.warns(krein.KreinWarning, match=f"about {int(0.092 * 80**2):,} similarities"):
        krein.SVC(kernel=function, policy=few).fit(WORDS, LABELS)
    assert pairs


def test_it_is_saved_under_a_name_and_pickled_without_the_training_objects(tmp_path):
    machine = krein.SVC(kernel=jaccard, random_state=0).fit(WORDS, LABELS)
    krein.save(machine, tmp_path / "model.krein", functions={"jaccard": jaccard})
    loaded = krein.load(tmp_path / "model.krein", functions={"jaccard": jaccard})
    again = pickle.loads(pickle.dumps(machine))
    for other in (loaded, again):
        assert np.array_equal(other.decision_function(WORDS), machine.decision_function(WORDS))
        assert "_objects" not in vars(other._kernel)
    assert krein.pairwise(jaccard) == krein.pairwise(jaccard, n_jobs=2) != krein.pairwise(jaccard, symmetric=False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"f": 3}, "needs a callable"),
        ({"symmetric": "yes"}, "symmetric must be True or False"),
        ({"psd": "yes"}, "psd must be True, False or None"),
        ({"n_jobs": 0}, "n_jobs must be a non-zero integer"),
    ],
)
def test_wrong_parameters_are_refused(wrong, said):
    with pytest.raises(krein.InputError, match=said):
        krein.pairwise(**{"f": jaccard} | wrong)


def test_a_process_that_is_ended_is_said_to_be(monkeypatch):
    monkeypatch.setattr(pair_function, "SERIAL_SECONDS", 0.0)
    parent = os.getpid()

    def ended(a, b):
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return float(a == b)

    with pytest.raises(krein.ResourceError, match=r"was ended from outside.*n_jobs=1 shows where"):
        krein.pairwise(ended, n_jobs=2)(list("abcdefghij"))
