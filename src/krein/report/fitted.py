"""What a fitted machine puts on the page: its score, its blocks, what was tried, its correction, its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from krein.errors import InputError, si
from krein.report import charts
from krein.report.charts import Bar
from krein.report.inspected import spectrum
from krein.report.markup import Cell, facts, fixed, number, plain, share, table
from krein.report.summary import is_exact, kernel_of

__all__ = ["Fitted", "as_fitted", "blocks", "glance", "machine", "score", "stages", "tried"]

# Up to BLOCK_BARS blocks have a bar each. Of more only a summary is given.
BLOCK_BARS = 16
# The couplings of up to DRAWN_BLOCKS blocks are drawn.
DRAWN_BLOCKS = 40
# Smaller relative errors are rounding.
ERROR_ROUNDING = 1e-12
# The eigenvalues of a core of up to MOST_DIRECTIONS directions are computed for the page.
MOST_DIRECTIONS = 2048


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted machine, and of a model of columns what it knows beside."""

    estimator: Any
    target: str | None = None
    score: Any = None
    seconds: tuple[tuple[str, float], ...] = ()
    features: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return type(self.estimator).__name__

    @property
    def exact(self) -> bool:
        return is_exact(self.estimator)

    @property
    def n_rows(self) -> int:
        return int(self.estimator._n_rows)

    @property
    def factorization(self) -> Any:
        """Of a machine that approximates; an exact one has none."""
        return self.estimator.approximation_.factorization

    @property
    def correction(self) -> str:
        return str(self.estimator.correction_)


def as_fitted(model: Any) -> Fitted:
    """A machine, or a model of columns, as this room sees it."""
    estimator = getattr(model, "estimator", model)
    if not hasattr(estimator, "route_"):
        raise InputError(
            f"A report needs a fitted krein machine; got {type(model).__name__}, which has no route_. Call fit first; "
            "of a pipeline or a search, pass the machine in it."
        )
    if estimator is model:
        return Fitted(model, features=getattr(model, "n_features_in_", None))
    encoder = model.encoder
    return Fitted(
        estimator, model.target, model.score, tuple(model.seconds.items()),
        None if encoder is None else len(encoder.names), () if encoder is None else encoder.notes,
    )  # fmt: skip


def glance(fit: Fitted) -> list[str]:
    """What matters most, a sentence each."""
    out, n = [], fit.n_rows
    if fit.score is not None:
        low, high = interval(fit.score)
        sure = "" if low is None else f" ({number('score-interval', low, _scored(fit.score, low))} to "
        sure += "" if high is None else f"{number('score-interval', high, _scored(fit.score, high))})"
        mean = number("score", fit.score.mean, _scored(fit.score, fit.score.mean))
        base = number("baseline", fit.score.baseline, _scored(fit.score, fit.score.baseline))
        out.append(
            f"<strong>{plain(fit.name)}</strong> of {plain(fit.target)}: {plain(fit.score.name)} {mean}{sure} on rows "
            f"it had not seen; without learning {base}."
        )
    how = fit.correction
    if fit.exact:
        out.append(
            f"{plain(fit.name)} used the kernel's own matrix of {number('objects', n, f'{n:,}')} objects: nothing is "
            f"approximated; correction {number('correction', how, how)}."
        )
        return out
    f, error = fit.factorization, fit.estimator.relative_error_
    part = f.nbytes / (8 * n**2)
    out.append(
        f"{plain(fit.name)} holds the matrix of {number('objects', n, f'{n:,}')} objects in "
        f"{number('bytes', f.nbytes, si(f.nbytes))}, {number('memory-share', part, share(part))} of the whole, with an "
        f"error of {_error(error)}; correction {number('correction', how, how)}."
    )
    return out


def machine(fit: Fitted) -> str:
    """The machine's parameters and what came of them."""
    e, n = fit.estimator, fit.n_rows
    lines = [
        ("Machine", f"<code>{plain(fit.name)}</code>"),
        ("Kernel", f"<code>{plain(kernel_of(e))}</code>"),
        ("Rows", number("objects", n, f"{n:,}")),
    ]
    if fit.target is not None:
        lines.insert(1, ("Target", plain(fit.target)))
    if fit.features is not None:
        lines.append(("Features", number("features", fit.features, f"{fit.features:,}")))
    if fit.exact:
        lines.append(("Matrix", f"the kernel's own: {plain(e.route_.why)}"))
    else:
        f, full = fit.factorization, 8 * n**2
        lines += [
            ("Blocks", number("blocks", f.n_blocks, f"{f.n_blocks:,}")),
            ("Directions", number("directions", f.rank, f"{f.rank:,}")),
            (
                "Memory",
                f"{number('bytes', f.nbytes, si(f.nbytes))} of {number('full-bytes', full, si(full))}",
            ),
        ]
    lines += [
        ("Error of the matrix", _error(e.relative_error_)),
        ("Correction", number("correction", fit.correction, fit.correction)),
        ("Negative eigenvalues before it", number("n-negative", e.n_negative_, f"{e.n_negative_:,}")),
    ]
    if hasattr(e, "n_iter_"):
        steps = int(np.sum(e.n_iter_))
        lines.append(("Iterations", number("iterations", steps, f"{steps:,}")))
    if hasattr(e, "converged_"):
        lines.append(("Converged", number("converged", bool(e.converged_), "yes" if e.converged_ else "no")))
    return facts(lines) + _spectra(fit)


def _spectra(fit: Fitted) -> str:
    """The machine's matrix before its correction and after it; nothing where it is not at hand, or too large."""
    if fit.exact:
        return ""
    before = getattr(fit.estimator, "_uncorrected", fit.estimator.approximation_).factorization
    if before.rank > MOST_DIRECTIONS:
        return ""
    text = "Eigenvalues of the approximated matrix"
    try:
        values = before.eigenvalues()
    except InputError:  # a sparse core of too many coupled blocks: only its ends are known
        return ""
    out = spectrum(values, "before", "The machine's spectrum", f"{text}, before any correction.")
    if fit.factorization is not before and fit.factorization.rank <= MOST_DIRECTIONS:
        after = fit.factorization.eigenvalues()
        out += spectrum(after, "after", "After the correction", f"{text}, after {fit.correction}.")
    return out


def _error(value: float) -> str:
    return number("error", value, "0 to rounding" if value < ERROR_ROUNDING else fixed(value))


def interval(score: Any) -> tuple[float | None, float | None]:
    """The mean's 95 % interval: Student's t over folds; of one part held out only a share has one."""
    folds = len(score.values)
    if folds < 2 and score.name != "accuracy":
        return None, None
    times = float(stdtrit(folds - 1, 0.975)) if folds > 1 else 1.959964
    reach = times * score.error
    return score.mean - reach, min(1.0, score.mean + reach)


def _scored(score: Any, value: float) -> str:
    return share(value) if score.name == "accuracy" else fixed(value)


def score(fit: Fitted) -> str:
    """The score of every fold and the mean's interval."""
    s = fit.score
    if s is None:
        return ""
    low, high = interval(s)
    lines = [
        (s.name.capitalize(), number("score", s.mean, _scored(s, s.mean))),
        ("Without learning", number("baseline", s.baseline, _scored(s, s.baseline))),
        ("Rows tested", number("tested", s.n_tested, f"{s.n_tested:,}")),
    ]
    if low is not None and high is not None:
        both = f"{number('score-interval', low, _scored(s, low))} to {number('score-interval', high, _scored(s, high))}"
        lines.insert(1, ("95 % confidence", both))
    rows: list[list[Cell]] = [[(i + 1, str(i + 1)), (v, _scored(s, v))] for i, v in enumerate(s.values)]
    held = table("Folds", [("fold", "Fold"), ("score", s.name.capitalize())], rows)
    bars = [Bar(f"fold {i + 1}", v, f"Fold {i + 1}: {s.name} {_scored(s, v)}") for i, v in enumerate(s.values)]
    said = f"Mean: {s.name} {_scored(s, s.mean)}"
    if low is not None and high is not None:
        said += f" ({_scored(s, low)} to {_scored(s, high)})"
    bars.append(Bar("mean", s.mean, said, low, high, None, True))
    text = f"{s.name.capitalize()} of each fold on rows it was not fitted to, and the mean with its 95 % interval."
    return facts(lines) + charts.bars("folds", "Score by fold", text, bars, s.name, held, dots=True)


def blocks(fit: Fitted) -> str:
    """The machine's blocks: rows, ranks, and how strongly they are coupled."""
    if fit.exact:
        return ""
    f = fit.factorization
    sizes = [rows.stop - rows.start for rows, _ in f.spans]
    if len(sizes) == 1:
        return ""
    return (_sizes(sizes) if len(sizes) > BLOCK_BARS else _each(sizes, f.ranks)) + _coupling(f)


def _each(sizes: list[int], ranks: Any) -> str:
    both = list(enumerate(zip(sizes, ranks, strict=True), start=1))
    cells: list[list[Cell]] = [[(i, str(i)), (rows, f"{rows:,}"), (rank, str(rank))] for i, (rows, rank) in both]
    held = table("The machine's blocks", [("block", "Block"), ("block-rows", "Rows"), ("block-rank", "Rank")], cells)
    bars = [Bar(f"block {i}, rank {rank}", rows, f"Block {i}: {rows:,} rows, rank {rank}") for i, (rows, rank) in both]
    text = "Rows in each block of the fitted matrix."
    return charts.bars("sizes", "The machine's blocks", text, bars, "rows", held)


def _sizes(sizes: list[int]) -> str:
    counts, edges = np.histogram(sizes, bins=min(20, max(1, len(set(sizes)))))
    labels, cells = [], []
    for i, count in enumerate(counts.tolist()):
        between = f"{fixed(edges[i])} to {fixed(edges[i + 1])}"
        labels.append(f"{count:,} blocks of {between} rows")
        cells.append([(float(edges[i]), between), (count, f"{count:,}")])
    held = table("The machine's blocks by size", [("block-rows", "Rows"), ("blocks", "Blocks")], cells)
    text = f"How many rows each of the {len(sizes):,} blocks of the fitted matrix has."
    return charts.histogram("sizes", "The machine's blocks", text, counts, edges, labels, held, ("blocks", "rows"))


def _coupling(f: Any) -> str:
    c = f.n_blocks
    if c > DRAWN_BLOCKS:
        return ""
    norms = np.zeros((c, c))
    if isinstance(f.core, np.ndarray):
        for i, (_, left) in enumerate(f.spans):
            for j, (_, right) in enumerate(f.spans):
                norms[i, j] = np.linalg.norm(f.core[left, right])
    else:
        for i, j, block in f.core.blocks():
            norms[i, j] = norms[j, i] = np.linalg.norm(block)
    if norms.max() == 0.0:
        return ""
    shares = norms / norms.max()
    pairs = [(i, j) for i in range(c) for j in range(c)]
    labels = [f"{i + 1} and {j + 1}: {share(shares[i, j])}" for i, j in pairs]
    rows: list[list[Cell]] = [
        [(i + 1, str(i + 1)), (j + 1, str(j + 1)), (float(shares[i, j]), share(shares[i, j]))]
        for i, j in pairs
        if i <= j
    ]
    held = table("Coupling", [("block", "Block"), ("block", "With block"), ("coupling", "Coupling")], rows)
    text = "How strongly blocks are coupled in the corrected matrix: the darker, the stronger; a dash is none at all."
    return charts.grid("coupling", "Coupling of blocks", text, shares, labels, held, "Blocks {} of the strongest")


def _searched(fit: Fitted) -> Any:
    return None if fit.exact else fit.estimator.approximation_.search_


def tried(fit: Fitted) -> str:
    """What was tried where blocks and rank were left open: by score, or by error."""
    chosen, searched = getattr(fit.estimator, "selection_", None), _searched(fit)
    if chosen is not None:
        rows: list[list[Cell]] = []
        for i, t in enumerate(chosen.tried):
            gamma, mark = getattr(t.kernel, "gamma", None), "chosen" if i == chosen.best else ""
            rows.append(
                [(t.n_blocks, str(t.n_blocks)), (t.rank, str(t.rank)), *[("yes", "yes") if t.coupled else ("no", "no")],
                 ("", "") if gamma is None else (gamma, fixed(gamma)), (t.score, fixed(t.score)),
                 (t.nbytes, si(t.nbytes)), (t.seconds, fixed(t.seconds)), (mark, mark)]
            )  # fmt: skip
        columns = [("blocks", "Blocks"), ("rank", "Rank"), ("coupled", "Coupled"), ("gamma", "gamma"),
                   ("tried-score", "Score"), ("bytes", "Memory"), ("seconds", "Seconds"), ("mark", "Mark")]  # fmt: skip
        return f"<h3>Tried by score</h3><p>{plain(chosen.reason)}.</p>" + table("Blocks and ranks tried", columns, rows)
    if searched is not None and len(searched.tried) > 1:
        rows = [
            [(t.n_blocks, str(t.n_blocks)), (t.rank, str(t.rank)), (t.dtype, t.dtype), (t.nbytes, si(t.nbytes)),
             (t.error, fixed(t.error)), (t.stage, t.stage)]
            for t in searched.tried
        ]  # fmt: skip
        columns = [("blocks", "Blocks"), ("rank", "Rank"), ("stored", "Stored as"), ("bytes", "Memory"),
                   ("error", "Error"), ("how-known", "Known from")]  # fmt: skip
        return f"<h3>Tried by error</h3><p>{plain(searched.reason)}.</p>" + table(
            "Blocks and ranks tried", columns, rows
        )
    return ""


def stages(fit: Fitted) -> list[tuple[str, float]]:
    """What took how long, as far as the machine knows."""
    chosen, searched = getattr(fit.estimator, "selection_", None), _searched(fit)
    known = {"judging": "Judging it on rows held out", "fitting": "Fitting it to all rows"}
    out = [(known.get(name, name), seconds) for name, seconds in fit.seconds]
    inside = "part of fitting: " if fit.seconds else ""
    if chosen is not None:
        out.append((f"{inside}choosing blocks and rank".capitalize(), chosen.seconds))
    if searched is not None:
        out.append((f"{inside}choosing by error".capitalize(), searched.seconds))
        out.append((f"{inside}building the matrix".capitalize(), searched.build_seconds))
    return [(name, seconds) for name, seconds in out if seconds > 0.0]
