"""
MEKA as in the paper, and the coupling that keeps psd
=====================================================

``coupling="pairwise"`` is Algorithm 1 of Heilig, Münch and Schleif (2022): clusters, a Nyström basis in each, and a link
between every pair that is fitted on a sample of its own. It can have negative eigenvalues even where the kernel has none;
the paper shifts them away. ``coupling="shared"``, krein's default, has one sample behind all links and stays psd.
"""

import matplotlib.pyplot as plt

import krein

X = krein.datasets.mixture(3000, n_features=8, n_clusters=10, random_state=0).X
kernel = krein.RBF(gamma=0.1)
settings = {"n_blocks": 5, "rank": 16, "random_state": 0}

M1 = krein.approximate(X, kernel, coupling="pairwise", **settings)  # guarded=False: exactly as published
M2 = M1.corrected("shift")
ours = krein.approximate(X, kernel, **settings)
for name, a in {"M1, pairwise": M1, "M2, shifted": M2, "shared": ours}.items():
    f = a.factorization
    print(
        f"{name:13} error {a.error(random_state=0).relative:.4f}, {f.n_negative():2d} negative eigenvalues, "
        f"{f.nbytes / 1e6:.2f} MB, psd = {krein.certify(f).psd}"
    )

# %%
# The paper's own form, Q and L, with the order of the rows: ``a.to_links()``; ``a.to_mat(path)`` writes it for Matlab.
links = M1.to_links()
print(type(links).__name__)

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
for name, a, colour in (("pairwise (the paper)", M1, "#1b5e91"), ("shared (the default)", ours, "#b03a2e")):
    left.plot(a.factorization.eigenvalues()[::-1], ".", markersize=4, color=colour, label=name)
left.set_yscale("symlog", linthresh=1e-3)
left.axhline(0.0, color="0.6", linewidth=0.8)
left.set(title="eigenvalues of an RBF matrix, which has no negative ones", xlabel="number")
left.legend(frameon=False)
ranks = (4, 8, 16, 32, 64)
for coupling, colour in (("pairwise", "#1b5e91"), ("shared", "#b03a2e")):
    errors = [
        krein.approximate(X, kernel, coupling=coupling, **settings | {"rank": rank}).error(random_state=0).relative
        for rank in ranks
    ]
    right.loglog(ranks, errors, "o-", color=colour)
right.set(title="five blocks", xlabel="rank of a block", ylabel="relative error")
right.set_xticks(ranks, [str(rank) for rank in ranks])
right.set_xticks([], minor=True)
plt.show()
