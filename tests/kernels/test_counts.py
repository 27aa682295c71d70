"""Kernels of fingerprints, sets, counts, categories and histograms, beside scikit-learn, SciPy and double loops."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import chi2_kernel

import krein
from krein.kernels import (
    ChiSquared,
    Hamming,
    HistogramIntersection,
    Jaccard,
    MinMax,
    Tanimoto,
    check_kernel,
)

KERNELS = [Tanimoto(), Jaccard(), MinMax(), Hamming(), ChiSquared(0.4), HistogramIntersection()]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)
counts = arrays(np.float64, st.tuples(st.integers(1, 7), st.just(4)), elements=st.integers(0, 5).map(float))
fractions = arrays(np.float64, st.tuples(st.integers(1, 7), st.just(4)), elements=st.floats(0.0, 100.0, width=32))


def naive_tanimoto(x, y):
    either = sum(s * s for s in x) + sum(t * t for t in y) - sum(s * t for s, t in zip(x, y, strict=True))
    return sum(s * t for s, t in zip(x, y, strict=True)) / either if either else 1.0


def naive_minmax(x, y):
    most = sum(map(max, x, y))
    return sum(map(min, x, y)) / most if most else 1.0


def gram(function, A, B):
    return np.array([[function(x, y) for y in B] for x in A])


REFERENCES = {
    Tanimoto(): lambda A, B: gram(naive_tanimoto, A, B),
    MinMax(): lambda A, B: gram(naive_minmax, A, B),
    HistogramIntersection(): lambda A, B: gram(lambda x, y: sum(map(min, x, y)), A, B),
    Hamming(): lambda A, B: 1.0 - cdist(A, B, "hamming"),
    ChiSquared(0.4): lambda A, B: chi2_kernel(A, B, gamma=0.4),
}


def with_stored_zeros(X):
    ends = np.arange(0, X.size + 1, X.shape[1])
    return sparse.csr_matrix((X.ravel(), np.tile(np.arange(X.shape[1]), len(X)), ends), shape=X.shape)


FORMS = {
    "dense": lambda X: X,
    "dense float32": lambda X: X.astype(np.float32),
    "sparse": sparse.csr_matrix,
    "sparse float32": lambda X: sparse.csr_matrix(X, dtype=np.float32),
    "sparse array": sparse.csr_array,
    "stored zeros": with_stored_zeros,
}


def rows_for(kernel, X):
    return (X > 1.0).astype(np.float64) if isinstance(kernel, Jaccard) else X


@pytest.mark.parametrize("kernel", list(REFERENCES), ids=repr)
@given(A=counts | fractions, B=counts | fractions, data=st.data())
def test_values_are_those_of_the_textbook_in_every_form(kernel, A, B, data):
    taken = [name for name in FORMS if kernel.accepts_sparse or name.startswith("dense")]
    names = data.draw(st.tuples(st.sampled_from(taken), st.sampled_from(taken)))
    left, right = FORMS[names[0]](A), FORMS[names[1]](B)
    expected, values = REFERENCES[kernel](A, B), kernel(left, right)
    assert values.dtype == np.result_type(left.dtype, right.dtype)
    eps = np.finfo(values.dtype).eps
    np.testing.assert_allclose(values, expected, rtol=0, atol=50 * eps * max(1.0, np.abs(expected).max(), A.sum()))


@given(A=counts, B=counts)
def test_jaccard_is_one_minus_scipys_distance(A, B):
    A, B = A > 1.0, B > 1.0
    with np.errstate(invalid="ignore"):
        expected = 1.0 - cdist(A, B, "jaccard")
    for form in (np.asarray, sparse.csr_matrix):
        np.testing.assert_allclose(Jaccard()(form(A.astype(float)), form(B.astype(float))), expected, atol=1e-15)
        np.testing.assert_allclose(MinMax()(form(A.astype(float)), form(B.astype(float))), expected, atol=1e-15)


@each_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_promises_hold_on_counts(kernel, dtype):
    X = rows_for(kernel, np.random.default_rng(0).poisson(1.0, size=(150, 8)).astype(dtype))
    X[3] = X[4] = 0
    assert kernel.traits.psd is True
    assert check_kernel(kernel, X.astype(dtype), random_state=0).ok
    if kernel.accepts_sparse:
        assert check_kernel(kernel, sparse.csr_matrix(X.astype(dtype)), random_state=0).ok


@each_kernel
@given(X=counts | fractions)
def test_they_are_psd(kernel, X):
    X = rows_for(kernel, X)
    K = kernel(X)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(K.diagonal(), kernel.diag(X), rtol=1e-12)
    assert np.linalg.eigvalsh(K)[0] >= -1e-13 * len(K) * np.abs(K).max()


@given(X=arrays(np.float64, st.tuples(st.integers(1, 9), st.just(3)), elements=st.floats(-9.0, 9.0, width=16)))
def test_tanimoto_is_psd_with_negative_entries_too(X):
    K = Tanimoto()(X)
    assert np.linalg.eigvalsh(K)[0] >= -1e-12 * len(K)
    assert K.min() >= Tanimoto().traits.low - 1e-12


@each_kernel
def test_what_is_prepared_is_used_again(kernel):
    rng = np.random.default_rng(0)
    A, B = (rows_for(kernel, rng.poisson(1.0, size=(n, 6)).astype(float)) for n in (5, 9))
    for form in (np.asarray, sparse.csr_matrix) if kernel.accepts_sparse else (np.asarray,):
        function = kernel.against(form(B))
        for each in (function, pickle.loads(pickle.dumps(function))):
            for _ in range(2):
                np.testing.assert_allclose(each(form(A)), kernel(A, B), rtol=0, atol=1e-14)
            assert each(form(A)[:0]).shape == (0, 9)


@pytest.mark.parametrize("kernel", [MinMax(), HistogramIntersection(), ChiSquared()], ids=repr)
def test_negative_entries_are_refused_on_either_side(kernel):
    good, bad = np.ones((2, 3)), np.full((2, 3), -0.5)
    for call in (lambda: kernel(good, bad), lambda: kernel(bad, good)):
        with pytest.raises(krein.InputError, match=r">= 0; got -0.5"):
            call()


def test_what_is_no_set_is_refused():
    with pytest.raises(krein.InputError, match=r"1 other entries, the first 3\. Pass X != 0"):
        Jaccard()([[0.0, 3.0]], [[1.0, 0.0]])
    with pytest.raises(krein.InputError, match="MinMax for counts"):
        Jaccard()([[0.0, 1.0]], sparse.csr_matrix([[0.5, 0.0]]))


def test_chi_squared_refuses_sparse_rows():
    X = sparse.csr_matrix(np.eye(30))
    for call in (lambda: ChiSquared()(X), lambda: krein.SVC(kernel="chi2").fit(X, np.arange(30) % 2)):
        with pytest.raises(krein.InputError, match=r"does not take sparse matrices; pass X.toarray\(\)"):
            call()


def test_large_counts_are_compared_without_units():
    X = sparse.csr_matrix(np.array([[1e9, 0.0, 3.0], [2e9, 5.0, 0.0]]))
    np.testing.assert_allclose(MinMax()(X)[0, 1], 1e9 / (2e9 + 8.0), rtol=1e-12)
    few = sparse.csr_matrix(np.array([[2.0, 1.0, 0.0]]))
    np.testing.assert_allclose(HistogramIntersection()(X, few), [[2.0], [3.0]])
    np.testing.assert_allclose(HistogramIntersection()(few, X), [[2.0, 3.0]])


@pytest.mark.parametrize("name", ["tanimoto", "minmax", "jaccard", "hamming", "histogram-intersection"])
def test_machines_take_them_by_name_on_sparse_bits(name):
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    bits = rng.random((120, 40)) < np.where(np.arange(40) % 2 == y[:, None], 0.3, 0.1)
    X = sparse.csr_matrix(bits.astype(float))
    machine = krein.SVC(kernel=name, C=10.0, random_state=0).fit(X[:80], y[:80])
    dense = krein.SVC(kernel=name, C=10.0, random_state=0).fit(X[:80].toarray(), y[:80])
    assert machine.score(X[80:], y[80:]) > 0.75
    np.testing.assert_allclose(machine.decision_function(X[80:]), dense.decision_function(X[80:].toarray()), atol=1e-2)
