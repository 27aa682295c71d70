"""krein predict: read a file in chunks, write the predictions, print the score."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
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

# The file is read and predicted in chunks of CHUNK_ROWS rows.
CHUNK_ROWS = 10_000
# Spreadsheets take a cell that begins with one of these for a formula.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@click.command("predict")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="CSV file to write [default: standard output]."
)
@options.FORMAT
@click.option("--std", is_flag=True, help="Also print the standard deviation (Gaussian processes only).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line instead of CSV.")
def command(model: Path, data: Path, output: Path | None, format_: str | None, std: bool, as_json: bool) -> None:
    """Predict the rows of DATA with a model that `krein fit` saved; one line per row, in their order.

    DATA is read and predicted in chunks, so it may be larger than memory. If it has the target column, the score is
    printed at the end, on stderr. The file of --output is written completely or not at all. In CSV, text that a
    spreadsheet would take for a formula (=, +, - or @ at its start) gets an apostrophe before it; JSON is exact.

    \b
    Examples:
      krein predict digits.krein new.csv > predictions.csv
      krein predict houses.krein new.parquet --output predictions.csv
      krein predict houses.krein new.csv --std --json
    """
    from tqdm.auto import tqdm

    from krein.tables.reading import chunks, count_rows, file_format, with_zero_columns

    options.check_writable(output, data, model)
    fitted = options.load_model(model)
    kind, tally = file_format(data, format_), _Tally(fitted)
    with ExitStack() as stack:
        warned = stack.enter_context(options.collected_warnings())
        total = count_rows(data, kind) if sys.stderr.isatty() else None
        bar = stack.enter_context(tqdm(total=total, unit=" rows", disable=None, desc="predict", leave=False))
        out = sys.stdout if output is None else stack.enter_context(_replaced(output))
        for i, chunk in enumerate(chunks(data, kind, CHUNK_ROWS, fitted.text_columns)):
            frame = with_zero_columns(chunk, fitted.columns) if kind == "svmlight" else chunk
            columns = fitted.predict_with_std(frame) if std else (fitted.predict(frame),)
            _write(out, fitted.target, columns, as_json, header=i == 0)
            tally.add(frame, columns[0])
            bar.update(len(frame))
    for line in (*tally.notes, *warned, *tally.score):
        click.echo(line, err=True)


@contextmanager
def _replaced(path: Path) -> Iterator[TextIO]:
    """Open a file that replaces ``path`` once it is complete; a device or a pipe is written directly."""
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
            text.detach()  # flushes, and leaves the file open for `replacing`


def _write(out: TextIO, target: str, columns: tuple[Any, ...], as_json: bool, header: bool) -> None:
    names = (target, f"{target}_std")[: len(columns)]
    rows = zip(*(c.tolist() for c in columns), strict=True)
    if as_json:
        out.writelines(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
        return
    writer = csv.writer(out, lineterminator="\n")
    if header:
        writer.writerow(map(_inert, names))
    writer.writerows(map(_inert, row) for row in rows)


def _inert(cell: Any) -> Any:
    """Return a cell that no spreadsheet executes: text that begins like a formula gets an apostrophe before it."""
    if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) and _number(cell) is None:
        return f"'{cell}"
    return cell


class _Tally:
    """Counts over all chunks: unknown values, and the score of the rows whose target is known."""

    def __init__(self, model: Model) -> None:
        self.model, self.rows, self.known, self.right = model, 0, 0, 0
        self.sums = [0.0, 0.0, 0.0]  # of y - offset, of (y - offset)², of the squared errors
        self.unknown: Counter[tuple[str, str]] = Counter()
        labels = [str(label) for label in getattr(model.estimator, "classes_", ())]
        self.labels: dict[Any, str] = {number: label for label in labels if (number := _number(label)) is not None}
        self.labels |= {label: label for label in labels}

    def add(self, frame: Frame, predicted: Any) -> None:
        import numpy as np

        from krein.tables.reading import is_text

        self.rows += len(frame)
        if self.model.encoder is not None:
            self.unknown.update(self.model.encoder.count_unknown(frame))
        if self.model.target not in frame:
            return
        y = frame[self.model.target]
        if self.model.task == "classification":
            known = y != "" if is_text(y) else y == y
            pairs = zip(y.tolist(), predicted.tolist(), strict=True)
            self.right += sum(self._label(value) == str(label) for value, label in pairs)
        elif is_text(y):
            return
        else:
            known = np.isfinite(y)
            around = y[known] - self.model.offset
            more = np.sum(around), np.sum(around**2), np.sum((y - predicted)[known] ** 2)
            self.sums = [a + float(b) for a, b in zip(self.sums, more, strict=True)]
        self.known += int(known.sum())

    def _label(self, value: Any) -> str | None:
        """Return the class of a value in a file: by its spelling, else as a number, so that 3.0 is the class 3."""
        return self.labels.get(str(value)) or self.labels.get(_number(value))

    @property
    def notes(self) -> list[str]:
        return self.model.encoder.describe_unknown(self.unknown, self.rows) if self.model.encoder else []

    @property
    def score(self) -> list[str]:
        if not self.known:
            return []
        rows = f"{self.known} rows" if self.known == self.rows else f"{self.known} of {self.rows} rows have an answer"
        if self.model.task == "classification":
            return [f"{rows}, accuracy {100 * self.right / self.known:.2f} %"]
        spread = self.sums[1] - self.sums[0] ** 2 / self.known
        return [f"{rows}, R² {1.0 - self.sums[2] / spread:.4f}"] if spread > 0 else [f"{rows}, all the same: no R²"]


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
