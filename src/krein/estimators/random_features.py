"""Random Fourier features of stationary kernels, by a dense random matrix or by fast Hadamard transforms (Fastfood).

In: rows and a stationary kernel. Out: z(x) = sqrt(2 / D) cos(Wᵀ x + b), with E[z(x)ᵀ z(y)] = k(x, y). By Bochner's
theorem the columns of W are draws from the Fourier transform of k (Rahimi and Recht 2007). That of a kernel of |x - y|
is a Gaussian of random width, that of the Laplacian kernel a product of Cauchy distributions.

Fastfood (Le, Sarlós and Smola 2013) replaces d Gaussian columns by S H G P H B / sqrt(d): diagonal matrices (S lengths,
G Gaussian, B signs), a permutation P and the Hadamard matrix H. D features take D log d operations per row and O(D)
numbers, instead of D d.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from krein.arrays import Array, Indices, seed_from, stream, strips
from krein.errors import InputError, one_of, whole_number
from krein.estimators.base import validated
from krein.kernels import RBF, Kernel, Laplacian, Matern, RationalQuadratic
from krein.kernels.collections import is_sparse
from krein.kernels.names import kernel_for
from krein.kernels.validation import check_no_dates, check_no_mask
from krein.pieces.opening import check_no_path

__all__ = ["Fastfood", "RandomFourierFeatures", "hadamard"]

# Features are computed for strips of rows of at most STRIP_ENTRIES numbers.
STRIP_ENTRIES = 2**22
# The cosine of LARGEST_ANGLE has four digits.
LARGEST_ANGLE = 1e12


@dataclass(frozen=True, eq=False)
class Fastfood:
    """x -> V x, V of stacks of d structured random rows, d the next power of 2 above the number of inputs."""

    signs: Array  # B, (stacks, d)
    places: Indices  # P
    normal: Array  # G
    lengths: Array  # S / sqrt(d): a row of V is as long as a column of W

    @classmethod
    def draw(cls, n_inputs: int, lengths: Array, rng: np.random.Generator) -> Fastfood:
        """Draw V of D rows, ``lengths`` being the ratio of each to a row of standard normal numbers, (D,)."""
        d = 1 << max(0, n_inputs - 1).bit_length()
        stacks = -(-len(lengths) // d)
        signs = rng.choice([-1.0, 1.0], (stacks, d))
        places = np.stack([rng.permutation(d) for _ in range(stacks)])
        normal = rng.standard_normal((stacks, d))
        chi = np.sqrt(rng.chisquare(d, (stacks, d)))  # the length of a Gaussian row
        own = np.ones(stacks * d)
        own[: len(lengths)] = lengths
        size = math.sqrt(d) * np.linalg.norm(normal, axis=1, keepdims=True)
        return cls(signs, places, normal, own.reshape(stacks, d) * chi / size)

    def __call__(self, X: Array) -> Array:
        """X Vᵀ, (n, stacks * d)."""
        stacks, d = self.signs.shape
        padded = np.zeros((len(X), 1, d))
        padded[:, 0, : X.shape[1]] = X
        v = hadamard(padded * self.signs)  # (n, stacks, d)
        v = np.take_along_axis(v, np.broadcast_to(self.places, v.shape), axis=2) * self.normal
        return np.asarray(hadamard(v) * self.lengths).reshape(len(X), stacks * d)


def hadamard(x: Array) -> Array:
    """H x along the last axis, whose length is a power of 2; entries of H are 1 and -1."""
    x, d, half = np.array(x, dtype=np.float64), x.shape[-1], 1
    while half < d:
        pairs = x.reshape(*x.shape[:-1], d // (2 * half), 2, half)
        first, second = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([first + second, first - second], axis=-2).reshape(x.shape)
        half *= 2
    return x


@dataclass(eq=False, repr=False)
class RandomFourierFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Random features of a stationary kernel: `transform(A) @ transform(B).T` approximates k(A, B).

    They do not depend on the data, so a fit costs nothing and features can be computed row by row. The error of an
    entry falls as 1 / sqrt(n_components), more slowly than that of `krein.MEKA`, which follows the data. For the RBF
    kernel with method="dense" the method is that of `sklearn.kernel_approximation.RBFSampler`.

    Parameters
    ----------
    n_components : int, default=100
        Number of features.
    kernel : {"rbf", "laplacian", "matern", "rational-quadratic"} or Kernel, default="rbf"
        A stationary psd kernel of these, by name or as an object of krein.
    gamma : {"scale", "auto"}, float or None, default="scale"
        Coefficient of "rbf" and "laplacian", as in `krein.SVC`.
    kernel_params : dict, default=None
        Further parameters of a kernel given by name, for instance ``{"nu": 2.5}``.
    method : {"dense", "fastfood"}, default="dense"
        Multiply by a dense random matrix, or by fast Hadamard transforms. Fastfood is faster and smaller for many
        columns. It is for kernels of the Euclidean distance, so not for "laplacian".
    random_state : int, RandomState, Generator or None, default=None
        Seed of the random numbers.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel, bound to the data.
    random_weights_ : array of shape (n_features_in_, n_components) or Fastfood
        W, or the factors of its transpose.
    random_offset_ : array of shape (n_components,)
        The phases b.

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> X = np.random.default_rng(0).normal(size=(30, 3))
    >>> Z = krein.RandomFourierFeatures(20_000, kernel=krein.Matern(nu=1.5), random_state=0).fit_transform(X)
    >>> bool(np.abs(Z @ Z.T - krein.Matern(nu=1.5)(X)).max() < 0.05)
    True
    """

    n_components: int = 100
    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: Any = "scale"
    kernel_params: dict[str, Any] | None = None
    method: str = "dense"
    random_state: Any = None

    def fit(self, X: Any, y: Any = None) -> RandomFourierFeatures:
        """Bind the kernel to X and draw the random numbers."""
        whole_number("n_components", self.n_components, 1)
        one_of("method", self.method, ("dense", "fastfood"))
        X = self._vectors(X, reset=True)
        self.kernel_: Kernel = kernel_for(self.kernel, X, gamma=self.gamma, params=self.kernel_params)
        rng, shape = stream(seed_from(self.random_state)), (X.shape[1], int(self.n_components))
        self.random_weights_: Any
        if isinstance(self.kernel_, Laplacian):
            if self.method == "fastfood":
                raise InputError(
                    "method='fastfood' is for kernels of the Euclidean distance; the Laplacian kernel has |x - y|_1. "
                    "Use method='dense', or Matern(nu=0.5), which is exp(-|x - y|)."
                )
            assert self.kernel_.gamma is not None  # bound
            self.random_weights_ = self.kernel_.gamma * rng.standard_cauchy(shape)
        else:
            widths = _widths(self.kernel_, shape[1], rng)
            if self.method == "fastfood":
                self.random_weights_ = Fastfood.draw(shape[0], widths, rng)
            else:
                self.random_weights_ = rng.standard_normal(shape) * widths / _units(self.kernel_, shape[0])[:, None]
        self.random_offset_ = rng.uniform(0.0, 2.0 * math.pi, shape[1])
        self._n_features_out = shape[1]
        return self

    def transform(self, X: Any) -> Array:
        """The features of X, (n, n_components), in the float type of X."""
        check_is_fitted(self)
        X = self._vectors(X, reset=False)
        W, count = self.random_weights_, len(self.random_offset_)
        out = np.empty((X.shape[0], count), dtype=X.dtype)
        for part in strips(X.shape[0], max(count, X.shape[1]), STRIP_ENTRIES):
            rows = X[part].astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):
                if isinstance(W, Fastfood):
                    rows = rows.toarray() if is_sparse(rows) else rows
                    angles = W(rows / _units(self.kernel_, X.shape[1]))[:, :count]
                else:
                    angles = rows @ W
                angles = angles + self.random_offset_
            if not np.abs(angles).max(initial=0.0) <= LARGEST_ANGLE:
                raise InputError(
                    f"{self.kernel_!r} is so narrow beside entries of {np.abs(X[part]).max():.3g} that random angles "
                    "have few digits or none. Centre the data, rescale them, or choose a wider kernel."
                )
            out[part] = math.sqrt(2.0 / count) * np.cos(angles)
        return out

    def _vectors(self, X: Any, reset: bool) -> Any:
        check_no_path(X, "RandomFourierFeatures")
        check_no_mask("X", X)
        check_no_dates("X", X)
        return validated(self, X, "no_validation", reset=reset, accept_sparse="csr", dtype=(np.float64, np.float32))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _widths(kernel: Kernel, count: int, rng: np.random.Generator) -> Array:
    """The widths of the Gaussians whose mixture is the Fourier transform of the kernel, one for each feature."""
    if isinstance(kernel, RBF):
        return np.full(count, 1.0 if kernel.length_scale is not None else math.sqrt(2.0 * float(kernel.gamma or 0.0)))
    if isinstance(kernel, Matern):  # a multivariate t distribution of 2 nu degrees of freedom
        return np.asarray(np.sqrt(2.0 * kernel.nu / rng.chisquare(2.0 * kernel.nu, count)))
    if isinstance(kernel, RationalQuadratic):
        return np.asarray(np.sqrt(rng.gamma(kernel.alpha, 1.0 / kernel.alpha, count)))
    raise InputError(
        f"RandomFourierFeatures knows the Fourier transforms of RBF, Laplacian, Matern and RationalQuadratic; got "
        f"{kernel!r}. krein.MEKA has features of every kernel."
    )


def _units(kernel: Any, n_inputs: int) -> Array:
    """The length scale of each feature."""
    length_scale = 1.0 if kernel.length_scale is None else kernel.length_scale
    return np.broadcast_to(np.asarray(length_scale, dtype=np.float64), n_inputs)
