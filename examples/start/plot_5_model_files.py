"""
Model files without pickle
==========================

``krein.save`` writes one file, ``krein.load`` reads it. Nothing in the file is executed, every byte has a checksum, and
a file holds what predictions need: not the training rows, unless they are the support objects.
"""

import pickle
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVC

import krein

rows = krein.datasets.mixture(6000, n_features=10, n_clusters=6, n_classes=2, random_state=0)
train, test = slice(0, 5000), slice(5000, 6000)
folder = Path(tempfile.mkdtemp())

models = {
    "SVC, exact": krein.SVC(),
    "SVC, 10 blocks of rank 32": krein.SVC(n_blocks=10, rank=32, random_state=0),
    "ridge, 10 blocks of rank 32": krein.KernelRidgeClassifier(n_blocks=10, rank=32, random_state=0),
}
sizes = {"scikit-learn SVC, pickled": len(pickle.dumps(SVC().fit(rows.X[train], rows.y[train])))}
for name, model in models.items():
    model.fit(rows.X[train], rows.y[train])
    path = folder / "model.krein"
    krein.save(model, path)
    same = krein.load(path)
    assert np.array_equal(same.predict(rows.X[test]), model.predict(rows.X[test]))
    sizes[f"krein {name}"] = path.stat().st_size
    print(f"{name}: {model.score(rows.X[test], rows.y[test]):.1%} right, {path.stat().st_size:,} bytes")

# %%
# A file that was changed is refused.
content = bytearray(path.read_bytes())
content[-1000] ^= 1
path.write_bytes(content)
try:
    krein.load(path)
except krein.ModelFileError as error:
    print(error)

# %%
figure, ax = plt.subplots(figsize=(8, 2.8), layout="constrained")
ax.barh(list(sizes), [size / 1e3 for size in sizes.values()], color=["#1b5e91", *["#b03a2e"] * 3])
ax.invert_yaxis()
ax.set_xlabel("size of the file, kB")
plt.show()
