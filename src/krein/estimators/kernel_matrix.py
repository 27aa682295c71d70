"""A kernel and objects in, the kernel's own matrix out: evaluated once and exactly symmetric."""

from __future__ import annotations

from typing import Any

import numpy as np

from krein.arrays import Array
from krein.kernels import Evaluator, Kernel, Precomputed, count_objects
from krein.kernels.collections import precise, rows
from krein.kernels.kernel import needs_both_orders
from krein.progress import progress_bar

__all__ = ["fill_symmetric", "kernel_matrix"]

# The matrix is filled in STRIPS strips of rows, each up to the diagonal, which evaluates little more than half of it. A
# strip has at most STRIP_ENTRIES entries (128 MiB).
STRIPS = 8
STRIP_ENTRIES = 2**24
# Up to WHOLE_ROWS rows the matrix is evaluated at once, because kernels of vectors use the symmetry themselves.
WHOLE_ROWS = 1000


def kernel_matrix(kernel: Kernel, objects: Any) -> Array:
    """Return k(objects, objects) in float64, exactly symmetric; 8 n² bytes.

    Of krein's own kernels one triangle is evaluated and mirrored. Of a kernel with something of the user's in it the
    whole matrix is evaluated, and its asymmetry is an error (`Evaluator.symmetric`).
    """
    evaluator = Evaluator(kernel, chunk_entries=STRIP_ENTRIES)
    n = count_objects(objects)
    objects = precise(objects)
    if isinstance(kernel, Precomputed) or needs_both_orders(kernel):
        return np.asarray(evaluator.symmetric(objects), dtype=np.float64)
    if n <= WHOLE_ROWS:
        K = np.asarray(evaluator.block(objects, objects), dtype=np.float64)
        K = K + K.T
        K *= 0.5
        return K
    return fill_symmetric(kernel, objects)


def fill_symmetric(kernel: Kernel, objects: Any, unit: float = 1.0, dtype: Any = np.float64, verbose: int = 0) -> Array:
    """Return k(objects, objects) / unit strip by strip, exactly symmetric, in ``dtype``.

    Of krein's own kernels one triangle is evaluated and mirrored; of any other the whole matrix, and asymmetry is an
    error.
    """
    evaluator = Evaluator(kernel, chunk_entries=STRIP_ENTRIES)
    n = count_objects(objects)
    whole = isinstance(kernel, Precomputed) or needs_both_orders(kernel)
    K = np.empty((n, n), dtype=dtype)
    step = min(-(-n // STRIPS), max(1, STRIP_ENTRIES // n))
    for start in progress_bar(range(0, n, step), what="similarities", verbose=verbose):
        stop = min(start + step, n)
        strip = evaluator.block(rows(objects, slice(start, stop)), rows(objects, slice(0, n if whole else stop)))
        K[start:stop, : strip.shape[1]] = strip if unit == 1.0 else strip / unit
    if whole:
        evaluator.check_symmetric(K)
    for start in range(0, n, step):
        stop = min(start + step, n)
        K[:start, start:stop] = K[start:stop, :start].T
        corner = K[start:stop, start:stop]
        corner += corner.T.copy()
        corner *= 0.5
    return K
