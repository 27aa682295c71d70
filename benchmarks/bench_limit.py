"""Large fits and predictions beside their bare arithmetic and beside peers: covtype, its elevation, a million rows.

limit.csv: one row per data set, contender and number of threads, each in a process of its own. Seconds are CPU seconds
and wall seconds. limit_stages.csv: the stages of krein's fit with one thread, and of its prediction. The bare cost is
timed in the same process: for every block of similarities the distances, a matrix product and exp in NumPy, SciPy's QR
of every shape that was factored, and the products of the bases; for every stage on the very shapes it met.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from joblib import cpu_count

from benchmarks.measure import peak_bytes
from benchmarks.pictures import panels, write
from benchmarks.runner import Request, Task

COLUMNS = (
    "data", "n", "contender", "threads", "fit_seconds", "fit_wall", "predict_us", "predict_wall_us", "score", "blocks",
    "rank", "bare_fit_seconds", "over_bare_fit", "bare_predict_us", "over_bare_predict", "peak_bytes",
)  # fmt: skip
STAGES = ("data", "n", "stage", "seconds", "bare_kernel", "bare_qr", "bare_products", "ratio")
TABLES = {"limit": COLUMNS, "limit_stages": STAGES}
DATA = (("covtype", 100_000), ("covtype", 522_911), ("elevation", 320_000), ("generated", 1_000_000))
PEERS = ("HistGradientBoosting", "Nystroem 256")
# Rows that are predicted.
TEST = 50_000
# Wanted: a fit within FIT times its bare arithmetic, a prediction within PREDICT times; two cores SPEED times as fast.
FIT, PREDICT, SPEED = 4.0, 3.0, 1.6
# Functions at which a stage of a fit begins, by the module that calls them.
HOOKS = {
    ("krein.choosing.by_score", "propose"): "choosing: scores",
    ("krein.choosing.by_score", "_Trials"): "choosing: rows to score on",
    ("krein.approximation.building", "partition"): "clusters",
    ("krein.approximation.building", "one_block"): "bases and core",
    ("krein.approximation.shared", "draft"): "bases and core",
    ("krein.approximation.shared", "strongest"): "finishing",
    ("krein.approximation.shared", "finish"): "finishing",
    ("krein.estimators.ridge", "decompose"): "solving",
    ("krein.estimators.ridge", "_scores"): "solving",
    ("krein.estimators.ridge", "solve_factored"): "solving",
}


def tasks(request: Request) -> list[Task]:
    most = request.options.get("most", np.inf)
    sets = (("generated", 30_000),) if request.quick else [(data, n) for data, n in DATA if n <= most]
    found = []
    for data, n in sets:
        runs = [("krein", 1), ("krein", 2), *((peer, 1) for peer in PEERS)]
        runs = [run for run in runs if run[1] <= cpu_count()]  # two threads on one core say nothing
        found += [
            Task({"data": data, "n": n, "contender": c, "threads": t}, measure, (data, n, c, t), fresh=True)
            for c, t in runs
        ]
    return found


def rows(data: str, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and targets, then test rows and targets."""
    from krein.datasets import load

    rng = np.random.default_rng(0)
    if data == "generated":
        X = rng.normal(size=(n + TEST, 20))
        Z = X @ rng.normal(size=(20, 4)) / 4.0
        y = np.sin(3.0 * Z[:, 0]) + Z[:, 1] * Z[:, 2] + 0.1 * rng.normal(size=len(X))
    else:
        held = load("covtype")
        X = np.asarray(held.X, dtype=np.float64)
        order = rng.permutation(len(X))
        X, y = X[order], np.asarray(held.y)[order] == 2
        if data == "elevation":
            X, y = X[:, 1:], (X[:, 0] - X[:, 0].mean()) / X[:, 0].std()
        X = (X - X.mean(0)) / np.maximum(X.std(0), 1e-12)
    return X[:n], y[:n], X[-TEST:], y[-TEST:]


def machine(data: str, contender: str) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge, RidgeClassifier
    from sklearn.pipeline import make_pipeline

    import krein

    labels, gamma = data == "covtype", 1.0 if data == "covtype" else None
    if contender == "krein":
        if labels:
            return krein.KernelRidgeClassifier(gamma=gamma, random_state=0)
        return krein.KernelRidge(0.1, kernel="rbf", gamma=gamma, random_state=0)
    if contender == "HistGradientBoosting":
        return (HistGradientBoostingClassifier if labels else HistGradientBoostingRegressor)(random_state=0)
    width = gamma or 1.0 / (20 if data == "generated" else 53)
    features = Nystroem(gamma=width, n_components=256, random_state=0)
    return make_pipeline(features, RidgeClassifier(0.1, copy_X=False) if labels else Ridge(0.1, copy_X=False))


def measure(data: str, n: int, contender: str, threads: int) -> dict[str, list[dict[str, Any]]]:
    from threadpoolctl import threadpool_limits

    X, y, X_test, y_test = rows(data, n)
    model = machine(data, contender)
    machine("generated", contender).fit(X[:3000], X[:3000, 0]).predict(X[:10])  # load all code
    watch = Watch() if contender == "krein" and threads == 1 else None
    with threadpool_limits(threads):  # what BLAS may use where no variable is set on as many cores
        fitted = timed(lambda: model.fit(X, y), watch)
        model.predict(X_test[:100])
        predicted = timed(lambda: model.predict(X_test), watch and watch.at("prediction"))
    score = model.score(X_test, y_test)
    us = 1e6 / len(X_test)
    row = {
        "fit_seconds": fitted[0], "fit_wall": fitted[1], "predict_us": predicted[0] * us,
        "predict_wall_us": predicted[1] * us, "score": score, "peak_bytes": peak_bytes(),
    }  # fmt: skip
    if contender == "krein":
        f = model.approximation_.factorization
        row |= {"blocks": f.n_blocks, "rank": max(f.ranks)}
    if watch is None:
        return {"limit": [row], "limit_stages": []}
    stages = watch.stages(X, fitted[0], predicted[0])
    bare = sum(sum(s[c] for c in STAGES[4:7]) for s in stages if s["stage"] != "prediction")
    bare_predict = sum(stages[-1][c] for c in STAGES[4:7])
    row |= {
        "bare_fit_seconds": bare, "over_bare_fit": fitted[0] / bare, "bare_predict_us": bare_predict * us,
        "over_bare_predict": predicted[0] / bare_predict,
    }  # fmt: skip
    return {"limit": [row], "limit_stages": stages}


def timed(action: Callable[[], Any], watch: Watch | None) -> tuple[float, float]:
    """CPU seconds and wall seconds."""
    if watch is not None:
        watch.__enter__()
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    taken = time.process_time() - cpu, time.perf_counter() - wall
    if watch is not None:
        watch.__exit__()
    return taken


class Watch:
    """Replaces functions of krein by timed ones, and records the shapes of similarities, QRs and products."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.kernel: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.factored: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.inside: list[str] = []
        self.before: list[tuple[Any, str, Any]] = []
        self.outside = "rest"

    def at(self, stage: str) -> Watch:
        self.outside = stage
        return self

    def __enter__(self) -> None:
        import krein

        for (module, name), stage in HOOKS.items():
            home = sys.modules[module]
            self._replace(home, name, self._timed(getattr(home, name), stage))
        for module in ("krein.approximation.shared",):
            self._replace(sys.modules[module], "orthonormalise", self._qr(sys.modules[module].orthonormalise))
        self._replace(krein.RBF, "values", self._kernel(krein.RBF.values))

    def __exit__(self) -> None:
        for home, name, original in reversed(self.before):
            setattr(home, name, original)
        self.before = []

    def _replace(self, home: Any, name: str, by: Any) -> None:
        self.before.append((home, name, getattr(home, name)))
        setattr(home, name, by)

    @property
    def stage(self) -> str:
        return self.inside[0] if self.inside else self.outside

    def _timed(self, original: Any, stage: str) -> Any:
        def timed(*arguments: Any, **more: Any) -> Any:
            self.inside.append(stage)
            start = time.process_time()
            try:
                return original(*arguments, **more)
            finally:
                self.inside.pop()
                if not self.inside:
                    self.seconds[stage] += time.process_time() - start

        return timed

    def _qr(self, original: Any) -> Any:
        def recorded(Q: Any) -> Any:
            self.factored[self.stage].append(Q.shape)
            return original(Q)

        return recorded

    def _kernel(self, original: Any) -> Any:
        def values(itself: Any, rows: Any, a: Any) -> Any:
            self.kernel[self.stage].append((a.shape[0], rows.b.shape[0]))
            return original(itself, rows, a)

        return values

    def stages(self, X: np.ndarray, fit: float, predict: float) -> list[dict[str, Any]]:
        """Seconds of each stage beside its bare arithmetic, here and now."""
        self.seconds["rest"] = fit - sum(self.seconds.values())
        self.seconds["prediction"] = predict
        found = []
        for stage, taken in self.seconds.items():
            shapes = self.kernel[stage]
            columns = int(np.median([m for _, m in shapes])) if shapes else 0
            bare = {
                "bare_kernel": sum(evaluated(X, a, b) for a, b in shapes),
                "bare_qr": sum(factored(shape) for shape in self.factored[stage]),
                "bare_products": sum(multiplied(a, b, 1 if stage == "prediction" else columns) for a, b in shapes),
            }
            if stage == "clusters":  # all rows to the nearest branch and to the nearest of its leaves
                blocks = len(self.factored["bases and core"]) or 1
                bare["bare_products"] = multiplied(len(X), X.shape[1], 2 * int(np.sqrt(blocks)))
            total = sum(bare.values())
            found.append({"stage": stage, "seconds": taken, **bare, "ratio": taken / total if total else ""})
        return found


def cpu(action: Callable[[], Any]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def evaluated(X: np.ndarray, a: int, b: int) -> float:
    """exp(-|x - z|²) for a rows and b others, a tile of 2²² numbers at a time."""
    step = max(1, min(a, 2**22 // b))
    A, B = X[:step], X[-b:]

    def bare() -> None:
        values = A @ B.T
        values *= -2.0
        values += np.einsum("ij,ij->i", A, A)[:, None]
        values += np.einsum("ij,ij->i", B, B)
        np.negative(values, out=values)
        np.exp(values, out=values)

    return cpu(bare) * a / step


def factored(shape: tuple[int, int]) -> float:
    Q = np.asfortranarray(np.random.default_rng(0).standard_normal(shape))
    return cpu(lambda: scipy.linalg.qr(Q, mode="economic", overwrite_a=True, check_finite=False))


def multiplied(a: int, b: int, c: int) -> float:
    """A product (a, b) x (b, c), at most some 2²² numbers of it at once."""
    step = max(1, min(a, 2**22 // max(b, c, 1)))
    A, B = np.full((step, b), 0.5), np.full((b, c), 0.5)
    return cpu(lambda: A @ B) * a / step


def report(found: list[dict[str, str]], stages: list[dict[str, str]], request: Request) -> str:
    lines = [
        "# Large fits beside their bare arithmetic and their peers",
        "",
        "float64. Seconds of the process, and wall seconds; µs of a predicted row. Bare: distances, products and",
        "exp in NumPy and SciPy's QRs on the same shapes. Score: accuracy (covtype) or R².",
        "",
        "![The stages of each fit beside its bare arithmetic](limit.png)",
        "",
        "| data | n | contender | threads | fit s | wall s | predict µs | wall µs | score | blocks x rank | fit / bare "
        "| predict / bare |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for r in found:
        shape = f"{r['blocks']} x {r['rank']}" if r["blocks"] else ""
        over = [f"{float(r[c]):.1f}" if r[c] else "" for c in ("over_bare_fit", "over_bare_predict")]
        lines.append(
            f"| {r['data']} | {r['n']} | {r['contender']} | {r['threads']} | {float(r['fit_seconds']):.1f} "
            f"| {float(r['fit_wall']):.1f} | {float(r['predict_us']):.1f} | {float(r['predict_wall_us']):.1f} "
            f"| {float(r['score']):.4f} | {shape} | {over[0]} | {over[1]} |"
        )
    lines.append("")
    own = {(r["data"], r["n"], r["threads"]): r for r in found if r["contender"] == "krein"}
    for (data, n, threads), r in own.items():
        if threads == "1":
            lines.append(
                f"- {data}, {n} rows: fit {float(r['over_bare_fit']):.1f} times bare (wanted: {FIT:g}), prediction "
                f"{float(r['over_bare_predict']):.1f} times (wanted: {PREDICT:g})."
            )
        elif (data, n, "1") in own:
            speeds = [float(own[data, n, "1"][c]) / float(r[c]) for c in ("fit_wall", "predict_wall_us")]
            lines.append(
                f"- {data}, {n} rows, two threads: {speeds[0]:.2f} (fit), {speeds[1]:.2f} (prediction) times as fast "
                f"in wall time (wanted on an idle machine: {SPEED:g})."
            )
    lines += [
        "",
        "| data | n | stage | seconds | bare similarities | bare QRs | bare products | ratio |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in stages:
        numbers = [f"{float(r[c]):.2f}" if r[c] else "" for c in STAGES[3:]]
        lines.append(f"| {r['data']} | {r['n']} | {r['stage']} | {' | '.join(numbers)} |")
    draw(stages, request.output / "limit.png")
    return "\n".join(lines) + "\n"


def draw(stages: list[dict[str, str]], path: Path) -> None:
    """The stages of each fit as bars of seconds, and their bare arithmetic beside them."""
    fits = list(dict.fromkeys((r["data"], r["n"]) for r in stages))
    names = list(dict.fromkeys(r["stage"] for r in stages if r["stage"] != "prediction"))
    figure, (ax,) = panels(1, 10.0, 1.8 + 1.1 * len(fits))
    for k, fit in enumerate(fits):
        left = bare = 0.0
        for c, name in enumerate(names):
            for r in stages:
                if (r["data"], r["n"], r["stage"]) == (*fit, name):
                    ax.barh(k - 0.2, float(r["seconds"]), 0.38, left, color=f"C{c}", label=None if k else name)
                    left += float(r["seconds"])
                    bare += sum(float(r[column]) for column in STAGES[4:7])
        ax.barh(k + 0.2, bare, 0.38, color="0.6", label=None if k else "bare arithmetic of all stages")
    ax.set_yticks(range(len(fits)), [f"{data}\n{int(n):,} rows" for data, n in fits])
    ax.invert_yaxis()
    ax.set_xlabel("CPU seconds of the fit, one thread")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    write(figure, path)
