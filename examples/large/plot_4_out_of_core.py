"""
Rows in a file that are not read into memory
============================================

The path of a file is X. The rows are visited in pieces, within a limit of memory, and ``krein.plan`` says beforehand what
a fit takes.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import krein

folder = Path(tempfile.mkdtemp(prefix="krein-example-"))
n, d = 120_000, 10

# %%
# The rows are written a block at a time, as a program would that never holds them all.
rng = np.random.default_rng(0)
X = np.lib.format.open_memmap(folder / "X.npy", mode="w+", dtype=np.float32, shape=(n, d))
y = np.empty(n, dtype=int)
for start in range(0, n, 20_000):
    block = rng.normal(size=(20_000, d)).astype(np.float32)
    X[start : start + 20_000] = block
    y[start : start + 20_000] = np.sin(2 * block[:, 0]) + block[:, 1] > 0
X.flush()
print(f"{n:,} rows, {X.nbytes / 1e6:.1f} MB; their kernel matrix would take {8 * n * n / 1e9:.0f} GB")

# %%
# What a fit takes, before it is started.
plan = krein.plan(n, d, n_blocks=16, rank=32, memory_limit="100MB")
print(plan)

# %%
# The path is passed as X. What is finished is kept in ``workdir`` until the end: a fit that was interrupted goes on.
model = krein.KernelRidgeClassifier(
    n_blocks=16, rank=32, gamma=0.1, memory_limit="100MB", workdir=folder / "work", random_state=0
)
model.fit(folder / "X.npy", y)
print(f"fitted: {model.approximation_.factorization}")

# %%
# A prediction reads the file in pieces too. The model holds no rows and can be saved.
right = np.mean(model.predict(folder / "X.npy") == y)
krein.save(model, folder / "model.krein")
print(f"{100 * right:.1f} % of the training rows are right; the model takes", end=" ")
print(f"{(folder / 'model.krein').stat().st_size / 1e6:.1f} MB")

# %%
# Where the plan expects the time to go.
figure, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
ax.barh([stage.name for stage in plan.stages], [stage.seconds for stage in plan.stages], color="#b03a2e")
ax.invert_yaxis()
ax.set_xlabel("seconds, planned")
plt.show()
