"""Left to choose: does max_error keep its word, in how many bytes, and what does max_memory buy?

auto.csv: the 18 cells of rbf, elm and tl1, max_error 0.05 and 0.01, 20 seeds, exact errors. auto_grid.csv: the fewest
bytes of a grid of blocks and ranks that meet the same target (one seed; errors by 1000 rows of K). auto_memory.csv: the
24 cells with max_memory at the bytes of the paper's c and k, beside the shared coupling at that c and k.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from bench_cells import wanted_cells
from measure import seconds
from tqdm import tqdm

import krein
from krein.choosing.candidates import bytes_of
from krein.datasets import load
from krein.preprocessing import paper_preprocessing
from paper.comparing import difference
from paper.records import Table

COLUMNS = (
    "dataset", "kernel", "target", "seed", "error", "met", "nbytes", "n_blocks", "rank", "dtype", "n_built", "reason",
    "seconds", "search_seconds", "build_seconds", "warnings",
)  # fmt: skip
GRID = ("dataset", "kernel", "target", "n_blocks", "rank", "nbytes", "error", "n_built")
MEMORY = ("dataset", "kernel", "seed", "limit", "nbytes", "n_blocks", "rank", "dtype", "error", "fixed_error", "ratio")
TARGETS = (0.05, 0.01)
BLOCKS = (1, 2, 3, 5, 8, 12, 20, 32)
RANKS = tuple(dict.fromkeys(round(1.25**i) for i in range(36)))
LOOSE = 1.3  # the grid is searched up to so many times the bytes chosen: what is dearer is no reproach
ROUNDING = 1e-8  # errors below are the same to us
LOOKED = 1000  # rows of K for the grid's errors
KEPT, BYTES, GAIN = 0.95, 2.0, 0.5  # share of the runs below the target; bytes over the grid's; max_memory's mean ratio


def run(out: Path, command: str, quick: bool, force: bool) -> None:
    table = Table(out / "auto.csv", COLUMNS, command, force)
    grid = Table(out / "auto_grid.csv", GRID, command, force)
    memory = Table(out / "auto_memory.csv", MEMORY, command, force)
    for seeds in (range(1),) if quick else (range(2), range(20)):  # a first look at all cells, then the rest
        for h in tqdm(wanted_cells(quick), desc="cells"):
            cell = Cell(h.dataset, h.kernel, h.similarity, load(h.dataset).X[: 2500 if quick else None])
            targets = () if h.kernel == "poly" else TARGETS
            for target, seed in [(t, s) for t in targets for s in seeds if not table.has(**cell.key(t), seed=s)]:
                table.add([cell.meets(target, seed)])
            if not memory.has(dataset=h.dataset, kernel=h.kernel):
                memory.add([cell.fills(h.n_blocks, h.rank)])
            for target in targets:
                if not grid.has(**cell.key(target)):
                    grid.add([cell.cheapest(target, LOOSE * _chosen(table, cell.key(target)))])
        (out / "auto.md").write_text(summarise(table, grid, memory, quick), encoding="utf-8")


def _chosen(table: Table, key: dict[str, Any]) -> float:
    """The mean bytes chosen in this cell."""
    return float(np.mean([float(r["nbytes"]) for r in table.rows if all(r[c] == str(v) for c, v in key.items())]))


class Cell:
    """One data set and kernel; its K is made when it is first needed."""

    def __init__(self, dataset: str, name: str, kernel: krein.kernels.Kernel, raw: Any) -> None:
        self.dataset, self.name, self.kernel, self.raw = dataset, name, kernel, raw
        self._X: Any = None
        self._K: Any = None

    def key(self, target: float) -> dict[str, Any]:
        return {"dataset": self.dataset, "kernel": self.name, "target": target}

    @property
    def X(self) -> Any:
        if self._X is None:
            self._X = paper_preprocessing(self.kernel).fit_transform(self.raw)
        return self._X

    @property
    def K(self) -> Any:
        if self._K is None:
            self._K = self.kernel(self.X)
            self.looked = np.sort(
                np.random.default_rng(0).choice(len(self._K), min(LOOKED, len(self._K)), replace=False)
            )
            self.looked_norm = float(np.linalg.norm(self._K[self.looked]))
        return self._K

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
        return self.key(target) | {
            "seed": seed, "error": error, "met": error <= target, "nbytes": f.nbytes, "n_blocks": f.n_blocks,
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
            "dataset": self.dataset, "kernel": self.name, "seed": 0, "limit": limit, "nbytes": f.nbytes,
            "n_blocks": f.n_blocks, "rank": f.rank, "dtype": f.dtype, "error": error, "fixed_error": fixed,
            "ratio": max(error, ROUNDING) / max(fixed, ROUNDING),
        }  # fmt: skip

    def cheapest(self, target: float, most: float) -> dict[str, Any]:
        """The fewest bytes of the grid that meet the target, below ``most``. Only cheaper ones than that are built."""
        best: dict[str, Any] = {"n_blocks": 0, "rank": 0, "nbytes": most, "error": np.inf}
        built = 0
        for c in BLOCKS:
            ranks = [k for k in RANKS if c * k <= len(self.X) // 2 and self._bytes(c, k) < best["nbytes"]]
            low, high, at = -1, len(ranks), len(ranks) - 1  # missed at low, met at high; the dearest first
            while low < at < high:
                error = self._looked_error(c, ranks[at])
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
        return self.key(target) | best | {"n_built": built}

    def _bytes(self, n_blocks: int, rank: int) -> int:
        return bytes_of(len(self.X), n_blocks, rank, "float64")

    def _looked_error(self, n_blocks: int, rank: int) -> float:
        _, a, _ = self.build(0, n_blocks=n_blocks, rank=rank, dtype="float64")
        difference = self.K[self.looked] - a.factorization.rows(self.looked)
        return float(np.linalg.norm(difference)) / self.looked_norm


def summarise(table: Table, grid: Table, memory: Table, quick: bool) -> str:
    lines = [
        "# Left to choose",
        "",
        "max_error: the share of runs whose exact error is below it, the largest error over it, the mean bytes over",
        "those of the cheapest grid choice, the seconds of choosing (samples, forecasts, measured errors) over those",
        "of building, median.",
        "",
        *(["**A quick run: the first 2500 rows of one data set.**", ""] * quick),
        "| data | kernel | max_error | runs | below it | largest / asked | mean / asked | bytes / grid's | blocks "
        "| grid c, k | built, mean | search / build |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- | ---: | ---: |",
    ]
    ratios, spent = [], []
    for key in dict.fromkeys((r["dataset"], r["kernel"], r["target"]) for r in table.rows):
        mine = [r for r in table.rows if (r["dataset"], r["kernel"], r["target"]) == key]
        cheap = next(r for r in grid.rows if (r["dataset"], r["kernel"], r["target"]) == key)
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
    met = np.array([r["met"] == "True" for r in table.rows])
    faster = np.array([float(r["search_seconds"]) < float(r["build_seconds"]) for r in table.rows])
    lines += [
        "",
        f"- Below max_error: {met.mean():.1%} of {len(met)} runs (wanted: at least {KEPT:.0%}).",
        f"- Bytes over the grid's: at most {max(ratios):.2f} (wanted: {BYTES:g}), median {np.median(ratios):.2f}.",
        f"- Choosing took less than building in {faster.mean():.1%} of the runs, and by the median in "
        f"{int((np.array(spent) < 1).sum())} of {len(spent)} cells (wanted: all); geometric mean of those medians "
        f"{np.exp(np.log(spent).mean()):.2f}.",
        "",
        "| data | kernel | bytes allowed | used | blocks | rank | type | error | at the paper's c and k | ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    for r in memory.rows:
        lines.append(
            f"| {r['dataset']} | {r['kernel']} | {r['limit']} | {float(r['nbytes']) / float(r['limit']):.2f} "
            f"| {r['n_blocks']} | {r['rank']} | {r['dtype']} | {float(r['error']):.3g} | {float(r['fixed_error']):.3g} "
            f"| {float(r['ratio']):.3f} |"
        )
    found = np.maximum([float(r["ratio"]) for r in memory.rows], 0.01)
    lines += [
        "",
        f"- max_memory: geometric mean of the ratios {np.exp(np.log(found).mean()):.3f}, each counted as 0.01 at least "
        f"(wanted: at most {GAIN}); above 1 in {int((found > 1).sum())} cells.",
    ]
    return "\n".join(lines) + "\n"
