"""krein bench: scikit-learn's SVC and krein's classifiers on the same generated rows, one after the other."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import click

__all__ = ["command"]

# All classifiers have the same kernel parameter and penalty.
GAMMA, C = 0.05, 1.0


@click.command("bench")
@click.option("--rows", type=click.IntRange(500), default=10_000, show_default=True, help="Rows of generated data.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True,
              help="Seed of the random numbers.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list instead of a table.")
def command(rows: int, seed: int, as_json: bool) -> None:
    """Time krein's classifiers beside scikit-learn's SVC on generated data, with one BLAS thread each.

    Times are wall clock and depend on what else the machine does, so compare the ratios in brackets. The
    documentation has the results of the project's own benchmarks.

    \b
    Examples:
      krein bench
      krein bench --rows 50000
    """
    from threadpoolctl import threadpool_limits
    from tqdm.auto import tqdm

    with threadpool_limits(1), tqdm(total=3, disable=None, leave=False) as bar:

        def step(what: str) -> None:
            bar.set_description(what)
            bar.update()

        lines = list(run(rows, seed, step))
    click.echo(json.dumps([asdict(line) for line in lines], indent=1) if as_json else table(lines, rows))


@dataclass(frozen=True)
class Line:
    """The measurements of one estimator."""

    name: str
    fit: float  # seconds
    predict: float
    accuracy: float
    nbytes: int  # of the kernel matrix or its factorization


def run(n: int, seed: int = 0, step: Callable[[str], Any] = lambda what: None) -> Iterator[Line]:
    """Yield one line per estimator; a fifth of the n rows is held out."""
    import sklearn.svm
    from sklearn.datasets import make_classification
    from sklearn.model_selection import train_test_split

    from krein.errors import KreinWarning
    from krein.estimators import SVC, KernelRidgeClassifier
    from krein.estimators.route import Exact

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
    """Return the lines as a table; times are also given as ratios to the first line."""
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
