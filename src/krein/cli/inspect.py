"""krein inspect: read a file, inspect a kernel on its rows, print the result or write a report."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krein.cli import options
from krein.errors import InputError

if TYPE_CHECKING:  # loaded where they are used: see krein.cli
    from krein.inspection import Inspection
    from krein.tables.reading import Frame

__all__ = ["command"]

# Corrections and ranks are compared only with at least MIN_ROWS rows.
MIN_ROWS = 10


@click.command("inspect")
@click.argument("data", type=click.Path(path_type=Path))
@options.table_options("Target column, by which corrections and ranks are compared")
@options.kernel_options("A number, scale or auto.", "precomputed")
@click.option("--learner", type=click.Choice(["svm", "ridge"]), default="svm", show_default=True,
              help="Estimator with which corrections are compared.")  # fmt: skip
@click.option("--max-evaluations", type=click.IntRange(1), help="Largest number of similarities to evaluate.")
@click.option("--model", type=click.Path(path_type=Path), help="A model that krein fit saved: inspect its kernel on "
              "DATA, and include the model in the report.")  # fmt: skip
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path),
              help="Write an interactive report to this file.")  # fmt: skip
@options.SEED
@options.AS_JSON
def command(
    data: Path, target: str | None, drop: list[str], format_: str | None, task: str, scale: str,
    kernel: str | None, gamma: Any, degree: float | None, coef0: float | None, kernel_param: dict[str, Any],
    learner: str, max_evaluations: int | None, model: Path | None, html: Path | None, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Inspect a kernel on a sample of DATA: how indefinite it is, how it clusters and what a fit would cost.

    With a target, every correction and a series of ranks are scored on rows held out. DATA has one of the formats of
    krein fit: CSV, TSV, Parquet, svmlight, npy, npz or text.

    \b
    Examples:
      krein inspect digits.csv --kernel tl1 --html report.html
      krein inspect digits.csv --target label --kernel sigmoid -k coef0=-1
      krein inspect peptides.txt --max-evaluations 250000
      krein inspect digits.csv --model digits.krein --html report.html
      krein inspect similarities.npy --kernel precomputed --json
    """
    from krein.inspection import inspect
    from krein.tables.model import target_values
    from krein.tables.reading import file_format, find_target, read

    options.check_writable(html, data, *([] if model is None else [model]), suffix=".html", what="report")
    kind = file_format(data, format_)
    named, remarks = options.default_kernel(kernel, kind) if model is None else ("rbf", ())
    given = options.kernel_parameters(named, gamma, degree, coef0, kernel_param)
    if model is not None and (kernel is not None or given):
        raise InputError("--model brings its own kernel; leave out --kernel and its parameters.")
    fitted = None if model is None else options.load_model(model)
    begin = time.perf_counter()
    with options.collected_warnings() as file_warnings:
        frame = read(data, kind, fitted.text_columns if fitted else ()).without(drop)
    reading = time.perf_counter() - begin
    column = find_target(frame.names, target) if target is not None or len(frame.names) > 1 else None
    if fitted is not None:
        column, task = (fitted.target if fitted.target in frame else None), fitted.task
    y = None
    if column is not None:
        y, task = target_values(frame[column], column, task)
        y = y - y.mean() if task == "regression" else y
    if y is not None and len(y) < MIN_ROWS:
        remarks = (*remarks, f"{len(y)} rows are too few to compare corrections and ranks by; it takes {MIN_ROWS}")
        y = None
    with options.collected_warnings() as fit_warnings:
        notes: tuple[str, ...] = ()
        if fitted is not None:
            objects, similarity = fitted.objects(frame), fitted.estimator._kernel
            if fitted.encoder is not None:
                notes = tuple(fitted.encoder.describe_unknown(fitted.encoder.count_unknown(frame), len(frame)))
        else:
            rest = frame if column is None else frame.without([column])
            objects, similarity, notes = _objects_and_kernel(rest, named, scale, given)
        found = inspect(
            objects, similarity, y, task=task, learner=learner, max_evaluations=max_evaluations,
            random_state=seed, verbose=int(sys.stderr.isatty()),
        )  # fmt: skip
    found = replace(found, notes=(*found.notes, *remarks, *notes, *file_warnings, *fit_warnings))
    if html is not None:
        found.report(html, fitted, title=f"{data.name}: a krein report", data=data.name, seconds={"Reading": reading})
    _print(found, html, as_json)


def _print(found: Inspection, html: Path | None, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found.to_dict() | {"html": None if html is None else str(html)}, indent=1))
        return
    click.echo(str(replace(found, kernel=options.rounded(found.kernel))))
    if html is not None:
        click.echo(f"\nReport: {html}, {html.stat().st_size / 1e3:.0f} kB; open it in a browser.")


def _objects_and_kernel(
    frame: Frame, kernel: str, scale: str, given: dict[str, Any]
) -> tuple[Any, Any, tuple[str, ...]]:
    """Return the objects to compare, their kernel, and notes about the columns."""
    import numpy as np

    from krein.kernels.names import kernel_for
    from krein.tables.encoding import encoder_for, mixed_encoder_for, usable_columns
    from krein.tables.model import (
        SPHERE_KERNELS,
        TABLE_KERNELS,
        check_scale,
        comparable_objects,
        kernel_of_columns,
        text_column,
    )
    from krein.tables.reading import is_text

    if kernel == "precomputed":
        if any(is_text(column) for column in frame.columns):
            raise InputError("--kernel precomputed needs a square matrix of numbers; the file holds text.")
        if len(frame) != len(frame.names):
            raise InputError(
                f"--kernel precomputed needs a square matrix of similarities; the file has {len(frame)} rows and "
                f"{len(frame.names)} columns beside the target."
            )
        return np.column_stack(frame.columns), None, ()
    params = given.get("kernel_params", {})
    text = text_column(frame, kernel)
    if text is not None:
        objects, similarity = comparable_objects(frame, text, None, False), kernel_of_columns(kernel, params)
        return objects, similarity, options.unused_columns(frame, text, kernel)
    frame, left_out = usable_columns(frame)
    if kernel in TABLE_KERNELS:
        encoder = mixed_encoder_for(frame)
        return encoder(frame), kernel_of_columns(kernel, params), (*left_out, *encoder.notes)
    check_scale(kernel, scale)
    encoder = encoder_for(frame, scale)
    X = comparable_objects(frame, None, encoder, kernel in SPHERE_KERNELS)
    gamma = given.get("gamma", "scale")  # gamma and coef0 have the defaults of krein fit
    return X, kernel_for(kernel, X, gamma=gamma, coef0=0.0, params=params), (*left_out, *encoder.notes)
