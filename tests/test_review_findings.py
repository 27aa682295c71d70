"""What a review found broken, each finding as the statement that has to hold."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import krein
from krein import BlockSparse, Factorization, InputError, KernelError, KreinWarning
from krein.factorization import factorization
from krein.kernels import Normalized


def relative(found, exact):
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def low_rank(rank, seed):
    """A symmetric matrix of ``rank`` as links: eigenvalues of either sign, spread over six decades."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(rank + 1, 120))
    values = 10.0 ** rng.uniform(-6.0, 0.0, rank) * rng.choice([-1.0, 1.0], rank)
    return Factorization.from_links([rng.standard_normal((n, rank))], np.diag(values))


def small(seed=0, shift=0.0):
    """Three blocks of rank 2 on 24 rows, in a shuffled order."""
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((6, 6))
    return Factorization.from_links(
        [rng.standard_normal((8, 2)) for _ in range(3)], (L + L.T) / 2, rng.permutation(24), shift
    )


# -- Lanczos -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 3, 5])
@pytest.mark.parametrize("seed", range(20))
def test_lanczos_never_calls_a_symmetric_low_rank_operator_asymmetric(rank, seed):
    f = low_rank(rank, seed)
    found = krein.lanczos(f, random_state=seed)
    exact = np.linalg.eigvalsh(f.to_dense())
    assert abs(found.smallest - exact[0]) <= found.residual + 1e-10 * np.abs(exact).max()


@pytest.mark.parametrize("seed", range(5))
def test_lanczos_refuses_an_asymmetric_matrix(seed):
    with pytest.raises(InputError, match="symmetric"):
        krein.lanczos(np.triu(np.ones((50, 50))), random_state=seed)


@pytest.mark.parametrize("seed", range(5))
def test_lanczos_may_take_more_steps_than_rows(seed):
    A = np.random.default_rng(seed).standard_normal((30, 30))
    A = A + A.T
    exact = np.linalg.eigvalsh(A)
    found = krein.lanczos(A, iterations=90, random_state=seed)
    assert 30 < found.iterations <= 90
    size = np.abs(exact).max()
    assert found.smallest == pytest.approx(exact[0], abs=1e-8 * size)
    assert found.largest == pytest.approx(exact[-1], abs=1e-8 * size)
    gaps = np.abs(found.ritz_values[:, None] - exact).min(1)
    assert gaps.max() <= 1e-6 * size


# -- new rows ----------------------------------------------------------------------------------------------------------


def bump(A, B):
    """Epanechnikov's, max(0, 1 - |x - y|² / 16): indefinite beyond one dimension, and declares nothing."""
    return np.maximum(0.0, 1.0 - cdist(A, B, "sqeuclidean") / 16.0)


@pytest.mark.parametrize("kernel", [krein.Sigmoid(), krein.TL1(rho=6.0), bump], ids=["Sigmoid", "TL1", "callable"])
@pytest.mark.parametrize("seed", range(3))
def test_new_rows_are_good_at_the_defaults_for_kernels_not_known_to_be_psd(kernel, seed):
    X = np.random.default_rng(seed).standard_normal((800, 6))
    full = krein.approximate(X[:600], kernel, random_state=seed)
    found = full.kernel_rows(X[600:])  # no warning that some were scaled down either
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)
        usual = krein.approximate(X[:600], kernel, n_blocks=1, rank=150, random_state=seed).kernel_rows(X[600:])
    exact = full.kernel_rows(X[600:], exact=True)
    assert relative(found, exact) <= 0.05
    assert relative(found, exact) <= 1.5 * relative(usual, exact)


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "rpcholesky", "leverage"])
@pytest.mark.parametrize("seed", range(3))
def test_no_landmark_rule_loses_the_tight_rows_to_the_outliers(landmarks, seed):
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.normal(0.0, 0.01, (3000, 3)), rng.uniform(-1.0, 1.0, (150, 3))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)
        a = krein.approximate(X, krein.TL1(rho=1.0), n_blocks=1, rank=32, landmarks=landmarks, random_state=seed)
    assert a.error(random_state=0).relative <= 0.1


@pytest.mark.parametrize("seed", range(6))
def test_a_callable_that_equals_linear_is_as_accurate_as_linear(seed):
    X = np.exp(1.5 * np.random.default_rng(seed).standard_normal((1000, 3)))
    given = {"n_blocks": 4, "rank": 6, "landmarks": "uniform", "random_state": seed}
    known = krein.approximate(X, krein.Linear(), **given)
    user = krein.approximate(X, lambda A, B: A @ B.T, **given)
    assert known.factorization.ranks == user.factorization.ranks
    assert known.error().relative <= 1e-8
    assert user.error().relative <= 1e-8


def test_new_rows_and_self_similarities_from_a_block_sparse_core_are_the_dense_ones(monkeypatch):
    monkeypatch.setattr(factorization, "DENSE_CORE", 0)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 3)) + 6.0 * rng.integers(3, size=(600, 3))
    a = krein.approximate(X, krein.RBF(gamma=0.1), n_blocks=30, rank=5, drop=0.9, random_state=0).corrected("shift")
    f = a.factorization
    assert isinstance(f.core, BlockSparse)
    new = X[::7] + 0.1
    u = a.extend(new).toarray()
    M = f.core.to_dense()
    U = f.lift(np.eye(f.rank))
    wanted = rng.permutation(600)[:40]
    assert a.kernel_rows(new) == pytest.approx(u @ M @ U.T, abs=1e-12)
    assert a.kernel_rows(new, indices=wanted) == pytest.approx(u @ M @ U[wanted].T, abs=1e-12)
    assert a.self_similarities(new) == pytest.approx(np.diag(u @ M @ u.T) + f.shift, abs=1e-12)


# -- kernels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_kernel_asymmetric_only_between_clusters_is_refused(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 2)) + np.repeat([[0.0, 0.0], [20.0, 0.0]], 100, axis=0)

    def uneven(A, B):
        a, b = (A[:, 0] > 10.0).astype(float), (B[:, 0] > 10.0).astype(float)
        return np.exp(-0.001 * cdist(A, B, "sqeuclidean")) + 0.5 * np.subtract.outer(a, b)

    with pytest.raises(KernelError, match="symmetric"):
        krein.approximate(X, uneven, n_blocks=2, rank=10, random_state=seed)


@pytest.mark.parametrize("kernel", [krein.RBF(), krein.TL1(rho=2.0)], ids=["RBF", "TL1"])
def test_a_normalised_kernel_without_negative_values_declares_so(kernel):
    assert Normalized(kernel).traits.low == 0.0


def test_a_normalised_psd_kernel_declares_cosines():
    traits = Normalized(krein.Linear()).traits
    assert (traits.low, traits.high) == (-1.0, 1.0)
    assert Normalized(krein.RBF()).traits.high == 1.0


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "rpcholesky", "leverage"])
def test_every_kernel_entry_a_callable_computes_is_counted(landmarks):
    count = 0

    def counted(A, B):
        nonlocal count
        count += len(A) * len(B)
        return np.exp(-0.1 * cdist(A, B, "sqeuclidean"))

    X = np.random.default_rng(0).standard_normal((2103, 3))
    a = krein.approximate(X, counted, n_blocks=4, rank=5, landmarks=landmarks, random_state=0)
    assert a.n_evaluations == count
    count = 0
    assert a.error(n_samples=4000, random_state=0).n_evaluations == count


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++"])
def test_spectral_ranks_are_close_to_those_of_the_dense_blocks(landmarks, seed):
    rng = np.random.default_rng(seed)
    tight = np.concatenate([rng.normal(0.0, 0.3, (760, 2)), rng.uniform(-2.0, 2.0, (40, 2))])
    X = np.concatenate([tight, rng.uniform(-2.0, 2.0, (400, 2)) + 30.0])
    total = 20
    a = krein.approximate(
        X, krein.RBF(gamma=1.0), n_blocks=2, total_rank=total, allocation="spectral", landmarks=landmarks,
        random_state=seed,
    )  # fmt: skip
    members = [a.partition.members(i) for i in range(2)]
    values = np.concatenate([np.abs(np.linalg.eigvalsh(a.kernel(X[m]))) for m in members])
    owner = np.repeat([0, 1], [len(m) for m in members])
    wanted = np.bincount(owner[np.argsort(-values)[:total]], minlength=2)
    assert sum(a.factorization.ranks) == total
    assert np.abs(np.asarray(a.factorization.ranks) - wanted).max() <= 3


# -- factorizations ----------------------------------------------------------------------------------------------------


def test_a_factorization_refuses_a_core_that_is_not_symmetric_or_not_finite():
    f = small()
    crooked, gone = f.core.copy(), f.core.copy()
    crooked[0, 3] += 1.0
    gone[1, 1] = np.nan
    with pytest.raises(InputError, match="symmetric"):
        Factorization.from_blocks(f.bases, crooked, f.order)
    with pytest.raises(InputError, match=r"NaN|finite"):
        Factorization.from_blocks(f.bases, gone, f.order)
    good = {(i, i): np.eye(2) for i in range(3)}
    for key, bad in [
        ((1, 1), np.triu(np.ones((2, 2)))),
        ((1, 1), np.full((2, 2), np.nan)),
        ((0, 1), np.full((2, 2), np.nan)),
    ]:
        held = BlockSparse.from_blocks([2, 2, 2], good | {key: bad})
        with pytest.raises(InputError, match=r"symmetric|NaN|finite"):
            Factorization.from_blocks(f.bases, held, f.order)


def test_certify_refuses_bases_that_are_not_orthonormal():
    f = small()
    with pytest.raises(InputError, match="orthonormal"):
        krein.certify(Factorization.from_blocks(tuple(10.0 * U for U in f.bases), f.core, f.order))


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_ends_and_certificate_do_not_depend_on_what_was_asked_before(monkeypatch, shift):
    monkeypatch.setattr(krein.factorization.blocksparse, "SMALL", 0)
    rng = np.random.default_rng(0)
    ranks = [4] * 30
    blocks = {(i, i): np.diag(rng.standard_normal(4)) for i in range(30)}
    blocks |= {(i, i + 1): 0.3 * rng.standard_normal((4, 4)) for i in range(29)}
    bases = [rng.standard_normal((6, 4)) for _ in ranks]

    def fresh():
        return Factorization.from_links(bases, BlockSparse.from_blocks(ranks, blocks), shift=shift)

    asked = fresh()
    asked.eigenvalues()
    assert asked.ends() == fresh().ends()
    assert krein.certify(asked) == krein.certify(fresh())
    late = fresh()
    before = late.ends(), krein.certify(late)
    late.eigenvalues()
    assert (late.ends(), krein.certify(late)) == before


@pytest.mark.parametrize("shape", [(24,), (24, 3)])
def test_complex_input_is_refused(shape):
    f = small(shift=1.0)
    v = np.ones(shape) + 1j
    with pytest.raises(InputError, match=r"real|complex"):
        f @ v
    with pytest.raises(InputError, match=r"real|complex"):
        f.solve(v, ridge=1.0)


def test_lanczos_refuses_a_complex_operator():
    A = np.array([[0.0, 1j, 0.0], [-1j, 0.0, 1.0], [0.0, 1.0, 2.0]])
    with pytest.raises(InputError, match=r"real|complex"):
        krein.lanczos(A, random_state=0)


@pytest.mark.parametrize("tol", [np.nan, -1, -1.0])
def test_a_tolerance_that_is_nan_or_negative_is_refused(tol):
    with pytest.raises(InputError, match="tol"):
        small().n_negative(tol=tol)


def test_a_ridge_of_none_is_refused():
    with pytest.raises(InputError, match="ridge"):
        small(shift=1.0).solve(np.ones(24), ridge=None)


@pytest.mark.parametrize("how", ["none", "clip", "flip", "square"])
def test_a_factor_without_a_shift_is_refused(how):
    with pytest.raises(InputError, match="factor"):
        krein.correct(small(), how, factor=2)


def test_links_may_be_a_nested_list():
    Q = np.random.default_rng(0).standard_normal((7, 2))
    L = [[1.0, 2.0], [2.0, -1.0]]
    assert Factorization.from_links([Q], L).to_dense() == pytest.approx(Q @ np.array(L) @ Q.T)


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_a_product_from_the_left_is_the_one_from_the_right(shift):
    f = small(shift=shift)
    rng = np.random.default_rng(1)
    v, V = rng.standard_normal(24), rng.standard_normal((5, 24))
    K = f.to_dense()
    for found, wanted, dense in [(v @ f, f @ v, v @ K), (V @ f, (f @ V.T).T, V @ K)]:
        assert isinstance(found, np.ndarray)
        assert found.shape == dense.shape
        assert found.dtype == np.float64
        assert found == pytest.approx(wanted)
        assert found == pytest.approx(dense)


@pytest.mark.parametrize("shape", [(23,), (5, 23), (24, 5), (2, 5, 24)])
def test_a_product_from_the_left_of_a_wrong_shape_is_refused(shape):
    with pytest.raises(InputError):
        np.ones(shape) @ small()


@pytest.mark.parametrize(("rank", "seed"), [(5, 963), (5, 804)])
def test_an_eigenvalue_the_start_vector_has_a_part_in_is_not_spurious(rank, seed):
    f = low_rank(rank, seed)
    found = krein.lanczos(f, random_state=seed)
    assert found.smallest == pytest.approx(f.smallest_eigenvalue(), abs=found.residual + 1e-8 * f.frobenius())
