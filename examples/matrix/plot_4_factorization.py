"""
Approximate, look, correct, extend
==================================

Below the machines is one value, K ~ U M Uᵀ + s I. This example goes the whole way with it once, on scikit-learn's digits:
build it, measure its error, correct its spectrum, solve a system, and predict new rows.
"""

import matplotlib.pyplot as plt
import numpy as np

import krein
from krein.plotting import KernelMatrixDisplay
from krein.preprocessing import UnitSphere

# 1797 images as points on the unit sphere; the last 197 play the part of new data.
rows = UnitSphere().fit_transform(krein.datasets.digits().X)
train, new = rows[:1600], rows[1600:]

# %%
# 8 clusters, a basis of rank 24 in each. The 1600 x 1600 matrix is never formed.
kernel = krein.Sigmoid(gamma=2.0, coef0=-1.0)  # an indefinite kernel: its negative eigenvalues are its own
a = krein.approximate(train, kernel, n_blocks=8, rank=24, random_state=0)
f = a.factorization
print(f"Built {f}")
print(f"from {a.n_evaluations:,} kernel entries, {a.n_evaluations / len(train) ** 2:.1%} of all.")

# %%
# The error without the full matrix, and the spectrum, which is exact.
print(f"Relative error {a.error(random_state=0)}")
print(f"{f.n_negative()} of {f.rank} eigenvalues are negative, the smallest is {f.smallest_eigenvalue():.3g}")

# %%
# Three ways to a psd matrix, and what each costs.
for how in ("shift", "clip", "flip"):
    fixed = a.corrected(how)
    print(
        f"{how:>6}: psd = {krein.certify(fixed.factorization).psd}, relative error {fixed.error(random_state=0).relative:.4f}"
    )

# %%
# Ridge regression of "is it a zero?" with the clipped matrix; then similarities of new rows to the old ones, through the
# landmarks of each one's cluster.
clipped = a.corrected("clip")
zero = np.where(krein.datasets.digits().y == 0, 1.0, -1.0)
weights = clipped.factorization.solve(zero[:1600], ridge=1.0)
predicted = np.sign(clipped.kernel_rows(new) @ weights)
print(f"New rows told right: {np.mean(predicted == zero[1600:]):.1%}")

# %%
# The matrix as the rows come, sorted by cluster, and as it is held.
KernelMatrixDisplay.from_approximation(a, n_rows=300, panels=("before", "after", "approximation"))
plt.show()
