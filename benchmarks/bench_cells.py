"""The paper's 24 cells (six data sets, four kernels, its own c and k) with the paper's own coupling, beside its tables.

M1 is the approximation, M2 the shifted one. Errors are exact: K is computed once per cell and compared strip by strip.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cells_summary import summarise
from measure import seconds
from tqdm import tqdm

import krein
import krein.experiments
from krein.datasets import load
from krein.experiments.records import Table, read_csv
from krein.preprocessing import paper_preprocessing

REFERENCE = Path(krein.experiments.__file__).parent / "tables"
COLUMNS = (
    "dataset", "kernel", "n", "n_blocks", "rank", "seed", "dtype", "m1_error", "smallest_eigenvalue", "n_negative",
    "m2_error_once", "m2_error_twice", "memory_percent", "n_evaluations", "seconds", "n_warnings",
)  # fmt: skip
STRIP = 1000  # rows of K compared at a time


def run(out: Path, command: str, quick: bool, force: bool) -> None:
    table = Table(out / "cells.csv", COLUMNS, command, force)
    wanted = [*((s, "float64") for s in range(1 if quick else 5)), *((0, t) for t in ("float32", "float16", "int8"))]
    for h in tqdm(hyperparameters(quick), desc="data sets"):
        X = load(h["dataset"]).X[: 2000 if quick else None]
        for name, kernel in tqdm(kernels(h), desc=h["dataset"], leave=False):
            if all(table.has(dataset=h["dataset"], kernel=name, seed=s, dtype=t) for s, t in wanted):
                continue
            key = {"dataset": h["dataset"], "kernel": name, "n_blocks": int(h["c"]), "rank": int(h["k"])}
            rows = paper_preprocessing(kernel).fit_transform(X)
            table.add(key | found for found in cell(rows, kernel, key["n_blocks"], key["rank"], wanted))
    (out / "cells.md").write_text(summarise(table, REFERENCE, quick), encoding="utf-8")


def hyperparameters(quick: bool) -> list[dict[str, str]]:
    found = read_csv(REFERENCE / "hyperparameters.csv")
    return [h for h in found if h["dataset"] == "artificial1"] if quick else found


def kernels(h: dict[str, str]) -> list[tuple[str, krein.kernels.Kernel]]:
    return [
        ("rbf", krein.RBF(gamma=float(h["gamma"]))),
        ("elm", krein.ELM()),
        ("poly", krein.SpherePolynomial(int(h["degree"]), float(h["a"]))),
        ("tl1", krein.TL1(float(h["rho"]))),
    ]


def cell(
    X: Any, kernel: krein.kernels.Kernel, n_blocks: int, rank: int, wanted: list[tuple[int, str]]
) -> Iterator[dict[str, Any]]:
    """One row per (seed, dtype)."""
    K = kernel(X)
    norm, n = float(np.linalg.norm(K)), len(K)

    def build(seed: int, dtype: str) -> krein.Approximation:
        return krein.approximate(
            X, kernel, n_blocks=n_blocks, rank=rank, coupling="pairwise", landmarks="uniform", dtype=dtype,
            random_state=seed,
        )  # fmt: skip

    for seed, dtype in tqdm(wanted, desc=repr(kernel), leave=False):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            taken, a = seconds(lambda s=seed, t=dtype: build(s, t))  # type: ignore[misc]
        F = a.factorization
        squared, trace = compare(K, F)
        low = F.smallest_eigenvalue()

        def shifted(factor: float, low: float = low, squared: float = squared, trace: float = trace) -> float:
            """|K - F - sI| / |K| from |K - F|² and tr(K - F)."""
            s = factor * max(0.0, -low)
            return float(np.sqrt(max(0.0, squared - 2 * s * trace + n * s**2))) / norm

        yield {
            "n": n, "seed": seed, "dtype": dtype, "m1_error": shifted(0.0), "smallest_eigenvalue": low,
            "n_negative": F.n_negative(), "m2_error_once": shifted(1.0), "m2_error_twice": shifted(2.0),
            "memory_percent": 100 * F.nbytes / (8 * n**2), "n_evaluations": a.n_evaluations, "seconds": taken,
            "n_warnings": len(caught),
        }  # fmt: skip


def compare(K: Any, F: krein.Factorization) -> tuple[float, float]:
    """|K - F|² and tr(K - F)."""
    squared = 0.0
    for start in range(0, len(K), STRIP):
        rows = np.arange(start, min(start + STRIP, len(K)))
        difference = F.rows(rows)
        difference -= K[rows[0] : rows[-1] + 1]
        squared += float(np.vdot(difference, difference))
    return squared, float(K.diagonal().sum() - F.diagonal().sum())
