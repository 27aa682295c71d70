"""Many blocks: 2000 blocks of rank 32 on 500,000 rows, a block-sparse core of 64,000 rows, on two cores.

blocksparse.csv has one row per figure. Everything large runs in a process of its own, for its peak memory.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from benchmarks.measure import peak_bytes, profiled, resident_bytes, seconds
from benchmarks.runner import Request, Task

TABLES = {"blocksparse": ("case", "quantity", "value", "unit")}
# In 8 dimensions and 2000 clusters: similarities of about 0.5 within a cluster; all others together hold a fifteenth of
# the squared norm, most of it between neighbours.
SPREAD, GAMMA, RIDGE = 0.15, 2.0, 1.0


def tasks(request: Request) -> list[Task]:
    size = (20_000, 250, 20, 0.97) if request.quick else (500_000, 2000, 32, 0.995)  # n, blocks, rank, drop
    return [
        Task({"case": "equality"}, equality, fresh=True),
        Task({"case": "many blocks"}, many_blocks, size, fresh=True),
    ]


def report(rows: list[dict[str, str]], request: Request) -> str:
    lines = ["# A block-sparse core", "", "| case | quantity | value |", "| --- | --- | ---: |"]
    lines += [f"| {r['case']} | {r['quantity']} | {float(r['value']):.4g} {r['unit']} |" for r in rows]
    return "\n".join(lines) + "\n"


def equality() -> list[dict[str, Any]]:
    """60 blocks of rank 20, half of the pairs, indefinite: the block-sparse core against the same core held dense."""
    import krein
    from krein.datasets import mixture

    X = mixture(6000, 8, 60, spread=0.3, random_state=1).X
    F = krein.approximate(
        X,
        krein.RBF(gamma=0.5),
        n_blocks=60,
        rank=20,
        drop=0.5,
        coupling="pairwise",
        landmarks="uniform",
        random_state=0,
    ).factorization
    spans = [columns for _, columns in F.spans]
    kept = {
        (i, j): F.core[spans[i], spans[j]]
        for i in range(60)
        for j in range(i, 60)
        if i == j or np.any(F.core[spans[i], spans[j]])
    }
    sparse = krein.BlockSparse.from_blocks(F.ranks, kept)
    G = F.with_core(sparse, F.shift)
    b = np.random.default_rng(0).standard_normal((len(X), 3))
    ends, exact = G.ends(), F.eigenvalues()
    shift = krein.correct(F, "shift").shift
    x, y = F.solve(b, shift + RIDGE), G.solve(b, shift + RIDGE)

    def gap(p: Any, q: Any) -> float:
        return float(np.linalg.norm(p - q) / np.linalg.norm(q))

    norm = float(np.abs(exact).max())
    return as_rows([
        ("kept blocks off the diagonal", len(kept) - 60, "blocks"),
        ("product, relative difference", gap(G @ b, F @ b), ""),
        ("diagonal, relative difference", gap(G.diagonal(), F.diagonal()), ""),
        ("Frobenius norm, relative difference", abs(G.frobenius() - F.frobenius()) / F.frobenius(), ""),
        ("smallest eigenvalue", exact[0], ""),
        ("smallest eigenvalue, difference over |M|", abs(ends.smallest - min(exact[0], 0.0)) / norm, ""),
        ("largest eigenvalue, difference over |M|", abs(ends.largest - exact[-1]) / norm, ""),
        ("solve, relative difference", gap(y, x), ""),
    ])  # fmt: skip


def many_blocks(n: int, n_blocks: int, rank: int, drop: float) -> list[dict[str, Any]]:
    import krein
    from krein.datasets import mixture

    X = mixture(n, 8, n_blocks, spread=SPREAD, random_state=0).X
    krein.approximate(
        X[:500], krein.RBF(gamma=GAMMA), n_blocks=2, rank=8, coupling="pairwise", random_state=0
    )  # load all code
    before = resident_bytes()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build, a, stages = profiled(
            lambda: krein.approximate(
                X, krein.RBF(gamma=GAMMA), n_blocks=n_blocks, rank=rank, coupling="pairwise", drop=drop,
                landmarks="uniform", n_jobs=2, random_state=0,
            ), "approximate",
        )  # fmt: skip
    peak = peak_bytes() - before
    F = a.factorization
    core: Any = F.core
    if not isinstance(core, krein.BlockSparse):
        raise SystemExit(f"The core of {F!r} was expected to be block-sparse.")
    numbers = sum(B.size for B in F.bases) + core.n_kept
    figures = [("rows", n, ""), ("blocks", F.n_blocks, ""), ("rank", F.rank, ""), ("build", build, "s")]
    figures += [(f"build: {name}", taken, "s") for name, taken in sorted(stages.items(), key=lambda s: -s[1])]
    figures += [
        ("warnings", len(caught), ""), ("kernel entries", a.n_evaluations, ""),
        ("kept numbers of the core", core.n_kept, ""),
        ("held", F.nbytes, "bytes"), ("held / (8 (n k + kept))", F.nbytes / (8 * numbers), ""),
        ("peak above data and code", peak, "bytes"), ("peak / held", peak / F.nbytes, ""),
    ]  # fmt: skip
    error = a.error(random_state=0)
    figures += [("relative error, sampled", error.relative, ""), ("relative error, high", error.high, "")]

    v = np.random.default_rng(0).standard_normal(n)
    product, _ = seconds(lambda: F @ v, repeat=5)
    streaming, _ = seconds(_streamed(sum(B.size for B in F.bases), n, core.n_kept, rank), repeat=5)
    core_product, _ = seconds(lambda: core @ np.ones(F.rank), repeat=5)
    figures += [
        ("product", product, "s"), ("product of the core alone", core_product, "s"),
        ("plain dense products of the same size", streaming, "s"), ("product / plain", product / streaming, ""),
    ]  # fmt: skip

    taken, ends = seconds(F.ends)
    figures += [
        ("ends of the spectrum", taken, "s"), ("smallest eigenvalue", ends.smallest, ""),
        ("lower bound", ends.lower_bound, ""), ("largest eigenvalue", ends.largest, ""),
        ("upper bound", ends.upper_bound, ""), ("residual", ends.residual, ""),
    ]  # fmt: skip
    G = krein.correct(F, "shift")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        taken, x = seconds(lambda: G.solve(v, RIDGE))
    residual = np.linalg.norm(G @ x + RIDGE * x - v) / np.linalg.norm(v)
    figures += [
        ("shift", G.shift, ""), ("solve, ridge 1", taken, "s"), ("solve / product", taken / product, ""),
        ("solve, true relative residual", float(residual), ""), ("solve, warnings", len(caught), ""),
    ]  # fmt: skip
    return as_rows(figures)


def as_rows(figures: list[tuple[str, float, str]]) -> list[dict[str, Any]]:
    return [{"quantity": quantity, "value": float(value), "unit": unit} for quantity, value, unit in figures]


def _streamed(basis_numbers: int, n: int, core_numbers: int, rank: int) -> Any:
    """The least a product can cost: every number of the bases and of the core's kept half read twice, by plain BLAS."""
    B = np.ones((n, max(1, basis_numbers // n)))
    C = np.ones((core_numbers // rank, rank))
    v, w, y = np.ones(n), np.ones(B.shape[1]), np.ones(len(C))

    def once() -> None:
        B.T @ v, B @ w, C @ w[:1].repeat(rank), C.T @ y

    return once
