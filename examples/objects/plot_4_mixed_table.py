"""
Rows of numbers, categories and gaps
====================================

``Gower`` compares rows of a data frame as they are: numbers by their distance, categories by equality, and what is
missing in one of two rows is left out for that pair. Nothing is encoded, scaled or filled in first.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import cross_val_score

import krein

rng = np.random.default_rng(0)
n = 600
table = pd.DataFrame({
    "age": rng.integers(18, 80, n).astype(float),
    "income": rng.lognormal(10, 0.4, n),
    "plan": rng.choice(["basic", "family", "team"], n),
    "size": pd.Categorical(rng.choice(["S", "M", "L"], n), categories=["S", "M", "L"], ordered=True),
})  # fmt: skip
stays = (table["age"] / 60 + (table["plan"] == "team") + 0.4 * (table["size"] == "L") + 0.2 * rng.normal(size=n)) > 1.2
print(table.head(3))

# %%
# One value in ten goes missing, in every column; then one in four. Cross-validation takes the data frame as it is.
scores = {}
for share in (0.0, 0.1, 0.25):
    gaps = table.mask(rng.random(table.shape) < share)
    seen = gaps.notna().any(axis=1)  # a row without any value can be compared with nothing
    machine = krein.SVC(kernel=krein.Gower(), C=10.0, random_state=0)
    scores[share] = cross_val_score(machine, gaps[seen], stays[seen], cv=4)
    print(f"{share:.0%} missing: {scores[share].mean():.1%} right")

# %%
figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.errorbar([100 * share for share in scores], [100 * s.mean() for s in scores.values()],
            yerr=[100 * s.std() for s in scores.values()], fmt="o-", color="#b03a2e", capsize=4)  # fmt: skip
ax.axhline(100 * max(stays.mean(), 1 - stays.mean()), color="0.5", linestyle=":", label="always the commoner class")
ax.set(xlabel="values missing, %", ylabel="rows told right, % (4 folds)")
ax.legend(frameon=False)
plt.show()
