"""Similarities of strings: edit distance, Jaro-Winkler, common n-grams.

The first two are rapidfuzz's (``krein[strings]``), on all cores; n-grams are counted with NumPy. Alignments
by a substitution matrix are in `alignment`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from krein.arrays import Array
from krein.errors import InputError, whole
from krein.kernels.collections import count_objects
from krein.kernels.kernel import Kernel, Traits

__all__ = ["EditDistance", "EditSimilarity", "JaroWinkler", "Spectrum", "check_strings", "codes_of"]

# Up to SERIAL_PAIRS pairs one thread is used, because starting more takes longer than they save.
SERIAL_PAIRS = 20_000


@dataclass(frozen=True)
class _Fuzzy(Kernel):
    """Base class of comparisons by rapidfuzz; ``n_jobs`` threads, None for one, -1 for one per core."""

    n_jobs: int | None = field(default=-1, compare=False, repr=False, kw_only=True)

    compares: ClassVar[str] = "strings"

    def __post_init__(self) -> None:
        jobs = self.n_jobs
        whole_number = isinstance(jobs, int | np.integer) and not isinstance(jobs, bool)
        if jobs is not None and not (whole_number and (jobs >= 1 or jobs == -1)):
            raise InputError(
                f"{type(self).__name__} needs n_jobs to be a whole number, 1 or more, -1 for all cores or None for 1; "
                f"got {jobs!r}."
            )

    @property
    def _workers(self) -> int:
        cores = os.cpu_count() or 1
        return cores if self.n_jobs == -1 else min(int(self.n_jobs or 1), cores)

    def _all_pairs(self, A: Any, B: Any, scorer: str, dtype: Any = np.float64) -> Array:
        try:
            from rapidfuzz import distance, process
        except ImportError as error:
            raise InputError(
                f"{type(self).__name__} needs rapidfuzz, which is not installed: pip install 'krein[strings]'."
            ) from error
        module, name = scorer.split(".")
        B = A if B is None else B
        check_strings(A)
        check_strings(B)
        workers = 1 if count_objects(A) * count_objects(B) <= SERIAL_PAIRS else self._workers
        call = getattr(getattr(distance, module), name)
        return np.asarray(process.cdist(A, B, scorer=call, dtype=dtype, workers=workers))

    def diag_entries(self, n_objects: int) -> int:
        return 0  # constant


@dataclass(frozen=True)
class EditDistance(_Fuzzy):
    """Levenshtein distance: the least number of insertions, deletions and substitutions that turn x into y.

    `FromDistances` or `DoubleCentred` makes a similarity of it. Needs ``pip install "krein[strings]"``.

    Parameters
    ----------
    n_jobs : int or None, default=-1
        Number of threads; None means 1 and -1 one per core.

    Examples
    --------
    >>> import krein
    >>> X = ["kitten", "sitting", "mitten"]
    >>> krein.EditDistance()(X)
    array([[0., 3., 1.],
           [3., 0., 3.],
           [1., 3., 0.]])
    """

    dissimilar: ClassVar[bool] = True

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=False, low=0.0, constant_diagonal=True)  # zero trace, not all zero

    def __call__(self, A: Any, B: Any = None) -> Array:
        return self._all_pairs(A, B, "Levenshtein.distance", np.int32).astype(np.float64)

    def diag(self, A: Any) -> Array:
        return np.zeros(count_objects(A))


@dataclass(frozen=True)
class _FuzzySimilarity(_Fuzzy):
    """Base class of similarities from 0 to 1 that are computed by rapidfuzz."""

    scorer: ClassVar[str]  # module and function of rapidfuzz.distance

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=False, low=0.0, high=1.0, constant_diagonal=True)

    def __call__(self, A: Any, B: Any = None) -> Array:
        return self._all_pairs(A, B, self.scorer)

    def diag(self, A: Any) -> Array:
        return np.ones(count_objects(A))


@dataclass(frozen=True)
class EditSimilarity(_FuzzySimilarity):
    """1 - (edit distance / length of the longer string), from 0 to 1; indefinite.

    Two empty strings have similarity 1. Needs ``pip install "krein[strings]"``.

    Parameters
    ----------
    n_jobs : int or None, default=-1
        Number of threads; None means 1 and -1 one per core.

    Examples
    --------
    >>> import krein
    >>> X = ["kitten", "sitting", "mitten"]
    >>> krein.EditSimilarity()(X).round(2)
    array([[1.  , 0.57, 0.83],
           [0.57, 1.  , 0.57],
           [0.83, 0.57, 1.  ]])
    """

    scorer: ClassVar[str] = "Levenshtein.normalized_similarity"


@dataclass(frozen=True)
class JaroWinkler(_FuzzySimilarity):
    """Jaro-Winkler similarity of short strings such as names, from 0 to 1; indefinite.

    Jaro's similarity is raised for strings that begin alike (Winkler). Needs ``pip install "krein[strings]"``.

    Parameters
    ----------
    n_jobs : int or None, default=-1
        Number of threads; None means 1 and -1 one per core.

    Examples
    --------
    >>> import krein
    >>> X = ["martha", "marhta"]
    >>> krein.JaroWinkler()(X).round(2)
    array([[1.  , 0.96],
           [0.96, 1.  ]])
    """

    scorer: ClassVar[str] = "JaroWinkler.similarity"


@dataclass(frozen=True)
class Spectrum(Kernel):
    """Spectrum kernel: the inner product of the n-gram counts of two strings (Leslie, Eskin, Noble 2002); psd.

    ``Normalized(Spectrum())`` removes the effect of the lengths of the strings.

    Parameters
    ----------
    n : int, default=3
        Length of the n-grams. The similarity to a string shorter than n is 0.
    blended : bool, default=False
        Whether all lengths from 1 to n are counted.

    Examples
    --------
    >>> import krein
    >>> krein.Spectrum(n=2)(["banana", "bandana"])
    array([[9., 7.],
           [7., 8.]])
    """

    n: int = 3
    blended: bool = False

    compares: ClassVar[str] = "strings"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole(self, "n", self.n))

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=True, low=0.0)

    def __call__(self, A: Any, B: Any = None) -> Array:
        check_strings(A)
        check_strings(() if B is None else B)
        n_a, both = count_objects(A), list(A) if B is None or B is A else [*A, *B]
        first = second = self._counts(both)
        if B is not None and B is not A:
            first, second = first[:n_a], second[n_a:]
        return np.asarray((first @ second.T).toarray(), dtype=np.float64)

    def diag(self, A: Any) -> Array:
        counts = self._counts(list(A))
        return np.asarray(counts.multiply(counts).sum(1), dtype=np.float64).ravel()

    def _counts(self, strings: list[str]) -> Any:
        """How often each n-gram occurs in each string, CSR."""
        codes, lengths = codes_of(strings)
        owner = np.repeat(np.arange(len(strings)), lengths)
        grams = np.unique(codes, return_inverse=True)[1] if codes.size else codes
        rows, columns, n_columns = [], [], 0
        for n in range(1, self.n + 1):
            if n > 1:  # the n-gram that starts here: an (n - 1)-gram and the letter after it, numbered anew
                later = np.append(codes[n - 1 :], np.zeros(min(n - 1, len(codes)), dtype=codes.dtype))
                pair = grams.astype(np.int64) * (int(codes.max(initial=0)) + 1) + later
                grams = np.unique(pair, return_inverse=True)[1]
            if n < self.n and not self.blended:
                continue
            inside = np.flatnonzero(_left(lengths) >= n)
            rows.append(owner[inside])
            columns.append(n_columns + grams[inside])
            n_columns += int(grams.max(initial=-1)) + 1
        row, column = np.concatenate(rows), np.concatenate(columns)
        counts = sparse.coo_array((np.ones(len(row)), (row, column)), shape=(len(strings), max(1, n_columns)))
        return counts.tocsr()  # adds up what occurs twice


def check_strings(items: Any) -> None:
    """Refuse what is no string, with its place: a missing one would be similar to nothing without a word."""
    for i, item in enumerate(items):
        if not isinstance(item, str):
            seen = f"a row of shape {np.shape(item)}" if isinstance(item, list) else f"{item!r:.60}"
            raise InputError(
                f"X must hold strings, one per object; item {i} is {seen} ({type(item).__name__}). Drop or convert it, "
                "or pass one column."
            )


def codes_of(strings: list[str]) -> tuple[Any, Any]:
    """Return the letters of all strings one after the other, as numbers, and the length of each string."""
    check_strings(strings)
    codes = np.frombuffer("".join(strings).encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.int64)
    return codes, np.fromiter(map(len, strings), dtype=np.intp, count=len(strings))


def _left(lengths: Any) -> Any:
    """For each letter, how many are left in its string, itself counted."""
    ends = np.repeat(np.cumsum(lengths), lengths)
    return ends - np.arange(len(ends))
