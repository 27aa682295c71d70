"""Figures of docs/paper.md, recomputed from the committed tables: reports are made anew, and the page quotes them."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.runner import read_csv
from paper.protocol import Request

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "paper"
PAGE = " ".join((ROOT / "docs" / "paper.md").read_text(encoding="utf-8").split())
N = r"([-+\d.e]+)"


@cache
def report(name: str) -> str:
    """The report of a committed table, made anew."""
    rows = read_csv(RESULTS / f"{name}.csv")
    return str(import_module(f"paper.{name}").report(rows, Request(RESULTS)))


def rounded(value: str, digits: int) -> str:
    return f"{float(value):.{digits}f}"


# (experiment, pattern of the report with figures in brackets, what the page says with these figures)
QUOTED = [
    ("eigenvalues", rf"theirs, drop 0 {N} of {N} \(", "without dropped blocks in {0} of {1} curves"),
    ("eigenvalues", rf"theirs, drop 0.1 {N} of {N} \({N} at all", "of 0.1 in {0} of {1} ({2} fall at all"),
    ("eigenvalues", rf"raise the error.*?theirs, drop 0 {N} of {N} \(", "without drop in {0} and"),
    ("eigenvalues", rf"Fig. 3 b.*?theirs, drop 0 {N} of {N} \(", "and {0} of {1} curves"),
    ("eigenvalues", rf"raise the error.*?theirs, drop 0.1 {N} of {N} \(", "with it in {0} and"),
    ("eigenvalues", rf"Fig. 3 b.*?theirs, drop 0.1 {N} of", "and {0} |"),
    ("eigenvalues", rf"grows with the rank.*?drop 0.1: positive in {N} of {N} curves, median {N},",
     "rank correlation positive in {0} of {1} curves, median {2}"),
    ("eigenvalues", rf"gamma <= 1, drop 0.1: in {N} of {N},", "in {0} of {1} settings with drop 0.1"),
    ("eigenvalues", rf"gamma <= 1, drop 0: in {N} of", "Without drop still in {0}, but"),
    ("eigenvalues", rf"gamma 10: effective rank {N} to {N} % of n", "{0} to {1} % of n at gamma 10"),
    ("eigenvalues", rf"At drop 0 the error is below theirs in {N} of {N} settings, {N} times",
     "in any of the {1} settings, and without drop a lower error in {0} of them, {2} times"),
    ("costs", rf"on the n x n matrix: n\^{N} and n\^{N} up to {N} rows", "and n^{1} up to {2} rows"),
    ("costs", rf"at a fixed rank: n\^{N};", "n^{0} in time at a fixed rank"),
    ("costs", rf"2 √n steps misses .*? in {N} of {N} runs", "in {0} of {1} runs"),
    ("bounds", rf"before the shift in {N} of {N}, after it in {N} of", "held in {0} of {1} runs"),
    ("bounds", rf"M1's bound is above that in {N} of {N} cells", "in all {0} cells"),
    ("bounds", rf"the root of M2² - M1²\): {N} \(", "that term is tight: {0} times what the shift adds"),
    ("bounds", rf"K itself has a negative part on {N} of {N}", "K itself is so in {0} of the {1} cells"),
    ("errors", rf"M1 and M2 both meet .*? in {N} of {N} cells at the tabled c and k, in {N} at the rule's",
     "both are within it in {2} of {1}"),
    ("errors", rf'worsens in some cases": in {N} of {N}, by a factor of {N}', "in all {0}, by a factor of"),
    ("errors", rf"indefinite in {N} of {N} cells", "M1 has negative eigenvalues in {0} of {1} cells"),
    ("errors", rf"Ours, same c and k: .*? cells \({N} with errors",
     "{0} times below it in the geometric mean of the 24"),
    ("errors", rf"bytes of the tabled c and k: .*? cells \({N} with errors",
     "the bytes of the tabled c and k {0} times"),
    ("errors", rf"agree within a factor of {N} in {N} of {N} cells",
     "agree within a factor of {0} in {1} of {2} cells"),
    ("classification", rf"M0 reproduced.*? within 1 point of the paper in {N} of {N} cells .*?largest difference {N}\.",
     "within 1 point in {0} of {1} cells, at most {2} apart"),
    ("classification", rf"M2 reproduced.*?deviations in {N} of {N} cells",
     "within the paper's mean ± 2 sd in {0} of {1} cells"),
    ("classification", rf"not convex\*\* in {N} of {N} folds", "not convex in all {0} folds"),
    ("classification", rf"100,000 iterations in {N} folds", "runs into 100,000 iterations in {0}"),
    ("classification", rf"M1 is better than M2 in {N} of {N} cells", "M1 is better than M2 in {0} of {1} cells"),
    ("classification", rf"against its M0: mean {N} \({N} without artificial1 tl1\)",
     "loses {0} points on average over all 24 cells, {1} without artificial1 TL1"),
    ("classification", rf"the factorization counted\*\*: above the paper's M2 in {N} of {N} cells",
     "above the paper's M2 in {0} cells"),
    ("classification", rf"the factorization counted\*\*.*?at most 1 point below M0 in {N} of {N}; mean loss {N} points",
     "the mean loss against M0 is {2} points, and at most 1 point in {0} of {1} cells"),
    ("claims", rf"is that of equal ranks in {N}, by singular values in {N}, by size in {N}\.",
     "by singular values in {1} of 12 cells, of equal ranks in {0}, by size in {2}"),
    ("claims", rf"Shift is better than clip in {N} of {N} cells", "better after a shift in {0} of {1} cells"),
    ("claims", rf"Both counts are the same in {N} of {N} cells; they differ by at most {N}\.",
     "below rounding in {0} of {1} cells, and differs by at most {2}"),
    ("claims", rf"The bounds hold in {N} of {N} runs, {N} times", "hold in {0} of {1} runs, {2} times above"),
    ("classification",
     rf"in {N} more the factorization chosen .*? mean loss against M0 is {N} points .*?1 point in {N}\.",
     "in float32 in {0} cells, none of gesture's; over these the mean loss is {1} points, at most 1 point in {2}"),
    ("nested", rf"{N} of {N} pieces are finished", "{0} of {1} pieces are finished"),
    ("features", rf"Fourier features against MEKA: larger error in {N} of {N} cases \({N} times",
     "their error is larger in {0} of {1} cases, {2} and"),
    ("features", rf"Fastfood against MEKA: larger error in .*? \({N} times .*? lower accuracy in {N} ",
     "and {0} times in the geometric mean"),
    ("features", rf"ours against MEKA: larger error in 0 of {N} cases .*?lower accuracy in {N} \(higher in {N}; \+{N}",
     "a higher accuracy than MEKA in {2}, lower in {1} ({3}"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "pattern", "said"), QUOTED, ids=[f"{n}: {s[:40]}" for n, _, s in QUOTED])
def test_the_page_quotes_what_the_tables_give(name: str, pattern: str, said: str) -> None:
    found = re.search(pattern, report(name).replace("\n", " "))
    assert found, f"the report of {name} has no {pattern}"
    figures = [g.rstrip(".") for g in found.groups()]
    wanted = [said.format(*figures), said.format(*(g.rstrip("0").rstrip(".") if "." in g else g for g in figures))]
    assert any(w in PAGE for w in wanted), f"the page does not say {wanted[0]!r}"


def test_the_committed_reports_are_those_of_the_committed_tables() -> None:
    for path in RESULTS.glob("*.md"):
        if path.stem != "figures":  # which is made of files
            text = path.read_text(encoding="utf-8")
            lines = [line for line in report(path.stem).splitlines() if line.strip()]
            missing = [line for line in lines if line not in text]
            assert not missing, f"{path.name} lacks {missing[0][:100]}; make it anew with --report-only"
