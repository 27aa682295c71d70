"""The experiments of Heilig, Münch and Schleif (AISTATS 2022), rebuilt: `python -m paper` or `krein reproduce`.

`command` is the command line, `reproduce` runs experiments by name; `benchmarks.runner` runs their tasks and keeps
every finished one. `protocol` has the paper's cells (data set, kernel, blocks, rank) and its tables (`tables/`).
One experiment per file: `errors`, `eigenvalues`, `classification`, `costs`, `features`, `bounds`, `figures`.
"""
