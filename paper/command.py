"""The command krein reproduce, or python -m paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from krein.cli import Stopped, Unfinished

__all__ = ["command"]

# What the options may be. The modules that give the names their meaning load scikit-learn, for which help and
# completion need not wait; a test compares.
KERNELS = ("rbf", "elm", "poly", "tl1")
DATASETS = ("spambase", "artificial1", "cpusmall", "gesture", "artificial2", "pendigit")
EXPERIMENTS = ("errors", "eigenvalues", "classification", "costs", "features", "bounds", "claims", "nested", "figures")
NO_MATTER = {"output", "report_only", "as_json"}


def _names(known: tuple[str, ...]) -> Any:
    """A comma-separated list of known names."""

    def parse(_context: Any, _parameter: Any, value: str | None) -> tuple[str, ...]:
        return known if value is None else tuple(name.strip() for name in value.split(",") if name.strip())

    return parse


@click.command("reproduce")
@click.argument("what", type=click.Choice([*EXPERIMENTS, "all"]), nargs=-1, required=True)
@click.option("--datasets", callback=_names(DATASETS), help="Comma-separated; by default all six.")
@click.option("--kernels", callback=_names(KERNELS), help="Comma-separated, of rbf, elm, poly, tl1; by default all.")
@click.option("--seeds", type=click.IntRange(1), help="Runs per cell; by default each experiment's own number.")
@click.option("--quick", is_flag=True, help="Few rows and settings: shows that it works, in minutes.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default=Path("results/paper"),
              show_default="./results/paper", help="Folder for tables, reports and figures.")  # fmt: skip
@click.option("--n-jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes, about 3 GB each.")
@click.option("--report-only", is_flag=True, help="Write the reports of what is there, and compute nothing.")
@click.option("--force", is_flag=True, help="Compute again what is there already.")
@click.option("--json", "as_json", is_flag=True,
              help="Print one JSON list at the end; what is said on the way goes to stderr.")  # fmt: skip
def command(
    what: tuple[str, ...], datasets: tuple[str, ...], kernels: tuple[str, ...], seeds: int | None, quick: bool,
    output: Path, n_jobs: int, force: bool, report_only: bool, as_json: bool,
) -> None:  # fmt: skip
    """Make the paper's tables and figures, theirs and ours side by side.

    Every finished piece is kept: after Ctrl-C, a kill or a power cut the same command goes on where it stopped.

    \b
    WHAT is one or more of
      errors            supplement, Table 4, and the memory column
      eigenvalues       Sec. 3.3 and supplement 3
      classification    Table 3
      costs             Table 2
      features          the introduction's claim on random features
      bounds            Sec. 4.2
      claims            statements that no table of the paper measures
      nested            Table 3 with every fold tuned by a grid, which takes hours
      figures           all figures, PNG and SVG
      all               all of these but nested

    \b
    Examples:
      krein reproduce all --quick --n-jobs 2
      krein reproduce errors --datasets pendigit,gesture --kernels rbf,elm
      krein reproduce classification --n-jobs 2
      krein reproduce all --report-only --json
    """
    from paper.protocol import Request
    from paper.reproduce import reproduce

    every = tuple(name for name in EXPERIMENTS if name != "nested" or name in what)
    names = every if "all" in what else tuple(dict.fromkeys(what))
    command = " ".join(["krein reproduce", *what, *_flags()])
    request = Request(
        output, datasets=datasets, kernels=kernels, seeds=seeds, quick=quick, n_jobs=n_jobs, force=force,
        report_only=report_only, command=command,
    )  # fmt: skip
    found: list[dict[str, Any]] = []
    try:
        trouble = reproduce(names, request, lambda line: click.echo(line, err=as_json), found.append)
    except KeyboardInterrupt:
        again = "the same command without --force" if force else "the same command"
        raise Stopped(f"Stopped. Every finished piece is kept; {again} goes on from there.") from None
    if as_json:
        click.echo(json.dumps(found, indent=1))
    if trouble:
        raise Unfinished("\n".join(trouble))


def _flags() -> list[str]:
    """The options of this call as they were typed, but for those of no account for the result."""
    context = click.get_current_context()
    given = []
    for parameter in context.command.params:
        typed = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if isinstance(parameter, click.Option) and typed and parameter.name not in NO_MATTER:
            value = context.params[parameter.name or ""]
            shown = ",".join(value) if isinstance(value, tuple) else value
            given.append(parameter.opts[-1] if parameter.is_flag else f"{parameter.opts[-1]} {shown}")
    return given
