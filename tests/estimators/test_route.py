"""The decision every fit begins with: one test for each line of its list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krein
from krein.estimators.route import ByError, ByScore, Exact, Features, Given, Handed, choose_route, is_psd
from krein.policy import DEFAULT

FEW, MANY = np.random.default_rng(0).normal(size=(60, 3)), np.zeros((30_000, 3))
RBF = krein.RBF(gamma=0.5)
WORDS = ["oak", "ash", "elm", "fir"] * 2000


def route(machine: Any, objects: Any = FEW, kernel: Any = RBF, scored: bool = True, **options: Any) -> Any:
    return choose_route(machine, objects, kernel, spectrum=machine._needs_spectrum(), scored=scored, **options)


def test_an_approximation_that_was_passed_is_used() -> None:
    a = krein.approximate(FEW, RBF)
    found = route(krein.SVC(approximation=a, n_blocks=3))
    assert isinstance(found, Handed)
    assert found.approximation is a


@pytest.mark.parametrize("given", [{"n_blocks": 4, "rank": 8}, {"coupling": "pairwise"}, {"coupling": "landmark"}])
@pytest.mark.parametrize("objects", [FEW, MANY])
def test_what_is_given_is_obeyed(given: dict[str, Any], objects: Any) -> None:
    found = route(krein.SVC(**given), objects)
    assert isinstance(found, Given)
    assert given.items() <= found.request.items()


def test_an_error_that_is_asked_for_decides() -> None:
    assert isinstance(route(krein.SVC(max_error=0.1, n_blocks=3)), ByError)


@pytest.mark.parametrize("given", [{"n_blocks": 4}, {"rank": 8}, {"max_memory": 1e6}, {"drop": 0.5}])
def test_what_is_left_open_is_chosen_by_score_or_by_error(given: dict[str, Any]) -> None:
    assert isinstance(route(krein.SVC(**given)), ByScore)
    assert isinstance(route(krein.OneClassSVM(**given), scored=False), ByError)


def test_few_rows_are_exact_whatever_the_kernel() -> None:
    assert route(krein.SVC()) == Exact(True, "60 rows are no more than policy.exact_rows = 2000")
    assert route(krein.SVC(), kernel=krein.Sigmoid(gamma=0.1)).psd is False
    assert route(krein.SVC(correction="square")).psd is False
    assert route(krein.SVC(dtype="float32")).psd  # there are no bases to be stored
    assert isinstance(route(krein.SVC(policy=krein.Policy(exact_rows=50, svm_rows=50))), ByScore)


def test_a_kernel_of_few_features_is_factored_exactly() -> None:
    found = route(krein.SVC(), MANY, krein.Linear())
    assert isinstance(found, Given)
    assert (found.request["n_blocks"], found.request["rank"]) == (1, 3)
    rows, more = np.zeros((9000, 10)), krein.Polynomial(degree=4, gamma=0.1, coef0=1.0)  # of 1001 features
    assert isinstance(route(krein.SVC(), rows, more), Exact)


@pytest.mark.parametrize(
    ("machine", "limit"),
    [
        (krein.SVC(), "svm_rows"),
        (krein.SVR(), "svm_rows"),
        (krein.OneClassSVM(), "svm_rows"),
        (krein.KernelRidge(), "ridge_rows"),
        (krein.KernelRidgeClassifier(), "ridge_rows"),
        (krein.GaussianProcessRegressor(), "process_rows"),
        (krein.MEKA(), "exact_rows"),
        (krein.KernelLogisticRegression(), "exact_rows"),
        (krein.GaussianProcessClassifier(), "exact_rows"),
    ],
)
def test_a_psd_kernel_is_exact_up_to_the_machines_own_limit(machine: Any, limit: str) -> None:
    n = getattr(DEFAULT, limit)
    assert isinstance(route(machine, np.zeros((n, 3))), Exact)
    assert not isinstance(route(machine, np.zeros((n + 1, 3))), Exact)
    machine = type(machine)(policy=krein.Policy(**{"exact_rows": 100, limit: 2500}))
    assert isinstance(route(machine, np.zeros((2500, 3))), Exact)
    assert not isinstance(route(machine, np.zeros((2501, 3))), Exact)


def test_refine_moves_the_limit() -> None:
    assert isinstance(route(krein.SVC(refine="exact"), np.zeros((60_000, 3))), Exact)
    assert not isinstance(route(krein.SVC(refine=None), np.zeros((2001, 3))), Exact)


def test_a_system_that_proved_singular_is_decomposed_or_approximated() -> None:
    ridge = krein.KernelRidge()
    assert route(ridge, solvable=False).psd is False
    assert isinstance(route(ridge, np.zeros((3000, 3)), solvable=False), ByScore)


def test_objects_without_vectors() -> None:
    strings = krein.Spectrum()
    assert strings.traits.psd
    patient = krein.Policy(matrix_seconds=np.inf)
    assert isinstance(route(krein.SVC(policy=patient), WORDS, strings), Exact)
    slow = krein.Policy(matrix_seconds=0.0)
    assert route(krein.OneClassSVM(policy=slow), WORDS, strings, scored=False).request["coupling"] == "landmark"
    indefinite = krein.EditSimilarity()
    assert route(krein.SVC(), WORDS[:2000], indefinite).psd is False
    assert route(krein.SVC(policy=slow), WORDS, strings).request["coupling"] == "landmark"
    found = route(krein.SVC(policy=patient), WORDS[:2001], indefinite)
    assert isinstance(found, Features)
    assert found.n_landmarks == 2001
    assert "flip" in found.corrections
    assert "flip" not in route(krein.SVC(policy=patient), WORDS, indefinite).corrections
    few = route(krein.SVC(policy=slow), WORDS[:4000], indefinite)
    assert isinstance(few, Features)
    assert few.neighbours
    assert few.n_landmarks == 4000 // 21
    assert route(krein.SVC(policy=slow, correction="flip"), WORDS, indefinite).request["coupling"] == "landmark"


def test_many_rows_are_approximated() -> None:
    many = np.zeros((60_000, 3))
    assert isinstance(route(krein.SVC(), many), ByScore)
    found = route(krein.OneClassSVM(), many, scored=False)
    assert isinstance(found, Given)
    assert (found.request["n_blocks"], found.request["rank"]) == DEFAULT.plain_shape


def test_a_given_matrix_is_psd_if_it_has_a_cholesky_factor() -> None:
    K = RBF(FEW)
    rows = np.arange(60)
    assert is_psd(krein.Precomputed(K), rows, DEFAULT)
    assert is_psd(krein.Precomputed(K.astype(np.float32)), rows, DEFAULT)
    assert not is_psd(krein.Precomputed(np.tanh(FEW @ FEW.T - 1.0)), rows, DEFAULT)
    assert not is_psd(krein.Precomputed(sp.csr_matrix(K)), rows, DEFAULT)


def test_a_kernel_meant_for_the_sphere_is_psd_on_it() -> None:
    kernel = krein.SpherePolynomial(degree=2, a=2.0)
    on = FEW / np.linalg.norm(FEW, axis=1, keepdims=True)
    assert is_psd(kernel, on, DEFAULT)
    assert not is_psd(kernel, FEW, DEFAULT)


@pytest.mark.parametrize("bad", [{"svm_rows": -1}, {"exact_rows": "many"}, {"plain_shape": ()}, {"plain_shape": 5},
                                 {"plain_shape": (4,)}, {"loo_rows": True}, {"block_rows": ()},
                                 {"one_block_ranks": 5}, {"tuning_shape": (1, 2, 3)}])  # fmt: skip
def test_a_policy_says_what_is_no_limit(bad: dict[str, Any]) -> None:
    with pytest.raises(krein.InputError, match=f"Policy.{next(iter(bad))} must be"):
        krein.Policy(**bad)


def test_a_machine_says_what_is_no_policy() -> None:
    with pytest.raises(krein.InputError, match=r"policy must be a krein.Policy"):
        krein.SVC(policy={"svm_rows": 3}).fit(FEW, FEW[:, 0] > 0)


def test_a_policy_takes_numpys_numbers() -> None:
    assert krein.Policy(exact_rows=np.int64(5)).exact_rows == 5


def test_the_reason_names_what_decided() -> None:
    K = RBF(np.random.default_rng(0).normal(size=(600, 3)))
    small = krein.Policy(exact_rows=100, svm_rows=700)
    assert "policy.svm_rows = 700" in route(krein.SVC(policy=small), np.arange(600), krein.Precomputed(K)).why
    assert "refine='exact'" in route(krein.SVC(refine="exact", policy=krein.Policy(svm_rows=200)), MANY).why
    assert route(krein.SVC(rank=5)).why == "rank was given"
    assert route(krein.SVC(coupling="landmark")).why == "coupling was given"
    assert "not known to be psd" in route(krein.SVC(), MANY, krein.TL1(rho=1.0)).why
    assert "square" in route(krein.SVC(correction="square"), MANY).why
    assert "singular" in route(krein.KernelRidge(), MANY[:3000], solvable=False).why
