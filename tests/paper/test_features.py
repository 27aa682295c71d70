"""The table of features at equal memory, on data where the answer is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.runner import text
from paper import features
from paper import protocol as paper
from paper.protocol import Cell, Request


def test_every_method_keeps_to_the_budget_and_ours_is_best(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(2400, 4))
    y = (np.sin(6 * X[:, 0]) + X[:, 1] > 0.8).astype(int)
    monkeypatch.setattr(paper, "prepared", lambda cell, quick=False: X)
    monkeypatch.setattr(paper, "raw", lambda dataset, quick=False: (X, y))
    features._matrix.cache_clear()
    try:
        rows = features.run(Cell("cpusmall", "rbf"), 16, 0, False)
    finally:
        features._matrix.cache_clear()
    by = {row["method"]: row for row in rows}
    assert set(by) == set(features.METHODS)
    budget = 8 * (2160 * 16 + 48**2)
    for method in ("fourier", "fastfood", "nystroem", "ours"):
        assert by[method]["nbytes"] <= budget
        assert by[method]["n"] == 2160
    assert by["fourier"]["nbytes"] > budget - 8 * 2160
    assert by["ours"]["error"] < min(by[m]["error"] for m in features.METHODS if m != "ours")
    assert by["ours"]["accuracy"] > 85
    request = Request(tmp_path, datasets=("cpusmall",), kernels=("rbf",))
    key = {"dataset": "cpusmall", "budget_rank": 16, "seed": 0}
    said = features.report([{c: text((key | r).get(c, "")) for c in features.COLUMNS} for r in rows], request)
    assert "ours against MEKA: larger error in 0 of 1" in said
    assert "random Fourier features against MEKA: larger error in 1 of 1" in said
