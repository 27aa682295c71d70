"""What an inspection recommends, against machines trained apart; and how it is printed and drawn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC
from test_inspection import indefinite

import krein


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


# -- printed and drawn -------------------------------------------------------------------------------------------------


def test_printed_it_says_the_numbers_it_holds(found):
    text = str(found)
    assert "1 positive, 158 zero, 1 negative" in text
    assert found.negative_share.percent in text
    assert text.count("<- recommended") == text.count("<- sufficient") == 1
    assert found.rank_verdict in text
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
    assert [r["score"] for r in back["rank_scores"]] == [r.score for r in found.rank_scores]
    assert back["sufficient"]["rank"] == found.sufficient.rank
    assert back["rank_verdict"] == found.rank_verdict


def test_the_picture_shows_the_numbers(found):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    display = found.plot()
    assert display.panels == ("spectrum", "values", "blocks", "memory", "corrections", "ranks")
    spectrum, values, blocks, memory, corrections, ranks = display.ax_
    assert np.array_equal(spectrum.get_lines()[1].get_ydata(), found.eigenvalues)
    assert len(spectrum.get_lines()[2].get_ydata()) == found.inertia[2]
    assert np.array_equal(values.patches[0].get_data().values, found.counts)
    assert [bar.get_height() for bar in blocks.patches] == [b.share.value for b in found.blocks]
    (one,) = [line for line in memory.get_lines() if line.get_label() == "1 block"]
    for drawn, f in zip(one.get_ydata(), [f for f in found.forecasts if f.n_blocks == 1], strict=True):
        at = memory.yaxis.get_major_formatter()(drawn, 0)  # rounding has a line of its own, numbered 0
        assert (at == "0") if f.error < 1e-9 else drawn == pytest.approx(f.error)
    assert [t.get_text() for t in corrections.get_xticklabels()] == [c.name for c in found.corrections]
    assert ranks.get_lines()[0].get_xydata().tolist() == [[r.rank, r.score] for r in found.rank_scores]
    assert ranks.get_lines()[-2].get_xydata().tolist() == [[found.sufficient.rank, found.sufficient.score]]
    assert display.figure_ is spectrum.figure
    figure, axes = plt.subplots(1, 6)
    assert found.plot(ax=axes).figure_ is figure
    plt.close("all")
