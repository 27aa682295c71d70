"""
Let krein choose blocks and rank
================================

Say how good or how small the approximation is to be, and read what was tried.
"""

import matplotlib.pyplot as plt

import krein

# 6000 rows: their matrix of similarities would take 288 MB.
rows = krein.datasets.mixture(6000, n_features=10, n_clusters=12, spread=0.5, random_state=0).X
kernel = krein.RBF(gamma=0.05)

# %%
# An error to reach: the smallest factorization that has it. ``search_`` prints what was looked at, and why it ended.
by_error = krein.approximate(rows, kernel, max_error=0.01, random_state=0)
print(by_error.search_)

# %%
# A budget: the best that fits. Only here the bases may be stored in fewer bits, to make room for more directions.
by_memory = krein.approximate(rows, kernel, max_memory=500_000, random_state=0)
print(by_memory.search_)

# %%
# What was promised can be measured again, on other entries; and since the kernel is psd, so is the approximation.
for name, a in (("error", by_error), ("memory", by_memory)):
    f = a.factorization
    print(f"by {name}: {f.nbytes / 1e6:.2f} MB, relative error {a.error(random_state=1)}, psd = {krein.certify(f).psd}")

# %%
# What memory buys: every number of blocks and rank of a grid, and the ring is what krein chooses by itself.
krein.plotting.MemoryDisplay.from_grid(rows[:2500], kernel, ranks=(8, 16, 32), max_error=0.02)
plt.show()
