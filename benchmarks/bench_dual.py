"""The SVM's dual on 200 random problems beside LIBSVM (tol 1e-6), and PIQP where LIBSVM gives up and n is small.

dual.csv: one row per problem. A difference is ours minus theirs over |theirs|: below 0 ours is the better minimum.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import piqp
from sklearn.svm import SVC

import krein
from benchmarks.measure import seconds
from benchmarks.runner import Request, Task
from krein.solvers import Dual, solve_dual

COLUMNS = (
    "case", "kind", "n", "rank", "n_blocks", "shift", "C", "n_iter", "converged", "gap", "objective", "n_support",
    "seconds", "reference", "reference_objective", "difference", "reference_support", "reference_seconds",
    "libsvm_converged",
)  # fmt: skip
KINDS = ("psd", "indefinite + shift", "duplicates", "2 % minority", "rank deficient")
WANTED = 1e-6
# LIBSVM may take PAIRS / n iterations.
PAIRS = 4e8
PIQP_ROWS = 1200
TABLES = {"dual": COLUMNS}


def tasks(request: Request) -> list[Task]:
    count, most = (10, 800) if request.quick else (200, 5000)
    return [Task({"case": case}, compare, (case, most)) for case in range(count)]


def problem(case: int, most: int) -> tuple[str, krein.Factorization, np.ndarray, float]:
    """Five kinds in turn: (kind, matrix, labels, C)."""
    rng = np.random.default_rng([30, case])
    kind = KINDS[case % len(KINDS)]
    n, d = round(float(np.exp(rng.uniform(np.log(200), np.log(most))))), int(rng.integers(2, 9))
    X = rng.standard_normal((n, d)) + 2.0 * rng.standard_normal((5, d))[rng.integers(5, size=n)]
    if kind == "duplicates":
        X = X[rng.integers(0, n // 4, n)]
    z = np.sin(X @ rng.standard_normal(d)) + 0.5 * X[:, 0] + 0.5 * rng.standard_normal(n)
    y = np.where(z > np.quantile(z, 0.98 if kind == "2 % minority" else 0.5), 1.0, -1.0)
    kernel: krein.kernels.Kernel = krein.RBF(gamma=float(10.0 ** rng.uniform(-2, 1)) / d)
    if kind == "indefinite + shift":
        tl1 = krein.TL1(rho=float(rng.uniform(0.2, 0.7)) * d)
        kernel = tl1 if rng.random() < 0.5 else krein.Sigmoid(gamma=1.0 / d, coef0=-0.5)
    elif kind == "rank deficient":
        kernel = krein.Linear() if rng.random() < 0.5 else krein.Polynomial(degree=2)
    c = int(rng.integers(1, 9))
    rank = int(min(n // c // 2, rng.integers(5, 80)))
    dtype = str(rng.choice(["float64", "float32"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", krein.KreinWarning)
        f = krein.approximate(X, kernel, n_blocks=c, rank=rank, dtype=dtype, random_state=case).factorization
        f = krein.correct(f, "shift" if kind == "indefinite + shift" else "clip")
    return kind, f, y, float(10.0 ** rng.uniform(-3, 3))


def compare(case: int, most: int) -> list[dict[str, Any]]:
    kind, f, y, C = problem(case, most)
    low, high = np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0)
    d: Dual
    taken, d = seconds(lambda: solve_dual(f, y, low, high))
    K = f.to_dense()

    def objective(b: np.ndarray) -> float:
        return float(0.5 * b @ (K @ b) - y @ b)

    model = SVC(C=C, kernel="precomputed", tol=1e-6, max_iter=int(PAIRS / len(y)), cache_size=400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it gave up stands in the table
        theirs, _ = seconds(lambda: model.fit(K, y))
    b = np.zeros(len(y))
    b[model.support_] = model.dual_coef_[0]
    name, value = "LIBSVM", objective(b)
    if model.fit_status_ != 0 and len(y) <= PIQP_ROWS:
        theirs, b = seconds(lambda: by_piqp(K, y, low, high))
        if objective(b) < value:
            name, value = "PIQP", objective(b)
    return [{
        "kind": kind, "n": len(y), "rank": f.rank, "n_blocks": f.n_blocks, "shift": f.shift, "C": C,
        "n_iter": d.n_iter, "converged": d.converged, "gap": d.gap, "objective": objective(d.coefficients),
        "n_support": int(d.support.sum()), "seconds": taken, "reference": name, "reference_objective": value,
        "difference": (objective(d.coefficients) - value) / abs(value),
        "reference_support": int((b != 0.0).sum()), "reference_seconds": theirs,
        "libsvm_converged": model.fit_status_ == 0,
    }]  # fmt: skip


def by_piqp(K: np.ndarray, y: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    solver = piqp.DenseSolver()
    solver.settings.eps_abs, solver.settings.eps_rel = 1e-9, 1e-10
    solver.setup(K, -y, np.ones((1, len(y))), np.zeros(1), None, None, None, low, high)
    solver.solve()
    return np.clip(np.array(solver.result.x), low, high)


def report(rows: list[dict[str, str]], request: Request) -> str:
    lines = [
        f"# The dual on {len(rows)} random problems",
        "",
        "Difference: ours minus the reference's objective over |the reference's|; below 0 ours is the better minimum.",
        "The reference is LIBSVM (tol 1e-6), or PIQP where LIBSVM ran out of iterations and PIQP found less.",
        "",
        "| kind | problems | converged | steps, median and most | largest difference | smallest | LIBSVM converged "
        "| seconds, ours / reference's |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for kind in KINDS:
        mine = [r for r in rows if r["kind"] == kind]
        if not mine:
            continue
        gaps = np.array([float(r["difference"]) for r in mine])
        steps = np.array([int(r["n_iter"]) for r in mine])
        ours, theirs = (sum(float(r[c]) for r in mine) for c in ("seconds", "reference_seconds"))
        lines.append(
            f"| {kind} | {len(mine)} | {sum(r['converged'] == 'True' for r in mine)} "
            f"| {np.median(steps):.0f}, {steps.max()} | {gaps.max():.1e} | {gaps.min():.1e} "
            f"| {sum(r['libsvm_converged'] == 'True' for r in mine)} | {ours:.1f} / {theirs:.1f} |"
        )
    good = np.array([float(r["difference"]) <= WANTED and r["converged"] == "True" for r in rows])
    lines += [
        "",
        f"- Within {WANTED:g} of the reference or lower, and converged: {good.sum()} of {len(good)} (wanted: all).",
        f"- Largest duality gap reached: {max(float(r['gap']) for r in rows):.1e}.",
    ]
    return "\n".join(lines) + "\n"
