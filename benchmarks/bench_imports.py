"""Starting up: what krein adds to importing scikit-learn's svm module, and how soon its command line answers.

imports.csv: one row per case. Every case runs once in each round, in a process of its own and with bytecode at hand, as
installed packages have it. CPU seconds are the process's own (user and system), which neighbours disturb less than the
clock; what comes after scikit-learn is timed inside the process, without what came before.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from statistics import median
from typing import Any

from benchmarks.runner import Request, Task

COLUMNS = ("case", "rounds", "wall_seconds", "cpu_seconds", "least_cpu_seconds", "cpu_ratio")
TABLES = {"imports": COLUMNS}
THEIRS = "import sklearn.svm"
# The code of the installed script.
COMMAND = "from krein.cli import main; main({!r})"
WHOLE = {
    "python -c pass": "pass",
    THEIRS: THEIRS,
    "import krein": "import krein",
    "krein --help": COMMAND.format(["--help"]),
    "krein fit --help": COMMAND.format(["fit", "--help"]),
}
AFTER = ("import krein", "from krein import SVC", "from krein import *")
TIMED = """
import time
import sklearn.svm
wall, cpu = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""
# The aim: importing krein adds at most ADDED seconds.
ADDED = 0.3
# The aim: krein --help takes at most HELP times as long as importing scikit-learn's svm module.
HELP = 1.5
ROUNDS, QUICK = 7, 1


def tasks(request: Request) -> list[Task]:
    """One task, because the cases are compared round by round."""
    return [Task({}, compare, (QUICK if request.quick else ROUNDS,))]


def compare(rounds: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for code in (*WHOLE.values(), *AFTER):
            whole(code, environment)  # writes the bytecode
        times = [one_round(environment) for _ in range(rounds)]
    cpu = {case: [now[case][1] for now in times] for case in times[0]}
    return [
        {
            "case": case, "rounds": rounds, "wall_seconds": median(now[case][0] for now in times),
            "cpu_seconds": median(cpu[case]), "least_cpu_seconds": min(cpu[case]),
            "cpu_ratio": median(ours / theirs for ours, theirs in zip(cpu[case], cpu[THEIRS], strict=True)),
        }
        for case in cpu
    ]  # fmt: skip


def one_round(environment: dict[str, str]) -> dict[str, tuple[float, float]]:
    alone = {case: whole(code, environment) for case, code in WHOLE.items()}
    return alone | {f"then {code}": after(code, environment) for code in AFTER}


def whole(code: str, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds, by the clock and of the processor, of an interpreter that runs ``code``, from its start to its end."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, stdout=subprocess.DEVNULL)
    wall, now = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, now.ru_utime - before.ru_utime + now.ru_stime - before.ru_stime


def after(code: str, environment: dict[str, str]) -> tuple[float, float]:
    """The same of ``code`` alone, where scikit-learn's svm is already there."""
    command = [sys.executable, "-c", TIMED.format(code)]
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    wall, cpu = map(float, done.stdout.split())
    return wall, cpu


def report(rows: list[dict[str, str]], request: Request) -> str:
    *_, run = json.loads((request.output / "imports.json").read_text(encoding="utf-8"))
    rounds, load = rows[0]["rounds"], run["load_at_start"]
    lines = [
        "# Starting up",
        "",
        f"Medians of {rounds} rounds, each case in a fresh process; load of the machine at the start: {load}.",
        "CPU: user and system seconds. Then: what it takes where `sklearn.svm` is already imported. Ratio: of CPU",
        "seconds, to `import sklearn.svm` in the same round.",
        "",
        "| case | clock | CPU | least CPU | ratio |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    of = {row["case"]: {c: float(row[c]) for c in COLUMNS[1:]} for row in rows}
    for case, row in of.items():
        times = [f"{row[c]:.3f} s" for c in ("wall_seconds", "cpu_seconds", "least_cpu_seconds")]
        lines.append(f"| `{case}` | {' | '.join(times)} | {row['cpu_ratio']:.3f} |")
    added = [f"`{code}` {of[f'then {code}']['cpu_seconds']:.3f} s" for code in AFTER]
    lines += [
        "",
        f"- Added to scikit-learn's svm, CPU (wanted: at most {ADDED:g} s): {', '.join(added)}.",
        "  A name's module is loaded when the name is first used, so a program pays one of the latter two.",
        f"- `krein --help`: {of['krein --help']['cpu_seconds']:.3f} s CPU (wanted: at most {HELP * ADDED:g} s).",
    ]
    return "\n".join(lines) + "\n"
