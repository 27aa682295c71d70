"""The Evaluator: the kernel's own values, counted, in chunks, and every misbehaviour named."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from krein.errors import InputError, KernelError
from krein.kernels import RBF, TL1, Evaluator, FromCallable, Linear, Normalized, Polynomial, Precomputed

X = np.random.default_rng(0).normal(size=(30, 3))
KERNELS = [RBF(0.3), TL1(2.0), Normalized(Polynomial(2, 0.5)), RBF(0.3) + Linear()]


@given(
    kernel=st.sampled_from(KERNELS),
    chunk_entries=st.integers(1, 400),
    n=st.integers(0, 30),
    m=st.integers(0, 30),
    form=st.sampled_from([np.asarray, sparse.csr_matrix]),
)
def test_chunks_change_nothing_and_every_entry_is_counted(kernel, chunk_entries, n, m, form):
    evaluator = Evaluator(kernel, chunk_entries=chunk_entries)
    A, B = form(X[:n]), form(X[30 - m :])
    expected = kernel(X, X)[:n, 30 - m :]
    np.testing.assert_allclose(evaluator.block(A, B), expected, rtol=1e-9, atol=1e-12)
    own = n + m if isinstance(kernel, Normalized) and n and m else 0  # the self-similarities it divides by
    assert evaluator.n_evaluations == n * m + own
    covered = 0
    for rows, block in evaluator.chunks(A, B):
        assert rows.start == covered
        assert block.size <= max(chunk_entries, m)
        np.testing.assert_allclose(block, expected[rows], rtol=1e-9, atol=1e-12)
        covered = rows.stop
    assert covered == n
    assert evaluator.n_evaluations == 2 * (n * m + own)
    np.testing.assert_allclose(evaluator.diag(A), kernel.diag(X)[:n])
    assert evaluator.n_evaluations == 2 * (n * m + own) + n


def test_float32_stays_float32():
    evaluator = Evaluator(RBF(0.3), chunk_entries=100)
    assert evaluator.block(X.astype(np.float32), X.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize("chunk_entries", [1, 70, 2**22])
def test_symmetric_is_exactly_symmetric(chunk_entries):
    for kernel in KERNELS:
        K = Evaluator(kernel, chunk_entries=chunk_entries).symmetric(X)
        np.testing.assert_array_equal(K, K.T)
        np.testing.assert_allclose(K, kernel(X), rtol=1e-9, atol=1e-12)


def test_symmetric_leaves_the_callables_own_array_alone():
    S = X @ X.T
    S[0, 1] += 1e-12
    before = S.copy()
    Evaluator(FromCallable(lambda A, B: S)).symmetric(list(range(30)))
    np.testing.assert_array_equal(S, before)


def test_objects_may_be_anything():
    def length_difference(A, B):
        return np.exp([[-abs(len(a) - len(b)) for b in B] for a in A])

    words = ["a", "bb", "ccc"]
    evaluator = Evaluator(FromCallable(length_difference), chunk_entries=2)
    for objects in (words, tuple(words), np.array(words, dtype=object)):
        np.testing.assert_allclose(evaluator.symmetric(objects), length_difference(words, words))
    assert Evaluator(length_difference).kernel == FromCallable(length_difference)


def test_cross_uses_given_self_similarities_of_normalized_kernels_only():
    A, B = X[:7], X[7:]
    normalized = Normalized(Polynomial(2, 0.5))
    for chunk_entries in (10, 1000):
        evaluator = Evaluator(normalized, chunk_entries=chunk_entries)
        np.testing.assert_allclose(evaluator.cross(A, B), normalized(A, B))
        np.testing.assert_allclose(evaluator.cross(A, B, 9 * normalized.kernel.diag(B)), normalized(A, B) / 3)
        assert evaluator.n_evaluations == 2 * (7 * 23 + 7) + 23  # B's self-similarities only where none were given
    np.testing.assert_allclose(Evaluator(RBF(0.3)).cross(A, B, np.ones(23)), RBF(0.3)(A, B))


def test_self_similarities_of_b_are_evaluated_once_not_per_chunk():
    calls = []

    class Counted(Linear):
        def diag(self, A):
            calls.append(len(A))
            return super().diag(A)

    Evaluator(Normalized(Counted()), chunk_entries=30).block(X, X)
    assert calls.count(30) == 1


def test_threads_share_one_count():
    evaluator = Evaluator(RBF(0.3), chunk_entries=31)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: evaluator.block(X, X), range(50)))
    assert evaluator.n_evaluations == 50 * 900


def test_an_evaluator_can_be_pickled():
    evaluator = Evaluator(RBF(0.3))
    evaluator.diag(X)
    twin = pickle.loads(pickle.dumps(evaluator))
    twin.diag(X)
    assert (evaluator.n_evaluations, twin.n_evaluations) == (30, 60)
    assert "n_evaluations=30" in repr(evaluator)


def test_a_memory_mapped_matrix_is_checked_block_by_block(tmp_path):
    file = np.memmap(tmp_path / "S", dtype=float, mode="w+", shape=(30, 30))
    file[:] = X @ X.T
    evaluator = Evaluator(Precomputed(file))
    file[3, 5] = file[5, 3] = np.nan  # after the check at the door
    evaluator.block(np.arange(3), np.arange(30))
    with pytest.raises(KernelError, match=r"1 of 50.*row 3, column 5"):
        evaluator.block(np.arange(5), np.arange(10))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda A, B: np.zeros((len(B) + 1, len(A))), r"shape \(30, 4\).*\(5, 30\)"),
        (lambda A, B: np.zeros(len(A)), r"shape \(30, 4\).*\(30,\)"),
        (lambda A, B: np.zeros((len(A), len(B)), complex), "real numbers.*complex128"),
        (lambda A, B: np.full((len(A), len(B)), "x"), "real numbers"),
        (lambda A, B: np.full((len(A), len(B)), np.nan), "120 of 120.*NaN"),
        (lambda A, B: np.full((len(A), len(B)), -np.inf), "120 of 120"),
    ],
)
def test_a_misbehaving_kernel_is_named(function, words):
    with pytest.raises(KernelError, match=words) as raised:
        Evaluator(FromCallable(function)).block(X, X[:4])
    assert "FromCallable" in str(raised.value)


def test_the_row_of_a_bad_value_is_the_callers():
    kernel = FromCallable(lambda A, B: np.where(A[:, :1] == X[17, 0], np.inf, 0.0) + np.zeros((len(A), len(B))))
    with pytest.raises(KernelError, match=r"\(inf\) at row 17, column 0"):
        Evaluator(kernel, chunk_entries=12).block(X, X[:4])


def test_a_bad_diagonal_is_named():
    class Bad(Linear):
        def diag(self, A):
            return np.full(len(A), np.nan)

    class Long(Linear):
        def diag(self, A):
            return np.zeros(len(A) + 1)

    with pytest.raises(KernelError, match=r"diag\(A\).*row 0"):
        Evaluator(Bad()).diag(X)
    with pytest.raises(KernelError, match=r"\(31,\)"):
        Evaluator(Long()).diag(X)


def test_huge_but_finite_values_pass():
    huge = np.full((30, 4), 1e308)
    np.testing.assert_array_equal(Evaluator(FromCallable(lambda A, B: huge)).block(X, X[:4]), huge)


def test_asymmetry_is_named_with_its_size():
    crooked = FromCallable(lambda A, B: A[:, :1] - B[:, 0])
    with pytest.raises(KernelError, match=r"symmetric.*difference is .*between objects"):
        Evaluator(crooked).symmetric(X)


def test_a_kernels_own_errors_pass_untouched():
    def broken(A, B):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        Evaluator(broken).block(X, X)


def test_a_callable_that_changes_its_float_type_loses_no_digits():
    def moody(A, B):
        return (A @ B.T).astype(np.float32 if A[0, 0] == X[0, 0] else np.float64)

    K = Evaluator(moody, chunk_entries=300).block(X, X)
    assert K.dtype == np.float64
    np.testing.assert_allclose(K[10:], (X @ X.T)[10:], rtol=1e-12, atol=1e-14)


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="chunk_entries"):
        Evaluator(RBF(1.0), chunk_entries=0)
    with pytest.raises(InputError, match="kernel"):
        Evaluator("rbf")
