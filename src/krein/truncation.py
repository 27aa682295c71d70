"""`krein.truncation`: similarities clipped to a kernel's range; the code is in `krein.factorization.truncation`."""

from krein.factorization.truncation import *  # noqa: F403
