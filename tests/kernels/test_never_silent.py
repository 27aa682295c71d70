"""A similarity that is none, or objects that are none, never get an answer: each way a user can go wrong is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas
import polars
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
    "a row": (lambda A, B: edit(A, B)[0], "shape"),
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


def _clipping(A: Any, B: Any) -> Any:
    return np.clip(A, -1.0, 1.0, out=A) @ np.clip(B, -1.0, 1.0, out=B).T


def _scaling(A: Any, B: Any) -> Any:
    B *= 2.0
    return A @ B.T / 2.0


@dataclass(frozen=True)
class _Scaling(krein.kernels.Kernel):
    compares: ClassVar[str] = "vectors"

    @property
    def traits(self) -> Any:
        return krein.kernels.Traits(stationary=False, psd=None)

    def __call__(self, A: Any, B: Any = None) -> Any:
        return _scaling(A, A if B is None else B)

    def diag(self, A: Any) -> Any:
        return np.square(A).sum(1)


MACHINES = (
    krein.SVC, krein.SVR, krein.OneClassSVM, krein.KernelRidge, krein.KernelRidgeClassifier, krein.KernelPCA,
    krein.GaussianProcessRegressor, krein.MEKA, krein.SpectralClustering, krein.NuSVC, krein.NuSVR,
    krein.SpectralEmbedding, krein.KernelKMeans, krein.KernelLogisticRegression, krein.GaussianProcessClassifier,
    krein.ProxySVC,
)  # fmt: skip


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
@pytest.mark.parametrize("kernel", [_clipping, _scaling, _Scaling()])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_kernel_that_writes_into_the_rows_is_refused_by_every_machine(machine: Any, kernel: Any) -> None:
    values = np.random.default_rng(0).standard_normal((60, 3))
    rows = values.copy()
    name = "affinity" if machine is krein.SpectralClustering else "kernel"
    with pytest.raises(krein.KernelError, match="changes the collections"):
        machine(**{name: kernel}).fit(rows, (values[:, 0] > 0).astype(int))
    np.testing.assert_array_equal(rows, values)


def _doubling(a: Any, b: Any) -> float:
    a *= 2.0
    return float(a @ b)


@pytest.mark.parametrize("kernel", [_doubling, krein.pairwise(_doubling)])
def test_a_function_of_two_objects_that_writes_into_one_is_refused(kernel: Any) -> None:
    values = np.random.default_rng(0).standard_normal((20, 3))
    rows = values.copy()
    ways: tuple[Callable[[], Any], ...] = (
        lambda: krein.SVC(kernel=kernel).fit(rows, (values[:, 0] > 0).astype(int)),
        lambda: krein.pairwise(_doubling)(rows),
        lambda: krein.pairwise(_doubling)(rows, rows[:3]),
    )
    for way in ways:
        with pytest.raises(krein.KernelError, match="changes the collections"):
            way()
        np.testing.assert_array_equal(rows, values)


def test_a_compiled_function_may_ask_for_arrays_that_could_be_changed() -> None:
    def compiled(A: Any, B: Any) -> Any:
        if not (A.flags.writeable and B.flags.writeable):
            raise ValueError("buffer source array is read-only")
        return A @ B.T

    rows = np.random.default_rng(0).standard_normal((60, 3))
    expected = krein.KernelRidge(kernel="linear").fit(rows, rows[:, 0]).predict(rows)
    found = krein.KernelRidge(kernel=compiled).fit(rows, rows[:, 0]).predict(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


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
        (np.array([X, X]).T, "row of shape"),
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
    column = pandas.DataFrame({"name": odd})
    arrays = (np.array(odd), np.array(odd, dtype=object), np.array(odd)[:, None])
    for some in (odd, tuple(odd), *arrays, pandas.Series(odd), column, iter(odd)):
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
    with pytest.raises(ValueError, match=r"row of shape \(2,\)"):
        gp.fit(np.array([X, X], dtype=object).T, y)
    with pytest.raises(ValueError, match="is a distance"):
        krein.GaussianProcessRegressor(kernel=krein.EditDistance()).fit(X, y)
    with pytest.warns(krein.KreinWarning, match="indefinite"):
        gp.fit(X, y)
    with pytest.raises(ValueError, match="item 0 is None"):
        gp.predict([None, "AC"])


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
def test_a_column_of_a_data_frame_is_learned_from_and_predicted() -> None:
    wanted = krein.SVC(kernel=edit, random_state=0).fit(X, y).decision_function(X)
    for frame in (pandas.DataFrame({"name": X}), polars.DataFrame({"name": X})):
        model = krein.SVC(kernel=edit, random_state=0).fit(frame, y)
        np.testing.assert_array_equal(model.decision_function(frame), wanted)


@pytest.mark.parametrize(
    "kernel", [edit, krein.EditDistance(), krein.JaroWinkler(), krein.Spectrum(2), krein.Alignment(scores=(1, -1))]
)
@pytest.mark.parametrize("missing", [None, float("nan"), 7])
def test_a_similarity_of_strings_called_by_itself_names_what_is_none(kernel: krein.Kernel, missing: Any) -> None:
    with pytest.raises(krein.InputError, match=f"item 1 is {missing}"):
        kernel(["abc", missing])
    with pytest.raises(krein.InputError, match=f"item 0 is {missing}"):
        kernel(["abc"], [missing])


MANY = list(range(400))
PLACES = np.random.default_rng(3).uniform(size=400)


def _near(A: Any, B: Any) -> Any:
    return np.exp(-10.0 * np.abs(PLACES[np.asarray(A)][:, None] - PLACES[np.asarray(B)]))


def _without(who: int, how: Callable[[Any], Any], turned: bool) -> Callable[[Any, Any], Any]:
    """One object's similarities spoiled: as x in k(x, y) or, ``turned``, as y."""

    def kernel(A: Any, B: Any) -> Any:
        K = _near(A, B)
        at = np.flatnonzero(np.asarray(B if turned else A) == who)
        part = (slice(None), at) if turned else (at, slice(None))
        K[part] = how(K[part])
        return K

    return kernel


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("coupling", ["landmark", "shared", "pairwise"])
@pytest.mark.parametrize("who", [37, 211])
def test_one_object_that_is_wrong_with_all_others_is_found(who: int, coupling: str, turned: bool) -> None:
    """Wherever it is, whatever was drawn: each object is compared with a few in both orders."""
    options: Any = {"n_blocks": 4, "rank": 8, "coupling": coupling}
    for seed in range(3):
        with pytest.raises(
            krein.KernelError, match=rf"difference is 0\.3, between objects ({who} and \d+|\d+ and {who}) "
        ):
            krein.approximate(MANY, _without(who, lambda K: K + 0.3, turned), random_state=seed, **options)
        with pytest.raises(krein.KernelError, match="finite"):
            krein.approximate(MANY, _without(who, lambda K: K * np.nan, turned), random_state=seed, **options)


def test_within_a_block_what_is_known_in_both_orders_is_compared() -> None:
    """Some neighbours alone are wrong, too few to be among the landmarks: the block they are in shows it."""
    places = np.random.default_rng(3).uniform(size=3000)

    def kernel(A: Any, B: Any) -> Any:
        a, b = places[np.asarray(A)][:, None], places[np.asarray(B)]
        return np.exp(-10.0 * np.abs(a - b)) + 0.2 * ((a > 0.998) & (b > 0.998) & (a > b))

    with pytest.raises(krein.KernelError, match=r"largest difference is 0\.2, between objects (\d+) and (\d+)") as told:
        krein.approximate(list(range(3000)), kernel, n_blocks=10, rank=4, coupling="landmark", random_state=1)
    found = re.search(r"objects (\d+) and (\d+)", str(told.value))
    assert found
    assert {int(i) for i in found.groups()} < set(np.flatnonzero(places > 0.998).tolist())


@pytest.mark.parametrize("spoil", ["row", "column", "nan in a row", "nan in a column"])
def test_a_file_looked_at_by_sample_shows_an_object_that_is_wrong_with_all_others(spoil: str, tmp_path: Any) -> None:
    n = 900
    met = krein.kernels.precomputed.stream(0).choice(n, 512, replace=False)
    who = next(i for i in range(300, n) if i not in met)  # not among those that are looked at with each other
    S = np.exp(-np.abs(np.subtract.outer(np.arange(n), np.arange(n))) / 50.0)
    value = np.nan if "nan" in spoil else 0.3
    if "row" in spoil:
        S[who] += value
    else:
        S[:, who] += value
    S[who, who] = 1.0
    np.save(tmp_path / "S.npy", S)
    with pytest.raises(krein.InputError, match=rf"finite.*{who}" if "nan" in spoil else rf"difference is 0\.3.*{who}"):
        krein.Precomputed(tmp_path / "S.npy", check="sample")


@pytest.mark.parametrize("scale", [None, 2.0])
@pytest.mark.parametrize("value", [0.5, np.nan, np.inf])
@pytest.mark.parametrize("kind", ["from distances", "double-centred", "matrix"])
def test_every_object_has_to_be_0_from_itself(kind: str, value: float, scale: float | None) -> None:
    D = np.abs(np.subtract.outer(PLACES, PLACES))
    D[211, 211] = value

    def distance(A: Any, B: Any) -> Any:
        return D[np.ix_(A, B)]

    made: Any = {
        "from distances": lambda: krein.FromDistances(distance, scale=scale),
        "double-centred": lambda: krein.DoubleCentred(distance),
        "matrix": lambda: krein.FromDistances(krein.Precomputed(D), scale=scale),
    }
    with pytest.raises(krein.InputError if kind == "matrix" and value != 0.5 else krein.KernelError, match="211"):
        krein.approximate(MANY, made[kind](), n_blocks=4, rank=6, coupling="landmark", random_state=0)


def test_objects_are_compared_with_themselves_when_a_bound_kernel_meets_others() -> None:
    D = np.abs(np.subtract.outer(PLACES, PLACES))
    D[300, 300] = 0.1
    for made in (krein.FromDistances, krein.DoubleCentred):
        bound = made(lambda A, B: D[np.ix_(A, B)]).bind(MANY[:200])
        with pytest.raises(krein.KernelError, match=r"object 100 is 0\.1 from itself"):
            bound.bind(MANY[200:])


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
def test_a_function_that_changed_for_one_object_is_fitted_anew() -> None:
    changed: set[int] = set()

    def kernel(A: Any, B: Any) -> Any:
        a, b = (np.isin(some, list(changed)) for some in (A, B))
        return _near(A, B) * (1.0 - 0.5 * (a[:, None] ^ b))

    objects, target = MANY[:300], PLACES[:300]

    def predictions() -> Any:
        return krein.KernelRidge(kernel=kernel, alpha=0.1, random_state=0).fit(objects, target).predict(objects)

    before = predictions()
    with krein.counting() as spent:
        np.testing.assert_array_equal(predictions(), before)
    assert spent.n_evaluations < 1.1 * 300**2  # predicting alone compares all with all: nothing was built
    changed.add(137)
    after = predictions()
    krein.clear_cache()
    np.testing.assert_array_equal(after, predictions())
    assert np.abs(after - before).max() > 1e-3
