"""A factorization, a kernel and its objects in, sampled tiles of K with their probabilities out.

The tiles give unbiased estimates of |K - F|², |K|² and |F|², for that factorization F and others with the same blocks.
A few rows may hold most of the error. So rows are drawn by a mixture of proposal distributions: uniform, and by what is
known of every row in O(n), which is its self-similarity, its norm in F and its error on the diagonal (|E_xy|² <= E_xx
E_yy for a psd E). Among many blocks a few pairs of near ones may hold most of the error, so that these are a proposal
too. Every entry is weighted by the inverse of its probability under the whole mixture, which is unbiased for any
mixture.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from krein.arrays import Array, Indices, grouped
from krein.factorization import Factorization
from krein.factorization.core import BlockSparse, is_dense, row_grams
from krein.kernels import Evaluator, FromCallable, is_vectors, take

__all__ = ["Known", "Sample", "Stratum", "Table", "draw", "normed"]

# A tile has TILE x TILE entries. Tiles are small, as entries that share rows tell less than independent ones.
TILE = 4
# This share of the tiles after the pilot sample is spread evenly over the proposals, and over the strata.
EVEN_SHARE = 0.3
# A cheap kernel evaluates this many tiles in one call, with the entries between them, as calls cost more than entries.
TILES_PER_CALL = 16
# F is evaluated for this many tiles at a time, or for this many entries that share a block of the core.
TILES_AT_ONCE, ENTRIES_AT_ONCE = 128, 4096
# Up to this many blocks a sample has many entries in each pair of blocks, so that entries of F anywhere are cheap.
FEW_BLOCKS = 100
# Rows between blocks are drawn from all rows if at least this share of all pairs of rows is between blocks.
FREE_SHARE = 0.75
# Each block has at most this many near blocks.
NEIGHBOURS = 64
# The proposal that draws near blocks. All others are pairs of row distributions.
NEAR_BLOCKS = (-1, -1)


class Table:
    """What is known of all rows in O(n), in the inner order. Numbers are in units of ``scale``: no square overflows."""

    def __init__(self, f: Factorization, evaluator: Evaluator, objects: Any) -> None:
        self.evaluator, self.objects, self.order = evaluator, objects, f.order
        self.stops = np.array([rows.stop for rows, _ in f.spans])
        self.starts = np.array([rows.start for rows, _ in f.spans])
        exact = evaluator.diag(objects).astype(np.float64)[f.order]
        self.scale = max(float(np.abs(values).max()) for values in (exact, f.diagonal())) or 1.0
        self.exact = exact / self.scale
        self.total = float((self.exact**2).sum())
        # Row distributions: uniform, by size, by the error on the diagonal, by the rank in either.
        self._last: tuple[Factorization, Known] | None = None
        n, known = len(exact), self.known(f)
        sizes = np.abs(self.exact) / (np.abs(self.exact).sum() or 1.0) + normed(known.rows)
        gaps = normed(known.gaps)
        self.laws = np.stack([np.full(n, 1.0 / n), normed(sizes), gaps, _by_rank(sizes) + _by_rank(gaps)])
        self.laws[3] /= 2.0  # (4, n)
        self.cumulated = np.concatenate([np.zeros((4, 1)), self.laws.cumsum(1)], axis=1)  # (4, n + 1)
        self.cheap = len(self.stops) <= FEW_BLOCKS or not is_dense(f.core)  # entries of F anywhere are cheap
        self.sizes = self.stops - self.starts
        self.near = Near(self)

    def blocks_of(self, places: Indices) -> Indices:
        return np.searchsorted(self.stops, places, side="right")

    def known(self, f: Factorization) -> Known:
        """What is known of a factorization with these blocks without sampling, in O(n k²). The last one is kept."""
        if self._last is not None and self._last[0] is f:
            return self._last[1]
        values = f.diagonal()[self.order] / self.scale
        unshifted = values - f.shift / self.scale  # the shift is an error on the diagonal only
        inner, rows = _squared_norms(f, self.scale)
        norms = {"within": inner[0] - float((unshifted**2).sum()), "between": inner[1]}
        lost = float(((self.exact - values) ** 2).sum())
        self._last = f, Known(lost, norms, np.abs(self.exact - unshifted), rows[self.order])
        return self._last[1]


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a factorization F without sampling, in units of the table's scale."""

    lost: float  # the squared error on the diagonal
    norms: dict[str, float]  # F's squared norms within and between blocks, the diagonal left out
    gaps: Array  # (n,) |K - F| on the diagonal, without F's shift
    rows: Array  # (n,) the squared norms of F's rows, up to a factor


class Near:
    """Pairs of near blocks and the probability of each.

    If most pairs of blocks have no similarities, a few pairs hold the rest of K. Blocks are near by the Euclidean
    distance of the means of a few rows, which takes no similarity. Pairs are weighted by 1 / rank, among all pairs and
    among those of their block. Objects without vectors have no such pairs.
    """

    def __init__(self, table: Table) -> None:
        self.n_blocks = c = len(table.stops)
        self.keys: Indices = np.empty(0, dtype=np.int64)
        self.weights: Array = np.empty(0)
        if c < 3 or not isinstance(table.objects, np.ndarray) or not is_vectors(table.objects):
            return
        spread = (table.starts[:, None] + (np.arange(8) + 0.5) / 8 * table.sizes[:, None]).astype(np.intp)  # (c, 8)
        centres = np.mean([table.objects[table.order[column]].astype(np.float64) for column in spread.T], axis=0)
        centres /= np.abs(centres).max() or 1.0
        if centres.shape[1] > 16:  # a random projection is enough
            centres = centres @ np.random.default_rng(0).standard_normal((centres.shape[1], 16))
        m = min(NEIGHBOURS, c - 1)
        # Each block is among its own neighbours, or an equal one is.
        distances, found = map(np.asarray, cKDTree(centres).query(centres, m + 1))
        i, j = np.repeat(np.arange(c), m + 1), found.ravel()
        local = np.tile(1.0 / np.maximum(np.arange(m + 1), 1), c)
        keep = i != j
        i, j, local, distances = i[keep], j[keep], local[keep], distances.ravel()[keep]
        weights = normed(local) + _by_rank(-distances)
        keys = np.concatenate([i.astype(np.int64) * c + j, j.astype(np.int64) * c + i])
        self.keys, back = np.unique(keys, return_inverse=True)
        self.weights = normed(np.bincount(back, np.concatenate([weights, weights])).astype(np.float64))
        self.cumulated = np.concatenate([[0.0], self.weights.cumsum()])
        self.first = np.searchsorted(self.keys, np.arange(c + 1) * c)  # of each block's pairs

    def draw(self, u: Array, v: Array) -> tuple[Indices, Indices]:
        """Draw a block for each uniform number in ``u`` (tiles, 1), and near ones for those in ``v`` (tiles, TILE)."""
        last = len(self.keys) - 1
        i = self.keys[np.clip(np.searchsorted(self.cumulated, u, side="right") - 1, 0, last)] // self.n_blocks
        low, high = self.cumulated[self.first[i]], self.cumulated[self.first[i + 1]]
        at = np.searchsorted(self.cumulated, low + v * (high - low), side="right") - 1
        return i, self.keys[np.clip(at, self.first[i], self.first[i + 1] - 1)] % self.n_blocks

    def of(self, i: Indices, j: Indices) -> Array:
        """The probability of the pair of blocks (i, j)."""
        keys = i.astype(np.int64) * self.n_blocks + j
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.weights[at], 0.0)


@dataclass(frozen=True, eq=False)
class Sample:
    """Tiles of one stratum: their positions, the weights of their entries, and their entries of K."""

    rows: Indices  # (tiles, TILE) positions in the inner order
    cols: Indices  # (tiles, TILE)
    mine: Indices  # (tiles, TILE) the blocks of the rows
    yours: Indices  # (tiles, TILE) the blocks of the columns
    weights: Array  # (tiles, TILE, TILE), 0 for entries outside the stratum
    density: Array  # (proposals, tiles, TILE, TILE)
    exact: Array  # (tiles, TILE, TILE), entries of K in units of the table's scale

    def squares(self, f: Factorization, scale: float) -> Array:
        """(3, tiles, TILE, TILE): the weighted squares of K - F, K and F, whose means over tiles are unbiased."""
        found = _entries(f, self.rows, self.mine, self.cols, self.yours) / scale
        return np.stack([self.weights * square for square in ((self.exact - found) ** 2, self.exact**2, found**2)])


class Stratum:
    """The ordered pairs (x, y), x != y, within blocks or between blocks, and the proposals that draw tiles of them.

    One proposal between blocks draws near blocks (`Near`), and rows uniformly in each. Any other is a pair (a, b) of
    row distributions. It draws a block i with probability a_i b_i / Z (between blocks a_i (1 - b_i) / Z), rows by a in
    the block and columns by b in it (or outside). Then (x, y) has the density a_x b_y / Z in all blocks. If few pairs
    of rows share a block (Z is nearly 1), rows and columns between blocks are drawn from all rows, and pairs that share
    a block get weight 0: a tile then has up to 16 pairs of blocks instead of 4.
    """

    def __init__(self, table: Table, within: bool) -> None:
        self.within, self.name = within, "within" if within else "between"
        self.cumulated = table.cumulated
        self.mass = self.cumulated[:, table.stops] - self.cumulated[:, table.starts]  # (4, c)
        self.proposals: list[tuple[int, int]] = []
        self.choice: list[Array | None] = []  # probabilities of the rows' block; None: rows are drawn from all
        self.z: list[float] = []
        for a, b in combinations_with_replacement(range(len(table.laws)), 2):
            if within:
                weights = np.where(table.stops - table.starts > 1, self.mass[a] * self.mass[b], 0.0)
            elif self.mass.shape[1] > 1:
                weights = self.mass[a] * np.maximum(1.0 - self.mass[b], 0.0)
            else:
                continue
            z = float(weights.sum())
            if z > 0.0:
                free = not within and table.cheap and z >= FREE_SHARE
                self.proposals.append((a, b))
                self.choice.append(None if free else weights / z)
                self.z.append(1.0 if free else z)
        if not within and len(table.near.weights):
            self.proposals.append(NEAR_BLOCKS)
            self.choice.append(None)
            self.z.append(1.0)
        self.even = np.full(len(self.proposals), 1.0 / max(1, len(self.proposals)))

    def places(self, n_tiles: int, mixture: Array, table: Table, rng: np.random.Generator) -> tuple[Indices, Indices]:
        """Draw the positions of the rows and columns of each tile, (tiles, TILE) each."""
        rows, cols = np.empty((2, n_tiles, TILE), dtype=np.intp)
        drawn = rng.choice(len(self.proposals), n_tiles, p=mixture)
        first, last = np.zeros(1, dtype=np.intp), table.stops[-1:]
        for w, (a, b) in enumerate(self.proposals):
            here, choice = np.flatnonzero(drawn == w), self.choice[w]
            u, v = rng.random((2, len(here), TILE))
            if (a, b) == NEAR_BLOCKS:
                i, j = table.near.draw(rng.random((len(here), 1)), rng.random((len(here), TILE)))
                rows[here], cols[here] = (
                    (table.starts[k] + r * table.sizes[k]).astype(np.intp) for k, r in ((i, u), (j, v))
                )
                continue
            if choice is None:
                rows[here], cols[here] = self._at(a, u, first, last), self._at(b, v, first, last)
                continue
            block = rng.choice(len(choice), len(here), p=choice)[:, None]
            start, stop = table.starts[block], table.stops[block]
            rows[here] = self._at(a, u * self.mass[a][block] + self.cumulated[a][start], start, stop)
            if self.within:
                cols[here] = self._at(b, v * self.mass[b][block] + self.cumulated[b][start], start, stop)
            else:
                v *= 1.0 - self.mass[b][block]
                v += np.where(v >= self.cumulated[b][start], self.mass[b][block], 0.0)
                cols[here] = self._at(b, v, first, last)
        return rows, cols

    def _at(self, law: int, spots: Array, start: Indices, stop: Indices) -> Indices:
        """Positions where the cumulated distribution passes ``spots``. Rounding leads to none outside start .. stop."""
        return np.clip(np.searchsorted(self.cumulated[law], spots, side="right") - 1, start, stop - 1)

    def densities(self, rows: Indices, cols: Indices, table: Table) -> Array:
        """(proposals, tiles, TILE, TILE): the mean density of (x, y) and (y, x), as K and F are symmetric."""
        left, right = table.laws[:, rows], table.laws[:, cols]  # (4, tiles, TILE)
        found = []
        for (a, b), z in zip(self.proposals, self.z, strict=True):
            if (a, b) == NEAR_BLOCKS:
                mine, yours = table.blocks_of(rows)[:, :, None], table.blocks_of(cols)[:, None, :]
                found.append(table.near.of(mine, yours) / table.sizes[mine] / table.sizes[yours])
                continue
            both = left[a][:, :, None] * right[b][:, None, :] + left[b][:, :, None] * right[a][:, None, :]
            found.append(both / (2.0 * z))
        return np.stack(found)

    def best_mixture(self, sample: Sample, gaps: Array) -> Array:
        """The weights of the proposals whose mixture is nearest in relative entropy to the best density.

        The best density is proportional to the squared error of an entry. ``gaps`` are the weighted squared errors in
        the sample. Each step of the EM algorithm raises their likelihood.
        """
        wanted = normed(gaps)
        mixture = self.even
        for _ in range(10):
            shares = mixture[:, None, None, None] * sample.density
            mixture = normed((shares / shares.sum(0) * wanted).sum((1, 2, 3)))
        return EVEN_SHARE * self.even + (1.0 - EVEN_SHARE) * mixture


def draw(table: Table, stratum: Stratum, n_tiles: int, mixture: Array, rng: np.random.Generator) -> Sample:
    """Draw tiles of the stratum by a ``mixture`` of its proposals, and evaluate the kernel there."""
    rows, cols = stratum.places(n_tiles, mixture, table, rng)
    mine, yours = table.blocks_of(rows), table.blocks_of(cols)
    same = (rows if stratum.within else mine)[:, :, None] == (cols if stratum.within else yours)[:, None, :]
    counts = np.where(same, 0.0, 1.0)  # the diagonal is known, and between blocks nothing within a block counts
    density = stratum.densities(rows, cols, table)
    weights = counts / np.tensordot(mixture, density, 1) / TILE**2
    return Sample(rows, cols, mine, yours, weights, density, _tiles(table, rows, cols) / table.scale)


def _tiles(table: Table, rows: Indices, cols: Indices) -> Array:
    """The entries of K in tiles, (tiles, TILE, TILE).

    For vectors several tiles are evaluated in one call, and the entries between them are not used: a call costs more
    than these entries. Where similarities may be expensive, no entry is evaluated in vain.
    """
    expensive = not is_vectors(table.objects) or isinstance(table.evaluator.kernel, FromCallable)
    together = 1 if expensive else TILES_PER_CALL
    exact = np.empty((*rows.shape, cols.shape[1]))
    for start in range(0, len(rows), together):
        some = slice(start, start + together)
        here, there = (take(table.objects, table.order[places[some]].ravel()) for places in (rows, cols))
        count = len(rows[some])
        block = table.evaluator.block(here, there).reshape(count, rows.shape[1], count, cols.shape[1])
        exact[some] = block[np.arange(count), :, np.arange(count)]
    return exact


def normed(weights: Array) -> Array:
    """Weights divided by their sum; equal weights if all are zero."""
    peak = float(weights.max())
    if peak <= 0.0:
        return np.full(weights.shape, 1.0 / weights.size)
    scaled = weights / peak
    return np.asarray(scaled / scaled.sum())


def _by_rank(weights: Array) -> Array:
    """Probabilities proportional to 1 / rank: every octave of ranks has about the same share, whatever the weights."""
    law = np.empty(len(weights))
    law[np.argsort(-weights, kind="stable")] = 1.0 / np.arange(1, len(weights) + 1)
    return np.asarray(law / law.sum())


def _squared_norms(f: Factorization, scale: float) -> tuple[tuple[float, float], Array]:
    """Squared norms of U M Uᵀ within and between blocks, over scale², and of its rows up to a factor.

    U is orthonormal, so that both follow from the core in O(n k² + r² k).
    """
    inner = sum(float(((block / scale) ** 2).sum()) for block in f.core_diagonal_blocks())
    whole = (f.with_core(f.core, 0.0).frobenius() / scale) ** 2
    grams = {(i, i): G for i, G in enumerate(row_grams(f.core, f.ranks))}
    rows = f.diagonal(BlockSparse.from_blocks(f.ranks, grams))
    return (inner, max(whole - inner, 0.0)), np.maximum(rows, 0.0)


def _entries(f: Factorization, rows: Indices, mine: Indices, cols: Indices, yours: Indices) -> Array:
    """Entries of U M Uᵀ in tiles, (tiles, TILE, TILE)."""
    if not is_dense(f.core):
        return _kept_entries(f, f.core, rows, mine, cols, yours)
    out = np.empty((*rows.shape, cols.shape[1]))
    width = max(f.ranks)
    firsts = np.array([columns.start for _, columns in f.spans])
    for start in range(0, len(rows), TILES_AT_ONCE):
        some = slice(start, start + TILES_AT_ONCE)
        shape = rows[some].shape
        left = np.zeros((rows[some].size, width))  # u_x, padded with zeros
        for i, here in grouped(mine[some].ravel()):
            left[here, : f.ranks[i]] = _basis(f, i, rows[some].ravel()[here])
        right = np.zeros((cols[some].size, f.rank + width))  # M u_y
        for j, here in grouped(yours[some].ravel()):
            right[here, : f.rank] = _basis(f, j, cols[some].ravel()[here]) @ f.core[f.spans[j][1]]
        u, v = left.reshape(*shape, -1), right.reshape(*cols[some].shape, -1)
        if f.n_blocks == 1:
            out[some] = u @ v[..., :width].swapaxes(1, 2)
            continue
        part = firsts[mine[some]][:, :, None] + np.arange(width)  # (tiles, TILE, width): x's block of M u_y
        tile, y = np.arange(shape[0])[:, None, None, None], np.arange(v.shape[1])[:, None]
        out[some] = np.einsum("txk,txyk->txy", u, v[tile, y, part[:, :, None, :]])
    return out


def _kept_entries(
    f: Factorization, core: BlockSparse, rows: Indices, mine: Indices, cols: Indices, yours: Indices
) -> Array:
    """The same for a block-sparse core, with one product for all entries that share a block."""
    shape = (*rows.shape, cols.shape[1])
    x = np.broadcast_to(rows[:, :, None], shape).ravel()
    y = np.broadcast_to(cols[:, None, :], shape).ravel()
    keys = (mine[:, :, None].astype(np.int64) * f.n_blocks + yours[:, None, :]).ravel()
    out = np.zeros(len(keys))
    kept = [g.left.astype(np.int64) * f.n_blocks + g.right for g in core.groups]
    kept += [g.right.astype(np.int64) * f.n_blocks + g.left for g in core.groups]
    met = np.flatnonzero(np.isin(keys, np.concatenate([np.empty(0, dtype=np.int64), *kept])))
    sequence = met[np.argsort(keys[met], kind="stable")]
    for whole in np.split(sequence, np.flatnonzero(np.diff(keys[sequence])) + 1):
        for start in range(0, len(whole), ENTRIES_AT_ONCE):
            group = whole[start : start + ENTRIES_AT_ONCE]
            i, j = divmod(int(keys[group[0]]), f.n_blocks)
            once, back = np.unique(y[group], return_inverse=True)  # a tile's rows share its columns
            turned = _basis(f, j, once) @ core.block(i, j).T
            out[group] = np.einsum("ij,ij->i", _basis(f, i, x[group]), turned[back])
    return out.reshape(shape)


def _basis(f: Factorization, i: int, places: Indices) -> Array:
    """Rows of U_i in float64."""
    return f.bases.local(i, places - f.spans[i][0].start)
