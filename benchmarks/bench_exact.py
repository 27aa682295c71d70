"""Exact SVCs: krein's beside scikit-learn-intelex's, each in a process of its own, one after the other.

exact.csv: one row per data set, number of rows and contender. scikit-learn-intelex runs where the environment variable
KREIN_INTELEX names a Python that has it; scikit-learn's own SVC takes its place up to SMALL rows. KREIN_DATA has to
hold MNIST. Rows are float32, as the large sets are stored; MNIST is scaled to [0, 1], covtype standardised. "letters"
and "shuttle" are generated, of the shape of the two UCI sets: 16 features and 26 classes; 9 features and 7 classes, of
which one has most rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner import Request, Task
from krein.datasets import load, mixture

COLUMNS = (
    "data", "n", "contender", "features", "classes", "C", "gamma", "fit_seconds", "predict_seconds", "row_seconds",
    "peak_bytes", "accuracy", "n_support", "same",
)  # fmt: skip
TABLES = {"exact": COLUMNS}
# C and gamma of each set, chosen by others before (gamma of the generated sets: 1 / features).
SETTINGS = {
    "mnist odd/even": (10.0, 0.02), "mnist": (10.0, 0.02), "covtype binary": (10.0, 0.1), "covtype": (10.0, 0.1),
    "letters": (10.0, 1 / 16), "shuttle": (10.0, 1 / 9),
}  # fmt: skip
CELLS = (
    ("covtype binary", 20_000), ("mnist odd/even", 20_000), ("letters", 16_000), ("covtype", 20_000),
    ("mnist", 20_000), ("shuttle", 50_000), ("covtype binary", 50_000), ("mnist odd/even", 60_000),
)  # fmt: skip
QUICK = (("letters", 600), ("shuttle", 600))
TEST = 10_000
# Up to so many rows scikit-learn's SVC is the peer where there is no scikit-learn-intelex.
SMALL = 2000
PEER = "scikit-learn-intelex"


def tasks(request: Request) -> list[Task]:
    peers = [PEER] if os.environ.get("KREIN_INTELEX") else []
    return [
        Task({"data": data, "n": n, "contender": contender}, measured, (data, n, contender))
        for data, n in (QUICK if request.quick else CELLS)
        for contender in (*(peers or (["scikit-learn"] if n <= SMALL else [])), "krein")
    ]


def measured(data: str, n: int, contender: str) -> list[dict[str, Any]]:
    """The figures of one contender; ``same`` is the share of test rows that it labels as the first one did."""
    X, y, X_new, y_new = rows_of(data, n)
    C, gamma = SETTINGS[data]
    folder = Path(kept().name) / f"{data.replace('/', ' ')} {n}"
    folder.mkdir(exist_ok=True)
    path = folder / "data.npz"
    np.savez(path, X=X, y=y, X_new=X_new, y_new=y_new)
    python = os.environ["KREIN_INTELEX"] if contender == PEER else sys.executable
    script = Path(__file__).with_name("exact_contender.py")
    command = [python, script, contender, path, str(C), str(gamma)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    predicted, first = np.load(folder / "predicted.npy"), folder / "first.npy"
    if not first.exists():
        np.save(first, predicted)
    path.unlink()
    found = {"features": X.shape[1], "classes": len(np.unique(y)), "C": C, "gamma": gamma}
    return [found | {"same": float(np.mean(np.load(first) == predicted))} | json.loads(done.stdout.splitlines()[-1])]


@lru_cache
def kept() -> tempfile.TemporaryDirectory[str]:
    """A folder for rows and predictions, removed when the process ends."""
    return tempfile.TemporaryDirectory()


def rows_of(data: str, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and labels, test rows and labels."""
    rng = np.random.default_rng(0)
    if data.startswith("mnist"):
        with np.load(Path(os.environ["KREIN_DATA"]) / "large" / "mnist.npz") as held:
            X, y = held["X"] / np.float32(255.0), held["y"].astype(np.int64)
        y = y % 2 if data.endswith("even") else y
        train, test = rng.permutation(60_000)[:n], np.arange(60_000, 60_000 + TEST)
    elif data.startswith("covtype"):
        given = load("covtype")
        X, y = given.X.astype(np.float64), given.y.astype(np.int64)
        y = (y == 2).astype(np.int64) if data.endswith("binary") else y
        order = rng.permutation(len(X))
        train, test = order[:n], order[-TEST:]
        spread = X[train].std(axis=0)
        X = (X - X[train].mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    else:
        features, clusters, classes = (16, 104, 26) if data == "letters" else (9, 35, 7)
        given = mixture(n + TEST, features, clusters, n_classes=classes, spread=0.6, random_state=0)
        X, y, train, test = given.X, given.y, np.arange(n), np.arange(n, n + TEST)
        if data == "shuttle":
            y = np.where(X[:, 0] < 1.0, 0, y)  # one class has most rows
    return X[train].astype(np.float32), y[train], X[test].astype(np.float32), y[test]


def report(rows: list[dict[str, str]], request: Request) -> str:
    lines = [
        "# Exact SVCs",
        "",
        "One thread, CPU seconds, each contender in a process of its own. Ratios are krein's figure over the peer's.",
        "",
        "| data | rows | features | classes | peer | fit s, krein / peer | ratio | predict many, ratio | "
        "one row, ratio | same labels | accuracy |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    by = {(r["data"], r["n"], r["contender"]): r for r in rows}
    ratios = []
    for r in rows:
        peer = next((by[k] for c in (PEER, "scikit-learn") if (k := (r["data"], r["n"], c)) in by), None)
        if r["contender"] != "krein" or peer is None:
            continue
        fit, many, one = (float(r[c]) / float(peer[c]) for c in ("fit_seconds", "predict_seconds", "row_seconds"))
        ratios.append(fit)
        lines.append(
            f"| {r['data']} | {r['n']} | {r['features']} | {r['classes']} | {peer['contender']} | "
            f"{float(r['fit_seconds']):.1f} / {float(peer['fit_seconds']):.1f} | {fit:.2f} | {many:.2f} | {one:.2f} | "
            f"{float(r['same']):.4f} | {100 * float(r['accuracy']):.2f} |"
        )
    if ratios:
        mean = float(np.exp(np.mean(np.log(ratios))))
        lines += ["", f"Fits: {mean:.2f} of the peer's time in the geometric mean, {max(ratios):.2f} at most."]
    return "\n".join(lines) + "\n"
