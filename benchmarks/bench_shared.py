"""The shared coupling in the paper's 24 cells, at its own c and k, beside the published code; and on rows it never saw.

shared.csv: exact errors (K computed once per cell, compared tile by tile) and the ends of the spectrum, 5 seeds.
shared_new.csv: 90 % of the rows are approximated; K(test, train)'s error by `kernel_rows` beside K(train, train)'s.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import krein
from benchmarks.bench_cells import matrix, prepared, wanted_cells
from benchmarks.measure import seconds
from benchmarks.runner import Request, Task
from krein.datasets import load
from krein.preprocessing import paper_preprocessing
from paper.comparing import difference
from paper.protocol import Cell

COLUMNS = (
    "dataset", "kernel", "n", "n_blocks", "rank", "seed", "psd", "error", "reference", "ratio", "smallest_eigenvalue",
    "largest_eigenvalue", "n_negative", "nbytes", "n_evaluations", "seconds", "warnings",
)  # fmt: skip
NEW = ("dataset", "kernel", "n_train", "n_test", "train_error", "test_error", "ratio", "warnings")
TABLES = {"shared": COLUMNS, "shared_new": NEW}
# The aims: a ratio of at most WORST in every cell and MEAN in the geometric mean, where each counts as LEAST at least.
WORST, MEAN, LEAST = 0.65, 0.20, 0.01
# An eigenvalue below -NEGATIVE times the largest is negative beyond rounding.
NEGATIVE = 1e-10
# STRIP new rows are compared at a time.
STRIP = 1000
# The error of new rows is at most EXTENDED times the training error, where that is above MATTERS.
EXTENDED, MATTERS = 1.5, 1e-3


def tasks(request: Request) -> list[Task]:
    found = []
    for cell in wanted_cells(request.quick):
        key = {"dataset": cell.dataset, "kernel": cell.kernel}
        found += [Task(key | {"seed": s}, measured, (cell, s, request.quick)) for s in range(1 if request.quick else 5)]
        found.append(Task(key, out_of_sample, (cell, request.quick), table="shared_new"))
    return found


def build(X: Any, kernel: Any, seed: int, **how: Any) -> tuple[float, krein.Approximation, str]:
    """Seconds, the approximation, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        taken, a = seconds(lambda: krein.approximate(X, kernel, random_state=seed, **how))
    return taken, a, "; ".join(sorted({str(w.message) for w in caught}))


def measured(cell: Cell, seed: int, quick: bool) -> list[dict[str, Any]]:
    K, reference = matrix(cell, quick), float(cell.published_code["m1_error"])
    how = {"n_blocks": cell.n_blocks, "rank": cell.rank}
    taken, a, said = build(prepared(cell, quick), cell.similarity, seed, dtype="float64", **how)
    F = a.factorization
    error, values = difference(K, F).relative(), F.eigenvalues()
    return [how | {
        "n": len(K), "psd": a.kernel.traits.psd, "error": error, "reference": reference, "ratio": error / reference,
        "smallest_eigenvalue": values[0], "largest_eigenvalue": values[-1], "n_negative": F.n_negative(),
        "nbytes": F.nbytes, "n_evaluations": a.n_evaluations, "seconds": taken, "warnings": said,
    }]  # fmt: skip


def out_of_sample(cell: Cell, quick: bool) -> list[dict[str, Any]]:
    """One split; the scaling is learnt from the training rows."""
    X, kernel = load(cell.dataset).X[: 2000 if quick else None], cell.similarity
    mixed = np.random.default_rng(0).permutation(len(X))
    test, train = np.split(mixed, [len(X) // 10])
    scaling = paper_preprocessing(kernel).fit(X[train])
    rows, others = scaling.transform(X[train]), scaling.transform(X[test])
    _, a, said = build(rows, kernel, 0, dtype="float64", n_blocks=cell.n_blocks, rank=cell.rank)
    inside = difference(a.kernel(rows), a.factorization).relative()
    gap = norm = 0.0
    for start in range(0, len(others), STRIP):
        part = others[start : start + STRIP]
        exact = a.kernel(part, rows)
        gap += float(((a.kernel_rows(part) - exact) ** 2).sum())
        norm += float((exact**2).sum())
    outside = float(np.sqrt(gap / norm))
    return [{
        "n_train": len(rows), "n_test": len(others), "train_error": inside, "test_error": outside,
        "ratio": outside / inside, "warnings": said,
    }]  # fmt: skip


def report(rows: list[dict[str, str]], new: list[dict[str, str]], request: Request) -> str:
    cells = list(dict.fromkeys((r["dataset"], r["kernel"]) for r in rows))
    seeds = len({r["seed"] for r in rows})
    lines = [
        "# The shared coupling in the paper's 24 cells, at the paper's c and k",
        "",
        f"Exact relative Frobenius errors in float64, mean of {seeds} seed(s) with the worst one, over the published",
        "code's (`paper/tables/published_code.csv`). psd: what the kernel says of itself. Then one 90/10",
        "split: the error of K(test, train) over that of K(train, train).",
        "",
        *(["**A quick run: the first 2000 rows of one data set, nothing here compares.**", ""] * request.quick),
        "| data | kernel | error mean (worst) | published code | ratio | psd | lambda_min / lambda_max | test / train "
        "| train error |",
        "| --- | --- | --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    ratios, negative, extended = {}, [], []
    for data, kernel in cells:
        mine = [r for r in rows if (r["dataset"], r["kernel"]) == (data, kernel)]
        (split,) = (r for r in new if (r["dataset"], r["kernel"]) == (data, kernel))
        errors = np.array([float(r["error"]) for r in mine])
        ratios[data, kernel] = float(np.mean([float(r["ratio"]) for r in mine]))
        low = min(float(r["smallest_eigenvalue"]) / float(r["largest_eigenvalue"]) for r in mine)
        if mine[0]["psd"] == "True" and low < -NEGATIVE:
            negative.append(f"{data} {kernel}")
        if float(split["train_error"]) > MATTERS and float(split["ratio"]) > EXTENDED:
            extended.append(f"{data} {kernel}")
        lines.append(
            f"| {data} | {kernel} | {errors.mean():.3g} ({errors.max():.3g}) | {float(mine[0]['reference']):.3g} "
            f"| {ratios[data, kernel]:.3f} | {mine[0]['psd']} | {low:.1e} | {float(split['ratio']):.2f} "
            f"| {float(split['train_error']):.3g} |"
        )
    mean = float(np.exp(np.log(np.maximum(list(ratios.values()), LEAST)).mean()))
    above = [" ".join(c) for c, q in ratios.items() if q > WORST]
    lines += [
        "",
        f"- Ratio at most {WORST} in every cell: {_verdict(above)}; largest {max(ratios.values()):.3f}.",
        f"- Geometric mean of the ratios, each counted as {LEAST} at least: {mean:.4f} (wanted: at most {MEAN}).",
        f"- psd kernels with an eigenvalue below -{NEGATIVE:g} of the largest: {_verdict(negative)}.",
        f"- K(test, train) more than {EXTENDED} times worse where the error exceeds {MATTERS:g}: {_verdict(extended)}.",
        f"- Builds that warned: {sum(bool(r['warnings']) for r in rows)} of {len(rows)}.",
    ]
    return "\n".join(lines) + "\n"


def _verdict(failing: list[str]) -> str:
    return "none fails" if not failing else f"{len(failing)} fail: {', '.join(failing)}"
