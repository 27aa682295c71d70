"""Statements of the paper that no table of it measures, each with a small experiment on 1000 rows of each data set.

`corrections`: shift against clip where the negative part informs (Sec. 4). `ranks`: the three rules for the ranks of
clusters (Sec. 3.1). `sigma_w`: the ELM kernel hardly depends on it (Sec. 3.3). `drop`: blocks left out by the distance
of centres, as the text says, or by their similarity, as the published code does. `count`: negative eigenvalues, counted
below -1e-6 or below rounding. `bounds`: the bounds of Sec. 4.2 on kernels that are indefinite. `truncation`: negative
similarities of RBF approximations set to 0, then a shift (conclusion).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

import krein
from benchmarks.runner import Task
from krein.approximation.clusters import partition
from krein.arrays import Array
from krein.kernels import ELM, RBF, TL1, Evaluator, Kernel, Sigmoid, SpherePolynomial
from paper import protocol as paper
from paper.bounds import bounded, split
from paper.comparing import difference
from paper.exact_svm import fit
from paper.protocol import Cell, Request
from paper.writing import geometric_mean, number, table

__all__ = ["TABLES", "report", "tasks"]

COLUMNS = ("claim", "dataset", "seed", "kernel", "variant", "figure", "value")
TABLES = {"claims": COLUMNS}
ROWS, QUICK_ROWS, SEEDS = 1000, 300, 3
# Clusters and the mean rank of each, for rules of ranks, dropped blocks, counts, bounds and truncation.
BLOCKS, RANK = 10, 12
# Soft margin of the SVMs, the same for all.
C = 10.0
SIGMAS = (0.1, 1.0, 10.0, 1e3, 1e5)
DROPPED = (0.1, 0.3)
# The published code counts eigenvalues below this.
COUNTED_BELOW = -1e-6
Found = Iterator[tuple[str, str, str, float]]  # kernel, variant, figure, value


def tasks(request: Request) -> list[Task]:
    """One for each claim, data set and seed."""
    seeds = 1 if request.quick else request.seeds or SEEDS
    rows = QUICK_ROWS if request.quick else ROWS
    return [
        Task({"claim": claim, "dataset": dataset, "seed": seed}, run, (claim, dataset, seed, rows))
        for claim in CLAIMS
        for dataset in request.datasets
        for seed in range(seeds)
    ]


def run(claim: str, dataset: str, seed: int, rows: int) -> list[dict[str, Any]]:
    """The figures of one claim."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            {"kernel": kernel, "variant": variant, "figure": figure, "value": value}
            for kernel, variant, figure, value in CLAIMS[claim](dataset, seed, rows)
        ]


def _rows(cell: Cell, seed: int, rows: int) -> tuple[Array, Any]:
    X, y = paper.prepared(cell), np.asarray(paper.raw(cell.dataset)[1])
    some = np.sort(np.random.default_rng(seed).choice(len(X), min(rows, len(X)), replace=False))
    return X[some], y[some]


def _indefinite(dataset: str, seed: int, rows: int) -> Iterator[tuple[Kernel, Array, Any]]:
    """Kernels that are not psd, with rows and labels."""
    sphere, y = _rows(Cell(dataset, "poly"), seed, rows)
    yield SpherePolynomial(3, 1.1), sphere, y
    X, y = _rows(Cell(dataset, "tl1"), seed, rows)
    yield TL1(0.2 * X.shape[1]), X, y
    yield Sigmoid(gamma=1.0 / X.shape[1], coef0=-1.0), X, y


def _accuracy(K: Array, rows: Array, y: Any) -> float:
    """Five-fold accuracy of an SVM on the matrix K; rows are the similarities of rows that are tested."""
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(K, y)
    return float(np.mean([
        fit(K[np.ix_(train, train)], y[train], rows[np.ix_(test, train)], y[test], C, 1_000_000).accuracy
        for train, test in folds
    ]))  # fmt: skip


def _corrections(dataset: str, seed: int, rows: int) -> Found:
    for kernel, X, y in _indefinite(dataset, seed, rows):
        K, name = np.asarray(kernel(X)), type(kernel).__name__
        values, vectors = np.linalg.eigh(K)
        yield name, "", "negative share", float(-values[values < 0].sum() / np.abs(values).sum())
        shifted = K + max(0.0, -values[0]) * np.eye(len(K))
        clipped, flipped = ((vectors * f) @ vectors.T for f in (np.maximum(values, 0.0), np.abs(values)))
        for variant, matrix, tested in (("shift", shifted, K), ("clip", clipped, clipped), ("flip", flipped, flipped)):
            yield name, variant, "accuracy", _accuracy(matrix, tested, y)


def _ranks(dataset: str, seed: int, rows: int) -> Found:
    for name in ("rbf", "elm"):
        cell = Cell(dataset, name)
        X, _ = _rows(cell, seed, rows)
        K = np.asarray(cell.similarity(X))
        for rule in ("equal", "spectral", "size"):
            begin = time.process_time()
            a = krein.approximate(
                X, cell.similarity, n_blocks=BLOCKS, total_rank=BLOCKS * RANK, allocation=rule, coupling="pairwise",
                random_state=seed,
            )  # fmt: skip
            yield name, rule, "seconds", time.process_time() - begin
            yield name, rule, "error", difference(K, a.factorization).relative()


def _sigma_w(dataset: str, seed: int, rows: int) -> Found:
    X, y = _rows(Cell(dataset, "elm"), seed, rows)
    limit = np.asarray(ELM()(X))
    for sigma in SIGMAS:
        K = np.asarray(ELM(sigma)(X))
        yield "elm", f"{sigma:g}", "distance", float(np.linalg.norm(K - limit) / np.linalg.norm(limit))
        yield "elm", f"{sigma:g}", "accuracy", _accuracy(K, K, y)


def _drop(dataset: str, seed: int, rows: int) -> Found:
    for name in paper.KERNELS:
        cell = Cell(dataset, name)
        X, _ = _rows(cell, seed, rows)
        clusters = partition(X, BLOCKS, Evaluator(cell.similarity), seed)
        centres = clusters.centres / clusters.scale
        K = np.asarray(cell.similarity(X))
        left, right = np.triu_indices(clusters.n_blocks, 1)
        squares = np.array([np.sum(K[np.ix_(clusters.members(int(i)), clusters.members(int(j)))] ** 2)
                            for i, j in zip(left, right, strict=True)])  # fmt: skip
        orders = {
            "distance": np.argsort(-clusters.centre_distances()[left, right], kind="stable"),
            "similarity": np.argsort(np.asarray(cell.similarity(centres))[left, right], kind="stable"),
            "least possible": np.argsort(squares, kind="stable"),
        }
        for share in DROPPED:
            count = int(share * len(left))
            for variant, order in orders.items():
                lost = float(np.sqrt(2.0 * squares[order[:count]].sum() / np.sum(K**2)))
                yield name, variant, f"error of {share:g} dropped", lost


def _count(dataset: str, seed: int, rows: int) -> Found:
    for name in paper.KERNELS:
        cell = Cell(dataset, name)
        X, _ = _rows(cell, seed, rows)
        f = paper.meka(X, cell.similarity, BLOCKS, RANK, seed).factorization
        values = f.eigenvalues()
        yield name, "below -1e-6", "count", float((values < COUNTED_BELOW).sum())
        yield name, "below rounding", "count", float(f.n_negative())


def _bounds(dataset: str, seed: int, rows: int) -> Found:
    for kernel, X, _ in _indefinite(dataset, seed, rows):
        f, K = paper.meka(X, kernel, BLOCKS, RANK, seed).factorization, np.asarray(kernel(X))
        shift = 2.0 * max(0.0, -f.smallest_eigenvalue())
        gap, (positive, negative) = difference(K, f), split(K)
        n_landmarks = min(len(K), sum(min(2 * RANK, n) for n in f.bases.sizes))
        bound = bounded(positive, negative, f.bases.labels, f.rank, n_landmarks, shift)
        bare = bound.total - bound.terms["shift"]
        name = type(kernel).__name__
        yield name, "K", "negative eigenvalues", float((np.linalg.eigvalsh(K) < -1e-8 * gap.norm).sum())
        yield name, "M1", "bound over error", bare / (gap.relative() * gap.norm)
        yield name, "M2", "bound over error", bound.total / (gap.relative(shift) * gap.norm)


def _truncation(dataset: str, seed: int, rows: int) -> Found:
    cell = Cell(dataset, "rbf")
    X, _ = _rows(cell, seed, rows)
    K = np.asarray(RBF(gamma=cell.similarity.gamma)(X))  # type: ignore[attr-defined]
    f = paper.meka(X, cell.similarity, BLOCKS, RANK, seed).factorization
    plain = f.to_dense()
    truncated = np.clip(plain, 0.0, 1.0)
    for variant, matrix in (("M1", plain), ("truncated", truncated)):
        low = float(np.linalg.eigvalsh(matrix)[0])
        shifted = matrix + max(0.0, -low) * np.eye(len(K))
        yield "rbf", variant, "error", float(np.linalg.norm(K - matrix) / np.linalg.norm(K))
        yield "rbf", variant, "smallest eigenvalue", low
        yield "rbf", variant, "error after a shift", float(np.linalg.norm(K - shifted) / np.linalg.norm(K))
    yield "rbf", "M1", "negative entries", float((plain < 0.0).mean())


CLAIMS: dict[str, Callable[[str, int, int], Found]] = {
    "corrections": _corrections, "ranks": _ranks, "sigma_w": _sigma_w, "drop": _drop, "count": _count,
    "bounds": _bounds, "truncation": _truncation,
}  # fmt: skip


# -- report ------------------------------------------------------------------------------------------------------------


def report(rows: list[dict[str, str]], request: Request) -> str:
    """Markdown: one table for each claim, means over seeds, and a sentence on what it shows."""
    note = " Quick: too few rows to say anything about the paper." if request.quick else ""
    size = QUICK_ROWS if request.quick else ROWS
    parts = [
        "# Statements without a table of their own",
        f"On {size} random rows of each data set, means over seeds; {BLOCKS} clusters of rank {RANK} where there is "
        f"an approximation.{note} What each is about stands in `paper/claims.py`.",
    ]
    for claim in CLAIMS:
        mine = [r for r in rows if r["claim"] == claim]
        if mine:
            parts += [f"## {claim}", _table(mine), said(claim, mine)]
    return "\n\n".join(parts)


def values(rows: list[dict[str, str]], figure: str) -> dict[tuple[str, str, str], float]:
    """Means over seeds by data set, kernel and variant."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for r in rows:
        if r["figure"] == figure:
            found.setdefault((r["dataset"], r["kernel"], r["variant"]), []).append(float(r["value"]))
    return {key: float(np.mean(all_of)) for key, all_of in found.items()}


def _table(rows: list[dict[str, str]]) -> str:
    columns = list(dict.fromkeys((r["figure"], r["variant"]) for r in rows))
    by_figure = {figure: values(rows, figure) for figure, _ in columns}
    lines = list(dict.fromkeys((r["dataset"], r["kernel"]) for r in rows))
    heading = ("data", "kernel", *(f"{figure}, {variant}" if variant else figure for figure, variant in columns))
    return table(heading, ([*line, *(number(by_figure[f].get((*line, v), float("nan"))) for f, v in columns)]
                           for line in lines))  # fmt: skip


def said(claim: str, rows: list[dict[str, str]]) -> str:
    """The sentence that the figures bear."""
    if claim == "corrections":
        found = values(rows, "accuracy")
        cells = {key[:2] for key in found}
        ahead = [found[(*c, "shift")] - found[(*c, "clip")] for c in cells]
        flip = [found[(*c, "flip")] - max(found[(*c, "shift")], found[(*c, "clip")]) for c in cells]
        return (
            f"Shift is better than clip in {sum(a > 0 for a in ahead)} of {len(cells)} cells, by {np.mean(ahead):+.2f} "
            f"points on average ({min(ahead):+.1f} to {max(ahead):+.1f}). Flip is better than both in "
            f"{sum(a > 0 for a in flip)}."
        )
    if claim == "ranks":
        error, seconds = values(rows, "error"), values(rows, "seconds")
        cells = {key[:2] for key in error}
        over = {r: geometric_mean(error[(*c, r)] / error[(*c, "equal")] for c in cells) for r in ("spectral", "size")}
        slower = {r: geometric_mean(seconds[(*c, r)] / seconds[(*c, "equal")] for c in cells) for r in over}
        best = [min(("equal", "spectral", "size"), key=lambda r, c=c: error[(*c, r)]) for c in cells]  # type: ignore[misc]
        return (
            f"Of {len(cells)} cells the lowest error is that of equal ranks in {best.count('equal')}, by singular "
            f"values in {best.count('spectral')}, by size in {best.count('size')}. Against equal ranks, geometric "
            f"means: by singular values {over['spectral']:.2f} times the error in {slower['spectral']:.2f} times the "
            f"time, by size {over['size']:.2f} times the error in {slower['size']:.2f} times the time."
        )
    if claim == "sigma_w":
        distance, accuracy = values(rows, "distance"), values(rows, "accuracy")
        sets = {key[0] for key in distance}
        lines = []
        for sigma in SIGMAS[:-1]:
            name, last = f"{sigma:g}", f"{SIGMAS[-1]:g}"
            moved = [accuracy[d, "elm", name] - accuracy[d, "elm", last] for d in sets]
            lines.append(
                f"{name}: at most {max(distance[d, 'elm', name] for d in sets):.2g} of |K| away from {last}, accuracy "
                f"at most {max(map(abs, moved)):.1f} points"
            )
        return f"sigma_w of {'; '.join(lines)}."
    if claim == "drop":
        parts = []
        for share in DROPPED:
            found = values(rows, f"error of {share:g} dropped")
            cells = {key[:2] for key in found}
            worse = [found[(*c, "distance")] / max(found[(*c, "similarity")], 1e-300) for c in cells]
            same = sum(abs(w - 1.0) < 1e-9 for w in worse)
            parts.append(
                f"of {share:g} dropped: the same error by distance and by similarity in {same} of {len(cells)} cells, "
                f"less by similarity in {sum(w > 1.0 + 1e-9 for w in worse)}, by distance in "
                f"{sum(w < 1.0 - 1e-9 for w in worse)}; distance over similarity {geometric_mean(worse):.2f} in the "
                "geometric mean"
            )
        return f"{'; '.join(parts)[0].upper()}{'; '.join(parts)[1:]}."
    if claim == "count":
        found = values(rows, "count")
        cells = {key[:2] for key in found}
        same = sum(found[(*c, "below -1e-6")] == found[(*c, "below rounding")] for c in cells)
        most = max(abs(found[(*c, "below -1e-6")] - found[(*c, "below rounding")]) for c in cells)
        return f"Both counts are the same in {same} of {len(cells)} cells; they differ by at most {most:.3g}."
    if claim == "bounds":
        held = [float(r["value"]) >= 1.0 for r in rows if r["figure"] == "bound over error"]
        ratio = geometric_mean(float(r["value"]) for r in rows if r["figure"] == "bound over error")
        negative = [float(r["value"]) for r in rows if r["figure"] == "negative eigenvalues"]
        return (
            f"The bounds hold in {sum(held)} of {len(held)} runs, {ratio:.3g} times above the error in the geometric "
            f"mean. K has negative eigenvalues in {sum(n > 0 for n in negative)} of {len(negative)}, "
            f"{min(negative):.0f} to {max(negative):.0f} of them."
        )
    error, after, low = (values(rows, f) for f in ("error", "error after a shift", "smallest eigenvalue"))
    sets = {key[0] for key in error}
    changed = [d for d in sets if error[d, "rbf", "truncated"] != error[d, "rbf", "M1"]]
    if not changed:
        return "No approximation here has an entry outside the kernel's range."
    ratios = [geometric_mean(f[d, "rbf", "truncated"] / f[d, "rbf", "M1"] for d in changed) for f in (error, after)]
    lower = sum(low[d, "rbf", "truncated"] < low[d, "rbf", "M1"] for d in changed)
    return (
        f"Truncation changes the approximation on {len(changed)} of {len(sets)} sets. There its error is "
        f"{ratios[0]:.2f} times that before, and after the shift that each needs {ratios[1]:.2f} times; its smallest "
        f"eigenvalue is lower than that of M1 on {lower}."
    )
