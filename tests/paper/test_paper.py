"""The paper's tables as they are shipped, and its data as it prepared them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from krein.errors import InputError
from paper import protocol as paper
from paper.protocol import Cell, cells


def test_every_cell_has_its_row_in_every_table() -> None:
    assert len(cells()) == 24
    for cell in cells():
        assert math.isfinite(float(cell.errors["m1"]))
        assert float(cell.accuracy["m0"]) > float(cell.accuracy["memory"]) > 0.0
        assert float(cell.published_code["m1_error"]) > 0.0
        assert cell.C > 0.0
        assert cell.n_blocks == 3
        assert cell.rank in (16, 64, 128)


def test_the_means_of_table_3_are_those_the_paper_can_be_asked_for() -> None:
    loss = [float(c.accuracy["m0"]) - float(c.accuracy["m2"]) for c in cells()]
    aside = [x for c, x in zip(cells(), loss, strict=True) if c != Cell("artificial1", "tl1")]
    assert max(loss) == pytest.approx(25.61, abs=0.005)  # gesture poly
    assert np.mean(aside) == pytest.approx(6.4, abs=0.7)


def test_a_cell_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match="mnist rbf"):
        paper.table("errors", Cell("mnist", "rbf"))


@pytest.mark.data
@pytest.mark.parametrize("cell", cells(["cpusmall"]), ids=lambda c: c.kernel)
def test_rows_are_prepared_as_the_kernel_wants_them(cell: Cell) -> None:
    X = paper.prepared(cell, quick=True)
    assert X.shape == (paper.QUICK_ROWS, 12)
    if cell.kernel in ("rbf", "tl1"):
        np.testing.assert_allclose([X.min(axis=0), X.max(axis=0)], [np.zeros(12), np.ones(12)], atol=1e-12)
    else:
        np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0)
    K = paper.matrix(cell, quick=True)
    np.testing.assert_allclose(K[:50, 50:90], cell.similarity(X[:50], X[50:90]), atol=1e-12)


@pytest.mark.data
def test_the_recordings_of_gesture_add_up_to_its_rows() -> None:
    assert sum(paper.RECORDINGS) == len(paper.raw("gesture")[0])
