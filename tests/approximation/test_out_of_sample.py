"""New objects: the rows of U through the landmarks, their similarities, and the shift that belongs to the diagonal."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import krein
from krein.approximation.bases import LandmarkMap
from krein.kernels import Evaluator


def blobs(n=400, d=4, c=4, seed=0):
    rng = np.random.default_rng(99)
    centres = 4.0 * rng.standard_normal((c, d))
    rng = np.random.default_rng(seed)
    return centres[rng.integers(c, size=n)] + rng.standard_normal((n, d))


def edits(A, B):
    """Common prefixes: a psd similarity of strings."""
    return np.array(
        [[2.0 ** len([1 for i in range(min(len(a), len(b))) if a[: i + 1] == b[: i + 1]]) for b in B] for a in A]
    )


def words(n, seed):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list("abcd"), 3)) for _ in range(n)]


both_couplings = pytest.mark.parametrize("coupling", ["shared", "pairwise"])
KERNELS = [
    krein.RBF(gamma=0.05),
    krein.Laplacian(gamma=0.05),
    krein.Polynomial(degree=2, gamma=0.05),
    krein.TL1(rho=20.0),
    krein.Sigmoid(gamma=0.02),
    krein.Normalized(krein.Polynomial(gamma=0.1)),
]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++"])
@both_couplings
def test_training_rows_extend_to_themselves(kernel, landmarks, coupling):
    X = blobs()
    a = krein.approximate(X, kernel, n_blocks=4, rank=10, coupling=coupling, landmarks=landmarks, random_state=0)
    f = a.factorization
    gap = (a.extend(X) - f.basis_rows(np.arange(len(X)))).toarray()
    weights = np.sqrt(np.abs(f.core).max(0) / np.abs(f.core).max())  # weak directions carry little and round more
    assert np.abs(gap * weights).max() <= 1e-8
    assert np.abs(a.kernel_rows(X) - f.to_dense()).max() <= 1e-8 * np.abs(f.to_dense()).max()
    assert a.self_similarities(X) == pytest.approx(f.diagonal(), abs=1e-8 * np.abs(f.to_dense()).max())


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 3e-3), ("int8", 2e-2)])
@both_couplings
def test_smaller_types_to_their_precision(dtype, tolerance, coupling):
    X = blobs()
    a = krein.approximate(X, krein.RBF(gamma=0.05), n_blocks=4, rank=10, coupling=coupling, dtype=dtype, random_state=0)
    f = a.factorization
    assert np.linalg.norm(a.kernel_rows(X) - f.to_dense()) <= tolerance * np.linalg.norm(f.to_dense())
    gap = (a.extend(X) - f.basis_rows(np.arange(len(X)))).toarray()
    weights = np.sqrt(np.diagonal(f.core @ f.core)) / np.linalg.norm(f.core, 2)
    assert np.linalg.norm(gap * weights) <= tolerance * np.sqrt(f.rank)


@both_couplings
def test_shapes_order_and_subsets(coupling):
    X, new = blobs(), blobs(17, seed=1)
    a = krein.approximate(X, krein.RBF(gamma=0.05), n_blocks=4, rank=10, coupling=coupling, random_state=0)
    u = a.extend(new)
    assert isinstance(u, sp.csr_matrix)
    assert u.shape == (17, a.factorization.rank)
    rows = a.kernel_rows(new)
    assert rows.shape == (17, 400)
    wanted = np.array([5, 399, 0, 5, -1])
    assert a.kernel_rows(new, indices=wanted) == pytest.approx(rows[:, wanted])
    assert a.kernel_rows(new, indices=[]).shape == (17, 0)
    assert a.kernel_rows(new, indices=3).shape == (17, 1)
    one_by_one = np.concatenate([a.kernel_rows(new[i : i + 1]) for i in range(17)])
    assert one_by_one == pytest.approx(rows, abs=1e-12)
    back = a.kernel_rows(new[::-1])
    assert back[::-1] == pytest.approx(rows, abs=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@both_couplings
def test_the_direct_way_is_the_kernel_itself(kernel, coupling):
    X, new = blobs(), blobs(9, seed=1)
    a = krein.approximate(X, kernel, n_blocks=3, rank=6, coupling=coupling, random_state=0)
    assert a.kernel_rows(new, exact=True) == pytest.approx(kernel(new, X))
    assert a.kernel_rows(new, indices=[7, 2], exact=True) == pytest.approx(kernel(new, X[[7, 2]]))
    assert a.self_similarities(new, exact=True) == pytest.approx(kernel.diag(new))


@pytest.mark.parametrize("kernel", KERNELS)
@both_couplings
def test_held_out_rows_are_about_as_good_as_those_at_the_fit(kernel, coupling):
    X, new = blobs(600), blobs(300, seed=1)
    a = krein.approximate(X, kernel, n_blocks=4, rank=20, coupling=coupling, random_state=0)
    exact = kernel(new, X)
    held_out = np.linalg.norm(a.kernel_rows(new) - exact) / np.linalg.norm(exact)
    assert held_out <= 2.0 * a.error().relative + 1e-6


@both_couplings
def test_the_shift_is_on_self_similarities_alone(coupling):
    X, new = blobs(), blobs(20, seed=1)
    plain = krein.approximate(
        X, krein.Sigmoid(gamma=0.1, coef0=-1.0), n_blocks=4, rank=10, coupling=coupling, drop=1.0, random_state=0
    )
    a = plain.corrected("shift")
    shift = a.factorization.shift
    assert shift > 0
    assert np.array_equal(a.kernel_rows(new), plain.kernel_rows(new))
    assert np.array_equal(a.kernel_rows(new, exact=True), plain.kernel_rows(new, exact=True))
    assert a.self_similarities(new) == pytest.approx(plain.self_similarities(new) + shift)
    assert a.self_similarities(new, exact=True) == pytest.approx(a.kernel.diag(new) + shift)
    inside = a.kernel_rows(X)
    inside[np.diag_indices(len(X))] += shift
    assert np.abs(inside - a.factorization.to_dense()).max() <= 1e-8


@both_couplings
def test_a_corrected_core_serves_new_objects(coupling):
    X, new = blobs(), blobs(20, seed=1)
    plain = krein.approximate(
        X, krein.Sigmoid(gamma=0.1, coef0=-1.0), n_blocks=4, rank=10, coupling=coupling, drop=1.0, random_state=0
    )
    a = plain.corrected("clip")
    u = a.extend(new)
    expected = a.factorization.lift(a.factorization.core @ u.T.toarray()).T
    assert a.kernel_rows(new) == pytest.approx(expected)
    assert np.abs(a.kernel_rows(X) - a.factorization.to_dense()).max() <= 1e-8


@both_couplings
def test_normalisation_keeps_the_landmarks_self_similarities(coupling):
    X, new = blobs(), blobs(30, seed=1)
    inner = krein.Polynomial(degree=2, gamma=0.1, coef0=1.0)
    a = krein.approximate(X, krein.Normalized(inner), n_blocks=3, rank=15, coupling=coupling, random_state=0)
    for m in a.maps:
        assert m.self_similarities == pytest.approx(inner.diag(X[m.rows]))
    own = np.sqrt(inner.diag(new)[:, None] * inner.diag(X))
    assert a.kernel_rows(new, exact=True) == pytest.approx(inner(new, X) / own)
    assert a.kernel_rows(new) == pytest.approx(inner(new, X) / own, abs=0.05)


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "rpcholesky", "leverage"])
@both_couplings
def test_strings_extend(landmarks, coupling):
    known, new = words(150, 0), words(40, 1)
    a = krein.approximate(known, edits, n_blocks=3, rank=30, coupling=coupling, landmarks=landmarks, random_state=0)
    dense = a.factorization.to_dense()
    assert np.abs(a.kernel_rows(known) - dense).max() <= 1e-8 * dense.max()
    exact = edits(new, known)
    assert np.linalg.norm(a.kernel_rows(new) - exact) <= 0.35 * np.linalg.norm(exact)
    assert a.kernel_rows(tuple(new), exact=True) == pytest.approx(exact)
    assert a.nbytes > 0


@both_couplings
def test_indices_of_a_matrix_extend(coupling):
    X = blobs(300)
    kernel = krein.RBF(gamma=0.02)
    S = kernel(X)
    for form in (np.arange(200), np.arange(200).reshape(-1, 1), list(range(200))):
        a = krein.approximate(form, krein.Precomputed(S), n_blocks=3, rank=20, coupling=coupling, random_state=0)
        new = np.arange(200, 300)
        assert np.array_equal(a.kernel_rows(new, exact=True), S[200:, :200])
        assert np.linalg.norm(a.kernel_rows(new) - S[200:, :200]) <= 0.1 * np.linalg.norm(S[200:, :200])
        assert np.array_equal(a.kernel_rows(new.reshape(-1, 1)), a.kernel_rows(new))


@both_couplings
def test_sparse_and_dense_agree(coupling):
    X, new = (blobs(n, seed=s) * (np.random.default_rng(s).random((n, 4)) > 0.3) for n, s in ((300, 0), (20, 1)))
    a = krein.approximate(X, krein.RBF(gamma=0.05), n_blocks=3, rank=12, coupling=coupling, random_state=0)
    thin = krein.approximate(
        sp.csr_matrix(X), krein.RBF(gamma=0.05), n_blocks=3, rank=12, coupling=coupling, random_state=0
    )
    assert thin.kernel_rows(sp.csr_matrix(new)) == pytest.approx(thin.kernel_rows(new), abs=1e-10)
    assert a.kernel_rows(sp.csr_matrix(new)) == pytest.approx(a.kernel_rows(new), abs=1e-10)
    assert thin.kernel_rows(new, exact=True) == pytest.approx(a.kernel_rows(new, exact=True))
    assert thin.error().relative == pytest.approx(a.error().relative, rel=0.5)
    assert thin.nbytes > 0


def test_a_kernel_not_known_to_be_psd_cannot_explode_on_new_objects():
    """Two landmarks whose similarities cancel at the fit, and a new object for which they do not."""
    S = np.array([[1.0, 1.0, 0.8], [1.0, 1.0, -0.2], [0.8, -0.2, 1.0]])
    kernel, basis = krein.Precomputed(S), np.full((10, 1), 0.3)
    plain = LandmarkMap(np.array([0, 1]), np.array([0, 1]), np.array([[1e6], [-1e6]]), usual=2.0)
    assert plain(Evaluator(kernel), np.array([2])) == pytest.approx(1e6)
    limited = plain.limited(basis, np.eye(1))
    with pytest.warns(krein.KreinWarning, match="1 of 2 new objects would have had similarities far above"):
        found = limited(Evaluator(kernel), np.array([0, 2]))
    assert found == pytest.approx(np.array([[0.0], [3 * 0.3]]))


@both_couplings
def test_maps_of_psd_kernels_have_no_limit(coupling):
    for kernel, n_limited in ((krein.RBF(gamma=1.0), 0), (krein.TL1(rho=3.0), 2)):
        a = krein.approximate(blobs(60), kernel, n_blocks=2, rank=6, coupling=coupling, random_state=0)
        assert sum(m.reach < np.inf for m in a.maps) == n_limited


@both_couplings
def test_larger_objects_are_not_taken_for_explosions(coupling):
    X = np.random.default_rng(0).standard_normal((60, 3))
    a = krein.approximate(X, lambda A, B: A @ B.T, n_blocks=2, rank=6, coupling=coupling, random_state=0)
    assert a.kernel_rows(1e3 * X[:5]) == pytest.approx(1e3 * X[:5] @ X.T, rel=1e-8, abs=1e-6)
