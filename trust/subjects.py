"""What is attacked with hostile input: every estimator at three sizes, public functions, kernels, and a control.

A subject takes a `Data` and returns an array of numbers that does not depend on signs or on the names of clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import krein
from krein.estimators.base import KernelMachine

# Rows of the attacked data, and new rows to predict.
ROWS, NEW_ROWS = 60, 12
# Inner products of 400 random features are off by 1 / 20 on average, and never by so much.
RANDOM_ERROR = 0.3
# Limits below ROWS: the defaults are beyond every limit of this policy, and choose among few small candidates.
BEYOND = krein.Policy(
    exact_rows=20, svm_rows=20, ridge_rows=20, process_rows=20, process_learning_rows=20, components_rows=20,
    clustering_rows=20, eigen_rows=20, matrix_memory=4 * 40**2, fewest_landmarks=10, expensive_landmarks=20,
    loo_rows=20, feature_dimension=2, plain_shape=(1, 16), unsearched_shape=(2, 8), tuning_shape=(2, 8),
    largest_core=64, object_least=8, one_block_ranks=(8, 16), coupled_directions=32, block_rows=(30, 20), block_rank=8,
    highest_block_rank=16, score_rows=60, held_out_rows=20, fewest_fitted_rows=20, expensive_rows=20,
)  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "exact": {},
    "blocks": {"n_blocks": 3, "rank": 8},
    "beyond": {"policy": BEYOND},
}


@dataclass(frozen=True)
class Data:
    """Rows, targets of both kinds, new rows, and what is passed besides."""

    X: Any
    classes: Any
    reals: Any
    X_new: Any
    weight: Any = None
    params: dict[str, Any] = field(default_factory=dict)

    def y(self, target: str) -> Any:
        return self.classes if target == "classes" else self.reals


def clean() -> Data:
    """Return data on which every subject does well."""
    rng = np.random.default_rng(7)
    X, new = rng.normal(size=(ROWS, 3)), rng.normal(size=(NEW_ROWS, 3))
    reals = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1]
    return Data(X, (reals > 0.0).astype(int), reals, new)


@dataclass(frozen=True)
class Subject:
    """One callable under attack. ``target`` is "classes", "reals" or "" for none."""

    name: str
    size: str
    use: Callable[[Data], Any]
    target: str = ""
    weights: bool = False
    params: frozenset[str] = frozenset()
    kernel: str = ""  # name of the parameter that takes a similarity
    sparse: bool = True


def gram(Z: Any) -> Any:
    Z = np.asarray(Z, dtype=np.float64)
    return Z @ Z.T


def together(labels: Any) -> Any:
    return (labels[:, None] == labels).astype(float)


def near_kernel(features: Any, X: Any) -> Any:
    """1 for each pair of rows whose random features have about the kernel's value as inner product, else 0."""
    return (np.abs(gram(features.transform(X)) - features.kernel_(X)) < RANDOM_ERROR).astype(float)


RBF = {"kernel": "rbf", "gamma": "scale"}
MACHINES: tuple[tuple[type, dict[str, Any], str, Callable[[Any, Data], Any]], ...] = (
    (krein.SVC, {}, "classes", lambda m, d: m.decision_function(d.X_new)),
    (krein.SVR, {}, "reals", lambda m, d: m.predict(d.X_new)),
    (krein.OneClassSVM, {}, "", lambda m, d: m.decision_function(d.X_new)),
    (krein.KernelRidge, RBF | {"alpha": 0.1}, "reals", lambda m, d: m.predict(d.X_new)),
    (krein.KernelRidgeClassifier, {"alpha": 0.1}, "classes", lambda m, d: m.decision_function(d.X_new)),
    (krein.GaussianProcessRegressor, RBF | {"alpha": 1e-3}, "reals", lambda m, d: m.predict(d.X_new)),
    (krein.KernelPCA, RBF | {"n_components": 2}, "", lambda m, d: gram(m.transform(d.X_new))),
    (krein.SpectralClustering, {"n_clusters": 2, "gamma": "scale"}, "", lambda m, d: together(m.labels_)),
    (krein.MEKA, {}, "", lambda m, d: gram(m.transform(d.X_new))),
    (krein.NuSVC, {"nu": 0.4}, "classes", lambda m, d: m.decision_function(d.X_new)),
    (krein.NuSVR, {}, "reals", lambda m, d: m.predict(d.X_new)),
    (krein.KernelLogisticRegression, {}, "classes", lambda m, d: m.decision_function(d.X_new)),
    (krein.GaussianProcessClassifier, RBF | {"optimizer": None}, "classes", lambda m, d: m.predict_proba(d.X_new)),
    (krein.ProxySVC, {}, "classes", lambda m, d: m.decision_function(d.X_new)),
    (krein.KernelKMeans, {"n_clusters": 2}, "", lambda m, d: together(m.predict(d.X_new))),
    (krein.SpectralEmbedding, {"n_components": 2, "gamma": "scale"}, "", lambda m, d: gram(m.embedding_)),
    (krein.RandomFourierFeatures, {"n_components": 400}, "", lambda m, d: near_kernel(m, d.X_new)),
)  # fmt: skip


def machine(cls: Any, base: dict[str, Any], target: str, result: Callable[[Any, Data], Any], size: str) -> Subject:
    weights = "sample_weight" in cls.fit.__annotations__

    def use(data: Data) -> Any:
        options = {**base, **SIZES[size], **data.params}
        found = cls(**({"random_state": 0} | options if hasattr(cls, "random_state") else options))
        weighted = {"sample_weight": data.weight} if weights and data.weight is not None else {}
        found.fit(data.X, *([data.y(target)] if target else []), **weighted)
        if target == "classes" and not np.isin(found.predict(data.X_new), found.classes_).all():
            raise RuntimeError("a label that is no class")
        return np.asarray(result(found, data), dtype=np.float64)

    known = frozenset(cls.__init__.__annotations__) - {"return"}
    takes = issubclass(cls, KernelMachine) or cls is Unprotected  # functions and matrices of similarities
    kernel = ("affinity" if "affinity" in known else "kernel") if takes else ""
    sparse = cls().__sklearn_tags__().input_tags.sparse if hasattr(cls, "__sklearn_tags__") else True
    return Subject(cls.__name__, size, use, target, weights, known, kernel, sparse)


def _approximate(size: str) -> Callable[[Data], Any]:
    def use(data: Data) -> Any:
        options = {"random_state": 0, "kernel": krein.RBF(), **SIZES[size], **data.params}
        found = krein.approximate(data.X, options.pop("kernel"), **options).factorization
        return np.linalg.eigvalsh(found.to_dense())

    return use


def _inspect(data: Data) -> Any:
    options = {"random_state": 0, "kernel": krein.RBF(), **data.params}
    found = krein.inspect(data.X, options.pop("kernel"), data.classes, **options)
    return np.asarray(found.eigenvalues)


def _check_kernel(data: Data) -> Any:
    options = {"random_state": 0, "kernel": krein.RBF(), **data.params}
    found = krein.check_kernel(options.pop("kernel"), data.X, **options)
    found.raise_if_failed()
    return np.array([found.low, found.high, found.largest_eigenvalue])


def machines(sizes: tuple[str, ...] = tuple(SIZES)) -> list[Subject]:
    made = [machine(*row, size) for row in MACHINES for size in sizes]
    return [subject for subject in made if subject.params >= SIZES[subject.size].keys()]


def functions(sizes: tuple[str, ...] = tuple(SIZES)) -> list[Subject]:
    given = frozenset({"n_blocks", "rank", "coupling", "drop", "max_error", "max_memory", "dtype", "policy", "n_jobs",
                       "random_state"})  # fmt: skip
    found = [Subject("approximate", size, _approximate(size), params=given, kernel="kernel") for size in sizes]
    found.append(Subject("inspect", "exact", _inspect, params=frozenset({"random_state"}), kernel="kernel"))
    found.append(Subject("check_kernel", "exact", _check_kernel, params=frozenset({"random_state"}), kernel="kernel"))
    return found


# -- kernels, and their values with more digits and a wider range than float64 -----------------------------------------


def _products(a: Any, b: Any) -> Any:
    return (a[:, None] * b).sum(2)


def _unit(a: Any) -> Any:
    lengths = np.sqrt((a * a).sum(1))[:, None]
    return a / np.where(lengths == 0, 1, lengths)  # a row of zeros is similar to none


FORMULAS: dict[Any, Callable[[Any, Any, Any], Any]] = {
    krein.Linear(): lambda k, a, b: _products(a, b),
    krein.Polynomial(degree=2, coef0=1.0): lambda k, a, b: (k.gamma * _products(a, b) + 1) ** 2,
    krein.RBF(): lambda k, a, b: np.exp(-k.gamma * ((a[:, None] - b) ** 2).sum(2)),
    krein.Laplacian(): lambda k, a, b: np.exp(-k.gamma * np.abs(a[:, None] - b).sum(2)),
    krein.TL1(): lambda k, a, b: np.maximum(k.rho - np.abs(a[:, None] - b).sum(2), 0),
    krein.Sigmoid(): lambda k, a, b: np.tanh(k.gamma * _products(a, b)),
    krein.Cosine(): lambda k, a, b: _products(_unit(a), _unit(b)),
}


def kernels() -> list[Subject]:
    return [Subject(type(k).__name__, "call", lambda data, k=k: _called(k, data)) for k in FORMULAS]


def _called(kernel: Any, data: Data) -> Any:
    bound = kernel.bind(data.X)
    return np.asarray(bound(data.X, data.X_new), dtype=np.float64)


def high_precision(name: str, data: Data) -> Any:
    """Return the values of the kernel of that name in long double, which has 64 bits and exponents to 4932 on x86."""
    kernel = next(k for k in FORMULAS if type(k).__name__ == name)
    dense = [rows.toarray() if hasattr(rows, "toarray") else rows for rows in (data.X, data.X_new)]
    a, b = (np.asarray(rows, dtype=np.longdouble) for rows in dense)
    return FORMULAS[kernel](kernel.bind(np.asarray(dense[0], dtype=np.float64)), a, b)


# -- the control -------------------------------------------------------------------------------------------------------


class Unprotected:
    """Kernel ridge as it is written on a blackboard: no check of anything, and no care for the range of numbers."""

    def __init__(self, kernel: Any = "rbf", gamma: Any = "scale", alpha: Any = 0.1) -> None:
        self.kernel, self.gamma, self.alpha = kernel, gamma, alpha

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Unprotected:
        self.rows = np.asarray(X)
        self.scale = 1.0 / (self.rows.shape[1] * self.rows.var()) if isinstance(self.gamma, str) else self.gamma
        weights = np.ones(len(self.rows)) if sample_weight is None else np.asarray(sample_weight)
        K = self.similarities(self.rows)
        self.dual = np.linalg.solve(K + np.diag(self.alpha / weights), np.asarray(y))
        return self

    def similarities(self, X: Any) -> Any:
        if callable(self.kernel):
            return self.kernel(X, self.rows)
        if self.kernel == "precomputed":
            return X
        return np.exp(-self.scale * ((X[:, None] - self.rows) ** 2).sum(2))

    def predict(self, X: Any) -> Any:
        return self.similarities(np.asarray(X)) @ self.dual


def unprotected() -> Subject:
    return machine(Unprotected, {}, "reals", lambda m, d: m.predict(d.X_new), "exact")
