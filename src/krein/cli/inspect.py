"""krein inspect."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from krein.cli.fit import parsed, settings
from krein.encoding import SCALES, encoder_for
from krein.errors import InputError
from krein.estimators.naming import NAMES, kernel_for
from krein.inspection import Inspection
from krein.inspection import inspect as look
from krein.model import CLASSES, ON_SPHERE, ON_TEXT, TASKS, Model
from krein.persistence import load
from krein.reading import FORMATS, Frame, format_of, is_text, read

__all__ = ["command"]

KERNELS = sorted({*NAMES, *ON_TEXT, "precomputed"})
TARGETS = ("target", "label", "y", "class")  # columns that are taken for it without being named


@click.command("inspect")
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--target", help="Column with labels or numbers, by name or number from 0, to compare corrections by; "
              "by default 'target', 'label', 'y' or 'class', if there is one.")  # fmt: skip
@click.option("--drop", multiple=True, help="Column to leave out; may be given several times, or comma-separated.")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Of DATA; by default its extension says.")
@click.option("--kernel", type=click.Choice(KERNELS), metavar="NAME",
              help=f"One of {', '.join(KERNELS)}; by default rbf. precomputed: DATA is a square matrix.")  # fmt: skip
@click.option("--gamma", help="A number, scale or auto.")
@click.option("--degree", type=float)
@click.option("--coef0", type=float)
@click.option("-k", "--kernel-param", callback=settings, multiple=True, metavar="NAME=VALUE",
              help="Further parameter of the kernel, as rho=3.")  # fmt: skip
@click.option("--scale", type=click.Choice(SCALES), default="standard", show_default=True,
              help="Columns to mean 0 and spread 1, to [0, 1], or as they are.")  # fmt: skip
@click.option("--task", type=click.Choice(TASKS), default="auto", show_default=True)
@click.option("--learner", type=click.Choice(["svm", "ridge"]), default="svm", show_default=True,
              help="By which corrections are compared.")  # fmt: skip
@click.option("--max-evaluations", type=click.IntRange(1), help="Similarities that may be evaluated.")
@click.option("--model", type=click.Path(path_type=Path), help="A model that krein fit saved: its kernel is inspected "
              "on DATA, and its own findings are in the report.")  # fmt: skip
@click.option(
    "--html", type=click.Path(dir_okay=False, path_type=Path), help="Write an interactive report to this file."
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def command(
    data: Path, target: str | None, drop: tuple[str, ...], format_: str | None, kernel: str | None, gamma: str | None,
    degree: float | None, coef0: float | None, kernel_param: dict[str, Any], scale: str, task: str, learner: str,
    max_evaluations: int | None, model: Path | None, html: Path | None, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Look at a similarity through a sample of DATA: how indefinite it is, how it clusters, what it would cost.

    With a target every correction is tried on rows left out. DATA is what krein fit reads: CSV, TSV, Parquet, svmlight,
    npy, npz or text.

    \b
    Examples:
      krein inspect digits.csv --kernel tl1 --html report.html
      krein inspect digits.csv --target label --kernel sigmoid -k coef0=-1
      krein inspect peptides.txt --kernel edit --max-evaluations 250000
      krein inspect digits.csv --model digits.krein --html report.html
      krein inspect similarities.npy --kernel precomputed --json
    """
    if html is not None and not html.parent.is_dir():  # now, rather than after all the work
        raise InputError(f"{html} cannot be written: there is no folder {html.parent}. Make it first.")
    begin = time.perf_counter()
    frame = read(data, format_of(data, format_)).without([n for d in drop for n in d.split(",") if n])
    reading = time.perf_counter() - begin
    notes: tuple[str, ...] = ()
    fitted: Model | None = None
    if model is not None:
        fitted = _loaded(model)
        if any(option is not None for option in (kernel, gamma, degree, coef0)) or kernel_param:
            raise InputError("--model brings its own kernel; leave out --kernel and its parameters.")
        objects, compares = fitted.objects(frame), fitted.estimator.approximation_.kernel
        y = frame[fitted.target] if fitted.target in frame.names else None
        task = fitted.task
    else:
        column = _target(frame, target)
        y, rest = (None, frame) if column is None else (frame[column], frame.without([column]))
        options = {"gamma": gamma if gamma is None else parsed(gamma), "degree": degree, "coef0": coef0}
        objects, compares, notes = _compared(rest, kernel or "rbf", scale, options, kernel_param)
    y, task = _values(y, task)
    found = look(
        objects, compares, y, task=task, learner=learner, max_evaluations=max_evaluations,
        random_state=seed, verbose=int(sys.stderr.isatty()),
    )  # fmt: skip
    found = replace(found, notes=found.notes + notes)
    if html is not None:
        found.report(html, fitted, title=f"{data.name}: a krein report", data=data.name, seconds={"Reading": reading})
    _say(found, html, as_json)


def _say(found: Inspection, html: Path | None, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found.to_dict() | {"html": None if html is None else str(html)}, indent=1))
        return
    click.echo(str(found))
    if html is not None:
        click.echo(f"\nReport: {html}, {html.stat().st_size / 1e3:.0f} kB; open it in a browser.")


def _loaded(path: Path) -> Model:
    found = load(path)
    if not isinstance(found, Model):
        raise InputError(f"{path} holds a {type(found).__name__}, which knows no columns; use its report() in Python.")
    return found


def _target(frame: Frame, asked: str | None) -> str | None:
    if asked is not None:
        return asked
    found = [name for name in frame.names if name.lower() in TARGETS]
    return found[0] if len(found) == 1 and len(frame.names) > 1 else None


def _values(y: Any, task: str) -> tuple[Any, str]:
    """The target as the inspection takes it, and what it is: by the rule of krein fit."""
    if y is None:
        return None, "auto"
    if is_text(y):
        if task == "regression":
            raise InputError("The target holds text, which cannot be regressed on. Use --task classification.")
        if absent := int(np.sum(y == "")):
            raise InputError(f"The target is missing in {absent} of {len(y)} rows. Remove those rows first.")
        return y.astype(str), "classification"
    if not np.isfinite(y).all():
        raise InputError(
            f"The target is missing in {int((~np.isfinite(y)).sum())} of {len(y)} rows. Remove them first."
        )
    if task == "auto":
        few = bool(np.all(y == np.round(y))) and len(np.unique(y)) <= CLASSES
        task = "classification" if few else "regression"
    return (y if task == "classification" else y - y.mean()), task


def _compared(
    frame: Frame, kernel: str, scale: str, options: dict[str, Any], params: dict[str, Any]
) -> tuple[Any, Any, tuple[str, ...]]:
    """What is compared, by what, and what was done to the columns."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if given and (kernel in ON_TEXT or kernel == "precomputed"):
        raise InputError(f"--kernel {kernel} has no {', '.join(given)}; its parameters are given with -k NAME=VALUE.")
    if kernel == "precomputed":
        if any(is_text(column) for column in frame.columns):
            raise InputError("--kernel precomputed needs a square matrix of numbers; the file holds text.")
        return np.column_stack(frame.columns), None, ()
    if kernel in ON_TEXT:
        try:
            return _texts(frame, kernel), ON_TEXT[kernel](**params), ()
        except TypeError as error:
            raise InputError(f"--kernel {kernel}: {error}.") from None
    encoder = encoder_for(frame, scale)
    X = encoder(frame)
    if kernel in ON_SPHERE:
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
        X = X / np.where(lengths > 0.0, lengths, 1.0)
    usual: dict[str, Any] = {"gamma": "scale", "coef0": 0.0}  # as in krein fit
    bound = kernel_for(kernel, X, **usual | given, params=params or None)
    return X, bound, encoder.notes


def _texts(frame: Frame, kernel: str) -> list[str]:
    found = [column for column in frame.columns if is_text(column)]
    if len(found) != 1:
        raise InputError(
            f"--kernel {kernel} compares texts, so the file must have one column of text beside the target; it has "
            f"{len(found)}. Leave the others out with --drop."
        )
    texts: list[str] = found[0].tolist()
    return texts
