"""The shared coupling in the paper's 24 cells, at its own c and k, beside the published code; and on rows it never saw.

shared.csv: exact errors (K computed once per cell, compared tile by tile) and the ends of the spectrum, 5 seeds.
shared_new.csv: 90 % of the rows are approximated; K(test, train)'s error by `kernel_rows` beside K(train, train)'s.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from bench_cells import prepared, wanted_cells
from measure import seconds
from tqdm import tqdm

import krein
from krein.datasets import load
from krein.preprocessing import paper_preprocessing
from paper.comparing import difference
from paper.protocol import Cell
from paper.records import Table

COLUMNS = (
    "dataset", "kernel", "n", "n_blocks", "rank", "seed", "psd", "error", "reference", "ratio", "smallest_eigenvalue",
    "largest_eigenvalue", "n_negative", "nbytes", "n_evaluations", "seconds", "warnings",
)  # fmt: skip
NEW = ("dataset", "kernel", "n_train", "n_test", "train_error", "test_error", "ratio", "warnings")
WORST, MEAN, LEAST = 0.65, 0.20, 0.01  # the ratio in every cell, in the geometric mean, and what it counts at least
NEGATIVE = 1e-10  # of the largest eigenvalue: below minus this a psd kernel's approximation is not psd
STRIP = 1000  # new rows compared at a time
EXTENDED, MATTERS = 1.5, 1e-3  # K(test, train)'s error over K(train, train)'s, where that is above


def run(out: Path, command: str, quick: bool, force: bool) -> None:
    table = Table(out / "shared.csv", COLUMNS, command, force)
    new = Table(out / "shared_new.csv", NEW, command, force)
    seeds = range(1 if quick else 5)
    for cell in tqdm(wanted_cells(quick), desc="cells"):
        key = {"dataset": cell.dataset, "kernel": cell.kernel}
        how = {"n_blocks": cell.n_blocks, "rank": cell.rank}
        todo = [s for s in seeds if not table.has(**key, seed=s)]
        if todo:
            table.add(key | how | found for found in measured(prepared(cell, quick), cell, how, todo))
        if not new.has(**key):
            new.add([key | out_of_sample(load(cell.dataset).X[: 2000 if quick else None], cell.similarity, how)])
    (out / "shared.md").write_text(summarise(table, new, quick), encoding="utf-8")


def build(X: Any, kernel: Any, seed: int, **how: Any) -> tuple[float, krein.Approximation, str]:
    """Seconds, the approximation, and what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        taken, a = seconds(lambda: krein.approximate(X, kernel, random_state=seed, **how))
    return taken, a, "; ".join(sorted({str(w.message) for w in caught}))


def measured(X: Any, cell: Cell, how: dict[str, int], seeds: list[int]) -> Iterator[dict[str, Any]]:
    K, reference = cell.similarity(X), float(cell.published_code["m1_error"])
    for seed in seeds:
        taken, a, said = build(X, cell.similarity, seed, dtype="float64", **how)
        F = a.factorization
        error, values = difference(K, F).relative(), F.eigenvalues()
        yield {
            "n": len(K), "seed": seed, "psd": a.kernel.traits.psd, "error": error, "reference": reference,
            "ratio": error / reference, "smallest_eigenvalue": values[0], "largest_eigenvalue": values[-1],
            "n_negative": F.n_negative(), "nbytes": F.nbytes, "n_evaluations": a.n_evaluations, "seconds": taken,
            "warnings": said,
        }  # fmt: skip


def out_of_sample(X: Any, kernel: krein.kernels.Kernel, how: dict[str, int]) -> dict[str, Any]:
    """One split, the scaling learnt from the training rows."""
    mixed = np.random.default_rng(0).permutation(len(X))
    test, train = np.split(mixed, [len(X) // 10])
    scaling = paper_preprocessing(kernel).fit(X[train])
    rows, others = scaling.transform(X[train]), scaling.transform(X[test])
    _, a, said = build(rows, kernel, 0, dtype="float64", **how)
    inside = difference(a.kernel(rows), a.factorization).relative()
    gap = norm = 0.0
    for start in range(0, len(others), STRIP):
        part = others[start : start + STRIP]
        exact = a.kernel(part, rows)
        gap += float(((a.kernel_rows(part) - exact) ** 2).sum())
        norm += float((exact**2).sum())
    outside = float(np.sqrt(gap / norm))
    return {
        "n_train": len(rows), "n_test": len(others), "train_error": inside, "test_error": outside,
        "ratio": outside / inside, "warnings": said,
    }  # fmt: skip


def summarise(table: Table, new: Table, quick: bool) -> str:
    cells = list(dict.fromkeys((r["dataset"], r["kernel"]) for r in table.rows))
    seeds = len({r["seed"] for r in table.rows})
    lines = [
        "# The shared coupling in the paper's 24 cells, at the paper's c and k",
        "",
        f"Exact relative Frobenius errors in float64, mean of {seeds} seed(s) with the worst one, over the published",
        "code's (`experiments/tables/published_code.csv`). psd: what the kernel says of itself. Then one 90/10",
        "split: the error of K(test, train) over that of K(train, train).",
        "",
        *(["**A quick run: the first 2000 rows of one data set, nothing here compares.**", ""] * quick),
        "| data | kernel | error mean (worst) | published code | ratio | psd | lambda_min / lambda_max | test / train "
        "| train error |",
        "| --- | --- | --- | ---: | ---: | --- | ---: | ---: | ---: |",
    ]
    ratios, negative, extended = {}, [], []
    for data, kernel in cells:
        mine = [r for r in table.rows if (r["dataset"], r["kernel"]) == (data, kernel)]
        (split,) = (r for r in new.rows if (r["dataset"], r["kernel"]) == (data, kernel))
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
        f"- Builds that warned: {sum(bool(r['warnings']) for r in table.rows)} of {len(table.rows)}.",
    ]
    return "\n".join(lines) + "\n"


def _verdict(failing: list[str]) -> str:
    return "none fails" if not failing else f"{len(failing)} fail: {', '.join(failing)}"
