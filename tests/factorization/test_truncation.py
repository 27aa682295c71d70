"""Truncation to a range: counts, rows, the operator, and the shift that makes it psd, beside dense clipping."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import krein
from krein.factorization.truncation import out_of_range, truncate


@pytest.fixture(scope="module")
def approximation():
    """An RBF approximation with negative similarities: few landmarks for a narrow kernel."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 4)) + 3.0 * rng.integers(0, 3, (600, 1))
    return krein.approximate(X, krein.RBF(gamma=0.5), n_blocks=3, rank=12, coupling="pairwise", random_state=0)


def dense_without_shift(f):
    return replace(f, shift=0.0).to_dense()


def test_an_rbf_approximation_holds_negative_similarities_and_they_are_counted(approximation):
    f = approximation.factorization
    K = dense_without_shift(f)
    found = out_of_range(f, 0.0, 1.0, n_rows=len(K))
    expected = ((K < -1e-9) | (K > 1.0 + 1e-9)).mean()
    assert expected > 0.01  # or this test shows nothing
    assert found.exact
    assert found.share == found.at_least == found.at_most == pytest.approx(expected)
    assert found.smallest == pytest.approx(K.min())
    assert found.largest == pytest.approx(K.max())


def test_sampled_counts_cover_the_truth(approximation):
    f = approximation.factorization
    truth = out_of_range(f, 0.0, 1.0, n_rows=600).share
    covered = 0
    for seed in range(100):
        found = out_of_range(f, 0.0, 1.0, n_rows=60, random_state=seed)
        assert not found.exact
        assert found.n_entries == 60 * 600
        covered += found.at_least <= truth <= found.at_most
    assert covered >= 88


def test_the_shift_is_no_similarity(approximation):
    shifted = replace(approximation.factorization, shift=0.7)
    bare, moved = (out_of_range(f, 0.0, 1.0, n_rows=600) for f in (approximation.factorization, shifted))
    assert bare == moved


def test_nothing_out_of_range_still_has_an_upper_bound(approximation):
    found = out_of_range(approximation.factorization, -1e6, 1e6, n_rows=50, random_state=0)
    assert found.share == found.at_least == 0.0
    assert 0.0 < found.at_most < 0.1
    assert "out of range" in str(found)


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_the_operator_is_dense_clipping(approximation, shift, monkeypatch):
    monkeypatch.setattr("krein.factorization.truncation.STRIP", 600 * 37)  # several strips, the last one short
    f = replace(approximation.factorization, shift=shift)
    expected = np.clip(dense_without_shift(f), 0.0, 1.0) + shift * np.eye(600)
    cut = truncate(f, 0.0, 1.0)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((600, 3))
    tolerance = 1e-12 * np.linalg.norm(expected)
    np.testing.assert_allclose(cut.to_dense(), expected, atol=tolerance)
    np.testing.assert_allclose(cut @ x, expected @ x, atol=tolerance * 10)
    np.testing.assert_allclose(cut @ x[:, 0], expected @ x[:, 0], atol=tolerance * 10)
    np.testing.assert_allclose(cut.as_linear_operator() @ x, expected @ x, atol=tolerance * 10)
    np.testing.assert_allclose(cut.diagonal(), np.diag(expected), atol=tolerance)
    np.testing.assert_allclose(cut.rows([5, 3]), expected[[5, 3]], atol=tolerance)


def test_one_sided_truncation(approximation):
    f = approximation.factorization
    np.testing.assert_allclose(truncate(f, 0.0, None).to_dense(), np.maximum(f.to_dense(), 0.0), atol=1e-12)


def test_truncation_makes_it_indefinite_and_the_lanczos_shift_psd_again(approximation):
    clipped = krein.correct(approximation.factorization, "clip")
    cut = truncate(clipped, 0.0, 1.0)
    before = np.linalg.eigvalsh(cut.to_dense())
    assert before[0] < -1e-3 * before[-1]  # psd is lost by truncating
    after = cut.shifted(random_state=0)
    assert after.shift == pytest.approx(after.estimate.shift)
    assert np.linalg.eigvalsh(after.to_dense())[0] >= -1e-8 * before[-1]
    assert after.shift <= -before[0] + after.estimate.residual + 1e-8 * before[-1]  # and no more than it takes


@pytest.mark.parametrize(
    ("low", "high", "rows", "words"),
    [
        (None, None, 10, "both None"),
        (1.0, 0.0, 10, "low < high"),
        (0.0, 1.0, 1, "at least 2"),
        (0.0, 1.0, 2.5, "integer"),
    ],
)
def test_bad_input_says_what_was_needed(approximation, low, high, rows, words):
    with pytest.raises(krein.InputError, match=words):
        out_of_range(approximation.factorization, low, high, n_rows=rows)


def test_rows_of_new_objects_are_truncated_on_request(approximation):
    X_new = approximation.objects[::3] + 0.3
    plain = approximation.kernel_rows(X_new)
    assert plain.min() < -1e-6
    np.testing.assert_allclose(approximation.kernel_rows(X_new, truncate=True), np.clip(plain, 0.0, 1.0), atol=1e-12)
    some = approximation.kernel_rows(X_new, [3, 1], truncate=True)
    np.testing.assert_allclose(some, np.clip(plain, 0.0, 1.0)[:, [3, 1]], atol=1e-12)


def test_the_kernels_own_range_is_used_and_needed(approximation):
    expected = out_of_range(approximation.factorization, 0.0, 1.0, 50, random_state=0)
    assert approximation.out_of_range(50, random_state=0) == expected
    unlimited = krein.approximate(approximation.objects, krein.Linear(), random_state=0)
    with pytest.raises(krein.InputError, match="declares no range"):
        unlimited.out_of_range()


def test_a_product_of_the_wrong_length_is_refused(approximation):
    with pytest.raises(krein.InputError, match="600 rows"):
        truncate(approximation.factorization, 0.0, 1.0) @ np.ones(599)
