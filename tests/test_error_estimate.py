"""The error without K: exact for small n, unbiased in the squares and covered by its interval beyond."""

from __future__ import annotations

import numpy as np
import pytest

import krein
from krein import error_estimate as module


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
    estimates = np.array([a.error(n_samples=4000, random_state=seed).relative ** 2 for seed in range(120)])
    deviation = estimates.std(ddof=1) / np.sqrt(len(estimates))
    assert abs(estimates.mean() - exact**2) <= 4 * deviation + 0.02 * exact**2


def test_the_sampled_way_agrees_on_small_awkward_blocks(monkeypatch):
    X = np.concatenate([blobs(60), [[20.0] * 4], [[-20.0] * 4, [-21.0] * 4]])  # blocks of one and of two rows
    a = krein.approximate(X, krein.Linear(), n_blocks=5, rank=2, drop=0.5, random_state=0)
    assert a.partition.sizes.min() == 1
    exact = a.error().relative
    monkeypatch.setattr(module, "EXACT_ROWS", 0)
    found = [a.error(n_samples=20_000, random_state=seed) for seed in range(8)]
    assert np.sqrt(np.mean([e.relative**2 for e in found])) == pytest.approx(exact, rel=0.1)
    one = krein.approximate(X, krein.Linear(), n_blocks=1, rank=2, random_state=0)
    monkeypatch.undo()
    reference = one.error().relative
    monkeypatch.setattr(module, "EXACT_ROWS", 0)
    sampled = one.error(random_state=0)
    assert sampled.between == 0.0
    assert sampled.relative == pytest.approx(reference, rel=0.3)


def test_it_needs_few_entries_and_repeats(moderate):
    a, _ = moderate
    first, second = a.error(random_state=5), a.error(random_state=5)
    assert first == second
    assert first.n_evaluations <= 2500 + 50_000 + 2 * 64
    assert str(first).count("[") == 1


def test_an_exact_approximation_has_no_error_beyond_2000_rows():
    X = np.random.default_rng(0).standard_normal((2300, 3))
    a = krein.approximate(X, krein.Linear(), n_blocks=3, rank=3, random_state=0)
    estimate = a.error(random_state=0)
    assert estimate.high <= 1e-10
