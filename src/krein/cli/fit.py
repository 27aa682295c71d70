"""krein fit: read a file, fit and score a model, save it, print a summary."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krein.cli import options
from krein.cli.choices import MACHINES
from krein.errors import InputError

if TYPE_CHECKING:  # loaded where they are used: see krein.cli
    from krein.tables.model import Model

__all__ = ["command"]

# Tables in these formats can be read in pieces.
TABLES_OF_NUMBERS = ("csv", "tsv", "parquet")
# The plan of a fit that takes more seconds than this is printed before it begins.
PLANNED_SECONDS = 10.0
NOT_JUDGED = "not judged: a fit in pieces uses all rows; keep some in another file and give it to krein predict"


@click.command("fit")
@click.argument("data", type=click.Path(path_type=Path))
@options.table_options("Target column")
@click.option("--machine", type=click.Choice(MACHINES), default="auto", show_default=True,
              help="auto: svm for classification up to 20,000 rows, else ridge.")  # fmt: skip
@options.kernel_options("A number, scale, auto or tune (chosen by score).")
@click.option("-p", "--param", callback=options.parse_settings, multiple=True, metavar="NAME=VALUE",
              help="Parameter of the estimator, such as C=10 or alpha=0.1.")  # fmt: skip
@click.option("--blocks", type=click.IntRange(1), help="Number of blocks.")
@click.option("--rank", type=click.IntRange(1), help="Rank of each block.")
@click.option("--max-error", type=float, help="Relative error allowed in the kernel matrix, such as 0.01.")
@click.option("--max-memory", callback=options.parse_bytes, metavar="BYTES",
              help="Largest size of the factorization, such as 500MB.")  # fmt: skip
@click.option("--memory-limit", callback=options.parse_bytes, metavar="BYTES",
              help="Memory of the fit, such as 2GB. DATA, a table of numbers, is then read in pieces.")  # fmt: skip
@click.option("--workdir", type=click.Path(file_okay=False, path_type=Path),
              help="Folder of a fit with --memory-limit. If it is interrupted, the same command goes on.")  # fmt: skip
@click.option("--folds", type=click.IntRange(0), default=5, show_default=True,
              help="Of the cross-validation, 0 for none. Above 100,000 rows one part is held out instead. With "
              "--memory-limit there is none.")  # fmt: skip
@options.SEED
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path),
              help="Model file, *.krein [default: DATA with that extension].")  # fmt: skip
@options.AS_JSON
def command(
    data: Path, target: str | None, drop: list[str], format_: str | None, task: str, scale: str, machine: str,
    kernel: str | None, gamma: Any, degree: float | None, coef0: float | None, kernel_param: dict[str, Any],
    param: dict[str, Any], blocks: int | None, rank: int | None, max_error: float | None, max_memory: float | None,
    memory_limit: float | None, workdir: Path | None, folds: int, seed: int, output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Fit a model of the target column of DATA, score it by cross-validation and save it.

    DATA is CSV, TSV, Parquet, svmlight, npy, npz (X and y) or text: one text per line, a tab, its label. Columns of
    text become one column per category, missing numbers become the median of their column, and notes say so. If
    --kernel is not given, a table with text or missing values is also compared as it is, by --kernel gower, and the
    better score decides.

    \b
    Examples:
      krein fit digits.csv --target label
      krein fit houses.parquet --target price --max-memory 500MB
      krein fit peptides.txt
      krein fit large.parquet --target y --memory-limit 2GB --workdir large.work
      krein fit digits.csv --kernel tl1 -k rho=3 -p C=10 --output digits.krein --json
    """
    from krein.persistence import save
    from krein.tables.model import learn
    from krein.tables.reading import file_format, read_with_target

    kind = file_format(data, format_)
    output = output or data.with_suffix(".krein")
    options.check_writable(output, data, suffix=".krein")
    tuned = any(value is not None for value in (gamma, degree, coef0, memory_limit)) or bool(kernel_param)
    kernel, remarks = options.default_kernel(kernel, kind, "rbf" if tuned else "auto")
    given = {"kernel": kernel, "n_blocks": blocks, "rank": rank, "max_error": max_error, "max_memory": max_memory}
    parameters = {name: value for name, value in given.items() if value is not None} | param
    parameters |= options.kernel_parameters(kernel, gamma, degree, coef0, kernel_param)
    terminal = sys.stderr.isatty()
    shaped: dict[str, Any] = {
        "task": task,
        "machine": machine,
        "scale": scale,
        "random_state": seed,
        "verbose": int(terminal),
    }
    if memory_limit is not None:
        model, n, fit_warnings = _in_pieces(data, kind, drop, target, memory_limit, workdir, parameters, shaped)
        save(model, output)
        _tell(summary(model, n, output), data, (*remarks, NOT_JUDGED), fit_warnings, as_json)
        return
    if workdir is not None:
        raise InputError("--workdir is for a fit in pieces. Give --memory-limit too, such as --memory-limit 2GB.")
    with options.collected_warnings() as file_warnings:
        frame, column = read_with_target(data, kind, target, drop, task)
    if rank is not None and rank > len(frame):
        raise InputError(f"--rank is at most the number of rows, {len(frame)}; got {rank}.")
    with options.collected_warnings() as fit_warnings:
        model = learn(
            frame, column, folds=folds, progress=lambda line: None if terminal else click.echo(line, err=True),
            parameters=parameters, **shaped,
        )  # fmt: skip
    save(model, output)
    made = model.encoder.notes if model.encoder else options.unused_columns(frame.without([column]), model.text, kernel)
    _tell(summary(model, len(frame), output), data, (*remarks, *made, *file_warnings), fit_warnings, as_json)


def _tell(facts: dict[str, Any], data: Path, notes: tuple[str, ...], fit_warnings: list[str], as_json: bool) -> None:
    """Print the summary of a model."""
    if as_json:
        click.echo(json.dumps(facts | {"notes": list(notes), "warnings": fit_warnings}, indent=1))
        return
    lines = [*_lines(facts, data), *(f"  note      {note}" for note in notes)]
    for line in [*lines, *(f"  warning   {options.rounded(warning)}" for warning in fit_warnings)]:
        click.echo(line)
    click.echo(f"\nNext: krein predict {facts['model']} FILE")


def _in_pieces(
    data: Path, kind: str, drop: list[str], target: str | None, memory_limit: float, workdir: Path | None,
    parameters: dict[str, Any], shaped: dict[str, Any],
) -> tuple[Model, int, list[str]]:  # fmt: skip
    """Fit a model of a table that is read in pieces; a plan that takes long is printed first."""
    from krein.tables.outside import learn_in_pieces
    from krein.tables.reading import chunks, target_column

    if kind not in TABLES_OF_NUMBERS:
        raise InputError(
            f"With --memory-limit DATA must be a table of numbers in {', '.join(TABLES_OF_NUMBERS)}; {data.name} is "
            f"{kind}. Leave out --memory-limit, or write it as Parquet."
        )
    first = next(chunks(data, kind, 1)).without(drop)
    column = target_column(first, target)

    def planned(plan: Any) -> None:
        if plan.seconds > PLANNED_SECONDS:
            click.echo(f"{plan}\n", err=True)

    with options.collected_warnings() as fit_warnings:
        model, n = learn_in_pieces(
            data, column, columns=[name for name in first.names if name != column], memory_limit=memory_limit,
            workdir=workdir, parameters=parameters, planned=planned, **shaped,
        )  # fmt: skip
    return model, n, fit_warnings


def summary(model: Model, n: int, path: Path) -> dict[str, Any]:
    """Return the facts about a fitted model as plain values."""
    from krein.report.summary import is_exact, kernel_of, matrix_of

    e, score = model.estimator, model.score
    matrix = matrix_of(e) if is_exact(e) else None
    kernel = kernel_of(e)
    f = None if matrix is not None else e.approximation_.factorization
    error = float(e.relative_error_)
    return {
        "model": str(path),
        "file_bytes": path.stat().st_size,
        "machine": type(e).__name__,
        "task": model.task,
        "target": model.target,
        "rows": n,
        "features": len(model.encoder.names) if model.encoder else None,
        "kernel": kernel,
        "exact": f is None,
        "matrix": matrix,
        "score": None if score is None else {
            "name": score.name, "mean": score.mean, "standard_error": score.error, "values": list(score.values),
            "baseline": score.baseline,
        },
        "blocks": None if f is None else len(f.bases),
        "directions": None if f is None else int(f.rank),
        "bytes": None if f is None else int(f.nbytes),
        "full_matrix_bytes": 8 * n**2,
        "relative_error": error if math.isfinite(error) else None,
        "correction": e.correction_,
        "n_negative": int(e.n_negative_),
        "converged": bool(getattr(e, "converged_", True)),
        "seconds": model.seconds,
    }  # fmt: skip


def _lines(facts: dict[str, Any], data: Path) -> list[str]:
    """Return the summary as lines of text."""
    from krein.errors import si

    features = f", {_count(facts['features'], 'feature')}" if facts["features"] else ""
    lines = [f"{facts['machine']} of {facts['target']!r} from {facts['rows']} rows of {data.name}{features}"]
    if facts["score"]:
        lines.append(f"  {facts['score']['name']:<9} {_scored(facts['score'])}")
    error, negative, seconds = facts["relative_error"], facts["n_negative"], facts["seconds"]
    matrix = facts["matrix"]
    if matrix is None:
        share = 100 * facts["bytes"] / facts["full_matrix_bytes"]
        matrix = (
            f"{_count(facts['blocks'], 'block')}, {_count(facts['directions'], 'direction')}, {si(facts['bytes'])} "
            f"({share:.3g} % of the whole), relative error {'not known' if error is None else f'{error:.2g}'}"
        )
    corrected = "left as they are" if facts["correction"] == "none" else f"correction {facts['correction']}"
    judged = f"{seconds['judging']:.1f} s to judge it, " if facts["score"] else ""
    lines += [
        f"  kernel    {options.rounded(facts['kernel'])}",
        f"  matrix    {matrix}",
        f"  spectrum  {_count(negative, 'negative eigenvalue')}{', ' + corrected if negative else ''}",
        f"  time      {judged}{seconds['fitting']:.1f} s to fit it",
        f"  saved     {facts['model']}, {si(facts['file_bytes'])}",
    ]
    return lines


def _scored(score: dict[str, Any]) -> str:
    """Return the mean score with its standard error, its method, and the score of a constant prediction."""
    accuracy, parts = score["name"] == "accuracy", len(score["values"])

    def shown(value: float) -> str:
        return f"{100 * value:.2f} %" if accuracy else f"{value:.4f}"

    error = "" if score["standard_error"] is None else f" ± {shown(score['standard_error'])}"
    how = f"{parts} folds" if parts > 1 else "one part held out"
    base = f"always {'the commonest class' if accuracy else 'the mean'}: {shown(score['baseline'])}"
    return f"{shown(score['mean'])}{error} ({how}; {base})"


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'s' * (number != 1)}"
