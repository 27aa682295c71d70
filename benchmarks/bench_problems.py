"""500 random problems, most of them ugly: is the result ever worse than what could be had for nothing, or by Nystroem?

For nothing: the zero matrix (error 1) and the same factorization with its couplings set to zero. Nystroem: uniform
landmarks and a pseudo-inverse, in as many bytes, mean of 3 draws. problems.csv: one row per problem, all exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

import krein
from benchmarks.runner import Request, Task
from krein.kernels import as_kernel

COLUMNS = (
    "problem", "kind", "kernel", "psd", "n", "d", "n_blocks", "rank", "error", "diagonal_error", "best_error",
    "nystrom_error", "nystrom_columns", "nbytes", "lowest", "over_nothing", "over_nystrom", "warnings",
)  # fmt: skip
TABLES = {"problems": COLUMNS}
# The largest ratios allowed to the trivial approximations and to Nystroem's.
NOTHING, NYSTROM = 1.05, 1.3
# Ratios count where the error is above MATTERS.
MATTERS = 1e-8
# A core with more than HEAVY times the numbers of the bases has too many blocks.
HEAVY = 2.0
# Nystroem's pseudo-inverse drops eigenvalues below CUTOFF times the largest.
CUTOFF = 1e-12
DRAWS = 3
KINDS = (
    "normal", "blobs", "duplicates", "tiny clusters", "rank deficient", "heavy tails", "grid", "one direction",
    "outliers",
)  # fmt: skip


@dataclass(frozen=True)
class _Difference:
    """Near rows are less alike than those a little apart: indefinite, and known to krein as a callable only."""

    gamma: float

    def __call__(self, A: Any, B: Any) -> Any:
        wide = krein.RBF(gamma=self.gamma)(A, B)
        return wide - 0.7 * krein.RBF(gamma=25.0 * self.gamma)(A, B)


KERNELS: dict[str, Callable[[np.random.Generator, float], krein.kernels.Kernel]] = {
    "rbf": lambda rng, size: krein.RBF(gamma=10.0 ** rng.uniform(-2.5, 1.0) / size / size),
    "laplacian": lambda rng, size: krein.Laplacian(gamma=10.0 ** rng.uniform(-2.0, 0.5) / size),
    "linear": lambda rng, size: krein.Linear(),
    "cosine": lambda rng, size: krein.Cosine(),
    "quadratic or cubic": lambda rng, size: krein.Polynomial(degree=int(rng.integers(2, 4)), gamma=1.0 / size / size),
    "elm": lambda rng, size: krein.ELM(),
    "arc-cosine": lambda rng, size: krein.ArcCosine(),
    "nugget": lambda rng, size: (
        krein.RBF(gamma=0.1 / size / size) + krein.RBF(gamma=1e6 / size / size) * float(10.0 ** rng.uniform(-2, 0.5))
    ),
    "tl1": lambda rng, size: krein.TL1(rho=float(10.0 ** rng.uniform(-0.3, 1.2)) * size),
    "sigmoid": lambda rng, size: krein.Sigmoid(gamma=float(rng.uniform(0.05, 1.0)) / size / size, coef0=-1.0),
    "difference": lambda rng, size: as_kernel(_Difference(0.02 / size / size)),
}
# Kernels with a scale of their own; their data are not scaled.
UNSCALED = ("elm", "arc-cosine")


def tasks(request: Request) -> list[Task]:
    return [Task({"problem": number}, attempt, (number,)) for number in range(40 if request.quick else 500)]


@dataclass(frozen=True)
class Problem:
    number: int
    kind: str
    name: str  # the kernel's
    X: np.ndarray
    kernel: krein.kernels.Kernel
    n_blocks: int
    rank: int


def make(number: int) -> Problem:
    """The problem of this number: 20 to 800 rows, 1 to 30 blocks, data and kernel scaled by 1e-100 to 1e100."""
    rng = np.random.default_rng([5, number])
    n, d = round(float(np.exp(rng.uniform(np.log(20), np.log(800))))), int(rng.integers(1, 12))
    kind, name = KINDS[number % len(KINDS)], str(rng.choice(list(KERNELS)))
    scaled = rng.random() < 0.4
    size = 10.0 ** rng.uniform(-50, 50) if scaled and name not in UNSCALED else 1.0  # squared in a linear kernel
    X = size * rows(kind, n, d, rng)
    kernel = KERNELS[name](rng, size)
    if rng.random() < 0.3:
        power = round(float(rng.uniform(-100, 100)))
        kernel, name = kernel * 10.0**power, f"{name}, times 1e{power}"
    if size != 1.0:
        kind = f"{kind}, times 1e{np.log10(size):.0f}"
    n_blocks = int(min(n // 2, rng.integers(1, 31)))
    return Problem(number, kind, name, X, kernel, n_blocks, round(float(np.exp(rng.uniform(0, np.log(40))))))


def rows(kind: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    X = rng.standard_normal((n, d))
    if kind == "blobs":
        return X + 10.0 ** rng.uniform(0, 1.5) * rng.standard_normal((6, d))[rng.integers(6, size=n)]
    if kind == "duplicates":
        return X[rng.integers(max(2, n // int(rng.integers(2, 12))), size=n)]
    if kind == "tiny clusters":  # one large cluster, and a few rows far away, alone or in twos and threes
        lonely = int(min(n // 3, rng.integers(3, 25)))
        X[:lonely] = (
            0.01 * X[:lonely] + 30.0 * rng.standard_normal((lonely, d))[np.arange(lonely) // rng.integers(1, 4)]
        )
        return X
    if kind == "rank deficient":
        return X[:, : max(1, d // 3)] @ rng.standard_normal((max(1, d // 3), d))
    if kind == "heavy tails":
        return X * rng.lognormal(0.0, 1.2, (n, 1))
    if kind == "grid":
        return np.round(X)
    if kind == "one direction":
        return X[:, :1] * rng.standard_normal(d) + 1e-8 * X
    if kind == "outliers":
        X[: max(1, n // 50)] *= 100.0
    return X


def attempt(number: int) -> list[dict[str, Any]]:
    """The problem's row; an exception is recorded as an infinite error."""
    p = make(number)
    about = {"kind": p.kind, "kernel": p.name, "n": len(p.X), "d": p.X.shape[1]}
    about |= {"n_blocks": p.n_blocks, "rank": p.rank}
    try:
        return [about | solve(p)]
    except Exception as raised:
        lost = dict.fromkeys(("error", "over_nothing", "over_nystrom"), np.inf)
        lost |= dict.fromkeys(("diagonal_error", "best_error", "nystrom_error", "lowest"), np.nan)
        return [about | lost | {"warnings": f"raised {raised!r}"}]


def solve(p: Problem) -> dict[str, Any]:
    n = len(p.X)
    with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        a = krein.approximate(p.X, p.kernel, n_blocks=p.n_blocks, rank=p.rank, random_state=p.number)
        F = a.factorization
        K = np.asarray(a.kernel(p.X), dtype=np.float64)
        peak = float(np.abs(K).max()) or 1.0
        K = K / peak
        error = _gap(K, F.to_dense() / peak)
        alone = F.with_core(scipy.linalg.block_diag(*F.core_diagonal_blocks()), F.shift)
        diagonal = _gap(K, alone.to_dense() / peak)
        best = _gap(K, _best(K, F))
        numbers = F.nbytes / 8
        m = min(n, max(1, int((np.sqrt(n * n + 4 * numbers) - n) / 2)))  # n m + m² numbers
        nystrom = float(np.mean([_gap(K, _nystrom(K, m, [p.number, s])) for s in range(DRAWS)]))
        values = np.linalg.eigvalsh(F.core / peak) if F.rank else np.zeros(1)
    return {
        "psd": a.kernel.traits.psd, "error": error, "diagonal_error": diagonal, "best_error": best,
        "nystrom_error": nystrom, "nystrom_columns": m, "nbytes": F.nbytes,
        "lowest": float(values[0] / (np.abs(values).max() or 1.0)),
        "over_nothing": error / min(1.0, diagonal) if error > MATTERS else 0.0,
        "over_nystrom": error / nystrom if min(error, nystrom) > MATTERS else 0.0,
        "warnings": "; ".join(sorted({str(w.message)[:60] for w in caught})),
    }  # fmt: skip


def _gap(K: np.ndarray, approximation: np.ndarray) -> float:
    return float(np.linalg.norm(K - approximation) / (np.linalg.norm(K) or 1.0))


def _best(K: np.ndarray, F: krein.Factorization) -> np.ndarray:
    """What the same clusters and ranks could do at best: the leading left singular vectors of each block's rows."""
    U = np.zeros((len(K), F.rank))
    for mine, columns in F.spans:
        places = F.order[mine]
        U[places, columns] = np.linalg.svd(K[places], full_matrices=False)[0][:, : columns.stop - columns.start]
    return U @ (U.T @ K @ U) @ U.T


def _nystrom(K: np.ndarray, m: int, seed: list[int]) -> np.ndarray:
    chosen = np.random.default_rng(seed).choice(len(K), m, replace=False)
    return np.asarray(
        K[:, chosen] @ np.linalg.pinv(K[np.ix_(chosen, chosen)], rcond=CUTOFF, hermitian=True) @ K[chosen]
    )


def _core_heavy(row: dict[str, str]) -> bool:
    """Whether the core takes more than HEAVY times the bases, n k numbers, by the shape that was asked for."""
    n, c = int(row["n"]), int(row["n_blocks"])
    k = min(int(row["rank"]), max(1, n // c))
    return (c * k) ** 2 > HEAVY * n * k


def report(rows: list[dict[str, str]], request: Request) -> str:
    ratios = {c: np.array([float(r[c]) for r in rows]) for c in ("over_nothing", "over_nystrom", "error")}
    matter = ratios["error"] > MATTERS
    heavy = sum(_core_heavy(r) and float(r["over_nystrom"]) > NYSTROM for r in rows)
    lines = [
        f"# {len(rows)} random problems, {int(matter.sum())} of them with an error above {MATTERS:g}",
        "",
        "The exact relative error over the smaller of 1 and the block-diagonal approximation's (the same factorization",
        "without its couplings), and over Nystroem's in as many bytes (uniform landmarks, mean of 3 draws), where both",
        f"are above {MATTERS:g}. Best: what the same clusters and ranks could do with K at hand. Blocks are built as",
        f"asked. Of those above Nystroem's limit {heavy} have a core of more than {HEAVY:g} times the numbers of the",
        "bases: fewer blocks of more rank would use the bytes better.",
        "",
        "| over | allowed | problems above it | largest | median | 95 % |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, allowed in (("over_nothing", NOTHING), ("over_nystrom", NYSTROM)):
        q = ratios[name][matter]
        lines.append(
            f"| {name[5:]} | {allowed} | {int((q > allowed).sum())} | {q.max():.3g} | {np.median(q):.3g} "
            f"| {np.quantile(q, 0.95):.3g} |"
        )
    negative = [r for r in rows if r["psd"] == "True" and float(r["lowest"]) < -1e-10]
    lines += ["", f"psd kernels whose core has an eigenvalue below -1e-10 of the largest: {len(negative)}.", ""]
    hopeless = sum(
        float(r["over_nystrom"]) > NYSTROM and float(r["best_error"]) > NYSTROM * float(r["nystrom_error"])
        for r in rows
    )
    lines += [f"Problems above Nystroem's limit that no bases of those ranks could bring below it: {hopeless}.", ""]
    failing = [r for r in rows if float(r["over_nothing"]) > NOTHING or float(r["over_nystrom"]) > NYSTROM]
    lines += [
        "| problem | data | kernel | n | blocks | rank | error | diagonal | best | Nystroem | over nothing "
        "| over Nystroem |",
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in (*failing, *(r for r in negative if r not in failing)):
        errors = " | ".join(
            f"{float(r[c]):.3g}"
            for c in ("error", "diagonal_error", "best_error", "nystrom_error", "over_nothing", "over_nystrom")
        )
        lines.append(
            f"| {r['problem']} | {r['kind']} | {r['kernel']} | {r['n']} | {r['n_blocks']} | {r['rank']} | {errors} |"
        )
    return "\n".join(lines) + "\n"
