"""KernelRidge against scikit-learn's, and its choice of alpha against cross-validation by hand."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import make_regression
from sklearn.gaussian_process.kernels import RBF as Pairwise
from sklearn.kernel_ridge import KernelRidge as Reference
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.metrics.pairwise import chi2_kernel, pairwise_kernels, rbf_kernel
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import krein
from krein.errors import InputError, KreinWarning
from krein.estimators import ridge
from krein.estimators.ridge import KernelRidge
from krein.solvers.leave_one_out import Factored

X, y = make_regression(n_samples=100, n_features=10, random_state=0)
Y = np.column_stack([y, np.abs(y)])
NEW = X[:30] + 0.1


def indefinite(A, B):
    """Negative where rows are far apart: a plain indefinite kernel."""
    return np.tanh(0.3 * (A @ B.T) - 1.0)


# -- scikit-learn's results --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, [0.1, 3.0]])
def test_several_targets_are_scored_as_by_scikit_learn(alpha):
    ours, theirs = (c(np.array(alpha), kernel="rbf", gamma=0.05).fit(X, Y) for c in (KernelRidge, Reference))
    np.testing.assert_allclose(ours.predict(NEW), theirs.predict(NEW), rtol=1e-8)
    np.testing.assert_allclose(ours.score(NEW, Y[:30]), theirs.score(NEW, Y[:30]), rtol=1e-8)


@pytest.mark.parametrize("weights", [None, 0.3, "array"])
@pytest.mark.parametrize("targets", ["one", "two"])
@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "laplacian", "cosine", "sigmoid"])
def test_predictions_are_those_of_scikit_learn(kernel, targets, weights):
    w = np.random.default_rng(0).uniform(0.1, 3.0, len(X)) if weights == "array" else weights
    t = y if targets == "one" else Y
    options = {"kernel": kernel, "alpha": 0.5, "gamma": 0.05, "degree": 2, "coef0": 0.5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of an indefinite matrix scikit-learn says that it is singular
        expected = Reference(**options).fit(X, t, sample_weight=w)
    model = KernelRidge(**options, correction="none").fit(X, t, sample_weight=w)
    np.testing.assert_allclose(model.predict(NEW), expected.predict(NEW), rtol=1e-6, atol=1e-6 * np.abs(t).max())
    np.testing.assert_allclose(model.dual_coef_, expected.dual_coef_, rtol=1e-5, atol=1e-6 * np.abs(t).max())
    assert model.predict(NEW).shape == expected.predict(NEW).shape
    assert model.n_features_in_ == 10
    np.testing.assert_array_equal(model.X_fit_, X)


def test_defaults_are_those_of_scikit_learn():
    theirs = Reference().get_params()
    ours = KernelRidge().get_params()
    assert {name: ours[name] for name in theirs} == theirs
    np.testing.assert_allclose(KernelRidge(2.0).fit(X, y).predict(X), Reference(2.0).fit(X, y).predict(X))


@pytest.mark.parametrize("function", [rbf_kernel, Pairwise(2.0), lambda a, b: float(np.minimum(a, b).sum())])
def test_callables_are_those_of_scikit_learn(function):
    positive = np.abs(X)
    pairs = not (function is rbf_kernel or isinstance(function, Pairwise))
    K = np.array([[function(a, b) for b in positive] for a in positive]) if pairs else function(positive, positive)
    expected = Reference(kernel="precomputed").fit(K, y).predict(K)
    model = KernelRidge(kernel=function, correction="none").fit(positive, y)
    np.testing.assert_allclose(model.predict(positive), expected, rtol=1e-6, atol=1e-4)


def test_parameters_reach_a_callable():
    positive = np.abs(X)
    model = KernelRidge(kernel=chi2_kernel, kernel_params={"gamma": 0.3})
    K = chi2_kernel(positive, gamma=0.3)
    expected = Reference(kernel="precomputed").fit(K, y).predict(K)
    np.testing.assert_allclose(model.fit(positive, y).predict(positive), expected, atol=1e-4)


def test_one_alpha_per_target():
    expected = Reference(alpha=[0.1, 7.0], kernel="rbf").fit(X, Y).predict(NEW)
    model = KernelRidge(alpha=[0.1, 7.0], kernel="rbf").fit(X, Y)
    np.testing.assert_allclose(model.predict(NEW), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("container", [sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix])
def test_sparse_rows(container):
    expected = Reference(kernel="rbf").fit(X, y).predict(NEW)
    found = KernelRidge(kernel="rbf").fit(container(X), y).predict(container(NEW))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_single_precision():
    expected = Reference(kernel="rbf").fit(X, y).predict(NEW)
    found = KernelRidge(kernel="rbf").fit(X.astype(np.float32), y.astype(np.float32)).predict(NEW.astype(np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(y).max())


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "cosine"])
def test_precomputed_is_the_kernel_itself_and_stays_as_it_is(kernel):
    K = pairwise_kernels(X, X, metric=kernel)
    held = K.copy()
    w = np.random.default_rng(1).uniform(0.0, 1.0, len(X))
    w[:3] = 0.0
    model = KernelRidge(kernel="precomputed").fit(K, y, sample_weight=w)
    expected = KernelRidge(kernel=kernel).fit(X, y, sample_weight=w).predict(NEW)
    np.testing.assert_allclose(model.predict(pairwise_kernels(NEW, X, metric=kernel)), expected, atol=1e-6)
    np.testing.assert_array_equal(K, held)
    assert model.X_fit_.shape == K.shape


@pytest.mark.parametrize("weighted", [False, True])
def test_no_alpha_on_a_singular_matrix_is_least_squares_and_says_so(weighted):
    w = np.random.default_rng(2).uniform(0.5, 2.0, len(X)) if weighted else None
    expected = Ridge(alpha=0, fit_intercept=False).fit(X, y, sample_weight=w).predict(NEW)
    with pytest.warns(KreinWarning, match="least squares"):
        model = KernelRidge(alpha=0).fit(X, y, sample_weight=w)
    np.testing.assert_allclose(model.predict(NEW), expected, atol=1e-6)


def extended_solve(A, b):
    """A⁻¹ b in 80-bit arithmetic, by elimination with pivots."""
    A, b = A.astype(np.longdouble), b.astype(np.longdouble)
    for k in range(len(A)):
        p = k + int(np.argmax(np.abs(A[k:, k])))
        A[[k, p]], b[[k, p]] = A[[p, k]], b[[p, k]]
        share = A[k + 1 :, k] / A[k, k]
        A[k + 1 :, k:] -= share[:, None] * A[k, k:]
        b[k + 1 :] -= share * b[k]
    for k in reversed(range(len(A))):
        b[k] = (b[k] - A[k, k + 1 :] @ b[k + 1 :]) / A[k, k]
    return b


@pytest.mark.parametrize("orders", [6, 8])
@pytest.mark.parametrize("options", [{"kernel": "rbf"}, {"kernel": "tl1", "correction": "flip"}, {"n_blocks": 1}])
@pytest.mark.parametrize("alpha", [1.0, "loo"])
def test_weights_over_many_orders_of_magnitude_cost_no_digits(alpha, options, orders):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((150, 3))
    t, w = 3.0 * np.sin(rows[:, 0]), 10.0 ** rng.uniform(-orders, orders, 150)
    options = {"kernel": "rbf", "rank": 40} | options if "n_blocks" in options else options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)  # of the indefinite kernel
        model = KernelRidge(alpha=alpha, **options).fit(rows, t, sample_weight=w)
    a = krein.approximate(rows, model._kernel, n_blocks=1, rank=150)
    if "n_blocks" in options:
        a = model.approximation_
    elif model.n_negative_:
        a = a.corrected("flip")
    K = a.factorization.to_dense() - a.factorization.shift * np.eye(150)
    root = np.sqrt(w.astype(np.longdouble))
    dual = root * extended_solve(root[:, None] * K * root + model.alpha_ * np.eye(150), root * t)
    expected = np.asarray(K @ dual, dtype=float)
    np.testing.assert_allclose(model.predict(rows), expected, rtol=0.0, atol=1e-6 * np.abs(expected).max())


def test_rows_without_weight_are_left_out():
    w = np.ones(len(X))
    w[::4] = 0.0
    model = KernelRidge(kernel="rbf", gamma="scale").fit(X, y, sample_weight=w)
    plain = KernelRidge(kernel="rbf", gamma="scale").fit(X[w > 0], y[w > 0])
    np.testing.assert_allclose(model.predict(NEW), plain.predict(NEW), rtol=1e-9)
    assert len(model.X_fit_) == len(model.dual_coef_) == 75


def test_strings_are_compared_by_a_kernel_of_the_users():
    def common(A, B):
        return np.array([[float(len(set(a) & set(b))) for b in B] for a in A])

    words = ["".join(w) for w in np.random.default_rng(3).choice(list("abcdef"), size=(40, 4))]
    target = np.array([float("a" in w) for w in words])
    model = KernelRidge(0.1, kernel=common).fit(words, target)
    K = common(words, words)
    np.testing.assert_allclose(model.predict(words), Reference(0.1, kernel="precomputed").fit(K, target).predict(K))
    with pytest.raises(ValueError, match="NaN"):
        KernelRidge(0.1, kernel=common).fit(words, np.where(target > 0, np.nan, 1.0))


# -- many rows ---------------------------------------------------------------------------------------------------------


def many(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-3.0, 3.0, (n, 2))
    return rows, np.column_stack([np.sin(rows[:, 0]) * rows[:, 1], np.cos(rows.sum(1))]) + 0.1 * rng.normal(size=(n, 2))


@pytest.mark.parametrize("weighted", [False, True])
def test_many_rows_are_dense_ridge_on_the_factored_matrix(weighted):
    rows, targets = many()
    w = np.random.default_rng(4).uniform(0.1, 2.0, len(rows)) if weighted else None
    model = KernelRidge(0.2, kernel="rbf", gamma=0.5, n_blocks=6, rank=20, random_state=0)
    model.fit(rows, targets, sample_weight=w)
    K = model.approximation_.factorization.to_dense()
    system = K + 0.2 * np.diag(1.0 / (np.ones(len(rows)) if w is None else w))
    dual = np.linalg.solve(system, targets)
    np.testing.assert_allclose(model.dual_coef_, dual, atol=1e-7 * np.abs(dual).max())
    expected = model.approximation_.kernel_rows(rows[:50]) @ dual
    np.testing.assert_allclose(model.predict(rows[:50]), expected, atol=1e-7)


def test_alpha_is_chosen_from_a_sample_of_many_rows(monkeypatch):
    rows, targets = many()
    options = {"alpha": "loo", "kernel": "rbf", "gamma": 0.5, "n_blocks": 6, "rank": 20, "random_state": 0}
    whole = KernelRidge(**options).fit(rows, targets)
    monkeypatch.setattr(ridge, "LOO_ROWS", 1000)
    some = KernelRidge(**options).fit(rows, targets)
    np.testing.assert_allclose(some.loo_scores_, whole.loo_scores_, rtol=0.15)
    assert np.abs(some.loo_scores_ - whole.loo_scores_).max() > 0.0
    again = KernelRidge(**options).fit(rows, targets)
    np.testing.assert_array_equal(some.loo_scores_, again.loo_scores_)


def test_a_core_without_eigenvectors_is_scored_on_a_few_rows(monkeypatch):
    rows, targets = many()
    options = {"alpha": "loo", "kernel": "rbf", "gamma": 0.5, "n_blocks": 6, "rank": 20, "random_state": 0}
    options["alphas"] = [1e-3, 0.1, 10.0]
    whole = KernelRidge(**options).fit(rows, targets)
    monkeypatch.setattr(ridge, "decompose", Factored)
    few = KernelRidge(**options).fit(rows, targets)
    np.testing.assert_allclose(few.loo_scores_, whole.loo_scores_, rtol=0.4)
    assert few.alpha_ == whole.alpha_
    np.testing.assert_allclose(few.predict(rows[:50]), whole.predict(rows[:50]), atol=1e-6)


# -- alpha by leave-one-out --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["linear", "rbf", "laplacian"])
def test_the_scores_are_those_of_scikit_learns_leave_one_out(kernel):
    noisy = Y + 20.0 * np.random.default_rng(5).standard_normal(Y.shape)
    alphas = [1e-2, 1.0, 30.0]
    model = KernelRidge("loo", kernel=kernel, gamma=0.1, alphas=alphas).fit(X, noisy)
    for alpha, scores in zip(model.alphas_, model.loo_scores_, strict=True):
        held = cross_val_predict(Reference(alpha, kernel=kernel, gamma=0.1), X, noisy, cv=LeaveOneOut())
        np.testing.assert_allclose(scores, -((noisy - held) ** 2).mean(0), rtol=1e-6)
    assert model.alpha_ == alphas[int(model.loo_scores_.mean(1).argmax())]
    expected = Reference(model.alpha_, kernel=kernel, gamma=0.1).fit(X, noisy).predict(NEW)
    np.testing.assert_allclose(model.predict(NEW), expected, rtol=1e-6, atol=1e-6)


def test_the_choice_is_that_of_ridge_cv():
    noisy = y + 50.0 * np.random.default_rng(6).standard_normal(len(y))
    alphas = np.logspace(-3, 3, 13)
    expected = RidgeCV(alphas, fit_intercept=False).fit(X, noisy)
    model = KernelRidge("loo", alphas=alphas).fit(X, noisy)
    assert model.alpha_ == pytest.approx(expected.alpha_)
    assert model.loo_scores_.max() == pytest.approx(expected.best_score_)
    assert model.loo_scores_.shape == model.alphas_.shape == (13,)


def test_the_grid_follows_the_scale_of_the_kernel():
    small = KernelRidge("loo", kernel=krein.RBF(gamma=0.1)).fit(X, y)
    large = KernelRidge("loo", kernel=krein.RBF(gamma=0.1) * 1e6).fit(X, y)
    np.testing.assert_allclose(large.alphas_, small.alphas_ * 1e6)
    np.testing.assert_allclose(large.loo_scores_, small.loo_scores_, rtol=1e-4)


# -- indefinite kernels ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, "loo"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_correction_left_open_is_named_and_no_shift(alpha, weighted):
    weights = np.random.default_rng(7).uniform(0.1, 2.0, len(X)) if weighted else None
    with pytest.warns(KreinWarning, match="indefinite"):
        model = KernelRidge(alpha, kernel=indefinite).fit(X, y, sample_weight=weights)
    assert model.correction_ in ("clip", "flip", "square")
    assert model.n_negative_ == (np.linalg.eigvalsh(indefinite(X, X)) < -1e-9).sum()
    with pytest.warns(KreinWarning, match=model.correction_):
        same = KernelRidge(alpha, kernel=indefinite, correction=model.correction_).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(model.predict(NEW), same.predict(NEW))


@pytest.mark.parametrize("weights", [None, 3.0, "spread"])
def test_each_correction_is_judged_at_the_alpha_it_would_get(monkeypatch, weights):
    given = np.random.default_rng(7).uniform(0.1, 2.0, len(X)) if weights == "spread" else weights
    w = None if given is None else np.broadcast_to(given, len(X))
    seen = []
    monkeypatch.setattr(ridge, "judge_for", lambda *_, strength, **__: seen.append(strength) or (lambda a: "flip"))
    with pytest.warns(KreinWarning, match="flip"):
        KernelRidge("loo", kernel=indefinite).fit(X, y, sample_weight=w)
    (strengths,) = seen
    assert set(strengths) == {"flip", "clip", "square"}
    for how, strength in strengths.items():
        with pytest.warns(KreinWarning, match=how):
            alone = KernelRidge("loo", kernel=indefinite, correction=how).fit(X, y, sample_weight=w)
        assert strength * (1.0 if w is None else w.mean()) == pytest.approx(alone.alpha_)
    assert len(set(strengths.values())) > 1


def test_the_correction_left_open_learns_where_clipping_loses_what_is_to_be_learnt():
    rng = np.random.default_rng(10)
    rows = rng.standard_normal((400, 8))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    targets = rows[:, 0] * 4.0 + 0.1 * rng.standard_normal(400)
    kernel = krein.SpherePolynomial(degree=2, a=1.2)
    scores = {}
    for how in ("auto", "clip", "flip"):
        with pytest.warns(KreinWarning, match="indefinite"):
            model = KernelRidge("loo", kernel=kernel, correction=how).fit(rows[:300], targets[:300])
        scores[how] = model.score(rows[300:], targets[300:])
    assert scores["clip"] < 0.5 < 0.9 < scores["auto"]
    assert scores["auto"] >= scores["flip"] - 0.05


def test_a_shift_is_more_alpha():
    w = np.random.default_rng(8).uniform(0.1, 2.0, len(X))
    with pytest.warns(KreinWarning, match="shift"):
        shifted = KernelRidge(0.5, kernel=indefinite, correction="shift").fit(X, y, sample_weight=w)
    with pytest.warns(KreinWarning, match="built now"):
        s = shifted.approximation_.factorization.shift
    plain = KernelRidge(0.5 + s, kernel=indefinite, correction="none").fit(X, y, sample_weight=w)
    assert s > 0.0
    np.testing.assert_allclose(shifted.predict(NEW), plain.predict(NEW), rtol=1e-6, atol=1e-6)


def test_an_indefinite_matrix_as_it_is_needs_an_alpha_that_meets_no_eigenvalue():
    K = indefinite(X, X)
    w = np.random.default_rng(9).uniform(0.5, 2.0, len(X))
    model = KernelRidge(0.3, kernel="precomputed", correction="none").fit(K, y)
    np.testing.assert_allclose(model.dual_coef_, np.linalg.solve(K + 0.3 * np.eye(len(K)), y), rtol=1e-6)
    model = KernelRidge(0.3, kernel="precomputed", correction="none").fit(K, y, sample_weight=w)
    np.testing.assert_allclose(model.dual_coef_, np.linalg.solve(K + 0.3 * np.diag(1.0 / w), y), rtol=1e-6)
    hit = -np.linalg.eigvalsh(K)[0]
    with pytest.raises(InputError, match="another alpha"):
        KernelRidge(hit, kernel="precomputed", correction="none").fit(K, y)


# -- what it is part of ------------------------------------------------------------------------------------------------


def test_a_grid_of_alphas_shares_approximations_and_clones_carry_all_parameters():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", random_state=0)),
        {"kernelridge__alpha": [0.01, 1.0, "loo"]},
        cv=3,
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    model = KernelRidge([1.0, 2.0], alphas=[1.0], rank=7, gamma=0.3)
    assert clone(model).get_params() == model.get_params()


@pytest.mark.parametrize("alpha", ["best", -1.0, np.nan, [1.0, 2.0], None, [[1.0]]])
def test_an_alpha_that_is_none_is_refused(alpha):
    with pytest.raises(InputError, match='"loo"'):
        KernelRidge(alpha).fit(X, y)


@pytest.mark.parametrize("alphas", [[], [0.0, 1.0], [-1.0], [np.inf]])
def test_alphas_to_choose_from_are_above_zero(alphas):
    with pytest.raises(InputError, match="above 0"):
        KernelRidge("loo", alphas=alphas).fit(X, y)
