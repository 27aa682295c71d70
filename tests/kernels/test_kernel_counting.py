"""What is counted as evaluated is what a kernel was asked for, entry by entry: no less, and no more."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import krein
from krein.kernels import Evaluator
from krein.kernels.similarities import FromCallable

WORDS = krein.datasets.families(140, n_families=6, n_classes=2, length=10, random_state=0)
MORE = krein.datasets.families(20, n_families=6, n_classes=2, length=10, random_state=0)
LETTERS = {w: np.array([w.count(c) for c in "ACDEFGHIKLMNPQRSTVWY"]) for w in [*WORDS.X, *MORE.X]}


class Asked:
    """A similarity (or distance) of strings by their letters, which counts what it is asked for."""

    def __init__(self, distance: bool = False) -> None:
        self.count, self.distance = 0, distance

    def __call__(self, A: Any, B: Any) -> Any:
        self.count += len(A) * len(B)
        a, b = (np.array([LETTERS[word] for word in words]) for words in (A, B))
        gaps = np.abs(a[:, None] - b[None]).sum(2)
        return gaps / 10.0 if self.distance else np.exp(-gaps / 10.0) - 0.1

    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Asked)


def _kernels() -> dict[str, tuple[Any, Asked]]:
    out: dict[str, tuple[Any, Asked]] = {}
    for name in ("plain", "normalized", "scaled", "from distances", "double-centred"):
        asked = Asked(distance=name in ("from distances", "double-centred"))
        made: Any = {
            "plain": lambda k: k,
            "normalized": lambda k: krein.Normalized(FromCallable(k)),
            "scaled": lambda k: 2.0 * krein.Normalized(FromCallable(k)),
            "from distances": lambda k: krein.FromDistances(k),
            "double-centred": lambda k: krein.DoubleCentred(k),
        }[name](asked)
        out[name] = made, asked
    return out


WAYS: dict[str, dict[str, Any]] = {
    "exact": {},
    "shared": {"n_blocks": 4, "rank": 6},
    "pairwise": {"n_blocks": 4, "rank": 6, "coupling": "pairwise"},
    "landmark": {"n_blocks": 4, "rank": 6, "coupling": "landmark"},
    "searched": {"max_error": 0.2, "rank": 8},
}


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", _kernels())
def test_every_similarity_that_is_asked_for_is_counted(name: str, way: str) -> None:
    kernel, asked = _kernels()[name]
    with krein.counting() as all_of_them:
        a = krein.approximate(WORDS.X, kernel, random_state=0, **WAYS[way])
        built = asked.count
        assert a.n_evaluations == all_of_them.n_evaluations == built > 0
        a.extend(MORE.X)
        assert all_of_them.n_evaluations == asked.count > built
        a.kernel_rows(MORE.X, exact=True)
        a.self_similarities(MORE.X, exact=True)
        a.error(n_samples=500, random_state=0)
    assert all_of_them.n_evaluations == asked.count
    before = all_of_them.n_evaluations
    a.extend(MORE.X)
    assert all_of_them.n_evaluations == before  # it is closed


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
@pytest.mark.parametrize("name", ["normalized", "from distances"])
@pytest.mark.parametrize("machine", ["SVC", "KernelRidge", "KernelPCA", "SpectralClustering", "OneClassSVM", "MEKA"])
def test_estimators_count_what_fitting_and_predicting_take(machine: str, name: str) -> None:
    krein.clear_cache()
    kernel, asked = _kernels()[name]
    with krein.counting() as spent:
        model = getattr(krein, machine)(kernel=kernel, random_state=0, n_blocks=3, rank=6)
        model.fit(WORDS.X) if machine == "SpectralClustering" else model.fit(WORDS.X, WORDS.y)
        fitted = asked.count
        assert spent.n_evaluations == fitted
        if machine != "SpectralClustering":  # it has nothing to say of new objects
            getattr(model, "transform" if machine in ("KernelPCA", "MEKA") else "predict")(MORE.X)
            assert asked.count > fitted
    assert spent.n_evaluations == asked.count
    if machine == "SVC":
        assert model.approximation_.n_evaluations == fitted


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
def test_inspection_counts_what_binding_takes() -> None:
    asked = Asked(distance=True)
    with krein.counting() as spent:
        found = krein.inspect(WORDS.X, krein.DoubleCentred(asked), max_evaluations=25_000, random_state=0)
    assert found.n_evaluations == spent.n_evaluations == asked.count <= 25_000
    assert found.n_sampled > 50


def test_what_is_open_inside_adds_to_what_is_open_outside() -> None:
    kernel = krein.EditSimilarity(n_jobs=1)
    with krein.counting() as outer:
        Evaluator(kernel).block(["a", "b"], ["c"])
        with krein.counting() as inner:
            evaluator = Evaluator(kernel)
            evaluator.block(["a"], ["b", "c", "d"])
        Evaluator(kernel, counted=False).block(["a"], ["b"])
    assert (outer.n_evaluations, inner.n_evaluations, evaluator.n_evaluations) == (5, 3, 3)
    again = pickle.loads(pickle.dumps(evaluator))
    again.block(["a"], ["b"])
    assert (again.n_evaluations, inner.n_evaluations) == (4, 3)


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
@pytest.mark.parametrize("asked", [{"max_error": 0.1}, {"max_memory": 2e6}], ids=["error", "memory"])
def test_a_search_over_objects_keeps_to_a_fifth_of_all_similarities(asked: dict[str, Any]) -> None:
    words = krein.datasets.families(2100, n_families=30, mutated=0.5, length=12, random_state=0).X
    a = krein.approximate(words, krein.EditSimilarity(n_jobs=1), random_state=0, **asked)
    assert a.n_evaluations <= 0.21 * 2100**2  # the error is estimated besides
    assert a.error(random_state=0).relative < 0.6


@pytest.mark.parametrize("name", _kernels())
def test_a_check_of_a_kernel_is_counted(name: str) -> None:
    kernel, asked = _kernels()[name]
    with krein.counting() as spent:
        krein.check_kernel(kernel, WORDS.X, n_samples=40, random_state=0)
    assert spent.n_evaluations == asked.count > 40**2


@pytest.mark.filterwarnings("ignore::krein.KreinWarning")
@pytest.mark.parametrize("name", ["plain", "normalized"])
def test_a_new_object_is_compared_with_a_landmark_once(name: str) -> None:
    kernel, _ = _kernels()[name]
    a = krein.approximate(WORDS.X, kernel, random_state=0, **WAYS["landmark"])
    pairs: list[tuple[str, str]] = []
    plain = Asked.__call__

    def noted(self: Asked, A: Any, B: Any) -> Any:
        pairs.extend((x, z) for x in A for z in B)
        return plain(self, A, B)

    new = sorted(set(MORE.X) - set(WORDS.X))[:1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Asked, "__call__", noted)
        u = a.extend(new)
    assert len(pairs) <= max(len(m.rows) for m in a.maps) + (1 if name == "normalized" else 0)
    label = a.partition.assign(Evaluator(a.kernel), new)[0]  # found by itself
    np.testing.assert_allclose(
        u.toarray()[0, a.factorization.spans[label][1]], a.maps[label](Evaluator(a.kernel), new)[0]
    )
