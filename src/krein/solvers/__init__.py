"""Solvers: linear systems, the duals of support vector machines and logistic regression.

In: a factorization (U M Uᵀ + s I) or a kernel with its objects, and targets. Out: dual coefficients with their duality
gap, or the solutions and held-out errors of ridge regression.

The dual on a factorization: `dual` (`solve_dual` checks the problem and chooses the method), `problem` (the quadratic
programme and its duality gap), `interior_point` and `newton` (the methods, for rows in memory), `interior_point_pieces`
and `newton_pieces` (for rows that lie elsewhere, with `piece_rows`), `blockwise` (blocks without coupling), `polish`
(active set) and `woodbury` (their linear systems). The dual on a kernel itself: `exact_svm` (chooses the solver),
`dense_dual` (LIBSVM and an active-set polish on a dense matrix), `refine` (many rows, without the matrix), `smo` (pairs
of rows, on cached rows of the matrix) and `kernel_values` (parts of the kernel matrix). Ridge regression:
`leave_one_out`. Logistic regression: `logistic`.
"""

from krein.solvers.dual import Dual, solve_dual

__all__ = ["Dual", "solve_dual"]
