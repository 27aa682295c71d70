"""krein fit."""

from __future__ import annotations

import json
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from krein.encoding import SCALES
from krein.errors import InputError, KreinWarning
from krein.estimators.naming import NAMES
from krein.model import MACHINES, ON_TEXT, TASKS, Model, learn
from krein.persistence import save
from krein.reading import FORMATS, format_of, read

__all__ = ["command"]

KERNELS = (*sorted(NAMES), *ON_TEXT)
UNITS = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}


def nbytes(_context: Any, _parameter: Any, value: str | None) -> float | None:
    """500MB, 2GiB or 1e9, as a number."""
    if value is None:
        return None
    text = value.strip().lower()
    number = text.rstrip("bgikm ")
    try:
        return float(number) * UNITS[text[len(number) :].strip()]
    except (ValueError, KeyError):
        raise click.BadParameter(f"{value!r} is not a number of bytes; write 500MB, 2GiB or 1e9.") from None


def settings(_context: Any, _parameter: Any, values: tuple[str, ...]) -> dict[str, Any]:
    """name=value, where value is a number, true, false, none or a word."""
    found = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"{value!r} must be of the form name=value.")
        found[name] = parsed(text)
    return found


def parsed(text: str) -> Any:
    """A number, true, false, none, or else the word itself."""
    word = text.strip().lower()
    if word in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[word]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip()


@click.command("fit")
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--target", help="Column to learn: its name, or its number from 0 (-1: the last). "
              "By default 'target', 'label', 'y' or 'class', if there is one.")  # fmt: skip
@click.option("--drop", multiple=True, help="Column to leave out; may be given several times, or comma-separated.")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Of DATA; by default its extension says.")
@click.option("--task", type=click.Choice(TASKS), default="auto", show_default=True)
@click.option("--machine", type=click.Choice(MACHINES), default="auto", show_default=True,
              help="auto: svm for classes up to 20,000 rows, else ridge.")  # fmt: skip
@click.option("--kernel", type=click.Choice(KERNELS), default="rbf", show_default=True, metavar="NAME",
              help=f"One of {', '.join(KERNELS)}.")  # fmt: skip
@click.option("--gamma", help="A number, scale, auto or tune (found by score).")
@click.option("--degree", type=float)
@click.option("--coef0", type=float)
@click.option(
    "-k",
    "--kernel-param",
    callback=settings,
    multiple=True,
    metavar="NAME=VALUE",
    help="Further parameter of the kernel, as rho=3.",
)
@click.option(
    "-p",
    "--param",
    callback=settings,
    multiple=True,
    metavar="NAME=VALUE",
    help="Parameter of the machine, as C=10 or alpha=0.1.",
)
@click.option("--scale", type=click.Choice(SCALES), default="standard", show_default=True,
              help="Columns to mean 0 and spread 1, to [0, 1], or as they are.")  # fmt: skip
@click.option("--blocks", type=click.IntRange(1), help="Number of blocks.")
@click.option("--rank", type=click.IntRange(1), help="Rank of each block.")
@click.option("--max-error", type=float, help="Relative error of the matrix that is asked for.")
@click.option("--max-memory", callback=nbytes, metavar="BYTES", help="Bytes the factored matrix may take, as 500MB.")
@click.option("--folds", type=click.IntRange(0), default=5, show_default=True,
              help="Of the cross-validation; 0: none. Above 100,000 rows one such part is held out.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Model file; by default DATA.krein.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def command(
    data: Path, target: str | None, drop: tuple[str, ...], format_: str | None, task: str, machine: str, kernel: str,
    gamma: str | None, degree: float | None, coef0: float | None, kernel_param: dict[str, Any],
    param: dict[str, Any], scale: str, blocks: int | None, rank: int | None, max_error: float | None,
    max_memory: float | None, folds: int, seed: int, output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Learn the TARGET column of DATA, judge the model on rows it has not seen, save it.

    DATA is CSV, TSV, Parquet, svmlight, npy, npz (X and y) or text: one text per line, a tab, its label. Columns of
    text become one column per category, missing numbers the median of their column; what was done is said.

    \b
    Examples:
      krein fit digits.csv --target label
      krein fit houses.parquet --target price --max-memory 500MB
      krein fit peptides.txt --kernel edit
      krein fit digits.csv --kernel tl1 -k rho=3 -p C=10 --output digits.krein --json
    """
    output = output or data.with_suffix(".krein")
    frame = read(data, format_of(data, format_)).without([n for d in drop for n in d.split(",") if n])
    given = {
        "kernel": kernel, "gamma": None if gamma is None else parsed(gamma), "degree": degree, "coef0": coef0,
        "n_blocks": blocks, "rank": rank, "max_error": max_error, "max_memory": max_memory,
        "kernel_params": kernel_param or None,
    }  # fmt: skip
    parameters = {name: value for name, value in given.items() if value is not None} | param
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KreinWarning)
        model = learn(
            frame, _target(frame.names, target), task=task, machine=machine, scale=scale, folds=folds,
            random_state=seed, verbose=int(sys.stderr.isatty()), parameters=parameters,
        )  # fmt: skip
    save(model, output)
    said = list(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, KreinWarning)))
    facts = summary(model, len(frame), output)
    if as_json:
        click.echo(json.dumps(facts | {"notes": list(_notes(model)), "warnings": said}, indent=1))
        return
    for line in _lines(model, facts, data):
        click.echo(line)
    for note in _notes(model):
        click.echo(f"  note      {note}")
    for warning in said:
        click.echo(f"  warning   {warning}")
    click.echo(f"\nNext: krein predict {output} FILE")


def _target(names: tuple[str, ...], asked: str | None) -> str:
    if asked is not None:
        return asked
    found = [name for name in names if name.lower() in ("target", "label", "y", "class")]
    if len(found) == 1:
        return found[0]
    raise InputError(
        f"Which column is to be learned? Give --target, one of {', '.join(names[:12])}{', ...' * (len(names) > 12)}."
    )


def summary(model: Model, n: int, path: Path) -> dict[str, Any]:
    """What happened, in plain values."""
    e = model.estimator
    f = e.approximation_.factorization
    score = model.score
    error = float(e.relative_error_)
    return {
        "model": str(path),
        "file_bytes": path.stat().st_size,
        "machine": type(e).__name__,
        "task": model.task,
        "target": model.target,
        "rows": n,
        "features": len(model.encoder.names) if model.encoder else None,
        "kernel": repr(e.approximation_.kernel),
        "score": None if score is None else {
            "name": score.name, "mean": score.mean, "standard_error": score.error, "values": list(score.values),
            "baseline": score.baseline,
        },
        "blocks": len(f.bases),
        "directions": int(sum(b.shape[1] for b in f.bases)),
        "bytes": int(f.nbytes),
        "full_matrix_bytes": 8 * n**2,
        "relative_error": error if math.isfinite(error) else None,
        "correction": e.correction_,
        "n_negative": int(e.n_negative_),
        "converged": bool(getattr(e, "converged_", True)),
        "seconds": model.seconds,
    }  # fmt: skip


def _lines(model: Model, facts: dict[str, Any], data: Path) -> list[str]:
    """The summary for people."""
    score = facts["score"]
    lines = [f"{facts['machine']} of {facts['target']!r} from {facts['rows']} rows of {data.name}"]
    if facts["features"]:
        lines[0] += f", {facts['features']} features"
    if score:
        parts = len(score["values"])
        how = f"{parts} folds" if parts > 1 else "one part held out"
        shown = _percent if score["name"] == "accuracy" else _digits
        base = "the commonest class" if score["name"] == "accuracy" else "the mean"
        lines.append(
            f"  {score['name']:<9} {shown(score['mean'])} ± {shown(score['standard_error'])} "
            f"({how}; always {base}: {shown(score['baseline'])})"
        )
    share = 100 * facts["bytes"] / facts["full_matrix_bytes"]
    lines += [
        f"  kernel    {facts['kernel']}",
        f"  matrix    {facts['blocks']} blocks, {facts['directions']} directions, {facts['bytes'] / 1e6:.3g} MB "
        f"({share:.3g} % of the whole), relative error {facts['relative_error']:.2g}",
        f"  psd       correction {facts['correction']}, {facts['n_negative']} negative eigenvalues before it",
        f"  time      {facts['seconds']['judging']:.1f} s to judge it, {facts['seconds']['fitting']:.1f} s to fit it",
        f"  saved     {facts['model']}, {facts['file_bytes'] / 1e6:.3g} MB",
    ]
    return lines


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _digits(value: float) -> str:
    return f"{value:.4f}"


def _notes(model: Model) -> tuple[str, ...]:
    return model.encoder.notes if model.encoder else ()
