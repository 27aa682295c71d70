"""Penalised logistic regression on a psd factorization, by Newton's method with conjugate gradients.

In: K = U M Uᵀ, class labels and one weight per row. Out: r numbers per function and an intercept, with the norm of the
gradient. It minimises 1/2 sum_c |f_c|² + sum_i w_i loss(y_i, g_i) over functions f_c = k(., X) a_c, with g = f + b and
|f_c|² = a_cᵀ K a_c. Two classes have one function and the logistic loss, more classes one function each and softmax.

With v = Uᵀ a the values are g = U M v + b, and at the optimum v = Uᵀ R for R = w (Y - P), what the probabilities P miss
of the labels Y. The gradient in the kernel's space is U M (v - Uᵀ R). What is minimised is strongly convex there with
constant 1, so the norm of the gradient bounds the distance from the optimum, and norm sqrt(k(x, x)) the error of f(x).

A Newton step solves (I + Uᵀ W U M) dv = Uᵀ R - v with W the curvature of the loss, which couples the classes of a row.
Products with it take one `lift` and one `project`. The preconditioner is the same with one weight per row (Woodbury);
for two classes that is the system itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax

from krein.arrays import EPS, Array, Indices
from krein.factorization import Factorization
from krein.progress import progress_bar
from krein.solvers.woodbury import Part, factorize, parts_of

__all__ = ["Logistic", "solve_logistic"]

# Conjugate gradients end where the residual is RESIDUAL_SHARE of the gradient, or after STEP_LIMIT steps.
RESIDUAL_SHARE = 0.03
STEP_LIMIT = 500
# A preconditioner is used until conjugate gradients take more than PATIENCE steps, or one for RANK_SHARE directions: a
# new one costs as much as a quarter of a step for each direction.
PATIENCE = 5
RANK_SHARE = 32
# A step is halved while the slope at its end is positive and above OVERSHOT_SLOPE times that at its beginning.
OVERSHOT_SLOPE = 0.5
SHORTEST_STEP = 1e-12


@dataclass(frozen=True, eq=False)
class Logistic:
    """The functions that were found, and how near they are to the optimum."""

    inner: Array  # (r, q): M v, so that f(x) = u(x) inner
    dual: Array  # (n, q): w (Y - P), so that f = k(., X) dual
    intercept: Array  # (q,)
    objective: float
    gradient_norm: float  # in the kernel's space
    imbalance: float  # what the probabilities of a class are off its share, 0 at the optimum with an intercept
    n_iter: int
    converged: bool


class _Direction(NamedTuple):
    """An element of the space of unknowns, or of residuals: (r, q) numbers and (q,) intercepts."""

    v: Array
    b: Array

    def plus(self, t: float, other: _Direction) -> _Direction:
        return _Direction(self.v + t * other.v, self.b + t * other.b)


def solve_logistic(
    f: Factorization,
    labels: Indices,
    weights: Array,
    *,
    intercept: bool = True,
    tol: float = 1e-6,
    max_iter: int = 100,
    verbose: int = 0,
) -> Logistic:
    """Minimise half the squared norm plus the weighted logistic loss; labels are 0, 1, ..., and each one occurs.

    The shift of f is not used. It stops where the norm of the gradient is at most ``tol``, or as small as rounding
    allows, and with an intercept the probabilities of each class sum to its weight, up to ``tol`` of all weights.
    """
    n_classes = int(labels.max()) + 1
    loss = _Loss((labels[:, None] == np.arange(n_classes))[:, n_classes == 2 :].astype(float), weights)
    parts, q = parts_of(f), loss.targets.shape[1]
    rounding = EPS * math.sqrt(max(f.ends().largest, 0.0)) * float(np.linalg.norm(weights))
    at = _Direction(np.zeros((f.rank, q)), np.zeros(q))
    image, values = np.zeros((f.rank, q)), np.zeros((len(labels), q))
    precondition, n_iter, steps, total = None, 0, 0, float(weights.sum())
    with progress_bar(total=max_iter, what="logistic", verbose=verbose) as bar:
        while True:
            P = loss.probabilities(values)
            R = loss.missed(P)
            rest, short = at.v - f.project(R), R.sum(0) * intercept
            norm = math.sqrt(max(0.0, float((rest * (f.core @ rest)).sum())))
            imbalance = float(np.abs(short).max()) / total
            converged = norm <= max(tol, rounding) and imbalance <= max(tol, EPS)
            if converged or n_iter >= max_iter:
                break
            if precondition is None or steps > max(PATIENCE, f.rank // RANK_SHARE):
                precondition = _Preconditioner(f, parts, loss.row_curvature(P), intercept)

            def hessian(x: _Direction, P: Array = P) -> _Direction:
                bent = loss.curvature(P, f.lift(f.core @ x.v) + x.b)
                return _Direction(x.v + f.project(bent), bent.sum(0) * intercept)

            step, steps = _conjugate_gradients(f, hessian, precondition, _Direction(-rest, short))
            along_image = f.core @ step.v
            along = f.lift(along_image) + step.b
            t = _length(loss, values, along, float((at.v * along_image).sum()), float((step.v * along_image).sum()))
            at, image, values = at.plus(t, step), image + t * along_image, values + t * along
            n_iter += 1
            bar.update()
            bar.set_postfix(gradient=f"{norm:.2g}", refresh=False)
    b = at.b - at.b.mean() if q > 1 else at.b  # softmax does not see a constant
    objective = 0.5 * float((at.v * image).sum()) + loss(values)
    return Logistic(image, R, b, objective, norm, imbalance, n_iter, converged)


@dataclass(frozen=True, eq=False)
class _Loss:
    """The weighted loss of values (n, q): logistic if q = 1, else softmax."""

    targets: Array  # (n, q) of zeros and ones
    weights: Array  # (n,)

    def __call__(self, values: Array) -> float:
        if values.shape[1] == 1:
            signs = 2.0 * self.targets[:, 0] - 1.0
            return -float(self.weights @ log_expit(signs * values[:, 0]))
        return -float(self.weights @ (self.targets * log_softmax(values, axis=1)).sum(1))

    def probabilities(self, values: Array) -> Array:
        return np.asarray(expit(values) if values.shape[1] == 1 else softmax(values, axis=1))

    def missed(self, P: Array) -> Array:
        """Minus the gradient."""
        return np.asarray(self.weights[:, None] * (self.targets - P))

    def curvature(self, P: Array, x: Array) -> Array:
        """The second derivative times x."""
        bent = P * x
        return np.asarray(self.weights[:, None] * (bent - P * (bent if P.shape[1] == 1 else bent.sum(1)[:, None])))

    def row_curvature(self, P: Array) -> Array:
        """One number per row for all classes: the mean of their own second derivatives."""
        return np.asarray(self.weights * (P * (1.0 - P)).mean(1))


class _Preconditioner:
    """The inverse of the Newton system with one curvature per row, without coupling of the classes."""

    def __init__(self, f: Factorization, parts: tuple[Part, ...], weights: Array, intercept: bool) -> None:
        self.f, self.grams = f, f.gram(weights)
        self.system = factorize(parts, f.rank, self.grams)
        q, count = f.project(weights)[:, None], float(weights.sum())
        self.image = f.core @ q  # (r, 1)
        self.turned = self._solved(q)
        left = count - float((self.image * self.turned).sum())
        self.curvature = max(left, EPS * count) if intercept and count > 0.0 else math.inf

    def __call__(self, x: _Direction) -> _Direction:
        inside = self._solved(x.v)
        b = (x.b - (self.image * inside).sum(0)) / self.curvature
        return _Direction(inside - self.turned * b, b)

    def _solved(self, x: Array) -> Array:
        """(I + G M)⁻¹ x = x - G X x with X = (I + M G)⁻¹ M."""
        if self.system is None:
            return x
        y, out = self.system.solve(x), x.copy()
        for G, (_, columns) in zip(self.grams, self.f.spans, strict=True):
            out[columns] -= G @ y[columns]
        return out


def _length(loss: _Loss, values: Array, along: Array, first: float, second: float) -> float:
    """1, halved until the slope there is small; half the squared norm changes by t first + t² second / 2."""

    def slope(t: float) -> float:
        missed = loss.missed(loss.probabilities(values + t * along))
        return first + t * second - float((missed * along).sum())

    t, limit = 1.0, OVERSHOT_SLOPE * abs(slope(0.0))
    while slope(t) > limit and t > SHORTEST_STEP:
        t *= 0.5
    return t


def _conjugate_gradients(
    f: Factorization, hessian: Callable[[_Direction], _Direction], precondition: _Preconditioner, right: _Direction
) -> tuple[_Direction, int]:
    """Solve the Newton system, which is symmetric in the inner product xᵀ M y; return the solution and the steps."""

    def inner(x: _Direction, y: _Direction) -> float:
        return float((x.v * (f.core @ y.v)).sum() + x.b @ y.b)

    found = _Direction(np.zeros_like(right.v), np.zeros_like(right.b))
    rest, turned = right, precondition(right)
    along, size = turned, inner(right, turned)
    enough = RESIDUAL_SHARE**2 * size
    steps = 0
    while size > enough and steps < STEP_LIMIT:
        bent = hessian(along)
        curved = inner(along, bent)
        if not curved > 0.0:  # rounding
            break
        t = size / curved
        found, rest = found.plus(t, along), rest.plus(-t, bent)
        turned = precondition(rest)
        before, size = size, inner(rest, turned)
        along = turned.plus(size / before, along)
        steps += 1
    return found, steps
