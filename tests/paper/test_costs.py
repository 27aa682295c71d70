"""The costs' table: what is timed gives the right answer, and the report fits what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.runner import text
from krein.factorization.correction import correct
from paper import costs
from paper.protocol import Request


def test_both_ways_of_correcting_agree() -> None:
    f = costs.made(300, 60)
    K = f.to_dense()
    assert f.smallest_eigenvalue() < -1e-6
    np.testing.assert_allclose(costs.clip_dense(K), correct(f, "clip").to_dense(), atol=1e-9)
    np.testing.assert_allclose(costs.shift_dense(K), correct(f, "shift").to_dense(), atol=1e-9)


def test_every_method_is_measured_and_storage_is_what_it_must_be() -> None:
    rows = {row["method"]: row for row in costs.run("n", 400, 60, 1)}
    assert set(rows) == set(costs.METHODS)
    exact = rows["Lanczos"]["exact"]
    assert rows["Lanczos"]["smallest_eigenvalue"] >= exact - 1e-9
    assert rows["Lanczos"]["iterations"] == 40
    matrix = 8 * 400**2 / 1e6
    assert rows["clip, n x n"]["megabytes"] > 2.9 * matrix  # K, its eigenvectors, the result
    assert 1.9 * matrix < rows["shift, n x n"]["megabytes"] < rows["clip, n x n"]["megabytes"]
    assert rows["shift, core"]["megabytes"] < matrix
    assert set(rows) - {row["method"] for row in costs.run("rank", 400, 60, 1)} == {"clip, n x n", "shift, n x n"}


def test_the_report_fits_powers(tmp_path: Path) -> None:
    def row(axis: str, n: int, rank: int, method: str, seconds: float, **more: Any) -> dict[str, str]:
        values = {"axis": axis, "n": n, "rank": rank, "method": method, "seconds": seconds, "megabytes": n / 100}
        return {c: text((values | {"exact": -2.0} | more).get(c, "")) for c in costs.COLUMNS}

    rows = [row("n", n, 160, "clip, n x n", 1e-9 * n**3) for n in (500, 1000, 2000, 3000)]
    rows += [row("n", n, 160, "Lanczos", 1e-6 * n**1.5, smallest_eigenvalue=-1.9) for n in (500, 1000, 2000, 3000)]
    rows += [row("n", n, 160, "shift, core", 0.01) for n in (500, 1000, 2000, 3000)]
    rows += [row("rank", 20_000, r, "shift, core", 1e-9 * r**3) for r in (80, 160, 320)]
    rows += [row("rank", 20_000, r, "Lanczos", 1e-3 * r, smallest_eigenvalue=-2.0) for r in (80, 160, 320)]
    said = costs.report(rows, Request(tmp_path, datasets=("artificial1",), kernels=("rbf",)))
    assert "n x n matrix: n^3 and n^ up to 3000 rows" in said
    assert "at a fixed rank: n^1.5;" in said
    assert "as r^ and r^3 (r³ in the limit), Lanczos as r^1." in said
    assert "in 4 of 7 runs, by more than 1 % in 4, at worst by 5 %" in said


@pytest.mark.parametrize("quick", [True, False])
def test_tasks_differ(quick: bool, tmp_path: Path) -> None:
    keys = [
        tuple(t.key.values())
        for t in costs.tasks(Request(tmp_path, datasets=("artificial1",), kernels=("rbf",), quick=quick))
    ]
    assert len(set(keys)) == len(keys) > 5
