"""Columns to rows of numbers, as scikit-learn's transformers would make them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

from krein.errors import InputError
from krein.kernels import Gower
from krein.tables.encoding import encoder_for, mixed_encoder_for, usable_columns
from krein.tables.reading import Frame, with_zero_columns

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
    with pytest.raises(
        InputError, match=r"a: text, different in every row, left out; 300 .*'oops' is not.*--kernel edit"
    ):
        usable_columns(Frame(("a",), (many,)))


def test_columns_of_no_use_are_left_out_and_named():
    frame = Frame(
        ("id", "day", "none", "empty", "same", "b"),
        (
            np.array([f"C{i}" for i in range(50)], dtype=object),
            np.array(["", *(f"2024-02-{i:02}" for i in range(1, 50))], dtype=object),
            np.full(50, np.nan),
            np.full(50, "", dtype=object),
            np.full(50, "x", dtype=object),
            B,
        ),
    )
    kept, notes = usable_columns(frame)
    assert kept.names == ("same", "b")
    assert notes == (
        "id: text, different in every row, left out",
        "day: text, different in every row, missing in 1, left out",
        "none: missing in every row, left out",
        "empty: missing in every row, left out",
    )
    assert encoder_for(kept).notes[0] == "same: the same text in every row, of no use"
    with pytest.raises(InputError, match=r"No column is left to learn from, after the target"):
        usable_columns(Frame((), ()))


def test_only_the_most_frequent_of_many_texts_become_columns():
    words = np.array([f"w{i}" for i in range(1, 151) for _ in range(i)] + ["once", ""], dtype=object)
    encoder = encoder_for(Frame(("w",), (words,)))
    theirs = OneHotEncoder(sparse_output=False, max_categories=101).fit_transform(words[:, None].astype(str))
    np.testing.assert_array_equal(encoder(Frame(("w",), (words,))), theirs[:, :-1])  # theirs has one for the others
    rest = sum(range(1, 51)) + 2
    assert (
        f"152 categories; one column for each of the 100 most frequent, none for the others, in {rest} of"
        in (encoder.notes[0])
    )
    few = np.array(["twice", "twice", *(f"w{i}" for i in range(200))], dtype=object)
    assert encoder_for(Frame(("w",), (few,))).names == ("w=twice",)


def test_missing_numbers_and_unknown_categories_are_counted():
    encoder = encoder_for(Frame(("a", "b"), (A, B)))
    new = Frame(("b", "a"), (np.array(["red", "green", ""], dtype=object), np.array([1.0, np.nan, np.nan])))
    counts = encoder.count_unknown(new)
    assert counts == {("a", "missing"): 2, ("b", "unknown"): 1}
    assert encoder.describe_unknown(counts + counts, 6) == [
        f"a: missing in 4 of 6 rows, replaced by the median {np.median(A):g}",
        "b: 2 of 6 rows hold none of the categories that the model knows",
    ]
    long = encoder_for(Frame(("b",), (np.array(["1000001", "x"], dtype=object),)))
    assert long.count_unknown(Frame(("b",), (np.array([1000001.0]),))) == {}


def test_a_missing_text_is_no_unknown_category():
    new = Frame(("b",), (np.array(["red", "green", "", ""], dtype=object),))
    full = Frame(("b",), (np.array(["red", "blue", "red"], dtype=object),))
    for encoder, said in [
        (encoder_for(full), "taken for none of the categories"),
        (mixed_encoder_for(full), "left out where two rows are compared"),
    ]:
        counts = encoder.count_unknown(new)
        assert counts == {("b", "missing"): 2, ("b", "unknown"): 1}
        assert encoder.describe_unknown(counts, 4)[0] == f"b: missing in 2 of 4 rows, {said}"


def test_each_column_is_encoded_by_itself_and_as_by_scikit_learns_transformers():
    X = RNG.standard_normal((7, 50)) * 10.0 ** np.arange(-3, 4)[:, None]
    X[2, :3], X[5] = np.nan, 0.1  # 0.1 has a mean that is not 0.1
    columns = (*X[:4], B, *X[4:])
    frame = Frame(tuple("abcdefgh"), columns)
    encoder = encoder_for(frame)
    ones = [encoder_for(Frame((name,), (column,))) for name, column in zip(frame.names, columns, strict=True)]
    assert encoder.columns == tuple(one.columns[0] for one in ones)
    assert encoder.notes == tuple(note for i in (2, 4, 6) for note in ones[i].notes)
    np.testing.assert_array_equal(encoder(frame), np.hstack([one(frame) for one in ones]))
    assert encoder.columns[6].scale == 1.0
    plain = make_pipeline(SimpleImputer(strategy="median"), StandardScaler()).fit_transform(X.T)
    numbers = np.column_stack([encoder(frame)[:, encoder.names.index(name)] for name in "abcdfgh"])
    np.testing.assert_allclose(numbers, plain, rtol=1e-12, atol=1e-12)


def test_the_work_grows_with_the_number_of_columns_and_not_with_its_square():
    class Name(str):
        compared = 0

        def __eq__(self, other):
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    def comparisons(d):
        Name.compared = 0
        frame = Frame(tuple(Name(f"x{i}") for i in range(d)), tuple(RNG.standard_normal((d, 3))))
        new = Frame(tuple(Name(f"x{i}") for i in range(d)), frame.columns)
        encoder = encoder_for(frame)
        assert encoder(new).shape == (3, d)
        assert encoder.count_unknown(new) == {}
        assert len(new.without([f"x{i}" for i in range(d - 1)]).names) == 1
        assert with_zero_columns(new, frame.names).names == new.names
        return Name.compared

    assert comparisons(400) <= 20 * 400


def test_infinite_numbers_are_refused():
    with pytest.raises(InputError, match="infinite"):
        encoder_for(Frame(("a",), (np.append(A[1:], np.inf),)))


def test_a_column_without_values_in_these_rows_is_constant():
    """As in one part of a cross-validation."""
    frame = Frame(("a", "c"), (A, np.full(50, np.nan)))
    np.testing.assert_array_equal(encoder_for(frame)(frame)[:, 1], 0.0)
    assert np.isfinite(Gower().bind(mixed_encoder_for(frame)(frame))(mixed_encoder_for(frame)(frame))).all()


def test_other_columns_than_the_fits_are_refused():
    encoder = encoder_for(Frame(("a", "b"), (A, B)))
    with pytest.raises(InputError, match=r"lacks 1 of the 2 columns.*: b"):
        encoder(Frame(("a", "x"), (A, B)))
    with pytest.raises(InputError, match=r"'a' held numbers .* holds text, as '(red|blue)'"):
        encoder(Frame(("a", "b"), (B, B)))
    with pytest.raises(InputError, match=r"'a' held numbers .* holds text, as '1.5'"):
        encoder(Frame(("a", "b"), (np.full(50, "1.5", dtype=object), B)))  # as a Parquet file may have it
    with pytest.raises(InputError, match="'a' holds infinite values"):
        encoder(Frame(("a", "b"), (np.append(A[1:], np.inf), B)))


def test_one_row_is_one_row():
    assert "(missing in 1 row: a" in encoder_for(Frame(("b",), (np.array(["x", "x", ""], dtype=object),))).notes[0]
