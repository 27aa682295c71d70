"""Progress bars of all long steps."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from typing import Any

from tqdm.auto import tqdm

__all__ = ["progress_bar"]

# Without ``verbose``, a step that takes longer than DELAY seconds shows its bar, if somebody can see it.
DELAY = 10.0


class Bar(tqdm):  # type: ignore[misc]
    """A bar of tqdm's whose lock belongs to this process alone.

    tqdm's own lock is shared with forked processes. If one of them is killed while it holds the lock, the next bar
    waits for ever.
    """


def _own_lock() -> None:
    Bar.set_lock(threading.RLock())


_own_lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_own_lock)


def progress_bar(steps: Iterable[Any] | None = None, *, what: str, verbose: int, **options: Any) -> Any:
    """A bar of tqdm's over ``steps``, or over ``total=`` steps that call its ``update``.

    With ``verbose`` above 0 it is shown at once and stays. With 0 it appears after DELAY seconds, on terminals and in
    notebooks alone, and goes when the step ends. Below 0 there is none.
    """
    if verbose > 0:
        return Bar(steps, desc=what, **options)
    quiet = {"leave": False, "delay": DELAY, "disable": verbose < 0 or not _is_watched()}
    return Bar(steps, desc=what, **quiet | options)


def _is_watched() -> bool:
    in_notebook = any(base.__module__ == "tqdm.notebook" for base in Bar.__mro__)
    return in_notebook or sys.stderr.isatty()
