"""What a fitted machine puts on the page: its score, its blocks, what was tried, its correction, its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from krein.errors import InputError
from krein.report import charts
from krein.report.charts import ChartData
from krein.report.inspected import spectrum
from krein.report.markup import Cell, facts, fixed, in_bytes, number, plain, share, table
from krein.report.summary import is_exact, kernel_of, matrix_of

__all__ = ["Fitted", "as_fitted", "block_norms", "blocks", "glance", "machine", "score", "stages", "tried"]

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

    @property
    def error(self) -> str:
        error = self.estimator.relative_error_
        return number("error", error, "0 to rounding" if error < ERROR_ROUNDING else None)


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
    out, s = [], fit.score
    if s is not None:
        ends = " to ".join(number("score-interval", _scored(s, end)) for end in interval(s) if end is not None)
        out.append(
            f"<strong>{plain(fit.name)}</strong> of {plain(fit.target)}: {plain(s.name)} "
            f"{number('score', _scored(s, s.mean))}{f' ({ends})' if ends else ''} on rows it had not seen; without "
            f"learning {number('baseline', _scored(s, s.baseline))}."
        )
    n, how = number("objects", fit.n_rows), number("correction", fit.correction)
    if fit.exact:
        matrix = f"The matrix of {plain(fit.name)}, {n} objects: {plain(matrix_of(fit.estimator))}"
        return [*out, f"{matrix}; correction {how}."]
    nbytes = fit.factorization.nbytes
    part = nbytes / (8 * fit.n_rows**2)
    return [
        *out,
        f"{plain(fit.name)} holds the matrix of {n} objects in {number('bytes', in_bytes(nbytes))}, "
        f"{number('memory-share', part, share(part))} of the whole, with an error of {fit.error}; correction {how}.",
    ]


def machine(fit: Fitted) -> str:
    """The machine's parameters and what came of them."""
    e = fit.estimator
    lines = [("Machine", f"<code>{plain(fit.name)}</code>")]
    lines += [] if fit.target is None else [("Target", plain(fit.target))]
    lines += [("Kernel", f"<code>{plain(kernel_of(e))}</code>"), ("Rows", number("objects", fit.n_rows))]
    lines += [] if fit.features is None else [("Features", number("features", fit.features))]
    if fit.exact:
        lines.append(("Matrix", plain(f"{matrix_of(e)}: {e.route_.why}")))
    else:
        f, full = fit.factorization, number("full-bytes", in_bytes(8 * fit.n_rows**2))
        lines += [
            ("Blocks", number("blocks", f.n_blocks)),
            ("Directions", number("directions", f.rank)),
            ("Memory", f"{number('bytes', in_bytes(f.nbytes))} of {full}"),
        ]
    lines += [
        ("Error of the matrix", fit.error),
        ("Correction", number("correction", fit.correction)),
        ("Negative eigenvalues before it", number("n-negative", e.n_negative_)),
    ]
    if hasattr(e, "n_iter_"):
        lines.append(("Iterations", number("iterations", int(np.sum(e.n_iter_)))))
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


def interval(score: Any) -> tuple[float | None, float | None]:
    """The mean's 95 % interval: Student's t over folds; of one part held out only a share has one."""
    folds = len(score.values)
    if folds < 2 and score.name != "accuracy":
        return None, None
    times = float(stdtrit(folds - 1, 0.975)) if folds > 1 else 1.959964
    reach = times * score.error
    return score.mean - reach, min(1.0, score.mean + reach)


def _scored(score: Any, value: float) -> Cell:
    return Cell(value, share(value) if score.name == "accuracy" else fixed(value))


def score(fit: Fitted) -> str:
    """The score of every fold and the mean's interval."""
    s = fit.score
    if s is None:
        return ""
    lines = [(s.name.capitalize(), number("score", _scored(s, s.mean)))]
    if ends := [number("score-interval", _scored(s, end)) for end in interval(s) if end is not None]:
        lines.append(("95 % confidence", " to ".join(ends)))
    lines += [
        ("Without learning", number("baseline", _scored(s, s.baseline))),
        ("Rows tested", number("tested", s.n_tested)),
    ]
    rows = [[i, _scored(s, v)] for i, v in enumerate(s.values, start=1)]
    text = f"{s.name.capitalize()} of each fold on rows it was not fitted to."
    chart = ChartData("folds", "Score by fold", text, [("fold", "Fold"), ("score", s.name.capitalize())], rows, "Folds")
    return facts(lines) + charts.bars(chart, s.name, dots=True)


def blocks(fit: Fitted) -> str:
    """The machine's blocks: rows, ranks, and how strongly they are coupled."""
    if fit.exact or fit.factorization.n_blocks == 1:
        return ""
    f = fit.factorization
    sizes = [rows.stop - rows.start for rows, _ in f.spans]
    return (_sizes(sizes) if len(sizes) > BLOCK_BARS else _each(sizes, f.ranks)) + _coupling(f)


def _each(sizes: list[int], ranks: Any) -> str:
    columns = [("block", "Block"), ("block-rows", "Rows"), ("block-rank", "Rank")]
    rows = [[i, size, int(rank)] for i, (size, rank) in enumerate(zip(sizes, ranks, strict=True), start=1)]
    return charts.bars(
        ChartData("sizes", "The machine's blocks", "Rows in each block of the fitted matrix.", columns, rows), "rows"
    )


def _sizes(sizes: list[int]) -> str:
    counts, edges = np.histogram(sizes, bins=min(20, max(1, len(set(sizes)))))
    return charts.histogram(
        "sizes", "The machine's blocks", f"How many rows each of the {len(sizes):,} blocks of the fitted matrix has.",
        [("block-rows", "Rows"), ("blocks", "Blocks")], counts, edges, "The machine's blocks by size",
    )  # fmt: skip


def _coupling(f: Any) -> str:
    c = f.n_blocks
    if c > DRAWN_BLOCKS:
        return ""
    norms = block_norms(f)
    if norms.max() == 0.0:
        return ""
    shares = norms / norms.max()
    columns = [("block", "Block"), ("block", "With block"), ("coupling", "Coupling")]
    rows = [[i + 1, j + 1, Cell(float(shares[i, j]), share(shares[i, j]))] for i in range(c) for j in range(i, c)]
    text = "How strongly blocks are coupled in the corrected matrix: the darker, the stronger; a dash is none at all."
    return charts.grid(ChartData("coupling", "Coupling of blocks", text, columns, rows, "Coupling"), c)


def block_norms(f: Any) -> Any:
    """The Frobenius norms of the blocks of a core; with orthonormal bases those of the approximated matrix."""
    if not isinstance(f.core, np.ndarray):
        norms = np.zeros((f.n_blocks, f.n_blocks))
        for i, j, block in f.core.blocks():
            norms[i, j] = norms[j, i] = np.linalg.norm(block)
        return norms
    return np.array([[np.linalg.norm(f.core[a, b]) for _, b in f.spans] for _, a in f.spans])


def _searched(fit: Fitted) -> Any:
    return None if fit.exact else fit.estimator.approximation_.search_


def tried(fit: Fitted) -> str:
    """What was tried where blocks and rank were left open: by score, or by error."""
    chosen, searched = getattr(fit.estimator, "selection_", None), _searched(fit)
    if chosen is not None:
        how, reason = "score", chosen.reason
        columns = [("blocks", "Blocks"), ("rank", "Rank"), ("coupled", "Coupled"), ("gamma", "gamma"),
                   ("tried-score", "Score"), ("bytes", "Memory"), ("seconds", "Seconds"), ("mark", "Mark")]  # fmt: skip
        rows = [
            [t.n_blocks, t.rank, "yes" if t.coupled else "no", getattr(t.kernel, "gamma", None), t.score,
             in_bytes(t.nbytes), t.seconds, "chosen" if i == chosen.best else ""]
            for i, t in enumerate(chosen.tried)
        ]  # fmt: skip
    elif searched is not None and len(searched.tried) > 1:
        how, reason = "error", searched.reason
        columns = [("blocks", "Blocks"), ("rank", "Rank"), ("stored", "Stored as"), ("bytes", "Memory"),
                   ("error", "Error"), ("how-known", "Known from")]  # fmt: skip
        rows = [[t.n_blocks, t.rank, t.dtype, in_bytes(t.nbytes), t.error, t.stage] for t in searched.tried]
    else:
        return ""
    return f"<h3>Tried by {how}</h3><p>{plain(reason)}.</p>" + table("Blocks and ranks tried", columns, rows)


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
