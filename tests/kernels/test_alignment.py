"""Alignment scores against Biopython's aligner and a naive recursion; time warping against the textbook's table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import krein
from krein.kernels import Alignment, DynamicTimeWarping, check_kernel

strings = st.lists(st.text("ACD", max_size=6), min_size=1, max_size=5)
sequences = st.lists(st.lists(st.integers(-5, 5), min_size=1, max_size=7), min_size=1, max_size=5)


def naive_score(a, b, score, first, more, mode):
    """Gotoh's three tables, cell by cell."""
    low = -1e9
    H, E, F = (np.full((len(a) + 1, len(b) + 1), low) for _ in range(3))
    for i, j in itertools.product(range(len(a) + 1), range(len(b) + 1)):
        if i > 0:
            E[i, j] = max(E[i - 1, j] - more, H[i - 1, j] - first)
        if j > 0:
            F[i, j] = max(F[i, j - 1] - more, H[i, j - 1] - first)
        met = H[i - 1, j - 1] + score(a[i - 1], b[j - 1]) if i and j else (0.0 if i == j == 0 else low)
        H[i, j] = max(met, E[i, j], F[i, j], 0.0 if mode == "local" else low)
    return H.max() if mode == "local" else H[-1, -1]


@settings(max_examples=30)
@given(A=strings, B=strings, gaps=st.sampled_from([(2.0, 1.0), (3.0, 0.0), (1.0, 1.0), (1.25, 0.5)]))
@pytest.mark.parametrize("mode", ["local", "global"])
def test_a_score_is_that_of_the_tables(mode, A, B, gaps):
    kernel = Alignment((2.0, -1.0), *gaps, mode)
    expected = [[naive_score(a, b, lambda p, q: 2.0 if p == q else -1.0, *gaps, mode) for b in B] for a in A]
    np.testing.assert_allclose(kernel(A, B), expected, atol=1e-12)
    np.testing.assert_allclose(kernel.diag(A), np.diag(kernel(A)), atol=1e-12)


@pytest.mark.parametrize("mode", ["local", "global"])
def test_scores_by_blosum62_are_biopythons(mode):
    align = pytest.importorskip("Bio.Align")
    rng = np.random.default_rng(0)
    A = ["".join(rng.choice(list("ARNDCQEGHILKMFPSTWYV"), rng.integers(1, 60))) for _ in range(25)]
    aligner = align.PairwiseAligner(mode=mode, open_gap_score=-11, extend_gap_score=-1)
    aligner.substitution_matrix = align.substitution_matrices.load("BLOSUM62")
    expected = [[aligner.score(a, b) for b in A] for a in A]
    kernel = Alignment(mode=mode)
    np.testing.assert_array_equal(kernel(A), expected)
    np.testing.assert_array_equal(kernel.diag(A), np.diag(expected))
    assert check_kernel(kernel, A).ok


def test_scores_beyond_sixteen_bits_are_exact():
    kernel = Alignment((200, -200), 250, 1)
    assert kernel(["A" * 400], ["A" * 400])[0, 0] == 80_000.0
    assert kernel(["A" * 400, "C"], ["A" * 400])[1, 0] == 0.0


def test_a_self_score_that_a_shift_beats_is_found():
    scores = {("A", "A"): 1.0, ("B", "B"): 1.0, ("A", "B"): 3.0}
    kernel = Alignment(scores, 0.5, 0.5)
    assert kernel.diag(["ABABAB"])[0] == kernel(["ABABAB"], ["ABABAB"])[0, 0] > 6.0


def test_alignment_scores_are_no_inner_products():
    rng = np.random.default_rng(0)
    A = ["".join(rng.choice(list("ACDEFG"), rng.integers(1, 9))) for _ in range(150)]
    for mode in ("local", "global"):
        assert np.linalg.eigvalsh(Alignment((2, -1), 2, 1, mode)(A))[0] < -1.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"scores": (1, -1), "gap_open": 1, "gap_extend": 2}, "gap_open >= gap_extend"),
        ({"scores": (1, -1), "gap_open": -1}, "gap_open"),
        ({"scores": (1, -1), "mode": "both"}, "'local', 'global'"),
        ({"scores": {("A", "B"): 1.0, ("B", "A"): 2.0}}, "symmetric scores"),
        ({"scores": {("AA", "B"): 1.0}}, "scores as the name"),
        ({"scores": (1, 2, 3)}, "scores as the name"),
    ],
)
def test_bad_scores_are_refused(arguments, said):
    with pytest.raises(krein.InputError, match=said):
        Alignment(**arguments)


def test_unknown_matrices_and_letters_are_named():
    pytest.importorskip("Bio.Align")
    with pytest.raises(krein.InputError, match="'BLOSUM62'"):
        Alignment("BLOSUM61")
    with pytest.raises(krein.InputError, match="no scores for 'é'"):
        Alignment()(["ACDé"], ["A"])
    with pytest.raises(krein.InputError, match="no score for 'A' and 'B'"):
        Alignment({("A", "A"): 1.0, ("B", "B"): 1.0})(["AB"], ["A"])


# ------------------------------------------------------------------------------------------- time warping


def naive_warping(x, y, window=None):
    D = np.full((len(x) + 1, len(y) + 1), np.inf)
    D[0, 0] = 0.0
    reach = np.inf if window is None else max(window, abs(len(x) - len(y)))
    for i, j in itertools.product(range(len(x)), range(len(y))):
        if abs(i - j) <= reach:
            apart = np.linalg.norm(np.atleast_1d(x[i]) - np.atleast_1d(y[j]))
            D[i + 1, j + 1] = apart + min(D[i, j], D[i + 1, j], D[i, j + 1])
    return D[-1, -1]


@given(A=sequences, B=sequences, window=st.sampled_from([None, 1, 2, 4]))
def test_warping_is_that_of_the_textbook(A, B, window):
    expected = [[naive_warping(x, y, window) for y in B] for x in A]
    np.testing.assert_allclose(DynamicTimeWarping(window)(A, B), expected, atol=1e-9)


def test_warping_of_vectors_and_of_any_lengths():
    rng = np.random.default_rng(0)
    A = [rng.normal(size=(rng.integers(2, 20), 3)) for _ in range(12)]
    np.testing.assert_allclose(
        DynamicTimeWarping()(A[:5], A), [[naive_warping(x, y) for y in A] for x in A[:5]], rtol=1e-10
    )
    assert (DynamicTimeWarping()(A).diagonal() == 0.0).all()


def test_warping_forgives_a_late_start():
    wave = np.sin(np.linspace(0, 6, 40))
    late = np.concatenate([np.zeros(8), wave])
    assert DynamicTimeWarping()([wave], [late])[0, 0] < 0.1 * np.abs(wave - late[:40]).sum()


def test_a_similarity_of_warped_sequences_keeps_its_promises():
    rng = np.random.default_rng(0)
    A = [np.cumsum(rng.normal(size=rng.integers(5, 30))) for _ in range(60)]
    for transform in ("exponential", "gaussian", "inverse", "linear"):
        kernel = krein.FromDistances(DynamicTimeWarping(), transform).bind(A)
        assert check_kernel(kernel, A).ok


@pytest.mark.parametrize("bad", [[], [1.0, np.nan], [[[1.0]]], ["a"], 3.0])
def test_what_is_no_sequence_of_numbers_is_refused(bad):
    with pytest.raises(krein.InputError, match="item 1"):
        krein.approximate([[1.0, 2.0], bad], krein.FromDistances(DynamicTimeWarping()))


def test_steps_of_different_widths_are_refused():
    with pytest.raises(krein.InputError, match=r"\[1, 2\]"):
        DynamicTimeWarping()([np.ones(3)], [np.ones((3, 2))])


def test_warping_loses_nothing_beside_a_huge_value():
    x, y = np.array([1e18, 1.0, 2.0]), np.array([1e18, 5.0, 9.0])
    assert DynamicTimeWarping()([x], [y])[0, 0] == 11.0  # 0, then |1 - 5|, then |2 - 9|
    assert DynamicTimeWarping(window=1)([x, y], [y])[0, 0] == 11.0
    wide = [np.column_stack([s, s]) for s in (x, y)]
    assert DynamicTimeWarping()(wide)[0, 1] == pytest.approx(11.0 * np.sqrt(2.0), rel=1e-14)


def test_warping_says_what_it_compares():
    with pytest.raises(krein.InputError, match=r"sequences of numbers.*sequence 1 is 'abc'.*EditDistance"):
        krein.FromDistances(DynamicTimeWarping(), scale=1.0)([np.ones(3), "abc"])
