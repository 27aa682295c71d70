"""Gaussian processes on kin40k and protein: RMSE and negative log predictive density beside exact and sparse ones.

90 % of the rows to learn from, standardised; a Gaussian kernel with a length scale per column, an amplitude and noise.
Beside krein: scikit-learn's exact process on 5000 rows (parameters learned on 1500 of them, and once more with
krein's), and gpytorch's SGPR with as many inducing points as krein's bytes hold, in single precision. gp.csv: one row
per data set and method. gpytorch runs where the environment variable KREIN_GPYTORCH names a Python that has it.
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
from measure import in_fresh_process, peak_bytes, resident_bytes
from provenance import Table
from sklearn.gaussian_process import GaussianProcessRegressor as Exact
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from tqdm import tqdm

from krein.datasets import load
from krein.estimators.gp import GaussianProcessRegressor

COLUMNS = (
    "data",
    "method",
    "n",
    "n_blocks",
    "rank",
    "nbytes",
    "peak_bytes",
    "rmse",
    "nlpd",
    "evidence",
    "seconds",
    "kernel",
)
CASES = {"kin40k": ((20, 100), (100, 400)), "protein": ((40, 60), (150, 100))}  # (blocks, rank): small, large
EXACT_ROWS, LEARNED_ROWS, STEPS = 5000, 1500, 60
MOST_POINTS = 1000  # of SGPR: more take hours on a core


def run(out: Path, command: str, quick: bool, force: bool) -> None:
    table = Table(out / "gp.csv", COLUMNS, command, force)
    for name, sizes in tqdm(CASES.items(), desc="gp"):
        if not all(table.has(data=name, method=f"krein, {c} x {k}") for c, k in sizes):
            for row in compared(name, sizes[:1] if quick else sizes, quick):
                table.add([{"data": name} | row])
    (out / "gp.md").write_text(summarise(table, quick), encoding="utf-8")


def split(name: str, quick: bool) -> tuple[np.ndarray, ...]:
    """Rows and targets to learn from and to predict, in units of the former's standard deviations."""
    held = load(name)
    X, y = np.asarray(held.X, dtype=np.float64), np.asarray(held.y, dtype=np.float64).ravel()
    order = np.random.default_rng(0).permutation(len(X))[: 3000 if quick else None]
    new, old = order[: len(order) // 10], order[len(order) // 10 :]
    X = (X - X[old].mean(0)) / X[old].std(0)
    y = (y - y[old].mean()) / y[old].std()
    return X[old], y[old], X[new], y[new]


def compared(name: str, sizes: tuple[tuple[int, int], ...], quick: bool) -> Iterator[dict[str, Any]]:
    X, y, X_new, y_new = split(name, quick)
    start = ConstantKernel(1.0) * RBF(np.full(X.shape[1], 2.0)) + WhiteKernel(0.1)
    kernel: Any = start
    for n_blocks, rank in ((6, 20),) if quick else sizes:
        row, kernel = in_fresh_process(fitted, name, quick, kernel, n_blocks, rank)
        yield row
        nbytes = row["nbytes"]
        points = nbytes // (4 * len(X))
        if points <= MOST_POINTS and (peer := sgpr((X, y, X_new, y_new), points, 3 if quick else STEPS)):
            yield peer | {"method": f"gpytorch SGPR, {points} points", "n": len(X), "rank": points, "nbytes": nbytes}
    for learned, given in (("own parameters", None), ("krein's parameters", kernel)):
        yield {"method": f"scikit-learn exact, {learned}"} | exact(X, y, X_new, y_new, given or start, given is None)


def fitted(name: str, quick: bool, kernel: Any, n_blocks: int, rank: int) -> tuple[dict[str, Any], Any]:
    """Krein's row, and the kernel it learned."""
    X, y, X_new, y_new = split(name, quick)
    before, begun = resident_bytes(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a length scale at its bound; couplings that were dropped
        model = GaussianProcessRegressor(kernel, n_blocks=n_blocks, rank=rank, random_state=0)
        model.fit(X.astype(np.float32), y)
    taken, peak = time.process_time() - begun, peak_bytes() - before
    a = model.approximation_
    row = scores(*model.predict(X_new.astype(np.float32), return_std=True), y_new) | {
        "method": f"krein, {n_blocks} x {rank}", "n": len(X), "n_blocks": n_blocks, "rank": rank,
        "nbytes": a.factorization.nbytes + a.nbytes, "peak_bytes": peak, "seconds": taken,
        "evidence": model.log_marginal_likelihood_value_ / len(X), "kernel": repr(model.kernel_),
    }  # fmt: skip
    return row, model.kernel_


def exact(X: Any, y: Any, X_new: Any, y_new: Any, kernel: Any, learn: bool) -> dict[str, Any]:
    m, begun = min(EXACT_ROWS, len(X)), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if learn:
            kernel = Exact(kernel).fit(X[:LEARNED_ROWS], y[:LEARNED_ROWS]).kernel_
        model = Exact(kernel, optimizer=None).fit(X[:m], y[:m])
    taken = time.process_time() - begun
    return scores(*model.predict(X_new, return_std=True), y_new) | {
        "n": m, "nbytes": 8 * m * m, "evidence": model.log_marginal_likelihood_value_ / m, "seconds": taken,
        "kernel": repr(kernel),
    }  # fmt: skip


def sgpr(data: tuple[np.ndarray, ...], points: int, steps: int) -> dict[str, Any]:
    """The scores gpytorch's process prints; none where there is no gpytorch."""
    if not (python := os.environ.get("KREIN_GPYTORCH")):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, **dict(zip(("X", "y", "X_new", "y_new"), data, strict=True)))
        script = Path(__file__).with_name("peer_sgpr.py")
        done = subprocess.run(
            [python, script, path, str(points), str(steps)], capture_output=True, text=True, check=True
        )
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: found[name] for name in ("rmse", "nlpd", "seconds", "peak_bytes")}


def scores(mean: Any, std: Any, y: Any) -> dict[str, float]:
    """The kernel's own noise is in the standard deviation, so this is the density of the targets."""
    density = 0.5 * (np.log(2.0 * np.pi * std**2) + (y - mean) ** 2 / std**2)
    return {"rmse": float(np.sqrt(np.mean((y - mean) ** 2))), "nlpd": float(np.mean(density))}


def summarise(table: Table, quick: bool) -> str:
    lines = [
        "# Gaussian processes",
        "",
        "Root mean squared error and negative log predictive density on the tenth of the rows that was held out, of",
        "standardised targets. Bytes: krein's factorization with its maps; the matrix of the exact process; n x m",
        "numbers of 4 bytes for SGPR's m inducing points. Peak: what learning took over what the process began with.",
        "",
        *(["**A quick run: 3000 rows.**", ""] * quick),
        "| data | method | rows | MB | peak MB | RMSE | NLPD | CPU seconds |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in table.rows:
        peak = f"{float(r['peak_bytes']) / 1e6:.0f}" if r["peak_bytes"] else ""
        lines.append(
            f"| {r['data']} | {r['method']} | {r['n']} | {float(r['nbytes']) / 1e6:.0f} | {peak} "
            f"| {float(r['rmse']):.4f} | {float(r['nlpd']):.4f} | {float(r['seconds']):.0f} |"
        )
    lines.append("")
    for name in dict.fromkeys(r["data"] for r in table.rows):
        mine = [r for r in table.rows if r["data"] == name and r["method"].startswith("krein")]
        peers = [r for r in table.rows if r["data"] == name and not r["method"].startswith("krein")]
        for score in ("rmse", "nlpd"):
            best, peer = min(float(r[score]) for r in mine), min((float(r[score]) for r in peers), default=np.nan)
            lines.append(f"- {name}, {score}: krein {best:.4f}, the best of the others {peer:.4f} (wanted: ahead).")
    return "\n".join(lines) + "\n"
