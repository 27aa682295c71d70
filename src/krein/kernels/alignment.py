"""Alignment scores of strings by a substitution matrix and affine gaps: Smith-Waterman and Needleman-Wunsch.

One string is aligned with many at once, letter by letter (Gotoh's recursion): a gap along the others is a running
maximum, so that every step is a handful of NumPy operations on whole tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array, Indices
from krein.errors import InputError, is_number, one_of
from krein.kernels.collections import count_objects
from krein.kernels.kernel import Kernel, Traits
from krein.kernels.strings import check_strings

__all__ = ["Alignment", "batches"]

# Strings are aligned in batches whose tables have about TABLE_CELLS cells, which fit into the processor's cache.
TABLE_CELLS = 2**15
# Scores below INT16_RANGE are computed in 16 bits.
INT16_RANGE = 2**15


@dataclass(frozen=True)
class Alignment(Kernel):
    """The score of the best alignment of two strings; symmetric, and indefinite on most data.

    Parameters
    ----------
    scores : str, (match, mismatch) or {(letter, letter): score}, default="BLOSUM62"
        A name is that of one of Biopython's matrices (``krein[strings]``). A mapping needs each pair once.
    gap_open, gap_extend : float, default=11.0 and 1.0
        Cost of the first letter of a gap, and of each further one; gap_open >= gap_extend >= 0.
    mode : {"local", "global"}, default="local"
        Align the best parts of both strings (Smith-Waterman, >= 0), or the whole strings (Needleman-Wunsch).

    Examples
    --------
    >>> import krein
    >>> X = ["GATTACA", "GATACA"]
    >>> krein.Alignment(scores=(2, -1), gap_open=2, gap_extend=1)(X)
    array([[14., 10.],
           [10., 12.]])
    """

    scores: Any = "BLOSUM62"
    gap_open: float = 11.0
    gap_extend: float = 1.0
    mode: str = "local"

    compares: ClassVar[str] = "strings"

    def __post_init__(self) -> None:
        one_of("mode", self.mode, ("local", "global"))
        for name in ("gap_open", "gap_extend"):
            if not (is_number(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"Alignment needs {name} to be a finite number >= 0; got {getattr(self, name)!r}.")
        if self.gap_open < self.gap_extend:
            raise InputError(
                f"Alignment needs gap_open >= gap_extend; got {self.gap_open:g} and {self.gap_extend:g}. The first "
                "letter of a gap costs gap_open, each further one gap_extend."
            )
        if isinstance(self.scores, Mapping):
            object.__setattr__(self, "scores", tuple(sorted((*pair, float(s)) for pair, s in self.scores.items())))
        elif not isinstance(self.scores, str):
            object.__setattr__(self, "scores", tuple(self.scores))
        _table(self.scores)  # is it one?

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=None, low=0.0 if self.mode == "local" else None)

    def __call__(self, A: Any, B: Any = None) -> Array:
        B = A if B is None else B
        check_strings(A)
        check_strings(B)
        if count_objects(A) > count_objects(B):  # the longer list is the one that many of are aligned at once
            return self._all(list(B), list(A)).T
        return self._all(list(A), list(B))

    def diag(self, A: Any) -> Array:
        strings = list(A)
        check_strings(strings)
        letters, table = _letters(self.scores, {*"".join(strings)}, self)
        own = np.diagonal(table)[1:]
        if own.min(initial=0) >= 0 and (2 * table[1:, 1:] <= own[:, None] + own).all():  # then nothing beats itself
            return np.array([float(sum(own[letters[c] - 1] for c in s)) for s in strings])
        return np.array([self._all([s], [s])[0, 0] for s in strings])

    def _all(self, few: list[str], many: list[str]) -> Array:
        letters, table = _letters(self.scores, {*"".join(few), *"".join(many)}, self)
        if table.dtype != np.float64:  # whole numbers: the shortest type that holds every score
            steps = max(map(len, few), default=0) + max(map(len, many), default=0) + 2
            table = table.astype(np.int16 if steps * int(np.abs(table).max()) < INT16_RANGE else np.int32)
        out = np.empty((len(few), len(many)))
        coded = [np.fromiter((letters[c] for c in s), dtype=np.intp, count=len(s)) for s in few]
        for spots, longest in batches([len(s) for s in many], TABLE_CELLS):
            lengths = np.array([len(many[j]) for j in spots])
            codes = np.zeros((longest, len(spots)), dtype=np.intp)  # 0: past the end
            for p, j in enumerate(spots):
                codes[: lengths[p], p] = [letters[c] for c in many[j]]
            profile = table[:, codes]  # (letters, longest, pairs)
            for i, word in enumerate(coded):
                out[i, spots] = self._scores(word, profile, lengths)
        return out

    def _scores(self, word: Indices, profile: Array, lengths: Indices) -> Array:
        """One string against many: H[j] is the best score of an alignment that ends with letter j of each."""
        kind, (longest, count) = profile.dtype, profile.shape[1:]
        first, more, local = kind.type(self.gap_open), kind.type(self.gap_extend), self.mode == "local"
        along = (np.arange(longest, dtype=kind) * more)[:, None]
        start = np.zeros(longest + 1, dtype=kind)
        if not local:
            start[1:] = -first - along[:, 0]
        H = np.repeat(start[:, None], count, axis=1)  # row 0: before the first letter
        E = np.full((longest, count), start[1:, None] - first - more)  # gaps in the others: nothing to extend yet
        best, ends, gaps = np.zeros_like(E), np.empty_like(E), np.empty_like(E)
        for i, letter in enumerate(word):
            E -= more
            np.subtract(H[1:], first, out=gaps)
            np.maximum(E, gaps, out=E)
            np.add(H[:-1], profile[letter], out=ends)
            np.maximum(ends, E, out=ends)
            edge = 0 if local else -first - more * kind.type(i)
            # A gap that ends before letter j began after some k < j: max_k ends[k] - first - (j - k - 1) more.
            gaps[:1] = edge
            np.add(ends[:-1], along[1:], out=gaps[1:])
            running(np.maximum, gaps)
            gaps -= along + first
            H[0] = edge
            np.maximum(ends, gaps, out=H[1:])
            if local:
                np.maximum(H, 0, out=H)
                np.maximum(best, H[1:], out=best)
        return best.max(0, initial=0) if local else H[lengths, np.arange(count)]


def running(operation: Any, table: Array) -> None:
    """Accumulate down the columns, in place, by doubling: NumPy's own accumulate goes entry by entry here."""
    shift = 1
    while shift < len(table):
        table[shift:] = operation(table[shift:], table[:-shift])
        shift *= 2


def batches(lengths: list[int], cells: int) -> Iterator[tuple[Indices, int]]:
    """Yield (places, longest) of things of similar length, so many that a table of them has about ``cells``."""
    order, sizes = np.argsort(lengths, kind="stable"), np.sort(lengths)
    start = 0
    while start < len(order):
        stop = start + max(1, cells // max(1, int(sizes[start])))
        longest = int(sizes[min(stop, len(order)) - 1])
        stop = min(len(order), start + max(1, cells // max(1, longest)))
        yield order[start:stop], int(sizes[stop - 1])
        start = stop


@lru_cache(maxsize=16)
def _table(scores: Any) -> dict[tuple[str, str], float] | tuple[float, float]:
    """Scores by pairs of letters, or those of equal and of different ones."""
    if isinstance(scores, str):
        try:
            from Bio.Align import substitution_matrices
        except ImportError as error:
            raise InputError(
                f"Alignment needs Biopython for scores={scores!r}, and it is not installed: pip install "
                "krein[strings], or give (match, mismatch)."
            ) from error
        load: Any = substitution_matrices.load  # untyped
        one_of("scores", scores, load())
        matrix = load(scores)
        return {(a, b): float(matrix[a, b]) for a in matrix.alphabet for b in matrix.alphabet}
    if len(scores) == 2 and all(map(is_number, scores)):
        return float(scores[0]), float(scores[1])
    try:
        table = {(a, b): s for a, b, s in scores}
        if not all(len(a) == len(b) == 1 and is_number(s) for (a, b), s in table.items()):
            raise ValueError
    except (TypeError, ValueError):
        raise InputError(
            "Alignment needs scores as the name of a matrix, (match, mismatch), or a dict {(letter, letter): number}."
        ) from None
    for (a, b), s in table.items():
        if table.get((b, a), s) != s:
            raise InputError(f"Alignment needs symmetric scores; {a!r}, {b!r} has {s:g}, but {table[b, a]:g} reversed.")
    return table | {(b, a): s for (a, b), s in table.items()}


def _letters(scores: Any, used: set[str], asker: Alignment) -> tuple[dict[str, int], Array]:
    """Return a number from 1 for each letter and the scores by numbers; 0 stands for what is past the end."""
    known, order = _table(scores), sorted(used)
    if isinstance(known, tuple):
        inner = np.where(np.eye(len(order), dtype=bool), *known)
    else:
        missing = [c for c in order if (c, c) not in known]
        if missing:
            raise InputError(
                f"Alignment has no scores for {', '.join(map(repr, missing[:10]))}; its matrix has "
                f"{''.join(sorted({a for a, _ in known}))!r}. Clean the strings, or give scores for these letters."
            )
        inner = np.array([[known.get((a, b), np.nan) for b in order] for a in order]).reshape(len(order), len(order))
        if np.isnan(inner).any():
            i, j = np.argwhere(np.isnan(inner))[0]
            raise InputError(f"Alignment has no score for {order[i]!r} and {order[j]!r}. Add it.")
    costs = np.array([asker.gap_open, asker.gap_extend])
    largest = float(max(np.abs(inner).max(initial=0.0), costs.max(), 1.0))
    exact = bool(np.all(inner == np.round(inner)) and np.all(costs == np.round(costs)) and largest < 2**8)
    table = np.full((len(order) + 1, len(order) + 1), -2.0 * largest)
    table[1:, 1:] = inner
    return {c: i + 1 for i, c in enumerate(order)}, table.astype(np.int32 if exact else np.float64)
