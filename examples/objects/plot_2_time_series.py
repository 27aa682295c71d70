"""
Time series compared by warping
===============================

Two recordings of one gesture rarely have the same length or speed. Dynamic time warping stretches one onto the other and
measures what remains. It is a distance, and ``FromDistances`` turns it into a similarity.
"""

import matplotlib.pyplot as plt
import numpy as np

import krein

rng = np.random.default_rng(0)
shapes = (
    lambda t: np.sin(2 * np.pi * t),
    lambda t: np.sign(np.sin(2 * np.pi * t)),
    lambda t: 2 * np.abs(2 * t - np.floor(2 * t + 0.5)) - 1,
)


def recording(kind: int) -> np.ndarray:
    """One shape, of a random length and at an uneven speed, with noise."""
    t = np.linspace(0, 1, rng.integers(25, 60)) ** rng.uniform(0.7, 1.5)
    return shapes[kind](t) + 0.35 * rng.normal(size=len(t))


kinds = rng.integers(3, size=360)
series = [recording(kind) for kind in kinds]

# %%
# Series of different lengths in a list are X. The scale of exp(-d / scale) is taken from the data.
warped = krein.FromDistances(krein.DynamicTimeWarping(window=15))
machine = krein.SVC(kernel=warped, random_state=0).fit(series[:240], kinds[:240])
print(f"{machine.score(series[240:], kinds[240:]):.1%} of 120 new series are told right")

# %%
# The same similarity as a map: kernel principal components.
map_ = krein.KernelPCA(n_components=2, kernel=warped, random_state=0).fit_transform(series)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for kind, colour, name in zip(range(3), ("#1b5e91", "#b03a2e", "#117a3d"), ("sine", "square", "triangle"), strict=True):
    for i in np.flatnonzero(kinds == kind)[:4]:
        left.plot(series[i] - 4 * kind, color=colour, alpha=0.7)
    right.plot(*map_[kinds == kind].T, "o", markersize=4, color=colour, label=name)
left.set(title="four recordings of each shape", xlabel="time", yticks=[])
right.set(title="KernelPCA of all 360", xlabel="first component", ylabel="second")
right.legend(frameon=False)
plt.show()
