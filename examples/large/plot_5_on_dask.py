"""
Rows of a Dask array
====================

A Dask array is X. The fit visits each chunk where it lies, sends small arrays, and adds up small results; predictions are
lazy. It needs ``pip install 'krein[dask]'``.
"""

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

import krein

# %%
# Two workers in this process stand for machines. On a real cluster only this line differs: the guide on clusters shows
# how. In a script, workers that are processes of their own need ``if __name__ == "__main__":`` around it.
cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None)
client = Client(cluster)

# Each chunk holds whole rows and is one piece: few large ones are best.
X = da.random.RandomState(0).normal(size=(60_000, 4), chunks=(30_000, 4)).astype(np.float32).persist()
y = (da.sin(2 * X[:, 0]) + X[:, 1] > 0).astype(int)
print(f"X: {X.shape[0]:,} rows in {X.numblocks[0]} chunks on 2 workers, {X.nbytes / 1e6:.1f} MB")

# %%
# The current client is found; there is nothing to pass.
model = krein.KernelRidgeClassifier(n_blocks=16, rank=48, gamma=0.5, random_state=0).fit(X, y)
print(f"fitted: {model.approximation_.factorization}")
predicted = model.predict(X)
print(f"predictions are lazy: {predicted}")
print(f"{100 * float((predicted == y).mean().compute()):.1f} % of the training rows are right")

# %%
# The fitted model is an ordinary one: it predicts arrays in memory too.
side = np.linspace(-2.5, 2.5, 80)
points = np.zeros((len(side) ** 2, 4), dtype=np.float32)
points[:, :2] = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
figure, ax = plt.subplots(figsize=(5, 4.2), layout="constrained")
ax.contourf(side, side, model.decision_function(points).reshape(80, 80), levels=11, cmap="RdBu")
ax.plot(side, -np.sin(2 * side), color="black", label="true boundary")
ax.set(xlabel="first feature", ylabel="second feature", ylim=(-2.5, 2.5))
ax.legend(frameon=True)
plt.show()
client.close()
cluster.close()
