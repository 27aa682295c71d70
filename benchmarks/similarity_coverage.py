"""How often `krein.inspect`'s 95 % intervals hold: 100 random samples of half of each of the four matrices.

What an interval promises is the mean over samples of the same size, so that is taken from 1000 other samples; the share
of the whole matrix, which is larger, is compared with what is said of all objects.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

import krein
from benchmarks.runner import Task
from benchmarks.similarity_matrices import SETS

COLUMNS = ("data", "sample", "share", "low", "high", "of_all_low", "of_all_high", "mean_of_samples", "of_the_matrix")
SAMPLES, OTHERS = 100, 1000


def tasks(table: str, quick: bool) -> list[Task]:
    return [Task({"data": name}, samples, (name, 10 if quick else SAMPLES), table) for name in SETS]


def samples(name: str, count: int) -> list[dict[str, Any]]:
    S = krein.datasets.load(name).X
    return _samples(0.5 * (S + S.T), count)


def _samples(S: Any, count: int) -> list[dict[str, Any]]:
    n, rng = len(S), np.random.default_rng(1)
    m = n // 2
    draws = [rng.choice(n, m, replace=False) for _ in range(10 * count)]
    usual = float(np.mean([_share(S[np.ix_(some, some)]) for some in draws]))
    out = []
    for sample in range(count):
        found = krein.inspect(S, max_evaluations=_budget(n, m), random_state=sample)
        part, everything = found.negative_share, found.negative_share_of_all
        out.append(
            {
                "sample": sample, "share": part.value, "low": part.low, "high": part.high,
                "of_all_low": everything[0], "of_all_high": everything[1], "mean_of_samples": usual,
                "of_the_matrix": _share(S),
            }
        )  # fmt: skip
    return out


def _budget(n: int, m: int) -> int:
    """What a sample of about m of n objects takes: pairs, the others in both orders, and some again."""
    return m * m + 8 * (n - m) + 1000


def _share(K: Any) -> float:
    w = np.linalg.eigvalsh(K)
    return float(-w[w < 0].sum() / np.abs(w).sum())


def summary(rows: list[dict[str, str]]) -> list[str]:
    lines = [
        "## How often the intervals of krein.inspect hold: the negative share, samples of half of the objects",
        "",
        "| data | samples | share of the whole, % | mean over samples of this size, % | 95 % interval holds that, % of "
        "samples | mean width | whole within 'of all', % of samples |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for r in rows:
        groups[r["data"]].append(r)
    for data, some in groups.items():
        v = {k: np.array([float(r[k]) for r in some]) for k in COLUMNS[2:]}
        holds = np.mean((v["low"] <= v["mean_of_samples"]) & (v["mean_of_samples"] <= v["high"]))
        whole = np.mean((v["of_all_low"] <= v["of_the_matrix"]) & (v["of_the_matrix"] <= v["of_all_high"]))
        true, usual, width = (
            100 * float(np.mean(x)) for x in (v["of_the_matrix"], v["mean_of_samples"], v["high"] - v["low"])
        )
        lines.append(
            f"| {data} | {len(some)} | {true:.2f} | {usual:.2f} | {100 * holds:.0f} | {width:.2f} | {100 * whole:.0f} |"
        )
    return lines
