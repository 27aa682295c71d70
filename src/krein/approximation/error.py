"""A factorization and a kernel in, the relative error |K - F| / |K| with an interval out, from a sample of K.

The diagonal is evaluated as a whole. Entries within blocks and entries between blocks are two strata. A pilot sample
shows how to draw the rest, and how to divide it between the strata. Entries come in small tiles, as kernels evaluate
blocks. Tiles are independent, so that their variance gives the interval.

A few rows may hold most of the error. So rows are drawn by a mixture of proposal distributions: uniform, and by what is
known of every row in O(n), which is its self-similarity, its norm in F and its error on the diagonal (|E_xy|² <= E_xx
E_yy for a psd E). Among many blocks a few pairs of near ones may hold most of the error, so that these are a proposal
too. Every entry is weighted by the inverse of its probability under the whole mixture. So the estimates of |K - F|²,
|K|² and |F|² are unbiased for any mixture, and for other factorizations with the same blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import stdtrit

from krein.approximation.shrinkage import TILE_SIZE, sampled_diagonal, sampled_tiles
from krein.arrays import Array, Indices, grouped, seed_from, stream
from krein.errors import InputError
from krein.factorization import Factorization
from krein.factorization.core import BlockSparse, is_dense, row_grams
from krein.kernels import Evaluator, FromCallable, Kernel, count_objects, is_vectors, take
from krein.pieces.rows import RowPieces

__all__ = ["Entries", "ErrorEstimate", "Known", "Sample", "Stratum", "Table", "draw", "estimate_error", "normed"]

# Up to this many rows the error is computed from every entry of the matrix.
WHOLE_ROWS = 2000
# This share of the tiles is the pilot sample.
PILOT_SHARE = 0.2
# The weight of the pilot sample in the estimate. It is fixed, as a weight that depends on the sample is biased.
PILOT_WEIGHT = 0.1
# Each stratum has at least this many tiles in the pilot sample, and in the rest.
FEWEST_TILES = 16
# The quantiles of a studentised mean of skewness g lie (2 q² + 1) / 6 times g lower, q = 1.96 being the normal one.
SKEW_FACTOR = (2.0 * 1.96**2 + 1.0) / 6.0


@dataclass(frozen=True)
class ErrorEstimate:
    """Relative Frobenius error |K - F| / |K|, between ``low`` and ``high`` with 95 % confidence."""

    relative: float
    low: float
    high: float
    n_evaluations: int
    diagonal: float  # share of the squared error on the diagonal
    within: float  # share within blocks, without the diagonal
    between: float  # share between blocks

    def __str__(self) -> str:
        return f"{self.relative:.3g} [{self.low:.3g}, {self.high:.3g}]"


def estimate_error(f: Factorization, kernel: Kernel, objects: Any, n_samples: int, random_state: Any) -> ErrorEstimate:
    """Return |K - f| / |K| with its interval; exact (low = high) up to 2000 objects.

    Entries of rows outside memory are drawn uniformly within blocks and between them, which takes a wider interval.
    """
    if isinstance(objects, RowPieces):
        return _uniform(f, Evaluator(kernel), objects, n_samples, stream(seed_from(random_state), 0))
    return Entries(f, Evaluator(kernel), objects, n_samples, random_state).error(f)


def _uniform(
    f: Factorization, evaluator: Evaluator, objects: Any, n_samples: int, rng: np.random.Generator
) -> ErrorEstimate:
    """The estimate from uniform tiles within blocks and between them, and from the diagonal."""
    count = max(FEWEST_TILES, n_samples // TILE_SIZE**2 // 2)
    parts = [sampled_tiles(f, evaluator, objects, inside, count, rng) for inside in (True, False)]
    diagonal = [sampled_diagonal(f, evaluator, objects, rng)]
    peak = (
        max((float(np.abs(K).max(initial=0.0)) for part in (diagonal, *parts) for _, K, _ in part), default=0.0) or 1.0
    )
    gaps, norms, variances = [], [], []
    for part in (diagonal, *parts):  # each tile stands for its share of the entries
        squares = np.array(
            [[share * ((K / peak - F / peak) ** 2).mean(), share * ((K / peak) ** 2).mean()] for share, K, F in part]
        ).reshape(-1, 2)
        gaps.append(float(squares[:, 0].sum()))
        norms.append(float(squares[:, 1].sum()))
        variances.append(len(squares) * float(squares[:, 0].var()) if len(squares) > 1 else 0.0)
    gap, norm = sum(gaps), sum(norms) or 1.0
    half = 1.96 * math.sqrt(sum(variances))
    low, value, high = (math.sqrt(max(0.0, g) / norm) for g in (gap - half, gap, gap + half))
    shares = [g / (gap or 1.0) for g in gaps]
    return ErrorEstimate(value, low, high, evaluator.n_evaluations, *shares)


class Entries:
    """Sampled entries of K with their probabilities, to estimate the error of factorizations with the same blocks.

    The entries are drawn for one factorization. Others with the same rows in the same blocks, of other ranks or storage
    types, are measured on the same entries: without bias, and without evaluating the kernel again.
    """

    def __init__(self, f: Factorization, evaluator: Evaluator, objects: Any, n_samples: int, random_state: Any) -> None:
        n = count_objects(objects)
        if f.shape[0] != n:
            raise InputError(
                f"The factorization has {f.shape[0]} rows, but there are {n} objects; pass those it is of."
            )
        self.order, self.spans = f.order, [rows for rows, _ in f.spans]
        self.evaluator, before = evaluator, evaluator.n_evaluations
        self.K = evaluator.block(objects, objects).astype(np.float64) if n <= WHOLE_ROWS else None
        self.table = Table(f, evaluator, objects) if self.K is None else None
        self.n_evaluations = evaluator.n_evaluations - before
        self.redraw(f, n_samples, random_state)

    def redraw(self, f: Factorization, n_samples: int, random_state: Any) -> None:
        """Replace the entries by about ``n_samples`` other ones."""
        if isinstance(n_samples, bool) or not isinstance(n_samples, int | np.integer) or n_samples < 1:
            raise InputError(f"n_samples must be a positive integer; got {n_samples!r}.")
        if self.table is not None:
            before, n_tiles = self.evaluator.n_evaluations, -(-int(n_samples) // TILE**2)
            self.samples = _samples(self.table, f, n_tiles, stream(seed_from(random_state), 0))
            self.n_evaluations += self.evaluator.n_evaluations - before

    def error(self, f: Factorization) -> ErrorEstimate:
        """Estimate the error of a factorization with the same blocks and order."""
        if [rows for rows, _ in f.spans] != self.spans or not np.array_equal(f.order, self.order):
            raise InputError(
                f"These entries were drawn for other blocks ({len(self.spans)} of {len(self.order)} rows) than the "
                f"factorization's ({f.n_blocks} of {f.shape[0]} rows). Estimate it on its own."
            )
        if self.table is not None:
            return _estimate(self.table, f, self.samples, self.n_evaluations)
        assert self.K is not None
        return _exact(f, self.K, self.n_evaluations)


def _samples(
    table: Table, f: Factorization, n_tiles: int, rng: np.random.Generator
) -> list[tuple[str, list[tuple[float, Sample]]]]:
    """For each stratum: its name, and the weights and tiles of the pilot sample and of the rest."""
    strata = [s for s in (Stratum(table, within=True), Stratum(table, within=False)) if s.proposals]
    first = [draw(table, s, max(FEWEST_TILES, round(PILOT_SHARE * n_tiles / len(strata))), s.even, rng) for s in strata]
    added = [sample.squares(f, table.scale)[0] for sample in first]
    mixtures = [s.best_mixture(sample, gaps) for s, sample, gaps in zip(strata, first, added, strict=True)]
    spreads = np.array([gaps.sum((1, 2)).std() for gaps in added])
    shares = EVEN_SHARE / len(strata) + (1.0 - EVEN_SHARE) * normed(spreads)  # Neyman allocation with a floor
    left = max(0, n_tiles - sum(len(sample.rows) for sample in first))
    later = [
        draw(table, s, max(FEWEST_TILES, round(float(share) * left)), mixture, rng)
        for s, share, mixture in zip(strata, shares, mixtures, strict=True)
    ]
    return [
        (s.name, [(PILOT_WEIGHT, a), (1.0 - PILOT_WEIGHT, b)]) for s, a, b in zip(strata, first, later, strict=True)
    ]


def _estimate(
    table: Table, f: Factorization, parts: list[tuple[str, list[tuple[float, Sample]]]], n_evaluations: int
) -> ErrorEstimate:
    """The root of |K - F|² / |K|², both estimated, with an interval from the variance of the tiles."""
    known = table.known(f)
    lost, total = {"diagonal": known.lost, "within": 0.0, "between": 0.0}, table.total
    groups = []  # (weight, |K - F|² and K² of each tile)
    for name, samples in parts:
        tiles = [(weight, sample.squares(f, table.scale).sum((2, 3))) for weight, sample in samples]  # (3, tiles)
        slope = _slope(np.concatenate([values for _, values in tiles], axis=1))
        for weight, (gap, square, held) in tiles:
            lost[name] += weight * float(gap.mean())
            square = square - slope * (held - known.norms[name])
            total += weight * float(square.mean())
            groups.append((weight, gap, square))
    squared = sum(lost.values())
    total = max(total, table.total, np.finfo(float).tiny)
    ratio = squared / total
    low, high = _interval(ratio, [(w, (a - ratio * b) / total) for w, a, b in groups])
    shares = {name: part / squared if squared else 0.0 for name, part in lost.items()}
    return ErrorEstimate(math.sqrt(ratio), math.sqrt(low), math.sqrt(high), n_evaluations, **shares)


def _slope(values: Array) -> float:
    """The coefficient of F's sampling error as a control variate for |K|²: |F| is known, and F resembles K."""
    _, square, held = values
    spread = float(held.var())
    together = float(((square - square.mean()) * (held - held.mean())).mean())
    return min(max(together / spread, 0.0), 1.0) if spread > 0.0 else 1.0


def _interval(ratio: float, groups: list[tuple[float, Array]]) -> tuple[float, float]:
    """A 95 % interval of the squared ratio, on the logarithmic scale.

    A few large tiles make the variance itself uncertain. The quantile is therefore Student's, with degrees of freedom
    from the fourth moments (Satterthwaite). A sample without its large tiles has a mean and a variance that are both
    too small, so the interval is moved up by the third moments (Cornish and Fisher, for a studentised mean).
    """
    if ratio <= 0.0:
        return 0.0, 0.0
    variance = doubt = third = 0.0
    for weight, values in groups:
        centred = values - values.mean()
        second, fourth, m = float((centred**2).mean()), float((centred**4).mean()), len(values)
        variance += weight**2 * second / (m - 1)
        third += weight**3 * float((centred**3).mean()) / m**2
        doubt += weight**4 * max(fourth - second**2 * (m - 3) / (m - 1), 0.0) / m**3
    freedom = max(2.0 * variance**2 / doubt, 2.0) if doubt > 0.0 else 1e6
    error = math.sqrt(variance) / ratio
    spread = min(float(stdtrit(freedom, 0.975)) * error, 50.0)
    skewness = third / variance**1.5 if variance > 0.0 else 0.0
    moved = min(max(SKEW_FACTOR * skewness * error, -spread), spread)  # the estimate stays inside
    return ratio * math.exp(moved - spread), ratio * math.exp(moved + spread)


def _exact(f: Factorization, K: Array, n_evaluations: int) -> ErrorEstimate:
    """The error from all entries of K."""
    scale = float(np.abs(K).max()) or 1.0
    labels = np.empty(len(K), dtype=np.intp)
    for i, (rows, _) in enumerate(f.spans):
        labels[f.order[rows]] = i
    norm = float(((K / scale) ** 2).sum())
    gap = ((K - f.to_dense()) / scale) ** 2
    everything, diagonal = float(gap.sum()), float(np.trace(gap))
    inside = float(gap[np.equal.outer(labels, labels)].sum())
    relative = math.sqrt(everything / norm) if norm else 0.0
    parts = (diagonal, inside - diagonal, everything - inside)
    shares = [part / everything if everything else 0.0 for part in parts]
    return ErrorEstimate(relative, relative, relative, n_evaluations, *shares)


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
