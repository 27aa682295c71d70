"""Growth of a fit in n, on generated families of strings; and a matrix in a file that is larger than memory may be.

Families of strings that are mutated so much that neither all nor none are told apart: SVC as it comes, in processor
time, as a machine is rarely idle. The file holds 40,000 x 40,000 float32 similarities; each step on it runs in a
process of its own, whose peak memory is what counts.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import krein
from benchmarks.measure import peak_bytes, resident_bytes
from benchmarks.runner import Task, in_fresh_process

FAMILIES = (
    "n", "mutated", "length", "cpu_seconds", "fit_cpu_seconds", "seconds", "fit_evaluations", "predict_evaluations",
    "per_object", "share_of_n2", "accuracy", "rank", "correction",
)  # fmt: skip
FILE = ("n", "file_bytes", "step", "seconds", "cpu_seconds", "peak_bytes", "before_bytes", "value")
SIZES = (7500, 15_000, 30_000, 60_000)
MUTATED, LENGTH, N_TEST = 0.6, 40, 2000


def family_tasks(table: str, quick: bool) -> list[Task]:
    return [Task({"n": n}, family_run, (n,), table, fresh=True) for n in ((2500, 5000) if quick else SIZES)]


def file_tasks(table: str, quick: bool) -> list[Task]:
    n = 3000 if quick else 40_000
    return [Task({"n": n}, file, (n,), table)]


def family_run(n: int) -> list[dict[str, Any]]:
    data = krein.datasets.families(
        n + N_TEST, n_families=100, n_classes=10, length=LENGTH, mutated=MUTATED, random_state=0
    )
    model = krein.SVC(kernel=krein.EditSimilarity(n_jobs=1), random_state=0)
    warnings.simplefilter("ignore", krein.KreinWarning)
    start, begun = time.perf_counter(), time.process_time()
    with krein.counting() as spent:
        model.fit(data.X[:n], data.y[:n])
        fitted, count = time.process_time() - begun, spent.n_evaluations
        hit = float(model.score(data.X[n:], data.y[n:]))
    return [{
        "mutated": MUTATED, "length": LENGTH, "cpu_seconds": time.process_time() - begun,
        "fit_cpu_seconds": fitted, "seconds": time.perf_counter() - start, "fit_evaluations": count,
        "predict_evaluations": spent.n_evaluations - count, "per_object": count / n, "share_of_n2": count / n**2,
        "accuracy": hit, "rank": model.approximation_.factorization.rank, "correction": model.correction_,
    }]  # fmt: skip


def file(n: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "similarities.npy"
        in_fresh_process(write_matrix, path, n)
        steps = ("check all", "svc")
        rows = [in_fresh_process(file_run, path, n, step) for step in steps]
        size = path.stat().st_size
    return [row | {"file_bytes": size, "step": step} for row, step in zip(rows, steps, strict=True)]


def _latent(n: int) -> tuple[Any, Any]:
    data = krein.datasets.mixture(n, 8, 30, n_classes=3, spread=0.4, dtype="float32", random_state=0)
    return data.X, data.y


def write_matrix(path: Path, n: int, strip: int = 1000) -> None:
    """The difference of two Gaussians, so indefinite, in strips: never more than one in memory."""
    X = _latent(n)[0].astype(np.float64)  # in single precision strips would not be symmetric to rounding
    near, far = krein.RBF(gamma=0.2), krein.RBF(gamma=0.05)
    S = np.lib.format.open_memmap(path, "w+", np.float32, (n, n))
    for start in range(0, n, strip):
        rows = X[start : start + strip]
        S[start : start + strip] = 1.5 * near(rows, X) - 0.5 * far(rows, X)
    S.flush()


def file_run(path: Path, n: int, step: str) -> dict[str, Any]:
    _, y = _latent(n)
    before, start, begun = resident_bytes(), time.perf_counter(), time.process_time()
    warnings.simplefilter("ignore", krein.KreinWarning)
    if step == "check all":
        krein.Precomputed(path, check="all")
        value = 1.0
    else:
        order = np.random.default_rng(0).permutation(n)
        train, test = order[: -n // 10], order[-n // 10 :]
        model = krein.SVC(kernel=krein.Precomputed(path), random_state=0).fit(train, y[train])
        value = float(model.score(test, y[test]))
    return {
        "seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - begun, "peak_bytes": peak_bytes(),
        "before_bytes": before, "value": value,
    }  # fmt: skip


def families_summary(rows: list[dict[str, str]]) -> list[str]:
    lines = [
        f"## Generated families of strings, {N_TEST} more of them classified",
        "",
        f"100 families in 10 classes, some {LENGTH} letters, each mutated with probability {MUTATED}.",
        "",
        "| n | CPU seconds | similarities per object | % of n² | accuracy, % | rank |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in rows:
        took, each, share, hit = (float(r[k]) for k in ("cpu_seconds", "per_object", "share_of_n2", "accuracy"))
        lines.append(f"| {r['n']} | {took:.1f} | {each:.0f} | {100 * share:.3f} | {100 * hit:.2f} | {r['rank']} |")
    if len(rows) > 1:
        x = np.log([float(r["n"]) for r in rows])
        for name in ("cpu_seconds", "fit_evaluations"):
            slope = np.polyfit(x, np.log([float(r[name]) for r in rows]), 1)[0]
            lines.append(f"\nExponent of n, {name}: {slope:.2f}.")
    return lines


def file_summary(rows: list[dict[str, str]]) -> list[str]:
    lines = [
        "## A matrix in a file, float32",
        "",
        "| n | file, GB | step | CPU seconds | peak memory of the process, GB | accuracy, % |",
        "| ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for r in rows:
        value = f"{100 * float(r['value']):.2f}" if r["step"] == "svc" else ""
        size, peak, took = float(r["file_bytes"]) / 1e9, float(r["peak_bytes"]) / 1e9, float(r["cpu_seconds"])
        lines.append(f"| {r['n']} | {size:.2f} | {r['step']} | {took:.1f} | {peak:.2f} | {value} |")
    return lines
