"""Columns to rows of numbers, as scikit-learn's transformers would make them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from krein.encoding import encoder_for
from krein.errors import InputError
from krein.reading import Frame

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
    with pytest.raises(InputError, match="'a' held numbers"):
        encoder(Frame(("a", "b"), (B, B)))
