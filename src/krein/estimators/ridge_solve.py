"""Ridge for given alphas: on the factored matrix, or with the kernel's own by Cholesky where its rows are few enough.

In: a factorization, or a kernel and objects; weights, targets and one t = alpha + shift for each of them. Out: the dual
(K + t W⁻¹)⁻¹ y.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import scipy.linalg

from krein.arrays import Array
from krein.blocksparse import EPS
from krein.errors import InputError, warn
from krein.factorization import Factorization
from krein.kernels import Evaluator, Kernel, count_objects
from krein.kernels.objects import rows
from krein.shared import precise
from krein.solvers.leave_one_out import Factored, Spectrum, decompose, rounding_of

__all__ = ["solve_factored", "solve_whole"]

LOST = 1e-5  # of y, which rounding may cost a prediction of the kernel's own values
SINGULAR = 4.0  # roundings of its own diagonal that a row has to have for itself
CHUNK = 2**22  # numbers of the matrix that are evaluated at a time


def solve_factored(
    f: Factorization, weights: Array, y: Array, ridges: Array, path: Spectrum | Factored | None = None
) -> tuple[Array, Array]:
    """(K + t W⁻¹)⁻¹ y, column by column where t differs, and M Uᵀ times that, (r, p); ``path`` if it is there already.

    The second is Uᵀ(y - t W⁻¹ dual) where t is small: as good as y is, while a product with the dual, whose part off
    the span of U is as large as y / t, would have an error of rounding times the largest eigenvalue over t.
    """
    plain = bool(np.all(weights == 1.0))
    dual, inner = np.empty(y.shape), np.empty((f.rank, y.shape[1]))
    ends = f.ends()
    size = max(abs(ends.smallest), abs(ends.largest))
    for t in np.unique(ridges).tolist():
        mine = ridges == t
        solved, regular = None, True
        if plain and path is None and t > rounding_of(f.rank, size):
            with contextlib.suppress(InputError):  # singular: there may be least squares
                solved = f.solve(y[:, mine], t - f.shift)
        if solved is None:
            path = decompose(f, weights) if path is None else path
            if isinstance(path, Spectrum):
                if path.least_squares(t):
                    warn(
                        f"alpha = {t:g} leaves a matrix that is singular to rounding (its largest eigenvalue is "
                        f"{size:.3g}), so the smallest solution of the least squares is used. Pass a larger alpha, or "
                        "scale the data."
                    )
                regular = t > path.rounding
            solved = path.solve(y[:, mine], t)
        dual[:, mine] = solved
        stable = regular and t < size and weights.min() > 0.0  # a row of no weight has a value of its own
        inner[:, mine] = (
            f.project(y[:, mine] - (t / weights)[:, None] * solved) if stable else f.core @ f.project(solved)
        )
    return dual, inner


def solve_whole(kernel: Kernel, objects: Any, weights: Array, y: Array, ridges: Array) -> Array | None:
    """(K + t W⁻¹)⁻¹ y for y of shape (n, p), t one of ``ridges`` for each column; None where that is singular.

    Half of one matrix is held at a time, 4 n² bytes, and its Cholesky factor takes its place.
    """
    dual, n = np.empty(y.shape), len(y)
    for t in np.unique(ridges):
        mine = ridges == t
        packed = _packed(kernel, objects, t / weights)
        diagonal = _pivots(packed, n)
        factor, failed = scipy.linalg.lapack.dpftrf(n, packed.ravel(order="K"), uplo="L", overwrite_a=True)
        left = _pivots(factor.reshape(packed.shape, order="F"), n) ** 2  # of each row, what the rows before do not say
        if failed or (left <= SINGULAR * EPS * diagonal).any():
            warn(
                f"alpha = {t:g} leaves a matrix of {n} rows that is singular to rounding, so a factored approximation "
                "of it is used. Pass a larger alpha for the kernel's own."
            )
            return None
        dual[:, mine], _ = scipy.linalg.lapack.dpftrs(n, factor, y[:, mine], uplo="L")
        lost = EPS * math.sqrt(n) * float((diagonal - t / weights).max()) * np.linalg.norm(dual[:, mine], axis=0)
        if (lost > LOST * np.linalg.norm(y[:, mine], axis=0) / math.sqrt(n)).any():
            warn(
                f"alpha = {t:g} is so small beside the matrix of {n} rows that rounding would cost predictions more "
                f"than {LOST:g} of y, so a factored approximation of it is used. Raise alpha, or scale the data."
            )
            return None
    return dual


def _packed(kernel: Kernel, objects: Any, ridge: Array) -> Array:
    """The lower half of K + diag(ridge) in LAPACK's rectangular full packed format.

    The first k = ceil(n / 2) columns stand as they are; the triangle of the others lies above them, transposed.
    """
    objects, n = precise(objects), count_objects(objects)
    k, even = (n + 1) // 2, 1 - n % 2
    packed: Array = np.empty((n + even, k), order="F")
    evaluator = Evaluator(kernel, chunk_entries=CHUNK)
    step = max(1, CHUNK // n)
    for start in range(0, n, step):
        stop = min(start + step, n)
        block = np.array(evaluator.block(rows(objects, slice(start, stop)), rows(objects, slice(0, stop))), np.float64)
        here = np.arange(start, stop)
        block[here - start, here] += ridge[here]
        for r in range(start, stop):
            packed[r + even, : min(r + 1, k)] = block[r - start, : min(r + 1, k)]
            if r >= k:
                packed[: r - k + 1, r - k + 1 - even] = block[r - start, k : r + 1]
    return packed


def _pivots(packed: Array, n: int) -> Array:
    """The diagonal of what is packed."""
    k, even = packed.shape[1], 1 - n % 2
    first, second = np.arange(k), np.arange(n - k)
    return np.concatenate([packed[first + even, first], packed[second, second + 1 - even]])
