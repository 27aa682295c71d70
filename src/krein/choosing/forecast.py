"""A sample of the objects in, a proposed candidate out: the fewest bytes whose error is forecast to be low enough.

For given clusters the best U_i are the leading left singular vectors of K[X_i, :], and with M = UᵀKU the squared error
is |K|² less the squares in M. On a sample of m rows that is the whole curve over the rank, for any number of blocks,
from the same m² similarities (`Curves`). A sample is too optimistic (k directions fit m / c rows too well) and too
pessimistic (its diagonal weighs n / m times too much), both in proportion to 1 / m. So the curve is computed on the
sample and on its halves, and extrapolated to n rows along 1 / m. Ranks that are too high for the blocks of the sample
follow the curve of fewer blocks. The clusters of all numbers of blocks are cut from one tree (Ward's), which is close
to k-means and made once.

The sample starts small and grows with the number of directions that are proposed (`proposal`), so that choosing takes
less time than building. A proposal is a forecast: the error is measured after it was built (`by_error`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import scipy  # scipy.cluster is loaded when it is first used, so that importing krein does not wait for it
import scipy.linalg

from krein.approximation.clusters import landmark_embedding, scale_of, scaled
from krein.arrays import Array, Indices, stream
from krein.choosing.candidates import Candidate, Selection, bytes_of
from krein.errors import InputError
from krein.factorization.bases import STORAGE
from krein.kernels import Evaluator, FromCallable, Precomputed, count_objects, is_vectors, take
from krein.kernels.collections import is_sparse
from krein.policy import DEFAULT, Policy

__all__ = [
    "BUILT_ERROR", "ONE_BLOCK_SHARE", "STORAGE_ERROR", "USED_MEMORY", "Curves", "Errors", "Goal", "proposal",
    "squared_errors",
]  # fmt: skip

# The sample has at least this many rows per block. More blocks than that allows follow the trend of fewer.
ROWS_PER_BLOCK = 16
# Objects without coordinates are embedded by as many similarities as this many blocks need.
EMBEDDED_BLOCKS = 16
# The curve is computed up to this many rows of the sample per block and rank. Higher ranks are extrapolated.
ROWS_PER_RANK = 4
# The same for a single block, whose curve is a power law that extrapolates well.
ROWS_PER_RANK_ONE_BLOCK = 8
# Squares below this share of their sum are rounding.
SQUARE_ROUNDING = 1e-15
# Errors below this are rounding, as squares are known to some 1e-16.
ERROR_ROUNDING = 1e-8
# Beyond the ranks that were computed, the error of more blocks over that of fewer falls by at most this power of the
# rank.
STEEPEST_POWER = -0.12
# Blocks with more rows than this get their leading directions by subspace iteration: a third of the time, 0.2 % off.
ITERATED_ROWS = 300

# Numbers of blocks that can be proposed. Every second one is tried first, then the neighbours of the best.
BLOCK_NUMBERS = (1, 2, 3, 5, 8, 12, 20, 32, 50, 80, 125, 200, 320, 500, 800, 1250, 2000)
# The first pass ends after this many numbers of blocks without gain.
PATIENCE = 2
# The largest sample has 10 sqrt(n) rows, but not less than the first number and not more than the second.
SAMPLE_ROWS = (1000, 2500)
# The forecast starts with INITIAL_SAMPLE rows and grows to ROWS_PER_DIRECTION rows per proposed direction
# (n_blocks * rank).
INITIAL_SAMPLE = 125
ROWS_PER_DIRECTION = 6
# A sample of m rows costs some m³, and bases some 30 n k². Beyond CHEAP_SAMPLE rows, m³ is at most WORK_SHARE n k².
CHEAP_SAMPLE = 250
WORK_SHARE = 16.0
# A larger sample has at least and at most this many times the rows of the one before.
SAMPLE_GROWTH = (1.5, 3.0)
# Neighbouring numbers of blocks are not tried for a proposal of at most this many directions in all.
FEW_DIRECTIONS = 8
# A larger sample is asked for this many of the best numbers of blocks, and for their neighbours.
REFINED_NUMBERS = 3
# The forecast evaluates at most this many similarities per object where each may be expensive.
EXPENSIVE_SIMILARITIES = 32
# Several blocks are proposed with at least this many rows per block and rank.
PROPOSED_ROWS_PER_RANK = 4
# One block with a higher rank than this share of n takes more bytes than the matrix itself.
ONE_BLOCK_SHARE = 0.6
# What is built uses landmarks in place of K: its error is about this many times the best possible one.
BUILT_ERROR = 1.15
# A proposal that takes less than this share of the memory gains nothing from the rest.
USED_MEMORY = 0.8
# An error below this share of the rounding of the storage type does not justify a higher rank.
ROUNDING_SHARE = 0.1
# An error up to this many times the lowest is as good if it takes fewer bytes.
EQUIVALENT_ERROR_RATIO = 1.02
# Relative errors that storage types are expected to add, in squares.
STORAGE_ERROR = {"float64": 0.0, "float32": 1e-6, "float16": 2e-4, "int8": 4e-3}


class Curves:
    """The best possible error over the rank for any number of blocks, forecast from a sample of the rows."""

    def __init__(
        self,
        objects: Any,
        evaluator: Evaluator,
        seed: int,
        n: int,
        size: int,
        before: Curves | None = None,
        known: Array | None = None,
        largest_core: int = DEFAULT.largest_core,
    ) -> None:
        """``before``: the curves of a smaller sample, which those of this one may continue along.

        ``known``: the matrix of ``objects``, which are then the sample itself; nothing is evaluated.
        """
        vectors = is_vectors(objects)
        rng = stream(seed, 9, 0)
        self.n, self.m, self.largest_core = n, min(n, size), largest_core
        if known is None:
            sample = take(objects, np.sort(rng.choice(n, self.m, replace=False)))
            self.K = evaluator.symmetric(sample).astype(np.float64)
        else:
            sample, self.K = objects, np.array(known, dtype=np.float64)
        self.K /= float(np.max(np.abs(self.K))) or 1.0  # squares of 1e-200 vanish
        mixed = rng.permutation(self.m)
        self.halves = np.sort(mixed[: self.m // 2]), np.sort(mixed[self.m // 2 :])
        if vectors:
            places = scaled(sample, scale_of(sample))
            places = np.asarray(places.toarray() if is_sparse(places) else places, dtype=np.float64)
        else:  # from the matrix that is already there: no similarity is evaluated twice
            inner = Evaluator(Precomputed(self.K), counted=False)
            places = landmark_embedding(np.arange(self.m), EMBEDDED_BLOCKS, inner, seed)(inner, np.arange(self.m))
        self.places = places - places.mean(0)  # fewer digits are lost
        self.known: dict[int, Array] = {}  # logarithms of errors, by the number of blocks
        self.before: dict[int, Array] = {} if before is None else before.before | before.known

    def errors(self, n_blocks: int, highest: int) -> tuple[Array, bool]:
        """The errors at rank 1 .. ``highest``, and whether so many blocks were seen or follow the trend."""
        most = max(1, self.m // ROWS_PER_BLOCK)
        if n_blocks <= most:
            curve, seen = self._logs(n_blocks), True
        else:
            few, many = self._logs(max(1, most // 3)), self._logs(most)
            steepness = np.minimum(0.0, many - few) / math.log(most / max(1, most // 3)) if most > 1 else 0.0
            curve, seen = many + steepness * math.log(n_blocks / most), False
        errors = np.exp(_filled(curve[:highest], highest))
        return np.where(errors <= 2.0 * ERROR_ROUNDING, 0.0, errors), seen

    def _logs(self, n_blocks: int) -> Array:
        """Logarithms of the error at every rank from 1 to n: measured, then continued."""
        if n_blocks not in self.known:
            labels = self._labels(n_blocks)
            ranks = max(1, self.m // ((ROWS_PER_RANK if n_blocks > 1 else ROWS_PER_RANK_ONE_BLOCK) * n_blocks))
            seen = 0.5 * np.log(np.maximum(self._measured(labels, ranks), ERROR_ROUNDING**2))
            self.known[n_blocks] = self._continued(n_blocks, seen)
        return self.known[n_blocks]

    @cached_property
    def _tree(self) -> Array:
        squares = np.einsum("ij,ij->i", self.places, self.places)
        apart = squares[:, None] + squares - 2.0 * self.places @ self.places.T
        return np.asarray(scipy.cluster.hierarchy.ward(np.sqrt(np.maximum(apart[np.triu_indices(self.m, 1)], 0.0))))

    def _labels(self, n_blocks: int) -> Indices:
        if n_blocks == 1 or self.m == 1:
            return np.zeros(self.m, dtype=np.intp)
        return np.asarray(scipy.cluster.hierarchy.fcluster(self._tree, n_blocks, "maxclust"), dtype=np.intp)

    def _measured(self, labels: Indices, ranks: int) -> Array:
        """Squared errors for n rows at rank 1 .. ``ranks``.

        On the diagonal and off it they are means over rows and over pairs, so that the diagonal weighs what it does
        among n rows. What the sample flatters by goes with 1 / m: its halves do it twice as much, so the gap is added.
        """
        whole = self._among_n(squared_errors(self.K, labels, ranks))
        halves = [self._among_n(squared_errors(self.K[np.ix_(h, h)], labels[h], ranks)) for h in self.halves]
        gap = whole - 0.5 * (halves[0] + halves[1])
        extended = whole + np.maximum(gap, 0.0) * (1.0 - self.m / self.n)
        return np.asarray(np.minimum.accumulate(np.clip(extended, 0.0, 1.0)))

    def _among_n(self, found: Errors) -> Array:
        weight = 1.0 / self.n
        total = found.K_apart + weight * found.K_diagonal
        return (found.apart + weight * found.diagonal) / (total or 1.0)

    def _fewer(self, n_blocks: int) -> Array:
        """The curve of fewer blocks: the next that was seen, here or before."""
        known = self.before | self.known
        below = [c for c in known if c < n_blocks]
        return known[max(below)] if below else self._logs(1)

    def _continued(self, n_blocks: int, seen: Array) -> Array:
        last, floor = len(seen), math.log(ERROR_ROUNDING)
        top = max(last, min(self.n, self.largest_core))
        ranks = np.arange(last + 1, top + 1)
        half = max(1, last // 2)
        if seen[-1] <= floor + math.log(2.0):
            rest = np.full(len(ranks), floor)
        elif n_blocks == 1:  # a power law, and nothing left at rank n
            power = min(0.0, seen[-1] - seen[half - 1]) / math.log(last / half) if last > half else 0.0
            left = (
                np.log(np.maximum(1.0 - ranks / self.n, ERROR_ROUNDING**2) / (1.0 - last / self.n))
                if last < self.n
                else 0.0
            )
            rest = seen[-1] + power * np.log(ranks / last) + 0.5 * left
        else:
            fewer = self._fewer(n_blocks)
            ahead = seen - fewer[:last]
            power = (ahead[-1] - ahead[half - 1]) / math.log(last / half) if last >= 8 else 0.0
            rest = fewer[last:top] + ahead[-1] + np.clip(power, STEEPEST_POWER, 0.0) * np.log(ranks / last)
        return np.maximum(np.minimum.accumulate(np.concatenate([seen, rest])), floor)


@dataclass(frozen=True, eq=False)
class Errors:
    """Mean squares of K - U M Uᵀ at rank 1, 2, ..., and of K: of pairs of different rows, and on the diagonal."""

    apart: Array
    diagonal: Array
    K_apart: float
    K_diagonal: float


def squared_errors(K: Array, labels: Indices, ranks: int) -> Errors:
    """The errors at rank 1 .. ``ranks`` per block, U_i the leading left singular vectors of K[X_i, :], M = UᵀKU.

    K is symmetric, of any signature. One eigendecomposition per block serves all ranks: the captured squares at rank k
    are the sums of M_ij[:k, :k]² over all pairs of blocks.
    """
    m = len(K)
    blocks = [np.flatnonzero(labels == i) for i in np.unique(labels)]
    order = np.concatenate(blocks)
    K = K[np.ix_(order, order)] if len(blocks) > 1 else K
    ends = np.cumsum([len(b) for b in blocks])
    parts = [slice(end - len(b), end) for end, b in zip(ends, blocks, strict=True)]
    bases = [_leading(K[p], ranks) for p in parts]
    turned = np.zeros((m, len(parts), ranks))  # K U, each block's columns filled up with zeros
    for i, (p, U) in enumerate(zip(parts, bases, strict=True)):
        turned[:, i, : U.shape[1]] = K[:, p] @ U
    squares, left = np.zeros((ranks, ranks)), np.zeros(ranks)
    for i, (p, U) in enumerate(zip(parts, bases, strict=True)):
        k = U.shape[1]
        rows = U.T @ turned[p].reshape(len(U), -1)  # M's row of blocks
        squares[:k] += (rows**2).reshape(k, -1, ranks).sum(1)
        M = rows[:, i * ranks : i * ranks + k]
        # u_xᵀ M[:k, :k] u_x for all k at once: what the k-th row and column add
        added = U * (U @ (M * _twice_above(k)))
        off = ((K.diagonal()[p][:, None] - np.cumsum(added, 1)) ** 2).sum(0)
        left += _filled(off, ranks)
    total, diagonal = float(np.sum(K * K)), float(np.sum(K.diagonal() ** 2))
    every = np.maximum(total - np.diag(np.cumsum(np.cumsum(squares, 0), 1)), 0.0)
    every[every < SQUARE_ROUNDING * total] = 0.0
    pairs = max(1, m * (m - 1))
    return Errors(
        np.maximum(every - left, 0.0) / pairs, np.minimum(left, every) / m, (total - diagonal) / pairs, diagonal / m
    )


@lru_cache(maxsize=64)
def _twice_above(k: int) -> Array:
    """2 above the diagonal, 1 on it, 0 below."""
    return np.asarray(2.0 * np.triu(np.ones((k, k)), 1) + np.eye(k))


def _filled(curve: Array, size: int) -> Array:
    """``curve`` with its last number repeated; `numpy.pad` takes longer than all the rest of a small forecast."""
    if len(curve) >= size:
        return curve
    out = np.empty(size)
    out[: len(curve)], out[len(curve) :] = curve, curve[-1]
    return out


def _leading(A: Array, ranks: int) -> Array:
    """The leading left singular vectors of A, (len(A), at most ``ranks``)."""
    if len(A) <= ITERATED_ROWS or len(A) < 4 * ranks:
        if len(A) < 64 or 2 * ranks > len(A):
            return np.linalg.eigh(A @ A.T)[1][:, ::-1][:, :ranks]
        wanted = (len(A) - ranks, len(A) - 1)
        return np.asarray(scipy.linalg.eigh(A @ A.T, subset_by_index=wanted, check_finite=False)[1][:, ::-1])
    Q = np.linalg.qr(A @ stream(0).standard_normal((A.shape[1], ranks + ranks // 2 + 8)))[0]
    for _ in range(2):
        Q = np.linalg.qr(A @ (A.T @ Q))[0]
    B = Q.T @ A
    return np.asarray(Q @ np.linalg.eigh(B @ B.T)[1][:, ::-1][:, :ranks])


@dataclass(frozen=True)
class Goal:
    """What is asked of a choice by error: None is open, and one of ``max_error`` and ``max_memory`` is given.

    ``types`` are the storage types that may be chosen, in order of preference where there is an error to reach.
    """

    n: int
    max_error: float | None
    max_memory: float
    n_blocks: int | None
    rank: int | None
    types: tuple[str, ...]
    largest_core: int = DEFAULT.largest_core

    @classmethod
    def of(
        cls,
        n: int,
        *,
        max_error: float | None = None,
        max_memory: float | None = None,
        n_blocks: int | None = None,
        rank: int | None = None,
        dtype: str | None = None,
        own_dtype: str = "float64",
        policy: Policy = DEFAULT,
    ) -> Goal:
        """A checked request for n objects, with the policy's error and memory where neither is given.

        Bases are stored in ``own_dtype``, that of X, unless ``max_memory`` calls for less.
        """
        if max_error is None and max_memory is None:
            max_error, max_memory = policy.default_error, policy.default_memory
        types: Sequence[str] = STORAGE if max_error is None else STORAGE[STORAGE.index(own_dtype) :]
        if dtype is not None or max_memory is None:
            types = (dtype or own_dtype,)
        room = math.inf if max_memory is None else max_memory
        made = cls(n, max_error, room, n_blocks, rank, tuple(types), policy.largest_core)
        least = min(bytes_of(n, n_blocks or 1, rank or 1, t) for t in types)
        if least > room:
            given = [f"{name}={v}" for name, v in (("n_blocks", n_blocks), ("rank", rank)) if v is not None]
            raise InputError(
                f"max_memory must be at least {least} bytes for {n} objects{' with ' if given else ''}"
                f"{' and '.join(given)}; got {room:g}. Allow more memory, ask for fewer blocks or less rank, or "
                "approximate fewer objects."
            )
        return made

    def highest_rank(self, n_blocks: int) -> int:
        """The highest rank that is proposed for so many blocks; 0 if there is none."""
        if self.rank is not None:
            return self.rank if n_blocks == (self.n_blocks or 1) or self.rank * n_blocks <= self.n else 0
        if self.n_blocks is not None:
            return max(1, min(self.n, self.largest_core) // n_blocks)
        if n_blocks == 1:
            return max(1, min(int(ONE_BLOCK_SHARE * self.n), self.largest_core))
        return min(self.n // PROPOSED_ROWS_PER_RANK, self.largest_core) // n_blocks

    def candidates(self, n_blocks: int, lowest: Array, stage: str) -> list[Candidate]:
        """The best candidate in each type; ``lowest[k - 1]`` is the lowest possible error at rank k."""
        ranks = np.arange(1, len(lowest) + 1, dtype=np.int64)
        if self.rank is not None:
            ranks = ranks[-1:]
        built = BUILT_ERROR * lowest[ranks - 1]
        found = []
        for dtype in self.types:
            rounding = STORAGE_ERROR[dtype]
            if len(self.types) == 1 and self.max_error is not None:  # nothing to choose: what is built is measured
                rounding = min(rounding, 0.5 * self.max_error)
            errors = np.minimum(1.0, np.hypot(built, rounding))
            sizes = bytes_of(self.n, n_blocks, ranks, dtype)
            fits = int(np.searchsorted(sizes, self.max_memory, side="right"))
            if fits == 0:
                continue
            enough = errors[:fits] <= (-1.0 if self.max_error is None else self.max_error)
            if not enough.any():  # all of the memory, unless only rounding is left
                enough = built[:fits] <= ROUNDING_SHARE * STORAGE_ERROR[dtype]
            at = int(np.argmax(enough)) if enough.any() else fits - 1
            found.append(
                Candidate(n_blocks, int(ranks[at]), dtype, int(sizes[at]), error=float(errors[at]), stage=stage)
            )
        return found

    def order(self, candidate: Candidate) -> tuple[float, ...]:
        """A sort key: less is better."""
        if self.is_met(candidate):
            return 0, self.types.index(candidate.dtype), candidate.nbytes
        return 1, candidate.error or 0.0, candidate.nbytes

    def best(self, candidates: Sequence[Candidate]) -> Candidate:
        """The first in order; of those that miss the target, the fewest bytes among errors as good as the lowest."""
        first = min(candidates, key=self.order)
        if self.is_met(first):
            return first
        good = EQUIVALENT_ERROR_RATIO * (first.error or 0.0)
        return min((a for a in candidates if (a.error or 0.0) <= good), key=lambda a: a.nbytes)

    def is_beaten(self, n_blocks: int, best: Candidate) -> bool:
        """Whether so many blocks take more bytes than ``best``, which meets the target, whatever their rank."""
        final = best.dtype == self.types[0] and self.is_met(best)  # else another type may be preferred
        return final and best.nbytes <= bytes_of(self.n, n_blocks, self.rank or 1, best.dtype)

    def is_met(self, candidate: Candidate) -> bool:
        """Whether the error is as low as asked for."""
        return self.max_error is not None and (candidate.error or 0.0) <= self.max_error

    def reason(self, candidate: Candidate) -> str:
        """Why the search ends with this candidate."""
        if self.n_blocks is not None and self.rank is not None:
            return "as asked"
        if self.is_met(candidate):
            return "target met"
        if self.max_error is None:
            return "memory budget" if candidate.nbytes >= USED_MEMORY * self.max_memory else "no gain from more memory"
        most = bytes_of(self.n, candidate.n_blocks, self.highest_rank(candidate.n_blocks), candidate.dtype)
        return "memory budget" if most > self.max_memory else "rank limit"


def proposal(objects: Any, evaluator: Evaluator, seed: int, request: Goal) -> Selection:
    """Propose the candidate with the fewest bytes whose error is forecast below ``max_error``, or the best there is.

    With ``max_memory`` alone it is the lowest error within it. With both it is the best within the memory where the
    error cannot be reached. What is given is kept. Costs m² similarities and some m³ work: m = 125 rows where few
    directions are enough, and beyond 250 rows no more than a share of what building costs.
    """
    n = count_objects(objects)
    largest = int(np.clip(10.0 * math.sqrt(n), *SAMPLE_ROWS))
    if not is_vectors(objects) or isinstance(evaluator.kernel, FromCallable):
        # The smaller samples before it take less than as much.
        largest = min(largest, int(math.sqrt(EXPENSIVE_SIMILARITIES * n / 2)))
    m, curves = min(largest, INITIAL_SAMPLE), None
    likely: list[int] = []
    while True:
        curves = Curves(objects, evaluator, seed, n, m, curves, largest_core=request.largest_core)
        found = _searched(request, curves, likely)
        best = found.chosen
        assert best is not None
        cheap = max(CHEAP_SAMPLE, round((WORK_SHARE * n * best.rank**2) ** (1 / 3)))
        wanted = min(largest, cheap, ROWS_PER_DIRECTION * best.n_blocks * best.rank)
        if wanted <= SAMPLE_GROWTH[0] * m:
            return found
        m = min(wanted, round(SAMPLE_GROWTH[1] * m))
        likely = [a.n_blocks for a in sorted(found.tried, key=request.order)[:REFINED_NUMBERS]]


def _searched(request: Goal, curves: Curves, likely: Sequence[int] = ()) -> Selection:
    """Forecast a coarse grid of block numbers, or likely ones, then the neighbours of the best of them."""
    tried: dict[int, list[Candidate]] = {}

    def best() -> Candidate:
        return request.best([a for some in tried.values() for a in some])

    def forecast(n_blocks: int, stage: str) -> None:
        highest = request.highest_rank(n_blocks)
        if n_blocks not in tried and highest > 0 and not (tried and request.is_beaten(n_blocks, best())):
            lowest, seen = curves.errors(n_blocks, highest)
            tried[n_blocks] = request.candidates(n_blocks, lowest, stage if seen else "trend")

    if request.n_blocks is not None or likely:
        for c in sorted(likely) or [request.n_blocks or 1]:
            forecast(c, "refined")
    else:
        waited = 0
        for c in BLOCK_NUMBERS[::2]:
            first = not tried
            forecast(c, "coarse")
            waited = 0 if first or best().n_blocks == c else waited + 1
            if waited >= PATIENCE or not tried.get(c):
                break
    while request.n_blocks is None and best().n_blocks * best().rank > FEW_DIRECTIONS:
        at, known = BLOCK_NUMBERS.index(best().n_blocks), len(tried)
        for c in BLOCK_NUMBERS[max(0, at - 1) : at + 2]:
            forecast(c, "refined")
        if len(tried) == known:
            break
    chosen = best()
    table = tuple(chosen if c == chosen.n_blocks else min(a, key=request.order) for c, a in tried.items() if a)
    return Selection(table, request.reason(chosen), table.index(chosen))
