"""Files in, columns out: CSV, TSV, Parquet, svmlight, NumPy arrays and lines of text, whole or in chunks.

A `Frame` is a stretch of rows: numbers as float64 with NaN where a value is missing, everything else as text with ""
there. Each stretch is looked at by itself; whoever knows better, as a fitted model does, names the columns of text, so
that what a row becomes does not depend on those around it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import sklearn  # its datasets are loaded when they are first used: reading a table need not wait for them
from numpy.typing import NDArray

from krein.errors import InputError, one_of, warn

__all__ = ["FORMATS", "Frame", "chunks", "count", "format_of", "is_text", "padded", "read", "typed"]

EXTENSIONS = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet", ".svm": "svmlight",
    ".svmlight": "svmlight", ".libsvm": "svmlight", ".npy": "npy", ".npz": "npz", ".txt": "text",
}  # fmt: skip
FORMATS = ("csv", "tsv", "parquet", "svmlight", "npy", "npz", "text")
MISSING = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))  # whatever their case
_NOT_NUMPY = "It is something else, cut off, or holds pickled objects, which are not opened."
CHUNK = 50_000  # rows
Column = NDArray[Any]  # (n,), float64 or str objects
Texts = frozenset[str]


@dataclass(frozen=True, eq=False)
class Frame:
    """Rows by columns: each column is float64 with NaN for missing, or text (objects) with "" for missing."""

    names: tuple[str, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            twice = sorted({name for name in self.names if self.names.count(name) > 1})
            raise InputError(f"Column names must differ; {', '.join(twice)} occurs more than once. Rename it.")

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def __getitem__(self, name: str) -> Column:
        return self.columns[self._place(name)]

    def name_of(self, name: str) -> str:
        """The name of a column that may have been given by its number."""
        return self.names[self._place(name)]

    def without(self, names: Iterable[str]) -> Frame:
        """The other columns; each of ``names`` must be there."""
        gone = {self._place(name) for name in names}
        kept = [i for i in range(len(self.names)) if i not in gone]
        return Frame(tuple(self.names[i] for i in kept), tuple(self.columns[i] for i in kept))

    def take(self, rows: Any) -> Frame:
        """The rows at these positions."""
        return Frame(self.names, tuple(column[rows] for column in self.columns))

    def with_column(self, name: str, column: Column) -> Frame:
        """The frame with another column in the place of this one."""
        return Frame(
            self.names, tuple(column if n == name else c for n, c in zip(self.names, self.columns, strict=True))
        )

    def _place(self, name: str) -> int:
        if name in self.names:
            return self.names.index(name)
        if name.lstrip("-").isdigit() and -len(self.names) <= int(name) < len(self.names):
            return int(name) % len(self.names)
        shown = ", ".join(self.names[:12]) + (", ..." if len(self.names) > 12 else "")
        raise InputError(f"There is no column {name!r}; the file has {len(self.names)} columns: {shown}.")


def is_text(column: Column) -> bool:
    """Whether a column holds text rather than numbers."""
    return column.dtype.kind == "O"


def typed(column: Column) -> Column:
    """A column of text as numbers, if all of its values are some."""
    return _column(column.tolist()) if is_text(column) else column


def format_of(path: Path, format: str | None = None) -> str:
    """The format that was asked for, or the one the file's extension says; there must be such a file."""
    if not path.is_file():
        raise InputError(f"{path} is not a file.")
    if format is not None:
        one_of("format", format, FORMATS)
        return format
    found = EXTENSIONS.get(path.suffix.lower())
    if found is None:
        raise InputError(
            f"{path.name}: the extension {path.suffix!r} is not known. Give --format, one of {', '.join(FORMATS)}."
        )
    return found


def read(path: Path, format: str | None = None, texts: Iterable[str] = ()) -> Frame:
    """The whole file; the columns ``texts`` as they are spelled, even if they are numbers."""
    return _joined(list(chunks(path, format, texts=texts)), path)


def chunks(path: Path, format: str | None = None, size: int = CHUNK, texts: Iterable[str] = ()) -> Iterator[Frame]:
    """The file in stretches of at most ``size`` rows, at least one row in all; ``texts`` as in `read`."""
    reader = _READERS[format_of(path, format)]
    seen = 0
    for frame in reader(path, size, frozenset(texts)):
        seen += len(frame)
        yield frame
    if seen == 0:
        raise InputError(f"{path.name} holds no rows.")


def padded(frame: Frame, names: Iterable[str]) -> Frame:
    """The frame with a column of zeros for each of these names that it lacks: what svmlight leaves out is zero."""
    absent = [name for name in names if name not in frame.names]
    return Frame((*frame.names, *absent), (*frame.columns, *(np.zeros(len(frame)) for _ in absent)))


def count(path: Path, format: str) -> int | None:
    """About how many rows the file has, where that is known sooner than they are read: for a bar with time left."""
    if format in ("csv", "tsv", "text", "svmlight"):
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    if format == "parquet":
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as table:
            return int(table.metadata.num_rows)
    return None


def _joined(parts: Sequence[Frame], path: Path) -> Frame:
    if len(parts) == 1:
        return parts[0]
    columns = []
    for place, name in enumerate(parts[0].names):
        pieces = [part.columns[place] for part in parts]
        if len({is_text(piece) for piece in pieces}) > 1:
            pieces = [piece if is_text(piece) else _no_text(piece, name, path) for piece in pieces]
        columns.append(np.concatenate(pieces))
    return Frame(parts[0].names, tuple(columns))


def _no_text(piece: Column, name: str, path: Path) -> Column:
    """A stretch without any value, as text; one with numbers cannot be in a column of text."""
    if not np.isnan(piece).all():
        raise InputError(
            f"{path.name}: column {name!r} holds numbers in some stretches of rows and text in others. Mark missing "
            f"values as empty or NA, or leave the column out with --drop {name}."
        )
    return np.full(len(piece), "", dtype=object)


# -- one reader per format -----------------------------------------------------------------------------------------

Reader = Callable[[Path, int, Texts], Iterator[Frame]]


def _separated(delimiter: str) -> Reader:
    def reader(path: Path, size: int, texts: Texts) -> Iterator[Frame]:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter=delimiter, strict=True)
            try:
                first, blank = next(lines, None), 0
                while first == []:
                    first, blank = next(lines, None), blank + 1
                if first is None:
                    return
                header = not any(v is not None and v == v for v in map(_number, first))
                if len(first) == 1 and (other := next((c for c in ";\t,|" if c in first[0]), None)):
                    raise InputError(
                        f"{path.name} has no {delimiter!r} in its first line, but {other!r}. Fields of csv are "
                        "separated by commas, of tsv by tabs (--format csv, --format tsv)."
                    )
                names = tuple(c.strip() for c in first) if header else tuple(f"x{i}" for i in range(len(first)))
                pending = [] if header else [first]
                while block := pending + list(islice(lines, size - len(pending))):
                    pending = []
                    rows = [row for row in block if row]
                    blank += len(block) - len(rows)
                    for row in rows:
                        if len(row) != len(names):
                            raise InputError(
                                f"{path.name}, line {lines.line_num} or before: {len(row)} fields where the first line "
                                f"has {len(names)}. Is the separator {delimiter!r}? Quote fields that contain it."
                            )
                    if rows:
                        columns = zip(names, zip(*rows, strict=True), strict=True)
                        yield Frame(names, tuple(_column(cells, name in texts) for name, cells in columns))
                _skipped(path, blank)
            except csv.Error as error:
                kind = "csv" if delimiter == "," else "tsv"
                raise InputError(
                    f"{path.name}, line {lines.line_num}: it cannot be read as {kind}: {error}."
                ) from error
            except UnicodeDecodeError as error:
                raise _not_utf8(path, error) from error

    return reader


def _not_utf8(path: Path, error: UnicodeDecodeError) -> InputError:
    return InputError(
        f"{path.name} is not UTF-8 text: {error.reason}, 0x{error.object[error.start]:02x}. If it is text, save it as "
        "UTF-8 (of an older Windows program: iconv -f latin1 -t utf-8); if not, say what it is with --format."
    )


def _skipped(path: Path, blank: int) -> None:
    if blank:
        lines = "1 blank line was" if blank == 1 else f"{blank} blank lines were"
        warn(f"{path.name}: {lines} skipped, as no row.")


def _column(cells: Sequence[str], text: bool = False) -> Column:
    """Numbers if all cells are, but for missing ones, and if no ``text`` is asked for; else text."""
    values: list[float | None] = []
    if not text:
        try:
            return np.array(cells, dtype=np.float64)
        except ValueError:
            values = [_number(cell) for cell in cells]
    if text or any(v is None for v in values):
        return np.array([_word(cell) for cell in cells], dtype=object)
    return np.array(values, dtype=np.float64)


def _number(cell: str) -> float | None:
    """A missing value is NaN, text is None."""
    if cell.strip().lower() in MISSING:
        return float("nan")
    try:
        return float(cell)
    except ValueError:
        return None


def _word(cell: str) -> str:
    return "" if cell.strip().lower() in MISSING else cell.strip()


def _parquet(path: Path, size: int, texts: Texts) -> Iterator[Frame]:
    try:
        from pyarrow import ArrowException, types
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'krein[parquet]'.") from error
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=size):
                columns = []
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    kind = column.type
                    spelled = name in texts and not types.is_floating(kind)  # numbers with a point have many spellings
                    if not spelled and (types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)):
                        columns.append(np.asarray(column.cast("float64").to_numpy(zero_copy_only=False)))
                    elif types.is_decimal(kind):
                        values = [float("nan") if v is None else float(v) for v in column.to_pylist()]
                        columns.append(np.array(values, dtype=np.float64))
                    else:  # texts; and dates, lists or bytes as they are printed
                        words = ["" if v is None else str(v) for v in column.to_pylist()]
                        columns.append(np.array(words, dtype=object))
                yield Frame(tuple(batch.schema.names), tuple(columns))
    except ArrowException as error:
        raise InputError(f"{path.name} is not a readable Parquet file: {error}") from error


def _svmlight(path: Path, size: int, _texts: Texts) -> Iterator[Frame]:
    try:
        X, y = sklearn.datasets.load_svmlight_file(str(path))
    except (ValueError, OverflowError, UnicodeDecodeError) as error:
        raise InputError(f"{path.name} cannot be read as svmlight: {str(error).rstrip('.')}.") from error
    names = ("target", *(f"x{i}" for i in range(X.shape[1])))
    for start in range(0, X.shape[0], size):
        part = X[start : start + size].toarray()
        yield Frame(names, (y[start : start + size], *part.T))


def _npy(path: Path, size: int, _texts: Texts) -> Iterator[Frame]:
    try:
        X = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{path.name} cannot be read as a NumPy array. {_NOT_NUMPY}") from error
    yield from _rows_of(np.asarray(X)[:, None] if X.ndim == 1 else X, None, path, size)


def _npz(path: Path, size: int, _texts: Texts) -> Iterator[Frame]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except Exception as error:  # zipfile, zlib and NumPy each have their own
        raise InputError(f"{path.name} cannot be read as a NumPy archive. {_NOT_NUMPY}") from error
    if "X" not in arrays:
        raise InputError(f"{path.name} must hold an array named X (and y, if it has a target); it has {list(arrays)}.")
    yield from _rows_of(arrays["X"], arrays.get("y"), path, size)


def _rows_of(X: Any, y: Any, path: Path, size: int) -> Iterator[Frame]:
    if X.ndim == 1 and X.dtype.kind in "US":
        X = X[:, None]
    if X.ndim != 2 or X.dtype.kind not in "biufUS":
        raise InputError(f"{path.name}: X must be 2-D and hold numbers; it has shape {X.shape} and dtype {X.dtype}.")
    if y is not None and y.shape != (len(X),):
        raise InputError(f"{path.name}: y must have one value per row, shape {(len(X),)}; it has {y.shape}.")
    names = (*(f"x{i}" for i in range(X.shape[1])), *(() if y is None else ("y",)))
    for start in range(0, len(X), size):
        part = [_as_column(column) for column in np.asarray(X[start : start + size]).T]
        yield Frame(names, (*part, *(() if y is None else (_as_column(y[start : start + size]),))))


def _as_column(column: Any) -> Column:
    if column.dtype.kind in "US":
        return np.array([str(v) for v in column.tolist()], dtype=object)
    return np.asarray(column, dtype=np.float64)


def _text(path: Path, size: int, texts: Texts) -> Iterator[Frame]:
    """One object per line; what follows a tab is its label, on every line or on none.

    An empty line is the empty text; but those after the last line that is not empty are none.
    """
    with path.open(encoding="utf-8-sig") as file:
        labelled: bool | None = None
        empty = 0  # lines that another one has to follow
        try:
            while lines := [line.rstrip("\r\n") for line in islice(file, size)]:
                last = next((i for i in range(len(lines), 0, -1) if lines[i - 1]), 0)
                fields = [line.split("\t") for line in ([""] * empty + lines[:last] if last else [])]
                empty = len(lines) - last + (0 if last else empty)
                labelled = len(fields[0]) == 2 if labelled is None and fields else labelled
                wrong = next((row for row in fields if len(row) != (2 if labelled else 1)), None)
                if wrong is not None:
                    raise InputError(
                        f"{path.name}: each line must be one text{', a tab and its label' if labelled else ''}; "
                        f"got {len(wrong)} fields in {wrong[0][:40]!r}. Empty lines count, but for the last ones."
                    )
                if fields:
                    columns = list(zip(*fields, strict=True))
                    words = np.array(columns[0], dtype=object)
                    yield (
                        Frame(("text", "label"), (words, _column(columns[1], "label" in texts)))
                        if labelled
                        else Frame(("text",), (words,))
                    )
            _skipped(path, empty)
        except UnicodeDecodeError as error:
            raise _not_utf8(path, error) from error


_READERS: dict[str, Reader] = {
    "csv": _separated(","),
    "tsv": _separated("\t"),
    "parquet": _parquet,
    "svmlight": _svmlight,
    "npy": _npy,
    "npz": _npz,
    "text": _text,
}
