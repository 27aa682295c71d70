"""The picture of the README: score against the seconds of a fit, krein beside its peers, from results/curve.csv.

.venv/bin/python benchmarks/front_picture.py
"""

from __future__ import annotations

import csv
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
PANELS = (  # machine, data set, what is drawn, title
    ("SVC", "mnist", "accuracy", "SVC, handwritten digits"),
    ("KernelRidge", "kin40k", "R²", "ridge, a robot arm"),
    ("GaussianProcessRegressor", "kin40k", "R²", "Gaussian process, a robot arm"),
    ("KernelPCA", "covtype", "accuracy of 5 neighbours", "KernelPCA, forest cover"),
)
STYLES = {
    "scikit-learn": ("#1b5e91", "s", "scikit-learn's class"),
    "Nystroem": ("#117a3d", "^", "Nystroem(1000) + linear machine"),
    "krein": ("#b03a2e", "o", "krein, by its defaults"),
}
FEWEST_ROWS = 1000  # Fits of fewer rows take no time worth comparing.


def main() -> None:
    with (ROOT / "results" / "curve.csv").open(encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["outcome"] == "done" and int(r["n"]) >= FEWEST_ROWS]
    figure = Figure(figsize=(11.5, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, (machine, data, score, title) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for contender, (colour, marker, label) in STYLES.items():
            some = [r for r in rows if (r["machine"], r["data"], r["contender"]) == (machine, data, contender)]
            some = [r for r in some if not r["n"].endswith("01")]
            seconds, scores = [float(r["fit_seconds"]) for r in some], [float(r["score"]) for r in some]
            ax.plot(seconds, scores, color=colour, marker=marker, markersize=4, linewidth=1.6, label=label)
            ax.annotate(f"{int(some[-1]['n']):,}", (seconds[-1], scores[-1]), textcoords="offset points", xytext=(0, 5),
                        fontsize=7, color=colour, ha="center")  # fmt: skip
        ax.set_xscale("log")
        ax.margins(y=0.12)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("CPU seconds of a fit, one thread", fontsize=8)
        ax.set_ylabel(score, fontsize=8)
        ax.tick_params(labelsize=8)
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    figure.savefig(ROOT / "docs" / "images" / "front.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
