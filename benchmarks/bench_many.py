"""What the shared coupling costs: covtype in 2000 blocks, growth in n, and every stage beside its bare arithmetic.

many.csv: one row per build, each in a process of its own. The bare cost is timed in that process: scikit-learn's
rbf_kernel on the very shapes the build asked its kernel for, and SciPy's QR of the very shapes it factored; plain is
rbf_kernel on as many entries in wide strips. many_stages.csv: seconds of each stage, and of its bare kernel
evaluations, products and QRs. Seconds are the process's own (one thread), so that neighbours on the machine count less.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from sklearn.metrics.pairwise import rbf_kernel

from benchmarks.measure import peak_bytes, resident_bytes
from benchmarks.pictures import KREIN, panels, write
from benchmarks.runner import Request, Task

COLUMNS = (
    "case", "n", "d", "n_blocks", "rank", "seconds", "bare_kernel_seconds", "bare_qr_seconds", "over_bare",
    "plain_seconds", "over_plain", "entries", "held_bytes", "maps_bytes", "peak_bytes", "peak_over_held", "psd",
    "rigorous", "margin", "certify_seconds", "error", "error_high", "warnings",
)  # fmt: skip
STAGES = ("case", "stage", "seconds", "own_kernel_seconds", "bare_seconds", "ratio")
TABLES = {"many": COLUMNS, "many_stages": STAGES}
GROWTH = (10_000, 30_000, 100_000, 200_000, 500_000)
# Upper limits of the aims: time over bare arithmetic, time over plain kernels, cost of more blocks, exponent of n,
# peak over held bytes, held bytes.
BARE, PLAIN, BLOCKS, EXPONENT, HELD, BYTES = 4.0, 4.0, 1.5, 1.1, 2.0, 0.4e9
# A plain evaluation has WIDE entries.
WIDE = 2**22
# The functions of krein.approximation at which a stage begins. A stage inside another counts for both; a function that
# no longer exists leaves its stage unmeasured.
HOOKS = {
    "partition": "clusters", "coupling_strengths": "which blocks to keep", "kept_couplings": "which blocks to keep",
    "choose_landmarks": "landmarks", "outside_landmarks": "landmarks", "_sampled_basis": "bases",
    "leading": "bases: directions", "orthonormal_columns": "bases: QR", "sample_places": "bases: pivots",
    "inverse_of": "bases: pseudo-inverses", "core_strip": "core", "finish": "trim and store",
}  # fmt: skip


def tasks(request: Request) -> list[Task]:
    return [Task({"case": case}, measure, arguments, fresh=True) for case, arguments in cases(request.quick).items()]


def cases(quick: bool) -> dict[str, tuple[str, int, int, int, float]]:
    """Data, rows, blocks, rank and gamma of each case."""
    if quick:
        sizes: dict[str, tuple[str, int, int, int, float]] = {"mixture, 140 blocks": ("mixture", 12_000, 140, 16, 0.1)}
        return sizes | {f"growth {n}": ("mixture", n, 20, 16, 0.1) for n in (5_000, 10_000)}
    found = {f"growth {n}": ("mixture", n, 50, 64, 0.1) for n in GROWTH}
    found["covtype, 50 blocks"] = ("covtype", 200_000, 50, 64, 1.0)
    found["covtype, 100 blocks"] = ("covtype", 581_012, 100, 64, 1.0)
    found["covtype, 2000 blocks"] = ("covtype", 581_012, 2000, 64, 1.0)
    return found


def measure(data: str, n: int, n_blocks: int, rank: int, gamma: float) -> dict[str, list[dict[str, Any]]]:
    import krein

    X = rows(data, n)
    krein.approximate(X[:500], krein.RBF(gamma=gamma), n_blocks=2, rank=8, random_state=0)  # load all code
    before = resident_bytes()
    watch = Watch()
    with warnings.catch_warnings(record=True) as caught, watch:
        warnings.simplefilter("always")
        start = time.process_time()
        a = krein.approximate(X, krein.RBF(gamma=gamma), n_blocks=n_blocks, rank=rank, random_state=0)
        taken = time.process_time() - start
    peak = peak_bytes() - before
    F = a.factorization
    held = F.nbytes + a.nbytes
    bare, kernel_seconds, qr_seconds = watch.bare(X, n_blocks, rank, gamma)
    plain = _cpu(lambda: _plain(X, a.n_evaluations, gamma))
    begun = time.process_time()
    proof = krein.certify(F)
    proven = time.process_time() - begun
    error = a.error(random_state=0)
    row = {
        "n": n, "d": X.shape[1], "n_blocks": n_blocks, "rank": rank, "seconds": taken,
        "bare_kernel_seconds": kernel_seconds, "bare_qr_seconds": qr_seconds,
        "over_bare": taken / (kernel_seconds + qr_seconds), "plain_seconds": plain, "over_plain": taken / plain,
        "entries": a.n_evaluations, "held_bytes": F.nbytes, "maps_bytes": a.nbytes, "peak_bytes": peak,
        "peak_over_held": peak / held, "psd": proof.psd, "rigorous": proof.rigorous, "margin": proof.margin,
        "certify_seconds": proven, "error": error.relative, "error_high": error.high,
        "warnings": "; ".join(sorted({str(w.message) for w in caught})),
    }  # fmt: skip
    watch.seconds["everything"] = taken
    watch.own["everything"] = sum(watch.own[s] for s in ("landmarks", "bases", "core", "which blocks to keep", "rest"))
    bare["everything"] = sum(t for stage, t in bare.items() if ":" not in stage)
    stages = [
        {"stage": s, "seconds": t, "own_kernel_seconds": watch.own[s], "bare_seconds": bare.get(s, 0.0),
         "ratio": t / bare[s] if bare.get(s) else ""}
        for s, t in watch.seconds.items()
    ]  # fmt: skip
    return {"many_stages": stages, "many": [row]}


def rows(data: str, n: int) -> np.ndarray:
    from krein.datasets import load, mixture

    if data == "mixture":
        return np.asarray(mixture(n, 10, 20, dtype="float32", random_state=0).X)
    X = np.asarray(load(data).X, dtype=np.float32)
    X -= X.mean(0, dtype=np.float64).astype(np.float32)
    spread = X.std(0, dtype=np.float64)
    X /= np.where(spread > 0, spread, 1.0).astype(np.float32)
    return X if n >= len(X) else X[np.sort(np.random.default_rng(0).choice(len(X), n, replace=False))]


def _plain(X: np.ndarray, entries: int, gamma: float) -> None:
    """As many entries by scikit-learn: all rows against as many others, in strips."""
    count = max(1, round(entries / len(X)))
    Z, step = X[:count], max(1, WIDE // count)
    for start in range(0, len(X), step):
        rbf_kernel(X[start : start + step], Z, gamma=gamma)


def _cpu(action: Callable[[], Any]) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


class Watch:
    """Replaces functions of krein by timed ones that also record the shapes they are called with."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.own: dict[str, float] = defaultdict(float)  # krein's kernel, by stage
        self.shapes: dict[str, list[tuple[int, int, str]]] = defaultdict(list)  # asked of the kernel, by stage
        self.factored: list[tuple[int, int, str]] = []
        self.inside: list[str] = []
        self.before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Watch:
        import krein

        rooms = [module for name, module in sys.modules.items() if name.startswith("krein.approximation.")]
        for name, stage in HOOKS.items():
            for home in [module for module in rooms if hasattr(module, name)]:
                self._replace(home, name, self._timed(getattr(home, name), stage))
        self._replace(krein.RBF, "against", self._kernel(krein.RBF.against))
        return self

    def __exit__(self, *_: Any) -> None:
        for home, name, original in reversed(self.before):
            setattr(home, name, original)

    def _replace(self, home: Any, name: str, by: Any) -> None:
        self.before.append((home, name, getattr(home, name)))
        setattr(home, name, by)

    def _timed(self, original: Any, stage: str) -> Any:
        def timed(*arguments: Any, **more: Any) -> Any:
            if stage == "bases: QR":
                self.factored.append((*arguments[0].shape, str(arguments[0].dtype)))
            self.inside.append(stage)
            start = time.process_time()
            try:
                result = original(*arguments, **more)
            finally:
                self.seconds[stage] = self.seconds.get(stage, 0.0) + time.process_time() - start
                self.inside.pop()
            return result

        return timed

    def _kernel(self, original: Any) -> Any:
        def against(itself: Any, *arguments: Any) -> Any:
            function = original(itself, *arguments)

            def timed(A: Any) -> Any:
                start = time.process_time()
                values = function(A)
                stage = self.inside[0] if self.inside else "rest"
                self.own[stage] += time.process_time() - start
                self.shapes[stage].append((*values.shape, str(values.dtype)))
                return values

            return timed

        return against

    def bare(self, X: np.ndarray, n_blocks: int, rank: int, gamma: float) -> tuple[dict[str, float], float, float]:
        """Seconds of each stage's bare arithmetic, of all kernel evaluations, and of all QRs, here and now."""
        pools = {"float32": X.astype(np.float32), "float64": X[:50_000].astype(np.float64)}
        out: dict[str, float] = {}
        for stage, shapes in self.shapes.items():
            out[stage] = sum(_evaluated(pools[t], a, b, gamma) for a, b, t in shapes)
        kernel_seconds = sum(out.values())
        qr_seconds = sum(_factored(shape) for shape in self.factored)
        k = round(float(np.mean([columns for _, columns, _ in self.factored])))
        out["bases: QR"] = qr_seconds
        out["bases"] += qr_seconds + sum(_multiplied(a, b, k, t) for a, b, t in self.shapes["bases"])
        out["core"] += sum(_multiplied(k, a, b, t) + _multiplied(k, b, k, t) for a, b, t in self.shapes["core"])
        out["clusters"] = _multiplied(len(X), X.shape[1], n_blocks, "float32")  # all rows to all centres, once
        out["trim and store"] = sum(_multiplied(n, m, min(rank, m), t) for n, m, t in self.factored)
        return out, kernel_seconds, qr_seconds


def _evaluated(X: np.ndarray, a: int, b: int, gamma: float) -> float:
    A, B = X[:a], X[-b:]
    return _cpu(lambda: rbf_kernel(A, B, gamma=gamma))


def _factored(shape: tuple[int, int, str]) -> float:
    Q = np.asfortranarray(np.random.default_rng(0).standard_normal(shape[:2]).astype(shape[2]))
    return _cpu(lambda: scipy.linalg.qr(Q, mode="economic", overwrite_a=True, check_finite=False))


def _multiplied(a: int, b: int, c: int, dtype: str) -> float:
    """A product (a, b) x (b, c), at most some 2²⁶ numbers of it at once."""
    step = max(1, min(a, 2**26 // max(b, c)))
    A, B = np.full((step, b), 0.5, dtype=dtype), np.full((b, c), 0.5, dtype=dtype)
    return _cpu(lambda: A @ B) * a / step


def report(rows: list[dict[str, str]], stages: list[dict[str, str]], request: Request) -> str:
    lines = [
        "# What the shared coupling costs",
        "",
        "float32, one thread, seconds of the process. Bare: scikit-learn's kernel evaluations on the same shapes and",
        "SciPy's QRs. Plain: one evaluation of as many entries in wide strips. Peak: memory above data and code.",
        "",
        "![Seconds of each stage beside its bare arithmetic](many.png)",
        "",
        "| case | n | blocks | rank | seconds | over bare | over plain | held MB | maps MB | peak / held "
        "| psd (proven) | error |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    by = {r["case"]: r for r in rows}
    for r in rows:
        lines.append(
            f"| {r['case']} | {r['n']} | {r['n_blocks']} | {r['rank']} | {float(r['seconds']):.1f} "
            f"| {float(r['over_bare']):.2f} | {float(r['over_plain']):.2f} | {float(r['held_bytes']) / 1e6:.0f} "
            f"| {float(r['maps_bytes']) / 1e6:.0f} | {float(r['peak_over_held']):.2f} | {r['psd']} ({r['rigorous']}) "
            f"| {float(r['error']):.3g} |"
        )
    lines.append("")
    grown = [r for r in rows if r["case"].startswith("growth")]
    x, y = (np.log([float(r[c]) for r in grown]) for c in ("n", "seconds"))
    last = (y[-1] - y[-2]) / (x[-1] - x[-2])
    lines.append(
        f"- Growth of the seconds in n: exponent {np.polyfit(x, y, 1)[0]:.2f} fitted, {last:.2f} in the last step "
        f"(wanted: at most {EXPONENT})."
    )
    excess = max(float(r["peak_bytes"]) - HELD * (float(r["held_bytes"]) + float(r["maps_bytes"])) for r in rows)
    lines.append(f"- Peak memory less {HELD:g} times what is held: {excess / 1e6:.0f} MB at most.")
    for case in ("growth 200000", "covtype, 50 blocks"):
        if case in by:
            lines.append(f"- {case}: {float(by[case]['over_plain']):.2f} times plain (wanted: at most {PLAIN:g}).")
    if "covtype, 2000 blocks" in by:
        many, few = by["covtype, 2000 blocks"], by["covtype, 100 blocks"]
        per_row = float(many["seconds"]) / float(few["seconds"])
        lines += [
            f"- covtype in 2000 blocks: {float(many['held_bytes']) / 1e9:.3f} GB (wanted: at most {BYTES / 1e9}); psd "
            f"{many['psd']}, proven {many['rigorous']}; {float(many['over_bare']):.2f} times its bare kernel "
            f"evaluations and QRs (wanted: at most {BARE:g}).",
            f"- Seconds per row, 2000 blocks over 100: {per_row:.2f} (wanted: at most {BLOCKS}).",
        ]
    lines += [
        "",
        "| case | stage | seconds | of that krein's kernel | bare | ratio |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for r in stages:
        ratio = f"{float(r['ratio']):.2f}" if r["ratio"] else ""
        lines.append(
            f"| {r['case']} | {r['stage']} | {float(r['seconds']):.2f} | {float(r['own_kernel_seconds']):.2f} "
            f"| {float(r['bare_seconds']):.2f} | {ratio} |"
        )
    draw(stages, request.output / "many.png")
    return "\n".join(lines) + "\n"


def draw(stages: list[dict[str, str]], path: Path) -> None:
    """The stages of the largest builds beside their bare arithmetic."""
    cases = list(dict.fromkeys(r["case"] for r in stages))[-4:]
    figure, axes = panels(len(cases), 11.0, 3.4, sharey=True)
    for ax, case in zip(axes, cases, strict=True):
        some = [r for r in stages if r["case"] == case and ":" not in r["stage"]]
        places = np.arange(len(some))
        for shift, column, colour in ((-0.2, "seconds", KREIN), (0.2, "bare_seconds", "0.6")):
            label = "krein" if column == "seconds" else "bare arithmetic"
            ax.barh(places + shift, [float(r[column]) for r in some], 0.38, color=colour, label=label)
        for k, r in enumerate(some):
            times = f"  {float(r['ratio']):.1f} times" if r["stage"] in ("bases", "core", "everything") else ""
            ax.text(float(r["seconds"]), k - 0.2, times, va="center", fontsize=8)
        ax.set_yticks(places, [r["stage"] for r in some])
        ax.set_title(case.replace("growth ", "generated, n = "), fontsize=10)
        ax.set_xlabel("CPU seconds")
        ax.margins(x=0.25)
    axes[0].invert_yaxis()
    axes[0].legend(frameon=False, fontsize=8)
    write(figure, path)
