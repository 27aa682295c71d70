"""The exact SVM of the exact kernel (stub, being written)."""

from __future__ import annotations

from typing import Any

from krein.approximation import Approximation
from krein.estimators.dense_dual import Task
from krein.solvers import Dual

__all__ = ["refine_exactly"]


def refine_exactly(a: Approximation, task: Task, dual: Dual, *, tol: float, options: dict[str, Any], verbose: int = 0) -> Dual:
    raise NotImplementedError
