"""What an array is here, and where randomness comes from. Ground: knows only the errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import check_random_state

from krein.errors import InputError

__all__ = ["EPS", "Array", "Indices", "check_indices", "grouped", "seed_from", "stream", "strips"]

# Machine epsilon of float64.
EPS = float(np.finfo(np.float64).eps)

# Not numpy.typing.NDArray: what that is at run time, where model files are checked by it, depends on NumPy's version.
Array: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.floating[Any]]]
Indices: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.integer[Any]]]


def seed_from(random_state: Any) -> int:
    """Return one integer that stands for ``random_state`` (None, int, RandomState or Generator) from here on."""
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**62))
    state = check_random_state(random_state)
    return int(state.randint(2**31 - 1)) << 31 | int(state.randint(2**31 - 1))


def stream(seed: int, *key: int) -> np.random.Generator:
    """Return the generator that belongs to ``key``: the same whoever asks, and in whatever order they ask."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def check_indices(indices: Any, n: int) -> Indices:
    """Return ``indices`` as a 1-D array of integers in 0 .. n - 1; negative ones count from the end."""
    wanted = np.atleast_1d(np.asarray(indices))
    if wanted.dtype == bool or wanted.ndim != 1 or (wanted.size and not np.issubdtype(wanted.dtype, np.integer)):
        raise InputError(f"indices must be a 1-D array of integers; got {wanted.dtype} of shape {wanted.shape}.")
    wanted = wanted.astype(np.intp)
    if wanted.size and not (-n <= wanted.min() and wanted.max() < n):
        raise InputError(f"indices must lie in 0 .. {n - 1}; got {wanted.min()} .. {wanted.max()}.")
    return wanted % max(1, n)


def strips(n: int, width: int, entries: int) -> Iterator[slice]:
    """Yield slices that cover n rows of ``width`` entries, each of at most ``entries`` entries and at least one row."""
    step = max(1, entries // max(1, width))
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def grouped(labels: Any) -> Iterator[tuple[int, Indices]]:
    """Yield (label, the positions that hold it) for each label that is met, both ascending: one sort for all."""
    held = np.asarray(labels)
    order = np.argsort(held, kind="stable")
    run = held[order]
    for here in np.split(order, np.flatnonzero(run[1:] != run[:-1]) + 1):
        if len(here):
            yield int(held[here[0]]), here
