"""`krein.bounds`: the paper's error bounds; the code is in `krein.factorization.bounds`.

Examples
--------
>>> from krein.bounds import Parts, meka_bound
>>> parts = Parts(n=1000, tail=3.0, largest=2.0, distance=1.5, outside=0.25)
>>> bound = meka_bound(parts, rank=16, n_landmarks=32)
>>> sorted(bound.terms)
['outside', 'sampling', 'tail']
"""

from krein.factorization.bounds import *  # noqa: F403
