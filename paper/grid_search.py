"""The paper's tuning inside a fold: kernel parameters and C by the exact SVM, blocks and rank by error times rank.

In: the training rows of a fold. Out: a `Setting`. All of it by an inner 5-fold cross-validation of the exact matrix, on
a random part of the rows: 65 values of the grid, 5 folds of each and 10 outer folds make thousands of exact SVMs per
cell, which would take days on all rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from krein.arrays import Array
from krein.errors import KreinWarning
from krein.kernels import RBF, Kernel, SpherePolynomial
from paper.comparing import difference
from paper.exact_svm import fit, psd_shift_of
from paper.protocol import Cell, meka

__all__ = ["GRID", "QUICK", "Grid", "Setting", "choose"]


@dataclass(frozen=True)
class Setting:
    """What one fold is run with."""

    similarity: Kernel
    C: float
    n_blocks: int
    rank: int

    @classmethod
    def typical(cls, cell: Cell) -> Setting:
        """The paper's table of typical hyperparameters."""
        return cls(cell.similarity, cell.C, cell.n_blocks, cell.rank)


@dataclass(frozen=True)
class Grid:
    """What is tried; the kernels ELM and TL1 have nothing to tune."""

    gamma: tuple[float, ...]
    a: tuple[float, ...]
    degree: tuple[int, ...]
    C: tuple[float, ...]
    n_blocks: tuple[int, ...]
    rank: tuple[int, ...]
    n_folds: int = 5
    n_rows: int = 2000  # the training rows of a fold that the search sees

    def kernels(self, cell: Cell) -> list[Kernel]:
        """The candidates of this cell."""
        if cell.kernel == "rbf":
            return [RBF(gamma=gamma) for gamma in self.gamma]
        if cell.kernel == "poly":
            return [SpherePolynomial(degree, a) for degree, a in product(self.degree, self.a)]
        return [cell.similarity]


GRID = Grid(
    gamma=(0.01, 0.1, *map(float, range(1, 11)), 15.0), a=(2.0, 3.0), degree=(2, 4, 6, 8, 10),
    C=(1e-3, 1.0, 10.0, 100.0, 1000.0), n_blocks=(3, 5, 10), rank=(16, 32, 64, 128, 256),
)  # fmt: skip
QUICK = Grid(
    gamma=(0.1, 10.0), a=(2.0,), degree=(2, 8), C=(1.0, 100.0), n_blocks=(3, 5), rank=(8, 16), n_folds=2, n_rows=600
)


def choose(cell: Cell, X: Array, y: Any, grid: Grid, seed: int) -> Setting:
    """Tune on the rows X of a fold: kernel and C by inner accuracy, then c and k by relative error times c k."""
    if len(X) > grid.n_rows:
        some = np.sort(np.random.default_rng(seed).choice(len(X), grid.n_rows, replace=False))
        X, y = X[some], y[some]
    best, kernel, C = -1.0, cell.similarity, cell.C
    folds = list(StratifiedKFold(grid.n_folds, shuffle=True, random_state=seed).split(X, y))
    for candidate in grid.kernels(cell):
        K = _matrix(cell, candidate, X)
        for strength in grid.C:
            accuracy = float(np.mean([
                fit(K[np.ix_(train, train)], y[train], K[np.ix_(test, train)], y[test], strength).accuracy
                for train, test in folds
            ]))  # fmt: skip
            if accuracy > best:  # of equals the first: the smoother kernel, the smaller C
                best, kernel, C = accuracy, candidate, strength
    scores = list(_scores(np.asarray(kernel(X)), X, kernel, grid, seed))
    _, n_blocks, rank = min(scores)
    return Setting(kernel, C, n_blocks, rank)


def _matrix(cell: Cell, kernel: Kernel, X: Array) -> Array:
    """K, made psd by the paper's shift where the kernel is indefinite."""
    K = np.asarray(kernel(X))
    if cell.kernel == "tl1":
        K[np.diag_indices_from(K)] += 2.0 * psd_shift_of(K)
    return K


def _scores(K: Array, X: Array, kernel: Kernel, grid: Grid, seed: int) -> Iterator[tuple[float, int, int]]:
    """(relative error times total rank, c, k) of every candidate: the paper's rule is the lowest."""
    for n_blocks, rank in product(grid.n_blocks, grid.rank):
        if n_blocks * rank > len(X):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KreinWarning)
            f = meka(X, kernel, n_blocks, rank, seed).factorization
        yield difference(K, f).relative() * f.rank, n_blocks, rank
