"""Objects in, a flat list of JSON values and a set of arrays out, and back.

Each object is one entry of the list and refers to entries before it by number. So what is shared stays shared, nothing
can contain itself, and putting a file together again is one loop without recursion, whatever the file says.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import types
from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from krein.errors import InputError, warn
from krein.persistence.container import NAMES, SEAL
from krein.persistence.registry import KINDS, kind_of

__all__ = ["Decoder", "Encoder", "MissingFunction", "OtherMatrix"]

# Values may be nested up to MAX_DEPTH deep; no model comes near.
MAX_DEPTH = 100
# Without sharing a file may have at most MAX_SHARING times as many entries as it has; no model comes near.
MAX_SHARING = 100
# A list of PACKED_LENGTH strings, or of as many similar arrays, is written as one array.
PACKED_LENGTH = 16
# A matrix that stays outside is recognized by FINGERPRINT_ROWS of its rows.
FINGERPRINT_ROWS = 64
# Saving warns before it copies a memory-mapped file of more than LARGE_FILE bytes.
LARGE_FILE = 2**26
# Unicode ends at LAST_CHARACTER; NumPy does not check what it is given.
LAST_CHARACTER = 0x10FFFF
# An array of text or bytes has one of these types, with a length of at least 1.
TEXT_TYPE = re.compile(r"<U([1-9][0-9]{0,8})|\|S([1-9][0-9]{0,8})")
FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
SEQUENCES: dict[str, Callable[..., Any]] = {"list": list, "tuple": tuple}

Entry = dict[str, Any]
Named = Mapping[str, Any]  # the user's functions and matrices, of which a file holds the names


class Encoder:
    """Takes objects apart; ``entries`` and ``arrays`` are what a file needs to have."""

    def __init__(self, named: Named) -> None:
        self.named = named
        self.entries: list[Entry] = []
        self.arrays: dict[str, NDArray[Any]] = {}
        self._known: dict[Any, tuple[int, Any]] = {}  # place and value; alive, so that no other value gets its address

    def value(self, value: Any, path: str = "", depth: int = 0) -> Any:
        """Return ``value`` as JSON: itself, or a reference to an entry. ``path`` says where it was met."""
        if value is None or type(value) in (bool, str, int):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if depth > MAX_DEPTH:
            raise InputError(f"{path[:80]}... is nested more than {MAX_DEPTH} deep, and cannot be saved. Flatten it.")
        key = _identity(value)
        if key not in self._known:
            entry = self._entry(value, path, depth + 1)
            self.entries.append(entry)
            self._known[key] = (len(self.entries) - 1, value)
        return {"ref": self._known[key][0]}

    def _entry(self, value: Any, path: str, depth: int) -> Entry:
        for name, given in self.named.items():
            if isinstance(given, np.ndarray):
                if _is_matrix(value, given):
                    return {"is": "matrix", "name": name, **fingerprint(given)}
            elif value is given or (isinstance(value, types.MethodType) and value == given):
                return {"is": "function", "name": name}
        kind = kind_of(value)
        if kind is not None:
            try:
                parts = kind.apart(value)
            except InputError as error:
                raise InputError(f"{path or type(value).__name__} cannot be saved: {error}.") from None
            before = f"{path}." if path else ""
            fields = {name: self.value(part, before + name, depth) for name, part in parts.items()}
            return {"is": kind.name, "fields": fields}
        if type(value) in (np.ndarray, np.memmap):
            if isinstance(value, np.memmap) and value.nbytes > LARGE_FILE:
                warn(
                    f"{path or 'values'} is a file of {value.nbytes / 1e6:.0f} MB ({value.filename}), and becomes part "
                    "of the model file. To leave it where it is give it a name, here and at krein.load: "
                    'matrices={"similarities": path}.'
                )
            return self._array(value, path, depth)
        if isinstance(value, np.generic):
            return {**self._array(np.asarray(value), path, depth), "is": "scalar"}
        if type(value) in (list, tuple):
            of = type(value).__name__
            if len(value) >= PACKED_LENGTH and {type(item) for item in value} in ({str}, {bytes}):
                return {"is": "strings", "of": of, **self._strings(value, path)}
            if len(value) >= PACKED_LENGTH and _differ_in_length_alone(value):
                return {"is": "arrays", "of": of, **self._concatenated(value, path)}
            return {"is": of, "items": self._all(value, path, depth)}
        if type(value) is dict:
            keys = [self.value(key, f"{path}.key{i}", depth) for i, key in enumerate(value)]
            return {"is": "dict", "keys": keys, "values": self._all(value.values(), path, depth)}
        if type(value) is bytes:
            return {"is": "bytes", "array": self._store(np.frombuffer(value, np.uint8), path)}
        raise InputError(_refusal(value, path))

    def _all(self, values: Any, path: str, depth: int) -> list[Any]:
        return [self.value(value, f"{path}.{i}", depth) for i, value in enumerate(values)]

    def _array(self, a: NDArray[Any], path: str, depth: int) -> Entry:
        a = np.asarray(a)
        shape = list(a.shape)
        if a.dtype.kind == "O":
            return {"is": "objects", "shape": shape, "items": self.value(a.ravel().tolist(), path, depth)}
        a = a.astype(a.dtype.newbyteorder("<"), copy=False)
        if a.dtype.kind in "US" and a.dtype.itemsize:
            raw = np.frombuffer(np.ascontiguousarray(a).tobytes(), np.uint8)
            return {"is": "text", "dtype": a.dtype.str, "shape": shape, "array": self._store(raw, path)}
        if a.dtype.newbyteorder("=") not in NAMES:
            raise InputError(f"{path} is an array of {a.dtype}, which is not kept. Convert it first.")
        if a.ndim > 1 and a.flags.f_contiguous and not a.flags.c_contiguous:  # products round as the layout has it
            return {"is": "array", "order": "F", "array": self._store(a.T, path)}
        return {"is": "array", "array": self._store(a, path)}

    def _concatenated(self, values: Any, path: str) -> Entry:
        lengths = np.array([len(a) for a in values], dtype="<i8")
        whole = np.concatenate(values)
        return {
            "array": self._store(whole.astype(whole.dtype.newbyteorder("<"), copy=False), path),
            "lengths": self._store(lengths, f"{path}.lengths"),
        }

    def _strings(self, values: Any, path: str) -> Entry:
        raw = [v.encode("utf-8", "surrogatepass") if isinstance(v, str) else v for v in values]
        lengths = np.array([len(v) for v in raw], dtype="<i8")
        return {
            "kind": type(values[0]).__name__,
            "text": self._store(np.frombuffer(b"".join(raw), np.uint8), path),
            "lengths": self._store(lengths, f"{path}.lengths"),
        }

    def _store(self, a: NDArray[Any], path: str) -> str:
        """Add an array to the file and return its name, which is the path with as many quotes as make it unique."""
        name = path or "values"
        while name in self.arrays or name in (SEAL, "__metadata__"):
            name += "'"
        self.arrays[name] = np.asarray(a, order="C")
        return name


def _differ_in_length_alone(values: Any) -> bool:
    """Return whether all are arrays that could be concatenated, as sequences can."""
    first = values[0]
    if type(first) is not np.ndarray or first.ndim == 0 or first.dtype.newbyteorder("=") not in NAMES:
        return False
    return all(
        type(a) is np.ndarray and a.dtype == first.dtype and a.ndim == first.ndim and a.shape[1:] == first.shape[1:]
        for a in values
    )


def _identity(value: Any) -> Any:
    """Return a key that is equal for arrays of the same memory, type and layout, and for the same object otherwise."""
    if type(value) in (np.ndarray, np.memmap) and value.size:
        place = value.__array_interface__["data"][0]
        return place, value.dtype.str, value.shape, value.strides
    return id(value)


def _refusal(value: Any, path: str) -> str:
    if callable(value):
        name = getattr(value, "__name__", type(value).__name__)
        name = name if name.isidentifier() else "mine"
        return (
            f"{path} is {value!r}, code of yours, and a model file holds none: loading one never runs what it says. "
            f"Give it a name, krein.save(model, path, functions={{{name!r}: ...}}), and hand it to "
            f"krein.load(path, functions={{{name!r}: ...}}) again."
        )
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return (
        f"{path} is a {kind}, which a model file does not hold. It holds krein's estimators, kernels and "
        "approximations, scikit-learn's kernels of Gaussian processes, arrays of numbers or text, sparse matrices, and "
        "plain values of Python in lists, tuples and dicts. Convert it, or leave it out."
    )


def fingerprint(S: NDArray[Any]) -> Entry:
    """Return what a matrix that stays outside is recognized by: shape, type, and a checksum of some of its rows."""
    some = np.unique(np.linspace(0, max(0, len(S) - 1), FINGERPRINT_ROWS).astype(int)) if len(S) else np.arange(0)
    digest = hashlib.sha256()
    for i in some:
        digest.update(np.ascontiguousarray(S[i], dtype=S.dtype.newbyteorder("<")).tobytes())
    return {"shape": list(S.shape), "dtype": S.dtype.newbyteorder("<").str, "checksum": digest.hexdigest()}


def _is_matrix(value: Any, given: NDArray[Any]) -> bool:
    """Return whether a value is this array: the same memory, or the same file."""
    if not isinstance(value, np.ndarray) or value.shape != given.shape or value.dtype != given.dtype:
        return False
    if isinstance(value, np.memmap) and isinstance(given, np.memmap) and value.filename is not None:
        files = [os.path.realpath(a.filename) for a in (value, given) if a.filename is not None]
        if len(files) == 2 and files[0] == files[1] and value.offset == given.offset:
            return True
    return bool(value.size and _identity(value) == _identity(given))


class Decoder:
    """Puts objects together from ``entries`` and ``arrays``; anything unexpected is a ValueError or its like."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], named: Named) -> None:
        self.named = named
        self._arrays = dict(arrays)
        self._made: list[Any] = []
        self._depths: list[int] = []
        self._weights: list[int] = []  # how many entries each would be if nothing were shared
        self._met: list[int] = []  # the references of the current entry

    def run(self, entries: list[Any]) -> list[Any]:
        """Return the object of each entry."""
        most = MAX_SHARING * len(entries) + 10_000
        for entry in entries:
            self._met = []
            made = self._entry(entry)
            depth = 1 + max((self._depths[i] for i in self._met), default=0)
            weight = 1 + sum(self._weights[i] for i in self._met)
            if depth > 2 * MAX_DEPTH or weight > most:
                raise ValueError("its values are nested or shared too often")
            self._made.append(made)
            self._depths.append(depth)
            self._weights.append(weight)
        if self._arrays:
            raise ValueError(f"nothing uses the array {next(iter(self._arrays))!r}")
        return self._made

    def value(self, given: Any) -> Any:
        """The object a JSON value stands for."""
        if given is None or type(given) in (bool, str, int, float):
            return given
        if isinstance(given, dict) and len(given) == 1:
            if "float" in given:
                return FLOATS[given["float"]]
            place = given.get("ref")
            if type(place) is int and 0 <= place < len(self._made):
                self._met.append(place)
                return self._made[place]
        raise ValueError(f"{str(given)[:80]} is not a value")

    def _entry(self, entry: Entry) -> Any:
        kind = entry["is"]
        if kind not in KINDS and kind not in _READERS:
            raise ValueError(f"{kind!r} is not known to this version of krein; a newer one may know it")
        reader, known = (Decoder._object, "fields") if kind in KINDS else _READERS[kind]
        if unknown := sorted(set(entry) - {"is", *known.split()}):
            raise ValueError(f"{kind!r} has {unknown[0]!r}, which this version of krein does not know")
        return reader(self, entry)

    # -- one method for each kind of entry -------------------------------------------------------------------------

    def _object(self, entry: Entry) -> Any:
        return KINDS[entry["is"]].together({str(name): self.value(part) for name, part in entry["fields"].items()})

    def _function(self, entry: Entry) -> Any:
        name = str(entry["name"])
        if name not in self.named:
            raise MissingFunction(name, "function", "functions")
        return self.named[name]

    def _matrix(self, entry: Entry) -> Any:
        name = str(entry["name"])
        if name not in self.named:
            raise MissingFunction(name, "matrix", "matrices")
        given = self.named[name]
        before = f"{str(entry['dtype'])[:20]} {str(entry['shape'])[:40]}"
        if not isinstance(given, np.ndarray):
            raise OtherMatrix(name, before, type(given).__name__)
        if {"is": "matrix", "name": name, **fingerprint(given)} != entry:
            raise OtherMatrix(name, before, f"{given.dtype.newbyteorder('<').str} {list(given.shape)}")
        return given

    def _array(self, entry: Entry) -> NDArray[Any]:
        a = self._taken(entry["array"])
        if entry.get("order", "F") != "F":
            raise ValueError("the memory order of an array is not known")
        return a.T if "order" in entry else a

    def _text(self, entry: Entry) -> NDArray[Any]:
        if not TEXT_TYPE.fullmatch(entry["dtype"]):
            raise ValueError("the type of an array of text is not known")
        raw = self._bytes(entry["array"])
        dtype = np.dtype(entry["dtype"])
        if dtype.kind == "U" and raw.size and raw.view("<u4").max() > LAST_CHARACTER:
            raise ValueError("a text holds numbers that are not characters")
        text: NDArray[Any] = raw.view(dtype)
        return text.reshape(_shape(entry["shape"], raw.size // dtype.itemsize))

    def _scalar(self, entry: Entry) -> Any:
        a = self._text(entry) if "dtype" in entry else self._array(entry)
        if a.shape != ():
            raise ValueError("a scalar has a shape")
        return a[()]

    def _objects(self, entry: Entry) -> NDArray[Any]:
        items = self.value(entry["items"])
        if not isinstance(items, list):
            raise ValueError("an array of objects has no items")
        out = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):  # NumPy would look into lists in a list
            out[i] = item
        return out.reshape(_shape(entry["shape"], len(items)))

    def _list(self, entry: Entry) -> Any:
        return SEQUENCES[entry["is"]](map(self.value, entry["items"]))

    def _dict(self, entry: Entry) -> dict[Any, Any]:
        keys = [self.value(key) for key in entry["keys"]]
        found = dict(zip(keys, map(self.value, entry["values"]), strict=True))
        if len(found) != len(keys):
            raise ValueError("a key occurs twice")
        return found

    def _strings(self, entry: Entry) -> Any:
        parts = self._split(self._bytes(entry["text"]).tobytes(), entry["lengths"])
        readers = {"str": lambda raw: raw.decode("utf-8", "surrogatepass"), "bytes": bytes}
        return SEQUENCES[entry["of"]](map(readers[entry["kind"]], parts))

    def _arrays_in(self, entry: Entry) -> Any:
        whole = self._taken(entry["array"])
        if whole.ndim == 0:
            raise ValueError("joined arrays are a single number")
        return SEQUENCES[entry["of"]](self._split(whole, entry["lengths"]))

    def _split(self, whole: Any, name: Any) -> list[Any]:
        """Parts of these lengths, end to end."""
        lengths = self._taken(name)
        if lengths.dtype != np.int64 or lengths.ndim != 1 or (len(lengths) and lengths.min() < 0):
            raise ValueError("the lengths of joined values are not counts")
        ends = list(accumulate(lengths.tolist(), initial=0))  # Python's numbers: these do not overflow
        if ends[-1] != len(whole):
            raise ValueError("the lengths of joined values do not add up to their whole")
        return [whole[start:end] for start, end in pairwise(ends)]

    def _plain_bytes(self, entry: Entry) -> bytes:
        return self._bytes(entry["array"]).tobytes()

    # -- arrays ----------------------------------------------------------------------------------------------------

    def _taken(self, name: Any) -> NDArray[Any]:
        return self._arrays.pop(name)  # each belongs to one entry

    def _bytes(self, name: Any) -> NDArray[np.uint8]:
        a = self._taken(name)
        if a.dtype != np.uint8 or a.ndim != 1:
            raise ValueError(f"{name!r} is not a vector of bytes")
        return a


class MissingFunction(Exception):
    """A function or matrix of the user's that was not handed in; its name, what it is, and where it goes."""


class OtherMatrix(Exception):
    """A matrix that is not the one that was saved with; its name, what it was, and what it is."""


# How the kinds of entries are read, and the fields that they may have.
_READERS: dict[Any, tuple[Callable[[Decoder, Entry], Any], str]] = {
    "function": (Decoder._function, "name"),
    "matrix": (Decoder._matrix, "name shape dtype checksum"),
    "array": (Decoder._array, "array order"),
    "text": (Decoder._text, "array dtype shape"),
    "scalar": (Decoder._scalar, "array dtype shape order"),
    "objects": (Decoder._objects, "shape items"),
    "list": (Decoder._list, "items"),
    "tuple": (Decoder._list, "items"),
    "dict": (Decoder._dict, "keys values"),
    "strings": (Decoder._strings, "of kind text lengths"),
    "arrays": (Decoder._arrays_in, "of array lengths"),
    "bytes": (Decoder._plain_bytes, "array"),
}


def _shape(given: Any, size: int) -> tuple[int, ...]:
    shape = tuple(given)
    if not all(type(n) is int and n >= 0 for n in shape) or len(shape) > 32 or math.prod(shape) != size:
        raise ValueError("the shape of an array does not fit its size")
    return shape
