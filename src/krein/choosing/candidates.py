"""Objects and a request in, a proposal out: how many blocks, of which rank, stored in which type (DESIGN, section 2).

One small matrix decides (`forecast`): the best possible error over the rank, for any number of blocks, from a sample of
the rows. The sample starts small and grows with what it proposes, so that choosing stays a small part of building: what
takes a few directions is seen in a hundred rows, and what takes hundreds is worth a thousand. What comes out is a
forecast: whoever builds measures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.arrays import Array
from krein.choosing.forecast import LARGEST_CORE, Curves
from krein.errors import InputError
from krein.factorization.storage import STORAGE
from krein.kernels import Evaluator, FromCallable, count_objects, is_vectors

__all__ = ["Look", "Proposal", "aligned", "propose", "si", "stored_bytes"]

MAX_ERROR, MAX_MEMORY = 0.02, 2.0**30  # where neither is asked for
FINE = (1, 2, 3, 5, 8, 12, 20, 32, 50, 80, 125, 200, 320, 500, 800, 1250, 2000)
COARSE = FINE[::2]
PATIENCE = 2  # coarse steps without gain before the search turns to the best one's neighbours
SAMPLE = (1000, 2500)  # rows looked at, at most: the square root of n tenfold between these
GLANCE = 125  # rows looked at first,
PER_DIRECTION = 6  # and for each direction proposed, but for
FORECAST, SHARE = 250, 16.0  # more than so many, unless the work, m³, is less than so many n k²: bases are some 30 n k²
GROWN = (1.5, 3.0)  # a larger sample is so many times larger, at least and at most
FEW = 8  # directions in all: a build so small is not worth a look at the neighbours
CLOSER = 3  # numbers of blocks that a larger one is asked for, and their neighbours
DEAR = 32  # similarities per object that may be spent on choosing where each may be expensive
ROWS_PER_RANK = 4  # rows per block and rank that a proposal leaves, unless there is one block
BUILT = 1.15  # what is built goes by landmarks, not by K: so many times the best possible error
WELL_USED = 0.8  # a proposal in less than this share of the memory has no use for the rest
NOTHING = 0.1  # an error that small beside the rounding of the stored type is not worth a rank
GAIN = 1.02  # an error that many times the lowest is as good, if it takes fewer bytes
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
        lines.append((str(a.n_blocks), str(a.rank), a.dtype, si(a.nbytes), f"{a.error:.2g}", a.stage, mark))
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
    ``own_dtype``, X's own, unless ``max_memory`` calls for less. Costs m² similarities and some m³ work: m = 125 rows
    where few directions are enough, and no more than a share of what building costs beyond 250.
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
        size = min(size, int(math.sqrt(DEAR * n / 2)))  # the smaller samples before it take less than as much
    m, curves = min(size, GLANCE), None
    likely: list[int] = []
    while True:
        curves = Curves(objects, evaluator, seed, n, m, curves)
        found = _search(request, curves, likely)
        cheap = max(FORECAST, round((SHARE * n * found.rank**2) ** (1 / 3)))
        wanted = min(size, cheap, PER_DIRECTION * found.n_blocks * found.rank)
        if wanted <= GROWN[0] * m:
            return found
        m = min(wanted, round(GROWN[1] * m))
        likely = [a.n_blocks for a in sorted(found.looks, key=request.order)[:CLOSER]]


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

    def is_beaten(self, n_blocks: int, best: Look) -> bool:
        """Whether so many blocks take more bytes than ``best``, which meets the target, whatever their rank."""
        alone = best.dtype == self.types[0] and self.meets(best)  # else another type may be wanted
        return alone and best.nbytes <= stored_bytes(self.n, n_blocks, self.rank or 1, best.dtype)

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


def _search(request: _Request, curves: Curves, likely: Sequence[int] = ()) -> Proposal:
    """Look at a coarse grid of block numbers, or at likely ones, then around the best of them."""
    looks: dict[int, list[Look]] = {}

    def look(n_blocks: int, stage: str) -> None:
        highest = request.highest_rank(n_blocks)
        if n_blocks not in looks and highest > 0 and not (looks and request.is_beaten(n_blocks, leader())):
            best, seen = curves.errors(n_blocks, highest)
            looks[n_blocks] = request.looks(n_blocks, best, stage if seen else "trend")

    def leader() -> Look:
        every = [a for some in looks.values() for a in some]
        first = min(every, key=request.order)
        if request.meets(first):
            return first
        return min((a for a in every if a.error <= GAIN * first.error), key=lambda a: a.nbytes)

    waited = 0
    if request.n_blocks is not None or likely:
        for c in sorted(likely) or [request.n_blocks or 1]:
            look(c, "refined")
    else:
        for c in COARSE:
            before = leader() if looks else None
            look(c, "coarse")
            waited = 0 if before is None or leader().n_blocks == c else waited + 1
            if waited >= PATIENCE or not looks.get(c):
                break
    while request.n_blocks is None and leader().n_blocks * leader().rank > FEW:
        at = FINE.index(leader().n_blocks)
        near = [c for c in FINE[max(0, at - 1) : at + 2] if c not in looks and request.highest_rank(c) > 0]
        known = len(looks)
        for c in near:
            look(c, "refined")
        if len(looks) == known:
            break
    chosen = leader()
    table = tuple(chosen if c == chosen.n_blocks else min(a, key=request.order) for c, a in looks.items() if a)
    return Proposal(
        chosen.n_blocks, chosen.rank, chosen.dtype, chosen.nbytes, chosen.error, request.reason(chosen), table
    )


def si(nbytes: float) -> str:
    """Bytes as people say them."""
    units = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))  # 0.9995 of one is rounded up to it
    return next((f"{nbytes / size:.3g} {unit}" for unit, size in units if nbytes >= 0.9995 * size), f"{nbytes:.0f} B")
