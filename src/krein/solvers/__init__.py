"""The box-constrained quadratic programme behind the SVMs, solved on the factored matrix."""

from krein.solvers.dual import Dual, solve_dual

__all__ = ["Dual", "solve_dual"]
