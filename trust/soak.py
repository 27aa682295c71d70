"""Soak: random fits, predictions, saves and loads in one process, for minutes or an hour. Nothing may pile up."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

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
WARM_ROUNDS = 30


def resident() -> int:
    """Return the bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


CLASSES: tuple[type, ...] = (
    krein.SVC, krein.KernelRidgeClassifier, krein.KernelRidge, krein.SVR, krein.OneClassSVM, krein.NuSVC,
    krein.GaussianProcessRegressor, krein.KernelLogisticRegression, krein.KernelPCA, krein.KernelKMeans,
)  # fmt: skip
HOW: tuple[dict[str, Any], ...] = ({}, {"n_blocks": 2, "rank": 8}, {"policy": BEYOND})
# A loaded machine predicts what the saved one did, and a fit what the same fit did before, up to this share.
TOLERANCE = 1e-9
# Ridge agrees with the dense system up to this share of the largest prediction.
DENSE_TOLERANCE = 1e-6


def output(machine: Any, X: Any) -> Any:
    """Return what a machine says about rows, as numbers."""
    names = (
        ("decision_function", "transform") if isinstance(machine, ClassifierMixin | krein.KernelPCA) else ("predict",)
    )
    name = next(name for name in names if hasattr(machine, name))
    return np.asarray(getattr(machine, name)(X), dtype=np.float64)


def close(found: Any, wanted: Any, tolerance: float) -> bool:
    return found.shape == wanted.shape and bool(np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max())


def round_trip(number: int, drawn: Any, path: Path, before: dict[Any, Any]) -> bool:
    """Fit, predict, save, load, predict again; whether all results are right.

    The loaded machine has to predict what the saved one did, and the same fit what it did the first time. Exact ridge
    on a psd matrix is compared with the dense system, solved by NumPy.
    """
    cls, how = CLASSES[number % len(CLASSES)], HOW[number // len(CLASSES) % len(HOW)]
    seed, X, y, kernel = drawn[number // len(CLASSES) // len(HOW) % len(drawn)]
    targets = () if issubclass(cls, krein.OneClassSVM | krein.KernelPCA | krein.KernelKMeans) else (y,)
    more = {"alpha": 1e-2} if issubclass(cls, krein.GaussianProcessRegressor) else {}
    machine = cls(kernel=kernel, random_state=seed, **how, **more)
    ended = attempt(lambda: output(machine.fit(X, *targets), X))
    if ended.error is not None:
        return isinstance(ended.error, krein.KreinError)
    krein.save(machine, path)
    again = attempt(lambda: output(krein.load(path), X))
    key = number % (len(CLASSES) * len(HOW) * len(drawn))
    first = before.setdefault(key, ended.value)
    held = again.error is None and all(close(found, ended.value, TOLERANCE) for found in (again.value, first))
    if cls is krein.KernelRidge and not how and kernel.traits.psd:
        K = kernel(X)
        dense = K @ np.linalg.solve(K + machine.alpha * np.eye(len(K)), y.astype(np.float64))
        held = held and close(ended.value, dense, DENSE_TOLERANCE)
    return held


def soak(quick: bool, leak: bool = False) -> Tally:
    rounds = FEW_ROUNDS if quick or leak else ROUNDS
    seconds = float(os.environ.get("TRUST_SECONDS", SECONDS)) if not (quick or leak) else FEW_SECONDS
    tally, kept, before, begun, sizes = Tally(), [], {}, time.monotonic(), []
    drawn = list(problems(40))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.krein"
        opened = handles()
        while time.monotonic() - begun < seconds or len(sizes) < 8:
            i = tally.tried
            tally.add(round_trip(i, drawn, path, before), f"round {i}: another result")
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
