"""Kernels as values: equality, binding, sums, products, multiples; and the collections they compare."""

import copy
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import krein.kernels
from krein.errors import InputError
from krein.kernels import (
    ELM,
    RBF,
    TL1,
    FromCallable,
    Laplacian,
    Linear,
    Normalized,
    Polynomial,
    Product,
    Scaled,
    Sigmoid,
    SpherePolynomial,
    Sum,
    Traits,
    count_objects,
    is_vectors,
    take,
)

X = np.random.default_rng(0).normal(size=(20, 4))
psd_parts = st.sampled_from([RBF(0.5), Linear(), Laplacian(0.2), Polynomial(2, 0.3), ELM(), SpherePolynomial(2, 2.0)])
any_parts = st.one_of(psd_parts, st.sampled_from([TL1(2.0), Sigmoid(0.5), SpherePolynomial(3, 1.2)]))


def test_what_is_exported_can_be_imported():
    assert all(hasattr(krein.kernels, name) for name in krein.kernels.__all__)
    assert len(set(krein.kernels.__all__)) == len(krein.kernels.__all__)


@pytest.mark.parametrize(
    "make", [lambda: RBF(0.5), lambda: Polynomial(2, 1.0) + 2 * TL1(1.0), lambda: Normalized(ELM())]
)
def test_kernels_are_equal_hashed_copied_and_pickled_by_value(make):
    assert make() == make()
    assert hash(make()) == hash(make())
    assert {make(), make()} == {make()}
    assert make() != RBF(0.7)
    for twin in (copy.deepcopy(make()), pickle.loads(pickle.dumps(make()))):
        assert twin == make()
        assert twin.accepts_sparse == make().accepts_sparse
        np.testing.assert_array_equal(twin(X), make()(X))


def test_numbers_of_any_kind_are_the_same_parameter():
    assert RBF(1) == RBF(1.0) == RBF(np.float32(1))
    assert repr(RBF(np.float64(0.5))) == "RBF(gamma=0.5)"
    assert Polynomial(2.0, 1) == Polynomial(np.int64(2), 1)
    assert isinstance(Polynomial(2.0).degree, int)


def test_kernels_cannot_be_changed():
    with pytest.raises(AttributeError):
        RBF(0.5).gamma = 1.0


# ------------------------------------------------------------------------------------------- binding


@pytest.mark.parametrize("kernel", [RBF(), Laplacian(), Polynomial(), Sigmoid()], ids=repr)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, sparse.csc_array])
def test_gamma_is_bound_to_scikit_learns_scale(kernel, form):
    Y = np.where(X > 0, X, 0)
    assert kernel.bind(form(Y)).gamma == pytest.approx(1 / (4 * Y.var()), rel=1e-12)
    assert kernel.gamma is None


def test_gamma_of_many_rows_is_summed_in_chunks():
    Y = np.random.default_rng(1).normal(3, 2, size=(300_000, 4)).astype(np.float32)
    assert RBF().bind(Y).gamma == pytest.approx(1 / (4 * Y.astype(float).var()), rel=1e-10)


def test_rho_is_bound_to_seven_tenths_of_the_features():
    assert TL1().bind(X).rho == pytest.approx(2.8)


@pytest.mark.parametrize(
    "kernel", [RBF(0.5), Linear(), TL1(1.0), RBF(1.0) + Linear(), 2 * RBF(1.0), Normalized(ELM())], ids=repr
)
def test_binding_what_is_bound_returns_itself(kernel):
    assert kernel.bind(X) is kernel


def test_binding_reaches_inside():
    kernel = Normalized(2 * RBF() + TL1() * Polynomial(2)).bind(X)
    gamma = RBF().bind(X).gamma
    assert kernel == Normalized(2 * RBF(gamma) + TL1(0.7 * 4) * Polynomial(2, gamma))


def test_constant_data_bind_gamma_to_one_as_in_scikit_learn():
    for constant in (np.zeros((3, 2)), np.full((3, 2), 0.1), np.full((3, 2), -7e50), sparse.csr_matrix((3, 2))):
        assert RBF().bind(constant).gamma == 1.0


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_data_whose_variance_is_no_float_must_be_rescaled(scale):
    with pytest.raises(InputError, match=r"[Rr]escale the data"):
        RBF().bind(X * scale)


def test_data_that_cannot_be_bound_to_are_refused():
    with pytest.raises(InputError, match="NaN"):
        RBF().bind(np.array([[1.0, math.nan]]))
    with pytest.raises(InputError, match="at least one row"):
        RBF().bind(np.empty((0, 3)))
    with pytest.raises(InputError, match="vectors"):
        RBF().bind(["a", "b"])
    with pytest.raises(InputError, match="vectors"):
        TL1().bind(["a", "b"])


# ------------------------------------------------------------------------------------------- sums, products, multiples


@given(first=any_parts, second=any_parts, factor=st.floats(1e-3, 1e3))
def test_sums_products_and_multiples_are_what_they_say(first, second, factor):
    a, b = first(X), second(X)
    np.testing.assert_allclose((first + second)(X), a + b)
    np.testing.assert_allclose((first * second)(X), a * b)
    np.testing.assert_allclose((factor * first)(X), factor * a)
    np.testing.assert_allclose((first * factor)(X), factor * a)
    np.testing.assert_allclose((first + second).diag(X), first.diag(X) + second.diag(X))
    np.testing.assert_allclose((first * second).diag(X), first.diag(X) * second.diag(X))
    np.testing.assert_allclose((factor * first).diag(X), factor * first.diag(X))


@given(first=any_parts, second=any_parts, factor=st.floats(1e-3, 1e3))
def test_combined_traits_are_true(first, second, factor):
    Y = X / np.linalg.norm(X, axis=1, keepdims=True)
    for kernel in (first + second, first * second, factor * first):
        traits, K = kernel.traits, kernel(Y)
        if traits.psd:
            assert np.linalg.eigvalsh(K)[0] >= -1e-9 * np.abs(K).max()
        if traits.low is not None:
            assert K.min() >= traits.low - 1e-9 * np.abs(K).max()
        if traits.high is not None:
            assert K.max() <= traits.high + 1e-9 * np.abs(K).max()


@given(first=psd_parts, second=psd_parts)
def test_psd_adds_and_multiplies(first, second):
    assert (first + second).traits.psd
    assert (first * second).traits.psd
    assert (first + TL1(1.0)).traits.psd is None
    assert (first * SpherePolynomial(3, 1.2)).traits.psd is None


def test_ranges_combine_at_their_corners():
    signed = FromCallable(lambda A, B: None, Traits(stationary=False, psd=None, low=-2.0, high=3.0))
    assert ((signed * signed).traits.low, (signed * signed).traits.high) == (-6.0, 9.0)
    assert ((signed + RBF(1.0)).traits.low, (signed + RBF(1.0)).traits.high) == (-2.0, 4.0)
    assert (signed * Linear()).traits.high is None
    assert (RBF(1.0) * Polynomial(2)).traits.low == 0.0
    assert (2 * signed).traits.high == 6.0


def test_other_traits_combine():
    assert (RBF(1.0) * TL1(1.0)).traits.compact
    assert not (RBF(1.0) + TL1(1.0)).traits.compact
    assert (RBF(1.0) + TL1(1.0)).traits.stationary
    assert not (RBF(1.0) + Linear()).traits.stationary
    assert (RBF(1.0) + ELM()).traits.sphere
    assert (RBF(1.0) + TL1(1.0)).traits.preprocessing == "unit-interval"
    assert (RBF(1.0) + ELM()).traits.preprocessing is None


def test_nested_combinations_flatten():
    a, b, c = RBF(1.0), Linear(), TL1(1.0)
    assert (a + b) + c == a + (b + c) == Sum((a, b, c))
    assert (a * b) * c == Product((a, b, c))
    assert 2 * (3 * a) == Scaled(a, 6.0)
    assert isinstance((a + b) * c, Product)


def test_combinations_accept_sparse_if_all_parts_do():
    strings = FromCallable(lambda A, B: np.zeros((len(A), len(B))))
    assert (RBF(1.0) + Linear()).accepts_sparse
    assert (2 * RBF(1.0)).accepts_sparse
    assert not (RBF(1.0) + strings).accepts_sparse
    assert not (2 * strings).accepts_sparse


def test_what_cannot_be_combined_is_refused():
    with pytest.raises(TypeError):
        RBF(1.0) + "rbf"
    with pytest.raises(TypeError):
        RBF(1.0) * [1]
    with pytest.raises(InputError, match="as_kernel"):
        Sum((RBF(1.0), len))
    with pytest.raises(InputError, match="one or more"):
        Product(())
    with pytest.raises(InputError, match="Kernel"):
        Scaled(len, 2.0)


# ------------------------------------------------------------------------------------------- collections


@pytest.mark.parametrize(
    "objects",
    [
        X,
        X[:, 0],
        sparse.csr_matrix(X),
        sparse.csc_array(X),
        sparse.coo_matrix(X),
        list("abcdefghijklmnopqrst"),
        tuple(range(20)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_taking_restricts_any_collection(objects):
    chosen = take(objects, np.array([3, 1, 3]))
    assert count_objects(objects) == 20
    assert count_objects(chosen) == 3
    if isinstance(objects, (list, tuple)):
        assert chosen == type(objects)([objects[3], objects[1], objects[3]])
    else:
        dense = [v.toarray() if sparse.issparse(v) else v for v in (objects, chosen)]
        np.testing.assert_array_equal(dense[1], dense[0][[3, 1, 3]])


def test_vectors_are_rows_of_real_numbers():
    for yes in (X, X.astype(np.float32), np.ones((2, 2), int), sparse.csr_matrix(X), sparse.csr_array(X)):
        assert is_vectors(yes)
    for no in (X[0], X[None], ["a"], np.array([["a"]]), X.astype(complex), X.tolist(), np.array([[None]]), 3):
        assert not is_vectors(no)


@pytest.mark.parametrize("thing", ["word", 3, {1: 2}, np.float64(2), (i for i in range(3)), np.array(3)])
def test_what_is_no_collection_is_refused(thing):
    with pytest.raises(InputError, match="ndarray"):
        count_objects(thing)


def test_taking_from_what_is_no_collection_is_refused():
    with pytest.raises(InputError, match="ndarray"):
        take({1, 2}, [0])
