"""Rows and a kernel object in, the theta of most evidence out: of all rows if they are few, else of some of them.

The evidence of some rows is exact and its gradient analytic. An exact process learns on rows drawn at random. For an
approximated one such rows show the long scales, and some neighbourhoods, every row of them, the short scales and the
noise: the sum of their evidences is maximised (a composite likelihood). Both what the first alone and what all say is
handed on: which is better depends on how much of the short scales the approximation can hold, so its own evidence on
all rows decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import minimize

from krein.approximation import Approximation
from krein.arrays import Array, stream
from krein.errors import InputError, warn
from krein.estimators.choose_correction import judge_for
from krein.estimators.gaussian_process.kernels import (
    amplitude_of,
    covariance_and_gradient,
    declared_psd,
    leaf_of,
    noise_level,
    noise_place,
    scale_places,
    signal,
)
from krein.estimators.gaussian_process.posterior import Evidence, Scales, evidence_of, is_psd, posterior, scaled
from krein.estimators.route import Exact, Route
from krein.factorization import Factorization
from krein.factorization.eigensystem import Eigensystem
from krein.kernels import count_objects, is_vectors, take
from krein.kernels.collections import rows
from krein.pieces.rows import RowPieces
from krein.solvers.dense_dual import NotConverged

__all__ = [
    "Group",
    "Learned",
    "covariance",
    "data_of",
    "diagonal",
    "exact_evidence",
    "judged",
    "known_noise",
    "learn",
    "noise_of",
    "rescaled",
    "settled_later",
]

# A kernel declared psd may have negative eigenvalues of this share of the largest one.
PSD_ROUNDING = 1e-8
# The evidence is at a maximum if its slope in the log of each parameter is below SMALL_SLOPE per value of y.
SMALL_SLOPE = 1e-3
# A line search takes at most LINE_STEPS steps.
LINE_STEPS = 10
# The optimizer is run up to CLIMBS times, from where it ended, while the evidence grows by a share above CLIMB_GAIN.
CLIMBS = 3
CLIMB_GAIN = 1e-2
# Near a maximum the first step has length NEAR_STEP, and the optimizer stops at a gain of NEAR_GAIN.
NEAR_STEP = 0.05
NEAR_GAIN = 0.01
# An approximated process also learns on NEIGHBOURHOODS neighbourhoods of NEIGHBOURS rows each.
NEIGHBOURHOODS = 3
NEIGHBOURS = 600
# Kernels have these bounds of their length scales unless others are given.
USUAL_BOUNDS = (1e-5, 1e5)
# At most TILE_ENTRIES entries of the covariance are evaluated at a time.
TILE_ENTRIES = 2**22


@dataclass(frozen=True, eq=False)
class Group:
    """Rows whose evidence is taken together."""

    objects: Any
    y: Array  # (m, p)
    noise: Array  # (m,) known noise, beside what the kernel has
    own: dict[str, Array] = field(default_factory=dict)  # self-similarities that were evaluated before


@dataclass(frozen=True, eq=False)
class Learned:
    """A theta, the evidence of the groups there, and how it was found."""

    theta: Array
    evidence: float
    iterations: int
    converged: bool
    how: str | None  # the correction it is best for
    earlier: tuple[Array, ...] = ()  # where the rows at random alone led
    left: float = 0.0  # the largest slope that no bound stops
    refused: int = 0  # points tried that have no evidence

    @property
    def candidates(self) -> tuple[Array, ...]:
        """What was found, the last and as a rule the best at the end."""
        return (*self.earlier, self.theta)


def known_noise(given: Any, n: int) -> Array:
    """Return the variances alpha gives, one per row, checked."""
    try:
        alpha = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"alpha must be a number or one number per row, variances; got {given!r}.") from None
    if alpha.ndim > 1 or (alpha.ndim == 1 and len(alpha) not in (1, n)):
        raise InputError(
            f"alpha must be a scalar or an array with same number of entries as y. ({alpha.shape} != ({n},))"
        )
    if not np.isfinite(alpha).all() or alpha.min() < 0.0:
        raise InputError(f"alpha must be finite and at least 0, a variance; got {given!r}.")
    return np.broadcast_to(alpha, (n,)).copy()


def data_of(machine: Any) -> Group:
    """All that a machine was fitted on."""
    n = len(machine.y_train_)
    return Group(machine.X_train_, machine.y_train_.reshape(n, -1), known_noise(machine.alpha, n))


def noise_of(kernel: Any, group: Group) -> Any:
    """The variance of the noise: one number, or one per row where they differ."""
    level = noise_level(kernel)
    if level is None:
        level = kernel.diag(group.objects) - signal(kernel).diag(group.objects)
    noise = group.noise + level
    return float(noise[0]) if np.ptp(noise) <= 1e-12 * noise.max() else noise


def rescaled(
    f: Factorization, system: Eigensystem, kernel: Any, whole: Group
) -> tuple[Factorization, Eigensystem, Any]:
    """Amplitude and noise of most evidence on all rows, where the kernel has them and the noise is one number."""
    places, place, noise = scale_places(kernel), noise_place(kernel), noise_of(kernel, whole)
    if (places is None and place is None) or np.ndim(noise) > 0:
        return f, system, kernel
    theta, ends = kernel.theta, kernel.bounds
    level = 0.0 if place is None else math.exp(theta[place])
    bounds = np.zeros((2, 2))
    if places is not None:
        bounds[0] = (ends[places, 0] - theta[places]).max(), (ends[places, 1] - theta[places]).min()
    if place is not None:
        bounds[1] = ends[place]
    free = (places is not None, place is not None)
    known = max(0.0, float(noise) - level)
    ratio, level = Scales.of(f, whole.y, system).best(level, known, bounds, free)
    if places is not None:
        theta[places] += math.log(ratio)
    if place is not None:
        theta[place] = math.log(level)
    f, system = scaled(f, system, ratio)
    return f, system, kernel.clone_with_theta(np.clip(theta, ends[:, 0], ends[:, 1]))


def judged(
    a: Approximation,
    kernel: Any,
    whole: Group,
    completed: Callable[[Approximation], tuple[Factorization, Eigensystem]],
    *,
    exact: bool,
    settle: bool,
) -> str:
    """Clip, unless flip has more evidence and rows held out are clearly better predicted.

    Negative eigenvalues of the ``exact`` matrix of a kernel declared psd are left as they are if they are rounding.
    The evidence alone cannot tell: a small eigenvalue flipped costs the data nothing, and misleads new objects. With
    ``settle`` amplitude and noise are still open, and each correction is judged by its own best ones.
    """
    ends = a.factorization.ends()
    if a.kernel.traits.psd and exact and -ends.smallest <= PSD_ROUNDING * ends.largest:
        return "none"

    def best(how: str | None) -> tuple[Factorization, Eigensystem, Any]:
        f, system = completed(a if how is None else a.corrected(how))
        return rescaled(f, system, kernel, whole) if settle else (f, system, kernel)

    def evidence(how: str) -> float:
        f, system, at = best(how)
        return posterior(f, noise_of(at, whole), whole.y, system).evidence

    if evidence("clip") >= evidence("flip"):
        return "clip"
    f, system, at = best("flip" if settle else None)
    ratio = float(np.abs(system.values).max()) / max(abs(ends.smallest), abs(ends.largest))  # to the kernel's units
    strength = (float(np.mean(noise_of(at, whole))) + f.shift) / ratio
    judge = judge_for(whole.y, "regression", learner="ridge", strength=strength, names=("clip", "flip"), seed=a.seed)
    return judge(a)


def random_rows(whole: Group, count: int, seed: int) -> Group:
    """``count`` rows drawn at random; the first of them are those that a smaller count would draw."""
    drawn = stream(seed, 60).permutation(count_objects(whole.objects))[:count]
    return _take(whole, drawn)


def neighbourhoods(whole: Group, kernel: Any, seed: int) -> list[Group]:
    """The nearest rows of some, by the kernel's own distance k(x, x) + k(c, c) - 2 k(x, c)."""
    clean = signal(kernel)
    n = count_objects(whole.objects)
    own = self_similarities(clean, whole.objects)
    found = []
    near = min(NEIGHBOURS, n)
    for i in stream(seed, 61).choice(n, min(NEIGHBOURHOODS, n), replace=False):
        distances = own - 2.0 * _similarities_to(take(whole.objects, [i]), clean, whole.objects)
        found.append(_take(whole, np.sort(np.argpartition(distances, near - 1)[:near])))
    return found


def exact_evidence(
    kernel: Any, group: Group, how: str | None, slopes: bool, of: Callable[..., Evidence] = evidence_of
) -> tuple[float, Array]:
    """Return (log p(y), its gradient in theta) of a dense matrix; ``of`` and ``how`` are `evidence_of` and its."""
    none = np.zeros(kernel.n_dims)
    K, gradient = covariance_and_gradient(kernel, group.objects) if slopes else (kernel(group.objects), None)
    extra = np.zeros(len(K))
    if how is not None:  # a correction is of the signal alone
        clean = signal(kernel).diag(group.objects)
        extra = np.diag(K) - clean
        np.fill_diagonal(K, clean)
    value, derivative = of(K, extra + group.noise, group.y, how)[:2]
    if gradient is None or not np.isfinite(value):
        return value, none
    W, by_noise = derivative()
    found = gradient(W)
    place = noise_place(kernel)
    if how is not None and place is not None:
        found[place] = math.exp(kernel.theta[place]) * by_noise.sum()
    return value, found


def covariance(kernel: Any, group: Group) -> Array:
    """The covariance of the targets, n x n: the upper triangle is filled, tile by tile, the rest is left unset.

    It takes half the evaluations of the whole matrix, and no memory beside the matrix itself and one tile.
    """
    clean, n = signal(kernel), count_objects(group.objects)
    H, step = np.empty((n, n)), max(1, TILE_ENTRIES // n)
    for start in range(0, n, step):
        some = rows(group.objects, slice(start, start + step))
        H[start : start + step, start:] = clean(some, rows(group.objects, slice(start, n)) if start else group.objects)
    H[np.diag_indices(n)] = kernel.diag(group.objects) + group.noise
    return H


def learn(
    kernel: Any, whole: Group, *, how: str, optimizer: Any, restarts: int, most: int, local: bool, seed: int, rng: Any,
    of: Callable[..., Evidence] = evidence_of,
) -> Learned:  # fmt: skip
    """Maximise the evidence over the theta of ``kernel``, from its own and from ``restarts`` random ones.

    Of more than ``most`` rows half as many at random show where the maximum is, and then as many where exactly. With
    ``local`` the second are replaced by neighbourhoods.
    """
    few = count_objects(whole.objects) <= most
    if few and isinstance(whole.objects, RowPieces):
        whole = _take(whole, np.arange(count_objects(whole.objects)))  # few rows fit into memory
    first = whole if few else random_rows(whole, max(2, most // 2), seed)
    correction = spectral(kernel, how, first)
    starts = [kernel.theta]
    if restarts > 0:
        if not np.isfinite(kernel.bounds).all():
            raise InputError(
                "Multiple optimizer restarts (n_restarts_optimizer>0) requires that all bounds are finite."
            )
        starts += [rng.uniform(kernel.bounds[:, 0], kernel.bounds[:, 1]) for _ in range(restarts)]
    ways = ("clip", "flip") if correction == "auto" else (correction,)  # each has optima of its own
    found = [_climb(kernel, start, [first], way, optimizer, of=of) for way in ways for start in starts]
    best = max(found, key=lambda each: each.evidence)
    _tell(best, whole.objects)
    if few:
        return best
    if local:
        groups = [first, *neighbourhoods(whole, kernel.clone_with_theta(best.theta), seed)]
    else:
        groups = [random_rows(whole, most, seed)]
    last = _climb(kernel, best.theta, groups, best.how, optimizer, near=not local, of=of)
    _tell(last, whole.objects)
    steps, converged = best.iterations + last.iterations, best.converged and last.converged
    return Learned(last.theta, last.evidence, steps, converged, best.how, (best.theta,) if local else ())


def spectral(kernel: Any, how: str, group: Group) -> str | None:
    """The correction that the evidence takes into account: none of a kernel that is psd by its making.

    A kernel may be psd on the sphere only, or be declared psd wrongly, so its matrix is checked.
    """
    if how == "none" or (
        how != "square" and declared_psd(kernel) and is_psd(signal(kernel)(group.objects), PSD_ROUNDING)
    ):
        return None
    return how


def _climb(
    kernel: Any, start: Array, groups: list[Group], how: str | None, optimizer: Any, near: bool = False,
    of: Callable[..., Evidence] = evidence_of,
) -> Learned:  # fmt: skip
    """The maximum that ``optimizer`` finds from ``start``; ``near`` says that a maximum of other rows is there."""

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
    walled, start = Walled(objective), np.clip(start, kernel.bounds[:, 0], kernel.bounds[:, 1])
    if not np.isfinite(walled(start)[0]):
        return Learned(np.array(start), -np.inf, 0, False, how)
    ends, steps, enough = kernel.bounds, 0, SMALL_SLOPE * sum(group.y.size for group in groups)
    for again in range(CLIMBS):  # the later ones with a first step of length 1 where the gradient is longer
        length, before = float(np.linalg.norm(walled.slopes)), walled.value
        scale = max(1.0, length / NEAR_STEP if near else length) if again or near else 1.0
        options: Any = {"maxls": LINE_STEPS, "gtol": 1e-5 / scale} | ({"ftol": NEAR_GAIN / scale} if near else {})
        result = minimize(walled.over(scale), walled.theta, method="L-BFGS-B", jac=True, bounds=ends, options=options)
        steps += int(result.nit)
        left = float(np.abs(np.clip(walled.theta - walled.slopes, ends[:, 0], ends[:, 1]) - walled.theta).max())
        settled = left <= enough or (near and bool(result.success))
        if settled or (again and before - walled.value <= CLIMB_GAIN * abs(before)):  # the rest is rounding
            break
    return Learned(walled.theta, -walled.value, steps, settled, how, (), left, walled.refused)


class Walled:
    """What is to be minimised, made finite everywhere, and the least of it seen.

    L-BFGS-B tries the whole gradient first where all bounds are finite, as a rule a corner of them. Where a covariance
    is not positive definite there, its cubic through an infinite value is nan: it would go back to where it came from
    and call that converged. Here the slope at the best point so far is mirrored instead: a step too long is a step up.
    """

    def __init__(self, objective: Callable[[Array], tuple[float, Array]]) -> None:
        self.objective = objective
        self.value = np.inf
        self.theta: Array = np.empty(0)
        self.slopes: Array = np.empty(0)
        self.refused = 0  # points without a value

    def __call__(self, theta: Array) -> tuple[float, Array]:
        if np.array_equal(theta, self.theta):  # where a climb begins
            return self.value, self.slopes
        value, slopes = self.objective(theta)
        if np.isfinite(value) and np.isfinite(slopes).all():
            if value < self.value:
                self.value, self.theta, self.slopes = float(value), theta.copy(), slopes
            return value, slopes
        self.refused += 1
        if not len(self.theta):
            return np.inf, slopes
        up = abs(float(self.slopes @ (theta - self.theta))) + PSD_ROUNDING * (1.0 + abs(self.value))
        return self.value + up, -self.slopes

    def over(self, scale: float) -> Callable[[Array], tuple[float, Array]]:
        """The same in other units."""

        def scaled(theta: Array) -> tuple[float, Array]:
            value, slopes = self(theta)
            return value / scale, slopes / scale

        return scaled


def _tell(found: Learned, objects: Any) -> None:
    """Warn of a theta that is not one of most evidence; rows beyond the usual bounds are to be rescaled."""
    if found.converged:
        return
    if not np.isfinite(found.evidence):
        reason = "cannot be evaluated at the parameters the kernel has: the covariance is not positive definite there"
    else:
        reason = (
            f"was left after {found.iterations} iterations with a slope of {found.left:.2g} in the log of a parameter"
        )
        reason += f"; at {found.refused} points tried the covariance is not positive definite" if found.refused else ""
    advice = (
        "Targets with hardly any noise, or a kernel close to a constant, do this: raise alpha, or give the kernel "
        "narrower bounds."
    )
    size = float(abs(objects).max()) if is_vectors(objects) else 1.0
    if not USUAL_BOUNDS[0] <= size <= USUAL_BOUNDS[1]:
        advice = (
            f"The largest entry of X is {size:.1g}, and length scales are sought from {USUAL_BOUNDS[0]:g} to "
            f"{USUAL_BOUNDS[1]:g}: rescale X, for instance with sklearn.preprocessing.StandardScaler."
        )
    warn(
        f"The log evidence of the kernel's parameters {reason}. The best parameters found are used. {advice}",
        NotConverged,
    )


def _take(whole: Group, indices: Any) -> Group:
    objects = take(whole.objects, indices)
    objects = objects.astype(np.float64) if getattr(objects, "dtype", None) == np.float32 else objects
    return Group(objects, whole.y[indices], whole.noise[indices])


def diagonal(clean: Any, group: Group) -> Array:
    """The self-similarities of a kernel without noise; where amplitude is all there is to learn, evaluated once."""
    leaf = leaf_of(clean)
    if leaf is None or leaf.n_dims or is_vectors(group.objects):
        return self_similarities(clean, group.objects)
    if "leaf" not in group.own:
        group.own["leaf"] = leaf.diag(group.objects)
    return np.asarray(amplitude_of(clean) * group.own["leaf"])


def _similarities_to(one: Any, kernel: Any, objects: Any) -> Array:
    """k(x, one) of all objects, wherever they are."""
    if isinstance(objects, RowPieces):
        return objects.map(partial(_similarities_to, one, kernel))
    return np.asarray(kernel(objects, one)[:, 0])


def self_similarities(kernel: Any, objects: Any) -> Array:
    """k(x, x) of all objects, wherever they are."""
    return objects.map(kernel.diag) if isinstance(objects, RowPieces) else np.asarray(kernel.diag(objects))


def settled_later(kernel: Any, whole: Group, route: Route) -> bool:
    """Whether there is nothing to learn on groups of rows: `rescaled` finds amplitude and noise on all of them.

    That holds for objects without vectors whose similarity has no parameters, where it is approximated. The groups
    would be compared within themselves, which is more than the approximation asks for.
    """
    leaf = leaf_of(kernel)
    if isinstance(route, Exact) or leaf is None or leaf.n_dims or is_vectors(whole.objects) or not kernel.n_dims:
        return False
    return np.ndim(noise_of(kernel, whole)) == 0
