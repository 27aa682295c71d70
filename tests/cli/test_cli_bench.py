"""`krein bench`: the figures are those of the machines it names, in a table or as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
import sklearn.svm
from click.testing import CliRunner
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

import krein
from krein.cli import bench, main

NAMES = ["sklearn.svm.SVC", "krein.SVC", "krein.KernelRidgeClassifier"]


@pytest.fixture(scope="module")
def told():
    result = CliRunner().invoke(main, ["bench", "--rows", "500", "--seed", "3", "--json"])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""  # no terminal, no bar
    return json.loads(result.stdout)


def test_every_machine_is_there_with_its_figures(told):
    assert [line["name"] for line in told] == NAMES
    assert all(line["fit"] > 0.0 and line["predict"] > 0.0 for line in told)
    assert told[0]["nbytes"] == 8 * 400**2  # the matrix that scikit-learn's would learn from
    assert all(line["nbytes"] > 0 for line in told[1:])


def test_accuracies_are_those_of_the_rows_left_out(told):
    X, y = make_classification(
        500, n_features=20, n_informative=10, n_classes=3, n_clusters_per_class=3, class_sep=1.2, random_state=3
    )
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=3, stratify=y)
    exact = sklearn.svm.SVC(kernel="precomputed", C=1.0).fit(krein.RBF(gamma=0.05)(X), y)
    assert np.isclose(told[0]["accuracy"], np.mean(exact.predict(krein.RBF(gamma=0.05)(X_test, X)) == y_test))
    assert abs(told[1]["accuracy"] - told[0]["accuracy"]) <= 0.05
    assert told[2]["accuracy"] > 0.5  # of three classes


def test_the_table_has_times_as_ratios_to_the_first_line():
    lines = [bench.Line("first", 3.0, 1.0, 0.875, 8_000_000), bench.Line("second", 1.5, 4.0, 0.9, 500_000)]
    text = bench.table(lines, 1000).splitlines()
    assert text[0].startswith("1000 generated rows")
    assert text[-2].split() == ["first", "3.00", "s", "(1.0x)", "1.00", "s", "(1.0x)", "87.50", "%", "8.0", "MB"]
    assert text[-1].split() == ["second", "1.50", "s", "(2.0x)", "4.00", "s", "(0.2x)", "90.00", "%", "0.5", "MB"]
    assert len({len(line) for line in text[2:]}) == 1  # columns stand below each other


def test_without_json_the_table_is_printed(monkeypatch):
    asked = []

    def run(*arguments):
        asked.append(arguments[:2])
        arguments[2]("first")
        return [bench.Line("first", 1.0, 1.0, 1.0, 8)]

    monkeypatch.setattr(bench, "run", run)
    result = CliRunner().invoke(main, ["bench", "--rows", "600"])
    assert result.exit_code == 0
    assert result.stdout == bench.table(run(600, 0, print), 600) + "\n"
    assert asked[0] == (600, 0)


@pytest.mark.parametrize("arguments", [["--rows", "10"], ["--rows", "many"], ["--seed", "-1"], ["more"]])
def test_a_number_that_is_none_ends_with_2(arguments):
    result = CliRunner().invoke(main, ["bench", *arguments])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
