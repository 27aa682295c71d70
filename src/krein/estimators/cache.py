"""A cache of approximations: a grid over C or alpha on the same rows builds each one once, also in clones.

The key is the content of X, so the folds of a cross-validation are recognised. The least recently used approximations
are dropped when they and the objects they refer to exceed ``CACHE_BYTES`` bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import joblib
import numpy as np

from krein.approximation import Approximation
from krein.kernels import Evaluator, Kernel, Precomputed, count_objects, take
from krein.kernels.collections import is_sparse, object_bytes
from krein.kernels.kernel import user_written
from krein.pieces.rows import RowPieces

__all__ = ["CACHE_BYTES", "Built", "clear_cache", "digest", "forget", "remembered"]

# The cache holds at most CACHE_BYTES bytes of approximations: those of five folds of 10,000 rows at rank 100. This is
# what a process keeps after all its models are deleted.
CACHE_BYTES = 2**27
# A user's function is recognised by its values: SAMPLED_OBJECTS objects compared with each other, and all objects
# compared with REFERENCE_OBJECTS of them.
SAMPLED_OBJECTS = 12
REFERENCE_OBJECTS = 2


@dataclass(frozen=True, eq=False)
class Built:
    """An approximation, and how its blocks were chosen if a machine chose them."""

    approximation: Approximation
    choice: Any = None


_kept: OrderedDict[Hashable, Built] = OrderedDict()
_lock = threading.Lock()


def remembered(objects: Any, kernel: Kernel, settings: tuple[Any, ...] | None, build: Callable[[], Built]) -> Built:
    """Return what was built of equal objects, kernel and settings, or build it; with settings of None it is not kept.

    The data that a cached approximation refers to may have been changed in place since. It is replaced by ``objects``,
    whose content is equal to what was approximated.
    """
    known = None if settings is None or isinstance(objects, RowPieces) else _content(objects, kernel)
    key = None if known is None or settings is None else (*known, *settings)
    with _lock:
        if key is not None and key in _kept:
            _kept.move_to_end(key)
            found = _kept[key]
            a = replace(found.approximation, objects=objects)
            own = next(_inside(kernel), None) is not None  # its matrix, not one that was equal once
            return replace(found, approximation=replace(a, kernel=kernel) if own else a)
    found = build()
    if key is None:
        return found
    with _lock:
        _kept[key] = found
        total = sum(map(_nbytes, _kept.values()))
        while _kept and total > CACHE_BYTES:
            total -= _nbytes(_kept.popitem(last=False)[1])
    return found


def _content(objects: Any, kernel: Kernel) -> tuple[Hashable, ...] | None:
    """Return a key of the objects and the kernel, by content; None if they are too large to be cached."""
    held = kernel.S if isinstance(kernel, Precomputed) else objects
    if object_bytes(held) > CACHE_BYTES // 4:  # the folds of a cross-validation have to fit together
        return None
    try:
        hash(kernel)
        # of a precomputed matrix some rows alone may be meant; a user's function may be the same and do another thing
        also = objects
        if not isinstance(kernel, Precomputed):
            also = (_sampled_values(objects, kernel), *map(digest, _inside(kernel)))
        return (digest(held), digest(also), type(kernel) if isinstance(kernel, Precomputed) else kernel)
    except Exception:  # what cannot be pickled or hashed has no content to compare
        return None


def digest(held: Any) -> str:
    """Return a hash of the data; of a sparse matrix only its numbers, not the flags of SciPy."""
    parts = (held.data, held.indices, held.indptr, held.shape) if is_sparse(held) else held
    return str(joblib.hash(parts))


def _inside(kernel: Any) -> Iterator[Any]:
    """The matrices inside a kernel, whose numbers may be changed in place without changing its equality."""
    if isinstance(kernel, Precomputed):
        yield kernel.S
    elif is_dataclass(kernel):
        for field in fields(kernel):
            yield from _inside(getattr(kernel, field.name))


def _sampled_values(objects: Any, kernel: Kernel) -> Any:
    """Some values of each function of the user in a kernel, which may be the same object with another behaviour.

    Every object is compared with a few, so that a change for one object is found, unless it is one of a single pair.
    """
    n = count_objects(objects)
    few, two = (
        take(objects, np.linspace(0, n - 1, min(k, n)).astype(int)) for k in (SAMPLED_OBJECTS, REFERENCE_OBJECTS)
    )
    return [(Evaluator(part).block(few, few), Evaluator(part).block(objects, two)) for part in user_written(kernel)]


def forget(a: Approximation) -> None:
    """Drop ``a`` from the cache."""
    with _lock:
        for key in [k for k, found in _kept.items() if found.approximation.factorization is a.factorization]:
            del _kept[key]


def clear_cache() -> None:
    """Drop all cached approximations, and give free memory back to the system where the C library can.

    Examples
    --------
    >>> import krein
    >>> krein.clear_cache()  # approximations that were kept for fits on equal data are gone
    """
    with _lock:
        _kept.clear()
    with contextlib.suppress(AttributeError, OSError, TypeError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)


def _nbytes(built: Built) -> int:
    a = built.approximation
    held = a.kernel.S if isinstance(a.kernel, Precomputed) else a.objects
    return a.nbytes + a.factorization.nbytes + object_bytes(held)
