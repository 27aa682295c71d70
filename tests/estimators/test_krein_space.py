"""Learners in Krein space (Oglic and Gärtner 2018, 2019) beside dense solutions of their own problems.

A function of a Krein space is f = f₊ + f₋, and each part has a norm of its own. With K = V diag(l) Vᵀ and values z of f
at the rows, |f±|² is the sum of (vᵀz)² / |l| over the positive or the negative eigenvalues.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC as LibSVC
from sklearn.svm import LinearSVC

import krein
from krein.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore::krein.errors.KreinWarning")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
NEW = RNG.standard_normal((20, 3))
Y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * RNG.standard_normal(60)
SIGN = np.where(Y > 0, 1.0, -1.0)
KERNEL = krein.Sigmoid(gamma=0.5, coef0=-1.0)
K, K_NEW = KERNEL(X), KERNEL(NEW, X)
VALUES, VECTORS = np.linalg.eigh(K)
PLUS, MINUS = VALUES > 1e-10, VALUES < -1e-10
PENALTY = 0.7, 2.8  # of the two parts


def penalties():
    """(d,) such that the penalty of a function with values z at the rows is the sum of d (Vᵀz)²."""
    size = np.where(PLUS | MINUS, np.abs(VALUES), np.inf)
    return np.where(VALUES < 0.0, PENALTY[1], PENALTY[0]) / size


def predicted(z):
    """The values of the same function at new objects: k(x, X) K⁺ z."""
    kept = PLUS | MINUS
    return K_NEW @ ((VECTORS[:, kept] / VALUES[kept]) @ (VECTORS[:, kept].T @ z))


def span(c):
    return VECTORS[:, PLUS | MINUS] @ c


def test_ridge_with_a_penalty_for_each_part():
    """min |z - y|² + a₊ |f₊|² + a₋ |f₋|², whose normal equations are diagonal in the eigenvectors."""
    kept = PLUS | MINUS
    z = span((VECTORS[:, kept].T @ Y) / (1.0 + penalties()[kept]))
    model = krein.KernelRidge(alpha=PENALTY[0], kernel=KERNEL, correction=PENALTY[0] / PENALTY[1]).fit(X, Y)
    assert model.correction_ == PENALTY[0] / PENALTY[1]
    np.testing.assert_allclose(model.predict(X), z, rtol=0, atol=1e-8)
    np.testing.assert_allclose(model.predict(NEW), predicted(z), rtol=0, atol=1e-6)


@pytest.mark.parametrize("C", [0.3, 3.0])
def test_the_svm_with_a_penalty_for_each_part(C):
    """The hinge loss: LIBSVM on the matrix whose two parts are weighed."""
    weighed = (VECTORS * np.where(VALUES < 0, -0.25 * VALUES, VALUES)) @ VECTORS.T
    reference = LibSVC(kernel="precomputed", C=C, tol=1e-8).fit(weighed, SIGN)
    model = krein.SVC(kernel=KERNEL, correction=0.25, C=C, tol=1e-8).fit(X, SIGN)
    kept = PLUS | MINUS
    turned = np.where(VALUES < 0, -0.25, 1.0)[kept]
    rows = ((K_NEW @ VECTORS[:, kept]) * turned) @ VECTORS[:, kept].T
    np.testing.assert_allclose(model.decision_function(NEW), reference.decision_function(rows), rtol=0, atol=1e-4)


def test_the_squared_hinge_svm_is_a_linear_svm_on_features():
    """min sum max(0, 1 - y z)² C + (a₊ |f₊|² + a₋ |f₋|²) / 2 by L-BFGS on the values z."""
    C, kept = 2.0, PLUS | MINUS
    d = np.where(VALUES < 0.0, 4.0, 1.0)[kept] / np.abs(VALUES[kept])

    def loss(c):
        slack = np.maximum(0.0, 1.0 - SIGN * span(c / np.sqrt(d)))
        gradient = c - 2.0 * C * (VECTORS[:, kept].T @ (slack * SIGN)) / np.sqrt(d)
        return 0.5 * c @ c + C * slack @ slack, gradient

    found = minimize(loss, np.zeros(kept.sum()), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10})
    z = span(found.x / np.sqrt(d))
    features = krein.MEKA(kernel=KERNEL, correction=0.25)
    model = make_pipeline(features, LinearSVC(C=C, dual=False, fit_intercept=False, tol=1e-10)).fit(X, SIGN)
    np.testing.assert_allclose(model.decision_function(X), z, rtol=0, atol=1e-4)
    np.testing.assert_allclose(model.decision_function(NEW), predicted(z), rtol=0, atol=1e-3)


@pytest.mark.parametrize("variance", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("correction", [0.25, "flip", "clip"])
def test_ridge_with_a_variance_constraint(variance, correction):
    """The global minimum over the sphere: the smallest root of the secular equation of Gander, Golub and von Matt."""
    alpha, weight = 0.5, {"flip": 1.0, "clip": 0.0}.get(correction, correction)
    kept = PLUS | (MINUS & (weight > 0.0))
    V = VECTORS[:, kept]
    d = alpha / np.where(VALUES < 0, -weight * VALUES, VALUES)[kept]  # |z - y|² + zᵀ V diag(d) Vᵀ z, |z|² = n variance
    c, radius = V.T @ Y, np.sqrt(60 * variance)
    low, high = -1.0 - d.min() + 1e-12, 1e6
    for _ in range(200):  # |c / (1 + m + d)| falls in m
        m = 0.5 * (low + high)
        low, high = (m, high) if np.linalg.norm(c / (1.0 + m + d)) > radius else (low, m)
    z = V @ (c / (1.0 + m + d))
    assert np.linalg.norm(z) == pytest.approx(radius)
    model = krein.KernelRidge(alpha=alpha, kernel=KERNEL, correction=correction, variance=variance).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), z, rtol=0, atol=1e-7)
    np.testing.assert_allclose(model.predict(NEW), predicted(z), rtol=0, atol=1e-5)


def test_a_variance_constraint_holds_for_every_target_on_blocks_and_with_weights():
    targets = np.column_stack([Y, X[:, 1] ** 2 - 1.0])
    weights = RNG.uniform(0.5, 3.0, 60)
    for given in ({}, {"n_blocks": 2, "rank": 20, "random_state": 0}):
        model = krein.KernelRidge(alpha=0.3, kernel=krein.RBF(gamma=0.5), variance=0.4, **given)
        model.fit(X, targets, sample_weight=weights)
        squares = np.average(model.predict(X) ** 2, axis=0, weights=weights)
        np.testing.assert_allclose(squares, [0.4, 0.4], rtol=1e-6)


def test_a_variance_that_cannot_be_reached_is_refused():
    with pytest.raises(InputError, match=r"a mean square of at most .*; got variance=1e"):
        krein.KernelRidge(alpha=10.0, kernel=KERNEL, variance=1e9).fit(X, Y)
    for wrong in (-1.0, 0.0, "large", np.nan):
        with pytest.raises(InputError, match="variance must be a number above 0, or None"):
            krein.KernelRidge(kernel=KERNEL, variance=wrong).fit(X, Y)
    with pytest.raises(InputError, match="alpha above 0"):
        krein.KernelRidge(alpha=0.0, kernel=KERNEL, variance=1.0).fit(X, Y)


@pytest.mark.parametrize(
    "model",
    [krein.SVC(), krein.SVR(), krein.NuSVC(), krein.KernelRidgeClassifier(), krein.KernelLogisticRegression(),
     krein.MEKA()],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_weights_of_0_and_1_are_clip_and_flip(model):
    for weight, how in ((0, "clip"), (1.0, "flip")):
        found = []
        for correction in (weight, how):
            one = model.__class__(**model.get_params()).set_params(kernel=KERNEL, correction=correction)
            one.fit(X, Y if isinstance(model, krein.SVR) else SIGN)
            rest = getattr(one, "decision_function", None) or getattr(one, "predict", None)
            found.append(rest(NEW) if rest else one.transform(NEW))
        np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-8)


def test_a_weight_beyond_the_exact_rows_corrects_all_similarities():
    policy = krein.Policy(exact_rows=20)
    small = krein.SVC(kernel=KERNEL, correction=0.25, policy=policy, tol=1e-8).fit(X, SIGN)
    assert type(small.route_).__name__ == "Features"
    exact = krein.SVC(kernel=KERNEL, correction=0.25, tol=1e-8).fit(X, SIGN)
    np.testing.assert_allclose(small.decision_function(NEW), exact.decision_function(NEW), rtol=0, atol=1e-4)


def test_a_gaussian_process_has_no_weight_and_says_so():
    with pytest.raises(InputError, match="correction must be one of"):
        krein.GaussianProcessRegressor(kernel=KERNEL, correction=0.5).fit(X, Y)


def test_one_coupled_block_is_a_cur_decomposition():
    """K ~ C G Cᵀ with columns C of K. The best G is C⁺ K C⁺ᵀ; sampled rows come near it, Nyström's W⁺ does not."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((400, 4))
    kernel = krein.Sigmoid(gamma=0.3, coef0=-0.5)
    S = kernel(A)
    a = krein.approximate(A, kernel, n_blocks=1, rank=30, random_state=0)
    places = rng.permutation(400)[:30]
    C = S[:, places]
    best = C @ np.linalg.pinv(C) @ S @ np.linalg.pinv(C).T @ C.T
    nystrom = C @ np.linalg.pinv(C[places]) @ C.T
    errors = [np.linalg.norm(S - M) / np.linalg.norm(S) for M in (a.factorization.to_dense(), best, nystrom)]
    assert errors[0] < 1.5 * errors[1]
    assert errors[0] < errors[2]
