"""Tables in blocks: Parquet, Arrow and Feather files, datasets of pyarrow, LazyFrames of polars, CSV files.

The numeric columns are the features, in their order; False and True are 0 and 1. A column of something else and a
missing value are errors. ``columns`` names the features, and ``targets`` the columns of the target. One column may be
text, and is a target of shape (n,).
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from krein.errors import InputError
from krein.sources.source import file_facts, token_of
from krein.sources.spool import BLOCK_NUMBERS, Blocks
from krein.tables import reading

__all__ = [
    "csv_blocks",
    "dataset_blocks",
    "features_of",
    "joined_target",
    "lazy_blocks",
    "refuse_columns",
    "refuse_missing",
    "table_file_blocks",
]

# A target that is spelled like 007 or 1_0 is the name of a class, not a number.
NAME_OF_CLASS = re.compile(r"[+-]?0\d|.*_")


def features_of(names: Sequence[Any], targets: Sequence[str], columns: Sequence[str] | None, what: str) -> list[str]:
    """Return the names of the features, or raise InputError if a name is unknown or not unique."""
    repeated = [str(name) for name, n in Counter(names).items() if n > 1]
    if repeated:
        raise InputError(f"{what}: column names must differ; {', '.join(repeated)} occurs more than once. Rename it.")
    if isinstance(columns, str):
        raise InputError(f"columns must be a list of names; got {columns!r}.")
    shown = ", ".join(map(str, names[:12])) + (", ..." if len(names) > 12 else "")
    for target in targets:
        if target not in names:
            raise InputError(f"{what} has no column {target!r} for the target. Its columns are {shown}.")
    features = [name for name in names if name not in targets] if columns is None else list(columns)
    unknown = [name for name in features if name not in names]
    if unknown or not features or set(targets) & set(features) or len(set(features)) < len(features):
        raise InputError(
            f"{what}: features must be different columns of the table, one at least, and not the target; got "
            f"features {features[:12]} and target {', '.join(targets)!r}. The table has {len(names)} columns: {shown}."
        )
    return features


def joined_target(values: Sequence[Any], names: Sequence[str] = ()) -> Any:
    """The target of its columns: None, (n,), or (n, p) of several, which must be numbers if they have ``names``."""
    if len(values) < 2:
        return values[0] if values else None
    text = [name for name, column in zip(names, values, strict=False) if np.asarray(column).dtype.kind not in "biuf"]
    if text:
        raise InputError(f"Several targets must be numbers; {', '.join(text)} holds texts. Name one column of texts.")
    return np.column_stack(values)


def refuse_columns(refused: Sequence[str], what: str) -> None:
    """Raise InputError if there are columns without numbers."""
    if refused:
        raise InputError(
            f"{what}: features must be numbers or booleans, but these columns are not: {', '.join(refused[:12])}"
            f"{', ...' if len(refused) > 12 else ''}. Encode them as numbers, or name the other columns in columns=."
        )


def refuse_missing(missing: Any, name: str, start: int, what: str) -> None:
    """Raise InputError at the first row whose value is missing."""
    if missing.any():
        raise InputError(
            f"{what}: row {start + int(missing.argmax())} (the first is 0) has no value in column {name!r}. Fill in "
            "missing values, or leave out such rows."
        )


# -- Arrow -------------------------------------------------------------------------------------------------------------


def table_file_blocks(path: Path, targets: Sequence[str], columns: Sequence[str] | None) -> Blocks:
    """Return the blocks of a Parquet, Arrow or Feather file, or of a folder of Parquet files."""
    datasets = _pyarrow("pyarrow.dataset")
    kind = "parquet" if path.is_dir() or path.suffix.lower() in (".parquet", ".pq") else "ipc"
    with _readable(str(path)):
        dataset = datasets.dataset(path, format=kind)
    return dataset_blocks(dataset, targets, columns, str(path))


def dataset_blocks(
    dataset: Any, targets: Sequence[str], columns: Sequence[str] | None, what: str = "the dataset"
) -> Blocks:
    """Return the blocks of a pyarrow.dataset.Dataset."""
    datasets = _pyarrow("pyarrow.dataset")
    # Reading ahead would hold hundreds of MiB of what is written to disk at once.
    options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(getattr(dataset, "format", None), datasets.ParquetFileFormat):
        options["fragment_scan_options"] = datasets.ParquetFragmentScanOptions(
            use_buffered_stream=True, pre_buffer=False
        )

    def batches(names: list[str], n_rows: int) -> Iterator[Any]:
        yield from dataset.to_batches(columns=names, batch_size=n_rows, **options)

    return _arrow_blocks(what, dataset.schema, batches, targets, columns, _dataset_token(dataset), dataset.count_rows)


def lazy_blocks(frame: Any, targets: Sequence[str], columns: Sequence[str] | None) -> Blocks:
    """Return the blocks of a polars LazyFrame, which is run once."""
    _pyarrow()
    if not hasattr(frame, "collect_batches"):
        raise InputError("A LazyFrame needs polars 1.34 or newer. Write it with sink_parquet and pass the path.")
    schema = frame.collect_schema().to_frame().to_arrow().schema

    def batches(names: list[str], n_rows: int) -> Iterator[Any]:
        for part in frame.select(names).collect_batches(chunk_size=n_rows, maintain_order=True):
            yield part.to_arrow()

    return _arrow_blocks("the LazyFrame", schema, batches, targets, columns, None, None)


def _arrow_blocks(
    what: str,
    schema: Any,
    batches: Callable[[list[str], int], Iterator[Any]],
    targets: Sequence[str],
    columns: Sequence[str] | None,
    token: Callable[[], str] | None,
    n_rows: Callable[[], int] | None,
) -> Blocks:
    features = features_of(schema.names, targets, columns, what)
    types = {name: _numpy_type(schema.field(name).type) for name in features}
    refuse_columns([f"{name} ({schema.field(name).type})" for name in features if types[name] is None], what)
    dtype = np.result_type(np.float32, *(kind for kind in types.values() if kind is not None))
    wanted = [*features, *targets]

    def read() -> Iterator[tuple[Any, Any]]:
        start = 0
        with _readable(what):
            for batch in batches(wanted, max(1, BLOCK_NUMBERS // len(features))):
                X = np.empty((batch.num_rows, len(features)), dtype=dtype)
                for j, name in enumerate(features):
                    X[:, j] = _values(batch.column(name), name, start, what)
                yield X, joined_target([_values(batch.column(name), name, start, what) for name in targets], targets)
                start += len(X)

    return Blocks(what, read, token and (lambda: token_of(token(), features, *targets)), n_rows, tuple(features))


def _numpy_type(kind: Any) -> np.dtype[Any] | None:
    """Return the type of a numeric or boolean column of Arrow, or None of another one."""
    types = _pyarrow().types
    if types.is_decimal(kind):
        return np.dtype(np.float64)
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return np.dtype(kind.to_pandas_dtype()) if numeric else None


def _values(column: Any, name: str, start: int, what: str) -> Any:
    if column.null_count:
        refuse_missing(np.asarray(column.is_null()), name, start, what)
    types = _pyarrow().types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_decimal(column.type):
        column = column.cast("float64")
    return np.asarray(column)


def _dataset_token(dataset: Any) -> Callable[[], str] | None:
    """Return a token of the files of a dataset; a dataset in memory or with a filter has none."""
    if not hasattr(dataset, "files") or getattr(dataset, "_scan_options", None) != {}:
        return None

    def token() -> str:
        found = dataset.filesystem.get_file_info(dataset.files)
        return token_of("dataset", [(file.path, file.size, file.mtime_ns) for file in found], str(dataset.schema))

    return token


def _pyarrow(module: str = "pyarrow") -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            "Parquet, Arrow and Feather files and LazyFrames need pyarrow: pip install 'krein[parquet]'."
        ) from error


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Turn pyarrow's errors into an InputError that names what was read."""
    try:
        yield
    except (_pyarrow().ArrowException, OSError) as error:
        raise InputError(f"{what} cannot be read: {error}") from error


# -- CSV ---------------------------------------------------------------------------------------------------------------


def csv_blocks(path: Path, targets: Sequence[str], columns: Sequence[str] | None) -> Blocks:
    """Return the blocks of a CSV or TSV file; without a header its columns are x0, x1, ..."""
    what, names = str(path), next(reading.chunks(path, size=1)).names
    features = features_of(names, targets, columns, what)

    def read() -> Iterator[tuple[Any, Any]]:
        start = 0
        for frame in reading.chunks(path, size=max(1, BLOCK_NUMBERS // len(names)), text_columns=tuple(targets)):
            rows = f"{what}, rows {start} to {start + len(frame) - 1}"
            refuse_columns([name for name in features if reading.is_text(frame[name])], rows)
            X = np.empty((len(frame), len(features)))
            for j, name in enumerate(features):
                X[:, j] = frame[name]
                refuse_missing(np.isnan(X[:, j]), name, start, what)
            for name in targets:
                refuse_missing(frame[name] == "", name, start, what)
            yield X, joined_target([frame[name].astype(str) for name in targets])
            start += len(X)

    def token() -> str:
        return token_of("csv", file_facts(path), features, *targets)

    return Blocks(what, read, token, None, tuple(features), _numbers_or_names)


def _numbers_or_names(y: Any) -> Any:
    """Return a target that was read as text as integers or floats if all of it is spelled so."""
    if any(map(NAME_OF_CLASS.match, np.unique(y))):
        return y
    for kind in (np.int64, np.float64):
        with suppress(ValueError, OverflowError):
            return y.astype(kind)
    return y
