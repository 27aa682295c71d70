"""krein demo: four kernels on two small data sets in both couplings, an automatic choice, two pictures and a report."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from krein.cli import options

if TYPE_CHECKING:  # loaded where they are used: see krein.cli
    from krein.approximation import Approximation
    from krein.datasets import Dataset
    from krein.kernels import Kernel

__all__ = ["command"]


class Size(NamedTuple):
    """Rows of both data sets, blocks, rank of each block, rows of the automatic choice and of the report."""

    digits: int
    mixture: int
    n_blocks: int
    rank: int
    chosen: int
    report: int


FULL = Size(digits=1797, mixture=6000, n_blocks=10, rank=32, chosen=20_000, report=600)
QUICK = Size(digits=500, mixture=1000, n_blocks=5, rank=10, chosen=2500, report=250)
# The automatic choice of blocks and rank aims at this relative error.
MAX_ERROR = 0.01
# The report shows the sigmoid kernel with these parameters, with which it is indefinite.
SIGMOID = {"gamma": 0.1, "coef0": -1.0}
INTRODUCTION = """\
Similarities between n rows make an n x n matrix, which soon is too large to hold. krein keeps a small
factorization instead. Here it does so for four kernels on two data sets, with fixed blocks and rank,
in two ways: coupling='pairwise' is the paper's, coupling='shared' is krein's own and the default.
"""
# The columns of the table: heading, meaning, and how the facts of a line are shown.
COLUMNS = (
    ("kernel", "the similarity function; these four are the paper's", "{kernel}"),
    ("memory", "what the approximation holds, in % of the full n x n matrix; the same in both couplings",
     "{memory_percent:.2f}"),
    ("pairwise", "|K - approximation| / |K| in the Frobenius norm, K being the full matrix; the paper's coupling",
     "{pairwise[error]:.4f}"),
    ("eig < 0", "its negative eigenvalues: a positive semi-definite (psd) matrix, as SVMs need, has none",
     "{pairwise[n_negative]}"),
    ("shifted", "its error once the diagonal is raised until it is psd, which is the paper's correction",
     "{pairwise_shifted_error:.4f}"),
    ("shared", "the error of krein's own coupling, the default; beyond 2000 rows errors are estimated from a sample",
     "{shared[error]:.4f}"),
    ("eig < 0", "its negative eigenvalues: none wherever the kernel is psd, so nothing has to be corrected",
     "{shared[n_negative]}"),
    ("evaluated", "how many similarities k(x, y) pairwise and shared evaluated, in % of all n² of them",
     "{pairwise[evaluated_percent]:.1f}/{shared[evaluated_percent]:.1f}"),
    ("seconds", "to build each of the two", "{pairwise[seconds]:.2f}/{shared[seconds]:.2f}"),
)  # fmt: skip


@click.command("demo")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("krein-demo"),
    show_default="./krein-demo",
    help="Folder for pictures and report; made if it does not exist.",
)
@options.SEED
@click.option("--quick", is_flag=True, help="Fewer rows: a few seconds.")
@options.AS_JSON
def command(output: Path, seed: int, quick: bool, as_json: bool) -> None:
    """Approximate four kernels on two data sets in both couplings, print one table, save two pictures and a report.

    Then blocks and rank are chosen automatically for a given error. The data are scikit-learn's handwritten digits and
    a generated mixture: no download. The same seed gives the same table, but for the times.

    \b
    Examples:
      krein demo
      krein demo --quick --output /tmp/demo
      krein demo --seed 7 --json
    """
    from tqdm.auto import tqdm

    from krein.datasets import digits
    from krein.kernels import ELM, RBF, TL1, SpherePolynomial
    from krein.plotting import check_matplotlib

    begin = time.perf_counter()
    check_matplotlib()  # before any work
    output.mkdir(parents=True, exist_ok=True)
    if not as_json:
        click.echo(INTRODUCTION)
    size, written = QUICK if quick else FULL, digits()
    data = (replace(written, X=written.X[: size.digits], y=written.y[: size.digits]), mixture(size.mixture, seed))
    cells, made = [], {}
    with options.collected_warnings() as notes:
        tasks = [(some, kernel) for some in data for kernel in (RBF(), ELM(), SpherePolynomial(), TL1())]
        for some, kernel in tqdm(tasks, desc="kernels", disable=None, leave=False):  # None: only on a terminal
            facts, approximations = compare(some, kernel, size.n_blocks, size.rank, seed)
            cells.append(facts)
            made[facts["data"], facts["kernel"]] = approximations
        found, measures = choose(size.chosen, seed)
    pictures = draw(made["mixture", "RBF"]["shared"], made["digits", "ELM"], output)
    page = report(output / "report.html", size.report, seed)
    if as_json:
        files = {"pictures": [str(path) for path in pictures], "report": str(page)}
        click.echo(json.dumps({"cells": cells, "notes": notes} | files, indent=1))
        return
    lines = [
        f"{table(cells)}\n",
        f"Blocks and rank need not be given. The mixture with {size.chosen:,} rows, RBF, and max_error={MAX_ERROR:g} "
        f"alone:\n\n{found.search_}\n",
        f"Error {found.error(random_state=seed)}, measured afterwards on entries of its own; "
        f"{measures['n_negative']} negative eigenvalues.",
        *(f"\nNote: {note}" for note in notes),
        "\nPictures:",
        *(f"  {path}\n      {what}" for path, what in pictures.items()),
        f"\nReport, a page to open in a browser:\n  {page}\n      the sigmoid kernel on {size.report} digits: how "
        "indefinite, which correction helps, how well it learns",
        f"\nDone in {time.perf_counter() - begin:.0f} s, most of it for checking the errors and drawing.",
    ]
    click.echo("\n".join(lines))


def mixture(n: int, seed: int) -> Dataset:
    """Return the generated data set."""
    from krein import datasets

    return datasets.mixture(n, n_features=10, n_clusters=12, spread=0.5, random_state=seed)


def compare(
    data: Dataset, kernel: Kernel, n_blocks: int, rank: int, seed: int
) -> tuple[dict[str, Any], dict[str, Approximation]]:
    """Return the facts of a line of the table, and the approximations in both couplings."""
    from krein.preprocessing import paper_preprocessing

    X = paper_preprocessing(kernel).fit_transform(data.X)
    asked = {"n_blocks": n_blocks, "rank": rank}
    made = {way: measured(X, kernel, seed, coupling=way, **asked) for way in ("pairwise", "shared")}
    a = made["shared"][0]
    facts = {
        "data": data.name,
        "origin": data.origin,
        "rows": data.n,
        "columns": data.d,
        **asked,
        "kernel": type(kernel).__name__,
        "memory_percent": 100.0 * a.factorization.nbytes / (8.0 * data.n**2),
        "pairwise_shifted_error": made["pairwise"][0].corrected("shift").error(random_state=seed).relative,
    }
    return facts | {way: found for way, (_, found) in made.items()}, {way: a for way, (a, _) in made.items()}


def measured(X: Any, kernel: Kernel, seed: int, **asked: Any) -> tuple[Approximation, dict[str, Any]]:
    """Build an approximation; return it with its measurements."""
    from krein.choosing import approximate

    begin = time.perf_counter()
    a = approximate(X, kernel, random_state=seed, **asked)
    seconds = time.perf_counter() - begin
    error = a.error(random_state=seed)
    return a, {
        "error": error.relative, "interval": [error.low, error.high], "n_negative": a.factorization.n_negative(),
        "evaluated_percent": 100.0 * a.n_evaluations / len(X) ** 2, "seconds": seconds,
    }  # fmt: skip


def choose(n: int, seed: int) -> tuple[Approximation, dict[str, Any]]:
    """Return the approximation of the mixture with n rows whose blocks and rank are left to krein."""
    from krein.kernels import RBF
    from krein.preprocessing import paper_preprocessing

    return measured(paper_preprocessing(RBF()).fit_transform(mixture(n, seed).X), RBF(), seed, max_error=MAX_ERROR)


def table(cells: list[dict[str, Any]]) -> str:
    """Return the facts as a table with a heading per data set and a line that explains each column."""
    lines = [[heading for heading, _, _ in COLUMNS], *([form.format(**c) for _, _, form in COLUMNS] for c in cells)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    heading, *body = ["  ".join(map(str.rjust, line, widths)) for line in lines]
    out, rule = [heading], "-" * len(heading)
    for i, (c, line) in enumerate(zip(cells, body, strict=True)):
        if i == 0 or c["data"] != cells[i - 1]["data"]:
            shape = f"{c['rows']:,} rows, {c['columns']} columns, in {c['n_blocks']} blocks of rank {c['rank']}"
            out += [rule, f"{c['data']}: {shape} ({c['origin']})"]
        out.append(line)
    return "\n".join([*out, rule, "", *(f"  {name:<9}  {meaning}" for name, meaning, _ in COLUMNS)])


def draw(blocks: Approximation, both: dict[str, Approximation], folder: Path) -> dict[Path, str]:
    """Save two pictures, of a matrix and of the spectrum of both couplings; return a caption for each file."""
    from krein.plotting import KernelMatrixDisplay, SpectrumDisplay, figure_with_axes

    matrix, axes = figure_with_axes(3, (11.2, 3.9))
    KernelMatrixDisplay.from_approximation(blocks, 240, panels=("before", "after", "approximation"), ax=axes)
    spectra, axes = figure_with_axes(2, (11.2, 4.6))
    for axis, (way, a), corrections in zip(axes, both.items(), (("shift", "clip", "flip"), ()), strict=True):
        SpectrumDisplay.from_approximation(a, corrections, ax=axis)
        axis.set_title(f'coupling="{way}"', loc="right", fontsize=10)
    axes[1].set(ylabel="", ylim=axes[0].get_ylim())
    captions = {
        folder / "kernel-matrix.png": "the RBF kernel matrix of mixture: as given, sorted by cluster, approximated",
        folder / "spectrum.png": "the eigenvalues of ELM on digits: pairwise, with three corrections, and shared",
    }
    for figure, path in zip((matrix, spectra), captions, strict=True):
        figure.savefig(path, dpi=110)
    return captions


def report(path: Path, n: int, seed: int) -> Path:
    """Inspect an indefinite kernel on n handwritten digits, fit a model with it and write a report of both."""
    from krein.datasets import digits
    from krein.inspection import inspect
    from krein.kernels import Sigmoid
    from krein.tables.model import learn
    from krein.tables.reading import Frame

    data = digits()
    X, y = data.X[:n] / 16.0, data.y[:n]
    frame = Frame((*(f"pixel {i}" for i in range(X.shape[1])), "digit"), (*X.T, y.astype(float)))
    with options.collected_warnings():  # the report says that the kernel is indefinite
        asked = {"kernel": "sigmoid", **SIGMOID}
        model = learn(frame, "digit", machine="ridge", scale="none", random_state=seed, parameters=asked)
    found = inspect(X, Sigmoid(**SIGMOID), y, learner="ridge", random_state=seed)
    return found.report(path, model, title="krein demo", data=f"{n} handwritten digits")
