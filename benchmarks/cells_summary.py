"""The table of the 24 cells for people: cells.csv in, Markdown out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.runner import read_csv

# A mean error within FACTOR of the published code's counts as reproduced.
FACTOR = 1.5
ROUNDING = {
    "float32": None,
    "float16": 0.0006,
    "int8": 0.006,
}  # what each storage type may add to the error, in squares


def summarise(rows: list[dict[str, str]], reference: Path, quick: bool) -> str:
    code = {(r["dataset"], r["kernel"]): r for r in read_csv(reference / "published_code.csv")}
    paper = {(r["dataset"], r["kernel"]): r for r in read_csv(reference / "errors.csv")}
    cells = list(dict.fromkeys((r["dataset"], r["kernel"]) for r in rows))
    seeds = len({r["seed"] for r in rows})
    lines = [
        "# The paper's 24 cells, pairwise coupling",
        "",
        f"Relative Frobenius errors, exact, mean of {seeds} seed(s) with the worst one; beside them the authors' "
        "published code (`paper/tables/published_code.csv`) and the paper's own table. M2 adds |λmin| (x1) "
        "or, as the paper's experiments did, 2|λmin| (x2). Memory is that of the factorization in float64, in % of "
        "K's.",
        "",
        *(
            ["**A quick run: the first 2000 rows of one data set, so nothing here compares with the references.**", ""]
            * quick
        ),
        "| data | kernel | M1 mean (worst) | code M1 | ratio | paper M1 | λmin (code) | negative (code) | M2 x1 (code) "
        "| M2 x2 (code) | paper M2 | memory % |",
        "| --- | --- | --- | ---: | ---: | ---: | --- | --- | --- | --- | ---: | ---: |",
    ]
    ratios, worst = {}, {}
    for cell in cells:
        mine = [r for r in rows if (r["dataset"], r["kernel"]) == cell and r["dtype"] == "float64"]
        m = {c: np.array([float(r[c]) for r in mine]) for c in mine[0] if c not in ("dataset", "kernel", "dtype")}
        ref, told = code[cell], paper[cell]
        ratios[cell] = m["m1_error"].mean() / float(ref["m1_error"])
        worst[cell] = m["m1_error"].max() / float(ref["m1_error"])
        code_low, code_negative = float(ref["smallest_eigenvalue"]), float(ref["n_negative"])
        lines.append(
            f"| {cell[0]} | {cell[1]} | {m['m1_error'].mean():.3g} ({m['m1_error'].max():.3g}) "
            f"| {float(ref['m1_error']):.3g} "
            f"| {ratios[cell]:.2f} | {told['m1']} | {m['smallest_eigenvalue'].mean():.3g} "
            f"({code_low:.3g}) | {m['n_negative'].mean():.0f} ({code_negative:.0f}) "
            f"| {m['m2_error_once'].mean():.3g} ({float(ref['m2_error_once']):.3g}) | {m['m2_error_twice'].mean():.3g} "
            f"({float(ref['m2_error_twice']):.3g}) | {told['m2']} | {m['memory_percent'].mean():.2f} |"
        )
    values = np.array(list(ratios.values()))
    outside = {c: q for c, q in ratios.items() if not 1 / FACTOR <= q <= FACTOR}
    lines += [
        "",
        f"- Mean M1 at most {FACTOR} times the code's: {(values <= FACTOR).sum()} of {len(cells)} cells; within that "
        f"factor on both sides: {len(cells) - len(outside)}. Geometric mean of the ratios: "
        f"{np.exp(np.log(values).mean()):.2f}.",
        f"- Worst single seed: {max(worst.values()):.2f} times the code's mean, "
        f"{' '.join(max(worst, key=worst.__getitem__))}.",
    ]
    for c, q in outside.items():
        lines.append(f"- {'Above' if q > 1 else 'Below'}: {c[0]} {c[1]}, ratio {q:.3g}.")
    lines += ["", "What is known of the causes is in docs/benchmarks.md."]
    return "\n".join([*lines, *storage_lines(rows, cells)]) + "\n"


def storage_lines(rows: list[dict[str, str]], cells: list[tuple[str, str]]) -> list[str]:
    """What fewer bytes cost: the largest sqrt(error² - error64²) of each storage type, seed 0."""
    lines = [
        "",
        "| bases stored as | worst added error | allowed | cell | memory against float64 |",
        "| --- | ---: | ---: | --- | ---: |",
    ]
    first = {(r["dataset"], r["kernel"], r["dtype"]): r for r in rows if r["seed"] == "0"}
    for dtype, allowed in ROUNDING.items():
        added, memory = {}, []
        for c in cells:
            full, small = first[(*c, "float64")], first[(*c, dtype)]
            excess = float(small["m1_error"]) ** 2 - float(full["m1_error"]) ** 2
            added[c] = np.sqrt(max(0.0, excess))
            memory.append(float(small["memory_percent"]) / float(full["memory_percent"]))
        top = max(added, key=added.__getitem__)
        lines.append(f"| {dtype} | {added[top]:.2g} | {allowed or ''} | {' '.join(top)} | {np.mean(memory):.2f} |")
    return lines
