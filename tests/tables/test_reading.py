"""Files in every format give the same columns, whole or in chunks, and broken ones a sentence."""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from krein.errors import InputError, KreinWarning
from krein.tables.reading import Frame, chunks, count_rows, file_format, is_text, numbers_if_possible, read

ROWS = [(1.5, "red", 0), (float("nan"), "blue", 1), (-2.0, "", 1), (1e-3, "red", 0)]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def cell(value: object) -> str:
    return "" if value != value else str(value)


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    lines = [["a", "b", "label"], *([cell(v) for v in row] for row in ROWS)]
    paths = {
        "csv": written(tmp_path, "t.csv", "\n".join(",".join(line) for line in lines) + "\n"),
        "tsv": written(tmp_path, "t.tsv", "\r\n".join("\t".join(line) for line in lines) + "\r\n"),
        "parquet": tmp_path / "t.parquet",
    }
    a, b, y = zip(*ROWS, strict=True)
    parquet.write_table(pa.table({"a": a, "b": [v or None for v in b], "label": y}), paths["parquet"])
    return paths


def same(one: Frame, other: Frame) -> None:
    assert one.names == other.names
    for mine, theirs in zip(one.columns, other.columns, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def test_every_table_format_gives_the_same_columns(tables: dict[str, Path]) -> None:
    frame = read(tables["csv"])
    assert frame.names == ("a", "b", "label")
    np.testing.assert_array_equal(frame["a"], [r[0] for r in ROWS])
    assert frame["b"].tolist() == ["red", "blue", "", "red"]
    assert is_text(frame["b"])
    for path in tables.values():
        same(read(path), frame)


def test_chunks_are_the_whole_in_pieces(tables: dict[str, Path]) -> None:
    for path in tables.values():
        parts = list(chunks(path, size=3))
        assert [len(p) for p in parts] == [3, 1]
        whole = read(path)
        for name in whole.names:
            np.testing.assert_array_equal(np.concatenate([p[name] for p in parts]), whole[name])


def test_numbers_without_a_header_and_a_first_line_that_is_one(tmp_path: Path) -> None:
    plain = read(written(tmp_path, "a.csv", "1,2\n3,?\n"))
    assert plain.names == ("x0", "x1")
    np.testing.assert_array_equal(plain["x1"], [2.0, np.nan])
    headed = read(written(tmp_path, "b.csv", "\ufeffid,,note\n1,2,x\n"))
    assert headed.names == ("id", "", "note")


def test_quotes_and_separators_inside_fields(tmp_path: Path) -> None:
    frame = read(written(tmp_path, "a.csv", 'name,v\n"Doe, Jane",1\n"say ""hi""",2\n'))
    assert frame["name"].tolist() == ["Doe, Jane", 'say "hi"']


def test_a_stretch_without_values_belongs_to_text_or_numbers_alike(tmp_path: Path, monkeypatch) -> None:
    path = written(tmp_path, "a.csv", "w,v\nred,1\nblue,2\n,\n,\nred,3\n")
    monkeypatch.setattr("krein.tables.reading.CHUNK_ROWS", 2)
    from krein.tables import reading

    frame = reading._concatenated(list(chunks(path, size=2)), path)
    assert frame["w"].tolist() == ["red", "blue", "", "", "red"]
    np.testing.assert_array_equal(frame["v"], [1, 2, np.nan, np.nan, 3])
    mixed = written(tmp_path, "b.csv", "w\nred\nblue\n1\n2\n")
    with pytest.raises(InputError, match="'w' holds numbers in some"):
        reading._concatenated(list(chunks(mixed, size=2)), mixed)


def test_svmlight_and_numpy_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((7, 3)), np.arange(7.0)
    dump_svmlight_file(X, y, str(tmp_path / "a.svm"), zero_based=False)
    np.save(tmp_path / "a.npy", np.column_stack([X, y]))
    np.savez(tmp_path / "a.npz", X=X, y=y)
    light, array, archive = read(tmp_path / "a.svm"), read(tmp_path / "a.npy"), read(tmp_path / "a.npz")
    np.testing.assert_allclose(light["x1"], X[:, 1], rtol=1e-12)
    np.testing.assert_array_equal(light["target"], y)
    np.testing.assert_array_equal(array["3"], y)
    np.testing.assert_array_equal(array["-1"], y)
    np.testing.assert_array_equal(archive["y"], y)
    np.testing.assert_array_equal(archive["x2"], X[:, 2])


def test_lines_of_text_with_and_without_labels(tmp_path: Path) -> None:
    plain = read(written(tmp_path, "a.txt", "ACD\nCCA\n"))
    assert (plain.names, plain["text"].tolist()) == (("text",), ["ACD", "CCA"])
    labelled = read(written(tmp_path, "b.txt", "ACD\t1\nCCA\t0\n"))
    np.testing.assert_array_equal(labelled["label"], [1.0, 0.0])
    with pytest.raises(InputError, match="a tab and its label"):
        read(written(tmp_path, "c.txt", "ACD\t1\nCCA\n"))


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("a.csv", "a,b\n1,2\n3\n", "line 3: 1 fields where the first line has 2"),
        ("a.csv", "a,a\n1,2\n", "a occurs more than once"),
        ("a.csv", "", "holds no rows"),
        ("a.csv", "a,b\n", "holds no rows"),
        ("a.xls", "x", "extension '.xls' is not known.*csv"),
        ("a.parquet", "not parquet", "not a readable Parquet"),
        ("a.npy", "not numpy", "cannot be read as a NumPy array"),
        ("a.npz", "not a zip", "cannot be read as a NumPy archive"),
        ("a.svm", "what is this", r"cannot be read as svmlight.*[^.]\.$"),
        ("a.svm", "1 1:1 1:2\n", r"cannot be read as svmlight.*[^.]\.$"),
        ("a.csv", "a;b\n1;2\n", "has no ',' in its first line, but ';'"),
        ("a.tsv", "a,b\n1,2\n", "--format csv"),
        ("a.csv", 'a,b\n"1,2\n', "line 2: it cannot be read as csv"),
        ("a.csv", 'a,b\n1,"2\n3,4\n', "line 3: it cannot be read as csv"),  # the rest of the file in one cell
        ("a.csv", 'a\n"1\n2\n', "line 3: it cannot be read as csv"),
        ("a.csv", 'a,b\n"1"2,3\n', "line 2: it cannot be read as csv"),
        ("a.csv", 'a,b\n"1\n1",2\n\n3,4,5\n', "line 5: 3 fields where the first line has 2"),
    ],
)
def test_a_file_that_cannot_be_read_gets_a_sentence(tmp_path: Path, name: str, text: str, match: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match=match):
        read(written(tmp_path, name, text))


@pytest.mark.parametrize("name", ["a.csv", "a.txt"])
def test_text_in_another_encoding_gets_the_way_out(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes("a,b\ncafé,1\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"not UTF-8 text.*0xe9.*iconv"):
        read(tmp_path / name)


def test_parquet_holds_dates_and_decimals_too(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    days = [datetime.date(2020, 1, 2), None]
    table = {"day": days, "price": [Decimal("1.5"), None], "kind": pa.array(["u", "v"]).dictionary_encode()}
    parquet.write_table(pa.table(table | {"parts": [[1, 2], []], "on": [True, False]}), tmp_path / "a.parquet")
    frame = read(tmp_path / "a.parquet")
    assert frame["day"].tolist() == ["2020-01-02", ""]
    np.testing.assert_array_equal(frame["price"], [1.5, np.nan])
    assert frame["kind"].tolist() == ["u", "v"]
    assert frame["parts"].tolist() == ["[1, 2]", "[]"]
    np.testing.assert_array_equal(frame["on"], [1.0, 0.0])


def test_whole_numbers_beyond_the_precision_of_floats_are_rounded_as_in_csv(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"id": [1, 2**62 + 1]}), tmp_path / "a.parquet")
    same(read(tmp_path / "a.parquet"), read(written(tmp_path, "a.csv", f"id\n1\n{2**62 + 1}\n")))


def test_without_pyarrow_the_extra_is_named_and_other_files_are_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert read(written(tmp_path, "a.csv", "a\n1\n"))["a"].tolist() == [1.0]
    with pytest.raises(InputError, match=r"pip install 'krein\[parquet\]'"):
        read(written(tmp_path, "a.parquet", ""))


def test_rows_are_counted_before_they_are_read(tables: dict[str, Path]) -> None:
    assert count_rows(tables["parquet"], "parquet") == len(ROWS)
    assert count_rows(tables["csv"], "csv") == len(ROWS) + 1  # the line of names is one more
    assert count_rows(tables["csv"], "npy") is None


def test_pickles_in_numpy_files_are_not_opened(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read as a NumPy array"):
        read(tmp_path / "a.npy")


def test_a_missing_file_and_a_missing_column_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        read(tmp_path / "none.csv")
    frame = read(written(tmp_path, "a.csv", "a,b\n1,2\n"))
    with pytest.raises(InputError, match="no column 'c'; the file has 2 columns: a, b"):
        frame.without(["c"])


def test_the_format_may_be_told(tmp_path: Path) -> None:
    path = written(tmp_path, "a.dat", "a;b\n")
    assert file_format(path, "csv") == "csv"
    with pytest.raises(InputError, match="format"):
        file_format(path, "excel")


def test_an_empty_line_of_text_is_the_empty_text_and_those_at_the_end_are_said_to_be_none(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt", "\nACD\n\n\n\nCCA\n")
    assert read(path)["text"].tolist() == ["", "ACD", "", "", "", "CCA"]
    assert [p["text"].tolist() for p in chunks(path, size=2)] == [["", "ACD"], ["", ""], ["", "CCA"]]
    with pytest.warns(KreinWarning, match=r"a.txt: 2 blank lines were skipped"):
        assert read(written(tmp_path, "a.txt", "ACD\n\nCCA\n\n\n"))["text"].tolist() == ["ACD", "", "CCA"]
    with pytest.raises(InputError, match=r"1 fields in ''\. Empty lines count"):
        read(written(tmp_path, "a.txt", "ACD\t1\n\nCCA\t2\n"))


def test_blank_lines_of_a_table_are_counted(tmp_path: Path) -> None:
    with pytest.warns(KreinWarning, match=r"a.csv: 3 blank lines were skipped, as no row"):
        frame = read(written(tmp_path, "a.csv", "\na,b\n1,2\n\n3,4\n\n"))
    assert (frame.names, frame["a"].tolist()) == (("a", "b"), [1.0, 3.0])


def test_columns_named_as_text_keep_their_spelling(tables: dict[str, Path], tmp_path: Path) -> None:
    frame = read(written(tmp_path, "a.csv", "zip,v,w\n007,1,2\n ?,01,3\n"), text_columns=("zip", "v"))
    assert (frame["zip"].tolist(), frame["v"].tolist(), frame["w"].tolist()) == (["007", ""], ["1", "01"], [2.0, 3.0])
    assert read(tables["parquet"], text_columns=("label",))["label"].tolist() == ["0", "1", "1", "0"]
    assert read(written(tmp_path, "b.txt", "A\t01\nB\t02\n"), text_columns=("label",))["label"].tolist() == ["01", "02"]
    assert numbers_if_possible(np.array(["1", "", "2.5"], dtype=object)).tolist()[::2] == [1.0, 2.5]


def test_a_damaged_page_of_a_parquet_file_gets_a_sentence(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"x": np.arange(100.0)}), path)
    content = bytearray(path.read_bytes())
    content[4:40] = bytes(36)
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not a readable Parquet file"):
        read(path)


def test_an_archive_that_grows_a_thousand_times_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb, plain = tmp_path / "bomb.npz", tmp_path / "plain.npz"
    np.savez_compressed(bomb, X=np.zeros((2**22, 2)))
    with pytest.raises(InputError, match=r"would grow from \d+ to \d+ bytes .* numpy.savez"):
        read(bomb)
    np.savez_compressed(plain, X=np.zeros((100, 2)))
    assert len(read(plain)) == 100
