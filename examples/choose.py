"""Let krein choose: say how good or how small the approximation is to be, and read what was tried.

Run it with: python examples/choose.py
"""

from __future__ import annotations

import krein

# 6000 rows: their matrix of similarities would take 288 MB.
rows = krein.datasets.mixture(6000, n_features=10, n_clusters=12, spread=0.5, random_state=0).X
kernel = krein.RBF(gamma=0.05)

# An error to reach: the smallest factorization that has it. `search_` prints what was looked at, and why it ended.
by_error = krein.approximate(rows, kernel, max_error=0.01, random_state=0)
print(f"max_error=0.01: {by_error.search_}\n")

# A budget: the best that fits. Only here the bases may be stored in fewer bits, to make room for more directions;
# dtype="int8" with max_error asks for the same there.
by_memory = krein.approximate(rows, kernel, max_memory=500_000, random_state=0)
print(f"max_memory=0.5 MB: {by_memory.search_}\n")

# What was promised can be measured again, on other entries; and since the kernel is psd, so is the approximation.
for name, a in (("error", by_error), ("memory", by_memory)):
    f = a.factorization
    certificate = krein.certify(f)
    print(f"by {name}: {f.nbytes / 1e6:.2f} MB, relative error {a.error(random_state=1)}, psd = {certificate.psd}")
