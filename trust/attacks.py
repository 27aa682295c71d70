"""What an attack is, and how the outcome of one attempt is judged.

An attempt calls the library with something hostile. It ends in one of these outcomes:

- right: the result agrees with an independent reference;
- error: an exception that was raised on purpose, with a sentence;
- warning: a result that is not the reference, and a warning that says so;
- silent: a wrong result without a word;
- unnamed: an exception that nobody raised on purpose, such as one of LAPACK, or one without words;
- hung: no end within `TIME_LIMIT` seconds of CPU time.

Each case declares which outcomes hold. The last three never do.
"""

from __future__ import annotations

import linecache
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

import krein

# An attempt is interrupted after so many seconds of CPU time, and counts as hung; and after PATIENCE times as many on
# the clock, which finds what waits.
TIME_LIMIT = 30.0
PATIENCE = 4.0
# An error without this many words explains nothing.
FEWEST_WORDS = 3
# Errors that a user may cause. LinAlgError is a ValueError too, but it says nothing about the input.
NAMED = (ValueError, TypeError, NotImplementedError, OSError)
LIBRARY = str(Path(krein.__file__).parent)
VALIDATION = str(Path(sklearn.__file__).parent)


@dataclass
class Tally:
    """How many attempts were made, and those that did not hold, each by a name."""

    tried: int = 0
    broken: list[str] = field(default_factory=list)
    note: str = ""

    def add(self, held: bool, name: str) -> None:
        self.tried += 1
        if not held:
            self.broken.append(name)

    @property
    def held(self) -> int:
        return self.tried - len(self.broken)


@dataclass(frozen=True)
class Attack:
    """One line of the scoreboard.

    ``run`` attacks the library. ``control`` makes the same attack where the protection is missing, and must be seen to
    break it; an attack that breaks nothing anywhere proves nothing. Both take whether the short form is wanted.
    """

    family: str
    name: str
    run: Callable[[bool], Tally]
    control: Callable[[bool], Tally]
    without: str  # what the control leaves out


class Hung(BaseException):
    """The time limit is over. No library catches it, because it is no Exception."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `Hung` after so many seconds of CPU time, or PATIENCE times as many; outside the main thread never."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise Hung

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, PATIENCE * seconds))
    before = [signal.signal(number, end) for number, _, _ in timers]
    for _, timer, after in timers:
        signal.setitimer(timer, after)
    try:
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0.0)
            signal.signal(number, handler)


@dataclass(frozen=True)
class Ended:
    """How a call ended: with a value or an exception, and with warnings."""

    value: Any = None
    error: BaseException | None = None
    warned: tuple[str, ...] = ()


def attempt(call: Callable[[], Any], seconds: float = TIME_LIMIT) -> Ended:
    """Call, and return how it ended."""
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        try:
            with time_limit(seconds):
                value, error = call(), None
        except (Exception, Hung) as raised:
            value, error = None, raised
    said = tuple(str(w.message) for w in caught if issubclass(w.category, UserWarning))
    return Ended(value, error, said)


def judged(ended: Ended, right: Callable[[Any], bool], own: type[BaseException] | None = None) -> str:
    """Return the outcome. ``own`` is an exception of the user's own code, which has to pass untouched."""
    if isinstance(ended.error, Hung):
        return "hung"
    if ended.error is not None:
        if own is not None and type(ended.error) is own:
            return "error"
        return "error" if is_named(ended.error) else "unnamed"
    try:
        if right(ended.value):
            return "right"
    except (ValueError, TypeError, IndexError):  # a result of another shape or type is not the right one
        pass
    return "warning" if ended.warned else "silent"


def is_named(error: BaseException) -> bool:
    """Whether an error was raised on purpose, by krein or by scikit-learn's validation, and has words."""
    if not isinstance(error, NAMED) or isinstance(error, np.linalg.LinAlgError):
        return False
    if len(str(error).split()) < FEWEST_WORDS:
        return False
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith((LIBRARY, VALIDATION))]
    if not frames:
        return True  # the call itself was refused: no such parameter
    last = frames[-1]
    raising = linecache.getline(last.filename, last.lineno or 0).lstrip().startswith("raise")
    return raising or last.filename.startswith(VALIDATION)
