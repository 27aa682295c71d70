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
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from krein.arrays import Array
from krein.errors import InputError, ResourceError
from krein.sources.spool import remove_own

__all__ = ["KINDS", "Workdir", "mapped", "most_held"]

# The named tuples that steps return, by their names: they are added where they are defined.
KINDS: dict[str, Any] = {}
# What reading a damaged file raises.
UNREADABLE = (OSError, ValueError, KeyError, EOFError, BadZipFile)
# Within a folder that was given, all files of a fit lie in this one, so that no other file is ever touched.
OWN_FOLDER = "krein-fit"
# A lock without a number is being written, or its writer died: after this many seconds it counts as dead.
LOCK_SECONDS = 0.5
# Arrays of up to this many bytes in all stay in memory, or of this share of a memory limit.
MOST_HELD, HELD_SHARE = 2**28, 0.25


def most_held(limit: float | None) -> float:
    """Bytes that arrays of a fit may take in memory, within a memory limit or without one."""
    return MOST_HELD if limit is None else HELD_SHARE * limit


class Workdir:
    """A folder of files that belong to one fit.

    Parameters
    ----------
    path : path or None
        A folder in which the files of an interrupted fit stay, so that another try goes on where it was. None is a
        temporary folder. Files are removed by `close`, or with the last reference to them.
    limit : float or None
        Bytes that a fit may take in memory.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, limit: float | None = None) -> None:
        self.kept, self.limit = path is not None, limit
        self.random_state: int | None = None
        self._n_builds = self._n_names = 0
        if not (path is None or isinstance(path, str | os.PathLike)):
            raise InputError(f"workdir must be the path of a folder, or None; got {path!r}.")
        given = path if path is None else Path(os.path.abspath(path), OWN_FOLDER)
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="krein-")) if given is None else given
            self.folder.mkdir(parents=True, exist_ok=True)
            _take_lock(self.folder)
        except OSError as error:
            raise ResourceError(
                f"workdir must be a folder that can be written to; {str(path or tempfile.gettempdir())!r} cannot: "
                f"{error}. Pass another."
            ) from None
        self._end = weakref.finalize(self, remove_own, self.folder, os.getpid())

    # -- whose files these are -------------------------------------------------------------------------------------

    def begin(self, facts: dict[str, Any]) -> None:
        """Go on with the next approximation of a fit, or start it; refuse the files of another fit."""
        at, known = self._n_builds, self._record()
        self._n_builds += 1
        facts = facts | {"krein": sys.modules["krein"].__version__}
        wanted = {name: str(value) for name, value in facts.items()}
        builds = known.get("builds", [])
        if at < len(builds):
            there = builds[at]
            differing = sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))
            if differing:
                name = differing[0]
                raise InputError(
                    f"The folder {str(self.folder)!r} holds an unfinished fit that differs in {', '.join(differing)} "
                    f"({name}: {str(there.get(name))[:80]} there, {str(wanted.get(name))[:80]} here). Repeat that fit "
                    "to finish it, pass another workdir, or remove the folder."
                )
            return
        record = {"random_state": self.random_state, "builds": [*builds, wanted]}
        with self.written(self.folder / "fit.json") as file:
            file.write(json.dumps(record, indent=1).encode())

    def seed(self) -> int:
        """A random state for a fit that was given none: that of the unfinished fit if there is one, else a new one."""
        found = self._record().get("random_state")
        self.random_state = int(np.random.default_rng().integers(2**31)) if found is None else int(found)
        return self.random_state

    def _record(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / "fit.json").read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise _damaged(self.folder / "fit.json", error) from None
        return found

    # -- files -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def written(self, path: Path, lasting: bool = True) -> Iterator[Any]:
        """A file that appears under its name when it is complete."""
        part = path.with_name(path.name + ".part")
        try:
            with open(part, "wb") as file:
                yield file
                if self.kept and lasting:  # what is temporary need not outlive the machine
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
        return nbytes > most_held(self.limit)

    def write(self, name: str, array: Array, lasting: bool = False) -> str:
        """Write an array and return the path of its .npy file; ``lasting`` if another try of the fit may need it."""
        path = self.path(f"{name}.npy")
        with self.written(path, lasting) as file:
            np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
        return str(path)

    def new_name(self, name: str) -> str:
        """A name that no file has."""
        self._n_names += 1
        return f"{name}-{self._n_names:05d}"

    def recall(self, name: str, run: Callable[[], Any], fixed: Any = None) -> Any:
        """The result of a step that was finished before, or run it. ``fixed`` is what is not written."""
        if not self.kept:
            return run()
        path = self.path(f"{name}.npz")
        if path.exists():
            with (
                contextlib.suppress(*UNREADABLE),
                open(path, "rb") as stored,
                np.load(stored, allow_pickle=False) as file,
            ):
                return _decoded(json.loads(str(file["structure"])), file, fixed)
        result = run()
        arrays: list[Array] = []
        structure = _encoded(result, arrays, fixed)
        with self.written(path) as file:
            held: dict[str, Any] = {f"a{i}": a for i, a in enumerate(arrays)}
            np.savez(file, structure=json.dumps(structure), **held)
        return result

    def keep_state(self, name: str, step: int, write: Callable[[str], None], state: dict[str, Any]) -> None:
        """Write the state of a long computation after so many steps. The one before it stays, and older ones go.

        ``write(name)`` writes its arrays. The state itself is written last, and tells that they are complete.
        """
        write(f"{name}-{step:05d}")
        with self.written(self.path(f"{name}-{step:05d}.json")) as file:
            file.write(json.dumps(state).encode())
        for older in self._states(name)[:-2]:
            self._forget(f"{name}-{older:05d}")

    def last_state(self, name: str) -> tuple[str, dict[str, Any]] | None:
        """The name of the arrays and the state after the last of the steps that were kept; None if there is none."""
        for step in reversed(self._states(name)):
            with contextlib.suppress(*UNREADABLE):
                return f"{name}-{step:05d}", json.loads(self.path(f"{name}-{step:05d}.json").read_text())
        return None

    def forget_states(self, name: str) -> None:
        for step in self._states(name):
            self._forget(f"{name}-{step:05d}")

    def _states(self, name: str) -> list[int]:
        found = self.folder.glob(self.path(f"{name}-?????.json").name)
        return sorted(int(path.stem.rpartition("-")[2]) for path in found)

    def _forget(self, name: str) -> None:
        self.path(f"{name}.json").unlink(missing_ok=True)  # first, as what it tells of is no longer complete
        self.remove(f"{name}-*.npy")

    def remove(self, pattern: str) -> None:
        """Remove files of the approximation that is being built."""
        for path in self.folder.glob(self.path(pattern).name):
            path.unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """Where a file of this name lies, of the approximation that is being built."""
        return self.folder / f"{self._n_builds}-{name}"

    def close(self, finished: bool = True) -> None:
        """Remove the files, but those of an unfinished fit in a folder that was given."""
        self._end.detach()
        if finished or not self.kept:
            remove_own(self.folder, os.getpid())
        else:
            (self.folder / "lock").unlink(missing_ok=True)


def mapped(path: str | Path) -> Array:
    """The array of a file that `Workdir.write` wrote, as a memory map."""
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except UNREADABLE as error:
        raise _damaged(Path(path), error) from None


def _damaged(path: Path, error: Exception) -> ResourceError:
    size = f"it has {path.stat().st_size:,} bytes" if path.exists() else "it is gone"
    return ResourceError(
        f"{path.name} was written by this fit or an earlier one and is damaged: {size} ({error}). Remove the folder "
        f"{str(path.parent)!r} and fit again."
    )


def _take_lock(folder: Path) -> None:
    """Write the number of this process to the folder, or raise ResourceError if that of a running one is there."""
    lock = folder / "lock"
    for _ in range(2):
        with contextlib.suppress(FileExistsError):
            handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            os.write(handle, str(os.getpid()).encode())
            os.close(handle)
            return
        owner = lock.read_text()
        if not owner:
            time.sleep(LOCK_SECONDS)
            owner = lock.read_text()
        if owner.isdigit() and _is_running(int(owner)):
            break
        lock.unlink(missing_ok=True)  # its process is gone
    raise ResourceError(
        f"The folder {str(folder)!r} is in use by process {owner}. Pass another workdir, or wait until that fit ends. "
        "If that process runs on no machine, remove the folder."
    )


def _is_running(process: int) -> bool:
    if process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # no process has so large a number
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
