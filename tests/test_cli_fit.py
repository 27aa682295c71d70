"""krein fit and krein predict: a file in, a judged model out, and its predictions."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from sklearn.datasets import load_iris, make_regression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import krein
from krein.cli import main

IRIS = load_iris()


def written(path: Path, header: list[str], rows: object) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)  # type: ignore[arg-type]
    return path


@pytest.fixture
def iris(tmp_path: Path) -> Path:
    names = [IRIS.target_names[k] for k in IRIS.target]
    rows = [[*row, name] for row, name in zip(IRIS.data.tolist(), names, strict=True)]
    return written(tmp_path / "iris.csv", ["a", "b", "c", "d", "species"], rows)


def krein_(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)


def test_fit_says_what_scikit_learn_scores_and_predict_gives_the_classes_back(iris: Path) -> None:
    result = krein_("fit", iris, "--target", "species", "--gamma", "0.2", "-p", "C=3", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    theirs = make_pipeline(StandardScaler(), SVC(gamma=0.2, C=3))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    labels = np.array(IRIS.target_names)[IRIS.target].astype(str)
    scores = cross_val_score(theirs, IRIS.data, labels, cv=folds)
    np.testing.assert_allclose(facts["score"]["values"], scores)
    assert facts["score"]["standard_error"] == pytest.approx(scores.std(ddof=1) / np.sqrt(5))
    assert (facts["rows"], facts["features"], facts["machine"], facts["correction"]) == (150, 4, "SVC", "none")
    predicted = krein_("predict", iris.with_suffix(".krein"), iris)
    assert predicted.exit_code == 0, predicted.output
    lines = predicted.stdout.split()
    assert lines[0] == "species"
    assert lines[1:] == theirs.fit(IRIS.data, labels).predict(IRIS.data).tolist()
    right = 100 * np.mean(np.array(lines[1:]) == labels)
    assert f"accuracy {right:.2f} %" in predicted.stderr


def test_the_summary_for_people_has_the_score_the_matrix_and_the_next_step(iris: Path) -> None:
    result = krein_("fit", iris, "--target", "species", "--drop", "a,b", "--output", iris.with_name("m.krein"))
    assert result.exit_code == 0, result.output
    for piece in ("SVC of 'species' from 150 rows of iris.csv, 2 features", "accuracy", "5 folds",
                  "always the commonest", "33.33 %", "relative error", "correction none", "krein predict"):  # fmt: skip
        assert piece in result.stdout


def test_numbers_text_and_gaps_in_a_table_are_dealt_with_and_said(tmp_path: Path) -> None:
    X, y = make_regression(200, 2, noise=3.0, random_state=0)
    kinds = np.where(X[:, 1] > 0, "up", "down")
    rows = [[("" if i == 5 else a), kind, t] for i, (a, kind, t) in enumerate(zip(X[:, 0], kinds, y, strict=True))]
    path = written(tmp_path / "t.csv", ["a", "kind", "y"], rows)
    result = krein_("fit", path, "--folds", "3", "--machine", "gp", "-p", "alpha=0.1", "--gamma", "0.5")
    assert result.exit_code == 0, result.output
    assert "a: missing in 1 of 200 rows, replaced by the median" in result.stdout
    assert "kind: text, 2 categories" in result.stdout
    out = tmp_path / "p.csv"
    done = krein_("predict", tmp_path / "t.krein", path, "--std", "--output", out)
    assert done.exit_code == 0, done.output
    assert out.read_text().splitlines()[0] == "y,y_std"
    assert len(out.read_text().splitlines()) == 201
    model = krein.load(tmp_path / "t.krein")
    values = np.loadtxt(out, delimiter=",", skiprows=1)
    residual = 1.0 - np.sum((y - values[:, 0]) ** 2) / np.sum((y - y.mean()) ** 2)
    assert f"R² {residual:.4f}" in done.stderr
    assert model.columns == ("a", "kind")


def test_texts_are_compared_as_texts(tmp_path: Path) -> None:
    pytest.importorskip("rapidfuzz")
    rng = np.random.default_rng(0)
    roots = ["ACGTACGTAC", "TTTTGGGGCC"]
    texts = []
    for i in range(60):
        letters = list(roots[i % 2])
        letters[rng.integers(10)] = "ACGT"[rng.integers(4)]
        texts.append(f"{''.join(letters)}\t{'xy'[i % 2]}")
    path = tmp_path / "words.txt"
    path.write_text("\n".join(texts))
    result = krein_("fit", path, "--kernel", "edit", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["score"]["mean"] == 1.0
    new = tmp_path / "new.txt"
    new.write_text("ACGTACGTAA\nTTTTGGGGCA\n")
    assert krein_("predict", tmp_path / "words.krein", new).stdout.split() == ["label", "x", "y"]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["fit", "{iris}"], "Which column is to be learned? Give --target, one of a, b, c, d, species."),
        (["fit", "{iris}", "--target", "petal"], "There is no column 'petal'"),
        (["fit", "{iris}x", "--target", "a"], "is not a file"),
        (["fit", "{iris}", "--target", "species", "--max-memory", "lots"], "is not a number of bytes"),
        (["fit", "{iris}", "--target", "species", "-p", "C"], "must be of the form name=value"),
        (["fit", "{iris}", "--target", "species", "-p", "C=-1"], "C"),
        (["fit", "{iris}", "--target", "species", "-p", "mood=1"], "has no parameter mood"),
        (["predict", "{iris}", "{iris}"], "iris.csv"),
        (
            ["fit", "{iris}", "--target", "species", "--kernel", "edit"],
            "one column of text beside the target; it has 0",
        ),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_two(iris: Path, arguments: list[str], match: str) -> None:
    result = krein_(*(a.format(iris=iris) for a in arguments))
    assert result.exit_code == 2
    assert match in result.stderr
    assert "Traceback" not in result.stderr
    assert not iris.with_suffix(".krein").exists()


def test_sizes_are_read_as_people_write_them() -> None:
    from krein.cli.fit import nbytes, parsed

    assert [nbytes(None, None, t) for t in ("500MB", "2 GiB", "1e9", "10kb", "7")] == [5e8, 2**31, 1e9, 1e4, 7.0]
    assert [parsed(t) for t in ("3", "0.5", "true", "none", "loo")] == [3, 0.5, True, None, "loo"]


def test_help_keeps_the_lines_of_its_examples() -> None:
    for name in ("demo", "fit", "predict", "reproduce", "bench"):
        text = krein_(name, "--help").stdout
        assert f"\n    krein {name} " in text.replace("      krein", "    krein"), name
        assert "\\b" not in text


@pytest.mark.skipif(sys.platform == "win32", reason="no head")
def test_a_closed_pipe_is_no_mistake(iris: Path) -> None:
    krein_("fit", iris, "--target", "species", "--folds", "0")
    command = f"{sys.executable} -m krein predict {iris.with_suffix('.krein')} {iris} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout == "species\n"
    assert "Broken pipe" not in done.stderr
