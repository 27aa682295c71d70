"""Soak: random fits, predictions, saves and loads in one process, for minutes or an hour. Nothing may pile up."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import krein
from trust.attacks import Attack, Tally, attempt
from trust.honesty import problems
from trust.subjects import BEYOND

# Seconds of the full form and of the short one; `make soak` sets TRUST_SECONDS to an hour.
SECONDS, FEW_SECONDS = 120.0, 2.0
# Bytes that one round may leave behind on average, measured over the second half.
LARGEST_SLOPE = 4096.0
# Memory is looked at after so many rounds, of the full form and of the short one.
ROUNDS, FEW_ROUNDS = 10, 3
# The first rounds meet every class and route once: modules are loaded, buffers and arenas are made. They do not count.
WARM_ROUNDS = 12


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def round_trip(seed: int, problem: Any, path: Path) -> bool:
    """Fit, predict, save, load, predict again; whether the predictions agree."""
    _, X, y, kernel = problem
    classes = (krein.SVC, krein.KernelRidgeClassifier, krein.KernelRidge, krein.SVR)
    how: dict[str, Any] = [{}, {"n_blocks": 2, "rank": 8}, {"policy": BEYOND}][seed % 3]
    machine = classes[seed % 4](kernel=kernel, random_state=seed, **how)
    ended = attempt(lambda: machine.fit(X, y).predict(X))
    if ended.error is not None:
        return isinstance(ended.error, krein.KreinError)
    krein.save(machine, path)
    again = attempt(lambda: krein.load(path).predict(X))
    return again.error is None and bool(np.allclose(again.value, ended.value, rtol=1e-9, atol=1e-9))


def soak(quick: bool, leak: bool = False) -> Tally:
    rounds = FEW_ROUNDS if quick or leak else ROUNDS
    seconds = float(os.environ.get("TRUST_SECONDS", SECONDS)) if not (quick or leak) else FEW_SECONDS
    tally, kept, begun, sizes = Tally(), [], time.monotonic(), []
    drawn = list(problems(40))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.krein"
        opened = handles()
        while time.monotonic() - begun < seconds or len(sizes) < 8:
            i = tally.tried
            tally.add(round_trip(i, drawn[i % len(drawn)], path), f"round {i}: other predictions")
            if leak:  # the control keeps a file and some memory in each round
                kept.append((path.open("rb"), np.ones(10**5)))
            if i >= WARM_ROUNDS and i % rounds == 0:
                krein.clear_cache()
                gc.collect()
                sizes.append(resident())
        left = handles() - opened
    half = sizes[len(sizes) // 2 :]
    # Of a few rounds one may need more memory than any before it; a leak shows in most of them.
    few = seconds <= FEW_SECONDS
    slope = float(np.median(np.diff(sizes)) if few else np.polyfit(np.arange(len(half)), half, 1)[0]) / rounds
    tally.note = (
        f"{tally.tried} rounds in {time.monotonic() - begun:.0f} s, {slope:.0f} bytes a round, {left} handles left"
    )
    if left > 0:
        tally.broken.append(f"{left} files stay open")
    if slope > (100 * LARGEST_SLOPE if few else LARGEST_SLOPE):  # a few rounds show large leaks alone
        tally.broken.append(f"{slope:.0f} bytes a round stay")
    for file, _ in kept:
        file.close()
    return tally


ATTACKS = (
    Attack("soak", "fits, predictions, saves and loads", soak, lambda q: soak(True, leak=True), "a leak of files"),
)
