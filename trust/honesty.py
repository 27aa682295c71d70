"""Numerical honesty: what krein says about a matrix or a solution, compared with dense linear algebra."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.svm
from threadpoolctl import threadpool_limits

import krein
from trust.attacks import Attack, Ended, Tally, attempt
from trust.subjects import BEYOND, Unprotected

# Random problems of a full run and of the short form.
PROBLEMS, FEW_PROBLEMS = 1000, 12
# A relative duality gap above this is no solution.
LARGEST_GAP = 1e-3
# Eigenvalues below this share of the largest one make a matrix indefinite; single precision hides smaller ones.
NEGATIVE_SHARE = 1e-4
# Predictions explode if they leave the range of the targets by this multiple of its width.
EXPLOSION = 10.0
# Share of 95 % intervals that may be missed, with three standard errors on top.
NOMINAL_MISSES = 0.05
# Rows of the approximations whose error is sampled; up to 2000 rows it is exact.
SAMPLED_ROWS = 2100


def count(quick: bool) -> int:
    return FEW_PROBLEMS if quick else PROBLEMS


def problems(n_problems: int) -> Iterator[tuple[int, Any, Any, Any]]:
    """Yield (seed, rows, labels, kernel): blobs, duplicates and grids, with kernels psd and indefinite."""
    for seed in range(n_problems):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(30, 90)), int(rng.integers(1, 6))
        X = rng.normal(size=(n, d)) + 2.0 * rng.integers(0, 3, size=(n, 1))
        X = [X, np.round(X), X[rng.integers(0, n, n)], X * 10.0 ** rng.uniform(-3, 3)][seed % 4]
        width = max(float(X.var()) * d, 1e-9)
        kernel = [
            krein.RBF(gamma=float(10.0 ** rng.uniform(-2, 1)) / width),
            krein.TL1(rho=float(rng.uniform(0.2, 3.0)) * np.sqrt(width)),
            krein.Sigmoid(gamma=float(10.0 ** rng.uniform(-1, 0.5)) / width, coef0=float(rng.uniform(-2, 1))),
            krein.Laplacian(gamma=float(rng.uniform(0.1, 3)) / np.sqrt(width)),
            krein.Polynomial(degree=2, gamma=1.0 / width, coef0=1.0),
        ][seed % 5]
        y = (X[:, 0] + 0.3 * np.sqrt(width) * rng.normal(size=n) > np.median(X[:, 0])).astype(int)
        y[:2] = 0, 1
        yield seed, X, y, kernel


# -- the certificate ---------------------------------------------------------------------------------------------------


def certificates(certify: Callable[[Any], bool], quick: bool) -> Tally:
    """Compare each verdict with the dense eigenvalues of the matrix and of the same matrix shifted close to zero."""
    tally = Tally()
    for seed, X, _, kernel in problems(count(quick)):
        a = attempt(lambda X=X, k=kernel, s=seed: krein.approximate(X, k, n_blocks=2, rank=10, random_state=s)).value
        if a is None:
            continue
        f = a.factorization
        values = np.linalg.eigvalsh(f.to_dense())
        size, low = np.abs(values).max(), values[0]
        near = 1e-9 * size * (1 if seed % 2 else -1)  # the smallest eigenvalue is brought this close to zero
        for g in (f, f.with_core(f.core, f.shift - low + near)):
            low = np.linalg.eigvalsh(g.to_dense())[0]
            if abs(low) > 1e-12 * size:  # else it is rounding, and either verdict is right
                tally.add(
                    certify(g) == (low > 0), f"problem {seed}: smallest eigenvalue {low / size:.1e} of the largest"
                )
    return tally


# -- the interval of the error -----------------------------------------------------------------------------------------


def coverage(width: float, quick: bool) -> Tally:
    """Count the intervals, made narrower or wider by a factor, that contain the error of the dense matrix."""
    tally, missed = Tally(), 0
    for seed in range(1 if quick else 20):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(SAMPLED_ROWS, 3)) * rng.uniform(0.5, 2.0, 3)
        kernel = [krein.RBF(gamma=0.3), krein.Laplacian(gamma=0.5), krein.TL1(rho=2.0)][seed % 3]
        a = attempt(lambda X=X, k=kernel, s=seed: krein.approximate(X, k, n_blocks=5, rank=10, random_state=s)).value
        K = kernel(X)
        true = np.linalg.norm(K - a.factorization.to_dense()) / np.linalg.norm(K)
        for draw in range(10 if quick else 50):
            found = a.error(n_samples=5000, random_state=1000 * seed + draw)  # other rows for every matrix
            low, high = (found.relative + width * (end - found.relative) for end in (found.low, found.high))
            missed += not low <= true <= high
            tally.tried += 1
    expected = NOMINAL_MISSES * tally.tried
    if missed > expected + 3.0 * np.sqrt(expected):
        tally.broken += [f"{missed} of {tally.tried} intervals miss the error"] + ["an interval"] * (missed - 1)
    tally.note = f"{missed} of {tally.tried} intervals of 95 % missed"
    return tally


# -- the duality gap ---------------------------------------------------------------------------------------------------


def gap(machine: Any, K: Any, y: Any, C: float) -> float:
    """Return the relative gap between the primal and the dual objective, and infinity if the dual is not feasible."""
    a = np.zeros(len(y))
    a[machine.support_] = np.asarray(machine.dual_coef_).ravel()
    signs = np.where(y == y.max(), 1.0, -1.0)
    if (signs * a < -1e-9 * C).any() or np.abs(a).max() > C * (1 + 1e-6) or abs(a.sum()) > 1e-5 * C * len(y):
        return np.inf
    energy = a @ K @ a
    losses = np.maximum(0.0, 1.0 - signs * (K @ a + machine.intercept_[0]))
    primal, dual = 0.5 * energy + C * losses.sum(), np.abs(a).sum() - 0.5 * energy
    return float((primal - dual) / max(abs(primal), 1e-12))


def duality_gaps(quick: bool, unfinished: bool = False) -> Tally:
    tally = Tally()
    for seed, X, y, kernel in problems(count(quick)):
        if not kernel.traits.psd:
            continue
        K, C = kernel(X), float(10.0 ** np.random.default_rng(seed).uniform(-1, 3))
        if unfinished:
            ended = attempt(lambda K=K, y=y, C=C: sklearn.svm.SVC(C=C, kernel="precomputed", max_iter=5).fit(K, y))
        else:
            how: dict[str, Any] = [{}, {"n_blocks": 2, "rank": 10}, {"policy": BEYOND}][seed % 3]
            ended = attempt(
                lambda X=X, y=y, C=C, k=kernel, h=how, s=seed: krein.SVC(C=C, kernel=k, random_state=s, **h).fit(X, y)
            )
        machine = ended.value
        if machine is None or not hasattr(machine, "support_"):
            tally.add(ended.error is not None, f"problem {seed}: {ended.error!r:.80}")
            continue
        dense = K if unfinished or machine._approximation is None else machine.approximation_.factorization.to_dense()
        found = gap(machine, dense, y, C)
        said = any("converge" in words or "tol" in words for words in ended.warned) and not unfinished
        tally.add(found <= LARGEST_GAP or said, f"problem {seed}: relative gap {found:.1e}, C={C:.2g}")
    return tally


# -- indefinite matrices -----------------------------------------------------------------------------------------------


def indefinite(machine: Callable[[int, Any], Any], reported: Callable[[Ended], bool], quick: bool) -> Tally:
    """Fit machines to kernels whose matrix has negative eigenvalues; each has to say so."""
    tally = Tally()
    for seed, X, y, kernel in problems(count(quick)):
        if kernel.traits.psd:
            continue
        values = np.linalg.eigvalsh(kernel(X))
        if values[0] >= -NEGATIVE_SHARE * values[-1]:
            continue
        ended = attempt(lambda X=X, y=y, k=kernel, s=seed: machine(s, k).fit(X, y))
        tally.add(reported(ended), f"problem {seed}: {values[0] / values[-1]:.1e}, {type(ended.value).__name__}")
    return tally


def some_machine(seed: int, kernel: Any) -> Any:
    """A machine that uses all similarities: exactly, or as features. Few directions may be psd although all are not."""
    if seed % 2:
        classes = (krein.KernelPCA, krein.OneClassSVM, krein.SVC, krein.KernelRidgeClassifier)
        return classes[seed // 2 % 4](kernel=kernel, random_state=seed)
    classes = (krein.SVC, krein.SVR, krein.KernelRidge, krein.KernelRidgeClassifier)
    return classes[seed // 2 % 4](kernel=kernel, random_state=seed, policy=replace(BEYOND, matrix_memory=1e9))


def says_so(ended: Ended) -> bool:
    if ended.error is not None:
        return isinstance(ended.error, ValueError)
    counted = getattr(ended.value, "n_negative_", 0) > 0
    return counted and (
        ended.value.correction_ == "none" or any("egative" in w or "indefinite" in w for w in ended.warned)
    )


# -- explosions --------------------------------------------------------------------------------------------------------


def explosions(machine: Callable[[int, Any, float], Any], quick: bool) -> Tally:
    """Regress on indefinite kernels with an alpha that makes K + alpha I nearly singular."""
    tally = Tally()
    for seed, X, y, kernel in problems(count(quick)):
        K = kernel(X)
        values = np.linalg.eigvalsh(K)
        negative = values[values < -1e-10 * abs(values[-1])]
        alpha = float(-negative[len(negative) // 2] * (1 + 1e-9)) if len(negative) else 1e-12
        ended = attempt(lambda X=X, y=y, k=kernel, a=alpha, s=seed: machine(s, k, a).fit(X, y.astype(float)).predict(X))
        if ended.error is not None:
            tally.add(isinstance(ended.error, ValueError) and not isinstance(ended.error, np.linalg.LinAlgError),
                      f"problem {seed}: {ended.error!r:.80}")  # fmt: skip
            continue
        worst = float(np.abs(ended.value - 0.5).max())
        tally.add(worst <= EXPLOSION, f"problem {seed}: a prediction is off by {worst:.1e}")
    return tally


def ridge(seed: int, kernel: Any, alpha: float) -> Any:
    how: dict[str, Any] = [{}, {"n_blocks": 2, "rank": 10}, {"policy": BEYOND}][seed % 3]
    return krein.KernelRidge(alpha=alpha, kernel=kernel, random_state=seed, **how)


# -- the same bits -----------------------------------------------------------------------------------------------------


def repetitions(seeds: Callable[[int], tuple[int, int]], quick: bool) -> Tally:
    """Fit and predict twice; equal seeds have to give equal bits."""
    tally = Tally()
    for seed, X, y, kernel in problems(count(quick)):
        how: dict[str, Any] = [{"n_blocks": 3, "rank": 6}, {"policy": BEYOND}][seed % 2]
        if kernel.traits.psd is not True:
            how = how | {"correction": "clip"}
        cls = (krein.SVC, krein.KernelRidgeClassifier)[seed % 2]
        found = []
        for s in seeds(seed):
            krein.clear_cache()
            machine = cls(kernel=kernel, random_state=s, **how)
            found.append(attempt(lambda m=machine, X=X, y=y: m.fit(X, y).decision_function(X)))
        values = [ended.value for ended in found]
        same = (values[0] is None and values[1] is None) or np.array_equal(*values)
        tally.add(same, f"problem {seed}: other bits")
    return tally


# -- threads and pieces ------------------------------------------------------------------------------------------------

# Results on other numbers of threads, and on rows in a file, differ by no more than this share of the largest.
SAME = 1e-8
# Rows of these problems are repeated with noise, so that there is something to divide.
REPEATED = 5


def repeated(seed: int, X: Any, y: Any) -> tuple[Any, Any]:
    noise = np.random.default_rng([seed, 1]).normal(size=(REPEATED * len(X), X.shape[1]))
    return np.tile(X, (REPEATED, 1)) + 0.1 * X.std() * noise, np.tile(y, REPEATED)


def across_threads(quick: bool, careless: bool = False) -> Tally:
    """Fit and predict with one thread and with two."""
    tally = Tally()
    for seed, few, labels, kernel in problems(count(quick)):
        if kernel.traits.psd is not True:
            continue
        X, y = repeated(seed, few, labels)
        found = []
        for n_threads in (1, 2):
            krein.clear_cache()
            with threadpool_limits(n_threads):
                cls = (krein.SVC, krein.KernelRidgeClassifier)[seed % 2]
                state = seed + n_threads if careless else seed
                machine = cls(kernel=kernel, n_blocks=4, rank=8, n_jobs=n_threads, random_state=state)
                found.append(attempt(lambda m=machine, X=X, y=y: m.fit(X, y).decision_function(X)).value)
        tally.add(alike(*found), f"problem {seed}: other values with two threads")
    return tally


def across_pieces(quick: bool, careless: bool = False) -> Tally:
    """Approximate rows in memory, and the same rows in a file."""
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="trust-") as folder:
        for seed, few, labels, kernel in problems(count(quick)):
            X, _ = repeated(seed, few, labels)
            path = Path(folder) / f"{seed}.npy"
            np.save(path, X.astype(np.float16) if careless else X)
            found = []
            for rows in (X, path):
                krein.clear_cache()
                a = attempt(
                    lambda r=rows, k=kernel, s=seed: krein.approximate(r, k, n_blocks=4, rank=8, random_state=s)
                )
                found.append(None if a.value is None else a.value.factorization.to_dense())
            path.unlink()
            tally.add(alike(*found), f"problem {seed}: another matrix of rows in a file")
    return tally


def alike(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(np.abs(one - other).max() <= SAME * np.abs(one).max())


def _family(name: str, run: Callable[[bool], Tally], control: Callable[[bool], Tally], without: str) -> Attack:
    return Attack("honesty", name, run, control, without)


ATTACKS = (
    _family("certificate of psd", lambda q: certificates(lambda f: krein.certify(f).psd, q),
            lambda q: certificates(lambda f: True, True), "every matrix called psd"),
    _family("coverage of the error's interval", lambda q: coverage(1.0, q), lambda q: coverage(0.3, True),
            "intervals a third as wide"),
    _family("duality gap of SVC", duality_gaps, lambda q: duality_gaps(True, unfinished=True), "LIBSVM after 5 steps"),
    _family("indefinite matrices are reported", lambda q: indefinite(some_machine, says_so, q),
            lambda q: indefinite(lambda s, k: sklearn.svm.SVC(kernel=k), says_so, True), "scikit-learn's SVC"),
    _family("no explosion near singular systems", lambda q: explosions(ridge, q),
            lambda q: explosions(lambda s, k, a: Unprotected(kernel=k, alpha=a), True), "kernel ridge without checks"),
    _family("equal bits for an equal random_state", lambda q: repetitions(lambda s: (s, s), q),
            lambda q: repetitions(lambda s: (s, s + 1), True), "another random_state"),
    _family("1e-8 across threads", across_threads, lambda q: across_threads(True, careless=True),
            "a random_state by thread"),
    _family("1e-8 across pieces", across_pieces, lambda q: across_pieces(True, careless=True),
            "a file of half precision"),
)  # fmt: skip
