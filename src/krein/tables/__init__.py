"""Files of rows in, a machine that learned one column of them out; the commands `krein fit` and `predict` stand on it.

`reading` reads CSV, TSV, Parquet, svmlight, npy, npz and lines of text, `encoding` turns columns into numbers,
`model` is the fitted result: how columns were encoded, and the estimator. A room apart from `cli` because model files
hold such models, and `persistence` knows no commands.
"""

from __future__ import annotations
