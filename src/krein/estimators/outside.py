"""X from anywhere for every machine: decorators of `fit` and of what predicts.

`fits_outside` opens X (`krein.pieces.opening`), so that a fit sees an array in memory or `RowPieces`, and lets go of
all rows when it ends. `predicts_outside` predicts rows that lie elsewhere in pieces: a Dask collection has a lazy
collection of predictions, anything else an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import numpy as np
from sklearn.gaussian_process import kernels as sk
from sklearn.utils.validation import check_is_fitted

from krein.errors import InputError
from krein.kernels import Kernel
from krein.pieces.on_dask import is_dask, lazily
from krein.pieces.opening import in_memory, may_be_outside, opened
from krein.pieces.rows import RowPieces
from krein.policy import check_policy
from krein.sources import source_of

__all__ = ["fits_outside", "predicts_outside"]

F = TypeVar("F", bound=Callable[..., Any])
# This many rows are predicted at a time.
PREDICTED_ROWS = 65_536


def fits_outside(fit: F) -> F:
    """A fit that takes X from anywhere."""

    @wraps(fit)
    def opened_fit(self: Any, X: Any, y: Any = None, *args: Any, **options: Any) -> Any:
        limit = int(getattr(check_policy(self.policy), self._limit))
        shaped = {"memory_limit": self.memory_limit, "workdir": self.workdir, "n_jobs": self.n_jobs}
        if type(X) is np.ndarray and self.memory_limit is None:
            return fit(self, X, in_memory(y), *args, **options)
        if self.approximation is not None or self._precomputed or not _compares_vectors(self._similarity):
            if is_dask(X):
                raise InputError(
                    f"A Dask collection holds vectors, compared by a named kernel or one of krein's own; got "
                    f"{self._similarity!r:.60} or an approximation. X.compute() brings it into memory."
                )
            return fit(self, X, y, *args, **options)
        options = {name: in_memory(value) for name, value in options.items()}
        with opened(X, y, fewest=limit, verbose=self.verbose, **shaped) as (rows, target):
            if not isinstance(rows, RowPieces):
                return fit(self, rows, target, *map(in_memory, args), **options)
            rows.survey  # noqa: B018  checks all rows
            with _seeded(self, rows.checkpoints):
                found = fit(self, rows, target, *map(in_memory, args), **options)
            self._let_go()
        return found

    return opened_fit  # type: ignore[return-value]


@contextmanager
def _seeded(machine: Any, files: Any) -> Iterator[None]:
    """Without a random state, a fit whose files are kept has one seed, with which an interrupted fit goes on."""
    if machine.random_state is not None or files is None or not files.kept:
        yield
        return
    machine.random_state = files.seed()
    try:
        yield
    finally:
        machine.random_state = None


def _compares_vectors(kernel: Any) -> bool:
    """Whether rows outside memory can be what this kernel compares; a function of the user's may compare anything."""
    return (
        kernel.compares == "vectors"
        if isinstance(kernel, Kernel)
        else kernel is None or isinstance(kernel, str | sk.Kernel)
    )


def predicts_outside(method: F) -> F:
    """A prediction for rows from anywhere."""

    @wraps(method)
    def predicted(self: Any, X: Any, **options: Any) -> Any:
        if type(X) is np.ndarray or isinstance(X, list | tuple):
            return method(self, X, **options)
        if is_dask(X):
            check_is_fitted(self)
            source_of(X)  # refuses what cannot be rows
            if any(isinstance(value, bool) and value for value in options.values()):
                raise InputError(
                    f"{', '.join(options)} of a Dask collection would be several collections. Predict its blocks: "
                    "X.map_blocks(model.predict, ...)."
                )
            probe = np.asarray(method(self, np.zeros((1, self.n_features_in_))))
            return lazily(method, self, X, probe, **options)
        found = source_of(X) if _compares_vectors(self._similarity) and may_be_outside(X) else None
        if found is None:
            return method(self, X, **options)
        source, n = found[0], found[0].shape[0]
        parts = [
            method(self, source.read(a, min(n, a + PREDICTED_ROWS)), **options) for a in range(0, n, PREDICTED_ROWS)
        ]
        if isinstance(parts[0], tuple):
            return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        return np.concatenate(parts)

    return predicted  # type: ignore[return-value]
