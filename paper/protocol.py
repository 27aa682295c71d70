"""What the paper says, as data: its six sets, four kernels, hyperparameters and tables, and its rows as prepared.

A `Cell` is one data set with one kernel. ``quick`` stands for a random subset of its rows everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks import runner
from krein import datasets
from krein.approximation import Approximation
from krein.arrays import Array, Indices
from krein.choosing import approximate
from krein.errors import InputError
from krein.kernels import ELM, RBF, TL1, Kernel, SpherePolynomial
from krein.preprocessing import paper_preprocessing

__all__ = ["DATASETS", "KERNELS", "RECORDINGS", "Cell", "Request", "cells", "matrix", "meka", "prepared", "raw",
           "recordings", "table"]  # fmt: skip

DATASETS = datasets.names("paper")
KERNELS = ("rbf", "elm", "poly", "tl1")
QUICK_ROWS = 1200
# The number of frames of gesture's seven videos, in order.
RECORDINGS = (1743, 1260, 1830, 1069, 1420, 1107, 1444)


@dataclass(frozen=True)
class Request(runner.Request):
    """The part of an experiment that is wanted: data sets, kernels, seeds."""

    datasets: tuple[str, ...] = DATASETS
    kernels: tuple[str, ...] = KERNELS
    seeds: int | None = None  # None: the number each experiment declares


@dataclass(frozen=True)
class Cell:
    """One data set with one kernel, and what the paper's tables hold on the pair."""

    dataset: str
    kernel: str

    @property
    def name(self) -> str:
        return f"{self.dataset} {self.kernel}"

    @property
    def n_blocks(self) -> int:
        """The paper's typical c."""
        return int(self._typical["c"])

    @property
    def rank(self) -> int:
        """The paper's typical k, per cluster."""
        return int(self._typical["k"])

    @property
    def C(self) -> float:
        """The paper's typical C."""
        return float(self._typical[f"C_{self.kernel}"])

    @property
    def similarity(self) -> Kernel:
        """The kernel at the paper's typical parameters."""
        h = self._typical
        made: dict[str, Kernel] = {
            "rbf": RBF(gamma=float(h["gamma"])),
            "elm": ELM(),
            "poly": SpherePolynomial(int(h["degree"]), float(h["a"])),
            "tl1": TL1(float(h["rho"])),
        }
        return made[self.kernel]

    @property
    def accuracy(self) -> dict[str, str]:
        """Its row of the paper's Table 3, in %; memory in % of K's; "nc": not converged; "": not run."""
        return table("classification", self)

    @property
    def errors(self) -> dict[str, str]:
        """Its row of the supplement's Table 4."""
        return table("errors", self)

    @property
    def published_code(self) -> dict[str, str]:
        """What the authors' code gave here when it was run again, at the typical hyperparameters."""
        return table("published_code", self)

    @property
    def _typical(self) -> dict[str, str]:
        return next(row for row in _rows("hyperparameters") if row["dataset"] == self.dataset)


def meka(X: Any, kernel: Kernel, n_blocks: int, rank: int, seed: int, guarded: bool = True) -> Approximation:
    """The paper's own approximation: Algorithm 1 in float64, k directions per cluster, no block dropped.

    Without ``guarded`` it is Algorithm 1 to the letter; with it, links that explode are damped.
    """
    return approximate(
        X, kernel, n_blocks=n_blocks, rank=rank, coupling="pairwise", landmarks="uniform", dtype="float64", drop=0.0,
        guarded=guarded, random_state=seed,
    )  # fmt: skip


def cells(datasets: Iterable[str] = DATASETS, kernels: Iterable[str] = KERNELS) -> list[Cell]:
    """The cells of these data sets and kernels, data set by data set."""
    kernels = tuple(kernels)
    return [Cell(d, k) for d in datasets for k in kernels]


def table(name: str, cell: Cell) -> dict[str, str]:
    """The row of ``cell`` in one of the shipped tables."""
    for row in _rows(name):
        if (row["dataset"], row["kernel"]) == (cell.dataset, cell.kernel):
            return row
    raise InputError(f"The table {name!r} has no row for {cell.name}.")


@lru_cache
def _rows(name: str) -> list[dict[str, str]]:
    return runner.parse_csv((files("paper") / "tables" / f"{name}.csv").read_text(encoding="utf-8"))


@lru_cache(maxsize=2)
def raw(dataset: str, quick: bool = False) -> tuple[Array, Any]:
    """X and y as the authors' files hold them."""
    data = datasets.load(dataset)
    if not quick or data.n <= QUICK_ROWS:
        return data.X, data.y
    kept = _few(data.y)
    return data.X[kept], data.y[kept]


def recordings(quick: bool = False) -> Indices:
    """Which of gesture's videos each of its rows is a frame of."""
    video = np.repeat(np.arange(len(RECORDINGS)), RECORDINGS)
    return video[_few(datasets.load("gesture").y)] if quick else video


def _few(y: Any) -> Indices:
    """The rows that stand for all of them."""
    kept, _ = train_test_split(np.arange(len(y)), train_size=QUICK_ROWS, stratify=y, random_state=0)
    return np.sort(kept)


@lru_cache(maxsize=2)
def prepared(cell: Cell, quick: bool = False) -> Array:
    """The rows as the paper gave them to this kernel: scaled over all of them."""
    rows: Array = paper_preprocessing(cell.similarity).fit_transform(raw(cell.dataset, quick)[0])
    return rows


@lru_cache(maxsize=1)
def matrix(cell: Cell, quick: bool = False) -> Array:
    """K over all rows, up to 1 GB: one is kept, so do what needs it cell by cell."""
    return np.asarray(cell.similarity(prepared(cell, quick)))
