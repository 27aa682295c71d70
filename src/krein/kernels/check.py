"""The public check of a kernel: does it have the properties it declares, on this data?

In: a kernel (or callable) and objects. Out: a `KernelCheck`, which lists what failed, what was measured and what could
not be checked. krein's own kernels pass the same check in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from krein.arrays import Array, seed_from, stream
from krein.errors import InputError, KernelError
from krein.kernels.collections import count_objects, is_sparse, is_vectors, take
from krein.kernels.kernel import Kernel, Traits, note
from krein.kernels.mixed_rows import as_mixed_rows
from krein.kernels.similarities import as_kernel
from krein.kernels.vectors import as_vectors, unit_rows

__all__ = ["KernelCheck", "check_kernel"]

# Two computations of one similarity may differ by AGREEMENT times the largest similarity.
AGREEMENT = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-6}
# Eigenvalues below RANK_NOISE times the largest are rounding.
RANK_NOISE = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-7}
# A sparse sample is made dense if it has at most DENSE_ENTRIES entries.
DENSE_ENTRIES = 10**7
# A kernel of compact support is 0 for vectors that are FAR_DISTANCE times the size of the data apart.
FAR_DISTANCE = 1e6


@dataclass(frozen=True, repr=False)
class KernelCheck:
    """The result of `check_kernel`; numbers that could not be measured are NaN.

    Attributes
    ----------
    ok : bool
        Whether every check that could be made passed.
    kernel : str
        The kernel that was checked.
    n_objects : int
        Size of the sample.
    failures, skipped : tuple of str
        What failed, and what could not be checked.
    asymmetry : float
        Largest |k(x, y) - k(y, x)|.
    diagonal_difference : float
        Largest difference of diag(A) and the diagonal of k(A, A).
    smallest_eigenvalue, largest_eigenvalue : float
        Ends of the spectrum of k(A, A).
    low, high : float
        Smallest and largest value.
    """

    kernel: str
    n_objects: int
    failures: tuple[str, ...]
    skipped: tuple[str, ...]
    asymmetry: float = np.nan
    diagonal_difference: float = np.nan
    smallest_eigenvalue: float = np.nan
    largest_eigenvalue: float = np.nan
    low: float = np.nan
    high: float = np.nan

    @property
    def ok(self) -> bool:
        """Whether every check that could be made passed."""
        return not self.failures

    def raise_if_failed(self) -> None:
        """Raise KernelError with all failures, if there are any."""
        if self.failures:
            raise KernelError(
                f"{self.kernel} does not keep its promises on {self.n_objects} objects: " + " ".join(self.failures)
            )

    def __str__(self) -> str:
        lines = [
            f"{self.kernel} on {self.n_objects} objects: {'ok' if self.ok else f'{len(self.failures)} failed'}",
            f"  values {self.low:.3g} to {self.high:.3g}, eigenvalues {self.smallest_eigenvalue:.3g} to "
            f"{self.largest_eigenvalue:.3g}, "
            f"asymmetry {self.asymmetry:.2g}, diagonal off by {self.diagonal_difference:.2g}",
            *(f"  failed: {failure}" for failure in self.failures),
            *(f"  not checked: {reason}" for reason in self.skipped),
        ]
        return "\n".join(lines)

    __repr__ = __str__


def check_kernel(kernel: Any, X: Any, *, n_samples: int = 200, random_state: Any = None) -> KernelCheck:
    """Check a kernel on a sample of the data: shape, finite values, symmetry, diagonal, and the declared traits.

    Parameters
    ----------
    kernel : Kernel or callable
        The kernel. Whatever it does wrong is reported and not raised.
    X : array, sparse matrix, data frame, list or tuple
        Objects to compare. Their rows are scaled to length 1 for a kernel that is meant for the unit sphere.
    n_samples : int, default=200
        Number of objects in the sample. The check evaluates about 10 n_samples² similarities.
    random_state : int, RandomState, Generator or None, default=None
        Draws the sample.

    Returns
    -------
    KernelCheck
        ``ok`` is True if nothing failed. ``raise_if_failed()`` raises what did.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.random.default_rng(0).normal(size=(50, 3))
    >>> krein.check_kernel(krein.RBF(), X).ok
    True
    """
    kernel = as_kernel(kernel)
    if kernel.compares == "tables":
        X = as_mixed_rows(X)
    elif hasattr(X, "columns"):
        X = np.asarray(X)
    n = count_objects(X)
    if n < 2 or n_samples < 2:
        raise InputError(
            f"check_kernel needs at least 2 objects and n_samples >= 2; got {n} objects and n_samples={n_samples}."
        )
    if is_vectors(X):
        X = as_vectors(X, kernel)
        if not np.all(np.isfinite(X.data if is_sparse(X) else X)):
            raise InputError(
                "check_kernel needs finite data; X holds NaN or infinite values. Impute or drop them first."
            )
    kernel = kernel.bind(X)
    rng = stream(seed_from(random_state))
    sample = take(X, np.sort(rng.choice(n, size=min(n, n_samples), replace=False)))
    if kernel.traits.sphere and is_vectors(X):
        sample = unit_rows(sample)[0]
    return _Checker(kernel, sample, rng).run()


class _Checker:
    """One run of the check: collects failures and measurements, in order."""

    def __init__(self, kernel: Kernel, sample: Any, rng: np.random.Generator) -> None:
        self.kernel, self.sample, self.rng = kernel, sample, rng
        self.n = count_objects(sample)
        self.failures: list[str] = []
        self.skipped: list[str] = []
        self.measured: dict[str, float] = {}

    def run(self) -> KernelCheck:
        K = self._values("k(A, A)", lambda: self._block(self.sample, self.sample), (self.n, self.n))
        if K is None:
            self.skipped.append("everything else, since k(A, A) is unusable")
        else:
            self.measured.update(low=float(K.min()), high=float(K.max()))
            self.size = float(np.max(np.abs(K)))
            self.near = AGREEMENT[K.dtype] * self.size
            self._symmetry(K)
            self._diagonal(K)
            self._definiteness(K)
            self._range(K)
            self._invariances(K)
        return KernelCheck(repr(self.kernel), self.n, tuple(self.failures), tuple(self.skipped), **self.measured)

    def _block(self, A: Any, B: Any) -> Any:
        note(self.kernel.block_entries(count_objects(A), count_objects(B), same=B is A))
        return self.kernel(A, B)

    def _own(self) -> Any:
        note(self.kernel.diag_entries(self.n))
        return self.kernel.diag(self.sample)

    def _values(self, what: str, evaluate: Callable[[], Any], shape: tuple[int, ...]) -> Array | None:
        """Return a float array of the given shape, or None after recording why not."""
        try:
            values = np.asarray(evaluate())
        except Exception as error:  # a user's kernel may raise anything, and the check reports it
            self.failures.append(f"{what} raised {type(error).__name__}: {error}.")
            return None
        if values.shape != shape:
            self.failures.append(f"{what} must have shape {shape}; got {values.shape}.")
        elif values.dtype.kind not in "biuf":
            self.failures.append(f"{what} must hold real numbers; got {values.dtype}.")
        elif not np.all(np.isfinite(values)):
            self.failures.append(
                f"{what} must be finite; {int(np.sum(~np.isfinite(values)))} of {values.size} values are not."
            )
        else:
            return values if values.dtype == np.float32 else values.astype(np.float64)
        return None

    def _agree(self, what: str, values: Array | None, expected: Array) -> float:
        """Record a failure unless ``values`` (None: recorded already) equal ``expected``; return the largest gap."""
        if values is None:
            return float("nan")
        gap = float(np.max(np.abs(values - expected), initial=0.0))
        if gap > self.near:
            self.failures.append(f"{what}; the largest difference is {gap:.3g} (largest value {self.size:.3g}).")
        return gap

    def _symmetry(self, K: Array) -> None:
        half = self.n // 2
        first, second = np.arange(half), np.arange(half, self.n)
        A, B = take(self.sample, first), take(self.sample, second)
        AB = self._values("k(A, B)", lambda: self._block(A, B), (half, self.n - half))
        BA = self._values("k(B, A)", lambda: self._block(B, A), (self.n - half, half))
        gap = float(np.max(np.abs(K - K.T)))
        if AB is not None and BA is not None:
            gap = max(gap, float(np.max(np.abs(AB - BA.T))))
            self._agree("k(x, y) must not depend on the other objects in the call", AB, K[:half, half:])
        self.measured["asymmetry"] = gap
        if gap > self.near:
            self.failures.append(
                f"k(A, B) must be the transpose of k(B, A); the largest difference is {gap:.3g} (largest value "
                f"{self.size:.3g})."
            )

    def _diagonal(self, K: Array) -> None:
        diagonal = self._values("diag(A)", self._own, (self.n,))
        gap = self._agree("diag(A) must be the diagonal of k(A, A)", diagonal, np.diagonal(K))
        self.measured["diagonal_difference"] = gap
        if self._traits.constant_diagonal and np.ptp(np.diagonal(K)) > self.near:
            ends = np.diagonal(K).min(), np.diagonal(K).max()
            self.failures.append(
                f"constant_diagonal is declared, but k(x, x) runs from {ends[0]:.3g} to {ends[1]:.3g}."
            )

    def _definiteness(self, K: Array) -> None:
        if self.size == 0.0:
            eigenvalues: Array = np.zeros(1)
        else:  # divided by the largest value first: squares of 1e200 would overflow inside
            wide = K.astype(np.float64) / self.size
            eigenvalues = self.size * np.linalg.eigvalsh(0.5 * (wide + wide.T))
        smallest, largest = float(eigenvalues[0]), float(np.max(np.abs(eigenvalues)))
        self.measured.update(smallest_eigenvalue=smallest, largest_eigenvalue=float(eigenvalues[-1]))
        noise = RANK_NOISE[K.dtype] * largest
        if self._traits.psd and smallest < -noise:
            self.failures.append(
                f"psd is declared, but the smallest eigenvalue is {smallest:.3g} (largest {eigenvalues[-1]:.3g})."
            )
        if self._traits.psd is False and smallest >= -noise:
            self.skipped.append("psd=False: this sample shows no negative eigenvalue, others may")

    def _range(self, K: Array) -> None:
        low, high = self._traits.low, self._traits.high
        if low is not None and K.min() < low - self.near:
            self.failures.append(f"low={low:.3g} is declared, but {K.min():.3g} was seen.")
        if high is not None and K.max() > high + self.near:
            self.failures.append(f"high={high:.3g} is declared, but {K.max():.3g} was seen.")

    def _invariances(self, K: Array) -> None:
        traits = self._traits
        declared = [name for name in ("stationary", "unitary_invariant", "compact") if getattr(traits, name)]
        if traits.differentiable:
            self.skipped.append("differentiable: values alone do not show it")
        if not is_vectors(self.sample):
            self.skipped.extend(f"{name}: the objects are no vectors" for name in declared)
            return
        if is_sparse(self.sample) and math.prod(self.sample.shape) > DENSE_ENTRIES:
            self.skipped.extend(f"{name}: the sample is too large to be made dense" for name in declared)
            return
        dense = self.sample.toarray() if is_sparse(self.sample) else self.sample
        size = float(np.max(np.abs(dense), initial=0.0)) or 1.0
        if traits.stationary:
            shift = size * self.rng.uniform(-1, 1, size=dense.shape[1]).astype(dense.dtype)
            self._same("stationary is declared, but k changes when all vectors are shifted", dense + shift, K)
        if traits.unitary_invariant:
            self._same(
                "unitary_invariant is declared, but k changes when all vectors are rotated", self._rotated(dense), K
            )
        if traits.compact and traits.stationary:
            away = dense + dense.dtype.type(FAR_DISTANCE * max(size, 1.0))
            far = self._values("k(A, B) far apart", lambda: self._block(dense, away), K.shape)
            if far is not None and np.any(far):
                self.failures.append(
                    f"compact is declared, but k(x, y) = {np.max(np.abs(far)):.3g} for vectors "
                    f"{FAR_DISTANCE:.0e} apart."
                )
        elif traits.compact:
            self.skipped.append("compact: only checked for stationary kernels")
        if self.kernel.accepts_sparse:
            other = sparse.csr_matrix(dense)
            self._same("accepts_sparse is declared, but sparse and dense rows give different values", other, K)

    def _same(self, what: str, moved: Any, K: Array) -> None:
        self._agree(what, self._values("k(A, A) of moved vectors", lambda: self._block(moved, moved), K.shape), K)

    def _rotated(self, dense: Array) -> Array:
        for _ in range(3):  # three reflections in random planes: orthogonal, and O(n d) where a matrix would be d x d
            direction = self.rng.standard_normal(dense.shape[1])
            normal = (direction / np.linalg.norm(direction)).astype(dense.dtype)
            dense = dense - 2 * np.outer(dense @ normal, normal)
        return dense

    @property
    def _traits(self) -> Traits:
        return self.kernel.traits
