"""What the commands promise of files: none that is read is written, none is half written, and a row is a row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import krein
from krein.cli import main, predict


def krein_(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose column zip holds 007, 008 and A1, with labels 01 and 02, and a model of it."""
    made = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    zips = ["007", "008", "A1"]
    rows = [f"{rng.normal():.3f},{zips[i % 3]},{'02' if zips[i % 3] == '008' else '01'}" for i in range(60)]
    written(made / "t.csv", "a,zip,label", *rows)
    krein_("fit", made / "t.csv", "--folds", "0")
    return made


# -- nothing that is read is written ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("html", "words"), [
    ("t.csv", "t.csv is read, so it cannot be written"),
    ("t.krein", "t.krein is read, so it cannot be written"),
    ("other.krein", "A report's name ends in .html; got other.krein"),
])  # fmt: skip
def test_a_report_takes_no_place_of_data_or_a_model(folder: Path, html: str, words: str) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    told = krein_("inspect", folder / "t.csv", "--model", folder / "t.krein", "--html", folder / html, code=2)
    assert words in told.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_predictions_are_written_whole_or_not_at_all(folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(predict, "CHUNK_ROWS", 4)
    bad = written(tmp_path / "bad.csv", "a,zip", *["1,007"] * 9, "oops,007")
    out = tmp_path / "out.csv"
    assert "'a' held numbers" in krein_("predict", folder / "t.krein", bad, "--output", out, code=2).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv"]
    good = written(tmp_path / "good.csv", "a,zip", *["1,007"] * 9)
    krein_("predict", folder / "t.krein", good, "--output", out)
    assert out.read_text(encoding="utf-8").split() == ["label", *["01"] * 9]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "good.csv", "out.csv"]


# -- a row is a row --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [10_000, 2])
def test_a_prediction_does_not_depend_on_the_other_rows(folder: Path, tmp_path: Path, monkeypatch, rows: int) -> None:
    monkeypatch.setattr(predict, "CHUNK_ROWS", rows)
    lines = ["0,007,01", "0,008,02", "0,007,1", "0,008,02", "0,A1,01"]
    alone = krein_("predict", folder / "t.krein", written(tmp_path / "n.csv", "a,zip,label", *lines[:4]))
    beside = krein_("predict", folder / "t.krein", written(tmp_path / "n.csv", "a,zip,label", *lines))
    assert alone.stdout.split() == ["label", "01", "02", "01", "02"]
    assert beside.stdout.split() == [*alone.stdout.split(), "01"]
    assert beside.stderr == "5 rows, accuracy 100.00 %\n"  # no unknown categories; 1 is the class 01


def test_yes_and_no_of_a_parquet_file_come_back(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    x = np.linspace(-1, 1, 40)
    parquet.write_table(pa.table({"x": x, "y": x > 0}), tmp_path / "t.parquet")
    krein_("fit", tmp_path / "t.parquet", "--folds", "0")
    result = krein_("predict", tmp_path / "t.krein", tmp_path / "t.parquet")
    assert result.stdout.split() == ["y", *["False"] * 20, *["True"] * 20]
    assert "accuracy 100.00 %" in result.stderr


def test_blank_lines_are_told(folder: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "n.csv", "a,zip", "0,007", "", "0,008")
    assert "n.csv: 1 blank line was skipped" in krein_("predict", folder / "t.krein", path).stderr
    lines = (folder / "t.csv").read_text(encoding="utf-8").replace("\n", "\n\n", 2).splitlines()
    again = krein_("fit", written(tmp_path / "t.csv", *lines), "--folds", "0")
    assert "note      t.csv: 2 blank lines were skipped" in again.stdout


def test_what_is_missing_is_told_of_a_model_on_other_rows_too(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "t.csv").read_text(encoding="utf-8").splitlines()
    lines[1] = ",B2,01"
    result = krein_("inspect", written(tmp_path / "n.csv", *lines), "--model", folder / "t.krein")
    assert "a: missing in 1 of 60 rows, replaced by the median" in result.stdout
    assert "zip: 1 of 60 rows hold none of the categories" in result.stdout


# -- texts -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    pytest.importorskip("rapidfuzz")
    letters = np.random.default_rng(0).choice(list("ACGT"), size=(40, 8))
    return ["".join(row[:4]) + ("AAAA" if i % 2 else "TTTT") for i, row in enumerate(letters)]


def test_a_file_of_texts_is_compared_as_texts_without_being_told_to(tmp_path: Path, texts: list[str]) -> None:
    path = written(tmp_path / "t.txt", *(f"{text}\t{'yn'[i % 2]}" for i, text in enumerate(texts)))
    told = krein_("fit", path, "--folds", "0").stdout
    assert "kernel    EditSimilarity()" in told
    assert "note      texts are compared by --kernel edit, as none was named" in told
    new = written(tmp_path / "n.txt", "CCCCAAAA", "", "CCCCTTTT")
    answers = krein_("predict", tmp_path / "t.krein", new).stdout.splitlines()
    assert (answers[:2], answers[3:]) == (["label", "n"], ["y"])  # and one for the empty text
    facts = json.loads(krein_("inspect", path, "--json").stdout)
    assert facts["kernel"] == "EditSimilarity()"
    assert "texts are compared by --kernel edit, as none was named" in facts["notes"]


def test_columns_beside_the_texts_are_said_to_be_of_no_account(tmp_path: Path, texts: list[str]) -> None:
    lines = [f"{text},{i},{2 * i},{'yn'[i % 2]}" for i, text in enumerate(texts)]
    path = written(tmp_path / "t.csv", "word,a,b,label", *lines)
    said = "a, b: not used, --kernel edit compares the texts of 'word' alone"
    assert said in krein_("fit", path, "--kernel", "edit", "--folds", "0").stdout
    assert said in json.loads(krein_("inspect", path, "--kernel", "edit", "--json").stdout)["notes"]


# -- small things ----------------------------------------------------------------------------------------------------


def test_a_folder_is_no_file() -> None:
    assert krein_("fit", ".", code=2).stderr == "Error: . is not a file.\n"


def test_small_sizes_are_no_small_share_of_a_megabyte(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", "a,label", *(f"{i},{i % 2}" for i in range(8)))
    told = krein_("fit", path, "--folds", "2").stdout
    assert " kB\n" in told
    assert "MB" not in told


def test_two_rows_recommend_nothing(tmp_path: Path) -> None:
    told = krein_("inspect", written(tmp_path / "t.csv", "a,label", "1,x", "2,y")).stdout
    assert "corrections, accuracy" not in told
    assert "2 rows are too few to compare corrections and ranks by; it takes 10" in told


def test_ctrl_c_is_one_sentence_and_130(folder: Path, monkeypatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(krein.tables.model.Model, "predict", interrupted)
    result = krein_("predict", folder / "t.krein", folder / "t.csv", code=130)
    assert result.stderr == "\nStopped before the end, by Ctrl-C.\n"


# -- what others open ------------------------------------------------------------------------------------------------


def test_no_spreadsheet_executes_a_prediction_and_numbers_stay_numbers(tmp_path: Path) -> None:
    labels = ["=1+1", "-5", "@SUM(1)", "+2"]
    data = written(tmp_path / "t.csv", "a,label", *(f"{10 * (i % 4)}.{i},{labels[i % 4]}" for i in range(40)))
    krein_("fit", data, "--target", "label", "--output", tmp_path / "t.krein")
    told = krein_("predict", tmp_path / "t.krein", data).stdout.split()
    assert set(told[1:]) == {"'=1+1", "-5", "'@SUM(1)", "+2"}
    exact = krein_("predict", tmp_path / "t.krein", data, "--json").stdout
    assert {json.loads(line)["label"] for line in exact.splitlines()} == set(labels)


def test_control_characters_of_a_name_do_not_reach_the_terminal(tmp_path: Path) -> None:
    told = krein_("inspect", tmp_path / "a\x1b[31mred.csv", code=2).stderr
    assert "\x1b" not in told
    assert r"a\x1b[31mred.csv is not a file" in told
