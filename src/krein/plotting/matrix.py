"""The kernel matrix of sampled rows, as given and sorted by cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.approximation import Approximation
from krein.arrays import Array, Indices, seed_from, stream
from krein.errors import InputError, one_of, whole_number
from krein.kernels import Evaluator, count_objects, take
from krein.plotting.canvas import Display, approximation_of, axes_for

__all__ = ["KernelMatrixDisplay"]

PANELS = {
    "before": "as given",
    "after": "sorted by cluster",
    "approximation": "sorted by cluster, approximated",
}


@dataclass(eq=False, repr=False, kw_only=True)
class KernelMatrixDisplay(Display):
    """The kernel matrix before and after its rows are sorted by cluster, on a sample of rows if there are many.

    Parameters
    ----------
    rows : array of int of shape (m,)
        Numbers of the rows that are shown, ascending.
    sorted_rows : array of int of shape (m,)
        The same rows, cluster by cluster.
    matrices : dict of str to array of shape (m, m)
        The values of each panel: "before", "after" or "approximation".
    boundaries : array of int
        Places in ``sorted_rows`` where a new cluster begins.
    n_rows_total : int
        Number of rows from which the m rows were drawn.
    title : str, default=""
        Name of the kernel, for the colour bar.
    """

    rows: Indices
    sorted_rows: Indices
    matrices: Mapping[str, Array]
    boundaries: Indices
    n_rows_total: int
    title: str = ""

    @classmethod
    def from_approximation(
        cls,
        approximation: Approximation,
        n_rows: int = 400,
        *,
        panels: Iterable[str] = ("before", "after"),
        random_state: Any = 0,
        ax: Any = None,
    ) -> KernelMatrixDisplay:
        """Draw the exact kernel values of at most ``n_rows`` sampled rows, as given and sorted by cluster.

        ``panels`` chooses among "before", "after" and "approximation" (what the factorization holds in place of
        "after"). Evaluates n_rows² kernel entries, whatever n.
        """
        chosen = tuple(panels)
        for panel in chosen:
            one_of("panels", panel, PANELS)
        if not chosen:
            raise InputError(f"panels must name at least one of {', '.join(map(repr, PANELS))}; got none.")
        whole_number("n_rows", n_rows, 2)
        f, n = approximation.factorization, count_objects(approximation.objects)
        m = min(n, int(n_rows))
        rows = np.arange(n) if m == n else np.sort(stream(seed_from(random_state)).choice(n, m, replace=False))
        position = np.empty(n, dtype=np.intp)
        position[f.order] = np.arange(n)
        by_cluster = np.argsort(position[rows], kind="stable")
        sorted_rows = rows[by_cluster]
        block = np.searchsorted([span.stop for span, _ in f.spans], position[sorted_rows], side="right")
        sample = take(approximation.objects, rows)
        exact = Evaluator(approximation.kernel).block(sample, sample).astype(np.float64)
        made: dict[str, Callable[[], Array]] = {
            "before": lambda: exact,
            "after": lambda: exact[np.ix_(by_cluster, by_cluster)],
            "approximation": lambda: f.entries(sorted_rows, sorted_rows),
        }
        return cls(
            rows=rows,
            sorted_rows=sorted_rows,
            matrices={panel: made[panel]() for panel in chosen},
            boundaries=np.flatnonzero(np.diff(block)) + 1,
            n_rows_total=n,
            title=type(approximation.kernel).__name__,
        ).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        n_rows: int = 400,
        *,
        panels: Iterable[str] = ("before", "after"),
        random_state: Any = 0,
        ax: Any = None,
    ) -> KernelMatrixDisplay:
        """Draw the rows a kernel machine was fitted on; "approximation" is what it uses: corrected."""
        _, used = approximation_of(estimator)
        return cls.from_approximation(used, n_rows, panels=panels, random_state=random_state, ax=ax)

    def plot(self, ax: Any = None, *, cmap: str = "viridis") -> KernelMatrixDisplay:
        """Draw one panel per matrix, on one colour scale. ``ax``: as many Axes as there are panels."""
        count = len(self.matrices)
        self.ax_, self.figure_ = axes_for(ax, count, (3.4 * count + 1.0, 3.9))
        low = min(float(values.min()) for values in self.matrices.values())
        high = max(float(values.max()) for values in self.matrices.values())
        image = None
        for axis, (panel, values) in zip(self.ax_, self.matrices.items(), strict=True):
            image = axis.imshow(values, cmap=cmap, vmin=low, vmax=high, interpolation="nearest")
            axis.set_title(PANELS[panel], fontsize=10)
            axis.set_xticks([])
            axis.set_yticks([])
            if panel != "before" and len(self.boundaries) < 60:  # more lines than that would be all one sees
                for edge in self.boundaries - 0.5:
                    axis.axhline(edge, color="white", linewidth=0.7)
                    axis.axvline(edge, color="white", linewidth=0.7)
        shown, n = len(self.rows), self.n_rows_total
        whole = f"all {n:,} rows" if shown == n else f"{shown:,} of {n:,} rows, drawn at random"
        self.ax_[0].set_xlabel(whole, fontsize=9)
        self.figure_.colorbar(image, ax=list(self.ax_), shrink=0.85, pad=0.02, label=f"{self.title} similarity".strip())
        return self
