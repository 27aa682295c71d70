"""Cholesky factors of a symmetric matrix made of few blocks, in an order that keeps them few.

In: block sizes, the blocks (i, j) with i <= j, a shift t. Out: L with L Lᵀ = M + t I, up to a permutation, or None
where that is not positive definite: solves, a log-determinant, and the proof that a core is psd. What it will cost is
known beforehand, from the pattern alone (`elimination`), so that a caller can decline.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from krein.arrays import Array, Indices

__all__ = ["BlockCholesky", "Elimination", "elimination", "factorize"]

# A factor may take at most BYTES_LIMIT bytes; iterative solvers are used beyond.
BYTES_LIMIT = 2 * 2**30
# A factorization may take at most FLOPS_LIMIT operations, one or two minutes of one processor core.
FLOPS_LIMIT = 1e12
# Two panels are merged if at most this share of the result is zeros, so that products are fewer and longer.
PADDING = 0.1
# Updates are computed STRIP columns at a time, to save memory and most of what lies above the diagonal.
STRIP = 512


@dataclass(frozen=True, eq=False)
class Panel:
    """Columns of L that share their rows: the blocks eliminated together, then the blocks below that they touch."""

    columns: Indices  # block numbers, in order of elimination
    below: Indices  # block numbers, in order of elimination


@dataclass(frozen=True, eq=False)
class Elimination:
    """An order of elimination, and what it costs."""

    ranks: Indices  # (c,) rows of each block
    panels: tuple[Panel, ...]
    n_kept: int  # numbers L holds, zeros that pad a panel included
    flops: float

    @property
    def nbytes(self) -> int:
        return 8 * self.n_kept

    @property
    def fits(self) -> bool:
        """Whether it stays within BYTES_LIMIT and FLOPS_LIMIT."""
        return self.nbytes <= BYTES_LIMIT and self.flops <= FLOPS_LIMIT

    @cached_property
    def order(self) -> Indices:
        """The blocks in order of elimination; those of no rows are not among them."""
        return np.concatenate([np.empty(0, dtype=np.intp), *(p.columns for p in self.panels)])


def elimination(ranks: Sequence[int], left: Indices, right: Indices) -> Elimination:
    """Order the blocks by minimum degree, rows counted, and find the panels of L; pairs may repeat or lie on i = j.

    A quotient graph: an eliminated block stands for the clique of its neighbours, which is never written out, and
    degrees are bounded as Amestoy, Davis and Duff do. Work about the number of blocks L will have, in Python.
    """
    weights = np.asarray(ranks, dtype=np.intp)
    columns, below, parents = _minimum_degree(weights.tolist(), left.tolist(), right.tolist())
    _merge(weights.tolist(), columns, below, parents)
    order = np.array([v for p in columns for v in columns[p]], dtype=np.intp)
    place = np.zeros(len(weights), dtype=np.intp)
    place[order] = np.arange(len(order))
    panels, n_kept, flops = [], 0, 0.0
    for p, inside in columns.items():
        rows = np.fromiter(below[p], dtype=np.intp, count=len(below[p]))
        panels.append(Panel(np.array(inside, dtype=np.intp), rows[np.argsort(place[rows])]))
        n, m = int(weights[inside].sum()), int(weights[rows].sum())
        n_kept += n * (n + m)
        flops += n**3 / 3 + float(n) * n * m + float(n) * m * m
    return Elimination(weights, tuple(panels), n_kept, flops)


def _minimum_degree(
    ranks: list[int], left: list[int], right: list[int]
) -> tuple[dict[int, list[int]], dict[int, set[int]], dict[int, int]]:
    """Panels by their first block: the blocks in each, those below it, and the panel that takes it up."""
    near: list[set[int]] = [set() for _ in ranks]  # neighbours by a block of M that no clique covers
    for i, j in zip(left, right, strict=True):
        if i != j and ranks[i] and ranks[j]:
            near[i].add(j)
            near[j].add(i)
    cliques: list[set[int]] = [set() for _ in ranks]  # the panels a block lies below
    degree = np.array([float(sum(ranks[j] for j in near[i])) if k else np.inf for i, k in enumerate(ranks)])
    columns: dict[int, list[int]] = {}
    below: dict[int, set[int]] = {}
    parents: dict[int, int] = {}
    mass: dict[int, int] = {}  # rows below a panel
    for _ in ranks:
        p = int(degree.argmin())
        if degree[p] == np.inf:
            break
        front = near[p].union(*(below[e] for e in cliques[p])) - {p}
        outside: dict[int, int] = {}  # rows of an older clique that are not in this one
        for v in front:
            for e in cliques[v]:
                outside[e] = outside.get(e, mass[e]) - ranks[v]
        covered = {e for e, rows in outside.items() if rows == 0} | cliques[p]
        parents |= dict.fromkeys(covered, p)
        size = sum(ranks[v] for v in front)
        inside, edge = [p], front | {p}
        for v in front:
            near[v] = near[v] - edge
            cliques[v] = (cliques[v] - covered) | {p}
            if not near[v] and len(cliques[v]) == 1:  # it sees what p saw: no fill if it goes next
                inside.append(v)
        columns[p], below[p] = inside, front.difference(inside)
        mass[p] = size - sum(ranks[v] for v in inside[1:])
        degree[inside] = np.inf
        for v in below[p]:
            bound = sum(outside[e] for e in cliques[v] if e != p) + sum(ranks[u] for u in near[v])
            degree[v] = mass[p] - ranks[v] + min(bound, degree[v])  # no more than before and what is new
    return columns, below, parents


def _merge(
    ranks: list[int], columns: dict[int, list[int]], below: dict[int, set[int]], parents: dict[int, int]
) -> None:
    """Put a panel in front of the one that takes it up where few zeros come of it, in place.

    All a panel touches lies in its parent or below that, so the union has the parent's rows.
    """
    width = {p: sum(ranks[v] for v in columns[p]) for p in columns}
    height = {p: sum(ranks[v] for v in below[p]) for p in columns}
    zeros = dict.fromkeys(columns, 0)
    for p in list(columns):
        if p not in parents:
            continue
        q = parents[p]  # still a panel: parents come later
        empty = zeros[p] + zeros[q] + width[p] * (width[q] + height[q] - height[p])
        total = width[p] + width[q]
        if empty <= PADDING * total * (total + height[q]):
            columns[q] = columns.pop(p) + columns[q]
            width[q], zeros[q] = total, empty


@dataclass(frozen=True, eq=False)
class BlockCholesky:
    """L Lᵀ = P (M + t I) Pᵀ; a panel holds L's lower triangle of its columns, then the rows below."""

    pattern: Elimination
    values: tuple[Array, ...]  # one (n + m, n) array per panel; above the diagonal there is nothing of use

    @property
    def nbytes(self) -> int:
        return self.pattern.nbytes

    def logdet(self) -> float:
        """log det(M + t I)."""
        return 2.0 * float(sum(np.log(np.diagonal(v)).sum() for v in self.values))

    def solve(self, b: Array) -> Array:
        """(M + t I)⁻¹ b for b of shape (r,) or (r, p); two passes over L."""
        if b.size == 0:
            return np.zeros(b.shape)
        x = np.array(b, dtype=np.float64).reshape(len(b), -1)
        starts = np.cumsum(self.pattern.ranks) - self.pattern.ranks
        spots = [
            (
                _spread(starts[p.columns], self.pattern.ranks[p.columns]),
                _spread(starts[p.below], self.pattern.ranks[p.below]),
            )
            for p in self.pattern.panels
        ]
        for (own, rest), v in zip(spots, self.values, strict=True):
            y = _triangle(v[: len(own)], x[own])
            x[own] = y
            x[rest] -= v[len(own) :] @ y
        for (own, rest), v in zip(reversed(spots), reversed(self.values), strict=True):
            x[own] = _triangle(v[: len(own)], x[own] - v[len(own) :].T @ x[rest], transposed=True)
        return x.reshape(b.shape)

    def refined(self, product: Callable[[Array], Array], b: Array) -> Array:
        """(M + t I)⁻¹ b for b of shape (r, p), improved by its residual while that falls, at most twice.

        ``product`` is x -> (M + t I) x. A column that rounding spoilt keeps the best it had, zero at worst.
        """
        x, rest = np.zeros(b.shape), b
        for _ in range(3):
            trial = x + self.solve(rest)
            after = b - product(trial)
            better = np.linalg.norm(after, axis=0) < np.linalg.norm(rest, axis=0)
            if not better.any():
                break
            x, rest = np.where(better, trial, x), np.where(better, after, rest)
        return x


def _triangle(L: Array, b: Array, transposed: bool = False) -> Array:
    return np.asarray(scipy.linalg.blas.dtrsm(1.0, L.T, b, lower=0, trans_a=0 if transposed else 1))


def _spread(starts: Indices, sizes: Indices) -> Indices:
    """The rows starts[i] .. starts[i] + sizes[i] - 1, one i after the other."""
    stops = np.cumsum(sizes)
    total = int(stops[-1]) if len(stops) else 0
    return np.repeat(starts - stops + sizes, sizes) + np.arange(total)


def factorize(pattern: Elimination, blocks: Iterable[tuple[int, int, Array]], shift: float) -> BlockCholesky | None:
    """Factor M + shift I, or return None if that is not positive definite (or so nearly not that rounding decides).

    Left-looking: a panel is filled from M, then every earlier panel with rows in it is taken off by one product, and
    what is left is factored by LAPACK. Memory is the factor and one strip of a product.
    """
    ranks, panels = pattern.ranks, pattern.panels
    owner, place = np.full(len(ranks), -1, dtype=np.intp), np.zeros(len(ranks), dtype=np.intp)
    for s, panel in enumerate(panels):
        owner[panel.columns] = s
    place[pattern.order] = np.arange(len(pattern.order))
    given: list[list[tuple[int, int, Array]]] = [[] for _ in panels]
    for i, j, block in blocks:
        if block.size:
            early, late, value = (i, j, block.T) if place[i] <= place[j] else (j, i, block)
            given[owner[early]].append((early, late, value))
    waiting: list[list[tuple[int, int]]] = [[] for _ in panels]  # (earlier panel, its first block of rows in this one)
    offset = np.zeros(len(ranks), dtype=np.intp)  # of each block among the present panel's rows
    stops = [np.concatenate([[0], np.cumsum(ranks[p.below])]) for p in panels]
    done: list[Array] = []
    for s, panel in enumerate(panels):
        rows = np.concatenate([panel.columns, panel.below])
        offset[rows] = np.cumsum(ranks[rows]) - ranks[rows]
        n = int(ranks[panel.columns].sum())
        front = np.zeros((int(ranks[rows].sum()), n))
        front[np.arange(n), np.arange(n)] = shift
        for early, late, value in given[s]:
            a, b = offset[late], offset[early]
            front[a : a + ranks[late], b : b + ranks[early]] += value
        for d, first in waiting[s]:
            touched = panels[d].below[first:]
            last = first + int(np.searchsorted(place[touched], place[panel.columns[-1]], side="right"))
            spots = _spread(offset[touched], ranks[touched])
            width = int(stops[d][last] - stops[d][first])
            _take_off(front, done[d][len(done[d]) - len(spots) :], spots, width)
            if last < len(panels[d].below):
                waiting[owner[panels[d].below[last]]].append((d, last))
        if not _eliminate(front, n):
            return None
        done.append(front)
        if len(panel.below):
            waiting[owner[panel.below[0]]].append((s, 0))
    return BlockCholesky(pattern, tuple(done))


def _take_off(front: Array, rows: Array, spots: Indices, width: int) -> None:
    """Subtract rows @ rows[:width].T at the rows ``spots`` and columns ``spots[:width]``, its lower part at least."""
    breaks = np.flatnonzero(np.diff(spots[:width]) != 1) + 1
    for start in range(0, width, STRIP):
        stop = min(start + STRIP, width)
        product = rows[start:] @ rows[start:stop].T
        cuts = [start, *breaks[(breaks > start) & (breaks < stop)].tolist(), stop]
        for a, b in itertools.pairwise(cuts):  # runs of columns are slices, which is quicker than indices
            front[spots[start:], spots[a] : spots[a] + b - a] -= product[:, a - start : b - start]


def _eliminate(front: Array, n: int) -> bool:
    """Factor a panel in place; False if its square part is not positive definite."""
    factor, info = scipy.linalg.lapack.dpotrf(front[:n].T, lower=0, clean=0, overwrite_a=1)
    if info != 0 or not np.isfinite(np.diagonal(factor)).all():
        return False
    front[:n] = factor.T
    if len(front) > n:
        front[n:] = scipy.linalg.blas.dtrsm(1.0, factor, front[n:].T, lower=0, trans_a=1, overwrite_b=1).T
    return True
