"""A core that is too large is scaled down: the parts of an approximation in, the same parts with a smaller core out.

A kernel with a nugget, whose k(x, x) is far above the similarities of x to its neighbours, has much that no basis of
the given rank represents. The sampled diagonal brings it into the least squares, which makes the core M too large:
relative errors above 1 were seen. Sampled entries show whether that happened, and by how much the core must be scaled.
Their tiles are drawn by places within blocks, so that they are the same wherever rows lie, and are fetched all at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from krein.approximation.request import Parts, Request
from krein.arrays import Array, Indices, grouped, stream
from krein.errors import warn
from krein.factorization import Factorization
from krein.factorization.core import BlockSparse, core_block
from krein.kernels import Evaluator, take
from krein.kernels.collections import precise

__all__ = ["TILE_SIZE", "sampled_diagonal", "sampled_tiles", "shrunk"]

# At most MAX_TILES tiles of entries are sampled within blocks, and as many between blocks.
MAX_TILES = 32
# The tiles hold at most this share of the entries of the matrix.
MAX_SAMPLED_SHARE = 0.05
# The core is scaled if that lowers the squared error by at least this share.
LEAST_GAIN = 0.05
# Warn if the core is scaled by less than this factor.
REPORTED_SCALE = 0.5


def shrunk(request: Request, parts: Parts, evaluator: Evaluator) -> Parts:
    """Scale the diagonal blocks of the core by a and the others by b <= a, if sampled entries show that it helps.

    The core stays psd, as (a - b) I + b 11ᵀ is. The error is never above that of the diagonal blocks alone (b = 0) or
    of a zero matrix (a = 0), as far as the sampled entries tell.
    """
    f = parts.factorization
    if f.rank == 0 or f.rank == f.shape[0]:
        return parts
    rng = stream(request.seed, 6)
    count = max(1, min(MAX_TILES, int(MAX_SAMPLED_SHARE * request.n**2) // TILE_SIZE**2))
    inner, outer = (sampled_tiles(f, evaluator, request.objects, inside, count, rng) for inside in (True, False))
    inner.append(sampled_diagonal(f, evaluator, request.objects, rng))  # it is most of a matrix with few similarities
    peak = max(float(np.abs(part).max(initial=0.0)) for _, *tile in inner + outer for part in tile)
    within, between = (_Sums.over(tiles, peak or 1.0) for tiles in (inner, outer))  # on one scale, so that they add up
    a, b = within.best_scale, between.best_scale
    if b > a:  # psd needs b <= a, and then the best is one scale for all
        a = b = _Sums(within.kk + between.kk, within.kf + between.kf, within.ff + between.ff).best_scale
    before, after = within.error(1.0) + between.error(1.0), within.error(a) + between.error(b)
    if after >= (1.0 - LEAST_GAIN) * before or before == 0.0:
        return parts
    if min(a, b) < REPORTED_SCALE:
        warn(
            f"Rank {max(f.ranks)} per block carries so little of this kernel that the core came out too large; it was "
            f"scaled by {a:.2g} within blocks and {b:.2g} between them. More rank, or another kernel parameter, helps."
        )
    core = f.core
    if isinstance(core, BlockSparse):
        core = core.map_blocks(lambda i, j, block: (a if i == j else b) * block, f.ranks)
    else:
        core = b * core
        for (_, cols), block in zip(f.spans, f.core_diagonal_blocks(), strict=True):
            core[cols, cols] = a * block
    maps = tuple(m if m.block is None else replace(m, block=a * m.block, reach=a * m.reach) for m in parts.maps)
    return replace(parts, factorization=f.with_core(core, f.shift), maps=maps)


@dataclass(frozen=True)
class _Sums:
    """Estimated sums of k², k f and f² over entries k of K and f of F: |K - a F|² is kk - 2 a kf + a² ff."""

    kk: float
    kf: float
    ff: float

    @classmethod
    def over(cls, tiles: list[tuple[float, Array, Array]], peak: float) -> _Sums:
        """The sums estimated from tiles. Entries are divided by ``peak``, so that no square overflows."""
        sums = np.zeros(3)
        for share, exact, found in tiles:
            k, f = exact / peak, found / peak
            sums += share * np.array([(k**2).mean(), (k * f).mean(), (f**2).mean()])
        return cls(*sums.tolist())

    def error(self, a: float) -> float:
        """The squared error of a F."""
        return max(0.0, self.kk - 2.0 * a * self.kf + a * a * self.ff)

    @property
    def best_scale(self) -> float:
        """The a in [0, 1] of the smallest error."""
        return min(1.0, max(0.0, self.kf / self.ff)) if self.ff > 0.0 else 1.0


# Tiles have TILE_SIZE x TILE_SIZE entries.
TILE_SIZE = 16
# The diagonal is taken at all rows, or at DIAGONAL_ROWS uniform ones if there are more.
DIAGONAL_ROWS = 50_000


def sampled_diagonal(
    f: Factorization, evaluator: Evaluator, objects: Any, rng: np.random.Generator
) -> tuple[float, Array, Array]:
    """The diagonals of K and F, and the number of entries they represent."""
    n = f.shape[0]
    rows = np.arange(n) if n <= DIAGONAL_ROWS else np.sort(rng.choice(n, DIAGONAL_ROWS, replace=False))
    inner, found = f.core_diagonal_blocks(), np.empty(len(rows))
    for i, here, U in f.bases.by_block(rows):
        found[here] = np.einsum("ij,ij->i", U @ inner[i], U)
    return float(n), evaluator.diag(precise(take(objects, rows))).astype(np.float64), found + f.shift


def sampled_tiles(
    f: Factorization, evaluator: Evaluator, objects: Any, inside: bool, count: int, rng: np.random.Generator
) -> list[tuple[float, Array, Array]]:
    """Sample tiles off the diagonal, within blocks or between them.

    Each tile is the number of entries it represents, its entries of K, and those of F.
    """
    sizes = np.array(f.bases.sizes, dtype=np.int64)
    starts, n = np.concatenate([[0], np.cumsum(sizes)]), f.shape[0]
    weights = sizes * (sizes - 1.0) if inside else sizes * (n - sizes.astype(np.float64))
    total = float(weights.sum())
    if total == 0.0:
        return []
    wanted: list[tuple[int, Indices]] = []  # places within blocks
    tiles: list[tuple[list[int], list[int]]] = []  # which of them are the rows and the columns of a tile
    for i in rng.choice(len(sizes), count, p=weights / total).tolist():
        size = int(sizes[i])
        if inside:
            side = min(TILE_SIZE, size // 2)
            both = rng.choice(size, 2 * side, replace=False)
            parts = [(i, both[:side])], [(i, both[side:])]
        else:
            rows = rng.choice(size, min(TILE_SIZE, size), replace=False)
            others = rng.choice(n - size, min(TILE_SIZE, n - size), replace=False)
            places = np.where(others >= starts[i], others + size, others)
            blocks = np.searchsorted(starts, places, side="right") - 1
            parts = [(i, rows)], [(j, places[here] - starts[j]) for j, here in grouped(blocks)]
        at = [
            list(range(len(wanted) + k, len(wanted) + k + len(p)))
            for k, p in ((0, parts[0]), (len(parts[0]), parts[1]))
        ]
        tiles.append((at[0], at[1]))
        wanted += [*parts[0], *parts[1]]
    found = f.bases.at(wanted)
    some = take(objects, np.concatenate([rows for rows, _ in found]))
    ends = np.concatenate([[0], np.cumsum([len(rows) for rows, _ in found])])
    out: list[tuple[float, Array, Array]] = []
    for left, right in tiles:
        here, there = (np.concatenate([np.arange(ends[w], ends[w + 1]) for w in side]) for side in (left, right))
        exact = evaluator.block(precise(take(some, here)), precise(take(some, there))).astype(np.float64)
        i = wanted[left[0]][0]
        values = [found[left[0]][1] @ core_block(f.core, f.spans, i, wanted[w][0]) @ found[w][1].T for w in right]
        out.append((total / count, exact, np.hstack(values)))
    return out
