"""The scoreboard as an experiment of `benchmarks.runner`: one task and one row per attack."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from benchmarks.runner import Request, Rows, Task
from trust.attacks import Attack
from trust.open import OPEN

FAMILIES = ("hostile", "honesty", "faults", "files", "soak", "supply")
TABLES = {"trust": ("family", "attack", "tried", "held", "open", "control", "broke", "without", "cpu_seconds", "note")}
# An attack that has not ended after so many seconds ends its process, with a traceback. An hour of soak is shorter.
LONGEST_ATTACK = 7200.0
# So many attempts that did not hold are named in the table.
NAMED_ATTEMPTS = 40


def attacks() -> list[Attack]:
    return [attack for family in FAMILIES for attack in import_module(f"trust.{family}").ATTACKS]


def tasks(request: Request) -> list[Task]:
    families = request.options.get("families", FAMILIES)
    words = request.options.get("attacks", [""])
    wanted = [a for a in attacks() if a.family in families and any(some in a.name for some in words)]
    return [Task({"family": a.family, "attack": a.name}, row, (a.family, a.name, request.quick)) for a in wanted]


def row(family: str, name: str, quick: bool) -> list[dict[str, Any]]:
    """Make one attack and its control, and return its row of the table."""
    attack = next(a for a in import_module(f"trust.{family}").ATTACKS if a.name == name)
    faulthandler.dump_traceback_later(LONGEST_ATTACK, exit=True)
    begun = time.process_time()
    try:
        found, control = attack.run(quick), attack.control(quick)
    finally:
        faulthandler.cancel_dump_traceback_later()
    return [{
        "tried": found.tried, "held": found.held, "open": "; ".join(found.broken[:NAMED_ATTEMPTS]),
        "control": control.tried, "broke": len(control.broken), "without": attack.without,
        "cpu_seconds": round(time.process_time() - begun, 1), "note": found.note,
    }]  # fmt: skip


def is_open(attempt: str) -> bool:
    """Whether an attempt that did not hold is known, and listed as open."""
    return any(known in attempt for known in OPEN)


def findings(row: Mapping[str, str]) -> list[str]:
    """What is wrong with a line and not listed as open; a control that breaks nothing is wrong too."""
    said = [name for name in row["open"].split("; ") if name and not is_open(name)]
    return said + (["the control broke nothing, so this line proves nothing"] if row["broke"] == "0" else [])


def line(row: Mapping[str, str]) -> str:
    """Return the line of one attack."""
    verdict = "FAILED" if findings(row) else "held" if row["tried"] == row["held"] else "open"
    return (f"{row['family']:8} {row['attack']:40} {row['held']:>5} of {row['tried']:>5} held  {verdict:6} "
            f"control: {row['broke']} of {row['control']} broke ({row['without']})")  # fmt: skip


def report(rows: Rows, request: Request) -> str:
    """The scoreboard in Markdown: a line per attack, then every attempt that did not hold."""
    out = ["# Trust", "", "How to read this: [docs/trust.md](../../docs/trust.md).", "",
           "| family | attack | tried | held | control | without | note |",
           "| --- | --- | ---: | ---: | ---: | --- | --- |"]  # fmt: skip
    for r in rows:
        control = f"{r['broke']} of {r['control']} broke"
        cells = (r["family"], r["attack"], r["tried"], r["held"], control, r["without"], r["note"])
        out.append(f"| {' | '.join(cells)} |")
    tried, held = (sum(int(r[name]) for r in rows) for name in ("tried", "held"))
    out += ["", f"{held} of {tried} attempts held.", "", "## Open", ""]
    out += [f"- {known}: {why}" for known, why in OPEN.items()] or ["Nothing."]
    out += ["", "## Attempts that did not hold", ""]
    out += [f"- {r['family']}, {r['attack']}: {name}" for r in rows for name in r["open"].split("; ") if name] or [
        "None."
    ]
    return "\n".join(out)
