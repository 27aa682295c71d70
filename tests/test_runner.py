"""Tables that survive being killed, and tasks that give the same whoever runs them and however often they start."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.runner import Table, Task, Unfinished, read_csv, text, work
from krein.errors import InputError

COLUMNS = ("name", "seed", "value", "seconds")


def drawn(name: str, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng([len(name), seed])
    return [{"value": rng.standard_normal(), "seconds": time.perf_counter()} for _ in range(2)]


def broken(name: str, seed: int) -> list[dict[str, Any]]:
    raise ArithmeticError(f"no {name} today")


def tasks(count: int = 4) -> list[Task]:
    return [Task({"name": n, "seed": s}, drawn, (n, s)) for n in ("a", "bb") for s in range(count)]


def values(path: Path) -> list[tuple[str, ...]]:
    with path.open(newline="") as file:
        return [(row["name"], row["seed"], row["value"]) for row in csv.DictReader(file)]


def test_a_table_says_where_each_row_is_from(tmp_path: Path) -> None:
    for command in ("first", "second"):
        table = Table(tmp_path / "t.csv", COLUMNS, command)
        table.add([{"name": command, "seed": 0, "value": 1 / 3}])
    rows, runs = read_csv(tmp_path / "t.csv"), json.loads((tmp_path / "t.json").read_text())
    assert [runs[int(row["run"])]["command"] for row in rows] == ["first", "second"]
    assert runs[0]["numpy"] == np.__version__
    assert [float(row["value"]) for row in rows] == pytest.approx([1 / 3] * 2, abs=1e-9)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.csv", "t.json"]


def test_a_table_of_other_columns_is_not_written_over(tmp_path: Path) -> None:
    Table(tmp_path / "t.csv", ("other",), "x").add([{"other": 1}])
    before = (tmp_path / "t.csv").read_bytes()
    with pytest.raises(InputError, match="--force"):
        Table(tmp_path / "t.csv", COLUMNS, "x")
    assert (tmp_path / "t.csv").read_bytes() == before


def test_jobs_and_order_do_not_show(tmp_path: Path) -> None:
    for jobs, order in ((1, 1), (2, -1)):
        table = Table(tmp_path / f"{jobs}.csv", COLUMNS, "x")
        if order < 0:  # some of it was there before, in another order
            work("t", tasks()[5:2:-1], table)
        work("t", tasks(), table, n_jobs=jobs)
    assert values(tmp_path / "1.csv") == values(tmp_path / "2.csv")
    assert len(values(tmp_path / "1.csv")) == 16


def test_what_is_there_is_not_done_again_unless_forced(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.csv", COLUMNS, "x")
    work("t", tasks(2), table)
    first = [dict(row) for row in table.rows]
    again = Table(tmp_path / "t.csv", COLUMNS, "y")
    work("t", tasks(3), again)
    assert [row for row in again.rows if row["seed"] != "2"] == first  # the seconds too
    work("t", tasks(2)[:1], again, force=True)
    changed = [row for row in again.rows if row not in first and row["seed"] != "2"]
    assert {(row["name"], row["seed"]) for row in changed} == {("a", "0")}
    assert len(again.rows) == 12


def test_a_task_that_fails_takes_no_other_with_it_and_is_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mixed = [*tasks(1), Task({"name": "c", "seed": 0}, broken, ("c", 0))]
    table = Table(tmp_path / "t.csv", COLUMNS, "x")
    with pytest.raises(Unfinished, match=r"1 of 3 tasks failed.*c 0: ArithmeticError: no c today"):
        work("t", mixed, table)
    assert "no c today" in capsys.readouterr().err
    assert {row[0] for row in values(tmp_path / "t.csv")} == {"a", "bb"}
    mended = [*tasks(1), Task({"name": "c", "seed": 0}, drawn, ("c", 0))]
    work("t", mended, Table(tmp_path / "t.csv", COLUMNS, "x"))
    assert [row[0] for row in values(tmp_path / "t.csv")] == ["a", "a", "bb", "bb", "c", "c"]


def test_numbers_keep_nine_digits_and_truth_its_name() -> None:
    assert [text(v) for v in (np.float32(0.5), True, np.False_, 3, "x", 1e-20)] == [
        "0.5",
        "True",
        "False",
        "3",
        "x",
        "1e-20",
    ]


SLEEPY = """
import sys, time
sys.path.insert(0, {folder!r})
from pathlib import Path
from test_runner import COLUMNS, tasks, drawn
from benchmarks.runner import Table
from benchmarks.runner import Task
from benchmarks.runner import work
def slowly(name, seed):
    time.sleep(0.2)
    return drawn(name, seed)
todo = [Task(t.key, slowly, t.arguments) for t in tasks(5)]
work("t", todo, Table(Path({path!r}), COLUMNS, "x"))
"""


@pytest.mark.slow  # test_killed.py kills a real experiment, by default once
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_killed_three_times_it_ends_with_the_same_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    script = SLEEPY.format(folder=str(Path(__file__).parent), path=str(path))
    kept = 0
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", script], env=os.environ.copy(), stderr=subprocess.DEVNULL)
        begin = time.monotonic()
        while time.monotonic() - begin < 60 and (not path.exists() or len(values(path)) < kept + 4):
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, "it ended before it could be killed"
        assert len(values(path)) >= kept + 4  # nothing that was finished is lost
        kept = len(values(path))
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ.copy(), stderr=subprocess.DEVNULL)
    work("t", tasks(5), Table(tmp_path / "whole.csv", COLUMNS, "x"))
    assert values(path) == values(tmp_path / "whole.csv")


def both(name: str) -> dict[str, list[dict[str, Any]]]:
    return {"parts": [{"part": p} for p in "xy"], "t": [{"value": len(name), "seconds": os.getpid()}]}


def everything() -> list[dict[str, Any]]:
    return [{"part": p} for p in "xyz"]


def test_a_task_may_fill_two_tables_and_run_in_a_process_of_its_own(tmp_path: Path) -> None:
    first, second = (Table(tmp_path / f"{name}.csv", (*COLUMNS, "part"), "x") for name in ("t", "parts"))
    todo = [Task({"name": name}, both, (name,), fresh=True) for name in ("a", "bb")]
    for force in (False, True):
        work("t", todo[:1] if force else todo, first, second, force=force)
        parts = sorted((row["name"], row["part"]) for row in second.rows)
        assert parts == [("a", "x"), ("a", "y"), ("bb", "x"), ("bb", "y")]
        assert [row["value"] for row in first.rows] == ["1", "2"]
    assert str(os.getpid()) not in {row["seconds"] for row in first.rows}


def test_a_task_without_a_key_is_its_whole_table(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.csv", ("part",), "x")
    for _ in range(2):
        work("t", [Task({}, everything)], table)
    assert [row["part"] for row in table.rows] == ["x", "y", "z"]
