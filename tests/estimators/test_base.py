"""What every kernel machine shares: kernels by name, precomputed matrices, remembered and handed approximations."""

from __future__ import annotations

import gc
import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import krein
from krein.errors import InputError, KreinWarning
from krein.estimators import base as machine_room
from krein.estimators import cache
from krein.estimators.ridge import KernelRidge
from krein.estimators.route import Exact
from krein.estimators.weights import check_weights
from krein.kernels.names import kernel_for, resolved_gamma

SHAPE = {"n_blocks": 2, "rank": 8}  # what is built is remembered; an exact fit builds nothing


def rows(n=80, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def bent(X):
    return np.sin(2 * X[:, 0]) + X[:, 1] ** 2


@pytest.fixture(autouse=True)
def _forget():
    cache.clear_cache()
    yield
    cache.clear_cache()


# -- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rbf", "poly", "polynomial", "sigmoid", "laplacian", "linear", "cosine"])
def test_a_name_is_scikit_learns_kernel(name):
    X, Y = rows(), rows(7, seed=1)
    takes = {
        "rbf": {"gamma": 0.3},
        "laplacian": {"gamma": 0.3},
        "sigmoid": {"gamma": 0.3, "coef0": 0.7},
        "linear": {},
        "cosine": {},
    }.get(name, {"gamma": 0.3, "coef0": 0.7, "degree": 2})
    ours = kernel_for(name, X, gamma=0.3, degree=2, coef0=0.7)
    np.testing.assert_allclose(ours(X, Y), pairwise_kernels(X, Y, metric=name, **takes), atol=1e-12)


def test_gamma_means_what_it_means_in_scikit_learn():
    X = rows()
    assert resolved_gamma("scale", X) == pytest.approx(1 / (3 * X.var()))
    assert resolved_gamma("scale", sp.csr_matrix(X)) == pytest.approx(1 / (3 * X.var()))
    assert resolved_gamma("auto", X) == resolved_gamma(None, X) == pytest.approx(1 / 3)
    assert resolved_gamma(2, X) == 2.0


@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_matrix])
def test_a_weight_of_two_is_a_row_twice(wrap):
    X = rows(10)
    weights = np.array([1, 2, 3, 1, 0, 1, 1, 2, 1, 1], dtype=float)
    repeated = np.repeat(X, weights.astype(int), axis=0)
    assert resolved_gamma("scale", wrap(X), weights) == pytest.approx(1 / (3 * repeated.var()))


def test_a_krein_kernel_takes_gamma_in_one_place():
    X = rows()
    assert kernel_for(krein.RBF(), X, gamma=0.4) == krein.RBF(gamma=0.4)
    assert kernel_for(krein.RBF(), X, gamma="scale").gamma == pytest.approx(1 / (3 * X.var()))
    assert kernel_for(krein.TL1(rho=1.0), X, gamma="scale") == krein.TL1(rho=1.0)
    with pytest.raises(InputError, match="one place"):
        kernel_for(krein.RBF(gamma=1.0), X, gamma=0.4)


@pytest.mark.parametrize("bad", ["rfb", None, 3, krein.RBF])
def test_what_is_no_kernel_is_said(bad):
    with pytest.raises(InputError, match="kernel"):
        kernel_for(bad, rows())


@pytest.mark.parametrize("bad", ["skale", 0.0, -1.0, float("nan"), [1]])
def test_what_is_no_gamma_is_said(bad):
    with pytest.raises(InputError, match="gamma must be"):
        resolved_gamma(bad, rows())


def test_a_function_of_two_rows_is_recognised_and_one_of_two_matrices_too():
    X = rows(20)
    of_rows = kernel_for(lambda x, y: float(np.minimum(x, y).sum()), X)
    of_matrices = kernel_for(lambda A, B: np.minimum(A[:, None], B[None]).sum(2), X)
    np.testing.assert_allclose(of_rows(X, X[:4]), of_matrices(X, X[:4]))


# -- precomputed ---------------------------------------------------------------------------------------------------


def test_a_precomputed_matrix_is_fitted_and_predicted_as_in_scikit_learn():
    X, new = rows(), rows(9, seed=1)
    K, R = (pairwise_kernels(A, X, metric="rbf", gamma=0.5) for A in (X, new))
    given = KernelRidge(alpha=0.1, kernel="precomputed").fit(K, bent(X))
    named = KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5).fit(X, bent(X))
    np.testing.assert_allclose(given.predict(R), named.predict(new), atol=1e-9)
    with pytest.raises(InputError, match="square matrix"):
        KernelRidge(kernel="precomputed").fit(R, bent(new))
    with pytest.raises(ValueError, match="80 features"):
        given.predict(R[:, :-1])


def test_a_large_precomputed_matrix_goes_through_landmarks():
    X = rows(400)
    K = pairwise_kernels(X, X, metric="rbf", gamma=0.2)
    model = KernelRidge(alpha=0.1, kernel="precomputed", n_blocks=2, rank=60, random_state=0).fit(K, bent(X))
    exact = np.linalg.solve(K + 0.1 * np.eye(400), bent(X))
    R = pairwise_kernels(rows(50, seed=3), X, metric="rbf", gamma=0.2)
    assert np.linalg.norm(model.predict(R) - R @ exact) < 0.02 * np.linalg.norm(R @ exact)


# -- one approximation for many fits ---------------------------------------------------------------------------------


@pytest.fixture
def builds(monkeypatch):
    """Counts the approximations that are built."""
    made = []

    def counted(*args, **kwargs):
        made.append(krein.approximate(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(machine_room, "approximate", counted)
    return made


def test_a_grid_over_alpha_builds_once_per_fold(builds):
    X = rows(90)
    grid = GridSearchCV(KernelRidge(kernel="rbf", **SHAPE), {"alpha": [0.01, 0.1, 1.0, 10.0]}, cv=3)
    grid.fit(X, bent(X))
    assert len(builds) == 4  # three folds, and the whole
    piped = make_pipeline(StandardScaler(), KernelRidge(kernel="rbf", **SHAPE))
    GridSearchCV(piped, {"kernelridge__alpha": [0.1, 1.0]}, cv=3, refit=False).fit(X, bent(X))
    assert len(builds) == 7


def test_what_changes_the_matrix_is_built_anew(builds):
    X, y = rows(60), bent(rows(60))
    for options in (
        {},
        {},
        {"gamma": 0.2},
        {"n_blocks": 1, "rank": 9},
        {"random_state": 1},
        {"kernel": "laplacian"},
        {},
    ):
        KernelRidge(**{"kernel": "rbf"} | SHAPE | options).fit(X, y)
    assert len(builds) == 5
    X[0, 0] += 1e-9
    KernelRidge(kernel="rbf", **SHAPE).fit(X, y)
    assert len(builds) == 6


def test_deleted_models_give_their_memory_back():
    """What is left is no more than the cache may hold, and nothing after it is cleared."""

    def fit(seed, n, rank):
        X = np.random.default_rng(seed).standard_normal((n, 3))
        return KernelRidge(kernel="rbf", n_blocks=1, rank=rank, drop=0.0, random_state=0).fit(X, X[:, 0])

    fit(0, 60, 8)  # what is imported when it is first needed stays
    cache.clear_cache()
    tracemalloc.start()
    try:
        held = 0
        for seed in range(6):
            model = fit(seed, 6000, 450)
            held += model.approximation_.nbytes + model.approximation_.factorization.nbytes
            del model
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
        assert kept <= 1.05 * cache.CACHE_BYTES < 2**28
        assert held > cache.CACHE_BYTES
        cache.clear_cache()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] <= 2**22
    finally:
        tracemalloc.stop()


def test_the_oldest_are_forgotten_beyond_the_limit(builds, monkeypatch):
    X, y = rows(60), bent(rows(60))
    KernelRidge(kernel="rbf", **SHAPE).fit(X, y)
    one = sum(map(cache._nbytes, cache._kept.values()))
    monkeypatch.setattr(cache, "CACHE_BYTES", int(2.5 * one))
    for gamma in (0.1, 0.2, 0.3):
        KernelRidge(kernel="rbf", gamma=gamma, **SHAPE).fit(X, y)
    assert len(cache._kept) == 2
    KernelRidge(kernel="rbf", gamma=0.3, **SHAPE).fit(X, y)
    assert len(builds) == 4


def test_data_changed_in_place_spoil_no_exact_prediction():
    X = rows(60)
    y, before = bent(X), X.copy()
    model = KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5).fit(X, y)
    expected = KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5).fit(before, y).predict(before)
    X += 3.0
    np.testing.assert_array_equal(model.predict(before), expected)
    np.testing.assert_array_equal(model.X_fit_, before)


def test_data_changed_in_place_spoil_no_later_fit(builds):
    X = rows(60)
    y, before = bent(X), X.copy()
    first = KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5, **SHAPE).fit(X, y)
    predicted = first.predict(before)
    X += 3.0
    np.testing.assert_array_equal(first.predict(before), predicted)
    again = KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5, **SHAPE).fit(before, y)
    assert len(builds) == 1
    np.testing.assert_array_equal(again.approximation_.objects, before)
    np.testing.assert_array_equal(again.X_fit_, before)
    np.testing.assert_array_equal(
        again.approximation_.kernel_rows(before[:5]), first.approximation_.kernel_rows(before[:5])
    )


def test_a_function_that_changed_its_mind_is_asked_again(builds):
    X, width = rows(60), [1.0]

    def bell(A, B):
        return np.exp(-width[0] * ((A[:, None] - B[None]) ** 2).sum(2))

    KernelRidge(kernel=bell, **SHAPE).fit(X, bent(X))
    KernelRidge(kernel=bell, alpha=2.0, **SHAPE).fit(X, bent(X))
    assert len(builds) == 1
    width[0] = 5.0
    KernelRidge(kernel=bell, **SHAPE).fit(X, bent(X))
    assert len(builds) == 2


def test_an_approximation_of_other_data_or_another_kernel_is_refused():
    X, y = rows(60), bent(rows(60))
    K = pairwise_kernels(X, metric="rbf")
    a = krein.approximate(None, krein.Precomputed(K))
    with pytest.raises(InputError, match="60 other objects"):
        KernelRidge(kernel="precomputed", approximation=a).fit(2.0 * K, y)
    a = krein.approximate(sp.csr_matrix(X), krein.RBF(gamma=0.2))
    with pytest.raises(InputError, match="60 other objects"):
        KernelRidge(approximation=a).fit(sp.csr_matrix(2.0 * X), y)
    for asked in ({"kernel": "rbf", "gamma": 10.0}, {"kernel": krein.TL1(rho=1.0)}):
        with pytest.raises(InputError, match="was asked for"):
            KernelRidge(approximation=a, **asked).fit(sp.csr_matrix(X), y)


def test_an_approximation_can_be_handed_in(builds):
    X, y = rows(60), bent(rows(60))
    a = krein.approximate(X, krein.RBF(gamma=0.5))
    model = KernelRidge(alpha=0.1, approximation=a)
    assert clone(model).fit(X, y).approximation_ is not None
    np.testing.assert_allclose(
        model.fit(X, y).predict(X), KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5).fit(X, y).predict(X), atol=1e-10
    )
    with pytest.raises(InputError, match="59 to fit"):
        model.fit(X[1:], y[1:])
    with pytest.raises(InputError, match="60 other objects"):
        model.fit(X[::-1].copy(), y)


# -- what happened is said ---------------------------------------------------------------------------------------------


def test_an_indefinite_kernel_is_named_once_corrected():
    X = rows(80)
    with pytest.warns(KreinWarning, match=r"indefinite matrix: \d+ of \d+ eigenvalues .* uses correction="):
        model = KernelRidge(kernel=krein.TL1(rho=1.5), alpha=0.1).fit(X, bent(X))
    K = krein.TL1(rho=1.5)(X)
    assert model.n_negative_ == (np.linalg.eigvalsh(K) < -1e-10).sum() > 0
    assert model.correction_ in ("clip", "flip", "square")
    with pytest.warns(KreinWarning, match="built now"):
        assert np.linalg.eigvalsh(model.approximation_.factorization.to_dense())[0] > -1e-10


def test_a_psd_kernel_passes_quietly():
    X = rows(80)
    model = KernelRidge(kernel="rbf").fit(X, bent(X))
    assert (model.correction_, model.n_negative_) == ("none", 0)
    assert model.relative_error_ < 1e-12


def test_the_error_of_a_low_rank_is_told():
    X = rows(80)
    model = KernelRidge(kernel="rbf", gamma=1.0, rank=5, n_blocks=1).fit(X, bent(X))
    K = pairwise_kernels(X, metric="rbf", gamma=1.0)
    wrong = np.linalg.norm(model.approximation_.factorization.to_dense() - K) / np.linalg.norm(K)
    assert model.relative_error_ == pytest.approx(wrong)


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        (np.ones(4), "shape"),
        (np.zeros(5), "zero everywhere"),
        (-np.ones(5), "at least 0"),
        ([1, 2, np.nan, 1, 1], "NaN"),
    ],
)
def test_weights_are_checked(weights, why):
    with pytest.raises(InputError, match=why):
        check_weights(weights, 5)


def test_strings_can_be_learnt_from():
    words = [a + b for a in ("ab", "ba", "aab", "bbb", "abab") for b in ("a", "b", "bb", "ab")]

    def shared_letters(A, B):
        return np.array(
            [[float(min(a.count("a"), b.count("a")) + min(a.count("b"), b.count("b"))) for b in B] for a in A]
        )

    lengths = np.array([len(w) for w in words], dtype=float)
    model = KernelRidge(kernel=shared_letters, alpha=1e-6).fit(words, lengths)
    np.testing.assert_allclose(model.predict(words), lengths, atol=1e-2)


# -- what happened -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "SVC", "SVR", "OneClassSVM", "KernelRidge", "KernelRidgeClassifier", "GaussianProcessRegressor", "KernelPCA",
        "SpectralClustering", "MEKA", "NuSVC", "NuSVR", "SpectralEmbedding", "KernelKMeans", "KernelLogisticRegression",
        "GaussianProcessClassifier",
    ],
)  # fmt: skip
def test_every_machine_says_what_happened(name):
    X = rows(60)
    y = bent(X) > 1.0 if name.endswith(("SVC", "Classifier", "LogisticRegression")) else bent(X)
    machine = getattr(krein, name)()
    said = ("route_", "correction_", "n_negative_", "relative_error_", "n_iter_", "converged_")
    assert not any(a in vars(machine) for a in said)
    machine.fit(X, y)
    assert machine.correction_ == "none"
    assert machine.n_negative_ == 0
    assert machine.relative_error_ <= 1e-10
    assert isinstance(machine.route_, Exact)
    with pytest.warns(KreinWarning, match=f"{name} used the kernel's own matrix .* is built now"):
        assert machine.approximation_.factorization.shape == (60, 60)
    assert machine.approximation_ is machine.approximation_
    restored = pickle.loads(pickle.dumps(getattr(krein, name)().fit(X, y)))
    with pytest.raises(AttributeError, match="not saved"):
        restored.approximation_  # noqa: B018
    assert machine.converged_ is True
    assert np.min(machine.n_iter_) >= 1


# -- what is refused by every machine, also where a fit would not use it ---------------------------------------------

MACHINES = ("SVC", "SVR", "OneClassSVM", "KernelRidge", "KernelRidgeClassifier", "GaussianProcessRegressor",
            "KernelPCA", "SpectralClustering", "MEKA")  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"n_blocks": 0}, "n_blocks must be an integer of at least 1"),
        ({"rank": 1.5}, "rank must be an integer of at least 1"),
        ({"drop": 2.0}, "drop is a share"),
        ({"max_memory": "1 GB"}, "max_memory must be a number of bytes"),
        ({"dtype": "float8"}, "dtype must be one of"),
        ({"n_jobs": 0}, "n_jobs must be a non-zero integer"),
        ({"n_jobs": True}, "n_jobs must be a non-zero integer"),
        ({"random_state": "x"}, "cannot be used to seed"),
        ({"degree": -1.0}, "degree must be a finite number of at least 0"),
        ({"coef0": np.nan}, "coef0 must be a finite number"),
    ],
)
@pytest.mark.parametrize("name", MACHINES)
def test_a_shared_parameter_out_of_range_is_refused_even_if_it_is_not_used(name, given, words):
    X = rows(40)
    with pytest.raises(ValueError, match=words):
        getattr(krein, name)(**given).fit(X, bent(X) > 1.0)


def test_checking_random_state_draws_nothing_from_it():
    X, (first, second) = rows(40), (np.random.RandomState(3), np.random.RandomState(3))
    KernelRidge(kernel="rbf", random_state=first).fit(X, bent(X))
    assert first.randint(10**6) == second.randint(10**6)


@pytest.mark.parametrize("name", MACHINES)
def test_dates_and_durations_are_no_rows(name):
    days = np.arange(120).reshape(40, 3)
    for X in (days.astype("datetime64[D]"), days.astype("timedelta64[D]"), pd.DataFrame(days.astype("datetime64[s]"))):
        with pytest.raises(InputError, match="X must hold real numbers; got dates or durations"):
            getattr(krein, name)().fit(X, np.arange(40) % 2)


@pytest.mark.parametrize("name", ["SVR", "KernelRidge", "GaussianProcessRegressor"])
def test_dates_are_no_targets_of_a_regression(name):
    with pytest.raises(InputError, match="y must hold real numbers; got dates"):
        getattr(krein, name)().fit(rows(40), np.arange(40).astype("datetime64[D]"))


@pytest.mark.parametrize("name", ["SVC", "SVR", "KernelRidge", "KernelRidgeClassifier", "GaussianProcessRegressor"])
def test_masked_targets_are_refused(name):
    with pytest.raises(InputError, match="y masks 3 of its values"):
        getattr(krein, name)().fit(rows(40), np.ma.masked_array(np.arange(40) % 2, mask=np.arange(40) < 3))


@pytest.mark.parametrize("name", ["SVC", "SVR", "OneClassSVM", "KernelRidge", "KernelRidgeClassifier"])
@pytest.mark.parametrize(
    "weights", [np.ones(40) + 1j, np.full(40, "a"), np.ma.masked_array(np.ones(40), mask=np.arange(40) < 3)]
)
def test_weights_that_are_no_numbers_are_refused(name, weights):
    with pytest.raises(InputError, match="sample_weight must hold one real number per row"):
        getattr(krein, name)().fit(rows(40), np.arange(40) % 2, sample_weight=weights)


@pytest.mark.parametrize("name", ["KernelRidge", "KernelPCA"])
@pytest.mark.parametrize(("scale", "value"), [(1e155, 0), (1e-170, 1)])
def test_a_kernel_that_tells_no_rows_apart_is_warned_of(name, scale, value):
    X = scale * rows(40)
    with pytest.warns(KreinWarning, match=f"is {value} for every pair of 32 different rows.* Rescale"):
        getattr(krein, name)(kernel="rbf").fit(X, bent(X / scale))


def test_a_kernel_whose_width_no_rows_fit_is_warned_of_and_one_with_few_neighbours_is_not():
    X = 100.0 * rows(200)  # TL1's width is for rows in [0, 1]
    with pytest.warns(KreinWarning, match="TL1.* is 0 for every pair of 32 different rows, and of 8 of them with 200"):
        model = KernelRidge(kernel="tl1").fit(X, bent(X))
    K = krein.TL1(rho=0.7 * X.shape[1])(X)
    assert np.count_nonzero(K) == 200
    assert (model.predict(X + 50.0) == 0.0).all()
    pairs = np.repeat(1000.0 * rows(100), 2, axis=0) + np.tile([0.0, 0.01], 100)[:, None]  # each row has one neighbour
    KernelRidge(kernel="tl1").fit(pairs, np.arange(200.0))
    KernelRidge(kernel="rbf", gamma=1.0).fit(pairs, np.arange(200.0))


def test_rows_that_are_equal_or_all_equally_far_are_not_warned_of():
    for X in (np.ones((40, 3)), np.eye(40)):
        KernelRidge(kernel="rbf").fit(X, np.arange(40.0))
    KernelRidge(kernel="linear").fit(np.eye(40), np.arange(40.0))


@pytest.mark.parametrize(
    "machine", [krein.SVC, krein.NuSVC, krein.KernelRidgeClassifier, krein.KernelLogisticRegression]
)
@pytest.mark.parametrize(
    ("given", "said"),
    [(5, "must be a dict of numbers by class, .balanced. or None; got 5"), ("even", "got 'even'"), ([1, 2], "got"),
     ({0: "a"}, "must give a number for classes of y, which are False, True"), ({7: 1.0}, "which are False, True"),
     ({False: -1.0}, "above 0 and finite"), ({False: None}, "above 0 and finite")],
)  # fmt: skip
def test_a_class_weight_that_gives_none_is_refused(machine, given, said):
    X = rows(40)
    with pytest.raises(InputError, match=f"class_weight .*{said}"):
        machine(class_weight=given).fit(X, X[:, 0] > 0)
