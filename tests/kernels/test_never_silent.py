"""A similarity that is none, or objects that are none, never get an answer: each way a user can go wrong is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import krein

WORDS = krein.datasets.families(90, n_families=4, n_classes=2, length=10, random_state=0)
X, y = WORDS.X, WORDS.y
edit = krein.EditSimilarity(n_jobs=1)


def _spoiled(change: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda A, B: change(edit(A, B).copy(), A, B)


def _one_pair(value: float) -> Callable[[Any, Any, Any], Any]:
    def change(K: Any, A: Any, B: Any) -> Any:
        K[np.ix_([i for i, a in enumerate(A) if a == X[3]], [j for j, b in enumerate(B) if b == X[70]])] += value
        return K

    return change


def _reversing(A: Any, B: Any) -> Any:
    K = edit(A, B)
    A.reverse()
    return K


class _Drifting:
    calls = 0

    def __call__(self, A: Any, B: Any) -> Any:
        self.calls += 1
        return edit(A, B) * (1.0 + 1e-3 * self.calls)


WRONG: dict[str, tuple[Any, str]] = {
    "flat": (_spoiled(lambda K, A, B: K.ravel()), "shape"),
    "a number": (lambda A, B: 0.5, "shape"),
    "nothing": (lambda A, B: None, "shape|real numbers"),
    "the other way round": (lambda A, B: edit(B, A), "shape"),
    "nan for one pair": (_spoiled(_one_pair(np.nan)), "finite"),
    "infinite": (_spoiled(lambda K, A, B: K / (1.0 - K)), "finite"),
    "masked": (_spoiled(lambda K, A, B: np.ma.masked_less(K, 0.3)), "masked"),
    "asymmetric": (_spoiled(lambda K, A, B: K + np.array([len(a) for a in A])[:, None] / 40.0), "symmetric"),
    "one pair asymmetric": (_spoiled(_one_pair(0.2)), "symmetric|differ"),
    "by lengths": (_spoiled(lambda K, A, B: 1.1 * K if len(A) > len(B) else K), "whatever else|what else"),
    "by the other lengths": (_spoiled(lambda K, A, B: 1.1 * K if len(A) < len(B) else K), "whatever else|what else"),
    "by company": (_spoiled(lambda K, A, B: K / K.sum()), "whatever else|what else"),
    "drifting": (_Drifting(), "whatever else|what else"),
    "objects": (_spoiled(lambda K, A, B: K.astype(object)), "real numbers"),
    "complex": (_spoiled(lambda K, A, B: K.astype(complex)), "real numbers"),
    "text": (_spoiled(lambda K, A, B: K.astype(str)), "real numbers"),
    "too large": (_spoiled(lambda K, A, B: 1e308 * K), "squares|finite"),
}


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_similarity_is_refused_by_all_that_take_one(name: str) -> None:
    kernel, said = WRONG[name]
    ways: tuple[Callable[[], Any], ...] = (
        lambda: krein.SVC(kernel=kernel, random_state=0).fit(X, y),
        lambda: krein.approximate(X, kernel, n_blocks=3, rank=4, coupling="landmark", random_state=0),
        lambda: krein.inspect(X, kernel, random_state=0),
    )
    for way in ways:
        with pytest.raises((krein.KernelError, krein.InputError), match=said):
            way()


def test_a_kernel_that_changes_its_input_is_refused_and_the_callers_list_stays_as_it_is() -> None:
    mine = list(X)
    with pytest.raises(krein.KernelError, match="changes the collections"):
        krein.approximate(mine, _reversing)
    assert mine == X


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
@pytest.mark.parametrize(
    "change",
    [
        lambda K: K.tolist(),
        lambda K: K.astype(np.float32),
        lambda K: sparse.csr_matrix(K),
        lambda K: (10 * K).round().astype(np.int32),
        lambda K: K > 0.5,
    ],
    ids=["lists", "float32", "sparse", "integers", "booleans"],
)
def test_any_array_of_numbers_will_do(change: Callable[[Any], Any]) -> None:
    a = krein.approximate(X, lambda A, B: change(edit(A, B)))
    wanted = change(edit(X, X))
    wanted = wanted.toarray() if sparse.issparse(wanted) else np.asarray(wanted, dtype=np.float64)
    assert np.allclose(a.factorization.to_dense(), wanted, atol=1e-5)


def _frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"name": X, "other": X})


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        ([None, *X[1:]], "item 0 is None"),
        ([*X[:5], 3, *X[6:]], "item 5 is 3"),
        ([b"AC", *X[1:]], "item 0 is b'AC'"),
        ([float("nan"), *X[1:]], "item 0 is nan"),
        ([[word] for word in X], "row of shape"),
        (np.array(X)[:, None], "row of shape"),
        (_frame, "row of shape"),
        (dict(enumerate(X)), "dict"),
        (frozenset(X), "frozenset"),
        ("ACDE", "str"),
        (None, "NoneType"),
    ],
    ids=["none", "number", "bytes", "nan", "nested", "column", "frame", "dict", "set", "one string", "nothing"],
)
def test_what_is_no_list_of_strings_is_refused(objects: Any, said: str) -> None:
    objects = objects() if callable(objects) else objects
    with pytest.raises(krein.InputError, match=said):
        krein.approximate(objects, edit)
    with pytest.raises(krein.InputError, match=said):
        krein.KernelPCA(kernel=edit).fit(objects)  # no y whose length would give it away


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
def test_strings_come_in_every_collection_that_keeps_their_order() -> None:
    pandas = pytest.importorskip("pandas")
    odd = ["", "ünï 😀", *X[2:]]
    wanted = edit(odd, odd)
    for some in (odd, tuple(odd), np.array(odd), np.array(odd, dtype=object), pandas.Series(odd), iter(odd)):
        assert np.allclose(krein.approximate(some, edit).factorization.to_dense(), wanted, atol=1e-12)


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
def test_dicts_and_graphs_are_objects_too() -> None:
    counts = [{letter: word.count(letter) for letter in set(word)} for word in X]
    common = lambda A, B: [[sum(min(n, b.get(c, 0)) for c, n in a.items()) for b in B] for a in A]  # noqa: E731
    assert krein.SVC(kernel=common, random_state=0).fit(counts, y).score(counts, y) > 0.9
    rng = np.random.default_rng(0)
    graphs = [rng.random((k, k)) < 0.2 + 0.4 * label for k, label in zip(rng.integers(3, 9, len(y)), y, strict=True)]
    density = lambda A, B: [[1.0 - abs(a.mean() - b.mean()) for b in B] for a in A]  # noqa: E731
    assert krein.SVC(kernel=density, random_state=0, n_blocks=3, rank=4).fit(graphs, y).score(graphs, y) > 0.7


def test_masked_similarities_of_a_given_matrix_are_refused() -> None:
    S = np.ma.masked_less(np.array([[1.0, 0.1], [0.1, 1.0]]), 0.2)
    with pytest.raises(ValueError, match="2 of 4 are masked"):
        krein.Precomputed(S)
    whole = krein.Precomputed(np.ma.masked_less(np.eye(2), -1.0))  # a mask that hides nothing
    np.testing.assert_array_equal(whole(np.arange(2)), np.eye(2))


@pytest.mark.parametrize("transform", ["exponential", "gaussian", "inverse"])
def test_an_infinite_distance_is_refused_wherever_it_is(transform: str) -> None:
    """exp(-inf) is 0, a similarity like any other."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    D = np.linalg.norm(X[:, None] - X, axis=2)
    D[7, 9] = D[9, 7] = np.inf  # not among the evenly spaced ones that are looked at first

    def distance(A: list[int], B: list[int]) -> np.ndarray:
        return D[np.ix_(A, B)]

    kernel = krein.FromDistances(distance, transform=transform)
    with pytest.raises(ValueError, match="finite distances"):
        krein.KernelRidge(kernel=kernel).fit(list(range(300)), X[:, 0])


@pytest.mark.parametrize("wrap", [krein.Normalized, krein.FromDistances])
def test_a_matrix_that_was_changed_in_place_is_fitted_anew(wrap: type) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    D = np.linalg.norm(X[:, None] - X, axis=2)
    S = D if wrap is krein.FromDistances else np.exp(-D)
    rows = np.arange(60)

    def predictions() -> np.ndarray:
        return krein.KernelRidge(kernel=wrap(krein.Precomputed(S)), alpha=0.1).fit(rows, y).predict(rows)

    before = predictions()
    S[1, 2] = S[2, 1] = 0.9 * S[1, 2]  # neither is among the few that stand for a user's function
    after = predictions()
    krein.clear_cache()
    np.testing.assert_allclose(after, predictions())
    assert np.abs(after - before).max() > 1e-6


def test_a_gaussian_process_takes_no_other_objects_than_the_rest() -> None:
    y = np.array([float(len(word)) for word in X])
    gp = krein.GaussianProcessRegressor(kernel=edit, correction="flip", optimizer=None, alpha=0.1)
    with pytest.raises(ValueError, match="item 89 is nan"):
        gp.fit([*X[:-1], float("nan")], y)
    with pytest.raises(ValueError, match=r"row of shape \(1,\)"):
        gp.fit(np.array(X, dtype=object)[:, None], y)
    with pytest.raises(ValueError, match="is a distance"):
        krein.GaussianProcessRegressor(kernel=krein.EditDistance()).fit(X, y)
    with pytest.warns(krein.KreinWarning, match="indefinite"):
        gp.fit(X, y)
    with pytest.raises(ValueError, match="item 0 is None"):
        gp.predict([None, "AC"])
