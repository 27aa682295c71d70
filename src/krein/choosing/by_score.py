"""Blocks, rank and bandwidth by a validated score: objects, targets and a kernel in, a `Choice` out.

Two kinds of candidates are scored by ridge on the same rows, held out. *One block*, Nyström's approximation, of several
ranks: its features for the highest rank are computed once, on rows drawn from everywhere, and those of lower ranks are
their first columns, so that one Gram matrix serves all ranks and alphas. *Blocks on their own*, thousands of them with
nothing between them: what counts is how many rows each has, so they are tried on whole regions of the data, where rows
lie as densely as in all of it. Each candidate has its best alpha, so that a grid over alpha or C finds the same blocks
and builds them once. Among those whose scores cannot be told apart the smallest is taken.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import joblib
import numpy as np
import scipy.linalg

from krein.approximation import Approximation
from krein.approximation.building import APART
from krein.approximation.clusters import partition
from krein.approximation.nystrom import features, gram_of
from krein.arrays import Array, Indices, stream
from krein.choosing import approximate
from krein.choosing.budget import Trial, leader, within
from krein.choosing.chosen import MAX_MEMORY, SMALL, Choice, unscored
from krein.errors import InputError, KreinWarning, one_of
from krein.factorization.correction import changed
from krein.factorization.eigensystem import eigensystem
from krein.kernels import Evaluator, FromCallable, Kernel, count_objects, is_vectors, take
from krein.kernels.validation import is_bare
from krein.policy import DEFAULT
from krein.solvers.leave_one_out import decompose

__all__ = ["Choice", "Chooser", "Limits", "Trial", "codes"]

ALPHAS = np.logspace(-4.0, 1.0, 6)  # in units of the mean k(x, x)
WIDTHS = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # times the gamma of "scale", and then between the best and its neighbours
FIRST_RANK = 1024  # ranks of one block that are tried at once; a higher one where the last gain would make it the best
SCORED_AT_LEAST = 100  # rows, or all: fewer say nothing
TUNED_RANK = 512  # gamma is tuned on one block of at most this rank
LARGEST = 2048  # directions of several coupled blocks: their spectrum costs the cube
SIZES = {"float64": 8, "float32": 4, "float16": 2, "int8": 1}


@dataclass(frozen=True)
class Limits:
    """What is tried, and on how many rows."""

    one_block_ranks: tuple[int, ...] = (256, 512, 1024, 2048)  # ranks of one block, ascending
    block_rows: tuple[int, ...] = (1024, 512, 256, 128, 64, 32, 16)  # rows per block on its own; the middle comes first
    block_rank: int = 64  # rank of blocks on their own: of the first ones tried, or half of their rows,
    highest_block_rank: int = 256  # and the highest that is tried
    hopeless: float = 0.03  # blocks on their own whose first score is so far behind one block's are not tried further
    regions: int = 8  # whole parts of the data that blocks on their own are tried on,
    region_rows: int = 8000  # rows in them together,
    held_out_rows: int = 2000  # and how many of those are held out and scored, a fourth of them at most
    rows_per_direction: int = 8  # rows that one block of the highest rank is fitted to, per direction,
    least_rows: int = 8000  # and for any rank
    dear_rows: int = 1000  # all of these where each similarity may be expensive
    standard_errors: float = 1.0  # of the difference of two scores: what is nearer to the best is as good,
    free_bytes: float = 2.0**29  # and is taken if it needs less memory, of which so much is not worth saving


@dataclass(frozen=True, eq=False)
class Chooser:
    """What an estimator wants to learn: enough to score an approximation of its rows."""

    targets: Array  # (n, p): values, or +1 and -1 for classes (`codes`)
    task: str  # "regression" or "classification"
    tune: bool = False  # the kernel's gamma too
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        one_of("task", self.task, ("regression", "classification"))
        object.__setattr__(self, "targets", np.asarray(self.targets, dtype=np.float64).reshape(len(self.targets), -1))

    @property
    def key(self) -> tuple[str, str, bool, Limits]:
        """What a choice depends on beside the objects, the kernel and the seed."""
        return str(joblib.hash(self.targets)), self.task, self.tune, self.limits

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
        fixed = n_blocks != "auto" and rank != "auto"
        open_blocks = not fixed and max_error is None and coupling == "shared"
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
            return replace(found, tried=tuple(trials.tried), n_scored=len(trials.held))
        if open_blocks and not tight:  # given memory is there to be used
            best = trials.smallest(best)
        made = Choice(
            n_blocks, rank, "auto", dtype, max_memory, best.kernel, tuple(trials.tried), len(trials.held),
            "the best gamma", time.perf_counter() - begun,
        )  # fmt: skip
        if not open_blocks:
            return made
        what = "blocks on their own"
        if best.coupled:
            what = "coupled blocks" if best.n_blocks > 1 else "one block"
        return replace(
            made, n_blocks=best.n_blocks, rank=best.rank, drop=0.0 if best.coupled else 1.0, dtype=best.dtype,
            max_memory=None, reason=f"{what} of rank {best.rank}: the best score, {best.score:.4f}, or as good",
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
        self.bare = self.n > DEFAULT.exact_rows and is_bare(objects, kernel)  # up to them all are compared anyway
        self.dear = not is_vectors(objects) or isinstance(kernel, FromCallable)
        own = "float32" if getattr(objects, "dtype", None) == np.float32 else "float64"
        self.dtype = own if known["dtype"] == "auto" else str(np.dtype(known["dtype"]))
        self.types = (own, *SMALL) if known["dtype"] == "auto" else (self.dtype,)
        if known["dtype"] == "auto" and not self.tight and self.nbytes(-(-self.n // 256), 64, False) > self.room:
            self.dtype = "float32"  # bases need few digits
        self.mean, self.spread = want.targets.mean(0), float(np.square(want.targets - want.targets.mean(0)).sum())
        self.limits = want.limits
        self.rows = self._regions()
        count = min(len(self.rows), self.limits.held_out_rows, max(len(self.rows) // 4, SCORED_AT_LEAST))
        self.held = self.rows if self.tight else np.sort(stream(seed, 33).choice(self.rows, count, replace=False))
        self.tried: list[Trial] = []
        self.losses: dict[Any, Array] = {}  # of each candidate, by its key: one number per row held out

    def _regions(self) -> Indices:
        """Rows of whole parts of the data, together about as many as are to be used."""
        few = self.limits.dear_rows
        if self.bare:  # tuned alone, on the same rows for each gamma
            return np.sort(stream(self.seed, 31).choice(self.n, min(few, self.n // 8), replace=False))
        count = few if self.dear else self.limits.region_rows
        if self.n <= 1.5 * count:
            return np.arange(self.n)
        parts = partition(self.objects, round(self.limits.regions * self.n / count), Evaluator(self.kernel), self.seed)
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
        if n_blocks == 1:
            return self.n * (rank * size + 8) + rank * (8 * rank + size * d + 8)
        landmarks = 6 * rank if coupled else min(2 * rank, max(rank, self.n // (2 * n_blocks)))
        dense = coupled or n_blocks * rank <= APART
        core = 8 * (n_blocks * rank) ** 2 if dense else 8 * n_blocks * (rank + 2)
        inner = 0 if self.dtype == "float64" else 8 * n_blocks * rank**2
        maps = n_blocks * (8 * landmarks * rank + size * landmarks * d + 8 * rank**2)
        return self.n * (rank * size + 8) + core + inner + maps

    def over_blocks(self) -> Trial | None:
        """The best of one block, or of as many coupled ones as are given, and of blocks on their own.

        None if the memory allows nothing of the kind.
        """
        c = self.n_blocks or 1
        ranks = self.limits.one_block_ranks if self.rank is None else (self.rank,)
        possible = [k for k in ranks if self._possible(c, k, True)]
        first = [k for k in possible if k <= FIRST_RANK] or possible[:1]
        self._over_ranks(c, first)
        if self.n_blocks != 1:
            self._over_own_blocks()
        for k in possible[len(first) :] if c == 1 else []:
            one = [t.score for t in self.tried if t.coupled]  # by rank
            gain = one[-1] - one[-2] if len(one) > 1 else math.inf
            if gain <= 0.0 or one[-1] + gain < self.best.score or self._one_block([k], self.kernel) is None:
                break
        return self.best if self.tried else None

    def _over_ranks(self, n_blocks: int, ranks: list[int]) -> None:
        """Score coupled blocks of these ranks; one block of a psd kernel for all of them at once."""
        if not ranks or (n_blocks == 1 and self._one_block(ranks, self.kernel) is not None):
            return
        for k in ranks if self.rank is not None else [k for k in ranks if n_blocks * k <= 1024][-1:]:
            self.score(n_blocks, k, True, self.kernel)

    def _over_own_blocks(self) -> None:
        """Score blocks on their own: from the middle size on to larger and smaller ones, then to higher ranks."""
        other = self.best.score if self.tried else -math.inf
        sizes = self.limits.block_rows if self.n_blocks is None else (self.n // self.n_blocks,)
        middle = len(sizes) // 2
        best = self._own_blocks(sizes[middle])
        if best is not None and best.score < other - self.limits.hopeless:
            return
        for step in (1, -1):
            at = middle + step
            while 0 <= at < len(sizes):
                found = self._own_blocks(sizes[at])
                if found is not None and best is not None and leader([found, best]) is best:
                    break
                best, at = found or best, at + step
        while self.rank is None and best is not None and 2 * best.rank <= self.limits.highest_block_rank:
            shapes = {best.n_blocks, self.n_blocks or max(2, best.n_blocks // 2)}
            higher = [self._try(c, 2 * best.rank, False) for c in sorted(shapes)]
            better = leader([best, *(t for t in higher if t is not None)])
            if better is best:
                break
            best = better

    def _own_blocks(self, n_rows: int) -> Trial | None:
        c = self.n_blocks or max(2, round(self.n / max(1, n_rows)))
        return self._try(c, self.rank or min(self.limits.block_rank, max(1, self.n // (2 * c))), False)

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
        if self.bare:
            return 1, self.n, True  # exact
        return self.n_blocks or 16, self.rank or self.limits.block_rank, True

    def smallest(self, best: Trial) -> Trial:
        """The least memory among candidates whose losses cannot be told from the best one's, row by row.

        Coupled blocks come first: blocks on their own have to be better to be taken.
        """
        near = [best]
        for t in self.tried:
            if t.kernel == best.kernel and t.key in self.losses:
                more = self.losses[t.key] - self.losses[best.key]
                noise = self.limits.standard_errors * float(more.std()) / math.sqrt(len(more))
                near += [t] if float(more.mean()) <= noise else []
        return min(near, key=lambda t: (not t.coupled, max(t.nbytes, self.limits.free_bytes), -t.score, -t.tie))

    @property
    def best(self) -> Trial:
        """The best so far."""
        return leader(self.tried)

    def _try(self, n_blocks: int, rank: int, coupled: bool) -> Trial | None:
        return self.score(n_blocks, rank, coupled, self.kernel) if self._possible(n_blocks, rank, coupled) else None

    def _possible(self, n_blocks: int, rank: int, coupled: bool) -> bool:
        if n_blocks < 1 or rank < 1 or self.nbytes(n_blocks, rank, coupled) > self.room:
            return False
        if coupled:
            return n_blocks * rank <= self.n // 2 and (n_blocks == 1 or n_blocks * rank <= LARGEST)
        # regions have to hold a few blocks, and blocks more rows than directions
        return n_blocks * len(self.rows) >= self.limits.regions * self.n and 1.25 * n_blocks * rank <= self.n

    # -- scores ----------------------------------------------------------------------------------------------------

    def score(self, n_blocks: int, rank: int, coupled: bool, kernel: Kernel) -> Trial:
        for t in self.tried:
            if t.key == (n_blocks, rank, coupled, kernel, self.dtype):
                return t
        one = (n_blocks, coupled) == (1, True) and rank < self.n // 2 and not (self.tight or self.bare)
        if one and (found := self._one_block([rank], kernel)) is not None:
            return found[-1]
        start = time.perf_counter()
        sample = self._drawn(n_blocks * rank) if coupled else self.rows
        if not coupled and len(self.held) < len(self.rows):
            sample = np.setdiff1d(self.rows, self.held, assume_unique=True)
        m = len(sample)
        blocks = n_blocks if coupled else max(1, round(n_blocks * len(self.rows) / self.n))
        size: dict[str, Any] = {"rank": rank, "drop": 0.0 if coupled else 1.0} if rank < self.n else {}  # else exact
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KreinWarning)
            a = approximate(
                take(self.objects, sample), kernel, n_blocks=blocks, dtype=self.dtype, **size,
                random_state=self.seed % 2**32,
            )  # fmt: skip
            score, tie, losses = self._met(a, sample, m / self.n if coupled else 1.0)
        taken = time.perf_counter() - start
        held = self.nbytes(n_blocks, rank, coupled)
        if self.tight:
            f = a.factorization
            fixed = f.nbytes - sum(B.nbytes for B in f.bases) - f.order.nbytes if coupled else 0  # core and maps
            held = round((f.nbytes - fixed) * self.n / m) + fixed
        return self._noted(Trial(n_blocks, rank, coupled, kernel, score, tie, held, taken, self.dtype), losses)

    def _noted(self, found: Trial, losses: Array) -> Trial:
        self.tried.append(found)
        self.losses[found.key] = losses
        if self.verbose:
            kind = "coupled" if found.coupled else "on their own"
            print(f"{found.n_blocks} blocks of rank {found.rank}, {kind}: {found.score:.4f}")
        return found

    def _one_block(self, ranks: list[int], kernel: Kernel) -> list[Trial] | None:
        """Score one block at all of these ranks, ascending; None if the kernel turns out to be indefinite.

        F = k(X, Z) L⁻ᵀ, L the Cholesky factor of k(Z, Z): the first j columns are the features of the first j
        landmarks. Ridge with an intercept is (FᵀF + t I) w = Fᵀy on centred columns, the leading part for each rank.
        """
        start = time.perf_counter()
        rest = np.setdiff1d(np.arange(self.n), self.held, assume_unique=True)
        most = self.limits.dear_rows if self.dear else max(
            self.limits.rows_per_direction * ranks[-1], self.limits.least_rows
        )  # fmt: skip
        rng = stream(self.seed, 34)
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
        trials, taken = [], (time.perf_counter() - start) / len(ranks)
        for k in (k for k in ranks if k <= len(centre)):
            start = time.perf_counter()
            shown = []
            for t in (ALPHAS * unit * len(rows) / self.n).tolist():
                moved = gram[:k, :k] + t * np.eye(k)
                w = scipy.linalg.solve(moved, right[:k], assume_a="pos", overwrite_a=True, check_finite=False)
                shown.append(self._value(truth, truth - mean - (H[:, :k] @ w - centre[:k] @ w)))
            score, tie, losses = max(shown, key=lambda v: v[:2])
            held, seconds = self.nbytes(1, k, True), taken + time.perf_counter() - start
            trials.append(self._noted(Trial(1, k, True, kernel, score, tie, held, seconds, self.dtype), losses))
        return trials

    def _drawn(self, directions: int) -> Indices:
        if self.bare:
            return self.rows
        limits = self.limits
        count = max(limits.rows_per_direction * directions, limits.dear_rows if self.dear else limits.least_rows)
        if 1.5 * count >= self.n:
            return np.arange(self.n)
        return np.sort(stream(self.seed, 32).choice(self.n, count, replace=False))

    def _met(self, a: Approximation, sample: Indices, share: float) -> tuple[float, float, Array]:
        """The best score over alphas of the rows held out: left out if they are in the sample, else predicted."""
        f, system = a.factorization, None
        if not a.kernel.traits.psd:  # flipped, and decomposed once for that and for ridge
            system = eigensystem(f.core, f.ranks)
            values, shift = changed("flip", system.values, f.shift)
            f, system = f.with_core(system.core(values), shift), system.with_values(values)
        y = self.want.targets[sample]
        unit = float(np.abs(f.diagonal()).mean()) or 1.0
        ridges = ALPHAS * unit * share
        inside = np.flatnonzero(np.isin(sample, self.held, assume_unique=True))
        outside = np.setdiff1d(self.held, sample, assume_unique=True)
        order = np.argsort(np.concatenate([sample[inside], outside]), kind="stable")
        path = decompose(f, np.ones(len(sample)), system)
        errors: Array = np.empty((len(ridges), 0, y.shape[1]))
        if len(inside):
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
            found.append(self._value(truth[order], error[order]))
        return max(found, key=lambda v: v[:2])

    def _value(self, truth: Array, errors: Array) -> tuple[float, float, Array]:
        """The score, the mean squared error, negative, and what each row loses of the score."""
        squares = np.square(errors).sum(1)
        mean = float(squares.mean())
        if not math.isfinite(mean):
            return -math.inf, -math.inf, np.full(len(truth), np.inf)
        if self.want.task == "regression":
            losses = squares * (self.n / (self.spread or 1.0))
        else:
            guess = truth - errors
            one = truth.shape[1] == 1
            right = (guess > 0.0) == (truth > 0.0) if one else guess.argmax(1) == truth.argmax(1)
            losses = 1.0 - right.reshape(len(truth)).astype(np.float64)
        return 1.0 - float(losses.mean()), -mean, losses

    # -- bandwidth -------------------------------------------------------------------------------------------------

    def tuned(self, best: Trial) -> Trial:
        """Along gamma for the best blocks: a wide grid, then halfway to the neighbours of its best."""
        start = float(self.kernel.gamma)  # type: ignore[attr-defined]
        rank = min(best.rank, TUNED_RANK) if best.n_blocks == 1 and best.rank < self.n else best.rank

        def at(factor: float) -> Trial:
            kernel = replace(self.kernel, gamma=start * factor)  # type: ignore[type-var]
            return self.score(best.n_blocks, rank, best.coupled, kernel)

        found = max((at(w) for w in WIDTHS), key=lambda t: (t.score, t.tie))
        centre = float(found.kernel.gamma) / start  # type: ignore[attr-defined]
        found = max((at(centre * w) for w in (0.5, 1.0, 2.0)), key=lambda t: (t.score, t.tie))
        self.kernel = found.kernel
        return found if found.rank == best.rank else self.score(best.n_blocks, best.rank, best.coupled, found.kernel)
