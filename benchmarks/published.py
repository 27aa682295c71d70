"""Algorithm 1 as published, beside the published code's own errors: python benchmarks/published.py [SEEDS].

Relative Frobenius errors of `coupling="pairwise", guarded=False` in the paper's 24 cells: the least, the median and the
largest over seeds, and the median over the mean of the published code's runs (`paper/tables/published_code.csv`). It
needs the paper's data sets (KREIN_DATA) and takes a quarter of an hour with ten seeds.
"""

from __future__ import annotations

import statistics
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import krein
from paper import protocol
from paper.comparing import difference


def show(seeds: int) -> None:
    ratios = []
    for cell in protocol.cells():
        X, K = protocol.prepared(cell), protocol.matrix(cell)
        errors = []
        for seed in range(seeds):
            a = krein.approximate(X, cell.similarity, n_blocks=cell.n_blocks, rank=cell.rank, coupling="pairwise",
                                  guarded=False, random_state=seed)  # fmt: skip
            errors.append(difference(K, a.factorization).relative())
        published = float(protocol.table("published_code", cell)["m1_error"])
        ratios.append(statistics.median(errors) / published)
        found = f"{min(errors):.3g} {statistics.median(errors):.3g} {max(errors):.3g}"
        print(f"{cell.name:24} {found:28} published {published:.3g}, ratio {ratios[-1]:.2f}", flush=True)
    print(f"within a factor of 1.5: {sum(1 / 1.5 <= r <= 1.5 for r in ratios)} of {len(ratios)}")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        show(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
