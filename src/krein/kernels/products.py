"""Kernels of the inner product <x, y>: linear, polynomials, cosine, sigmoid (paper, Remark 2; supplement, Sec. 6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from krein.arrays import Array
from krein.errors import InputError, KernelError, is_number
from krein.kernels.kernel import Traits, bound
from krein.kernels.vectors import (
    Cosines,
    InnerProducts,
    Rows,
    SquaredDistances,
    VectorKernel,
    as_vectors,
    largest_entry,
    squared_norms,
    unit_rows,
)

__all__ = ["Cosine", "Linear", "Polynomial", "Sigmoid", "SpherePolynomial"]

# On the sphere the base of a fractional power may fall below zero by rounding, by less than ROUNDED_BASE.
ROUNDED_BASE = 1e-6
# Products of float32 numbers outside these limits are computed in float64.
SMALL_PRODUCT, LARGE_PRODUCT = 1e-25, 1e30


@dataclass(frozen=True)
class Linear(VectorKernel):
    """Linear kernel, k(x, y) = <x, y>; psd, with n_features dimensions in feature space.

    Products of float32 rows that float32 cannot hold have float64.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> krein.Linear()(X)
    array([[1., 0.],
           [0., 4.]])
    """

    compared: ClassVar[type[Rows]] = InnerProducts

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=True, unitary_invariant=True, differentiable=True)

    def values(self, rows: InnerProducts, a: Any) -> Array:
        if a.dtype == np.float32 and _leaves_float32(largest_entry(a) * rows.largest):
            rows, a = rows.in_float64(a)
        return rows(a)

    def diag(self, A: Any) -> Array:
        a = as_vectors(A, self)
        wide = a.dtype == np.float32 and _leaves_float32(largest_entry(a) ** 2)
        return squared_norms(a.astype(np.float64) if wide else a)

    def feature_dimension(self, n_features: int) -> float | None:
        return float(n_features)


def _leaves_float32(size: float) -> bool:
    """Whether float32 loses numbers of this size, or sums of them; zeros and what is not finite stay as they are."""
    return 0.0 < size < SMALL_PRODUCT or LARGE_PRODUCT < size < math.inf


@dataclass(frozen=True)
class Polynomial(VectorKernel):
    """Polynomial kernel, k(x, y) = (gamma <x, y> + coef0)^degree, with the parameters of scikit-learn.

    Parameters
    ----------
    degree : float, default=3
        Exponent, above 0. A fractional power of a negative number is an error.
    gamma : float or None, default=None
        Factor of the inner product. None is replaced by 1 / (n_features * X.var()) when the kernel is bound to data X.
    coef0 : float, default=1.0
        Added to the inner product.

    Notes
    -----
    It is psd for an integer degree and coef0 >= 0, and indefinite on some data for coef0 < 0: the odd part of the power
    has a negative slope at 0 if the degree is even, and k(0, 0) < 0 if it is odd.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> krein.Polynomial(degree=2, gamma=1.0, coef0=1.0)(X)
    array([[ 4.,  1.],
           [ 1., 25.]])
    """

    degree: float = 3
    gamma: float | None = None
    coef0: float = 1.0

    positive: ClassVar[tuple[str, ...]] = ("degree", "gamma")
    compared: ClassVar[type[Rows]] = InnerProducts

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "degree", _as_int_if_whole(self.degree))
        object.__setattr__(self, "coef0", _finite(self, "coef0", self.coef0))

    @property
    def traits(self) -> Traits:
        whole = isinstance(self.degree, int)
        return Traits(
            stationary=False,
            psd=self.coef0 >= 0 if whole else None,
            low=0.0 if self.degree % 2 == 0 else None,
            unitary_invariant=True,
            differentiable=whole,
            preprocessing="sphere",
        )

    def values(self, rows: InnerProducts, a: Any) -> Array:
        bound(self, "gamma", self.gamma)
        return self._power(rows(a))

    def diag(self, A: Any) -> Array:
        bound(self, "gamma", self.gamma)
        return self._power(squared_norms(as_vectors(A, self)))

    def feature_dimension(self, n_features: int) -> float | None:
        return float(math.comb(n_features + self.degree, self.degree)) if isinstance(self.degree, int) else None

    def _power(self, products: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            products *= bound(self, "gamma", self.gamma)
            products += self.coef0
            return np.power(products, self.degree, out=products)


@dataclass(frozen=True)
class SpherePolynomial(VectorKernel):
    """The paper's polynomial kernel, k(x, y) = (1 - |x - y|² / a²)^degree, for rows of length 1 (Remark 2).

    Parameters
    ----------
    degree : float, default=2
        Exponent p, above 0. A fractional one needs a >= 2, because the base is negative between opposite points
        otherwise.
    a : float, default=2.0
        Scale, above 0.

    Notes
    -----
    On the sphere |x - y|² = 2 - 2 <x, y>, so the kernel is alpha (q + <x, y>)^p with q = a²/2 - 1 and alpha = (2/a²)^p
    (the paper prints the inverse fraction). For an integer p it is psd if a² >= 2, where q >= 0; the condition a > 2 of
    Remark 2 concerns the Fourier transform on R^d. For a² < 2 the Gegenbauer coefficient of degree p - 1 has the sign
    of q, which is negative, so the kernel is not psd.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> krein.SpherePolynomial(degree=2, a=2.0)(X / [[1.0], [2.0]])
    array([[1.  , 0.25],
           [0.25, 1.  ]])
    """

    degree: float = 2
    a: float = 2.0

    positive: ClassVar[tuple[str, ...]] = ("degree", "a")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "degree", _as_int_if_whole(self.degree))
        if not isinstance(self.degree, int) and self.a < 2:
            raise InputError(
                f"SpherePolynomial with the fractional degree {self.degree} needs a >= 2: with a = {self.a} opposite "
                "points of the sphere "
                f"would need a root of {self._base_at_antipodes():.3g}. Use a whole degree or a >= 2."
            )

    @property
    def traits(self) -> Traits:
        whole = isinstance(self.degree, int)
        least = self._base_at_antipodes()  # the base runs over [least, 1]
        end = float(max(least, 0.0) ** self.degree) if not whole else float(least**self.degree)
        even = whole and self.degree % 2 == 0
        return Traits(
            stationary=False,
            psd=self.a**2 >= 2 if whole else None,
            sphere=True,
            low=0.0 if even and least <= 0 else end,
            high=max(1.0, end) if even else 1.0,
            constant_diagonal=True,
            unitary_invariant=True,
            differentiable=whole or self.degree > 1 or least > 0,
            preprocessing="sphere",
        )

    def rows(self, b: Any) -> SquaredDistances:
        return SquaredDistances(b, 1.0 / self.a)

    def values(self, rows: SquaredDistances, a: Any) -> Array:
        base = rows(a)
        np.subtract(1.0, base, out=base)
        if not isinstance(self.degree, int):
            base[(base < 0) & (base > -ROUNDED_BASE)] = 0
        with np.errstate(over="ignore", invalid="ignore"):
            return np.power(base, self.degree, out=base)

    def feature_dimension(self, n_features: int) -> float | None:
        return float(math.comb(n_features + self.degree, self.degree)) if isinstance(self.degree, int) else None

    def _base_at_antipodes(self) -> float:
        return 1.0 - 4.0 / self.a**2


@dataclass(frozen=True)
class Cosine(VectorKernel):
    """Cosine kernel: the cosine of the angle between x and y, or 0 if one of them is the zero vector; psd.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> krein.Cosine()(X)
    array([[1., 0.],
           [0., 1.]])
    """

    compared: ClassVar[type[Rows]] = Cosines

    @property
    def traits(self) -> Traits:
        # at the zero vector the diagonal is 0 and the gradient is missing, so neither is promised
        return Traits(stationary=False, psd=True, low=-1.0, high=1.0, unitary_invariant=True)

    def values(self, rows: Cosines, a: Any) -> Array:
        return rows(a)[0]

    def diag(self, A: Any) -> Array:
        a = as_vectors(A, self)
        return (unit_rows(a)[1] > 0).astype(a.dtype)

    def feature_dimension(self, n_features: int) -> float | None:
        return float(n_features)


@dataclass(frozen=True)
class Sigmoid(VectorKernel):
    """Sigmoid kernel, k(x, y) = tanh(gamma <x, y> + coef0); indefinite on most data.

    Parameters
    ----------
    gamma : float or None, default=None
        Factor of the inner product. None is replaced by 1 / (n_features * X.var()) when the kernel is bound to data X.
    coef0 : float, default=0.0
        Added to the inner product.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> krein.Sigmoid(gamma=1.0, coef0=-1.0)(X).round(3)
    array([[ 0.   , -0.762],
           [-0.762,  0.995]])
    """

    gamma: float | None = None
    coef0: float = 0.0

    positive: ClassVar[tuple[str, ...]] = ("gamma",)
    compared: ClassVar[type[Rows]] = InnerProducts

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "coef0", _finite(self, "coef0", self.coef0))

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=None, low=-1.0, high=1.0, unitary_invariant=True, differentiable=True)

    def values(self, rows: InnerProducts, a: Any) -> Array:
        bound(self, "gamma", self.gamma)
        return self._squashed(rows(a))

    def diag(self, A: Any) -> Array:
        bound(self, "gamma", self.gamma)
        return self._squashed(squared_norms(as_vectors(A, self)))

    def _squashed(self, products: Array) -> Array:
        if not np.isfinite(products).all():  # tanh would hide what overflowed
            raise KernelError(
                f"{self!r} needs inner products that {products.dtype} can hold; the largest is "
                f"{np.abs(products).max():.3g}. Rescale the data, with sklearn.preprocessing.StandardScaler."
            )
        products *= bound(self, "gamma", self.gamma)
        products += self.coef0
        return np.tanh(products, out=products)


def _as_int_if_whole(value: float) -> float:
    return int(value) if value == int(value) else value


def _finite(asker: object, name: str, value: Any) -> float:
    if is_number(value):
        return float(value)
    raise InputError(f"{type(asker).__name__} needs {name} to be a finite number; got {value!r}.")
