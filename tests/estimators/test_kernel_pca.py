"""KernelPCA against scikit-learn's, test by test of scikit-learn's own where they test behaviour, and its contract."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs, make_circles
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as Reference
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Perceptron, RidgeClassifier
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import krein
from krein.errors import InputError, KreinWarning
from krein.estimators.kernel_pca import KernelPCA
from krein.estimators.route import Exact, Given
from krein.policy import Policy
from strategies import HARD_DATA, refuse_full_decompositions

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((300, 5)), RNG.standard_normal((40, 5))
SOLVERS = ("auto", "dense", "arpack", "randomized")


@parametrize_with_checks([KernelPCA(), KernelPCA(n_components=2, kernel="rbf")])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def same(found: np.ndarray, wanted: np.ndarray, atol: float = 1e-6) -> None:
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max(initial=0.0) <= atol


@pytest.mark.parametrize("n_components", [None, 3, 20])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "linear"},
        {"kernel": "rbf", "gamma": 0.3},
        {"kernel": "rbf"},
        {"kernel": "poly", "degree": 2},
        {"kernel": "cosine"},
        {"kernel": laplacian_kernel, "kernel_params": {"gamma": 0.1}},
    ],
    ids=lambda options: str(options["kernel"])[:9],
)
def test_small_data_are_scikit_learns_with_its_signs(options: dict[str, Any], n_components: int | None) -> None:
    pair = dict(options)
    if callable(pair["kernel"]):  # scikit-learn's takes two rows, ours two collections
        pair["kernel"] = lambda a, b, gamma: np.exp(-gamma * np.abs(a - b).sum())
    reference, ours = Reference(n_components, **pair), KernelPCA(n_components, **options)
    same(ours.fit_transform(X), reference.fit_transform(X))
    same(ours.transform(NEW), reference.transform(NEW))
    same(ours.eigenvectors_, reference.eigenvectors_ * (reference.eigenvalues_ > 0))
    same(ours.eigenvalues_, reference.eigenvalues_)
    assert ours.X_fit_.shape == X.shape
    assert ours.correction_ == "none"


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_finds_scikit_learns_components(solver: str) -> None:
    circles, _ = make_circles(800, factor=0.3, noise=0.05, random_state=0)
    reference = Reference(4, kernel="rbf", eigen_solver="dense").fit(circles[:700])
    ours = KernelPCA(4, kernel="rbf", eigen_solver=solver, random_state=0).fit(circles[:700])
    same(ours.transform(circles[700:]), reference.transform(circles[700:]))


@pytest.mark.parametrize("n_features", [4, 10])
@pytest.mark.parametrize("solver", SOLVERS)
def test_the_linear_kernel_is_pca(solver: str, n_features: int) -> None:
    fit, new = RNG.random((5, n_features)), RNG.random((2, n_features))
    wanted = PCA(3, svd_solver="full").fit(fit).transform(new)
    same(np.abs(KernelPCA(3, eigen_solver=solver).fit(fit).transform(new)), np.abs(wanted))


@pytest.mark.parametrize("solver", SOLVERS)
def test_precomputed_matrices(solver: str) -> None:
    fit, new = X[:20], X[20:25]
    wanted = Reference(4).fit(fit).transform(new)
    for S, rows in ((fit @ fit.T, new @ fit.T), (sp.csr_matrix(fit @ fit.T), sp.csr_matrix(new @ fit.T))):
        ours = KernelPCA(4, kernel="precomputed", eigen_solver=solver, random_state=0)
        Z = ours.fit_transform(S)
        same(ours.transform(rows), wanted)
        same(ours.transform(S), Z)
    with pytest.raises(InputError, match="symmetric"):
        KernelPCA(1, kernel="precomputed").fit([[1.0, 2.0], [3.0, 40.0]])


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly"])
@pytest.mark.parametrize("container", [sp.csr_matrix, sp.csr_array])
def test_sparse_rows(kernel: str, container: Any) -> None:
    dense = KernelPCA(4, kernel=kernel).fit(X[:50])
    ours = KernelPCA(4, kernel=kernel).fit(container(X[:50]))
    same(ours.transform(container(NEW)), dense.transform(NEW))
    same(ours.transform(NEW), dense.transform(NEW))
    with pytest.raises(NotFittedError):
        ours.inverse_transform(np.zeros((2, 4)))
    with pytest.raises(NotImplementedError, match="sparse"):
        KernelPCA(4, kernel=kernel, fit_inverse_transform=True).fit(container(X[:50]))


def test_components_of_eigenvalue_zero() -> None:
    equal = np.array([[1 - 1e-30, 1], [1, 1], [1, 1 - 1e-20]])
    assert KernelPCA().fit_transform(equal).shape == (3, 0)
    assert KernelPCA().fit(equal).transform(equal).shape == (3, 0)
    assert KernelPCA(2, remove_zero_eig=True).fit_transform(equal).shape == (3, 0)
    assert np.array_equal(KernelPCA(2).fit_transform(equal), np.zeros((3, 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        k = KernelPCA(2, eigen_solver="dense")
        same(k.fit(np.eye(2)).transform(np.eye(2)), k.fit_transform(np.eye(2)))
    nearly = KernelPCA(2, fit_inverse_transform=True).fit([[5, 1], [5 + 1e-8, 1e-8], [5 + 1e-8, 0]])
    assert nearly.eigenvalues_.min() == 0
    assert KernelPCA(50).fit_transform(X[:30]).shape == (30, 30)


def test_the_same_random_state_gives_the_same() -> None:
    state = np.random.RandomState(0)
    for solver in ("arpack", "dense"):
        some = [KernelPCA(2, eigen_solver=solver, random_state=state).fit_transform(X[:60]) for _ in range(5)]
        assert all(np.allclose(Z, some[0]) for Z in some)


def test_changing_x_after_the_fit_changes_nothing() -> None:
    mine = X.copy()
    ours = KernelPCA(3, kernel="rbf").fit(mine)
    before = ours.transform(NEW)
    mine[:, 0] = 666.0
    assert np.array_equal(ours.transform(NEW), before)


def test_an_indefinite_matrix_is_scikit_learns_where_that_does_not_refuse() -> None:
    S = RNG.standard_normal((12, 12))
    S = S + S.T
    with pytest.warns(KreinWarning, match="correction='clip'"):
        ours = KernelPCA(2, kernel="precomputed").fit(S)
    reference = Reference(2, kernel="precomputed").fit(S)
    same(ours.eigenvalues_, reference.eigenvalues_)
    same(ours.transform(S), reference.transform(S))
    assert ours.correction_ == "clip"
    for solver in SOLVERS:
        for model in (Reference, KernelPCA):
            options = {} if model is Reference else {"correction": "none"}
            with pytest.raises(ValueError, match="There are significant negative eigenvalues"):
                model(11, kernel="precomputed", eigen_solver=solver, **options).fit(S)
    with pytest.warns(KreinWarning, match="clip"):
        many = KernelPCA(11, kernel="precomputed").fit(S)
    assert many.eigenvalues_.min() == 0.0


@pytest.mark.parametrize("alpha", [1e-3, 1.0])
@pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
def test_the_preimage_is_scikit_learns(kernel: str, alpha: float) -> None:
    blobs, _ = make_blobs(150, n_features=4, random_state=0)
    blobs = blobs / 10
    options = {"kernel": kernel, "fit_inverse_transform": True, "alpha": alpha}
    reference, ours = Reference(6, **options).fit(blobs), KernelPCA(6, **options).fit(blobs)
    same(ours.inverse_transform(ours.transform(blobs)), reference.inverse_transform(reference.transform(blobs)))
    same(ours.dual_coef_, reference.dual_coef_, 1e-6 * np.abs(reference.dual_coef_).max())
    same(ours.X_transformed_fit_, reference.X_transformed_fit_)
    assert ours.gamma_ == reference.gamma_ == 1 / 4


def test_the_preimage_beyond_small_data_is_a_reconstruction() -> None:
    blobs, _ = make_blobs(2500, n_features=3, centers=5, random_state=0)
    blobs = (blobs - blobs.mean(0)) / blobs.std()
    ours = KernelPCA(20, kernel="rbf", gamma=0.5, fit_inverse_transform=True, alpha=1e-2, n_blocks=5, rank=60)
    back = ours.fit(blobs).inverse_transform(ours.transform(blobs))
    assert np.linalg.norm(back - blobs) < 0.1 * np.linalg.norm(blobs)


def test_what_has_no_preimage() -> None:
    with pytest.raises(ValueError, match="Cannot fit_inverse_transform with a precomputed kernel"):
        KernelPCA(10, fit_inverse_transform=True, kernel="precomputed").fit(np.eye(10))
    with pytest.raises(NotFittedError):
        KernelPCA().fit(X[:5]).inverse_transform(X[:5])
    with pytest.raises(InputError, match="rows of numbers"):
        KernelPCA(2, kernel=lambda A, B: np.equal.outer(A, B) * 1.0, fit_inverse_transform=True).fit(["a", "b", "c"])


def test_low_rank_approximates_the_exact_components() -> None:
    blobs, _ = make_blobs(1500, n_features=3, centers=4, random_state=2)
    exact = Reference(3, kernel="rbf", gamma=0.05).fit(blobs)
    ours = KernelPCA(3, kernel="rbf", gamma=0.05, n_blocks=4, rank=40, random_state=0)
    Z = ours.fit_transform(blobs)
    assert ours.relative_error_ < 1e-3
    assert np.allclose(ours.eigenvalues_, exact.eigenvalues_, rtol=1e-3)
    assert np.allclose(np.abs(ours.transform(blobs)), np.abs(exact.transform(blobs)), atol=1e-2)
    assert np.allclose(ours.transform(blobs), Z, atol=1e-9)


def test_separating_circles_in_a_grid_and_a_pipeline() -> None:
    circles, y = make_circles(n_samples=200, factor=0.3, noise=0.05, random_state=0)
    pipeline = make_pipeline(KernelPCA(2, kernel="rbf"), Perceptron())
    grid = GridSearchCV(pipeline, {"kernelpca__gamma": 2.0 ** np.arange(-1, 2)}, cv=3).fit(circles, y)
    assert grid.best_score_ == 1.0
    given = make_pipeline(KernelPCA(2, kernel="precomputed"), RidgeClassifier())
    search = GridSearchCV(given, {"ridgeclassifier__alpha": [0.1, 1.0]}, cv=3).fit(rbf_kernel(circles, gamma=2.0), y)
    assert search.best_score_ == 1.0


def test_names_frames_and_precision() -> None:
    frame, _ = load_iris(as_frame=True, return_X_y=True)
    ours = KernelPCA(2, eigen_solver="arpack").fit(frame)
    assert list(ours.get_feature_names_out()) == ["kernelpca0", "kernelpca1"]
    with config_context(transform_output="pandas"):
        assert list(KernelPCA(2).fit_transform(frame).columns) == ["kernelpca0", "kernelpca1"]
    single = frame.to_numpy(np.float32)
    assert KernelPCA(2).fit_transform(single).dtype == np.float32
    assert ours.transform(frame).dtype == np.float64
    assert KernelPCA().fit_transform(single).shape == KernelPCA().fit_transform(frame).shape


@pytest.mark.filterwarnings("ignore:.* for every pair of .* different rows:krein.KreinWarning")  # 1e-200 and 1e200
@pytest.mark.parametrize("name", sorted(HARD_DATA))
def test_hard_data(name: str) -> None:
    data = HARD_DATA[name]()
    ours = KernelPCA(2, kernel="rbf", gamma=0.5).fit(data)
    H = np.eye(len(data)) - 1.0 / len(data)
    values = np.linalg.eigvalsh(H @ krein.RBF(gamma=0.5)(data) @ H)[::-1][:2]
    same(ours.eigenvalues_, np.where(values > 1e-12, values, 0.0))
    V = ours.eigenvectors_
    assert np.allclose(V.T @ V, np.diag((values > 1e-12) * 1.0))
    same(ours.transform(data), V * np.sqrt(ours.eigenvalues_))


def test_clones_copies_and_an_approximation_handed_in() -> None:
    a = krein.approximate(X, krein.RBF(gamma=0.3), n_blocks=3, rank=30, random_state=0)
    ours = KernelPCA(3, kernel=a.kernel, approximation=a).fit(X)
    assert ours.approximation_ is a
    twin = pickle.loads(pickle.dumps(ours))
    assert np.array_equal(twin.transform(NEW), ours.transform(NEW))
    assert np.allclose(clone(ours).fit(X).transform(NEW), ours.transform(NEW))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components must be an integer of at least 1"),
        ({"eigen_solver": "lobpcg"}, "eigen_solver must be one of"),
        ({"tol": -1}, "tol must be"),
        ({"max_iter": 0}, "max_iter"),
        ({"iterated_power": -1}, "iterated_power"),
        ({"alpha": -1.0}, "alpha"),
        ({"kernel": "chi3"}, "kernel must be one of"),
        ({"correction": "krein"}, "correction must be one of"),
    ],
)
def test_parameters_out_of_range_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        KernelPCA(**options).fit(X)


def test_objects_that_are_no_vectors() -> None:
    words = ["ab", "abc", "abd", "xyz", "xyy", "zzz", "ba", "cab"]

    def common(A: Any, B: Any) -> np.ndarray:
        return np.array([[float(len(set(a) & set(b))) for b in B] for a in A])

    ours = KernelPCA(2, kernel=common).fit(words)
    reference = Reference(2, kernel="precomputed").fit(common(words, words))
    same(np.abs(ours.transform(["abx", "zy"])), np.abs(reference.transform(common(["abx", "zy"], words))))


def test_many_rows_with_a_mean_have_scikit_learns_components():
    """The mean is most of the matrix, and centring takes it away: an error of the matrix says nothing of the rest."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2300, 5)) * [3.0, 2.0, 1.5, 1.0, 0.5] + 20.0
    ours = KernelPCA(3, random_state=0, fit_inverse_transform=True, alpha=1e-6).fit(X[:2100])
    theirs = Reference(3, fit_inverse_transform=True, alpha=1e-6).fit(X[:2100])
    np.testing.assert_allclose(ours.eigenvalues_, theirs.eigenvalues_, rtol=1e-8)
    there = [model.inverse_transform(model.transform(X[2100:])) for model in (ours, theirs)]
    np.testing.assert_allclose(*there, atol=1e-3)  # the regression behind it is ill-conditioned


@pytest.mark.parametrize("scale", [1e-300, 1e160, 1e300])
def test_a_matrix_of_any_scale_has_its_components(scale: float) -> None:
    K = rbf_kernel(X[:80], gamma=0.3)
    plain, scaled = (KernelPCA(3, kernel="precomputed").fit(K * s) for s in (1.0, scale))
    np.testing.assert_allclose(scaled.eigenvalues_ / scale, plain.eigenvalues_, rtol=1e-9)
    np.testing.assert_allclose(scaled.transform(K * scale) / np.sqrt(scale), plain.transform(K), atol=1e-9)


MANY, MANY_NEW = np.split(np.random.default_rng(5).standard_normal((1600, 6)) * [3.0, 2.0, 2.0, 1.0, 1.0, 1.0], [1500])
MANY_NEW = MANY_NEW[:50]


def test_few_components_take_no_full_decomposition_and_keep_no_matrix(monkeypatch: Any) -> None:
    reference = Reference(10, kernel="rbf").fit(MANY)
    refuse_full_decompositions(monkeypatch, 1500)
    ours = KernelPCA(10, kernel="rbf").fit(MANY)
    np.testing.assert_allclose(ours.eigenvalues_, reference.eigenvalues_, rtol=1e-10)
    same(ours.transform(MANY_NEW), reference.transform(MANY_NEW), 1e-8)
    same(ours.fit_transform(MANY), reference.transform(MANY), 1e-8)
    assert ours.relative_error_ == 0.0
    assert ours.route_ == Exact(True, ours.route_.why)
    assert len(pickle.dumps(ours)) <= 3 * len(pickle.dumps(reference)) + 1e5
    twin = pickle.loads(pickle.dumps(ours))
    assert np.array_equal(twin.transform(MANY_NEW), ours.transform(MANY_NEW))
    assert np.array_equal(twin.X_fit_, MANY)


def test_an_indefinite_kernel_is_counted_without_eigenvectors(monkeypatch: Any) -> None:
    S = krein.Sigmoid(gamma=0.05, coef0=-1.0)(MANY[:700])
    values = np.linalg.eigvalsh(S)
    reference = Reference(6, kernel="precomputed").fit(S)
    refuse_full_decompositions(monkeypatch, 700)
    with pytest.warns(KreinWarning, match="indefinite matrix.*correction='clip'") as told:
        ours = KernelPCA(6, kernel=krein.Sigmoid(gamma=0.05, coef0=-1.0)).fit(MANY[:700])
    rounding = 700 * np.finfo(float).eps * np.linalg.norm(values)
    assert ours.n_negative_ == (values < -rounding).sum() > 0
    assert f"the smallest {values[0]:.3g}" in str(told[0].message)
    np.testing.assert_allclose(ours.eigenvalues_, reference.eigenvalues_, rtol=1e-9)
    assert "_approximation" not in vars(ours) or ours._approximation is None


@pytest.mark.parametrize("correction", ["flip", "square", "shift"])
def test_corrections_before_centring_are_exact_too(correction: str) -> None:
    S = krein.Sigmoid(gamma=0.05, coef0=-1.0)(MANY[:200])
    values, vectors = np.linalg.eigh(S)
    change = {"flip": np.abs(values), "square": values**2, "shift": values - values[0]}[correction]
    reference = Reference(4, kernel="precomputed").fit((vectors * change) @ vectors.T)
    with pytest.warns(KreinWarning, match="indefinite matrix"):
        ours = KernelPCA(4, kernel="precomputed", correction=correction).fit(S)
    np.testing.assert_allclose(ours.eigenvalues_, reference.eigenvalues_, rtol=1e-8)
    same(ours.eigenvectors_, reference.eigenvectors_, 1e-7)
    same(ours.transform(S), ours._coordinates(), 1e-7)
    assert len(pickle.dumps(ours)) < 1e5


def test_equal_eigenvalues_are_all_found() -> None:
    """The corners of a cube: the largest eigenvalue ten times over, of which Lanczos iteration may miss one."""
    cube = np.array(np.meshgrid(*[[0.0, 1.0]] * 10)).reshape(10, -1).T
    wanted = Reference(12, kernel="rbf", gamma=0.1, eigen_solver="dense").fit(cube).eigenvalues_
    for seed in range(5):
        ours = KernelPCA(12, kernel="rbf", gamma=0.1, random_state=seed).fit(cube)
        np.testing.assert_allclose(ours.eigenvalues_, wanted, rtol=1e-9)


def test_a_flat_spectrum_is_left_to_lapack() -> None:
    """Many eigenvalues are nearly 1: Lanczos gives up, and LAPACK's driver for some may return none of them."""
    for gamma in (1.0, 50.0):
        ours = KernelPCA(10, kernel="rbf", gamma=gamma).fit(MANY[:600])
        H = np.eye(600) - 1.0 / 600
        wanted = np.linalg.eigvalsh(H @ rbf_kernel(MANY[:600], gamma=gamma) @ H)[::-1][:10]
        np.testing.assert_allclose(ours.eigenvalues_, wanted, rtol=1e-9)
        assert np.allclose(ours.eigenvectors_.T @ ours.eigenvectors_, np.eye(10), atol=1e-9)


def test_the_policy_decides_up_to_where_a_fit_is_exact() -> None:
    few, kernel = Policy(exact_rows=100, components_rows=300), "rbf"
    assert isinstance(KernelPCA(3, kernel=kernel, policy=few).fit(X).route_, Exact)
    ours = KernelPCA(3, kernel=kernel, policy=Policy(exact_rows=100, components_rows=299), random_state=0).fit(X)
    assert isinstance(ours.route_, Given)
    reference = Reference(3, kernel=kernel).fit(X)
    np.testing.assert_allclose(ours.eigenvalues_, reference.eigenvalues_, rtol=1e-3)


def test_a_second_fit_by_another_route_leaves_nothing_of_the_first() -> None:
    model = KernelPCA(3, kernel="rbf", random_state=0).fit(X)
    exact = model.eigenvectors_
    low = model.set_params(n_blocks=3, rank=8).fit(X[:200])
    assert low.eigenvectors_.shape == (200, 3)
    assert low.X_fit_.shape == (200, 5)
    again = low.set_params(n_blocks="auto", rank="auto").fit(X)
    assert np.array_equal(again.eigenvectors_, exact)
    assert again.X_fit_.shape == (300, 5)


def test_a_fit_without_inverse_forgets_the_regression_of_an_earlier_one() -> None:
    machine = KernelPCA(3, kernel="rbf", fit_inverse_transform=True).fit(X)
    assert machine.dual_coef_.shape == X.shape
    machine.set_params(fit_inverse_transform=False).fit(X[:50])
    assert not hasattr(machine, "dual_coef_")
    assert not hasattr(machine, "X_transformed_fit_")
