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
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import similarity_dense as dense
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC
from strings_picture import draw
from strings_summary import EXPENSIVE, KREIN_RIDGE, KREIN_SVC, RIDGE, SPECTRAL, summarise
from tqdm import tqdm

import krein
from krein.errors import InputError
from paper.records import Table, alone, text

COLUMNS = (
    "data", "n", "split", "route", "rows", "n_test", "accuracy", "evaluations", "share_of_n2", "cpu_seconds",
    "correction",
)  # fmt: skip
MACHINES = {KREIN_SVC: krein.SVC, KREIN_RIDGE: krein.KernelRidgeClassifier}
RIDGE_ALPHA = 10.0
AFFORDED_SECONDS = 1e-4  # of `Policy.matrix_seconds`, which stands for a similarity that is expensive
HALF = ", each pair once"  # the harder comparison: a dense route that knows that the similarity is symmetric


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


def run(out: Path, command: str, quick: bool, force: bool) -> None:
    path = out / "strings.csv"
    with alone(path):
        table = Table(path, COLUMNS, command, force)
        cases, data = QUICK if quick else FULL, {"words": words(), "peptides": peptides()}
        krein.EditSimilarity(n_jobs=1)(["loads", "what", "is", "loaded", "late"])
        with tqdm(total=sum(case.splits for case in cases), desc="strings") as bar:
            for case in cases:
                for number in range(case.splits):
                    cell(table, case, number, *data[case.data.removesuffix(EXPENSIVE)])
                    bar.update()
                if not quick:
                    write(table, out)
        write(table, out)


def write(table: Table, out: Path) -> None:
    (out / "strings.md").write_text(summarise(table.rows), encoding="utf-8")
    draw(table.rows, out / "strings.png")


def words() -> tuple[list[str], Any]:
    """61,786 words and the language of each."""
    path = Path(os.environ.get("KREIN_DATA", ".")) / "similarity" / "words_by_language.npz"
    if not path.is_file():
        raise InputError(f"{path} does not exist. KREIN_DATA must name the folder of the data sets.")
    with np.load(path) as arrays:
        text, offsets, y = arrays["bytes"].tobytes(), arrays["offsets"].tolist(), arrays["y"]
    return [text[start:end].decode() for start, end in pairwise(offsets)], y


def peptides() -> tuple[list[str], Any]:
    """4620 distinct peptides; those that occur with both labels are left out."""
    whole = krein.datasets.load("peptide_amp")
    labels: dict[str, set[int]] = {}
    for x, label in zip(whole.X, whole.y.tolist(), strict=True):
        labels.setdefault(x, set()).add(label)
    clear = [x for x, found in labels.items() if len(found) == 1]
    return clear, np.array([min(labels[x]) for x in clear])


def split(case: Case, number: int, X: list[str], y: Any) -> Split:
    """Objects to test by come first, so that the sizes of one data set are tested by the same ones."""
    seed = number // case.folds if case.folds else number
    order = np.random.default_rng(seed).permutation(len(X))[: case.n + case.n_test]
    if case.folds:
        folds = StratifiedKFold(case.folds, shuffle=True, random_state=seed).split(order, y[order])
        train, test = (order[part] for part in list(folds)[number % case.folds])
    else:
        train, test = order[case.n_test :], order[: case.n_test]
    return Split([X[i] for i in train], y[train], [X[i] for i in test], y[test])


def cell(table: Table, case: Case, number: int, X: list[str], y: Any) -> None:
    """All routes of one split that are not in the table yet."""
    key = {"data": case.data, "n": case.n, "split": number}
    part = split(case, number, X, y)
    common = key | {"n_test": len(part.y_test)}
    for route in case.ours:
        if not table.has(**key, route=route):
            table.add([common | ours(part, route, number, case.n, expensive=case.data.endswith(EXPENSIVE))])
    if not case.data.endswith(EXPENSIVE):
        left = [route for route in case.theirs if not table.has(**key, route=route)]
        if left:
            table.add(common | row for row in theirs(part, left, case.n))
        return
    mine = {name: text(value) for name, value in key.items()}
    asked = max(int(r["evaluations"]) for r in table.rows if mine.items() <= r.items() and r["route"] in MACHINES)
    for note, m in (("", math.isqrt(asked)), (HALF, (math.isqrt(8 * asked + 1) - 1) // 2)):
        left = [route for route in case.theirs if not table.has(**key, route=route + note)]
        some = Split(part.X[:m], part.y[:m], part.X_test, part.y_test)
        for row in theirs(some, left, case.n):
            count = m * (m + 1) // 2 if note else m * m
            changed = {"route": row["route"] + note, "evaluations": count, "share_of_n2": count / case.n**2}
            table.add([common | row | changed])


def ours(part: Split, route: str, seed: int, n: int, *, expensive: bool) -> dict[str, Any]:
    krein.clear_cache()
    kernel: dict[str, Any] = {"kernel": krein.EditSimilarity(n_jobs=1), "random_state": seed}
    if expensive:
        kernel["policy"] = krein.Policy(matrix_seconds=AFFORDED_SECONDS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krein.KreinWarning)  # that it is indefinite is the point
        start = time.process_time()
        with krein.counting() as spent:
            machine = MACHINES[route](**kernel).fit(part.X, part.y)
        taken = time.process_time() - start
        accuracy = float(machine.score(part.X_test, part.y_test))
    return {
        "route": route, "rows": len(part.X), "accuracy": accuracy, "evaluations": spent.n_evaluations,
        "share_of_n2": spent.n_evaluations / n**2, "cpu_seconds": taken, "correction": machine.correction_,
    }  # fmt: skip


def theirs(part: Split, routes: list[str], n: int) -> list[dict[str, Any]]:
    """Dense routes; one matrix and one eigendecomposition serve all, and count for each that needs them."""
    if not routes:
        return []
    kernel = krein.EditSimilarity(n_jobs=1)
    matrix_seconds, K = timed(lambda: np.asarray(kernel(part.X)))
    rows = np.asarray(kernel(part.X_test, part.X))
    found: dict[str, tuple[float, Any, str]] = {}
    if RIDGE in routes:
        taken, weights = timed(lambda: ridge_weights(K.astype(np.float32), part.y))
        labels = np.unique(part.y)[(rows.astype(np.float32) @ weights).argmax(1)]
        found[RIDGE] = matrix_seconds + taken, labels, "square"
    spectral = [route for route in routes if route != RIDGE]
    if spectral:
        eigen_seconds, spectrum = timed(lambda: dense.spectrum(K))
        for route in spectral:
            how = route.removeprefix("dense ").removesuffix(" + SVC")
            taken, machine = timed(
                lambda how=how: SVC(kernel="precomputed").fit(dense.corrected(spectrum, how), part.y)
            )
            labels = machine.predict(dense.mapped(spectrum, rows, how))
            found[route] = matrix_seconds + eigen_seconds + taken, labels, how
    m = len(part.X)
    return [
        {"route": route, "rows": m, "accuracy": float(np.mean(labels == part.y_test)), "evaluations": m * m,
         "share_of_n2": (m / n) ** 2, "cpu_seconds": taken, "correction": how}
        for route, (taken, labels, how) in found.items()
    ]  # fmt: skip


def support_vectors(K: Any, y: Any) -> Any:
    return SVC(kernel="precomputed").fit(K, y)


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
