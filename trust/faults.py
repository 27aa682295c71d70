"""Faults of the machine: killed processes, full disks, Ctrl-C, little memory, forks and threads.

Each attack runs in a process of its own, started from this file: ``python -m trust.faults NAME ARGUMENTS``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from joblib import Parallel, delayed

import krein
from benchmarks.runner import Request, Task, perform, read_csv
from trust.attacks import Attack, Tally, attempt, is_named

# A child that has not ended after so many seconds has hung.
CHILD_LIMIT = 900.0
# Rows of the model that is saved: 2 MB, written in a few milliseconds.
SAVED_ROWS = 500
# Threads that predict at once.
THREADS = 8


def data(n: int = 400) -> tuple[Any, Any]:
    X = np.random.default_rng(0).normal(size=(n, 4))
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] > 0).astype(int)


def child(name: str, *arguments: Any) -> Tally:
    """Run one of `CHILDREN` in a new process and return its tally; whatever ends the process is a finding."""
    command = [sys.executable, "-W", "ignore", "-m", "trust.faults", name, *map(str, arguments)]
    root = Path(__file__).resolve().parent.parent
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=root, timeout=CHILD_LIMIT, check=False, env=environment(root)
        )
    except subprocess.TimeoutExpired:
        return Tally(1, ["hung"])
    if done.returncode != 0:
        return Tally(1, [f"ended with {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][:120]}"])
    return Tally(**json.loads(done.stdout.splitlines()[-1]))


def environment(root: Path) -> dict[str, str]:
    """The environment of a child: one BLAS thread, and the same source as here."""
    path = os.pathsep.join([str(Path(krein.__file__).parents[1]), str(root)])
    return os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}


# -- SIGKILL -----------------------------------------------------------------------------------------------------------


def killed_saves(count: str, how: str) -> Tally:
    """Fork savers and kill them at random moments. The old file or the new one has to be there, whole."""
    rng, tally = np.random.default_rng(5), Tally()
    models = [krein.Precomputed(np.full((SAVED_ROWS, SAVED_ROWS), float(value))) for value in (1, 2)]
    with tempfile.TemporaryDirectory() as folder:
        path, contents = Path(folder) / "model.krein", []
        for model in models:
            start = time.perf_counter()
            krein.save(model, path)
            taken = time.perf_counter() - start
            contents.append(path.read_bytes())
        for i, delay in enumerate(rng.uniform(0.0, 3.0 * taken, int(count))):
            path.write_bytes(contents[0])
            ready, begun = os.pipe()
            saver = os.fork()
            if saver == 0:
                _save_for_ever(path, models, contents if how == "in-place" else None, begun)
            os.read(ready, 1)
            time.sleep(delay)
            os.kill(saver, signal.SIGKILL)
            os.waitpid(saver, 0)
            os.close(ready)
            os.close(begun)
            ended = attempt(lambda: krein.load(path).S[0, 0])
            tally.add(ended.value in (1.0, 2.0), f"save {i}: {ended.error!r:.80}")
    return tally


def _save_for_ever(path: Path, models: list[Any], contents: list[bytes] | None, begun: int) -> None:
    try:
        os.write(begun, b".")
        while True:
            for i, model in enumerate(models):
                if contents is None:
                    krein.save(model, path)
                else:
                    path.write_bytes(contents[i])
    finally:
        os._exit(1)


def killed_fits(count: str, how: str) -> Tally:
    """Kill fits in a folder of their own: nothing may be left there, or in the folder of temporary files."""
    rng, tally, (X, y) = np.random.default_rng(6), Tally(), data()
    krein.SVC(n_blocks=4, rank=20, random_state=0).fit(X, y)
    for i, delay in enumerate(rng.uniform(0.0, 0.2, int(count))):
        with tempfile.TemporaryDirectory() as folder:
            fitter = os.fork()
            if fitter == 0:
                _fit_for_ever(folder, X, y, how == "scratch")
            time.sleep(delay)
            os.kill(fitter, signal.SIGKILL)
            os.waitpid(fitter, 0)
            tally.add(not os.listdir(folder), f"fit {i}: {os.listdir(folder)}")
    return tally


def _fit_for_ever(folder: str, X: Any, y: Any, scratch: bool) -> None:
    try:
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        while True:
            if scratch:  # the control keeps its matrix in a file
                np.save("matrix.npy", krein.RBF(gamma=0.1)(X))
            krein.clear_cache()
            krein.SVC(n_blocks=4, rank=20, random_state=0).fit(X, y)
    finally:
        os._exit(1)


def killed_checkpoints(count: str, how: str) -> Tally:
    """Kill a fit that keeps checkpoints, and fit again: the same bits, and nothing is left in its folder."""
    rng, tally, (X, y) = np.random.default_rng(8), Tally(), data(2000)
    with tempfile.TemporaryDirectory() as name:
        rows, work = Path(name) / "rows.npy", Path(name) / "work"
        np.save(rows, X)

        def fitted() -> Any:
            if how == "in-place":
                return summed(work)
            krein.clear_cache()
            machine = krein.SVC(n_blocks=8, rank=20, random_state=0, workdir=work).fit(rows, y)
            return machine.decision_function(X[:100])

        fitted()
        start = time.perf_counter()
        wanted = fitted()
        taken = time.perf_counter() - start
        for i, delay in enumerate(rng.uniform(0.0, taken, int(count))):
            if in_child(fitted, delay):
                ended = attempt(fitted)
                left = [p.name for p in work.rglob("*") if p.is_file()] if work.exists() else []
                tally.add(ended.error is None and np.array_equal(ended.value, wanted) and not left, f"fit {i}: {left}")
            if work.is_dir():
                shutil.rmtree(work)
    return tally


def summed(folder: Path) -> Any:
    """Add up numbers, as the control: the sum is kept in a file that is written in place, and says how far it is."""
    path = folder / "sum.npy"
    folder.mkdir(exist_ok=True)
    total = np.load(path) if path.exists() else np.zeros(10**5)
    for i in range(int(total[0]), 40):
        total[1:] += i
        total[0] = i + 1
        np.save(path, total)
    path.unlink()
    return total[:100]


def in_child(call: Callable[[], Any], delay: float) -> bool:
    """Call in a process that is killed after some seconds; whether it was, before it ended by itself."""
    child = os.fork()
    if child == 0:
        try:
            call()
        finally:
            os._exit(0)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


class Squares:
    """An experiment of as many pieces as rows, each of which takes a millisecond."""

    TABLES: ClassVar[dict[str, tuple[str, ...]]] = {"squares": ("i", "square")}
    PIECES = 30

    def tasks(self, request: Any) -> list[Task]:
        return [Task({"i": i}, self.row, (i,)) for i in range(self.PIECES)]

    @staticmethod
    def row(i: int) -> list[dict[str, Any]]:
        time.sleep(1e-3)
        return [{"square": i * i}]

    def report(self, rows: Any, request: Any) -> str:
        return f"{len(rows)} rows"


def killed_runs(count: str, how: str) -> Tally:
    """Kill a run of the paper's and the benchmarks' runner, and run again: the table has each row once."""
    rng, tally = np.random.default_rng(9), Tally()
    wanted = [(str(i), str(i * i)) for i in range(Squares.PIECES)]
    for i in range(int(count)):
        with tempfile.TemporaryDirectory() as name:
            request = Request(Path(name), command="squares")

            def run(request: Request = request) -> None:
                if how == "appended":
                    appended(request.output / "squares.csv")
                else:
                    perform("squares", Squares(), request, say=lambda words: None)

            in_child(lambda run=run: silently(run), float(rng.uniform(0.0, 0.2)))
            ended = attempt(lambda run=run: silently(run))
            path = Path(name) / "squares.csv"
            found = [(r.get("i"), r.get("square")) for r in read_csv(path)] if path.exists() else []
            tally.add(ended.error is None and found == wanted, f"run {i}: {len(found)} rows, {ended.error!r:.60}")
    return tally


def appended(path: Path) -> None:
    """Write the same table, as the control: rows are appended, number by number."""
    done = len(path.read_text().splitlines()) - 1 if path.exists() else 0
    with path.open("a") as file:
        if done <= 0:
            print("i,square", file=file, flush=True)
        for i in range(max(done, 0), Squares.PIECES):
            print(i, end=",", file=file, flush=True)
            time.sleep(3e-3)
            print(i * i, file=file, flush=True)


def silently(call: Callable[[], Any]) -> None:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        call()


def lost_workers(count: str, how: str) -> Tally:
    """Compare objects in processes one of which ends in the middle; krein has to say so."""
    tally, rows, parent = Tally(), data(200)[0], os.getpid()

    def similarity(a: Any, b: Any) -> float:
        time.sleep(1e-4)  # long enough for processes to pay
        if os.getpid() != parent and a[0] == rows[150, 0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return float(a @ b)

    for i in range(int(count)):
        if how == "joblib":
            pairs = [delayed(similarity)(rows[150], b) for b in rows]
            ended = attempt(lambda pairs=pairs: Parallel(n_jobs=2)(pairs))
        else:
            ended = attempt(lambda: krein.pairwise(similarity, n_jobs=2)(rows))
        tally.add(ended.error is not None and is_named(ended.error), f"call {i}: {ended.error!r:.80}")
    return tally


# -- a full disk -------------------------------------------------------------------------------------------------------


def full_disk(count: str, how: str) -> Tally:
    """Save with less and less room. An error has to be said, the old file has to stay, and nothing else."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    tally = Tally()
    old, new = krein.Precomputed(np.eye(3)), krein.Precomputed(np.eye(300))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.krein"
        krein.save(new, path)
        content = path.read_bytes()
        krein.save(old, path)
        before = path.read_bytes()
        for i in range(int(count)):
            room = int(len(content) * i / int(count))
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            ended = attempt(lambda: krein.save(new, path) if how == "save" else path.write_bytes(content))
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            kept = path.read_bytes() == before and os.listdir(folder) == [path.name]
            tally.add(
                isinstance(ended.error, OSError | ValueError) and kept, f"{room} bytes of room: {ended.error!r:.60}"
            )
            path.write_bytes(before)
    return tally


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


def interrupted(count: str, how: str) -> Tally:
    """Interrupt fits of a fitted machine. It has to predict as before, say that it is not fitted, or be fitted anew."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts with & ignore Ctrl-C
    rng, tally, (X, y) = np.random.default_rng(7), Tally(), data()
    other = 1 - y
    classes: tuple[Any, ...] = (krein.SVC, krein.KernelRidgeClassifier) if how == "fit" else (Careless, Careless)
    for i in range(int(count)):
        machine = classes[i % 2](random_state=0, **[{}, {"n_blocks": 4, "rank": 20}][i // 2 % 2])
        wanted = [machine.fit(X, labels).decision_function(X) for labels in (other, y)]
        start = time.perf_counter()
        krein.clear_cache()
        machine.fit(X, y)
        taken = time.perf_counter() - start
        krein.clear_cache()
        timer = threading.Timer(float(rng.uniform(0.0, taken)), os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            machine.fit(X, other)
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            pass
        ended = attempt(lambda m=machine: m.decision_function(X))
        usable = ended.error is not None or any(np.allclose(ended.value, w, atol=1e-6) for w in wanted)
        again = attempt(lambda m=machine: m.fit(X, other).decision_function(X))
        tally.add(
            usable and again.error is None and np.allclose(again.value, wanted[0], atol=1e-6), f"fit {i}: {ended}"[:100]
        )
    return tally


class Careless:
    """Adds its rows up in place, as the control: an interrupted fit leaves a part of the sum."""

    def __init__(self, **params: Any) -> None:
        self.sum: Any = None

    def fit(self, X: Any, y: Any) -> Careless:
        self.sum = np.zeros(X.shape[1])
        for row, label in zip(X, y, strict=True):
            self.sum += (2 * label - 1) * row
            time.sleep(1e-5)
        return self

    def decision_function(self, X: Any) -> Any:
        return X @ self.sum


# -- little memory -----------------------------------------------------------------------------------------------------


def little_memory(count: str, how: str) -> Tally:
    """Fit with less and less address space: it is done, or a MemoryError with words; never a crash."""
    X, y = data(1500)
    tally = Tally()
    for i in range(4):
        _fit_in_little(*data(), i, how)  # loads all libraries: that one of them does not fit is not the question
    for i in range(int(count)):
        extra = int(2**20 * 10.0 ** np.random.default_rng(i).uniform(0.0, 2.3))
        fitter = os.fork()
        if fitter == 0:
            code = 9
            try:
                used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
                resource.setrlimit(resource.RLIMIT_AS, (used + extra, resource.RLIM_INFINITY))
                code = _fit_in_little(X, y, i, how)
            finally:
                os._exit(code)
        status = os.waitpid(fitter, 0)[1]
        code = os.waitstatus_to_exitcode(status)
        tally.add(code == 0, f"{extra / 2**20:.0f} MB more than at the start: exit code {code}")
    return tally


def _fit_in_little(X: Any, y: Any, i: int, how: str) -> int:
    try:
        if how == "bare":
            np.exp(-((X[:, None] - X) ** 2).sum(2))
        else:
            [krein.SVC, krein.KernelRidgeClassifier][i % 2](
                random_state=0, **[{}, {"n_blocks": 4, "rank": 50}][i // 2 % 2]
            ).fit(X, y)
    except MemoryError as error:
        return 0 if len(str(error).split()) >= 5 and how != "bare" else 3
    except Exception:
        return 4
    return 0


# -- processes and threads ---------------------------------------------------------------------------------------------


def _predicted(machine: Any) -> Any:
    X, y = data()
    return machine.decision_function(X), krein.SVC(random_state=0, n_blocks=4, rank=20).fit(X, y).decision_function(X)


def processes(count: str, how: str) -> Tally:
    """Predict and fit in processes that were forked or spawned; the results are those of this process."""
    X, y = data()
    tally = Tally()
    machine = krein.SVC(random_state=0, n_blocks=4, rank=20).fit(X, y)
    wanted = machine.decision_function(X)
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            for found in pool.map(_predicted, [machine] * int(count)):
                tally.add(all(np.array_equal(f, wanted) for f in found), f"{method}: other values")
    return tally


def threads(count: str, how: str) -> Tally:
    """Eight threads predict, and fit others, at once; every result is that of one thread."""
    X, y = data()
    tally, shared = Tally(), np.zeros(len(X))
    machines = [cls(random_state=0, **more).fit(X, y) for cls in (krein.SVC, krein.KernelRidgeClassifier)
                for more in ({}, {"n_blocks": 4, "rank": 20})]  # fmt: skip
    wanted = [machine.decision_function(X) for machine in machines]

    def predict(i: int) -> bool:
        k = i % len(machines)
        if how == "shared":  # the control keeps its result in memory that all threads share
            shared[:] = wanted[k]
            time.sleep(1e-3)
            return np.array_equal(shared, wanted[k])
        if i % 5 == 0:
            machines[k].__class__(**machines[k].get_params()).fit(X, y)
        return np.allclose(machines[k].decision_function(X), wanted[k], rtol=0, atol=1e-12)

    with ThreadPoolExecutor(THREADS) as pool:
        for i, same in enumerate(pool.map(predict, range(int(count)))):
            tally.add(same, f"prediction {i}: other values")
    return tally


CHILDREN: dict[str, Callable[..., Tally]] = {
    f.__name__: f
    for f in (
        killed_saves, killed_fits, killed_checkpoints, killed_runs, lost_workers, full_disk, interrupted,
        little_memory, processes, threads,
    )
}  # fmt: skip


def _family(name: str, function: str, counts: tuple[int, int], how: str, bare: str, without: str) -> Attack:
    return Attack(
        "faults", name, lambda quick: child(function, counts[not quick], how),
        lambda quick: child(function, 10 if quick else 30, bare), without,
    )  # fmt: skip


def _unequal(quick: bool) -> Tally:
    """The control of the processes: without a random_state two processes do not agree."""
    tally, (X, y) = Tally(), data()
    found = [
        krein.SVC(n_blocks=4, rank=20).fit(X, y).decision_function(X) for _ in range(2) if krein.clear_cache() is None
    ]
    tally.add(np.array_equal(*found), "other values")
    return tally


ATTACKS = (
    _family("SIGKILL in save", "killed_saves", (10, 300), "replaced", "in-place", "a file written in place"),
    _family("SIGKILL in fit", "killed_fits", (5, 200), "fit", "scratch", "a matrix kept in a file"),
    _family("SIGKILL in a fit with checkpoints", "killed_checkpoints", (2, 60), "fit", "in-place",
            "a file written in place"),
    _family("SIGKILL in the paper's runs", "killed_runs", (4, 200), "runner", "appended", "rows that are appended"),
    Attack("faults", "a worker is lost", lambda quick: child("lost_workers", 1 if quick else 5, "krein"),
           lambda quick: child("lost_workers", 1, "joblib"), "joblib alone"),
    _family("a full disk in save", "full_disk", (10, 200), "save", "bare", "a file written in place"),
    _family("Ctrl-C in fit", "interrupted", (5, 60), "fit", "careless", "a fit that changes itself as it goes"),
    _family("little memory", "little_memory", (4, 100), "fit", "bare", "NumPy alone"),
    Attack("faults", "fork and spawn", lambda quick: child("processes", 2 if quick else 20, ""), _unequal,
           "no random_state"),
    _family("eight threads predict at once", "threads", (40, 1000), "own", "shared", "memory shared by threads"),
)  # fmt: skip


def short() -> dict[str, tuple[Tally, Tally]]:
    """The short form of all attacks and their controls, in this process: to start one for each takes too long."""
    ways = {"killed_saves": (5, "replaced", "in-place"), "killed_fits": (4, "fit", "scratch"),
            "killed_checkpoints": (5, "fit", "in-place"), "killed_runs": (3, "runner", "appended"),
            "full_disk": (8, "save", "bare"), "interrupted": (4, "fit", "careless"),
            "threads": (24, "own", "shared")}  # fmt: skip
    return {name: (CHILDREN[name](n, how), CHILDREN[name](n, bare)) for name, (n, how, bare) in ways.items()}


if __name__ == "__main__":
    name, *rest = sys.argv[1:]
    if name == "short":
        print(json.dumps({key: [vars(tally) for tally in both] for key, both in short().items()}))
    else:
        print(json.dumps(vars(CHILDREN[name](*rest))))
