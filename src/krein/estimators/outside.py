"""X from anywhere for every machine: decorators of `fit` and of what predicts, and `score`.

`fits_outside` opens X (`krein.pieces.opening`), so that a fit sees an array in memory or `RowPieces`, and lets go of
all rows when it ends. `predicts_outside` predicts rows that lie elsewhere in pieces: a Dask collection has a lazy
collection of predictions, anything else an array.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, TypeVar

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from krein.errors import InputError
from krein.kernels import Kernel
from krein.pieces.on_dask import is_dask, lazily
from krein.pieces.opening import check_no_path, in_memory, may_be_outside, opened
from krein.pieces.rows import RowPieces
from krein.policy import check_policy
from krein.sources import has_columns, names_of, source_of, split_frame
from krein.threads import using

__all__ = ["ScoredOutside", "fits_outside", "predicts_outside"]

F = TypeVar("F", bound=Callable[..., Any])
# This many rows are predicted at a time.
PREDICTED_ROWS = 65_536


def fits_outside(fit: F) -> F:
    """A fit that takes X from anywhere, with the threads of the machine's ``n_jobs``."""
    fit = _threaded(fit)

    @wraps(fit)
    def opened_fit(self: Any, X: Any, y: Any = None, *args: Any, **options: Any) -> Any:
        if type(X) is np.ndarray:
            _check_unnamed(y)
        if type(X) is np.ndarray and self.memory_limit is None:
            return fit(self, X, y if type(y) is np.ndarray else in_memory(y), *args, **options)
        X, y = split_frame(X, y)
        if self.approximation is not None or self._precomputed or not _compares_vectors(self._similarity):
            if is_dask(X):
                raise InputError(
                    f"A Dask collection holds vectors, compared by a named kernel or one of krein's own; got "
                    f"{self._similarity!r:.60} or an approximation. X.compute() brings it into memory."
                )
            check_no_path(X, _asker(self))
            return fit(self, X, y, *args, **options)
        options = {name: in_memory(value) for name, value in options.items()}
        limit = int(getattr(check_policy(self.policy), self._limit))
        shaped = {"memory_limit": self.memory_limit, "workdir": self.workdir, "n_jobs": self.n_jobs}
        with opened(X, y, most_read=limit, verbose=self.verbose, **shaped) as (rows, target, names):
            if isinstance(rows, RowPieces):
                rows.survey  # noqa: B018  checks all rows
                with _seeded(self, rows.checkpoints):
                    found = fit(self, rows, target, *map(in_memory, args), **options)
                self._let_go()
            else:
                found = fit(self, rows, target, *map(in_memory, args), **options)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        return found

    return opened_fit  # type: ignore[return-value]


def _threaded(method: F) -> F:
    @wraps(method)
    def threaded(self: Any, *args: Any, **options: Any) -> Any:
        with using(self.n_jobs):
            return method(self, *args, **options)

    return threaded  # type: ignore[return-value]


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
    if isinstance(kernel, Kernel):
        return kernel.compares == "vectors"
    return kernel is None or isinstance(kernel, str) or hasattr(kernel, "requires_vector_input")  # scikit-learn's


def _check_unnamed(y: Any) -> None:
    if isinstance(y, str):
        raise InputError(f"y={y!r} names a column, but the columns of X have no names. Pass the target itself.")


def _asker(machine: Any) -> str:
    kind = type(machine).__name__
    return (
        f"{kind} with an approximation"
        if machine.approximation is not None
        else f"{kind} of {machine._similarity!r:.60}"
    )


def _columns_of(machine: Any, X: Any) -> Any:
    """A Dask collection with the columns of the fit, or an error: nothing is computed."""
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        names = getattr(machine, "feature_names_in_", None)
        if names is None:
            return X
        missing = [name for name in names if name not in set(X.columns)]
        if missing:
            raise InputError(f"X lacks columns of the fit: {', '.join(map(str, missing))}. It has {list(X.columns)}.")
        return X[list(names)]
    shape: tuple[Any, ...] = tuple(getattr(X, "shape", ()))
    if len(shape) != 2 or shape[1] != machine.n_features_in_:
        raise InputError(f"X must have the {machine.n_features_in_} features of the fit, 2-D; got shape {shape}.")
    if X.numblocks[1] > 1:
        raise InputError("The chunks of a Dask array must hold whole rows. Pass X.rechunk({1: -1}).")
    return X


def _of_rows(method: Callable[..., Any], machine: Any, rows: Any, **options: Any) -> Any:
    """``method`` of rows whose columns were chosen by name already, if they have names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        return method(machine, rows, **options)


class ScoredOutside:
    """`score` for X from anywhere, with the target in memory, as a Dask collection, or by the name of its column."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of a classifier, or R² of a regressor.

        Parameters
        ----------
        X : object
            Rows, as for `fit`.
        y : array of shape (n,) or (n, n_targets), str or list of str
            The target, or the name of its column if X is a data frame or a table outside memory.
        sample_weight : array of shape (n,) or None, default=None
            Weights of the rows.
        """
        from sklearn.metrics import accuracy_score, r2_score

        check_is_fitted(self)
        X, y = split_frame(X, y)
        if names_of(y) and has_columns(X):
            found = source_of(X, y, columns=getattr(self, "feature_names_in_", None))
            assert found is not None
            X, y = found[0].array if is_dask(X) else found[0], found[1]  # type: ignore[attr-defined]
        _check_unnamed(y)
        measure = accuracy_score if is_classifier(self) else r2_score
        predicted = in_memory(self.predict(X))  # type: ignore[attr-defined]
        return float(measure(in_memory(y), predicted, sample_weight=in_memory(sample_weight)))


def predicts_outside(method: F) -> F:
    """A prediction for rows from anywhere, with the threads of the machine's ``n_jobs``."""
    method = _threaded(method)

    @wraps(method)
    def predicted(self: Any, X: Any, **options: Any) -> Any:
        if type(X) is np.ndarray or isinstance(X, list | tuple):
            return method(self, X, **options)
        if is_dask(X):
            check_is_fitted(self)
            X = _columns_of(self, X)
            if any(isinstance(value, bool) and value for value in options.values()):
                raise InputError(
                    f"{', '.join(options)} of a Dask collection would be several collections. Predict its blocks: "
                    "X.map_blocks(model.predict, ...)."
                )
            probe = np.asarray(_of_rows(method, self, np.zeros((1, self.n_features_in_))))
            return lazily(partial(_of_rows, method), self, X, probe, **options)
        if not _compares_vectors(self._similarity):
            check_no_path(X, _asker(self))
            return method(self, X, **options)
        if not may_be_outside(X):
            return method(self, X, **options)
        names = getattr(self, "feature_names_in_", None)
        found = source_of(X, columns=list(names) if names is not None and has_columns(X) else None)
        if found is None:
            return method(self, X, **options)
        source, n = found[0], found[0].shape[0]
        runs = [(a, min(n, a + PREDICTED_ROWS)) for a in range(0, n, PREDICTED_ROWS)]
        parts = [_of_rows(method, self, source.read(*run), **options) for run in runs]
        if isinstance(parts[0], tuple):
            return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
        return np.concatenate(parts)

    return predicted  # type: ignore[return-value]
