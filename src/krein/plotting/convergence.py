"""How the solver went: the duality gap over its steps, one line for each dual."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from krein.arrays import Array
from krein.errors import InputError
from krein.plotting.canvas import DARK, Display, legend_above, name_axes, series_styles

__all__ = ["ConvergenceDisplay"]

# Up to MOST_LINES lines are drawn in styles of their own. Of more only the slowest is named.
MOST_LINES = 6
# Smaller gaps, zero for instance, are drawn here.
SMALLEST_GAP = 1e-16


class ConvergenceDisplay(Display):
    """The relative duality gap after each step, down to ``tol``.

    Parameters
    ----------
    paths : dict of str to array of shape (m, 2)
        For each dual problem, by name, the number of steps so far and the relative gap after them.
    tol : float or None, default=None
        The gap at which the solver stops.
    """

    def __init__(self, *, paths: Mapping[str, Array], tol: float | None = None) -> None:
        self.paths = {name: np.asarray(path, dtype=np.float64).reshape(-1, 2) for name, path in paths.items()}
        self.tol = tol
        if not any(len(path) for path in self.paths.values()):
            raise InputError("paths must hold at least one pair of steps and gap; got none. Was anything solved?")

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> ConvergenceDisplay:
        """Draw all duals of a fitted SVC, SVR or OneClassSVM, from its ``gap_paths_``."""
        check_is_fitted(estimator)
        paths = getattr(estimator, "gap_paths_", None)
        if paths is None:
            raise InputError(
                f"estimator must be a support vector machine of krein, which has gap_paths_; got "
                f"{type(estimator).__name__}. The others solve linear systems: there is nothing to converge."
            )
        tol = None if getattr(estimator, "refined_", False) else estimator.tol  # a refinement stops by another rule
        return cls(paths=dict(zip(_names(estimator, len(paths)), paths, strict=True)), tol=tol).plot(ax=ax)

    @classmethod
    def from_dual(cls, dual: Any, *, tol: float | None = None, ax: Any = None) -> ConvergenceDisplay:
        """Draw one solution of `krein.solvers.solve_dual`."""
        return cls(paths={dual.method: np.asarray(dual.path)}, tol=tol).plot(ax=ax)

    def plot(self, ax: Any = None) -> ConvergenceDisplay:
        """Draw the gaps on a logarithmic axis; steps too, where they span more than two decades."""
        axis = self._axis(ax, (6.4, 4.2))
        paths = {name: path for name, path in self.paths.items() if len(path)}
        enough = self.tol or 0.0  # below it gaps are as good as each other, and steps count
        slowest = max(paths, key=lambda name: (max(paths[name][-1, 1], enough), paths[name][-1, 0]))
        many = len(paths) > MOST_LINES
        for (name, path), style in zip(paths.items(), series_styles(len(paths)), strict=True):
            if many:
                style = {"color": "0.7", "linewidth": 0.9, "marker": ".", "markersize": 3}
            if many and name == slowest:
                style = {"color": DARK, "linewidth": 1.8, "marker": "o", "markersize": 4, "zorder": 3}
            label = name if not many else f"slowest: {name}" if name == slowest else None
            axis.plot(path[:, 0], np.maximum(path[:, 1], SMALLEST_GAP), label=label, **style)
        if many:
            axis.plot([], [], color="0.7", marker=".", label=f"the other {len(paths) - 1:,} duals")
        if self.tol is not None:
            axis.axhline(self.tol, color="0.35", linestyle=(0, (1, 1.5)), linewidth=1.4, label=f"tol = {self.tol:g}")
        steps = np.concatenate([path[:, 0] for path in paths.values()])
        if steps.max() > 100 * max(1.0, steps[steps > 0].min(initial=np.inf)):
            axis.set_xscale("log")
        axis.set_yscale("log")
        polished = any(len(path) > 1 and path[-1, 0] == path[-2, 0] for path in paths.values())
        steps_label = "steps of the solver" + ("; where a line drops, the polish" if polished else "")
        name_axes(axis, steps_label, "relative duality gap", lines="both")
        legend_above(axis, columns=2 if many or len(paths) < 4 else 3)
        return self


def _names(estimator: Any, count: int) -> list[str]:
    """What each dual is about: a pair of classes, a class, or the whole."""
    classes = getattr(estimator, "classes_", None)
    if count == 1 or classes is None:
        return ["duality gap"] if count == 1 else [f"dual {i + 1}" for i in range(count)]
    if count == len(classes) * (len(classes) - 1) // 2 and getattr(estimator, "multi_class", "ovo") == "ovo":
        return [f"{a} against {b}" for a, b in combinations(classes, 2)]
    return [f"{c} against the rest" for c in classes]
