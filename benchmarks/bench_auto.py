"""Left to choose: does max_error keep its word, in how many bytes, and what does max_memory buy?

auto.csv: the 18 cells of rbf, elm and tl1, max_error 0.05 and 0.01, 20 seeds, exact errors. auto_grid.csv: the fewest
bytes of a grid of blocks and ranks that meet the same target (one seed; errors by 1000 rows of K). auto_memory.csv: the
24 cells with max_memory at the bytes of the paper's c and k, beside the shared coupling at that c and k.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import krein
from benchmarks.bench_cells import wanted_cells
from benchmarks.measure import seconds
from benchmarks.runner import Request, Task, read_csv
from krein.choosing.candidates import bytes_of
from krein.datasets import load
from krein.preprocessing import paper_preprocessing
from paper.comparing import difference
from paper.protocol import Cell

COLUMNS = (
    "dataset", "kernel", "target", "seed", "error", "met", "nbytes", "n_blocks", "rank", "dtype", "n_built", "reason",
    "seconds", "search_seconds", "build_seconds", "warnings",
)  # fmt: skip
GRID = ("dataset", "kernel", "target", "n_blocks", "rank", "nbytes", "error", "n_built")
MEMORY = ("dataset", "kernel", "seed", "limit", "nbytes", "n_blocks", "rank", "dtype", "error", "fixed_error", "ratio")
TARGETS = (0.05, 0.01)
BLOCKS = (1, 2, 3, 5, 8, 12, 20, 32)
RANKS = tuple(dict.fromkeys(round(1.25**i) for i in range(36)))
# The grid is searched up to GRID_MARGIN times the bytes that krein chose.
GRID_MARGIN = 1.3
# Errors below NEGLIGIBLE_ERROR count as equal.
NEGLIGIBLE_ERROR = 1e-8
# The errors of the grid are estimated from SAMPLED_ROWS rows of K.
SAMPLED_ROWS = 1000
# The aims: MET_SHARE of the runs stay below the target, the bytes are at most BYTES_RATIO times the grid's, and the
# mean error with max_memory is at most MEMORY_RATIO times that of the paper's shape.
MET_SHARE, BYTES_RATIO, MEMORY_RATIO = 0.95, 2.0, 0.5
TABLES = {"auto": COLUMNS, "auto_grid": GRID, "auto_memory": MEMORY}


def tasks(request: Request) -> list[Task]:
    """Two seeds of every cell first, then the others."""
    found, quick = [], request.quick
    for seeds in (range(1),) if quick else (range(2), range(2, 20)):
        for cell in wanted_cells(quick):
            key = {"dataset": cell.dataset, "kernel": cell.kernel}
            targets = () if cell.kernel == "poly" else TARGETS
            found += [Task(key | {"target": t, "seed": s}, meets, (cell, t, s, quick)) for t in targets for s in seeds]
            if 0 in seeds:
                found.append(Task(key, fills, (cell, quick), table="auto_memory"))
                found += [
                    Task(key | {"target": t}, cheapest, (cell, t, request.output, quick), table="auto_grid")
                    for t in targets
                ]
    return found


@lru_cache(maxsize=1)
def problem(cell: Cell, quick: bool) -> Problem:
    return Problem(cell, quick)


def meets(cell: Cell, target: float, seed: int, quick: bool) -> list[dict[str, Any]]:
    return [problem(cell, quick).meets(target, seed)]


def fills(cell: Cell, quick: bool) -> list[dict[str, Any]]:
    return [problem(cell, quick).fills(cell.n_blocks, cell.rank)]


def cheapest(cell: Cell, target: float, output: Path, quick: bool) -> list[dict[str, Any]]:
    """The best of the grid, up to GRID_MARGIN times the mean bytes that krein chose for the same target."""
    key = {"dataset": cell.dataset, "kernel": cell.kernel, "target": str(target)}
    chosen = [float(r["nbytes"]) for r in read_csv(output / "auto.csv") if key.items() <= r.items()]
    return [problem(cell, quick).cheapest(target, GRID_MARGIN * float(np.mean(chosen)))]


class Problem:
    """The prepared rows of a cell, its K, and a sample of K's rows."""

    def __init__(self, cell: Cell, quick: bool) -> None:
        raw = load(cell.dataset).X[: 2500 if quick else None]
        self.kernel = cell.similarity
        self.X = paper_preprocessing(self.kernel).fit_transform(raw)
        self.K = self.kernel(self.X)
        n = len(self.K)
        self.sample = np.sort(np.random.default_rng(0).choice(n, min(SAMPLED_ROWS, n), replace=False))
        self.sample_norm = float(np.linalg.norm(self.K[self.sample]))

    def build(self, seed: int, **how: Any) -> tuple[float, krein.Approximation, str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            taken, a = seconds(lambda: krein.approximate(self.X, self.kernel, random_state=seed, **how))
        return taken, a, "; ".join(sorted({str(w.message) for w in caught}))

    def error(self, a: krein.Approximation) -> float:
        return difference(self.K, a.factorization).relative()

    def meets(self, target: float, seed: int) -> dict[str, Any]:
        taken, a, said = self.build(seed, max_error=target)
        error, f, s = self.error(a), a.factorization, a.search_
        assert s is not None
        return {
            "error": error, "met": error <= target, "nbytes": f.nbytes, "n_blocks": f.n_blocks,
            "rank": f.rank, "dtype": f.dtype, "n_built": sum(look.stage == "built" for look in s.tried),
            "reason": s.reason, "seconds": taken, "search_seconds": s.seconds, "build_seconds": s.build_seconds,
            "warnings": said,
        }  # fmt: skip

    def fills(self, n_blocks: int, rank: int) -> dict[str, Any]:
        limit = 8 * (len(self.X) * rank + (n_blocks * rank) ** 2)
        fixed = self.error(self.build(0, n_blocks=n_blocks, rank=rank, dtype="float64")[1])
        a = self.build(0, max_memory=limit)[1]
        error, f = self.error(a), a.factorization
        return {
            "seed": 0, "limit": limit, "nbytes": f.nbytes,
            "n_blocks": f.n_blocks, "rank": f.rank, "dtype": f.dtype, "error": error, "fixed_error": fixed,
            "ratio": max(error, NEGLIGIBLE_ERROR) / max(fixed, NEGLIGIBLE_ERROR),
        }  # fmt: skip

    def cheapest(self, target: float, most: float) -> dict[str, Any]:
        """The fewest bytes of the grid that meet the target, below ``most``. Only cheaper ones than that are built."""
        best: dict[str, Any] = {"n_blocks": 0, "rank": 0, "nbytes": most, "error": np.inf}
        built = 0
        for c in BLOCKS:
            ranks = [k for k in RANKS if c * k <= len(self.X) // 2 and self._bytes(c, k) < best["nbytes"]]
            low, high, at = -1, len(ranks), len(ranks) - 1  # missed at low, met at high; the dearest first
            while low < at < high:
                error = self._sampled_error(c, ranks[at])
                built += 1
                if error <= target:
                    high = at
                    best = {"n_blocks": c, "rank": ranks[at], "nbytes": self._bytes(c, ranks[at]), "error": error}
                    at = (low + high) // 2
                elif at == len(ranks) - 1:
                    break
                else:
                    low = at
                    at = (low + high) // 2
        return best | {"n_built": built}

    def _bytes(self, n_blocks: int, rank: int) -> int:
        return bytes_of(len(self.X), n_blocks, rank, "float64")

    def _sampled_error(self, n_blocks: int, rank: int) -> float:
        _, a, _ = self.build(0, n_blocks=n_blocks, rank=rank, dtype="float64")
        difference = self.K[self.sample] - a.factorization.rows(self.sample)
        return float(np.linalg.norm(difference)) / self.sample_norm


def report(
    rows: list[dict[str, str]], grid: list[dict[str, str]], memory: list[dict[str, str]], request: Request
) -> str:
    lines = [
        "# Left to choose",
        "",
        "max_error: the share of runs whose exact error is below it, the largest error over it, the mean bytes over",
        "those of the cheapest grid choice, the seconds of choosing (samples, forecasts, measured errors) over those",
        "of building, median.",
        "",
        *(["**A quick run: the first 2500 rows of one data set.**", ""] * request.quick),
        "| data | kernel | max_error | runs | below it | largest / asked | mean / asked | bytes / grid's | blocks "
        "| grid c, k | built, mean | search / build |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- | ---: | ---: |",
    ]
    ratios, spent = [], []
    for key in dict.fromkeys((r["dataset"], r["kernel"], r["target"]) for r in rows):
        mine = [r for r in rows if (r["dataset"], r["kernel"], r["target"]) == key]
        cheap = next(r for r in grid if (r["dataset"], r["kernel"], r["target"]) == key)
        target = float(key[2])
        errors, nbytes = (np.array([float(r[c]) for r in mine]) for c in ("error", "nbytes"))
        ratios.append(float(nbytes.mean()) / float(cheap["nbytes"]))
        spent.append(float(np.median([float(r["search_seconds"]) / float(r["build_seconds"]) for r in mine])))
        grid_choice = f"{cheap['n_blocks']}, {cheap['rank']}" if cheap["n_blocks"] != "0" else "none so cheap"
        blocks = ", ".join(sorted({r["n_blocks"] for r in mine}, key=int))
        lines.append(
            f"| {key[0]} | {key[1]} | {target} | {len(mine)} | {(errors <= target).mean():.0%} "
            f"| {errors.max() / target:.3f} | {errors.mean() / target:.3f} | {ratios[-1]:.2f} | {blocks} "
            f"| {grid_choice} | {np.mean([int(r['n_built']) for r in mine]):.1f} | {spent[-1]:.2f} |"
        )
    met = np.array([r["met"] == "True" for r in rows])
    faster = np.array([float(r["search_seconds"]) < float(r["build_seconds"]) for r in rows])
    lines += [
        "",
        f"- Below max_error: {met.mean():.1%} of {len(met)} runs (wanted: at least {MET_SHARE:.0%}).",
        f"- Bytes over the grid's: at most {max(ratios):.2f} (wanted: {BYTES_RATIO:g}), "
        f"median {np.median(ratios):.2f}.",
        f"- Choosing took less than building in {faster.mean():.1%} of the runs, and by the median in "
        f"{int((np.array(spent) < 1).sum())} of {len(spent)} cells (wanted: all); geometric mean of those medians "
        f"{np.exp(np.log(spent).mean()):.2f}.",
        "",
        "| data | kernel | bytes allowed | used | blocks | rank | type | error | at the paper's c and k | ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for r in memory:
        lines.append(
            f"| {r['dataset']} | {r['kernel']} | {r['limit']} | {float(r['nbytes']) / float(r['limit']):.2f} "
            f"| {r['n_blocks']} | {r['rank']} | {r['dtype']} | {float(r['error']):.3g} | {float(r['fixed_error']):.3g} "
            f"| {float(r['ratio']):.3f} |"
        )
    found = np.maximum([float(r["ratio"]) for r in memory], 0.01)
    lines += [
        "",
        f"- max_memory: geometric mean of the ratios {np.exp(np.log(found).mean()):.3f}, each counted as 0.01 at least "
        f"(wanted: at most {MEMORY_RATIO}); above 1 in {int((found > 1).sum())} cells.",
    ]
    return "\n".join(lines) + "\n"
