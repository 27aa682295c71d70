"""A table larger than memory in, a fitted model of one of its columns out: the `Model` of `model.learn`, in pieces.

All columns hold numbers and none are missing. The rows are written once to a file that can be read in any order, one
visit finds what scales the columns, and the estimator reads scaled rows in pieces.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from krein.approximation.plan import Plan, plan
from krein.arrays import Array
from krein.errors import InputError
from krein.estimators import SVC
from krein.kernels.vectors import unit_rows
from krein.policy import check_policy
from krein.sources import ChangedRows, Source, source_of
from krein.tables.encoding import Encoder, Numbers
from krein.tables.model import (
    SPHERE_KERNELS,
    TABLE_KERNELS,
    TEXT_KERNELS,
    Model,
    check_scale,
    machine_for,
    target_values,
)

__all__ = ["learn_in_pieces"]

# This many numbers are read at a time to find the scale of the columns.
READ_NUMBERS = 2**22


def _scaled(X: Array, centre: Array, scale: Array, sphere: bool) -> Array:
    """Each column as (x - centre) / scale, and then each row of length 1 if ``sphere``."""
    X = ((X - centre) / scale).astype(X.dtype)
    return np.asarray(unit_rows(X)[0]) if sphere else X


def learn_in_pieces(
    path: Path,
    target: str,
    *,
    columns: Sequence[str],
    memory_limit: float,
    workdir: Path | None = None,
    task: str = "auto",
    machine: str = "auto",
    scale: str = "standard",
    random_state: int = 0,
    verbose: int = 0,
    parameters: dict[str, Any] | None = None,
    planned: Callable[[Plan], Any] = lambda plan: None,
) -> tuple[Model, int]:
    """Return a model of ``target`` and the number of rows. It is not scored.

    Parameters
    ----------
    path : Path
        A CSV, TSV or Parquet file.
    target : str
        Name of the target column.
    columns : sequence of str
        Names of the features.
    memory_limit : float
        Bytes that the fit may take.
    workdir : Path, optional
        Folder that is kept, so that an interrupted fit goes on where it was.
    task, machine, scale, random_state, verbose, parameters
        As in `model.learn`.
    planned : callable, optional
        Called with the `Plan` of the fit before it begins.
    """
    parameters = {"kernel": "rbf"} | (parameters or {})
    named = parameters["kernel"]
    check_scale(named, scale)
    if named in (*TEXT_KERNELS, *TABLE_KERNELS):
        raise InputError(
            f"--kernel {named} compares texts or mixed columns, which are not read in pieces. Leave out --memory-limit."
        )
    begin = time.perf_counter()
    opened = source_of(path, target, workdir=workdir, columns=columns)
    assert opened is not None
    source, y = opened
    y, task = target_values(y.astype(object) if y.dtype.kind == "U" else y, target, task)
    classes = task == "classification"
    offset = 0.0 if classes else float(np.mean(y))
    numbers = _numbers(source, columns, scale)
    estimator = machine_for(
        machine, classes, len(y),
        parameters
        | {"random_state": random_state, "verbose": verbose, "memory_limit": memory_limit, "workdir": workdir},
    )  # fmt: skip
    planned(_plan(estimator, source, memory_limit))
    centre, spread = (np.array([getattr(c, name) for c in numbers]) for name in ("centre", "scale"))
    sphere = named in SPHERE_KERNELS
    change = partial(_scaled, centre=centre, scale=spread, sphere=sphere)
    rows = ChangedRows(source, change, f"scaled: {scale}, on the sphere: {sphere}")  # the scale follows from the rows
    estimator.fit(rows, y if classes else y - offset)
    seconds = {"judging": 0.0, "fitting": time.perf_counter() - begin}
    return Model(estimator, target, task, None, Encoder(tuple(numbers)), sphere, offset, None, seconds), len(y)


def _numbers(source: Source, columns: Sequence[str], scale: str) -> list[Numbers]:
    """How each column is scaled. A value that is missing in another file becomes the mean."""
    n, d = source.shape
    step = max(1, READ_NUMBERS // d)
    standard, ends = StandardScaler(), MinMaxScaler()
    for start in range(0, n, step):
        X = source.read(start, min(n, start + step)).astype(np.float64)
        standard.partial_fit(X)
        ends.partial_fit(X)
    centre, spread = {
        "standard": (standard.mean_, standard.scale_),
        "minmax": (ends.data_min_, ends.data_range_),
        "none": (np.zeros(d), np.ones(d)),
    }[scale]
    spread = np.where((ends.data_range_ == 0.0) | (spread == 0.0), 1.0, spread)
    rows = np.stack([standard.mean_, centre, spread], axis=1)
    return [Numbers(name, *row) for name, row in zip(columns, rows.tolist(), strict=True)]


def _plan(estimator: Any, source: Source, limit: float) -> Plan:
    """The plan of a fit. Blocks and rank that are left open are taken from the policy, as a guess."""
    n, d = source.shape
    usual = check_policy(estimator.policy).plain_shape
    given = (estimator.n_blocks, estimator.rank)
    n_blocks, rank = (value if isinstance(value, int) else guess for value, guess in zip(given, usual, strict=True))
    known = (n_blocks, rank) == given
    found = plan(
        n, d, n_blocks=min(n, n_blocks), rank=rank, kernel=estimator.kernel, memory_limit=limit if known else None,
        learner="svm" if isinstance(estimator, SVC) else "ridge", dtype=np.dtype(source.dtype).name,
    )  # fmt: skip
    guessed = f"Blocks and rank are chosen in the fit; {n_blocks} of rank {rank} are a guess."
    return found if known else replace(found, notes=(guessed, *found.notes))
