"""
Two moons with an indefinite kernel
===================================

The truncated Manhattan kernel ``TL1`` is rho less the Manhattan distance, and 0 beyond. It compares a point with its neighbours alone. It may have
negative eigenvalues. krein counts them, corrects them, and says so; the rest is as in scikit-learn.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.model_selection import train_test_split

import krein

X, y = make_moons(600, noise=0.25, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %%
# Two machines on the same points. The warning of the second one says how many eigenvalues are negative, and what was
# done about them; here it is printed.
machines = {"RBF": krein.SVC(kernel="rbf", C=10.0), "TL1, rho = 0.7": krein.SVC(kernel=krein.TL1(rho=0.7), C=10.0)}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for name, machine in machines.items():
        machine.fit(X_train, y_train)
        print(
            f"{name}: {machine.score(X_test, y_test):.1%} right, {machine.n_negative_} negative eigenvalues, "
            f"correction {machine.correction_!r}"
        )
for warning in caught:
    print(warning.message)

# %%
# Where each machine is undecided, and how sure it is elsewhere.
grid_x, grid_y = np.meshgrid(np.linspace(-2, 3, 120), np.linspace(-1.5, 2, 90))
points = np.column_stack([grid_x.ravel(), grid_y.ravel()])
figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for ax, (name, machine) in zip(axes, machines.items(), strict=True):
    values = machine.decision_function(points).reshape(grid_x.shape)
    ax.contourf(grid_x, grid_y, values, levels=np.linspace(-3, 3, 13), cmap="RdBu", extend="both", alpha=0.8)
    ax.contour(grid_x, grid_y, values, levels=[0.0], colors="black")
    ax.scatter(*X_train.T, c=y_train, cmap="RdBu", edgecolors="white", s=22)
    ax.set_title(f"{name}: {machine.score(X_test, y_test):.1%}")
plt.show()
