"""
Ridge regression that chooses its own penalty
=============================================

``KernelRidge(alpha="loo")`` judges twenty penalties by leave-one-out. The errors of all n left-out rows come in closed
form from one decomposition, so this costs as much as one fit.
"""

import matplotlib.pyplot as plt
import numpy as np

import krein

rng = np.random.default_rng(0)
x = np.sort(rng.uniform(-3, 3, 400))
y = np.sin(2 * x) + 0.3 * x + 0.35 * rng.normal(size=400)

model = krein.KernelRidge(alpha="loo", kernel="rbf", gamma=2.0).fit(x[:, None], y)
print(f"alpha = {model.alpha_:.3g}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
line = np.linspace(-3, 3, 300)
left.plot(x, y, ".", color="0.6", label="observed")
left.plot(line, np.sin(2 * line) + 0.3 * line, "--", color="#1b5e91", label="true function")
left.plot(line, model.predict(line[:, None]), color="#b03a2e", label="KernelRidge")
left.legend(frameon=False)
right.semilogx(model.alphas_, model.loo_scores_, "o-", color="#b03a2e")
right.axvline(model.alpha_, color="0.4", linestyle=":")
right.set(xlabel="alpha", ylabel="score of the left-out rows", title="leave-one-out")
plt.show()
