"""How far a reader has to jump to follow a call: python benchmarks/walk.py [--where].

Functions count in the order of their first call. A switch is a change of module, a return a switch to a module already
visited. Imports do not count: each call is made once before. There is one thread, as calls in others are not seen.
With --where the modules are printed in order, with the functions that are first called there; -> marks a return.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import krein
from krein.cli import main

ROOT = str(Path(krein.__file__).parent)


def walk(call: Callable[[], Any]) -> list[tuple[str, str]]:
    """(module, function) for each function, in the order of their first calls."""
    seen: set[Any] = set()
    order: list[tuple[str, str]] = []

    def watch(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and not code.co_name.startswith("<"):
            if code not in seen:
                module = str(Path(code.co_filename).relative_to(ROOT).with_suffix(""))
                order.append((module, getattr(code, "co_qualname", code.co_name)))
            seen.add(code)

    call()
    krein.clear_cache()  # what was built before is built again
    with threadpool_limits(1):
        sys.setprofile(watch)
        try:
            call()
        finally:
            sys.setprofile(None)
    return order


def counted(order: list[tuple[str, str]]) -> dict[str, int]:
    switches = [new for (old, _), (new, _) in pairwise(order) if new != old]
    modules = {module for module, _ in order}
    return {"modules": len(modules), "functions": len(order), "switches": len(switches),
            "returns": len(switches) + 1 - len(modules)}  # fmt: skip


def show_where(order: list[tuple[str, str]]) -> None:
    visited: set[str] = set()
    for module, run in groupby(order, key=lambda step: step[0]):
        print("->" if module in visited else "  ", f"{module:32}", ", ".join(name for _, name in run))
        visited.add(module)


def data(n: int) -> tuple[Any, Any]:
    X = np.random.default_rng(n).normal(size=(n, 6))
    return X, (np.sin(X).sum(1) > 0).astype(int)


def show(where: bool) -> None:
    small, large = data(1500), data(6000)
    exact = krein.SVC().fit(*small)
    blocks = krein.SVC(n_blocks=20, rank=32, random_state=0).fit(*large)
    exact.predict(small[0][:5])
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        np.savetxt(table, np.c_[small[0], small[1]], delimiter=",", header="a,b,c,d,e,f,y", comments="")
        command = ["fit", str(table), "--target", "y", "--output", str(Path(folder) / "m.krein"), "--json"]
        calls: dict[str, Callable[[], Any]] = {
            "SVC().fit, 1500 rows": lambda: krein.SVC().fit(*small),
            "SVC().fit, 6000 rows": lambda: krein.SVC().fit(*large),
            "SVC(n_blocks=20, rank=32).fit": lambda: krein.SVC(n_blocks=20, rank=32, random_state=0).fit(*large),
            "approximate(max_error=0.05)": lambda: krein.approximate(
                large[0], krein.RBF(), max_error=0.05, random_state=0
            ),
            'approximate(coupling="pairwise")': lambda: krein.approximate(
                large[0], krein.RBF(), n_blocks=10, rank=32, coupling="pairwise", random_state=0
            ),
            "predict, 20 blocks": lambda: blocks.predict(large[0][:100]),
            "predict, exact": lambda: exact.predict(large[0][:100]),
            "krein fit": lambda: main(command, standalone_mode=False),
        }
        found = {name: walk(call) for name, call in calls.items()}
    for name, order in found.items():
        print(f"{name:34} " + ", ".join(f"{count} {what}" for what, count in counted(order).items()))
        if where:
            show_where(order)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        show("--where" in sys.argv)
