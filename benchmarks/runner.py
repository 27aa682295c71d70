"""Experiments as tasks: run them, record their rows with provenance, resume, write the report.

The benchmarks and the paper's experiments share this module. An `Experiment` names its tables, its tasks and its
report; `perform` runs the tasks whose rows are not recorded yet and writes the report. A table is a CSV that grows task
by task, with a JSON beside it that has one entry per run. Both files are replaced as a whole, so a run that is killed
at any moment leaves all finished tasks. A file that cannot be understood is refused and never overwritten.

The rows of a task depend on its arguments alone: neither the number of processes nor an interruption changes a result.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import json
import multiprocessing
import os
import platform
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import joblib
import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_info, threadpool_limits
from tqdm.auto import tqdm

import krein
from krein.errors import InputError, KreinWarning
from krein.persistence.container import replacing

__all__ = ["Experiment", "Request", "Rows", "Table", "Task", "Unfinished", "in_fresh_process", "parse_csv", "perform",
           "read_csv", "single_writer", "text", "work"]  # fmt: skip

T = TypeVar("T")
Rows = Sequence[Mapping[str, Any]]

# The advice at the end of every error about an unreadable table.
RECOVERY = "Put an earlier copy back, or run with --force to compute again."


@dataclass(frozen=True)
class Request:
    """Which part of an experiment is wanted, and the folder for its files."""

    output: Path
    quick: bool = False
    n_jobs: int = 1
    threads: int = 1  # BLAS threads per process
    force: bool = False
    report_only: bool = False  # compute nothing
    command: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)  # of one benchmark alone


@dataclass(frozen=True)
class Task:
    """One piece of work: ``run(*arguments)`` returns the rows of ``key``.

    A task that fills several tables returns a mapping from their names to rows. Without a ``table`` the rows belong to
    the first table of the experiment. An empty key stands for the whole table.
    """

    key: Mapping[str, Any]  # the columns that identify the task; each of its rows has them
    run: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    table: str = ""
    fresh: bool = False  # run in a new process, so that its peak memory is its own

    @property
    def name(self) -> str:
        return " ".join([*[self.table] * bool(self.table), *(text(value) for value in self.key.values())])


class Experiment(Protocol):
    """The contents of an experiment's module."""

    TABLES: Mapping[str, tuple[str, ...]]  # file name without .csv, and its columns

    def tasks(self, request: Any) -> list[Task]:
        """All tasks, finished or not, in the order of the table."""

    report: Callable[..., str]  # the rows of each table, then the request, to Markdown


class Unfinished(RuntimeError):
    """Some tasks failed; the rows of all others are in the table."""


def perform(
    name: str,
    experiment: Experiment,
    request: Request,
    *,
    data: Mapping[str, str] | None = None,
    say: Callable[[str], Any] = print,
) -> tuple[list[str], int, int]:
    """Run an experiment and write its report; return the failures, the number of recorded tasks and of all tasks.

    ``data`` maps each data set of this run to a digest, which is recorded with the rows and compared on a resume.
    """
    tasks = experiment.tasks(request)
    path, failures = request.output / f"{name}.csv", []
    with nullcontext() if request.report_only else single_writer(path):
        tables = [_opened(request.output / f"{stem}.csv", columns, request, say)
                  for stem, columns in experiment.TABLES.items()]  # fmt: skip
        if not request.report_only:
            for table in tables:
                if data is not None:
                    if not request.force:
                        _check_same_data(table, data)
                    table.this["data"] = dict(data)
            try:
                work(name, tasks, *tables, n_jobs=request.n_jobs, threads=request.threads, force=request.force)
            except Unfinished as failed:
                failures.append(str(failed))
        stems = {table.path.stem: table for table in tables}
        done = sum(stems.get(task.table, tables[0]).has(**task.key) for task in tasks)
        try:
            words = experiment.report(*(table.rows for table in tables), request).rstrip() + "\n"
        except Exception as error:
            if done == len(tasks):
                raise
            words = f"# {name}\n\nThe recorded tasks are too few for a report ({error!r}).\n"
        if done < len(tasks):  # a reader must not take a part for the whole
            command = request.command.replace(" --force", "")
            words += f"\n**Not finished**: {done} of {len(tasks)} pieces; `{command}` goes on.\n"
        replace(path.with_suffix(".md"), words)
    return failures, done, len(tasks)


def _opened(path: Path, columns: Iterable[str], request: Request, say: Callable[[str], Any]) -> Table:
    """The table at ``path``; with --force an unreadable one is renamed and a new one begun."""
    try:
        return Table(path, columns, request.command)
    except InputError as unreadable:
        if request.report_only or not request.force:
            raise
        say(f"{unreadable} It is {_set_aside(path).name} now.")
        return Table(path, columns, request.command)


def _check_same_data(table: Table, data: Mapping[str, str]) -> None:
    """Refuse to continue a table whose rows come from other data of the same name."""
    for row in table.rows:
        name = row.get("dataset", "")
        before = table.runs[int(row["run"])].get("data", {}).get(name)
        if name in data and before not in (None, data[name]):
            raise InputError(
                f"{table.path.name} has results of another {name} (digest of the rows {before}, now {data[name]}): "
                "KREIN_DATA was set otherwise. Give another folder with --output, or compute again with --force."
            )


# -- tasks -------------------------------------------------------------------------------------------------------------


def work(
    name: str, tasks: Sequence[Task], *tables: Table, n_jobs: int = 1, threads: int = 1, force: bool = False
) -> None:
    """Run the tasks that are not recorded yet, with ``force`` all of them; then put the rows in the tasks' order."""
    stems = {table.path.stem: table for table in tables} | {"": tables[0]}
    if force:
        for task in tasks:
            stems[task.table].drop(**task.key)
        for table in tables:
            if table.path.exists():
                table.write()  # tasks that read earlier rows must not see the old ones
    todo = [task for task in tasks if not stems[task.table].has(**task.key)]
    failures: list[str] = []
    with tqdm(total=len(tasks), initial=len(tasks) - len(todo), desc=name, unit="task", disable=None) as bar:
        for number, task, rows, failure in _outcomes(todo, n_jobs, threads):
            if failure:
                failures.append(f"{task.name}: {failure.strip().splitlines()[-1]}")
                print(f"{name}, {task.name}:\n{failure}", file=sys.stderr)
            else:
                for stem, some in (rows if isinstance(rows, Mapping) else {task.table: rows}).items():
                    stems[stem].drop(**task.key)
                    stems[stem].add({**task.key, **row} for row in some)
            bar.set_postfix_str(task.name)
            bar.update()
            if bar.disable:  # no terminal: plain lines
                print(f"{name}: {number} of {len(todo)} done, {task.name}", file=sys.stderr, flush=True)
    for table in tables:
        _sort(table, [task for task in tasks if stems[task.table] is table])
    if failures:
        raise Unfinished(f"{name}: {len(failures)} of {len(tasks)} tasks failed, the others are kept. " + failures[0])


def _outcomes(tasks: Sequence[Task], n_jobs: int, threads: int) -> Any:
    """Yield (number of finished tasks, task, rows, traceback) as the tasks end."""
    with threadpool_limits(threads), joblib.parallel_config("loky", inner_max_num_threads=threads):
        parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)
        found = parallel(joblib.delayed(_attempt)(index, task, os.getpid()) for index, task in enumerate(tasks))
        for number, (index, rows, failure) in enumerate(found, 1):
            yield number, tasks[index], rows, failure


def _attempt(index: int, task: Task, starter: int) -> tuple[int, Any, str]:
    _settle(starter)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* is generated with", KreinWarning)  # shown once, before the first task
            rows = in_fresh_process(task.run, *task.arguments) if task.fresh else task.run(*task.arguments)
            return index, rows if isinstance(rows, Mapping) else list(rows), ""
    except Exception:
        return index, [], traceback.format_exc()


def in_fresh_process(task: Callable[..., T], *arguments: Any) -> T:
    """Run ``task`` (a function of a module) in a new process, whose peak memory holds nothing earlier."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(task, *arguments).result()


@lru_cache
def _settle(starter: int) -> None:
    """Make a worker end soon after the process that started it. Runs once in each worker.

    joblib's workers keep their memory for 5 minutes after their starter was killed. tqdm's lock between processes would
    be reported as leaked when Ctrl-C ends them.
    """
    if os.getpid() == starter:
        return
    tqdm.set_lock(threading.RLock())
    threading.Thread(target=_end_with, args=(starter,), daemon=True).start()


def _end_with(starter: int) -> None:
    while os.getppid() == starter:
        time.sleep(0.5)
    os._exit(1)


def _sort(table: Table, tasks: Sequence[Task]) -> None:
    """Put the rows in the order of the tasks; rows of other requests follow in their old order."""
    if not tasks:
        return
    columns = list(tasks[0].key)
    place = {tuple(text(task.key[c]) for c in columns): i for i, task in enumerate(tasks)}
    ordered = sorted(table.rows, key=lambda row: place.get(tuple(row[c] for c in columns), len(tasks)))
    if ordered != table.rows:
        table.rows = ordered
        table.write()


# -- tables ------------------------------------------------------------------------------------------------------------


def provenance(command: str) -> dict[str, Any]:
    """Versions, threads and cores of this run, without host names or paths."""
    blas = [p for p in threadpool_info() if p["user_api"] == "blas"]
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "date": now.date().isoformat(),
        "time": now.time().isoformat("seconds"),  # UTC, at the start
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
    """Twelve hex digits that identify the package's source, committed or not."""
    root = Path(krein.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def read_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file; lines that start with # are comments."""
    return parse_csv(path.read_text(encoding="utf-8"))


def parse_csv(content: str) -> list[dict[str, str]]:
    """Return the rows of CSV text; lines that start with # are comments."""
    return list(csv.DictReader(line for line in io.StringIO(content) if not line.startswith("#")))


class Table:
    """A CSV file that is replaced after each task, so that an interrupted run can resume.

    The column ``run`` of each row is the index of its run in the JSON file beside it.
    """

    def __init__(self, path: Path, columns: Iterable[str], command: str) -> None:
        self.path, self.columns = path, ["run", *columns]
        self.sidecar = path.with_suffix(".json")
        self.rows: list[dict[str, str]] = []
        self.runs: list[dict[str, Any]] = []
        if path.exists():
            self._read()
        self.this = provenance(command)

    def _read(self) -> None:
        """Read the existing rows. An incomplete row would pass for a finished task, so it is refused."""
        name, other = self.path.name, self.sidecar.name
        if not self.sidecar.exists():
            raise InputError(f"{name} has no {other} beside it, which says where its rows come from. {RECOVERY}")
        try:
            content = self.path.read_text(encoding="utf-8")
            rows, runs = parse_csv(content), json.loads(self.sidecar.read_text(encoding="utf-8"))
        except ValueError as error:  # no UTF-8, no JSON
            raise InputError(f"{name} and {other} cannot be read: {error}. {RECOVERY}") from error
        if rows and [c for c in rows[0] if c is not None] != self.columns:
            raise InputError(f"{name} has other columns than this version writes. {RECOVERY}")
        known = {str(i) for i in range(len(runs))}
        whole = [set(row) == set(self.columns) and row["run"] in known and None not in row.values() for row in rows]
        if not all(whole) or not content.endswith("\n"):
            place = whole.index(False) + 1 if not all(whole) else len(rows)
            raise InputError(f"Row {place} of {name} is not whole: the file was cut off or edited. {RECOVERY}")
        self.rows, self.runs = rows, runs

    def has(self, **key: Any) -> bool:
        wanted = {name: text(value) for name, value in key.items()}
        return any(wanted.items() <= row.items() for row in self.rows)

    def drop(self, **key: Any) -> None:
        """Forget the rows of this key; the file changes with the next `add` or `write`."""
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
        """Replace both files: the runs first, so that every row's run exists."""
        content = io.StringIO()
        writer = csv.DictWriter(content, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        replace(self.sidecar, json.dumps(self.runs, indent=1) + "\n")
        replace(self.path, content.getvalue())


def replace(path: Path, content: str) -> None:
    """Write ``content`` to ``path``; at every moment the complete old or the complete new file exists."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(content.encode("utf-8"))
    except OSError as error:  # a full disk, a folder of someone else's
        raise _refused(path, error) from error


def _set_aside(path: Path) -> Path:
    """Rename a table and its JSON to names that nothing reads, and return the table's."""
    numbers = (i for i in range(1, 1000) if not path.with_name(f"{path.name}.old{i}").exists())
    number = next(numbers)
    for old in (path, path.with_suffix(".json")):
        if old.exists():
            old.rename(old.with_name(f"{old.name}.old{number}"))
    return path.with_name(f"{path.name}.old{number}")


@contextmanager
def single_writer(path: Path) -> Iterator[None]:
    """Refuse a second process on the same table: each would overwrite the rows of the other.

    The operating system releases the lock when its holder ends, even by kill -9; a leftover file does not lock.
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
        handle.close()  # the holder removed this file after it was opened here, so its lock protects nothing
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
    """Return a value as a table holds it."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    return f"{value:.9g}" if isinstance(value, float | np.floating) else str(value)
