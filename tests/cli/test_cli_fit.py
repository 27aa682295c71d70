"""krein fit and krein predict: a file in, a judged model out, and its predictions."""

from __future__ import annotations

import csv
import json
import re
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
                  "nothing is approximated",
                  "always the commonest", "33.33 %", "no negative eigenvalues", "krein predict"):  # fmt: skip
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


def test_a_table_with_ids_notes_dates_and_gaps_is_learned_and_what_was_left_out_is_said(tmp_path: Path) -> None:
    """Of more than 100 texts the most frequent become columns, and the counts in the notes are those of the file."""
    rng = np.random.default_rng(0)
    n = 180
    x = rng.normal(size=n)
    town = rng.choice([f"town {i}" for i in range(130)], n)
    town[:130] = [f"town {i}" for i in range(130)]
    numbers = ["" if i % 20 == 0 else f"{v:.4f}" for i, v in enumerate(x)]
    days = ["" if i % 15 == 0 else f"20{i // 28:02}-01-{1 + i % 28:02}" for i in range(n)]
    rows = [[f"C{i}", numbers[i], town[i], days[i], "yes" if x[i] > 0 else "no"] for i in range(n)]
    table = written(tmp_path / "shop.csv", ["id", "x", "town", "day", "bought"], rows)
    result = krein_("fit", table, "--target", "bought", "--folds", "0", "-p", "correction=flip", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["notes"][:2] == [
        "id: text, different in every row, left out",
        "day: text, different in every row, missing in 12, left out",
    ]
    inspected = krein_("inspect", table, "--target", "bought", "--max-evaluations", "20000")
    assert inspected.exit_code == 0, inspected.output
    assert "town: text, 130 categories; one column for each of the " in inspected.stdout
    predicted = krein_("predict", table.with_suffix(".krein"), table)
    assert "x: missing in 9 of 180 rows" in predicted.stderr
    assert float(re.findall(r"accuracy ([\d.]+) %", predicted.stderr)[0]) > 85


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
        (["fit", "{iris}", "--target", "species", "--max-memory", "lots"], "--max-memory must be a number of bytes"),
        (["fit", "{iris}", "--target", "species", "-p", "C"], "must be of the form name=value"),
        (["fit", "{iris}", "--target", "species", "-p", "C=-1"], "C"),
        (["fit", "{iris}", "--target", "species", "-p", "mood=1"], "has no parameter mood"),
        (["predict", "{iris}", "{iris}"], "iris.csv"),
        (["predict", "{iris}.krein", "{iris}"], "iris.csv.krein is not a file"),
        (
            ["fit", "{iris}", "--target", "species", "--kernel", "rbf", "--degree", "2"],
            "rbf has no degree; it takes gamma",
        ),
        (
            ["fit", "{iris}", "--target", "species", "--kernel", "tl1", "-k", "sigma=2"],
            "tl1 has no sigma; it takes rho",
        ),
        (["fit", "{iris}", "--target", "species", "--rank", "151"], "at most the number of rows, 150; got 151"),
        (["fit", "{iris}", "--target", "species", "--rank", "-3"], "--rank"),
        (["fit", "{iris}", "--target", "species", "--max-error", "-1"], "max_error"),
        (["fit", "{iris}", "--target", "species", "--gamma", "wide"], "gamma must be"),
        (["fit", "{iris}", "--target", "species", "--folds", "1"], "folds must be 0"),
        (["fit", "{iris}", "--target", "species", "--drop", "a,b,c,d"], "No column is left"),
        (["fit", "{iris}", "--target", "species", "--output", "no/m.krein"], "there is no folder no"),
        (["fit", "{iris}", "--target", "species", "--output", "m.pkl"], "Call it m.pkl.krein"),
        (["fit", "{iris}", "--target", "species", "--format", "parquet"], "not a readable Parquet file"),
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


@pytest.fixture
def model(iris: Path) -> Path:
    done = krein_("fit", iris, "--target", "species", "--folds", "0", "--output", iris.with_name("m.krein"))
    assert done.exit_code == 0, done.output
    assert "to judge" not in done.stdout
    return iris.with_name("m.krein")


def test_what_is_read_is_not_written_over_and_a_mistake_empties_no_file(iris: Path, model: Path) -> None:
    before = iris.read_bytes()
    result = krein_("predict", model, iris, "--output", iris)
    assert (result.exit_code, iris.read_bytes()) == (2, before)
    assert "cannot be written as well" in result.stderr
    out = iris.with_name("out.csv")
    out.write_text("kept")
    lacking = written(iris.with_name("less.csv"), ["a", "b"], [[1, 2]])
    result = krein_("predict", model, lacking, "--output", out)
    assert (result.exit_code, out.read_text()) == (2, "kept")
    assert "lacks 2 of the 4 columns the model was fitted on: c, d. It has a, b." in result.stderr


def test_other_columns_in_another_order_are_as_good_and_gaps_are_counted(iris: Path, model: Path) -> None:
    rows = [
        ["x", *row[::-1], name] for row, name in zip(IRIS.data.tolist(), IRIS.target_names[IRIS.target], strict=True)
    ]
    rows[0][1] = ""  # no d
    rows[1][-1] = rows[2][-1] = ""  # no answer
    other = written(iris.with_name("other.csv"), ["note", "d", "c", "b", "a", "species"], rows)
    expected = krein_("predict", model, iris).stdout.split()
    result = krein_("predict", model, other)
    assert result.stdout.split()[2:] == expected[2:]
    assert "d: missing in 1 of 150 rows, replaced by the median 1.3" in result.stderr
    right = sum(a == row[-1] for a, row in zip(result.stdout.split()[1:], rows, strict=True))
    assert f"148 of 150 rows have an answer, accuracy {100 * right / 148:.2f} %" in result.stderr


def test_a_target_by_number_is_known_by_its_name_afterwards(iris: Path) -> None:
    assert krein_("fit", iris, "--target", "-1", "--folds", "0").exit_code == 0
    result = krein_("predict", iris.with_suffix(".krein"), iris)
    assert result.stdout.startswith("species\n")
    assert "150 rows, accuracy" in result.stderr


def test_what_svmlight_leaves_out_is_zero(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{i % 2} 1:{rng.normal() + 3 * (i % 2)} 2:{rng.normal()} 3:1.5\n" for i in range(40)]
    (tmp_path / "a.svm").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "full.svm").write_text("0 1:3.0 2:0.5 3:0.0\n", encoding="utf-8")
    (tmp_path / "less.svm").write_text("0 1:3.0 2:0.5\n", encoding="utf-8")
    assert krein_("fit", tmp_path / "a.svm", "--folds", "0", "--task", "regression").exit_code == 0
    full, less = (krein_("predict", tmp_path / "a.krein", tmp_path / name) for name in ("full.svm", "less.svm"))
    assert (full.exit_code, less.exit_code) == (0, 0), less.output
    assert full.stdout == less.stdout


def test_long_numbers_are_classes_apart(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    path = written(tmp_path / "t.csv", ["x", "y"], [[v, 1000001 + (v > 0)] for v in x])
    assert krein_("fit", path, "--folds", "0").exit_code == 0
    swapped = written(tmp_path / "s.csv", ["x", "y"], [[v, 1000002 - (v > 0)] for v in x])
    assert "accuracy 0.00 %" in krein_("predict", tmp_path / "t.krein", swapped).stderr


def test_r_squared_of_one_part_has_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("krein.tables.model.MAX_FOLD_ROWS", 50)
    X, y = make_regression(80, 2, noise=1.0, random_state=0)
    path = written(tmp_path / "t.csv", ["a", "b", "y"], np.column_stack([X, y]).tolist())
    result = krein_("fit", path)
    assert "one part held out" in result.stdout
    assert "±" not in result.stdout
    facts = json.loads(krein_("fit", path, "--json").stdout)
    assert facts["score"]["standard_error"] is None
    assert len(facts["score"]["values"]) == 1


def test_without_a_terminal_progress_is_plain_lines_on_stderr(iris: Path) -> None:
    result = krein_("fit", iris, "--target", "species", "--folds", "3", "--json")
    facts = json.loads(result.stdout)
    told = re.findall(r"^part (\d) of 3 left out: accuracy (\S+), about \d+ s to go$", result.stderr, re.MULTILINE)
    assert told == [(str(i + 1), f"{value:.4f}") for i, value in enumerate(facts["score"]["values"])]
    assert len(result.stderr.splitlines()) == 3


def test_folds_do_not_repeat_a_warning(iris: Path) -> None:
    result = krein_("fit", iris, "--target", "species", "--kernel", "sigmoid", "--coef0", "-1", "--folds", "3")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("gave an indefinite matrix") == 1
    told = re.search(r"(\d+) negative eigenvalues, correction (\w+)", result.stdout)
    assert told  # and the warning is that of the model that was saved
    assert f"{told[1]} of " in result.stdout
    assert f"uses correction='{told[2]}'" in result.stdout


def test_sizes_are_read_as_people_write_them() -> None:
    import click

    from krein.cli.options import parse_bytes, parse_value

    option = click.Option(["--max-memory"])
    assert [parse_bytes(None, option, t) for t in ("500MB", "2 GiB", "1e9", "10kb", "7")] == [5e8, 2**31, 1e9, 1e4, 7]
    assert [parse_value(None, None, t) for t in ("3", "0.5", "true", "none", "loo")] == [3, 0.5, True, None, "loo"]


@pytest.mark.parametrize("name", ["demo", "fit", "predict", pytest.param("reproduce", marks=pytest.mark.clone)])
def test_help_keeps_the_lines_of_its_examples(name: str) -> None:
    text = krein_(name, "--help").stdout
    assert f"\n    krein {name} " in text.replace("      krein", "    krein")
    assert "\\b" not in text


def test_the_demo_for_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    from krein.cli import demo

    monkeypatch.setattr(demo, "QUICK", demo.Size(120, 100, 3, 5, 100, 60))
    facts = json.loads(krein_("demo", "--quick", "--json", "--seed", "2", "--output", tmp_path).stdout)
    assert [(c["rows"], c["kernel"]) for c in facts["cells"][3:5]] == [(120, "TL1"), (100, "RBF")]
    expected, _ = demo.compare(demo.mixture(100, 2), krein.RBF(), 3, 5, 2)
    assert facts["cells"][4]["shared"]["error"] == expected["shared"]["error"]
    assert facts["cells"][4]["pairwise"]["n_negative"] == expected["pairwise"]["n_negative"]
    assert all(isinstance(note, str) for note in facts["notes"])
    assert sorted(facts["pictures"]) == [str(tmp_path / "kernel-matrix.png"), str(tmp_path / "spectrum.png")]
    assert facts["report"] == str(tmp_path / "report.html")


@pytest.mark.skipif(sys.platform == "win32", reason="no head")
def test_a_closed_pipe_is_no_mistake(iris: Path) -> None:
    krein_("fit", iris, "--target", "species", "--folds", "0")
    command = f"{sys.executable} -m krein predict {iris.with_suffix('.krein')} {iris} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stdout == "species\n"
    assert "Broken pipe" not in done.stderr
