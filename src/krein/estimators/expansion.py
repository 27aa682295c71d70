"""Dual coefficients in, a function of new objects out: f(x) = k(x, X) alpha, through the factorization or directly.

Through the factorization it is u(x) M Uᵀ alpha: the landmarks of one cluster per object, whatever n is. Small data
whose matrix was taken as it is go the direct way, over the objects with alpha != 0, so that nothing is approximated.
The shift belongs to an object's similarity to itself and so to no new object.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm import tqdm

from krein.approximation import Approximation
from krein.arrays import Array
from krein.eigensystem import eigensystem
from krein.estimators.given import GivenRows
from krein.kernels import Evaluator, Precomputed, count_objects, take
from krein.kernels.objects import rows
from krein.objects import takes_vectors

__all__ = ["Expansion", "expand", "is_exact", "own_matrix", "seen_by"]

CHUNK = 2**16  # objects predicted at a time
LOOKED_AT = 4  # rows of a matrix put together again that are compared with the kernel's,
SAME = 1e-12  # and how far they may be from them, times the matrix' norm: no direction beyond it was left out
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class Expansion:
    """A function of the objects a kernel compares, with ``n_outputs`` values."""

    approximation: Approximation
    inner: Array  # (r, p): M Uᵀ alpha
    support: Any = None  # objects with alpha != 0, where the kernel itself is evaluated
    weights: Array | None = None  # (len(support), p)

    def __call__(self, X_new: Any, verbose: int = 0) -> Array:
        """The values at new objects, (n_new, p); in the form `seen_by` gives them."""
        a, objects = seen_by(self.approximation, X_new)
        n = count_objects(objects)
        out = np.empty((n, self.inner.shape[1]))
        evaluator = Evaluator(a.kernel)
        for start in tqdm(range(0, n, CHUNK), desc="predict", disable=not verbose or n <= CHUNK):
            part = slice(start, min(start + CHUNK, n))
            some = rows(objects, part)
            if self.weights is None:
                out[part] = a.extend(some) @ self.inner
                continue
            for inside, block in evaluator.chunks(some, self.support):
                out[start + inside.start : start + inside.stop] = block @ self.weights
        return out


def is_exact(a: Approximation) -> bool:
    """Whether the matrix was taken as it is, to rounding, because there are few objects."""
    return a.search_ is not None and a.search_.error is None


def own_matrix(a: Approximation, *, anew: bool = False) -> Array:
    """All of a matrix that was taken as it is, shift included; what was evaluated once is not evaluated again.

    Vectors are: that is cheap, and exact to the last digit. Of any other objects it is put together from its
    eigenvectors, and a few of its rows are held against the kernel. ``anew`` asks the kernel in any case.
    """
    f, evaluator = a.factorization, Evaluator(a.kernel)
    if not (anew or takes_vectors(a.kernel) or isinstance(a.kernel, Precomputed)):
        K = f.to_dense()
        size = float(np.abs(K).sum(1).max(initial=0.0))  # a norm
        K[np.abs(K) <= EPS * size] = 0.0  # a graph falls into pieces by its zeros
        some = np.unique(np.linspace(0, len(K) - 1, LOOKED_AT).astype(int))
        rest = K[some] - evaluator.block(take(a.objects, some), a.objects)
        rest[np.arange(len(some)), some] -= f.shift
        if np.linalg.norm(rest, axis=1).max(initial=0.0) <= SAME * size:
            return K
    K = np.asarray(evaluator.symmetric(a.objects), dtype=np.float64)
    K[np.diag_indices_from(K)] += f.shift
    return K


def expand(a: Approximation, dual: Array, direct: bool, inner: Array | None = None) -> Expansion:
    """Return x -> k(x, X) dual for dual of shape (n, p); ``direct`` where the kernel's own values are meant.

    ``inner``, (r, p), is M Uᵀ dual where that is known better than the dual: a ridge solution has a part off the span
    of U, the residual over alpha, that no similarity sees, but that rounding turns into one where alpha is small.
    """
    f = a.factorization
    if inner is None:
        inner = f.core @ f.project(dual)
    elif direct:
        system = eigensystem(f.core, f.ranks)
        dual = f.lift(system.apply(1.0 / system.values, inner))
    if not direct:
        return Expansion(a, inner)
    used = np.flatnonzero(np.any(dual != 0.0, axis=1))
    return Expansion(a, inner, take(a.objects, used), dual[used])


def seen_by(a: Approximation, X_new: Any) -> tuple[Approximation, Any]:
    """Return (approximation, objects) with which ``extend`` works: rows of a precomputed matrix become indices."""
    if isinstance(a.kernel, Precomputed) and getattr(X_new, "ndim", 1) == 2 and X_new.shape[1] == a.kernel.n_objects:
        kernel = GivenRows(a.kernel.S, X_new)
        return replace(a, kernel=kernel), kernel.new
    return a, X_new
