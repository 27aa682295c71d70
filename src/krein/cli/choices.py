"""The choices of the options, as strings.

They repeat what `krein.tables` defines, because importing it loads scikit-learn, which takes seconds that help and
completion should not take. A test checks that both are equal.
"""

from __future__ import annotations

__all__ = ["FORMATS", "KERNELS", "MACHINES", "SCALES", "TASKS"]

FORMATS = ("csv", "tsv", "parquet", "svmlight", "npy", "npz", "text")
SCALES = ("standard", "minmax", "none")
TASKS = ("auto", "classification", "regression")
MACHINES = ("auto", "svm", "ridge", "gp")
KERNELS = (
    "arccosine", "chi2", "cosine", "elm", "hamming", "haversine", "histogram-intersection", "jaccard", "laplacian",
    "linear", "matern", "minmax", "ntk", "periodic", "poly", "polynomial", "rational-quadratic", "rbf", "sigmoid",
    "sphere-polynomial", "tanimoto", "tl1", "edit", "jaro-winkler", "spectrum", "alignment", "gower",
)  # fmt: skip
