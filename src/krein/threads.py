"""How many threads run: decided here for every fit and every prediction. Ground: knows only the errors.

Work that falls into many small tasks runs them side by side, each with one BLAS thread (`each`). All else has one
BLAS thread too, but for the factorizations of large matrices (`large_products`): threads of BLAS wait for each other in
a loop, and where another process takes one of the cores, matrices of 1000 rows took 50 times as long with two as with
one, and those of 8000 rows 3 times; on an idle machine two are 1.5 times as fast. Limits of BLAS are set for the time
of a call and restored after it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from typing import Any, TypeVar

import joblib
import numpy as np
from threadpoolctl import ThreadpoolController

from krein.errors import InputError

__all__ = ["check_n_jobs", "each", "large_products", "large_to_the_end", "n_threads", "using"]

T = TypeVar("T")
# The tasks of `each` are handed out in about this many runs for each thread, so that none of them waits long.
RUNS_PER_THREAD = 8
# Matrices of at least this many rows are factorized with all threads of BLAS; smaller ones take a second with one.
LARGE_MATRIX = 4000


class _Call:
    """A fit or a prediction that is under way: the number of its threads, and what ends with it."""

    def __init__(self, n_threads: int, until_the_end: ExitStack) -> None:
        self.n_threads, self.until_the_end = n_threads, until_the_end


_call: ContextVar[_Call | None] = ContextVar("_call", default=None)


def check_n_jobs(n_jobs: object) -> None:
    """Refuse what is no number of threads."""
    whole = isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool)
    if n_jobs is not None and (not whole or n_jobs == 0):
        raise InputError(f"n_jobs must be a non-zero integer (-1: all cores) or None for all cores; got {n_jobs!r}.")


@contextmanager
def using(n_jobs: int | None) -> Iterator[None]:
    """Decide the number of threads of everything inside the block.

    ``n_jobs`` is that number, for tasks and for large matrices; negative ones count from the cores, -1 being all of
    them. None takes as many threads as BLAS may use at the moment: all cores, unless an environment variable,
    threadpoolctl or the worker of a pool of processes says less. A call inside another one with None has the threads of
    the outer one.
    """
    check_n_jobs(n_jobs)
    outer = _call.get()
    if outer is not None and (n_jobs is None or outer.n_threads == 1):
        yield
        return
    with ExitStack() as until_the_end:
        count = _limits.allowed() if n_jobs is None else int(joblib.effective_n_jobs(n_jobs))
        until_the_end.enter_context(_limits.at_most(1))
        token = _call.set(_Call(count, until_the_end))
        try:
            yield
        finally:
            _call.reset(token)


def n_threads() -> int:
    """The number of threads of the call that is under way; 1 inside a task of `each`."""
    call = _call.get()
    return 1 if call is None else call.n_threads


@contextmanager
def large_products(n_rows: int) -> Iterator[None]:
    """Give BLAS the threads to factorize a matrix of so many rows: all of the call under way if it is large, or one."""
    call = _call.get()
    count = 1 if n_rows < LARGE_MATRIX else _limits.allowed() if call is None else call.n_threads
    with _limits.at_most(count):
        yield


def large_to_the_end(n_rows: int) -> None:
    """Decide as `large_products` does, until the end of the call."""
    call = _call.get()
    if call is not None:
        call.until_the_end.enter_context(large_products(n_rows))


def each(task: Callable[..., T], arguments: Iterable[tuple[Any, ...]], serial: bool = False) -> list[T]:
    """Run ``task`` on each tuple of arguments, side by side, with one BLAS thread each; results are in order.

    The results do not depend on the number of threads. ``serial`` is for tasks that cannot run side by side.
    """
    tasks: Sequence[tuple[Any, ...]] = arguments if isinstance(arguments, list) else list(arguments)
    call = _call.get()
    if call is not None and call.n_threads == 1:  # and so has BLAS
        return [task(*some) for some in tasks]
    count = 1 if serial else min(n_threads(), len(tasks))
    with _limits.at_most(1):
        if count <= 1:
            return [task(*some) for some in tasks]
        step = -(-len(tasks) // (RUNS_PER_THREAD * count))

        def run(start: int) -> list[T]:
            _call.set(_Call(1, ExitStack()))
            return [task(*some) for some in tasks[start : start + step]]

        with ThreadPoolExecutor(count) as pool:
            runs = [pool.submit(copy_context().run, run, start) for start in range(0, len(tasks), step)]
            try:
                return [found for one in runs for found in one.result()]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


@cache
def _blas() -> Any:
    """The BLAS libraries of this process; looking for them takes milliseconds."""
    return ThreadpoolController().select(user_api="blas")


class _Limits:
    """Limits of BLAS, which belong to the process, while several of its threads may set some.

    Each thread sets what its own innermost limit says. What was there before the first limit of any of them is
    remembered, and comes back when a thread leaves its outermost one.
    """

    def __init__(self) -> None:
        self._lock, self._own = threading.Lock(), threading.local()
        self._n_held, self._before = 0, list[int]()

    def allowed(self) -> int:
        """The number of threads of BLAS, without the limits set here."""
        with self._lock:
            return max(self._before if self._n_held else self._current(), default=1)

    @contextmanager
    def at_most(self, count: int) -> Iterator[None]:
        mine: list[int] = vars(self._own).setdefault("held", [])
        with self._lock:
            if not self._n_held:
                self._before = self._current()
            self._n_held += 1
            mine.append(count)
            self._apply(mine)
        try:
            yield
        finally:
            with self._lock:
                mine.pop()
                self._n_held -= 1
                self._apply(mine)

    @staticmethod
    def _current() -> list[int]:
        return [library.get_num_threads() or 1 for library in _blas().lib_controllers]

    def _apply(self, mine: list[int]) -> None:
        for library, before in zip(_blas().lib_controllers, self._before, strict=True):
            wanted = min([before, *mine[-1:]])
            if library.get_num_threads() != wanted:
                library.set_num_threads(wanted)


_limits = _Limits()
