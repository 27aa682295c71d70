"""KernelRidgeClassifier against RidgeClassifier, against leave-one-out by hand, and on many rows."""

import tracemalloc

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_classification
from sklearn.kernel_ridge import KernelRidge as Reference
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.preprocessing import StandardScaler

from krein.errors import InputError, KreinWarning
from krein.estimators import ridge
from krein.estimators.ridge import KernelRidge, KernelRidgeClassifier

X, y = make_classification(120, 6, n_informative=4, n_classes=3, n_clusters_per_class=1, flip_y=0.1, random_state=0)
NAMES = np.array(["ash", "beech", "cedar"])[y]


@pytest.mark.parametrize("class_weight", [None, "balanced", {"ash": 3.0, "beech": 0.5}])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_linear_is_scikit_learns_ridge_classifier(n_classes, weighted, class_weight):
    rows, labels = X[y < n_classes], NAMES[y < n_classes]
    w = np.random.default_rng(0).uniform(0.1, 3.0, len(rows)) if weighted else None
    expected = RidgeClassifier(0.7, fit_intercept=False, class_weight=class_weight).fit(rows, labels, sample_weight=w)
    model = KernelRidgeClassifier(0.7, kernel="linear", class_weight=class_weight).fit(rows, labels, sample_weight=w)
    np.testing.assert_allclose(model.decision_function(rows), expected.decision_function(rows), rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(model.predict(rows), expected.predict(rows))
    np.testing.assert_array_equal(model.classes_, expected.classes_)


def test_each_class_is_a_regression_on_one_factorization(monkeypatch):
    for name, shape in (("solve_factored", {"n_blocks": 2, "rank": 8}), ("solve_exactly", {})):
        calls, solve = [], getattr(ridge, name)
        monkeypatch.setattr(
            ridge, name, lambda *args, to=calls, by=solve, **named: to.append(args) or by(*args, **named)
        )
        KernelRidgeClassifier(0.1, **shape).fit(X, y)
        assert len(calls) == 1
    monkeypatch.undo()
    model = KernelRidgeClassifier(0.1, gamma=0.2).fit(X, y)
    alone = [Reference(0.1, kernel="rbf", gamma=0.2).fit(X, 2.0 * (y == c) - 1.0).predict(X) for c in range(3)]
    np.testing.assert_allclose(model.decision_function(X), np.column_stack(alone), atol=1e-8)
    assert model.dual_coef_.shape == (120, 3)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_scores_are_accuracies_on_rows_left_out(n_classes):
    rows, labels = X[y < n_classes], y[y < n_classes]
    model = KernelRidgeClassifier("loo", gamma=0.3, alphas=[0.01, 0.3, 10.0]).fit(rows, labels)
    for alpha, score in zip(model.alphas_, model.loo_scores_, strict=True):
        one = KernelRidgeClassifier(alpha, gamma=0.3)
        assert score == pytest.approx((cross_val_predict(one, rows, labels, cv=LeaveOneOut()) == labels).mean())
    n = len(labels)
    top = model.loo_scores_.max()
    assert model.loo_scores_[model.alphas_ == model.alpha_] >= top - np.sqrt(top * (1.0 - top) / n) - 1e-5


def test_a_row_like_no_other_is_not_known_by_its_rounding():
    """Leaving it out leaves a value of nothing but rounding, and the sign of that is the row's own label."""
    rng = np.random.default_rng(0)
    apart = 1e3 * np.arange(1, 51)[:, None] * np.ones(2)
    rows = np.concatenate([rng.standard_normal((40, 2)), apart])
    labels = rng.permutation(np.arange(90) % 3)
    K, targets = rbf_kernel(rows, gamma=0.3), 2.0 * (labels[:, None] == np.arange(3)) - 1.0
    model = KernelRidgeClassifier("loo", gamma=0.3, alphas=np.logspace(-5, 1, 7)).fit(rows, labels)
    for alpha, score in zip(model.alphas_, model.loo_scores_, strict=True):
        left = [np.delete(np.arange(90), i) for i in range(90)]
        systems = [K[np.ix_(some, some)] + alpha * np.eye(89) for some in left]
        values = [K[i, some] @ np.linalg.solve(systems[i], targets[some]) for i, some in enumerate(left)]
        assert score == pytest.approx((np.argmax(values, axis=1) == labels).mean())


def test_among_alphas_as_accurate_the_squared_error_decides():
    alphas = np.logspace(-4, 2, 13)
    model = KernelRidgeClassifier(alphas=alphas, gamma=0.3).fit(X, y)
    targets = 2.0 * (y[:, None] == np.arange(3)) - 1.0
    squares = -KernelRidge("loo", kernel="rbf", gamma=0.3, alphas=alphas).fit(X, targets).loo_scores_.mean(1)
    top = model.loo_scores_.max()
    near = model.loo_scores_ >= top - np.sqrt(top * (1.0 - top) / len(y))
    assert near.sum() > 1
    assert model.alpha_ == alphas[np.where(near, squares, np.inf).argmin()]


def test_a_narrow_kernel_and_an_unbalanced_problem_learn_without_an_intercept():
    rows, labels = load_digits(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    model = KernelRidgeClassifier(gamma=1.0).fit(rows[:600], labels[:600])
    assert model.score(rows[600:], labels[600:]) > 0.9  # 0.13 with an unpenalised constant


def test_many_rows_in_many_blocks_and_a_core_that_falls_apart():
    rows, labels = make_classification(
        6000, 6, n_informative=6, n_redundant=0, n_classes=3, class_sep=1.5, random_state=1
    )
    options = {"gamma": 0.5, "n_blocks": 60, "rank": 12, "random_state": 0}
    model = KernelRidgeClassifier(**options).fit(rows[:5000], labels[:5000])
    assert model.score(rows[5000:], labels[5000:]) > 0.8
    assert model.loo_scores_.max() == pytest.approx(model.score(rows[5000:], labels[5000:]), abs=0.05)
    fixed = KernelRidgeClassifier(model.alpha_, **options).fit(rows[:5000], labels[:5000])
    np.testing.assert_allclose(fixed.decision_function(rows[5000:]), model.decision_function(rows[5000:]), atol=1e-6)


def test_an_indefinite_kernel_is_corrected_and_learns():
    def odd(A, B):
        return np.tanh(A @ B.T - 1.0)

    with pytest.warns(KreinWarning, match="indefinite"):
        model = KernelRidgeClassifier(kernel=odd).fit(X[:90], y[:90])
    scores = {}
    for how in ("clip", "flip", "square"):
        with pytest.warns(KreinWarning, match=how):
            scores[how] = KernelRidgeClassifier(kernel=odd, correction=how).fit(X[:90], y[:90]).score(X[90:], y[90:])
    assert model.score(X[90:], y[90:]) == scores[model.correction_]
    assert scores[model.correction_] >= 0.6


@pytest.mark.filterwarnings("ignore:.*tells nothing about them")
def test_a_kernel_that_knows_no_row_but_itself_still_fits():
    model = KernelRidgeClassifier(gamma=1e6).fit(X, y)
    assert np.isfinite(model.loo_scores_).all()
    assert model.score(X, y) == 1.0


def test_one_class_is_refused_and_alpha_is_one_for_all():
    with pytest.raises(InputError, match="2 classes"):
        KernelRidgeClassifier().fit(X, np.zeros(len(X)))
    with pytest.raises(InputError, match="alpha must be"):
        KernelRidgeClassifier([0.1, 0.2]).fit(X, y)


def test_leaving_rows_out_in_turn_holds_less_than_six_matrices_at_once() -> None:
    rows = np.random.default_rng(0).standard_normal((600, 4))
    KernelRidgeClassifier("loo").fit(rows[:100], rows[:100, 0] > 0.0)  # imports are not counted
    tracemalloc.start()
    try:
        KernelRidgeClassifier("loo").fit(rows, rows[:, 0] > 0.0)
        assert tracemalloc.get_traced_memory()[1] < 6 * 8 * 600**2
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("weight", [-1.0, 0.0, np.nan, np.inf])
def test_a_class_weight_that_is_none_is_refused(weight):
    with pytest.raises(InputError, match="class_weight must be above 0 and finite"):
        KernelRidgeClassifier(class_weight={0: weight}).fit(X, y)


def test_a_class_of_subnormal_weight_counts_as_one_that_is_not_there():
    rows, labels = X[y < 2], y[y < 2]
    model = KernelRidgeClassifier(1.0, kernel="rbf", class_weight={0: 1e-320}).fit(rows, labels)
    expected = Reference(1.0, kernel="rbf", gamma=model._kernel.gamma).fit(rows[labels == 1], np.ones(sum(labels == 1)))
    np.testing.assert_allclose(model.decision_function(rows), expected.predict(rows), rtol=1e-10)
