"""The one value everything else is computed from: U M Uᵀ + s I.

In: orthonormal bases of blocks and a small symmetric core. Out: products, solves, determinants, eigenvalues, a psd
version, all from the core and without an n x n matrix.

`factorization` has the value and its verbs, `storage` how bases are stored (float64 down to int8). The core: `core`
asks one question of a core whichever way it is held, `dense`, `blocksparse` and `cholesky` answer it, `krylov` finds
ends of a spectrum, `eigensystem` all of it. On top: `spectrum` (Lanczos, Gershgorin, certificates), `correction`
(shift, clip, flip, square), `truncation` (to a kernel's range), `bounds` (the paper's error bounds).
"""

from __future__ import annotations

from krein.factorization import bounds, truncation
from krein.factorization.factorization import Factorization

__all__ = ["Factorization", "bounds", "truncation"]
