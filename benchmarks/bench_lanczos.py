"""How far plain Lanczos with 2 sqrt(n) steps can be trusted, and what it costs beside the exact eigenvalue of the core.

lanczos.csv: one row per indefinite case. lanczos_time.csv: n = 100,000, r = 1000.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.sparse.linalg import eigsh

import krein
from benchmarks.measure import seconds
from benchmarks.runner import Request, Task
from krein.datasets import digits, mixture
from krein.preprocessing import UnitSphere

COLUMNS = (
    "case", "kind", "n", "rank", "exact", "lanczos", "residual", "shortfall", "shortfall_with_residual", "steps",
    "n_spurious", "n_negative",
)  # fmt: skip
TIMED = ("spectrum", "method", "n", "rank", "seconds", "ratio_to_exact", "value", "relative_difference")
SIZES = (300, 500, 1000, 2000, 3000)
KINDS = (
    "tl1 digits",
    "tl1 mixture",
    "sigmoid digits",
    "sigmoid mixture",
    "sphere polynomial",
    "rbf pairwise",
    "random core",
    "random links",
)
TABLES = {"lanczos": COLUMNS, "lanczos_time": TIMED}


def tasks(request: Request) -> list[Task]:
    shape = (20_000, 200) if request.quick else (100_000, 1000)  # n, rank
    return [
        Task({}, cases, (16 if request.quick else 200,)),
        *(
            Task({"spectrum": spectrum, "n": shape[0]}, times, (spectrum, *shape), table="lanczos_time")
            for spectrum in ("falling", "flat")
        ),
    ]


def cases(count: int) -> list[dict[str, Any]]:
    """The first ``count`` candidates that are indefinite beyond rounding."""
    found: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krein.KreinWarning)
        for number, kind, F in candidates():
            ends = F.ends()
            if ends.smallest >= -1e-10 * ends.largest:
                continue
            result = krein.lanczos(F, random_state=number)
            size = abs(ends.smallest)
            found.append({
                "case": number, "kind": kind, "n": F.shape[0], "rank": F.rank, "exact": ends.smallest,
                "lanczos": result.smallest, "residual": result.residual,
                "shortfall": (result.smallest - ends.smallest) / size,  # > 0: |lambda_min| is underestimated
                "shortfall_with_residual": (-result.shift - ends.smallest) / size,
                "steps": result.iterations, "n_spurious": result.n_spurious, "n_negative": F.n_negative(),
            })  # fmt: skip
            if len(found) == count:
                return found
    raise AssertionError("candidates() has no end")


def candidates() -> Iterator[tuple[int, str, krein.Factorization]]:
    """Factorizations of every kind without end, in a fixed order."""
    number = 0
    while True:
        rng = np.random.default_rng(number)
        kind, n = KINDS[number % len(KINDS)], SIZES[number // len(KINDS) % len(SIZES)]
        yield number, kind, _make(kind, n, rng, number)
        number += 1


def _make(kind: str, n: int, rng: np.random.Generator, seed: int) -> krein.Factorization:
    n_blocks, rank = int(rng.integers(2, 9)), int(rng.choice([8, 16, 32, 64]))
    if kind.startswith("random"):
        rank = min(rank, n // (2 * n_blocks))
        sizes = rng.multinomial(n - n_blocks * rank, np.ones(n_blocks) / n_blocks) + rank
        r = n_blocks * rank
        L = rng.standard_normal((r, r)) / np.sqrt(2 * r)
        if kind == "random core":  # flat spectrum: no gap at the end
            Q = [np.linalg.qr(rng.standard_normal((m, rank)))[0] for m in sizes]
        else:  # the paper's form, columns of falling size
            Q = [rng.standard_normal((m, rank)) * 0.8 ** np.arange(rank) for m in sizes]
        return krein.Factorization.from_links(Q, L + L.T)
    X = digits().X[: min(n, 1797)] / 16.0 if "digits" in kind else mixture(n, 5, 6, random_state=seed).X
    kernel: Any
    if kind.startswith("tl1"):
        share = rng.uniform(0.05, 0.3) if "digits" in kind else rng.uniform(0.4, 1.2)  # below that a block is an island
        kernel = krein.TL1(float(share) * X.shape[1])
    elif kind.startswith("sigmoid"):
        kernel = krein.Sigmoid(gamma=float(rng.uniform(0.2, 2.0)) / X.shape[1], coef0=-float(rng.uniform(0, 1)))
    elif kind == "sphere polynomial":
        X, kernel = UnitSphere().fit_transform(X), krein.SpherePolynomial(int(rng.integers(2, 6)), 1.2)
    else:
        kernel = krein.RBF(gamma=float(10.0 ** rng.uniform(-2, 0)))
    return krein.approximate(
        X, kernel, n_blocks=n_blocks, rank=rank, coupling="pairwise", landmarks="uniform", random_state=seed
    ).factorization


def times(spectrum: str, n: int, rank: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    bases = [np.linalg.qr(rng.standard_normal((n // 10, rank // 10)))[0] for _ in range(10)]
    core = rng.standard_normal((rank, rank)) / np.sqrt(2 * rank)
    core = core + core.T
    if spectrum == "falling":
        _, V = np.linalg.eigh(core)
        core = (V * (rng.choice([-1.0, 1.0], rank) / np.arange(1, rank + 1))) @ V.T
        core = (core + core.T) / 2
    order = rng.permutation(n)

    def fresh() -> krein.Factorization:
        """A new object: nothing is cached."""
        return krein.Factorization.from_blocks(bases, core, order)

    F = fresh()
    exact, value = seconds(lambda: fresh().smallest_eigenvalue(), repeat=3)
    found = [("exact, from the core", exact, value)]
    taken, result = seconds(lambda: krein.lanczos(F, random_state=0))
    found.append(("lanczos, 2 sqrt(n) steps", taken, result.smallest))
    operator = F.as_linear_operator()
    v0 = rng.standard_normal(n)
    taken, values = seconds(lambda: eigsh(operator, k=1, which="SA", tol=1e-4, v0=v0, return_eigenvectors=False))
    found.append(("scipy eigsh, tol 1e-4", taken, float(values[0])))
    return [
        {"method": m, "rank": rank, "seconds": s, "ratio_to_exact": s / exact,
         "value": v, "relative_difference": (v - value) / abs(value)}
        for m, s, v in found
    ]  # fmt: skip


def report(rows: list[dict[str, str]], timed: list[dict[str, str]], request: Request) -> str:
    lines = [
        f"# Lanczos with 2 sqrt(n) steps on {len(rows)} indefinite factorizations",
        "",
        "How often |λmin| is underestimated, by more than 1e-8 and 1e-2 relative; then with the residual added to it.",
        "",
        "| kind | cases | > 1e-8 | > 1 % | worst | with residual > 1e-8 | its worst | spurious, mean (most) |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind in ("all", *dict.fromkeys(r["kind"] for r in rows)):
        mine = [r for r in rows if kind in ("all", r["kind"])]
        short, safe, spurious = (
            np.array([float(r[c]) for r in mine]) for c in ("shortfall", "shortfall_with_residual", "n_spurious")
        )
        lines.append(
            f"| {kind} | {len(mine)} | {(short > 1e-8).mean():.1%} | {(short > 0.01).mean():.1%} | {short.max():.2g} "
            f"| {(safe > 1e-8).mean():.1%} | {safe.max():.2g} | {spurious.mean():.1f} ({spurious.max():.0f}) |"
        )
    lines += [
        "",
        "| spectrum | method | n | r | time / exact | relative difference |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for r in timed:
        ratio, difference = float(r["ratio_to_exact"]), float(r["relative_difference"])
        lines.append(f"| {r['spectrum']} | {r['method']} | {r['n']} | {r['rank']} | {ratio:.1f} | {difference:.1e} |")
    return "\n".join(lines) + "\n"
