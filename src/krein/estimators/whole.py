"""The kernel itself where its rows are few enough: whether they are, and a dual by LIBSVM.

Nothing is approximated there, so nothing has to be chosen, and up to some thousand rows that is the quickest way too:
to try blocks and ranks takes longer. It takes a kernel that is psd by nature, or a given matrix that is: what has to be
corrected has to be decomposed first.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from krein.arrays import Array
from krein.blocksparse import EPS
from krein.error_estimate import EXACT_ROWS
from krein.errors import KreinWarning
from krein.kernels import RBF, Evaluator, Kernel, Linear, Polynomial, Precomputed, count_objects, is_vectors, take
from krein.kernels.objects import is_sparse
from krein.solvers.dense_dual import Task, libsvm, violation
from krein.solvers.dual import Dual
from krein.solvers.refine import ALLOWED
from krein.solvers.rows import is_quick, kernel_product

__all__ = ["affordable", "quietly", "refines_quickly", "solve_task"]

FEW = 400  # features of a kernel up to which a factorization that has them all is the quickest way
LIBSVM_ROWS = 8000  # up to which LIBSVM is about as quick as anything
DENSE_ROWS = 5000  # of a kernel that LIBSVM does not have, up to which it is given their matrix
STEPS = 10_000_000  # of LIBSVM, where no number is given; what takes more is left to the factored solver
FURTHER = 3.0  # times the violation LIBSVM was asked for that the kernel's own values may show
NARROW = 10.0  # C k(x, x) up to which pairs of rows settle soon; at 100 they may take five times LIBSVM's time
LARGE = 1e30  # a similarity beyond it is more than LIBSVM's single precision can take


def affordable(objects: Any, kernel: Kernel, limit: int) -> bool:
    """Whether a matrix of these objects is psd and worth its n²: of more than 2000 rows, and up to ``limit``."""
    n = count_objects(objects)
    if isinstance(kernel, Precomputed):
        return EXACT_ROWS < n <= min(limit, DENSE_ROWS) and _is_psd(kernel, objects)
    if not (EXACT_ROWS < n <= limit and is_vectors(objects) and kernel.traits.psd):
        return False
    dimension = kernel.feature_dimension(objects.shape[1])  # of few features a factorization is exact, and smaller
    return dimension is None or dimension > min(FEW, n // 8)


def refines_quickly(kernel: Kernel, objects: Any, task: Task, usual: float) -> bool:
    """Whether `refine_exactly` measured faster than LIBSVM: rows that need not be kept, a box that is not wide.

    Wide is what nine in ten coefficients can be, in units of a label or of the targets; ``usual`` is the mean k(x, x).
    """
    width = float(np.quantile(np.maximum(-task.low, task.high), 0.9)) / (task.spread(usual) or 1.0)
    return is_quick(kernel, objects) and usual * width <= NARROW


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without warnings of an approximation that has no part in what is predicted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KreinWarning)
        yield


def _is_psd(kernel: Precomputed, objects: Any) -> bool:
    """Whether a matrix that lies in memory has a Cholesky factor, up to rounding."""
    if is_sparse(kernel.S) or isinstance(kernel.S, np.memmap):
        return False
    K = np.asarray(kernel(objects), dtype=np.float64).T  # a copy, and in LAPACK's order
    K[np.diag_indices(len(K))] += 10 * len(K) * EPS * np.abs(np.diagonal(K)).max()
    return bool(scipy.linalg.lapack.dpotrf(K, overwrite_a=1)[1] == 0)


# -- duals -------------------------------------------------------------------------------------------------------------


def solve_task(
    kernel: Kernel, objects: Any, task: Task, *, tol: float, max_iter: int, options: dict[str, Any]
) -> Dual | None:
    """Return the dual of ``task`` under ``kernel`` as scikit-learn finds it, or None where another way is better.

    LIBSVM evaluates the kernels it has by itself and keeps what its cache holds; of others it is given the matrix. The
    gap is that of the kernel's own values, not of LIBSVM's single precision.
    """
    if 1e3 * tol < ALLOWED or task.is_full:
        return None
    own, m = take(objects, task.rows), len(task.rows)
    evaluator = Evaluator(kernel)
    diagonal = np.asarray(evaluator.diag(own), dtype=np.float64)
    usual = float(np.abs(diagonal).mean())
    if m > LIBSVM_ROWS and max_iter < 1 and refines_quickly(kernel, own, task, usual):
        return None
    named = _named(kernel, task, own, diagonal)
    if named is None and m > DENSE_ROWS:
        return None
    given = np.asarray(own if named else evaluator.block(own, own), dtype=np.float64, order="C")
    limit = int(max_iter) if max_iter > 0 else STEPS
    b, intercept, steps, finished = libsvm(given, task, ALLOWED, limit, options, named, usual)
    if not finished and max_iter < 1:
        return None
    product = kernel_product(evaluator, own, b, own) if named else given @ b
    missed = float(violation(task, b, product - task.linear + intercept).max(initial=0.0))
    size = task.spread(usual) or usual * float(task.high.max())
    if finished and max_iter < 1 and missed > FURTHER * ALLOWED * size:
        return None  # what LIBSVM takes for the kernel is another: rows far from the origin lose its digits
    point = task.problem(sp.diags(diagonal)).point(b, intercept, product)
    return Dual(b, intercept, point.objective, point.gap, max(1, steps), finished, "libsvm", ((steps, point.gap),))


def _named(kernel: Kernel, task: Task, own: Any, diagonal: Array) -> dict[str, Any] | None:
    """The kernel in LIBSVM's words, if it has it and its values suit single precision and an absolute tolerance."""
    if is_sparse(own):
        return None
    if isinstance(kernel, RBF):
        return {"kernel": "rbf", "gamma": kernel.gamma}
    if task.kind == "one-class" or not 1.0 / LARGE < float(diagonal.max(initial=0.0)) < LARGE:
        return None
    if isinstance(kernel, Linear):
        return {"kernel": "linear"}
    if isinstance(kernel, Polynomial) and isinstance(kernel.degree, int):
        return {"kernel": "poly", "degree": kernel.degree, "gamma": kernel.gamma, "coef0": kernel.coef0}
    return None
