"""A user's function of two objects as a kernel: f(a, b) in, blocks k(A, B) out, each pair evaluated once.

The pairs of a long block are evaluated in processes (joblib), where Python's lock does not hinder. The values are the
same whatever the number of processes is. A function that is given without `pairwise` is recognised when its kernel is
bound to data: it is asked once with two collections, and if that gives no matrix, with two objects.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

from krein.arrays import Array, Indices
from krein.errors import InputError, KernelError, ResourceError
from krein.kernels.collections import compare, count_objects, rows
from krein.kernels.distances import FromDistances
from krein.kernels.kernel import Kernel, Traits, note
from krein.kernels.similarities import FromCallable
from krein.progress import progress_bar

__all__ = ["PairFunction", "pairwise", "takes", "with_processes"]

# A block is evaluated in several processes if one would take longer than SERIAL_SECONDS.
SERIAL_SECONDS = 0.5
# Each process gets about STRIPS_PER_PROCESS strips of rows, so that none waits long for the last one.
STRIPS_PER_PROCESS = 16
# Its bar appears after BAR_SECONDS, since a function of two objects is slow.
BAR_SECONDS = 1.0


def pairwise(
    f: Callable[[Any, Any], float],
    psd: bool | None = None,
    symmetric: bool = True,
    distance: bool = False,
    n_jobs: int | None = None,
) -> Kernel:
    """Return the kernel of a function that compares two objects.

    The objects may be strings, tuples, graphs, anything that a list holds. Every machine, `approximate` and `inspect`
    also recognise a plain ``f``. This function is for what ``f`` does not say about itself.

    Parameters
    ----------
    f : callable
        f(a, b) -> float. It depends on the two objects alone.
    psd : bool or None, default=None
        Whether matrices of ``f`` are positive semidefinite: True, False, or None for unknown.
    symmetric : bool, default=True
        True: f(a, b) = f(b, a), and each pair of a block k(A, A) is evaluated once. Samples are compared in both orders
        when a machine is fitted, and a difference is an error. False: the mean of f(a, b) and f(b, a) is used, which
        takes two evaluations.
    distance : bool, default=False
        Whether ``f`` is a distance. The kernel is then exp(-f(a, b) / scale), see `FromDistances`.
    n_jobs : int or None, default=None
        Number of processes; -1 is one per core. None takes the ``n_jobs`` of the machine. Functions that cannot be
        pickled, such as lambdas, are sent by value. The result does not depend on it.

    Returns
    -------
    Kernel

    Examples
    --------
    >>> import krein
    >>> def common_letters(a, b):
    ...     return len(set(a) & set(b)) / len(set(a) | set(b))
    >>> krein.pairwise(common_letters, psd=True)(["abc", "abd", "xyz"])
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 1. ]])
    """
    kernel = PairFunction(f, Traits(stationary=False, psd=psd), symmetric=symmetric, n_jobs=n_jobs)
    if not distance:
        return kernel
    if psd is not None:
        raise InputError(
            f"psd={psd!r} was given beside distance=True. Whether exp(-f / scale) is psd is not known from f. Leave "
            "psd out, or pass the similarity itself as f."
        )
    return FromDistances(kernel)


@dataclass(frozen=True, repr=False)
class PairFunction(FromCallable):
    """The kernel that `pairwise` returns.

    Parameters
    ----------
    function : callable
        f(a, b) -> float.
    declared : Traits, default=Traits(stationary=False, psd=None)
        What the function promises.
    symmetric : bool, default=True
        Whether f(a, b) = f(b, a). Otherwise the mean of both is used.
    n_jobs : int or None, default=None
        Number of processes.
    verbose : int or None, default=None
        As for a machine. None is that of whoever uses it.
    """

    symmetric: bool = True
    n_jobs: int | None = field(default=None, compare=False)
    verbose: int | None = field(default=None, compare=False)

    mirrored: ClassVar[bool] = True
    remedy: ClassVar[str] = "Use the mean of both orders: krein.pairwise(f, symmetric=False)."
    _unsaved: ClassVar[tuple[str, ...]] = ("_objects",)  # the objects of the fit, in no file and no pickle

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.symmetric, bool | np.bool_):
            raise InputError(f"symmetric must be True or False; got {self.symmetric!r}.")
        if not (self.declared.psd is None or isinstance(self.declared.psd, bool | np.bool_)):
            raise InputError(f"psd must be True, False or None for unknown; got {self.declared.psd!r}.")
        jobs = self.n_jobs
        if jobs is not None and (not isinstance(jobs, int | np.integer) or isinstance(jobs, bool) or jobs == 0):
            raise InputError(f"n_jobs must be a non-zero integer (-1: all cores) or None; got {jobs!r}.")

    def __call__(self, A: Any, B: Any = None) -> Array:
        values: Array = compare(self._values, A, A if B is None else B)
        return values

    def _values(self, A: Any, B: Any) -> Array:
        left = list(A)
        same = B is A
        right = left if same else list(B)
        values: Array = np.zeros((len(left), len(right)))
        ahead = np.arange(len(left)) if same else np.zeros(len(left), dtype=np.intp)  # where each row begins
        counts = len(right) - ahead
        with progress_bar(
            total=int(counts.sum()), what="similarities", verbose=self.verbose or 0, unit_scale=True, delay=BAR_SECONDS,
            leave=False, postfix=f"{counts.sum():,} left",
        ) as bar:  # fmt: skip
            try:
                for part, found in self._strips(left, right, ahead, counts):
                    values[part] = found
                    done = int(counts[part].sum())
                    bar.set_postfix_str(f"{bar.total - bar.n - done:,} left", refresh=False)
                    bar.update(done)
            except _FailedPair as pair:
                i, j = pair.args
                raise self._explained(left, i, right, j) from pair.__cause__
        return values + np.triu(values, 1).T if same else values

    def diag(self, A: Any) -> Array:
        items = list(A)
        try:
            found = [_evaluated(self.function, True, i, [a], [a], np.zeros(1, int)) for i, a in enumerate(items)]
        except _FailedPair as pair:
            i = pair.args[0]
            raise self._explained(items, i, items, i) from pair.__cause__
        return np.array(found).reshape(len(items))

    def block_entries(self, n: int, m: int, same: bool = False) -> int:
        return (n * (n + 1) // 2 if same else n * m) * (1 if self.symmetric else 2)

    def diag_entries(self, n_objects: int) -> int:
        return n_objects

    def bind(self, X: Any) -> Kernel:
        """Return this kernel with X by reference, so that errors can say which objects they are about."""
        known = replace(self)
        object.__setattr__(known, "_objects", X)
        return known

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in self._unsaved}

    def _strips(
        self, left: list[Any], right: list[Any], ahead: Indices, counts: Indices
    ) -> Iterator[tuple[slice, Array]]:
        """Yield (rows, their values). The time of the first row tells whether processes pay."""
        if not (left and right):
            return

        def task(part: slice) -> tuple[Any, ...]:
            return self.function, self.symmetric, part.start, left[part], right, ahead[part]

        first, begun = slice(0, 1), time.perf_counter()
        yield first, _evaluated(*task(first))
        seconds = (time.perf_counter() - begun) / counts[0] * counts[1:].sum()
        n_processes = effective_n_jobs(self.n_jobs or 1) if seconds > SERIAL_SECONDS else 1
        shares = np.linspace(0, counts[1:].sum(), STRIPS_PER_PROCESS * n_processes + 1)
        ends = np.unique([1, *1 + np.searchsorted(np.cumsum(counts[1:]), shares[1:]), len(left)])
        parts = [slice(int(i), int(j)) for i, j in itertools.pairwise(ends)]
        if n_processes == 1:
            found: Any = (_evaluated(*task(part)) for part in parts)
        else:
            run = Parallel(n_jobs=n_processes, backend="loky", return_as="generator")
            found = run(delayed(_evaluated)(*task(part)) for part in parts)
        try:
            yield from zip(parts, found, strict=True)
        except BrokenExecutor as error:
            raise ResourceError(
                f"A process that evaluated {self!r} was ended from outside, or by a crash in it. The usual causes are "
                "too little memory, where fewer processes help (n_jobs), and compiled code: n_jobs=1 shows where."
            ) from error
        except pickle.PicklingError as error:
            # joblib's cause is the text of a traceback between quotation marks; its last line is the reason
            reason = str(error.__cause__ or error).rstrip('\n "').splitlines()[-1]
            raise KernelError(
                f"{self!r} cannot be sent to other processes: {reason}. Pass n_jobs=1, or leave out what cannot be "
                "pickled, such as locks and open files."
            ) from error

    def _explained(self, left: list[Any], i: int, right: list[Any], j: int) -> KernelError:
        """Return the error of a pair, with the places of its objects among those of the fit, or else in this call."""
        known = list(vars(self).get("_objects", ()))
        names = []
        for x, at in ((left[i], i), (right[j], j)):
            place = next((k for k, other in enumerate(known) if _is_same(x, other)), None)
            names.append(f"object {at} of this call" if place is None else f"object {place}")
        reason = "it raised an error, but none when it was asked again"
        try:
            _compared(self.function, self.symmetric, left[i], right[j])
        except Exception as error:  # the error of another process is raised here again
            reason = f"{type(error).__name__}: {error}"
        return KernelError(
            f"{self!r} must return one number for any two objects; it failed on {names[0]} ({left[i]!r:.60}) and "
            f"{names[1]} ({right[j]!r:.60}): {reason}. Let it return a number for them, or drop these objects."
        )


class _FailedPair(Exception):
    """The places of two objects on which the function raised an error.

    Processes send this instead of the error itself, which they may be unable to send.
    """


def with_processes(kernel: Any, n_jobs: int | None, verbose: int = 0) -> Any:
    """Return the kernel with ``n_jobs`` and ``verbose`` in its functions of two objects that have none of their own."""
    if isinstance(kernel, tuple):
        parts = tuple(with_processes(part, n_jobs, verbose) for part in kernel)
        return kernel if all(new is old for new, old in zip(parts, kernel, strict=True)) else parts
    if isinstance(kernel, PairFunction):
        given: dict[str, Any] = {"verbose": verbose, "n_jobs": n_jobs}
        settled = replace(kernel, **{name: value for name, value in given.items() if getattr(kernel, name) is None})
        vars(settled).update({name: value for name, value in vars(kernel).items() if name in kernel._unsaved})
        return settled
    if not isinstance(kernel, Kernel) or not is_dataclass(kernel):
        return kernel
    held = {each.name: getattr(kernel, each.name) for each in fields(kernel)}
    settled_parts = {name: with_processes(part, n_jobs, verbose) for name, part in held.items()}
    changed = {name: part for name, part in settled_parts.items() if part is not held[name]}
    return replace(kernel, **changed) if changed else kernel


def takes(function: Callable[..., Any], X: Any) -> str | None:
    """Return what a function compares, tried on a few objects: "collections", "pairs", or None if it fails on both."""
    n = 4 if getattr(X, "shape", (0,))[1:] == (3,) else 3  # a @ b of two vectors takes (2, 3) and (3, 3) too
    n = min(n, count_objects(X))
    A, B = rows(X, slice(0, n - 1)), rows(X, slice(0, n))
    try:
        note((n - 1) * n)
        if np.shape(compare(function, A, B)) == (n - 1, n):
            return "collections"
    except KernelError:  # it changes what it is given
        raise
    except Exception:  # whatever it raises, it does not take collections
        pass
    try:
        note(1)
        value = np.asarray(compare(function, A[0], B[1]))
        return "pairs" if value.ndim == 0 and value.dtype.kind in "biuf" else None
    except KernelError:  # it changes what it is given, and is refused when it is used
        return "pairs"
    except Exception:
        return None


def _compared(function: Callable[[Any, Any], float], symmetric: bool, a: Any, b: Any) -> float:
    value = float(function(a, b))
    return value if symmetric else 0.5 * (value + float(function(b, a)))


def _evaluated(
    function: Callable[[Any, Any], float],
    symmetric: bool,
    start: int,
    left: list[Any],
    right: list[Any],
    ahead: Indices,
) -> Array:
    """Return the rows from ``start`` on, each from its place ``ahead`` on and 0 before it."""
    values: Array = np.zeros((len(left), len(right)))
    for i, (a, first) in enumerate(zip(left, ahead.tolist(), strict=True)):
        row: list[float] = []
        try:
            for b in right[first:]:
                row.append(_compared(function, symmetric, a, b))
        except Exception as error:
            raise _FailedPair(start + i, first + len(row)) from error
        values[i, first:] = row
    return values


def _is_same(x: Any, other: Any) -> bool:
    """Whether x is an object of the fit; arrays were handed to the function as views."""
    return x is other or (isinstance(x, np.ndarray) and np.array_equal(x, other))
