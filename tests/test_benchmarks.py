"""The benchmarks: their reference tables can be read, and a small run of the 24 cells goes through."""

from __future__ import annotations

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
REFERENCE = BENCHMARKS / "reference"
KERNELS = ("rbf", "elm", "poly", "tl1")

pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="a source distribution has no benchmarks")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def test_the_reference_tables_have_the_24_cells() -> None:
    datasets = [row["dataset"] for row in _rows(REFERENCE / "paper_hyperparameters.csv")]
    assert len(datasets) == 6
    cells = [(d, k) for d in datasets for k in KERNELS]
    for name in ("pairwise_errors.csv", "paper_errors.csv"):
        assert [(row["dataset"], row["kernel"]) for row in _rows(REFERENCE / name)] == cells


@pytest.mark.parametrize("name", ["paper_hyperparameters.csv", "pairwise_errors.csv", "paper_errors.csv"])
def test_the_reference_figures_are_numbers(name: str) -> None:
    for row in _rows(REFERENCE / name):
        for column, value in row.items():
            if column not in ("dataset", "kernel", "variant"):
                assert math.isfinite(float(value))
                assert float(value) >= 0 or column == "smallest_eigenvalue"


@pytest.mark.slow
@pytest.mark.data
def test_a_quick_run_of_the_cells_writes_a_table_a_summary_and_its_provenance(tmp_path: Path, data_dir: Path) -> None:
    subprocess.run(
        [sys.executable, str(BENCHMARKS / "run.py"), "cells", "--quick", "--out", str(tmp_path)],
        check=True,
        env=os.environ | {"KREIN_DATA": str(data_dir)},
        capture_output=True,
    )
    rows = _rows(tmp_path / "cells.csv")
    assert {row["kernel"] for row in rows} == set(KERNELS)
    assert {row["dtype"] for row in rows} == {"float64", "float32", "float16", "int8"}
    assert all(0.0 <= float(row["m1_error"]) < 0.1 for row in rows)
    assert "artificial1" in (tmp_path / "cells.md").read_text(encoding="utf-8")
    (run,) = json.loads((tmp_path / "cells.json").read_text(encoding="utf-8"))
    assert {"date", "command", "numpy", "blas_threads", "cores"} <= set(run)
