"""Both couplings from end to end, against dense kernel matrices; Algorithm 1 also against a naive twin and its counts.

What only the shared coupling promises stands in test_shared.py.
"""

from __future__ import annotations

import gc
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pytest
import scipy
import scipy.sparse as sp
from sklearn.datasets import make_blobs

import krein
from krein.choosing import approximating as module
from krein.factorization import factorization
from krein.kernels import Evaluator

INDEFINITE = [krein.TL1(rho=0.7), krein.Sigmoid(gamma=1.0, coef0=-0.5), krein.SpherePolynomial(degree=3, a=1.2)]
both_couplings = pytest.mark.parametrize("coupling", ["shared", "pairwise"])
PSD = [krein.RBF(gamma=2.0), krein.ELM(), krein.Laplacian(gamma=1.0), krein.Linear(), krein.Polynomial(gamma=1.0)]


def blobs(n=400, d=4, c=4, seed=0):
    return make_blobs(n, d, centers=c, cluster_std=1.5, random_state=seed)[0]


def sphere(n, d=4, seed=0):
    X = np.random.default_rng(seed).standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True)


# -- what is counted ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("allocation", ["equal", "size"])
def test_kernel_entries_are_those_of_algorithm_1(drop, allocation):
    X = blobs(500, seed=3)
    a = krein.approximate(X, krein.RBF(gamma=0.05), n_blocks=5, rank=40, coupling="pairwise", landmarks="uniform",
                          allocation=allocation, drop=drop, random_state=0)  # fmt: skip
    sizes, ranks = a.partition.sizes, np.array(a.factorization.ranks)
    assert (ranks >= 1).all()
    expected = int((sizes * np.minimum(2 * ranks, sizes)).sum())
    samples = np.minimum(3 * ranks, sizes)
    pairs = list(krein.approximation.pairwise.kept_pairs(a.partition.centre_distances(), drop))
    expected += sum(int(samples[i] * samples[j]) for i, j in pairs)
    assert len(pairs) == 10 - int(np.floor(drop * 10))
    assert a.n_evaluations == expected


def test_kmeans_landmarks_of_vectors_cost_no_kernel_entry():
    X = blobs(300)
    make = partial(krein.approximate, X, krein.RBF(gamma=0.05), n_blocks=3, rank=5, coupling="pairwise", random_state=0)
    counts = [make(landmarks=rule).n_evaluations for rule in ("uniform", "kmeans++", "leverage", "rpcholesky")]
    assert counts[0] == counts[1]
    assert counts[2] == counts[0] + 3 * (4 * 10) ** 2
    assert counts[3] == counts[0] + 300 * (10 + 1)


# -- exactness ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [*PSD, *INDEFINITE, krein.Normalized(krein.Polynomial(gamma=1.0))])
@pytest.mark.parametrize("n_blocks", [1, 4])
@both_couplings
def test_full_rank_is_exact(kernel, n_blocks, coupling):
    X = sphere(90)
    a = krein.approximate(X, kernel, n_blocks=n_blocks, rank=90, coupling=coupling, random_state=0)
    K = kernel(X)
    assert np.linalg.norm(a.factorization.to_dense() - K) <= 1e-8 * np.linalg.norm(K)


@both_couplings
def test_smooth_kernels_are_exact_at_full_rank_although_their_blocks_are_singular(coupling):
    X = np.random.default_rng(0).standard_normal((80, 2))
    kernel = krein.RBF(gamma=0.05)
    a = krein.approximate(X, kernel, n_blocks=4, rank=80, coupling=coupling, random_state=0)
    assert a.factorization.to_dense() == pytest.approx(kernel(X), abs=1e-8)
    if coupling == "pairwise":  # which sees a cluster by itself; that it matters to others makes its rows full rank
        assert a.factorization.rank < 80


@both_couplings
def test_auto_is_exact_up_to_2000_rows(coupling):
    X = sphere(150)
    a = krein.approximate(X, krein.RBF(), coupling=coupling, random_state=0)
    assert a.n_blocks == 1
    assert a.error().relative <= 1e-10


@both_couplings
def test_a_low_rank_kernel_is_exact_at_its_rank(coupling):
    X = np.random.default_rng(0).standard_normal((500, 5)) @ np.random.default_rng(1).standard_normal((5, 9))
    a = krein.approximate(X, krein.Linear(), n_blocks=4, rank=20, coupling=coupling, random_state=0)
    assert a.factorization.ranks == (5, 5, 5, 5)
    assert np.abs(a.factorization.to_dense() - X @ X.T).max() <= 1e-9 * np.abs(X @ X.T).max()


@both_couplings
def test_a_cluster_on_which_the_kernel_is_zero_takes_no_room(coupling):
    X = np.concatenate([np.zeros((30, 2)), np.random.default_rng(0).standard_normal((30, 2)) + 9.0])
    for dtype in ("float64", "float32", "float16", "int8"):
        a = krein.approximate(X, krein.Linear(), n_blocks=2, rank=4, coupling=coupling, dtype=dtype, random_state=0)
        assert sorted(a.factorization.ranks) == [0, 2]
        assert a.error().relative <= (0.02 if dtype == "int8" else 2e-3)
        assert a.extend(X).shape == (60, 2)


# -- drop --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drop", [0.0, 0.25, 0.5, 0.95, 1.0])
def test_dropped_pairs_are_zero_and_the_most_distant(drop):
    X = blobs(400, c=6)
    a = krein.approximate(X, krein.RBF(gamma=0.01), n_blocks=6, rank=6, coupling="pairwise", drop=drop, random_state=0)
    M, spans, D = a.factorization.core, a.factorization.spans, a.partition.centre_distances()
    assert np.array_equal(M, M.T)
    pairs = sorted(((i, j) for i in range(6) for j in range(i)), key=lambda p: -D[p])
    zero = [p for p in pairs if not M[spans[p[0]][1], spans[p[1]][1]].any()]
    assert zero == pairs[: int(np.floor(drop * 15))]


@pytest.mark.parametrize("dtype", ["float64", "float32", "int8"])
@both_couplings
def test_a_block_sparse_core_equals_the_dense_one(monkeypatch, dtype, coupling):
    X = blobs(300, c=8)
    make = partial(krein.approximate, X, krein.RBF(gamma=0.01), n_blocks=8, rank=5, coupling=coupling, drop=0.7,
                   dtype=dtype, random_state=0)  # fmt: skip
    dense = make()
    monkeypatch.setattr(factorization, "DENSE_CORE", 0)
    thin = make()
    assert isinstance(dense.factorization.core, np.ndarray)
    assert isinstance(thin.factorization.core, krein.BlockSparse)
    assert np.abs(thin.factorization.to_dense() - dense.factorization.to_dense()).max() <= 1e-10
    assert thin.kernel_rows(X[:5]) == pytest.approx(dense.kernel_rows(X[:5]), abs=1e-8)
    assert thin.error().relative == pytest.approx(dense.error().relative)
    assert make(drop=0.0).factorization.core.shape == dense.factorization.core.shape
    assert isinstance(make(drop=0.0).factorization.core, np.ndarray)


@both_couplings
def test_thousands_of_blocks_get_a_block_sparse_core(coupling):
    X = np.random.default_rng(0).uniform(size=(9000, 2))
    a = krein.approximate(X, krein.RBF(gamma=500.0), n_blocks=700, rank=6, coupling=coupling, drop=1.0, random_state=0)
    assert a.factorization.rank > 4096
    assert isinstance(a.factorization.core, krein.BlockSparse)
    assert a.factorization.nbytes < 8 * (9000 * 6 + 4200 * 6 + 9000 + 2 * 4200)


# -- randomness --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "rpcholesky", "leverage"])
@both_couplings
def test_the_result_depends_on_the_seed_alone(landmarks, coupling):
    X = blobs(400)
    make = partial(
        krein.approximate, X, krein.RBF(gamma=0.05), n_blocks=5, rank=8, coupling=coupling, landmarks=landmarks
    )
    one, two, other = make(random_state=3, n_jobs=1), make(random_state=3, n_jobs=2), make(random_state=4)
    assert np.array_equal(one.factorization.core, two.factorization.core)
    for U, V, m, w in zip(one.factorization.bases, two.factorization.bases, one.maps, two.maps, strict=True):
        assert np.array_equal(U, V)
        assert np.array_equal(m.transform, w.transform)
    assert one.n_evaluations == two.n_evaluations
    assert not np.array_equal(one.factorization.core, other.factorization.core)


def test_each_block_has_its_own_stream_whatever_happens_to_the_others():
    X = blobs(300, c=3)
    make = partial(krein.approximate, X, krein.RBF(gamma=0.05), n_blocks=3, rank=6, coupling="pairwise",
                   landmarks="uniform", random_state=0)  # fmt: skip
    full, alone = make(), make(drop=1.0)
    for U, V in zip(full.factorization.bases, alone.factorization.bases, strict=True):
        assert np.array_equal(U, V)
    assert np.array_equal(make(drop=0.34).factorization.bases[0], full.factorization.bases[0])


@pytest.mark.parametrize("make_state", [lambda: 7, lambda: np.random.RandomState(7), lambda: np.random.default_rng(7)])
def test_every_kind_of_random_state_repeats(make_state):
    X = blobs(120)
    first, second = (
        krein.approximate(X, krein.RBF(gamma=0.1), n_blocks=2, rank=5, random_state=make_state()) for _ in range(2)
    )
    assert np.array_equal(first.factorization.core, second.factorization.core)
    krein.approximate(X, krein.RBF(gamma=0.1), n_blocks=2, rank=5, drop=1.0, random_state=None)


# -- storage and memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 1e-5), ("float16", 2e-3), ("int8", 2e-2), (np.float32, 1e-5)]
)
@both_couplings
def test_smaller_types_cost_their_rounding_only(dtype, tolerance, coupling):
    X = blobs(400)
    make = partial(krein.approximate, X, krein.RBF(gamma=0.02), n_blocks=4, rank=12, coupling=coupling, random_state=0)
    full, small = make(), make(dtype=dtype)
    K = full.factorization.to_dense()
    assert np.linalg.norm(small.factorization.to_dense() - K) <= tolerance * np.linalg.norm(K)
    assert small.factorization.nbytes < full.factorization.nbytes


def test_auto_dtype_is_the_datas_own():
    X = blobs(100)
    for dtype in (np.float32, np.float64):
        a = krein.approximate(X.astype(dtype), krein.RBF(gamma=0.1), n_blocks=2, rank=4, random_state=0)
        assert a.factorization.dtype == np.dtype(dtype).name


@pytest.mark.parametrize(("dtype", "size", "landmarks"), [("float64", 8, "uniform"), ("float32", 4, "kmeans++")])
@both_couplings
def test_memory_held_and_peak(monkeypatch, dtype, size, landmarks, coupling):
    """Held: n k + r² numbers, the order, and landmarks. Peak: at most twice that and a few chunks of kernel entries."""
    n, k, c, d, chunk = 20_000, 32, 4, 3, 2**16
    X = np.random.default_rng(0).standard_normal((n, d))
    monkeypatch.setattr(module, "Evaluator", partial(Evaluator, chunk_entries=chunk))
    make = partial(krein.approximate, X, krein.RBF(gamma=1.0), n_blocks=c, rank=k, coupling=coupling,
                   landmarks=landmarks, dtype=dtype, random_state=0)  # fmt: skip
    make()  # imports and caches are not counted
    gc.collect()
    tracemalloc.start()
    a = make()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    f, r = a.factorization, c * k
    maps = 0 if size == 8 else c * k * k * 8
    assert f.nbytes == n * k * size + r * r * 8 + n * 8 + maps
    count = sum(len(m.rows) for m in a.maps)  # landmarks; the shared coupling also looks at those of other clusters
    assert count == 2 * k * c if coupling == "pairwise" else 2 * k * c < count <= 8 * k * c
    assert a.nbytes == count * (d * 8 + 8 + k * 8) + c * d * 8
    print(f"{coupling} {dtype} {landmarks}: peak / held = {peak / (f.nbytes + a.nbytes):.2f}")
    tried = 0 if coupling == "pairwise" else 4 * (8 * k) ** 2 * 8  # 4 rows per landmark, 8 k of them: whatever n is
    assert peak <= 2 * (f.nbytes + a.nbytes) + 8 * chunk * 8 + 3 * tried


# -- other inputs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans++", "rpcholesky", "leverage"])
@both_couplings
def test_sparse_rows_strings_and_matrices(landmarks, coupling):
    X = blobs(200) * (np.random.default_rng(0).random((200, 4)) > 0.3)
    kernel = krein.RBF(gamma=0.02)
    make = partial(krein.approximate, n_blocks=3, rank=25, coupling=coupling, landmarks=landmarks, random_state=0)
    errors = [
        make(X, kernel).error().relative,
        make(sp.csr_matrix(X), kernel).error().relative,
        make(None, krein.Precomputed(kernel(X))).error().relative,
        make(np.arange(200).reshape(-1, 1), krein.Precomputed(kernel(X))).error().relative,
        make([tuple(x) for x in X], lambda A, B: kernel(np.array(A), np.array(B))).error().relative,
    ]
    assert max(errors) <= 0.1


def test_progress_bars_are_shown_only_when_asked(capsys):
    X = blobs(60)
    krein.approximate(X, krein.RBF(gamma=0.1), n_blocks=2, rank=3, random_state=0)
    assert capsys.readouterr().err == ""
    krein.approximate(X, krein.RBF(gamma=0.1), n_blocks=2, rank=3, random_state=0, verbose=1)
    assert "bases" in capsys.readouterr().err


def test_repr_says_what_it_is():
    a = krein.approximate(blobs(60), krein.RBF(gamma=0.1), n_blocks=2, rank=3, drop=1.0, random_state=0)
    assert repr(a).startswith("Approximation(RBF(gamma=0.1), Factorization(60 x 60, 2 blocks, rank 6, dense core")


# -- nothing explodes --------------------------------------------------------------------------------------------------

KERNELS = [krein.RBF(), krein.Laplacian(), krein.TL1(rho=0.3), krein.TL1(), krein.Sigmoid(), krein.Linear(),
           krein.ELM(), krein.Polynomial(), krein.SpherePolynomial(a=1.2), krein.Cosine(), krein.ArcCosine(),
           krein.NTK(), krein.Sigmoid(gamma=1.0, coef0=-1.0), krein.RBF(gamma=3.0)]  # fmt: skip
SCALE_FREE = (krein.RBF(), krein.Laplacian(), krein.Cosine())


def hard_problem(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 120)), int(rng.integers(1, 6))
    X = rng.standard_normal((n, d)) + 3 * rng.integers(0, 3, (n, 1))
    if rng.random() < 0.3:  # duplicates
        X = X[rng.integers(0, max(1, n // 4), n)]
    if rng.random() < 0.2:  # one direction
        X[:, 1:] = X[:, :1]
    if rng.random() < 0.1:  # constant
        X[:] = X[0]
    kernel = KERNELS[int(rng.integers(len(KERNELS)))]
    if kernel in SCALE_FREE:
        X = X * 10.0 ** rng.uniform(-100, 100)
    if isinstance(kernel, krein.SpherePolynomial):
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    options = {
        "n_blocks": int(min(n, rng.integers(1, 13))),
        "rank": int(rng.integers(1, 12)),
        "landmarks": str(rng.choice(["uniform", "kmeans++", "rpcholesky", "leverage"])),
        "allocation": str(rng.choice(["equal", "spectral", "size"])),
        "drop": float(rng.choice([0.0, 0.0, 0.3, 1.0])),
        "random_state": seed,
    }
    return X, kernel, options


@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=pytest.mark.slow) if first >= 80 else first for first in range(0, 240, 40)]
)
@both_couplings
def test_no_explosion_on_hard_problems(first, coupling):
    worst = (0.0, None)
    for seed in range(first, first + 40):
        X, kernel, options = hard_problem(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", krein.KreinWarning)  # warning is right; finite is the point
            a = krein.approximate(X, kernel, coupling=coupling, **options)
        assert np.isfinite(a.factorization.eigenvalues()).all()
        assert np.isfinite(a.factorization.to_dense()).all()
        worst = max(worst, (a.error().relative, seed), key=lambda pair: pair[0])
    assert worst[0] <= 1.05, f"seed {worst[1]}"


def test_an_exploding_indefinite_block_is_cut_and_says_so():
    S = np.full((30, 30), 1e-3)
    S[28:] = S[:, 28:] = 1.0  # what nearly all objects share is not what they are to each other
    S[28:, 28:] = 0.0
    with pytest.warns(krein.KreinWarning, match="1 of 1 blocks .* would have exploded"):
        a = krein.approximate(
            None, krein.Precomputed(S), n_blocks=1, rank=1, coupling="pairwise", landmarks="uniform", random_state=1
        )
    assert a.error().relative <= 1.05


# -- what is asked for is built ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("coupling", ["shared", "pairwise"])
@pytest.mark.parametrize("n", [100, 300, 1500, 3000])
def test_twenty_blocks_of_rank_32_are_that_for_fewer_similarities_than_the_matrix_has(n, coupling):
    X = krein.datasets.mixture(n, n_features=10, random_state=0).X
    a = krein.approximate(X, krein.RBF(), n_blocks=20, rank=32, coupling=coupling, random_state=0)
    assert a.n_blocks == 20
    assert list(a.factorization.ranks) == [min(32, len(U)) for U in a.factorization.bases]
    assert a.n_evaluations < n * n


@pytest.mark.parametrize(("n_blocks", "share"), [(1, 0.99), (2, 0.25), (2, 0.49), (3, 0.16), (5, 0.2), (75, 0.01)])
def test_any_shape_takes_fewer_similarities_than_the_matrix_has(n_blocks, share):
    X = krein.datasets.mixture(300, n_features=6, random_state=0).X
    rank = int(share * 300)
    a = krein.approximate(X, krein.RBF(), n_blocks=n_blocks, rank=rank, random_state=0)
    assert list(a.factorization.ranks) == [min(rank, len(U)) for U in a.factorization.bases]
    assert a.n_blocks == n_blocks
    assert a.n_evaluations < 300 * 300


# -- the paper's form --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coupling", ["shared", "pairwise", "landmark"])
@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_links_multiply_to_the_same_matrix_and_go_back(coupling, dtype):
    a = krein.approximate(blobs(300), krein.TL1(rho=20.0), n_blocks=4, rank=6, coupling=coupling, dtype=dtype,
                          random_state=0).corrected("shift")  # fmt: skip
    Q, L, order, shift = a.to_links()
    assert [part.shape for part in Q] == list(zip(a.partition.sizes, a.factorization.ranks, strict=True))
    K, F = a.factorization.to_dense(), scipy.linalg.block_diag(*Q)
    np.testing.assert_allclose(F @ L @ F.T + shift * np.eye(300), K[np.ix_(order, order)], atol=1e-10 * np.abs(K).max())
    back = krein.Factorization.from_links(*a.to_links())
    np.testing.assert_allclose(back.to_dense(), K, atol=1e-10 * np.abs(K).max())


def test_a_mat_file_holds_cells_and_counts_from_one(tmp_path):
    a = krein.approximate(blobs(900), krein.RBF(gamma=0.05), n_blocks=200, rank=4, drop=1.0, random_state=0)
    a.to_mat(tmp_path / "links.mat")
    read = scipy.io.loadmat(tmp_path / "links.mat")
    assert read["Q"].shape == (1, 200)
    order, F = read["order"].ravel().astype(int) - 1, scipy.linalg.block_diag(*read["Q"][0])
    K = np.empty((900, 900))
    K[np.ix_(order, order)] = F @ read["L"] @ F.T + read["shift"].item() * np.eye(900)
    np.testing.assert_allclose(K, a.factorization.to_dense(), atol=1e-10)


@pytest.mark.parametrize("policy", ["x", {"exact_rows": 10}, 3])
@pytest.mark.parametrize("shape", [{}, {"n_blocks": 2, "rank": 3}], ids=str)
def test_a_policy_that_is_none_is_refused(policy, shape):
    with pytest.raises(krein.InputError, match=r"policy must be a krein\.Policy"):
        krein.approximate(blobs(60), krein.RBF(gamma=0.1), policy=policy, **shape)


def test_a_file_for_matlab_is_a_regular_file_with_its_suffix(tmp_path):
    a = krein.approximate(blobs(60), krein.RBF(gamma=0.1), n_blocks=2, rank=3, random_state=0)
    folder = tmp_path / "folder.mat"
    folder.mkdir()
    for path in (folder, tmp_path / "links", "/dev/null"):
        with pytest.raises(krein.InputError, match=r"regular file whose name ends in '\.mat'"):
            a.to_mat(path)
    assert list(tmp_path.iterdir()) == [folder]
