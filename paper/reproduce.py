"""The paper's experiments by name: which there are, what each needs, and one call that runs them.

Each is a module of this room with ``TABLES``, ``tasks`` and ``report``; its table, provenance and report go into the
folder of the request.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.runner import Experiment, perform, read_csv
from krein import datasets
from krein.errors import InputError, KreinWarning, one_of
from paper.protocol import DATASETS, KERNELS, Request

__all__ = ["EXPERIMENTS", "reproduce"]

# These experiments generate their data.
NO_DATA = {"costs"}
EXPERIMENTS = {
    "errors": "relative errors of M1, M2 and ours, and their memory (supplement, Table 4; the Mem column)",
    "eigenvalues": "how indefinite the approximation is (Sec. 3.3, supplement 3)",
    "classification": "accuracy of M0, M1, M2 and ours (Table 3)",
    "costs": "time and storage of the corrections as n and r grow (Table 2)",
    "features": "random Fourier features and Fastfood at equal memory (introduction)",
    "bounds": "each term of the error bound beside the true error (Sec. 4.2)",
    "claims": "statements of the paper that no table of it measures",
    "nested": "Table 3 with kernel parameters and C tuned by a grid inside each fold",
    "figures": "every figure, as PNG and SVG; draws the eigenvalues' table, so it comes last",
}


def reproduce(
    names: Iterable[str],
    request: Request,
    say: Callable[[str], Any] = print,
    record: Callable[[dict[str, Any]], Any] = lambda facts: None,
) -> list[str]:
    """Run the named experiments and return what went wrong, one line for each that could not be finished.

    ``say`` receives a line of text for each, ``record`` a dictionary.
    """
    names = tuple(names)
    for name in names:
        one_of("experiment", name, tuple(EXPERIMENTS))
    for option, given, known in (("datasets", request.datasets, DATASETS), ("kernels", request.kernels, KERNELS)):
        for value in given:
            one_of(option, value, known)
        if not given:
            raise InputError(f"{option} is empty; give some of {', '.join(known)}.")
    sets, kernels = (tuple(dict.fromkeys(some)) for some in (request.datasets, request.kernels))
    request = replace(request, datasets=sets, kernels=kernels)  # named twice, run once
    if request.quick:  # never in one table with the whole rows
        request = replace(request, output=request.output / "quick")
    used = _check_data(request, say) if set(names) - NO_DATA and not request.report_only else {}
    trouble: list[str] = []
    for name in names:
        begin = time.perf_counter()
        path = request.output / f"{name}.csv"
        try:
            module: Experiment = import_module(f"paper.{name}")
            if not module.tasks(request):
                raise InputError(
                    f"{name} has nothing for --kernels {','.join(request.kernels)}; give others or leave it out."
                )
            failed, done, pieces = perform(name, module, request, data={} if name in NO_DATA else used, say=say)
        except InputError as wrong:
            if len(names) == 1:
                raise
            trouble.append(f"{name}: {wrong}")  # the others may do well
            record({"experiment": name, "files": [], "done": None, "pieces": None, "seconds": None,
                    "trouble": [str(wrong)]})  # fmt: skip
            continue
        if request.report_only and not done:
            failed.append(f"{name}: no result is recorded in {path}; run `krein reproduce {name}` first.")
        trouble += failed
        files = [str(path.with_suffix(end)) for end in (".csv", ".json", ".md") if path.with_suffix(end).exists()]
        seconds = round(time.perf_counter() - begin, 3)
        record({"experiment": name, "files": files, "done": done, "pieces": pieces, "seconds": seconds,
                "trouble": failed})  # fmt: skip
        say(f"{name}: {path} and {path.with_suffix('.md').name}, {_spent(time.perf_counter() - begin)}")
    if any((request.output / f"{name}.md").exists() for name in EXPERIMENTS):
        say(f"All reports and figures: {_index(request)}")
    return trouble


def _index(request: Request) -> str:
    try:
        index = import_module("paper.index")
    except ImportError:
        return "no page was written, as it needs `pip install markdown-it-py`"
    return str(index.write(request.output, EXPERIMENTS, request.quick))


def results(name: str, request: Request) -> list[dict[str, str]]:
    """The rows of another experiment's table in the same folder."""
    path = request.output / f"{name}.csv"
    if not path.exists():
        raise InputError(f"{path} is not there yet; run `krein reproduce {name}` with the same options first.")
    return read_csv(path)


def _check_data(request: Request, say: Callable[[str], Any]) -> dict[str, str]:
    """Twelve hex digits of each data set. Fails now rather than after an hour, and says what can be had without it."""
    used, missing = {}, []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in request.datasets:
            try:
                data = datasets.load(name)
            except (ValueError, OSError) as error:
                missing.append((name, str(error)))
                continue
            used[name] = hashlib.sha256(np.ascontiguousarray(data.X).tobytes() + data.y.tobytes()).hexdigest()[:12]
    if missing:
        there = ",".join(used) or "artificial1,artificial2"  # these two can be generated
        raise InputError(
            f"{len(missing)} of the data sets could not be had: {', '.join(name for name, _ in missing)}. "
            f"{missing[0][1]} Or leave out what is missing: --datasets {there}."
        )
    for warning in caught:
        if issubclass(warning.category, KreinWarning):
            say(f"Note: {warning.message}")
    return used


def _spent(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"
