"""Fastfood beside the kernel and the dense Hadamard matrix; the features' table beside plain formulas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

from benchmarks.runner import text
from paper import features
from paper import protocol as paper
from paper.fastfood import Fastfood, hadamard
from paper.protocol import Cell, Request


@pytest.mark.parametrize("d", [1, 2, 8, 64])
def test_the_fast_transform_is_the_hadamard_matrix(d: int) -> None:
    x = np.random.default_rng(d).standard_normal((3, 2, d))
    np.testing.assert_allclose(hadamard(x), x @ scipy.linalg.hadamard(d), atol=1e-12)


@pytest.mark.parametrize("d", [3, 16, 20])
def test_fastfood_approaches_the_kernel_as_features_grow(d: int) -> None:
    X = np.random.default_rng(0).standard_normal((40, d))
    gamma = 1.0 / d
    K = np.exp(-gamma * ((X[:, None] - X) ** 2).sum(2))
    errors = []
    for count in (64, 4096):
        Z = [Fastfood.draw(d, count, gamma, seed)(X) for seed in range(4)]
        assert Z[0].shape == (40, count)
        errors.append(np.mean([np.abs(z @ z.T - K).mean() for z in Z]))
    assert errors[1] < 0.03
    assert 4 < errors[0] / errors[1] < 16  # as one over the root of their number: 8


def test_rows_of_a_stack_are_as_long_as_gaussian_ones() -> None:
    """V from unit vectors: its rows have squared lengths of 2 gamma chi²_d, so 2 gamma d in the mean."""
    drawn = Fastfood.draw(16, 16 * 400, 0.5, 3)
    flat = Fastfood(drawn.signs, drawn.places, drawn.normal, drawn.lengths, np.zeros(16 * 400), 1e-12)
    step = np.arccos(np.clip(flat(np.eye(16) * 1e3) / np.sqrt(2 / 6400), -1, 1)) / 1e3  # |V e_i| at a tiny gamma
    assert (step**2).sum(0).mean() == pytest.approx(2e-12 * 16, rel=0.05)


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
