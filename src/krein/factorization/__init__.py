"""The approximated matrix: K ~ U M Uᵀ + s I.

In: orthonormal bases of blocks and a small symmetric core. Out: products, solves, determinants, eigenvalues and
a psd version, computed from the core without an n x n matrix.

The value: `factorization` (`Factorization` and its `Bases` U), `bases` (one block of U, stored in float64 down to
int8), `pieces` (U whose rows lie outside memory). The core M: `core` (dense or block-sparse), `cholesky` (direct
solves) and `krylov` (iterative solves and one end of a spectrum), `eigensystem` (all eigenpairs). Functions of a
factorization: `spectrum` (Lanczos, Gershgorin, certificates), `correction` (shift, clip, flip, square), `truncation`
(to the range of a kernel), `bounds` (the paper's error bounds).
"""

from __future__ import annotations

from krein.factorization.factorization import Factorization

__all__ = ["Factorization"]
