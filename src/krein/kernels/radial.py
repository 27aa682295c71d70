"""Kernels of distances: Laplacian and TL1 of the paper (Sec. 4.3), and Matern, rational quadratic and periodic.

Those of Gaussian processes measure the distance |x - y| in units of length scales, of which there is one for all
features or one per feature. Parameters have scikit-learn's names, and so has the meaning of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array
from krein.errors import InputError
from krein.kernels.kernel import Kernel, Traits, bound
from krein.kernels.vectors import (
    EuclideanDistances,
    Exponential,
    ManhattanDistances,
    Rows,
    SquaredDistances,
    VectorKernel,
    as_vectors,
    check_features,
    check_length_scale,
    constant_diagonal,
    in_units,
    scale_gamma,
)

__all__ = ["TL1", "Laplacian", "Matern", "Periodic", "RationalQuadratic"]

# The Matern kernel has a closed form for these values of nu.
SMOOTHNESS = (0.5, 1.5, 2.5)


@dataclass(frozen=True)
class _Radial(VectorKernel):
    """A psd function of the distance in units of length scales, 1 on the diagonal."""

    length_scale: float | tuple[float, ...] | None = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length_scale is not None:
            object.__setattr__(self, "length_scale", check_length_scale(self, self.length_scale))

    @property
    def traits(self) -> Traits:
        return Traits(
            stationary=True,
            psd=True,
            low=0.0,
            high=1.0,
            constant_diagonal=True,
            unitary_invariant=not isinstance(self.length_scale, tuple) or len(set(self.length_scale)) == 1,
            differentiable=True,
        )

    @property
    def _scale(self) -> float:
        """What all differences are multiplied by, beside the length scales per feature of `in_units`."""
        return 1.0 if isinstance(self.length_scale, tuple) else 1.0 / bound(self, "length_scale", self.length_scale)

    def diag(self, A: Any) -> Array:
        bound(self, "length_scale", None if self.length_scale is None else 1.0)
        return constant_diagonal(A, 1.0, self)

    def bind(self, X: Any) -> Kernel:
        if self.length_scale is None:
            return replace(self, length_scale=math.sqrt(0.5 / scale_gamma(X, self)))
        check_features(as_vectors(X, self), self.length_scale, self)
        return self

    def feature_dimension(self, n_features: int) -> float | None:
        return math.inf


@dataclass(frozen=True)
class Matern(_Radial):
    """Matern kernel, a function of r = |x - y| / length_scale that has as many derivatives as nu says.

    exp(-r) for nu = 0.5, (1 + t) exp(-t) with t = √3 r for nu = 1.5, and (1 + t + t² / 3) exp(-t) with t = √5 r for
    nu = 2.5. It is psd on any data, and its values lie in (0, 1].

    Parameters
    ----------
    length_scale : float, sequence of floats or None, default=1.0
        Unit of distance, above 0, or one per feature. None is replaced by the root of n_features * X.var() / 2 when
        the kernel is bound to data X, which is the width of ``RBF()``.
    nu : {0.5, 1.5, 2.5}, default=1.5
        Smoothness.

    Examples
    --------
    >>> import krein
    >>> krein.Matern(length_scale=2.0, nu=2.5)([[0.0], [1.0]]).round(3)
    array([[1.   , 0.829],
           [0.829, 1.   ]])
    """

    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.nu, bool) or self.nu not in SMOOTHNESS:
            raise InputError(
                f"Matern needs nu to be one of {', '.join(map(str, SMOOTHNESS))}; got {self.nu!r}. RBF is the limit of "
                "large nu."
            )
        object.__setattr__(self, "nu", float(self.nu))

    @property
    def traits(self) -> Traits:
        return replace(super().traits, differentiable=self.nu > 0.5)

    def rows(self, b: Any) -> EuclideanDistances:
        return EuclideanDistances(in_units(b, self.length_scale, self), math.sqrt(2.0 * self.nu) * self._scale)

    def values(self, rows: EuclideanDistances, a: Any) -> Array:
        t = rows(in_units(a, self.length_scale, self))
        values = np.exp(-t)
        if self.nu == 1.5:
            values *= 1.0 + t
        elif self.nu == 2.5:
            values *= 1.0 + t * (1.0 + t / 3.0)
        return values


@dataclass(frozen=True)
class RationalQuadratic(_Radial):
    """Rational quadratic kernel, (1 + |x - y|² / (2 alpha length_scale²))^-alpha.

    It is a mixture of Gaussian kernels of different widths, psd on any data, with values in (0, 1].

    Parameters
    ----------
    length_scale : float, sequence of floats or None, default=1.0
        Unit of distance, above 0, or one per feature. None is replaced by the root of n_features * X.var() / 2 when
        the kernel is bound to data X, which is the width of ``RBF()``.
    alpha : float, default=1.0
        How alike the widths are, above 0. A large alpha gives the Gaussian kernel.

    Examples
    --------
    >>> import krein
    >>> krein.RationalQuadratic(length_scale=1.0, alpha=0.5)([[0.0], [1.0]]).round(3)
    array([[1.   , 0.707],
           [0.707, 1.   ]])
    """

    alpha: float = 1.0

    positive: ClassVar[tuple[str, ...]] = ("alpha",)

    def rows(self, b: Any) -> SquaredDistances:
        return SquaredDistances(in_units(b, self.length_scale, self), math.sqrt(0.5) * self._scale)

    def values(self, rows: SquaredDistances, a: Any) -> Array:
        values = rows(in_units(a, self.length_scale, self))
        values /= self.alpha
        np.log1p(values, out=values)
        values *= -self.alpha
        return np.exp(values, out=values)


@dataclass(frozen=True)
class Periodic(VectorKernel):
    """Periodic kernel, exp(-2 sin²(π |x - y| / periodicity) / length_scale²), scikit-learn's ExpSineSquared.

    It is psd for vectors of one feature. With more features it may be indefinite.

    Parameters
    ----------
    length_scale : float, default=1.0
        Width within a period, above 0.
    periodicity : float, default=1.0
        Distance after which the kernel repeats itself, above 0.

    Examples
    --------
    >>> import krein
    >>> krein.Periodic(periodicity=4.0)([[0.0], [1.0], [2.0], [4.0]]).round(3)
    array([[1.   , 0.368, 0.135, 1.   ],
           [0.368, 1.   , 0.368, 0.368],
           [0.135, 0.368, 1.   , 0.135],
           [1.   , 0.368, 0.135, 1.   ]])
    """

    length_scale: float = 1.0
    periodicity: float = 1.0

    positive: ClassVar[tuple[str, ...]] = ("length_scale", "periodicity")

    @property
    def traits(self) -> Traits:
        low = math.exp(-2.0 / self.length_scale**2)
        return Traits(
            stationary=True,
            psd=None,
            low=low,
            high=1.0,
            constant_diagonal=True,
            unitary_invariant=True,
            differentiable=True,
        )

    def rows(self, b: Any) -> EuclideanDistances:
        return EuclideanDistances(b, math.pi / self.periodicity)

    def values(self, rows: EuclideanDistances, a: Any) -> Array:
        values = np.sin(rows(a))
        np.square(values, out=values)
        values *= -2.0 / self.length_scale**2
        return np.exp(values, out=values)


@dataclass(frozen=True)
class Laplacian(Exponential):
    """Laplacian kernel, k(x, y) = exp(-gamma |x - y|_1).

    It is psd on any data, and its values lie in (0, 1].

    Parameters
    ----------
    gamma : float or None, default=None
        Inverse width, above 0. None is replaced by 1 / (n_features * X.var()) when the kernel is bound to data X.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> krein.Laplacian(gamma=0.5)(X).round(3)
    array([[1.   , 0.223],
           [0.223, 1.   ]])
    """

    compared: ClassVar[type[Rows]] = ManhattanDistances

    @property
    def traits(self) -> Traits:
        return Traits(stationary=True, psd=True, low=0.0, high=1.0, constant_diagonal=True)

    def values(self, rows: ManhattanDistances, a: Any) -> Array:
        gamma = bound(self, "gamma", self.gamma)
        values = rows(a)
        values *= -gamma
        return np.exp(values, out=values)


@dataclass(frozen=True)
class TL1(VectorKernel):
    """Truncated Manhattan kernel, k(x, y) = max(rho - |x - y|_1, 0) (paper, Sec. 4.3).

    It is indefinite on some data, and zero for all pairs farther apart than rho.

    Parameters
    ----------
    rho : float or None, default=None
        Distance from which on the similarity is 0. None is replaced by 0.7 * n_features when the kernel is bound to
        data, which Huang et al. recommend for features in [0, 1].

    Examples
    --------
    >>> import krein
    >>> krein.TL1(rho=2.0)([[0.0], [1.0], [5.0]])
    array([[2., 1., 0.],
           [1., 2., 0.],
           [0., 0., 2.]])
    """

    rho: float | None = None

    positive: ClassVar[tuple[str, ...]] = ("rho",)
    compared: ClassVar[type[Rows]] = ManhattanDistances

    @property
    def traits(self) -> Traits:
        return Traits(
            stationary=True,
            psd=None,  # depends on rho and the data; the usual rho = 0.7 d is psd on much data
            low=0.0,
            high=self.rho,
            constant_diagonal=True,
            compact=True,
            preprocessing="unit-interval",
        )

    def values(self, rows: ManhattanDistances, a: Any) -> Array:
        rho = bound(self, "rho", self.rho)
        values = rows(a)
        np.subtract(rho, values, out=values)
        return np.maximum(values, 0.0, out=values)

    def diag(self, A: Any) -> Array:
        return constant_diagonal(A, bound(self, "rho", self.rho), self)

    def bind(self, X: Any) -> Kernel:
        return replace(self, rho=7 * as_vectors(X, self).shape[1] / 10) if self.rho is None else self
