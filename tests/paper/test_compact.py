"""The compact decision function against the machine's own, and direct blocks against a dense block-diagonal matrix."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC

import krein
from krein.errors import KreinWarning
from paper.budgeted import choose, direct_rows, ours
from paper.compact import compact, compact_direct, direct_blocks, direct_bytes

KERNEL = krein.RBF(gamma=2.0)


def data(n: int = 500, classes: int = 3) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-1, 1, (n, 3)), rng.uniform(-1, 1, (80, 3))
    return X, np.digitize(np.sin(4 * X[:, 0]) + X[:, 1], [-0.4, 0.5][: classes - 1]), new


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("shape", [
    {"n_blocks": 1, "rank": 20}, {"n_blocks": 4, "rank": 10},
    {"n_blocks": 30, "rank": 12, "drop": 1.0, "assignment": "landmark"},
])  # fmt: skip
def test_the_compact_decision_function_is_the_machines_own(shape: dict[str, Any], classes: int) -> None:
    X, y, new = data(classes=classes)
    a = krein.approximate(X, KERNEL, random_state=0, **shape)
    machine = krein.SVC(kernel=KERNEL, C=10.0, approximation=a).fit(X, y)
    expected = machine._expansion(new)
    small = compact(machine, np.float64)
    assert np.allclose(small(new), expected, atol=1e-7 * np.abs(expected).max())
    landmarks = sum(len(m.landmarks) for m in a.maps)
    centres = 0 if a.n_blocks == 1 else 4 * a.n_blocks * 3
    assert small.nbytes == 8 * landmarks * (3 + expected.shape[1]) + centres
    assert compact(machine, np.float32).nbytes < small.nbytes


@pytest.mark.parametrize("classes", [2, 3])
def test_direct_blocks_are_a_block_diagonal_matrix_in_float16(classes: int) -> None:
    X, y, new = data(classes=classes)
    a = direct_blocks(X, KERNEL, 15, 0)
    labels = a.partition.labels
    dense = np.where(labels[:, None] == labels, np.asarray(KERNEL(X)).astype(np.float16).astype(float), 0.0)
    error = np.linalg.norm(a.factorization.to_dense() - dense) / np.linalg.norm(dense)
    assert error < 2e-3  # what lies below the cut-off is rounding of float16
    machine = krein.SVC(kernel=KERNEL, C=10.0, tol=1e-6, approximation=a, correction="none").fit(X, y)
    small = compact_direct(machine)
    machine._expansion = small
    nearest = labels[np.argmin(((new[:, None] - X) ** 2).sum(2), axis=1)]
    rows = np.where(nearest[:, None] == labels, KERNEL(new, X), 0.0)
    twin = SVC(kernel="precomputed", C=10.0, tol=1e-6).fit(a.factorization.to_dense(), y)
    assert np.mean(machine.predict(new) == twin.predict(rows)) > 0.96
    learning, predicting = direct_bytes(a.partition.sizes, 3, classes)
    assert predicting == small.nbytes
    assert learning == sum(n * (n + 1) for n in a.partition.sizes) + 4 * len(X)


def test_everything_counted_keeps_to_the_bytes() -> None:
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.uniform(-1, 1, (900, 2)), 0.05 * rng.normal(size=(900, 10))])
    y = np.digitize(np.sin(4 * X[:, 0]) + X[:, 1], [-0.4, 0.5])
    X, new, y, truth = X[:800], X[800:], y[:800], y[800:]
    for room, direct in ((6e4, True), (2e5, False)):  # the rows themselves take 76,800 bytes
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KreinWarning)
            chosen = choose(X, y, KERNEL, room, (1.0, 100.0), 0, everything=True)
            found = ours(X, y, new, KERNEL, room, chosen, 0, everything=True)
        assert (chosen.rows_per_block > 0) == direct
        assert found.nbytes + found.predicting_nbytes <= room
        assert np.mean(found.predicted == truth) > 0.8
    rows = direct_rows(X, 3, 6e4, 0)
    assert sum(direct_bytes(direct_blocks(X, KERNEL, round(800 / rows), 0).partition.sizes, 12, 3)) <= 6e4
