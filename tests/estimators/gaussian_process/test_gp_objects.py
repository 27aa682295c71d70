"""A Gaussian process on objects that have a similarity and nothing else: what it learns, and how often they are met."""

import numpy as np
import pytest
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

import krein
from krein import GaussianProcessRegressor
from krein.estimators.route import Exact, Given
from krein.policy import Policy


class Counted:
    """Common n-grams of two lists of strings, every pair counted where it is compared."""

    def __init__(self):
        self.count = 0

    def __call__(self, A, B):
        self.count += len(A) * len(B)
        return krein.Spectrum(2)(list(A), list(B)) / 10.0


def problem(n, n_new=20, seed=0):
    data = krein.datasets.families(n + n_new, n_families=8, n_classes=3, length=24, random_state=seed)
    rng = np.random.default_rng(seed)
    y = np.asarray(data.y, dtype=float) + 0.1 * rng.normal(size=n + n_new)
    return list(data.X[:n]), y[:n] - y[:n].mean(), list(data.X[n:])


def dense_evidence(K, y, logs):
    """log p(y) of c K + t I, by its textbook formula."""
    H = np.exp(logs[0]) * K + np.exp(logs[1]) * np.eye(len(K))
    L = np.linalg.cholesky(H)
    half = solve_triangular(L, y, lower=True)
    return -0.5 * (half @ half + len(y) * np.log(2 * np.pi)) - np.log(np.diag(L)).sum()


def test_few_objects_are_compared_once_and_learned_from_as_from_a_dense_matrix():
    X, y, new = problem(150)
    similar = Counted()
    with krein.counting() as spent:
        model = GaussianProcessRegressor(similar, random_state=0).fit(X, y)
    assert spent.n_evaluations == similar.count  # none is counted twice
    looked_at = 64**2 + 2 * 8 * 56  # is it a similarity?
    own = 8 * 152  # k(x, x) for the amplitude to start from, in blocks of 8
    assert similar.count <= 150**2 + looked_at + own
    K, rows = Counted()(X, X), Counted()(new, X)
    best = max(
        (
            minimize(lambda v: -dense_evidence(K, y, np.clip(v, -30, 30)), start, method="Nelder-Mead")
            for start in ([0, 0], [-3, -4])
        ),
        key=lambda found: -found.fun,
    )
    assert model.log_marginal_likelihood_value_ == pytest.approx(-best.fun, abs=1e-3)
    c, t = np.exp(model.kernel_.theta)
    before = similar.count
    mean, std = model.predict(new, return_std=True)
    assert similar.count - before <= 20 * (150 + 8)  # each with all, and with itself
    solved = np.linalg.solve(c * K + t * np.eye(150), np.column_stack([y, c * rows.T]))
    np.testing.assert_allclose(mean, c * rows @ solved[:, 0], atol=1e-6)
    variances = c * np.array([Counted()([x], [x])[0, 0] for x in new]) + t
    variances -= np.einsum("ij,ji->i", c * rows, solved[:, 1:])
    np.testing.assert_allclose(std, np.sqrt(variances), rtol=1e-5)
    assert model._approximation is None  # the matrix happens to be psd: it is used as it is
    assert model.X_train_ == X


def test_an_indefinite_similarity_of_few_objects_is_compared_once_and_kept_as_one_of_the_objects():
    X, y, new = problem(120)
    similar = Counted()
    centred = lambda A, B: similar(A, B) - 0.5  # noqa: E731
    with pytest.warns(krein.errors.KreinWarning, match="indefinite"):
        model = GaussianProcessRegressor(centred, alpha=0.05, optimizer=None, correction="clip").fit(X, y)
    assert similar.count <= 120**2 + 64**2 + 2 * 8 * 56 + 8 * 120
    a = model.approximation_
    assert a.n_evaluations <= similar.count
    assert a.objects == X
    np.testing.assert_allclose(a.kernel_rows(new, exact=True), Counted()(new, X) - 0.5)


def test_objects_of_a_psd_similarity_are_used_exactly_up_to_the_limit_of_matrices():
    X, y, new = problem(400)
    kernel = krein.Normalized(krein.Spectrum(2))
    policy = Policy(exact_rows=200, matrix_memory=4 * 400**2, process_learning_rows=200)
    with krein.counting() as spent:
        model = GaussianProcessRegressor(kernel, policy=policy, random_state=0).fit(X, y)
    assert isinstance(model.route_, Exact)
    assert spent.n_evaluations <= 1.1 * 400**2
    K, rows = model.kernel_(X), model.kernel_(new, X)
    np.testing.assert_allclose(model.predict(new), rows @ np.linalg.solve(K + 1e-10 * np.eye(400), y), atol=1e-7)
    less = Policy(exact_rows=200, matrix_memory=4 * 399**2)
    fewer = GaussianProcessRegressor(kernel, policy=less, random_state=0).fit(X, y)
    assert isinstance(fewer.route_, Given)


@pytest.mark.parametrize("optimizer", ["fmin_l_bfgs_b", None])
def test_ready_similarities_and_matrices_are_read_once_too(optimizer):
    X, y, new = problem(130)
    S = krein.Normalized(krein.Spectrum(2))(X + new)
    cases = [
        (krein.Normalized(krein.Spectrum(2)), X, new, 0),
        (krein.Precomputed(S), np.arange(130), np.arange(130, 150), 0),
        (lambda A, B: np.exp(-np.abs(A[:, None, 0] - B[None, :, 0])), np.linspace(0, 3, 130)[:, None], None, 64 * 81),
    ]
    found = []
    for kernel, objects, others, looked_at in cases:
        with krein.counting() as spent:
            model = GaussianProcessRegressor(kernel, alpha=0.05, optimizer=optimizer, random_state=0).fit(objects, y)
        assert spent.n_evaluations <= 1.1 * 130**2 + looked_at
        if others is not None:
            found.append(np.concatenate(model.predict(others, return_std=True)))
    np.testing.assert_allclose(found[0], found[1], atol=1e-7)


def test_many_objects_are_met_by_landmarks_alone():
    n = 2040
    X, y, new = problem(n)
    similar = Counted()
    with krein.counting() as spent:
        model = GaussianProcessRegressor(
            similar, random_state=0, n_blocks=6, rank=20, coupling="landmark", correction="clip"
        ).fit(X, y)
    assert spent.n_evaluations == similar.count
    each = 128 + 97 + 2 * 8 + 4 + 2  # landmarks, its block, itself; in both orders, and to be known again
    assert similar.count <= n * each + 64**2 + 2 * 8 * 56 + 12**2 + 8000  # and where to start from
    assert similar.count < 0.13 * n**2
    # amplitude and noise are those of most evidence: of the factorization itself, taken as a dense matrix
    K = model.approximation_.factorization.to_dense() / model.approximation_.kernel.factor
    own = Counted().__call__
    K[np.diag_indices(n)] += np.mean([own([x], [x])[0, 0] for x in X] - np.diag(K))
    logs = model.kernel_.theta
    assert model.log_marginal_likelihood_value_ == pytest.approx(dense_evidence(K, y, logs), rel=1e-6)
    for step in ([0.3, 0.0], [-0.3, 0.0], [0.0, 0.3], [0.0, -0.3]):
        assert dense_evidence(K, y, logs + step) < model.log_marginal_likelihood_value_ + 1e-3
    assert model.predict(new).std() > 0.3  # it says something


def test_an_optimizer_of_the_users_is_asked_whatever_n_is():
    X, y, _ = problem(2010)
    asked = []

    def optimizer(objective, start, bounds):
        asked.append(len(start))
        return start, objective(start, False)

    GaussianProcessRegressor(
        krein.Spectrum(2), optimizer=optimizer, n_blocks=4, rank=4, coupling="landmark", correction="clip"
    ).fit(X, y)
    assert asked
