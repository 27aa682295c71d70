"""Kernel PCA: objects in, their coordinates along the leading principal directions out.

An exact fit centres the kernel's own matrix, H K H with H = I - 11ᵀ/n, and takes its leading eigenpairs (λ, v). A new
object has the coordinates (k(x, X) - m) v / √λ with m the mean row of K: v sums up to zero, so that the rest of the
centring cancels.

An approximated fit centres K = U M Uᵀ + s I. The Gram matrix of HU is I - ggᵀ/n with g = Uᵀ1, the identity but for one
direction, so its root is known in closed form and the eigenproblem stays r x r, whatever n is.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_array, check_is_fitted

from krein.approximation import Approximation
from krein.arrays import EPS, Array, seed_from, strips
from krein.choosing import approximate, whole_approximation
from krein.errors import IndefiniteError, InputError, is_number, warn, whole_number
from krein.estimators.base import KernelTransformer
from krein.estimators.decision import Expansion, FactoredExpansion, KernelExpansion, copied, mapped
from krein.estimators.eigenpairs import Pairs, Search, leading, leading_of_matrix
from krein.estimators.kernel_matrix import kernel_matrix
from krein.estimators.outside import fits_outside, predicts_outside
from krein.estimators.ridge_system import solve_exactly, solve_factored
from krein.estimators.route import Exact, Features, Given, Handed, is_psd
from krein.factorization import Factorization
from krein.factorization.core import DENSE_LIMIT, core_frobenius, to_dense
from krein.kernels import Kernel, Precomputed, is_vectors
from krein.kernels.collections import is_sparse
from krein.policy import check_policy

__all__ = ["Centred", "KernelPCA"]

# Where all components are asked for and there are too many, MOST_COMPONENTS are kept.
MOST_COMPONENTS = 256
# The signs of eigenvectors are computed in strips of STRIP_ENTRIES entries.
STRIP_ENTRIES = 2**22
# The constant vector lies in the span of U if its distance is at most SPAN_DISTANCE.
SPAN_DISTANCE = 1e-12
# A matrix whose largest entry lies outside USUAL_SCALE is scaled, because its square would over- or underflow.
USUAL_SCALE = 1e-100, 1e100


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
        return size if size > SPAN_DISTANCE else 0.0

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
        core = to_dense(self.factorization.core)
        by = self.outside - 1.0
        image = core @ self.direction
        cross = np.outer(self.direction, by * image + (by**2 / 2.0) * (self.direction @ image) * self.direction)
        return np.asarray(core + (cross + cross.T))

    def noise(self) -> float:
        """What rounding leaves of an eigenvalue that is zero."""
        core = self.factorization.core
        size = core_frobenius(core)
        return float(10 * self.factorization.rank * EPS * size)

    def lift(self, w: Array) -> Array:
        """The n-vectors with coordinates w (r, p) in the orthonormal basis of HU; each sums to zero."""
        V = self.factorization.lift(self.inverse_root(w))
        return np.asarray(V - V.mean(0))


@dataclass(eq=False, repr=False)
class KernelPCA(KernelTransformer):
    """Kernel principal component analysis with any symmetric kernel, for any number of rows.

    The parameters are those of `sklearn.decomposition.KernelPCA`. Components are equal to scikit-learn's, signs
    included, up to ``policy.components_rows`` rows of a psd kernel and ``policy.exact_rows`` rows of any other. With
    more rows, an eigenproblem of the size of the approximation's rank replaces the n x n one.

    Parameters
    ----------
    n_components : int, default=None
        Number of components. None keeps all with a nonzero eigenvalue. If the eigenproblem has more than 6000 rows, it
        keeps at most 256, with a warning.
    alpha : float, default=1.0
        Ridge penalty of the regression behind `inverse_transform`.
    fit_inverse_transform : bool, default=False
        Learn `inverse_transform`, a kernel ridge regression from the components back to X. It is exact up to
        ``policy.ridge_rows`` rows.
    eigen_solver : {"auto", "dense", "arpack", "randomized"}, default="auto"
        As in scikit-learn. "auto" uses "arpack" above 300 rows if at most one component in 16 is wanted, and checks
        that no component was missed. Otherwise, or if that converges slowly, it uses "dense".
    tol : float, default=0
        Convergence tolerance of "arpack".
    max_iter : int, default=None
        Largest number of iterations of "arpack".
    iterated_power : int or "auto", default="auto"
        Number of power iterations of "randomized".
    remove_zero_eig : bool, default=False
        Drop components with eigenvalue zero even if ``n_components`` includes them.
    copy_X : bool, default=True
        Keep a copy of X, so that it may be changed after the fit.
    correction : {"auto", "none", "shift", "clip", "flip", "square"}, default="auto"
        Treatment of an indefinite kernel. "auto" is "clip": components with positive eigenvalues of the centred matrix,
        as in scikit-learn. With "none", a significant negative eigenvalue among the wanted components is an error.
        "flip", "square" and "shift" are applied before centring and need all eigenvalues. "shift" changes
        ``eigenvalues_`` but no component.
    kernel : str, Kernel or callable, default="linear"
    gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components,)
        Eigenvalues of the centred matrix, descending.
    eigenvectors_ : array of shape (n, n_components)
        Eigenvectors of the centred matrix, zero where the eigenvalue is zero. Those of an approximation are computed on
        first access.
    dual_coef_, X_transformed_fit_ : array
        Coefficients and inputs of the regression behind `inverse_transform`.
    X_fit_, gamma_, n_features_in_, feature_names_in_
        As in scikit-learn. Pickles and files of an exact fit with kernel="precomputed" do not hold the matrix.
    route_, approximation_, correction_, n_negative_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import krein
    >>> X = krein.datasets.mixture(300, n_features=4, random_state=0).X
    >>> components = krein.KernelPCA(n_components=2, kernel="rbf").fit_transform(X)
    >>> components.shape
    (300, 2)
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
    _limit: ClassVar[str] = "components_rows"

    @fits_outside
    def fit(self, X: Any, y: Any = None) -> KernelPCA:
        """Find the leading principal directions of X in the kernel's feature space."""
        search = self._search()
        checks: dict[str, Any] = {"copy": self.copy_X} if self._vectors(X) else {}
        objects, _, kernel = self._start(X, **checks)
        self._forget("_eigenvectors", "_shift", "_vectors_inside", "_centred", "_uncorrected")
        self._forget("_preimage", "dual_coef_", "X_transformed_fit_")
        route = self._decide(objects, kernel)
        self.gamma_ = getattr(kernel, "gamma", None) or self._usual_gamma()
        if isinstance(route, Exact) and (route.psd or self.correction in ("auto", "none", "clip")):
            self._fit_exactly(objects, kernel, route, search)
        else:
            a = self._settle(self._build(objects, kernel), lambda _: "clip")
            self._fit_factored(a, search)
            objects, kernel = a.objects, a.kernel
        if self.fit_inverse_transform:
            self._fit_preimage(objects, kernel)
        return self

    @fits_outside
    def fit_transform(self, X: Any, y: Any = None) -> Array:
        """Fit, and return the coordinates of X: what `transform` gives, without evaluating the kernel again."""
        return self.fit(X)._coordinates().astype(self._precision(X), copy=False)

    @predicts_outside
    def transform(self, X: Any) -> Array:
        """The coordinates of X along the principal directions, (n_new, n_components)."""
        objects = self._new(X)
        centred: Array = self._expansion(objects, self.verbose) - self._offset
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
        stored: Array | None = vars(self).get("_eigenvectors")
        return np.asarray(self._centred.lift(self._vectors_inside)) if stored is None else stored

    @property
    def X_fit_(self) -> Any:
        """What was fitted: the rows, or the precomputed matrix."""
        check_is_fitted(self)
        if isinstance(self._expansion, FactoredExpansion):
            a = self._uncorrected
            return a.kernel.S if isinstance(a.kernel, Precomputed) else a.objects
        if not self._precomputed:
            expansion: Any = self._expansion
            return expansion.support
        if not hasattr(self, "_training"):
            raise AttributeError("X_fit_, the precomputed matrix of the fit, was not saved with the model.")
        kernel: Any = self._training[1]
        return kernel.S

    @property
    def _n_features_out(self) -> int:
        return len(self.eigenvalues_)

    # -- the fit ---------------------------------------------------------------------------------------------------

    def _search(self) -> Search:
        if self.n_components is not None:
            whole_number("n_components", self.n_components, 1, ", or None")
        if not (is_number(self.alpha) and self.alpha >= 0.0):
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

    def _fit_exactly(self, objects: Any, kernel: Kernel, route: Exact, search: Search) -> None:
        """The leading eigenpairs of the kernel's own matrix, centred in place."""
        objects = self._use_exactly(objects, kernel)
        K = kernel_matrix(kernel, objects)
        if not route.psd:
            self._settle_exactly(K, kernel, "clip")
        n, peak = len(K), float(max(K.max(), -K.min()))
        unit = 1.0 if USUAL_SCALE[0] < peak < USUAL_SCALE[1] else peak or 1.0
        if unit != 1.0:
            K /= unit
        noise = 10 * n * EPS * float(np.linalg.norm(K))
        mean = K.mean(1)
        K -= mean
        K -= (mean - mean.mean())[:, None]
        pairs = leading_of_matrix(K, self._wanted(n), search)
        del K
        values, vectors = self._kept(Pairs(pairs.values * unit, pairs.vectors), noise * unit, n, objects)
        vectors = vectors - vectors.mean(0)
        vectors *= _signs_of(vectors)
        self.eigenvalues_, self._eigenvectors, self._shift = values, vectors, 0.0
        weights = vectors * _inverse_root(values)
        self._expansion: Expansion = KernelExpansion(self._kernel, objects, weights)
        self._offset = (mean * unit) @ weights

    def _fit_factored(self, a: Approximation, search: Search) -> None:
        """The leading eigenpairs of a factored matrix, centred: of a kernel's own matrix if that was decomposed."""
        f = a.factorization
        centred = Centred(f)
        pairs = leading(centred.product, centred.dense, f.rank, self._wanted(f.rank), search)
        pairs = Pairs(pairs.values + f.shift, pairs.vectors)
        values, inside = self._kept(pairs, max(centred.noise(), 10 * EPS * f.shift), f.shape[0], a.objects)
        inside = inside * _signs(centred, inside)
        inner = f.core @ (centred.root(inside) * _inverse_root(values))  # a shift has no part in new objects
        self.eigenvalues_, self._offset = values, centred.mean @ inner
        if isinstance(self.route_, Exact):
            self._eigenvectors, self._shift = centred.lift(inside), f.shift
            self._expansion = KernelExpansion(
                self._kernel, copied(a.objects), mapped(self._uncorrected.factorization, inner)
            )
            self._forget_matrix()
        else:  # U's coordinates are enough: no n-vector per component
            self._vectors_inside, self._centred = inside, centred
            self._expansion = FactoredExpansion(a, inner)

    def _wanted(self, n_rows: int) -> int:
        if self.n_components is not None:
            return min(n_rows, int(self.n_components))
        if n_rows <= DENSE_LIMIT:
            return n_rows
        warn(
            f"n_components=None asks for all components, but the eigenproblem has {n_rows} rows, over {DENSE_LIMIT}. "
            f"The {MOST_COMPONENTS} leading ones are kept; pass n_components for another number."
        )
        return MOST_COMPONENTS

    def _kept(self, pairs: Pairs, noise: float, n: int, objects: Any) -> tuple[Array, Array]:
        """The eigenvalues and vectors of the components: zero where the eigenvalue is, or left out if that is asked."""
        values = self._cleaned(pairs.values, noise, objects)
        keep = values > 0.0
        vectors = pairs.vectors * keep
        if self.remove_zero_eig or self.n_components is None:
            return values[keep], vectors[:, keep]
        missing = min(n, self.n_components) - len(values)  # a factorization may have fewer than were asked for
        return np.append(values, np.zeros(missing)), np.pad(vectors, ((0, 0), (0, missing)))

    def _cleaned(self, values: Array, noise: float, objects: Any) -> Array:
        """Eigenvalues with rounding errors, and what the correction takes away, set to zero."""
        top = float(values.max(initial=0.0))
        low = float(values.min(initial=0.0))
        if self.correction_ != "clip" and low < -max(1e-5 * top, 1e-10, noise):
            raise IndefiniteError(
                f"There are significant negative eigenvalues ({low:.3g}, the largest is {top:.3g}) among the "
                f"{len(values)} that were asked for, and a component needs a positive one. Ask for fewer components, "
                "or pass correction='clip' to leave these out, 'flip' to use their magnitude."
            )
        held = self._training[1].S if isinstance(self._training[1], Precomputed) else objects
        single = np.dtype(getattr(held, "dtype", np.float64)) == np.float32
        return np.where(values > max((2e-7 if single else 1e-12) * top, noise), values, 0.0)

    def _coordinates(self) -> Array:
        """What `transform` gives for the rows of the fit: √λ v, or (λ - s) v / √λ with a shift s, which has no part."""
        if isinstance(self._expansion, FactoredExpansion):
            f = self._expansion.approximation.factorization
            return np.asarray(f.lift(self._expansion.inner) - self._offset)
        values = self.eigenvalues_
        return np.asarray(self._eigenvectors * ((values - self._shift) * _inverse_root(values)))

    def _fit_preimage(self, objects: Any, kernel: Kernel) -> None:
        """Ridge regression from the components to the features of X."""
        if is_sparse(objects):
            raise NotImplementedError("Inverse transform not implemented for sparse matrices!")
        if not is_vectors(objects) or len(self.eigenvalues_) == 0:
            seen = f"{len(self.eigenvalues_)} components of {type(objects).__name__}"
            raise InputError(f"fit_inverse_transform needs rows of numbers and at least one component; got {seen}.")
        self.X_transformed_fit_ = Z = self._coordinates()
        targets = np.asarray(objects, dtype=np.float64)
        weights, ridges = np.ones(len(Z)), np.full(targets.shape[1], float(self.alpha))
        policy, route = check_policy(self.policy), self.route_
        exactly = isinstance(route, Exact) or (isinstance(route, Given) and route.request["rank"] != self.rank)
        if exactly and len(Z) <= policy.ridge_rows and is_psd(kernel, Z, policy):
            dual = solve_exactly(kernel, Z, weights, targets, ridges)
            if dual is not None:
                self.dual_coef_ = dual
                self._preimage: Expansion = KernelExpansion(kernel, Z, dual)
                return
        if isinstance(route, Exact) and len(Z) <= policy.exact_rows:
            raw = whole_approximation(Z, kernel, self.random_state)
        else:
            asked = {} if isinstance(route, Exact | Features | Handed) else route.request | {"dtype": "auto"}
            options = {"n_jobs": self.n_jobs, "random_state": self.random_state, "verbose": self.verbose}
            raw = approximate(Z, kernel, **asked, **options)
        b, low = raw, raw.factorization.ends().smallest
        if low + self.alpha <= 0.0 < -low - 1e3 * b.factorization.rank * EPS * b.factorization.ends().largest:
            warn(
                f"{kernel!r} is indefinite on the components too (smallest eigenvalue {low:.3g}, alpha "
                f"{self.alpha:g}): the pre-image regression uses its clipped matrix."
            )
            b = b.corrected("clip")
        self.dual_coef_, inner = solve_factored(b.factorization, weights, targets, ridges + b.factorization.shift)
        if isinstance(route, Exact) and len(Z) <= policy.exact_rows:
            self._preimage = KernelExpansion(kernel, Z, mapped(raw.factorization, inner))
        else:
            self._preimage = FactoredExpansion(b, inner)


def _inverse_root(values: Array) -> Array:
    """1 / √λ, and 0 where λ is."""
    return 1.0 / np.sqrt(np.where(values > 0.0, values, np.inf))


def _signs_of(V: Array) -> Array:
    """+-1 per column, so that the largest entry of each is positive: scikit-learn's convention."""
    peak = V[np.argmax(np.abs(V), axis=0), np.arange(V.shape[1])]
    return np.where(peak < 0.0, -1.0, 1.0)


def _signs(centred: Centred, inside: Array) -> Array:
    """The same for vectors given by their coordinates in the basis of a factorization."""
    signs = np.ones(inside.shape[1])
    for part in strips(inside.shape[1], centred.factorization.shape[0], STRIP_ENTRIES):
        signs[part] = _signs_of(centred.lift(inside[:, part]))
    return signs
