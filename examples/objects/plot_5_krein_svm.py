"""
The SVM of a Krein space
========================

An indefinite similarity is an inner product of a Krein space: a space in which some directions have negative length. Its
SVM is trained with the sizes of all eigenvalues and mapped back by their signs, so that new objects are compared by the
similarity as it is. This example sets it beside the four corrections of the matrix.
"""

import matplotlib.pyplot as plt
import numpy as np

import krein

# tanh(gamma <x, y> - 1) has negative eigenvalues of the size of the positive ones on these rows.
rng = np.random.default_rng(0)
X = rng.normal(size=(900, 6))
y = (X[:, 0] * X[:, 1] + 0.5 * X[:, 2] ** 2 > 0.4).astype(int)
kernel = krein.Sigmoid(gamma=0.5, coef0=-1.0)
train, test = slice(0, 600), slice(600, 900)

scores = {}
for how in ("shift", "clip", "flip", "square", "krein"):
    machine = krein.SVC(kernel=kernel, C=10.0, correction=how, random_state=0).fit(X[train], y[train])
    scores[how] = machine.score(X[test], y[test])
    print(f"{how:>6}: {scores[how]:.1%}")

# %%
# The Krein SVM and ``flip`` agree; on these rows ``square`` is better than both, and no fixed rule is best on all data.
# Left unsaid, ``correction="auto"`` tries them on rows that are left out, and says what it took.
machine = krein.SVC(kernel=kernel, C=10.0, random_state=0).fit(X[train], y[train])
print(f"auto took {machine.correction_!r}: {machine.score(X[test], y[test]):.1%}")

# %%
values = np.linalg.eigvalsh(kernel(X[train], X[train]))
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
left.plot(values[::-1], ".", color="#1b5e91", markersize=3)
left.axhline(0.0, color="0.6", linewidth=0.8)
left.set_yscale("symlog", linthresh=0.1)
left.set(
    title=f"{(values < -1e-9).sum()} of {len(values)} eigenvalues are negative", xlabel="number", ylabel="eigenvalue"
)
right.bar(list(scores), [100 * s for s in scores.values()], color=["0.6"] * 4 + ["#b03a2e"])
right.set(ylim=(40, 100), ylabel="test rows told right, %", title="what each correction is worth")
plt.show()
