"""The command line: words in, one public function called, one value printed.

A mistake of the user's (any ValueError, or a file that cannot be written) is one sentence and exit code 2.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

import krein
from krein.display import check_matplotlib
from krein.experiments import demo as demonstration
from krein.experiments.paper import DATASETS, KERNELS
from krein.experiments.reproduce import EXPERIMENTS
from krein.experiments.reproduce import reproduce as run_experiments
from krein.experiments.running import Request

__all__ = ["main"]


class Mistake(click.ClickException):
    """Said in one line on stderr, without a traceback."""

    exit_code = 2


class Commands(click.Group):
    """A group whose commands may raise ValueError and OSError for what a user can put right."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ValueError, OSError) as error:
            raise Mistake(" ".join(str(error).split()) or type(error).__name__) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(krein.__version__, prog_name="krein")
def main() -> None:
    r"""Kernel methods for any symmetric similarity, on data too large for an n x n matrix.

    \b
    Start here:
      krein demo              what it does, on small data, in under a minute
      krein demo --help       its options
      krein reproduce --help  the paper's tables and figures, rebuilt
    """


@main.command()
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("krein-demo"),
    show_default="./krein-demo",
    help="Folder for the pictures; made if it does not exist.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="For everything random.")
@click.option("--quick", is_flag=True, help="Fewer rows: a few seconds.")
def demo(output: Path, seed: int, quick: bool) -> None:
    r"""Approximate four kernels on two data sets in both couplings, print one table, save two pictures.

    Then krein chooses blocks and rank by itself, for a given error. The data are scikit-learn's handwritten digits and
    a generated mixture: no download. The same seed gives the same table, but for the times.

    \b
    Examples:
      krein demo
      krein demo --quick --output /tmp/demo
      krein demo --seed 7
    """
    begin = time.perf_counter()
    check_matplotlib()  # now, rather than after all the work
    output.mkdir(parents=True, exist_ok=True)
    click.echo("Similarities between n rows make an n x n matrix, which soon is too large to hold. krein keeps a small")
    click.echo("factorization instead. Here it does so for four kernels on two data sets, with fixed blocks and rank,")
    click.echo("in two ways: coupling='pairwise' is the paper's, coupling='shared' is krein's own and the default.\n")
    steps = demonstration.STEPS
    with tqdm(total=steps, disable=None, leave=False, unit="step") as bar:  # None: only on a terminal; on stderr

        def step(what: str) -> None:
            bar.set_description(what)
            bar.update()

        found = demonstration.run(seed, quick, step)
        step("pictures")
        saved = demonstration.pictures(found, output)
    click.echo(demonstration.table(found))
    click.echo(f"\n{demonstration.choice(found)}")
    for note in found.notes:
        click.echo(f"\nNote: {note}")
    click.echo("\nPictures:")
    for path, what in saved.items():
        click.echo(f"  {path}\n      {what}")
    click.echo(f"\nDone in {time.perf_counter() - begin:.0f} s, most of it for checking the errors and drawing.")


def _names(known: tuple[str, ...]) -> Any:
    """A comma-separated list of known names."""

    def parse(_context: Any, _parameter: Any, value: str | None) -> tuple[str, ...]:
        return known if value is None else tuple(name.strip() for name in value.split(",") if name.strip())

    return parse


@main.command()
@click.argument("what", type=click.Choice([*EXPERIMENTS, "all"]), nargs=-1, required=True)
@click.option("--datasets", callback=_names(DATASETS), help="Comma-separated; by default all six.")
@click.option("--kernels", callback=_names(KERNELS), help="Comma-separated, of rbf, elm, poly, tl1; by default all.")
@click.option("--seeds", type=click.IntRange(1), help="Runs per cell; by default each experiment's own number.")
@click.option("--quick", is_flag=True, help="Few rows and settings: shows that it works, in minutes.")
@click.option("--tune", type=click.Choice(["typical", "nested"]), default="typical", show_default=True,
              help="classification: the paper's typical hyperparameters, or its nested grid (days).")  # fmt: skip
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default=Path("results/paper"),
              show_default="./results/paper", help="Folder for tables, reports and figures.")  # fmt: skip
@click.option("--n-jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes, about 3 GB each.")
@click.option("--force", is_flag=True, help="Compute again what is there already.")
def reproduce(
    what: tuple[str, ...], datasets: tuple[str, ...], kernels: tuple[str, ...], seeds: int | None, quick: bool,
    tune: str, output: Path, n_jobs: int, force: bool,
) -> None:  # fmt: skip
    r"""Make the paper's tables and figures, theirs and ours side by side.

    Every finished piece is kept: after Ctrl-C, a kill or a power cut the same command goes on where it stopped.

    \b
    WHAT is one or more of
      errors            supplement, Table 4, and the memory column
      eigenvalues       Sec. 3.3 and supplement 3
      classification    Table 3
      costs             Table 2
      features          the introduction's claim on random features
      bounds            Sec. 4.2
      figures           all figures, PNG and SVG
      all               all of these

    \b
    Examples:
      krein reproduce all --quick --n-jobs 2
      krein reproduce errors --datasets pendigit,gesture --kernels rbf,elm
      krein reproduce classification --n-jobs 2
    """
    names = tuple(EXPERIMENTS) if "all" in what else tuple(dict.fromkeys(what))
    command = " ".join(["krein reproduce", *what, *_flags()])
    request = Request(
        datasets, kernels, output, seeds=seeds, quick=quick, tune=tune, n_jobs=n_jobs, force=force, command=command
    )
    trouble = run_experiments(names, request, click.echo)
    if trouble:
        raise Mistake("\n".join(trouble))


def _flags() -> list[str]:
    """The options of this call as they were typed, but for the folder: it is of no account for the result."""
    context = click.get_current_context()
    given = []
    for parameter in context.command.params:
        typed = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if isinstance(parameter, click.Option) and typed and parameter.name != "output":
            value = context.params[parameter.name or ""]
            shown = ",".join(value) if isinstance(value, tuple) else value
            given.append(parameter.opts[-1] if parameter.is_flag else f"{parameter.opts[-1]} {shown}")
    return given
