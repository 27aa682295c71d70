"""A matrix of similarities (or distances) as a kernel: dense, sparse, or in a file larger than memory.

Its objects are indices. Only the blocks that are needed are read, along the shorter side, and the pages of a file are
released after each read, so that the memory of the process does not grow with the file.

`GivenRows` and `GivenColumns` follow scikit-learn's convention for predictions: X is a matrix of similarities of new
objects (rows) to those of the fit (columns). New objects get the indices that follow: object n + i is row i.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array, Indices, stream, strips
from krein.errors import InputError, one_of, regular_file
from krein.kernels.collections import is_sparse
from krein.kernels.kernel import ASYMMETRY, STRIP, Kernel, Traits, as_float, asymmetry, release_pages

__all__ = ["GivenColumns", "GivenRows", "Precomputed", "given_matrix", "open_matrix"]

# A matrix in a file is checked completely by check="auto" if it has at most CHECKED_ENTRIES entries.
CHECKED_ENTRIES = 2**28
# Of a larger one the submatrix of SAMPLED_ROWS random rows and the same columns is checked.
SAMPLED_ROWS = 512
# In addition, COMPLETE_ROWS rows and the same columns are checked over their whole length.
COMPLETE_ROWS = 4
# A file is read in parts of at most READ_ENTRIES entries.
READ_ENTRIES = 2**22


@dataclass(frozen=True, eq=False, repr=False)
class Precomputed(Kernel):
    """A symmetric matrix of similarities as a kernel; its objects are the indices 0 to n - 1.

    Indices come as a 1-D array or as one column. NaN and infinite values are errors that name the place.

    Parameters
    ----------
    S : ndarray, numpy.memmap, path of an .npy file, or SciPy sparse matrix, shape (n, n)
        The similarities. Entries that a sparse matrix does not store are 0.
    asymmetric : {"refuse", "average"}, default="refuse"
        What is done about an asymmetric S: an error that names the worst pair, or (S + Sᵀ) / 2, computed block by
        block.
    check : {"auto", "all", "sample"}, default="auto"
        How much of S is checked. "sample" checks the submatrix of 512 random rows and columns, and 4 rows and columns
        over their whole length. "auto" is "sample" for files of more than 2²⁸ entries, and "all" otherwise.

    Notes
    -----
    Every block that is read later is checked for NaN. Two kernels are equal if they hold the same object S. A copy
    shares S.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> S = np.array([[1.0, 0.2, 0.5], [0.2, 1.0, 0.3], [0.5, 0.3, 1.0]])
    >>> krein.Precomputed(S)([0, 2], [1])
    array([[0.2],
           [0.3]])
    """

    S: Any
    _: KW_ONLY
    asymmetric: str = "refuse"
    check: str = "auto"

    compares: ClassVar[str] = "indices"

    def __post_init__(self) -> None:
        one_of("asymmetric", self.asymmetric, ("refuse", "average"))
        one_of("check", self.check, ("auto", "all", "sample"))
        S = open_matrix(self.S) if isinstance(self.S, str | os.PathLike) else self.S
        if isinstance(S, np.lib.npyio.NpzFile):
            names = list(S.files)
            how = "scipy.sparse.load_npz(path)" if "indptr" in names else "numpy.load(path)[name]"
            raise InputError(
                f"Precomputed needs one matrix, an .npy file for instance; got an .npz archive of {len(names)} arrays "
                f"({', '.join(names[:5])}). Load the one that is meant, and pass it: Precomputed({how})."
            )
        if is_sparse(S):
            S = S.tocsr()
        elif np.ma.is_masked(S):
            count = int(np.ma.getmaskarray(S).sum())
            raise InputError(f"Precomputed needs every similarity; {count} of {S.size} are masked. Fill them in.")
        elif not isinstance(S, np.ndarray) or isinstance(S, np.ma.MaskedArray):
            S = np.asarray(S)
        if len(S.shape) != 2 or S.shape[0] != S.shape[1] or S.dtype.kind not in "biuf":
            raise InputError(
                f"Precomputed needs a square matrix of real numbers; got {S.dtype} values of shape {S.shape}. For "
                "similarities to new "
                "objects give the matrix over old and new objects together, and use their indices."
            )
        object.__setattr__(self, "S", S)
        if self.check == "auto":
            large = isinstance(S, np.memmap) and S.size > CHECKED_ENTRIES
            object.__setattr__(self, "check", "sample" if large else "all")
        _check_matrix(S, self.check, self.asymmetric == "refuse")

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
        if self.asymmetric == "average":
            return 0.5 * as_float(_read(self.S, a, b)) + 0.5 * as_float(_read(self.S, b, a)).T
        if len(b) < len(a) and not is_sparse(self.S):  # S is symmetric, and whole rows lie together
            return as_float(_read(self.S, b, a)).T
        return as_float(_read(self.S, a, b))

    def diag(self, A: Any) -> Array:
        a = self._indices(A)
        if is_sparse(self.S):
            return as_float(np.asarray(self.S.diagonal()[a]))
        values = np.empty(len(a), dtype=self.S.dtype)
        for part in strips(len(a), 1, STRIP):  # at least one page is read for each entry
            values[part] = self.S[a[part], a[part]]
            release_pages(self.S)
        return as_float(values)

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
        return isinstance(other, Precomputed) and other.S is self.S and other.asymmetric == self.asymmetric

    def __hash__(self) -> int:
        return hash((Precomputed, id(self.S), self.asymmetric))

    def __deepcopy__(self, memo: dict[int, Any]) -> Precomputed:
        return self  # scikit-learn's clone copies parameters deeply; S may be as large as the disk

    def __repr__(self) -> str:
        kind = "sparse" if is_sparse(self.S) else "memory-mapped" if isinstance(self.S, np.memmap) else "dense"
        how = ", averaged with its transpose" if self.asymmetric == "average" else ""
        how += ", checked on a sample" if self.check == "sample" else ""
        return f"Precomputed(<{self.n_objects} x {self.n_objects} {kind} {self.S.dtype} matrix{how}>)"


def open_matrix(path: str | os.PathLike[str]) -> Any:
    """Return the array in an .npy file, memory-mapped."""
    try:
        return np.load(regular_file(path), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{os.fspath(path)!r} cannot be opened as a NumPy array: {error}. Write it with numpy.save, or "
            "numpy.lib.format.open_memmap for one larger than memory; for raw numbers pass a numpy.memmap."
        ) from error


def _read(S: Any, a: Indices, b: Indices) -> Any:
    """S[a][:, b], dense; of a file a few rows at a time, each of which is read whole."""
    if is_sparse(S):
        return S[a][:, b].toarray()
    if not isinstance(S, np.memmap):
        return np.asarray(S[np.ix_(a, b)])
    out = np.empty((len(a), len(b)), dtype=S.dtype)
    for part in strips(len(a), S.shape[1], READ_ENTRIES):
        out[part] = S[a[part]][:, b] if 8 * len(b) > S.shape[1] else S[np.ix_(a[part], b)]
        release_pages(S)
    return out


@contextlib.contextmanager
def _random_access(S: Any) -> Iterator[None]:
    """Switch off the system's read-ahead on a file, which would fetch 32 pages for each number."""
    file = getattr(S, "_mmap", None) if isinstance(S, np.memmap) else None
    if not (isinstance(file, mmap.mmap) and hasattr(mmap, "MADV_RANDOM")):
        yield
        return
    file.madvise(mmap.MADV_RANDOM)
    try:
        yield
    finally:
        file.madvise(mmap.MADV_NORMAL)


def _check_matrix(S: Any, how: str, refuse: bool) -> None:
    if how == "sample" and S.shape[0] and not is_sparse(S):
        n = S.shape[0]
        spots = np.sort(stream(0).choice(n, min(n, SAMPLED_ROWS), replace=False))
        sample: Any = np.asarray(S[np.ix_(spots, spots)])
        release_pages(S)
        largest = max(_largest(sample, spots), _check_whole_rows(S, refuse))
    else:
        sample, spots = S, np.arange(S.shape[0])
        largest = _largest(sample, spots)
    if not refuse:
        return
    if is_sparse(S):
        gaps = abs(S.astype(np.float64) - S.T.astype(np.float64)).tocoo()
        k = int(np.argmax(gaps.data)) if gaps.nnz else -1
        gap, i, j = (float(gaps.data[k]), int(gaps.row[k]), int(gaps.col[k])) if gaps.nnz else (0.0, 0, 0)
    else:
        gap, i, j = asymmetry(sample)
    if gap > 0.0:
        _refuse_asymmetry(S, gap, int(spots[i]), int(spots[j]), largest)


def _refuse_asymmetry(S: Any, gap: float, i: int, j: int, largest: float) -> None:
    if gap > ASYMMETRY.get(S.dtype, 1e-8) * largest:
        raise InputError(
            f"Precomputed needs a symmetric matrix; the largest difference is {gap:.3g}, between S[{i}, {j}] = "
            f"{S[i, j]:.6g} and "
            f"S[{j}, {i}] = {S[j, i]:.6g} (largest entry {largest:.3g}). If that is meant, pass "
            'asymmetric="average" for (S + S.T) / 2.'
        )


def _check_whole_rows(S: Any, refuse: bool) -> float:
    """Check a few rows and the same columns over their whole length; return their largest |S_ij|.

    Every object is compared with these in both orders. The rows are adjacent, because a column of a file costs one page
    per row, however many adjacent columns are read.
    """
    n = S.shape[0]
    first = int(stream(1).integers(max(1, n - COMPLETE_ROWS + 1)))
    few = slice(first, min(n, first + COMPLETE_ROWS))
    across, down = as_float(np.array(S[few])).T, np.empty((n, few.stop - first))
    with _random_access(S):
        for part in strips(n, 1, STRIP):
            down[part] = S[part, few]
            release_pages(S)
    for values, turned in ((across, True), (down, False)):
        bad = ~np.isfinite(values)
        if bad.any():
            i, j = divmod(int(np.argmax(bad)), values.shape[1])
            i, j = (first + j, i) if turned else (i, first + j)
            raise InputError(
                f"Precomputed needs finite similarities; {int(bad.sum())} of {values.size} checked are NaN or "
                f"infinite, the first ({S[i, j]}) at S[{i}, {j}]. Impute them first."
            )
    largest = float(max(np.abs(across).max(), np.abs(down).max()))
    with np.errstate(over="ignore"):
        gaps = np.abs(down - across)
    i, j = divmod(int(np.argmax(gaps)), gaps.shape[1])
    if refuse:
        _refuse_asymmetry(S, float(gaps[i, j]), i, first + j, largest)
    return largest


def _largest(S: Any, spots: Indices) -> float:
    """The largest |S_ij|, all of them finite; ``spots`` are the indices of its rows in the matrix itself."""
    entries = S.data if is_sparse(S) else S
    step = STRIP if entries.ndim == 2 else STRIP**2
    largest, n_bad, first = 0.0, 0, -1
    for start in range(0, len(entries), step):
        part = as_float(np.asarray(entries[start : start + step]))
        size = float(np.max(np.abs(part), initial=0.0))
        if not np.isfinite(size):
            bad = ~np.isfinite(part)
            if first < 0:
                first = start * (part.shape[1] if part.ndim == 2 else 1) + int(np.argmax(bad))
            n_bad += int(bad.sum())
        largest = max(largest, size)
        release_pages(S)
    if n_bad:
        i, j = _place(S, first)
        raise InputError(
            f"Precomputed needs finite similarities; {n_bad} of {S.shape[0]}² are NaN or infinite, the first "
            f"({S[i, j]}) at S[{spots[i]}, {spots[j]}]. Impute them first."
        )
    return largest


def _place(S: Any, flat: int) -> tuple[int, int]:
    if not is_sparse(S):
        return divmod(flat, int(S.shape[1]))
    return int(np.searchsorted(S.indptr, flat, side="right")) - 1, int(S.indices[flat])


# -- predictions from given rows ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class GivenRows(Precomputed):
    """The kernel of a fit with similarities of new objects to the old ones beside it: object n + i is row i of R."""

    R: Any = None  # (m, n), similarities of the new objects to those of the fit

    def __post_init__(self) -> None:
        pass  # S was checked at the fit, R by the estimator

    @property
    def n_objects(self) -> int:
        return int(self.S.shape[0] + self.R.shape[0])

    @property
    def new(self) -> Indices:
        """The objects that are rows of R."""
        return np.arange(self.S.shape[0], self.n_objects)

    def __call__(self, A: Any, B: Any = None) -> Array:
        a, b = self._indices(A), self._indices(A if B is None else B)
        n = self.S.shape[0]
        if a.size and a.min() >= n and (b.size == 0 or b.max() < n):
            return _given_block(self.R, a - n, b)
        if a.size and b.size and max(a.max(), b.max()) >= n:
            raise InputError(
                "Similarities among new objects are not given: a precomputed matrix has those of new objects to the "
                "ones of the fit. Fit on all of them together."
            )
        return _given_block(self.S, a, b)

    def diag(self, A: Any) -> Array:
        a = self._indices(A)
        if a.size and a.max() >= self.S.shape[0]:
            raise InputError("A precomputed matrix does not say how similar new objects are to themselves.")
        return super().diag(A)


@dataclass(frozen=True)
class GivenColumns(Kernel):
    """Similarities that come with each new object: its row of similarities to the objects of the fit.

    k(row, i) = row[i]. The matrix of the fit has no part in it, so a model that predicts by it does not keep that.
    """

    compares: ClassVar[str] = "anything"

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=None)

    def __call__(self, A: Any, B: Any = None) -> Array:
        block = A[:, np.asarray(B)]
        return np.asarray(block.toarray() if is_sparse(block) else block)

    def diag(self, A: Any) -> Array:
        raise InputError("A precomputed matrix does not say how similar new objects are to themselves.")


def given_matrix(S: Any) -> Precomputed:
    """The kernel of a matrix to fit; one that is not square is refused in scikit-learn's words."""
    if S.shape[0] != S.shape[1]:
        raise InputError(
            f"Precomputed matrix must be a square matrix. Input is a {S.shape[0]}x{S.shape[1]} matrix; fit needs the "
            "similarities of the training objects among themselves."
        )
    try:
        return Precomputed(S)
    except InputError as error:
        what, crooked, _ = str(error).partition("If that is meant")  # no estimator has the parameter it goes on with
        if not crooked:
            raise
        raise InputError(
            f"{what}If that is meant, fit (S + S.T) / 2; or pass "
            'kernel=krein.Precomputed(S, asymmetric="average") and indices for X.'
        ) from None


def _given_block(S: Any, a: Indices, b: Indices) -> Array:
    block = S[a][:, b].toarray() if is_sparse(S) else np.asarray(S[np.ix_(a, b)])
    return block if block.dtype in (np.float32, np.float64) else block.astype(np.float64)
