"""What was chosen to build; and the choice for objects without vectors, of which nothing is tried.

Each of their similarities may be dear, and to build one candidate takes as many as to build what is wanted: so blocks
and rank follow a rule, with the coupling that takes the fewest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.approximation.landmark import usual
from krein.choosing.budget import Trial, factorization_bytes, largest
from krein.kernels import Kernel, count_objects

__all__ = ["MAX_MEMORY", "SMALL", "Choice", "for_objects", "unscored"]

MAX_MEMORY = 2.0**30  # bytes of factorization and maps, where none are given
SMALL = ("float16", "int8")  # tried beside X's own type where memory is given
PAID, ENOUGH = 74, 8  # rank of landmark-coupled blocks: 3 similarities an object each, 512 in all; and what blocks need
USED = 0.75  # of the memory: ranks follow what blocks carry, so that large ones may take more than the mean


@dataclass(frozen=True)
class Choice:
    """What to build, what else was tried, and why this."""

    n_blocks: int | str
    rank: int | str
    drop: float | str
    dtype: Any
    max_memory: float | None  # None where it was respected already: to give it too would start another search
    kernel: Kernel
    tried: tuple[Trial, ...]
    n_scored: int  # rows that scores are means over
    reason: str
    seconds: float
    coupling: str | None = None  # None where it is what was asked for

    @property
    def parameters(self) -> dict[str, Any]:
        """For `krein.approximate`, beside the objects and the kernel."""
        names = ("n_blocks", "rank", "drop", "dtype", "max_memory")
        return {n: getattr(self, n) for n in names} | ({"coupling": self.coupling} if self.coupling else {})

    def __str__(self) -> str:
        lines = [("blocks", "rank", "coupled", "gamma", "score", "MB", "seconds", "")]
        for t in self.tried:
            mine = (self.n_blocks, self.rank, self.drop == 0.0, self.kernel, self.dtype)
            mark = "<- chosen" if t.key == mine else ""
            gamma = getattr(t.kernel, "gamma", None)
            lines.append(
                (str(t.n_blocks), str(t.rank), "yes" if t.coupled else "no", "" if gamma is None else f"{gamma:.3g}",
                 f"{t.score:.4f}", f"{t.nbytes / 1e6:.0f}", f"{t.seconds:.2f}", mark)
            )  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = ("  ".join(v.rjust(w) for v, w in zip(row, widths, strict=True)).rstrip() for row in lines)
        return f"{self.reason}; {self.n_scored} rows scored in {self.seconds:.2g} s\n" + "\n".join(rows)


def for_objects(
    n: int, room: float, types: Sequence[str], n_blocks: int | None, rank: int | None
) -> tuple[int, int, str] | None:
    """Return blocks, rank and type for coupling="landmark": what is given is kept, and the rest is the usual.

    Where that is too much for ``room``, less rank, then fewer blocks, then smaller types; None if nothing fits.
    """
    room *= USED
    blocks, per_block = usual(n)
    total, best = blocks * per_block, None
    counts = [n_blocks] if n_blocks else [c for c in (blocks >> i for i in range(blocks.bit_length())) if c > 0]
    for dtype in types:
        for c in counts:
            if rank and not n_blocks and c > 1 and c * rank > total:
                continue
            k = rank or largest(n, room, c, min(PAID, max(1, total // c)), True, dtype)
            if k == 0 or factorization_bytes(n, c, k, True, dtype) > room:
                continue
            if rank or k >= min(ENOUGH, max(1, total // c)):
                return c, k, dtype
            if best is None or c * k > best[0] * best[1]:
                best = c, k, dtype
    return best


def unscored(
    objects: Any,
    kernel: Kernel,
    n_blocks: Any,
    rank: Any,
    max_memory: float | None,
    dtype: Any,
    drop: Any,
    begun: float,
) -> Choice:
    """For objects that have nothing but their similarities: to try candidates would cost more of them than to build."""
    given = [None if value == "auto" else int(value) for value in (n_blocks, rank)]
    types = ("float64", *SMALL) if dtype == "auto" else (str(np.dtype(dtype)),)
    found = for_objects(count_objects(objects), max_memory or MAX_MEMORY, types, *given)
    why = 'each similarity may be dear: coupling="landmark" takes the fewest, and nothing was tried'
    if found is None or drop not in ("auto", 0.0):  # which coupling="landmark" cannot do
        why = "each similarity may be dear, and nothing was tried: the matrix error decides"
        asked = (n_blocks, rank, "auto", dtype, max_memory)
        return Choice(*asked, kernel, (), 0, why, time.perf_counter() - begun)
    return Choice(found[0], found[1], 0.0, found[2], None, kernel, (), 0, why, time.perf_counter() - begun, "landmark")
