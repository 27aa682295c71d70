"""Kernels of infinitely wide networks: extreme learning machine (paper, Eq. 3), arc-cosine, neural tangent.

Each is a function of an angle, and arcsin and arccos magnify rounding near 1; so float32 input is computed in float64
and only the result is float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array
from krein.errors import InputError, is_number, whole
from krein.kernels.kernel import Kernel, Traits
from krein.kernels.vectors import Cosines, InnerProducts, Rows, VectorKernel, as_vectors, squared_norms, unit_rows

__all__ = ["ELM", "NTK", "ArcCosine"]


@dataclass(frozen=True)
class ELM(VectorKernel):
    """Extreme learning kernel: a network with infinitely many hidden units and random input weights.

    k(x, y) = 2/pi arcsin((1 + <x, y>) / sqrt((s + 1 + |x|²) (s + 1 + |y|²))) with s = 1 / (2 sigma_w²). This is
    E[erf(w·(1, x)) erf(w·(1, y))] over normal weights w of standard deviation sigma_w (Williams; Frénay and Verleysen),
    so the kernel is psd on any data. The paper uses it for rows of length 1.

    Parameters
    ----------
    sigma_w : float, default=1e5
        Standard deviation of the weights. Large values differ little from each other.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> krein.ELM()(X).round(3)
    array([[1.   , 0.205],
           [0.205, 1.   ]])
    """

    sigma_w: float = 1e5

    positive: ClassVar[tuple[str, ...]] = ("sigma_w",)
    compared: ClassVar[type[Rows]] = InnerProducts

    @property
    def traits(self) -> Traits:
        # off the sphere, where the kernel is as good, the diagonal is not constant: not promised
        return Traits(
            stationary=False,
            psd=True,
            sphere=True,
            low=-1.0,
            high=1.0,
            unitary_invariant=True,
            differentiable=True,
            preprocessing="z-score-sphere",
        )

    def values(self, rows: InnerProducts, a: Any) -> Array:
        dtype = a.dtype
        rows, a = rows.in_float64(a)
        sines = rows(a)
        sines += 1.0
        sines /= self._length(squared_norms(a))[:, None]  # one after the other: their product could overflow
        sines /= self._length(rows.squared_norms)
        np.clip(sines, -1.0, 1.0, out=sines)
        return (2 / math.pi * np.arcsin(sines, out=sines)).astype(dtype, copy=False)

    def diag(self, A: Any) -> Array:
        a, dtype = _double(A, self)
        squares = squared_norms(a)
        sines: Array = (1.0 + squares) / self._length(squares) ** 2
        np.clip(sines, -1.0, 1.0, out=sines)
        return np.asarray(2 / math.pi * np.arcsin(sines), dtype=dtype)

    def _length(self, squares: Array) -> Array:
        return np.asarray(np.sqrt(0.5 / self.sigma_w / self.sigma_w + 1.0 + squares))


@dataclass(frozen=True)
class ArcCosine(VectorKernel):
    """Arc-cosine kernel (Cho and Saul), k(x, y) = |x|^n |y|^n J_n(angle between x and y) / pi for the degree n.

    It is 2 E[h(w·x) h(w·y)] over standard normal weights w, where h(t) = t^n for t > 0 and 0 for t < 0 (degree 0: the
    step function, 1/2 at 0). It is psd on any data.

    Parameters
    ----------
    degree : {0, 1, 2}, default=1
        The activation: step, ReLU or squared ReLU.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> krein.ArcCosine(degree=1)(X).round(3)
    array([[1.   , 0.637],
           [0.637, 4.   ]])
    """

    degree: int = 1

    compared: ClassVar[type[Rows]] = Cosines

    def __post_init__(self) -> None:
        if not is_number(self.degree) or self.degree not in (0, 1, 2):
            raise InputError(f"ArcCosine needs degree to be 0, 1 or 2; got {self.degree!r}.")
        object.__setattr__(self, "degree", int(self.degree))

    @property
    def traits(self) -> Traits:
        return Traits(
            stationary=False,
            psd=True,
            low=0.0,
            high=1.0 if self.degree == 0 else None,
            unitary_invariant=True,
            differentiable=self.degree == 2,  # degree 1 bends at the origin, degree 0 where x = y
        )

    def values(self, rows: Cosines, a: Any) -> Array:
        return _homogeneous(rows, a, self._of_cosines, self.degree)

    def _of_cosines(self, cosines: Array) -> Array:
        angle = np.arccos(cosines)
        if self.degree == 0:
            values = math.pi - angle
        elif self.degree == 1:
            values = np.sin(angle) + (math.pi - angle) * cosines
        else:
            values = 3 * np.sin(angle) * cosines + (math.pi - angle) * (1 + 2 * cosines**2)
        return np.asarray(values / math.pi)

    def diag(self, A: Any) -> Array:
        a, dtype = _double(A, self)
        length = unit_rows(a)[1]
        if self.degree == 0:
            return np.where(length > 0, 1.0, 0.5).astype(dtype, copy=False)
        with np.errstate(over="ignore"):
            return ((1.0 if self.degree == 1 else 3.0) * length ** (2 * self.degree)).astype(dtype, copy=False)


@dataclass(frozen=True)
class NTK(VectorKernel):
    """Neural tangent kernel of a ReLU network without biases; psd on any data.

    Parameters
    ----------
    depth : int, default=1
        Number of hidden layers.

    Notes
    -----
    With u the cosine of the angle between x and y, start from Theta = rho = u. Each layer sets
    Theta <- Theta kappa0(rho) + kappa1(rho) and rho <- kappa1(rho), where kappa0 and kappa1 are the arc-cosine kernels
    of degree 0 and 1 as functions of a cosine. The kernel is |x| |y| Theta.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> krein.NTK(depth=1)(X).round(3)
    array([[2.   , 0.637],
           [0.637, 8.   ]])
    """

    depth: int = 1

    compared: ClassVar[type[Rows]] = Cosines

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", whole(self, "depth", self.depth))

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=True, unitary_invariant=True)

    def values(self, rows: Cosines, a: Any) -> Array:
        return _homogeneous(rows, a, self._of_cosines, 1)

    def _of_cosines(self, cosines: Array) -> Array:
        rho, theta = cosines, cosines
        for _ in range(self.depth):
            beyond = math.pi - np.arccos(rho)
            after = (rho * beyond + np.sqrt(1 - rho**2)) / math.pi  # kappa1
            theta = theta * (beyond / math.pi) + after
            rho = np.clip(after, -1.0, 1.0)
        return theta

    def diag(self, A: Any) -> Array:
        a, dtype = _double(A, self)
        with np.errstate(over="ignore"):
            return ((self.depth + 1) * unit_rows(a)[1] ** 2).astype(dtype, copy=False)


def _homogeneous(rows: Cosines, a: Any, of_cosines: Callable[[Array], Array], degree: int) -> Array:
    """|a_i|^degree |b_j|^degree f(cosine of their angle), computed in float64 and returned in the type of a."""
    dtype = a.dtype
    rows, a = rows.in_float64(a)
    cosines, lengths = rows(a)
    values = of_cosines(cosines)
    with np.errstate(over="ignore", invalid="ignore"):
        values *= lengths[:, None] ** degree
        values *= rows.lengths**degree
        return values.astype(dtype, copy=False)


def _double(A: Any, asker: Kernel) -> tuple[Any, np.dtype[Any]]:
    a = as_vectors(A, asker)
    return a.astype(np.float64, copy=False), a.dtype
