"""The paper's own experiments, killed: what is resumed equals what was never interrupted, and nobody is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks.runner import read_csv
from krein.cli import main
from paper import protocol as paper

pytestmark = [pytest.mark.clone, pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")]
LIMIT = 900.0  # seconds for what takes a few, on a busy machine
ONE_CELL = ("errors", "--datasets", "artificial1", "--kernels", "poly", "--quick")  # four pieces


@pytest.fixture(autouse=True)
def generated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two artificial sets are generated where their files are absent: no data are needed."""
    monkeypatch.delenv("KREIN_DATA", raising=False)
    for cached in (paper.raw, paper.prepared, paper.matrix):
        cached.cache_clear()


STARTED: list[int] = []


@pytest.fixture(autouse=True)
def nobody_left() -> Iterator[None]:
    """A test that fails leaves no process behind either."""
    yield
    while STARTED:
        with suppress(ProcessLookupError):
            os.killpg(STARTED.pop(), signal.SIGKILL)


def start(
    output: Path, arguments: tuple[str, ...], n_jobs: int = 2, stderr: Any = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """The command in a process group of its own, whose id is that of the first process."""
    command = [sys.executable, "-c", "from krein.cli import main; main()", "reproduce", *arguments]
    command += ["--n-jobs", str(n_jobs), "--output", str(output)]
    child = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # in the background shells ignore it
    )
    STARTED.append(child.pid)
    return child


def here(output: Path, arguments: tuple[str, ...]) -> Path:
    """The same in this process, to its end."""
    result = CliRunner().invoke(main, ["reproduce", *arguments, "--output", str(output)])
    assert result.exit_code == 0, result.output
    return output / "quick" / f"{arguments[0]}.csv"


def pieces(path: Path) -> set[tuple[str, ...]]:
    """What is finished; it can be read at any moment."""
    key = ("dataset", "kernel", "part" if path.stem == "errors" else "gamma", "seed")
    return {tuple(row[c] for c in key) for row in read_csv(path)} if path.exists() else set()


def wait_for(path: Path, count: int, child: subprocess.Popen[bytes]) -> None:
    begin = time.monotonic()
    while len(pieces(path)) < count:
        assert child.poll() is None, f"it ended with {child.returncode} before it could be killed"
        assert time.monotonic() - begin < LIMIT, f"no {count} pieces in {LIMIT} s"
        time.sleep(0.01)


def numbers(path: Path) -> list[dict[str, str]]:
    """All columns but those of time and provenance."""
    return [{c: v for c, v in row.items() if c not in ("run", "seconds")} for row in read_csv(path)]


def test_killed_and_resumed_in_another_number_of_jobs_it_is_the_uninterrupted_one(tmp_path: Path) -> None:
    """Only the first process is killed: its workers end by themselves, and write nothing."""
    path = tmp_path / "killed" / "quick" / "errors.csv"
    child = start(tmp_path / "killed", ONE_CELL)
    wait_for(path, 1, child)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    kept, rows = path.read_bytes(), read_csv(path)
    begin = time.monotonic()
    while alive(child.pid):
        assert time.monotonic() - begin < 60.0, "workers outlive the process that started them"
        time.sleep(0.05)
    assert path.read_bytes() == kept
    assert 1 <= len(pieces(path)) < 4
    assert here(tmp_path / "killed", ONE_CELL) == path
    assert all(row in read_csv(path) for row in rows)  # their seconds and run too: not computed again
    assert numbers(path) == numbers(here(tmp_path / "whole", ONE_CELL))
    assert not list(path.parent.glob(".*.lock"))


def alive(group: int) -> bool:
    """Whether any process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", ["errors", "eigenvalues"])
def test_killed_three_times_a_real_experiment_ends_with_the_same_numbers(name: str, tmp_path: Path) -> None:
    """The whole group is killed at once, workers and all, as by a power cut."""
    arguments = (name, "--datasets", "artificial1,artificial2", "--quick")
    path = tmp_path / "killed" / "quick" / f"{name}.csv"
    kept = 0
    for _ in range(3):
        child = start(tmp_path / "killed", arguments)
        wait_for(path, kept + 2, child)
        os.killpg(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert len(pieces(path)) >= kept + 2
        kept = len(pieces(path))
    assert start(tmp_path / "killed", arguments).wait(LIMIT) == 0
    assert kept < len(pieces(path))
    assert numbers(path) == numbers(here(tmp_path / "whole", arguments))


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("whole_group", [False, True])
def test_ctrl_c_is_one_sentence_whoever_gets_it(n_jobs: int, whole_group: bool, tmp_path: Path) -> None:
    """A terminal sends SIGINT to all processes; a supervisor to the first alone."""
    path = tmp_path / "quick" / "errors.csv"
    with (tmp_path / "said").open("w+b") as said:
        child = start(tmp_path, ONE_CELL, n_jobs, said)
        wait_for(path, 1, child)
        (os.killpg if whole_group else os.kill)(child.pid, signal.SIGINT)
        assert child.wait(LIMIT) == 130
        begin = time.monotonic()
        while alive(child.pid) and time.monotonic() - begin < 60.0:
            time.sleep(0.05)
        said.seek(0)
        lines = [line for line in said.read().decode().splitlines() if line and " done, " not in line]
    assert lines == ["Stopped. Every finished piece is kept; the same command goes on from there."]
    assert pieces(path)
    assert not list(path.parent.glob(".*"))
