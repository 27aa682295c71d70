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

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from krein.arrays import Array
from krein.engines import add
from krein.factorization.pieces import Piece, PieceBases
from krein.solvers.interior_point import (
    NEWTON_RESIDUAL,
    REFINEMENTS,
    STEP_SHARE,
    Mark,
    Rows,
    first_share,
    indefinite,
    longest,
    nothing_to_gain,
)
from krein.solvers.problem import Ends, Point, Problem, excess
from krein.solvers.woodbury import Part, factorize

__all__ = ["InPieces"]

Stored: TypeAlias = Any  # an array, the name of its .npy file, or None


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
    dz_dv: Stored = None  # (m, n), of the predictor
    dw_dv: Stored = None  # (m, n), of the predictor
    x: Stored = None  # (n,) the corrector's step of b
    turned: Stored = None  # (n,) K x
    rest: Stored = None  # (n,) the residual

    def opened(self) -> Vectors:
        """The same with files as memory maps."""
        return Vectors(*(np.load(a, mmap_mode="r").view(np.ndarray) if isinstance(a, str) else a for a in self))


class Task(NamedTuple):
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
    """The iterate of rows in pieces, and the multiplier of their sum."""

    def __init__(self, problem: Problem, parts: tuple[Part, ...]) -> None:
        bases: Any = problem.f.bases
        assert isinstance(bases, PieceBases)
        self.problem, self.parts, self.bases = problem, parts, bases
        self.engine, self.pieces = self.bases.pieces.engine, self.bases.pieces.held
        self.task = Task(problem.epsilon, problem.f.shift, getattr(self.engine, "checkpoints", None))
        self.multiplier, self.slot, self.best = 0.0, 0, (np.inf, 0)
        cut = self.bases.pieces.cut
        given = list(zip(*map(cut, (problem.linear, problem.low, problem.high)), strict=True))
        self.vectors, (projected,), _ = self._visit(_begin, first_share(problem), own=given)
        self.vectors, (slopes,), _ = self._visit(_multiply, self._image(projected))
        mean = float(np.abs(problem.linear).mean())
        self.unit = max(mean, problem.epsilon)
        self._advance(None, max(slopes / len(problem.linear), mean, problem.epsilon) or 1.0)

    def judge(self) -> Mark:
        numbers, vectors, size = (self.multiplier, self.objective, self.excess, self.gap), self.vectors, self.size

        @cache
        def found() -> tuple[Point, Ends]:
            parts = self.engine.collect(_point, self.pieces, self.task, size, own=vectors)
            b, product, low, high = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
            return Point(b, product, *numbers), (low, high)

        return Mark(self.gap, self.excess, found)

    def step(self) -> bool:
        f = self.problem.f
        if not self.definite:
            raise indefinite(f)
        system = factorize(self.parts, f.rank, self.grams)
        if system is None:
            return nothing_to_gain(f)
        ones, first = (np.ascontiguousarray(column) for column in self.projected.T)  # UᵀD⁻¹1 and UᵀD⁻¹ of the predictor
        turned_ones = system.solve(ones)
        total = self.sum_ones - float(ones @ turned_ones)

        def solved(projected: Array, sum_scaled: float, short: float) -> tuple[Array, float]:
            """w and y with x = D⁻¹(right-hand side - y - U w), for a right-hand side of these sums."""
            w = system.solve(projected)
            y = (sum_scaled - float(ones @ w) - short) / total
            return w - y * turned_ones, y

        w, y = solved(first, self.sum_first, self.short)
        here = Course(self.multiplier, y)
        vectors, (both, sums), (rate,) = self._visit(_predict, self._down(w), here)
        reach = longest(rate)
        mu = self.complementarity / self.count
        after = (self.complementarity + reach * sums[0] + reach**2 * sums[1]) / self.count
        centre = (max(after, 0.0) / mu) ** 3 * mu
        projected = self._up(both) @ np.array([1.0, centre])
        w, y = solved(projected, float(sums[2] + centre * sums[3]), self.short)
        here = here._replace(centre=centre, dy=0.0)
        last = np.inf
        for turn in range(REFINEMENTS + 1):
            vectors, (projected, sums), _ = self._visit(_correct, self._down(w), here, y, turn, own=vectors)
            here, sum_x, size = here._replace(dy=here.dy + y), float(sums[0]), float(sums[1]) or 1.0
            vectors, (projected, sums), (rate,) = self._visit(_compare, self._image(projected), here, own=vectors)
            left = float(np.sqrt(sums[0]))
            if not np.isfinite(left) or left <= NEWTON_RESIDUAL * np.sqrt(size) or left > 0.5 * last:
                break
            last = left
            w, y = solved(self._up(projected), float(sums[1]), self.short - sum_x)
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
        self.projected, self.definite = self._up(projected), -damping > 0.0
        self.sum_ones, self.sum_first, self.complementarity, count, sum_b, self.objective, own, products = sums.tolist()
        self.count, self.short = 2.0 * count, p.total - sum_b
        self.excess = own + self.multiplier * self.short
        self.gap = p.relative_gap(self.excess, self.objective, sum_b)
        self.size = self.unit or products / len(p.linear) or 1.0
        self.slot, self.best = slot, (self.gap, slot) if self.gap < self.best[0] else self.best

    def _visit(self, step: Callable[..., Any], *small: Any, own: Any = None) -> Any:
        own = self.vectors if own is None else own
        stays, (sums, peaks) = self.engine.visit(step, self.pieces, self.task, *small, own=own, plus=_joined)
        return stays, sums, peaks

    def _down(self, w: Array) -> list[Array]:
        """A w for each cluster: the rows of B times it are those of U w."""
        return [A @ w[cols] for A, (_, cols) in zip(self.bases.maps, self.bases.spans, strict=True)]

    def _up(self, sums: list[Array]) -> Array:
        """Uᵀx from Bᵀx."""
        return np.concatenate([A.T @ part for A, part in zip(self.bases.maps, sums, strict=True)])

    def _image(self, sums: list[Array]) -> list[Array]:
        """M Uᵀx from Bᵀx, ready to be lifted."""
        return self._down(self.problem.f.core @ self._up(sums))


def _joined(left: Any, right: Any) -> Any:
    """Sums are added, of peaks the larger is kept."""
    return add(left[0], right[0]), np.maximum(left[1], right[1])


# -- visits: each reads the rows of a piece once, tile by tile ---------------------------------------------------------


class _Tile(Rows):
    """Rows of a piece with what the Newton system needs of them."""

    def __init__(self, held: Vectors, places: slice, task: Task) -> None:
        super().__init__(held.linear[places], held.low[places], held.high[places], task.epsilon)
        self.shift = task.shift
        if held.v is not None:
            self.v, self.t = held.v[:, places], held.t[:, places]
        if held.z is not None:
            self.z, self.w = held.z[:, places], held.w[:, places]
        if held.product is not None:
            self.product = held.product[places]

    def prepare(self) -> None:
        self.stiff, self.soft = self.stiffness()
        self.loose = self.soft.sum(0)  # E⁻¹
        self.damping = 1.0 + self.shift * self.loose
        self.inverse = self.loose / self.damping  # D⁻¹ = (E + s)⁻¹

    def wanted(self, force: Array) -> Array:
        """E⁻¹ times the right-hand side."""
        return np.asarray((self.sign * force * self.soft).sum(0))

    def aim(self, held: Vectors, places: slice, here: Course) -> None:
        """The corrector's right-hand side."""
        self.first, self.second = here.centre - held.dz_dv[:, places], here.centre + held.dw_dv[:, places]
        self.pull = self.force(self.first, self.second, here.multiplier)

    def corrector(self, x: Array, turned: Array, dy: float) -> tuple[Array, Array, Array]:
        return self.direction(self.first, self.second, self.pull, x, turned + dy, self.stiff, self.soft)


def _begin(piece: Piece, given: tuple[Array, Array, Array], task: Task, share: float) -> Any:
    """Put the vectors of the problem in the order of the piece, and start; send Uᵀb."""
    held = Vectors(*(np.asarray(a, dtype=np.float64)[piece.order] for a in given))
    new = _Kept(piece, task, v=_parts(task), t=_parts(task))
    sums = _sums(piece)
    for i, places, B in piece.tiles():
        rows = _Tile(held, places, task)
        rows.start(share)
        new.v[:, places], new.t[:, places] = rows.v, rows.t
        sums[i] += B.T @ rows.coefficients()
    kept = new.into(held, 0, linear=held.linear, low=held.low, high=held.high)
    return kept, ((sums,), np.zeros(1))


def _multiply(piece: Piece, kept: Vectors, task: Task, image: list[Array]) -> Any:
    """The first K b; send the sum of its slopes."""
    held, new, slopes = kept.opened(), _Kept(piece, task, product=()), 0.0
    for i, places, B in piece.tiles():
        rows = _Tile(held, places, task)
        new.product[places] = B @ image[i] + task.shift * rows.coefficients()
        slopes += float(np.abs(new.product[places] - rows.linear).sum())
    return new.into(kept, 0), ((slopes,), np.zeros(1))


def _advance(
    piece: Piece, kept: Vectors, task: Task, course: Course | None, size: float, multiplier: float, slot: int
) -> Any:
    """Take the step; send the Gram matrices of D⁻¹, two projections, and what the point is judged by."""
    held, m = kept.opened(), _parts(task)
    new = _Kept(piece, task, v=m, t=m, z=m, w=m, product=())
    grams, projected = [np.zeros((k, k)) for k in piece.columns], _sums(piece, 2)
    sums, damping = np.zeros(8), np.inf
    for i, places, B in piece.tiles():
        rows = _Tile(held, places, task)
        if course is None:
            rows.z = rows.w = np.where(rows.live, size, 0.0)
        else:
            rows.prepare()
            rows.aim(held, places, course)
            turned = held.turned[places]
            rows.move(*rows.corrector(held.x[places], turned, course.dy), turned, course.length)
        new.v[:, places], new.t[:, places], new.z[:, places], new.w[:, places] = rows.v, rows.t, rows.z, rows.w
        new.product[places] = rows.product
        rows.prepare()
        b, slope = rows.coefficients(), rows.product - rows.linear + multiplier
        scaled = rows.wanted(rows.force(0.0, 0.0, multiplier)) / rows.damping
        weighted = B * np.sqrt(np.maximum(rows.inverse, 0.0))[:, None]
        grams[i] += weighted.T @ weighted
        projected[i] += B.T @ np.column_stack([rows.inverse, scaled])
        objective = 0.5 * b @ rows.product - rows.linear @ b + task.epsilon * np.abs(b).sum()
        own = excess(slope, b, rows.low, rows.high, task.epsilon).sum()
        sums += [
            rows.inverse.sum(), scaled.sum(), (rows.z * rows.v + rows.w * rows.t).sum(), rows.live.sum(), b.sum(),
            objective, own, np.abs(rows.product).sum(),
        ]  # fmt: skip
        damping = min(damping, float(rows.damping.min()))
    gone = dict.fromkeys(("dz_dv", "dw_dv", "x", "turned", "rest"))
    return new.into(kept._replace(**gone), slot), ((grams, projected, sums), np.array([-damping]))


def _predict(piece: Piece, kept: Vectors, task: Task, lifted: list[Array], here: Course) -> Any:
    """The predictor; send how far it may go, the sums of centring, and the corrector's two parts projected."""
    held, new = kept.opened(), _Kept(piece, task, dz_dv=_parts(task), dw_dv=_parts(task))
    projected, sums, rate = _sums(piece, 2), np.zeros(4), 0.0
    for i, places, B in piece.tiles():
        rows = _Tile(held, places, task)
        rows.prepare()
        force, image = rows.force(0.0, 0.0, here.multiplier), B @ lifted[i]
        db = rows.wanted(force) / rows.damping - rows.inverse * (here.dy + image)
        turned = image + task.shift * db  # K db, up to the rounding of the solved system
        dv, dz, dw = rows.direction(0.0, 0.0, force, db, turned + here.dy, rows.stiff, rows.soft)
        rate = float(np.maximum(rate, rows.rate(dv, dz, dw)))
        crossed_z, crossed_w = dz * dv, dw * dv
        new.dz_dv[:, places], new.dw_dv[:, places] = crossed_z, crossed_w
        fixed = rows.wanted(rows.force(-crossed_z, crossed_w, here.multiplier)) / rows.damping
        centred = rows.wanted(np.where(rows.live, 1.0 / rows.v - 1.0 / rows.t, 0.0)) / rows.damping
        projected[i] += B.T @ np.column_stack([fixed, centred])
        linear = (rows.z - rows.w) * dv + dz * rows.v + dw * rows.t
        sums += [linear.sum(), (crossed_z - crossed_w).sum(), fixed.sum(), centred.sum()]
    return new.into(kept, 0), ((projected, sums), np.array([rate]))


def _correct(piece: Piece, kept: Vectors, task: Task, lifted: list[Array], here: Course, dy: float, turn: int) -> Any:
    """The corrector's x, or what refinement adds to it; send Uᵀx."""
    held, new = kept.opened(), _Kept(piece, task, x=())
    projected, sums = _sums(piece), np.zeros(2)
    for i, places, B in piece.tiles():
        rows = _Tile(held, places, task)
        rows.prepare()
        rows.aim(held, places, here)
        wanted = rows.wanted(rows.pull)
        scaled = rows.inverse * held.rest[places] if turn else wanted / rows.damping
        x = scaled - rows.inverse * (dy + B @ lifted[i])
        new.x[places] = held.x[places] + x if turn else x
        projected[i] += B.T @ new.x[places]
        sums += [new.x[places].sum(), np.square(_divided(wanted, rows.loose)).sum()]
    return new.into(kept, turn % 2), ((projected, sums), np.zeros(1))


def _compare(piece: Piece, kept: Vectors, task: Task, image: list[Array], here: Course) -> Any:
    """K x and the residual; send the residual's size and projection, and how far the step may go."""
    held, new = kept.opened(), _Kept(piece, task, turned=(), rest=())
    projected, sums, rate = _sums(piece), np.zeros(2), 0.0
    for i, places, B in piece.tiles():
        rows = _Tile(held, places, task)
        rows.prepare()
        rows.aim(held, places, here)
        x = held.x[places]
        turned = B @ image[i] + task.shift * x
        force = _divided(rows.wanted(rows.pull) - x, rows.loose) - turned - here.dy
        rest = np.where(rows.loose > 0.0, force, 0.0)
        new.turned[places], new.rest[places] = turned, rest
        rate = float(np.maximum(rate, rows.rate(*rows.corrector(x, turned, here.dy))))
        projected[i] += B.T @ (rows.inverse * rest)
        sums += [rest @ rest, (rows.inverse * rest).sum()]
    return new.into(kept, 0), ((projected, sums), np.array([rate]))


def _point(piece: Piece, kept: Vectors, task: Task, size: float) -> tuple[Any, ...]:
    """b, K b and the ends of b, in the order of the caller."""
    held, back = kept.opened(), np.argsort(piece.order)
    rows = _Tile(held, slice(None), task)
    low, high = rows.ends(size)
    return rows.coefficients()[back], rows.product[back], low[:, back], high[:, back]


def _parts(task: Task) -> tuple[int, ...]:
    """The parts of a row."""
    return (2 if task.epsilon else 1,)


def _sums(piece: Piece, *columns: int) -> list[Array]:
    return [np.zeros((k, *columns)) for k in piece.columns]


def _divided(a: Array, by: Array) -> Array:
    return np.divide(a, by, out=np.zeros_like(a), where=by > 0.0)


class _Kept:
    """New vectors of a piece; `into` puts them, or the names of their files, into the vectors that stay."""

    def __init__(self, piece: Piece, task: Task, **shapes: tuple[int, ...]) -> None:
        self._folder, self._name = task.folder, f"dual-{piece.rows.start}-{piece.rows.stop}"
        self._new = {name: np.empty((*shape, len(piece.order))) for name, shape in shapes.items()}

    def __getattr__(self, name: str) -> Array:
        return self._new[name]

    def into(self, held: Vectors, slot: int, **more: Array) -> Vectors:
        new: dict[str, Stored] = self._new | more
        if self._folder is not None:
            new = {name: self._folder.write(f"{self._name}-{name}-{slot}", array) for name, array in new.items()}
        return held._replace(**new)
