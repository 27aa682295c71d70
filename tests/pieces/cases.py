"""What the tests of rows in pieces share: a small problem, machines, and limits that send few rows the way of many."""

from __future__ import annotations

from typing import Any

import numpy as np

import krein

# With these limits 1600 rows are too many for everything exact.
FEW = krein.Policy(
    exact_rows=100, svm_rows=100, ridge_rows=100, components_rows=100, clustering_rows=100, process_rows=100
)
N, D = 1600, 4
SHAPE = {"n_blocks": 4, "rank": 16, "random_state": 0, "policy": FEW}
COMMON = SHAPE | {"gamma": 0.3}
NAMED = COMMON | {"kernel": "rbf"}
# A limit with pieces of some hundred rows, and with files.
SMALL = {"memory_limit": "800kB"}

rng = np.random.default_rng(0)
X = rng.normal(size=(N, D))
NUMBERS = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=N)
TWO = np.where(NUMBERS > 0.0, "above", "below")
THREE = np.digitize(NUMBERS, [-0.5, 0.5])
NEW = rng.normal(size=(300, D))

_process = {"kernel": krein.RBF(gamma=0.3), "optimizer": None} | SHAPE
# name -> (class, parameters, target, what is compared)
MACHINES: dict[str, tuple[Any, dict[str, Any], Any, str]] = {
    "ridge": (krein.KernelRidge, {"alpha": 0.1} | NAMED, NUMBERS, "predict"),
    "ridge loo": (krein.KernelRidge, {"alpha": "loo"} | NAMED, NUMBERS, "predict"),
    "ridge classifier": (krein.KernelRidgeClassifier, {"alpha": "loo"} | NAMED, THREE, "decision_function"),
    "process": (krein.GaussianProcessRegressor, {"alpha": 0.01} | _process, NUMBERS, "predict"),
    "process classifier": (krein.GaussianProcessClassifier, _process, TWO, "predict_proba"),
    "components": (krein.KernelPCA, {"n_components": 3} | NAMED, None, "transform"),
    "features": (krein.MEKA, COMMON, None, "transform"),
    "svc": (krein.SVC, COMMON, TWO, "decision_function"),
    "svc three": (krein.SVC, COMMON, THREE, "decision_function"),
    "svr": (krein.SVR, COMMON, NUMBERS, "predict"),
    "one class": (krein.OneClassSVM, {"nu": 0.2} | COMMON, None, "decision_function"),
    "nu svc": (krein.NuSVC, {"nu": 0.3} | COMMON, TWO, "decision_function"),
    "nu svr": (krein.NuSVR, {"nu": 0.3} | COMMON, NUMBERS, "predict"),
    "logistic": (krein.KernelLogisticRegression, COMMON, TWO, "predict_proba"),
    "k-means": (krein.KernelKMeans, {"n_clusters": 3} | COMMON, None, "predict"),
    "spectral clustering": (krein.SpectralClustering, {"n_clusters": 3} | COMMON, None, "labels_"),
    "spectral embedding": (krein.SpectralEmbedding, {"n_components": 2} | COMMON, None, "embedding_"),
}


def machine(name: str, **more: Any) -> Any:
    cls, parameters, _, _ = MACHINES[name]
    return cls(**parameters | more)


def fitted(name: str, rows: Any, target: Any = None, **more: Any) -> Any:
    """The machine fitted to rows, with its own target unless another is given."""
    return machine(name, **more).fit(rows, MACHINES[name][2] if target is None else target)


def answers(name: str, fit: Any) -> Any:
    """What is compared: predictions of new rows, or what the fit found of its own."""
    found = getattr(fit, MACHINES[name][3])
    return np.asarray(found(NEW) if callable(found) else found)


def same(a: Any, b: Any) -> bool:
    """Whether two arrays have the same bits."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def check_close(found: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    """Numbers agree to a share of their spread, labels are equal."""
    assert found.shape == wanted.shape
    if wanted.dtype.kind == "f":
        assert np.abs(found - wanted).max() <= tolerance * wanted.std()
    else:
        assert np.array_equal(found, wanted)
