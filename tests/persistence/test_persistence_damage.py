"""Model files, the bad ones: damaged, cut off, foreign, newer or made to harm. All are refused, with a sentence.

Files made to harm have checksums that are right: they are put together here by hand, apart from the source.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
import sys
import tracemalloc

import numpy as np
import pytest
from safetensors.numpy import save_file

import krein
from krein.persistence.container import opened

RNG = np.random.default_rng(11)
X = RNG.standard_normal((30, 2))
TYPES = {"float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8", "uint32": "U32"}
WATCHED = (
    "exec", "compile", "import", "pickle.", "marshal.", "os.system", "os.exec", "os.posix_spawn", "os.fork",
    "os.remove", "os.rename", "os.mkdir", "os.putenv", "subprocess.", "socket.", "ctypes.", "open", "shutil.",
)  # fmt: skip
seen: list[tuple[str, str]] = []
watching = [False]


def _hook(event, arguments):
    if watching[0] and event.startswith(WATCHED):
        seen.append((event, str(arguments[:1])))


sys.addaudithook(_hook)  # Python's own account of what is executed, imported or opened; it stays, so it has a switch


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small file of a fitted machine, and its bytes."""
    path = tmp_path_factory.mktemp("whole") / "model.krein"
    y = np.where(X[:, 0] > 0, "a", "b")
    krein.save(krein.SVC(n_blocks=2, rank=3, random_state=0, drop=0.0).fit(X, y), path)
    krein.load(path)  # what is imported when it is first needed is imported now
    return path.read_bytes()


def refused(path, most=None):
    """Load, see it refused with a sentence, nothing executed or opened beside the file, and little allocated."""
    seen.clear()
    tracemalloc.start()
    watching[0] = True
    try:
        with pytest.raises(krein.ModelFileError) as caught:
            krein.load(path)
    finally:
        watching[0] = False
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert [event for event in seen if event != ("open", str((str(path),)))] == []
    if most is not None:
        assert peak <= most
    told = str(caught.value)
    assert told.startswith(str(path))
    assert told.endswith(".")
    return told


# -- damage ------------------------------------------------------------------------------------------------------------


def test_a_thousand_flipped_bytes_are_all_noticed(whole, tmp_path):
    path = tmp_path / "model.krein"
    header = 8 + int.from_bytes(whole[:8], "little")
    places = [*range(8), *RNG.integers(8, header, 400), *RNG.integers(header, len(whole), 592)]
    assert len(places) == 1000
    for place in places:
        data = bytearray(whole)
        data[place] ^= int(RNG.integers(1, 256))
        path.write_bytes(data)
        with pytest.raises(krein.ModelFileError, match=r"\.$"):
            krein.load(path)


def test_a_file_cut_off_or_with_more_behind_it_is_refused(whole, tmp_path):
    path = tmp_path / "model.krein"
    for length in [*range(60), len(whole) - 1, *RNG.integers(60, len(whole), 140)]:
        path.write_bytes(whole[:length])
        with pytest.raises(krein.ModelFileError, match=r"\.$"):
            krein.load(path)
    for more in (b"\0", b"x" * 32, whole):
        path.write_bytes(whole + more)
        refused(path)


def test_blocks_of_zeros_and_swapped_parts_are_refused(whole, tmp_path):
    path = tmp_path / "model.krein"
    for start in range(0, len(whole) - 512, 512):
        if any(whole[start : start + 512]):
            path.write_bytes(whole[:start] + bytes(512) + whole[start + 512 :])
            with pytest.raises(krein.ModelFileError):
                krein.load(path)
    path.write_bytes(whole[:4096] + whole[5120:6144] + whole[4096:5120] + whole[6144:])
    refused(path)


# -- foreign -----------------------------------------------------------------------------------------------------------


class Harm:
    def __reduce__(self):
        return os.system, ("exit 1",)


@pytest.mark.parametrize(
    "content",
    [b"", b"x", pickle.dumps(Harm()), pickle.dumps([Harm()] * 100), b"\x80\x04" * 100, b"PK\3\4" + bytes(100),
     b"{}" * 50, json.dumps({"class": "SVC"}).encode() * 9, struct.pack("<Q", 2**63) + bytes(100),
     struct.pack("<Q", 2) + b"{}" + bytes(99)],
    ids=["empty", "one byte", "pickle", "pickles", "opcodes", "zip", "braces", "json", "endless header", "no header"],
)  # fmt: skip
def test_a_foreign_file_is_refused_and_not_executed(content, tmp_path):
    path = tmp_path / "model.krein"
    path.write_bytes(content)
    assert "no model file" in refused(path, most=200_000)


def test_a_file_of_safetensors_that_is_not_ours_is_refused(tmp_path):
    path = tmp_path / "model.krein"
    save_file({"weights": np.eye(50), "checksum": np.zeros(32, np.uint8)}, path, metadata={"format": "np"})
    assert "no model file" in refused(path, most=200_000)


def test_what_is_no_file_is_refused_without_waiting(tmp_path):
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.krein")
        refused(tmp_path / "pipe.krein")
    refused(tmp_path)
    with pytest.raises(FileNotFoundError):
        krein.load(tmp_path / "missing.krein")


# -- made to harm ------------------------------------------------------------------------------------------------------


def sealed(path, entries, arrays=None, *, change=lambda header: header, tensors=None, root=-1, **extra):
    """Write a file whose checksums are right, whatever else it says."""
    arrays = arrays or {}
    blobs = {name: np.ascontiguousarray(a).tobytes() for name, a in arrays.items()}
    sums = {}
    for name, blob in blobs.items():
        parts = [hashlib.sha256(blob[i : i + 2**20]).digest() for i in range(0, len(blob), 2**20)]
        sums[name] = hashlib.sha256(b"".join(parts)).hexdigest()
    root = len(entries) + root if root < 0 else root
    inner = {"format": 1, "krein": "0", "class": "SVC", "root": root, "entries": entries, "checksums": sums, **extra}
    header = {"__metadata__": {"krein": json.dumps(inner)}}
    at = 0
    for name, a in arrays.items():
        end = at + len(blobs[name])
        header[name] = {"dtype": TYPES[str(a.dtype)], "shape": list(a.shape), "data_offsets": [at, end]}
        at = end
    header["checksum"] = {"dtype": "U8", "shape": [32], "data_offsets": [at, at + 32]}
    header.update(tensors or {})
    text = change(json.dumps(header))
    start = struct.pack("<Q", len(text)) + text.encode()
    path.write_bytes(start + b"".join(blobs.values()) + hashlib.sha256(start).digest())
    return path


def a(name):
    return {"is": "array", "array": name}


def ref(place):
    return {"ref": place}


def svc(**fields):
    return {"is": "SVC", "fields": fields}


FACTORS = {"order": np.arange(3), "basis": np.eye(3), "core": np.eye(3)}
KERNEL = {"is": "RBF", "fields": {"gamma": 1.0}}


def factorization(**fields):
    made = {"bases": ref(3), "core": ref(1), "order": ref(0), "shift": 0.0}
    return [
        a("order"),
        a("core"),
        a("basis"),
        {"is": "tuple", "items": [ref(2)]},
        {"is": "Factorization", "fields": made | fields},
    ]


def doubled(*kinds):
    """Each kernel holds the one before twice, a hundred times over."""
    names = {"Sum": "terms", "Product": "factors"}
    entries = [KERNEL]
    for level in range(100):
        kind = kinds[level % len(kinds)]
        entries.append({"is": "tuple", "items": [ref(len(entries) - 1)] * 2})
        entries.append({"is": kind, "fields": {names[kind]: ref(len(entries) - 1)}})
    return [*entries, svc(kernel=ref(len(entries) - 1))]


def nested(depth):
    entries = [KERNEL]
    for level in range(depth):
        entries.append({"is": "Normalized", "fields": {"kernel": ref(level)}})
    return [*entries, svc(kernel=ref(depth))]


def sparse(indices, indptr, shape=(2, 2)):
    entries = [{"is": "tuple", "items": list(shape)}, a("data"), a("indices"), a("indptr")]
    fields = {"shape": ref(0), "data": ref(1), "indices": ref(2), "indptr": ref(3)}
    entries += [{"is": "scipy.csr_matrix", "fields": fields}, svc(kernel=ref(4))]
    arrays = {"data": np.ones(2), "indices": np.array(indices, np.int32), "indptr": np.array(indptr, np.int32)}
    return entries, arrays


def random_state(position):
    inner = {"is": "dict", "keys": ["key", "pos"], "values": [ref(0), position]}
    outer = {
        "is": "dict",
        "keys": ["bit_generator", "state", "has_gauss", "gauss"],
        "values": ["MT19937", ref(1), 0, 0.0],
    }
    entries = [a("key"), inner, outer, {"is": "RandomState", "fields": {"state": ref(2)}}, svc(random_state=ref(3))]
    return entries, {"key": np.zeros(624, np.uint32)}


def text(dtype, raw, shape):
    return [{"is": "text", "dtype": dtype, "shape": shape, "array": "t"}, svc(C=ref(0))], {"t": np.array(raw, np.uint8)}


def strings(lengths, raw=b"abc"):
    entry = {"is": "strings", "of": "list", "kind": "str", "text": "t", "lengths": "l"}
    return [entry, svc(C=ref(0))], {"t": np.frombuffer(raw, np.uint8), "l": np.array(lengths)}


PICKLED = np.frombuffer(pickle.dumps(Harm()), np.uint8)
HARMFUL = {
    "a pickle inside": ([{"is": "pickle", "array": "p"}, svc(C=ref(0))], {"p": PICKLED}),
    "a pickle as objects": ([{"is": "text", "dtype": "|O", "shape": [1], "array": "p"}, svc()], {"p": PICKLED}),
    "a system call": ([{"is": "os.system", "fields": {"command": "exit 1"}}, svc(C=ref(0))],),
    "eval": ([{"is": "builtins.eval", "fields": {"source": "1/0"}}, svc(C=ref(0))],),
    "a function by its path": ([{"is": "function", "name": 3, "module": "os"}, svc(kernel=ref(0))],),
    "a partial of nothing": ([{"is": "tuple", "items": []}, {"is": "dict", "keys": [], "values": []},
                              {"is": "partial", "fields": {"function": "eval", "args": ref(0), "keywords": ref(1)}},
                              svc(kernel=ref(2))],),
    "another class": ([svc(__class__="x")],),
    "methods replaced": ([svc(predict=1)],),
    "a property replaced": ([svc(coef_=1)],),
    "private names": ([svc(__reduce__=1)],),
    "an attribute that is none": ([svc(**{"a b_": 1})],),
    "an approximation that is a word": ([svc(approximation_="word")],),
    "paths as names": ([svc()], {"../../../../etc/passwd": np.zeros(3), "/dev/zero": np.zeros(3)}),
    "an array used twice": ([a("x"), a("x"), svc(C=ref(0))], {"x": np.zeros(3)}),
    "a reference to itself": ([svc(C=ref(0))],),
    "a reference forward": ([svc(C=ref(1)), svc()],),
    "a reference backwards from the end": ([svc(), svc(C=ref(-1))],),
    "a reference that is true": ([svc(), svc(), svc(C={"ref": True})],),
    "a root beyond": ([svc()], {}, {"root": 7}),
    "a root that is no model": ([{"is": "tuple", "items": []}],),
    "another class than the header's": ([KERNEL],),
    "entries that are none": ([3, None],),
    "no entries": ([],),
    "checksums that are none": ([svc()], {}, {"checksums": [1]}),
    "checksums of other arrays": ([svc()], {}, {"checksums": {"x": "y"}}),
    "no format": ([svc()], {}, {"format": None}),
    "a format that is true": ([svc()], {}, {"format": True}),
    "a kernel in kernels without end": (nested(5000),),
    "sums of sums": (doubled("Sum"),),
    "sums of products of sums": (doubled("Sum", "Product"),),
    "rows beyond a sparse matrix": sparse([0, 10**9], [0, 1, 2]),
    "a sparse matrix of huge shape": sparse([0, 1], [0, 1, 2], (2**60, 2**60)),
    "a sparse matrix that goes back": sparse([0, 1], [0, 2, -1]),
    "random numbers beyond their table": random_state(10**9),
    "no characters": text("<U1", [255, 255, 255, 255], [1]),
    "text of huge shape": text("<U1", [65, 0, 0, 0], [2**62]),
    "text of a huge type": text("<U99999999", [65, 0, 0, 0], [0]),
    "strings of huge lengths": strings([2**62, 2**62, 2**62, 2**62 + 3]),
    "strings of negative lengths": strings([4, -1]),
    "no utf-8": strings([3], b"\xff\xff\xff"),
    "many objects": ([{"is": "list", "items": []}, {"is": "objects", "shape": [2**40], "items": ref(0)}, svc()],),
    "a key twice": ([{"is": "dict", "keys": ["a", "a"], "values": [1, 2]}, svc(C=ref(0))],),
    "a list as a key": ([{"is": "list", "items": []}, {"is": "dict", "keys": [ref(0)], "values": [1]}, svc()],),
    "a kernel of words": ([{"is": "RBF", "fields": {"gamma": "wide"}}, svc()],),
    "a matrix that is none": ([{"is": "Precomputed", "fields": {"S": "S"}}, svc()],),
    "order in floats": ([*factorization()[:4], *factorization()[4:], svc()], FACTORS | {"order": np.arange(3.0)}),
    "an order that repeats": ([*factorization(), svc()], FACTORS | {"order": np.zeros(3, np.int64)}),
    "a core that does not fit": ([*factorization(), svc()], FACTORS | {"core": np.eye(2)}),
    "a core of three dimensions": ([*factorization(), svc()], FACTORS | {"core": np.zeros((3, 3, 3))}),
    "a basis that is a row": ([*factorization(), svc()], FACTORS | {"basis": np.zeros(3)}),
    "a field too many": ([*factorization(mine=1), svc()], FACTORS),
    "a type by its name": ([{"is": "type", "fields": {"name": "os.PathLike"}}, svc()],),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMFUL)
def test_files_made_to_harm_are_refused_and_execute_nothing(name, whole, tmp_path):
    entries, *rest = HARMFUL[name]
    arrays, extra = (*rest, {}, {})[:2]
    path = sealed(tmp_path / "model.krein", entries, arrays, **extra)
    refused(path, most=200_000 + 14 * path.stat().st_size)  # JSON as objects of Python; those of 3.10 are the largest


def tensor(dtype="F64", shape=(1,), ends=(0, 8), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(ends), **more}


@pytest.mark.parametrize(
    "tensors",
    [
        {"x": tensor(shape=(2**40,))},
        {"x": tensor(shape=(2**40,), ends=(0, 2**43))},
        {"x": tensor(shape=(2**61, 2**61, 0), ends=(0, 0))},
        {"x": tensor(shape=(-1, -1))},
        {"x": tensor(shape=(2**64 + 1,))},
        {"x": tensor(shape=(1.0,))},
        {"x": tensor(shape=(True,))},
        {"x": tensor(shape=[1] * 100)},
        {"x": tensor(), "y": tensor()},
        {"x": tensor(ends=(8, 16))},
        {"x": tensor(ends=(8, 0))},
        {"x": tensor(dtype="O")},
        {"x": tensor(dtype=["F64"])},
        {"x": tensor(dtype="BF16", shape=(4,))},
        {"x": tensor(file="/etc/passwd")},
        {"x": "F64"},
        {"checksum": tensor("U8", (31,), (1, 32))},
        {"__metadata__": {"krein": {"format": 1}}},
        {"__metadata__": {"krein": "[" * 100_000}},
        {"__metadata__": {"krein": "[1]"}},
        {"__metadata__": {"krein": '{"format": NaN}'}},
        {"__metadata__": {"krein": '{"format": ' + "9" * 5000 + "}"}},
        {"__metadata__": {"krein": '{"format": 1, "format": 1}'}},
        {"__metadata__": {}},
    ],
    ids=lambda tensors: json.dumps(tensors)[:60],
)
def test_headers_that_lie_about_their_arrays_are_refused(tensors, whole, tmp_path):
    path = sealed(tmp_path / "model.krein", [svc()], {"x": np.zeros(1)}, tensors=tensors)
    refused(path, most=1_000_000)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"checksum"', '"x": {}, "x": {}, "checksum"'),
        lambda text: "[" * 500_000,
        lambda text: '{"a":' * 500_000,
        lambda text: text[:-1],
        lambda text: "[1, 2]",
        lambda text: text.replace("[32]", "[NaN]"),
        lambda text: text + "\0",
    ],
    ids=["a name twice", "deep lists", "deep objects", "no end", "a list", "NaN", "a zero"],
)
def test_headers_that_are_no_good_json_are_refused(change, whole, tmp_path):
    path = sealed(tmp_path / "model.krein", [svc()], change=change)
    refused(path, most=200_000 + 4 * path.stat().st_size)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(
            '"checksum": {', '"x": {"dtype": "F64", "shape": [3, 1], "data_offsets": [0, 24]}, "checksum": {'
        ),
        lambda text: text.replace('{"krein": ', '{"krein": "{}", "krein": ', 1),
        lambda text: '{"__metadata__": {"krein": "{}"}, ' + text[1:],
    ],
    ids=["an array", "the text", "the metadata"],
)
def test_a_header_that_could_be_read_in_two_ways_is_refused(change, whole, tmp_path):
    path = sealed(tmp_path / "model.krein", [a("x"), svc(C=ref(0))], {"x": np.arange(3.0)}, change=change)
    refused(path, most=200_000)


def test_a_file_that_becomes_shorter_while_it_is_read_is_refused(whole, tmp_path):
    path = tmp_path / "model.krein"
    path.write_bytes(whole)
    with opened(path) as file:
        os.truncate(path, len(whole) // 2)
        with pytest.raises(krein.ModelFileError, match=r"became shorter"):
            file.arrays()


def test_a_newer_file_says_so(tmp_path):
    path = sealed(tmp_path / "model.krein", [{"is": "thing"}], format=99, krein="9.9")
    told = refused(path)
    assert "format 99" in told
    assert "krein 9.9" in told
    assert "newer" in told


def test_a_file_put_together_by_hand_is_read(tmp_path):
    """The control: what is refused above is refused for what is wrong with it."""
    path = sealed(tmp_path / "model.krein", [a("x"), svc(C=ref(0), classes_=2)], {"x": np.arange(3.0)})
    model = krein.load(path)
    assert model.C.tolist() == [0.0, 1.0, 2.0]
    assert model.classes_ == 2
    entries, arrays = random_state(624)
    assert krein.load(sealed(path, entries, arrays)).random_state.get_state()[2] == 624
    entries, arrays = sparse([0, 1], [0, 1, 2])
    assert krein.load(sealed(path, entries, arrays)).kernel.toarray().tolist() == [[1.0, 0.0], [0.0, 1.0]]
    path = sealed(path, factorization(), FACTORS, **{"class": "Factorization"})
    assert np.array_equal(krein.load(path).to_dense(), np.eye(3))


@pytest.mark.parametrize("value", ["{}", "[]", "1"])
def test_a_header_of_many_small_values_is_refused_before_they_take_memory(value, tmp_path):
    path = tmp_path / "many.krein"
    values = ",".join([value] * 4_000_000)
    header = {"__metadata__": {"krein": f'{{"entries":[{values}]}}'}, "checksum": {"dtype": "U8", "shape": [32]}}
    header["checksum"]["data_offsets"] = [0, 32]
    text = json.dumps(header, separators=(",", ":")).encode()
    beginning = len(text).to_bytes(8, "little") + text
    path.write_bytes(beginning + hashlib.sha256(beginning).digest())
    tracemalloc.start()
    try:
        with pytest.raises(krein.ModelFileError, match="too many values"):
            krein.load(path)
        assert tracemalloc.get_traced_memory()[1] <= 3 * path.stat().st_size + 50_000_000
    finally:
        tracemalloc.stop()
