"""Tables that know where they come from: a CSV that grows cell by cell, and beside it a JSON with one entry per run.

Both are replaced whole, never written in place: a run that is killed at any moment leaves what was finished before.
What is there and cannot be understood is refused, never written over.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_info

import krein
from krein.errors import InputError
from krein.persistence.container import replacing

__all__ = ["Table", "alone", "provenance", "read_csv", "set_aside", "text"]

AGAIN = "Put an earlier copy back, or run with --force to compute again."


def provenance(command: str) -> dict[str, Any]:
    """What a figure depends on besides the code: versions, threads, cores. No host names, no paths."""
    blas = [p for p in threadpool_info() if p["user_api"] == "blas"]
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "date": now.date().isoformat(),
        "time": now.time().isoformat("seconds"),  # UTC, when it began
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
        if not force and path.exists():
            self._read()
        self.this = provenance(command)

    def _read(self) -> None:
        """Take up what is there. A row that is no whole one would pass for a finished cell, so there must be none."""
        name, other = self.path.name, self.sidecar.name
        if not self.sidecar.exists():
            raise InputError(f"{name} has no {other} beside it, which says where its rows come from. {AGAIN}")
        try:
            content = self.path.read_text(encoding="utf-8")
            rows, runs = parse_csv(content), json.loads(self.sidecar.read_text(encoding="utf-8"))
        except ValueError as error:  # no UTF-8, no JSON
            raise InputError(f"{name} and {other} cannot be read: {error}. {AGAIN}") from error
        if rows and [c for c in rows[0] if c is not None] != self.columns:
            raise InputError(f"{name} has other columns than this version writes. {AGAIN}")
        known = {str(i) for i in range(len(runs))}
        whole = [set(row) == set(self.columns) and row["run"] in known and None not in row.values() for row in rows]
        if not all(whole) or not content.endswith("\n"):
            place = whole.index(False) + 1 if not all(whole) else len(rows)
            raise InputError(f"Row {place} of {name} is not whole: the file was cut off or edited. {AGAIN}")
        self.rows, self.runs = rows, runs

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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(content.encode("utf-8"))
    except OSError as error:  # a full disk, a folder of someone else's
        raise _refused(path, error) from error


def set_aside(path: Path) -> Path:
    """Give a table and its JSON names that nothing reads, and return the table's."""
    numbers = (i for i in range(1, 1000) if not path.with_name(f"{path.name}.old{i}").exists())
    number = next(numbers)
    for old in (path, path.with_suffix(".json")):
        if old.exists():
            old.rename(old.with_name(f"{old.name}.old{number}"))
    return path.with_name(f"{path.name}.old{number}")


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Refuse a second process on the same table: each would write over what the other finished.

    The lock is the system's, which takes it back from whatever ends, kill -9 included: a file left behind is none.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    lock = path.with_name(f".{path.name}.lock")
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = lock.open("a")
        except OSError as error:
            raise _refused(path, error) from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise InputError(
                f"Another run is writing {path}. Wait until it has ended, or give another folder with --output."
            ) from None
        except OSError:  # a file system without locks
            break
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle.fileno()), lock.stat()):
                break
        handle.close()  # its holder ended and removed it in between: this one would lock nothing
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        handle.close()


def _refused(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path} could not be written: {error.strerror or error}. What was finished before is kept; make room or give "
        "another folder with --output, and run the same command again."
    )


def text(value: Any) -> str:
    """How a value stands in a table."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    return f"{value:.9g}" if isinstance(value, float | np.floating) else str(value)
