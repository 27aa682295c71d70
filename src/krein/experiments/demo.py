"""The demo: the paper's four kernels on two small data sets, approximated, measured, corrected, and two pictures.

In: a seed. Out: a `Demo` value, from which `table` and `pictures` are made. No file and no network is needed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from krein import datasets
from krein.approximation import Approximation, approximate
from krein.correction import psd_shift
from krein.datasets import Dataset
from krein.display import KernelMatrixDisplay, SpectrumDisplay, figure_with_axes
from krein.error_estimate import ErrorEstimate
from krein.errors import InputError, KreinWarning
from krein.kernels import ELM, RBF, TL1, Kernel, SpherePolynomial
from krein.preprocessing import paper_preprocessing

__all__ = ["COLUMNS", "Cell", "Demo", "pictures", "run", "table"]

KERNELS: tuple[Kernel, ...] = (RBF(), ELM(), SpherePolynomial(), TL1())
CORRECTIONS = ("shift", "clip", "flip")


@dataclass(frozen=True)
class Size:
    """How much is run: rows of both data sets, blocks and the rank of each."""

    digits: int
    mixture: int
    n_blocks: int
    rank: int


FULL = Size(digits=1797, mixture=6000, n_blocks=10, rank=32)
QUICK = Size(digits=500, mixture=1000, n_blocks=5, rank=10)


@dataclass(frozen=True, eq=False)
class Cell:
    """One data set with one kernel: what was built, and what was measured."""

    data: Dataset
    approximation: Approximation
    seconds: float  # to build the approximation
    error: ErrorEstimate
    shift: float
    error_after_shift: ErrorEstimate

    @property
    def n(self) -> int:
        return self.approximation.factorization.shape[0]

    @property
    def memory_percent(self) -> float:
        """Bytes of the factorization in % of the full matrix of n² float64 numbers."""
        return 100.0 * self.approximation.factorization.nbytes / (8.0 * self.n**2)

    @property
    def evaluated_percent(self) -> float:
        return 100.0 * self.approximation.n_evaluations / self.n**2


@dataclass(frozen=True, eq=False)
class Demo:
    """All cells, in the order they were run, and what krein warned of on the way."""

    cells: tuple[Cell, ...]
    notes: tuple[str, ...]


# -- running -----------------------------------------------------------------------------------------------------------


def run(seed: int = 0, quick: bool = False, step: Callable[[str], Any] = lambda what: None) -> Demo:
    """Approximate the four kernels on both data sets; ``step`` is told before each of the 8 what is next."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise InputError(f"seed must be an integer from 0 to 2³² - 1; got {seed!r}.")
    size, cells = QUICK if quick else FULL, []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KreinWarning)
        for data in _data(size, seed):
            for kernel in KERNELS:
                step(f"{type(kernel).__name__} on {data.name}")
                cells.append(_cell(data, kernel, size, seed))
    for warning in caught:
        if not issubclass(warning.category, KreinWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    notes = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, KreinWarning))
    return Demo(tuple(cells), tuple(notes))


def _data(size: Size, seed: int) -> Iterator[Dataset]:
    whole = datasets.digits()
    yield Dataset(whole.name, whole.X[: size.digits], whole.y[: size.digits], whole.origin)
    yield datasets.mixture(size.mixture, n_features=10, n_clusters=12, spread=0.5, random_state=seed)


def _cell(data: Dataset, kernel: Kernel, size: Size, seed: int) -> Cell:
    X = paper_preprocessing(kernel).fit_transform(data.X)
    begin = time.perf_counter()
    a = approximate(X, kernel, n_blocks=size.n_blocks, rank=size.rank, coupling="pairwise", random_state=seed)
    seconds = time.perf_counter() - begin
    shift = psd_shift(a.factorization)
    after = a.corrected("shift").error(random_state=seed)
    return Cell(data, a, seconds, a.error(random_state=seed), shift, after)


# -- showing -----------------------------------------------------------------------------------------------------------

COLUMNS: tuple[tuple[str, str, str, Callable[[Cell], str]], ...] = (
    # two lines of the heading; what it means; how it is read off a cell
    ("", "kernel", "the similarity function; RBF, ELM, SpherePolynomial and TL1 are the paper's four",
     lambda c: type(c.approximation.kernel).__name__),
    ("", "blocks", "clusters the rows were divided into", lambda c: str(c.approximation.n_blocks)),
    ("", "rank", "numbers kept per row: the columns of each block's basis",
     lambda c: str(max(c.approximation.factorization.ranks))),
    ("memory", "% of n²", "what the approximation holds, in % of the full n x n matrix",
     lambda c: f"{c.memory_percent:.2f}"),
    ("kernel", "entries", "how many similarities k(x, y) were computed to build it",
     lambda c: f"{c.approximation.n_evaluations:,}"),
    ("entries", "% of n²", "the same in % of all n² of them", lambda c: f"{c.evaluated_percent:.1f}"),
    ("relative", "error", "|K - approximation| / |K| in the Frobenius norm, K being the full matrix",
     lambda c: f"{c.error.relative:.4f}"),
    ("error's 95 %", "interval", "where that error lies when it is estimated from a sample (beyond 2000 rows)",
     lambda c: "exact" if c.error.low == c.error.high else f"{c.error.low:.4f}..{c.error.high:.4f}"),
    ("eigenv.", "below 0", "a positive semi-definite (psd) matrix has none; an SVM or a Gaussian process needs that",
     lambda c: str(c.approximation.factorization.n_negative())),
    ("smallest", "eigenv.", "how far below zero they reach",
     lambda c: f"{c.approximation.factorization.smallest_eigenvalue():.3g}"),
    ("shift", "added", "what has to be added to the diagonal to make the matrix psd (the paper's correction)",
     lambda c: f"{c.shift:.3g}"),
    ("error", "shifted", "the relative error after that shift: the price of being psd this way",
     lambda c: f"{c.error_after_shift.relative:.4f}"),
    ("time", "s", "seconds to build the approximation", lambda c: f"{c.seconds:.2f}"),
)  # fmt: skip


def table(demo: Demo) -> str:
    """The cells as one table, a heading per data set, and a line for each column that says what it is."""
    lines = [[top for top, *_ in COLUMNS], [name for _, name, *_ in COLUMNS]]
    body = [[show(cell) for *_, show in COLUMNS] for cell in demo.cells]
    widths = [max(len(line[j]) for line in (*lines, *body)) for j in range(len(COLUMNS))]

    def laid_out(line: list[str]) -> str:
        return "  ".join(
            text.ljust(width) if j == 0 else text.rjust(width)
            for j, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()

    out = [laid_out(line) for line in lines]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    previous = None
    for cell, line in zip(demo.cells, body, strict=True):
        if cell.data is not previous:
            previous = cell.data
            out += [rule, f"{cell.data.name}: {cell.n:,} rows, {cell.data.d} columns ({cell.data.origin})"]
        out.append(laid_out(line))
    out += [rule, "", "What the columns say:"]
    titles = [f"{top} {name}".strip() for top, name, *_ in COLUMNS]
    wide = max(map(len, titles))
    out += [f"  {title.ljust(wide)}  {meaning}" for title, (_, _, meaning, _) in zip(titles, COLUMNS, strict=True)]
    return "\n".join(out)


def pictures(demo: Demo, folder: Path) -> dict[Path, str]:
    """Save both pictures as PNG; return what each file shows."""
    figure = KernelMatrixDisplay.from_approximation
    blocks = next(c for c in demo.cells if c.data.name == "mixture" and isinstance(c.approximation.kernel, RBF))
    spectrum = next(c for c in demo.cells if c.data.name == "digits" and isinstance(c.approximation.kernel, ELM))
    panels = ("before", "after", "approximation")
    shown = {
        "kernel-matrix.png": (
            lambda ax: figure(blocks.approximation, n_rows=240, panels=panels, ax=ax),
            "the RBF kernel matrix of mixture: rows as given, rows sorted by cluster, and its approximation",
            (3, (11.2, 3.9)),
        ),
        "spectrum.png": (
            lambda ax: SpectrumDisplay.from_factorization(
                spectrum.approximation.factorization, corrections=CORRECTIONS, ax=ax
            ),
            "the eigenvalues of ELM on digits, and what shift, clip and flip make of the negative ones",
            (1, (7.0, 4.6)),
        ),
    }
    saved = {}
    for name, (draw, what, (count, size)) in shown.items():
        path = folder / name
        _save(draw, count, size, path)
        saved[path] = what
    return saved


def _save(draw: Callable[[Any], Any], count: int, size: tuple[float, float], path: Path) -> None:
    """Draw on a figure of our own: pyplot's current figure, and whatever window it has, stay untouched."""
    figure, axes = figure_with_axes(count, size)
    draw(axes)
    figure.savefig(path, dpi=110)
