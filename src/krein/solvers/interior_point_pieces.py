"""The interior point of rows in pieces: the steps of `interior_point`, in four visits each.

In: a problem whose bases are `PieceBases`. Out: an iterate for `InteriorPoint`. Vectors of n numbers stay with the
pieces. Sums over rows and projections Uᵀx come back, and the small systems are solved here. The visits of a step are

1. `_predict`: the predictor, and the projections of the corrector, which is affine in the centring parameter,
2. `_correct`: the corrector x, and Uᵀx,
3. `_compare`: K x and the residual of the Newton system, after which 2 and 3 refine x where that is too large,
4. `_advance`: take the step and judge the point; the Gram matrices of D⁻¹ and the projections of the next predictor.

Sums of H⁻¹x need no visit of their own, since H⁻¹ = D⁻¹ - D⁻¹ U X Uᵀ D⁻¹ and Uᵀ D⁻¹ 1 is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from krein.arrays import Array
from krein.factorization.pieces import VECTOR_BYTES, Piece, PieceBases
from krein.pieces.checkpoints import mapped
from krein.solvers.interior_point import (
    STEP_SHARE,
    Mark,
    Progress,
    Rows,
    first_share,
    indefinite,
    longest,
    nothing_to_gain,
)
from krein.solvers.piece_rows import Kept, Stored, Tile, from_parts, joined, opened, sums_of, tiles, to_parts
from krein.solvers.problem import Ends, Point, Problem, excess
from krein.solvers.woodbury import NEWTON_RESIDUAL, REFINEMENTS, Part, factorize

__all__ = ["InPieces"]

# The state is kept for another try of the fit after at least this many steps.
KEPT_STEPS = 10


class Vectors(NamedTuple):
    """What stays with a piece: vectors of its rows, cluster by cluster."""

    linear: Stored  # (n,), as low, high and product
    low: Stored
    high: Stored
    v: Stored = None  # (m, n), as t, z and w
    t: Stored = None
    z: Stored = None
    w: Stored = None
    product: Stored = None
    crossed_z: Stored = None  # (m, n) what the corrector takes out of z v
    crossed_w: Stored = None  # (m, n) and of w t
    x: Stored = None  # (n,) the corrector's step of b
    dv: Stored = None  # (m, n) the same for the parts
    turned: Stored = None  # (n,) K x
    rest: Stored = None  # (n,) the residual


class Constants(NamedTuple):
    """What every visit needs to know."""

    epsilon: float
    shift: float
    folder: Any  # where vectors are written to, or None


class Course(NamedTuple):
    """One step along the path: its multiplier, what is added to it, its centring parameter and its length."""

    multiplier: float
    dy: float = 0.0
    centre: float = 0.0
    length: float = 0.0


class InPieces:
    """The iterate of rows in pieces, and the multiplier of their sum. ``name`` is that of its checkpoints, if any."""

    def __init__(self, problem: Problem, parts: tuple[Part, ...], name: str = "") -> None:
        bases: Any = problem.f.bases
        assert isinstance(bases, PieceBases)
        self.problem, self.parts, self.bases = problem, parts, bases
        self.engine, self.pieces = self.bases.pieces.engine, self.bases.pieces.held
        folder = getattr(self.engine, "checkpoints", None)
        files = folder if name else None
        if folder is not None and not folder.holds(VECTOR_BYTES * len(problem.linear)):
            folder = None
        self.task = Constants(problem.epsilon, problem.f.shift, folder)
        self.multiplier, self.slot, self.best = 0.0, 0, (np.inf, 0)
        self.full = all(n >= k for n, k in zip(self.bases.sizes, self.bases.ranks, strict=True))
        self.files, self.name, self.progress = files, name, Progress()
        cut = self.bases.pieces.cut
        given = list(zip(*map(cut, (problem.linear, problem.low, problem.high)), strict=True))
        self.vectors, (projected,), _ = self._visit(_begin, first_share(problem), own=given)
        mean = float(np.abs(problem.linear).mean())
        self.unit = max(mean, problem.epsilon)
        kept = None if files is None else files.last_state(name)
        if kept is None:
            self.vectors, (slopes,), _ = self._visit(_multiply, self._image(projected))
            self._advance(None, max(slopes / len(problem.linear), mean, problem.epsilon) or 1.0)
        else:
            stored, state = kept
            self.progress, self.multiplier = Progress(*state["progress"]), state["multiplier"]
            self.vectors, _, _ = self._visit(_restore, files, stored)
            self._advance(Course(self.multiplier), 0.0)

    def judge(self) -> Mark:
        numbers, vectors, size = (self.multiplier, self.objective, self.excess, self.gap), self.vectors, self.size

        @cache
        def found() -> tuple[Point, Ends]:
            parts = self.engine.collect(_point, self.pieces, self.task, size, own=vectors)
            b, product, low, high = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
            return Point(b, product, *numbers), (low, high)

        return Mark(self.gap, self.excess, found)

    def keep(self, progress: Progress) -> None:
        if self.files is None or progress.n_iter < self.progress.n_iter + KEPT_STEPS:
            return
        self.progress = progress

        def write(name: str) -> None:
            self.engine.collect(_keep, self.pieces, self.files, name, own=self.vectors)

        self.files.keep_state(self.name, progress.n_iter, write, {"progress": progress, "multiplier": self.multiplier})

    def step(self) -> bool:
        f = self.problem.f
        if f.shift < 0.0 and not self.least_damping > 0.0:
            raise indefinite(f)
        system = factorize(self.parts, f.rank, self.grams, self.full)
        if system is None:
            return nothing_to_gain(f)
        ones, first = self.projected  # UᵀD⁻¹1 and UᵀD⁻¹ of the predictor's right-hand side
        turned_ones = system.solve(ones)
        total = self.sum_ones - float(ones @ turned_ones)

        def solved(projected: Array, sum_scaled: float, short: float) -> tuple[Array, float]:
            """w and y with x = D⁻¹(right-hand side - y - U w), for a right-hand side of these sums."""
            w = system.solve(projected)
            y = (sum_scaled - float(ones @ w) - short) / total
            return w - y * turned_ones, y

        w, y = solved(first, self.sum_first, self.short)
        here, mu = Course(self.multiplier, y), self.complementarity / self.count
        vectors, (both, sums), (rate,) = self._visit(_predict, to_parts(self.bases, w), here, mu)
        reach = longest(rate)
        after = (self.complementarity + reach * sums[0] + reach**2 * sums[1]) / self.count
        centre = (max(after, 0.0) / mu) ** 3 * mu
        fixed, centred = from_parts(self.bases, both)
        w, y = solved(fixed + centre * centred, float(sums[2] + centre * sums[3]), self.short)
        here = here._replace(centre=centre, dy=0.0)
        last = np.inf
        for turn in range(REFINEMENTS + 1):
            vectors, (projected, sum_x), _ = self._visit(_correct, to_parts(self.bases, w), here, y, turn, own=vectors)
            here = here._replace(dy=here.dy + y)
            vectors, (projected, sums), (rate,) = self._visit(_compare, self._image(projected), here, own=vectors)
            left, size = float(np.sqrt(sums[0])), float(np.sqrt(sums[2])) or 1.0
            if not np.isfinite(left) or left <= NEWTON_RESIDUAL * size or left > 0.5 * last:
                break
            last = left
            w, y = solved(from_parts(self.bases, projected)[0], float(sums[1]), self.short - sum_x)
        length = min(1.0, STEP_SHARE * longest(rate))
        if not np.isfinite(sum_x) or length < 1e-10:
            return False
        self.vectors = vectors
        self._advance(here._replace(length=length), 0.0)
        return True

    def _advance(self, course: Course | None, size: float) -> None:
        """Take a step, or the first multipliers ``size``, and judge the point."""
        self.multiplier += 0.0 if course is None else course.length * course.dy
        slot = min({0, 1, 2} - {self.slot, self.best[1]})  # files of the best point and of this one stay
        p = self.problem
        self.vectors, (grams, projected, sums), (damping,) = self._visit(_advance, course, size, self.multiplier, slot)
        self.grams = [A.T @ G @ A for A, G in zip(self.bases.maps, grams, strict=True)]
        self.projected, self.least_damping = from_parts(self.bases, projected), -damping
        self.sum_ones, self.sum_first, self.complementarity, count, sum_b, self.objective, own, products = sums.tolist()
        self.count, self.short = 2.0 * count, p.total - sum_b
        self.excess = own + self.multiplier * self.short
        self.gap = p.relative_gap(self.excess, self.objective, sum_b)
        self.size = self.unit or products / len(p.linear) or 1.0
        self.slot, self.best = slot, (self.gap, slot) if self.gap < self.best[0] else self.best

    def _visit(self, step: Callable[..., Any], *small: Any, own: Any = None) -> Any:
        own = self.vectors if own is None else own
        stays, (sums, peaks) = self.engine.visit(step, self.pieces, self.task, *small, own=own, plus=joined)
        return stays, sums, peaks

    def _image(self, sums: list[Array]) -> list[Array]:
        """M Uᵀx from xᵀB, ready to be lifted."""
        return to_parts(self.bases, self.problem.f.core @ from_parts(self.bases, sums)[0])


# -- visits: each reads the rows of a piece once, tile by tile ---------------------------------------------------------


class _Tile(Tile, Rows):
    """Some rows of a piece, and what the Newton system needs of them."""

    def __init__(self, held: Vectors, tile: Tile, task: Constants) -> None:
        Tile.__init__(self, tile.blocks)
        places = self.places
        Rows.__init__(self, held.linear[places], held.low[places], held.high[places], task.epsilon)
        self.held = held
        if held.v is not None:
            self.v, self.t = held.v[:, places], held.t[:, places]
        if held.z is not None:
            self.z, self.w = held.z[:, places], held.w[:, places]
        if held.product is not None:
            self.product = held.product[places]

    def aims(self, centre: float) -> tuple[Array, Array]:
        """What the corrector wants z v and w t to be."""
        return centre - self.held.crossed_z[:, self.places], centre - self.held.crossed_w[:, self.places]


def _tiles(piece: Piece, held: Vectors, task: Constants) -> Iterator[tuple[slice, _Tile]]:
    for tile in tiles(piece):
        yield tile.places, _Tile(held, tile, task)


def _begin(piece: Piece, given: tuple[Array, Array, Array], task: Constants, share: float) -> Any:
    """Put the vectors of the problem in the order of the piece, and start; send Uᵀb."""
    held = Vectors(*(np.asarray(a, dtype=np.float64)[piece.order] for a in given))
    new = Kept(piece, task.folder, "dual", v=_parts(task), t=_parts(task))
    sums = sums_of(piece)
    for places, rows in _tiles(piece, held, task):
        rows.start(share)
        new.v[:, places], new.t[:, places] = rows.v, rows.t
        rows.project(sums, rows.coefficients())
    kept = new.into(held, 0, linear=held.linear, low=held.low, high=held.high)
    return kept, ((sums,), np.zeros(1))


def _multiply(piece: Piece, kept: Vectors, task: Constants, image: list[Array]) -> Any:
    """The first K b; send the sum of its slopes."""
    held, new, slopes = opened(kept), Kept(piece, task.folder, "dual", product=()), 0.0
    for places, rows in _tiles(piece, held, task):
        new.product[places] = rows.lift(image) + task.shift * rows.coefficients()
        slopes += float(np.abs(new.product[places] - rows.linear).sum())
    return new.into(kept, 0), ((slopes,), np.zeros(1))


def _keep(piece: Piece, kept: Vectors, files: Any, name: str) -> None:
    """Write the point for another try of the fit: 40 bytes a row, or 72 with two parts."""
    held = opened(kept)
    state = np.concatenate([held.v, held.t, held.z, held.w, held.product[None]])
    files.write(f"{name}-{piece.rows.start}", state, lasting=True)


def _restore(piece: Piece, kept: Vectors, task: Constants, files: Any, name: str) -> Any:
    """The point that was written."""
    state = mapped(files.path(f"{name}-{piece.rows.start}.npy"))
    m = len(state) // 4
    parts = {part: state[i * m : (i + 1) * m] for i, part in enumerate("vtzw")}
    return kept._replace(product=state[-1], **parts), ((), np.zeros(1))


def _advance(
    piece: Piece, kept: Vectors, task: Constants, course: Course | None, size: float, multiplier: float, slot: int
) -> Any:
    """Take the step; send the Gram matrices of D⁻¹, two projections, and what the point is judged by."""
    held, m = opened(kept), _parts(task)
    new = Kept(piece, task.folder, "dual", v=m, t=m, z=m, w=m, product=())
    grams: list[Array] = [np.zeros((k, k)) for k in piece.columns]
    projected = sums_of(piece, 2)
    sums, damping = np.zeros(8), np.inf
    for places, rows in _tiles(piece, held, task):
        if course is None:
            rows.z = rows.w = np.where(rows.live, size, 0.0)
        elif course.length:
            dv = held.dv[:, places]
            dz, dw = rows.multipliers(*rows.aims(course.centre), dv)
            rows.move(dv, dz, dw, held.turned[places], course.length)
        new.v[:, places], new.t[:, places], new.z[:, places], new.w[:, places] = rows.v, rows.t, rows.z, rows.w
        new.product[places] = rows.product
        rows.prepare(task.shift)
        b, slope = rows.coefficients(), rows.product - rows.linear + multiplier
        scaled = rows.wanted(rows.force(0.0, 0.0, rows.gradient(multiplier))) / rows.damping
        rows.gram(rows.inverse, grams)
        rows.project(projected, rows.inverse, scaled)
        objective = 0.5 * b @ rows.product - rows.linear @ b + task.epsilon * np.abs(b).sum()
        own = excess(slope, b, rows.low, rows.high, task.epsilon).sum()
        sums += [
            rows.inverse.sum(), scaled.sum(), (rows.z * rows.v + rows.w * rows.t).sum(), rows.live.sum(), b.sum(),
            objective, own, np.abs(rows.product).sum(),
        ]  # fmt: skip
        damping = min(damping, float(rows.damping.min()))
    gone = dict.fromkeys(("crossed_z", "crossed_w", "x", "dv", "turned", "rest"))
    return new.into(kept._replace(**gone), slot), ((grams, projected, sums), np.array([-damping]))


def _predict(piece: Piece, kept: Vectors, task: Constants, lifted: list[Array], here: Course, mu: float) -> Any:
    """The predictor; send how far it may go, the sums of centring, and the corrector's two parts projected."""
    held, new = opened(kept), Kept(piece, task.folder, "dual", crossed_z=_parts(task), crossed_w=_parts(task))
    projected, sums, rate = sums_of(piece, 2), np.zeros(4), 0.0
    for places, rows in _tiles(piece, held, task):
        rows.prepare(task.shift)
        gradient, image = rows.gradient(here.multiplier), rows.lift(lifted)
        force = rows.force(0.0, 0.0, gradient)
        db = rows.wanted(force) / rows.damping - rows.inverse * (here.dy + image)
        turned = image + task.shift * db  # K db, up to the rounding of the solved system
        dv = rows.shared(force, db, turned + here.dy)
        dz, dw = rows.multipliers(0.0, 0.0, dv)
        rate = float(np.maximum(rate, rows.rate(dv, dz, dw)))
        crossed_z, crossed_w = rows.crossed(dv, dz, dw, mu)
        new.crossed_z[:, places], new.crossed_w[:, places] = crossed_z, crossed_w
        fixed = rows.wanted(rows.force(-crossed_z, -crossed_w, gradient)) / rows.damping
        centred = rows.wanted(rows.over_v - rows.over_t) / rows.damping
        rows.project(projected, fixed, centred)
        linear = (rows.z - rows.w) * dv + dz * rows.v + dw * rows.t
        sums += [linear.sum(), ((dz - dw) * dv).sum(), fixed.sum(), centred.sum()]
    return new.into(kept, 0), ((projected, sums), np.array([rate]))


def _correct(
    piece: Piece, kept: Vectors, task: Constants, lifted: list[Array], here: Course, dy: float, turn: int
) -> Any:
    """The corrector's x, or what refinement adds to it; send Uᵀx."""
    held, new = opened(kept), Kept(piece, task.folder, "dual", x=())
    projected, total = sums_of(piece), 0.0
    for places, rows in _tiles(piece, held, task):
        rows.prepare(task.shift)
        if turn:
            scaled = rows.inverse * held.rest[places]
        else:
            force = rows.force(*rows.aims(here.centre), rows.gradient(here.multiplier))
            scaled = rows.wanted(force) / rows.damping
        x = scaled - rows.inverse * (dy + rows.lift(lifted))
        new.x[places] = x = held.x[places] + x if turn else x
        rows.project(projected, x)
        total += float(x.sum())
    return new.into(kept, turn % 2), ((projected, total), np.zeros(1))


def _compare(piece: Piece, kept: Vectors, task: Constants, image: list[Array], here: Course) -> Any:
    """K x and the residual; send the residual's size and projection, and how far the step may go."""
    held, new = opened(kept), Kept(piece, task.folder, "dual", dv=_parts(task), turned=(), rest=())
    projected, sums, rate = sums_of(piece), np.zeros(3), 0.0
    for places, rows in _tiles(piece, held, task):
        rows.prepare(task.shift)
        aims, x = rows.aims(here.centre), held.x[places]
        force = rows.force(*aims, rows.gradient(here.multiplier))
        turned, wanted, moving = rows.lift(image) + task.shift * x, rows.wanted(force), rows.loose > 0.0
        E = 1.0 / np.where(moving, rows.loose, np.inf)
        rest = np.where(moving, E * (wanted - x) - turned - here.dy, 0.0)
        dv = rows.shared(force, x, turned + here.dy)
        new.dv[:, places], new.turned[places], new.rest[places] = dv, turned, rest
        rate = float(np.maximum(rate, rows.rate(dv, *rows.multipliers(*aims, dv))))
        scaled = rows.inverse * rest
        rows.project(projected, scaled)
        sums += [rest @ rest, scaled.sum(), np.square(E * wanted).sum()]
    return new.into(kept, 0), ((projected, sums), np.array([rate]))


def _point(piece: Piece, kept: Vectors, task: Constants, size: float) -> tuple[Any, ...]:
    """b, K b and the ends of b, in the order of the caller."""
    held, back = opened(kept), np.argsort(piece.order)
    m = len(back)
    b, product, low, high = np.empty(m), np.empty(m), *np.empty((2, *_parts(task), m), dtype=bool)
    for places, rows in _tiles(piece, held, task):
        b[places], product[places] = rows.coefficients(), rows.product
        low[:, places], high[:, places] = rows.ends(size)
    return b[back], product[back], low[:, back], high[:, back]


def _parts(task: Constants) -> tuple[int, ...]:
    """The parts of a row."""
    return (2 if task.epsilon else 1,)
