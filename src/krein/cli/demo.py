"""krein demo: the command; `demo_experiment` does the computation."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from krein.errors import KreinWarning

if TYPE_CHECKING:
    from krein.cli.demo_experiment import Cell

__all__ = ["command"]

# The report shows the sigmoid kernel with these parameters, with which it is indefinite.
SIGMOID = {"gamma": 0.1, "coef0": -1.0}


@click.command("demo")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("krein-demo"),
    show_default="./krein-demo",
    help="Folder for pictures and report; made if it does not exist.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Seed of the random numbers."
)
@click.option("--quick", is_flag=True, help="Fewer rows: a few seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def command(output: Path, seed: int, quick: bool, as_json: bool) -> None:
    """Approximate four kernels on two data sets in both couplings, print one table, save two pictures and a report.

    Then blocks and rank are chosen automatically for a given error. The data are scikit-learn's handwritten digits and
    a generated mixture: no download. The same seed gives the same table, but for the times.

    \b
    Examples:
      krein demo
      krein demo --quick --output /tmp/demo
      krein demo --seed 7 --json
    """
    from tqdm.auto import tqdm

    from krein.cli import demo_experiment
    from krein.plotting import check_matplotlib

    begin = time.perf_counter()
    check_matplotlib()  # before any work
    output.mkdir(parents=True, exist_ok=True)
    say = (lambda text: None) if as_json else click.echo
    say("Similarities between n rows make an n x n matrix, which soon is too large to hold. krein keeps a small")
    say("factorization instead. Here it does so for four kernels on two data sets, with fixed blocks and rank,")
    say("in two ways: coupling='pairwise' is the paper's, coupling='shared' is krein's own and the default.\n")
    steps = demo_experiment.STEPS
    with tqdm(total=steps, disable=None, leave=False, unit="step") as bar:  # None: only on a terminal; on stderr

        def step(what: str) -> None:
            bar.set_description(what)
            bar.update()

        found = demo_experiment.run(seed, quick, step)
        step("pictures")
        saved = demo_experiment.pictures(found, output)
    say(demo_experiment.table(found))
    say(f"\n{demo_experiment.choice(found)}")
    for note in found.notes:
        say(f"\nNote: {note}")
    say("\nPictures:")
    for path, what in saved.items():
        say(f"  {path}\n      {what}")
    say("\nReport, a page to open in a browser:")
    page, what = _report(output, seed, quick)
    say(f"  {page}\n      {what}")
    say(f"\nDone in {time.perf_counter() - begin:.0f} s, most of it for checking the errors and drawing.")
    if as_json:
        files = {"pictures": [str(path) for path in saved], "report": str(page)}
        click.echo(
            json.dumps({"cells": [_facts(c) for c in found.cells], "notes": list(found.notes)} | files, indent=1)
        )


def _facts(cell: Cell) -> dict[str, Any]:
    """Return a line of the table as plain values."""
    both = {"pairwise": cell.pairwise, "shared": cell.shared}
    return {
        "data": cell.data.name,
        "rows": cell.n,
        "kernel": repr(cell.shared.approximation.kernel),
        "memory_percent": cell.shared.memory_percent,
        "pairwise_shifted_error": cell.pairwise_shifted.relative,
    } | {
        name: {
            "error": made.error.relative, "interval": [made.error.low, made.error.high], "n_negative": made.n_negative,
            "evaluated_percent": made.evaluated_percent, "seconds": made.seconds,
        }
        for name, made in both.items()
    }  # fmt: skip


def _report(output: Path, seed: int, quick: bool) -> tuple[Path, str]:
    """Inspect an indefinite kernel on handwritten digits, fit a model with it and write a report of both."""
    from krein.datasets import digits
    from krein.inspection import inspect
    from krein.kernels import Sigmoid
    from krein.tables.model import learn
    from krein.tables.reading import Frame

    data = digits()
    n = 250 if quick else 600
    X, y = data.X[:n] / 16.0, data.y[:n]
    names = (*(f"pixel {i}" for i in range(X.shape[1])), "digit")
    frame = Frame(names, (*X.T, y.astype(float)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)  # the report says that the kernel is indefinite
        asked = {"kernel": "sigmoid", **SIGMOID}
        model = learn(frame, "digit", machine="ridge", scale="none", random_state=seed, parameters=asked)
    found = inspect(X, Sigmoid(**SIGMOID), y, learner="ridge", random_state=seed)
    path = found.report(output / "report.html", model, title="krein demo", data=f"{n} handwritten digits")
    return path, f"the sigmoid kernel on {n} digits: how indefinite, which correction helps, how well it learns"
