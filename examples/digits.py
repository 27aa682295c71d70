"""Approximate, inspect, correct, extend: the whole way once, on scikit-learn's digits.

Run it with: python examples/digits.py
"""

from __future__ import annotations

import numpy as np

import krein
from krein.preprocessing import UnitSphere

# 1797 images as points on the unit sphere; the last 197 play the part of new data.
rows = UnitSphere().fit_transform(krein.datasets.digits().X)
train, new = rows[:1600], rows[1600:]

# Approximate: 8 clusters, a basis of rank 24 in each. The 1600 x 1600 matrix is never formed.
kernel = krein.Sigmoid(gamma=2.0, coef0=-1.0)  # an indefinite kernel: its negative eigenvalues are its own
a = krein.approximate(train, kernel, n_blocks=8, rank=24, random_state=0)
f = a.factorization
print(f"Built {f}")
print(f"from {a.n_evaluations:,} kernel entries, {a.n_evaluations / len(train) ** 2:.1%} of all.")

# Inspect: the error without the full matrix, and the spectrum, which is exact.
print(f"Relative error {a.error(random_state=0)}")
print(f"{f.n_negative()} of {f.rank} eigenvalues are negative, the smallest is {f.smallest_eigenvalue():.3g}")

# Correct: three ways to a psd matrix, and what each costs.
for how in ("shift", "clip", "flip"):
    fixed = a.corrected(how)
    certificate = krein.certify(fixed.factorization)
    error = fixed.error(random_state=0).relative
    print(f"{how:>6}: psd = {certificate.psd}, relative error {error:.4f}")

# Use it: ridge regression of "is it a zero?" with the clipped matrix ...
clipped = a.corrected("clip")
zero = np.where(krein.datasets.digits().y == 0, 1.0, -1.0)
weights = clipped.factorization.solve(zero[:1600], ridge=1.0)
# ... and extend: similarities of new rows to the old ones, through the landmarks of each one's cluster.
predicted = np.sign(clipped.kernel_rows(new) @ weights)
print(f"New rows told right: {np.mean(predicted == zero[1600:]):.1%}")
