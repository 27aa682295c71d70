"""scikit-learn's kernel objects and krein's kernels, each in the other's language.

A Gaussian process is fitted in scikit-learn's: a kernel object has theta, bounds and gradients, and WhiteKernel is
noise. `AsSklearn` brings a krein kernel there. What is approximated is the signal, the kernel object without its noise,
as a krein kernel (`translate`), over columns divided by its length scales, so that clusters follow its own distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from scipy.spatial.distance import pdist, squareform
from scipy.special import xlogy
from sklearn.gaussian_process import kernels as sk

from krein.arrays import Array
from krein.kernels import (
    RBF,
    Evaluator,
    FromCallable,
    Gower,
    Kernel,
    Laplacian,
    Matern,
    Periodic,
    Product,
    RationalQuadratic,
    Scaled,
    Sum,
    Traits,
    count_objects,
    is_vectors,
)
from krein.kernels.collections import is_sparse, rows
from krein.kernels.precomputed import GivenRows

__all__ = [
    "AsSklearn",
    "FromSklearn",
    "amplitude_of",
    "covariance_and_gradient",
    "declared_psd",
    "given_rows",
    "leaf_of",
    "noise_level",
    "noise_place",
    "scale_places",
    "scales",
    "signal",
    "translate",
    "with_leaf",
    "with_noise",
]

# Parameters of krein kernels that are scales and can be learned. A tuple of numbers is as many parameters; weights of 0
# stay 0.
LEARNED_PARAMETERS = ("gamma", "rho", "factor", "length_scale", "alpha", "periodicity", "weights", "decay")
# Step of central differences in log(parameter). Their error is about LOG_STEP² + 1e-16 / LOG_STEP.
LOG_STEP = 1e-5
ZERO = sk.ConstantKernel(0.0, "fixed")
# Kernels of scikit-learn that may be indefinite. ExpSineSquared is psd in one dimension only.
UNPROVEN_KERNELS = sk.PairwiseKernel | sk.CompoundKernel | sk.ExpSineSquared


# -- a krein kernel as a kernel object of scikit-learn -----------------------------------------------------------------


class AsSklearn(sk.Kernel):  # type: ignore[misc]
    """A krein kernel with theta: the logarithms of LEARNED_PARAMETERS, 1e-5 to 1e5 times their start."""

    def __init__(self, kernel: Kernel, limits: Any = None) -> None:
        self.kernel = kernel
        self.limits = limits  # (low, high) of each parameter, None for the default, "fixed" to learn none

    def _free(self) -> list[tuple[tuple[str, ...], float]]:
        return [] if isinstance(self.limits, str) else _open(self.kernel)

    @property
    def hyperparameters(self) -> list[Any]:
        found = self._free()
        if not found:
            return []
        limits = self.limits or tuple((1e-5 * value, 1e5 * value) for _, value in found)
        return [
            sk.Hyperparameter(".".join(path), "numeric", np.array([ends]))
            for (path, _), ends in zip(found, limits, strict=True)
        ]

    @property
    def theta(self) -> Array:
        return np.asarray(np.log(np.array([value for _, value in self._free()])))

    @theta.setter
    def theta(self, theta: Array) -> None:
        limits = tuple((float(h.bounds[0, 0]), float(h.bounds[0, 1])) for h in self.hyperparameters)
        for (path, _), value in zip(self._free(), np.exp(theta), strict=True):
            self.kernel = _with(self.kernel, path, float(value))
        self.limits = limits or self.limits

    @property
    def bounds(self) -> Array:
        found = [h.bounds[0] for h in self.hyperparameters]
        return np.log(np.array(found)) if found else np.empty((0, 2))

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        K = np.asarray(Evaluator(self.kernel).block(X, X if Y is None else Y), dtype=np.float64)
        if not eval_gradient:
            return K
        if _is_exponential(self.kernel):  # k = exp(-gamma d), so that dk / d log gamma = k log k
            return K, np.repeat(xlogy(K, K)[..., None], len(self._free()), axis=2)
        slopes = np.empty((*K.shape, len(self._free())))
        for i, (path, value) in enumerate(self._free()):
            moved = (_with(self.kernel, path, value * float(np.exp(h))) for h in (LOG_STEP, -LOG_STEP))
            up, down = (Evaluator(kernel).block(X, X) for kernel in moved)
            slopes[..., i] = (np.asarray(up, dtype=np.float64) - down) / (2.0 * LOG_STEP)
        return K, slopes

    def diag(self, X: Any) -> Array:
        return np.asarray(Evaluator(self.kernel).diag(X), dtype=np.float64)

    def is_stationary(self) -> bool:
        return bool(self.kernel.traits.stationary)

    @property
    def requires_vector_input(self) -> bool:
        return self.kernel.compares == "vectors"

    def __repr__(self) -> str:
        return repr(self.kernel)


def _is_exponential(kernel: Kernel) -> bool:
    return type(kernel) in (RBF, Laplacian) and kernel.gamma is not None  # type: ignore[attr-defined]


def with_noise(plain: AsSklearn, objects: Any, size: float) -> Any:
    """amplitude * kernel + noise, to be learned; at first the noise is a tenth of ``size``, the mean square of y."""
    if isinstance(plain.kernel, Scaled) and plain.limits is None:
        plain = AsSklearn(plain.kernel.kernel)  # one factor is enough
    own = float(np.mean(plain.diag(rows(objects, slice(0, 1000)))))
    amplitude, level = size / own if own > 0.0 else size, 0.1 * size
    constant = sk.ConstantKernel(amplitude, (1e-5 * amplitude, 1e5 * amplitude))
    return constant * plain + sk.WhiteKernel(level, (1e-9 * level, 1e3 * level))


def _open(kernel: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], float]]:
    """The parameters that may be learned, with the way to them through sums, products and wrappers."""
    if isinstance(kernel, tuple):
        return [found for i, part in enumerate(kernel) for found in _open(part, (*path, str(i)))]
    if not (isinstance(kernel, Kernel) and is_dataclass(kernel)):
        return []
    found = []
    for field in fields(kernel):
        value = getattr(kernel, field.name)
        if field.name in LEARNED_PARAMETERS and isinstance(value, float):
            found.append(((*path, field.name), value))
        elif field.name in LEARNED_PARAMETERS and isinstance(value, tuple):
            found += [((*path, field.name, str(i)), each) for i, each in enumerate(value) if each > 0.0]
        elif isinstance(value, Kernel | tuple):
            found += _open(value, (*path, field.name))
    return found


def _with(kernel: Any, path: tuple[str, ...], value: float) -> Any:
    """The kernel with one parameter changed."""
    if not path:
        return value
    if isinstance(kernel, tuple):
        i = int(path[0])
        return (*kernel[:i], _with(kernel[i], path[1:], value), *kernel[i + 1 :])
    return replace(kernel, **{path[0]: _with(getattr(kernel, path[0]), path[1:], value)})


# -- the gradient of a kernel object, without its tensor ---------------------------------------------------------------


Gradient: TypeAlias = "Callable[[Array], Array]"


def covariance_and_gradient(kernel: Any, X: Any) -> tuple[Array, Gradient]:
    """Return (K, gradient): K = kernel(X), and gradient(W) the sum of W * dK / dtheta_i for each i, W symmetric.

    It equals ``numpy.tensordot(W, kernel(X, eval_gradient=True)[1], 2)``. Sums, products, powers, constants, noise and
    kernels of distances do not form that array of shape (n, n, n_theta).
    """
    K, gradient = _covariance(kernel, X)
    return K if np.ndim(K) else np.full((count_objects(X),) * 2, K), gradient


def _covariance(kernel: Any, X: Any) -> tuple[Any, Gradient]:
    """The same; K is a number where it is constant."""
    if type(kernel) is sk.Sum:
        (K1, by1), (K2, by2) = _covariance(kernel.k1, X), _covariance(kernel.k2, X)
        return K1 + K2, lambda W: np.concatenate([by1(W), by2(W)])
    if type(kernel) is sk.Product:
        (K1, by1), (K2, by2) = _covariance(kernel.k1, X), _covariance(kernel.k2, X)
        return K1 * K2, lambda W: np.concatenate([by1(W * K2), by2(W * K1)])
    if type(kernel) is sk.Exponentiation:
        base, by, power = *_covariance(kernel.kernel, X), kernel.exponent
        return base**power, lambda W: by(W * (power * base ** (power - 1)))
    if type(kernel) is sk.ConstantKernel:
        constant = float(kernel.constant_value)
        return constant, lambda W: np.full(kernel.n_dims, constant * W.sum())
    if type(kernel) is sk.WhiteKernel:
        level = float(kernel.noise_level)
        return level * np.eye(count_objects(X)), lambda W: np.full(kernel.n_dims, level * np.trace(W))
    if not kernel.n_dims:
        return kernel(X), lambda W: np.empty(0)
    if type(kernel) is sk.RBF:
        return _radial(X, kernel.length_scale, RADIAL[np.inf])
    if type(kernel) is sk.Matern and kernel.nu in RADIAL:
        return _radial(X, kernel.length_scale, RADIAL[kernel.nu])
    if isinstance(kernel, AsSklearn) and _is_exponential(kernel.kernel):
        K = kernel(X)
        return K, lambda W: np.array([np.vdot(W, xlogy(K, K))])
    if isinstance(kernel, AsSklearn) and type(kernel.kernel) is Gower:
        return _gower(X, kernel.kernel)
    if isinstance(kernel, AsSklearn) and not is_sparse(X):
        if type(kernel.kernel) is Periodic:
            return _periodic(X, kernel.kernel)
        if (found := _of_distances(kernel.kernel)) is not None:
            return _radial(X, *found)
    K, slopes = kernel(X, eval_gradient=True)
    return K, lambda W: np.tensordot(W, slopes, axes=2)


# What a radial kernel is of the distance r in units of its length scales: k(r), -k'(r) / r, and dk / d log p for each
# further parameter p. dk / d log l_i is the second times the square of coordinate i of x - y in these units.
Profile: TypeAlias = "Callable[[Array], tuple[Array, ...]]"

# Matern kernels by nu, nu = inf being the Gaussian one.
RADIAL: dict[float, Profile] = {
    0.5: lambda r: ((k := np.exp(-r)), np.divide(k, r, out=np.zeros_like(r), where=r > 0.0)),
    1.5: lambda r: ((1.0 + (t := math.sqrt(3.0) * r)) * (e := np.exp(-t)), 3.0 * e),
    2.5: lambda r: (
        (1.0 + (t := math.sqrt(5.0) * r) + t**2 / 3.0) * (e := np.exp(-t)),
        5.0 / 3.0 * (1.0 + t) * e,
    ),
    np.inf: lambda r: ((k := np.exp(-0.5 * r**2)), k),
}


def _rational(alpha: float, r: Array) -> tuple[Array, ...]:
    s = 0.5 * r**2
    base = 1.0 + s / alpha
    k = base**-alpha
    return k, k / base, k * (s / base - alpha * np.log(base))


def _of_distances(kernel: Kernel) -> tuple[Any, Profile] | None:
    """The length scales and the profile of a krein kernel that is radial; else None."""
    if type(kernel) is RBF:
        return kernel.length_scale, RADIAL[np.inf]
    if type(kernel) is Matern:
        return kernel.length_scale, RADIAL[kernel.nu]
    if type(kernel) is RationalQuadratic:
        return kernel.length_scale, partial(_rational, kernel.alpha)
    return None


def _radial(X: Any, length_scale: Any, profile: Profile) -> tuple[Array, Gradient]:
    length_scale = np.squeeze(np.asarray(length_scale, dtype=np.float64))
    scaled = np.asarray(X, dtype=np.float64) / length_scale
    r = pdist(scaled)
    value, slope, *more = profile(r)
    K = squareform(value)
    np.fill_diagonal(K, 1.0)

    def gradient(W: Array) -> Array:
        P = W * squareform(slope)  # 0 on the diagonal
        rest = [np.vdot(W, squareform(each)) for each in more]
        if np.ndim(length_scale) == 0:
            return np.array([np.vdot(P, squareform(r**2)), *rest])
        # sum of P_ij (x_i - x_j)² for each column x, P symmetric
        by_scale = 2.0 * (P.sum(1) @ np.square(scaled) - np.einsum("ij,ij->j", scaled, P @ scaled))
        return np.array([*by_scale, *rest])

    return K, gradient


def _periodic(X: Any, kernel: Periodic) -> tuple[Array, Gradient]:
    angle = math.pi / kernel.periodicity * pdist(np.asarray(X, dtype=np.float64))
    sine = np.sin(angle) / kernel.length_scale
    value = np.exp(-2.0 * sine**2)
    slopes = 4.0 * sine**2 * value, 4.0 * sine * np.cos(angle) / kernel.length_scale * angle * value
    K = squareform(value)
    np.fill_diagonal(K, 1.0)
    return K, lambda W: np.array([np.vdot(W, squareform(each)) for each in slopes])


def _gower(X: Any, kernel: Gower) -> tuple[Array, Gradient]:
    """Columns are compared again for the gradient, one at a time, rather than held."""
    K, d = kernel(X), replace(kernel, decay=None, distance=True)(X)
    rate = None if kernel.decay is None else kernel.decay / kernel.typical

    def gradient(W: Array) -> Array:
        by_decay = [] if rate is None else [-rate * np.vdot(W, d * K)]
        if not isinstance(kernel.weights, tuple):
            return np.array(by_decay)
        # d = D / S has the slope (D_j - d S_j) / S in log w_j, D and S being sums over the columns
        total = sum((shared for _, shared in kernel.column_parts(X)), start=0.0)
        by_d = (1.0 if kernel.distance else -1.0) if rate is None else -rate * K
        P = np.divide(W * by_d, total, out=np.zeros_like(K), where=total > 0.0)
        by_weight = [np.vdot(P, apart) - np.sum(P * d * shared) for apart, shared in kernel.column_parts(X)]
        return np.array([*by_weight, *by_decay])

    return K, gradient


# -- a kernel object of scikit-learn as a krein kernel -----------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class FromSklearn(Kernel):
    """A kernel object of scikit-learn, of vectors whose columns were divided by ``scale`` before they came here."""

    wrapped: Any
    scale: Array | None = None

    @property
    def traits(self) -> Traits:
        stationary = bool(self.wrapped.is_stationary())
        return Traits(stationary=stationary, psd=True if declared_psd(self.wrapped) else None)

    def __call__(self, A: Any, B: Any = None) -> Array:
        return np.asarray(self.wrapped(self._given(A), self._given(A if B is None else B)))

    def diag(self, A: Any) -> Array:
        return np.array(self.wrapped.diag(self._given(A)), dtype=np.float64)

    def _given(self, A: Any) -> Any:
        return A if self.scale is None else A * self.scale  # float64 whatever A is

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FromSklearn) or (self.scale is None) != (other.scale is None):
            return False
        same = self.scale is None or np.array_equal(self.scale, np.asarray(other.scale))
        return bool(self.wrapped == other.wrapped) and bool(same)

    def __hash__(self) -> int:
        return hash((FromSklearn, type(self.wrapped), self.wrapped.theta.tobytes()))

    def __repr__(self) -> str:
        return repr(self.wrapped)


def translate(kernel: Any, scale: Array | None) -> Kernel:
    """Return the krein kernel that a noise-free kernel object is, of columns divided by ``scale`` (None: as they are).

    Sums, products, constants and Gaussians become krein's own; whatever else is evaluated by scikit-learn.
    """
    if isinstance(kernel, AsSklearn):
        if scale is None:
            return kernel.kernel
        if (own := _own_scales(kernel)) is not None:
            return replace(kernel.kernel, length_scale=own / scale)  # type: ignore[type-var]
    if not getattr(kernel, "requires_vector_input", True) and leaf_of(kernel) is None:
        return FromCallable(kernel, Traits(stationary=False, psd=True if declared_psd(kernel) else None))
    if type(kernel) is sk.Sum and not any(isinstance(k, sk.ConstantKernel) for k in (kernel.k1, kernel.k2)):
        return Sum((translate(kernel.k1, scale), translate(kernel.k2, scale)))
    if type(kernel) is sk.Product:
        for constant, other in ((kernel.k1, kernel.k2), (kernel.k2, kernel.k1)):
            if type(constant) is sk.ConstantKernel and constant.constant_value > 0.0:
                return Scaled(translate(other, scale), float(constant.constant_value))
        return Product((translate(kernel.k1, scale), translate(kernel.k2, scale)))
    if type(kernel) is sk.RBF:
        lengths = np.atleast_1d(np.asarray(kernel.length_scale, dtype=np.float64))
        ratio = lengths if scale is None else lengths / scale
        if np.allclose(ratio, ratio[0], rtol=1e-12, atol=0.0):
            return RBF(gamma=0.5 / float(ratio[0]) ** 2)
    return FromSklearn(kernel, scale)


def scales(kernel: Any, X: Any) -> Array | None:
    """Return the length scale of each column under the kernel, or None if it has no single one of its own."""
    found = [lengths for part in _leaves(kernel) if (lengths := _own_scales(part)) is not None]
    if not found or not is_vectors(X) or is_sparse(X) or any(len(lengths) != X.shape[1] for lengths in found):
        return None
    return np.asarray(np.exp(np.mean(np.log(found), axis=0)))


def _own_scales(kernel: Any) -> Array | None:
    """The length scales of a kernel that has one per feature; else None."""
    if isinstance(kernel, AsSklearn):
        lengths = getattr(kernel.kernel, "length_scale", None)
        return np.array(lengths) if isinstance(lengths, tuple) else None
    several = isinstance(kernel, sk.RBF) and bool(kernel.anisotropic)  # Matern is one of them
    return np.asarray(kernel.length_scale, dtype=np.float64) if several else None


# -- noise and amplitude -----------------------------------------------------------------------------------------------


def signal(kernel: Any) -> Any:
    """Return the kernel object without its noise: what it says of two different objects, even where they are equal.

    WhiteKernel is 0 between two collections, so it is 0 here wherever it stands; the noise is what the diagonal lacks.
    """
    if isinstance(kernel, sk.WhiteKernel):
        return ZERO
    if isinstance(kernel, sk.Exponentiation):
        inner = signal(kernel.kernel)
        return ZERO if inner is ZERO else sk.Exponentiation(inner, kernel.exponent)
    if isinstance(kernel, sk.KernelOperator):
        left, right = signal(kernel.k1), signal(kernel.k2)
        if isinstance(kernel, sk.Product):
            return ZERO if left is ZERO or right is ZERO else sk.Product(left, right)
        return right if left is ZERO else left if right is ZERO else sk.Sum(left, right)
    return kernel


def noise_level(kernel: Any) -> float | None:
    """The variance that WhiteKernel terms add to each object; None where one stands in a product or a power."""
    total = 0.0
    for term in _summands(kernel):
        if isinstance(term, sk.WhiteKernel):
            total += float(term.noise_level)
        elif any(isinstance(leaf, sk.WhiteKernel) for leaf in _leaves(term)):
            return None
    return total


def noise_place(kernel: Any) -> int | None:
    """Where theta holds the level of the one WhiteKernel that is a term of its own; None without one to learn."""
    places = [place for term, place in _terms(kernel) if isinstance(term, sk.WhiteKernel) and term.n_dims]
    return places[0] if len(places) == 1 else None


def scale_places(kernel: Any) -> list[int] | None:
    """Where theta holds the constants that multiply the signal together; None if some term of it has none to learn."""
    found = []
    for term, place in _terms(kernel):
        if not isinstance(term, sk.WhiteKernel):
            own = _constant(term, place)
            if own is None:
                return None
            found.append(own)
    return found or None


def leaf_of(kernel: Any) -> AsSklearn | None:
    """The one krein kernel of ``amplitude * kernel + noise``, amplitude and noise being there or not; else None."""
    terms = [term for term in _summands(kernel) if not isinstance(term, sk.WhiteKernel)]
    if len(terms) != 1:
        return None
    term = terms[0]
    if type(term) is sk.Product and type(term.k1) is sk.ConstantKernel and term.k1.constant_value > 0.0:
        term = term.k2
    return term if isinstance(term, AsSklearn) else None


def amplitude_of(kernel: Any) -> float:
    """The constant that multiplies the krein kernel of `leaf_of`, 1 if there is none."""
    clean = signal(kernel)
    return float(clean.k1.constant_value) if isinstance(clean, sk.Product) else 1.0


def with_leaf(kernel: Any, leaf: AsSklearn) -> Any:
    """The same kernel object with ``leaf`` for its krein kernel."""
    if isinstance(kernel, AsSklearn):
        return leaf
    if isinstance(kernel, sk.KernelOperator):
        return type(kernel)(with_leaf(kernel.k1, leaf), with_leaf(kernel.k2, leaf))
    return kernel


def _summands(kernel: Any) -> list[Any]:
    return _summands(kernel.k1) + _summands(kernel.k2) if type(kernel) is sk.Sum else [kernel]


def _terms(kernel: Any, place: int = 0) -> list[tuple[Any, int]]:
    """The terms of a sum with the places in theta where they begin."""
    if type(kernel) is sk.Sum:
        return _terms(kernel.k1, place) + _terms(kernel.k2, place + kernel.k1.n_dims)
    return [(kernel, place)]


def _constant(kernel: Any, place: int) -> int | None:
    if type(kernel) is sk.ConstantKernel:
        return place if kernel.n_dims else None
    if type(kernel) is sk.Product:
        left = _constant(kernel.k1, place)
        return _constant(kernel.k2, place + kernel.k1.n_dims) if left is None else left
    return None


def _leaves(kernel: Any) -> list[Any]:
    if isinstance(kernel, sk.KernelOperator):
        return _leaves(kernel.k1) + _leaves(kernel.k2)
    if isinstance(kernel, sk.Exponentiation):
        return _leaves(kernel.kernel)
    return [kernel]


def declared_psd(kernel: Any) -> bool:
    """Whether every part is psd on any data: scikit-learn's own mostly, a user's may not be."""
    for part in _leaves(kernel):
        if isinstance(part, AsSklearn):
            if part.kernel.traits.psd is not True:
                return False
        elif type(part).__module__ != sk.__name__ or isinstance(part, UNPROVEN_KERNELS):
            return False
    return True


def given_rows(kernel: Any, X: Any) -> GivenRows:
    """The fit's precomputed matrix with rows of new objects beside it, in the units that were learned."""
    clean = signal(kernel)
    own = clean.k2 if isinstance(clean, sk.Product) else clean
    return GivenRows(own.kernel.S, np.asarray(X) * amplitude_of(kernel))
