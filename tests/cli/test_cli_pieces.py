"""krein fit --memory-limit: a table that is read in pieces gives the model that its scaled rows give in memory."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import krein
from krein.cli import fit, main

NAMES = ["a", "b", "c", "answer"]
SHAPE = {"n_blocks": 6, "rank": 12}
OPTIONS = ("--target", "answer", "--blocks", 6, "--rank", 12, "-p", "alpha=0.1", "--gamma", 0.5)


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(27_000, 3)) * [1.0, 10.0, 0.1] + [0.0, 50.0, 3.0]
    return np.column_stack([X, np.round(np.sin(X[:, 0]) + X[:, 1] / 10, 6)])


@pytest.fixture(scope="module")
def table(rows: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path_factory.mktemp("table") / "large.parquet"
    pq.write_table(pa.table(dict(zip(NAMES, rows.T, strict=True))), path)
    return path


def krein_(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)


@pytest.mark.parametrize(("scale", "scaler"), [("standard", StandardScaler()), ("minmax", MinMaxScaler())])
def test_the_predictions_are_those_of_the_scaled_rows_in_memory(
    scale: str, scaler: object, rows: np.ndarray, table: Path, tmp_path: Path
) -> None:
    output = tmp_path / "large.krein"
    done = krein_("fit", table, *OPTIONS, "--scale", scale, "--memory-limit", "100MB", "--output", output, "--json")
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["rows"], facts["features"], facts["blocks"], facts["score"]) == (27_000, 3, 6, None)
    assert any("not judged" in note for note in facts["notes"])
    X, y = scaler.fit_transform(rows[:, :3]), rows[:, 3]  # type: ignore[attr-defined]
    theirs = krein.KernelRidge(**SHAPE, kernel="rbf", gamma=0.5, alpha=0.1, random_state=0).fit(X, y - y.mean())
    told = krein_("predict", output, table)
    assert told.exit_code == 0, told.output
    found = np.array(told.stdout.split()[1:], dtype=float)
    np.testing.assert_allclose(found, theirs.predict(X) + y.mean(), atol=1e-6 * y.std())
    assert "R² 0.9" in told.stderr


def test_classes_of_a_csv_file_keep_their_names_and_a_workdir_is_used_again(rows: np.ndarray, tmp_path: Path) -> None:
    path, folder = tmp_path / "large.csv", tmp_path / "work"
    labels = np.where(rows[:, 3] > 5, "high", "low")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(NAMES)
        writer.writerows([*row, label] for row, label in zip(rows[:, :3].tolist(), labels, strict=True))
    command = ("fit", path, *OPTIONS, "--drop", "c", "--memory-limit", "100MB", "--workdir", folder)
    first = krein_(*command)
    assert first.exit_code == 0, first.output
    assert "KernelRidgeClassifier of 'answer' from 27000 rows of large.csv, 2 features" in first.stdout
    spool = (folder / "rows.npy").stat().st_mtime_ns
    model = path.with_suffix(".krein").read_bytes()
    assert krein_(*command).exit_code == 0
    assert (folder / "rows.npy").stat().st_mtime_ns == spool
    assert sorted(p.name for p in folder.iterdir()) == ["rows.npy", "spool.json", "target.npy"]
    assert len(path.with_suffix(".krein").read_bytes()) == pytest.approx(len(model), rel=0.01)
    predicted = krein_("predict", path.with_suffix(".krein"), path)
    assert np.mean(np.array(predicted.stdout.split()[1:]) == labels) > 0.95


def test_a_plan_that_takes_long_is_printed_first(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = ("--output", tmp_path / "m.krein", "--memory-limit", "100MB")
    assert "in all" not in krein_("fit", table, *OPTIONS, *output).stderr
    monkeypatch.setattr(fit, "PLANNED_SECONDS", 0.0)
    told = krein_("fit", table, *OPTIONS, *output)
    assert told.exit_code == 0, told.output
    assert told.stderr.startswith("ridge of 27,000 rows with 3 features, 6 blocks of rank 12")
    assert "in all" in told.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--workdir", "w"), "Give --memory-limit too"),
        (("--memory-limit", "100MB", "--kernel", "edit"), "compares texts"),
        (("--memory-limit", "100kB"), "need at least"),
        (("--memory-limit", "much"), "must be a number of bytes"),
    ],
)
def test_what_cannot_be_done_is_said(options: tuple[str, ...], message: str, table: Path) -> None:
    arguments = [a for a in OPTIONS if "edit" not in options or a not in ("--gamma", 0.5)]
    done = CliRunner().invoke(main, [str(a) for a in ("fit", table, *arguments, *options)])
    assert done.exit_code != 0
    assert message in done.output


def test_a_table_with_text_or_missing_numbers_is_refused(tmp_path: Path) -> None:
    lines = ["x,colour,y", *(f"{i},{'red' if i % 2 else 'blue'},{i % 3}" for i in range(50))]
    (tmp_path / "text.csv").write_text("\n".join(lines))
    limit = ("--target", "y", "--memory-limit", "1GB")
    told = CliRunner().invoke(main, ["fit", str(tmp_path / "text.csv"), *limit])
    assert told.exit_code != 0
    assert "features must be numbers" in told.output
    assert "colour" in told.output
    (tmp_path / "gap.csv").write_text("x,z,y\n1,2,0\n2,,1\n3,4,0\n")
    told = CliRunner().invoke(main, ["fit", str(tmp_path / "gap.csv"), *limit])
    assert "row 1" in told.output
    assert "no value in column 'z'" in told.output
    np.save(tmp_path / "rows.npy", np.zeros((5, 2)))
    told = CliRunner().invoke(main, ["fit", str(tmp_path / "rows.npy"), *limit])
    assert "must be a table of numbers in csv, tsv, parquet" in told.output
