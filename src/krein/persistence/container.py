"""Arrays and a JSON header in, a safetensors file out, and back, with every byte under a checksum (docs/files.md).

The safetensors package reads the file: it compares the header with the size of the file before anything is allocated.
Here are the checksums, which it does not have, and the replacement of a file, whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from krein.errors import InputError, ModelFileError

__all__ = ["NAMES", "SEAL", "TENSORS", "Opened", "opened", "replacing", "write"]

TENSORS = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16", "U32": "uint32",
    "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64",
}  # fmt: skip
NAMES = {np.dtype(numpy): name for name, numpy in TENSORS.items()}
# A file begins with the length of its header in this form.
LENGTH = struct.Struct("<Q")
# safetensors reads no header of more than LONGEST_HEADER bytes.
LONGEST_HEADER = 100_000_000
# The values of a parsed header take about PARSED_BYTES bytes for each of these characters. They may take LARGEST_PARSED
# times the size of the file and PARSED_ROOM bytes more.
PARSED_BYTES = {b"{": 240, b"[": 64, b",": 40}
LARGEST_PARSED = 3
PARSED_ROOM = 50_000_000
# Every header that krein writes begins with these bytes.
BEGINNING = b'{"__metadata__":{"krein":'
# The array of this name holds the SHA-256 of all that stands before the arrays.
SEAL = "checksum"
SEAL_BYTES = 32
# The checksum of an array is made of the checksums of its chunks of CHUNK bytes.
CHUNK = 2**20
# Up to THREADS threads hash chunks, of which each takes CHUNKS_PER_TASK at a time.
THREADS = 8
CHUNKS_PER_TASK = 16
SPECIAL_FILES = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}  # fmt: skip


# -- writing -----------------------------------------------------------------------------------------------------------


def write(path: Path, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a file, all of it or nothing: whoever looks at ``path`` finds what was there before, or what is there now.

    ``arrays`` are C-contiguous and little-endian, of the types in TENSORS. The header is put together here because
    safetensors' ``save_file`` cannot do what is needed: the last array is a checksum of the header, the file has to be
    on disk before it takes its name, and before version 0.8 ``save_file`` copied every array.
    """
    inner = json.dumps({**header, "checksums": _checksums(arrays)}, allow_nan=False)
    entries: dict[str, Any] = {"__metadata__": {"krein": inner}}
    end = 0
    for name, a in {**arrays, SEAL: np.empty(SEAL_BYTES, np.uint8)}.items():
        start, end = end, end + a.nbytes
        kind = NAMES[a.dtype.newbyteorder("=")]
        entries[name] = {"dtype": kind, "shape": a.shape, "data_offsets": (start, end)}
    text = json.dumps(entries, allow_nan=False, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % LENGTH.size)  # the arrays are aligned
    if len(text) > LONGEST_HEADER:
        raise ModelFileError(
            f"The header of {path} would take {len(text)} bytes, and no more than {LONGEST_HEADER} are read."
        )
    if not _parses_small(text, len(text) + end):
        raise ModelFileError(f"{path} would hold more small values than are read. Put long lists into arrays.")
    beginning = LENGTH.pack(len(text)) + text
    with replacing(path) as file:
        file.write(beginning)
        for a in arrays.values():
            file.write(_bytes_of(a))
        file.write(hashlib.sha256(beginning).digest())


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file under another name in the same folder, which replaces ``path`` once it is safely on disk.

    Where ``path`` is a symbolic link its target is replaced and the link stays. What is no regular file, or leads to
    none, is an InputError before anything is written.
    """
    target = Path(os.path.realpath(path))
    if found := _special_file(path):
        seen = f"{path} leads to {target}, {found}" if os.path.islink(path) else f"{path} is {found}"
        raise InputError(
            f"Only a regular file can be replaced, and {seen}. Nothing was written. Give the name of a regular file, "
            "or one that does not exist yet."
        )
    if not target.parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {target.parent}. Make it first.")
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


def _special_file(path: Path) -> str | None:
    """Return what stands at ``path``, or where it leads to, if that is something else than a regular file."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    return None if stat.S_ISREG(mode) else SPECIAL_FILES.get(stat.S_IFMT(mode), "no regular file")


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """A file whose header has been verified; its arrays are read when they are asked for, all at once."""

    path: Path
    header: dict[str, Any]
    tensors: Any  # safetensors' safe_open
    file: BinaryIO  # at the first array

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays, each compared with its checksum.

        safetensors has made sure that they stand end to end. They are read in this order, which takes less time
        than its ``get_tensor``.
        """
        found = {name: self._next(self.tensors.get_slice(name)) for name in self.tensors.offset_keys()}
        found.pop(SEAL)
        checksums = self.header["checksums"]
        if set(checksums) != set(found):
            raise ModelFileError(f"{self.path} has other arrays than its header lists.")
        seen = _checksums(found)
        if wrong := [name for name in found if seen[name] != checksums[name]]:
            raise ModelFileError(
                f"{self.path} is damaged: the numbers of {wrong[0]!r} are not those that were written. Use a copy."
            )
        return found

    def _next(self, tensor: Any) -> NDArray[Any]:
        kind = tensor.get_dtype()
        if kind not in TENSORS:
            raise ModelFileError(f"{self.path} holds an array of a type that is not known, {kind}.")
        a = np.empty(tensor.get_shape(), np.dtype(TENSORS[kind]).newbyteorder("<"))
        if a.size and self.file.readinto(_bytes_of(a)) < a.nbytes:  # type: ignore[attr-defined]
            raise ModelFileError(f"{self.path} became shorter while it was read. Try again.")
        return a


@contextmanager
def opened(path: Path) -> Iterator[Opened]:
    """Open a file and verify its header; whatever is wrong with it is a ModelFileError."""
    from safetensors import SafetensorError, safe_open  # not needed by those who load no model

    if found := _special_file(path):  # which might never end
        raise ModelFileError(f"{path} is {found}. krein.load reads the files that krein.save wrote.")
    with open(path, "rb") as file:
        length = file.read(LENGTH.size).ljust(LENGTH.size, b"\0")
        size = os.fstat(file.fileno()).st_size
        text = file.read(min(LENGTH.unpack(length)[0], LONGEST_HEADER, size))
        if not _parses_small(text, size):
            raise _refusal(file, path, "its header has too many values")
        del text
        file.seek(0)
        try:
            # "mmap", the other backend, ends the process if the file becomes shorter while it is read.
            tensors: Any = safe_open(path, framework="np", backend="pread")
            seal = tensors.get_tensor(SEAL).tobytes() if tensors.get_slice(SEAL).get_dtype() == "U8" else None
        except SafetensorError as error:
            raise _refusal(file, path, str(error).rstrip(".")) from None
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            with opened(path) as again:  # the file was replaced after the first call opened it
                yield again
            return
        length = file.read(LENGTH.size)
        text = file.read(LENGTH.unpack(length)[0])
        if hashlib.sha256(length + text).digest() != seal:
            raise _refusal(file, path, "its header is not the one written")
        metadata = _parsed(text, path).get("__metadata__", {})  # safetensors takes a name that stands twice
        if list(metadata) != ["krein"]:
            raise _refusal(file, path, "its header has other metadata")
        yield Opened(path, _parsed(metadata["krein"], path), tensors, file)


def _parses_small(text: bytes, size: int) -> bool:
    """Whether the header of a file of ``size`` bytes takes little memory once it is parsed."""
    parsed = sum(cost * text.count(character) for character, cost in PARSED_BYTES.items())
    return parsed <= LARGEST_PARSED * size + PARSED_ROOM


def _refusal(file: BinaryIO, path: Path, reason: str) -> ModelFileError:
    file.seek(LENGTH.size)
    if file.read(len(BEGINNING)) == BEGINNING:
        return ModelFileError(f"{path} is damaged or was cut off: {reason}. Use a copy.")
    return ModelFileError(f"{path} is no model file: krein.load reads what krein.save wrote, and nothing else.")


def _parsed(text: str | bytes, path: Path) -> dict[str, Any]:
    """Return the JSON object that ``text`` is; names that stand twice, NaN, and nesting without end are refused."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name occurs twice")
        return found

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not a number of JSON")

    try:
        found = json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} has a header that cannot be read: {error or 'nested too deeply'}.") from None
    if not isinstance(found, dict):
        raise ModelFileError(f"{path} has a header that is no JSON object.")
    return found


# -- checksums ---------------------------------------------------------------------------------------------------------


def _checksums(arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """Return for each array the SHA-256 of the SHA-256 of its chunks."""
    bytes_of = {name: _bytes_of(a) for name, a in arrays.items()}
    chunks = {name: [b[i : i + CHUNK] for i in range(0, len(b), CHUNK)] for name, b in bytes_of.items()}
    every = list(chain.from_iterable(chunks.values()))
    tasks = [every[i : i + CHUNKS_PER_TASK] for i in range(0, len(every), CHUNKS_PER_TASK)]
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        digests = chain.from_iterable(pool.map(_digests, tasks))
        return {name: hashlib.sha256(b"".join(islice(digests, len(c)))).hexdigest() for name, c in chunks.items()}


def _digests(chunks: list[memoryview]) -> list[bytes]:
    return [hashlib.sha256(chunk).digest() for chunk in chunks]


def _bytes_of(a: NDArray[Any]) -> memoryview:
    return a.reshape(-1).view(np.uint8).data if a.size else memoryview(b"")
