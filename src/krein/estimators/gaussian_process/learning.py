"""The parameters of a kernel object that have most evidence: observations in, theta out.

All rows are used if they are few, else some of them, whose evidence is exact and has an analytic gradient. An exact
process learns on rows drawn at random. For an approximated one such rows show the long length scales; some
neighbourhoods, with all their rows, show the short ones and the noise. The sum of their evidences is maximised (a
composite likelihood). Which of the two results is better depends on how much of the short scales the approximation
can hold, so both are returned, and the approximation's own evidence on all rows decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize

from krein.arrays import Array, stream
from krein.errors import InputError, warn
from krein.estimators.gaussian_process.evidence import (
    PSD_ROUNDING,
    Evidence,
    Observations,
    evidence_of,
    exact_evidence,
    is_psd,
    self_similarities,
)
from krein.estimators.gaussian_process.kernels import declared_psd, signal
from krein.kernels import count_objects, is_vectors, take
from krein.pieces.rows import RowPieces
from krein.solvers.dense_dual import NotConverged

__all__ = ["Learned", "learn", "warn_of_bounds"]

# The evidence is at a maximum if its slope in the log of each parameter is below SMALL_SLOPE per value of y.
SMALL_SLOPE = 1e-3
# A line search takes at most LINE_STEPS steps.
LINE_STEPS = 10
# The optimizer is run up to MAXIMISATIONS times, each time from where it ended, until the evidence grows by a share of
# less than MAXIMISATION_GAIN.
MAXIMISATIONS = 3
MAXIMISATION_GAIN = 1e-2
# Near a maximum the first step has length NEAR_STEP, and the optimizer stops at a gain of NEAR_GAIN.
NEAR_STEP = 0.05
NEAR_GAIN = 0.01
# An approximated process also learns on NEIGHBOURHOODS neighbourhoods of NEIGHBOURS rows each.
NEIGHBOURHOODS = 3
NEIGHBOURS = 600
# Kernels have these bounds of their length scales unless others are given.
USUAL_BOUNDS = (1e-5, 1e5)


@dataclass(frozen=True, eq=False)
class Learned:
    """The theta that was found, its evidence, and the state of convergence."""

    theta: Array
    evidence: float
    iterations: int
    converged: bool
    how: str | None  # the correction for which it was learned
    earlier: tuple[Array, ...] = ()  # the theta learned from random rows alone
    slope: float = 0.0  # the largest slope left, at parameters that are not at a bound
    n_refused: int = 0  # number of points tried where the covariance is not positive definite

    @property
    def candidates(self) -> tuple[Array, ...]:
        """All thetas that were found. The last one is usually the best."""
        return (*self.earlier, self.theta)


def learn(
    kernel: Any, whole: Observations, *, how: str, optimizer: Any, restarts: int, most: int, local: bool, seed: int,
    rng: Any, of: Callable[..., Evidence] = evidence_of,
) -> Learned:  # fmt: skip
    """Maximise the evidence over the theta of ``kernel``, starting there and at ``restarts`` random points.

    If there are more than ``most`` rows, the maximum is searched for on ``most / 2`` random rows, and then improved on
    ``most`` random rows. With ``local`` it is improved on the first rows and some neighbourhoods instead.
    """
    few = count_objects(whole.objects) <= most
    if few and isinstance(whole.objects, RowPieces):
        whole = _take(whole, np.arange(count_objects(whole.objects)))  # few rows fit into memory
    first = whole if few else random_rows(whole, max(2, most // 2), seed)
    correction = correction_of_evidence(kernel, how, first)
    starts = [kernel.theta]
    if restarts > 0:
        if not np.isfinite(kernel.bounds).all():
            raise InputError(
                "Multiple optimizer restarts (n_restarts_optimizer>0) requires that all bounds are finite."
            )
        starts += [rng.uniform(kernel.bounds[:, 0], kernel.bounds[:, 1]) for _ in range(restarts)]
    ways = ("clip", "flip") if correction == "auto" else (correction,)  # each has maxima of its own
    found = [_maximise(kernel, start, [first], way, optimizer, of=of) for way in ways for start in starts]
    best = max(found, key=lambda each: each.evidence)
    _warn_of_no_maximum(best, whole.objects)
    if few:
        return best
    if local:
        groups = [first, *neighbourhoods(whole, kernel.clone_with_theta(best.theta), seed)]
    else:
        groups = [random_rows(whole, most, seed)]
    last = _maximise(kernel, best.theta, groups, best.how, optimizer, near=not local, of=of)
    _warn_of_no_maximum(last, whole.objects)
    steps, converged = best.iterations + last.iterations, best.converged and last.converged
    return Learned(last.theta, last.evidence, steps, converged, best.how, (best.theta,) if local else ())


def random_rows(whole: Observations, count: int, seed: int) -> Observations:
    """Return ``count`` random rows. A smaller count gives the first of them."""
    drawn = stream(seed, 60).permutation(count_objects(whole.objects))[:count]
    return _take(whole, drawn)


def neighbourhoods(whole: Observations, kernel: Any, seed: int) -> list[Observations]:
    """Return the nearest rows of some random ones, by the kernel's distance k(x, x) + k(c, c) - 2 k(x, c)."""
    clean = signal(kernel)
    n = count_objects(whole.objects)
    own = self_similarities(clean, whole.objects)
    found = []
    near = min(NEIGHBOURS, n)
    for i in stream(seed, 61).choice(n, min(NEIGHBOURHOODS, n), replace=False):
        distances = own - 2.0 * _similarities_to(take(whole.objects, [i]), clean, whole.objects)
        found.append(_take(whole, np.sort(np.argpartition(distances, near - 1)[:near])))
    return found


def correction_of_evidence(kernel: Any, how: str, group: Observations) -> str | None:
    """Return the correction that the evidence takes into account, None for a kernel that is psd.

    A kernel may be psd on the sphere only, or be declared psd wrongly, so its matrix is checked.
    """
    if how == "none" or (
        how != "square" and declared_psd(kernel) and is_psd(signal(kernel)(group.objects), PSD_ROUNDING)
    ):
        return None
    return how


def _maximise(
    kernel: Any, start: Array, groups: list[Observations], how: str | None, optimizer: Any, near: bool = False,
    of: Callable[..., Evidence] = evidence_of,
) -> Learned:  # fmt: skip
    """Return the maximum that ``optimizer`` finds from ``start``; ``near`` if that is a maximum for other rows."""

    def objective(theta: Array, eval_gradient: bool = True) -> Any:
        at = kernel.clone_with_theta(theta)
        found = [exact_evidence(at, group, how, eval_gradient, of) for group in groups]
        value = -sum(each[0] for each in found)
        return (value, -np.sum([each[1] for each in found], axis=0)) if eval_gradient else value

    if callable(optimizer):
        theta, value = optimizer(objective, start, bounds=kernel.bounds)
        return Learned(np.asarray(theta, dtype=np.float64), -float(value), 0, True, how)
    if optimizer != "fmin_l_bfgs_b":
        raise InputError(f"optimizer must be 'fmin_l_bfgs_b', a callable or None; got {optimizer!r}.")
    finite, start = FiniteObjective(objective), np.clip(start, kernel.bounds[:, 0], kernel.bounds[:, 1])
    if not np.isfinite(finite(start)[0]):
        return Learned(np.array(start), -np.inf, 0, False, how)
    ends, steps, enough = kernel.bounds, 0, SMALL_SLOPE * sum(group.y.size for group in groups)
    for again in range(MAXIMISATIONS):  # from the second on the first step has length 1 at most
        length, before = float(np.linalg.norm(finite.slopes)), finite.value
        scale = max(1.0, length / NEAR_STEP if near else length) if again or near else 1.0
        options: Any = {"maxls": LINE_STEPS, "gtol": 1e-5 / scale} | ({"ftol": NEAR_GAIN / scale} if near else {})
        result = minimize(finite.over(scale), finite.theta, method="L-BFGS-B", jac=True, bounds=ends, options=options)
        steps += int(result.nit)
        left = float(np.abs(np.clip(finite.theta - finite.slopes, ends[:, 0], ends[:, 1]) - finite.theta).max())
        settled = left <= enough or (near and bool(result.success))
        if settled or (again and before - finite.value <= MAXIMISATION_GAIN * abs(before)):
            break
    return Learned(finite.theta, -finite.value, steps, settled, how, (), left, finite.n_refused)


class FiniteObjective:
    """An objective to be minimised that is finite everywhere, and its smallest value so far.

    The first step of L-BFGS-B has the length of the gradient, and often ends in a corner of the bounds. If the
    covariance is not positive definite there, the objective is infinite, and L-BFGS-B returns to the start and reports
    convergence. So such points get a value above the best one, which rises with the distance from it.
    """

    def __init__(self, objective: Callable[[Array], tuple[float, Array]]) -> None:
        self.objective = objective
        self.value = np.inf
        self.theta: Array = np.empty(0)
        self.slopes: Array = np.empty(0)
        self.n_refused = 0  # points without a value

    def __call__(self, theta: Array) -> tuple[float, Array]:
        if np.array_equal(theta, self.theta):  # the start
            return self.value, self.slopes
        value, slopes = self.objective(theta)
        if np.isfinite(value) and np.isfinite(slopes).all():
            if value < self.value:
                self.value, self.theta, self.slopes = float(value), theta.copy(), slopes
            return value, slopes
        self.n_refused += 1
        if not len(self.theta):
            return np.inf, slopes
        up = abs(float(self.slopes @ (theta - self.theta))) + PSD_ROUNDING * (1.0 + abs(self.value))
        return self.value + up, -self.slopes

    def over(self, scale: float) -> Callable[[Array], tuple[float, Array]]:
        """Return the objective divided by ``scale``, as a function."""

        def scaled(theta: Array) -> tuple[float, Array]:
            value, slopes = self(theta)
            return value / scale, slopes / scale

        return scaled


def _warn_of_no_maximum(found: Learned, objects: Any) -> None:
    """Warn if theta is not a maximum of the evidence, and say what may help."""
    if found.converged:
        return
    if not np.isfinite(found.evidence):
        reason = "cannot be evaluated at the parameters the kernel has: the covariance is not positive definite there"
    else:
        reason = (
            f"was left after {found.iterations} iterations with a slope of {found.slope:.2g} in the log of a parameter"
        )
        reason += (
            f"; at {found.n_refused} points tried the covariance is not positive definite" if found.n_refused else ""
        )
    advice = (
        "Targets with hardly any noise, or a kernel close to a constant, do this: raise alpha, or give the kernel "
        "narrower bounds."
    )
    warn(
        f"The log evidence of the kernel's parameters {reason}. The best parameters found are used. "
        f"{_scale_advice(objects) or advice}",
        NotConverged,
    )


def warn_of_bounds(kernel: Any, objects: Any, converged: bool) -> None:
    """Warn of learned parameters of a scikit-learn kernel that lie at their bounds."""
    advice = _scale_advice(objects)
    if not advice:
        kernel._check_bounds_params()
    elif converged and np.isclose(kernel.bounds, kernel.theta[:, None]).any():
        warn(f"The best parameters of the kernel lie at their bounds. {advice}", NotConverged)


def _scale_advice(objects: Any) -> str:
    """What to do about rows that are too small or too large for the usual length scales; empty for others."""
    size = float(abs(objects).max()) if is_vectors(objects) else 1.0
    if USUAL_BOUNDS[0] <= size <= USUAL_BOUNDS[1]:
        return ""
    return (
        f"The largest entry of X is {size:.1g}, and length scales are sought from {USUAL_BOUNDS[0]:g} to "
        f"{USUAL_BOUNDS[1]:g}: rescale X, for instance with sklearn.preprocessing.StandardScaler."
    )


def _take(whole: Observations, indices: Any) -> Observations:
    objects = take(whole.objects, indices)
    objects = objects.astype(np.float64) if getattr(objects, "dtype", None) == np.float32 else objects
    return Observations(objects, whole.y[indices], whole.noise[indices])


def _similarities_to(one: Any, kernel: Any, objects: Any) -> Array:
    """Return k(x, one) of all objects, in memory or in pieces."""
    if isinstance(objects, RowPieces):
        return objects.map(partial(_similarities_to, one, kernel))
    return np.asarray(kernel(objects, one)[:, 0])
