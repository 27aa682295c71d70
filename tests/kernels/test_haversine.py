"""Places on the Earth: distances of cities, scikit-learn's haversine, and the sphere's own geometry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import haversine_distances

import krein
from krein import Haversine


def places(n, seed):
    rng = np.random.default_rng(seed)
    return np.column_stack([np.degrees(np.arcsin(rng.uniform(-1, 1, n))), rng.uniform(-180.0, 180.0, n)])


def on_sphere(X):
    lat, lon = np.radians(X).T
    return np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])


@given(seed=st.integers(0, 10**6), length_scale=st.sampled_from([100.0, 5000.0]))
def test_it_is_the_exponential_of_the_angle_between_places(seed, length_scale):
    A, B = places(6, seed), places(9, seed + 1)
    a, b = on_sphere(A), on_sphere(B)
    angles = np.arctan2(np.linalg.norm(np.cross(a[:, None], b), axis=2), a @ b.T)
    values = Haversine(length_scale)(A, B)
    np.testing.assert_allclose(values, np.exp(-6371.0088 / length_scale * angles), rtol=1e-10, atol=1e-300)
    theirs = np.exp(-6371.0088 / length_scale * haversine_distances(np.radians(A), np.radians(B)))
    np.testing.assert_allclose(values, theirs, rtol=1e-12)
    np.testing.assert_allclose(Haversine(length_scale)(A.astype("f4"), B), values, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length_scale", [10.0, 3000.0, 1e6])
def test_promises_hold_everywhere_on_the_sphere(dtype, length_scale):
    X = np.concatenate([places(100, 0), [[90.0, 0.0], [90.0, 77.0], [-90.0, 5.0], [0.0, 180.0], [0.0, -180.0]]])
    assert krein.check_kernel(Haversine(length_scale), X.astype(dtype)).ok
    values = Haversine(length_scale)(X)
    assert np.linalg.eigvalsh(values)[0] > -1e-12
    assert values[100, 101] == pytest.approx(1.0)  # the pole has every longitude
    assert values[103, 104] == pytest.approx(1.0)  # 180 degrees east are 180 degrees west
    low = np.exp(-np.pi * 6371.0088 / length_scale)
    assert values[100, 102] == pytest.approx(low) == pytest.approx(Haversine(length_scale).traits.low)


def test_cities_are_as_far_apart_as_an_atlas_says():
    paris, berlin = [48.8566, 2.3522], [52.5200, 13.4050]
    assert -1000.0 * np.log(Haversine(1000.0)([paris], [berlin])[0, 0]) == pytest.approx(878.0, abs=2.0)
    assert Haversine(1.0, radius=1.0)([[0.0, 0.0]], [[0.0, 90.0]])[0, 0] == pytest.approx(np.exp(-np.pi / 2.0))


@pytest.mark.parametrize(
    ("X", "said"),
    [
        ([[151.2, -33.9]], "exchange them"),
        ([[0.0, 400.0]], "longitudes from -180"),
        ([[0.0, 1.0, 2.0]], "2 features, latitude and longitude in degrees; got 3"),
    ],
)
def test_what_is_no_place_is_refused(X, said):
    for call in (lambda: Haversine()(X), lambda: Haversine().diag(X)):
        with pytest.raises(krein.InputError, match=said):
            call()


def test_a_process_learns_how_far_places_are_alike():
    X = places(150, 0)
    y = np.sin(np.radians(2.0 * X[:, 0])) + np.cos(np.radians(X[:, 1])) * np.cos(np.radians(X[:, 0]))
    process = krein.GaussianProcessRegressor(Haversine(100.0)).fit(X[:120], y[:120])
    assert process.score(X[120:], y[120:]) > 0.9
    assert process.kernel_.k1.k2.kernel.length_scale > 1000.0
