"""What can be built, the bytes it takes, and the table of what was tried.

`Candidate` is one shape with what is known of it, `Selection` the table of all that were tried. `bytes_of` is the one
formula for the bytes of a factorization. The rest lists shapes: within a memory limit (`shapes`, `shapes_within`), and
for objects that have nothing but similarities (`landmark_shape`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from krein.approximation.error import ErrorEstimate
from krein.errors import si
from krein.factorization.bases import STORAGE
from krein.factorization.factorization import UNCOUPLED_CORE
from krein.kernels import Kernel
from krein.policy import Policy

__all__ = [
    "ITEM_BYTES", "Candidate", "Selection", "bytes_of", "held_bytes", "highest_rank", "landmark_shape", "shapes",
    "shapes_within",
]  # fmt: skip

ITEM_BYTES = {name: np.dtype(name).itemsize for name in STORAGE}
# Numbers of coupled blocks that are scored within a memory limit.
COUPLED_BLOCKS = (1, 3, 8, 32)
# Clusters differ in size: at this many times the mean rows as rank, nearly all uncoupled blocks are exact.
EXACT_BLOCK_RANK = 2.0
# A smaller type is scored only if it allows this many times the rank of the type before it.
SMALLER_TYPE_GAIN = 1.25
# A block of a landmark coupling needs this rank before more blocks or a wider type are worth anything.
FEWEST_LANDMARK_RANK = 8
# A landmark coupling is planned for this share of the memory, as large blocks may get more than the mean rank.
PLANNED_MEMORY = 0.75


@dataclass(frozen=True)
class Candidate:
    """A number of blocks, a rank and a storage type, and what is known of them.

    Attributes
    ----------
    n_blocks, rank : int
        Blocks, and the rank of each (the rounded mean where ranks differ).
    dtype : str
        Type that the bases are stored in.
    nbytes : int
        Bytes of the factorization. Where a score is known and no ``max_memory`` was given, with what predictions need.
    error : float or None
        Relative Frobenius error.
    score : float or None
        Accuracy or R² on rows held out.
    seconds : float
        Time it took to score.
    stage : str
        How the error is known. "coarse", "refined" and "trend" are forecasts; "built", "kept" and "exact" were built.
    coupled : bool
        Whether blocks are coupled (``drop=0``) or not (``drop=1``).
    kernel : Kernel or None
        The kernel of the score.
    assignment : str
        Block of a new object: that of the nearest "centre", or of the nearest "landmark".
    squared_error : float
        Mean squared error on the rows held out, which decides between equal scores.
    """

    n_blocks: int
    rank: int
    dtype: str
    nbytes: int
    error: float | None = None
    score: float | None = None
    seconds: float = 0.0
    stage: str = ""
    coupled: bool = True
    kernel: Kernel | None = None
    squared_error: float = 0.0
    assignment: str = "centre"

    @property
    def key(self) -> tuple[int, int, str, bool, Kernel | None]:
        """What was tried, without what was found."""
        return self.n_blocks, self.rank, self.dtype, self.coupled, self.kernel

    @property
    def quality(self) -> tuple[float, float]:
        """The score, then the squared error: more is better."""
        return -np.inf if self.score is None else self.score, -self.squared_error


@dataclass(frozen=True)
class Selection:
    """The candidates that were tried, the one that was chosen, and why. Printed, it is a table.

    Attributes
    ----------
    tried : tuple of Candidate
    reason : str
        Why the search ended.
    best : int or None
        Place of the chosen candidate in ``tried``.
    parameters : dict
        What a machine passes to `krein.approximate`; ``n_blocks``, ``rank``, ``drop`` and ``dtype`` are in it.
    kernel : Kernel or None
        The kernel, with the gamma that was tuned.
    error : ErrorEstimate or None
        Measured error of what was built; None where it is exact, or was not chosen by its error.
    n_scored : int
        Rows that scores are means over.
    seconds, build_seconds : float
        Time spent on choosing, and on building what was chosen by its error.
    """

    tried: tuple[Candidate, ...]
    reason: str
    best: int | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    kernel: Kernel | None = None
    error: ErrorEstimate | None = None
    n_scored: int = 0
    seconds: float = 0.0
    build_seconds: float = 0.0

    @property
    def chosen(self) -> Candidate | None:
        """The chosen candidate; None where nothing was tried."""
        return None if self.best is None else self.tried[self.best]

    @property
    def n_blocks(self) -> Any:
        """Number of blocks; "auto" where it is left to the matrix error."""
        return self.parameters.get("n_blocks")

    @property
    def rank(self) -> Any:
        """Rank of each block; "auto" where it is left to the matrix error."""
        return self.parameters.get("rank")

    @property
    def drop(self) -> Any:
        """Share of cluster pairs that are not coupled."""
        return self.parameters.get("drop")

    @property
    def dtype(self) -> Any:
        """Storage type of the bases."""
        return self.parameters.get("dtype")

    def __str__(self) -> str:
        head = self.reason + ("" if self.error is None else f", error {self.error}")
        head += f"; {self.n_scored} rows scored" if self.n_scored else ""
        head += f"; chosen in {self.seconds:.2g} s" if self.seconds else ""
        head += f", built in {self.build_seconds:.2g} s" if self.build_seconds else ""
        return "\n".join([head, *_table(self.tried, self.best)])


def _table(tried: Sequence[Candidate], best: int | None) -> list[str]:
    """One line per candidate below the names of the columns; columns that are empty are left out."""
    names = ("blocks", "rank", "type", "coupled", "nearest", "gamma", "bytes", "error", "score", "seconds", "stage", "")
    lines = [names]
    for i, t in enumerate(tried):
        scored, gamma = t.score is not None, getattr(t.kernel, "gamma", None)
        lines.append(
            (str(t.n_blocks), str(t.rank), t.dtype, ("yes" if t.coupled else "no") if scored else "",
             "" if t.assignment == "centre" else t.assignment,
             "" if gamma is None else f"{gamma:.3g}", si(t.nbytes), "" if t.error is None else f"{t.error:.2g}",
             "" if t.score is None else f"{t.score:.4f}", f"{t.seconds:.2f}" if scored else "", t.stage,
             "<- chosen" if i == best else "")
        )  # fmt: skip
    columns = [column for column in zip(*lines, strict=True) if not tried or any(column[1:])]
    shown = []
    for column in columns:
        width, left = max(map(len, column)), column[0] in ("type", "nearest", "stage", "")
        shown.append([cell.ljust(width) if left else cell.rjust(width) for cell in column])
    return ["  ".join(row).rstrip() for row in zip(*shown, strict=True)]


# -- bytes -------------------------------------------------------------------------------------------------------------


def held_bytes(n: Any, basis_entries: Any, core_entries: Any, map_entries: Any, dtype: str) -> Any:
    """Bytes of a factorization of n rows: bases in ``dtype``, core, order, and maps of types other than float64."""
    maps = 0 if dtype == "float64" else map_entries
    return ITEM_BYTES[dtype] * basis_entries + 8 * (core_entries + n + maps)


def bytes_of(n: int, n_blocks: int, rank: Any, dtype: str, coupled: bool = True) -> Any:
    """Bytes of a factorization of n rows in blocks of one rank, or of each of an array of ranks.

    The core of uncoupled blocks is diagonal where it has more than UNCOUPLED_CORE rows: r values and two indices per
    block. Equal to ``factorization.nbytes`` where every block has that rank. float16 and int8 may take more, as columns
    that round badly are stored in two numbers.
    """
    r = np.minimum(n, n_blocks * np.asarray(rank))
    core = r**2 if coupled else np.where(r <= UNCOUPLED_CORE, r**2, r + 2 * n_blocks)
    found = held_bytes(n, n * np.asarray(rank), core, r * rank, dtype)
    return found if found.ndim else int(found)


def highest_rank(n: int, room: float, n_blocks: int, limit: int, dtype: str, coupled: bool = True) -> int:
    """The highest rank up to ``limit`` whose factorization fits ``room`` bytes, 0 if none does."""
    fits = np.flatnonzero(bytes_of(n, n_blocks, np.arange(1, limit + 1), dtype, coupled) <= room)
    return int(fits[-1]) + 1 if len(fits) else 0


# -- shapes within a memory limit --------------------------------------------------------------------------------------


def shapes(n: int, policy: Policy, n_blocks: int | None = None) -> list[tuple[int, bool]]:
    """(number of blocks, coupled) that can be scored, neighbours beside each other: uncoupled ones first."""
    if n_blocks is not None:
        return [(n_blocks, False), (n_blocks, True)] if n_blocks > 1 else [(1, True)]
    rows = (*policy.block_rows, max(1, policy.block_rows[-1] // 2))
    uncoupled = [(max(2, round(n / b)), False) for b in rows if 2 * b <= n]
    return [*uncoupled, *((c, True) for c in COUPLED_BLOCKS)]


def shapes_within(
    n: int, room: float, types: Sequence[str], shape: tuple[int, bool], policy: Policy, rank: int | None = None
) -> Iterator[tuple[int, str]]:
    """Yield (rank, type): the highest rank that fits, in each type that allows clearly more than the one before.

    A given rank is kept, in the first type that it fits in.
    """
    c, coupled = shape
    limit = min(2 * policy.highest_block_rank, max(1, round(EXACT_BLOCK_RANK * n / c)))
    if coupled:
        limit = min(policy.coupled_directions, n // 2) // c
    before = 0
    for dtype in types:
        k = rank or highest_rank(n, room, c, limit, dtype, coupled)
        if 0 < k <= limit and k >= SMALLER_TYPE_GAIN * before and bytes_of(n, c, k, dtype, coupled) <= room:
            yield k, dtype
            before = k


def landmark_shape(
    n: int, room: float, types: Sequence[str], n_blocks: int | None, rank: int | None, policy: Policy
) -> tuple[int, int, str] | None:
    """Blocks, rank and type of coupling="landmark" where a rule chooses them; what is given is kept.

    Where the default shape does not fit ``room``: less rank, then fewer blocks, then smaller types. None if nothing
    fits.
    """
    room *= PLANNED_MEMORY
    blocks, per_block = policy.landmark_shape(n)
    total, best = blocks * per_block, None
    counts = [n_blocks] if n_blocks else [blocks >> i for i in range(blocks.bit_length())]
    for dtype in types:
        for c in counts:
            if rank and not n_blocks and c > 1 and c * rank > total:
                continue
            per_block = max(1, total // c)
            k = rank or highest_rank(n, room, c, min(policy.landmark_block_rank, per_block), dtype)
            if k == 0 or bytes_of(n, c, k, dtype) > room:
                continue
            if rank or k >= min(FEWEST_LANDMARK_RANK, per_block):
                return c, k, dtype
            if best is None or c * k > best[0] * best[1]:
                best = c, k, dtype
    return best
