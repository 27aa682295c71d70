"""A factorization and its objects in, sampled entries of both matrices out: in tiles, and on the diagonal.

Tiles are drawn by places within blocks, so that they are the same wherever rows lie, and are fetched all at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from krein.arrays import Array, Indices, grouped
from krein.factorization import Factorization
from krein.factorization.core import core_block
from krein.kernels import Evaluator, take
from krein.kernels.collections import precise

__all__ = ["TILE_SIZE", "sampled_diagonal", "sampled_tiles"]

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
