"""
What clip, flip and shift do to a spectrum
==========================================

An indefinite matrix has negative eigenvalues. There are four ways to make it positive semi-definite, and each does
something else to the similarities themselves.
"""

import matplotlib.pyplot as plt
import numpy as np

import krein

X = krein.datasets.mixture(400, n_features=5, n_clusters=5, random_state=0).X
f = krein.approximate(X, krein.Sigmoid(gamma=0.5, coef0=-1.0), n_blocks=1, rank=60, random_state=0).factorization
print(
    f"{f.n_negative()} of {f.rank} eigenvalues are negative, from {f.smallest_eigenvalue():.3g} to {f.eigenvalues()[-1]:.3g}"
)

# %%
# All of them work on the small core alone, whatever the number of rows. ``certify`` proves that the result is psd.
ways = ("shift", "clip", "flip", "square")
corrected = {how: krein.correct(f, how) for how in ways}
for how, g in corrected.items():
    moved = np.linalg.norm(g.to_dense() - f.to_dense()) / np.linalg.norm(f.to_dense())
    print(f"{how:>6}: psd = {krein.certify(g).psd}, the matrix moves by {moved:.3g} of its norm")

# %%
figure, axes = plt.subplots(1, 4, figsize=(12, 3.2), layout="constrained", sharex=True)
before = np.sort(np.append(f.eigenvalues(), np.full(400 - f.rank, f.shift)))
for ax, (how, g) in zip(axes, corrected.items(), strict=True):
    values, vectors = np.linalg.eigh(f.to_dense())
    after = np.einsum(
        "ij,ij->j", vectors, g @ vectors
    )  # the same eigenvectors, so this is what each eigenvalue becomes
    ax.plot(before, color="0.6", linewidth=2, label="before")
    ax.plot(after, color="#b03a2e", label="after")
    ax.axhline(0.0, color="black", linewidth=0.6)
    ax.set_yscale("symlog", linthresh=1.0)
    ax.set(title=how, xlabel="eigenvalue number")
axes[0].legend(frameon=False)
plt.show()
