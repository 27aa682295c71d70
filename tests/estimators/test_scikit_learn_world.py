"""Machines in meta-estimators, metadata routing, data frames and files, beside those of scikit-learn."""

from __future__ import annotations

import pickle
from io import BytesIO

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.impute import SimpleImputer
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC as LibSVC

import krein

CLASSIFIERS = [
    krein.SVC(random_state=0),
    krein.NuSVC(nu=0.2, random_state=0),
    krein.KernelRidgeClassifier(random_state=0),
    krein.KernelLogisticRegression(random_state=0),
    krein.GaussianProcessClassifier(random_state=0),
]
PROBABLE = CLASSIFIERS[3:]
REGRESSORS = [
    krein.SVR(random_state=0),
    krein.KernelRidge(random_state=0),
    krein.GaussianProcessRegressor(alpha=0.01, random_state=0),
]
TRANSFORMERS = [krein.KernelPCA(n_components=2, random_state=0), krein.MEKA(random_state=0)]


def two_classes(n: int = 160) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.where(X[:, 0] * X[:, 1] + 0.2 * rng.normal(size=n) > 0.3, "yes", "no")


def table(n: int = 160) -> tuple[pd.DataFrame, np.ndarray]:
    X, y = two_classes(n)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["colour"] = np.where(y == "yes", "red", "blue")
    frame.loc[::9, "a"] = np.nan
    return frame, y


def name(machine: object) -> str:
    return type(machine).__name__


@pytest.mark.parametrize("machine", CLASSIFIERS, ids=name)
def test_a_pipeline_with_a_column_transformer_learns_a_table(machine):
    X, y = table()
    columns = ColumnTransformer(
        [("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b", "c"]),
         ("text", OneHotEncoder(handle_unknown="ignore"), ["colour"])]
    )  # fmt: skip
    model = make_pipeline(columns, clone(machine))
    assert cross_val_score(model, X, y, cv=3).mean() > 0.95  # the colour tells
    assert list(model.fit(X, y)[:-1].get_feature_names_out())[-1] == "text__colour_red"


@pytest.mark.parametrize("machine", [*CLASSIFIERS[:1], *CLASSIFIERS[2:]], ids=name)
def test_a_tuned_threshold_is_that_of_the_scores(machine):
    X, y = two_classes(240)
    tuned = TunedThresholdClassifierCV(clone(machine), scoring="balanced_accuracy", cv=3).fit(X, y)
    plain = clone(machine).fit(X, y)
    method = "predict_proba" if hasattr(plain, "predict_proba") else "decision_function"
    scores = getattr(plain, method)(X)
    scores = scores[:, 1] if scores.ndim == 2 else scores
    expected = plain.classes_[(scores >= tuned.best_threshold_).astype(int)]
    assert np.mean(tuned.predict(X) == expected) > 0.98
    assert balanced_accuracy_score(y, tuned.predict(X)) >= balanced_accuracy_score(y, plain.predict(X)) - 0.1


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize("machine", CLASSIFIERS[:3], ids=name)
def test_calibrated_probabilities_rank_as_the_machine_does(machine, method):
    X, y = two_classes(240)
    calibrated = CalibratedClassifierCV(clone(machine), method=method, cv=3).fit(X[:160], y[:160])
    probability = calibrated.predict_proba(X[160:])[:, 1]
    assert probability.min() >= 0.0
    assert probability.max() <= 1.0
    scores = clone(machine).fit(X[:160], y[:160]).decision_function(X[160:])
    assert np.corrcoef(np.argsort(np.argsort(scores)), np.argsort(np.argsort(probability)))[0, 1] > 0.8


def test_calibration_of_an_svm_equals_that_of_scikit_learns():
    X, y = two_classes()
    ours = CalibratedClassifierCV(krein.SVC(gamma=0.5, tol=1e-8), cv=3).fit(X, y).predict_proba(X)
    theirs = CalibratedClassifierCV(LibSVC(gamma=0.5, tol=1e-8), cv=3).fit(X, y).predict_proba(X)
    assert np.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("machine", CLASSIFIERS, ids=name)
def test_cross_val_predict_is_what_each_fold_predicts(machine):
    X, y = two_classes()
    folds = [(np.arange(80, 160), np.arange(80)), (np.arange(80), np.arange(80, 160))]
    found = cross_val_predict(clone(machine), X, y, cv=folds)
    for train, test in folds:
        assert np.array_equal(found[test], clone(machine).fit(X[train], y[train]).predict(X[test]))


@pytest.mark.parametrize("machine", PROBABLE, ids=name)
def test_cross_val_predict_gives_probabilities(machine):
    X, y = two_classes()
    found = cross_val_predict(clone(machine), X, y, cv=3, method="predict_proba")
    assert found.shape == (160, 2)
    assert np.allclose(found.sum(1), 1.0)


@pytest.mark.parametrize("machine", [*CLASSIFIERS[:4], *REGRESSORS[:2], krein.OneClassSVM(nu=0.3)], ids=name)
def test_sample_weights_are_routed_to_the_fit_within_a_search(machine):
    X, y = two_classes()
    target = X[:, 2] if machine in REGRESSORS or name(machine) == "OneClassSVM" else y
    weights = np.where(np.arange(160) < 80, 1.0, 0.0)
    weights[[0, 1]] = 2.0
    with sklearn.config_context(enable_metadata_routing=True):
        asked = clone(machine).set_fit_request(sample_weight=True)
        if hasattr(asked, "set_score_request"):
            asked.set_score_request(sample_weight=False)
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), asked)
        found = pipeline.fit(X, target, sample_weight=weights).predict(X)
    rows = StandardScaler().fit(X).transform(X)
    direct = clone(machine).fit(rows, target, sample_weight=weights)
    unweighted = clone(machine).fit(rows, target)
    assert np.array_equal(found, direct.predict(rows))
    assert not np.array_equal(found, unweighted.predict(rows))


@pytest.mark.parametrize("machine", TRANSFORMERS, ids=name)
@pytest.mark.parametrize("kind", ["polars", "pandas"])
def test_set_output_gives_frames_with_names(machine, kind):
    pytest.importorskip(kind)
    X, _ = table()
    numbers = X[["b", "c"]]
    made = clone(machine).set_output(transform=kind)
    found = made.fit_transform(numbers)
    assert type(found).__module__.split(".")[0] == kind
    assert list(found.columns) == list(made.get_feature_names_out())
    assert np.array_equal(np.asarray(found), clone(machine).fit_transform(numbers))


def test_a_halving_search_finds_the_width_that_a_grid_search_finds():
    X, y = two_classes(400)
    grid = {"gamma": [1e-4, 0.5, 1e3]}
    halving = HalvingGridSearchCV(krein.SVC(random_state=0), grid, min_resources=100, cv=3, random_state=0).fit(X, y)
    whole = GridSearchCV(krein.SVC(random_state=0), grid, cv=3).fit(X, y)
    assert halving.best_params_ == whole.best_params_ == {"gamma": 0.5}


@pytest.mark.parametrize("machine", [*CLASSIFIERS, *REGRESSORS, *TRANSFORMERS], ids=name)
@pytest.mark.parametrize("way", ["joblib", "pickle", "skops"])
def test_a_fitted_machine_survives_a_file(machine, way):
    X, y = two_classes()
    noisy = X[:, 2] + 0.1 * np.random.default_rng(1).normal(size=len(X))
    fitted = clone(machine).fit(X, noisy if machine in REGRESSORS else y)
    if way == "joblib":
        file = BytesIO()
        joblib.dump(fitted, file)
        file.seek(0)
        again = joblib.load(file)
    elif way == "pickle":
        again = pickle.loads(pickle.dumps(fitted))
    else:
        skops = pytest.importorskip("skops.io")
        held = skops.dumps(fitted)
        again = skops.loads(held, trusted=skops.get_untrusted_types(data=held))
    method = "transform" if machine in TRANSFORMERS else "predict"
    assert np.array_equal(getattr(again, method)(X), getattr(fitted, method)(X))
