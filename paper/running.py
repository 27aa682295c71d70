"""From tasks to a finished table, in any number of processes, and from where it stopped.

A task is one call of a module's own function; its rows are kept as soon as it ends. What a task gives depends on its
arguments alone, so neither the number of jobs nor an interruption shows in the result.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import joblib
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from krein.errors import KreinWarning
from paper.records import Table, text

__all__ = ["Experiment", "Request", "Task", "Unfinished", "work"]

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Request:
    """What of an experiment is wanted, and where it goes."""

    datasets: tuple[str, ...]
    kernels: tuple[str, ...]
    output: Path
    seeds: int | None = None  # None: each experiment's own number
    quick: bool = False
    tune: str = "typical"  # or "nested": classification alone
    n_jobs: int = 1
    force: bool = False
    report_only: bool = False  # compute nothing
    command: str = "krein reproduce"


@dataclass(frozen=True)
class Task:
    """One piece of work: ``run(*arguments)`` gives the rows of ``key``."""

    key: Mapping[str, Any]  # the columns that name it; every row has them
    run: Callable[..., Rows]
    arguments: tuple[Any, ...] = ()

    @property
    def name(self) -> str:
        return " ".join(text(value) for value in self.key.values())


class Experiment(Protocol):
    """What a module in this room offers."""

    COLUMNS: tuple[str, ...]

    def tasks(self, request: Request) -> list[Task]:
        """All of it, finished or not, in the order of the table."""

    def report(self, rows: list[dict[str, str]], request: Request) -> str:
        """Markdown for people."""


class Unfinished(RuntimeError):
    """Some tasks failed; all others are in the table."""


def work(name: str, tasks: Sequence[Task], table: Table, *, n_jobs: int = 1, force: bool = False) -> None:
    """Do the tasks that are not in the table yet, or with ``force`` all of them; then put its rows in their order."""
    if force:
        for task in tasks:
            table.drop(**task.key)
    todo = [task for task in tasks if not table.has(**task.key)]
    failures: list[str] = []
    with tqdm(total=len(tasks), initial=len(tasks) - len(todo), desc=name, unit="task", disable=None) as bar:
        for number, task, rows, failure in _outcomes(todo, n_jobs):
            if failure:
                failures.append(f"{task.name}: {failure.strip().splitlines()[-1]}")
                print(f"{name}, {task.name}:\n{failure}", file=sys.stderr)
            else:
                table.add({**task.key, **row} for row in rows)
            bar.set_postfix_str(task.name)
            bar.update()
            if bar.disable:  # no terminal: plain lines
                print(f"{name}: {number} of {len(todo)} done, {task.name}", file=sys.stderr, flush=True)
    _sort(table, tasks)
    if failures:
        raise Unfinished(f"{name}: {len(failures)} of {len(tasks)} tasks failed, the others are kept. " + failures[0])


def _outcomes(tasks: Sequence[Task], n_jobs: int) -> Any:
    """(how many ended, task, rows, what went wrong) as they end. One BLAS thread per process."""
    with threadpool_limits(1), joblib.parallel_config("loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)
        found = parallel(joblib.delayed(_attempt)(index, task, os.getpid()) for index, task in enumerate(tasks))
        for number, (index, rows, failure) in enumerate(found, 1):
            yield number, tasks[index], rows, failure


def _attempt(index: int, task: Task, starter: int) -> tuple[int, Rows, str]:
    _settle(starter)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* is generated with", KreinWarning)  # said once, before the first task
            return index, list(task.run(*task.arguments)), ""
    except Exception:
        return index, [], traceback.format_exc()


@lru_cache
def _settle(starter: int) -> None:
    """Once in each worker: end when its starter has ended, and leave nothing behind.

    joblib's workers wait 5 minutes for a starter that was killed, with their memory; and tqdm's lock between processes
    would be reported as leaked when Ctrl-C ends them.
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
    """In the order of the tasks, whichever ended first; rows of other requests stay behind them, as they were."""
    if not tasks:
        return
    columns = list(tasks[0].key)
    place = {tuple(text(task.key[c]) for c in columns): i for i, task in enumerate(tasks)}
    ordered = sorted(table.rows, key=lambda row: place.get(tuple(row[c] for c in columns), len(tasks)))
    if ordered != table.rows:
        table.rows = ordered
        table.write()
