"""What an inspection puts on the page: data, spectrum, values, blocks, memory and error, corrections, ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from krein.errors import si
from krein.report import charts
from krein.report.charts import Bar, Spot
from krein.report.markup import Cell, facts, fixed, number, plain, share, spoken, table

__all__ = ["blocks", "corrections", "data", "glance", "indefinite", "memory", "moved", "ranks"]


def glance(found: Any) -> list[str]:
    """What matters most, a sentence each."""
    negative, m = found.inertia[2], found.n_sampled
    if found.psd:
        verdict = (
            f"{number('negative', negative, 'No negative eigenvalue')} among {number('sampled', m, f'{m:,}')} objects"
        )
        verdict += ": nothing has to be corrected" + (" as far as the sample shows." if m < found.n_objects else ".")
    else:
        verdict = (
            f"<strong>Indefinite</strong>: {number('negative', negative, f'{negative:,}')} of "
            f"{number('sampled', m, f'{m:,}')} eigenvalues are negative and hold "
            f"{_estimate('negative-share', found.negative_share, share)} of the spectrum."
        )
    out = [verdict]
    best = found.choice
    if best is not None:
        full = 8 * found.n_objects**2
        out.append(
            f"{number('blocks', best.n_blocks, str(best.n_blocks))} block{'s' if best.n_blocks > 1 else ''} of rank "
            f"{number('rank', best.rank, str(best.rank))} would take {number('bytes', best.nbytes, si(best.nbytes))} "
            f"instead of {number('full-bytes', full, si(full))}, with an error of about "
            f"{number('error', best.error, fixed(best.error))}."
        )
    elif found.forecasts:
        closest = min(found.forecasts, key=lambda f: f.error)
        out.append(
            f"No forecast reaches an error of {found.target:g}; the closest is "
            f"{number('error', closest.error, fixed(closest.error))}, {_named(closest)}."
        )
    if found.recommended is not None and not found.psd:
        score = next((c.score for c in found.corrections if c.name == found.recommended), None)
        said = (
            ""
            if score is None
            else f", {_metric(found)} {_estimate('correction-score', score, _shown(found))} on rows left out"
        )
        out.append(f"Recommended correction: {number('correction', found.recommended, found.recommended)}{said}.")
    if found.rank_verdict:
        out.append(f"{plain(found.rank_verdict)}.")
    return out


def data(found: Any) -> list[tuple[str, str]]:
    """What was compared by what."""
    n, m, asked = found.n_objects, found.n_sampled, found.n_evaluations
    low, high = found.diagonal
    own = number("diagonal", low, f"{fixed(low)} for all")
    if not found.constant_diagonal:
        own = f"{number('diagonal', low, fixed(low))} to {number('diagonal', high, fixed(high))}"
    return [
        ("Kernel", f"<code>{plain(found.kernel)}</code>"),
        ("Objects", number("objects", n, f"{n:,}")),
        ("Sampled", number("sampled", m, "all of them" if m == n else f"{m:,} at random")),
        (
            "Similarities evaluated",
            number("evaluations", asked, f"{asked:,}")
            + ", "
            + number("evaluations", asked / n**2, share(asked / n**2)),
        ),
        (
            "Range",
            f"{number('range', found.low, fixed(found.low))} to {number('range', found.high, fixed(found.high))}",
        ),
        ("With themselves", own),
        ("Negative pairs", _estimate("negative-entries", found.negative_entries, share)),
        ("Asymmetry", number("asymmetry", found.asymmetry, "none" if found.asymmetry == 0 else fixed(found.asymmetry))),
    ]


def indefinite(found: Any) -> str:
    """Spectrum, its trend, the similarities' histogram."""
    positive, zero, negative = found.inertia
    values = found.eigenvalues
    lines = [
        ("Positive eigenvalues", number("positive", positive, f"{positive:,}")),
        ("Zero", number("zero", zero, f"{zero:,}")),
        ("Negative", number("negative", negative, f"{negative:,}")),
        ("Largest", number("largest", float(values[0]), fixed(float(values[0])))),
        ("Smallest", number("smallest", found.smallest, fixed(found.smallest))),
        ("Negative share", _estimate("negative-share", found.negative_share, share)),
    ]
    if found.negative_share_of_all is not None and found.n_sampled < found.n_objects:
        low, high = found.negative_share_of_all
        grown = f"{number('share-of-all', low, 'at least ' + share(low))}, {number('share-of-all', high, share(high))}"
        lines.append(("Of all objects", f"{grown} if it grows on"))
    lines += [
        ("Negative squared distances", _estimate("negative-squares", found.negative_squares, share)),
        ("Triangle violated", _estimate("triangle", found.triangle_violations, share)),
    ]
    trend = ""
    if found.trend:
        rows: list[list[Cell]] = [
            [(t.n_objects, f"{t.n_objects:,}"), (t.negative_share, share(t.negative_share)),
             (t.spread, share(t.spread)), (t.smallest, fixed(t.smallest))]
            for t in found.trend
        ]  # fmt: skip
        columns = [("trend-objects", "Objects"), ("negative-share", "Negative share"), ("trend-spread", "Spread"),
                   ("trend-smallest", "Smallest eigenvalue")]  # fmt: skip
        trend = "<h3>With fewer objects</h3>" + table("The spectrum of subsets of the sample", columns, rows)
    return (
        facts(lines)
        + spectrum(values, "spectrum", "Spectrum", "Eigenvalues of the sample's matrix.")
        + _values(found)
        + trend
    )


def spectrum(values: Any, key: str, title: str, text: str) -> str:
    """A chart of eigenvalues, largest first."""
    ordered = np.sort(np.asarray(values, dtype=float))[::-1].tolist()
    rounded = [float(f"{v:.6g}") for v in ordered]
    rows: list[list[Cell]] = [[(i + 1, str(i + 1)), (v, str(v))] for i, v in enumerate(rounded)]
    held = table(title, [("place", "Place"), ("eigenvalue", "Eigenvalue")], rows)
    labels = [fixed(v) for v in ordered]
    return charts.stems(key, title, text, ordered, labels, held, f"Eigenvalue # of {len(ordered)}: {{}}")


def _values(found: Any) -> str:
    rows: list[list[Cell]] = []
    labels = []
    for i, count in enumerate(found.counts.tolist()):
        low, high = float(found.edges[i]), float(found.edges[i + 1])
        rows.append([(low, f"{fixed(low)} to {fixed(high)}"), (count, f"{count:,}")])
        labels.append(f"Similarity {fixed(low)} to {fixed(high)}: {count:,} pairs")
    held = table("Similarities of pairs", [("bin", "Similarity"), ("count", "Pairs")], rows)
    text = "How similar two different objects of the sample are."
    return charts.histogram("values", "Similarities", text, found.counts, found.edges, labels, held)


def blocks(found: Any) -> str:
    """How much of the matrix a few diagonal blocks hold."""
    if not found.blocks:
        return ""
    rows: list[list[Cell]] = []
    bars = []
    for b in found.blocks:
        rows.append(
            [(b.n_blocks, str(b.n_blocks)), (b.share.value, spoken(b.share, share)), (b.chance, share(b.chance))]
        )
        said = f"{b.n_blocks} blocks hold {spoken(b.share, share)} of the matrix; by chance {share(b.chance)}"
        percent = [100 * v for v in (b.share.value, b.share.low, b.share.high, b.chance)]
        bars.append(Bar(f"{b.n_blocks} blocks", percent[0], said, percent[1], percent[2], percent[3]))
    columns = [("blocks", "Blocks"), ("block-share", "Held within"), ("block-chance", "By chance")]
    text = "The share of the matrix that lies within groups of similar objects; the line across a bar is chance."
    return charts.bars("blocks", "Held in diagonal blocks", text, bars, "% of |K|²", table("Blocks", columns, rows))


def memory(found: Any) -> str:
    """What c blocks of rank k would take and leave."""
    if not found.forecasts:
        return ""
    rows: list[list[Cell]] = []
    spots = []
    for f in found.forecasts:
        best = f == found.choice
        known, mark = "sample" if f.seen else "trend", f"fewest bytes for {found.target:g}" if best else ""
        rows.append(
            [(f.n_blocks, str(f.n_blocks)), (f.rank, str(f.rank)), (f.nbytes, si(f.nbytes)), (f.error, fixed(f.error)),
             (known, known), (mark, mark)]
        )  # fmt: skip
        said = f"{_named(f)}: {si(f.nbytes)}, error {fixed(f.error)}"
        spots.append(Spot(f.nbytes, f.error, f"c = {f.n_blocks}", said + (f", {mark}" if mark else ""), best))
    columns = [("blocks", "Blocks"), ("rank", "Rank"), ("bytes", "Memory"), ("error", "Error"),
               ("how-known", "Known from"), ("mark", "Mark")]  # fmt: skip
    text = (
        "Forecast for all objects, one point per number of blocks c and rank k; the ring is the smallest that will do."
    )
    held = table("Memory and error, forecast", columns, rows)
    return charts.scatter("memory", "Memory and error", text, spots, "bytes", "relative error", held)


def moved(values: Any, how: str) -> float | None:
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
    scores = {c.name: c.score for c in found.corrections}
    names = ["none"] if found.psd else list(scores) or ["none", "shift", "clip", "flip", "square"]
    if used is not None and used not in names:
        names.append(used)
    rows: list[list[Cell]] = []
    bars = []
    for name in names:
        change, score = moved(found.eigenvalues, name), scores.get(name)
        marks = [
            word for word, holds in (("recommended", name == found.recommended), ("in use", name == used)) if holds
        ]
        mark = ", ".join(marks)
        row: list[Cell] = [(name, name), ("", "") if change is None else (change, fixed(change))]
        if scores:
            row.append(("", "") if score is None else (score.value, spoken(score, _shown(found))))
        rows.append([*row, (mark, mark)])
        if score is not None:
            said = f"{name}: {_metric(found)} {spoken(score, _shown(found))}" + (f", {mark}" if mark else "")
            bars.append(
                Bar(name + (f" ({mark})" if mark else ""), score.value, said, score.low, score.high, None, bool(mark))
            )
    columns = [("correction", "Correction"), ("change", "Change of the matrix")]
    columns += [("correction-score", _metric(found).capitalize())] * bool(scores) + [("mark", "Mark")]
    held = table("Corrections", columns, rows)
    if len(bars) < 2:
        return held
    learner = "an SVM" if found.learner == "svm" else "ridge"
    text = f"{_metric(found).capitalize()} of {learner} on rows left out, with 95 % intervals."
    return charts.bars("corrections", "Corrections compared", text, bars, _metric(found), held, dots=True)


def ranks(found: Any) -> str:
    """The score of every rank, where there are labels."""
    if not found.rank_scores:
        return ""
    rows: list[list[Cell]] = []
    bars = []
    show = _shown(found)
    for r in found.rank_scores:
        enough = r == found.sufficient
        mark = "sufficient" if enough else ""
        rows.append([(r.rank, str(r.rank)), (r.score, show(r.score)), (r.error, show(r.error)), (mark, mark)])
        said = f"Rank {r.rank}: {_metric(found)} {show(r.score)}, standard error {show(r.error)}"
        name = f"{r.rank} (sufficient)" if enough else str(r.rank)
        bars.append(Bar(name, r.score, said, r.score - r.error, r.score + r.error, None, enough))
    columns = [("score-rank", "Rank"), ("rank-score", _metric(found).capitalize()), ("rank-error", "Standard error"),
               ("mark", "Mark")]  # fmt: skip
    text = f"{_metric(found).capitalize()} of ridge on rows left out by the eigenvalues kept, ± one standard error."
    verdict = f"<p>{plain(found.rank_verdict)}.</p>"
    held = table("Score against rank", columns, rows)
    return verdict + charts.bars("ranks", "Score against rank", text, bars, _metric(found), held, dots=True)


def _metric(found: Any) -> str:
    return "accuracy" if found.task == "classification" else "R²"


def _shown(found: Any) -> Any:
    return share if found.task == "classification" else fixed


def _estimate(key: str, estimate: Any, show: Any = fixed) -> str:
    return number(key, estimate.value, spoken(estimate, show), estimate.low, estimate.high)


def _named(forecast: Any) -> str:
    return f"{forecast.n_blocks} block{'s' if forecast.n_blocks > 1 else ''} of rank {forecast.rank}"
