"""Kernels made of something else: another kernel normalised (Remark 1), a given matrix, a function of the user's.

These reach beyond vectors: their objects may be strings, graphs or indices, whatever the thing inside compares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import InputError, KernelError
from krein.kernels.kernel import Kernel, Traits
from krein.kernels.objects import count_objects, is_sparse, rows

__all__ = ["ASYMMETRY", "FromCallable", "Normalized", "Precomputed", "as_kernel", "largest_asymmetry"]

ASYMMETRY = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-8}  # |S_ij - S_ji| <= this times max |S| is rounding
STRIP = 1024  # rows compared at once, so that checking n² numbers needs no second n²
DIAGONAL_CHUNK = 8  # a callable gives its diagonal in blocks of this many objects


@dataclass(frozen=True, repr=False)
class FromCallable(Kernel):
    """Any function k(A, B) -> array of shape (len(A), len(B)), with the traits its author declares for it."""

    function: Callable[[Any, Any], Any]
    declared: Traits = field(default_factory=lambda: Traits(stationary=False, psd=None))

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(f"FromCallable needs a callable k(A, B) -> array; got {type(self.function).__name__}.")
        if not isinstance(self.declared, Traits):
            raise InputError(
                f"FromCallable needs its declared properties as Traits; got {type(self.declared).__name__}."
            )

    @property
    def traits(self) -> Traits:
        return self.declared

    def __repr__(self) -> str:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"FromCallable({name})"

    def __call__(self, A: Any, B: Any = None) -> Array:
        values = self.function(A, A if B is None else B)
        values = values.toarray() if is_sparse(values) else np.asarray(values)
        return _as_float(values)  # what is no number stays as it is: Evaluator says so

    def diag(self, A: Any) -> Array:
        n = count_objects(A)
        parts = [rows(A, slice(start, start + DIAGONAL_CHUNK)) for start in range(0, n, DIAGONAL_CHUNK)]
        return np.concatenate([self._diagonal(part) for part in parts]) if parts else np.empty(0)

    def diag_entries(self, n_objects: int) -> int:
        whole, rest = divmod(n_objects, DIAGONAL_CHUNK)
        return whole * DIAGONAL_CHUNK**2 + rest**2

    def _diagonal(self, part: Any) -> Array:
        block, m = self(part, part), count_objects(part)
        if block.shape != (m, m):
            raise KernelError(
                f"{self!r} must return an array of shape {(m, m)} for {m} and {m} objects; got shape {block.shape}."
            )
        return np.diagonal(block).copy()


@dataclass(frozen=True)
class Normalized(Kernel):
    """k(x, y) / sqrt(k(x, x) k(y, y)): the sphere without vectors (Remark 1); every self-similarity becomes 1.

    Dividing rows and columns by positive numbers keeps the number of negative eigenvalues, so psd is inherited. Needs
    k(x, x) > 0. For new points only the self-similarities of the old ones are needed again: keep them and call `cross`.
    """

    kernel: Kernel

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", as_kernel(self.kernel))
        object.__setattr__(self, "accepts_sparse", self.kernel.accepts_sparse)

    @property
    def traits(self) -> Traits:
        inner = self.kernel.traits
        end = 1.0 if inner.psd else None  # Cauchy-Schwarz
        low = 0.0 if inner.low is not None and inner.low >= 0.0 else None if end is None else -end
        return replace(inner, low=low, high=end, constant_diagonal=True)

    def __call__(self, A: Any, B: Any = None) -> Array:
        if B is None or B is A:
            return self.cross(A, A, self.kernel.diag(A))
        return self.cross(A, B, self.kernel.diag(B))

    def cross(self, A: Any, B: Any, diag_B: Any) -> Array:
        """Return the normalised k(A, B), given the inner kernel's self-similarities ``diag_B`` of B."""
        diag_B = np.asarray(diag_B)
        if diag_B.shape != (count_objects(B),):
            raise InputError(f"cross needs diag_B of shape {(count_objects(B),)}, one per object; got {diag_B.shape}.")
        of_b = self._lengths(diag_B)
        of_a = of_b if B is A else self._lengths(self.kernel.diag(A))
        values = self.kernel(A, B)
        return values / of_a[:, None].astype(values.dtype) / of_b.astype(values.dtype)

    def diag(self, A: Any) -> Array:
        return np.ones_like(self._lengths(self.kernel.diag(A)))

    def diag_entries(self, n_objects: int) -> int:
        return self.kernel.diag_entries(n_objects)

    def bind(self, X: Any) -> Kernel:
        inner = self.kernel.bind(X)
        return self if inner is self.kernel else Normalized(inner)

    def feature_dimension(self, n_features: int) -> float | None:
        return self.kernel.feature_dimension(n_features)

    def _lengths(self, diagonal: Array) -> Array:
        bad = ~(np.isfinite(diagonal) & (diagonal > 0))
        if bad.any():
            raise KernelError(
                f"Normalized needs k(x, x) > 0 and finite for every object, but {self.kernel!r} gave {int(bad.sum())} "
                f"of {len(diagonal)} "
                f"self-similarities that are not (smallest {np.min(diagonal):.3g}, first at {int(np.argmax(bad))}). "
                "Drop those objects (zero rows, for instance), or use the kernel without Normalized."
            )
        return np.asarray(np.sqrt(diagonal))


@dataclass(frozen=True, eq=False, repr=False)
class Precomputed(Kernel):
    """A given symmetric matrix S as a kernel: its objects are indices, 0 to n - 1, as a 1-D array or one column.

    S may be an ndarray, a memory-mapped one or a SciPy sparse matrix; only the blocks asked for are read. An S in
    memory is checked at once, strip by strip, for NaN and asymmetry. A file on disk is not: `Evaluator` checks every
    block it reads. Two are equal if they hold the same S; copying copies no numbers.
    """

    S: Any

    def __post_init__(self) -> None:
        S = self.S
        if is_sparse(S):
            S = S.tocsr()
        elif not isinstance(S, np.ndarray):
            S = np.asarray(S)
        if len(S.shape) != 2 or S.shape[0] != S.shape[1] or S.dtype.kind not in "biuf":
            raise InputError(
                f"Precomputed needs a square matrix of real numbers; got {S.dtype} values of shape {S.shape}. For "
                "similarities to new "
                "objects give the matrix over old and new objects together, and use their indices."
            )
        object.__setattr__(self, "S", S)
        if not isinstance(S, np.memmap):
            _check_matrix(S)

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=None)

    @property
    def n_objects(self) -> int:
        """How many objects S compares."""
        return int(self.S.shape[0])

    def __call__(self, A: Any, B: Any = None) -> Array:
        a = self._indices(A)
        b = a if B is None or B is A else self._indices(B)
        block = self.S[a][:, b].toarray() if is_sparse(self.S) else np.asarray(self.S[np.ix_(a, b)])
        return _as_float(block)

    def diag(self, A: Any) -> Array:
        a = self._indices(A)
        return _as_float(np.asarray(self.S.diagonal()[a] if is_sparse(self.S) else self.S[a, a]))

    def _indices(self, A: Any) -> Indices:
        a = np.asarray(A)
        if a.ndim == 2 and a.shape[1] == 1:
            a = a[:, 0]
        whole = a.dtype.kind in "iu" or (a.dtype.kind == "f" and bool(np.all(a == np.floor(a))))
        if a.ndim != 1 or not (whole or a.size == 0):
            raise InputError(
                f"The objects of {self!r} are indices into it: it needs whole numbers, as a 1-D array or one column; "
                f"got {a.dtype} values "
                f"of shape {np.shape(A)}. Use numpy.arange(n) for all objects."
            )
        if a.size and not (a.min() >= 0 and a.max() < self.n_objects):
            raise InputError(
                f"The objects of {self!r} are the indices 0 to {self.n_objects - 1}; got values from {a.min()} to "
                f"{a.max()}. Keep to that range."
            )
        return a.astype(np.intp)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Precomputed) and other.S is self.S

    def __hash__(self) -> int:
        return hash((Precomputed, id(self.S)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Precomputed:
        return self  # scikit-learn's clone copies parameters deeply; S may be as large as the disk

    def __repr__(self) -> str:
        kind = "sparse" if is_sparse(self.S) else "memory-mapped" if isinstance(self.S, np.memmap) else "dense"
        return f"Precomputed(<{self.n_objects} x {self.n_objects} {kind} {self.S.dtype} matrix>)"


def as_kernel(kernel: Any) -> Kernel:
    """Return ``kernel`` as a Kernel: itself, or a callable k(A, B) -> array wrapped in `FromCallable`."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        raise InputError(
            f"kernel must be an instance; got the class {kernel.__name__}. Write {kernel.__name__}() instead."
        )
    if callable(kernel):
        return FromCallable(kernel)
    raise InputError(
        f"kernel must be a Kernel such as RBF() or TL1(), or a callable k(A, B) -> array; got {kernel!r} "
        f"({type(kernel).__name__}). "
        "For a matrix of similarities use Precomputed(S)."
    )


def largest_asymmetry(S: Any) -> tuple[float, int, int]:
    """Return the largest |S_ij - S_ji| and its i and j, in strips: O(n) memory beside S."""
    worst, at = 0.0, (0, 0)
    for start in range(0, S.shape[0], STRIP):
        part = slice(start, start + STRIP)
        with np.errstate(over="ignore"):
            gaps = np.abs(
                _as_float(S[part, start:]) - _as_float(S[start:, part].T)
            )  # the strip right of and below the diagonal
        flat = int(np.argmax(gaps))
        i, j = divmod(flat, gaps.shape[1])
        if gaps[i, j] > worst:
            worst, at = float(gaps[i, j]), (start + i, start + j)
    return worst, *at


def _check_matrix(S: Any) -> None:
    entries = S.data if is_sparse(S) else S
    strips = range(0, len(entries), STRIP if entries.ndim == 2 else STRIP**2)
    step = strips.step
    n_bad = sum(int(np.sum(~np.isfinite(entries[start : start + step]))) for start in strips)
    if n_bad:
        raise InputError(
            f"Precomputed needs finite similarities; {n_bad} of {S.shape[0]}² are NaN or infinite. Impute them first."
        )
    largest = max((float(np.max(np.abs(_as_float(entries[start : start + step])))) for start in strips), default=0.0)
    if is_sparse(S):
        gaps = abs(S.astype(np.float64) - S.T.astype(np.float64)).tocoo()
        k = int(np.argmax(gaps.data)) if gaps.nnz else -1
        gap, i, j = (float(gaps.data[k]), int(gaps.row[k]), int(gaps.col[k])) if gaps.nnz else (0.0, 0, 0)
    else:
        gap, i, j = largest_asymmetry(S)
    if gap > ASYMMETRY.get(S.dtype, 1e-8) * largest:
        raise InputError(
            f"Precomputed needs a symmetric matrix; the largest difference is {gap:.3g}, between S[{i}, {j}] = "
            f"{S[i, j]:.6g} and "
            f"S[{j}, {i}] = {S[j, i]:.6g} (largest entry {largest:.3g}). If that is meant, pass (S + S.T) / 2."
        )


def _as_float(values: Any) -> Array:
    floats = values.dtype in (np.float32, np.float64) or values.dtype.kind not in "biuf"
    return values if floats else values.astype(np.float64)  # type: ignore[no-any-return]
