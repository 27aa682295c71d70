"""The one value against its dense twin: every verb, every form of core, every storage, the caller's row order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from krein import Factorization
from krein.errors import IndefiniteError, InputError
from krein.factorization.core import BlockSparse
from strategies import (
    EPS,
    HARD_FACTORIZATIONS,
    assert_close,
    dense_basis,
    dense_core,
    dense_twin,
    factorizations,
    make,
    norm_of,
    random_core,
    sparse_core,
)

hard = pytest.mark.parametrize("name", HARD_FACTORIZATIONS)


def check_everything(f: Factorization, rng: np.random.Generator) -> None:
    U, K = dense_basis(f), dense_twin(f)
    n, r = U.shape
    size = norm_of(K) + norm_of(dense_core(f.core)) + abs(f.shift)
    assert f.shape == (n, n)
    assert f.rank == r == sum(f.ranks)
    assert len(f.bases) == f.n_blocks
    v, W = rng.standard_normal(n), rng.standard_normal((n, 3))
    assert_close(f @ v, K @ v, size * np.linalg.norm(v))
    assert_close(f @ W, K @ W, size * np.linalg.norm(W))
    assert_close(f.to_dense(), K, size)
    some = rng.integers(0, n, 4)
    assert_close(f.rows(some), K[some], size)
    assert_close(f.rows(some[:0]), K[:0], size)
    assert_close(f.rows(-1), K[-1:], size)
    others = rng.integers(0, n, 3)
    assert_close(f.entries(some, others), K[np.ix_(some, others)], size)
    assert_close(f.diagonal(), np.diag(K), size)
    S = random_core(rng, r)
    assert_close(f.diagonal(S), np.diag(U @ S @ U.T), np.sqrt(n))
    if r:
        T = sparse_core(rng, f.ranks, 0.7)
        assert_close(f.diagonal(T), np.diag(U @ dense_core(T) @ U.T), np.sqrt(n))
    assert_close(f.project(v), U.T @ v, np.linalg.norm(v))
    assert_close(f.project(W), U.T @ W, np.linalg.norm(W))
    w, Z = rng.standard_normal(r), rng.standard_normal((r, 2))
    assert_close(f.lift(w), U @ w, np.linalg.norm(w) + 1)
    assert_close(f.lift(Z), U @ Z, np.linalg.norm(Z) + 1)
    assert_close(f.basis_rows(some).toarray(), U[some], np.sqrt(n))
    weights = rng.standard_normal(n)
    whole = U.T @ (weights[:, None] * U)
    start = 0
    for k, G in zip(f.ranks, f.gram(weights), strict=True):
        assert_close(G, whole[start : start + k, start : start + k], np.linalg.norm(weights) * n)
        start += k
    tiles = [part for i in range(f.n_blocks) for _, part in f.bases.tiles(i)]
    assert sum(len(part) for part in tiles) == n
    assert abs(f.frobenius() - norm_of(K)) <= 1e3 * EPS * size
    operator = f.as_linear_operator()
    assert operator.shape == (n, n)
    assert_close(operator @ v, K @ v, size * np.linalg.norm(v))
    assert_close(operator @ W, K @ W, size * np.linalg.norm(W))
    assert_close(operator.T @ v, K @ v, size * np.linalg.norm(v))
    maps = sum(A.nbytes for A in f.maps or ())
    assert f.nbytes == sum(b.nbytes for b in f.bases) + maps + f.core.nbytes + f.order.nbytes
    assert f"{n} x {n}" in repr(f)


def check_spectrum(f: Factorization) -> None:
    K = dense_twin(f)
    n, size = len(K), norm_of(K)
    values = np.linalg.eigvalsh(K)
    mine = np.sort(np.concatenate([f.eigenvalues(), np.full(n - f.rank, f.shift)]))
    assert len(f.eigenvalues()) == f.rank
    assert (np.diff(f.eigenvalues()) >= 0).all()
    assert np.abs(mine - values).max() <= 1e-10 * size
    assert abs(f.smallest_eigenvalue() - values[0]) <= 1e-10 * size
    ends = f.ends()
    assert abs(ends.largest - values[-1]) <= 1e-10 * size
    assert ends.lower_bound <= values[0] + 1e-10 * size
    assert ends.upper_bound >= values[-1] - 1e-10 * size
    tol = 1e-9 * size
    if not (np.abs(values + tol) < 1e-10 * size).any():
        assert f.n_negative(tol) == (values < -tol).sum()
    if (np.abs(values) > 1e-9 * size).all():
        assert f.n_negative() == (values < 0).sum()


@given(factorizations(), st.integers(0, 2**32 - 1))
def test_every_verb_equals_the_dense_twin(f, seed):
    check_everything(f, np.random.default_rng(seed))


@hard
def test_every_verb_equals_the_dense_twin_in_hard_cases(name):
    check_everything(HARD_FACTORIZATIONS[name](), np.random.default_rng(1))


@given(factorizations())
def test_the_spectrum_is_the_dense_one(f):
    check_spectrum(f)


@hard
def test_the_spectrum_is_the_dense_one_in_hard_cases(name):
    check_spectrum(HARD_FACTORIZATIONS[name]())


def test_a_negative_shift_is_a_negative_eigenvalue_for_each_row_outside_the_basis():
    f = make(np.random.default_rng(0), [10, 20], [2, 3], "psd", shift=-0.05)
    assert f.n_negative() == 25
    assert f.smallest_eigenvalue() == -0.05
    assert len(f.eigenvalues()) == 5
    full = make(np.random.default_rng(0), [3, 4], [3, 4], "psd", shift=-0.05)
    assert full.n_negative() == 0


# -- from the paper's Q and L ------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=4),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 2.0, -1.5]),
    st.booleans(),
    st.booleans(),
)
def test_from_links_is_the_same_matrix(blocks, seed, shift, permuted, sparse):
    """n_i < k_i, rank deficient Q, any order."""
    rng = np.random.default_rng(seed)
    Q = [rng.standard_normal((n, q)) @ rng.standard_normal((q, k)) for n, k, q in blocks]
    columns = [k for _, k, _ in blocks]
    L = sparse_core(rng, columns, 0.7) if sparse else random_core(rng, sum(columns))
    n = sum(len(q) for q in Q)
    order = rng.permutation(n) if permuted else None
    f = Factorization.from_links(Q, L, order, shift)
    wide = np.zeros((n, sum(columns)))
    places, p, c = np.arange(n) if order is None else order, 0, 0
    for q in Q:
        wide[places[p : p + len(q)], c : c + q.shape[1]] = q
        p, c = p + len(q), c + q.shape[1]
    K = wide @ dense_core(L) @ wide.T + shift * np.eye(n)
    assert_close(f.to_dense(), K, np.linalg.norm(wide) ** 2 + abs(shift))
    U = dense_basis(f)
    assert_close(U.T @ U, np.eye(f.rank), 1.0)
    assert all(k <= len(b) for k, b in zip(f.ranks, f.bases, strict=True))


def test_from_links_leaves_the_callers_arrays_alone():
    rng = np.random.default_rng(0)
    Q = [np.asfortranarray(rng.standard_normal((6, 3))), rng.standard_normal((5, 2))]
    L = random_core(rng, 5)
    before = [q.copy() for q in Q], L.copy()
    Factorization.from_links(Q, L)
    assert all(np.array_equal(a, b) for a, b in zip(Q, before[0], strict=True))
    assert np.array_equal(L, before[1])


# -- solves ------------------------------------------------------------------------------------------------------------


@given(factorizations(cores=("indefinite", "psd", "low", "zero", "identity")), st.integers(0, 2**32 - 1))
def test_solve_and_logdet_equal_the_dense_ones(f, seed):
    rng = np.random.default_rng(seed)
    K = dense_twin(f)
    n, size = len(K), norm_of(K) + abs(f.shift) + 1e-8
    ridge = size * rng.uniform(0.01, 1.0) + max(0.0, -f.shift)
    B = rng.standard_normal((n, 3))
    A = K + ridge * np.eye(n)
    values = np.linalg.eigvalsh(A)
    if np.abs(values).min() > 1e-3 * size:
        wanted = np.linalg.solve(A, B)
        assert_close(f.solve(B, ridge), wanted, np.linalg.norm(wanted), 1e-9 / EPS)
        assert_close(f.solve(B[:, 0], ridge), wanted[:, 0], np.linalg.norm(wanted), 1e-9 / EPS)
        assert f.solve(B[:, :0], ridge).shape == (n, 0)
    above = max(0.0, -values[0]) + 0.01 * size
    sign, wanted_log = np.linalg.slogdet(A + above * np.eye(n))
    assert sign == 1
    found = f.logdet(ridge + above)
    assert abs(found - wanted_log) <= 1e-9 * (1 + abs(wanted_log))
    if values[0] < -1e-6 * size:
        with pytest.raises(IndefiniteError, match="positive definite"):
            f.logdet(ridge)


@pytest.mark.parametrize("shift", [0.0, -0.7, 0.3])
def test_a_full_rank_indefinite_matrix_is_solved_without_ridge(shift):
    rng = np.random.default_rng(3)
    f = make(
        rng, [8, 9], [8, 9], (lambda V: (V * np.linspace(-2, 2.1, 17)) @ V.T)(np.linalg.qr(rng.random((17, 17)))[0])
    )
    f = f.with_core((f.core + f.core.T) / 2, shift)
    b = rng.standard_normal((17, 2))
    wanted = np.linalg.solve(dense_twin(f), b)
    assert_close(f.solve(b), wanted, np.linalg.norm(wanted), 1e-9 / EPS)
    with pytest.raises(IndefiniteError, match="correct the factorization"):
        f.logdet()


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_solve_and_logdet_at_extreme_scales(scale):
    rng = np.random.default_rng(3)
    f = make(rng, [8, 9], [3, 4], "psd", scale=scale)
    b = rng.standard_normal(17)
    wanted = np.linalg.solve(dense_twin(f) / scale + np.eye(17), b) / scale
    assert_close(f.solve(b, scale), wanted, norm_of(wanted))
    wanted_log = np.linalg.slogdet(dense_twin(f) / scale + np.eye(17))[1] + 17 * np.log(scale)
    assert f.logdet(scale) == pytest.approx(wanted_log, rel=1e-12)


@pytest.mark.parametrize("form", ["dense", "sparse", "diagonal"])
@pytest.mark.parametrize("least", [0.0, 1e-18])  # Cholesky does not mind the second
def test_a_singular_matrix_is_refused_with_numbers(form, least):
    rng = np.random.default_rng(0)
    core = np.diag([1.0, least, 2.0, 3.0])
    if form != "dense":
        blocks = {(0, 0): core[:2, :2], (1, 1): core[2:, 2:]}
        core = BlockSparse.from_blocks([2, 2], blocks | ({(0, 1): np.zeros((2, 2))} if form == "sparse" else {}))
    f = make(rng, [2, 2], [2, 2], core)
    with pytest.raises(InputError, match=r"nonsingular.*smallest \|eigenvalue\|.*Raise the ridge"):
        f.solve(np.ones(4))
    if least == 0.0:
        with pytest.raises(IndefiniteError):
            f.logdet()
    assert np.isfinite(f.solve(np.ones(4), 0.1)).all()


@pytest.mark.parametrize("verb", ["solve", "logdet"])
@pytest.mark.parametrize(("shift", "ridge"), [(0.0, 0.0), (-1.0, 0.5), (-1.0, 1.0), (0.5, -0.5)])
def test_a_sum_of_shift_and_ridge_that_is_not_positive_is_refused(verb, shift, ridge):
    f = make(np.random.default_rng(0), [5, 5], [2, 2], "psd", shift)
    with pytest.raises(InputError, match=r"shift \+ ridge > 0.*6 of 10 eigenvalues.*Pass ridge >"):
        f.solve(np.ones(10), ridge) if verb == "solve" else f.logdet(ridge)


# -- storage -----------------------------------------------------------------------------------------------------------


@given(factorizations(dtypes=("float64",)), st.sampled_from(["float32", "float16", "int8"]))
def test_astype_round_trips(f, dtype):
    g = f.astype(dtype)
    assert g.dtype == dtype
    assert g.astype(dtype) is g
    back = g.astype("float64")
    assert back.dtype == "float64"
    assert back.maps is None
    assert back.astype(np.float64) is back
    size = norm_of(dense_core(f.core)) + abs(f.shift)
    assert_close(back.to_dense(), dense_twin(g), size)
    assert norm_of(dense_twin(g) - dense_twin(f)) <= {"float32": 1e-5, "float16": 2e-2, "int8": 1e-1}[dtype] * size


# -- at the door -------------------------------------------------------------------------------------------------------

B2 = (np.eye(3)[:, :1], np.eye(2)[:, :1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Factorization.from_blocks(B2, np.eye(2), np.arange(4)), "hold 5 rows, but order names 4"),
        (lambda: Factorization.from_blocks(B2, np.eye(3), np.arange(5)), r"must be 2 x 2.*got shape \(3, 3\)"),
        (lambda: Factorization.from_blocks(B2, np.eye(2), np.array([0, 1, 2, 3, 3])), "once"),
        (lambda: Factorization.from_blocks(B2, np.eye(2), np.array([0, 1, 2, 3, -1])), r"integers 0 \.\. 4"),
        (lambda: Factorization.from_blocks(B2, np.eye(2), np.array([0, 1, 2, 3, 5])), r"integers 0 \.\. 4"),
        (lambda: Factorization.from_blocks(B2, np.eye(2), np.arange(5.0)), "integers.*float64"),
        (lambda: Factorization.from_blocks(B2, np.eye(2), np.arange(5), np.nan), "finite number; got nan"),
        (lambda: Factorization.from_blocks((np.zeros((0, 0)),), np.zeros((0, 0)), np.arange(0)), "at least one row"),
        (lambda: Factorization.from_links([], np.eye(2)), "non-empty"),
        (lambda: Factorization.from_links([np.ones(3)], np.eye(1)), "2-D"),
        (lambda: Factorization.from_links([np.full((3, 1), np.nan)], np.eye(1)), "NaN"),
        (lambda: Factorization.from_links([np.ones((3, 1))], np.eye(2)), r"must be 1 x 1.*got shape \(2, 2\)"),
        (lambda: Factorization.from_links([np.ones((3, 1))], np.array([[np.inf]])), "NaN or infinite"),
        (lambda: Factorization.from_links([np.ones((3, 2))], np.array([[1.0, 2], [3, 4]])), r"symmetric.*is 1\..*Pass"),
    ],
)
def test_bad_parts_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f @ np.ones(4), r"5 rows.*got shape \(4,\)"),
        (lambda f: f @ np.ones((5, 1, 1)), "1-D or 2-D"),
        (lambda f: f.project(np.ones(6)), "project needs an array of 5 rows"),
        (lambda f: f.lift(np.ones(3)), r"lift needs 2 rows.*\(3,\)"),
        (lambda f: f.lift(1.0), "lift needs 2 rows"),
        (lambda f: f.gram(np.ones((5, 2))), "one weight per row"),
        (lambda f: f.diagonal(np.eye(3)), r"core of shape \(2, 2\)"),
        (lambda f: f.rows([5]), r"0 \.\. 4; got 5 \.\. 5"),
        (lambda f: f.rows([-6]), r"0 \.\. 4"),
        (lambda f: f.rows([0.5]), "integers; got float64"),
        (lambda f: f.rows([True] * 5), "integers; got bool"),
        (lambda f: f.rows([[0, 1]]), "1-D"),
        (lambda f: f.entries([0], [9]), r"0 \.\. 4"),
        (lambda f: f.solve(np.ones(4), 1.0), "solve needs an array of 5 rows"),
        (lambda f: f.solve(np.ones(5), np.nan), "finite number as ridge; got nan"),
        (lambda f: f.logdet(np.inf), "finite number as ridge; got inf"),
        (lambda f: f.astype("float128x"), "'float64', 'float32', 'float16', 'int8'; got 'float128x'"),
        (lambda f: f.astype(np.int32), "one of.*'int32'"),
    ],
)
def test_bad_questions_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(Factorization.from_blocks(B2, np.eye(2), np.arange(5)))
