"""MEKA as features: objects in, vectors out whose inner products are the corrected kernel, for any linear model.

x -> u(x)ᵀ V λ^(1/2), where M = V diag(λ) Vᵀ: columns are the eigendirections of the whole matrix, largest first. A
block-sparse core that falls apart has a block-diagonal V, and the features are as sparse.

Of a matrix taken whole, u(x) = k(x, X) U M⁻¹: the features are k(x, X) W with one matrix W, which is all that is kept.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from krein.arrays import EPS, Array, grouped, seed_from
from krein.errors import IndefiniteError, InputError, warn, whole_number
from krein.estimators.base import KernelTransformer
from krein.estimators.decision import KernelExpansion, copied, mapped, seen_by
from krein.estimators.eigenpairs import Search, leading
from krein.estimators.outside import fits_outside, predicts_outside
from krein.estimators.route import Exact
from krein.factorization import Factorization
from krein.factorization.core import DENSE_LIMIT, SMALL, has_spectrum, is_dense, to_dense
from krein.factorization.eigensystem import eigensystem
from krein.kernels import count_objects
from krein.kernels.collections import is_sparse, rows
from krein.progress import progress_bar

__all__ = ["MEKA", "feature_map"]

# Features are computed OUTPUT_ENTRIES numbers at a time.
OUTPUT_ENTRIES = 2**24


@dataclass(eq=False, repr=False)
class MEKA(KernelTransformer):
    """Explicit features of any symmetric kernel: `transform(A) @ transform(B).T` approximates k(A, B).

    A linear model on these features is a kernel machine, for example ``make_pipeline(MEKA(), LinearSVC())``. The inner
    products are those of the corrected, approximated kernel. The features are a dense (n, r) matrix, r the sum of the
    ranks of all blocks. The class is named after the paper's method, whose Algorithm 1 is ``coupling="pairwise"``.
    ``n_components``, float32 input (or ``dtype="float32"`` or smaller) and ``sparse_output`` reduce its memory.

    Parameters
    ----------
    n_components : int, default=None
        Number of features, those of the largest eigenvalues. None keeps all with a nonzero eigenvalue.
    sparse_output : bool or "auto", default=False
        Return a CSR matrix. "auto" does so if it takes at most half the memory, which requires a core of several groups
        of blocks without couplings between them.
    correction : {"auto", "none", "shift", "clip", "flip", "square"} or float, default="auto"
        Treatment of an indefinite kernel, whose matrix is not one of inner products. "auto" is "flip". With "none",
        negative eigenvalues are an error. "shift" gives the features of "clip", with a warning: a shift changes only
        the similarity of an object to itself, which features cannot represent.
    kernel, gamma, degree, coef0, kernel_params, n_blocks, rank, coupling, drop, max_error, max_memory, dtype, \
approximation, policy, random_state, n_jobs, verbose, memory_limit, workdir
        See `krein.estimators.base.KernelMachine`.

    Attributes
    ----------
    eigenvalues_ : array of shape (n_features_out_,)
        Eigenvalues of the corrected matrix, descending. They are the squared norms of the columns of
        ``fit_transform(X)``.
    n_features_out_ : int
        Number of features.
    route_, approximation_, correction_, n_negative_, relative_error_
        See `krein.estimators.base.KernelMachine`.

    Examples
    --------
    >>> import krein
    >>> X = krein.datasets.mixture(300, n_features=4, random_state=0).X
    >>> features = krein.MEKA(n_blocks=3, rank=8, random_state=0).fit_transform(X)
    >>> features.shape  # their inner products are the approximated kernel
    (300, 24)
    """

    n_components: int | None = None
    _: KW_ONLY
    sparse_output: bool | str = False

    @fits_outside
    def fit(self, X: Any, y: Any = None) -> MEKA:
        """Approximate the kernel matrix of X and take the root of its core."""
        self._fit(X)
        return self

    def _fit(self, X: Any) -> Array | None:
        """Fit; the features of X where the fit is exact and they are there already."""
        if self.n_components is not None:
            whole_number("n_components", self.n_components, 1, ", or None")
        if not (isinstance(self.sparse_output, bool) or self.sparse_output == "auto"):
            raise InputError(f'sparse_output must be True, False or "auto"; got {self.sparse_output!r}.')
        objects, _, kernel = self._start(X)
        self._forget("_expansion", "_map", "_uncorrected")
        self._decide(objects, kernel)
        a = self._settle(self._build(objects, kernel))
        f = a.factorization
        if self.n_negative_ and self.correction_ == "none":
            raise IndefiniteError(
                f"Features have a psd matrix of inner products, but {a.kernel!r} gave {self.n_negative_} negative "
                f"eigenvalues of {f.rank}. Pass correction='flip' to use their magnitude, 'clip' to drop them."
            )
        if f.shift > 0.0:
            warn(
                f"The shift of {f.shift:.3g} that makes {a.kernel!r} psd belongs to each object's similarity to itself "
                "alone, which features cannot say: their inner products are the matrix without the shift and without "
                "its negative part, as with correction='clip'."
            )
        self._map, self.eigenvalues_ = feature_map(f, self.n_components, seed_from(self.random_state))
        signs = np.where(self._map.T @ f.project(np.ones(f.shape[0])) < 0.0, -1.0, 1.0)  # the sum of a feature is >= 0
        self._map = (self._map @ sp.diags(signs)).tocsr() if is_sparse(self._map) else self._map * signs
        self.n_features_out_ = len(self.eigenvalues_)
        if isinstance(self.route_, Exact):
            inner = self._map.toarray() if is_sparse(self._map) else self._map
            weights = mapped(self._uncorrected.factorization, inner)
            self._expansion = KernelExpansion(self._kernel, copied(a.objects), weights)
            self._forget_matrix()
            del self._map
            return f.lift(inner)
        return None

    @fits_outside
    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit, and return the features of X: what `transform` gives, without evaluating the kernel again."""
        exact = self._fit(X)
        if exact is not None:
            return self._returned(exact, X)
        f = self.approximation_.factorization
        return self._features(f.shape[0], lambda part: f.basis_rows(np.arange(part.start, part.stop)), X)

    @predicts_outside
    def transform(self, X: Any) -> Any:
        """The features of X, (n_new, n_features_out_)."""
        checked = self._new(X)
        if hasattr(self, "_expansion"):
            return self._returned(self._expansion(checked, self.verbose), X)
        a, objects = seen_by(self.approximation_, checked)
        return self._features(count_objects(objects), lambda part: a.extend(rows(objects, part)), X)

    def _returned(self, features: Array, X: Any) -> Any:
        """The features of an exact fit, in the type and form they are returned in; none of them are zero."""
        typed = features.astype(self._precision(X), copy=False)
        return sp.csr_matrix(typed) if self.sparse_output is True else typed

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_

    def _features(self, n: int, basis: Any, X: Any) -> Any:
        """u V λ^(1/2) in runs of rows, dense or sparse; ``basis`` gives the rows of U for a run of objects."""
        kind = self._precision(X)
        width = self.n_features_out_
        step = max(1, OUTPUT_ENTRIES // max(1, width, *self.approximation_.factorization.ranks))
        parts = [slice(start, min(start + step, n)) for start in range(0, n, step)]
        shown = parts if len(parts) == 1 else progress_bar(parts, what="features", verbose=self.verbose)
        if self._is_sparse(kind):
            inner = sp.csr_matrix(self._map)
            return sp.vstack([(basis(part) @ inner).astype(kind) for part in shown], format="csr")
        out = np.zeros((n, width), dtype=kind)
        for part in shown:
            self._fill(out[part], basis(part))
        return out

    def _fill(self, out: Array, u: sp.csr_matrix) -> None:
        """out = u W, cluster by cluster, as each row of u has the columns of one block: BLAS, where CSR has none."""
        f = self.approximation_.factorization
        filled = np.flatnonzero(np.diff(u.indptr))  # a block of rank 0 has no columns
        stops = np.array([cols.stop for _, cols in f.spans])
        for i, here in grouped(np.searchsorted(stops, u.indices[u.indptr[filled]], side="right")):
            rows = filled[here]
            local = u.data[u.indptr[rows][:, None] + np.arange(f.ranks[i])]
            inner: Any = self._map[f.spans[i][1]]
            if is_sparse(inner):
                met = np.unique(inner.indices)
                out[np.ix_(rows, met)] = local @ inner[:, met].toarray()
            else:
                out[rows] = local @ inner

    def _is_sparse(self, kind: Any) -> bool:
        """Whether to return CSR; "auto" counts how many features an object of each block has, on average."""
        if isinstance(self.sparse_output, bool):
            return self.sparse_output
        table: Any = self._map
        if not is_sparse(table):
            return False
        f = self.approximation_.factorization
        met = [len(np.unique(table[cols].indices)) for _, cols in f.spans]
        stored = sum(m * size for m, size in zip(met, f.bases.sizes, strict=True)) * (np.dtype(kind).itemsize + 4)
        return bool(2 * stored <= f.shape[0] * self.n_features_out_ * np.dtype(kind).itemsize)

    def _precision(self, X: Any) -> Any:
        return super()._precision(X) if str(self.dtype) in ("auto", "float64") else np.float32


def feature_map(f: Factorization, wanted: int | None, seed: int) -> tuple[Any, Array]:
    """Return (W, values) with W Wᵀ the positive part of the core, its columns by falling eigenvalue.

    W is CSR where the core falls apart. Where few are wanted, or the core is too large for all of its eigenvectors, the
    leading ones come from Lanczos.
    """
    sparse = not is_dense(f.core)
    few = wanted is not None and 10 * wanted < f.rank and f.rank > SMALL
    if (few and not sparse) or not has_spectrum(f.core):
        if wanted is None:
            raise InputError(
                f"All features need all eigenvectors of a core of {f.rank} rows, over the limit of {DENSE_LIMIT}. Pass "
                "n_components for the leading ones, or build with fewer blocks."
            )
        pairs = leading(f.core.__matmul__, lambda: to_dense(f.core), f.rank, wanted, Search(seed=seed))
        keep = _positive(pairs.values, f, wanted)
        return pairs.vectors[:, keep] * np.sqrt(pairs.values[keep]), pairs.values[keep]
    system = eigensystem(f.core, f.ranks)
    keep = _positive(system.values, f, wanted)
    values = system.values[keep]
    scale = np.sqrt(np.maximum(values, 0.0))
    if len(system.components) == 1:
        return system.components[0].vectors[:, keep] * scale, values
    places = np.concatenate([np.repeat(part.places, len(part.values)) for part in system.components])
    starts = np.cumsum([0, *(len(part.values) for part in system.components)])
    columns = np.concatenate(
        [
            np.tile(np.arange(start, start + len(part.values)), len(part.values))
            for start, part in zip(starts, system.components, strict=False)
        ]
    )
    entries = np.concatenate([part.vectors.ravel() for part in system.components])
    vectors: Any = sp.csc_matrix((entries, (places, columns)), shape=(f.rank, f.rank))
    return (vectors[:, keep] @ sp.diags(scale)).tocsr(), values


def _positive(values: Array, f: Factorization, wanted: int | None) -> Any:
    """Which eigenvalues are above rounding, largest first; one at least, so that there are features."""
    order = np.argsort(-values, kind="stable")
    tiny = 10 * max(1, f.rank) * EPS * float(np.abs(values).max(initial=0.0))
    count = max(1, int((values > tiny).sum()))
    return order[: count if wanted is None else min(count, wanted)]
