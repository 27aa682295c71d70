"""Model files: what saving and loading take beside reading the bare bytes and beside joblib; what a checksum costs.

files.csv: one row per model, best of three fresh processes, the file in the page cache. checksums.csv: bytes per second
of each function that was looked at. The models are fitted ridge machines, with their training rows.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

import joblib
import numpy as np

import krein
from benchmarks.measure import resident_bytes, seconds
from benchmarks.runner import Request, Task, in_fresh_process

COLUMNS = (
    "case", "rows", "n_blocks", "rank", "file_bytes", "n_arrays", "read_seconds", "load_seconds", "ratio",
    "save_seconds", "joblib_load_seconds", "joblib_save_seconds", "load_peak_over_file", "same",
)  # fmt: skip
SPEEDS = ("checksum", "gigabytes_per_second")
TABLES = {"files": COLUMNS, "checksums": SPEEDS}
CASES = {"few blocks, 1 GB": (900_000, 50, 128), "thousands of blocks": (300_000, 4000, 32), "small": (5000, 4, 64)}
QUICK = {"few blocks, 1 GB": (20_000, 4, 64), "thousands of blocks": (6000, 200, 8), "small": (2500, 4, 16)}
REPEAT = 3
WANTED = 4.0
HASHED = 2**28


def tasks(request: Request) -> list[Task]:
    cases = QUICK if request.quick else CASES
    size = HASHED // 64 if request.quick else HASHED
    return [
        *(Task({"case": case}, compare, shape) for case, shape in cases.items()),
        Task({}, checksums, (size,), table="checksums"),
    ]


def compare(n: int, blocks: int, rank: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        return [compared(n, blocks, rank, Path(folder))]


def compared(n: int, blocks: int, rank: int, folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(60)
    X = rng.standard_normal((n, 16))
    y = np.sin(X[:, 0]) + X[:, 1]
    model = krein.KernelRidge(kernel="rbf", n_blocks=blocks, rank=rank, drop=1.0, random_state=0).fit(X, y)
    path, other = folder / "model.krein", folder / "model.joblib"
    saved, _ = seconds(lambda: krein.save(model, path))
    dumped, _ = seconds(lambda: joblib.dump(model, other))
    times = [in_fresh_process(read_and_load, str(path)) for _ in range(REPEAT)]
    read, loaded = (min(column) for column in zip(*times, strict=True))
    theirs = min(in_fresh_process(load_theirs, str(other)) for _ in range(REPEAT))
    found = krein.load(path)
    new = rng.standard_normal((1000, 16))
    return {
        "rows": n, "n_blocks": blocks, "rank": rank, "file_bytes": path.stat().st_size,
        "n_arrays": path.read_bytes().count(b'"data_offsets"'), "read_seconds": read, "load_seconds": loaded,
        "ratio": loaded / read, "save_seconds": saved, "joblib_load_seconds": theirs, "joblib_save_seconds": dumped,
        "load_peak_over_file": in_fresh_process(peak_of_loading, str(path)) / path.stat().st_size,
        "same": bool(np.array_equal(found.predict(new), model.predict(new))),
    }  # fmt: skip


def read_and_load(path: str) -> tuple[float, float]:
    """Seconds of each in a process that has no memory to use again: fresh pages cost as much as reading them."""
    krein.save(krein.SVC(), f"{path}.krein")
    krein.load(f"{path}.krein")  # what is imported at the first call is imported now
    with open(path, "rb", buffering=0) as file:  # into the page cache, or the first of the two would pay for the disk
        while file.read(2**20):
            pass
    return seconds(lambda: np.fromfile(path, np.uint8))[0], seconds(lambda: krein.load(path))[0]


def load_theirs(path: str) -> float:
    return seconds(lambda: joblib.load(path))[0]


def peak_of_loading(path: str) -> int:
    """Bytes by which loading raises the peak of a fresh process (Linux; elsewhere what is held in the end)."""
    before = resident_bytes()
    model = krein.load(path)
    status = Path("/proc/self/status")
    if not status.exists():
        return resident_bytes() - before if model is not None else 0
    (peak,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(peak) * 1024 - before  # ru_maxrss would be the parent's: it survives an exec


def checksums(size: int) -> list[dict[str, Any]]:
    data = os.urandom(size)
    functions = {
        **{name: getattr(hashlib, name) for name in ("sha256", "blake2b", "sha1", "sha512")},
        "crc32": zlib.crc32,
    }
    found = {name: seconds(lambda function=function: function(data), REPEAT)[0] for name, function in functions.items()}  # type: ignore[misc]
    return [{"checksum": name, "gigabytes_per_second": size / taken / 1e9} for name, taken in found.items()]


def report(rows: list[dict[str, str]], speeds: list[dict[str, str]], request: Request) -> str:
    lines = [
        "# Model files",
        "",
        f"Best of {REPEAT} fresh processes, the file in the page cache. Read: `numpy.fromfile`. Load:",
        "`krein.load`, every byte compared with its checksum.",
        "",
        "| model | rows | blocks | MB | arrays | read | load | ratio | save | joblib load | joblib save | peak/file |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in rows:
        times = [f"{float(r[c]):.3g} s" for c in ("read_seconds", "load_seconds")]
        others = [f"{float(r[c]):.3g} s" for c in ("save_seconds", "joblib_load_seconds", "joblib_save_seconds")]
        cells = [
            r["case"], r["rows"], r["n_blocks"], f"{int(r['file_bytes']) / 1e6:.0f}", r["n_arrays"], *times,
            f"{float(r['ratio']):.2f}", *others, f"{float(r['load_peak_over_file']):.2f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    large = next(r for r in rows if r["case"] == "few blocks, 1 GB")
    lines += [
        "",
        f"- Loading the large model: {float(large['ratio']):.2f} times reading its bytes (wanted: at most {WANTED:g}).",
        f"- Predictions the same to the last bit: {sum(r['same'] == 'True' for r in rows)} of {len(rows)}.",
        "- One core, GB/s: "
        + ", ".join(f"{r['checksum']} {float(r['gigabytes_per_second']):.2f}" for r in speeds)
        + ".",
    ]
    return "\n".join(lines) + "\n"
