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
from numpy.typing import NDArray
from tqdm import tqdm

from krein.cli import options
from krein.model import Model
from krein.reading import Frame, chunks, count, format_of, is_text, padded

__all__ = ["command"]

ROWS = 10_000  # at a time


@click.command("predict")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="CSV file; by default the screen.")
@options.FORMAT
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
    options.writable(output, data, model)
    fitted = options.loaded(model)
    kind, tally = format_of(data, format_), _Tally(fitted)
    with ExitStack() as stack:
        out = sys.stdout if output is None else None
        said = stack.enter_context(options.warned())
        total = count(data, kind) if sys.stderr.isatty() else None
        bar = stack.enter_context(tqdm(total=total, unit=" rows", disable=None, desc="predict", leave=False))
        for number, stretch in enumerate(chunks(data, kind, ROWS)):
            frame = padded(stretch, fitted.columns) if kind == "svmlight" else stretch
            columns = fitted.predict_with_std(frame) if std else (fitted.predict(frame),)
            if out is None and output is not None:  # not before there is something: a mistake must not empty a file
                out = stack.enter_context(output.open("w", encoding="utf-8", newline=""))
            _write(out or sys.stdout, fitted.target, columns, as_json, header=number == 0)
            tally.add(frame, columns[0])
            bar.update(len(frame))
    for line in (*tally.notes, *said, *tally.score):
        click.echo(line, err=True)


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
    """What is to be said at the end: values that were not as in the fit, and the score where the file has answers."""

    def __init__(self, model: Model) -> None:
        self.model, self.rows, self.known, self.right = model, 0, 0, 0
        self.moments = np.zeros(3)  # of y around the training rows' mean: sum, sum of squares; and the squared errors
        self.odd = dict.fromkeys(model.encoder.columns if model.encoder else (), 0)

    def add(self, frame: Frame, predicted: Any) -> None:
        self.rows += len(frame)
        for column in self.odd:
            self.odd[column] += column.odd(frame[column.name])
        if self.model.target not in frame.names:
            return
        y = frame[self.model.target]
        if self.model.task == "classification":
            words = _words(y)
            known = ~np.isin(words, ("", "nan"))
            self.right += int(np.sum((words == _words(predicted)) & known))
        elif is_text(y):
            return
        else:
            known = np.isfinite(y)
            around = y[known] - self.model.offset
            self.moments += np.sum(around), np.sum(around**2), np.sum((y - predicted)[known] ** 2)
        self.known += int(known.sum())

    @property
    def notes(self) -> list[str]:
        return [f"{c.name}: {c.remedy.format(odd, self.rows)}" for c, odd in self.odd.items() if odd]

    @property
    def score(self) -> list[str]:
        if not self.known:
            return []
        rows = f"{self.known} rows" if self.known == self.rows else f"{self.known} of {self.rows} rows have an answer"
        if self.model.task == "classification":
            return [f"{rows}, accuracy {100 * self.right / self.known:.2f} %"]
        spread = self.moments[1] - self.moments[0] ** 2 / self.known
        return [f"{rows}, R² {1.0 - self.moments[2] / spread:.4f}"] if spread > 0 else [f"{rows}, all the same: no R²"]


def _words(values: Any) -> NDArray[Any]:
    """Labels in one spelling: 3.0 in a file is the class 3."""
    listed = np.asarray(values).tolist()
    return np.array([f"{v:.0f}" if isinstance(v, float) and v.is_integer() else str(v) for v in listed])
