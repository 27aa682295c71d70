"""Every kernel is its formula: against naive loops, scikit-learn, random features, and itself in other clothes."""

import math

import hypothesis.extra.numpy as hnp
import naive_kernels as naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import erf
from sklearn.metrics import pairwise

import krein
from krein.errors import InputError
from krein.kernels import (
    ELM,
    NTK,
    RBF,
    TL1,
    ArcCosine,
    Cosine,
    Kernel,
    Laplacian,
    Linear,
    Polynomial,
    Sigmoid,
    SpherePolynomial,
)

each_kernel = pytest.mark.parametrize(
    ("kernel", "formula"), naive.FORMULAS, ids=lambda v: repr(v) if isinstance(v, Kernel) else ""
)
some_vectors = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 5)).flatmap(
    lambda nmd: st.tuples(*(hnp.arrays(float, (n, nmd[2]), elements=st.floats(-3, 3, width=32)) for n in nmd[:2]))
)


def data(seed=0, n=30, d=5):
    return np.random.default_rng(seed).normal(size=(n, d))


@each_kernel
@given(pair=some_vectors)
def test_a_kernel_is_its_formula(kernel, formula, pair):
    A, B = pair
    expected = naive.gram(formula, A, B)
    values = kernel(A, B)
    assert values.shape == expected.shape
    assert values.dtype == np.float64
    size = np.abs(expected).max() + 100  # |x| <= 7, and powers of it
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=3e-8 * size)  # arccos leaves sqrt(eps)
    np.testing.assert_allclose(kernel.diag(A), np.diag(naive.gram(formula, A, A)), rtol=1e-6, atol=3e-8 * size)


@each_kernel
def test_on_ordinary_data_all_digits_are_right(kernel, formula):
    A, B = data(1), data(2, n=11)
    np.testing.assert_allclose(kernel(A, B), naive.gram(formula, A, B), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(kernel.diag(A), [formula(x, x) for x in A], rtol=1e-7)


@each_kernel
def test_without_b_it_is_a_and_symmetric(kernel, formula):
    A = data(3)
    np.testing.assert_array_equal(kernel(A), kernel(A, A))
    np.testing.assert_allclose(kernel(A), kernel(A, A.copy()), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(kernel(A), kernel(A).T, rtol=1e-12, atol=1e-13)


@each_kernel
@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_rows_are_the_same_rows(kernel, formula, form):
    A, B = (np.where(np.abs(X) > 0.7, X, 0) for X in (data(4), data(5, n=12)))
    assert kernel.accepts_sparse
    expected = naive.gram(formula, A, B)
    for a, b in ((form(A), form(B)), (form(A), B), (A, form(B))):
        values = kernel(a, b)
        assert isinstance(values, np.ndarray)
        np.testing.assert_allclose(values, expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(kernel.diag(form(A)), kernel.diag(A), rtol=1e-9)
    assert kernel(form(A.astype(np.float32))).dtype == np.float32


def test_duplicate_entries_of_a_sparse_matrix_add_up():
    twice = sparse.csr_matrix((np.array([1.0, 2.0, 1.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
    dense = np.array([[3.0, 0.0], [0.0, 1.0]])
    for kernel in (RBF(0.1), Linear(), Cosine(), TL1(5.0)):
        np.testing.assert_allclose(kernel(twice), kernel(dense))
        np.testing.assert_allclose(kernel.diag(twice), kernel.diag(dense))
    assert not twice.has_canonical_format  # the caller's matrix is left alone


@each_kernel
def test_float32_stays_float32_and_close(kernel, formula):
    A, B = data(6).astype(np.float32), data(7, n=9).astype(np.float32)
    values = kernel(A, B)
    assert values.dtype == np.float32
    assert kernel.diag(A).dtype == np.float32
    assert kernel(A, B.astype(np.float64)).dtype == np.float64
    expected = kernel(A.astype(float), B.astype(float))
    np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_integers_become_float64():
    A = np.arange(12).reshape(4, 3)
    for kernel in (RBF(0.1), Linear(), Polynomial(2, 1.0), TL1(3.0)):
        assert kernel(A).dtype == np.float64
        np.testing.assert_allclose(kernel(A), kernel(A.astype(float)))


@pytest.mark.parametrize(
    ("kernel", "peer"),
    [
        (RBF(0.3), lambda A, B: pairwise.rbf_kernel(A, B, gamma=0.3)),
        (Laplacian(0.3), lambda A, B: pairwise.laplacian_kernel(A, B, gamma=0.3)),
        (Linear(), pairwise.linear_kernel),
        (Cosine(), pairwise.cosine_similarity),
        (Polynomial(4, 0.2, 1.5), lambda A, B: pairwise.polynomial_kernel(A, B, degree=4, gamma=0.2, coef0=1.5)),
        (Sigmoid(0.2, 0.1), lambda A, B: pairwise.sigmoid_kernel(A, B, gamma=0.2, coef0=0.1)),
    ],
    ids=lambda v: repr(v) if isinstance(v, Kernel) else "",
)
def test_scikit_learn_agrees(kernel, peer):
    A, B = data(8), data(9, n=7)
    A[3] = 0
    np.testing.assert_allclose(kernel(A, B), peer(A, B), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(kernel(A), peer(A, A), rtol=1e-10, atol=1e-12)


# ------------------------------------------------------------------------------------------- networks, by Monte Carlo


def monte_carlo(feature, A, B, n_draws=400_000, seed=0):
    W = np.random.default_rng(seed).normal(size=(n_draws, A.shape[1]))
    return feature(W @ A.T).T @ feature(W @ B.T) / n_draws


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_arc_cosine_is_a_wide_network(degree):
    A, B = data(10, n=4, d=3), data(11, n=3, d=3)
    A[0] = 0
    features = {0: lambda t: np.heaviside(t, 0.5), 1: lambda t: np.maximum(t, 0), 2: lambda t: np.maximum(t, 0) ** 2}
    expected = 2 * monte_carlo(features[degree], A, B)
    np.testing.assert_allclose(ArcCosine(degree)(A, B), expected, rtol=0.03, atol=0.03 * np.abs(expected).max())


@pytest.mark.parametrize("sigma_w", [0.5, 3.0])
def test_elm_is_a_wide_network_of_error_functions(sigma_w):
    A, B = data(12, n=5, d=3), data(13, n=4, d=3)
    with_bias = [np.hstack([np.ones((len(X), 1)), X]) for X in (A, B)]
    expected = monte_carlo(lambda t: erf(sigma_w * t), *with_bias)
    np.testing.assert_allclose(ELM(sigma_w)(A, B), expected, atol=0.01)


def test_ntk_is_the_gradient_product_of_a_wide_network():
    A, B = data(14, n=4, d=3), data(15, n=3, d=3)
    relu, step = (monte_carlo(f, A, B) for f in (lambda t: np.maximum(t, 0), lambda t: (t > 0).astype(float)))
    expected = 2 * relu + 2 * (A @ B.T) * step  # output weights, and hidden weights, with He's scaling
    np.testing.assert_allclose(NTK(1)(A, B), expected, atol=0.03 * np.abs(expected).max())


def test_networks_at_special_angles():
    x, y = np.array([[2.0, 0.0]]), np.array([[0.0, 3.0]])
    assert ArcCosine(0)(x, y) == pytest.approx(0.5)
    assert ArcCosine(0)(x, -x) == pytest.approx(0)
    assert ArcCosine(1)(x, y) == pytest.approx(6 / math.pi)
    assert ArcCosine(1)(x, x) == pytest.approx(4)
    assert ArcCosine(2)(x, y) == pytest.approx(36 * 0.5)
    assert ArcCosine(2)(x, x) == pytest.approx(3 * 16)
    assert ArcCosine(2).diag(x) == pytest.approx(3 * 16)
    assert NTK(1)(x, y) == pytest.approx(6 / math.pi)
    assert NTK(1)(x, -x) == pytest.approx(0)
    for depth in (1, 2, 5):
        assert NTK(depth)(x, x)[0, 0] == pytest.approx((depth + 1) * 4)
        assert NTK(depth).diag(x)[0] == pytest.approx((depth + 1) * 4)
    assert ELM()(x, x) == pytest.approx(1, abs=1e-4)
    assert ELM()(np.eye(2)[:1], -np.eye(2)[:1]) == pytest.approx(0)


def test_zero_rows_have_a_place():
    zero, x = np.zeros((2, 2)), np.array([[1.0, 2.0]])
    assert not Cosine()(zero, x).any()
    assert not Cosine().diag(zero).any()
    assert not NTK(2)(zero, x).any()
    np.testing.assert_allclose(ArcCosine(0)(zero), 0.5)
    np.testing.assert_allclose(ArcCosine(0).diag(zero), 0.5)


# ------------------------------------------------------------------------------------------- the sphere, and Remark 2


@pytest.mark.parametrize("a", [0.9, math.sqrt(2), 2.0, 3.0])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_sphere_polynomial_is_one_of_inner_products_with_alpha_turned_over(a, p):
    X = naive.on_sphere(data(16))
    q, alpha = a**2 / 2 - 1, (2 / a**2) ** p
    np.testing.assert_allclose(SpherePolynomial(p, a)(X), alpha * (q + X @ X.T) ** p, rtol=1e-10, atol=1e-12)
    if a != math.sqrt(2):
        assert not np.allclose(SpherePolynomial(p, a)(X), (a**2 / 2) ** p * (q + X @ X.T) ** p)  # the paper's alpha


def test_a_broken_degree_meets_opposite_points_without_a_root_of_a_negative_number():
    X = naive.on_sphere(data(17, n=200))
    K = SpherePolynomial(1.5, 2.0)(np.vstack([X, -X]))
    assert np.isfinite(K).all()
    assert K.min() >= 0


# ------------------------------------------------------------------------------------------- scale and offset


@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1e-5, 1e5, 1e30, 1e100])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_the_bound_rbf_does_not_feel_the_scale(scale, form):
    X = data(18)
    kernel = RBF().bind(X)
    scaled = RBF().bind(form(X * scale))
    assert scaled.gamma * scale**2 == pytest.approx(kernel.gamma)
    np.testing.assert_allclose(scaled(form(X * scale)), kernel(X), rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e100, 1e200])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_angles_do_not_feel_the_scale(scale, form):
    X = data(19)
    np.testing.assert_allclose(Cosine()(form(X * scale)), Cosine()(X), atol=1e-14)
    np.testing.assert_allclose(ArcCosine(0)(form(X * scale)), ArcCosine(0)(X), atol=1e-7)


def test_far_from_the_origin_float32_keeps_its_digits():
    X = data(20) + 1e4
    X = X.astype(np.float32)
    np.testing.assert_allclose(RBF(0.1)(X), RBF(0.1)(X.astype(float)), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tight_groups_far_apart_keep_their_digits(dtype):
    centres = np.repeat([[0.0, 0.0], [4e4, -4e4], [1e5, 2e5]], 10, axis=0)
    X = (centres + np.round(data(21, n=30, d=2), 1)).astype(dtype)
    formula = naive.FORMULAS[0][1]
    np.testing.assert_allclose(RBF(0.3)(X), naive.gram(formula, X, X), atol=1e-6)


def test_huge_distances_are_similarity_zero_not_nan():
    X = np.array([[1e200], [1e200], [-1e200], [0.0]])
    np.testing.assert_array_equal(RBF(1.0)(X), [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])


def test_equal_rows_are_one_up_to_rounding():
    X = np.repeat(data(22, n=5) * 1e3 + 1e6, 3, axis=0)
    K = RBF(1.0)(X)
    for start in range(0, 15, 3):
        np.testing.assert_allclose(K[start : start + 3, start : start + 3], 1, atol=1e-8)
    assert K.max() <= 1


# ------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RBF(0), "gamma"),
        (lambda: RBF(-1.0), "gamma"),
        (lambda: RBF(math.inf), "gamma"),
        (lambda: RBF(math.nan), "gamma"),
        (lambda: RBF("scale"), "gamma"),
        (lambda: RBF(True), "gamma"),
        (lambda: Laplacian(0), "gamma"),
        (lambda: Polynomial(0), "degree"),
        (lambda: Polynomial(2, -1), "gamma"),
        (lambda: Polynomial(2, 1, math.nan), "coef0"),
        (lambda: SpherePolynomial(-2), "degree"),
        (lambda: SpherePolynomial(2, 0), "a"),
        (lambda: SpherePolynomial(1.5, 1.9), "a >= 2"),
        (lambda: ELM(0), "sigma_w"),
        (lambda: TL1(-1), "rho"),
        (lambda: Sigmoid(0), "gamma"),
        (lambda: Sigmoid(1, "x"), "coef0"),
        (lambda: ArcCosine(3), "0, 1 or 2"),
        (lambda: ArcCosine(0.5), "0, 1 or 2"),
        (lambda: NTK(0), "depth"),
        (lambda: NTK(1.5), "depth"),
        (lambda: 0.0 * RBF(1.0), "factor"),
        (lambda: RBF(1.0) * -2, "factor"),
    ],
)
def test_a_bad_parameter_is_named_and_shown(make, words):
    with pytest.raises(InputError, match=words) as raised:
        make()
    assert "got" in str(raised.value) or "would need" in str(raised.value)


@pytest.mark.parametrize("kernel", [RBF(), Laplacian(), Polynomial(), Sigmoid(), TL1()], ids=repr)
def test_an_unbound_parameter_is_named_and_both_ways_out_are_shown(kernel):
    name = "rho" if isinstance(kernel, TL1) else "gamma"
    for call in (kernel, kernel.diag, kernel + Linear(), (2 * kernel).diag):
        with pytest.raises(InputError, match=rf"{name}.*\.bind\(X\)"):
            call(data())


@pytest.mark.parametrize("X", [np.zeros(3), np.zeros((2, 2, 2)), ["a", "b"], np.array([["a", "b"]]), 3.0])
def test_objects_that_are_no_vectors_are_refused(X):
    with pytest.raises(InputError, match="vectors"):
        RBF(1.0)(X)


def test_object_arrays_of_numbers_pass_and_of_words_do_not():
    assert RBF(1.0)(np.array([[1, 2.5]], dtype=object)).dtype == np.float64
    with pytest.raises(InputError, match="numbers"):
        RBF(1.0)(np.array([[1, "x"]], dtype=object))


def test_vectors_of_different_lengths_are_refused():
    with pytest.raises(InputError, match="3 and 2"):
        Linear()(np.zeros((1, 3)), np.zeros((1, 2)))


@pytest.mark.parametrize("offset", [1e5, 1e7, 1e9])
@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.3), krein.RationalQuadratic(alpha=0.5), krein.Matern(nu=2.5)])
def test_sparse_rows_far_from_the_origin_lose_no_digits(kernel, offset):
    """Distances of sparse rows are expanded, and pairs that cancel are computed again from their differences."""
    X = np.random.default_rng(0).standard_normal((30, 4)) + offset
    near = X - offset  # exact
    found = kernel(sparse.csr_matrix(X), sparse.csr_matrix(X[:20]))
    np.testing.assert_allclose(found, kernel(near, near[:20]), rtol=0, atol=2e-8)


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e-15, 1e18, 1e30])
def test_products_that_float32_cannot_hold_have_float64(scale):
    X = (scale * np.random.default_rng(0).standard_normal((9, 4))).astype(np.float32)
    wide = X.astype(np.float64)
    for rows in (X, sparse.csr_matrix(X)):
        np.testing.assert_allclose(krein.Linear()(rows), wide @ wide.T, rtol=1e-9, atol=1e-9 * np.max(wide) ** 2)
        np.testing.assert_allclose(krein.Linear().diag(rows), (wide**2).sum(1), rtol=1e-9)
    assert krein.Linear()(np.ones((2, 3), np.float32)).dtype == np.float32
    assert krein.Linear()(np.zeros((2, 3), np.float32)).dtype == np.float32
