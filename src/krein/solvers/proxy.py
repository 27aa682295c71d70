"""The support vector machine with a proxy matrix (Luss and d'Aspremont 2009): kernel and dual are learned together.

In: a factorization U M Uᵀ of an indefinite matrix and a dual. Out: its solution, and the weights that predict. The SVM
is trained for the worst psd matrix near K:

    max over b, min over psd S:  linearᵀb - 1/2 pᵀS p + rho |S - M|²,  p = Uᵀ b.

The inner minimum is S = (M + p pᵀ / (4 rho))₊, the positive part. What is left is concave in b, and twice
differentiable where no eigenvalue is zero. Each Newton step is a dual on the same bases with the Hessian as its core,
and takes an eigendecomposition of size r. For a matrix taken whole U is square, and this is the published problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from krein.arrays import Array
from krein.factorization import Factorization
from krein.factorization.core import eigh, is_dense, to_dense
from krein.solvers.dense_dual import Task
from krein.solvers.dual import Dual, solve_dual
from krein.solvers.problem import Point, Problem, central_multiplier

__all__ = ["solve_proxy"]

# The line search halves a step at most this often.
HALVINGS = 30
# So many steps without a smaller gap are the end: rounding leaves no more of it.
STALLED = 20
# A step is too long if the objective falls at its end by more than this share of its slope at the start.
STEEP_FALL = 0.1
# Each Newton step is solved to this share of the gap that was reached before it.
STEP_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class _Proxy:
    """The positive part of M + s I + p pᵀ / (4 rho), and the derivative of its product with p."""

    p: Array  # (r,) Uᵀ b
    values: Array  # (r,) before the positive part is taken
    vectors: Array  # (r, r)
    rho: float

    @property
    def product(self) -> Array:
        """S p, (r,)."""
        return np.asarray(self.vectors @ (np.maximum(self.values, 0.0) * (self.vectors.T @ self.p)))

    @property
    def kept(self) -> Array:
        """The projection of p to the eigenvectors that the positive part keeps, (r,)."""
        return np.asarray(self.vectors @ ((self.values > 0.0) * (self.vectors.T @ self.p)))

    @property
    def matrix(self) -> Array:
        """S, (r, r)."""
        return np.asarray((self.vectors * np.maximum(self.values, 0.0)) @ self.vectors.T)

    @property
    def derivative(self) -> Array:
        """d (S p) / d p, (r, r) and psd: first divided differences of the positive part, as Löwner gives them."""
        above, c = np.maximum(self.values, 0.0), self.vectors.T @ self.p
        distance = self.values[:, None] - self.values
        same = distance == 0.0
        divided = np.where(same, self.values > 0.0, (above[:, None] - above) / np.where(same, 1.0, distance))
        inner = c[:, None] * divided * c + np.diag(divided @ c**2)
        return np.asarray(self.vectors @ (np.diag(above) + inner / (4.0 * self.rho)) @ self.vectors.T)


def solve_proxy(
    f: Factorization, task: Task, rho: float, *, tol: float = 1e-6, max_iter: int = 100, verbose: int = 0
) -> tuple[Dual, Array]:
    """Solve the dual with its proxy matrix; return the solution, and M P p with which new objects are predicted.

    P projects to the eigenvectors that the positive part keeps. A new object has no coefficient, so its similarities
    are those of K projected like the proxy, k(x, X) P. The duality gap is that of an SVM on the proxy matrix: where it
    is 0, b is the solution for the matrix and the matrix the worst one for b.
    """
    M = np.asarray(f.core) if is_dense(f.core) else to_dense(f.core)
    shift, n = max(f.shift, 0.0), f.shape[0]
    base = M + f.shift * np.eye(len(M))

    def proxy(b: Array) -> _Proxy:
        whole = np.zeros(n)
        whole[task.rows] = b
        p = f.project(whole)
        values, vectors = eigh(base + np.outer(p, p) / (4.0 * rho))
        return _Proxy(p, values, vectors, rho)

    def product(at: _Proxy, b: Array) -> Array:
        """K* b on the rows of the task; off the span of U the matrix is the shift."""
        return np.asarray(f.lift(at.product - shift * at.p)[task.rows] + shift * b)

    b: Array = np.zeros(len(task.rows))
    at, multiplier, path = proxy(b), 0.0, []
    best: tuple[Point, _Proxy, int] | None = None
    for step in range(max_iter + 1):
        now = product(at, b)
        matrix = f.with_core(at.matrix - shift * np.eye(len(M)), shift)
        problem = Problem(matrix, task.linear, task.low, task.high, task.total, task.epsilon)
        # the middle of all multipliers serves where coefficients are at their bounds, that of the last step elsewhere
        point = min(
            (problem.point(b, m, now) for m in (central_multiplier(task, b, now), multiplier)), key=lambda p: p.gap
        )
        path.append((step, point.gap))
        if best is None or point.gap < best[0].gap:
            best = point, at, step
        if point.gap <= tol or step == max_iter or step - best[2] >= STALLED:
            break
        hessian = at.derivative
        slope = hessian @ at.p - at.product  # the linear term of the model: linear - gradient + H b
        core = f.with_core(hessian - shift * np.eye(len(M)), shift)
        model = solve_dual(
            core, task.linear + f.lift(slope)[task.rows], task.low, task.high, total=task.total, rows=task.rows,
            tol=max(1e-9, min(1e-3, STEP_SHARE * point.gap)), verbose=verbose,
        )  # fmt: skip
        multiplier = model.intercept
        direction, size = model.coefficients - b, 1.0
        rise = float((task.linear - now) @ direction)
        for _ in range(HALVINGS):  # the objective is concave: a step is too long if it falls steeply at its end
            there = model.coefficients if size == 1.0 else b + size * direction
            next_at = proxy(there)
            if float((task.linear - product(next_at, there)) @ direction) >= -STEEP_FALL * rise:
                break
            size *= 0.5
        b, at = there, next_at
    assert best is not None  # the first point
    point, at, step = best
    found = Dual(point.b, point.multiplier, point.objective, point.gap, max(1, step), point.gap <= tol, "proxy",
                 tuple(path))  # fmt: skip
    return found, M @ at.kept
