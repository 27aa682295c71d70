"""The error without K: exact for small n, unbiased in the squares and covered by its interval beyond."""

from __future__ import annotations

import numpy as np
import pytest

import krein
from krein.approximation import error as module
from krein.approximation import error as sampling
from krein.errors import InputError
from krein.kernels import Evaluator, FromCallable


def blobs(n, d=4, c=5, seed=0):
    rng = np.random.default_rng(seed)
    return 4.0 * rng.standard_normal((c, d))[rng.integers(c, size=n)] + rng.standard_normal((n, d))


def truth(a, X):
    K = a.kernel(X)
    return np.linalg.norm(K - a.factorization.to_dense()) / np.linalg.norm(K)


@pytest.mark.parametrize(
    "kernel", [krein.RBF(gamma=0.05), krein.Sigmoid(gamma=0.1, coef0=-1.0), krein.Linear() * 1e180]
)
@pytest.mark.parametrize("how", ["none", "shift"])
def test_exact_up_to_2000_rows_shift_included(kernel, how):
    X = blobs(250)
    a = krein.approximate(X, kernel, n_blocks=4, rank=3, drop=1.0, random_state=0).corrected(how)
    estimate = a.error()
    K = a.kernel(X)
    gap = (K - a.factorization.to_dense()) / np.abs(K).max()
    assert estimate.relative == pytest.approx(np.linalg.norm(gap) / np.linalg.norm(K / np.abs(K).max()), rel=1e-12)
    assert estimate.low == estimate.relative == estimate.high
    same = np.equal.outer(a.partition.labels, a.partition.labels)
    total = (gap**2).sum()
    assert estimate.diagonal == pytest.approx((np.diag(gap) ** 2).sum() / total)
    assert estimate.between == pytest.approx((gap[~same] ** 2).sum() / total)
    assert estimate.diagonal + estimate.within + estimate.between == pytest.approx(1.0)
    assert estimate.n_evaluations == 250**2


def test_the_shift_is_an_error_on_the_diagonal():
    X = blobs(100)
    a = krein.approximate(X, krein.RBF(gamma=0.05), n_blocks=1, rank=100, random_state=0)
    moved = a.factorization.with_core(a.factorization.core, 0.5)
    shifted = krein.Approximation(a.kernel, X, a.partition, a.maps, moved, 0, 0)
    assert shifted.error().relative == pytest.approx(5.0 / np.linalg.norm(a.kernel(X)))


@pytest.fixture(scope="module")
def moderate():
    X = blobs(2500)
    a = krein.approximate(X, krein.RBF(gamma=0.02), n_blocks=5, rank=8, random_state=0)
    return a, truth(a, X)


def test_the_interval_covers_the_truth(moderate):
    a, exact = moderate
    found = [a.error(n_samples=20_000, random_state=seed) for seed in range(30)]
    assert sum(e.low <= exact <= e.high for e in found) >= 26
    assert all(e.low <= e.relative <= e.high for e in found)
    assert np.median([e.high / e.low for e in found]) <= 1.5


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [krein.RBF(gamma=0.02), krein.RBF(gamma=0.5), krein.TL1(rho=12.0)])
def test_coverage_over_a_hundred_seeds(kernel):
    X = blobs(2500, seed=1)
    a = krein.approximate(X, kernel, n_blocks=5, rank=12, random_state=0)
    exact = truth(a, X)
    covered = sum(e.low <= exact <= e.high for e in (a.error(random_state=seed) for seed in range(100)))
    print(f"{kernel}: {covered} of 100 intervals at 95 % hold the truth")
    assert covered >= 90


def test_the_squares_are_unbiased(moderate):
    a, exact = moderate
    estimates = np.array([a.error(n_samples=2000, random_state=seed).relative ** 2 for seed in range(120)])
    deviation = estimates.std(ddof=1) / np.sqrt(len(estimates))
    assert abs(estimates.mean() - exact**2) <= 4 * deviation + 0.02 * exact**2


def test_the_sampled_way_agrees_on_small_awkward_blocks(monkeypatch):
    X = np.concatenate([blobs(60), [[20.0] * 4], [[-20.0] * 4, [-21.0] * 4]])  # blocks of one and of two rows
    a = krein.approximate(X, krein.Linear(), n_blocks=5, rank=2, drop=0.5, random_state=0)
    assert a.partition.sizes.min() == 1
    exact = a.error().relative
    monkeypatch.setattr(module, "WHOLE_ROWS", 0)
    found = [a.error(n_samples=20_000, random_state=seed) for seed in range(8)]
    assert np.sqrt(np.mean([e.relative**2 for e in found])) == pytest.approx(exact, rel=0.1)
    one = krein.approximate(X, krein.Linear(), n_blocks=1, rank=2, random_state=0)
    monkeypatch.undo()
    reference = one.error().relative
    monkeypatch.setattr(module, "WHOLE_ROWS", 0)
    sampled = one.error(random_state=0)
    assert sampled.between == 0.0
    assert sampled.relative == pytest.approx(reference, rel=0.3)


def test_it_needs_few_entries_and_repeats(moderate):
    a, _ = moderate
    first, second = a.error(random_state=5), a.error(random_state=5)
    assert first == second
    assert first.n_evaluations <= 2500 + sampling.TILES_PER_CALL * (50_000 + 2 * 64)
    assert str(first).count("[") == 1


def test_an_exact_approximation_has_no_error_beyond_2000_rows():
    X = np.random.default_rng(0).standard_normal((2300, 3))
    a = krein.approximate(X, krein.Linear(), n_blocks=3, rank=3, random_state=0)
    estimate = a.error(random_state=0)
    assert estimate.high <= 1e-10


def lengths(n, sigma=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 6))
    return X / np.linalg.norm(X, axis=1)[:, None] * rng.lognormal(0.0, sigma, (n, 1))


def test_a_heavy_tailed_kernel_is_covered():
    X = lengths(2100)
    a = krein.approximate(X, krein.Polynomial(degree=3), n_blocks=5, rank=12, random_state=0)
    exact = truth(a, X)
    found = [a.error(n_samples=20_000, random_state=seed) for seed in range(20)]
    assert sum(e.low <= exact <= e.high for e in found) >= 16  # rows drawn evenly miss the long ones


def test_an_error_of_few_rows_is_found():
    X = blobs(2100)
    kernel = krein.Polynomial(degree=2, gamma=0.1)
    f = krein.approximate(X, kernel, n_blocks=3, rank=15, random_state=0).factorization
    X[7] *= 3.0  # one row of 2100 is not what was approximated
    K = kernel(X)
    gap = K - f.to_dense()
    assert np.linalg.norm(np.delete(np.delete(gap, 7, 0), 7, 1)) <= 1e-6 * np.linalg.norm(gap)
    found = [module.estimate_error(f, kernel, X, 10_000, seed) for seed in range(10)]
    exact = np.linalg.norm(gap) / np.linalg.norm(K)
    assert sum(e.low <= exact <= e.high for e in found) >= 8
    assert np.median([e.high / e.low for e in found]) <= 1.5


def islands(n_islands=150, size=14):
    rng = np.random.default_rng(0)
    X = np.repeat(rng.standard_normal((n_islands, 6)), size, axis=0) + 0.15 * rng.standard_normal((n_islands * size, 6))
    return X, krein.approximate(X, krein.RBF(gamma=2.0), n_blocks=n_islands, rank=3, drop=0.99, random_state=0)


def test_a_few_near_blocks_of_many_are_found():
    X, a = islands()
    exact = truth(a, X)
    found = [a.error(n_samples=30_000, random_state=seed) for seed in range(8)]
    assert sum(e.low <= exact <= e.high for e in found) >= 6
    assert np.median([e.high / e.low for e in found]) <= 1.5


def table_of(f, kernel, X):
    return sampling.Table(f, Evaluator(kernel), X)


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize("sizes", [(30, 1, 25, 4, 2), (60, 2), (3,) * 20])
def test_pairs_are_drawn_as_often_as_the_density_says(within, sizes):
    rng = np.random.default_rng(1)
    n = sum(sizes)
    X = rng.standard_normal((n, 3)) * rng.lognormal(0.0, 1.0, (n, 1))
    bases = tuple(np.linalg.qr(rng.standard_normal((m, min(m, 2))))[0] for m in sizes)
    r = sum(U.shape[1] for U in bases)
    f = krein.Factorization.from_blocks(bases, np.eye(r), rng.permutation(n))
    table = table_of(f, krein.Linear(), X)
    stratum = sampling.Stratum(table, within)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    belongs = np.equal.outer(labels, labels) == within
    every = np.arange(n)[None, :]
    for w, way in enumerate(stratum.proposals):
        density = stratum.densities(every, every, table)[w, 0]  # (n, n)
        mixture = np.eye(len(stratum.proposals))[w]
        rows, cols = stratum.places(20_000, mixture, table, np.random.default_rng(w))
        drawn = np.zeros((n, n))
        np.add.at(drawn, (rows[:, :, None], cols[:, None, :]), 1.0 / (20_000 * sampling.TILE**2))
        drawn = (drawn + drawn.T) / 2.0
        for part in (belongs & (labels[:, None] <= 1), belongs & (np.arange(n)[:, None] % 2 == 0), belongs):
            part = part & ~np.eye(n, dtype=bool)
            assert drawn[part].sum() == pytest.approx(density[part].sum(), abs=0.02), way


@pytest.mark.parametrize("dtype", ["float64", "int8"])
@pytest.mark.parametrize("sparse", [True, False])
def test_tiles_of_the_factorization_are_its_entries(dtype, sparse):
    X = blobs(120)
    f = krein.approximate(X, krein.RBF(gamma=0.05), n_blocks=4, rank=5, random_state=0).factorization
    if sparse:
        kept = {(i, i): f.core[c, c] for i, (_, c) in enumerate(f.spans)}
        kept[1, 3] = f.core[f.spans[1][1], f.spans[3][1]]
        f = f.with_core(krein.BlockSparse.from_blocks(f.ranks, kept), 0.0)
    f = f.astype(dtype)
    rows, cols = np.random.default_rng(0).integers(120, size=(2, 50, sampling.TILE))
    table = table_of(f, krein.RBF(gamma=0.05), X)
    found = sampling._entries(f, rows, table.blocks_of(rows), cols, table.blocks_of(cols))
    dense = f.to_dense()[np.ix_(f.order, f.order)]
    np.testing.assert_allclose(found, dense[rows[:, :, None], cols[:, None, :]], atol=1e-12)


def test_norms_of_the_strata_and_rows_are_those_of_the_dense_matrix():
    X = blobs(120)
    f = krein.approximate(X, krein.RBF(gamma=0.05), n_blocks=4, rank=5, random_state=0).factorization
    dense = f.to_dense()
    (within, between), rows = sampling._squared_norms(f, 2.0)
    labels = np.empty(120, dtype=int)
    for i, (places, _) in enumerate(f.spans):
        labels[f.order[places]] = i
    same = np.equal.outer(labels, labels)
    assert within == pytest.approx((dense[same] ** 2).sum() / 4.0)
    assert between == pytest.approx((dense[~same] ** 2).sum() / 4.0)
    np.testing.assert_allclose(rows / rows.sum(), (dense**2).sum(1) / (dense**2).sum(), rtol=1e-9)


@pytest.mark.parametrize("n", [150, 2100])
def test_entries_once_looked_at_measure_others_in_the_same_blocks(n):
    X = blobs(n)
    a = krein.approximate(X, krein.RBF(gamma=0.05), n_blocks=4, rank=6, random_state=0)
    f, evaluator = a.factorization, Evaluator(a.kernel)
    entries = module.Entries(f, evaluator, X, 20_000, 3)
    asked = evaluator.n_evaluations
    assert entries.error(f) == a.error(n_samples=20_000, random_state=3)
    K = a.kernel(X)
    for g in (f.with_core(0.9 * f.core, 0.0), f.with_core(f.core, 0.1), f.astype("int8"), f.astype("float16")):
        exact = np.linalg.norm(K - g.to_dense()) / np.linalg.norm(K)
        e = entries.error(g)
        assert e.relative == pytest.approx(exact, rel=1e-9 if n <= 2000 else 0.1)
        assert e.n_evaluations == asked
    assert evaluator.n_evaluations == asked  # the kernel was not asked again


def test_entries_are_of_their_own_blocks_and_rows():
    X = blobs(60)
    f, g = (
        krein.approximate(X, krein.RBF(gamma=0.05), n_blocks=c, rank=3, random_state=0).factorization for c in (2, 3)
    )
    evaluator = Evaluator(krein.RBF(gamma=0.05))
    with pytest.raises(InputError, match="drawn for other blocks"):
        module.Entries(f, evaluator, X, 100, 0).error(g)
    with pytest.raises(InputError, match="60 rows, but there are 50"):
        module.Entries(f, evaluator, X[:50], 100, 0)


def test_dear_similarities_are_not_evaluated_for_nothing(monkeypatch):
    monkeypatch.setattr(module, "WHOLE_ROWS", 0)
    X = blobs(300)
    kernel = krein.RBF(gamma=0.05)
    f = krein.approximate(X, kernel, n_blocks=3, rank=5, random_state=0).factorization
    cheap, dear = (module.estimate_error(f, k, X, 4000, 0) for k in (kernel, FromCallable(lambda A, B: kernel(A, B))))
    assert dear.relative == pytest.approx(cheap.relative, rel=1e-9)
    own = FromCallable(kernel).diag_entries(300)  # a callable gives its diagonal in small blocks
    assert dear.n_evaluations <= own + 4000 + 2 * 64
    assert 300 + 3 * 4000 < cheap.n_evaluations <= 300 + sampling.TILES_PER_CALL * (4000 + 2 * 64)


def test_objects_that_are_no_vectors_and_tiny_samples(monkeypatch):
    monkeypatch.setattr(module, "WHOLE_ROWS", 0)
    words = ["ab" * (1 + i % 7) + "c" * (i % 5) for i in range(60)]
    kernel = FromCallable(lambda A, B: np.array([[float(min(len(x), len(y))) for y in B] for x in A]))
    a = krein.approximate(words, kernel, n_blocks=4, rank=2, random_state=0)
    e = a.error(n_samples=1, random_state=0)
    assert 0.0 <= e.low <= e.relative <= e.high
