"""The number of similarities that were evaluated: the main cost of an expensive kernel.

An `Evaluator` counts its own evaluations. `counting` counts all that happen inside a ``with`` block.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Tally", "counting", "note", "uncounted"]


class Tally:
    """A count that several threads may add to; ``n_evaluations`` is its value."""

    def __init__(self) -> None:
        self._count, self._lock = 0, threading.Lock()

    @property
    def n_evaluations(self) -> int:
        """Entries of kernels that were evaluated so far."""
        return self._count

    def add(self, n_entries: int) -> None:
        with self._lock:
            self._count += n_entries

    def __repr__(self) -> str:
        return f"Tally(n_evaluations={self._count})"


_open: ContextVar[tuple[Tally, ...]] = ContextVar("_open", default=())


@contextmanager
def counting() -> Iterator[Tally]:
    """Count the similarities that krein evaluates inside a ``with`` block.

    Binding parameters to data, fitting, choosing, error estimates and predicting are counted, in this thread and in
    the threads that krein starts from it. Other processes (``cross_val_score(..., n_jobs=2)``) are not.

    Yields
    ------
    Tally
        Its ``n_evaluations`` is the number of kernel entries evaluated so far.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> with krein.counting() as tally:
    ...     approximation = krein.approximate(X, krein.RBF(gamma=1.0), n_blocks=2, rank=5)
    >>> 0 < tally.n_evaluations < 100**2
    True
    """
    tally = Tally()
    token = _open.set((*_open.get(), tally))
    try:
        yield tally
    finally:
        _open.reset(token)


@contextmanager
def uncounted() -> Iterator[None]:
    """Count nothing inside a ``with`` block that reads similarities which were evaluated, and counted, before."""
    token = _open.set(())
    try:
        yield
    finally:
        _open.reset(token)


def note(n_entries: int) -> None:
    """Add entries that were evaluated to the tallies of all ``with`` blocks that are open in this context."""
    for tally in _open.get():
        tally.add(n_entries)
