"""Tables in files in, a fitted model of one of their columns out; `krein fit` and `krein predict` use it.

`reading` reads CSV, TSV, Parquet, svmlight, npy, npz and lines of text. `encoding` turns columns into numbers. `model`
holds the fitted result: the encoding of the columns and the estimator. It is a package below `cli` and
`persistence`, because model files contain such models and `persistence` does not import commands.
"""

from __future__ import annotations
