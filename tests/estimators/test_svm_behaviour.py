"""What scikit-learn's own tests expect of its SVMs, expected of ours; docs/sklearn.md lists what differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, make_blobs, make_classification, make_regression
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import f1_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.multiclass import OneVsRestClassifier

import krein
from krein.errors import InputError, KreinWarning
from krein.estimators.svm import SVC, SVR, OneClassSVM

X = np.array([[-2.0, -1.0], [-1.0, -1.0], [-1.0, -2.0], [1.0, 1.0], [1.0, 2.0], [2.0, 1.0]])
Y = np.array([1, 1, 1, 2, 2, 2])
T = np.array([[-1.0, -1.0], [2.0, 2.0], [3.0, 2.0]])


def product(A: Any, B: Any) -> Any:
    return np.dot(A, np.asarray(B).T)


@pytest.mark.parametrize("given", ["linear", "precomputed", product])
def test_the_toy_problem_has_two_support_vectors(given: Any) -> None:
    rows, new = (X @ X.T, T @ X.T) if given == "precomputed" else (X, T)
    machine = SVC(kernel=given).fit(rows, Y)
    np.testing.assert_allclose(machine.dual_coef_, [[-0.25, 0.25]])
    np.testing.assert_array_equal(machine.support_, [1, 3])
    np.testing.assert_allclose(machine.intercept_, [0.0], atol=1e-12)
    np.testing.assert_array_equal(machine.predict(new), [1, 2, 2])
    if given == "precomputed":
        assert machine.support_vectors_.shape == (0, 0)
        only = np.zeros_like(new)
        only[:, machine.support_] = new[:, machine.support_]
        np.testing.assert_array_equal(machine.predict(only), [1, 2, 2])
        with pytest.raises(ValueError, match="features"):
            machine.predict(new.T)
        with pytest.raises(ValueError, match="square"):
            machine.fit(X, Y)
    else:
        np.testing.assert_array_equal(machine.support_vectors_, X[[1, 3]])


def test_a_precomputed_matrix_leaves_rows_without_weight_out() -> None:
    weights = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])
    given = SVC(kernel="precomputed").fit(X @ X.T, Y, weights)
    linear = SVC(kernel="linear").fit(X, Y, weights)
    np.testing.assert_allclose(given.decision_function(T @ X.T), linear.decision_function(T))
    np.testing.assert_array_equal(given.support_, linear.support_)
    assert given.shape_fit_ == (6, 6)


def test_weights_of_features_are_there_for_the_linear_kernel_alone_and_read_only() -> None:
    iris = load_iris()
    for machine in (SVC(kernel="linear"), SVR(kernel="linear"), OneClassSVM(kernel="linear"), SVC(multi_class="ovr")):
        machine.fit(iris.data, iris.target)
        assert hasattr(machine, "coef_") == (machine.kernel == "linear")
        if machine.kernel == "linear":
            with pytest.raises(AttributeError):
                machine.coef_ = np.arange(3)
            with pytest.raises(ValueError, match="read-only"):
                machine.coef_[0, 0] = 0.0
    assert not hasattr(SVC(kernel="linear"), "coef_")
    pairs = SVC(kernel="linear", C=0.1, tol=1e-9, decision_function_shape="ovo").fit(iris.data, iris.target)
    theirs = svm.SVC(kernel="linear", C=0.1, tol=1e-8).fit(iris.data, iris.target)
    np.testing.assert_allclose(pairs.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(
        pairs.decision_function(iris.data), iris.data @ pairs.coef_.T + pairs.intercept_, atol=1e-9
    )
    sparse = clone(pairs).fit(sp.csr_matrix(iris.data), iris.target)
    np.testing.assert_allclose(sparse.coef_, pairs.coef_, atol=1e-8)


def test_the_decision_function_is_the_support_vectors_expansion() -> None:
    machine = SVC(gamma=1.0).fit(X, Y)
    values = rbf_kernel(X, machine.support_vectors_, gamma=1.0) @ machine.dual_coef_.T + machine.intercept_
    np.testing.assert_allclose(values.ravel(), machine.decision_function(X))
    np.testing.assert_array_equal(machine.predict(X), machine.classes_[(machine.decision_function(X) > 0).astype(int)])
    regression = SVR(gamma=1.0).fit(X, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    values = rbf_kernel(X, regression.support_vectors_, gamma=1.0) @ regression.dual_coef_.T + regression.intercept_
    np.testing.assert_allclose(values.ravel(), regression.predict(X))


def test_votes_and_values_of_classes_agree() -> None:
    corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
    machine = SVC(kernel="linear").fit(corners, [0, 1, 2, 3])
    new = np.concatenate([[5 * corner, 10 * corner] for corner in corners])
    chosen = machine.predict(new)
    np.testing.assert_array_equal(chosen, np.repeat(np.arange(4), 2))
    values = machine.decision_function(new)
    np.testing.assert_array_equal(values.argmax(axis=1), chosen)
    own = values[np.arange(8), chosen].reshape(4, 2)
    assert (own[:, 0] < own[:, 1]).all()
    A, b = make_blobs(80, centers=5, random_state=0)
    machine = SVC(decision_function_shape="ovo").fit(A, b)
    assert machine.decision_function(A).shape == (80, 10)


@pytest.mark.filterwarnings("ignore:.*tells nothing about them")
def test_ties_are_broken_on_request() -> None:
    A, b = make_blobs(20, n_features=2, random_state=1)
    grid = np.stack(np.meshgrid(*(np.linspace(A[:, i].min(), A[:, i].max(), 50) for i in (0, 1))), axis=-1)
    new = grid.reshape(-1, 2)
    machine = SVC(gamma=1e6).fit(A, b)
    assert (machine.predict(new) != machine.decision_function(new).argmax(axis=1)).any()
    machine.set_params(break_ties=True)
    assert (machine.predict(new) == machine.decision_function(new).argmax(axis=1)).all()
    machine.set_params(decision_function_shape="ovo")
    with pytest.raises(ValueError, match="break_ties must be False"):
        machine.predict(new)


def test_class_weights_move_the_decision() -> None:
    np.testing.assert_array_equal(SVC(class_weight={1: 0.1}).fit(X, Y).predict(X), [2] * 6)
    A, b = make_classification(200, 10, weights=[0.833, 0.167], random_state=2)
    guess = SVC(class_weight={0: 0.1, 1: 10}).fit(A[:100], b[:100]).predict(A[100:])
    assert f1_score(b[100:], guess) > 0.3


@pytest.mark.parametrize("machine", [SVC(C=1e-2, kernel="linear"), SVR(C=1e-2, kernel="linear")])
def test_sample_weights_move_the_decision_to_their_side(machine: Any) -> None:
    rows, point = [[-2, 0], [-1, -1], [0, -2], [0, 2], [1, 1], [2, 0]], [[-1.0, 1.0]]
    middle = 0.0 if isinstance(machine, SVC) else 1.5

    def value(weights: list[float]) -> float:
        fitted = clone(machine).fit(rows, Y, sample_weight=weights)
        return float((fitted.decision_function if middle == 0.0 else fitted.predict)(point)[0])

    assert value([1.0] * 6) == pytest.approx(middle, abs=1e-9)
    assert value([10.0, 0.1, 0.1, 0.1, 0.1, 10.0]) < middle
    assert value([1.0, 0.1, 10.0, 10.0, 0.1, 0.1]) > middle
    assert np.allclose(SVC().fit(X, Y).dual_coef_, SVC(C=100).fit(X, Y, sample_weight=np.full(6, 0.01)).dual_coef_)


@pytest.mark.parametrize("kind", [SVC, SVR, OneClassSVM])
@pytest.mark.parametrize("weight", [0.0, -0.3])
def test_rows_without_weight_are_no_rows(kind: Any, weight: float) -> None:
    with pytest.raises(InputError, match="all samples have zero or negative weights"):
        kind(kernel="linear").fit(X, Y, sample_weight=[weight] * 6)
    some = np.array([1.0, weight, 1.0, 1.0, 1.0, 1.0])
    with_weight = kind(kernel="linear").fit(X, Y, sample_weight=some)
    without = kind(kernel="linear").fit(X[some > 0.0], Y[some > 0.0])
    np.testing.assert_allclose(with_weight.coef_, without.coef_, atol=1e-9)


def test_one_class_is_not_enough() -> None:
    with pytest.raises(InputError, match="The number of classes has to be greater than one; got 1 class"):
        SVC().fit(X, [1] * 6)
    for weights in ([0, -0.5, 0, 1, 1, 1], [1, 1, 1, 0, -0.1, -0.3]):
        with pytest.raises(InputError, match="all samples with positive weights belong to the same class"):
            SVC(kernel="linear").fit(X, Y, sample_weight=weights)


def test_input_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ValueError, match="inconsistent"):
        SVC().fit(X, Y[:-1])
    machine = SVC().fit(np.asfortranarray(X), np.tile(Y, (2, 1)).T[:, -1])
    np.testing.assert_array_equal(machine.predict(T), [1, 2, 2])
    with pytest.raises(ValueError, match="features"):
        machine.predict(X.T)
    with pytest.raises(ValueError, match="shape"):
        SVC(kernel=lambda A, B: A).fit(X, Y)
    with pytest.raises(ValueError, match="shape"):
        SVR(kernel=lambda A, B: np.array([[1.0]])).fit([[0.0], [1.0]], [0.0, 0.5]).predict([[0.0], [1.0]])
    with pytest.raises(ValueError, match="Rescale the data"):
        SVC().fit(np.finfo(np.float64).max * np.random.default_rng(0).uniform(size=(10, 2)), [0, 1] * 5)
    for kind in (SVC, SVR, OneClassSVM):
        with pytest.raises(NotFittedError, match=kind.__name__):
            kind().predict("foo!")


def test_too_few_steps_are_a_convergence_warning_as_well_as_ours() -> None:
    for category in (ConvergenceWarning, KreinWarning):
        with pytest.warns(category, match=r"Solver terminated early \(max_iter=2\)"):
            machine = SVC(kernel=product, max_iter=2).fit(X, Y)
        assert (machine.n_iter_ == 2).all()


@pytest.mark.parametrize(("kind", "make"), [(SVC, make_classification), (SVR, make_regression)])
def test_an_infinite_C_is_a_very_large_one(kind: Any, make: Any) -> None:
    A, b = make(random_state=0)
    np.testing.assert_allclose(kind(C=np.inf).fit(A, b).predict(A), kind(C=1e10).fit(A, b).predict(A), rtol=1e-6)


@pytest.mark.parametrize("kind", [SVC, SVR])
def test_objects_need_not_be_vectors(kind: Any) -> None:
    words = ["A A", "A", "B", "B B", "A B"]
    counts = np.array([[word.count("A"), word.count("B")] for word in words], dtype=float)
    y = np.array([1, 1, 2, 2, 1])

    def similarity(A: Any, B: Any) -> Any:
        assert isinstance(A[0], str)
        return np.array([[sum(a.count(c) * b.count(c) for c in "AB") for b in B] for a in A], dtype=float)

    by_words = kind(kernel=similarity).fit(words, y)
    by_counts = kind(kernel="linear").fit(counts, y)
    np.testing.assert_allclose(by_words.predict(words), by_counts.predict(counts))
    given = kind(kernel="precomputed").fit(counts @ counts.T, y)
    np.testing.assert_allclose(by_words.predict(words), given.predict(counts @ counts.T))
    assert [by_words.support_vectors_[i] for i in range(len(by_words.support_))] == [
        words[i] for i in by_words.support_
    ]


def test_the_one_class_machine_of_six_points() -> None:
    machine = OneClassSVM().fit(X)
    np.testing.assert_array_equal(machine.predict(T), [1, -1, -1])
    np.testing.assert_allclose(machine.intercept_, [-1.218], atol=1e-3)
    np.testing.assert_allclose(machine.dual_coef_, [[0.75] * 4])
    np.testing.assert_array_equal(
        machine.score_samples([[2.0, 2.0]]), machine.decision_function([[2.0, 2.0]]) + machine.offset_
    )


def test_regression_learns_and_wraps_and_counts_its_support_vectors() -> None:
    data = load_diabetes()
    assert SVR(kernel="linear", C=10.0).fit(data.data, data.target).score(data.data, data.target) > 0.02
    rows = np.array([[0], [0.44], [0.45], [0.46], [1]])
    for kind in (OneClassSVM, SVR):
        assert not hasattr(kind(), "n_support_")
        machine = kind().fit(rows, np.arange(5))
        assert machine.n_support_.tolist() == [len(machine.support_vectors_)]
    for n_classes in (2, 3):
        A, b = make_blobs(centers=n_classes, random_state=0)
        assert len(OneVsRestClassifier(SVC()).fit(A, b).predict(A)) == len(b)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # scikit-learn casts before it looks
@pytest.mark.parametrize("last", [0.5, np.inf, np.nan])
@pytest.mark.parametrize("objects", [False, True])
def test_numbers_that_are_no_classes_are_refused(last: float, objects: bool) -> None:
    rows: Any = ["a", "b", "c", "d"] if objects else np.arange(4.0)[:, None]
    kernel: Any = krein.Spectrum(1) if objects else "rbf"
    SVC(kernel=kernel).fit(rows, [0.0, 1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match=r"Unknown label type|NaN|infinity"):
        SVC(kernel=kernel).fit(rows, [0.0, 1.0, 0.0, last])
