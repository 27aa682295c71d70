"""krein's own SVM under a budget of bytes: blocks, rank, storage and C chosen by `krein.SVC`, on rows not tested.

In: rows, labels, a kernel and a number of bytes. Out: a `Chosen`, and with it `Ours`: predictions of the test rows.
Choosing takes many fits, so it is done on rows that several folds share, in as many bytes a row, and carried over.

The budget is for the factorization, as the paper counts, or for everything: the factorization that is learned from and
what predictions need besides (`compact`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from krein.approximation.clusters import partition
from krein.arrays import Array
from krein.choosing import approximate
from krein.errors import KreinWarning
from krein.estimators import SVC
from krein.kernels import RBF, Evaluator, Kernel
from paper.compact import compact, compact_direct, direct_blocks, direct_bytes

__all__ = ["CHOICE_ROWS", "C_GRID", "Chosen", "Ours", "choose", "ours"]

C_GRID = (1.0, 10.0, 100.0, 1000.0)
# Hyperparameters are chosen on CHOICE_ROWS of the training rows, because the choice takes about 20 fits.
CHOICE_ROWS = 3000
# Direct blocks have at most this many rows on average, as learning takes the cube of them.
MOST_DIRECT_ROWS = 256
# C is chosen by PARTS-fold cross-validation.
PARTS = 4
# The relative tolerance of the dual is close to LIBSVM's own.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Chosen:
    """What was found on some rows, in a form that holds for more of them."""

    C: float
    n: int  # rows it was found on
    shape: dict[str, Any] | None  # n_blocks, rank, drop, dtype and assignment; None: left to max_memory
    seconds: float
    rows_per_block: float = 0.0  # of direct blocks; 0: others

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
    nbytes: int  # that the factorization takes
    predicting_nbytes: int  # that predictions need besides


def choose(
    X: Array, y: Any, kernel: Kernel, budget_bytes: float, C_grid: Sequence[float], seed: int, everything: bool = False
) -> Chosen:
    """Let `krein.SVC` choose blocks, rank and type within ``budget_bytes``; cross-validate C over an ascending grid.

    The matrix that was built serves every fit. With ``everything`` counted, direct blocks are taken where the rows
    themselves, which landmarks are, would exceed the budget; elsewhere the choice is the same.
    """
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)  # corrections and limits: they are in the table
        if everything and X.nbytes > budget_bytes:
            rows = direct_rows(X, len(np.unique(y)), budget_bytes, seed)
            C = _best_C(C_grid, lambda C: _validated_direct(C, rows, X, y, kernel, seed), len(X))
            return Chosen(C, len(X), None, time.perf_counter() - begin, rows)
        shared: dict[str, Any] = {"kernel": kernel, "tol": TOLERANCE, "random_state": seed}
        first = SVC(C=C_grid[0], max_memory=budget_bytes, **shared).fit(X, y)
        made_psd = first.correction_ not in ("none", "krein")
        shared |= {"approximation": first.approximation_, "correction": "none" if made_psd else first.correction_}
        best = _best_C(C_grid, lambda C: _validated(SVC(C=C, **shared), X, y, seed), len(X))
    found, shape = first.selection_, None
    if found is not None and isinstance(found.rank, int):
        names = ("n_blocks", "rank", "drop", "dtype", "assignment")
        shape = {name: found.parameters[name] for name in names if name in found.parameters}
    return Chosen(best, len(X), shape, time.perf_counter() - begin)


def _best_C(grid: Sequence[float], score_of: Callable[[float], float], n: int) -> float:
    """The C with the best score, of equals the smallest."""
    best, score = float(grid[0]), 0.0
    for C in grid:
        now = score_of(C)
        if now < score - np.sqrt(score * (1.0 - score) / n):  # a standard error: a larger C only costs more
            break
        if now > score:
            best, score = float(C), now
    return best


def direct_rows(X: Array, n_classes: int, room: float, seed: int) -> float:
    """The rows per direct block, at most MOST_DIRECT_ROWS, that ``room`` bytes allow with everything counted."""
    n, rows = len(X), float(MOST_DIRECT_ROWS)
    while True:
        sizes = partition(X, max(1, round(n / rows)), Evaluator(RBF(gamma=1.0)), seed).sizes
        learning, predicting = direct_bytes(sizes, X.shape[1], n_classes)
        if learning + predicting <= room or rows <= 2.0:
            return rows
        rows *= min(0.95, max(0.3, (room - predicting) / learning))


def _fit_direct(C: float, rows: float, X: Array, y: Any, kernel: Kernel, seed: int) -> SVC:
    """A machine on direct blocks, with the compact decision function in place of its own."""
    a = direct_blocks(X, kernel, max(1, round(len(X) / rows)), seed)
    machine = SVC(kernel=kernel, C=C, tol=TOLERANCE, approximation=a, correction="none").fit(X, y)
    machine._expansion = compact_direct(machine)
    return machine


def _validated_direct(C: float, rows: float, X: Array, y: Any, kernel: Kernel, seed: int) -> float:
    """Cross-validated accuracy of direct blocks, built anew for each part: rows held out are nobody's landmarks."""
    right = 0
    for kept, held in StratifiedKFold(PARTS, shuffle=True, random_state=seed).split(X, y):
        right += int(np.sum(_fit_direct(C, rows, X[kept], y[kept], kernel, seed).predict(X[held]) == y[held]))
    return right / len(X)


def _validated(machine: SVC, X: Array, y: Any, seed: int) -> float:
    """Cross-validated accuracy on one matrix: rows that are held out have the weight 0."""
    right = 0
    for _, held in StratifiedKFold(PARTS, shuffle=True, random_state=seed).split(X, y):
        weights = np.ones(len(X))
        weights[held] = 0.0
        right += int(np.sum(machine.fit(X, y, weights).predict(X[held]) == y[held]))
    return right / len(X)


def ours(
    X_train: Array, y_train: Any, X_test: Array, kernel: Kernel, budget_bytes: float, chosen: Chosen, seed: int,
    everything: bool = False,
) -> Ours:  # fmt: skip
    """Fit `krein.SVC` as chosen within ``budget_bytes``, of the factorization or of everything; predict test rows."""
    begin = time.perf_counter()
    asked: dict[str, Any] = {"kernel": kernel, "C": chosen.C, "tol": TOLERANCE, "random_state": seed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)
        if chosen.rows_per_block:
            rows = min(chosen.rows_per_block, direct_rows(X_train, len(np.unique(y_train)), budget_bytes, seed))
            machine = _fit_direct(chosen.C, rows, X_train, y_train, kernel, seed)
            sizes = machine.approximation_.partition.sizes
            nbytes = direct_bytes(sizes, X_train.shape[1], len(machine.classes_))
        else:
            machine, nbytes = _within(asked, chosen.at(len(X_train)), X_train, y_train, budget_bytes, everything)
        predicted = np.asarray(machine.predict(X_test))
    return Ours(machine, predicted, time.perf_counter() - begin, *nbytes)


def _within(
    asked: dict[str, Any], shape: dict[str, Any] | None, X: Array, y: Any, room: float, everything: bool
) -> tuple[SVC, tuple[int, int]]:
    """Fit with the rank chosen, or the largest below it that keeps to the bytes: rows and core do not grow alike.

    With ``everything`` counted, predictions come from the compact decision function, in float32 where that is needed.
    """
    while True:
        if shape is None:
            machine = SVC(max_memory=room, **asked).fit(X, y)
        else:
            a = approximate(X, asked["kernel"], random_state=asked["random_state"], **shape)
            machine = SVC(approximation=a, **asked).fit(X, y)
        learning = machine.approximation_.factorization.nbytes
        compacts = [compact(machine, kind) for kind in (np.float64, np.float32)]
        small = next((c for c in compacts if learning + c.nbytes <= room), compacts[-1])
        held = learning + (small.nbytes if everything else 0)
        if shape is None or held <= room or shape["rank"] == 1:
            if everything:
                machine._expansion = small
            return machine, (learning, small.nbytes)
        rank = shape["rank"]
        shape = shape | {"rank": max(1, min(rank - 1, int(rank * room / held)))}
