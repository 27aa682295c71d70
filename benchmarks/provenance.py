"""Tables that know where they come from: a CSV that grows cell by cell, and beside it a JSON with one entry per run."""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import joblib
import numpy
import scipy
import sklearn
from threadpoolctl import threadpool_info

import krein


def provenance(command: str) -> dict[str, Any]:
    """What a figure depends on besides the code: versions, threads, cores. No host names, no paths."""
    blas = [p for p in threadpool_info() if p["user_api"] == "blas"]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": command,
        "krein": krein.__version__,
        "source": source_digest(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "joblib": joblib.__version__,
        "blas": sorted({f"{p['internal_api']} {p['version']}" for p in blas}),
        "blas_threads": max((p["num_threads"] for p in blas), default=1),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_at_start": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def source_digest() -> str:
    """Twelve hex digits of the package's source, so that a figure can be traced even before a commit."""
    root = Path(krein.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV; lines that start with # are remarks."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


class Table:
    """A CSV that is written anew after each cell, so that an interrupted run can go on where it stopped.

    The column ``run`` of each row is the index of its entry in the JSON beside it.
    """

    def __init__(self, path: Path, columns: Iterable[str], command: str, force: bool = False) -> None:
        self.path, self.columns = path, ["run", *columns]
        self.sidecar = path.with_suffix(".json")
        self.rows: list[dict[str, str]] = []
        self.runs: list[dict[str, Any]] = []
        if not force and path.exists() and self.sidecar.exists():
            self.rows = read_csv(path)
            self.runs = json.loads(self.sidecar.read_text(encoding="utf-8"))
            if self.rows and list(self.rows[0]) != self.columns:
                raise SystemExit(f"{path.name} has other columns than this version writes; run with --force.")
        self.this = provenance(command)

    def has(self, **key: Any) -> bool:
        return any(all(row[name] == _text(value) for name, value in key.items()) for row in self.rows)

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        if self.this not in self.runs:
            self.runs.append(self.this)
        number = str(self.runs.index(self.this))
        for row in rows:
            self.rows.append({"run": number} | {c: _text(row.get(c, "")) for c in self.columns[1:]})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
        self.sidecar.write_text(json.dumps(self.runs, indent=1) + "\n", encoding="utf-8")

    def note(self, **more: Any) -> None:
        """Put more beside this run's provenance (profiles, for instance)."""
        self.this.update(more)
        self.add([])


def _text(value: Any) -> str:
    if isinstance(value, bool | numpy.bool_):
        return str(bool(value))
    return f"{value:.9g}" if isinstance(value, float | numpy.floating) else str(value)
