"""The computation behind `krein demo`: four kernels on two small data sets in both couplings, and an automatic choice.

In: a seed. Out: a `Demo`, from which `table`, `choice` and `pictures` are made. No file and no network is needed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from krein import datasets
from krein.approximation import Approximation
from krein.approximation.error import ErrorEstimate
from krein.choosing import approximate
from krein.datasets import Dataset
from krein.errors import InputError, KreinWarning
from krein.kernels import ELM, RBF, TL1, Kernel, SpherePolynomial
from krein.plotting import KernelMatrixDisplay, SpectrumDisplay, figure_with_axes
from krein.preprocessing import paper_preprocessing

__all__ = ["COLUMNS", "Cell", "Demo", "Made", "choice", "pictures", "run", "table"]

KERNELS: tuple[Kernel, ...] = (RBF(), ELM(), SpherePolynomial(), TL1())
CORRECTIONS = ("shift", "clip", "flip")
# The automatic choice of blocks and rank aims at this relative error.
MAX_ERROR = 0.01
# The progress bar has one step per cell (8), one for the automatic choice and one for the pictures.
STEPS = 10


@dataclass(frozen=True)
class Size:
    """Rows of both data sets, blocks, rank of each block, and rows of the mixture in the automatic choice."""

    digits: int
    mixture: int
    n_blocks: int
    rank: int
    chosen: int


FULL = Size(digits=1797, mixture=6000, n_blocks=10, rank=32, chosen=20_000)
QUICK = Size(digits=500, mixture=1000, n_blocks=5, rank=10, chosen=2500)


@dataclass(frozen=True, eq=False)
class Made:
    """One approximation with its measurements."""

    approximation: Approximation
    seconds: float  # to build it
    error: ErrorEstimate

    @property
    def n_negative(self) -> int:
        return self.approximation.factorization.n_negative()

    @property
    def memory_percent(self) -> float:
        """Bytes of the factorization in % of the full matrix of n² float64 numbers."""
        f = self.approximation.factorization
        return 100.0 * f.nbytes / (8.0 * f.shape[0] ** 2)

    @property
    def evaluated_percent(self) -> float:
        """Kernel entries in % of all n² of them."""
        return 100.0 * self.approximation.n_evaluations / self.approximation.factorization.shape[0] ** 2


@dataclass(frozen=True, eq=False)
class Cell:
    """One data set with one kernel, in both couplings: the same clusters, ranks and memory."""

    data: Dataset
    pairwise: Made
    shared: Made
    pairwise_shifted: ErrorEstimate  # of the pairwise one, made psd by the paper's shift

    @property
    def n(self) -> int:
        return self.shared.approximation.factorization.shape[0]

    @property
    def ratio(self) -> float:
        """The shared error over the pairwise one."""
        return self.shared.error.relative / self.pairwise.error.relative


@dataclass(frozen=True, eq=False)
class Demo:
    """All cells in the order they were run, the automatic choice, and the warnings."""

    cells: tuple[Cell, ...]
    chosen: Made | None
    notes: tuple[str, ...]


# -- running -----------------------------------------------------------------------------------------------------------


def run(seed: int = 0, quick: bool = False, step: Callable[[str], Any] = lambda what: None) -> Demo:
    """Approximate four kernels on two data sets, then choose automatically; ``step(name)`` is called before each."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise InputError(f"seed must be an integer from 0 to 2³² - 1; got {seed!r}.")
    size, cells = QUICK if quick else FULL, []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", KreinWarning)
        for data in _data(size, seed):
            for kernel in KERNELS:
                step(f"{type(kernel).__name__} on {data.name}")
                cells.append(_cell(data, kernel, size, seed))
        step("automatic choice")
        chosen = _chosen(size, seed)
    for warning in caught:
        if not issubclass(warning.category, KreinWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    notes = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, KreinWarning))
    return Demo(tuple(cells), chosen, tuple(notes))


def _data(size: Size, seed: int) -> Iterator[Dataset]:
    whole = datasets.digits()
    yield Dataset(whole.name, whole.X[: size.digits], whole.y[: size.digits], whole.origin)
    yield _mixture(size.mixture, seed)


def _mixture(n: int, seed: int) -> Dataset:
    return datasets.mixture(n, n_features=10, n_clusters=12, spread=0.5, random_state=seed)


def _cell(data: Dataset, kernel: Kernel, size: Size, seed: int) -> Cell:
    X = paper_preprocessing(kernel).fit_transform(data.X)
    asked = {"n_blocks": size.n_blocks, "rank": size.rank}
    pairwise, shared = (_made(X, kernel, seed, coupling=way, **asked) for way in ("pairwise", "shared"))
    after = pairwise.approximation.corrected("shift").error(random_state=seed)
    return Cell(data, pairwise, shared, after)


def _chosen(size: Size, seed: int) -> Made:
    X = paper_preprocessing(RBF()).fit_transform(_mixture(size.chosen, seed).X)
    return _made(X, RBF(), seed, max_error=MAX_ERROR)


def _made(X: Any, kernel: Kernel, seed: int, **asked: Any) -> Made:
    begin = time.perf_counter()
    a = approximate(X, kernel, random_state=seed, **asked)
    seconds = time.perf_counter() - begin
    return Made(a, seconds, a.error(random_state=seed))


# -- showing -----------------------------------------------------------------------------------------------------------

COLUMNS: tuple[tuple[str, str, str, Callable[[Cell], str]], ...] = (
    # two lines of the heading; what it means; how it is read off a cell
    ("", "kernel", "the similarity function; RBF, ELM, SpherePolynomial and TL1 are the paper's four",
     lambda c: type(c.shared.approximation.kernel).__name__),
    ("memory", "% of n²", "what the approximation holds, in % of the full n x n matrix; the same in both couplings",
     lambda c: f"{c.shared.memory_percent:.2f}"),
    ("pairwise", "error", "|K - approximation| / |K| in the Frobenius norm, K being the full matrix; the paper's way",
     lambda c: f"{c.pairwise.error.relative:.4f}"),
    ("pairwise", "eigv < 0", "its negative eigenvalues: a positive semi-definite (psd) matrix, as SVMs need, has none",
     lambda c: str(c.pairwise.n_negative)),
    ("pairwise", "shifted", "its error once the diagonal is raised until it is psd, which is the paper's correction",
     lambda c: f"{c.pairwise_shifted.relative:.4f}"),
    ("shared", "error", "the error of krein's own coupling, the default",
     lambda c: f"{c.shared.error.relative:.4f}"),
    ("95 %", "interval", "where that error lies when it is estimated from a sample (beyond 2000 rows)",
     lambda c: _interval(c.shared.error)),
    ("shared", "eigv < 0", "its negative eigenvalues: none wherever the kernel is psd, so nothing has to be corrected",
     lambda c: str(c.shared.n_negative)),
    ("ratio of", "errors", "shared / pairwise", lambda c: f"{c.ratio:.2f}"),
    ("entries %", "pairw/shar", "how many similarities k(x, y) each of the two evaluated, in % of all n² of them",
     lambda c: f"{c.pairwise.evaluated_percent:.1f}/{c.shared.evaluated_percent:.1f}"),
    ("seconds", "pairw/shar", "to build each of the two", lambda c: f"{c.pairwise.seconds:.2f}/{c.shared.seconds:.2f}"),
)  # fmt: skip


def _interval(error: ErrorEstimate) -> str:
    return "exact" if error.low == error.high else f"{error.low:.4f}..{error.high:.4f}"


def table(demo: Demo) -> str:
    """Return the cells as one table with a heading per data set and a line that explains each column."""
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
            f = cell.shared.approximation.factorization
            shape = f"{cell.n:,} rows, {cell.data.d} columns, in {f.n_blocks} blocks of rank {max(f.ranks)}"
            out += [rule, f"{cell.data.name}: {shape} ({cell.data.origin})"]
        out.append(laid_out(line))
    out += [rule, "", "What the columns say:"]
    titles = [f"{top} {name}".strip() for top, name, *_ in COLUMNS]
    wide = max(map(len, titles))
    out += [f"  {title.ljust(wide)}  {meaning}" for title, (_, _, meaning, _) in zip(titles, COLUMNS, strict=True)]
    return "\n".join(out)


def choice(demo: Demo) -> str:
    """Return the candidates of the automatic choice and the one that was kept."""
    if demo.chosen is None:
        return ""
    made, a = demo.chosen, demo.chosen.approximation
    n = a.factorization.shape[0]
    out = [
        f"Blocks and rank need not be given. The mixture with {n:,} rows, RBF, and max_error={MAX_ERROR:g} alone:",
        "",
        *("  " + line for line in str(a.search_).splitlines()),
        "",
        f"Error {made.error}, measured afterwards on entries of its own; {made.n_negative} negative eigenvalues; "
        f"{made.memory_percent:.2f} % of the",
        f"memory of the full matrix, which would hold {8e-9 * n**2:.2g} GB.",
    ]
    return "\n".join(out)


def pictures(demo: Demo, folder: Path) -> dict[Path, str]:
    """Save both pictures as PNG and return a caption for each file."""
    blocks = next(c for c in demo.cells if c.data.name == "mixture" and isinstance(_kernel(c), RBF))
    spectrum = next(c for c in demo.cells if c.data.name == "digits" and isinstance(_kernel(c), ELM))

    def matrices(axes: Any) -> None:
        panels = ("before", "after", "approximation")
        KernelMatrixDisplay.from_approximation(blocks.shared.approximation, n_rows=240, panels=panels, ax=axes)

    def spectra(axes: Any) -> None:
        for axis, made, name, corrections in (
            (axes[0], spectrum.pairwise, "pairwise", CORRECTIONS),
            (axes[1], spectrum.shared, "shared", ()),
        ):
            SpectrumDisplay.from_factorization(made.approximation.factorization, corrections=corrections, ax=axis)
            axis.set_title(f'coupling="{name}"', loc="right", fontsize=10)
        axes[1].get_legend().get_texts()[0].set_text(f"{spectrum.shared.n_negative} negative")
        axes[1].set(ylabel="", ylim=axes[0].get_ylim())

    shown: dict[str, tuple[Callable[[Any], None], str, tuple[int, tuple[float, float]]]] = {
        "kernel-matrix.png": (
            matrices,
            "the RBF kernel matrix of mixture: rows as given, rows sorted by cluster, and its approximation (shared)",
            (3, (11.2, 3.9)),
        ),
        "spectrum.png": (
            spectra,
            "the eigenvalues of ELM on digits: pairwise, with what corrections make of the negative ones, and shared",
            (2, (11.2, 4.6)),
        ),
    }
    saved = {}
    for name, (draw, what, (count, size)) in shown.items():
        path = folder / name
        _save(draw, count, size, path)
        saved[path] = what
    return saved


def _kernel(cell: Cell) -> Kernel:
    return cell.shared.approximation.kernel


def _save(draw: Callable[[Any], Any], count: int, size: tuple[float, float], path: Path) -> None:
    """Draw on a new figure, which leaves pyplot's current figure unchanged."""
    figure, axes = figure_with_axes(count, size)
    draw(axes)
    figure.savefig(path, dpi=110)
