"""Each term of the error bounds beside the true error (Sec. 4.2), and Gershgorin's bound beside the true λmin.

On 1500 rows of each cell, as the terms need eigendecompositions of K. M1 is the paper's MEKA, M2 the same after
2|λmin|. K = K⁺ - K⁻; a psd K has no K⁻. The formulas are in `krein.factorization.bounds`.
"""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.runner import Task
from krein.arrays import Array
from krein.factorization.bounds import Bound, Parts, corrected_bound
from krein.factorization.spectrum import gershgorin
from paper import protocol as paper
from paper.comparing import difference
from paper.protocol import Cell, Request
from paper.writing import geometric_mean, mean_of, number, table

__all__ = ["COLUMNS", "TABLES", "report", "tasks"]

TERMS = ("tail+", "sampling+", "outside+", "tail-", "sampling-", "outside-", "shift")
COLUMNS = (
    "dataset", "kernel", "seed", "n", "n_blocks", "rank", "n_landmarks", "norm", "m1_error", "m2_error",
    "outside_error", *TERMS, "m1_bound", "m2_bound", "m1_holds", "m2_holds", "smallest_eigenvalue",
    "gershgorin", "kernel_smallest_eigenvalue", "seconds",
)  # fmt: skip
TABLES = {"bounds": COLUMNS}
ROWS, QUICK_ROWS, SEEDS = 1500, 400, 3
# Eigenvalues of K below ROUNDING times the largest count as zero.
ROUNDING = 1e-10


def tasks(request: Request) -> list[Task]:
    """One for each cell and seed."""
    seeds = 1 if request.quick else request.seeds or SEEDS
    return [
        Task({"dataset": c.dataset, "kernel": c.kernel, "seed": s}, run, (c, s, QUICK_ROWS if request.quick else ROWS))
        for c in paper.cells(request.datasets, request.kernels)
        for s in range(seeds)
    ]


def run(cell: Cell, seed: int, rows: int) -> list[dict[str, Any]]:
    """One approximation of a random part of the rows, its errors and what bounds them. In units of K's entries."""
    begin = time.perf_counter()
    X = paper.prepared(cell)
    X = X[np.sort(np.random.default_rng(seed).choice(len(X), min(rows, len(X)), replace=False))]
    rank = cell.rank if rows == ROWS else cell.rank // 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a = paper.meka(X, cell.similarity, cell.n_blocks, rank, seed)
    f, K = a.factorization, np.asarray(cell.similarity(X))
    gap, low = difference(K, f), f.smallest_eigenvalue()
    shift = 2.0 * max(0.0, -low)
    labels = np.empty(len(K), dtype=np.int64)
    for i, (positions, _) in enumerate(f.spans):
        labels[f.order[positions]] = i
    positive, negative = split(K)
    n_landmarks = min(len(K), sum(min(2 * rank, positions.stop - positions.start) for positions, _ in f.spans))
    bound = bounded(positive, negative, labels, f.rank, n_landmarks, shift)
    bare = bound.total - bound.terms["shift"]
    m1, m2 = (gap.relative(s) * gap.norm for s in (0.0, shift))
    apart = np.where(np.equal.outer(labels, labels), 0.0, K - f.to_dense())
    return [{
        "n": len(K), "n_blocks": f.n_blocks, "rank": f.rank, "n_landmarks": n_landmarks, "norm": gap.norm,
        "m1_error": m1, "m2_error": m2, "outside_error": float(np.linalg.norm(apart)), **bound.terms,
        "m1_bound": bare, "m2_bound": bound.total, "m1_holds": m1 <= bare, "m2_holds": m2 <= bound.total,
        "smallest_eigenvalue": low, "gershgorin": gershgorin(f).lower,
        "kernel_smallest_eigenvalue": float(np.linalg.eigvalsh(K)[0]), "seconds": time.perf_counter() - begin,
    }]  # fmt: skip


def split(K: Array) -> tuple[Array, Array]:
    """K⁺ and K⁻, both psd, with K = K⁺ - K⁻; eigenvalues that are rounding go to neither."""
    values, vectors = np.linalg.eigh(K)
    edge = ROUNDING * float(np.abs(values).max())
    below = vectors[:, values < -edge]
    negative = -(below * values[values < -edge]) @ below.T
    return K + negative, negative


def bounded(positive: Array, negative: Array, labels: Any, rank: int, n_landmarks: int, shift: float) -> Bound:
    """The paper's bound after the shift; without its last term it is the one before."""
    above, below = (Parts.from_matrix(K, labels, rank) for K in (positive, negative))
    return corrected_bound(above, below, rank, n_landmarks, shift)


def report(rows: list[dict[str, str]], request: Request) -> str:
    """Markdown: the terms in units of |K|, how loose each is, and whether the bounds held."""
    lines, loose = [], []
    for c in paper.cells(request.datasets, request.kernels):
        mine = [r for r in rows if (r["dataset"], r["kernel"]) == (c.dataset, c.kernel)]
        if not mine:
            continue
        share = {name: float(np.mean([float(r[name]) / float(r["norm"]) for r in mine]))
                 for name in ("m1_error", "m2_error", "outside_error", "m1_bound", "m2_bound", *TERMS)}  # fmt: skip
        lows = [mean_of(mine, name) for name in ("smallest_eigenvalue", "gershgorin", "kernel_smallest_eigenvalue")]
        lines.append([
            c.dataset, c.kernel, number(share["m1_error"]), number(share["m2_error"]),
            *(number(share[t + "+"] + share[t + "-"]) for t in ("tail", "sampling", "outside")), number(share["shift"]),
            number(share["m1_bound"]), number(share["m2_bound"]), *(number(value) for value in lows),
        ])  # fmt: skip
        loose.append(share | {"low": lows[0], "disc": lows[1], "kernel": lows[2]})
    heading = ("data", "kernel", "M1", "M2", "tail", "sampling", "2 outside", "shift", "bound M1", "bound M2", "λmin",
               "Gershgorin", "λmin of K")  # fmt: skip
    counted = "\n".join(f"- {line}" for line in _statements(rows, loose)) if loose else "- No rows yet."
    return (
        "# The error bounds, term by term (Sec. 4.2)\n\n"
        f"At the paper's c and k{' / 4' if request.quick else ''} on {QUICK_ROWS if request.quick else ROWS} rows, in "
        "units of |K|, means over seeds; M1 is MEKA, M2 after 2|λmin|. tail: |K± - K±_k| with k the total rank; "
        "sampling: (64k/l)^¼ n K_max √(1+θ) at δ = 0.05; 2 outside: twice the norm of all entries between clusters; "
        "shift: √n |s|. Where K has a negative part its terms are added to the positive part's.\n\n"
        + table(heading, lines) + "\n\n## What it says\n\n" + counted
    )  # fmt: skip


def _statements(rows: list[dict[str, str]], loose: list[dict[str, float]]) -> list[str]:
    held = [sum(r[name] == "True" for r in rows) for name in ("m1_holds", "m2_holds")]

    def over(above: str, below: str) -> str:
        ratios = [s[above] / s[below] for s in loose if s[below] > 0.0 and s[above] > 0.0]
        if not ratios:
            return "no figure"
        return f"{geometric_mean(ratios):.3g} (from {min(ratios):.3g} to {max(ratios):.3g})"

    for s in loose:
        s |= {t: s[t + "+"] + s[t + "-"] for t in ("tail", "sampling", "outside")}
        s["rise"] = math.sqrt(max(0.0, s["m2_error"] ** 2 - s["m1_error"] ** 2))
        s |= {"below": max(0.0, -s["low"]), "radius": max(0.0, -s["disc"])}
    vacuous = sum(s["m1_bound"] >= 1.0 for s in loose)
    largest = sum(s["sampling"] >= max(s["tail"], s["outside"]) for s in loose)
    indefinite = sum(s["tail-"] > 0.0 or s["sampling-"] > 0.0 for s in loose)
    return [
        f"The bounds held in every run: before the shift in {held[0]} of {len(rows)}, after it in {held[1]} of "
        f"{len(rows)}." if min(held) == len(rows) else
        f"The bound failed: before the shift in {len(rows) - held[0]}, after it in {len(rows) - held[1]} of "
        f"{len(rows)} runs (it may, with probability 0.05).",
        f"Bound over error, geometric mean over cells: M1 {over('m1_bound', 'm1_error')}, M2 "
        f"{over('m2_bound', 'm2_error')}. The zero matrix has an error of 1: M1's bound is above that in {vacuous} of "
        f"{len(loose)} cells.",
        f"The sampling term is the largest of the first three in {largest} of {len(loose)} cells; over M1's error: "
        f"{over('sampling', 'm1_error')}.",
        f"tail over M1's error: {over('tail', 'm1_error')}; no approximation of that rank can be below it, so "
        "this is how far MEKA is from the best of its rank, not a looseness of the bound.",
        f"2 outside over the true error between clusters: {over('outside', 'outside_error')}; it counts those blocks "
        "as lost, while MEKA links them.",
        f"The shift's term over what the shift added (the root of M2² - M1²): {over('shift', 'rise')}: this term is "
        f"tight, and it is {over('shift', 'm1_error')} times M1's error.",
        f"Gershgorin's bound over the true |λmin| of the approximation: {over('radius', 'below')}.",
        f"K itself has a negative part on {indefinite} of {len(loose)} cells' rows.",
    ]  # fmt: skip
