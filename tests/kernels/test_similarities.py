"""Kernels made of something else: normalised, precomputed, a function of the user's."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from krein.errors import InputError, KernelError
from krein.kernels import (
    ELM,
    RBF,
    FromCallable,
    Linear,
    Normalized,
    Polynomial,
    Precomputed,
    Sigmoid,
    Traits,
    as_kernel,
    check_kernel,
)

X = np.random.default_rng(0).normal(size=(40, 3))
S = X @ X.T
WORDS = ["kernel", "krein", "colonel", "core", "", "kern", "spectrum"]


def common_letters(A, B):
    return np.array([[len(set(a) & set(b)) for b in B] for a in A])


# ------------------------------------------------------------------------------------------- Normalized (Remark 1)


@given(kernel=st.sampled_from([Linear(), Polynomial(3, 0.5), RBF(0.1), ELM(), Sigmoid(0.5)]), n=st.integers(1, 10))
def test_normalizing_makes_every_self_similarity_one(kernel, n):
    normalized, A = Normalized(kernel), X[:n]
    K = kernel(A, A)
    expected = np.array([[K[i, j] / np.sqrt(K[i, i] * K[j, j]) for j in range(n)] for i in range(n)])
    np.testing.assert_allclose(normalized(A), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.diag(normalized(A)), 1)
    np.testing.assert_array_equal(normalized.diag(A), np.ones(n))


def test_cross_uses_the_self_similarities_it_is_given():
    kernel = Normalized(Polynomial(2, 0.5))
    A, B = X[:5], X[5:12]
    np.testing.assert_allclose(kernel.cross(A, B, kernel.kernel.diag(B)), kernel(A, B))
    np.testing.assert_allclose(kernel.cross(A, B, 4 * kernel.kernel.diag(B)), kernel(A, B) / 2)
    with pytest.raises(InputError, match=r"\(7,\).*\(5,\)"):
        kernel.cross(A, B, np.ones(5))


def test_normalizing_inherits_and_bounds():
    traits = Normalized(Polynomial(3, 0.5)).traits
    assert (traits.psd, traits.low, traits.high, traits.constant_diagonal) == (True, -1.0, 1.0, True)
    assert Normalized(Polynomial(2, 0.5, -1.0)).traits.psd is False
    unknown = Normalized(Sigmoid(1.0)).traits
    assert (unknown.psd, unknown.low, unknown.high) == (None, None, None)
    assert Normalized(Linear()).accepts_sparse
    assert not Normalized(common_letters).accepts_sparse


def test_normalizing_stays_in_float32_and_at_huge_scales():
    assert Normalized(Linear())(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(Normalized(Linear())(X * 1e100), Normalized(Linear())(X), atol=1e-12)


def test_normalizing_needs_positive_self_similarities():
    with pytest.raises(KernelError, match=r"2 of 40.*smallest 0.*first at 3.*Drop") as raised:
        Normalized(Linear())(np.where(np.isin(np.arange(40), [3, 7])[:, None], 0, X))
    assert "Linear()" in str(raised.value)
    with pytest.raises(KernelError, match="smallest -"):
        Normalized(Sigmoid(1.0, -50.0)).diag(X)
    with pytest.raises(KernelError, match="1 of 1"):
        Normalized(Linear())(np.array([[np.nan]]))


# ------------------------------------------------------------------------------------------- Precomputed


@pytest.mark.parametrize(
    "form", [np.asarray, sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix, np.ndarray.tolist]
)
def test_a_given_matrix_is_read_in_blocks(form):
    kernel = Precomputed(form(S))
    A, B = np.array([3, 0, 3]), np.array([5, 7])
    np.testing.assert_allclose(kernel(A, B), S[np.ix_(A, B)])
    np.testing.assert_allclose(kernel(A), S[np.ix_(A, A)])
    np.testing.assert_allclose(kernel(A[:, None], B[:, None].astype(float)), S[np.ix_(A, B)])
    np.testing.assert_allclose(kernel.diag(A), S[A, A])
    assert isinstance(kernel(A, B), np.ndarray)
    assert kernel.n_objects == 40


@pytest.fixture
def filed(tmp_path):
    """A file of similarities, float32, and its path."""
    path = tmp_path / "S.npy"
    file = np.lib.format.open_memmap(path, "w+", np.float32, (40, 40))
    file[:] = S
    file.flush()
    return file, path


def test_a_file_is_read_in_blocks_by_path_or_as_a_memory_map(filed):
    file, path = filed
    for source in (file, path, str(path)):
        kernel = Precomputed(source)
        for a, b in [(np.arange(2, 9), np.arange(4)), (np.arange(3), np.arange(40)), (np.array([7, 7, 1]), [2])]:
            block = kernel(a, b)
            assert type(block) is np.ndarray
            assert block.dtype == np.float32
            np.testing.assert_allclose(block, S[np.ix_(a, b)], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(kernel.diag([3, 1]), S[[3, 1], [3, 1]], rtol=1e-6)
        assert "memory-mapped" in repr(kernel)


def test_a_block_of_a_file_is_the_same_in_steps(filed, monkeypatch):
    monkeypatch.setattr("krein.kernels.precomputed.READ_ENTRIES", 50)
    kernel = Precomputed(filed[1])
    np.testing.assert_allclose(kernel(np.arange(40), np.arange(30)), S[:, :30], rtol=1e-5, atol=1e-6)


def test_what_was_written_to_a_file_is_still_there_after_reading(filed):
    file, _ = filed
    kernel = Precomputed(file)
    file[0, 0] = 123.0
    assert kernel([0])[0, 0] == 123.0
    assert file[0, 0] == 123.0


def test_a_file_is_checked_whole_while_it_is_small_and_sampled_beyond(filed, monkeypatch):
    file, path = filed
    file[0, 1] = np.nan
    file.flush()
    with pytest.raises(InputError, match=r"1 of 40².*\(nan\) at S\[0, 1\]"):
        Precomputed(path)
    file[0, 1] = S[0, 1] + 2.0
    file.flush()
    with pytest.raises(InputError, match=r"difference is 2, between S\[0, 1\]"):
        Precomputed(path)
    monkeypatch.setattr("krein.kernels.precomputed.CHECKED_ENTRIES", 100)
    with pytest.raises(InputError, match=r"between S\[0, 1\]"):
        Precomputed(path)  # 512 rows are all there are
    monkeypatch.setattr("krein.kernels.precomputed.SAMPLED_ROWS", 2)
    kernel = Precomputed(path)
    assert "checked on a sample" in repr(kernel)
    with pytest.raises(InputError, match=r"between S\[0, 1\]"):
        Precomputed(path, check="all")


def test_a_missing_or_foreign_file_is_refused(tmp_path):
    (tmp_path / "no.npy").write_text("nothing of the kind")
    for path in (tmp_path / "absent.npy", tmp_path / "no.npy"):
        with pytest.raises(InputError, match="cannot be opened as a NumPy array"):
            Precomputed(path)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_an_asymmetric_matrix_is_averaged_on_request(form, tmp_path):
    crooked = S + np.triu(np.ones((40, 40)))
    kernel = Precomputed(form(crooked), asymmetric="average")
    expected = 0.5 * (crooked + crooked.T)
    np.testing.assert_allclose(kernel(np.arange(40)), expected)
    np.testing.assert_allclose(kernel([3, 1], [5, 2, 9]), expected[np.ix_([3, 1], [5, 2, 9])])
    assert "averaged" in repr(kernel)
    with pytest.raises(InputError, match="'refuse', 'average'"):
        Precomputed(crooked, asymmetric="upper")
    crooked[2, 3] = np.inf
    with pytest.raises(InputError, match=r"S\[2, 3\]"):
        Precomputed(form(crooked), asymmetric="average")


def test_integer_matrices_give_float_blocks():
    assert Precomputed(np.eye(3, dtype=int))([0, 1]).dtype == np.float64
    assert Precomputed(np.eye(3, dtype=bool))([0, 1]).dtype == np.float64
    assert Precomputed(np.eye(3, dtype=np.uint8)).diag([0, 1]).dtype == np.float64


def test_precomputed_is_equal_by_identity_and_copied_without_its_numbers():
    twin = S.copy()
    assert Precomputed(S) == Precomputed(S)
    assert hash(Precomputed(S)) == hash(Precomputed(S))
    assert Precomputed(S) != Precomputed(twin)
    kernel = Precomputed(S)
    assert copy.deepcopy(kernel) is kernel
    assert kernel.bind(np.arange(3)) is kernel
    assert repr(kernel) == "Precomputed(<40 x 40 dense float64 matrix>)"
    assert "sparse" in repr(Precomputed(sparse.eye(3, format="csr")))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_an_asymmetric_matrix_is_refused_and_the_place_shown(form):
    crooked = S.copy()
    crooked[30, 4] += 0.5
    with pytest.raises(InputError, match=r"difference is 0\.5, between S\[(4, 30|30, 4)\].*average"):
        Precomputed(form(crooked))
    Precomputed(form(S * (1 + 1e-12 * np.arange(40))))  # rounding is not asymmetry


def test_asymmetry_is_found_in_any_strip(monkeypatch):
    monkeypatch.setattr("krein.kernels.kernel.STRIP", 7)
    for i, j in [(0, 39), (39, 0), (20, 21), (38, 37), (6, 7)]:
        crooked = S.copy()
        crooked[i, j] += 1.0
        with pytest.raises(InputError, match=rf"S\[({i}, {j}|{j}, {i})\]"):
            Precomputed(crooked)
    Precomputed(S)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_matrices_are_refused(form, value):
    broken = S.copy()
    broken[2, 3] = broken[3, 2] = value
    with pytest.raises(InputError, match=r"2 of 40².*at S\[2, 3\]"):
        Precomputed(form(broken))


@pytest.mark.parametrize("bad", [np.zeros((2, 3)), np.zeros(4), np.eye(2, dtype=complex), [["a"]], np.zeros((1, 1, 1))])
def test_what_is_no_square_matrix_is_refused(bad):
    with pytest.raises(InputError, match="square"):
        Precomputed(bad)


@pytest.mark.parametrize("bad", [[-1], [40], [0.5], np.zeros((2, 2), int), ["a"], [[[1]]], [np.nan]])
def test_what_is_no_index_is_refused(bad):
    with pytest.raises(InputError, match="indices"):
        Precomputed(S)(bad)
    with pytest.raises(InputError, match="indices"):
        Precomputed(S).diag(bad)


def test_the_empty_matrix_and_no_indices_are_fine():
    assert Precomputed(np.empty((0, 0)))(np.empty(0, int)).shape == (0, 0)
    assert Precomputed(S)([], [1, 2]).shape == (0, 2)


# ------------------------------------------------------------------------------------------- callables


def test_a_callable_is_a_kernel_of_any_objects():
    kernel = as_kernel(common_letters)
    assert isinstance(kernel, FromCallable)
    assert kernel(WORDS).dtype == np.float64
    np.testing.assert_array_equal(kernel(WORDS, WORDS[:2]), common_letters(WORDS, WORDS[:2]))
    np.testing.assert_array_equal(kernel.diag(WORDS), [len(set(word)) for word in WORDS])
    assert kernel.traits == Traits(stationary=False, psd=None)
    assert kernel.bind(WORDS) is kernel
    assert kernel == as_kernel(common_letters)
    assert check_kernel(kernel, WORDS).ok


def test_the_diagonal_of_a_callable_is_evaluated_in_small_blocks():
    seen = []

    def counted(A, B):
        seen.append((len(A), len(B)))
        return A @ B.T

    np.testing.assert_allclose(as_kernel(counted).diag(X), np.diag(S))
    assert seen == [(8, 8)] * 5
    assert as_kernel(counted).diag_entries(len(X)) == 5 * 64
    assert as_kernel(counted).diag_entries(11) == 64 + 9
    assert as_kernel(counted).diag(X[:0]).shape == (0,)


def test_a_callable_may_return_sparse_or_lists():
    np.testing.assert_array_equal(as_kernel(lambda A, B: sparse.csr_matrix(A @ B.T))(X), S)
    np.testing.assert_array_equal(as_kernel(lambda A, B: (A @ B.T).tolist())(X), S)


def test_a_misshapen_diagonal_block_is_named():
    with pytest.raises(KernelError, match=r"\(8, 8\).*\(3,\)"):
        as_kernel(lambda A, B: np.zeros(3)).diag(X)


def test_as_kernel_passes_kernels_and_refuses_the_rest():
    kernel = RBF(1.0)
    assert as_kernel(kernel) is kernel
    with pytest.raises(InputError, match=r"RBF\(\)"):
        as_kernel(RBF)
    for bad in ("rbf", 3, None, S):
        with pytest.raises(InputError, match=r"callable k\(A, B\)"):
            as_kernel(bad)
    with pytest.raises(InputError, match="callable"):
        FromCallable("rbf")
    with pytest.raises(InputError, match="Traits"):
        FromCallable(common_letters, {"psd": True})


def test_an_archive_is_not_a_matrix(tmp_path):
    np.savez(tmp_path / "S.npz", S=np.eye(3), y=np.zeros(3))
    with pytest.raises(InputError, match=r"archive of 2 arrays \(S, y\).*numpy.load"):
        Precomputed(tmp_path / "S.npz")
    sparse.save_npz(tmp_path / "sparse.npz", sparse.csr_matrix(np.eye(3)))
    with pytest.raises(InputError, match=r"archive.*scipy.sparse.load_npz"):
        Precomputed(str(tmp_path / "sparse.npz"))
