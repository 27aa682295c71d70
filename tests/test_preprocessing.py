"""The unit sphere, the paper's preprocessing, and Remark 3 measured."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

from krein.errors import InputError, KreinWarning
from krein.kernels import ELM, RBF, TL1, Linear, Normalized, Polynomial, SpherePolynomial
from krein.preprocessing import UnitSphere, paper_preprocessing, sphere_overlap


def data(seed=0, n=200, d=4):
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([UnitSphere()])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


entries = st.one_of(st.just(0.0), st.floats(1e-300, 1e300), st.floats(-1e300, -1e-300))


@given(hnp.arrays(float, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=entries))
def test_rows_of_any_scale_reach_the_sphere(X):
    X[:, 0] = np.where(X.any(axis=1), X[:, 0], 1e-300)
    for rows in (X, sparse.csr_matrix(X), sparse.csr_array(X)):
        units = UnitSphere().fit_transform(rows)
        assert sparse.issparse(units) == sparse.issparse(rows)
        dense = units.toarray() if sparse.issparse(units) else units
        np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1, rtol=1e-12)
        np.testing.assert_array_equal(np.sign(dense) * np.sign(X) >= 0, True)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_directions_are_kept_and_input_left_alone(form):
    X = data()
    rows = form(X.astype(np.float32))
    units = UnitSphere().fit_transform(rows)
    assert units.dtype == np.float32
    dense, given_rows = (v.toarray() if sparse.issparse(v) else v for v in (units, rows))
    np.testing.assert_allclose(dense, X / np.linalg.norm(X, axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(given_rows, X.astype(np.float32))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_zero_rows_are_counted_and_stay(form):
    X = data()
    X[[3, 5]] = 0
    with pytest.warns(KreinWarning, match="2 of 200 rows are zero"):
        units = UnitSphere().fit_transform(form(X))
    dense = units.toarray() if sparse.issparse(units) else units
    assert not dense[[3, 5]].any()


# ------------------------------------------------------------------------------------------- the paper's preprocessing


@pytest.mark.parametrize("kernel", [RBF(), TL1(), RBF() + TL1(), 2 * RBF()], ids=repr)
def test_distance_kernels_get_the_unit_interval(kernel):
    X = data() * 7 + 3
    Y = paper_preprocessing(kernel).fit_transform(X)
    np.testing.assert_allclose(Y, (X - X.min(axis=0)) / np.ptp(X, axis=0), atol=1e-14)


@pytest.mark.parametrize("kernel", [SpherePolynomial(), Polynomial(), Normalized(Polynomial())], ids=repr)
def test_polynomials_get_the_sphere(kernel):
    X = data() * 7 + 3
    np.testing.assert_allclose(
        paper_preprocessing(kernel).fit_transform(X), X / np.linalg.norm(X, axis=1, keepdims=True)
    )


def test_elm_gets_z_scores_then_the_sphere():
    X = data() * 7 + 3
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    expected = Z / np.linalg.norm(Z, axis=1, keepdims=True)
    np.testing.assert_allclose(paper_preprocessing(ELM()).fit_transform(X), expected)


@pytest.mark.parametrize("kernel", [RBF(), ELM(), SpherePolynomial()], ids=repr)
def test_constant_columns_do_no_harm(kernel):
    X = np.hstack([data(), np.full((200, 1), 5.0), np.zeros((200, 1))])
    pipeline = paper_preprocessing(kernel).fit(X)
    assert np.isfinite(pipeline.transform(X)).all()
    assert np.isfinite(pipeline.transform(X + 1)).all()


def test_a_kernel_without_preprocessing_is_refused():
    for kernel in (Linear(), lambda A, B: A @ B.T, RBF() + ELM()):
        with pytest.raises(InputError, match="RBF, TL1, ELM"):
            paper_preprocessing(kernel)


# ------------------------------------------------------------------------------------------- Remark 3


def on_a_ray(noise, seed=0):
    """Three clusters one behind the other, seen from the origin."""
    rng = np.random.default_rng(seed)
    distance = np.repeat([1.0, 4.0, 16.0], 100)
    return distance[:, None] * (np.array([3.0, 4.0]) + noise * rng.normal(size=(300, 2))), np.repeat([0, 1, 2], 100)


def test_clusters_on_a_ray_fall_together():
    X, labels = on_a_ray(0.1)
    for overlap in (sphere_overlap(X, 3, random_state=0), sphere_overlap(X, labels=labels)):
        assert overlap.before < 0.02
        assert overlap.increase > 0.4
        assert overlap.silhouette_before > 0.8
        assert overlap.silhouette_after < 0.2
        assert overlap.n_clusters == 3


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_clusters_exactly_on_a_ray_overlap_entirely(form, scale):
    X, labels = on_a_ray(0.0)
    overlap = sphere_overlap(form(X * scale), labels=labels)
    assert (overlap.before, overlap.after) == (0.0, 1.0)


def test_on_the_sphere_nothing_changes():
    X = UnitSphere().fit_transform(data(d=3))
    overlap = sphere_overlap(X, 5, random_state=0)
    assert overlap.increase == 0
    assert overlap.silhouette_after == pytest.approx(overlap.silhouette_before)
    assert overlap.silhouette_before > 0


def test_the_numbers_are_those_of_a_loop():
    X = data(3, n=40, d=2)
    labels = np.array(list("abcd"))[np.random.default_rng(0).integers(4, size=40)]
    overlap = sphere_overlap(X, labels=labels)

    def naive(Y):
        means = {name: Y[labels == name].mean(axis=0) for name in set(labels)}
        away, widths = [], []
        for row, name in zip(Y, labels, strict=True):
            own = np.linalg.norm(row - means[name])
            other = min(np.linalg.norm(row - mean) for key, mean in means.items() if key != name)
            away.append(other <= own)
            widths.append((other - own) / max(own, other))
        return np.mean(away), np.mean(widths)

    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert (overlap.before, overlap.silhouette_before) == pytest.approx(naive(X))
    assert (overlap.after, overlap.silhouette_after) == pytest.approx(naive(units))


def test_overlap_is_repeatable_and_prints():
    X = data()
    assert sphere_overlap(X, 4, random_state=1) == sphere_overlap(X, 4, random_state=1)
    assert "4 clusters of 200 rows" in str(sphere_overlap(X, 4, random_state=1))
    assert "points" in repr(sphere_overlap(sparse.csr_matrix(X), 4, random_state=1))


def test_many_rows_are_clustered_from_a_sample():
    X = data(n=20_500, d=2) + 10 * np.arange(20_500)[:, None] % 3
    assert sphere_overlap(X, 3, random_state=0).n_rows == 20_500


def test_overlap_refuses_what_it_cannot_measure():
    with pytest.raises(InputError, match="n_clusters between 2"):
        sphere_overlap(data(), 1)
    with pytest.raises(InputError, match="n_clusters between 2"):
        sphere_overlap(data(n=3), 4)
    with pytest.raises(InputError, match="at least 2 clusters"):
        sphere_overlap(data(), labels=np.zeros(200))
    with pytest.raises(InputError, match="one label per row"):
        sphere_overlap(data(), labels=[0, 1])
    with pytest.raises(ValueError, match="NaN"):
        sphere_overlap(np.full((3, 2), np.nan), 2)
