"""What an inspection found: one frozen value, which prints as text or HTML and plots."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from krein.arrays import Array, Indices
from krein.errors import si

__all__ = ["BlockShare", "CorrectionScore", "Estimate", "Forecast", "Inspection", "RankScore", "SizeTrend"]

# A rank is small up to this share of full rank.
SMALL_RANK = 0.125
# Standard errors by which the best rank has to be better than the baseline.
BETTER_THAN_GUESSING = 2.0


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; the three are equal where nothing was left to chance."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.value == self.high:
            return f"{self.value:.3g}"
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"

    @property
    def percent(self) -> str:
        """As a share."""
        if self.low == self.value == self.high:
            return f"{100 * self.value:.3g} %"
        return f"{100 * self.value:.3g} % [{100 * self.low:.3g}, {100 * self.high:.3g}]"


@dataclass(frozen=True)
class SizeTrend:
    """The spectrum of fewer objects: means over subsets of the sample, and how much those differ."""

    n_objects: int
    negative_share: float
    spread: float  # standard deviation among the subsets
    smallest: float  # mean of the smallest eigenvalue


@dataclass(frozen=True)
class BlockShare:
    """How much of the matrix c diagonal blocks hold."""

    n_blocks: int
    share: Estimate  # of the squared Frobenius norm
    chance: float  # what blocks of these sizes would hold of a matrix without any structure


@dataclass(frozen=True)
class Forecast:
    """What c blocks of rank k would take and leave, for all objects."""

    n_blocks: int
    rank: int
    nbytes: int
    error: float  # relative Frobenius
    seen: bool  # False: so many blocks are too many for the sample; the error follows the trend of fewer


@dataclass(frozen=True)
class CorrectionScore:
    """How well rows that were left out are met after a correction: accuracy, or R²."""

    name: str
    score: Estimate


@dataclass(frozen=True)
class RankScore:
    """How well held-out rows are predicted from the ``rank`` eigenvalues largest in magnitude: accuracy, or R²."""

    rank: int
    score: float
    error: float  # standard error


@dataclass(frozen=True, eq=False)
class Inspection:
    """How indefinite a similarity is, how its objects group, and what that means for learning with it.

    Numbers are of ``n_sampled`` objects drawn at random; where these are all of them, they are exact.

    Examples
    --------
    >>> import krein
    >>> found = krein.inspect(["tree", "three", "free", "cat", "cart", "car"], krein.EditSimilarity())
    >>> found.psd, found.constant_diagonal
    (True, True)
    """

    kernel: str
    n_objects: int
    n_sampled: int
    rows: Indices  # (n_sampled,) which
    n_evaluations: int  # similarities that were asked for
    seconds: float

    eigenvalues: Array  # (n_sampled,) of the sample's matrix, falling
    inertia: tuple[int, int, int]  # how many of them are positive, zero (to rounding), negative
    negative_share: Estimate  # of the sum of |eigenvalues|
    trend: tuple[SizeTrend, ...]  # the same for fewer objects
    negative_share_of_all: tuple[float, float] | None  # at least, and if it grows on as it did; None if none is seen

    low: float  # of all similarities seen
    high: float
    negative_entries: Estimate  # share of pairs
    diagonal: tuple[float, float]  # lowest and highest self-similarity in the sample
    constant_diagonal: bool
    asymmetry: float  # largest |k(x, y) - k(y, x)| seen, over the largest |k|: rounding, or it would have been refused
    counts: Indices  # histogram of the similarities of pairs,
    edges: Array

    negative_squares: Estimate  # share of pairs whose k(x, x) + k(y, y) - 2 k(x, y) is negative
    triangle_violations: Estimate  # share of triples whose dissimilarities violate the triangle inequality
    blocks: tuple[BlockShare, ...]
    forecasts: tuple[Forecast, ...]
    target: float  # relative error that is looked for among them

    corrections: tuple[CorrectionScore, ...]  # none without y
    task: str | None  # "classification" or "regression" where there is y
    learner: str
    recommended: str | None  # the correction to use; None where only y could tell
    rank_scores: tuple[RankScore, ...]  # for rising ranks, the last is full; none without y
    baseline: float | None  # the score of always answering the commonest class, or the mean
    notes: tuple[str, ...]
    stages: tuple[tuple[str, float], ...] = ()  # what took how many seconds

    @property
    def psd(self) -> bool:
        """Whether no eigenvalue of the sample is negative: necessary for a psd kernel, and no proof of one."""
        return self.inertia[2] == 0

    @property
    def metric(self) -> str:
        """What scores are: "accuracy", or "R²"."""
        return "accuracy" if self.task == "classification" else "R²"

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue of the sample."""
        return float(self.eigenvalues[-1])

    @property
    def choice(self) -> Forecast | None:
        """The forecast with the fewest bytes that meets the target, if any does."""
        enough = [f for f in self.forecasts if f.error <= self.target]
        return min(enough, key=lambda f: f.nbytes) if enough else None

    @property
    def sufficient(self) -> RankScore | None:
        """The smallest rank whose score is within one standard error of the best; None without ``rank_scores``."""
        best = max(self.rank_scores, key=lambda r: r.score, default=None)
        return best and next(r for r in self.rank_scores if r.score >= best.score - best.error)

    @property
    def rank_verdict(self) -> str:
        """What ``rank_scores`` say of ranks up to an eighth of full rank, in a sentence; "" without them."""
        enough = self.sufficient
        if enough is None or self.baseline is None:
            return ""
        best, full, classes = (
            max(r.score for r in self.rank_scores),
            self.rank_scores[-1],
            self.task == "classification",
        )
        if best < self.baseline + BETTER_THAN_GUESSING * enough.error:
            guess = "the commonest class" if classes else "the mean"
            return f"No rank predicts better than always {guess} does ({self.baseline:.3f}): k tells little about y"
        small = [r for r in self.rank_scores if r.rank <= SMALL_RANK * full.rank][-1]
        if enough.rank <= small.rank:
            return (
                f"Rank {enough.rank} is as good as all {full.rank}: {enough.score:.3f}, {full.score:.3f} at full rank"
            )
        what = f"part of what {'tells the classes apart' if classes else 'predicts y'} lies in the tail"
        return f"Rank {small.rank} reaches {small.score:.3f} of {best:.3f}: {what} and takes rank {enough.rank}"

    def plot(self, ax: Any = None) -> Any:
        """Draw it; returns a `krein.plotting.InspectionDisplay`, with ``ax_`` and ``figure_``."""
        from krein.plotting.findings import InspectionDisplay

        return InspectionDisplay.from_inspection(self, ax=ax)

    def report(self, path: Any, model: Any = None, **options: Any) -> Path:
        """Write it as one self-contained HTML page (`krein.report.write`), with a fitted machine's or model's part."""
        from krein.report import write

        return write(path, self, model, **options)

    def to_dict(self) -> dict[str, Any]:
        """All of it in lists, numbers and strings: what JSON takes."""
        found = {name: v.tolist() if hasattr(v, "tolist") else v for name, v in asdict(self).items()}
        values = {"choice": self.choice, "sufficient": self.sufficient}
        found |= {name: None if value is None else asdict(value) for name, value in values.items()}
        return found | {"psd": self.psd, "rank_verdict": self.rank_verdict}

    def sections(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """(heading, [(name, what was found)]): what is printed, in whatever form."""
        whole = self.n_sampled == self.n_objects
        seen = f"all {self.n_objects:,}" if whole else f"{self.n_sampled:,} of {self.n_objects:,}, drawn at random"
        looked = f"{self.n_evaluations:,} evaluated, {100 * self.n_evaluations / self.n_objects**2:.3g} % of n²"
        positive, zero, negative = self.inertia
        low, high = (f"{value:.4g}" for value in self.diagonal)
        constant = f"{'' if self.constant_diagonal else 'about '}{low} for every object" if low == high else None
        values = [
            ("range", f"{self.low:.4g} to {self.high:.4g}"),
            ("with themselves", constant or f"{low} to {high}"),
            ("negative", f"{self.negative_entries.percent} of pairs"),
            ("asymmetry", "none" if self.asymmetry == 0.0 else f"{self.asymmetry:.2g} of the largest value"),
        ]
        spectrum = [
            ("eigenvalues", f"{positive:,} positive, {zero:,} zero, {negative:,} negative"),
            ("from, to", f"{self.smallest:.4g}, {float(self.eigenvalues[0]):.4g}"),
            ("negative share", self.negative_share.percent),
        ]
        for t in self.trend:
            share = f"{100 * t.negative_share:.3g} % ± {100 * t.spread:.2g}"
            spectrum.append((f"  of {t.n_objects:,} objects", f"{share}, smallest {t.smallest:.3g}"))
        if not whole and self.negative_share_of_all is not None:
            least, grown = (f"{100 * share:.3g} %" for share in self.negative_share_of_all)
            how = f"if it grows on as from {self.trend[-1].n_objects:,} to {self.n_sampled:,}"
            spectrum.append((f"  of all {self.n_objects:,}", f"at least {least}; {grown} {how}"))
        dissimilarity = [
            ("negative squares", f"{self.negative_squares.percent} of pairs"),
            ("triangle violated", f"{self.triangle_violations.percent} of triples"),
        ]
        blocks = [(f"{b.n_blocks} blocks", f"{b.share.percent} of |K|², by chance {b.chance:.0%}") for b in self.blocks]
        forecasts = []
        for f in self.forecasts:
            mark = f"  <- fewest bytes for {self.target:g}" if f == self.choice else ""
            text = f"{si(f.nbytes)}, error {f.error:.2g}{'' if f.seen else ' (trend)'}{mark}"
            forecasts.append((f"{f.n_blocks} x {f.rank}", text))
        learner = "an SVM" if self.learner == "svm" else "ridge"
        corrections = [
            (c.name, f"{c.score}{'  <- recommended' if c.name == self.recommended else ''}") for c in self.corrections
        ]
        ranks = [
            (str(r.rank), f"{r.score:.3f} ± {r.error:.3f}{'  <- sufficient' if r == self.sufficient else ''}")
            for r in self.rank_scores
        ]
        parts = [
            ("", [("similarity", self.kernel), ("objects", seen), ("similarities", f"{looked}, {self.seconds:.1f} s")]),
            ("values", values),
            ("spectrum", spectrum),
            ("as dissimilarity", dissimilarity),
            ("in diagonal blocks", blocks),
            ("memory and error, forecast", forecasts),
            (f"corrections, {self.metric} of {learner} on rows left out", corrections),
            (
                f"score against rank, {self.metric} of ridge on rows left out",
                [*ranks, ("", self.rank_verdict)] if ranks else [],
            ),
            ("notes", [("", note) for note in self.notes]),
        ]
        return [(heading, lines) for heading, lines in parts if lines]

    def __str__(self) -> str:
        lines = []
        for heading, found in self.sections():
            if heading:
                lines.append(heading)
            width = max((len(name) for name, _ in found), default=0)
            lines += [f"  {name.ljust(width)}{'  ' if width else ''}{text}" for name, text in found]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from krein.report import summary

        return summary.table("Inspection", self.sections())
