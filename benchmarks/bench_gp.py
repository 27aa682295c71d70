"""Gaussian processes on kin40k, protein and covtype's elevation beside exact and sparse ones.

RMSE, negative log predictive density and the share of targets within the 95 % interval. 90 % of the rows to learn from
(of covtype 100,000), standardised; a Gaussian kernel with a length scale per column, an amplitude and noise, all
learned. Beside krein, whose blocks are left open: scikit-learn's exact process on 5000 rows (parameters learned on
1000 of them, and once more with krein's), and gpytorch's SGPR and SVGP, in single precision, with as many inducing
points as take the memory krein takes: what counts is the peak of a process of its own above what it had before.
gp.csv: one row per data set, split and method. gpytorch runs where the environment variable KREIN_GPYTORCH names a
Python that has it, beside krein, so seconds are those of the processor.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor as Exact
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import krein
from benchmarks.measure import peak_bytes, resident_bytes
from benchmarks.runner import Request, Task, in_fresh_process
from krein.datasets import load
from krein.estimators.gaussian_process.regressor import GaussianProcessRegressor

COLUMNS = (
    "data", "seed", "method", "n", "n_blocks", "rank", "nbytes", "peak_bytes", "rmse", "nlpd", "coverage",
    "evidence", "seconds", "kernel",
)  # fmt: skip
TABLES = {"gp": COLUMNS}
DATA, SEEDS = ("kin40k", "protein", "elevation"), (1,)
EXACT_ROWS, LEARNED_ROWS = 5000, 1000
# Rows of covtype to learn its elevation from.
ELEVATION_ROWS = 100_000
# The inducing points of a method, and its steps of Adam on all rows, or epochs of batches.
PEERS = {"sgpr": (352, 60), "svgp": (352, 10)}
# A standard normal variable is within WITHIN of 0 with probability 0.95.
WITHIN = 1.959964
SCORES = {"rmse": "RMSE", "nlpd": "NLPD"}


def tasks(request: Request) -> list[Task]:
    return [
        Task({"data": name, "seed": seed}, compared, (name, seed, request.quick)) for seed in SEEDS for name in DATA
    ]


def split(name: str, seed: int, quick: bool) -> tuple[np.ndarray, ...]:
    """Rows and targets to learn from and to predict, in units of the former's standard deviations."""
    held = load("covtype" if name == "elevation" else name)
    X, y = np.asarray(held.X), np.asarray(held.y, dtype=np.float64).ravel()
    most = None
    if name == "elevation":  # the first of ten columns of numbers; forty more mark soils and areas
        X, y, most = X[:, 1:10], X[:, 0].astype(np.float64), ELEVATION_ROWS * 10 // 9
    order = np.random.default_rng(seed).permutation(len(X))[: 3000 if quick else most]
    X, y, order = X[order].astype(np.float64), y[order], np.arange(len(order))
    new, old = order[: len(order) // 10], order[len(order) // 10 :]
    X = (X - X[old].mean(0)) / X[old].std(0)
    y = (y - y[old].mean()) / y[old].std()
    return X[old], y[old], X[new], y[new]


def compared(name: str, seed: int, quick: bool) -> Iterator[dict[str, Any]]:
    data = split(name, seed, quick)
    n, d = data[0].shape
    start = ConstantKernel(1.0) * RBF(np.full(d, 2.0)) + WhiteKernel(0.1)
    row, kernel = in_fresh_process(fitted, name, seed, quick, start)
    yield row
    for learned, given in (("own", None), ("krein's", kernel)):
        found = in_fresh_process(exact, name, seed, quick, given or start, given is None)
        yield {"method": f"scikit-learn exact, {learned} parameters"} | found
    for method, (points, steps) in PEERS.items():
        points, steps = (64, 3) if quick else (points, steps)
        if scored := gpytorch(method, data, points, steps):
            nbytes = 4 * n * points
            yield scored | {
                "method": f"gpytorch {method.upper()}, {points} points", "n": n, "rank": points, "nbytes": nbytes,
            }  # fmt: skip


def fitted(name: str, seed: int, quick: bool, kernel: Any) -> tuple[dict[str, Any], Any]:
    """Krein's row, and the kernel it learned."""
    X, y, X_new, y_new = split(name, seed, quick)
    X, X_new = X.astype(np.float32), X_new.astype(np.float32)
    before, begun = resident_bytes(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length scale at its bound
        model = GaussianProcessRegressor(kernel, random_state=0).fit(X, y)
    taken, peak = time.process_time() - begun, peak_bytes() - before
    row = scores(*model.predict(X_new, return_std=True), y_new) | {
        "method": "krein", "n": len(X), "peak_bytes": peak, "seconds": taken,
        "evidence": model.log_marginal_likelihood_value_ / len(X), "kernel": repr(model.kernel_),
    }  # fmt: skip
    if type(model.route_).__name__ == "Exact":  # on no more rows than the policy has
        m = min(len(X), krein.Policy().process_rows)
        return row | {"n_blocks": 1, "rank": m, "nbytes": 8 * m * m}, model.kernel_
    a = model.approximation_
    row |= {
        "n_blocks": a.n_blocks, "rank": max(a.factorization.ranks), "nbytes": a.factorization.nbytes + a.nbytes,
    }  # fmt: skip
    return row, model.kernel_


def exact(name: str, seed: int, quick: bool, kernel: Any, learn: bool) -> dict[str, Any]:
    X, y, X_new, y_new = split(name, seed, quick)
    m, before, begun = min(EXACT_ROWS, len(X)), resident_bytes(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if learn:
            kernel = Exact(kernel).fit(X[:LEARNED_ROWS], y[:LEARNED_ROWS]).kernel_
        model = Exact(kernel, optimizer=None).fit(X[:m], y[:m])
    taken, peak = time.process_time() - begun, peak_bytes() - before
    return scores(*model.predict(X_new, return_std=True), y_new) | {
        "n": m, "nbytes": 8 * m * m, "evidence": model.log_marginal_likelihood_value_ / m, "seconds": taken,
        "peak_bytes": peak, "kernel": repr(kernel),
    }  # fmt: skip


def gpytorch(method: str, data: tuple[np.ndarray, ...], points: int, steps: int) -> dict[str, Any]:
    """The scores gpytorch's process prints; none where there is no gpytorch."""
    if not (python := os.environ.get("KREIN_GPYTORCH")):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, **dict(zip(("X", "y", "X_new", "y_new"), data, strict=True)))
        script = Path(__file__).with_name("peer_gpytorch.py")
        done = subprocess.run(
            [python, script, method, path, str(points), str(steps)], capture_output=True, text=True, check=True
        )
    found = json.loads(done.stdout.splitlines()[-1])
    told = scores(np.array(found["mean"]), np.array(found["std"]), data[3])
    return told | {name: found[name] for name in ("seconds", "peak_bytes")}


def scores(mean: Any, std: Any, y: Any) -> dict[str, float]:
    """The kernel's own noise is in the standard deviation, so this is the density of the targets."""
    density = 0.5 * (np.log(2.0 * np.pi * std**2) + (y - mean) ** 2 / std**2)
    within = np.abs(y - mean) <= WITHIN * std
    return {
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))), "nlpd": float(np.mean(density)),
        "coverage": float(np.mean(within)),
    }  # fmt: skip


def report(rows: list[dict[str, str]], request: Request) -> str:
    splits = len({r["seed"] for r in rows})
    lines = [
        "# Gaussian processes",
        "",
        "Root mean squared error, negative log predictive density and share of the targets within the 95 % interval,",
        f"on the tenth of the rows that was held out, of standardised targets; means over {splits} split(s). krein's",
        "blocks and ranks are its own choice, and so is an exact process on fewer rows. MB: krein's factorization with",
        "its maps, or the matrix of an exact process; n x m numbers of 4 bytes for m inducing points. Peak: what",
        "learning took, measured, over what was there before. Adam, inducing points learned too: SGPR",
        f"{PEERS['sgpr'][1]} steps on all rows, SVGP {PEERS['svgp'][1]} epochs of batches. Whether more of them would",
        "serve was not tried.",
        "",
        *(["**A quick run: 3000 rows.**", ""] * request.quick),
        "| data | method | rows | blocks | rank | MB | peak MB | RMSE | NLPD | within 95 % | CPU seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    verdicts = []
    for name in dict.fromkeys(r["data"] for r in rows):
        means = {
            method: _mean([r for r in rows if (r["data"], r["method"]) == (name, method)])
            for method in dict.fromkeys(r["method"] for r in rows if r["data"] == name)
        }
        for method, m in means.items():
            lines.append(
                f"| {name} | {method} | {m['n']:.0f} | {_whole(m['n_blocks'])} | {_whole(m['rank'])} "
                f"| {m['nbytes'] / 1e6:.0f} | {m['peak_bytes'] / 1e6:.0f} | {m['rmse']:.4f} | {m['nlpd']:.4f} "
                f"| {100 * m['coverage']:.1f} % | {m['seconds']:.0f} |"
            )
        mine = means.pop("krein")
        held = "yes" if 0.93 <= mine["coverage"] <= 0.97 else "NO"
        verdicts.append(
            f"- {name}: 93 to 97 % within the 95 % interval: {100 * mine['coverage']:.1f} %. Holds: {held}."
        )
        for method, m in means.items():
            told = [f"{label} {mine[s]:.4f} against {m[s]:.4f}" for s, label in SCORES.items()]
            holds = "yes" if all(mine[s] < m[s] for s in SCORES) else "NO"
            if "gpytorch" in method:
                for cost, unit, size in (("peak_bytes", "MB", 1e6), ("seconds", "s", 1.0)):
                    told.append(f"{mine[cost] / size:.0f} {unit} against {m[cost] / size:.0f} {unit}")
                    holds += "" if mine[cost] <= m[cost] else f", but with MORE {unit}"
            verdicts.append(f"- {name}, {method}: {'; '.join(told)}. Wanted: ahead. Holds: {holds}.")
    return "\n".join([*lines, "", *verdicts]) + "\n"


def _mean(rows: list[dict[str, str]]) -> dict[str, float]:
    names = ("n", "n_blocks", "rank", "nbytes", "peak_bytes", "seconds", "coverage", *SCORES)
    return {name: float(np.mean([float(r[name] or "nan") for r in rows])) for name in names}


def _whole(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.0f}"
