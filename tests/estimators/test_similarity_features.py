"""Similarities as features: what comes out is what dense matrices, scikit-learn's machines and plain counts say."""

from __future__ import annotations

import itertools
import pickle
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn import svm
from sklearn.kernel_ridge import KernelRidge as TheirKernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel

import krein
from krein.arrays import seed_from
from krein.errors import InputError, KernelError
from krein.estimators import choose_correction, expensive_similarities, route, similarity_features, similarity_ridge
from krein.estimators.route import ByScore, Exact, Features, Given, choose_route
from krein.estimators.similarity_features import LandmarkScore, NeighbourExpansion, SimilarityFeatures
from krein.kernels import Evaluator, Precomputed

pytestmark = pytest.mark.filterwarnings("ignore:.*indefinite matrix:krein.KreinWarning")

ALL = krein.Policy(exact_rows=50)  # all similarities of a few hundred objects
EDIT = krein.EditSimilarity()
HOWS = ("square", "flip", "clip", "shift")
MACHINES = [krein.SVC, krein.SVR, krein.KernelRidge, krein.KernelRidgeClassifier]


def words(n: int, n_classes: int = 2, seed: int = 0, length: int = 12) -> tuple[list[str], Any]:
    """Strings that differ, each a few letters from the word of its class."""
    rng = np.random.default_rng(seed)
    first = ["".join(rng.choice(list("acgt"), length)) for _ in range(n_classes)]
    found: dict[str, int] = {}
    while len(found) < n:
        c = len(found) % n_classes
        letters = list(first[c])
        for place in rng.choice(length, int(rng.integers(3, 9)), replace=False):
            letters[place] = str(rng.choice(list("acgt")))
        found.setdefault("".join(letters), c)
    return list(found), np.array(list(found.values()))


def points(n: int, n_classes: int = 2, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (np.digitize(X[:, 0] + 0.5 * np.sin(3.0 * X[:, 1]), np.linspace(-1, 1, n_classes + 1)[1:-1])).astype(int)


def tl1(X: Any, Z: Any) -> Any:
    return np.maximum(3.0 - cdist(X, Z, "cityblock"), 0.0)


def data(kind: str, n: int = 200, n_classes: int = 2) -> tuple[Any, Any, Any, Any, Any, Any]:
    """(objects, labels, new objects, kernel, K, k(new, objects))."""
    if kind == "strings":
        S, y = words(n + 60, n_classes)
        return S[:n], y[:n], S[n:], EDIT, EDIT(S[:n], S[:n]), EDIT(S[n:], S[:n])
    X, y = points(n + 60, n_classes)
    if kind == "tl1":
        return X[:n], y[:n], X[n:], krein.TL1(rho=3.0), tl1(X[:n], X[:n]), tl1(X[n:], X[:n])
    K = np.tanh(0.5 * X @ X[:n].T - 0.6)
    return X[:n], y[:n], X[n:], krein.Sigmoid(gamma=0.5, coef0=-0.6), K[:n], K[n:]


def root_mean_square(K: Any) -> float:
    return float(np.linalg.norm(K) / np.sqrt(len(K)))


def corrected(how: str, K: Any, R: Any, scale: float = 1.0) -> tuple[Any, Any]:
    """The Gram matrix after a correction, and its rows of new objects."""
    if how == "square":
        r = scale * root_mean_square(K)
        return K @ K / r, R @ K / r
    values, V = np.linalg.eigh(K)
    if how == "shift":
        return K + 1.001 * max(0.0, -values[0]) * np.eye(len(K)), R
    change = np.abs(values) if how == "flip" else np.maximum(values, 0.0)
    return (V * change) @ V.T, (R @ V * (change / values)) @ V.T


def one_scale(monkeypatch: pytest.MonkeyPatch, scale: float) -> None:
    monkeypatch.setattr(choose_correction, "SQUARE_SCALES", (scale,))


def landmarks_only(monkeypatch: pytest.MonkeyPatch, n: int, m: int) -> krein.Policy:
    """A policy, and a cost, by which m of n objects are landmarks and neighbours are not compared."""
    costs(monkeypatch, 1e-6)
    return krein.Policy(exact_rows=50, matrix_seconds=1e-6 * n * (m + 0.5), fewest_landmarks=10)


def with_neighbours(monkeypatch: pytest.MonkeyPatch) -> krein.Policy:
    """A policy, and a cost, by which a tenth of all similarities is evaluated, of objects taken for families."""
    costs(monkeypatch, 1e-3)
    monkeypatch.setattr(expensive_similarities, "_families", lambda *_: (True, "as the test has it"))
    return krein.Policy(exact_rows=50, matrix_seconds=1e-4)


def costs(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(route._Cost, "seconds", seconds)


def judged(monkeypatch: pytest.MonkeyPatch, *scores: float) -> list[int]:
    """Let the landmarks tried one after the other have these scores; returns their numbers, as they are tried."""
    asked: list[int] = []

    def score(far: Any, *_: Any) -> LandmarkScore:
        asked.append(far.shape[1])
        return LandmarkScore(far.shape[1], scores[len(asked) - 1], 0.01, 0.0, 70)

    monkeypatch.setattr(similarity_features, "landmark_score", score)
    return asked


# -- ridge -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["strings", "tl1", "sigmoid"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_ridge_is_the_dense_solution_with_the_squared_matrix(
    kind: str, weighted: bool, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_scale(monkeypatch, scale)
    X, y, new, kernel, K, R = data(kind)
    weights = np.random.default_rng(1).uniform(0.2, 3.0, len(K)) if weighted else None
    G, between = corrected("square", K, R, scale)
    D = np.diag(1.0 / (np.ones(len(K)) if weights is None else weights))
    options: dict[str, Any] = {"kernel": kernel, "correction": "square", "policy": ALL, "random_state": 0}
    Y = np.column_stack([y, np.cos(3.0 * y) + K[:, 0]])
    for alpha in (0.3, np.array([0.1, 2.0])):
        ours = krein.KernelRidge(alpha=alpha, **options).fit(X, Y, sample_weight=weights)
        assert isinstance(ours.route_, Features)
        each = np.broadcast_to(alpha, 2)
        c = np.column_stack([np.linalg.solve(G + a * D, Y[:, i]) for i, a in enumerate(each)])
        np.testing.assert_allclose(ours.predict(new), between @ c, atol=1e-8 * np.abs(Y).max())
        np.testing.assert_allclose(ours.dual_coef_, c, atol=1e-7 * np.abs(c).max())
    flat = krein.KernelRidge(alpha=0.1, **options).fit(X, Y[:, 0], sample_weight=weights)
    np.testing.assert_allclose(flat.predict(new), (between @ c)[:, 0], atol=1e-8)
    classifier = krein.KernelRidgeClassifier(alpha=0.3, **options).fit(X, y, sample_weight=weights)
    wanted = between @ np.linalg.solve(G + 0.3 * D, 2.0 * y - 1.0)
    np.testing.assert_allclose(classifier.decision_function(new), wanted, atol=1e-8)


def test_a_classifier_of_several_classes_has_one_dense_solution_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    one_scale(monkeypatch, 0.1)
    X, y, new, kernel, K, R = data("strings", n_classes=4)
    G, between = corrected("square", K, R, 0.1)
    ours = krein.KernelRidgeClassifier(alpha=0.5, kernel=kernel, correction="square", policy=ALL).fit(X, y)
    targets = np.where(y[:, None] == np.arange(4), 1.0, -1.0)
    wanted = between @ np.linalg.solve(G + 0.5 * np.eye(len(K)), targets)
    np.testing.assert_allclose(ours.decision_function(new), wanted, atol=1e-8)
    np.testing.assert_array_equal(ours.predict(new), wanted.argmax(1))


def test_rows_without_weight_have_no_part() -> None:
    X, y, new, kernel, K, R = data("tl1")
    weights = np.ones(len(K))
    weights[150:] = 0.0
    for how in ("square", "auto"):
        options: dict[str, Any] = {"correction": how, "policy": ALL, "random_state": 0}
        ours = krein.KernelRidge(alpha=0.5, kernel=kernel, **options).fit(X, K[:, 0] + y, sample_weight=weights)
        kept = krein.KernelRidge(alpha=0.5, kernel=kernel, **options).fit(X[:150], K[:150, 0] + y[:150])
        np.testing.assert_allclose(ours.predict(new), kept.predict(new), atol=1e-10)
        a, b = (krein.SVC(kernel=kernel, **options) for _ in range(2))
        a.fit(X, y, sample_weight=weights)
        b.fit(X[:150], y[:150])
        np.testing.assert_allclose(a.decision_function(new), b.decision_function(new), atol=1e-10)
        assert set(a.support_) <= set(range(150))
    given = krein.KernelRidge(alpha=0.5, kernel="precomputed", correction="square", policy=ALL)
    found = given.fit(K, K[:, 0] + y, sample_weight=weights)  # of a matrix all columns stay features
    assert np.isfinite(found.predict(R)).all()
    assert not found.dual_coef_[150:].any()


@pytest.mark.parametrize("how", ["flip", "clip", "shift"])
def test_ridge_after_another_correction_is_dense_too(how: str) -> None:
    X, y, new, kernel, K, R = data("tl1")
    weights = np.random.default_rng(1).uniform(0.2, 3.0, len(K))
    G, between = corrected(how, K, R)
    ours = krein.KernelRidge(alpha=0.4, kernel=kernel, correction=how, policy=ALL, random_state=0)
    ours.fit(X, y, sample_weight=weights)
    assert isinstance(ours.route_, Features)
    assert ours.correction_ == how
    wanted = between @ np.linalg.solve(G + 0.4 * np.diag(1.0 / weights), y)
    np.testing.assert_allclose(ours.predict(new), wanted, atol=1e-4 if how == "shift" else 1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_with_fewer_landmarks_ridge_is_least_squares_in_the_similarities_to_them(
    weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_scale(monkeypatch, 0.1)
    S, y, new, *_ = data("strings", 300)
    policy = landmarks_only(monkeypatch, 300, 60)
    weights = np.random.default_rng(1).uniform(0.2, 3.0, 300) if weighted else None
    Y = np.column_stack([y, np.array([s.count("a") for s in S])])
    ours = krein.KernelRidge(alpha=0.7, kernel=EDIT, policy=policy, random_state=0).fit(S, Y, sample_weight=weights)
    assert isinstance(ours.route_, Features)
    assert not ours.route_.neighbours
    assert ours.route_.n_landmarks == 60
    Z = list(ours.X_fit_)
    m = len(Z)
    F = EDIT(S, Z)
    places = [S.index(z) for z in Z]
    off = np.square(F).sum() - np.square(F[places, np.arange(m)]).sum()
    r = np.sqrt(1.0 + off / m)  # similarities to oneself are 1
    theirs = Ridge(alpha=0.7 * 0.1 * r * m / 300, fit_intercept=False, solver="cholesky")
    theirs.fit(F, Y, sample_weight=weights)
    np.testing.assert_allclose(ours.predict(new), theirs.predict(EDIT(new, Z)), atol=1e-8 * np.abs(Y).max())


def test_the_system_is_solved_where_it_is_nearly_singular() -> None:
    X, y, *_ = data("tl1")
    X, y = np.vstack([X, X]), np.concatenate([y, y])
    for correction in ("square", "flip"):
        model = krein.KernelRidge(alpha=1e-9, kernel=krein.TL1(rho=3.0), policy=ALL, correction=correction)
        np.testing.assert_allclose(model.fit(X, y).predict(X), y, atol=1e-3)


def test_alpha_zero_says_what_was_used() -> None:
    X, y, *_ = data("tl1")
    X, y = np.vstack([X, X]), np.concatenate([y, y])
    options: dict[str, Any] = {"alpha": 0.0, "kernel": krein.TL1(rho=3.0), "policy": ALL, "random_state": 0}
    with pytest.warns(krein.KreinWarning, match="singular to rounding"):
        model = krein.KernelRidge(correction="square", **options).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-3)
    with pytest.warns(krein.KreinWarning, match="singular to rounding"):
        model = krein.KernelRidge(**options).fit(X, y)
    assert np.isfinite(model.predict(X)).all()


def test_alpha_is_chosen_by_rows_held_out() -> None:
    S, _, new, *_ = data("strings", 240)
    values = np.array([s.count("a") for s in S], dtype=float)
    model = krein.KernelRidge(alpha="loo", kernel=EDIT, policy=ALL, random_state=0).fit(S, values)
    assert model.alpha_ in model.alphas_
    assert model.loo_scores_.shape == (len(model.alphas_),)
    own = krein.KernelRidge(alpha="loo", alphas=[0.3, 0.01], kernel=EDIT, policy=ALL, random_state=0).fit(S, values)
    np.testing.assert_allclose(own.alphas_, [0.01, 0.3])
    G, between = corrected("square", EDIT(S, S), EDIT(new, S))
    wanted = between @ np.linalg.solve(G + own.alpha_ * np.eye(240), values)
    np.testing.assert_allclose(own.predict(new), wanted, atol=1e-7 * values.max())


def test_errors_of_rows_held_out_are_those_of_a_machine_that_never_saw_them() -> None:
    S, *_ = data("strings", 80)
    K, values = EDIT(S, S), np.array([s.count("a") for s in S], dtype=float)[:, None]
    features = similarity_features.similarity_features(EDIT, S, 80)
    held, errors = similarity_ridge.ridge_errors(features, values, np.ones(80), np.array([0.2, 3.0]))
    assert sorted(held) == list(range(80))
    quarter = held[:20]
    learn = np.setdiff1d(np.arange(80), quarter)
    G, between = corrected("square", K[np.ix_(learn, learn)], K[np.ix_(quarter, learn)])
    for a, found in zip((0.2, 3.0), errors, strict=True):
        wanted = values[quarter] - between @ np.linalg.solve(G + a * np.eye(60), values[learn])
        np.testing.assert_allclose(found[:20], wanted, atol=1e-8)


# -- support vectors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["strings", "tl1", "sigmoid"])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_svc_is_scikit_learns_on_the_same_gram_matrix(
    kind: str, how: str, n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_scale(monkeypatch, 0.1)
    X, y, new, kernel, K, R = data(kind, n_classes=n_classes)
    G, between = corrected(how, K, R, 0.1)
    theirs = svm.SVC(kernel="precomputed", C=0.7, tol=1e-9, decision_function_shape="ovo").fit(G, y)
    options: dict[str, Any] = {"tol": 1e-9, "decision_function_shape": "ovo", "policy": ALL, "random_state": 0}
    ours = krein.SVC(kernel=kernel, C=0.7, correction=how, **options).fit(X, y)
    assert isinstance(ours.route_, Features)
    assert ours.correction_ == how
    assert ours.n_negative_ > 0
    atol = 3e-3 if how == "shift" else 1e-4  # a shift is known to three digits
    np.testing.assert_allclose(ours.decision_function(new), theirs.decision_function(between), atol=atol)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=atol)
    if how != "shift":
        np.testing.assert_array_equal(ours.support_, theirs.support_)
        np.testing.assert_array_equal(ours.predict(new), theirs.predict(between))


@pytest.mark.parametrize("how", HOWS)
def test_svr_is_scikit_learns_on_the_same_gram_matrix(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one_scale(monkeypatch, 1.0)
    X, _, new, kernel, K, R = data("tl1")
    y = np.sin(X[:, 0]) + X[:, 1]
    weights = np.random.default_rng(1).uniform(0.2, 3.0, len(K))
    G, between = corrected(how, K, R)
    theirs = svm.SVR(kernel="precomputed", C=0.5, epsilon=0.05, tol=1e-9).fit(G, y, sample_weight=weights)
    ours = krein.SVR(kernel=kernel, C=0.5, epsilon=0.05, tol=1e-9, correction=how, policy=ALL)
    ours.fit(X, y, sample_weight=weights)
    atol = 3e-3 if how == "shift" else 1e-4
    np.testing.assert_allclose(ours.predict(new), theirs.predict(between), atol=atol)


def test_the_krein_space_svm_is_the_flipped_one() -> None:
    X, y, new, kernel, *_ = data("tl1")
    krein_space, flip = (
        krein.SVC(kernel=kernel, correction=how, policy=ALL, random_state=0).fit(X, y) for how in ("krein", "flip")
    )
    assert isinstance(krein_space.route_, Features)
    assert krein_space.correction_ == "krein"
    np.testing.assert_allclose(krein_space.decision_function(new), flip.decision_function(new), atol=1e-8)


def test_an_svc_on_landmarks_is_scikit_learns_on_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    one_scale(monkeypatch, 1.0)
    S, y, new, *_ = data("strings", 300, n_classes=3)
    policy = landmarks_only(monkeypatch, 300, 60)
    judged(monkeypatch, 0.1, 0.2, 0.3)
    ours = krein.SVC(kernel=EDIT, tol=1e-9, decision_function_shape="ovo", policy=policy, random_state=0).fit(S, y)
    Z = list(ours._expansion.support)
    assert len(Z) == 60
    F, places = EDIT(S, Z), [S.index(z) for z in Z]
    off = np.square(F).sum() - np.square(F[places, np.arange(60)]).sum()
    factor = 300 / (60 * np.sqrt(1.0 + off / 60))
    theirs = svm.SVC(kernel="precomputed", tol=1e-9, decision_function_shape="ovo").fit(factor * F @ F.T, y)
    wanted = theirs.decision_function(factor * EDIT(new, Z) @ F.T)
    np.testing.assert_allclose(ours.decision_function(new), wanted, atol=1e-4)
    assert len(ours.support_vectors_) == len(ours.support_)
    assert [S[i] for i in ours.support_] == list(ours.support_vectors_)


@pytest.mark.parametrize("memory", [4.0 * 150**2, 4.0 * 300])
def test_a_gram_matrix_that_has_no_room_is_left_out(memory: float, monkeypatch: pytest.MonkeyPatch) -> None:
    one_scale(monkeypatch, 1.0)
    S, y, new, *_ = data("strings", 300, n_classes=3)
    policy = landmarks_only(monkeypatch, 300, 60)
    judged(monkeypatch, *[0.1, 0.2, 0.3] * 2)
    options: dict[str, Any] = {"kernel": EDIT, "tol": 1e-8, "decision_function_shape": "ovo", "random_state": 0}
    roomy = krein.SVC(policy=policy, **options).fit(S, y)
    tight = krein.SVC(policy=policy, **options)
    found = Features(60, int(np.sqrt(memory / 4.0)), False, "as before")  # pairs of classes, or not even those
    monkeypatch.setattr("krein.estimators.base.choose_route", lambda *a, **b: found)
    judged(monkeypatch, 0.1, 0.2, 0.3)
    tight.fit(S, y)
    np.testing.assert_allclose(tight.decision_function(new), roomy.decision_function(new), atol=1e-4)


@pytest.mark.parametrize("machine", [krein.SVC, krein.SVR, krein.KernelRidge])
def test_what_auto_chooses_is_what_the_correction_does_when_asked_for(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, new, kernel, *_ = data("tl1")
    auto = machine(kernel=kernel, policy=ALL, random_state=0).fit(X, y)
    assert auto.correction_ in HOWS
    named = machine(kernel=kernel, correction=auto.correction_, policy=ALL, random_state=0).fit(X, y)
    np.testing.assert_allclose(auto.predict(new), named.predict(new), atol=1e-8)
    large = krein.Policy(exact_rows=50, eigen_rows=60)
    assert machine(kernel=kernel, policy=large, random_state=0).fit(X, y).correction_ in ("square", "shift")


def test_negative_eigenvalues_that_few_objects_do_not_show_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity_features, "SEEN_OBJECTS", 3)
    X, y, new, kernel, K, R = data("tl1")
    assert np.linalg.eigvalsh(K)[0] < -0.01
    for how in HOWS:
        G, between = corrected(how, K, R)
        one_scale(monkeypatch, 1.0)
        with pytest.warns(krein.KreinWarning, match=r"indefinite matrix: at least 1 of 200.*smallest -"):
            ours = krein.SVC(kernel=kernel, correction=how, tol=1e-8, policy=ALL).fit(X, y)
        theirs = svm.SVC(kernel="precomputed", tol=1e-8).fit(G, y)
        np.testing.assert_allclose(ours.decision_function(new), theirs.decision_function(between), atol=3e-3)


def test_probabilities_come_with_these_machines() -> None:
    S, y, new, *_ = data("strings", 150)
    model = krein.SVC(kernel=EDIT, probability=True, policy=ALL, random_state=0).fit(S, y)
    found = model.predict_proba(new)
    np.testing.assert_allclose(found.sum(1), 1.0)
    assert np.corrcoef(found[:, 1], model.decision_function(new))[0, 1] > 0.5


# -- precision ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
def test_single_precision_changes_little(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, new, kernel, *_ = data("tl1", 250)
    values = np.sin(X[:, 0]) + X[:, 1]

    def predictions() -> list[Any]:
        options: dict[str, Any] = {"kernel": kernel, "correction": how, "policy": ALL, "random_state": 0}
        return [
            krein.SVC(**options).fit(X, y).decision_function(new),
            krein.SVR(**options).fit(X, values).predict(new),
            krein.KernelRidge(alpha=0.3, **options).fit(X, values).predict(new),
        ]

    double = predictions()
    monkeypatch.setattr(similarity_features, "DOUBLE_ROWS", 10)
    single = predictions()
    for a, b in zip(double, single, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-3 * np.ptp(a))
        assert not np.array_equal(a, b)
    if how == "square":  # which is refined
        np.testing.assert_allclose(single[2], double[2], atol=1e-5 * np.ptp(double[2]))


def test_single_precision_with_landmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    S, y, new, *_ = data("strings", 700)
    found = []
    for rows in (5000, 10):
        monkeypatch.setattr(similarity_features, "DOUBLE_ROWS", rows)
        options: dict[str, Any] = {"kernel": EDIT, "policy": landmarks_only(monkeypatch, 700, 100), "random_state": 0}
        judged(monkeypatch, 0.1, 0.2, 0.3)
        ridge = krein.KernelRidge(alpha=0.1, **options).fit(S, y)
        judged(monkeypatch, 0.1, 0.2, 0.3)
        machine = krein.SVC(**options).fit(S, y)
        assert len(machine._expansion.support) == 100
        found.append((ridge.predict(new), machine.decision_function(new)))
    (a, b), (c, d) = found
    np.testing.assert_allclose(c, a, atol=1e-5 * np.ptp(a))
    np.testing.assert_allclose(d, b, atol=1e-3 * np.ptp(b))


def test_single_precision_with_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity_features, "DOUBLE_ROWS", 100)
    S, *_ = data("strings", 450)
    features = similarity_features.similarity_features(EDIT, S, 40, neighbours=True)
    assert features.far.dtype == np.float32
    G = by_hand(features, EDIT(S, S))
    np.testing.assert_allclose(features.gram(), G, atol=1e-5 * np.abs(G).max())
    c = np.random.default_rng(0).normal(size=(450, 2))
    np.testing.assert_allclose(features.expansion(EDIT, c)(S), G @ c, atol=1e-5 * np.abs(G @ c).max())


# -- neighbours --------------------------------------------------------------------------------------------------------


def by_hand(features: SimilarityFeatures, K: Any) -> Any:
    """The Gram matrix of similarities to landmarks and neighbours, from the whole matrix."""
    n, Z, near = len(K), features.landmarks, features.near
    assert near is not None
    far = K[:, Z]
    off = np.square(far).sum() - np.square(np.diagonal(K)[Z]).sum()
    G = far @ far.T * n / len(Z) / np.sqrt(np.square(np.diagonal(K)).mean() + off / len(Z))
    N = np.zeros((n, n))
    for start, stop in zip(near.starts[:-1], near.starts[1:], strict=True):
        block = np.ix_(near.order[start:stop], near.order[start:stop])
        N[block] = K[block] - np.median(far)
    return G + N @ N.T / (np.linalg.norm(N) / np.sqrt(n))


def test_the_gram_matrix_with_neighbours_is_the_one_made_by_hand() -> None:
    S, *_ = data("strings", 450)
    K = EDIT(S, S)
    features = similarity_features.similarity_features(EDIT, S, 40, neighbours=True, seed=3)
    near = features.near
    assert near is not None
    assert sorted(near.order) == list(range(450))
    sizes = np.diff(near.starts)
    assert len(sizes) >= 3
    assert sizes.max() <= 1.25 * 450 / 20 + 1
    np.testing.assert_allclose(features.gram(), by_hand(features, K), rtol=1e-8)
    np.testing.assert_allclose(features.gram(0.01), 100.0 * by_hand(features, K), rtol=1e-8)
    scaled = similarity_features.similarity_features(7.0 * Precomputed(K), np.arange(450), 40, neighbours=True, seed=3)
    np.testing.assert_allclose(scaled.gram(), 7.0 * features.gram(), rtol=1e-8)


@pytest.mark.parametrize("machine", [krein.SVC, krein.KernelRidge, krein.KernelRidgeClassifier])
def test_objects_of_the_fit_go_to_their_own_block(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one_scale(monkeypatch, 0.1)
    S, y, *_ = data("strings", 620)
    built: list[Any] = []
    make = similarity_features.similarity_features

    def remember(*args: Any, **options: Any) -> Any:
        built.append(make(*args, **options))
        return built[-1]

    monkeypatch.setattr("krein.estimators.expensive_similarities.similarity_features", remember)
    options = {"tol": 1e-8} if machine is krein.SVC else {"alpha": 0.2}
    model = machine(kernel=EDIT, policy=with_neighbours(monkeypatch), random_state=0, **options).fit(S, y)
    assert isinstance(model.route_, Features)
    assert model.route_.neighbours
    assert isinstance(model._expansion, NeighbourExpansion)
    G = 10.0 * by_hand(built[0], EDIT(S, S))
    if machine is krein.SVC:
        c = np.zeros(620)
        c[model.support_] = model.dual_coef_[0]
        theirs = svm.SVC(kernel="precomputed", tol=1e-8).fit(G, y)
        wanted = G @ c + model.intercept_
        np.testing.assert_allclose(wanted, theirs.decision_function(G), atol=1e-3)
    else:
        targets = y if machine is krein.KernelRidge else 2.0 * y - 1.0
        wanted = G @ np.linalg.solve(G + 0.2 * np.eye(620), targets)
    found = model.predict(S) if machine is krein.KernelRidge else model.decision_function(S)
    np.testing.assert_allclose(found, wanted, atol=1e-7)
    alone = [model.predict([s])[0] if machine is krein.KernelRidge else model.decision_function([s])[0] for s in S[:5]]
    np.testing.assert_allclose(alone, wanted[:5], atol=1e-7)


@pytest.mark.parametrize("machine", [pytest.param(krein.SVC, marks=pytest.mark.slow), krein.KernelRidgeClassifier])
def test_expensive_similarities_are_evaluated_once_and_are_a_tenth_of_all(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    S, y = words(3000, 2, length=20)
    model = machine(kernel=EDIT, policy=krein.Policy(exact_rows=50, matrix_seconds=1e-4), random_state=0)
    with krein.counting() as spent:
        model.fit(S, y)
    assert model.route_.n_pairs == 828_000
    assert spent.n_evaluations <= 0.12 * 3000**2  # with what its cost was measured by
    policy = with_neighbours(monkeypatch)
    model.set_params(policy=policy)
    with krein.counting() as spent:
        model.fit(S, y)
    assert spent.n_evaluations <= 0.1 * 3000**2
    used: Any = model._expansion
    blocks, m = np.diff(used.starts), len(used.support)
    pilot = expensive_similarities.Shares(3000, 828_000).pilot
    half = 0.52 * (
        pilot**2 + np.square(blocks).sum()
    )  # of the pilot and of blocks one triangle; the solver asks for none
    assert spent.n_evaluations <= 3000 * (m + 2) + half
    with krein.counting() as again:
        model.predict(S[:50])
    assert again.n_evaluations <= 50 * (m + blocks.max())


# -- a sample ----------------------------------------------------------------------------------------------------------


def families(n: int, seed: int = 0) -> tuple[list[str], Any]:
    """Strings in 40 families, each of one class, and no likeness between families."""
    rng = np.random.default_rng(seed)
    first = ["".join(rng.choice(list("acdefghiklmnpqrstvwy"), 25)) for _ in range(40)]
    found: dict[str, int] = {}
    while len(found) < n:
        f = int(rng.integers(40))
        letters = list(first[f])
        for place in rng.choice(25, int(rng.integers(4, 14)), replace=False):
            letters[place] = str(rng.choice(list("acdefghiklmnpqrstvwy")))
        found.setdefault("".join(letters), f % 2)
    return list(found), np.array(list(found.values()))


def test_where_memory_does_not_suffice_for_blocks_it_is_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    S, y = families(700)
    policy = replace(with_neighbours(monkeypatch), matrix_memory=8.0 * 700**2)
    blocks = krein.KernelRidgeClassifier(kernel=EDIT, policy=policy, random_state=0).fit(S, y)
    assert blocks.route_.neighbours
    less = krein.Policy(exact_rows=50, matrix_seconds=1e-4, matrix_memory=8.0 * 200**2)
    with krein.counting() as spent:
        sample = krein.KernelRidgeClassifier(kernel=EDIT, policy=less, random_state=0).fit(S, y)
    assert "more than policy.matrix_memory" in sample.route_.why
    assert not sample.route_.neighbours
    assert sample.route_.n_landmarks == 199  # 8 bytes for each pair of 200 objects
    assert spent.n_evaluations <= 1.05 * 200**2 / 2 + 700
    with pytest.raises(InputError, match="too small for so many classes"):
        krein.SVC(kernel=EDIT, policy=less, random_state=0).fit(S, np.arange(700) % 150)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_sample_compared_whole_is_the_machine_on_these_objects_alone(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    S, y, new, *_ = data("strings", 620, n_classes=2 if machine is krein.SVR else 3)
    costs(monkeypatch, 1e-3)
    monkeypatch.setattr(expensive_similarities, "_families", lambda *_: (False, "as the test has it"))
    weights = np.random.default_rng(1).uniform(0.2, 3.0, 620)
    options = {} if machine in (krein.SVC, krein.SVR) else {"alpha": 0.3}
    scarce = machine(kernel=EDIT, policy=krein.Policy(exact_rows=50, matrix_seconds=1e-4), random_state=0, **options)
    with krein.counting() as spent:
        scarce.fit(S, y, sample_weight=weights)
    assert scarce.route_.n_pairs == int(0.092 * 620**2)
    assert spent.n_evaluations <= 1.05 * scarce.route_.n_pairs + 620
    size = scarce.route_.n_landmarks
    assert size * (size + 1) / 2 > 0.98 * scarce.route_.n_pairs
    Z = set(scarce._expansion.support)
    order = expensive_similarities._order(
        np.where(y[:, None] == np.unique(y), 1.0, -1.0), "classification", seed_from(0)
    )
    if machine in (krein.SVR, krein.KernelRidge):
        order = expensive_similarities._order(y[:, None].astype(float), "regression", seed_from(0))
    rows = order[:size]
    assert set(np.unique(y)) == set(y[rows])
    costs(monkeypatch, 1e-9)
    alone = machine(kernel=EDIT, policy=ALL, random_state=0, **options)
    alone.fit([S[i] for i in rows], y[rows], sample_weight=weights[rows])
    assert {S[i] for i in rows} >= Z
    assert scarce.correction_ == alone.correction_
    ask = "decision_function" if hasattr(alone, "decision_function") else "predict"
    np.testing.assert_allclose(getattr(scarce, ask)(new), getattr(alone, ask)(new), atol=1e-3)
    if hasattr(scarce, "support_"):
        assert [S[i] for i in scarce.support_] == list(scarce.support_vectors_)
    else:
        assert len(scarce.X_fit_) == len(scarce.dual_coef_) == size
    assert str(scarce.selection_).startswith("learned from")


def test_objects_in_families_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """In most draws: a pilot of 429 objects decides. What is taken is never much worse than a sample of that cost."""
    policy, found = krein.Policy(exact_rows=50, matrix_seconds=1e-4), []
    for S, y in (*(families(2400, seed) for seed in range(3)), words(2400, length=20)):
        costs(monkeypatch, 1e-3)
        model = krein.KernelRidgeClassifier(kernel=EDIT, policy=policy, random_state=0).fit(S[:2001], y[:2001])
        found.append(model.route_.neighbours)
        assert ("no others are used" in model.route_.why) != found[-1]
        costs(monkeypatch, 1e-9)
        size = int(np.sqrt(2 * model.route_.n_pairs))  # all similarities of so many objects cost the same
        few = krein.KernelRidgeClassifier(kernel=EDIT, policy=ALL, random_state=0).fit(S[:size], y[:size])
        assert model.score(S[2001:], y[2001:]) > few.score(S[2001:], y[2001:]) - 0.03
    assert sum(found[:3]) >= 2
    assert not found[3]


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_where_composition_counts_families_are_left_aside(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings in families whose targets the letters decide: few landmarks and blocks were 6 to 8 points worse."""
    costs(monkeypatch, 1e-3)
    S, _ = families(2400)
    count = np.array([float(s.count("a") + s.count("c") + s.count("d") + s.count("e")) for s in S])
    y = (count > 5).astype(int) if task == "classification" else (count - count.mean()) / count.std()
    machine = krein.SVC if task == "classification" else krein.KernelRidge
    policy = krein.Policy(exact_rows=50, matrix_seconds=1e-4)
    model = machine(kernel=EDIT, policy=policy, random_state=0).fit(S[:2001], y[:2001])
    said = re.search(r"landmarks and blocks score ([\d.]+), all pairs ([\d.]+)", model.route_.why)
    assert said
    assert float(said[1]) < float(said[2])
    assert not model.route_.neighbours
    size = int(np.sqrt(2 * model.route_.n_pairs))
    costs(monkeypatch, 1e-9)
    few = machine(kernel=EDIT, policy=ALL, random_state=0).fit(S[:size], y[:size])
    assert model.score(S[2001:], y[2001:]) > few.score(S[2001:], y[2001:]) - 0.05


@pytest.mark.parametrize(
    ("clock", "computed", "counts"),
    [(8.0, 3.0, 3.0), (8.0, 1.0, 8.0), (1.0, 2.0, 1.0)],
    ids=["beside other processes", "waits", "in threads"],
)
def test_the_cost_is_cpu_time_unless_the_similarity_waits(
    clock: float, computed: float, counts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route.time, "perf_counter", itertools.count(0.0, clock).__next__)
    monkeypatch.setattr(route.time, "process_time", itertools.count(0.0, computed).__next__)
    assert route._timed(Evaluator(EDIT), ["a"], ["b"]) == counts


def test_a_sample_holds_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    costs(monkeypatch, 1e-3)
    S, _ = words(620)
    y = np.zeros(620, dtype=int)
    y[:8] = np.arange(1, 9) // 2 + 1  # a few objects of each
    policy = krein.Policy(exact_rows=50, matrix_seconds=1e-4)
    for machine in (krein.SVC, krein.NuSVC, krein.KernelRidgeClassifier):
        options = {"nu": 0.001} if machine is krein.NuSVC else {}
        model = machine(kernel=EDIT, policy=policy, random_state=0, **options).fit(S, y)
        assert set(model.predict(S)) <= set(y)
        assert len(model.classes_) == len(np.unique(y))
    many = np.arange(620) // 2  # more classes than a sample could hold
    model = krein.KernelRidgeClassifier(kernel=EDIT, policy=policy, random_state=0).fit(S, many)
    assert model.route_.neighbours
    assert "too many classes" in model.route_.why


def test_all_similarities_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    costs(monkeypatch, 1e-9)
    S, y, *_ = data("strings", 300)
    for machine in MACHINES:
        with krein.counting() as spent:
            machine(kernel=EDIT, policy=ALL, random_state=0).fit(S, y)
        assert spent.n_evaluations <= 0.6 * 300**2  # one triangle, in strips


# -- a kernel that turns out to be psd ---------------------------------------------------------------------------------


def test_a_psd_kernel_that_is_not_declared_so_is_recognised() -> None:
    X, y = points(260)
    X, y, new = X[:200], y[:200], X[200:]

    def kernel(A: Any, B: Any) -> Any:
        return rbf_kernel(A, B, gamma=0.7)

    options: dict[str, Any] = {"kernel": kernel, "policy": ALL, "random_state": 0}
    ours, theirs = krein.SVC(tol=1e-8, **options).fit(X, y), svm.SVC(gamma=0.7, tol=1e-8).fit(X, y)
    assert isinstance(ours.route_, Features)
    assert (ours.correction_, ours.n_negative_) == ("none", 0)
    np.testing.assert_allclose(ours.decision_function(new), theirs.decision_function(new), atol=1e-5)
    np.testing.assert_array_equal(ours.support_vectors_, theirs.support_vectors_)
    values = np.sin(2.0 * X[:, 0])
    ridge = krein.KernelRidge(alpha=0.1, **options).fit(X, values)
    assert ridge.correction_ == "none"
    wanted = TheirKernelRidge(alpha=0.1, kernel="rbf", gamma=0.7).fit(X, values).predict(new)
    np.testing.assert_allclose(ridge.predict(new), wanted, atol=1e-9)
    chosen = krein.KernelRidge(alpha="loo", **options).fit(X, values)
    assert chosen.correction_ == "none"
    exact = krein.KernelRidge(alpha="loo", kernel="rbf", gamma=0.7, random_state=0).fit(X, values)
    np.testing.assert_allclose(chosen.predict(new), exact.predict(new), atol=0.02)
    several, labels = np.digitize(X[:, 0], [-0.5, 0.5]), krein.SVC(tol=1e-8, **options)
    wanted = svm.SVC(gamma=0.7, tol=1e-8).fit(X, several).predict(new)
    np.testing.assert_array_equal(labels.fit(X, several).predict(new), wanted)


def test_a_psd_kernel_in_single_precision_is_recognised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity_features, "DOUBLE_ROWS", 10)
    X, y = points(260)
    ours = krein.SVC(kernel=lambda A, B: rbf_kernel(A, B, gamma=0.7), policy=ALL, random_state=0).fit(X[:200], y[:200])
    assert ours.correction_ == "none"
    theirs = svm.SVC(gamma=0.7).fit(X[:200], y[:200])
    np.testing.assert_allclose(ours.decision_function(X[200:]), theirs.decision_function(X[200:]), atol=5e-3)


# -- the route ---------------------------------------------------------------------------------------------------------

STRINGS = ["oak", "ash", "elm", "fir"] * 750
VECTORS = np.random.default_rng(0).normal(size=(3000, 3))


def routed(machine: Any, objects: Any = STRINGS, kernel: Any = EDIT, scored: bool = True, **options: Any) -> Any:
    return choose_route(machine, objects, kernel, spectrum=machine._needs_spectrum(), scored=scored, **options)


@pytest.mark.parametrize("machine", MACHINES)
def test_all_similarities_are_used_where_they_are_affordable(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    costs(monkeypatch, 60.0 / 3000**2)
    for objects, kernel in ((STRINGS, EDIT), (VECTORS, krein.TL1(rho=1.0)), (VECTORS, krein.Sigmoid(gamma=0.1))):
        found = routed(machine(), objects, kernel)
        assert isinstance(found, Features)
        assert (found.n_landmarks, found.neighbours) == (3000, False)
        assert found.corrections == ("clip", "flip", "square", "shift")
        assert "60 s" in found.why
        large = machine(policy=krein.Policy(eigen_rows=2999))
        assert routed(large, objects, kernel).corrections == ("square", "shift")


@pytest.mark.parametrize("machine", MACHINES)
def test_landmarks_are_used_where_all_similarities_are_not_affordable(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs(monkeypatch, 61.0 / 3000**2)
    found = routed(machine())
    assert (found.n_landmarks, found.neighbours) == (1000, False)  # a third of all
    assert routed(machine(policy=krein.Policy(landmark_share=0.5))).n_landmarks == 1500
    costs(monkeypatch, 60.0 / 3000 / 900)  # too few to do without neighbours
    found = routed(machine())
    assert (found.n_pairs, found.neighbours) == (900 * 3000, True)
    costs(monkeypatch, 1.0)
    found = routed(machine())
    assert (found.n_pairs, found.neighbours) == (828_000, True)  # nine in a hundred
    assert routed(machine(), STRINGS * 3).n_pairs == 388 * 9000
    assert 0 < routed(machine(), STRINGS * 3).n_landmarks < 388
    assert found.corrections == ("square",)


def test_vectors_are_approximated_where_not_all_similarities_are_affordable(monkeypatch: pytest.MonkeyPatch) -> None:
    costs(monkeypatch, 1.0)
    assert isinstance(routed(krein.SVC(), VECTORS, krein.TL1(rho=1.0)), ByScore)
    costs(monkeypatch, 1e-9)
    tight = krein.Policy(matrix_memory=4.0 * 3000**2 - 1)
    assert isinstance(routed(krein.SVC(policy=tight), VECTORS, krein.TL1(rho=1.0)), ByScore)


def test_memory_limits_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    costs(monkeypatch, 1e-9)
    enough, less = (krein.SVC(policy=krein.Policy(matrix_memory=4.0 * 3000**2 - i)) for i in (0, 1))
    assert routed(enough).n_landmarks == 3000
    assert (routed(less).n_landmarks, routed(less).neighbours) == (1000, False)
    third = krein.SVC(policy=krein.Policy(matrix_memory=4.0 * 3000 * 1000 - 1))  # 999 landmarks: too few
    assert (routed(third).n_pairs, routed(third).neighbours) == (749_999, False)  # a sample, 8 bytes a pair of objects
    costs(monkeypatch, 1.0)
    room = 8.0 * 3000**2  # of the Gram matrix with neighbours
    assert routed(krein.SVC(policy=krein.Policy(matrix_memory=room))).neighbours
    assert not routed(krein.SVC(policy=krein.Policy(matrix_memory=room - 1))).neighbours


def test_a_correction_that_was_asked_for_has_to_be_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    costs(monkeypatch, 1e-9)
    large = krein.Policy(eigen_rows=2000)
    for how in (*HOWS, "krein"):
        assert isinstance(routed(krein.SVC(correction=how)), Features)
        found = routed(krein.SVC(correction=how, policy=large))
        assert isinstance(found, Features) == (how in ("square", "shift"))
    assert not isinstance(routed(krein.SVC(correction="none")), Features)
    costs(monkeypatch, 1.0)
    for how in (*HOWS, "krein", "none"):
        found = routed(krein.SVC(correction=how))
        assert isinstance(found, Features if how == "square" else Given)


def test_psd_kernels_of_objects_are_exact_where_all_similarities_are_affordable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs(monkeypatch, 1e-9)
    assert isinstance(routed(krein.SVC(), kernel=krein.Spectrum()), Exact)
    assert isinstance(routed(krein.SVC(correction="square"), kernel=krein.Spectrum()), Features)
    costs(monkeypatch, 1.0)
    assert routed(krein.SVC(), kernel=krein.Spectrum()).request["coupling"] == "landmark"
    assert isinstance(routed(krein.SVC(), VECTORS, krein.RBF(gamma=1.0)), Exact)  # which are not asked


def test_without_a_target_nothing_is_a_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    costs(monkeypatch, 1e-9)
    for machine in (krein.OneClassSVM(), krein.KernelPCA()):
        assert routed(machine, scored=False).request["coupling"] == "landmark"
    assert routed(krein.SVC(refine=None)).request["coupling"] == "landmark"
    assert not isinstance(routed(krein.KernelRidge(), solvable=False), Features)
    assert isinstance(routed(krein.SVC(n_blocks=4, rank=8)), Given)


def test_the_cost_of_a_similarity_is_measured() -> None:
    asked = []

    def slow(A: Any, B: Any) -> Any:
        asked.append((len(A), len(B)))
        time.sleep(1e-3 * len(A) * len(B))
        return np.ones((len(A), len(B)))

    cost = route._Cost(krein.kernels.as_kernel(slow), STRINGS, krein.Policy(), 0)
    assert 0.8e-3 < cost.seconds < 5e-3
    assert (
        sum(a * b for a, b in asked) <= 1 + 3 * 8**2 + 16**2
    )  # a tenth of a second is enough, small blocks are asked for three times
    assert not cost.affords_all


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seconds", [1e-9, 1.0], ids=["all", "few"])
def test_a_kernel_that_is_none_is_an_error(machine: Any, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    costs(monkeypatch, seconds)
    S, y, *_ = data("strings", 300)

    def crooked(A: Any, B: Any) -> Any:
        return np.array([[float(len(set(a) - set(b)) + a.count("a")) for b in B] for a in A])

    def missing(A: Any, B: Any) -> Any:
        return np.where(np.array([a == S[7] for a in A])[:, None], np.nan, EDIT(A, B))

    with pytest.raises(KernelError, match="symmetric"):
        machine(kernel=crooked, policy=ALL).fit(S, y)
    with pytest.raises(KernelError, match="finite"):
        machine(kernel=missing, policy=ALL).fit(S, y)


def test_asymmetry_between_two_objects_is_seen_where_all_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    costs(monkeypatch, 1e-9)
    S, y, *_ = data("strings", 300)

    def crooked(A: Any, B: Any) -> Any:
        K = np.array(EDIT(A, B))
        i, j = ([k for k, s in enumerate(X) if s == name] for X, name in ((A, S[211]), (B, S[117])))
        K[np.ix_(i, j)] += 0.2
        return K

    with pytest.raises(KernelError, match=r"between objects (211 and 117|117 and 211)"):
        krein.SVC(kernel=crooked, policy=ALL).fit(S, y)


# -- how many landmarks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "tried", "says"),
    [
        ((0.6, 0.7, 0.75), [20, 40, 80], "80 of 300 .* 0.7500, with half as many 0.7000; .* bring about 0.0250"),
        ((0.6, 0.7, 0.9), [20, 40, 80], "twice as many would bring about 0.2000"),
        ((0.6, 0.6), [20, 40], "40 of 300 .* twice as many would bring nothing"),
        ((0.6, 0.5), [20, 40], "twice as many would bring nothing"),
        ((0.6, 0.8, 0.7), [20, 40, 80], "twice as many would bring nothing"),
    ],
)
def test_landmarks_are_added_as_long_as_the_score_rises(
    scores: tuple[float, ...], tried: list[int], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    S, y, new, *_ = data("strings", 300)
    asked = judged(monkeypatch, *scores)
    model = krein.SVC(kernel=EDIT, policy=landmarks_only(monkeypatch, 300, 80), random_state=0).fit(S, y)
    assert asked == tried
    assert len(model._expansion.support) == tried[-1]
    choice = model.selection_
    assert choice is not None
    assert [t.rank for t in choice.tried] == tried
    assert [t.score for t in choice.tried] == list(scores)
    assert re.search(says, choice.reason)
    assert str(choice).count("<- chosen") == 1
    assert choice.n_scored == 70  # as the scores say
    assert np.isfinite(model.decision_function(new)).all()


def test_similarities_are_not_evaluated_for_landmarks_that_bring_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    S, y, *_ = data("strings", 300)
    counts = []
    for scores in ((0.5, 0.5), (0.5, 0.6, 0.7)):
        judged(monkeypatch, *scores)
        with krein.counting() as spent:
            krein.SVC(kernel=EDIT, policy=landmarks_only(monkeypatch, 300, 80), random_state=0).fit(S, y)
        counts.append(spent.n_evaluations)
    assert counts[0] <= 300 * 41
    assert 300 * 75 <= counts[1] <= 300 * 81


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_score_of_landmarks_is_that_of_ridge_on_rows_held_out(task: str) -> None:
    S, y, *_ = data("strings", 300)
    values = (2.0 * y - 1.0 if task == "classification" else np.array([s.count("a") for s in S]) - 3.0)[:, None]
    features = similarity_features.similarity_features(EDIT, S, 80, targets=values, task=task, seed=1)
    assert 2 <= len(features.scores) <= 3
    last = features.scores[-1]
    assert last.n_landmarks == len(features.landmarks)
    others = np.setdiff1d(np.arange(300), features.landmarks)
    found = []
    for seed in range(20):  # other rows are held out, so that the scores agree but for chance
        held = np.random.default_rng(seed).choice(others, 73, replace=False)
        learn = np.setdiff1d(np.arange(300), held)
        best = -np.inf
        for alpha in (0.03, 0.3, 3.0):
            guess = Ridge(alpha=alpha, fit_intercept=False).fit(features.far[learn], values[learn])
            said = guess.predict(features.far[held]).ravel()
            met = values[held, 0]
            explained = 1.0 - np.square(said - met).mean() / met.var()
            best = max(best, ((said > 0) == (met > 0)).mean() if task == "classification" else explained)
        found.append(best)
    assert abs(last.score - np.mean(found)) < 4.0 * max(last.standard_error, 0.01)
    assert similarity_features.landmark_choice(features).n_scored == (300 - 80) // 3


# -- models that are kept ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", ["all", "landmarks", "neighbours"])
def test_models_that_were_kept_predict_the_same(
    machine: Any, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 620 if kind == "neighbours" else 250
    S, y, new, *_ = data("strings", n, n_classes=2 if machine is krein.SVR else 3)
    policy = {
        "all": ALL,
        "landmarks": landmarks_only(monkeypatch, n, 80),
        "neighbours": with_neighbours(monkeypatch),
    }[kind]
    costs(monkeypatch, {"all": 1e-9, "landmarks": 1e-6, "neighbours": 1e-3}[kind])
    model = machine(kernel=EDIT, policy=policy, random_state=0).fit(S, y)
    assert (model.route_.n_landmarks == n) == (kind == "all")
    assert isinstance(model._expansion, NeighbourExpansion) == (kind == "neighbours")
    ask = "decision_function" if hasattr(model, "decision_function") else "predict"
    wanted = getattr(model, ask)(new)
    krein.save(model, tmp_path / "model.krein")
    for kept in (pickle.loads(pickle.dumps(model)), krein.load(tmp_path / "model.krein")):
        np.testing.assert_allclose(getattr(kept, ask)(new), wanted, rtol=1e-12, atol=1e-12)
        assert kept.route_ == model.route_
        assert kept.correction_ == model.correction_
        assert str(kept.selection_) == str(model.selection_)
        if hasattr(model, "support_vectors_"):
            assert list(kept.support_vectors_) == [S[i] for i in model.support_]


@pytest.mark.parametrize("kind", ["all", "landmarks", "neighbours"])
def test_a_given_matrix_predicts_from_rows(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 620 if kind == "neighbours" else 250
    S, y, new, _, K, R = data("strings", n)
    policy = {
        "all": ALL,
        "landmarks": landmarks_only(monkeypatch, n, 80),
        "neighbours": with_neighbours(monkeypatch),
    }[kind]
    costs(monkeypatch, {"all": 1e-9, "landmarks": 1e-6, "neighbours": 1e-3}[kind])
    for machine in MACHINES:
        options: dict[str, Any] = {"policy": policy, "random_state": 0}
        given, named = machine(kernel="precomputed", **options).fit(K, y), machine(kernel=EDIT, **options).fit(S, y)
        assert given.route_.n_landmarks == named.route_.n_landmarks
        assert given.route_.neighbours == (kind == "neighbours")
        assert given.correction_ == named.correction_
        ask = "decision_function" if hasattr(given, "decision_function") else "predict"
        np.testing.assert_allclose(getattr(given, ask)(R), getattr(named, ask)(new), atol=1e-6)
        if hasattr(given, "support_vectors_"):
            assert given.support_vectors_.shape == (0, 0)
        krein.save(given, tmp_path / "given.krein")
        for kept in (pickle.loads(pickle.dumps(given)), krein.load(tmp_path / "given.krein")):
            np.testing.assert_allclose(getattr(kept, ask)(R), getattr(given, ask)(R), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("how", [*HOWS, "auto"])
def test_support_vectors_are_the_rows_they_name(how: str) -> None:
    X, y, new, kernel, *_ = data("tl1", n_classes=3)
    model = krein.SVC(kernel=kernel, correction=how, policy=ALL, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
    assert model.support_vectors_.shape == (model.n_support_.sum(), 3)
    assert model.dual_coef_.shape == (2, len(model.support_))
    before = model.decision_function(new)
    X[:] = 0.0  # a model keeps copies
    np.testing.assert_array_equal(model.decision_function(new), before)


def test_a_second_fit_by_another_route_leaves_nothing_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    S, y, new, *_ = data("strings", 620)
    model = krein.SVC(kernel=EDIT, policy=with_neighbours(monkeypatch), random_state=0).fit(S, y)
    model.set_params(policy=ALL)
    costs(monkeypatch, 1e-9)
    again, fresh = model.fit(S[:300], y[:300]), krein.SVC(kernel=EDIT, policy=ALL, random_state=0)
    fresh.fit(S[:300], y[:300])
    assert again.selection_ is None
    assert list(again.support_vectors_) == list(fresh.support_vectors_)
    np.testing.assert_array_equal(again.decision_function(new), fresh.decision_function(new))


# -- invariance --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-6, 1e6])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("how", ["square", "flip", "shift", "auto"])
def test_the_scale_of_similarities_does_not_matter(
    factor: float, single: bool, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if single:
        monkeypatch.setattr(similarity_features, "DOUBLE_ROWS", 10)
    *_, y, _, _, K, R = data("tl1")
    values = np.sin(K[:, 0])
    options: dict[str, Any] = {"kernel": "precomputed", "correction": how, "policy": ALL, "random_state": 0}
    exact = 1e-5 if single or how == "shift" else 1e-8
    ridges = [krein.KernelRidge(alpha=0.3 * f, **options).fit(f * K, values) for f in (1.0, factor)]
    np.testing.assert_allclose(ridges[1].predict(factor * R), ridges[0].predict(R), atol=exact)
    machines = [krein.SVC(C=1.0 / f, tol=1e-8, **options).fit(f * K, y) for f in (1.0, factor)]
    assert machines[0].correction_ == machines[1].correction_
    assert machines[0].n_negative_ == machines[1].n_negative_
    wanted = machines[0].decision_function(R)
    atol = 1e-3 if single or how == "shift" else 1e-5
    np.testing.assert_allclose(machines[1].decision_function(factor * R), wanted, atol=atol)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_similarities_to_oneself_of_zero_do_not_matter(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    one_scale(monkeypatch, 1.0)
    X, y, new, *_ = data("tl1")
    K, R = -cdist(X, X), -cdist(new, X)
    G, between = corrected("square", K, R)
    wanted = between @ np.linalg.solve(G + 0.3 * np.eye(200), y)
    for rows in (5000, 10):
        monkeypatch.setattr(similarity_features, "DOUBLE_ROWS", rows)
        model = krein.KernelRidge(alpha=0.3 * factor, kernel="precomputed", correction="square", policy=ALL)
        model.fit(factor * K, y)
        np.testing.assert_allclose(model.predict(factor * R), wanted, atol=1e-8 if rows == 5000 else 1e-5)


def test_the_order_of_rows_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    one_scale(monkeypatch, 0.1)
    order = np.random.default_rng(5).permutation(200)
    for kind in ("strings", "tl1"):
        X, y, new, kernel, *_ = data(kind)
        mixed = [X[i] for i in order] if kind == "strings" else X[order]
        for how in ("square", "flip"):
            a, b = (krein.KernelRidge(alpha=0.3, kernel=kernel, correction=how, policy=ALL) for _ in range(2))
            found = a.fit(mixed, y[order]).predict(new)
            np.testing.assert_allclose(found, b.fit(X, y).predict(new), atol=1e-9)


def test_the_seed_decides_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    S, y, new, *_ = data("strings", 620)
    policy = with_neighbours(monkeypatch)
    a, b, c = (krein.SVC(kernel=EDIT, policy=policy, random_state=seed).fit(S, y) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.decision_function(new), b.decision_function(new))
    assert list(a._expansion.support) != list(c._expansion.support)


# -- objects that are hardly any ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [krein.SVC, krein.SVR, krein.KernelRidgeClassifier])
@pytest.mark.parametrize("kind", ["all", "landmarks", "neighbours"])
@pytest.mark.parametrize("different", [1, 2, 100])
def test_equal_objects_are_no_obstacle(
    machine: Any, kind: str, different: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, labels = words(different, min(different, 2))
    S, y = few * (-(-600 // different)), np.tile(labels, -(-600 // different))
    if different == 1:
        y = np.arange(600) % 2
    S, y = S[:600], y[:600]
    policy = {
        "all": ALL,
        "landmarks": landmarks_only(monkeypatch, 600, 80),
        "neighbours": with_neighbours(monkeypatch),
    }[kind]
    costs(monkeypatch, {"all": 1e-9, "landmarks": 1e-6, "neighbours": 1e-3}[kind])
    model = machine(kernel=EDIT, policy=policy, random_state=0).fit(S, y)
    assert isinstance(model.route_, Features)
    assert np.isfinite(model.predict(S[:20])).all()
    if different > 1:
        assert model.score(S, y) > 0.9


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("seconds", [1e-9, 100.0])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 13])
def test_a_handful_of_objects_is_no_obstacle(
    machine: Any, seconds: float, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs(monkeypatch, seconds)
    S, y = words(n)
    for correction in ("auto", "square"):
        model = machine(kernel=EDIT, correction=correction, policy=krein.Policy(exact_rows=1), random_state=0).fit(S, y)
        assert isinstance(model.route_, Features)
        assert np.isfinite(model.predict(S)).all()


@pytest.mark.parametrize("machine", [krein.SVC, krein.KernelRidgeClassifier])
@pytest.mark.parametrize("seconds", [1e-9, 1.0])
def test_a_class_of_one_object_or_two_is_no_obstacle(
    machine: Any, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs(monkeypatch, seconds)
    S, _ = words(300)
    for module, name in ((similarity_ridge, "PILOT_ROWS"), (choose_correction, "FEATURE_ROWS")):
        monkeypatch.setattr(module, name, 20)  # which most likely miss that class
    for rare in (1, 2):
        y = np.zeros(300, dtype=int)
        y[:rare] = 1
        model = machine(kernel=EDIT, policy=ALL, random_state=0).fit(S, y)
        assert set(model.predict(S)) <= {0, 1}
    y = np.arange(300) // 2  # two objects of each class
    model = machine(kernel=EDIT, policy=ALL, random_state=0).fit(S[:60], y[:60])
    assert set(model.predict(S[:60])) <= set(y[:60])


@pytest.mark.parametrize("machine", [krein.SVR, krein.KernelRidge])
@pytest.mark.parametrize("seconds", [1e-9, 1.0])
def test_targets_that_are_all_the_same_are_no_obstacle(
    machine: Any, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs(monkeypatch, seconds)
    S, _ = words(300)
    for value in (0.0, 3.0):
        model = machine(kernel=EDIT, policy=ALL, random_state=0).fit(S, np.full(300, value))
        np.testing.assert_allclose(model.predict(S), value, atol=0.7)


def test_objects_like_no_other_are_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.arange(300) % 2
    for machine, seconds in itertools.product(MACHINES, (1e-9, 1.0)):
        costs(monkeypatch, seconds)
        model = machine(kernel="precomputed", correction="square", policy=ALL, random_state=0).fit(np.eye(300), y)
        np.testing.assert_array_equal(np.isfinite(model.predict(np.eye(300))), True)
        nothing = machine(kernel="precomputed", correction="square", policy=ALL, random_state=0)
        nothing.fit(np.zeros((300, 300)), y)
        assert np.isfinite(nothing.predict(np.zeros((4, 300)))).all()
    costs(monkeypatch, 1e-9)
    with pytest.warns(krein.KreinWarning, match="singular to rounding"):
        krein.KernelRidge(alpha=0.0, kernel="precomputed", correction="square", policy=ALL).fit(np.zeros((300, 300)), y)


def test_rows_without_weight_have_no_part_in_the_choice_of_a_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    costs(monkeypatch, 1e-9)
    S, _ = words(300)
    K = EDIT(S, S)
    y = np.array([float(len(s)) for s in S])
    weights = np.r_[np.zeros(60), np.ones(240)]
    wild = y + np.r_[np.full(60, 1e4), np.zeros(240)]
    found = [
        krein.KernelRidge(kernel="precomputed", policy=ALL, random_state=0).fit(K, t, weights).predict(K)
        for t in (y, wild)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_a_model_that_was_pickled_shows_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in (1e-9, 1.0):
        costs(monkeypatch, seconds)
        S, y = words(300)
        model = pickle.loads(pickle.dumps(krein.SVC(kernel=EDIT, policy=ALL, random_state=0).fit(S, y)))
        assert f"{model.correction_}" in model._repr_html_()


def test_what_landmarks_leave_belongs_together(monkeypatch: pytest.MonkeyPatch) -> None:
    S, _, new, *_ = data("strings", 300)
    y = np.array([float(s.count("a")) for s in S])
    policy = landmarks_only(monkeypatch, 300, 60)
    judged(monkeypatch, 0.1, 0.2, 0.3)
    model = krein.KernelRidge(kernel=EDIT, policy=policy, random_state=0).fit(S, y)
    assert len(model.X_fit_) == len(model.dual_coef_) == 60
    np.testing.assert_allclose(model.predict(new), EDIT(new, model.X_fit_) @ model.dual_coef_, atol=1e-10)
    assert np.isnan(model.relative_error_)
    assert krein.KernelRidge(kernel=EDIT, policy=ALL, random_state=0).fit(S, y).relative_error_ == 0.0
