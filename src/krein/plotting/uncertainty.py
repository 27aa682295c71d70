"""What a Gaussian process predicts, and how sure it is of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from krein.arrays import Array, Indices
from krein.errors import InputError, whole_number
from krein.plotting.canvas import DARK, Display, legend_above, name_axes

__all__ = ["UncertaintyDisplay"]

# At most DRAWN_ROWS rows are drawn, evenly chosen from more.
DRAWN_ROWS = 400
# Up to MOST_BARS intervals are drawn one by one, more as a band.
MOST_BARS = 60


@dataclass(eq=False, repr=False, kw_only=True)
class UncertaintyDisplay(Display):
    """Means with their intervals: along one feature, or over rows sorted by what is predicted.

    Parameters
    ----------
    mean, std : array of shape (m,)
        Predictions and their standard deviations, in the order in which they are drawn.
    x : array of shape (m,) or None, default=None
        Horizontal positions. None places rows one after the other.
    y : array of shape (m,) or None, default=None
        Observed targets of the same rows.
    points : (array, array) or None, default=None
        Positions and targets of observations that are drawn beside a curve.
    coverage : float, default=0.95
        Probability that an interval contains its target.
    x_label : str, default=""
        Label of the horizontal axis.
    """

    mean: Array
    std: Array
    x: Array | None = None
    y: Array | None = None
    points: tuple[Array, Array] | None = None
    coverage: float = 0.95
    x_label: str = ""

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        feature: int | None = None,
        n_points: int = 200,
        coverage: float = 0.95,
        ax: Any = None,
    ) -> UncertaintyDisplay:
        """Draw what a fitted Gaussian process says of X.

        With ``feature``, or if X has one column, a curve along that feature, over its range in X, the others at their
        medians; y is shown beside it if there are no others. Without, one interval per row of X, by rising mean.
        """
        check_is_fitted(estimator)
        columns = getattr(X, "shape", (0, 0))[1:]
        if feature is None and columns == (1,):
            feature = 0
        if feature is None:
            mean, std = estimator.predict(X, return_std=True)
            return cls.from_predictions(mean, std, y, coverage=coverage, ax=ax)
        whole_number("n_points", n_points, 2)
        if len(columns) != 1 or not isinstance(feature, int | np.integer) or not 0 <= feature < columns[0]:
            raise InputError(f"feature must be a column of X, an array (n, d); got feature={feature!r} and {columns}.")
        values = np.asarray(X, dtype=np.float64)
        grid = np.repeat(np.median(values, axis=0)[None], int(n_points), axis=0)
        x = grid[:, feature] = np.linspace(values[:, feature].min(), values[:, feature].max(), int(n_points))
        mean, std = estimator.predict(grid, return_std=True)
        _check_single(mean)
        shown = None
        if y is not None and columns == (1,):
            if len(np.ravel(y)) != len(values):
                raise InputError(f"y must have one number per row of X, {len(values)}; got {len(np.ravel(y))}.")
            shown = values[:, 0], np.ravel(np.asarray(y, dtype=np.float64))
        rest = "" if columns == (1,) else ", the others at their medians"
        names = getattr(estimator, "feature_names_in_", None)
        label = f"feature {feature}" if names is None else str(names[feature])
        return cls(mean=mean, std=std, x=x, points=shown, coverage=coverage, x_label=label + rest).plot(ax=ax)

    @classmethod
    def from_predictions(
        cls, mean: Any, std: Any, y_true: Any = None, *, x: Any = None, coverage: float = 0.95, ax: Any = None
    ) -> UncertaintyDisplay:
        """Draw one interval per prediction, by rising mean or over ``x``, and what was observed beside it."""
        arrays = {"mean": mean, "std": std, "y_true": y_true, "x": x}
        held = {name: np.asarray(v, dtype=np.float64) for name, v in arrays.items() if v is not None}
        _check_single(held["mean"])
        n = len(held["mean"])
        for name, values in held.items():
            if values.shape != (n,) or not np.isfinite(values).all():
                raise InputError(f"{name} must hold {n} finite numbers, one per prediction; got shape {values.shape}.")
        if n == 0 or (held["std"] < 0.0).any():
            raise InputError(f"std must hold numbers of at least 0, one per prediction; got {n} predictions.")
        order: Indices = np.argsort(held.get("x", held["mean"]), kind="stable")
        own = {name: values[order] for name, values in held.items()}
        return cls(
            mean=own["mean"], std=own["std"], x=own.get("x"), y=own.get("y_true"), coverage=coverage, x_label="x"
        ).plot(ax=ax)

    @property
    def half_width(self) -> Array:
        """(m,) of the intervals."""
        return np.asarray(ndtri(0.5 + 0.5 * self.coverage) * self.std)

    @property
    def covered(self) -> float | None:
        """The share of what was observed that lies in its interval; None where nothing was."""
        return None if self.y is None else float(np.mean(np.abs(self.y - self.mean) <= self.half_width))

    def plot(self, ax: Any = None) -> UncertaintyDisplay:
        """Draw means, intervals and observations."""
        if not 0.0 < self.coverage < 1.0:
            raise InputError(f"coverage must be a share between 0 and 1; got {self.coverage!r}.")
        axis = self._axis(ax, (6.8, 4.2))
        n = len(self.mean)
        some = np.arange(n) if n <= DRAWN_ROWS else np.linspace(0, n - 1, DRAWN_ROWS).astype(np.intp)
        x = (np.arange(1, n + 1) if self.x is None else self.x)[some]
        mean, half = self.mean[some], self.half_width[some]
        interval = f"{self.coverage:.0%} interval"
        if self.y is not None and len(some) <= MOST_BARS:
            axis.errorbar(
                x, mean, yerr=half, fmt="none", ecolor="0.6", elinewidth=2.2, capsize=2, label=interval, zorder=1
            )
            axis.plot(x, mean, color=DARK, linestyle="none", marker="_", markersize=7, label="predicted mean", zorder=2)
        else:
            axis.fill_between(x, mean - half, mean + half, color="0.82", linewidth=0, label=interval, zorder=1)
            axis.plot(x, mean, color=DARK, linewidth=1.8, label="predicted mean", zorder=4)
        if self.y is not None:
            axis.plot(x, self.y[some], label=f"observed, {self.covered:.0%} of {n:,} inside", **POINTS)
        if self.points is not None:
            axis.plot(*self.points, label="observed", **POINTS)
        sampled = "" if n <= DRAWN_ROWS or self.x is not None else f" ({DRAWN_ROWS} of {n:,} shown)"
        name_axes(axis, self.x_label if self.x is not None else f"rows, by rising prediction{sampled}", "target")
        axis.margins(x=0.02)
        legend_above(axis, columns=3)
        return self


POINTS: dict[str, Any] = {
    "color": "#1b5e91",
    "linestyle": "none",
    "marker": "o",
    "markersize": 3.5,
    "markerfacecolor": "none",
    "markeredgewidth": 0.9,
    "zorder": 3,
}


def _check_single(mean: Any) -> None:
    if np.ndim(mean) != 1:
        raise InputError(f"One target is drawn at a time; mean has shape {np.shape(mean)}. Pass one of its columns.")
