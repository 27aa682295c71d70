"""How many similarities were asked for: what costs, where each of them is dear.

An `Evaluator` counts its own; `counting` adds up those of everything that happens inside it, binding a kernel to data
and predicting included.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Tally", "counting", "note", "tallies", "uncounted"]


class Tally:
    """A count that several threads may add to."""

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
    """Count every similarity that krein asks a kernel for inside the ``with`` block, ``n_evaluations`` of its value.

    Building, binding parameters to data, choosing, error estimates, extending and predicting all count, in this thread
    and in those that krein starts from it; other processes (``cross_val_score(..., n_jobs=2)``) do not.
    """
    tally = Tally()
    token = _open.set((*_open.get(), tally))
    try:
        yield tally
    finally:
        _open.reset(token)


@contextmanager
def uncounted() -> Iterator[None]:
    """Count nothing inside the ``with`` block: numbers that were evaluated before are read again."""
    token = _open.set(())
    try:
        yield
    finally:
        _open.reset(token)


def tallies() -> tuple[Tally, ...]:
    """Return those that are open here."""
    return _open.get()


def note(n_entries: int) -> None:
    """Add entries that were evaluated without an Evaluator to all open tallies."""
    for tally in _open.get():
        tally.add(n_entries)
