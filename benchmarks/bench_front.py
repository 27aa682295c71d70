"""Kernel machines beside their peers on the same rows: the picture of the README and of the start page.

front.csv: covtype in two classes, 100,000 training rows, 10,000 to test on. Every contender runs in a process of its
own with one thread, by turns, as often as `REPEATS` says; seconds are the process's own, peak memory is what a fit adds
to data and code. What is exact comes last, most of it with a part of the rows (`PARTS`). scikit-learn-intelex runs
where the environment variable KREIN_INTELEX names a Python that has it. Falkon needs PyTorch and a compiler:
`front_peers.csv` has figures that were measured apart, on the same data and the same kind of machine, at other numbers
of rows.
"""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_machines import split
from benchmarks.measure import forget_peak, peak_bytes, resident_bytes
from benchmarks.pictures import panels, write
from benchmarks.runner import Request, Task

COLUMNS = (
    "contender", "repeat", "n", "fit_seconds", "fit_wall_seconds", "predict_seconds", "accuracy", "peak_bytes", "notes",
)  # fmt: skip
TABLES = {"front": COLUMNS}
REPEATS = 3
ROWS, QUICK_ROWS = 100_000, 3000
INTELEX = "scikit-learn-intelex SVC, half of the rows"
# Exact contenders, and which part of the rows each gets.
PARTS = {
    "KernelRidge, a tenth of the rows": 10, "krein SVC, exact": 1, "scikit-learn SVC, half of the rows": 2, INTELEX: 2,
}  # fmt: skip
C = 10.0
# Every kernel machine has GAMMA. What a narrower kernel changes is shown by these, which have NARROW.
GAMMA, NARROW = 0.1, 1.0
SHOWN_NARROW = {"krein ridge": 3, "krein SVC": 3, "krein ridge, 500 blocks of rank 32": 3,
                "RBFSampler 2048 + ridge": 1}  # fmt: skip
AT_NARROW, APART = f", gamma {NARROW:g}", " (apart)"
FAMILIES = {  # The first word of a contender: colour, marker, label
    "krein": ("#b03a2e", "o", "krein"),
    "scikit-learn": ("#1b5e91", "s", "exact SVC: scikit-learn, intelex (50,000 rows)"),
    "Nystroem": ("#117a3d", "^", "Nystroem + linear machine"),
    "RBFSampler": ("#7a6a00", "v", "random features + linear machine"),
    "KernelRidge": ("#1b5e91", "X", "KernelRidge (10,000 rows)"),
    "paper's": ("#d07a00", "*", "the paper's coupling, shifted + SVC"),
    "gradient": ("#6c3483", "D", "gradient boosting"),
    "Falkon": ("#555555", "P", "Falkon (50,000 and 200,000 rows)"),
}


def contenders(gamma: float = GAMMA) -> dict[str, Callable[[], Any]]:
    """Return how each contender is made. Nothing but gamma is tuned."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.kernel_approximation import Nystroem, RBFSampler
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import RidgeClassifier, SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC, LinearSVC

    import krein

    found: dict[str, Callable[[], Any]] = {
        "krein ridge": lambda: krein.KernelRidgeClassifier(gamma=gamma, random_state=0),
        "krein SVC": lambda: krein.SVC(gamma=gamma, C=C, random_state=0),
        "krein ridge, 500 blocks of rank 32": lambda: krein.KernelRidgeClassifier(
            gamma=gamma, n_blocks=500, rank=32, drop=1.0, random_state=0
        ),
        "gradient boosting": lambda: HistGradientBoostingClassifier(random_state=0),
        "gradient boosting, 500 trees": lambda: HistGradientBoostingClassifier(max_iter=500, random_state=0),
        "RBFSampler 2048 + SGD": lambda: make_pipeline(
            RBFSampler(gamma=gamma, n_components=2048, random_state=0), SGDClassifier(random_state=0)
        ),
        "RBFSampler 2048 + ridge": lambda: make_pipeline(
            RBFSampler(gamma=gamma, n_components=2048, random_state=0), RidgeClassifier(alpha=0.1)
        ),
        "Nystroem 256 + LinearSVC": lambda: make_pipeline(
            Nystroem(gamma=gamma, n_components=256, random_state=0), LinearSVC(C=C)
        ),
        "RBFSampler 256 + LinearSVC": lambda: make_pipeline(
            RBFSampler(gamma=gamma, n_components=256, random_state=0), LinearSVC(C=C)
        ),
    }
    for m in (256, 1024, 2048):
        found[f"Nystroem {m} + ridge"] = lambda m=m: make_pipeline(
            Nystroem(gamma=gamma, n_components=m, random_state=0), RidgeClassifier(alpha=0.1)
        )
    found["paper's coupling, 50 blocks of rank 32 + SVC"] = lambda: Paper(gamma)
    ridge, exact, svc, _ = PARTS
    found[exact] = lambda: krein.SVC(gamma=gamma, C=C, policy=krein.Policy(svm_rows=ROWS), random_state=0)
    found[ridge] = lambda: KernelRidge(kernel="rbf", gamma=gamma, alpha=0.1)
    found[svc] = lambda: SVC(gamma=gamma, C=C, cache_size=2000)
    return found


class Paper:
    """The paper's M2 under an SVM: Algorithm 1 as published, shifted until it is psd."""

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def fit(self, X: np.ndarray, y: np.ndarray) -> Paper:
        import krein

        a = krein.approximate(
            X, krein.RBF(gamma=self.gamma), n_blocks=50, rank=32, coupling="pairwise", guarded=False, random_state=0
        )
        self.machine = krein.SVC(C=C, approximation=a, correction="shift").fit(X, y)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.machine.predict(X)


def tasks(request: Request) -> list[Task]:
    rows, repeats = (QUICK_ROWS, 1) if request.quick else (ROWS, REPEATS)
    turns = [(name, repeat, rows) for repeat in range(repeats) for name in contenders() if name not in PARTS]
    turns += [(name + AT_NARROW, r, rows) for name, most in SHOWN_NARROW.items() for r in range(min(most, repeats))]
    parts = {name: part for name, part in PARTS.items() if name != INTELEX or os.environ.get("KREIN_INTELEX")}
    turns += [(name, repeat, rows // part) for repeat in range(repeats) for name, part in parts.items()]
    return [Task({"contender": turn[0], "repeat": turn[1]}, measure, turn, fresh=True) for turn in turns]


def measure(name: str, repeat: int, rows: int) -> list[dict[str, Any]]:
    X, y, X_test, y_test = split(f"covtype {rows}")
    if name == INTELEX:
        return [{"contender": name, "repeat": repeat, "n": len(X), **in_intelex(X, y, X_test, y_test)}]
    narrow = name.endswith(AT_NARROW)
    model = contenders(NARROW if narrow else GAMMA)[name.removesuffix(AT_NARROW)]()
    forget_peak()
    before = resident_bytes()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start, wall = time.process_time(), time.perf_counter()
        model.fit(X, y)
        fit, fit_wall = time.process_time() - start, time.perf_counter() - wall
    peak = peak_bytes() - before
    start = time.process_time()
    accuracy = float(np.mean(np.sign(model.predict(X_test)) == y_test))  # labels are 1 and -1, of regressions too
    return [{
        "contender": name, "repeat": repeat, "n": len(X), "fit_seconds": fit, "fit_wall_seconds": fit_wall,
        "predict_seconds": time.process_time() - start, "accuracy": accuracy, "peak_bytes": peak,
        "notes": "; ".join(sorted({str(w.message)[:100] for w in caught})),
    }]  # fmt: skip


def in_intelex(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> dict[str, float]:
    """Return what scikit-learn-intelex's SVC takes, in its own Python."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npz"
        np.savez(path, X=X, y=y, X_new=X_test, y_new=y_test)
        script = Path(__file__).with_name("exact_contender.py")
        command = [os.environ["KREIN_INTELEX"], script, "scikit-learn-intelex", path, str(C), str(GAMMA)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: found[name] for name in COLUMNS if name in found}


def measured_apart() -> list[dict[str, str]]:
    with Path(__file__).with_name("front_peers.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


# -- what it shows -----------------------------------------------------------------------------------------------------


def summary(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Return medians of the repeats, with the least and the largest seconds; what was measured apart comes last."""
    apart = [r | {"contender": r["contender"] + APART} for r in measured_apart()]
    found = []
    for name, n in dict.fromkeys((r["contender"], r["n"]) for r in [*rows, *apart]):
        some = [r for r in [*rows, *apart] if (r["contender"], r["n"]) == (name, n)]
        columns = ("fit_seconds", "predict_seconds", "accuracy", "peak_bytes")
        medians = {c.split("_")[0]: statistics.median(float(r[c]) for r in some) for c in columns}
        fits = sorted(float(r["fit_seconds"]) for r in some)
        narrow = name.removesuffix(APART).endswith(AT_NARROW)
        found.append({"contender": name, "narrow": narrow, "n": int(n), "low": fits[0], "high": fits[-1], **medians})
    return found


def report(rows: list[dict[str, str]], request: Request) -> str:
    found = summary(rows)
    draw(found, request.output / "front.png")
    lines = [
        "# krein beside its peers",
        "",
        f"covtype, two classes, 10,000 test rows; gamma = {GAMMA:g}; one thread; CPU seconds, medians of the repeats",
        "with the least and the largest; peak memory is what a fit adds to data and code. Those marked (apart) were",
        "measured once, at other numbers of rows; `benchmarks/front_peers.csv` has their parameters.",
        "",
        "![Accuracy against the seconds and the memory of a fit](front.png)",
        "",
        *table([r for r in found if not r["narrow"]]),
        "",
        f"## With gamma = {NARROW:g}",
        "",
        "The best gamma differs by contender. An exact SVM gains by a narrower kernel, krein's SVC too; a few thousand",
        "features cannot follow it and lose; krein's ridge hardly cares. These are the hollow marks of the picture.",
        "",
        *table([r for r in found if r["narrow"]]),
    ]
    return "\n".join(lines) + "\n"


def table(found: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| contender | rows | accuracy % | fit s | least, largest | predict 10,000 rows s | peak MB |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in sorted(found, key=lambda r: -r["accuracy"]):
        lines.append(
            f"| {r['contender']} | {r['n']:,} | {100 * r['accuracy']:.2f} | {r['fit']:.1f} "
            f"| {r['low']:.1f}, {r['high']:.1f} | {r['predict']:.2f} | {r['peak'] / 1e6:.0f} |"
        )
    return lines


def draw(found: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.ticker import NullFormatter

    figure, axes = panels(2, 10.5, 4.4, sharey=True)
    shown = (("fit", 1.0, "CPU seconds of a fit, one thread"), ("peak", 1e6, "memory a fit adds, MB"))
    for ax, (column, unit, label) in zip(axes, shown, strict=True):
        for family, (colour, marker, title) in FAMILIES.items():
            for narrow in (False, True):
                some = [r for r in found if r["contender"].startswith(family) and r["narrow"] == narrow]
                ax.plot(
                    [r[column] / unit for r in some],
                    [100 * r["accuracy"] for r in some],
                    color=colour, marker=marker, markersize=9, linestyle="none", alpha=0.85,
                    markerfacecolor="none" if narrow else colour, label=None if narrow else title,
                )  # fmt: skip
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_xlabel(label)
        ax.margins(x=0.1, y=0.1)
    axes[0].set_ylabel("accuracy on 10,000 test rows, %")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    write(figure, path)
