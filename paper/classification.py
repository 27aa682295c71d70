"""Accuracy of M0 (exact), M1 (MEKA), M2 (MEKA, shifted) and ours by 10-fold cross-validation (paper, Table 3).

Three protocols. "published": rows are scaled, and MEKA is built, over training and test rows together. "clean": both
know the training rows alone, and test rows come in through the out-of-sample extension. "recordings" (gesture): clean,
and one whole video is left out, since neighbouring frames are near copies. Ours is always clean, the harder way.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from sklearn.model_selection import LeaveOneGroupOut, StratifiedKFold

from benchmarks.runner import Task
from krein.approximation import Approximation
from krein.arrays import Array, Indices
from krein.errors import KreinWarning
from krein.preprocessing import paper_preprocessing
from paper import protocol as paper
from paper import table3
from paper.budgeted import C_GRID, CHOICE_ROWS, Chosen, choose, ours
from paper.comparing import full_bytes, tabled_bytes
from paper.exact_svm import LIMIT, Fitted, Written, fit, psd_shift_of, restricted, written
from paper.grid_search import Setting
from paper.protocol import Cell, Request

__all__ = ["COLUMNS", "FOLDS", "QUICK_FOLDS", "TABLES", "Fold", "budgeted", "published", "report", "rows_of", "tasks"]

COLUMNS = (
    "dataset", "kernel", "protocol", "seed", "part",
    "fold", "method", "budget", "accuracy", "C", "parameters", "n_train", "n_test", "n_blocks", "rank", "dtype",
    "nbytes", "map_nbytes", "predicting_nbytes", "memory_percent", "relative_error", "corrected_error", "correction",
    "shift", "smallest_eigenvalue", "n_negative", "n_pairs", "nonconvex_pairs", "converged", "convex", "n_iter",
    "seconds",
)  # fmt: skip
TABLES = {"classification": COLUMNS}
# M0 is fitted in CLEAN_EXACT folds of the clean protocol, which differs in the scaling alone.
CLEAN_EXACT = 3
FOLDS, QUICK_FOLDS = 10, 3
QUICK_C = (1.0, 100.0)
# Each memory budget of krein's machines is used in these halves of the folds. "all" and "mem" are the bytes of the Mem
# column, with everything counted that learning holds and predicting needs, and with the factorization alone counted.
# "typical" are those of the tabled c and k.
BUDGETS = {"all": (0, 1), "mem": (0, 1), "typical": (0,)}
# From LARGER times the tabled rank on, the Mem column refers to another rank.
LARGER = 2


def tasks(request: Request) -> list[Task]:
    """Per data set, kernel, protocol and repetition: one task for each fold, and where ours is fitted one per half."""
    made = []
    for cell in paper.cells(request.datasets, request.kernels):
        for protocol in ("published", "clean", "recordings"):
            if protocol == "recordings" and cell.dataset != "gesture":
                continue
            for seed in range(1 if protocol == "recordings" else request.seeds or 1):
                key = {
                    "dataset": cell.dataset, "kernel": cell.kernel, "protocol": protocol, "seed": seed,
                }  # fmt: skip
                for fold in range(_n_folds(protocol, request.quick)):
                    known = (cell, protocol, seed, fold, request.quick)
                    made.append(Task(key | {"part": f"fold {fold}"}, run, known))
                if protocol == "published":
                    continue
                for name, half in product(BUDGETS, range(len(_halves(protocol, request.quick)))):
                    if half in BUDGETS[name]:
                        those = (cell, protocol, seed, name, half, request.quick)
                        made.append(Task(key | {"part": f"ours {name} {half}"}, run_ours, those))
    return sorted(made, key=_turn)


def _turn(task: Task) -> int:
    """The first half of all cells comes before the second half of any: an early look shows the whole table."""
    kind, *_, number = str(task.key["part"]).split()
    return int(number) // (FOLDS // 2) if kind == "fold" else int(number)


def report(rows: list[dict[str, str]], request: Request) -> str:
    """Table 3 with ours beside it, and what it shows."""
    return table3.report(rows, request)


def _n_folds(protocol: str, quick: bool) -> int:
    """How many of the folds are run: where ours is fitted, quick is content with one."""
    if quick:
        return QUICK_FOLDS if protocol == "published" else 1
    return len(paper.RECORDINGS) if protocol == "recordings" else FOLDS


def _halves(protocol: str, quick: bool) -> list[range]:
    """Folds for which ours is chosen together, on rows that are in none of their test parts."""
    n = _n_folds(protocol, quick)
    return [range(n)] if n == 1 else [range((n + 1) // 2), range((n + 1) // 2, n)]


# -- one fold ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Fold:
    """One split of one cell, and what is to be fitted on it."""

    cell: Cell
    setting: Setting
    protocol: str
    fold: int
    quick: bool
    seed: int  # of everything random in it
    y: Any
    train: Indices
    test: Indices

    @classmethod
    def of(cls, cell: Cell, setting: Setting, protocol: str, seed: int, fold: int, quick: bool) -> Fold:
        y = np.asarray(paper.raw(cell.dataset, quick)[1])
        train, test = split(y, protocol, seed, fold, quick)
        return cls(cell, setting, protocol, fold, quick, FOLDS * seed + fold, y, train, test)

    @property
    def known(self) -> dict[str, Any]:
        """What every row of it says."""
        return {
            "fold": self.fold, "C": self.setting.C, "parameters": repr(self.setting.similarity),
            "n_train": len(self.train), "n_test": len(self.test),
        }  # fmt: skip

    @property
    def rank_of_mem(self) -> int:
        """The k for which n k + (c k)² numbers are the paper's Mem column, at its c."""
        n, c = len(self.y), self.setting.n_blocks
        numbers = float(self.cell.accuracy["memory"]) / 100.0 * n**2
        return int((np.sqrt(n**2 + 4.0 * c**2 * numbers) - n) / (2.0 * c**2))

    def budget(self, name: str) -> float:
        """Bytes: the paper's Mem column for as many training rows, or what its c and k take in float64."""
        n = len(self.train)
        if name == "typical":
            return tabled_bytes(n, self.setting.n_blocks, self.setting.rank)
        # quick: as many bytes a row as all rows would have, since a percentage of few rows is nothing
        beside = n if not self.quick else len(paper.raw(self.cell.dataset)[1])
        return float(self.cell.accuracy["memory"]) / 100.0 * 8.0 * n * beside


def run(cell: Cell, protocol: str, seed: int, fold: int, quick: bool) -> list[dict[str, Any]]:
    """The rows of one fold."""
    f = Fold.of(cell, Setting.typical(cell), protocol, seed, fold, quick)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)  # generated data, zero rows: said once, in the report
        rows = published(f) if protocol == "published" else _clean(f)
        if protocol == "published" and f.rank_of_mem > LARGER * f.setting.rank:
            rows.append(_as_large_as_said(f))
    return [f.known | row for row in rows]


def run_ours(cell: Cell, protocol: str, seed: int, name: str, half: int, quick: bool) -> list[dict[str, Any]]:
    """Ours under one budget in half of the folds, chosen on the rows that none of them tests."""
    y = np.asarray(paper.raw(cell.dataset, quick)[1])
    setting = Setting.typical(cell)
    folds = [Fold.of(cell, setting, protocol, seed, fold, quick) for fold in _halves(protocol, quick)[half]]
    untested = np.setdiff1d(np.arange(len(y)), np.concatenate([f.test for f in folds]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)
        if len(untested) > CHOICE_ROWS:
            untested = np.sort(np.random.default_rng(folds[0].seed).choice(untested, CHOICE_ROWS, replace=False))
        X = rows_of(cell, protocol, quick, untested)[untested]
        room = folds[0].budget(name) * len(untested) / len(folds[0].train)  # as many bytes a row
        grid = QUICK_C if quick else C_GRID
        chosen = choose(X, y[untested], setting.similarity, room, grid, folds[0].seed, everything=name == "all")
        return [f.known | budgeted(f, name, chosen) for f in folds]


def split(y: Any, protocol: str, seed: int, fold: int, quick: bool) -> tuple[Indices, Indices]:
    """Training and test rows of one fold."""
    if protocol == "recordings":
        found = LeaveOneGroupOut().split(y, y, paper.recordings(quick))
    else:
        found = StratifiedKFold(QUICK_FOLDS if quick else FOLDS, shuffle=True, random_state=seed).split(y, y)
    train, test = list(found)[fold]
    return train, test


def rows_of(cell: Cell, protocol: str, quick: bool, train: Indices) -> Array:
    """All rows, prepared for the kernel with the statistics of those that the protocol allows to be seen."""
    if protocol == "published":
        return paper.prepared(cell, quick)
    X = paper.raw(cell.dataset, quick)[0]
    return np.asarray(paper_preprocessing(cell.similarity).fit(X[train]).transform(X))


def published(f: Fold) -> list[dict[str, Any]]:
    """M0, M1 and M2 where scaling and MEKA see all rows."""
    typical = f.setting.similarity == f.cell.similarity
    X = paper.prepared(f.cell, f.quick)
    K = paper.matrix(f.cell, f.quick) if typical else np.asarray(f.setting.similarity(X))
    shift = 0.0
    if f.cell.kernel == "tl1":  # the paper's M0*
        shift = 2.0 * (_cell_shift(f.cell, f.quick) if typical else psd_shift_of(K))
    rows = [_exact(f, K[np.ix_(f.train, f.train)], K[np.ix_(f.test, f.train)], shift)]
    begin = time.perf_counter()
    a = _theirs(f, X)
    seen = written(a.factorization, f.train, f.test, K)
    found = restricted(a.factorization, f.y, f.train)
    taken = time.perf_counter() - begin
    inertia = {"n_pairs": found.n_pairs, "nonconvex_pairs": found.nonconvex_pairs, "convex": found.convex}
    y, y_test = f.y[f.train], f.y[f.test]
    plain = fit(seen.train, y, seen.test, y_test, f.setting.C, LIMIT)
    rows.append(_of(a, plain, 0.0, "M1", taken) | inertia | _errors(seen))
    shift = 2.0 * max(0.0, -a.factorization.smallest_eigenvalue())
    seen.train[np.diag_indices_from(seen.train)] += shift
    shifted = fit(seen.train, y, seen.test, y_test, f.setting.C)
    convex = {"n_pairs": found.n_pairs, "convex": True}
    rows.append(_of(a, shifted, shift, "M2", taken) | convex | _errors(seen, shift))
    return rows


def _as_large_as_said(f: Fold) -> dict[str, Any]:
    """M2 with the rank that the Mem column speaks of, where that is far from the tabled one."""
    X, K = paper.prepared(f.cell, f.quick), paper.matrix(f.cell, f.quick)
    begin = time.perf_counter()
    larger = replace(f, setting=replace(f.setting, rank=f.rank_of_mem))
    a = _theirs(larger, X)
    seen = written(a.factorization, f.train, f.test, K)
    shift = 2.0 * max(0.0, -a.factorization.smallest_eigenvalue())
    seen.train[np.diag_indices_from(seen.train)] += shift
    taken = time.perf_counter() - begin
    found = fit(seen.train, f.y[f.train], seen.test, f.y[f.test], f.setting.C)
    return _of(a, found, shift, "M2", taken) | {"budget": "mem", "convex": True} | _errors(seen, shift)


def _errors(seen: Written, shift: float | None = None) -> dict[str, Any]:
    """Relative errors over all rows, before and after a shift."""
    assert seen.gap is not None  # K was given
    after = {} if shift is None else {"corrected_error": seen.gap.relative(shift)}
    return {"relative_error": seen.gap.relative()} | after


def _clean(f: Fold) -> list[dict[str, Any]]:
    X = rows_of(f.cell, f.protocol, f.quick, f.train)
    X_train, X_test, kernel = X[f.train], X[f.test], f.setting.similarity
    rows = []
    if f.protocol == "recordings" or f.fold < CLEAN_EXACT:
        K = np.asarray(kernel(X_train))
        shift = 2.0 * psd_shift_of(K) if f.cell.kernel == "tl1" else 0.0
        rows.append(_exact(f, K, np.asarray(kernel(X_test, X_train)), shift))
    begin = time.perf_counter()
    a = _theirs(f, X_train)
    everyone = np.arange(len(X_train))
    K, K_test = written(a.factorization, everyone, everyone[:0]).train, a.kernel_rows(X_test)
    taken = time.perf_counter() - begin
    shift = 2.0 * max(0.0, -a.factorization.smallest_eigenvalue())
    K[np.diag_indices_from(K)] += shift
    rows.append(_of(a, fit(K, f.y[f.train], K_test, f.y[f.test], f.setting.C), shift, "M2", taken))
    return rows


def _theirs(f: Fold, X: Array) -> Approximation:
    return paper.meka(X, f.setting.similarity, f.setting.n_blocks, f.setting.rank, f.seed, guarded=False)


def _exact(f: Fold, K: Array, K_test: Array, shift: float) -> dict[str, Any]:
    """M0, which owns K; for tl1 on the shifted matrix."""
    if shift:
        K[np.diag_indices_from(K)] += shift
    found = fit(K, f.y[f.train], K_test, f.y[f.test], f.setting.C)
    return _fitted(found) | {"method": "M0", "nbytes": K.nbytes, "memory_percent": 100.0, "shift": shift}


@lru_cache(maxsize=1)
def _cell_shift(cell: Cell, quick: bool) -> float:
    return psd_shift_of(paper.matrix(cell, quick))


def _fitted(found: Fitted) -> dict[str, Any]:
    return {
        "accuracy": found.accuracy, "converged": found.converged, "n_iter": found.n_iter, "seconds": found.seconds,
    }  # fmt: skip


def _of(a: Approximation, found: Fitted, shift: float, method: str, taken: float) -> dict[str, Any]:
    """What there is to say of one of MEKA's; the seconds are its own and the SVM's."""
    F = a.factorization
    return _fitted(found) | _held(a) | {
        "method": method, "shift": shift, "correction": "shift" if shift else "none", "n_negative": F.n_negative(),
        "smallest_eigenvalue": F.smallest_eigenvalue(), "seconds": taken + found.seconds,
    }  # fmt: skip


def _held(a: Approximation) -> dict[str, Any]:
    F = a.factorization
    return {
        "n_blocks": F.n_blocks, "rank": max(F.ranks), "dtype": F.dtype, "nbytes": F.nbytes, "map_nbytes": a.nbytes,
        "memory_percent": 100.0 * F.nbytes / full_bytes(F.shape[0]),
    }  # fmt: skip


def budgeted(f: Fold, budget: str, chosen: Chosen) -> dict[str, Any]:
    """Ours in one fold; the seconds are without those of choosing."""
    X = rows_of(f.cell, f.protocol, f.quick, f.train)
    everything = budget == "all"
    found = ours(
        X[f.train], f.y[f.train], X[f.test], f.setting.similarity, f.budget(budget), chosen, f.seed, everything
    )  # fmt: skip
    machine = found.machine
    return _held(machine.approximation_) | {
        "nbytes": found.nbytes, "predicting_nbytes": found.predicting_nbytes,
        "memory_percent": 100.0 * found.nbytes / full_bytes(len(f.train)),
        "dtype": "direct" if chosen.rows_per_block else machine.approximation_.factorization.dtype,
        "method": "ours", "budget": budget, "C": chosen.C,
        "accuracy": 100.0 * float(np.mean(found.predicted == f.y[f.test])),
        "correction": machine.correction_, "shift": machine.approximation_.factorization.shift,
        "n_negative": machine.n_negative_, "converged": machine.converged_, "n_iter": int(np.max(machine.n_iter_)),
        "seconds": found.seconds,
    }  # fmt: skip
