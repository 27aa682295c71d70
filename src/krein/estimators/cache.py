"""Approximations remembered: a grid over C or alpha on the same rows builds each one once, clones included.

The key is what X holds, not where it lies, so the folds of a cross-validation are recognised. The least recently used
go when ``LIMIT`` bytes are exceeded, the objects they keep alive counted in.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import joblib

from krein.approximation import Approximation
from krein.bases import object_bytes
from krein.kernels import Kernel, Precomputed

__all__ = ["LIMIT", "clear_cache", "content", "remembered"]

LIMIT = 2**30  # bytes of all approximations that are kept

_kept: OrderedDict[Hashable, Approximation] = OrderedDict()
_lock = threading.Lock()


def remembered(key: Hashable | None, build: Callable[[], Approximation]) -> Approximation:
    """Return what was built under ``key``, or build it; None is built and forgotten."""
    if key is None:
        return build()
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    found = build()
    with _lock:
        _kept[key] = found
        total = sum(map(_nbytes, _kept.values()))
        while _kept and total > LIMIT:
            total -= _nbytes(_kept.popitem(last=False)[1])
    return found


def content(objects: Any, kernel: Kernel) -> tuple[Hashable, ...] | None:
    """Return what tells these objects under this kernel from all others; None if they are too large to remember."""
    held = kernel.S if isinstance(kernel, Precomputed) else objects
    if object_bytes(held) > LIMIT // 4:  # the folds of a cross-validation have to fit together
        return None
    try:
        hash(kernel)
        # of a precomputed matrix some rows alone may be meant
        given = (held, objects) if isinstance(kernel, Precomputed) else held
        return (joblib.hash(given), type(kernel) if isinstance(kernel, Precomputed) else kernel)
    except Exception:  # what cannot be pickled or hashed has no content to compare
        return None


def clear_cache() -> None:
    """Forget all approximations."""
    with _lock:
        _kept.clear()


def _nbytes(a: Approximation) -> int:
    held = a.kernel.S if isinstance(a.kernel, Precomputed) else a.objects
    return a.nbytes + a.factorization.nbytes + object_bytes(held)
