"""The size curve: eight machines on 250 to 100,000 rows, beside scikit-learn's, Nystroem, and fewer rows exactly.

curve.csv: one row per machine, data set, contender and n, each measured in a process of its own (`curve_contender`), by
turns and in ascending n. curve.md holds the issue's four claims against the table (`curve_summary`), curve.png draws it
(`curve_picture`). Defaults on both sides, except: kernel="rbf" where it would be linear; the process has
ConstantKernel() * RBF() + WhiteKernel(); KernelPCA has 10 components; the cut has gamma = 1 / (d var X) and the number
of classes; random_state=0.

Contenders
- krein
- scikit-learn: its class, while a fit ends within 300 processor seconds and 16 GB. KernelRidgeClassifier has none:
  KernelRidge on codes of -1 and 1 with GridSearchCV over the same alphas, 5 folds, does the same there.
- Nystroem: 1000 features and LinearSVC, LinearSVR, SGDOneClassSVM, Ridge (the same alpha), RidgeClassifierCV (the same
  alphas), BayesianRidge, PCA, or k-means on the leading singular vectors of the normalised features; from 2000 rows.
- subset: scikit-learn's class on the first rows, as many as it fits in the time krein takes for all; above 2001 rows.

Score on 4000 test rows: accuracy; R²; the area under the ROC curve between test rows and strange ones made from them
(OneClassSVM: columns shuffled, digits transposed); accuracy of 5 neighbours by the components of the first 5000
training rows (KernelPCA); the adjusted Rand index of the first 5000 rows clustered (SpectralClustering).
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import fetch_openml

from benchmarks.curve_contender import TASKS, TOO_LONG
from benchmarks.curve_picture import draw
from benchmarks.curve_summary import summarise
from benchmarks.runner import Request, Task, read_csv
from krein.datasets import load
from krein.datasets import mixture as generated

COLUMNS = (
    "machine", "data", "contender", "n", "rows", "features", "outcome", "fit_seconds", "first_seconds", "fits", "score",
    "standard_error", "same", "many_seconds", "row_seconds", "peak_bytes", "base_bytes", "file_bytes",
)  # fmt: skip
TABLES = {"curve": COLUMNS}
KEY = ("machine", "data", "contender", "n")
SIZES = (
    250, 500, 1000, 2000, 2001, 3000, 5000, 8000, 8001, 12_000, 12_001, 20_000, 20_001, 50_000, 50_001, 100_000,
)  # fmt: skip
QUICK_SIZES = (250, 500)
FEW = {  # the data set with few features; mnist is the one with many
    "SVC": "covtype", "SVR": "elevation", "OneClassSVM": "covtype", "KernelRidge": "kin40k",
    "KernelRidgeClassifier": "covtype", "GaussianProcessRegressor": "kin40k", "KernelPCA": "covtype",
    "SpectralClustering": "mixture",
}  # fmt: skip
CONTENDERS = ("scikit-learn", "krein", "Nystroem", "subset")
# The smallest number of rows for these contenders.
FIRST = {"Nystroem": 2000, "subset": 2002}
# A fit is ended after so many processor seconds.
PATIENCE = {"scikit-learn": 300.0, "subset": 900.0, "krein": 3600.0, "Nystroem": 3600.0}
# scikit-learn's time is assumed to grow with a power of n between these two.
GROWTH = (2.0, 3.0)
# The outcomes that end scikit-learn's curve; a crash does not.
TIME, SPACE, BEYOND = "over the time", "out of memory", "beyond reach"
OUTSIDE = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGKILL,
)  # sent by someone, or by a system out of memory
ATTEMPTS = 2
TEST = 4000
# A subset has at least SMALLEST rows.
SMALLEST = 50


def tasks(request: Request) -> list[Task]:
    """The cells of the options: ``only`` these machines and ``contenders``, on ``least`` to ``most`` rows."""
    only, contenders = (request.options.get(name, ()) for name in ("only", "contenders"))
    least, most = request.options.get("least", 0), request.options.get("most", SIZES[-1])
    for asked, known in ((only, FEW), (contenders, CONTENDERS)):
        if unknown := set(asked) - set(known):
            raise SystemExit(f"{', '.join(sorted(unknown))}: not in the curve; it knows {', '.join(known)}.")
    return [
        Task(cell, found, (cell, most, request.output)) for cell in cells(request.quick)
        if cell["machine"] in (only or FEW) and least <= cell["n"] <= most
        and cell["contender"] in (contenders or CONTENDERS)
    ]  # fmt: skip


def report(rows: list[dict[str, str]], request: Request) -> str:
    order = (list(FEW), list(dict.fromkeys([*FEW.values(), "mnist", "mnist ink"])), list(CONTENDERS))

    def place(row: dict[str, str]) -> tuple[int, ...]:
        return (*(names.index(row[c]) for names, c in zip(order, KEY, strict=False)), int(row["n"]))

    rows = sorted(rows, key=place)
    draw(rows, request.output / "curve.png")
    return summarise(rows)


def cells(quick: bool) -> Iterator[dict[str, Any]]:
    """Small ones first, contenders by turns."""
    for n in QUICK_SIZES if quick else SIZES:
        for machine, few in FEW.items():
            for data in (few, "mnist ink" if TASKS[machine] == "numbers" else "mnist"):
                for contender in CONTENDERS:
                    if n <= SETS[kind(data, machine)].rows and n >= FIRST.get(contender, 0):
                        yield {"machine": machine, "data": data, "contender": contender, "n": n}


# -- one cell ----------------------------------------------------------------------------------------------------------


@lru_cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """A temporary folder for the rows of the data sets; it is removed when the process ends."""
    return tempfile.TemporaryDirectory()


def found(cell: dict[str, Any], most: int, output: Path) -> list[dict[str, Any]]:
    table = output / "curve.csv"
    return [measured(cell, read_csv(table) if table.exists() else [], most, output)]


def measured(cell: dict[str, Any], rows: list[dict[str, str]], most: int, out: Path) -> dict[str, Any]:
    """The figures of one contender, measured in a new process, or the reason why it is not measured."""
    machine, data, contender, n = (cell[c] for c in KEY)
    mine = {int(r["n"]): r for r in rows if (r["machine"], r["data"], r["contender"]) == (machine, data, contender)}
    exact = {r: s for r, s in times(rows, machine, data).items() if contender == "subset" or r < n}
    size = n
    if contender == "scikit-learn":
        if any(r["outcome"] in (TIME, SPACE, BEYOND) for m, r in mine.items() if m < n):
            return {"rows": n, "outcome": BEYOND}
        if exact and expected(exact, n) > 1.5 * PATIENCE[contender]:
            return {"rows": n, "outcome": BEYOND}
    if contender == "subset":
        ours = [r for r in rows if (r["machine"], r["data"], r["contender"]) == (machine, data, "krein")]
        spent = [float(r["fit_seconds"]) for r in ours if int(r["n"]) == n and r["outcome"] == "done"]
        if not exact or not spent:
            return {"rows": 0, "outcome": "nothing to go by"}
        size = affordable(exact, spent[0])
        if size >= n:
            return {"rows": n, "outcome": "all rows"}
        for r in mine.values():
            if int(r["rows"]) == size and r["outcome"] == "done" and TASKS[machine] not in ("components", "clusters"):
                return {c: v for c, v in r.items() if c not in (*KEY, "run")}  # measured before, the same rows
    kept = out.parent / "build" / "curve" / f"{machine}-{data}-{n}.npy".replace(" ", "-")
    kept.parent.mkdir(parents=True, exist_ok=True)
    where, shape, classes = prepared(Path(folder().name), kind(data, machine), most)
    job = {
        "machine": machine, "contender": contender, "folder": str(where), "shape": shape, "n": n, "rows": size,
        "classes": classes, "seconds": PATIENCE[contender], "kept": str(kept.resolve()),
    }  # fmt: skip
    command = [sys.executable, "-m", "benchmarks.curve_contender", json.dumps(job)]
    for _ in range(ATTEMPTS):
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
        if -done.returncode not in OUTSIDE:
            break
    else:
        raise SystemExit(
            f"{machine}, {data}, {contender}, {n}: ended from outside {ATTEMPTS} times (signal {-done.returncode}). "
            "That says nothing of the machine and is not recorded; the same command goes on from here."
        )
    if done.returncode == 0:
        return {"rows": size, "outcome": "done"} | json.loads(done.stdout.splitlines()[-1])
    last = (done.stderr.strip().splitlines() or [f"ended by signal {-done.returncode}"])[-1]
    if done.returncode == TOO_LONG:
        last = TIME
    elif "MemoryError" in last:
        last = SPACE
    return {"rows": size, "outcome": last[:200]}


def times(rows: list[dict[str, str]], machine: str, data: str) -> dict[int, float]:
    """Seconds of scikit-learn's class by number of rows."""
    mine = [r for r in rows if (r["machine"], r["data"], r["contender"]) == (machine, data, "scikit-learn")]
    return {int(r["n"]): float(r["fit_seconds"]) for r in mine if r["outcome"] == "done"}


def expected(measured: dict[int, float], n: int) -> float:
    """Seconds for n rows, from the largest fit measured and the growth up to it."""
    largest = max(measured)
    return measured[largest] * (n / largest) ** growth(measured)


def growth(measured: dict[int, float]) -> float:
    """The power of n by which time grows, seen between the largest fit and one of at most half its size."""
    largest = max(measured)
    smaller = [m for m in measured if 2 * m <= largest]
    if not smaller:
        return GROWTH[1]
    seen = math.log(measured[largest] / measured[max(smaller)]) / math.log(largest / max(smaller))
    return min(max(seen, GROWTH[0]), GROWTH[1])


def affordable(measured: dict[int, float], seconds: float) -> int:
    """How many rows scikit-learn's class fits in that time, two digits of it: between fits measured, or beyond them."""
    sizes = sorted(measured)
    logs = np.log([measured[m] for m in sizes])
    if seconds >= measured[sizes[-1]]:
        m = sizes[-1] * (min(seconds, PATIENCE["scikit-learn"]) / measured[sizes[-1]]) ** (1.0 / growth(measured))
    else:
        m = np.exp(np.interp(np.log(seconds), np.maximum.accumulate(logs), np.log(sizes)))
    unit = 10 ** max(0, math.floor(math.log10(m)) - 1)
    return max(SMALLEST, int(m // unit) * unit)


# -- data --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Set:
    """Rows to learn from at most, how many classes or clusters, and what makes (X, y, X_test, y_test)."""

    rows: int
    classes: int
    make: Callable[[], tuple[np.ndarray, ...]]


def kind(data: str, machine: str) -> str:
    """The name of the set as this machine needs it: one without strange rows to find, or with."""
    return f"{data}, strange" if TASKS[machine] == "outliers" else data


def prepared(folder: Path, name: str, most: int) -> tuple[Path, list[int], int]:
    """Where the first ``most`` rows lie as float64, made when first needed; the shape of the test rows; the classes."""
    where = folder / name.replace(" ", "-").replace(",", "")
    if not where.exists():
        where.mkdir()
        X, y, X_test, y_test = SETS[name].make()
        for part, array in {"X": X[:most], "y": y[:most], "X_test": X_test, "y_test": y_test}.items():
            np.ascontiguousarray(array, dtype=np.float64).tofile(where / part)
        (where / "shape").write_text(json.dumps(X_test.shape), encoding="utf-8")
    return where, json.loads((where / "shape").read_text(encoding="utf-8")), SETS[name].classes


def standardised(X: np.ndarray, y: np.ndarray, n: int, numbers: bool) -> tuple[np.ndarray, ...]:
    """By the statistics of all rows to learn from, numbers to predict too."""
    order = np.random.default_rng(0).permutation(len(X))[: TEST + n]
    X, y = X[order].astype(np.float64), y[order].astype(np.float64)
    spread = X[TEST:].std(0)
    X = (X - X[TEST:].mean(0)) / np.where(spread > 0.0, spread, 1.0)
    y = (y - y[TEST:].mean()) / y[TEST:].std() if numbers else y
    return X[TEST:], y[TEST:], X[:TEST], y[:TEST]


def covtype() -> tuple[np.ndarray, ...]:
    """Class 2 against the others, by the ten columns that are numbers."""
    held = load("covtype")
    return standardised(held.X[:, :10], held.y == 2, SETS["covtype"].rows, numbers=False)


def elevation() -> tuple[np.ndarray, ...]:
    """covtype's first column from the other 53."""
    held = load("covtype")
    return standardised(held.X[:, 1:], held.X[:, 0], SETS["elevation"].rows, numbers=True)


def kin40k() -> tuple[np.ndarray, ...]:
    held = load("kin40k")
    return standardised(held.X, held.y.ravel(), SETS["kin40k"].rows, numbers=True)


def mixture() -> tuple[np.ndarray, ...]:
    """Eight Gaussian clusters in ten dimensions, which overlap a little."""
    n = SETS["mixture"].rows
    held = generated(n + TEST, n_features=10, n_clusters=SETS["mixture"].classes, spread=0.6, random_state=0)
    return standardised(held.X, held.y, n, numbers=False)


def digits() -> tuple[np.ndarray, ...]:
    """MNIST's ink from 0 to 1: 60,000 to learn from, in random order, and 4000 of the others."""
    path = Path(os.environ.get("KREIN_DATA", "")) / "large" / "mnist.npz"
    if path.is_file():
        with np.load(path) as held:
            X, y = held["X"], held["y"]
    else:
        X, y = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
    rng, n = np.random.default_rng(0), SETS["mnist"].rows
    old, new = rng.permutation(n), n + rng.permutation(len(X) - n)[:TEST]
    X, y = np.asarray(X, dtype=np.float32), np.asarray(y, dtype=np.float64)
    return X[old] / 255.0, y[old], X[new] / 255.0, y[new]


def ink() -> tuple[np.ndarray, ...]:
    """The mean ink of a digit's lower half from the 392 pixels of its upper half."""
    X, _, X_new, _ = digits()
    half = X.shape[1] // 2
    y, y_new = X[:, half:].mean(1), X_new[:, half:].mean(1)
    return X[:, :half], (y - y.mean()) / y.std(), X_new[:, :half], (y_new - y.mean()) / y.std()


def strange(name: str) -> tuple[np.ndarray, ...]:
    """Half the test rows as they are (1), half made strange (0): digits transposed, other columns shuffled."""
    X, y, X_new, _ = SETS[name].make()
    known, other = X_new[: TEST // 2], X_new[TEST // 2 :]
    if name == "mnist":
        other = other.reshape(-1, 28, 28).transpose(0, 2, 1).reshape(other.shape)
    else:
        other = np.random.default_rng(1).permuted(other, axis=0)
    return X, y, np.vstack([known, other]), np.repeat([1.0, 0.0], [len(known), len(other)])


SETS = {
    "covtype": Set(100_000, 2, covtype), "elevation": Set(100_000, 1, elevation), "kin40k": Set(36_000, 1, kin40k),
    "mixture": Set(100_000, 8, mixture), "mnist": Set(60_000, 10, digits), "mnist ink": Set(60_000, 1, ink),
    "covtype, strange": Set(100_000, 1, lambda: strange("covtype")),
    "mnist, strange": Set(60_000, 1, lambda: strange("mnist")),
}  # fmt: skip
