"""`krein.truncation`: similarities clipped to a kernel's range; the code is in `krein.factorization.truncation`.

Examples
--------
>>> import krein
>>> X = krein.datasets.mixture(500, n_features=4, random_state=0).X
>>> f = krein.approximate(X, krein.RBF(gamma=1.0), n_blocks=5, rank=4, random_state=0).factorization
>>> krein.truncation.out_of_range(f, 0.0, 1.0).share > 0  # an approximated RBF matrix may hold negative numbers
True
"""

from krein.factorization.truncation import *  # noqa: F403
