"""The global alignment kernel beside the sum over all paths, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import krein
from krein import GlobalAlignment
from krein.kernels import Evaluator, check_kernel

sequences = st.lists(
    st.lists(st.floats(-3.0, 3.0, width=16), min_size=1, max_size=5).map(np.array), min_size=1, max_size=5
)


def monotone_paths(i, j):
    if i == j == 0:
        yield ((0, 0),)
        return
    for before in ((i - 1, j), (i, j - 1), (i - 1, j - 1)):
        if min(before) >= 0:
            for path in monotone_paths(*before):
                yield (*path, (i, j))


def naive(x, y, sigma):
    """The sum over all paths of the product of e / (2 - e), e being a Gaussian kernel of steps."""
    e = np.exp(-np.square(np.subtract.outer(x, y)) / (2.0 * sigma**2))
    steps = e / (2.0 - e)
    return math.fsum(math.prod(steps[s] for s in path) for path in monotone_paths(len(x) - 1, len(y) - 1))


@given(A=sequences, B=sequences, sigma=st.sampled_from([0.7, 3.0]))
def test_it_is_the_sum_over_all_paths(A, B, sigma):
    expected = [[naive(x, y, sigma) / math.sqrt(naive(x, x, sigma) * naive(y, y, sigma)) for y in B] for x in A]
    np.testing.assert_allclose(GlobalAlignment(sigma)(A, B), expected, rtol=1e-10)
    for x, own in zip(A, GlobalAlignment(sigma).own(A), strict=True):
        assert own == pytest.approx(math.log(naive(x, x, sigma)), abs=1e-12)


def walks(n, seed, width=None, longest=40):
    rng = np.random.default_rng(seed)
    shape = () if width is None else (width,)
    return [np.cumsum(rng.normal(size=(rng.integers(3, longest), *shape)), axis=0) for _ in range(n)]


@pytest.mark.parametrize("width", [None, 2])
def test_promises_hold_on_sequences_of_any_lengths(width):
    A = walks(40, 0, width, longest=20)
    for kernel in (GlobalAlignment(), GlobalAlignment(0.5), GlobalAlignment(50.0)):
        report = check_kernel(kernel, A)
        assert report.ok, report
    assert GlobalAlignment(1.0).traits.psd is True


def test_columns_of_zeros_change_nothing():
    A = walks(8, 0)
    wide = [np.column_stack([x, np.zeros_like(x)]) for x in A]
    np.testing.assert_allclose(GlobalAlignment(2.0)(wide), GlobalAlignment(2.0)(A), atol=1e-12)


def test_long_sequences_neither_overflow_nor_vanish():
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=600))
    K = GlobalAlignment(500.0)([x, x + 0.01])
    assert GlobalAlignment(500.0).own([x])[0] > 750.0  # the sum itself is no float
    assert 0.99 < K[0, 1] <= 1.0


def test_the_width_follows_the_data():
    A = walks(30, 0)
    sigma = GlobalAlignment().bind(A).sigma
    assert GlobalAlignment().bind([7.0 * x for x in A]).sigma == pytest.approx(7.0 * sigma)
    assert GlobalAlignment().bind([np.ones(4), np.ones(9)]).sigma > 0.0
    assert GlobalAlignment(2.0).bind(A) == GlobalAlignment(2.0)


def test_similarities_are_counted_and_own_ones_computed_once():
    A = walks(20, 0)
    evaluator = Evaluator(GlobalAlignment(5.0))
    prepared = evaluator.against(A)
    for i in range(1, 4):
        np.testing.assert_allclose(prepared.block(A[:3]), GlobalAlignment(5.0)(A)[:3], rtol=1e-12)
        assert evaluator.n_evaluations == 20 + i * (3 * 20 + 3)


def test_a_machine_learns_from_warped_waves():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 2
    X = [np.sin(np.cumsum(rng.uniform(0.1, 0.3, rng.integers(25, 45))) * (1.0 + c)) for c in y]
    machine = krein.SVC(kernel=GlobalAlignment(), C=10.0, random_state=0).fit(X[:60], y[:60])
    assert machine.score(X[60:], y[60:]) > 0.9


def test_what_is_no_sequence_is_refused():
    with pytest.raises(krein.InputError, match=r"GlobalAlignment compares sequences of numbers.*sequence 1 is 'abc'"):
        GlobalAlignment(1.0)([np.ones(3), "abc"])
    with pytest.raises(krein.InputError, match="sigma, which is still None"):
        GlobalAlignment()([np.ones(3)])
    with pytest.raises(krein.InputError, match="sigma"):
        GlobalAlignment(-1.0)
