"""krein.plan against what fits take: CPU seconds of ridge and SVC on rows of a memory map, 50 blocks of rank 32.

Each fit runs in a process of its own, which measures the machine before it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner import Request, Task

TABLES = {"plan": ("n", "learner", "planned_seconds", "fit_seconds", "ratio", "n_iter")}
SIZES = (50_000, 200_000, 800_000)
BLOCKS, RANK, FEATURES = 50, 32, 20


def tasks(request: Request) -> list[Task]:
    return [
        Task({"n": n, "learner": learner}, measure, (n, learner), fresh=True)
        for n in (SIZES[:1] if request.quick else SIZES)
        for learner in ("ridge", "svm")
    ]


def report(rows: list[dict[str, str]], request: Request) -> str:
    lines = [
        f"# krein.plan against fits: {BLOCKS} blocks of rank {RANK}, {FEATURES} features in float32, CPU seconds",
        "",
        "| n | learner | planned | taken | planned / taken |",
        "| ---: | --- | ---: | ---: | ---: |",
    ]
    for r in rows:
        planned, taken = float(r["planned_seconds"]), float(r["fit_seconds"])
        lines.append(f"| {r['n']} | {r['learner']} | {planned:.1f} | {taken:.1f} | {float(r['ratio']):.2f} |")
    return "\n".join(lines) + "\n"


def measure(n: int, learner: str) -> list[dict[str, Any]]:
    import krein
    from krein.datasets import mixture

    X = mixture(n, FEATURES, 12, dtype="float32", random_state=0).X
    y = (np.sin(X[:, :5].sum(1)) + 0.3 * np.random.default_rng(1).normal(size=n) > 0).astype(int)
    machine = {"ridge": krein.KernelRidgeClassifier, "svm": krein.SVC}[learner]
    planned = krein.plan(n, FEATURES, n_blocks=BLOCKS, rank=RANK, learner=learner).seconds
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "X.npy", X)
        rows = np.load(Path(folder) / "X.npy", mmap_mode="r")
        begin = time.process_time()
        fitted = machine(n_blocks=BLOCKS, rank=RANK, random_state=0).fit(rows, y)
        taken = time.process_time() - begin
    steps = int(np.max(getattr(fitted, "n_iter_", 0) or 0))
    return [{
        "n": n, "learner": learner, "planned_seconds": planned, "fit_seconds": taken, "ratio": planned / taken,
        "n_iter": steps,
    }]  # fmt: skip
