"""Every declared property holds on data, through the public check and directly; and the supplement's table is true."""

import math
from dataclasses import fields

import naive_kernels as naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gegenbauer

from krein.kernels import (
    ELM,
    NTK,
    RBF,
    TL1,
    ArcCosine,
    Cosine,
    Laplacian,
    Linear,
    Normalized,
    Polynomial,
    Sigmoid,
    SpherePolynomial,
    Traits,
    check_kernel,
)

KERNELS = [
    *(kernel for kernel, _ in naive.FORMULAS),
    SpherePolynomial(1, 1.0),
    SpherePolynomial(2, 1.0),
    SpherePolynomial(3, 1.5),
    SpherePolynomial(4, 3.0),
    SpherePolynomial(2.5, 2.0),
    SpherePolynomial(0.5, 2.5),
    Polynomial(1, 1.0, 0.0),
    Polynomial(3, 1.0, -1.0),
    Normalized(SpherePolynomial(2, 2.0)),
    RBF(0.1) * TL1(4.0),
    3.0 * SpherePolynomial(3, 3.0) + ELM(),
]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


def data(kernel, seed=0, n=60, d=4):
    """Gaussian rows with a duplicate, an opposite pair and, off the sphere, a zero row."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[1], X[2] = X[0], -X[0]
    if kernel.traits.sphere:
        return naive.on_sphere(X)
    X[3] = 0
    return X


@each_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_our_own_kernels_pass_the_public_check(kernel, dtype):
    check = check_kernel(kernel, data(kernel).astype(dtype), random_state=0)
    assert check.ok, check
    check.raise_if_failed()


@each_kernel
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(1, 6))
def test_declared_traits_hold_directly(kernel, seed, d):
    X, traits = data(kernel, seed, n=25, d=d), kernel.traits
    K = kernel(X)
    size = np.abs(K).max()
    if traits.psd:
        assert np.linalg.eigvalsh(K)[0] >= -1e-7 * size * len(X)
    if traits.low is not None:
        assert K.min() >= traits.low - 1e-9 * size
    if traits.high is not None:
        assert K.max() <= traits.high + 1e-9 * size
    if traits.constant_diagonal:
        np.testing.assert_allclose(kernel.diag(X), kernel.diag(X)[0])
    if traits.stationary:
        np.testing.assert_allclose(kernel(X + 0.37), K, atol=1e-9 * size)
    if traits.compact and traits.stationary:
        assert not kernel(X, X + 1e3).any()


@pytest.mark.parametrize("kernel", [k for k in KERNELS if k.traits.psd is False], ids=repr)
def test_kernels_declared_not_psd_show_a_negative_eigenvalue(kernel):
    X = np.random.default_rng(0).normal(size=(200, 3))
    X = naive.on_sphere(X) if kernel.traits.sphere else 0.3 * X
    assert np.linalg.eigvalsh(kernel(X))[0] < -1e-3


def test_some_kernels_are_declared_not_psd():
    assert sum(kernel.traits.psd is False for kernel in KERNELS) >= 5


@pytest.mark.parametrize("kernel", [TL1(2.0), Sigmoid(0.4, -0.3), SpherePolynomial(2.5, 2.0)], ids=repr)
def test_kernels_of_unknown_definiteness_can_be_indefinite(kernel):
    assert kernel.traits.psd is None
    X = np.random.default_rng(1).uniform(-1, 1, size=(300, 4))
    assert np.linalg.eigvalsh(kernel(naive.on_sphere(X) if kernel.traits.sphere else X))[0] < -1e-6


@pytest.mark.parametrize("a", [0.8, 1.2, 1.4, 1.42, 2.0, 3.0])
@pytest.mark.parametrize("p", [1, 2, 3, 4, 5])
def test_the_sphere_polynomial_is_psd_where_its_gegenbauer_coefficients_say_so(a, p):
    """Schoenberg: psd on the sphere in R^d iff every Gegenbauer coefficient is non-negative; here d = 5, C^(3/2)."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    profile = (1 - (2 - 2 * nodes) / a**2) ** p
    coefficients = [np.sum(weights * (1 - nodes**2) * profile * gegenbauer(m, 1.5)(nodes)) for m in range(p + 1)]
    assert SpherePolynomial(p, a).traits.psd == (min(coefficients) > -1e-12 * np.abs(coefficients).max())
    if a**2 < 2:
        assert coefficients[p - 1] < 0


@pytest.mark.parametrize("a", [0.8, 1.3, 2.0, 2.5, 4.0])
@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_the_sphere_polynomials_range_is_tight(a, p):
    angles = np.linspace(0, math.pi, 20001)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    values, traits = SpherePolynomial(p, a)(circle[:1], circle), SpherePolynomial(p, a).traits
    assert values.min() == pytest.approx(traits.low, abs=1e-6 * max(1, abs(traits.low)))
    assert values.max() == pytest.approx(traits.high, rel=1e-6)


# the supplement's table (Sec. 6), line by line; the polynomial is the paper's own and scikit-learn's form of it
TABLE = [
    (RBF(0.5), {"low": 0.0, "constant_diagonal": True, "unitary_invariant": True, "stationary": True}, "unit-interval"),
    (SpherePolynomial(3, 2.0), {"unitary_invariant": True, "stationary": False}, "sphere"),
    (Polynomial(3, 1.0), {"unitary_invariant": True, "stationary": False}, "sphere"),
    (ELM(), {"differentiable": True, "stationary": False}, "z-score-sphere"),
    (TL1(2.8), {"compact": True, "stationary": True, "psd": None, "low": 0.0}, "unit-interval"),
]


@pytest.mark.parametrize(("kernel", "properties", "preprocessing"), TABLE, ids=lambda v: str(v)[:30])
def test_the_supplements_table(kernel, properties, preprocessing):
    traits = kernel.traits
    assert {name: getattr(traits, name) for name in properties} == properties
    assert traits.preprocessing == preprocessing


def test_the_supplements_table_in_numbers():
    X = np.random.default_rng(2).uniform(size=(80, 3))
    np.testing.assert_allclose(np.diag(RBF(0.5)(X)), 1)  # k(x, x) = 1
    assert RBF(0.5).feature_dimension(3) == math.inf
    assert TL1().bind(X).rho == pytest.approx(0.7 * 3)
    S = naive.on_sphere(X)
    assert np.abs(ELM(1e3)(S) - ELM(1e6)(S)).max() < 1e-3  # parameter-insensitive


@pytest.mark.parametrize(
    ("kernel", "dimension"),
    [
        (Linear(), 3),
        (Cosine(), 3),
        (Polynomial(2, 0.5, 1.0), 10),
        (Polynomial(3, 0.5, 1.0), 20),
        (2.0 * Polynomial(2, 0.5, 1.0), 10),
        (Normalized(Polynomial(2, 0.5, 1.0)), 10),
        (SpherePolynomial(2, 3.0), 10),
    ],
    ids=repr,
)
def test_the_feature_dimension_bounds_the_rank(kernel, dimension):
    assert kernel.feature_dimension(3) == dimension
    X = np.random.default_rng(3).normal(size=(60, 3))
    sphere = kernel.traits.sphere
    rank = np.linalg.matrix_rank(kernel(naive.on_sphere(X) if sphere else X), tol=1e-8)
    assert rank < dimension if sphere else rank == dimension  # on the sphere |x|² = 1 removes some


@pytest.mark.parametrize("kernel", [TL1(), ELM(), NTK(), ArcCosine(), Sigmoid(), Polynomial(1.5)], ids=repr)
def test_unknown_feature_dimensions_are_none(kernel):
    assert kernel.feature_dimension(3) is None


def test_differentiable_kernels_have_a_gradient_and_the_others_a_kink():
    """At x = y, and at the origin: one-sided slopes agree exactly for those declared differentiable."""
    step, along = 1e-6, np.array([[1e-6, 0.0]])
    for kernel in (
        RBF(0.5),
        Linear(),
        Polynomial(3, 0.5),
        ELM(1.0),
        Sigmoid(0.5),
        ArcCosine(2),
        SpherePolynomial(2, 2.0),
    ):
        assert kernel.traits.differentiable, kernel
        for x in (np.array([[0.6, 0.8]]), np.zeros((1, 2))):
            for y in (x, np.array([[1.0, 0.0]])):
                right, left = kernel(x + along, y) - kernel(x, y), kernel(x, y) - kernel(x - along, y)
                assert abs(right - left)[0, 0] / step < 1e-3, kernel
    for kernel in (Laplacian(0.5), TL1(1.0), ArcCosine(0), ArcCosine(1), NTK(1), Cosine()):
        assert not kernel.traits.differentiable, kernel


def test_traits_are_values():
    assert Traits(stationary=True, psd=None) == Traits(stationary=True, psd=None)
    assert [f.name for f in fields(Traits)][:2] == ["stationary", "psd"]
    assert TL1().traits.high is None
    assert TL1(2.0).traits.high == 2.0
