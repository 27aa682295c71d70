"""Strings: edit distances, Jaro-Winkler, n-grams; against naive twins, and every declared property on data."""

from __future__ import annotations

import os
import pickle
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import krein
from krein.kernels import EditDistance, EditSimilarity, Evaluator, JaroWinkler, Spectrum, check_kernel

words = st.lists(st.text("abcé", max_size=7), min_size=1, max_size=8)
FUZZY = [EditDistance(), EditSimilarity(), JaroWinkler()]


def letters(n, seed=0, alphabet="abc", longest=9):
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(list(alphabet), rng.integers(0, longest))) for _ in range(n)]


def naive_edit(a, b):
    before = list(range(len(b) + 1))
    for i, p in enumerate(a, 1):
        now = [i]
        for j, q in enumerate(b, 1):
            now.append(min(now[-1] + 1, before[j] + 1, before[j - 1] + (p != q)))
        before = now
    return before[-1]


def naive_jaro_winkler(a, b):
    if not a and not b:
        return 1.0
    reach = max(max(len(a), len(b)) // 2 - 1, 0)
    taken, first = set(), []
    for i, p in enumerate(a):
        for j in range(max(0, i - reach), min(len(b), i + reach + 1)):
            if b[j] == p and j not in taken:
                taken.add(j)
                first.append(p)
                break
    m = len(first)
    if m == 0:
        return 0.0
    second = [b[j] for j in sorted(taken)]
    moved = sum(p != q for p, q in zip(first, second, strict=True)) // 2
    jaro = (m / len(a) + m / len(b) + (m - moved) / m) / 3
    common = next((i for i, (p, q) in enumerate(zip(a, b, strict=False)) if p != q), min(len(a), len(b)))
    return jaro + 0.1 * min(common, 4) * (1 - jaro) if jaro > 0.7 else jaro


def naive_spectrum(a, b, n):
    first, second = (Counter(s[i : i + n] for i in range(len(s) - n + 1)) for s in (a, b))
    return sum(first[gram] * second[gram] for gram in first)


@given(A=words, B=words)
def test_the_edit_distance_is_that_of_the_textbook(A, B):
    expected = np.array([[naive_edit(a, b) for b in B] for a in A])
    np.testing.assert_array_equal(EditDistance()(A, B), expected)
    longer = np.array([[max(len(a), len(b), 1) for b in B] for a in A])
    np.testing.assert_allclose(EditSimilarity()(A, B), 1 - expected / longer, atol=1e-12)


@given(A=words, B=words)
def test_jaro_winkler_is_that_of_the_textbook(A, B):
    np.testing.assert_allclose(JaroWinkler()(A, B), [[naive_jaro_winkler(a, b) for b in B] for a in A], atol=1e-12)


@given(A=words, B=words, n=st.integers(1, 4), blended=st.booleans())
def test_the_spectrum_counts_common_n_grams(A, B, n, blended):
    kernel = Spectrum(n, blended)
    lengths = range(1, n + 1) if blended else [n]
    expected = np.array([[sum(naive_spectrum(a, b, m) for m in lengths) for b in B] for a in A])
    np.testing.assert_array_equal(kernel(A, B), expected)
    np.testing.assert_array_equal(kernel.diag(A), np.diag(kernel(A)))


@pytest.mark.parametrize(
    "kernel", [*FUZZY, Spectrum(2), Spectrum(3, blended=True), krein.Normalized(Spectrum(1, blended=True))], ids=repr
)
def test_every_declared_property_holds_on_data(kernel):
    strings = [s + "a" for s in letters(150)]
    check = check_kernel(kernel, strings, random_state=0)
    assert check.ok, check
    if kernel.traits.psd is False:
        assert check.smallest_eigenvalue < -0.1


def test_threads_change_nothing_and_are_no_part_of_the_kernel():
    A, B = letters(300, 1), letters(120, 2)
    for kind in (EditDistance, EditSimilarity, JaroWinkler):
        np.testing.assert_array_equal(kind(n_jobs=1)(A, B), kind(n_jobs=-1)(A, B))
        assert kind(n_jobs=1) == kind()
        assert hash(kind(n_jobs=1)) == hash(kind())
        assert pickle.loads(pickle.dumps(kind())) == kind()


def test_the_evaluator_counts_strings_like_anything():
    evaluator = Evaluator(EditSimilarity())
    evaluator.block(letters(30), letters(7))
    assert evaluator.n_evaluations == 210
    evaluator.diag(letters(30))
    assert evaluator.n_evaluations == 210  # 1 without a look


def test_letters_beyond_ascii_are_letters():
    assert EditDistance()(["naïve"], ["naive"])[0, 0] == 1.0
    assert Spectrum(1)(["日本日"], ["日"])[0, 0] == 2.0


def test_a_long_alphabet_does_not_mix_up_n_grams():
    alphabet = "".join(map(chr, range(0x4E00, 0x4E00 + 3000)))
    A = letters(12, 3, alphabet, 40)
    expected = [[naive_spectrum(a, b, 4) for b in A] for a in A]
    np.testing.assert_array_equal(Spectrum(4)(A), expected)


def test_without_rapidfuzz_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rapidfuzz", None)
    with pytest.raises(krein.InputError, match=r"krein\[strings\]"):
        EditSimilarity()(["a"], ["b"])
    assert Spectrum(1)(["a"], ["a"])[0, 0] == 1.0


@pytest.mark.parametrize("bad", [0, -1, 1.5, "3", None])
def test_the_length_of_n_grams_is_a_whole_number(bad):
    with pytest.raises(krein.InputError, match="whole number"):
        Spectrum(bad)


@pytest.mark.parametrize(
    ("X", "said"),
    [
        (["a", "b", 3], "item 2 is 3"),
        (["a", None], "item 1 is None"),
        (["a", float("nan")], "item 1 is nan"),
        (np.zeros((3, 2)), "shape"),
        ("abc", "sequence of objects"),
        ([["a", "b"], ["c", "d"]], "item 0"),
    ],
)
def test_what_is_no_list_of_strings_is_refused_with_its_place(X, said):
    with pytest.raises(krein.InputError, match=said):
        krein.approximate(X, EditSimilarity())


def test_strings_come_in_any_form():
    strings = letters(40)
    K = EditSimilarity()(strings)
    for form in (strings, tuple(strings), np.array(strings), np.array(strings, dtype=object)):
        a = krein.approximate(form, EditSimilarity(), random_state=0)
        np.testing.assert_allclose(a.factorization.to_dense(), K, atol=1e-10)
        assert a.kernel_rows(np.array(["abc", "b"]), exact=True).shape == (2, 40)


def test_a_distance_is_not_taken_for_a_similarity():
    with pytest.raises(krein.InputError, match=r"is a distance.*FromDistances"):
        krein.approximate(letters(20), EditDistance())
    with pytest.raises(krein.InputError, match="is a distance"):
        krein.SVC(kernel=2.0 * EditDistance()).fit(letters(20), [0, 1] * 10)


def test_kernels_of_different_objects_do_not_mix():
    with pytest.raises(krein.InputError, match="indices, strings"):
        EditSimilarity() + krein.Precomputed(np.eye(3))
    both = EditSimilarity() + 0.5 * krein.Normalized(Spectrum(1))
    assert both.compares == "strings"


@pytest.mark.parametrize("kind", [EditDistance, EditSimilarity, JaroWinkler])
def test_threads_are_a_whole_number_or_none(kind, monkeypatch):
    for bad in ("2", 0, -5, 2.0, True):
        with pytest.raises(krein.InputError, match="n_jobs to be a whole number"):
            kind(n_jobs=bad)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert [kind(n_jobs=n)._workers for n in (None, 1, 2, np.int64(2), 10**6, -1)] == [1, 1, 2, 2, 3, 3]
    assert kind(n_jobs=None)(letters(5)).shape == (5, 5)
