"""A number of bytes in, what is worth trying in them out: blocks, rank, coupling and storage type.

Bytes are those of the factorization, as `krein.approximate` counts ``max_memory``. Blocks on their own hold their core
in r numbers, so that blocks of few rows are kept whole: k(x, y) within them is then exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from krein.approximation.building import APART
from krein.kernels import Kernel

__all__ = ["Trial", "candidates", "factorization_bytes", "largest", "leader", "shapes", "within"]

PER_BLOCK = (1024, 512, 256, 128, 64, 32, 16, 8)  # rows per block on its own
COUPLED = (1, 3, 8, 32)  # few blocks, all linked
LARGEST = 2048  # directions of coupled blocks
HIGHEST = 512  # rank of a block on its own
WHOLE = 2.0  # times the mean rows of a block: a rank that nearly all blocks are whole at
MORE = 1.25  # times the rank: what a smaller type has to allow to be worth trying
SIZES = {"float64": 8, "float32": 4, "float16": 2, "int8": 1}


@dataclass(frozen=True)
class Trial:
    """One candidate and the score of the rows it was tried on."""

    n_blocks: int  # of all rows
    rank: int
    coupled: bool
    kernel: Kernel
    score: float  # of rows left out: accuracy or R²
    tie: float  # the mean squared error, negative: what decides between equal scores
    nbytes: int  # forecast for all rows, maps included; of the factorization alone where max_memory is given
    seconds: float
    dtype: str = "float64"

    @property
    def key(self) -> tuple[int, int, bool, Kernel, str]:
        return self.n_blocks, self.rank, self.coupled, self.kernel, self.dtype


def within(
    n: int, room: float, types: tuple[str, ...], n_blocks: int | None, rank: int | None,
    score: Callable[[int, int, bool, str], Trial],
) -> list[Trial]:  # fmt: skip
    """Return what was tried and fits ``room``; ``score`` takes blocks, rank, coupled and type.

    Every second shape in the widest and the smallest type, then the neighbours of the best in all types. What small
    types take is known only once they are filled: where it is too much, the rank goes down.
    """
    tried: list[Trial] = []

    def attempt(shape: tuple[int, bool], some: Sequence[str]) -> None:
        for k, dtype in candidates(n, room, some, shape, rank):
            found = score(shape[0], k, shape[1], dtype)
            while found.nbytes > room and rank is None and found.rank > 1:
                less = max(1, min(found.rank - 1, int(found.rank * room / found.nbytes)))
                found = score(shape[0], less, shape[1], dtype)
            if found.nbytes <= room and found not in tried:
                tried.append(found)

    every = shapes(n, n_blocks)
    for shape in every[::-2] if n_blocks is None else every:
        attempt(shape, types[:: max(1, len(types) - 1)])
    if tried:
        best = leader(tried)
        for shape in _near((best.n_blocks, best.coupled), every):
            attempt(shape, types)
    return tried


def leader(tried: Sequence[Trial]) -> Trial:
    """The best score; the smaller error of equal ones."""
    return max(tried, key=lambda t: (t.score, t.tie))


def factorization_bytes(n: int, n_blocks: int, rank: int, coupled: bool, dtype: str) -> int:
    """Bytes of bases, their maps, core and order, at most, but for second numbers that small types may need."""
    r = min(n, n_blocks * rank)
    core = 8 * r**2 if coupled or r <= APART else 8 * r + 16 * n_blocks
    maps = 0 if dtype == "float64" else 8 * r * rank
    return n * (rank * SIZES[dtype] + 8) + core + maps


def shapes(n: int, n_blocks: int | None = None) -> list[tuple[int, bool]]:
    """(blocks, coupled) that come into question, neighbours beside each other: on their own first, then linked."""
    if n_blocks is not None:
        return [(n_blocks, False), (n_blocks, True)] if n_blocks > 1 else [(1, True)]
    alone = [(max(2, round(n / b)), False) for b in PER_BLOCK if 2 * b <= n]
    return [*alone, *((c, True) for c in COUPLED)]


def _near(shape: tuple[int, bool], every: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """The shape and its neighbours of the same kind."""
    at = every.index(shape)
    return [s for s in every[max(0, at - 1) : at + 2] if s[1] == shape[1]]


def candidates(
    n: int, room: float, types: Sequence[str], shape: tuple[int, bool], rank: int | None = None
) -> Iterator[tuple[int, str]]:
    """Yield (rank, type): the largest rank that fits, in each type that allows clearly more of it than the one before.

    A rank that is given is kept, in the first type that it fits in.
    """
    c, coupled = shape
    limit = min(LARGEST, n // 2) // c if coupled else min(HIGHEST, max(1, round(WHOLE * n / c)))
    before = 0
    for dtype in types:
        k = rank or largest(n, room, c, limit, coupled, dtype)
        fits = 0 < k <= limit and factorization_bytes(n, c, k, coupled, dtype) <= room
        if fits and k >= MORE * before:
            yield k, dtype
            before = k


def largest(n: int, room: float, n_blocks: int, limit: int, coupled: bool, dtype: str) -> int:
    """The largest rank up to ``limit`` that fits, 0 if none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        fits = factorization_bytes(n, n_blocks, middle, coupled, dtype) <= room
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
