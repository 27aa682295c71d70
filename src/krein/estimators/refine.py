"""The exact SVM of the exact kernel, from a factored solution of nearly the same problem.

In: a task, and its dual on the factored matrix. Out: the task's dual with the kernel itself. The factored solution
says which rows can be support vectors; LIBSVM solves the kernel's own problem on these, every other row is checked with
the kernel, those that violate their condition join, until there are none. No n x n matrix is formed: candidates up to
``DENSE_ROWS`` are a dense matrix, beyond LIBSVM evaluates one of its own kernels as it goes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from tqdm import tqdm

from krein.approximation import Approximation
from krein.arrays import Array, Indices, stream
from krein.errors import InputError, warn
from krein.estimators.dense_dual import NotConverged, Task, libsvm, solve_dense, violation
from krein.kernels import RBF, Evaluator, Kernel, Linear, Polynomial, is_vectors, take
from krein.solvers import Dual

__all__ = ["refine_exactly"]

DENSE_ROWS = 11_000  # candidates that are a dense matrix, of a gigabyte then
ROUNDS = 30
SAMPLE = 500  # rows on which the factored decision function is compared with the kernel's
ALLOWED = 1e-3  # violation of a row that is left, in units of a label, at most: LIBSVM's default. 1000 tol below that
NEAR = 0.3  # labels from being a support vector within which a row is a candidate from the start
FEW = 0.02  # share of rows that join up to which the last active set is a start


def refine_exactly(
    a: Approximation, task: Task, dual: Dual, *, tol: float, options: dict[str, Any], verbose: int = 0
) -> Dual:
    """Return the dual of ``task`` under the kernel of ``a`` itself; ``dual`` is that of its factorization."""
    exact = _Exact(Evaluator(a.kernel), take(a.objects, task.rows))
    size = task.size or float(np.mean(exact.diagonal)) * float(task.high.max())
    allowed = min(ALLOWED, 1e3 * tol) * size
    slack, doubt = _screened(a, task, dual, exact)
    chosen = (dual.coefficients != 0.0) | (slack < min(doubt, NEAR * size))
    likely = chosen | (slack < doubt)
    where, few = np.flatnonzero(chosen), False  # those that join come last
    b, mu, steps, left, solved, method = dual.coefficients, dual.intercept, dual.n_iter, 0, True, ""
    product = np.zeros(len(b))
    with tqdm(desc="refine", disable=verbose <= 0) as bar:
        for _ in range(ROUNDS):
            found, product[where] = exact.solve(task, where, tol, options, b if few else None)
            steps, mu, solved, method = steps + found.n_iter, found.intercept, found.converged, found.method
            b = np.zeros(len(b))
            b[where] = found.coefficients
            for others in (likely & ~chosen, ~likely & ~chosen):  # the second only where the first has none to offer
                there = np.flatnonzero(others)
                product[there] = exact.product(b, there)
                slope = product[there] - task.linear[there] + mu
                wrong = violation(task.on(there), b[there], slope) > allowed
                left = int(wrong.sum())
                if left:
                    break
            bar.update()
            bar.set_postfix(candidates=len(where), joining=left)
            if not left:
                break
            few = left < FEW * len(where)
            joining = there[wrong]
            where, chosen[joining] = np.concatenate([where, joining]), True
    point = task.problem(sp.diags(exact.diagonal)).point(b, mu, product)
    if left:
        warn(
            f"refine='exact' was left after {ROUNDS} rounds with {left} of {len(b)} rows that violate their condition; "
            f"the relative duality gap is {point.gap:.2g}. Raise the rank, so that it starts nearer.",
            NotConverged,
        )
    return Dual(b, mu, point.objective, point.gap, steps, left == 0 and solved, f"refined {method}")


class _Exact:
    """The kernel's own matrix of some rows, which grows as candidates join."""

    def __init__(self, evaluator: Evaluator, objects: Any) -> None:
        self.evaluator, self.objects = evaluator, objects
        self.diagonal = evaluator.diag(objects)
        self._K: Array = np.empty((0, 0))

    def matrix(self, where: Indices) -> Array:
        """K[where, where]; only what is new in it is evaluated. What was asked for before has to come first."""
        m, old = len(where), len(self._K)
        K = np.empty((m, m))
        K[:old, :old] = self._K
        for part, block in self.evaluator.chunks(take(self.objects, where[old:]), take(self.objects, where)):
            K[old:][part] = block
        K[:old, old:] = K[old:, :old].T
        self._K = K
        return K

    def solve(
        self, task: Task, where: Indices, tol: float, options: dict[str, Any], last: Array | None
    ) -> tuple[Dual, Array]:
        """The dual on the rows ``where``, and its product with their matrix."""
        own = task.on(where)
        if len(where) <= DENSE_ROWS:
            K = self.matrix(where)
            start = None if last is None else Dual(last[where], 0.0, 0.0, 0.0, 0, False, "")
            found = solve_dense(K, own, tol=tol, start=start, rough=True, options=options)
            return replace(found, converged=True), K @ found.coefficients
        some, name = take(self.objects, where), _libsvm_name(self.evaluator.kernel, self.objects)
        if name is None:
            raise InputError(
                f"refine='exact' has {len(where)} rows that may be support vectors, too many for a dense matrix (limit "
                f"{DENSE_ROWS}), and LIBSVM does not know {self.evaluator.kernel!r} itself. Leave refine=None, or "
                "raise the rank, so that fewer rows are in doubt."
            )
        b, intercept, steps, finished = libsvm(some, own, min(ALLOWED, 1e3 * tol), 10**9, options, name)
        whole = np.zeros(len(task.rows))
        whole[where] = b
        return Dual(b, intercept, np.nan, np.nan, steps, finished, "libsvm"), self.product(whole, where)

    def product(self, b: Array, some: Indices) -> Array:
        """(K b)[some], in chunks."""
        used = np.flatnonzero(b)
        out = np.empty(len(some))
        for part, block in self.evaluator.chunks(take(self.objects, some), take(self.objects, used)):
            out[part] = block @ b[used]
        return out


def _libsvm_name(kernel: Kernel, objects: Any) -> dict[str, Any] | None:
    """How LIBSVM calls this kernel."""
    if not is_vectors(objects):
        return None
    if type(kernel) is RBF:
        return {"kernel": "rbf", "gamma": kernel.gamma}
    if type(kernel) is Linear:
        return {"kernel": "linear"}
    if type(kernel) is Polynomial:
        return {"kernel": "poly", "gamma": kernel.gamma, "degree": kernel.degree, "coef0": kernel.coef0}
    return None


def _screened(a: Approximation, task: Task, dual: Dual, exact: _Exact) -> tuple[Array, float]:
    """(how far each row is from being a support vector by the factored solution, how far off that may be)."""
    full = np.zeros(a.factorization.shape[0])
    full[task.rows] = dual.coefficients
    values = (a.factorization @ full)[task.rows]
    some = stream(a.seed, 7).choice(len(values), min(SAMPLE, len(values)), replace=False)
    doubt = 2.0 * float(np.median(np.abs(exact.product(dual.coefficients, some) - values[some])))
    return _slack(task, values - task.linear + dual.intercept), doubt


def _slack(task: Task, slope: Array) -> Array:
    """How far each row is from having a coefficient other than 0; ``slope`` is K b - linear + intercept."""
    rise = np.where(task.high > 0.0, slope + task.epsilon, np.inf)
    fall = np.where(task.low < 0.0, task.epsilon - slope, np.inf)
    return np.asarray(np.minimum(rise, fall))
