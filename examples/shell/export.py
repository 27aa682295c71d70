"""Write a data set of krein.datasets to two files, the rows to learn from and new ones, as docs/shell.md uses them.

Run it with: python examples/shell/export.py pendigit pens.csv new-pens.csv

The extension says how: .csv, .parquet (needs pyarrow), or .txt for strings: one per line, a tab, its label. A random
tenth of the rows, always the same, goes to the second file.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

import krein

SHARE = 0.1  # of the rows, to the second file


def write(path: Path, names: list[str], columns: list[np.ndarray]) -> None:
    if path.suffix == ".parquet":
        import pyarrow as pa
        from pyarrow.parquet import write_table

        write_table(pa.table(dict(zip(names, columns, strict=True))), path)
        return
    if path.suffix not in (".csv", ".txt"):
        sys.exit(f"{path.name}: the extension must be .csv, .parquet or .txt.")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="," if path.suffix == ".csv" else "\t", lineterminator="\n")
        if path.suffix == ".csv":
            writer.writerow(names)
        writer.writerows(zip(*(column.tolist() for column in columns), strict=True))


def table(data: krein.datasets.Dataset) -> tuple[list[str], list[np.ndarray]]:
    """The columns and their names; whole numbers as such, which keeps the files small and readable."""
    if data.kind == "strings":
        return ["text", "label"], [np.array(data.X, dtype=object), data.y]
    whole = np.all(np.round(data.X) == data.X, axis=0)
    rows = [column.astype(int) if all_ else column for column, all_ in zip(data.X.T, whole, strict=True)]
    return [*(f"x{i}" for i in range(data.d)), "label"], [*rows, data.y]


def main(name: str, *files: str) -> None:
    data = krein.datasets.load(name)
    names, columns = table(data)
    shuffled = np.random.default_rng(0).permutation(data.n)
    new = round(SHARE * data.n)
    for file, some in zip(map(Path, files), (np.sort(shuffled[new:]), np.sort(shuffled[:new])), strict=True):
        write(file, names, [column[some] for column in columns])
        print(f"{file}: {len(some)} rows of {name}, {len(names)} columns")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
