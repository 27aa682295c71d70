"""An inspection drawn: spectrum, values, blocks, memory and error; with y corrections and ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.plotting.canvas import DARK, LINES, Display, axes_for, name_axes
from krein.plotting.spectrum import linear_up_to
from krein.plotting.tradeoff import MemoryDisplay, Spot

__all__ = ["InspectionDisplay"]


@dataclass(eq=False, repr=False, kw_only=True)
class InspectionDisplay(Display):
    """What `krein.inspect` found, in four panels; six where corrections and ranks were compared.

    Parameters
    ----------
    inspection : Inspection
    """

    inspection: Any

    @classmethod
    def from_inspection(cls, inspection: Any, *, ax: Any = None) -> InspectionDisplay:
        """Draw an `Inspection`."""
        return cls(inspection=inspection).plot(ax=ax)

    @property
    def panels(self) -> tuple[str, ...]:
        """What is drawn, in the order of ``ax_``."""
        found = self.inspection
        held = {"blocks": found.blocks, "memory": found.forecasts, "corrections": found.corrections,
                "ranks": found.rank_scores}  # fmt: skip
        return ("spectrum", "values", *(name for name, values in held.items() if values))

    def plot(self, ax: Any = None) -> InspectionDisplay:
        """Draw one panel each. ``ax``: as many Axes as there are `panels`."""
        names = self.panels
        columns = 2 if len(names) <= 4 else 3
        size = (5.0 * min(columns, len(names)), 4.0 * -(-len(names) // columns))
        self.ax_, self.figure_ = axes_for(ax, len(names), size, columns)
        panels = dict(zip(names, self.ax_, strict=True))
        for name in sorted(names, key="memory".__eq__):  # last: its labels are placed in what the others leave it
            getattr(self, f"_{name}")(panels[name])
        return self

    def _spectrum(self, axis: Any) -> None:
        found = self.inspection
        values, m = found.eigenvalues, found.n_sampled
        index = np.arange(1, m + 1)
        negative = found.inertia[2]
        axis.axhline(0.0, color="0.35", linewidth=0.8)
        axis.plot(index, values, color="0.45", linewidth=2.5)
        if negative:
            axis.axvspan(m - negative + 0.5, m + 0.5, color="0.92", zorder=0)
            axis.plot(
                index[-negative:], values[-negative:], color=DARK, linestyle="none", marker="x", markersize=4,
                markevery=max(1, negative // 30),
            )  # fmt: skip
        largest = float(np.abs(values).max(initial=0.0))
        axis.set_yscale("symlog", linthresh=linear_up_to(values, largest), linscale=0.6)
        axis.set_xlim(0.5, m + 0.5)
        axis.set_title(f"{negative:,} of {m:,} eigenvalues negative\nshare {found.negative_share.percent}", fontsize=10)
        name_axes(axis, "eigenvector, by falling eigenvalue", "eigenvalue")

    def _values(self, axis: Any) -> None:
        found = self.inspection
        axis.stairs(found.counts, found.edges, fill=True, color="0.75")
        axis.stairs(found.counts, found.edges, color=DARK, linewidth=0.8)
        if found.low < 0.0 < found.high:
            axis.axvline(0.0, color=DARK, linestyle=":", linewidth=1.2)
        axis.locator_params(axis="x", nbins=5)
        own = found.diagonal
        text = f"{own[0]:.3g}" if found.constant_diagonal else f"{own[0]:.3g} to {own[1]:.3g}"
        axis.set_title(f"{found.negative_entries.percent} of pairs below 0\nwith themselves {text}", fontsize=10)
        name_axes(axis, "similarity of a pair", "pairs")

    def _blocks(self, axis: Any) -> None:
        found = self.inspection.blocks
        x = np.arange(len(found))
        shares = np.array([b.share.value for b in found])
        ends = np.array([[b.share.value - b.share.low, b.share.high - b.share.value] for b in found])
        axis.bar(x, shares, width=0.6, color="0.75", edgecolor=DARK, linewidth=0.8, label="in the diagonal blocks")
        axis.errorbar(x, shares, yerr=ends.T, fmt="none", ecolor=DARK, capsize=3)
        axis.plot(x, [b.chance for b in found], linestyle="none", marker="_", markersize=26, color="#b03a2e",
                  markeredgewidth=2.2, label="by chance")  # fmt: skip
        axis.set_xticks(x, [str(b.n_blocks) for b in found])
        axis.set_ylim(0.0, 1.0)
        name_axes(axis, "blocks", "share of |K|²")
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9, frameon=False)

    def _memory(self, axis: Any) -> None:
        found = self.inspection
        chosen = found.choice
        spots = {f: Spot(f.n_blocks, f.rank, f.nbytes, f.error) for f in found.forecasts}
        MemoryDisplay(
            spots=list(spots.values()), chosen=None if chosen is None else spots[chosen],
            value_label="relative error, forecast", target=found.target,
            chosen_label="fewest bytes",
        ).plot(ax=axis, columns=2)  # fmt: skip

    def _corrections(self, axis: Any) -> None:
        found = self.inspection
        names = [c.name for c in found.corrections]
        for i, c in enumerate(found.corrections):
            ends = np.array([[c.score.value - c.score.low], [c.score.high - c.score.value]])
            colour = LINES[c.name]["color"] if c.name in LINES else DARK
            best = c.name == found.recommended
            axis.errorbar(
                [i], [c.score.value], yerr=ends, fmt="o", color=colour, capsize=4, markersize=8 if best else 6,
                markerfacecolor=colour if best else "white", markeredgewidth=1.5,
            )  # fmt: skip
        axis.set_xticks(range(len(names)), names)
        axis.margins(x=0.12)
        axis.set_title(f"filled: recommended, {found.recommended}", fontsize=10)
        name_axes(axis, "correction", f"{found.metric} of rows left out", lines="y")

    def _ranks(self, axis: Any) -> None:
        found = self.inspection
        ranks, enough = [r.rank for r in found.rank_scores], found.sufficient
        axis.errorbar(
            ranks, [r.score for r in found.rank_scores], yerr=[r.error for r in found.rank_scores], fmt="o-",
            color=DARK, capsize=4, markersize=6, markerfacecolor="white", markeredgewidth=1.5,
        )  # fmt: skip
        axis.plot([enough.rank], [enough.score], "o", color=DARK, markersize=8, zorder=3)
        axis.axhline(found.baseline, color="0.45", linestyle=":", linewidth=1.2)
        axis.set_xscale("log", base=2)
        axis.set_xticks(ranks, [str(r) for r in ranks])
        axis.set_title(f"filled: sufficient, rank {enough.rank}\ndotted: no learning", fontsize=10)
        name_axes(axis, "rank: eigenvalues kept", f"{found.metric} of rows left out", lines="y")
