"""The bounds' table beside plain dense formulas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.runner import text
from paper import bounds
from paper import protocol as paper
from paper.bounds import bounded, split
from paper.protocol import Cell, Request


def test_the_parts_are_psd_and_make_the_matrix() -> None:
    A = np.random.default_rng(0).standard_normal((40, 40))
    K = A + A.T
    positive, negative = split(K)
    np.testing.assert_allclose(positive - negative, K, atol=1e-10)
    np.testing.assert_allclose(positive @ negative, 0.0, atol=1e-10)
    assert min(np.linalg.eigvalsh(positive)[0], np.linalg.eigvalsh(negative)[0]) > -1e-10
    np.testing.assert_array_equal(split(A @ A.T)[1], 0.0)


def test_terms_are_those_of_the_formula() -> None:
    A = np.random.default_rng(1).standard_normal((30, 30))
    K, labels = A @ A.T, np.repeat([0, 1, 2], 10)
    terms = bounded(K, np.zeros_like(K), labels, rank=6, n_landmarks=12, shift=0.5).terms
    values = np.linalg.eigvalsh(K)[::-1]
    assert terms["tail+"] == pytest.approx(np.sqrt((values[6:] ** 2).sum()))
    outside = sum((K[i, j] ** 2) for i in range(30) for j in range(30) if labels[i] != labels[j])
    assert terms["outside+"] == pytest.approx(2 * np.sqrt(outside))
    assert terms["shift"] == pytest.approx(0.5 * np.sqrt(30))
    assert terms["tail-"] == terms["sampling-"] == terms["outside-"] == 0.0


@pytest.mark.parametrize("name", ["rbf", "tl1"])
def test_a_row_holds_true_errors_under_their_bounds(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    X = np.random.default_rng(0).uniform(size=(500, 2))
    monkeypatch.setattr(paper, "prepared", lambda cell, quick=False: X)
    cell = Cell("artificial1", name)
    (row,) = bounds.run(cell, 0, 300)
    assert row["n"] == 300
    assert row["m1_error"] <= row["m1_bound"]
    assert row["m2_error"] <= row["m2_bound"]
    assert row["m1_holds"]
    assert row["tail+"] <= row["m1_error"] * (1 + 1e-6) + 1e-9 * row["norm"]  # no matrix of that rank is nearer
    assert row["outside_error"] <= row["m1_error"] * (1 + 1e-9)
    assert row["gershgorin"] <= row["smallest_eigenvalue"] + 1e-9
    key = {"dataset": "artificial1", "kernel": name, "seed": 0}
    written = {c: text((key | row)[c]) for c in bounds.COLUMNS}
    said = bounds.report([written], Request(tmp_path, datasets=("artificial1",), kernels=(name,), quick=True))
    assert "before the shift in 1 of 1, after it in 1 of 1" in said
    failed = written | {"m1_holds": "False"}
    assert "failed: before the shift in 1, after it in 0" in bounds.report(
        [failed], Request(tmp_path, datasets=("artificial1",), kernels=(name,))
    )
