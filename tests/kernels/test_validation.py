"""At the door: what comes in is checked once and handed on in a form the rest can trust."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import krein
from krein.kernels import as_kernel
from krein.kernels.validation import check_new_objects, check_objects


def lengths(A, B):
    return np.exp(-np.abs(np.subtract.outer([len(a) for a in A], [len(b) for b in B])))


@pytest.mark.parametrize(
    ("X", "dtype"),
    [
        (np.ones((3, 2), dtype=np.float32), np.float32),
        (np.ones((3, 2), dtype=np.float64), np.float64),
        (np.ones((3, 2), dtype=np.float16), np.float64),
        (np.ones((3, 2), dtype=np.int8), np.float64),
        (np.ones((3, 2), dtype=bool), np.float64),
        ([[1, 2], [3, 4]], np.float64),
        (pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}), np.float64),
        (np.array([[1, 2.5], [3, 4]], dtype=object), np.float64),
    ],
)
def test_numbers_become_a_float_array_and_keep_their_values(X, dtype):
    objects, _ = check_objects(X, krein.RBF(gamma=1.0))
    assert objects.dtype == dtype
    assert np.array_equal(objects, np.asarray(X, dtype=dtype))


def test_float_arrays_are_not_copied():
    X = np.ones((4, 2))
    assert check_objects(X, krein.RBF(gamma=1.0))[0] is X


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.coo_matrix, sp.csr_array])
def test_sparse_matrices_become_csr(form):
    dense = np.diag([1.0, 2.0, 3.0])
    objects, _ = check_objects(form(dense), krein.Linear())
    assert objects.format == "csr"
    assert np.array_equal(objects.toarray(), dense)


def test_parameters_left_open_are_bound_to_the_data():
    X = np.random.default_rng(0).standard_normal((50, 4))
    _, kernel = check_objects(X, krein.RBF())
    assert kernel.gamma == pytest.approx(1 / (4 * X.var()))


def test_a_list_of_objects_stays_a_list_for_a_callable():
    words = ["a", "bb", "ccc"]
    assert check_objects(words, as_kernel(lengths))[0] is words


@pytest.mark.parametrize("X", [None, np.arange(4), np.arange(4).reshape(-1, 1), [0, 1, 2, 3]])
def test_precomputed_takes_indices_in_any_form_and_never_as_coordinates(X):
    objects, _ = check_objects(X, krein.Normalized(krein.Precomputed(np.eye(4))))
    assert not krein.kernels.is_vectors(objects)
    assert np.array_equal(np.ravel(objects), np.arange(4))


def test_which_kernels_compare_vectors():
    assert (krein.Normalized(krein.RBF(gamma=1.0) + 2.0 * krein.Linear())).compares == "vectors"
    assert (krein.RBF(gamma=1.0) * krein.Linear()).compares == "vectors"
    assert (krein.Normalized(krein.Precomputed(np.eye(2)))).compares != "vectors"
    assert (as_kernel(lengths)).compares != "vectors"


def test_arrays_of_more_axes_are_objects_to_a_callable():
    pictures = np.zeros((5, 3, 3))
    objects, _ = check_objects(pictures, as_kernel(lambda A, B: np.ones((len(A), len(B)))))
    assert objects.shape == (5, 3, 3)


def test_a_sphere_kernel_off_the_sphere_warns_with_the_callers_line():
    X = np.random.default_rng(0).standard_normal((10, 3))
    with pytest.warns(krein.KreinWarning, match="10 of 10 rows") as seen:
        krein.approximate(X, krein.SpherePolynomial(), n_blocks=1, rank=2, random_state=0)
    assert seen[0].filename == __file__
    with pytest.warns(krein.KreinWarning, match="10 of 10 rows"):
        check_objects(sp.csr_matrix(X), krein.SpherePolynomial())
    with pytest.warns(krein.KreinWarning, match="10 of 10 rows"):
        check_objects(1e200 * X, krein.SpherePolynomial())
    check_objects(X / np.linalg.norm(X, axis=1, keepdims=True), krein.SpherePolynomial())


def test_new_objects_take_the_form_of_the_old_ones():
    X, new = np.eye(3), np.full((2, 3), 0.5)
    assert sp.issparse(check_new_objects(new, sp.csr_matrix(X), krein.Linear()))
    assert isinstance(check_new_objects(sp.csr_matrix(new), X, krein.Linear()), np.ndarray)
    callable_kernel = as_kernel(lambda A, B: A @ B.T)
    assert np.array_equal(check_new_objects(new.tolist(), X, callable_kernel), new)


def test_similarities_that_float64_cannot_hold_are_named():
    X = np.random.default_rng(0).standard_normal((60, 2))

    def faint(A, B):
        return 1e-310 * np.exp(-np.square(A[:, None] - B[None]).sum(-1))

    with pytest.raises(krein.KernelError, match="at most 1e-310, which float64 holds with few digits"):
        krein.approximate(X, faint, n_blocks=2, rank=3, random_state=0)


# -- rows that a kernel is called with by itself ---------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [krein.Linear(), krein.RBF(gamma=1.0), krein.TL1(rho=1.0), krein.Cosine()])
def test_masked_ragged_and_huge_rows_are_refused_by_a_kernel_itself(kernel):
    for X, words in (
        (np.ma.masked_array(np.eye(3), mask=np.eye(3) > 0), "masks 3 of its values"),
        ([[1.0, 2.0], [3.0]], "Make all rows equally long"),
        (np.array([[10**400, 1], [2, 3]], dtype=object), "Encode the values as numbers"),
    ):
        with pytest.raises(krein.InputError, match=words):
            kernel(X)


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e12, 1e15, -3e15])
@pytest.mark.parametrize("scale", [1.0, 2.0**-500, 2.0**400])
def test_gamma_of_rows_far_from_the_origin_is_that_of_exact_arithmetic(offset, scale):
    X = np.random.default_rng(0).normal(size=(50, 3)) + offset
    numbers = [Fraction(float(value)) for value in X.ravel()]
    mean = sum(numbers) / len(numbers)
    variance = sum((value - mean) ** 2 for value in numbers) / len(numbers)
    wanted = float(1 / (3 * variance))
    assert krein.RBF().bind(X * scale).gamma * scale**2 == pytest.approx(wanted, rel=1e-12)


def test_the_memory_of_a_function_that_reuses_it_is_copied():
    memory = np.empty(10**4)

    def reusing(A, B):
        out = memory[: len(A) * len(B)].reshape(len(A), len(B))
        out[:] = A @ B.T
        return out

    X = np.random.default_rng(0).normal(size=(20, 3))
    kernel = as_kernel(reusing)
    first = kernel(X)
    kernel(2.0 * X)
    np.testing.assert_array_equal(first, X @ X.T)
