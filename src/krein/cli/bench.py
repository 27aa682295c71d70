"""krein bench."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

__all__ = ["command"]


@click.command("bench")
@click.option("--rows", type=click.IntRange(500), default=10_000, show_default=True, help="Rows of generated data.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list instead of a table.")
def command(rows: int, seed: int, as_json: bool) -> None:
    """Time krein's classifiers beside scikit-learn's SVC on generated data, with one BLAS thread each.

    Times are wall clock, on this machine as busy as it is: the ratios, in brackets, say more. The docs have figures
    of the project's own benchmarks.

    \b
    Examples:
      krein bench
      krein bench --rows 50000
    """
    from threadpoolctl import threadpool_limits
    from tqdm import tqdm

    from krein.experiments import bench

    with threadpool_limits(1), tqdm(total=3, disable=None, leave=False) as bar:

        def step(what: str) -> None:
            bar.set_description(what)
            bar.update()

        lines = list(bench.run(rows, seed, step))
    click.echo(json.dumps([asdict(line) for line in lines], indent=1) if as_json else bench.table(lines, rows))
