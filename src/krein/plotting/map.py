"""A map: objects as points in the plane, by the first two components of a fitted transformer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, column_or_1d

from krein.arrays import Array
from krein.errors import InputError
from krein.kernels.collections import is_sparse
from krein.plotting.canvas import COLOURS, MARKERS, Display, fit_inside, legend_above, name_axes

__all__ = ["MapDisplay"]

# More labels than there are pairs of a colour and a marker could not be told apart.
MOST_LABELS = len(COLOURS) * len(MARKERS)
# Where a name may stand, seen from its point: 1 is to the right or above, -1 to the left or below.
PLACES = ((1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1), (1, 0), (-1, 0))


class MapDisplay(Display):
    """Objects as points, similar ones near each other, with their labels told apart by colour and marker.

    Parameters
    ----------
    points : (n, 2)
        Coordinates.
    labels : (n,) or None, default=None
        A label per point.
    names : (n,) strings or None, default=None
        Texts that are written beside the points.
    axes : (str, str), default=("component 1", "component 2")
        What the axes are called.
    """

    def __init__(self, *, points: Array, labels: Any = None, names: Any = None,
                 axes: tuple[str, str] = ("component 1", "component 2")) -> None:  # fmt: skip
        self.points = np.asarray(points, dtype=np.float64)
        if self.points.ndim != 2 or self.points.shape[1] != 2 or not len(self.points):
            raise InputError(f"points must have two columns and at least one row; got shape {self.points.shape}.")
        if not np.isfinite(self.points).all():
            raise InputError("points hold NaN or infinite values, which have no place on a map.")
        self.labels = None if labels is None else column_or_1d(labels)
        if self.labels is not None and self.labels.dtype == object:  # None beside texts cannot be sorted
            self.labels = self.labels.astype(str)
        self.names = None if names is None else [str(name) for name in names]
        self.axes = axes
        for what, values in (("labels", self.labels), ("names", self.names)):
            if values is not None and len(values) != len(self.points):
                raise InputError(f"{what} must have one entry per point, {len(self.points)}; got {len(values)}.")
        if self.labels is not None and len(np.unique(self.labels)) > MOST_LABELS:
            raise InputError(
                f"A map tells {MOST_LABELS} labels apart; got {len(np.unique(self.labels))}. Pass groups of them."
            )

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any = None, *, names: Any = None, components: tuple[int, int] = (0, 1),
        ax: Any = None,
    ) -> MapDisplay:  # fmt: skip
        """Draw what a fitted KernelPCA, or another transformer, makes of the objects ``X``.

        Parameters
        ----------
        estimator : a fitted transformer, or a pipeline that ends in one
        X : objects
            As for ``estimator.transform``.
        y : (n,) or None, default=None
            A label per object.
        names : (n,) strings or None, default=None
            Texts that are written beside the points.
        components : (int, int), default=(0, 1)
            The components that become the axes.
        ax : matplotlib Axes or None, default=None
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "transform"):
            raise InputError(
                f"estimator must have transform, as KernelPCA has; got {type(estimator).__name__}. "
                "For coordinates you have, pass MapDisplay(points=...)."
            )
        Z: Any = estimator.transform(X)
        Z = np.asarray(Z.toarray() if is_sparse(Z) else Z)
        pair = np.ravel(components).tolist()
        if Z.ndim != 2 or len(pair) != 2 or not all(c in range(Z.shape[1]) for c in pair):
            raise InputError(f"components must be two of the {Z.shape[-1]} that {estimator} has; got {components}.")
        a, b = pair
        return cls(points=Z[:, [a, b]], labels=y, names=names, axes=(f"component {a + 1}", f"component {b + 1}")).plot(
            ax=ax
        )

    def plot(self, ax: Any = None) -> MapDisplay:
        """Draw the points, a legend of the labels, and the names."""
        axis = self._axis(ax, (6.4, 5.2))
        groups = [None] if self.labels is None else list(np.unique(self.labels))
        size = float(np.clip(8000 / len(self.points), 9, 36))
        for i, group in enumerate(groups):
            chosen = slice(None) if group is None else self.labels == group
            x, y = self.points[chosen, :2].T
            marker = MARKERS[(i // len(COLOURS) + i) % len(MARKERS)]
            axis.scatter(x, y, s=size, color=COLOURS[i % len(COLOURS)], marker=marker, alpha=0.7, linewidths=0,
                         label=None if group is None else str(group))  # fmt: skip
        write_names(axis, self.names or (), self.points[:, :2])
        name_axes(axis, *self.axes)
        if self.labels is not None:
            legend_above(axis, columns=min(8, len(groups)), handlelength=1.0, markerscale=(36 / size) ** 0.5)
        fit_inside(axis)
        return self


def write_names(axis: Any, names: Sequence[str], points: Array) -> None:
    """Write each name beside its point, where it covers the fewest of the names written before."""
    axis.get_xlim(), axis.get_ylim()  # sets what autoscaling has left open
    written: list[Any] = []
    for name, point in zip(names, points, strict=False):
        label = axis.annotate(name, point, xytext=(0, 0), textcoords="offset points", fontsize=8)
        covered = []
        for place in PLACES:
            _put(label, place)
            box = label.get_window_extent()
            covered.append(sum(box.overlaps(other) for other in written))
        _put(label, PLACES[int(np.argmin(covered))])
        written.append(label.get_window_extent())


def _put(label: Any, place: tuple[int, int]) -> None:
    """Put a label to the right or left of its point, and above, level with or below it."""
    x, y = place
    label.set(position=(4 * x, 4 * y), horizontalalignment=("right", "center", "left")[x + 1],
              verticalalignment=("top", "center", "bottom")[y + 1])  # fmt: skip
