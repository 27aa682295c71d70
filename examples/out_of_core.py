"""Rows in a file that are not read into memory: a plan, a fit within a memory limit, and predictions in pieces.

Run it with: python examples/out_of_core.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import krein

folder = Path(tempfile.mkdtemp(prefix="krein-example-"))
n, d = 120_000, 10

# The rows are written a block at a time, as a program would that never holds them all.
rng = np.random.default_rng(0)
X = np.lib.format.open_memmap(folder / "X.npy", mode="w+", dtype=np.float32, shape=(n, d))
y = np.empty(n, dtype=int)
for start in range(0, n, 20_000):
    block = rng.normal(size=(20_000, d)).astype(np.float32)
    X[start : start + 20_000] = block
    y[start : start + 20_000] = np.sin(2 * block[:, 0]) + block[:, 1] > 0
X.flush()
print(
    f"{folder / 'X.npy'}: {n:,} rows, {X.nbytes / 1e6:.1f} MB; their kernel matrix would take {8 * n * n / 1e9:.0f} GB"
)

# What a fit takes, before it is started.
print(krein.plan(n, d, n_blocks=16, rank=32, memory_limit="100MB"), "\n")

# The path is passed as X. The rows are visited in pieces, and what is finished is kept in workdir until the end.
model = krein.KernelRidgeClassifier(
    n_blocks=16, rank=32, gamma=0.1, memory_limit="100MB", workdir=folder / "work", random_state=0
)
model.fit(folder / "X.npy", y)
print(f"fitted: {model.approximation_.factorization}")

# A prediction reads the file in pieces too. The model holds no rows and can be saved.
right = np.mean(model.predict(folder / "X.npy") == y)
krein.save(model, folder / "model.krein")
print(f"{100 * right:.1f} % of the training rows are right; the model takes", end=" ")
print(f"{(folder / 'model.krein').stat().st_size / 1e6:.1f} MB in {folder / 'model.krein'}")
