"""Kernel PCA on the factored matrix: objects in, their coordinates along the leading principal directions out.

Centring turns K = U M Uᵀ + s I into H K H, H = I - 11ᵀ/n. The Gram matrix of HU is I - ggᵀ/n with g = Uᵀ1, the identity
but for one direction, so its root is known in closed form and the eigenproblem stays r x r, whatever n is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_array, check_is_fitted

from krein.approximation import Approximation, approximate
from krein.arrays import Array, seed_from
from krein.blocksparse import DENSE_LIMIT, EPS, BlockSparse
from krein.errors import IndefiniteError, InputError, warn, whole_number
from krein.estimators.expansion import Expansion, expand, is_exact
from krein.estimators.leading import Search, as_matrix, leading
from krein.estimators.ridge_solve import solve_factored
from krein.estimators.transformer import KernelTransformer
from krein.factorization import Factorization
from krein.kernels import Precomputed, is_vectors
from krein.kernels.objects import is_sparse

__all__ = ["Centred", "KernelPCA"]

CAPPED = 256  # components that are kept where all were asked for and there are too many
STRIP = 2**22  # numbers of n-vectors held at a time while signs are looked up
INSIDE = 1e-12  # up to this distance the constant vector lies in the span of U


@dataclass(frozen=True, eq=False)
class Centred:
    """H (U M Uᵀ) H of a factorization, in an orthonormal basis of HU: the core G^(1/2) M G^(1/2), G = I - ggᵀ/n."""

    factorization: Factorization

    @cached_property
    def mean(self) -> Array:
        """g / n, (r,): the mean row of U."""
        n = self.factorization.shape[0]
        return self.factorization.project(np.ones(n)) / n

    @cached_property
    def direction(self) -> Array:
        """g / |g|, the one direction in which G is not the identity."""
        return self.mean / (float(np.linalg.norm(self.mean)) or 1.0)

    @cached_property
    def outside(self) -> float:
        """sqrt(1 - |g|²/n): how much of the constant vector lies outside the span of U.

        As the norm of what is outside: the difference itself would leave 1e-8 where there is nothing.
        """
        n = self.factorization.shape[0]
        rest = 1.0 - self.factorization.lift(n * self.mean)
        size = float(np.linalg.norm(rest)) / np.sqrt(n)
        return size if size > INSIDE else 0.0

    def root(self, w: Array) -> Array:
        """G^(1/2) w for w of shape (r,) or (r, p)."""
        return self._stretched(w, self.outside)

    def inverse_root(self, w: Array) -> Array:
        """G^(-1/2) w, and nothing in the direction that centring takes away."""
        return self._stretched(w, 1.0 / self.outside if self.outside else 0.0)

    def _stretched(self, w: Array, by: float) -> Array:
        along = self.direction @ w
        return w + (by - 1.0) * (self.direction * along if w.ndim == 1 else np.outer(self.direction, along))

    def product(self, w: Array) -> Array:
        """G^(1/2) M G^(1/2) w."""
        return self.root(self.factorization.core @ self.root(w))

    def dense(self) -> Array:
        """The same as a matrix: M and a change of rank two, symmetric to the last bit."""
        core = as_matrix(self.factorization.core)
        by = self.outside - 1.0
        image = core @ self.direction
        cross = np.outer(self.direction, by * image + (by**2 / 2.0) * (self.direction @ image) * self.direction)
        return np.asarray(core + (cross + cross.T))

    def noise(self) -> float:
        """What rounding leaves of an eigenvalue that is zero."""
        core = self.factorization.core
        size = core.frobenius() if isinstance(core, BlockSparse) else scipy.linalg.norm(core.ravel())  # of any scale
        return float(10 * self.factorization.rank * EPS * size)

    def lift(self, w: Array) -> Array:
        """The n-vectors with coordinates w (r, p) in the orthonormal basis of HU; each sums to zero."""
        V = self.factorization.lift(self.inverse_root(w))
        return np.asarray(V - V.mean(0))


@dataclass(eq=False, repr=False)
class KernelPCA(KernelTransformer):
    """Kernel principal component analysis, with scikit-learn's parameters, on data of any size.

    Up to 2000 rows it is scikit-learn's, to rounding and sign. Beyond, an eigenproblem of the factorization's rank
    takes the place of the n x n one.

    Parameters
    ----------
    n_components : int, optional
        How many components; None keeps all whose eigenvalue is not zero, but no more than 256 (with a warning) where
        the core has more than 6000 rows. A fit holds r numbers per component, not n.
    alpha : float
        The ridge of the pre-image regression behind `inverse_transform`.
    fit_inverse_transform : bool
        Learn `inverse_transform`, a kernel ridge regression from the components back to X. It is built like any other
        approximation, so it takes any n.
    eigen_solver : "auto", "dense", "arpack" or "randomized"
        For the eigenproblem of r rows. "auto" takes "arpack" where r is large and the components are few.
    tol, max_iter, iterated_power
        As in scikit-learn: of "arpack", "arpack" and "randomized".
    remove_zero_eig : bool
        Drop components with eigenvalue zero even if `n_components` asked for them.
    copy_X : bool
        Keep a copy of X, so that it may be changed after the fit.
    correction : "auto", "none", "shift", "clip", "flip" or "square"
        Of an indefinite kernel. "auto" is "clip": the components with positive eigenvalues of the centred matrix, which
        are scikit-learn's wherever that does not refuse. With "none" a significant negative eigenvalue among those
        asked for is an error. The others are applied before centring; "shift" changes `eigenvalues_` but no direction.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, max_error, max_memory, dtype, approximation,
    random_state, n_jobs, verbose
        See `krein.estimators.machine.KernelMachine`.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components,)
        Of the centred matrix, descending.
    eigenvectors_ : array of shape (n, n_components)
        Computed when asked for. Where an eigenvalue is zero the column is zero too.
    dual_coef_, X_transformed_fit_ : array
        Of the pre-image regression.
    X_fit_, gamma_, n_features_in_, feature_names_in_
        As in scikit-learn.
    approximation_, correction_, n_negative_, relative_error_
        What happened to the kernel matrix.
    """

    n_components: int | None = None
    _: KW_ONLY
    kernel: Any = "linear"
    gamma: Any = None
    coef0: float = 1
    alpha: float = 1.0
    fit_inverse_transform: bool = False
    eigen_solver: str = "auto"
    tol: float = 0
    max_iter: int | None = None
    iterated_power: int | str = "auto"
    remove_zero_eig: bool = False
    copy_X: bool = True

    _deferred: ClassVar[tuple[str, ...]] = ("clip",)  # after centring, where it is exact and costs nothing

    def fit(self, X: Any, y: Any = None) -> KernelPCA:
        """Find the leading principal directions of X in the kernel's feature space."""
        search = self._search()
        checks: dict[str, Any] = {"copy": self.copy_X} if self._vectors(X) else {}
        objects, _, kernel = self._start(X, **checks)
        a = self._settle(self._factor(objects, kernel), lambda _: "clip")
        self._direct = is_exact(a) and self.correction_ in ("none", "shift", "clip")
        self.gamma_ = getattr(kernel, "gamma", None) or self._usual_gamma()
        self._fit_components(a, search)
        if self.fit_inverse_transform:
            self._fit_preimage(a)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Fit, and return the coordinates of X: what `transform` gives, without evaluating the kernel again."""
        return self.fit(X)._coordinates().astype(self._precision(X), copy=False)

    def transform(self, X: Any) -> Array:
        """The coordinates of X along the principal directions, (n_new, n_components)."""
        objects = self._new(X)
        centred = self._expansion(objects, self.verbose) - self._offset
        return centred.astype(self._precision(X), copy=False)

    def inverse_transform(self, X: Any) -> Array:
        """Objects whose coordinates are near X, (n_new, n_features), by the regression learnt in the fit.

        As in scikit-learn the mean of the features, which centring takes away, is not given back.
        """
        check_is_fitted(self)
        if not self.fit_inverse_transform:
            raise NotFittedError(
                "The fit_inverse_transform parameter was not set to True when instantiating and hence the inverse "
                "transform is not available."
            )
        Z = check_array(X, dtype=(np.float64, np.float32))
        return self._preimage(Z).astype(self._precision(X), copy=False)

    @property
    def eigenvectors_(self) -> Array:
        """Eigenvectors of the centred matrix, (n, n_components), of unit length; zero where the eigenvalue is."""
        check_is_fitted(self)
        return np.asarray(self._centred.lift(self._vectors_inside))

    @property
    def X_fit_(self) -> Any:
        """What was fitted: the rows, or the precomputed matrix."""
        check_is_fitted(self)
        a = self._uncorrected
        return a.kernel.S if isinstance(a.kernel, Precomputed) else a.objects

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    # -- the fit ---------------------------------------------------------------------------------------------------

    def _search(self) -> Search:
        if self.n_components is not None:
            whole_number("n_components", self.n_components, 1, ", or None")
        if not (isinstance(self.alpha, int | float | np.number) and 0.0 <= self.alpha < np.inf):
            raise InputError(f"alpha must be a number of at least 0; got {self.alpha!r}.")
        if self.fit_inverse_transform and self._precomputed:
            raise InputError("Cannot fit_inverse_transform with a precomputed kernel: there are no features to go to.")
        search = Search(self.eigen_solver, self.tol, self.max_iter, self.iterated_power, seed_from(self.random_state))
        search.check()
        return search

    def _usual_gamma(self) -> Any:
        if self.gamma is None:
            return 1.0 / self.n_features_in_ if hasattr(self, "n_features_in_") else None
        return self.gamma

    def _fit_components(self, a: Approximation, search: Search) -> None:
        f = a.factorization
        centred = Centred(f)
        pairs = leading(centred.product, centred.dense, f.rank, self._wanted(f), search)
        values = self._cleaned(pairs.values + f.shift, max(centred.noise(), 10 * EPS * f.shift))
        keep = values > 0.0
        inside = pairs.vectors * keep
        if self.remove_zero_eig or self.n_components is None:
            values, inside = values[keep], inside[:, keep]
        else:  # as many as were asked for; those that the factorization does not have are zero
            missing = min(f.shape[0], self.n_components) - len(values)
            values, inside = np.append(values, np.zeros(missing)), np.pad(inside, ((0, 0), (0, missing)))
        inside = inside * _signs(centred, inside)
        self.eigenvalues_, self._vectors_inside, self._centred = values, inside, centred
        scale = 1.0 / np.sqrt(np.where(values > 0.0, values, np.inf))
        if self._direct:
            self._expansion = expand(a, centred.lift(inside) * scale, True)
        else:  # U's coordinates are enough: no n-vector per component
            self._expansion = Expansion(a, f.core @ (centred.root(inside) * scale))
        self._offset = centred.mean @ self._expansion.inner  # the mean over the rows of the fit; a shift has no part

    def _wanted(self, f: Factorization) -> int:
        if self.n_components is not None:
            return min(f.rank, int(self.n_components))
        if f.rank <= DENSE_LIMIT:
            return f.rank
        warn(
            f"n_components=None asks for all components, but the core has {f.rank} rows, over {DENSE_LIMIT}. The "
            f"{CAPPED} leading ones are kept; pass n_components for another number."
        )
        return CAPPED

    def _cleaned(self, values: Array, noise: float) -> Array:
        """Eigenvalues with rounding errors, and what the correction takes away, set to zero."""
        top = float(values.max(initial=0.0))
        low = float(values.min(initial=0.0))
        if self.correction_ != "clip" and low < -max(1e-5 * top, 1e-10, noise):
            raise IndefiniteError(
                f"There are significant negative eigenvalues ({low:.3g}, the largest is {top:.3g}) among the "
                f"{len(values)} that were asked for, and a component needs a positive one. Ask for fewer components, "
                "or pass correction='clip' to leave these out, 'flip' to use their magnitude."
            )
        single = np.dtype(getattr(self.X_fit_, "dtype", np.float64)) == np.float32
        return np.where(values > max((2e-7 if single else 1e-12) * top, noise), values, 0.0)

    def _coordinates(self) -> Array:
        """What `transform` gives for the rows of the fit: √λ v, or λ/√(λ + s) v with a shift, which has no part."""
        return np.asarray(self.approximation_.factorization.lift(self._expansion.inner) - self._offset)

    def _fit_preimage(self, a: Approximation) -> None:
        if is_sparse(a.objects):
            raise NotImplementedError("Inverse transform not implemented for sparse matrices!")
        if not is_vectors(a.objects) or len(self.eigenvalues_) == 0:
            seen = f"{len(self.eigenvalues_)} components of {type(a.objects).__name__}"
            raise InputError(f"fit_inverse_transform needs rows of numbers and at least one component; got {seen}.")
        Z = self._coordinates()
        asked = self._request(len(Z)) | {"dtype": "auto"}
        b = approximate(Z, a.kernel, **asked, n_jobs=self.n_jobs, random_state=self.random_state, verbose=self.verbose)
        direct = is_exact(b)
        low = b.factorization.ends().smallest
        if low + self.alpha <= 0.0 < -low - 1e3 * b.factorization.rank * EPS * b.factorization.ends().largest:
            warn(
                f"{a.kernel!r} is indefinite on the components too (smallest eigenvalue {low:.3g}, alpha "
                f"{self.alpha:g}): the pre-image regression uses its clipped matrix."
            )
            b, direct = b.corrected("clip"), False
        self.X_transformed_fit_ = Z
        targets = np.asarray(a.objects, dtype=np.float64)
        ridges = np.full(targets.shape[1], self.alpha + b.factorization.shift)
        self.dual_coef_, inner = solve_factored(b.factorization, np.ones(len(Z)), targets, ridges)
        self._preimage = expand(b, self.dual_coef_, direct, inner)


def _signs(centred: Centred, inside: Array) -> Array:
    """+-1 per column, so that the largest entry of each n-vector is positive: scikit-learn's convention."""
    signs = np.ones(inside.shape[1])
    for part in _strips(centred.factorization.shape[0], inside.shape[1]):
        V = centred.lift(inside[:, part])
        peak = V[np.argmax(np.abs(V), axis=0), np.arange(V.shape[1])]
        signs[part] = np.where(peak < 0.0, -1.0, 1.0)
    return signs


def _strips(n: int, columns: int) -> Iterator[slice]:
    step = max(1, STRIP // n)
    for start in range(0, columns, step):
        yield slice(start, min(start + step, columns))
