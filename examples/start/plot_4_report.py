"""
A look before learning, and a report
====================================

``krein.inspect`` looks at a similarity before anything is learned: how indefinite is it, what would an approximation
cost, which correction helps, which rank is enough. The same can be written as one HTML page.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import krein

data = krein.datasets.families(500, n_families=8, n_classes=2, random_state=0)  # strings of letters
found = krein.inspect(data.X, krein.EditSimilarity(), data.y, max_evaluations=60_000, random_state=0)
print(found)

# %%
# The same as a picture.
found.plot()
plt.show()

# %%
# And as a page that loads nothing from elsewhere; a fitted machine can be put on it too.
machine = krein.SVC(kernel=krein.EditSimilarity(), random_state=0).fit(data.X, data.y)
page = machine.report(Path(tempfile.mkdtemp()) / "report.html", found, title="Families of strings")
print(f"{page.name}: {page.stat().st_size / 1000:.0f} kB")
