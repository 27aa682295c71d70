"""The shared coupling against dense algebra: psd where the kernel is, near what its clusters allow, exact at full rank.

`test_problems` asks the same of hundreds of random problems, `test_approximation` what both couplings promise.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import krein
from krein.factorization import factorization
from strategies import HARD_DATA, assert_psd, blobs, dense_core, dense_twin, error, ideal, quietly, relative

PSD = {
    "rbf": krein.RBF(),
    "laplacian": krein.Laplacian(),
    "sphere": krein.SpherePolynomial(degree=3, a=2.0),
    "elm": krein.ELM(),
    "arccosine": krein.ArcCosine(),
    "linear": krein.Linear(),
    "polynomial": krein.Polynomial(degree=3),
}
INDEFINITE = [krein.TL1(rho=2.0), krein.Sigmoid(gamma=1.0, coef0=-0.5), krein.SpherePolynomial(degree=3, a=1.2)]


def on_sphere(X):
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return np.where(lengths > 0.0, X / np.where(lengths > 0.0, lengths, 1.0), np.eye(1, X.shape[1]))


def suited(X, kernel):
    """The data as the kernel wants it: of length one, and where squares do not overflow."""
    peak = float(np.abs(X).max())
    return on_sphere(X / peak) if kernel.traits.sphere else X / peak


# -- psd kernels stay psd ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(HARD_DATA))
@pytest.mark.parametrize("kernel", PSD.values(), ids=PSD)
def test_psd_kernels_give_psd_matrices_on_hard_data(name, kernel):
    X = suited(HARD_DATA[name](), kernel)
    for n_blocks in (1, 3, 12):
        a = quietly(X, kernel, n_blocks=n_blocks, rank=6, random_state=n_blocks)
        assert_psd(a.factorization)
        K = dense_twin(a.factorization)
        values = np.linalg.eigvalsh(K)
        assert values[0] >= -1e-10 * max(values[-1], 0.0)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8"])
@pytest.mark.parametrize("kernel", PSD.values(), ids=PSD)
def test_psd_whatever_the_bases_are_stored_in(kernel, dtype):
    X = suited(blobs(150), kernel)
    for n_blocks in (1, 2, 5, 12):
        a = quietly(X, kernel, n_blocks=n_blocks, rank=8, dtype=dtype, random_state=0)
        assert a.factorization.dtype == dtype
        assert_psd(a.factorization)
        assert a.factorization.n_negative() == 0


def test_psd_for_any_number_of_blocks():
    X = blobs(200)
    for n_blocks in range(1, 13):
        assert_psd(quietly(X, krein.RBF(gamma=0.02), n_blocks=n_blocks, rank=7, random_state=0).factorization)


@pytest.mark.parametrize("drop", [0.2, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("dense_limit", [0, 4096])
@pytest.mark.parametrize("kernel", PSD.values(), ids=PSD)
def test_psd_with_couplings_dropped(monkeypatch, kernel, drop, dense_limit):
    monkeypatch.setattr(factorization, "DENSE_CORE", dense_limit)
    X = suited(blobs(300, c=8), kernel)
    a = quietly(X, kernel, n_blocks=12, rank=6, drop=drop, random_state=0)
    if drop >= 0.6:
        assert isinstance(a.factorization.core, np.ndarray) == (dense_limit > 0)
    assert_psd(a.factorization)
    M, spans = dense_core(a.factorization.core), a.factorization.spans
    kept = sum(bool(M[spans[i][1], spans[j][1]].any()) for i in range(12) for j in range(i))
    assert kept <= 66 - int(np.floor(drop * 66))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_psd_although_the_data_are_float32(dtype):
    X = blobs(300).astype(dtype)
    a = krein.approximate(X, krein.RBF(gamma=0.001), n_blocks=6, rank=20, random_state=0)  # singular to rounding
    assert_psd(a.factorization)


# -- how near ----------------------------------------------------------------------------------------------------------


CLUSTERED = {
    "rbf": krein.RBF(gamma=0.02),
    "wide rbf": krein.RBF(gamma=0.002),
    "laplacian": krein.Laplacian(gamma=0.03),
    "polynomial": krein.Polynomial(degree=3, gamma=0.1),
    "tl1": krein.TL1(rho=15.0),
    "tanh": krein.Sigmoid(gamma=0.02, coef0=-0.5),
}


@pytest.mark.parametrize("n_blocks", [3, 8])
@pytest.mark.parametrize("kernel", CLUSTERED.values(), ids=CLUSTERED)
def test_near_the_ideal_and_no_worse_than_the_papers(kernel, n_blocks):
    ours, papers, best = [], [], []
    for seed in range(4):
        X = blobs(300, d=5, c=6, seed=seed)
        K = kernel(X)
        make = partial(quietly, X, kernel, n_blocks=n_blocks, rank=10, random_state=seed)
        a = make()
        ours.append(error(a, K))
        papers.append(error(make(coupling="pairwise"), K))
        best.append(relative(ideal(a.factorization, K), K))
    assert np.mean(ours) <= 1.1 * np.mean(papers) + 1e-9
    assert np.mean(ours) <= 1.5 * np.mean(best) + 1e-9
    assert min(ours) <= 0.5  # the comparison is not one of failures


def test_looking_out_of_the_cluster_pays():
    """Bases from the cluster's own block alone, however good, miss what matters to the others."""
    X, kernel = blobs(400, d=5, c=6), krein.RBF(gamma=0.01)
    a, K = krein.approximate(X, kernel, n_blocks=8, rank=6, random_state=0), kernel(X)
    U = np.zeros((400, a.factorization.rank))
    for rows, cols in a.factorization.spans:
        members = a.factorization.order[rows]
        U[members, cols] = np.linalg.svd(K[np.ix_(members, members)])[0][:, : cols.stop - cols.start]
    assert error(a, K) <= 0.9 * relative(U @ (U.T @ K @ U) @ U.T, K)


def test_heavy_tails_do_not_scale_the_core_down():
    """Sampled entries say little where a few rows hold all of the matrix: errors of 0.7 in place of 1e-5 were seen."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = on_sphere(rng.standard_normal((1000, 6))) * rng.lognormal(0.0, 1.5, (1000, 1))
        kernel = krein.Polynomial(degree=3).bind(X)
        a = krein.approximate(X, kernel, n_blocks=5, rank=8, random_state=seed)
        K = kernel(X)
        assert error(a, K) <= 5.0 * relative(ideal(a.factorization, K), K) + 1e-9


# -- full rank ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_blocks", [1, 3, 7])
@pytest.mark.parametrize("kernel", [*PSD.values(), *INDEFINITE])
def test_full_rank_is_exact(kernel, n_blocks):
    X = on_sphere(np.random.default_rng(1).standard_normal((110, 4)))
    a = krein.approximate(X, kernel, n_blocks=n_blocks, rank=int(1.5 * 110), random_state=0)
    assert error(a, a.kernel(X)) <= 1e-9


@pytest.mark.parametrize("n_blocks", [1, 4])
@pytest.mark.parametrize("kernel", INDEFINITE)
def test_indefinite_kernels_keep_their_signs(kernel, n_blocks):
    X = on_sphere(np.random.default_rng(2).standard_normal((120, 4)))
    exact = np.linalg.eigvalsh(kernel(X))
    f = krein.approximate(X, kernel, n_blocks=n_blocks, rank=120, random_state=0).factorization
    floor = 1e-9 * np.abs(exact).max()
    found = np.linalg.eigvalsh(dense_twin(f))
    assert (exact < -floor).sum() >= 1
    assert (found < -floor).sum() == (exact < -floor).sum()
    assert (found > floor).sum() == (exact > floor).sum()


def test_low_rank_keeps_the_strongest_negative_directions():
    X = on_sphere(np.random.default_rng(2).standard_normal((300, 4)))
    kernel = krein.SpherePolynomial(degree=3, a=1.2)
    exact = np.linalg.eigvalsh(kernel(X))
    found = np.linalg.eigvalsh(dense_twin(quietly(X, kernel, n_blocks=3, rank=20, random_state=0).factorization))
    strong = int((exact < -0.1 * np.abs(exact).max()).sum())
    assert strong >= 1
    assert found[:strong] == pytest.approx(exact[:strong], rel=0.1)


# -- new objects -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.02), krein.Laplacian(gamma=0.03), krein.TL1(rho=15.0)])
@pytest.mark.parametrize("n_blocks", [1, 5])
def test_new_rows_are_about_as_good_as_the_training_rows(kernel, n_blocks):
    X = blobs(500, d=5, c=5)
    train, new = X[:400], X[400:]
    a = krein.approximate(train, kernel, n_blocks=n_blocks, rank=25, random_state=0)
    K = kernel(train)
    F = dense_twin(a.factorization)
    assert a.kernel_rows(train[:50]) == pytest.approx(F[:50], abs=1e-6 * np.abs(K).max())
    seen, unseen = relative(F, K), relative(a.kernel_rows(new), kernel(new, train))
    assert unseen <= 2.5 * seen + 1e-9  # clusters of 80 rows, of which rank 25 learns some by heart
    own = np.linalg.norm(a.self_similarities(new) - kernel.diag(new)) / np.linalg.norm(kernel.diag(new))
    assert own <= 0.5  # the diagonal is the hardest: TL1's in one block is off by a third
