"""Ridge for given alphas: on the factored matrix, or exactly with the kernel's own matrix by Cholesky factorization.

In: a factorization, or a kernel and objects; weights, targets and one t = alpha + shift for each of them. Out: the dual
(K + t W⁻¹)⁻¹ y. With a variance constraint it is the dual of another t, times a factor.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack
from scipy.optimize import brentq

from krein.arrays import EPS, Array
from krein.errors import InputError, warn
from krein.factorization import Factorization
from krein.factorization.core import is_dense
from krein.kernels import Evaluator, Kernel, take
from krein.kernels.collections import precise, rows
from krein.solvers.leave_one_out import Factored, RidgeEigensystem, decompose, rounding_of

__all__ = ["constrained", "solve_exactly", "solve_factored"]

# The error of a prediction that single precision may cause, relative to y. It is also the limit for rounding in double
# precision where an eigendecomposition is affordable instead.
SMALL_LOSS = 1e-5
# A warning is given if rounding may cause a relative error above WARNED_LOSS. Above LARGEST_LOSS the system counts as
# singular.
WARNED_LOSS = 1e-3
LARGEST_LOSS = 1e-2
# A matrix counts as singular if a pivot is below SINGULAR_PIVOT roundings of its diagonal entry.
SINGULAR_PIVOT = 4.0
# At most TILE_ENTRIES entries of the matrix are evaluated at a time.
TILE_ENTRIES = 2**22
# Above SINGLE_ROWS rows, a factor in single precision with refinement is faster than one in double precision.
SINGLE_ROWS = 5000
SINGLE_EPS = float(np.finfo(np.float32).eps)
# The residual is refined to SMALL_RESIDUAL of y, in at most REFINEMENT_STEPS steps against the rounded matrix and at
# most KERNEL_STEPS against the kernel's own values.
SMALL_RESIDUAL = 1e-10
REFINEMENT_STEPS = 20
KERNEL_STEPS = 3
# The penalty of a variance constraint is sought within this factor of the largest eigenvalue.
PENALTY_RANGE = 1e12


def solve_factored(
    f: Factorization, weights: Array, y: Array, ridges: Array, path: RidgeEigensystem | Factored | None = None
) -> tuple[Array, Array]:
    """Return the dual (K + t W⁻¹)⁻¹ y, one t per column, and M Uᵀ times the dual, (r, p).

    ``path`` is the eigensystem, if it is known. For a small t the second result is computed as Uᵀ(y - t W⁻¹ dual),
    which is as accurate as y. In the product with the dual, whose part outside the span of U is as large as y / t,
    rounding would be multiplied by the largest eigenvalue over t.
    """
    plain = bool(np.all(weights == 1.0))
    dual, inner = np.empty(y.shape), np.empty((f.rank, y.shape[1]))
    ends = f.ends()
    size = max(abs(ends.smallest), abs(ends.largest))
    for t in np.unique(ridges).tolist():
        mine = ridges == t
        solved, regular = None, True
        with contextlib.suppress(InputError):  # singular: least squares are tried below
            if not plain:
                solved = _solve_weighted(f, weights, y[:, mine], t)
            elif path is None and t > rounding_of(f.rank, size):
                solved = f.solve(y[:, mine], t - f.shift)
        if solved is None:
            path = decompose(f, weights) if path is None else path
            if isinstance(path, RidgeEigensystem):
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


def constrained(
    solve: Callable[[float], Array], weights: Array, y: Array, t: float, variance: float, largest: float
) -> tuple[float, float]:
    """Return t' and c such that c times ridge with the penalty t' is ridge with the penalty t and this variance.

    That minimises |f - y|² + t |f|² among the f whose values at the rows have the mean square ``variance`` (Oglic and
    Gärtner 2018). A multiplier m of the constraint gives (1 + m) f + t K⁻¹ f = y, which is ridge with t' = t / (1 + m),
    times t' / t. The mean square grows with t', from 0 to that of K y / t. ``solve`` returns the dual of y, (n,), for a
    penalty; ``largest`` is the largest eigenvalue.
    """
    share, wanted = weights / weights.sum(), math.sqrt(variance)

    def excess(log: float) -> float:
        penalty = math.exp(log)
        fitted = y - penalty * np.divide(solve(penalty), weights, out=np.zeros_like(y), where=weights > 0.0)
        return float(penalty / t * math.sqrt(share @ fitted**2) - wanted)

    low, high = (math.log(max(largest, t) * limit) for limit in (1.0 / PENALTY_RANGE, PENALTY_RANGE))
    top = excess(high)
    if top < 0.0:
        raise InputError(
            f"With this alpha, values fitted to y have a mean square of at most {(top + wanted) ** 2:.4g}; got "
            f"variance={variance:g}. Pass a smaller alpha or variance."
        )
    penalty = math.exp(brentq(excess, low, high, xtol=1e-13, rtol=1e-13)) if excess(low) < 0.0 else math.exp(low)
    return penalty, penalty / t


def _solve_weighted(f: Factorization, weights: Array, y: Array, t: float) -> Array | None:
    """Return (K + t W⁻¹)⁻¹ y by Cholesky factors, or None if there are none.

    They are accurate for weights of any range. The error of an eigendecomposition is rounding times the largest weight
    over t.
    """
    if weights.min() <= 0.0 or t <= 0.0:
        return None
    n = f.shape[0]
    if is_dense(f.core) and 2 * f.rank >= n:
        A = f.with_core(f.core, 0.0).to_dense()
        A[np.diag_indices(n)] += t / weights
        return lapack.dpotrs(A.T, y, lower=0)[0] if _factor_in_place(A) else None
    dual = Factored(f, weights).solve(y, t)
    rest = y - f.lift(f.core @ f.project(dual)) - (t / weights)[:, None] * dual
    lost = float(np.abs(rest).max() / max(np.abs(y).max(), np.finfo(float).tiny))
    if not lost <= WARNED_LOSS:
        warn(
            f"alpha = {t:g} is so small beside weights of up to {weights.max():.3g} that rounding may cost predictions "
            f"{lost:.1g} of y. Raise alpha, or limit the weights."
        )
    return dual


def solve_exactly(
    kernel: Kernel,
    objects: Any,
    weights: Array,
    y: Array,
    ridges: Array,
    single_rows: int = SINGLE_ROWS,
    bearable: float = LARGEST_LOSS,
) -> Array | None:
    """Return (K + t W⁻¹)⁻¹ y for y of shape (n, p) by Cholesky factorization, with one t of ``ridges`` per column.

    The result is None if the matrix is singular, or if rounding may change predictions by more than ``bearable`` times
    y. Above ``single_rows`` rows the factor has single precision, which takes half the memory and half the time, and
    the solution is refined to double precision. If that does not converge, the factor has double precision. Rows
    without weight have the coefficient 0.
    """
    dual = np.zeros(y.shape)
    used = np.flatnonzero(weights > 0.0)
    if len(used) < len(y):
        found = solve_exactly(kernel, take(objects, used), weights[used], y[used], ridges, single_rows, bearable)
        if found is None:
            return None
        dual[used] = found
        return dual
    n, objects = len(y), precise(objects)
    units = np.abs(y).max(axis=0, initial=0.0)  # so that no scale of y overflows
    y = y / np.where(units > 0.0, units, 1.0)
    for t in np.unique(ridges):
        mine = ridges == t
        system = _Dense(Evaluator(kernel, chunk_entries=TILE_ENTRIES), objects, t / weights)
        found = system.solve_single(y[:, mine]) if n > single_rows and system.suits_single else None
        if found is None:
            found = system.solve_double(y[:, mine])
        if found is None:
            return None
        sizes = np.maximum(np.linalg.norm(y[:, mine], axis=0), np.finfo(float).tiny) / math.sqrt(n)
        lost = float((EPS * math.sqrt(n) * system.largest * np.linalg.norm(found, axis=0) / sizes).max())
        if not lost <= bearable:
            return None
        if lost > WARNED_LOSS:
            warn(
                f"alpha = {t:g} is so small beside the matrix of {n} rows that rounding may cost predictions "
                f"{lost:.1g} of y. Raise alpha, or scale the data."
            )
        dual[:, mine] = found
    dual *= units
    return dual


class _Dense:
    """The dense matrix K + diag(ridge), which is filled tile by tile and factored in place."""

    def __init__(self, evaluator: Evaluator, objects: Any, ridge: Array) -> None:
        self.evaluator, self.objects, self.ridge = evaluator, objects, ridge
        self.own = np.asarray(evaluator.diag(objects), dtype=np.float64)
        self.largest = float(np.abs(self.own).max(initial=0.0))

    @property
    def suits_single(self) -> bool:
        """Whether single precision can represent the values of the matrix."""
        return 1e-30 < self.largest < 1e30 and float(self.ridge.max(initial=0.0)) < 1e30

    def solve_double(self, y: Array) -> Array | None:
        """The solution in double precision, 8 n² bytes; None if the matrix is singular to rounding."""
        factor = self._factored(np.float64)
        return None if factor is None else lapack.dpotrs(factor.T, y, lower=0)[0]

    def solve_single(self, y: Array) -> Array | None:
        """The solution by a factor in single precision, 4 n² bytes, refined in double precision; None if it fails.

        The factor is stored in one triangle of the array, and the rounded values of the kernel stay in the other. The
        solution is first refined against these. If their rounding may change predictions too much, it is then refined
        against the kernel's own values.
        """
        factor = self._factored(np.float32)
        if factor is None:
            return None
        norms = np.maximum(np.linalg.norm(y, axis=0), np.finfo(float).tiny)
        x = self._refined(factor, y, norms)
        if x is None:
            return None
        for _ in range(KERNEL_STEPS):
            lost = 0.5 * SINGLE_EPS * self.largest * np.linalg.norm(x, axis=0)
            if (lost <= SMALL_LOSS * norms / math.sqrt(len(y))).all():
                return x
            rest = y - self._product(x)
            if (np.linalg.norm(rest, axis=0) <= SMALL_LOSS * SINGLE_EPS * norms).all():
                return x
            more = self._refined(factor, rest, np.maximum(np.linalg.norm(rest, axis=0), np.finfo(float).tiny))
            if more is None:
                return None
            x = x + more
            # a correction by a share q of x leaves about q² to the next one
            if (np.linalg.norm(more, axis=0) <= math.sqrt(SMALL_LOSS) * np.linalg.norm(x, axis=0)).all():
                return x
        return None

    def _factored(self, dtype: Any) -> Array | None:
        """Return the matrix with its Cholesky factor in the lower triangle, or None if it is singular."""
        n = len(self.ridge)
        A = np.empty((n, n), dtype=dtype)
        step = max(1, TILE_ENTRIES // n)
        for start in range(0, n, step):
            stop = min(start + step, n)
            some = rows(self.objects, slice(start, stop))
            tile = self.evaluator.block(some, rows(self.objects, slice(0, stop)) if start else some)
            A[start:stop, :stop] = tile
            A[:start, start:stop] = tile[:, :start].T
        A[np.diag_indices(n)] = self.own + self.ridge
        return A if _factor_in_place(A) else None

    def _refined(self, factor: Array, y: Array, norms: Array) -> Array | None:
        """Return the solution for the rounded kernel, in double precision, or None if it does not converge."""
        x, rest, before = np.zeros(y.shape), y, math.inf
        for _ in range(REFINEMENT_STEPS):
            size = np.linalg.norm(rest, axis=0) / norms
            if size.max() <= SMALL_RESIDUAL:
                return x
            if not size.max() <= 0.5 * before:
                return None
            before = float(size.max())
            scaled = np.asfortranarray(rest / norms, dtype=np.float32)
            x = x + lapack.spotrs(factor.T, scaled, lower=0)[0].astype(np.float64) * norms
            rest = y - self._rounded_product(factor, x)
        return None

    def _rounded_product(self, factor: Array, x: Array) -> Array:
        """Return (K + diag(ridge)) x, with the rounded values of K above the diagonal of the array."""
        out, n = (self.own + self.ridge)[:, None] * x, len(x)
        step = max(1, TILE_ENTRIES // n)
        for start in range(0, n, step):
            stop = min(start + step, n)
            tile = factor[start:stop, start:].astype(np.float64)
            tile[:, : stop - start] = np.triu(tile[:, : stop - start], 1)
            out[start:stop] += tile @ x[start:]
            out[start:] += tile.T @ x[start:stop]
        return out

    def _product(self, x: Array) -> Array:
        """Return (K + diag(ridge)) x with the kernel's own values."""
        out, n = self.ridge[:, None] * x, len(x)
        step = max(1, TILE_ENTRIES // n)
        for start in range(0, n, step):  # one triangle serves both sides
            stop = min(start + step, n)
            tile = self.evaluator.block(rows(self.objects, slice(start, stop)), rows(self.objects, slice(0, stop)))
            out[start:stop] += tile @ x[:stop]
            out[:start] += tile[:, :start].T @ x[start:stop]
        return out


def _factor_in_place(A: Array) -> bool:
    """Write the Cholesky factor of A into its lower triangle; False if A is singular to rounding."""
    diagonal = np.diagonal(A).astype(np.float64)
    factorize = lapack.dpotrf if A.dtype == np.float64 else lapack.spotrf
    _, failed = factorize(A.T, lower=0, clean=0, overwrite_a=1)  # A.T in LAPACK's order is A: in place
    with np.errstate(over="ignore"):  # of what LAPACK left where it failed
        left = np.square(np.diagonal(A).astype(np.float64))  # squared pivots
    return not failed and bool((left > SINGULAR_PIVOT * np.finfo(A.dtype).eps * diagonal).all())
