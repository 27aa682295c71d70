"""krein inspect."""

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

FEW = 10  # rows below which what is learned from some says nothing of the others


@click.command("inspect")
@click.argument("data", type=click.Path(path_type=Path))
@options.table_options("Column with labels or numbers to compare corrections and ranks by")
@options.kernel_options("A number, scale or auto.", "precomputed")
@click.option("--learner", type=click.Choice(["svm", "ridge"]), default="svm", show_default=True,
              help="By which corrections are compared.")  # fmt: skip
@click.option("--max-evaluations", type=click.IntRange(1), help="Similarities that may be evaluated.")
@click.option("--model", type=click.Path(path_type=Path), help="A model that krein fit saved: its kernel is inspected "
              "on DATA, and its own findings are in the report.")  # fmt: skip
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path),
              help="Write an interactive report to this file.")  # fmt: skip
@options.SEED
@options.AS_JSON
def command(
    data: Path, target: str | None, drop: tuple[str, ...], format_: str | None, task: str, scale: str,
    kernel: str | None, gamma: Any, degree: float | None, coef0: float | None, kernel_param: dict[str, Any],
    learner: str, max_evaluations: int | None, model: Path | None, html: Path | None, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Look at a similarity through a sample of DATA: how indefinite it is, how it clusters, what it would cost.

    With a target every correction is tried on rows left out, and every rank, to see whether a small one can do. DATA is
    what krein fit reads: CSV, TSV, Parquet, svmlight, npy, npz or text.

    \b
    Examples:
      krein inspect digits.csv --kernel tl1 --html report.html
      krein inspect digits.csv --target label --kernel sigmoid -k coef0=-1
      krein inspect peptides.txt --max-evaluations 250000
      krein inspect digits.csv --model digits.krein --html report.html
      krein inspect similarities.npy --kernel precomputed --json
    """
    from krein.inspection import inspect as look
    from krein.tables.model import answers, target_of
    from krein.tables.reading import format_of, read

    options.writable(html, data, *([] if model is None else [model]), suffix=".html", what="report")
    kind = format_of(data, format_)
    named, remarks = options.kernel_default(kernel, kind) if model is None else ("rbf", ())
    given = options.kernel_parameters(named, gamma, degree, coef0, kernel_param)
    if model is not None and (kernel is not None or given):
        raise InputError("--model brings its own kernel; leave out --kernel and its parameters.")
    fitted = None if model is None else options.loaded(model)
    begin = time.perf_counter()
    with options.warned() as of_file:
        frame = options.dropped(read(data, kind, fitted.texts if fitted else ()), drop)
    reading = time.perf_counter() - begin
    column = target_of(frame.names, target) if target is not None or len(frame.names) > 1 else None
    if fitted is not None:
        column, task = (fitted.target if fitted.target in frame.names else None), fitted.task
    y = None
    if column is not None:
        y, task = answers(frame[column], column, task)
        y = y - y.mean() if task == "regression" else y
    if y is not None and len(y) < FEW:
        remarks = (*remarks, f"{len(y)} rows are too few to compare corrections and ranks by; it takes {FEW}")
        y = None
    with options.warned() as said:
        notes: tuple[str, ...] = ()
        if fitted is not None:
            objects, compares = fitted.objects(frame), fitted.estimator._kernel
            if fitted.encoder is not None:
                notes = tuple(fitted.encoder.told(fitted.encoder.odd(frame), len(frame)))
        else:
            rest = frame if column is None else frame.without([column])
            objects, compares, notes = _compared(rest, named, scale, given)
        found = look(
            objects, compares, y, task=task, learner=learner, max_evaluations=max_evaluations,
            random_state=seed, verbose=int(sys.stderr.isatty()),
        )  # fmt: skip
    found = replace(found, notes=(*found.notes, *remarks, *notes, *of_file, *said))
    if html is not None:
        found.report(html, fitted, title=f"{data.name}: a krein report", data=data.name, seconds={"Reading": reading})
    _say(found, html, as_json)


def _say(found: Inspection, html: Path | None, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found.to_dict() | {"html": None if html is None else str(html)}, indent=1))
        return
    click.echo(str(replace(found, kernel=options.short(found.kernel))))
    if html is not None:
        click.echo(f"\nReport: {html}, {html.stat().st_size / 1e3:.0f} kB; open it in a browser.")


def _compared(frame: Frame, kernel: str, scale: str, given: dict[str, Any]) -> tuple[Any, Any, tuple[str, ...]]:
    """What is compared, by what, and what was done to the columns."""
    import numpy as np

    from krein.kernels.names import kernel_for
    from krein.tables.encoding import encoder_for
    from krein.tables.model import ON_SPHERE, objects_of, text_column, text_kernel
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
        return objects_of(frame, text, None, False), text_kernel(kernel, params), options.unused(frame, text, kernel)
    encoder = encoder_for(frame, scale)
    X = objects_of(frame, None, encoder, kernel in ON_SPHERE)
    gamma = given.get("gamma", "scale")  # this and coef0 as in krein fit
    return X, kernel_for(kernel, X, gamma=gamma, coef0=0.0, params=params), encoder.notes
