"""Pictures of what machines did: lines and points are the numbers of the fit, recomputed apart where they can be."""

from __future__ import annotations

import itertools
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import Ridge
from sklearn.preprocessing import OneHotEncoder

import krein
from krein.choosing.candidates import Candidate, Selection
from krein.errors import InputError
from krein.solvers import solve_dual

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from krein.plotting import (  # noqa: E402
    ConvergenceDisplay,
    CoreDisplay,
    InspectionDisplay,
    KernelMatrixDisplay,
    MapDisplay,
    MemoryDisplay,
    SpectrumDisplay,
    Spot,
    UncertaintyDisplay,
)


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    return krein.datasets.mixture(240, n_features=4, n_clusters=3, random_state=1)


@pytest.fixture(scope="module")
def machine(data):
    options = {"n_blocks": 2, "rank": 6, "random_state": 0, "correction": "flip"}
    with pytest.warns(krein.KreinWarning, match="indefinite"):
        return krein.SVC(kernel=krein.Sigmoid(gamma=0.2, coef0=-1.0), **options).fit(data.X, data.y)


def line(display, start):
    (found,) = [li for li in display.ax_.get_lines() if str(li.get_label()).startswith(start)]
    return found


def legend(display):
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


# -- from_estimator of the three that show a matrix --------------------------------------------------------------------


def test_the_spectrum_of_a_machine_is_the_one_it_met_and_its_correction(machine):
    display = SpectrumDisplay.from_estimator(machine)
    assert list(display.corrected) == ["flip"]
    assert (display.eigenvalues < 0).sum() == machine.n_negative_ > 0
    dense = np.linalg.eigvalsh(machine.approximation_.factorization.to_dense())
    used = np.sort(np.append(display.corrected["flip"], np.zeros(display.n_outside)))
    assert np.allclose(used, dense, atol=1e-9 * dense.max())
    assert list(SpectrumDisplay.from_estimator(machine, ("clip", "shift")).corrected) == ["clip", "shift"]


def test_the_core_and_the_matrix_of_a_machine_are_those_it_uses(machine):
    f = machine.approximation_.factorization
    norms = CoreDisplay.from_estimator(machine).norms
    first = f.spans[0][1]
    assert np.isclose(norms[0, 0], np.linalg.norm(f.core[first, first]))
    display = KernelMatrixDisplay.from_estimator(machine, 50, panels=("approximation",))
    shown = np.asarray(display.ax_[0].images[0].get_array())
    assert np.allclose(shown, f.to_dense()[np.ix_(display.sorted_rows, display.sorted_rows)])


def test_what_is_no_kernel_machine_is_refused(data):
    with pytest.raises(InputError, match="kernel machine of krein"):
        SpectrumDisplay.from_estimator(Ridge().fit(data.X, data.y))
    with pytest.raises(ValueError, match="not fitted"):
        CoreDisplay.from_estimator(krein.SVC())


# -- convergence -------------------------------------------------------------------------------------------------------


def test_each_dual_has_a_line_that_ends_at_its_gap(machine):
    display = ConvergenceDisplay.from_estimator(machine)
    assert len(machine.gap_paths_) == 3
    for (a, b), path, gap in zip(((0, 1), (0, 2), (1, 2)), machine.gap_paths_, machine._gaps, strict=True):
        drawn = line(display, f"{machine.classes_[a]} against {machine.classes_[b]}")
        assert np.array_equal(drawn.get_xdata(), path[:, 0])
        assert np.array_equal(drawn.get_ydata(), np.maximum(path[:, 1], 1e-16))
        assert path[-1, 1] == gap
        assert (np.diff(path[:, 0]) >= 0).all()
    assert line(display, "tol").get_ydata()[0] == machine.tol
    assert display.ax_.get_yscale() == "log"


def small_dual(method="auto", shift=0.0, n=300):
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(n, 5)))[0]
    f = krein.Factorization.from_blocks((basis,), np.diag([9.0, 5.0, 3.0, 2.0, 1.0]), np.arange(n), shift)
    y = np.where(basis[:, 0] + 0.02 * rng.normal(size=n) > 0, 1.0, -1.0)
    return f, y, solve_dual(f, y, np.minimum(0, y), np.maximum(0, y), method=method)


@pytest.mark.parametrize(("method", "shift"), [("interior-point", 0.0), ("newton", 0.02)])
def test_the_path_of_a_dual_falls_from_the_start_to_its_gap(method, shift):
    _, _, dual = small_dual(method, shift)
    path = np.array(dual.path)
    assert dual.method == method
    assert dual.converged
    assert path[-1].tolist() == [dual.n_iter, dual.gap]
    assert path[:, 1].max() > 1e3 * max(dual.gap, 1e-16)
    if method == "interior-point":  # every step, and the polish
        assert path[:, 0].tolist() == [*range(dual.n_iter + 1), dual.n_iter]
    drawn = line(ConvergenceDisplay.from_dual(dual, tol=1e-6), method)
    assert np.array_equal(drawn.get_xdata(), path[:, 0])


def test_the_first_gap_of_the_interior_point_is_that_of_its_start():
    f, y, dual = small_dual("interior-point")
    K, low, high = f.to_dense(), np.minimum(0, y), np.maximum(0, y)
    share = -low.sum() / (high - low).sum()
    b = low + share * (high - low)
    slope = K @ b - y  # the multiplier is 0 there
    excess = float((slope * b - np.minimum(slope * low, slope * high)).sum())
    objective = abs(0.5 * b @ K @ b - y @ b)
    assert dual.path[0][0] == 0
    assert np.isclose(dual.path[0][1], excess / objective, rtol=1e-3)


def test_a_refined_machine_has_a_path_of_exact_gaps(data):
    two = data.y < 2
    fitted = krein.SVC(n_blocks=2, rank=4, refine="exact", random_state=0, gamma=0.2).fit(data.X[two], data.y[two])
    (path,) = fitted.gap_paths_
    assert path[-1, 1] == fitted.gap_
    display = ConvergenceDisplay.from_estimator(fitted)
    assert not any(text.startswith("tol") for text in legend(display))  # another rule stops it


def test_of_many_duals_the_slowest_is_named():
    paths = {f"{i} against {i + 1}": np.array([[0, 1.0], [i, 1e-7]]) for i in range(1, 9)}
    paths["the last"] = np.array([[0, 1.0], [2, 1e-3]])
    display = ConvergenceDisplay(paths=paths, tol=1e-6).plot()
    assert legend(display) == ["slowest: the last", "the other 8 duals", "tol = 1e-06"]
    assert line(display, "slowest").get_ydata()[-1] == 1e-3


def test_a_machine_without_a_dual_is_told(data):
    ridge = krein.KernelRidge(n_blocks=1, rank=5).fit(data.X, data.X[:, 0])
    with pytest.raises(InputError, match="gap_paths_"):
        ConvergenceDisplay.from_estimator(ridge)
    with pytest.raises(InputError, match="at least one pair"):
        ConvergenceDisplay(paths={})


# -- error against memory ----------------------------------------------------------------------------------------------


def test_the_grid_shows_true_errors_over_bytes_and_marks_the_choice(data):
    kernel = krein.RBF(gamma=0.1)
    display = MemoryDisplay.from_grid(data.X, kernel, n_blocks=(1, 3), ranks=(4, 8), max_error=0.05)
    K = kernel(data.X)
    for c, name in ((1, "1 block"), (3, "3 blocks")):
        drawn = line(display, name)
        for x, y, k in zip(drawn.get_xdata(), drawn.get_ydata(), (4, 8), strict=True):
            a = krein.approximate(data.X, kernel, n_blocks=c, rank=k, drop=0.0, random_state=0)
            assert x == a.factorization.nbytes
            assert np.isclose(y, np.linalg.norm(K - a.factorization.to_dense()) / np.linalg.norm(K))
    own = krein.approximate(data.X, kernel, max_error=0.05, random_state=0).factorization
    ring = line(display, "chosen")
    assert ring.get_xdata()[0] == own.nbytes
    assert line(display, "target").get_ydata()[0] == 0.05
    assert {t.get_text() for t in display.ax_.texts} <= {"k = 4", "k = 8"}


def test_a_search_is_shown_as_it_was_and_its_result_in_a_ring():
    X = krein.datasets.mixture(2100, n_features=3, n_clusters=4, random_state=0).X
    a = krein.approximate(X, krein.RBF(), max_error=0.1, random_state=0)
    display = MemoryDisplay.from_approximation(a)
    forecast = line(display, "forecast")
    wanted = sorted((t.nbytes, t.error) for t in a.search_.tried if t.stage not in ("built", "kept"))
    assert sorted(zip(forecast.get_xdata(), forecast.get_ydata(), strict=True)) == wanted
    ring = line(display, "chosen")
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (a.factorization.nbytes, a.search_.error.relative)
    assert (display.chosen.low, display.chosen.high) == (a.search_.error.low, a.search_.error.high)


def test_an_approximation_built_as_asked_has_nothing_to_show(data):
    a = krein.approximate(data.X, krein.RBF(), n_blocks=2, rank=4, random_state=0)
    with pytest.raises(InputError, match="from_grid"):
        MemoryDisplay.from_approximation(a)
    with pytest.raises(InputError, match="at least one choice"):
        MemoryDisplay(spots=[])


def test_a_machine_that_chose_by_score_shows_scores(data):
    ridge = krein.KernelRidge(n_blocks=1, rank=5).fit(data.X, data.X[:, 0])
    kernel = ridge.approximation_.kernel
    trials = [
        Candidate(c, k, "float64", b, score=s, coupled=coupled, kernel=kernel)
        for c, k, coupled, s, b in ((12, 64, False, 0.76, 4_000_000), (8, 128, True, 0.78, 22_000_000))
    ]
    ridge.selection_ = Selection(tuple(trials), "the best score", 1, kernel=kernel)
    display = MemoryDisplay.from_estimator(ridge)
    assert line(display, "uncoupled").get_ydata().tolist() == [0.76]
    assert line(display, "coupled").get_xdata().tolist() == [22_000_000]
    assert line(display, "chosen: 8 blocks of rank 128").get_ydata()[0] == 0.78
    assert display.ax_.get_yscale() == "linear"


def test_names_of_spots_do_not_overlap():
    rng = np.random.default_rng(0)
    spots = [Spot(2, k, int(1e6 * (1 + 0.1 * (k > 20) * rng.random())), 0.1) for k in range(1, 24)]
    display = MemoryDisplay(spots=spots).plot()
    display.figure_.draw_without_rendering()
    boxes = [text.get_window_extent() for text in display.ax_.texts]
    assert 3 <= len(boxes) < 23  # those that would have been hidden are left out
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def crossings(axis):
    """(label, line) of all pairs that touch, in pixels: each line cut into short pieces."""
    axis.figure.canvas.draw()
    found = []
    for drawn in axis.get_lines():
        if drawn.get_linestyle() == "None":
            continue
        ends = drawn.get_transform().transform(np.column_stack(drawn.get_data()).astype(float))
        way = np.concatenate([np.linspace(a, b, 400) for a, b in pairwise(ends)])
        for text in axis.texts:
            box = text.get_window_extent()
            inside = (way >= [box.x0, box.y0]).all(1) & (way <= [box.x1, box.y1]).all(1)
            found += [(text.get_text(), drawn.get_label())] if inside.any() else []
    return found


def falling():
    """Lines that cross and lie side by side, as real ones do."""
    return [
        Spot(c, k, int(1e4 * k * (1 + c / 8) + 2e5 * c), 1.5 / k**e)
        for c, e in ((1, 0.9), (4, 1.0), (16, 1.2)) for k in (8, 16, 32, 64)
    ]  # fmt: skip


def test_no_line_runs_through_the_name_of_a_spot():
    display = MemoryDisplay(spots=falling(), target=0.05).plot()
    assert len(display.ax_.texts) >= 9
    assert crossings(display.ax_) == []


def test_no_line_runs_through_a_name_of_an_inspections_panels(data):
    found = krein.inspect(data.X, krein.RBF(gamma=0.1), random_state=0)
    display = InspectionDisplay.from_inspection(found)
    panel = display.ax_[display.panels.index("memory")]
    assert len(panel.texts) >= 2
    assert crossings(panel) == []


def test_errors_that_are_rounding_do_not_take_the_axis():
    exact = Spot(1, 1200, 11_000_000, 4e-15)
    display = MemoryDisplay(spots=falling(), chosen=exact).plot()
    display.figure_.canvas.draw()
    least, low = min(s.value for s in falling()), display.ax_.get_ylim()[0]
    assert low > least / 10
    (y,) = line(display, "chosen").get_ydata()
    assert low < y < least / 2
    assert line(display, "on this line: 0, to rounding").get_ydata()[0] == y
    ticks = {t.get_text(): v for t, v in zip(display.ax_.get_yticklabels(), display.ax_.get_yticks(), strict=True)}
    assert ticks.pop("0") == y
    assert min(ticks.values()) > 2 * y
    assert display.chosen.value == 4e-15


def test_errors_that_are_all_rounding_are_drawn_as_they_are():
    display = MemoryDisplay(spots=[Spot(1, 4, 1000, 0.0), Spot(1, 8, 2000, 3e-15)]).plot()
    assert line(display, "1 block").get_ydata().tolist() == [1e-16, 3e-15]


@pytest.mark.parametrize("kind", ["spectrum", "memory", "convergence", "uncertainty"])
@pytest.mark.parametrize("size", [(6.4, 4.8), (4.5, 3.5)])
def test_nothing_is_cut_off_on_plain_axes(machine, process, kind, size):
    figure, axis = plt.subplots(figsize=size)
    if kind == "spectrum":
        display = SpectrumDisplay.from_estimator(machine, ("shift", "clip"), ax=axis)
        assert "\n" in axis.get_xlabel()
    elif kind == "memory":
        display = MemoryDisplay(spots=falling(), chosen=falling()[2], target=0.05).plot(ax=axis, columns=2)
    elif kind == "convergence":
        display = ConvergenceDisplay.from_estimator(machine, ax=axis)
    else:
        display = UncertaintyDisplay.from_estimator(*process, ax=axis)
    figure.canvas.draw()
    seen = display.ax_.get_tightbbox()
    assert min(seen.y0, figure.bbox.y1 - seen.y1) >= 0
    if size[0] > 5:  # narrow paper cannot hold the words of a legend
        assert min(seen.x0, figure.bbox.x1 - seen.x1) >= 0


# -- uncertainty -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process():
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0.0, 10.0, size=(40, 1)), axis=0)
    y = np.sin(x[:, 0]) + 0.1 * rng.normal(size=40)
    return krein.GaussianProcessRegressor(krein.RBF(gamma=0.5), alpha=0.01, optimizer=None).fit(x, y), x, y


def band(display):
    """(lower, upper) of the filled interval."""
    (found,) = display.ax_.collections
    return found.get_paths()[0].vertices


def test_the_curve_is_the_prediction_and_the_band_its_interval(process):
    gp, x, y = process
    display = UncertaintyDisplay.from_estimator(gp, x, y, n_points=50)
    grid = np.linspace(x.min(), x.max(), 50)
    mean, std = gp.predict(grid[:, None], return_std=True)
    drawn = line(display, "predicted mean")
    assert np.allclose(drawn.get_xdata(), grid)
    assert np.allclose(drawn.get_ydata(), mean)
    edges = band(display)
    upper = norm.ppf(0.975) * std + mean
    assert np.isclose(edges[:, 1].max(), upper.max())
    assert np.isclose(edges[:, 1].min(), (2 * mean - upper).min())
    assert np.array_equal(line(display, "observed").get_ydata(), y)


def test_a_slice_holds_the_other_features_at_their_medians(data):
    gp = krein.GaussianProcessRegressor(krein.RBF(gamma=0.1), alpha=0.1, optimizer=None).fit(data.X, data.X[:, 1] ** 2)
    display = UncertaintyDisplay.from_estimator(gp, data.X, feature=1, n_points=7)
    rows = np.tile(np.median(data.X, axis=0), (7, 1))
    rows[:, 1] = np.linspace(data.X[:, 1].min(), data.X[:, 1].max(), 7)
    assert np.allclose(line(display, "predicted mean").get_ydata(), gp.predict(rows))
    assert display.ax_.get_xlabel() == "feature 1, the others at their medians"
    with pytest.raises(InputError, match="feature must be a column"):
        UncertaintyDisplay.from_estimator(gp, data.X, feature=4)


@pytest.mark.parametrize("n", [30, 100])
def test_rows_are_sorted_by_their_prediction_and_the_share_inside_is_true(n):
    rng = np.random.default_rng(1)
    mean, std = rng.normal(size=n), rng.uniform(0.5, 1.0, size=n)
    y = mean + std * rng.normal(size=n)
    display = UncertaintyDisplay.from_predictions(mean, std, y, coverage=0.5)
    order = np.argsort(mean)
    assert np.array_equal(line(display, "predicted mean").get_ydata(), mean[order])
    assert np.array_equal(line(display, "observed").get_ydata(), y[order])
    inside = np.mean((norm.cdf(y, mean, std) > 0.25) & (norm.cdf(y, mean, std) < 0.75))
    assert display.covered == inside
    assert f"{inside:.0%} of {n} inside" in line(display, "observed").get_label()


def test_predictions_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="std must hold 3 finite"):
        UncertaintyDisplay.from_predictions([1.0, 2.0, 3.0], [1.0, 2.0])
    with pytest.raises(InputError, match="at least 0"):
        UncertaintyDisplay.from_predictions([1.0], [-1.0])
    with pytest.raises(InputError, match="One target"):
        UncertaintyDisplay.from_predictions(np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(InputError, match="coverage"):
        UncertaintyDisplay.from_predictions([1.0], [1.0], coverage=95)


def test_legends_lie_above_the_axes(machine, process):
    gp, x, y = process
    for display in (ConvergenceDisplay.from_estimator(machine), UncertaintyDisplay.from_estimator(gp, x, y)):
        display.figure_.canvas.draw()
        assert display.ax_.get_legend().get_window_extent().y0 >= display.ax_.get_window_extent().y1 - 1


# -- a map of objects --------------------------------------------------------------------------------------------------


def drawn(display):
    return {str(group.get_label()): np.asarray(group.get_offsets()) for group in display.ax_.collections}


def test_a_map_shows_what_transform_returns_by_label(data):
    embedding = krein.KernelPCA(n_components=3).fit(data.X)
    display = MapDisplay.from_estimator(embedding, data.X, data.y, components=(0, 2))
    Z = embedding.transform(data.X)
    assert set(drawn(display)) == {str(label) for label in np.unique(data.y)} == set(legend(display))
    for label in np.unique(data.y):
        assert np.array_equal(drawn(display)[str(label)], Z[data.y == label][:, [0, 2]])
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("component 1", "component 3")


def test_a_map_names_objects_without_vectors():
    words = ["house", "mouse", "louse", "water", "later"]
    embedding = krein.KernelPCA(n_components=2, kernel=krein.EditSimilarity()).fit(words)
    display = MapDisplay.from_estimator(embedding, words, names=words)
    assert [text.get_text() for text in display.ax_.texts] == words
    (points,) = drawn(display).values()
    assert np.array_equal(points, embedding.transform(words))


def test_names_of_near_points_do_not_cover_each_other() -> None:
    points = np.array([[0.0, 0.0], [1e-3, 0.0], [0.0, 1e-3], [1e-3, 1e-3], [1.0, 1.0]])
    display = MapDisplay(points=points, names=["one", "two", "three", "four", "far"]).plot()
    display.figure_.canvas.draw()
    boxes = [text.get_window_extent() for text in display.ax_.texts]
    assert len(boxes) == 5
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_thirty_six_labels_look_different_and_more_are_refused():
    points = np.random.default_rng(0).normal(size=(74, 2))
    display = MapDisplay(points=points[:72], labels=np.arange(72) // 2).plot()
    looks = {(tuple(g.get_facecolor()[0]), g.get_paths()[0].vertices.tobytes()) for g in display.ax_.collections}
    assert len(looks) == 36
    with pytest.raises(InputError, match="tells 36 labels apart; got 37"):
        MapDisplay(points=points, labels=np.arange(74) // 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"components": (0, 2)}, "two of the 2"),
        ({"y": [0, 1]}, "labels must have one entry per point"),
        ({"names": ["a"]}, "names must have one entry per point"),
        ({"components": 0}, "two of the 2"),
        ({"components": (0, 1, 1)}, "two of the 2"),
    ],
)
def test_a_map_says_what_does_not_fit(data, options, message):
    embedding = krein.KernelPCA(n_components=2).fit(data.X)
    with pytest.raises(InputError, match=message):
        MapDisplay.from_estimator(embedding, data.X, **options)


def test_a_machine_without_transform_has_no_map(data, machine):
    with pytest.raises(InputError, match="must have transform"):
        MapDisplay.from_estimator(machine, data.X)


@pytest.mark.parametrize("points", [np.zeros((3, 3)), np.zeros((0, 2)), np.full((3, 2), np.nan)])
def test_points_that_cannot_be_drawn(points):
    with pytest.raises(InputError, match="points"):
        MapDisplay(points=points)


def test_labels_of_any_kind_and_sparse_features(data):
    points = np.arange(6.0).reshape(3, 2)
    assert legend(MapDisplay(points=points, labels=["a", None, "a"]).plot()) == ["None", "a"]
    assert legend(MapDisplay(points=points, labels=[10, 2, 10]).plot()) == ["2", "10"]
    sparse = OneHotEncoder().fit(data.y[:, None])
    display = MapDisplay.from_estimator(sparse, data.y[:, None])
    (found,) = drawn(display).values()
    assert np.array_equal(found, sparse.transform(data.y[:, None]).toarray()[:, :2])
