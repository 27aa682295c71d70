"""The errors' table: what a row says is so, budgets are kept, the report counts what the rows say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import krein
from benchmarks.runner import text
from paper import errors
from paper import protocol as paper
from paper.error_report import _fitting_rank, report
from paper.protocol import Cell, Request

CELL = Cell("artificial1", "tl1")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A few generated rows stand for the data set, so that no file is needed."""
    X = np.random.default_rng(0).uniform(size=(600, 2))
    monkeypatch.setattr(paper, "prepared", lambda cell, quick=False: X)
    monkeypatch.setattr(paper, "matrix", lambda cell, quick=False: cell.similarity(X))
    return X


def found(part: str) -> list[dict[str, Any]]:
    return errors.run(CELL, part, 0, True)


def test_errors_before_and_after_correction_are_those_of_the_dense_matrices(few: np.ndarray) -> None:
    K = CELL.similarity(few)
    rows = {row["method"]: row for row in found("cell")}
    theirs = krein.approximate(
        few, CELL.similarity, n_blocks=3, rank=16, coupling="pairwise", landmarks="uniform", dtype="float64", drop=0.0,
        random_state=0,
    ).factorization.to_dense()  # fmt: skip
    low = np.linalg.eigvalsh(theirs)[0]
    assert low < -1e-6
    row = rows["pairwise"]
    assert row["smallest_eigenvalue"] == pytest.approx(low, rel=1e-6)
    for column, factor in (("error", 0), ("error_once", 1), ("error_twice", 2), ("error_corrected", 2)):
        want = np.linalg.norm(K - theirs + factor * low * np.eye(len(K))) / np.linalg.norm(K)
        assert row[column] == pytest.approx(want, rel=1e-6)
    assert row["n_negative"] == (np.linalg.eigvalsh(theirs) < -1e-9 * len(K)).sum()
    assert rows["shared"]["correction"] == ("clip" if rows["shared"]["n_negative"] else "none")
    assert rows["shared"]["error"] < row["error"]


def test_budgets_are_kept(few: np.ndarray) -> None:
    for part, percent in (("tabled", 100 * (600 * 16 + 48**2) / 600**2), ("mem", 1.11)):
        (row,) = found(part)
        assert row["budget"] == pytest.approx(percent / 100 * 8 * 600**2)
        assert row["nbytes"] <= row["budget"]


def test_the_rule_takes_the_lowest_error_times_rank(few: np.ndarray) -> None:
    *grid, taken = found("rule")
    best = min(grid, key=lambda row: row["error"] * row["rank"])
    assert (taken["n_blocks"], taken["rank"]) == (best["n_blocks"], best["rank"])
    assert taken["memory_percent"] == best["memory_percent"]
    assert len(grid) == 6


def test_the_report_counts_what_the_rows_say(tmp_path: Path) -> None:
    request = Request(tmp_path, datasets=("artificial1",), kernels=("tl1",))

    def row(part: str, method: str, **values: Any) -> dict[str, str]:
        fixed = {"dataset": "artificial1", "kernel": "tl1", "part": part, "method": method, "seed": 0, "n": 7500}
        whole = dict.fromkeys(errors.COLUMNS, "") | fixed | values
        return {name: text(value) for name, value in whole.items()}

    rows = [
        row("cell", "pairwise", error=0.01, error_once=0.1, error_twice=0.2, n_negative=5, smallest_eigenvalue=-1.0),
        row("cell", "shared", error=0.004, error_corrected=0.005, n_negative=1, correction="clip"),
        row("mem", "budget", error=0.002, error_corrected=0.002, n_negative=0, correction="none"),
        row("rule", "rule", error=0.01, error_twice=0.2, n_blocks=3, rank=192, memory_percent=0.92),
    ]
    said = report(rows, request)
    assert "same c and k: 40 times below M2" in said
    assert "Mem column: 100 times below M2" in said
    assert "clip in 1 of 2" in said
    assert "M1 at the tabled c and k is within the paper's mean ± 2 standard deviations in 1 of 1 cells" in said
    assert "| artificial1 | 3, 64 | 1.11 | 0.919 | 1.029 | 1.21 |" in said


def test_the_rank_that_fits_gives_the_memory_back() -> None:
    k = _fitting_rank(7500, 3, 1.11)
    assert 100 * (7500 * k + (3 * k) ** 2) / 7500**2 == pytest.approx(1.11)


def test_there_is_a_task_for_every_seed(tmp_path: Path) -> None:
    request = Request(tmp_path, datasets=("spambase",), kernels=("rbf", "elm"))
    assert len(errors.tasks(request)) == 2 * sum(errors.SEEDS.values())
    assert len(errors.tasks(Request(tmp_path, datasets=("spambase",), kernels=("rbf",), seeds=1))) == len(errors.SEEDS)
    keys = [tuple(t.key.values()) for t in errors.tasks(request)]
    assert len(set(keys)) == len(keys)
    assert set(errors.tasks(request)[0].key) <= set(errors.COLUMNS)
