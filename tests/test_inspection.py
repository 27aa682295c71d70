"""What an inspection says against dense linear algebra: exact on all objects, within its bars on some."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.cluster import KMeans
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

import krein
from krein.errors import InputError
from krein.inspection import measures

WORDS = ["".join(w) for w in combinations("abcdefgh", 3)]  # 56 strings


def indefinite(n, seed=0, rank=8):
    """A symmetric matrix with as many negative directions as positive ones, and smaller ones."""
    rng = np.random.default_rng(seed)
    U = rng.normal(size=(n, rank))
    return U @ np.diag(np.where(np.arange(rank) % 2, -0.4, 1.0)) @ U.T


def negative_share(K):
    values = np.linalg.eigvalsh(K)
    return np.abs(values[values < -1e-9 * np.abs(values).max()]).sum() / np.abs(values).sum()


def off_diagonal(A):
    return A[~np.eye(len(A), dtype=bool)]


def squared(K):
    return np.diag(K)[:, None] + np.diag(K) - 2 * K


def violating(K):
    """The share of triples that violate the triangle inequality, by looking at all of them."""
    d = np.sqrt(np.maximum(squared(K), 0.0))
    sides = np.array([(d[i, j], d[j, k], d[i, k]) for i, j, k in combinations(range(len(K)), 3)])
    return np.mean(2 * sides.max(1) > sides.sum(1) + 1e-6)


def overlap(A, B):
    """Letters in common, less the different ones: a similarity of strings in plain Python."""
    return np.array([[len(set(a) & set(b)) - 0.6 * len(set(a) ^ set(b)) for b in B] for a in A], dtype=float)


# -- all objects: exact ------------------------------------------------------------------------------------------------


def test_of_all_objects_every_number_is_exact():
    K = indefinite(60)
    found = krein.inspect(K, random_state=0)
    dense = np.linalg.eigvalsh(K)[::-1]
    assert found.n_sampled == found.n_objects == 60
    assert np.allclose(found.eigenvalues, dense, atol=1e-10)
    assert found.inertia == (4, 52, 4)
    assert np.isclose(found.negative_share.value, negative_share(K))
    assert found.negative_share.low == found.negative_share.value == found.negative_share.high
    assert np.isclose(found.negative_entries.value, np.mean(off_diagonal(K) < 0))
    assert np.isclose(found.negative_squares.value, np.mean(off_diagonal(squared(K)) < 0))
    assert np.allclose((found.low, found.high), (K.min(), K.max()))
    assert np.allclose(found.diagonal, (np.diag(K).min(), np.diag(K).max()))
    assert not found.constant_diagonal
    assert found.counts.sum() == 60 * 59
    share = violating(K)
    assert found.triangle_violations.low <= share <= found.triangle_violations.high
    assert found.triangle_violations.high - found.triangle_violations.low < 0.01


def test_a_psd_kernel_has_nothing_negative_and_needs_nothing():
    X = krein.datasets.mixture(120, n_features=3, random_state=0).X
    found = krein.inspect(X, krein.RBF(), np.arange(120) % 2, random_state=0)
    assert found.psd
    assert found.recommended == "none"
    assert found.negative_share.value == found.negative_squares.value == found.triangle_violations.value == 0.0
    assert found.triangle_violations.high < 1e-4
    assert found.constant_diagonal
    assert [c.name for c in found.corrections] == ["none"]


def test_rounding_is_no_indefiniteness():
    X = np.random.default_rng(0).normal(size=(150, 3))
    assert krein.inspect(X, krein.Linear(), random_state=0).inertia == (3, 147, 0)
    assert krein.inspect(X.astype(np.float32), krein.Linear(), random_state=0).inertia == (3, 147, 0)


def test_the_blocks_of_a_matrix_of_blocks_hold_all_of_it():
    rng = np.random.default_rng(0)
    U = np.zeros((90, 6))
    U[:30, :2], U[30:60, 2:4], U[60:, 4:] = (5 + rng.normal(size=(30, 2)) for _ in range(3))
    K = U @ U.T
    mixed = rng.permutation(90)
    shares = {b.n_blocks: b for b in krein.inspect(K[np.ix_(mixed, mixed)], random_state=0).blocks}
    assert shares[2].share.value > 0.99  # two together and one alone: nothing lies between
    assert np.isclose(shares[2].chance, 5 / 9)
    assert all(b.share.value > b.chance for b in shares.values())


def test_the_share_in_blocks_is_that_of_the_clusters():
    X = krein.datasets.mixture(200, n_features=2, n_clusters=2, spread=0.2, random_state=3)
    K = krein.RBF(gamma=0.3)(X.X)
    found = krein.inspect(X.X, krein.RBF(gamma=0.3), random_state=0).blocks[0]
    labels = KMeans(2, n_init=3, random_state=0).fit_predict(X.X)
    same = np.equal.outer(labels, labels)
    assert found.n_blocks == 2
    assert np.isclose(found.share.value, (K[same] ** 2).sum() / (K**2).sum(), rtol=1e-6)
    assert np.isclose(found.chance, same.mean())


@pytest.mark.parametrize("n", [50, 60, 10_000])
def test_the_diagonal_of_a_sample_weighs_what_it_does_among_all(n):
    places = np.repeat([[0.0], [9.0]], 25, axis=0)  # two groups of 25, of n objects
    K = np.where(np.eye(50, dtype=bool), 1.0, 0.5)
    shares = measures.block_shares(K, places, measures.Subsets(50, n, np.random.default_rng(0)), 0)
    pairs = 0.25 * n * (n - 1)
    assert shares[0].n_blocks == 2
    assert np.isclose(shares[0].share.value, (n + pairs * 24 / 49) / (n + pairs))


def test_a_matrix_of_low_rank_is_forecast_to_need_no_more():
    found = krein.inspect(indefinite(400), random_state=0)
    errors = {(f.n_blocks, f.rank): f for f in found.forecasts}
    assert errors[1, 16].error < 1e-6
    assert errors[1, 16].nbytes == 8 * (400 * 16 + 16**2 + 400)
    assert found.choice == errors[1, 16]


def test_forecasts_are_near_what_is_built():
    X = krein.datasets.mixture(900, n_features=4, n_clusters=5, random_state=0).X
    found = krein.inspect(X, krein.RBF(), max_evaluations=180_000, random_state=0)
    for f in found.forecasts:
        if (f.n_blocks, f.rank) in ((1, 16), (4, 16)):
            a = krein.approximate(X, krein.RBF(), n_blocks=f.n_blocks, rank=f.rank, drop=0.0, random_state=0)
            assert f.nbytes == a.factorization.nbytes
            assert 0.6 < f.error / a.error().relative < 1.6


# -- a sample: within its bars -----------------------------------------------------------------------------------------


def test_intervals_of_a_sample_hold_what_they_are_about():
    n, m, trials = 400, 100, 12
    K = indefinite(n, seed=3)
    rng = np.random.default_rng(0)
    subsets = [rng.choice(n, m, replace=False) for _ in range(60)]
    wanted = {
        "negative_share": np.mean([negative_share(K[np.ix_(s, s)]) for s in subsets]),
        "negative_entries": np.mean(off_diagonal(K) < 0),
        "negative_squares": np.mean(off_diagonal(squared(K)) < 0),
        "triangle_violations": np.mean([violating(K[np.ix_(s[:25], s[:25])]) for s in subsets]),
    }
    hits = dict.fromkeys(wanted, 0)
    for seed in range(trials):
        found = krein.inspect(K, max_evaluations=m**2 + 8 * n + 400, random_state=seed)
        assert abs(found.n_sampled - m) < 12
        for name, value in wanted.items():
            estimate = getattr(found, name)
            assert estimate.low < estimate.value < estimate.high
            hits[name] += estimate.low <= value <= estimate.high
    assert min(hits.values()) >= 0.75 * trials, hits


def test_the_trend_is_that_of_fewer_objects():
    K = indefinite(400, seed=1) + 4.0 * (lambda G: (G + G.T) / 20)(np.random.default_rng(1).normal(size=(400, 400)))
    found = krein.inspect(K, max_evaluations=45_000, random_state=0)
    quarter, half = found.trend
    assert (quarter.n_objects, half.n_objects) == (found.n_sampled // 4, found.n_sampled // 2)
    some = np.random.default_rng(5)
    for t in (quarter, half):
        mean = np.mean(
            [negative_share(K[np.ix_(s, s)]) for s in (some.permutation(400)[: t.n_objects] for _ in range(20))]
        )
        assert abs(t.negative_share - mean) < 4 * t.spread
    assert quarter.negative_share < half.negative_share < found.negative_share.value
    low, high = found.negative_share_of_all
    assert low <= negative_share(K) <= high < 0.5
    assert "of all 400" in str(found)


@pytest.mark.parametrize("rho", [2.0, 4.0, 8.0])
def test_the_share_of_all_lies_between_the_bounds(rho):
    X = krein.datasets.mixture(700, n_features=4, n_clusters=4, random_state=2).X
    found = krein.inspect(X, krein.TL1(rho=rho), max_evaluations=45_000, random_state=0)
    low, high = found.negative_share_of_all
    assert low <= negative_share(krein.TL1(rho=rho)(X)) <= high


def test_the_same_seed_gives_the_same_and_another_another():
    K = indefinite(300)
    one, same, other = (krein.inspect(K, max_evaluations=9000, random_state=s) for s in (1, 1, 2))
    assert np.array_equal(one.rows, same.rows)
    assert one.triangle_violations == same.triangle_violations
    assert not np.array_equal(one.rows, other.rows)


# -- strings, matrices and what is counted -----------------------------------------------------------------------------


def test_strings_are_compared_by_a_function_and_every_call_is_counted():
    asked = []

    def counted(A, B):
        asked.append(len(A) * len(B))
        return overlap(A, B)

    found = krein.inspect(WORDS, counted, random_state=0)
    K = overlap(WORDS, WORDS)
    assert sum(asked) == found.n_evaluations
    assert np.allclose(found.eigenvalues, np.linalg.eigvalsh(K)[::-1], atol=1e-9)
    assert np.isclose(found.negative_share.value, negative_share(K))
    asked.clear()
    found = krein.inspect(WORDS, counted, max_evaluations=1500, random_state=0)
    assert sum(asked) == found.n_evaluations <= 1500
    assert 20 < found.n_sampled < 56


@pytest.mark.parametrize("budget", [5000, 10_000])
def test_the_budget_holds_where_self_similarities_cost_too(budget):
    kernel = krein.Normalized(lambda A, B: overlap(A, B) + 10.0)
    assert 0.7 * budget < krein.inspect(WORDS * 3, kernel, max_evaluations=budget).n_evaluations <= budget


@pytest.mark.parametrize("kind", ["dense", "sparse", "kernel", "file"])
def test_a_matrix_may_come_in_any_form(kind, tmp_path):
    K = np.where(np.abs(indefinite(50)) > 2.0, indefinite(50), 0.0)
    given = {"dense": K, "sparse": sp.csr_matrix(K), "kernel": None, "file": None}[kind]
    if kind == "file":
        np.save(tmp_path / "K.npy", K)
        given = np.load(tmp_path / "K.npy", mmap_mode="r")
    found = krein.inspect(None, krein.Precomputed(K)) if kind == "kernel" else krein.inspect(given)
    assert np.allclose(found.eigenvalues, np.linalg.eigvalsh(K)[::-1], atol=1e-9)


def test_a_kernel_may_be_named():
    X = krein.datasets.mixture(60, n_features=3, random_state=0).X
    found = krein.inspect(X, "rbf", random_state=0)
    K = krein.RBF(gamma=1 / (3 * X.var()))(X)
    assert np.allclose(found.eigenvalues, np.linalg.eigvalsh(K)[::-1], atol=1e-8)


# -- corrections -------------------------------------------------------------------------------------------------------


def two_sided():
    """Classes that only the negative directions tell apart."""
    rng = np.random.default_rng(0)
    y = np.arange(160) % 2
    U = np.column_stack([3.0 * rng.normal(size=160), 2.0 * (2 * y - 1) + rng.normal(size=160)])
    return U @ np.diag([1.0, -1.0]) @ U.T, y


@pytest.fixture(scope="module")
def found():
    K, y = two_sided()
    return krein.inspect(K, y=y, random_state=0)


def test_the_correction_that_keeps_the_classes_is_recommended(found):
    K, y = two_sided()
    scores = {c.name: c.score for c in found.corrections}
    assert set(scores) == {"none", "shift", "clip", "flip", "square"}
    assert found.task == "classification"
    assert found.recommended in ("flip", "square")
    assert scores["clip"].high < 0.7 < 0.9 < scores["flip"].low
    # the same apart: |K| of the training rows, rows left out by their features in the eigenvectors
    met = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=1).split(K, y):
        values, V = np.linalg.eigh(K[np.ix_(train, train)])
        kept = np.abs(values) > 1e-9 * np.abs(values).max()
        Z = V[:, kept] * np.sqrt(np.abs(values[kept]))
        new = K[np.ix_(test, train)] @ V[:, kept] / values[kept] * np.sqrt(np.abs(values[kept]))
        machine = SVC(kernel="linear", C=len(y) / len(train)).fit(Z, y[train])
        met += (machine.predict(new) == y[test]).tolist()
    assert abs(np.mean(met) - scores["flip"].value) < 0.03


def test_ridge_judges_numbers_by_r_squared():
    K, _ = two_sided()
    target = 100.0 * np.linalg.eigh(K)[1][:, 0]  # along the negative direction
    found = krein.inspect(K, y=target, learner="ridge", strength=1e-3, random_state=0)
    scores = {c.name: c.score.value for c in found.corrections}
    assert found.task == "regression"
    assert set(scores) == {"none", "clip", "flip", "square"}
    assert scores["flip"] > 0.99
    assert scores["clip"] < 0.2


def test_without_y_an_indefinite_matrix_gets_no_recommendation_but_a_note():
    found = krein.inspect(indefinite(60), random_state=0)
    assert found.recommended is None
    assert found.corrections == ()
    assert any("pass y" in note for note in found.notes)


# -- what is no similarity ---------------------------------------------------------------------------------------------


def test_an_asymmetric_function_is_refused_with_the_place():
    def skewed(A, B):
        return overlap(A, B) + np.array([[a == "bdh" and b == "acg" for b in B] for a in A])

    i, j = WORDS.index("bdh"), WORDS.index("acg")
    with pytest.raises(InputError, match=r"k\(x, y\) and k\(y, x\) differ") as told:
        krein.inspect(WORDS, skewed, random_state=0)
    assert f"objects {min(i, j)} and {max(i, j)}" in str(told.value) or f"objects {max(i, j)} and {min(i, j)}" in str(
        told.value
    )


@pytest.mark.parametrize("budget", [None, 1500])
def test_one_object_that_gives_nan_is_found_wherever_it_is(budget):
    def hollow(A, B):
        K = overlap(A, B)
        K[[a == "cfh" for a in A]] = np.nan
        K[:, [b == "cfh" for b in B]] = np.nan
        return K

    for seed in range(4):
        with pytest.raises(InputError, match=rf"finite.*objects.*\b{WORDS.index('cfh')}\b"):
            krein.inspect(WORDS, hollow, max_evaluations=budget, random_state=seed)


@pytest.mark.parametrize("budget", [None, 1500])
def test_an_object_that_is_asymmetric_to_all_others_is_found_wherever_it_is(budget):
    def skewed(A, B):
        return overlap(A, B) + np.array([[0.5 * (a == "cfh" and b != a) for b in B] for a in A])

    for seed in range(4):
        with pytest.raises(InputError, match=rf"differ.*\b{WORDS.index('cfh')}\b"):
            krein.inspect(WORDS, skewed, max_evaluations=budget, random_state=seed)


def test_a_similarity_that_depends_on_its_company_is_refused():
    def ranked(A, B):
        return overlap(A, B) / (len(A) * len(B))

    with pytest.raises(InputError, match="depends on what else is compared"):
        krein.inspect(WORDS, ranked, random_state=0)


def test_a_matrix_that_is_not_symmetric_or_not_square_is_refused(tmp_path):
    K = indefinite(40)
    K[3, 7] += 1.0
    with pytest.raises(InputError, match=r"S\[3, 7\]|S\[7, 3\]"):
        krein.inspect(K)
    np.save(tmp_path / "K.npy", K)  # a file is not checked when it is opened
    with pytest.raises(InputError, match=r"3 and 7|7 and 3|S\[3, 7\]|S\[7, 3\]"):
        krein.inspect(np.load(tmp_path / "K.npy", mmap_mode="r"), random_state=0)
    with pytest.raises(InputError, match="square matrix"):
        krein.inspect(np.ones((5, 3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": [1, 2]}, "one label or number per object"),
        ({"y": np.full(56, np.nan)}, "56 NaN"),
        ({"y": np.zeros(56)}, "single value"),
        ({"max_evaluations": 300}, "max_evaluations must be at least"),
        ({"max_evaluations": 0.5}, "max_evaluations must be an integer"),
        ({"learner": "forest"}, "learner must be one of"),
        ({"task": "ranking"}, "task must be one of"),
        ({"strength": -1}, "strength must be"),
    ],
)
def test_wrong_options_are_told(options, message):
    with pytest.raises(InputError, match=message):
        krein.inspect(WORDS, overlap, **options)


def test_a_kernel_that_breaks_its_promises_is_noted():
    traits = krein.kernels.Traits(stationary=False, psd=True, low=0.0, high=3.0, constant_diagonal=True)
    found = krein.inspect(WORDS, krein.kernels.FromCallable(overlap, traits), random_state=0)
    assert [note.split(",")[0] for note in found.notes[:2]] == [
        "the kernel declares that it is psd",
        "the kernel declares values from 0.0 to 3.0",
    ]


# -- printed and drawn -------------------------------------------------------------------------------------------------


def test_printed_it_says_the_numbers_it_holds(found):
    text = str(found)
    assert "1 positive, 158 zero, 1 negative" in text
    assert found.negative_share.percent in text
    assert text.count("<- recommended") == 1
    assert f"{found.n_evaluations:,} evaluated" in text
    assert max(map(len, text.splitlines())) < 110
    html = found._repr_html_()
    assert html.startswith("<table>")
    assert "<- recommended" not in html  # escaped
    assert "&lt;- recommended" in html


def test_it_goes_through_json(found):
    back = json.loads(json.dumps(found.to_dict()))
    assert np.array_equal(back["eigenvalues"], found.eigenvalues)
    assert back["negative_share"]["value"] == found.negative_share.value
    assert [c["name"] for c in back["corrections"]] == [c.name for c in found.corrections]
    assert back["choice"]["nbytes"] == found.choice.nbytes


def test_the_picture_shows_the_numbers(found):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    display = found.plot()
    assert display.panels == ("spectrum", "values", "blocks", "memory", "corrections")
    spectrum, values, blocks, memory, corrections = display.ax_
    assert np.array_equal(spectrum.get_lines()[1].get_ydata(), found.eigenvalues)
    assert len(spectrum.get_lines()[2].get_ydata()) == found.inertia[2]
    assert np.array_equal(values.patches[0].get_data().values, found.counts)
    assert [bar.get_height() for bar in blocks.patches] == [b.share.value for b in found.blocks]
    (one,) = [line for line in memory.get_lines() if line.get_label() == "1 block"]
    wanted = [max(f.error, 1e-16) for f in found.forecasts if f.n_blocks == 1]
    assert np.allclose(one.get_ydata(), wanted)
    assert [t.get_text() for t in corrections.get_xticklabels()] == [c.name for c in found.corrections]
    assert display.figure_ is spectrum.figure
    figure, axes = plt.subplots(1, 5)
    assert found.plot(ax=axes).figure_ is figure
    plt.close("all")
