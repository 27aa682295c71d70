"""Files made to harm: model files and tables, mutated or made by hand; and what is written for others to open."""

from __future__ import annotations

import csv
import html.parser
import os
import pickle
import socket
import sys
import tempfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click.testing
import numpy as np
import sklearn.datasets

import krein
import krein.cli
from krein.tables.reading import FORMATS, read
from trust.attacks import Attack, Ended, Tally, attempt, is_named

# A file that is refused may take no more memory than this many times its size, and ALLOWED_BYTES beside.
ALLOWED_SHARE, ALLOWED_BYTES = 3, 50 * 2**20
# A file has to be refused or read within so many seconds of CPU time.
ALLOWED_SECONDS = 5.0
# What a file must not do while it is read, in the words of Python's audit events.
FORBIDDEN = ("exec", "pickle.", "marshal.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.remove",
             "os.rename", "subprocess.", "socket.", "ctypes.dlopen", "shutil.")  # fmt: skip
# Cells that spreadsheets execute.
FORMULAS = ("=1+1", "+1+cmd|' /C calc'!A0", "-2+3+cmd|' /C calc'!A0", "@SUM(1)", "\t=1+1", '=HYPERLINK("x")')
MARKUP = "<script>alert(1)</script>"

_events: list[str] = []
_watching = [False]


def _hook(event: str, arguments: Any) -> None:
    if _watching[0] and event.startswith(FORBIDDEN):
        _events.append(event)


sys.addaudithook(_hook)


def safe(
    call: Callable[[], Any], size: int, refused: tuple[type, ...], whole: Callable[[Any], bool]
) -> tuple[bool, str]:
    """Whether a call ended with a refusal or a whole value: in time, in little memory, and nothing was executed."""
    _events.clear()
    tracemalloc.start()
    begun = time.process_time()
    _watching[0] = True
    ended = attempt(call, ALLOWED_SECONDS)
    _watching[0] = False
    taken, peak = time.process_time() - begun, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    said = ended.error is not None and isinstance(ended.error, refused) and is_named(ended.error)
    fine = said or (ended.error is None and whole(ended.value))
    small = peak <= ALLOWED_SHARE * size + ALLOWED_BYTES
    words = f"{ended.error!r:.80}, {peak / 2**20:.0f} MB, {taken:.1f} s, {_events}"
    return fine and small and taken <= ALLOWED_SECONDS and not _events, words


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Return the bytes with some of them changed, left out, repeated, inserted or cut off."""
    found = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at, end = sorted(int(i) for i in rng.integers(0, len(found) + 1, 2))
        end = min(end, at + int(rng.integers(1, 200)))
        kind = int(rng.integers(0, 6))
        if kind == 0:
            found[at:end] = rng.bytes(end - at)
        elif kind == 1:
            del found[at:end]
        elif kind == 2:
            found[at:at] = found[at:end]
        elif kind == 3:
            found[at:at] = rng.choice([b"\0", b"\xff" * 8, b"9" * 30, b'"', b"\n", b"{", b"=cmd", b"nan,", b"1e999"])
        elif kind == 4:
            del found[at + 1 :]
        else:
            found[at:end] = bytes(end - at)
        if not found:
            found = bytearray(b"\0")
    return bytes(found)


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="trust-") as name:
        yield Path(name)


def rows() -> tuple[Any, Any]:
    X = np.random.default_rng(3).normal(size=(30, 2))
    return X, np.where(X[:, 0] > 0, "a", "b")


# -- model files -------------------------------------------------------------------------------------------------------


def models(quick: bool, pickled: bool = False) -> Tally:
    tally, rng = Tally(), np.random.default_rng(0)
    X, y = rows()
    machine = krein.SVC(n_blocks=2, rank=3, random_state=0).fit(X, y)
    with folder() as place:
        path = place / "model.krein"
        krein.save(machine, path)
        content = pickle.dumps(machine) if pickled else path.read_bytes()
        krein.load(path) if not pickled else pickle.loads(content)  # what is imported late is imported now
        for i in range(40 if quick else 3000):
            bad = mutated(content, rng)
            if bad == content:
                continue
            path.write_bytes(bad)
            load = (lambda: pickle.loads(path.read_bytes())) if pickled else (lambda: krein.load(path))
            held, words = safe(load, len(bad), (krein.ModelFileError,), lambda value: False)
            tally.add(held, f"mutation {i}: {words}")
    return tally


# -- tables ------------------------------------------------------------------------------------------------------------


def tables(place: Path) -> dict[str, bytes]:
    """One small file of each format."""
    import pyarrow
    import pyarrow.parquet

    X, y = rows()
    lines = ["x0,x1,label", *(f"{a!r},{b!r},{c}" for (a, b), c in zip(X.tolist(), y.tolist(), strict=True))]
    (place / "a.csv").write_text("\n".join(lines) + "\n")
    (place / "a.tsv").write_text("\n".join(lines).replace(",", "\t") + "\n")
    (place / "a.text").write_text("\n".join(y.tolist()) + "\n")
    sklearn.datasets.dump_svmlight_file(X, (y == "a").astype(int), str(place / "a.svmlight"))
    np.save(place / "a.npy", X)
    np.savez(place / "a.npz", X=X, y=(y == "a").astype(int))
    pyarrow.parquet.write_table(pyarrow.table({"x0": X[:, 0], "label": y.tolist()}), place / "a.parquet")
    return {name: (place / f"a.{name}").read_bytes() for name in FORMATS}


def readers(quick: bool, bare: bool = False) -> Tally:
    tally, rng = Tally(), np.random.default_rng(1)
    plain: dict[str, Callable[[Path], Any]] = {
        "npy": np.load, "npz": lambda p: dict(np.load(p)), "csv": lambda p: np.genfromtxt(p, delimiter=","),
        "svmlight": lambda p: sklearn.datasets.load_svmlight_file(str(p)),
    }  # fmt: skip
    with folder() as place:
        contents = tables(place)
        for name in plain if bare else FORMATS:
            path = place / f"a.{name}"
            attempt(lambda p=path, n=name: read(p, n))  # what is imported late is imported now
            for i in range(6 if quick else 400):
                path.write_bytes(bad := mutated(contents[name], rng))
                call = (lambda p=path, n=name: plain[n](p)) if bare else (lambda p=path, n=name: read(p, n))
                held, words = safe(call, len(bad), (krein.InputError,), lambda f: not bare and len(f) >= 0)
                tally.add(held, f"{name} {i}: {words}")
    return tally


def bombs(load: Callable[[Path], Any], quick: bool) -> Tally:
    """Archives of a few kilobytes that hold gigabytes."""
    tally = Tally()
    with folder() as place:
        np.savez(place / "good.npz", X=np.eye(2))
        load(place / "good.npz")  # what readers import is not what a file executes
        for i, megabytes in enumerate((60,) if quick else (80, 160, 320)):
            path = place / f"bomb{i}.npz"
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as member:
                header = {"descr": "<f8", "fortran_order": False, "shape": (megabytes * 2**17, 1)}
                np.lib.format.write_array_header_1_0(member, header)  # type: ignore[arg-type]
                for _ in range(megabytes):
                    member.write(bytes(2**20))
            held, words = safe(lambda p=path: load(p), path.stat().st_size, (krein.InputError,), lambda value: False)
            tally.add(held, f"{megabytes} MB of zeros: {words}")
    return tally


# -- what is no regular file -------------------------------------------------------------------------------------------


def strange(place: Path) -> list[Path]:
    """A FIFO, a folder, a device, a socket, a link to itself and a link to nothing, with every ending."""
    found = []
    for ending in (".krein", ".csv", ".npy", ".npz", ".parquet", ".svmlight", ".txt"):
        pipe, inner, loop, dangling, device = (place / f"{kind}{ending}" for kind in ("p", "d", "l", "n", "z"))
        os.mkfifo(pipe)
        inner.mkdir()
        loop.symlink_to(loop)
        dangling.symlink_to(place / "nothing")
        device.symlink_to("/dev/zero")
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(place / f"s{ending}"))
        server.close()
        found += [pipe, inner, loop, dangling, device, place / f"s{ending}"]
    return found


def no_files(quick: bool, bare: bool = False) -> Tally:
    tally = Tally()
    refused = (krein.KreinError, OSError)
    with folder() as place:
        np.save(place / "rows.npy", rows()[0])
        krein.save(krein.SVC(n_blocks=2, rank=2).fit(place / "rows.npy", rows()[1]), place / "a.krein")
        krein.load(place / "a.krein")  # what is imported late is imported now
        for path in strange(place):
            if path.suffix == ".krein":
                calls: list[Callable[[], Any]] = [lambda p=path: krein.load(p)]
                if path.name[0] not in "n":  # a link to nothing becomes a link to a file
                    calls.append(lambda p=path: krein.save(krein.RBF(), p))
            else:
                calls = [lambda p=path: read(p), lambda p=path: krein.SVC(n_blocks=2, rank=2).fit(p, np.arange(30) % 2)]
                if path.suffix == ".npy":
                    calls.append(lambda p=path: krein.Precomputed(p))
                    calls.append(lambda p=path: krein.SVC(n_blocks=2, rank=2).fit(np.load(place / "rows.npy", "r"), p))
            if bare:
                calls = [lambda p=path: p.open("rb").read(2**30) if p.name[0] == "p" else p.read_bytes()]
            for call in calls:
                ended = attempt(call, 0.5 if bare else 2.0)
                held = isinstance(ended.error, refused) and (is_named(ended.error) or isinstance(ended.error, OSError))
                tally.add(held, f"{path.name}: {ended.error!r:.80}")
            if bare and tally.tried >= 2:
                break
    return tally


def names(quick: bool, bare: bool = False) -> Tally:
    """Names with control characters, in the words of the command line."""
    tally, runner = Tally(), click.testing.CliRunner()
    with folder() as place:
        for name in (
            "a\x1b[31mred.csv",
            "a\nb.csv",
            "a\rb.csv",
            "a\x07.csv",
            "a\x08\x08.csv",
            "a\u202eb.csv",
            "x" * 300,
        ):
            for command in (["fit", name, "--target", "y"], ["predict", name, name], ["inspect", name]):
                given = [str(place / part) if part == name else part for part in command]
                if bare:
                    said = f"{given[1]} is not a file."
                else:
                    done = runner.invoke(krein.cli.main, given)
                    said = done.output.strip() if done.exit_code == 2 else f"exit code {done.exit_code}\a"
                control = [c for c in said.replace("\n", " " if not bare else "\n") if not c.isprintable()]
                tally.add(not control, f"{name[:12]!r}: {control}")
    return tally


# -- what is written for others ----------------------------------------------------------------------------------------


def formulas(quick: bool, bare: bool = False) -> Tally:
    """Labels that spreadsheets execute, through `krein fit` and `krein predict`; numbers stay as they are."""
    tally, runner = Tally(), click.testing.CliRunner()
    X, _ = rows()
    with folder() as place:
        for formula in FORMULAS[: 2 if quick else None]:
            data, model, out = place / "data.csv", place / "data.krein", place / "out.csv"
            with data.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["x0", "x1", "y"])
                writer.writerows([*row, formula if row[0] > 0 else "-1"] for row in X.tolist())
            if bare:
                written = data.read_text()
            else:
                runner.invoke(krein.cli.main, ["fit", str(data), "--target", "y", "--output", str(model)])
                runner.invoke(krein.cli.main, ["predict", str(model), str(data), "--output", str(out)])
                written = out.read_text() if out.exists() else formula
            cells = [cell for row in csv.reader(written.splitlines()) for cell in row]
            executed = [
                c for c in cells if c.startswith(("=", "+", "@", "\t", "\r")) or (c.startswith("-") and not _number(c))
            ]
            tally.add(not executed and (bare or "-1" in cells), f"{formula!r}: {executed[:2]}")
            model.unlink(missing_ok=True)
            out.unlink(missing_ok=True)
    return tally


def _number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


class _Scripts(html.parser.HTMLParser):
    """Counts script elements and event handlers."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += (tag == "script") + sum(name.startswith("on") for name, _ in attrs)


def markup(quick: bool, bare: bool = False) -> Tally:
    """Labels, names of columns and of kernels that are HTML; the page has as many scripts as with plain ones."""
    tally = Tally()
    X, y = rows()

    def similarity(A: Any, B: Any) -> Any:
        return np.asarray(A) @ np.asarray(B).T

    with folder() as place:
        counts = []
        for hostile in (False, True):
            similarity.__qualname__ = MARKUP if hostile else "plain"
            labels = np.where(y == "a", MARKUP, '"><img src=x onerror=alert(1)>') if hostile else y
            path = place / "page.html"
            for machine in (
                krein.SVC(random_state=0),
                krein.SVC(kernel=similarity, random_state=0, n_blocks=2, rank=3),
            ):
                ended: Ended = attempt(lambda m=machine, t=labels, p=path: m.fit(X, t).report(p))
                page = path.read_text() if ended.error is None else ""
                if bare:
                    page = f"<html>{labels[0]}{similarity.__qualname__}</html>"
                counts.append(_Scripts(page).found if page else -1)
        for plain, found in zip(counts[:2], counts[2:], strict=True):
            tally.add(plain == found >= 0, f"{found} scripts instead of {plain}")
    return tally


def _family(name: str, run: Callable[[bool], Tally], control: Callable[[bool], Tally], without: str) -> Attack:
    return Attack("files", name, run, control, without)


ATTACKS = (
    _family("mutated model files", models, lambda q: models(True, pickled=True), "pickle"),
    _family("mutated tables", readers, lambda q: readers(True, bare=True), "NumPy's and scikit-learn's readers"),
    _family("zip bombs", lambda q: bombs(read, q), lambda q: bombs(lambda p: dict(np.load(p)), True), "numpy.load"),
    _family("what is no regular file", no_files, lambda q: no_files(True, bare=True), "open and read"),
    _family("control characters in names", names, lambda q: names(True, bare=True), "the name as it is"),
    _family("cells that spreadsheets execute", formulas, lambda q: formulas(True, bare=True), "labels as they are"),
    _family("markup in the report", markup, lambda q: markup(True, bare=True), "a page without escapes"),
)
