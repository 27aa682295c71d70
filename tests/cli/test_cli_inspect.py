"""krein inspect: a file in, the inspection of its rows out, as text, JSON or a page."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import krein
from krein.cli import main

KEPT = {"seconds", "stages"}  # what differs from run to run


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3)) * [1.0, 5.0, 0.1]
    return X, np.where(X[:, 0] * X[:, 2] > 0, "in", "out")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, table):
    made = tmp_path_factory.mktemp("inspect")
    X, y = table
    rows = [f"{a!r},{b!r},{c!r},{kind}" for (a, b, c), kind in zip(X.tolist(), y, strict=True)]
    (made / "rows.csv").write_text("\n".join(["a,b,c,label", *rows]) + "\n", encoding="utf-8")
    words = ["".join(row) for row in np.random.default_rng(1).choice(list("ACGT"), size=(60, 9))]
    lines = [f"{word}\t{'yes' if 'AC' in word else 'no'}" for word in words]
    (made / "words.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    np.save(made / "matrix.npy", X @ np.diag([1.0, -1.0, 2.0]) @ X.T)
    return made


def run(*arguments):
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


def same(told, found):
    mine = json.loads(json.dumps(found.to_dict()))
    for name in set(mine) - KEPT - {"notes"}:
        assert told[name] == mine[name], name


def test_it_is_the_inspection_of_the_scaled_rows_by_the_named_kernel(folder, table):
    result = run(folder / "rows.csv", "--kernel", "sigmoid", "--coef0", "-1", "--gamma", "0.5", "--seed", "3", "--json")
    assert result.exit_code == 0, result.output
    X, y = table
    Z = (X - X.mean(0)) / X.std(0)
    found = krein.inspect(Z, krein.Sigmoid(gamma=0.5, coef0=-1.0), y, random_state=3)
    told = json.loads(result.stdout)
    assert told["eigenvalues"] == pytest.approx(found.eigenvalues.tolist(), abs=1e-9)
    assert told["inertia"] == list(found.inertia)
    assert told["recommended"] == found.recommended
    assert [c["name"] for c in told["corrections"]] == [c.name for c in found.corrections]
    assert [r["rank"] for r in told["rank_scores"]] == [r.rank for r in found.rank_scores]
    assert told["sufficient"]["rank"] == found.sufficient.rank
    assert told["html"] is None


def test_without_a_target_no_corrections_are_compared(folder):
    told = json.loads(run(folder / "rows.csv", "--drop", "label", "--kernel", "tl1", "-k", "rho=2", "--json").stdout)
    assert told["corrections"] == told["rank_scores"] == []
    assert told["sufficient"] is None
    assert told["task"] is None
    assert "TL1(rho=2.0)" in told["kernel"]


def test_texts_are_compared_as_texts(folder):
    pytest.importorskip("rapidfuzz")
    told = json.loads(run(folder / "words.txt", "--kernel", "edit", "--json").stdout)
    lines = (folder / "words.txt").read_text(encoding="utf-8").splitlines()
    words, labels = zip(*(line.split("\t") for line in lines), strict=True)
    same(told, krein.inspect(list(words), krein.EditSimilarity(), np.array(labels), random_state=0))


def test_a_matrix_is_its_own_kernel(folder):
    told = json.loads(run(folder / "matrix.npy", "--kernel", "precomputed", "--json").stdout)
    K = np.load(folder / "matrix.npy")
    assert told["inertia"][0] == 2
    assert told["inertia"][2] == 1
    assert told["eigenvalues"][-1] == pytest.approx(np.linalg.eigvalsh(K)[0])


def test_many_whole_numbers_are_no_classes(folder, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", X=rng.normal(size=(60, 2)), y=np.arange(60.0))
    told = json.loads(run(tmp_path / "rows.npz", "--kernel", "sigmoid", "--coef0", "-1", "--json").stdout)
    assert told["task"] == "regression"


def test_the_page_is_written_and_named(folder, tmp_path):
    page = tmp_path / "report.html"
    result = run(folder / "rows.csv", "--html", page)
    assert result.exit_code == 0, result.output
    assert "spectrum" in result.stdout
    assert "score against rank, accuracy of ridge on rows left out" in result.stdout
    assert f"Report: {page}, {page.stat().st_size / 1e3:.0f} kB" in result.stdout
    text = page.read_text(encoding="utf-8")
    assert "rows.csv: a krein report" in text
    assert 'data-key="objects" data-value="90"' in text
    assert "Reading" in text


def test_a_saved_model_is_reported_on_with_its_own_kernel(folder, tmp_path):
    model, page = tmp_path / "rows.krein", tmp_path / "report.html"
    runner = CliRunner()
    fitted = runner.invoke(main, ["fit", str(folder / "rows.csv"), "--folds", "2", "--output", str(model)])
    assert fitted.exit_code == 0, fitted.output
    result = run(folder / "rows.csv", "--model", model, "--html", page, "--json")
    assert result.exit_code == 0, result.output
    loaded = krein.load(model)
    assert json.loads(result.stdout)["kernel"] == repr(loaded.estimator._kernel)
    text = page.read_text(encoding="utf-8")
    assert f'data-key="score" data-value="{loaded.score.mean}"' in text
    assert 'id="indefinite"' in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.csv"], "not a file"),
        (["rows.csv", "--kernel", "edit"], "compares texts"),
        (["rows.csv", "--kernel", "no"], "--kernel"),
        (["words.txt", "--kernel", "edit", "--gamma", "1"], "has no gamma"),
        (["words.txt", "--kernel", "edit", "-k", "colour=1"], "colour"),
        (["rows.csv", "--kernel", "precomputed"], "square matrix"),
        (["rows.csv", "--target", "label", "--task", "regression"], "text"),
        (["rows.csv", "--target", "sum"], "no column"),
        (["rows.csv", "--model", "rows.csv"], "rows.csv"),
        (["rows.csv", "--max-evaluations", "10"], "max_evaluations"),
        (["rows.csv", "--html", "no/folder/report.html"], "report.html"),
    ],
)
def test_a_mistake_is_one_sentence(folder, monkeypatch, arguments, words):
    monkeypatch.chdir(folder)
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_help_has_examples():
    result = run("--help")
    assert result.exit_code == 0
    assert "krein inspect digits.csv --kernel tl1 --html report.html" in result.output
