"""Blocks, rank and bandwidth by a validated score: objects, targets and a kernel in, a `Choice` out.

The number of blocks is a modelling choice as much as a matter of error: thousands of blocks with nothing between them
learn what one matrix of the same bytes cannot. Two kinds are tried. Blocks *on their own*: what counts is how many rows
each has, so they are tried on whole regions of the data, where rows lie as densely as in all of it, and what is left
out there is met about as well as it will be. *Coupled* ones: few, of higher rank and all linked, built on rows drawn
from everywhere. Both are scored on the same rows, those of the regions, by ridge: rows of the sample are left out in
closed form, others are predicted. Each candidate has its best alpha, so that a grid over alpha or C finds the same
blocks and builds them once.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np

from krein.approximation import Approximation, approximate
from krein.arrays import Array, Indices, stream
from krein.building import APART
from krein.correction import changed
from krein.eigensystem import eigensystem
from krein.error_estimate import EXACT_ROWS
from krein.errors import InputError, KreinWarning, one_of
from krein.estimators.budget import Trial, leader, within
from krein.estimators.chosen import MAX_MEMORY, SMALL, Choice, unscored
from krein.kernels import Evaluator, FromCallable, Kernel, count_objects, is_vectors, take
from krein.objects import is_bare
from krein.partition import partition
from krein.solvers.leave_one_out import decompose

__all__ = ["Choice", "Chooser", "Trial", "codes"]

REGIONS = 8  # whole parts of the data whose rows are scored
SCORED = (8000, 12_000)  # rows in them, a quarter of all between these
DEAR = 1000  # the same where each similarity may be expensive
PER_DIRECTION = 4  # rows from everywhere per direction of a coupled candidate
DRAWN = 6000  # of them at least, if there are so many
PER_BLOCK = (1024, 512, 256, 128, 64, 32, 16)  # rows per block on its own; fewer than
OFTEN = 64  # only where these were the best
RANK, HIGHEST = 64, 256  # of blocks on their own: the first one tried (or half of their rows), and the last
COUPLED = ((8, 128), (1, 256), (32, 32))  # few blocks and their ranks; the others only if the first are not far behind
LARGEST = 2048  # directions of coupled blocks: their spectrum costs the cube,
DEEPEST = 512  # and of each the square for every row: 1 x 1024 takes three times as long as 1 x 512 to try
STEEP = 4  # rows per direction below which a core of several blocks costs more to try than it may gain
FREE = 2.0**26  # bytes that no one has to save
AS_GOOD = 0.02  # of what R² lacks: no difference
FAR = 0.03  # a score so far behind is not caught up with by more of the same
ALPHAS = np.logspace(-4.0, 1.0, 6)  # in units of the mean k(x, x)
WIDTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # times the gamma of "scale", and then between the best and its neighbours
SIZES = {"float64": 8, "float32": 4, "float16": 2, "int8": 1}


@dataclass(frozen=True, eq=False)
class Chooser:
    """What an estimator wants to learn: enough to score an approximation of its rows."""

    targets: Array  # (n, p): values, or +1 and -1 for classes (`codes`)
    task: str  # "regression" or "classification"
    tune: bool = False  # the kernel's gamma too

    def __post_init__(self) -> None:
        one_of("task", self.task, ("regression", "classification"))
        object.__setattr__(self, "targets", np.asarray(self.targets, dtype=np.float64).reshape(len(self.targets), -1))

    @property
    def key(self) -> tuple[str, str, bool]:
        """What a choice depends on beside the objects, the kernel and the seed."""
        return str(joblib.hash(self.targets)), self.task, self.tune

    def has_work(self, n: int, n_blocks: Any, rank: Any, coupling: str, max_error: float | None, **_: Any) -> bool:
        """Whether anything is open: few rows are exact, and where an error is asked for it decides."""
        return self.tune or self._open_blocks(n, n_blocks, rank, coupling, max_error)

    @staticmethod
    def _open_blocks(n: int, n_blocks: Any, rank: Any, coupling: str, max_error: float | None) -> bool:
        fixed = n_blocks != "auto" and rank != "auto"
        return not fixed and n > EXACT_ROWS and max_error is None and coupling == "shared"

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
    ) -> Choice:
        """Return the best candidate; what is given is kept, and what it takes is kept to ``max_memory`` (1 GiB)."""
        if self.tune and not isinstance(getattr(kernel, "gamma", None), int | float):
            raise InputError(f'gamma="tune" needs a kernel with a gamma; {kernel!r} has none.')
        open_blocks = self._open_blocks(count_objects(objects), n_blocks, rank, coupling, max_error)
        begun = time.perf_counter()
        if open_blocks and not self.tune and (rank_of_all := _whole(objects, kernel, n_blocks, rank, max_memory)):
            return Choice(
                1, rank_of_all, 0.0, dtype, None, kernel, (), 0, f"exact: the kernel has {rank_of_all} features",
                time.perf_counter() - begun,
            )  # fmt: skip
        bare = is_bare(objects, kernel)
        if bare and open_blocks and not self.tune:
            return unscored(objects, kernel, n_blocks, rank, max_memory, dtype, drop, begun)
        known = {"n_blocks": n_blocks, "rank": rank, "max_memory": max_memory, "dtype": dtype}
        trials = _Trials(objects, kernel, self, known, seed, verbose)
        tight = open_blocks and max_memory is not None
        over = trials.over_budget if tight else trials.over_blocks
        best = over() if open_blocks and not bare else trials.score(*trials.given(), kernel)
        if best is None:
            return Choice(
                n_blocks, rank, "auto", dtype, max_memory, kernel, (), 0, "no candidate fits max_memory: the matrix "
                "error decides", time.perf_counter() - begun,
            )  # fmt: skip
        if self.tune:
            best = trials.tuned(best)
        if open_blocks and bare:
            found = unscored(objects, best.kernel, n_blocks, rank, max_memory, dtype, drop, begun)
            return replace(found, tried=tuple(trials.tried), n_scored=len(trials.rows))
        if open_blocks and not tight:  # given memory is there to be used
            best = trials.cheapest(trials.climbed(best))
        made = Choice(
            n_blocks, rank, "auto", dtype, max_memory, best.kernel, tuple(trials.tried), len(trials.rows),
            "the best gamma", time.perf_counter() - begun,
        )  # fmt: skip
        if not open_blocks:
            return made
        what = "coupled blocks" if best.coupled else "blocks on their own"
        return replace(
            made, n_blocks=best.n_blocks, rank=best.rank, drop=0.0 if best.coupled else 1.0, dtype=best.dtype,
            max_memory=None, reason=f"{what} have the best score, {best.score:.4f}",
        )  # fmt: skip


def _whole(objects: Any, kernel: Kernel, n_blocks: Any, rank: Any, max_memory: float | None) -> int | None:
    """The dimension of the kernel's feature space, if one block of that rank is exact and fits; else None."""
    if (n_blocks, rank) != ("auto", "auto") or not is_vectors(objects):
        return None
    dimension, n = kernel.feature_dimension(objects.shape[1]), count_objects(objects)
    if dimension is None or dimension > min(LARGEST, n // 2) or 8.0 * n * dimension > (max_memory or MAX_MEMORY):
        return None
    return int(dimension)


def codes(labels: Any) -> Array:
    """Return +1 where a row has a class and -1 where not, (n, number of classes); one column for two classes."""
    values, places = np.unique(np.asarray(labels), return_inverse=True)
    signs = np.where(places[:, None] == np.arange(len(values)), 1.0, -1.0)
    return signs[:, 1:] if len(values) == 2 else signs


class _Trials:
    """The rows candidates are tried on, and what was found."""

    def __init__(
        self, objects: Any, kernel: Kernel, want: Chooser, known: dict[str, Any], seed: int, verbose: int
    ) -> None:
        self.objects, self.kernel, self.want, self.seed, self.verbose = objects, kernel, want, seed, verbose
        self.n = count_objects(objects)
        self.n_blocks = None if known["n_blocks"] == "auto" else int(known["n_blocks"])
        self.rank = None if known["rank"] == "auto" else int(known["rank"])
        self.room = known["max_memory"] or MAX_MEMORY
        self.tight = known["max_memory"] is not None
        self.bare = self.n > EXACT_ROWS and is_bare(objects, kernel)  # up to them all are compared anyway
        self.dear = not is_vectors(objects) or isinstance(kernel, FromCallable)
        own = "float32" if getattr(objects, "dtype", None) == np.float32 else "float64"
        self.dtype = own if known["dtype"] == "auto" else str(np.dtype(known["dtype"]))
        self.types = (own, *SMALL) if known["dtype"] == "auto" else (self.dtype,)
        if known["dtype"] == "auto" and not self.tight and self.nbytes(-(-self.n // 256), 64, False) > self.room:
            self.dtype = "float32"  # bases need few digits
        self.mean, self.spread = want.targets.mean(0), float(np.square(want.targets - want.targets.mean(0)).sum())
        self.rows = self._regions()
        self.tried: list[Trial] = []

    def _regions(self) -> Indices:
        """Rows of whole parts of the data, together about as many as are to be scored."""
        if self.bare:  # tuned alone, on the same rows for each gamma
            return np.sort(stream(self.seed, 31).choice(self.n, min(DEAR, self.n // 8), replace=False))
        count = DEAR if self.dear else int(np.clip(self.n // 4, *SCORED))
        if self.n <= 1.5 * count:
            return np.arange(self.n)
        parts = partition(self.objects, round(REGIONS * self.n / count), Evaluator(self.kernel), self.seed)
        order = stream(self.seed, 31).choice(  # the more likely the larger, as rows are
            parts.n_blocks, parts.n_blocks, replace=False, p=parts.sizes / self.n
        )
        enough = 1 + int(np.searchsorted(np.cumsum(parts.sizes[order]), 0.75 * count))
        chosen = [parts.order[parts.starts[i] : parts.starts[i + 1]] for i in order[:enough]]
        # One part may hold most rows (many equal ones): then a piece of it has to do.
        return np.sort(np.concatenate(chosen)[: 2 * count])

    # -- candidates ------------------------------------------------------------------------------------------------

    def nbytes(self, n_blocks: int, rank: int, coupled: bool) -> int:
        """Bytes of factorization and maps, about."""
        d = self.objects.shape[1] if is_vectors(self.objects) else 1
        size = SIZES[self.dtype]
        landmarks = 6 * rank if coupled else min(2 * rank, max(rank, self.n // (2 * n_blocks)))
        dense = coupled or n_blocks * rank <= APART
        core = 8 * (n_blocks * rank) ** 2 if dense else 8 * n_blocks * (rank + 2)
        inner = 0 if self.dtype == "float64" else 8 * n_blocks * rank**2
        maps = n_blocks * (8 * landmarks * rank + size * landmarks * d + 8 * rank**2)
        return self.n * (rank * size + 8) + core + inner + maps

    def over_blocks(self) -> Trial | None:
        """The best of blocks on their own, and of coupled ones as long as more of them may be better still.

        None if the memory allows nothing of the kind.
        """
        for i, b in enumerate(PER_BLOCK):
            if b < OFTEN and (not self.tried or self.best.n_blocks < round(self.n / PER_BLOCK[i - 1])):
                break
            c = self.n_blocks or round(self.n / b)
            self._try(c, min(RANK, max(1, self.n // (2 * c))), False)
        apart = max((t.score for t in self.tried), default=-math.inf)
        for c, k in COUPLED:
            found = self._try(self.n_blocks or c, max(1, min(k, LARGEST // (self.n_blocks or c))), True)
            if found is not None and found.score < apart - FAR:  # nor will others of as many directions be better
                break
        return self.best if self.tried else None

    def over_budget(self) -> Trial | None:
        """The best of what fits the memory given, None if nothing does."""

        def score(n_blocks: int, rank: int, coupled: bool, dtype: str) -> Trial:
            self.dtype = dtype
            return self.score(n_blocks, rank, coupled, self.kernel)

        self.tried = within(self.n, self.room, self.types, self.n_blocks, self.rank, score)
        self.dtype = self.best.dtype if self.tried else self.dtype
        return self.best if self.tried else None

    def given(self) -> tuple[int, int, bool]:
        """What is scored where gamma alone is open."""
        if self.bare or (self.n <= EXACT_ROWS and self.rank is None):
            return 1 if self.bare else self.n_blocks or 1, self.n, True  # exact
        return self.n_blocks or 16, self.rank or RANK, True

    def climbed(self, best: Trial) -> Trial:
        """The best at higher ranks: of the best candidate, and of the other kind's best if that is not far behind."""
        other = [t for t in self.tried if t.coupled != best.coupled and t.kernel == best.kernel]
        if other and leader(other).score >= best.score - FAR:
            self._climb(leader(other))
        return self._climb(self.best)

    def _climb(self, best: Trial) -> Trial:
        """Twice the rank, in as many blocks, or in half of them on their own, as long as it is better."""
        while self.rank is None and 2 * best.rank <= (DEEPEST if best.coupled else HIGHEST):
            c, k = best.n_blocks, 2 * best.rank
            for blocks in {c} if best.coupled else {c, self.n_blocks or c // 2}:
                steep = best.coupled and c > 1 and STEEP * c * k > self.n
                if self._possible(blocks, k, best.coupled) and not steep:
                    self.score(blocks, k, best.coupled, self.kernel)
            before, best = best, self.best
            if best is before:
                break
        return best

    def cheapest(self, best: Trial) -> Trial:
        """The least memory among candidates that are as good as can be told: within one standard error, or so."""
        share = min(max(best.score, 0.0), 1.0)
        told = share * (1.0 - share) / max(1, len(self.rows))
        slack = math.sqrt(told) if self.want.task == "classification" else AS_GOOD * (1.0 - share)
        near = [t for t in self.tried if t.score >= best.score - slack and t.kernel == best.kernel]
        return min(near, key=lambda t: (max(t.nbytes, FREE), -t.score, -t.tie))

    @property
    def best(self) -> Trial:
        """The best so far."""
        return leader(self.tried)

    def _try(self, n_blocks: int, rank: int, coupled: bool) -> Trial | None:
        """The score at this rank, or at the next lower one that the memory allows; a rank that is given is kept."""
        for k in (rank, rank // 2, rank // 4, rank // 8) if self.rank is None else (self.rank,):
            if self._possible(n_blocks, k, coupled):
                return self.score(n_blocks, k, coupled, self.kernel)
        return None

    def _possible(self, n_blocks: int, rank: int, coupled: bool) -> bool:
        if n_blocks < 1 or rank < 1 or self.nbytes(n_blocks, rank, coupled) > self.room:
            return False
        if coupled:
            return n_blocks * rank <= min(LARGEST, self.n // 2)
        # regions have to hold a few blocks, and blocks more rows than directions
        return n_blocks * len(self.rows) >= REGIONS * self.n and 1.25 * n_blocks * rank <= self.n

    # -- scores ----------------------------------------------------------------------------------------------------

    def score(self, n_blocks: int, rank: int, coupled: bool, kernel: Kernel) -> Trial:
        for t in self.tried:
            if t.key == (n_blocks, rank, coupled, kernel, self.dtype):
                return t
        start = time.perf_counter()
        sample = self._drawn(n_blocks * rank) if coupled else self.rows
        m = len(sample)
        blocks = n_blocks if coupled else max(1, round(n_blocks * m / self.n))
        size: dict[str, Any] = {"rank": rank, "drop": 0.0 if coupled else 1.0} if rank < self.n else {}  # else exact
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KreinWarning)
            a = approximate(
                take(self.objects, sample), kernel, n_blocks=blocks, dtype=self.dtype, **size,
                random_state=self.seed % 2**32,
            )  # fmt: skip
            score, tie = self._met(a, sample, m / self.n if coupled else 1.0)
        taken = time.perf_counter() - start
        held = self.nbytes(n_blocks, rank, coupled)
        if self.tight:
            f = a.factorization
            fixed = f.nbytes - sum(B.nbytes for B in f.bases) - f.order.nbytes if coupled else 0  # core and maps
            held = round((f.nbytes - fixed) * self.n / m) + fixed
        found = Trial(n_blocks, rank, coupled, kernel, score, tie, held, taken, self.dtype)
        self.tried.append(found)
        if self.verbose:
            print(f"{n_blocks} blocks of rank {rank}, {'coupled' if coupled else 'on their own'}: {score:.4f}")
        return found

    def _drawn(self, directions: int) -> Indices:
        if self.bare:
            return self.rows
        count = max(PER_DIRECTION * directions, DEAR if self.dear else DRAWN)
        if 1.5 * count >= self.n:
            return np.arange(self.n)
        return np.sort(stream(self.seed, 32).choice(self.n, count, replace=False))

    def _met(self, a: Approximation, sample: Indices, share: float) -> tuple[float, float]:
        """The best score over alphas of the rows to be scored: left out if they are in the sample, else predicted."""
        f, system = a.factorization, None
        if not a.kernel.traits.psd:  # flipped, and decomposed once for that and for ridge
            system = eigensystem(f.core, f.ranks)
            values, shift = changed("flip", system.values, f.shift)
            f, system = f.with_core(system.core(values), shift), system.with_values(values)
        y = self.want.targets[sample]
        unit = float(np.abs(f.diagonal()).mean()) or 1.0
        ridges = ALPHAS * unit * share
        inside = np.flatnonzero(np.isin(sample, self.rows, assume_unique=True))
        outside = np.setdiff1d(self.rows, sample, assume_unique=True)
        path = decompose(f, np.ones(len(sample)), system)
        errors = path.left_out(y, ridges, np.ones(len(sample)), inside, intercept=True)
        features = a.extend(take(self.objects, outside)) if len(outside) else None
        found = []
        for t, left in zip(ridges.tolist(), errors, strict=True):
            truth, error = self.want.targets[sample[inside]], left
            if features is not None:
                both = path.solve(np.column_stack([y, np.ones(len(y))]), t)
                offset = both[:, :-1].sum(0) / both[:, -1].sum()
                dual = both[:, :-1] - both[:, -1:] * offset
                far = self.want.targets[outside]
                truth = np.concatenate([truth, far])
                error = np.concatenate([error, far - features @ (f.core @ f.project(dual)) - offset])
            found.append(self._value(truth, error))
        return max(found)

    def _value(self, truth: Array, errors: Array) -> tuple[float, float]:
        squares = float(np.square(errors).sum()) / len(truth)
        if not math.isfinite(squares):
            return -math.inf, -math.inf
        if self.want.task == "regression":
            return 1.0 - squares * self.n / (self.spread or 1.0), -squares
        guess = truth - errors
        if truth.shape[1] == 1:
            return float(((guess > 0.0) == (truth > 0.0)).mean()), -squares
        return float((guess.argmax(1) == truth.argmax(1)).mean()), -squares

    # -- bandwidth -------------------------------------------------------------------------------------------------

    def tuned(self, best: Trial) -> Trial:
        """Along gamma for the best blocks: a wide grid, then halfway to the neighbours of its best."""
        start = float(self.kernel.gamma)  # type: ignore[attr-defined]

        def at(factor: float) -> Trial:
            kernel = replace(self.kernel, gamma=start * factor)  # type: ignore[type-var]
            return self.score(best.n_blocks, best.rank, best.coupled, kernel)

        best = max((at(w) for w in WIDTHS), key=lambda t: (t.score, t.tie))
        centre = float(best.kernel.gamma) / start  # type: ignore[attr-defined]
        best = max((at(centre * w) for w in (0.5, 1.0, 2.0)), key=lambda t: (t.score, t.tie))
        self.kernel = best.kernel
        return best
