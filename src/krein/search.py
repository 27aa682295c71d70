"""Blocks, ranks and storage type chosen by themselves: a forecast, one build with room to spare, and a measured trim.

`choice` forecasts from a small matrix. Here the proposal is built with more directions than it asks for, its error is
measured on sampled entries, and the directions that carry least per byte go until the target or the budget is met:
the bases are orthonormal, so what each of them carries is known from the core. Only where all of them are not enough
is anything built twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from krein.arrays import Array, Indices, stream
from krein.building import Parts, draft, finish, ranks_of
from krein.choice import LARGEST_CORE, MAX_ERROR, MAX_MEMORY, SIZES, Look, aligned, propose, stored_bytes
from krein.error_estimate import ErrorEstimate, estimate_error
from krein.errors import warn
from krein.factorization import Factorization
from krein.kernels import Evaluator
from krein.partition import partition
from krein.plan import Plan
from krein.shared import Draft

__all__ = ["Search", "search"]

SAMPLES = (8_000, 40_000)  # entries looked at to measure an error, the more where its interval is wider than
VAGUE = 1.04  # this
SAFE = 0.95  # of the target: what trimming may use up
GAIN = 0.95  # of the error before: a larger rank that gains less is the last one tried
AS_GOOD = 1.01  # times the best error, where the target is out of reach
GROWTH = (1.2, 2.0)  # how much the rank grows where all directions together miss the target
ROUNDS = 4  # builds, at most
UNSEEN = 1e-7  # a forecast below this is zero as far as the forecast can see
ROUGH = {"float64": 0.0, "float32": 1e-6, "float16": 2e-4, "int8": 4e-3}  # what storage may add, in squares


@dataclass(frozen=True)
class Search:
    """What was tried, and why it ended: forecasts from a small sample, then errors measured on sampled entries."""

    tried: tuple[Look, ...]
    reason: str
    error: ErrorEstimate | None  # of the result; None where it is exact
    seconds: float  # spent on choosing,
    build_seconds: float  # and on building

    def __str__(self) -> str:
        error = "" if self.error is None else f", error {self.error}"
        return f"{self.reason}{error}; chosen in {self.seconds:.2g} s, built in {self.build_seconds:.2g} s\n" + aligned(
            self.tried
        )


def search(plan: Plan, evaluator: Evaluator) -> tuple[Parts, Search]:
    """Choose what the plan leaves open, build it, and say what was tried."""
    clock = _Clock()
    target, budget = plan.max_error, plan.max_memory
    if target is None and budget is None:
        target, budget = MAX_ERROR, MAX_MEMORY
    room = math.inf if budget is None else budget
    with clock.choosing():
        proposal = propose(
            plan.objects,
            evaluator,
            plan.seed,
            max_error=target,
            max_memory=budget,
            n_blocks=plan.n_blocks,
            rank=plan.rank,
            dtype=plan.dtype,
            own_dtype=plan.own_dtype,
        )
    fixed, rank = plan.rank is not None, proposal.rank
    if target is None and not fixed and proposal.error <= UNSEEN:  # the sample sees no error
        rank = max(rank, min(2 * rank, _most(plan.n, proposal.n_blocks, proposal.dtype, room)))
    drop = 0.0 if plan.drop is None else plan.drop  # the forecast is of a whole core
    plan = replace(plan, n_blocks=proposal.n_blocks, rank=rank, dtype=proposal.dtype, drop=drop)
    clusters = partition(plan.objects, proposal.n_blocks, evaluator, plan.seed)
    tried = list(proposal.looks)
    before = math.inf
    for turn in range(ROUNDS):
        wanted = ranks_of(plan, clusters, evaluator)
        found = draft(plan, clusters, wanted, evaluator)
        with clock.choosing():
            whole = Factorization(tuple(found.bases), found.core, clusters.order)
            measured = _measured(plan, whole, turn)
            rough = ROUGH[proposal.dtype] if target is None else min(ROUGH[proposal.dtype], 0.5 * target)
            carried = _Carried(found, clusters.sizes, proposal.dtype, measured, rough)
            ranks = np.minimum(wanted, found.core.ranks) if fixed else carried.chosen(target, room)
        error = float(carried.errors(ranks)[0])
        tried.append(_look(clusters.n_blocks, ranks, proposal.dtype, carried.nbytes(ranks), error, "built"))
        larger = _grown(plan, carried, target, room)
        stuck = measured.relative > GAIN * before
        if fixed or larger is None or stuck or turn == ROUNDS - 1:
            break
        before = measured.relative
        plan = replace(plan, rank=larger)
    del whole, carried  # they refer to what finishing gives up
    parts = finish(plan, clusters, found, ranks.tolist(), evaluator, room)
    f = parts.factorization
    with clock.choosing():
        final = _measured(plan, f, ROUNDS)
    tried.append(_look(f.n_blocks, np.asarray(f.ranks), f.dtype, f.nbytes, final.relative, "kept"))
    reason = "target met"
    if target is None:
        reason = "memory budget" if f.nbytes > 0.8 * room else "no gain from more memory"
    if target is not None and final.relative > target:
        reason = "target missed"
        advice = f"Allow more {'rank' if fixed else 'memory'}, or a larger error."
        if budget is None and not fixed:
            advice = "Allow a larger error, another number of blocks, or less drop."
        warn(
            f"max_error={target:.3g} was not reached: the best found has a relative error of {final} in {f.nbytes} "
            f"bytes{'' if budget is None else f' of max_memory={budget:.4g}'}. {advice}"
        )
    return parts, Search(tuple(tried), reason, final, clock.chosen, clock.total - clock.chosen)


class _Clock:
    """Seconds spent on choosing, and on everything."""

    def __init__(self) -> None:
        self.begun, self.chosen = time.perf_counter(), 0.0

    @contextmanager
    def choosing(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.chosen += time.perf_counter() - start

    @property
    def total(self) -> float:
        return time.perf_counter() - self.begun


def _look(n_blocks: int, ranks: Indices, dtype: str, nbytes: int, error: float, stage: str) -> Look:
    return Look(n_blocks, round(float(ranks.mean())), dtype, int(nbytes), error, stage)


def _measured(plan: Plan, f: Factorization, turn: int) -> ErrorEstimate:
    """The error, on more entries where a few leave it vague: what is not known has to be paid for in rank."""
    found = estimate_error(f, plan.kernel, plan.objects, SAMPLES[0], stream(plan.seed, 7, turn))
    if found.high <= VAGUE * found.relative:
        return found
    return estimate_error(f, plan.kernel, plan.objects, SAMPLES[1], stream(plan.seed, 8, turn))


def _grown(plan: Plan, carried: _Carried, target: float | None, room: float) -> int | None:
    """A rank that may reach the target where all directions of this one do not; None if none is needed or possible."""
    everything = np.array([len(e) for e in carried.energies])
    error, before = (float(carried.errors(r)[1]) for r in (everything, -(-everything // 2)))
    if target is None or error <= SAFE * target:
        return None
    assert plan.n_blocks is not None
    assert plan.rank is not None
    slope = max(math.log2(before / error), 0.2) if error > 0.0 else 1.0  # the error falls as this power of the rank
    factor = min(max(1.05 * (error / (SAFE * target)) ** (1.0 / slope), GROWTH[0]), GROWTH[1])
    larger = min(math.ceil(plan.rank * factor), _most(plan.n, plan.n_blocks, carried.dtype, room))
    return larger if larger > plan.rank else None


def _most(n: int, n_blocks: int, dtype: str, room: float) -> int:
    """The highest rank that fits."""
    highest = min(-(-n // n_blocks) if n_blocks > 1 else int(0.6 * n), max(1, LARGEST_CORE // n_blocks))
    ranks = np.arange(1, highest + 1)
    return int(np.searchsorted(stored_bytes(n, n_blocks, ranks, dtype), room, side="right"))


class _Carried:
    """What the strongest directions of each block carry together, and the bytes they take."""

    def __init__(self, found: Draft, sizes: Indices, dtype: str, measured: ErrorEstimate, rough: float) -> None:
        self.sizes, self.dtype, self.measured, self.energies = sizes, dtype, measured, found.energies
        self.rough = rough  # what storage is expected to add
        self.squares = {(i, j): square for i, j, square in found.squares()}
        everything = sum((1.0 if i == j else 2.0) * float(s.sum()) for (i, j), s in self.squares.items())
        self.norm = everything / max(1.0 - measured.relative**2, 0.1)  # |K|²: what F has, and what it lacks

    def _lost(self, ranks: Indices) -> float:
        """The squares that are given up: their own sum, as a difference would be rounding where they are few."""
        return sum(
            (1.0 if i == j else 2.0) * float(s[ranks[i] :].sum() + s[: ranks[i], ranks[j] :].sum())
            for (i, j), s in self.squares.items()
        )

    def errors(self, ranks: Indices) -> Array:
        """The error at these ranks, were M the best core for its bases: as measured, and at its upper end."""
        lost = self._lost(ranks) / (self.norm or 1.0) + self.rough**2
        return np.sqrt(np.array([self.measured.relative, self.measured.high]) ** 2 + lost)

    def nbytes(self, ranks: Indices) -> int:
        maps = 0 if self.dtype == "float64" else 8 * int((ranks**2).sum())
        rows = int(self.sizes @ ranks) * SIZES[self.dtype]
        return rows + 8 * int(ranks.sum()) ** 2 + 8 * int(self.sizes.sum()) + maps

    def chosen(self, target: float | None, room: float) -> Indices:
        """Ranks that meet the target in the fewest bytes, or carry most in ``room``."""
        owner = np.repeat(np.arange(len(self.energies)), [len(e) for e in self.energies])
        cost = self.sizes * SIZES[self.dtype] + 16.0 * len(owner)
        order = np.argsort(-np.concatenate(self.energies) / cost[owner], kind="stable")

        def ranks(kept: int) -> Indices:
            return np.bincount(owner[order[:kept]], minlength=len(self.energies))

        def first(fails: int, holds: int, test: str) -> int:
            """The smallest number of directions for which the test holds; it is known to hold for ``holds``."""
            while holds - fails > 1:
                middle = (fails + holds) // 2
                enough = self.errors(ranks(middle))[1] <= goal
                if enough if test == "error" else self.nbytes(ranks(middle)) > room:
                    holds = middle
                else:
                    fails = middle
            return holds

        kept, goal = len(order), 0.0
        if self.nbytes(ranks(kept)) > room:
            kept = first(0, kept, "bytes") - 1
        if target is not None:  # or, where that is out of reach, an error as good as the best
            goal = max(SAFE * target, AS_GOOD * float(self.errors(ranks(kept))[1]))
            kept = first(0, kept, "error")
        return np.maximum(ranks(kept), np.minimum(1, [len(e) for e in self.energies]))
