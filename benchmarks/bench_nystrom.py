"""Against Nystroem in the same bytes: scikit-learn's, and one with randomly pivoted Cholesky landmarks.

The paper's 24 cells at its c and k (exact errors), and 20,000 rows of covtype, kin40k and protein with three bandwidths
each, 20 blocks of rank 32 (2000 rows of K). Nystroem gets m columns, n m + m² numbers being what our factorization
holds; "auto" is krein left to choose in those bytes. nystrom.csv: one row per case, method and seed.
nystrom_memory.csv: the larger sets with the medium bandwidth in MEMORY, parts of the bytes of the whole matrix.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem

import krein
from benchmarks.bench_cells import prepared, wanted_cells
from benchmarks.measure import seconds
from benchmarks.pictures import KREIN, OTHER, THEIRS, panels, write
from benchmarks.runner import Request, Task
from krein.datasets import load
from krein.kernels import Evaluator
from paper.protocol import Cell

COLUMNS = (
    "case", "kernel", "n", "method", "seed", "n_blocks", "columns", "dtype", "nbytes", "error", "seconds", "warnings",
)  # fmt: skip
MEMORY = (0.0005, 0.001, 0.002, 0.005, 0.01)
TABLES = {"nystrom": COLUMNS, "nystrom_memory": ("case", "share", "method", "nbytes", "columns", "error", "seconds")}
LARGE = ("covtype", "kin40k", "protein")
# The median similarity of a wide, a medium and a narrow kernel.
MEDIANS = (0.9, 0.5, 0.1)
# STRIP rows of K are compared at a time.
STRIP = 1000
# The aims: a median ratio of MEDIAN to the better Nystroem, and a smaller error wherever it exceeds MATTERS.
MEDIAN, MATTERS = 0.6, 1e-6
# The pseudo-inverse drops eigenvalues below CUTOFF times the largest.
CUTOFF = 1e-10
Rows = Callable[[np.ndarray], np.ndarray]  # rows of an approximation


def tasks(request: Request) -> list[Task]:
    quick = request.quick
    found = [
        Task({"case": cell.dataset, "kernel": cell.kernel}, of_the_paper, (cell, quick)) for cell in wanted_cells(quick)
    ]
    for name in () if quick else LARGE:
        found += [Task({"case": name, "kernel": f"rbf, median {m}"}, of_bandwidth, (name, m)) for m in MEDIANS]
        found += [Task({"case": name, "share": s}, in_memory, (name, s), table="nystrom_memory") for s in MEMORY]
    return found


def of_the_paper(cell: Cell, quick: bool) -> Iterator[dict[str, Any]]:
    """One cell of the paper, with exact errors."""
    X, how = prepared(cell, quick), {"n_blocks": cell.n_blocks, "rank": cell.rank}
    return compared(X, cell.similarity, how, len(X), range(1 if quick else 3))


def of_bandwidth(name: str, median: float) -> Iterator[dict[str, Any]]:
    return compared(*large(name, median), {"n_blocks": 20, "rank": 32}, 2000, range(3))


def large(name: str, median: float) -> tuple[np.ndarray, krein.RBF]:
    """20,000 standardised rows of a larger data set, with a Gaussian kernel of this median similarity."""
    X = np.asarray(load(name).X, dtype=np.float64)
    X = X[np.random.default_rng(0).choice(len(X), 20_000, replace=False)]
    X = (X - X.mean(0)) / np.where(X.std(0) > 0, X.std(0), 1.0)
    return X, krein.RBF(gamma=-np.log(median) / _median_square(X))


def in_memory(name: str, share: float) -> Iterator[dict[str, Any]]:
    """What each method makes of this part of the bytes of the whole matrix."""
    X, kernel = large(name, MEDIANS[1])
    evaluator, limit = Evaluator(kernel), int(share * 8 * len(X) ** 2)
    error = compare_rows(X, evaluator, 2000)
    taken, a, _ = _krein(X, kernel, 0, max_memory=limit)
    f = a.factorization
    yield {"method": "krein, auto", "nbytes": f.nbytes, "columns": f.rank, "error": error(f.rows), "seconds": taken}
    m = columns_in(limit, len(X))
    for method, make in (("scikit-learn", scikit_learn), ("rpcholesky", rpcholesky)):
        taken, rows = seconds(lambda make=make: make(X, evaluator, m, 0))  # type: ignore[misc]
        nbytes = 8 * (len(X) * m + m * m)
        yield {"method": method, "nbytes": nbytes, "columns": m, "error": error(rows), "seconds": taken}


def columns_in(nbytes: int, n: int) -> int:
    """How many columns Nystroem may have: n m + m² numbers."""
    return int((np.sqrt(float(n) ** 2 + nbytes / 2) - n) / 2)


def _median_square(X: np.ndarray) -> float:
    """The median squared distance."""
    A, B = X[np.random.default_rng(1).choice(len(X), (2, 2000))]
    return float(np.median(np.maximum((A**2).sum(1)[:, None] + (B**2).sum(1) - 2.0 * A @ B.T, 0.0)))


def compare_rows(X: Any, evaluator: Evaluator, looked: int) -> Callable[[Rows], float]:
    """Return the function that measures the relative error of an approximation on as many rows of K."""
    sample = np.sort(np.random.default_rng(2).choice(len(X), looked, replace=False))
    exact = evaluator.block(X[sample], X)
    norm = float(np.linalg.norm(exact))

    def error(rows: Rows) -> float:
        squared = 0.0
        for start in range(0, looked, STRIP):
            squared += float(((rows(sample[start : start + STRIP]) - exact[start : start + STRIP]) ** 2).sum())
        return float(np.sqrt(squared)) / norm

    return error


def compared(X: Any, kernel: Any, how: dict[str, int], looked: int, seeds: range) -> Iterator[dict[str, Any]]:
    n, evaluator = len(X), Evaluator(kernel)
    error, limit = compare_rows(X, evaluator, looked), 0
    for seed in seeds:
        taken, a, said = _krein(X, kernel, seed, dtype="float64", **how)
        limit = max(limit, a.factorization.nbytes)
        yield _row("krein", seed, a, error(a.factorization.rows), taken, said)
    taken, a, said = _krein(X, kernel, 0, max_memory=limit)
    yield _row("krein, auto", 0, a, error(a.factorization.rows), taken, said)
    m = columns_in(limit, n)
    for seed in seeds:
        for method, make in (("scikit-learn", scikit_learn), ("rpcholesky", rpcholesky)):
            taken, rows = seconds(lambda make=make, seed=seed: make(X, evaluator, m, seed))  # type: ignore[misc]
            yield {
                "n": n, "method": method, "seed": seed, "columns": m, "nbytes": 8 * (n * m + m * m),
                "error": error(rows), "seconds": taken,
            }  # fmt: skip


def _krein(X: Any, kernel: Any, seed: int, **how: Any) -> tuple[float, krein.Approximation, str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        taken, a = seconds(lambda: krein.approximate(X, kernel, random_state=seed, **how))
    return taken, a, "; ".join(sorted({str(w.message) for w in caught}))


def _row(method: str, seed: int, a: krein.Approximation, error: float, taken: float, said: str) -> dict[str, Any]:
    f = a.factorization
    return {
        "n": f.shape[0], "method": method, "seed": seed, "n_blocks": f.n_blocks, "columns": f.rank, "dtype": f.dtype,
        "nbytes": f.nbytes, "error": error, "seconds": taken, "warnings": said,
    }  # fmt: skip


def scikit_learn(X: Any, evaluator: Evaluator, m: int, seed: int) -> Rows:
    """scikit-learn's landmarks and normalisation, fitted on row numbers; its transform, with our kernel."""
    numbers = np.arange(len(X))[:, None]

    def similarity(x: Any, y: Any) -> float:
        return float(evaluator.block(X[x.astype(int)], X[y.astype(int)])[0, 0])

    fitted = Nystroem(kernel=similarity, n_components=m, random_state=seed).fit(numbers)
    features = evaluator.block(X, X[fitted.component_indices_]) @ fitted.normalization_.T
    return lambda rows: features[rows] @ features.T


def rpcholesky(X: Any, evaluator: Evaluator, m: int, seed: int) -> Rows:
    """Each landmark drawn by what the earlier ones left of k(x, x); then C W⁺ Cᵀ."""
    rng, n = np.random.default_rng(seed), len(X)
    left = evaluator.diag(X).astype(np.float64)
    factor, columns, chosen = np.zeros((n, m)), np.zeros((n, m)), []
    for k in range(m):
        left = np.maximum(left, 0.0)
        left[chosen] = 0.0
        total = float(left.sum())
        free = np.setdiff1d(np.arange(n), chosen) if total == 0.0 else None
        pivot = int(rng.choice(n, p=left / total) if free is None else rng.choice(free))
        columns[:, k] = evaluator.block(X, X[pivot : pivot + 1])[:, 0]
        rest = columns[:, k] - factor[:, :k] @ factor[pivot, :k]
        if rest[pivot] > 0.0:
            factor[:, k] = rest / np.sqrt(rest[pivot])
        left = left - factor[:, k] ** 2
        chosen.append(pivot)
    inverse = np.linalg.pinv(columns[chosen], rcond=CUTOFF, hermitian=True)
    return lambda rows: columns[rows] @ inverse @ columns.T


def report(rows: list[dict[str, str]], memory: list[dict[str, str]], request: Request) -> str:
    lines = [
        "# Against Nystroem in the same bytes",
        "",
        "Relative Frobenius errors, means over seeds: krein at the paper's c and k (20 blocks of rank 32 for the large",
        "sets) in float64, krein left to choose in those bytes, scikit-learn's Nystroem, and one with randomly pivoted",
        "Cholesky landmarks. The ratios are to the better of the two.",
        "",
        *(["**A quick run: the first 2000 rows of one data set.**", ""] * request.quick),
        "| data | kernel | krein | auto | scikit-learn | rpcholesky | columns | ratio | ratio, auto |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    ratios: dict[str, list[float]] = {"krein": [], "krein, auto": []}
    failing: dict[str, list[str]] = {"krein": [], "krein, auto": []}
    for case, kernel in dict.fromkeys((r["case"], r["kernel"]) for r in rows):
        mine = [r for r in rows if (r["case"], r["kernel"]) == (case, kernel)]
        errors = {
            method: float(np.mean([float(r["error"]) for r in mine if r["method"] == method]))
            for method in ("krein", "krein, auto", "scikit-learn", "rpcholesky")
        }
        peer = min(errors["scikit-learn"], errors["rpcholesky"])
        columns = next(r["columns"] for r in mine if r["method"] == "rpcholesky")
        for method, found in ratios.items():
            found.append(errors[method] / peer)
            if errors[method] > MATTERS and found[-1] >= 1.0:
                failing[method].append(f"{case} {kernel}")
        told = " | ".join(f"{e:.3g}" for e in errors.values())
        last = " | ".join(f"{found[-1]:.3f}" for found in ratios.values())
        lines.append(f"| {case} | {kernel} | {told} | {columns} | {last} |")
    lines.append("")
    for method, found in ratios.items():
        bad = failing[method]
        lines.append(
            f"- {method}: median ratio {np.median(found):.3f} (wanted: at most {MEDIAN}); not better, with an "
            f"error above {MATTERS:g}: {', '.join(bad) if bad else 'none'}."
        )
    if memory:
        lines += against_memory(memory)
        draw(memory, request.output / "nystrom.png")
    return "\n".join(lines) + "\n"


def against_memory(memory: list[dict[str, str]]) -> list[str]:
    lines = [
        "",
        f"## Error against memory, median similarity {MEDIANS[1]}",
        "",
        "krein may hold its bases in float32, float16 or int8; Nystroem, as scikit-learn's, in float64.",
        "",
        "![Relative error over the memory that is held, krein beside Nystroem](nystrom.png)",
        "",
        "| data | % of the matrix | krein | scikit-learn | rpcholesky |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for case, share in dict.fromkeys((r["case"], r["share"]) for r in memory):
        errors = {r["method"]: float(r["error"]) for r in memory if (r["case"], r["share"]) == (case, share)}
        told = " | ".join(f"{errors[method]:.3g}" for method in ("krein, auto", "scikit-learn", "rpcholesky"))
        lines.append(f"| {case} | {100 * float(share):g} | {told} |")
    return lines


def draw(memory: list[dict[str, str]], path: Path) -> None:
    """Error against memory on the larger sets."""
    cases = list(dict.fromkeys(r["case"] for r in memory))
    from matplotlib.ticker import NullFormatter

    figure, axes = panels(len(cases), 11.0, 4.0)
    looks = {
        "scikit-learn": (THEIRS, "s--", "Nystroem, uniform landmarks"),
        "rpcholesky": (OTHER, "^--", "Nystroem, pivoted Cholesky landmarks"),
        "krein, auto": (KREIN, "o-", "krein, left to choose"),
    }
    for ax, case in zip(axes, cases, strict=True):
        for method, (colour, style, title) in looks.items():
            some = [r for r in memory if (r["case"], r["method"]) == (case, method)]
            ax.plot(
                [float(r["nbytes"]) / 1e6 for r in some], [float(r["error"]) for r in some], style, color=colour,
                label=title,
            )  # fmt: skip
        ax.set(xscale="log", yscale="log", xlabel="memory held, MB", title=f"{case}, 20,000 rows")
        ax.set_xticks((2, 5, 10, 20), labels=("2", "5", "10", "20"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    axes[0].set_ylabel("relative error")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    write(figure, path)
