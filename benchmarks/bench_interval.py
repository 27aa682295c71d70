"""Does the 95 % interval of a.error() hold the truth in 95 % of the runs? Ten cases, 50 runs each, n = 3000.

interval.csv: one row per run. interval.md: coverage, width and bias of each case. The truth is the dense matrix.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import krein
from benchmarks.runner import Request, Task

COLUMNS = ("case", "build", "sample", "truth", "relative", "low", "high", "n_evaluations")
TABLES = {"interval": COLUMNS}
Case = tuple[str, krein.kernels.Kernel, dict[str, Any]]  # rows, kernel, how it is approximated
CASES: dict[str, Case] = {
    "rbf, wide": ("blobs", krein.RBF(gamma=0.02), {"n_blocks": 5, "rank": 8}),
    "rbf, narrow": ("blobs", krein.RBF(gamma=0.5), {"n_blocks": 5, "rank": 12}),
    "rbf, error below 1e-7": ("blobs", krein.RBF(gamma=0.001), {"n_blocks": 2, "rank": 100}),
    "rbf, the paper's coupling": (
        "blobs", krein.RBF(gamma=0.05),
        {"n_blocks": 5, "rank": 8, "coupling": "pairwise", "landmarks": "uniform"},
    ),
    "rbf, 300 blocks": ("islands", krein.RBF(gamma=2.0), {"n_blocks": 300, "rank": 4, "drop": 0.995}),
    "tl1": ("blobs", krein.TL1(rho=12.0), {"n_blocks": 5, "rank": 12}),
    "cubic, log-normal lengths, sigma 0.5": ("lengths 0.5", krein.Polynomial(degree=3), {"n_blocks": 5, "rank": 20}),
    "cubic, log-normal lengths, sigma 1": ("lengths 1", krein.Polynomial(degree=3), {"n_blocks": 5, "rank": 20}),
    "cubic, sigma 1, diagonal blocks": (
        "lengths 1", krein.Polynomial(degree=3), {"n_blocks": 5, "rank": 20, "drop": 1.0},
    ),
    "quadratic, a few huge rows": ("outliers", krein.Polynomial(degree=2), {"n_blocks": 4, "rank": 6}),
}  # fmt: skip


def tasks(request: Request) -> list[Task]:
    n, builds, samples = (2100, 1, 5) if request.quick else (3000, 5, 10)
    return [
        Task({"case": case, "build": build}, runs, (case, build, samples, n))
        for case in CASES
        for build in range(builds)
    ]


def runs(case: str, build: int, samples: int, n: int) -> list[dict[str, Any]]:
    """Data and approximation anew for each build; on it, several samples of entries."""
    kind, kernel, how = CASES[case]
    X = rows(kind, n, np.random.default_rng(build))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krein.KreinWarning)  # some of the cases are bad approximations on purpose
        a = krein.approximate(X, kernel, random_state=build, **how)
    K = a.kernel(X)
    truth = float(np.linalg.norm(K - a.factorization.to_dense()) / np.linalg.norm(K))
    found = ((s, a.error(random_state=s)) for s in range(samples))
    return [
        {"case": case, "build": build, "sample": s, "truth": truth, "relative": e.relative, "low": e.low,
         "high": e.high, "n_evaluations": e.n_evaluations}
        for s, e in found
    ]  # fmt: skip


def rows(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "islands":  # 300 small clusters, of which only neighbours know each other
        return rng.standard_normal((300, 8))[np.arange(n) % 300] + 0.15 * rng.standard_normal((n, 8))
    if kind.startswith("lengths"):
        X = rng.standard_normal((n, 10))
        return X / np.linalg.norm(X, axis=1)[:, None] * rng.lognormal(0.0, float(kind.split()[1]), (n, 1))
    X = 4.0 * rng.standard_normal((5, 4))[rng.integers(5, size=n)] + rng.standard_normal((n, 4))
    if kind == "outliers":
        X[:6] *= 8.0
    return X


def report(rows: list[dict[str, str]], request: Request) -> str:
    lines = [
        f"# The 95 % interval of the sampled error, {len(rows)} runs",
        "",
        "Truth below and above the interval, the interval's mean width over the truth, and the mean of estimate² over",
        "truth² less one, with its standard error.",
        "",
        "| case | runs | error | covered | above it | below it | width | bias of the squares |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case in ("all", *dict.fromkeys(r["case"] for r in rows)):
        mine = [r for r in rows if case in ("all", r["case"])]
        truth, relative, low, high = (
            np.array([float(r[c]) for r in mine]) for c in ("truth", "relative", "low", "high")
        )
        excess = (relative / truth) ** 2 - 1.0
        error = "" if case == "all" else f"{np.median(truth):.2g}"
        lines.append(
            f"| {case} | {len(mine)} | {error} | {((low <= truth) & (truth <= high)).mean():.1%} "
            f"| {(truth > high).mean():.1%} | {(truth < low).mean():.1%} | {((high - low) / truth).mean():.3f} "
            f"| {excess.mean():+.4f} ± {excess.std() / np.sqrt(len(mine)):.4f} |"
        )
    return "\n".join(lines) + "\n"
