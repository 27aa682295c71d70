"""Similarities without vectors: strings, given matrices, many strings, a matrix larger than memory.

Peptides (`similarity_peptides`), four indefinite matrices (`similarity_matrices`), growth in n and a 40,000 x 40,000
file (`similarity_scale`), and how often the intervals of `krein.inspect` hold (`similarity_coverage`).
"""

from __future__ import annotations

from benchmarks import similarity_coverage as coverage
from benchmarks import similarity_matrices as matrices
from benchmarks import similarity_peptides as peptides
from benchmarks import similarity_scale as scale
from benchmarks.runner import Request, Task

PARTS = {  # table: columns, tasks, summary
    "similarity_peptide": (peptides.COLUMNS, peptides.tasks, peptides.summary),
    "similarity_matrices": (matrices.COLUMNS, matrices.tasks, matrices.summary),
    "similarity_families": (scale.FAMILIES, scale.family_tasks, scale.families_summary),
    "similarity_file": (scale.FILE, scale.file_tasks, scale.file_summary),
    "similarity_coverage": (coverage.COLUMNS, coverage.tasks, coverage.summary),
}
TABLES = {name: columns for name, (columns, _, _) in PARTS.items()}


def tasks(request: Request) -> list[Task]:
    return [task for name, (_, tasks, _) in PARTS.items() for task in tasks(name, request.quick)]


def report(*tables: list[dict[str, str]] | Request) -> str:
    lines = ["# Similarities without vectors"]
    for rows, (_, _, summary) in zip(tables[:-1], PARTS.values(), strict=True):
        lines += ["", *summary(rows)]
    return "\n".join(lines) + "\n"
