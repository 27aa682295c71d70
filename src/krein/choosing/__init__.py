"""Number of blocks, rank and storage type, where they are left open.

In: objects, a kernel and what is wanted: an error, a budget of memory, or the best validated score. Out: an
`Approximation` with the table of what was tried. `approximating` has the public function; `candidates` lists what could
be built and what it would take, `forecast` predicts errors from a sample, `by_error` and `by_score` judge candidates.
"""

from __future__ import annotations

from krein.choosing.approximating import approximate, whole_approximation

__all__ = ["approximate", "whole_approximation"]
