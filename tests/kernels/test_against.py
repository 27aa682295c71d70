"""k(., B) with B prepared once: the numbers of k(A, B), counted and checked, in little more than B's own memory."""

import pickle

import naive_kernels as naive
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse

from krein.errors import InputError, KernelError
from krein.kernels import (
    ELM,
    NTK,
    RBF,
    TL1,
    ArcCosine,
    Cosine,
    DoubleCentred,
    EditDistance,
    Evaluator,
    FromCallable,
    FromDistances,
    Kernel,
    Laplacian,
    Linear,
    Normalized,
    Polynomial,
    Precomputed,
    Sigmoid,
    counting,
)
from krein.kernels.vectors import Compared, SquaredDistances

CATALOGUE = [
    *(kernel for kernel, _ in naive.FORMULAS),
    Normalized(Polynomial(2, 0.5)),
    RBF(0.3) + Linear(),
    RBF(0.3) * Laplacian(0.1) * 2.0,
    Normalized(RBF(0.2) + Polynomial(3, 0.1)) + Cosine(),
]
FORMS = {
    "float64": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "integers": lambda X: np.round(3 * X).astype(int) + 1,
    "sparse": lambda X: sparse.csr_matrix(np.where(np.abs(X) > 0.3, X, 0.0)),
    "sparse float32": lambda X: sparse.csr_matrix(X.astype(np.float32)),
    "columns first": np.asfortranarray,
    "every second": lambda X: np.repeat(X, 2, axis=0)[::2],
}


def rows(n: int, d: int, seed: int, offset: float = 0.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)) + offset


def as_float64(X) -> np.ndarray:
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)


def assert_same(kernel, values, expected) -> None:
    """To rounding, which arcsin and arccos magnify near 1 to its square root."""
    assert values.dtype == expected.dtype
    eps = np.finfo(values.dtype).eps
    near = 1e-7 if isinstance(kernel, ELM | ArcCosine | NTK) else 1e-12
    np.testing.assert_allclose(values, expected, rtol=0, atol=max(near, 50 * eps) * np.abs(expected).max(initial=0.0))


@given(
    kernel=st.sampled_from(CATALOGUE),
    form_a=st.sampled_from(list(FORMS)),
    form_b=st.sampled_from(list(FORMS)),
    n=st.integers(0, 6),
    m=st.integers(1, 30),
    d=st.integers(1, 6),
    offset=st.sampled_from([0.0, 5.0]),
    seed=st.integers(0, 10**6),
)
@example(kernel=RBF(0.3), form_a="sparse", form_b="float64", n=1, m=9, d=3, offset=5.0, seed=0)
@example(kernel=RBF(0.3), form_a="float64", form_b="float32", n=1, m=9, d=3, offset=5.0, seed=0)
@example(kernel=Laplacian(0.2), form_a="float64", form_b="sparse", n=0, m=1, d=1, offset=0.0, seed=0)
def test_it_is_the_kernel(kernel, form_a, form_b, n, m, d, offset, seed):
    A, B = FORMS[form_a](rows(n, d, seed, offset)), FORMS[form_b](rows(m, d, seed + 1, offset))
    function, expected = kernel.against(B), kernel(A, B)
    assert expected.shape == (n, m)
    for _ in range(2):  # what is prepared is used again
        assert_same(kernel, function(A), expected)
    assert_same(kernel, pickle.loads(pickle.dumps(function))(A), expected)
    assert_same(kernel, np.concatenate([expected[:0], *(function(A[i : i + 1]) for i in range(n))]), expected)


@pytest.mark.parametrize(("kernel", "formula"), naive.FORMULAS, ids=lambda v: repr(v) if isinstance(v, Kernel) else "")
@pytest.mark.parametrize("form", list(FORMS))
def test_it_is_the_formula(kernel, formula, form):
    A, B = FORMS[form](rows(5, 4, 0)), FORMS[form](rows(9, 4, 1))
    expected = naive.gram(formula, as_float64(A), as_float64(B))
    tolerance = 1e-4 if "float32" in form else 1e-7
    np.testing.assert_allclose(kernel.against(B)(A), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("offset", [0.0, 1.0, 30.0, 1e3, 1e6])
@pytest.mark.parametrize("power", [-200, -120, -90, 0, 90, 120, 150])
def test_neither_offset_nor_scale_costs_digits(offset, power):
    A, B = rows(6, 3, 0) + offset, rows(40, 3, 1) + offset
    expected = np.exp(-0.1 * np.square(A[:, None] - B).sum(2))
    scale = 10.0**power
    if power not in (-200, 150):  # gamma itself has to be a number
        values = RBF(0.1 / scale**2).against(B * scale)(A * scale)
        np.testing.assert_allclose(values, expected, atol=1e-13 * max(1.0, offset))
    squares = SquaredDistances(B * scale, 1 / scale)(A * scale)
    np.testing.assert_allclose(squares, np.square(A[:, None] - B).sum(2), rtol=1e-9, atol=1e-12 * max(1.0, offset))


@pytest.mark.parametrize("power", [-36, -30, -12, 12, 17])
def test_float32_on_any_scale(power):
    A, B, scale = rows(6, 3, 0), rows(40, 3, 1), np.float32(10.0**power)
    A, B = A.astype(np.float32) * scale, B.astype(np.float32) * scale
    apart = (A.astype(float)[:, None] - B.astype(float)) / 10.0**power
    squares = SquaredDistances(B, 10.0**-power)(A)
    assert squares.dtype == np.float32
    np.testing.assert_allclose(squares, np.square(apart).sum(2), rtol=1e-3, atol=1e-4)


def test_float32_far_from_its_mean_is_done_in_float64_and_float64_by_differences():
    A, B = (rows(n, 3, n).astype(np.float32) for n in (4, 30))
    A[0] += 1e5  # a new row alone
    single = SquaredDistances(B)(A)
    A, B = A.astype(float), B.astype(float)
    np.testing.assert_allclose(single, np.square(A[:, None] - B).sum(2), rtol=1e-6, atol=1e-6)
    B[0] -= 1e6
    expected = np.square(A[:, None] - B).sum(2)
    np.testing.assert_allclose(SquaredDistances(B)(A), expected, rtol=1e-12)
    np.testing.assert_allclose(RBF(1.0).against(B)(A), np.exp(-expected), atol=1e-12)


@pytest.mark.parametrize("kernel", [RBF(0.01), Polynomial(3, 0.1), Cosine(), Sigmoid(0.1), ArcCosine(1)], ids=repr)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_ordinary_rows_are_not_copied(kernel, form):
    B = form(rows(500, 20, 0, 0.5))
    function = kernel.against(B)
    assert isinstance(function, Compared)
    function(B[:2])
    held = B.nbytes if isinstance(B, np.ndarray) else B.data.nbytes + B.indices.nbytes + B.indptr.nbytes
    assert function.nbytes <= held + 3 * 8 * 500 + 8 * 20
    assert len(pickle.dumps(function)) <= held + 2000
    assert isinstance(B, np.ndarray) is False or function.rows.b is B


def test_rows_far_from_zero_are_copied_once():
    B = rows(500, 20, 0, 1e3)
    function = RBF(0.01).against(B)
    function(B[:2])
    assert function.nbytes <= 2 * B.nbytes + 8 * 500 + 8 * 20


def test_a_kernel_with_its_own_call_is_not_bypassed():
    class Doubled(RBF):
        def __call__(self, A, B=None):
            return 2 * super().__call__(A, B)

    class Halved(Normalized):
        def cross(self, A, B, own_B):
            return super().cross(A, B, own_B) / 2

    A, B = rows(3, 2, 0), rows(5, 2, 1)
    for kernel, plain, factor in (
        (Doubled(0.3), RBF(0.3), 2.0),
        (Halved(Polynomial(2, 1.0)), Normalized(Polynomial(2, 1.0)), 0.5),
    ):
        np.testing.assert_allclose(kernel.against(B)(A), factor * plain(A, B))
        np.testing.assert_allclose(kernel(A, B), factor * plain(A, B))
        np.testing.assert_allclose(Evaluator(kernel).block(A, B), factor * plain(A, B))


def test_other_columns_are_refused():
    with pytest.raises(InputError, match="one length; got 3 and 2 features"):
        RBF(0.3).against(rows(5, 2, 0))(rows(1, 3, 0))


# -- through the Evaluator ---------------------------------------------------------------------------------------------

WORDS = ["one", "two", "three", "four", "five"]
OTHERS = [
    (FromDistances(EditDistance(), scale=2.0), WORDS),
    (FromCallable(lambda A, B: np.multiply.outer([len(a) for a in A], [len(b) for b in B]) * 1.0), WORDS),
    (Precomputed(np.eye(5) + 0.1), np.arange(5)),
    (DoubleCentred(EditDistance(), n_references=3).bind(WORDS), WORDS),
]


@pytest.mark.parametrize(
    ("kernel", "objects"),
    [*((k, rows(30, 3, 0)) for k in CATALOGUE), *OTHERS],
    ids=lambda v: repr(v)[:40] if isinstance(v, Kernel) else "",
)
@pytest.mark.parametrize("chunk_entries", [20, 2**18])
def test_calls_are_counted_and_what_b_needs_is_counted_once(kernel, objects, chunk_entries):
    evaluator = Evaluator(kernel, chunk_entries=chunk_entries)
    n = len(objects)
    prepared = evaluator.against(objects)
    assert evaluator.n_evaluations == 0
    for calls in (1, 2, 3):
        block = prepared.block(objects[:2])
        assert_same(kernel, block, kernel(objects[:2], objects))
        each = kernel.block_entries(2, n) - kernel.against_entries(n)
        assert evaluator.n_evaluations == kernel.against_entries(n) + calls * each
    assert evaluator.n_evaluations <= 3 * (2 * n + 2 * 8) + 3 * n + 64
    found = np.concatenate([block for _, block in prepared.chunks(objects)])
    assert_same(kernel, found, kernel(objects, objects))


def test_it_counts_where_the_evaluator_does():
    B = rows(30, 3, 0)
    with counting() as tally:
        prepared = Evaluator(Normalized(Polynomial(2, 0.5))).against(B)
        prepared.block(B[:1])
        prepared.block(B[:1])
    assert tally.n_evaluations == 30 + 2 * (30 + 1)


def test_known_self_similarities_are_taken():
    A, B = rows(3, 3, 0), rows(30, 3, 1)
    kernel = Normalized(Polynomial(2, 0.5))
    evaluator = Evaluator(kernel)
    values = evaluator.against(B, 9 * kernel.kernel.diag(B)).block(A)
    np.testing.assert_allclose(values, kernel(A, B) / 3)
    assert evaluator.n_evaluations == 3 * 30 + 3


def test_bad_values_are_still_named():
    B = rows(30, 3, 0)
    prepared = Evaluator(Polynomial(3, 1.0)).against(B)
    with pytest.raises(KernelError, match=r"must return finite numbers; 30 of 30 .*row 0"):
        prepared.block(np.full((1, 3), 1e200))
    with pytest.raises(KernelError, match="shape"):
        Evaluator(FromCallable(lambda A, B: np.zeros(3))).against(B).block(B[:1])


def test_nothing_is_asked_for_nothing():
    B = rows(30, 3, 0)
    evaluator = Evaluator(Normalized(Polynomial(2, 0.5)))
    assert evaluator.against(B).block(B[:0]).shape == (0, 30)
    assert evaluator.against(B[:0]).block(B).shape == (30, 0)
    assert evaluator.n_evaluations == 0


def test_it_can_be_pickled_without_what_it_prepared():
    B = rows(2000, 30, 0, 1e3)  # so far from 0 that a copy is made
    for kernel in (RBF(0.01), TL1(9.0), Normalized(Polynomial(2, 0.5))):
        prepared = Evaluator(kernel).against(B)
        values = prepared.block(B[:3])
        data = pickle.dumps(prepared)
        assert len(data) <= B.nbytes + 2000
        np.testing.assert_array_equal(pickle.loads(data).block(B[:3]), values)
