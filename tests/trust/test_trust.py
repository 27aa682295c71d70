"""The short form of `make trust`: each attack holds, and its control breaks. The full form is in results/trust."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trust import board
from trust.attacks import Tally, attempt, judged
from trust.faults import environment

ROOT = Path(board.__file__).resolve().parent.parent
QUICK = [(a.family, a.name) for a in board.attacks() if a.family != "faults"]

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc, and limits memory and files"),
    pytest.mark.filterwarnings("ignore"),  # an attack judges warnings itself
]


@pytest.mark.parametrize(("family", "name"), QUICK, ids=[" ".join(pair) for pair in QUICK])
def test_an_attack_holds_and_its_control_breaks(family: str, name: str) -> None:
    (row,) = board.row(family, name, quick=True)
    shown = {key: str(value) for key, value in row.items()} | {"family": family, "attack": name}
    assert board.findings(shown) == []
    assert row["tried"] > 0


def test_faults_of_the_machine_hold_and_their_controls_break() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "trust.faults", "short"],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment(ROOT),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name, (found, control) in json.loads(done.stdout.splitlines()[-1]).items():
        assert found["broken"] == [], name
        assert control["broken"], name


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        (lambda: 1.0, "right"),
        (lambda: 2.0, "silent"),
        (lambda: int("x"), "error"),
        (lambda: 1 / 0, "unnamed"),
        (lambda: next(iter([]))[0], "unnamed"),
    ],
)
def test_outcomes_are_told_apart(call, outcome) -> None:
    assert judged(attempt(call), lambda found: found == 1.0) == outcome


def test_what_does_not_end_has_hung() -> None:
    def for_ever() -> None:
        while True:
            pass

    assert judged(attempt(for_ever, 0.05), lambda found: True) == "hung"


def test_a_line_fails_if_something_new_breaks_or_the_control_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "OPEN", {"a known finding": "the reason"})
    row = {"open": "", "broke": "3"}
    assert board.findings(row) == []
    assert board.findings(row | {"open": "SVC, NaN: silent"}) == ["SVC, NaN: silent"]
    assert board.findings(row | {"open": "SVC, a known finding"}) == []
    assert board.findings(row | {"broke": "0"}) == ["the control broke nothing, so this line proves nothing"]
    assert Tally(3, ["x"]).held == 2


def test_the_committed_result_has_every_attack_and_nothing_unexplained() -> None:
    with (ROOT / "results" / "trust" / "trust.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(r["family"], r["attack"]) for r in rows} == {(a.family, a.name) for a in board.attacks()}
    assert [found for row in rows for found in board.findings(row)] == []


def test_the_example_of_the_page_runs() -> None:
    page = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(example, "docs/trust.md", "exec"), {})
