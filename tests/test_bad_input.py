"""Whatever is wrong is refused with what was needed, what was seen and what to do; and nothing is half-done."""

# ruff: noqa: E501 - a case per line reads as a table

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import krein
from krein import InputError, KernelError

X = np.random.default_rng(0).standard_normal((30, 3))
RBF = krein.RBF(gamma=1.0)


def with_value(value):
    bad = X.copy()
    bad[7, 1] = value
    return bad


DATA = {
    "nan": (with_value(np.nan), RBF, r"NaN or infinity: 1 of .*\(7, 1\). Impute"),
    "inf": (with_value(-np.inf), RBF, r"NaN or infinity: 1 of .*-inf"),
    "nan float32": (with_value(np.nan).astype(np.float32), RBF, "NaN or infinity"),
    "sparse nan": (sp.csr_matrix(with_value(np.nan)), RBF, "NaN or infinity"),
    "empty": (np.empty((0, 3)), RBF, r"shape \(0, 3\)"),
    "no columns": (np.empty((5, 0)), RBF, r"shape \(5, 0\)"),
    "sparse empty": (sp.csr_matrix((0, 3)), RBF, r"shape \(0, 3\)"),
    "empty list": ([], RBF, r"2-D"),
    "1-D": (X[:, 0], RBF, r"2-D .* got shape \(30,\).*Reshape"),
    "3-D": (X[:, :, None], RBF, r"2-D .* got shape \(30, 3, 1\)"),
    "0-D": (np.array(3.0), RBF, "2-D array or a sequence"),
    "one row": (X[:1], RBF, "at least 2 objects .* n_samples = 1"),
    "one string": (["a"], lambda A, B: np.ones((len(A), len(B))), "at least 2 objects"),
    "strings": (np.array([["a", "b"], ["c", "d"]]), RBF, "real numbers; got dtype <U1"),
    "numbers as text": (np.array([["1", "2"], ["3", "4"]]), RBF, "real numbers; got dtype <U1"),
    "objects": (np.array([["a", 1], [2, 3]], dtype=object), RBF, "real numbers; got dtype object"),
    "dates": (np.array([["2020-01-01"], ["2021-01-01"]], dtype="datetime64[D]"), RBF, "real numbers; got dtype datetime"),
    "complex": (X + 1j, RBF, "real numbers; got dtype complex128"),
    "sparse complex": (sp.csr_matrix(X + 1j), RBF, "real numbers; got a sparse matrix of complex128"),
    "ragged": ([[1.0, 2.0], [3.0]], RBF, "cannot be read as a 2-D array"),
    "a word": ("hello", RBF, "2-D array or a sequence of objects; got str"),
    "a number": (3, RBF, "got int"),
    "None": (None, RBF, "got NoneType"),
    "a dict": ({"a": 1}, RBF, "got dict"),
    "a set": ({1, 2}, RBF, "got set"),
    "masked": (np.ma.masked_array(X, mask=X > 2.0), RBF, "masks"),
    "sparse for a kernel that takes none": (sp.csr_matrix(X), lambda A, B: A @ B.T, r"sparse matrices; pass X.toarray\(\)"),
    "index out of range": (np.arange(9), krein.Precomputed(np.eye(5)), "indices 0 to 4; got values from 0 to 8"),
    "indices that are none": (np.array([0.5, 1.0]), krein.Precomputed(np.eye(5)), "whole numbers"),
    "vectors for a matrix": (X, krein.Precomputed(np.eye(30)), "indices into it"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(DATA))
def test_bad_data(name):
    data, kernel, message = DATA[name]
    with pytest.raises(InputError, match=message):
        krein.approximate(data, kernel, n_blocks=1, rank=2, random_state=0)


PARAMETERS = [
    *[({"rank": value}, r"rank must be an integer of at least 1 or \"auto\"; got") for value in (0, -1, 1.5, True, "x")],
    *[({"n_blocks": value}, "n_blocks must be an integer of at least 1") for value in (0, -2, 2.0, False, "many", None)],
    ({"n_blocks": 31}, "at most the number of objects, 30; got 31"),
    ({"total_rank": 3, "n_blocks": 4}, r"total_rank must be an integer of at least 4 \(one per block"),
    ({"total_rank": 2.5}, "total_rank must be an integer"),
    ({"guarded": False}, 'guarded=False is .* as published, which needs coupling="pairwise"; got coupling=.shared.'),
    ({"guarded": "no"}, "guarded must be True or False; got 'no'"),
    ({"coupling": "all"}, "coupling must be one of 'shared', 'pairwise', 'landmark'; got 'all'"),
    ({"landmarks": "best"}, "landmarks must be one of 'auto', 'uniform', .*; got 'best'"),
    ({"landmarks": None}, "landmarks must be one of"),
    ({"allocation": "fair"}, "allocation must be one of 'equal', 'spectral', 'size'; got 'fair'"),
    *[({"dtype": value}, "dtype must be one of 'auto', 'float64'") for value in ("float8", int, object(), 3, np.int64)],
    *[({"drop": value}, "drop is a share of cluster pairs, from 0 to 1") for value in (-0.1, 1.1, np.nan, "x", True, None)],
    *[({"max_error": value}, "max_error must be a relative error above 0, or None") for value in (0, -0.1, np.nan, "x", True)],
    *[({"max_memory": value}, "max_memory must be a number of bytes above 0") for value in (0, -1, np.inf, "1 GB", False)],
    *[({"n_jobs": value}, "n_jobs must be a non-zero integer") for value in (0, 1.5, "all")],
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), PARAMETERS, ids=[str(p[0]).split(" at 0x")[0] for p in PARAMETERS])
def test_bad_parameters(given, message):
    with pytest.raises(InputError, match=message) as seen:
        krein.approximate(X, RBF, **{"n_blocks": 2, "rank": 3, **given})
    shown = repr(next(iter(given.values())))
    assert shown in str(seen.value) or "dtype" in given


def broken(A, B):
    raise ZeroDivisionError("my own bug")


KERNELS = [
    (lambda A, B: A @ B.T + np.arange(len(A))[:, None], "must be symmetric.*Average it"),
    (lambda A, B: np.full((len(A), len(B)), np.nan), "must return finite numbers"),
    (lambda A, B: np.full((len(A), len(B)), np.inf), "must return finite numbers"),
    (lambda A, B: np.ones(len(A)), r"must return an array of shape \("),
    (lambda A, B: np.ones((len(A), len(B) + 1)), r"must return an array of shape \("),
    (lambda A, B: np.ones((len(A), len(B)), dtype=complex), "must return real numbers"),
    (lambda A, B: [["a"] * len(B)] * len(A), "must return real numbers"),
]


@pytest.mark.parametrize(
    ("kernel", "message"), KERNELS, ids=["asymmetric", "nan", "inf", "1-D", "shape", "complex", "text"]
)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_kernels_that_break_their_promise(kernel, message, n_jobs):
    with pytest.raises(KernelError, match=message):
        krein.approximate(X, kernel, n_blocks=3, rank=3, n_jobs=n_jobs, random_state=0)


def test_an_error_inside_the_kernel_passes_untouched():
    for n_jobs in (1, 2):
        with pytest.raises(ZeroDivisionError, match="my own bug"):
            krein.approximate(X, broken, n_blocks=2, rank=3, n_jobs=n_jobs)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (krein.RBF, r"got the class RBF. Write RBF\(\) instead"),
        ("rbf", r"such as RBF\(\)"),
        (None, "kernel must be a Kernel"),
        (np.eye(30), "Precomputed"),
    ],
)
def test_what_is_no_kernel(kernel, message):
    with pytest.raises(InputError, match=message):
        krein.approximate(X, kernel)


def test_an_unbound_kernel_says_so_when_called():
    with pytest.raises(InputError, match="gamma, which is still None"):
        krein.RBF()(X)


def test_an_asymmetric_matrix_is_refused():
    S = np.eye(4)
    S[0, 3] = 1.0
    with pytest.raises(InputError, match="symmetric"):
        krein.Precomputed(S)


@pytest.fixture(scope="module")
def fitted():
    return krein.approximate(X, RBF, n_blocks=2, rank=4, random_state=0)


@pytest.mark.parametrize("method", ["extend", "kernel_rows", "self_similarities"])
@pytest.mark.parametrize(
    ("new", "message"),
    [
        (X[:, :2], r"the 3 features of the fit; got shape \(30, 2\)"),
        (sp.csr_matrix(X[:, :2]), "the 3 features of the fit"),
        (X[0], "2-D"),
        (X[:0], r"not be empty; got shape \(0, 3\)"),
        (with_value(np.nan), "NaN"),
        ([["a", "b", "c"]], "real numbers"),
        (None, "NoneType"),
    ],
    ids=["features", "sparse features", "1-D", "empty", "nan", "strings", "None"],
)
def test_bad_new_objects(fitted, method, new, message):
    with pytest.raises(InputError, match=message):
        getattr(fitted, method)(new)
    if method != "extend":
        with pytest.raises(InputError, match=message):
            getattr(fitted, method)(new, exact=True)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("indices", [[30], [-31], [0.5], ["a"], np.ones(30, dtype=bool), [[0, 1]]])
def test_rows_out_of_range(fitted, indices, exact):
    with pytest.raises(InputError, match="indices must"):
        fitted.kernel_rows(X[:2], indices=indices, exact=exact)
    with pytest.raises(InputError, match="indices must"):
        fitted.factorization.rows(indices)


@pytest.mark.parametrize("n_samples", [0, -5, 1.5, True, "many"])
def test_errors_need_samples(fitted, n_samples):
    with pytest.raises(InputError, match=re.escape(f"n_samples must be a positive integer; got {n_samples!r}")):
        fitted.error(n_samples=n_samples)


def test_an_unknown_correction(fitted):
    with pytest.raises(
        InputError, match=r"how must be one of 'none', 'shift', 'clip', 'flip', 'square', .*; got 'fix'"
    ):
        fitted.corrected("fix")


def test_every_refusal_is_a_value_error_and_leaves_the_input_alone():
    data = X.copy()
    for given in ({"rank": 0}, {"drop": 2.0}, {"n_blocks": 99}):
        with pytest.raises(ValueError, match=r"must|share"):
            krein.approximate(data, RBF, **given)
    assert np.array_equal(data, X)
    data.flags.writeable = False
    krein.approximate(data, RBF, n_blocks=3, rank=3, drop=1.0, random_state=0)


# -- numbers that a machine cannot hold --------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [krein.GaussianProcessRegressor, krein.SVR, krein.KernelRidge])
def test_a_missing_target_is_refused(machine):
    rows = np.random.default_rng(0).standard_normal((20, 2))
    target = rows[:, 0].astype(object)
    target[3] = None
    with pytest.raises(ValueError, match="y contains NaN"):
        machine().fit(rows, target)


@pytest.mark.parametrize("machine", [krein.GaussianProcessRegressor, krein.SVR, krein.KernelRidge, krein.SVC])
def test_integers_beyond_float64_are_named(machine):
    rows = [[10**400, 1], [2, 3], [4, 5], [6, 7]]
    for X in (rows, np.array(rows, dtype=object)):
        with pytest.raises(krein.InputError, match="float64 cannot hold"):
            machine().fit(X, [0, 1, 0, 1])
        with pytest.raises(krein.InputError, match="float64 cannot hold"):
            krein.approximate(X, krein.RBF())


HUGE = 10**400


@pytest.mark.parametrize(
    ("machine", "sample_weight", "said"),
    [
        (krein.SVC(), [HUGE, *[1] * 39], "sample_weight holds an integer that float64 cannot hold"),
        (krein.SVC(class_weight={0: HUGE}), None, "class_weight must give a number"),
        (krein.SVC(n_blocks=HUGE), None, "n_blocks must be an integer"),
        (krein.SVC(max_memory=HUGE), None, "max_memory must be a number of bytes"),
        (krein.KernelRidge(alpha=HUGE), None, "alpha must be a number"),
        (krein.GaussianProcessRegressor(alpha=HUGE), None, "alpha must be a number"),
        (krein.KernelPCA(n_components=HUGE), None, "n_components must be an integer"),
        (krein.KernelKMeans(n_clusters=HUGE), None, "n_clusters must be an integer"),
    ],
)
def test_integers_beyond_float64_are_no_parameters_and_no_weights(machine, sample_weight, said):
    rows = np.random.default_rng(0).standard_normal((40, 2))
    given = {} if sample_weight is None else {"sample_weight": sample_weight}
    with pytest.raises(krein.InputError, match=said):
        machine.fit(rows, (rows[:, 0] > 0).astype(int), **given)


@pytest.mark.filterwarnings("ignore:The exact dual ended with")
def test_a_C_beyond_float64_is_infinite():
    rows = np.random.default_rng(0).standard_normal((40, 2))
    labels = (rows[:, 0] > 0).astype(int)
    found, wanted = (krein.SVC(C=C).fit(rows, labels).decision_function(rows) for C in (HUGE, np.inf))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kernel", [krein.TL1(), "tl1", "laplacian"])
def test_a_process_and_a_look_before_learning_say_that_a_kernel_sees_no_neighbours(kernel):
    rows = np.random.default_rng(0).standard_normal((60, 2))
    far, labels = 1e150 * rows, (rows[:, 0] > 0).astype(int)
    ways = (
        krein.GaussianProcessRegressor(kernel, alpha=1e-2).fit,
        krein.GaussianProcessClassifier(kernel).fit,
        lambda X, y: krein.inspect(X, kernel, y, random_state=0),
    )
    for way in ways:
        with pytest.warns(krein.KreinWarning, match="tells nothing about them"):
            way(far, labels)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            way(rows, labels)
        assert not any("tells nothing about them" in str(each.message) for each in said)


@pytest.mark.parametrize("given", ["foo", 3, object()])
def test_a_process_refuses_what_is_no_approximation(given):
    rows = np.random.default_rng(0).standard_normal((20, 2))
    with pytest.raises(krein.InputError, match=r"must be what krein\.approximate returns"):
        krein.GaussianProcessRegressor(approximation=given).fit(rows, rows[:, 0])


@pytest.mark.parametrize("kernel", ["rbf", "sigmoid", "poly", "laplacian"])
@pytest.mark.parametrize("scale", [1e154, 1e157, 1e160])
def test_a_gamma_of_few_digits_is_refused(scale, kernel):
    rows = scale * np.random.default_rng(0).standard_normal((40, 2))
    with pytest.raises(krein.InputError, match="Rescale the data"):
        krein.SVC(kernel=kernel).fit(rows, (rows[:, 0] > 0.0).astype(int))
    with pytest.raises(krein.InputError, match="gamma to be a positive finite number"):
        krein.SVC(kernel=kernel, gamma=1e-310).fit(rows, (rows[:, 0] > 0.0).astype(int))


def test_a_sigmoid_of_products_that_overflow_is_refused():
    rows = 1e160 * np.random.default_rng(0).standard_normal((40, 2))
    with pytest.raises(krein.KernelError, match="needs inner products that float64 can hold"):
        krein.SVC(kernel="sigmoid", gamma=1e-300).fit(rows, (rows[:, 0] > 0.0).astype(int))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scale", [1e-25, 1e20])
def test_single_precision_of_extreme_scale_is_that_of_double_precision(scale):
    rng = np.random.default_rng(0)
    rows = (scale * rng.standard_normal((200, 2))).astype(np.float32)
    y = np.sin(rows[:, 0].astype(float) / scale)
    machines = (
        krein.GaussianProcessRegressor(n_blocks=3, rank=30, random_state=0),
        krein.KernelRidge(1e-3, kernel="rbf", gamma="scale"),
        krein.SVR(n_blocks=3, rank=30, random_state=0),
    )
    for machine in machines:
        expected = machine.fit(rows.astype(float), y).predict(rows.astype(float))
        np.testing.assert_allclose(machine.fit(rows, y).predict(rows), expected, rtol=1e-6, atol=1e-8)


def test_a_rank_beside_a_total_rank_is_said_to_be_unused() -> None:
    X = np.random.default_rng(0).standard_normal((90, 3))
    with pytest.warns(krein.KreinWarning, match="total_rank=12 .* rank=9 is not used"):
        a = krein.approximate(X, krein.RBF(gamma=0.3), n_blocks=3, rank=9, total_rank=12, random_state=0)
    assert a.factorization.rank == 12
