"""Objects and a request in, a proposal out: how many blocks, of which rank, stored in which type (DESIGN, section 2).

One small matrix decides. For given clusters the best U_i are the leading left singular vectors of K[X_i, :], and with
M = UᵀKU the squared error is |K|² less the squares in M: on a sample of m rows that is the whole curve over the rank,
for any number of blocks, from the same m² similarities. A sample flatters (k directions fit m / c rows too well) and
slanders (its diagonal weighs n / m times too much), both in proportion to 1 / m: so the curve is taken on the sample
and on its halves, and continued to n rows along 1 / m. Ranks that are too many for the sample's blocks follow the curve
of fewer blocks. What comes out is a forecast: whoever builds measures.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from krein.arrays import Array, Indices, stream
from krein.errors import InputError, KreinWarning
from krein.kernels import Evaluator, FromCallable, Precomputed, count_objects, is_vectors, take
from krein.partition import partition
from krein.storage import STORAGE

__all__ = ["Look", "Proposal", "aligned", "propose", "stored_bytes"]

MAX_ERROR, MAX_MEMORY = 0.02, 2.0**30  # where neither is asked for
FINE = (1, 2, 3, 5, 8, 12, 20, 32, 50, 80, 125, 200, 320, 500, 800, 1250, 2000)
COARSE = FINE[::2]
PATIENCE = 2  # coarse steps without gain before the search turns to the best one's neighbours
SAMPLE = (1000, 2500)  # rows looked at, the square root of n tenfold between these
GLANCE = 400  # rows looked at first: enough where few directions are
CLOSER = 4  # numbers of blocks that are looked at again with all rows of the sample
PER_RANK_GLANCED = 16  # rows of that sample per direction proposed
DEAR = 32  # similarities per object that may be spent on choosing where each may be expensive
FEWEST = 16  # rows of the sample per block; more blocks than that allows follow the trend
PER_RANK = 4  # rows of the sample per block and rank; higher ranks follow the curve of fewer blocks
PER_RANK_ALONE = 8  # the same for a single block, whose curve continues well by itself
ROUNDED = 1e-15  # squares below this share of all are rounding
ROWS_PER_RANK = 4  # rows per block and rank that a proposal leaves, unless there is one block
LARGEST_CORE = 8192  # rows of the core: its spectrum costs their cube
BUILT = 1.15  # what is built goes by landmarks, not by K: so many times the best possible error
ZERO = 1e-8  # errors below are rounding: squares are known to some 1e-16
WELL_USED = 0.8  # a proposal in less than this share of the memory has no use for the rest
NOTHING = 0.1  # an error that small beside the rounding of the stored type is not worth a rank
GAIN = 1.02  # an error that many times the lowest is as good, if it takes fewer bytes
STEEPEST = -0.12  # how fast more blocks may gain on fewer as the rank grows beyond what was seen, in powers of it
ITERATE = 600  # blocks with more rows get their few leading directions by iteration: a third of the time, 0.2 % off
SIZES = {"float64": 8, "float32": 4, "float16": 2, "int8": 1}
ROUNDING = {"float64": 0.0, "float32": 1e-7, "float16": 3e-4, "int8": 3.5e-3}  # errors, added in squares


@dataclass(frozen=True)
class Look:
    """One choice that was looked at, with its forecast."""

    n_blocks: int
    rank: int
    dtype: str
    nbytes: int
    error: float
    stage: str  # forecast: "coarse", "refined", "trend" (too few rows for so many blocks); measured: "built", "kept"


@dataclass(frozen=True)
class Proposal:
    """What to build, what is expected of it, and what else was looked at."""

    n_blocks: int
    rank: int
    dtype: str
    nbytes: int  # forecast, like the error
    error: float  # relative Frobenius
    reason: str  # "target met", "memory budget", "no gain from more memory", "rank limit" or "as asked"
    looks: tuple[Look, ...]  # the best found for each number of blocks

    def __str__(self) -> str:
        looks = sorted(self.looks, key=lambda a: a.n_blocks)
        return f"{self.reason}:\n{aligned(looks, self.n_blocks)}"


def aligned(looks: Sequence[Look], chosen: int | None = None) -> str:
    """A small table of what was looked at; the number of blocks that was chosen is marked."""
    lines = [("blocks", "rank", "type", "bytes", "error", "stage", "")]
    for a in looks:
        mark = "<- chosen" if a.n_blocks == chosen else ""
        lines.append((str(a.n_blocks), str(a.rank), a.dtype, _si(a.nbytes), f"{a.error:.2g}", a.stage, mark))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = (2, 5, 6)
    rows = (
        [v.ljust(w) if i in left else v.rjust(w) for i, (v, w) in enumerate(zip(r, widths, strict=True))] for r in lines
    )
    return "\n".join("  ".join(row).rstrip() for row in rows)


def propose(
    objects: Any,
    evaluator: Evaluator,
    seed: int,
    *,
    max_error: float | None = None,
    max_memory: float | None = None,
    n_blocks: int | None = None,
    rank: int | None = None,
    dtype: str | None = None,
    own_dtype: str = "float64",
) -> Proposal:
    """Return the choice with the fewest bytes whose error is forecast below ``max_error``, or the best there is.

    With ``max_memory`` alone it is the lowest error in that many bytes; with both, the best in that memory where the
    error cannot be reached in it; with neither, 0.02 within 1 GiB. What is given is kept. Bases are stored in
    ``own_dtype``, X's own, unless ``max_memory`` calls for less. Costs m² similarities and some m³ work, m = 1000 rows
    up to n = 10,000 and 2500 at most; 400 rows where few directions are enough.
    """
    n = count_objects(objects)
    if max_error is None and max_memory is None:
        max_error, max_memory = MAX_ERROR, MAX_MEMORY
    if dtype is not None:
        types: Sequence[str] = (dtype,)
    elif max_memory is None:
        types = (own_dtype,)
    else:
        types = STORAGE[STORAGE.index(own_dtype) :] if max_error is not None else STORAGE
    request = _Request(n, max_error, math.inf if max_memory is None else max_memory, n_blocks, rank, tuple(types))
    request.check()
    size = int(np.clip(10.0 * math.sqrt(n), *SAMPLE))
    if not is_vectors(objects) or isinstance(evaluator.kernel, FromCallable):
        size = min(size, int(math.sqrt(DEAR * n)))
    first = _search(request, _Curves(objects, evaluator, seed, n, min(size, GLANCE)))
    if size <= GLANCE or PER_RANK_GLANCED * first.n_blocks * first.rank <= GLANCE:
        return first
    likely = [a.n_blocks for a in sorted(first.looks, key=request.order)[:CLOSER]]
    return _search(request, _Curves(objects, evaluator, seed, n, size), likely)


def stored_bytes(n: int, n_blocks: int, rank: Any, dtype: str) -> Any:
    """Bytes of a factorization of n rows: bases, core, order, and the maps of types other than float64."""
    maps = 0 if dtype == "float64" else 8 * n_blocks * rank**2
    return n * rank * SIZES[dtype] + 8 * (n_blocks * rank) ** 2 + 8 * n + maps


@dataclass(frozen=True)
class _Request:
    """What is wanted, complete."""

    n: int
    max_error: float | None
    max_memory: float
    n_blocks: int | None
    rank: int | None
    types: tuple[str, ...]  # in order of preference where there is an error to meet

    def check(self) -> None:
        least = min(stored_bytes(self.n, self.n_blocks or 1, self.rank or 1, t) for t in self.types)
        if least > self.max_memory:
            given = [f"{name}={v}" for name, v in (("n_blocks", self.n_blocks), ("rank", self.rank)) if v is not None]
            raise InputError(
                f"max_memory must be at least {least} bytes for {self.n} objects"
                f"{' with ' if given else ''}{' and '.join(given)}; got {self.max_memory:g}. "
                "Allow more memory, ask for fewer blocks or less rank, or approximate fewer objects."
            )

    def highest_rank(self, n_blocks: int) -> int:
        """The largest rank worth proposing for so many blocks; 0 if there is none."""
        if self.rank is not None:
            return self.rank if n_blocks == (self.n_blocks or 1) or self.rank * n_blocks <= self.n else 0
        if self.n_blocks is not None:
            return max(1, min(self.n, LARGEST_CORE) // n_blocks)
        if n_blocks == 1:
            return max(1, min(int(0.6 * self.n), LARGEST_CORE))  # beyond, it is larger than the matrix itself
        return min(self.n // ROWS_PER_RANK, LARGEST_CORE) // n_blocks

    def looks(self, n_blocks: int, best: Array, stage: str) -> list[Look]:
        """The best choice in each type for so many blocks; ``best[k - 1]`` is the best possible error at rank k."""
        ranks = np.arange(1, len(best) + 1, dtype=np.int64)
        if self.rank is not None:
            ranks = ranks[-1:]
        found = []
        for dtype in self.types:
            alone = len(self.types) == 1 and self.max_error is not None  # no choice: the builder measures what it costs
            rounding = min(ROUNDING[dtype], 0.5 * (self.max_error or 1.0)) if alone else ROUNDING[dtype]
            errors = np.minimum(1.0, np.hypot(BUILT * best[ranks - 1], rounding))
            sizes = stored_bytes(self.n, n_blocks, ranks, dtype)
            fits = int(np.searchsorted(sizes, self.max_memory, side="right"))
            if fits == 0:
                continue
            enough = errors[:fits] <= self.max_error if self.max_error is not None else np.zeros(fits, dtype=bool)
            if not enough.any():  # all the memory, unless what is left is rounding
                enough = BUILT * best[ranks[:fits] - 1] <= NOTHING * ROUNDING[dtype]
            at = int(np.argmax(enough)) if enough.any() else fits - 1
            found.append(Look(n_blocks, int(ranks[at]), dtype, int(sizes[at]), float(errors[at]), stage))
        return found

    def order(self, look: Look) -> tuple[float, ...]:
        """Less is better."""
        if self.meets(look):
            return 0, self.types.index(look.dtype), look.nbytes
        return 1, look.error, look.nbytes

    def meets(self, look: Look) -> bool:
        return self.max_error is not None and look.error <= self.max_error

    def reason(self, look: Look) -> str:
        if self.n_blocks is not None and self.rank is not None:
            return "as asked"
        if self.meets(look):
            return "target met"
        most = stored_bytes(self.n, look.n_blocks, self.highest_rank(look.n_blocks), look.dtype)
        if self.max_error is None and look.nbytes < WELL_USED * self.max_memory:
            return "no gain from more memory"
        return "memory budget" if most > self.max_memory or self.max_error is None else "rank limit"


def _search(request: _Request, curves: _Curves, likely: Sequence[int] = ()) -> Proposal:
    """Look at a coarse grid of block numbers, then around the best of them; or at the likely ones alone."""
    looks: dict[int, list[Look]] = {}

    def look(n_blocks: int, stage: str) -> None:
        highest = request.highest_rank(n_blocks)
        if n_blocks not in looks and highest > 0:
            best, seen = curves.errors(n_blocks, highest)
            looks[n_blocks] = request.looks(n_blocks, best, stage if seen else "trend")

    def leader() -> Look:
        every = [a for some in looks.values() for a in some]
        first = min(every, key=request.order)
        if request.meets(first):
            return first
        return min((a for a in every if a.error <= GAIN * first.error), key=lambda a: a.nbytes)

    if request.n_blocks is not None or likely:
        for c in sorted(likely) or [request.n_blocks or 1]:
            look(c, "refined")
    else:
        waited = 0
        for c in COARSE:
            before = leader() if looks else None
            look(c, "coarse")
            waited = 0 if before is None or leader().n_blocks == c else waited + 1
            if waited >= PATIENCE or not looks.get(c):
                break
        while True:
            at = FINE.index(leader().n_blocks)
            near = [c for c in FINE[max(0, at - 1) : at + 2] if c not in looks and request.highest_rank(c) > 0]
            if not near:
                break
            for c in near:
                look(c, "refined")
    chosen = leader()
    table = tuple(chosen if c == chosen.n_blocks else min(a, key=request.order) for c, a in looks.items() if a)
    return Proposal(
        chosen.n_blocks, chosen.rank, chosen.dtype, chosen.nbytes, chosen.error, request.reason(chosen), table
    )


class _Curves:
    """The best possible error over the rank for any number of blocks, forecast from a sample of the rows."""

    def __init__(self, objects: Any, evaluator: Evaluator, seed: int, n: int, size: int) -> None:
        vectors = is_vectors(objects)
        rng = stream(seed, 9, 0)
        self.n, self.m, self.seed = n, min(n, size), seed
        rows = np.sort(rng.choice(n, self.m, replace=False))
        sample = take(objects, rows)
        self.K = evaluator.symmetric(sample).astype(np.float64)
        self.K /= float(np.max(np.abs(self.K))) or 1.0  # squares of 1e-200 vanish
        mixed = rng.permutation(self.m)
        self.halves = np.sort(mixed[: self.m // 2]), np.sort(mixed[self.m // 2 :])
        # Places come from the matrix that is already there: no similarity is evaluated twice.
        self.sample = sample if vectors else np.arange(self.m)
        self.evaluator = evaluator if vectors else Evaluator(Precomputed(self.K))
        self.known: dict[int, Array] = {}  # logarithms of errors, by the number of blocks

    def errors(self, n_blocks: int, highest: int) -> tuple[Array, bool]:
        """The errors at rank 1 .. ``highest``, and whether so many blocks were seen or follow the trend."""
        most = max(1, self.m // FEWEST)
        if n_blocks <= most:
            curve, seen = self._logs(n_blocks), True
        else:
            few, many = self._logs(max(1, most // 3)), self._logs(most)
            steepness = np.minimum(0.0, many - few) / math.log(most / max(1, most // 3)) if most > 1 else 0.0
            curve, seen = many + steepness * math.log(n_blocks / most), False
        errors = np.exp(np.pad(curve[:highest], (0, max(0, highest - len(curve))), mode="edge"))
        return np.where(errors <= 2.0 * ZERO, 0.0, errors), seen

    def _logs(self, n_blocks: int) -> Array:
        """Logarithms of the error at every rank from 1 to n: measured, then continued."""
        if n_blocks not in self.known:
            labels = self._labels(n_blocks)
            ranks = max(1, self.m // ((PER_RANK if n_blocks > 1 else PER_RANK_ALONE) * n_blocks))
            seen = 0.5 * np.log(np.maximum(self._measured(labels, ranks), ZERO**2))
            self.known[n_blocks] = self._continued(n_blocks, seen)
        return self.known[n_blocks]

    def _labels(self, n_blocks: int) -> Indices:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KreinWarning)  # the sample's duplicates: the builder says it of all rows
            return partition(self.sample, n_blocks, self.evaluator, self.seed).labels

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

    def _continued(self, n_blocks: int, seen: Array) -> Array:
        last, floor = len(seen), math.log(ZERO)
        top = max(last, min(self.n, LARGEST_CORE))
        ranks = np.arange(last + 1, top + 1)
        half = max(1, last // 2)
        if seen[-1] <= floor + math.log(2.0):
            rest = np.full(len(ranks), floor)
        elif n_blocks == 1:  # a power law, and nothing left at rank n
            power = min(0.0, seen[-1] - seen[half - 1]) / math.log(last / half) if last > half else 0.0
            left = np.log(np.maximum(1.0 - ranks / self.n, ZERO**2) / (1.0 - last / self.n)) if last < self.n else 0.0
            rest = seen[-1] + power * np.log(ranks / last) + 0.5 * left
        else:
            fewer = self._logs(max([c for c in self.known if c < n_blocks], default=1))
            ahead = seen - fewer[:last]
            power = (ahead[-1] - ahead[half - 1]) / math.log(last / half) if last >= 8 else 0.0
            rest = fewer[last:top] + ahead[-1] + np.clip(power, STEEPEST, 0.0) * np.log(ranks / last)
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
    squares, left = np.zeros((ranks, ranks)), np.zeros(ranks)
    for p, U in zip(parts, bases, strict=True):
        rows = U.T @ K[p]
        for q, V in zip(parts, bases, strict=True):
            if q.start < p.start:  # M is symmetric, and only sums over both of its halves count
                squares[: U.shape[1], : V.shape[1]] += 2.0 * (rows[:, q] @ V) ** 2
        M = rows[:, p] @ U
        squares[: len(M), : len(M)] += M**2
        # u_xᵀ M[:k, :k] u_x for all k at once: what the k-th row and column add
        added = U * (2.0 * (U @ np.triu(M, 1)) + U * np.diag(M))
        off = ((K.diagonal()[p][:, None] - np.cumsum(added, 1)) ** 2).sum(0)
        left += np.pad(off, (0, ranks - len(off)), mode="edge")
    total, diagonal = float(np.sum(K * K)), float(np.sum(K.diagonal() ** 2))
    every = np.maximum(total - np.diag(np.cumsum(np.cumsum(squares, 0), 1)), 0.0)
    every[every < ROUNDED * total] = 0.0
    pairs = max(1, m * (m - 1))
    return Errors(
        np.maximum(every - left, 0.0) / pairs, np.minimum(left, every) / m, (total - diagonal) / pairs, diagonal / m
    )


def _leading(A: Array, ranks: int) -> Array:
    """The leading left singular vectors of A, (len(A), at most ``ranks``)."""
    if len(A) <= ITERATE or len(A) < 4 * ranks:
        if len(A) < 64 or 2 * ranks > len(A):
            return np.linalg.eigh(A @ A.T)[1][:, ::-1][:, :ranks]
        wanted = (len(A) - ranks, len(A) - 1)
        return np.asarray(scipy.linalg.eigh(A @ A.T, subset_by_index=wanted, check_finite=False)[1][:, ::-1])
    Q = np.linalg.qr(A @ stream(0).standard_normal((A.shape[1], ranks + ranks // 2 + 8)))[0]
    for _ in range(2):
        Q = np.linalg.qr(A @ (A.T @ Q))[0]
    B = Q.T @ A
    return np.asarray(Q @ np.linalg.eigh(B @ B.T)[1][:, ::-1][:, :ranks])


def _si(nbytes: int) -> str:
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))  # 0.9995 of one is rounded up to it
    return next((f"{nbytes / size:.3g} {unit}" for unit, size in units if nbytes >= 0.9995 * size), f"{nbytes} B")
