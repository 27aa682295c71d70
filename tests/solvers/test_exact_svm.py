"""The exact duals of a psd kernel against scikit-learn's machines and against a QP solver."""

from __future__ import annotations

import warnings
from itertools import combinations
from typing import Any

import numpy as np
import piqp
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import svm
from sklearn.datasets import make_classification

import krein
from krein.estimators.decision import by_pair, class_tasks
from krein.kernels import counting
from krein.kernels.similarities import as_kernel
from krein.solvers import Dual, exact_svm, refine, smo
from krein.solvers.dense_dual import NotConverged, Task, violation
from krein.solvers.exact_svm import choose_solver, solve_classes, solve_exactly
from krein.solvers.kernel_values import KernelValues
from krein.solvers.refine import refine_exactly

KINDS = ("margin", "tube", "one-class")


def data(n: int, d: int = 5, n_classes: int = 2) -> tuple[Any, Any]:
    X, y = make_classification(
        n, d, n_informative=min(d, 4), n_redundant=0, n_classes=n_classes, flip_y=0.03, n_clusters_per_class=1,
        random_state=1,
    )  # fmt: skip
    return X, y


def task(kind: str, X: Any, y: Any, C: float = 1.0, weights: Any = None) -> Task:
    n = len(y)
    rows, high = np.arange(n), C * (np.ones(n) if weights is None else weights)
    if kind == "margin":
        return class_tasks(y, rows, high, 2, "ovo")[0]
    if kind == "tube":
        return Task(kind, rows, np.asarray(X[:, 0] * X[:, 1] + 0.1 * y, dtype=np.float64), -high, high, 0.0, 0.1)
    return Task(kind, rows, np.zeros(n), np.zeros(n), high, 0.2 * float(high.sum()))


def theirs(kind: str, t: Task, K: Any, tol: float = 1e-7) -> tuple[Any, Any]:
    """scikit-learn's coefficients and decision values on a matrix."""
    options: dict[str, Any] = {"kernel": "precomputed", "tol": tol}
    if kind == "margin":
        machine = svm.SVC(C=1.0, **options).fit(K, np.sign(t.linear), sample_weight=t.high - t.low)
    elif kind == "tube":
        machine = svm.SVR(C=1.0, epsilon=t.epsilon, **options).fit(K, t.linear, sample_weight=t.high)
    else:
        machine = svm.OneClassSVM(nu=t.total / float(t.high.sum()), **options).fit(K, sample_weight=t.high)
    b = np.zeros(len(K))
    b[machine.support_] = machine.dual_coef_[0]
    return b, K @ b + machine.intercept_[0]


def size(t: Task, K: Any) -> float:
    own = float(np.mean(np.diagonal(K)))
    return t.spread(own) or own * float(t.high.max())


def check(t: Task, K: Any, found: Dual, allowed: float = 1.1e-3) -> None:
    b = found.coefficients
    assert found.converged
    assert (b >= t.low).all()
    assert (b <= t.high).all()
    assert abs(b.sum() - t.total) <= 1e-9 * max(1.0, np.abs(b).sum())
    assert violation(t, b, K @ b - t.linear + found.intercept).max() <= allowed * size(t, K)
    assert found.objective == pytest.approx(0.5 * b @ K @ b - t.linear @ b + t.epsilon * np.abs(b).sum(), rel=1e-4)
    point = t.problem(sp.diags(np.diagonal(K))).point(b, found.intercept, K @ b)
    assert found.gap == pytest.approx(point.gap, rel=0.1, abs=1e-6)  # pairs in blocks use single precision


# -- every way, every task -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["libsvm", "matrix", "blocks", "matrix to rounding"])
def test_every_way_gives_scikit_learns_solution(way: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_svm, "choose_solver", lambda *_, **__: way)
    monkeypatch.setattr(refine, "FIRST_ROWS", 100)
    monkeypatch.setattr(smo, "BLOCK", 150)
    X, y = data(700)
    kernel = krein.RBF(gamma=0.3)
    t, K = task(kind, X, y, weights=np.random.default_rng(0).uniform(0.3, 2.0, 700)), kernel(X, X)
    (found,) = solve_exactly(kernel, X, [t])
    check(t, K, found)
    _, values = theirs(kind, t, K)
    np.testing.assert_allclose(K @ found.coefficients + found.intercept, values, atol=6e-3 * size(t, K))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [700, 3300])
def test_a_finer_tol_is_honoured(kind: str, n: int) -> None:
    X, y = data(n)
    kernel = krein.RBF(gamma=0.3)
    t, K = task(kind, X, y), kernel(X, X)
    (found,) = solve_exactly(kernel, X, [t], tol=1e-9)
    check(t, K, found, 2e-6)
    assert found.gap <= 1e-7


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["float32", "sparse", "laplacian", "callable", "poly", "wide vectors"])
def test_objects_and_kernels_of_many_kinds(kind: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "FIRST_ROWS", 60)
    X, y = data(500, 80 if form == "wide vectors" else 5)
    kernel: Any = {
        "laplacian": krein.Laplacian(gamma=0.2),
        "callable": as_kernel(lambda A, B: np.exp(-0.2 * ((A[:, None] - B) ** 2).sum(-1))),
        "poly": krein.Polynomial(degree=2, gamma=0.3, coef0=1.0),
    }.get(form, krein.RBF(gamma=0.02 if form == "wide vectors" else 0.2))
    X = X.astype(np.float32) if form == "float32" else X
    objects = sp.csr_matrix(X) if form == "sparse" else X
    t, K = task(kind, X, y, 0.2), np.asarray(kernel(X, X), dtype=np.float64)
    for rows in (exact_svm.MATRIX_ROWS, 100):  # the matrix, or pairs in blocks
        monkeypatch.setattr(exact_svm, "MATRIX_ROWS", rows)
        monkeypatch.setattr(exact_svm, "LIBSVM_ROWS", rows)
        (found,) = solve_exactly(kernel, objects, [t])
        check(t, K, found, 1.5e-3)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(KINDS),
    width=st.sampled_from([0.05, 1.0, 30.0]),
    blocks=st.booleans(),
)
def test_small_problems_against_a_qp_solver(seed: int, kind: str, width: float, blocks: bool) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 40))
    X = rng.normal(size=(n, 3))
    y = np.r_[0, 1, rng.integers(0, 2, n - 2)]
    kernel = krein.RBF(gamma=0.5)
    t, K = task(kind, X, y, width, rng.uniform(0.3, 2.0, n)), kernel(X, X)
    best = by_piqp(K, t)
    if blocks:
        found = refine_exactly(KernelValues(kernel, X), t)
    else:
        (found,) = solve_exactly(kernel, X, [t], tol=1e-8)
    check(t, K, found)
    # a violation of v in every row leaves at most v times what the coefficients can still move
    assert found.objective <= best + 2e-3 * size(t, K) * float((t.high - t.low).sum())
    if not blocks:
        assert found.objective <= best + 1e-6 * (abs(best) + 1e-3)


def by_piqp(K: Any, t: Task) -> float:
    n = len(K)
    P = np.block([[K, -K], [-K, K]])
    cost = np.concatenate([t.epsilon - t.linear, t.epsilon + t.linear])
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-10
    ones = np.concatenate([np.ones(n), -np.ones(n)])[None]
    high = np.concatenate([np.maximum(t.high, 0.0), np.maximum(-t.low, 0.0)])
    solver.setup(P + 1e-12 * np.eye(2 * n), cost, ones, np.array([t.total]), None, None, None, np.zeros(2 * n), high)
    solver.solve()
    x = np.asarray(solver.result.x)
    b = np.clip(x[:n] - x[n:], t.low, t.high)
    return float(0.5 * b @ K @ b - t.linear @ b + t.epsilon * np.abs(b).sum())


# -- the decision ----------------------------------------------------------------------------------------------------


def test_the_decision_list() -> None:
    def way(n: int, d: int, kind: str = "margin", C: float = 1.0, kernel: Any = None, **asked: Any) -> str:
        X, y = np.zeros((n, d)), np.arange(n) % 2
        kernel = krein.RBF(gamma=0.1) if kernel is None else kernel
        return choose_solver(kernel, X, task(kind, X, y, C), **{"tol": 1e-6, "max_iter": -1, "usual": 1.0, **asked})

    other = krein.Laplacian(gamma=0.1)
    assert way(500, 5) == way(exact_svm.LIBSVM_ROWS, 5) == "libsvm"
    assert way(exact_svm.LIBSVM_ROWS + 1, 5) == way(2 * exact_svm.MATRIX_ROWS, 100) == "blocks"
    assert way(500, 100) == way(500, 5, kernel=other) == "matrix"
    assert way(exact_svm.MATRIX_ROWS + 1, 5, kernel=other) == "blocks"
    assert way(9000, 5, C=100.0) == way(9000, 5, max_iter=7) == "libsvm"
    assert way(3000, 5, C=100.0, kernel=other) == way(9000, 5, max_iter=7, kernel=other) == "matrix"
    assert way(9000, 5, C=100.0, kernel=other) == "blocks"
    assert way(500, 5, tol=1e-8) == "matrix to rounding"
    assert way(5000, 5, tol=1e-8) == "blocks"
    full = Task("one-class", np.arange(9), np.zeros(9), np.zeros(9), np.ones(9), 9.0)
    assert choose_solver(other, np.zeros((9, 2)), full, tol=1e-6, max_iter=-1, usual=1.0) == "ends"


def test_nu_of_one_has_every_row_at_its_end() -> None:
    X = np.random.default_rng(2).normal(size=(60, 3))
    full = Task("one-class", np.arange(60), np.zeros(60), np.zeros(60), np.ones(60), 60.0)
    (found,) = solve_exactly(krein.RBF(gamma=0.3), X, [full])
    np.testing.assert_array_equal(found.coefficients, 1.0)
    assert found.converged
    assert -found.intercept == pytest.approx(krein.RBF(gamma=0.3)(X, X).sum(1).max())


def test_a_limit_of_steps_is_kept_and_said() -> None:
    X, y = data(400)
    with pytest.warns(NotConverged, match=r"terminated early \(max_iter=5\)"):
        (found,) = solve_exactly(krein.RBF(gamma=0.3), X, [task("margin", X, y)], max_iter=5)
    assert not found.converged
    assert found.n_iter == 5
    with pytest.warns(NotConverged, match=r"terminated early \(max_iter=5\)"):
        some = solve_classes(krein.RBF(gamma=0.3), X, y, np.ones(400), 2, max_iter=5)
    assert some is not None
    assert not some.finished


def test_what_libsvm_does_not_end_is_solved_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data(800)
    kernel = krein.RBF(gamma=0.3)
    monkeypatch.setattr(exact_svm, "LIBSVM_STEPS", 20)
    t = task("margin", X, y)
    (found,) = solve_exactly(kernel, X, [t])
    assert found.method == "refined"
    check(t, kernel(X, X), found)
    assert solve_classes(kernel, X, y, np.ones(800), 2) is None


def test_rows_far_from_the_origin_are_not_left_to_libsvm() -> None:
    X, y = data(400)
    far, kernel = X + 1e7, krein.RBF(gamma=0.3)
    t = task("margin", X, y)
    (found,) = solve_exactly(kernel, far, [t])
    check(t, kernel(far, far), found)
    assert solve_classes(kernel, far, y, np.ones(400), 2) is None


def test_a_start_is_taken_up() -> None:
    X, y = data(3300)
    kernel = krein.RBF(gamma=0.3)
    t = task("margin", X, y)
    plain = refine_exactly(KernelValues(kernel, X), t)
    again = refine_exactly(KernelValues(kernel, X), t, plain.coefficients)
    assert again.n_iter <= 0.02 * plain.n_iter
    check(t, kernel(X, X), again)
    rng = np.random.default_rng(0)
    rough = plain.coefficients + 0.1 * rng.normal(size=3300)  # outside the box, and with another sum
    check(t, kernel(X, X), refine_exactly(KernelValues(kernel, X), t, rough))
    nearly = Dual(rough, 0.0, 0.0, 1.0, 1, False, "")
    (found,) = solve_exactly(kernel, X, [t], starts=[nearly], tol=1e-9)
    check(t, kernel(X, X), found, 2e-6)


# -- pairs in blocks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_rows_join_and_leave_until_none_violates(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"FIRST_ROWS": 60, "FIRST_SHARE": 40}
    limits = {"JOINING_DISTANCE": 0.0, "LEAVING_DISTANCE": 0.05, "REMAINING_SHARE": 1.0}
    for name, value in (few | limits).items():
        monkeypatch.setattr(refine, name, value)
    sizes: list[int] = []
    pool = refine.Pool

    def spy(values: Any, where: Any, nbytes: float) -> Any:
        sizes.append(len(where))
        return pool(values, where, nbytes)

    monkeypatch.setattr(refine, "Pool", spy)
    X, y = data(2300)
    kernel, t = krein.RBF(gamma=0.5), task(kind, X, y)
    found = refine_exactly(KernelValues(kernel, X), t)
    check(t, kernel(X, X), found)
    assert len(sizes) >= 3
    assert max(sizes[1:]) < 2300
    assert np.diff(sizes[1:]).min() < 0  # some left
    monkeypatch.setattr(refine, "ROUNDS", 1)
    with pytest.warns(NotConverged, match=r"The exact dual ended with \d+ of 2300 rows"):
        assert not refine_exactly(KernelValues(kernel, X), t).converged


@pytest.mark.parametrize("megabytes", [1e-3, 0.5, 1000.0])
def test_rows_that_find_no_room_are_evaluated_again(megabytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refine, "ROW_MEGABYTES", megabytes)
    monkeypatch.setattr(smo, "BLOCK", 60)
    X, y = data(1200)
    for kernel in (krein.Laplacian(gamma=0.3), krein.RBF(gamma=0.3)):
        t = task("margin", X, y)
        check(t, kernel(X, X), refine_exactly(KernelValues(kernel, X), t, cache_size=megabytes))


def test_what_pairs_do_not_settle_a_linear_system_does(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data(2300)
    kernel, t = krein.RBF(gamma=0.3), task("margin", X, y, 50.0)
    near = refine_exactly(KernelValues(kernel, X), t).coefficients
    free = (near > t.low) & (near < t.high)
    near = near + np.where(free, 1e-2 * np.random.default_rng(0).normal(size=2300), 0.0)
    monkeypatch.setattr(refine, "descend", lambda *given: smo.descend(*given[:5], 0))  # no step at all
    found = refine_exactly(KernelValues(kernel, X), t, near)
    check(t, kernel(X, X), found)
    assert found.gap <= 1e-6
    monkeypatch.setattr(refine, "POLISHED_ROWS", 0)
    with pytest.warns(NotConverged, match="after .* steps; .*Lower C, or raise tol"):
        assert not refine_exactly(KernelValues(kernel, X), t, near).converged


# -- several tasks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
def test_tasks_of_the_same_rows_share_them(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_svm, "MATRIX_ROWS", 100)
    X, y = data(1200, 80, 4)
    kernel = krein.RBF(gamma=0.02)
    K = kernel(X, X)
    tasks = class_tasks(y, np.arange(1200), np.ones(1200), 4, scheme)
    with counting() as tally:
        found = solve_exactly(kernel, X, tasks)
    apart = 0
    for t, dual in zip(tasks, found, strict=True):
        check(t, K[np.ix_(t.rows, t.rows)], dual, 1.5e-3)
        with counting() as single:
            solve_exactly(kernel, X, [t])
        apart += single.n_evaluations
    if scheme == "ovr":
        assert tally.n_evaluations <= 0.5 * apart
    else:  # each pair has rows of its own
        assert tally.n_evaluations == apart


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("form", ["rbf", "float32", "wide vectors", "laplacian", "sparse", "linear", "poly"])
def test_all_classes_in_one_call(n_classes: int, form: str) -> None:
    X, y = make_classification(
        400, 90 if form == "wide vectors" else 6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=0
    )
    kernel: Any = {
        "laplacian": krein.Laplacian(gamma=0.2),
        "linear": krein.Linear(),
        "poly": krein.Polynomial(degree=2, gamma=0.3, coef0=1.0),
    }.get(form, krein.RBF(gamma=0.2))
    X = X.astype(np.float32) if form == "float32" else X
    limits = np.random.default_rng(0).uniform(0.1, 0.5, 400)
    found = solve_classes(kernel, sp.csr_matrix(X) if form == "sparse" else X, y, limits, n_classes)
    assert found is not None
    K = np.asarray(kernel(X, X), dtype=np.float64)
    machine = svm.SVC(kernel="precomputed").fit(K, y, sample_weight=limits)
    np.testing.assert_array_equal(found.n_support, np.bincount(y[found.support], minlength=n_classes))
    assert (np.diff(y[found.support]) >= 0).all()
    tasks = class_tasks(y, np.arange(400), limits, n_classes, "ovo")
    duals = solve_exactly(kernel, X, tasks, tol=1e-9)
    whole = np.zeros((400, len(tasks)))
    for p, (t, dual) in enumerate(zip(tasks, duals, strict=True)):
        whole[t.rows, p] = dual.coefficients
    wanted = whole[found.support].T if n_classes == 2 else by_pair(whole, y, found.support, n_classes)
    values, exactly = pair_values(K, found.support, y, found.dual_coef, n_classes), K @ whole
    np.testing.assert_allclose(values, exactly, atol=0.02 * np.abs(exactly).max())
    np.testing.assert_allclose(found.intercepts, [dual.intercept for dual in duals], atol=0.02)
    assert found.dual_coef.shape == wanted.shape == machine.dual_coef_.shape
    worst, gaps = 0.0, []
    for p, t in enumerate(tasks):
        b = np.zeros(400)
        b[found.support] = 0.0
        i, j = list(combinations(range(n_classes), 2))[p]
        own = y[found.support]
        b[found.support[own == i]] = found.dual_coef[j - 1, own == i]
        b[found.support[own == j]] = found.dual_coef[i, own == j]
        product = K[np.ix_(t.rows, t.rows)] @ b[t.rows]
        worst = max(worst, violation(t, b[t.rows], product - t.linear + found.intercepts[p]).max())
        gaps.append(t.problem(sp.diags(np.diagonal(K)[t.rows])).point(b[t.rows], found.intercepts[p], product).gap)
    assert found.violation == pytest.approx(worst, rel=0.05, abs=1e-6)
    np.testing.assert_allclose(found.gaps, gaps, rtol=0.1, atol=1e-7)
    assert found.gap == found.gaps.max()
    assert found.finished
    assert found.n_iter.shape == (len(tasks),)


def pair_values(K: Any, support: Any, y: Any, coefficients: Any, n_classes: int) -> Any:
    own, out = y[support], []
    for i, j in combinations(range(n_classes), 2):
        first, second = support[own == i], support[own == j]
        out.append(K[:, first] @ coefficients[j - 1, own == i] + K[:, second] @ coefficients[i, own == j])
    return np.column_stack(out)


def test_rows_without_a_class_take_no_part() -> None:
    X, y = data(300)
    labels = np.where(np.arange(300) % 7 == 0, -1, y)
    kept = np.flatnonzero(labels >= 0)
    found = solve_classes(krein.RBF(gamma=0.3), X, labels, np.ones(300), 2)
    alone = solve_classes(krein.RBF(gamma=0.3), X[kept], y[kept], np.ones(len(kept)), 2)
    assert found is not None
    assert alone is not None
    np.testing.assert_array_equal(found.support, kept[alone.support])
    np.testing.assert_array_equal(found.dual_coef, alone.dual_coef)


def test_where_one_call_is_not_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data(300)
    ones, kernel = np.ones(300), krein.RBF(gamma=0.3)
    assert solve_classes(kernel, X, y, ones, 2, tol=1e-8) is None
    assert solve_classes(krein.Polynomial(degree=3, gamma=1.0), 1e20 * X, y, ones, 2) is None
    with monkeypatch.context() as patch:
        patch.setattr(exact_svm, "CLASS_ROWS", 200)
        assert solve_classes(kernel, X, y, ones, 2) is None
    with monkeypatch.context() as patch:
        patch.setattr(exact_svm, "CLASS_MATRIX_ROWS", 200)
        assert solve_classes(krein.Laplacian(gamma=0.3), X, y, ones, 2) is None


@pytest.mark.parametrize("kernel", [krein.Polynomial(degree=3, gamma=1.0), krein.RBF(gamma=1.0)], ids=["large", "wide"])
def test_coefficients_that_are_small_beside_the_box_are_no_zeros(kernel: Any) -> None:
    rng = np.random.default_rng(0)
    X = (30.0 if isinstance(kernel, krein.Polynomial) else 1.0) * rng.normal(size=(600, 20))
    y = (np.sin(X[:, 0]) + X[:, 1] * X[:, 2] > 0.0).astype(int)
    limits = np.full(600, 1.0 if isinstance(kernel, krein.Polynomial) else 1e10)
    named = {"kernel": "rbf", "gamma": 1.0} if isinstance(kernel, krein.RBF) else {"kernel": "poly", "gamma": 1.0}
    machine = svm.SVC(C=float(limits[0]), **named).fit(X, y)
    found = solve_classes(kernel, X, y, limits, 2)
    (single,) = solve_exactly(kernel, X, [task("margin", X, y, float(limits[0]))])
    assert found is not None
    np.testing.assert_array_equal(found.support, machine.support_)
    np.testing.assert_array_equal(np.sort(found.support), np.flatnonzero(single.coefficients))


def test_nothing_is_said_where_all_is_well() -> None:
    X, y = data(600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve_exactly(krein.RBF(gamma=0.3), X, [task(kind, X, y) for kind in KINDS])
        solve_classes(krein.RBF(gamma=0.3), X, y, np.ones(600), 2)
