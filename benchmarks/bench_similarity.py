"""Similarities without vectors: strings, given matrices, many strings, a matrix larger than memory.

Peptides (`similarity_peptides`), four indefinite matrices (`similarity_matrices`), growth in n and a 40,000 x 40,000
file (`similarity_scale`), and how often the intervals of `krein.inspect` hold (`similarity_coverage`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import similarity_coverage as coverage
import similarity_matrices as matrices
import similarity_peptides as peptides
import similarity_scale as scale

from paper.records import Table

Part = tuple[tuple[str, ...], Callable[[Table, bool], Table], Callable[[list[dict[str, str]]], list[str]]]
PARTS: dict[str, Part] = {
    "peptide": (peptides.COLUMNS, peptides.measure, peptides.summary),
    "matrices": (matrices.COLUMNS, matrices.measure, matrices.summary),
    "families": (scale.FAMILIES, scale.families, scale.families_summary),
    "file": (scale.FILE, scale.file, scale.file_summary),
    "coverage": (coverage.COLUMNS, coverage.measure, coverage.summary),
}


def run(out: Path, command: str, quick: bool, force: bool) -> None:
    lines = ["# Similarities without vectors"]
    for name, (columns, measure, summary) in PARTS.items():
        table = measure(Table(out / f"similarity_{name}.csv", columns, command, force), quick)
        lines += ["", *summary(table.rows)]
    (out / "similarity.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
