"""Rows that can only be read from first to last are written once to rows.npy, and are from then on a memory map.

The folder is ``workdir``, or a temporary one that disappears with its source. It holds rows.npy, target.npy if the
blocks have a target, and spool.json. A file is written under a name that ends in .part and renamed when it is complete.
spool.json is written first and last: it marks the folder as one that krein may overwrite, and says when it is complete.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from krein.errors import InputError, ResourceError
from krein.sources.mapped import Mapped, mapped_file
from krein.sources.source import file_facts

__all__ = ["BLOCK_NUMBERS", "Blocks", "remove_own", "spooled"]

ROWS, TARGET, RECORD = "rows.npy", "target.npy", "spool.json"
# A block read from a file holds at most about this many numbers, which fit a processor's cache: 2 MiB in float64.
BLOCK_NUMBERS = 1 << 18
# The system's numbers for: no space left, quota exceeded, file too large for the file system.
NO_ROOM = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EFBIG)


@dataclass(frozen=True)
class Blocks:
    """Blocks of rows in their order."""

    name: str  # what they come from, for messages
    read: Callable[[], Iterator[tuple[Any, Any]]]  # (rows, target or None) of each block
    token: Callable[[], str] | None = None  # changes when the rows do; None: nobody knows
    n_rows: Callable[[], int] | None = None  # None: nobody knows before the end
    columns: tuple[str, ...] | None = None  # names, of a table
    as_target: Callable[[Any], Any] | None = None  # what becomes of the whole target


def spooled(blocks: Blocks, workdir: str | os.PathLike[str] | None) -> tuple[Mapped, Any]:
    """Return the rows as a source and their target, or None if the blocks have none.

    A complete spool of equal token in ``workdir`` is used again.
    """
    if workdir is not None:
        return _kept(blocks, Path(workdir)) or _written(blocks, Path(workdir))
    with _storage(Path(tempfile.gettempdir())):
        folder = Path(tempfile.mkdtemp(prefix="krein-"))
    try:
        source, y = _written(blocks, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(source, remove_own, folder, os.getpid())
    return source, y


def remove_own(folder: Path, owner: int) -> None:
    """Remove a folder of the process ``owner``; a forked process has a copy of what refers to it, not the folder."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _kept(blocks: Blocks, folder: Path) -> tuple[Mapped, Any] | None:
    record = _record(folder)
    if record is None or blocks.token is None or record.get("token") != blocks.token():
        return None
    try:
        if record["files"] != {name: file_facts(folder / name)[1:] for name in record["files"]}:
            return None
    except ResourceError:  # a file is gone
        return None
    y = np.load(folder / TARGET, allow_pickle=False) if TARGET in record["files"] else None
    return mapped_file(folder / ROWS, blocks.columns), y


def _record(folder: Path) -> dict[str, Any] | None:
    """Return what spool.json says, or None without one."""
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return {**record, "files": {name: tuple(facts) for name, facts in record["files"].items()}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _written(blocks: Blocks, folder: Path) -> tuple[Mapped, Any]:
    with _storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if _record(folder) is None and any((folder / name).exists() for name in (ROWS, TARGET)):
        raise InputError(
            f"{folder} holds {ROWS} or {TARGET} that krein did not write there. Pass another folder as workdir."
        )
    token = blocks.token() if blocks.token else None
    _save(folder / RECORD, json.dumps({"token": None, "files": {}}).encode())
    y = _write_rows(blocks, folder / ROWS)
    if blocks.token and blocks.token() != token:
        raise ResourceError(f"{blocks.name} changed while it was read. Leave it unchanged and fit again.")
    if y is not None:
        file = io.BytesIO()
        np.save(file, y, allow_pickle=False)
        _save(folder / TARGET, file.getvalue())
    files = {name: file_facts(folder / name)[1:] for name in (ROWS, *((TARGET,) if y is not None else ()))}
    _save(folder / RECORD, json.dumps({"token": token, "files": files}).encode())
    return mapped_file(folder / ROWS, blocks.columns), y


def _write_rows(blocks: Blocks, path: Path) -> Any:
    """Write the rows to ``path``; return their target, or None if the blocks have none."""
    targets: list[Any] = []
    n, width, with_target = 0, 0, False
    dtype: np.dtype[Any] = np.dtype(np.float64)
    with _part(path) as file:
        for number, (given, y) in enumerate(blocks.read()):
            X = _matrix(given, blocks.name, number)
            exact = np.result_type(X.dtype, np.float32) == np.float32  # float32 holds these numbers exactly
            if number == 0:
                width, dtype, with_target = X.shape[1], np.dtype(np.float32 if exact else np.float64), y is not None
                _check_room(blocks, path, width * dtype.itemsize)
                _write(file, _header((0, width), dtype), path)
            if X.shape[1] != width:
                raise InputError(
                    f"{blocks.name}: block {number} (the first is 0) has {X.shape[1]} columns, and block 0 has "
                    f"{width}. All blocks must have the same columns."
                )
            if dtype == np.float32 and not exact:
                raise InputError(
                    f"{blocks.name}: block {number} (the first is 0) has dtype {X.dtype}, and float32, the type of the "
                    "blocks before, cannot hold it. Give all blocks one dtype."
                )
            if (y is not None) != with_target or (y is not None and len(y) != len(X)):
                raise InputError(
                    f"{blocks.name}: block {number} (the first is 0) has {len(X)} rows and "
                    f"{'no target' if y is None else f'{len(y)} targets'}. Blocks must be X alone, or all (X, y) with "
                    "one target a row."
                )
            targets += [] if y is None else [_labels(y, blocks.name)]
            _write(file, np.ascontiguousarray(X, dtype=dtype), path)
            n += len(X)
        if n == 0:
            raise InputError(f"{blocks.name} holds no rows.")
        target = _joined(targets, blocks) if with_target else None
        file.seek(0)
        _write(file, _header((n, width), dtype), path)  # as long as the first: NumPy leaves room for digits
    return target


def _matrix(X: Any, name: str, number: int) -> Any:
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise InputError(
            f"{name}: block {number} (the first is 0) must be a 2-D array of numbers; it has shape {X.shape} and dtype "
            f"{X.dtype}. A single row is X[None, :]; a pair (X, y) is a tuple."
        )
    return X


def _labels(y: Any, name: str) -> Any:
    """Return targets as numbers, or as text of fixed width, which a file can hold."""
    values = np.asarray(y)
    if values.dtype.kind == "O":
        if not all(isinstance(value, str) for value in values.ravel()):
            raise InputError(f"{name}: targets must be numbers or texts; got {values.ravel()[:3]!r}.")
        return values.astype(str)
    return values


def _joined(parts: list[Any], blocks: Blocks) -> Any:
    if len({part.dtype.kind in "US" for part in parts}) > 1:
        raise InputError(
            f"{blocks.name}: targets are numbers in some blocks and texts in others. Give all of them one type."
        )
    y = np.concatenate(parts)
    return blocks.as_target(y) if blocks.as_target else y


# -- files -------------------------------------------------------------------------------------------------------------


@contextmanager
def _part(path: Path) -> Iterator[io.FileIO]:
    """Open ``path`` for writing; it exists when the block ends without an error, and nothing is left otherwise."""
    part = path.with_name(f"{path.name}.part")
    with _storage(path.parent):
        file = io.FileIO(part, "w")
    try:
        with file:
            yield file
            with _storage(path.parent):
                os.fsync(file.fileno())
        with _storage(path.parent):
            os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _save(path: Path, content: bytes) -> None:
    with _part(path) as file:
        _write(file, content, path)


def _write(file: io.FileIO, content: Any, path: Path) -> None:
    if not len(content):
        return
    rest = memoryview(content).cast("B")
    with _storage(path.parent, file.tell() + len(rest)):
        while rest:
            rest = rest[file.write(rest) :]


def _header(shape: tuple[int, int], dtype: np.dtype[Any]) -> bytes:
    file = io.BytesIO()
    facts = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, facts)
    return file.getvalue()


def _check_room(blocks: Blocks, path: Path, row_bytes: int) -> None:
    needed, free = row_bytes * (blocks.n_rows() if blocks.n_rows else 0), shutil.disk_usage(path.parent).free
    if needed > free:
        raise ResourceError(_no_room(path.parent, f"{needed:,}", free))


@contextmanager
def _storage(folder: Path, needed: int = 0) -> Iterator[None]:
    """Turn errors of the disk into a ResourceError that says what was needed and where."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            free = shutil.disk_usage(folder).free
            raise ResourceError(_no_room(folder, f"at least {needed:,}", free, str(error.strerror))) from error
        raise ResourceError(
            f"krein cannot write the rows of X to {folder}: {error.strerror}. Pass a folder that can be written as "
            "workdir."
        ) from error


def _no_room(folder: Path, needed: str, free: int, reason: str = "no space left") -> str:
    return (
        f"The rows of X need {needed} bytes in {folder}, where {free:,} bytes are free ({reason}). Free some, or pass "
        "a folder on a larger disk as workdir; without one the system's temporary folder is used (TMPDIR)."
    )
