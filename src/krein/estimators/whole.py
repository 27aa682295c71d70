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

from krein.blocksparse import EPS
from krein.error_estimate import EXACT_ROWS
from krein.errors import KreinWarning
from krein.kernels import Kernel, Precomputed, count_objects, is_vectors
from krein.kernels.objects import is_sparse
from krein.solvers.dense_dual import Task
from krein.solvers.exact import is_narrow
from krein.solvers.rows import is_quick

__all__ = ["affordable", "quietly", "refines_quickly"]

FEW = 400  # features of a kernel up to which a factorization that has them all is the quickest way
DENSE_ROWS = 5000  # of a kernel that LIBSVM does not have, up to which it is given their matrix


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
    """Whether rows need not be kept and the box is not wide; ``usual`` is the mean k(x, x)."""
    return is_quick(kernel, objects) and is_narrow(task, usual)


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
