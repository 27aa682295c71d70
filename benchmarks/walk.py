"""How far a reader has to jump to follow a call: python benchmarks/walk.py.

Functions count in the order of their first call. A switch is a change of module, a return a switch to a module already
visited. Imports do not count: each call is made once before.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import krein
from krein.cli import main

ROOT = str(Path(krein.__file__).parent)


def walk(call: Callable[[], Any]) -> dict[str, int]:
    seen: set[Any] = set()
    order: list[str] = []

    def watch(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and not code.co_name.startswith("<"):
            if code not in seen:
                order.append(code.co_filename)
            seen.add(code)

    call()
    krein.clear_cache()  # what was built before is built again
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    switches = [new for old, new in pairwise(order) if new != old]
    modules = set(order)
    return {"modules": len(modules), "functions": len(order), "switches": len(switches),
            "returns": len(switches) + 1 - len(modules)}  # fmt: skip


def data(n: int) -> tuple[Any, Any]:
    X = np.random.default_rng(n).normal(size=(n, 6))
    return X, (np.sin(X).sum(1) > 0).astype(int)


def show() -> None:
    small, large = data(1500), data(6000)
    exact = krein.SVC().fit(*small)
    blocks = krein.SVC(n_blocks=20, rank=32).fit(*large)
    exact.predict(small[0][:5])
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        np.savetxt(table, np.c_[small[0], small[1]], delimiter=",", header="a,b,c,d,e,f,y", comments="")
        command = ["fit", str(table), "--target", "y", "--output", str(Path(folder) / "m.krein"), "--json"]
        calls: dict[str, Callable[[], Any]] = {
            "SVC().fit, 1500 rows": lambda: krein.SVC().fit(*small),
            "SVC().fit, 6000 rows": lambda: krein.SVC().fit(*large),
            "SVC(n_blocks=20, rank=32).fit": lambda: krein.SVC(n_blocks=20, rank=32).fit(*large),
            "approximate(max_error=0.05)": lambda: krein.approximate(large[0], krein.RBF(), max_error=0.05),
            'approximate(coupling="pairwise")': lambda: krein.approximate(
                large[0], krein.RBF(), n_blocks=10, rank=32, coupling="pairwise"
            ),
            "predict, 20 blocks": lambda: blocks.predict(large[0][:100]),
            "predict, exact": lambda: exact.predict(large[0][:100]),
            "krein fit": lambda: main(command, standalone_mode=False),
        }
        found = {name: walk(call) for name, call in calls.items()}
    for name, counts in found.items():
        print(f"{name:34} " + ", ".join(f"{count} {what}" for what, count in counts.items()))


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        show()
