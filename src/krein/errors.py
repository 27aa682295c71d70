"""What can go wrong, said in full: every error a user can cause derives from ValueError.

A message names what was needed, what was seen and what to do. Nothing below this room.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

__all__ = [
    "IndefiniteError",
    "InputError",
    "KernelError",
    "KreinError",
    "KreinWarning",
    "ModelFileError",
    "ResourceError",
    "is_number",
    "one_of",
    "positive",
    "regular_file",
    "si",
    "warn",
    "whole",
    "whole_number",
]


class KreinError(ValueError):
    """Anything krein refuses.

    Examples
    --------
    >>> import krein
    >>> try:
    ...     krein.RBF(gamma=-1.0)
    ... except krein.KreinError:
    ...     print("refused")
    refused
    """


class InputError(KreinError):
    """Data or a parameter that cannot be used as it is.

    Examples
    --------
    >>> import krein
    >>> try:
    ...     krein.RBF(gamma=-1.0)
    ... except krein.InputError:
    ...     print("refused")
    refused
    """


class ModelFileError(InputError):
    """A file that is no model file, or is one that is damaged, cut off or newer than this krein.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import krein
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "damaged.krein"
    >>> _ = path.write_bytes(b"no model")
    >>> try:
    ...     krein.load(path)
    ... except krein.ModelFileError:
    ...     print("refused")
    refused
    """


class KernelError(KreinError):
    """A kernel that does not keep its promises: misshapen, non-finite or asymmetric values.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> try:
    ...     krein.SVC(kernel=lambda A, B: np.full((len(A), len(B)), np.nan)).fit(np.eye(4), [0, 1, 0, 1])
    ... except krein.KernelError:
    ...     print("refused")
    refused
    """


class IndefiniteError(KreinError):
    """A psd matrix was needed and an indefinite one was given.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> machine = krein.KernelLogisticRegression(kernel=krein.Sigmoid(gamma=1.0, coef0=-1.0), correction="none")
    >>> try:
    ...     machine.fit(np.eye(4), [0, 1, 0, 1])
    ... except krein.IndefiniteError:
    ...     print("refused")
    refused
    """


class ResourceError(KreinError, RuntimeError):
    """A disk, a file or a cluster that did not hold what a fit needs: no room, no access, or rows that changed.

    Examples
    --------
    >>> import krein
    >>> try:
    ...     krein.plan(10**6, 10, n_blocks=100, rank=64, memory_limit="1MB")
    ... except krein.ResourceError:
    ...     print("refused")
    refused
    """


class KreinWarning(UserWarning):
    """Something worth knowing happened; the result is usable, and the message says in what way.

    Examples
    --------
    >>> import warnings
    >>> import krein
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", krein.KreinWarning)  # silences krein's warnings and no others
    ...     warnings.warn("something to know", krein.KreinWarning)
    """


def warn(message: str, category: type[KreinWarning] = KreinWarning) -> None:
    """Issue a KreinWarning that points to the line which called krein, however deep in it this is."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "krein":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def one_of(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise InputError, listing the choices, unless ``value`` is one of them."""
    known = tuple(choices)
    if not (isinstance(value, str) and value in known):
        raise InputError(f"{name} must be one of {', '.join(map(repr, known))}; got {value!r}.")


def whole_number(name: str, value: object, least: int, why: str = "") -> None:
    """Raise InputError unless ``value`` is an integer of at least ``least``, and no larger than an array can be."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= sys.maxsize:
        raise InputError(f"{name} must be an integer of at least {least}{why}; got {value!r}.")


def regular_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file; one would wait without end for what is none, such as a FIFO."""
    found = Path(path)
    if found.exists() and not found.is_file():
        raise InputError(f"{found} is not a file. Give the path of a regular file.")
    return found


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a finite real number that float64 can hold; True and False are not numbers here."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond float64
        return False


def positive(asker: object, name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise InputError unless it is a positive finite number."""
    if is_number(value) and value >= sys.float_info.min:  # smaller numbers have few digits
        return float(value)
    raise InputError(
        f"{type(asker).__name__} needs {name} to be a positive finite number of at least 2.3e-308; got {value!r}."
        + (" Rescale the data." if is_number(value) and value >= 0.0 else "")
    )


def whole(asker: object, name: str, value: Any) -> int:
    """Return ``value`` as an int, or raise InputError unless it is a whole number >= 1."""
    if is_number(value) and value == int(value) and value >= 1:
        return int(value)
    raise InputError(f"{type(asker).__name__} needs {name} to be a whole number, 1 or more; got {value!r}.")


def si(nbytes: float) -> str:
    """Return a number of bytes with its unit, as "1.5 MB", for messages and tables."""
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))  # 0.9995 of a unit is rounded up to it
    return next((f"{nbytes / size:.3g} {unit}" for unit, size in units if nbytes >= 0.9995 * size), f"{nbytes:.0f} B")
