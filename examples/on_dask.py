"""Rows of a Dask array: a fit on the workers that hold them, and predictions that are computed when they are asked for.

Run it with: python examples/on_dask.py (needs krein[dask])
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import krein


def main() -> None:
    # Two processes here stand for machines. On a real cluster only this line differs: see docs/cluster.md.
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        # Each chunk holds whole rows and is one piece: few large ones are best.
        X = da.random.RandomState(0).normal(size=(60_000, 10), chunks=(30_000, 10)).astype(np.float32).persist()
        y = (da.sin(2 * X[:, 0]) + X[:, 1] > 0).astype(int)
        print(f"X: {X.shape[0]:,} rows in {X.numblocks[0]} chunks on 2 workers, {X.nbytes / 1e6:.1f} MB")
        print(krein.plan(*X.shape, n_blocks=16, rank=32, workers=2), "\n")

        # The current client is found; there is nothing to pass.
        model = krein.KernelRidgeClassifier(n_blocks=16, rank=32, gamma=0.1, random_state=0).fit(X, y)
        print(f"fitted: {model.approximation_.factorization}")

        predicted = model.predict(X)
        print(f"predictions are lazy: {predicted}")
        print(f"{100 * float((predicted == y).mean().compute()):.1f} % of the training rows are right")


if __name__ == "__main__":  # workers are new processes, which import this file
    main()
