"""Targets and rows on which a tolerance can be mistaken: mostly one value, a heavy tail, far from the origin."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import svm
from sklearn.datasets import make_classification

import krein
from krein.kernels import Evaluator

rng = np.random.default_rng(0)
N = 2500
X, NEW = rng.normal(size=(N, 5)), rng.normal(size=(500, 5))
SHARE = rng.random(N)
TARGETS = {
    "claims": np.where(SHARE < 0.6, 0.0, np.exp(2.5 * rng.normal(size=N) + 5.0 + X[:, 0])),
    "outliers": np.where(SHARE < 0.6, 0.0, np.where(SHARE > 0.99, 1e6, np.sin(X).sum(1))),
    "rare": np.where(SHARE < 0.99, 0.0, 1000.0),
    "plain": np.sin(X).sum(1),
    "large": 1e6 * np.sin(X).sum(1),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("options", [{}, {"refine": "exact", "n_blocks": 4, "rank": 32}], ids=["auto", "exact"])
def test_svr_is_scikit_learns_whatever_the_targets_are_like(name, options):
    y = TARGETS[name]
    C = 1e6 if name == "large" else 1.0
    theirs = svm.SVR(C=C, epsilon=0.1 * C).fit(X, y)
    expected = theirs.predict(NEW)
    model = krein.SVR(C=C, epsilon=0.1 * C, random_state=0, **options).fit(X, y)
    assert model.refined_
    assert model.converged_
    found = model.predict(NEW)
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.06 * expected.std()
    assert abs(len(model.support_) - len(theirs.support_)) < 0.02 * N


@pytest.mark.parametrize("offset", [1e6, 3e7, 1e8])
def test_rows_far_from_the_origin_are_not_left_to_libsvms_digits(offset):
    rows, y = make_classification(2500, 8, n_informative=5, flip_y=0.03, random_state=1)
    model, moved = krein.SVC(gamma=0.1).fit(rows, y), krein.SVC(gamma=0.1).fit(rows + offset, y)
    assert moved.converged_
    assert moved.gap_ < 1e-3
    assert np.mean(moved.predict(rows + offset) == model.predict(rows)) >= 0.999
    own = Evaluator(krein.RBF(gamma=0.1)).block(rows + offset, rows[moved.support_] + offset)
    decided = own @ moved.dual_coef_[0] + moved.intercept_[0]
    slack = 1.0 - np.where(y == 1, 1.0, -1.0) * decided
    outside = np.setdiff1d(np.arange(len(y)), moved.support_)
    assert slack[outside].max() < 5e-3  # no row without a coefficient is inside the margin


@pytest.mark.parametrize("nu", [1e-10, 1e-14, 1e-300])
@pytest.mark.parametrize("options", [{}, {"n_blocks": 2, "rank": 20}])
def test_a_nu_that_holds_no_row_gives_the_boundary_of_one_that_holds_half_a_row(options, nu):
    rows = np.random.default_rng(0).standard_normal((60, 2))
    half = krein.OneClassSVM(nu=0.5 / 60, random_state=0, **options).fit(rows)
    small = krein.OneClassSVM(nu=nu, random_state=0, **options).fit(rows)
    expected, found = (m.decision_function(rows) / abs(m.intercept_[0]) for m in (half, small))
    assert len(small.support_) > 1
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_one_class_machine_on_rows_far_from_the_origin_is_that_of_centred_rows():
    rows = np.random.default_rng(0).integers(-512, 512, (2100, 3)) / 256.0
    far = krein.OneClassSVM(gamma=0.3).fit(rows + 1e10)
    near = krein.OneClassSVM(gamma=0.3).fit((rows + 1e10) - 1e10)
    expected = near.decision_function((rows + 1e10) - 1e10)
    np.testing.assert_allclose(far.decision_function(rows + 1e10), expected, atol=2e-2 * np.abs(expected).max())
