"""Growth in n: seconds to build, bytes held, peak memory and kernel entries, 10 blocks of rank 32.

Each size runs in a process of its own, so that the peak is its own. The peer is scikit-learn's rbf_kernel, asked for as
many entries, in strips, in the same process.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from benchmarks.measure import peak_bytes, profiled, resident_bytes, seconds
from benchmarks.pictures import KREIN, OTHER, THEIRS, panels, write
from benchmarks.runner import Request, Task

COLUMNS = (
    "n", "dtype", "build_seconds", "kernel_seconds", "ratio", "held_bytes", "formula_bytes", "peak_bytes",
    "peak_over_held", "entries", "formula_entries", "partition_seconds", "ranks_seconds", "bases_seconds",
    "links_seconds", "assemble_seconds",
)  # fmt: skip
SIZES = (10_000, 30_000, 100_000, 250_000, 500_000)
TABLES = {"scaling": COLUMNS}
BLOCKS, RANK, FEATURES = 10, 32, 10


def tasks(request: Request) -> list[Task]:
    return [
        Task({"n": n, "dtype": dtype}, measure, (n, dtype), fresh=True)
        for dtype in ("float32", "float64")
        for n in (SIZES[:2] if request.quick else SIZES)
    ]


def report(rows: list[dict[str, str]], request: Request) -> str:
    lines = [
        f"# Growth in n: {BLOCKS} blocks of rank {RANK}, {FEATURES} features, RBF",
        "",
        "![Seconds of a build, and bytes held and at the peak, over the number of rows](scaling.png)",
        "",
        "| bases | n | build / plain kernel | held / formula | peak / held | entries / formula |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in rows:
        held = float(r["held_bytes"]) / float(r["formula_bytes"])
        entries = float(r["entries"]) / float(r["formula_entries"])
        lines.append(
            f"| {r['dtype']} | {r['n']} | {float(r['ratio']):.2f} | {held:.3f} "
            f"| {float(r['peak_over_held']):.2f} | {entries:.4f} |"
        )
    lines += ["", "| bases | quantity | exponent of n, fitted | of the last step |", "| --- | --- | ---: | ---: |"]
    for dtype in ("float32", "float64"):
        for name in ("build_seconds", "bases_seconds", "kernel_seconds", "held_bytes", "peak_bytes"):
            fitted, last = exponents(rows, dtype, name)
            lines.append(f"| {dtype} | {name} | {fitted:.2f} | {last:.2f} |")
    draw(rows, request.output / "scaling.png")
    return "\n".join(lines) + "\n"


def exponents(rows: list[dict[str, str]], dtype: str, name: str) -> tuple[float, float]:
    """Return the exponent of n that fits all sizes, and that of the last step."""
    x, y = (np.log([float(r[c]) for r in rows if r["dtype"] == dtype]) for c in ("n", name))
    return float(np.polyfit(x, y, 1)[0]), float((y[-1] - y[-2]) / (x[-1] - x[-2]))


def draw(rows: list[dict[str, str]], path: Path) -> None:
    """Time and memory over n, with the exponents of their last steps."""
    figure, axes = panels(2, 10.5, 4.0)
    lines = (
        (("build_seconds", "a build", KREIN), ("kernel_seconds", "its kernel entries alone (scikit-learn)", THEIRS)),
        (("held_bytes", "held", KREIN), ("peak_bytes", "at the peak", OTHER)),
    )
    for ax, named, unit, label in zip(axes, lines, (1.0, 1e6), ("CPU seconds", "MB"), strict=True):
        for (name, title, colour), (dtype, style) in itertools.product(named, (("float64", "o-"), ("float32", "s--"))):
            some = [r for r in rows if r["dtype"] == dtype]
            ax.plot(
                [float(r["n"]) for r in some], [float(r[name]) / unit for r in some], style, color=colour,
                label=f"{title}, {dtype}: n^{exponents(rows, dtype, name)[1]:.2f}",
            )  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel="rows n", ylabel=label)
        ax.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    write(figure, path)


def measure(n: int, dtype: str) -> list[dict[str, Any]]:
    """One row. The build runs twice: first for memory, then under the profiler; the better time counts."""
    import krein
    from krein.datasets import mixture

    X = mixture(n, FEATURES, 20, dtype=dtype, random_state=0).X
    krein.approximate(
        X[:500], krein.RBF(gamma=0.1), n_blocks=2, rank=8, coupling="pairwise", random_state=0
    )  # load all code
    before = resident_bytes()

    def build() -> krein.Approximation:
        return krein.approximate(
            X,
            krein.RBF(gamma=0.1),
            n_blocks=BLOCKS,
            rank=RANK,
            coupling="pairwise",
            landmarks="uniform",
            random_state=0,
        )

    first, a = seconds(build)
    peak = peak_bytes() - before
    F = a.factorization
    landmarks = [min(2 * RANK, len(B)) for B in F.bases]
    entries = sum(len(B) * m for B, m in zip(F.bases, landmarks, strict=True))
    entries += BLOCKS * (BLOCKS - 1) // 2 * (3 * RANK) ** 2
    held, evaluated, width = F.nbytes, a.n_evaluations, np.dtype(dtype).itemsize
    del a, F
    second, a, stages = profiled(build, "approximate")
    del a

    def plain() -> None:
        """As many entries by scikit-learn: all rows against as many landmarks, in strips of 2^22 entries."""
        count = -(-evaluated // n)
        Z, step = X[:count], max(1, 2**22 // count)
        for start in range(0, n, step):
            rbf_kernel(X[start : start + step], Z, gamma=0.1)

    kernel_seconds, _ = seconds(plain, repeat=2)
    best = min(first, second)
    named = ("partition", "ranks", "bases", "links", "assemble")
    return [{
        "n": n, "dtype": dtype, "build_seconds": best, "kernel_seconds": kernel_seconds, "ratio": best / kernel_seconds,
        "held_bytes": held, "formula_bytes": width * n * RANK + 8 * (BLOCKS * RANK) ** 2, "peak_bytes": peak,
        "peak_over_held": peak / held, "entries": evaluated, "formula_entries": entries,
    } | {f"{s}_seconds": stages.get(s, 0.0) for s in named}]  # fmt: skip
