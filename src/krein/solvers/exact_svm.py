"""Exact support vector machines: the duals of a psd kernel, and the choice of their solver.

In: a kernel, objects and tasks, or the labels of a classification. Out: a `Dual` for each task, or a `Classes`. Nothing
is approximated. LIBSVM (through scikit-learn) solves small duals and `refine` large ones, by pairs of rows in blocks.
`dense_dual` solves the linear system of the free rows for tolerances that neither reaches. `choose_solver` decides.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from krein.arrays import Array, Indices
from krein.errors import warn
from krein.kernels import RBF, Kernel, Linear, Polynomial, count_objects, is_vectors, take
from krein.kernels.collections import is_sparse
from krein.solvers.dense_dual import KnownDiagonal, NotConverged, Task, libsvm, solve_dense, violation
from krein.solvers.dual import Dual
from krein.solvers.kernel_values import KernelValues
from krein.solvers.problem import FLOOR, central_multiplier
from krein.solvers.refine import ALLOWED, POLISHED_ROWS, ROUNDING_SHARE, ROW_MEGABYTES, refine_exactly
from krein.solvers.smo import Pool

__all__ = ["Classes", "choose_solver", "is_narrow", "libsvm_kernel", "solve_classes", "solve_exactly"]

# LIBSVM evaluates the kernel itself up to LIBSVM_ROWS rows of vectors that have at most LIBSVM_FEATURES features.
LIBSVM_ROWS = 4000
LIBSVM_FEATURES = 64
# It is given the kernel's matrix up to MATRIX_ROWS rows; more than that takes longer to evaluate than what is needed.
MATRIX_ROWS = 1500
# With a box wider than NARROW_BOX (C k(x, x), in units of a label) pairs in blocks measured slower than LIBSVM, so it
# has all rows if it has the kernel by name, and the matrix up to WIDE_MATRIX_ROWS rows if not.
NARROW_BOX = 10.0
WIDE_MATRIX_ROWS = 5000
# Up to TINY_ROWS rows every tol is met to rounding: it takes no time, and rows of weight 2 are then rows given twice.
TINY_ROWS = 100
# LIBSVM makes at most this many steps if max_iter is not given. Tasks that need more are left to the other solvers.
LIBSVM_STEPS = 10_000_000
# LIBSVM's solution is rejected if the kernel's own values give more than EXCESS times the violation it was asked for.
EXCESS = 3.0
# Those values are computed in single precision if that changes a violation by at most this share of what is allowed.
CHECKING_SHARE = 0.1
# Similarities beyond LARGEST, or all below 1 / LARGEST, are more than LIBSVM's single precision can take.
LARGEST = 1e30
# All classes are solved in one call up to CLASS_ROWS rows a pair of classes, and up to CLASS_ROWS_IN_ALL rows.
CLASS_ROWS = 4000
CLASS_ROWS_IN_ALL = 20_000
# LIBSVM is given the matrix of all classes up to CLASS_MATRIX_ROWS rows.
CLASS_MATRIX_ROWS = 6000


def choose_solver(kernel: Kernel, objects: Any, task: Task, *, tol: float, max_iter: int, usual: float) -> str:
    """Return which solver takes ``task``; ``objects`` are its rows, m of them, and ``usual`` is the mean k(x, x).

    1. ``"ends"``: the box and the sum leave one point (nu = 1).
    2. ``"matrix to rounding"``: tol is below 1e-6 and m is at most POLISHED_ROWS, or m is at most TINY_ROWS and
       max_iter is not given.
    3. ``"blocks"``: tol is below 1e-6.
    4. ``"libsvm"``: LIBSVM has the kernel by name, and max_iter is given, or m is at most LIBSVM_ROWS and vectors
       have at most LIBSVM_FEATURES features.
    5. ``"matrix"``: max_iter is given, or m is at most MATRIX_ROWS.
    6. ``"libsvm"``: the box is wide (`is_narrow`) and LIBSVM has the kernel by name.
    7. ``"matrix"``: the box is wide and m is at most WIDE_MATRIX_ROWS.
    8. ``"blocks"``: pairs of rows in blocks, otherwise.
    """
    m = len(task.rows)
    if task.is_full:
        return "ends"
    if m <= TINY_ROWS and max_iter < 1:
        return "matrix to rounding"
    if 1e3 * tol < ALLOWED:
        return "matrix to rounding" if m <= POLISHED_ROWS else "blocks"
    named = libsvm_kernel(kernel, objects, task.kind) is not None
    if named and (max_iter > 0 or (m <= LIBSVM_ROWS and objects.shape[1] <= LIBSVM_FEATURES)):
        return "libsvm"
    if max_iter > 0 or m <= MATRIX_ROWS:
        return "matrix"
    if is_narrow(task, usual):
        return "blocks"
    if named:
        return "libsvm"
    return "matrix" if m <= WIDE_MATRIX_ROWS else "blocks"


def is_narrow(task: Task, usual: float) -> bool:
    """Whether pairs in blocks converge fast: the 90 % quantile of the ranges is small, in units of a label."""
    width = float(np.quantile(np.maximum(-task.low, task.high), 0.9)) / (task.spread(usual) or 1.0)
    return usual * width <= NARROW_BOX


def solve_exactly(
    kernel: Kernel,
    objects: Any,
    tasks: Sequence[Task],
    *,
    tol: float = 1e-6,
    max_iter: int = -1,
    shrinking: bool = True,
    cache_size: float = 200,
    starts: Sequence[Dual | Array | None] | None = None,
    verbose: int = 0,
) -> list[Dual]:
    """Return the dual of each task under ``kernel`` itself, which has to be psd and bound.

    No row violates its condition by more than 1000 ``tol``, and at most by 1e-3, in units of a label, or of what half
    of the targets are within: scikit-learn's default at the default ``tol``. A `NotConverged` warning says where that
    was not reached. ``starts`` are solutions to begin with, of an earlier or of an approximate problem; LIBSVM takes
    none. `choose_solver` says how each task is solved. Tasks of the same rows, as those of each class against the rest,
    share the evaluated rows of the matrix.
    """
    begun = list(starts) if starts is not None else [None] * len(tasks)
    options = {"shrinking": bool(shrinking), "cache_size": cache_size}
    same = len(tasks) > 1 and all(np.array_equal(task.rows, tasks[0].rows) for task in tasks[1:])
    shared = cache(partial(_pool, kernel, objects, tasks[0], cache_size)) if same else None
    found = []
    for task, start in zip(tasks, begun, strict=True):
        everything = len(task.rows) == count_objects(objects) and np.array_equal(task.rows, np.arange(len(task.rows)))
        exact = KernelValues(kernel, objects if everything else take(objects, task.rows))
        b = start.coefficients if isinstance(start, Dual) else start
        found.append(_solve(exact, task, b, tol, int(max_iter), options, shared, verbose))
    left = [dual for dual in found if not dual.converged and dual.method != "refined"]
    if left:  # refine has its own warning
        which = f" in {len(left)} of {len(tasks)} duals" if len(tasks) > 1 else ""
        limit = f" (max_iter={max_iter})" if max_iter > 0 else ""
        gap = max(dual.gap for dual in left)
        warn(
            f"Solver terminated early{limit} with a relative duality gap of {gap:.2g}{which}; "
            f"tol={tol:g} was asked for. Raise max_iter or tol, lower C, or pre-process the data with StandardScaler "
            "or MinMaxScaler.",
            NotConverged,
        )
    return found


def _solve(
    exact: KernelValues,
    task: Task,
    start: Array | None,
    tol: float,
    max_iter: int,
    options: dict[str, Any],
    shared: Callable[[], Pool] | None,
    verbose: int,
) -> Dual:
    kernel, objects = exact.evaluator.kernel, exact.objects
    usual = float(np.abs(exact.diagonal).mean())
    way = choose_solver(kernel, objects, task, tol=tol, max_iter=max_iter, usual=usual)
    if way == "ends":
        return _at_the_ends(exact, task, tol)
    if way == "matrix to rounding":
        begun = None if start is None else Dual(start, 0.0, np.nan, np.inf, 0, False, "")
        found = solve_dense(exact.matrix(), task, tol=tol, max_iter=max_iter, start=begun, options=options)
        if found.converged or max_iter > 0:
            return found
        start = found.coefficients
    if way in ("libsvm", "matrix"):
        tried = _by_libsvm(exact, task, way == "libsvm", usual, max_iter, options)
        if tried is not None:
            return tried
    alike = way == "blocks" and tol >= 1e-3 * ALLOWED and start is None and not exact.is_quick
    pool = shared() if shared is not None and alike else None
    return refine_exactly(exact, task, start, tol=tol, cache_size=options["cache_size"], shared=pool, verbose=verbose)


def _pool(kernel: Kernel, objects: Any, task: Task, cache_size: float) -> Pool:
    """The matrix of the rows of several tasks, those of each class against the rest for instance."""
    exact = KernelValues(kernel, take(objects, task.rows))
    usual = float(np.abs(exact.diagonal).mean())
    allowed = ALLOWED * (task.spread(usual) or usual * float(task.high.max()))
    norm = 0.5 * float(np.sqrt(len(task.rows)) * np.median(task.high - task.low))
    quick = exact.rounded(ROUNDING_SHARE * allowed / max(norm, 1e-300))
    return Pool(quick, np.arange(len(task.rows)), 1e6 * max(ROW_MEGABYTES, cache_size))


def _at_the_ends(exact: KernelValues, task: Task, tol: float) -> Dual:
    b = task.high
    product = exact.product(b)
    point = task.problem(KnownDiagonal(exact.diagonal)).point(b, central_multiplier(task, b, product), product)
    return Dual(b, point.multiplier, point.objective, point.gap, 1, point.gap <= max(tol, 1e-6), "libsvm")


def _by_libsvm(
    exact: KernelValues, task: Task, by_name: bool, usual: float, max_iter: int, options: dict[str, Any]
) -> Dual | None:
    """LIBSVM's solution, or None if it did not end or if the kernel's own values do not agree with it."""
    named = libsvm_kernel(exact.evaluator.kernel, exact.objects, task.kind, exact.diagonal) if by_name else None
    given = exact.matrix() if named is None else np.asarray(exact.objects, dtype=np.float64, order="C")
    limit = max_iter if max_iter > 0 else LIBSVM_STEPS
    try:
        b, intercept, steps, finished = libsvm(given, task, ALLOWED, limit, options, named, usual)
    except ValueError:  # it squares the rows, which may lose all digits
        return None
    if not finished and max_iter < 1:
        return None
    size = task.spread(usual) or usual * float(task.high.max())
    own = exact.in_single(float(np.linalg.norm(b)), CHECKING_SHARE * ALLOWED * size)
    product: Array = given @ b if named is None else own.product(b)
    missed = float(violation(task, b, product - task.linear + intercept).max(initial=0.0))
    if finished and max_iter < 1 and missed > EXCESS * ALLOWED * size:
        return None  # LIBSVM's values differ: it loses digits of rows far from the origin
    point = task.problem(KnownDiagonal(exact.diagonal)).point(b, intercept, product)
    return Dual(b, intercept, point.objective, point.gap, max(1, steps), finished, "libsvm", ((steps, point.gap),))


def libsvm_kernel(kernel: Kernel, objects: Any, kind: str, diagonal: Array | None = None) -> dict[str, Any] | None:
    """The parameters of LIBSVM's own kernel, if it has this one and the values suit single precision; else None."""
    if not is_vectors(objects) or is_sparse(objects):
        return None
    if isinstance(kernel, RBF):
        gamma = kernel.scale**2 if kernel.gamma is None else kernel.gamma
        return {"kernel": "rbf", "gamma": float(gamma)} if np.ndim(gamma) == 0 else None
    if kind == "one-class" or not isinstance(kernel, Linear | Polynomial):
        return None
    diagonal = np.asarray(kernel.diag(objects)) if diagonal is None else diagonal
    if not 1.0 / LARGEST < float(diagonal.max(initial=0.0)) < LARGEST:
        return None
    if isinstance(kernel, Linear):
        return {"kernel": "linear"}
    if isinstance(kernel.degree, int):
        return {"kernel": "poly", "degree": kernel.degree, "gamma": kernel.gamma, "coef0": kernel.coef0}
    return None


# -- all classes at once -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Classes:
    """All duals of a one-against-one classification, in LIBSVM's layout."""

    support: Indices  # (n_SV,) rows, grouped by class
    n_support: Indices  # (n_classes,)
    dual_coef: Array  # (n_classes - 1, n_SV); of two classes positive for the second, of more for the first of a pair
    intercepts: Array  # (n_pairs,)
    n_iter: Indices  # (n_pairs,) LIBSVM's steps
    finished: bool  # whether LIBSVM came to an end
    gap: float  # the largest relative duality gap over all pairs
    violation: float  # the largest violation of a row's condition over all pairs, in units of a label
    gaps: Array  # (n_pairs,)


def solve_classes(
    kernel: Kernel,
    objects: Any,
    labels: Indices,
    limits: Array,
    n_classes: int,
    *,
    tol: float = 1e-6,
    max_iter: int = -1,
    shrinking: bool = True,
    cache_size: float = 200,
) -> Classes | None:
    """Return the duals of every pair of classes by one call of LIBSVM; None where `solve_exactly` is to be asked.

    ``labels`` are 0 to n_classes - 1, or -1 for a row that takes no part; ``limits`` are C times the weight of each
    row. None is returned where tol is below 1e-6 or rows are at most TINY_ROWS, where rows are many (CLASS_ROWS a pair,
    CLASS_ROWS_IN_ALL), where LIBSVM neither has the kernel by name for such vectors nor takes its matrix
    (CLASS_MATRIX_ROWS rows), where it does not come to an end, and where the kernel's own values contradict it.
    """
    if 1e3 * tol < ALLOWED or (len(labels) <= TINY_ROWS and max_iter < 1):
        return None
    rows = None
    if labels.min() < 0:
        rows = np.flatnonzero(labels >= 0)
        objects, labels, limits = take(objects, rows), labels[rows], limits[rows]
    n = len(labels)
    sizes = np.bincount(labels, minlength=n_classes)
    if n > CLASS_ROWS_IN_ALL or int(np.sort(sizes)[-2:].sum()) > CLASS_ROWS:
        return None
    named = libsvm_kernel(kernel, objects, "margin")
    if named is None or objects.shape[1] > LIBSVM_FEATURES:
        if n > CLASS_MATRIX_ROWS:
            return None
        exact = KernelValues(kernel, objects)
        named, given = {"kernel": "precomputed"}, exact.matrix()
        if not 1.0 / LARGEST < float(np.abs(np.diagonal(given)).max()) < LARGEST:
            return None
    else:
        given = np.asarray(objects, dtype=np.float64, order="C")
        exact = KernelValues(kernel, given)
    limit = int(max_iter) if max_iter > 0 else LIBSVM_STEPS
    machine = SVC(C=1.0, tol=ALLOWED, max_iter=limit, shrinking=bool(shrinking), cache_size=cache_size, **named)
    with warnings.catch_warnings(), config_context(assume_finite=True, skip_parameter_validation=True):
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(given, labels, sample_weight=limits)
    finished = machine.fit_status_ == 0
    if not finished and max_iter < 1:
        return None
    support, ends = machine.support_, np.cumsum(machine.n_support_)
    coefficients = np.asarray(machine.dual_coef_)
    checked = exact.in_single(float(np.linalg.norm(coefficients)), CHECKING_SHARE * ALLOWED)
    products = []
    for stop, size in zip(ends, machine.n_support_, strict=True):
        own = slice(stop - size, stop)
        some, weights = support[own], coefficients[:, own].T
        if named["kernel"] == "precomputed":
            products.append(given[:, some] @ weights)
        else:
            products.append(checked.times(checked.chosen(), checked.chosen(some), weights))
    gaps, worst = _judge_pairs(machine, coefficients, products, labels, limits, n_classes)
    if finished and max_iter < 1 and worst > EXCESS * ALLOWED:
        return None
    if not finished:
        warn(
            f"Solver terminated early (max_iter={max_iter}) with a relative duality gap of {gaps.max():.2g}; "
            f"tol={tol:g} was asked for. Raise max_iter or tol, lower C, or pre-process the data with StandardScaler "
            "or MinMaxScaler.",
            NotConverged,
        )
    return Classes(
        support if rows is None else rows[support],
        machine.n_support_,
        coefficients,
        np.asarray(machine.intercept_),
        np.asarray(machine.n_iter_),
        finished,
        float(gaps.max()),
        worst,
        gaps,
    )


def _judge_pairs(
    machine: SVC, coefficients: Array, products: list[Array], labels: Indices, limits: Array, n_classes: int
) -> tuple[Array, float]:
    """The relative duality gap of every pair, and the largest violation of all, from the kernel's own products.

    ``products[i]`` is k(X, SV_i) times the coefficients of class i, one column for each other class.
    """
    dense = np.zeros((len(labels), n_classes - 1))
    dense[machine.support_] = coefficients.T
    members = [np.flatnonzero(labels == i) for i in range(n_classes)]
    gaps, worst = [], 0.0
    for p, (i, j) in enumerate(combinations(range(n_classes), 2)):
        here = np.concatenate([members[i], members[j]])
        sign = np.ones(len(here))
        sign[len(members[i]) :] = -1.0
        if n_classes == 2:
            sign = -sign
        product = products[i][here, j - 1] + products[j][here, i]
        b = np.concatenate([dense[members[i], j - 1], dense[members[j], i]])
        a, high = b * sign, limits[here]
        slope = sign * (product + machine.intercept_[p]) - 1.0  # of a row's margin: what is below 0 costs
        violated = np.maximum(np.where(a < high, -slope, 0.0), np.where(a > 0.0, slope, 0.0))
        worst = max(worst, float(violated.max()))
        excess = float((slope * a - np.minimum(slope * high, 0.0)).sum()) - float(machine.intercept_[p] * b.sum())
        objective = 0.5 * float(b @ product) - float(a.sum())
        gaps.append(max(0.0, excess) / (abs(objective) + FLOOR * float(high.sum())))
    return np.array(gaps), worst
