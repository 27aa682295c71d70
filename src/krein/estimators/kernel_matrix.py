"""A kernel and objects in, the kernel's own matrix out: evaluated once and exactly symmetric."""

from __future__ import annotations

from typing import Any

import numpy as np

from krein.arrays import Array, Indices
from krein.kernels import Evaluator, Kernel, Precomputed, count_objects
from krein.kernels.collections import precise, rows
from krein.kernels.kernel import needs_both_orders
from krein.progress import progress_bar

__all__ = ["fill_symmetric", "kernel_matrix"]

# The matrix is filled in STRIPS strips of rows, each up to the diagonal, which evaluates little more than half of it. A
# strip has at most STRIP_ENTRIES entries (128 MiB).
STRIPS = 32
STRIP_ENTRIES = 2**24
# Up to WHOLE_ROWS rows the matrix is one strip, because kernels of vectors use the symmetry themselves.
WHOLE_ROWS = 1000


def kernel_matrix(kernel: Kernel, objects: Any) -> Array:
    """Return k(objects, objects) in float64, exactly symmetric; 8 n² bytes."""
    few = count_objects(objects) <= WHOLE_ROWS
    return fill_symmetric(kernel, precise(objects), n_strips=1 if few else STRIPS)


def fill_symmetric(
    kernel: Kernel,
    objects: Any,
    unit: float = 1.0,
    dtype: Any = np.float64,
    verbose: int = 0,
    *,
    known: Array | None = None,
    names: Indices | None = None,
    n_strips: int = STRIPS,
) -> Array:
    """Return k(objects, objects) / unit strip by strip, exactly symmetric, in ``dtype``.

    ``known`` is the part of the first objects, and ``names`` are the places of the objects among all, for errors. Of
    krein's own kernels one triangle is evaluated and mirrored; of any other the whole matrix, and asymmetry is an
    error.
    """
    evaluator = Evaluator(kernel, chunk_entries=STRIP_ENTRIES)
    n, first = count_objects(objects), 0 if known is None else len(known)
    both = isinstance(kernel, Precomputed) or needs_both_orders(kernel)
    K = np.empty((n, n), dtype=dtype)
    if known is not None:
        K[:first, :first] = known
    step = max(1, min(-(-n // n_strips), STRIP_ENTRIES // n))
    for start in progress_bar(range(first, n, step), what="similarities", verbose=verbose):
        stop = min(start + step, n)
        some = objects if stop - start == n else rows(objects, slice(start, stop))
        strip = evaluator.block(some, some if some is objects else rows(objects, slice(0, n if both else stop)))
        K[start:stop, : strip.shape[1]] = strip if unit == 1.0 else strip / unit
    if both:
        evaluator.check_symmetric(K[first:, first:], None if names is None else names[first:])
    for start in range(first, n, step):
        stop = min(start + step, n)
        K[:start, start:stop] = K[start:stop, :start].T
        corner = K[start:stop, start:stop]
        corner += corner.T.copy()
        corner *= 0.5
    return K
