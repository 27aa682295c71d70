"""The paper's experiments by name: which there are, what each needs, and one call that runs them.

Each is a module of this room with ``COLUMNS``, ``tasks`` and ``report``; its table, provenance and report go into the
folder of the request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from typing import Any

from krein import datasets
from krein.errors import InputError, one_of
from krein.experiments.paper import DATASETS, KERNELS
from krein.experiments.records import Table, read_csv
from krein.experiments.records import replace as write
from krein.experiments.running import Experiment, Request, Unfinished, work

__all__ = ["EXPERIMENTS", "reproduce"]

NO_DATA = {"costs"}  # it generates its own
EXPERIMENTS = {
    "errors": "relative errors of M1, M2 and ours, and their memory (supplement, Table 4; the Mem column)",
    "eigenvalues": "how indefinite the approximation is (Sec. 3.3, supplement 3)",
    "classification": "accuracy of M0, M1, M2 and ours (Table 3)",
    "costs": "time and storage of the corrections as n and r grow (Table 2)",
    "features": "random Fourier features and Fastfood at equal memory (introduction)",
    "bounds": "each term of the error bound beside the true error (Sec. 4.2)",
    "figures": "every figure, as PNG and SVG; draws the eigenvalues' table, so it comes last",
}


def reproduce(names: Iterable[str], request: Request, say: Callable[[str], Any] = print) -> list[str]:
    """Run the named experiments and return what went wrong, one line for each that could not be finished."""
    names = tuple(names)
    for name in names:
        one_of("experiment", name, tuple(EXPERIMENTS))
    for option, given, known in (("datasets", request.datasets, DATASETS), ("kernels", request.kernels, KERNELS)):
        for value in given:
            one_of(option, value, known)
        if not given:
            raise InputError(f"{option} is empty; give some of {', '.join(known)}.")
    if request.quick:  # never in one table with the whole rows
        request = replace(request, output=request.output / "quick")
    if set(names) - NO_DATA and not request.report_only:
        _check_data(request)
    trouble = []
    for name in names:
        begin = time.perf_counter()
        module: Experiment = import_module(f"krein.experiments.{name}")
        path = request.output / f"{name}.csv"
        tasks = module.tasks(request)
        table = Table(path, module.COLUMNS, request.command)
        if not request.report_only:
            try:
                work(name, tasks, table, n_jobs=request.n_jobs, force=request.force)
            except Unfinished as failed:
                trouble.append(str(failed))
        done = sum(table.has(**task.key) for task in tasks)
        words = module.report(table.rows, request).rstrip() + "\n"
        if done < len(tasks):  # whoever reads it later should not take a part for the whole
            words += f"\n**Not finished**: {done} of {len(tasks)} pieces; `{request.command}` goes on.\n"
        write(path.with_suffix(".md"), words)
        say(f"{name}: {path} and {path.with_suffix('.md').name}, {_spent(time.perf_counter() - begin)}")
    return trouble


def results(name: str, request: Request) -> list[dict[str, str]]:
    """The rows of another experiment's table in the same folder."""
    path = request.output / f"{name}.csv"
    if not path.exists():
        raise InputError(f"{path} is not there yet; run `krein reproduce {name}` with the same options first.")
    return read_csv(path)


def _check_data(request: Request) -> None:
    """Fail now rather than after an hour, and say what can be had without the file."""
    missing = []
    for name in request.datasets:
        try:
            datasets.load(name)
        except (ValueError, OSError) as error:
            missing.append((name, error))
    if missing:
        there = [name for name in request.datasets if name not in dict(missing)]
        raise InputError(
            f"{', '.join(name for name, _ in missing)} could not be had: {missing[0][1]} Set KREIN_DATA to the folder "
            f"of the paper's data sets, or leave them out: --datasets {','.join(there) or 'artificial1,artificial2'}."
        )


def _spent(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
