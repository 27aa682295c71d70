"""The spectrum with its negative part, and what corrections make of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from krein.approximation import Approximation
from krein.arrays import EPS, Array
from krein.factorization import Factorization
from krein.factorization.correction import CORRECTIONS, changed, correct
from krein.plotting.canvas import DARK, LINES, Display, approximation_of, legend_above, name_axes
from krein.policy import check_correction

__all__ = ["SpectrumDisplay", "linear_up_to"]

# The logarithmic part of the axis covers this many decades below the largest eigenvalue.
DECADES = 5


@dataclass(eq=False, repr=False, kw_only=True)
class SpectrumDisplay(Display):
    """The eigenvalues of a factorization, negative ones marked, and what corrections make of each.

    Every curve runs over the same eigenvectors, by falling eigenvalue before the correction: so a flip is a mirror
    image, a clip ends at zero and a shift lifts all.

    Parameters
    ----------
    eigenvalues : array of shape (r,)
        Eigenvalues of the core before any correction, the largest first.
    corrected : dict of str to array of shape (r,)
        For each correction, what becomes of these eigenvalues, in the same order.
    outside : dict of str to float
        For each correction, and "none", the eigenvalue of all directions outside the bases.
    n_outside : int
        Number of these directions, n - r.
    """

    eigenvalues: Array
    corrected: Mapping[Any, Array]
    outside: Mapping[Any, float]
    n_outside: int

    @classmethod
    def from_factorization(
        cls, factorization: Factorization, corrections: Iterable[str | float] = ("shift", "clip"), *, ax: Any = None
    ) -> SpectrumDisplay:
        """Draw the r eigenvalues that the core holds; the other n - r are the shift, and named below the axis.

        The corrected values come from `krein.correct` itself. Costs one r³ eigendecomposition per correction.
        """
        names = tuple(corrections)
        for name in names:
            check_correction("corrections", name, CORRECTIONS)
        values = factorization.eigenvalues()[::-1]
        corrected: dict[str | float, Array] = {}
        outside: dict[str | float, float] = {"none": factorization.shift}
        for name in names:
            if name == "none":
                continue
            after = correct(factorization, name)
            # eigenvalues come sorted; the eigenvector whose value is i-th largest before has the rank of its image
            image = values if name == "shift" else changed(name, values, 0.0)[0]
            matched = np.empty_like(values)
            matched[np.argsort(image, kind="stable")] = after.eigenvalues()
            corrected[name], outside[name] = matched, after.shift
        n_outside = factorization.shape[0] - factorization.rank
        return cls(eigenvalues=values, corrected=corrected, outside=outside, n_outside=n_outside).plot(ax=ax)

    @classmethod
    def from_approximation(
        cls, approximation: Approximation, corrections: Iterable[str | float] = ("shift", "clip"), *, ax: Any = None
    ) -> SpectrumDisplay:
        """Draw the spectrum of the approximation's factorization."""
        return cls.from_factorization(approximation.factorization, corrections, ax=ax)

    @classmethod
    def from_estimator(
        cls, estimator: Any, corrections: Iterable[str | float] | None = None, *, ax: Any = None
    ) -> SpectrumDisplay:
        """Draw the spectrum that a kernel machine met, and what the correction it used made of it.

        ``corrections``: others to be shown instead. "krein" trains on what "flip" gives, and is shown as that.
        """
        built, _ = approximation_of(estimator)
        used = {"none": (), "krein": ("flip",)}.get(estimator.correction_, (estimator.correction_,))
        return cls.from_factorization(built.factorization, used if corrections is None else corrections, ax=ax)

    def plot(self, ax: Any = None) -> SpectrumDisplay:
        """Draw all curves over the index of the eigenvector, on an axis that is linear near zero only."""
        axis = self._axis(ax, (7.0, 4.4))
        r = len(self.eigenvalues)
        index = np.arange(1, r + 1)
        largest = max(
            (float(np.abs(v).max(initial=0.0)) for v in (self.eigenvalues, *self.corrected.values())), default=0.0
        )
        core = np.abs(self.eigenvalues - self.outside["none"]).max(initial=0.0)
        negative = np.flatnonzero(self.eigenvalues < -10 * max(1, r) * EPS * core)  # as `n_negative` counts them
        axis.axhline(0.0, color="0.35", linewidth=0.8)
        axis.plot(index, self.eigenvalues, color="0.68", linewidth=4.5, label="before", solid_capstyle="round")
        if negative.size:
            every = max(1, negative.size // 30)
            axis.plot(
                index[negative], self.eigenvalues[negative], color=DARK, linestyle="none", marker="x", markersize=4,
                markevery=every, label=f"before: {negative.size} negative, smallest {self.eigenvalues[-1]:.3g}",
            )  # fmt: skip
            axis.axvspan(index[negative[0]] - 0.5, r + 0.5, color="0.92", zorder=0)
        for name, values in self.corrected.items():
            moved = np.abs(values - self.eigenvalues) > 1e-9 * (largest or 1.0)
            start = int(np.argmax(moved)) if moved.any() else r
            label = f"after {name}" + (
                f" by {self.outside[name] - self.outside['none']:.3g}" if name == "shift" else ""
            )
            shown = index[start:], values[start:]  # drawn where it differs: the curves would hide each other
            axis.plot(*shown, label=label if moved.any() else f"{label} (no change)", **LINES.get(name, LINES["flip"]))
        axis.set_yscale("symlog", linthresh=linear_up_to(self.eigenvalues, largest), linscale=0.6)
        axis.set_xlim(0.5, r + 0.5 if r else 1.5)
        name_axes(axis, self._axis_label(r), "eigenvalue", lines="y")
        axis.xaxis.label.set_size(9)
        legend_above(axis)
        return self

    def _axis_label(self, r: int) -> str:
        label = f"eigenvector of the core, 1 to {r:,}, by falling eigenvalue"
        if self.n_outside == 0:
            return label
        after = [f"{value:.3g} after {name}" for name, value in self.outside.items() if value != self.outside["none"]]
        rest = f"the other {self.n_outside:,} eigenvalues of the matrix are {self.outside['none']:.3g}"
        return f"{label}\n{rest}{', ' + ', '.join(after) if after else ''}"


def linear_up_to(eigenvalues: Array, largest: float) -> float:
    """Where the axis turns linear: a power of ten near the typical eigenvalue, so that neither part is squeezed."""
    if largest == 0.0:
        return 1.0
    typical = float(np.median(np.abs(eigenvalues)))
    return float(10.0 ** math.floor(math.log10(max(typical, largest * 10.0**-DECADES))))
