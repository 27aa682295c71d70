"""Arrays and a JSON header in, a file out, and back: safetensors' layout, with every byte under a checksum.

A file is eight bytes that say how long the header is, the header, and the numbers, end to end (docs/files.md). It is
read by hand, not by a library, so that no byte is believed before its checksum is, nothing is allocated that the file
does not hold, and no second copy is made. The numbers are read and verified chunk by chunk, several threads at a time.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from krein.errors import ModelFileError

__all__ = ["TENSORS", "Opened", "opened", "replacing", "write"]

TENSORS = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16", "U32": "uint32",
    "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64",
}  # fmt: skip
NAMES = {np.dtype(numpy): name for name, numpy in TENSORS.items()}
LENGTH = struct.Struct("<Q")
LONGEST = 100_000_000  # bytes of header: safetensors' own limit
SEAL = "checksum"  # the last array: of all that stands before the numbers
SEAL_BYTES = 32
CHUNK = 2**20  # bytes read, or written, and hashed at a time: they are still in the processor's cache
THREADS = 8
MOST_DIMENSIONS = 32


# -- writing -----------------------------------------------------------------------------------------------------------


def write(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file, all of it or nothing: whoever looks at ``path`` finds what was there before, or what is there now.

    ``arrays`` are C-contiguous, of the types in TENSORS.
    """
    flat = {name: _bytes_of(a) for name, a in arrays.items()}
    checksums = _checksums(flat, dict.fromkeys(flat, 0))
    inner = json.dumps({**header, "checksums": checksums}, allow_nan=False)
    entries: dict[str, Any] = {"__metadata__": {"krein": inner}}
    offset = 0
    for name, a in arrays.items():
        entries[name] = _entry(NAMES[a.dtype.newbyteorder("=")], a.shape, offset, a.nbytes)
        offset += a.nbytes
    entries[SEAL] = _entry("U8", (SEAL_BYTES,), offset, SEAL_BYTES)
    text = json.dumps(entries, allow_nan=False, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    if len(text) > LONGEST:
        raise ModelFileError(f"The header of {path} would take {len(text)} bytes, and no more than {LONGEST} are read.")
    start = LENGTH.pack(len(text)) + text
    with replacing(path) as file:
        file.write(start)
        for part in flat.values():
            for chunk in _chunks(part):
                file.write(chunk)
        file.write(hashlib.sha256(start).digest())


def _entry(kind: str, shape: tuple[int, ...], offset: int, size: int) -> dict[str, Any]:
    return {"dtype": kind, "shape": list(shape), "data_offsets": [offset, offset + size]}


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file under another name in the same folder, which takes the place of ``path`` once it is safely on disk."""
    target = Path(os.path.realpath(path))  # a link stays a link
    temporary = target.with_name(f".{target.name}.{os.urandom(6).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if target.exists() and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name too
        finally:
            os.close(folder)


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int  # from the beginning of the file
    size: int


@dataclass(frozen=True)
class Opened:
    """A file whose header has been verified; its arrays are read when they are asked for, all at once."""

    path: Path
    header: dict[str, Any]
    places: dict[str, _Place]
    read_into: Callable[[memoryview, int], None]

    def arrays(self, checksums: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """All arrays, each compared with its checksum."""
        if set(checksums) != set(self.places):
            raise ModelFileError(f"{self.path} has other arrays than its header lists.")
        found = {name: np.empty(place.shape, place.dtype) for name, place in self.places.items()}
        starts = {name: place.start for name, place in self.places.items()}
        seen = _checksums({name: _bytes_of(a) for name, a in found.items()}, starts, self.read_into)
        if wrong := [name for name in found if seen[name] != checksums[name]]:
            raise ModelFileError(
                f"{self.path} is damaged: the numbers of {wrong[0]!r} are not those that were written. Use a copy."
            )
        return found


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """Open a file and verify its header; whatever is wrong with it is a ModelFileError."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe or a device might never end
        raise ModelFileError(f"{path} is no file. krein.load reads what krein.save wrote.")
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        read_into = _reader(file, path)

        def read(count: int, offset: int) -> bytearray:
            out = bytearray(count)
            read_into(memoryview(out), offset)
            return out

        foreign = f"{path} is no model file: krein.load reads what krein.save wrote, and nothing else."
        if size < LENGTH.size + SEAL_BYTES:
            raise ModelFileError(foreign)
        length = LENGTH.unpack(read(LENGTH.size, 0))[0]
        if length > min(LONGEST, size - LENGTH.size - SEAL_BYTES):
            raise ModelFileError(f"{foreign[:-1]}; or it was cut off.")
        text = read(length, LENGTH.size)
        seal = hashlib.sha256(LENGTH.pack(length))
        seal.update(text)
        if seal.digest() != read(SEAL_BYTES, size - SEAL_BYTES):
            if text.startswith(b'{"__metadata__":{"krein":'):
                raise ModelFileError(
                    f"{path} is damaged or was cut off: its header is not the one written. Use a copy."
                )
            raise ModelFileError(foreign)
        entries = parsed(text, path)
        del text
        start = LENGTH.size + length
        places = _places(entries, start, size, path)
        metadata = entries.get("__metadata__")
        if not (isinstance(metadata, dict) and list(metadata) == ["krein"] and isinstance(metadata["krein"], str)):
            raise ModelFileError(foreign)
        yield Opened(path, parsed(metadata["krein"], path), places, read_into)


def parsed(text: bytearray | str, path: Path) -> dict[str, Any]:
    """The JSON object that ``text`` is; names that stand twice, NaN, and nesting without end are refused."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands twice")
        return found

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no number of JSON")

    try:
        found = json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} has a header that cannot be read: {error or 'nested too deeply'}.") from None
    if not isinstance(found, dict):
        raise ModelFileError(f"{path} has a header that is no JSON object.")
    return found


def _places(entries: Mapping[str, Any], start: int, size: int, path: Path) -> dict[str, _Place]:
    """Where each array stands: end to end, from the header to the end of the file, the seal last."""
    found: dict[str, _Place] = {}
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        if not (isinstance(entry, dict) and set(entry) == {"dtype", "shape", "data_offsets"}):
            raise ModelFileError(f"{path} says of {name!r} something else than dtype, shape and data_offsets.")
        kind, shape, ends = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not (isinstance(kind, str) and kind in TENSORS):
            raise ModelFileError(f"{path} holds {name!r} in a type that is not known, {kind!r}.")
        if not (_are_sizes(shape) and len(shape) <= MOST_DIMENSIONS and _are_sizes(ends) and len(ends) == 2):
            raise ModelFileError(f"{path} gives {name!r} a shape or a place that is none: {shape!r}, {ends!r}.")
        dtype = np.dtype(TENSORS[kind]).newbyteorder("<")
        if ends[1] - ends[0] != math.prod(shape) * dtype.itemsize:
            raise ModelFileError(f"{path} gives {name!r} of shape {shape} {ends[1] - ends[0]} bytes.")
        found[name] = _Place(dtype, tuple(shape), start + ends[0], ends[1] - ends[0])
    at = start
    for name, place in sorted(found.items(), key=lambda item: (item[1].start, item[1].size)):
        if place.start != at:
            raise ModelFileError(f"{path} has arrays that overlap or leave gaps, at {name!r}.")
        at += place.size
    seal = found.pop(SEAL, None)
    if at != size or seal is None or (seal.start, seal.size) != (size - SEAL_BYTES, SEAL_BYTES):
        raise ModelFileError(f"{path} is longer or shorter than its header says. Use a copy.")
    return found


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**62 for v in values)


def _reader(file: Any, path: Path) -> Callable[[memoryview, int], None]:
    """A function that fills a buffer from a place in the file; several threads may call it."""
    lock = threading.Lock()

    def some(buffer: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(file.fileno(), [buffer], offset)
        with lock:
            file.seek(offset)
            return int(file.readinto(buffer))

    def read_into(buffer: memoryview, offset: int) -> None:
        done = 0
        while done < len(buffer):
            count = some(buffer[done:], offset + done)
            if count == 0:
                raise ModelFileError(f"{path} became shorter while it was read. Try again.")
            done += count

    return read_into


# -- checksums ---------------------------------------------------------------------------------------------------------


def _checksums(
    data: Mapping[str, memoryview], starts: Mapping[str, int], fill: Callable[[memoryview, int], None] | None = None
) -> dict[str, str]:
    """For each name the SHA-256 of the SHA-256 of its chunks; a chunk is filled right before it is hashed."""
    chunks = [(chunk, starts[name] + CHUNK * i) for name, part in data.items() for i, chunk in enumerate(_chunks(part))]

    def digests(batch: list[tuple[memoryview, int]]) -> list[bytes]:
        found = []
        for chunk, offset in batch:
            if fill is not None:
                fill(chunk, offset)
            found.append(hashlib.sha256(chunk).digest())
        return found

    batches = list(_batches(chunks))
    if len(batches) == 1:  # a thread would take longer to start
        parts = digests(batches[0])
    else:
        with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
            parts = list(chain.from_iterable(pool.map(digests, batches)))
    each = iter(parts)
    return {name: hashlib.sha256(b"".join(islice(each, _count(part)))).hexdigest() for name, part in data.items()}


def _batches(chunks: list[tuple[memoryview, int]]) -> Iterator[list[tuple[memoryview, int]]]:
    """Small chunks together, as handing one to a thread costs more than hashing it."""
    batch: list[tuple[memoryview, int]] = []
    held = 0
    for chunk in chunks:
        batch.append(chunk)
        held += len(chunk[0])
        if held >= CHUNK:
            yield batch
            batch, held = [], 0
    yield batch


def _chunks(data: memoryview) -> list[memoryview]:
    return [data[start : start + CHUNK] for start in range(0, len(data), CHUNK)]


def _count(data: memoryview) -> int:
    return -(-len(data) // CHUNK)


def _bytes_of(a: NDArray[Any]) -> memoryview:
    return a.reshape(-1).view(np.uint8).data if a.size else memoryview(b"")
