"""What krein gains on this machine: scikit-learn's SVC and krein's on the same generated rows, one after the other.

In: a number of rows. Out: one line per machine: seconds to fit and to predict, accuracy, bytes of its matrix.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sklearn.svm
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from krein.errors import KreinWarning
from krein.estimators import SVC, KernelRidgeClassifier
from krein.estimators.route import Exact

__all__ = ["Line", "run", "table"]

GAMMA, C = 0.05, 1.0


@dataclass(frozen=True)
class Line:
    """How one machine did."""

    name: str
    fit: float  # seconds
    predict: float
    accuracy: float
    nbytes: int  # of the matrix it learned from


def run(n: int, seed: int = 0, step: Callable[[str], Any] = lambda what: None) -> Iterator[Line]:
    """One line per machine; a fifth of the n rows is tested."""
    X, y = make_classification(
        n, n_features=20, n_informative=10, n_classes=3, n_clusters_per_class=3, class_sep=1.2, random_state=seed
    )
    machines = {
        "sklearn.svm.SVC": sklearn.svm.SVC(gamma=GAMMA, C=C),
        "krein.SVC": SVC(gamma=GAMMA, C=C, random_state=seed),
        "krein.KernelRidgeClassifier": KernelRidgeClassifier(kernel="rbf", gamma=GAMMA, alpha="loo", random_state=seed),
    }
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=seed, stratify=y)
    for name, machine in machines.items():
        step(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", KreinWarning)
            begin = time.perf_counter()
            machine.fit(X_train, y_train)
            fitted = time.perf_counter()
            accuracy = float(machine.score(X_test, y_test))
            done = time.perf_counter()
        exact = isinstance(getattr(machine, "route_", None), Exact) or not hasattr(machine, "route_")
        nbytes = 8 * len(X_train) ** 2 if exact else machine.approximation_.factorization.nbytes
        yield Line(name, fitted - begin, done - fitted, accuracy, int(nbytes))


def table(lines: list[Line], n: int) -> str:
    """For people; times are ratios to the first line's too, since a second means little elsewhere."""
    first = lines[0]
    out = [f"{n} generated rows, 20 features, 3 classes; a fifth of them tested", ""]
    out.append(f"{'':<28} {'fit':>18} {'predict':>18} {'accuracy':>9} {'matrix':>10}")
    for line in lines:
        fit = f"{line.fit:.2f} s ({first.fit / line.fit:.1f}x)"
        predict = f"{line.predict:.2f} s ({first.predict / line.predict:.1f}x)"
        out.append(
            f"{line.name:<28} {fit:>18} {predict:>18} {100 * line.accuracy:>7.2f} % {line.nbytes / 1e6:>7.1f} MB"
        )
    return "\n".join(out)
