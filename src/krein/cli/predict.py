"""krein predict."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from krein.cli import options

if TYPE_CHECKING:  # loaded where they are used: see krein.cli
    from krein.tables.model import Model
    from krein.tables.reading import Frame

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
    is said at the end (on stderr). The file of --output is written whole or not at all.

    \b
    Examples:
      krein predict digits.krein new.csv > predictions.csv
      krein predict houses.krein new.parquet --output predictions.csv
      krein predict houses.krein new.csv --std --json
    """
    from tqdm import tqdm

    from krein.tables.reading import chunks, count, format_of, padded

    options.writable(output, data, model)
    fitted = options.loaded(model)
    kind, tally = format_of(data, format_), _Tally(fitted)
    with ExitStack() as stack:
        said = stack.enter_context(options.warned())
        total = count(data, kind) if sys.stderr.isatty() else None
        bar = stack.enter_context(tqdm(total=total, unit=" rows", disable=None, desc="predict", leave=False))
        out = sys.stdout if output is None else stack.enter_context(_whole(output))
        for number, stretch in enumerate(chunks(data, kind, ROWS, fitted.texts)):
            frame = padded(stretch, fitted.columns) if kind == "svmlight" else stretch
            columns = fitted.predict_with_std(frame) if std else (fitted.predict(frame),)
            _write(out, fitted.target, columns, as_json, header=number == 0)
            tally.add(frame, columns[0])
            bar.update(len(frame))
    for line in (*tally.notes, *said, *tally.score):
        click.echo(line, err=True)


@contextmanager
def _whole(path: Path) -> Iterator[TextIO]:
    """The file to write to, which gets its name when all is in it; a device or a pipe has its name already."""
    from krein.persistence.container import replacing

    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="") as file:
            yield file
        return
    with replacing(path) as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        try:
            yield text
        finally:
            text.detach()  # flushed, and left open for the other to put in place


def _write(out: TextIO, target: str, columns: tuple[Any, ...], as_json: bool, header: bool) -> None:
    names = (target, f"{target}_std")[: len(columns)]
    rows = zip(*(c.tolist() for c in columns), strict=True)
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
        self.moments = [0.0, 0.0, 0.0]  # of y around the training rows' mean: sum, of squares; and the squared errors
        self.odd = dict.fromkeys((c.name for c in model.encoder.columns) if model.encoder else (), 0)
        labels = [str(label) for label in getattr(model.estimator, "classes_", ())]
        self.labels: dict[Any, str] = {number: label for label in labels if (number := _number(label)) is not None}
        self.labels |= {label: label for label in labels}

    def add(self, frame: Frame, predicted: Any) -> None:
        import numpy as np

        from krein.tables.reading import is_text

        self.rows += len(frame)
        if self.model.encoder is not None:
            for name, odd in self.model.encoder.odd(frame).items():
                self.odd[name] += odd
        if self.model.target not in frame.names:
            return
        y = frame[self.model.target]
        if self.model.task == "classification":
            known = y != "" if is_text(y) else y == y
            said = zip(y.tolist(), predicted.tolist(), strict=True)
            self.right += sum(self._label(told) == str(label) for told, label in said)
        elif is_text(y):
            return
        else:
            known = np.isfinite(y)
            around = y[known] - self.model.offset
            more = np.sum(around), np.sum(around**2), np.sum((y - predicted)[known] ** 2)
            self.moments = [a + float(b) for a, b in zip(self.moments, more, strict=True)]
        self.known += int(known.sum())

    def _label(self, value: Any) -> str | None:
        """The class a value in a file stands for: as it is spelled, else as a number, 3.0 for the class 3."""
        return self.labels.get(str(value)) or self.labels.get(_number(value))

    @property
    def notes(self) -> list[str]:
        return self.model.encoder.told(self.odd, self.rows) if self.model.encoder else []

    @property
    def score(self) -> list[str]:
        if not self.known:
            return []
        rows = f"{self.known} rows" if self.known == self.rows else f"{self.known} of {self.rows} rows have an answer"
        if self.model.task == "classification":
            return [f"{rows}, accuracy {100 * self.right / self.known:.2f} %"]
        spread = self.moments[1] - self.moments[0] ** 2 / self.known
        return [f"{rows}, R² {1.0 - self.moments[2] / spread:.4f}"] if spread > 0 else [f"{rows}, all the same: no R²"]


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
