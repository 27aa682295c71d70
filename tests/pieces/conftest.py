"""Small pieces for small data, and the files that tests read."""

from __future__ import annotations

import numpy as np
import pytest
from cases import X

import krein.pieces.rows


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """A piece may have few rows, so that a small problem has several."""
    monkeypatch.setattr(krein.pieces.rows, "FEWEST_ROWS", 400)
    monkeypatch.setattr("krein.approximation.piecewise.check_memory", lambda *sizes: None)  # limits are tiny here


@pytest.fixture
def path(tmp_path):
    """The rows as an .npy file."""
    np.save(tmp_path / "x.npy", X)
    return tmp_path / "x.npy"
