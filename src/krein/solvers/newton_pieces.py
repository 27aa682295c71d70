"""The rows of `newton` in pieces: two visits for a Newton step, and two more for a proximal step.

Vectors of n numbers stay with the pieces. The visits are

1. `_begin` and `_move`: c and its response b; the projection of b, and the Gram matrices of the free rows,
2. `_along`: the direction in which c falls, and what b sums up to along it for steps of 0 and 1,
3. `_further`: the same for another step, without the rows of B, where the line search asks for it,
4. `_judge`: K b, and what the point is judged by.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from krein.arrays import Array
from krein.factorization.pieces import VECTOR_BYTES, Piece, PieceBases
from krein.pieces.checkpoints import mapped
from krein.solvers.newton import Hessian, Judged, NewtonState, Response, free_rows, response
from krein.solvers.piece_rows import Kept, Stored, Tile, from_parts, joined, opened, sums_of, tiles, to_parts
from krein.solvers.problem import Point, Problem, excess

__all__ = ["RowsInPieces"]


# Vectors alone are read this many rows at a time.
VECTOR_TILE = 2**18


class Vectors(NamedTuple):
    """What stays with a piece: vectors of its rows, cluster by cluster."""

    linear: Stored  # (n,), as all of them
    low: Stored
    high: Stored
    centre: Stored = None  # of the proximal step
    best: Stored = None  # the coefficients of the best point
    c: Stored = None
    direction: Stored = None


class Box(NamedTuple):
    """The vectors of some rows."""

    linear: Array
    low: Array
    high: Array
    epsilon: float


class Constants(NamedTuple):
    """What every visit needs to know."""

    epsilon: float
    shift: float
    folder: Any  # where vectors are written to, or None


class Best(NamedTuple):
    """The best point without its coefficients, which stay with the pieces."""

    gap: float = np.inf
    excess: float = np.inf
    objective: float = np.inf
    multiplier: float = 0.0
    projected: tuple[float, ...] = ()  # (r,) Uᵀb


class RowsInPieces:
    """The vectors of rows in pieces. ``name`` is that of their checkpoints, if any."""

    def __init__(self, problem: Problem, start: tuple[Array, float] | None = None, name: str = "") -> None:
        bases: Any = problem.f.bases
        assert isinstance(bases, PieceBases)
        self.problem, self.bases, self.is_warm, self.name = problem, bases, start is not None, name
        self.engine, self.pieces = bases.pieces.engine, bases.pieces.held
        folder = getattr(self.engine, "checkpoints", None)
        self.files = folder if name else None
        n = len(problem.linear)
        if folder is not None and not folder.holds(VECTOR_BYTES * n):
            folder = None
        self.task = Constants(problem.epsilon, problem.f.shift, folder)
        b, multiplier = (np.zeros(n), 0.0) if start is None else start
        given = list(zip(*map(bases.pieces.cut, (problem.linear, problem.low, problem.high, b)), strict=True))
        self.vectors, (projected,), _ = self._visit(_start, own=given)
        self.centre, self.delta, self.best = from_parts(bases, projected)[0], 0.0, Best()
        self.state = NewtonState(self.centre.tolist(), multiplier)
        self._best_is_centre, self._centre_slot, self._best_slot, self._turn = True, 0, 0, 0
        kept = None if self.files is None else self.files.last_state(name)
        if kept is not None:
            stored, state = kept
            self.state, self.best = NewtonState(*state["state"]), Best(*state["best"])
            self.vectors, _, _ = self._visit(_restore, self.files, stored)
            self._best_is_centre = False

    def begun(self) -> Judged:
        if self.best.projected:  # restored
            return self._judged(self.best)
        return self._found_at(self.centre, self.state.multiplier, True)

    def judge(self, multiplier: float) -> Judged:
        return self._found_at(self._here.projected, multiplier, False)

    def _found_at(self, projected: Array, multiplier: float, first: bool) -> Judged:
        p = self.problem
        slot = min({0, 1, 2} - {self._centre_slot, self._best_slot})  # the files of the best point stay
        image = to_parts(self.bases, p.f.core @ projected)
        self.vectors, (objective, own, sum_b), _ = self._visit(
            _judge, image, None if first else self.delta, multiplier, self._best_is_centre, slot
        )
        self._best_is_centre, self._centre_slot = False, slot
        above = own + multiplier * (p.total - sum_b)
        found = Best(p.relative_gap(above, objective, sum_b), above, objective, multiplier, tuple(projected.tolist()))
        if first or found.gap < self.best.gap:
            self.best, self._best_is_centre, self._best_slot = found, True, slot
        return self._judged(found)

    def _judged(self, best: Best) -> Judged:
        @cache
        def found() -> Point:
            image = to_parts(self.bases, self.problem.f.core @ np.array(best.projected))
            parts = self.engine.collect(_point, self.pieces, self.task, image, self._best_is_centre, own=self.vectors)
            b, product = (np.concatenate(column) for column in zip(*parts, strict=True))
            return Point(b, product, best.multiplier, best.objective, best.excess, best.gap)

        return Judged(best.gap, best.objective, found)

    def keep(self, state: NewtonState) -> None:
        if self.files is None or state.n_iter <= self.state.n_iter:
            return
        self.state = state

        def write(name: str) -> None:
            self.engine.collect(_keep, self.pieces, self.files, name, self._best_is_centre, own=self.vectors)

        self.files.keep_state(self.name, state.n_iter, write, {"state": state, "best": self.best})

    def begin(self, w: Array, multiplier: float, delta: float) -> Response:
        self.delta, self._turn = delta, 0
        image = to_parts(self.bases, self.problem.f.core @ w)
        return self._responded(_begin, image, multiplier)

    def move(self, length: float) -> Response:
        self._turn = 1 - self._turn
        return self._responded(_move, length, self._turn)

    def _responded(self, step: Callable[..., Any], *small: Any) -> Response:
        self.vectors, (grams, sums, numbers), (size,) = self._visit(step, self.delta, *small)
        b, ones = from_parts(self.bases, sums)
        total, blur, count = numbers.tolist()
        sigma = self.task.shift + self.delta
        grams = [A.T @ G @ A / sigma for A, G in zip(self.bases.maps, grams, strict=True)]
        self._hessian = Hessian(grams, ones / sigma, count / sigma)
        self._here = Response(b, total, blur, float(size))
        return self._here

    def hessian(self) -> Hessian:
        return self._hessian

    def by_rows(self, rest: Array, short: float, most: float) -> tuple[Array, float] | None:
        return None

    def along(self, image: Array, dy: float) -> tuple[Callable[[float], float], float]:
        self.vectors, (sums,), (largest,) = self._visit(_along, self.delta, to_parts(self.bases, image), dy)
        known = {0.0: float(sums[0]), 1.0: float(sums[1])}

        def responded(t: float) -> float:
            if t not in known:
                _, (known[t],), _ = self._visit(_further, self.delta, t)
            return known[t]

        return responded, float(largest)

    def _visit(self, step: Callable[..., Any], *small: Any, own: Any = None) -> Any:
        own = self.vectors if own is None else own
        stays, (sums, peaks) = self.engine.visit(step, self.pieces, self.task, *small, own=own, plus=joined)
        return stays, sums, peaks


# -- visits: each reads the rows of a piece once, tile by tile, or its vectors alone -----------------------------------


def _start(piece: Piece, given: tuple[Array, ...], task: Constants) -> Any:
    """Put the vectors of the problem in the order of the piece; send the projection of the first coefficients."""
    linear, low, high, b = (np.asarray(a, dtype=np.float64)[piece.order] for a in given)
    centre, sums = np.clip(b, low, high), sums_of(piece)
    for tile in tiles(piece):
        tile.project(sums, centre[tile.places])
    new = Kept(piece, task.folder, "newton")
    kept = new.into(Vectors(linear, low, high), 0, linear=linear, low=low, high=high, centre=centre)
    return kept, ((sums,), np.zeros(1))


def _box(held: Vectors, task: Constants, places: slice) -> Box:
    return Box(held.linear[places], held.low[places], held.high[places], task.epsilon)


def _begin(piece: Piece, kept: Vectors, task: Constants, delta: float, image: list[Array], multiplier: float) -> Any:
    """The first c of a proximal step, and its response."""
    held, new, sent = opened(kept), Kept(piece, task.folder, "newton", c=()), _Sums(piece)
    for tile in tiles(piece):
        here = tile.places
        new.c[here] = held.linear[here] + delta * held.centre[here] - tile.lift(image) - multiplier
        sent.take(tile, _box(held, task, here), new.c[here], held.centre[here], delta, task.shift)
    return new.into(kept, 0), sent.all()


def _move(piece: Piece, kept: Vectors, task: Constants, delta: float, length: float, slot: int) -> Any:
    """The next c, and its response."""
    held, new, sent = opened(kept), Kept(piece, task.folder, "newton", c=()), _Sums(piece)
    for tile in tiles(piece):
        here = tile.places
        new.c[here] = held.c[here] - length * held.direction[here]
        sent.take(tile, _box(held, task, here), new.c[here], held.centre[here], delta, task.shift)
    return new.into(kept, slot), sent.all()


class _Sums:
    """What is sent of the response to c."""

    def __init__(self, piece: Piece) -> None:
        self.grams: list[Array] = [np.zeros((k, k)) for k in piece.columns]
        self.projected, self.numbers, self.size = sums_of(piece, 2), np.zeros(3), 0.0

    def take(self, tile: Tile, box: Box, c: Array, centre: Array, delta: float, shift: float) -> None:
        b = response(box, c, shift + delta)
        free = free_rows(box, b)
        tile.project(self.projected, b, free.astype(np.float64))
        for (i, _, B), here in zip(tile.blocks, tile.within, strict=True):
            some = B[free[here]]
            self.grams[i] += some.T @ some
        self.numbers += [b.sum(), 0.5 * delta * np.square(b - centre).sum(), np.count_nonzero(free)]
        self.size = max(self.size, float(np.abs(c).max()))

    def all(self) -> Any:
        return (self.grams, self.projected, self.numbers), np.array([self.size])


def _along(piece: Piece, kept: Vectors, task: Constants, delta: float, image: list[Array], dy: float) -> Any:
    """The direction in which c falls; send its products with the responses to steps of 0 and 1, and its size."""
    held, new = opened(kept), Kept(piece, task.folder, "newton", direction=())
    sums, largest, sigma = np.zeros(2), 0.0, task.shift + delta
    for tile in tiles(piece):
        here, box = tile.places, _box(held, task, tile.places)
        new.direction[here] = direction = tile.lift(image) + dy
        c = held.c[here]
        sums += [direction @ response(box, c, sigma), direction @ response(box, c - direction, sigma)]
        largest = float(np.maximum(largest, np.abs(direction).max()))  # NaN stays
    return new.into(kept, 0), ((sums,), np.array([largest]))


def _further(piece: Piece, kept: Vectors, task: Constants, delta: float, t: float) -> Any:
    """Send the product of the direction with the response to a step of another length."""
    held, total = opened(kept), 0.0
    for a in range(0, len(piece.order), VECTOR_TILE):
        here = slice(a, a + VECTOR_TILE)
        direction = held.direction[here]
        c = held.c[here] - t * direction
        total += float(direction @ response(_box(held, task, here), c, task.shift + delta))
    return kept, ((total,), np.zeros(1))


def _judge(
    piece: Piece, kept: Vectors, task: Constants, image: list[Array], delta: float | None, multiplier: float,
    adopts: bool, slot: int,
) -> Any:  # fmt: skip
    """Make the response the centre; send its objective, what it is above the dual's bound, and its sum.

    ``adopts`` says that the centre so far is the best point. Without ``delta`` it is judged itself.
    """
    held = opened(kept)
    new, sums = Kept(piece, task.folder, "newton", centre=()), np.zeros(3)
    for tile in tiles(piece):
        here, box = tile.places, _box(held, task, tile.places)
        b = held.centre[here] if delta is None else response(box, held.c[here], task.shift + delta)
        new.centre[here] = b
        product = tile.lift(image) + task.shift * b
        objective = 0.5 * b @ product - box.linear @ b + task.epsilon * np.abs(b).sum()
        own = excess(product - box.linear + multiplier, b, box.low, box.high, task.epsilon).sum()
        sums += [objective, own, b.sum()]
    before = kept._replace(best=kept.centre) if adopts else kept
    return new.into(before, slot), (tuple(sums.tolist()), np.zeros(1))


def _point(
    piece: Piece, kept: Vectors, task: Constants, image: list[Array], best_is_centre: bool
) -> tuple[Array, Array]:
    """The best b and K b, in the order of the caller."""
    held = opened(kept)
    b = np.asarray(held.centre if best_is_centre else held.best)
    product = np.empty(len(b))
    for tile in tiles(piece):
        product[tile.places] = tile.lift(image) + task.shift * b[tile.places]
    back = np.argsort(piece.order)
    return b[back], product[back]


def _keep(piece: Piece, kept: Vectors, files: Any, name: str, best_is_centre: bool) -> None:
    """Write the point for another try of the fit: 16 bytes a row."""
    held = opened(kept)
    best = held.centre if best_is_centre else held.best
    files.write(f"{name}-{piece.rows.start}", np.stack([held.centre, best]), lasting=True)


def _restore(piece: Piece, kept: Vectors, task: Constants, files: Any, name: str) -> Any:
    """The point that was written."""
    centre, best = mapped(files.path(f"{name}-{piece.rows.start}.npy"))
    new = Kept(piece, task.folder, "newton")
    return new.into(kept, 0, centre=np.array(centre), best=np.array(best)), ((), np.zeros(1))
