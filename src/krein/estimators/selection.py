"""Blocks, rank and bandwidth by a validated score: objects, targets and a kernel in, a `Choice` out.

The number of blocks is a modelling choice as much as a matter of error: 2000 blocks with nothing between them learn what
one matrix of the same bytes cannot (docs/corrections.md has neither: see docs/selection.md). Two kinds are tried. *Apart*:
many blocks, uncoupled. Rows per block are what counts, so they are tried on whole regions of the data, where rows lie
as densely as in all of it: what is left out there is met as well as it will be. *Coupled*: few blocks of higher rank,
all linked, built on rows drawn from everywhere. Both are scored on the same rows, those of the regions, by ridge: rows
of the sample are left out in closed form, others are predicted, and each kind has its best alpha, so that a grid over
alpha or C finds the same blocks.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np

from krein.approximation import Approximation, approximate
from krein.arrays import Array, Indices, stream
from krein.errors import InputError, KreinWarning, one_of
from krein.error_estimate import EXACT_ROWS
from krein.estimators.leave_one_out import decompose
from krein.kernels import Evaluator, FromCallable, Kernel, count_objects, is_vectors, take
from krein.partition import partition

__all__ = ["Choice", "Chooser", "Trial", "codes"]

MAX_MEMORY = 2.0**30  # bytes of factorization and maps, where none are given
REGIONS = 4  # whole parts of the data whose rows are scored
SCORED = (4000, 12_000)  # rows in them, a quarter of all between these
DEAR = 1000  # the same where each similarity may be expensive
PER_DIRECTION = 6  # rows from everywhere per direction of a coupled candidate
DRAWN = 12_000  # of them at least, if there are so many
PER_BLOCK = (1024, 512, 256, 128, 64)  # rows per block, uncoupled
RANKS = (32, 64, 128)  # of blocks on their own, no more than half of their rows
COUPLED = ((4, 256), (16, 64), (32, 64))  # few blocks and their ranks
ALPHAS = np.logspace(-4.0, 1.0, 6)  # in units of the mean k(x, x)
WIDTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # times the gamma of "scale", and then between the best and its neighbours
SIZES = {"float64": 8, "float32": 4, "float16": 2, "int8": 1}


@dataclass(frozen=True)
class Trial:
    """One candidate and the score of the rows it was tried on."""

    n_blocks: int  # of all rows
    rank: int
    coupled: bool
    kernel: Kernel
    score: float  # of rows left out: accuracy or R²
    tie: float  # the mean squared error, negative: what decides between equal scores
    nbytes: int  # forecast for all rows, maps included
    seconds: float

    @property
    def key(self) -> tuple[int, int, bool, Kernel]:
        return self.n_blocks, self.rank, self.coupled, self.kernel


@dataclass(frozen=True)
class Choice:
    """What to build, what else was tried, and why this."""

    n_blocks: int | str
    rank: int | str
    drop: float | str
    dtype: str
    kernel: Kernel
    tried: tuple[Trial, ...]
    n_scored: int  # rows that scores are means over
    reason: str
    seconds: float

    @property
    def parameters(self) -> dict[str, Any]:
        """For `krein.approximate`, beside the objects and the kernel."""
        return {
            "n_blocks": self.n_blocks,
            "rank": self.rank,
            "drop": self.drop,
            "dtype": self.dtype,
            "max_memory": None,  # respected already; to give it too would start another search
        }

    def __str__(self) -> str:
        lines = [("blocks", "rank", "coupled", "gamma", "score", "MB", "seconds", "")]
        for t in self.tried:
            mark = "<- chosen" if t.key == (self.n_blocks, self.rank, self.drop == 0.0, self.kernel) else ""
            gamma = getattr(t.kernel, "gamma", None)
            lines.append(
                (str(t.n_blocks), str(t.rank), "yes" if t.coupled else "no", "" if gamma is None else f"{gamma:.3g}",
                 f"{t.score:.4f}", f"{t.nbytes / 1e6:.0f}", f"{t.seconds:.2f}", mark)
            )  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = ("  ".join(v.rjust(w) for v, w in zip(row, widths, strict=True)).rstrip() for row in lines)
        return f"{self.reason}; {self.n_scored} rows scored in {self.seconds:.2g} s\n" + "\n".join(rows)


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

    def __call__(
        self,
        objects: Any,
        kernel: Kernel,
        *,
        n_blocks: int | str = "auto",
        rank: int | str = "auto",
        coupling: str = "shared",
        max_error: float | None = None,
        max_memory: float | None = None,
        dtype: Any = "auto",
        seed: int = 0,
        verbose: int = 0,
    ) -> Choice | None:
        """Return the best candidate, or None where nothing is open: few rows are exact, and an error asked for is met."""
        n = count_objects(objects)
        if self.tune and not isinstance(getattr(kernel, "gamma", None), int | float):
            raise InputError(f'gamma="tune" needs a kernel with a gamma; {kernel!r} has none.')
        fixed = n_blocks != "auto" and rank != "auto"
        open_blocks = not fixed and n > EXACT_ROWS and max_error is None and coupling == "shared"
        if not open_blocks and not self.tune:
            return None
        begun = time.perf_counter()
        known = {"n_blocks": n_blocks, "rank": rank, "max_memory": max_memory, "dtype": dtype}
        trials = _Trials(objects, kernel, self, known, seed, verbose)
        best = trials.best_of(trials.candidates() if open_blocks else trials.given())
        if self.tune:
            best = trials.tuned(best)
            if open_blocks:
                best = trials.best_of(trials.near(best))
        done = {"tried": tuple(trials.tried), "n_scored": len(trials.rows), "seconds": time.perf_counter() - begun}
        if not open_blocks:
            return Choice(n_blocks, rank, "auto", dtype, best.kernel, reason="the best gamma", **done)
        what = "coupled blocks" if best.coupled else "blocks on their own"
        return Choice(
            best.n_blocks, best.rank, 0.0 if best.coupled else 1.0, trials.dtype, best.kernel,
            reason=f"{what} have the best score, {best.score:.4f}", **done,
        )  # fmt: skip


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
        self.dear = not is_vectors(objects) or isinstance(kernel, FromCallable)
        own = "float32" if getattr(objects, "dtype", None) == np.float32 else "float64"
        self.dtype = own if known["dtype"] == "auto" else str(np.dtype(known["dtype"]))
        if known["dtype"] == "auto" and self.nbytes(-(-self.n // 256), 64, False) > self.room:
            self.dtype = "float32"  # bases need few digits
        self.mean, self.spread = want.targets.mean(0), float(np.square(want.targets - want.targets.mean(0)).sum())
        self.rows = self._regions()
        self.tried: list[Trial] = []

    def _regions(self) -> Indices:
        """Rows of whole parts of the data, together about as many as are to be scored."""
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
        core = 8 * (n_blocks * rank) ** 2 if coupled else 8 * n_blocks * rank**2
        inner = 0 if self.dtype == "float64" else 8 * n_blocks * rank**2
        maps = n_blocks * (8 * landmarks * rank + size * landmarks * d + 8 * rank**2)
        return self.n * (rank * size + 8) + core + inner + maps

    def candidates(self) -> list[tuple[int, int, bool]]:
        """(n_blocks, rank, coupled), all that fit: first a line through them, for `best_of` to go on from."""
        ranks = RANKS if self.rank is None else (self.rank,)
        found = []
        for b in PER_BLOCK:
            c = self.n_blocks or round(self.n / b)
            k = ranks[len(ranks) // 2]
            found.append((c, k if self.rank is not None else min(k, max(1, self.n // (2 * c))), False))
        for c, k in COUPLED:
            c = self.n_blocks or c
            found.append((c, self.rank or max(1, min(k, 2048 // c)), True))
        return [one for one in dict.fromkeys(found) if self._possible(*one)]

    def given(self) -> list[tuple[int, int, bool]]:
        if self.n <= EXACT_ROWS:
            return [(1, len(self.rows), True)]
        return [(self.n_blocks or 16, self.rank or 64, True)]

    def near(self, best: Trial) -> list[tuple[int, int, bool]]:
        """Half and double the blocks and the rank."""
        c, k = best.n_blocks, best.rank
        found = [(c // 2, k), (2 * c, k), (c, 2 * k), (c, k // 2)]
        if not best.coupled:
            found += [(2 * c, k // 2)]
        return [
            (a, b, best.coupled) for a, b in found
            if self._possible(a, b, best.coupled) and a in (a, self.n_blocks or a) and b == (self.rank or b)
        ]  # fmt: skip

    def _possible(self, n_blocks: int, rank: int, coupled: bool) -> bool:
        if n_blocks < 1 or rank < 1 or self.nbytes(n_blocks, rank, coupled) > self.room:
            return False
        if coupled:
            return n_blocks * rank <= min(2048, self.n // 2)
        # regions have to hold a few blocks, and blocks more rows than directions
        return n_blocks * len(self.rows) >= REGIONS * self.n and 1.25 * n_blocks * rank <= self.n

    # -- scores ----------------------------------------------------------------------------------------------------

    def best_of(self, candidates: Iterable[tuple[int, int, bool]]) -> Trial:
        for one in candidates:
            self.score(*one, self.kernel)
        return max(self.tried, key=lambda t: (t.score, t.tie))

    def score(self, n_blocks: int, rank: int, coupled: bool, kernel: Kernel) -> Trial:
        for t in self.tried:
            if t.key == (n_blocks, rank, coupled, kernel):
                return t
        start = time.perf_counter()
        sample = self._drawn(n_blocks * rank) if coupled else self.rows
        m = len(sample)
        options = {"n_blocks": n_blocks if coupled else max(1, round(n_blocks * m / self.n)), "rank": rank}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KreinWarning)
            a = approximate(
                take(self.objects, sample), kernel, **options, drop=0.0 if coupled else 1.0, dtype=self.dtype,
                random_state=self.seed % 2**32,
            )  # fmt: skip
            score, tie = self._met(a, sample, m / self.n if coupled else 1.0)
        found = Trial(
            n_blocks, rank, coupled, kernel, score, tie, self.nbytes(n_blocks, rank, coupled), time.perf_counter() - start
        )
        self.tried.append(found)
        if self.verbose:
            print(f"{n_blocks} blocks of rank {rank}, {'coupled' if coupled else 'on their own'}: {score:.4f}")
        return found

    def _drawn(self, directions: int) -> Indices:
        count = max(PER_DIRECTION * directions, DEAR if self.dear else DRAWN)
        if 1.5 * count >= self.n:
            return np.arange(self.n)
        return np.sort(stream(self.seed, 32).choice(self.n, count, replace=False))

    def _met(self, a: Approximation, sample: Indices, share: float) -> tuple[float, float]:
        """The best score over alphas of the rows to be scored: left out where they are in the sample, else predicted."""
        f = a.corrected("flip").factorization
        y = self.want.targets[sample]
        unit = float(np.abs(f.diagonal()).mean()) or 1.0
        ridges = ALPHAS * unit * share
        inside = np.flatnonzero(np.isin(sample, self.rows, assume_unique=True))
        outside = np.setdiff1d(self.rows, sample, assume_unique=True)
        path = decompose(f, np.ones(len(sample)))
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
