"""Rows outside memory beside the same rows in memory: CPU seconds, memory above the interpreter, and the same answers.

outside.csv: one row per size, place and machine, each in a process of its own. Generated float32 rows of 60 clusters,
50 blocks of rank 32. "map" is a memory map, "parquet" a file with the target as a column, "dask" a local cluster of two
workers with one thread each, whose CPU counts too. ``limit`` is RLIMIT_DATA in gigabytes, 0 for none. ``apart`` is the
largest difference of decision values on new rows from those of the fit in memory, in their standard deviation.
"""

from __future__ import annotations

import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import krein
from benchmarks.runner import Request, Task, in_fresh_process

COLUMNS = (
    "rows", "features", "machine", "where", "limit", "cpu_seconds", "wall_seconds", "mebibytes", "base_mebibytes",
    "score", "apart", "n_iter", "gap",
)  # fmt: skip
TABLES = {"outside": COLUMNS}
# (rows, features, machine, [(where, limit in GB)]); the first place is what the others are compared with.
CASES = (
    (200_000, 20, "ridge", (("memory", 0), ("map", 0), ("parquet", 0), ("dask", 0))),
    (2_000_000, 20, "ridge", (("memory", 0), ("map", 0), ("parquet", 0), ("dask", 0))),
    (200_000, 20, "svc", (("memory", 0), ("map", 0), ("dask", 0))),
    (1_000_000, 50, "ridge", (("memory", 0), ("map", 2))),
    (10_000_000, 50, "ridge", (("map", 2),)),
    (1_000_000, 50, "svc", (("memory", 0), ("map", 2))),
    (10_000_000, 50, "svc", (("map", 2),)),
)
QUICK = (
    (20_000, 10, "ridge", (("memory", 0), ("map", 0), ("parquet", 0))),
    (20_000, 10, "svc", (("memory", 0), ("map", 0))),
)
N_NEW = 20_000
CHUNK = 200_000


def tasks(request: Request) -> list[Task]:
    return [
        Task({"rows": n, "features": d, "machine": machine}, compared, (n, d, machine, places))
        for n, d, machine, places in (QUICK if request.quick else CASES)
    ]


def compared(n: int, d: int, machine: str, places: tuple[tuple[str, float], ...]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), n, d)
        rows, reference = [], None
        for where, limit in places:
            found, values = in_fresh_process(fitted, folder, n, d, machine, where, limit)
            reference = values if reference is None and where == "memory" else reference
            far = None if reference is None else float(np.abs(values - reference).max() / reference.std())
            rows.append(found | {"where": where, "limit": limit, "apart": far})
        return rows


def generate(folder: Path, n: int, d: int) -> None:
    """Write X.npy and y.npy, and rows that no fit sees."""
    rng = np.random.default_rng(1)
    centres, w = 4.0 * rng.standard_normal((60, d)), rng.standard_normal((3, d)) / np.sqrt(d)

    def drawn(m: int) -> tuple[Any, Any]:
        X = (centres[rng.integers(0, 60, m)] + rng.standard_normal((m, d))).astype(np.float32)
        values = np.sin(X @ w[0]) + np.cos(2.0 * (X @ w[1])) * np.sin(X @ w[2])
        return X, (values + 0.2 * rng.standard_normal(m) > 0.0).astype(np.int8)

    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (n, d))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.int8, (n,))
    for start in range(0, n, CHUNK):
        part = slice(start, min(n, start + CHUNK))
        X[part], y[part] = drawn(part.stop - part.start)
    np.savez(folder / "new.npz", **dict(zip(("X", "y"), drawn(N_NEW), strict=True)))


def fitted(folder: str, n: int, d: int, machine: str, where: str, limit: float) -> tuple[dict[str, Any], Any]:
    """Fit in this process, watched; return what it took and decision values of new rows."""
    new = np.load(Path(folder) / "new.npz")
    if where == "parquet":
        _write_parquet(Path(folder))
    base, watch = _anonymous(), _Watch()
    if limit:
        resource.setrlimit(resource.RLIMIT_DATA, (int(limit * 1e9), int(limit * 1e9)))
    how: dict[str, Any] = {"n_blocks": 50, "rank": 32, "gamma": 1.0 / (8.0 * d), "random_state": 0}
    if limit:
        how["memory_limit"] = int(0.8e9 * limit)
    model = krein.SVC(tol=1e-3, **how) if machine == "svc" else krein.KernelRidgeClassifier(alpha=1.0, **how)
    X: Any = Path(folder) / "X.npy"
    y: Any = np.load(Path(folder) / "y.npy")
    if where == "memory":
        X = np.load(X)
    if where == "parquet":
        X, y = Path(folder) / "table.parquet", "target"
    start, cpu = time.perf_counter(), time.process_time()
    workers = 0.0
    if where == "dask":
        workers = _on_dask(model, X, y, n)
    else:
        model.fit(X, y)
    taken, spent = time.perf_counter() - start, time.process_time() - cpu + workers
    found = {
        "cpu_seconds": spent, "wall_seconds": taken, "mebibytes": watch.peak() - base, "base_mebibytes": base,
        "score": model.score(new["X"], new["y"]), "n_iter": int(np.max(model.n_iter_)),
        "gap": getattr(model, "gap_", None),
    }  # fmt: skip
    return found, model.decision_function(new["X"])


def _write_parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, y = np.load(folder / "X.npy", mmap_mode="r"), np.load(folder / "y.npy", mmap_mode="r")
    names = [f"x{j}" for j in range(X.shape[1])]
    writer = None
    for start in range(0, len(X), CHUNK):
        part = np.asarray(X[start : start + CHUNK])
        table = pa.table({name: part[:, j] for j, name in enumerate(names)} | {"target": y[start : start + CHUNK]})
        writer = writer or pq.ParquetWriter(folder / "table.parquet", table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _on_dask(model: Any, X: Path, y: Any, n: int) -> float:
    """Fit on a cluster of two workers and return their CPU seconds."""
    import dask.array as da
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.run(_import)
        before = client.run(time.process_time)
        rows = da.from_array(np.load(X, mmap_mode="r"), chunks=(-(-n // 4), -1))
        model.fit(rows, y)
        after = client.run(time.process_time)
        return float(sum(after[w] - before.get(w, 0.0) for w in after))


def _import() -> None:
    import krein.approximation.piecewise  # noqa: F401


def _anonymous() -> float:
    """Anonymous memory of this process, in MiB (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024.0
    return float("nan")


class _Watch:
    """The largest anonymous memory from now on, looked at twenty times a second."""

    def __init__(self) -> None:
        self._peak, self._done = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._done.wait(0.05):
            self._peak = max(self._peak, _anonymous())

    def peak(self) -> float:
        self._done.set()
        self._thread.join()
        return self._peak


def report(found: list[dict[str, str]], request: Request) -> str:
    """The table as Markdown."""
    rows = sorted(found, key=lambda r: (int(r["features"]), r["machine"], int(r["rows"]), r["where"]))
    lines = [
        "# Rows outside memory, beside the same rows in memory", "",
        "CPU seconds with one BLAS thread; anonymous memory above the interpreter; the largest difference of decision",
        "values from those of the fit in memory, in their standard deviation. limit: RLIMIT_DATA.", "",
        "| rows x features | machine | where | limit | CPU s | wall s | MiB | score | apart | steps | gap |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for r in rows:
        limit = f"{float(r['limit']):g} GB" if float(r["limit"]) else ""
        apart = f"{float(r['apart']):.1e}" if r["apart"] not in ("", "None") else ""
        gap = f"{float(r['gap']):.1e}" if r["gap"] not in ("", "None") else ""
        lines.append(
            f"| {int(r['rows']):,} x {r['features']} | {r['machine']} | {r['where']} | {limit} | "
            f"{float(r['cpu_seconds']):.1f} | {float(r['wall_seconds']):.1f} | {float(r['mebibytes']):.0f} | "
            f"{float(r['score']):.4f} | {apart} | {r['n_iter']} | {gap} |"
        )
    return "\n".join(lines) + "\n"
