"""Blocks, ranks and storage type by the relative error: a request in, the parts of an approximation out.

Five steps, in this order. `propose` completes the request by a forecast from a small sample. `build` makes bases with
more directions than proposed. `measure` estimates the error on sampled entries. `trim` gives up the directions that
carry least per byte, until the target or the memory is just met: the bases are orthonormal, so the core tells what each
of them carries. `finish` stores the result. Only where all directions together miss the target is anything built again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from krein.approximation.clusters import MAX_LANDMARKS, Partition, partition
from krein.approximation.error import Entries, ErrorEstimate
from krein.approximation.request import Parts, Request
from krein.approximation.shared import Draft, Effort, draft, draft_ranks, finish, strongest
from krein.arrays import Array, Indices, stream
from krein.choosing.candidates import ITEM_BYTES, Candidate, Selection, bytes_of, held_bytes, highest_rank
from krein.choosing.forecast import ONE_BLOCK_SHARE, STORAGE_ERROR, USED_MEMORY, Goal, proposal
from krein.errors import warn
from krein.factorization import Factorization
from krein.kernels import Evaluator
from krein.kernels.validation import has_only_similarities
from krein.policy import Policy

__all__ = ["search"]

# An error is measured on the first number of entries, and on the second where the first leave open what it costs.
SAMPLED_ENTRIES = (2_000, 8_000)
# An interval is too wide where its two ends differ by this factor in bytes.
WIDE_INTERVAL = 1.2
# A core with at most this many rows is made dense to be measured, which is quicker than block by block.
DENSE_ROWS = 2048
# Trimming aims at this share of the target.
AIMED_SHARE = 0.95
# A higher rank whose error is above this share of the error before is the last one built.
LAST_GAIN = 0.95
# Where the target is out of reach, an error up to this many times the best is as good.
MISSED_TARGET_RATIO = 1.01
# The rank grows at least and at most by these factors where all directions together miss the target.
RANK_GROWTH = (1.2, 2.0)
# A choice builds at most this many times.
MOST_BUILDS = 4
# Bytes above this share of the memory are checked as stored, since what small types take is known only then.
CHECKED_SHARE = 0.5
# An error forecast below this is zero to the precision of the forecast.
FORECAST_PRECISION = 1e-7


def search(request: Request, evaluator: Evaluator, policy: Policy) -> tuple[Parts, Selection]:
    """Choose what the request leaves open, build it, and return what was tried."""
    clock = _Clock()
    asked = Goal.of(
        request.n, max_error=request.max_error, max_memory=request.max_memory, n_blocks=request.n_blocks,
        rank=request.rank, dtype=request.dtype, own_dtype=request.own_dtype, policy=policy,
    )  # fmt: skip
    goal = replace(asked, max_memory=min(8.0 * request.n**2, asked.max_memory))  # K itself takes no more
    proposed = propose(request, evaluator, asked, goal, policy, clock)
    request, tried, before = proposed.request, list(proposed.tried), math.inf
    for turn in range(MOST_BUILDS):
        built = build(request, proposed.clusters, evaluator)
        with clock.choosing():
            measured = measure(request, proposed.clusters, built, goal, evaluator, turn)
            ranks, candidate = trim(measured, goal)
            tried.append(candidate)
            higher = _higher_rank(request, measured, proposed, goal, evaluator)
        if higher is None or measured.error.relative > LAST_GAIN * before or turn == MOST_BUILDS - 1:
            break
        before, request = measured.error.relative, replace(request, rank=higher)
    checked = math.isfinite(asked.max_memory) or candidate.nbytes > CHECKED_SHARE * goal.max_memory
    built = strongest(built, ranks.tolist(), ordered=checked)
    parts = finish(request, proposed.clusters, built, evaluator, goal.max_memory if checked else math.inf)
    with clock.choosing():
        error = measured.of_result(parts.factorization, goal.max_error, request.seed)
    f = parts.factorization
    tried.append(_candidate(np.asarray(f.ranks), f.dtype, f.nbytes, error.relative, "kept"))
    reason = _reason(f, error, asked, goal, proposed)
    return parts, Selection(
        tuple(tried), reason, len(tried) - 1, error=error, seconds=clock.chosen,
        build_seconds=clock.total - clock.chosen,
    )  # fmt: skip


# -- propose -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Proposed:
    """A complete request and its clusters."""

    request: Request
    clusters: Partition
    tried: tuple[Candidate, ...]
    per_object: int | None = None  # similarities that an object may take, where objects have nothing else
    is_limited: bool = False  # whether they, and not the memory, are the limit


def propose(request: Request, evaluator: Evaluator, asked: Goal, goal: Goal, policy: Policy, clock: _Clock) -> Proposed:
    """Complete the request by the forecast, within what memory and similarities allow."""
    with clock.choosing():
        forecast = proposal(request.objects, evaluator, request.seed, asked)
    best = forecast.chosen
    assert best is not None
    n, c, dtype, rank = request.n, best.n_blocks, best.dtype, best.rank
    if request.rank is None:
        most = _most(c, dtype, goal)
        if asked.max_error is None and (best.error or 0.0) <= FORECAST_PRECISION:
            rank = max(rank, min(2 * rank, most))  # the sample shows no error: the rest of the memory may
        rank = min(rank, max(1, most))
    per_object = None
    if has_only_similarities(request.objects, request.kernel) and (request.rank is None or request.n_blocks is None):
        per_object = min(policy.object_similarities, max(int(policy.object_share * n), policy.object_least))
        if request.rank is not None:
            c = _payable_blocks(n, c, rank, per_object, evaluator)
            own = request.storage
            dtype = own if c < best.n_blocks and bytes_of(n, c, rank, own) <= goal.max_memory else dtype
    clusters = partition(request.objects, c, evaluator, request.seed)
    payable = rank
    if per_object is not None and request.rank is None:
        payable = min(rank, max(1, _payable_rank(n, clusters.n_blocks, per_object, evaluator, _embedded(clusters))))
    limited = payable < rank or c < best.n_blocks
    drop = 0.0 if request.drop is None else request.drop  # the forecast is of a full core
    request = replace(request, n_blocks=c, rank=payable, dtype=dtype, drop=drop)
    per_object = per_object if limited or asked.rank is None else None
    return Proposed(request, clusters, forecast.tried, per_object, limited)


def _most(n_blocks: int, dtype: str, goal: Goal) -> int:
    """The highest rank that so many blocks can have in the memory."""
    limit = -(-goal.n // n_blocks) if n_blocks > 1 else int(ONE_BLOCK_SHARE * goal.n)
    limit = min(limit, max(1, goal.largest_core // n_blocks))
    return highest_rank(goal.n, goal.max_memory, n_blocks, limit, dtype)


def _embedded(clusters: Partition) -> int:
    """Similarities that it takes to embed one object."""
    return 0 if clusters.embedding is None else len(clusters.embedding.transform)


def _payable_blocks(n: int, n_blocks: int, rank: int, per_object: int, evaluator: Evaluator) -> int:
    """The largest number of blocks up to ``n_blocks``, by halves, whose similarities are allowed at this rank."""
    c = n_blocks
    while c > 1 and _payable_rank(n, c, per_object, evaluator, 2 * min(max(64, 4 * c), MAX_LANDMARKS)) < rank:
        c //= 2  # objects are embedded twice, by as many landmarks
    return c


def _payable_rank(n: int, c: int, per_object: int, evaluator: Evaluator, embedded: int) -> int:
    """The highest rank of c blocks whose bases and core take no more similarities than are left; 0 if none.

    ``embedded`` similarities are still needed to embed each object, as landmarks are chosen among embedded objects.
    """
    highest, left = 0, n * (per_object - embedded) - evaluator.n_evaluations
    for rank in range(1, max(1, n // c) + 1):
        if 2 * rank * n > left:  # each object is compared with at least as many landmarks
            break
        effort = Effort.of(rank, n // c, c, n)
        coupled = (c * math.ceil(effort.sampled * effort.columns)) ** 2 * (1.0 + 1.0 / c) / 2.0  # i <= j
        highest = rank if n * (effort.own + effort.outside) + coupled <= left else highest
    return highest


# -- build -------------------------------------------------------------------------------------------------------------


def build(request: Request, clusters: Partition, evaluator: Evaluator) -> Draft:
    """Bases with more directions than the request's rank, and their core."""
    built = draft(request, clusters, draft_ranks(request, clusters), evaluator)
    built.energies  # noqa: B018  (computed once, and finishing needs them too)
    return built


# -- measure -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Measured:
    """The error of all directions together, the entries it was measured on, and what the directions carry."""

    error: ErrorEstimate
    entries: Entries
    directions: Directions
    given_rank: int | None  # directions in all, where the rank was given

    def of_result(self, f: Factorization, target: float | None, seed: int) -> ErrorEstimate:
        """The error of what is stored, on the known entries, or on more where these leave open if the target is met."""
        found = self.entries.error(f)
        if target is not None and found.relative > target >= found.low:
            self.entries.redraw(f, SAMPLED_ENTRIES[1], stream(seed, 9))
            found = self.entries.error(f)
        return found


def measure(
    request: Request, clusters: Partition, built: Draft, goal: Goal, evaluator: Evaluator, turn: int
) -> Measured:
    """Measure the error of all directions on sampled entries, on more of them where the interval is too wide."""
    core = built.core.to_dense() if built.core.shape[0] <= DENSE_ROWS else built.core
    whole = Factorization.from_blocks(built.bases, core, clusters.order)
    dtype = request.storage
    expected = min(STORAGE_ERROR[dtype], 0.5 * goal.max_error) if goal.max_error is not None else STORAGE_ERROR[dtype]
    wanted = None if goal.rank is None else draft_ranks(request, clusters)
    directions = Directions.of(built, clusters.sizes, dtype, expected, wanted)
    entries = Entries(whole, evaluator, request.objects, SAMPLED_ENTRIES[0], stream(request.seed, 7, turn))
    error = entries.error(whole)
    if directions.is_vague(error, goal):
        entries.redraw(whole, SAMPLED_ENTRIES[1], stream(request.seed, 8, turn))
        error = entries.error(whole)
    given = None if wanted is None else int(np.minimum(wanted, built.core.ranks).sum())
    return Measured(error, entries, directions, given)


@dataclass(frozen=True, eq=False)
class Directions:
    """The directions of all blocks in the order of what each carries per byte, and what the first of them have.

    ``nbytes`` and ``lost`` have one number for each count of directions kept, (r + 1,).
    """

    dtype: str
    storage_error: float  # what storage is expected to add
    owner: Indices  # block of each direction, (r,)
    order: Indices  # directions, the most worth first, (r,)
    least: Indices  # rank that each block keeps at least: 1 if it has any direction
    nbytes: Indices
    lost: Array  # squares of the core that are given up
    held: float  # squares of the core, all of them

    @classmethod
    def of(
        cls, built: Draft, sizes: Indices, dtype: str, storage_error: float, first: Indices | None = None
    ) -> Directions:
        """Of a draft with blocks of ``sizes`` rows; the ``first`` directions of each block come before others."""
        counts = np.array([len(e) for e in built.energies])
        owner = np.repeat(np.arange(len(counts)), counts)
        number = np.concatenate([np.arange(k) for k in counts])  # place in its block, the strongest first
        cost = sizes * ITEM_BYTES[dtype] + 16.0 * len(number)
        worth = -np.concatenate(built.energies) / cost[owner]
        later = np.zeros(len(number)) if first is None else number >= first[owner]
        order = np.lexsort((worth, later))
        rows, squares = sizes[owner[order]], 2 * number[order] + 1  # k² is the sum of the first k odd numbers
        kept = np.arange(len(number) + 1)
        nbytes = held_bytes(int(sizes.sum()), _sums(rows), kept**2, _sums(squares), dtype)
        lost, held = _lost_squares(built, order, counts)
        return cls(dtype, storage_error, owner, order, np.minimum(1, counts), nbytes, lost, held)

    def ranks(self, kept: int) -> Indices:
        """The rank of each block where so many directions are kept."""
        counts = np.bincount(self.owner[self.order[:kept]], minlength=len(self.least))
        return np.asarray(np.maximum(counts, self.least))

    def errors(self, whole: float) -> Array:
        """The error for each count of directions kept, (r + 1,), if M is the best core for its bases.

        ``whole`` is the error of all directions. |K|² is what F has, and what it lacks.
        """
        norm = self.held / max(1.0 - whole**2, 0.1)
        return np.asarray(np.sqrt(whole**2 + self.lost / (norm or 1.0) + self.storage_error**2))

    def fewest(self, error: float, goal: Goal) -> int:
        """How many directions meet the target in the fewest bytes, or carry most in the memory."""
        fits = max(1, int(np.searchsorted(self.nbytes, goal.max_memory, side="right")) - 1)
        fits = min(fits, len(self.order))  # a matrix of zeros has no direction
        if goal.max_error is None:
            return fits
        errors = self.errors(error)[: fits + 1]
        aim = max(AIMED_SHARE * goal.max_error, MISSED_TARGET_RATIO * float(errors[-1]))
        return min(fits, max(1, int(np.argmax(errors <= aim))))

    def is_vague(self, error: ErrorEstimate, goal: Goal) -> bool:
        """Whether the interval is so wide that it costs bytes, or another build."""
        if goal.max_error is None:
            return False
        sure, likely = (self.errors(e)[-1] <= AIMED_SHARE * goal.max_error for e in (error.high, error.relative))
        if not likely:
            return False
        most, least = (int(self.nbytes[self.fewest(e, goal)]) for e in (error.high, error.relative))
        return bool(not sure or most > WIDE_INTERVAL * least)


def _lost_squares(built: Draft, order: Indices, counts: Indices) -> tuple[Array, float]:
    """The squares of the core that are lost for each count of directions kept, (r + 1,), and the sum of all squares.

    They are summed from the weakest direction on, as small differences of large sums would be rounding.
    """
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    places = np.split(place, np.cumsum(counts)[:-1])  # of the directions of each block, ascending
    added = np.zeros(len(order))  # what each direction adds to those before it
    for i, j, square in built.squares():
        for a, b, s in ((i, j, square), (j, i, square.T)) if i != j else ((i, j, square),):
            before = np.searchsorted(places[b], places[a])  # how many directions of b come before each of a
            along = np.concatenate([np.zeros((len(s), 1)), s.cumsum(1)], axis=1)
            added[places[a]] += 2.0 * along[np.arange(len(s)), before] + (np.diagonal(s) if a == b else 0.0)
    return np.append(added[::-1].cumsum()[::-1], 0.0), float(added.sum())


def _sums(values: Indices) -> Indices:
    """0, the first value, the sum of the first two, ..."""
    return np.concatenate([[0], np.cumsum(values)])


# -- trim --------------------------------------------------------------------------------------------------------------


def trim(measured: Measured, goal: Goal) -> tuple[Indices, Candidate]:
    """The ranks that meet the goal in the fewest bytes, by the upper end of the interval, and what they come to."""
    directions, error = measured.directions, measured.error
    kept = directions.fewest(error.high, goal) if measured.given_rank is None else measured.given_rank
    ranks, expected = directions.ranks(kept), float(directions.errors(error.relative)[kept])
    return ranks, _candidate(ranks, directions.dtype, int(directions.nbytes[kept]), expected, "built")


def _higher_rank(
    request: Request, measured: Measured, proposed: Proposed, goal: Goal, evaluator: Evaluator
) -> int | None:
    """A rank that may reach the target where all directions miss it; None if none is needed, or possible."""
    errors = measured.directions.errors(measured.error.high)
    error, before = float(errors[-1]), float(errors[len(errors) // 2])
    if goal.rank is not None or goal.max_error is None or error <= AIMED_SHARE * goal.max_error:
        return None
    assert request.n_blocks is not None
    assert request.rank is not None
    slope = max(math.log2(before / error), 0.2) if error > 0.0 else 1.0  # the error falls as this power of the rank
    factor = np.clip(1.05 * (error / (AIMED_SHARE * goal.max_error)) ** (1.0 / slope), *RANK_GROWTH)
    higher = min(math.ceil(request.rank * float(factor)), _most(request.n_blocks, measured.directions.dtype, goal))
    if higher <= request.rank:
        return None
    clusters, allowed = proposed.clusters, proposed.per_object
    if allowed is not None and higher > _payable_rank(
        request.n, clusters.n_blocks, allowed, evaluator, _embedded(clusters)
    ):
        return None
    return higher


# -- the result --------------------------------------------------------------------------------------------------------


def _candidate(ranks: Indices, dtype: str, nbytes: int, error: float, stage: str) -> Candidate:
    return Candidate(len(ranks), round(float(ranks.mean())), dtype, int(nbytes), error=error, stage=stage)


def _reason(f: Factorization, error: ErrorEstimate, asked: Goal, goal: Goal, proposed: Proposed) -> str:
    """Why the search ended; warns where the target is missed."""
    per_object, target = proposed.per_object, asked.max_error
    if target is None:
        if proposed.is_limited:
            limit = f"not the memory but similarities are the limit, {per_object} an object"
            return f"{limit}: give n_blocks and rank for more"
        return "memory budget" if f.nbytes > USED_MEMORY * goal.max_memory else "no gain from more memory"
    if error.relative <= target:
        return "target met"
    fixed, unlimited = asked.rank is not None, math.isinf(asked.max_memory)
    advice = f"Allow more {'rank' if fixed else 'memory'}, or a larger error."
    if unlimited and not fixed:
        advice = "Allow a larger error, another number of blocks, or less drop."
    if per_object is not None:
        advice += (
            f" Similarities are limited to {per_object} an object where nothing else is known of it: give n_blocks and "
            "rank for more."
        )
    elif not fixed and goal.max_memory == 8.0 * asked.n**2:
        advice += f" No more than the {goal.max_memory:.3g} bytes of the matrix itself are used."
    warn(
        f"max_error={target:.3g} was not reached: the best found has a relative error of {error} in {f.nbytes} "
        f"bytes{'' if unlimited else f' of max_memory={asked.max_memory:.4g}'}. {advice}"
    )
    return "target missed"


class _Clock:
    """Seconds spent on choosing, and in all."""

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
