"""
Peptides compared by edit distance
==================================

There are no vectors here: short proteins are strings, and two of them are as similar as one can be edited into the
other. That similarity is not an inner product. krein finds this out, corrects it, and says so.

The data are 5,200 peptides, half of them antimicrobial, from the folder in ``KREIN_DATA``. Where it is not set the
example generates families of mutated strings instead.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

import krein

try:
    data = krein.datasets.load("peptide_amp")
except krein.InputError:  # no such file, and no place to download it from
    data = krein.datasets.families(2400, n_families=12, n_classes=2, random_state=0)
some = np.random.default_rng(0).permutation(len(data.X))[:2400]
strings, labels = [data.X[i] for i in some], np.asarray(data.y)[some]
print(strings[0], labels[0])
train, test, y_train, y_test = train_test_split(strings, labels, random_state=0)

# %%
# A list of strings is X. What was done about negative eigenvalues stands in ``correction_``.
machine = krein.SVC(kernel=krein.EditSimilarity(), random_state=0).fit(train, y_train)
print(f"{machine.score(test, y_test):.1%} right; {machine.n_negative_} negative eigenvalues, {machine.correction_!r}")

# %%
# What else could have been done, and what each correction is worth on the test strings.
scores = {}
for how in ("shift", "clip", "flip", "square"):
    scores[how] = (
        krein.SVC(kernel=krein.EditSimilarity(), correction=how, random_state=0).fit(train, y_train).score(test, y_test)
    )
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
values = np.linalg.eigvalsh(krein.EditSimilarity()(train[:500]))
left.plot(values[::-1][5:], color="#1b5e91")
left.axhline(0.0, color="0.6", linewidth=0.8)
left.set(title="eigenvalues of 500 peptides, from the 6th", xlabel="number", ylabel="eigenvalue")
right.bar(list(scores), [100 * value for value in scores.values()], color="#b03a2e")
right.axhline(100 * machine.score(test, y_test), color="black", linestyle="--", label=f"auto: {machine.correction_}")
right.set(ylim=(50, 100), ylabel="test strings told right, %")
right.legend(frameon=False)
plt.show()
