"""Gower's similarity against a loop over pairs and columns, on the frames of three libraries."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import krein
from krein.kernels import gower
from krein.kernels.mixed_rows import as_mixed_rows

pytestmark = pytest.mark.filterwarnings("ignore:.*indefinite matrix:krein.KreinWarning")

SIZES = ["small", "medium", "large"]


def table(n=60, missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "height": rng.normal(size=n),
            "count": rng.integers(0, 9, n),
            "colour": rng.choice(["red", "green", "blue"], n),
            "owned": rng.random(n) < 0.5,
            "size": pd.Categorical(rng.choice(SIZES, n), categories=SIZES, ordered=True),
            "shop": pd.Categorical(rng.choice(["here", "there"], n)),
            "bought": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), unit="D"),
            "used": pd.to_timedelta(rng.integers(0, 1000, n), unit="h"),
        }
    ).astype({"count": "Int64", "owned": "boolean"})
    return frame.mask(rng.random(frame.shape) < missing) if missing else frame


def naive(A, B, fit, weights=None, power=1.0):
    """A loop over pairs and columns."""
    weights = weights or {}
    ends = {name: (fit[name].min(), fit[name].max()) for name in ("height", "count", "bought", "used")}
    A, B = ([{k: None if pd.isna(v) else v for k, v in row.items()} for row in X.to_dict("records")] for X in (A, B))
    K = np.zeros((len(A), len(B)))
    for i, a in enumerate(A):
        for j, b in enumerate(B):
            above = below = 0.0
            for name in fit.columns:
                x, y, w = a[name], b[name], weights.get(name, 1.0)
                if x is None or y is None:
                    continue
                if name in ("colour", "owned", "shop"):
                    s = float(x == y)
                elif name == "size":
                    s = 1.0 - (abs(SIZES.index(x) - SIZES.index(y)) / 2.0) ** power
                else:
                    low, high = ends[name]
                    s = 1.0 - abs((min(max(x, low), high) - min(max(y, low), high)) / (high - low)) ** power
                above, below = above + w * s, below + w
            K[i, j] = above / below if below else 0.0
    return K


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("weights", [None, {"height": 3.0, "colour": 0.5, "used": 0.0}])
def test_it_is_the_mean_over_common_columns(missing, weights):
    fit, new = table(30, missing), table(12, missing, seed=1)
    kernel = krein.Gower(weights=weights).bind(fit)
    assert np.allclose(kernel(new, fit), naive(new, fit, fit, weights), atol=1e-13)
    assert np.allclose(kernel(fit), naive(fit, fit, fit, weights), atol=1e-13)
    assert np.array_equal(kernel.diag(fit), np.ones(30))
    assert krein.check_kernel(krein.Gower(weights=weights), fit).ok


def test_it_is_psd_where_nothing_is_missing_and_may_not_be_otherwise():
    whole, holes = (krein.Gower().bind(table(80, missing)) for missing in (0.0, 0.4))
    assert whole.traits.psd is True
    assert holes.traits.psd is None
    assert np.linalg.eigvalsh(whole(table(80)))[0] > -1e-12
    assert np.linalg.eigvalsh(holes(table(80, 0.4)))[0] < -1e-3


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_a_power_and_an_exponential_of_the_mean(missing, power):
    fit, new = table(30, missing), table(12, missing, seed=1)
    weights = {"height": 3.0, "colour": 0.5, "used": 0.0}
    s = naive(new, fit, fit, weights, power)
    plain = krein.Gower(weights=weights, power=power).bind(fit)
    assert np.allclose(plain(new, fit), s, atol=1e-13)
    kernel = krein.Gower(weights=weights, power=power, decay=2.0).bind(fit)
    assert np.allclose(kernel(new, fit), np.exp(-2.0 * (1.0 - s) / kernel.typical), atol=1e-13)
    assert kernel.traits.psd is (None if missing else True)
    assert plain.traits.psd is (None if missing or power > 1.0 else True)
    for k in (plain, kernel):
        if k.traits.psd:
            assert np.linalg.eigvalsh(k(fit))[0] > -1e-12
        assert krein.check_kernel(k, fit).ok


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_balanced_weights_let_every_column_count_the_same(power):
    fit = table(400, 0.2).assign(same=1.0)
    kernel = krein.Gower(weights="balanced", power=power).bind(fit)
    parts = []
    for name, weight in zip(fit.columns, kernel.balance, strict=True):
        one = fit[[name]].dropna()
        parts.append(weight * (1.0 - krein.Gower(power=power).bind(one)(one)).mean())
    assert parts[-1] == 0.0
    assert np.allclose(parts[:-1], np.mean(parts[:-1]), rtol=0.05)  # the weights come from a sample of pairs
    assert np.isclose(np.mean(kernel.balance), 1.0)
    assert np.isclose(kernel.typical, sum(parts) / sum(kernel.balance), rtol=0.05)


def test_a_product_over_columns_learns_an_interaction_that_a_sum_does_not():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=500), "colour": rng.choice(["red", "green"], 500)})
    y = (frame["x"] > 0.0) == (frame["colour"] == "red")
    scores = [
        krein.SVC(kernel=krein.Gower(decay=decay)).fit(frame[:250], y[:250]).score(frame[250:], y[250:])
        for decay in (None, 2.0)
    ]
    assert scores[0] < 0.7
    assert scores[1] > 0.95


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_frames_of_three_libraries_are_the_same_rows(missing):
    frame = table(40, missing)
    wanted = krein.Gower().bind(frame)(frame)
    arrow = pa.Table.from_pandas(frame)
    assert np.allclose(krein.Gower().bind(arrow)(arrow), wanted, atol=1e-13)
    plain = frame.drop(columns="size")  # polars has no ordered categories
    other = pl.from_pandas(plain)
    assert np.allclose(krein.Gower().bind(other)(other), krein.Gower().bind(plain)(plain), atol=1e-13)


def test_arrays_and_lists_of_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    distances = (np.abs(X[:, None] - X) / np.ptp(X, axis=0)).mean(2)
    assert np.allclose(krein.Gower().bind(X)(X), 1.0 - distances)
    rows = [(float(x), "ab"[i % 2], datetime.date(2020, 1, 1 + i)) for i, x in enumerate(X[:, 0])]
    same = np.arange(20) % 2 == (np.arange(20) % 2)[:, None]
    days = np.abs(np.arange(20) - np.arange(20)[:, None]) / 19.0
    numbers = np.abs(X[:, :1] - X[:, 0]) / np.ptp(X[:, 0])
    assert np.allclose(krein.Gower().bind(rows)(rows), (3.0 - numbers - ~same - days) / 3.0)
    codes = rng.integers(0, 3, size=(20, 2)).astype(float)
    chosen = krein.Gower(categorical_features=[0, 1], weights=[1.0, 3.0]).bind(codes)
    assert np.allclose(chosen(codes), (codes[:, None] == codes) @ [0.25, 0.75])


def test_tiles_and_parts_give_the_same_values(monkeypatch):
    frame = table(50, 0.2)
    kernel, rows = krein.Gower().bind(frame), as_mixed_rows(frame)
    whole = kernel(rows)
    monkeypatch.setattr(gower, "TILE_ENTRIES", 100)
    assert np.allclose(kernel(rows), whole, rtol=0.0, atol=1e-15)
    assert np.allclose(kernel(rows[7:19], rows[np.array([3, 40])]), whole[7:19][:, [3, 40]], rtol=0.0, atol=1e-15)


def test_a_machine_takes_a_frame_and_is_that_of_the_matrix():
    frame = table(50, 0.1)
    y = (frame["height"].fillna(0.0) > 0.0).to_numpy()
    K = naive(frame, frame, frame)
    machine = krein.KernelRidge(kernel=krein.Gower(), alpha=0.5, correction="none").fit(frame, y.astype(float))
    wanted = K @ np.linalg.solve(K + 0.5 * np.eye(50), y.astype(float))
    assert np.allclose(machine.predict(frame), wanted, atol=1e-8)
    assert repr(machine._kernel) == "Gower()"
    assert list(machine.feature_names_in_) == list(frame.columns)
    for other in (krein.SVC(kernel=krein.Gower()), krein.KernelRidgeClassifier(kernel=krein.Gower())):
        assert other.fit(frame, y).score(frame, y) > 0.8
    assert krein.KernelPCA(n_components=2, kernel=krein.Gower()).fit_transform(frame).shape == (50, 2)
    labels = krein.SpectralClustering(n_clusters=3, affinity=krein.Gower(), random_state=0).fit(frame).labels_
    assert labels.shape == (50,)
    assert krein.inspect(frame, krein.Gower(), random_state=0).n_objects == 50


def test_blocks_approximate_it_and_few_similarities_serve_many_rows():
    frame = table(700, 0.1)
    y = (frame["height"].fillna(0.0) > 0.0).to_numpy()
    few = krein.Policy(exact_rows=300, matrix_memory=5e5)
    machine = krein.KernelRidgeClassifier(kernel=krein.Gower(), policy=few, random_state=0).fit(frame, y)
    assert machine.score(frame, y) > 0.8
    a = krein.approximate(frame, krein.Gower(), n_blocks=4, rank=60, random_state=0)
    K = a.kernel(a.objects)
    error = np.linalg.norm(K - a.factorization.to_dense()) / np.linalg.norm(K)
    assert error < 0.05
    assert np.allclose(a.kernel_rows(frame[:9]), a.factorization.to_dense()[:9], atol=0.2)


def test_a_distance_of_mixed_rows_becomes_a_similarity():
    frame = table(40, 0.1)
    K = naive(frame, frame, frame)
    kernel = krein.FromDistances(krein.Gower(distance=True), scale=0.2).bind(as_mixed_rows(frame))
    assert np.allclose(kernel(frame), np.exp(-(1.0 - K) / 0.2))
    with pytest.raises(krein.InputError, match="is a distance"):
        krein.approximate(frame, krein.Gower(distance=True))


def test_unseen_categories_are_different_and_numbers_outside_the_range_are_at_its_end():
    fit = pd.DataFrame({"colour": ["red", "green", "red"], "height": [1.0, 2.0, 3.0]})
    kernel = krein.Gower().bind(fit)
    new = pd.DataFrame({"height": [9.0, 2.0], "colour": ["grey", "red"]})
    assert np.allclose(kernel(new, fit), [[0.0, 0.25, 0.5], [0.75, 0.5, 0.75]])
    two = pd.DataFrame({"colour": ["grey", "black", "grey"], "height": [1.0, 1.0, 1.0]})
    assert np.allclose(kernel(two), [[1.0, 0.5, 1.0], [0.5, 1.0, 0.5], [1.0, 0.5, 1.0]])


def test_it_is_saved_and_loaded(tmp_path):
    frame = table(90, 0.1)
    machine = krein.SVC(kernel=krein.Gower(weights={"height": 2.0}), random_state=0).fit(frame, frame["owned"].isna())
    krein.save(machine, tmp_path / "model.krein")
    loaded = krein.load(tmp_path / "model.krein")
    new = table(30, 0.1, seed=5)
    assert np.array_equal(loaded.decision_function(new), machine.decision_function(new))
    assert loaded.kernel == machine.kernel


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.drop(columns="colour"), "colour"),
        (lambda frame: frame.assign(extra=1.0), "extra"),
        (lambda frame: frame.assign(height="tall"), "'height' held numbers in the fit; here it holds categories"),
        (lambda frame: frame.assign(colour=1.0), "'colour' held categories in the fit; here it holds numbers"),
        (lambda frame: frame.assign(size="huge"), "'size' is ordered, and the fit had no place for 'huge'"),
        (lambda frame: frame.assign(height=np.inf), "'height' holds 5 infinite values"),
        (lambda frame: frame.map(lambda value: None), "5 of 5 rows have none"),
    ],
)
def test_other_columns_are_refused(change, said):
    frame = table(40)
    machine = krein.SVC(kernel=krein.Gower()).fit(frame, np.arange(40) % 2)
    with pytest.raises(ValueError, match=said):
        machine.predict(change(frame[:5]))
    with pytest.raises(ValueError, match=said):
        krein.Gower().bind(frame)(change(frame[:5]), frame)


@pytest.mark.parametrize(
    ("X", "parameters", "said"),
    [
        (table(9), {"weights": {"weight": 1.0}}, "weights has 'weight', which is no column"),
        (table(9), {"weights": [1.0, 2.0]}, "one number per column, 8; got 2"),
        (table(9), {"weights": [-1.0]}, "at least 0"),
        (table(9), {"weights": "even"}, "weights must be one of 'balanced'"),
        (table(9), {"decay": 0.0}, "decay must be None or a finite number above 0"),
        (table(9), {"decay": 1.0, "distance": True}, "decay or distance=True, not both"),
        (table(9), {"power": 2.5}, "above 0 and at most 2"),
        (table(9), {"weights": [0.0] * 8}, "not all 0"),
        (table(9), {"categorical_features": "colour"}, "sequence of names"),
        (table(9), {"categorical_features": [11]}, "11, which is no column"),
        (["a", "b"], {}, "must be a table of rows and columns"),
        ([[1.0], [1.0, 2.0]], {}, "equally long"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, "a stands twice"),
        (pd.DataFrame({"a": [[1], [2]]}), {}, "cannot be hashed"),
        (np.ones((3, 2)) * 1j, {}, "complex"),
    ],
)
def test_what_cannot_be_compared_is_refused(X, parameters, said):
    with pytest.raises(krein.InputError, match=said):
        krein.Gower(**parameters).bind(X)
