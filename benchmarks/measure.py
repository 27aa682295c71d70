"""Seconds, stages and bytes of a process, for the benchmarks."""

from __future__ import annotations

import cProfile
import os
import pstats
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def seconds(action: Callable[[], T], repeat: int = 1) -> tuple[float, T]:
    """The best time of ``repeat`` runs, and the last result."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        result = action()
        best = min(best, time.perf_counter() - start)
    return best, result


def resident_bytes() -> int:
    """Bytes of this process that are in memory now (Linux; elsewhere the peak so far)."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else peak_bytes()


def peak_bytes() -> int:
    """The most this process ever had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def forget_peak() -> None:
    """Let `peak_bytes` count from now on (Linux; elsewhere it stays the peak of the whole process)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def profiled(action: Callable[[], T], entry: str) -> tuple[float, T, dict[str, float]]:
    """Return the seconds, the result, and the seconds of each function that ``entry`` calls.

    Only the calling thread is profiled: time spent waiting for workers counts for the function that waits.
    """
    profile = cProfile.Profile()
    start = time.perf_counter()
    result = profile.runcall(action)
    taken = time.perf_counter() - start
    table = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    stages: dict[str, float] = {}
    for (_, _, name), (_, _, _, _, callers) in table.items():
        for (_, _, caller), (_, _, _, cumulative) in callers.items():
            if caller == entry and cumulative > 0.005 * taken:
                stages[name.strip("_<>")] = stages.get(name.strip("_<>"), 0.0) + cumulative
    return taken, result, stages
