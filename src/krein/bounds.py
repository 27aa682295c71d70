"""`krein.bounds`: the paper's error bounds; the code is in `krein.factorization.bounds`."""

from krein.factorization.bounds import *  # noqa: F403
