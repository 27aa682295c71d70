"""Four indefinite matrices that are given: 10 times 10 folds, every correction, beside a dense reference written apart.

Two questions, asked apart. Is the corrected matrix the same, for training rows and for new ones? And do the machines
agree? LIBSVM keeps the matrix in single precision whatever its tolerance, so decision values differ by what that
rounds away; on a matrix that single precision holds exactly both are asked once more (first fold of each repeat).
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any

import numpy as np
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.svm import SVC

import krein
from benchmarks import similarity_dense as dense
from benchmarks.runner import Task

COLUMNS = (
    "data", "correction", "repeat", "accuracy", "dense_accuracy", "matrix_difference", "rows_difference",
    "decision_difference", "single_difference", "differing_labels",
)  # fmt: skip
SETS = ("auralsonar", "protein213", "yeast200", "voting435")
CORRECTIONS = ("flip", "clip", "shift", "square", "krein")
TOL = 1e-10


def tasks(table: str, quick: bool) -> list[Task]:
    return [
        Task({"data": name, "repeat": repeat}, folds, (name, repeat), table)
        for name in SETS
        for repeat in range(1 if quick else 10)
    ]


def folds(name: str, repeat: int) -> list[dict[str, Any]]:
    data = krein.datasets.load(name)
    return _folds(0.5 * (data.X + data.X.T), data.y, repeat)


def _folds(S: Any, y: Any, repeat: int) -> list[dict[str, Any]]:
    found: dict[str, dict[str, list[float]]] = {how: defaultdict(list) for how in CORRECTIONS}
    folds = RepeatedStratifiedKFold(n_splits=10, n_repeats=1, random_state=repeat).split(S, y)
    for fold, (train, test) in enumerate(folds):
        spectrum = dense.spectrum(S[np.ix_(train, train)])
        a = krein.approximate(train, krein.Precomputed(S))
        for how in CORRECTIONS:
            for name, value in _compared(S, y, (train, test), spectrum, a, how, fold == 0).items():
                found[how][name].append(value)
    out = []
    for how, values in found.items():
        row: dict[str, Any] = {"correction": how, "differing_labels": int(sum(values["differing_labels"]))}
        row |= {name: float(np.mean(values[name])) for name in ("accuracy", "dense_accuracy")}
        row |= {name: float(np.max(values[name])) for name in values if name.endswith("_difference")}
        out.append(row)
    return out


def _compared(S: Any, y: Any, split: Any, spectrum: Any, a: Any, how: str, single: bool) -> dict[str, float]:
    """One fold: matrices, labels and decision values of both ways."""
    train, test = split
    K, rows, classes = S[np.ix_(train, train)], S[np.ix_(test, train)], np.unique(y)
    corrected, mapped = dense.corrected(spectrum, how), dense.mapped(spectrum, rows, how)
    mine = a.corrected("flip" if how == "krein" else how)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krein.KreinWarning)
        model = krein.SVC(kernel="precomputed", correction=how, decision_function_shape="ovo", tol=TOL)
        model.fit(K, y[train])
    values, found = model.decision_function(rows), model.predict(rows)
    expected = dense.decide(spectrum, rows, y[train], (1.0,), how, tol=TOL)[0]
    wanted = dense.winners(expected.reshape(len(test), -1), classes)
    out = {
        "matrix_difference": _apart(mine.factorization.to_dense(), corrected),
        "rows_difference": _apart(mine.kernel_rows(test), mapped),
        "decision_difference": _widest(values, expected),
        "differing_labels": float((found != wanted).sum()),
        "accuracy": float(np.mean(found == y[test])),
        "dense_accuracy": float(np.mean(wanted == y[test])),
    }
    if single:
        held = corrected.astype(np.float32).astype(np.float64)
        options: dict[str, Any] = {"kernel": "precomputed", "decision_function_shape": "ovo", "tol": TOL}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", krein.KreinWarning)  # rounding may leave eigenvalues of -1e-8
            one, other = (m.fit(held, y[train]) for m in (krein.SVC(correction="none", **options), SVC(**options)))
        out["single_difference"] = _widest(one.decision_function(mapped), other.decision_function(mapped))
    return out


def _apart(found: Any, wanted: Any) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def _widest(found: Any, wanted: Any) -> float:
    return float(np.abs(found - wanted).max() / max(1.0, float(np.abs(wanted).max())))


def summary(rows: list[dict[str, str]]) -> list[str]:
    lines = [
        "## Given matrices, 10 x 10 folds, C = 1, at full rank",
        "",
        "Differences are the largest of all folds: of the corrected matrix and of the corrected rows of new objects "
        "(Frobenius, relative), of decision values (relative to the largest, or 1). LIBSVM holds the matrix in single "
        "precision: the last column but one is of a matrix that single precision holds exactly.",
        "",
        "| data | correction | accuracy, % | dense | matrix | rows | decision values | same, no rounding to single | "
        "labels that differ |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    groups: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for r in rows:
        groups[r["data"], r["correction"]].append(r)
    gaps = ("matrix_difference", "rows_difference", "decision_difference", "single_difference")
    for (data, how), some in groups.items():
        ours, theirs = (100 * float(np.mean([float(r[k]) for r in some])) for k in ("accuracy", "dense_accuracy"))
        worst = " | ".join(f"{max(float(r[k]) for r in some):.1e}" for k in gaps)
        labels = sum(int(r["differing_labels"]) for r in some)
        lines.append(f"| {data} | {how} | {ours:.2f} | {theirs:.2f} | {worst} | {labels} |")
    return lines
