"""What an inspection puts on the page: data, spectrum, values, blocks, memory and error, corrections, ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from krein.report import charts
from krein.report.charts import ChartData
from krein.report.markup import Cell, facts, fixed, in_bytes, number, plain, share, table, with_interval

__all__ = ["blocks", "corrections", "data", "glance", "indefinite", "memory", "ranks", "relative_change", "spectrum"]


def glance(found: Any) -> list[str]:
    """What matters most, a sentence each."""
    negative, sampled = found.inertia[2], number("sampled", found.n_sampled)
    if found.psd:
        so_far = " as far as the sample shows" if found.n_sampled < found.n_objects else ""
        none = number("negative", negative, "No negative eigenvalue")
        out = [f"{none} among {sampled} objects: nothing has to be corrected{so_far}."]
    else:
        out = [
            f"<strong>Indefinite</strong>: {number('negative', negative)} of {sampled} eigenvalues are negative and "
            f"hold {number('negative-share', with_interval(found.negative_share, share))} of the spectrum."
        ]
    best = found.choice
    if best is not None:
        out.append(
            f"{number('blocks', best.n_blocks)} block{'s' if best.n_blocks > 1 else ''} of rank "
            f"{number('rank', best.rank)} would take {number('bytes', in_bytes(best.nbytes))} instead of "
            f"{number('full-bytes', in_bytes(8 * found.n_objects**2))}, with an error of about "
            f"{number('error', best.error)}."
        )
    elif found.forecasts:
        closest = min(found.forecasts, key=lambda f: f.error)
        shape = f"{closest.n_blocks} block{'s' if closest.n_blocks > 1 else ''} of rank {closest.rank}"
        error = number("error", closest.error)
        out.append(f"No forecast reaches an error of {found.target:g}; the closest is {error}, {shape}.")
    if found.recommended is not None and not found.psd:
        scores = [c.score for c in found.corrections if c.name == found.recommended]
        of = [
            f", {found.metric} {number('correction-score', with_interval(s, _show(found)))} on rows left out"
            for s in scores
        ]
        out.append(f"Recommended correction: {number('correction', found.recommended)}{''.join(of)}.")
    return [*out, f"{plain(found.rank_verdict)}."] if found.rank_verdict else out


def data(found: Any) -> list[tuple[str, str]]:
    """What was compared by what."""
    n, m, asked = found.n_objects, found.n_sampled, found.n_evaluations
    low, high = (number("diagonal", value) for value in found.diagonal)
    constant = number("diagonal", found.diagonal[0], f"{fixed(found.diagonal[0])} for all")
    part = asked / n**2
    return [
        ("Kernel", f"<code>{plain(found.kernel)}</code>"),
        ("Objects", number("objects", n)),
        ("Sampled", number("sampled", m, "all of them" if m == n else f"{m:,} at random")),
        ("Similarities evaluated", f"{number('evaluations', asked)}, {number('evaluations', part, share(part))}"),
        ("Range", f"{number('range', found.low)} to {number('range', found.high)}"),
        ("With themselves", constant if found.constant_diagonal else f"{low} to {high}"),
        ("Negative pairs", number("negative-entries", with_interval(found.negative_entries, share))),
        ("Asymmetry", number("asymmetry", found.asymmetry, "none" if found.asymmetry == 0 else None)),
    ]


def indefinite(found: Any) -> str:
    """Spectrum, its trend, the similarities' histogram."""
    positive, zero, negative = found.inertia
    lines = [
        ("Positive eigenvalues", number("positive", positive)),
        ("Zero", number("zero", zero)),
        ("Negative", number("negative", negative)),
        ("Largest", number("largest", float(found.eigenvalues[0]))),
        ("Smallest", number("smallest", found.smallest)),
        ("Negative share", number("negative-share", with_interval(found.negative_share, share))),
    ]
    if found.negative_share_of_all is not None and found.n_sampled < found.n_objects:
        low, high = found.negative_share_of_all
        least = number("share-of-all", low, "at least " + share(low))
        lines.append(("Of all objects", f"{least}, {number('share-of-all', high, share(high))} if it grows on"))
    lines += [
        ("Negative squared distances", number("negative-squares", with_interval(found.negative_squares, share))),
        ("Triangle violated", number("triangle", with_interval(found.triangle_violations, share))),
    ]
    columns = [("trend-objects", "Objects"), ("negative-share", "Negative share"), ("trend-spread", "Spread"),
               ("trend-smallest", "Smallest eigenvalue")]  # fmt: skip
    rows = [
        [t.n_objects, Cell(t.negative_share, share(t.negative_share)), Cell(t.spread, share(t.spread)), t.smallest]
        for t in found.trend
    ]
    trend = "<h3>With fewer objects</h3>" + table("The spectrum of subsets of the sample", columns, rows)
    return (
        facts(lines)
        + spectrum(found.eigenvalues, "spectrum", "Spectrum", "Eigenvalues of the sample's matrix.")
        + charts.histogram(
            "values",
            "Similarities",
            "How similar two different objects of the sample are.",
            [("bin", "Similarity"), ("count", "Pairs")],
            found.counts,
            found.edges,
            "Similarities of pairs",
        )
        + (trend if rows else "")
    )


def spectrum(values: Any, key: str, title: str, text: str) -> str:
    """A chart of eigenvalues, largest first."""
    rounded = [float(f"{v:.6g}") for v in np.sort(values)[::-1]]
    rows = [[i, Cell(v, str(v))] for i, v in enumerate(rounded, start=1)]
    return charts.stems(ChartData(key, title, text, [("place", "Place"), ("eigenvalue", "Eigenvalue")], rows))


def blocks(found: Any) -> str:
    """How much of the matrix a few diagonal blocks hold."""
    columns = [("blocks", "Blocks"), ("block-share", "ChartData within"), ("block-chance", "By chance")]
    rows = [[b.n_blocks, with_interval(b.share, share), Cell(b.chance, share(b.chance))] for b in found.blocks]
    text = "The share of the matrix that lies within groups of similar objects; the line across a bar is chance."
    chart = ChartData("blocks", "ChartData in diagonal blocks", text, columns, rows, "Blocks")
    return charts.bars(chart, "share of |K|²", beside=2) if rows else ""


def memory(found: Any) -> str:
    """What c blocks of rank k would take and leave."""
    columns = [("blocks", "Blocks"), ("rank", "Rank"), ("bytes", "Memory"), ("error", "Error"),
               ("how-known", "Known from"), ("mark", "Mark")]  # fmt: skip
    rows = [
        [f.n_blocks, f.rank, in_bytes(f.nbytes), f.error, "sample" if f.seen else "trend",
         f"fewest bytes for {found.target:g}" if f == found.choice else ""]
        for f in found.forecasts
    ]  # fmt: skip
    text = (
        "Forecast for all objects, one point per number of blocks c and rank k; the ring is the smallest that will do."
    )
    chart = ChartData("memory", "Memory and error", text, columns, rows, "Memory and error, forecast")
    return charts.scatter(chart, 2, 3, "bytes", "relative error") if rows else ""


def relative_change(values: Any, how: str) -> float | None:
    """How far a correction moves a matrix with these eigenvalues, over its Frobenius norm; None for "square"."""
    spectrum = np.asarray(values, dtype=float)
    norm = float(np.linalg.norm(spectrum))
    below = np.minimum(spectrum, 0.0)
    if how == "square" or norm == 0.0:
        return None
    steps = {"none": 0.0, "clip": float(np.linalg.norm(below)), "flip": 2.0 * float(np.linalg.norm(below)),
             "shift": -float(below.min(initial=0.0)) * math.sqrt(len(spectrum))}  # fmt: skip
    return steps[how] / norm if how in steps else None


def corrections(found: Any, used: str | None = None) -> str:
    """What each correction does to the matrix and, where there are labels, to the score; the one in use is marked."""
    scores = {c.name: with_interval(c.score, _show(found)) for c in found.corrections}
    names = ["none"] if found.psd else list(scores) or ["none", "shift", "clip", "flip", "square"]
    if used is not None and used not in names:
        names.append(used)
    columns = [("correction", "Correction"), ("change", "Change of the matrix")]
    columns += [("correction-score", found.metric.capitalize())] * bool(scores) + [("mark", "Mark")]
    rows = []
    for name in names:
        marks = [word for word, of in (("recommended", found.recommended), ("in use", used)) if name == of]
        rows.append(
            [name, relative_change(found.eigenvalues, name), *([scores.get(name)] * bool(scores)), ", ".join(marks)]
        )
    learner = "an SVM" if found.learner == "svm" else "ridge"
    text = f"{found.metric.capitalize()} of {learner} on rows left out, with 95 % intervals."
    chart = ChartData("corrections", "Corrections compared", text, columns, rows, "Corrections")
    return charts.bars(chart, found.metric, at=2, dots=True) if len(scores) > 1 else chart.table()


def ranks(found: Any) -> str:
    """The score of every rank, where there are labels."""
    if not found.rank_scores:
        return ""
    show, metric = _show(found), found.metric.capitalize()
    rows = [
        [r.rank, Cell(r.score, show(r.score), r.score - r.error, r.score + r.error), Cell(r.error, show(r.error)),
         "sufficient" if r == found.sufficient else ""]
        for r in found.rank_scores
    ]  # fmt: skip
    columns = [("score-rank", "Rank"), ("rank-score", metric), ("rank-error", "Standard error"), ("mark", "Mark")]
    text = f"{metric} of ridge on rows left out by the eigenvalues kept, ± one standard error."
    chart = ChartData("ranks", "Score against rank", text, columns, rows)
    return f"<p>{plain(found.rank_verdict)}.</p>" + charts.bars(chart, found.metric, dots=True)


def _show(found: Any) -> Any:
    return share if found.task == "classification" else fixed
