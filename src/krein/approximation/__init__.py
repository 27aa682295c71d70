"""Objects and a kernel in, a factorization of their kernel matrix out.

`request` checks what was asked for and has the parts that each coupling returns. `building` passes a request to its
coupling, or keeps the exact matrix of few objects.
`clusters` is Part 1 of the paper's Algorithm 1 and `bases` Part 2, with the rules for landmarks and ranks. `pairwise`
is Algorithm 1 from top to bottom, and its guards. `shared` is the default coupling: `couplings` chooses the pairs of
clusters that it keeps, and `shrinkage` scales its core. `landmark` is the coupling for expensive similarities,
`nystrom` one block of a psd kernel. `approximation` has the result with its extension to new objects, `error` estimates
its error. What a request leaves open is chosen in `choosing`.
"""

from __future__ import annotations

from krein.approximation.approximation import Approximation

__all__ = ["Approximation"]
