"""Blocks, rank and gamma by a validated score: what is chosen learns, what is given is kept, and it is said."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge

import krein
from krein.approximation.nystrom import features
from krein.arrays import stream
from krein.choosing import by_score as selection
from krein.choosing.by_score import Chooser, codes, propose, trim
from krein.errors import InputError
from krein.estimators.cache import clear_cache
from krein.estimators.ridge import KernelRidge, KernelRidgeClassifier

SMALL = krein.Policy(
    ridge_rows=0,
    svm_rows=0,
    one_block_ranks=(16, 64),
    block_rows=(128, 64, 32),
    block_rank=16,
    highest_block_rank=32,
    score_regions=4,
    score_rows=1000,
    held_out_rows=400,
    fewest_fitted_rows=1500,
    coupled_directions=400,
)  # everything at a tenth of its size: 2001 rows are too many for their matrix


@pytest.fixture(autouse=True)
def _empty_cache():
    clear_cache()


def chooser(targets, task, tune=False):
    return Chooser(targets, task, tune, SMALL)


def wiggly(n: int, waves: float = 20.0, seed: int = 0):
    """A function that is rough everywhere: only blocks of a few rows each follow it."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    return X, np.sin(waves * X[:, 0]) * np.cos(waves * X[:, 1]) + 0.01 * rng.standard_normal(n)


def smooth(n: int, seed: int = 0):
    """A few waves with much noise in many dimensions: a few directions hold all there is to learn."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    return X, np.tanh(X @ np.array([1.0, -0.5, 0.3, 0.2, 0.1])) + 1.0 * rng.standard_normal(n)


def test_a_rough_function_gets_blocks_on_their_own_and_a_smooth_one_a_single_block():
    X, y = wiggly(2100)
    rough = chooser(y, "regression")(X, krein.RBF(gamma=30.0), seed=0)
    assert rough.drop == 1.0
    assert rough.n_blocks > 20
    X, y = smooth(2100)
    even = chooser(y, "regression")(X, krein.RBF(gamma=0.01), seed=0)
    assert even.drop == 0.0
    assert even.n_blocks == 1


def test_the_choice_is_near_the_best_of_its_candidates_on_rows_held_out():
    X, y = wiggly(2100)
    X_new, y_new = wiggly(400, seed=1)
    kernel = krein.RBF(gamma=30.0)
    choice = chooser(y, "regression")(X, kernel, seed=0)

    def held_out(**size) -> float:
        a = krein.approximate(X, kernel, random_state=0, **size)
        F = a.factorization
        rows = a.kernel_rows(X_new)
        errors = [np.mean((y_new - rows @ F.solve(y, ridge=t)) ** 2) for t in (1e-4, 1e-3, 1e-2, 1e-1)]
        return 1.0 - min(errors) / y_new.var()

    scores = [held_out(n_blocks=t.n_blocks, rank=t.rank, drop=0.0 if t.coupled else 1.0) for t in choice.tried]
    assert max(scores) - min(scores) > 0.05  # or there was nothing to choose
    mine = held_out(n_blocks=choice.n_blocks, rank=choice.rank, drop=choice.drop)
    assert mine >= max(scores) - 0.02


def test_scores_are_those_of_rows_really_left_out():
    """With all rows scored and one block per candidate, the score is brute-force leave-one-out."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    kernel = krein.RBF(gamma=0.5)
    trials = selection._Trials(  # 60 rows are all held out, being few
        X, kernel, chooser(y, "regression"), {"n_blocks": 1, "rank": 60, "max_memory": None, "dtype": "auto"}, 0, 0
    )
    score = trials.measure(trials.candidate(1, 60)).score
    K = kernel(X)
    found = []
    for alpha in selection.ALPHAS:
        left = np.empty(60)
        for i in range(60):
            rest = np.delete(np.arange(60), i)
            G = np.block([[K[np.ix_(rest, rest)] + alpha * np.eye(59), np.ones((59, 1))], [np.ones((1, 59)), 0.0]])
            solution = np.linalg.solve(G, np.append(y[rest], 0.0))
            left[i] = y[i] - K[i, rest] @ solution[:-1] - solution[-1]
        found.append(1.0 - np.mean(left**2) / y.var())
    assert score == pytest.approx(max(found), abs=1e-6)


def test_rows_from_everywhere_predict_those_of_the_regions():
    X, y = smooth(2100)
    want = chooser(y, "regression")
    known = {"n_blocks": "auto", "rank": "auto", "max_memory": None, "dtype": "auto"}
    trials = selection._Trials(X, krein.RBF(gamma=0.01), want, known, 0, 0)
    assert len(trials.rows) < 1300
    found = trials.measure(trials.candidate(4, 16))
    X_new, y_new = smooth(3000, seed=1)
    a = krein.approximate(X, krein.RBF(gamma=0.01), n_blocks=4, rank=16, random_state=0)
    mean = y.mean()
    best = max(
        1.0
        - np.mean((y_new - mean - a.kernel_rows(X_new) @ a.factorization.solve(y - mean, ridge=t)) ** 2) / y_new.var()
        for t in (0.01, 0.1, 1.0, 10.0)
    )
    assert found.score == pytest.approx(best, abs=0.1)


def test_what_is_given_is_kept():
    X, y = wiggly(2100)
    kernel = krein.RBF(gamma=30.0)
    choose = chooser(y, "regression")
    assert choose(X, kernel, n_blocks=40, seed=0).n_blocks == 40
    assert choose(X, kernel, rank=7, seed=0).rank == 7
    assert choose(X.astype(np.float32), kernel, seed=0).dtype == "float32"
    assert choose(X, kernel, dtype="float16", seed=0).dtype == "float16"


def test_the_memory_is_kept():
    X, y = wiggly(2100)
    for room in (2e5, 1e6):
        choice = chooser(y, "regression")(X, krein.RBF(gamma=30.0), max_memory=room, seed=0)
        a = krein.approximate(X, choice.kernel, **choice.parameters, random_state=0)
        assert a.factorization.nbytes <= room  # what new objects need is not counted, as in krein.approximate
    none = chooser(y, "regression")(X, krein.RBF(gamma=30.0), max_memory=1.8e4, seed=0)  # order alone takes 16,800
    assert "no candidate" in none.reason  # what is left open is left to the matrix error
    assert none.parameters["max_memory"] == 1.8e4
    assert none.parameters["n_blocks"] == "auto"


def test_an_estimator_says_what_was_chosen_and_remembers_it(monkeypatch):
    X, y = wiggly(2100)
    model = KernelRidge(alpha="loo", kernel=krein.RBF(gamma=30.0), policy=SMALL, random_state=0).fit(X, y)
    said = str(model.selection_)
    assert "<- chosen" in said
    assert model.selection_.reason in said
    assert model.approximation_.n_blocks == model.selection_.n_blocks

    def never(*_, **__):
        raise AssertionError("chosen again")

    monkeypatch.setattr(Chooser, "__call__", never)
    again = KernelRidge(alpha="loo", alphas=[0.01, 0.1], kernel=krein.RBF(gamma=30.0), policy=SMALL, random_state=0)
    again.fit(X, y)
    assert again.selection_ is model.selection_
    with pytest.raises(AssertionError, match="chosen again"):  # other targets may need other blocks
        KernelRidge(alpha="loo", kernel=krein.RBF(gamma=30.0), policy=SMALL, random_state=0).fit(X, -(y**2))
    few = KernelRidge(kernel=krein.RBF(gamma=30.0), policy=SMALL).fit(X[:100], y[:100])
    assert few.selection_ is None


def test_candidates_are_scored_at_the_given_alpha_and_fits_share_what_was_built():
    X, y = wiggly(2100)
    krein.clear_cache()

    def fitted(alpha):
        return KernelRidge(alpha, kernel=krein.RBF(gamma=30.0), policy=SMALL, random_state=0).fit(X, y)

    low, high = fitted(1e-3), fitted(1e4)
    assert max(t.score for t in high.selection_.tried) < 0.5 < max(t.score for t in low.selection_.tried)
    near = fitted(1.001e-3)
    assert near.selection_.parameters == low.selection_.parameters
    assert near.approximation_.factorization.bases is low.approximation_.factorization.bases


def test_gamma_is_tuned():
    X, y = wiggly(300)
    plain = KernelRidge(alpha=1e-3, kernel="rbf", gamma="scale", policy=SMALL).fit(X, y)
    tuned = KernelRidge(alpha=1e-3, kernel="rbf", gamma="tune", policy=SMALL, random_state=0).fit(X, y)
    X_new, y_new = wiggly(500, seed=1)
    assert tuned.score(X_new, y_new) > plain.score(X_new, y_new) + 0.05
    assert tuned._kernel == tuned.selection_.kernel
    assert tuned.selection_.kernel.gamma != plain._kernel.gamma
    with pytest.raises(InputError, match="gamma"):
        KernelRidge(kernel="cosine", gamma="tune").fit(X, y)


def test_gamma_and_blocks_together():
    X, y = wiggly(2100)
    model = KernelRidgeClassifier(alpha=1e-2, gamma="tune", policy=SMALL, random_state=0).fit(X, y > 0)
    X_new, y_new = wiggly(500, seed=1)
    assert model.score(X_new, y_new > 0) > 0.85
    assert {t.kernel for t in model.selection_.tried} > {model.selection_.kernel}


def test_an_indefinite_kernel_is_scored_too():
    X, y = wiggly(2100)
    choice = chooser(codes(y > 0), "classification")(X, krein.TL1(rho=0.1), seed=0)
    assert 0.5 < max(t.score for t in choice.tried) <= 1.0


def test_objects_without_coordinates_are_not_tried_on_their_similarities():
    words = ["".join(row) for row in np.random.default_rng(0).choice(list("ab"), (2100, 6))]
    choose = chooser(np.array([w.count("a") for w in words], dtype=float), "regression")
    with krein.counting() as spent:
        choice = choose(words, krein.Spectrum(2), n_blocks=4, seed=0)
    assert spent.n_evaluations == 0
    assert (choice.n_blocks, choice.parameters["coupling"], choice.tried) == (4, "landmark", ())
    given = choose(words, krein.Spectrum(2), rank=20, drop=0.5, seed=0)  # which that coupling cannot do
    assert (given.rank, "coupling" in given.parameters) == (20, False)
    assert choose(np.arange(2100), krein.Precomputed(np.eye(2100)), n_blocks=4, seed=0).tried  # known already


@dataclass(frozen=True)
class Words(krein.kernels.Kernel):
    """exp(-gamma (differing letters))."""

    gamma: float = 50.0
    compares = "strings"
    traits = krein.kernels.Traits(stationary=False, psd=True, low=0.0, high=1.0, constant_diagonal=True)

    def __call__(self, A, B=None):
        a, b = (np.array([list(w) for w in X]) for X in (A, A if B is None else B))
        return np.exp(-self.gamma * (a[:, None] != b).sum(2))

    def diag(self, A):
        return np.ones(len(A))


def test_a_width_for_objects_is_tuned_on_a_sample():
    words = ["".join(row) for row in np.random.default_rng(0).choice(list("ab"), (2400, 10))]
    choose = chooser(np.array([w.count("a") for w in words], dtype=float), "regression", tune=True)
    with krein.counting() as spent:
        choice = choose(words, Words(), seed=0)
    assert spent.n_evaluations < 0.15 * 2400**2
    assert choice.kernel.gamma < 10.0  # at 50 all are different
    assert choice.parameters["coupling"] == "landmark"


def test_codes_are_one_column_for_two_classes_and_one_each_for_more():
    assert codes(["b", "a", "b"]).tolist() == [[1.0], [-1.0], [1.0]]
    assert codes([2, 0, 1]).tolist() == [[-1, -1, 1], [1, -1, -1], [-1, 1, -1]]


def test_a_task_of_another_name_is_an_error():
    with pytest.raises(InputError, match="regression"):
        Chooser(np.zeros(3), "ranking")


def test_a_kernel_of_few_features_is_taken_whole():
    """A linear kernel beyond 2000 rows is still linear: one block of rank d is exact, and nothing is tried."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 30)) + 2.0
    y = X @ rng.normal(size=30) + 0.1 * rng.normal(size=2500)
    model = KernelRidge(alpha=1e-3, policy=SMALL, random_state=0).fit(X[:2200], y[:2200])
    assert model.approximation_.factorization.rank == 30
    assert model.relative_error_ < 1e-10
    w = np.linalg.solve(X[:2200].T @ X[:2200] + 1e-3 * np.eye(30), X[:2200].T @ y[:2200])
    np.testing.assert_allclose(model.predict(X[2200:]), X[2200:] @ w, rtol=1e-6)


def test_all_ranks_of_one_block_are_scored_by_ridge_on_nystroem_features():
    """One Gram matrix serves every rank: each is ridge on scikit-learn's Nystroem features, for the same landmarks."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 3))
    y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.standard_normal(300)
    kernel = krein.RBF(gamma=0.5)
    known = {"n_blocks": "auto", "rank": "auto", "max_memory": None, "dtype": "auto"}
    policy = replace(SMALL, held_out_rows=100)
    trials = selection._Trials(X, kernel, Chooser(y, "regression", False, policy), known, 0, 0)
    found = trials.one_block([5, 20, 40])
    assert [t.rank for t in found] == [5, 20, 40]
    rows = np.setdiff1d(np.arange(300), trials.held)
    landmarks = stream(0, 34).permutation(rows)[:40]
    for t in found:
        Z = X[landmarks[: t.rank]]
        map_ = Nystroem(gamma=0.5, n_components=t.rank, random_state=0).fit(Z)  # all rows of Z are its components
        F, H = map_.transform(X[rows]), map_.transform(X[trials.held])
        unit = np.square(trials_features(kernel, X, landmarks, trials.held)).sum() / 100
        scores = [
            1.0 - np.mean((Ridge(alpha).fit(F, y[rows]).predict(H) - y[trials.held]) ** 2) / y.var()
            for alpha in selection.ALPHAS * unit * len(rows) / 300
        ]
        assert t.score == pytest.approx(max(scores), abs=1e-6)


def trials_features(kernel, X, landmarks, rows):
    return features(kernel, X, landmarks, [rows])[0]


def test_a_clearly_lower_score_is_not_taken_to_save_memory():
    X, y = wiggly(2100)
    known = {"n_blocks": "auto", "rank": "auto", "max_memory": None, "dtype": "auto"}
    want = Chooser(y, "regression", False, replace(SMALL, free_memory=0.0))
    trials = selection._Trials(X, krein.RBF(gamma=30.0), want, known, 0, 0)
    best = propose(trials)
    chosen = trim(trials, best)
    more = trials.losses[chosen.key] - trials.losses[best.key]
    assert more.mean() <= more.std() / np.sqrt(len(more))
    assert chosen.nbytes <= best.nbytes
