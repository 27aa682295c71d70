"""A core that is too large is scaled down: the parts of an approximation in, the same parts with a smaller core out.

A kernel with a nugget, whose k(x, x) is far above the similarities of x to its neighbours, has much that no basis of
the given rank represents. The sampled diagonal brings it into the least squares, which makes the core M too large:
relative errors above 1 were seen. Sampled entries show whether that happened, and by how much the core must be scaled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from krein.approximation.request import Parts, Request
from krein.approximation.tiles import TILE_SIZE, sampled_diagonal, sampled_tiles
from krein.arrays import Array, stream
from krein.errors import warn
from krein.factorization.core import BlockSparse
from krein.kernels import Evaluator

__all__ = ["shrunk"]

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
