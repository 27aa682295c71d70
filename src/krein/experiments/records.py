"""Tables that know where they come from: a CSV that grows cell by cell, and beside it a JSON with one entry per run.

Both are replaced whole, never written in place: a run that is killed at any moment leaves what was finished before.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_info

import krein
from krein.errors import InputError

__all__ = ["Table", "provenance", "read_csv", "text"]


def provenance(command: str) -> dict[str, Any]:
    """What a figure depends on besides the code: versions, threads, cores. No host names, no paths."""
    blas = [p for p in threadpool_info() if p["user_api"] == "blas"]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "command": command,
        "krein": krein.__version__,
        "source": source_digest(),
        "python": platform.python_version(),
        "numpy": np.__version__,
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
    return parse_csv(path.read_text(encoding="utf-8"))


def parse_csv(content: str) -> list[dict[str, str]]:
    """The same of its text."""
    return list(csv.DictReader(line for line in io.StringIO(content) if not line.startswith("#")))


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
                raise InputError(f"{path.name} has other columns than this version writes; run with --force.")
        self.this = provenance(command)

    def has(self, **key: Any) -> bool:
        wanted = {name: text(value) for name, value in key.items()}
        return any(wanted.items() <= row.items() for row in self.rows)

    def drop(self, **key: Any) -> None:
        """Forget the rows of this key; the file follows with the next `add`."""
        wanted = {name: text(value) for name, value in key.items()}
        self.rows = [row for row in self.rows if not wanted.items() <= row.items()]

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        if self.this not in self.runs:
            self.runs.append(self.this)
        number = str(self.runs.index(self.this))
        for row in rows:
            self.rows.append({"run": number} | {c: text(row.get(c, "")) for c in self.columns[1:]})
        self.write()

    def write(self) -> None:
        """Bring the files up to date: the runs first, so that no row ever names one that is not there."""
        content = io.StringIO()
        writer = csv.DictWriter(content, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        replace(self.sidecar, json.dumps(self.runs, indent=1) + "\n")
        replace(self.path, content.getvalue())

    def note(self, **more: Any) -> None:
        """Put more beside this run's provenance (profiles, for instance)."""
        self.this.update(more)
        self.add([])


def replace(path: Path, content: str) -> None:
    """Write ``content`` to ``path`` so that at every moment the old or the new file is there, and whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def text(value: Any) -> str:
    """How a value stands in a table."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    return f"{value:.9g}" if isinstance(value, float | np.floating) else str(value)
