"""krein demo."""

from __future__ import annotations

import time
from pathlib import Path

import click
from tqdm import tqdm

from krein.display import check_matplotlib
from krein.experiments import demo as demonstration

__all__ = ["command"]


@click.command("demo")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("krein-demo"),
    show_default="./krein-demo",
    help="Folder for the pictures; made if it does not exist.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="For everything random.")
@click.option("--quick", is_flag=True, help="Fewer rows: a few seconds.")
def command(output: Path, seed: int, quick: bool) -> None:
    """Approximate four kernels on two data sets in both couplings, print one table, save two pictures.

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
