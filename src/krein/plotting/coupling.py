"""The core: how strongly each pair of blocks is coupled, and which pairs are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from krein.approximation import Approximation
from krein.arrays import Array
from krein.factorization import Factorization
from krein.plotting.canvas import Display, approximation_of, name_axes
from krein.report.fitted import block_norms

__all__ = ["CoreDisplay"]


@dataclass(eq=False, repr=False, kw_only=True)
class CoreDisplay(Display):
    """How strongly each pair of blocks is coupled: the Frobenius norms of the core's blocks; hatched where not at all.

    The bases are orthonormal, so the norm of a core block is that of the whole block of the approximated matrix.

    Parameters
    ----------
    norms : array of shape (c, c)
        Frobenius norms of the core's blocks.
    dropped : array of bool of shape (c, c)
        True for pairs of blocks without any coupling.
    """

    norms: Array
    dropped: NDArray[np.bool_]

    @classmethod
    def from_factorization(cls, factorization: Factorization, *, ax: Any = None) -> CoreDisplay:
        """Draw the norms of all c x c blocks of the core."""
        norms = block_norms(factorization)
        return cls(norms=norms, dropped=norms == 0.0).plot(ax=ax)

    @classmethod
    def from_approximation(cls, approximation: Approximation, *, ax: Any = None) -> CoreDisplay:
        """Draw the core of the approximation's factorization."""
        return cls.from_factorization(approximation.factorization, ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> CoreDisplay:
        """Draw the core a kernel machine uses: corrected."""
        return cls.from_approximation(approximation_of(estimator)[1], ax=ax)

    def plot(self, ax: Any = None, *, cmap: str = "viridis") -> CoreDisplay:
        """Draw the norms on a logarithmic colour scale."""
        axis = self._axis(ax, (5.2, 4.4))
        from matplotlib.colors import LogNorm
        from matplotlib.patches import Patch
        from matplotlib.ticker import LogLocator, StrMethodFormatter

        kept = self.norms[~self.dropped]
        high = float(kept.max(initial=0.0)) or 1.0
        low = max(float(kept.min(initial=high)), 1e-8 * high)
        scale = LogNorm(low if low < high else high / 10, high)
        image = axis.imshow(
            np.ma.masked_array(self.norms, self.dropped), cmap=cmap, norm=scale, interpolation="nearest"
        )
        axis.set_facecolor("white")
        axis.patch.set(hatch="////", edgecolor="0.6")
        c = len(self.norms)
        ticks = np.unique(np.linspace(0, c - 1, min(c, 10)).astype(int))
        axis.set_xticks(ticks, ticks + 1)
        axis.set_yticks(ticks, ticks + 1)
        name_axes(axis, "block", "block")
        n_dropped = int(np.triu(self.dropped, 1).sum())
        if n_dropped:
            mark = Patch(facecolor="white", edgecolor="0.6", hatch="////")
            label = f"not coupled: {n_dropped:,} of {c * (c - 1) // 2:,} pairs"
            axis.legend([mark], [label], loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize=9)
        bar = self.figure_.colorbar(image, ax=axis, label="Frobenius norm of the block")
        if high < 1000 * low:  # over a few decades, numbers read better than powers of ten
            bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            bar.ax.yaxis.set_minor_formatter("")
        return self
