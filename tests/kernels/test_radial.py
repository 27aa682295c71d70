"""Matern, rational quadratic and periodic kernels and length scales per feature, beside scikit-learn's."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import kernels as sk

import krein
from krein.kernels import RBF, Matern, Periodic, RationalQuadratic, check_kernel
from krein.kernels.names import kernel_for
from krein.kernels.vectors import EuclideanDistances

SCALES = [0.5, 2.0, 7.0]
PAIRS = [
    (RBF(length_scale=1.7), sk.RBF(1.7)),
    (RBF(length_scale=SCALES), sk.RBF(SCALES)),
    *((Matern(1.7, nu), sk.Matern(1.7, nu=nu)) for nu in (0.5, 1.5, 2.5)),
    *((Matern(SCALES, nu), sk.Matern(SCALES, nu=nu)) for nu in (0.5, 1.5, 2.5)),
    (RationalQuadratic(1.7, 0.3), sk.RationalQuadratic(1.7, 0.3)),
    (RationalQuadratic(1.7, 20.0), sk.RationalQuadratic(1.7, 20.0)),
    (Periodic(0.8, 2.3), sk.ExpSineSquared(0.8, 2.3)),
]
KERNELS = [*(ours for ours, _ in PAIRS), RationalQuadratic(SCALES, 0.3)]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
FORMS = {
    "dense": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "sparse": sparse.csr_matrix,
    "sparse float32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
}


def rows(n, seed, d=3):
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[np.abs(X) < 0.3] = 0.0
    return X


@pytest.mark.parametrize(
    ("ours", "theirs"), PAIRS, ids=lambda k: repr(k) if isinstance(k, krein.kernels.Kernel) else ""
)
@pytest.mark.parametrize("forms", itertools.product(FORMS, FORMS), ids=" and ".join)
def test_values_are_scikit_learns_in_every_form(ours, theirs, forms):
    A, B = rows(5, 0), rows(8, 1)
    B[0] = A[0]
    left, right = FORMS[forms[0]](A), FORMS[forms[1]](B)
    exact = [np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float) for X in (left, right)]
    values = ours(left, right)
    assert values.dtype == np.result_type(left.dtype, right.dtype)
    single = np.float32 in (left.dtype, right.dtype)  # rows over length scales are rounded to their own type
    np.testing.assert_allclose(values, theirs(*exact), rtol=0, atol=1e-5 if single else 1e-13)
    function = pickle.loads(pickle.dumps(ours.against(right)))
    np.testing.assert_allclose(function(left), values, rtol=0, atol=1e-6 if single else 1e-14)
    assert function(left[:0]).shape == (0, 8)


def test_length_scales_of_the_rational_quadratic_are_units_of_the_columns():
    A, B = rows(20, 0), rows(9, 1)
    expected = sk.RationalQuadratic(1.0, 0.3)(A / SCALES, B / SCALES)
    np.testing.assert_allclose(RationalQuadratic(SCALES, 0.3)(A, B), expected, atol=1e-14)


@each_kernel
@pytest.mark.parametrize("form", FORMS)
def test_promises_hold(kernel, form):
    report = check_kernel(kernel, FORMS[form](rows(120, 0)), random_state=0)
    assert report.ok, report


@given(
    kernel=st.sampled_from([k for k in KERNELS if k.traits.psd]),
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_they_are_psd(kernel, seed, size):
    X = size * rows(30, seed)
    X[1] = X[0]
    K = kernel(X)
    assert np.linalg.eigvalsh(K)[0] >= -1e-7
    np.testing.assert_allclose(K.diagonal(), kernel.diag(X), atol=1e-8)


def test_the_periodic_kernel_is_psd_for_one_feature_and_not_for_more():
    X = np.random.default_rng(0).uniform(0.0, 5.0, size=(200, 4))
    for period in (0.3, 1.0, 4.0):
        assert np.linalg.eigvalsh(Periodic(0.7, period)(X[:, :1]))[0] > -1e-11
    assert Periodic().traits.psd is None
    assert np.linalg.eigvalsh(Periodic(0.7, 4.0)(X))[0] < -0.1


@given(
    seed=st.integers(0, 10**6), offset=st.sampled_from([0.0, 10.0, 1e3]), gap=st.sampled_from([0.0, 1e-9, 1e-6, 1e-3])
)
def test_distances_of_close_rows_keep_their_digits(seed, offset, gap):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(6, 4)) + offset
    B = np.concatenate([A + gap * rng.normal(size=A.shape), rng.normal(size=(3, 4))])
    expected = cdist(A, B)
    for a, b in ((A, B), (sparse.csr_matrix(A), sparse.csr_matrix(B)), (A, sparse.csr_matrix(B))):
        found = EuclideanDistances(b, 0.5)(a)
        np.testing.assert_allclose(found, 0.5 * expected, rtol=1e-7, atol=1e-15)


def test_distances_in_single_precision_are_computed_in_double():
    A = (1e3 + np.random.default_rng(0).normal(size=(40, 5))).astype(np.float32)
    found = EuclideanDistances(A)(A)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, cdist(A, A), rtol=1e-6)


# -- parameters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: RBF(gamma=1.0, length_scale=2.0), "gamma or length_scale, not both"),
        (lambda: RBF(length_scale=-1.0), "length_scale to be a positive"),
        (lambda: RBF(length_scale=[1.0, 0.0]), "length_scale to be a positive"),
        (lambda: RBF(length_scale=[]), "one per feature"),
        (lambda: Matern(length_scale=[[1.0]]), "one per feature"),
        (lambda: Matern(nu=1.0), r"nu to be one of 0\.5, 1\.5, 2\.5; got 1\.0"),
        (lambda: RationalQuadratic(alpha=0.0), "alpha"),
        (lambda: Periodic(periodicity=np.inf), "periodicity"),
        (lambda: Matern(length_scale=None)(np.eye(2)), "length_scale, which is still None"),
        (lambda: Matern([1.0, 2.0])(np.eye(3)), "2 length scales, but X has 3 features"),
        (lambda: krein.SVC(kernel=RBF(length_scale=[1.0, 2.0])).fit(np.eye(8), np.arange(8) % 2), "8 features"),
        (lambda: krein.SVC(kernel=RBF(length_scale=1.0), gamma=2.0).fit(np.eye(8), np.arange(8) % 2), "in one place"),
        (lambda: kernel_for("rbf", np.eye(3), gamma=1.0, params={"length_scale": 2.0}), "not both"),
        (lambda: kernel_for("matern", np.eye(3), params={"width": 2.0}), "length_scale, nu; got"),
        (lambda: kernel_for("chi2", np.eye(3), gamma="wide"), "gamma must be"),
    ],
)
def test_bad_parameters_are_refused(make, said):
    with pytest.raises(krein.InputError, match=said):
        make()


def test_length_scales_are_values():
    kernel = RBF(length_scale=np.array(SCALES))
    assert kernel == RBF(length_scale=SCALES)
    assert hash(kernel) == hash(RBF(length_scale=tuple(SCALES)))
    assert repr(kernel) == "RBF(length_scale=(0.5, 2.0, 7.0))"
    assert repr(RBF(gamma=0.5)) == "RBF(gamma=0.5)"
    assert kernel.bind(rows(5, 0)) is kernel
    assert kernel.with_params(length_scale=1.0) == RBF(length_scale=1.0)


@pytest.mark.parametrize("kernel", [Matern(None), RationalQuadratic(None)], ids=repr)
def test_an_open_length_scale_is_the_width_of_rbf(kernel):
    X = rows(50, 0)
    assert 0.5 / kernel.bind(X).length_scale ** 2 == pytest.approx(RBF().bind(X).gamma)


def test_kernels_by_name_are_those_of_their_classes():
    X = rows(40, 0)
    assert kernel_for("matern", X, gamma="scale", params={"nu": 2.5}) == Matern(nu=2.5)
    assert kernel_for("rational-quadratic", X, gamma="scale") == RationalQuadratic()
    assert kernel_for("periodic", X, gamma=2.0) == Periodic()
    assert kernel_for("rbf", X, gamma="scale", params={"length_scale": SCALES}) == RBF(length_scale=SCALES)
    assert kernel_for("chi2", X, gamma="scale") == kernel_for("chi2", X) == krein.ChiSquared(1.0)
    assert kernel_for("chi2", X, gamma=0.3) == krein.ChiSquared(0.3)
    assert kernel_for("haversine", X[:, :2]) == krein.Haversine()


# -- machines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [60, 700])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_machines_see_length_scales_as_units_of_the_columns(n, dtype):
    X = rows(n, 0).astype(dtype)
    y = (np.sin(2.0 * X[:, 0]) + X[:, 1] > 0.0).astype(int)
    policy = krein.Policy(exact_rows=100)  # 700 rows are more than a matrix of them would take
    for ours, same, units in (
        (RBF(length_scale=2.0), RBF(gamma=0.125), 1.0),
        (RBF(length_scale=SCALES), RBF(gamma=0.5), SCALES),
    ):
        fits = [
            krein.SVC(kernel=kernel, C=3.0, tol=1e-6, policy=policy, random_state=0).fit(rows_of, y)
            for kernel, rows_of in ((ours, X), (same, (X / units).astype(dtype)))
        ]
        values = [fits[0].decision_function(X[:50]), fits[1].decision_function((X[:50] / units).astype(dtype))]
        np.testing.assert_allclose(values[0], values[1], atol=1e-3 if dtype == np.float32 else 1e-4)
