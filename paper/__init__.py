"""The experiments of Heilig, Münch and Schleif (AISTATS 2022), rebuilt: `python -m paper` or `krein reproduce`.

`command` is the command line, `reproduce` runs experiments and writes reports, `running` and `records` keep every
finished piece. `protocol` has the paper's cells (data set, kernel, blocks, rank) and its printed values (`tables/`).
One experiment per file: `errors`, `eigenvalues`, `classification`, `costs`, `features`, `bounds`, `figures`.
"""
