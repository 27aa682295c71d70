"""Random Fourier features beside the kernels, scikit-learn's sampler and the dense Hadamard matrix."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
from sklearn.kernel_approximation import RBFSampler
from sklearn.utils.estimator_checks import parametrize_with_checks

import krein
from krein.errors import InputError
from krein.estimators.random_features import Fastfood, hadamard

X = np.random.default_rng(0).standard_normal((40, 5))
RADIAL = {
    "rbf": krein.RBF(gamma=0.2),
    "rbf of two scales": krein.RBF(length_scale=(1.0, 2.0, 1.0, 3.0, 1.0)),
    "matern 0.5": krein.Matern(length_scale=2.0, nu=0.5),
    "matern 1.5": krein.Matern(length_scale=(2.0, 2.0, 1.0, 3.0, 1.0), nu=1.5),
    "matern 2.5": krein.Matern(nu=2.5),
    "rational quadratic": krein.RationalQuadratic(length_scale=1.5, alpha=0.7),
}
CASES = [*((k, "dense") for k in RADIAL.values()), *((k, "fastfood") for k in RADIAL.values())]
CASES.append((krein.Laplacian(gamma=0.2), "dense"))


@parametrize_with_checks(
    [krein.RandomFourierFeatures(), krein.RandomFourierFeatures(20, kernel="matern", method="fastfood")]
)
def test_scikit_learn_finds_nothing_to_complain_about(estimator, check):
    check(estimator)


@pytest.mark.parametrize(("kernel", "method"), CASES)
def test_features_approach_the_kernel_as_the_root_of_their_number(kernel, method):
    K, errors = kernel(X), []
    for count in (64, 4096):
        made = [
            krein.RandomFourierFeatures(count, kernel=kernel, method=method, random_state=s).fit(X) for s in range(4)
        ]
        Z = [m.transform(X) for m in made]
        assert Z[0].shape == (40, count)
        errors.append(np.mean([np.abs(z @ z.T - K).mean() for z in Z]))
    assert errors[1] < 0.03
    assert 4 < errors[0] / errors[1] < 16  # 8, the root of 64


def test_features_are_the_cosines_of_their_weights():
    made = krein.RandomFourierFeatures(7, kernel=krein.Laplacian(gamma=0.3), random_state=3).fit(X)
    expected = np.sqrt(2 / 7) * np.cos(X @ made.random_weights_ + made.random_offset_)
    np.testing.assert_allclose(made.transform(X), expected, rtol=0, atol=1e-14)


def test_weights_of_rbf_have_the_distribution_of_scikit_learn_s():
    ours = krein.RandomFourierFeatures(20_000, gamma=0.7, random_state=0).fit(X).random_weights_
    theirs = RBFSampler(gamma=0.7, n_components=20_000, random_state=0).fit(X).random_weights_
    for power in (1, 2, 4):
        assert np.mean(ours**power) == pytest.approx(np.mean(theirs**power), rel=0.05, abs=0.02)


@pytest.mark.parametrize("d", [1, 2, 8, 64])
def test_the_fast_transform_is_the_hadamard_matrix(d):
    x = np.random.default_rng(d).standard_normal((3, 2, d))
    np.testing.assert_allclose(hadamard(x), x @ scipy.linalg.hadamard(d), atol=1e-12)


def test_fastfood_is_the_product_of_its_dense_factors():
    """S H G P H B for each stack, written out as matrices."""
    V = Fastfood.draw(5, np.linspace(1.0, 2.0, 20), np.random.default_rng(1))
    H, rows = scipy.linalg.hadamard(8).astype(float), []
    for signs, places, normal, lengths in zip(V.signs, V.places, V.normal, V.lengths, strict=True):
        P = np.eye(8)[places]
        rows.append(np.diag(lengths) @ H @ np.diag(normal) @ P @ H @ np.diag(signs))
    dense = np.vstack(rows)[:, :5]
    np.testing.assert_allclose(V(X), X @ dense.T, atol=1e-12)
    assert V(X).shape == (40, 24)


def test_rows_of_fastfood_are_as_long_as_gaussian_ones():
    V = Fastfood.draw(16, np.full(6400, 0.5), np.random.default_rng(3))
    squares = np.square(V(np.eye(16))).sum(0)  # 0.25 chi² of 16 degrees of freedom
    assert squares.mean() == pytest.approx(4.0, rel=0.02)
    assert squares.var() == pytest.approx(0.25**2 * 32, rel=0.1)


@pytest.mark.parametrize("method", ["dense", "fastfood"])
def test_sparse_and_single_precision_rows_have_the_same_features(method):
    made = krein.RandomFourierFeatures(50, gamma=0.2, method=method, random_state=0).fit(X)
    Z = made.transform(X)
    np.testing.assert_allclose(made.transform(sp.csr_matrix(X)), Z, rtol=0, atol=1e-13)
    single = made.transform(X.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, Z, rtol=0, atol=1e-5)


def test_other_kernels_and_angles_that_overflow_are_refused():
    with pytest.raises(InputError, match="RBF, Laplacian, Matern and RationalQuadratic; got Sigmoid"):
        krein.RandomFourierFeatures(kernel="sigmoid").fit(X)
    with pytest.raises(InputError, match="Use method='dense'"):
        krein.RandomFourierFeatures(kernel="laplacian", method="fastfood").fit(X)
    with pytest.raises(InputError, match="'dense', 'fastfood'; got 'slow'"):
        krein.RandomFourierFeatures(method="slow").fit(X)
    with pytest.raises(InputError, match="few digits or none"):
        krein.RandomFourierFeatures(gamma=1e300).fit(X).transform(1e200 * X)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda X: np.ma.masked_less(X, 0.0), "X masks"),
        (lambda X: np.full(X.shape, np.datetime64("2020-01-01")), "dates or durations"),
        (lambda X: np.full(X.shape, np.timedelta64(1, "D")), "dates or durations"),
        (lambda X: [[10**400, 1], *X.tolist()], "float64 cannot hold"),
    ],
)
def test_what_numpy_casts_in_silence_is_refused(change, said):
    X = np.random.default_rng(0).normal(size=(20, 2))
    features = krein.RandomFourierFeatures(10, random_state=0).fit(X)
    for call in (features.fit, features.transform):
        with pytest.raises(krein.InputError, match=said):
            call(change(X))


def test_rows_so_far_from_the_origin_that_angles_lose_their_digits_are_refused():
    X = np.random.default_rng(0).normal(size=(20, 2))
    near = krein.RandomFourierFeatures(5000, gamma=0.5, random_state=0).fit(X)
    Z = near.transform(X + 1e9)
    np.testing.assert_allclose(Z @ Z.T, krein.RBF(gamma=0.5)(X), atol=0.1)
    with pytest.raises(InputError, match="few digits or none"):
        near.transform(X + 1e15)
