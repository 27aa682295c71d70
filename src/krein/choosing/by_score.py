"""Blocks, rank, storage type and bandwidth by a validated score: objects, targets and a kernel in, a `Selection` out.

The steps are those of `by_error`, with another judge. Candidates are proposed from a few sizes, each after the score of
those before it (`propose`, `propose_within`). Each is built on a sample and measured by ridge on rows held out
(`_Trials.measure`): with the machine's own alpha, or else with the best one. If memory counts, the smallest of those
whose scores cannot be told apart is taken (`trim`). `finish` says what to build.

Two kinds are tried. *One block*, Nyström's approximation, of several ranks: the features of lower ranks are the first
columns of those of the highest, so that one Gram matrix on rows from everywhere serves all ranks and alphas. *Uncoupled
blocks*, up to thousands of them: what counts is how many rows each has, so they are built on whole regions of the data,
where rows are as dense as in all of it. Objects that have nothing but similarities are not scored: that would take more
of them than building.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
import scipy.linalg

from krein.approximation import Approximation
from krein.approximation.assignment import ASSIGNMENTS, nearest_block
from krein.approximation.clusters import partition
from krein.approximation.nystrom import features, gram_of
from krein.approximation.piecewise import partition_rows
from krein.arrays import Array, Indices, stream
from krein.choosing import approximate, whole_approximation
from krein.choosing.candidates import (
    ITEM_BYTES,
    Candidate,
    Selection,
    bytes_of,
    landmark_shape,
    shapes,
    shapes_within,
)
from krein.errors import InputError, KreinWarning, one_of
from krein.factorization import Factorization
from krein.factorization.correction import changed
from krein.factorization.eigensystem import eigensystem
from krein.kernels import Evaluator, FromCallable, Kernel, count_objects, is_vectors, take
from krein.kernels.validation import has_only_similarities
from krein.pieces.rows import RowPieces
from krein.policy import DEFAULT, Policy
from krein.solvers.leave_one_out import decompose

__all__ = ["Chooser", "codes"]

# Without an alpha of its own a candidate is scored with the best of these, in units of the mean k(x, x).
ALPHAS = np.logspace(-4.0, 1.0, 6)
# It is scored with at least this one, in the same units, as smaller ones leave systems that are singular.
LEAST_ALPHA = 1e-6
# gamma is tuned on these multiples of its default, then at half and twice the best.
GAMMA_FACTORS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)
# gamma is tuned on one block of at most this rank.
TUNED_RANK = 512
# gamma is tuned on so many coupled blocks where their number is open.
TUNED_BLOCKS = 16
# One block is scored at all ranks up to this one at once. A higher one follows only if the last gain, once more, would
# make it the best.
FIRST_RANK = 1024
# Several coupled blocks are scored at the highest rank with at most this many directions together.
COUPLED_DIRECTIONS = 1024
# Scores of fewer rows than this say nothing, so up to as many are all held out.
FEWEST_SCORED = 100
# Uncoupled blocks are scored with this many rows per direction at least.
ROWS_PER_BLOCK_DIRECTION = 1.25
# Storage types that are scored beside that of X within a memory limit.
SMALL_TYPES = ("float16", "int8")


@dataclass(frozen=True, eq=False)
class Chooser:
    """What a machine learns, which is enough to score approximations of its rows.

    ``targets`` are values, or +1 and -1 for classes (`codes`), (n, p). ``task`` is "regression" or "classification".
    ``tune``: whether the gamma of the kernel is chosen too. ``alpha``: that of ridge, if it is given.
    """

    targets: Array
    task: str
    tune: bool = False
    policy: Policy = DEFAULT
    alpha: float | None = None

    def __post_init__(self) -> None:
        one_of("task", self.task, ("regression", "classification"))
        object.__setattr__(self, "targets", np.asarray(self.targets, dtype=np.float64).reshape(len(self.targets), -1))

    @property
    def key(self) -> tuple[str, str, bool, Policy, float | None]:
        """What a choice depends on beside the objects, the kernel and the seed."""
        return str(joblib.hash(self.targets)), self.task, self.tune, self.policy, self.alpha

    def alphas(self, unit: float) -> Array:
        """The alphas at which candidates are scored, ``unit`` being the mean k(x, x)."""
        return ALPHAS * unit if self.alpha is None else np.array([max(self.alpha, LEAST_ALPHA * unit)])

    def __call__(
        self,
        objects: Any,
        kernel: Kernel,
        *,
        n_blocks: int | str = "auto",
        rank: int | str = "auto",
        coupling: str = "shared",
        drop: float | str = "auto",
        max_error: float | None = None,
        max_memory: float | None = None,
        dtype: Any = "auto",
        seed: int = 0,
        verbose: int = 0,
        **_: Any,
    ) -> Selection:
        """Return the best candidate within ``max_memory``, by default that of the policy; what is given is kept."""
        begun = time.perf_counter()
        if self.tune and not isinstance(getattr(kernel, "gamma", None), int | float):
            raise InputError(f'gamma="tune" needs a kernel with a gamma; {kernel!r} has none.')
        asked = {"n_blocks": n_blocks, "rank": rank, "drop": "auto", "dtype": dtype, "max_memory": max_memory}
        fixed = n_blocks != "auto" and rank != "auto"
        is_open = not fixed and max_error is None and coupling == "shared"
        similarities_only = is_open and has_only_similarities(objects, kernel)

        def finish(
            reason: str, tuned: Kernel | None = kernel, best: Candidate | None = None, **found: Any
        ) -> Selection:
            """What to build: what was asked for, and over it what was ``found``."""
            tried = tuple(trials.tried) if trials else ()
            return Selection(
                tried, reason, None if best is None else [t.key for t in tried].index(best.key), asked | found, tuned,
                n_scored=len(trials.held) if trials else 0, seconds=time.perf_counter() - begun,
            )  # fmt: skip

        trials = None
        if is_open and not self.tune:
            if whole := _feature_dimension(objects, kernel, asked, self.policy):
                exact = f"exact: the kernel has {whole} features"
                return finish(exact, n_blocks=1, rank=whole, drop=0.0, max_memory=None)
            if similarities_only:
                return finish(**_by_rule(objects, asked, drop, self.policy))
        trials = _Trials(objects, kernel, self, asked, seed, verbose)
        if is_open and not similarities_only:
            best = propose_within(trials) if trials.is_tight else propose(trials)
        else:
            best = trials.measure(trials.for_gamma())
        if best is None:
            return finish("no candidate fits max_memory: the matrix error decides")
        if self.tune:
            best = tune(trials, best)
        if similarities_only:
            return finish(tuned=best.kernel, **_by_rule(objects, asked, drop, self.policy))
        if not is_open:
            return finish("the best gamma", best.kernel)
        if not trials.is_tight:  # memory that is given is there to be used
            best = trim(trials, best)
        kind = ("coupled blocks" if best.n_blocks > 1 else "one block") if best.coupled else "uncoupled blocks"
        return finish(
            f"{kind} of rank {best.rank}: the best score, {best.score:.4f}, or as good", best.kernel, best,
            n_blocks=best.n_blocks, rank=best.rank, drop=0.0 if best.coupled else 1.0, dtype=best.dtype,
            assignment=best.assignment, max_memory=None,
        )  # fmt: skip


def codes(labels: Any) -> Array:
    """Return +1 where a row has a class and -1 where not, (n, number of classes); one column for two classes."""
    values, places = np.unique(np.asarray(labels), return_inverse=True)
    signs = np.where(places[:, None] == np.arange(len(values)), 1.0, -1.0)
    return signs[:, 1:] if len(values) == 2 else signs


# -- choices without a score -------------------------------------------------------------------------------------------


def _feature_dimension(objects: Any, kernel: Kernel, asked: dict[str, Any], policy: Policy) -> int | None:
    """The dimension of the kernel's feature space, if one block of that rank is exact and fits; else None."""
    if (asked["n_blocks"], asked["rank"]) != ("auto", "auto") or not is_vectors(objects):
        return None
    dimension, n = kernel.feature_dimension(objects.shape[1]), count_objects(objects)
    if dimension is None or dimension > min(policy.coupled_directions, n // 2):
        return None
    fits = bytes_of(n, 1, dimension, "float64") <= (asked["max_memory"] or policy.default_memory)
    return int(dimension) if fits else None


def _by_rule(objects: Any, asked: dict[str, Any], drop: Any, policy: Policy) -> dict[str, Any]:
    """What to build of objects that have nothing but similarities, of which nothing is tried."""
    n_blocks, rank = (None if asked[name] == "auto" else int(asked[name]) for name in ("n_blocks", "rank"))
    types = ("float64", *SMALL_TYPES) if asked["dtype"] == "auto" else (str(np.dtype(asked["dtype"])),)
    room = asked["max_memory"] or policy.default_memory
    found = landmark_shape(count_objects(objects), room, types, n_blocks, rank, policy)
    if found is None or drop not in ("auto", 0.0):  # coupling="landmark" couples all blocks
        return {"reason": "similarities may be expensive, and nothing was tried: the matrix error decides"}
    return {
        "reason": 'similarities may be expensive: coupling="landmark" takes the fewest, and nothing was tried',
        "n_blocks": found[0], "rank": found[1], "dtype": found[2], "drop": 0.0, "max_memory": None,
        "coupling": "landmark",
    }  # fmt: skip


# -- propose -----------------------------------------------------------------------------------------------------------


def propose(trials: _Trials) -> Candidate | None:
    """The best of one block, or of as many coupled ones as are given, and of uncoupled blocks.

    None if the memory allows none.
    """
    policy, c = trials.policy, trials.n_blocks or 1
    ranks = policy.one_block_ranks if trials.rank is None else (trials.rank,)
    possible = [k for k in ranks if trials.is_possible(trials.candidate(c, k))]
    first = [k for k in possible if k <= FIRST_RANK] or possible[:1]
    if first and (c > 1 or trials.one_block(first) is None):
        few = first if trials.rank is not None else [k for k in first if c * k <= COUPLED_DIRECTIONS][-1:]
        for k in few:
            trials.measure(trials.candidate(c, k))
    if trials.n_blocks != 1:
        _propose_uncoupled(trials)
    for k in possible[len(first) :] if c == 1 else []:
        scores = [t.quality[0] for t in trials.tried if t.coupled]  # by rank
        gain = scores[-1] - scores[-2] if len(scores) > 1 else math.inf
        if gain <= 0.0 or scores[-1] + gain < trials.best.quality[0] or trials.one_block([k]) is None:
            break
    return trials.best if trials.tried else None


def _propose_uncoupled(trials: _Trials) -> None:
    """Measure uncoupled blocks from the middle size on to larger and smaller ones, then higher ranks."""
    policy = trials.policy

    def of_rows(n_rows: int) -> Candidate | None:
        c = trials.n_blocks or max(2, round(trials.n / max(1, n_rows)))
        k = trials.rank or min(policy.block_rank, max(1, trials.n // (2 * c)))
        return trials.measure_if_possible(trials.candidate(c, k, coupled=False))

    other = trials.best.quality[0] if trials.tried else -math.inf
    sizes = policy.block_rows if trials.n_blocks is None else (trials.n // trials.n_blocks,)
    middle = len(sizes) // 2
    best = of_rows(sizes[middle])
    if best is not None and best.quality[0] < other - policy.block_score_gap:
        return
    for step in (1, -1):
        at = middle + step
        while 0 <= at < len(sizes):
            found = of_rows(sizes[at])
            if found is not None and best is not None and found.quality < best.quality:
                break
            best, at = found or best, at + step
    while trials.rank is None and best is not None and 2 * best.rank <= policy.highest_block_rank:
        numbers = {best.n_blocks, trials.n_blocks or max(2, best.n_blocks // 2)}
        higher = [
            trials.measure_if_possible(trials.candidate(c, 2 * best.rank, coupled=False)) for c in sorted(numbers)
        ]
        better = _leader([best, *(t for t in higher if t is not None)])
        if better is best:
            break
        best = better


def propose_within(trials: _Trials) -> Candidate | None:
    """The best of what fits the given memory; None if nothing does."""

    def measure(n_blocks: int, rank: int, coupled: bool, dtype: str) -> Candidate:
        return trials.measure(trials.candidate(n_blocks, rank, coupled=coupled, dtype=dtype))

    trials.tried = tried_within(
        trials.n, trials.room, trials.types, trials.n_blocks, trials.rank, trials.policy, measure
    )
    return trials.best if trials.tried else None


def tried_within(
    n: int, room: float, types: tuple[str, ...], n_blocks: int | None, rank: int | None, policy: Policy,
    measure: Callable[[int, int, bool, str], Candidate],
) -> list[Candidate]:  # fmt: skip
    """Measure candidates within ``room`` bytes and return those that fit.

    Every second shape in the widest and the smallest type comes first, then the neighbours of the best in all types.
    What small types take is known only once they are filled: where it is too much, the rank is lowered.
    """
    tried: list[Candidate] = []

    def attempt(shape: tuple[int, bool], some: Sequence[str]) -> None:
        for k, dtype in shapes_within(n, room, some, shape, policy, rank):
            found = measure(shape[0], k, shape[1], dtype)
            while found.nbytes > room and rank is None and found.rank > 1:
                less = max(1, min(found.rank - 1, int(found.rank * room / found.nbytes)))
                found = measure(shape[0], less, shape[1], dtype)
            if found.nbytes <= room and found not in tried:
                tried.append(found)

    every = shapes(n, policy, n_blocks)
    for shape in every[::-2] if n_blocks is None else every:
        attempt(shape, types[:: max(1, len(types) - 1)])
    if tried:
        best = _leader(tried)
        at = every.index((best.n_blocks, best.coupled))
        for shape in every[max(0, at - 1) : at + 2]:
            if shape[1] == best.coupled:
                attempt(shape, types)
    return tried


def tune(trials: _Trials, best: Candidate) -> Candidate:
    """The best gamma for these blocks: a wide grid, then halfway to the neighbours of its best."""
    start = float(trials.kernel.gamma)  # type: ignore[attr-defined]
    rank = min(best.rank, TUNED_RANK) if best.n_blocks == 1 and best.rank < trials.n else best.rank

    def at(factor: float) -> Candidate:
        kernel = replace(trials.kernel, gamma=start * factor)  # type: ignore[type-var]
        return trials.measure(trials.candidate(best.n_blocks, rank, kernel, best.coupled, best.dtype))

    found = _leader([at(factor) for factor in GAMMA_FACTORS])
    centre = float(found.kernel.gamma) / start  # type: ignore[union-attr]
    found = _leader([at(centre * factor) for factor in (0.5, 1.0, 2.0)])
    if found.rank == best.rank:
        return found
    return trials.measure(trials.candidate(best.n_blocks, best.rank, found.kernel, best.coupled, best.dtype))


def _leader(candidates: Sequence[Candidate]) -> Candidate:
    """The best score, and the lowest squared error of equal ones."""
    return max(candidates, key=lambda t: t.quality)


# -- trim --------------------------------------------------------------------------------------------------------------


def trim(trials: _Trials, best: Candidate) -> Candidate:
    """The least memory above ``free_memory`` among candidates whose losses cannot be told from those of the best.

    The best of equal ones is taken.
    """
    near, policy = [best], trials.policy
    for t in trials.tried:
        if t.kernel == best.kernel and t.key in trials.losses:
            more = trials.losses[t.key] - trials.losses[best.key]
            noise = policy.score_standard_errors * float(more.std()) / math.sqrt(len(more))
            near += [t] if float(more.mean()) <= noise else []
    return max(near, key=lambda t: (-max(t.nbytes, policy.free_memory), *t.quality))


# -- build and measure -------------------------------------------------------------------------------------------------


class _Trials:
    """The rows that candidates are built on, the rows they are measured on, and the candidates measured so far."""

    def __init__(
        self, objects: Any, kernel: Kernel, want: Chooser, asked: dict[str, Any], seed: int, verbose: int
    ) -> None:
        self.objects, self.kernel, self.want, self.seed, self.verbose = objects, kernel, want, seed, verbose
        self.n, self.policy = count_objects(objects), want.policy
        self.n_blocks = None if asked["n_blocks"] == "auto" else int(asked["n_blocks"])
        self.rank = None if asked["rank"] == "auto" else int(asked["rank"])
        self.room = asked["max_memory"] or self.policy.default_memory
        self.is_tight = asked["max_memory"] is not None
        # Up to exact_rows all similarities are evaluated anyway.
        self.similarities_only = self.n > self.policy.exact_rows and has_only_similarities(objects, kernel)
        self.is_expensive = not is_vectors(objects) or isinstance(kernel, FromCallable)
        own = "float32" if getattr(objects, "dtype", None) == np.float32 else "float64"
        self.types = (own, *SMALL_TYPES) if asked["dtype"] == "auto" else (str(np.dtype(asked["dtype"])),)
        self.dtype = self.types[0]
        if asked["dtype"] == "auto" and not self.is_tight:
            usual = self.candidate(-(-self.n // 256), 64, coupled=False)
            self.dtype = "float32" if usual.nbytes > self.room else own  # bases need few digits
        self.spread = float(np.square(want.targets - want.targets.mean(0)).sum())
        self.rows = self._regions()
        count = min(len(self.rows), self.policy.held_out_rows, max(len(self.rows) // 4, FEWEST_SCORED))
        self.held = self.rows if self.is_tight else np.sort(stream(seed, 33).choice(self.rows, count, replace=False))
        self.tried: list[Candidate] = []
        self.losses: dict[Any, Array] = {}  # of each candidate, by its key: one number per row held out

    def _regions(self) -> Indices:
        """Rows of whole regions of the data, about as many as the policy says."""
        few = self.policy.expensive_rows
        if self.similarities_only:  # gamma alone is tuned, on the same rows for each
            return np.sort(stream(self.seed, 31).choice(self.n, min(few, self.n // 8), replace=False))
        count = few if self.is_expensive else self.policy.score_rows
        if self.n <= 1.5 * count:
            return np.arange(self.n)
        wanted = round(self.policy.score_regions * self.n / count)
        if isinstance(self.objects, RowPieces):
            parts = partition_rows(self.objects, wanted, self.seed)
        else:
            parts = partition(self.objects, wanted, Evaluator(self.kernel), self.seed)
        order = stream(self.seed, 31).choice(  # the larger the more likely, as rows are
            parts.n_blocks, parts.n_blocks, replace=False, p=parts.sizes / self.n
        )
        enough = 1 + int(np.searchsorted(np.cumsum(parts.sizes[order]), 0.75 * count))
        chosen = [parts.order[parts.starts[i] : parts.starts[i + 1]] for i in order[:enough]]
        # One region may hold most rows (many equal ones): then a piece of it has to do.
        return np.sort(np.concatenate(chosen)[: 2 * count])

    @property
    def best(self) -> Candidate:
        """The best so far."""
        return _leader(self.tried)

    def candidate(
        self, n_blocks: int, rank: int, kernel: Kernel | None = None, coupled: bool = True, dtype: str | None = None
    ) -> Candidate:
        """A candidate that is not measured yet; its bytes are a forecast."""
        dtype = dtype or self.dtype
        nbytes = bytes_of(self.n, n_blocks, rank, dtype, coupled)
        if not self.is_tight:
            nbytes += self._prediction_bytes(n_blocks, rank, coupled, dtype)
        return Candidate(n_blocks, rank, dtype, nbytes, coupled=coupled, kernel=kernel or self.kernel)

    def _prediction_bytes(self, n_blocks: int, rank: int, coupled: bool, dtype: str) -> int:
        """Bytes that predictions need beside the factorization: landmarks and their maps, about."""
        width = ITEM_BYTES[dtype] * (self.objects.shape[1] if is_vectors(self.objects) else 1)
        if n_blocks == 1:
            return rank * (width + 8)
        landmarks = 6 * rank if coupled else min(2 * rank, max(rank, self.n // (2 * n_blocks)))
        return n_blocks * (landmarks * (8 * rank + width) + 8 * rank**2)

    def for_gamma(self) -> Candidate:
        """What is measured where gamma alone is open."""
        if self.similarities_only:
            return self.candidate(1, self.n)  # exact on the sample
        return self.candidate(self.n_blocks or TUNED_BLOCKS, self.rank or self.policy.block_rank)

    def is_possible(self, t: Candidate) -> bool:
        """Whether it fits the memory and there are rows enough to measure it."""
        if t.n_blocks < 1 or t.rank < 1 or t.nbytes > self.room:
            return False
        directions = t.n_blocks * t.rank
        if t.coupled:
            most = self.n // 2 if t.n_blocks == 1 else min(self.n // 2, self.policy.coupled_directions)
            return directions <= most
        # Regions have to hold a few blocks, and blocks more rows than directions.
        several = t.n_blocks * len(self.rows) >= self.policy.score_regions * self.n
        return several and ROWS_PER_BLOCK_DIRECTION * directions <= self.n

    def measure_if_possible(self, t: Candidate) -> Candidate | None:
        """The candidate with its score; None if it is not possible."""
        return self.measure(t) if self.is_possible(t) else None

    def measure(self, t: Candidate) -> Candidate:
        """The candidate with its score on the rows held out; what was measured before is not measured again."""
        for known in self.tried:
            if known.key == t.key:
                return known
        batched = t.n_blocks == 1 and t.coupled and t.rank < self.n // 2
        batched = batched and not (self.is_tight or self.similarities_only)
        if batched and (ranks := self.one_block([t.rank], t.kernel)) is not None:
            return ranks[-1]
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KreinWarning)
            a, sample = self.build(t)
            share = len(sample) / self.n if t.coupled else 1.0
            found = self._left_out(a, sample, share, ASSIGNMENTS[: 1 if t.coupled else 2])
        assignment = "centre"
        if not t.coupled:  # landmarks have to be better by more than noise
            less = found["centre"][2] - found["landmark"][2]
            noise = self.policy.score_standard_errors * float(less.std()) / math.sqrt(len(less))
            assignment = "landmark" if float(less.mean()) > noise else "centre"
        score, squared_error, losses = found[assignment]
        seconds, held = time.perf_counter() - start, t.nbytes
        if self.is_tight:
            f = a.factorization
            fixed = _core_and_map_bytes(f) if t.coupled else 0
            held = round((f.nbytes - fixed) * self.n / len(sample)) + fixed
        scored = replace(t, score=score, squared_error=squared_error, nbytes=held, seconds=seconds)
        return self._record(replace(scored, assignment=assignment), losses)

    def build(self, t: Candidate) -> tuple[Approximation, Indices]:
        """The approximation of a sample of the rows as the candidate has it of all, and the sample."""
        sample, blocks = self.rows, t.n_blocks
        if t.coupled:
            sample = self._drawn(t.n_blocks * t.rank)
        else:
            blocks = max(1, round(t.n_blocks * len(self.rows) / self.n))
            if len(self.held) < len(self.rows):
                sample = np.setdiff1d(self.rows, self.held, assume_unique=True)
        objects, seed = take(self.objects, sample), self.seed % 2**32
        if t.rank >= self.n:
            return whole_approximation(objects, t.kernel, seed), sample
        a = approximate(
            objects, t.kernel, n_blocks=blocks, rank=t.rank, drop=0.0 if t.coupled else 1.0, dtype=t.dtype,
            random_state=seed,
        )  # fmt: skip
        return a, sample

    def _record(self, t: Candidate, losses: Array) -> Candidate:
        self.tried.append(t)
        self.losses[t.key] = losses
        if self.verbose > 0:
            print(f"{t.n_blocks} blocks of rank {t.rank}, {'' if t.coupled else 'un'}coupled: {t.score:.4f}")
        return t

    def one_block(self, ranks: list[int], kernel: Kernel | None = None) -> list[Candidate] | None:
        """Measure one block at all of these ranks, ascending; None if the kernel turns out to be indefinite.

        F = k(X, Z) L⁻ᵀ, L the Cholesky factor of k(Z, Z): the first j columns are the features of the first j
        landmarks. Ridge with an intercept is (FᵀF + t I) w = Fᵀy on centred columns, the leading part for each rank.
        """
        kernel, start = kernel or self.kernel, time.perf_counter()
        rest = np.setdiff1d(np.arange(self.n), self.held, assume_unique=True)
        policy, rng = self.policy, stream(self.seed, 34)
        most = max(policy.rows_per_direction * ranks[-1], policy.fewest_fitted_rows)
        most = policy.expensive_rows if self.is_expensive else most
        rows = np.sort(rng.choice(rest, most, replace=False)) if most < len(rest) else rest
        landmarks = rng.permutation(rows)[: ranks[-1]]
        found = features(kernel, self.objects, landmarks, (rows, self.held))
        if found is None:
            return None
        F, H = found
        y, truth = self.want.targets[rows], self.want.targets[self.held]
        centre, mean = F.mean(0, dtype=np.float64), y.mean(0)
        gram = gram_of(F) - len(rows) * np.outer(centre, centre)
        right = F.T @ (y - mean).astype(F.dtype) - np.outer(centre, (y - mean).sum(0))
        unit = float(np.einsum("ij,ij->", H, H, dtype=np.float64)) / len(H) or 1.0
        measured, shared = [], (time.perf_counter() - start) / len(ranks)
        for k in (k for k in ranks if k <= len(centre)):
            start = time.perf_counter()
            values = []
            for t in (self.want.alphas(unit) * len(rows) / self.n).tolist():
                moved = gram[:k, :k] + t * np.eye(k)
                w = scipy.linalg.solve(moved, right[:k], assume_a="pos", overwrite_a=True, check_finite=False)
                values.append(self._value(truth, truth - mean - (H[:, :k] @ w - centre[:k] @ w)))
            score, squared_error, losses = max(values, key=_first)
            seconds = shared + time.perf_counter() - start
            t = replace(self.candidate(1, k, kernel), score=score, squared_error=squared_error, seconds=seconds)
            measured.append(self._record(t, losses))
        return measured

    def _drawn(self, directions: int) -> Indices:
        """Rows from everywhere to fit so many directions to."""
        if self.similarities_only:
            return self.rows
        policy = self.policy
        least = policy.expensive_rows if self.is_expensive else policy.fewest_fitted_rows
        count = max(policy.rows_per_direction * directions, least)
        if 1.5 * count >= self.n:
            return np.arange(self.n)
        return np.sort(stream(self.seed, 32).choice(self.n, count, replace=False))

    def _left_out(
        self, a: Approximation, sample: Indices, share: float, assignments: Sequence[str]
    ) -> dict[str, tuple[float, float, Array]]:
        """For each assignment the best score over alphas of the rows held out: left out of the sample, or predicted."""
        f, system = a.factorization, None
        if not a.kernel.traits.psd:  # flipped, and decomposed once for that and for ridge
            system = eigensystem(f.core, f.ranks)
            values, shift = changed("flip", system.values, f.shift)
            f, system = f.with_core(system.core(values), shift), system.with_values(values)
        y = self.want.targets[sample]
        unit = float(np.abs(f.diagonal()).mean()) or 1.0
        ridges = self.want.alphas(unit) * share
        inside = np.flatnonzero(np.isin(sample, self.held, assume_unique=True))
        outside = np.setdiff1d(self.held, sample, assume_unique=True)
        numbers = np.concatenate([sample[inside], outside])
        order, truth = np.argsort(numbers, kind="stable"), self.want.targets[numbers]
        path = decompose(f, np.ones(len(sample)), system)
        errors: Array = np.empty((len(ridges), 0, y.shape[1]))
        if len(inside):
            errors = path.left_out(y, ridges, np.ones(len(sample)), inside, intercept=True)
        predicted = {how: self._predicted(a, how, sample, inside, outside) for how in assignments}
        found: dict[str, list[tuple[float, float, Array]]] = {how: [] for how in assignments}
        for t, left in zip(ridges.tolist(), errors, strict=True):
            if any(len(which) for which, _ in predicted.values()):
                both = path.solve(np.column_stack([y, np.ones(len(y))]), t)
                offset = both[:, :-1].sum(0) / both[:, -1].sum()
                inner = f.core @ f.project(both[:, :-1] - both[:, -1:] * offset)
            for how, (which, rows) in predicted.items():
                error = np.concatenate([left, np.empty((len(outside), y.shape[1]))])
                if len(which):
                    error[which] = truth[which] - rows @ inner - offset
                found[how].append(self._value(truth[order], error[order]))
        return {how: max(values, key=_first) for how, values in found.items()}

    def _predicted(
        self, a: Approximation, assignment: str, sample: Indices, inside: Indices, outside: Indices
    ) -> tuple[Indices, Any]:
        """Which of the rows held out are predicted, ``inside`` the sample or not, and their rows of U.

        A row of the sample is left out of its own block in closed form. One whose nearest other landmark lies in
        another block is predicted by that block, which has not seen it.
        """
        evaluator = Evaluator(a.kernel)

        def blocks(numbers: Indices, rows: Indices | None = None) -> Indices:
            return nearest_block(assignment, a.partition, a.maps, evaluator, take(self.objects, numbers), rows=rows)

        own = a.partition.labels[inside]
        labels = own if assignment == "centre" else blocks(sample[inside], inside)
        moved = np.flatnonzero(labels != own)
        which = np.concatenate([moved, len(inside) + np.arange(len(outside))])
        if not len(which):
            return which, None
        labels = np.concatenate([labels[moved], blocks(outside) if len(outside) else outside])
        return which, a.extend_in(labels, take(self.objects, np.concatenate([sample[inside][moved], outside])))

    def _value(self, truth: Array, errors: Array) -> tuple[float, float, Array]:
        """The score, the mean squared error, and what each row loses of the score."""
        squares = np.square(errors).sum(1)
        mean = float(squares.mean())
        if not math.isfinite(mean):
            return -math.inf, math.inf, np.full(len(truth), np.inf)
        if self.want.task == "regression":
            losses = squares * (self.n / (self.spread or 1.0))
        else:
            guess = truth - errors
            one = truth.shape[1] == 1
            right = (guess > 0.0) == (truth > 0.0) if one else guess.argmax(1) == truth.argmax(1)
            losses = 1.0 - right.reshape(len(truth)).astype(np.float64)
        return 1.0 - float(losses.mean()), mean, losses


def _first(value: tuple[float, float, Array]) -> tuple[float, float]:
    """The score, then the squared error, in the order of what is better."""
    return value[0], -value[1]


def _core_and_map_bytes(f: Factorization) -> int:
    """Bytes that do not grow with the number of rows."""
    return int(f.nbytes - sum(B.nbytes for B in f.bases.blocks) - f.order.nbytes)  # type: ignore[union-attr]
