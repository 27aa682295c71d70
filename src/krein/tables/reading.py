"""Files in, columns out: CSV, TSV, Parquet, svmlight, NumPy arrays and lines of text, whole or in chunks.

A `Frame` holds consecutive rows. A column is float64 with NaN for missing values, or text with "" for missing values.
The type of a column is inferred from each chunk by itself. A fitted model names its text columns, so that the encoding
of a row does not depend on the rows around it.

The standard library's `csv` module splits lines into fields, because only it reports every malformed file: pandas fills
short rows without an error, and pyarrow accepts a quote that is never closed and does not count blank lines.
"""

from __future__ import annotations

import csv
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import sklearn  # sklearn.datasets is loaded on first use: reading a table need not wait for it
from numpy.typing import NDArray

from krein.errors import InputError, one_of, warn

__all__ = [
    "FORMATS", "Column", "Frame", "chunks", "count_rows", "file_format", "find_target", "is_text", "keep_spelling",
    "number_in", "numbers_if_possible", "read", "read_with_target", "target_column",
    "with_zero_columns",
]  # fmt: skip

# A column with one of these names is the target if none is given.
TARGET_NAMES = ("target", "label", "y", "class")
# A target of at most MAX_CLASSES different whole numbers is taken for classes.
MAX_CLASSES = 20
EXTENSIONS = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet", ".svm": "svmlight",
    ".svmlight": "svmlight", ".libsvm": "svmlight", ".npy": "npy", ".npz": "npz", ".txt": "text",
}  # fmt: skip
FORMATS = ("csv", "tsv", "parquet", "svmlight", "npy", "npz", "text")
# A cell with one of these words, in upper or lower case, is a missing value.
MISSING_WORDS = frozenset(("", "na", "n/a", "nan", "null", "none", "?"))
# A whole file is read in chunks of CHUNK_ROWS rows.
CHUNK_ROWS = 50_000
# A compressed archive may hold LARGEST_EXPANSION times its own size, and SMALL_ARCHIVE bytes in any case.
LARGEST_EXPANSION = 100
SMALL_ARCHIVE = 2**25
Column = NDArray[Any]  # (n,), float64 or str objects
Reader = Callable[[Path, int, frozenset[str]], Iterator["Frame"]]


@dataclass(frozen=True, eq=False)
class Frame:
    """Rows by columns: each column is float64 with NaN for missing, or text (objects) with "" for missing."""

    names: tuple[str, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if len(self._positions) != len(self.names):
            repeated = sorted(name for name, n in Counter(self.names).items() if n > 1)
            raise InputError(f"Column names must differ; {', '.join(repeated)} occurs more than once. Rename it.")

    def __len__(self) -> int:
        return len(self.columns[0]) if self.columns else 0

    def __contains__(self, name: str) -> bool:
        return name in self._positions

    def __getitem__(self, name: str) -> Column:
        return self.columns[self._position(name)]

    def name_of(self, name: str) -> str:
        """Return the name of a column that is given by its name or its number."""
        return self.names[self._position(name)]

    def without(self, names: Iterable[str]) -> Frame:
        """Return the frame without the columns ``names``, each of which must exist."""
        dropped = {self._position(name) for name in names}
        kept = [i for i in range(len(self.names)) if i not in dropped]
        return Frame(tuple(self.names[i] for i in kept), tuple(self.columns[i] for i in kept))

    def take(self, rows: Any) -> Frame:
        """Return the rows at these positions."""
        return Frame(self.names, tuple(column[rows] for column in self.columns))

    def with_column(self, name: str, column: Column) -> Frame:
        """Return the frame with the values of the column ``name`` replaced."""
        i = self._position(name)
        return Frame(self.names, (*self.columns[:i], column, *self.columns[i + 1 :]))

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    def _position(self, name: str) -> int:
        if name in self._positions:
            return self._positions[name]
        if name.lstrip("-").isdigit() and -len(self.names) <= int(name) < len(self.names):
            return int(name) % len(self.names)
        shown = ", ".join(self.names[:12]) + (", ..." if len(self.names) > 12 else "")
        raise InputError(f"There is no column {name!r}; the file has {len(self.names)} columns: {shown}.")


def is_text(column: Column) -> bool:
    """Return whether a column holds text rather than numbers."""
    return column.dtype.kind == "O"


def numbers_if_possible(column: Column) -> Column:
    """Return a text column as numbers if each of its values is a number or missing, otherwise as it is."""
    return _column(column) if is_text(column) else column


def find_target(names: tuple[str, ...], asked: str | None) -> str | None:
    """Return ``asked``, or the only column with one of TARGET_NAMES, or None."""
    usual = [name for name in names if name.lower() in TARGET_NAMES]
    return asked if asked is not None or len(usual) != 1 else usual[0]


def target_column(frame: Frame, asked: str | None) -> str:
    """Return the name of the target; that none is given and none is usual is an error."""
    found = find_target(frame.names, asked)
    if found is None:
        shown = ", ".join(frame.names[:12]) + ", ..." * (len(frame.names) > 12)
        raise InputError(f"Which column is to be learned? Give --target, one of {shown}.")
    return frame.name_of(found)


def keep_spelling(y: Column, task: str) -> Column:
    """Return a target that was read as text as numbers if possible, unless its classes are spelled like 01 and 02."""
    numbers = numbers_if_possible(y)
    if is_text(numbers) or not is_text(y):
        return y
    present = numbers[np.isfinite(numbers)]
    classes = task == "classification" or len(np.unique(present)) <= MAX_CLASSES
    padded = any(re.fullmatch(r"[+-]*0\d+", word) for word in y)
    one_to_one = len(set(y.tolist()) - {""}) == len(np.unique(present))
    return y if classes and padded and one_to_one else numbers


def file_format(path: Path, format: str | None = None) -> str:
    """Return ``format``, or the format that belongs to the extension of the existing file ``path``."""
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


def read(path: Path, format: str | None = None, text_columns: Iterable[str] = ()) -> Frame:
    """Return the whole file; ``text_columns`` are read as text even if they hold numbers."""
    return _concatenated(list(chunks(path, format, CHUNK_ROWS, text_columns)), path)


def read_with_target(path: Path, format: str, target: str | None, drop: Iterable[str], task: str) -> tuple[Frame, str]:
    """Return the file without the columns ``drop``, and the name of its target, whose classes keep their spelling.

    The first row is read for the names, because the target is read as text.
    """
    binary = format in ("svmlight", "npy", "npz")  # numbers have no spelling, and one row costs as much as all
    frame = (read(path, format) if binary else next(chunks(path, format, 1))).without(drop)
    column = target_column(frame, target)
    if binary:
        return frame, column
    frame = read(path, format, () if task == "regression" else (column,)).without(drop)
    return frame.with_column(column, keep_spelling(frame[column], task)), column


def chunks(
    path: Path, format: str | None = None, size: int = CHUNK_ROWS, text_columns: Iterable[str] = ()
) -> Iterator[Frame]:
    """Yield the file in frames of at most ``size`` rows; a file without rows is an error. See also `read`."""
    empty = True
    for frame in _READERS[file_format(path, format)](path, size, frozenset(text_columns)):
        empty = False
        yield frame
    if empty:
        raise InputError(f"{path.name} holds no rows.")


def with_zero_columns(frame: Frame, names: Iterable[str]) -> Frame:
    """Return the frame with a column of zeros for each missing name; svmlight files omit zeros."""
    absent = [name for name in names if name not in frame]
    return Frame((*frame.names, *absent), (*frame.columns, *(np.zeros(len(frame)) for _ in absent)))


def count_rows(path: Path, format: str) -> int | None:
    """Return the approximate number of rows for a progress bar, or None if counting would mean reading the file."""
    if format in ("csv", "tsv", "text", "svmlight"):
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    if format == "parquet":
        from pyarrow.parquet import ParquetFile

        with ParquetFile(path) as table:
            return int(table.metadata.num_rows)
    return None


def _concatenated(parts: Sequence[Frame], path: Path) -> Frame:
    if len(parts) == 1:
        return parts[0]
    columns = []
    for i, name in enumerate(parts[0].names):
        pieces = [part.columns[i] for part in parts]
        if len({is_text(piece) for piece in pieces}) > 1:
            pieces = [piece if is_text(piece) else _missing_as_text(piece, name, path) for piece in pieces]
        columns.append(np.concatenate(pieces))
    return Frame(parts[0].names, tuple(columns))


def _missing_as_text(piece: Column, name: str, path: Path) -> Column:
    """Return a chunk without any value as text; a chunk with numbers cannot be part of a text column."""
    if not np.isnan(piece).all():
        raise InputError(
            f"{path.name}: column {name!r} holds numbers in some chunks of rows and text in others. Mark missing "
            f"values as empty or NA, or leave the column out with --drop {name}."
        )
    return np.full(len(piece), "", dtype=object)


# -- text files --------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path, newline: str | None = None) -> Iterator[TextIO]:
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as file:
            yield file
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path.name} is not UTF-8 text: {error.reason}, 0x{error.object[error.start]:02x}. If it is text, save it "
            "as UTF-8 (of an older Windows program: iconv -f latin1 -t utf-8); if not, say what it is with --format."
        ) from error


def _warn_of_blank_lines(path: Path, n: int) -> None:
    if n:
        warn(f"{path.name}: {'1 blank line was' if n == 1 else f'{n} blank lines were'} skipped, as no row.")


def _read_separated(delimiter: str, path: Path, size: int, text_columns: frozenset[str]) -> Iterator[Frame]:
    with _opened(path, newline="") as file:
        lines = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            records = _records(lines, delimiter, path)
            first = next(records, None)
            if first is None:
                return
            header = not any(value is not None and value == value for value in map(number_in, first))
            names = tuple(cell.strip() for cell in first) if header else tuple(f"x{i}" for i in range(len(first)))
            rows = records if header else chain([first], records)
            while block := list(islice(rows, size)):
                cells = np.array(block, dtype=object).T
                yield Frame(
                    names, tuple(_column(c, name in text_columns) for name, c in zip(names, cells, strict=True))
                )
        except csv.Error as error:
            kind = "csv" if delimiter == "," else "tsv"
            raise InputError(f"{path.name}, line {lines.line_num}: it cannot be read as {kind}: {error}.") from error


def _records(lines: Any, delimiter: str, path: Path) -> Iterator[list[str]]:
    """Yield the lines that are not blank, each with as many fields as the first."""
    n_fields = n_blank = 0
    for row in lines:
        if not row:
            n_blank += 1
            continue
        if not n_fields:
            n_fields = len(row)
            if n_fields == 1 and (other := next((c for c in ";\t,|" if c in row[0]), None)):
                raise InputError(
                    f"{path.name} has no {delimiter!r} in its first line, but {other!r}. Fields of csv are "
                    "separated by commas, of tsv by tabs (--format csv, --format tsv)."
                )
        if len(row) != n_fields:
            raise InputError(
                f"{path.name}, line {lines.line_num}: {len(row)} fields where the first line has {n_fields}. Is the "
                f"separator {delimiter!r}? Quote fields that contain it."
            )
        yield row
    _warn_of_blank_lines(path, n_blank)


def _column(cells: NDArray[Any], text: bool = False) -> Column:
    """Return cells as numbers if each is a number or missing and ``text`` is False, otherwise as text."""
    if not text:
        try:
            return cells.astype(np.float64)
        except ValueError:
            values = [number_in(cell) for cell in cells]
            if None not in values:
                return np.array(values, dtype=np.float64)
    words = (cell.strip() for cell in cells)
    return np.array(["" if word.lower() in MISSING_WORDS else word for word in words], dtype=object)


def number_in(cell: str) -> float | None:
    """Return the number in a cell, NaN if the cell is missing, or None if it is text."""
    if cell.strip().lower() in MISSING_WORDS:
        return float("nan")
    try:
        return float(cell)
    except ValueError:
        return None


def _read_text(path: Path, size: int, text_columns: frozenset[str]) -> Iterator[Frame]:
    """Yield one object per line, with its label after a tab on every line or on none.

    An empty line is the empty text. Empty lines at the end of the file are skipped.
    """
    with _opened(path) as file:
        lines = _lines(file, path)
        n_fields = 0
        while block := [line.split("\t") for line in islice(lines, size)]:
            n_fields = n_fields or min(len(block[0]), 2)
            wrong = next((fields for fields in block if len(fields) != n_fields), None)
            if wrong is not None:
                raise InputError(
                    f"{path.name}: each line must be one text{', a tab and its label' if n_fields == 2 else ''}; "
                    f"got {len(wrong)} fields in {wrong[0][:40]!r}. Empty lines count, but for the last ones."
                )
            words, *labels = np.array(block, dtype=object).T
            columns = (words, *(_column(label, "label" in text_columns) for label in labels))
            yield Frame(("text", "label")[:n_fields], columns)


def _lines(file: Iterable[str], path: Path) -> Iterator[str]:
    n_empty = 0
    for line in file:
        text = line.rstrip("\r\n")
        if text:
            yield from repeat("", n_empty)
            yield text
        n_empty = 0 if text else n_empty + 1
    _warn_of_blank_lines(path, n_empty)


# -- binary and sparse files -------------------------------------------------------------------------------------------


def _read_parquet(path: Path, size: int, text_columns: frozenset[str]) -> Iterator[Frame]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise InputError("Parquet files need pyarrow: pip install 'krein[parquet]'.") from error
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=size):
                names = tuple(batch.schema.names)
                columns = zip(names, batch.columns, strict=True)
                yield Frame(names, tuple(_arrow_column(column, name in text_columns) for name, column in columns))
    except (ArrowException, OSError) as error:  # a damaged page is an OSError
        raise InputError(f"{path.name} is not a readable Parquet file: {error}") from error


def _arrow_column(column: Any, text: bool) -> Column:
    """Return a column of Parquet; dates, lists and bytes are text, as Python prints them."""
    from pyarrow import types

    kind = column.type
    if types.is_floating(kind) or (not text and (types.is_boolean(kind) or types.is_integer(kind))):
        return np.asarray(column.cast("float64", safe=False).to_numpy(zero_copy_only=False))
    values = column.to_pylist()
    if types.is_decimal(kind):
        return np.array([float("nan") if value is None else float(value) for value in values])
    return np.array(["" if value is None else str(value) for value in values], dtype=object)


def _read_svmlight(path: Path, size: int, _text_columns: frozenset[str]) -> Iterator[Frame]:
    try:
        X, y = sklearn.datasets.load_svmlight_file(str(path))
    except (ValueError, OverflowError, UnicodeDecodeError) as error:
        raise InputError(f"{path.name} cannot be read as svmlight: {str(error).rstrip('.')}.") from error
    names = ("target", *(f"x{i}" for i in range(X.shape[1])))
    for start in range(0, X.shape[0], size):
        yield Frame(names, (y[start : start + size], *X[start : start + size].toarray().T))


def _read_npy(path: Path, size: int, _text_columns: frozenset[str]) -> Iterator[Frame]:
    with _as_numpy_file(path, "a NumPy array"):
        X = np.load(path, mmap_mode="r", allow_pickle=False)
    yield from _array_frames(X, None, path, size)


def _read_npz(path: Path, size: int, _text_columns: frozenset[str]) -> Iterator[Frame]:
    with _as_numpy_file(path, "a NumPy archive"), zipfile.ZipFile(path) as members:
        unpacked = sum(member.file_size for member in members.infolist())
    if unpacked > LARGEST_EXPANSION * path.stat().st_size + SMALL_ARCHIVE:
        raise InputError(
            f"{path.name} would grow from {path.stat().st_size} to {unpacked} bytes when it is unpacked. If that is "
            "meant, save the arrays with numpy.savez, which does not compress them."
        )
    with _as_numpy_file(path, "a NumPy archive"), np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if "X" not in arrays:
        raise InputError(f"{path.name} must hold an array named X (and y, if it has a target); it has {list(arrays)}.")
    yield from _array_frames(arrays["X"], arrays.get("y"), path, size)


@contextmanager
def _as_numpy_file(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # zipfile, zlib and NumPy each raise their own
        raise InputError(
            f"{path.name} cannot be read as {what}. It is something else, cut off, or holds pickled objects, which are "
            "not opened."
        ) from error


def _array_frames(X: Any, y: Any, path: Path, size: int) -> Iterator[Frame]:
    X = X[:, None] if X.ndim == 1 else X
    if X.ndim != 2 or X.dtype.kind not in "biufUS":
        raise InputError(f"{path.name}: X must be 2-D and hold numbers; it has shape {X.shape} and dtype {X.dtype}.")
    if y is not None and y.shape != (len(X),):
        raise InputError(f"{path.name}: y must have one value per row, shape {(len(X),)}; it has {y.shape}.")
    names = (*(f"x{i}" for i in range(X.shape[1])), *(() if y is None else ("y",)))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        columns = (*np.asarray(X[rows]).T, *(() if y is None else (y[rows],)))
        yield Frame(names, tuple(_array_column(column) for column in columns))


def _array_column(column: Any) -> Column:
    if column.dtype.kind in "US":
        return np.array([str(value) for value in column.tolist()], dtype=object)
    return np.asarray(column, dtype=np.float64)


_READERS: dict[str, Reader] = {
    "csv": partial(_read_separated, ","),
    "tsv": partial(_read_separated, "\t"),
    "parquet": _read_parquet,
    "svmlight": _read_svmlight,
    "npy": _read_npy,
    "npz": _read_npz,
    "text": _read_text,
}
