"""What the strings show: means with standard errors, and each claim against its figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

EXPENSIVE = ", expensive"
KREIN_SVC, KREIN_RIDGE = "krein SVC", "krein ridge"
OURS = (KREIN_SVC, KREIN_RIDGE)
SPECTRAL = ("dense clip + SVC", "dense flip + SVC", "dense square + SVC")
RIDGE = "dense square + ridge"

POINTS, TIMES = 0.5, 1.5  # claim 1: points below the best dense route, times its seconds
LARGER, LARGER_SECONDS = 68.0, 60.0  # accuracy in % of the second size of the words, in so many seconds
SHARE = 35.0  # % of n² beyond it
PEPTIDES = 91.4  # claim 2
EXPENSIVE_SHARE = 10.0  # claim 3, % of n²

Rows = Sequence[dict[str, str]]


@dataclass(frozen=True)
class Group:
    """All splits of one route on one size of one data set."""

    data: str
    n: int
    route: str
    by_split: dict[str, dict[str, str]]

    def values(self, column: str, splits: Sequence[str] | None = None) -> Any:
        chosen = self.by_split if splits is None else splits
        return np.array([float(self.by_split[s][column]) for s in chosen])

    @property
    def accuracy(self) -> float:
        """In %."""
        return 100.0 * float(self.values("accuracy").mean())

    @property
    def error(self) -> float:
        return 100.0 * standard_error(self.values("accuracy"))

    @property
    def share(self) -> float:
        """In % of n²."""
        return 100.0 * float(self.values("share_of_n2").mean())

    @property
    def largest_share(self) -> float:
        """Of any split."""
        return 100.0 * float(self.values("share_of_n2").max())

    @property
    def seconds(self) -> float:
        return float(self.values("cpu_seconds").mean())

    def gap(self, other: Group) -> Any:
        """Accuracy above the other's, in points, on the splits that both have."""
        both = [s for s in self.by_split if s in other.by_split]
        return 100.0 * (self.values("accuracy", both) - other.values("accuracy", both))


def standard_error(values: Any) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def grouped(rows: Rows) -> list[Group]:
    found: dict[tuple[str, int, str], dict[str, dict[str, str]]] = {}
    for r in rows:
        found.setdefault((r["data"], int(r["n"]), r["route"]), {})[r["split"]] = r
    return [Group(*key, by_split) for key, by_split in found.items()]


def summarise(rows: Rows) -> str:
    groups = grouped(rows)
    lines = [
        "# Strings by defaults, beside the dense routes",
        "",
        "Normalised edit similarity, `krein.EditSimilarity`. Of krein's machines the kernel and the seed are given and "
        "nothing else. The dense routes evaluate all n² similarities: one eigendecomposition, its eigenvalues clipped, "
        "flipped or squared, and scikit-learn's SVC with C = 1; and ridge on the rows of K, K² + 10 I in single "
        "precision by Cholesky. Similarities: those of the fit, counted by `krein.counting`; krein evaluates a pair "
        "once where it compares all objects, so that all of them are little more than half of n², which a dense route "
        "could save as well; its n² are counted in full. CPU seconds: of the fit, similarities included, one thread on "
        "a machine that others used too. ±: one standard error over splits.",
        "",
    ]
    tables = (
        ("words", "Words of ten languages", "Objects are drawn at random, each size is tested by the same words."),
        ("peptides", "Peptides, antimicrobial or not", "Distinct strings with one label, 5 folds, drawn twice. Folds "
         "share objects, so that standard errors are somewhat too small."),
        ("expensive", "An expensive similarity", "3000 objects with `krein.Policy(matrix_seconds=1e-4)`: that "
         "stands for a similarity so expensive that few can be afforded. It was the edit similarity all the same, so "
         "the seconds say what the learning costs and not what such a similarity would. The dense routes learn from "
         "the first objects of each split: m² is no more than the similarities that krein asked for (the machine that "
         "asked for more); with *each pair once* m (m + 1) / 2 is no more, which is all that a dense route needs of a "
         "symmetric similarity."),
    )  # fmt: skip
    for key, title, told in tables:
        mine = [g for g in groups if (key in g.data and (EXPENSIVE in g.data) == (key == "expensive"))]
        lines += [f"## {title}", "", told, ""] + (listed(mine) if mine else ["Not measured yet."]) + [""]
    lines += ["## Claims", ""]
    for claim in (claim_words, claim_larger, claim_rises, claim_peptides, claim_expensive):
        lines += claim(groups)
    return "\n".join(lines) + "\n"


def listed(groups: list[Group]) -> list[str]:
    lines = [
        "| data | n | route | splits | objects used | accuracy, % | similarities, % of n² | CPU seconds | correction |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for g in sorted(groups, key=lambda g: (g.data.removesuffix(EXPENSIVE) != "words", g.n)):
        used = [r["correction"] for r in g.by_split.values()]
        counts = sorted(set(used), key=lambda u: (-used.count(u), u))
        told = counts[0] if len(counts) == 1 else ", ".join(f"{used.count(u)} {u}" for u in counts)
        spread = f" ± {g.error:.2f}" if len(used) > 1 else ""
        lines.append(
            f"| {g.data.removesuffix(EXPENSIVE)} | {g.n} | {g.route} | {len(used)} | {g.values('rows').mean():.0f} | "
            f"{g.accuracy:.2f}{spread} | {g.share:.1f} | {g.seconds:.1f} | {told} |"
        )
    return lines


def verdict(what: str, holds: bool, figures: str) -> str:
    return f"- {what}: **{'holds' if holds else 'misses'}**. {figures}"


def sizes(groups: list[Group]) -> list[int]:
    return sorted({g.n for g in groups if g.data == "words"})


def at(groups: list[Group], data: str, n: int | None, wanted: Callable[[str], bool]) -> list[Group]:
    return [g for g in groups if g.data == data and (n is None or g.n == n) and wanted(g.route)]


def is_ours(route: str) -> bool:
    return route in OURS


def is_dense(route: str) -> bool:
    return route in (*SPECTRAL, RIDGE)


def claim_words(groups: list[Group]) -> list[str]:
    n = next(iter(sizes(groups)), 0)
    mine, others = at(groups, "words", n, is_ours), at(groups, "words", n, is_dense)
    if not (mine and others):
        return []
    best = max(others, key=lambda g: g.accuracy)
    told, held = [], False
    for g in mine:
        gap, ratio = float(g.gap(best).mean()), g.seconds / best.seconds
        held |= gap >= -POINTS and ratio <= TIMES
        told.append(f"{g.route} {gap:+.2f} points (± {standard_error(g.gap(best)):.2f}) in {ratio:.2f} times")
    what = f"1. {n} words: SVC or ridge at most {POINTS} points below the best dense route, in at most {TIMES} times"
    return [verdict(f"{what} its seconds", held, f"Best: {best.route}, {best.accuracy:.2f} %. {'; '.join(told)}.")]


def claim_larger(groups: list[Group]) -> list[str]:
    mine = at(groups, "words", sizes(groups)[1], is_ours) if len(sizes(groups)) > 1 else []
    if not mine:
        return []
    held = any(g.accuracy >= LARGER and g.seconds <= LARGER_SECONDS for g in mine)
    told = "; ".join(f"{g.route} {g.accuracy:.2f} % in {g.seconds:.1f} s" for g in mine)
    what = f"1. {mine[0].n} words: SVC or ridge at least {LARGER:.0f} % within {LARGER_SECONDS:.0f} s"
    return [verdict(what, held, f"{told}.")]


def claim_rises(groups: list[Group]) -> list[str]:
    """Ridge, from the second size on, each against the one before on the splits that both have."""
    chain = [g for n in sizes(groups)[1:] for g in at(groups, "words", n, lambda route: route == KREIN_RIDGE)]
    if len(chain) < 2:
        return []
    rises = [float(b.gap(a).mean()) for a, b in pairwise(chain)]
    held = all(rise > 0 for rise in rises) and all(g.largest_share <= SHARE for g in chain[1:])
    told = "; ".join(
        f"{g.n} words {g.accuracy:.2f} % ({rise:+.2f} points on the same splits) with {g.share:.1f} % of n²"
        for g, rise in zip(chain[1:], rises, strict=True)
    )
    more = [g for g in at(groups, "words", None, lambda route: route == KREIN_SVC) if g.n > chain[0].n]
    told += "".join(f"; {g.route} at {g.n} {g.accuracy:.2f} % with {g.share:.1f} %, {g.seconds:.0f} s" for g in more)
    what = f"1. more words: accuracy of ridge rises beyond {chain[0].n}, with at most {SHARE:.0f} % of n² similarities"
    return [verdict(what, held, f"{chain[0].n} words {chain[0].accuracy:.2f} %; {told}.")]


def claim_peptides(groups: list[Group]) -> list[str]:
    mine, others = at(groups, "peptides", None, is_ours), at(groups, "peptides", None, is_dense)
    if not mine:
        return []
    lines = []
    for g in mine:
        told = f"{g.accuracy:.2f} ± {g.error:.2f} % in {g.seconds:.1f} s."
        if others:
            best = max(others, key=lambda o: o.accuracy)
            told += f" Best dense: {best.route}, {best.accuracy:.2f} % in {best.seconds:.1f} s."
        held = g.accuracy >= PEPTIDES - g.error
        lines.append(verdict(f"2. peptides, {g.route}: at least {PEPTIDES} % less one standard error", held, told))
    return lines


def claim_expensive(groups: list[Group]) -> list[str]:
    lines = []
    for data in dict.fromkeys(g.data for g in groups if EXPENSIVE in g.data):
        mine, others = at(groups, data, None, is_ours), at(groups, data, None, is_dense)
        harder = at(groups, data, None, lambda route: not is_ours(route) and not is_dense(route))
        for g in mine if others else []:
            best = max(others, key=lambda o: o.accuracy)
            gap = g.gap(best)
            held = g.largest_share <= EXPENSIVE_SHARE and not gap.mean() < -standard_error(gap)
            told = (
                f"{g.accuracy:.2f} % with {g.largest_share:.2f} % of n² at most; {gap.mean():+.2f} points (± "
                f"{standard_error(gap):.2f} paired) beside {best.route} on {best.values('rows').mean():.0f} objects."
            )
            if harder:
                other = max(harder, key=lambda o: o.accuracy)
                told += f" With each pair once: {g.gap(other).mean():+.2f} (± {standard_error(g.gap(other)):.2f})."
            what = f"3. {data}, {g.route}: at most {EXPENSIVE_SHARE:.0f} % of n² and not below the best dense route"
            lines.append(verdict(f"{what} by more than one standard error", held, told))
    return lines
