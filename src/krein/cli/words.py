"""What the options may be, as plain words.

The rooms that give them their meaning load scikit-learn, for which help and completion need not wait; a test compares.
"""

from __future__ import annotations

__all__ = ["FORMATS", "KERNELS", "MACHINES", "SCALES", "TASKS"]

FORMATS = ("csv", "tsv", "parquet", "svmlight", "npy", "npz", "text")
SCALES = ("standard", "minmax", "none")
TASKS = ("auto", "classification", "regression")
MACHINES = ("auto", "svm", "ridge", "gp")
KERNELS = (
    "arccosine", "cosine", "elm", "laplacian", "linear", "ntk", "poly", "polynomial", "rbf", "sigmoid",
    "sphere-polynomial", "tl1", "edit", "jaro-winkler", "spectrum", "alignment",
)  # fmt: skip
