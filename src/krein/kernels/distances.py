"""Similarities made of distances: a named transformation of each, or double centring from a few references.

In: a kernel whose values are dissimilarities d(x, y) >= 0 with d(x, x) = 0, a given matrix of them for instance. Out: a
kernel that the rest of krein can use. Values below 0 and self-distances above it are refused, with their place: each
object is compared with itself when the kernel is bound to data.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from krein.arrays import Array, Indices, stream
from krein.errors import InputError, KernelError, one_of, positive, whole
from krein.kernels.collections import count_objects, is_sparse, rows, take
from krein.kernels.kernel import Anchored, Kernel, Traits, bound, inherit, note
from krein.kernels.similarities import as_kernel

__all__ = ["DoubleCentred", "FromDistances"]

# The scale is computed from the distances among SCALE_SAMPLE objects.
SCALE_SAMPLE = 64
# A self-distance of at most ROUNDED_ZERO times a typical distance counts as 0.
ROUNDED_ZERO = 1e-6


@dataclass(frozen=True)
class _Transformation:
    value: Callable[[Array], Array]  # of d / scale
    typical: Callable[[Array], float]  # the scale, from a sample
    low: float | None = 0.0


def _median(d: Array) -> float:
    return float(np.median(d[d > 0.0])) if (d > 0.0).any() else 1.0


TRANSFORMATIONS: Mapping[str, _Transformation] = MappingProxyType(
    {
        "exponential": _Transformation(lambda d: np.exp(-d), _median),
        "gaussian": _Transformation(lambda d: np.exp(-(d**2)), _median),
        "inverse": _Transformation(lambda d: 1.0 / (1.0 + d), _median),
        "linear": _Transformation(lambda d: 1.0 - d, lambda d: float(d.max(initial=0.0)) or 1.0, None),
    }
)


@dataclass(frozen=True)
class FromDistances(Kernel):
    """A similarity computed from a distance, entry by entry; equal objects have similarity 1.

    Whether the result is psd depends on the distance.

    Parameters
    ----------
    distance : Kernel or callable
        A kernel of distances such as `EditDistance`, ``Precomputed(D)`` for a matrix of distances, or a function
        d(A, B) -> array. Distances are >= 0, symmetric, and 0 from an object to itself.
    transform : {"exponential", "gaussian", "inverse", "linear"}, default="exponential"
        exp(-d / scale), exp(-(d / scale)²), 1 / (1 + d / scale) or 1 - d / scale.
    scale : float or None, default=None
        Unit of distance, above 0. None is replaced, when the kernel is bound to data, by the median distance among 64
        objects, or by the largest of them for "linear".

    Examples
    --------
    >>> import numpy as np
    >>> import krein
    >>> D = krein.Precomputed(np.array([[0.0, 2.0], [2.0, 0.0]]))
    >>> krein.FromDistances(D, scale=2.0)([0, 1]).round(3)
    array([[1.   , 0.368],
           [0.368, 1.   ]])
    """

    distance: Any
    transform: str = "exponential"
    scale: float | None = None

    def __post_init__(self) -> None:
        _take_distance(self)
        one_of("transform", self.transform, TRANSFORMATIONS)
        if self.scale is not None:
            object.__setattr__(self, "scale", positive(self, "scale", self.scale))

    @property
    def traits(self) -> Traits:
        low = TRANSFORMATIONS[self.transform].low
        return Traits(stationary=False, psd=None, low=low, high=1.0, constant_diagonal=True)

    def __call__(self, A: Any, B: Any = None) -> Array:
        scale = bound(self, "scale", self.scale)
        d = _distances(self, A, B)
        return TRANSFORMATIONS[self.transform].value(d / d.dtype.type(scale))

    def diag(self, A: Any) -> Array:
        bound(self, "scale", self.scale)
        return np.ones(count_objects(A))

    def block_entries(self, n: int, m: int, same: bool = False) -> int:
        return int(self.distance.block_entries(n, m, same))

    def diag_entries(self, n_objects: int) -> int:
        return 0

    def bind(self, X: Any) -> Kernel:
        n = count_objects(X)
        note((0 if self.scale is not None else len(_spots(n)) ** 2) + _own_entries(self.distance, n))
        inner = self.distance.bind(X)
        made = self if inner is self.distance else replace(self, distance=inner)
        if self.scale is not None:
            _check_own(made, X, self.scale)
            return made
        d = _sampled(made, X)
        return replace(made, scale=TRANSFORMATIONS[self.transform].typical(d[np.triu_indices(len(d), 1)]))


@dataclass(frozen=True, eq=False, repr=False)
class DoubleCentred(Anchored):
    """Inner products computed from distances by double centring: -1/2 of the centred squared distances.

    It is indefinite exactly if the distances are not Euclidean.

    Parameters
    ----------
    distance : Kernel or callable
        As in `FromDistances`.
    n_references : int, default=32
        Number of random objects whose mean is the centre. Each new object costs that many distances, and no n x n
        matrix is centred. With all objects as references it is classical scaling, -1/2 J D² J.
    references : collection or None, default=None
        The reference objects. They are drawn when the kernel is bound to data.
    level : float, default=0.0
        The mean squared distance among the references, computed with them.

    Examples
    --------
    >>> import krein
    >>> X = ["kitten", "sitting", "mitten"]
    >>> krein.DoubleCentred(krein.EditDistance()).bind(X)(X).shape
    (3, 3)
    """

    distance: Any
    n_references: int = 32
    references: Any = None  # the objects, once bound
    level: float = 0.0  # the mean squared distance among them

    def __post_init__(self) -> None:
        _take_distance(self)
        object.__setattr__(self, "n_references", whole(self, "n_references", self.n_references))

    @property
    def traits(self) -> Traits:
        return Traits(stationary=False, psd=None)

    def own(self, A: Any) -> Array:
        """Return the mean squared distance to the references."""
        if self.references is None:
            raise InputError(f"{self!r} has no references yet. Bind it to the data with .bind(X).")
        return np.asarray((_distances(self, A, self.references) ** 2).mean(1))

    def own_entries(self, n_objects: int) -> int:
        return int(self.distance.block_entries(n_objects, self.n_references))

    def cross_entries(self, n: int, m: int, same: bool = False) -> int:
        return int(self.distance.block_entries(n, m, same)) + (0 if same else self.own_entries(n))

    def cross(self, A: Any, B: Any, own_B: Any) -> Array:
        own_B = np.asarray(own_B)
        own_A = own_B if B is A else self.own(A)
        squares = _distances(self, A, B) ** 2
        return np.asarray(0.5 * (own_A[:, None] + own_B - squares - self.level), dtype=squares.dtype)

    def diag(self, A: Any) -> Array:
        return self.own(A) - 0.5 * self.level

    def diag_entries(self, n_objects: int) -> int:
        return self.own_entries(n_objects)

    def bind(self, X: Any) -> Kernel:
        n = count_objects(X)
        note(_own_entries(self.distance, n))
        if self.references is not None:
            _check_own(self, X, float(np.sqrt(self.level)))
            return self
        note(len(_spots(n)) ** 2 + min(n, self.n_references) ** 2)
        made = replace(self, distance=self.distance.bind(X))
        _sampled(made, X)  # are they distances?
        count = min(n, self.n_references)
        chosen = take(X, np.sort(stream(0).choice(n, count, replace=False)))
        level = float((_distances(made, chosen, chosen) ** 2).mean())
        return replace(made, n_references=count, references=chosen, level=level)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DoubleCentred) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"DoubleCentred({self.distance!r}, n_references={self.n_references})"

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.distance, self.n_references, pickle.dumps(self.references)


def _take_distance(kernel: Any) -> None:
    object.__setattr__(kernel, "distance", as_kernel(kernel.distance))
    _refuse_unstored(kernel, kernel.distance)
    inherit(kernel, kernel.distance)
    object.__setattr__(kernel, "accepts_sparse", False)
    object.__setattr__(kernel, "dissimilar", False)


def _refuse_unstored(asker: Any, distance: Kernel) -> None:
    """Refuse a sparse matrix that lacks pairs: what is not stored would be a distance of 0, the most similar of all."""
    S: Any = getattr(distance, "S", None)
    if is_sparse(S):
        stored, n = S, int(S.shape[0])
        if not stored.has_canonical_format:  # an entry stored twice is one
            stored = S.copy()
            stored.sum_duplicates()
        on_it = int((stored.indices == np.repeat(np.arange(n), np.diff(stored.indptr))).sum())
        missing = n * (n - 1) - (int(stored.nnz) - on_it)
        if missing:
            raise InputError(
                f"{type(asker).__name__} needs the distance of every pair; {missing} of {n * (n - 1)} off the diagonal "
                "are not stored in this sparse matrix, and would count as 0, equal objects. Pass a dense matrix, or "
                "similarities, where 0 means nothing in common: exp(-d²/s²) of the stored distances, and 1 on the "
                "diagonal, as Precomputed(S) by itself."
            )
    for part in distance.get_params(deep=False).values():
        for inner in part if isinstance(part, tuple) else (part,):
            if isinstance(inner, Kernel):
                _refuse_unstored(asker, inner)


def _distances(asker: Any, A: Any, B: Any) -> Array:
    d = np.asarray(asker.distance(A, B))
    if d.size and d.ndim == 2 and not float(d.min()) >= 0.0:  # NaN too
        i, j = (int(v) for v in np.argwhere(~(d >= 0.0))[0])
        raise KernelError(
            f"{asker!r} needs distances, 0 or more; it got {d[i, j]:.4g} between objects {i} and {j} of a block, "
            f"{int((~(d >= 0.0)).sum())} of {d.size} in all. Is it a similarity already? Then use it as it is."
        )
    if d.size and not np.isfinite(d.max()):  # exp(-inf) would pass for a similarity of 0
        raise KernelError(
            f"{asker!r} needs finite distances; {int(np.isinf(d).sum())} of {d.size} in a block are infinite. Give "
            "pairs that cannot be compared a large finite distance."
        )
    return d


def _spots(n: int) -> Indices:
    return np.unique(np.linspace(0, n - 1, SCALE_SAMPLE).astype(np.intp))


def _own_entries(distance: Kernel, n: int) -> int:
    """How many distances `_check_own` asks for."""
    return min(n, distance.diag_entries(n))


def _check_own(asker: Any, X: Any, typical: float) -> None:
    """Refuse objects that are not 0 from themselves, next to a distance that is ``typical``: n distances at most."""
    n, distance = count_objects(X), asker.distance
    if distance.diag_entries(n) <= n:
        own = np.asarray(distance.diag(X), dtype=np.float64)
    else:  # blocks of them would take more
        each = (np.asarray(distance(x, x)).ravel() for x in (rows(X, slice(i, i + 1)) for i in range(n)))
        own = np.array([float(values[0]) if values.size else np.nan for values in each])
    wrong = ~(np.abs(own) <= ROUNDED_ZERO * typical)  # NaN too
    if wrong.any():
        i = int(np.argmax(np.where(np.isfinite(own), np.abs(own), np.inf)))
        raise KernelError(
            f"{asker!r} needs d(x, x) = 0; object {i} is {own[i]:.4g} from itself, and {int(wrong.sum())} of {n} are "
            f"not 0 (other distances: {typical:.4g}). Is it a similarity already? Then use it as it is."
        )


def _sampled(asker: Any, X: Any) -> Array:
    """Distances among evenly spaced objects; refused unless they are symmetric, and every object 0 from itself."""
    spots = _spots(count_objects(X))
    some = take(X, spots)
    d = _distances(asker, some, some).astype(np.float64)
    largest = float(d.max(initial=0.0))
    if not np.isfinite(largest):
        raise KernelError(f"{asker!r} needs finite distances; got {largest}. Impute or drop them first.")
    _check_own(asker, X, largest)
    gap = float(np.abs(d - d.T).max(initial=0.0))
    if gap > 1e-4 * largest:
        i, j = (int(v) for v in np.unravel_index(int(np.argmax(np.abs(d - d.T))), d.shape))
        raise KernelError(
            f"{asker!r} needs symmetric distances; objects {spots[i]} and {spots[j]} are {d[i, j]:.4g} and "
            f"{d[j, i]:.4g} apart. Average both ways."
        )
    return d
