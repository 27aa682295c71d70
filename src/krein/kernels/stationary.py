"""Kernels of the difference x - y: RBF, Laplacian, TL1 (paper, Sec. 2.2 and 4.3; supplement, Sec. 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array
from krein.errors import InputError
from krein.kernels.kernel import Kernel, Traits, bound
from krein.kernels.vectors import (
    ManhattanDistances,
    Rows,
    SquaredDistances,
    VectorKernel,
    as_vectors,
    check_features,
    check_length_scale,
    constant_diagonal,
    in_units,
)

__all__ = ["RBF", "TL1", "Laplacian"]


@dataclass(frozen=True)
class _Exponential(VectorKernel):
    """exp(-gamma d(x, y)) for a distance d: 1 on the diagonal, in an infinite-dimensional feature space."""

    gamma: float | None = None

    positive: ClassVar[tuple[str, ...]] = ("gamma",)

    def feature_dimension(self, n_features: int) -> float | None:
        return math.inf


@dataclass(frozen=True, repr=False)
class RBF(_Exponential):
    """Gaussian kernel, k(x, y) = exp(-gamma |x - y|²).

    It is psd on any data, its values lie in (0, 1], and its feature space has infinite dimension. Its width is given by
    gamma or by length_scale, with gamma = 1 / (2 length_scale²).

    Parameters
    ----------
    gamma : float or None, default=None
        Inverse squared width, above 0. None is replaced by 1 / (n_features * X.var()) when the kernel is bound to data
        X, which is ``gamma="scale"`` of scikit-learn.
    length_scale : float, sequence of floats or None, default=None
        The width as in Gaussian processes, above 0: exp(-|x - y|² / (2 length_scale²)). With one number per feature
        (automatic relevance determination) each difference is divided by its own. Beside gamma it is an error.

    Examples
    --------
    >>> import krein
    >>> krein.RBF(gamma=0.5)([[0.0], [1.0]]).round(3)
    array([[1.   , 0.607],
           [0.607, 1.   ]])
    >>> krein.RBF(length_scale=[1.0, 10.0])([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).round(3)
    array([[1.   , 0.607, 0.995],
           [0.607, 1.   , 0.604],
           [0.995, 0.604, 1.   ]])
    """

    length_scale: float | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length_scale is None:
            return
        object.__setattr__(self, "length_scale", check_length_scale(self, self.length_scale))
        if self.gamma is not None:
            raise InputError(
                f"RBF takes gamma or length_scale, not both; got gamma={self.gamma!r} and "
                f"length_scale={self.length_scale!r}. gamma is 1 / (2 length_scale²)."
            )

    def __repr__(self) -> str:
        if self.length_scale is None:
            return f"{type(self).__name__}(gamma={self.gamma!r})"
        return f"{type(self).__name__}(length_scale={self.length_scale!r})"

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
            preprocessing="unit-interval",
        )

    @property
    def scale(self) -> Any:
        """What differences are multiplied by before they are squared: a number, or an array with one per feature."""
        if self.length_scale is None:
            return math.sqrt(bound(self, "gamma", self.gamma))
        if isinstance(self.length_scale, tuple):
            return math.sqrt(0.5) / np.array(self.length_scale)
        return math.sqrt(0.5) / self.length_scale

    def diag(self, A: Any) -> Array:
        return super().diag(A) if self.length_scale is None else constant_diagonal(A, 1.0, self)

    def bind(self, X: Any) -> Kernel:
        if self.length_scale is None:
            return super().bind(X)
        check_features(as_vectors(X, self), self.length_scale, self)
        return self

    def rows(self, b: Any) -> SquaredDistances:
        scale = math.sqrt(0.5) if isinstance(self.length_scale, tuple) else self.scale
        return SquaredDistances(in_units(b, self.length_scale, self), scale)

    def values(self, rows: SquaredDistances, a: Any) -> Array:
        values = rows(in_units(a, self.length_scale, self))
        np.negative(values, out=values)
        return np.exp(values, out=values)


@dataclass(frozen=True)
class Laplacian(_Exponential):
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
