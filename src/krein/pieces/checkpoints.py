"""A folder for what a fit does not hold in memory, and for what it has finished: names and values in, files out.

Every file is written under another name and renamed, so that a file that is there is complete. `Workdir.recall` returns
the result of a step that an earlier, interrupted fit has finished. ``fit.json`` says which fit the files belong to.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from krein.arrays import Array
from krein.errors import InputError, ResourceError

__all__ = ["KINDS", "Workdir"]

# The named tuples that steps return, by their names: they are added where they are defined.
KINDS: dict[str, Any] = {}
# A finished fit leaves these files of a given folder in place; all others are its own and are removed.
SPOOLED = ("rows.npy", "target.npy", "spool.json")


# Arrays of up to this many bytes in all stay in memory, or of this share of a memory limit, unless the folder is kept.
MOST_HELD, HELD_SHARE = 2**28, 0.25


class Workdir:
    """A folder of files that belong to one fit.

    Parameters
    ----------
    path : path or None
        A folder that is kept, so that an interrupted fit goes on where it was. None is a temporary folder, which is
        removed by `close`.
    limit : float or None
        Bytes that a fit may take in memory.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, limit: float | None = None) -> None:
        self.kept, self.limit = path is not None, limit
        self._lock: Path | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="krein-") if path is None else os.path.abspath(path))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if self.kept:
                self._take_lock()
        except OSError as error:
            raise ResourceError(
                f"workdir must be a folder that can be written to; {str(self.folder)!r} cannot: {error}. Pass another."
            ) from None

    def _take_lock(self) -> None:
        lock = self.folder / "lock"
        for _ in range(2):
            try:
                handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                owner = lock.read_text().strip()
                if owner.isdigit() and _is_running(int(owner)):
                    raise ResourceError(
                        f"The folder {str(self.folder)!r} is in use by process {owner}. Pass another workdir, or wait "
                        "until that fit ends."
                    ) from None
                lock.unlink(missing_ok=True)  # its process is gone
                continue
            os.write(handle, str(os.getpid()).encode())
            os.close(handle)
            self._lock = lock
            return

    # -- whose files these are -------------------------------------------------------------------------------------

    def begin(self, facts: dict[str, Any]) -> None:
        """Go on with the fit that ``facts`` describe, or start it; refuse the files of another one."""
        record = self.folder / "fit.json"
        facts = facts | {"krein": sys.modules["krein"].__version__}
        wanted = {name: str(value) for name, value in facts.items()}
        if record.exists():
            try:
                known = json.loads(record.read_text())
            except ValueError:
                known = {}
            differing = sorted(name for name in wanted.keys() | known.keys() if wanted.get(name) != known.get(name))
            if differing:
                name = differing[0]
                raise InputError(
                    f"The folder {str(self.folder)!r} holds an unfinished fit that differs in {', '.join(differing)} "
                    f"({name}: {str(known.get(name))[:80]} there, {str(wanted.get(name))[:80]} here). Repeat that fit "
                    "to finish it, pass another workdir, or remove the folder."
                )
            return
        with self.written(record) as file:
            file.write(json.dumps(wanted, indent=1).encode())

    def seed(self, default: int) -> int:
        """The seed of the unfinished fit, if there is one."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(json.loads((self.folder / "fit.json").read_text())["seed"])
        return default

    # -- files -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def written(self, path: Path) -> Iterator[Any]:
        """A file that appears under its name when it is complete."""
        part = path.with_name(path.name + ".part")
        try:
            with open(part, "wb") as file:
                yield file
                if self.kept:  # what is temporary need not outlive the machine
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(part, path)
        except OSError as error:
            free = shutil.disk_usage(self.folder).free if self.folder.exists() else 0
            raise ResourceError(
                f"{path.name} could not be written to {str(self.folder)!r}, which has {free:,} bytes free: {error}. "
                "Make room, or pass a workdir on a larger disk; krein.plan says how much a fit needs."
            ) from None
        finally:
            part.unlink(missing_ok=True)

    def holds(self, nbytes: float) -> bool:
        """Whether arrays of so many bytes in all are written to files, and not held in memory."""
        return self.kept or nbytes > (MOST_HELD if self.limit is None else HELD_SHARE * self.limit)

    def write(self, name: str, array: Array) -> str:
        """Write an array and return the path of its .npy file."""
        path = self.folder / f"{name}.npy"
        with self.written(path) as file:
            np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
        return str(path)

    def recall(self, name: str, j: int, run: Callable[[], tuple[Any, Any]], fixed: Any) -> tuple[Any, Any]:
        """The result of a step at piece j that was finished before, or run it. ``fixed`` is what is not written."""
        if not self.kept:
            return run()
        path = self.folder / f"{name}-{j:05d}.npz"
        if path.exists():
            with contextlib.suppress(OSError, ValueError, KeyError), np.load(path, allow_pickle=False) as file:
                found: tuple[Any, Any] = _decoded(json.loads(str(file["structure"])), file, fixed)
                return found
        result = run()
        arrays: list[Array] = []
        structure = _encoded(result, arrays, fixed)
        with self.written(path) as file:
            held: dict[str, Any] = {f"a{i}": a for i, a in enumerate(arrays)}
            np.savez(file, structure=json.dumps(structure), **held)
        return result

    def close(self, finished: bool = True) -> None:
        """Remove what is temporary: the folder itself if none was given, else what a finished fit left in it."""
        if not self.kept:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        if finished:
            for path in self.folder.glob("*"):
                own = path.suffix in (".npz", ".npy") and path.name not in SPOOLED
                if own or path.name == "fit.json":
                    path.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.unlink(missing_ok=True)
            self._lock = None


def _is_running(process: int) -> bool:
    if process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _encoded(value: Any, arrays: list[Array], fixed: Any) -> Any:
    """A value as JSON; arrays are put into a list and referred to by their places."""
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if value is fixed and value is not None:
        return {"fixed": True}
    if isinstance(value, tuple | list):
        kind = type(value).__name__ if hasattr(value, "_fields") else "tuple" if isinstance(value, tuple) else "list"
        return {"kind": kind, "items": [_encoded(item, arrays, fixed) for item in value]}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} cannot be kept in a checkpoint")


def _decoded(value: Any, arrays: Any, fixed: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "fixed" in value:
        return fixed
    if "array" in value:
        return arrays[f"a{value['array']}"]
    items = [_decoded(item, arrays, fixed) for item in value["items"]]
    if value["kind"] in ("tuple", "list"):
        return items if value["kind"] == "list" else tuple(items)
    return KINDS[value["kind"]](*items)
