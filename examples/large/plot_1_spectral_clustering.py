"""
Spectral clustering of 50,000 points
====================================

Spectral clustering finds groups that are connected rather than round. It needs eigenvectors of an n x n matrix, which
would take 20 GB here. On a factorization the eigenproblem is small.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import adjusted_rand_score

import krein

rng = np.random.default_rng(0)
n = 50_000
ring = rng.integers(3, size=n)
angle = rng.uniform(0, 2 * np.pi, n)
radius = np.array([1.0, 2.2, 3.4])[ring] + 0.12 * rng.normal(size=n)
X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])

start = time.perf_counter()
machine = krein.SpectralClustering(n_clusters=3, gamma=8.0, n_blocks=32, rank=24, random_state=0).fit(X)
print(
    f"{n:,} points in {time.perf_counter() - start:.1f} s; agreement with the rings {adjusted_rand_score(ring, machine.labels_):.3f}"
)
print(machine.approximation_.factorization)

# %%
some = rng.permutation(n)[:6000]
figure, ax = plt.subplots(figsize=(5, 5), layout="constrained")
ax.scatter(*X[some].T, c=machine.labels_[some], s=3, cmap="viridis")
ax.set(aspect="equal", title="three rings, 6,000 of 50,000 points")
plt.show()
