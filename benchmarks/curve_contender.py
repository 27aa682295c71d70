"""One cell of the size curve, in a process of its own: python curve_contender.py JOB, a JSON object; prints another.

A job names the machine, the contender and the folder with the rows. Krein is imported for krein's own cells alone, so
that the others' memory is theirs. Rows arrive as float64, scaled, the same for all contenders; everything is left at
its defaults but what `bench_curve` says.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import statistics
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.preprocessing import LabelBinarizer

from benchmarks.measure import resident_bytes

TASKS = {
    "SVC": "classes", "SVR": "numbers", "OneClassSVM": "outliers", "KernelRidge": "numbers",
    "KernelRidgeClassifier": "classes", "GaussianProcessRegressor": "numbers", "KernelPCA": "components",
    "SpectralClustering": "clusters",
}  # fmt: skip
# The number of features of Nystroem.
FEATURES = 1000
# The number of components of KernelPCA.
COMPONENTS = 10
# KernelPCA is scored by NEIGHBOURS neighbours among the first REFERENCE training rows.
NEIGHBOURS, REFERENCE = 5, 5000
# The grid of KernelRidgeClassifier, in units of k(x, x) = 1.
ALPHAS = np.logspace(-5.0, 2.0, 15)
# A fit on rows that were fitted before may find its approximation remembered (krein does): then a second fit would time
# the memory. So each repetition has rows of its own, scaled by 1 + NUDGE times its number, for all contenders.
NUDGE = 1e-9
# A first fit on WARM_UP rows loads all code and is not counted.
WARM_UP = 50
# The best of FITS fits counts; after ENOUGH seconds none is begun.
FITS, ENOUGH = 3, 5.0
# Fits shorter than SHORT seconds in total are repeated up to MOST_FITS times.
SHORT, MOST_FITS = 0.5, 20
# Predictions are timed on MANY rows at once and on CALLS single rows, for at most LONGEST seconds.
MANY, CALLS, LONGEST = 2000, 200, 3.0
# The address space of a process is limited to MEMORY bytes.
MEMORY = 16 * 2**30
# Predicted numbers that differ by less than SAME standard deviations count as equal.
SAME = 0.01
# The exit status of a process that exceeded its time.
TOO_LONG = 75
# The standard error of a score comes from RESAMPLED bootstrap samples of the test rows.
RESAMPLED = 200


def main() -> None:
    warnings.simplefilter("ignore")  # a machine that did not converge shows it in its score
    print(json.dumps(measured(**json.loads(sys.argv[1]))))


def measured(
    machine: str, contender: str, folder: str, shape: list[int], n: int, rows: int, classes: int, seconds: float,
    kept: str,
) -> dict[str, Any]:  # fmt: skip
    """Fit on the first ``rows`` of n rows; what it took, how well it does, and what it then costs to use.

    ``kept`` is the file with the predictions of scikit-learn's class on all n rows: written or compared with.
    """
    task = TASKS[machine]
    own = task in ("components", "clusters")  # scored with the help of training rows, those outside a subset too
    X, y, X_test, y_test = read(Path(folder), shape, max(rows, min(n, REFERENCE)) if own else rows)
    known, known_y, X, y = X[:REFERENCE], y[:REFERENCE], X[:rows], y[:rows]
    labels = None if task in ("outliers", "components", "clusters") else y
    gamma = 1.0 / X.shape[1] if machine in ("KernelRidge", "KernelPCA") else 1.0 / (X.shape[1] * X.var())

    def fresh(m: int) -> Any:
        return made(machine, contender, gamma, classes, min(FEATURES, m))

    few = min(WARM_UP, len(X))
    applied(machine, fresh(few).fit(X[:few], None if labels is None else labels[:few]), X_test[:1])
    before = resident_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with watched(seconds):
        taken, model = timed(lambda: fresh(rows).fit(X, labels))
    peak, times = peak_bytes(), [taken]
    while again(times, FITS, ENOUGH) or again(times, MOST_FITS, SHORT):
        nudged = X * (1.0 + NUDGE * len(times))
        times.append(timed(lambda: fresh(rows).fit(nudged, labels))[0])  # noqa: B023
    found: dict[str, Any] = {
        "fit_seconds": min(times), "first_seconds": taken, "fits": len(times), "peak_bytes": peak, "base_bytes": before,
        "file_bytes": file_bytes(model, contender), "features": X.shape[1],
    }  # fmt: skip
    score, error, predicted = scored(task, machine, model, known, known_y, X_test, y_test)
    found |= {"score": score, "standard_error": error}
    if contender == "scikit-learn":
        np.save(kept, predicted)
    elif Path(kept).exists():
        found["same"] = agreement(task, np.load(kept), predicted)
    if task != "clusters":  # scikit-learn's cut knows no new rows
        found |= latencies(lambda rows: applied(machine, model, rows), X_test)
    return found


def read(folder: Path, shape: list[int], rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The first training rows and their targets, and the test rows with theirs: nothing else is ever in memory."""
    n_test, d = shape
    X, y = np.fromfile(folder / "X", count=rows * d).reshape(rows, d), np.fromfile(folder / "y", count=rows)
    return X, y, np.fromfile(folder / "X_test", count=n_test * d).reshape(n_test, d), np.fromfile(folder / "y_test")


# -- contenders --------------------------------------------------------------------------------------------------------


def made(machine: str, contender: str, gamma: float, classes: int, features: int) -> Any:
    """The unfitted machine."""
    asked: dict[str, Any] = {
        "KernelRidge": {"kernel": "rbf"}, "KernelPCA": {"kernel": "rbf", "n_components": COMPONENTS},
        "SpectralClustering": {"n_clusters": classes, "gamma": gamma, "random_state": 0},
    }.get(machine, {})  # fmt: skip
    if machine == "GaussianProcessRegressor":
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

        asked = {"kernel": ConstantKernel() * RBF() + WhiteKernel()}
    if contender == "krein":
        import krein

        return getattr(krein, machine)(**{"random_state": 0} | asked)
    if contender == "Nystroem":
        return with_nystroem(machine, gamma, classes, features)
    if machine == "KernelRidgeClassifier":
        return CodedRidge(gamma)
    if machine == "SpectralClustering" and contender == "subset":
        return CutOfSome(asked)
    from sklearn import cluster, decomposition, gaussian_process, kernel_ridge, svm

    rooms = (svm, kernel_ridge, gaussian_process, decomposition, cluster)
    return next(getattr(room, machine) for room in rooms if hasattr(room, machine))(**asked)


def with_nystroem(machine: str, gamma: float, classes: int, features: int) -> Any:
    """1000 features of the same kernel, and the linear machine that solves the same problem."""
    from sklearn import decomposition, linear_model, svm
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline

    mapped = Nystroem(gamma=gamma, n_components=features, random_state=0)
    if machine == "SpectralClustering":
        return CutOfFeatures(mapped, classes)
    linear = {
        "SVC": lambda: svm.LinearSVC(random_state=0),
        "SVR": lambda: svm.LinearSVR(epsilon=0.1, dual="auto", random_state=0),
        "OneClassSVM": lambda: linear_model.SGDOneClassSVM(nu=0.5, random_state=0),
        "KernelRidge": lambda: linear_model.Ridge(alpha=1.0, fit_intercept=False),
        "KernelRidgeClassifier": lambda: linear_model.RidgeClassifierCV(ALPHAS),
        "GaussianProcessRegressor": linear_model.BayesianRidge,
        "KernelPCA": lambda: decomposition.PCA(COMPONENTS, random_state=0),
    }
    return make_pipeline(mapped, linear[machine]())


class CodedRidge(BaseEstimator):
    """KernelRidgeClassifier's task by scikit-learn's means: codes of -1 and 1, alpha by five folds over the same."""

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def fit(self, X: np.ndarray, y: np.ndarray) -> CodedRidge:
        from sklearn.kernel_ridge import KernelRidge
        from sklearn.model_selection import GridSearchCV

        self.coder_ = LabelBinarizer(neg_label=-1).fit(y)
        search = GridSearchCV(KernelRidge(kernel="rbf", gamma=self.gamma), {"alpha": ALPHAS}, cv=5)
        self.ridge_ = search.fit(X, self.coder_.transform(y)).best_estimator_
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        values = self.ridge_.predict(X)
        first = values.shape[1] == 1
        return self.coder_.classes_[(values[:, 0] > 0).astype(int) if first else values.argmax(1)]


class CutOfFeatures(BaseEstimator):
    """The normalised cut of K ~ Z Zᵀ: leading singular vectors of D^(-1/2) Z, and k-means on them."""

    def __init__(self, mapped: Any, n_clusters: int) -> None:
        self.mapped, self.n_clusters = mapped, n_clusters

    def fit(self, X: np.ndarray, y: None = None) -> CutOfFeatures:
        from sklearn.cluster import KMeans

        Z = self.mapped.fit_transform(X)  # (n, features)
        degrees = np.sqrt(np.maximum(Z @ Z.sum(0), 1e-12))
        Z /= degrees[:, None]
        vectors = np.linalg.eigh(Z.T @ Z)[1][:, -self.n_clusters :]
        U = Z @ vectors
        U /= np.linalg.norm(U, axis=0) * degrees[:, None]
        self.labels_ = KMeans(self.n_clusters, n_init=10, random_state=0).fit(U).labels_
        return self


class CutOfSome(BaseEstimator):
    """scikit-learn's cut of the rows of the fit; others go with the nearest of them."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.asked = asked

    def fit(self, X: np.ndarray, y: None = None) -> CutOfSome:
        from sklearn.cluster import SpectralClustering
        from sklearn.neighbors import KNeighborsClassifier

        self.labels_ = SpectralClustering(**self.asked).fit(X).labels_
        self.nearest_ = KNeighborsClassifier(1).fit(X, self.labels_)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.nearest_.predict(X)


def applied(machine: str, model: Any, rows: np.ndarray) -> Any:
    """What a user asks of the fitted machine for new rows."""
    if TASKS[machine] == "clusters":
        return model.labels_
    return model.transform(rows) if TASKS[machine] == "components" else model.predict(rows)


# -- what is measured --------------------------------------------------------------------------------------------------


def scored(
    task: str, machine: str, model: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray
) -> tuple[float, float, np.ndarray]:
    """The score on the test rows (of clusters: on known training rows X), its standard error, and the predictions."""
    if task == "outliers":
        from sklearn.metrics import roc_auc_score

        values = model.decision_function(X_test)
        return *curve_error(float(roc_auc_score(y_test, values)), int(y_test.sum()), len(y_test)), np.sign(values)
    if task == "clusters":
        from sklearn.metrics import adjusted_rand_score

        labels = model.labels_[: len(X)] if len(model.labels_) >= len(X) else model.predict(X)
        draws = np.random.default_rng(0).integers(len(labels), size=(RESAMPLED, len(labels)))
        error = float(np.std([adjusted_rand_score(y[some], labels[some]) for some in draws]))
        return float(adjusted_rand_score(y, labels)), error, labels
    if task == "components":
        from sklearn.neighbors import KNeighborsClassifier

        votes = KNeighborsClassifier(NEIGHBOURS).fit(model.transform(X), y)
        predicted = votes.predict(model.transform(X_test))
    else:
        predicted = np.asarray(applied(machine, model, X_test))
    if task == "numbers":
        squares = (y_test - predicted) ** 2
        draws = np.random.default_rng(0).integers(len(y_test), size=(RESAMPLED, len(y_test)))
        scores = 1.0 - squares[draws].sum(1) / (len(y_test) * y_test[draws].var(1))
        return 1.0 - float(squares.mean() / y_test.var()), float(scores.std()), predicted
    share = float(np.mean(predicted == y_test))
    return share, float(np.sqrt(max(share * (1.0 - share), 1e-12) / len(y_test))), predicted


def curve_error(area: float, known: int, total: int) -> tuple[float, float]:
    """The area under the ROC curve and its standard error (Hanley and McNeil 1982)."""
    strange = total - known
    both, each = area / (2.0 - area) - area**2, 2.0 * area**2 / (1.0 + area) - area**2
    variance = (area * (1.0 - area) + (known - 1) * both + (strange - 1) * each) / (known * strange)
    return area, float(np.sqrt(variance))


def agreement(task: str, theirs: np.ndarray, ours: np.ndarray) -> float:
    """The share of rows with the same prediction; of clusters, whose names mean nothing, the Rand index between."""
    if task == "clusters":
        from sklearn.metrics import adjusted_rand_score

        return float(adjusted_rand_score(theirs, ours)) if len(theirs) == len(ours) else 0.0
    return float(np.mean(np.abs(theirs - ours) <= (SAME * theirs.std() if task == "numbers" else 0.0)))


def latencies(predict: Callable[[np.ndarray], Any], X_test: np.ndarray) -> dict[str, float]:
    """Processor seconds for many rows at once, the best of three where they are short, and for one: the median."""
    many: list[float] = []
    while not many or again(many, FITS, ENOUGH) or again(many, MOST_FITS, SHORT):
        many.append(timed(lambda: predict(X_test[:MANY]))[0])
    one: list[float] = []
    while not one or again(one, CALLS, LONGEST):
        row = X_test[len(one) % len(X_test)][None]
        one.append(timed(lambda row=row: predict(row))[0])
    return {"many_seconds": min(many), "row_seconds": statistics.median(one)}


def file_bytes(model: Any, contender: str) -> int:
    if contender != "krein":
        return len(pickle.dumps(model))
    import krein

    with tempfile.TemporaryDirectory() as folder:
        krein.save(model, Path(folder) / "model.krein")
        return (Path(folder) / "model.krein").stat().st_size


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    begun = processor_seconds()
    result = action()
    return processor_seconds() - begun, result


def processor_seconds() -> float:
    """Of this process and of the children it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_bytes() -> int:
    """The most this process had in memory; rusage's figure would begin with its parent's on Linux."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def again(times: list[float], most: int, seconds: float) -> bool:
    return len(times) < most and sum(times) < seconds


@contextmanager
def watched(seconds: float) -> Iterator[None]:
    """End this process when what is inside takes longer, by its processor time; solvers in C let other threads run.

    The system's own limit, RLIMIT_CPU, would make Linux count processor time in ticks of 4 ms from then on.
    """
    over, end = processor_seconds() + seconds, threading.Event()

    def look() -> None:
        while not end.wait(1.0):
            if processor_seconds() > over:
                os._exit(TOO_LONG)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        end.set()
        watcher.join()


if __name__ == "__main__":
    main()
