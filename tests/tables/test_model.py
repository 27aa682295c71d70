"""A model of a file's columns: judged on rows it has not seen, and predicting as its machine does."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_wine
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC as Theirs

import krein
from krein.errors import InputError
from krein.tables.model import CANDIDATES, Score, learn, target_values
from krein.tables.reading import Frame, keep_spelling

WINE = load_wine()
NAMES = tuple(WINE.feature_names)


def wine(labels=None) -> Frame:
    y = WINE.target.astype(float) if labels is None else np.array(labels, dtype=object)[WINE.target]
    return Frame((*NAMES, "class"), (*WINE.data.T, y))


def test_the_score_is_that_of_scikit_learn_on_the_same_folds():
    model = learn(wine(), "class", parameters={"C": 2.0, "kernel": "rbf", "gamma": 0.1})
    theirs = make_pipeline(StandardScaler(), Theirs(C=2.0, gamma=0.1))
    folds = StratifiedKFold(5, shuffle=True, random_state=0).split(WINE.data, WINE.target)
    scores = [clone(theirs).fit(WINE.data[a], WINE.target[a]).score(WINE.data[b], WINE.target[b]) for a, b in folds]
    np.testing.assert_allclose(model.score.values, scores, atol=1e-12)
    assert model.score.name == "accuracy"
    assert model.score.baseline == pytest.approx(np.bincount(WINE.target).max() / len(WINE.target))
    np.testing.assert_array_equal(model.predict(wine()), theirs.fit(WINE.data, WINE.target).predict(WINE.data))


def test_labels_come_back_as_the_file_has_them():
    model = learn(wine(["barolo", "grignolino", "barbera"]), "class", folds=0)
    assert model.score is None
    assert set(model.predict(wine())) == {"barolo", "grignolino", "barbera"}
    assert learn(wine(), "class", folds=0).predict(wine()).dtype == np.int64


def test_numbers_are_regressed_and_the_gaussian_process_says_how_sure_it_is():
    X, y = load_diabetes(return_X_y=True)
    frame = Frame((*(f"x{i}" for i in range(10)), "y"), (*X.T, y))
    ridge = learn(frame, "y", folds=3)
    assert type(ridge.estimator).__name__ == "KernelRidge"
    assert (ridge.task, ridge.score.name) == ("regression", "R²")
    assert 0.3 < ridge.score.mean < 0.6
    assert ridge.score.error == pytest.approx(np.std(ridge.score.values, ddof=1) / np.sqrt(3))
    process = learn(frame, "y", machine="gp", folds=0, parameters={"kernel": krein.RBF(gamma=0.02), "alpha": 0.5})
    mean, std = process.predict_with_std(frame)
    assert mean.shape == std.shape == y.shape
    assert (std > 0).all()
    with pytest.raises(InputError, match="Only a Gaussian process"):
        ridge.predict_with_std(frame)


def test_one_part_held_out_has_an_error_where_it_is_a_share_and_none_where_it_is_r_squared():
    assert Score("accuracy", (0.9,), 100, 0.5).error == pytest.approx(np.sqrt(0.9 * 0.1 / 100))
    assert Score("R²", (0.9,), 100, 0.0).error is None
    assert Score("R²", (0.9, 0.7), 100, 0.0).error == pytest.approx(0.1)


def test_answers_are_classes_or_numbers():
    for column, task in (([1.0, 2.0, 1.0], "classification"), ([0.5, 1.0, 2.0], "regression")):
        values, found = target_values(np.array(column), "y")
        assert found == task
        np.testing.assert_array_equal(values, column)
    values, found = target_values(np.array([0.5, 1.0]), "y", "classification")
    assert (values.tolist(), found) == (["0.5", "1.0"], "classification")


def test_sphere_kernels_get_rows_of_length_one():
    model = learn(wine(), "class", folds=0, parameters={"kernel": "sphere-polynomial"})
    np.testing.assert_allclose(np.linalg.norm(model.objects(wine()), axis=1), 1.0)


def test_kernels_of_counts_get_the_numbers_of_the_file():
    parameters = {"kernel": "chi2", "gamma": 0.01}
    with pytest.raises(krein.InputError, match="scale='none'"):
        learn(wine(), "class", folds=0, parameters=parameters)
    model = learn(wine(), "class", folds=0, scale="none", parameters=parameters)
    np.testing.assert_array_equal(model.objects(wine()), WINE.data)


def test_few_whole_numbers_are_classes_and_many_are_not():
    X = np.random.default_rng(0).standard_normal((60, 2))
    for y, task in ((np.arange(60.0) % 3, "classification"), (np.arange(60.0), "regression"), (X[:, 0], "regression")):
        assert learn(Frame(("a", "b", "y"), (*X.T, y)), "y", folds=0).task == task


@pytest.mark.parametrize(
    ("change", "options", "match"),
    [
        ({"y": [np.nan, 1.0, 0.0, 1.0]}, {}, "missing in 1 of 4 rows"),
        ({"y": [1.0, 1.0, 1.0, 1.0]}, {}, "nothing to learn"),
        ({"y": [1.0, 1.0, 1.0, 7.0]}, {"folds": 2}, "class 7 has a single row"),
        ({}, {"folds": 1}, "folds must be 0"),
        ({}, {"machine": "gp"}, "does not do classes; use svm, ridge"),
        ({}, {"parameters": {"CC": 1}}, "SVC has no parameter CC"),
        ({}, {"task": "ranking"}, "task"),
        ({"y": ["a", "b", "a", "b"]}, {"task": "regression"}, "holds text"),
        ({}, {"parameters": {"kernel": "edit"}}, "one column of text beside the target; it has 0"),
    ],
)
def test_what_cannot_be_learned_is_said(change, options, match):
    y = change.get("y", [0.0, 1.0, 0.0, 1.0])
    column = np.array(y, dtype=object if isinstance(y[0], str) else float)
    frame = Frame(("a", "y"), (np.arange(4.0), column))
    with pytest.raises(InputError, match=match):
        learn(frame, "y", **{"folds": 0} | options)


def test_whole_numbers_too_long_to_be_told_apart_are_no_classes():
    assert target_values(np.array([0.0, 1e20]), "y")[1] == "regression"
    assert target_values(np.array([0.0, 1e20]), "y", "classification")[0].tolist() == ["0.0", "1e+20"]


@pytest.mark.parametrize(
    ("words", "task", "kept"),
    [
        (["01", "02"], "auto", True),
        (["0", "10"], "auto", False),
        (["01", "1"], "auto", False),  # the same class, spelled in two ways
        (["01", "02"], "regression", False),
        ([f"{i:03d}" for i in range(30)], "auto", False),  # too many for classes
        ([f"{i:03d}" for i in range(30)], "classification", True),
        (["a", "02"], "auto", True),
    ],
)
def test_classes_stay_as_they_are_spelled_where_a_number_would_not(words, task, kept):
    column = np.array(words, dtype=object)
    if task == "regression":  # such a target is not read as text
        column = column.astype(float)
    found = keep_spelling(column, task)
    assert (found.tolist() == words) == kept


def test_fewer_folds_than_asked_for_have_their_reason():
    frame = Frame(("a", "y"), (np.arange(10.0), np.array([0.0] * 7 + [1.0] * 3)))
    with pytest.warns(krein.KreinWarning, match="3 folds rather than 5: the class 1 has 3 rows"):
        assert len(learn(frame, "y").score.values) == 3


def mixed(n=400, missing=0.0, interacting=False) -> Frame:
    """A number, a category and noise; the target is a sum of the first two, or whether they agree."""
    rng = np.random.default_rng(0)
    x, colour, noise = rng.normal(size=n), rng.choice(["red", "green"], n).astype(object), rng.normal(size=(3, n))
    red = np.where(colour == "red", 1.0, -1.0)
    y = np.where(x * red > 0.0 if interacting else x + red > 0.0, "yes", "no").astype(object)
    x[rng.random(n) < missing] = np.nan
    colour[rng.random(n) < missing] = ""
    return Frame(("x", "colour", "a", "b", "c", "y"), (x, colour, *noise, y))


@pytest.mark.filterwarnings("ignore:.*indefinite matrix:krein.KreinWarning")
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_table_compared_as_it_is_has_the_machine_of_its_data_frame(missing):
    pd = pytest.importorskip("pandas")
    table = mixed(missing=missing)
    model = learn(table, "y", folds=0, parameters={"kernel": "gower", "kernel_params": {"decay": 2.0}})
    frame = pd.DataFrame(dict(zip(table.names[:-1], table.columns[:-1], strict=True))).replace({"colour": {"": None}})
    own = krein.SVC(kernel=krein.Gower(decay=2.0), random_state=0).fit(frame, table["y"].astype(str))
    assert np.array_equal(model.predict(table), own.predict(frame))
    assert model.encoder.names == table.names[:-1]
    assert bool(model.encoder.notes) == (missing > 0.0)
    grey = table.with_column("colour", np.full(len(table), "grey", dtype=object))
    assert np.array_equal(model.predict(grey), own.predict(frame.assign(colour="grey")))


@pytest.mark.filterwarnings("ignore:.*indefinite matrix:krein.KreinWarning")
@pytest.mark.parametrize("interacting", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_kernel_of_a_table_with_text_is_chosen_by_score(interacting):
    table = mixed(missing=0.1, interacting=interacting)
    model = learn(table, "y", folds=2, parameters={"kernel": "auto"})
    told = model.encoder.notes[-1]
    assert told.startswith("kernel chosen by accuracy on 400 rows: rbf 0.")
    scores = [float(number) for number in re.findall(r" (0\.\d{4})", told)]
    chosen = [repr(k) for k in CANDIDATES].index(repr(model.estimator.kernel))
    assert scores[chosen] == max(scores)
    plain = learn(table, "y", folds=2, parameters={"kernel": "rbf"})
    assert model.score.mean >= plain.score.mean - 0.02


def test_a_table_of_numbers_alone_is_not_compared_in_other_ways():
    model = learn(wine(), "class", folds=0, parameters={"kernel": "auto"})
    assert model.estimator.kernel == "rbf"
    assert not any("chosen" in note for note in model.encoder.notes)
    with pytest.raises(InputError, match="gower takes weights, decay, power; got rho"):
        learn(wine(), "class", parameters={"kernel": "gower", "kernel_params": {"rho": 1.0}})
