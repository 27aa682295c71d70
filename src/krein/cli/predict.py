"""krein predict."""

from __future__ import annotations

import csv
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import click
import numpy as np
from tqdm import tqdm

from krein.errors import InputError
from krein.model import Model
from krein.persistence import load
from krein.reading import FORMATS, chunks, format_of

__all__ = ["command"]

ROWS = 10_000  # at a time


@click.command("predict")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="CSV file; by default the screen.")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Of DATA; by default its extension says.")
@click.option("--std", is_flag=True, help="Beside each value its standard deviation (Gaussian processes).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of CSV.")
def command(model: Path, data: Path, output: Path | None, format_: str | None, std: bool, as_json: bool) -> None:
    """Predict the rows of DATA with a model that `krein fit` saved; one line per row, in their order.

    DATA is read and predicted in stretches, so it may be larger than memory. If it has the target's column, the score
    is said at the end (on stderr).

    \b
    Examples:
      krein predict digits.krein new.csv > predictions.csv
      krein predict houses.krein new.parquet --output predictions.csv
      krein predict houses.krein new.csv --std --json
    """
    fitted = load(model)
    if not isinstance(fitted, Model):
        raise InputError(f"{model} holds a {type(fitted).__name__}, which knows no columns; use krein.load in Python.")
    tally = _Tally(fitted)
    with ExitStack() as stack:
        out = sys.stdout if output is None else stack.enter_context(output.open("w", encoding="utf-8", newline=""))
        bar = stack.enter_context(tqdm(unit="row", disable=None, desc="predict"))
        for number, frame in enumerate(chunks(data, format_of(data, format_), ROWS)):
            columns = fitted.predict_with_std(frame) if std else (fitted.predict(frame),)
            _write(out, fitted.target, columns, as_json, header=number == 0)
            tally.add(frame, columns[0])
            bar.update(len(frame))
    if tally.said:
        click.echo(tally.said, err=True)


def _write(out: TextIO, target: str, columns: tuple[Any, ...], as_json: bool, header: bool) -> None:
    names = (target, f"{target}_std")[: len(columns)]
    rows = zip(*(np.asarray(c).tolist() for c in columns), strict=True)
    if as_json:
        out.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
        return
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(names)
    writer.writerows(rows)


class _Tally:
    """The score of what has been predicted, where the file has the answers."""

    def __init__(self, model: Model) -> None:
        self.model, self.n, self.right = model, 0, 0
        self.moments = np.zeros(3)  # of y: sum, sum of squares; and the squared errors

    def add(self, frame: Any, predicted: Any) -> None:
        if self.model.target not in frame.names:
            return
        y = frame[self.model.target]
        if self.model.task == "classification":
            self.right += int(np.sum(_words(y) == _words(predicted)))
        elif y.dtype.kind == "f" and np.isfinite(y).all():
            self.moments += np.sum(y), np.sum(y**2), np.sum((y - predicted) ** 2)
        else:
            return
        self.n += len(y)

    @property
    def said(self) -> str:
        if not self.n:
            return ""
        if self.model.task == "classification":
            return f"{self.n} rows, accuracy {100 * self.right / self.n:.2f} %"
        spread = self.moments[1] - self.moments[0] ** 2 / self.n
        return f"{self.n} rows, R² {1.0 - self.moments[2] / spread if spread > 0 else float('nan'):.4f}"


def _words(values: Any) -> Any:
    """Labels in one spelling: 3.0 in a file is the class 3."""
    return np.array([f"{v:g}" if isinstance(v, int | float) else str(v) for v in np.asarray(values).tolist()])
