"""krein's own SVM under a budget of bytes: blocks, rank, storage and C chosen by `krein.SVC`, on rows not tested.

In: rows, labels, a kernel and a number of bytes. Out: a `Chosen`, and with it `Ours`: predictions of the test rows.
Choosing takes many fits, so it is done on rows that several folds share, in as many bytes a row, and carried over.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from krein.arrays import Array
from krein.errors import KreinWarning
from krein.estimators import SVC
from krein.kernels import Kernel

__all__ = ["CHOICE_ROWS", "C_GRID", "Chosen", "Ours", "choose", "ours"]

C_GRID = (1.0, 10.0, 100.0, 1000.0)
# Hyperparameters are chosen on CHOICE_ROWS of the training rows, because the choice takes about 20 fits.
CHOICE_ROWS = 3000
# C is chosen by PARTS-fold cross-validation.
PARTS = 4
# The relative tolerance of the dual is close to LIBSVM's own.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Chosen:
    """What was found on some rows, in a form that holds for more of them."""

    C: float
    n: int  # rows it was found on
    shape: dict[str, Any] | None  # n_blocks, rank, drop and dtype; None: left to max_memory
    seconds: float

    def at(self, n: int) -> dict[str, Any] | None:
        """The same for n rows: blocks on their own become more, of as many rows each; coupled ones stay."""
        if self.shape is None or self.shape["drop"] == 0.0:
            return self.shape
        return self.shape | {"n_blocks": max(1, round(self.shape["n_blocks"] * n / self.n))}


@dataclass(frozen=True, eq=False)
class Ours:
    """A fitted machine, what it says of the test rows, and how long both took."""

    machine: SVC
    predicted: Any
    seconds: float


def choose(X: Array, y: Any, kernel: Kernel, budget_bytes: float, C_grid: Sequence[float], seed: int) -> Chosen:
    """Let `krein.SVC` choose blocks, rank and type within ``budget_bytes``; cross-validate C over an ascending grid.

    The matrix that was built serves every fit.
    """
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)  # corrections and limits: they are in the table
        shared: dict[str, Any] = {"kernel": kernel, "tol": TOLERANCE, "random_state": seed}
        first = SVC(C=C_grid[0], max_memory=budget_bytes, **shared).fit(X, y)
        made_psd = first.correction_ not in ("none", "krein")
        shared |= {"approximation": first.approximation_, "correction": "none" if made_psd else first.correction_}
        best, score = float(C_grid[0]), 0.0
        for C in C_grid:
            now = _validated(SVC(C=C, **shared), X, y, seed)
            if now < score - np.sqrt(score * (1.0 - score) / len(X)):  # a standard error: a larger C only costs more
                break
            if now > score:  # of equals the smallest
                best, score = float(C), now
    found, shape = first.selection_, None
    if found is not None and isinstance(found.rank, int):
        shape = {"n_blocks": found.n_blocks, "rank": found.rank, "drop": found.drop, "dtype": found.dtype}
    return Chosen(best, len(X), shape, time.perf_counter() - begin)


def _validated(machine: SVC, X: Array, y: Any, seed: int) -> float:
    """Cross-validated accuracy on one matrix: rows that are held out have the weight 0."""
    right = 0
    for _, held in StratifiedKFold(PARTS, shuffle=True, random_state=seed).split(X, y):
        weights = np.ones(len(X))
        weights[held] = 0.0
        right += int(np.sum(machine.fit(X, y, weights).predict(X[held]) == y[held]))
    return right / len(X)


def ours(
    X_train: Array, y_train: Any, X_test: Array, kernel: Kernel, budget_bytes: float, chosen: Chosen, seed: int
) -> Ours:
    """Fit `krein.SVC` as chosen, its factorization within ``budget_bytes``, and predict the test rows."""
    begin = time.perf_counter()
    asked: dict[str, Any] = {"kernel": kernel, "C": chosen.C, "tol": TOLERANCE, "random_state": seed}
    shape = chosen.at(len(X_train))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)
        if shape is None:
            machine = SVC(max_memory=budget_bytes, **asked).fit(X_train, y_train)
        else:
            machine = _within(asked, shape, X_train, y_train, budget_bytes)
        predicted = np.asarray(machine.predict(X_test))
    return Ours(machine, predicted, time.perf_counter() - begin)


def _within(asked: dict[str, Any], shape: dict[str, Any], X: Array, y: Any, room: float) -> SVC:
    """Fit with the rank chosen, or the largest below it that keeps to the bytes: rows and core do not grow alike."""
    while True:
        machine = SVC(**asked, **shape).fit(X, y)
        rank, held = shape["rank"], machine.approximation_.factorization.nbytes
        if held <= room or rank == 1:
            return machine
        shape = shape | {"rank": max(1, min(rank - 1, int(rank * room / held)))}
