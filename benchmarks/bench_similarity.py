"""Similarities without vectors: strings, given matrices, many strings, a matrix larger than memory.

Peptides (5200 strings, normalised edit similarity): SVC in 5 folds with every correction, beside dense routes on the
whole matrix. Four indefinite matrices: 10 times 10 folds, every correction, beside a dense reference written apart.
Generated families of strings: growth in n. A 40,000 x 40,000 float32 file: peak memory of the process.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import similarity_dense as dense
from measure import in_fresh_process, peak_bytes, resident_bytes
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedKFold
from tqdm import tqdm

import krein
from krein.experiments.records import Table

CORRECTIONS = ("auto", "flip", "clip", "shift", "square", "krein")
PEPTIDE = ("fold", "C", "route", "correction", "accuracy", "evaluations", "share_of_n2", "seconds")
MATRICES = ("data", "correction", "repeat", "accuracy", "dense_accuracy", "largest_difference", "differing_labels")
FAMILIES = (
    "n",
    "seconds",
    "fit_seconds",
    "cpu_seconds",
    "evaluations",
    "per_object",
    "share_of_n2",
    "accuracy",
    "rank",
    "correction",
)
FILE = ("n", "file_bytes", "step", "seconds", "peak_bytes", "before_bytes", "value")
CS = (1.0, 10.0)
SIZES = (7500, 15_000, 30_000, 60_000)
SETS = ("auralsonar", "protein213", "yeast200", "voting435")


def run(out: Path, command: str, quick: bool, force: bool) -> None:
    tables = {
        "file": _file(Table(out / "similarity_file.csv", FILE, command, force), quick),
        "matrices": _matrices(Table(out / "similarity_matrices.csv", MATRICES, command, force), quick),
        "families": _families(Table(out / "similarity_families.csv", FAMILIES, command, force), quick),
        "peptide": _peptides(Table(out / "similarity_peptide.csv", PEPTIDE, command, force), quick),
    }
    (out / "similarity.md").write_text(summarise(tables), encoding="utf-8")


# -- strings -----------------------------------------------------------------------------------------------------------


class Counted(krein.EditSimilarity):
    """The normalised edit similarity, every value counted; one core."""

    count = 0

    def __call__(self, A: Any, B: Any = None) -> Any:
        Counted.count += len(A) * len(A if B is None else B)
        return super().__call__(A, B)


def _peptides(table: Table, quick: bool) -> Table:
    data = krein.datasets.load("peptide_amp")
    X, y = np.array(data.X, dtype=object), data.y
    if quick:
        some = np.random.default_rng(0).choice(len(X), 2600, replace=False)
        X, y = X[some], y[some]
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))
    K = None
    for fold, (train, test) in enumerate(tqdm(folds[:1] if quick else folds, desc="peptides")):
        if table.has(fold=fold):
            continue
        rows = _ours(X, y, train, test)
        K = krein.EditSimilarity(n_jobs=1)(X.tolist()) if K is None else K
        start = time.perf_counter()
        spectrum = dense.spectrum(K[np.ix_(train, train)])
        found = time.perf_counter() - start
        for how in ("flip", "clip", "shift", "krein"):
            start = time.perf_counter()
            decided = dense.decide(spectrum, K[np.ix_(test, train)], y[train], CS, how)
            took = found + (time.perf_counter() - start) / len(CS)
            for C, values in zip(CS, decided, strict=True):
                hit = float(np.mean((values.ravel() > 0) == (y[test] == y.max())))
                rows.append(_row("dense", how, C, hit, len(train) * len(X), len(X), took))
        table.add(row | {"fold": fold} for row in rows)
    return table


def _ours(X: Any, y: Any, train: Any, test: Any) -> list[dict[str, Any]]:
    """SVC as a user would have it, with each correction; evaluations are those of choosing, fitting and predicting.

    The approximation is built once and remembered; what it took counts for every row.
    """
    rows: list[dict[str, Any]] = []
    krein.clear_cache()
    for how in CORRECTIONS:
        for C in CS:
            Counted.count = 0
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", krein.KreinWarning)
                model = krein.SVC(kernel=Counted(n_jobs=1), C=C, correction=how, random_state=0)
                hit = float(model.fit(X[train].tolist(), y[train]).score(X[test].tolist(), y[test]))
            took = time.perf_counter() - start
            count = Counted.count + (model.approximation_.n_evaluations if rows else 0)
            rows.append(_row("krein", how, C, hit, count, len(X), took))
    return rows


def _row(route: str, how: str, C: float, hit: float, count: int, n: int, took: float) -> dict[str, Any]:
    shares = {"evaluations": count, "share_of_n2": count / n**2}
    return {"route": route, "correction": how, "C": C, "accuracy": hit, "seconds": took} | shares


def _families(table: Table, quick: bool) -> Table:
    for n in tqdm((3000, 6000) if quick else SIZES, desc="families"):
        if not table.has(n=n):
            table.add([in_fresh_process(family_run, n)])
    return table


def family_run(n: int, n_test: int = 2000) -> dict[str, Any]:
    data = krein.datasets.families(n + n_test, n_families=100, n_classes=10, mutated=0.4, random_state=0)
    model = krein.SVC(kernel=Counted(n_jobs=1), random_state=0)
    warnings.simplefilter("ignore", krein.KreinWarning)
    start, begun = time.perf_counter(), time.process_time()
    model.fit(data.X[:n], data.y[:n])
    fitted, count = time.perf_counter() - start, Counted.count
    hit = float(model.score(data.X[n:], data.y[n:]))
    cpu = time.process_time() - begun
    return {
        "n": n, "seconds": time.perf_counter() - start, "fit_seconds": fitted, "cpu_seconds": cpu, "evaluations": count,
        "per_object": count / n, "share_of_n2": count / n**2, "accuracy": hit,
        "rank": model.approximation_.factorization.rank, "correction": model.correction_,
    }  # fmt: skip


# -- given matrices ----------------------------------------------------------------------------------------------------


def _matrices(table: Table, quick: bool) -> Table:
    for name in tqdm(SETS, desc="matrices"):
        data = krein.datasets.load(name)
        S = 0.5 * (data.X + data.X.T)
        for repeat in range(1 if quick else 10):
            for how in CORRECTIONS[1:]:
                if not table.has(data=name, correction=how, repeat=repeat):
                    table.add([{"data": name, "correction": how, "repeat": repeat} | _folds(S, data.y, how, repeat)])
    return table


def _folds(S: Any, y: Any, how: str, repeat: int) -> dict[str, Any]:
    """Ten folds: both machines on the same rows, with the labels and decision values they give to the rest."""
    ours, theirs, gap, labels = [], [], 0.0, 0
    for train, test in RepeatedStratifiedKFold(n_splits=10, n_repeats=1, random_state=repeat).split(S, y):
        K, rows = S[np.ix_(train, train)], S[np.ix_(test, train)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", krein.KreinWarning)
            model = krein.SVC(kernel="precomputed", correction=how, decision_function_shape="ovo", tol=1e-10)
            model.fit(K, y[train])
        values = model.decision_function(rows).reshape(len(test), -1)
        spectrum = dense.spectrum(K)
        expected = dense.decide(spectrum, rows, y[train], (1.0,), how, tol=1e-10)[0].reshape(len(test), -1)
        found, wanted = model.predict(rows), dense.winners(expected, np.unique(y))
        gap = max(gap, float(np.abs(values - expected).max() / max(1.0, np.abs(expected).max())))
        labels += int((found != wanted).sum())
        ours.append(float(np.mean(found == y[test])))
        theirs.append(float(np.mean(wanted == y[test])))
    return {
        "accuracy": float(np.mean(ours)), "dense_accuracy": float(np.mean(theirs)), "largest_difference": gap,
        "differing_labels": labels,
    }  # fmt: skip


# -- a file ------------------------------------------------------------------------------------------------------------


def _file(table: Table, quick: bool) -> Table:
    n = 3000 if quick else 40_000
    if table.has(n=n):
        return table
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "similarities.npy"
        in_fresh_process(write_matrix, path, n)
        for step in ("check all", "svc"):
            row = in_fresh_process(file_run, path, n, step)
            table.add([row | {"n": n, "file_bytes": path.stat().st_size, "step": step}])
    return table


def _latent(n: int) -> tuple[Any, Any]:
    data = krein.datasets.mixture(n, 8, 30, n_classes=3, spread=0.4, dtype="float32", random_state=0)
    return data.X, data.y


def write_matrix(path: Path, n: int, strip: int = 1000) -> None:
    """The difference of two Gaussians, so indefinite, in strips: never more than one in memory."""
    X, _ = _latent(n)
    near, far = krein.RBF(gamma=0.2), krein.RBF(gamma=0.05)
    S = np.lib.format.open_memmap(path, "w+", np.float32, (n, n))
    for start in tqdm(range(0, n, strip), desc="writing"):
        rows = X[start : start + strip]
        S[start : start + strip] = 1.5 * near(rows, X) - 0.5 * far(rows, X)
    S.flush()


def file_run(path: Path, n: int, step: str) -> dict[str, Any]:
    _, y = _latent(n)
    before, start = resident_bytes(), time.perf_counter()
    warnings.simplefilter("ignore", krein.KreinWarning)
    if step == "check all":
        krein.Precomputed(path, check="all")
        value = 1.0
    else:
        order = np.random.default_rng(0).permutation(n)
        train, test = order[: -n // 10], order[-n // 10 :]
        model = krein.SVC(kernel=krein.Precomputed(path), random_state=0).fit(train, y[train])
        value = float(model.score(test, y[test]))
    took = time.perf_counter() - start
    return {"seconds": took, "peak_bytes": peak_bytes(), "before_bytes": before, "value": value}


# -- in words ----------------------------------------------------------------------------------------------------------


def summarise(tables: dict[str, Table]) -> str:
    lines = ["# Similarities without vectors", "", "## peptide_amp, normalised edit similarity, mean of the folds", ""]
    lines += [
        "| route | correction | C | accuracy | evaluations / n² | seconds a fold |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    groups: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for r in tables["peptide"].rows:
        groups[r["route"], r["correction"], r["C"]].append(r)
    for (route, how, C), rows in groups.items():
        hit, share, took = (_mean(rows, name) for name in ("accuracy", "share_of_n2", "seconds"))
        lines.append(f"| {route} | {how} | {C} | {100 * hit:.2f} | {share:.3f} | {took:.1f} |")
    lines += ["", "## Given matrices, 10 x 10 folds, C = 1", ""]
    lines += ["| data | correction | accuracy | dense | largest difference of decision values | labels that differ |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: |"]
    groups = defaultdict(list)
    for r in tables["matrices"].rows:
        groups[r["data"], r["correction"]].append(r)
    for (data, how), rows in groups.items():
        worst, labels = max(float(r["largest_difference"]) for r in rows), sum(int(r["differing_labels"]) for r in rows)
        ours, theirs = (100 * _mean(rows, name) for name in ("accuracy", "dense_accuracy"))
        lines.append(f"| {data} | {how} | {ours:.2f} | {theirs:.2f} | {worst:.1e} | {labels} |")
    lines += ["", "## Families of mutated strings", ""]
    lines += [
        "| n | seconds | of the processor | evaluations per object | of n² | accuracy | rank |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    rows = tables["families"].rows
    for r in rows:
        wall, cpu, each, share, hit = (
            float(r[name]) for name in ("seconds", "cpu_seconds", "per_object", "share_of_n2", "accuracy")
        )
        lines.append(
            f"| {r['n']} | {wall:.1f} | {cpu:.1f} | {each:.0f} | {share:.4f} | {100 * hit:.2f} | {r['rank']} |"
        )
    if len(rows) > 1:
        x = np.log([float(r["n"]) for r in rows])
        for name in ("seconds", "cpu_seconds", "evaluations"):
            slope = np.polyfit(x, np.log([float(r[name]) for r in rows]), 1)[0]
            lines.append(f"\nExponent of n, {name}: {slope:.2f}.")
    lines += ["", "## A matrix in a file", ""]
    lines += ["| n | file, GB | step | seconds | peak memory of the process, GB | accuracy |"]
    lines += ["| ---: | ---: | --- | ---: | ---: | ---: |"]
    for r in tables["file"].rows:
        value = f"{100 * float(r['value']):.2f}" if r["step"] == "svc" else ""
        size, peak = float(r["file_bytes"]) / 1e9, float(r["peak_bytes"]) / 1e9
        lines.append(f"| {r['n']} | {size:.2f} | {r['step']} | {float(r['seconds']):.1f} | {peak:.2f} | {value} |")
    return "\n".join(lines) + "\n"


def _mean(rows: list[dict[str, str]], name: str) -> float:
    return float(np.mean([float(r[name]) for r in rows]))
