"""Krylov methods for a core that is too large to factor: one end of the spectrum, and solves.

In: x -> A x for symmetric A. Out: an eigenvalue or a solution, each with its residual, which is computed from the
result and not taken from the iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
import scipy.sparse.linalg as spla

from krein.arrays import EPS, Array

__all__ = ["Ends", "extreme", "improve"]


@dataclass(frozen=True)
class Ends:
    """Both ends of a spectrum: Ritz values, their residuals, and bounds that hold whatever the iteration did."""

    smallest: float
    largest: float
    residual: float  # the larger of the two residual norms: an eigenvalue lies within it of each Ritz value
    lower_bound: float  # no eigenvalue is below (block Gershgorin)
    upper_bound: float
    exact: bool


def extreme(product: Callable[[Array], Array], n: int, which: Literal["SA", "LA"], norm: float) -> tuple[float, float]:
    """One end and its residual. ARPACK's tolerance is relative to the eigenvalue: move it away from zero."""
    move = 1.0 if which == "LA" else -1.0
    operator = spla.LinearOperator((n, n), matvec=lambda x: product(x) / norm + move * x, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)  # fixed: the same core gives the same answer
    try:
        _, vectors = spla.eigsh(operator, k=1, which=which, v0=start, tol=1e-10, maxiter=500, ncv=40)
    except spla.ArpackNoConvergence as stopped:
        vectors = np.real(stopped.eigenvectors if len(stopped.eigenvalues) else start[:, None])
    v: Array = vectors[:, 0] / np.linalg.norm(vectors[:, 0])
    image = product(v)
    value = float(v @ image)
    return value, float(scipy.linalg.norm(image - value * v)) + 10 * EPS * norm  # rounding leaves a residual too


def improve(
    product: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    b: Array,
    best: Array,
    tolerance: float,
) -> tuple[Array, float]:
    """Bring A x = b from ``best`` to a relative residual of ``tolerance`` if that can be; x, and the one reached.

    Conjugate gradients, MINRES if they fail: each pass works on what the last one left.
    """
    size = float(np.linalg.norm(b))
    operator = spla.LinearOperator((len(b), len(b)), matvec=product, dtype=np.float64)
    preconditioner = spla.LinearOperator((len(b), len(b)), matvec=precondition, dtype=np.float64)
    rest = b - product(best)
    least = float(np.linalg.norm(rest))
    for method in (spla.cg, spla.cg, spla.minres, spla.minres):
        if least <= tolerance * size:
            break
        step, _ = method(operator, rest, rtol=0.1 * tolerance * size / least, M=preconditioner, maxiter=1000)
        after = b - product(best + step)
        left = float(np.linalg.norm(after))
        if np.isfinite(left) and left < least:
            best, rest, least = best + step, after, left
    return best, least / size
