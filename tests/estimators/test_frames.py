"""Data frames of pandas and polars: names of features are kept and held against those of new rows; outputs follow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import polars
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import _get_feature_names

import krein

NAMES = ["height", "width", "depth"]
rng = np.random.default_rng(0)
X, X_new = rng.normal(size=(90, 3)), rng.normal(size=(7, 3))
y = (X[:, 0] + X[:, 1] > 0.0).astype(int)
FRAMES = {"pandas": pandas.DataFrame, "polars": polars.DataFrame}
if _get_feature_names(polars.DataFrame({"a": [0.0]})) is None:  # a newer polars than this scikit-learn can read
    del FRAMES["polars"]
MACHINES = [
    krein.SVC(probability=True, random_state=0),
    krein.SVR(),
    krein.OneClassSVM(),
    krein.KernelRidge(kernel="rbf"),
    krein.KernelRidgeClassifier(kernel="rbf"),
    krein.GaussianProcessRegressor(optimizer=None, alpha=0.1),
    krein.KernelPCA(2, kernel="rbf"),
    krein.MEKA(random_state=0),
    krein.SpectralClustering(2, random_state=0),
]


def framed(kind: str, rows: Any, names: Any = NAMES) -> Any:
    return FRAMES[kind]({name: rows[:, i] for i, name in enumerate(names)})


def said(machine: Any, rows: Any) -> Any:
    for name in ("decision_function", "predict", "transform"):
        if hasattr(machine, name):
            return np.asarray(getattr(machine, name)(rows))
    return machine.labels_


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: type(m).__name__)
def test_a_frame_is_its_matrix_with_names(machine: Any, kind: str) -> None:
    plain, named = clone(machine).fit(X, y), clone(machine).fit(framed(kind, X), y)
    assert named.feature_names_in_.tolist() == NAMES
    np.testing.assert_allclose(said(named, framed(kind, X_new)), said(plain, X_new), rtol=1e-8, atol=1e-9)
    if hasattr(named, "predict") or hasattr(named, "transform"):
        with pytest.raises(ValueError, match="feature names should match"):
            said(named, framed(kind, X_new, ["height", "depth", "width"]))
        with pytest.warns(UserWarning, match="does not have valid feature names"):
            said(named, X_new)


@pytest.mark.parametrize("kind", FRAMES)
def test_transformers_return_the_frames_that_are_asked_for(kind: str) -> None:
    for machine in (krein.KernelPCA(2, kernel="rbf"), krein.MEKA(5, random_state=0)):
        plain = machine.fit_transform(X)
        found = machine.set_output(transform=kind).fit(framed(kind, X)).transform(framed(kind, X))
        assert isinstance(found, FRAMES[kind])
        assert list(found.columns) == machine.get_feature_names_out().tolist()
        np.testing.assert_allclose(np.abs(found.to_numpy()), np.abs(plain), atol=1e-8)


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_go_through_pipelines_and_grids(kind: str) -> None:
    steps = make_pipeline(StandardScaler().set_output(transform=kind), krein.SVC())
    search = GridSearchCV(steps, {"svc__C": [0.1, 10.0]}, cv=3).fit(framed(kind, X), y)
    assert search.best_estimator_[-1].feature_names_in_.tolist() == NAMES
    assert search.predict(framed(kind, X_new)).shape == (7,)
