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

from krein.approximation.building import Parts, draft, finish, ranks_of
from krein.approximation.clusters import LANDMARKS, partition
from krein.approximation.error import Entries, ErrorEstimate
from krein.approximation.request import Request
from krein.approximation.shared import Draft, Effort
from krein.arrays import Array, Indices, stream
from krein.choosing.candidates import MAX_ERROR, MAX_MEMORY, SIZES, Look, Proposal, aligned, propose, stored_bytes
from krein.choosing.forecast import LARGEST_CORE
from krein.errors import warn
from krein.factorization import Factorization
from krein.kernels import Evaluator
from krein.kernels.validation import is_bare

__all__ = ["Search", "search"]

SAMPLES = (2_000, 8_000)  # entries looked at to measure an error, the more where what they leave open costs
VAGUE = 1.2  # times the bytes, or another build
DENSE = 2048  # rows of a core that is made dense to be looked at: quicker than block by block
SAFE = 0.95  # of the target: what trimming may use up
GAIN = 0.95  # of the error before: a larger rank that gains less is the last one tried
AS_GOOD = 1.01  # times the best error, where the target is out of reach
GROWTH = (1.2, 2.0)  # how much the rank grows where all directions together miss the target
ROUNDS = 4  # builds, at most
TIGHT = 0.5  # of the room: what small types take is known only once they are filled
DEAR, SHARE, LEAST = 1024, 5, 256  # similarities an object may take where they are all there is: at most, 1 / of n
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


def search(plan: Request, evaluator: Evaluator) -> tuple[Parts, Search]:
    """Choose what the plan leaves open, build it, and say what was tried."""
    clock = _Clock()
    target, budget = plan.max_error, plan.max_memory
    if target is None and budget is None:
        target, budget = MAX_ERROR, MAX_MEMORY
    matrix = 8.0 * plan.n**2  # what K itself takes: nobody wants more
    room = min(matrix, math.inf if budget is None else budget)
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
    bare = is_bare(plan.objects, plan.kernel)
    dear, fewer = bare and not fixed, False
    if bare and fixed and plan.n_blocks is None:
        proposal, fewer = _affordable(plan, proposal, evaluator, room)
    if not fixed:
        rank = min(rank, max(1, _most(plan.n, proposal.n_blocks, proposal.dtype, room)))
    drop = 0.0 if plan.drop is None else plan.drop  # the forecast is of a whole core
    plan = replace(plan, n_blocks=proposal.n_blocks, rank=rank, dtype=proposal.dtype, drop=drop)
    clusters = partition(plan.objects, proposal.n_blocks, evaluator, plan.seed)
    placed = 0 if clusters.embedding is None else len(clusters.embedding.transform)
    if dear:
        plan = replace(plan, rank=min(rank, max(1, _payable(plan.n, clusters.n_blocks, evaluator, placed))))
    tried = list(proposal.looks)
    before = math.inf
    rough = ROUGH[proposal.dtype] if target is None else min(ROUGH[proposal.dtype], 0.5 * target)
    for turn in range(ROUNDS):
        wanted = ranks_of(plan, clusters, evaluator)
        found = draft(plan, clusters, wanted, evaluator)
        found.energies  # noqa: B018  (finishing needs them too, so they are building's)
        with clock.choosing():
            core = found.core.to_dense() if found.core.shape[0] <= DENSE else found.core
            whole = Factorization.from_blocks(found.bases, core, clusters.order)
            carried = _Carried(found, clusters.sizes, proposal.dtype, rough, wanted if fixed else None)
            entries = Entries(whole, evaluator, plan.objects, SAMPLES[0], stream(plan.seed, 7, turn))
            measured = entries.error(whole)
            if carried.vague(measured, target, room):
                entries.look(whole, SAMPLES[1], stream(plan.seed, 8, turn))
                measured = entries.error(whole)
            kept = int(np.minimum(wanted, found.core.ranks).sum()) if fixed else carried.chosen(measured, target, room)
            ranks, error = carried.ranks(kept), float(carried.errors(measured.relative)[kept])
        tried.append(_look(clusters.n_blocks, ranks, proposal.dtype, int(carried.nbytes[kept]), error, "built"))
        larger = _grown(plan, carried, measured, target, room)
        if dear and larger is not None and larger > _payable(plan.n, clusters.n_blocks, evaluator, placed):
            larger = None
        stuck = measured.relative > GAIN * before
        if fixed or larger is None or stuck or turn == ROUNDS - 1:
            break
        before = measured.relative
        plan = replace(plan, rank=larger)
    del whole, core, carried  # they refer to what finishing gives up
    tight = budget is not None or tried[-1].nbytes > TIGHT * room  # to hold a limit takes the bases twice
    parts = finish(plan, clusters, found, ranks.tolist(), evaluator, room if tight else math.inf)
    f = parts.factorization
    with clock.choosing():
        final = entries.error(f)  # as it is stored, on the entries that are known
        if target is not None and final.relative > target >= final.low:  # they may be too few to say so
            entries.look(f, SAMPLES[1], stream(plan.seed, 9))
            final = entries.error(f)
    tried.append(_look(f.n_blocks, np.asarray(f.ranks), f.dtype, f.nbytes, final.relative, "kept"))
    reason = "target met"
    if target is None:
        reason = "memory budget" if f.nbytes > 0.8 * room else "no gain from more memory"
        if (dear and plan.rank is not None and plan.rank < rank) or fewer:
            reason = (
                f"not the memory but similarities are the limit, {_allowed(plan.n) // plan.n} an object: give n_blocks "
                "and rank for more"
            )
    if target is not None and final.relative > target:
        reason = "target missed"
        advice = f"Allow more {'rank' if fixed else 'memory'}, or a larger error."
        if budget is None and not fixed:
            advice = "Allow a larger error, another number of blocks, or less drop."
        if dear or fewer:
            advice += (
                f" Similarities are kept to {_allowed(plan.n) // plan.n} an object where nothing else is known of it: "
                "give n_blocks and rank for more."
            )
        elif not fixed and room == matrix:
            advice += f" No more than the {matrix:.3g} bytes of the matrix itself are used."
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


def _grown(plan: Request, carried: _Carried, measured: ErrorEstimate, target: float | None, room: float) -> int | None:
    """A rank that may reach the target where all directions of this one do not; None if none is needed or possible."""
    errors = carried.errors(measured.high)
    error, before = float(errors[-1]), float(errors[len(errors) // 2])
    if target is None or error <= SAFE * target:
        return None
    assert plan.n_blocks is not None
    assert plan.rank is not None
    slope = max(math.log2(before / error), 0.2) if error > 0.0 else 1.0  # the error falls as this power of the rank
    factor = min(max(1.05 * (error / (SAFE * target)) ** (1.0 / slope), GROWTH[0]), GROWTH[1])
    larger = min(math.ceil(plan.rank * factor), _most(plan.n, plan.n_blocks, carried.dtype, room))
    return larger if larger > plan.rank else None


def _allowed(n: int) -> int:
    return n * min(DEAR, max(n // SHARE, LEAST))


def _affordable(plan: Request, proposal: Proposal, evaluator: Evaluator, room: float) -> tuple[Proposal, bool]:
    """The proposal with its rank, in no more blocks than can be paid for, and whether those are fewer."""
    n, c = plan.n, proposal.n_blocks
    while c > 1 and _payable(n, c, evaluator, 2 * min(max(64, 4 * c), LANDMARKS)) < proposal.rank:
        c //= 2  # objects are placed twice, by as many landmarks
    own = plan.dtype or plan.own_dtype
    dtype = own if stored_bytes(n, c, proposal.rank, own) <= room else proposal.dtype  # more blocks may need less
    return (replace(proposal, n_blocks=c, dtype=dtype), True) if c < proposal.n_blocks else (proposal, False)


def _payable(n: int, c: int, evaluator: Evaluator, placed: int) -> int:
    """The highest rank that bases and core of c blocks can have with the similarities that are left; 0 if none.

    ``placed`` are those that placing an object takes yet: landmarks are chosen among placed objects.
    """
    highest, left = 0, _allowed(n) - evaluator.n_evaluations - n * placed
    for rank in range(1, max(1, n // c) + 1):
        if 2 * rank * n > left:  # an object meets so many landmarks at least
            break
        effort = Effort.of(rank, n // c, c, n)
        coupled = (c * math.ceil(effort.sampled * effort.columns)) ** 2 * (1.0 + 1.0 / c) / 2.0  # i <= j
        highest = rank if n * (effort.own + effort.outside) + coupled <= left else highest
    return highest


def _most(n: int, n_blocks: int, dtype: str, room: float) -> int:
    """The highest rank that fits."""
    highest = min(-(-n // n_blocks) if n_blocks > 1 else int(0.6 * n), max(1, LARGEST_CORE // n_blocks))
    ranks = np.arange(1, highest + 1)
    return int(np.searchsorted(stored_bytes(n, n_blocks, ranks, dtype), room, side="right"))


class _Carried:
    """What the directions of a draft carry together, taken in the order of what each carries per byte."""

    def __init__(self, found: Draft, sizes: Indices, dtype: str, rough: float, first: Indices | None = None) -> None:
        self.dtype, self.rough = dtype, rough  # rough: what storage is expected to add
        counts = np.array([len(e) for e in found.energies])
        self.owner = np.repeat(np.arange(len(counts)), counts)
        number = np.concatenate([np.arange(k) for k in counts])  # of each direction in its block, the strongest first
        cost = sizes * SIZES[dtype] + 16.0 * len(number)
        worth = -np.concatenate(found.energies) / cost[self.owner]
        later = np.zeros(len(number)) if first is None else number >= first[self.owner]  # given ranks come first
        self.order = np.lexsort((worth, later))
        self.least = np.minimum(1, counts)
        kept = np.arange(len(number) + 1)
        owner, number = self.owner[self.order], number[self.order]
        maps = 0 if dtype == "float64" else 8 * _sums(2 * number + 1)
        self.nbytes = SIZES[dtype] * _sums(sizes[owner]) + 8 * kept**2 + 8 * int(sizes.sum()) + maps  # (r + 1,)
        self.lost, self.held = self._squares(found, counts)

    def _squares(self, found: Draft, counts: Indices) -> tuple[Array, float]:
        """The squares given up where the first 0, 1, .. directions are kept, (r + 1,), and all of them.

        Sums of what is given up, as a difference would be rounding where it is little.
        """
        place = np.empty(len(self.order), dtype=np.intp)
        place[self.order] = np.arange(len(self.order))
        places = np.split(place, np.cumsum(counts)[:-1])  # of each block's directions: ascending
        added = np.zeros(len(self.order))  # what each brings, together with those before it
        for i, j, square in found.squares():
            for a, b, s in ((i, j, square), (j, i, square.T)) if i != j else ((i, j, square),):
                before = np.searchsorted(places[b], places[a])  # how many of b's come before each of a's
                along = np.concatenate([np.zeros((len(s), 1)), s.cumsum(1)], axis=1)
                added[places[a]] += 2.0 * along[np.arange(len(s)), before] + (np.diagonal(s) if a == b else 0.0)
        return np.append(added[::-1].cumsum()[::-1], 0.0), float(added.sum())

    def ranks(self, kept: int) -> Indices:
        """The rank of each block where so many directions are kept: one at least, if it has any."""
        counts = np.bincount(self.owner[self.order[:kept]], minlength=len(self.least))
        return np.asarray(np.maximum(counts, self.least))

    def errors(self, whole: float) -> Array:
        """The error where the first 0, 1, .. directions are kept, (r + 1,), were M the best core for its bases.

        ``whole`` is that of all of them. |K|² is what F has, and what it lacks.
        """
        norm = self.held / max(1.0 - whole**2, 0.1)
        return np.asarray(np.sqrt(whole**2 + self.lost / (norm or 1.0) + self.rough**2))

    def chosen(self, measured: ErrorEstimate, target: float | None, room: float, sure: bool = True) -> int:
        """How many directions meet the target in the fewest bytes, or carry most in ``room``.

        ``sure``: by the upper end of the interval.
        """
        fits = max(1, int(np.searchsorted(self.nbytes, room, side="right")) - 1)
        fits = min(fits, len(self.order))  # a matrix of zeros has no direction
        if target is None:
            return fits
        errors = self.errors(measured.high if sure else measured.relative)[: fits + 1]
        goal = max(SAFE * target, AS_GOOD * float(errors[-1]))  # out of reach: an error as good as the best
        return min(fits, max(1, int(np.argmax(errors <= goal))))

    def vague(self, measured: ErrorEstimate, target: float | None, room: float) -> bool:
        """Whether the interval is so wide that it costs bytes, or a build."""
        if target is None:
            return False
        sure, likely = (self.errors(e)[-1] <= SAFE * target for e in (measured.high, measured.relative))
        if likely and not sure:
            return True
        ends = [int(self.nbytes[self.chosen(measured, target, room, by)]) for by in (True, False)]
        return bool(likely and ends[0] > VAGUE * ends[1])


def _sums(values: Indices) -> Indices:
    """0, the first, the first two, ... together."""
    return np.concatenate([[0], np.cumsum(values)])
