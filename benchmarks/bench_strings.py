"""Strings by krein's defaults, beside the dense routes: words of ten languages and peptides, edit similarity.

strings.csv: one row per data, n, split and route. SVC and KernelRidgeClassifier get a kernel and a seed, all else is
left alone. The dense routes know the whole matrix: its spectrum clipped, flipped or squared for scikit-learn's SVC,
and ridge on its rows. A similarity that is expensive is played by a policy that affords next to none; there the dense
routes get as many similarities, on fewer objects. strings.md (`strings_summary`) holds the claims against the
figures, strings.png (`strings_picture`) shows them.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

import krein
from benchmarks import similarity_dense as dense
from benchmarks.runner import Request, Task, read_csv, text
from benchmarks.strings_picture import draw
from benchmarks.strings_summary import EXPENSIVE, KREIN_RIDGE, KREIN_SVC, RIDGE, SPECTRAL, summarise
from krein.errors import InputError

COLUMNS = (
    "data", "n", "split", "route", "rows", "n_test", "accuracy", "evaluations", "share_of_n2", "cpu_seconds",
    "correction",
)  # fmt: skip
TABLES = {"strings": COLUMNS}
MACHINES = {KREIN_SVC: krein.SVC, KREIN_RIDGE: krein.KernelRidgeClassifier}
RIDGE_ALPHA = 10.0
# An expensive similarity is simulated by a Policy that allows AFFORDED_SECONDS for a kernel matrix.
AFFORDED_SECONDS = 1e-4
# A dense route with this suffix evaluates each pair once, because the similarity is symmetric.
HALF = ", each pair once"


@dataclass(frozen=True)
class Case:
    """Splits of one size of one data set, and the routes to take."""

    data: str
    n: int  # objects to learn from; of folds what is left
    n_test: int
    splits: int
    ours: tuple[str, ...] = (KREIN_SVC, KREIN_RIDGE)
    theirs: tuple[str, ...] = ()
    folds: int = 0  # of so many folds, again and again; 0: objects drawn at random


@dataclass(frozen=True)
class Split:
    X: list[str]
    y: Any
    X_test: list[str]
    y_test: Any


FULL = (
    Case(f"words{EXPENSIVE}", 3000, 2000, 5, theirs=(*SPECTRAL[:2], RIDGE)),
    Case(f"peptides{EXPENSIVE}", 3000, 1620, 5, theirs=(*SPECTRAL[:2], RIDGE)),
    Case("words", 4000, 2000, 5, theirs=(*SPECTRAL, RIDGE)),
    Case("peptides", 3696, 924, 5, theirs=(*SPECTRAL, RIDGE), folds=5),
    Case("words", 10_000, 2000, 3, theirs=(RIDGE,)),
    Case("words", 20_000, 2000, 2, ours=(KREIN_RIDGE,)),
    Case("words", 50_000, 2000, 1, ours=(KREIN_RIDGE,)),
    Case("words", 20_000, 2000, 1, ours=(KREIN_SVC,)),
    Case("peptides", 3696, 924, 10, theirs=(*SPECTRAL, RIDGE), folds=5),  # the folds that are done, and as many again
)
QUICK = (
    Case(f"words{EXPENSIVE}", 2001, 200, 1, theirs=(*SPECTRAL[:2], RIDGE)),
    Case(f"peptides{EXPENSIVE}", 2001, 200, 1, theirs=(*SPECTRAL[:2], RIDGE)),
    Case("words", 150, 200, 2, theirs=(*SPECTRAL, RIDGE)),
    Case("peptides", 160, 40, 2, theirs=(*SPECTRAL, RIDGE), folds=5),
    Case("words", 300, 200, 1, theirs=(RIDGE,)),
    Case("words", 400, 200, 1, ours=(KREIN_RIDGE,)),
)


def tasks(request: Request) -> list[Task]:
    found: dict[tuple[Any, ...], Task] = {}
    for case in QUICK if request.quick else FULL:
        for number in range(case.splits):
            key = {"data": case.data, "n": case.n, "split": number}
            runs = [(route, ours, ()) for route in case.ours]
            if case.data.endswith(EXPENSIVE):
                runs += [
                    (route + note, as_expensive, (request.output,)) for note in ("", HALF) for route in case.theirs
                ]
            else:
                runs += [(route, theirs, (case.n,)) for route in case.theirs]
            for route, run, more in runs:  # two cases may share splits
                found.setdefault(
                    (*key.values(), route), Task(key | {"route": route}, run, (case, number, route, *more))
                )
    return list(found.values())


def report(rows: list[dict[str, str]], request: Request) -> str:
    draw(rows, request.output / "strings.png")
    return summarise(rows)


@lru_cache
def words() -> tuple[list[str], Any]:
    """61,786 words and the language of each."""
    path = Path(os.environ.get("KREIN_DATA", ".")) / "similarity" / "words_by_language.npz"
    if not path.is_file():
        raise InputError(f"{path} does not exist. KREIN_DATA must name the folder of the data sets.")
    with np.load(path) as arrays:
        text, offsets, y = arrays["bytes"].tobytes(), arrays["offsets"].tolist(), arrays["y"]
    return [text[start:end].decode() for start, end in pairwise(offsets)], y


@lru_cache
def peptides() -> tuple[list[str], Any]:
    """4620 distinct peptides; those that occur with both labels are left out."""
    whole = krein.datasets.load("peptide_amp")
    labels: dict[str, set[int]] = {}
    for x, label in zip(whole.X, whole.y.tolist(), strict=True):
        labels.setdefault(x, set()).add(label)
    clear = [x for x, found in labels.items() if len(found) == 1]
    return clear, np.array([min(labels[x]) for x in clear])


@lru_cache(maxsize=1)
def split(case: Case, number: int) -> Split:
    """One split. Test objects are drawn first, so all sizes of a data set share them."""
    X, y = words() if case.data.startswith("words") else peptides()
    seed = number // case.folds if case.folds else number
    order = np.random.default_rng(seed).permutation(len(X))[: case.n + case.n_test]
    if case.folds:
        folds = StratifiedKFold(case.folds, shuffle=True, random_state=seed).split(order, y[order])
        train, test = (order[part] for part in list(folds)[number % case.folds])
    else:
        train, test = order[case.n_test :], order[: case.n_test]
    return Split([X[i] for i in train], y[train], [X[i] for i in test], y[test])


def ours(case: Case, number: int, route: str) -> list[dict[str, Any]]:
    part, kernel = split(case, number), krein.EditSimilarity(n_jobs=1)
    kernel(["loads", "what", "is", "imported", "late"])
    krein.clear_cache()
    options: dict[str, Any] = {"kernel": kernel, "random_state": number}
    if case.data.endswith(EXPENSIVE):
        options["policy"] = krein.Policy(matrix_seconds=AFFORDED_SECONDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krein.KreinWarning)  # the similarity is indefinite on purpose
        start = time.process_time()
        with krein.counting() as spent:
            machine = MACHINES[route](**options).fit(part.X, part.y)
        taken = time.process_time() - start
        accuracy = float(machine.score(part.X_test, part.y_test))
    return [{
        "rows": len(part.X), "n_test": len(part.y_test), "accuracy": accuracy, "evaluations": spent.n_evaluations,
        "share_of_n2": spent.n_evaluations / case.n**2, "cpu_seconds": taken, "correction": machine.correction_,
    }]  # fmt: skip


def as_expensive(case: Case, number: int, route: str, output: Path) -> list[dict[str, Any]]:
    """A dense route on as many objects as krein's similarities suffice for, with each pair counted twice or once."""
    key = {"data": case.data, "n": text(case.n), "split": text(number)}
    recorded = [r for r in read_csv(output / "strings.csv") if key.items() <= r.items()]
    limit = max(int(r["evaluations"]) for r in recorded if r["route"] in MACHINES)
    half = route.endswith(HALF)
    m = (math.isqrt(8 * limit + 1) - 1) // 2 if half else math.isqrt(limit)
    count = m * (m + 1) // 2 if half else m * m
    (row,) = theirs(case, number, route.removesuffix(HALF), m)
    return [row | {"evaluations": count, "share_of_n2": count / case.n**2}]


@lru_cache(maxsize=1)
def matrices(case: Case, number: int, m: int) -> tuple[float, Any, Any]:
    """Seconds of the matrix of the first m training objects, that matrix, and the rows of the test objects."""
    part, kernel = split(case, number), krein.EditSimilarity(n_jobs=1)
    taken, K = timed(lambda: np.asarray(kernel(part.X[:m])))
    return taken, K, np.asarray(kernel(part.X_test, part.X[:m]))


@lru_cache(maxsize=1)
def spectrum(case: Case, number: int, m: int) -> tuple[float, Any]:
    """Seconds of the eigendecomposition of that matrix, and the eigendecomposition."""
    return timed(lambda: dense.spectrum(matrices(case, number, m)[1]))


def theirs(case: Case, number: int, route: str, m: int) -> list[dict[str, Any]]:
    """A dense route; the routes share one matrix and one eigendecomposition, which count for each that needs them."""
    part = split(case, number)
    y, (spent, K, rows) = part.y[:m], matrices(case, number, m)
    if route == RIDGE:
        taken, weights = timed(lambda: ridge_weights(K.astype(np.float32), y))
        labels, how = np.unique(y)[(rows.astype(np.float32) @ weights).argmax(1)], "square"
    else:
        eigen_seconds, found = spectrum(case, number, m)
        how = route.removeprefix("dense ").removesuffix(" + SVC")
        taken, machine = timed(lambda: SVC(kernel="precomputed").fit(dense.corrected(found, how), y))
        labels, taken = machine.predict(dense.mapped(found, rows, how)), taken + eigen_seconds
    return [{
        "rows": len(y), "n_test": len(part.y_test), "accuracy": float(np.mean(labels == part.y_test)),
        "evaluations": len(y) ** 2, "share_of_n2": (len(y) / case.n) ** 2, "cpu_seconds": spent + taken,
        "correction": how,
    }]  # fmt: skip


def ridge_weights(K: Any, y: Any) -> Any:
    """W of f(x) = k(x, X) W: ridge, one against the rest, with the rows of K as features."""
    targets = np.where(y[:, None] == np.unique(y), np.float32(1.0), np.float32(-1.0))
    gram = K @ K
    gram[np.diag_indices(len(gram))] += np.float32(RIDGE_ALPHA)
    factor = scipy.linalg.cho_factor(gram, overwrite_a=True, check_finite=False)
    return scipy.linalg.cho_solve(factor, K @ targets, check_finite=False)


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = action()
    return time.process_time() - start, result
