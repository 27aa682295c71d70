"""Columns to rows of numbers, as scikit-learn's transformers would make them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from krein.errors import InputError
from krein.tables.encoding import encoder_for
from krein.tables.reading import Frame

RNG = np.random.default_rng(0)
A = RNG.standard_normal(50) * 3 + 1
B = np.array(RNG.choice(["red", "blue", ""], 50), dtype=object)


@pytest.mark.parametrize(("scale", "theirs"), [("standard", StandardScaler()), ("minmax", MinMaxScaler())])
def test_the_same_as_scikit_learn(scale, theirs):
    encoder = encoder_for(Frame(("a", "b"), (A, B)), scale)
    got = encoder(Frame(("b", "a"), (B, A)))  # order does not matter
    np.testing.assert_allclose(got[:, :1], theirs.fit_transform(A[:, None]))
    np.testing.assert_array_equal(got[:, 1:], OneHotEncoder(sparse_output=False).fit_transform(B[:, None].astype(str)))
    assert encoder.names == ("a", "b=missing", "b=blue", "b=red")


def test_missing_numbers_become_the_median_and_it_is_said():
    holes = A.copy()
    holes[:5] = np.nan
    encoder = encoder_for(Frame(("a",), (holes,)), "none")
    np.testing.assert_allclose(encoder(Frame(("a",), (holes,)))[:5, 0], np.median(A[5:]))
    assert "missing in 5 of 50 rows" in encoder.notes[0]


def test_a_new_category_is_none_of_the_known_ones():
    encoder = encoder_for(Frame(("b",), (B,)))
    assert not encoder(Frame(("b",), (np.array(["green"], dtype=object),))).any()


def test_a_constant_column_does_no_harm_and_is_named():
    encoder = encoder_for(Frame(("a", "c"), (A, np.full(50, 7.0))))
    assert np.isfinite(encoder(Frame(("a", "c"), (A, np.full(50, 8.0))))).all()
    assert "c: constant" in encoder.notes[-1]


def test_one_word_among_numbers_is_named():
    column = np.array([*map(str, A[:40].tolist()), "oops"], dtype=object)
    assert "40 of its 41 values are numbers, but 'oops' is not" in encoder_for(Frame(("a",), (column,))).notes[0]
    many = np.array([*map(str, range(300)), "oops"], dtype=object)
    with pytest.raises(InputError, match=r"301 different texts.*'oops' is not. Leave it out with --drop a.$"):
        encoder_for(Frame(("a",), (many,)))


def test_texts_of_no_use_are_said_to_be():
    notes = encoder_for(Frame(("a", "b"), (np.full(3, "x", dtype=object), np.array(list("xyz"), dtype=object)))).notes
    assert notes == (
        "a: the same text in every row, of no use",
        "b: text, 3 categories, one column each, different in every row: of no use as such",
    )


def test_what_is_odd_about_new_values_is_counted():
    numbers, words = encoder_for(Frame(("a", "b"), (A, B))).columns
    assert numbers.odd(np.array([1.0, np.nan, np.nan])) == 2
    assert words.odd(np.array(["red", "green", ""], dtype=object)) == 1
    assert (
        encoder_for(Frame(("b",), (np.array(["1000001", "x"], dtype=object),))).columns[0].odd(np.array([1000001.0]))
        == 0
    )


@pytest.mark.parametrize(
    ("column", "match"),
    [
        (np.full(50, np.nan), "missing in every row"),
        (np.append(A[1:], np.inf), "infinite"),
        (np.array([f"t{i}" for i in range(300)], dtype=object), "300 different texts"),
    ],
)
def test_what_cannot_be_used_is_refused(column, match):
    with pytest.raises(InputError, match=match):
        encoder_for(Frame(("a",), (column,)))


def test_other_columns_than_the_fits_are_refused():
    encoder = encoder_for(Frame(("a", "b"), (A, B)))
    with pytest.raises(InputError, match=r"lacks 1 of the 2 columns.*: b"):
        encoder(Frame(("a", "x"), (A, B)))
    with pytest.raises(InputError, match=r"'a' held numbers .* holds text, as '(red|blue)'"):
        encoder(Frame(("a", "b"), (B, B)))
    with pytest.raises(InputError, match="'a' holds infinite values"):
        encoder(Frame(("a", "b"), (np.append(A[1:], np.inf), B)))


def test_one_row_is_one_row():
    assert "(missing in 1 row: a" in encoder_for(Frame(("b",), (np.array(["x", "x", ""], dtype=object),))).notes[0]
