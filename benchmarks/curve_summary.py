"""What the size curve's table says of its four claims: Markdown from the rows of curve.csv, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

SMALL = 2000  # rows up to which krein is held against scikit-learn in everything
FIT, FIT_MEAN, PREDICT, PEAK = 1.5, 1.2, 1.5, 1.3  # times scikit-learn's, there
FILE, FILE_MORE = 3.0, 100_000  # times its pickle, and so many bytes
MIDDLE, MIDDLE_FIT, SAME = 50_001, 1.2, 0.999
LARGE, LARGE_FIT, SVMS = 20_000, 0.5, ("SVC", "SVR", "OneClassSVM")  # these from so many rows on
FAR_FIT, FARTHEST_FIT, CLEARLY = 2.0, 10.0, 2.0  # times Nystroem's; better by so many standard errors
STEP_FIT, STEP_SCORE = 1.5, 2.0  # from n to n + 1; standard errors, from any n to the next
WORST = 8  # cells named where more fail
SIDES = ("krein", "scikit-learn")

Row = dict[str, str]


@dataclass(frozen=True)
class Cell:
    """Krein's row of one machine, data set and n, and the others'."""

    machine: str
    data: str
    n: int
    by: dict[str, Row]  # contender to row, finished ones alone

    @property
    def name(self) -> str:
        return f"{self.machine}, {self.data}, {self.n}"

    def ratio(self, column: str, peer: str = "scikit-learn") -> float:
        """Krein's over the peer's; nan where one has none."""
        ours, theirs = self.value(column), self.value(column, peer)
        return ours / theirs if theirs > 0.0 else math.nan

    def value(self, column: str, contender: str = "krein") -> float:
        text = self.by.get(contender, {}).get(column, "")
        return float(text) if text else math.nan

    def behind(self, peer: str = "scikit-learn") -> float:
        """By how many of the peer's standard errors krein's score is lower; below 0 where it is higher."""
        lost = self.value("score", peer) - self.value("score")
        return lost / max(self.value("standard_error", peer), 1e-12)


def cells(rows: Iterable[Row]) -> list[Cell]:
    """All with a fit of krein's, in the order of the table."""
    found: dict[tuple[str, str, int], dict[str, Row]] = {}
    for r in rows:
        if r["outcome"] == "done":
            found.setdefault((r["machine"], r["data"], int(r["n"])), {})[r["contender"]] = r
    return [Cell(*key, by) for key, by in found.items() if "krein" in by]


def summarise(rows: Sequence[Row]) -> str:
    all_cells = cells(rows)
    lines = [
        "# The size curve",
        "",
        "Eight machines with their defaults on 250 to 100,000 rows, two data sets each: krein's fit beside",
        "scikit-learn's class, beside Nystroem with 1000 features and a linear machine, and beside scikit-learn's",
        "class on as many rows as it fits in krein's time. `benchmarks/bench_curve.py` says what each of them is.",
        "One BLAS thread, processor seconds, each cell in a process of its own; ratios are krein's over the peer's.",
        "",
        "![Fit time, score, peak memory, time to predict one row and file size over the number of rows](curve.png)",
        "",
        *small(all_cells), *middle(all_cells), *far(all_cells), *steps(all_cells), *repeats(rows), *unfinished(rows),
    ]  # fmt: skip
    return "\n".join(lines).rstrip() + "\n"


# -- the four claims ---------------------------------------------------------------------------------------------------


def small(all_cells: Sequence[Cell]) -> list[str]:
    """Up to 2000 rows: as quick and as lean as scikit-learn."""
    some = [c for c in all_cells if c.n <= SMALL and "scikit-learn" in c.by]
    wanted: dict[str, tuple[Callable[[Cell], float], float]] = {
        "fit": (lambda c: c.ratio("fit_seconds"), FIT),
        "predict 2000": (lambda c: c.ratio("many_seconds"), PREDICT),
        "predict one": (lambda c: c.ratio("row_seconds"), PREDICT),
        "peak": (lambda c: c.ratio("peak_bytes"), PEAK),
        "file": (file_share, 1.0),
    }
    lines = [
        f"## 1. Up to {SMALL} rows",
        "",
        f"Wanted in every cell: fit {FIT:g} times scikit-learn's time at most ({FIT_MEAN:g} in the geometric mean),",
        f"predictions {PREDICT:g}, peak memory of the process {PEAK:g}; a file within {FILE:g} times its pickle and",
        f"{FILE_MORE // 1000} kB (the column is bytes over that). Geometric mean, then the worst.",
        "",
        *heading("machine", "cells", *wanted, "peak above imports and data, MB"),
    ]
    for machine in [*dict.fromkeys(c.machine for c in some), "all"]:
        mine = [c for c in some if machine in (c.machine, "all")]
        if mine:
            more = [(c.value("peak_bytes", who) - c.value("base_bytes", who)) / 1e6 for c in mine for who in SIDES]
            both = f"{max(more[::2]):.0f} / {max(more[1::2]):.0f} at most"
            figures = [spread([figure(c) for c in mine]) for figure, _ in wanted.values()]
            lines.append(line(machine, len(mine), *figures, both))
    lines.append("")
    if some:
        mean = spread([c.ratio("fit_seconds") for c in some]).split(",")[0]
        lines.append(f"- fit, geometric mean of all cells, {FIT_MEAN:g} at most: {mean}.")
    for name, (figure, most) in wanted.items():
        lines += verdict(name, [(c.name, figure(c)) for c in some], most)
    return [*lines, ""]


def file_share(c: Cell) -> float:
    return c.value("file_bytes") / (FILE * c.value("file_bytes", "scikit-learn") + FILE_MORE)


def middle(all_cells: Sequence[Cell]) -> list[str]:
    """Where scikit-learn's class runs: its predictions or its score, in no more time."""
    some = [c for c in all_cells if SMALL <= c.n <= MIDDLE and "scikit-learn" in c.by]

    def over(c: Cell) -> float:
        most = LARGE_FIT if c.n >= LARGE and c.machine in SVMS else MIDDLE_FIT
        return c.ratio("fit_seconds") / most

    lines = [
        f"## 2. From {SMALL} rows on, where scikit-learn's class ends within 300 s",
        "",
        f"Wanted: the same predictions ({100 * SAME:g} %) or a score at most one standard error lower, in",
        f"{MIDDLE_FIT:g} times its time at most; SVMs from {LARGE} rows on in {LARGE_FIT:g} times.",
        "Time of a fit: geometric mean of the ratios, then the worst.",
        "",
        *heading(
            "machine", "data", "cells", "up to n", "fit", "predictions the same", "score lost at most", "score held"
        ),
    ]
    for (machine, data), mine in grouped(some):
        held = sum(equal(c) for c in mine)
        same = min(c.value("same") for c in mine)
        lost = max(c.value("score", "scikit-learn") - c.value("score") for c in mine)
        figures = spread([c.ratio("fit_seconds") for c in mine])
        largest = max(c.n for c in mine)
        lines.append(line(machine, data, len(mine), largest, figures, f"{same:.3f}", f"{lost:.4f}", of(held, mine)))
    lines.append("")
    lines += verdict("fit, over what is wanted of it", [(c.name, over(c)) for c in some], 1.0)
    lines += verdict("score, standard errors lost", [(c.name, 0.0 if equal(c) else c.behind()) for c in some], 1.0)
    return [*lines, ""]


def equal(c: Cell) -> bool:
    return c.value("same") >= SAME or c.behind() <= 1.0


def far(all_cells: Sequence[Cell]) -> list[str]:
    """Beyond scikit-learn's reach: beside Nystroem, and the exact machine on fewer rows."""
    some = [c for c in all_cells if c.n > SMALL and "scikit-learn" not in c.by and "Nystroem" in c.by]
    lines = [
        "## 3. Beyond scikit-learn's reach",
        "",
        f"Wanted: Nystroem's score or better (less one standard error) in {FAR_FIT:g} times its time at most, or a",
        f"score better by {CLEARLY:g} standard errors in {FARTHEST_FIT:g} times. The last column is scikit-learn's",
        "class on fewer rows in the time of krein's fit.",
        "",
        *heading("machine", "data", "n", "fit s", "over Nystroem's", "score", "Nystroem's", "holds", "exact on fewer"),
    ]
    for c in some:
        fewer = f"{c.value('score', 'subset'):.4f} ({c.by['subset']['rows']} rows)" if "subset" in c.by else ""
        lines.append(line(
            c.machine, c.data, c.n, f"{c.value('fit_seconds'):.1f}", f"{c.ratio('fit_seconds', 'Nystroem'):.2f}",
            f"{c.value('score'):.4f}", f"{c.value('score', 'Nystroem'):.4f}", "yes" if beats(c) else "**no**", fewer,
        ))  # fmt: skip
    lines += ["", f"- holds in {of(sum(beats(c) for c in some), some)} cells."]
    beaten = [c for c in all_cells if "subset" in c.by and c.behind("subset") > 1.0]
    compared = [c for c in all_cells if "subset" in c.by]
    lines.append(
        f"- The exact machine on fewer rows, in the same time, is better by more than a standard error in "
        f"{of(len(beaten), compared)} cells of any n{named([(c.name, c.behind('subset')) for c in beaten])}"
    )
    return [*lines, ""]


def beats(c: Cell) -> bool:
    ratio, behind = c.ratio("fit_seconds", "Nystroem"), c.behind("Nystroem")
    return (ratio <= FAR_FIT and behind <= 1.0) or (ratio <= FARTHEST_FIT and behind <= -CLEARLY)


def steps(all_cells: Sequence[Cell]) -> list[str]:
    """From one n to the next: no jump in time where there is one row more, and never a worse score."""
    taken, lost = [], []
    for _, mine in grouped(all_cells):
        for a, b in pairwise(sorted(mine, key=lambda c: c.n)):
            name = f"{a.machine}, {a.data}, {a.n} to {b.n}"
            error = max(a.value("standard_error"), b.value("standard_error"), 1e-12)
            lost.append((name, (a.value("score") - b.value("score")) / error))
            if b.n == a.n + 1:
                taken.append((name, b.value("fit_seconds") / a.value("fit_seconds")))
    lines = [
        "## 4. No cliff",
        "",
        f"Wanted: one row more takes {STEP_FIT:g} times the time at most; from any n to the next the score falls by",
        f"{STEP_SCORE:g} standard errors at most. A time far below 1 is a cliff too, seen from the other side.",
        "",
        *heading("step", "cells", "time: geometric mean, largest", "smallest"),
    ]
    for step in dict.fromkeys(name.split(", ")[-1] for name, _ in taken):
        figures = [value for name, value in taken if name.endswith(step)]
        low = min(figures)
        lines.append(line(step, len(figures), spread(figures), f"{low:.2f}"))
    lines.append("")
    lines += verdict("time of one row more", taken, STEP_FIT)
    lines += verdict("score, standard errors lost", lost, STEP_SCORE)
    return [*lines, ""]


def repeats(rows: Sequence[Row]) -> list[str]:
    """Whether the best of several fits is far below the first: then something was remembered between them."""
    lines = ["## The best fit beside the first", "", "Far below 1 where a repetition finds something remembered.", ""]
    for who in dict.fromkeys(r["contender"] for r in rows):
        some = [r for r in rows if r["contender"] == who and r["outcome"] == "done" and int(r["fits"]) > 1]
        shares = [float(r["fit_seconds"]) / float(r["first_seconds"]) for r in some]
        if shares:
            low, at = min(
                (share, f"{r['machine']}, {r['data']}, {r['n']}") for share, r in zip(shares, some, strict=True)
            )
            lines.append(f"- {who}: {spread(shares).split(',')[0]} in the geometric mean, {low:.2f} at least ({at})")
    return [*lines, ""]


def unfinished(rows: Sequence[Row]) -> list[str]:
    """Fits that were begun and gave nothing, but for scikit-learn's, which may end where it does."""
    quiet = ("done", "beyond reach", "all rows", "nothing to go by")
    failed = [r for r in rows if r["outcome"] not in quiet]
    said = [f"- {r['contender']}: {r['machine']}, {r['data']}, {r['n']}: {r['outcome']}" for r in failed]
    return ["## Not finished", "", *said, ""] if said else []


# -- words -------------------------------------------------------------------------------------------------------------


def verdict(name: str, figures: Sequence[tuple[str, float]], most: float) -> list[str]:
    """How many hold, and the worst of the others by name."""
    known = [(cell, value) for cell, value in figures if not math.isnan(value)]
    failed = [(cell, value) for cell, value in known if value > most]
    return [f"- {name}, {most:g} at most: holds in {of(len(known) - len(failed), known)}{named(failed)}"]


def named(failed: Sequence[tuple[str, float]]) -> str:
    worst = sorted(failed, key=lambda pair: -pair[1])
    said = "; ".join(f"{cell} ({value:.3g})" for cell, value in worst[:WORST])
    return f". Worst: {said}." if said else "."


def of(count: int, among: Sequence[object]) -> str:
    return f"{count} of {len(among)}"


def spread(figures: Sequence[float]) -> str:
    known = [f for f in figures if f > 0.0]
    return f"{math.exp(sum(map(math.log, known)) / len(known)):.2f}, {max(known):.2f}" if known else ""


def grouped(some: Sequence[Cell]) -> list[tuple[tuple[str, str], list[Cell]]]:
    keys = dict.fromkeys((c.machine, c.data) for c in some)
    return [(key, [c for c in some if (c.machine, c.data) == key]) for key in keys]


def heading(*names: str) -> list[str]:
    return [line(*names), line(*("---" for _ in names))]


def line(*values: object) -> str:
    return f"| {' | '.join(str(v) for v in values)} |"
